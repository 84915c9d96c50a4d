"""The harness proves itself: the clients read golden tables as the golden files say, and write what they then read."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from . import peers
from .peers import Peer, PeerError, PeerKind
from .values import arrow_schema, assert_same_rows, difference, rows_of

pytestmark = pytest.mark.peers

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "tables"
CLIENT_NAMES = {"pypaimon": "pypaimon 2.1.0", "pypaimon-rust": "pypaimon-rust 0.4.0"}
TABLES = [
    "pk_int_java",
    "pk_int_compacted_java",
    "pk_composite_java",
    "pk_part_java",
    "append_part_java",
    "types_java",
    "types_pk_java",
    "types_key_java",
    "dects_java",
    "nested_java",
    "evo_java",
    "fmt_avro_java",
    "fmt_orc_py",
    "pk_int_py",
    "pk_int_rust",
    "mixed_compacted",
]


def golden_copy(name: str, warehouse: Path) -> dict[str, Any]:
    """Copy a golden table to `db.<name>` of a warehouse and give its expectations."""
    shutil.copytree(GOLDEN / name, warehouse / "db.db" / name)
    expected: dict[str, Any] = json.loads((GOLDEN / f"{name}.expected.json").read_text(encoding="utf-8"))
    return expected


def fields_of(name: str) -> list[dict[str, Any]]:
    """The fields of the newest schema of a golden table."""
    newest = max((GOLDEN / name / "schema").glob("schema-*"), key=lambda path: int(path.name.split("-")[1]))
    fields: list[dict[str, Any]] = json.loads(newest.read_text(encoding="utf-8"))["fields"]
    return fields


@pytest.mark.parametrize("name", TABLES)
def test_a_client_reads_a_golden_table_as_the_golden_file_says(peer: Peer, name: str, tmp_path: Path) -> None:
    expected = golden_copy(name, tmp_path)
    if expected["readers"][CLIENT_NAMES[peer.kind.name]] != "agrees":
        pytest.skip(f"{peer.kind.name} is known to differ")
    assert_same_rows(
        peer.rows(tmp_path, f"db.{name}", fields_of(name)), expected["rows"], f"{name} in {peer.kind.name}"
    )


def test_a_client_reads_back_what_it_wrote(peer: Peer, tmp_path: Path) -> None:
    fields = [("k", "INT NOT NULL"), ("p", "STRING NOT NULL"), ("d", "DECIMAL(10, 2)"), ("t", "TIMESTAMP(6)")]
    schema = arrow_schema(fields)
    peer.create_table(tmp_path, "db.t", fields, primary_key=["p", "k"], partition_by=["p"], options={"bucket": "2"})
    noon = datetime(2024, 2, 29, 12, 0, 0, 123456)
    first = pa.table(
        [[1, 2, 3], ["a", "a", "b"], [None, Decimal("2.50"), Decimal(3)], [noon, None, noon]], schema=schema
    )
    second = pa.table([[2, 4], ["a", "b"], [Decimal(5), None], [noon, noon]], schema=schema)
    peer.write(tmp_path, "db.t", first)
    peer.write(tmp_path, "db.t", second)
    merged = pa.concat_tables([first.take([0, 2]), second])
    assert_same_rows(peer.rows(tmp_path, "db.t", fields), rows_of(merged, fields))
    assert peer.latest_snapshot(tmp_path, "db.t") == 2
    assert peer.read(tmp_path, "db.t", columns=["k"], where=[("equal", "p", ["b"])])["k"].to_pylist() == [3, 4]
    peer.write(tmp_path, "db.t", second, overwrite={})
    assert_same_rows(peer.rows(tmp_path, "db.t", fields), rows_of(second, fields))


def test_rust_takes_row_kinds_and_runs_sql(rust: Peer, tmp_path: Path) -> None:
    rust.create_table(
        tmp_path, "db.t", [("k", "INT NOT NULL"), ("v", "STRING")], primary_key=["k"], options={"bucket": "1"}
    )
    rust.write(tmp_path, "db.t", _keyed([1, 2, 3], ["a", "b", "c"]))
    rust.write(tmp_path, "db.t", _keyed([2, 3], ["b", "x"]).append_column("_VALUE_KIND", pa.array([3, 2], pa.int8())))
    rust.sql(tmp_path, "db.t", "INSERT INTO {table} VALUES (9, 'sql')")
    assert_same_rows(rust.rows(tmp_path, "db.t"), [{"k": 1, "v": "a"}, {"k": 3, "v": "x"}, {"k": 9, "v": "sql"}])
    assert rust.sql(tmp_path, "db.t", "SELECT count(*) AS n FROM {table}")["n"].to_pylist() == [3]


def test_pypaimon_takes_row_kinds_from_a_column(pypaimon: Peer, tmp_path: Path) -> None:
    fields = [("k", "INT NOT NULL"), ("v", "STRING"), ("op", "STRING")]
    pypaimon.create_table(tmp_path, "db.t", fields, primary_key=["k"], options={"bucket": "1", "rowkind.field": "op"})
    pypaimon.write(tmp_path, "db.t", _keyed([1, 2], ["a", "b"]).append_column("op", pa.array(["+I", "+I"])))
    pypaimon.write(tmp_path, "db.t", _keyed([1], ["a"]).append_column("op", pa.array(["-D"])))
    assert_same_rows(pypaimon.rows(tmp_path, "db.t"), [{"k": 2, "v": "b", "op": "+I"}])


def _keyed(keys: list[int], values: list[str]) -> pa.Table:
    return pa.table({"k": pa.array(keys, pa.int32()), "v": pa.array(values)})


def test_an_error_of_a_client_reaches_the_caller_and_the_next_request_works(peer: Peer, tmp_path: Path) -> None:
    with pytest.raises(PeerError, match=f"{peer.kind.name} cannot read"):
        peer.read(tmp_path, "db.nothing_here")
    assert peer.request("about")["client"] == CLIENT_NAMES[peer.kind.name].split()[1]


def test_of_two_processes_that_build_an_environment_one_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MERGANSER_PEER_ENVS", str(tmp_path))
    meet = threading.Barrier(2)

    def build(directory: Path, base_python: str, requirements: Any) -> None:
        (directory / "bin").mkdir(parents=True)
        meet.wait(timeout=30)

    monkeypatch.setattr(peers, "_build", build)
    found: list[Path] = []
    kind = PeerKind("nobody", ("nothing==1",), "none.py")
    threads = [threading.Thread(target=_collect(found, kind)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found[0] == found[1]
    assert [path.name for path in tmp_path.iterdir()] == [found[0].parent.parent.name]


def _collect(found: list[Path], kind: PeerKind) -> Callable[[], None]:
    return lambda: found.append(peers.environment_of(kind))


def test_a_failed_install_leaves_nothing_and_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MERGANSER_PEER_ENVS", str(tmp_path))
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(peers.PeerUnavailableError, match="no-such-package"):
        peers.environment_of(PeerKind("nobody", ("no-such-package-of-merganser==1",), "none.py"))
    assert list(tmp_path.iterdir()) == []


def test_a_difference_names_the_columns_apart() -> None:
    found = difference([{"k": 1, "v": "a"}, {"k": 2, "v": "b"}], [{"k": 1, "v": "c"}, {"k": 2, "v": "b"}])
    assert found is not None
    assert 'v: "a", expected "c"' in found
    assert '"k":2' not in found


def test_rows_are_compared_as_a_multiset_and_not_as_a_set() -> None:
    assert difference([{"k": 1}, {"k": 2}], [{"k": 2}, {"k": 1}]) is None
    assert difference([{"k": 1}], [{"k": 1}, {"k": 1}]) is not None
    assert difference([{"k": 0.0}], [{"k": -0.0}]) is not None

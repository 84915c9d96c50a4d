"""Tables that we alter are read and written on by the other clients, and theirs by us."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import merganser as mg
from merganser import changes as c

from .peers import Peer, PeerError
from .values import rows_of

pytestmark = pytest.mark.peers

COLUMNS = {"k": "INT NOT NULL", "n": "INT", "s": "STRING", "d": "DECIMAL(6, 2)", "r": "ROW<x INT, y STRING>"}
CHANGES = [
    c.rename_column("k", "key"),
    c.rename_column("n", "m"),
    c.retype_column("m", "BIGINT"),
    c.drop_column("s"),
    c.add_column("s", "STRING", after="key"),
    c.retype_column("d", "DECIMAL(10, 3)"),
    c.move_column("d", first=True),
]


@pytest.fixture
def table(tmp_path: Path) -> mg.Table:
    catalog = mg.catalog(str(tmp_path), options={"local.sync": "false"})
    catalog.create_database("db")
    table = catalog.create_table("db.t", COLUMNS, primary_key=["k"], options={"bucket": "1", "sequence.field": "n"})
    table.write([{"k": k, "n": k, "s": "old", "d": None, "r": {"x": k, "y": "a"}} for k in (1, 2, 3)])
    return table


def ours(table: mg.Table) -> list[dict[str, Any]]:
    return sorted(mg.table(table.path).read().to_pylist(), key=lambda row: row["key"])


def test_a_client_reads_and_writes_on_what_we_altered(peer: Peer, table: mg.Table, tmp_path: Path) -> None:
    made = table.alter(CHANGES)
    made.write([{"d": 1, "key": 3, "s": "new", "m": 2**40, "r": {"x": 30, "y": "b"}}])
    assert sorted(map(repr, rows_of(peer.read(tmp_path, "db.t")))) == sorted(map(repr, rows_of(made.read().to_arrow())))
    rows = made.read(where="key = 2").to_arrow()
    at = rows.column_names.index("s")
    rows = rows.set_column(at, rows.schema.field(at), pa.array(["theirs"]).cast(rows.schema.field(at).type))
    peer.write(tmp_path, "db.t", rows)
    assert [(row["key"], row["m"], row["s"]) for row in ours(table)] == [
        (1, 1, None),
        (2, 2, "theirs"),
        (3, 2**40, "new"),
    ]
    made.compact(full=True)
    assert sorted(map(repr, rows_of(peer.read(tmp_path, "db.t")))) == sorted(map(repr, rows_of(made.read().to_arrow())))
    assert {found.code for found in mg.table(table.path).check()} <= {"unsure"}  # theirs have no checksums


def test_a_client_reads_fields_of_rows_that_we_changed(pypaimon: Peer, table: mg.Table, tmp_path: Path) -> None:
    made = table.alter([c.add_column("r.z", "INT"), c.rename_column("r.y", "text"), c.retype_column("r.x", "BIGINT")])
    made.write([{"k": 9, "n": 9, "s": "", "d": None, "r": {"x": 2**40, "text": "b", "z": 1}}])
    found = rows_of(pypaimon.read(tmp_path, "db.t", columns=["k", "r"]))
    assert sorted(map(repr, found)) == sorted(map(repr, rows_of(made.read(columns=["k", "r"]).to_arrow())))


def test_we_read_and_write_on_what_pypaimon_altered(pypaimon: Peer, table: mg.Table, tmp_path: Path) -> None:
    changes = [
        ["rename_column", "k", "key"],
        ["update_column_type", "n", "BIGINT"],
        ["rename_column", "n", "m"],
        ["drop_column", "s"],
        ["add_column", "s", "STRING"],
    ]
    pypaimon.request("alter", warehouse=str(tmp_path), table="db.t", changes=changes)
    made = mg.table(table.path)
    assert made.schema.names == ("key", "m", "d", "r", "s")
    assert made.options["sequence.field"] == "m"
    assert [(row["key"], row["m"], row["s"]) for row in ours(table)] == [(1, 1, None), (2, 2, None), (3, 3, None)]
    made.write([{"key": 2, "m": 2**40, "d": None, "r": None, "s": "ours"}])
    made.alter([c.add_column("x", "INT", default=4)]).write(
        [{"key": 4, "m": 0, "d": None, "r": None, "s": "", "x": None}]
    )
    found = rows_of(pypaimon.read(tmp_path, "db.t"))
    assert sorted(map(repr, found)) == sorted(map(repr, rows_of(mg.table(table.path).read().to_arrow())))


def test_we_refuse_where_pypaimon_refuses(pypaimon: Peer, table: mg.Table, tmp_path: Path) -> None:
    for theirs, own in (
        (["drop_column", "k"], c.drop_column("k")),
        (["update_column_type", "k", "BIGINT"], c.retype_column("k", "BIGINT")),
        (["rename_column", "n", "s"], c.rename_column("n", "s")),
        (["add_column", "x", "INT NOT NULL"], c.add_column("x", "INT NOT NULL")),
        (["set_option", "merge-engine", "aggregation"], c.set_option("merge-engine", "aggregation")),
    ):
        with pytest.raises(PeerError):
            pypaimon.request("alter", warehouse=str(tmp_path), table="db.t", changes=[theirs])
        with pytest.raises(mg.errors.InvalidInputError):
            table.alter([own])


@pytest.mark.parametrize("bucket", ["-1", "2"])
def test_a_client_reads_and_writes_on_a_table_that_got_a_key(peer: Peer, tmp_path: Path, bucket: str) -> None:
    catalog = mg.catalog(str(tmp_path), options={"local.sync": "false"})
    catalog.create_database("db")
    table = catalog.create_table("db.t", {"k": "INT NOT NULL", "v": "INT"})
    for n in range(3):
        table.write([{"k": k, "v": n} for k in range(n + 1)])
    keyed = table.alter(
        [c.set_primary_key(["k"]), c.set_option("merge-engine", "deduplicate"), c.set_option("bucket", bucket)]
    )

    def theirs(**how: Any) -> list[tuple[int, int]]:
        return sorted((row["k"], row["v"]) for row in peer.read(tmp_path, "db.t", **how).to_pylist())

    assert theirs() == [(0, 2), (1, 2), (2, 2)]
    peer.write(tmp_path, "db.t", pa.table({"k": pa.array([1, 7], pa.int32()), "v": pa.array([9, 9], pa.int32())}))
    assert sorted((row["k"], row["v"]) for row in keyed.read().to_pylist()) == theirs()
    assert theirs() == [(0, 2), (1, 9), (2, 2), (7, 9)]
    before = [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2)]
    assert theirs(options={"scan.snapshot-id": "3"}) == before

"""Tables that were made of folders, unread, are read and written on by the other clients."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

import merganser as mg

from .peers import Peer
from .values import rows_of

pytestmark = pytest.mark.peers

NOON = dt.datetime(2024, 2, 29, 12, 0, 0, 123456)
INNER = pa.struct([("x", pa.int32()), ("y", pa.string())])
COLUMNS: dict[str, pa.Array] = {
    "id": pa.array([1, 2, None], pa.int32()),
    "big": pa.array([2**40, None, -1], pa.int64()),
    "tiny": pa.array([1, None, -128], pa.int8()),
    "flag": pa.array([True, None, False]),
    "price": pa.array([Decimal("1.25"), None, Decimal("-999.99")], pa.decimal128(10, 2)),
    "wide": pa.array([Decimal("1.25"), None, Decimal("-999.99")], pa.decimal128(38, 2)),
    "ratio": pa.array([0.5, None, -1.5], pa.float32()),
    "level": pa.array([0.5, None, -1.5]),
    "name": pa.array(["a", None, ""]),
    "code": pa.array([b"\x00\xff", None, b""]),
    "day": pa.array([dt.date(2024, 2, 29), None, dt.date(1969, 12, 31)]),
    "at": pa.array([NOON, None, NOON], pa.timestamp("us")),
    "once": pa.array([NOON, None, NOON], pa.timestamp("ms")),
    "list": pa.array([[1, None], None, []], pa.list_(pa.int64())),
    "map": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int32())),
    "large": pa.array(["a", None, ""], pa.large_string()),
    "category": pa.array(["a", None, "a"]).dictionary_encode(),
    "midnight": pa.array([dt.date(2024, 2, 29), None, dt.date(1969, 12, 31)], pa.date64()),
    "row": pa.array([{"x": 1, "y": "a"}, None, {"x": None, "y": None}], INNER),
}


@pytest.fixture
def catalog(tmp_path: Path) -> mg.Catalog:
    made = mg.catalog(str(tmp_path / "w"), options={"local.sync": "false"})
    made.create_database("db")
    return made


def put(path: Path, columns: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    (orc if path.suffix == ".orc" else pq).write_table(pa.table(columns), str(path))


def sorted_rows(rows: pa.Table) -> list[str]:
    return sorted(map(repr, rows_of(rows)))


def check(peer: Peer, catalog: mg.Catalog, name: str, **asked: Any) -> None:
    ours = catalog.table(name).read(columns=asked.get("columns")).to_arrow()
    assert sorted_rows(peer.read(Path(catalog.warehouse), name, **asked)) == sorted_rows(ours)


@pytest.mark.parametrize("how", ["link", "keep"])
def test_a_client_reads_files_of_any_writer_with_every_type(
    peer: Peer, catalog: mg.Catalog, tmp_path: Path, how: str
) -> None:
    put(tmp_path / "f" / "a.parquet", COLUMNS)
    catalog.migrate(tmp_path / "f", "db.t", how=how)
    check(peer, catalog, "db.t")
    check(peer, catalog, "db.t", columns=["name", "id"])


def test_a_client_reads_files_that_differ_and_writes_on(peer: Peer, catalog: mg.Catalog, tmp_path: Path) -> None:
    put(tmp_path / "f" / "1.parquet", {"n": pa.array([1], pa.int32()), "d": pa.array([Decimal("1.5")])})
    put(tmp_path / "f" / "2.parquet", {"s": ["late"], "n": pa.array([2**40]), "d": pa.array([Decimal("1234.25")])})
    put(tmp_path / "f" / "3.parquet", {"n": pa.array([3], pa.int16())})
    table = catalog.migrate(tmp_path / "f", "db.t", how="keep")
    check(peer, catalog, "db.t")
    peer.write(Path(catalog.warehouse), "db.t", table.read(where="n = 3").to_arrow())
    assert sorted(row["n"] for row in catalog.table("db.t").read().to_pylist()) == [1, 3, 3, 2**40]
    check(peer, catalog, "db.t")


def test_a_client_reads_and_writes_on_a_clone(peer: Peer, catalog: mg.Catalog) -> None:
    table = catalog.create_table("db.t", "k INT, v STRING", ["k"], options={"bucket": "2"})
    for v in ("a", "b"):
        table.write([{"k": k, "v": v} for k in range(5)])
    clone = catalog.clone(table, "db.c", snapshot=1)
    check(peer, catalog, "db.c")
    peer.write(Path(catalog.warehouse), "db.c", table.read(where="k = 3").to_arrow())
    assert sorted((row["k"], row["v"]) for row in clone.read().to_pylist()) == [
        (k, "b" if k == 3 else "a") for k in range(5)
    ]


def test_pypaimon_knows_the_partitions_of_files_without_them(
    pypaimon: Peer, catalog: mg.Catalog, tmp_path: Path
) -> None:
    for day in ("2024-01-01", "2024-01-02", "__HIVE_DEFAULT_PARTITION__"):
        for place in ("a%2Fb", "c"):
            put(tmp_path / "f" / f"dt={day}" / f"place={place}" / "part.parquet", {"id": [1, 2], "s": [day, None]})
    for how in ("link", "keep"):
        table = catalog.migrate(tmp_path / "f", f"db.{how}", how=how)
        check(pypaimon, catalog, f"db.{how}")
        check(pypaimon, catalog, f"db.{how}", columns=["place", "id"])
        pypaimon.write(Path(catalog.warehouse), f"db.{how}", table.read(where="dt = DATE '2024-01-02'").to_arrow())
        assert catalog.table(f"db.{how}").read().count() == 16
        check(pypaimon, catalog, f"db.{how}")


def test_pypaimon_rust_knows_them_once_the_rows_are_written_anew(
    rust: Peer, catalog: mg.Catalog, tmp_path: Path
) -> None:
    """A reader that looks for partition columns in files alone finds none in files of Hive: `rust` gives null."""
    put(tmp_path / "f" / "p=1" / "part.parquet", {"id": [1, 2]})
    catalog.migrate(tmp_path / "f", "db.t")
    assert rows_of(rust.read(Path(catalog.warehouse), "db.t", columns=["p"])) == [{"p": None}] * 2
    catalog.migrate(tmp_path / "f", "db.copy", how="copy")
    check(rust, catalog, "db.copy")


def test_a_client_reads_orc_files_of_any_writer(peer: Peer, catalog: mg.Catalog, tmp_path: Path) -> None:
    put(
        tmp_path / "f" / "a.orc",
        {name: COLUMNS[name] for name in ("id", "big", "price", "name", "day", "level", "row")},
    )
    catalog.migrate(tmp_path / "f", "db.t")
    check(peer, catalog, "db.t")

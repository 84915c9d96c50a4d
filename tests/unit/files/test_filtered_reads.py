"""Filters on files that need no merge: rows decoded for what they keep alone are the rows of a full read, filtered."""

from __future__ import annotations

import random
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pytest

import merganser as mg
from merganser.codec import parquet, parquet_where
from merganser.errors import FormatError, InvalidInputError

ROWS = 70_000
FILTERS = [
    "i < 20",
    "i <= 20 AND s = 'text 7'",
    "i = 3 OR s = 'text 9'",
    "i = 3 OR d > 4999.5",
    "i IS NULL AND k < 5000",
    "i IN (1, NULL, 5)",
    "i NOT IN (1, 5) AND i < 9",
    "NOT (i > 5)",
    "day = DATE '2020-01-05'",
    "s > 'text 98'",
    "d < -4999",
    "i < 3000000000 AND i < 4",
    "i < 5.5",
    "5 > i",
    "f > 0.99",
    "i < 900",
    "i > 2000",
]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> mg.Table:
    chance = random.Random(5)
    integers = [None if chance.random() < 0.01 else chance.randrange(1_000) for _ in range(ROWS)]
    rows = pa.table(
        {
            "k": pa.array(range(ROWS), pa.int64()),
            "i": pa.array(integers, pa.int32()),
            "s": pa.array([f"text {i % 100}" if i % 50 else None for i in range(ROWS)]),
            "d": pa.array(
                [Decimal(chance.randrange(-(10**6), 10**6)) / 100 for _ in range(ROWS)], pa.decimal128(12, 2)
            ),
            "day": pa.array([date(2020, 1, 1) + timedelta(days=i % 300) for i in range(ROWS)]),
            "f": pa.array([chance.random() if i % 9 else float("nan") for i in range(ROWS)]),
        }
    )
    catalog = mg.catalog(str(tmp_path_factory.mktemp("warehouse")), options={"local.sync": "false"})
    catalog.create_database("db")
    table = catalog.create_table(
        "db.t",
        {"k": "BIGINT", "i": "INT", "s": "STRING", "d": "DECIMAL(12, 2)", "day": "DATE", "f": "DOUBLE"},
        primary_key=["k"],
        options={"bucket": "1"},
    )
    table.write(rows)
    table.compact(full=True)
    return table


def _texts(rows: pa.Table) -> pa.Table:
    """Return the rows with floats as text: NaN equals nothing, else."""
    return rows.cast(pa.schema([(f.name, pa.string() if f.type == pa.float64() else f.type) for f in rows.schema]))


@pytest.mark.parametrize("where", FILTERS)
def test_what_a_filter_keeps_is_what_it_keeps_of_all_rows(table: mg.Table, where: str) -> None:
    for columns in (None, ["k"], ["s", "d"]):
        found = table.read(columns, where).to_arrow()
        with patch("merganser.files.read.superset", lambda *_: None):
            expected = table.read(columns, where).to_arrow()
        assert found.schema == expected.schema
        assert _texts(found).equals(_texts(expected))
        assert table.read(columns, where).count() == expected.num_rows


def test_few_rows_are_sought_and_many_are_read(table: mg.Table) -> None:
    with patch.object(parquet, "read_where", wraps=parquet_where.read_where) as asked:
        table.read(where="i < 20").to_arrow()
        assert asked.call_count >= 1
        asked.reset_mock()
        table.read(where="f > 0.5").to_arrow()
        assert asked.call_count == 0


@pytest.mark.parametrize("before", ["TINYINT", "INT"])
def test_rows_of_files_whose_numbers_became_wider_are_sought_too(tmp_path: Path, before: str) -> None:
    catalog = mg.catalog(str(tmp_path), options={"local.sync": "false"})
    catalog.create_database("db")
    table = catalog.create_table("db.t", {"k": "INT", "i": before}, options={"bucket": "-1"})
    kind, count = pa.int8() if before == "TINYINT" else pa.int32(), 20_000
    for _ in range(2):
        values = [None if k % 99 == 0 else k % 120 - 20 for k in range(count)]
        table.write(pa.table({"k": pa.array(range(count), pa.int32()), "i": pa.array(values, kind)}))
        kind, table = pa.int64(), table.alter([mg.changes.retype_column("i", "BIGINT")])
    for where in ("i = 7", "i < -18", "i IN (5, 9000000)", "i >= 99", "i > 3000000000", "i IS NULL", "i < 4294967303"):
        with patch.object(parquet, "read_where", wraps=parquet_where.read_where) as asked:
            found = table.read(where=where).to_arrow()
        assert asked.call_count == 2 or "0000" in where or "NULL" in where
        with patch("merganser.files.read.superset", lambda *_: None):
            assert found.equals(table.read(where=where).to_arrow())


def test_a_filter_that_can_fail_fails(table: mg.Table) -> None:
    with pytest.raises(InvalidInputError):
        table.read(where="CAST(s AS INT) > 2 AND i > 998").to_arrow()


@pytest.mark.parametrize("name", ["^b$", "*"])
def test_a_name_that_polars_takes_for_a_pattern_is_a_name(tmp_path: Path, name: str) -> None:
    catalog = mg.catalog(str(tmp_path))
    catalog.create_database("db")
    table = catalog.create_table("db.t", {"b": "INT", name: "INT"}, options={"bucket": "-1"})
    table.write(pa.table({"b": pa.array(range(100), pa.int32()), name: pa.array(range(100, 200), pa.int32())}))
    assert table.read(columns=[name], where=f"`{name}` = 107").to_pylist() == [{name: 107}]
    assert table.read(columns=[name], where=f"`{name}` < 50").to_pylist() == []


def test_deleted_rows_stay_deleted(tmp_path: Path) -> None:
    catalog = mg.catalog(str(tmp_path), options={"local.sync": "false"})
    catalog.create_database("db")
    made = catalog.create_table(
        "db.t", {"k": "INT", "i": "INT"}, primary_key=["k"], options={"bucket": "1", "deletion-vectors.enabled": "true"}
    )
    integers = [i % 200 for i in range(1000)]
    made.write(pa.table({"k": pa.array(range(1000), pa.int32()), "i": pa.array(integers, pa.int32())}))
    made.compact(full=True)
    made.write(pa.table({"k": pa.array([5], pa.int32()), "i": pa.array([7], pa.int32())}))
    found = made.read(where="i = 5").to_arrow()
    assert sorted(found["k"].to_pylist()) == [205, 405, 605, 805]


def test_a_flipped_bit_is_an_error_or_nothing(table: mg.Table, tmp_path: Path) -> None:
    expected = _texts(table.read(where="i < 20").to_arrow())
    path = Path(table.files()["file_path"][0].as_py())
    data = path.read_bytes()
    body = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    chance = random.Random(2)
    try:
        for _ in range(25):
            damaged = bytearray(data)
            damaged[chance.randrange(4, body)] ^= 1 << chance.randrange(8)
            path.write_bytes(damaged)
            try:
                found = table.read(where="i < 20").to_arrow()
            except FormatError as error:
                assert path.name in str(error)
            else:
                assert _texts(found).equals(expected)
    finally:
        path.write_bytes(data)

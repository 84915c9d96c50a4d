"""Moments with more digits than a column stores: refused with two ways out, or truncated, at every entry point."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import merganser as mg
from merganser.errors import InvalidInputError

AT = datetime(1960, 1, 2, 3, 4, 5, 678_901)
ROW = {"k": 1, "at": AT, "l": AT.replace(tzinfo=UTC), "tm": AT.time(), "many": [AT], "one": {"at": AT}}
CUT = AT.replace(microsecond=678_000)
STORED = {"k": 1, "at": CUT, "l": CUT.replace(tzinfo=UTC), "tm": CUT.time(), "many": [CUT], "one": {"at": CUT}}
COLUMNS = {
    "k": "INT",
    "at": "TIMESTAMP(3)",
    "l": "TIMESTAMP(3) WITH LOCAL TIME ZONE",
    "tm": "TIME(3)",
    "many": "ARRAY<TIMESTAMP(3)>",
    "one": "ROW<at TIMESTAMP(3)>",
}
TEXT = {"k": 1} | {
    "at": str(AT),
    "l": f"{AT}Z",
    "tm": str(AT.time()),
    "many": [str(AT)],
    "one": {"at": str(AT)},
}


def load_json(table: mg.Table, path: Path) -> None:
    (path / "rows.json").write_text(json.dumps(TEXT) + "\n")
    table.load(str(path / "rows.json"))


def load_parquet(table: mg.Table, path: Path) -> None:
    pq.write_table(pa.Table.from_pylist([ROW]), path / "rows.parquet")
    table.load(str(path / "rows.parquet"))


def records(table: mg.Table, path: Path) -> None:
    record = json.dumps({"op": "c", "before": None, "after": TEXT})
    table.write_changes([record], "debezium-json", bad="fail")


WAYS: dict[str, Callable[[mg.Table, Path], Any]] = {
    "write": lambda table, path: table.write([ROW]),
    "write with nanoseconds": lambda table, path: table.write(
        pa.Table.from_pylist([ROW]).set_column(1, "at", pa.array([AT], pa.timestamp("ns")))
    ),
    "upsert": lambda table, path: table.upsert([ROW]),
    "load of JSON": load_json,
    "load of Parquet": load_parquet,
    "change records": records,
}


def made(path: Path, **options: str) -> mg.Table:
    catalog = mg.catalog(str(path / "warehouse"), options={"local.sync": "false"})
    catalog.create_database("s")
    return catalog.create_table("s.t", COLUMNS, primary_key=["k"], options={"bucket": "1"} | options)


@pytest.mark.parametrize("way", WAYS)
def test_digits_are_dropped_towards_the_past_if_the_table_says_so(way: str, tmp_path: Path) -> None:
    table = made(tmp_path, **{"write.timestamp-precision": "truncate"})
    WAYS[way](table, tmp_path)
    assert table.read().to_pylist() == [STORED]


@pytest.mark.parametrize("way", WAYS)
def test_otherwise_the_call_is_refused_and_names_the_option(way: str, tmp_path: Path) -> None:
    table = made(tmp_path)
    with pytest.raises(InvalidInputError, match=r"write\.timestamp-precision"):
        WAYS[way](table, tmp_path)
    assert table.latest_snapshot() is None


def test_the_message_of_a_write_says_both_ways_out(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError) as refused:
        made(tmp_path).write([STORED | {"at": AT}])
    assert str(refused.value) == (
        "cannot write to 's.t': column 'at' value 1960-01-02 03:04:05.678901 has microseconds, and the column stores "
        "milliseconds (TIMESTAMP(3)) (row 1 of 1). Rows count from 1. Nothing was written. Truncate the values, let "
        "writes do so with the table option 'write.timestamp-precision' = 'truncate', or widen the column with "
        'retype_column("at", "TIMESTAMP(6)").'
    )


def test_one_handle_may_truncate(tmp_path: Path) -> None:
    table = made(tmp_path).with_options({"write.timestamp-precision": "truncate"})
    table.write([STORED | {"tm": time(1, 2, 3, 999_999)}])
    assert table.read().to_pylist()[0]["tm"] == time(1, 2, 3, 999_000)


def test_columns_that_place_rows_keep_their_type_so_that_messages_advise_another_table(tmp_path):
    catalog = mg.catalog(str(tmp_path))
    catalog.create_database("db")
    kinds = {"at": "TIMESTAMP(3)", "p": "INT", "b": "TIMESTAMP(3)", "n": "INT"}
    table = catalog.create_table("db.t", kinds, primary_key=["at", "p"], partition_by=["p"])
    lines = catalog.create_table("db.l", kinds, partition_by=["p"], options={"bucket": "1", "bucket-key": "b"})
    row = {"at": CUT, "p": 1, "b": CUT, "n": 1}
    record = '{"at": "2026-01-01", "p": 3000000000, "n": 1}'
    calls = [
        lambda: table.write([row | {"at": AT}]),
        lambda: table.upsert([row | {"at": AT}]),
        lambda: table.write([row | {"p": "x"}]),
        lambda: lines.write([row | {"b": AT}]),
        lambda: table.write_changes([record], "json"),
        lambda: table.write([row | {"p": "x"}], columns=list(row)),
        lambda: table.lookup([{"at": AT, "p": 1}]),
    ]
    for call in calls:
        with pytest.raises(InvalidInputError) as refused:
            call()
        assert "retype_column" not in str(refused.value)
        assert "change the column type" not in str(refused.value)
        assert ("keeps its type" in str(refused.value)) == (call is not calls[-1]), str(refused.value)
    assert str(refused.value).endswith("Nothing was read. Truncate the values.")
    with pytest.raises(InvalidInputError, match="widen the column with retype_column"):
        table.write([row | {"b": AT}])
    with pytest.raises(InvalidInputError, match="widen this one with retype_column"):
        table.write_changes(['{"at": "2026-01-01", "p": 3, "n": 3000000000}'], "json")

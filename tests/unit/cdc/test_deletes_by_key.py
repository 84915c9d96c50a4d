"""Deletes that hold their key alone: other columns may be NOT NULL, whatever the way in and the layout of the table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import merganser as mg
from merganser.errors import InvalidInputError

Make = Callable[..., mg.Table]
ROWS = [{"id": i, "name": f"n{i}", "at": i} for i in range(4)]
GONE = {"id": 1, "name": None, "at": None}


@pytest.fixture
def make(tmp_path: Path) -> Make:
    catalog = mg.catalog(tmp_path)
    catalog.create_database("db")

    def created(name: str = "t", key: tuple[str, ...] = ("id",), **options: Any) -> mg.Table:
        schema = {"id": "BIGINT", "name": "STRING NOT NULL", "at": "INT NOT NULL"}
        options = {"bucket": "1", **options} if key else options
        table = catalog.create_table(f"db.{name}", schema, primary_key=list(key), options=options)
        table.write(ROWS)
        return table

    return created


def ids(table: mg.Table) -> list[int]:
    return sorted(row["id"] for row in table.read().to_pylist())


def keyed(table: mg.Table, values: list[str | None], format_: str, keys: list[str | None]) -> None:
    table.write_changes(values, format_, keys=keys, tombstone="delete")


DELETES: dict[str, Callable[[mg.Table], object]] = {
    "write": lambda table: table.write([GONE], kinds=["-D"]),
    "writer": lambda table: _by_writer(table),
    "upsert": lambda table: table.upsert([GONE], kinds=["-D"]),
    "debezium": lambda table: keyed(table, ['{"op": "d", "before": {"id": 1}}'], "debezium-json", [None]),
    "debezium message key": lambda table: keyed(table, ['{"op": "d"}'], "debezium-json", ['{"id": 1}']),
    "debezium tombstone": lambda table: keyed(table, [None], "debezium-json", ['{"id": 1}']),
    "flat": lambda table: keyed(table, ['{"id": 1, "__deleted": "true"}'], "debezium-flat", [None]),
    "flat tombstone": lambda table: keyed(table, [None], "debezium-flat", ['{"id": 1}']),
    "json": lambda table: keyed(table, [None], "json", ["1"]),
    "canal": lambda table: keyed(table, ['{"type": "DELETE", "data": [{"id": "1"}]}'], "canal-json", [None]),
    "maxwell": lambda table: keyed(table, ['{"type": "delete", "data": {"id": 1}}'], "maxwell-json", [None]),
    "ogg": lambda table: keyed(table, ['{"op_type": "D", "before": {"id": 1}}'], "ogg-json", [None]),
}


def _by_writer(table: mg.Table) -> None:
    with table.writer() as writer:
        writer.write([GONE], kinds=["-D"])
        writer.commit()


@pytest.mark.parametrize("way", DELETES)
def test_a_delete_needs_its_key_columns_only(make: Make, way: str) -> None:
    table = make()
    DELETES[way](table)
    assert ids(table) == [0, 2, 3]
    assert table.check() == ()


LAYOUTS: dict[str, dict[str, Any]] = {
    "orc": {"file.format": "orc"},
    "avro by level": {"file.format.per.level": "0:avro,5:parquet"},
    "input": {"changelog-producer": "input"},
    "lookup": {"changelog-producer": "lookup"},
    "per-record": {"changelog-producer": "per-record"},
    "full-compaction": {"changelog-producer": "full-compaction"},
    "deletion vectors": {"deletion-vectors.enabled": "true"},
    "dynamic": {"bucket": "-1"},
    "postponed": {"bucket": "-2"},
    "partial-update": {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"},
    "aggregation": {"merge-engine": "aggregation", "aggregation.remove-record-on-delete": "true"},
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_deletes_and_moved_keys_without_values_survive_compaction_in_every_layout(make: Make, layout: str) -> None:
    table = make(**LAYOUTS[layout])
    table.write_changes(
        [
            '{"op": "d", "before": {"id": 1}}',
            '{"op": "u", "before": {"id": 2}, "after": {"id": 22, "name": "m", "at": 5}}',
            '{"op": "c", "after": {"id": 7, "name": "new", "at": 7}}',
        ],
        "debezium-json",
    )
    assert ids(table) == [0, 3, 7, 22]
    assert table.check() == ()
    table.compact(full=True)
    assert ids(table) == [0, 3, 7, 22]
    assert table.check() == ()
    changes = [(row["_row_kind"], row["id"]) for row in table.changes(1, table.snapshots()[-1].id).to_pylist()]
    assert {("-D", 1), ("-D", 2), ("+I", 22)} <= set(changes)


def test_a_null_is_refused_in_rows_that_are_no_deletes(make: Make) -> None:
    table = make()
    for kind in ("+I", "-U", "+U"):
        with pytest.raises(InvalidInputError, match=r"NOT NULL column 'name' is null in 1 of 2 rows \(first at row 2"):
            table.write([GONE, {**GONE, "id": 2}], kinds=["-D", kind])


def test_a_delete_needs_the_column_that_orders_rows_and_whole_rows_where_there_is_no_key(make: Make) -> None:
    table = make("ordered", **{"sequence.field": "at"})
    with pytest.raises(InvalidInputError, match="NOT NULL column 'at' is null"):
        table.write([GONE], kinds=["-D"])
    table.write([{**GONE, "at": 9}], kinds=["-D"])
    assert ids(table) == [0, 2, 3]
    counted = make("counted", (), **{"write-mode": "change-log"})
    with pytest.raises(InvalidInputError, match="NOT NULL column 'name' is null"):
        counted.write([GONE], kinds=["-D"])


def test_kinds_of_a_column_count_for_nulls_too(tmp_path: Path) -> None:
    catalog = mg.catalog(tmp_path)
    catalog.create_database("db")
    schema = {"id": "BIGINT", "name": "STRING NOT NULL", "kind": "STRING"}
    table = catalog.create_table("db.t", schema, primary_key=["id"], options={"rowkind.field": "kind"})
    table.write([{"id": i, "name": "a", "kind": "+I"} for i in range(3)])
    table.write(pa.table({"id": [1], "name": pa.nulls(1, pa.string()), "kind": ["-D"]}))
    assert ids(table) == [0, 2]
    with pytest.raises(InvalidInputError, match="NOT NULL column 'name' is null"):
        table.write([{"id": 2, "name": None, "kind": "+U"}])

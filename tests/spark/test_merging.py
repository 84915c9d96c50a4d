"""`ms.merge` of large sources and tables: tasks do what `Table.merge` does, and no row comes to the driver."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import merganser as mg
import merganser.spark as ms
from merganser.edit.merging import Merge
from merganser.errors import InvalidInputError

pytestmark = pytest.mark.spark

COLUMNS = {"c1": "INT", "p.q": "STRING", "a`b": "INT", "at": "TIMESTAMP(3)"}
ROWS = [{"c1": k, "p.q": "xy"[k % 2], "a`b": None if k % 7 == 6 else k, "at": None} for k in range(40)]
KEYED: dict[str, dict[str, str]] = {
    "lookup": {"bucket": "2", "changelog-producer": "lookup"},
    "input": {"bucket": "2", "changelog-producer": "input"},
    "dynamic": {"bucket": "-1"},
}
SOURCE = pa.schema([("c0", pa.int32()), ("v", pa.int32()), ("p.q", pa.string())])
SOME = [(k, -k if k % 4 else 4, "xy"[k % 2] if k != 10 else None) for k in (1, 2, 8, 9, 10, 45, 50)] + [(None, 5, "x")]

Clause = tuple[str, dict[str, Any]]
UPDATE: Clause = ("matched_update", {"set": {"a`b": "target.`a``b` + v"}, "condition": "v < 0"})
DELETE: Clause = ("matched_delete", {"condition": "v = 4"})
INSERT: Clause = (
    "not_matched_insert",
    {"values": {"c1": "c0", "p.q": "source.`p.q`", "a`b": "v"}, "condition": "v <> 5 AND source.`p.q` <> ''"},
)
DROPS: Clause = ("not_matched_by_source_delete", {"condition": "`a``b` % 3 = 0"})
SETS: Clause = (
    "not_matched_by_source_update",
    {"set": {"a`b": "-1", "at": "TIMESTAMP '2026-01-01 00:00:00.123'"}, "condition": "c1 < 30 OR `a``b` IS NULL"},
)
BY_KEY = "target.c1 = source.c0 AND target.`p.q` = source.`p.q`"


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every source and table is large, and no row comes to the driver."""
    monkeypatch.setattr("merganser.spark.editing.FILES_FROM_BYTES", 1)
    monkeypatch.setattr("pyspark.sql.DataFrame.toArrow", None)


def pair(catalog: mg.Catalog, key: list[str], options: dict[str, str]) -> list[mg.Table]:
    """Return two tables with the same rows."""
    tables = []
    for name in ("here", "there"):
        table = catalog.create_table(
            f"shop.{name}", COLUMNS, primary_key=key, partition_by=["p.q"] if key else [], options=options
        )
        for first in (0, 20):
            table.write(ROWS[first : first + 20])
        table.delete("c1 = 12")
        tables.append(table)
    return tables


def result(table: mg.Table, merge: Merge, clauses: list[Clause]) -> Any:
    """Return what a merge does to a table: how many rows it changes, which rows are there, what it publishes."""
    for name, arguments in clauses:
        merge = getattr(merge, f"when_{name}")(**arguments)
    try:
        found = merge.execute()
    except InvalidInputError as error:
        return str(error).partition("(")[0].partition("into '")[0], table.remove_orphans(older_than="2100-01-01")
    rows = sorted(table.read().to_pylist(), key=repr)
    if found is None:
        return None, rows
    published = []
    if table.options.get("changelog-producer", "none") != "none":
        published = sorted(table.changes(start=found.id, end=found.id).to_pylist(), key=repr)
    assert [each for each in table.check() if each.is_fault] == []
    return (found.operation, found.rows_inserted, found.rows_updated, found.rows_deleted), rows, published


def compare(
    spark: SparkSession, tables: list[mg.Table], on: str, clauses: list[Clause], rows: list[tuple[Any, ...]] = SOME
) -> Any:
    """Merge rows into the first table here, and into the second one in tasks; what comes of it is the same."""
    here, there = tables
    local = result(
        here,
        here.merge(
            pa.Table.from_pylist([dict(zip(SOURCE.names, row, strict=True)) for row in rows], SOURCE),
            on=on,
            timezone="America/New_York",
        ),
        clauses,
    )
    frame = spark.createDataFrame(rows, "c0 int, v int, `p.q` string").repartition(3)
    found = result(there, ms.merge(spark, there, frame, on=on), clauses)
    assert found == local
    return found


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("kind", KEYED)
def test_rows_that_meet_none_of_the_source_are_changed_in_tasks(
    spark: SparkSession, catalog: mg.Catalog, kind: str
) -> None:
    tables = pair(catalog, ["p.q", "c1"], KEYED[kind])
    on = f"target.`a``b` > 1 AND {BY_KEY}"
    found = compare(spark, tables, on, [UPDATE, DELETE, SETS, DROPS])
    assert found[0] == ("MERGE", 0, 29, 5)
    found = compare(spark, tables, BY_KEY, [UPDATE, INSERT, DROPS], [(k, k, "x") for k in (100, 102)])
    assert found[0] == ("MERGE", 2, 0, 2)
    if kind == "lookup":
        by_value = "target.`a``b` = source.v AND target.`p.q` = source.`p.q`"
        assert compare(spark, tables, by_value, [UPDATE, SETS], [(1, -1, "x")] * 2)[1] == ()  # several meet one row
        assert compare(spark, tables, by_value, [INSERT, SETS], [(1, 77, "y")])[1] == ()  # the key is there
        assert compare(spark, tables, BY_KEY, [INSERT, SETS], [(60, 7, "y")] * 2)[1] == ()
        division = ("not_matched_by_source_update", {"set": {"a`b": "1 DIV (c1 - 31)"}})
        assert compare(spark, tables, BY_KEY, [division])[1] == ()
        assert compare(spark, tables, BY_KEY, [("not_matched_by_source_delete", {})], [])[1] == []
        assert compare(spark, tables, BY_KEY, [INSERT, SETS])[0] == ("MERGE", 6, 0, 0)  # into an empty table

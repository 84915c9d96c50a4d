"""`ms.merge` of large sources and tables: tasks do what `Table.merge` does, and no row comes to the driver."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import merganser as mg
import merganser.spark as ms
from merganser.edit.merging import Merge
from merganser.errors import InvalidInputError
from merganser.spark import joins, merge_files, merging

pytestmark = pytest.mark.spark

COLUMNS = {"c1": "INT", "p.q": "STRING", "a`b": "INT", "at": "TIMESTAMP(3)"}
ROWS = [{"c1": k, "p.q": "xy"[k % 2], "a`b": None if k % 7 == 6 else k, "at": None} for k in range(40)]
KEYED: dict[str, dict[str, str]] = {
    "lookup": {"bucket": "2", "changelog-producer": "lookup"},
    "input": {"bucket": "2", "changelog-producer": "input"},
    "dynamic": {"bucket": "-1"},
}
APPENDED: dict[str, tuple[list[str], dict[str, str]]] = {
    "plain": ([], {"source.split.target-size": "1 kb"}),
    "vectors": (["p.q"], {"deletion-vectors.enabled": "true", "write-only": "true"}),
    "bucketed": (["p.q"], {"bucket": "2", "bucket-key": "c1", "deletion-vectors.enabled": "true"}),
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
PARTS = "if(id % 2 = 0, 'x', 'y') `p.q`"
BY_KEY = "target.c1 = source.c0 AND target.`p.q` = source.`p.q`"


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every source and table is large, each split is for a task of its own, and no row comes to the driver."""
    monkeypatch.setattr("merganser.spark.splits._PACK_BYTES_MIN", 1)
    monkeypatch.setattr("merganser.spark.merging.FILES_FROM_BYTES", 1)
    monkeypatch.setattr("merganser.spark.joins.FILES_FROM_BYTES", 4096)
    monkeypatch.setattr("pyspark.sql.DataFrame.toArrow", None)


def pair(catalog: mg.Catalog, key: list[str], parts: list[str], options: dict[str, str]) -> list[mg.Table]:
    """Return two tables with the same rows."""
    tables = []
    for name in ("here", "there"):
        table = catalog.create_table(f"shop.{name}", COLUMNS, primary_key=key, partition_by=parts, options=options)
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
        return str(error).partition(".")[0], table.remove_orphans(older_than="2100-01-01T00:00:00")
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


@pytest.mark.campaign(1 / 4)
@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("kind", KEYED)
def test_rows_that_meet_none_of_the_source_are_changed_in_tasks(
    spark: SparkSession, catalog: mg.Catalog, kind: str
) -> None:
    tables = pair(catalog, ["p.q", "c1"], ["p.q"], KEYED[kind])
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


@pytest.mark.campaign(1 / 4)
@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("kind", APPENDED)
def test_tasks_change_the_files_of_rows_that_meet_one_of_the_source(
    spark: SparkSession, catalog: mg.Catalog, kind: str
) -> None:
    tables = pair(catalog, [], *APPENDED[kind])
    on = f"target.`a``b` > 1 AND {BY_KEY}"
    assert compare(spark, tables, on, [UPDATE, DELETE, INSERT])[0] == ("MERGE", 3, 2, 1)
    inserts, updates, deletes = compare(spark, tables, BY_KEY, [INSERT, SETS, DROPS], [*SOME, *SOME])[0][1:]
    assert min(inserts, updates, deletes) > 1
    if kind == "bucketed":  # the bucket of a new row is computed
        computed = ("not_matched_insert", {"values": {"c1": "c0 + 1", "p.q": "'x'", "a`b": "v"}})
        assert compare(spark, tables, BY_KEY, [UPDATE, computed], [(k, k, "z") for k in range(5)])[0][1] == 5
    if kind == "vectors":
        by_value = "target.`a``b` = source.v AND source.`p.q` = target.`p.q`"
        several, left = "cannot merge into 'shop", ()
        assert compare(spark, tables, by_value, [UPDATE, SETS], [(1, -1, "x")] * 2) == (several, left)
        assert compare(spark, tables, by_value, [UPDATE], [(1, -1, "x")] * 2) == (several, left)
        division = ("not_matched_insert", {"values": {"c1": "1 DIV (c0 - 3)", "p.q": "'x'"}})
        assert compare(spark, tables, BY_KEY, [UPDATE, SETS, division], [(31, -5, "y"), (3, 1, "z")]) == (several, left)
        assert compare(spark, tables, BY_KEY, [INSERT], [(None, 7, "x"), (31, 1, "y"), (70, 2, "y")])[0][1] == 2
        assert compare(spark, tables, BY_KEY, [UPDATE], [(99, -5, "y")])[0] is None
        assert compare(spark, tables, BY_KEY, [("not_matched_by_source_delete", {})], [])[1] == []
        assert compare(spark, tables, BY_KEY, [UPDATE, INSERT, SETS])[0][1:] == (6, 0, 0)  # into an empty table


@pytest.mark.campaign(1 / 4)
@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("kind", ["lookup", "vectors"])
def test_spark_joins_by_the_names_of_the_text(spark: SparkSession, catalog: mg.Catalog, kind: str) -> None:
    keyed = kind in KEYED
    key, parts, options = (["p.q", "c1"], ["p.q"], KEYED[kind]) if keyed else ([], *APPENDED[kind])
    table = pair(catalog, key, parts, options)[0]
    by_value = spark.createDataFrame([(1, 100), (3, 300)], "`a``b` int, v int").repartition(2).alias("new rows")
    on = "`a table`.`a``b` = `NEW rows`.`a``b`"
    merge = ms.merge(spark, table, by_value, on).when_matched_update({"a`b": "`a table`.`a``b` + `new rows`.v"})
    assert result(table, merge, [])[0] == ("MERGE", 0, 2, 0)
    source = spark.createDataFrame([(2, -2, "x"), (50, 5, "x")], "c0 int, v int, `p.q` string").repartition(2)
    merge = ms.merge(spark, table, source, "`a b`.c1 = S.c0 AND s.`p.q` = `a b`.`p.q`", alias=("a b", "s"))
    values = {"c1": "s.c0", "p.q": "'x'", "a`b": "s.v"}
    merge = merge.when_matched_update({"a b.a`b": "`a b`.`a``b` + s.v"}).when_not_matched_insert(values)
    assert result(
        table, merge, [("not_matched_by_source_update", {"set": {"at": "NULL"}, "condition": "`a b`.c1 = 4"})]
    )
    assert {row["c1"]: row["a`b"] for row in table.read(where="c1 IN (1, 2, 3, 50)").to_pylist()} == {
        1: 101, 2: 0, 3: 303, 50: 5
    }  # fmt: skip
    twin = spark.createDataFrame([(7, "y")], "c1 int, `p.q` string")
    on = "u.c1 = s.c1 AND s.`p.q` = u.`p.q`"
    with pytest.raises(InvalidInputError, match="which of 'u' and 's' is the table"):
        ms.merge(spark, table, twin, on).when_matched_delete("u.c1 = 7")
    merge = ms.merge(spark, table, twin, on).when_matched_delete()
    assert result(table, merge, [])[0] == ("MERGE", 0, 0, 1)


def touching(folder: str) -> Any:
    """Return code of a task that leaves a file for each partition that it makes."""

    def made(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import tempfile

        tempfile.mkstemp(dir=folder)
        yield from batches

    return made


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("key", [["id"], []])
def test_clauses_have_the_names_of_delta(spark: SparkSession, catalog: mg.Catalog, key: list[str]) -> None:
    table = catalog.create_table("shop.t", {"id": "INT", "n": "INT"}, primary_key=key)
    table.write([{"id": k, "n": k} for k in range(6)])
    source = spark.createDataFrame([(1, 10), (2, 20), (3, 30), (9, 90)], "id int, n int")
    merge: Any = ms.merge(spark, table, source.alias("s"), "t.id = s.id")
    merge = merge.whenMatchedUpdate("s.n = 10", {"n": "t.n + s.n"}).whenMatchedDelete(condition="s.n = 20")
    merge = merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().whenNotMatchedBySourceDelete("t.id = 5")
    merge.whenNotMatchedBySourceUpdate(set={"n": "-1"}).execute()
    found = sorted((row["id"], row["n"]) for row in table.read().to_pylist())
    assert found == [(0, -1), (1, 11), (3, 30), (4, -1), (9, 90)]
    fewer: Any = ms.merge(spark, table, source.select("id"), "target.id = source.id")
    with pytest.raises(InvalidInputError, match="the source lacks n"):
        fewer.whenMatchedUpdateAll()


def test_names_are_looked_for_without_a_log_of_errors(spark: SparkSession, catalog: mg.Catalog) -> None:
    table = catalog.create_table("shop.quiet", {"id": "INT", "n": "INT"}, primary_key=["id"])
    source = spark.createDataFrame([(1, 10)], "id int, n int")
    seen: list[str] = []

    class Seen(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(record.getMessage())

    handler, log = Seen(), PySparkLogger.getLogger("DataFrameQueryContextLogger")
    log.addHandler(handler)
    try:
        ms.merge(spark, table, source.alias("s"), "t.id = s.id").when_not_matched_insert().execute()
        assert seen == []
        with pytest.raises(AnalysisException):
            source.select(f.col("nothing")).collect()
        assert seen  # errors of others are logged as before
    finally:
        log.removeHandler(handler)
    assert table.read().to_pylist() == [{"id": 1, "n": 10}]


@pytest.mark.campaign(1 / 4)
@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("kind", ["lookup", "vectors"])
def test_each_round_takes_rows_of_the_source_once(
    spark: SparkSession, catalog: mg.Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    keyed = kind in KEYED
    options = KEYED[kind] if keyed else APPENDED[kind][1]
    _, table = pair(catalog, ["p.q", "c1"] if keyed else [], ["p.q"], options)
    (tmp_path / "touched").mkdir()
    rows = spark.range(20, 60, 1, 2).mapInArrow(touching(str(tmp_path / "touched")), "id long")
    source = rows.selectExpr(
        "cast(id as int) c0", "cast(rand() * 1000000 as int) + 5 v", "if(id % 2 = 0, 'x', 'y') `p.q`"
    )
    rounds: list[int] = []

    def ran(*arguments: Any, real: Any = merging.run_jobs) -> Any:
        outcomes = real(*arguments)
        rounds.append(len(list((tmp_path / "touched").iterdir())))
        if len(rounds) == 1:
            table.delete("c1 = 33")
        return outcomes

    for module in (merging, merge_files):
        monkeypatch.setattr(module, "run_jobs", ran)
    sets = ("matched_update", {"set": {"a`b": "v"}})
    merge = ms.merge(spark, table, source, on=BY_KEY, commit_user="job", identifier=1)
    for name, arguments in (sets, INSERT, ("not_matched_by_source_update", {"set": {"a`b": "-1"}})):
        merge = getattr(merge, f"when_{name}")(**arguments)
    found = merge.execute()
    assert found is not None
    assert rounds == [2, 4]
    assert (found.rows_inserted, found.rows_updated, found.rows_deleted) == (21, 38, 0)
    values = {row["c1"]: row["a`b"] for row in table.read().to_pylist()}
    assert {k for k, a in values.items() if a == -1} == {*range(20)} - {12}
    assert {k for k, a in values.items() if a >= 5} == {*range(20, 60)}
    assert merge.execute() == found
    assert len(rounds) == 2


TYPES = {
    "BOOLEAN": "true", "TINYINT": "1", "SMALLINT": "2", "BIGINT": "4", "FLOAT": "-0.0",
    "DOUBLE": "CAST('NaN' AS DOUBLE)",
    "DECIMAL(20, 3)": "5.125", "DATE": "DATE '1900-02-03'", "TIMESTAMP(3)": "TIMESTAMP '2026-01-02 03:04:05.678'",
    "TIMESTAMP_LTZ(6)": "TIMESTAMP_LTZ '2026-01-02 03:04:05.678901'",
    "CHAR(3)": "'abc'", "VARCHAR(5)": "'é'",
    "BYTES": "X'00ff'", "TIME": "TIME '03:04:05'",
}  # fmt: skip


@pytest.mark.usefixtures("large")
def test_columns_of_all_types_join_and_are_carried(spark: SparkSession, catalog: mg.Catalog) -> None:
    columns = {"k": "INT", **{f"c`.{i}": kind for i, kind in enumerate(TYPES)}}
    columns |= {"r": "ROW<x INT, `y.z` STRING>", "l": "ARRAY<INT>", "m": "MAP<STRING, TIMESTAMP(3)>"}
    tables = [catalog.create_table(f"shop.{name}", columns) for name in ("a", "b")]
    nested = {"r": {"x": 1, "y.z": "s"}, "l": [1, None], "m": [("k", None)]}
    for table in tables:
        table.write([{"k": k, **nested} for k in range(4)], columns=["k", "r", "l", "m"])
        table.update("k < 3", {f"c`.{i}": value for i, value in enumerate(TYPES.values())})
    tables[1].update("k = 2", {"c`.4": "0.0", "r": "NULL", "l": "NULL", "m": "NULL"})
    names = [f"`c``.{i}`" for i in range(len(TYPES))]
    on = " AND ".join(f"target.{name} = source.{name}" for name in ["k", *names])
    source = ms.read(spark, tables[1]).withColumn("r", f.expr("named_struct('x', k, 'y.z', 'new')"))
    merge = ms.merge(spark, tables[0], source, on=f"{on} AND target.r.x = 1")
    found = merge.when_matched_update().when_not_matched_insert().execute()
    assert found is not None
    assert (found.rows_inserted, found.rows_updated) == (1, 3)
    rows = sorted(tables[0].read(columns=["k", "r", "l", "m"]).to_pylist(), key=repr)
    assert [(row["k"], row["r"]) for row in rows] == [
        *((k, {"x": k, "y.z": "new"}) for k in range(3)), (3, {"x": 1, "y.z": "s"}), (3, {"x": 3, "y.z": "new"})
    ]  # fmt: skip
    assert [row["l"] for row in rows] == [[1, None], [1, None], None, [1, None], [1, None]]


@pytest.mark.campaign(1 / 3)
@pytest.mark.parametrize("how", ["inner", "left", "right", "full", "left_anti"])
def test_no_large_side_of_a_join_goes_through_the_driver(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    rows = spark.range(0, 8, 1, 8).mapInArrow(touching(""), "id long")
    source = spark.range(1000)

    def plan(size: int) -> str:
        found = joins.joined_with(source, rows, size, "target.id = source.id", how)
        return str(found._jdf.queryExecution().executedPlan().toString())

    large = joins.FILES_FROM_BYTES
    assert "BuildRight" not in plan(large)
    assert ("BuildLeft" in plan(large)) == (how in ("inner", "right"))
    monkeypatch.setattr(joins, "estimated_bytes", lambda source: None)
    assert "Broadcast" not in plan(large)
    assert "Broadcast" in plan(large - 1) or how == "full"

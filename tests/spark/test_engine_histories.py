"""A few random histories of merge engines through Spark: written by tasks, read by tasks, held against the oracle."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import merganser as mg
import merganser.spark as ms
from tests.everything.campaign import Failure, report, run
from tests.oracle.drawn_tables import DrawnTable, choice, maybe, several
from tests.oracle.engines import Change, CountingOracle, HistoryOracle

pytestmark = pytest.mark.spark

TEXT = maybe(choice("", "a", "b", "żółć"))
WHOLE = maybe(choice(-3, 0, 2, 7))


def _drawn(engine: str) -> DrawnTable:
    """Return a table of an engine that has much of what it can do."""
    table = DrawnTable(engine, options={"bucket": "2", "merge-engine": engine})
    table.add("k", "INT", choice(1, 2, 3, 4))
    table.add("p", "STRING", choice("x", "y"))
    table.add("g", "INT", maybe(choice(*range(9)), 0.2))
    table.add("a", "STRING", TEXT)
    table.add("n", "BIGINT", WHOLE)
    table.add("l", "ARRAY<INT>", maybe(several(WHOLE)))
    table.key, table.partition = ["k"], ["p"]
    functions = {"fields.n.aggregate-function": "sum", "fields.l.aggregate-function": "collect"}
    table.options |= {
        "deduplicate": {"sequence.field": "g"},
        "aggregation": functions | {"aggregation.remove-record-on-delete": "true"},
        "partial-update": functions
        | {"fields.g.sequence-group": "n,l", "partial-update.remove-record-on-sequence-group": "g"},
    }[engine]
    return table


def _frame(spark: SparkSession, table: mg.Table, changes: list[Change]) -> object:
    columns = {
        field.name: pa.array([row[field.name] for _, row in changes], field.type) for field in table.read().schema
    }
    rows = pa.table({**columns, "op": pa.array([kind for kind, _ in changes])})
    half = len(changes) // 2  # of two frames the partitions of the first come first
    return spark.createDataFrame(rows.slice(0, half)).union(spark.createDataFrame(rows.slice(half)))


def _rows(rows: list[dict[str, object]]) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in rows)


@pytest.mark.parametrize("engine", ["deduplicate", "aggregation", "partial-update"])
def test_a_history_that_tasks_write_and_read_is_as_the_oracle_says(
    spark: SparkSession, catalog: mg.Catalog, engine: str
) -> None:
    rng, drawn = random.Random(engine), _drawn(engine)
    table = catalog.create_table(
        "shop.t", drawn.columns, primary_key=["p", "k"], partition_by=["p"], options=drawn.options
    )
    oracle = HistoryOracle({field.name: field.type for field in table.schema.fields}, ["p", "k"], drawn.options)
    for _ in range(3):
        changes = [(rng.choice(["+I", "+I", "+U", "-U", "-D"]), drawn.row(rng)) for _ in range(30)]
        ms.write(_frame(spark, table, changes), table, kinds="op")
        oracle.flush(changes)
        found = [row.asDict() for row in ms.read(spark, table).collect()]
        assert _rows(found) == _rows(oracle.visible())
    found = [row.asDict() for row in ms.read(spark, table, columns=["n", "k"], where="n >= 0").collect()]
    assert _rows(found) == _rows(
        [{"n": r["n"], "k": r["k"]} for r in oracle.visible() if r["n"] is not None and r["n"] >= 0]
    )


@pytest.mark.campaign(1 / 2)
@pytest.mark.parametrize("seed", [9, 21])
def test_a_history_that_draws_everything_is_as_the_model_says_on_spark(spark: SparkSession, seed: int) -> None:
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    try:
        found = run(seed, spark=spark)
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    assert not isinstance(found, Failure), report(found, spark)


def test_tasks_count_the_rows_of_a_table_without_a_key(spark: SparkSession, catalog: mg.Catalog) -> None:
    rng = random.Random(0)
    table = catalog.create_table("shop.t", {"a": "STRING", "b": "INT"}, options={"write-mode": "change-log"})
    oracle = CountingOracle(["a", "b"])
    for _ in range(2):
        changes = [
            (rng.choice(["+I", "+I", "+U", "-D"]), {"a": rng.choice(["x", "y", None]), "b": rng.choice([1, 2])})
            for _ in range(20)
        ]
        ms.write(_frame(spark, table, changes), table, kinds="op")
        oracle.flush(changes)
        assert _rows([row.asDict() for row in ms.read(spark, table).collect()]) == _rows(oracle.visible())
        assert ms.read(spark, table).count() == len(oracle.visible())


def test_a_kind_that_the_engine_does_not_take_is_refused_by_the_tasks(spark: SparkSession, catalog: mg.Catalog) -> None:
    table = catalog.create_table(
        "shop.t", {"k": "INT", "a": "STRING"}, primary_key=["k"], options={"merge-engine": "first-row", "bucket": "2"}
    )
    ms.write(
        spark.createDataFrame([("+U", 1, "first"), ("+I", 1, "second")], "op string, k int, a string"), table, "op"
    )
    with pytest.raises(mg.errors.InvalidInputError, match="first-row"):
        ms.write(spark.createDataFrame([("+I", 2, "a"), ("-D", 1, "b")], "op string, k int, a string"), table, "op")
    assert [tuple(row) for row in ms.read(spark, table).collect()] == [(1, "first")]

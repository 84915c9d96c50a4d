"""Changes of keys that move between partitions, on Spark: a reader that applies them by primary key gets the table."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as f

import merganser as mg
import merganser.spark as ms

pytestmark = pytest.mark.spark
Rows = dict[int, tuple[str, int]]


def _newest(changes: DataFrame) -> list[Any]:
    """Return the last change of each key."""
    last = Window.partitionBy("k").orderBy(f.desc("position"))
    numbered = changes.withColumn("position", f.monotonically_increasing_id())
    rows: list[Any] = numbered.withColumn("nth", f.row_number().over(last)).where("nth = 1").collect()
    return rows


def _merge(rows: Rows, changes: DataFrame) -> None:
    for row in _newest(changes):
        if row["_row_kind"] in ("-U", "-D"):
            rows.pop(row["k"], None)
        else:
            rows[row["k"]] = (row["p"], row["v"])


@pytest.mark.campaign(1 / 6)
@pytest.mark.parametrize("producer", ["input", "lookup"])
def test_merges_by_key_of_batches_and_of_all_changes_make_the_table(
    spark: SparkSession, catalog: mg.Catalog, producer: str, tmp_path: Path
) -> None:
    rng = random.Random(producer)
    options = {"dynamic-bucket.target-row-num": "2", "changelog-producer": producer}
    table = catalog.create_table("shop.moves", "k INT, p STRING, v INT", ["k"], ["p"], options)
    merged: Rows = {}
    for number in range(2):
        for _ in range(3):  # one batch reads several snapshots, of many buckets
            kinds = rng.choices(["+I", "-D"], [3, 1], k=40)
            rows = [{"k": rng.randrange(30), "p": rng.choice("abc"), "v": rng.randrange(99), "op": op} for op in kinds]
            with table.writer() as writer:
                writer.write(rows[:20], kinds="op")
                writer.write(rows[20:], kinds="op")
                writer.commit()
        query = ms.read_stream(spark, table).writeStream.foreachBatch(lambda batch, _: _merge(merged, batch))
        query = query.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
        query.awaitTermination()
        expected = {row["k"]: (row["p"], row["v"]) for row in table.read().to_pylist()}
        assert merged == expected, number
    every: Rows = {}
    _merge(every, ms.changes(spark, table))
    assert every == expected
    source = spark.read.format("merganser").option("incremental-between", f"0,{table.snapshots()[-1].id}")
    shown: Rows = {}
    _merge(shown, source.load(f"{table.path}$audit_log").withColumnRenamed("rowkind", "_row_kind"))
    assert shown == expected

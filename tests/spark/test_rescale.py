"""`ms.rescale`: rows move to another number of buckets in Spark tasks; streams and later writes go on."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import merganser as mg
import merganser.spark as ms
from merganser.errors import InvalidInputError, NotFoundError

pytestmark = pytest.mark.spark


def test_rows_move_in_tasks_and_writes_and_streams_go_on(
    spark: SparkSession, catalog: mg.Catalog, tmp_path: Path
) -> None:
    options = {"bucket": "2", "changelog-producer": "lookup"}
    table = catalog.create_table(
        "shop.r", {"id": "BIGINT", "g": "INT", "v": "STRING"}, ["id", "g"], ["g"], options=options
    )
    frame = spark.range(0, 300, 1, 4).select(
        "id", (f.col("id") % 3).cast("int").alias("g"), f.concat(f.lit("a"), f.col("id").cast("string")).alias("v")
    )
    ms.write(frame, table)
    rows = sorted(table.read().to_pylist(), key=str)
    stream = table.stream("latest", follow=False)
    assert ms.rescale(spark, table, 3, [{"G": 1}]) is not None
    assert ms.rescale(spark, table, 6) is not None
    assert ms.rescale(spark, table.path, 6) is None
    assert sorted(table.read().to_pylist(), key=str) == rows
    assert table.check() == ()
    assert list(stream) == []
    ms.write(frame.where("id < 2").withColumn("v", f.lit("new")), table)  # the handle is from before
    changes = [row for plan in stream for row in plan.to_pylist()]
    assert sorted((row["_row_kind"], row["id"], row["v"]) for row in changes) == [
        ("+U", 0, "new"),
        ("+U", 1, "new"),
        ("-U", 0, "a0"),
        ("-U", 1, "a1"),
    ]
    assert table.check() == ()
    with pytest.raises(NotFoundError, match="cannot rescale"):
        ms.rescale(spark, table, 2, [{"g": 9}])


def test_an_overwrite_with_another_number_moves_its_partitions(spark: SparkSession, catalog: mg.Catalog) -> None:
    table = catalog.create_table(
        "shop.wider", {"id": "BIGINT", "g": "INT", "v": "INT"}, ["id", "g"], ["g"], options={"bucket": "2"}
    )
    frame = spark.range(0, 90, 1, 3).select("id", (f.col("id") % 3).cast("int").alias("g"), f.lit(0).alias("v"))
    ms.write(frame, table)
    wide = table.with_options({"bucket": "5"})
    with pytest.raises(InvalidInputError, match=r"files of 2 buckets.*'bucket' = '5'"):
        ms.write(frame, wide)
    ms.write(frame.where("g = 0"), wide, overwrite={"g": 0})
    ms.write(frame.where("g = 1"), wide, overwrite="dynamic")
    ms.write(frame.where("g < 2").withColumn("v", f.lit(1)), wide)
    assert sorted(row["v"] for row in table.read().to_pylist()) == [0] * 30 + [1] * 60
    files = table.files().select(["partition", "bucket"]).to_pylist()
    assert {row["bucket"] for row in files if "2" not in str(row["partition"])} == set(range(5))
    assert {row["bucket"] for row in files if "2" in str(row["partition"])} == {0, 1}
    assert table.check() == ()


def test_a_query_that_is_started_again_writes_into_the_new_buckets(
    spark: SparkSession, catalog: mg.Catalog, tmp_path: Path
) -> None:
    table = catalog.create_table("shop.s", {"id": "BIGINT", "v": "STRING"}, ["id"], options={"bucket": "2"})
    source = tmp_path / "in"
    frame = spark.range(0, 60, 1, 2).select("id", f.lit("a").alias("v"))
    for number, buckets in enumerate((3, 8, 1)):
        frame.where(f"id % 3 = {number} OR id < 5").withColumn("v", f.lit(f"v{number}")).write.parquet(
            str(source), mode="append"
        )
        stream = spark.readStream.schema(frame.schema).parquet(str(source))
        query = ms.write_stream(stream, table, checkpoint=str(tmp_path / "c"), trigger={"availableNow": True})
        query.awaitTermination()
        ms.rescale(spark, table, buckets)
    found = {row["id"]: row["v"] for row in table.read().to_pylist()}
    assert found == {i: "v2" if i < 5 else f"v{i % 3}" for i in range(60)}
    assert {row["bucket"] for row in table.system("buckets").to_pylist()} == {0}
    assert table.check() == ()

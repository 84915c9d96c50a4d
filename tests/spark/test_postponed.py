"""Tables that postpone buckets, on Spark: streams leave rows waiting, `ms.compact` gives them buckets."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import merganser as mg
import merganser.spark as ms

pytestmark = pytest.mark.spark


@pytest.mark.campaign(1 / 2)
def test_streams_wait_and_batches_go_at_once(spark: SparkSession, catalog: mg.Catalog, tmp_path: Path) -> None:
    options = {"bucket": "-2", "postpone.default-bucket-num": "3"}
    schema = {"id": "BIGINT", "g": "INT", "v": "STRING"}
    table = catalog.create_table("shop.p", schema, ["id", "g"], ["g"], options=options)
    frame = spark.range(0, 200, 1, 4).select(
        "id", (f.col("id") % 3).cast("int").alias("g"), f.concat(f.lit("a"), f.col("id").cast("string")).alias("v")
    )
    ms.write(frame, table)
    assert table.read().count() == 200
    assert {row["bucket"] for row in table.system("buckets").to_pylist()} == {0, 1, 2}

    for number in (1, 2):
        some = frame.where(f"id < {60 // number}").withColumn("v", f.lit(f"stream {number}"))
        some.write.parquet(str(tmp_path / "in"), mode="append")
        source = spark.readStream.schema(frame.schema).parquet(str(tmp_path / "in"))
        query = ms.write_stream(source, table, checkpoint=str(tmp_path / "checkpoint"), trigger={"availableNow": True})
        query.awaitTermination()
    assert table.read(where="v LIKE 'stream%'").count() == 0
    waiting = {row["partition"] for row in table.system("buckets").to_pylist() if row["bucket"] == -2}
    assert waiting == {"{0}", "{1}", "{2}"}
    assert ms.compact(spark, table) is not None
    found = {row["id"]: row["v"] for row in table.read().to_pylist()}
    assert found == {i: "stream 2" if i < 30 else "stream 1" if i < 60 else f"a{i}" for i in range(200)}
    assert table.check() == ()

    frame.where("id < 5").withColumn("v", f.lit("last")).write.format("merganser").mode("append").save(table.path)
    assert table.read(where="v = 'last'").count() == 5
    assert {row["bucket"] for row in table.system("buckets").to_pylist()} == {0, 1, 2}
    assert ms.read(spark, table).count() == 200
    assert table.check() == ()

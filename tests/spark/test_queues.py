"""Append tables written by streams of Spark: small files are joined beside the stream, and queues keep their order."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import merganser as mg
import merganser.spark as ms

pytestmark = pytest.mark.spark


@pytest.mark.campaign(1 / 2)
@pytest.mark.parametrize("options", [{"bucket": "-1"}, {"bucket": "2", "bucket-key": "k"}], ids=["scalable", "queue"])
def test_a_stream_joins_its_small_files_and_keeps_the_order_of_a_queue(
    spark: SparkSession, catalog: mg.Catalog, tmp_path: Path, options: dict[str, str]
) -> None:
    name = f"shop.q{len(options)}"
    table = catalog.create_table(name, {"k": "INT", "n": "BIGINT"}, options={**options, "compaction.min.file-num": "3"})
    source = tmp_path / "in"
    rows = spark.range(0, 40, 1, 1).select((f.col("id") % 4).cast("int").alias("k"), f.col("id").alias("n"))
    for batch in range(8):
        rows.where(f"n DIV 5 = {batch}").coalesce(1).write.json(str(source / str(batch)))
    stream = spark.readStream.schema(rows.schema).option("maxFilesPerTrigger", "1").json(f"{source}/*")
    query = ms.write_stream(stream, table, checkpoint=str(tmp_path / "checkpoint"), trigger={"availableNow": True})
    query.awaitTermination()
    snapshots = table.snapshots()
    assert sum(one.commit_kind == "APPEND" for one in snapshots) == 8
    assert any(one.commit_kind == "COMPACT" for one in snapshots)
    assert table.files().num_rows < 8
    found = table.read().to_pylist()
    assert sorted(row["n"] for row in found) == list(range(40))
    if "bucket-key" in options:
        for key in range(4):
            assert [row["n"] for row in found if row["k"] == key] == list(range(key, 40, 4))
        read = [row["n"] for row in ms.read(spark, table).where("k = 1").collect()]
        assert read == list(range(1, 40, 4))
    assert table.check() == ()

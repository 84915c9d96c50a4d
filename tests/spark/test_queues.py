"""Append tables written by streams of Spark: small files are joined beside the stream, and queues keep their order."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

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
    source.mkdir()
    for batch in range(5):
        lines = [f'{{"k": {n % 4}, "n": {n}}}\n' for n in range(8 * batch, 8 * batch + 8)]
        (source / f"{batch}.json").write_text("".join(lines))
        os.utime(source / f"{batch}.json", (batch, batch))  # Spark takes the oldest file first
    stream = spark.readStream.schema("k INT, n BIGINT").option("maxFilesPerTrigger", "1").json(str(source))
    query = ms.write_stream(stream, table, checkpoint=str(tmp_path / "checkpoint"), trigger={"availableNow": True})
    query.awaitTermination()
    snapshots = table.snapshots()
    assert sum(one.commit_kind == "APPEND" for one in snapshots) == 5
    assert any(one.commit_kind == "COMPACT" for one in snapshots)
    assert table.files().num_rows < 5
    found = table.read().to_pylist()
    assert sorted(row["n"] for row in found) == list(range(40))
    if "bucket-key" in options:
        for key in range(4):
            assert [row["n"] for row in found if row["k"] == key] == list(range(key, 40, 4))
        read = [row["n"] for row in ms.read(spark, table).where("k = 1").collect()]
        assert read == list(range(1, 40, 4))
    assert table.check() == ()

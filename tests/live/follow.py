"""The stream that `check.by_killed_stream` kills: all tables follow the files of records that are there."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

import merganser as mg
import merganser.spark as ms
from tests.debezium import on_spark
from tests.debezium.recordings import source
from tests.debezium.values import Setting


def session() -> SparkSession:
    """Return a Spark session of two cores."""
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    for key, value in {
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.log.level": "ERROR",
    }.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def main(work: Path) -> None:
    """Run until all files are read. A line is printed after the first batch."""
    told = json.loads((work / "stream.json").read_text())
    setting = Setting(told["setting"])
    sources = [source(name, found) for name, found in told["tables"].items()]
    catalog = mg.catalog(str(work / "stream"))
    spark = session()
    for number, (members, options) in enumerate(on_spark.feeds(sources, setting)):
        tables = {one.topic: catalog.table(f"app.{one.topic}") for one in members}
        query = ms.cdc.write_stream(
            on_spark.stream(spark, work / "arriving"), setting.format, tables, str(work / f"checkpoint-{number}"),
            table_column="topic", unknown="ignore", trigger="availableNow", commit_user="live", **options,
        )  # fmt: skip
        while query.isActive and query.lastProgress is None:
            time.sleep(0.05)
        if number == 0:
            print("started", flush=True)
        query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))

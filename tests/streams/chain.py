"""A chain of streams in one Spark application: change data -> table -> aggregate -> copy. A process of its own.

files of changes ──┬──► accounts (lookup) ──► totals by group (aggregation, lookup) ──► copy of the totals
files of others ───┘
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import merganser as mg

GROUPS = 7
FEEDS = ("in", "others")
"""Two queries write into the first table, each its own keys."""


def create(work: Path) -> None:
    """Make the three tables."""
    catalog = mg.catalog(str(work / "warehouse"))
    catalog.create_database("bank", if_not_exists=True)
    lookup = {"bucket": "2", "changelog-producer": "lookup"}
    sums = lookup | {f"fields.{name}.aggregate-function": "sum" for name in ("n", "amount")}
    catalog.create_table(
        "bank.accounts", {"id": "INT", "team": "INT", "amount": "BIGINT", "number": "INT"}, primary_key=["id"],
        options=lookup | {"sequence.field": "number"},
    )  # fmt: skip
    catalog.create_table(
        "bank.totals", {"team": "INT", "n": "BIGINT", "amount": "BIGINT"}, primary_key=["team"],
        options=sums | {"merge-engine": "aggregation"},
    )  # fmt: skip
    catalog.create_table(
        "bank.copy", {"team": "INT", "n": "BIGINT", "amount": "BIGINT"}, primary_key=["team"], options=lookup
    )


def run(work: Path) -> None:
    """Run the chain until all that has arrived has come through."""
    from pyspark.sql import SparkSession

    import merganser.spark as ms

    builder = SparkSession.builder.master("local[2,2]").config("spark.ui.enabled", "false")
    for key, value in {
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.log.level": "OFF",
    }.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    catalog = mg.catalog(str(work / "warehouse"))
    accounts, totals, copy = (catalog.table(f"bank.{name}") for name in ("accounts", "totals", "copy"))
    # After a kill Spark may read several files in one batch, in any order: their numbers say which change is later.
    schema = "id INT, team INT, amount BIGINT, op STRING, number INT"
    arriving = [
        spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(work / name)) for name in FEEDS
    ]
    started = [
        ms.write_stream(frame, accounts, str(work / f"cp-{name}"), kinds="op")
        for name, frame in zip(FEEDS, arriving, strict=True)
    ]
    moved = ms.read_stream(spark, accounts, maxRowsPerTrigger=40).selectExpr("_row_kind", "team", "1L AS n", "amount")
    started += [
        ms.write_stream(moved, totals, str(work / "cp-totals"), kinds="_row_kind"),
        ms.write_stream(ms.read_stream(spark, totals), copy, str(work / "cp-copy"), kinds="_row_kind"),
    ]
    (work / "started").touch()
    for query in [*started, *started]:
        query.processAllAvailable()
    os._exit(0)  # sessions take seconds to end


if __name__ == "__main__":
    run(Path(sys.argv[1]))

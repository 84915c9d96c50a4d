"""The actions of the Spark benchmark done by merganser, through `merganser.spark` only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pyspark.sql import SparkSession

import merganser as mg
import merganser.spark as ms

from . import ours


def register(spark: SparkSession) -> None:
    """Tell Spark of the data source."""
    ms.register(spark)


def create(table: Path, options: Mapping[str, str] | None = None) -> None:
    """Make an empty table; `options` go before those of all benchmarks."""
    ours.create(str(table), options)


def write(spark: SparkSession, parquet: Path, table: Path, *, collect: bool = False) -> None:
    """Write a DataFrame over Parquet files into the table, one commit."""
    ms.write(spark.read.parquet(str(parquet)), mg.table(str(table)), collect=collect)


def load(spark: SparkSession, parquet: Path, table: Path) -> None:
    """Write the same rows by tasks that read the files themselves, one commit."""
    ms.load(spark, f"{parquet}/*.parquet", mg.table(str(table)))


def scan(spark: SparkSession, table: Path, *, columns: Sequence[str] | None = None, where: str | None = None) -> None:
    """Read the table merged and drop every row in the JVM."""
    rows = ms.read(spark, mg.table(str(table)), columns=list(columns) if columns else None, where=where)
    rows.write.format("noop").mode("overwrite").save()


def engine_table(table: str, engine: str, rows: int, seed: int) -> None:
    """Make a table of one merge engine and write its five runs, without Spark."""
    ours.engine_table(table, engine, rows, seed)()

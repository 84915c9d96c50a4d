"""Merge engines through Spark, local[2], one warm session: `python -m benchmarks.engines_spark`.

The tables of `engines.py` at two million rows (600,000 keys), read merged to `noop`. The floor is what a user of Spark
alone writes: the same runs as Parquet, grouped by key (`max_by` of each column over the runs that have a value; sum,
max, `max_by`).
"""

from __future__ import annotations

import os
import shutil
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from . import engine_data
from .harness import FLOOR, MERGANSER, Bench, Measures, Result, parser, print_block, start
from .processes import tree_cpu_seconds
from .spark import _ours
from .spark_session import session

ROWS = 2_000_000


def main() -> None:
    """Run it."""
    options = parser(__doc__.splitlines()[0], rows=ROWS)
    options.add_argument("--driver-memory", default="4g", help="memory of the JVM (default 4g)")
    chosen = options.parse_args()
    bench = start("engines_spark", chosen, (FLOOR, MERGANSER))
    directory = bench.work / f"run-engines-{os.getpid()}"
    spark = session(chosen.driver_memory, directory)
    try:
        ours = _ours(bench, spark)
        for engine in engine_data.ENGINES:
            if bench.wanted(engine):
                _measure(bench, spark, ours, engine, directory)
    finally:
        spark.stop()
        shutil.rmtree(directory, ignore_errors=True)
    bench.finish()


def _measure(bench: Bench, spark: SparkSession, ours: Any, engine: str, directory: Path) -> None:
    shape, _ = engine_data.ENGINES[engine]
    runs = directory / shape
    if not runs.exists():
        runs.mkdir(parents=True)
        for number in range(engine_data.RUNS):
            rows = engine_data.run_of(shape, bench.options.rows, number, bench.options.seed)
            pq.write_table(rows, runs / f"run-{number}.parquet", compression="zstd", compression_level=1)
    actions: dict[str, Callable[[], object]] = {}
    if FLOOR in bench.contenders:
        actions[FLOOR.name] = lambda: _noop(_grouped(spark, runs, shape, engine))
    if ours is not None:
        table = directory / "warehouse" / "db.db" / "".join(letter for letter in engine if letter.isalnum())
        ours.engine_table(str(table), engine, bench.options.rows, bench.options.seed)
        actions[MERGANSER.name] = lambda: ours.scan(spark, table)
    found: dict[str, list[Measures]] = {name: [] for name in actions}
    for turn in range(bench.options.runs + 1):
        for name, action in actions.items():
            cpu, wall = tree_cpu_seconds(os.getpid()), time.perf_counter()
            action()
            cost = {
                "seconds": time.perf_counter() - wall,
                "cpu_seconds": tree_cpu_seconds(os.getpid()) - cpu,
                "rows": bench.options.rows,
            }
            if turn:  # the first turn warms the session up
                found[name].append(cost)
    block = [Result(engine, name, tuple(costs)) for name, costs in found.items()]
    floors = [cost["seconds"] for cost in found.get(FLOOR.name, [])]
    floor = statistics.median(floors) if floors else None
    bench.results += block
    bench.floors[engine] = floor
    print_block(engine, block, floor)


def _grouped(spark: SparkSession, runs: Path, shape: str, engine: str) -> DataFrame:
    """The merge as Spark's own aggregation over the Parquet files of the runs."""
    parts = [
        spark.read.parquet(str(runs / f"run-{number}.parquet")).withColumn("run", f.lit(number))
        for number in range(engine_data.RUNS)
    ]
    rows = parts[0]
    for part in parts[1:]:
        rows = rows.unionAll(part)
    columns = [name for name in engine_data.SHAPES[shape] if name != "k"]
    if engine == "aggregation":
        folded = [f.sum("total").alias("total"), f.max("most").alias("most"), f.max_by("last", "run").alias("last")]
    elif engine == "partial-update":
        folded = [f.max_by(name, f.when(f.col(name).isNotNull(), f.col("run"))).alias(name) for name in columns]
    else:
        folded = [f.max_by(name, "run").alias(name) for name in columns]
    return rows.groupBy("k").agg(*folded)


def _noop(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()


if __name__ == "__main__":
    main()

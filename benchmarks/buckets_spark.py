"""Buckets that are added as keys arrive, through Spark, local[2]: `python -m benchmarks.buckets_spark`.

The tables of `buckets.py` in one warm session: `ms.write` of the base and of an upsert of 500,000 rows, a sixth of them
new, from DataFrames over Parquet files, and commits of 1,000 random keys through tasks. Without partitions the floor is
the table of four buckets. With keys that move between a hundred partitions, it is the same table with the partition in
its key. Then `ms.rescale` of the table of four buckets, against `ms.compact(full=True)`.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import merganser.spark as ms

from . import data, ours_buckets, ours_spark
from .buckets import DYNAMIC, FIXED, MOVING, PARTED, SHAPES, print_moves
from .harness import Bench, Contender, Measures, Result, Tables, parser, print_block, start
from .processes import tree_cpu_seconds
from .spark_session import session

WARM_ROWS = 20_000
SMALL_ROWS = 1_000
CONTENDERS = (FIXED, DYNAMIC, PARTED, MOVING)


def main() -> None:
    """Run it."""
    options = parser(__doc__.splitlines()[0])
    options.add_argument("--driver-memory", default="4g", help="memory of the JVM (default 4g)")
    bench = start("buckets_spark", options.parse_args(), CONTENDERS)
    directory = bench.work / f"run-spark-{os.getpid()}"
    tables = Tables(bench.work)
    spark = session(bench.options.driver_memory, directory)
    try:
        ours_spark.register(spark)
        for rows in (WARM_ROWS, bench.options.rows):
            batches = data.with_parquet(data.prepare(bench.work, rows, bench.options.seed))
            small = directory / f"small-{rows}.parquet"
            pq.write_table(data.few(SMALL_ROWS, rows * 2, seed=1), small)
            _Run(bench, tables, spark, batches, small, measured=rows != WARM_ROWS).all()
    finally:
        spark.stop()
        tables.close()
        shutil.rmtree(directory, ignore_errors=True)
    print_moves(bench)
    bench.finish()


@dataclass(frozen=True)
class _Run:
    """The actions on rows of one size; unmeasured for the few that warm the session."""

    bench: Bench
    tables: Tables
    spark: SparkSession
    batches: data.Batches
    small: Path
    measured: bool

    def all(self) -> None:
        """Take each action in turn."""
        base, upsert = self.batches.base_parquet, self.batches.upserts_parquet[1]
        self._measure("write", self._fresh, lambda table: ours_spark.write(self.spark, base, table))
        self._measure("upsert", self._copied, lambda table: ours_spark.write(self.spark, upsert, table))
        self._measure(
            "commit of 1,000 keys", self._copied, lambda table: ours_spark.write(self.spark, self.small, table)
        )
        for action, work in (
            ("compact full", lambda table: ms.compact(self.spark, str(table), full=True)),
            ("rescale 4 to 8", lambda table: ms.rescale(self.spark, str(table), 8)),
        ):
            self._measure(action, self._copied, work, (FIXED,))

    def _fresh(self, contender: Contender) -> Path:
        self.tables.drop(contender, "new")
        table = self.tables.path(contender, "new")
        ours_buckets.create(str(table), **SHAPES[contender.name])
        return table

    def _copied(self, contender: Contender) -> Path:
        name = f"base-{self.batches.rows}"
        if not self.tables.path(contender, name).exists():
            ours_buckets.write(
                str(self.tables.path(contender, name)), str(self.batches.base), **SHAPES[contender.name]
            )()
        self.tables.copy(contender, name, "run")
        table = self.tables.path(contender, "run")
        ours_spark.write(self.spark, self.small, table)  # a writer of this process has seen the table
        return table

    def _measure(
        self,
        action: str,
        prepared: Callable[[Contender], Path],
        work: Callable[[Path], object],
        contenders: tuple[Contender, ...] = CONTENDERS,
    ) -> None:
        if self.measured and not self.bench.wanted(action):
            return
        found: dict[str, list[Measures]] = {contender.name: [] for contender in contenders}
        for _ in range(self.bench.options.runs if self.measured else 1):
            for contender in contenders:
                table = prepared(contender)
                os.sync()
                cpu, wall = tree_cpu_seconds(os.getpid()), time.perf_counter()
                work(table)
                seconds = time.perf_counter() - wall
                found[contender.name].append({"seconds": seconds, "cpu_seconds": tree_cpu_seconds(os.getpid()) - cpu})
        if self.measured:
            block = [Result(action, name, tuple(runs)) for name, runs in found.items()]
            self.bench.results += block
            self.bench.floors[action] = block[0].median("seconds")
            print_block(action, block, self.bench.floors[action])


if __name__ == "__main__":
    main()

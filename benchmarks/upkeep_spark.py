"""The part of `upkeep.py` that goes through Spark, local[2], one warm session."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import merganser as mg
import merganser.spark as ms

from . import data, ours, ours_spark
from .harness import MERGANSER, Bench, Measures, Result, Tables, print_block
from .processes import tree_cpu_seconds
from .spark_session import session
from .upkeep import ensure_compacted, ensure_merged

WARM_ROWS = 20_000


def measure(bench: Bench, tables: Tables, batches: data.Batches) -> None:
    """Measure full compaction, and scans of compacted tables with and without deletion vectors."""
    if MERGANSER not in bench.contenders:
        return
    directory = bench.work / f"run-spark-{os.getpid()}"
    spark = session(bench.options.driver_memory, directory)
    try:
        ours_spark.register(spark)
        warm = data.prepare(bench.work, WARM_ROWS, bench.options.seed)
        small = _vectors(tables, warm, "warm")
        ours_spark.scan(spark, small)
        ms.compact(spark, str(small), full=True)

        merged, target = (tables.path(MERGANSER, name) for name in ("merged", "by-spark"))
        ensure_merged(tables, batches, MERGANSER)

        def fresh() -> None:
            tables.copy(MERGANSER, "merged", "by-spark")

        _show(bench, "compact full, Spark", lambda: ms.compact(spark, str(target), full=True), fresh)
        assert merged.exists()
        ensure_compacted(tables, batches)
        compacted = tables.path(MERGANSER, "compacted")
        marked = _vectors(tables, batches, "vectors")
        for columns in ((), data.TWO_COLUMNS):
            suffix = ", 2 columns" if columns else ""
            _show(
                bench, f"scan compacted, Spark{suffix}", lambda c=columns: ours_spark.scan(spark, compacted, columns=c)
            )
            _show(
                bench,
                f"scan deletion vectors, Spark{suffix}",
                lambda c=columns: ours_spark.scan(spark, marked, columns=c),
            )
    finally:
        spark.stop()
        shutil.rmtree(directory, ignore_errors=True)


def _vectors(tables: Tables, batches: data.Batches, name: str) -> Path:
    """Write the base and the ten upserts into a table with deletion vectors, whose writer compacts level 0 alone."""
    path = tables.path(MERGANSER, name)
    if not path.exists():
        catalog = mg.catalog(str(path.parent.parent))
        catalog.create_database("db", if_not_exists=True)
        options = ours.OPTIONS | {"write-only": "false", "deletion-vectors.enabled": "true"}
        table = catalog.create_table(f"db.{name}", schema=dict(data.FIELDS), primary_key=["k"], options=options)
        for batch in (batches.base, *batches.upserts):
            table.write(data.load(batch))
    return path


def _show(bench: Bench, action: str, work: Callable[[], object], before: Callable[[], None] | None = None) -> None:
    if not bench.wanted(action):
        return
    runs: list[Measures] = []
    for _ in range(bench.options.runs):
        if before is not None:
            before()
        os.sync()
        cpu, wall = tree_cpu_seconds(os.getpid()), time.perf_counter()
        work()
        seconds = time.perf_counter() - wall
        runs.append({"seconds": seconds, "cpu_seconds": tree_cpu_seconds(os.getpid()) - cpu})
    block = [Result(action, MERGANSER.name, tuple(runs))]
    bench.results += block
    bench.floors[action] = None
    print_block(action, block, None)

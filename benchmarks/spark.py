"""The same table through Spark, local[2], one warm session: `python -m benchmarks.spark`.

| action | floor |
|---|---|
| write: `ms.write` of the base from a DataFrame over Parquet files | Spark writes Parquet after `repartition(4, "k")` and a sort by key |
| load: `ms.load` of the same files | the same |
| upserts: `ms.write` of ten upserts | Spark writes the ten in the same way |
| lookup upserts: the same with the changelog producer `lookup`, whose compactions publish the changes | the same |
| scan all, scan 2 columns: merged, to `noop` | Python tasks read the base from plain Parquet and hand it over |
| scan key range 0.2 %, scan value filter 1 %, scan 1,000 keys | none: the targets are seconds |
| commit of 1,000 rows: through tasks, and collected | none |

Rows per second are those of the base, whatever an action reads. Every action has run once on small tables before anything is measured, and the contenders take turns. CPU seconds are
those of this process, the JVM and the Python workers together.
"""  # noqa: E501 - a table

from __future__ import annotations

import importlib
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from . import data
from .harness import (
    FLOOR,
    MERGANSER,
    Bench,
    Measures,
    Result,
    bytes_written,
    files_under,
    parser,
    print_block,
    start,
)
from .plain_parquet import PlainParquet
from .processes import tree_cpu_seconds
from .spark_session import session

WARM_ROWS = 20_000
SMALL_ROWS = 1_000
SMALL_COMMITS = 5
Action = Callable[[], object]


def main() -> None:
    """Run it."""
    options = parser(__doc__.splitlines()[0])
    options.add_argument("--driver-memory", default="4g", help="memory of the JVM (default 4g)")
    bench = start("spark", options.parse_args(), (FLOOR, MERGANSER))
    measure(bench)
    bench.finish()


def measure(bench: Bench) -> None:
    """Measure the actions that the bench wants, in one session; its options have `driver_memory`."""
    chosen = bench.options
    batches = data.with_parquet(data.prepare(bench.work, chosen.rows, chosen.seed))
    warm = data.with_parquet(data.prepare(bench.work, WARM_ROWS, chosen.seed))
    directory = bench.work / f"run-spark-{os.getpid()}"
    spark = session(chosen.driver_memory, directory)
    spark.dataSource.register(PlainParquet)
    try:
        ours = _ours(bench, spark)
        for rows, measured in ((warm, False), (batches, True)):
            run = _Run(bench, spark, ours, rows, directory / f"rows-{rows.rows}", measured=measured)
            run.writes()
            run.scans()
            run.small_commits()
    finally:
        spark.stop()
        shutil.rmtree(directory, ignore_errors=True)


def _ours(bench: Bench, spark: SparkSession) -> Any:
    """The module with merganser's actions; None if it does not take part."""
    if MERGANSER not in bench.contenders:
        return None
    ours = importlib.import_module("benchmarks.ours_spark")  # only here: the floor is measured without merganser too
    ours.register(spark)
    return ours


class _Run:
    """All actions on the batches of one size; unmeasured for the small one that warms the session."""

    def __init__(
        self, bench: Bench, spark: SparkSession, ours: Any, batches: data.Batches, directory: Path, *, measured: bool
    ) -> None:
        self.bench, self.spark, self.ours, self.batches = bench, spark, ours, batches
        self.directory, self.measured = directory, measured
        self.table_count = 0
        directory.mkdir(parents=True)
        self.small = directory / "small.parquet"
        pq.write_table(data.few(SMALL_ROWS, batches.rows * 2, seed=1), self.small)

    def _new_table(self, options: Mapping[str, str] | None = None) -> Path:
        self.table_count += 1
        table = self.directory / "warehouse" / "db.db" / f"t{self.table_count}"
        self.ours.create(table, options)
        return table

    def _floor_write(self, parquet: Path, out: Path) -> None:
        rows = self.spark.read.parquet(str(parquet)).repartition(data.BUCKETS, "k").sortWithinPartitions("k")
        rows.write.mode("overwrite").parquet(str(out))

    def _compare(self, action: str, contenders: Mapping[str, Callable[[], Action]]) -> None:
        """Measure each contender's action in turn; the outer function prepares one run and is not measured."""
        if not self.bench.wanted(action):
            return
        taking_part = {c.name for c in self.bench.contenders}
        found: dict[str, list[Measures]] = {name: [] for name in contenders if name in taking_part}
        errors: dict[str, str] = {}
        for _ in range(self.bench.options.runs if self.measured else 1):
            for name in found:
                if name in errors:
                    continue
                try:
                    prepared = contenders[name]()
                    os.sync()
                    found[name].append(self._cost_of(prepared))
                except Exception as error:
                    errors[name] = f"{type(error).__name__}: {error}"
                    print(f"{action}: {name} failed: {errors[name][:800]}", file=sys.stderr)
        if self.measured:
            block = [Result(action, name, tuple(runs), errors.get(name)) for name, runs in found.items()]
            floor = next((result.median("seconds") for result in block if result.contender == FLOOR.name), None)
            self.bench.results += block
            self.bench.floors[action] = floor
            print_block(action, block, floor)

    def _cost_of(self, action: Action) -> Measures:
        cpu, wall = tree_cpu_seconds(os.getpid()), time.perf_counter()
        more = action()
        found = {
            "seconds": time.perf_counter() - wall,
            "cpu_seconds": tree_cpu_seconds(os.getpid()) - cpu,
            "rows": self.batches.rows,
        }
        return found | more if isinstance(more, dict) else found

    # ── the actions ───────────────────────────────────────────────────────────────────────────────────────────────────

    def writes(self) -> None:
        """Base and upserts, by `ms.write` and by `ms.load`."""
        base, out = self.batches.base_parquet, self.directory / "floor"

        def floor() -> Action:
            return lambda: self._floor_write(base, out / "base")

        def write() -> Action:
            table = self._new_table()
            return lambda: self.ours.write(self.spark, base, table)

        def load() -> Action:
            table = self._new_table()
            return lambda: self.ours.load(self.spark, base, table)

        self._compare("write", {FLOOR.name: floor, MERGANSER.name: write})
        self._compare("load", {FLOOR.name: floor, MERGANSER.name: load})

        def floor_upserts() -> Action:
            def action() -> None:
                for i, batch in enumerate(self.batches.upserts_parquet):
                    self._floor_write(batch, out / f"upsert-{i}")

            return action

        def upserts() -> Action:
            table = self._new_table()
            self.ours.write(self.spark, base, table)

            def action() -> None:
                for batch in self.batches.upserts_parquet:
                    self.ours.write(self.spark, batch, table)

            return action

        self._compare("upserts", {FLOOR.name: floor_upserts, MERGANSER.name: upserts})

        def lookup_upserts() -> Action:
            copies = str(self.directory / f"copies{self.table_count}")
            table = self._new_table(
                {"changelog-producer": "lookup", "write-only": "false", "lookup.cache-directory": copies}
            )
            self.ours.write(self.spark, base, table)
            before = files_under(table)

            def action() -> Measures:
                for batch in self.batches.upserts_parquet:
                    self.ours.write(self.spark, batch, table)
                return {"written_bytes": bytes_written(before, files_under(table))}

            return action

        self._compare("lookup upserts", {FLOOR.name: floor_upserts, MERGANSER.name: lookup_upserts})

    def scans(self) -> None:
        """Merged scans of the base and the ten upserts."""
        start_key, end_key = self.batches.key_range
        scans: dict[str, dict[str, Any]] = {
            "scan all": {},
            "scan 2 columns": {"columns": data.TWO_COLUMNS},
            "scan key range 0.2 %": {"where": f"k BETWEEN {start_key} AND {end_key}"},
            "scan value filter 1 %": {"where": f"i32 < {data.VALUE_BELOW}"},
            "scan 1,000 keys": {"where": f"k IN ({', '.join(map(str, self.batches.some_keys))})"},
        }
        merged: list[Path] = []

        def ours(arguments: Mapping[str, Any]) -> Action:
            if not merged:
                table = self._new_table()
                for batch in (self.batches.base_parquet, *self.batches.upserts_parquet):
                    self.ours.write(self.spark, batch, table)
                merged.append(table)
            return lambda: self.ours.scan(self.spark, merged[0], **arguments)

        for action, arguments in scans.items():
            contenders: dict[str, Callable[[], Action]] = {}
            if "where" not in arguments:
                contenders[FLOOR.name] = partial(self._floor_scan, **arguments)
            contenders[MERGANSER.name] = partial(ours, arguments)
            self._compare(action, contenders)

    def _floor_scan(self, columns: tuple[str, ...] = ()) -> Action:
        files = sorted(str(path) for path in self.batches.base_parquet.glob("*.parquet"))
        reader = self.spark.read.format(PlainParquet.name()).option("paths", "\n".join(files))
        if columns:
            reader = reader.option("columns", ",".join(columns))

        return lambda: reader.load().write.format("noop").mode("overwrite").save()

    def small_commits(self) -> None:
        """Commits of 1,000 rows into the base; the seconds are those of one commit."""
        for action, collect in (("commit of 1,000 rows, tasks", False), ("commit of 1,000 rows, collected", True)):

            def ours(collect: bool = collect) -> Action:
                table = self._new_table()
                self.ours.write(self.spark, self.batches.base_parquet, table)
                self.ours.write(self.spark, self.small, table, collect=collect)

                def commits() -> None:
                    for _ in range(SMALL_COMMITS):
                        self.ours.write(self.spark, self.small, table, collect=collect)

                return commits

            before = len(self.bench.results)
            self._compare(f"{SMALL_COMMITS} x {action}", {MERGANSER.name: ours})
            for result in self.bench.results[before:]:
                for run in result.runs:
                    run["seconds_of_one"] = run["seconds"] / SMALL_COMMITS
                if result.runs:
                    print(f"  one of them: {result.median('seconds_of_one'):.3f} s")


if __name__ == "__main__":
    main()

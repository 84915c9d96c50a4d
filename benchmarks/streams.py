"""Streams through Spark, local[2], one warm session: `python -m benchmarks.streams`.

| action | floor |
|---|---|
| ten batches: files of 50,000 rows x 10 columns into a key table of 4 buckets | Spark's Parquet sink, the same files |
| ten batches, lookup producer | the same |
| small batches: five of 1,000 rows; seconds of one | the same files to `noop` |
| state: the base as the initial state of a stream, to `noop` | `ms.read` of the same table, to `noop` |
| changes: what ten commits published, as a stream, to `noop` | `ms.changes` of the same, to `noop` |
| a chain: table to table, 12 batches of 200,000 rows, 5 columns; also the rows/s of the batches after the third | |

The size of a batch follows `--rows`: a hundredth of it. Each action starts a query of its own with a new checkpoint and
waits for its end, so the start of a query is part of both sides.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import merganser as mg
import merganser.spark as ms

from . import data, ours
from .harness import FLOOR, MERGANSER, Measures, Result, parser, print_block, start
from .spark_session import session, tree_cpu_seconds

FILES = 10
SMALL_ROWS = 1_000
CHAIN = 12
"""Batches of the chain."""
WARM_FROM = 3
"""The batches before are left out of the rate of a chain that runs on."""
FIVE = ("k", "i32", "n64", "f64", "label")


def main() -> None:
    """Run it."""
    options = parser(__doc__.splitlines()[0])
    options.add_argument("--driver-memory", default="4g", help="memory of the JVM (default 4g)")
    chosen = options.parse_args()
    bench = start("streams", chosen, (FLOOR, MERGANSER))
    directory = bench.work / f"run-streams-{os.getpid()}"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    spark = session(chosen.driver_memory, directory)
    ms.register(spark)
    try:
        _Streams(spark, directory / "warm", rows=20_000, runs=1, work=bench.work, seed=chosen.seed).all(lambda _: True)
        measured = _Streams(
            spark, directory / "run", rows=chosen.rows, runs=chosen.runs, work=bench.work, seed=chosen.seed
        )
        for action, block in measured.all(bench.wanted):
            floor = next((one.median("seconds") for one in block if one.contender == FLOOR.name), None)
            bench.results += block
            bench.floors[action] = floor
            print_block(action, block, floor)
        if measured.rates:
            print(f"a chain that runs on: {median(measured.rates):,.0f} rows/s")
    finally:
        spark.stop()
        shutil.rmtree(directory, ignore_errors=True)
    bench.finish()


class _Streams:
    def __init__(self, spark: SparkSession, directory: Path, *, rows: int, runs: int, work: Path, seed: int) -> None:
        self.spark, self.directory, self.rows, self.runs = spark, directory, rows, runs
        self.batches = data.prepare(work, rows, seed)
        self.made = 0
        directory.mkdir(parents=True)
        self.files = self._files("files", rows // 100, FILES)
        self.small = self._files("small", SMALL_ROWS, 5)
        self.large = self._files("large", rows // 25, CHAIN, FIVE)
        self.rates: list[float] = []

    def all(self, wanted: Callable[[str], bool]) -> list[tuple[str, list[Result]]]:
        """Run all actions that are wanted."""
        found = []
        for action in (self.ten_batches, self.lookup_batches, self.small_batches, self.state, self.changes, self.chain):
            name = action.__name__.replace("_", " ")
            if wanted(name):
                sides = action()
                runs: dict[str, list[Measures]] = {side: [] for side in sides}
                for _ in range(self.runs):
                    for side, prepare in sides.items():
                        runs[side].append(self._cost_of(prepare()))
                found.append((name, [Result(name, side, tuple(each)) for side, each in runs.items()]))
        return found

    def ten_batches(self) -> dict[str, Callable[[], Callable[[], int]]]:
        return {FLOOR.name: lambda: self._floor(self.files), MERGANSER.name: lambda: self._written(self.files, "none")}

    def lookup_batches(self) -> dict[str, Callable[[], Callable[[], int]]]:
        return {
            FLOOR.name: lambda: self._floor(self.files),
            MERGANSER.name: lambda: self._written(self.files, "lookup"),
        }

    def small_batches(self) -> dict[str, Callable[[], Callable[[], int]]]:
        return {
            FLOOR.name: lambda: self._to_noop(self._stream(self.small), 5 * SMALL_ROWS),
            MERGANSER.name: lambda: self._written(self.small, "none"),
        }

    def state(self) -> dict[str, Callable[[], Callable[[], int]]]:
        table = self._table("input")
        table.write(data.load(str(self.batches.base)))
        table.compact(full=True)

        def batch() -> int:
            ms.read(self.spark, table).write.format("noop").mode("overwrite").save()
            return self.rows

        return {
            FLOOR.name: lambda: batch,
            MERGANSER.name: lambda: self._to_noop(ms.read_stream(self.spark, table), self.rows),
        }

    def changes(self) -> dict[str, Callable[[], Callable[[], int]]]:
        table = self._table("input")
        upserts = [data.load(str(path)) for path in self.batches.upserts]
        for rows in upserts:
            table.write(rows)
        count = sum(rows.num_rows for rows in upserts)
        first = {"scan.mode": "from-snapshot", "scan.snapshot-id": "1"}

        def batch() -> int:
            ms.changes(self.spark, table).write.format("noop").mode("overwrite").save()
            return count

        return {
            FLOOR.name: lambda: batch,
            MERGANSER.name: lambda: self._to_noop(ms.read_stream(self.spark, table, **first), count),
        }

    def chain(self) -> dict[str, Callable[[], Callable[[], int]]]:
        def prepare() -> Callable[[], int]:
            source, target = self._table("input", FIVE), self._table("none", FIVE)
            for path in sorted(self.large.iterdir()):
                source.write(pq.read_table(path))
            count = CHAIN * (self.rows // 25)
            frame = ms.read_stream(
                self.spark, source, **{"scan.mode": "from-snapshot", "scan.snapshot-id": "1", "maxFilesPerTrigger": 4}
            )

            def action() -> int:
                checkpoint = self._place("checkpoint")
                query = ms.write_stream(frame, target, str(checkpoint), kinds="_row_kind", trigger="availableNow")
                query.awaitTermination()
                warm = [one for one in query.recentProgress if one.batchId >= WARM_FROM and one.numInputRows]
                spent = sum(one.durationMs["triggerExecution"] for one in warm)
                self.rates.append(1_000 * sum(one.numInputRows for one in warm) / spent)
                return count

            return action

        return {MERGANSER.name: prepare}

    def _files(self, name: str, rows: int, count: int, columns: tuple[str, ...] | None = None) -> Path:
        place = self.directory / name
        place.mkdir()
        for i in range(count):
            table = data.few(rows, self.rows * 2, seed=i)
            pq.write_table(table if columns is None else table.select(columns), place / f"{i}.parquet")
        return place

    def _place(self, name: str) -> Path:
        self.made += 1
        return self.directory / f"{name}-{self.made}"

    def _table(self, producer: str, columns: tuple[str, ...] | None = None) -> mg.Table:
        path = self._place("warehouse") / "db.db" / "t"
        if columns is None:
            ours.create(str(path), {"changelog-producer": producer, "write-only": "false"})
        else:
            catalog = mg.catalog(str(path.parent.parent))
            catalog.create_database("db")
            fields = {name: data.FIELDS[name] for name in columns}
            options = {"bucket": str(data.BUCKETS), "changelog-producer": producer}
            catalog.create_table("db.t", fields, primary_key=["k"], options=options)
        return mg.table(str(path), options={"lookup.cache-directory": str(self.directory / "copies")})

    def _stream(self, files: Path) -> DataFrame:
        schema = self.spark.read.parquet(str(files)).schema
        return self.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(files))

    def _floor(self, files: Path) -> Callable[[], int]:
        frame = self._stream(files)

        def action() -> int:
            writer = frame.writeStream.format("parquet").option("checkpointLocation", str(self._place("checkpoint")))
            writer.trigger(availableNow=True).start(str(self._place("out"))).awaitTermination()
            return self._count(files)

        return action

    def _to_noop(self, frame: DataFrame, count: int) -> Callable[[], int]:
        def action() -> int:
            writer = frame.writeStream.format("noop").option("checkpointLocation", str(self._place("checkpoint")))
            writer.trigger(availableNow=True).start().awaitTermination()
            return count

        return action

    def _written(self, files: Path, producer: str) -> Callable[[], int]:
        table, frame = self._table(producer), self._stream(files)

        def action() -> int:
            checkpoint = str(self._place("checkpoint"))
            ms.write_stream(frame, table, checkpoint, trigger="availableNow").awaitTermination()
            return self._count(files)

        return action

    def _count(self, files: Path) -> int:
        return sum(pq.read_metadata(path).num_rows for path in files.iterdir())

    def _cost_of(self, action: Callable[[], int]) -> Measures:
        os.sync()
        cpu, wall = tree_cpu_seconds(os.getpid()), time.perf_counter()
        rows = action()
        seconds = time.perf_counter() - wall
        return {"seconds": seconds, "cpu_seconds": tree_cpu_seconds(os.getpid()) - cpu, "rows": rows}


if __name__ == "__main__":
    main()

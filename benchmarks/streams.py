"""Streams through Spark, local[2], one warm session: `python -m benchmarks.streams`.

| action | floor |
|---|---|
| ten batches: files of 50,000 rows x 10 columns into a key table of 4 buckets | Spark's Parquet sink, the same files |
| ten batches, lookup producer | the same |
| logged batches: ten batches into a table with a log in Kafka | the same table without a log |
| small batches: five of 1,000 rows; seconds of one | the same files to `noop` |
| state: the base as the initial state of a stream, to `noop` | `ms.read` of the same table, to `noop` |
| changes: what ten commits published, as a stream, to `noop` | `ms.changes` of the same, to `noop` |
| a chain: table to table, 12 batches of 200,000 rows, 5 columns; also the rows/s of the batches after the third | |
| following: a query that waits; milliseconds of a trigger without rows, and from a commit to its rows | Spark's files |
| two hundred batches of 1,000 rows; memory of all Python processes after 50 of them and at the end | |

The size of a batch follows `--rows`: a hundredth of it. Each action starts a query of its own with a new checkpoint and
waits for its end, so the start of a query is part of both sides. For states and changes the time of the triggers
alone is printed, too.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import confluent_kafka
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress

import merganser as mg
import merganser.spark as ms
from tests.log.broker import running as broker_running

from . import data, ours
from .harness import FLOOR, MERGANSER, Measures, Result, parser, print_block, start
from .processes import python_bytes, tree_cpu_seconds
from .spark_session import session

FILES = 10
SMALL_ROWS = 1_000
CHAIN = 12
"""Batches of the chain."""
FOLLOWED = 5
"""Commits that a query waits for."""
PATIENCE_SECONDS = 30
MANY = 200
"""Batches over which memory is to stay as it is."""
SAID = {
    "trigger_seconds": "seconds of the triggers",
    "warm_rate": "rows/s of warm batches",
    "idle_ms": "milliseconds of a trigger without rows",
    "visible_ms": "milliseconds from a commit to its rows, without their batch",
    "early_mb": "MB of Python after a quarter of the batches",
    "late_mb": "MB of Python at the end",
}
"""Measures that are printed below the tables."""
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
    brokers = ExitStack()
    try:
        _Streams(spark, directory / "warm", brokers, rows=20_000, runs=1, work=bench.work, seed=chosen.seed).all(
            lambda name: name not in ("many batches", "logged batches")
        )
        measured = _Streams(
            spark, directory / "run", brokers, rows=chosen.rows, runs=chosen.runs, work=bench.work, seed=chosen.seed
        )
        for action, block in measured.all(bench.wanted):
            floor = next((one.median("seconds") for one in block if one.contender == FLOOR.name), None)
            bench.results += block
            bench.floors[action] = floor
            print_block(action, block, floor)
        for line in measured.said:
            print(line)
    finally:
        spark.stop()
        brokers.close()
        shutil.rmtree(directory, ignore_errors=True)
    bench.finish()


class _Streams:
    def __init__(
        self,
        spark: SparkSession,
        directory: Path,
        brokers: ExitStack,
        *,
        rows: int,
        runs: int,
        work: Path,
        seed: int,
    ) -> None:
        self.spark, self.directory, self.brokers, self.rows, self.runs = spark, directory, brokers, rows, runs
        self.batches = data.prepare(work, rows, seed)
        self.made = 0
        directory.mkdir(parents=True)
        self.files = self._files("files", rows // 100, FILES)
        self.small = self._files("small", SMALL_ROWS, 5)
        self.large = self._files("large", rows // 25, CHAIN, FIVE)
        self.said: list[str] = []

    def all(self, wanted: Callable[[str], bool]) -> list[tuple[str, list[Result]]]:
        """Run all actions that are wanted."""
        found = []
        actions = (
            self.ten_batches,
            self.lookup_batches,
            self.logged_batches,
            self.small_batches,
            self.state,
            self.changes,
            self.chain,
            self.following,
            self.many_batches,
        )
        for action in actions:
            name = action.__name__.replace("_", " ")
            if wanted(name):
                sides = action()
                runs: dict[str, list[Measures]] = {side: [] for side in sides}
                for _ in range(1 if name == "many batches" else self.runs):
                    for side, prepare in sides.items():
                        runs[side].append(self._cost_of(prepare()))
                results = [Result(name, side, tuple(each)) for side, each in runs.items()]
                found.append((name, results))
                for measure, what in SAID.items():
                    said = "; ".join(f"{r.contender} {m:,.1f}" for r in results if (m := r.median(measure)) is not None)
                    if said:
                        self.said.append(f"{name}, {what}: {said}")
        return found

    def ten_batches(self) -> dict[str, Callable[[], Callable[[], int | Measures]]]:
        return {FLOOR.name: lambda: self._floor(self.files), MERGANSER.name: lambda: self._written(self.files, "none")}

    def lookup_batches(self) -> dict[str, Callable[[], Callable[[], int | Measures]]]:
        return {
            FLOOR.name: lambda: self._floor(self.files),
            MERGANSER.name: lambda: self._written(self.files, "lookup"),
        }

    def logged_batches(self) -> dict[str, Callable[[], Callable[[], int | Measures]]]:
        address = self.brokers.enter_context(broker_running()).address
        log = {"log.system": "kafka", "kafka.bootstrap.servers": address}
        # A broker takes a second for its first transaction.
        confluent_kafka.Producer({"bootstrap.servers": address, "transactional.id": "first"}).init_transactions(60)
        return {
            FLOOR.name: lambda: self._written(self.files, "none"),
            MERGANSER.name: lambda: self._written(self.files, "none", log),
        }

    def small_batches(self) -> dict[str, Callable[[], Callable[[], int | Measures]]]:
        return {
            FLOOR.name: lambda: self._to_noop(self._stream(self.small), 5 * SMALL_ROWS),
            MERGANSER.name: lambda: self._written(self.small, "none"),
        }

    def state(self) -> dict[str, Callable[[], Callable[[], int | Measures]]]:
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

    def changes(self) -> dict[str, Callable[[], Callable[[], int | Measures]]]:
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

    def chain(self) -> dict[str, Callable[[], Callable[[], int | Measures]]]:
        def prepare() -> Callable[[], Measures]:
            source, target = self._table("input", FIVE), self._table("none", FIVE)
            for path in sorted(self.large.iterdir()):
                source.write(pq.read_table(path))
            count = CHAIN * (self.rows // 25)
            frame = ms.read_stream(
                self.spark, source, **{"scan.mode": "from-snapshot", "scan.snapshot-id": "1", "maxFilesPerTrigger": 4}
            )

            def action() -> Measures:
                checkpoint = self._place("checkpoint")
                query = ms.write_stream(frame, target, str(checkpoint), kinds="_row_kind", trigger="availableNow")
                query.awaitTermination()
                warm = [one for one in query.recentProgress if one.batchId >= WARM_FROM and one.numInputRows]
                return {"rows": count, "warm_rate": sum(one.numInputRows for one in warm) / _trigger_seconds(warm)}

            return action

        return {MERGANSER.name: prepare}

    def following(self) -> dict[str, Callable[[], Callable[[], int | Measures]]]:
        """Commits, or files, that come while a query waits for them."""

        def ours_() -> Callable[[], Measures]:
            table = self._table("input")
            table.write(data.few(SMALL_ROWS, self.rows, 0))

            def arrive(number: int) -> None:
                table.write(data.few(SMALL_ROWS, self.rows, number))

            return self._followed(ms.read_stream(self.spark, table), arrive)

        def floor() -> Callable[[], Measures]:
            place = self._files(f"arriving-{self.made}", SMALL_ROWS, 1)

            def arrive(number: int) -> None:
                hidden = place / f".{number}"
                pq.write_table(data.few(SMALL_ROWS, self.rows, number), hidden)
                hidden.rename(place / f"{number}.parquet")

            return self._followed(self._stream(place), arrive)

        return {FLOOR.name: floor, MERGANSER.name: ours_}

    def _followed(self, frame: DataFrame, arrive: Callable[[int], None]) -> Callable[[], Measures]:
        def action() -> Measures:
            self.spark.conf.set("spark.sql.streaming.noDataProgressEventInterval", "0")
            checkpoint = self._place("checkpoint")
            query = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).start()
            idle: list[float] = []
            visible: list[float] = []
            try:
                query.processAllAvailable()
                for number in range(1, 1 + FOLLOWED):
                    time.sleep(1.0)
                    idle += [one.durationMs["triggerExecution"] for one in query.recentProgress if not one.numInputRows]
                    commit = checkpoint / "commits" / str(len(list((checkpoint / "commits").glob("[0-9]*"))))
                    arrive(number)
                    begin = time.time()
                    while not commit.exists() and time.time() - begin < PATIENCE_SECONDS:
                        time.sleep(0.005)
                    query.processAllAvailable()
                    spent = [one.durationMs["triggerExecution"] for one in query.recentProgress if one.numInputRows]
                    visible.append(1e3 * (commit.stat().st_mtime - begin) - spent[-1])
            finally:
                query.stop()
                self.spark.conf.unset("spark.sql.streaming.noDataProgressEventInterval")
            return {"rows": FOLLOWED * SMALL_ROWS, "idle_ms": median(idle), "visible_ms": median(visible)}

        return action

    def many_batches(self) -> dict[str, Callable[[], Callable[[], int | Measures]]]:
        """Memory over many batches."""

        def prepare() -> Callable[[], Measures]:
            files = self._files(f"many-{self.made}", SMALL_ROWS, MANY)
            table, frame = self._table("none"), self._stream(files)

            def action() -> Measures:
                query = ms.write_stream(frame, table, str(self._place("checkpoint")), trigger="availableNow")
                early = 0
                while query.isActive:
                    last = query.lastProgress
                    if not early and last is not None and last.batchId >= MANY // 4:
                        early = python_bytes(os.getpid())
                    if last is not None and last.batchId >= MANY - 2:
                        break
                    time.sleep(0.05)
                late = python_bytes(os.getpid())
                query.awaitTermination()
                return {"rows": MANY * SMALL_ROWS, "early_mb": early / 1e6, "late_mb": late / 1e6}

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

    def _table(
        self, producer: str, columns: tuple[str, ...] | None = None, more: Mapping[str, str] | None = None
    ) -> mg.Table:
        path = self._place("warehouse") / "db.db" / "t"
        if columns is None:
            ours.create(str(path), {"changelog-producer": producer, "write-only": "false", **(more or {})})
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

    def _to_noop(self, frame: DataFrame, count: int) -> Callable[[], Measures]:
        def action() -> Measures:
            writer = frame.writeStream.format("noop").option("checkpointLocation", str(self._place("checkpoint")))
            query = writer.trigger(availableNow=True).start()
            query.awaitTermination()
            return {"rows": count, "trigger_seconds": _trigger_seconds(query.recentProgress)}

        return action

    def _written(self, files: Path, producer: str, more: Mapping[str, str] | None = None) -> Callable[[], int]:
        table, frame = self._table(producer, more=more), self._stream(files)

        def action() -> int:
            checkpoint = str(self._place("checkpoint"))
            ms.write_stream(frame, table, checkpoint, trigger="availableNow").awaitTermination()
            return self._count(files)

        return action

    def _count(self, files: Path) -> int:
        return sum(pq.read_metadata(path).num_rows for path in files.iterdir())

    def _cost_of(self, action: Callable[[], int | Measures]) -> Measures:
        os.sync()
        cpu, wall = tree_cpu_seconds(os.getpid()), time.perf_counter()
        found = action()
        seconds = time.perf_counter() - wall
        more: Measures = found if isinstance(found, dict) else {"rows": found}
        return {"seconds": seconds, "cpu_seconds": tree_cpu_seconds(os.getpid()) - cpu, **more}


def _trigger_seconds(progress: Sequence[StreamingQueryProgress]) -> float:
    return sum(one.durationMs["triggerExecution"] for one in progress) / 1e3


if __name__ == "__main__":
    main()

"""First work of fresh Spark sessions, local[2]: `python -m benchmarks.cold_spark`.

Every figure is of a fresh process with a fresh JVM, with bytecode from an earlier run. The clock starts when the
session is there: what follows starts Spark's Python processes, which import what they run. CPU seconds are of all
processes.

    first task     floor of the write: `mapInArrow` with a function that returns its batches
    first write    `ms.write` of 1,000 rows into a new key table of 4 buckets
    noop sink      floor of the stream: a Python sink that does nothing takes one file as one micro-batch
    first batch    `ms.write_stream` of the same file into a new table
    key            after the write: the median of twenty `ms.read(where="k = ...")`, collected
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from .processes import tree_cpu_seconds
from .spark_session import session

_ROWS = 1_000
_KEYS = 20


def _first_task(spark: Any, _: Path) -> dict[str, float]:
    def same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    return _timed(lambda: spark.range(_ROWS).mapInArrow(same, "id long").collect())


def _first_write(spark: Any, folder: Path) -> dict[str, float]:
    import merganser.spark as ms

    table = _table(folder)
    rows = spark.range(_ROWS).selectExpr("id AS k", "cast(id AS string) AS v")
    found = _timed(lambda: ms.write(rows, table))
    keys = [_timed(lambda k=k: ms.read(spark, table, where=f"k = {k}").collect())["seconds"] for k in range(_KEYS)]  # type: ignore[misc]
    return {**found, "key": statistics.median(keys)}


def _noop_sink(spark: Any, folder: Path) -> dict[str, float]:
    from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, WriterCommitMessage

    class Writer(DataSourceStreamWriter):
        def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
            for _ in iterator:
                pass
            return WriterCommitMessage()

        def commit(self, messages: Any, batchId: int) -> None:
            pass

        def abort(self, messages: Any, batchId: int) -> None:
            pass

    class Noop(DataSource):
        @classmethod
        def name(cls) -> str:
            return "nothing"

        def streamWriter(self, schema: Any, overwrite: bool) -> Writer:
            return Writer()

    spark.dataSource.register(Noop)
    frame = _frame(spark, folder)
    return _timed(
        lambda: (
            frame.writeStream.format("nothing")
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
            .awaitTermination()
        )
    )


def _first_batch(spark: Any, folder: Path) -> dict[str, float]:
    import merganser.spark as ms

    table, frame = _table(folder), _frame(spark, folder)
    found = _timed(
        lambda: ms.write_stream(frame, table, checkpoint=str(folder / "checkpoint"), trigger={"availableNow": True})
        .awaitTermination()
    )  # fmt: skip
    assert table.read().to_arrow().num_rows == _ROWS
    return found


_ACTIONS: dict[str, Callable[[Any, Path], dict[str, float]]] = {
    "first task": _first_task,
    "first write": _first_write,
    "noop sink": _noop_sink,
    "first batch": _first_batch,
}


def _table(folder: Path) -> Any:
    import merganser as mg

    catalog = mg.catalog(folder / "warehouse")
    catalog.create_database("db")
    schema = {"k": "BIGINT", "v": "STRING"}
    return catalog.create_table("db.t", schema=schema, primary_key=["k"], options={"bucket": "4"})


def _frame(spark: Any, folder: Path) -> Any:
    (folder / "in").mkdir()
    rows = {"k": range(_ROWS), "v": [str(k) for k in range(_ROWS)]}
    pq.write_table(pa.table(rows), folder / "in" / "rows.parquet")
    return spark.readStream.schema("k long, v string").parquet(str(folder / "in"))


def _timed(work: Callable[[], object]) -> dict[str, float]:
    begun, cpu = time.perf_counter(), tree_cpu_seconds(os.getpid())
    work()
    return {"seconds": time.perf_counter() - begun, "cpu": tree_cpu_seconds(os.getpid()) - cpu}


def _run(action: str) -> None:
    """Measure one action in this process."""
    with tempfile.TemporaryDirectory() as folder:
        spark = session("1g", Path(folder))
        print(json.dumps(_ACTIONS[action](spark, Path(folder))), flush=True)
        spark.stop()


def main() -> None:
    """Run it."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--runs", type=int, default=3, help="fresh processes per action")
    options.add_argument("--only", choices=_ACTIONS, help="one action, in this process")
    asked = options.parse_args()
    if asked.only is not None:
        _run(asked.only)
        return
    print(f"load {os.getloadavg()[0]:.1f}\n{'':14}{'best s':>8}{'median':>8}{'cpu s':>8}")
    found: dict[str, list[dict[str, float]]] = {action: [] for action in _ACTIONS}
    env = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    for _ in range(asked.runs):
        for action, runs in found.items():
            command = [sys.executable, "-m", "benchmarks.cold_spark", "--only", action]
            said = subprocess.run(command, check=True, capture_output=True, text=True, env=env).stdout
            runs.append(json.loads(said.strip().splitlines()[-1]))
    for action, runs in found.items():
        seconds = [run["seconds"] for run in runs]
        cpu = statistics.median(run["cpu"] for run in runs)
        print(f"{action:14}{min(seconds):8.2f}{statistics.median(seconds):8.2f}{cpu:8.2f}")
    keys = [run["key"] for run in found["first write"]]
    print(f"{'key':14}{min(keys):8.3f}{statistics.median(keys):8.3f}")


if __name__ == "__main__":
    main()

"""What an operation waits for on an object store: `python -m benchmarks.round_trips`.

An S3 server on the loopback interface holds each request for 40 ms (`--held`). Wall time over that is the number of
round trips; the work of this process and of the server, which is written in Python, counts as well. The floor is one
request. The requests themselves, and how deep they lie, are in `tests/traces`.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

import merganser as mg
from merganser.spark.stream_sink import StreamTask, request_of
from merganser.storage.open import storage_for
from merganser.write.job import Outcome
from tests import s3_server

from .harness import FLOOR, MERGANSER, Result, parser, start


def main() -> None:
    """Run it."""
    options = parser(__doc__.splitlines()[0], rows=1)
    options.add_argument("--held", type=int, default=40, help="milliseconds that a request is held (default 40)")
    chosen = options.parse_args()
    bench = start("round_trips", chosen, (FLOOR, MERGANSER))
    with s3_server.running() as endpoint:
        bucket = s3_server.new_bucket(endpoint, held_ms=chosen.held)
        storage, _ = storage_for(bucket.root, bucket.options)
        storage.replace(f"{bucket.root}/file", b"1")
        floor = _timed(lambda _: storage.read(f"{bucket.root}/file"), chosen.runs)
        print(f"\n{'one request':40}{statistics.median(floor) * 1000:8.0f} ms")
        for action, times in _actions(f"{bucket.root}/w", bucket.options, chosen.runs):
            if bench.wanted(action):
                seconds = statistics.median(times)
                print(f"{action:40}{seconds * 1000:8.0f} ms{seconds * 1000 / chosen.held:8.1f} round trips")
                bench.results.append(Result(action, MERGANSER.name, tuple({"seconds": one} for one in times)))
    bench.finish()


def _actions(root: str, options: dict[str, str], runs: int) -> Iterator[tuple[str, list[float]]]:
    catalog = mg.catalog(root, options)
    catalog.create_database("d")
    schema = "k BIGINT NOT NULL, v STRING, n BIGINT, PRIMARY KEY (k)"
    table = catalog.create_table("d.t", schema, options={"bucket": 1, "num-sorted-run.compaction-trigger": 1000})
    lookup = catalog.create_table("d.u", schema, options={"bucket": 1, "changelog-producer": "lookup"})
    for one in (table, lookup):
        for key in range(2):
            one.write(_rows(key))
    path = f"{root}/d.db/t"
    yield "open a table by its path", _timed(lambda _: mg.table(path, options), runs)
    yield "write", _timed(lambda i: table.write(_rows(100 + i)), runs)
    yield "upsert", _timed(lambda i: table.upsert(_rows(100 + i, "b")), runs)
    yield "update", _timed(lambda i: table.update(f"k = {100 + i}", {"v": "'c'"}), runs)
    yield "delete", _timed(lambda i: table.delete(f"k = {100 + i}"), runs)
    table.compact(full=True)
    yield "filtered read of one file", _timed(lambda _: table.read(where="k = 1").to_arrow(), runs)
    yield "lookup, table open", _timed(lambda _: table.lookup({"k": 1}), runs)
    yield "write, changelog by lookup", _timed(lambda i: lookup.write(_rows(i)), runs)

    def compacted(i: int) -> None:
        table.compact(full=True)

    yield "compact one bucket of two files", _timed(compacted, runs, before=lambda i: table.write(_rows(200 + i)))
    yield "a micro-batch on the driver", _micro_batches(catalog.table("d.t"), f"{root}/checkpoint", runs)


def _micro_batches(table: mg.Table, checkpoint: str, runs: int) -> list[float]:
    """Return the seconds that the commit of each micro-batch takes, after its tasks; without Spark itself."""
    storage = table.env.storage
    request = request_of(
        table,
        _rows(0).schema,
        kinds=None,
        columns=None,
        complete=False,
        user=None,
        compaction=None,
        checkpoint=checkpoint,
    )
    outcomes: list[Outcome] = []

    def written(i: int) -> None:
        storage.replace(f"{checkpoint}/offsets/{i}", b'v1\n{"batchWatermarkMs":0}\n{"logOffset":0}')
        outcomes[:] = [StreamTask(request, arranged=False).run([_rows(300 + i)])]

    return _timed(lambda i: request.commit("query", i, outcomes), runs, before=written)


def _rows(key: int, value: str = "a") -> pa.Table:
    schema = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string()), ("n", pa.int64())])
    return pa.table({"k": [key], "v": [value], "n": [key]}, schema=schema)


def _timed(work: Callable[[int], Any], runs: int, before: Callable[[int], Any] = lambda _: None) -> list[float]:
    """Return the seconds of each run; one more comes first and is not counted."""
    times = []
    for i in range(runs + 1):
        before(i)
        begun = time.perf_counter()
        work(i)
        times.append(time.perf_counter() - begun)
    return times[1:]


if __name__ == "__main__":
    main()

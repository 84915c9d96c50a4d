"""A log beside the files: `python -m benchmarks.log`.

A broker of Kafka runs on the same machine. The floor produces and consumes records of the same bytes with the same
client.

| action | what is measured |
|---|---|
| show | from the return of `write` of one row to its arrival at a stream that waits, milliseconds: median, and p99 |
| flush | from the return of `flush` of one row to its arrival, of an eventual log; every tenth time there is a commit |
| commit | `write` of 1,000 rows with and without a log, milliseconds |
| write | rows of ten columns written in one commit, with and without a log; records a second of the difference |
| read | records of such commits that a stream takes from the log, a second |
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import confluent_kafka as kafka
import pyarrow as pa

import merganser as mg
from merganser.log.records import encode
from merganser.log.tail import LogTail
from tests.log.broker import running

from .data import BUCKETS, FIELDS, prepare
from .harness import FLOOR, MERGANSER, Result, parser, start

_NAMES = iter(range(1_000_000))


def main() -> None:
    """Run it."""
    options = parser(__doc__.splitlines()[0], rows=500_000)
    options.add_argument("--commits", type=int, default=200, help="commits of one row (default 200)")
    chosen = options.parse_args()
    bench = start("log", chosen, (FLOOR, MERGANSER))
    rows = pa.ipc.open_file(prepare(bench.work, chosen.rows, chosen.seed).base).read_all()
    with running() as broker, tempfile.TemporaryDirectory() as folder:
        catalog = mg.catalog(Path(folder) / "warehouse")
        catalog.create_database("db")
        told = {"bucket": str(BUCKETS), "write-only": "true"}
        logged = {**told, "log.system": "kafka", "kafka.bootstrap.servers": broker.address}

        def table(**options: str) -> Any:
            schema = ", ".join(f"{name} {kind}" for name, kind in FIELDS.items()) + ", PRIMARY KEY (k)"
            return catalog.create_table(f"db.t{next(_NAMES)}", schema, options=options)

        def note(action: str, who: str, seconds: list[float], shown: str) -> None:
            print(f"{action:10}{who:14}{shown}", flush=True)
            bench.results.append(Result(action, who, tuple({"seconds": one} for one in seconds)))

        if bench.wanted("show"):
            waits = _shown(table(**logged), rows, chosen.commits)
            p99 = sorted(waits)[int(len(waits) * 0.99)]
            note("show", MERGANSER.name, waits, f"{statistics.median(waits) * 1000:8.1f} ms, p99 {p99 * 1000:.1f} ms")
        if bench.wanted("flush"):
            waits = _flushed(table(**logged, **{"log.consistency": "eventual"}), rows, chosen.commits)
            p99 = sorted(waits)[int(len(waits) * 0.99)]
            note("flush", MERGANSER.name, waits, f"{statistics.median(waits) * 1000:8.1f} ms, p99 {p99 * 1000:.1f} ms")
        if bench.wanted("commit"):
            for who, how in ((FLOOR.name, told), (MERGANSER.name, logged)):
                one = table(**how)
                one.write(rows.slice(0, 1000))
                times = [_seconds(partial(one.write, rows.slice(1000 * i, 1000))) for i in range(1, 31)]
                note("commit", who, times, f"{statistics.median(times) * 1000:8.1f} ms a commit of 1,000 rows")
        if bench.wanted("write"):
            floor = [_produced(broker.address, rows, table(**told)) for _ in range(chosen.runs)]
            note("write", FLOOR.name, floor, f"{len(rows) / statistics.median(floor):12,.0f} records/s produced")
            plain = [_seconds(lambda: table(**told).write(rows)) for _ in range(chosen.runs)]
            with_log = []
            for _ in range(chosen.runs):
                one = table(**logged)
                one.write(rows.slice(0, 1))
                with_log.append(_seconds(lambda one=one: one.write(rows)))
            more = statistics.median(with_log) - statistics.median(plain)
            shown = f"{len(rows) / more:12,.0f} records/s; {len(rows) / statistics.median(with_log):,.0f} rows/s in all"
            note("write", MERGANSER.name, with_log, shown)
        if bench.wanted("read"):
            one = table(**logged)
            with _listening(one) as tail:
                for start_row in range(0, len(rows), 50_000):
                    one.write(rows.slice(start_row, 50_000))
                floor = [_consumed(broker.address, one, len(rows)) for _ in range(chosen.runs)]
                note("read", FLOOR.name, floor, f"{len(rows) / statistics.median(floor):12,.0f} records/s consumed")
                seconds = _seconds(lambda: _taken(tail, one, len(rows)))
                note("read", MERGANSER.name, [seconds], f"{len(rows) / seconds:12,.0f} records/s as rows")
    bench.finish()


def _seconds(work: Any) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def _shown(table: Any, rows: pa.Table, commits: int) -> list[float]:
    """Return the seconds from the return of each write to its rows in a stream that waits."""
    return _arrivals(table, rows, commits, table.write)


def _flushed(table: Any, rows: pa.Table, flushes: int) -> list[float]:
    """Return the seconds from the return of each flush to its rows in a stream that waits."""
    numbers = iter(range(flushes + 1))
    with table.writer() as writer:

        def flush(row: pa.Table) -> None:
            if next(numbers) % 10 == 0:
                writer.commit()
            writer.write(row)
            writer.flush()

        return _arrivals(table, rows, flushes, flush)


def _arrivals(table: Any, rows: pa.Table, count: int, send: Callable[[pa.Table], Any]) -> list[float]:
    """Return the seconds from the return of each `send` of a row to the row in a stream that waits."""
    arrived: dict[int, float] = {}
    stream = table.with_options({"continuous.discovery-interval": "600 s"}).stream(start="latest")

    def follow() -> None:
        for plan in stream:
            now = time.perf_counter()
            for key in plan.column("k").to_pylist():
                arrived.setdefault(key, now)

    threading.Thread(target=follow, daemon=True).start()
    send(rows.slice(0, 1))
    time.sleep(3)
    sent: dict[int, float] = {}
    for i in range(1, count + 1):
        one = rows.slice(i, 1)
        send(one)
        sent[one.column("k")[0].as_py()] = time.perf_counter()
        time.sleep(0.02)
    until = time.monotonic() + 30
    while len(arrived) < count + 1 and time.monotonic() < until:
        time.sleep(0.01)
    return [max(0.0, arrived[key] - at) for key, at in sent.items()]


@contextmanager
def _listening(table: Any) -> Iterator[LogTail]:
    tail = LogTail(table.definition)
    try:
        yield tail
    finally:
        tail.close()


def _taken(tail: LogTail, table: Any, rows: int) -> None:
    number = 1
    while rows:
        commit = tail.next(number)
        if commit is None:
            tail.poll(1.0)
            continue
        rows -= commit.rows(table.definition).num_rows
        number = commit.mark.snapshot + 1


def _produced(address: str, rows: pa.Table, table: Any) -> float:
    """Return the seconds that a producer takes for the records of some rows, in one transaction."""
    records = encode(rows, None, table.schema, "upsert")
    topic = f"floor{next(_NAMES)}"
    admin = kafka.admin.AdminClient({"bootstrap.servers": address})
    admin.create_topics([kafka.admin.NewTopic(topic, BUCKETS, 1)])[topic].result()
    producer = kafka.Producer({
        "bootstrap.servers": address, "transactional.id": topic, "compression.type": "zstd", "linger.ms": 0,
        "queue.buffering.max.messages": 1_000_000, "queue.buffering.max.kbytes": 1_000_000,
    })  # fmt: skip
    producer.init_transactions(30)
    assert records.keys is not None
    begun = time.perf_counter()
    producer.begin_transaction()
    for i, (key, value) in enumerate(zip(records.keys, records.values, strict=True)):
        headers = [("merganser", b"x" * 200), ("sequence", str(i).encode())]
        producer.produce(topic, value, key, i % BUCKETS, headers=headers)
    producer.flush()
    producer.commit_transaction()
    return time.perf_counter() - begun


def _consumed(address: str, table: Any, rows: int) -> float:
    """Return the seconds in which a consumer gets the values of the records of a table."""
    topic = table.options["kafka.topic"]
    consumer = kafka.Consumer({
        "bootstrap.servers": address, "group.id": "floor", "enable.auto.commit": False,
        "isolation.level": "read_committed",
    })  # fmt: skip
    consumer.assign([kafka.TopicPartition(topic, part, kafka.OFFSET_BEGINNING) for part in range(BUCKETS)])
    begun = time.perf_counter()
    while rows > 0:
        rows -= len([message.value() for message in consumer.consume(10_000, 0.2)])
    seconds = time.perf_counter() - begun
    consumer.close()
    return seconds


if __name__ == "__main__":
    main()

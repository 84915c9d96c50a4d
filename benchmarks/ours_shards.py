"""The tables, readers and workers of `shards.py`."""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import merganser as mg
from merganser.meta.shard_store import ShardStore
from merganser.meta.shard_stream import stream_of

from .data import FIELDS, few

_STREAM = {"stream.enabled": "true", "write-only": "true", "bucket": "1"}
_BEGAN_MS = 1_790_000_000_000
_STEP_MS = 10


def create(table: str, columns: Mapping[str, str], key: Sequence[str], more: Mapping[str, str]) -> Any:
    """Make an empty table with a stream."""
    path = Path(table)
    catalog = mg.catalog(str(path.parent.parent))
    catalog.create_database("db", if_not_exists=True)
    return catalog.create_table(f"db.{path.name}", dict(columns), list(key), options=_STREAM | dict(more))


def warm_up() -> None:
    """Write and read a few records."""
    with tempfile.TemporaryDirectory() as directory:
        table = f"{directory}/db.db/t"
        changed(table, 40, 20, 1)()
        for _ in range(2):
            records(table, 7)()
            files(table, 7)()
        mg.table(table).describe_stream()


def changed(table: str, rows: int, commit_rows: int, seed: int) -> Callable[[], int]:
    """Make changes: commits of rows whose keys are drawn from twice as many."""

    def action() -> int:
        target = create(table, FIELDS, ["k"], {})
        for i in range(rows // commit_rows):
            target.write(few(commit_rows, 2 * commit_rows, seed + i))
        return rows

    return action


def records(table: str, limit: int) -> Callable[[], dict[str, Any]]:
    """Read all records of a shard, page by page."""
    pa.set_cpu_count(1)
    target = mg.table(table)
    (shard,) = target.shards()
    begin = target.shard_iterator(shard.shard_id, at="trim_horizon")

    def action() -> dict[str, Any]:
        at, found, pages, more = begin, 0, 0, True
        while more:
            page = target.records(at, limit=limit)
            found += page.records.num_rows
            at, more, pages = page.next_iterator, page.may_have_more, pages + 1
        return {"rows": found, "pages": pages}

    return action


def files(table: str, limit: int) -> Callable[[], int]:
    """Read the files of the changelog: the floor."""
    pa.set_cpu_count(1)
    paths = sorted(Path(table).glob("bucket-0/changelog-*"))

    def action() -> int:
        return sum(pq.ParquetFile(path).read(use_threads=False).num_rows for path in paths)

    return action


def polls(table: str, polls: int) -> Callable[[], dict[str, Any]]:
    """Ask a shard without news."""
    target = mg.table(table)
    (shard,) = target.shards()
    at = target.shard_iterator(shard.shard_id)

    def action() -> dict[str, Any]:
        begin = time.perf_counter()
        for _ in range(polls):
            assert not target.records(at).records.num_rows
        return {"rows": polls, "each_ms": 1e3 * (time.perf_counter() - begin) / polls}

    return action


def long(table: str, snapshots: int) -> Callable[[], int]:
    """Make a table of many snapshots, all like its first one but for number and time."""

    def action() -> int:
        target = create(table, {"k": "INT", "v": "INT"}, ["k"], {"stream.retention": "9000 d"})
        target.write([{"k": 1, "v": 1}])
        first = target.latest_snapshot()
        for number in range(1, snapshots + 1):
            one = replace(first, id=number, time_millis=_BEGAN_MS + number * _STEP_MS)
            Path(table, "snapshot", f"snapshot-{number}").write_bytes(one.to_json())
        Path(table, "snapshot", "LATEST").write_text(str(snapshots))
        target = mg.table(table)
        ShardStore(target.definition, target.env, stream_of(target.definition.options, "main")).remember(
            target.latest_snapshot()
        )  # as commits do now and then
        return snapshots

    return action


def iterators(table: str, snapshots: int, warm: bool) -> Callable[[], dict[str, Any]]:
    """Make iterators at times, in a process that has made one before, or in a fresh one."""
    target = mg.table(table)
    (shard,) = target.shards() if warm else (None,)
    times = (
        [_BEGAN_MS + (1 + snapshots * i // 20) * _STEP_MS for i in range(20)] if warm else [_BEGAN_MS + 777 * _STEP_MS]
    )

    def action() -> dict[str, Any]:
        begin = time.perf_counter()
        for at in times:
            mine = shard or target.shards()[0]
            assert target.shard_iterator(mine.shard_id, timestamp=at)
        return {"rows": len(times), "each_ms": 1e3 * (time.perf_counter() - begin) / len(times)}

    return action


def wide(table: str, shards: int) -> Callable[[], int]:
    """Make a table of many shards: a bucket each."""

    def action() -> int:
        target = create(table, {"k": "INT", "v": "INT"}, ["k"], {"bucket": str(shards), "write-only": "false"})
        target.write([{"k": k, "v": k} for k in range(10)])
        for _ in range(128):
            target.write([{"k": 1, "v": 1}])
        return shards

    return action


def describe(table: str, limits: Sequence[int | None], shards: int) -> Callable[[], dict[str, Any]]:
    """Describe all shards by pages of the last of some limits; the others are used before."""
    target = mg.table(table)

    def every(limit: int | None) -> int:
        begin, found = None, 0
        while True:
            page = target.describe_stream(begin, limit)
            found, begin = found + len(page.shards), page.next_shard
            if begin is None:
                return found

    for limit in limits[:-1]:
        every(limit)

    def action() -> int:
        found = every(limits[-1])
        assert found == shards
        return found

    return action


def upkeep(table: str, commits: int) -> Callable[[], int]:
    """Commit to one shard, and expire what is older than ten snapshots."""
    target = mg.table(table)
    target.write([{"k": 1, "v": 0}])

    def action() -> int:
        for value in range(commits):
            target.write([{"k": 1, "v": value}])
            target.expire(retain_max=10)
        return commits

    return action


# ── workers ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _worker(table: str, name: str, checkpoints: str, log: str, lease: float) -> None:
    target = mg.table(table)
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())

    with open(log, "a", buffering=1) as out:

        def handler(batch: Any) -> None:
            now = time.time()
            rows = batch.records
            for value, when in zip(rows["v"].to_pylist(), rows["_commit_time"].to_pylist(), strict=True):
                out.write(f"{name} {value} {batch.shard.shard_id} {1e3 * (now - when.timestamp()):.1f} {now:.4f}\n")

        target.follow(
            name, handler, checkpoints, lease=f"{int(lease * 1000)} ms", interval="20 ms", stop=over, full=True
        )


class _Group:
    """Workers in processes, and what they have handled."""

    def __init__(self, table: str, buckets: int, workers: int, lease: float) -> None:
        self.directory = tempfile.mkdtemp()
        self.target = create(table, {"k": "INT", "v": "INT"}, ["k"], {"bucket": str(buckets)})
        self.logs = [Path(self.directory, f"log-{i}") for i in range(workers)]
        context = multiprocessing.get_context("spawn")
        self.processes = [
            context.Process(target=_worker, args=(table, f"worker-{i}", f"{self.directory}/c", str(log), lease))
            for i, log in enumerate(self.logs)
        ]
        for log in self.logs:
            log.touch()
        for process in self.processes:
            process.start()
        self.value = 0
        shares: dict[str, set[str]] = {}
        until = time.monotonic() + 120
        while len(shares) < workers or max(map(len, shares.values())) > -(-buckets // workers):
            assert time.monotonic() < until, "the workers do not share the shards"
            self.write(20 * buckets)
            handled = self.wait(buckets)
            shares = {}
            for worker, _, shard, _, _ in handled:
                shares.setdefault(worker, set()).add(shard)
            time.sleep(lease / 3)

    def write(self, rows: int) -> float:
        """Commit a value that no commit had; return when it was over."""
        self.value += 1
        self.target.write(
            pa.table({"k": pa.array(range(rows), pa.int32()), "v": pa.array([self.value] * rows, pa.int32())})
        )
        return time.time()

    def wait(self, shards: int) -> list[tuple[str, int, str, float, float]]:
        """Wait until so many shards have handled the newest value, and return it as `handled` does."""
        until = time.monotonic() + 120
        while True:
            found = [one for one in self.handled() if one[1] == self.value]
            if len({one[2] for one in found}) >= shards:
                return found
            assert time.monotonic() < until, "a change was not handled"
            time.sleep(0.01)

    def handled(self) -> list[tuple[str, int, str, float, float]]:
        """Return what was handled: (worker, value, shard, ms since the commit, when)."""
        lines = (line.split() for log in self.logs for line in log.read_text().splitlines() if line)
        return [(w, int(v), shard, float(ms), float(at)) for w, v, shard, ms, at in lines]

    def end(self) -> None:
        """End the workers."""
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.join(30)
            process.kill()


def follow(table: str, buckets: int, workers: int, rows: int, commits: int) -> Callable[[], dict[str, Any]]:
    """Commit while workers follow; gives milliseconds from a commit until its last change was handled."""
    group = _Group(table, buckets, workers, 30)

    def action() -> dict[str, Any]:
        took = []
        for _ in range(commits):
            group.write(rows)
            took.append(max(one[3] for one in group.wait(min(rows, buckets))))
            time.sleep(0.05)
        group.end()
        return {"rows": commits * rows, "median_ms": median(took), "p95_ms": quantiles(took, n=20)[-1]}

    return action


def take_over(table: str, buckets: int, workers: int, lease: float) -> Callable[[], dict[str, Any]]:
    """Kill a worker; gives seconds until the others have handled a change of each shard, less the lease."""
    group = _Group(table, buckets, workers, lease)

    def action() -> dict[str, Any]:
        killed = time.time()
        pid = group.processes[0].pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        group.write(20 * buckets)
        last = max(one[4] for one in group.wait(buckets))
        group.end()
        return {"rows": buckets, "after_lease_seconds": last - killed - lease}

    return action

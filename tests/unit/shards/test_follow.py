"""Workers that follow a table together: every record, each key in order, whatever becomes of the workers."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import merganser as mg
from merganser.errors import StreamParameterError
from merganser.shards.follow import Batch, Leases


def rows(keys: range, value: int) -> pa.Table:
    return pa.table([list(keys), [value] * len(keys)], schema=pa.schema({"k": pa.int32(), "v": pa.int32()}))


def made(folder: Path, buckets: int = 4) -> Any:
    """Return a table with a stream."""
    catalog = mg.catalog(str(folder / "warehouse"))
    catalog.create_database("db")
    options = {"bucket": str(buckets), "stream.enabled": "true"}
    return catalog.create_table("db.t", "k INT, v INT, PRIMARY KEY (k)", options=options)


class Group:
    """Workers in threads, and what they handled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stop: dict[str, threading.Event] = {}
        self.threads: dict[str, threading.Thread] = {}
        self.seen: list[tuple[str, str, int, int, int]] = []
        self.errors: list[BaseException] = []
        self._lock = threading.Lock()

    def start(self, worker: str) -> None:
        """Start a worker with a handle of its own."""
        self.stop[worker] = threading.Event()
        self.threads[worker] = threading.Thread(target=self._run, args=(worker,))
        self.threads[worker].start()

    def end(self) -> None:
        """Stop all workers."""
        for each in self.stop.values():
            each.set()
        for thread in self.threads.values():
            thread.join(60)
        assert not self.errors

    def wait_for(self, count: int) -> None:
        """Wait until so many records were handled."""
        until = time.monotonic() + 60
        while len(self.seen) < count and not self.errors:
            assert time.monotonic() < until, f"{len(self.seen)} of {count} records were handled"
            time.sleep(0.01)

    def _run(self, worker: str) -> None:
        table = mg.catalog(str(self.folder / "warehouse")).table("db.t")

        def handler(batch: Batch) -> None:
            found = batch.records.to_pylist()
            with self._lock:
                self.seen += [(worker, batch.shard.shard_id, r["k"], r["v"], r["_sequence"]) for r in found]

        try:
            table.follow(worker, handler, str(self.folder / "group"), lease="2 s", limit=7, stop=self.stop[worker])
        except BaseException as error:
            self.errors.append(error)


def test_workers_share_the_shards_and_hand_over_every_record_once(tmp_path: Path) -> None:
    table = made(tmp_path)
    group = Group(tmp_path)
    group.start("a")
    table.write(rows(range(40), 0))
    group.wait_for(40)
    group.start("b")
    for turn in range(1, 6):
        table.write(rows(range(40), turn))
        time.sleep(0.3)
    table.rescale(6)
    table.write(rows(range(40), 6))
    group.wait_for(280)
    time.sleep(0.2)
    group.end()
    assert len(group.seen) == 280
    assert {worker for worker, *_ in group.seen} == {"a", "b"}
    for key in range(40):
        mine = [(value, sequence) for _, _, k, value, sequence in group.seen if k == key]
        assert [value for value, _ in mine] == list(range(7))
        assert [sequence for _, sequence in mine] == sorted(sequence for _, sequence in mine)


def test_a_group_goes_on_where_it_stopped(tmp_path: Path) -> None:
    table = made(tmp_path)
    for turn in range(2):
        group = Group(tmp_path)
        table.write(rows(range(20), turn))
        group.start("a")
        group.wait_for(20)
        time.sleep(0.1)
        group.end()
        assert sorted(k for _, _, k, value, _ in group.seen if value == turn) == list(range(20))
        assert len(group.seen) == 20


def _follow(folder: str, log: str) -> None:
    table = mg.catalog(f"{folder}/warehouse").table("db.t")

    def handler(batch: Batch) -> None:
        with open(log, "a") as out:
            for record in batch.records.to_pylist():
                out.write(f"{record['k']} {record['v']}\n")
        time.sleep(0.05)

    table.follow(f"worker-{os.getpid()}", handler, f"{folder}/group", lease="1 s", limit=5)


def test_others_take_over_the_shards_of_a_worker_that_was_killed(tmp_path: Path) -> None:
    table = made(tmp_path)
    log = tmp_path / "log"
    log.touch()
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_follow, args=(str(tmp_path), str(log))) for _ in range(2)]
    for worker in workers:
        worker.start()
    try:
        for turn in range(4):
            table.write(rows(range(30), turn))
        until = time.monotonic() + 60
        while len(log.read_text().splitlines()) < 30:
            assert time.monotonic() < until
            time.sleep(0.02)
        assert workers[0].pid is not None
        os.kill(workers[0].pid, signal.SIGKILL)
        wanted = {f"{key} {turn}" for key in range(30) for turn in range(4)}
        while not wanted <= set(log.read_text().splitlines()):
            assert time.monotonic() < until
            time.sleep(0.05)
    finally:
        for worker in workers:
            worker.kill()
            worker.join(30)
    for key in range(30):  # what came again came again in order
        values = [int(line.split()[1]) for line in log.read_text().splitlines() if line.split()[0] == str(key)]
        firsts = [values.index(turn) for turn in range(4)]
        assert firsts == sorted(firsts)


def test_of_two_workers_one_gets_the_lease(tmp_path: Path) -> None:
    env = mg.catalog(str(tmp_path)).env
    one, two = Leases(env, str(tmp_path / "l")), Leases(env, str(tmp_path / "l"))
    seen = two.read("s")
    taken = one.change(one.read("s"), worker="one", until_ms=5)
    assert taken is not None
    assert two.change(seen, worker="two", until_ms=5) is None
    assert two.read("s") == taken
    assert two.change(two.read("s"), worker="two", until_ms=9) is not None
    assert one.change(taken, iterator="x") is None  # it was taken for dead, and saves nothing any more


@pytest.mark.parametrize("name", ["", "a/b", "..", 7, "x" * 101])
def test_names_that_are_no_names_are_refused(tmp_path: Path, name: Any) -> None:
    table = made(tmp_path)
    with pytest.raises(StreamParameterError):
        table.follow(name, print)

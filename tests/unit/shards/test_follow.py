"""Workers that follow a table together: every record, each key in order, whatever becomes of the workers."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import merganser as mg
from merganser.errors import NotFoundError, StreamParameterError
from merganser.shards.follow import Batch
from merganser.shards.lease_table import COLUMNS, TableLeases
from merganser.shards.leases import FileLeases, Leases


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
            table.follow(worker, handler, str(self.folder / "group"), lease="5 s", limit=7, stop=self.stop[worker])
        except BaseException as error:
            self.errors.append(error)


def test_workers_share_the_shards_and_hand_over_every_record_once(tmp_path: Path) -> None:
    table = made(tmp_path)
    group = Group(tmp_path)
    group.start("a")
    table.write(rows(range(40), 0))
    group.wait_for(40)
    group.start("b")
    turn, until = 0, time.monotonic() + 60
    while "b" not in {worker for worker, *_ in group.seen} and time.monotonic() < until:
        turn += 1
        table.write(rows(range(40), turn))
        group.wait_for(40 * (turn + 1))
        time.sleep(0.1)
    table.rescale(6)
    table.write(rows(range(40), turn + 1))
    group.wait_for(40 * (turn + 2))
    time.sleep(0.2)
    group.end()
    assert len(group.seen) == 40 * (turn + 2)
    assert {worker for worker, *_ in group.seen} == {"a", "b"}
    for key in range(40):
        mine = [(value, sequence) for _, _, k, value, sequence in group.seen if k == key]
        assert [value for value, _ in mine] == list(range(turn + 2))
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


def _follow(folder: str, checkpoints: str) -> None:
    table = mg.catalog(f"{folder}/warehouse").table("db.t")
    results = sqlite3.connect(f"{folder}/results", timeout=60)

    def handler(batch: Batch) -> None:
        shard = batch.shard.shard_id
        with results:
            results.execute("BEGIN IMMEDIATE")
            last = results.execute("SELECT max(sequence) FROM once WHERE shard = ?", (shard,)).fetchone()[0]
            for record in batch.after(last).to_pylist():
                row = (shard, record["_sequence"], record["k"], record["v"])
                results.execute("INSERT INTO once (shard, sequence, k, v) VALUES (?, ?, ?, ?)", row)

    table.follow(f"worker-{os.getpid()}", handler, checkpoints, lease="1 s", limit=5)


@pytest.mark.campaign(1 / 2)
@pytest.mark.parametrize("kept_in", ["files", "table"])
def test_processes_that_are_killed_handle_each_record_once(tmp_path: Path, kept_in: str) -> None:
    table = made(tmp_path)
    mg.catalog(str(tmp_path / "warehouse")).create_table("db.followers", COLUMNS, options={"bucket": "1"})
    checkpoints = "db.followers" if kept_in == "table" else str(tmp_path / "group")
    results = sqlite3.connect(tmp_path / "results", timeout=60)
    results.execute("PRAGMA journal_mode = WAL")
    results.execute("CREATE TABLE once (number INTEGER PRIMARY KEY, shard TEXT, sequence INT, k INT, v INT)")
    context = multiprocessing.get_context("spawn")

    def started() -> Any:
        worker = context.Process(target=_follow, args=(str(tmp_path), checkpoints))
        worker.start()
        return worker

    def handled() -> int:
        return int(results.execute("SELECT count(*) FROM once").fetchone()[0])

    until = time.monotonic() + 90
    workers = [started() for _ in range(2)]
    try:
        for turn in range(4):
            table.write(rows(range(30), turn))
            if turn in (1, 2):
                table.rescale(turn * 2)
                table.expire(retain_max=1, retain_min=1)
            while handled() < 30 * turn + 10:
                assert time.monotonic() < until
                time.sleep(0.01)
            if turn < 2:
                victim = workers.pop(0)
                os.kill(victim.pid, signal.SIGKILL)
                victim.join(30)
                workers.append(started())
        while handled() < 120:
            assert time.monotonic() < until
            time.sleep(0.05)
    finally:
        for worker in workers:
            worker.kill()
            worker.join(30)
    assert handled() == 120
    for key in range(30):
        found = results.execute("SELECT v, sequence FROM once WHERE k = ? ORDER BY number", (key,)).fetchall()
        assert [value for value, _ in found] == list(range(4))
        assert found == sorted(found, key=lambda one: one[1])


@pytest.mark.parametrize("kept_in", ["files", "table", "dynamic table"])
def test_of_two_workers_one_gets_the_lease(tmp_path: Path, kept_in: str) -> None:
    catalog = mg.catalog(str(tmp_path))
    catalog.create_database("db")
    options = {"bucket": "1"} if kept_in == "table" else {}
    table = catalog.create_table("db.leases", COLUMNS, options=options)

    def opened() -> Leases:
        if kept_in == "files":
            return FileLeases(catalog.env, str(tmp_path / "l"))
        again = mg.table(table.path)
        return TableLeases(again.definition, again.env, "0" * 32, "cannot follow")

    one, two = opened(), opened()
    seen = two.read(["s", "t"])
    assert one.change([seen["s"].changed(worker="one", until_ms=5)]) == [True]
    taken = one.read(["s"])["s"]
    both = [each.changed(worker="two", until_ms=7) for each in seen.values()]
    assert two.change(both) == [False, True]
    assert two.read(["s"]) == {"s": taken}
    assert two.change([taken.changed(worker="two", iterator="y", done=True)]) == [True]
    assert one.change([taken.changed(iterator="x")]) == [False]  # it was taken for dead, and saves nothing any more
    assert [(lease.worker, lease.iterator, lease.done) for lease in one.read(["s", "t", "u"]).values()] == [
        ("two", "y", True),
        ("two", None, False),
        (None, None, False),
    ]
    late = one.read(["s"])["s"]
    for _ in range(4):
        assert two.change([two.read(["s"])["s"].changed(worker="two")]) == [True]
    assert one.change([late.changed(worker="one")]) == [False]  # although nobody keeps the lease that came after it
    assert two.read(["s"])["s"].number == late.number + 4
    for worker, until in (("a", 50), ("b", 70), ("c", 90)):
        opened().come(worker, catalog.env.now_ms() + until * 1000)
    one.leave("c")
    assert list(two.workers(catalog.env.now_ms() + 60_000)) == ["b"]
    assert sorted(two.workers(0)) == ["a", "b"]


@pytest.mark.parametrize("kept_in", ["files", "table"])
def test_one_of_many_workers_wins_each_change(tmp_path: Path, kept_in: str) -> None:
    catalog = mg.catalog(str(tmp_path))
    catalog.create_database("db")
    table = catalog.create_table("db.leases", COLUMNS, options={"bucket": "1"})
    won: list[tuple[str, int]] = []

    def work(name: str) -> None:
        own = mg.catalog(str(tmp_path)).table("db.leases")
        leases: Leases = FileLeases(own.env, str(tmp_path / "l"))
        if kept_in == "table":
            leases = TableLeases(own.definition, own.env, "0" * 32, "cannot follow")
        for _ in range(6):
            there = leases.read(["s", "t"])
            made = [lease.changed(worker=name) for lease in there.values()]
            for lease, stored in zip(made, leases.change(made), strict=True):
                if stored:
                    won.append((lease.shard_id, lease.number))

    threads = [threading.Thread(target=work, args=(f"w{i}",)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(won)) == len(won)
    last = {shard_id: max(number for found, number in won if found == shard_id) for shard_id in ("s", "t")}
    if kept_in == "table":  # of files, a worker that was overtaken at once is told that it lost
        assert len(won) == sum(last.values())
        assert {row["shard_id"]: row["number"] for row in table.read().to_pylist()} == last


@pytest.mark.parametrize("name", ["", "a/b", "..", 7, "x" * 101])
def test_names_that_are_no_names_are_refused(tmp_path: Path, name: Any) -> None:
    table = made(tmp_path)
    with pytest.raises(StreamParameterError):
        table.follow(name, print)


def test_a_name_of_a_table_that_is_not_there_makes_no_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(tmp_path)
    monkeypatch.chdir(tmp_path)
    for name in ("db.tpyo", "d.nope"):
        with pytest.raises(NotFoundError, match="create_table") as told:
            table.follow("one", print, name)
        assert f"./{name}" in str(told.value)
        with pytest.raises(NotFoundError, match=name):
            table.followers(name)
        with pytest.raises(NotFoundError, match=name):  # a table that was opened by its path
            mg.table(table.path).followers(name)
        assert not (tmp_path / name).exists()
    assert [one.done for one in table.followers("./d.nope")] == [False] * 4

"""Turns: one writer at a time where the store has locks, and nobody waits for long for one that does not go on."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.process import BaseProcess
from pathlib import Path

import pyarrow as pa
import pytest

import merganser as mg
from merganser.commit.turns import take_turn
from merganser.storage.local import LocalStorage

_context = multiprocessing.get_context("forkserver")


@pytest.fixture
def table(tmp_path: Path) -> mg.Table:
    catalog = mg.catalog(str(tmp_path), options={"local.sync": "false"})
    catalog.create_database("db")
    table = catalog.create_table("db.t", {"k": "INT", "v": "INT"}, primary_key=["k"], options={"bucket": "1"})
    table.write(_rows(0))
    return table


def _rows(v: int) -> pa.Table:
    return pa.table({"k": pa.array(range(10), pa.int32()), "v": pa.array([v] * 10, pa.int32())})


def _hold(directory: str, held: str) -> None:
    release = LocalStorage().try_lock(directory)
    assert release is not None
    Path(held).touch()
    time.sleep(60)


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[Callable[[str], BaseProcess]]:
    """Start a process that takes the lock of a directory and keeps it."""
    started: list[BaseProcess] = []

    def start(directory: str) -> BaseProcess:
        held = tmp_path / "held"
        process = _context.Process(target=_hold, args=(directory, str(held)))
        process.start()
        started.append(process)
        while not held.exists():
            time.sleep(0.01)
        return process

    yield start
    for process in started:
        process.kill()
        process.join()


def test_a_lock_has_one_holder(table: mg.Table) -> None:
    storage, directory = table.env.storage, table.definition.paths.snapshot_directory
    release = storage.try_lock(directory)
    assert release is not None
    assert storage.try_lock(directory) is None
    with ThreadPoolExecutor(1) as other_thread:
        assert other_thread.submit(storage.try_lock, directory).result() is None
    release()
    again = storage.try_lock(directory)
    assert again is not None
    again()


def test_a_forked_process_keeps_no_lock_that_its_parent_released(table: mg.Table) -> None:
    directory = table.definition.paths.snapshot_directory
    release = table.env.storage.try_lock(directory)
    assert release is not None
    child = os.fork()
    if not child:
        time.sleep(30)
        os._exit(0)
    try:
        release()
        again = table.env.storage.try_lock(directory)
        assert again is not None
        again()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_the_lock_of_a_killed_writer_is_free(
    table: mg.Table, holder: Callable[[str], BaseProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("merganser.commit.turns._QUEUE_S", 60)
    process = holder(table.definition.paths.snapshot_directory)
    threading.Timer(0.3, process.kill).start()
    begun = time.perf_counter()
    table.write(_rows(1))
    assert time.perf_counter() - begun < 30
    assert {row["v"] for row in table.read().to_pylist()} == {1}


def test_a_writer_does_not_wait_for_ever_for_one_that_stopped(
    table: mg.Table, holder: Callable[[str], BaseProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("merganser.commit.turns._QUEUE_S", 0.05)
    holder(table.definition.paths.snapshot_directory)
    table.write(_rows(1))
    assert {row["v"] for row in table.read().to_pylist()} == {1}


def test_writers_that_wait_for_their_turn_lose_no_attempt_and_write_no_file_twice(table: mg.Table) -> None:
    """Every commit names the file of its first flush, so nothing was renumbered."""

    def write(v: int) -> int:
        mine = mg.table(table.path, options={"write-only": "true", "local.sync": "false"})
        for _ in range(5):
            snapshot = mine.write(_rows(v))
            assert snapshot is not None
            assert snapshot.metrics.attempts == 1
            assert "renumber" not in snapshot.metrics.seconds
        return snapshot.id

    with ThreadPoolExecutor(4) as pool:
        assert max(pool.map(write, range(4))) == 21


def test_a_failed_write_gives_its_turn_back(table: mg.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("merganser.write.buffer.WrittenBuckets.take_sequences", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        table.write(_rows(1))
    monkeypatch.undo()
    with take_turn(table.definition, table.env):
        assert table.env.storage.try_lock(table.definition.paths.snapshot_directory) is None


def test_a_bucket_that_another_writer_compacts_is_left_to_it(table: mg.Table) -> None:
    [split] = table.read().plan().splits
    release = table.env.storage.try_lock(f"{table.path}/bucket-{split.bucket}")
    assert release is not None
    for v in range(10):
        table.write(_rows(v))
    assert {snapshot.commit_kind for snapshot in table.snapshots()} == {"APPEND"}
    assert len(table.files()) == 11
    release()
    table.write(_rows(11))
    assert len(table.files()) < 3


def test_many_files_are_compacted_even_if_another_writer_seems_to_be_at_it(
    table: mg.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("merganser.upkeep.compact_table._FILES_MAX", 8)
    release = table.env.storage.try_lock(f"{table.path}/bucket-0")
    assert release is not None
    for v in range(10):
        table.write(_rows(v))
    assert len(table.files()) < 8
    release()

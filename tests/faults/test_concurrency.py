"""Writers that know nothing of each other: processes, threads, twins, processes that are killed. The ledger of rows is
exact, whoever commits between whichever two calls of another."""

from __future__ import annotations

import itertools
import multiprocessing
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import merganser as mg
from merganser.catalogs.catalog import Catalog
from merganser.errors import ConflictError, MerganserError, NotFoundError
from merganser.meta.snapshot import COMPACT, OVERWRITE, Snapshot
from merganser.scan.read import read_split
from merganser.storage.memory import MemoryStorage
from merganser.storage.protocol import Entries, Sink, Storage
from merganser.write.session import WriteSession
from tests.kit.builders import catalog_over, contents, memory_with

WRITERS = 6
COMMITS = 5
ROWS = 7
FAST = {"local.sync": "false"}
PATIENT = {"commit.max-retries": "100", "commit.max-retry-wait": "50 ms"}
_names = itertools.count()


def _processes() -> Any:
    """Return a way to start processes that have the package imported already."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pandas", "pytest", "tests.faults.test_concurrency"])
    return context


def _table(path: Path, **how: Any) -> mg.Table:
    catalog = mg.catalog(str(path), options=FAST)
    catalog.create_database("db", if_not_exists=True)
    options = {**PATIENT, **how.pop("options", {})}
    return catalog.create_table("db.t", {"writer": "INT", "n": "INT"}, options=options, **how)


def _open(path: Path) -> mg.Table:
    return mg.catalog(str(path), options=FAST).table("db.t")


def _batch(writer: int, commit: int) -> list[dict[str, int]]:
    return [{"writer": writer, "n": commit * ROWS + i} for i in range(ROWS)]


def _commit_all(path: Path, writer: int) -> None:
    table = _open(path)
    for commit in range(COMMITS):
        table.write(_batch(writer, commit), commit_user=f"writer-{writer}", identifier=commit)


def _ledger(table: mg.Table) -> list[tuple[int, int]]:
    return sorted((row["writer"], row["n"]) for row in table.read().to_pylist())


def _writes(table: mg.Table) -> list[Snapshot]:
    """Return the snapshots of a table but those of the compactions beside its writes."""
    return [snapshot for snapshot in table.snapshots() if snapshot.commit_kind != COMPACT]


WHOLE = [(writer, n) for writer in range(WRITERS) for n in range(COMMITS * ROWS)]


def _check_whole(path: Path) -> None:
    table = _open(path)
    assert _ledger(table) == WHOLE
    snapshots = _writes(table)
    assert len(snapshots) == WRITERS * COMMITS
    assert len({(s.commit_user, s.commit_identifier) for s in snapshots}) == len(snapshots)
    assert [s.id for s in table.snapshots()] == list(range(1, len(table.snapshots()) + 1))
    assert table.snapshots()[-1].total_record_count == len(WHOLE)


@pytest.mark.campaign(1 / 2)
@pytest.mark.parametrize("keyed", [False, True])
def test_rows_of_many_processes_are_all_there_once(keyed: bool, tmp_path: Path) -> None:
    how: dict[str, Any] = {"primary_key": ["writer", "n"], "options": {"bucket": "2"}} if keyed else {}
    _table(tmp_path, **how)
    context = _processes()
    workers = [context.Process(target=_commit_all, args=(tmp_path, writer)) for writer in range(WRITERS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    _check_whole(tmp_path)


def test_rows_of_many_threads_are_all_there_once(tmp_path: Path) -> None:
    table = _table(tmp_path)
    with ThreadPoolExecutor(WRITERS) as pool:
        for done in [pool.submit(_commit_all, tmp_path, writer) for writer in range(WRITERS // 2)]:
            done.result()
        shared = [pool.submit(_commit_on, table, writer) for writer in range(WRITERS // 2, WRITERS)]
        for done in shared:
            done.result()
    _check_whole(tmp_path)


def _commit_on(table: mg.Table, writer: int) -> None:
    for commit in range(COMMITS):
        table.write(_batch(writer, commit), commit_user=f"writer-{writer}", identifier=commit)


def _write_same(path: Path, barrier: Any) -> None:
    table = _open(path)
    for commit in range(COMMITS):
        barrier.wait(30)
        table.write(_batch(0, commit), commit_user="twin", identifier=commit)


def test_twins_with_the_same_user_and_identifiers_apply_each_commit_once(tmp_path: Path) -> None:
    _table(tmp_path)
    context = _processes()
    barrier = context.Barrier(3)
    workers = [context.Process(target=_write_same, args=(tmp_path, barrier)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    table = _open(tmp_path)
    assert [s.commit_identifier for s in _writes(table)] == list(range(COMMITS))
    assert _ledger(table) == [(0, n) for n in range(COMMITS * ROWS)]


def test_overwrites_racing_with_appends_leave_what_came_after_the_last_overwrite(tmp_path: Path) -> None:
    _table(tmp_path)
    with ThreadPoolExecutor(4) as pool:
        appends = [pool.submit(_commit_all, tmp_path, writer) for writer in range(3)]
        overwrites = [pool.submit(_open(tmp_path).write, [{"writer": 9, "n": n}], overwrite={}) for n in range(4)]
        for done in [*appends, *overwrites]:
            done.result()
    table = _open(tmp_path)
    snapshots = _writes(table)
    last = max(s.id for s in snapshots if s.commit_kind == OVERWRITE)
    after = [s for s in snapshots if s.id > last]
    expected = table.read(snapshot=last).to_pylist()
    assert len(expected) == 1
    for snapshot in after:
        expected += _batch(int(snapshot.commit_user.removeprefix("writer-")), snapshot.commit_identifier)
    assert _ledger(table) == sorted((row["writer"], row["n"]) for row in expected)
    assert len(snapshots) == 3 * COMMITS + 4


# killed in the middle


def _commit_until_killed(path: Path, started: Any, warm_up: int) -> None:
    table = _open(path)
    latest = table.latest_snapshot()
    identifier = 0 if latest is None else latest.commit_identifier  # the last one again: it must not count twice
    for number in itertools.count(identifier):
        if number == identifier + warm_up:
            started.set()
        table.write(_batch(0, number), commit_user="job", identifier=number)


def test_a_process_killed_at_any_moment_leaves_whole_commits(tmp_path: Path) -> None:
    _table(tmp_path, options={"manifest.merge-min-count": "3"})
    context = _processes()
    rng = random.Random(20)
    done = 0
    for kill in range(20):
        started = context.Event()
        worker = context.Process(target=_commit_until_killed, args=(tmp_path, started, kill % 3))
        worker.start()
        started.wait(30)
        worker.join(rng.uniform(0, 0.06))
        worker.kill()
        worker.join(30)
        table = _open(tmp_path)
        snapshots = _writes(table)
        assert [s.commit_identifier for s in snapshots] == list(range(len(snapshots)))
        assert _ledger(table) == [(0, n) for n in range(len(snapshots) * ROWS)]
        assert len(snapshots) >= done
        done = len(snapshots)
    assert done > 0


# somebody commits between two calls


class Interrupted:
    """A storage that lets somebody else do something just before call n.

    Args:
        inner: where the bytes live.
        call: n, counted from 1.
        other: what the other one does, on `inner`.
    """

    def __init__(self, inner: Storage, call: int, other: Callable[[Storage], object]) -> None:
        self.inner = inner
        self.left = call
        self._other = other
        self._busy = False

    @property
    def is_near(self) -> bool:
        return self.inner.is_near

    def _arrive(self) -> Storage:
        self.left -= 1
        if self.left == 0 and not self._busy:
            self._busy = True
            self._other(self.inner)
        return self.inner

    def read(self, path: str) -> bytes:
        return self._arrive().read(path)

    def open(self, path: str) -> pa.NativeFile:
        return self._arrive().open(path)

    def exists(self, path: str) -> bool:
        return self._arrive().exists(path)

    def list(self, path: str) -> Entries:
        return self._arrive().list(path)

    def create(self, path: str, data: bytes) -> None:
        self._arrive().create(path, data)

    def replace(self, path: str, data: bytes, *, durable: bool = False) -> None:
        self._arrive().replace(path, data, durable=durable)

    def writer(self, path: str) -> Sink:
        return self._arrive().writer(path)

    def delete(self, paths: Any) -> None:
        self._arrive().delete(paths)

    def uncache(self, paths: Any) -> None:
        self.inner.uncache(paths)

    def try_lock(self, directory: str) -> Callable[[], None] | None:
        return self.inner.try_lock(directory)

    def delete_tree(self, path: str) -> None:
        self._arrive().delete_tree(path)

    def delete_empty(self, paths: Any) -> None:
        self._arrive().delete_empty(paths)

    def move_tree(self, source: str, target: str) -> None:
        self._arrive().move_tree(source, target)


def _keyed_files() -> dict[str, bytes]:
    catalog = catalog_over(memory_with({}, f"race-{next(_names)}"))
    catalog.create_database("db")
    options = {"bucket": "1", "manifest.merge-min-count": "2"}
    table = catalog.create_table("db.t", {"k": "INT", "v": "STRING"}, primary_key=["k"], options=options)
    table.write([{"k": 1, "v": "first"}, {"k": 2, "v": "first"}])
    return contents(catalog.env.storage)


def _at_every_call(
    work: Callable[[Catalog], Any], other: Callable[[Catalog], Any], check: Callable[[Catalog, Any], None]
) -> int:
    """Run `work` while `other` strikes before its first call, its second, and so on; `check` what is left."""
    files = _keyed_files()
    name = f"race-{next(_names)}"
    for call in itertools.count(1):
        storage = memory_with(files, name)
        interrupted = Interrupted(storage, call, lambda inner: other(catalog_over(inner)))
        try:
            outcome = work(catalog_over(interrupted))
        except MerganserError as error:
            outcome = error
        if interrupted.left > 0:
            return call
        try:
            check(catalog_over(storage), outcome)
        except AssertionError as error:
            error.add_note(f"the other one struck before call {call}")
            raise
    raise AssertionError("the work never ends")


def _write_v(v: str, **how: Any) -> Callable[[Catalog], Any]:
    return lambda catalog: catalog.table("db.t").write([{"k": 1, "v": v}], **how)


def _rows(catalog: Catalog) -> dict[int, str]:
    rows = catalog.table("db.t").read().to_pylist()
    found = {row["k"]: row["v"] for row in rows}
    assert len(found) == len(rows)
    return found


def test_a_twin_that_commits_between_any_two_calls_is_noticed() -> None:
    write = _write_v("once", commit_user="twin", identifier=5)

    def check(catalog: Catalog, outcome: Any) -> None:
        assert outcome.commit_identifier == 5
        assert [s.commit_user for s in catalog.table("db.t").snapshots()].count("twin") == 1
        assert _rows(catalog) == {1: "once", 2: "first"}

    assert _at_every_call(write, write, check) > 15


def test_an_append_between_any_two_calls_of_another_loses_nothing() -> None:
    def other(catalog: Catalog) -> None:
        catalog.table("db.t").write([{"k": 7, "v": "other"}])

    def check(catalog: Catalog, outcome: Any) -> None:
        assert outcome.id in (2, 3)
        assert _rows(catalog) == {1: "mine", 2: "first", 7: "other"}

    _at_every_call(_write_v("mine"), other, check)


def test_an_append_between_any_two_calls_of_an_overwrite_comes_before_or_after_it() -> None:
    def other(catalog: Catalog) -> None:
        catalog.table("db.t").write([{"k": 7, "v": "other"}])

    def check(catalog: Catalog, outcome: Any) -> None:
        assert _rows(catalog) == ({1: "mine", 7: "other"} if outcome.id == 2 else {1: "mine"})

    _at_every_call(_write_v("mine", overwrite={}), other, check)


def test_an_overwrite_between_any_two_calls_of_an_append_comes_before_or_after_it() -> None:
    def other(catalog: Catalog) -> None:
        catalog.table("db.t").write([{"k": 7, "v": "other"}], overwrite={})

    def check(catalog: Catalog, outcome: Any) -> None:
        assert _rows(catalog) == ({7: "other"} if outcome.id == 2 else {1: "mine", 7: "other"})

    _at_every_call(_write_v("mine"), other, check)


def test_a_writer_whose_table_is_dropped_says_so_and_a_new_table_is_clean() -> None:
    def check(catalog: Catalog, outcome: Any) -> None:
        assert "t" not in catalog.list_tables("db")
        if isinstance(outcome, MerganserError):
            assert isinstance(outcome, NotFoundError | ConflictError), repr(outcome)
        catalog.drop_table("db.t", if_exists=True)
        assert catalog.create_table("db.t", {"k": "INT"}).read().to_pylist() == []

    _at_every_call(_write_v("mine"), lambda catalog: catalog.drop_table("db.t"), check)


def test_a_writer_whose_table_is_made_anew_does_not_write_into_the_new_one() -> None:
    def other(catalog: Catalog) -> None:
        catalog.drop_table("db.t")
        catalog.create_table("db.t", {"other": "STRING"}).write([{"other": "x"}])

    def check(catalog: Catalog, outcome: Any) -> None:
        assert catalog.table("db.t").read().to_pylist() == [{"other": "x"}]

    files = _keyed_files()
    for call in itertools.count(1):
        storage = memory_with(files, f"race-{next(_names)}")
        table = catalog_over(storage).table("db.t")
        interrupted = Interrupted(storage, call, lambda inner: other(catalog_over(inner)))
        table.env.storage = interrupted
        try:
            outcome: Any = table.write([{"k": 1, "v": "mine"}])
        except MerganserError as error:
            outcome = error
        if interrupted.left > 0:
            return
        if isinstance(outcome, MerganserError):
            assert isinstance(outcome, ConflictError | NotFoundError), repr(outcome)
            check(catalog_over(storage), outcome)


def test_a_catalog_sees_a_table_that_another_process_made_anew(tmp_path: Path) -> None:
    here, there = (mg.catalog(str(tmp_path), options=FAST) for _ in range(2))
    here.create_database("db")
    here.create_table("db.t", {"a": "INT"}).write([{"a": 1}])
    assert here.table("db.t").read().to_pylist() == [{"a": 1}]
    there.drop_table("db.t")
    there.create_table("db.t", {"b": "STRING"}).write([{"b": "x"}])
    assert here.table("db.t").read().to_pylist() == [{"b": "x"}]


# sequence numbers


def _versions(catalog: Catalog, *writes: tuple[list[tuple[int, str]], list[str] | None]) -> mg.Table:
    """Write as several writers that all began before the first of them committed."""
    table = catalog.table("db.t")
    sessions = [WriteSession(table.definition, catalog.env) for _ in writes]
    for session, (rows, kinds) in zip(sessions, writes, strict=True):
        data = pa.table({"k": pa.array([k for k, _ in rows], pa.int32()), "v": [v for _, v in rows]})
        codes = None if kinds is None else pa.array([("+I", "-U", "+U", "-D").index(kind) for kind in kinds], pa.int8())
        session.write(data, codes, held=True)
    for session in sessions:
        session.commit()
    return table


def _fresh() -> Catalog:
    return catalog_over(memory_with(_keyed_files(), f"race-{next(_names)}"))


def test_of_writers_that_overlap_in_time_the_later_commit_wins() -> None:
    catalog = _fresh()
    _versions(catalog, ([(1, "a"), (2, "a")], None), ([(1, "b"), (2, "b")], None), ([(2, "c")], None))
    assert _rows(catalog) == {1: "b", 2: "c"}


@pytest.mark.parametrize(("order", "there"), [(("+I", "-D"), False), (("-D", "+I"), True)])
def test_of_writers_that_overlap_in_time_the_later_kind_counts(order: tuple[str, str], there: bool) -> None:
    catalog = _fresh()
    _versions(catalog, ([(5, "a")], [order[0]]), ([(5, "b")], [order[1]]))
    assert (5 in _rows(catalog)) == there


@pytest.fixture
def equal_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let writers keep the numbers that they took when they began, as those of other engines do."""
    monkeypatch.setattr("merganser.write.transaction.is_numbered", lambda table: False)
    monkeypatch.setattr("merganser.write.buffer.SMALL_BYTES", 0)


@pytest.mark.usefixtures("equal_numbers")
def test_of_equal_sequence_numbers_the_later_commit_wins() -> None:
    catalog = _fresh()
    _versions(catalog, ([(1, "a"), (2, "a")], None), ([(1, "b"), (2, "b")], None), ([(2, "c")], None))
    # 2 has the numbers 3, 3 and 2: the one of the last writer is the smallest
    assert _rows(catalog) == {1: "b", 2: "b"}


@pytest.mark.usefixtures("equal_numbers")
def test_of_equal_sequence_numbers_the_later_commit_wins_whatever_the_files_are_like() -> None:
    """Neither the smaller first key nor the larger last number of a file counts."""
    catalog = _fresh()
    _versions(catalog, ([(5, "a"), (6, "a"), (7, "a")], None), ([(5, "b"), (9, "b")], None))
    assert _rows(catalog) == {1: "first", 2: "first", 5: "b", 6: "a", 7: "a", 9: "b"}
    catalog = _fresh()
    _versions(catalog, ([(5, "a"), (9, "a")], None), ([(5, "b"), (6, "b"), (7, "b")], None))
    assert _rows(catalog)[5] == "b"
    catalog = _fresh()
    _versions(catalog, ([(5, "a"), (9, "a")], None), ([(5, "b"), (0, "b")], None))
    assert _rows(catalog)[5] == "b"


@pytest.mark.usefixtures("equal_numbers")
@pytest.mark.parametrize("order", [("+I", "-D"), ("-D", "+I")])
def test_of_equal_sequence_numbers_an_addition_wins_over_a_retraction(order: tuple[str, str]) -> None:
    catalog = _fresh()
    _versions(catalog, ([(5, "a")], [order[0]]), ([(5, "b")], [order[1]]))
    assert 5 in _rows(catalog)


@pytest.mark.usefixtures("equal_numbers")
def test_two_reads_of_equal_sequence_numbers_agree_in_windows_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = _fresh()
    rng = random.Random(3)
    batches = [([(rng.randrange(40), f"{writer}.{i}") for i in range(30)], None) for writer in range(5)]
    table = _versions(catalog, *batches)
    expected = _rows(catalog)
    for rows in (1, 3, 17, 1000):
        monkeypatch.setattr("merganser.lsm.section.WINDOW_ROWS", rows)
        assert _rows(catalog) == expected
    plan = table.read().plan()
    for split in plan.splits:
        again = pa.concat_tables(read_split(plan.job, split, catalog.env.storage)).to_pylist()
        assert {row["k"]: row["v"] for row in again} == expected


def test_a_writer_that_stays_open_continues_after_rows_that_others_committed() -> None:
    catalog = _fresh()
    with catalog.table("db.t").writer() as long_lived:
        long_lived.write([{"k": 1, "v": "a"}])
        long_lived.commit()
        for v in ("b", "c", "d"):
            catalog.table("db.t").write([{"k": 1, "v": v}])
        long_lived.write([{"k": 1, "v": "last"}])
        long_lived.commit()
    assert _rows(catalog) == {1: "last", 2: "first"}


def test_threads_reading_while_others_commit_see_whole_commits(tmp_path: Path) -> None:
    table = _table(tmp_path)
    stop = threading.Event()
    seen: list[np.ndarray] = []

    def read() -> None:
        while not stop.is_set():
            seen.append(np.sort(_open(tmp_path).read(columns=["n"]).to_arrow().column("n").to_numpy()))

    with ThreadPoolExecutor(2) as pool:
        reader = pool.submit(read)
        for commit in range(12):
            table.write(_batch(0, commit))
        stop.set()
        reader.result()
    assert all(len(n) % ROWS == 0 and (n == np.arange(len(n))).all() for n in seen)


def test_memory_storage_names_are_not_shared_between_tests() -> None:
    assert MemoryStorage(f"race-{next(_names)}").list("memory://tests") == []

"""Expiry, orphans and partitions by age under faults and beside others: nothing live goes, what is left is found."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable
from typing import Any

import pytest

import merganser as mg
from merganser.errors import CommitUnknownError, ExpiredError
from merganser.storage.local import LocalStorage
from merganser.storage.protocol import Storage
from tests.faults import STEP
from tests.faults.test_concurrency import Interrupted
from tests.kit.builders import catalog_over, contents, memory_with
from tests.kit.faulty import Fault, Outcome, run_every

FUTURE = "2100-01-01"
LONG_STEP = 20 if STEP > 1 else 1
"""Tests whose checks read every snapshot strike half as many calls; each pair of tests strikes others."""
OPTIONS = {"bucket": "1", "write-only": "true", "manifest.merge-min-count": "3"}
_names = itertools.count()


def _rows(scan: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in scan.to_pylist())


def _new(**options: str) -> mg.Table:
    catalog = catalog_over(memory_with({}, f"expiry-{next(_names)}"))
    catalog.create_database("db")
    return catalog.create_table(
        "db.t",
        {"p": "STRING", "k": "INT", "v": "STRING"},
        primary_key=["p", "k"],
        partition_by=["p"],
        options={**OPTIONS, **options},
    )


def _write(table: mg.Table, v: str) -> None:
    table.write([{"p": "2020-01-01", "k": 1, "v": v}, {"p": "2090-01-01", "k": 1, "v": v}])


def _history(**options: str) -> dict[str, bytes]:
    """Return the files of a table with tags and a branch, whose compactions have replaced many files."""
    table = _new(**options)
    for i in range(2):
        _write(table, str(i))
    table.compact(full=True)
    table.tags.create("three")
    _write(table, "tagged")
    table.tags.create("four")
    table.branches.create("side", tag="four")
    side = table.branch("side")
    _write(side, "side")
    side.compact(full=True)
    table.compact(full=True)
    _write(table, "late")
    return contents(table.env.storage)


def _again(storage: Storage) -> mg.Table:
    return catalog_over(storage).table("db.t")


def _read(storage: Storage) -> dict[tuple[str, str], list[tuple[Any, ...]]]:
    """Return all that can be read, by line and by snapshot or tag."""
    table = _again(storage)
    found = {}
    for line in (table, table.branch("side")):
        for snapshot in line.snapshots():
            found[line.definition.branch, str(snapshot.id)] = _rows(line.read(snapshot=snapshot.id))
        for tag in line.tags.list():
            found[line.definition.branch, tag.name] = _rows(line.read(tag=tag.name))
        found[line.definition.branch, "newest"] = _rows(line.read())
    return found


WORK: dict[str, Callable[[mg.Table], Any]] = {
    "expire": lambda table: table.expire(retain_max=2),
    "expire a branch": lambda table: table.branch("side").expire(retain_max=1),
    "drop a tag": lambda table: table.tags.drop("three"),
    "remove orphans": lambda table: table.remove_orphans(older_than=FUTURE, dry_run=False),
}


@pytest.mark.campaign(1 / 6)
@pytest.mark.parametrize("what", WORK)
@pytest.mark.parametrize("options", [{}, {"changelog.num-retained.max": "11", "snapshot.num-retained.max": "10"}])
def test_whatever_call_fails_everything_that_is_left_reads_as_it_did(what: str, options: dict[str, str]) -> None:
    files = _history(**options)
    if what == "drop a tag":  # whose snapshot has expired
        storage = memory_with(files, f"expiry-{next(_names)}")
        _again(storage).expire(retain_max=1)
        files = contents(storage)
    before = _read(memory_with(files, f"expiry-{next(_names)}"))
    name = f"expiry-{next(_names)}"

    def check(storage: Storage, outcome: Outcome[Any]) -> None:
        found = _read(storage)
        assert found == {key: before[key] for key in found}
        assert {("main", "newest"), ("side", "newest"), ("main", "four"), ("side", "four")} <= set(found)
        with contextlib.suppress(LookupError):  # a tag that was dropped
            WORK[what](_again(storage))
        _again(storage).remove_orphans(older_than=FUTURE, dry_run=False)
        assert _again(storage).remove_orphans(older_than=FUTURE) == ()
        found = _read(storage)
        assert found == {key: before[key] for key in found}

    runs = run_every(
        lambda: memory_with(files, name),
        lambda faulty: WORK[what](_again(faulty)),
        check,
        faults=[Fault.FAIL, Fault.STOP],
        first=1 + (list(WORK).index(what) + 4 * bool(options)) % LONG_STEP,
        step=LONG_STEP,
    )
    assert runs > 20 // LONG_STEP


@pytest.mark.parametrize("fault", [Fault.FAIL, Fault.STOP, Fault.LOSE_REPLY])
def test_whatever_call_fails_old_partitions_are_dropped_whole_or_not(fault: Fault) -> None:
    files = _history(**{"partition.expiration-time": "7 d"})
    before = _read(memory_with(files, f"expiry-{next(_names)}"))
    name = f"expiry-{next(_names)}"
    after = [row for row in before["main", "newest"] if row[0] > "2080"]

    def check(storage: Storage, outcome: Outcome[Any]) -> None:
        assert _rows(_again(storage).read()) in (before["main", "newest"], after)
        _again(storage).expire_partitions()
        assert _rows(_again(storage).read()) == after

    run_every(
        lambda: memory_with(files, name),
        lambda faulty: _again(faulty).expire_partitions(),
        check,
        faults=[fault],
        step=STEP,
    )


OTHERS: dict[str, Callable[[mg.Table], Any]] = {
    "a tag is made": lambda table: table.tags.create("new", snapshot=5),
    "the oldest is tagged": lambda table: table.tags.create("new", snapshot=1),
    "a tag is dropped": lambda table: table.tags.drop("three"),
    "a branch is made": lambda table: table.branches.create("new", tag="three"),
    "it is rolled back": lambda table: table.rollback(snapshot=5),
    "it is rolled back to what expires": lambda table: table.rollback(snapshot=2),
    "it is rolled back to a tag": lambda table: table.rollback(tag="four"),
    "another expirer runs": lambda table: table.expire(retain_max=3),
    "a further expirer runs": lambda table: table.expire(retain_max=1),
    "it is compacted": lambda table: table.compact(full=True),
    "it is written": lambda table: _write(table, "new"),
}


@pytest.mark.campaign(1 / 6)
@pytest.mark.parametrize("other", OTHERS)
def test_whatever_others_do_between_any_two_calls_of_expiry_all_that_is_left_can_be_read(other: str) -> None:
    files = _history()
    before = _read(memory_with(files, f"expiry-{next(_names)}"))
    name = f"expiry-{next(_names)}"
    for call in itertools.count(1 + list(OTHERS).index(other) % LONG_STEP, LONG_STEP):
        storage = memory_with(files, name)
        outcome: list[Any] = []

        def act(inner: Storage, outcome: list[Any] = outcome) -> None:
            with contextlib.suppress(ExpiredError, LookupError):
                outcome.append(OTHERS[other](_again(inner)))

        interrupted = Interrupted(storage, call, act)
        try:
            _again(interrupted).expire(retain_max=2)
            if interrupted.left > 0:
                assert call > 15
                return
            _check_left(storage, before)
            _again(storage).remove_orphans(older_than=FUTURE, dry_run=False)
            _check_left(storage, before)
        except Exception as error:
            error.add_note(f"struck before call {call}")
            raise


TAGS: dict[str, Callable[[mg.Table], Any]] = {
    "all but the newest expires": lambda table: table.expire(retain_max=1),
    "the same tag is dropped": lambda table: table.tags.drop("four"),
    "the tag below is dropped": lambda table: table.tags.drop("three"),
}


@pytest.mark.campaign(1 / 4)
@pytest.mark.parametrize("other", TAGS)
def test_whatever_others_remove_between_any_two_calls_a_tag_is_dropped_and_what_others_need_stays(other: str) -> None:
    table = _again(memory_with(_history(), f"expiry-{next(_names)}"))
    table.expire(retain_max=2)
    files = contents(table.env.storage)
    before = _read(table.env.storage)
    name = f"expiry-{next(_names)}"
    for call in itertools.count(1 + list(TAGS).index(other) % STEP, STEP):
        storage = memory_with(files, name)
        interrupted = Interrupted(storage, call, lambda inner: TAGS[other](_again(inner)))
        try:
            with contextlib.suppress(LookupError):  # somebody was first
                _again(interrupted).tags.drop("four")
            assert "four" not in [tag.name for tag in _again(storage).tags.list()]
            found = _read(storage)
            assert found == {key: before[key] for key in found}
            assert interrupted.left > 0 or _again(storage).check() == ()
        except Exception as error:
            error.add_note(f"struck before call {call}")
            raise
        if interrupted.left > 0:
            assert call > 8
            return


def test_expirers_of_several_processes_at_once_do_not_disturb_one_another(tmp_path: Any) -> None:
    from merganser.catalogs.catalog import open_catalog
    from merganser.catalogs.filesystem import FileSystem
    from merganser.storage.env import Env

    def opened() -> mg.Table:
        return open_catalog(FileSystem(str(tmp_path), Env(LocalStorage(sync=False), threads=1))).table("db.t")

    catalog = open_catalog(FileSystem(str(tmp_path), Env(LocalStorage(sync=False))))
    catalog.create_database("db")
    catalog.create_table("db.t", {"k": "INT"}, primary_key=["k"], options={"bucket": "1", "write-only": "true"})
    errors: list[BaseException] = []

    def expire(kept: int, start: threading.Barrier) -> None:
        table = opened()
        start.wait()
        try:
            table.expire(retain_max=kept)
        except BaseException as error:
            errors.append(error)

    for turn in range(5):
        writer = opened()
        for k in range(8):
            writer.write([{"k": 100 * turn + k}])
        writer.compact(full=True)
        start = threading.Barrier(4)
        threads = [threading.Thread(target=expire, args=(kept, start)) for kept in (4, 3, 2, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        assert len(opened().snapshots()) == 1
        assert len(_rows(opened().read())) == 8 * (turn + 1)
    opened().remove_orphans(older_than=FUTURE, dry_run=False)
    assert opened().check() == ()


def test_a_rollback_and_a_commit_while_expiry_makes_its_plan_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    from merganser.upkeep.needed_files import NeededFiles

    table = _new()
    for i in range(6):
        _write(table, str(i))
    table.compact(full=True)
    storage = table.env.storage
    metadata = NeededFiles.metadata
    pending = [lambda: (_again(storage).rollback(snapshot=3), _write(_again(storage), "new"))]

    def overtaken(needed: NeededFiles, snapshot: Any) -> set[str]:
        if pending:
            pending.pop()()
        return metadata(needed, snapshot)

    monkeypatch.setattr(NeededFiles, "metadata", overtaken)
    assert table.expire(retain_max=1) == ()
    assert pending == []
    assert [s.id for s in _again(storage).snapshots()] == [1, 2, 3, 4]
    assert {v for _, _, v in _rows(_again(storage).read(snapshot=3))} == {"2"}
    assert {v for _, _, v in _rows(_again(storage).read())} == {"new"}
    assert _again(storage).check() == ()


def _check_left(storage: Storage, before: dict[tuple[str, str], list[tuple[Any, ...]]]) -> None:
    """Look whether all that is left can be read, and what was there before as it was."""
    assert _again(storage).snapshots()
    for (line, name), rows in _read(storage).items():
        if (
            name != "newest" and (line, name) in before and int(name) < 9
            if name.isdigit()
            else name in ("three", "four")
        ):
            assert rows == before[line, name], (line, name)


def test_a_commit_whose_id_was_used_and_has_expired_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from merganser.meta.snapshots import SnapshotStore

    table = _new()
    slow = _again(table.env.storage)
    create = SnapshotStore.create
    left = [True]

    def overtaken(store: SnapshotStore, snapshot: Any) -> Any:
        if store.env is slow.env and left and left.pop():
            for i in range(4):
                table.write([{"p": "b", "k": i, "v": "others"}])
            table.expire(retain_max=1)
        return create(store, snapshot)

    monkeypatch.setattr(SnapshotStore, "create", overtaken)
    table.write([{"p": "b", "k": 9, "v": "first"}])
    snapshot = slow.write([{"p": "a", "k": 1, "v": "slow"}], commit_user="slow", identifier=1)
    assert snapshot is not None
    assert snapshot.id == 6
    assert [s.id for s in _again(table.env.storage).snapshots()] == [5, 6]
    assert ("a", 1, "slow") in _rows(_again(table.env.storage).read())


def test_a_commit_that_was_overtaken_and_cannot_be_taken_back_is_not_said_to_stand(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from merganser.errors import StorageError
    from merganser.meta.snapshots import SnapshotStore

    table = _new()
    table.write([{"p": "b", "k": 9, "v": "first"}])
    slow = _again(table.env.storage)
    create, delete = SnapshotStore.create, SnapshotStore.delete
    left = [True]

    def overtaken(store: SnapshotStore, snapshot: Any) -> Any:
        if store.env is slow.env and left and left.pop():
            for i in range(4):
                table.write([{"p": "b", "k": i, "v": "others"}])
            table.expire(retain_max=1)
        return create(store, snapshot)

    def failing(store: SnapshotStore, snapshot_id: int) -> None:
        if store.env is slow.env:
            raise StorageError("the store is away")
        delete(store, snapshot_id)

    monkeypatch.setattr(SnapshotStore, "create", overtaken)
    monkeypatch.setattr(SnapshotStore, "delete", failing)
    with pytest.raises(CommitUnknownError):
        slow.write([{"p": "a", "k": 1, "v": "slow"}], commit_user="slow", identifier=1)
    monkeypatch.undo()
    _again(table.env.storage).write([{"p": "a", "k": 1, "v": "slow"}], commit_user="slow", identifier=1)
    rows = _rows(_again(table.env.storage).read())
    assert [row for row in rows if row[2] == "slow"] == [("a", 1, "slow")]
    assert len(rows) == 6


@pytest.mark.parametrize("count", [2, 3])
def test_a_commit_below_which_all_expires_at_once_is_not_made_twice(
    monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    from merganser.meta.snapshots import SnapshotStore

    table = _new()
    slow = _again(table.env.storage)
    create = SnapshotStore.create
    left = [True]

    def followed(store: SnapshotStore, snapshot: Any) -> Any:
        made = create(store, snapshot)
        if store.env is slow.env and left and left.pop():
            for i in range(count):
                table.write([{"p": "b", "k": i, "v": "others"}])
            table.compact(full=True)
            table.expire(retain_max=count + 1)
        return made

    monkeypatch.setattr(SnapshotStore, "create", followed)
    table.write([{"p": "b", "k": 9, "v": "first"}])
    before = len(table.snapshots())
    slow.write([{"p": "a", "k": 1, "v": "slow"}])
    newest = _again(table.env.storage).snapshots()[-1].id
    assert newest == before + 1 + count + 1
    assert ("a", 1, "slow") in _rows(_again(table.env.storage).read())


def test_writers_compactors_readers_and_expirers_side_by_side(tmp_path: Any) -> None:
    """Every row of every commit is there in the end, and no reader meets half of anything."""
    from merganser.catalogs.catalog import open_catalog
    from merganser.catalogs.filesystem import FileSystem
    from merganser.storage.env import Env

    def opened() -> mg.Table:
        return open_catalog(FileSystem(str(tmp_path), Env(LocalStorage(sync=False), threads=2))).table("db.t")

    first = open_catalog(FileSystem(str(tmp_path), Env(LocalStorage(sync=False))))
    first.create_database("db")
    first.create_table(
        "db.t",
        {"w": "INT", "k": "INT"},
        primary_key=["w", "k"],
        options={"bucket": "1", "write-only": "true", "commit.max-retries": "1000", "commit.max-retry-wait": "20 ms"},
    )
    done = threading.Event()
    errors: list[BaseException] = []

    def run(work: Callable[[], None]) -> threading.Thread:
        def guarded() -> None:
            try:
                work()
            except BaseException as error:
                errors.append(error)
                done.set()

        thread = threading.Thread(target=guarded)
        thread.start()
        return thread

    def writer(number: int) -> None:
        table = opened()
        for k in range(12):
            for _ in range(20):
                try:
                    table.write([{"w": number, "k": k}], commit_user=f"w{number}", identifier=k)
                    break
                except CommitUnknownError:
                    continue

    def loop(work: Callable[[mg.Table], Any]) -> Callable[[], None]:
        def again_and_again() -> None:
            table = opened()
            while not done.is_set():
                work(table)

        return again_and_again

    def compact(table: mg.Table) -> None:
        with contextlib.suppress(mg.errors.ConflictError):
            table.compact(full=True)

    def read(table: mg.Table) -> None:
        with contextlib.suppress(ExpiredError):
            found = _rows(table.read())
            for number in range(3):
                mine = [k for w, k in found if w == number]
                assert mine == list(range(len(mine)))

    writers = [run(lambda number=number: writer(number)) for number in range(3)]  # type: ignore[misc]
    others = [run(loop(compact)), run(loop(read)), run(loop(lambda table: table.expire(retain_max=2)))]
    for thread in writers:
        thread.join()
    done.set()
    for thread in others:
        thread.join()
    assert errors == []
    assert _rows(opened().read()) == [(number, k) for number in range(3) for k in range(12)]
    opened().expire(retain_max=1)
    opened().remove_orphans(older_than=FUTURE, dry_run=False)
    assert _rows(opened().read()) == [(number, k) for number in range(3) for k in range(12)]

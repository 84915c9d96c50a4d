"""Tags, branches, rollbacks and consumers under faults: the table stays readable, and the same call again works."""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import uuid4

import pytest

import merganser as mg
from merganser.errors import AlreadyExistsError, CommitUnknownError, ConflictError, ExpiredError, NotFoundError
from merganser.meta.snapshot import Snapshot
from merganser.meta.snapshots import Seen, SnapshotStore
from merganser.storage.local import LocalStorage
from merganser.storage.protocol import Storage
from tests.faults import run_some
from tests.kit.builders import catalog_over, contents, memory_with
from tests.kit.faulty import Outcome

_names = itertools.count()


def _again(storage: Storage, name: str = "db.t") -> mg.Table:
    return catalog_over(storage).table(name)


def _rows(table: mg.Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.read().to_pylist())


def _state(k: int, v: str) -> dict[str, Any]:
    return {"k": k, "v": v}


def _table() -> mg.Table:
    """A table of four snapshots; snapshot n holds the keys 1 to n."""
    catalog = catalog_over(memory_with({}, f"references-{next(_names)}"))
    catalog.create_database("db")
    table = catalog.create_table("db.t", {"k": "INT", "v": "STRING"}, options={"write-only": "true"})
    for k in range(1, 5):
        table.write([_state(k, "main")])
    return table


STATES = {n: [(k, "main") for k in range(1, n + 1)] for n in range(5)}


def _every(
    files: dict[str, bytes],
    work: Callable[[Storage], Any],
    check: Callable[[Storage, Outcome[Any]], None],
    *,
    copies: bool = False,
) -> int:
    name = f"references-{next(_names)}"
    return run_some(lambda: memory_with(files, name), work, check, copies=copies)


def _readable(table: mg.Table) -> None:
    """Every snapshot and tag that is listed can be read."""
    for snapshot in table.snapshots():
        table.read(snapshot=snapshot.id).to_arrow()
    for tag in table.tags.list():
        table.read(tag=tag.name).to_arrow()
    assert [s.id for s in table.snapshots()] == list(range(table.snapshots()[0].id, table.snapshots()[-1].id + 1))


# every call goes wrong


def test_a_tag_is_whole_or_absent_whichever_call_goes_wrong() -> None:
    table = _table()

    def check(storage: Storage, outcome: Outcome[Any]) -> None:
        table = _again(storage)
        assert _rows(table) == STATES[4]
        if table.tags.list():
            assert _rows_of_tag(table, "v") == STATES[2]
            table.tags.drop("v")
        else:
            assert outcome.error is not None
        table.tags.create("v", snapshot=2)
        assert _rows_of_tag(_again(storage), "v") == STATES[2]

    assert _every(contents(table.env.storage), lambda faulty: _again(faulty).tags.create("v", snapshot=2), check) > 20


def _rows_of_tag(table: mg.Table, name: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.read(tag=name).to_pylist())


def test_dropping_a_tag_takes_nothing_that_is_needed_whichever_call_goes_wrong() -> None:
    table = _table()
    table.tags.create("v", snapshot=1)
    table.tags.create("w", snapshot=2)
    table.compact(full=True)
    newest = table.snapshots()[-1].id
    table.expire(retain_max=1, retain_min=1)
    files = contents(table.env.storage)

    def check(storage: Storage, outcome: Outcome[Any]) -> None:
        table = _again(storage)
        assert _rows(table) == STATES[4]
        assert _rows_of_tag(table, "w") == STATES[2]
        if len(table.tags.list()) == 2:
            assert _rows_of_tag(table, "v") == STATES[1]
            table.tags.drop("v")
        assert [tag.name for tag in table.tags.list()] == ["w"]
        assert _rows_of_tag(table, "w") == STATES[2]
        assert table.snapshots()[-1].id == newest

    assert _every(files, lambda faulty: _again(faulty).tags.drop("v"), check) > 20


@pytest.mark.parametrize("copies", [False, True])
def test_a_branch_is_whole_or_absent_whichever_call_goes_wrong(copies: bool) -> None:
    table = _table()
    table.tags.create("v", snapshot=2)

    def check(storage: Storage, outcome: Outcome[Any]) -> None:
        table = _again(storage)
        assert _rows(table) == STATES[4]
        if not table.branches.list():
            assert outcome.error is not None
            with contextlib.suppress(NotFoundError):  # where there is no rename, half a copy is left to drop
                table.branches.drop("b")
            table.branches.create("b", tag="v")
        branch = _again(storage).branch("b")
        assert _rows(branch) == STATES[2]
        branch.write([_state(9, "branch")])
        assert _rows(_again(storage).branch("b")) == [*STATES[2], (9, "branch")]

    work = lambda faulty: _again(faulty).branches.create("b", tag="v")  # noqa: E731
    assert _every(contents(table.env.storage), work, check, copies=copies) > 40


def _left_by_branch(storage: Storage) -> list[str]:
    """Return the files below `branch`, and those that nothing names, of any age.

    A note that was torn while it was written is left to `remove_orphans`.
    """
    orphans = _again(storage).remove_orphans(older_than=datetime(2999, 1, 1, tzinfo=UTC))
    torn = {path for path in orphans if "/branch/.drop-" in path}
    below = (path for path in contents(storage) if "/branch/" in path)
    return [path for path in (*orphans, *below) if path not in torn]


@pytest.mark.parametrize("recreates", [False, True])
def test_a_branch_is_dropped_by_dropping_it_again_whichever_call_goes_wrong(recreates: bool) -> None:
    table = _table()
    table.tags.create("v", snapshot=2)
    table.branches.create("b", tag="v")
    table.branch("b").write([_state(9, "branch")])

    def check(storage: Storage, outcome: Outcome[Any]) -> None:
        table = _again(storage)
        assert _rows(table) == STATES[4]
        begun = [one for one in table.advice() if one.topic == "branches"]
        if outcome.error is not None and _left_by_branch(storage) and not table.branches.list():
            assert begun
        if recreates and not table.branches.list():
            table.branches.create("b")
        with contextlib.suppress(NotFoundError):
            table.branches.drop("b")
        assert _again(storage).branches.list() == ()
        assert [one for one in table.advice() if one.topic == "branches"] == []
        assert _left_by_branch(storage) == []
        table.branches.create("b")
        assert _rows(_again(storage).branch("b")) == []

    assert _every(contents(table.env.storage), lambda faulty: _again(faulty).branches.drop("b"), check) > 5


def test_a_branch_that_was_set_aside_on_a_disk_is_removed_by_the_next_call(tmp_path: Path) -> None:
    catalog = mg.catalog(tmp_path)
    catalog.create_database("db")
    table = catalog.create_table("db.t", {"k": "INT"})
    for name in ("b", "b.c"):
        table.branches.create(name)
        table.branch(name).write([{"k": 1}])
    home = Path(table.path) / "branch"

    def killed(_: Any, path: str) -> None:
        Path(path).rename(home / f".branch-b.{uuid4()}.tmp")
        raise KeyboardInterrupt

    with patch.object(LocalStorage, "delete_tree", killed), pytest.raises(KeyboardInterrupt):
        table.branches.drop("b")
    other = home / f".branch-b.c.{uuid4()}.tmp"
    other.mkdir()
    assert [one.topic for one in table.advice()] == ["branches"]
    assert [one.name for one in table.branches.list()] == ["b.c"]
    table.branches.drop("b")
    assert sorted(one.name for one in home.iterdir()) == sorted([other.name, "branch-b.c"])
    assert table.remove_orphans(older_than=datetime(2999, 1, 1, tzinfo=UTC)) == ()
    assert table.branch("b.c").read().count() == 1
    with pytest.raises(NotFoundError):
        table.branches.drop("b")


@pytest.mark.parametrize("to", [{"snapshot": 2}, {"tag": "v"}])
def test_a_rollback_leaves_a_state_of_the_table_whichever_call_goes_wrong(to: dict[str, Any]) -> None:
    table = _table()
    table.tags.create("v", snapshot=2)
    table.tags.create("late", snapshot=4)
    table.consumers.set("reader", next_snapshot=5)

    def check(storage: Storage, outcome: Outcome[Any]) -> None:
        table = _again(storage)
        newest = table.snapshots()[-1].id
        assert newest >= 2
        assert _rows(table) == STATES[newest]
        _readable(table)
        if outcome.error is None:
            assert newest == 2
        again = _again(storage)
        again.rollback(**to)
        assert [tag.name for tag in again.tags.list()] == ["v"]
        assert [consumer.next_snapshot for consumer in again.consumers.list()] == [3]
        _again(storage).write([_state(7, "new")])
        assert _rows(_again(storage)) == [*STATES[2], (7, "new")]
        assert [s.id for s in _again(storage).snapshots()] == [1, 2, 3]
        assert table.check() == ()

    assert _every(contents(table.env.storage), lambda faulty: _again(faulty).rollback(**to), check) >= 100


def test_a_rollback_to_a_tag_of_an_expired_snapshot_works_whichever_call_goes_wrong() -> None:
    table = _table()
    table.tags.create("v", snapshot=2)
    table.expire(retain_max=1, retain_min=1)
    assert [s.id for s in table.snapshots()] == [4]

    def check(storage: Storage, outcome: Outcome[Any]) -> None:
        assert _rows(_again(storage)) in (STATES[4], STATES[2])
        _again(storage).rollback(tag="v")
        assert _rows(_again(storage)) == STATES[2]
        assert [s.id for s in _again(storage).snapshots()] == [2]
        _again(storage).write([_state(7, "new")])
        assert _rows(_again(storage)) == [*STATES[2], (7, "new")]

    assert _every(contents(table.env.storage), lambda faulty: _again(faulty).rollback(tag="v"), check) > 60


@pytest.mark.parametrize("main_went_on", [False, True])
def test_a_fast_forward_leaves_a_state_of_table_or_branch_whichever_call_goes_wrong(main_went_on: bool) -> None:
    table = _table()
    table.tags.create("v", snapshot=2 if main_went_on else 4)
    table.branches.create("b", tag="v")
    branch = table.branch("b")
    start = STATES[2 if main_went_on else 4]
    branch.write([_state(8, "branch")])
    branch.write([_state(9, "branch")])
    branch.tags.create("of-branch")
    states = [*STATES.values(), [*start, (8, "branch")], [*start, (8, "branch"), (9, "branch")]]
    if not main_went_on:
        states = states[4:]

    def check(storage: Storage, outcome: Outcome[Any]) -> None:
        table = _again(storage)
        assert _rows(table) in states
        if outcome.error is None:
            assert _rows(table) == states[-1]
        _again(storage).branches.fast_forward("b")
        again = _again(storage)
        assert _rows(again) == _rows(again.branch("b")) == states[-1]
        assert [s.uuid for s in again.snapshots()][-3:] == [s.uuid for s in branch.snapshots()][-3:]
        names = {tag.name for tag in again.tags.list()}
        assert names - {"rollback-to-2"} == {"of-branch", "v"}  # a guard that could not be removed goes with its time
        again.write([_state(7, "new")])
        assert len(_rows(again)) == len(states[-1]) + 1
        assert len(_rows(again.branch("b"))) == len(states[-1])

    files = contents(table.env.storage)
    assert _every(files, lambda faulty: _again(faulty).branches.fast_forward("b"), check) > 60


def test_a_fast_forward_to_a_branch_made_empty_never_shows_an_empty_table_whichever_call_goes_wrong() -> None:
    table = _table()
    table.branches.create("b")
    branch = table.branch("b")
    branch.write([_state(8, "branch")])
    branch.write([_state(9, "branch")])
    states = [*list(STATES.values())[1:], [(8, "branch")], [(8, "branch"), (9, "branch")]]

    def check(storage: Storage, outcome: Outcome[Any]) -> None:
        assert _rows(_again(storage)) in states
        _again(storage).branches.fast_forward("b")
        assert _rows(_again(storage)) == states[-1]
        assert [s.commit_user for s in _again(storage).snapshots()] == [s.commit_user for s in branch.snapshots()]

    files = contents(table.env.storage)
    assert _every(files, lambda faulty: _again(faulty).branches.fast_forward("b"), check) > 60


@pytest.mark.parametrize("branch_begins_above", [False, True])
def test_readers_beside_a_fast_forward_to_a_branch_of_its_own_see_whole_states(
    monkeypatch: pytest.MonkeyPatch, branch_begins_above: bool
) -> None:
    """What a reader knows of the table's last snapshot is not the beginning of the branch."""
    table = _table()
    table.branches.create("b")
    branch = table.branch("b")
    for k in (6, 7, 8, 9):
        branch.write([_state(k, "branch")])
    states = [[(k, "branch") for k in range(6, end)] for end in (7, 8, 9, 10)]
    if branch_begins_above:
        table.rollback(snapshot=2)
        branch.expire(retain_max=2)
    reader = _again(table.env.storage)
    met = []
    create = SnapshotStore.create

    def create_and_read(store: SnapshotStore, snapshot: Snapshot) -> Snapshot:
        for kept in reader.snapshots():
            reader.read(snapshot=kept.id).to_arrow()
        made = create(store, snapshot)
        met.append(_rows(reader))
        return made

    monkeypatch.setattr(SnapshotStore, "create", create_and_read)
    _again(table.env.storage).branches.fast_forward("b")
    met.append(_rows(reader))
    own = list(STATES.values())
    assert all(rows in states or rows in own for rows in met)
    assert met[-1] == states[-1]
    assert _rows(_again(table.env.storage)) == states[-1]


def test_tags_of_what_a_fast_forward_replaced_go_with_it() -> None:
    """Else the tag of one history would seem to lie between those of another."""
    table = _table()
    table.branches.create("b")
    branch = table.branch("b")
    for k in (6, 7, 8):
        branch.write([_state(k, "branch")])
    branch.expire(retain_max=1)
    table.tags.create("first", snapshot=1)
    table.tags.create("third", snapshot=3)
    table.branches.fast_forward("b")
    assert [tag.name for tag in table.tags.list()] == ["first"]
    assert _rows_of_tag(table, "first") == STATES[1]
    assert [s.id for s in table.snapshots()] == [3]
    table.tags.drop("first")
    assert _rows(_again(table.env.storage)) == [(6, "branch"), (7, "branch"), (8, "branch")]


def test_a_branch_that_expires_while_it_takes_the_tables_place_leaves_no_snapshot_without_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = _table()
    table.tags.create("v", snapshot=4)
    table.branches.create("b", tag="v")
    branch = table.branch("b")
    for k in (8, 9):
        branch.write([_state(k, "branch")])
    branch.compact(full=True)
    create = SnapshotStore.create
    pending = [lambda: _again(table.env.storage).branch("b").expire(retain_max=1)]

    def expire_then_create(store: SnapshotStore, snapshot: Snapshot) -> Snapshot:
        if pending and store.paths.branch == "main":
            pending.pop()()
        return create(store, snapshot)

    monkeypatch.setattr(SnapshotStore, "create", expire_then_create)
    with pytest.raises(ConflictError, match="expired meanwhile"):
        _again(table.env.storage).branches.fast_forward("b")
    again = _again(table.env.storage)
    _readable(again)
    assert _rows(again) == STATES[4]
    assert _rows(again.branch("b")) == [*STATES[4], (8, "branch"), (9, "branch")]


def test_a_consumer_is_at_its_old_or_its_new_place_whichever_call_goes_wrong() -> None:
    table = _table()
    table.consumers.set("reader", next_snapshot=2)

    def check(storage: Storage, outcome: Outcome[Any]) -> None:
        table = _again(storage)
        [consumer] = table.consumers.list()
        assert consumer.next_snapshot in (2, 4)
        assert outcome.error is not None or consumer.next_snapshot == 4
        table.consumers.set("reader", next_snapshot=4)
        assert [found.next_snapshot for found in table.consumers.list()] == [4]

    files = contents(table.env.storage)
    assert _every(files, lambda faulty: _again(faulty).consumers.set("reader", next_snapshot=4), check) > 5


# beside others


def test_a_writer_does_not_bring_back_what_a_rollback_removes_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rollback runs between the writer's look at the newest snapshot and its commit on top of it."""
    table = _table()
    create = SnapshotStore.create
    pending = [lambda: _again(table.env.storage).rollback(snapshot=2)]

    def create_after_rollback(store: SnapshotStore, snapshot: Snapshot) -> Snapshot:
        if pending:
            pending.pop()()
        return create(store, snapshot)

    monkeypatch.setattr(SnapshotStore, "create", create_after_rollback)
    written = _again(table.env.storage).write([_state(7, "writer")])
    assert written is not None
    assert written.id == 3
    assert _rows(_again(table.env.storage)) == [*STATES[2], (7, "writer")]
    assert [s.id for s in table.snapshots()] == [1, 2, 3]


def test_a_commit_that_comes_while_a_rollback_runs_goes_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    table = _table()
    delete = SnapshotStore.delete
    pending = [lambda: _again(table.env.storage).write([_state(7, "writer")])]

    def delete_after_commit(store: SnapshotStore, snapshot_id: int) -> None:
        if pending:
            pending.pop()()
        delete(store, snapshot_id)

    monkeypatch.setattr(SnapshotStore, "delete", delete_after_commit)
    _again(table.env.storage).rollback(snapshot=2)
    assert _rows(_again(table.env.storage)) == STATES[2]
    assert [s.id for s in table.snapshots()] == [1, 2]


def test_a_writer_that_takes_its_snapshot_back_keeps_what_another_built_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    table = _table()
    create = SnapshotStore.create
    pending = [lambda: _again(table.env.storage).rollback(snapshot=2)]

    def create_between(store: SnapshotStore, snapshot: Snapshot) -> Snapshot:
        if not pending:
            return create(store, snapshot)
        pending.pop()()
        made = create(store, snapshot)
        table.env.storage.delete([table.definition.paths.latest_hint])  # so that the next writer lists
        _again(table.env.storage).write([_state(8, "on top")])
        return made

    monkeypatch.setattr(SnapshotStore, "create", create_between)
    with pytest.raises(CommitUnknownError, match="on top"):
        _again(table.env.storage).write([_state(7, "writer")])
    assert _rows_of(_again(table.env.storage), 6) == [*STATES[4], (7, "writer"), (8, "on top")]
    _again(table.env.storage).rollback(snapshot=2)
    _again(table.env.storage).write([_state(7, "writer")])
    assert _rows(_again(table.env.storage)) == [*STATES[2], (7, "writer")]


def _rows_of(table: mg.Table, snapshot: int) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.read(snapshot=snapshot).to_pylist())


def test_a_rollback_gives_up_beside_a_writer_that_never_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    table = _table()
    delete = SnapshotStore.delete
    storage, number = table.env.storage, itertools.count(100)

    def delete_and_commit(store: SnapshotStore, snapshot_id: int) -> None:
        delete(store, snapshot_id)
        if snapshot_id == 3:
            with monkeypatch.context() as patch:
                patch.setattr(SnapshotStore, "delete", delete)
                _again(storage).write([_state(next(number), "writer")])

    monkeypatch.setattr(SnapshotStore, "delete", delete_and_commit)
    with pytest.raises(ConflictError, match="Stop its writers"):
        _again(storage).rollback(snapshot=2)
    monkeypatch.undo()
    _readable(_again(storage))
    _again(storage).rollback(snapshot=2)
    assert _rows(_again(storage)) == STATES[2]


def test_a_tag_of_a_snapshot_that_expires_meanwhile_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    table = _table()
    load = SnapshotStore.load

    def load_then_expire(store: SnapshotStore, snapshot_id: int) -> Snapshot:
        found = load(store, snapshot_id)
        with monkeypatch.context() as patch:
            patch.setattr(SnapshotStore, "load", load)
            _again(table.env.storage).expire(retain_max=1, retain_min=1)
        return found

    monkeypatch.setattr(SnapshotStore, "load", load_then_expire)
    with pytest.raises(ExpiredError, match="There is no such tag"):
        table.tags.create("v", snapshot=1)
    assert table.tags.list() == ()


def test_of_two_makers_of_one_tag_one_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    table = _table()
    load = SnapshotStore.load
    pending = [lambda: _again(table.env.storage).tags.create("v", snapshot=3)]

    def load_after_the_other(store: SnapshotStore, snapshot_id: int) -> Snapshot:
        if pending:
            pending.pop()()
        return load(store, snapshot_id)

    monkeypatch.setattr(SnapshotStore, "load", load_after_the_other)
    with pytest.raises(AlreadyExistsError, match="one of this name"):
        table.tags.create("v", snapshot=1)
    assert [tag.snapshot_id for tag in table.tags.list()] == [3]


def test_a_branch_of_a_tag_that_is_dropped_meanwhile_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    table = _table()
    table.tags.create("v", snapshot=2)
    storage = table.env.storage
    move = type(storage).move_tree

    def move_after_drop(self: Any, source: str, target: str) -> None:
        _again(storage).tags.drop("v")
        move(self, source, target)

    monkeypatch.setattr(type(storage), "move_tree", move_after_drop)
    with pytest.raises(ExpiredError, match="There is no such branch"):
        table.branches.create("b", tag="v")
    assert table.branches.list() == ()


def test_a_fast_forward_names_a_commit_that_got_in_between_and_finishes_when_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = _table()
    table.tags.create("v")
    table.branches.create("b", tag="v")
    for k in (8, 9):
        table.branch("b").write([_state(k, "branch")])
    create = SnapshotStore.create

    def create_after_the_writer(store: SnapshotStore, snapshot: Snapshot) -> Snapshot:
        if snapshot.id == 6:
            with monkeypatch.context() as patch:
                patch.setattr(SnapshotStore, "create", create)
                _again(table.env.storage).write([_state(7, "writer")])
        return create(store, snapshot)

    monkeypatch.setattr(SnapshotStore, "create", create_after_the_writer)
    with pytest.raises(ConflictError, match="Stop its writers"):
        table.branches.fast_forward("b")
    monkeypatch.undo()
    assert _rows(_again(table.env.storage)) == sorted([*STATES[4], (8, "branch"), (7, "writer")])
    _again(table.env.storage).branches.fast_forward("b")
    assert _rows(_again(table.env.storage)) == [*STATES[4], (8, "branch"), (9, "branch")]


@pytest.mark.parametrize("seed", [1, 2])
def test_rollbacks_beside_writers_leave_one_history(seed: int) -> None:
    table = _table()
    storage, draw, done = table.env.storage, random.Random(seed), threading.Event()
    for k in range(10):
        table.write([_state(k, "main")])
    failed: list[BaseException] = []

    def write(worker: int) -> None:
        patient = {"commit.max-retries": "1000", "commit.min-retry-wait": "0 ms"}
        own = _again(storage).with_options(patient)
        try:
            for number in itertools.count():
                if done.is_set():
                    return
                own.write([_state(1000 * worker + number, "writer")])
        except BaseException as error:
            failed.append(error)

    writers = [threading.Thread(target=write, args=(worker,)) for worker in (1, 2)]
    for writer in writers:
        writer.start()
    try:
        for _ in range(12):
            newest = _again(storage).snapshots()[-1].id
            with contextlib.suppress(ConflictError):  # writers went on and on, which is said
                _again(storage).rollback(snapshot=max(5, newest - draw.randint(1, 6)))
    finally:
        done.set()
        for writer in writers:
            writer.join()
    assert failed == []
    table = _again(storage)
    _readable(table)
    assert table.check() == ()
    snapshots = table.snapshots()
    rows = _rows(table)
    assert len(rows) == sum(snapshot.delta_record_count or 0 for snapshot in snapshots)
    written = [row for row in rows if row[1] == "writer"]
    assert len(written) == len(set(written))


def test_a_withdrawn_commit_is_not_taken_for_one_that_another_writer_has_followed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A rollback comes before the first writer's snapshot, and the second writer follows that before it goes again."""
    table = _table()
    storage = table.env.storage
    create, delete, ids = SnapshotStore.create, SnapshotStore.delete, SnapshotStore.ids
    is_missing_below = SnapshotStore.is_missing_below
    reached, deleted, withdrawn, followed, waited = (threading.Event() for _ in range(5))
    first = threading.current_thread()
    created: list[int] = []
    second = threading.Thread(target=lambda: _again(storage).write([_state(200, "second")]))

    def create_between(store: SnapshotStore, snapshot: Snapshot) -> Snapshot:
        created.append(snapshot.id)
        if len(created) == 1:  # the first writer's
            with monkeypatch.context() as patch:
                patch.setattr(SnapshotStore, "delete", delete)
                _again(storage).rollback(snapshot=2)
            stored = create(store, snapshot)
            store.write_latest_hint(stored.id)
            second.start()
            assert reached.wait(20)
            return stored
        if threading.current_thread() is second and len(created) == 2:
            reached.set()
            assert withdrawn.wait(20)
            stored = create(store, snapshot)
            store.write_latest_hint(stored.id)
            followed.set()
            assert waited.wait(20)
            return stored
        return create(store, snapshot)

    def delete_between(store: SnapshotStore, snapshot_id: int) -> None:
        delete(store, snapshot_id)
        if threading.current_thread() is first:
            deleted.set()

    def ids_between(store: SnapshotStore) -> list[int]:
        found = ids(store)
        if threading.current_thread() is first and deleted.is_set() and not withdrawn.is_set():
            withdrawn.set()
            assert followed.wait(20)
        return found

    def look_between(store: SnapshotStore, end: int, number: int) -> bool:
        missing = is_missing_below(store, end, number)
        if missing:
            waited.set()
            second.join()  # its snapshot goes, and it commits again
        return missing

    monkeypatch.setattr(SnapshotStore, "create", create_between)
    monkeypatch.setattr(SnapshotStore, "delete", delete_between)
    monkeypatch.setattr(SnapshotStore, "ids", ids_between)
    monkeypatch.setattr(SnapshotStore, "is_missing_below", look_between)
    table.write([_state(100, "first")])
    assert waited.is_set()
    assert created[:2] == [5, 6]
    assert _rows(_again(storage)) == [*STATES[2], (100, "first"), (200, "second")]
    assert _again(storage).check() == ()


def test_a_snapshot_is_not_taken_for_another_attempt_of_the_same_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second writer follows an attempt of the first that goes; the next attempt has its number, on other rows."""
    table = _table()
    storage = table.env.storage
    create, delete = SnapshotStore.create, SnapshotStore.delete
    reached, again = threading.Event(), threading.Event()
    first = threading.current_thread()
    second = threading.Thread(target=lambda: _again(storage).write([_state(200, "second")]))
    created: list[int] = []

    def create_between(store: SnapshotStore, snapshot: Snapshot) -> Snapshot:
        if threading.current_thread() is second and not reached.is_set():
            reached.set()
            assert again.wait(20)
        elif threading.current_thread() is first:
            created.append(snapshot.id)
            if len(created) == 1:
                _again(storage).rollback(snapshot=2)
                stored = create(store, snapshot)
                store.write_latest_hint(stored.id)
                monkeypatch.setattr(SnapshotStore, "delete", delete_between)
                second.start()
                assert reached.wait(20)
                return stored
        return create(store, snapshot)

    def delete_between(store: SnapshotStore, snapshot_id: int) -> None:
        delete(store, snapshot_id)
        monkeypatch.setattr(SnapshotStore, "delete", delete)
        for k in (30, 40):
            _again(storage).write([_state(k, "other")])

    monkeypatch.setattr(SnapshotStore, "create", create_between)
    table.write([_state(100, "first")])
    assert created == [5, 3, 4, 5]
    again.set()
    second.join()
    found = _again(storage)
    assert _rows(found) == [*STATES[2], (30, "other"), (40, "other"), (100, "first"), (200, "second")]
    assert found.check() == ()


def test_a_rollback_to_the_snapshot_below_that_comes_before_the_hint_leaves_the_table_writable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = _table()
    write_hint = SnapshotStore.write_latest_hint

    def late(store: SnapshotStore, number: int) -> None:
        monkeypatch.setattr(SnapshotStore, "write_latest_hint", write_hint)
        _again(table.env.storage).rollback(snapshot=4)
        write_hint(store, number)

    monkeypatch.setattr(SnapshotStore, "write_latest_hint", late)
    table.write([_state(100, "taken back")])
    other = _again(table.env.storage)
    assert _rows(other) == STATES[4]
    assert other.check() == ()
    other.write([_state(200, "later")])


def test_a_state_is_not_carried_over_steps_of_another_history(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rollback and new commits, between a reader's look at the newest snapshot and at those before it."""
    table = _table()
    reader = _again(table.env.storage)
    assert _rows(reader) == STATES[4]
    for k in (5, 6, 7):
        table.write([_state(k, "main")])
    look = SnapshotStore.look

    def look_then_another_history(store: SnapshotStore, **how: Any) -> Seen:
        found = look(store, **how)
        monkeypatch.setattr(SnapshotStore, "look", look)
        other = _again(table.env.storage)
        other.rollback(snapshot=4)
        for k in (50, 60):
            other.write([_state(k, "other")])
        return found

    monkeypatch.setattr(SnapshotStore, "look", look_then_another_history)
    assert _rows(reader) == [*STATES[4], (5, "main"), (6, "main"), (7, "main")]
    assert _rows(reader) == [*STATES[4], (50, "other"), (60, "other")]

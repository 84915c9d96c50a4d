"""The newest snapshot's file is lost: readers warn, writers refuse, `check` names it, `repair` ends it. And nothing
that merganser does itself, finished or stopped at any call, looks like a loss."""

from __future__ import annotations

import itertools
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import merganser as mg
from merganser.errors import FormatError, LostSnapshotWarning, MerganserError
from merganser.meta.snapshots import SnapshotStore
from merganser.storage.protocol import Storage
from tests.faults import STEP
from tests.kit.builders import catalog_over, contents, memory_with
from tests.kit.faulty import Outcome, run_every

Files = dict[str, bytes]
_names = itertools.count()


def _table(commits: int = 3, **options: str) -> mg.Table:
    catalog = catalog_over(memory_with({}, f"lost-{next(_names)}"))
    catalog.create_database("db")
    options = {"bucket": "1", "write-only": "true"} | options
    table = catalog.create_table("db.t", {"k": "INT"}, primary_key=["k"], options=options)
    for k in range(1, commits + 1):
        table.write([{"k": k}])
    return table


def _again(files: Files) -> mg.Table:
    """The table in another process, which has seen and warned of nothing."""
    return catalog_over(memory_with(files, f"lost-{next(_names)}")).table("db.t")


def _without(table: mg.Table, *numbers: int) -> mg.Table:
    paths = table.definition.paths
    lost = {paths.snapshot(number) for number in numbers}
    return _again({path: data for path, data in contents(table.env.storage).items() if path not in lost})


def _keys(table: mg.Table) -> list[int]:
    return sorted(row["k"] for row in table.read().to_pylist())


@pytest.fixture(autouse=True)
def _strict() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error", LostSnapshotWarning)
        yield


def test_readers_warn_once_and_writers_refuse_until_a_repair() -> None:
    table = _without(_table(), 3)
    with pytest.warns(LostSnapshotWarning, match="names snapshot 3, and the newest that is there is 2") as caught:
        assert _keys(table) == [1, 2]
    assert _keys(table) == [1, 2]
    assert len(caught) == 1
    before = contents(table.env.storage)
    for work in (
        lambda: table.write([{"k": 9}]),
        lambda: table.write([], overwrite={}),
        lambda: table.compact(full=True),
        lambda: table.remove_orphans(),
    ):
        with pytest.raises(FormatError, match=r"snapshot-3' is lost.*Nothing was changed.*repair"):
            work()
        assert contents(table.env.storage) == before
    assert [found.code for found in table.check(quick=True)] == ["lost"]
    done = table.repair()
    assert done.newest is not None
    assert (done.newest.id, done.restored, done.given_up) == (2, (), (3, 3))
    table.write([{"k": 4}])
    assert _keys(_again(contents(table.env.storage))) == [1, 2, 4]
    assert table.check() == ()
    assert table.repair().given_up is None


def test_a_restored_file_ends_it() -> None:
    table = _table()
    files = contents(table.env.storage)
    path = table.definition.paths.snapshot(3)
    lost = _without(table, 3)
    with pytest.raises(FormatError, match="is lost"):
        lost.write([{"k": 9}])
    lost.env.storage.create(path, files[path])
    lost.write([{"k": 4}])
    assert _keys(lost) == [1, 2, 3, 4]


def test_a_lost_snapshot_that_a_tag_keeps_is_restored() -> None:
    table = _table()
    table.tags.create("v3")
    lost = _without(table, 3)
    assert lost.repair().restored == (3,)
    assert _keys(_again(contents(lost.env.storage))) == [1, 2, 3]
    lost.write([{"k": 4}])
    assert lost.check() == ()


def test_the_only_snapshot_is_lost() -> None:
    table = _without(_table(1), 1)
    with pytest.warns(LostSnapshotWarning, match="no snapshot is there"):
        assert _keys(table) == []
    with pytest.raises(FormatError, match="is lost"):
        table.write([{"k": 9}])
    done = table.repair()
    assert (done.newest, done.given_up) == (None, (1, 1))
    table.write([{"k": 9}])
    assert _keys(table) == [9]


def test_snapshots_below_those_that_were_lost_are_seen() -> None:
    table = _table(4)
    table.expire(retain_max=2, retain_min=1)
    lost = _without(table, 3, 4)
    lost.repair()
    for k in range(3):
        lost.write([{"k": k}])
    stream = lost.stream("from-snapshot", follow=False, **{"scan.snapshot-id": "1"})
    assert [row["k"] for plan in stream for row in plan.to_pylist()] == [0, 1, 2]


def test_a_consumer_after_the_lost_snapshot_goes_back() -> None:
    table = _table()
    table.consumers.set("c", 4)
    lost = _without(table, 3)
    lost.repair()
    assert [(c.id, c.next_snapshot) for c in lost.consumers.list()] == [("c", 3)]


def test_changelogs_after_a_snapshot_that_is_restored_go() -> None:
    kept = {"snapshot.num-retained.max": "50", "changelog.num-retained.max": "60", "changelog-producer": "input"}
    table = _table(1, **kept)
    table.tags.create("v1")
    for k in (2, 3):
        table.write([{"k": k}])
    table.expire(retain_max=1, retain_min=1)
    lost = _without(table, 3)
    assert lost.repair().restored == (1,)
    stream = lost.stream("from-snapshot", follow=False, **{"scan.snapshot-id": "1"})
    assert [row["k"] for plan in stream for row in plan.to_pylist()] == [1]
    lost.write([{"k": 4}])
    assert [row["k"] for row in lost.changes(1).to_pylist()] == [1, 4]
    assert lost.check() == ()


def test_a_rollback_ends_it_and_expiry_goes_on() -> None:
    lost = _without(_table(5), 5)
    assert [snapshot.id for snapshot in lost.expire(retain_max=2, retain_min=1)]
    lost.rollback(snapshot=3)
    lost.write([{"k": 9}])
    assert _keys(lost) == [1, 2, 3, 9]


def _with_branch(lost: Callable[[mg.Table], str]) -> mg.Table:
    """A table with snapshots 1 to 3, and a branch at 2 that has 3 to 5; one snapshot file of them is lost."""
    table = _table()
    table.tags.create("v2", snapshot=2)
    table.branches.create("b", tag="v2")
    for k in (20, 30, 40):
        table.branch("b").write([{"k": k}])
    path = lost(table)
    return _again({name: data for name, data in contents(table.env.storage).items() if name != path})


@pytest.mark.parametrize(
    ("lost", "said"),
    [
        (
            lambda t: t.branch("b").definition.paths.snapshot(5),
            r"snapshot-5' is lost.*table\.branch\('b'\)\.repair\(\)",
        ),
        (lambda t: t.definition.paths.snapshot(3), r"snapshot-3' is lost.* table\.repair\(\)"),
        (lambda t: t.branch("b").definition.paths.snapshot(4), r"snapshot-4' is missing.*Restore the file"),
    ],
    ids=["newest of the branch", "newest of the table", "in the branch"],
)
def test_a_fast_forward_with_a_lost_snapshot_changes_nothing(lost: Callable[[mg.Table], str], said: str) -> None:
    table = _with_branch(lost)
    before = contents(table.env.storage)
    with pytest.raises(FormatError, match=said):
        table.branches.fast_forward("b")
    assert contents(table.env.storage) == before


def test_a_repaired_branch_is_taken() -> None:
    table = _with_branch(lambda t: t.branch("b").definition.paths.snapshot(5))
    assert table.branch("b").repair().given_up == (5, 5)
    assert table.branches.fast_forward("b").id == 4
    assert _keys(table) == [1, 2, 20, 30]
    assert table.check() == ()


def test_tags_and_branches_are_made_while_the_newest_is_lost() -> None:
    lost = _without(_table(), 3)
    with pytest.warns(LostSnapshotWarning):
        assert lost.tags.create("now").snapshot.id == 2
    lost.branches.create("b", tag="now")
    lost.branch("b").write([{"k": 9}])
    assert _keys(lost.branch("b")) == [1, 2, 9]
    assert [found.code for found in lost.check()] == ["lost"]
    assert lost.repair().given_up == (3, 3)
    assert lost.check() == ()


def test_a_repair_to_damaged_metadata_is_refused() -> None:
    table = _table()
    paths = table.definition.paths
    before = table.snapshots()[1]
    table.env.storage.delete([paths.snapshot(3), paths.manifest(before.delta_manifest_list)])
    lost = _again(contents(table.env.storage))
    files = contents(lost.env.storage)
    with pytest.raises(FormatError, match=r"cannot repair 'db\.t'.*Nothing was changed"):
        lost.repair()
    assert contents(lost.env.storage) == files


# no false alarms


def _rolled_back(table: mg.Table) -> Any:
    return table.rollback(snapshot=1)


def _fast_forwarded(table: mg.Table) -> Any:
    return table.branches.fast_forward("b")


def _expired(table: mg.Table) -> Any:
    return table.expire(retain_max=1, retain_min=1)


def _written(table: mg.Table) -> Any:
    return table.write([{"k": 9}])


@pytest.mark.parametrize("work", [_written, _rolled_back, _fast_forwarded, _expired])
@pytest.mark.parametrize("copies", [False, True])
def test_nothing_that_is_stopped_anywhere_looks_like_a_loss(work: Callable[[mg.Table], Any], copies: bool) -> None:
    table = _table(4)
    table.tags.create("v2", snapshot=2)
    table.branches.create("b", tag="v2")
    table.branch("b").write([{"k": 7}])
    files, name = contents(table.env.storage), f"lost-{next(_names)}"

    def check(storage: Storage, outcome: Outcome[Any]) -> None:
        store = SnapshotStore(table.definition.paths, catalog_over(storage).env, "db.t")
        assert store.lost(store.latest_id()) is None, outcome.plan

    run = lambda storage: work(catalog_over(storage).table("db.t"))  # noqa: E731
    assert run_every(lambda: memory_with(files, name), run, check, copies=copies, first=1, step=min(STEP, 2))


@pytest.mark.parametrize("moment", ["create", "write_latest_hint"])
def test_a_writer_that_meets_a_rollback_puts_the_hint_right(moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rollback runs as a whole just before the writer creates its snapshot, or before it moves the hint."""
    table = _table(4)
    storage = table.env.storage
    real = getattr(SnapshotStore, moment)
    times = itertools.count()

    def after_rollback(store: SnapshotStore, given: Any) -> Any:
        if next(times) == 0:
            catalog_over(storage).table("db.t").rollback(snapshot=2)
        return real(store, given)

    monkeypatch.setattr(SnapshotStore, moment, after_rollback)
    table.write([{"k": 9}])
    monkeypatch.undo()
    store = SnapshotStore(table.definition.paths, table.env, "db.t")
    assert store.lost(store.latest_id()) is None
    assert _keys(_again(contents(storage))) == [1, 2, 9]


def test_readers_beside_writers_and_rollbacks_see_no_loss() -> None:
    table = _table(3)
    storage = table.env.storage
    until = time.monotonic() + 2
    problems: list[str] = []

    def going(work: Callable[[mg.Table], Any]) -> None:
        while time.monotonic() < until and not problems:
            try:
                work(catalog_over(storage).table("db.t"))
            except LostSnapshotWarning as error:
                problems.append(str(error))
            except MerganserError as error:
                problems.extend([str(error)] if "is lost" in str(error) else [])

    works = [_written, _written, _rolled_back, lambda t: t.read().count(), lambda t: t.read().count()]
    threads = [threading.Thread(target=going, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
    store = SnapshotStore(table.definition.paths, table.env, "db.t")
    assert store.lost(store.latest_id()) is None

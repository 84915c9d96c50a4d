"""Altering a table under faults and races: a schema is there or not, and nobody's change is lost."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

import merganser as mg
from merganser import changes as c
from merganser.commit import table_commit
from merganser.commit.table_commit import TableCommit
from merganser.errors import CommitUnknownError, ConflictError, InvalidInputError, StorageError, UntrackedError
from merganser.meta.snapshots import SnapshotStore
from merganser.storage.protocol import Storage
from tests.faults import run_some
from tests.faults.test_concurrency import Interrupted
from tests.kit.builders import PatientEnv, catalog_over, contents, memory_with
from tests.kit.faulty import Outcome, run_every

_names = itertools.count()
CHANGES = [c.rename_column("v", "text"), c.add_column("n", "INT"), c.set_option("bucket", 4)]


def _table(*, rows: bool = True, **options: str) -> mg.Table:
    catalog = catalog_over(memory_with({}, f"alter-{next(_names)}"))
    catalog.create_database("db")
    table = catalog.create_table(
        "db.t", {"k": "INT", "v": "STRING"}, primary_key=["k"], options={"bucket": "2"} | options
    )
    if rows:
        table.write([{"k": 1, "v": "a"}])
    return table


def test_a_schema_is_whole_or_absent_whichever_call_goes_wrong() -> None:
    files = contents(_table().env.storage)
    name = f"alter-{next(_names)}"

    def check(storage: Storage, outcome: Outcome[Any]) -> None:
        table = catalog_over(storage).table("db.t")
        if table.schema.id == 0:
            assert outcome.error is not None
            table = table.alter(CHANGES)
        assert table.schema.names == ("k", "text", "n")
        assert table.read().to_pylist() == [{"k": 1, "text": "a", "n": None}]
        assert table.check() == ()

    def work(faulty: Storage) -> Any:
        return catalog_over(faulty).table("db.t").alter(CHANGES)

    assert run_every(lambda: memory_with(files, name), work, check) > 8


def test_rows_that_bring_a_column_in_the_middle_of_a_commit_are_all_there_or_none() -> None:
    base = _table(**{"write.merge-schema": "true", "changelog-producer": "per-record"})
    files = contents(base.env.storage)
    name = f"alter-{next(_names)}"
    before = [{"k": 1, "v": "a"}]
    after = [{"k": 1, "v": None, "n": 7}, {"k": 2, "v": "b", "n": None}, {"k": 3, "v": "c", "n": None}]

    def given() -> Iterator[dict[str, Any] | pa.Table]:
        yield pa.table({"k": [1, 2], "v": ["z", "b"]})
        yield pa.table({"k": [1], "n": [7]})
        yield pa.table({"k": [3], "v": ["c"]})

    def rows(table: mg.Table) -> list[dict[str, Any]]:
        return sorted(table.read().to_pylist(), key=lambda row: row["k"])

    def check(storage: Storage, outcome: Outcome[Any]) -> None:
        table = catalog_over(storage).table("db.t")
        if rows(table) != after:
            assert outcome.error is not None
            assert [{name: row[name] for name in ("k", "v")} for row in rows(table)] == before
            table.write(given(), commit_user="w", identifier=1)
            table = catalog_over(storage).table("db.t")
        assert rows(table) == after
        assert table.write(given(), commit_user="w", identifier=1) == table.latest_snapshot()
        assert table.latest_snapshot().id == 2
        assert table.check() == ()
        assert table.changes(start=2).to_arrow().num_rows == 6

    def work(faulty: Storage) -> Any:
        return catalog_over(faulty).table("db.t").write(given(), commit_user="w", identifier=1)

    assert run_some(lambda: memory_with(files, name), work, check) > 10


def test_many_alter_and_write_at_once_and_no_change_is_lost() -> None:
    table = _table()
    failures: list[BaseException] = []

    def alter(i: int) -> None:
        try:
            for j in range(5):
                made = table.alter([c.add_column(f"c{i}{j}", "INT"), c.comment_column(f"c{i}{j}", f"of {i}")])
                made.write([{"k": 10 * i + j, f"c{i}{j}": i}], columns=["k", f"c{i}{j}"])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=alter, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    now = catalog_over(table.env.storage).table("db.t")
    assert now.schema.id == 20
    assert set(now.schema.names) == {"k", "v", *(f"c{i}{j}" for i in range(4) for j in range(5))}
    assert len({field.id for field in now.schema.fields}) == 22
    found = {row["k"]: row for row in now.read().to_pylist()}
    assert all(found[10 * i + j][f"c{i}{j}"] == i for i in range(4) for j in range(5))
    assert now.check() == ()


def test_of_those_who_add_one_column_at_once_one_succeeds() -> None:
    table = _table()
    won: list[int] = []
    lost: list[BaseException] = []

    def alter(i: int) -> None:
        try:
            table.alter([c.add_column("same", "INT", comment=str(i))])
            won.append(i)
        except (ConflictError, InvalidInputError) as error:  # told at the race, or after it
            lost.append(error)

    threads = [threading.Thread(target=alter, args=(i,)) for i in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(won), len(lost)) == (1, 4)
    assert catalog_over(table.env.storage).table("db.t").schema.field("same").description == str(won[0])


def test_a_table_that_begins_to_publish_changes_misses_none_of_writers_from_before() -> None:
    table = _table()
    with table.writer() as writer:
        writer.write([{"k": 2, "v": "b"}])
        table.alter([c.set_option("changelog-producer", "input")])
        with pytest.raises(ConflictError, match="'changelog-producer' was set to 'input' since this write began"):
            writer.commit()
    table.write([{"k": 3, "v": "c"}])
    changes = catalog_over(table.env.storage).table("db.t").changes(start=2).to_pylist()
    assert [tuple(row.values()) for row in changes] == [("+I", 3, "c")]


def _columns(table: mg.Table) -> list[tuple[Any, ...]]:
    return sorted((row["k"], row["v"]) for row in table.read().to_pylist())


@pytest.mark.parametrize("producer", ["input", "per-record", "lookup", "full-compaction", "stream"])
def test_an_alter_inside_a_commit_leaves_no_change_unlogged_without_a_word(producer: str) -> None:
    """At every call of the commit another process makes the table publish its changes."""
    base = _table()
    files, name = contents(base.env.storage), f"alter-{next(_names)}"
    told = 0
    for call in itertools.count(1):
        storage = memory_with(files, name)
        begun: list[int] = []

        def alter(inner: Storage, begun: list[int] = begun) -> None:
            other = catalog_over(inner).table("db.t")
            if producer == "stream":
                other.enable_stream()
            else:
                other.alter([c.set_option("changelog-producer", producer)])
            newest = catalog_over(inner).table("db.t").latest_snapshot()
            begun.append(0 if newest is None else newest.id)

        interrupted = Interrupted(storage, call, alter)
        with suppress(ConflictError):
            catalog_over(interrupted).table("db.t").write([{"k": 1, "v": "b"}, {"k": 2, "v": None}])
        if interrupted.left > 0:
            break
        table = catalog_over(storage).table("db.t")
        table.write([{"k": 3, "v": "c"}])
        table.compact(full=True)
        state = {row["k"]: row["v"] for row in table.read(snapshot=begun[0]).to_pylist()}
        try:
            changes = table.changes(start=begun[0] + 1).to_pylist()
        except UntrackedError:
            told += 1
            continue
        for row in changes:
            if row["_row_kind"] in ("+I", "+U"):
                state[row["k"]] = row["v"]
        assert sorted(state.items()) == _columns(table), call
    assert call > 10
    assert told <= 4, "only a commit that was between its look at the schema, as it writes metadata, and its snapshot"


CONSTRAINTS: dict[str, tuple[bool, list[Any]]] = {
    "NOT NULL": (True, [c.set_option("alter-column-null-to-not-null.disabled", "false"), c.set_nullable("v", False)]),
    "an option of empty tables": (False, [c.set_option("merge-engine", "first-row")]),
}


@pytest.mark.parametrize("what", CONSTRAINTS)
def test_an_alter_inside_a_commit_and_the_commit_do_not_both_succeed_if_they_contradict(what: str) -> None:
    has_rows, changes = CONSTRAINTS[what]
    base = _table(rows=has_rows)
    files, name = contents(base.env.storage), f"alter-{next(_names)}"
    altered_first = 0
    for call in itertools.count(1):
        storage = memory_with(files, name)
        done: list[str] = []

        def alter(inner: Storage, done: list[str] = done) -> None:
            done.append("begun")
            with suppress(ConflictError, InvalidInputError):
                catalog_over(inner).table("db.t").alter(changes)
                done.append("altered")

        interrupted = Interrupted(storage, call, alter)
        with suppress(ConflictError, InvalidInputError):
            catalog_over(interrupted).table("db.t").write([{"k": 2, "v": None}])
            done.append("written")
        if interrupted.left > 0:
            break
        table = catalog_over(storage).table("db.t")
        assert any(row["k"] == 2 for row in table.read().to_pylist()) == ("written" in done), call
        assert table.check() == (), call
        live = [entry.file for entry in TableCommit(table.definition, table.env).latest().live]
        if "altered" in done and has_rows:
            assert "written" not in done, call
        if "altered" in done and not has_rows:
            assert all(file.schema_id == table.schema.id for file in live), call
        altered_first += "altered" in done and "written" not in done
    assert call > 10
    assert altered_first


def _removed_after(table: mg.Table, changes: list[Any], between: Callable[[], object]) -> None:
    """Write a row whose snapshot comes after changes that forbid it, and do something before the writer removes it."""
    create, remove = SnapshotStore.create, table_commit.withdraw
    todo = [lambda: catalog_over(table.env.storage).table("db.t").alter(changes)]

    def late(store: SnapshotStore, snapshot: mg.Snapshot) -> mg.Snapshot:
        if todo:
            todo.pop()()
        return create(store, snapshot)

    def removed(*given: Any, **how: Any) -> None:
        between()
        remove(*given, **how)

    with patch.object(SnapshotStore, "create", late), patch.object(table_commit, "withdraw", removed):
        catalog_over(table.env.storage).table("db.t").write([{"k": 2, "v": None}])


def test_a_writer_that_cannot_move_the_hint_back_does_not_remove_its_snapshot() -> None:
    """Else the hint names a snapshot that is not there, and all writers refuse until the table is repaired."""
    table = _table()

    def busy(*given: Any, **how: Any) -> None:
        raise StorageError("the store is busy")

    with ExitStack() as faults:
        storage = type(table.env.storage)
        with pytest.raises(CommitUnknownError, match="the store is busy"):
            _removed_after(
                table,
                CONSTRAINTS["NOT NULL"][1],
                lambda: faults.enter_context(patch.object(storage, "replace", busy)),
            )
    other = catalog_over(table.env.storage).table("db.t")
    other.write([{"k": 3, "v": "c"}])
    assert other.read().count() == 3


@pytest.mark.parametrize("when", ["before its list", "after its list"])
def test_a_writer_does_not_remove_the_last_snapshot_of_a_table_whose_others_have_expired(when: str) -> None:
    table = _table(**{"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1"})
    delete = SnapshotStore.delete

    def expire() -> None:
        assert [snapshot.id for snapshot in catalog_over(table.env.storage).table("db.t").expire()] == [1]

    with ExitStack() as steps:

        def late(store: SnapshotStore, number: int) -> None:
            steps.close()
            expire()
            delete(store, number)

        def between() -> None:
            if when == "before its list":
                expire()
            else:
                steps.enter_context(patch.object(SnapshotStore, "delete", late))

        with pytest.raises(CommitUnknownError, match="the snapshots below it"):
            _removed_after(table, CONSTRAINTS["NOT NULL"][1], between)
    other = catalog_over(table.env.storage).table("db.t")
    assert {"k": 1, "v": "a"} in other.read().to_pylist()
    other.write([{"k": 3, "v": "c"}])


def test_a_writer_keeps_its_files_if_another_one_followed_the_first_snapshot_that_it_removed() -> None:
    table = _table(rows=False)
    ids, create = SnapshotStore.ids, SnapshotStore.create
    made, removed = threading.Event(), threading.Event()
    first = threading.current_thread()

    def follow() -> None:
        catalog_over(table.env.storage).table("db.t").write([{"k": 9, "v": "b"}])

    second = threading.Thread(target=follow)

    def late(store: SnapshotStore, snapshot: mg.Snapshot) -> mg.Snapshot:
        stored = create(store, snapshot)
        if threading.current_thread() is second:
            made.set()
            assert removed.wait(20)
        return stored

    with ExitStack() as steps:

        def listed(store: SnapshotStore) -> list[int]:
            found = ids(store)
            if threading.current_thread() is first and not made.is_set():
                steps.enter_context(patch.object(SnapshotStore, "create", late))
                second.start()
                assert made.wait(20)
            return found

        def between() -> None:
            steps.enter_context(patch.object(SnapshotStore, "ids", listed))

        def no_wait(*given: Any) -> None:
            if threading.current_thread() is first:
                removed.set()
                second.join()

        steps.enter_context(patch.object(PatientEnv, "sleep_ms", no_wait))
        with pytest.raises(CommitUnknownError, match="lies on top of the snapshot"):
            _removed_after(table, CONSTRAINTS["an option of empty tables"][1], between)
    other = catalog_over(table.env.storage).table("db.t")
    assert _columns(other) == [(2, None), (9, "b")]
    assert other.check() == ()

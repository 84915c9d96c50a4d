"""Compactions under faults and beside other writers: readers see no difference, nothing live is removed, no row is
lost or comes back."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from typing import Any

import pytest

import merganser as mg
from merganser.catalogs.catalog import Catalog
from merganser.commit.table_commit import TableCommit
from merganser.errors import ConflictError, MerganserError, StorageError
from merganser.meta.snapshot import COMPACT
from merganser.meta.snapshots import SnapshotStore
from merganser.meta.table_state import MetaReader
from merganser.storage.protocol import Storage
from tests.faults import run_some
from tests.faults.test_concurrency import Interrupted
from tests.kit.builders import catalog_over, contents, memory_with
from tests.kit.faulty import Outcome

_names = itertools.count()
FIRST_ROW = {"merge-engine": "first-row"}


def _table(key: list[str] | None = None, **options: str) -> mg.Table:
    catalog = catalog_over(memory_with({}, f"compaction-{next(_names)}"))
    catalog.create_database("db")
    schema = {"p": "STRING", "k": "INT", "v": "STRING"}
    return catalog.create_table(
        "db.t",
        schema,
        primary_key=["p", "k"] if key is None else key,
        partition_by=["p"],
        options={"bucket": "1", "manifest.merge-min-count": "9", **options},
    )


def _row(k: int, v: str | None = None, p: str = "a") -> dict[str, Any]:
    return {"p": p, "k": k, "v": v}


def _found(table: mg.Table) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in table.read().to_pylist()), key=repr)


def _again(storage: Storage) -> mg.Table:
    return catalog_over(storage).table("db.t")


def _several_runs() -> tuple[dict[str, bytes], list[tuple[Any, ...]]]:
    table = _table()
    table.write([_row(k, "old") for k in range(6)] + [_row(9, "b", "b")])
    table.compact(full=True)
    table.write([_row(1, "new"), _row(7, "new")])
    table.write([_row(2), _row(7)], kinds=["-D", "-D"])
    table.write([_row(2, "back", "b")])
    return contents(table.env.storage), _found(table)


# every call goes wrong


def test_a_compaction_changes_no_row_whichever_call_goes_wrong() -> None:
    files, rows = _several_runs()

    def check(storage: Storage, outcome: Outcome[Any]) -> None:
        assert _found(_again(storage)) == rows
        left = contents(storage)
        assert all(left[path] == data for path, data in files.items() if not path.endswith("/LATEST"))
        _again(storage).compact(full=True)
        assert _found(_again(storage)) == rows
        assert {file["level"] for file in _again(storage).files().to_pylist()} == {5}

    name = f"compaction-{next(_names)}"
    work = lambda faulty: catalog_over(faulty).table("db.t").compact(full=True)  # noqa: E731
    assert run_some(lambda: memory_with(files, name), work, check) > 40


def test_a_write_that_a_compaction_follows_is_applied_once_and_seen_whichever_call_goes_wrong() -> None:
    table = _table(**FIRST_ROW)
    table.write([_row(1, "first"), _row(5, "first", "b")])
    files, before = contents(table.env.storage), _found(table)
    after = sorted([*before, ("a", 2, "second")])

    def work(storage: Storage) -> Any:
        return _again(storage).write([_row(1, "late"), _row(2, "second")], commit_user="job", identifier=1)

    def check(storage: Storage, outcome: Outcome[Any]) -> None:
        found = _found(_again(storage))
        assert found in (before, after)
        left = contents(storage)
        assert all(left[path] == data for path, data in files.items() if not path.endswith("/LATEST"))
        work(storage)
        assert _found(_again(storage)) == after
        snapshots = [s for s in _again(storage).snapshots() if s.commit_user == "job"]
        assert [s.commit_identifier for s in snapshots if s.commit_kind != COMPACT] == [1]

    name = f"compaction-{next(_names)}"
    assert run_some(lambda: memory_with(files, name), work, check) > 60


# what follows a commit does not undo it


@pytest.mark.parametrize("error", [StorageError("the disk is full"), KeyboardInterrupt(), MemoryError()])
def test_rows_stay_committed_when_the_compaction_after_them_fails(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = _table(**FIRST_ROW)
    table.write([_row(1, "first")])

    def fail(*args: Any, **how: Any) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr("merganser.lsm.compact.CompactJob.run", fail)
        if isinstance(error, Exception):  # who asks for the end of the program gets it
            table.write([_row(2, "second")], commit_user="job", identifier=1)
        else:
            with pytest.raises(type(error)):
                table.write([_row(2, "second")], commit_user="job", identifier=1)
    assert _found(table) == [("a", 1, "first")]
    again = table.write([_row(2, "never")], commit_user="job", identifier=1)
    assert again is not None
    assert again.commit_kind == "APPEND"
    assert _found(table) == [("a", 1, "first"), ("a", 2, "second")]


@pytest.mark.parametrize("made", [False, True])
@pytest.mark.parametrize("options", [{}, FIRST_ROW])
def test_a_commit_that_is_interrupted_keeps_its_files_and_is_repeated_once(
    made: bool, options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = _table(**options)
    table.write([_row(1, "first")])
    with table.writer() as writer:
        writer.write([_row(2, "second")])
        with monkeypatch.context() as patch:

            def stop(*args: Any) -> None:
                raise KeyboardInterrupt

            patch.setattr(SnapshotStore, "write_latest_hint" if made else "create", stop)
            with pytest.raises(KeyboardInterrupt):
                writer.commit()
        assert all(file["record_count"] for file in _again(table.env.storage).files().to_pylist())
        writer.commit()
    assert _found(_again(table.env.storage)) == [("a", 1, "first"), ("a", 2, "second")]
    assert len([s for s in table.snapshots() if s.commit_kind == "APPEND"]) == 2


def test_a_writer_that_is_interrupted_as_it_commits_and_left_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    table = _table()

    def stop(*args: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(SnapshotStore, "write_latest_hint", stop)
        with pytest.raises(KeyboardInterrupt):
            table.write([_row(2, "second")])
    assert _found(_again(table.env.storage)) == [("a", 2, "second")]


def test_a_compaction_that_comes_late_does_not_make_newer_commits_of_its_user_count_as_not_applied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = _table(**FIRST_ROW)
    taken_over: list[Any] = []

    def late(commits: Any, change: Any, commit: Callable[..., Any], **how: Any) -> Any:
        if change.kind == COMPACT and not taken_over:
            taken_over.append(True)
            successor = _again(table.env.storage)
            successor.with_options({"write-only": "true"}).write([_row(2, "six")], commit_user="job", identifier=6)
        return commit(commits, change, **how)

    with monkeypatch.context() as patch:
        commit = TableCommit.commit
        patch.setattr(TableCommit, "commit", lambda commits, change, **how: late(commits, change, commit, **how))
        table.write([_row(1, "five")], commit_user="job", identifier=5)
    repeated = _again(table.env.storage).write([_row(3, "twice")], commit_user="job", identifier=6)
    assert repeated is not None
    assert repeated.commit_kind == "APPEND"
    assert _found(_again(table.env.storage)) == [("a", 1, "five"), ("a", 2, "six")]


# others come in between


def _between(
    files: dict[str, bytes], other: Callable[[Catalog], Any], expected: Callable[[list[Any]], list[list[Any]]]
) -> None:
    before = _found(_again(memory_with(files, f"compaction-{next(_names)}")))
    name = f"compaction-{next(_names)}"
    for call in itertools.count(1):
        storage = memory_with(files, name)
        interrupted = Interrupted(storage, call, lambda inner: other(catalog_over(inner)))
        with contextlib.suppress(ConflictError):
            catalog_over(interrupted).table("db.t").compact(full=True)
        if interrupted.left > 0:
            assert call > 15
            return
        assert _found(_again(storage)) in expected(before), f"struck before call {call}"
        for entry in MetaReader(_again(storage).definition.paths, _again(storage).env, "t").latest().live:
            assert any(path.endswith(entry.file.name) for path in contents(storage)), f"struck before call {call}"
        _again(storage).compact(full=True)
        assert _found(_again(storage)) in expected(before), f"struck before call {call}"


def test_a_compaction_between_any_two_calls_of_another_changes_nothing() -> None:
    files, _ = _several_runs()
    _between(files, lambda catalog: catalog.table("db.t").compact(full=True), lambda before: [before])


def test_writes_between_any_two_calls_of_a_compaction_are_kept() -> None:
    files, _ = _several_runs()

    def other(catalog: Catalog) -> None:
        catalog.table("db.t").write([_row(1), _row(3, "other"), _row(2, "other")], kinds=["-D", "+I", "+I"])

    def expected(before: list[Any]) -> list[list[Any]]:
        kept = [row for row in before if row[:2] not in {("a", 1), ("a", 3)}]
        return [sorted([*kept, ("a", 3, "other"), ("a", 2, "other")], key=repr)]

    _between(files, other, expected)


@pytest.mark.campaign(1 / 3)
@pytest.mark.parametrize("how", ["overwrite", "drop", "truncate"])
def test_rows_removed_between_any_two_calls_of_a_compaction_stay_removed(how: str) -> None:
    files, _ = _several_runs()

    def other(catalog: Catalog) -> None:
        table = catalog.table("db.t")
        if how == "overwrite":
            table.write([_row(1, "other")], overwrite={"p": "a"})
        elif how == "drop":
            table.drop_partitions([{"p": "a"}])
        else:
            table.truncate()

    def expected(before: list[Any]) -> list[list[Any]]:
        kept = [] if how == "truncate" else [row for row in before if row[0] != "a"]
        return [[("a", 1, "other"), *kept] if how == "overwrite" else kept]

    _between(files, other, expected)


def test_a_table_renamed_between_any_two_calls_of_a_compaction_keeps_its_rows() -> None:
    files, rows = _several_runs()
    name = f"compaction-{next(_names)}"
    for call in itertools.count(1):
        storage = memory_with(files, name)
        interrupted = Interrupted(storage, call, lambda inner: catalog_over(inner).rename_table("db.t", "db.moved"))
        with contextlib.suppress(MerganserError):
            catalog_over(interrupted).table("db.t").compact(full=True)
        if interrupted.left > 0:
            assert call > 15
            return
        assert _found(catalog_over(storage).table("db.moved")) == rows, f"struck before call {call}"


def test_the_row_of_a_key_that_was_shown_first_stays_when_a_slower_writer_commits_another() -> None:
    table = _table(**FIRST_ROW)
    with table.writer() as slow:
        slow.write([_row(1, "slow")])
        table.write([_row(9, "fast"), _row(1, "fast")])
        assert _found(table) == [("a", 1, "fast"), ("a", 9, "fast")]
        slow.commit()
    assert _found(table) == [("a", 1, "fast"), ("a", 9, "fast")]
    table.compact(full=True)
    assert _found(table) == [("a", 1, "fast"), ("a", 9, "fast")]

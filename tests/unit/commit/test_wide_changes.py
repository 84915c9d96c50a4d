"""What a commit carries besides rows: changelog files, index files, a watermark, properties, offsets of a log, and
the log beside the table."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

import merganser as mg
from merganser.commit.committable import Committable
from merganser.commit.log import CommitLog
from merganser.commit.message import CommitMessage
from merganser.commit.table_commit import TableCommit
from merganser.errors import CommitUnknownError, ConflictError, FormatError, StorageError
from merganser.files.masks import index_path
from merganser.lsm.abandoned import remove_uncommitted
from merganser.meta.index_manifest import HASH, IndexEntry
from merganser.meta.snapshot import APPEND, COMPACT, OVERWRITE, Snapshot, snapshot_from_json
from merganser.write.sequences import starting_sequences
from merganser.write.start import Start
from merganser.write.target import WriteTarget
from merganser.write.writer import table_writer
from tests.kit.builders import catalog_over, contents, memory_with, with_changelog
from tests.kit.faulty import FaultyStorage

_names = itertools.count()
FUTURE = datetime(2100, 1, 1, tzinfo=UTC)


def _table(**options: str) -> mg.Table:
    catalog = catalog_over(memory_with({}, f"wide-{next(_names)}"))
    catalog.create_database("db")
    options = {"bucket": "2", "write-only": "true", **options}
    return catalog.create_table("db.t", {"k": "INT", "v": "INT"}, primary_key=["k"], options=options)


def _commits(table: mg.Table) -> TableCommit:
    return TableCommit(table.definition, table.env)


def _files(table: mg.Table, *keys: int) -> list[CommitMessage]:
    """Write rows into files without committing them."""
    starts = starting_sequences(table.definition, _commits(table).latest().live, overwrites=False)
    writer = table_writer(table.definition, table.env, Start(starts))
    rows = pa.table({"k": pa.array(keys, pa.int32()), "v": pa.array(keys, pa.int32())})
    writer.write(WriteTarget(table.definition).accepted(rows, None)[0])
    return writer.finish()


def _logged(table: mg.Table, *keys: int) -> list[CommitMessage]:
    return with_changelog(table.definition, table.env, _files(table, *keys))


def _commit(table: mg.Table, messages: list[CommitMessage], *, log: CommitLog | None = None, **how: Any) -> Snapshot:
    snapshot = _commits(table).commit(Committable(messages, "user", **how), log=log)
    assert snapshot is not None
    return snapshot


def _keys(table: mg.Table) -> list[int]:
    return sorted(row["k"] for row in table.read().to_pylist())


def _changelog_files(table: mg.Table) -> set[str]:
    names = {path.rpartition("/")[2] for path in contents(table.env.storage)}
    return {name for name in names if name.startswith("changelog-")}


# changelog files


def test_a_snapshot_names_the_changelog_files_of_its_commit() -> None:
    table = _table()
    first = _commit(table, _logged(table, *range(10)))
    second = _commit(table, _files(table, 77))
    assert first.changelog_record_count == 10
    assert (second.changelog_manifest_list, second.changelog_record_count) == (None, None)
    reader = _commits(table).reader
    [manifests] = reader.changelog_lists([first])
    entries = [entry for entries in reader.entries_of_each(manifests) for entry in entries]
    assert {entry.file.name for entry in entries} == _changelog_files(table)
    assert sum(entry.file.row_count for entry in entries) == 10
    data = table.env.storage.read(table.definition.paths.manifest(first.changelog_manifest_list or ""))
    assert len(data) == first.changelog_manifest_list_size
    assert {entry.file.name for entry in reader.latest().live}.isdisjoint(_changelog_files(table))
    assert _keys(table) == [*range(10), 77]
    assert table.check() == ()


def test_a_commit_of_changelog_files_alone_makes_a_snapshot() -> None:
    table = _table()
    [message] = _logged(table, 1)
    snapshot = _commit(table, [replace(message, added=())], kind=COMPACT)
    assert (snapshot.commit_kind, snapshot.delta_record_count, snapshot.changelog_record_count) == (COMPACT, 0, 1)


def test_changelog_files_live_as_long_as_their_snapshot() -> None:
    table = _table(**{"snapshot.num-retained.min": "1"})
    _commit(table, _logged(table, 1))
    first = _changelog_files(table)
    table.tags.create("kept")
    _commit(table, _logged(table, 2))
    assert table.remove_orphans(older_than=FUTURE) == ()
    assert len(_changelog_files(table)) == 2
    table.expire(retain_max=1, retain_min=1)
    assert len(_changelog_files(table)) == 1
    assert first.isdisjoint(_changelog_files(table))  # a tag keeps the state, not the changelog
    assert table.remove_orphans(older_than=FUTURE) == ()
    assert table.check() == ()
    assert _keys(table) == [1, 2]


def _with_an_expired_snapshot_in_a_tag() -> mg.Table:
    table = _table(**{"snapshot.num-retained.min": "1"})
    _commit(table, _logged(table, 1))
    table.tags.create("kept")
    _commit(table, _logged(table, 2))
    table.expire(retain_max=1, retain_min=1)
    return table


def test_a_branch_of_a_tag_begins_without_the_changelog_that_expired() -> None:
    table = _with_an_expired_snapshot_in_a_tag()
    table.branches.create("b", tag="kept")
    branch = table.branch("b")
    _commit(branch, _logged(branch, 3))
    assert table.check() == ()
    assert table.remove_orphans(older_than=FUTURE) == ()


def test_a_rollback_to_a_tag_brings_a_snapshot_back_without_the_changelog_that_expired() -> None:
    table = _with_an_expired_snapshot_in_a_tag()
    table.rollback(tag="kept")
    assert table.check() == ()
    table.remove_orphans(older_than=FUTURE, dry_run=False)
    _commit(table, _logged(table, 3))
    assert table.check() == ()
    assert _keys(table) == [1, 3]
    assert len(_changelog_files(table)) == 1


def test_changelog_files_that_no_snapshot_names_are_orphans() -> None:
    table = _table()
    _commit(table, _logged(table, 1))
    lost = _logged(table, 2)
    removed = table.remove_orphans(older_than=FUTURE, dry_run=False)
    names = {path.rpartition("/")[2] for path in map(str, removed)}
    assert {file.name for message in lost for file in message.changelog} <= names
    assert len(_changelog_files(table)) == 1


def test_changelog_files_of_a_commit_that_is_given_up_are_removed() -> None:
    table = _table()
    messages = _logged(table, 1, 2, 3)
    remove_uncommitted(table.definition, table.env, messages)
    assert _changelog_files(table) == set()


class _Taken(FaultyStorage):
    """Somebody else takes the next snapshot id just before us, some times."""

    times = 2

    def create(self, path: str, data: bytes) -> None:
        if "/snapshot-" in path and self.times:
            self.times -= 1
            other = catalog_over(self.inner).table("db.t")
            TableCommit(other.definition, other.env).commit(Committable([], commit_user="other", allow_empty=True))
        self.inner.create(path, data)


@pytest.mark.parametrize("overwrites", [False, True])
def test_attempts_leave_one_changelog_list(overwrites: bool) -> None:
    table = _table()
    messages = _logged(table, 1)
    table.env.storage = _Taken(table.env.storage)
    snapshot = _commit(table, messages, overwrites=(lambda live: []) if overwrites else None)
    assert snapshot.id == 3
    assert table.remove_orphans(older_than=FUTURE) == ()
    assert table.check() == ()


# index files


def _index(table: mg.Table, name: str, bucket: int = 0, kind: str = HASH) -> IndexEntry:
    entry = IndexEntry(_files(table, 1)[0].partition, bucket, kind, name, 8, 2)
    table.env.storage.create(index_path(table.definition, entry), bytes(8))
    return entry


def _of(entry: IndexEntry, *gone: IndexEntry) -> CommitMessage:
    return CommitMessage(entry.partition, entry.bucket, 2, (), (), (entry,), gone)


def _indexes(table: mg.Table) -> set[str]:
    commits = _commits(table)
    return {entry.name for entry in commits.reader.index(commits.latest().snapshot)}


def test_an_index_of_hashes_is_replaced_by_bucket_and_rides_along_with_rows() -> None:
    table = _table()
    one, other, next_one = _index(table, "one"), _index(table, "other", bucket=1), _index(table, "next")
    messages = _files(table, *range(10))
    first = _commit(table, [*messages, _of(one), _of(other)])
    assert first.commit_kind == APPEND
    assert _commit(table, [_of(next_one, one)]).commit_kind == APPEND
    assert _indexes(table) == {"next", "other"}
    assert _commit(table, _files(table, 11)).index_manifest is not None
    assert _indexes(table) == {"next", "other"}


def test_an_index_of_hashes_that_somebody_else_replaced_meanwhile_is_not_replaced_unseen() -> None:
    table = _table()
    one, two, three = (_index(table, name) for name in ("one", "two", "three"))
    _commit(table, [_of(one)])
    with pytest.raises(ConflictError, match=r"changed the HASH index of bucket 0 \(first: 'one'\)"):
        _commit(table, [_of(two)])
    _commit(table, [_of(two, one)])
    with pytest.raises(ConflictError, match="changed the HASH index of bucket 0"):
        _commit(table, [_of(three, one)])
    assert _indexes(table) == {"two"}


def test_index_files_of_other_kinds_are_added_and_removed_one_by_one() -> None:
    table = _table()
    one, two, three = (_index(table, name, kind="BTREE") for name in ("one", "two", "three"))
    assert _commit(table, [_of(one), _of(two)]).commit_kind == OVERWRITE
    _commit(table, [_of(three, one)])
    assert _indexes(table) == {"two", "three"}


def test_an_overwrite_takes_the_index_files_of_every_kind_with_the_bucket() -> None:
    table = _table()
    messages = _files(table, *range(10))
    _commit(table, [*messages, _of(_index(table, "hashes")), _of(_index(table, "tree", kind="BTREE"))])
    table.truncate()
    assert _indexes(table) == set()


# watermark, properties, offsets


def test_the_watermark_rises_and_never_falls() -> None:
    table = _table()
    seen = [_commit(table, _files(table, 1), watermark=mark).watermark for mark in (None, 100, 50, None, 200)]
    assert seen == [None, 100, 100, 100, 200]


def test_properties_and_offsets_are_carried_on_and_replaced_by_name() -> None:
    table = _table()
    _commit(table, _files(table, 1), properties={"a": "1", "b": "1"}, log=_Log({0: 10, 1: 20}))
    _commit(table, _files(table, 2), properties={"b": "2"}, log=_Log({1: 25}), identifier=7)
    _commit(table, _files(table, 3))
    found = table.snapshots()[-1]
    mine = {name: text for name, text in (found.properties or {}).items() if not name.startswith("merganser.")}
    assert mine == {"a": "1", "b": "2"}
    assert found.log_offsets == {0: 10, 1: 25}
    path = table.definition.paths.snapshot(3)
    assert snapshot_from_json(table.env.storage.read(path), path) == found
    assert _commits(table).applied("user", 7)[0]


@pytest.mark.parametrize(
    "offsets", [b'"10"', b'{"a": 1}', b'{"0": "1"}', b'{"0": true}', b'{"0": 9223372036854775808}']
)
def test_offsets_that_cannot_be_are_refused(offsets: bytes) -> None:
    table = _table()
    text = _commit(table, _files(table, 1), log=_Log({0: 1})).to_json()
    start = text.index(b'"logOffsets": ') + len(b'"logOffsets": ')
    end = text.index(b"}", start) + 1
    unsealed = text[:start] + offsets + text[end:]
    with pytest.raises(FormatError, match="snapshot-1"):
        snapshot_from_json(unsealed, "snapshot-1")


# the log beside the table


@dataclass
class _Log:
    """Notes what it was told."""

    offsets: Mapping[int, int] = field(default_factory=dict)
    fails: str = ""
    heard: list[Any] = field(default_factory=list)

    def check(self) -> None:
        self._hear("check")

    def prepare(self, snapshot: Snapshot, previous: Snapshot | None) -> Snapshot:
        self._hear(("prepare", snapshot.id, previous and previous.id))
        return replace(snapshot, log_offsets={**(snapshot.log_offsets or {}), **self.offsets} or None)

    def publish(self, snapshot: Snapshot | None) -> None:
        self._hear(("publish", snapshot and snapshot.id))

    def drop(self) -> None:
        self._hear("drop")

    def _hear(self, what: Any) -> None:
        self.heard.append(what)
        if self.fails and self.fails in str(what):
            raise StorageError("the log is away")


def test_a_log_prepares_a_snapshot_shows_it_once_it_stands_and_its_offsets_are_there() -> None:
    table, log = _table(), _Log({0: 5})
    assert _commit(table, _files(table, 1), log=log).log_offsets == {0: 5}
    assert log.heard == [("prepare", 1, None), ("publish", 1), "drop"]


def test_each_attempt_prepares_its_own_snapshot() -> None:
    table = _table()
    messages, log = _files(table, 1), _Log({0: 5})
    table.env.storage = _Taken(table.env.storage)
    assert _commit(table, messages, log=log).log_offsets == {0: 5}
    assert log.heard == [
        ("prepare", 1, None), "drop", ("prepare", 2, 1), "drop", ("prepare", 3, 2), ("publish", 3), "drop",
    ]  # fmt: skip


def test_a_commit_that_changes_nothing_prepares_nothing() -> None:
    table, log = _table(), _Log()
    assert _commits(table).commit(Committable([], "user"), log=log) is None
    assert log.heard == ["drop"]


def test_a_commit_that_was_applied_before_is_shown_in_case_it_was_not() -> None:
    table = _table()
    _commit(table, _files(table, 1), identifier=1)
    log = _Log()
    _commit(table, _files(table, 1), identifier=1, log=log)
    assert log.heard == [("publish", 1), "drop"]


@pytest.mark.parametrize("error", [StorageError("the log is away"), OSError("no route to the broker")])
def test_a_log_that_cannot_prepare_fails_the_commit(error: Exception) -> None:
    class Broken(_Log):
        def prepare(self, snapshot: Snapshot, previous: Snapshot | None) -> Snapshot:
            raise error

    table, log = _table(), Broken()
    with pytest.raises(type(error), match=str(error)):
        _commit(table, _files(table, 1), log=log)
    assert log.heard == ["drop"]
    assert table.snapshots() == ()


def test_a_conflict_found_at_once_prepares_nothing_and_one_found_later_drops_it() -> None:
    table = _table(**{"commit.max-retries": "1", "commit.max-retry-wait": "0 ms"})
    first = _files(table, 1)
    _commit(table, first)
    log = _Log()
    with pytest.raises(ConflictError):
        _commit(table, first, log=log)
    assert log.heard == ["drop"]
    messages = _files(table, 2)
    table.env.storage = _Taken(table.env.storage)
    with pytest.raises(ConflictError, match="2 times in a row"):
        _commit(table, messages, log=log)
    assert log.heard[-1] == "drop"
    assert "publish" not in str(log.heard)


def test_a_log_that_does_not_show_a_commit_does_not_fail_it(caplog: pytest.LogCaptureFixture) -> None:
    table, log = _table(), _Log(fails="publish")
    with caplog.at_level(logging.WARNING):
        _commit(table, _files(table, 1), log=log)
    assert "its log does not show it yet" in caplog.text
    assert _keys(table) == [1]


class _Unsure(FaultyStorage):
    """Loses the reply of the create of a snapshot, and fails the reads after it."""

    def create(self, path: str, data: bytes) -> None:
        self.inner.create(path, data)
        if "/snapshot-" in path:
            raise StorageError("the reply was lost", path=path)

    def read(self, path: str) -> bytes:
        if "/snapshot-" in path:
            raise StorageError("the network is down", path=path)
        return self.inner.read(path)


def test_a_commit_of_unknown_outcome_is_dropped_from_the_log_and_shown_by_its_repeat() -> None:
    table, log = _table(), _Log({0: 9})
    messages, storage = _logged(table, 1), table.env.storage
    table.env.storage = _Unsure(storage)
    change = Committable(messages, "user", uuid="u-1")
    with pytest.raises(CommitUnknownError):
        _commits(table).commit(change, log=log)
    assert log.heard == [("prepare", 1, None), "drop"]
    table.env.storage = storage
    snapshot = _commits(table).commit(replace(change, since=1), log=log)
    assert snapshot is not None
    assert (snapshot.id, snapshot.log_offsets) == (1, {0: 9})
    assert log.heard[2:] == [("publish", 1), "drop"]
    assert len(table.snapshots()) == 1

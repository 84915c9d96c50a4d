"""The commits: what a snapshot says, what may follow what, and who applied what."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, ClassVar

import pytest

import merganser as mg
from merganser.commit.committable import Committable
from merganser.commit.conflict import check_removals, check_total_buckets
from merganser.commit.message import CommitMessage
from merganser.commit.table_commit import TableCommit
from merganser.errors import ConflictError, FormatError, InvalidInputError, StorageError
from merganser.meta.snapshot import APPEND, BATCH_IDENTIFIER, COMPACT, OVERWRITE
from merganser.meta.table_state import MetaReader
from merganser.storage.env import Env
from merganser.write.begin import begin
from merganser.write.sequences import starting_sequences
from merganser.write.start import Start
from merganser.write.target import WriteTarget
from merganser.write.writer import table_writer
from tests.kit.builders import catalog_over, contents, memory_with
from tests.kit.faulty import Fault, FaultyStorage, Plan

_names = itertools.count()
WEST = timezone(timedelta(hours=-5))


def _table(**options: str) -> mg.Table:
    catalog = catalog_over(memory_with({}, f"publish-{next(_names)}"))
    catalog.create_database("db")
    return catalog.create_table("db.t", {"k": "INT", "v": "INT"}, primary_key=["k"], options={"bucket": "1", **options})


def _row(k: int, v: int = 0) -> list[dict[str, int]]:
    return [{"k": k, "v": v}]


def _files(table: mg.Table, *keys: int) -> list[CommitMessage]:
    """Write rows into files without committing them."""
    live = MetaReader(table.definition.paths, table.env, table.name).latest().live
    writer = table_writer(
        table.definition, table.env, Start(starting_sequences(table.definition, live, overwrites=False))
    )
    target = WriteTarget(table.definition)
    import pyarrow as pa

    writer.write(target.accepted(pa.table({"k": pa.array(keys, pa.int32()), "v": pa.array(keys, pa.int32())}), None)[0])
    return writer.finish()


def _keys(table: mg.Table) -> list[int]:
    return sorted(row["k"] for row in table.read().to_pylist())


def test_snapshots_count_rows_and_name_the_commit() -> None:
    table = _table()
    first = table.write([*_row(1), *_row(2)], commit_user="job", identifier=4)
    second = table.write(_row(3), overwrite={})
    assert first is not None
    assert second is not None
    assert (first.id, first.commit_user, first.commit_identifier, first.commit_kind) == (1, "job", 4, APPEND)
    assert (first.total_record_count, first.delta_record_count) == (2, 2)
    assert (second.id, second.commit_identifier, second.commit_kind) == (2, BATCH_IDENTIFIER, OVERWRITE)
    assert (second.total_record_count, second.delta_record_count) == (1, -1)
    assert table.snapshots() == (first, second)


def test_an_identifier_at_or_below_the_last_one_is_applied_already() -> None:
    table = _table()
    done = [table.write(_row(k), commit_user="job", identifier=k) for k in (1, 3, 4)]
    commits = TableCommit(table.definition, table.env)
    assert commits.applied("job", 3) == (True, done[1])
    assert commits.applied("job", 2) == (True, None)
    assert commits.applied("job", 5) == (False, None)
    assert commits.applied("other", 1) == (False, None)
    assert commits.applied("job", BATCH_IDENTIFIER) == (False, None)
    assert table.write(_row(9), commit_user="job", identifier=3) == done[1]
    assert _keys(table) == [1, 3, 4]


def test_batch_commits_under_the_same_name_say_nothing_of_identifiers() -> None:
    table = _table()
    table.write(_row(1), commit_user="job")
    table.write(_row(2), commit_user="job", identifier=0)
    table.write(_row(3), commit_user="job")
    assert TableCommit(table.definition, table.env).applied("job", 1) == (False, None)
    assert table.write(_row(4), commit_user="job", identifier=1) is not None
    assert _keys(table) == [1, 2, 3, 4]


def test_the_first_of_two_snapshots_of_one_commit_is_the_one_returned() -> None:
    table = _table()
    append = table.write(_row(1), commit_user="job", identifier=1)
    commits = TableCommit(table.definition, table.env)
    [entry] = MetaReader(table.definition.paths, table.env, table.name).latest().live
    moved = CommitMessage(entry.partition, 0, 1, (replace(entry.file, level=5),), (entry.file,))
    compact = Committable([moved], commit_user="compactor", identifier=1, kind=COMPACT)
    second = commits.commit(compact)
    assert second is not None
    assert second.commit_kind == COMPACT
    assert commits.applied("job", 1) == (True, append)


def test_files_that_were_removed_meanwhile_cannot_be_removed_again() -> None:
    table = _table()
    table.write(_row(1))
    [entry] = MetaReader(table.definition.paths, table.env, table.name).latest().live
    table.truncate()
    before = contents(table.env.storage)
    change = Committable([CommitMessage(entry.partition, 0, 1, (), (entry.file,))], commit_user="c", kind=COMPACT)
    with pytest.raises(ConflictError, match="removed 1 of the 1 files that this change replaces") as caught:
        TableCommit(table.definition, table.env).commit(change)
    assert entry.file.name in str(caught.value)
    assert contents(table.env.storage) == before


def test_files_cannot_be_added_twice() -> None:
    """A driver that commits the messages of its tasks once more must not spoil the table."""
    table = _table()
    messages = _files(table, 1, 2)
    begin(table.definition, table.env, commit_user="a").finish(messages)
    with pytest.raises(ConflictError, match="the table already holds the files"):
        begin(table.definition, table.env, commit_user="b").finish(messages, keep_files=True)
    assert _keys(table) == [1, 2]


def test_messages_that_are_published_again_under_their_identifier_keep_their_files() -> None:
    table = _table()
    messages = _files(table, 1, 2)
    transaction = begin(table.definition, table.env, commit_user="driver", identifier=7)
    first = transaction.finish(messages)
    assert transaction.finish(messages) == first
    assert _keys(table) == [1, 2]


def test_a_commit_that_a_twin_made_first_leaves_no_files_of_its_own() -> None:
    table = _table()
    table.write(_row(1), commit_user="job", identifier=1)
    before = contents(table.env.storage)
    with table.writer(commit_user="job") as writer:
        writer.write(_row(1))
        assert writer.commit(identifier=1) is not None
    assert contents(table.env.storage) == before


def test_a_commit_without_changes_makes_no_snapshot_unless_it_is_asked_to() -> None:
    table = _table()
    assert table.write([]) is None
    assert table.truncate() is None
    assert table.snapshots() == ()
    for option in ({"commit.force-create-snapshot": "true"}, {"snapshot.ignore-empty-commit": "false"}):
        snapshot = table.with_options(option).write([])
        assert snapshot is not None
        assert (snapshot.commit_kind, snapshot.delta_record_count) == (APPEND, 0)
    assert table.read().count() == 0


class _Taken(FaultyStorage):
    """Somebody else takes every snapshot id just before us."""

    def create(self, path: str, data: bytes) -> None:
        if "/snapshot-" in path:
            other = catalog_over(self.inner).table("db.t")
            TableCommit(other.definition, other.env).commit(Committable([], commit_user="other", allow_empty=True))
        self.inner.create(path, data)


def test_a_commit_that_always_loses_gives_up_with_nothing_left_behind() -> None:
    table = _table(**{"commit.max-retries": "3", "commit.max-retry-wait": "0 ms"})
    table.write(_row(1))
    before = contents(table.env.storage)
    table.env.storage = _Taken(table.env.storage)
    with pytest.raises(ConflictError, match="4 times in a row"):
        table.write(_row(2))
    left = sorted(path.rpartition("/")[2] for path in set(contents(table.env.storage)) - set(before))
    assert [name for name in left if name.startswith("snapshot-")] == [f"snapshot-{n}" for n in range(2, 6)]
    assert len([name for name in left if name.startswith("manifest-list-")]) == 2 * 4
    assert len(left) == 3 * 4


def test_a_commit_gives_up_after_its_timeout() -> None:
    table = _table(**{"commit.max-retries": "1000", "commit.timeout": "0 ms"})
    table.write(_row(1))
    table.env.storage = _Taken(table.env.storage)
    with pytest.raises(ConflictError, match="1 times in a row"):
        table.write(_row(2))


def _waits(*, drawn: float, **options: str) -> list[float]:
    """Return how long a writer waits that always loses, in milliseconds; an attempt takes 1 second.

    Args:
        drawn: the random number that each wait draws.
    """
    table = _table(**{"commit.max-retries": "12", **options})
    waits: list[float] = []
    now = [0.0]

    class Env(type(table.env)):  # type: ignore[misc]
        def sleep_ms(self, duration_ms: float) -> None:
            waits.append(duration_ms)

        def seconds(self) -> float:
            return now[0]

    class Slow(_Taken):
        def create(self, path: str, data: bytes) -> None:
            now[0] += "/snapshot-" in path
            super().create(path, data)

    table.write(_row(1))
    env = Env(Slow(table.env.storage), threads=1)
    env.random.random = lambda: drawn  # type: ignore[method-assign]
    with pytest.raises(ConflictError):
        replace(table, env=env).write(_row(2))
    return waits


def test_waits_go_with_the_time_of_an_attempt_and_who_has_waited_longest_waits_least() -> None:
    waits = _waits(drawn=1, **{"commit.min-retry-wait": "1 ms", "commit.max-retry-wait": "1000 s"})
    attempts = [wait / waits[0] * 4 for wait in waits]
    assert attempts == [4, 32, 16, 8, 4, 2, 32, 16, 8, 4, 2, 32]


def test_waits_keep_to_their_limits() -> None:
    limits = {"commit.min-retry-wait": "10 ms", "commit.max-retry-wait": "1 s"}
    assert set(_waits(drawn=1, **limits)) == {1000}
    assert set(_waits(drawn=0, **limits)) == {10}


def test_a_commit_tries_for_as_long_as_its_waits_would_take_if_they_doubled() -> None:
    table = _table(**{"commit.max-retries": "7", "commit.max-retry-wait": "100 s"})  # 10 ms x (2^7 - 1)
    table.write(_row(1))
    env = _clocked(_Taken(table.env.storage))
    env.random.random = lambda: 0
    with pytest.raises(ConflictError, match=r"(\d\d) times in a row"):
        replace(table, env=env).write(_row(2))
    assert 1.27 <= env.seconds() < 4


def _clocked(storage: Any) -> Any:
    """Return an environment whose clock moves by its waits, and 10 ms each time it is asked; `slept` has the waits."""
    now = [0.0]

    class Clocked(Env):
        slept: ClassVar[list[float]] = []

        def sleep_ms(self, duration_ms: float) -> None:
            self.slept.append(duration_ms)
            now[0] += duration_ms / 1000

        def seconds(self) -> float:
            now[0] += 0.01
            return now[0]

        def pause(self, seconds: float) -> None:
            now[0] += seconds

    return Clocked(storage, threads=1)


class _TakenSometimes(_Taken):
    """Somebody else takes the next ids, as many as `losses` says."""

    losses = 0

    def create(self, path: str, data: bytes) -> None:
        if "/snapshot-" in path and self.losses:
            self.losses -= 1
            super().create(path, data)
        self.inner.create(path, data)


@pytest.mark.parametrize(("losses", "pause_s", "waits"), [(1, 0, 0), (2, 0, 1), (2, 1000, 0)])
def test_a_writer_that_met_many_others_leaves_them_the_next_turn(losses: int, pause_s: int, waits: int) -> None:
    table = _table(**{"commit.max-retry-wait": "1000 s"})
    store = _TakenSometimes(table.env.storage)
    env = _clocked(store)
    env.random.random = lambda: 1
    table = replace(table, env=env)
    table.write(_row(1))
    store.losses = losses
    table.write(_row(2))
    env.slept.clear()
    env.pause(pause_s)
    table.write(_row(3))
    assert len(env.slept) == waits
    table.write(_row(4))
    assert len(env.slept) == waits, "one turn is enough"


def test_what_is_not_known_of_a_snapshot_is_carried_to_the_next() -> None:
    table = _table()
    first = table.write(_row(1))
    assert first is not None
    path = table.definition.paths.snapshot(1)
    changed = replace(first, watermark=77, properties={"a": "b"}, next_row_id=5, statistics="stat-1")
    table.env.storage.replace(path, changed.to_json())
    second = table.write(_row(2))
    assert second is not None
    assert (second.watermark, second.properties, second.next_row_id, second.statistics) == (77, {"a": "b"}, 5, "stat-1")


def test_rows_of_an_older_snapshot_that_does_not_count_them_are_counted() -> None:
    table = _table()
    first = table.write([*_row(1), *_row(2)])
    assert first is not None
    table.env.storage.replace(table.definition.paths.snapshot(1), replace(first, total_record_count=None).to_json())
    second = table.write(_row(3))
    assert second is not None
    assert second.total_record_count == 3


def test_a_store_that_sends_a_create_twice_below_us_does_no_harm() -> None:
    class Twice(FaultyStorage):
        def create(self, path: str, data: bytes) -> None:
            self.inner.create(path, data)
            self.inner.create(path, data)

    table = _table()
    table.env.storage = Twice(table.env.storage)
    assert table.write(_row(1)) is not None
    assert _keys(table) == [1]


def test_a_failing_hint_does_not_fail_the_commit() -> None:
    table = _table()
    table.env.storage = FaultyStorage(table.env.storage, Plan(Fault.FAIL, 1, 99, frozenset({"replace"}), "LATEST"))
    assert table.write(_row(1)) is not None
    assert _keys(table) == [1]


def test_files_of_a_failed_commit_are_removed_but_its_error_is_the_one_told() -> None:
    table = _table()
    faulty = FaultyStorage(table.env.storage, Plan(Fault.FAIL, 1, 99, frozenset({"replace", "delete"}), "/manifest/"))
    table.env.storage = faulty
    with pytest.raises(StorageError, match="replace"):
        table.write(_row(1))


def test_thousands_of_commits_leave_few_manifests() -> None:
    table = _table(**{"manifest.merge-min-count": "5"})
    for number in range(60):
        table.write(_row(number % 7, number))
    assert table.system("manifests").count() <= 5 * 3
    assert sorted(row["v"] for row in table.read().to_pylist()) == list(range(53, 60))


@pytest.mark.parametrize("total", [2, -1])
def test_partitions_keep_their_number_of_buckets(total: int) -> None:
    table = _table()
    table.write(_row(1))
    live = MetaReader(table.definition.paths, table.env, table.name).latest().live
    [entry] = live
    message = CommitMessage(entry.partition, 0, total, (replace(entry.file, name="new"),))
    if total > 0:
        with pytest.raises(InvalidInputError, match="files of 1 buckets, and this write goes by 'bucket' = '2'"):
            check_total_buckets(message.entries(), live, table="t")
    else:
        check_total_buckets(message.entries(), live, table="t")
    check_removals(message.entries(), live, table="t", snapshot=1)


def test_changes_are_values_that_pickle() -> None:
    import pickle

    table = _table()
    messages: Any = _files(table, 1)
    assert pickle.loads(pickle.dumps(messages)) == messages


def test_a_commit_whose_partition_was_moved_to_other_buckets_meanwhile_lost_a_race() -> None:
    table = _table()
    messages = [replace(message, total_buckets=2) for message in _files(table, 2)]
    table.write(_row(1))
    with pytest.raises(ConflictError, match=r"written into 2 buckets, and another commit up to snapshot 1 .* to 1"):
        TableCommit(table.definition, table.env).commit(Committable(messages=messages, commit_user="late"))
    assert _keys(table) == [1]


STRICT = "commit.strict-mode.last-safe-snapshot"


def _append_table(**options: str) -> mg.Table:
    catalog = catalog_over(memory_with({}, f"publish-{next(_names)}"))
    catalog.create_database("db")
    return catalog.create_table("db.t", {"k": "INT"}, options=options)


def test_strict_mode_refuses_what_follows_a_foreign_overwrite() -> None:
    table = _append_table()
    table.write([{"k": 1}], commit_user="me")
    table.write([{"k": 2}], overwrite={}, commit_user="other")
    before = contents(table.env.storage)
    strict = table.with_options({STRICT: "1"})
    for overwrite in (None, dict[str, Any]()):
        with pytest.raises(ConflictError, match=r"snapshot 2 \(OVERWRITE\) of .* 'other' came after snapshot 1"):
            strict.write([{"k": 3}], commit_user="me", overwrite=overwrite)
    with pytest.raises(ConflictError, match="snapshot 2"):
        strict.truncate()
    assert contents(table.env.storage) == before
    assert table.with_options({STRICT: "2"}).write([{"k": 3}], commit_user="me") is not None


def test_strict_mode_lets_own_commits_and_rows_without_buckets_pass() -> None:
    table = _append_table()
    table.write([{"k": 1}], commit_user="other")
    table.write([{"k": 2}], overwrite={}, commit_user="me")
    assert table.with_options({STRICT: "0"}).write([{"k": 3}], commit_user="me") is not None


def test_strict_mode_refuses_what_follows_foreign_rows_in_fixed_buckets() -> None:
    table = _table()
    table.write(_row(1), commit_user="other")
    with pytest.raises(ConflictError, match="APPEND to fixed buckets"):
        table.with_options({STRICT: "0"}).write(_row(2), commit_user="me")


def test_strict_mode_of_minus_one_begins_with_the_first_commit_of_a_writer() -> None:
    table = _table()
    table.write(_row(1), commit_user="other")
    with table.with_options({STRICT: "-1"}).writer(commit_user="me") as writer:
        writer.write(_row(2))
        assert writer.commit() is not None
        writer.write(_row(3))
        assert writer.commit() is not None
        table.write(_row(4), commit_user="other")
        writer.write(_row(5))
        with pytest.raises(ConflictError, match=r"snapshot 4 .* after snapshot 3"):
            writer.commit()
    assert _keys(table) == [1, 2, 3, 4]


def test_strict_mode_does_not_trust_snapshots_that_have_expired() -> None:
    table = _append_table()
    for k in range(3):
        table.write([{"k": k}])
    table.env.storage.delete([f"{table.path}/snapshot/snapshot-{number}" for number in (1, 2)])
    with pytest.raises(ConflictError, match="snapshots 1 to 2 cannot be checked"):
        catalog_over(table.env.storage).table("db.t").with_options({STRICT: "0"}).write([{"k": 9}])
    table.with_options({STRICT: "0"}).write([{"k": 9}])  # a process that knows them needs no file


@pytest.mark.parametrize("when", [datetime(1969, 12, 31, tzinfo=UTC), datetime(9999, 12, 31, 23, tzinfo=WEST), 5])
def test_a_clock_that_no_snapshot_can_be_of_is_refused_before_anything_is_written(when: Any) -> None:
    table = _table()
    table.write(_row(1))
    before = contents(table.env.storage)
    late = catalog_over(table.env.storage, clock=lambda: when).table("db.t")
    with pytest.raises(InvalidInputError, match="the clock"):
        late.write(_row(2))
    assert contents(table.env.storage) == before
    assert _keys(table) == [1]


def test_rows_whose_place_is_never_found_are_not_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each state expires while the change is fitted to it, as beside a very eager expiry."""
    table = _table()
    messages = _files(table, 1)
    asked = []

    def adapt(state: Any) -> Any:
        asked.append(state.next_id)
        raise FormatError("a manifest of the state is gone")

    commit = TableCommit(table.definition, table.env)
    monkeypatch.setattr(TableCommit, "_has_expired", lambda *_: True)
    with pytest.raises(FormatError, match="is gone"):
        commit.commit(Committable(messages, "user", 1, APPEND, adapt=adapt))
    assert len(asked) == 4
    assert table.latest_snapshot() is None

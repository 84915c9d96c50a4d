"""Transactions: what every way of writing has in common, once its files are written."""

from __future__ import annotations

import itertools
import pickle
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

import merganser as mg
from merganser.errors import CommitUnknownError, ConflictError, InvalidInputError, MerganserError, StorageError
from merganser.lsm.record_log import RecordLogJob
from merganser.meta.snapshot import BATCH_IDENTIFIER
from merganser.storage.protocol import Storage
from merganser.write.begin import begin
from merganser.write.job import messages_of
from merganser.write.transaction import Transaction
from tests.kit.builders import catalog_over, contents, memory_with
from tests.kit.faulty import FaultyStorage, Stopped

_names = itertools.count()
ONE_SNAPSHOT = {
    "snapshot.num-retained.min": "1",
    "snapshot.num-retained.max": "1",
    "snapshot.expire.execution-mode": "sync",
}


def _table(**options: str) -> mg.Table:
    catalog = catalog_over(memory_with({}, f"transaction-{next(_names)}"))
    catalog.create_database("db")
    options = {"bucket": "1", **options}
    return catalog.create_table(
        "db.t", {"p": "STRING", "k": "INT"}, primary_key=["p", "k"], partition_by=["p"], options=options
    )


def _row(k: int, p: str = "2020-01-01") -> list[dict[str, Any]]:
    return [{"p": p, "k": k}]


def _written(transaction: Transaction, k: int) -> list[Any]:
    """Write a row as a task does and return the messages."""
    job = pickle.loads(pickle.dumps(transaction.job()))
    rows = pa.table({"p": ["2020-01-01"], "k": pa.array([k], pa.int32())})
    return messages_of(transaction.table, transaction.env, [job.run([rows])])


def _begin(table: mg.Table, **how: Any) -> Transaction:
    return begin(table.definition, table.env, **how)


def test_dropped_partitions_are_followed_by_what_is_owed_after_a_commit() -> None:
    table = _table(**ONE_SNAPSHOT)
    table.write([*_row(1), *_row(2, "b")])
    assert table.drop_partitions([{"p": "b"}]) is not None
    assert [snapshot.id for snapshot in table.snapshots()] == [2]


def test_a_truncated_table_is_followed_by_what_is_owed_after_a_commit() -> None:
    table = _table(**ONE_SNAPSHOT)
    table.write(_row(1))
    assert table.truncate() is not None
    assert [snapshot.id for snapshot in table.snapshots()] == [2]


def test_expired_partitions_are_followed_by_what_is_owed_after_a_commit() -> None:
    table = _table(**ONE_SNAPSHOT)
    table.write(_row(1))
    assert table.with_options({"partition.expiration-time": "1 d"}).expire_partitions() == ({"p": "2020-01-01"},)
    assert [snapshot.id for snapshot in table.snapshots()] == [2]


def test_partitions_that_expire_after_a_commit_are_one_more_commit_and_not_many() -> None:
    table = _table(**ONE_SNAPSHOT, **{"partition.expiration-time": "1 d"})
    table.write([*_row(1), *_row(2, "2999-01-01")])
    assert [(snapshot.id, snapshot.commit_kind) for snapshot in table.snapshots()] == [(2, "OVERWRITE")]
    assert table.read().to_pylist() == _row(2, "2999-01-01")


@pytest.mark.parametrize("producer", ["lookup", "full-compaction"])
def test_a_repeat_publishes_what_its_first_call_was_stopped_before(producer: str) -> None:
    table = _table(**{"changelog-producer": producer})
    table.with_options({"write-only": "true"}).write(_row(1), commit_user="u", identifier=1)
    assert not table.changes(1).to_pylist()
    for _ in range(2):
        table.write(_row(1), commit_user="u", identifier=1)
        assert [row["_row_kind"] for row in table.changes(1).to_pylist()] == ["+I"]


def test_nothing_committed_is_followed_by_nothing() -> None:
    table = _table(**ONE_SNAPSHOT)
    table.with_options({"write-only": "true"}).write(_row(1))
    table.with_options({"write-only": "true"}).write(_row(2))
    assert table.write([]) is None
    assert len(table.snapshots()) == 2


def test_a_copy_of_a_transaction_finishes_what_tasks_wrote() -> None:
    table = _table()
    transaction = _begin(table, commit_user="job", identifier=4)
    copy = pickle.loads(pickle.dumps(transaction))
    snapshot = copy.finish(_written(transaction, 1))
    assert (snapshot.commit_user, snapshot.commit_identifier, snapshot.uuid) == ("job", 4, transaction.uuid)
    assert _begin(table, commit_user="job", identifier=4).applied() == (True, table.latest_snapshot())
    assert table.read().to_pylist() == _row(1)


def test_a_commit_that_another_process_makes_after_the_look_is_found_when_it_is_made_again() -> None:
    table = _table()
    table.write(_row(9))
    with patch("merganser.meta.table_state._FRESH_S", 1_000_000.0):
        ours, twin = (_begin(table, commit_user="job", identifier=4) for _ in range(2))
        messages = _written(ours, 1)
        made = twin.finish(_written(twin, 1))
        assert ours.applied() == (False, None)  # it answers from its look
        assert ours.finish(messages) == made
    assert table.read().to_pylist() == [*_row(1), *_row(9)]
    assert len(table.snapshots()) == 2


@pytest.mark.parametrize(
    "how", [{}, {"overwrite": {}}, {"overwrite": "dynamic"}, {"commit_user": "u", "identifier": 1}]
)
def test_a_copy_that_finishes_once_more_applies_nothing_and_removes_nothing(how: dict[str, Any]) -> None:
    table = _table()
    transaction = _begin(table, **how)
    messages = _written(transaction, 1)
    copy = pickle.loads(pickle.dumps(transaction))
    first = transaction.finish(messages)
    table.write(_row(2))
    assert transaction.finish(messages) == copy.finish(messages) == first
    assert table.read().to_pylist() == [*_row(1), *_row(2)]
    assert len(table.snapshots()) == 2


def test_a_copy_that_finishes_after_its_snapshot_has_expired_removes_nothing() -> None:
    table = _table(**ONE_SNAPSHOT)
    transaction = _begin(table, commit_user="job", identifier=4)
    messages = _written(transaction, 1)
    copy = pickle.loads(pickle.dumps(transaction))
    assert transaction.finish(messages) is not None
    table.write(_row(2))
    assert len(table.snapshots()) == 1
    assert copy.finish(messages) is None
    assert table.read().to_pylist() == [*_row(1), *_row(2)]


def test_a_copy_whose_snapshot_without_identifier_has_expired_is_refused_and_removes_nothing() -> None:
    table = _table(**ONE_SNAPSHOT)
    transaction = _begin(table)
    messages = _written(transaction, 1)
    copy = pickle.loads(pickle.dumps(transaction))
    transaction.finish(messages)
    table.write(_row(2))
    with pytest.raises(ConflictError, match="These rows are committed"):
        copy.finish(messages)
    assert table.read().to_pylist() == [*_row(1), *_row(2)]


def test_a_twin_leaves_none_of_its_files_and_is_followed_by_what_is_owed() -> None:
    table = _table()
    late = _begin(table, commit_user="job", identifier=4)
    messages = _written(late, 1)
    first = table.write(_row(1), commit_user="job", identifier=4)
    assert late.finish(messages) == first
    assert len([path for path in contents(table.env.storage) if "/bucket-0/" in path]) == 1
    late.abort(messages)  # Spark may ask for it after all
    assert table.read().to_pylist() == _row(1)


@pytest.mark.parametrize("engine", ["deduplicate", "aggregation"])
def test_a_copy_that_finishes_while_changes_are_found_out_loses_no_file(engine: str) -> None:
    """The copy removes the rows as they came, which this one is about to read."""
    table = _table(**{"changelog-producer": "per-record", "merge-engine": engine})
    transaction = _begin(table)
    messages = [*_written(transaction, 1)]
    copies = [pickle.loads(pickle.dumps(transaction))]
    run = RecordLogJob.run

    def late(self: RecordLogJob, *arguments: Any) -> Any:
        if copies:
            copies.pop().finish(messages)
        return run(self, *arguments)

    with patch.object(RecordLogJob, "run", late):
        assert transaction.finish(messages) == table.latest_snapshot()
    assert len(table.snapshots()) == 1
    assert table.read().to_pylist() == _row(1)
    assert table.check() == ()
    assert len([path for path in contents(table.env.storage) if "/bucket-0/" in path]) == 2


def test_a_copy_removes_the_rows_as_they_came_that_a_stopped_process_left() -> None:
    table = _table(**{"changelog-producer": "per-record"})
    transaction = _begin(table)
    rows = pa.table({"p": ["a", "a"], "k": pa.array([1, 1], pa.int32())})
    messages = messages_of(table.definition, table.env, [transaction.job().run([rows])])
    copy = pickle.loads(pickle.dumps(transaction))
    with patch.object(Transaction, "_remove_unnamed", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        transaction.finish(messages)
    assert [path for path in contents(table.env.storage) if "/received-" in path]
    assert copy.finish(messages) == table.latest_snapshot()
    assert not [path for path in contents(table.env.storage) if "/received-" in path]
    assert table.check() == ()


def test_files_of_an_aborted_transaction_are_gone() -> None:
    table = _table()
    before = contents(table.env.storage)
    transaction = _begin(table)
    messages = _written(transaction, 1)
    assert contents(table.env.storage) != before
    transaction.abort(messages)
    assert contents(table.env.storage) == before


def test_files_of_a_refused_commit_are_gone() -> None:
    table = _table()
    transaction = _begin(table)
    messages = _written(transaction, 1)
    table.env.storage.delete_tree(table.path)
    with pytest.raises(MerganserError):
        transaction.finish(messages)
    assert not [path for path in contents(table.env.storage) if "/bucket-0/" in path]


def test_a_write_whose_files_are_gone_is_not_committed() -> None:
    table = _table()
    transaction = _begin(table)
    messages = _written(transaction, 1)
    transaction.abort(messages)
    with pytest.raises(InvalidInputError, match="the files of this write were removed"):
        transaction.finish(messages)
    assert table.latest_snapshot() is None


class _Silent(FaultyStorage):
    """The snapshot is made, and then the store answers no more."""

    def __init__(self, inner: Storage, answer: BaseException) -> None:
        super().__init__(inner)
        self.answer = answer
        self.silent = False

    def create(self, path: str, data: bytes) -> None:
        self.inner.create(path, data)
        if "/snapshot-" in path:
            self.silent = True
            raise self.answer

    def read(self, path: str) -> bytes:
        if self.silent:
            raise self.answer
        return self.inner.read(path)


@pytest.mark.parametrize(("answer", "raised"), [(StorageError("lost"), CommitUnknownError), (Stopped(), Stopped)])
def test_files_of_a_commit_that_may_stand_are_kept_and_a_repeat_applies_it_once(
    answer: BaseException, raised: type[BaseException]
) -> None:
    table = _table()
    transaction = _begin(table)
    messages = _written(transaction, 1)
    whole = table.env.storage
    table.env.storage = _Silent(whole, answer)
    with pytest.raises(raised):
        transaction.finish(messages)
    table.env.storage = whole
    transaction.abort(messages)
    assert table.read().to_pylist() == _row(1)
    assert transaction.finish(messages) == table.latest_snapshot()
    assert len(table.snapshots()) == 1


def test_a_writer_in_strict_mode_counts_from_its_own_last_commit() -> None:
    table = _table(**{"commit.strict-mode.last-safe-snapshot": "0"})
    with table.writer() as writer:
        writer.write(_row(1))
        assert writer.commit() is not None
        other = table.with_options({"commit.strict-mode.last-safe-snapshot": "-1"})
        other.drop_partitions([{"p": "2020-01-01"}])
        writer.write(_row(2))
        with pytest.raises(ConflictError):
            writer.commit()


def test_a_drop_of_nothing_is_a_commit_where_empty_ones_are_asked_for() -> None:
    table = _table()
    assert table.drop_partitions([{"p": "none"}]) is None
    snapshot = table.with_options({"commit.force-create-snapshot": "true"}).drop_partitions([{"p": "none"}])
    assert snapshot is not None
    assert (snapshot.commit_kind, snapshot.commit_identifier) == ("OVERWRITE", BATCH_IDENTIFIER)

"""Writers that overlap in time: the one that commits later has the newer rows, and no file is left over."""

from __future__ import annotations

import itertools
import pickle
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

import merganser as mg
from merganser.errors import CommitUnknownError, ConflictError, StorageError
from merganser.meta.layout import bucket_numbers
from merganser.storage.protocol import Storage
from merganser.write.begin import begin
from merganser.write.job import messages_of
from merganser.write.transaction import Transaction
from tests.kit.builders import catalog_over, contents, memory_with
from tests.kit.faulty import FaultyStorage

_names = itertools.count()
COLUMNS = {"k": "INT", "v": "STRING"}


def _table(*, keyed: bool = True, **options: str) -> mg.Table:
    catalog = catalog_over(memory_with({}, f"renumber-{next(_names)}"))
    catalog.create_database("db")
    options = {"bucket": "1", **options}
    key = ["k"] if keyed else []
    return catalog.create_table("db.t", COLUMNS, primary_key=key, options=options)


def _rows(v: str, keys: Any = range(10)) -> pa.Table:
    return pa.table({"k": pa.array(keys, pa.int32()), "v": [v] * len(keys)})


def _data_files(table: mg.Table) -> set[str]:
    return {path.rpartition("/")[2] for path in contents(table.env.storage) if "/bucket-" in path}


def _live_files(table: mg.Table) -> set[str]:
    return {row["file_path"].rpartition("/")[2] for row in table.system("files").to_pylist()}


def _ranges(table: mg.Table) -> list[tuple[int, int]]:
    files = table.system("files").to_pylist()
    return sorted((file["min_sequence_number"], file["max_sequence_number"]) for file in files)


def _written(transaction: Transaction, rows: pa.Table) -> list[Any]:
    """Write rows as a task does and return the messages."""
    job = pickle.loads(pickle.dumps(transaction.job()))
    return messages_of(transaction.table, transaction.env, [job.run([rows])])


def _late(table: mg.Table, **how: Any) -> tuple[Transaction, list[Any]]:
    """Return a transaction with its files, which began before a commit that is there now."""
    transaction = begin(table.definition, table.env, **how)
    messages = _written(transaction, _rows("late", range(5)))
    table.write(_rows("early"))
    later = pickle.loads(pickle.dumps(transaction))  # it has forgotten what was there, as after a while
    later.env = table.env
    return later, messages


LATE = [{"k": k, "v": "late" if k < 5 else "early"} for k in range(10)]

FORMATS: list[dict[str, str]] = [
    {},
    {"file.format": "orc"},
    {"file.format": "avro"},
    {"data-file.thin-mode": "true"},
    {"file.compression": "none", "file.suffix.include.compression": "true"},
]


@pytest.mark.parametrize("options", FORMATS, ids=str)
def test_the_rows_of_the_later_commit_are_the_newer_ones(options: dict[str, str]) -> None:
    table = _table(**options)
    transaction, messages = _late(table)
    snapshot = transaction.finish(messages)
    assert snapshot is not None
    assert snapshot.metrics is not None
    assert "renumber" in snapshot.metrics.seconds
    assert sorted(table.read().to_pylist(), key=str) == LATE
    (_, newest), (low, high) = _ranges(table)
    assert newest < low
    assert high - low == 4
    assert _data_files(table) == _live_files(table)
    assert table.check() == ()
    table.compact(full=True)
    assert sorted(table.read().to_pylist(), key=str) == LATE
    assert table.check() == ()


def test_files_of_many_row_groups_keep_their_order_bounds_and_notes(tmp_path: Path) -> None:
    catalog = mg.catalog(str(tmp_path), options={"local.sync": "false"})
    catalog.create_database("db")
    options = {"bucket": "1", "write-only": "true", "file.block-size": "256 kb"}
    table = catalog.create_table("db.t", COLUMNS, primary_key=["k"], options=options)
    transaction = begin(table.definition, table.env)
    twice = pa.concat_tables([_rows("first", range(100_000)), _rows("second", range(50_000, 150_000))])
    messages = _written(transaction, twice)
    table.write(_rows("early", range(200_000)))
    transaction.finish(messages)
    assert table.read(where="v = 'first'").count() == 50_000
    assert table.read(where="v = 'second'").count() == 100_000
    assert table.read(where="k = 60000").to_pylist() == [{"k": 60_000, "v": "second"}]
    assert table.read(where="v = 'early'").count() == 50_000
    assert table.check() == ()


def test_writers_that_do_not_overlap_write_no_file_twice() -> None:
    table = _table()
    for v in "abc":
        snapshot = table.write(_rows(v))
        assert snapshot is not None
        assert snapshot.metrics is not None
        assert "renumber" not in snapshot.metrics.seconds
    assert _ranges(table) == [(0, 9), (10, 19), (20, 29)]


def test_writers_of_other_buckets_are_not_in_the_way() -> None:
    table = _table(bucket="8")
    numbers = bucket_numbers(table.definition, _rows("", range(100)))
    others = [k for k in range(100) if numbers[k] != numbers[1]]
    transaction = begin(table.definition, table.env)
    messages = _written(transaction, _rows("late", [1]))
    table.write(_rows("early", others))
    transaction.finish(messages)
    assert {file.name for message in messages for file in message.added} <= _live_files(table)
    assert sorted(row["k"] for row in table.read().to_pylist()) == sorted([1, *others])


def test_an_append_queue_is_read_in_the_order_of_its_commits_and_no_file_is_written_again() -> None:
    table = _table(keyed=False, **{"bucket-key": "k"})
    transactions = [begin(table.definition, table.env) for _ in range(3)]
    written = [_written(one, _rows(str(i), [7] * (i + 1))) for i, one in enumerate(transactions)]
    for i in (2, 0, 1):
        transactions[i].finish(written[i])
    assert [row["v"] for row in table.read().to_pylist()] == ["2", "2", "2", "0", "1", "1"]
    assert _data_files(table) == {file.name for messages in written for one in messages for file in one.added}
    assert table.check() == ()


def test_a_commit_that_meets_others_again_and_again_leaves_wider_gaps() -> None:
    class Busy(FaultyStorage):
        """Somebody else takes a number of snapshots just before us."""

        left = 5

        def create(self, path: str, data: bytes) -> None:
            if "/snapshot-" in path and self.left:
                Busy.left -= 1
                other = catalog_over(self.inner).table("db.t")
                messages = begin(other.definition, other.env)
                messages.finish(_written(messages, pa.concat_tables([_rows("other", range(4000 * (5 - self.left)))])))
            self.inner.create(path, data)

    table = _table(**{"write-only": "true"})
    table.write(_rows("first"))
    plain = table.env.storage
    table.env.storage = Busy(plain)
    snapshot = table.write(_rows("last"))
    assert snapshot is not None
    assert snapshot.metrics is not None
    assert snapshot.metrics.attempts == 6
    table.env.storage = plain
    assert _data_files(table) == _live_files(table)
    assert table.read(where="k < 10").to_pylist() == [{"k": k, "v": "last"} for k in range(10)]


def test_an_overwrite_keeps_its_numbers() -> None:
    table = _table()
    transaction = begin(table.definition, table.env, overwrite={})
    messages = _written(transaction, _rows("over", range(3)))
    table.write(_rows("early"))
    transaction.finish(messages)
    assert _live_files(table) == {file.name for message in messages for file in message.added}
    assert sorted(row["v"] for row in table.read().to_pylist()) == ["over"] * 3


def test_an_aborted_writer_leaves_neither_the_old_nor_the_new_files() -> None:
    table = _table()
    transaction, messages = _late(table)
    before = _live_files(table)

    class Closed(FaultyStorage):
        def create(self, path: str, data: bytes) -> None:
            if "/snapshot-" in path:
                raise StorageError("no", path=path, changed=False)
            self.inner.create(path, data)

    whole, table.env.storage = table.env.storage, Closed(table.env.storage)
    with pytest.raises(StorageError):
        transaction.finish(messages, keep_files=True)
    table.env.storage = whole
    assert len(_data_files(table) - before) == 2
    transaction.abort(messages)
    assert _data_files(table) == before


class _Deaf(FaultyStorage):
    """The snapshot is made, and the store answers no more: the outcome is unknown."""

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner)
        self.silent = False

    def create(self, path: str, data: bytes) -> None:
        self.inner.create(path, data)
        if "/snapshot-" in path:
            self.silent = True
            raise StorageError("lost", path=path)

    def read(self, path: str) -> bytes:
        if self.silent:
            raise StorageError("lost", path=path)
        return self.inner.read(path)


def test_a_repeat_after_a_lost_reply_applies_the_rows_once_and_cleans_up() -> None:
    table = _table()
    transaction, messages = _late(table)
    whole, table.env.storage = table.env.storage, _Deaf(table.env.storage)
    with pytest.raises(CommitUnknownError):
        transaction.finish(messages)
    table.env.storage = whole
    table.write(_rows("last", [0]))
    transaction.abort(messages)
    snapshot = transaction.finish(messages)
    assert snapshot is not None
    assert snapshot.id == 2
    assert {row["k"]: row["v"] for row in table.read().to_pylist()}[0] == "last"
    assert _data_files(table) == _live_files(table)
    assert len(table.snapshots()) == 3


def test_a_copy_that_finishes_once_more_applies_nothing_and_removes_nothing() -> None:
    table = _table()
    transaction, messages = _late(table)
    copy = pickle.loads(pickle.dumps(transaction))
    first = transaction.finish(messages)
    table.write(_rows("last", [0]))
    assert copy.finish(messages) == transaction.finish(messages) == first
    assert len(table.snapshots()) == 3
    assert _data_files(table) == _live_files(table)


def test_a_copy_that_comes_after_its_snapshot_has_expired_is_refused() -> None:
    kept = {
        "snapshot.num-retained.min": "1",
        "snapshot.num-retained.max": "1",
        "snapshot.expire.execution-mode": "sync",
    }
    table = _table(**kept)
    transaction, messages = _late(table)
    copy = pickle.loads(pickle.dumps(transaction))
    transaction.finish(messages)
    table.write(_rows("last", [0]))
    assert len(table.snapshots()) == 1
    with pytest.raises(ConflictError, match="These rows are committed"):
        copy.finish(messages)
    assert len(table.snapshots()) == 1
    assert _data_files(table) == _live_files(table)


def test_a_twin_is_recognised_before_anything_is_renumbered() -> None:
    table = _table()
    transaction, messages = _late(table, commit_user="job", identifier=4)
    first = table.write(_rows("twin", range(5)), commit_user="job", identifier=4)
    before = _live_files(table)
    assert transaction.finish(messages) == first
    assert _data_files(table) == before


def test_new_keys_of_rows_that_are_renumbered_keep_their_index() -> None:
    """A writer whose old keys were written again by another one meanwhile, and whose new keys nobody else has."""
    table = _table(bucket="-1")
    table.write(_rows("first"))
    with patch("merganser.write.buffer.SMALL_BYTES", 0), table.writer() as writer:
        writer.write(_rows("late", range(5, 15)))
        table.write(_rows("other"))
        snapshot = writer.commit()
    assert snapshot is not None
    assert snapshot.metrics is not None
    assert "renumber" in snapshot.metrics.seconds
    assert table.check() == ()
    assert _data_files(table) == _live_files(table)
    table.write(_rows("last", range(20)))
    assert table.check() == ()

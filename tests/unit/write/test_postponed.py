"""Tables that postpone buckets: rows of a writer wait in files of their own until a compaction gives them buckets."""

from __future__ import annotations

import itertools
import random
import shutil
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

import merganser as mg
from merganser.commit.table_commit import TableCommit
from merganser.errors import ConflictError, InvalidInputError, NotFoundError, UnsupportedError
from merganser.meta.table_state import MetaReader
from merganser.write import distribute
from merganser.write.begin import begin
from merganser.write.session import WriteSession
from merganser.write.transaction import Transaction
from tests.kit.builders import catalog_over, contents, memory_with

_names = itertools.count()
_GOLDEN = Path(__file__).parents[2] / "golden" / "tables"


def _table(*, partition: bool = True, **options: str) -> mg.Table:
    catalog = catalog_over(memory_with({}, f"postponed-{next(_names)}"))
    catalog.create_database("db")
    schema = {"p": "STRING", "k": "INT", "v": "STRING"}
    return catalog.create_table(
        "db.t", schema, ["p", "k"], ["p"] if partition else [], options={"bucket": "-2", **options}
    )


def _rows(keys: Any, v: str = "x", p: str = "a") -> list[dict[str, Any]]:
    return [{"p": p, "k": k, "v": v} for k in keys]


def _stream(table: mg.Table, rows: list[dict[str, Any]], kinds: list[str] | None = None) -> None:
    with table.writer() as writer:
        writer.write(rows, kinds)
        writer.commit()


def _found(table: mg.Table) -> dict[tuple[str, int], str]:
    return {(row["p"], row["k"]): row["v"] for row in table.read().to_pylist()}


def _totals(table: mg.Table) -> dict[str, set[tuple[int, int]]]:
    state = MetaReader(table.definition.paths, table.env, table.name).latest()
    found: dict[str, set[tuple[int, int]]] = {}
    for entry in state.live:
        name = table.definition.partition_directory(entry.partition).rpartition("=")[2]
        found.setdefault(name, set()).add((entry.bucket, entry.total_buckets))
    return found


def test_rows_of_a_writer_wait_for_a_compaction_in_the_files_of_the_format() -> None:
    table = _table(**{"postpone.default-bucket-num": "2"})
    _stream(table, _rows([3, 1, 2, 1]) + _rows([9], p="b"))
    _stream(table, _rows([1], "new") + _rows([2]), ["+I", "-D"])
    assert _found(table) == {}
    assert _totals(table) == {"a": {(-2, -2)}, "b": {(-2, -2)}}
    for file in table.files().to_pylist():
        name = file["file_path"].rpartition("/")[2]
        assert "/bucket-postpone/" in file["file_path"]
        assert name.startswith("data--u-")
        assert name.endswith("-0.avro")
        assert (file["level"], file["min_sequence_number"], file["max_sequence_number"]) == (0, -1, -1)
        assert file["min_value_stats"] == "{}"
    assert "3 files whose rows wait for their buckets will show once the table is compacted" in table.describe()
    assert "will show once the table is compacted" in table.read().explain()
    assert table.check() == ()
    snapshot = table.compact()
    assert snapshot is not None
    assert snapshot.commit_kind == "COMPACT"
    assert _found(table) == {("a", 1): "new", ("a", 3): "x", ("b", 9): "x"}
    assert {total for places in _totals(table).values() for _, total in places} == {2}
    assert table.check() == ()
    assert table.compact() is None


def test_a_call_of_write_puts_rows_into_buckets_at_once_after_those_that_wait() -> None:
    table = _table()
    table.write(_rows([1, 2], "one"))
    assert _found(table) == {("a", 1): "one", ("a", 2): "one"}
    _stream(table, _rows([1, 5], "waited"))
    assert _found(table) == {("a", 1): "one", ("a", 2): "one"}
    table.write(_rows([1], "last"))
    assert _found(table) == {("a", 1): "last", ("a", 2): "one", ("a", 5): "waited"}
    table.upsert(_rows([5], "up"))
    assert _found(table)["a", 5] == "up"
    assert table.check() == ()


def test_batch_writes_wait_too_if_an_option_says_so() -> None:
    table = _table(**{"postpone.batch-write-fixed-bucket": "false"})
    table.write(_rows([1, 2], "one"))
    assert _found(table) == {}
    table.write(_rows([1], "two"))
    table.compact()
    assert _found(table) == {("a", 1): "two", ("a", 2): "one"}
    table.write(_rows([7], "new"), overwrite={"p": "a"})
    assert _found(table) == {}
    table.compact(full=True)
    assert _found(table) == {("a", 7): "new"}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"postpone.default-bucket-num": "5", "postpone.target-row-num-per-bucket": "1"}, {"a": 5, "b": 5}),
        ({"postpone.target-row-num-per-bucket": "10"}, {"a": 3, "b": 1}),
        ({"postpone.target-size-per-bucket": "100 b"}, None),
        ({}, {"a": 1, "b": 1}),
    ],
)
def test_the_number_of_buckets_follows_what_waits(options: dict[str, str], expected: dict[str, int] | None) -> None:
    table = _table(**options)
    _stream(table, _rows(range(25)) + _rows([1], p="b"))
    sizes = {row["partition"]: row["file_size_in_bytes"] for row in table.files().to_pylist()}
    table.compact()
    numbers = {name: {total for _, total in places} for name, places in _totals(table).items()}
    expected = expected or {name: -(-sizes[f"{{{name}}}"] // 100) for name in "ab"}
    assert numbers == {name: {number} for name, number in expected.items()}
    _stream(table, _rows(range(100, 200)))  # a partition keeps its number
    table.compact()
    assert {total for _, total in _totals(table)["a"]} == numbers["a"]
    table.rescale(7, [{"p": "a"}])
    _stream(table, _rows([1], "after"))
    table.compact()
    table.write(_rows([2], "after"))
    assert {total for _, total in _totals(table)["a"]} == {7}
    assert (_found(table)["a", 1], _found(table)["a", 2]) == ("after", "after")
    assert table.options["bucket"] == "-2"
    assert table.check() == ()


def test_a_compaction_of_some_partitions_leaves_the_others_waiting() -> None:
    table = _table()
    _stream(table, _rows([1]) + _rows([1], p="b"))
    table.compact(partitions=[{"p": "b"}])
    assert set(_found(table)) == {("b", 1)}
    with pytest.raises(NotFoundError, match="no partition 'p=z'"):
        table.compact(partitions=[{"p": "z"}])
    table.compact(where="p = 'a'")
    assert set(_found(table)) == {("a", 1), ("b", 1)}


def test_an_overwrite_replaces_what_waits() -> None:
    table = _table()
    _stream(table, _rows([1, 2]) + _rows([1], p="b"))
    table.write(_rows([3]), overwrite={"p": "a"})
    table.compact()
    assert set(_found(table)) == {("a", 3), ("b", 1)}
    _stream(table, _rows([9]))
    table.truncate()
    table.compact()
    assert _found(table) == {}


@pytest.mark.parametrize("share_bytes", [1, 1 << 30])
def test_rows_that_wait_come_in_the_order_of_their_commits(share_bytes: int) -> None:
    """However the clocks of writers go, and if jobs share the buckets of a partition."""
    table = _table(**{"postpone.default-bucket-num": "3"})
    expected: dict[tuple[str, int], str] = {}
    rng = random.Random(7)
    for i, stack in ((i, ExitStack()) for i in range(6)):
        writers = [stack.enter_context(table.writer()) for _ in range(3)]
        given = [_rows([rng.randrange(12) for _ in range(4)], f"{i} {j}") for j in range(3)]
        with patch("merganser.write.buffer.SMALL_BYTES", rng.choice([0, 1 << 20])):
            for writer, rows in zip(writers, given, strict=True):
                writer.write(rows)
            for j in rng.sample(range(3), 3):
                writers[j].commit()
                expected |= {(row["p"], row["k"]): row["v"] for row in given[j]}
    with patch.object(distribute, "_SHARE_BYTES", share_bytes):
        table.compact()
    assert _found(table) == expected
    assert table.check() == ()


@pytest.mark.parametrize("producer", ["input", "lookup", "full-compaction"])
def test_the_changelog_shows_rows_when_they_are_visible(producer: str) -> None:
    table = _table(**{"changelog-producer": producer})
    stream = table.stream("latest", follow=False)
    _stream(table, _rows([1, 2], "a"))
    assert list(stream) == []
    table.compact(full=True)
    _stream(table, _rows([1], "b"))
    table.compact(full=True)
    changes = [(row["_row_kind"], row["k"], row["v"]) for plan in stream for row in plan.to_pylist()]
    before = [] if producer == "input" else [("-U", 1, "a")]
    after = ("+I" if producer == "input" else "+U", 1, "b")
    assert sorted(changes) == sorted([("+I", 1, "a"), ("+I", 2, "a"), *before, after])


def test_without_a_producer_a_stream_gets_rows_once_and_at_their_commit() -> None:
    table = _table()
    stream = table.stream("latest", follow=False)
    _stream(table, _rows([1, 2], "a"))
    assert [row["k"] for plan in stream for row in plan.to_pylist()] == [1, 2]
    table.compact(full=True)
    table.write(_rows([3], "b"))
    assert [row["k"] for plan in stream for row in plan.to_pylist()] == [3]


def test_what_postponed_buckets_do_not_go_with_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="'bucket' is -2, and changelog producer per-record"):
        _table(**{"changelog-producer": "per-record"})
    with pytest.raises(UnsupportedError, match=r"postpone\.merge-on-read"):
        _table(**{"postpone.merge-on-read": "true"})
    catalog = catalog_over(memory_with({}, f"postponed-{next(_names)}"))
    catalog.create_database("db")
    with pytest.raises(InvalidInputError, match="'bucket' is -2"):
        catalog.create_table("db.t", {"k": "INT"}, options={"bucket": "-2"})


def test_of_two_compactions_one_gives_the_rows_their_buckets() -> None:
    table = _table()
    _stream(table, _rows(range(10)))
    run = distribute.DistributeJob.run
    first = [True]

    def late(job: distribute.DistributeJob, *how: Any) -> Any:
        if first.pop() if first else False:
            catalog_over(table.env.storage).table("db.t").compact()
        return run(job, *how)

    with patch.object(distribute.DistributeJob, "run", late):
        table.compact()
    assert len(_found(table)) == 10
    assert table.read().count() == 10
    assert table.check() == ()
    named = {row["file_path"].rpartition("/")[2] for row in table.system("files").to_pylist()}
    there = {path.rpartition("/")[2] for path in contents(table.env.storage) if "/bucket-0/" in path}
    assert there == named


def test_a_rescale_gives_rows_that_wait_the_number() -> None:
    table = _table()
    _stream(table, _rows(range(20)))
    table.compact()
    _stream(table, _rows(range(10), "y") + _rows(range(20), p="b") + _rows(range(20), p="c"))
    made = table.rescale(3, [{"p": "a"}, {"p": "b"}])
    assert made is not None
    totals = _totals(table)
    assert {name: {total for _, total in found} for name, found in totals.items()} == {"a": {3}, "b": {3}, "c": {-2}}
    assert {key: v for key, v in _found(table).items() if key[1] < 10} == {
        (p, k): "y" if p == "a" else "x" for p in ("a", "b") for k in range(10)
    }
    with pytest.raises(InvalidInputError, match="whole number"):
        table.rescale(0)
    with pytest.raises(NotFoundError, match="cannot rescale"):
        table.rescale(2, [{"p": "z"}])
    table.rescale(5)
    assert {total for found in _totals(table).values() for _, total in found} == {5}
    assert table.rescale(5) is None
    assert table.check() == ()


def test_a_direct_write_into_a_partition_that_was_rescaled_meanwhile_is_told_or_repeated() -> None:
    table = _table()
    table.write(_rows(range(10)))
    finish = WriteSession._finish_files

    def late(session: WriteSession, writer: Any) -> None:
        finish(session, writer)
        catalog_over(table.env.storage).table("db.t").rescale(4)

    with patch.object(WriteSession, "_finish_files", late), pytest.raises(ConflictError, match="partition to 4"):
        table.write(iter(_rows([1], "new")))
    assert set(_found(table).values()) == {"x"}
    table.rescale(3)
    with patch.object(WriteSession, "_finish_files", late):
        table.write(_rows([1], "new"))  # rows that are held
    assert _found(table)["a", 1] == "new"
    assert table.check() == ()


@pytest.mark.parametrize("engine", ["java", "py", "rust"])
def test_what_other_engines_left_waiting_gets_its_buckets(engine: str, tmp_path: Path) -> None:
    shutil.copytree(_GOLDEN / f"postpone_{engine}", tmp_path / "t")
    table = mg.table(str(tmp_path / "t"))
    assert table.read().count() == 0
    table.compact()
    values = {(*(row[name] for name in table.primary_key),): row["v"] for row in table.read().to_pylist()}
    if engine == "java":
        assert values[1, 2] == "later"
        assert len(values) == 8
    else:
        assert values[2,] == "upd"
        assert len(values) == 5
    assert {finding.code for finding in table.check()} == {"unsure"}


def test_wide_types_that_avro_cannot_hold_wait_in_the_format_of_the_table(tmp_path: Path) -> None:
    catalog = mg.catalog(str(tmp_path))
    catalog.create_database("db")
    schema = {"k": "INT", "m": "MAP<INT, STRING>"}
    table = catalog.create_table("db.t", schema, ["k"], options={"bucket": "-2"})
    rows = pa.table({"k": pa.array([1], pa.int32()), "m": pa.array([[(1, "a")]], pa.map_(pa.int32(), pa.string()))})
    with table.writer() as writer:
        writer.write(rows)
        writer.commit()
    table.compact()
    assert table.read().to_pylist() == [{"k": 1, "m": [(1, "a")]}]


def test_rows_that_get_their_buckets_are_numbered_above_those_that_others_committed_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = _table(partition=False, **{"write-only": "true"})
    other = begin(table.definition, table.env)
    written = other.job().run([pa.Table.from_pylist(_rows(range(5), "other"), table.read().schema)])
    _stream(table, _rows(range(3), "waits"))
    finish, done = Transaction.finish, []

    def late(self: Transaction, messages: Any, **how: Any) -> Any:
        if not done:
            done.append(finish(other, list(written.messages)))
        return finish(self, messages, **how)

    monkeypatch.setattr(Transaction, "finish", late)
    distribute.distribute(table.definition, table.env)
    entries = [entry.file for entry in TableCommit(table.definition, table.env).latest().live]
    ranges = sorted((file.min_sequence, file.max_sequence) for file in entries)
    assert len(ranges) > 1
    assert all(high < low for (_, high), (low, _) in pairwise(ranges)), ranges
    assert len(done) == 1

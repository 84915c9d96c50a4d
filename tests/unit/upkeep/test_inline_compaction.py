"""What a writer does about the tree after its commits: what is due, where it wrote, and nothing else."""

from __future__ import annotations

import itertools
import logging
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import merganser as mg
from merganser.errors import StorageError
from merganser.lsm.compact import CompactJob
from merganser.meta.data_file import ADD
from merganser.meta.table_state import MetaReader
from tests.faults.test_concurrency import Interrupted
from tests.kit.builders import catalog_over, memory_with

_names = itertools.count()
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def _table(schema: dict[str, str] | None = None, **how: Any) -> mg.Table:
    catalog = catalog_over(memory_with({}, f"inline-{next(_names)}"))
    catalog.create_database("db")
    how = {"primary_key": ["p", "k"], "partition_by": ["p"], **how}
    how["options"] = {"bucket": "1", "num-sorted-run.compaction-trigger": "3", **how.get("options", {})}
    return catalog.create_table("db.t", schema or {"p": "STRING", "k": "INT", "v": "STRING"}, **how)


def _row(k: int, v: str = "", p: str = "a") -> dict[str, Any]:
    return {"p": p, "k": k, "v": v}


def _kinds(table: mg.Table) -> list[str]:
    return [snapshot.commit_kind for snapshot in table.snapshots()]


def _levels(table: mg.Table) -> list[tuple[str, int]]:
    return sorted((file["partition"], file["level"]) for file in table.files().to_pylist())


def _rows(table: mg.Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.read().to_pylist())


def test_a_compaction_that_is_due_follows_as_a_snapshot_of_the_same_user_and_identifier() -> None:
    table = _table()
    for identifier in range(3):
        made = table.write(
            [_row(k, f"{identifier}") for k in range(identifier + 1)], commit_user="job", identifier=7 + identifier
        )
        assert made is not None
        assert made.commit_kind == "APPEND"
    assert _kinds(table) == ["APPEND", "APPEND", "APPEND", "COMPACT"]
    assert {(s.commit_user, s.commit_identifier) for s in table.snapshots()[2:]} == {("job", 9)}
    assert table.write([_row(0, "again")], commit_user="job", identifier=9) == made
    assert _rows(table) == [("a", 0, "2"), ("a", 1, "2"), ("a", 2, "2")]


def test_a_writer_that_only_writes_leaves_compaction_to_others() -> None:
    table = _table(options={"write-only": "true"})
    for _ in range(9):
        table.write([_row(1)])
    assert _kinds(table) == ["APPEND"] * 9
    assert table.compact() is not None
    assert len(table.files()) == 1


def test_only_buckets_that_were_written_are_looked_at() -> None:
    table = _table()
    writes = table.with_options({"write-only": "true"})
    for _ in range(5):
        writes.write([_row(1, p="left"), _row(1, p="a")])
    table.write([_row(2)])
    assert _levels(table)[1:] == [("{left}", 0)] * 5
    assert len(_levels(table)) == 6


def test_a_commit_that_makes_nothing_due_asks_nothing_of_the_storage() -> None:
    def calls(**options: str) -> int:
        table = _table(options=options)
        counting = Interrupted(table.env.storage, -1, lambda storage: None)
        table = catalog_over(counting).table("db.t")
        table.write([_row(1)])
        before = counting.left
        table.write([_row(2)])
        return before - counting.left

    assert calls() == calls(**{"write-only": "true"})


def test_many_commits_of_one_writer_are_compacted_between_them() -> None:
    table = _table()
    with table.writer() as writer:
        for number in range(20):
            writer.write([_row(number % 7, f"{number}")])
            writer.commit()
            assert len(table.files()) <= 4
    assert _rows(table) == sorted(("a", k, str(max(n for n in range(20) if n % 7 == k))) for k in range(7))
    assert table.check() == ()


@pytest.mark.parametrize("error", [StorageError("the disk is full"), MemoryError("the disk is full")])
def test_a_failed_compaction_is_no_failure_of_the_write(
    error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    table = _table()

    def fail(*args: Any) -> None:
        raise error

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(CompactJob, "run", fail)
        for number in range(4):
            assert table.write([_row(number)]) is not None
    assert _kinds(table) == ["APPEND"] * 4
    assert "'db.t' is committed, and was not compacted after it: the disk is full" in caplog.text
    table.write([_row(9)])
    assert _kinds(table)[-1] == "COMPACT"
    assert len(_rows(table)) == 5


# the base


def _base(count: int = 20000) -> list[dict[str, Any]]:
    return [_row(k, f"base {k * 2654435761 % 2**40:x}") for k in range(count)]


def test_the_base_of_a_bucket_goes_to_the_highest_level_without_a_byte_copied() -> None:
    table = _table(options={"num-sorted-run.compaction-trigger": "5", "compaction.size-ratio": "50"})
    table.write(_base())
    base = table.files().to_pylist()[0]["file_path"]
    for number in range(4):
        table.write([_row(number, "new"), _row(100 + number, "new")])
    table.write([_row(0)], kinds=["-D"])
    files = {file["level"]: file for file in table.files().to_pylist()}
    assert set(files) == {5, 4, 0}
    assert files[5]["file_path"] == base
    assert files[4]["record_count"] == 8
    expected = {row["k"]: row["v"] for row in _base()} | dict.fromkeys([1, 2, 3, 100, 101, 102, 103], "new")
    expected.pop(0)
    assert {row["k"]: row["v"] for row in table.read().to_pylist()} == expected
    assert table.check() == ()


def test_a_delete_above_a_base_that_was_lifted_is_kept() -> None:
    table = _table(options={"compaction.size-ratio": "50"})
    table.write(_base())
    table.write([_row(5), _row(6)], kinds=["-D", "+U"])
    table.write([_row(6)], kinds=["-D"])
    assert [level for _, level in _levels(table)] == [2, 3]
    assert table.read(where="k in (5, 6)").count() == 0
    table.compact(full=True)
    assert table.read(where="k in (5, 6)").count() == 0
    assert table.read().count() == 19998


def test_a_base_with_retractions_is_rewritten() -> None:
    table = _table()
    rows = _base()
    table.write(rows, kinds=["-D"] + ["+I"] * (len(rows) - 1))
    for number in range(2):
        table.write([_row(number + 1, "new")])
    assert [level for _, level in _levels(table)] == [3]
    assert table.read().count() == 19999


# full compaction


def test_every_few_commits_everything_is_compacted_where_the_table_asks_for_it() -> None:
    table = _table(options={"full-compaction.delta-commits": "2"})
    table.write([_row(1, p="early")], commit_user="job", identifier=1)
    assert _levels(table) == [("{early}", 0)]
    table.write([_row(1)], commit_user="job", identifier=2)
    assert _levels(table) == [("{a}", 3), ("{early}", 3)]
    table.write([_row(2)], commit_user="job", identifier=3)
    assert _levels(table) == [("{a}", 0), ("{a}", 3), ("{early}", 3)]
    table.write([_row(3)])
    assert _levels(table) == [("{a}", 3), ("{early}", 3)]
    assert _kinds(table) == ["APPEND", "APPEND", "COMPACT", "APPEND", "APPEND", "COMPACT"]


def test_the_optimization_interval_is_counted_across_processes() -> None:
    storage = _table(options={"compaction.optimization-interval": "1 h"}).env.storage

    def write(k: int, after: timedelta) -> list[int]:
        table = catalog_over(storage, clock=lambda: NOON + after).table("db.t")
        table.write([_row(k)])
        return sorted(file["level"] for file in table.files().to_pylist())

    assert write(1, timedelta(0)) == [0]
    assert write(2, timedelta(0)) == [3]
    assert write(3, timedelta(minutes=60)) == [0, 3]
    assert write(4, timedelta(minutes=61)) == [3]
    assert write(5, timedelta(minutes=62)) == [0, 3]


def test_rows_that_need_a_compaction_wait_for_it_where_the_table_is_gentle() -> None:
    options = {"merge-engine": "first-row", "lookup-compact": "gentle", "lookup-compact.max-interval": "5"}
    table = _table(options=options | {"num-sorted-run.compaction-trigger": "5"})
    seen = []
    for number in range(5):
        table.write([_row(k, f"{number}") for k in range(4**number)])
        seen.append(table.read().count())
    assert seen == [0, 0, 0, 0, 256]
    assert _rows(table)[0] == ("a", 0, "0")


# tables without a key


def test_small_files_without_a_key_are_put_together_as_they_come() -> None:
    table = _table(primary_key=[], options={"bucket": "-1"})
    for number in range(4):
        table.write([_row(number)])
    assert len(table.files()) == 4
    table.write([_row(4)])
    assert len(table.files()) == 1
    assert _kinds(table)[-1] == "COMPACT"
    assert _rows(table) == [("a", number, "") for number in range(5)]


@pytest.mark.parametrize("options", [{"bucket": "-1"}, {"bucket": "1", "bucket-key": "k"}])
def test_what_is_rewritten_beside_writes_follows_what_is_written(options: dict[str, str]) -> None:
    table = _table(primary_key=[], partition_by=[], options=options)
    rng, commits = random.Random(3), 120
    for number in range(commits):
        table.write([_row(number, rng.randbytes(2000).hex())])
    reader = MetaReader(table.definition.paths, table.env, table.name)
    compactions = [s for s in table.snapshots() if s.commit_kind == "COMPACT"]
    rewritten = sum(e.file.row_count for s in compactions for e in reader.delta(s) if e.kind == ADD)
    assert rewritten <= 7 * commits  # as often as a file can double
    assert len(table.files()) <= 20
    assert [row["k"] for row in table.read().to_pylist()] == list(range(commits)) or options["bucket"] == "-1"
    assert table.read().count() == commits


def test_files_that_have_all_the_rows_they_may_have_are_left_alone() -> None:
    table = _table(primary_key=[], options={"bucket": "-1", "target-file-row-num": "2"})
    for number in range(9):
        table.write([_row(number), _row(number)])
    assert _kinds(table) == ["APPEND"] * 9

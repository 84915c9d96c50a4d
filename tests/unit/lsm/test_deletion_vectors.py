"""Deletion vectors: rows that newer ones replace are marked and not rewritten, and reads need no merge."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import merganser as mg
from merganser.codec.binary_row import deserialize
from merganser.commit.committable import Committable
from merganser.commit.message import CommitMessage
from merganser.commit.table_commit import TableCommit
from merganser.errors import ConflictError, FormatError, InvalidInputError
from merganser.files.masks import NO_VECTORS, BucketVectors, changed, load, vectors_by_bucket
from merganser.meta.index_manifest import DELETION_VECTORS, IndexEntry
from merganser.meta.live_files import BucketId
from merganser.meta.snapshot import OVERWRITE
from merganser.meta.table_state import MetaReader
from tests.kit.builders import catalog_over, contents, memory_with

_names = itertools.count()
SCHEMA = {"k": "INT", "v": "STRING", "n": "INT", "pad": "STRING"}
SHOWN = ("p", "k", "v", "n", "a", "b")
NEVER = {"num-sorted-run.compaction-trigger": "99", "num-levels": "6"}


def _table(schema: Mapping[str, str] | None = None, **how: Any) -> mg.Table:
    catalog = catalog_over(memory_with({}, f"vectors-{next(_names)}"))
    catalog.create_database("db")
    how = {"primary_key": ["k"], **how}
    how["options"] = {"bucket": "1", "deletion-vectors.enabled": "true", **how.get("options", {})}
    return catalog.create_table("db.t", schema or SCHEMA, **how)


def _again(table: mg.Table, **options: str) -> mg.Table:
    """Return the table in a new process, with dynamic options."""
    return catalog_over(table.env.storage).table("db.t").with_options(options)


def _as_stored(table: mg.Table, **options: str) -> mg.Table:
    """Return the table as another engine would leave it that has set options that only the table itself may change."""
    merged = table.options.merged(options)
    return replace(table, definition=replace(table.definition, options=merged))


def _row(k: int, v: str | None = "old", n: int | None = 0) -> dict[str, Any]:
    return {"k": k, "v": v, "n": n, "pad": None}


def _heavy(k: int, n: int = 0, v: str = "old", size: int = 1000) -> dict[str, Any]:
    """A row of a first write: its file weighs so much that no compaction of small ones takes it in."""
    return {"k": k, "v": v, "n": n, "pad": random.Random(k).randbytes(size).hex()}


def _rows(table: mg.Table, **how: Any) -> list[tuple[Any, ...]]:
    rows = table.read(**how).to_pylist()
    return sorted((tuple(row[name] for name in SHOWN if name in row) for row in rows), key=repr)


def _index(table: mg.Table) -> tuple[IndexEntry, ...]:
    return MetaReader(table.definition.paths, table.env, table.name).index(table.latest_snapshot())


def _marked(table: mg.Table) -> list[int]:
    """Return the deleted positions of all files."""
    found = vectors_by_bucket(table.definition, _index(table))
    vectors = [vector for bucket in found.values() for vector in bucket.by_file.values()]
    return sorted(int(at) for vector in vectors for at in load(table.env.storage, vector))


def _levels(table: mg.Table) -> list[int]:
    return sorted(table.files().column("level").to_pylist())


def _filled(**how: Any) -> mg.Table:
    """A table of keys 0 to 9 at the highest level, and newer rows of 3, 5 and 20 above them."""
    table = _table(**how)
    table.write([_heavy(k) for k in range(10)])
    table.write([_heavy(k, 1, "new", 500) for k in (3, 5, 20)])
    return table


# what a write leaves


def test_a_write_marks_the_rows_that_it_replaces_and_rewrites_no_older_file() -> None:
    table = _filled()
    assert [s.commit_kind for s in table.snapshots()] == ["APPEND", "COMPACT", "APPEND", "COMPACT"]
    assert _levels(table) == [4, 5]
    assert _marked(table) == [3, 5]
    newest = {k: (k, "new", 1) if k in (3, 5, 20) else (k, "old", 0) for k in (*range(10), 20)}
    assert _rows(table) == sorted(newest.values(), key=repr)


def test_a_scan_needs_no_merge_and_counts_without_reading_a_file() -> None:
    table = _filled()
    assert all(split.raw for split in table.read().plan().splits)
    again = _again(table)
    for path in contents(again.env.storage):
        if "/bucket-" in path or "/index/" in path:
            again.env.storage.delete([path])
    assert again.read().count() == 11


def test_a_delete_marks_the_row_and_leaves_nothing_else() -> None:
    table = _table()
    table.write([_heavy(k) for k in range(4)])
    table.write([_row(1), _row(77)], kinds=["-D", "-D"])
    assert _levels(table) == [5]
    assert _marked(table) == [1]
    assert [row[0] for row in _rows(table)] == [0, 2, 3]


def test_a_bucket_has_one_file_of_vectors_that_grows_with_each_write() -> None:
    table = _filled(options=NEVER)
    table.write([_row(0, "newest"), _row(5, "newest")])
    (entry,) = _index(table)
    assert entry.row_count == len(entry.vectors) == 2
    assert _marked(table) == [0, 1, 3, 5]  # 5 once more, in the file that had replaced it
    assert table.read().count() == 11


def test_vectors_of_partitions_and_buckets_are_apart() -> None:
    table = _table({"p": "STRING", **SCHEMA}, primary_key=["p", "k"], partition_by=["p"], options={"bucket": "2"})
    rows = [{"p": p, **_heavy(k)} for p in "ab" for k in range(20)]
    table.write(rows)
    table.write([{"p": "a", **_row(k, "new")} for k in range(20)])
    assert {entry.partition for entry in _index(table)} != set()
    assert sorted(row[2] for row in _rows(table)) == ["new"] * 20 + ["old"] * 20
    table.write([], overwrite={"p": "a"})
    assert _index(table) == ()
    assert len(_rows(table)) == 20


@pytest.mark.parametrize("bits64", ["true", "false"])
def test_both_forms_are_written_and_read(bits64: str) -> None:
    table = _filled(options={"deletion-vectors.bitmap64": bits64})
    assert _marked(_again(table)) == [3, 5]


def test_write_only_leaves_rows_unseen_until_they_are_compacted() -> None:
    table = _table()
    table.write([_row(1)])
    writer = _again(table, **{"write-only": "true"})
    writer.write([_row(1, "new"), _row(2)])
    assert _rows(table) == [(1, "old", 0)]
    assert _rows(_again(table, **{"deletion-vectors.merge-on-read": "true"})) == [(1, "new", 0), (2, "old", 0)]
    table.compact()
    assert _rows(table) == [(1, "new", 0), (2, "old", 0)]


# merging with what lies below


def test_a_row_that_comes_late_loses_and_the_older_one_is_kept() -> None:
    table = _table(options={"sequence.field": "n"})
    table.write([_heavy(k, 50) for k in range(5)])
    table.write([_row(1, "late", 10), _row(2, "new", 90), _row(3, None, None)])
    assert _rows(table) == [(0, "old", 50), (1, "old", 50), (2, "new", 90), (3, "old", 50), (4, "old", 50)]
    assert table.read().count() == 5


def test_partial_updates_are_joined_with_the_row_below() -> None:
    table = _table(options={"merge-engine": "partial-update"})
    table.write([_heavy(k, k) for k in range(5)])
    table.write([_row(1, None, 7), _row(2, "new", None), _row(9, None, 1)])
    assert _rows(table) == [(0, "old", 0), (1, "old", 7), (2, "new", 2), (3, "old", 3), (4, "old", 4), (9, None, 1)]
    assert _marked(table) == [1, 2]


def test_sums_go_on_from_the_row_below_through_several_levels() -> None:
    options = {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum", **NEVER}
    table = _table(options=options)
    for step in range(5):
        table.write([_row(k, str(step), 1) for k in range(step, 6)])
    assert _rows(table) == [(k, str(min(k, 4)), min(k, 4) + 1) for k in range(6)]
    table.write([_row(5, "x", 2)], kinds=["-D"])
    assert _rows(table)[-1] == (5, None, 3)


def test_ignored_deletes_mark_nothing() -> None:
    table = _table()
    table.write([_row(1), _row(2)])
    _again(table, **{"write-only": "true"}).write([_row(1)], kinds=["-D"])
    ignoring = _as_stored(table, **{"ignore-delete": "true"})
    ignoring.compact()
    assert _rows(ignoring) == [(1, "old", 0), (2, "old", 0)]


@pytest.mark.parametrize("kind", ["STRING", "DOUBLE", "DECIMAL(20, 2)", "DATE", "BINARY(4)", "BOOLEAN"])
def test_keys_of_every_type_are_looked_up(kind: str) -> None:
    values: dict[str, list[Any]] = {
        "STRING": ["", "a", "ab", "\U0001f986", "\uffff"],
        "DOUBLE": [-0.0, 0.0, 1.5, float("nan"), float("-inf")],
        "DECIMAL(20, 2)": ["1.00", "-7.25", "0.00"],
        "DATE": [-1, 0, 20000],
        "BINARY(4)": [b"aaaa", b"\x00\x00\x00\x00", b"\xff\xff\xff\xff"],
        "BOOLEAN": [True, False],
    }
    table = _table({"a": kind, "b": "INT", "v": "STRING", "pad": "STRING"}, primary_key=["b", "a"])
    type_ = table.read().schema.field("a").type
    keys = pa.array(values[kind], pa.int32() if kind == "DATE" else None).cast(type_)
    for word in ("old", "new"):
        count = len(keys) if word == "old" else len(keys) - 1
        pad = [_heavy(i)["pad"] if word == "old" else None for i in range(count)]
        ones = pa.array([1] * count, pa.int32())
        table.write(pa.table({"a": keys[:count], "b": ones, "v": [word] * count, "pad": pa.array(pad, pa.string())}))
    assert sorted(row["v"] for row in table.read().to_pylist()) == ["new"] * (len(keys) - 1) + ["old"]
    assert len(_marked(table)) == len(keys) - 1


def test_rows_are_found_in_the_right_row_group(monkeypatch: pytest.MonkeyPatch) -> None:
    table = _table(options={"write-only": "false", "file.block-size": "1 kb"})
    table.write([_row(k, f"{k:0100d}") for k in range(5000)])
    chosen = [0, 1, 1234, 4321, 4999]
    monkeypatch.setattr("merganser.lsm.marks.LOOKUP_KEYS", 2)
    table.write([_row(k, "new") for k in chosen])
    assert _marked(table) == chosen
    assert _rows(table, where="k in (1, 2, 1234)") == [(1, "new", 0), (1234, "new", 0), (2, f"{2:0100d}", 0)]
    assert table.read(where="v = 'new'").count() == 5


# compactions


def test_a_compaction_drops_marked_rows_and_the_vectors_of_what_it_removes() -> None:
    table = _filled()
    before = _rows(table)
    table.compact(full=True)
    assert _index(table) == ()
    assert table.latest_snapshot().total_record_count == 11
    assert _rows(table) == before


def test_a_full_compaction_rewrites_files_with_vectors_at_the_highest_level_only() -> None:
    table = _table(options={"target-file-row-num": "4"})
    table.write([_row(k) for k in range(12)])
    table.write([_row(5)], kinds=["-D"])
    files = set(table.files().column("file_path").to_pylist())
    assert _levels(table) == [5, 5, 5]
    assert table.compact(full=True) is not None
    after = set(table.files().column("file_path").to_pylist())
    assert len(files & after) == 2
    assert _index(table) == ()
    assert table.compact(full=True) is None
    assert len(_rows(table)) == 11


def test_vectors_count_when_the_option_is_off_again() -> None:
    table = _filled()
    before = _rows(table)
    off = _as_stored(table, **{"deletion-vectors.enabled": "false"})
    assert _rows(off) == before
    off.write([_row(0, "off"), _row(3, "off")])
    expected = sorted([row for row in before if row[0] not in (0, 3)] + [(0, "off", 0), (3, "off", 0)], key=repr)
    assert _rows(off) == expected
    off.compact(full=True)
    assert _index(off) == ()
    assert _rows(off) == expected


def test_old_snapshots_keep_their_vectors() -> None:
    table = _filled()
    second, fourth = _rows(table, snapshot=2), _rows(table, snapshot=4)
    table.write([_row(k, "newest") for k in range(10)])
    table.compact(full=True)
    assert (_rows(table, snapshot=2), _rows(table, snapshot=4)) == (second, fourth)


def test_a_compaction_whose_vectors_somebody_else_changed_is_planned_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    table = _table(options=NEVER)
    table.write([_row(k) for k in range(6)])
    writer = _again(table, **{"write-only": "true"})
    writer.write([_row(1, "new")])
    real, raced = TableCommit.commit, []

    def commit(self: TableCommit, change: Committable, **how: Any) -> Any:
        if change.kind == "COMPACT" and not raced:
            raced.append(True)
            other = _again(table)
            other.write([_row(2, "other")])  # its own compaction takes in both, and marks both
        return real(self, change, **how)

    monkeypatch.setattr(TableCommit, "commit", commit)
    table.compact(full=True)
    assert raced
    assert [row[1] for row in _rows(table)] == ["old", "new", "other", "old", "old", "old"]


def test_a_change_based_on_other_vectors_is_refused_and_changes_nothing() -> None:
    table = _filled(options=NEVER)
    (stale,) = _index(table)
    table.write([_row(7, "newer")])
    bucket = (stale.partition, stale.bucket)
    total = 1
    message = CommitMessage(*bucket, total, (), (), (replace(stale, name="index-x"),), (stale,))
    before = table.latest_snapshot()
    with pytest.raises(ConflictError, match="changed the deleted rows of bucket 0"):
        TableCommit(table.definition, table.env).commit(Committable([message], "user", kind="COMPACT"))
    unseen = replace(message, index_removed=())
    with pytest.raises(ConflictError):  # nor may one be put over vectors that were not seen
        TableCommit(table.definition, table.env).commit(Committable([unseen], "user", kind="COMPACT"))
    assert table.latest_snapshot() == before


def test_a_file_cannot_go_without_its_vector() -> None:
    table = _filled(options=NEVER)
    state = TableCommit(table.definition, table.env).latest()
    (bucket, files), *_ = state.live.buckets.items()
    old = next(entry.file for entry in files.entries if entry.file.level == 5)
    message = CommitMessage(*bucket, 1, (), (old,))
    with pytest.raises(ConflictError):
        TableCommit(table.definition, table.env).commit(Committable([message], "user", kind="COMPACT"))


# tables without a key


def _append(**options: str) -> mg.Table:
    return _table(primary_key=[], options={"bucket": "-1", "write-only": "true", **options})


def _delete(table: mg.Table, *positions: list[int]) -> None:
    """Mark rows of the first files of the only bucket as deleted, and commit."""
    commits = TableCommit(table.definition, table.env)
    state = commits.latest()
    ((bucket, files),) = state.live.buckets.items()
    marked = {e.file.name: np.array(at, np.int64) for e, at in zip(files.entries, positions, strict=False) if at}
    held = vectors_by_bucket(table.definition, commits.reader.index(state.snapshot)).get(bucket, NO_VECTORS)
    commits.commit(Committable([_marking(table, bucket, files.total_buckets, held, marked)], "deleter"))


def _marking(
    table: mg.Table, bucket: BucketId, total: int, held: BucketVectors, marked: dict[str, Any]
) -> CommitMessage:
    change = changed(table.definition, table.env, bucket, held, marked=marked)
    return CommitMessage(*bucket, total, (), (), change.added, change.removed)


def test_rows_marked_in_a_table_without_a_key_are_gone() -> None:
    table = _append()
    table.write([_row(k) for k in range(5)])
    table.write([_row(k) for k in range(5, 9)])
    _delete(table, [1, 3], [0])
    newest = table.latest_snapshot()
    assert (newest.commit_kind, newest.delta_record_count, newest.total_record_count) == (OVERWRITE, 0, 9)
    assert [row[0] for row in _rows(table)] == [0, 2, 4, 6, 7, 8]
    assert table.read().count() == 6
    _delete(table, [1, 4])
    assert [row[0] for row in _rows(table)] == [0, 2, 6, 7, 8]
    assert [row[0] for row in _rows(table, where="k > 2")] == [6, 7, 8]


def test_without_buckets_vectors_roll_into_files_and_only_those_touched_are_replaced() -> None:
    table = _append(**{"deletion-vector.index-file.target-size": "1 b"})
    for start in (0, 10, 20):
        table.write([_row(k) for k in range(start, start + 3)])
    _delete(table, [0], [1], [2])
    first = {entry.name for entry in _index(table)}
    assert len(first) == 3
    _delete(table, [], [2])
    assert len(first & {entry.name for entry in _index(table)}) == 2
    assert [row[0] for row in _rows(table)] == [1, 10, 2, 20, 21]


def test_touching_one_vector_of_a_file_keeps_the_others() -> None:
    table = _append()
    for start in (0, 10):
        table.write([_row(k) for k in range(start, start + 3)])
    _delete(table, [0], [1])
    _delete(table, [2])
    (entry,) = _index(table)
    assert len(entry.vectors) == 2
    assert [row[0] for row in _rows(table)] == [1, 10, 12]


def test_two_deletes_from_one_snapshot_do_not_undo_each_other() -> None:
    table = _append()
    table.write([_row(k) for k in range(5)])
    commits = TableCommit(table.definition, table.env)
    state = commits.latest()
    ((bucket, files),) = state.live.buckets.items()
    name = files.entries[0].file.name

    one, other = (_marking(table, bucket, -1, NO_VECTORS, {name: np.array([at])}) for at in (1, 2))
    commits.commit(Committable([one], "a"))
    with pytest.raises(ConflictError):
        commits.commit(Committable([other], "b"))
    assert [row[0] for row in _rows(table)] == [0, 2, 3, 4]


@pytest.mark.parametrize("options", [{}, {"bucket": "1", "bucket-key": "k"}])
def test_compaction_of_a_table_without_a_key_drops_marked_rows(options: dict[str, str]) -> None:
    table = _append(**options)
    for start in (0, 10, 20):
        table.write([_row(k) for k in range(start, start + 3)])
    _delete(table, [0], [], [0, 1, 2])
    before = _rows(table)
    table.compact(full=True)
    assert _rows(table) == before == [(k, "old", 0) for k in (1, 10, 11, 12, 2)]
    assert _index(table) == ()
    assert table.latest_snapshot().total_record_count == 5


@pytest.mark.parametrize("curve", ["order", "zorder", "hilbert"])
def test_a_table_without_a_key_whose_rows_are_all_deleted_is_sorted_into_no_file(curve: str) -> None:
    table = _append()
    table.write([_row(k) for k in range(3)])
    _delete(table, [0, 1, 2])
    table.compact(order_by=["k", "v"], curve=curve)
    assert (_rows(table), table.files().num_rows, _index(table)) == ([], 0, ())


def test_a_large_file_is_rewritten_once_enough_of_it_is_deleted() -> None:
    table = _append(**{"target-file-size": "1 b"})
    table.write([_row(k) for k in range(10)])
    _delete(table, [0, 1])
    assert table.compact() is None
    _delete(table, [2])
    assert table.compact() is not None
    assert table.latest_snapshot().total_record_count == 7
    assert _index(table) == ()


def test_several_groups_of_a_bucket_with_vectors_are_one_change() -> None:
    table = _append(**{"target-file-row-num": "4"})
    for start in range(0, 24, 2):
        table.write([_row(k) for k in (start, start + 1)])
    _delete(table, *[[0]] * 12)
    before = _rows(table)
    table.compact(full=True)
    assert _rows(table) == before
    assert _index(table) == ()


# what is damaged or asked for wrongly


def test_a_missing_file_of_vectors_is_told_and_other_partitions_stay_readable() -> None:
    table = _table({"p": "STRING", **SCHEMA}, primary_key=["p", "k"], partition_by=["p"])
    for word in ("old", "new"):
        rows = [_heavy(k) for k in range(3)] if word == "old" else [_row(0, word)]
        table.write([{"p": p, **row} for p in "ab" for row in rows])
    entry = _index(table)[0]
    path = table.definition.paths.index(entry.name)
    table.env.storage.delete([path])
    with pytest.raises(FormatError) as caught:
        table.read().to_arrow()
    assert caught.value.context["path"] == path
    (bad,) = deserialize(entry.partition, table.definition.partition_types)
    assert len(_rows(table, where=f"p <> '{bad}'")) == 3


def test_a_vector_that_names_rows_the_file_lacks_is_told() -> None:
    table = _append()
    table.write([_row(1), _row(2)])
    _delete(table, [7])
    with pytest.raises(FormatError, match="deletes row 7 of a data file of 2 rows"):
        table.read().to_arrow()


def test_first_row_tables_take_no_vectors() -> None:
    with pytest.raises(InvalidInputError, match="first-row"):
        _table(options={"merge-engine": "first-row"})


def test_one_reader_or_writer_cannot_turn_vectors_on_or_off() -> None:
    with pytest.raises(InvalidInputError, match="only be changed on the table itself"):
        _table().with_options({"deletion-vectors.enabled": "false"})
    with pytest.raises(InvalidInputError, match="only be changed on the table itself"):
        _table(options={"deletion-vectors.enabled": "false"}).with_options({"deletion-vectors.enabled": "true"})


def test_a_plan_says_how_many_rows_are_deleted() -> None:
    assert "deleted    2 rows by 1 deletion vector\n" in _filled().read().explain() + "\n"


# read-optimised


def test_the_read_optimised_table_is_what_the_last_full_compaction_left() -> None:
    catalog = catalog_over(memory_with({}, f"vectors-{next(_names)}"))
    catalog.create_database("db")
    table = catalog.create_table("db.t", SCHEMA, primary_key=["k"], options={"bucket": "1", "write-only": "true"})
    optimised = catalog.table("db.t$ro")
    table.write([_row(k) for k in range(4)])
    assert optimised.read().to_pylist() == []
    table.compact(full=True)
    table.write([_row(0, "new"), _row(9, "new")])
    assert sorted(row["k"] for row in optimised.read(where="v = 'old'").to_pylist()) == [0, 1, 2, 3]
    assert optimised.read().count() == 4
    assert table.system("ro", columns=["v"], limit=2).to_arrow().num_rows == 2
    assert all(split.raw for split in optimised.read().plan().splits)
    assert optimised.read(snapshot=1).to_pylist() == []


def test_the_read_optimised_table_knows_vectors_and_of_tables_without_a_key_everything() -> None:
    table = _filled()
    assert table.system("ro").count() == 8
    appended = _append()
    appended.write([_row(1), _row(2)])
    _delete(appended, [0])
    assert [row["k"] for row in appended.system("ro").to_pylist()] == [2]


def test_index_files_are_listed() -> None:
    table = _filled()
    (row,) = table.system("table_indexes").to_pylist()
    (entry,) = _index(table)
    assert (row["bucket"], row["index_type"], row["file_name"]) == (0, DELETION_VECTORS, entry.name)
    assert (row["file_size"], row["row_count"]) == (entry.size, 1)
    (vector,) = row["dv_ranges"]
    assert vector == {"f0": entry.vectors[0].data_file, "f1": 1, "f2": entry.vectors[0].length, "_CARDINALITY": 2}

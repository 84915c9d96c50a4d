"""Rows into buckets and level-0 files: numbers, order, sizes, and nothing left behind."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import merganser as mg
from merganser.codec.binary_row import deserialize
from merganser.errors import InvalidInputError, StorageError
from merganser.meta.data_file import ManifestEntry
from merganser.meta.layout import bucket_numbers
from merganser.meta.table_state import MetaReader
from merganser.write.buckets import FixedBuckets
from merganser.write.session import WriteSession
from merganser.write.start import Start
from merganser.write.writer import table_writer
from tests.kit.builders import catalog_over, contents, memory_with
from tests.kit.faulty import Fault, FaultyStorage, Plan

_names = itertools.count()


def _table(schema: dict[str, str], **how: Any) -> mg.Table:
    catalog = catalog_over(memory_with({}, f"writing-{next(_names)}"))
    catalog.create_database("db")
    return catalog.create_table("db.t", schema, **how)


def _keyed(**options: str) -> mg.Table:
    return _table({"k": "INT", "v": "STRING"}, primary_key=["k"], options={"bucket": "1", **options})


def _live(table: mg.Table) -> list[ManifestEntry]:
    return list(MetaReader(table.definition.paths, catalog_over(table.env.storage).env, table.name).latest().live)


def test_a_flush_keeps_the_newest_row_of_each_key_with_its_number() -> None:
    table = _keyed()
    table.write([{"k": k, "v": str(i)} for i, k in enumerate([3, 1, 3, 2, 1])])
    [entry] = _live(table)
    assert (entry.file.row_count, entry.file.min_sequence, entry.file.max_sequence) == (3, 2, 4)
    assert table.read().to_pylist() == [{"k": 1, "v": "4"}, {"k": 2, "v": "3"}, {"k": 3, "v": "2"}]


def test_every_row_carries_the_number_of_its_newest_version_whichever_slice_it_is_written_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("merganser.lsm.writer.SLICE_ROWS", 2)
    table = _keyed()
    keys = [7, 3, 9, 3, 1, 5, 9, 8]
    table.write([{"k": k, "v": str(i)} for i, k in enumerate(keys)])
    [entry] = _live(table)
    stored = pq.read_table(pa.BufferReader(contents(table.env.storage)[f"{table.path}/bucket-0/{entry.file.name}"]))
    newest = {k: i for i, k in enumerate(keys)}
    assert stored["_SEQUENCE_NUMBER"].to_pylist() == [newest[k] for k in sorted(newest)]
    assert (entry.file.min_sequence, entry.file.max_sequence) == (0, 7)


def test_numbers_go_on_from_the_newest_of_the_bucket_one_per_row_received() -> None:
    table = _keyed()
    for _ in range(3):
        table.write([{"k": 1, "v": "a"}, {"k": 1, "v": "b"}])
    assert [(e.file.min_sequence, e.file.max_sequence) for e in _live(table)] == [(1, 1), (3, 3), (5, 5)]


def test_a_writer_goes_on_numbering_over_its_commits_and_never_gives_a_number_twice() -> None:
    table = _keyed()
    with table.writer() as writer:
        for k in range(3):
            writer.write([{"k": k, "v": "a"}])
            writer.commit()
    assert [e.file.min_sequence for e in _live(table)] == [0, 1, 2]


def test_rows_of_an_append_bucket_are_numbered_on_and_on() -> None:
    table = _table(
        {"k": "INT"}, options={"bucket": "1", "bucket-key": "k", "target-file-row-num": "2", "write-only": "true"}
    )
    for _ in range(2):
        with table.writer() as writer:
            writer.write([{"k": 0}, {"k": 1}, {"k": 2}])
            writer.write([{"k": 3}, {"k": 4}])
            writer.commit()
    numbers = [(e.file.min_sequence, e.file.max_sequence) for e in _live(table)]
    assert numbers == [(0, 1), (2, 3), (4, 4), (5, 6), (7, 8), (9, 9)]
    assert [row["k"] for row in table.read().to_pylist()] == [*range(5), *range(5)]


def test_rows_without_buckets_are_numbered_anew_in_every_file() -> None:
    table = _table({"k": "INT"})
    for _ in range(2):
        table.write([{"k": 1}, {"k": 2}])
    assert [(e.file.min_sequence, e.file.max_sequence) for e in _live(table)] == [(0, 1), (0, 1)]


def test_files_hold_what_their_entry_says() -> None:
    table = _keyed()
    table.write([{"k": 5, "v": "x"}, {"k": 2, "v": None}, {"k": 9, "v": "y"}], kinds=["+I", "-D", "+U"])
    [entry] = _live(table)
    file = entry.file
    kinds = table.definition.key_types
    assert (deserialize(file.min_key, kinds), deserialize(file.max_key, kinds)) == ((2,), (9,))
    assert (file.level, file.row_count, file.delete_row_count, entry.total_buckets) == (0, 3, 1, 1)
    path = f"{table.path}/bucket-0/{file.name}"
    assert len(contents(table.env.storage)[path]) == file.size


@pytest.mark.parametrize("held", [True, False])
@pytest.mark.parametrize("buffer", ["1 b", "256 mb"])
def test_the_write_buffer_changes_files_but_not_rows(held: bool, buffer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("merganser.write.writer.SMALL_BYTES", 0)  # a few rows wait in the buffer for the commit
    table = _keyed(**{"write-buffer-size": buffer, "write-only": "true"})
    rng = random.Random(1)
    batches = [[{"k": rng.randrange(9), "v": f"{i}.{j}"} for j in range(6)] for i in range(5)]
    expected = {row["k"]: row["v"] for batch in batches for row in batch}
    with table.writer() as writer:
        for batch in batches:
            writer.write(batch if held else iter([batch]))
        writer.commit()
    assert {row["k"]: row["v"] for row in table.read().to_pylist()} == expected
    assert len(_live(table)) == (5 if held or buffer == "1 b" else 1)


def test_rows_lie_in_the_bucket_of_their_key_whatever_batch_they_came_in() -> None:
    table = _table(
        {"p": "STRING", "a": "INT", "b": "STRING"},
        primary_key=["p", "a", "b"],
        partition_by=["p"],
        options={"bucket": "3"},
    )
    rng = random.Random(2)
    rows = pa.table(
        {
            "p": pa.array([rng.choice(["x", "y", "z/"]) for _ in range(200)]),
            "a": pa.array([rng.randrange(50) for _ in range(200)], pa.int32()),
            "b": pa.array([rng.choice(["", "q", "long text"]) for _ in range(200)]),
        }
    )
    numbers = bucket_numbers(table.definition, rows)
    seen = np.full(200, -1)
    for group in FixedBuckets(table.definition).assign(rows):
        assert (numbers[group.rows] == group.bucket).all()
        values = deserialize(group.partition, table.definition.partition_types)
        assert set(rows.column("p").take(pa.array(group.rows)).to_pylist()) == set(values)
        assert (np.diff(group.rows) > 0).all()
        assert (seen[group.rows] == -1).all()
        seen[group.rows] = group.bucket
    assert (seen >= 0).all()


def test_partitions_whose_values_look_alike_are_kept_apart() -> None:
    table = _table({"p": "STRING", "k": "INT"}, partition_by=["p"])
    values = [None, "", " ", "__DEFAULT_PARTITION__", "a/b", "a=b", "..", "%2F", "a"]
    table.write([{"p": value, "k": i} for i, value in enumerate(values)])
    assert sorted((row["k"], row["p"]) for row in table.read().to_pylist()) == list(enumerate(values))
    for i, value in enumerate(values):
        where = "p IS NULL" if value is None else f"p = '{value}'"
        assert [row["k"] for row in table.read(where=where).to_pylist()] == [i]


def test_partition_directories_never_lead_out_of_the_table(tmp_path: Path) -> None:
    catalog = mg.catalog(str(tmp_path / "w"), options={"local.sync": "false"})
    catalog.create_database("db")
    table = catalog.create_table("db.t", {"p": "STRING", "k": "INT"}, partition_by=["p"])
    table.write([{"p": p, "k": 1} for p in ("..", "../..", "/etc", "a/../../x", ".", "\0", "~")])
    root = Path(table.path).resolve()
    files = list(tmp_path.rglob("*.parquet"))
    assert len(files) == 7
    assert all(root in p.resolve().parents for p in files)
    assert all(p.parent.parent.parent == root for p in files)


def test_leaving_a_writer_without_a_commit_leaves_nothing() -> None:
    for options in ({"bucket": "1"}, {"bucket": "2", "target-file-row-num": "1", "write-buffer-size": "1 b"}):
        table = _keyed(**options)
        before = contents(table.env.storage)
        with table.writer() as writer:
            writer.write([{"k": k, "v": "x"} for k in range(9)])
        assert contents(table.env.storage) == before
    table = _table({"p": "INT", "k": "INT"}, partition_by=["p"])
    before = contents(table.env.storage)
    with table.writer() as writer:
        writer.write([{"p": p, "k": 1} for p in range(150)])  # more than may be open at a time
    assert contents(table.env.storage) == before


def test_more_partitions_than_files_may_be_open_are_written() -> None:
    table = _table({"p": "INT", "k": "INT"}, partition_by=["p"])
    with table.writer() as writer:
        for k in range(2):
            writer.write([{"p": p, "k": k} for p in range(150)])
        writer.commit()
    assert table.read().count() == 300


def test_a_failing_bucket_removes_the_files_of_all() -> None:
    table = _keyed(bucket="4")
    before = contents(table.env.storage)
    faulty = FaultyStorage(table.env.storage, Plan(Fault.FAIL, 3, 1, frozenset({"close"})))
    table.env.storage = faulty
    with pytest.raises(StorageError):
        table.write([{"k": k, "v": "x"} for k in range(40)])
    assert contents(faulty.inner) == before


def test_rows_whose_order_is_given_are_folded_in_it() -> None:
    table = _keyed()
    writer = table_writer(table.definition, table.env, Start(lambda bucket: 0))
    rows = pa.table({"k": pa.array([1, 1, 1], pa.int32()), "v": ["second", "third", "first"]})
    schema = table.read().schema
    writer.write(rows.cast(schema), arrival=np.array([1, 2, 0]))
    [message] = writer.finish()
    assert message.added[0].max_sequence == 2
    session = WriteSession(table.definition, table.env)
    session._written = [message]
    session.commit()
    assert table.read().to_pylist() == [{"k": 1, "v": "third"}]


@pytest.mark.parametrize("upgrade", ["true", "false"])
def test_an_overwrite_lifts_files_to_the_top_level_when_their_keys_do_not_meet(upgrade: str) -> None:
    table = _keyed(**{"overwrite-upgrade": upgrade, "target-file-row-num": "2"})
    table.write([{"k": k, "v": "old"} for k in range(4)])
    table.write([{"k": k, "v": "new"} for k in range(5)], overwrite={})
    assert {e.file.level for e in _live(table)} == ({5} if upgrade == "true" else {0})
    table.write([{"k": 1, "v": "x"}, {"k": 2, "v": "y"}], kinds=["+I", "-D"], overwrite={})
    assert {e.file.level for e in _live(table)} == {0}
    assert table.read().to_pylist() == [{"k": 1, "v": "x"}]


@pytest.mark.parametrize(
    ("kind", "values"),
    [("DATE", (date(2026, 1, 1), date(2026, 1, 2))), ("DECIMAL(5, 2)", ("1.50", "2.50")), ("STRING", ("a", "b"))],
)
def test_a_partition_is_overwritten_without_rows(kind: str, values: tuple[Any, Any]) -> None:
    table = _table({"p": kind, "k": "INT"}, primary_key=["p", "k"], partition_by=["p"], options={"bucket": "1"})
    rows = [{"p": value, "k": 1} for value in map(Decimal if "DECIMAL" in kind else lambda value: value, values)]
    empty = table.read().to_arrow()
    for nothing in (empty, empty.combine_chunks(), iter([empty]), []):
        table.write(rows, overwrite={})
        table.write(nothing, overwrite={"p": rows[0]["p"]})
        assert table.read().to_pylist() == rows[1:]


def test_overwrites_choose_the_partitions_they_name() -> None:
    table = _table({"p": "INT", "q": "STRING", "k": "INT"}, partition_by=["p", "q"])

    def fill() -> None:
        table.write([{"p": p, "q": q, "k": 0} for p in (1, 2) for q in ("a", None)], overwrite={})

    def left() -> list[tuple[Any, ...]]:
        return sorted((row["p"], row["q"] or "", row["k"]) for row in table.read().to_pylist())

    fill()
    table.write([{"p": 1, "q": "a", "k": 1}], overwrite={"p": 1})
    assert left() == [(1, "a", 1), (2, "", 0), (2, "a", 0)]
    fill()
    table.write([{"p": 1, "q": None, "k": 1}], overwrite={"q": None})
    assert left() == [(1, "", 1), (1, "a", 0), (2, "a", 0)]
    fill()
    table.write([{"p": 1, "q": "a", "k": 1}], overwrite="dynamic")
    assert left() == [(1, "", 0), (1, "a", 1), (2, "", 0), (2, "a", 0)]
    table.drop_partitions([{"p": 1}, {"q": "a"}])
    assert left() == [(2, "", 0)]
    table.write([], overwrite={"p": 2})
    assert left() == []
    assert table.drop_partitions([]) is None


def test_a_session_of_unknown_outcome_takes_no_more_rows() -> None:
    table = _keyed()
    session = WriteSession(table.definition, table.env)
    session._transaction.unknown_since = 1
    with pytest.raises(InvalidInputError, match="commit again with the same identifier"):
        session.write(pa.table({"k": pa.array([1], pa.int32()), "v": ["x"]}), None)


@pytest.mark.parametrize("keyed", [True, False])
def test_rows_that_could_not_be_written_are_never_committed_in_part(keyed: bool) -> None:
    how: dict[str, Any] = {"primary_key": ["k"], "options": {"bucket": "4"}} if keyed else {}
    table = _table({"k": "INT", "v": "STRING"}, **how)
    storage, before = table.env.storage, contents(table.env.storage)
    table.env.storage = FaultyStorage(storage, Plan(Fault.FAIL, 2 if keyed else 1, 1, frozenset({"close"})))
    with table.writer() as writer:
        writer.write(iter([[{"k": k, "v": "a"} for k in range(20)]]))  # no held table: written by the commit
        with pytest.raises(StorageError):
            writer.commit()
        for again in (writer.commit, lambda: writer.write([{"k": 1, "v": "b"}])):
            with pytest.raises(InvalidInputError, match="failed halfway"):
                again()
        writer.abort()
        assert contents(storage) == before
        writer.write([{"k": 7, "v": "c"}])
        assert writer.commit() is not None
    assert table.read().to_pylist() == [{"k": 7, "v": "c"}]


@pytest.mark.parametrize("error", [ValueError("broken source"), KeyboardInterrupt()])
def test_a_source_that_breaks_halfway_is_not_committed_in_part(error: BaseException) -> None:
    def rows() -> Iterator[Any]:
        yield [{"k": 1, "v": "a"}]
        raise error

    table = _keyed()
    with table.writer() as writer:
        with pytest.raises(type(error)):
            writer.write(rows())
        with pytest.raises(InvalidInputError, match="failed halfway"):
            writer.commit()
    assert table.snapshots() == ()


def test_rows_that_are_refused_before_any_is_taken_leave_the_writer_as_it_was() -> None:
    table = _keyed()
    with table.writer() as writer:
        writer.write([{"k": 1, "v": "a"}])
        with pytest.raises(InvalidInputError):
            writer.write([{"k": None, "v": "b"}])
        writer.commit()
    assert table.read().to_pylist() == [{"k": 1, "v": "a"}]


def test_a_closed_writer_takes_nothing_more() -> None:
    table = _keyed()
    with table.writer() as writer:
        writer.write([{"k": 1, "v": "a"}])
    for late in (writer.commit, lambda: writer.write([{"k": 1, "v": "b"}])):
        with pytest.raises(InvalidInputError, match="is closed"):
            late()


def test_an_append_with_another_number_of_buckets_is_refused_before_a_file_is_begun() -> None:
    table = _table({"k": "INT"}, options={"bucket": "1", "bucket-key": "k"})
    table.write([{"k": 1}])
    before = contents(table.env.storage)
    schema = replace(table.schema, options=table.options.merged({"bucket": "2"}))
    other = mg.Table(replace(table.definition, schema=schema, options=schema.options), table.env)
    faulty = table.env.storage = FaultyStorage(table.env.storage)
    with pytest.raises(InvalidInputError, match="files of 1 buckets, and this write goes by 'bucket' = '2'"):
        other.write([{"k": 2}])
    assert not any(call.verb == "writer" for call in faulty.calls)
    assert contents(faulty.inner) == before


@pytest.mark.parametrize("kind", ["DOUBLE", "FLOAT"])
def test_partitions_of_nan_and_of_both_zeros_are_overwritten_and_dropped_one_by_one(kind: str) -> None:
    table = _table({"k": "INT", "p": kind}, partition_by=["p"])
    values = [0.0, -0.0, math.nan, math.inf, None]
    table.write([{"k": k, "p": p} for k, p in enumerate(values)])
    for k, p in enumerate(values):
        table.write([{"k": k + 10, "p": p}], overwrite={"p": p})
        assert sorted(row["k"] for row in table.read().to_pylist()) == [*range(k + 1, 5), *range(10, k + 11)]
    for k, p in enumerate(values):
        table.drop_partitions([{"p": p}])
        assert sorted(row["k"] for row in table.read().to_pylist()) == list(range(k + 11, 15))
    with pytest.raises(InvalidInputError, match="outside the partition"):
        table.write([{"k": 1, "p": -0.0}], overwrite={"p": 0.0})


def test_partitions_are_named_by_values_or_by_text_and_by_nothing_that_loses_a_part() -> None:
    table = _table({"day": "DATE", "id": "INT"}, primary_key=["day", "id"], partition_by=["day"])
    day = date(2026, 10, 3)
    for named in (day, "2026-10-03", datetime(2026, 10, 3)):
        table.write([{"day": day, "id": 1}])
        table.write([{"day": day, "id": 2}], overwrite={"day": named})
        assert table.read().to_pylist() == [{"day": day, "id": 2}]
        table.drop_partitions([{"day": named}])
        assert table.read().count() == 0
    table.write([{"day": day, "id": 1}])
    for wrong in (datetime(2026, 10, 3, 5), "2026-10-3", 20, True):
        with pytest.raises(InvalidInputError, match=r"cannot write to .* is not a value of partition column 'day'"):
            table.write([{"day": day, "id": 2}], overwrite={"day": wrong})
        with pytest.raises(InvalidInputError, match=r"cannot drop partitions of .* is not a value of partition column"):
            table.drop_partitions([{"day": wrong}])
    assert table.read().to_pylist() == [{"day": day, "id": 1}]

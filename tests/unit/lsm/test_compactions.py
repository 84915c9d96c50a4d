"""Compactions: with the newest schema, of the partitions that are named, in the order of the rows, without loss."""

from __future__ import annotations

import itertools
import math
import os
import random
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

import merganser as mg
from merganser.errors import FormatError, InvalidInputError, NotFoundError
from merganser.files import read, write
from merganser.files.write import RollingWriter
from merganser.lsm import compact, section
from merganser.meta.data_file import DataFile
from merganser.meta.schemas import SchemaStore
from merganser.meta.table_state import MetaReader
from merganser.options.option import Options
from merganser.schema import types as t
from merganser.schema.types_text import parse_type
from merganser.upkeep.plan_compaction import CompactionRequest, plan_jobs
from merganser.write.overwrite import upgraded
from merganser.write.start import Start
from merganser.write.writer import table_writer
from tests.kit.builders import catalog_over, memory_with

_names = itertools.count()
SCHEMA = {"k": "INT", "v": "STRING", "n": "INT"}


def _table(schema: dict[str, str] | None = None, **how: Any) -> mg.Table:
    catalog = catalog_over(memory_with({}, f"compactions-{next(_names)}"))
    catalog.create_database("db")
    how = {"primary_key": ["k"], **how}
    how["options"] = {"bucket": "1", **how.get("options", {})}
    return catalog.create_table("db.t", schema or SCHEMA, **how)


def _reopened(table: mg.Table) -> mg.Table:
    return catalog_over(table.env.storage).table("db.t")


def _rows(table: mg.Table, **how: Any) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in table.read(**how).to_pylist()), key=repr)


def _altered(table: mg.Table, added: dict[str, str], **options: str) -> mg.Table:
    """Return the table after another engine added columns and set options."""
    store = SchemaStore(table.definition.paths, table.env)
    last = store.latest()
    assert last is not None
    fields = tuple(
        t.Field(last.highest_field_id + 1 + i, name, parse_type(kind)) for i, (name, kind) in enumerate(added.items())
    )
    store.create(
        replace(
            last,
            id=last.id + 1,
            fields=last.fields + fields,
            highest_field_id=last.highest_field_id + len(fields),
            options=last.options.merged(options),
        )
    )
    return _reopened(table)


@pytest.mark.parametrize("key", [["k"], []])
def test_a_handle_older_than_a_column_does_not_lose_it(key: list[str]) -> None:
    old = _table(primary_key=key, options={"bucket": "1"} if key else {"bucket": "-1"})
    old.write([{"k": 1, "v": "a", "n": 1}])
    new = _altered(old, {"added": "STRING"})
    new.write([{"k": 2, "v": "b", "n": 2, "added": "kept"}])
    before = _rows(new)
    assert old.compact(full=True) is not None
    assert len(new.files()) == 1
    assert _rows(_reopened(new)) == before


def test_a_handle_older_than_an_option_compacts_by_the_newest_and_keeps_its_dynamic_ones() -> None:
    old = _table().with_options({"target-file-row-num": "1"})
    old.write([{"k": 1, "v": "a", "n": 1}])
    new = _altered(old, {}, **{"sequence.field": "n"})
    new.write([{"k": 1, "v": "newest", "n": 9}, {"k": 2, "v": "b", "n": 2}])
    new.write([{"k": 1, "v": "late", "n": 5}])
    old.compact(full=True)
    assert _rows(_reopened(new)) == [(1, "newest", 9), (2, "b", 2)]
    assert len(new.files()) == 2


def test_an_older_snapshot_is_read_with_the_options_of_its_time() -> None:
    table = _table(options={"merge-engine": "partial-update"})
    table.write([{"k": 1, "v": "a", "n": 1}])
    table.write([{"k": 1, "v": "b", "n": None}])
    table = _altered(table, {"g": "INT"}, **{"fields.g.sequence-group": "v", "fields.v.aggregate-function": "listagg"})
    table.write([{"k": 1, "v": "c", "n": 3, "g": 1}])
    assert _rows(table, snapshot=2) == [(1, "b", 1)]
    assert _rows(table.with_options({"scan.snapshot-id": "2"})) == [(1, "b", 1)]


@pytest.mark.parametrize("value", [math.nan, 0.0, -0.0])
def test_partitions_of_nan_and_of_both_zeros_are_compacted_one_by_one(value: float) -> None:
    table = _table({"k": "INT", "f": "DOUBLE"}, primary_key=["k", "f"], partition_by=["f"])
    for _ in range(2):
        table.write([{"k": 1, "f": f} for f in (math.nan, 0.0, -0.0)])
    assert table.compact(full=True, partitions=[{"f": value}]) is not None
    levels = {row["partition"]: row["level"] for row in table.files().to_pylist() if row["level"]}
    assert len(levels) == 1
    assert table.compact(full=True, partitions=[{"f": value}]) is None
    assert table.read().count() == 3


def test_a_partition_that_does_not_exist_is_refused_and_a_near_one_named() -> None:
    table = _table({"k": "INT", "dt": "STRING", "h": "INT"}, primary_key=["k", "dt", "h"], partition_by=["dt", "h"])
    with pytest.raises(NotFoundError, match=r"no partition 'dt=x'\. Nothing was changed\. The table has none"):
        table.compact(partitions=[{"dt": "x"}])
    assert table.compact(partitions=[{}]) is None
    for hour in (1, 1, 2):
        table.write([{"k": 1, "dt": "2026-01-01", "h": hour}])
    with pytest.raises(NotFoundError) as caught:
        table.compact(full=True, partitions=[{"dt": "2026-01-01"}, {"h": 3, "dt": "2026-01-01"}])
    assert str(caught.value) == (
        "cannot compact 'db.t': it has no partition 'dt=2026-01-01, h=3'. Nothing was changed. "
        "Did you mean 'dt=2026-01-01, h=2'?"
    )
    with pytest.raises(NotFoundError, match=r"no partition 'dt=2026-01-02'\..* Did you mean 'dt=2026-01-01'"):
        table.compact(full=True, partitions=[{"dt": "2026-01-02"}])
    assert len(table.snapshots()) == 3
    assert table.compact(full=True, partitions=[{"dt": "2026-01-01"}]) is not None
    table.write([], overwrite={"dt": "2026-01-01", "h": 2})
    with pytest.raises(NotFoundError, match="no partition 'h=2'"):
        table.compact(full=True, partitions=[{"h": 2}])


@pytest.mark.parametrize("partitions", [3, "a", {"p": 1}])
def test_what_is_no_list_of_partitions_is_not_compacted(partitions: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"cannot compact 'db.t': .* is not a list of partitions"):
        _table().compact(partitions=partitions)


def test_a_partition_column_that_is_none_is_named_by_the_compaction() -> None:
    with pytest.raises(InvalidInputError, match=r"cannot compact 'db\.t': 'x' is not a partition column"):
        _table().compact(partitions=[{"x": 1}])


def test_rows_of_an_append_bucket_stay_before_later_ones_whoever_wrote_side_by_side() -> None:
    options = {"bucket-key": "k", "target-file-size": "20 kb", "target-file-row-num": "12"}
    table = _table({"k": "INT", "v": "STRING"}, primary_key=[], options=options)
    writers = [table.writer() for _ in range(3)]
    for number, writer in enumerate(writers):
        writer.write([{"k": number * 10 + i, "v": ""} for i in range(10)])
    for writer in writers:
        writer.commit()
    table.write([{"k": 100 + i, "v": os.urandom(2000).hex()} for i in range(10)])
    order = table.read(columns=["k"]).to_arrow()["k"].to_pylist()
    assert table.compact(full=True) is not None
    assert table.read(columns=["k"]).to_arrow()["k"].to_pylist() == order
    table.write([{"k": 200, "v": ""}])
    assert table.read(columns=["k"]).to_arrow()["k"].to_pylist() == [*order, 200]


def test_a_sum_that_does_not_fit_names_the_table_and_changes_nothing() -> None:
    engine = {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}
    table = _table({"k": "INT", "n": "TINYINT"}, options=engine)
    what = r"cannot merge column 'n' with aggregate function 'sum': overflow"
    with pytest.raises(InvalidInputError, match=rf"^cannot write to 'db.t': {what}.* Nothing was written\.$"):
        table.write([{"k": 1, "n": 100}, {"k": 1, "n": 100}])
    assert table.latest_snapshot() is None
    for _ in range(2):
        table.write([{"k": 1, "n": 100}])
    said = rf"^cannot merge stored rows of 'db.t': {what}.* as it was\. Reads of other columns .* table\.rollback\("
    for work in (table.read().to_arrow, lambda: table.compact(full=True)):
        with pytest.raises(InvalidInputError, match=said):
            work()
    assert len(table.files()) == 2
    # What the message says is true.
    assert _rows(table, columns=["k"]) == [(1,)]
    assert table.read(snapshot=1).to_pylist() == [{"k": 1, "n": 100}]
    table.rollback(snapshot=1)
    assert table.read().to_pylist() == [{"k": 1, "n": 100}]


def _with_uncounted_retractions(table: mg.Table, rows: list[dict[str, Any]]) -> None:
    """Write rows as a client does that says of no file that it has retractions, whatever it wrote."""
    finish = write._OpenFile.finish

    def without_count(file: Any, level: int, source: int, now_ms: int) -> DataFile:
        return replace(finish(file, level, source, now_ms), delete_row_count=0)

    with patch.object(write._OpenFile, "finish", without_count):
        table.with_options({"write-only": "true"}).write(rows)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"deletion-vectors.enabled": "true"},
        {"target-file-size": "1 b"},
        {"num-sorted-run.compaction-trigger": "2", "compaction.size-ratio": "1000"},
    ],
)
@pytest.mark.parametrize("full", [True, False])
def test_retractions_that_their_writer_did_not_count_are_never_counted_as_rows(
    options: dict[str, str], full: bool
) -> None:
    table = _table({"k": "INT", "op": "STRING"}, options={"rowkind.field": "op", **options})
    _with_uncounted_retractions(table, [{"k": k, "op": "-D" if k % 2 else "+I"} for k in range(10)])
    expected = [0, 2, 4, 6, 8]
    for k in (20, 21):
        table.compact(full=full)
        assert sorted(row["k"] for row in table.read().to_pylist()) == expected
        assert table.read().count() == len(expected)
        _with_uncounted_retractions(table, [{"k": k, "op": "+I"}, {"k": k + 10, "op": "-D"}])
        expected.append(k)


def test_an_uncounted_removal_reaches_the_older_sum() -> None:
    options = {
        "rowkind.field": "op",
        "merge-engine": "aggregation",
        "aggregation.remove-record-on-delete": "true",
        "fields.n.aggregate-function": "sum",
        "num-sorted-run.compaction-trigger": "3",
        "compaction.size-ratio": "0",
        "compaction.max-size-amplification-percent": "1000000",
    }
    table = _table({"k": "INT", "n": "INT", "op": "STRING", "pad": "STRING"}, options=options)
    pad = random.Random(0).randbytes(20_000).hex()
    table.write([{"k": 1, "n": 10, "op": "+I", "pad": pad}])
    table.compact(full=True)
    for n, op in ((2, "-D"), (5, "+I"), (1, "+I")):
        _with_uncounted_retractions(table, [{"k": 1, "n": n, "op": op, "pad": None}])
    table.compact()
    assert [row["n"] for row in table.read().to_pylist()] == [5 + 1]


def test_numbers_go_on_above_those_of_rows_that_a_compaction_left() -> None:
    table = _table()
    table.write([{"k": k, "v": "old", "n": k} for k in range(4)])
    table.write([{"k": 3, "v": None, "n": None}], kinds=["-D"])
    with table.writer() as open_before:
        open_before.write([{"k": 2, "v": "before", "n": 0}])
        table.compact(full=True)
        table.write([{"k": 0, "v": "after", "n": 0}, {"k": 1, "v": "after", "n": 1}])
        open_before.commit()
    table.write([{"k": 2, "v": "last", "n": 0}])
    assert _rows(table) == [(0, "after", 0), (1, "after", 1), (2, "last", 0)]
    table.compact(full=True)
    assert _rows(table) == [(0, "after", 0), (1, "after", 1), (2, "last", 0)]


def test_options_of_another_schema_come_below_the_dynamic_ones() -> None:
    definition = _table(options={"write-buffer-size": "1 mb"}).with_options({"num-levels": "4"}).definition
    other = replace(definition.schema, options=Options({"bucket": "1", "num-levels": "7", "file.format": "orc"}))
    found = definition.with_schema(other).options
    assert dict(found) == {"bucket": "1", "num-levels": "4", "file.format": "orc"}


def test_files_of_an_overwrite_by_several_writers_are_lifted_only_if_none_of_them_meet() -> None:
    table = _table()
    messages = []
    for keys in ((0, 5), (3, 9), (10, 12)):
        writer = table_writer(table.definition, table.env, Start(lambda bucket, first=keys[0]: first * 100))
        rows = pa.table({"k": pa.array(keys, pa.int32()), "v": ["a", "b"], "n": pa.array([1, 2], pa.int32())})
        writer.write(rows)
        messages += writer.finish()
    assert [[f.level for f in m.added] for m in upgraded(table.definition, messages)] == [[0], [0], [0]]
    assert [[f.level for f in m.added] for m in upgraded(table.definition, messages[1:])] == [[5], [5]]


@pytest.mark.parametrize("key", [["k"], []])
def test_memory_of_a_compaction_follows_its_windows_whatever_the_bucket(
    key: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(section, "WINDOW_BYTES", 300_000)
    monkeypatch.setattr(section, "PART_BYTES", 50_000)
    monkeypatch.setattr(section, "PART_BYTES_MIN", 1)
    monkeypatch.setattr(read, "WHOLE_BYTES", 0)
    table = _table({"k": "INT", "v": "BYTES"}, primary_key=key, options={"bucket": "1" if key else "-1"})
    chance = random.Random(1)
    for _ in range(4):
        table.write([{"k": k, "v": chance.randbytes(5_000)} for k in range(300)])
    before = _rows(table)
    largest = 0
    write = RollingWriter.write

    def seen(writer: RollingWriter, rows: pa.Table, **how: Any) -> None:
        nonlocal largest
        largest = max(largest, rows.nbytes)
        write(writer, rows, **how)

    monkeypatch.setattr(RollingWriter, "write", seen)
    assert table.compact(full=True) is not None
    assert 0 < largest <= 600_000
    assert _rows(table) == before


def test_a_large_bucket_is_compacted_alike_whatever_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compact, "_AHEAD_BYTES", 0)
    monkeypatch.setattr(section, "WINDOW_ROWS", 100)
    found = []
    for threads in (1, 4):
        table = _table()
        table.env.threads = threads
        for start in range(5):
            table.write([{"k": k, "v": f"{k}", "n": start} for k in range(start, 2_000, 3)])
        table.compact(full=True)
        [file] = table.files().to_pylist()
        found.append((file["record_count"], file["file_size_in_bytes"], _rows(table)))
    assert found[0] == found[1]


def test_a_large_bucket_whose_file_is_damaged_leaves_the_table_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compact, "_AHEAD_BYTES", 0)
    table = _table()
    for _ in range(2):
        table.write([{"k": k, "v": "x", "n": 1} for k in range(100)])
    path = table.files().to_pylist()[0]["file_path"]
    data = bytearray(table.env.storage.read(path))
    data[4 : len(data) // 2] = bytes(len(data) // 2 - 4)
    table.env.storage.delete([path])
    table.env.storage.create(path, bytes(data))
    files = {entry.name for entry in table.env.storage.list(f"{table.path}/bucket-0")}
    with pytest.raises(FormatError):
        table.compact(full=True)
    assert {entry.name for entry in table.env.storage.list(f"{table.path}/bucket-0")} == files


@pytest.mark.parametrize("keyed", [True, False])
def test_what_a_compaction_replaced_goes_from_the_memory_of_the_system_and_nothing_else_does(
    keyed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    how: dict[str, Any] = {} if keyed else {"primary_key": [], "options": {"bucket": "-1"}}
    table = _table(**how)
    for first in (0, 2, 1000):
        table.write([{"k": k, "v": "x", "n": 1} for k in range(first, first + 3)])
    if keyed:  # so that the last file, which overlaps nothing, only changes its level
        table = table.with_options({"target-file-size": "1 kb"})
    reader = MetaReader(table.definition.paths, table.env, table.name)
    [job] = plan_jobs(table.definition, table.env, reader.latest(), CompactionRequest(full=True))
    storage = table.env.storage
    outside = "/outside/of/the/table.parquet"
    first = min(job.files, key=lambda file: file.min_sequence)
    storage.replace(outside, storage.read(f"{job.directory}/{first.name}"))
    files = tuple(replace(file, external_path=outside) if file is first else file for file in job.files)
    gone: list[str] = []
    monkeypatch.setattr(type(storage), "uncache", lambda storage, paths: gone.extend(paths))
    (message,) = replace(job, files=files).run(table.env)
    kept = {file.name for file in message.added} & {file.name for file in message.removed}
    assert len(kept) == (1 if keyed else 0)
    inside = {f"{job.directory}/{file.name}" for file in files if file.external_path is None and file.name not in kept}
    assert set(gone) == {outside} | inside


@pytest.mark.parametrize("keyed", [True, False])
def test_a_compaction_of_one_bucket_tells_how_far_it_is(keyed: bool) -> None:
    how: dict[str, Any] = {} if keyed else {"primary_key": [], "options": {"bucket": "-1"}}
    table = _table(**how)
    for start in (0, 50):
        table.write([{"k": k, "v": "x" * 20, "n": k} for k in range(start, start + 1000)])
    reader = MetaReader(table.definition.paths, table.env, table.name)
    [job] = plan_jobs(table.definition, table.env, reader.latest(), CompactionRequest(full=True))
    told: list[int] = []
    with patch.object(section, "WINDOW_ROWS", 100):
        assert job.run(table.env, told.append)
    assert len(told) > 1
    assert 0.4 * job.size_bytes < sum(told) <= job.size_bytes

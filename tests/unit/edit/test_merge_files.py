"""Merges into tables without a key, as an engine does them that joins the rows of files with the source."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import merganser as mg
from merganser.edit import rewrite
from merganser.edit.joined import Source
from merganser.edit.merge_files import AT, FILE, JOB, NEW, FilesMerge, can_join_files, merged_in_files
from merganser.edit.merging import Merge
from merganser.errors import InvalidInputError, InvariantError
from merganser.schema.table_schema import POSITION
from merganser.upkeep.compact_table import on_threads
from merganser.write.job import Outcome
from tests.unit.edit.change_oracle import COLUMNS, SOURCE, Row, merging, row

KINDS: dict[str, dict[str, str]] = {
    "plain": {},
    "vectors": {"deletion-vectors.enabled": "true"},
    "bucketed": {"bucket": "2", "bucket-key": "k"},
}


@pytest.fixture
def catalog(tmp_path: Path) -> mg.Catalog:
    found = mg.catalog(str(tmp_path), options={"local.sync": "false"})
    found.create_database("db")
    return found


def joined(todo: FilesMerge, source: pa.Table, table: mg.Table) -> pa.Table:
    """Return rows of a source with the places of rows that they meet, in the order of their jobs."""
    found = Source(source, todo.clauses.on, todo.clauses.action)
    parts: list[pa.Table] = []

    def put(of_source: Any, job: int, file: int | None, at: Any) -> None:
        count = len(of_source)
        rows = source.take(pa.array(of_source, pa.int64()))
        rows = rows.append_column(JOB, pa.array([job] * count, pa.int64()))
        rows = rows.append_column(FILE, pa.array([file] * count, pa.int32()))
        parts.append(rows.append_column(AT, pa.array(at, pa.int64())))

    for job, files in enumerate(todo.jobs):
        if todo.clauses.unmatched:
            put([0 if source.num_rows else None], job, None, [None])
        for file, rows in files.sought(table.env):
            of_target, of_source, _ = found.pairs(rows, (), narrowed=False)
            put(of_source, job, file, rows.column(POSITION.name).to_numpy()[of_target])
    if todo.clauses.missing:
        new = np.flatnonzero(~found.met)
        put(new, NEW, None, [None] * len(new))
    whole = pa.concat_tables(parts) if parts else source.slice(0, 0)
    return whole.take(pa.array(np.random.default_rng(1).permutation(whole.num_rows))).sort_by(JOB) if parts else whole


def merged(merge: Merge, source: pa.Table, table: mg.Table, *, twice: bool = False) -> mg.Snapshot | None:
    """Do a merge as an engine does it.

    Args:
        twice: two tasks do all jobs.
    """

    def run(todo: FilesMerge) -> list[Outcome]:
        rows = joined(todo, source, table)
        parts = [rows.slice(i, 3) for i in range(0, rows.num_rows, 3)]
        return [each for _ in range(1 + twice) for each in todo.new.run(parts, todo.jobs.__getitem__, table.env)]

    assert can_join_files(merge)
    return merged_in_files(merge, run, on_threads(table.env))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_files_of_rows_that_meet_one_of_the_source_change(
    catalog: mg.Catalog, monkeypatch: pytest.MonkeyPatch, kind: str, seed: int
) -> None:
    monkeypatch.setattr(rewrite, "WINDOW_ROWS", 4)
    rng = random.Random(seed)
    parts = ["p"] if rng.random() < 0.5 else []
    table = catalog.create_table("db.t", COLUMNS, partition_by=parts, options={"write-only": "true", **KINDS[kind]})
    rows: list[Row] = []
    for _ in range(3):
        new = [row(rng) for _ in range(10)]
        table.write(new)
        rows += new
    for _ in range(4):
        drawn = merging(rng)
        source = pa.Table.from_pylist(drawn.rows, SOURCE)
        found = merged(drawn.of(table.merge(source.slice(0, 0), on=drawn.on)), source, table)
        rows, counts = drawn.applied(rows)
        assert (found and (found.rows_inserted, found.rows_updated, found.rows_deleted)) == (
            counts if any(counts) else None
        )
        assert sorted(table.read().to_pylist(), key=repr) == sorted(rows, key=repr)
    assert [each for each in table.check() if each.is_fault] == []


@pytest.mark.parametrize("others", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_what_a_task_refuses_leaves_no_file(catalog: mg.Catalog, kind: str, others: bool) -> None:
    table = catalog.create_table("db.t", COLUMNS, options={"write-only": "true", **KINDS[kind]})
    for first in (0, 10):
        table.write([{"p": "x", "k": k, "a": k, "b": "b", "n": k} for k in range(first, first + 10)])
    before = table.snapshots()[-1]
    source = pa.Table.from_pylist([{"p": "x", "k": k, "a": 0, "b": "c", "n": 1} for k in (2, 15, 15, 30)], SOURCE)
    merge = table.merge(source.slice(0, 0), on="target.k = source.k AND target.p = source.p")
    merge = merge.when_matched_update({"n": "source.n"}).when_not_matched_insert()
    if others:
        merge = merge.when_not_matched_by_source_update({"n": "-1"})
    with pytest.raises(InvalidInputError, match=r"1 row of the table .*\(k = 15, p = 'x'\)\. Nothing was written"):
        merged(merge, source, table)
    divides = table.merge(source.slice(0, 0), on="target.k = source.k").when_matched_delete("source.k = 2")
    divides = divides.when_not_matched_insert({"k": "1 DIV (source.k - 30)", "n": "0"})
    with pytest.raises(InvalidInputError, match="zero"):
        merged(divides, source.take(pa.array([0, 1, 3])), table)
    with pytest.raises(InvariantError, match="changed by several tasks"):
        merged(merge, source.slice(0, 2), table, twice=True)
    assert table.snapshots()[-1] == before
    assert table.remove_orphans(older_than="2100-01-01T00:00:00") == ()


def test_a_merge_begins_again_if_rows_are_marked_meanwhile(catalog: mg.Catalog) -> None:
    table = catalog.create_table("db.t", COLUMNS, options={"write-only": "true", **KINDS["vectors"]})
    table.write([{"p": "x", "k": k, "a": k, "b": "b", "n": k} for k in range(10)])
    source = pa.Table.from_pylist([{"p": "x", "k": k, "a": 0, "b": "c", "n": 1} for k in (5, 6, 30)], SOURCE)
    merge = table.merge(source.slice(0, 0), on="target.k = source.k").when_not_matched_insert()
    rounds: list[int] = []

    def run(todo: FilesMerge) -> list[Outcome]:
        rounds.append(1)
        rows = joined(todo, source, table)
        if len(rounds) == 1:
            table.delete("k = 5")
        return list(todo.new.run([rows], todo.jobs.__getitem__, table.env))

    found = merged_in_files(merge, run, on_threads(table.env))
    assert found is not None
    assert (found.rows_inserted, len(rounds)) == (2, 2)
    assert sorted(row["k"] for row in table.read().to_pylist()) == [*range(10), 30]


def test_times_that_an_engine_cuts_off_are_not_joined_there(catalog: mg.Catalog) -> None:
    columns = {"k": "INT", "at": "TIMESTAMP(9)", "r": "ROW<l ARRAY<TIMESTAMP_LTZ(7)>>"}
    table = catalog.create_table("db.t", columns)
    assert can_join_files(table.merge([], on="target.k = source.k"))
    assert not can_join_files(table.merge([], on="target.at = source.at"))
    assert not can_join_files(table.merge([], on="target.k = source.k AND target.r IS NOT NULL"))

"""A removal that shares a flush with what follows it is a sorted run of its own, below the rest."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import merganser as mg
from merganser.meta.data_file import DataFile
from merganser.meta.table_state import MetaReader
from tests.kit.builders import catalog_over, memory_with

_names = itertools.count()
REMOVING = {
    "aggregation": {"aggregation.remove-record-on-delete": "true", "fields.n.aggregate-function": "sum"},
    "partial-update": {"partial-update.remove-record-on-delete": "true"},
    "partial-update by group": {
        "fields.g.sequence-group": "n",
        "fields.n.aggregate-function": "sum",
        "partial-update.remove-record-on-sequence-group": "g",
    },
}


def _table(name: str, **options: str) -> mg.Table:
    catalog = catalog_over(memory_with({}, f"removals-{next(_names)}"))
    catalog.create_database("db")
    engine = {"merge-engine": name.split()[0], "bucket": "1"}
    schema = {"k": "INT", "g": "INT", "v": "STRING", "n": "INT"}
    return catalog.create_table("db.t", schema, primary_key=["k"], options=engine | REMOVING.get(name, {}) | options)


def _write(table: mg.Table, *changes: tuple[str, int, int | None, str | None, int | None]) -> None:
    rows = [{"op": op, "k": k, "g": g, "v": v, "n": n} for op, k, g, v, n in changes]
    table.write(rows, kinds="op")


def _rows(table: mg.Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.read().to_pylist())


def _files(table: mg.Table) -> list[DataFile]:
    reader = MetaReader(table.definition.paths, catalog_over(table.env.storage).env, table.name)
    return sorted((entry.file for entry in reader.latest().live), key=lambda file: file.min_sequence)


@pytest.mark.parametrize("name", REMOVING)
def test_a_removal_reaches_older_rows_when_its_key_comes_back_in_the_same_flush(name: str) -> None:
    table = _table(name)
    _write(table, ("+I", 1, 1, "old", 10), ("+I", 2, 1, "kept", 20))
    _write(table, ("-D", 1, 2, "old", 10), ("+I", 1, 3, None, 5), ("+I", 2, 2, None, 1))
    kept = 1 if name == "partial-update" else 21
    assert _rows(table) == [(1, 3, None, 5), (2, 2, "kept", kept)]


@pytest.mark.parametrize("name", REMOVING)
def test_the_runs_of_a_flush_lie_apart_and_within_the_numbers_of_its_rows(name: str) -> None:
    table = _table(name)
    _write(table, ("+I", 3, 1, "a", 1), ("+I", 1, 1, "b", 2), ("-D", 1, 2, None, None), ("-D", 2, 1, None, 0),
           ("+I", 1, 3, "c", 3), ("+I", 2, 2, "d", 4))  # fmt: skip
    *before, removals, rest = _files(table)
    # Whether a delete of a sequence group removes, older rows decide: so what came before it in the flush is kept too.
    assert [file.row_count for file in before] == ([1] if name == "partial-update by group" else [])
    assert (removals.row_count, removals.delete_row_count) == (2, 2)
    assert (rest.row_count, rest.delete_row_count) == (3, 0)
    assert before == [] or before[0].max_sequence < removals.min_sequence
    assert removals.max_sequence < rest.min_sequence
    assert rest.max_sequence == 5
    _write(table, ("+I", 3, 2, None, 1))
    assert _files(table)[-1].min_sequence == 6


@pytest.mark.parametrize("name", [*REMOVING, "deduplicate"])
def test_a_flush_without_a_row_that_comes_back_is_one_run(name: str) -> None:
    table = _table(name)
    _write(table, ("+I", 1, 1, "a", 1), ("-D", 1, 2, "a", 1), ("-D", 2, 1, None, 0), ("+I", 3, 1, "c", 1))
    assert len(_files(table)) == 1 + (name == "partial-update by group")
    assert _rows(table) == [(3, 1, "c", 1)]


def test_a_removal_that_comes_late_for_its_group_removes_nothing() -> None:
    table = _table("partial-update by group")
    _write(table, ("+I", 1, 9, "old", 10))
    _write(table, ("-D", 1, 2, None, 4), ("+I", 1, 3, None, 5))
    assert _rows(table) == [(1, 9, "old", 11)]


@pytest.mark.parametrize("name", ["aggregation", "partial-update by group"])
def test_values_taken_back_in_a_flush_of_their_own_do_not_remove_the_row(name: str) -> None:
    table = _table(name)
    _write(table, ("+I", 1, 1, "a", 10))
    _write(table, ("-U", 1, 2, "a", 3), ("-U", 1, 3, "a", 4))
    assert [row[-1] for row in _rows(table)] == [3]


def test_what_a_group_loses_is_taken_back_when_the_flush_adds_to_other_columns_only() -> None:
    table = _table(
        "partial-update with groups", **{"fields.g.sequence-group": "n", "fields.n.aggregate-function": "sum"}
    )
    _write(table, ("+I", 1, 1, "a", 10))
    _write(table, ("-U", 1, 2, None, 4), ("+U", 1, None, "b", None))
    assert _rows(table) == [(1, 2, "b", 6)]
    _write(table, ("-D", 1, 3, None, 1))
    assert _rows(table) == [(1, 3, "b", 5)]

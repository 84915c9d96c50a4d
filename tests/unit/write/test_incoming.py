"""Kinds of rows as they come in: from a column, dropped, refused; and stored retractions that are to be ignored."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

import merganser as mg
from merganser.errors import InvalidInputError
from tests.kit.builders import catalog_over, memory_with

_names = itertools.count()


def _table(**options: str) -> mg.Table:
    catalog = catalog_over(memory_with({}, f"incoming-{next(_names)}"))
    catalog.create_database("db")
    schema = {"k": "INT", "g": "INT", "n": "INT", "op": "STRING"}
    return catalog.create_table("db.t", schema, primary_key=["k"], options={"bucket": "1", **options})


def _row(k: int, n: int | None = None, op: str | None = None, g: int | None = None) -> dict[str, Any]:
    return {"k": k, "g": g, "n": n, "op": op}


def _values(table: mg.Table) -> dict[int, int | None]:
    return {row["k"]: row["n"] for row in table.read().to_pylist()}


def test_the_column_says_what_rows_do_and_stays_a_column() -> None:
    table = _table(**{"rowkind.field": "op"})
    table.write([_row(1, 1, "+I"), _row(2, 2, "+U"), _row(1, 1, "-D")], kinds=["-D", "-D", "+I"])
    assert table.read().to_pylist() == [_row(2, 2, "+U")]


@pytest.mark.parametrize("text", [None, "+X", "I", ""])
def test_a_column_that_says_nothing_known_is_refused_with_its_name(text: str | None) -> None:
    table = _table(**{"rowkind.field": "op"})
    with pytest.raises(InvalidInputError, match=r"column 'op' \('rowkind.field'\)"):
        table.write([_row(1, 1, "+I"), _row(2, 2, text)])
    assert table.latest_snapshot() is None


@pytest.mark.parametrize(("option", "kept"), [("ignore-delete", {1: 1, 2: 2}), ("ignore-update-before", {2: 2})])
def test_options_drop_kinds_before_they_are_stored(option: str, kept: dict[int, int]) -> None:
    table = _table(**{option: "true"})
    table.write([_row(1, 1), _row(2, 2), _row(2, 3), _row(3, 3)], kinds=["+I", "+I", "-U", "-U"])
    table.write([_row(1)], kinds=["-D"])
    assert _values(table) == kept


@pytest.mark.parametrize(
    "options",
    [
        {"merge-engine": "first-row"},
        {"merge-engine": "partial-update"},
        {"merge-engine": "aggregation", "fields.n.aggregate-function": "max"},
        {"merge-engine": "partial-update", "fields.g.sequence-group": "n", "fields.n.aggregate-function": "max"},
    ],
)
def test_what_an_engine_cannot_take_back_is_refused_before_anything_is_written(options: dict[str, str]) -> None:
    table = _table(**options)
    with pytest.raises(InvalidInputError, match=r"row 2 of 2 is of kind -D.*Nothing was written"):
        table.write([_row(1, 1), _row(1, 1)], kinds=["+I", "-D"])
    assert table.latest_snapshot() is None


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"},
        {"merge-engine": "partial-update", "fields.g.sequence-group": "n", "fields.n.aggregate-function": "sum"},
    ],
)
def test_stored_retractions_have_no_effect_once_they_are_to_be_ignored(options: dict[str, str]) -> None:
    table = _table(**options)
    table.write([_row(1, 5, g=1), _row(2, 6, g=1)])
    table.write([_row(1, 5, g=2), _row(3, 1, g=2), _row(2, 6, g=2)], kinds=["-D", "-D", "-U"])
    changed = table.options.merged({"ignore-delete": "true"})
    assert _values(replace(table, definition=replace(table.definition, options=changed))) == {1: 5, 2: 6}

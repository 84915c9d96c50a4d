"""Rows as callers hold them: what is taken, and what is refused as bad input."""

from __future__ import annotations

import itertools
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import merganser as mg
from merganser.errors import InvalidInputError
from merganser.testing.builders import catalog_over, contents, memory_with

_names = itertools.count()


def _table(schema: dict[str, str]) -> mg.Table:
    catalog = catalog_over(memory_with({}, f"ingest-{next(_names)}"))
    catalog.create_database("db")
    return catalog.create_table("db.t", schema, primary_key=["k"], options={"bucket": "1"})


@pytest.mark.parametrize(
    "value", [None, {}, {"a": 1}, {"a": 1, "b": None}, [], [("a", 1)], [("a", None)], [["a", 1], ["b", 2]]]
)
def test_a_map_is_given_as_a_dictionary_or_as_pairs(value: Any) -> None:
    table = _table({"k": "INT", "m": "MAP<STRING, INT>"})
    table.write([{"k": 1, "m": value}])
    wanted = None if value is None else [tuple(pair) for pair in (value.items() if isinstance(value, dict) else value)]
    assert table.read().to_pylist() == [{"k": 1, "m": wanted}]


def test_maps_inside_lists_and_rows_are_taken_and_what_is_read_can_be_written_again() -> None:
    table = _table({"k": "INT", "a": "ARRAY<ROW<x INT, y MAP<STRING, ARRAY<INT>>>>", "s": "MULTISET<STRING>"})
    rows = [
        {"k": 1, "a": None, "s": None},
        {"k": 2, "a": [], "s": {}},
        {"k": 3, "a": [None], "s": {"x": 2}},
        {"k": 4, "a": [{"x": None, "y": None}, {"x": 1}], "s": {"x": 2, "y": 1}},
        {"k": 5, "a": [{"x": 1, "y": {"a": None, "b": [None, 3]}}], "s": None},
    ]
    table.write(rows)
    found = table.read().to_pylist()
    assert found[3]["a"] == [{"x": None, "y": None}, {"x": 1, "y": None}]
    assert found[4]["a"] == [{"x": 1, "y": [("a", None), ("b", [None, 3])]}]
    assert [row["s"] for row in found] == [None, [], [("x", 2)], [("x", 2), ("y", 1)], None]
    table.write(found)
    assert table.read().to_pylist() == found


@pytest.mark.parametrize(
    "data",
    [
        [{1: 2}],
        [{"k": 1, "v": "\ud800"}],
        [{"k": 1, "v": "a"}, {"k": 2, "v": 3}],
        [{"k": 1, "v": "a", "m": 5}],
        [{"k": 1, "v": "a", "m": {"a": 1.5}}],
        [{"k": 1, "v": "a", "m": [(None, 1)]}],
        pd.DataFrame({"k": [1, 2], "v": ["a", 3]}),
        pd.DataFrame([[1, 2]], columns=["k", "k"]),
    ],
)
def test_what_is_no_rows_of_the_table_is_bad_input(data: Any) -> None:
    table = _table({"k": "INT", "v": "STRING", "m": "MAP<STRING, INT>"})
    before = contents(table.env.storage)
    with pytest.raises(InvalidInputError):
        table.write(data)
    assert contents(table.env.storage) == before


def test_categories_of_polars_are_text() -> None:
    table = _table({"k": "INT", "v": "STRING"})
    table.write(pl.DataFrame({"k": [1, 2], "v": pl.Series(["a", None], dtype=pl.Categorical)}))
    assert table.read().to_pylist() == [{"k": 1, "v": "a"}, {"k": 2, "v": None}]


def test_a_map_column_of_arrow_is_taken_as_it_is() -> None:
    table = _table({"k": "INT", "m": "MAP<STRING, INT>"})
    maps = pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int32()))
    table.write(pa.table({"k": pa.array([1], pa.int32()), "m": maps}))
    assert table.read().to_pylist() == [{"k": 1, "m": [("a", 1)]}]

"""Rows as callers hold them: what is taken, and what is refused as bad input."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv as pa_csv
import pytest

import merganser as mg
from merganser.errors import FormatError, InvalidInputError
from tests.kit.builders import catalog_over, contents, memory_with

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


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([(None, 1)], r"\[\(None, 1\)\] has the key None, and keys of a map cannot be null\. Leave the entry out"),
        ({"a": 1, None: 2}, r"\{'a': 1, None: 2\} has the key None, and keys of a map cannot be null"),
        ([1, 2], r"\[1, 2\] is no map\. Give a dictionary or a list of pairs"),
    ],
)
def test_what_is_no_map_is_named(value: Any, said: str) -> None:
    table = _table({"k": "INT", "m": "MAP<STRING, INT>", "a": "ARRAY<MAP<STRING, INT>>"})
    for rows in (
        [{"k": 1, "m": {"a": 1}, "a": None}, {"k": 2, "m": value, "a": None}],
        [{"k": 1, "m": None, "a": [value]}],
    ):
        with pytest.raises(InvalidInputError, match=rf"^cannot take column '[ma]' of the rows: {said}.* Nothing was"):
            table.write(rows)
    assert table.latest_snapshot() is None


def test_a_map_key_that_arrow_takes_for_null_is_named() -> None:
    table = _table({"k": "INT", "m": "MAP<TIMESTAMP(3), INT>"})
    rows = [{"k": 1, "m": {np.datetime64("2024-01-31", "ms"): 1}}, {"k": 2, "m": {np.datetime64("NaT", "ms"): 1}}]
    with pytest.raises(InvalidInputError, match=r"^cannot take column 'm' .*NaT.* keys of a map cannot be null"):
        table.write(rows)


def _as_file(values: list[Any], form: str, directory: Path) -> str:
    path = directory / f"rows.{form}"
    rows = [{"k": i, "v": value} for i, value in enumerate(values)]
    texts = {
        "csv": "k,v\n" + "".join(f"{row['k']},{row['v']}\n" for row in rows),
        "json": "".join(json.dumps(row) + "\n" for row in rows),
    }
    path.write_text(texts[form])
    return str(path)


_DOORS: dict[str, Callable[[list[float]], Any]] = {
    "dictionaries": lambda values: [{"k": i, "v": value} for i, value in enumerate(values)],
    "arrow": lambda values: pa.table({"k": range(len(values)), "v": values}),
    "pandas": lambda values: pd.DataFrame({"k": range(len(values)), "v": values}),
    "polars": lambda values: pl.DataFrame({"k": range(len(values)), "v": values}),
    "decimals": lambda values: [{"k": i, "v": Decimal(repr(value))} for i, value in enumerate(values)],
}


@pytest.mark.parametrize("door", [*_DOORS, "csv", "json"])
def test_a_float_takes_the_nearest_number_at_every_door_and_refuses_what_is_too_large(
    door: str, tmp_path: Path
) -> None:
    table = _table({"k": "INT", "v": "FLOAT"})

    def write(values: list[float]) -> None:
        if door in _DOORS:
            table.write(_DOORS[door](values))
        else:
            table.load(_as_file(values, door, tmp_path))

    values = [0.1, -2.7, 16777217.0, 1.5, 3e-50]
    write(values)
    assert table.read().to_pylist() == [{"k": i, "v": float(np.float32(value))} for i, value in enumerate(values)]
    with pytest.raises(InvalidInputError, match="does not fit FLOAT"):
        write([0.5, 1e39])


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


def _batch(*keys: int) -> pa.RecordBatch:
    return pa.record_batch({"k": pa.array(keys, pa.int32()), "v": [str(key) for key in keys]})


_BATCHES = [_batch(1), _batch(2, 1)]
_FORMS: dict[str, Callable[[], Any]] = {
    "table": lambda: pa.Table.from_batches(_BATCHES),
    "list of batches": lambda: list(_BATCHES),
    "tuple of tables": lambda: tuple(pa.Table.from_batches([batch]) for batch in _BATCHES),
    "iterator": lambda: iter(_BATCHES),
    "reader": lambda: pa.RecordBatchReader.from_batches(_BATCHES[0].schema, _BATCHES),
    "list of dictionaries": lambda: [row for batch in _BATCHES for row in batch.to_pylist()],
    "tuple of dictionaries": lambda: tuple(row for batch in _BATCHES for row in batch.to_pylist()),
    "iterator of dictionaries": lambda: (row for batch in _BATCHES for row in batch.to_pylist()),
    "dictionaries and batches": lambda: iter([{"k": 1, "v": "1"}, _BATCHES[1]]),
}


@pytest.mark.parametrize("form", _FORMS)
def test_kinds_given_row_by_row_are_dealt_out_over_whatever_holds_the_rows(form: str) -> None:
    table = _table({"k": "INT", "v": "STRING"})
    for kinds in (["+I", "+I", "-D"], pa.array(["+I", "+I", "-D"]), pa.chunked_array([["+I", "+I"], ["-D"]])):
        table.write(_FORMS[form](), kinds=kinds)
        assert table.read().to_pylist() == [{"k": 2, "v": "2"}]
        table.truncate()


@pytest.mark.parametrize("form", _FORMS)
@pytest.mark.parametrize("count", [0, 1, 2, 4])
def test_more_or_fewer_kinds_than_rows_leave_nothing_behind(form: str, count: int) -> None:
    table = _table({"k": "INT", "v": "STRING"})
    before = contents(table.env.storage)
    with pytest.raises(InvalidInputError, match=rf": {count} kinds for [13] rows( or more)?\. Give one for each row"):
        table.write(_FORMS[form](), kinds=["+I"] * count)
    assert contents(table.env.storage) == before


def test_batches_after_the_one_that_lacks_a_kind_are_not_asked_for() -> None:
    table = _table({"k": "INT", "v": "STRING"})
    endless = (_batch(key) for key in itertools.count())
    with pytest.raises(InvalidInputError, match="2 kinds for 3 rows or more"):
        table.write(endless, kinds=["+I", "+I"])
    assert next(endless)["k"].to_pylist() == [3]


def test_kinds_of_several_files_are_dealt_out_over_all_of_them(tmp_path: Path) -> None:
    table = _table({"k": "INT", "v": "STRING"})
    for name, batch in zip(("a", "b"), _BATCHES, strict=True):
        pa_csv.write_csv(batch, tmp_path / f"{name}.csv")
    table.load(str(tmp_path / "*.csv"), kinds=["+I", "+I", "-D"])
    assert table.read().to_pylist() == [{"k": 2, "v": "2"}]


def test_dictionaries_of_an_iterator_are_taken_piece_by_piece() -> None:
    table = _table({"k": "INT", "v": "STRING", "m": "MAP<STRING, INT>"})
    count = 40_000

    def rows() -> Iterator[dict[str, Any]]:
        for key in range(count):
            yield {"k": key, "v": None, "m": {"a": key}} if key < 3 else {"k": key}

    table.write(rows())
    found = table.read().to_arrow().sort_by("k")
    assert found["k"].to_pylist() == list(range(count))
    assert found["m"].to_pylist() == [[("a", key)] for key in range(3)] + [None] * (count - 3)


def test_an_iterator_of_dictionaries_that_ends_in_something_else_leaves_nothing_behind() -> None:
    table = _table({"k": "INT", "v": "STRING"})
    before = contents(table.env.storage)
    with pytest.raises(InvalidInputError, match="cannot take rows from an int"):
        table.write([{"k": 1, "v": "a"}, 5])
    assert contents(table.env.storage) == before


_TEXTS = {
    "k": ("INT", "1", ["x", "3000000000", "1.5"]),
    "price": ("DECIMAL(10, 2)", "1.20", ["1.234", "123456789012.00"]),
    "day": ("DATE", "2026-01-31", ["2026-13-01"]),
    "at": ("TIME(3)", "10:00:00", ["25:00:00"]),
    "seen": ("TIMESTAMP(3)", "2026-01-31 00:00:00", ["never"]),
    "yes": ("BOOLEAN", "true", ["maybe"]),
    "much": ("DOUBLE", "1.5", ["z"]),
}
_BARE = ("k", "yes", "much")


def _line(form: str, changed: dict[str, str]) -> str:
    cells = {name: changed.get(name, good) for name, (_, good, _) in _TEXTS.items()}
    if form == "csv":
        return ",".join(cells.values())
    bare = {name: text for name, text in cells.items() if name in _BARE and name not in changed}
    quoted = {name: text for name, text in cells.items() if name not in bare}
    return json.dumps(quoted)[:-1] + "".join(f', "{name}": {text}' for name, text in bare.items()) + "}"


@pytest.mark.parametrize("form", ["csv", "json"])
@pytest.mark.parametrize(("name", "text"), [(name, bad) for name, (_, _, texts) in _TEXTS.items() for bad in texts])
def test_a_text_that_is_no_value_is_refused_with_its_column_row_and_type(
    form: str, name: str, text: str, tmp_path: Path
) -> None:
    table = _table({column: kind for column, (kind, _, _) in _TEXTS.items()})
    before = contents(table.env.storage)
    lines = [",".join(_TEXTS)] if form == "csv" else []
    lines += [_line(form, {}), "", _line(form, {}), _line(form, {name: text}), _line(form, {})]
    (tmp_path / f"in.{form}").write_text("\n".join(lines) + "\n")
    with pytest.raises(InvalidInputError) as refused:
        table.load(str(tmp_path / f"in.{form}"))
    why = str(refused.value)
    assert f"column '{name}' has '{text}' in row 3 (counting from 1" in why
    assert f"does not fit {_TEXTS[name][0]}" in why
    assert (refused.value.context["row"], refused.value.context["column"]) == (2, name)
    assert contents(table.env.storage) == before


@pytest.mark.parametrize(
    ("form", "bad"), [("csv", b"1,2,3\n"), ("csv", b"1,\xe9\n"), ("json", b'{"k": 1\n'), ("json", b"[1]\n")]
)
def test_a_line_that_is_no_row_is_refused_with_its_number(form: str, bad: bytes, tmp_path: Path) -> None:
    table = _table({"k": "INT", "v": "STRING"})
    heading, good = (b"k,v\n", b"1,a\n") if form == "csv" else (b"", b'{"k": 1, "v": "a"}\n')
    (tmp_path / f"in.{form}").write_bytes(heading + good + bad + good)
    with pytest.raises(FormatError, match=r"row 2 \(counting from 1") as refused:
        table.load(str(tmp_path / f"in.{form}"))
    assert refused.value.context["row"] == 1


def test_a_list_of_rows_may_be_null_in_every_row() -> None:
    catalog = mg.catalog("memory://lists-without-rows")
    catalog.create_database("db", if_not_exists=True)
    table = catalog.create_table("db.t", {"v": "ARRAY<ROW<f INT>>"})
    table.write([{"v": None}, {"v": []}])
    assert table.read().to_pylist() == [{"v": None}, {"v": []}]


@pytest.mark.parametrize("one_column", [pd.Series([1], name="k"), pl.Series("k", [1])])
def test_one_column_is_no_rows(one_column: object, tmp_path: Path) -> None:
    catalog = mg.catalog(str(tmp_path))
    catalog.create_database("db")
    table = catalog.create_table("db.t", {"k": "INT"}, primary_key=["k"], options={"bucket": "1"})
    for call in (table.write, table.upsert, table.lookup):
        with pytest.raises(InvalidInputError, match=r"cannot take rows from a Series\. Give the frame"):
            call(one_column)

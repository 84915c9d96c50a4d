"""Tables whose rows are merged, through the handle: reads of no columns, tables that count rows, dynamic options."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import merganser as mg
from merganser.errors import InvalidInputError
from tests.kit.builders import catalog_over, memory_with

_names = itertools.count()
SCHEMA = {"k": "INT", "v": "STRING", "n": "INT"}
COUNTING = {"write-mode": "change-log"}


def _table(schema: dict[str, str] | None = None, key: tuple[str, ...] = ("k",), **options: str) -> mg.Table:
    catalog = catalog_over(memory_with({}, f"merged-reads-{next(_names)}"))
    catalog.create_database("db")
    options = {"bucket": "1", **options} if key else options
    return catalog.create_table("db.t", schema or SCHEMA, primary_key=key, options=options)


def _row(k: int, v: str | None = None, n: int | None = None) -> dict[str, Any]:
    return {"k": k, "v": v, "n": n}


@pytest.mark.parametrize("files", [1, 2, 3])
@pytest.mark.parametrize(
    ("key", "options"),
    [
        (("k",), {}),
        (("k",), {"merge-engine": "aggregation"}),
        (("k",), {"merge-engine": "partial-update"}),
        (("k",), {"merge-engine": "first-row"}),
        ((), {}),
        ((), COUNTING),
    ],
)
def test_rows_without_columns_are_as_many_as_with_them(
    key: tuple[str, ...], options: dict[str, str], files: int
) -> None:
    table = _table(None, key, **options)
    for n in range(files):
        table.write([_row(1, "a", n), _row(2 + n, "b", n), _row(2 + n, "b", n)])
    for how in ({}, {"where": "n = 0"}, {"where": "v = 'b'"}, {"limit": 2}, {"where": "k > 99"}):
        wanted = len(table.read(**how).to_pylist())
        none = table.read(columns=[], **how)
        assert none.to_arrow().num_rows == wanted
        assert sum(batch.num_rows for batch in none.to_batches()) == wanted
        assert none.to_pylist() == [{}] * wanted
        assert none.count() == wanted
        assert none.to_arrow().num_columns == 0


def test_a_table_that_counts_rows_takes_some_of_its_columns() -> None:
    table = _table(None, (), **COUNTING, **{"fields.n.default-value": "7"})
    table.write([{"k": 1}, {"k": 1}], columns=["k"])
    table.write([_row(1, None, None)], kinds=["-D"])
    assert table.read().to_pylist() == [_row(1, None, 7)]


def test_a_table_that_counts_rows_refuses_deletes_where_it_is_told_to() -> None:
    table = _table(None, (), **COUNTING, **{"merganser.deletes": "refuse"})
    table.write([_row(1)])
    with pytest.raises(InvalidInputError, match=r"row 1 of 1 is of kind -D, and deletes are refused"):
        table.write([_row(1)], kinds=["-D"])
    assert table.read().to_pylist() == [_row(1)]


@pytest.mark.parametrize(
    ("engine", "options", "part"),
    [
        ("deduplicate", {"sequence.field": "x"}, "sequence field 'x' is not found"),
        ("deduplicate", {"sequence.field": "n,n"}, "sequence field 'n' is repeated"),
        ("deduplicate", {"merge-engine": "aggregation"}, "'merge-engine' = 'aggregation'"),
        ("first-row", {"sequence.field": "n"}, "does not go with 'sequence.field'"),
        ("aggregation", {"fields.n.aggregate-function": "listagg"}, "takes STRING"),
        ("aggregation", {"fields.default-aggregate-function": "summ"}, "'summ'"),
        ("partial-update", {"fields.n.sequence-group": "x"}, "column 'x' of 'fields.n.sequence-group' is not found"),
        ("partial-update", {"fields.n.sequence-group": "k"}, "primary key column 'k'"),
        ("partial-update", {"fields.n.aggregate-function": "sum"}, "is in no sequence group"),
    ],
)
def test_dynamic_options_that_no_table_could_merge_by_are_refused(
    engine: str, options: dict[str, str], part: str
) -> None:
    table = _table(**{"merge-engine": engine})
    with pytest.raises(InvalidInputError, match=r"cannot open 'db\.t'") as caught:
        table.with_options(options)
    assert part in str(caught.value)


@pytest.mark.parametrize("option", ["ignore-delete", "ignore-update-before"])
def test_a_table_that_drops_rows_cannot_be_told_to_keep_them_by_one_writer(option: str) -> None:
    table = _table(**{option: "true"})
    with pytest.raises(InvalidInputError, match=f"'{option}' = 'false'"):
        table.with_options({option: "false"})
    assert table.with_options({option: "true"}).options[option] == "true"


def test_one_writer_may_order_rows_and_drop_deletes_for_itself() -> None:
    table = _table()
    table.write([_row(1, "old", 2)])
    table.with_options({"ignore-delete": "true"}).write([_row(1)], kinds=["-D"])
    assert table.read().to_pylist() == [_row(1, "old", 2)]
    ordered = table.with_options({"sequence.field": "n"})
    ordered.write([_row(2, "new", 9), _row(2, "late", 1)])
    assert ordered.read(where="k = 2").to_pylist() == [_row(2, "new", 9)]


@pytest.mark.parametrize(
    ("schema", "key", "options", "part"),
    [
        ({"k": "INT", "_VALUE_COUNT": "INT"}, (), {}, "the column name '_VALUE_COUNT' is not allowed"),
        ({"k": "INT", "_VALUE_COUNT": "INT"}, ("k",), {}, "the column name '_VALUE_COUNT' is not allowed"),
        ({"k": "INT", "op": "STRING"}, (), {"rowkind.field": "op"}, "the column would be part of the row"),
    ],
)
def test_a_table_that_could_not_count_its_rows_is_refused(
    schema: dict[str, str], key: tuple[str, ...], options: dict[str, str], part: str
) -> None:
    with pytest.raises(InvalidInputError, match=part):
        _table(schema, key, **COUNTING, **options)


def test_a_row_taken_back_too_often_stays_owed_over_compactions() -> None:
    table = _table({"k": "INT"}, (), **COUNTING)
    table.write([{"k": 1}], kinds=["-D"])
    table.compact(full=True)
    found = []
    for _ in range(3):
        table.write([{"k": 1}])
        found.append(table.read().count())
        table.compact(full=True)
        found.append(len(table.read().to_pylist()))
    assert found == [0, 0, 1, 1, 2, 2]

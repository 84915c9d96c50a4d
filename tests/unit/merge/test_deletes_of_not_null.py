"""No row that is taken back, or that a sequence group does not take, leaves a null in a NOT NULL column."""

from __future__ import annotations

from pathlib import Path

import pytest

import merganser as mg
from merganser.errors import InvalidInputError

_SUM = {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}
_GROUP = {"merge-engine": "partial-update", "fields.g.sequence-group": "v"}


@pytest.mark.parametrize(
    ("options", "left"),
    [
        (_SUM, None),
        (_SUM | {"fields.v.aggregate-function": "last_value"}, None),
        (_SUM | {"fields.v.ignore-retract": "true"}, [{"k": 1, "g": None, "n": 0, "v": 5}]),
        (_SUM | {"aggregation.remove-record-on-delete": "true"}, []),
        (_SUM | {"ignore-delete": "true"}, [{"k": 1, "g": 1, "n": 3, "v": 5}]),
        (_GROUP, None),
        (_GROUP | {"fields.v.aggregate-function": "last_non_null_value"}, None),
        (_GROUP | {"partial-update.remove-record-on-sequence-group": "g"}, []),
    ],
)
def test_a_delete_never_leaves_a_null_in_a_not_null_column(
    options: dict[str, str], left: list[dict[str, int | None]] | None, tmp_path: Path
) -> None:
    catalog = mg.catalog(str(tmp_path), options={"local.sync": "false"})
    catalog.create_database("db")
    columns = {"k": "INT", "g": "INT", "n": "INT", "v": "INT NOT NULL"}
    table = catalog.create_table("db.t", columns, primary_key=["k"], options={"bucket": "1"} | options)
    copy = catalog.create_table("db.copy", columns, primary_key=["k"], options={"bucket": "1"})
    rows = [{"k": 1, "g": 1, "n": 3, "v": 5}]
    table.write(rows)
    if left is None:
        with pytest.raises(InvalidInputError, match=r"column 'v', which is NOT NULL.*Nothing was written"):
            table.write(rows, kinds=["-D"])
        left = rows
    else:
        table.write(rows, kinds=["-D"])
    table.write([{"k": 2, "g": 1, "n": 1, "v": 1}])
    table.write([{"k": 2, "g": 2, "n": 1, "v": 1}, {"k": 2, "g": 3, "n": 2, "v": 2}], kinds=["-U", "+U"])
    table.compact(full=True)
    assert table.check() == ()
    assert [row for row in table.read().to_pylist() if row["k"] == 1] == left
    for changes in table.stream(follow=False):
        copy.write(changes, kinds="_row_kind")
    assert copy.read().to_pylist() == table.read().to_pylist()


def test_a_delete_that_removes_no_row_leaves_no_null_in_another_sequence_group(tmp_path: Path) -> None:
    catalog = mg.catalog(str(tmp_path), options={"local.sync": "false"})
    catalog.create_database("db")
    columns = {"k": "INT", "g": "INT", "v": "INT", "h": "INT", "x": "INT NOT NULL"}
    options = {"bucket": "1", "merge-engine": "partial-update", "fields.g.sequence-group": "v"}
    options |= {"fields.h.sequence-group": "x", "partial-update.remove-record-on-sequence-group": "g"}
    table = catalog.create_table("db.t", columns, primary_key=["k"], options=options)
    table.write([{"k": k, "g": 1, "v": 1, "h": 1, "x": 5} for k in (1, 2)])
    with pytest.raises(InvalidInputError, match=r"column 'x', which is NOT NULL.*Nothing was written"):
        table.write([{"k": 1, "g": None, "v": None, "h": 2, "x": 5}], kinds=["-D"])
    table.write([{"k": 1, "g": None, "v": None, "h": None, "x": 5}], kinds=["-D"])
    table.write([{"k": 2, "g": 2, "v": None, "h": 2, "x": 5}], kinds=["-D"])
    table.compact(full=True)
    assert table.read().to_pylist() == [{"k": 1, "g": 1, "v": 1, "h": 1, "x": 5}]
    assert table.check() == ()


_ORDERED = {"bucket": "1", "merge-engine": "partial-update", "fields.g.sequence-group": "v,w"}


def _grouped(tmp_path: Path, **options: str) -> mg.Table:
    catalog = mg.catalog(str(tmp_path), options={"local.sync": "false"})
    catalog.create_database("db")
    columns = {"k": "INT", "g": "INT", "v": "INT NOT NULL", "w": "INT"}
    return catalog.create_table("db.t", columns, primary_key=["k"], options=_ORDERED | options)


@pytest.mark.parametrize("producer", ["none", "lookup"])
@pytest.mark.parametrize("function", [None, "last_value", "last_non_null_value"])
@pytest.mark.parametrize("together", [True, False])
def test_an_update_before_alone_leaves_no_null_in_a_not_null_column_of_a_sequence_group(
    together: bool, function: str | None, producer: str, tmp_path: Path
) -> None:
    options = {"changelog-producer": producer}
    if function is not None:
        options["fields.v.aggregate-function"] = function
    table = _grouped(tmp_path, **options)
    old, before = {"k": 1, "g": 1, "v": 5, "w": 5}, {"k": 1, "g": 2, "v": 6, "w": 6}
    for rows, kinds in [([old, before], ["+I", "-U"])] if together else [([old], ["+I"]), ([before], ["-U"])]:
        table.write(rows, kinds=kinds)
    left = [{"k": 1, "g": 2, "v": 6, "w": None}]
    assert table.read().to_pylist() == left
    table.compact(full=True)
    assert table.read().to_pylist() == left
    assert table.check() == ()
    table.write([{"k": 1, "g": 2, "v": 7, "w": 7}], kinds=["+U"])
    assert table.read().to_pylist() == [{"k": 1, "g": 2, "v": 7, "w": 7}]


def test_an_update_before_alone_leaves_no_null_in_a_not_null_column_of_an_aggregation(tmp_path: Path) -> None:
    catalog = mg.catalog(str(tmp_path), options={"local.sync": "false"})
    catalog.create_database("db")
    columns = {"k": "INT", "v": "INT NOT NULL", "w": "INT NOT NULL", "n": "INT"}
    options = {"bucket": "1", "merge-engine": "aggregation", "fields.w.aggregate-function": "last_value"}
    table = catalog.create_table("db.t", columns, primary_key=["k"], options=options)
    table.write([{"k": 1, "v": 5, "w": 5, "n": 5}])
    table.write([{"k": 1, "v": 5, "w": 5, "n": 5}], kinds=["-U"])
    for _ in range(2):
        assert table.read().to_pylist() == [{"k": 1, "v": 5, "w": 5, "n": None}]
        assert table.check() == ()
        table.compact(full=True)


@pytest.mark.parametrize("kinds", [None, ["+I", "+U"]])
def test_a_row_without_the_ordering_of_a_not_null_column_is_refused(kinds: list[str] | None, tmp_path: Path) -> None:
    table = _grouped(tmp_path)
    rows = [{"k": 1, "g": 1, "v": 5, "w": 5}, {"k": 2, "g": None, "v": 5, "w": 5}]
    with pytest.raises(
        InvalidInputError, match=r"row 2 of 2 is null in 'g'.* 'v', which is NOT NULL.*Nothing was written"
    ):
        table.write(rows, kinds)
    assert table.read().to_pylist() == []
    found = mg.cdc.parse(['{"k": 1, "g": 1, "v": 5}', '{"k": 2, "v": 5}'], "json", table)
    assert found.rows["k"].to_pylist() == [1]
    (reason,) = found.rejected["reason"].to_pylist()
    assert reason == (
        "missing-order: column g: it orders the sequence group of v, and is null. Such a row does not set v, which is "
        "NOT NULL"
    )
    table.write([{"k": 1, "g": None, "v": 5, "w": 5}], kinds=["-D"])  # which touches no group

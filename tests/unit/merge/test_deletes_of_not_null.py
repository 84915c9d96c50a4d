"""A delete that would leave a null in a NOT NULL column is refused, unless an option says what it does."""

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

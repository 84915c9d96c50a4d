"""Keys that move between partitions are looked up by themselves, or with the partition."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import merganser as mg
from merganser.errors import InvalidInputError


def _table(path: Path) -> mg.Table:
    catalog = mg.catalog(str(path))
    catalog.create_database("db")
    columns = {"p": "STRING", "q": "INT", "k": "BIGINT", "a": "INT"}
    options = {"dynamic-bucket.target-row-num": "2"}
    return catalog.create_table("db.t", columns, primary_key=["k"], partition_by=["p", "q"], options=options)


def _row(p: str | None, q: int, k: int, a: int) -> dict[str, Any]:
    return {"p": p, "q": q, "k": k, "a": a}


def test_a_key_that_moved_is_found_by_itself(tmp_path: Path) -> None:
    table = _table(tmp_path)
    table.write([_row("a", 1, k, 0) for k in range(6)])
    table.write([_row("b", 2, 1, 5), _row(None, 1, 2, 6)])
    with table.lookups() as asked:
        assert asked.lookup({"k": 1}).to_pylist() == [_row("b", 2, 1, 5)]
        table.write([_row("c", 3, 1, 7)])
        assert asked.lookup([{"k": 1}, {"k": 9}, {"k": 2}, {"k": 1}], columns=["p", "a"]).to_pylist() == [
            {"p": "b", "a": 5},
            {"p": None, "a": 6},
            {"p": "b", "a": 5},
        ]
        asked.refresh()
        assert asked.lookup({"k": 1}).to_pylist() == [_row("c", 3, 1, 7)]
        assert asked.found(pa.table({"k": [7, 1]}), [])[0].tolist() == [1]
    assert table.lookup({"k": 1, "p": "c", "q": 3}).to_pylist() == [_row("c", 3, 1, 7)]
    assert table.lookup({"k": 1, "p": "b", "q": 2}).to_pylist() == []
    table.write([_row("c", 3, 1, 7)], kinds=["-D"])
    assert table.lookup({"k": 1}).to_pylist() == []
    for keys in ({"k": 1, "p": "c"}, {"p": "c", "q": 3}):
        with pytest.raises(InvalidInputError):
            table.lookup(keys)
    with pytest.raises(InvalidInputError, match=r"some keys have the column 'p', and others lack it.*Nothing was read"):
        table.lookup([{"k": 1}, {"k": 1, "p": "c", "q": 3}])

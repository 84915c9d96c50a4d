"""A column as deep as a table may have can be read back in every format; a deeper one is refused."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import merganser as mg
from merganser.errors import UnsupportedError

_names = itertools.count()


def _catalog() -> Any:
    catalog = mg.catalog(f"memory://depth-{next(_names)}")
    catalog.create_database("db")
    return catalog


def _deep(text: str, times: int) -> str:
    return f"{text}<" * times + "INT" + ">" * times


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
def test_the_deepest_column_can_be_read_back(file_format: str) -> None:
    value: Any = 1
    for _ in range(49):
        value = [value]
    table = _catalog().create_table("db.t", {"v": _deep("ARRAY", 49)}, options={"file.format": file_format})
    table.write([{"v": value}])
    assert table.read().to_pylist() == [{"v": value}]
    assert table.check() == ()


DEEPER = {"arrays": _deep("ARRAY", 50), "rows": "ROW<f " * 99 + "INT" + ">" * 99}


@pytest.mark.parametrize("text", DEEPER.values(), ids=DEEPER)
def test_a_deeper_column_is_refused(text: str) -> None:
    with pytest.raises(UnsupportedError, match=r"column 'v' is nested 10\d levels deep.*more than 99"):
        _catalog().create_table("db.t", {"v": text})

"""Reads that skip data files by their file indexes: fewer files, the same rows."""

from __future__ import annotations

import itertools
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import merganser as mg
from tests.kit.builders import catalog_over, memory_with

_names = itertools.count()
FILES = 6
GOLDEN = Path(__file__).parents[2] / "golden" / "tables"
TYPES = {"i": "INT", "s": "STRING", "f": "FLOAT", "y": "BYTES", "d": "DATE", "t": "TIMESTAMP(9)"}


def _table(options: dict[str, str], *, keyed: bool = False) -> mg.Table:
    """A table of six files whose ranges of values are all the same, so that statistics skip none."""
    catalog = catalog_over(memory_with({}, f"by-index-{next(_names)}"))
    catalog.create_database("db")
    how: dict[str, Any] = {"primary_key": ["i"]} if keyed else {}
    table = catalog.create_table(
        "db.t",
        TYPES,
        options={
            "bucket": "1" if keyed else "-1",
            "write-only": "true",
            "file-index.bloom-filter.columns": ",".join(TYPES),
            **{f"file-index.bloom-filter.{name}.fpp": "0.001" for name in TYPES},
            **options,
        },
        **how,
    )
    for n in range(FILES):
        table.write([_row(i) for i in (-1000 - n, *range(n, 120, FILES), 1000 + n)])
    return table


def _row(i: int) -> dict[str, Any]:
    return {
        "i": i,
        "s": f"{i + 5000:06d} and more than sixteen letters",
        "f": i / 2,
        "y": (i + 5000).to_bytes(2, "big"),
        "d": date(2000, 1, 1) + timedelta(days=i),
        "t": datetime(2020, 1, 1, microsecond=5) + timedelta(minutes=i),
    }


@pytest.mark.campaign(1 / 4)
@pytest.mark.parametrize("threshold", ["1 b", "1 mb"])
@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize(
    ("where", "files"),
    [
        ("i = 17", 1),
        ("i IN (1, 2)", 2),
        ("i = 17 OR i = 18", 2),
        ("i = 17 AND f > 0", 1),
        ("i = 17.5", FILES),
        ("i <=> 17", 1),
        ("i > 17", FILES),
        ("i <> 17", FILES),
        ("i IN (1, 2) OR s = 'x'", FILES),
        ("i IS NULL OR i = 17", FILES),
    ],
)
def test_files_without_the_values_of_a_filter_are_skipped(threshold: str, keyed: bool, where: str, files: int) -> None:
    table = _table({"file-index.in-manifest-threshold": threshold}, keyed=keyed)
    found = table.read(where=where)
    rows = sorted(row["i"] for row in found.to_arrow().to_pylist())
    off = table.with_options({"file-index.read.enabled": "false"}).read(where=where)
    assert rows == sorted(row["i"] for row in off.to_arrow().to_pylist())
    assert sum(len(split.files) for split in found.plan().splits) <= files
    assert "after file indexes" not in off.plan().counts


@pytest.mark.parametrize("column", list(TYPES))
def test_values_of_every_type_are_found(column: str) -> None:
    table = _table({})
    for row in table.read().to_arrow().to_pylist()[::7]:
        value = row[column]
        text = f"X'{value.hex()}'" if isinstance(value, bytes) else str(value) if column in "if" else f"'{value}'"
        found = table.read(where=f"{column} = {text}")
        assert row["i"] in [other["i"] for other in found.to_arrow().to_pylist()]
        assert found.plan().counts["after file indexes"] < FILES


@pytest.mark.parametrize(
    ("name", "where", "rows"),
    [
        ("fidx_bloom_java", "id = 70", 1),
        ("fidx_bloom_java", "id IN (71, 72)", 0),
        ("fidx_bloom_java", "s = 'banana split'", 0),
        ("fidx_bloom_java", "id IS NULL", 1),
        ("fidx_bloom_file_java", "id = 133", 1),
        ("fidx_bloom_file_java", "b = X'38c669'", 0),
        ("fidx_bloom_file_java", "s IN ('fig', 'figs')", 2),
        ("fidx_bitmap_java", "id = 1000000", 0),
        ("fidx_range_java", "id = 1000000", 0),
    ],
)
def test_indexes_of_the_reference_are_used(name: str, where: str, rows: int) -> None:
    table = mg.table(str(GOLDEN / name))
    found = table.read(where=where)
    assert found.count() == table.with_options({"file-index.read.enabled": "false"}).read(where=where).count() == rows
    if rows == 0:
        assert found.plan().splits == ()


def test_a_value_that_was_replaced_does_not_come_back_because_its_new_file_is_skipped() -> None:
    table = _table({}, keyed=True)
    table.write([{**_row(17), "s": "new"}, {**_row(500), "s": "other"}])
    old = _row(17)["s"]
    assert table.read(where=f"s = '{old}'").count() == 0
    assert table.read(where="s = 'new'").to_arrow().column("i").to_pylist() == [17]
    assert table.read(where=f"i = 17 AND s = '{old}'").count() == 0
    table.compact()
    assert table.read(where="s = 'nothing of it'").plan().splits == ()
    assert table.read(where="s = 'new'").count() == 1


def test_a_deleted_row_does_not_come_back() -> None:
    table = _table({}, keyed=True)
    table.write([_row(17)], kinds=["-D"])
    assert table.read(where="i = 17").count() == 0
    assert table.read(where="i IN (17, 18)").to_arrow().column("i").to_pylist() == [18]

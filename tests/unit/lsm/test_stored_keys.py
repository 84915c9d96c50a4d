"""Stored keys: which of some keys a data file holds, whether it is read for them or its keys are in memory."""

from __future__ import annotations

import math
import random
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

import merganser as mg
from merganser.files.masks import vectors_by_bucket
from merganser.lsm.key_image import Asked
from merganser.lsm.section import SectionReader
from merganser.lsm.stored_keys import find, reached
from merganser.meta.data_file import DataFile
from merganser.meta.table_state import MetaReader
from merganser.schema.arrow import arrow_type
from merganser.storage.cache import Cache

KINDS: dict[str, Any] = {
    "BIGINT": lambda n: n * 3 - 50,
    "STRING": lambda n: f"key {n % 7}{n}",
    "DOUBLE": lambda n: [math.nan, -0.0, 0.0, -math.inf][n] if n < 4 else n / 3,
    "DATE": lambda n: date.fromordinal(700_000 + n),
    "DECIMAL(12, 2)": lambda n: Decimal(n) / 4,
    "TIMESTAMP(6)": lambda n: datetime.fromtimestamp(1_700_000_000 + n),
    "VARBINARY(8)": lambda n: bytes([n % 5, n % 256]),
}
KEYS = [*([kind] for kind in KINDS), ["INT", "STRING"], ["STRING", "DOUBLE", "BIGINT"]]


def _value(kind: str, n: int) -> Any:
    return n if kind == "INT" else KINDS[kind](n)


@pytest.mark.parametrize("kinds", KEYS, ids="+".join)
@pytest.mark.parametrize("kept", [True, False], ids=["kept", "read"])
@pytest.mark.parametrize("format", ["parquet", "orc"])
def test_keys_are_found_where_they_are(kinds: list[str], kept: bool, format: str, tmp_path: Path) -> None:
    table = _table(tmp_path, kinds, {"file.format": format, "file.block-size": "1 kb", "write-only": "true"})
    rng = random.Random(f"{kinds}{kept}")
    stored = rng.sample(range(250), 200)
    table.write([_row(kinds, n) for n in stored])
    reader, files = _opened(table)
    (file,) = files
    place = _places(table)
    cache = Cache() if kept else Cache(0)
    assert cache.weight == 0
    for size in (1, 3, 40, 250):
        wanted = sorted((_key(kinds, n) for n in rng.sample(range(250), size)), key=_ordered)
        wanted = [key for i, key in enumerate(wanted) if not i or _ordered(key) != _ordered(wanted[i - 1])]
        asked = _asked(table, wanted)
        which, at = find(reader, file, asked, cache)
        there = [i for i, key in enumerate(wanted) if _ordered(key) in place]
        assert which.tolist() == there
        assert at.tolist() == [place[_ordered(wanted[i])] for i in there]
    assert (cache.weight > 1000) == kept


def test_rows_that_a_vector_marks_are_not_found(tmp_path: Path) -> None:
    table = _table(tmp_path, ["BIGINT"], {"deletion-vectors.enabled": "true"})
    table.write([_row(["BIGINT"], n) for n in range(60)])
    table.write([_row(["BIGINT"], n) for n in range(0, 60, 2)])
    reader, files = _opened(table)
    oldest = max(files, key=lambda file: file.level)
    asked = _asked(table, [_key(["BIGINT"], n) for n in range(60)])
    for cache in (Cache(0), Cache()):
        for _ in "12":
            assert find(reader, oldest, asked, cache)[0].tolist() == list(range(1, 60, 2))


def test_keys_that_a_file_takes_back_are_found_unless_only_additions_are_wanted(tmp_path: Path) -> None:
    table = _table(tmp_path, ["BIGINT"], {"write-only": "true"})
    table.write([_row(["BIGINT"], n) for n in range(9)], kinds=["+I", "-D", "+I"] * 3)
    reader, (file,) = _opened(table)
    asked = _asked(table, [_key(["BIGINT"], n) for n in range(9)])
    for cache in (Cache(0), Cache()):
        assert find(reader, file, asked, cache)[0].tolist() == list(range(9))
        assert find(reader, file, asked, cache, additions=True)[0].tolist() == [0, 2, 3, 5, 6, 8]


def test_a_file_that_was_asked_for_many_keys_is_not_opened_again(tmp_path: Path) -> None:
    table = _table(tmp_path, ["BIGINT"], {"file.block-size": "1 kb", "write-only": "true"})
    table.write([_row(["BIGINT"], n) for n in range(3000)])
    reader, (file,) = _opened(table)
    cache, rows_read = Cache(), []
    opened = SectionReader.opened
    few = _asked(table, [_key(["BIGINT"], n) for n in range(100, 110)])
    with patch.object(SectionReader, "opened", lambda *a, **k: rows_read.append(opened(*a, **k)) or rows_read[-1]):
        for _ in range(300):
            assert len(find(reader, file, few, cache)[0]) == 10
    assert rows_read[0].rows < 1500
    assert 2 <= len(rows_read) < 300
    assert sum(one.rows for one in rows_read) < 2.5 * file.row_count


def test_keys_that_would_take_much_of_the_memory_are_not_kept(tmp_path: Path) -> None:
    table = _table(tmp_path, ["BIGINT"], {"write-only": "true"})
    table.write([_row(["BIGINT"], n) for n in range(1000)])
    reader, (file,) = _opened(table)
    cache = Cache(16_000)
    assert len(find(reader, file, _asked(table, [_key(["BIGINT"], n) for n in range(1000)]), cache)[0]) == 1000
    assert cache.weight < 100


@pytest.mark.parametrize("kinds", [["BIGINT"], ["STRING", "DOUBLE", "BIGINT"]], ids="+".join)
def test_only_files_whose_range_holds_keys_are_asked(kinds: list[str], tmp_path: Path) -> None:
    table = _table(tmp_path, kinds, {"write-only": "true"})
    for n in (0, 100, 200):
        table.write([_row(kinds, m) for m in range(n, n + 10)])
    reader, files = _opened(table)
    wanted = sorted((_key(kinds, n) for n in (5, 150, 203, 204)), key=_ordered)
    got = {file.name: list(range(first, end)) for file, first, end in reached(reader, _asked(table, wanted), files)}
    for file in files:
        bounds = [_ordered(tuple(r[f"k{i}"] for i in range(len(kinds)))) for r in _rows_of(table, file)]
        inside = [i for i, key in enumerate(wanted) if min(bounds) <= _ordered(key) <= max(bounds)]
        assert got.get(file.name, []) == inside
    assert list(reached(reader, _asked(table, wanted).slice(0, 0), files)) == []


def _table(path: Path, kinds: list[str], options: dict[str, str]) -> mg.Table:
    catalog = mg.catalog(str(path), options={"local.sync": "false"})
    catalog.create_database("db")
    columns = {f"k{i}": kind for i, kind in enumerate(kinds)}
    return catalog.create_table(
        "db.t", columns | {"v": "STRING"}, primary_key=list(columns), options={"bucket": "1"} | options
    )


def _key(kinds: list[str], n: int) -> tuple[Any, ...]:
    return tuple(_value(kind, n // 3 if i and len(kinds) > 2 else n) for i, kind in enumerate(kinds))


def _row(kinds: list[str], n: int) -> dict[str, Any]:
    return {**{f"k{i}": value for i, value in enumerate(_key(kinds, n))}, "v": f"a longer text of {n}"}


def _ordered(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return what Python orders as the format orders keys."""
    return tuple(
        (math.isnan(v), 0.0 if math.isnan(v) else v, math.copysign(1, v)) if isinstance(v, float) else v for v in key
    )


def _opened(table: mg.Table) -> tuple[SectionReader, list[DataFile]]:
    definition = table.definition
    state = MetaReader(definition.paths, table.env, "t").latest()
    (bucket,) = state.live.buckets
    index = MetaReader(definition.paths, table.env, "t").index(state.snapshot)
    vectors = vectors_by_bucket(definition, index)
    reader = SectionReader(
        definition,
        definition.bucket_directory(*bucket),
        bucket[0],
        {definition.schema.id: definition.schema.fields},
        table.env.storage,
        vectors[bucket].by_file if bucket in vectors else {},
    )
    return reader, [entry.file for entry in state.live.buckets[bucket].entries]


def _rows_of(table: mg.Table, file: DataFile) -> list[dict[str, Any]]:
    reader, _ = _opened(table)
    return [row for rows in reader.plain(file, table.definition.schema.fields) for row in rows.to_pylist()]


def _places(table: mg.Table) -> dict[tuple[Any, ...], int]:
    _, (file,) = _opened(table)
    rows = _rows_of(table, file)
    return {_ordered(tuple(row[name] for name in table.definition.key)): i for i, row in enumerate(rows)}


def _asked(table: mg.Table, keys: list[tuple[Any, ...]]) -> Asked:
    kinds = table.definition.key_types
    columns = tuple(pa.array([key[i] for key in keys], arrow_type(kind)) for i, kind in enumerate(kinds))
    return Asked(columns, kinds)

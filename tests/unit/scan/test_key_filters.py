"""Filters on keys, with long lists and short ones: the rows are those of the whole table, filtered."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import merganser as mg
from merganser.expr.filters import to_predicate
from tests.kit.builders import catalog_over, memory_with

_names = itertools.count()
_ENGINES: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "partial-update": {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"},
    "aggregation": {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"},
    "first-row": {"merge-engine": "first-row"},
    "deletion vectors": {"deletion-vectors.enabled": "true"},
    "file indexes": {"file-index.bloom-filter.columns": "k,v,s", "file-index.in-manifest-threshold": "200 b"},
    "vectors and file indexes": {"deletion-vectors.enabled": "true", "file-index.bloom-filter.columns": "s,v,k"},
}
_KEYS: dict[str, Any] = {
    "BIGINT": lambda i: i * 7919 - 40_000,
    "INT": lambda i: i - 150,
    "STRING": lambda i: f"{'é' * (i % 20)}key {i}",
    "DECIMAL(9, 2)": lambda i: Decimal(i * 7 - 900) / 100,
    "DATE": lambda i: date(1969, 6, 1) + timedelta(days=i),
    "TIMESTAMP(3)": lambda i: datetime(1969, 12, 31, 23) + timedelta(milliseconds=i * 977),
    "DOUBLE": lambda i: [0.0, float("inf"), float("-inf"), 1e300][i] if i < 4 else i / 3 - 20,
    "BYTES": lambda i: i.to_bytes(2, "big"),
    "TINYINT": lambda i: i % 200 - 100,
}


def _table(keys: Mapping[str, str], options: Mapping[str, str], partition: str | None = None) -> mg.Table:
    catalog = catalog_over(memory_with({}, f"keys-{next(_names)}"))
    catalog.create_database("db")
    return catalog.create_table(
        "db.t",
        {**{name: f"{kind} NOT NULL" for name, kind in keys.items()}, "v": "BIGINT", "s": "STRING"},
        primary_key=list(keys),
        partition_by=[partition] if partition else [],
        options={"bucket": "3", "write-only": "true", "file.block-size": "1 kb", **options},
    )


def _fill(table: mg.Table, rng: np.random.Generator, *, deletes: bool, commits: int = 5) -> None:
    fields = table.read().schema
    kinds = [str(field.type) for field in table.definition.schema.fields[:-2]]
    for commit in range(commits):
        picked = rng.choice(300, 120, replace=False)
        columns: list[Any] = [
            [_KEYS[kind.removesuffix(" NOT NULL")](int(i) // (1 + n)) for i in picked] for n, kind in enumerate(kinds)
        ]
        columns += [[int(i) for i in picked], [None if i % 3 else f"{commit}" * 30 for i in picked]]
        rows = pa.table([pa.array(c, f.type) for c, f in zip(columns, fields, strict=True)], schema=fields)
        marks = ["-D" if rng.random() < 0.2 else "+I" for _ in picked] if deletes and commit else None
        table.write(rows, kinds=marks)


def _check(table: mg.Table, text: str, whole: pa.Table | None = None) -> int:
    where = to_predicate(text, table.definition.schema.fields)
    assert where is not None
    order = [(name, "ascending") for name in table.definition.key]
    expected = where.apply(table.read().to_arrow() if whole is None else whole).sort_by(order)
    found = table.read(where=text)
    assert found.to_arrow().sort_by(order).equals(expected), text
    assert found.count() == expected.num_rows
    narrow = table.read(["v"], where=text).to_arrow()
    assert sorted(narrow["v"].to_pylist()) == sorted(expected["v"].to_pylist())
    return int(expected.num_rows)


def _listed(table: mg.Table, values: list[Any]) -> str:
    field = table.definition.schema.fields[0]
    return ", ".join(str(_literal(value, str(field.type))) for value in values)


def _literal(value: Any, kind: str) -> str:
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    if isinstance(value, float):
        return f"CAST('{value}' AS DOUBLE)"
    if isinstance(value, str | date):
        return f"'{value}'"
    return str(value)


@pytest.mark.campaign(1 / 28)
@pytest.mark.parametrize("engine", list(_ENGINES))
@pytest.mark.parametrize("kind", ["BIGINT", "STRING"])
@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
def test_a_merge_of_some_keys_is_the_merge_of_all_filtered(engine: str, kind: str, file_format: str) -> None:
    rng = np.random.default_rng(7)
    table = _table({"k": kind}, {"file.format": file_format, **_ENGINES[engine]})
    _fill(table, rng, deletes=engine not in ("first-row", "aggregation"))
    if engine == "first-row" or "vectors" in engine:
        table.compact()
    whole = table.read().to_arrow()
    for count in (1, 60, 290):
        keys = [_KEYS[kind](int(i)) for i in rng.choice(300, count, replace=False)]
        kept = _check(table, f"k IN ({_listed(table, keys)})", whole)
        assert kept or count < 60
        _check(table, f"k NOT IN ({_listed(table, keys)})", whole)
        _check(table, f"k IN ({_listed(table, keys)}) AND v % 2 = 0 AND s IS NULL", whole)
        _check(table, f"k IN ({_listed(table, keys)}, NULL) OR v = 17", whole)
    for value in range(0, 300, 74):
        _check(table, f"v = {value} OR v IN ({value + 1}, 100000)", whole)


@pytest.mark.campaign(1 / 8)
@pytest.mark.parametrize("kind", list(_KEYS))
def test_keys_of_every_type_are_found_by_a_list(kind: str) -> None:
    rng = np.random.default_rng(3)
    table = _table({"k": kind}, {})
    _fill(table, rng, deletes=True)
    found, whole = 0, table.read().to_arrow()
    for count in (1, 40, 200):
        keys = [_KEYS[kind](int(i)) for i in rng.choice(300, count, replace=False)]
        found += _check(table, f"k IN ({_listed(table, keys)})", whole)
        _check(table, f"k NOT IN ({_listed(table, keys)})", whole)
        _check(table, f"NOT (k IN ({_listed(table, keys)}, NULL))", whole)
    assert found


def test_keys_of_several_columns_are_found_by_lists_and_by_pairs() -> None:
    rng = np.random.default_rng(5)
    table = _table({"a": "INT", "b": "STRING"}, {"bucket-key": "b"})
    _fill(table, rng, deletes=True)
    some = [int(i) for i in rng.choice(300, 40, replace=False)]
    a, b = [str(i - 150) for i in some], [f"'{_KEYS['STRING'](i // 2)}'" for i in some]
    assert _check(table, f"a IN ({', '.join(a)}) AND b IN ({', '.join(b)})")
    assert _check(table, " OR ".join(f"(a = {x} AND b = {y})" for x, y in zip(a, b, strict=True)))
    assert _check(table, " OR ".join(f"a = {x}" for x in a))
    assert _check(table, f"b IN ({', '.join(b)}) AND v > 10")
    _check(table, f"a = {a[0]} AND b IN ({', '.join(b)})")
    _check(table, f"a <> 0 AND 1000 DIV a > 5 AND b IN ({', '.join(b)})")  # fails for no row that SQL would ask


def test_partitions_are_found_by_a_list() -> None:
    rng = np.random.default_rng(5)
    table = _table({"p": "TINYINT", "k": "INT"}, {}, partition="p")
    _fill(table, rng, deletes=True, commits=2)
    parts = ", ".join(str(i) for i in range(-100, 100, 7))
    assert _check(table, f"p IN ({parts})")
    assert _check(table, f"p IN ({parts}) AND k IN (1, 2, 3, 17, -20, -100)") is not None
    plan = table.read(where=f"p IN ({parts})").plan()
    assert plan.counts["after partitions"] < plan.counts["files in the snapshot"]

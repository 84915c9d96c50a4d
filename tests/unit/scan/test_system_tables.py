"""Text of keys, partitions and statistics in system tables: what each value alone would be shown as."""

from __future__ import annotations

import itertools
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import merganser as mg
from merganser.codec.binary_row import EMPTY_ROW, deserialize, serialize
from merganser.codec.stats import SimpleStats
from merganser.meta.table_state import MetaReader
from merganser.scan import system_tables
from merganser.schema import types as t
from merganser.schema.types_text import parse_type
from merganser.storage.paths import partition_text
from tests.kit.builders import catalog_over, memory_with

_names = itertools.count()
_NOW = datetime(2024, 2, 29, 12, 30, 5, 123456)
_VALUES: dict[str, list[Any]] = {
    "BOOLEAN": [True, False],
    "TINYINT": [-128, 0, 127],
    "BIGINT": [-(2**63), 0, 2**63 - 1],
    "FLOAT": [0.1, -0.0, 1e10, 1.5e-5, float("inf"), 16777216.0],
    "DOUBLE": [0.1, 0.0, 1e7, 9999999.0, 1e-3, 1.234e-4, -1e300, float("-inf"), 3.0],
    "DECIMAL(5, 0)": [Decimal(-7), Decimal(0)],
    "DECIMAL(12, 2)": [Decimal("-0.05"), Decimal("0.00"), Decimal("1234567890.12")],
    "DECIMAL(38, 20)": [Decimal("1E-20"), Decimal("-123456789012345678.00000000000000000001")],
    "STRING": ["", " ", "\t\u2003", " a ", "é€\U0001f600", "null"],
    "CHAR(3)": ["  a", "   "],
    "BYTES": [b"", b" ", b"\xff\x00", "é".encode()],
    "DATE": [date(1, 1, 1), date(1969, 12, 31), date(9999, 12, 31)],
    "TIME(3)": [time(0), time(23, 59, 59, 120_000)],
    "TIMESTAMP(0)": [_NOW.replace(microsecond=0), datetime(1, 1, 1)],
    "TIMESTAMP(3)": [_NOW.replace(microsecond=120_000), datetime(1969, 12, 31, 23, 59, 59)],
    "TIMESTAMP(6)": [_NOW, datetime(9999, 12, 31)],
    "TIMESTAMP(9)": [_NOW],
    "TIMESTAMP(3) WITH LOCAL TIME ZONE": [_NOW.replace(microsecond=0)],
    "ARRAY<INT>": [[1, 2]],
}


def _text(value: Any, kind: t.DataType) -> str:
    if value is None:
        return "null"
    return "" if value == "" else partition_text(value, kind, default_name="", legacy=False)


def _row(data: bytes, kinds: list[t.DataType]) -> list[str]:
    values = deserialize(data, kinds) or (None,) * len(kinds)
    return [_text(value, kind) for value, kind in zip(values, kinds, strict=True)]


def _check(table: mg.Table) -> None:
    """Compare `$files` with each entry, shown value by value."""
    entries = list(MetaReader(table.definition.paths, table.env, table.name).latest().live)
    found = table.files().to_pylist()
    assert len(found) == len(entries)
    definition = table.definition
    kinds = {f.name: f.type.with_nullable(True) for f in definition.schema.fields}
    for row, entry in zip(found, entries, strict=True):
        file = entry.file
        names = list(kinds) if file.value_stats_columns is None else list(file.value_stats_columns)
        types = [kinds[name] for name in names]
        for column, data in (
            ("min_value_stats", file.value_stats.min_values),
            ("max_value_stats", file.value_stats.max_values),
        ):
            texts = zip(names, _row(data, types), strict=True)
            assert row[column] == "{" + ", ".join(f"{name}={text}" for name, text in texts) + "}"
        counts = file.value_stats.null_counts or (None,) * len(names)
        assert row["null_value_counts"] == "{" + ", ".join(map("{}={}".format, names, counts)) + "}"
        for column, key in (("min_key", file.min_key), ("max_key", file.max_key)):
            keyed = definition.keyed and key
            assert row[column] == ("[" + ", ".join(_row(key, list(definition.key_types))) + "]" if keyed else None)
        partition = _row(entry.partition, list(definition.partition_types))
        assert row["partition"] == "{" + ", ".join(partition if definition.schema.partition_keys else []) + "}"
        assert row["bucket"] == entry.bucket
        assert row["file_path"].endswith(f"/bucket-{entry.bucket}/{file.name}")
        assert (row["record_count"], row["level"], row["schema_id"]) == (file.row_count, file.level, file.schema_id)


def _table(schema: dict[str, str], **how: Any) -> mg.Table:
    catalog = catalog_over(memory_with({}, f"system-{next(_names)}"))
    catalog.create_database("db")
    return catalog.create_table("db.t", schema, **how)


def _write(table: mg.Table, columns: dict[str, list[Any]]) -> None:
    schema = table.read(list(columns)).schema
    table.write(pa.table([pa.array(columns[f.name], f.type) for f in schema], schema=schema))


@pytest.mark.parametrize("mode", ["full", "truncate(2)", "counts", "none"])
@pytest.mark.parametrize("dense", ["true", "false"])
def test_statistics_of_every_type_are_shown_as_each_value_alone(mode: str, dense: str) -> None:
    schema = {f"c{i}": kind for i, kind in enumerate(_VALUES)}
    options = {"bucket": "-1", "metadata.stats-mode": mode, "metadata.stats-dense-store": dense}
    table = _table(schema, options=options)
    _check(table)
    rng = np.random.default_rng(1)
    for _ in range(12):
        _write(table, {
            name: [None if rng.random() < 0.3 else _VALUES[kind][rng.integers(len(_VALUES[kind]))] for _ in range(2)]
            for name, kind in schema.items()
        })  # fmt: skip
    _check(table)


@pytest.mark.parametrize("kind", [kind for kind in _VALUES if kind != "ARRAY<INT>"])
def test_keys_of_every_type_are_shown_as_each_value_alone(kind: str) -> None:
    table = _table({"k": kind, "n": "INT", "v": "INT"}, primary_key=["k", "n"], options={"bucket": "2"})
    for value in _VALUES[kind]:
        _write(table, {"k": [value], "n": [3], "v": [None]})
    _check(table)


def test_partitions_are_shown_as_each_value_alone() -> None:
    table = _table({"p": "STRING", "d": "DATE", "v": "INT"}, partition_by=["p", "d"], options={"bucket": "-1"})
    days = [date(2024, 1, 1) + timedelta(days=i) for i in range(3)]
    _write(table, {"p": ["a", " ", None], "d": days, "v": [1, None, 3]})
    _write(table, {"p": ["a", " ", None], "d": [days[0], None, days[2]], "v": [1, None, 3]})
    _check(table)
    shown = {row["partition"] for row in table.system("buckets").to_arrow().to_pylist()}
    assert shown == set(table.files()["partition"].to_pylist())
    assert "{a, 2024-01-01}" in shown
    assert "{null, 2024-01-03}" in shown


def test_timestamps_that_arrow_does_not_count_are_shown_too() -> None:
    kind = parse_type("TIMESTAMP(9)")
    far = serialize([253_402_300_800_000_000_000], [kind])
    low, high, nulls = system_tables._stats_shown(
        [SimpleStats(far, far, (None,)), SimpleStats(EMPTY_ROW, EMPTY_ROW, ())], ["at"], {"at": kind}
    )
    assert low.to_pylist() == high.to_pylist() == ["{at=10000-01-01 00:00:00.000000000}", "{at=null}"]
    assert nulls.to_pylist() == ["{at=None}"] * 2


def test_partitions_key_ranges_and_aggregation_fields() -> None:
    catalog = catalog_over(memory_with({}, f"system-{next(_names)}"))
    catalog.create_database("db")
    sums = {"bucket": "1", "merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}
    table = catalog.create_table(
        "db.t", {"id": "INT", "p": "STRING", "n": "INT"}, primary_key=["id", "p"], partition_by=["p"], options=sums
    )
    for rows in ([(1, "a"), (2, "a"), (3, "b")], [(2, "a"), (4, "c")]):
        table.write([{"id": i, "p": p, "n": 1} for i, p in rows])
    found = table.system("partitions").to_arrow().sort_by("partition")
    assert found.column("partition").to_pylist() == ["{a}", "{b}", "{c}"]
    assert found.column("record_count").to_pylist() == [3, 1, 1]
    assert found.column("file_count").to_pylist() == [2, 1, 1]
    assert found.column("total_buckets").to_pylist() == [1, 1, 1]
    sizes = table.files().group_by("partition").aggregate([("file_size_in_bytes", "sum")]).sort_by("partition")
    assert found.column("file_size_in_bytes").to_pylist() == sizes.column("file_size_in_bytes_sum").to_pylist()
    old = table.with_options({"scan.snapshot-id": "1"}).system("partitions", columns=["partition", "file_count"])
    assert old.to_pylist() == [{"partition": "{a}", "file_count": 1}, {"partition": "{b}", "file_count": 1}]
    ranges = table.system("file_key_ranges").to_arrow()
    assert ranges.equals(table.files().select(ranges.column_names))
    assert table.system("aggregation_fields", columns=["field_name", "function", "function_options"]).to_pylist() == [
        {"field_name": "id", "function": "[]", "function_options": "[]"},
        {"field_name": "p", "function": "[]", "function_options": "[]"},
        {"field_name": "n", "function": '["sum"]', "function_options": '["aggregate-function"]'},
    ]

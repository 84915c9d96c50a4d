"""What `create_table` takes can be written, read, compacted and expired: each option is tried with several values."""

from __future__ import annotations

import itertools
import re
from datetime import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import merganser as mg
from merganser.errors import InvalidInputError, MerganserError, NotFoundError, UnsupportedError
from merganser.options.catalog import OPTIONS as CATALOG_OPTIONS
from merganser.options.option import State
from merganser.options.registry import ALL_OPTIONS, Option
from merganser.options.write import COMPRESSIONS
from tests.kit.builders import catalog_over, memory_with

_names = itertools.count()
_PLAIN = ("true", "false", "1", "3", "0.5", "1 mb", "1 h", "v", "0:avro", "0:zstd", "2026-01-31 10:00:00")
_STATES = {
    "incremental-to-auto-tag",
    "scan.snapshot-id",
    "scan.tag-name",
    "scan.timestamp",
    "scan.timestamp-millis",
    "scan.version",
    "scan.watermark",
}
"""Options that name a state of the table. Whether there is one is known when it is read."""


def _catalog() -> mg.Catalog:
    catalog = catalog_over(memory_with({}, f"create-{next(_names)}"))
    catalog.create_database("d")
    return catalog


def _values(option: Option[Any]) -> list[str]:
    """All choices of an option; of an open form the few values that differ most."""
    if option.type.choices:
        return list(option.type.choices)
    found = []
    for text in _PLAIN:
        try:
            option.type.parse(text)
        except (ValueError, OverflowError):
            continue
        found.append(text)
    return found[-1:]


def _used(key: str, value: str, *, keyed: bool) -> None:
    """Create a table with an option; if it is created, nothing that one does with a table may be refused."""
    schema = {"p": "STRING", "k": "INT", "v": "BIGINT", "w": "TIMESTAMP(3)"}
    options = {"bucket": "1", key: value} if keyed else {key: value}
    try:
        table = _catalog().create_table("d.t", schema, ["p", "k"] if keyed else (), ["p"], options)
    except MerganserError:
        return
    rows = pa.table({"p": ["a", "b"], "k": [1, 2], "v": [1, 2], "w": [datetime(2026, 1, 31)] * 2})
    for _ in range(2):
        table.write(rows)
    table.read(where="k = 1").to_arrow()
    table.compact(full=True)
    table.expire()
    if table.options.get("partition.expiration-time"):
        table.expire_partitions()


@pytest.mark.campaign(1 / 16)
@pytest.mark.parametrize(
    "option", [option for option in ALL_OPTIONS if option.state is not State.KEPT], ids=lambda option: option.key
)
def test_an_option_is_refused_when_the_table_is_created_or_never(option: Option[Any]) -> None:
    for value in _values(option):
        for keyed in (True, False):
            try:
                _used(option.key, value, keyed=keyed)
            except NotFoundError:
                assert option.key in _STATES, (value, keyed)


def test_every_format_is_refused_at_create_or_written() -> None:
    for name in (*COMPRESSIONS, "csv", "json", "text", "lance", "mosaic"):
        _used("file.format", name, keyed=True)
        _used("file.format", name, keyed=False)


@pytest.mark.parametrize(
    ("options", "key", "why"),
    [
        ({"file.format": "csv"}, (), "does not write tables with 'file.format' other than"),
        ({"row-tracking.enabled": "true"}, (), "'row-tracking.enabled'. Nothing was changed"),
        ({"merge-engine": "aggregation"}, (), "'merge-engine' = 'aggregation' needs a primary key"),
        ({"merge-engine": "deduplicate"}, (), "'merge-engine' = 'deduplicate' needs a primary key"),
        ({"sequence.field": "v"}, (), "'sequence.field' = 'v' needs a primary key"),
        ({"sequence.field.sort-order": "descending"}, (), "'sequence.field.sort-order' = 'descending' needs"),
        ({"fields.v.aggregate-function": "sum"}, (), "'fields.v.aggregate-function' = 'sum' needs a primary key"),
        ({"fields.v.agg": "sum"}, (), "'fields.v.aggregate-function' = 'sum' needs a primary key"),
        ({"fields.v.sequence-group": "k"}, (), "'fields.v.sequence-group' = 'k' needs a primary key"),
        ({"fields.default-aggregate-function": "sum"}, (), "'fields.default-aggregate-function' = 'sum' needs a"),
        ({"tombstone.time-retained": "1 h"}, (), "'tombstone.time-retained' = '1 h' needs a primary key"),
        ({"changelog-producer": "input"}, (), "'changelog-producer' = 'input' needs a primary key"),
        ({"bucket": "-3"}, ("k",), "'bucket' is -3; the number of buckets must be greater than 0, or -1 or -2"),
        ({"scan.timestamp": "noon"}, (), "expected a time such as"),
        ({"s3.endpoint": "http://x"}, (), "'s3.endpoint' is an option of a catalog"),
        ({"cache.manifest.max-memory": "1 gb"}, (), "'cache.manifest.max-memory' is an option of a catalog"),
    ],
)
def test_a_definition_without_a_future_is_refused_at_once(options: dict[str, str], key: tuple[str], why: str) -> None:
    catalog = _catalog()
    with pytest.raises(MerganserError, match=re.escape(why)):
        catalog.create_table("d.t", {"k": "INT", "v": "INT"}, key, options=options)
    assert catalog.list_tables("d") == []


@pytest.mark.parametrize(
    "options",
    [
        {"file.format": "avro"},
        {"file.format.per.level": "0:avro"},
        {"file.format.per.level": "5:avro"},
        {"changelog-file.format": "avro"},
    ],
    ids=str,
)
@pytest.mark.parametrize(
    ("column", "kind", "why"),
    [
        ("v", "TIMESTAMP(9)", "cannot write column 'v' to an Avro file: Avro has no TIMESTAMP(9)"),
        ("v", "ARRAY<TIMESTAMP(9) WITH LOCAL TIME ZONE>", "Avro has no TIMESTAMP(9) WITH LOCAL TIME ZONE"),
        ("v", "ROW<t TIME(9)>", "cannot write column 'v.t' to an Avro file: Avro has no TIME(9)"),
        ("v", "VARIANT", "Avro has no VARIANT; store the table as Parquet. Nothing was changed."),
        ("a-b", "INT", "cannot write column 'a-b' to an Avro file: its name is not made of letters"),
        ("k_b", "ROW<x INT>", "column 'k_b' to an Avro file: two of its ROW or MAP columns would have the name"),
    ],
)
def test_what_no_file_of_a_format_can_hold_is_refused_at_once(
    options: dict[str, str], column: str, kind: str, why: str
) -> None:
    catalog = _catalog()
    schema = {"k": "ROW<b ROW<y INT>>", column: kind}
    with pytest.raises(UnsupportedError, match=re.escape(why)) as refused:
        catalog.create_table("d.t", schema, options=options)
    assert refused.value.message.startswith("cannot create 'd.t': ")
    assert catalog.list_tables("d") == []
    catalog.create_table("d.t", schema)


def test_options_that_mean_something_without_a_key_are_taken() -> None:
    options = {"ignore-delete": "true", "fields.v.stats-mode": "none", "deletion-vectors.enabled": "true"}
    table = _catalog().create_table("d.t", {"k": "INT", "v": "INT"}, options=options | {"fields.v.default-value": "7"})
    table.write([{"k": 1}], columns=["k"])
    assert table.read().to_pylist() == [{"k": 1, "v": 7}]


@pytest.mark.parametrize("option", ALL_OPTIONS, ids=lambda option: option.key)
def test_an_option_of_a_table_is_no_option_of_a_catalog(option: Option[Any]) -> None:
    if option.key in {catalog.key for catalog in CATALOG_OPTIONS}:
        return
    with pytest.raises(InvalidInputError, match=f"'{re.escape(option.key)}' is an option of a table. Give it to"):
        mg.catalog("memory://none/w", {option.key: "1"})


def test_options_of_catalogs_are_called_so() -> None:
    with pytest.raises(InvalidInputError, match=r"cannot use catalog option 'cache\.manifest\.max-memory' = 'much'"):
        mg.catalog("memory://none/w", {"cache.manifest.max-memory": "much"})


def test_a_partition_whose_directory_has_too_long_a_name_is_refused_before_anything_is_written() -> None:
    table = _catalog().create_table("d.t", {"p": "STRING", "k": "INT"}, ["p", "k"], ["p"], {"bucket": "1"})
    rows = [{"p": "a", "k": 1}, {"p": "\u00e9" * 130, "k": 2}]
    with pytest.raises(
        InvalidInputError, match=r"'p' has a value of 130 characters .* of 262 bytes.*Nothing was written"
    ):
        table.write(rows)
    assert table.latest_snapshot() is None
    table.write([{"p": "x" * 253, "k": 1}])


@pytest.mark.parametrize("value", [float("nan"), Decimal("NaN"), float("-inf")])
def test_what_is_no_number_is_named_in_a_decimal_column(value: Any) -> None:
    table = _catalog().create_table("d.t", {"k": "INT", "m": "DECIMAL(5, 2)"})
    with pytest.raises(InvalidInputError, match=r"'m'.* in row 2 of 2 .* is no value of DECIMAL\(5, 2\)"):
        table.write([{"k": 1, "m": Decimal(1)}, {"k": 2, "m": value}])

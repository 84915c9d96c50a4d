"""Bloom filters: no value that was put in is ever denied, others rarely pass, and the bytes are those of the format."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from merganser.codec.bloom import ITEMS_MAX, BloomBuilder, BloomFilter, bit_count, can_filter, value_hashes
from merganser.errors import FormatError
from merganser.schema import types as t
from merganser.schema.arrow import arrow_type
from merganser.schema.types_text import parse_type

START = datetime(1969, 12, 31, 23, 59)
VALUES: dict[str, Any] = {
    "TINYINT": lambda i: i % 256 - 128,
    "SMALLINT": lambda i: i * 13 - 30_000,
    "INT": lambda i: i * 7919 - 2**31,
    "BIGINT": lambda i: i * 2**50 - 2**60,
    "FLOAT": lambda i: [0.0, -0.0, float("nan"), float("inf")][i] if i < 4 else i / 4 - 300,
    "DOUBLE": lambda i: [0.0, -0.0, float("nan"), float("inf")][i] if i < 4 else i / 3 - 300,
    "CHAR(8)": lambda i: f"{i:08d}",
    "STRING": lambda i: "é🦆x"[: i % 4] * (i % 40) + str(i),
    "VARBINARY(90)": lambda i: bytes([i % 256]) * (i % 90),
    "DATE": lambda i: date(1960, 1, 1) + timedelta(days=i * 11),
    "TIME(3)": lambda i: timedelta(milliseconds=i * 977),
    "TIMESTAMP(0)": lambda i: START + timedelta(seconds=i),
    "TIMESTAMP(3)": lambda i: START + timedelta(milliseconds=i * 977),
    "TIMESTAMP(6)": lambda i: START + timedelta(microseconds=i * 1_000_003),
    "TIMESTAMP(9)": lambda i: START + timedelta(microseconds=i * 1_000_003),
    "TIMESTAMP(6) WITH LOCAL TIME ZONE": lambda i: START + timedelta(microseconds=i),
}


def _column(kind: str, numbers: range) -> pa.Array:
    values = [None if i % 10 == 9 else VALUES[kind](i) for i in numbers]
    if kind.startswith("TIME("):
        values = [None if v is None else (datetime.min + v).time() for v in values]
    target = arrow_type(parse_type(kind))
    return (
        pa.array(values, target)
        if not pa.types.is_timestamp(target)
        else pa.array(values, pa.timestamp("us")).cast(pa.timestamp(target.unit)).cast(target)
    )


@pytest.mark.parametrize("kind", VALUES)
def test_no_value_that_is_in_a_filter_is_denied(kind: str) -> None:
    column, of = _column(kind, range(2000)), parse_type(kind)
    builder = BloomBuilder(None, 0.05)
    builder.add(column.slice(0, 3), of)
    builder.add(pa.chunked_array([column.slice(3, 700), column.slice(703)]), of)
    hashes, nulls = value_hashes(column, of)
    assert nulls is not None
    assert nulls.tolist() == column.is_null().to_pylist()
    assert builder.finish().may_hold(hashes[~nulls]).all()


@pytest.mark.parametrize("rate", [0.3, 0.1, 0.01, 0.001])
def test_other_values_pass_at_about_the_rate(rate: float) -> None:
    builder = BloomBuilder(20_000, rate)
    builder.add(pa.array(np.arange(20_000)), t.BigInt())
    others, _ = value_hashes(pa.array(np.arange(20_000, 220_000)), t.BigInt())
    assert builder.finish().may_hold(others).mean() == pytest.approx(rate, rel=0.25)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0xEF46DB3751D8E999),
        ("a", 0xD24EC4F1A98C6E5B),
        ("abc", 0x44BC2CF5AD770999),
        ("Nobody inspects the spammish repetition", 0xFBCEA83C8A378BF1),
    ],
)
def test_texts_have_the_published_hashes_of_xxhash64(text: str, expected: int) -> None:
    assert value_hashes(pa.array([text]), t.string())[0].tolist() == [expected]


def test_a_hash_does_not_depend_on_its_neighbours_or_its_place() -> None:
    texts = ["x" * n for n in range(150)]
    together, _ = value_hashes(pa.array(["skipped", *texts]).slice(1), t.string())
    alone = [value_hashes(pa.array([text], pa.large_string()), t.string())[0][0] for text in texts]
    assert together.tolist() == alone
    assert len(set(alone)) == len(texts)


def test_a_filter_is_as_large_as_the_values_that_come_and_no_larger_than_for_a_million() -> None:
    small, large, told = BloomBuilder(None, 0.1), BloomBuilder(None, 0.1), BloomBuilder(50, 0.1)
    small.add(pa.array([1, 2, None]), t.BigInt())
    for start in range(0, 3 * ITEMS_MAX // 2, ITEMS_MAX // 4):
        large.add(pa.array(np.arange(start, start + ITEMS_MAX // 4)), t.BigInt())
    told.add(pa.array([1]), t.BigInt())
    assert len(small.finish().bits) == bit_count(2, 0.1) // 8 == 2
    assert len(large.finish().bits) == bit_count(ITEMS_MAX, 0.1) // 8 == 599_067
    assert len(told.finish().bits) == bit_count(50, 0.1) // 8
    everything, _ = value_hashes(pa.array(np.arange(3 * ITEMS_MAX // 2)), t.BigInt())
    assert large.finish().may_hold(everything).all()


def test_a_filter_of_nulls_denies_every_value() -> None:
    builder = BloomBuilder(None, 0.1)
    builder.add(pa.array([None, None], pa.int64()), t.BigInt())
    assert not builder.finish().may_hold(value_hashes(pa.array([0, 1, -1]), t.BigInt())[0]).any()


def test_the_body_reads_back() -> None:
    made = BloomFilter.empty(100, 0.01)
    made.add(np.array([1, 2, 2**64 - 1], np.uint64))
    read = BloomFilter.decode(made.encode(), path="f.index")
    assert (read.count, read.bits.tolist()) == (7, made.bits.tolist())


@pytest.mark.parametrize("body", [b"", b"\0\0\0\2", b"\0\0\0\0\1", b"\xff\0\0\0\1", b"\0\1\0\0\1"])
def test_a_body_that_is_no_filter_is_an_error(body: bytes) -> None:
    with pytest.raises(FormatError, match=r"'f\.index'.*No read needs it"):
        BloomFilter.decode(body, path="f.index")


def test_types_without_filters_are_known() -> None:
    refused = ["BOOLEAN", "DECIMAL(10, 2)", "ARRAY<INT>", "MAP<STRING, INT>", "ROW<a INT>", "VARIANT"]
    assert [kind for kind in refused if can_filter(parse_type(kind))] == []
    assert [kind for kind in VALUES if not can_filter(parse_type(kind))] == []
    assert not can_filter(parse_type(f"DECIMAL({Decimal(38)}, 0)"))

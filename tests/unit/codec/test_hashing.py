"""Buckets: every published vector, and a hash written byte by byte as the oracle."""

from __future__ import annotations

import datetime
import decimal
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merganser.codec import hashing
from merganser.codec.binary_row import RowBytes, encode_row, encode_rows, stored_to_arrow
from merganser.codec.hashing import buckets, row_hashes
from merganser.errors import InvalidInputError, UnsupportedError
from merganser.schema import types as t
from merganser.schema.arrow import timestamp_unit
from merganser.schema.types_text import parse_type

_FILE = Path(__file__).parents[2] / "golden" / "tables" / "bucket_vectors.json"
VECTORS: list[dict[str, Any]] = json.loads(_FILE.read_text())["vectors"]
BY_NAME = pytest.mark.parametrize("vector", VECTORS, ids=lambda v: f"{v['types']}{v['values']}"[:60])


def stored(value: Any, kind: t.DataType) -> Any:
    """Return the stored value of a value in a vector."""
    if value is None:
        return None
    match kind:
        case t.Float() | t.Double():
            return float(value)
        case t.Decimal():
            return decimal.Decimal(value)
        case t.Binary() | t.VarBinary():
            return bytes.fromhex(value)
        case t.Date():
            return (datetime.date.fromisoformat(value) - datetime.date(1970, 1, 1)).days
        case t.Time():
            clock = datetime.time.fromisoformat(value)
            return (clock.hour * 3600 + clock.minute * 60 + clock.second) * 1000 + clock.microsecond // 1000
        case t.Timestamp(precision=precision) | t.LocalZonedTimestamp(precision=precision):
            whole, _, fraction = value.partition(".")
            seconds = (datetime.datetime.fromisoformat(whole) - datetime.datetime(1970, 1, 1)).total_seconds()
            nanos = int(seconds) * 10**9 + int(fraction.ljust(9, "0") or "0")
            return nanos // {"ms": 10**6, "us": 10**3, "ns": 1}[timestamp_unit(precision)]
    return value


def columns_of(vector: dict[str, Any], copies: int = 3) -> tuple[list[pa.Array], list[t.DataType]]:
    kinds = [parse_type(text) for text in vector["types"]]
    values = [stored(v, k) for v, k in zip(vector["values"], kinds, strict=True)]
    return [stored_to_arrow([v] * copies, k) for v, k in zip(values, kinds, strict=True)], kinds


def oracle_hash(row: bytes) -> int:
    mask = 0xFFFFFFFF
    h = 42
    for i in range(0, len(row), 4):
        k = int.from_bytes(row[i : i + 4], "little") * 0xCC9E2D51 & mask
        k = (k << 15 | k >> 17) * 0x1B873593 & mask
        h ^= k
        h = ((h << 13 | h >> 19) * 5 + 0xE6546B64) & mask
    h ^= len(row)
    h = (h ^ h >> 16) * 0x85EBCA6B & mask
    h = (h ^ h >> 13) * 0xC2B2AE35 & mask
    h ^= h >> 16
    return h - (1 << 32) if h >> 31 else h


@BY_NAME
def test_a_bucket_key_has_the_bytes_of_the_vector(vector: dict[str, Any]) -> None:
    columns, kinds = columns_of(vector)
    rows: RowBytes = encode_rows(columns, kinds)
    assert {rows.row(i).hex() for i in range(len(rows))} == {vector["row_hex"]}
    values = [stored(v, k) for v, k in zip(vector["values"], kinds, strict=True)]
    assert encode_row(values, kinds).hex() == vector["row_hex"]


@BY_NAME
def test_a_bucket_key_has_the_hash_of_the_vector(vector: dict[str, Any]) -> None:
    columns, kinds = columns_of(vector)
    assert row_hashes(columns, kinds).tolist() == [vector["hash"]] * 3
    assert oracle_hash(bytes.fromhex(vector["row_hex"])) == vector["hash"]


@BY_NAME
def test_a_row_goes_to_the_bucket_of_the_vector(vector: dict[str, Any]) -> None:
    columns, kinds = columns_of(vector, copies=1)
    for function, expected in (
        ("default", vector["buckets"]),
        ("mod", vector.get("mod")),
        ("hive", vector.get("hive")),
    ):
        for total, bucket in (expected or {}).items():
            assert buckets(columns, kinds, int(total), function).tolist() == [bucket], (function, total)


@BY_NAME
def test_a_row_goes_where_the_clients_put_it(vector: dict[str, Any]) -> None:
    """Where clients differ (null wide decimals and timestamps, nanoseconds), the reference is right."""
    columns, kinds = columns_of(vector, copies=1)
    clients = vector["client_bucket_of_1000"]
    expected = set(clients.values()) if vector["all_clients_agree"] else {clients["paimon-java 2.1-SNAPSHOT"]}
    assert set(buckets(columns, kinds, 1000).tolist()) == expected


def test_blocks_of_rows_encode_and_hash_like_single_rows() -> None:
    count = 70_001
    ids = np.arange(count, dtype=np.int64) * 7_919_000_003
    texts = [None if i % 11 == 0 else "key" * (i % 7) for i in range(count)]
    columns = [pa.chunked_array([ids[:5], ids[5:]]), pa.array(texts, pa.string())]
    kinds: list[t.DataType] = [t.BigInt(), t.VarChar()]
    hashes = row_hashes(columns, kinds)
    rows = encode_rows(columns, kinds)
    assert len(rows) == len(hashes) == count
    for i in (0, 1, 5, 11, 32_767, 32_768, 65_537, count - 1):
        assert rows.row(i) == encode_row((int(ids[i]), texts[i]), kinds)
        assert hashes[i] == oracle_hash(rows.row(i))


@given(
    st.lists(
        st.tuples(
            st.none() | st.text(max_size=30),
            st.none()
            | st.decimals(allow_nan=False, allow_infinity=False, places=2, min_value=-(10**16), max_value=10**16),
            st.none() | st.integers(-(2**62), 2**62),
            st.none() | st.binary(max_size=80),
            st.none() | st.lists(st.text(max_size=9), max_size=3),
        ),
        max_size=8,
    )
)
@settings(max_examples=80, deadline=None)
def test_hashes_equal_the_hash_of_the_bytes(rows: list[tuple[Any, ...]]) -> None:
    kinds: list[t.DataType] = [
        t.VarChar(),
        t.Decimal(20, 2),
        t.Timestamp(6),
        t.VarBinary(),
        t.Array(element=t.VarChar()),
    ]
    columns = [stored_to_arrow([row[i] for row in rows], kind) for i, kind in enumerate(kinds)]
    assert row_hashes(columns, kinds).tolist() == [oracle_hash(encode_row(row, kinds)) for row in rows]


def test_more_than_56_columns_hash_over_two_header_words() -> None:
    values = [None if i % 3 == 0 else i for i in range(60)]
    kinds: list[t.DataType] = [t.Int()] * 60
    columns = [pa.array([v], pa.int32()) for v in values]
    assert row_hashes(columns, kinds).tolist() == [oracle_hash(encode_row(values, kinds))]
    late = [None if i == 58 else i for i in range(60)]
    assert row_hashes([pa.array([v], pa.int32()) for v in late], kinds).tolist() == [
        oracle_hash(encode_row(late, kinds))
    ]


def test_no_rows_have_no_hashes() -> None:
    assert len(row_hashes([pa.array([], pa.string())], [t.VarChar()])) == 0
    assert len(buckets([pa.array([], pa.int64())], [t.BigInt()], 4, "mod")) == 0


def test_no_key_goes_to_a_negative_bucket() -> None:
    keys = pa.array(range(10_000), pa.int64())
    for function in ("default", "mod", "hive"):
        found = buckets([pa.compute.negate(keys)], [t.BigInt()], 7, function)
        assert set(found.tolist()) <= set(range(7))


@pytest.mark.parametrize("total", [1, 2, 3, 7, 1_000, 2**31 - 1])
def test_a_bucket_is_the_size_of_the_hash_modulo_their_number(total: int, monkeypatch: pytest.MonkeyPatch) -> None:
    hashes = np.array([0, 1, -1, total % 2**31, -total, 2**31 - 1, -(2**31), -(2**31) + 1] * 5, np.int32)
    monkeypatch.setattr(hashing, "row_hashes", lambda columns, kinds: hashes)
    monkeypatch.setattr(hashing, "_BLOCK_ROWS", 16)
    assert buckets([], [], total).tolist() == [abs(int(value)) % total for value in hashes]


@pytest.mark.parametrize("function", ["default", "hive"])
def test_columns_of_different_lengths_are_refused(function: str) -> None:
    columns = [pa.array(range(65_536), pa.int64()), pa.array(range(70_000), pa.int64())]
    with pytest.raises(InvalidInputError, match="65536, 70000"):
        buckets(columns, [t.BigInt(), t.BigInt()], 4, function)


def test_mod_floors_negative_keys_and_takes_null_as_zero() -> None:
    assert buckets([pa.array([-1, -7, None, 8], pa.int32())], [t.Int()], 5, "mod").tolist() == [4, 3, 0, 3]


def test_mod_takes_one_integer_column_only() -> None:
    with pytest.raises(InvalidInputError, match="STRING"):
        buckets([pa.array(["a"])], [t.VarChar()], 5, "mod")
    with pytest.raises(InvalidInputError, match="INT, INT"):
        buckets([pa.array([1], pa.int32())] * 2, [t.Int(), t.Int()], 5, "mod")


def test_hive_is_not_defined_for_timestamps_that_are_not_null() -> None:
    with pytest.raises(UnsupportedError, match=r"TIMESTAMP\(6\)"):
        buckets([pa.array([1], pa.timestamp("us"))], [t.Timestamp(6)], 5, "hive")


def test_hive_decimals_hash_alike_whatever_their_trailing_zeros() -> None:
    wide = pa.array([decimal.Decimal("12.50"), None, decimal.Decimal("1200.00")], pa.decimal128(10, 2))
    narrow = pa.array([decimal.Decimal("12.5"), None, decimal.Decimal("1200.0")], pa.decimal128(9, 1))
    one = buckets([wide], [t.Decimal(10, 2)], 1000, "hive").tolist()
    assert one == buckets([narrow], [t.Decimal(9, 1)], 1000, "hive").tolist()
    assert one[1] == 0


@pytest.mark.parametrize(("total", "function"), [(0, "default"), (-2, "mod"), (4, "murmur")])
def test_an_impossible_assignment_is_refused(total: int, function: str) -> None:
    with pytest.raises(InvalidInputError, match=function if total > 0 else str(total)):
        buckets([pa.array([1], pa.int32())], [t.Int()], total, function)

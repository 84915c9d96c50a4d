"""Rows as bytes: worked examples of the format, real keys, an oracle written row by row, and damage."""

from __future__ import annotations

import decimal
import json
import math
import struct
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merganser.codec.avro import read_records
from merganser.codec.binary_row import (
    EMPTY_ROW,
    arrow_to_stored,
    decode_row,
    deserialize,
    deserialize_columns,
    encode_row,
    encode_rows,
    serialize,
    sort_key,
    stored_to_arrow,
)
from merganser.codec.stats import SimpleStats, decode_stats
from merganser.errors import FormatError, InvalidInputError, MerganserError, UnsupportedError
from merganser.schema import types as t
from merganser.schema.arrow import arrow_type
from merganser.schema.types_text import parse_type, type_from_json

TABLES = Path(__file__).parents[2] / "golden" / "tables"
NANOS = 1_704_067_200_123_456_789  # 2024-01-01 00:00:00.123456789
D = decimal.Decimal

EXAMPLES: list[tuple[str, tuple[Any, ...], str]] = [
    ("INT", (1,), "0000000000000000 0100000000000000"),
    ("INT", (None,), "0001000000000000 0000000000000000"),
    ("BIGINT", (-5,), "0000000000000000 fbffffffffffffff"),
    ("STRING", ("abc",), "0000000000000000 6162630000000083"),
    ("STRING", ("abcdefg",), "0000000000000000 6162636465666787"),
    ("STRING", ("",), "0000000000000000 0000000000000080"),
    ("STRING", ("abcdefghij",), "0000000000000000 0a00000010000000 6162636465666768 696a000000000000"),
    ("DECIMAL(10, 2)", (D("1234.56"),), "0000000000000000 40e2010000000000"),
    ("DECIMAL(20, 2)", (D("1234.56"),), "0000000000000000 0300000010000000 01e2400000000000 0000000000000000"),
    ("DECIMAL(20, 2)", (D("-1234.56"),), "0000000000000000 0300000010000000 fe1dc00000000000 0000000000000000"),
    ("DECIMAL(20, 2)", (None,), "0001000000000000 0000000010000000 0000000000000000 0000000000000000"),
    ("TIMESTAMP(3)", (NANOS // 10**6,), "0000000000000000 7bf451c28c010000"),
    ("TIMESTAMP(9)", (NANOS,), "0000000000000000 55f8060010000000 7bf451c28c010000"),
    ("TIMESTAMP(9)", (None,), "0001000000000000 0000000010000000 0000000000000000"),
    ("STRING; BIGINT", ("abc", 1), "0000000000000000 6162630000000083 0100000000000000"),
    (
        "STRING; BIGINT",
        ("abcdefghij", -5),
        "0000000000000000 0a00000018000000 fbffffffffffffff 6162636465666768 696a000000000000",
    ),
    (
        "BOOLEAN; TINYINT; DATE; TIME(3); FLOAT",
        (True, -1, 19782, 45_296_789, 1.5),
        "0000000000000000 0100000000000000 ff00000000000000 464d000000000000 952cb30200000000 0000c03f00000000",
    ),
    (
        "ARRAY<INT>",
        ([1, None, 3],),
        "0000000000000000 1800000010000000 03000000 02000000 01000000 00000000 03000000 00000000",
    ),
    (
        "ARRAY<STRING>",
        (["a", "abcdefghij"],),
        "0000000000000000 2800000010000000 02000000 00000000 "
        "6100000000000081 0a00000018000000 6162636465666768 696a000000000000",
    ),
    (
        "MAP<STRING, INT>",
        ([("k", 7)],),
        "0000000000000000 2400000010000000 10000000 01000000 00000000 "
        "6b00000000000081 01000000 00000000 07000000 00000000 00000000",
    ),
    (
        "ROW<a INT, b STRING>",
        ((5, "abc"),),
        "0000000000000000 1800000010000000 0000000000000000 0500000000000000 6162630000000083",
    ),
    (
        "VARIANT",
        ((b"\x0c\x01", b"\x01\x00\x00"),),
        "0000000000000000 0900000010000000 02000000 0c01 010000 00000000000000",
    ),
]


def parse_kinds(text: str) -> list[t.DataType]:
    return [parse_type(part) for part in text.split(";")]


def columns_of(rows: list[tuple[Any, ...]], kinds: list[t.DataType]) -> list[pa.Array]:
    return [stored_to_arrow([row[i] for row in rows], kind) for i, kind in enumerate(kinds)]


# --- the oracle: a row as the format sheet describes it, one field after the other ---


def oracle_row(values: tuple[Any, ...], kinds: list[t.DataType]) -> bytes:
    header = bytearray((len(kinds) + 63 + 8) // 64 * 8)
    slots, tail = b"", b""
    for i, (value, kind) in enumerate(zip(values, kinds, strict=True)):
        if value is None:
            header[(i + 8) // 8] |= 1 << ((i + 8) % 8)
        slot, area = oracle_field(value, kind, len(header) + 8 * len(kinds) + len(tail))
        slots += slot.ljust(8, b"\0")
        tail += area.ljust((len(area) + 7) // 8 * 8, b"\0")
    return bytes(header) + slots + tail


def oracle_field(value: Any, kind: t.DataType, end: int) -> tuple[bytes, bytes]:
    simple = {
        "BOOLEAN": "?",
        "TINYINT": "b",
        "SMALLINT": "h",
        "INT": "i",
        "BIGINT": "q",
        "FLOAT": "f",
        "DOUBLE": "d",
        "DATE": "i",
        "TIME": "i",
    }
    name = str(kind).split("(")[0].split(" ")[0]
    if name == "DECIMAL" and isinstance(kind, t.Decimal) and kind.precision > 18:
        if value is None:
            return struct.pack("<II", 0, end), bytes(16)
        count = int(D(value).scaleb(kind.scale, decimal.Context(prec=60)))
        size = next(n for n in range(1, 17) if -(1 << 8 * n - 1) <= count < 1 << 8 * n - 1)
        return struct.pack("<II", size, end), count.to_bytes(size, "big", signed=True).ljust(16, b"\0")
    if isinstance(kind, t.Timestamp | t.LocalZonedTimestamp) and kind.precision > 3:
        if value is None:
            return struct.pack("<II", 0, end), bytes(8)
        nanos = value * (1 if kind.precision > 6 else 1000)
        return struct.pack("<II", nanos % 1_000_000, end), struct.pack("<q", nanos // 1_000_000)
    if value is None:
        return b"", b""
    if name in simple:
        return struct.pack("<" + simple[name], math.nan if value != value else value), b""
    if isinstance(kind, t.Decimal):
        return struct.pack("<q", int(value.scaleb(kind.scale))), b""
    if name == "TIMESTAMP":
        return struct.pack("<q", value), b""
    data = value.encode() if isinstance(value, str) else value
    if len(data) <= 7:
        return data.ljust(7, b"\0") + bytes([0x80 + len(data)]), b""
    return struct.pack("<II", len(data), end), data


def _ints(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


@st.composite
def decimals(draw: st.DrawFn, kind: t.Decimal) -> D:
    digits = draw(st.integers(1, kind.precision))
    count = draw(st.integers(-(10**digits) + 1, 10**digits - 1))
    return D(count).scaleb(-kind.scale, decimal.Context(prec=60))


VALUES: list[tuple[t.DataType, st.SearchStrategy[Any]]] = [
    (t.Boolean(), st.booleans()),
    (t.TinyInt(), _ints(8)),
    (t.SmallInt(), _ints(16)),
    (t.Int(), _ints(32)),
    (t.BigInt(), _ints(64)),
    (t.Float(), st.floats(width=32)),
    (t.Double(), st.floats()),
    (t.Decimal(9, 2), decimals(t.Decimal(9, 2))),
    (t.Decimal(18, 0), decimals(t.Decimal(18, 0))),
    (t.Decimal(19, 4), decimals(t.Decimal(19, 4))),
    (t.Decimal(38, 10), decimals(t.Decimal(38, 10))),
    (t.VarChar(), st.text(max_size=12) | st.text("äöü漢😀z", max_size=90)),
    (t.Char(5), st.text(max_size=5)),
    (t.VarBinary(), st.binary(max_size=12) | st.binary(min_size=250, max_size=400)),
    (t.Date(), _ints(32)),
    (t.Time(3), st.integers(0, 86_399_999)),
    (t.Timestamp(0), st.integers(-(10**14), 10**14)),
    (t.Timestamp(3), _ints(64)),
    (t.Timestamp(6), _ints(64)),
    (t.Timestamp(9), _ints(64)),
    (t.LocalZonedTimestamp(3), _ints(64)),
    (t.LocalZonedTimestamp(6), _ints(64)),
]


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[t.DataType], list[tuple[Any, ...]]]:
    chosen = draw(st.lists(st.sampled_from(VALUES), min_size=1, max_size=6))
    row = st.tuples(*(st.none() | values for _, values in chosen))
    return [kind for kind, _ in chosen], draw(st.lists(row, max_size=8))


def same(a: Any, b: Any) -> bool:
    """Compare stored values, with NaN equal to NaN and the two zeros different."""
    return repr(a) == repr(b) if isinstance(a, float) else bool(a == b)


# --- one row ---


@pytest.mark.parametrize(("kinds", "values", "expected"), EXAMPLES)
def test_a_row_has_the_bytes_of_the_worked_example(kinds: str, values: tuple[Any, ...], expected: str) -> None:
    assert encode_row(values, parse_kinds(kinds)).hex() == expected.replace(" ", "")


@pytest.mark.parametrize(("kinds", "values", "expected"), EXAMPLES)
def test_a_worked_example_reads_back(kinds: str, values: tuple[Any, ...], expected: str) -> None:
    assert decode_row(bytes.fromhex(expected), parse_kinds(kinds)) == values


@pytest.mark.parametrize(("kinds", "values", "expected"), EXAMPLES)
def test_columns_give_the_bytes_of_the_worked_example(kinds: str, values: tuple[Any, ...], expected: str) -> None:
    parsed = parse_kinds(kinds)
    rows = encode_rows(columns_of([values, values], parsed), parsed)
    assert len(rows) == 2
    assert {rows.row(0).hex(), rows.row(1).hex()} == {expected.replace(" ", "")}


def test_a_row_without_fields_is_eight_zero_bytes() -> None:
    assert encode_row((), ()) == bytes(8)
    assert bytes(12) == EMPTY_ROW


def test_a_serialized_row_begins_with_its_field_count_big_endian() -> None:
    assert serialize((1,), [t.Int()]).hex() == "00000001" + "0000000000000000" + "0100000000000000"


def test_a_row_without_fields_deserializes_to_nothing_whatever_is_expected() -> None:
    assert deserialize(EMPTY_ROW, [t.Int(), t.VarChar()]) == ()


def test_the_null_bit_of_field_56_is_in_a_second_header_word() -> None:
    values = [None] * 57
    row = encode_row(values, [t.Int()] * 57)
    assert row[:16].hex() == "00" + "ff" * 7 + "01" + "00" * 7
    assert decode_row(row, [t.Int()] * 57) == tuple(values)
    assert encode_rows(columns_of([tuple(values)], [t.Int()] * 57), [t.Int()] * 57).row(0) == row


@pytest.mark.parametrize("kind", ["DECIMAL(19, 0)", "TIMESTAMP(4)", "TIMESTAMP(9) WITH LOCAL TIME ZONE"])
def test_a_null_reads_the_same_without_a_reserved_area(kind: str) -> None:
    """Other writers than the reference leave the slot of such a null zero."""
    bare = bytes.fromhex("0001000000000000" + "0000000000000000")
    assert decode_row(bare, [parse_type(kind)]) == (None,)
    (column,) = deserialize_columns([b"\0\0\0\1" + bare], [parse_type(kind)])
    assert column.to_pylist() == [None]


def test_a_null_element_of_an_array_reserves_nothing() -> None:
    row = encode_row(([None],), [parse_type("ARRAY<DECIMAL(20, 0)>")])
    assert row[16:].hex() == "01000000" + "01000000" + "00" * 8


def test_a_null_field_of_a_nested_row_reserves_its_area() -> None:
    assert len(encode_row(((None,),), [parse_type("ROW<a DECIMAL(20, 0)>")])) == 16 + 16 + 16


def test_every_nan_is_written_with_the_same_bits() -> None:
    odd = np.array([0xFFF8_0000_0000_0007, 0x7FF8_0000_0000_0000], np.uint64).view(np.float64)
    rows = encode_rows([pa.array(odd)], [t.Double()])
    assert rows.row(0) == rows.row(1) == encode_row((float(odd[0]),), [t.Double()])
    assert rows.row(0)[8:] == struct.pack("<d", math.nan)


@given(tables())
@settings(max_examples=150, deadline=None)
def test_rows_equal_the_oracle_and_read_back(table: tuple[list[t.DataType], list[tuple[Any, ...]]]) -> None:
    kinds, rows = table
    encoded = encode_rows(columns_of(rows, kinds), kinds)
    assert len(encoded) == len(rows)
    for i, row in enumerate(rows):
        expected = oracle_row(row, kinds)
        assert encoded.row(i) == expected
        assert encode_row(row, kinds) == expected
        assert all(map(same, decode_row(expected, kinds), row))


@given(tables())
@settings(max_examples=100, deadline=None)
def test_many_rows_become_columns_again(table: tuple[list[t.DataType], list[tuple[Any, ...]]]) -> None:
    kinds, rows = table
    columns = deserialize_columns([serialize(row, kinds) for row in rows], kinds)
    for kind, column, expected in zip(kinds, columns, columns_of(rows, kinds), strict=True):
        assert column.type == arrow_type(kind)
        column.validate(full=True)
        assert all(
            same(arrow_to_stored(a, kind), arrow_to_stored(b, kind)) for a, b in zip(column, expected, strict=True)
        )


NESTED = (
    "ARRAY<TIMESTAMP(9)>; MAP<STRING NOT NULL, ARRAY<DECIMAL(20, 2)>>; ROW<a TIMESTAMP(6), b ROW<c STRING, d DATE>>; "
    "MULTISET<STRING>; VARIANT; TIME(3)"
)
NESTED_ROWS: list[tuple[Any, ...]] = [
    (
        [NANOS, None],
        [("k", [D("1.25"), None]), ("longer than seven", None)],
        (1, ("x" * 20, -1)),
        [("a", 2), ("b", 1)],
        (b"\x0c\x01", b"\x01\x00\x00"),
        5,
    ),
    (None, None, None, None, None, None),
    ([], [], (None, None), [], (b"", b""), 0),
]


def test_nested_columns_encode_like_nested_values_and_read_back() -> None:
    kinds = parse_kinds(NESTED)
    rows = encode_rows(columns_of(NESTED_ROWS, kinds), kinds)
    for i, row in enumerate(NESTED_ROWS):
        assert rows.row(i) == encode_row(row, kinds)
        assert decode_row(rows.row(i), kinds) == row


def test_nested_columns_come_out_of_serialized_rows() -> None:
    kinds = parse_kinds(NESTED)
    columns = deserialize_columns([serialize(row, kinds) for row in NESTED_ROWS], kinds)
    assert [c.type for c in columns] == [arrow_type(k) for k in kinds]
    assert [c.equals(e) for c, e in zip(columns, columns_of(NESTED_ROWS, kinds), strict=True)] == [True] * len(kinds)


def test_sliced_nested_columns_encode_their_own_values() -> None:
    kinds = parse_kinds(NESTED)
    columns = [column.slice(2) for column in columns_of(NESTED_ROWS, kinds)]
    assert encode_rows(columns, kinds).row(0) == encode_row(NESTED_ROWS[2], kinds)


@pytest.mark.parametrize(
    "form", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]
)
def test_every_arrow_form_of_text_encodes_alike(form: pa.DataType) -> None:
    values = ["short", None, "longer than seven", ""]
    column = pa.array(values, pa.string()).cast(form) if pa.types.is_dictionary(form) else pa.array(values, form)
    rows = encode_rows([column], [t.VarChar()])
    assert [rows.row(i) for i in range(4)] == [encode_row((v,), [t.VarChar()]) for v in values]


@pytest.mark.parametrize("form", [pa.binary(), pa.large_binary(), pa.binary_view()])
def test_every_arrow_form_of_binary_encodes_alike(form: pa.DataType) -> None:
    values = [b"\xff\x00", None, b"\xfe" * 300]
    rows = encode_rows([pa.array(values, form)], [t.VarBinary()])
    assert [rows.row(i) for i in range(3)] == [encode_row((v,), [t.VarBinary()]) for v in values]


@pytest.mark.parametrize(
    "kind", [t.VarChar(), t.VarBinary(), t.BigInt(), t.Boolean(), t.Decimal(38, 2), t.Timestamp(9)]
)
def test_chunks_and_slices_encode_like_one_array(kind: t.DataType) -> None:
    samples: dict[t.DataType, Any] = {
        t.VarChar(): "a value",
        t.VarBinary(): b"value",
        t.BigInt(): 7,
        t.Boolean(): True,
        t.Decimal(38, 2): D("-1.50"),
    }
    values = [None, *[samples.get(kind, NANOS)] * 4, None]
    whole = stored_to_arrow(values, kind)
    chunked = pa.chunked_array([whole.slice(0, 2), whole.slice(2, 0), whole.slice(2)])
    expected = [encode_row((v,), [kind]) for v in values]
    rows = encode_rows([chunked], [kind])
    assert [rows.row(i) for i in range(6)] == expected
    rows = encode_rows([whole.slice(3, 3)], [kind])
    assert [rows.row(i) for i in range(3)] == expected[3:]
    assert len(encode_rows([whole.slice(0, 0)], [kind])) == 0
    assert len(encode_rows([pa.chunked_array([], whole.type)], [kind])) == 0


def test_a_very_long_text_keeps_its_neighbours() -> None:
    values = ["a" * 5000, "b", None, "c" * 257, "d" * 256]
    rows = encode_rows([pa.array(values), pa.array(values)], [t.VarChar(), t.VarChar()])
    assert [rows.row(i) for i in range(5)] == [oracle_row((v, v), [t.VarChar(), t.VarChar()]) for v in values]


# --- real keys and statistics ---


def _golden_tables() -> Iterator[str]:
    for path in sorted(TABLES.glob("*.expected.json")):
        if json.loads(path.read_text()).get("live_files"):
            yield path.name.removesuffix(".expected.json")


def _schema(table: str, schema_id: int) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads((TABLES / table / "schema" / f"schema-{schema_id}").read_text())
    return schema


def _kinds(schema: dict[str, Any], names: list[str]) -> list[t.DataType]:
    by_name = {f["name"]: type_from_json(f["type"]) for f in schema["fields"]}
    return [by_name[name] for name in names]


@pytest.mark.parametrize("table", list(_golden_tables()))
def test_keys_and_partitions_of_real_tables_keep_their_bytes(table: str) -> None:
    for file in json.loads((TABLES / f"{table}.expected.json").read_text())["live_files"]:
        schema = _schema(table, file["schema_id"])
        partition = _kinds(schema, schema["partitionKeys"])
        key = _kinds(schema, [c for c in schema["primaryKeys"] if c not in schema["partitionKeys"]])
        for name, kinds in (("partition", partition), ("min_key", key), ("max_key", key)):
            data = bytes.fromhex(file[name])
            values = deserialize(data, kinds)
            assert serialize(values, kinds[: len(values)]) == data
            if values:
                columns = deserialize_columns([data], kinds)
                assert tuple(arrow_to_stored(c[0], k) for c, k in zip(columns, kinds, strict=True)) == values
                assert encode_rows(columns, kinds).row(0) == data[4:]


def test_statistics_of_the_reference_keep_their_bytes() -> None:
    seen = 0
    for table in filter(lambda name: name.endswith("_java"), _golden_tables()):
        for path in (TABLES / table / "manifest").glob("manifest-[0-9a-f]*"):
            records = read_records(path.read_bytes(), path.name)
            for entry in filter(None, (record["_FILE"] for record in records)):
                schema, stats = _schema(table, entry["_SCHEMA_ID"]), entry["_VALUE_STATS"]
                names = entry.get("_VALUE_STATS_COLS")
                kinds = _kinds(schema, [f["name"] for f in schema["fields"]] if names is None else names)
                for data in (stats["_MIN_VALUES"], stats["_MAX_VALUES"]):
                    values = deserialize(data, kinds)
                    assert serialize(values, kinds[: len(values)]) == data
                simple = SimpleStats(stats["_MIN_VALUES"], stats["_MAX_VALUES"], tuple(stats["_NULL_COUNTS"] or ()))
                assert len(decode_stats(simple, kinds)) == len(kinds)
                seen += 1
    assert seen > 100


# --- order ---


@pytest.mark.parametrize(
    ("kind", "ascending"),
    [
        (t.Boolean(), [None, False, True]),
        (t.BigInt(), [None, -5, 0, 7]),
        (t.Double(), [None, -math.inf, -1.5, -0.0, 0.0, 5e-324, 2.0, math.inf, math.nan]),
        (t.VarChar(), [None, "", "a", "aa", "b", "é", "\uffff", "😀"]),
        (t.VarBinary(), [None, b"", b"\x00", b"\x7f", b"\x80", b"\xff"]),
        (t.Decimal(20, 2), [None, D("-1.50"), D("0.00"), D("2.00"), D("10.00")]),
    ],
)
def test_keys_order_as_the_format_says(kind: t.DataType, ascending: list[Any]) -> None:
    images = [sort_key((value,), [kind]) for value in ascending]
    assert all(a < b for a, b in pairwise(images))


def test_the_first_column_of_a_key_decides_first() -> None:
    kinds = [t.VarChar(), t.Int()]
    assert sort_key(("a", 9), kinds) < sort_key(("b", None), kinds) < sort_key(("b", 1), kinds)


def test_a_nested_column_has_no_key_order() -> None:
    with pytest.raises(InvalidInputError, match="ARRAY<INT>"):
        sort_key(([1],), [t.Array(element=t.Int())])


# --- to and from Arrow ---


def test_nanoseconds_survive_arrow() -> None:
    column = stored_to_arrow([NANOS, None], t.Timestamp(9))
    assert column.type == pa.timestamp("ns")
    assert arrow_to_stored(column[0], t.Timestamp(9)) == NANOS
    assert arrow_to_stored(column[1], t.Timestamp(9)) is None


def test_a_date_beyond_year_9999_survives_arrow() -> None:
    column = stored_to_arrow([2**31 - 1], t.Date())
    assert arrow_to_stored(column[0], t.Date()) == 2**31 - 1


def test_a_scalar_of_another_unit_becomes_a_count_in_the_unit_of_the_type() -> None:
    assert arrow_to_stored(pa.scalar(1_500, pa.timestamp("ms")), t.Timestamp(6)) == 1_500_000


def test_a_nested_scalar_becomes_lists_and_tuples() -> None:
    kind = parse_type("ROW<a ARRAY<TIMESTAMP(9)>, m MAP<STRING NOT NULL, DATE>>")
    value = ([NANOS], [("k", 3)])
    assert arrow_to_stored(stored_to_arrow([value], kind)[0], kind) == value


def test_a_timestamp_beyond_nanoseconds_is_not_wrapped() -> None:
    kind = t.Timestamp(9)
    year_9999 = 253_402_300_799_000 * 10**6
    with pytest.raises(UnsupportedError, match="1677 to 2262"):
        stored_to_arrow([year_9999], kind)
    with pytest.raises(UnsupportedError, match="1677 to 2262"):
        deserialize_columns([serialize((year_9999,), [kind])], [kind])
    assert deserialize(serialize((year_9999,), [kind]), [kind]) == (year_9999,)


@pytest.mark.parametrize("kind", [t.Timestamp(9), t.Timestamp(6)])
@pytest.mark.parametrize("count", [2**63 - 1, 2**63 - 10**6, -(2**63), -(2**63) + 10**6, -1, 0])
def test_the_first_and_last_timestamps_of_64_bits_come_through(kind: t.DataType, count: int) -> None:
    column = stored_to_arrow([count], kind)
    (read,) = deserialize_columns([b"\0\0\0\1" + encode_rows([column], [kind]).row(0)], [kind])
    assert read.equals(column)


@pytest.mark.parametrize("count", [2**63, 2**63 + 193, -(2**63) - 1, -(2**63) - 10**6, 2**80])
def test_the_timestamps_next_to_those_are_refused(count: int) -> None:
    with pytest.raises(UnsupportedError, match="64 bits"):
        deserialize_columns([serialize((count,), [t.Timestamp(9)])], [t.Timestamp(9)])


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (t.TinyInt(), 128),
        (t.Int(), "7"),
        (t.VarChar(), b"x"),
        (t.VarChar(), "\ud800"),
        (t.VarBinary(), "x"),
        (t.Decimal(4, 2), D("100.00")),
        (t.Decimal(4, 2), D("1.005")),
        (t.Decimal(38, 2), D("NaN")),
        (t.Timestamp(6), 2**100),
        (t.Array(element=t.Int()), [1, "2"]),
        (t.Map(key=t.Int(), value=t.Int()), [1]),
        (t.Row(fields=(t.Field(0, "a", t.Int()),)), (1, 2)),
    ],
)
def test_a_value_that_does_not_fit_its_type_is_refused(kind: t.DataType, value: Any) -> None:
    with pytest.raises(InvalidInputError):
        encode_row((value,), [kind])


def test_a_type_without_values_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="BLOB"):
        encode_row((b"x",), [t.Blob()])
    with pytest.raises(UnsupportedError, match="BLOB"):
        encode_rows([pa.array([b"x"])], [t.Blob()])


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="2 columns"):
        encode_rows([pa.array([1]), pa.array([1, 2])], [t.BigInt(), t.BigInt()])


def test_an_arrow_column_that_is_not_of_the_type_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="INT"):
        encode_rows([pa.array(["x"])], [t.Int()])


# --- damage ---


def test_the_first_damaged_row_is_named() -> None:
    good = serialize((1,), [t.BigInt()])
    with pytest.raises(FormatError, match="row 1 of 3"):
        deserialize_columns([good, good[:-1], good[:7]], [t.BigInt()])


def test_a_wrong_field_count_is_named() -> None:
    data = serialize((1, 2), [t.Int(), t.Int()])
    with pytest.raises(FormatError, match="2 fields, and 1"):
        deserialize(data, [t.Int()])
    with pytest.raises(FormatError, match="not 1"):
        deserialize_columns([data], [t.Int()])


def test_rows_without_fields_are_null_in_every_column() -> None:
    kinds = [t.VarChar(), t.Decimal(20, 0), t.Timestamp(6), t.Int(), t.Array(element=t.Int())]
    full = ("a longer text", D(5), 7, 8, [1])
    columns = deserialize_columns([EMPTY_ROW, serialize(full, kinds), EMPTY_ROW], kinds)
    assert [c.is_null().to_pylist() for c in columns] == [[True, False, True]] * 5


def test_no_rows_are_empty_columns() -> None:
    assert [len(c) for c in deserialize_columns([], [t.VarChar(), t.Decimal(38, 0), t.Timestamp(9)])] == [0, 0, 0]


def test_text_that_is_not_utf8_is_damage() -> None:
    for text in (b"\xff\xfe", b"\xff" * 9):
        data = serialize((text,), [t.VarBinary()])
        with pytest.raises(FormatError):
            deserialize(data, [t.VarChar()])
        with pytest.raises(FormatError):
            deserialize_columns([data], [t.VarChar()])


DAMAGED_KINDS = [
    *(t.VarChar(), t.Decimal(20, 2), t.Timestamp(6), t.VarBinary(), t.Array(element=t.VarChar())),
    *(t.Map(key=t.Int(), value=t.Decimal(30, 0)), t.Row(fields=(t.Field(0, "a", t.Timestamp(9)),))),
    *(t.Variant(), t.Decimal(5, 0)),
]
DAMAGED_ROW = (
    *("text of some length", D("1.25"), NANOS // 1000, b"ab", ["x", "a longer one"], [(1, D(2)), (2, None)]),
    *((NANOS,), (b"a", b"b"), D(1)),
)


@given(st.data())
@settings(max_examples=400, deadline=None)
def test_damaged_bytes_raise_format_errors_or_read_as_something(data: st.DataObject) -> None:
    whole = bytearray(serialize(DAMAGED_ROW, DAMAGED_KINDS))
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(whole) - 1))
        whole[at] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0x87, 0x88, 0xFF]))
    damaged = bytes(whole[: data.draw(st.sampled_from([len(whole)] * 3 + [*range(len(whole))]))])
    try:
        one = deserialize(damaged, DAMAGED_KINDS)
    except FormatError:
        one = None
    try:
        columns = deserialize_columns([damaged, serialize(DAMAGED_ROW, DAMAGED_KINDS)], DAMAGED_KINDS)
    except MerganserError:
        columns = None
    if one and columns is not None:
        assert [arrow_to_stored(c[0], k) for c, k in zip(columns, DAMAGED_KINDS, strict=True)] == list(one)

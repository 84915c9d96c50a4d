"""Column statistics: bounds that are never inside the values, and the bytes of the reference."""

from __future__ import annotations

import decimal
import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merganser.codec.binary_row import serialize, stored_to_arrow
from merganser.codec.stats import (
    COUNTS,
    EMPTY_ROW,
    FULL,
    NO_STATS,
    NONE,
    UNKNOWN,
    ColumnStats,
    SimpleStats,
    StatsMode,
    column_stats,
    decode_stats,
    encode_stats,
    merge_stats,
    parse_stats_mode,
    truncate,
)
from merganser.errors import FormatError, InvalidInputError
from merganser.schema import types as t
from merganser.schema.types_text import parse_type

TEXT = t.VarChar()
D = decimal.Decimal
NANOS = 1_704_067_200_123_456_789


@pytest.mark.parametrize(
    ("kind", "values", "low", "high"),
    [
        ("BOOLEAN", [True, False, None], False, True),
        ("TINYINT", [3, -128, 127], -128, 127),
        ("BIGINT", [2**63 - 1, None, -(2**63)], -(2**63), 2**63 - 1),
        ("FLOAT", [1.5, -2.25, math.inf], -2.25, math.inf),
        ("DOUBLE", [1.5, -math.inf], -math.inf, 1.5),
        ("DECIMAL(38, 10)", [D("-0.0000000001"), D(7)], D("-1E-10"), D(7)),
        ("STRING", ["b", "", "é", "😀", "\uffff"], "", "😀"),
        ("BYTES", [b"\x7f", b"\x80", b""], b"", b"\x80"),
        ("DATE", [-1, 2_932_896], -1, 2_932_896),
        ("TIME(3)", [0, 86_399_999], 0, 86_399_999),
        ("TIMESTAMP(9)", [NANOS, NANOS + 1], NANOS, NANOS + 1),
        ("TIMESTAMP(6) WITH LOCAL TIME ZONE", [-1, 5], -1, 5),
    ],
)
def test_statistics_hold_the_smallest_and_largest_value(kind: str, values: list[Any], low: Any, high: Any) -> None:
    parsed = parse_type(kind)
    column = stored_to_arrow(values, parsed)
    expected = ColumnStats(low, high, values.count(None))
    assert column_stats(column, parsed) == expected
    assert column_stats(pa.chunked_array([column.slice(0, 1), column.slice(1)]), parsed) == expected


@pytest.mark.parametrize("form", [pa.string(), pa.large_string(), pa.string_view(), pa.binary()])
def test_every_arrow_form_of_text_has_the_same_statistics(form: pa.DataType) -> None:
    column = pa.array(["b", None, "ä"], pa.string())
    column = column.cast(form) if form != pa.string_view() else pa.array(["b", None, "ä"], form)
    assert column_stats(column, TEXT) == ColumnStats("b", "ä", 1)


def test_a_column_of_nulls_has_a_count_only() -> None:
    stats = column_stats(pa.nulls(3, pa.int32()), t.Int())
    assert stats == ColumnStats(None, None, 3)
    assert stats.no_values


def test_a_nested_column_has_a_count_only() -> None:
    kind = t.Array(element=t.Int())
    assert column_stats(stored_to_arrow([[1], None], kind), kind) == ColumnStats(None, None, 1)


@pytest.mark.parametrize("values", [[math.nan, 1.0], [1.0, None, math.nan], [math.nan]])
def test_a_nan_leaves_a_column_without_bounds(values: list[float | None]) -> None:
    stats = column_stats(pa.array(values, pa.float64()), t.Double())
    assert (stats.min, stats.max) == (None, None)
    assert stats.null_count == values.count(None)


@pytest.mark.parametrize("kind", [t.Decimal(9, 2), t.Decimal(18, 2), t.Decimal(19, 2), t.Decimal(38, 2)])
@pytest.mark.parametrize(
    "values", [["-0.01", "5.00", "-123.45"], [None, "7.00", None], ["0.00"], ["-9999999.99", None]]
)
def test_bounds_of_decimals_are_exact_in_slices_too(kind: t.Decimal, values: list[str | None]) -> None:
    numbers = [None if v is None else D(v) for v in values]
    there = [n for n in numbers if n is not None]
    type_ = pa.decimal128(kind.precision, kind.scale)
    around = pa.array([D("9999999.99"), *numbers, None, D("-9999999.99")], type_).slice(1, len(numbers))
    for column in (pa.array(numbers, type_), around, pa.chunked_array([around, pa.array([], type_), around])):
        found = column_stats(column, kind)
        assert (found.min, found.max) == (min(there), max(there))
        assert str(found.min) == str(min(there))


@pytest.mark.parametrize("kind", [t.Float(), t.Double()])
@pytest.mark.parametrize("values", [[0.0], [-0.0], [0.0, -0.0]])
def test_a_zero_bound_covers_both_zeros(kind: t.DataType, values: list[float]) -> None:
    stats = column_stats(stored_to_arrow(values, kind), kind)
    assert (str(stats.min), str(stats.max)) == ("-0.0", "0.0")


def test_statistics_merge_to_the_wider_bounds() -> None:
    assert merge_stats(ColumnStats(1, 5, 2), ColumnStats(-3, 4, 1), t.Int()) == ColumnStats(-3, 5, 3)
    assert merge_stats(ColumnStats("\uffff", "\uffff", 0), ColumnStats("😀", "😀", 0), TEXT) == ColumnStats(
        "\uffff", "😀", 0
    )


def test_an_unknown_side_leaves_the_merged_bounds_unknown() -> None:
    assert merge_stats(ColumnStats(1, 5, 2), ColumnStats(None, None, 4), t.Int()) == ColumnStats(None, None, 6)
    assert merge_stats(ColumnStats(1, 5, 2), UNKNOWN, t.Int()) == UNKNOWN


def test_a_side_of_nulls_alone_keeps_the_other_bounds() -> None:
    nulls = column_stats(pa.nulls(3, pa.int32()), t.Int())
    assert merge_stats(nulls, ColumnStats(1, 5, 2), t.Int()) == ColumnStats(1, 5, 5)
    assert merge_stats(ColumnStats(1, 5, 2), nulls, t.Int()) == ColumnStats(1, 5, 5)
    assert merge_stats(nulls, nulls, t.Int()).no_values
    assert not merge_stats(nulls, UNKNOWN, t.Int()).no_values


@given(st.lists(st.lists(st.none() | st.floats(), max_size=4), min_size=1, max_size=4))
@settings(max_examples=60, deadline=None)
def test_merged_statistics_are_those_of_all_rows(parts: list[list[float | None]]) -> None:
    kind = t.Double()
    merged = column_stats(stored_to_arrow(parts[0], kind), kind)
    for part in parts[1:]:
        merged = merge_stats(merged, column_stats(stored_to_arrow(part, kind), kind), kind)
    whole = column_stats(stored_to_arrow([v for part in parts for v in part], kind), kind)
    assert (repr(merged), merged.no_values) == (repr(whole), whole.no_values)


@pytest.mark.parametrize(
    ("value", "length", "expected"),
    [
        ("abc", 3, "abc"),
        ("abcd", 3, "abd"),
        ("kiwi-tail", 3, "kix"),
        ("héllo", 2, "hê"),
        ("a\U0010ffffb", 2, "b"),
        ("\U0010ffff\U0010ffffb", 2, None),
        ("a\ud7ffb", 2, "a\ue000"),
        ("😀😀😀", 1, "😁"),
        (b"\x01\x02\x03", 2, b"\x01\x03"),
        (b"\x01\xff\x03", 2, b"\x02"),
        (b"\xff\xff\x03", 2, None),
    ],
)
def test_a_cut_maximum_is_raised(value: str | bytes, length: int, expected: str | bytes | None) -> None:
    kind: t.DataType = TEXT if isinstance(value, str) else t.VarBinary()
    assert truncate(ColumnStats(value, value, 0), kind, StatsMode("truncate", length)).max == expected


def test_a_maximum_that_cannot_be_raised_takes_the_minimum_along() -> None:
    stats = ColumnStats("a", "\U0010ffff" * 3, 1)
    assert truncate(stats, TEXT, parse_stats_mode("truncate(2)")) == ColumnStats(None, None, 1)


@given(
    st.lists(st.text(max_size=6) | st.text("a\ud7ff\ue000\U0010ffff", max_size=6), min_size=1, max_size=5),
    st.integers(1, 4),
)
@settings(max_examples=100, deadline=None)
def test_cut_bounds_enclose_every_text(values: list[str], length: int) -> None:
    stats = truncate(column_stats(pa.array(values, pa.string()), TEXT), TEXT, StatsMode("truncate", length))
    if isinstance(stats.min, str) and isinstance(stats.max, str):
        assert max(len(stats.min), len(stats.max)) <= length
        assert all(stats.min.encode() <= v.encode() <= stats.max.encode() for v in values)


@given(st.lists(st.binary(max_size=6), min_size=1, max_size=5), st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_cut_bounds_enclose_every_binary(values: list[bytes], length: int) -> None:
    stats = truncate(
        column_stats(pa.array(values, pa.binary()), t.VarBinary()), t.VarBinary(), StatsMode("truncate", length)
    )
    if isinstance(stats.min, bytes) and isinstance(stats.max, bytes):
        assert all(stats.min <= v <= stats.max for v in values)


def test_a_mode_keeps_what_it_names() -> None:
    stats = ColumnStats("abcdef", "uvwxyz", 4)
    assert truncate(stats, TEXT, NONE) == UNKNOWN
    assert truncate(stats, TEXT, COUNTS) == ColumnStats(None, None, 4)
    assert truncate(stats, TEXT, FULL) == stats
    assert truncate(stats, TEXT, StatsMode("truncate", 3)) == ColumnStats("abc", "uvx", 4)
    assert truncate(ColumnStats(123456, 234567, 0), t.Int(), StatsMode("truncate", 3)) == ColumnStats(123456, 234567, 0)


@pytest.mark.parametrize("text", ["none", "counts", "full", "truncate(16)"])
def test_a_stats_mode_reads_back_as_its_text(text: str) -> None:
    assert str(parse_stats_mode(f" {text.upper()} ")) == text


@pytest.mark.parametrize("text", ["", "truncate", "truncate(0)", "truncate(-1)", "most"])
def test_an_unknown_stats_mode_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="stats mode"):
        parse_stats_mode(text)


def test_statistics_have_the_bytes_of_the_reference() -> None:
    """Columns id, s, d and b of the golden table `append_stats_truncate_java`, mode truncate(3)."""
    kinds = [t.BigInt(), TEXT, t.Double(), t.VarBinary()]
    stored = SimpleStats(
        bytes.fromhex("00000004000000000000000000000000000000002d7461000000008380c5c1c591b28c3f28161d0000000083"),
        bytes.fromhex("00000004000000000000000007000000000000006b69780000000083b9489fdbde85e93fedf2190000000083"),
        (0, 3, 0, 0),
    )
    decoded = decode_stats(stored, kinds)
    assert decoded[0] == ColumnStats(0, 7, 0)
    assert decoded[1] == ColumnStats("-ta", "kix", 3)
    assert encode_stats(decoded, kinds) == stored


def test_absent_statistics_are_unknown() -> None:
    assert decode_stats(NO_STATS, [t.Int(), TEXT]) == (UNKNOWN, UNKNOWN)
    assert decode_stats(SimpleStats(EMPTY_ROW, EMPTY_ROW, None), [t.Int()]) == (UNKNOWN,)
    assert encode_stats([], []) == NO_STATS


def test_bounds_of_not_null_columns_may_be_null() -> None:
    kinds = [t.Int(nullable=False), t.Decimal(20, 0, nullable=False)]
    stats = (ColumnStats(None, None, 0), ColumnStats(None, None, None))
    assert decode_stats(encode_stats(stats, kinds), kinds) == stats


def test_half_a_pair_of_bounds_and_nan_bounds_are_dropped() -> None:
    kinds = [t.Int(), t.Double()]
    stats = SimpleStats(serialize((1, 0.5), kinds), serialize((None, math.nan), kinds), (0, 0))
    assert decode_stats(stats, kinds) == (ColumnStats(None, None, 0), ColumnStats(None, None, 0))


def test_null_counts_of_another_number_are_damage() -> None:
    kinds = [t.Int(), t.Int()]
    with pytest.raises(FormatError, match="3 null counts for 2"):
        decode_stats(SimpleStats(serialize((1, 2), kinds), serialize((1, 2), kinds), (0, 0, 0)), kinds)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary()])
def test_text_that_is_not_utf8_is_refused(kind: pa.DataType) -> None:
    raw = pa.array([b"a", b"\xff\xfe"], pa.large_binary() if kind == pa.large_string() else pa.binary())
    column = raw.view(kind)
    with pytest.raises(InvalidInputError, match="not UTF-8"):
        column_stats(column, t.VarChar())


def test_bounds_of_bytes_may_be_of_a_text_array_that_is_not_utf8() -> None:
    column = pa.array([b"\xff", b"\xfe"], pa.binary()).view(pa.string())
    assert column_stats(column, t.VarBinary()).max == b"\xff"

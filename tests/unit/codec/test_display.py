"""Values as people see them: each type has a text, whole and cut."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

from merganser.codec.display import display_texts, on_one_line, short_texts


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        ([1, None], pa.int64(), ["1", None]),
        ([0.5, float("nan"), float("-inf"), 1e300], pa.float64(), ["0.5", "NaN", "-Infinity", "1e+300"]),
        ([0.1], pa.float32(), ["0.1"]),
        ([True, False], pa.bool_(), ["true", "false"]),
        ([Decimal("1.10"), Decimal("-0.00000001")], pa.decimal128(20, 8), ["1.10000000", "-0.00000001"]),
        ([dt.date(2026, 1, 2)], pa.date32(), ["2026-01-02"]),
        ([dt.time(1, 2, 3, 400_000)], pa.time64("us"), ["01:02:03.4"]),
        ([1_000_000_001], pa.timestamp("ns"), ["1970-01-01 00:00:01.000000001"]),
        ([1_000], pa.timestamp("ms", "UTC"), ["1970-01-01 00:00:01Z"]),
        ([[1, None], [], None], pa.list_(pa.int32()), ["[1,null]", "[]", None]),
        ([[("a", b"\0")]], pa.map_(pa.string(), pa.binary()), ['{"a":"x\'00\'"}']),
        ([{"a": 'x"'}], pa.struct([("a", pa.string())]), ['{"a":"x\\""}']),
        ([b"\0\xff", None], pa.binary(), ["x'00ff'", None]),
        ([b"ab"], pa.binary(2), ["x'6162'"]),
        (["null", "", None], pa.string(), ["null", "", None]),
        (['"quoted"'], pa.large_string(), ['"quoted"']),
        ([dt.timedelta(seconds=1)], pa.duration("us"), ["0:00:01"]),
        ([None, None], pa.null(), [None, None]),
        (["a", None], pa.dictionary(pa.int8(), pa.string()), ["a", None]),
    ],
    ids=str,
)
def test_values_of_each_type_become_texts(values: list[object], kind: pa.DataType, expected: list[str | None]) -> None:
    assert display_texts(pa.chunked_array([pa.array(values, kind)])).to_pylist() == expected


def test_times_that_python_does_not_have_are_shown() -> None:
    far = pa.chunked_array([pa.array([300_000_000_000_000_000], pa.timestamp("us"))])
    assert display_texts(far).to_pylist() == ["11476-08-15 05:20:00"]


@pytest.mark.parametrize(
    ("values", "kind", "text", "note"),
    [
        (["x" * 60], pa.string(), "x" * 60, ""),
        (["x" * 61], pa.string(), "x" * 60, "61 characters"),
        ([b"\1" * 20], pa.binary(), f"x'{'01' * 20}'", ""),
        ([b"\1" * 21], pa.binary(21), f"x'{'01' * 20}'", "21 bytes"),
        ([[1] * 1000], pa.list_(pa.int8()), ("[" + "1," * 30)[:60], "2,001 characters"),
        ([None], pa.large_binary(), None, ""),
    ],
)
def test_a_long_value_is_cut_and_says_how_long_it_is(
    values: list[object], kind: pa.DataType, text: str | None, note: str
) -> None:
    assert short_texts(pa.array(values, kind), 60) == ([text], [note])


def test_characters_that_cannot_be_seen_are_escaped() -> None:
    assert on_one_line("a\nb\u202ec\td é") == r"a\nb\u202ec\td é"
    assert on_one_line("a\nb\0", kept="\n") == "a\nb\\x00"

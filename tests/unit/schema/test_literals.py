"""Texts of defaults and their values."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest

from merganser.errors import InvalidInputError
from merganser.schema import types as t
from merganser.schema.arrow import arrow_type
from merganser.schema.literals import default_value
from merganser.schema.types_text import parse_type


def default_of(text, default):
    return default_value(t.Field(0, "x", parse_type(text), None, default))


@pytest.mark.parametrize(
    ("text", "default", "value"),
    [
        ("BOOLEAN", "true", True),
        ("TINYINT", " 7 ", 7),
        ("DOUBLE", "1.5", 1.5),
        ("DECIMAL(5, 2)", "1.5", Decimal("1.50")),
        ("STRING", " a, b ", " a, b "),
        ("STRING", "", ""),
        ("BYTES", "ab", b"ab"),
        ("DATE", "2024-01-02", dt.date(2024, 1, 2)),
        ("TIME(3)", "12:30:01.5", dt.time(12, 30, 1, 500000)),
        ("TIME", "12:30", dt.time(12, 30)),
        ("TIME(3)", "12:30:01.500000", dt.time(12, 30, 1, 500000)),
        ("TIMESTAMP(3)", "2024-01-02 03:04:10.250000", dt.datetime(2024, 1, 2, 3, 4, 10, 250000)),
        ("TIMESTAMP(0)", "2024-01-02 03:04:10.000", dt.datetime(2024, 1, 2, 3, 4, 10)),
        (
            "TIMESTAMP_LTZ(3)",
            "2024-01-02 03:04:05.250000+02:00",
            dt.datetime(2024, 1, 2, 1, 4, 5, 250000, tzinfo=dt.UTC),
        ),
        ("TIMESTAMP(3)", "2024-01-02T03:04:05", dt.datetime(2024, 1, 2, 3, 4, 5)),
        ("TIMESTAMP_LTZ(3)", "2024-01-02 03:04:05", dt.datetime(2024, 1, 2, 3, 4, 5, tzinfo=dt.UTC)),
        ("TIMESTAMP_LTZ(3)", "2024-01-02 03:04:05+02:00", dt.datetime(2024, 1, 2, 1, 4, 5, tzinfo=dt.UTC)),
        ("ARRAY<INT>", "[1, 2, null]", [1, 2, None]),
        ("ARRAY<INT>", "[]", []),
        ("MAP<STRING, INT>", "{a -> 1, b -> 2}", [("a", 1), ("b", 2)]),
        ("ROW<a INT, b ARRAY<STRING>>", "{1, [x, y]}", {"a": 1, "b": ["x", "y"]}),
        ("ARRAY<ROW<a INT NOT NULL>>", "[{1}, {2}]", [{"a": 1}, {"a": 2}]),
    ],
)
def test_a_default_means_its_value_in_the_type_of_the_column(text, default, value):
    scalar = default_of(text, default)
    assert scalar.type == arrow_type(parse_type(text))
    assert scalar.as_py() == value


def test_nanoseconds_are_kept():
    assert default_of("TIMESTAMP(9)", "1970-01-01 00:00:00.000000001").value == 1


@pytest.mark.parametrize(
    ("text", "default"),
    [
        ("INT", "x"),
        ("INT", "1.5"),
        ("TINYINT", "300"),
        ("VARCHAR(2)", "abc"),
        ("DECIMAL(5, 2)", "1.555"),
        ("DATE", "2024-13-01"),
        ("TIME", "25:00"),
        ("TIME(3)", "12:30:01.0001"),
        ("ARRAY<INT>", "1, 2"),
        ("ARRAY<INT NOT NULL>", "[null]"),
        ("ARRAY<VARCHAR(2)>", "[abc]"),
        ("MAP<STRING, INT>", "{a: 1}"),
        ("ROW<a INT, b INT>", "{1}"),
        ("MULTISET<INT>", "{1 -> 1}"),
    ],
)
def test_a_text_that_is_no_literal_is_refused_with_column_text_and_type(text, default):
    with pytest.raises(InvalidInputError) as caught:
        default_of(text, default)
    assert f"cannot use '{default}' as the default of column 'x'" in str(caught.value)

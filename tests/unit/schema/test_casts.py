"""Values of one type as values of another: equal to what the reference's reader returns."""

from __future__ import annotations

import json
import struct
from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from merganser.schema import types as t
from merganser.schema.arrow import arrow_type
from merganser.schema.casts import CastError, can_read_as, cast_array, cast_exactly
from merganser.schema.same import same_values
from merganser.schema.types_text import parse_type
from tests.interop.values import rows_of

VECTORS = json.loads((Path(__file__).parents[2] / "golden" / "tables" / "cast_vectors.json").read_text())["vectors"]
REFUSED = [vector for vector in VECTORS if vector.get("alter") == "refused"]
READ = [vector for vector in VECTORS if vector not in REFUSED]

STRING = t.string()
INTEGERS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}
ATOMIC = (
    "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(10, 2)", "CHAR(3)", "VARCHAR(3)",
    "STRING", "BINARY(3)", "VARBINARY(3)", "BYTES", "DATE", "TIME(3)", "TIMESTAMP(3)", "TIMESTAMP(9)",
    "TIMESTAMP(6) WITH LOCAL TIME ZONE",
)  # fmt: skip


def stored(value, text):
    """An array of one value in the encoding of the golden tables."""
    kind = arrow_type(parse_type(text))
    match value:
        case str() if pa.types.is_binary(kind):
            return pa.array([bytes.fromhex(value)], kind)
        case str() if pa.types.is_decimal(kind):
            return pa.array([Decimal(value)], kind)
        case str() if pa.types.is_time(kind):
            return pa.array(["1970-01-01T" + value]).cast(pa.timestamp("ms")).cast(kind)
        case str() if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
            wall_clock = pa.timestamp(kind.unit) if pa.types.is_timestamp(kind) else kind
            return pa.array([value]).cast(wall_clock).view(kind)
    return pa.array([value], kind)


def cast(array, source, target):
    """The result of a cast, checked to be sound."""
    source, target = (parse_type(text) if isinstance(text, str) else text for text in (source, target))
    assert can_read_as(source, target)
    out = cast_array(array, source, target)
    out.validate(full=True)
    assert out.type == arrow_type(target)
    assert len(out) == len(array)
    return out


def text_as(text, target):
    """The one text as a value of a type."""
    return cast(pa.array([text]), STRING, target)[0].as_py()


def as_text(value, text):
    """The one value as text."""
    array = value if isinstance(value, pa.Array) else pa.array([value], arrow_type(parse_type(text)))
    return cast(array, text, STRING).to_pylist()[0]


def fails(text, target):
    with pytest.raises(CastError) as caught:
        text_as(text, target)
    return caught.value


# ── the reference ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("vector", READ, ids=lambda v: f"{v['value']} {v['from']} to {v['to']}")
def test_a_cast_gives_what_the_reference_gives(vector):
    array = stored(vector["value"], vector["from"])
    if vector["result"] == {"error": True}:
        with pytest.raises(CastError) as caught:
            cast(array, vector["from"], vector["to"])
        assert caught.value.value == vector["value"]
        assert caught.value.count == 1
    else:
        out = cast(array, vector["from"], vector["to"])
        assert rows_of(pa.table({"x": out}), [("x", vector["to"])]) == [{"x": vector["result"]}]


@pytest.mark.parametrize("vector", REFUSED, ids=lambda v: f"{v['from']} to {v['to']}")
def test_a_type_change_that_the_reference_refuses_has_no_cast(vector):
    assert not can_read_as(parse_type(vector["from"]), parse_type(vector["to"]))


@pytest.mark.parametrize(
    ("source", "targets"),
    [
        ("TINYINT", "BOOLEAN SMALLINT BIGINT FLOAT DOUBLE DECIMAL(3,1) CHAR(1) VARCHAR(2) STRING"),
        ("INT", "BOOLEAN TINYINT DECIMAL(3,1) STRING TIMESTAMP(3) TIMESTAMP_LTZ(9)"),
        ("DOUBLE", "TINYINT FLOAT DECIMAL(3,1) CHAR(1)"),
        ("DECIMAL(10,2)", "TINYINT BIGINT FLOAT DECIMAL(3,1) STRING"),
        ("BOOLEAN", "TINYINT DOUBLE DECIMAL(3,1) STRING"),
        ("STRING", "BOOLEAN TINYINT DOUBLE DECIMAL(3,1) CHAR(1) BINARY(2) BYTES DATE TIME(3) TIMESTAMP(9)"),
        ("BYTES", "BINARY(2) CHAR(2) STRING"),
        ("DATE", "STRING TIMESTAMP(3) TIMESTAMP_LTZ(3)"),
        ("TIME(0)", "STRING TIME(3) TIMESTAMP(3)"),
        ("TIMESTAMP(6)", "STRING DATE TIME(3) INT BIGINT TIMESTAMP(3) TIMESTAMP_LTZ(9)"),
        ("ARRAY<INT>", "STRING CHAR(3)"),
        ("ROW<a INT, b MAP<INT, BYTES>>", "STRING"),
    ],
)
def test_a_cast_with_a_rule_exists(source, targets):
    for target in targets.replace(", ", ",").split():
        assert can_read_as(parse_type(source), parse_type(target)), target


@pytest.mark.parametrize(
    ("source", "targets"),
    [
        ("TINYINT", "BYTES DATE TIME(3) TIMESTAMP(3) ARRAY<TINYINT>"),
        ("DECIMAL(10,2)", "BOOLEAN TIMESTAMP(3) BYTES"),
        ("DOUBLE", "BOOLEAN TIMESTAMP(3)"),
        ("BOOLEAN", "DATE BYTES"),
        ("STRING", "ARRAY<INT> MAP<INT,INT> ROW<a INT>"),
        ("BYTES", "INT DATE BOOLEAN"),
        ("DATE", "VARCHAR(20) CHAR(10) INT TIME(3)"),
        ("TIME(3)", "TIME(0) VARCHAR(20) DATE INT"),
        ("TIMESTAMP(6)", "VARCHAR(30) SMALLINT DECIMAL(20,6) DOUBLE"),
        ("MULTISET<INT>", "STRING"),
        ("VARIANT", "STRING"),
        ("ARRAY<MULTISET<INT>>", "STRING"),
    ],
)
def test_a_cast_without_a_rule_does_not_exist(source, targets):
    for target in targets.replace("ROW<a INT>", "ROW<a/INT>").split():
        assert not can_read_as(parse_type(source), parse_type(target.replace("/", " "))), target


# ── numbers ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def wrapped(value, bits):
    return (value + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)


@given(
    st.sampled_from(list(INTEGERS)),
    st.sampled_from(list(INTEGERS)),
    st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)),
)
def test_integers_wrap(source, target, values):
    values = [None if v is None else wrapped(v, INTEGERS[source]) for v in values]
    out = cast(pa.array(values, arrow_type(parse_type(source))), source, target)
    assert out.to_pylist() == [None if v is None else wrapped(v, INTEGERS[target]) for v in values]


@given(st.sampled_from(list(INTEGERS)), st.sampled_from([32, 64]), st.lists(st.none() | st.floats()))
def test_floats_to_integers_lose_the_fraction_and_stop_at_the_bounds(target, width, values):
    source = "FLOAT" if width == 32 else "DOUBLE"
    array = pa.array(values, pa.float64()).cast(arrow_type(parse_type(source)), safe=False)
    held = 64 if target == "BIGINT" else 32

    def expected(value):
        if value is None or value != value:
            return None if value is None else 0
        bounded = max(-(2 ** (held - 1)), min(2 ** (held - 1) - 1, int(max(-1e30, min(1e30, value)))))
        return wrapped(bounded, INTEGERS[target])

    assert cast(array, source, target).to_pylist() == [expected(v) for v in array.to_pylist()]


@st.composite
def decimals(draw):
    precision = draw(st.integers(1, 38))
    scale = draw(st.integers(0, precision))
    digits = draw(st.lists(st.none() | st.integers(-(10**precision) + 1, 10**precision - 1), max_size=5))
    kind = t.Decimal(precision, scale)
    values = [None if d is None else Decimal(d).scaleb(-scale, Context(prec=60)) for d in digits]
    return kind, values


def rounded(value, kind):
    """A value at the precision and scale of a decimal type, half up; None if it has too many digits."""
    step = Decimal((0, (1,), -kind.scale))
    out = value.quantize(step, context=Context(prec=200, rounding=ROUND_HALF_UP))
    return out if not out or out.adjusted() < kind.precision - kind.scale else None


@given(decimals(), decimals())
def test_decimals_round_half_up_and_are_null_on_overflow(source, target):
    (kind, values), (wanted, _) = source, target
    out = cast(pa.array(values, arrow_type(kind)), kind, wanted)
    assert out.to_pylist() == [None if v is None else rounded(v, wanted) for v in values]


@given(st.sampled_from(list(INTEGERS)), decimals(), st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=5))
def test_integers_become_decimals_or_null(source, target, values):
    values = [None if v is None else wrapped(v, INTEGERS[source]) for v in values]
    out = cast(pa.array(values, arrow_type(parse_type(source))), source, target[0])
    assert out.to_pylist() == [None if v is None else rounded(Decimal(v), target[0]) for v in values]


@given(st.lists(st.none() | st.floats(allow_nan=False, allow_infinity=False), max_size=5), decimals())
def test_doubles_become_decimals_by_their_shortest_text(values, target):
    out = cast(pa.array(values, pa.float64()), "DOUBLE", target[0])
    assert out.to_pylist() == [
        None if v is None or abs(v) > 1e39 else rounded(Decimal(repr(v)), target[0]) for v in values
    ]


def test_a_double_without_digits_is_no_decimal():
    for value in (float("nan"), float("inf")):
        with pytest.raises(CastError, match=str(value)):
            cast(pa.array([None, value]), "DOUBLE", "DECIMAL(10, 2)")


@given(decimals(), st.sampled_from(list(INTEGERS)))
def test_decimals_to_integers_lose_the_fraction_and_wrap(source, target):
    kind, values = source
    out = cast(pa.array(values, arrow_type(kind)), kind, target)
    assert out.to_pylist() == [None if v is None else wrapped(int(v), INTEGERS[target]) for v in values]


@given(decimals())
def test_a_decimal_becomes_the_double_that_java_divides_or_reads(source):
    kind, values = source
    out = cast(pa.array(values, arrow_type(kind)), kind, "DOUBLE")

    def expected(value):
        return float(value) if kind.precision > 18 else float(int(value.scaleb(kind.scale))) / 10.0**kind.scale

    assert out.to_pylist() == [None if v is None else expected(v) for v in values]


def test_a_double_too_large_for_a_float_is_infinite():
    out = cast(pa.array([1e300, -1e300, 1.1]), "DOUBLE", "FLOAT").to_pylist()
    assert out == [float("inf"), float("-inf"), struct.unpack("f", struct.pack("f", 1.1))[0]]


def test_a_boolean_counts_as_one_or_zero():
    assert cast(pa.array([True, False, None]), "BOOLEAN", "DECIMAL(3, 1)").to_pylist() == [
        Decimal("1.0"),
        Decimal("0.0"),
        None,
    ]
    assert cast(pa.array([True, False, None]), "BOOLEAN", "DECIMAL(1, 1)").to_pylist() == [None, Decimal("0.0"), None]
    assert cast(pa.array([-1, 0, None], pa.int64()), "BIGINT", "BOOLEAN").to_pylist() == [True, False, None]


# ── dates, times, instants ────────────────────────────────────────────────────────────────────────────────────────────


def ticks(values, text):
    kind = arrow_type(parse_type(text))
    return pa.array(values, pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)


def numbers(array):
    return array.view(pa.int32() if array.type.bit_width == 32 else pa.int64()).to_pylist()


@pytest.mark.parametrize(
    ("source", "target", "value", "result"),
    [
        ("TIMESTAMP(6)", "TIMESTAMP(3)", -1, -1),
        ("TIMESTAMP(6)", "TIMESTAMP(5)", -1, -10),
        ("TIMESTAMP(9)", "TIMESTAMP(6)", -1, -1),
        ("TIMESTAMP(9)", "TIMESTAMP(7)", 199, 100),
        ("TIMESTAMP(3)", "TIMESTAMP(1)", 1_999, 1_900),
        ("TIMESTAMP(3)", "TIMESTAMP(0)", -500, 0),
        ("TIMESTAMP(6)", "TIMESTAMP(0)", -1_500_001, -1_000),
        ("TIMESTAMP(3)", "TIMESTAMP(9)", 5, 5_000_000),
        ("TIMESTAMP(3)", "TIMESTAMP_LTZ(6)", 5, 5_000),
        ("TIMESTAMP_LTZ(6)", "TIMESTAMP(3)", -1, -1),
        ("TIMESTAMP(3)", "BIGINT", -500, 0),
        ("TIMESTAMP(6)", "BIGINT", -1_000_001, -1),
        ("TIMESTAMP(3)", "INT", 4_294_967_296_000, 0),
        ("BIGINT", "TIMESTAMP(6)", -1, -1_000_000),
        ("INT", "TIMESTAMP_LTZ(9)", 1, 1_000_000_000),
        ("TIMESTAMP(6)", "DATE", -1, -1),
        ("TIMESTAMP(6)", "TIME(0)", -1, 86_399_999),
        ("TIMESTAMP_LTZ(3)", "TIME(3)", 86_400_001, 1),
        ("DATE", "TIMESTAMP_LTZ(9)", 1, 86_400_000_000_000),
        ("TIME(3)", "TIMESTAMP(6)", 1_001, 1_001_000),
        ("TIME(0)", "TIME(3)", 7, 7),
    ],
)
def test_an_instant_is_cut_as_the_reference_cuts_it(source, target, value, result):
    out = cast(ticks([value, None], source), source, target)
    assert numbers(out) == [result, None]


@pytest.mark.parametrize(
    ("source", "target", "value"),
    [
        ("DATE", "TIMESTAMP(9)", 2_000_000),
        ("TIMESTAMP(6)", "TIMESTAMP(9)", 2**60),
        ("BIGINT", "TIMESTAMP(3)", 2**62),
        ("BIGINT", "TIMESTAMP(9)", -(10**10)),
    ],
)
def test_an_instant_without_room_in_its_unit_fails(source, target, value):
    with pytest.raises(CastError) as caught:
        cast(ticks([0, value, None, value], source), source, target)
    assert caught.value.count == 2


# ── into text ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"), (-0.0, "-0.0"), (1e-3, "0.001"), (9.999e-4, "9.999E-4"), (9999999.999, "9999999.999"),
        (1e7, "1.0E7"), (123456789.0, "1.23456789E8"), (-1e-5, "-1.0E-5"), (1e16, "1.0E16"), (1e23, "1.0E23"),
        (1.7976931348623157e308, "1.7976931348623157E308"), (4.9e-324, "4.9E-324"), (1e-323, "9.9E-324"),
        (2e-323, "2.0E-323"), (float("nan"), "NaN"), (float("inf"), "Infinity"), (float("-inf"), "-Infinity"),
    ],
)  # fmt: skip
def test_a_double_is_written_as_java_writes_it(value, text):
    assert as_text(value, "DOUBLE") == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.4e-45, "1.4E-45"), (3e-45, "2.8E-45"), (2e-44, "2.0E-44"), (0.001, "0.001"), (1e10, "1.0E10"),
     (33554432.0, "3.3554432E7"), (3.4028235e38, "3.4028235E38"), (0.1, "0.1")],
)  # fmt: skip
def test_a_float_is_written_as_java_writes_it(value, text):
    assert as_text(value, "FLOAT") == text


@given(st.lists(st.none() | st.floats(), max_size=20), st.sampled_from(["FLOAT", "DOUBLE"]))
def test_the_text_of_a_float_reads_back_as_the_float(values, source):
    array = pa.array(values, pa.float64()).cast(arrow_type(parse_type(source)), safe=False)
    again = cast(cast(array, source, STRING), STRING, source)
    assert str(again.to_pylist()) == str(array.to_pylist())


@given(decimals())
def test_a_decimal_is_written_without_exponent(source):
    kind, values = source
    array = pa.array([None, *values, None], arrow_type(kind))
    out = cast(array.slice(1), kind, STRING)  # a slice: its buffers begin elsewhere
    assert out.to_pylist() == [*(None if v is None else f"{v:f}" for v in values), None]


@pytest.mark.parametrize(
    ("precision", "millis", "text"),
    [(0, 3_723_001, "01:02:03"), (1, 50, "00:00:00.0"), (1, 123, "00:00:00.1"), (2, 105, "00:00:00.10"),
     (3, 0, "00:00:00.0"), (3, 120, "00:00:00.12"), (3, 5, "00:00:00.005"), (6, 500, "00:00:00.5")],
)  # fmt: skip
def test_a_time_is_written_with_a_fraction_unless_its_precision_is_0(precision, millis, text):
    assert as_text(ticks([millis], f"TIME({precision})"), f"TIME({precision})") == text


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("TIMESTAMP(0)", 1_000, "1970-01-01 00:00:01"),
        ("TIMESTAMP(1)", 1_000, "1970-01-01 00:00:01.0"),
        ("TIMESTAMP(4)", 100, "1970-01-01 00:00:00.0001"),
        ("TIMESTAMP(6)", -1, "1969-12-31 23:59:59.999999"),
        ("TIMESTAMP(9)", 1, "1970-01-01 00:00:00.000000001"),
        ("TIMESTAMP_LTZ(3)", 1, "1970-01-01 00:00:00.001"),
        ("TIMESTAMP(3)", 253_402_300_800_000, "10000-01-01 00:00:00.000"),
        ("DATE", -719_528, "0000-01-01"),
        ("DATE", 2_932_897, "10000-01-01"),
    ],
)
def test_an_instant_is_written_with_the_digits_of_its_precision(kind, value, text):
    assert as_text(ticks([value], kind), kind) == text
    assert as_text(ticks([None, value], kind).slice(1), kind) == text


def test_text_is_fitted_to_the_new_length_by_characters():
    words = pa.array(["héllo wörld", "你好", None, ""])
    assert cast(words, STRING, "VARCHAR(2)").to_pylist() == ["hé", "你好", None, ""]
    assert cast(words, STRING, "CHAR(3)").to_pylist() == ["hél", "你好 ", None, "   "]
    assert cast(pa.array([12345, 1]), "BIGINT", "CHAR(3)").to_pylist() == ["123", "1  "]
    assert cast(pa.array([True, None]), "BOOLEAN", "VARCHAR(2)").to_pylist() == ["tr", None]


def test_bytes_are_fitted_among_bytes_and_kept_whole_as_text():
    held = pa.array([b"abc", b"", None])
    assert cast(held, "BYTES", "BINARY(2)").to_pylist() == [b"ab", b"\0\0", None]
    assert cast(held, "BYTES", "VARBINARY(2)").to_pylist() == [b"ab", b"", None]
    assert cast(held, "BYTES", "VARCHAR(2)").to_pylist() == ["abc", "", None]
    assert cast(pa.array(["é"]), STRING, "BINARY(1)").to_pylist() == ["é".encode()[:1]]


def test_bytes_that_are_not_utf8_are_no_text():
    with pytest.raises(CastError) as caught:
        cast(pa.array([b"ok", None, b"\xff\x01"]), "BYTES", STRING)
    assert (caught.value.value, caught.value.count) == ("0xff01", 1)


def test_containers_are_written_with_what_they_hold():
    lists = pa.array([[1.0, None], [], None, [1e20]])
    assert cast(lists, "ARRAY<DOUBLE>", STRING).to_pylist() == ["[1.0, null]", "[]", None, "[1.0E20]"]
    assert cast(lists.slice(1), "ARRAY<DOUBLE>", STRING).to_pylist() == ["[]", None, "[1.0E20]"]
    maps = pa.array([[("a", True), ("b", None)], None, []], arrow_type(parse_type("MAP<STRING, BOOLEAN>")))
    assert cast(maps, "MAP<STRING, BOOLEAN>", "VARCHAR(3)").to_pylist() == ["{a -> true, b -> null}", None, "{}"]
    kind = parse_type("ROW<x DECIMAL(3, 2), y ARRAY<DATE>>")
    rows = pa.array([{"x": Decimal("0.05"), "y": []}, None, {"x": None, "y": None}], arrow_type(kind))
    assert cast(rows, kind, STRING).to_pylist() == ["{0.05, []}", None, "{null, null}"]


# ── out of text ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "target", "value"),
    [
        ("+7", "INT", 7), ("-0", "INT", 0), (".", "INT", 0), ("-.5", "INT", 0), ("5.", "INT", 5),
        ("000000000000000000000000012", "TINYINT", 12), ("-128", "TINYINT", -128),
        ("-9223372036854775808", "BIGINT", -(2**63)), ("9223372036854775807.9", "BIGINT", 2**63 - 1),
        (" 1.5e3\t", "DOUBLE", 1500.0), ("1d", "DOUBLE", 1.0), ("-Infinity", "DOUBLE", float("-inf")),
        ("1e400", "DOUBLE", float("inf")), (".5f", "FLOAT", 0.5),
        ("1e3", "DECIMAL(4, 0)", Decimal(1000)), ("1e-999999999", "DECIMAL(4, 2)", Decimal("0.00")),
        ("-1.005", "DECIMAL(4, 2)", Decimal("-1.01")), ("-1.00499", "DECIMAL(4, 2)", Decimal("-1.00")),
        ("99.995", "DECIMAL(4, 2)", None), ("9999e-2", "DECIMAL(4, 2)", Decimal("99.99")),
        ("5.", "DECIMAL(4, 2)", Decimal(5)),
        ("0" * 50 + "1.5", "DECIMAL(2, 1)", Decimal("1.5")), ("1" * 60, "DECIMAL(38, 0)", None),
        ("1e999999999", "DECIMAL(38, 0)", None), ("0." + "9" * 60, "DECIMAL(38, 37)", Decimal("1." + "0" * 37)),
        ("9.99995e1", "DECIMAL(4, 2)", None), ("4.9999999e-3", "DECIMAL(4, 2)", Decimal("0.00")),
        ("5e-3", "DECIMAL(4, 2)", Decimal("0.01")),
        ("YES", "BOOLEAN", True), ("f", "BOOLEAN", False),
    ],
)  # fmt: skip
def test_text_is_read_as_a_number(text, target, value):
    assert text_as(text, target) == value


@pytest.mark.parametrize(
    ("text", "targets"),
    [
        ("", "INT DOUBLE DECIMAL(3,1) BOOLEAN DATE TIME(3) TIMESTAMP(3)"),
        ("-", "INT DOUBLE DECIMAL(3,1)"),
        ("1e3", "INT BIGINT DATE"),
        ("128", "TINYINT"),
        ("2147483648", "INT DATE TIME(3)"),
        ("9223372036854775808", "BIGINT TIMESTAMP(3)"),
        ("99999999999999999999999", "BIGINT"),
        ("1_0", "INT DOUBLE DECIMAL(3,1)"),
        ("nan", "DOUBLE DECIMAL(3,1)"),
        ("0x1p3", "DOUBLE"),
        (" 1", "DECIMAL(3,1) BIGINT"),
        (" true", "BOOLEAN"),
        ("2023-02-29", "DATE"),
        ("2024-13-01", "DATE TIMESTAMP(3)"),
        ("10000-01-01", "DATE TIMESTAMP(3)"),
        (" 2024-01-01 10:00:00", "DATE TIMESTAMP(3)"),
        ("24:00", "TIME(3)"),
        ("2024-01-01 03:04", "TIMESTAMP(3)"),
        ("2024-01-01 24:00:01", "TIMESTAMP(3)"),
        ("2024-01-01 00:60:00", "TIMESTAMP(3)"),
        ("2024-01-01 00:00:00.1234567890", "TIMESTAMP(9)"),
        ("2024-01-01 00:00:00Z", "TIMESTAMP(3) TIMESTAMP_LTZ(3)"),
        ("0000-01-01", "TIMESTAMP(3)"),
        ("1704067200000", "TIMESTAMP(4) TIMESTAMP_LTZ(3)"),
        ("2300-01-01", "TIMESTAMP(9)"),
    ],
)
def test_text_that_is_no_value_fails_by_name(text, targets):
    for target in targets.split():
        error = fails(text, target)
        assert error.value == text, target


@pytest.mark.parametrize(
    ("text", "target", "value"),
    [
        ("2024-2-9", "DATE", "2024-02-09"), ("2024-2", "DATE", "2024-02-01"), (" 2024", "DATE", "2024-01-01"),
        ("2024-02-29 garbage", "DATE", "2024-02-29"), (" 2024 - 2 - 9 ", "DATE", "2024-02-09"),
        ("2024 -02-09", "DATE", "2024-01-01"),
        ("19782", "DATE", "2024-02-29"), ("-1", "DATE", "1969-12-31"),
        ("1:2:3", "TIME(3)", "01:02:03.000"), ("7", "TIME(3)", "00:00:00.007"), (" 7 ", "TIME(3)", "07:00:00.000"),
        ("12:30", "TIME(3)", "12:30:00.000"), ("00:00:59.9995", "TIME(3)", "00:01:00.000"),
        ("12:30:15.1234+01:30", "TIME(3)", "14:00:15.123"), ("12:30-01", "TIME(3)", "11:30:00.000"),
        ("2023-02-31", "TIMESTAMP(3)", "2023-02-28T00:00:00.000000000"),
        ("2024-1-2T3:4", "TIMESTAMP(0)", "2024-01-02T03:04:00.000000000"),
        ("2024-01-02T03:04:05.678", "TIMESTAMP(1)", "2024-01-02T03:04:05.600000000"),
        ("2024-01-02 24:00:00", "TIMESTAMP(3)", "2024-01-03T00:00:00.000000000"),
        ("2024-01-02 03:04:05.", "TIMESTAMP(3)", "2024-01-02T03:04:05.000000000"),
        ("1969-12-31 23:59:59.999999999", "TIMESTAMP(9)", "1969-12-31T23:59:59.999999999"),
        ("+12024-01-01", "TIMESTAMP(3)", "12024-01-01T00:00:00.000000000"),
        ("2024-01-02 03:04:05", "TIMESTAMP_LTZ(3)", "2024-01-02T03:04:05.000000000Z"),
        ("1704067200", "TIMESTAMP(0)", "2024-01-01T00:00:00.000000000"),
        ("1704067200000", "TIMESTAMP(3)", "2024-01-01T00:00:00.000000000"),
        ("-1", "TIMESTAMP(6)", "1969-12-31T23:59:59.999999000"),
    ],
)  # fmt: skip
def test_text_is_read_as_an_instant(text, target, value):
    out = cast(pa.array([text, None]), STRING, target)
    plain = target.replace("TIMESTAMP_LTZ(3)", "TIMESTAMP(3) WITH LOCAL TIME ZONE")
    assert rows_of(pa.table({"x": out}), [("x", plain)]) == [{"x": value}, {"x": None}]


@given(st.datetimes())
def test_the_text_of_an_instant_reads_back_as_the_instant(value):
    instant = pa.array([value, None], pa.timestamp("us"))
    for kind in ("TIMESTAMP(6)", "TIMESTAMP(3)", "DATE", "TIME(3)"):
        array = instant if kind == "TIMESTAMP(6)" else cast(instant, "TIMESTAMP(6)", kind)
        assert cast(cast(array, kind, STRING), STRING, kind).equals(array)


def test_kinds_of_text_may_mix_and_keep_their_order():
    days = pa.array(["2024-01-01", "0", None, "2024-01-02", "1"])
    assert [str(d) for d in cast(days, STRING, "DATE").to_pylist()] == [
        "2024-01-01", "1970-01-01", "None", "2024-01-02", "1970-01-02",
    ]  # fmt: skip
    numbers = pa.array(["1.5", "15e-1", None, "-15E-1"])
    assert cast(numbers, STRING, "DECIMAL(3, 1)").to_pylist() == [Decimal("1.5"), Decimal("1.5"), None, Decimal("-1.5")]


def test_an_error_names_the_first_wrong_value_and_counts_them():
    with pytest.raises(CastError) as caught:
        cast(pa.array(["1", None, "x", "y", "2"]), STRING, "INT")
    assert (caught.value.value, caught.value.count) == ("x", 2)


@pytest.mark.parametrize("source", ATOMIC)
def test_nulls_and_empty_columns_pass_every_cast(source):
    kind = parse_type(source)
    for target in map(parse_type, ATOMIC):
        if can_read_as(kind, target):
            assert cast(pa.nulls(3, arrow_type(kind)), kind, target).null_count == 3
            assert len(cast(pa.nulls(0, arrow_type(kind)), kind, target)) == 0


def test_a_slice_is_cast_as_it_stands():
    array = pa.array(np.arange(20), pa.int64(), mask=np.arange(20) % 3 == 0)
    for target in ("TINYINT", "DECIMAL(5, 2)", "STRING", "TIMESTAMP(3)", "DOUBLE", "BOOLEAN"):
        assert cast(array.slice(7, 5), "BIGINT", target).equals(cast(array, "BIGINT", target).slice(7, 5))
    fives = cast(array, "BIGINT", "DECIMAL(5, 2)")
    for target in ("INT", "DOUBLE", "STRING", "DECIMAL(4, 1)"):
        assert cast(fives.slice(7, 5), "DECIMAL(5, 2)", target).equals(cast(fives, "DECIMAL(5, 2)", target).slice(7, 5))


# ── without loss ──────────────────────────────────────────────────────────────────────────────────────────────────────


def holds(kind, value):
    """Whether a type can hold a number."""
    if kind in INTEGERS:
        limit = 2 ** (INTEGERS[kind] - 1)
        return -limit <= value < limit and value == int(value) and str(value) != "-0.0"
    if isinstance(value, float) and not np.isfinite(value):
        return True
    try:
        held = struct.unpack("<f", struct.pack("<f", value))[0] if kind == "FLOAT" else float(value)
    except OverflowError:
        return False
    return Fraction(held) == Fraction(value)


EDGES = [sign * (2**power + more) for power in (0, 7, 15, 24, 31, 53, 63) for more in (-1, 0, 1) for sign in (-1, 1)]
FLOATS = [0.5, -0.0, 1e10, 1e300, 0.1, float("inf"), float("-inf"), float("nan"), *map(float, EDGES)]


@given(
    st.sampled_from([*INTEGERS, "FLOAT", "DOUBLE"]),
    st.sampled_from([*INTEGERS, "FLOAT", "DOUBLE"]),
    st.lists(st.none() | st.sampled_from([*EDGES, *FLOATS]) | st.integers(-(2**63), 2**63 - 1) | st.floats()),
)
def test_a_number_is_cast_exactly_or_refused(source, target, values):
    values = [value for value in values if value is None or holds(source, value)]
    kinds = parse_type(source), parse_type(target)
    array = pa.array([v if v is None or source in INTEGERS else float(v) for v in values], arrow_type(kinds[0]))
    misfits = [value for value in values if value is not None and not holds(target, value)]
    if misfits:
        with pytest.raises(CastError) as caught:
            cast_exactly(array, *kinds)
        assert caught.value.count <= len(misfits)
    else:
        assert [str(float(v)) if v is not None else v for v in cast_exactly(array, *kinds).to_pylist()] == [
            str(float(v)) if v is not None else v for v in values
        ]


@pytest.mark.parametrize("vector", READ, ids=lambda v: f"{v['value']} {v['from']} to {v['to']}")
def test_a_value_that_is_cast_exactly_comes_back(vector):
    source, target = parse_type(vector["from"]), parse_type(vector["to"])
    if not can_read_as(target, source):
        return
    array = stored(vector["value"], vector["from"])
    try:
        made = cast_exactly(array, source, target)
    except CastError as error:
        assert error.count == 1
    else:
        assert made.equals(cast_array(array, source, target))
        assert same_values(cast_array(made, target, source), array).all()

"""`fitting` says of each value what `conform` says of it when it is alone."""

from __future__ import annotations

from datetime import date, datetime, time
from decimal import Decimal

import pyarrow as pa
import pytest

from merganser.errors import InvalidInputError
from merganser.schema import types as t
from merganser.schema.conform import conform
from merganser.schema.fitting import fitting

BITS = (7, 15, 31, 62)
WHOLE = [None, 0, 1, -1, *(sign * 2**bits + more for bits in BITS for sign in (1, -1) for more in (-1, 0, 1))]
WHOLE += [2**63 - 1, -(2**63), 10**9, 999, 1000, -1000, -999, 86_399_999, 86_400_000]
FLOATS = [None, 0.0, -0.0, 0.5, -1.5, 99.99, 99.999, 100.0, 999.0, 1e300, 3.5e38, 1e-300]
FLOATS += [float("nan"), float("inf"), -float("inf"), 127.0, 2.0**31 - 1]
FLOATS += [sign * 2.0**bits for bits in (7, 15, 31, 63, 64) for sign in (1, -1)]
EXACT = ["0", "1", "-1", "1.5", "99.99", "99.995", "-100", "100.01", "127", "128", "-128", "-129", "32767.5"]
EXACT += ["99999999.99", "-99999999.99", "2147483647", "2147483648", "-2147483649"]
WIDE = [*EXACT, "9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809"]
TIMES = [None, *(datetime(year, 1, 1) for year in (1, 1600, 1677, 1678, 2262, 2263, 9999))]
TIMES += [datetime(1969, 12, 31, 23, 59, 59, 999_999), datetime(2024, 5, 1, 0, 0, 0, 1000), datetime(2024, 5, 1, 1)]
TEXT = [b"", b"ok", "é".encode(), b"abc", "日本語".encode(), b"abcd", b"\xff", b"\xc3", b"\xa9", b"a\nb", None]
TEXT += [b"\xed\xa0\x80", b"\xe6\x97"]

NUMBERS = [t.TinyInt(), t.SmallInt(), t.Int(), t.BigInt(), t.Float(), t.Double()]
NUMBERS += [t.Decimal(4, 2), t.Decimal(3, 0), t.Decimal(38, 30), t.Decimal(38, 0), t.Decimal(10, 10), t.Decimal(18, 2)]


def decimals(values: list[str], precision: int, scale: int) -> pa.Array:
    kept = [Decimal(value) for value in values if len(value.partition(".")[2]) <= scale]
    kept = [value for value in kept if abs(value) < 10 ** (precision - scale)]
    return pa.array([None, *kept], pa.decimal128(precision, scale))


SOURCES = [
    pa.array([value for value in WHOLE if value is None or -(2**bits) <= value < 2**bits], kind)
    for bits, kind in ((7, pa.int8()), (15, pa.int16()), (31, pa.int32()), (63, pa.int64()))
]
SOURCES += [pa.array(FLOATS, pa.float64()), pa.array(FLOATS, pa.float32())]
SOURCES += [decimals(EXACT, 10, 2), decimals(EXACT, 4, 3), decimals(EXACT, 2, 0)]
SOURCES += [decimals(WIDE, 38, 3), decimals(WIDE, 38, 18)]

PAIRS: list[tuple[pa.Array, t.DataType]] = [(array, kind) for array in SOURCES for kind in NUMBERS]
PAIRS += [(pa.array(TIMES, pa.timestamp("us")), t.Timestamp(p)) for p in (0, 3, 6, 9)]
PAIRS += [(pa.array(TIMES, pa.timestamp("us", "UTC")), t.LocalZonedTimestamp(p)) for p in (0, 3, 6, 9)]
PAIRS += [(pa.array(TIMES, pa.timestamp("us")), t.Date()), (pa.array([date(1, 1, 1), None], pa.date32()), t.Date())]
FAR = [None, 253402300799999, 253402300800000, -62135596800000, -62135596800001, 0, 2**53, -(2**53)]
PAIRS += [(pa.array(FAR).cast(pa.timestamp("ms")), t.Timestamp(p)) for p in (0, 3, 6, 9)]
PAIRS += [(pa.array(FAR).cast(pa.timestamp("ms", "UTC")), t.LocalZonedTimestamp(3))]
PAIRS += [(pa.array([None, 2932896, 2932897, -719162, -719163, 0, 1, 2], pa.int32()).cast(pa.date32()), t.Date())]
PAIRS += [(SOURCES[2], t.Time(3)), (pa.array([time(1, 2, 3, 4), time(1), None], pa.time64("us")), t.Time(3))]
PAIRS += [
    (pa.Array.from_buffers(kind, len(TEXT), pa.array(TEXT, raw).buffers()), to)
    for kind, raw in ((pa.string(), pa.binary()), (pa.large_string(), pa.large_binary()))
    for to in (t.VarChar(3), t.Char(2), t.VarChar())
]
PAIRS += [(pa.array(["abcd", "日本語", None]), t.VarChar(3)), (pa.array(["abcd", "日本語", None]), t.VarChar())]
PAIRS += [(pa.array(TEXT, pa.binary()), to) for to in (t.VarBinary(2), t.Binary(3), t.VarBinary())]
PAIRS += [(pa.array([True, None]), t.Boolean()), (pa.nulls(2), t.Int())]


def takes(value: pa.Array, kind: t.DataType) -> bool:
    field = t.Field(0, "k", kind)
    try:
        conform(pa.table({"k": value}), [field], action="cannot test", not_null_names=["k"])
    except InvalidInputError:
        return False
    return True


@pytest.mark.parametrize(("array", "kind"), PAIRS, ids=lambda value: str(getattr(value, "type", value)))
def test_the_values_that_fit_are_those_that_are_taken_alone(array: pa.Array, kind: t.DataType) -> None:
    wanted = [takes(array.slice(i, 1), kind) for i in range(len(array))]
    found = fitting(array, kind).tolist()
    assert [(i, array[i]) for i in range(len(array)) if found[i] != wanted[i]] == []
    assert fitting(array.slice(3, 5), kind).tolist() == wanted[3:8]

"""Limits of a type that its Arrow form does not carry: lengths of text and bytes, years, and nulls below the top."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from merganser.schema import types as t
from merganser.schema.arrow import timestamp_unit

FIRST_DAY: Final = -719_162
LAST_DAY: Final = 2_932_896
"""The days of 0001-01-01 and 9999-12-31. SQL, Python and most other programs have no dates and times beyond."""
_DAY_TICKS: Final = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000}


def has_limits(kind: t.DataType) -> bool:
    """Return whether values of the type's Arrow form may still not fit it."""
    match kind:
        case t.Char() | t.Binary() | t.Date():
            return True
        case t.Timestamp() | t.LocalZonedTimestamp():
            return timestamp_unit(kind.precision) in _DAY_TICKS
        case t.VarChar(length=length) | t.VarBinary(length=length):
            return length != t.LENGTH_MAX
        case t.Array(element=element):
            return not element.nullable or has_limits(element)
        case t.Row(fields=fields):
            return any(not field.type.nullable or has_limits(field.type) for field in fields)
    return isinstance(kind, t.Map | t.Multiset | t.Variant)


def too_long(array: pa.Array, kind: t.DataType) -> tuple[int, int, str] | None:
    """Return the first value that is longer than its type allows: index, length, and the unit of the length.

    Text is measured in characters (code points), binary in bytes. None when every value fits.
    """
    match kind:
        case t.Char(length=most) | t.VarChar(length=most):
            measure, unit = pc.utf8_length, "characters"
        case t.Binary(length=most) | t.VarBinary(length=most):
            measure, unit = pc.binary_length, "bytes"
        case _:
            return None
    if most == t.LENGTH_MAX:
        return None
    lengths = measure(array)
    longest = pc.max(lengths).as_py()
    if longest is None or longest <= most:
        return None
    index = pc.index(pc.greater(lengths, most), True).as_py()
    return index, lengths[index].as_py(), unit


def in_years(array: pa.Array) -> pa.BooleanArray | None:
    """Return which dates or timestamps lie in the years 1 to 9999, null for nulls; None: all of them do.

    Args:
        array: of dates or timestamps. Nanoseconds do not reach beyond these years.
    """
    if pa.types.is_date32(array.type):
        ticks, day = array.view(pa.int32()), 1
    elif pa.types.is_timestamp(array.type) and array.type.unit in _DAY_TICKS:
        ticks, day = array.view(pa.int64()), _DAY_TICKS[array.type.unit]
    else:
        return None
    low, high = FIRST_DAY * day, (LAST_DAY + 1) * day - 1
    edges = pc.min_max(ticks)
    least, most = edges["min"].as_py(), edges["max"].as_py()
    if least is None or (least >= low and most <= high):
        return None
    return pc.and_(pc.greater_equal(ticks, low), pc.less_equal(ticks, high))

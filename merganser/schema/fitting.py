"""Which values fit a type: those that `conform` takes. It refuses all values for one; a join goes on without that one.

Source: `conform`, against which the pairs of types are tested.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from merganser.schema import types as t
from merganser.schema.arrow import arrow_type
from merganser.schema.limits import in_years
from merganser.schema.spans import spans

Mask = npt.NDArray[np.bool_]

_BITS: Final = {t.TinyInt: 8, t.SmallInt: 16, t.Int: 32, t.BigInt: 64}
_DAY_MS: Final = 86_400_000
_ESCAPES: Final = (0xDC80, 0xDCFF)
"""The first and the last of the code points that Python gives for bytes that are not UTF-8."""


def fitting(array: pa.Array, kind: t.DataType) -> Mask:
    """Return bool[n]: which values are not null and fit a type.

    Args:
        array: of an Arrow type that `conform` takes, without an encoding; its integers are signed.
        kind: the type, which is not nested.
    """
    valid = np.asarray(array.is_valid())
    if pa.types.is_null(array.type):
        return valid
    fits = _fits(array, kind)
    if isinstance(kind, t.Date | t.Timestamp | t.LocalZonedTimestamp):
        # what does not fit may become anything here, and does not fit anyway
        inside = in_years(array.cast(arrow_type(kind), safe=False))
        fits = inside if fits is None else fits if inside is None else pc.and_(fits, inside)
    return valid if fits is None else valid & np.asarray(pc.fill_null(fits, False))


def _fits(array: pa.Array, kind: t.DataType) -> pa.BooleanArray | None:
    """Return which values fit, and null or anything for nulls; None: all fit."""
    target = arrow_type(kind)
    match kind:
        case t.Char(length=most) | t.VarChar(length=most):
            return _is_text(array, most)
        case t.Binary(length=most) | t.VarBinary(length=most):
            return None if most == t.LENGTH_MAX else pc.less_equal(pc.binary_length(array), most)
        case _ if array.type == target:
            return None
        case t.TinyInt() | t.SmallInt() | t.Int() | t.BigInt():
            return _is_decimal(array, -(1 << _BITS[type(kind)] - 1), (1 << _BITS[type(kind)] - 1) - 1, 0)
        case t.Float() | t.Double():
            exact = array.cast(pa.string()) if pa.types.is_decimal(array.type) else array
            finite = pc.is_finite(exact.cast(target, safe=False))
            return pc.or_(finite, pc.invert(pc.is_finite(array))) if pa.types.is_floating(array.type) else finite
        case t.Decimal(precision=precision, scale=scale) if not pa.types.is_floating(array.type):
            most = 10 ** (precision - scale) - 1
            return _is_decimal(array, -most, most, scale)
        case t.Time() if pa.types.is_int32(array.type):
            return _is_decimal(array, 0, _DAY_MS - 1, 0)
    return pc.equal(array.cast(target, safe=False).cast(array.type, safe=False), array)


def _is_decimal(array: pa.Array, low: int, high: int, scale: int) -> pa.BooleanArray:
    """Return which numbers have at most `scale` digits after the point, and a whole part from `low` to `high`."""
    if pa.types.is_floating(array.type):  # as a float, the largest of 64 bits is one more
        inside = pc.and_(pc.greater_equal(array, float(low)), pc.less(array, float(high + 1)))
        return pc.and_(inside, pc.equal(pc.floor(array), array))
    fits, whole = pc.is_valid(array), array
    if pa.types.is_decimal(array.type):
        whole = pc.round(array, 0, "towards_zero")
        if scale < array.type.scale:
            fits = pc.equal(pc.round(array, scale, "towards_zero"), array)
        most = 10 ** (array.type.precision - array.type.scale) - 1
    else:
        most = (1 << array.type.bit_width - 1) - 1
    if low >= -most:  # a bound that the Arrow type does not hold bounds nothing
        fits = pc.and_(fits, pc.greater_equal(whole, _number(low, array.type)))
    if high <= most:
        fits = pc.and_(fits, pc.less_equal(whole, _number(high, array.type)))
    return fits


def _number(value: int, kind: pa.DataType) -> pa.Scalar:
    return pa.scalar(Decimal(value) if pa.types.is_decimal(kind) else value, kind)


def _is_text(array: pa.Array, most: int) -> pa.BooleanArray | None:
    """Return which values are UTF-8, and of at most so many characters; None: all."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        data = pc.fill_null(array.cast(pa.large_binary()), b"")
        broken = _is_broken(data)
        text = pc.if_else(pa.array(broken), b"", data).cast(pa.large_string())
        return pc.and_(pc.less_equal(pc.utf8_length(text), most), pa.array(~broken))
    return None if most == t.LENGTH_MAX else pc.less_equal(pc.utf8_length(array), most)


def _is_broken(data: pa.LargeBinaryArray) -> Mask:
    """Return which values are not UTF-8; there is no null among them.

    All values are decoded at once, each with a line feed behind it, so that no character spans two of them.
    """
    ends = (pa.scalar(end, pa.large_binary()) for end in (b"\n", b""))
    offsets, held = spans(pc.binary_join_element_wise(data, *ends))
    text = held[offsets[0] : offsets[-1]].tobytes().decode("utf-8", "surrogateescape")
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    escaped = (points >= _ESCAPES[0]) & (points <= _ESCAPES[1])
    widths = 1 + (points >= 0x80) + (points >= 0x800) + (points >= 0x10000)
    widths[escaped] = 1
    places = np.cumsum(widths)[escaped]  # where the bytes end, counted from 1
    broken = np.zeros(len(data), np.bool_)
    broken[np.searchsorted(offsets[1:] - offsets[0], places)] = True
    return broken

"""Stored values: the Python form of a value in keys, partitions and stats, and its way to and from Arrow.

A stored value is what the metadata of a table holds, with nothing lost and nothing that needs a calendar:

    BOOLEAN                     bool
    TINYINT to BIGINT           int
    FLOAT, DOUBLE               float
    DECIMAL                     decimal.Decimal
    CHAR, VARCHAR, STRING       str
    BINARY, VARBINARY, BYTES    bytes
    DATE, TIME                  int, days since 1970-01-01 and milliseconds of the day
    TIMESTAMP, LTZ              int, count since the epoch in the Arrow unit of the type (ms, us or ns)
    ARRAY, MAP and MULTISET     list of values, list of (key, value) pairs
    ROW, VARIANT                tuple of values, tuple (value bytes, metadata bytes)
    null                        None

Temporal values stay integers because Python's own types end at microseconds and at the year 9999.
"""

from __future__ import annotations

import decimal
import math
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import pyarrow as pa

from merganser.errors import InvalidInputError, UnsupportedError
from merganser.schema import types as t
from merganser.schema.arrow import arrow_type

Stored: TypeAlias = "bool | int | float | decimal.Decimal | str | bytes | Sequence[Stored] | None"

TEXT: Final = (t.Char, t.VarChar)
BINARY: Final = (t.Binary, t.VarBinary)
TIMESTAMPS: Final = (t.Timestamp, t.LocalZonedTimestamp)

_EXACT: Final = decimal.Context(prec=80, traps=[decimal.Inexact, decimal.InvalidOperation, decimal.Overflow])
"""Wide enough for every DECIMAL(38, s); the context of the thread rounds to 28 digits."""


def unscaled(value: decimal.Decimal, scale: int) -> int:
    """Return `value` as a count of units of 10 ** -scale.

    Raises:
        InvalidInputError: the value has digits beyond the scale, or is not a number.
    """
    try:
        return int(_EXACT.to_integral_exact(_EXACT.scaleb(value, scale)))
    except (decimal.DecimalException, ValueError, OverflowError):
        raise InvalidInputError(f"the decimal {value} is not a number of at most {scale} fraction digits") from None


def scaled(count: int, scale: int) -> decimal.Decimal:
    """Return `count` units of 10 ** -scale, with that scale kept: 1200 at scale 2 is 12.00."""
    return _EXACT.scaleb(decimal.Decimal(count), -scale)


def plain(column: pa.Array | pa.ChunkedArray, kind: t.DataType) -> pa.Array:
    """Return a column as one array in the Arrow type of `kind`.

    Text and binary may come back as string, binary or the large form of either: their bytes are the same.
    Nested columns come back as they are, since the parts are cast when they are read.

    Raises:
        InvalidInputError: the values do not fit the type.
        UnsupportedError: the type has no values in merganser.
    """
    target = arrow_type(kind)
    try:
        if isinstance(kind, (*TEXT, *BINARY)):
            if isinstance(column, pa.ChunkedArray) and column.num_chunks > 1:
                column = column.cast(pa.large_binary() if isinstance(kind, BINARY) else pa.large_string())
            elif not _is_bytes(column.type):
                column = column.cast(target)
        elif column.type != target and not t.is_nested(kind):
            column = column.cast(target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidInputError(f"values of the Arrow type {column.type} cannot be taken as {kind}: {error}") from error
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    return column


def _is_bytes(kind: pa.DataType) -> bool:
    return any(
        is_type(kind)
        for is_type in (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    )


def arrow_to_list(column: pa.Array | pa.ChunkedArray, kind: t.DataType) -> list[Any]:
    """Return the stored values of a column, in order.

    Raises:
        InvalidInputError: the values do not fit the type.
    """
    array = plain(column, kind)
    match kind:
        case t.Date() | t.Time():
            return list(array.view(pa.int32()).to_pylist())
        case t.Timestamp() | t.LocalZonedTimestamp():
            return list(array.view(pa.int64()).to_pylist())
        case t.Char() | t.VarChar() if not pa.types.is_string(array.type) and not pa.types.is_large_string(array.type):
            return list(array.cast(pa.large_string()).to_pylist())
        case t.Binary() | t.VarBinary() if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
            return list(array.cast(pa.large_binary()).to_pylist())
        case t.Array(element=element):
            return _spans(array, arrow_to_list(array.values, element))
        case t.Map(key=key, value=value):
            return _spans(array, _pairs(array, key, value))
        case t.Multiset(element=element):
            return _spans(array, _pairs(array, element, t.Int()))
        case t.Row(fields=fields):
            return _tuples(array, [f.type for f in fields])
        case t.Variant():
            return _tuples(array, [t.VarBinary(), t.VarBinary()])
    return list(array.to_pylist())


def _pairs(array: pa.MapArray, key: t.DataType, value: t.DataType) -> list[Any]:
    return list(zip(arrow_to_list(array.keys, key), arrow_to_list(array.items, value), strict=True))


def _spans(array: pa.ListArray | pa.MapArray, values: list[Any]) -> list[Any]:
    bounds = array.offsets.to_pylist()
    valid = array.is_valid().to_pylist()
    return [values[bounds[i] : bounds[i + 1]] if ok else None for i, ok in enumerate(valid)]


def _tuples(array: pa.StructArray, kinds: Sequence[t.DataType]) -> list[Any]:
    parts = [arrow_to_list(part, kind) for part, kind in zip(array.flatten(), kinds, strict=True)]
    valid = array.is_valid().to_pylist()
    return [tuple(part[i] for part in parts) if ok else None for i, ok in enumerate(valid)]


def arrow_to_stored(scalar: pa.Scalar, kind: t.DataType) -> Stored:
    """Return the stored value of one Arrow scalar, exact to the nanosecond.

    Raises:
        InvalidInputError: the value does not fit the type.
    """
    if not scalar.is_valid:
        return None
    if scalar.type == arrow_type(kind):
        if isinstance(kind, (t.Date, t.Time, *TIMESTAMPS)):
            return int(scalar.value)
        if not t.is_nested(kind):
            value: Stored = scalar.as_py()
            return value
    only: Stored = arrow_to_list(pa.array([scalar], scalar.type), kind)[0]
    return only


def stored_to_arrow(values: Sequence[Stored], kind: t.DataType) -> pa.Array:
    """Return stored values as an array of the type `arrow_type(kind)`, of the same length and order.

    Raises:
        InvalidInputError: a value is not a stored value of the type.
        UnsupportedError: a timestamp lies beyond what its Arrow unit can count (years 1677 to 2262 in
            nanoseconds), or the type has no values in merganser.
    """
    target = arrow_type(kind)
    try:
        if isinstance(kind, (t.Date, t.Time)):
            return pa.array(values, pa.int32()).view(target)
        if isinstance(kind, TIMESTAMPS):
            _check_count(values, kind)
            return pa.array(values, pa.int64()).view(target)
        return pa.array([_arrow_form(value, kind) for value in values] if t.is_nested(kind) else values, target)
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, OverflowError) as error:
        raise InvalidInputError(f"cannot take stored values as {kind}: {error}") from error


def _check_count(values: Sequence[Stored], kind: t.DataType) -> None:
    for value in values:
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise beyond_arrow(kind)


def beyond_arrow(kind: t.DataType) -> UnsupportedError:
    """Return the error for a timestamp that 64 bits cannot count in the unit of its type."""
    return UnsupportedError(
        f"a value of type {kind} lies outside the years that 64 bits can count in the unit of the type "
        "(1677 to 2262 in nanoseconds). Read the table with an engine that keeps milliseconds and nanoseconds apart."
    )


def _arrow_form(value: Any, kind: t.DataType) -> Any:
    """Return a stored value with rows as dictionaries, the one form of a struct that pyarrow cannot mistake."""
    if value is None:
        return None
    match kind:
        case t.Array(element=element):
            return [_arrow_form(item, element) for item in value]
        case t.Map(key=key, value=item):
            return [(_arrow_form(k, key), _arrow_form(v, item)) for k, v in value]
        case t.Multiset(element=element):
            return [(_arrow_form(k, element), count) for k, count in value]
        case t.Row(fields=fields):
            return {f.name: _arrow_form(v, f.type) for f, v in zip(fields, value, strict=True)}
        case t.Variant():
            return {"value": value[0], "metadata": value[1]}
    return value


def sort_key(values: Sequence[Stored], kinds: Sequence[t.DataType]) -> tuple[object, ...]:
    """Return an image of a key whose order among Python tuples is the key order of the format.

    Nulls first; -0.0 below 0.0 and NaN above everything; text by its UTF-8 bytes; the rest as it compares.
    Images of two keys are comparable when the kinds are the same, and equal exactly when the keys are.

    Raises:
        InvalidInputError: a kind has no order (ARRAY, MAP, MULTISET, ROW, VARIANT).

    Format: section "comparison of keys".
    """
    return tuple([_NULL_IMAGE if v is None else (1, _image(k)(v)) for v, k in zip(values, kinds, strict=True)])


def _image(kind: t.DataType) -> Callable[[Any], object]:
    image = _IMAGES.get(type(kind))
    if image is None:
        raise InvalidInputError(f"values of type {kind} have no order, so they cannot be part of a key")
    return image


def _same(value: object) -> object:
    return value


def _float_image(value: float) -> int:
    """Return the bits as an integer in the total order: the magnitude bits of negatives are flipped."""
    (bits,) = struct.unpack("<q", struct.pack("<d", math.nan if value != value else value))
    return int(bits if bits >= 0 else bits ^ 0x7FFF_FFFF_FFFF_FFFF)


_NULL_IMAGE: Final = (0,)
_IMAGES: Final[dict[type[t.DataType], Callable[[Any], object]]] = {
    **dict.fromkeys((t.Boolean, t.TinyInt, t.SmallInt, t.Int, t.BigInt, t.Decimal, t.Date, t.Time), _same),
    **dict.fromkeys((*BINARY, *TIMESTAMPS), _same),
    **dict.fromkeys((t.Float, t.Double), _float_image),
    **dict.fromkeys(TEXT, str.encode),
}

"""Which types the values of an older schema can be turned into, and the turning.

`can_read_as` says yes exactly where the reference has a rule that runs, which is less than its table of allowed type
changes: DATE, TIME and timestamps become STRING but no CHAR or VARCHAR of some length; only INT and BIGINT are
seconds of a timestamp; nothing becomes a container. One rule is ours: TIME may gain precision. What the rules do is
told where they are: `cast_values` for numbers and instants, `cast_text` for text.

Format: "evolution rules", the cast table.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from merganser.schema import types as t
from merganser.schema.arrow import arrow_type
from merganser.schema.cast_text import fit_text, from_text, to_text
from merganser.schema.cast_values import (
    CastError,
    doubles_of,
    fit_bytes,
    instant_to_instant,
    instant_to_integer,
    integer_to_instant,
    number_to_number,
    refuse,
)
from merganser.schema.same import same_values

__all__ = [
    "CastError",
    "can_read_as",
    "cast_array",
    "cast_exactly",
    "holds_all",
    "is_implicit",
    "keeps_order",
    "keeps_values",
]

_Kinds = tuple[type[t.DataType], ...]
_TEXT: Final[_Kinds] = (t.Char, t.VarChar)
_BYTES: Final[_Kinds] = (t.Binary, t.VarBinary)
_INTEGERS: Final[_Kinds] = (t.TinyInt, t.SmallInt, t.Int, t.BigInt)
_NUMBERS: Final[_Kinds] = (*_INTEGERS, t.Float, t.Double, t.Decimal)
_SECONDS: Final[_Kinds] = (t.Int, t.BigInt)
_STAMPS: Final[_Kinds] = (t.Timestamp, t.LocalZonedTimestamp)
_INSTANTS: Final[_Kinds] = (t.Date, t.Time, *_STAMPS)
_NUMBER: Final = t.TinyInt | t.SmallInt | t.Int | t.BigInt | t.Float | t.Double | t.Decimal
_MICROS: Final = 6
_CUT: Final[_Kinds] = (t.Boolean, *_NUMBERS, *_TEXT)
"""Types whose text is fitted to CHAR(n) and VARCHAR(n). Bytes and containers keep theirs whole."""

_RULES: Final[tuple[tuple[_Kinds, _Kinds], ...]] = (
    (_NUMBERS, _NUMBERS),
    ((t.Boolean,), _NUMBERS),
    (_INTEGERS, (t.Boolean,)),
    ((*_CUT, *_BYTES), _TEXT),
    (_TEXT, (t.Boolean, *_NUMBERS, *_BYTES, *_INSTANTS)),
    (_BYTES, _BYTES),
    (_STAMPS, (t.Date, t.Time, *_STAMPS, *_SECONDS)),
    ((t.Date, t.Time, *_SECONDS), _STAMPS),
)

_IMPLICIT: Final[tuple[tuple[_Kinds, _Kinds], ...]] = (
    ((t.Char,), _TEXT),
    ((t.VarChar,), (t.VarChar,)),
    ((t.Boolean,), (t.Boolean,)),
    ((t.Binary,), _BYTES),
    ((t.VarBinary,), (t.VarBinary,)),
    (_NUMBERS, (t.Decimal, t.Double)),
    ((*_INTEGERS, t.Float, t.Decimal), (t.Float,)),
    ((t.Date, t.Timestamp), (t.Date,)),
    ((t.Time, t.Timestamp), (t.Time,)),
    (_STAMPS, _STAMPS),
)
"""The format's implicit changes of a type, integers apart: of those, each becomes itself and what is wider."""
_DIGITS: Final[dict[type[t.DataType], int]] = {t.TinyInt: 3, t.SmallInt: 5, t.Int: 10, t.BigInt: 19}
_EXACT: Final[dict[type[t.DataType], _Kinds]] = {
    t.Float: (t.TinyInt, t.SmallInt),
    t.Double: (t.TinyInt, t.SmallInt, t.Int),
}
"""Integers of which each value is one of a type with a point."""


def can_read_as(source: t.DataType, target: t.DataType) -> bool:
    """Return whether values of one type can be turned into another one, nullability apart.

    A single value may still not be (`cast_array`). ROW, ARRAY and MAP turned into their own kind are `evolve`'s.
    """
    match source, target:
        case t.Array(element=element), t.Char() | t.VarChar():
            return _has_text(element)
        case t.Map(key=key, value=value), t.Char() | t.VarChar():
            return _has_text(key) and _has_text(value)
        case t.Row(fields=fields), t.Char() | t.VarChar():
            return all(_has_text(field.type) for field in fields)
        case ((t.Date() | t.Time() | t.Timestamp() | t.LocalZonedTimestamp()), t.VarChar(length=length)):
            return length == t.LENGTH_MAX
        case t.Time(), t.Time():
            return target.precision >= source.precision
    return any(isinstance(source, sources) and isinstance(target, targets) for sources, targets in _RULES)


def is_implicit(source: t.DataType, target: t.DataType) -> bool:
    """Return whether a type may become another one where only changes that lose nothing are allowed.

    The kinds are those of the format, which lets a DOUBLE become a DECIMAL. A type does not get narrower.
    """
    if isinstance(source, _INTEGERS) and isinstance(target, _INTEGERS):
        return _INTEGERS.index(type(source)) <= _INTEGERS.index(type(target))
    if type(source) is type(target) and not _is_as_wide(source, target):
        return False
    return any(isinstance(source, sources) and isinstance(target, targets) for sources, targets in _IMPLICIT)


def keeps_order(source: t.DataType, target: t.DataType) -> bool:
    """Return whether values of one type, turned into another one, have the order that they had, equal ones included."""
    if isinstance(source, _INTEGERS) and isinstance(target, _INTEGERS):
        return is_implicit(source, target)
    if isinstance(source, t.Float) and isinstance(target, t.Double):
        return True
    return type(source) is type(target) and _is_as_wide(source, target)


def holds_all(source: t.DataType, target: t.DataType) -> bool:
    """Return whether a type holds each value of another one; some implicit changes of the format round or cut."""
    if isinstance(target, t.Decimal) and type(source) in _DIGITS:
        return target.precision - target.scale >= _DIGITS[type(source)]
    return isinstance(source, _EXACT.get(type(target), ())) or keeps_order(source, target)


def keeps_values(source: t.DataType, target: t.DataType) -> bool:
    """Return whether each value of a type still says what it was when `cast_array` has turned it into another type."""
    match source, target:
        case ((t.Char() | t.VarChar()), t.VarChar()):
            return target.length >= source.length
        case ((t.Binary() | t.VarBinary()), t.VarBinary()):
            return target.length >= source.length
        case t.Date(), t.Timestamp():
            return target.precision <= _MICROS
        case ((t.Timestamp() | t.LocalZonedTimestamp()), (t.Timestamp() | t.LocalZonedTimestamp())):
            far = target.precision <= _MICROS or source.precision > _MICROS  # nanoseconds reach from 1677 to 2262 alone
            return type(source) is type(target) and far and _is_as_wide(source, target)
        case _, t.VarChar(length=t.LENGTH_MAX):
            return isinstance(source, t.Boolean | t.Date | t.Time | t.Timestamp | _NUMBER)
    return holds_all(source, target)


def _is_as_wide(source: t.DataType, target: t.DataType) -> bool:
    """Return whether a type has room for the values of another one of its kind."""
    if isinstance(source, t.Decimal) and isinstance(target, t.Decimal):
        digits = target.precision - target.scale >= source.precision - source.scale
        return digits and target.scale >= source.scale
    return all(getattr(target, size, 0) >= getattr(source, size, 0) for size in ("length", "precision"))


def _has_text(kind: t.DataType) -> bool:
    return can_read_as(kind, t.string())


def cast_array(values: pa.Array, source: t.DataType, target: t.DataType) -> pa.Array:
    """Return values turned from one type into another, as the reference's reader does it.

    Args:
        values: n values of the Arrow type of `source`.
        source: their type.
        target: another type that the source can be read as.

    Returns:
        n values of the Arrow type of `target`; null where the input is, and where a DECIMAL has no room.

    Raises:
        CastError: a value does not parse, or Arrow cannot hold the result.
    """
    if not len(values):
        return pa.array([], arrow_type(target))
    if isinstance(target, t.Char | t.VarChar):
        text = values if isinstance(source, _TEXT) else to_text(values, source)
        return fit_text(text, target) if isinstance(source, _CUT) else text
    if isinstance(target, t.Binary | t.VarBinary):
        return fit_bytes(values.cast(pa.binary()), target)
    if isinstance(source, _TEXT):
        return from_text(values, target)
    if isinstance(target, t.Boolean):
        return pc.not_equal(values, pa.scalar(0, values.type))
    if isinstance(source, t.Boolean):
        return number_to_number(values.cast(pa.int32()), t.Int(), target)
    if isinstance(source, _NUMBERS) and isinstance(target, _NUMBERS):
        return number_to_number(values, source, target)
    if isinstance(target, _SECONDS):
        return instant_to_integer(values, target)
    if isinstance(source, _SECONDS):
        return integer_to_instant(values, target)
    return instant_to_instant(values, source, target)


def cast_exactly(values: pa.Array, source: t.DataType, target: t.DataType) -> pa.Array:
    """Return the same as `cast_array` if every value comes back when it is turned into its own type again.

    Args:
        values: n values of the Arrow type of `source`.
        source, target: types that can each be read as the other one.

    Raises:
        CastError: a value does not come back, does not parse, or Arrow cannot hold the result.
    """
    made = cast_array(values, source, target)
    refuse(values, ~same_values(values, cast_array(made, target, source)))
    floats = {t.Float, t.Double} & {type(source), type(target)}
    whole = target if isinstance(target, _INTEGERS) else source
    if floats and isinstance(whole, _INTEGERS):  # 2^63 becomes 2^63 - 1 and comes back, as the largest integers do
        limit = 2.0 ** (arrow_type(whole).bit_width - 1)
        refuse(values, doubles_of(made if whole is source else values) >= limit)
    return made

"""Types that hold the values of two others without any loss, for rows of several origins in one column."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from merganser.schema import types as t

_INTEGERS: Final = (t.TinyInt, t.SmallInt, t.Int, t.BigInt)
_DIGITS: Final = {t.TinyInt: 3, t.SmallInt: 5, t.Int: 10, t.BigInt: 19}
_EXACT_IN_DOUBLE: Final = (t.TinyInt, t.SmallInt, t.Int)
_EXACT_IN_FLOAT: Final = (t.TinyInt, t.SmallInt)
_DECIMAL_DIGITS_MAX: Final = 38


def widened(one: t.DataType, other: t.DataType) -> t.DataType | None:
    """Return the smallest type that holds the values of both, without any loss; None: there is none.

    It is nullable if one of them is. Fields of ROWs meet by name.
    """
    nullable = one.nullable or other.nullable
    found = _widened(one.with_nullable(True), other.with_nullable(True))
    return None if found is None else found.with_nullable(nullable)


def _widened(one: t.DataType, other: t.DataType) -> t.DataType | None:
    if one == other:
        return one
    match one, other:
        case t.Row(), t.Row():
            return _joined(one, other)
        case t.Array(), t.Array():
            element = widened(one.element, other.element)
            return None if element is None else t.Array(element=element)
        case t.Map(), t.Map():
            value = widened(one.value, other.value)
            alike = one.key.with_nullable(True) == other.key.with_nullable(True)
            return t.Map(key=one.key, value=value) if alike and value is not None else None
        case t.Timestamp(), t.Timestamp():
            return one if one.precision >= other.precision else other
        case t.LocalZonedTimestamp(), t.LocalZonedTimestamp():
            return one if one.precision >= other.precision else other
        case ((t.Binary() | t.VarBinary()), (t.Binary() | t.VarBinary())):
            return t.VarBinary()
    return _wider_number(one, other) or _wider_number(other, one)


def _wider_number(one: t.DataType, other: t.DataType) -> t.DataType | None:
    """Return the type that holds the numbers of both, where the second one is not of a smaller kind."""
    match one, other:
        case t.Decimal(), t.Decimal():
            return _decimal(one.precision - one.scale, one.scale, other)
        case ((t.TinyInt() | t.SmallInt() | t.Int() | t.BigInt()), t.Decimal()):
            return _decimal(_DIGITS[type(one)], 0, other)
        case ((t.TinyInt() | t.SmallInt() | t.Int() | t.BigInt()), (t.TinyInt() | t.SmallInt() | t.Int() | t.BigInt())):
            return other if _INTEGERS.index(type(other)) >= _INTEGERS.index(type(one)) else None
        case (t.Float(), t.Double()):
            return other
        case _, t.Double() if isinstance(one, _EXACT_IN_DOUBLE):
            return other
        case _, t.Float() if isinstance(one, _EXACT_IN_FLOAT):
            return other
        case t.Int(), t.Float():
            return t.Double()
    return None


def _decimal(digits: int, scale: int, other: t.Decimal) -> t.Decimal | None:
    digits, scale = max(digits, other.precision - other.scale), max(scale, other.scale)
    return t.Decimal(digits + scale, scale) if digits + scale <= _DECIMAL_DIGITS_MAX else None


def _joined(one: t.Row, other: t.Row) -> t.Row | None:
    theirs = {field.name: field for field in other.fields}
    fields: list[t.Field] = []
    for field in one.fields:
        match = theirs.pop(field.name, None)
        kind = field.type.with_nullable(True) if match is None else widened(field.type, match.type)
        if kind is None:
            return None
        fields.append(replace(field, type=kind))
    fields += [replace(field, type=field.type.with_nullable(True)) for field in theirs.values()]
    return t.Row(fields=tuple(fields))

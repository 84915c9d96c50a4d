"""Literals: text read as a value of a type, and literals moved from one type to another without loss.

Text follows Spark: DATE `2024-01-31`, `2024-1-31`, `2024-01` or `2024`, with any time of day after it ignored;
TIMESTAMP the same with `hh[:mm[:ss[.fraction]]]` and, for instants, a zone (`Z`, `UTC`, `+01:00`, `Europe/Berlin`);
without a zone it is UTC. Years are 0001 to 9999. Up to 9 fraction digits count.
"""

from __future__ import annotations

import math
import re
import struct
from datetime import date
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Final

from merganser.errors import InvalidInputError
from merganser.expr import setting
from merganser.expr.tree import (
    NANOS_PER_DAY,
    UNITS_PER_SECOND,
    Literal,
    nanoseconds,
    natural_decimal,
)
from merganser.schema import types as t
from merganser.schema.arrow import timestamp_unit

INTEGER_BITS: Final[dict[type[t.DataType], int]] = {t.TinyInt: 8, t.SmallInt: 16, t.Int: 32, t.BigInt: 64}

DATE_PATTERN: Final = r"^\s*(\d{4})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T].*)?)?)?\s*$"
TIMESTAMP_PATTERN: Final = (
    r"^\s*(\d{4})(?:-(\d{1,2})(?:-(\d{1,2})"
    r"(?:[ T](?:(\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d{0,9})\d*)?)?)?)?"
    r"\s*(Z|UTC|GMT|[+-]\d{1,2}(?::?\d{2})?)?)?)?)?\s*$"
)
_ZONED_PATTERN: Final = r"^(\s*\d{4}-\d{1,2}-\d{1,2}[ T]\d{1,2}:\d{1,2}(?::\d{1,2}(?:\.\d*)?)?)\s*([A-Za-z+-]\S*)\s*$"
"""A time and a zone that the pattern of columns does not have: regions, short names, `UTC+1`."""
TIME_PATTERN: Final = r"^\s*(\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,9})\d*)?)?\s*$"
INTEGER_PATTERN: Final = r"^\s*[+-]?\d+\s*$"
NUMBER_PATTERN: Final = r"^\s*[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\s*$"
FLOAT_PATTERN: Final = (
    r"^\s*(?:[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|[iI][nN][fF](?:[iI][nN][iI][tT][yY])?)|[nN][aA][nN])\s*$"
)
TRUE_WORDS: Final = ("t", "true", "y", "yes", "1")
FALSE_WORDS: Final = ("f", "false", "n", "no", "0")

_EXACT: Final = Context(prec=200)
_LOOKS: Final[dict[type[t.DataType], str]] = {
    t.Boolean: "TRUE or FALSE",
    **dict.fromkeys((t.TinyInt, t.SmallInt, t.Int, t.BigInt), "a whole number"),
    **dict.fromkeys((t.Decimal, t.Float, t.Double), "a number"),
    t.Date: "a date like '2024-01-31'",
    t.Time: "a time of day like '12:30:00'",
    t.Timestamp: "a timestamp like '2024-01-31 12:30:00'",
    t.LocalZonedTimestamp: "a timestamp like '2024-01-31 12:30:00' or '2024-01-31 12:30:00+01:00'",
}


_INT_DIGITS: Final = 10
"""A number of fewer digits is an INT."""


def number(text: str) -> Literal:
    """Return a number as SQL types it: INT, BIGINT or DECIMAL by its digits; DOUBLE with an exponent.

    Args:
        text: digits with an optional sign, point and exponent.

    Raises:
        InvalidInputError: not a number, or more than 38 digits.
    """
    if len(text) < _INT_DIGITS and text.isascii() and text.isdecimal():  # most numbers, and lists of them are long
        return Literal(int(text), t.Int())
    if not re.match(NUMBER_PATTERN, text):
        raise InvalidInputError(f"'{text}' is not a number", value=text)
    if "e" in text.lower():
        if math.isinf(float(text)):
            raise InvalidInputError(f"{text} is outside of the range of DOUBLE", value=text)
        return Literal(float(text), t.Double())
    value = Decimal(text)
    if "." not in text and -(2**63) <= value < 2**63:
        whole = int(value)
        return Literal(whole, t.Int() if -(2**31) <= whole < 2**31 else t.BigInt())
    kind = natural_decimal(value)
    if kind.precision > 38:
        raise InvalidInputError(
            f"the number '{text}' has {kind.precision} digits; a DECIMAL has at most 38. Write it as DOUBLE, with E0 "
            "at the end.",
            value=text,
        )
    return Literal(value, kind)


def from_text(text: str, kind: t.DataType) -> Literal:
    """Return the literal of a type that text names. TIMESTAMP and TIME take their precision from the text.

    Raises:
        InvalidInputError: the text is not a value of the type, or out of its range.
    """
    match kind:
        case t.Char() | t.VarChar():
            return Literal(text, t.string())
        case t.Binary() | t.VarBinary():
            return Literal(text.encode(), t.VarBinary())
        case t.Boolean():
            word = text.strip().lower()
            if word in TRUE_WORDS or word in FALSE_WORDS:
                return Literal(word in TRUE_WORDS, t.Boolean())
        case t.TinyInt() | t.SmallInt() | t.Int() | t.BigInt():
            if re.match(INTEGER_PATTERN, text):
                return _fitting(Literal(_decimal(text), t.Decimal(38, 0)), kind, text)
        case t.Decimal():
            if re.match(NUMBER_PATTERN, text):
                return Literal(_rounded(_decimal(text), kind, text), kind.with_nullable(True))
        case t.Float() | t.Double():
            if re.match(FLOAT_PATTERN, text):
                return Literal(_float(float(text), kind), kind.with_nullable(True))
        case t.Date():
            if found := re.match(DATE_PATTERN, text, re.DOTALL):
                return Literal(_days(found, text), t.Date())
        case t.Time():
            if found := re.match(TIME_PATTERN, text):
                return Literal(_clock(found, 1, text), t.Time(len(found[4] or "")))
        case t.Timestamp() | t.LocalZonedTimestamp():
            if found := re.match(TIMESTAMP_PATTERN, text):
                return _timestamp(found, kind, text)
            if (named := re.match(_ZONED_PATTERN, text)) and (clock := re.match(TIMESTAMP_PATTERN, named[1])):
                return _at(_timestamp(clock, t.Timestamp(0), named[1]), kind, _zone(named[2], text))
    looks = _LOOKS.get(type(kind), f"a value of type {kind.with_nullable(True)}")
    raise InvalidInputError(f"'{text}' is not {looks}", value=text, type=str(kind))


def _at(wall: Literal, kind: t.DataType, zone: str | None) -> Literal:
    """Return what clocks in a zone show as a timestamp of a kind. One without a zone is the clocks' own."""
    return wall if isinstance(kind, t.Timestamp) else setting.instant(wall, zone or "UTC")


def _zone(name: str, text: str) -> str | None:
    try:
        return setting.checked_zone(name)
    except InvalidInputError as error:
        raise InvalidInputError(f"'{text}' is not a timestamp: {error.message}", value=text) from None


def plain_decimal(text: str) -> Literal:
    """Return the exact number that text names, with or without an exponent, as a DECIMAL.

    Raises:
        InvalidInputError: not a number, or more than 38 digits.
    """
    if not re.match(NUMBER_PATTERN, text):
        raise InvalidInputError(f"'{text}' is not a number", value=text)
    value = Decimal(f"{_decimal(text):f}")
    kind = natural_decimal(value)
    if kind.precision > 38:
        raise InvalidInputError(f"'{text}' has {kind.precision} digits; a DECIMAL has at most 38", value=text)
    return Literal(value, kind)


def zoned(text: str) -> bool:
    """Return whether the text of a timestamp names a zone."""
    if found := re.match(TIMESTAMP_PATTERN, text):
        return bool(found[8])
    return re.match(_ZONED_PATTERN, text) is not None


def moved(literal: Literal, kind: t.DataType) -> Literal | None:
    """Return the literal as a value of another type, or None if only a cast at run time can say.

    Numbers move when nothing is lost; to FLOAT and DOUBLE they round, as SQL does.

    Raises:
        InvalidInputError: text that is not a value of the type, or a number out of its range.
    """
    kind, value = kind.with_nullable(True), literal.value
    if literal.type == kind or (isinstance(literal.type, t.VarChar) and isinstance(kind, t.VarChar)):
        return literal
    if value is None:
        return Literal(None, kind)
    if isinstance(value, str):
        return _to_precision(from_text(value, kind), kind)
    match literal.type, kind:
        case (t.TinyInt() | t.SmallInt() | t.Int() | t.BigInt() | t.Decimal(), t.Float() | t.Double()):
            return Literal(_float(float(value), kind), kind)
        case (t.Float() | t.Double(), t.Float() | t.Double()):
            return Literal(_float(float(value), kind), kind)
        case (t.TinyInt() | t.SmallInt() | t.Int() | t.BigInt() | t.Decimal(), _):
            assert isinstance(value, int | Decimal), literal
            return _exact_number(value, literal, kind)
        case (t.Date() | t.Timestamp() | t.LocalZonedTimestamp(), t.Date() | t.Timestamp() | t.LocalZonedTimestamp()):
            return _to_precision(literal, kind)
    return None


def _exact_number(value: int | Decimal, literal: Literal, kind: t.DataType) -> Literal | None:
    if isinstance(kind, t.Decimal):
        if Decimal(value) == _rounded(Decimal(value), kind, str(value)):
            return Literal(_rounded(Decimal(value), kind, str(value)), kind)
        return None
    if type(kind) in INTEGER_BITS and value == int(value):
        return _fitting(literal, kind, str(value))
    return None


def _fitting(literal: Literal, kind: t.DataType, text: str) -> Literal:
    assert isinstance(literal.value, int | Decimal), literal
    value, bits = int(literal.value), INTEGER_BITS[type(kind)]
    if not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
        raise InvalidInputError(f"'{text.strip()}' does not fit {kind.with_nullable(True)}", value=text, type=str(kind))
    return Literal(value, kind.with_nullable(True))


def _decimal(text: str) -> Decimal:
    return Decimal(text.strip())


def _rounded(value: Decimal, kind: t.Decimal, text: str) -> Decimal:
    try:
        out = value.quantize(Decimal((0, (1,), -kind.scale)), rounding=ROUND_HALF_UP, context=_EXACT)
    except InvalidOperation:
        out = None
    if out is None or abs(out) >= Decimal((0, (1,), kind.precision - kind.scale)):
        raise InvalidInputError(f"'{text.strip()}' does not fit {kind.with_nullable(True)}", value=text, type=str(kind))
    # A zero has no sign in SQL.
    return out if out else abs(out)


def _float(value: float, kind: t.DataType) -> float:
    if isinstance(kind, t.Double) or math.isnan(value) or math.isinf(value):
        return value
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def _days(found: re.Match[str], text: str) -> int:
    try:
        return date(int(found[1]), int(found[2] or 1), int(found[3] or 1)).toordinal() - date(1970, 1, 1).toordinal()
    except ValueError as error:
        raise InvalidInputError(f"'{text}' is not a date: {error}", value=text) from None


def _clock(found: re.Match[str], first: int, text: str) -> int:
    hour, minute, second = (int(found[first + i] or 0) for i in range(3))
    if hour > 23 or minute > 59 or second > 59:
        raise InvalidInputError(f"'{text}' is not a time of day: it ends at 23:59:59", value=text)
    return (hour * 3600 + minute * 60 + second) * 1_000_000_000 + int((found[first + 3] or "").ljust(9, "0"))


def _timestamp(found: re.Match[str], kind: t.DataType, text: str) -> Literal:
    nanos = _days(found, text) * NANOS_PER_DAY + _clock(found, 4, text)
    precision = len(found[7] or "")
    if isinstance(kind, t.Timestamp):
        # A wall clock has no zone: the offset is read over, as Spark does.
        return _instant(nanos, t.Timestamp(precision))
    if (zone := found[8]) and zone[0] in "+-":
        digits = zone[1:].replace(":", "")
        hours, minutes = (int(digits[:-2]), int(digits[-2:])) if len(digits) > 2 else (int(digits), 0)
        if hours > 18 or minutes > 59:
            raise InvalidInputError(f"'{text}' is not a timestamp: the offset '{zone}' is out of range", value=text)
        nanos -= (1 if zone[0] == "+" else -1) * (hours * 3600 + minutes * 60) * 1_000_000_000
    return _instant(nanos, t.LocalZonedTimestamp(precision))


def _instant(nanos: int, kind: t.Timestamp | t.LocalZonedTimestamp) -> Literal:
    step = 10 ** (9 - kind.precision)
    unit = 1_000_000_000 // UNITS_PER_SECOND[timestamp_unit(kind.precision)]
    return Literal(nanos // step * step // unit, kind)


def _to_precision(literal: Literal, kind: t.DataType) -> Literal:
    """Return a temporal literal at the precision of a type: digits that it lacks are cut."""
    match kind:
        case t.Timestamp() | t.LocalZonedTimestamp():
            return _instant(nanoseconds(literal), kind)
        case t.Date():
            return Literal(nanoseconds(literal) // NANOS_PER_DAY, kind)
        case t.Time(precision=precision):
            step = 10 ** (9 - precision)
            return Literal(nanoseconds(literal) // step * step, kind)
    return literal

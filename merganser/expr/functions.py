"""The functions of expressions: what they take, and the type of what they give."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from merganser.errors import InvalidInputError
from merganser.expr.build import as_text, cast, is_text_literal, type_text, untyped
from merganser.expr.compare import family
from merganser.expr.literal import INTEGER_BITS
from merganser.expr.tree import Call, Expression, Literal, sql
from merganser.schema import types as t


def _call_text(name: str, items: Sequence[Expression]) -> Call:
    return Call(name, (as_text(items[0], f"use {name}"),), t.string())


def _call_length(name: str, items: Sequence[Expression]) -> Call:
    if family(items[0].type) == "binary":
        return Call(name, (items[0],), t.Int())
    return Call(name, (as_text(items[0], f"use {name}"),), t.Int())


def _call_substring(name: str, items: Sequence[Expression]) -> Call:
    for place in items[1:]:
        _constant_integer(place, name)
    return Call(name, (as_text(items[0], f"use {name}"), *items[1:]), t.string())


def _call_abs(name: str, items: Sequence[Expression]) -> Call:
    item = _number(items[0], name)
    return Call(name, (item,), item.type)


def _call_round(name: str, items: Sequence[Expression]) -> Call:
    item = _number(items[0], name)
    digits = _constant_integer(items[1], name) if len(items) > 1 else 0
    kind = item.type
    if isinstance(kind, t.Decimal):
        whole = kind.precision - kind.scale + 1
        if digits < 0:
            kind = t.Decimal(min(max(whole, -digits + 1), 38), 0)
        else:
            scale = min(kind.scale, digits)
            kind = t.Decimal(min(whole + scale, 38), scale)
    return Call(name, (item, *items[1:]), kind)


def _call_floor(name: str, items: Sequence[Expression]) -> Call:
    item = _number(items[0], name)
    kind = item.type
    if isinstance(kind, t.Decimal):
        return Call(name, (item,), t.Decimal(min(kind.precision - kind.scale + 1, 38), 0))
    return Call(name, (item,), t.BigInt())


def _call_date_part(name: str, items: Sequence[Expression]) -> Call:
    item = items[0]
    if is_text_literal(item) or untyped(item):
        item = cast(item, t.Date())
    if family(item.type) != "instant":
        raise InvalidInputError(
            f"cannot use {name}: '{sql(item)}' is {type_text(item)}, not a date or timestamp. CAST it AS DATE."
        )
    return Call(name, (item,), t.Int())


def _number(item: Expression, name: str) -> Expression:
    if untyped(item):
        return Literal(None, t.Double())
    if family(item.type) not in ("exact", "float"):
        raise InvalidInputError(f"cannot use {name}: '{sql(item)}' is {type_text(item)}, not a number. CAST it to one.")
    return item


def _constant_integer(item: Expression, name: str) -> int:
    if isinstance(item, Literal) and isinstance(item.value, int) and type(item.type) in INTEGER_BITS:
        return item.value
    raise InvalidInputError(f"cannot use {name}: '{sql(item)}' must be a whole number, written as a literal")


FUNCTIONS: Final[dict[str, tuple[int, int, Callable[[str, Sequence[Expression]], Call]]]] = {
    "lower": (1, 1, _call_text),
    "upper": (1, 1, _call_text),
    "trim": (1, 1, _call_text),
    "ltrim": (1, 1, _call_text),
    "rtrim": (1, 1, _call_text),
    "length": (1, 1, _call_length),
    "substring": (2, 3, _call_substring),
    "abs": (1, 1, _call_abs),
    "round": (1, 2, _call_round),
    "floor": (1, 1, _call_floor),
    "ceil": (1, 1, _call_floor),
    "year": (1, 1, _call_date_part),
    "month": (1, 1, _call_date_part),
    "day": (1, 1, _call_date_part),
}
"""Functions by name: fewest and most arguments, and what checks and types a call."""


def call(name: str, items: Sequence[Expression]) -> Expression:
    """Return a call of one of FUNCTIONS.

    Raises:
        InvalidInputError: the wrong number or types of arguments.
    """
    fewest, most, make = FUNCTIONS[name]
    if not fewest <= len(items) <= most:
        wanted = str(fewest) if fewest == most else f"{fewest} or {most}"
        raise InvalidInputError(f"cannot use {name}: it takes {wanted} arguments, not {len(items)}")
    return make(name, items)

"""The functions of expressions: what they take, and the type of what they give."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from merganser.errors import InvalidInputError
from merganser.expr.build import as_text, cast, is_text_literal, type_text, untyped
from merganser.expr.compare import family
from merganser.expr.literal import INTEGER_BITS
from merganser.expr.setting import checked_zone
from merganser.expr.times import DAY_MICROS, PARTS, UNITS
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
    if name in ("hour", "minute", "second") and is_text_literal(item):
        item = cast(item, t.Timestamp(6))
    return Call(name, (_temporal(item, name),), t.Int())


def _call_wall_clock(name: str, items: Sequence[Expression]) -> Call:
    item, zone = _instant(items[0], name, t.LocalZonedTimestamp), _constant_text(items[1], name)
    assert isinstance(item.type, t.LocalZonedTimestamp), item
    return Call(name, (item, _zone(zone)), t.Timestamp(item.type.precision))


def _call_instant_at(name: str, items: Sequence[Expression]) -> Call:
    item, zone = _instant(items[0], name, t.Timestamp), _constant_text(items[1], name)
    assert isinstance(item.type, t.Timestamp), item
    return Call(name, (item, _zone(zone)), t.LocalZonedTimestamp(item.type.precision))


def _zone(name: str) -> Literal:
    return Literal(checked_zone(name) or "UTC", t.string())


def _instant(item: Expression, name: str, wanted: type[t.DataType]) -> Expression:
    if isinstance(item.type, wanted):
        return item
    raise InvalidInputError(
        f"cannot use {name}: '{sql(item)}' is {type_text(item)}, not {wanted().with_nullable(True)}. CAST it."
    )


def _call_start_of(name: str, items: Sequence[Expression]) -> Call:
    item, unit = _temporal(items[0], name), _constant_text(items[1], name)
    if unit.lower() not in UNITS:
        raise InvalidInputError(f"cannot go back to the start of a '{unit}'. Name one of {', '.join(sorted(UNITS))}.")
    return Call(name, (item, Literal(unit.lower(), t.string())), item.type.with_nullable(True))


def _call_of_date(name: str, items: Sequence[Expression]) -> Call:
    item = cast(_temporal(items[0], name), t.Date())
    return Call(name, (item,), t.Date() if name == "last_day" else t.Int())


def _call_plus_interval(name: str, items: Sequence[Expression]) -> Call:
    item = _temporal(items[0], name)
    micros = _constant_integer(items[2], name)
    _constant_integer(items[1], name)
    kind = item.type.with_nullable(True)
    fine = 6 if micros % 1_000 else 3 if micros % 1_000_000 else 0
    if isinstance(kind, t.Date) and micros % DAY_MICROS:
        kind = t.Timestamp(fine)
    elif isinstance(kind, t.Timestamp | t.LocalZonedTimestamp):
        kind = type(kind)(max(kind.precision, fine))
    return Call(name, (item, *items[1:]), kind)


def _temporal(item: Expression, name: str) -> Expression:
    if is_text_literal(item) or untyped(item):
        item = cast(item, t.Date())
    if family(item.type) != "instant":
        raise InvalidInputError(
            f"cannot use {name}: '{sql(item)}' is {type_text(item)}, not a date or timestamp. CAST it AS DATE."
        )
    return item


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


def _constant_text(item: Expression, name: str) -> str:
    if isinstance(item, Literal) and isinstance(item.value, str):
        return item.value
    raise InvalidInputError(f"cannot use {name}: '{sql(item)}' must be a text, written as a literal")


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
    **dict.fromkeys(PARTS, (1, 1, _call_date_part)),
    "wall_clock": (2, 2, _call_wall_clock),
    "instant_at": (2, 2, _call_instant_at),
    "start_of": (2, 2, _call_start_of),
    "last_day": (1, 1, _call_of_date),
    "unix_date": (1, 1, _call_of_date),
    "plus_interval": (3, 3, _call_plus_interval),
}
"""Functions by name: fewest and most arguments, and what checks and types a call.

`wall_clock` and `instant_at` move timestamps between UTC and a zone, `start_of` is date_trunc and trunc, and
`plus_interval` takes months and microseconds.
"""


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

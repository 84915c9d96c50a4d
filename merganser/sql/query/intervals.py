"""Intervals of days, hours, minutes and seconds: what Spark gives for the difference of two times.

DuckDB computes with their microseconds as a BIGINT, which is the range that Spark has. Its own intervals count months
apart, and compare 30 days as equal to a month.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

from sqlglot import exp

from merganser.errors import InvalidInputError, UnsupportedError
from merganser.schema import types as t
from merganser.sql.dialect import Queries
from merganser.sql.query.kinds import WHOLE, Interval, Value, duck, is_null

FIELDS: Final = ("DAY", "HOUR", "MINUTE", "SECOND")
MICROS: Final = (86_400_000_000, 3_600_000_000, 60_000_000, 1_000_000)
_UNITS: Final[dict[str, tuple[int, int]]] = {
    "WEEK": (0, 7 * MICROS[0]), **{name: (i, MICROS[i]) for i, name in enumerate(FIELDS)},
    "MILLISECOND": (3, 1_000), "MICROSECOND": (3, 1),
}  # fmt: skip
"""The field that a unit belongs to, and its microseconds."""
_MOST: Final = (None, 23, 59, 59)


def unit_of(node: exp.Interval) -> str:
    """Return the unit of an interval in the singular; empty if it has two, as DAY TO SECOND has."""
    unit = node.args.get("unit")
    return "" if unit is None or isinstance(unit, exp.IntervalSpan) else str(unit.name).upper().rstrip("S")


def literal(node: exp.Interval) -> Value:
    """Return the value of `INTERVAL '1' DAY`, `INTERVAL 90 MINUTES`, `INTERVAL '1 02:00:00' DAY TO SECOND`.

    Raises:
        UnsupportedError: it has months or years, or a number that is no literal.
    """
    return _value(*_parsed(node))


def listed(node: exp.Expression) -> Value | None:
    """Return the value of `INTERVAL 1 DAY 2 HOURS`, which is a sum in the tree; None if the node is something else."""
    parts: list[tuple[int, Interval]] = []
    while isinstance(node, exp.Add) and isinstance(node.expression, exp.Interval):
        parts.append(_parsed(node.expression))
        node = node.this
    if not parts or not isinstance(node, exp.Interval):
        return None
    micros, kind = _parsed(node)
    for more, other in parts:
        micros, kind = micros + more, kind.wider(other)
    return _value(micros, kind)


def _value(micros: int, kind: Interval) -> Value:
    return Value(f"CAST({micros} AS BIGINT)", kind, _shown(micros, kind))


def _parsed(node: exp.Interval) -> tuple[int, Interval]:
    """Return the microseconds of a literal, and its type."""
    number, unit = node.this, node.args.get("unit")
    negative = isinstance(number, exp.Neg)
    number = number.this if negative else number
    if not isinstance(number, exp.Literal):
        raise _unsupported(node)
    text = ("-" if negative else "") + number.name.strip()
    if isinstance(unit, exp.IntervalSpan):
        names = [str(unit.args[key].name).upper() for key in ("this", "expression")]
        if any(name not in FIELDS for name in names):
            raise _unsupported(node)
        kind = Interval(first=FIELDS.index(names[0]), last=FIELDS.index(names[1]))
        micros = _of_span(text, kind, node)
    else:
        name = unit_of(node)
        decimals = r"(\.\d{1,6})?" if name == "SECOND" else ""
        if name not in _UNITS or re.fullmatch(rf"[+-]?\d{{1,18}}{decimals}", text) is None:
            raise _unsupported(node)
        place, size = _UNITS[name]
        kind, micros = Interval(first=place, last=place), int(Decimal(text) * size)
    if not -(2**63) <= micros < 2**63:
        raise InvalidInputError(f"{node.sql(dialect=Queries)} is outside of the range of intervals.")
    return micros, kind


def _unsupported(node: exp.Interval) -> UnsupportedError:
    return UnsupportedError(
        f"cannot compute {node.sql(dialect=Queries)} in this process: intervals have days, hours, minutes and seconds "
        "here, as literals. Months and years can be added to a date or a time. Run the statement on Spark."
    )


def _of_span(text: str, kind: Interval, node: exp.Interval) -> int:
    """Return the microseconds of text such as '1 02:00:00'."""
    parts = [r"(\d{1,9})", *[r"(\d{1,2})"] * (kind.last - kind.first)]
    marks = [" " if place == 0 else ":" for place in range(kind.first, kind.last)]
    fraction = r"(?:\.(\d{1,6}))?" if kind.last == 3 else "()"
    form = parts[0] + "".join(mark + part for mark, part in zip(marks, parts[1:], strict=True))
    found = re.fullmatch(f"([+-]?){form}{fraction}", text)
    if kind.first >= kind.last or found is None:
        raise _unsupported(node)
    sign, *numbers, decimals = found.groups()
    micros = int((decimals or "").ljust(6, "0"))
    for place, number in enumerate(numbers, kind.first):
        most = _MOST[place]
        if place > kind.first and most is not None and int(number) > most:
            raise InvalidInputError(f"{node.sql(dialect=Queries)} has {number} in place of 0 to {most}.")
        micros += int(number) * MICROS[place]
    return -micros if sign == "-" else micros


def _shown(micros: int, kind: Interval) -> str:
    """Return an interval as Spark writes it."""
    rest, text = abs(micros), "-" if micros < 0 else ""
    for place in range(kind.first, kind.last + 1):
        count, rest = divmod(rest, MICROS[place])
        text += "" if place == kind.first else " " if place == 1 else ":"
        text += str(count) if place == 0 else f"{count:02}"
    if kind.last == 3 and rest:
        text += f".{rest:06}".rstrip("0")
    return f"INTERVAL '{text}' {kind.fields()}"


def cast_interval(x: str, given: Interval, kind: t.DataType, target: str, name: str) -> str | None:
    """Return the cast of an interval to another type; None if Spark has none.

    Args:
        x: its text.
        target: the type in DuckDB.
        name: CAST or TRY_CAST.

    Raises:
        UnsupportedError: this process has none.
    """
    if isinstance(kind, WHOLE):
        return f"{name}({x} // {MICROS[given.last]} AS {target})"
    if isinstance(kind, t.Decimal):
        raise UnsupportedError(
            f"cannot cast {given} to {kind} in this process. Use timestampdiff(MICROSECOND, a, b), or run it on Spark."
        )
    if not isinstance(kind, t.VarChar | t.Char):
        return None
    if (given.first, given.last) not in ((0, 0), (0, 3)):
        raise UnsupportedError(f"cannot cast {given} to STRING in this process. Run the statement on Spark.")
    parts = [f"CASE WHEN {x} < 0 THEN '-' ELSE '' END || abs({x}) // {MICROS[0]}"]
    if given.last == 3:
        for place, mark in ((1, " "), (2, ":"), (3, ":")):
            parts.append(f"'{mark}' || lpad(CAST({_field(f'abs({x})', place)} AS VARCHAR), 2, '0')")
        parts.append(f"rtrim(rtrim('.' || lpad(CAST(abs({x}) % {MICROS[3]} AS VARCHAR), 6, '0'), '0'), '.')")
    return "('INTERVAL ''' || " + " || ".join(parts) + f" || ''' {given.fields()}')"


def _field(x: str, place: int) -> str:
    """Return a field of an interval, with its sign."""
    most = _MOST[place]
    return f"{x} // {MICROS[place]}" + ("" if most is None else f" % {most + 1}")


def extracted_from(unit: str, value: Value) -> Value:
    """Return a field of an interval.

    Raises:
        InvalidInputError: it has no such field.
    """
    kind = value.type
    assert isinstance(kind, Interval)
    if unit not in ("day", "hour", "minute", "second") or not kind.first <= FIELDS.index(unit.upper()) <= kind.last:
        raise InvalidInputError(f"cannot extract {unit.upper()} from {value.name}: it is {kind}.")
    place = FIELDS.index(unit.upper())
    if unit == "second":
        rest = f"CAST({value.text} % {MICROS[2]} AS DECIMAL(8,0))"
        return Value(f"CAST({rest} * 0.000001::DECIMAL(6,6) AS DECIMAL(8,6))", t.Decimal(8, 6))
    made: t.DataType = t.TinyInt() if place else t.Int()
    return Value(f"CAST({_field(value.text, place)} AS {duck(made)})", made)


def computed(op: str, left: Value, right: Value) -> Value:
    """Return the sum or the difference of intervals, or an interval times or by a whole number.

    Raises:
        UnsupportedError: the sides are others.
    """
    a, b = left.type, right.type
    name = f"({left.name} {op} {right.name})"
    if isinstance(a, Interval) and isinstance(b, Interval) and op in "+-":
        return Value(f"({left.text} {op} {right.text})", a.wider(b), name)
    if op == "*" and isinstance(a, WHOLE):
        return computed(op, right, left).named(f"({right.name} * {left.name})")
    if isinstance(a, Interval) and isinstance(b, WHOLE) and op in "*/":
        number = f"CAST({right.text} AS BIGINT)"
        text = f"({left.text} * {number})" if op == "*" else f"_quotient({left.text}, {number})"
        return Value(text, Interval(first=0, last=3), name)
    if is_null(a) or is_null(b):
        return Value("CAST(NULL AS BIGINT)", Interval(first=0, last=3), name)
    raise UnsupportedError(
        f"cannot compute {left.name} {op} {right.name} in this process: the sides are {a} and {b}. Run the statement "
        "on Spark."
    )

"""The time of a partition, from its values: text in a pattern, read by a form that is written as Java's are.

``partition.timestamp-pattern`` makes the text, `$name` standing for the value of a partition column; without it the
text is the first partition value. ``partition.timestamp-formatter`` says how to read it. Without it the text is
`yyyy-MM-dd` or `yyyy-MM-dd HH:mm:ss`, numbers of any width, a month 13 being the next January. Pure.

The times have no zone; expiry compares them with the clock in UTC.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Final

from merganser.errors import InvalidInputError, UnsupportedError

_DEFAULT: Final = re.compile(
    r"([+-]?\d{1,10})-(-?\d{1,2})-(-?\d{1,2})(?: (-?\d{1,2}):(-?\d{1,2}):(-?\d{1,2})(?:\.(\d{1,9}))?)?", re.ASCII
)
_RUN: Final = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|.", re.DOTALL)

_MONTHS: Final = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
                  "November", "December")  # fmt: skip


def partition_text(pattern: str | None, values: Mapping[str, str | None]) -> str | None:
    """Return the text that holds the time of a partition; None when a value it needs is null.

    Args:
        pattern: with `$name` for values, the longest name that fits; None: the first value.
        values: partition values as text, by column, in order.
    """
    if pattern is None:
        return next(iter(values.values()))
    names = sorted(values, key=len, reverse=True)
    found = re.compile("|".join(re.escape(f"${name}") for name in names))
    used = {match[0][1:] for match in found.finditer(pattern)}
    if any(values[name] is None for name in used):
        return None
    return found.sub(lambda match: values[match[0][1:]] or "", pattern)


def time_reader(form: str | None) -> Callable[[str], datetime | None]:
    """Return what reads a text as a time; it returns None of a text that is none.

    Raises:
        InvalidInputError: the form has a letter or a bracket that has no meaning.
        UnsupportedError: it has a letter that is not read here.
    """
    if form is None:
        return _read_default
    expression, fields = _compiled(form)

    def read(text: str) -> datetime | None:
        found = expression.fullmatch(text)
        return None if found is None else _time({name: found[group] for group, name in fields.items()})

    return read


def _read_default(text: str) -> datetime | None:
    found = _DEFAULT.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second = (int(part or 0) for part in found.groups()[:6])
    years, month = divmod(month - 1, 12)
    try:
        start = datetime(year + years, month + 1, 1)  # noqa: DTZ001 - of no zone
        micros = int((found[7] or "").ljust(6, "0")[:6])
        return start + timedelta(days=day - 1, hours=hour, minutes=minute, seconds=second, microseconds=micros)
    except (ValueError, OverflowError):
        return None


def _compiled(form: str) -> tuple[re.Pattern[str], dict[str, str]]:
    """Return an expression of a form, and which field each of its groups holds."""
    parts: list[str] = []
    fields: dict[str, str] = {}
    runs = [(match[0], match[1], match[2]) for match in _RUN.finditer(form)]
    depth = 0
    for position, (run, quoted, letter) in enumerate(runs):
        if quoted is not None:
            parts.append(re.escape(quoted.replace("''", "'") or "'"))
        elif letter is not None:
            adjacent = position + 1 < len(runs) and runs[position + 1][2] is not None
            group = f"f{len(fields)}"
            name, expression = _field(letter, len(run), form, adjacent=adjacent)
            fields[group] = name
            parts.append(f"(?P<{group}>{expression})")
        elif run == "[":
            depth += 1
            parts.append("(?:")
        elif run == "]" and depth:
            depth -= 1
            parts.append(")?")
        elif run in "]{}#'":
            raise _meaningless(form, run)
        else:
            parts.append(re.escape(run))
    if depth:
        raise _meaningless(form, "[")
    return re.compile("".join(parts), re.ASCII), fields


def _field(letter: str, count: int, form: str, *, adjacent: bool) -> tuple[str, str]:
    """Return the field of a run of one letter, and an expression of its text.

    A single letter takes as many digits as there are, unless another number follows at once.
    """
    free = f"\\d{{1,{2 if adjacent else 19}}}"
    match letter:
        case "y" | "u" if count == 2:
            return "year of the century", r"\d{2}"
        case "y" | "u":
            return "year", r"[+-]?\d{1,10}" if count == 1 and not adjacent else rf"\d{{{max(count, 4)}}}"
        case "M" | "L" if count == 3:
            return "month name", "|".join(name[:3] for name in _MONTHS)
        case "M" | "L" if count == 4:
            return "month name", "|".join(_MONTHS)
        case "M" | "L" | "d" | "H" | "m" | "s" | "h" | "k" | "K" if count <= 2:
            name = {"M": "month", "L": "month", "d": "day", "H": "hour", "m": "minute", "s": "second"}.get(letter)
            return name or f"hour {letter}", free if count == 1 else r"\d{2}"
        case "D" if count <= 3:
            return "day of the year", r"\d{1,3}" if count == 1 else rf"\d{{{count},3}}"
        case "S" | "n":
            return ("fraction", rf"\d{{{count}}}") if letter == "S" else ("nano", r"\d{1,9}")
        case "a" if count == 1:
            return "half", "AM|PM"
    if letter in "GQqYwWeEcFABNVvzOXxZpg":
        raise UnsupportedError(
            f"cannot read times of the form '{form}': the letter '{letter}', {count} times, is not read here. Use "
            "y, M, d, D, H, h, k, K, a, m, s, S and n, or the strategy 'update-time'.",
            form=form,
        )
    raise _meaningless(form, letter)


def _time(fields: Mapping[str, str | None]) -> datetime | None:
    """Return the time of fields as they stand in a text; None when they are none, or when they tell no day."""
    parts = {name: text for name, text in fields.items() if text is not None}

    def number(name: str, default: int) -> int:
        return int(parts.get(name, default))

    if "year" not in parts and "year of the century" not in parts:
        return None
    year = number("year", 0) if "year" in parts else 2000 + number("year of the century", 0)
    month = number("month", 1)
    if "month name" in parts:
        month = 1 + [name[:3] for name in _MONTHS].index(parts["month name"][:3])
    if "day of the year" not in parts and not ("day" in parts and ("month" in parts or "month name" in parts)):
        return None
    hour = number("hour", 0)
    half = 12 if parts.get("half") == "PM" else 0
    if "hour h" in parts:
        hour = number("hour h", 12) % 12 + half
    elif "hour K" in parts:
        hour = number("hour K", 0) + half
    elif "hour k" in parts:
        hour = number("hour k", 24) % 24
    micros = int(parts["fraction"].ljust(6, "0")[:6]) if "fraction" in parts else number("nano", 0) // 1000
    try:
        day_of_month = number("day", 1)
        if 28 < day_of_month <= 31:  # a day that this month lacks is its last
            day_of_month = min(day_of_month, monthrange(year, month)[1])
        start = datetime(year, month, day_of_month, hour, number("minute", 0), number("second", 0), micros)  # noqa: DTZ001 - of no zone
        if "day of the year" in parts:
            day = start.replace(month=1, day=1) + timedelta(days=number("day of the year", 1) - 1)
            return day if day.year == year else None
        return start
    except (ValueError, OverflowError):
        return None


def _meaningless(form: str, letter: str) -> InvalidInputError:
    return InvalidInputError(
        f"'partition.timestamp-formatter' is '{form}', in which '{letter}' has no meaning. Write it as Java does, such "
        "as 'yyyyMMdd' or \"yyyy-MM-dd'T'HH\".",
        option="partition.timestamp-formatter",
    )

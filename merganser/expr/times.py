"""Dates and timestamps over Arrow columns: their parts, time zones, and intervals added to them.

The calendar is the proleptic Gregorian one, as in Spark. An instant (TIMESTAMP_LTZ) is taken as UTC unless it went
through `wall_clocks` before.
"""

from __future__ import annotations

import re
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merganser.errors import InvalidInputError
from merganser.expr.compare import Values, integers
from merganser.expr.setting import offset_seconds
from merganser.expr.tree import UNITS_PER_SECOND
from merganser.schema import types as t
from merganser.schema.arrow import arrow_type, timestamp_unit

DAY_MICROS: Final = 86_400_000_000
_MICROS: Final = 1_000_000
_DAY: Final = 86_400

_PARTS: Final[dict[str, Any]] = {
    "year": pc.year,
    "quarter": pc.quarter,
    "month": pc.month,
    "day": pc.day,
    "dayofyear": pc.day_of_year,
    "dayofweek": lambda values: pc.day_of_week(values, count_from_zero=False, week_start=7),
    "weekday": pc.day_of_week,
    "weekofyear": pc.iso_week,
    "hour": pc.hour,
    "minute": pc.minute,
    "second": pc.second,
}
_CLOCK: Final = ("hour", "minute", "second")
PARTS: Final = tuple(_PARTS)

UNITS: Final = {
    "year": "year", "yyyy": "year", "yy": "year", "quarter": "quarter", "month": "month", "mm": "month",
    "mon": "month", "week": "week", "day": "day", "dd": "day", "hour": "hour", "minute": "minute", "second": "second",
    "millisecond": "millisecond", "microsecond": "microsecond",
}  # fmt: skip
"""What `start_of` goes back to, by the names that Spark has for it."""
_MONTHS: Final = {"year": 12, "quarter": 3, "month": 1}
_FIXED: Final = {
    "week": 7 * DAY_MICROS, "day": DAY_MICROS, "hour": 3_600 * _MICROS, "minute": 60 * _MICROS, "second": _MICROS,
    "millisecond": 1_000, "microsecond": 1,
}  # fmt: skip
_SPAN: Final = ("day", "hour", "minute", "second")


def part(name: str, values: Values, source: t.DataType) -> Values:
    """Return a part of dates or timestamps, one of PARTS, as INT."""
    if isinstance(source, t.Date) and name in _CLOCK:
        return pc.if_else(values.is_valid(), pa.scalar(0, pa.int32()), pa.scalar(None, pa.int32()))
    return _PARTS[name](_plain(values, source)).cast(pa.int32())


def wall_clocks(values: Values, kind: t.LocalZonedTimestamp, zone: str) -> Values:
    """Return what clocks in a zone show at instants, as TIMESTAMP of the same precision."""
    raw, seconds, per_second = _in_seconds(values, kind)
    shown = raw + _offsets(seconds, zone) * per_second
    return pa.array(shown, mask=np.asarray(values.is_null())).cast(arrow_type(t.Timestamp(kind.precision)))


def instants(values: Values, kind: t.Timestamp, zone: str) -> Values:
    """Return the instants at which clocks in a zone show timestamps, as TIMESTAMP_LTZ of the same precision.

    A time that clocks show twice is the earlier one. A time that they skip is as much later as they skip: it has the
    offset from before.
    """
    raw, seconds, per_second = _in_seconds(values, kind)
    before, after = _offsets(seconds - _DAY, zone), _offsets(seconds + _DAY, zone)
    late = (_offsets(seconds - before, zone) != before) & (_offsets(seconds - after, zone) == after)
    found = raw - np.where(late, after, before) * per_second
    return pa.array(found, mask=np.asarray(values.is_null())).cast(arrow_type(t.LocalZonedTimestamp(kind.precision)))


def _in_seconds(values: Values, kind: t.Timestamp | t.LocalZonedTimestamp) -> tuple[Any, Any, int]:
    """Return the stored integers of timestamps (0 for null), the same in whole seconds, and how many are a second."""
    per_second = UNITS_PER_SECOND[timestamp_unit(kind.precision)]
    raw = np.asarray(pc.fill_null(integers(values, kind), 0))
    return raw, raw // per_second, per_second


def _offsets(seconds: Any, zone: str) -> Any:
    """Return by how many seconds a zone is ahead of UTC at instants, given in seconds since 1970.

    Day by day, since Arrow's own functions know no change of clocks after 2037.
    """
    days, which = np.unique(seconds // _DAY, return_inverse=True)
    first, change, then = np.array([_day(zone, day) for day in days.tolist()], np.int64).reshape(-1, 3).T
    return np.where(seconds < change[which], first[which], then[which])


@lru_cache(maxsize=1 << 16)
def _day(zone: str, day: int) -> tuple[int, int, int]:
    """Return the offset at the start of a day in UTC, when it changes, and the one after it, all in seconds."""
    low, high = day * _DAY, (day + 1) * _DAY
    first, then = offset_seconds(zone, low), offset_seconds(zone, high - 1)
    while first != then and high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if offset_seconds(zone, middle) == first else (low, middle)
    return first, high, then


def start_of(values: Values, kind: t.DataType, unit: str) -> Values:
    """Return the start of the unit of `UNITS` that dates or timestamps lie in; weeks begin on Monday."""
    plain = _plain(values, kind)
    wide = plain.cast(pa.timestamp("s")) if isinstance(kind, t.Date) else plain
    return pc.floor_temporal(wide, unit=UNITS[unit.lower()], week_starts_monday=True).cast(arrow_type(kind))


def last_day(values: Values) -> Values:
    """Return the last day of the month of dates."""
    days = pc.fill_null(integers(values, t.Date()), 0)
    months = np.asarray(days).astype("datetime64[D]").astype("datetime64[M]") + 1
    return _days(months.astype("datetime64[D]") - 1, values)


def plus_interval(values: Values, source: t.DataType, kind: t.DataType, months: int, micros: int) -> Values:
    """Return dates or timestamps plus months and then microseconds.

    A day that a month does not have becomes the last day of that month.

    Args:
        values: n values of type `source`.
        source: their type.
        kind: the result type: that of the values, TIMESTAMP if a date gets a time of day, or a finer one.
        months: how many months later.
        micros: how many microseconds later.

    Raises:
        pa.ArrowInvalid: a result is out of the range of its type.
    """
    if isinstance(kind, t.Date):
        raw = pc.add_checked(_later(values, source, months, 1), micros // DAY_MICROS)
        return raw.cast(pa.int32()).cast(pa.date32())
    assert isinstance(kind, t.Timestamp | t.LocalZonedTimestamp), kind
    per_second = UNITS_PER_SECOND[timestamp_unit(kind.precision)]
    raw = _later(values.cast(arrow_type(kind)), kind, months, per_second * 86_400)
    return pc.add_checked(raw, micros * per_second // _MICROS).cast(arrow_type(kind))


def _later(values: Values, kind: t.DataType, months: int, per_day: int) -> Values:
    """Return the stored integers of values some months later, as int64."""
    raw = integers(values, kind).cast(pa.int64())
    if not months:
        return raw
    numbers = np.asarray(pc.fill_null(raw, 0))
    days, rest = np.divmod(numbers, per_day)
    day = days.astype("datetime64[D]")
    month = day.astype("datetime64[M]")
    first = (month + months).astype("datetime64[D]")
    length = (month + months + 1).astype("datetime64[D]") - first
    moved = first + np.minimum(day - month.astype("datetime64[D]"), length - 1)
    later = moved.astype(np.int64)
    if np.abs(later).max(initial=0) > (2**63 - 1) // per_day - 1:
        raise pa.ArrowInvalid("a date is out of range")
    return pa.array(later * per_day + rest, mask=np.asarray(raw.is_null()))


def _days(days: Any, values: Values) -> Values:
    return pa.array(days.astype(np.int32), pa.int32(), mask=np.asarray(values.is_null())).cast(pa.date32())


def _plain(values: Values, kind: t.DataType) -> Values:
    """Return instants without their zone, so that no database of time zones is asked."""
    return values.cast(pa.timestamp(values.type.unit)) if isinstance(kind, t.LocalZonedTimestamp) else values


def interval(text: str, unit: str | None, to: str | None = None) -> tuple[int, int]:
    """Return an interval as months and microseconds.

    Args:
        text: `7`, `-1.5`; with `to`, `1 02:03:04` or `1-2`; without a unit, `1 day 2 hours`.
        unit: `DAY`, `HOURS`, ...
        to: the last unit of a span, such as SECOND of DAY TO SECOND.

    Raises:
        InvalidInputError: the text is no interval.
    """
    try:
        return _interval(text, unit, to)
    except (ValueError, KeyError, ArithmeticError):
        shown = f"INTERVAL '{text}'{f' {unit}' if unit else ''}{f' TO {to}' if to else ''}"
        raise InvalidInputError(
            f"cannot use {shown}: it is no interval. Write INTERVAL 7 DAYS, INTERVAL '1' MONTH or INTERVAL "
            "'1 02:00:00' DAY TO SECOND.",
            text=text,
        ) from None


def _interval(text: str, unit: str | None, to: str | None) -> tuple[int, int]:
    words = text.strip().removeprefix("interval").split()
    if unit is None:
        if not words or len(words) % 2:
            raise ValueError
        parts = [_interval(words[i], words[i + 1], None) for i in range(0, len(words), 2)]
        return sum(months for months, _ in parts), sum(micros for _, micros in parts)
    name = unit.lower().removesuffix("s")
    if to is None:
        number = Decimal(text.strip())
        if name in _MONTHS:
            months = int(number)
            if months != number:
                raise ValueError
            return months * _MONTHS[name], 0
        return 0, int(number * _FIXED[name])
    sign = -1 if text.strip().startswith("-") else 1
    body = text.strip().lstrip("+-")
    last = to.lower().removesuffix("s")
    if (name, last) == ("year", "month"):
        years, months_text = body.split("-")
        return sign * (int(years) * 12 + int(months_text)), 0
    units = _SPAN[_SPAN.index(name) : _SPAN.index(last) + 1]
    numbers = re.split(r"[ :]", body)
    if len(units) < 2 or len(numbers) != len(units):
        raise ValueError
    return 0, sign * sum(int(Decimal(number) * _FIXED[u]) for number, u in zip(numbers, units, strict=True))

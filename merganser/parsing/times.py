"""Texts and counts -> dates, times and timestamps. Digits that a column does not hold make a value bad.

A timestamp is a wall clock or an instant: text with `Z` or an offset behind it is an instant. In a column of the other
kind it is seen through the time zone of the rules, and never through the one of the machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merganser.expr.times import instants, wall_clocks
from merganser.parsing.cells import Cells
from merganser.parsing.json_scan import NUMBER, TEXT, Bools, Ints
from merganser.parsing.numbers import BEYOND, integers, trimmed
from merganser.parsing.outcome import Read, spread, whys
from merganser.parsing.rules import UNITS, Encoding, Rules
from merganser.schema import types as t
from merganser.schema.arrow import arrow_type, timestamp_unit
from merganser.schema.limits import FIRST_DAY, LAST_DAY
from merganser.schema.spans import spans
from merganser.values import dataclass

_DAY: Final = 86_400
_NANOS: Final = 1_000_000_000
_ZONE: Final = r"Z|[+-][0-9]{2}(?::?[0-9]{2})?"
_TAIL: Final = rf"^(?:\.(?P<fraction>[0-9]+))?(?P<zone>{_ZONE})?$"
_ZERO_DATE: Final = r"^0000-00-00(?:[ T:]00:00:00(?:\.0*)?)?Z?$"
_DIGITS: Final = r"^[+-]?[0-9]+$"
_LONG_MAX: Final = np.iinfo(np.int64).max
_LOST: Final = (
    "has digits that {} does not hold. Set the table option write.timestamp-precision='truncate' to drop them"
)
_NO_UNIT: Final = "is an integer of no known unit. Set time_unit"
_ZEROS: Final = "is a date of zeros. Set zero_dates='null' to write null"
_YEARS: Final = "beyond {}, which holds 0001-01-01 to 9999-12-31"
_NANO_YEARS: Final = "beyond {}, which holds 1677-09-22 to 2262-04-10"
_HOURS: Final = "beyond {}, which holds 00:00:00 to 23:59:59"
_OFFSET: Final = "has an offset, which {} does not hold"
_NOT_MIDNIGHT: Final = "is not midnight in {}, as {} needs. Set time_zone to the zone of its dates"
_BEYOND_DATE: Final = (
    r"(?i)^[+-]?infinity$|^[+-]?[0-9]{5,}-[0-9]{2}-[0-9]{2}|^-[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"|^[0-9]+-[0-9]{2}-[0-9]{2}.* BC$|^[0-9]{4}-[0-9]{2}-[0-9]{2}[ T:]24:00(?::00(?:\.0*)?)?$"
)
_BEYOND_CLOCK: Final = r"^(?:-[0-9]{1,3}|2[4-9]|[3-9][0-9]|[0-9]{3}):[0-9]{2}(?::[0-9]{2}(?:\.[0-9]+)?)?$"


def dates(cells: Cells, kind: t.Date, encoding: Encoding, rules: Rules) -> Read:
    """Return dates: `yyyy-MM-dd`, behind it a time of zeros at most, or days since 1970 where the rules say so.

    Moments are dates if they are midnight: of the clock that is written, and instants in the time zone of the rules.
    """
    plain = _by_arrow(cells, arrow_type(kind), size_min=10, size_max=10)
    if plain is not None:
        return plain
    n = len(cells.kinds)
    days, bad, beyond = np.zeros(n, np.int64), ~cells.empty, np.zeros(n, bool)
    counted = cells.kinds == NUMBER
    zero, shifted = np.zeros(n, bool), np.zeros(n, bool)
    written = cells.kinds == TEXT
    if written.any():
        texts = _whole(cells, written)
        found = _moments(texts)
        seconds = found.seconds
        zoned = (found.zones != _NO_ZONE) & ~found.dated
        if zoned.any() and encoding.form != "wall":  # an instant, which is a date if it is midnight
            seconds = np.where(zoned, _wall_seconds(seconds - np.where(zoned, found.zones, 0), rules), seconds)
            shifted[written] = zoned & ~found.bad
        wrong = found.bad | (seconds % _DAY != 0) | (found.nanos != 0)
        days[written], bad[written], beyond[written] = seconds // _DAY, wrong, found.beyond
        zero[written] = found.zero
    if counted.any() and encoding.unit:  # a timestamp of the source, or a time of the day
        count, wrong = _counts(cells, counted)
        seconds, rest = np.divmod(count, UNITS[encoding.unit])
        if encoding.form == "instant":
            seconds = _wall_seconds(seconds, rules)
        days[counted] = seconds // _DAY
        bad[counted] = wrong | (rest != 0) | (seconds % _DAY != 0) | (encoding.form == "clock")
    elif counted.any() and rules.days:
        days[counted], bad[counted] = _counts(cells, counted)
    beyond |= ~bad & ((days < FIRST_DAY) | (days > LAST_DAY))
    null, bad = _settled(cells.empty, bad, beyond, zero, rules)
    values = pa.array(np.where(null | bad, 0, days).astype(np.int32), mask=null | bad).view(pa.date32())
    name = _name(kind)
    return Read(
        values,
        bad,
        whys(
            (zero, _ZEROS),
            (beyond, BEYOND.format(_YEARS.format(name))),
            (shifted & bad, _NOT_MIDNIGHT.format(rules.time_zone or "UTC", name)),
            otherwise=f"is no {name}",
        )
        if bad.any()
        else "",
    )


def times(cells: Cells, kind: t.Time, encoding: Encoding, rules: Rules) -> Read:
    """Return times of the day."""
    n = len(cells.kinds)
    nanos, bad, beyond = np.zeros(n, np.int64), ~cells.empty, np.zeros(n, bool)
    no_unit, offset = np.zeros(n, bool), np.zeros(n, bool)
    counted = cells.kinds == NUMBER
    written = cells.kinds == TEXT
    if written.any():
        texts = _whole(cells, written)
        found = _times_of_day(texts)
        wrong = found.bad
        if encoding.form != "wall":  # the Z of ISO texts may go; another offset would make another time
            shifted = (found.zones != _NO_ZONE) & (found.zones != 0)
            offset[written], wrong = shifted & ~wrong, wrong | shifted
        nanos[written], bad[written], beyond[written] = found.seconds * _NANOS + found.nanos, wrong, found.beyond
        counted[written] = found.bad & found.digits
    if counted.any():
        count, wrong = _counts(cells, counted)
        per_second = rules.per_second(encoding.unit)
        if per_second:
            outside = ~wrong & ((count < 0) | (count >= _DAY * per_second))
            beyond[counted] = outside
            nanos[counted] = np.where(wrong | outside, 0, count) * (_NANOS // per_second)
            bad[counted] = wrong
        else:
            no_unit[counted] = ~wrong
    lost = ~bad & ~beyond & (nanos % 10 ** (9 - min(kind.precision, 3)) != 0) & (not rules.truncates)
    null, bad = _settled(cells.empty, bad | lost, beyond, np.zeros(n, bool), rules)
    values = pa.array((nanos // 1_000_000).astype(np.int32), mask=null | bad).view(pa.time32("ms"))
    if not bad.any():
        return Read(values, bad, "")
    name = _name(kind)
    stored = f"{name}, which is stored in milliseconds," if kind.precision > 3 else name
    why = whys(
        (no_unit, _NO_UNIT),
        (lost, _LOST.format(stored)),
        (offset, _OFFSET.format(name)),
        (beyond, BEYOND.format(_HOURS.format(name))),
        otherwise=f"is no {name}",
    )
    return Read(values, bad, why)


def timestamps(cells: Cells, kind: t.Timestamp | t.LocalZonedTimestamp, encoding: Encoding, rules: Rules) -> Read:
    """Return wall clocks or instants, as the column holds them."""
    instant = isinstance(kind, t.LocalZonedTimestamp)
    if kind.precision in (3, 6) and not (instant and encoding.form == "wall"):
        end = b"Z" if instant else b""
        plain = _by_arrow(cells, arrow_type(kind), size_min=19, colons=(13, 16), end=end)
        if plain is not None:
            return plain
    n = len(cells.kinds)
    seconds, nanos, bad = np.zeros(n, np.int64), np.zeros(n, np.int64), ~cells.empty
    no_unit, absolute, beyond, zero = (np.zeros(n, bool) for _ in range(4))
    counted = cells.kinds == NUMBER
    written = cells.kinds == TEXT
    if written.any():
        found = _moments(_whole(cells, written))
        clock = found.seconds
        if encoding.form != "wall":
            zoned = found.zones != _NO_ZONE
            clock = clock - np.where(zoned, found.zones, 0)
            absolute[written] = zoned
        seconds[written], nanos[written], bad[written] = clock, found.nanos, found.bad
        beyond[written], zero[written] = found.beyond, found.zero
        counted[written] = found.bad & found.digits
    if counted.any():
        count, wrong = _counts(cells, counted)
        per_second = rules.per_second(encoding.unit)
        if per_second:
            seconds[counted] = count // per_second
            nanos[counted] = count % per_second * (_NANOS // per_second)
            bad[counted] = wrong | (encoding.form == "clock")
            absolute[counted] = encoding.form == "instant"
        else:
            no_unit[counted] = ~wrong
    if rules.truncates:
        nanos -= nanos % 10 ** (9 - kind.precision)
    lost = ~bad & (nanos % 10 ** (9 - kind.precision) != 0)
    per_second = UNITS[timestamp_unit(kind.precision)]
    outside = (seconds < FIRST_DAY * _DAY) | (seconds >= (LAST_DAY + 1) * _DAY)
    if per_second == _NANOS:
        outside |= np.abs(seconds) >= _LONG_MAX // per_second - _DAY
    beyond |= ~bad & outside
    gone = bad | lost | beyond | cells.empty
    ticks = np.where(gone, 0, seconds) * per_second + np.where(gone, 0, nanos) // (_NANOS // per_second)
    values = _zoned(pa.array(ticks), kind, absolute, rules)
    if rules.time_zone is not None:
        shown = np.asarray(values.cast(pa.int64())) // per_second
        beyond |= ~gone & ((shown < FIRST_DAY * _DAY) | (shown >= (LAST_DAY + 1) * _DAY))
    null, bad = _settled(cells.empty, bad | lost, beyond, zero, rules)
    if (null | bad).any():
        values = pc.if_else(pa.array(null | bad), pa.scalar(None, values.type), values)
    if not bad.any():
        return Read(values, bad, "")
    name = _name(kind)
    years = _NANO_YEARS if per_second == _NANOS else _YEARS
    why = whys(
        (no_unit, _NO_UNIT),
        (lost, _LOST.format(name)),
        (zero, _ZEROS),
        (beyond, BEYOND.format(years.format(name))),
        otherwise=f"is no {name}",
    )
    return Read(values, bad, why)


def _by_arrow(
    cells: Cells, target: pa.DataType, *, size_min: int, size_max: int | None = None, colons: Sequence[int] = (),
    end: bytes = b"",
) -> Read | None:  # fmt: skip
    """Return dates or timestamps that Arrow reads as this module does, ten times as fast; None if one may differ.

    Arrow also takes clocks without minutes or seconds, offsets of more hours, and the year 0.

    Args:
        cells: null, or text.
        target: of a unit that all digits of the column fill.
        size_min, size_max: bytes of a text.
        colons: positions of colons in each.
        end: the last byte of each; b"" for any, since Arrow takes no zone where the type has none.
    """
    written = cells.kinds == TEXT
    if not written.any() or not (written | cells.empty).all():
        return None
    texts = _whole(cells, written)
    offsets, held = spans(texts)
    starts, sizes = offsets[:-1], np.diff(offsets)
    if sizes.min() < size_min or (size_max is not None and sizes.max() > size_max):
        return None
    if any((held[starts + at] != ord(":")).any() for at in colons):
        return None
    if end and (held[offsets[1:] - 1] != ord(end)).any():
        return None
    try:
        values = texts.cast(target)
    except pa.ArrowInvalid:
        return None
    days = pa.types.is_date(target)
    first = FIRST_DAY if days else FIRST_DAY * _DAY * UNITS[target.unit]
    if np.asarray(values.view(pa.int32() if days else pa.int64())).min() < first:
        return None
    return Read(spread(values, written), ~(written | cells.empty), "")


def clock_texts(cells: Cells, unit: str) -> tuple[Bools, pa.Array]:
    """Return which cells count from midnight, and the times that they mean as text, `HH:mm:ss` with the unit's digits.

    The times of MySQL reach from -838 to 838 hours.
    """
    at = cells.kinds == NUMBER
    count, wrong = _counts(cells, at)
    at[at] = ~wrong
    per_second = UNITS[unit]
    whole = np.abs(count[~wrong])
    seconds, rest = whole // per_second, whole % per_second

    def padded(numbers: Ints, width: int) -> pa.Array:
        return pc.utf8_lpad(pa.array(numbers).cast(pa.string()), width, "0")

    parts = [padded(part, 2) for part in (seconds // 3600, seconds // 60 % 60, seconds % 60)]
    text = pc.binary_join_element_wise(*parts, ":")
    if per_second > 1:
        text = pc.binary_join_element_wise(text, padded(rest, len(str(per_second)) - 1), ".")
    return at, pc.binary_join_element_wise(pc.if_else(pa.array(count[~wrong] < 0), "-", ""), text, "")


def _settled(empty: Bools, bad: Bools, beyond: Bools, zero: Bools, rules: Rules) -> tuple[Bools, Bools]:
    """Return which values are null and which are bad, after what the rules say of dates of zeros and far values."""
    null, bad = empty.copy(), bad | beyond
    for mask, is_null in ((beyond, rules.beyond_null), (zero, rules.zero_dates)):
        if is_null:
            null |= mask
            bad &= ~mask
    return null, bad


def _wall_seconds(seconds: Ints, rules: Rules) -> Ints:
    """Return instants as what a clock in the time zone of the rules shows."""
    if rules.time_zone is None:
        return seconds
    kind = t.LocalZonedTimestamp(0)
    inside = (seconds >= FIRST_DAY * _DAY) & (seconds < (LAST_DAY + 1) * _DAY)
    ticks = pa.array(np.where(inside, seconds, 0) * UNITS[timestamp_unit(0)]).view(arrow_type(kind))
    shown = np.asarray(wall_clocks(ticks, kind, rules.time_zone).cast(pa.int64())) // UNITS[timestamp_unit(0)]
    return np.where(inside, shown, seconds)


def _zoned(ticks: pa.Array, kind: t.Timestamp | t.LocalZonedTimestamp, absolute: Bools, rules: Rules) -> pa.Array:
    target = arrow_type(kind)
    plain = ticks.view(target) if rules.time_zone is None else None
    if plain is not None:
        return plain
    wall, instant = t.Timestamp(kind.precision), t.LocalZonedTimestamp(kind.precision)
    zone = rules.time_zone or "UTC"
    stays = absolute if isinstance(kind, t.LocalZonedTimestamp) else ~absolute
    as_is = ticks.view(target)
    if stays.all():
        return as_is
    if isinstance(kind, t.LocalZonedTimestamp):
        moved = instants(ticks.view(arrow_type(wall)), wall, zone)
    else:
        moved = wall_clocks(ticks.view(arrow_type(instant)), instant, zone)
    return pc.if_else(pa.array(stays), as_is, moved)


def _counts(cells: Cells, counted: Bools) -> tuple[Ints, Bools]:
    found = integers(cells.filter(counted), t.BigInt())
    return np.asarray(found.values.fill_null(0)), found.bad


def _whole(cells: Cells, written: Bools) -> pa.Array:
    return cells.texts if written.all() else cells.texts.filter(pa.array(written))


# texts


@dataclass(frozen=True, slots=True)
class _Found:
    """What n texts say.

    Attributes:
        seconds, nanos: since 1970 or since midnight, on the clock that is written.
        zones: offsets in seconds, or `_NO_ZONE`.
        bad: which say no time.
        dated: which have no clock.
        beyond: of the bad ones, those that say a time that the type does not have.
        zero: of the bad ones, dates of zeros.
        digits: of the bad ones, integers.
    """

    seconds: Ints
    nanos: Ints
    zones: Ints
    bad: Bools
    dated: Bools
    beyond: Bools
    zero: Bools
    digits: Bools


_Parsed = Callable[[pa.Array], tuple[Ints, Ints, Ints, Bools]]


def _moments(texts: pa.Array) -> _Found:
    return _looked_at_twice(texts, _timestamps, _DATE_FORMS, _BEYOND_DATE)


def _times_of_day(texts: pa.Array) -> _Found:
    return _looked_at_twice(texts, _clocks, _CLOCK_FORMS, _BEYOND_CLOCK)


_DATED: Final = rf"^([0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}) ?({_ZONE})?$"
_BLANK_BEFORE_ZONE: Final = (rf" ({_ZONE})$", r"\1")
_DATE_FORMS: Final = (
    (_DATED, r"\1 00:00:00\2"),
    (rf"^([0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}[ T:][0-9]{{2}}:[0-9]{{2}})( ?(?:{_ZONE}))?$", r"\1:00\2"),
    _BLANK_BEFORE_ZONE,
)
_CLOCK_FORMS: Final = ((rf"^([0-9]{{2}}:[0-9]{{2}})( ?(?:{_ZONE}))?$", r"\1:00\2"), _BLANK_BEFORE_ZONE)
"""Forms that are written in another way before they are read, and the way."""


def _looked_at_twice(texts: pa.Array, parsed: _Parsed, forms: Sequence[tuple[str, str]], far: str) -> _Found:
    """Return what texts say: most are of one form, and only those that are not are rewritten and read again."""
    seconds, nanos, zones, bad = parsed(texts)
    dated, beyond, zero, digits = (np.zeros(len(texts), bool) for _ in range(4))
    if bad.any():
        few = trimmed(texts.filter(pa.array(bad)))
        dated[bad] = np.asarray(pc.match_substring_regex(few, _DATED))
        zero[bad] = np.asarray(pc.match_substring_regex(few, _ZERO_DATE))
        digits[bad] = np.asarray(pc.match_substring_regex(few, _DIGITS))
        beyond[bad] = np.asarray(pc.match_substring_regex(few, far))
        for form, other in forms:
            few = pc.replace_substring_regex(few, form, other)
        seconds[bad], nanos[bad], zones[bad], bad[bad] = parsed(few)
    return _Found(seconds, nanos, zones, bad, dated, beyond & bad, zero & bad, digits & bad)


# digits

_NO_ZONE: Final = 1 << 30
_SHAPE_DATE: Final = b"0000-00-00"
_SHAPE_CLOCK: Final = b"00:00:00"


def _timestamps(texts: pa.Array) -> tuple[Ints, Ints, Ints, Bools]:
    """Return wall clocks as seconds since 1970 and nanoseconds, offsets of zones in seconds, and which are bad."""
    size = np.asarray(pc.binary_length(texts))
    n = len(texts)
    if n and (size == len(_SHAPE_DATE)).all():
        table = _bytes(texts, len(_SHAPE_DATE))
        days, bad = _days(table)
        return days * _DAY, np.zeros(n, np.int64), np.full(n, _NO_ZONE), bad
    short = size < 19
    if short.any():
        texts = pc.if_else(pa.array(short), "0000-00-00 00:00:00", texts)  # which is no date
    table = _bytes(texts, 19)
    days, bad = _days(table[:, :10])
    seconds, wrong = _seconds(table[:, 11:])
    between = table[:, 10]
    bad |= wrong | ((between != ord(" ")) & (between != ord("T")) & (between != ord(":")))
    nanos, zones, tail = _tails(texts, size, 19)
    return days * _DAY + seconds, nanos, zones, bad | tail | short


def _clocks(texts: pa.Array) -> tuple[Ints, Ints, Ints, Bools]:
    """Return times of the day as seconds and nanoseconds, offsets of zones in seconds, and which are bad."""
    size = np.asarray(pc.binary_length(texts))
    short = size < 8
    if short.any():
        texts = pc.if_else(pa.array(short), "00:00:00", texts)
    seconds, bad = _seconds(_bytes(texts, 8))
    nanos, zones, tail = _tails(texts, size, 8)
    return seconds, nanos, zones, bad | tail | short


def _bytes(texts: pa.Array, count: int) -> Any:
    """Return the first bytes of texts that are no shorter: uint8[n, count]."""
    cut = pc.binary_slice(texts.cast(pa.binary()), 0, count)
    start = np.frombuffer(cut.buffers()[1], np.int32)[cut.offset]
    data = np.frombuffer(cut.buffers()[2], np.uint8) if len(texts) else np.zeros(0, np.uint8)
    return data[start : start + len(texts) * count].reshape(-1, count)


def _shaped(table: Any, shape: bytes) -> Bools:
    wanted = np.frombuffer(shape, np.uint8)
    digit = wanted == ord("0")
    fits = np.all((table[:, digit] - np.uint8(ord("0"))) < 10, axis=1)
    return np.asarray(fits & np.all(table[:, ~digit] == wanted[~digit], axis=1))


def _number(table: Any, start: int, end: int) -> Ints:
    found = np.zeros(len(table), np.int64)
    for i in range(start, end):
        found = found * 10 + (table[:, i] - np.uint8(ord("0")))
    return found


def _days(table: Any) -> tuple[Ints, Bools]:
    bad = ~_shaped(table, _SHAPE_DATE)
    year, month, day = _number(table, 0, 4), _number(table, 5, 7), _number(table, 8, 10)
    bad |= (month < 1) | (month > 12) | (day < 1)
    months = np.where(bad, 0, (year - 1970) * 12 + month - 1)
    first = months.astype("M8[M]").astype("M8[D]").astype(np.int64)
    behind = (months + 1).astype("M8[M]").astype("M8[D]").astype(np.int64)
    bad |= day > behind - first
    return np.where(bad, 0, first + day - 1), bad


def _seconds(table: Any) -> tuple[Ints, Bools]:
    bad = ~_shaped(table, _SHAPE_CLOCK)
    hour, minute, second = _number(table, 0, 2), _number(table, 3, 5), _number(table, 6, 8)
    bad |= (hour > 23) | (minute > 59) | (second > 59)
    return np.where(bad, 0, hour * 3600 + minute * 60 + second), bad


def _tails(texts: pa.Array, size: Any, start: int) -> tuple[Ints, Ints, Bools]:
    """Return what stands behind the seconds: nanoseconds, the offset of a zone in seconds, and which are bad."""
    n = len(texts)
    nanos, zones, bad = np.zeros(n, np.int64), np.full(n, _NO_ZONE), np.zeros(n, bool)
    longer = size > start
    if not longer.any():
        return nanos, zones, bad
    tails = pc.utf8_slice_codeunits(texts if longer.all() else texts.filter(pa.array(longer)), start)
    coded = tails.dictionary_encode() if _few(tails) else None
    parts = pc.extract_regex(tails if coded is None else coded.dictionary, _TAIL)
    wrong = np.asarray(parts.is_null())
    fraction = pc.utf8_rtrim(pc.struct_field(parts, "fraction").fill_null(""), characters="0")
    wrong = wrong | np.asarray(pc.greater(pc.binary_length(fraction), 9))
    padded = pc.utf8_rpad(pc.if_else(pa.array(wrong), "", fraction), width=9, padding="0")
    found = np.asarray(padded.cast(pa.int64()))
    offsets, far = _offsets(pc.struct_field(parts, "zone").fill_null(""))
    wrong = wrong | far
    if coded is not None:
        which = np.asarray(coded.indices)
        found, offsets, wrong = found[which], offsets[which], wrong[which]
    nanos[longer], zones[longer], bad[longer] = found, offsets, wrong
    return nanos, zones, bad


def _few(tails: pa.Array) -> bool:
    """Return whether texts are mostly alike, judged by the first of them."""
    sample = tails.slice(0, 256)
    return bool(pc.count_distinct(sample).as_py() * 4 <= len(sample))


def _offsets(zones: pa.Array) -> tuple[Ints, Bools]:
    parts = pc.extract_regex(zones, r"^(?P<sign>[+-])(?P<hours>[0-9]{2}):?(?P<minutes>[0-9]{2})?$")
    hours, minutes = (
        np.asarray(pc.if_else(pc.equal(text, ""), "0", text).cast(pa.int64()))
        for text in (pc.struct_field(parts, name).fill_null("") for name in ("hours", "minutes"))
    )
    negative = np.asarray(pc.equal(pc.struct_field(parts, "sign"), "-").fill_null(False))
    seconds = hours * 3600 + minutes * 60
    none = np.asarray(pc.equal(zones, ""))
    far = (hours > 18) | (minutes > 59)
    return np.where(none, _NO_ZONE, np.where(negative, -seconds, seconds)), far


def _name(kind: t.DataType) -> str:
    return str(kind.with_nullable(True))

"""Columns of an older schema turned into text and back, letter for letter as the reference does.

Into text: floats as Java writes them (`1.0`, `1.0E20`, the fewest digits that read back as the value), decimals
without exponent, timestamps with as many fraction digits as their precision, TIME with at least one unless its
precision is 0; `[a, b]`, `{k -> v}` and `{x, y}` for containers, with `null` inside. Years beyond 9999 are written in
full, where the reference drops digits.

Out of text: blanks around a value are accepted only by FLOAT and DOUBLE and around the parts of a date or time; INT
accepts a fraction and drops it; text of digits alone is a count of days, milliseconds or ticks for DATE, TIME and
TIMESTAMP; a day that its month lacks is the last of the month in a TIMESTAMP and wrong in a DATE. A value that does
not parse makes the read fail; only decimals of too many digits are null. Fails here, though the reference reads it:
hexadecimal floats, digits other than 0 to 9, letters among the fraction digits of a TIME, a TIME outside the day.

Everything runs on whole columns but for two things, done once per distinct value of those concerned: decimals written
with an exponent, and the text of floats next to the smallest that there are.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merganser.schema import types as t
from merganser.schema.arrow import arrow_type
from merganser.schema.cast_values import (
    LONG_MAX,
    MILLIS_PER_DAY,
    UNITS_PER_SECOND,
    CastError,
    Numbers,
    array_of,
    doubles_of,
    fit_decimal,
    items_of,
    numbers_of,
    refuse,
    scaled,
)

_TRUE: Final = ("t", "true", "y", "yes", "1")
_FALSE: Final = ("f", "false", "n", "no", "0")

_BLANK: Final = r"[\x00-\x20]*"
_INTEGER: Final = r"^[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]*)$"
_COUNT: Final = r"^-?[0-9]+$"
_DIGITS: Final = r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)"
_DECIMAL: Final = rf"^[+-]?{_DIGITS}(?:[eE][+-]?[0-9]{{1,9}})?$"
_FLOAT: Final = rf"^[+-]?(?:NaN|Infinity|{_DIGITS}(?:[eE][+-]?[0-9]+)?[fFdD]?)$"
_DATE: Final = (
    rf"^{_BLANK}(?P<year>[0-9]+){_BLANK}"
    rf"(?:-{_BLANK}(?P<month>[0-9]+){_BLANK}(?:-{_BLANK}(?P<day>[0-9]+){_BLANK})?)?$"
)
_SHORT_ZONE: Final = rf"(?:(?P<%s>[+-]){_BLANK}(?P<%s>[0-9]+){_BLANK})?"
_TIME: Final = (
    rf"^{_BLANK}(?P<hour>[0-9]+){_BLANK}(?:"
    rf":{_BLANK}(?P<minute>[0-9]+){_BLANK}:{_BLANK}(?P<second>[0-9]+){_BLANK}(?:\.{_BLANK}(?P<fraction>[0-9]*){_BLANK})?"
    rf"(?:(?P<sign>[+-]){_BLANK}(?P<zone_hour>[0-9]+){_BLANK}(?::{_BLANK}(?P<zone_minute>[0-9]+){_BLANK})?)?|"
    rf":{_BLANK}(?P<minute2>[0-9]+){_BLANK}{_SHORT_ZONE % ('sign2', 'zone_hour2')}|"
    rf"{_SHORT_ZONE % ('sign3', 'zone_hour3')})$"
)
_TIMESTAMP: Final = (
    r"^(?P<year>[0-9]{4}|\+[0-9]{5,9})-(?P<month>[0-9]{1,2})-(?P<day>[0-9]{1,2})(?:"
    r" (?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{1,2}):(?P<second>[0-9]{1,2})(?:\.(?P<fraction>[0-9]{0,9}))?|"
    r"T(?P<hour2>[0-9]{1,2}):(?P<minute2>[0-9]{1,2})(?::(?P<second2>[0-9]{1,2})(?:\.(?P<fraction2>[0-9]{0,9}))?)?)?$"
)


# ── into text ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def to_text(values: pa.Array, source: t.DataType) -> pa.Array:
    """Return values of any type that has a text (`casts.can_read_as` to STRING) as text, null where they are.

    Raises:
        CastError: bytes that are not UTF-8.
    """
    if not len(values):
        return pa.array([], pa.string())
    match source:
        case t.Float() | t.Double():
            return _float_text(values)
        case t.Decimal(scale=scale):
            return _decimal_text(values, scale)
        case t.Date():
            return _iso_text(values)
        case t.Time(precision=precision):
            return _time_text(values, precision)
        case t.Timestamp(precision=precision) | t.LocalZonedTimestamp(precision=precision):
            return _timestamp_text(values, precision)
        case t.Binary() | t.VarBinary():
            return _utf8(values)
        case t.Array() | t.Map() | t.Row():
            return _container_text(values, source)
    return values.cast(pa.string())


def fit_text(values: pa.Array, target: t.Char | t.VarChar) -> pa.Array:
    """Return text cut to the length of a type in characters; for CHAR the short ones padded with blanks."""
    if target.length == t.LENGTH_MAX:
        return values
    cut = pc.utf8_slice_codeunits(values, start=0, stop=target.length)
    return pc.utf8_rpad(cut, width=target.length, padding=" ") if isinstance(target, t.Char) else cut


def _float_text(values: pa.Array) -> pa.Array:
    text = values.cast(pa.string())  # the fewest digits already; only the shape differs
    size = np.abs(doubles_of(values))
    plain = ((size >= 1e-3) & (size < 1e7)) | (size == 0)
    whole = pc.invert(pc.match_substring(text, "."))
    out = pc.if_else(whole, pc.binary_join_element_wise(text, ".0", ""), text)
    if plain.all():
        return out
    others = pa.array(~plain)
    return pc.replace_with_mask(out, others, _scientific(values.filter(others)))


def _scientific(values: pa.Array) -> pa.Array:
    """Return the text of floats that are written with an exponent, or are infinite or NaN; none is null."""
    short = values.cast(pa.string())  # `12345678.9`, `0.00012`, `1.5e+20`, `nan`, `-inf`
    parts = pc.extract_regex(
        short, r"^(?P<sign>-?)(?P<whole>[0-9]+)\.?(?P<fraction>[0-9]*)(?:e(?P<power>[+-]?[0-9]+))?$"
    )
    sign, whole, fraction, power = (pc.struct_field(parts, i).fill_null("") for i in range(4))
    digits = pc.binary_join_element_wise(whole, fraction, "")
    significant = pc.utf8_ltrim(digits, characters="0")
    zeros = pc.subtract(pc.utf8_length(digits), pc.utf8_length(significant))
    given = pc.utf8_ltrim(pc.if_else(pc.equal(power, ""), "0", power), characters="+").cast(pa.int32())
    exponent = pc.subtract(pc.add(given, pc.subtract(pc.utf8_length(whole), 1)), zeros)
    rest = pc.utf8_rtrim(pc.utf8_slice_codeunits(significant, start=1), characters="0")
    rest = pc.if_else(pc.equal(rest, ""), "0", rest)
    first = pc.utf8_slice_codeunits(significant, start=0, stop=1)
    text = pc.binary_join_element_wise(sign, first, ".", rest, "E", exponent.cast(pa.string()), "")
    for arrow, java in (("nan", "NaN"), ("-nan", "NaN"), ("inf", "Infinity"), ("-inf", "-Infinity")):
        text = pc.if_else(pc.equal(short, arrow), java, text)
    # Java writes two digits at least, and of those the nearest: 4.9E-324, not 5.0E-324. It shows in the smallest.
    tiny = np.abs(doubles_of(values)) < (1e-43 if values.type == pa.float32() else 1e-321)
    tiny &= np.asarray(pc.equal(rest, "0"))
    if not tiny.any():
        return text
    few = values.filter(pa.array(tiny)).dictionary_encode()
    nearest = [f"{value:.1e}".replace("e", "E") for value in few.dictionary.to_pylist()]
    return pc.replace_with_mask(text, pa.array(tiny), pa.array(nearest, pa.string()).take(few.indices))


def _decimal_text(values: pa.Array, scale: int) -> pa.Array:
    # The same bits read with no scale are the digits alone; Arrow's own text has exponents.
    digits = pa.Array.from_buffers(pa.decimal128(38, 0), len(values), values.buffers(), offset=values.offset)
    text = digits.cast(pa.string())
    if scale == 0:
        return text
    sign = pc.if_else(pc.starts_with(text, "-"), "-", "")
    padded = pc.utf8_lpad(pc.utf8_ltrim(text, characters="-"), width=scale + 1, padding="0")
    whole = pc.utf8_slice_codeunits(padded, start=0, stop=-scale)
    return pc.binary_join_element_wise(sign, whole, ".", pc.utf8_slice_codeunits(padded, start=-scale), "")


def _time_text(values: pa.Array, precision: int) -> pa.Array:
    text = values.cast(pa.string())  # HH:mm:ss.fff
    if precision == 0:
        return pc.utf8_slice_codeunits(text, start=0, stop=8)
    text = pc.replace_substring_regex(text, r"0{1,2}$", "")
    return pc.utf8_slice_codeunits(text, start=0, stop=9 + min(precision, 3))


def _timestamp_text(values: pa.Array, precision: int) -> pa.Array:
    text = _iso_text(values if values.type.tz is None else values.cast(pa.timestamp(values.type.unit)))
    if precision in (3, 6, 9):
        return text
    text = pc.replace_substring_regex(text, rf"(\.\d{{{precision}}}\d*?)0+$", r"\1")
    return pc.replace_substring_regex(text, r"\.$", "")


def _iso_text(values: pa.Array) -> pa.Array:
    """Return dates or wall clocks as `yyyy-MM-dd` or `yyyy-MM-dd HH:mm:ss` with all digits of their unit."""
    unit = "D" if pa.types.is_date32(values.type) else values.type.unit
    instants = numbers_of(values).astype(f"M8[{unit}]")
    first, end = np.datetime64("0000-01-01"), np.datetime64("10000-01-01")
    if unit == "ns" or (instants.min() >= first and instants.max() < end):
        return values.cast(pa.string())
    # Arrow has no text for other years.
    iso = pa.array(np.datetime_as_string(instants), pa.string(), mask=np.asarray(values.is_null()))
    return pc.replace_substring(iso, pattern="T", replacement=" ")


def _utf8(values: pa.Array) -> pa.Array:
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        wrong = [i for i in range(len(values)) if not _is_utf8(values[i].as_py())]  # only to name them
        raise CastError("0x" + values[wrong[0]].as_py().hex(), len(wrong)) from None


def _is_utf8(value: bytes | None) -> bool:
    try:
        return value is None or isinstance(value.decode(), str)
    except UnicodeDecodeError:
        return False


def _container_text(values: pa.Array, source: t.Array | t.Map | t.Row) -> pa.Array:
    if isinstance(source, t.Row):
        parts = [_item_text(part, field.type) for part, field in zip(values.flatten(), source.fields, strict=True)]
        joined = pc.binary_join_element_wise(*parts, ", ")
    else:
        offsets, items = items_of(values)
        if isinstance(source, t.Map):
            entry = [_item_text(items[0], source.key), _item_text(items[1], source.value)]
            inner = pc.binary_join_element_wise(*entry, " -> ")
        else:
            inner = _item_text(items[0], source.element)
        lists = pa.Array.from_buffers(pa.list_(pa.string()), len(values), [None, offsets], children=[inner])
        joined = pc.binary_join(lists, ", ")
    opening, closing = "[]" if isinstance(source, t.Array) else "{}"
    text = pc.binary_join_element_wise(opening, joined, closing, "")
    return pc.if_else(values.is_valid(), text, pa.scalar(None, pa.string()))


def _item_text(values: pa.Array, kind: t.DataType) -> pa.Array:
    return to_text(values, kind).fill_null("null")


# ── out of text ───────────────────────────────────────────────────────────────────────────────────────────────────────


def from_text(values: pa.Array, target: t.DataType) -> pa.Array:
    """Return text as BOOLEAN, a number, a date, a time or a timestamp.

    Raises:
        CastError: a text that is no value of the type.
    """
    match target:
        case t.Boolean():
            return _boolean(values)
        case t.Float() | t.Double():
            return _float(values, target)
        case t.Decimal():
            return _decimal(values, target)
        case t.Date():
            return _apart(values, _COUNT, lambda v: _integer(v, t.Int()).view(pa.date32()), _date)
        case t.Time():
            return _apart(values, _COUNT, lambda v: _within_day(v, numbers_of(_integer(v, t.Int()))), _time)
        case t.Timestamp():
            return _apart(values, _COUNT, lambda v: _ticks(v, target), lambda v: _timestamp(v, target))
        case t.LocalZonedTimestamp():
            return _timestamp(values, target)
    return _integer(values, target)


def _apart(
    values: pa.Array, pattern: str, matching: Callable[[pa.Array], pa.Array], other: Callable[[pa.Array], pa.Array]
) -> pa.Array:
    """Return values cast by one function where they match a pattern and by another elsewhere, in their order."""
    matches = np.asarray(pc.match_substring_regex(values, pattern).fill_null(False))
    if not matches.any():
        return other(values)
    if matches.all():
        return matching(values)
    place = np.empty(len(values), np.int64)
    place[np.concatenate([np.flatnonzero(matches), np.flatnonzero(~matches)])] = np.arange(len(values))
    parts = [matching(values.filter(pa.array(matches))), other(values.filter(pa.array(~matches)))]
    return pa.concat_arrays(parts).take(pa.array(place))


def _match(values: pa.Array, text: pa.Array, pattern: str) -> Callable[[str], pa.Array]:
    """Return a function from a group of a pattern to its text: "" where absent, null where a value is null.

    Args:
        values: the values, for the error.
        text: what of each is matched.
        pattern: the pattern, its groups named.
    """
    found = pc.extract_regex(text, pattern)
    refuse(values, found.is_null())
    return lambda group: pc.struct_field(found, group)


def _number(text: pa.Array, absent: int = 0) -> Numbers:
    """Return texts of digits as numbers, `absent` for "" and null; 10^9 if longer, which no part of a date is."""
    text = text.fill_null("")
    digits = pc.utf8_ltrim(text, characters="+0")
    digits = pc.if_else(pc.greater(pc.utf8_length(digits), 9), "1000000000", digits)
    digits = pc.if_else(pc.equal(digits, ""), pc.if_else(pc.equal(text, ""), str(absent), "0"), digits)
    return np.asarray(digits.cast(pa.int64()))


def _boolean(values: pa.Array) -> pa.Array:
    words = pc.utf8_lower(values)
    yes = pc.is_in(words, value_set=pa.array(_TRUE))
    refuse(values, pc.invert(pc.or_(yes, pc.is_in(words, value_set=pa.array(_FALSE)))))
    return pc.if_else(values.is_valid(), yes, pa.scalar(None, pa.bool_()))


def _integer(values: pa.Array, target: t.DataType) -> pa.Array:
    refuse(values, pc.invert(pc.match_substring_regex(values, _INTEGER)))
    digits = pc.replace_substring_regex(values, r"\.[0-9]*$", "")
    digits = pc.replace_substring_regex(digits, r"^\+?(-?)0*", r"\1")
    digits = pc.if_else(pc.is_in(digits, value_set=pa.array(["", "-"])), "0", digits)
    refuse(values, pc.greater(pc.utf8_length(digits), 20))
    wide = digits.cast(pa.decimal128(20, 0))
    bits = arrow_type(target).bit_width
    low, high = (pa.scalar(Decimal(bound), wide.type) for bound in (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1))
    refuse(values, pc.or_(pc.less(wide, low), pc.greater(wide, high)))
    return wide.cast(arrow_type(target))


def _float(values: pa.Array, target: t.DataType) -> pa.Array:
    text = pc.replace_substring_regex(values, r"^[\x00-\x20]+|[\x00-\x20]+$", "")
    refuse(values, pc.invert(pc.match_substring_regex(text, _FLOAT)))
    text = pc.replace_substring_regex(text, "([0-9.])[fFdD]$", r"\1")
    return pc.utf8_ltrim(text, characters="+").cast(arrow_type(target))


def _decimal(values: pa.Array, target: t.Decimal) -> pa.Array:
    refuse(values, pc.invert(pc.match_substring_regex(values, _DECIMAL)))
    return _apart(values, "[eE]", lambda v: _exponent_decimal(v, target), lambda v: _plain_decimal(v, target))


def _plain_decimal(values: pa.Array, target: t.Decimal) -> pa.Array:
    parts = pc.extract_regex(values, r"^(?P<sign>[+-]?)0*(?P<whole>[0-9]*)\.?(?P<fraction>[0-9]*)$")
    whole = pc.struct_field(parts, "whole")
    # One digit past the scale decides the rounding, as halves go away from zero.
    fraction = pc.utf8_slice_codeunits(pc.struct_field(parts, "fraction"), start=0, stop=target.scale + 1)
    large = pc.greater(pc.utf8_length(whole), target.precision - target.scale).fill_null(False)
    sign = pc.if_else(pc.equal(pc.struct_field(parts, "sign"), "-"), "-", "")
    whole = pc.if_else(large, "", whole)
    text = pc.binary_join_element_wise(sign, "0", whole, ".", fraction, "0", "")
    fitting = fit_decimal(text.cast(pa.decimal256(76, target.scale + 2)), target)
    return pc.if_else(large, pa.scalar(None, fitting.type), fitting)


def _exponent_decimal(values: pa.Array, target: t.Decimal) -> pa.Array:
    distinct = values.dictionary_encode()
    room = Context(prec=100, rounding=ROUND_HALF_UP)
    step = Decimal((0, (1,), -target.scale))

    def fitted(text: str) -> Decimal | None:
        value = Decimal(text)
        if value and value.adjusted() >= target.precision - target.scale:
            return None
        if not value or value.adjusted() < -target.scale - 1:
            return Decimal(0)
        rounded = value.quantize(step, context=room)
        return rounded if not rounded or rounded.adjusted() < target.precision - target.scale else None

    fitting = pa.array([fitted(text) for text in distinct.dictionary.to_pylist()], arrow_type(target))
    return fitting.take(distinct.indices)


def _days(values: pa.Array, year: Numbers, month: Numbers, day: Numbers, *, clamped: bool) -> Numbers:
    """Return epoch days of years, months and days.

    Args:
        values: the texts they come from, for the error.
        year: 0 and up.
        month: 1 to 12.
        day: 1 to the last of the month.
        clamped: days up to 31 stand for the last of a shorter month.
    """
    valid = np.asarray(values.is_valid()) & (month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)
    refuse(values, ~valid)
    months = np.where(valid, (year - 1970) * 12 + month - 1, 0)
    first = months.astype("M8[M]").astype("M8[D]").astype(np.int64)
    length = (months + 1).astype("M8[M]").astype("M8[D]").astype(np.int64) - first
    if not clamped:
        refuse(values, day > length)
    return np.asarray(first + np.minimum(day, length) - 1)


def _date(values: pa.Array) -> pa.Array:
    # What follows the first blank is a time of day; a blank in front is not followed by one.
    cut = pc.replace_substring_regex(values, r"(?s)^([^ ]+) .*$", r"\1")
    group = _match(values, cut, _DATE)
    year = _number(group("year"))
    refuse(values, year > 9999)
    days = _days(values, year, _number(group("month"), 1), _number(group("day"), 1), clamped=False)
    return array_of(days.astype(np.int32), values, pa.date32())


def _time(values: pa.Array) -> pa.Array:
    group = _match(values, values, _TIME)

    def either(*names: str) -> Numbers:
        return np.asarray(np.sum([_number(group(name)) for name in names], axis=0))

    zone_hour = either("zone_hour", "zone_hour2", "zone_hour3")
    signs = pc.binary_join_element_wise(group("sign"), group("sign2"), group("sign3"), "").fill_null("")
    sign = np.where(np.asarray(pc.equal(signs, "-")), -1, 1)
    minutes = (_number(group("hour")) + sign * zone_hour) * 60
    minutes += either("minute", "minute2") + sign * _number(group("zone_minute"))
    fraction = pc.utf8_rpad(pc.utf8_slice_codeunits(group("fraction"), start=0, stop=4), width=4, padding="0")
    millis = (_number(fraction) + 5) // 10  # a fourth digit of 5 or more rounds up
    return _within_day(values, minutes * 60_000 + _number(group("second")) * 1000 + millis)


def _within_day(values: pa.Array, millis: Numbers) -> pa.Array:
    refuse(values, (millis < 0) | (millis >= MILLIS_PER_DAY))
    return array_of(millis.astype(np.int32), values, pa.time32("ms"))


def _ticks(values: pa.Array, target: t.Timestamp) -> pa.Array:
    """Return counts of the smallest part that the precision shows, which must be s, ms, us or ns."""
    if target.precision not in (0, 3, 6, 9):
        refuse(values, values.is_valid())
    counts = _integer(values, t.BigInt())
    factor = 1000 if target.precision == 0 else 1
    return array_of(scaled(values, numbers_of(counts), factor), values, arrow_type(target))


def _timestamp(values: pa.Array, target: t.Timestamp | t.LocalZonedTimestamp) -> pa.Array:
    group = _match(values, values, _TIMESTAMP)
    year = _number(group("year"))
    refuse(values, year < 1)
    days = _days(values, year, _number(group("month")), _number(group("day")), clamped=True)
    hour, minute, second = (_number(group(name)) + _number(group(name + "2")) for name in ("hour", "minute", "second"))
    fraction = pc.binary_join_element_wise(group("fraction"), group("fraction2"), "")
    nanos = _number(pc.utf8_rpad(fraction, width=9, padding="0"))
    midnight = (hour == 24) & (minute == 0) & (second == 0) & (nanos == 0)  # of the next day
    refuse(values, ((hour > 23) & ~midnight) | (minute > 59) | (second > 59))
    kind = arrow_type(target)
    per_second = UNITS_PER_SECOND[kind.unit]
    ticks = nanos // 10 ** (9 - target.precision) * 10 ** (9 - target.precision) // (1_000_000_000 // per_second)
    seconds = days * 86_400 + hour * 3600 + minute * 60 + second
    limit = LONG_MAX // per_second - 1
    refuse(values, (seconds > limit) | (seconds < -limit))
    return array_of(seconds * per_second + ticks, values, kind)

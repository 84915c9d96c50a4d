"""Texts and counts -> dates, times and timestamps. Digits that a column does not hold make a value bad.

A timestamp is a wall clock or an instant: text with `Z` or an offset behind it is an instant. In a column of the other
kind it is seen through the time zone of the rules, and never through the one of the machine.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merganser.expr.times import instants, wall_clocks
from merganser.parsing.cells import Cells
from merganser.parsing.json_scan import NUMBER, TEXT, Bools, Ints
from merganser.parsing.numbers import integers
from merganser.parsing.outcome import Read, whys
from merganser.parsing.rules import UNITS, Encoding, Rules
from merganser.schema import types as t
from merganser.schema.arrow import arrow_type, timestamp_unit

_DAY: Final = 86_400
_NANOS: Final = 1_000_000_000
_TAIL: Final = r"^(?:\.(?P<fraction>[0-9]+))?(?P<zone>Z|[+-][0-9]{2}(?::?[0-9]{2})?)?$"
_ZERO_DATE: Final = r"^0000-00-00(?:[ T:]00:00:00(?:\.0*)?)?Z?$"
_LONG_MAX: Final = np.iinfo(np.int64).max
_LOST: Final = "has digits that {} does not hold"
_NO_UNIT: Final = "is an integer of no known unit. Set time_unit"


def dates(cells: Cells, kind: t.Date, encoding: Encoding, rules: Rules) -> Read:
    """Return dates: `yyyy-MM-dd`, behind it a time of zeros at most, or days since 1970 where the rules say so."""
    n = len(cells.kinds)
    days, bad = np.zeros(n, np.int64), ~cells.empty
    null = cells.empty
    counted = cells.kinds == NUMBER
    if counted.any() and rules.days:
        found = integers(cells.filter(counted), t.Int())
        days[counted], bad[counted] = np.asarray(found.values.fill_null(0)), found.bad
    written = cells.kinds == TEXT
    if written.any():
        texts, zero = _texts(cells, written, rules)
        seconds, nanos, zones, wrong = _timestamps(texts)
        if encoding.form != "wall" and not rules.days:
            wrong |= zones != _NO_ZONE
        wrong |= (seconds % _DAY != 0) | (nanos != 0)
        days[written], bad[written] = seconds // _DAY, wrong & ~zero
        null[np.flatnonzero(written)[zero]] = True
    values = pa.array(days.astype(np.int32), mask=null | bad).view(pa.date32())
    return Read(values, bad, f"is no {_name(kind)}")


def times(cells: Cells, kind: t.Time, encoding: Encoding, rules: Rules, unit: str | None) -> Read:
    """Return times of the day."""
    n = len(cells.kinds)
    nanos, bad = np.zeros(n, np.int64), ~cells.empty
    no_unit = np.zeros(n, bool)
    counted = cells.kinds == NUMBER
    if counted.any():
        found, wrong = _counts(cells, counted)
        per_second = UNITS.get(encoding.unit or unit or "", 0)
        if per_second:
            wrong |= (found < 0) | (found >= _DAY * per_second)
            nanos[counted], bad[counted] = np.where(wrong, 0, found) * (_NANOS // per_second), wrong
        else:
            no_unit[counted] = ~wrong
    written = cells.kinds == TEXT
    if written.any():
        texts = cells.texts.filter(pa.array(written))
        seconds, fraction, zones, wrong = _clocks(texts)
        if encoding.form != "wall":
            wrong |= zones != _NO_ZONE
        nanos[written], bad[written] = seconds * _NANOS + fraction, wrong
    lost = ~bad & (nanos % 10 ** (9 - min(kind.precision, 3)) != 0)
    millis = (nanos // 1_000_000).astype(np.int32)
    values = pa.array(millis, mask=cells.empty | bad | lost).view(pa.time32("ms"))
    name = f"{_name(kind)}, which is stored in milliseconds," if kind.precision > 3 else _name(kind)
    return Read(
        values, bad | lost, whys((no_unit, _NO_UNIT), (lost, _LOST.format(name)), otherwise=f"is no {_name(kind)}")
    )


def timestamps(
    cells: Cells, kind: t.Timestamp | t.LocalZonedTimestamp, encoding: Encoding, rules: Rules, unit: str | None
) -> Read:
    """Return wall clocks or instants, as the column holds them."""
    n = len(cells.kinds)
    seconds, nanos, bad = np.zeros(n, np.int64), np.zeros(n, np.int64), ~cells.empty
    null, no_unit, absolute = cells.empty, np.zeros(n, bool), np.zeros(n, bool)
    counted = cells.kinds == NUMBER
    if counted.any():
        found, wrong = _counts(cells, counted)
        per_second = UNITS.get(encoding.unit or unit or "", 0)
        if per_second:
            seconds[counted] = found // per_second
            nanos[counted] = found % per_second * (_NANOS // per_second)
            bad[counted] = wrong
            absolute[counted] = encoding.form == "instant"
        else:
            no_unit[counted] = ~wrong
    written = cells.kinds == TEXT
    if written.any():
        texts, zero = _texts(cells, written, rules)
        clock, fraction, zones, wrong = _timestamps(texts)
        if encoding.form != "wall":
            zoned = zones != _NO_ZONE
            clock = clock - np.where(zoned, zones, 0)
            absolute[written] = zoned
        seconds[written], nanos[written], bad[written] = clock, fraction, wrong & ~zero
        null[np.flatnonzero(written)[zero]] = True
    lost = ~bad & (nanos % 10 ** (9 - kind.precision) != 0)
    per_second = UNITS[timestamp_unit(kind.precision)]
    outside = np.abs(seconds) >= _LONG_MAX // per_second - _DAY
    bad = bad | outside
    ticks = np.where(bad | null, 0, seconds) * per_second + np.where(bad, 0, nanos) // (_NANOS // per_second)
    values = _zoned(pa.array(ticks, mask=null | bad | lost), kind, absolute, rules)
    lost_why = _LOST.format(_name(kind))
    return Read(values, bad | lost, whys((no_unit, _NO_UNIT), (lost, lost_why), otherwise=f"is no {_name(kind)}"))


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


def _texts(cells: Cells, written: Bools, rules: Rules) -> tuple[pa.Array, Bools]:
    """Return texts of dates, and which of them are null because they are dates of zeros."""
    texts = cells.texts if written.all() else cells.texts.filter(pa.array(written))
    zero = np.zeros(len(texts), bool)
    if rules.zero_dates:
        zero = np.asarray(pc.match_substring_regex(texts, _ZERO_DATE))
    return texts, zero


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
        # 2024-05-01, maybe with Z: as with a time of zeros
        few = pc.replace_substring_regex(texts, r"^([0-9]{4}-[0-9]{2}-[0-9]{2})(Z?)$", r"\1 00:00:00\2")
        texts = pc.if_else(pa.array(short), few, texts)
        size = np.asarray(pc.binary_length(texts))
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

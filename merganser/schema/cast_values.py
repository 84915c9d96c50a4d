"""Numbers, decimals, dates and times turned into each other over Arrow arrays, by the reference's arithmetic.

* Integers to narrower integers wrap around (300 as TINYINT is 44).
* Floats to integers lose the fraction and stop at the bounds of INT or BIGINT; narrower ones then wrap. NaN is 0.
* Anything to a DECIMAL rounds half away from zero, and is null where it has too many digits before the point.
* DECIMAL to an integer loses the fraction, then wraps.
* Instants count seconds as numbers. Cutting one below a millisecond goes down, cutting whole milliseconds (precision 0
  to 2) and making seconds goes towards zero, so both are the same from 1970 on.
* The local time zone is UTC: an instant and a wall clock have the same digits.

Nulls stay null. All of it runs on whole columns. These are the rules for files of an older schema; `CAST` in a filter
has others (`expr.cast`).

Format: "evolution rules", the cast table.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from merganser.schema import types as t
from merganser.schema.arrow import arrow_type, timestamp_unit

UNITS_PER_SECOND: Final = {"ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
MILLIS_PER_DAY: Final = 86_400_000
LONG_MAX: Final = 2**63 - 1

Numbers = npt.NDArray[Any]
"""A NumPy column of stored numbers."""

_WIDE: Final = 76
"""Digits of the decimals that hold values on their way."""
_WIDTHS: Final[dict[type[t.DataType], type[np.generic]]] = {
    t.TinyInt: np.int8,
    t.SmallInt: np.int16,
    t.Int: np.int32,
    t.BigInt: np.int64,
    t.Float: np.float32,
    t.Double: np.float64,
}


class CastError(ValueError):
    """Values that the new type cannot take and that the reference's reader fails on too, or that Arrow cannot hold.

    Attributes:
        value: the first such value as text.
        count: how many of the values are such.
    """

    def __init__(self, value: str, count: int) -> None:
        super().__init__(value)
        self.value = value
        self.count = count


def refuse(values: pa.Array, bad: pa.Array | npt.NDArray[np.bool_]) -> None:
    """Refuse the marked values; null marks and marks of null values do not count.

    Raises:
        CastError: at least one is marked.
    """
    marked = np.asarray(pc.fill_null(bad, False)) if isinstance(bad, pa.Array) else bad
    marked = marked & np.asarray(values.is_valid())
    if marked.any():
        first = values[int(np.argmax(marked))]
        try:
            text = str(first.as_py())
        except (ValueError, OverflowError):  # an instant outside the years that Python knows
            text = str(first.value)
        raise CastError(text, int(marked.sum()))


def numbers_of(values: pa.Array) -> Numbers:
    """Return the stored numbers of integers, floats, dates, times or timestamps; 0 where null."""
    kind = values.type
    if pa.types.is_timestamp(kind):
        values = values.view(pa.int64())
    elif pa.types.is_date32(kind) or pa.types.is_time32(kind):
        values = values.view(pa.int32())
    filled = values.fill_null(0) if values.null_count else values
    return np.asarray(filled)


def doubles_of(values: pa.Array) -> Numbers:
    """Return floats as doubles; 0 where null."""
    with np.errstate(invalid="ignore"):  # a signalling NaN
        return numbers_of(values).astype(np.float64)


def array_of(numbers: Numbers, like: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return stored numbers as an array of `kind`, null where `like` is."""
    mask = np.asarray(like.is_null()) if like.null_count else None
    return pa.array(numbers, mask=mask).view(kind)


# ── numbers ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def number_to_number(values: pa.Array, source: t.DataType, target: t.DataType) -> pa.Array:
    """Return integers, floats or decimals as another such type."""
    if isinstance(target, t.Decimal):
        if isinstance(source, t.Float | t.Double):
            return _float_to_decimal(values, target)
        if not isinstance(source, t.Decimal):  # 19 digits hold every integer
            values = values.cast(pa.decimal128(19, 0))
        return fit_decimal(values, target)
    to_float = isinstance(target, t.Float | t.Double)
    if isinstance(source, t.Decimal):
        numbers = _decimal_to_double(values, source) if to_float else _whole_words(values)
    else:
        numbers = numbers_of(values)
        if isinstance(source, t.Float | t.Double) and not to_float:
            numbers = _saturated(doubles_of(values), 64 if isinstance(target, t.BigInt) else 32)
    with np.errstate(over="ignore", invalid="ignore"):  # a DOUBLE too large for FLOAT is infinite
        return array_of(numbers.astype(_WIDTHS[type(target)]), values, arrow_type(target))


def fit_decimal(values: pa.Array, target: t.Decimal) -> pa.Array:
    """Return decimals rounded half away from zero to a type, null where they have too many digits for it.

    Args:
        values: decimals of at most 38 digits before the point and 56 after it, 76 in all.
        target: the type.
    """
    scale = max(values.type.scale, target.scale)
    wide = values.cast(pa.decimal256(_WIDE, scale))
    if scale > target.scale:
        wide = pc.round(wide, ndigits=target.scale, round_mode="half_towards_infinity")
    whole = target.precision - target.scale
    if whole + scale < _WIDE:  # otherwise no value reaches the bound
        bound = pa.scalar(Decimal((0, (1,), whole)), wide.type)
        wide = pc.if_else(pc.less(pc.abs(wide), bound), wide, pa.scalar(None, wide.type))
    return wide.cast(arrow_type(target))


def _float_to_decimal(values: pa.Array, target: t.Decimal) -> pa.Array:
    """Return floats as decimals by way of their shortest text as DOUBLE, whose digits are what is rounded."""
    numbers = doubles_of(values)
    refuse(values, ~np.isfinite(numbers))
    large = np.abs(numbers) >= 10.0 ** (target.precision - target.scale + 1)
    small = np.abs(numbers) < 10.0 ** -(target.scale + 1)
    # Of at most 17 digits, the last lies at most 17 places behind the first that matters.
    wide = pa.decimal256(_WIDE, target.scale + 18)
    text = array_of(np.where(large | small, 0.0, numbers), values, pa.float64()).cast(pa.string())
    fitting = fit_decimal(text.cast(wide), target)
    return pc.if_else(pa.array(large), pa.scalar(None, fitting.type), fitting) if large.any() else fitting


def _words(values: pa.Array) -> Numbers:
    """Return the low 64 bits of the digits of 128-bit decimals."""
    halves = np.frombuffer(values.buffers()[1], np.dtype("<i8")).reshape(-1, 2)
    return halves[values.offset : values.offset + len(values), 0]


def _whole_words(values: pa.Array) -> Numbers:
    """Return decimals without their fraction, as the low 64 bits of the integer."""
    return _words(values.cast(pa.decimal128(38, 0), safe=False))


def _decimal_to_double(values: pa.Array, source: t.Decimal) -> Numbers:
    if source.precision <= 18:
        return _words(values) / 10.0**source.scale  # rounds twice beyond 2^53, as the reference does
    return numbers_of(values.cast(pa.string()).cast(pa.float64()))


def _saturated(numbers: Numbers, bits: int) -> Numbers:
    """Return doubles without their fraction, at most as large as integers of `bits`; 0 for NaN."""
    limit = 2.0 ** (bits - 1)
    inside = np.abs(numbers) < limit
    whole = np.where(inside, numbers, 0.0).astype(np.int64)
    return np.where(numbers >= limit, 2 ** (bits - 1) - 1, np.where(numbers <= -limit, -(2 ** (bits - 1)), whole))


# ── dates, times, instants ────────────────────────────────────────────────────────────────────────────────────────────


def scaled(values: pa.Array, numbers: Numbers, factor: int) -> Numbers:
    """Return numbers, one for each of the values, times a factor.

    Raises:
        CastError: a product does not fit 64 bits: an instant in nanoseconds outside the years 1677 to 2262.
    """
    numbers = numbers.astype(np.int64)
    if factor > 1:
        refuse(values, (numbers > LONG_MAX // factor) | (numbers < -(LONG_MAX // factor)))
    return numbers * factor


def instant_to_instant(values: pa.Array, source: t.DataType, target: t.DataType) -> pa.Array:
    """Return dates, times and timestamps as another of these types."""
    kind = arrow_type(target)
    numbers = numbers_of(values)
    match source, target:
        case t.Date() | t.Time(), t.Timestamp() | t.LocalZonedTimestamp():
            per_milli = UNITS_PER_SECOND[kind.unit] // 1000
            factor = per_milli * MILLIS_PER_DAY if isinstance(source, t.Date) else per_milli
            return array_of(scaled(values, numbers, factor), values, kind)
        case t.Timestamp() | t.LocalZonedTimestamp(), t.Date():
            return array_of((_millis(numbers, values.type) // MILLIS_PER_DAY).astype(np.int32), values, kind)
        case t.Timestamp() | t.LocalZonedTimestamp(), t.Time():
            return array_of((_millis(numbers, values.type) % MILLIS_PER_DAY).astype(np.int32), values, kind)
        case t.Timestamp() | t.LocalZonedTimestamp(), t.Timestamp() | t.LocalZonedTimestamp():
            if target.precision < source.precision:
                return array_of(_cut(numbers, values.type, target.precision), values, kind)
            factor = UNITS_PER_SECOND[kind.unit] // UNITS_PER_SECOND[values.type.unit]
            return array_of(scaled(values, numbers, factor), values, kind)
    return values  # TIME, in milliseconds at every precision


def instant_to_integer(values: pa.Array, target: t.DataType) -> pa.Array:
    """Return timestamps as seconds since 1970, towards zero; as INT they wrap."""
    seconds = _divided_towards_zero(_millis(numbers_of(values), values.type), 1000)
    return array_of(seconds.astype(_WIDTHS[type(target)]), values, arrow_type(target))


def integer_to_instant(values: pa.Array, target: t.DataType) -> pa.Array:
    """Return seconds since 1970 as timestamps."""
    kind = arrow_type(target)
    return array_of(scaled(values, numbers_of(values), UNITS_PER_SECOND[kind.unit]), values, kind)


def _millis(numbers: Numbers, kind: pa.DataType) -> Numbers:
    """Return ticks of an Arrow timestamp type as milliseconds, rounded down."""
    return np.asarray(numbers // (UNITS_PER_SECOND[kind.unit] // 1000))


def _cut(numbers: Numbers, kind: pa.DataType, precision: int) -> Numbers:
    """Return ticks with `precision` fraction digits, in the unit of that precision."""
    if precision <= 3:
        step = 10 ** (3 - precision)
        return np.asarray(_divided_towards_zero(_millis(numbers, kind), step) * step)
    per_second = UNITS_PER_SECOND[kind.unit]
    step = per_second // 10**precision
    return np.asarray(numbers // step * step // (per_second // UNITS_PER_SECOND[timestamp_unit(precision)]))


def _divided_towards_zero(numbers: Numbers, divisor: int) -> Numbers:
    quotient = numbers // divisor
    return np.asarray(quotient + ((quotient < 0) & (quotient * divisor != numbers)))


# ── bytes and containers ──────────────────────────────────────────────────────────────────────────────────────────────


def fit_bytes(values: pa.Array, target: t.Binary | t.VarBinary) -> pa.Array:
    """Return bytes cut to the length of a type; for BINARY the short ones padded with zeros."""
    if isinstance(target, t.Binary):
        zeros = pa.scalar(bytes(target.length), pa.binary())
        values = pc.binary_join_element_wise(values, zeros, pa.scalar(b"", pa.binary()))
    elif target.length == t.LENGTH_MAX:
        return values
    return pc.binary_slice(values, 0, target.length)


def validity(values: pa.Array) -> pa.Buffer | None:
    """Return the validity bits of an array from bit 0 on; None when nothing is null."""
    if not values.null_count:
        return None
    return pa.py_buffer(np.packbits(np.asarray(values.is_valid()), bitorder="little").tobytes())


def items_of(values: pa.Array) -> tuple[pa.Buffer, list[pa.Array]]:
    """Return where each list or map of an array ends, and what they hold, without what null ones hide.

    Args:
        values: an array of lists or maps, maybe a slice of a larger one.

    Returns:
        The offsets of n + 1 int32, from 0 on, and the items: elements, or keys and values.
    """
    offsets = np.asarray(values.offsets)
    parts = [values.keys, values.items] if pa.types.is_map(values.type) else [values.values]
    parts = [part.slice(int(offsets[0]), int(offsets[-1] - offsets[0])) for part in parts]
    lengths = np.diff(offsets)
    valid = np.asarray(values.is_valid())
    if lengths[~valid].any():
        shown = pa.array(np.repeat(valid, lengths))
        parts = [part.filter(shown) for part in parts]
        lengths = np.where(valid, lengths, 0)
    ends = np.concatenate([np.zeros(1, np.int32), np.cumsum(lengths, dtype=np.int32)])
    return pa.py_buffer(ends.tobytes()), parts

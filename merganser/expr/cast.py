"""CAST over Arrow columns, with ANSI rules: a value that does not fit is an error, never a null or a wrap.

Text is read as `expr.literal` reads it, by the same patterns. Numbers become text as Spark writes them:
`1.0E10` for large doubles, decimals without exponent, timestamps without trailing zeros.
"""

from __future__ import annotations

import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merganser.errors import InvalidInputError
from merganser.expr.compare import Values, as_double, decimal_of, family, integers
from merganser.expr.literal import (
    DATE_PATTERN,
    FALSE_WORDS,
    FLOAT_PATTERN,
    INTEGER_BITS,
    INTEGER_PATTERN,
    NUMBER_PATTERN,
    TIME_PATTERN,
    TIMESTAMP_PATTERN,
    TRUE_WORDS,
)
from merganser.expr.tree import NANOS_PER_DAY, UNITS_PER_SECOND
from merganser.schema import types as t
from merganser.schema.arrow import arrow_type, timestamp_unit


def cast_values(values: Values, source: t.DataType, target: t.DataType, *, stores: bool = False) -> Values:
    """Return values cast from one type to another (`expr.build.can_cast`).

    Args:
        values: n values of the Arrow type of `source`.
        source: their type.
        target: the type wanted.
        stores: refuse a number that is too large for FLOAT; SQL makes it infinite.

    Returns:
        n values of the Arrow type of `target`, null where the input is null.

    Raises:
        InvalidInputError: a value does not fit; names it.
    """
    origin, goal = family(source), family(target)
    if source.with_nullable(True) == target.with_nullable(True):
        return values
    if goal == "text":
        return _to_text(values, source)
    if origin == "text":
        return _from_text(values, target)
    if goal == "boolean":
        return pc.not_equal(as_double(values, source), 0.0)
    if origin == "boolean":
        values, source = values.cast(pa.int32()), t.Int()
    match goal:
        case "float":
            doubles = as_double(values, source)
            floats = doubles.cast(arrow_type(target), safe=False)
            if stores:
                fail(values, pc.and_(pc.is_finite(doubles), pc.is_inf(floats)), target)
            return floats
        case "exact" if isinstance(target, t.Decimal):
            return _to_decimal(values, source, target)
        case "exact":
            return _to_integer(values, source, target)
        case "instant":
            return _to_instant(values, source, target)
    if isinstance(source, t.Time) and isinstance(target, t.Time) and target.precision < min(source.precision, 3):
        step = 10 ** (3 - target.precision)
        values = pc.multiply(floor_divide(values.cast(pa.int32()).cast(pa.int64()), step), step).cast(pa.int32())
    return values.cast(arrow_type(target))


def fail(values: Values, bad: Values, target: t.DataType) -> None:
    """Refuse the values that are marked.

    Raises:
        InvalidInputError: at least one is; names the first.
    """
    count = pc.sum(bad).as_py() or 0
    if count:
        first = values.filter(bad)[0].as_py()
        raise InvalidInputError(
            f"cannot CAST '{first}' AS {target.with_nullable(True)} ({count} of {len(values)} rows): the value does "
            "not fit the type",
            value=str(first),
        )


def _to_integer(values: Values, source: t.DataType, target: t.DataType) -> Values:
    bits = INTEGER_BITS[type(target)]
    if isinstance(source, t.Float | t.Double):
        whole = pc.trunc(as_double(values, source))
        low, high = -(2.0 ** (bits - 1)), 2.0 ** (bits - 1)
        # NaN is within no range, so it fails too.
        inside = pc.and_(pc.greater_equal(whole, low), pc.less(whole, high))
        fail(values, pc.invert(inside), target)
        return whole.cast(arrow_type(target), safe=False)
    given = values
    if isinstance(source, t.Decimal):
        values = truncated(values).cast(pa.decimal128(38, 0))
    limit = 2 ** (bits - 1)
    if isinstance(source, t.Decimal):
        low_value, high_value = (pa.scalar(Decimal(v), pa.decimal128(38, 0)) for v in (-limit, limit))
        fail(given, pc.or_(pc.less(values, low_value), pc.greater_equal(values, high_value)), target)
    elif INTEGER_BITS[type(source)] > bits:
        fail(values, pc.or_(pc.less(values, -limit), pc.greater_equal(values, limit)), target)
    return values.cast(arrow_type(target))


def _to_decimal(values: Values, source: t.DataType, target: t.Decimal) -> Values:
    if isinstance(source, t.Float | t.Double):
        numbers = as_double(values, source)
        # NaN and the infinities become null, the one thing SQL does not call an error here.
        numbers = pc.if_else(pc.is_finite(numbers), numbers, pa.scalar(None, pa.float64()))
        bound = 10.0 ** (target.precision - target.scale)
        fail(values, pc.greater_equal(pc.abs(numbers), bound), target)
        return fit_decimal(_shortest(numbers, target.scale), target, values)
    exact = decimal_of(source)
    wide = values.cast(arrow_type(exact)).cast(pa.decimal256(exact.precision, exact.scale))
    return fit_decimal(wide, target, values)


def fit_decimal(values: Values, target: t.Decimal, given: Values | None = None) -> Values:
    """Return decimals of any width at the precision and scale of a type, rounded half away from zero.

    Args:
        given: what messages show in place of the decimals; None: these.

    Raises:
        InvalidInputError: a value has more digits before the point than the type.
    """
    given = values if given is None else given
    kind = values.type
    if kind.scale > target.scale:
        # One digit of room: 9.99 rounds to 10.0.
        roomy = values.cast(pa.decimal256(min(kind.precision + 1, 76), kind.scale))
        values = pc.round(roomy, ndigits=target.scale, round_mode="half_towards_infinity")
    bound = pa.scalar(Decimal((0, (1,), target.precision - target.scale)), pa.decimal256(76, 0))
    whole = max(values.type.precision - values.type.scale, 1)
    if whole > target.precision - target.scale:
        large = pc.greater_equal(truncated(pc.abs(values)).cast(pa.decimal256(min(whole + 1, 76), 0)), bound)
        fail(given, large, target)
    return values.cast(arrow_type(target))


def truncated(values: Values) -> Values:
    """Return decimals cut after the point, at the same scale. Arrow wants one digit before the point for that."""
    kind = values.type
    return pc.trunc(values.cast(pa.decimal256(min(kind.precision + 1, 76), kind.scale)))


def round_double(values: Values, digits: int) -> Values:
    """Return doubles rounded half up (away from zero) at a digit after the point, or before it if negative.

    What counts is the shortest decimal text of the double, as in SQL: 0.285 rounds to 0.29 although the double
    lies below it.
    """
    if digits > 22:
        # 10**23 is not a double, and only values below 1e-6 have digits there.
        return values
    numbers = np.asarray(pc.fill_null(values, 0.0))
    scale = 10.0 ** abs(digits)
    with np.errstate(over="ignore", invalid="ignore"):
        size = np.abs(numbers)
        below = np.floor(size * scale if digits >= 0 else size / scale)
        # The double next to the decimal half-way: on it or above goes up, and no double lies between the two.
        half = (below + 0.5) / scale if digits >= 0 else (below + 0.5) * scale
        steps = below + (size >= half)
        rounded = np.copysign(steps / scale if digits >= 0 else steps * scale, numbers)
        # Doubles this large have no digits there, and overflow on the way.
        rounded = np.where(~np.isfinite(rounded) | (below >= 2.0**52), numbers, rounded)
        # Where doubles lie so wide that one stands for several decimals of this length, their text decides.
        wide = np.flatnonzero((np.maximum(below, size) >= 2.0**45) & (size < 1e38)) if digits else np.empty(0, np.int64)
    if len(wide):
        exact = pc.round(_shortest(pa.array(numbers[wide]), digits), ndigits=digits, round_mode="half_towards_infinity")
        rounded[wide] = np.asarray(exact.cast(pa.string()).cast(pa.float64()))
    return pa.array(rounded, mask=np.asarray(values.is_null()))


def _shortest(values: Values, scale: int) -> Values:
    """Return finite doubles below 1e38 as decimals with the digits of their shortest text, which is their value."""
    tiny = pc.less(pc.abs(values), 1e-20)
    zero = pa.scalar(0.0, pa.float64())
    exact = pc.if_else(tiny, zero, values).cast(pa.string()).cast(pa.decimal256(76, 37))
    if scale < 20:
        return exact
    # Their texts have more digits than fit; of the few that are asked for, the double itself knows enough.
    return pc.if_else(tiny, pc.if_else(tiny, values, zero).cast(pa.decimal256(76, 37)), exact)


def _to_instant(values: Values, source: t.DataType, target: t.DataType) -> Values:
    raw = integers(values, source).cast(pa.int64())
    if isinstance(target, t.Date):
        assert isinstance(source, t.Timestamp | t.LocalZonedTimestamp), source
        per_day = UNITS_PER_SECOND[timestamp_unit(source.precision)] * 86_400
        return floor_divide(raw, per_day).cast(pa.int32()).cast(pa.date32())
    assert isinstance(target, t.Timestamp | t.LocalZonedTimestamp), target
    unit = UNITS_PER_SECOND[timestamp_unit(target.precision)]
    if isinstance(source, t.Date):
        return _scaled(values, raw, unit * 86_400, target)
    assert isinstance(source, t.Timestamp | t.LocalZonedTimestamp), source
    have = UNITS_PER_SECOND[timestamp_unit(source.precision)]
    if target.precision < source.precision:
        step = have // 10**target.precision
        raw = pc.multiply(floor_divide(raw, step), step) if step > 1 else raw
    if unit >= have:
        return _scaled(values, raw, unit // have, target)
    return floor_divide(raw, have // unit).cast(arrow_type(target))


def _scaled(values: Values, raw: Values, factor: int, target: t.DataType) -> Values:
    limit = (2**63 - 1) // factor
    fail(values, pc.or_(pc.less(raw, -limit), pc.greater(raw, limit)), target)
    return pc.multiply(raw, pa.scalar(factor, pa.int64())).cast(arrow_type(target))


def floor_divide(values: Values, divisor: int) -> Values:
    """Return int64 values divided by a positive integer, rounded down."""
    by = pa.scalar(divisor, pa.int64())
    quotient = pc.divide(values, by)
    below = pc.less(pc.subtract(values, pc.multiply(quotient, by)), 0)
    return pc.subtract(quotient, below.cast(pa.int64()))


def _to_text(values: Values, source: t.DataType) -> Values:
    match source:
        case t.Float() | t.Double():
            return _float_text(values)
        case t.Decimal(precision=precision, scale=scale):
            return _decimal_text(values, precision, scale)
        case t.Timestamp() | t.LocalZonedTimestamp() | t.Time():
            if isinstance(source, t.LocalZonedTimestamp):
                values = values.cast(pa.timestamp(values.type.unit))
            text = pc.replace_substring_regex(values.cast(pa.string()), r"(\.\d*?)0+$", r"\1")
            return pc.replace_substring_regex(text, r"\.$", "")
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid as error:
        raise InvalidInputError(f"cannot CAST bytes AS STRING: they are not UTF-8 ({error})") from None


def _decimal_text(values: Values, precision: int, scale: int) -> Values:
    if scale <= 6:
        return values.cast(pa.string())
    # Arrow writes small values with an exponent. Moved up by one they have none, and the 1 in front becomes a 0.
    size = pc.abs(values).cast(pa.decimal256(precision, scale))
    one = pa.scalar(Decimal(1), pa.decimal256(1, 0))
    small = pc.less(size, one)
    lifted = pc.utf8_slice_codeunits(pc.add(size, one).cast(pa.string()), start=1)
    sign = pc.if_else(pc.less(values, pa.scalar(Decimal(0), values.type)), "-", "")
    return pc.if_else(small, pc.binary_join_element_wise(sign, "0", lifted, ""), values.cast(pa.string()))


def _float_text(values: Values) -> Values:
    single = values.type == pa.float32()
    distinct = pa.array(values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values).dictionary_encode()
    # One text per distinct value: no kernel writes floats the way SQL does.
    texts = [_java_float(v, single=single) for v in distinct.dictionary.to_pylist()]
    return pa.array(texts, pa.string()).take(distinct.indices)


def _java_float(value: float, *, single: bool) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    shortest = str(np.float32(value)) if single else repr(value)
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        text = f"{Decimal(shortest):f}"
        return text if "." in text else text + ".0"
    sign, digits, exponent = Decimal(shortest).normalize().as_tuple()
    if len(digits) == 1:  # Java writes two at least, the nearest ones
        sign, digits, exponent = Decimal(f"{value:.1e}").as_tuple()
    first, rest = digits[0], "".join(map(str, digits[1:])) or "0"
    return f"{'-' if sign else ''}{first}.{rest}E{int(exponent) + len(digits) - 1}"


def _from_text(values: Values, target: t.DataType) -> Values:
    if isinstance(target, t.VarBinary | t.Binary):
        return values.cast(pa.binary())
    if isinstance(target, t.Boolean):
        return _boolean_from_text(values, target)
    patterns = {
        t.Decimal: NUMBER_PATTERN,
        t.Float: FLOAT_PATTERN,
        t.Double: FLOAT_PATTERN,
        t.Date: DATE_PATTERN,
        t.Time: TIME_PATTERN,
        t.Timestamp: TIMESTAMP_PATTERN,
        t.LocalZonedTimestamp: TIMESTAMP_PATTERN,
    }
    pattern = "(?s)" + patterns.get(type(target), INTEGER_PATTERN)
    fail(values, pc.invert(pc.match_substring_regex(values, pattern)), target)
    match target:
        case t.Date():
            return _days_from_text(values, _groups(values, pattern, 3)).cast(pa.date32())
        case t.Time(precision=precision):
            clock = _clock_from_text(values, _groups(values, pattern, 4), target)
            step = 10 ** max(9 - precision, 6)
            return pc.multiply(pc.divide(clock, step), step // 1_000_000).cast(pa.int32()).cast(pa.time32("ms"))
        case t.Timestamp() | t.LocalZonedTimestamp():
            return _timestamp_from_text(values, pattern, target)
    text = pc.utf8_ltrim(pc.utf8_trim_whitespace(values), characters="+")
    if isinstance(target, t.Float | t.Double):
        return text.cast(pa.float64()).cast(arrow_type(target), safe=False)
    if isinstance(target, t.Decimal):
        return _decimal_from_text(values, text, target)
    digits = pc.replace_substring_regex(text, r"^(-?)0+(\d)", r"\1\2")
    fail(values, pc.greater(pc.utf8_length(digits), 38), target)
    return _to_integer(digits.cast(pa.decimal128(38, 0)), t.Decimal(38, 0), target)


def _decimal_from_text(values: Values, text: Values, target: t.Decimal) -> Values:
    wide = pa.decimal256(76, 38)
    try:
        # Digits past the 38th after the point cannot change a rounding at most 38 digits deep, except by cutting.
        return fit_decimal(text.cast(wide), target, values)
    except pa.ArrowInvalid as error:
        raise InvalidInputError(f"cannot CAST text AS {target.with_nullable(True)}: {error}") from None


def _boolean_from_text(values: Values, target: t.DataType) -> Values:
    words = pc.utf8_lower(pc.utf8_trim_whitespace(values))
    yes = pc.is_in(words, value_set=pa.array(TRUE_WORDS, words.type))
    no = pc.is_in(words, value_set=pa.array(FALSE_WORDS, words.type))
    fail(values, pc.and_(values.is_valid(), pc.invert(pc.or_(yes, no))), target)
    return pc.if_else(values.is_valid(), yes, pa.scalar(None, pa.bool_()))


def _groups(values: Values, pattern: str, count: int) -> list[Values]:
    """Return the text of each group of a pattern; an empty text where the group is absent."""
    parts = iter(range(1, 100))
    named = "".join(
        f"(?P<g{next(parts)}>" if c == "(" and pattern[i + 1 : i + 2] != "?" and pattern[i - 1 : i] != "\\" else c
        for i, c in enumerate(pattern)
    )
    found = pc.extract_regex(values, named)
    return [pc.struct_field(found, f"g{i + 1}") for i in range(count)]


def _number(text: Values, absent: int) -> Values:
    return pc.if_else(pc.equal(text, ""), str(absent), text).cast(pa.int64())


def _days_from_text(values: Values, groups: list[Values]) -> Values:
    year, month, day = (_number(g, 1) for g in groups)
    valid = pc.and_(pc.and_(pc.greater_equal(year, 1), pc.less_equal(month, 12)), pc.greater_equal(month, 1))
    fail(values, pc.invert(valid), t.Date())
    # Day 1 of the month by way of months since 1970, then the day on top, checked to stay in the month.
    months = _numpy(pc.add(pc.multiply(pc.subtract(year, 1970), 12), pc.subtract(month, 1)))
    first = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    following = (months + 1).astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    days = _numpy(day)
    wrong = ((days < 1) | (days > following - first)) & ~np.asarray(values.is_null())
    fail(values, pa.array(wrong), t.Date())
    return pa.array((first + days - 1).astype(np.int32), mask=np.asarray(values.is_null()))


def _numpy(values: Values) -> np.ndarray:
    return np.asarray(pc.fill_null(values, 1))


def _clock_from_text(values: Values, groups: list[Values], target: t.DataType) -> Values:
    hour, minute, second = (_number(g, 0) for g in groups[:3])
    wrong = pc.or_(pc.or_(pc.greater(hour, 23), pc.greater(minute, 59)), pc.greater(second, 59))
    fail(values, wrong, target)
    nanos = pc.utf8_rpad(groups[3], width=9, padding="0").cast(pa.int64())
    seconds = pc.add(pc.add(pc.multiply(hour, 3600), pc.multiply(minute, 60)), second)
    return pc.add(pc.multiply(seconds, 1_000_000_000), nanos)


def _timestamp_from_text(values: Values, pattern: str, target: t.Timestamp | t.LocalZonedTimestamp) -> Values:
    groups = _groups(values, pattern, 8)
    days = _days_from_text(values, groups[:3]).cast(pa.int64())
    clock = _clock_from_text(values, groups[3:7], target)
    if isinstance(target, t.LocalZonedTimestamp):
        clock = pc.subtract(clock, _offset_nanos(groups[7]))
    per_second = UNITS_PER_SECOND[timestamp_unit(target.precision)]
    step = 10 ** (9 - target.precision)
    unit = 1_000_000_000 // per_second
    ticks = pc.multiply(floor_divide(clock, step), step // unit)
    return _scaled_sum(values, days, NANOS_PER_DAY // unit, ticks, target)


def _scaled_sum(values: Values, days: Values, per_day: int, ticks: Values, target: t.DataType) -> Values:
    limit = (2**63 - 1) // per_day - 2
    fail(values, pc.or_(pc.less(days, -limit), pc.greater(days, limit)), target)
    return pc.add(pc.multiply(days, pa.scalar(per_day, pa.int64())), ticks).cast(arrow_type(target))


def _offset_nanos(zone: Values) -> Values:
    signed = pc.match_substring_regex(zone, "^[+-]")
    digits = pc.if_else(signed, pc.replace_substring_regex(zone, "[^0-9]", ""), "0")
    short = pc.less_equal(pc.utf8_length(digits), 2)
    number = digits.cast(pa.int64())
    hours = pc.if_else(short, number, pc.divide(number, 100))
    minutes = pc.if_else(short, 0, pc.subtract(number, pc.multiply(pc.divide(number, 100), 100)))
    sign = pc.if_else(pc.starts_with(zone, "-"), -1, 1)
    seconds = pc.multiply(sign, pc.add(pc.multiply(hours, 3600), pc.multiply(minutes, 60)))
    return pc.multiply(seconds, pa.scalar(1_000_000_000, pa.int64()))

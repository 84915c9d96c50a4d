"""Arithmetic and functions over Arrow columns, with ANSI rules: overflow and division by zero are errors."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merganser.errors import InvalidInputError
from merganser.expr import times
from merganser.expr.cast import fit_decimal, round_double, truncated
from merganser.expr.compare import Values, as_double, decimal_of, family, integers
from merganser.schema import types as t
from merganser.schema.arrow import arrow_type

_CHECKED = {"+": pc.add_checked, "-": pc.subtract_checked, "*": pc.multiply_checked}


def arithmetic(
    op: str, left: Values, left_kind: t.DataType, right: Values, right_kind: t.DataType, kind: t.DataType
) -> Values:
    """Return `left op right` row by row.

    Args:
        op: one of + - * / % DIV.
        left: n numbers, or dates with + and -.
        left_kind: their type.
        right: n numbers.
        right_kind: their type.
        kind: the result type, as `expr.build.arithmetic` found it.

    Raises:
        InvalidInputError: division by zero, or a DECIMAL overflow.
        pa.ArrowInvalid: an integer overflow; the caller names the expression.
    """
    if isinstance(kind, t.Date):
        days = _CHECKED[op](integers(left, left_kind).cast(pa.int64()), right.cast(pa.int64()))
        return days.cast(pa.int32()).cast(pa.date32())
    if op in ("/", "%", "DIV"):
        _refuse_zero(op, left, right, right_kind)
    if op == "DIV":
        return _whole_quotient(left, left_kind, right, right_kind)
    if isinstance(kind, t.Decimal):
        return _decimal(op, left, left_kind, right, right_kind, kind)
    if isinstance(kind, t.Float | t.Double):
        return _floating(op, left, left_kind, right, right_kind, kind)
    wide = arrow_type(kind)
    left, right = left.cast(wide), right.cast(wide)
    return _remainder(left, right) if op == "%" else _CHECKED[op](left, right)


def _refuse_zero(op: str, left: Values, right: Values, right_kind: t.DataType) -> None:
    zero = pc.equal(right, pa.scalar(Decimal(0) if isinstance(right_kind, t.Decimal) else 0, right.type))
    count = pc.sum(pc.and_(zero, left.is_valid())).as_py() or 0
    if count:
        raise InvalidInputError(
            f"cannot compute '{op}': division by zero in {count} of {len(right)} rows. Guard it, for instance with "
            "NULLIF(divisor, 0)."
        )


def _remainder(left: Values, right: Values) -> Values:
    # By -1 the remainder is 0, and the quotient of the least integer would overflow.
    safe = pc.if_else(pc.equal(right, -1), pa.scalar(1, right.type), right)
    # Division by zero is refused before; what is left of it stands beside a null.
    safe = pc.if_else(pc.equal(safe, 0), pa.scalar(1, right.type), safe)
    return pc.subtract(left, pc.multiply(pc.divide(left, safe), safe))


def _floating(
    op: str, left: Values, left_kind: t.DataType, right: Values, right_kind: t.DataType, kind: t.DataType
) -> Values:
    if isinstance(kind, t.Double):
        left, right = as_double(left, left_kind), as_double(right, right_kind)
    match op:
        case "+":
            return pc.add(left, right)
        case "-":
            return pc.subtract(left, right)
        case "*":
            return pc.multiply(left, right)
        case "/":
            return pc.divide(left, right)
    absent = pc.or_(left.is_null(), right.is_null())
    with np.errstate(invalid="ignore"):
        rest = np.fmod(np.asarray(pc.fill_null(left, 0.0)), np.asarray(pc.fill_null(right, 1.0)))
    return pa.array(rest, arrow_type(kind), mask=np.asarray(absent))


def _decimal(
    op: str, left: Values, left_kind: t.DataType, right: Values, right_kind: t.DataType, kind: t.Decimal
) -> Values:
    first, second = _narrow(left, left_kind), _narrow(right, right_kind)
    match op:
        case "+":
            return fit_decimal(pc.add(first, second), kind)
        case "-":
            return fit_decimal(pc.subtract(first, second), kind)
        case "*":
            return fit_decimal(pc.multiply(first, second), kind)
        case "/":
            # One digit more than asked for, cut off, decides the rounding: half and above go away from zero.
            return fit_decimal(_quotient(first, second, kind.scale + 1), kind)
    quotient = _shrunk(truncated(_quotient(first, second, 0)))
    return fit_decimal(pc.subtract(first, pc.multiply(quotient, second)), kind)


def _whole_quotient(left: Values, left_kind: t.DataType, right: Values, right_kind: t.DataType) -> Values:
    if isinstance(left_kind, t.Decimal) or isinstance(right_kind, t.Decimal):
        first, second = _narrow(left, left_kind), _narrow(right, right_kind)
        whole = fit_decimal(truncated(_quotient(first, second, 0)), t.Decimal(38, 0))
        return whole.cast(pa.int64())
    second = right.cast(pa.int64())
    return pc.divide_checked(left.cast(pa.int64()), pc.if_else(pc.equal(second, 0), pa.scalar(1, pa.int64()), second))


def _narrow(values: Values, kind: t.DataType) -> Values:
    """Return exact numbers as wide decimals with no more digits than the values have."""
    return _shrunk(values.cast(arrow_type(decimal_of(kind))))


def _shrunk(values: Values) -> Values:
    """Return decimals in the least precision that holds them: Arrow's results add up the precisions, to 76."""
    scale = values.type.scale
    largest = pc.max(pc.abs(values)).as_py() or Decimal(0)
    _, digits, exponent = largest.as_tuple()
    needed = len(digits) + int(exponent) + scale if largest else 1
    wide = values.cast(pa.decimal256(min(max(values.type.precision, 1), 76), scale))
    return wide.cast(pa.decimal256(max(needed, scale, 1), scale))


def _quotient(left: Values, right: Values, scale: int) -> Values:
    """Return left / right cut after at least `scale` digits. A null divisor may hide a zero."""
    zero = pa.scalar(Decimal(0), right.type)
    right = pc.if_else(pc.equal(right, zero), pa.scalar(None, right.type), right)
    have = left.type.scale + right.type.precision - right.type.scale + 1
    if have < scale:
        more = scale - have
        left = left.cast(pa.decimal256(left.type.precision + more, left.type.scale + more))
    return pc.divide(left, right)


def negate(values: Values, kind: t.DataType) -> Values:
    """Return -values; the least integer has no opposite and raises pa.ArrowInvalid."""
    return pc.negate(values) if family(kind) == "float" or isinstance(kind, t.Decimal) else pc.negate_checked(values)


def call(name: str, values: Values, source: t.DataType, kind: t.DataType, options: Sequence[int | str]) -> Values:
    """Return a function of `expr.functions.FUNCTIONS` over values.

    Args:
        name: the function.
        values: n values of type `source`.
        source: their type.
        kind: the result type.
        options: the further arguments, whole numbers or texts.
    """
    match name:
        case "lower":
            return pc.utf8_lower(values)
        case "upper":
            return pc.utf8_upper(values)
        case "trim":
            return pc.utf8_trim(values, characters=" ")
        case "ltrim":
            return pc.utf8_ltrim(values, characters=" ")
        case "rtrim":
            return pc.utf8_rtrim(values, characters=" ")
        case "length":
            return (pc.binary_length if family(source) == "binary" else pc.utf8_length)(values).cast(pa.int32())
        case "substring":
            return _substring(values, *map(int, options))
        case "abs":
            return pc.abs(values) if family(kind) == "float" or isinstance(kind, t.Decimal) else pc.abs_checked(values)
        case "round":
            return _round(values, source, kind, int(options[0]) if options else 0)
        case "floor" | "ceil":
            return _floor(values, source, kind, up=name == "ceil")
        case "wall_clock":
            assert isinstance(source, t.LocalZonedTimestamp), source
            return times.wall_clocks(values, source, str(options[0]))
        case "instant_at":
            assert isinstance(source, t.Timestamp), source
            return times.instants(values, source, str(options[0]))
        case "start_of":
            return times.start_of(values, source, str(options[0]))
        case "last_day":
            return times.last_day(values)
        case "unix_date":
            return integers(values, source)
        case "plus_interval":
            months, micros = options
            return times.plus_interval(values, source, kind, int(months), int(micros))
    return times.part(name, values, source)


def _substring(values: Values, position: int, length: int | None = None) -> Values:
    """Return characters from a 1-based position; 0 means 1, and a negative position counts from the end."""
    if length is not None and length <= 0:
        return pc.if_else(values.is_valid(), pa.scalar("", values.type), pa.scalar(None, values.type))
    if position < 0:
        stop = None if length is None or position + length >= 0 else position + length
        return pc.utf8_slice_codeunits(values, start=position, stop=stop)
    start = max(position - 1, 0)
    return pc.utf8_slice_codeunits(values, start=start, stop=None if length is None else start + length)


def _round(values: Values, source: t.DataType, kind: t.DataType, digits: int) -> Values:
    if isinstance(kind, t.Float | t.Double):
        return round_double(as_double(values, source), digits).cast(arrow_type(kind), safe=False)
    if isinstance(kind, t.Decimal):
        assert isinstance(source, t.Decimal), source
        wide = values.cast(pa.decimal256(source.precision + 1, source.scale))
        return fit_decimal(_rounded_decimal(wide, min(digits, kind.scale) if digits >= 0 else digits), kind)
    if digits >= 0:
        return values
    exact = decimal_of(kind)
    wide = values.cast(arrow_type(exact)).cast(pa.decimal256(exact.precision + 1, 0))
    return _rounded_decimal(wide, digits).cast(pa.decimal128(38, 0)).cast(arrow_type(kind))


def _rounded_decimal(values: Values, digits: int) -> Values:
    whole = values.type.precision - values.type.scale
    if -digits > whole:
        zero = pa.scalar(Decimal(0), values.type)
        return pc.if_else(values.is_valid(), zero, pa.scalar(None, values.type))
    room = values.cast(pa.decimal256(values.type.precision + 1, values.type.scale))
    return pc.round(room, ndigits=digits, round_mode="half_towards_infinity")


def _floor(values: Values, source: t.DataType, kind: t.DataType, *, up: bool) -> Values:
    if isinstance(source, t.Decimal):
        wide = values.cast(pa.decimal256(source.precision + 1, source.scale))
        return fit_decimal((pc.ceil if up else pc.floor)(wide), t.Decimal(38, 0)).cast(arrow_type(kind))
    if isinstance(source, t.Float | t.Double):
        numbers = np.asarray(pc.fill_null(as_double(values, source), 0.0))
        whole = np.nan_to_num(np.ceil(numbers) if up else np.floor(numbers), nan=0.0, posinf=2.0**63, neginf=-(2.0**63))
        # SQL goes to the ends of BIGINT where a double passes them.
        top, bottom = whole >= 2.0**63, whole < -(2.0**63)
        inside = np.where(top | bottom, 0.0, whole).astype(np.int64)
        bounds = np.iinfo(np.int64)
        return pa.array(
            np.where(top, bounds.max, np.where(bottom, bounds.min, inside)), mask=np.asarray(values.is_null())
        )
    return values.cast(pa.int64())

"""Comparison of columns with literals and with each other, exact whatever the types.

A literal is never squeezed into the column's type: it is placed among the column's values instead. `INT = 3.5` is
never true, `INT > 3.5` means `INT > 3`, `INT < 3000000000` is true of every INT. So a comparison runs over the
column as it is stored, in one pass, and the same function serves rows and the bounds of files.

Order of FLOAT and DOUBLE: NaN equals NaN and is the largest value; -0.0 equals 0.0. A comparison with a FLOAT or
DOUBLE on either side happens in DOUBLE, as in SQL. TIMESTAMP and LTZ are compared as if both were in UTC.
"""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from merganser.errors import InvariantError
from merganser.expr.literal import INTEGER_BITS
from merganser.expr.tree import NANOS_PER_DAY, UNITS_PER_SECOND, Literal, Value, nanoseconds
from merganser.schema import types as t
from merganser.schema.arrow import arrow_type, timestamp_unit

Values: TypeAlias = pa.Array | pa.ChunkedArray

MIRRORED: Final = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<=", "<=>": "<=>"}

_KERNELS: Final = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
# Not pa.scalar, which imports pandas where that is installed.
_UNKNOWN: Final = pa.nulls(1, pa.bool_())[0]


def family(kind: t.DataType) -> str | None:
    """Return the name of the group of types that compare with each other, or None if the type has no order."""
    match kind:
        case t.Float() | t.Double():
            return "float"
        case t.TinyInt() | t.SmallInt() | t.Int() | t.BigInt() | t.Decimal():
            return "exact"
        case t.Char() | t.VarChar():
            return "text"
        case t.Binary() | t.VarBinary():
            return "binary"
        case t.Date() | t.Timestamp() | t.LocalZonedTimestamp():
            return "instant"
        case t.Time():
            return "time"
        case t.Boolean():
            return "boolean"
    return None


def compare_literal(op: str, values: Values, kind: t.DataType, literal: Literal) -> Values:
    """Return `values op literal` for every value.

    Args:
        op: one of = <> < <= > >= <=>.
        values: n values of the Arrow type of `kind` (large forms too).
        kind: their type.
        literal: a literal of a type that `kind` compares with.

    Returns:
        n truth values; null where the value is null, or everywhere for a null literal, but never for <=>.
    """
    if op == "<=>":
        return values.is_null() if literal.value is None else _filled(compare_literal("=", values, kind, literal))
    if literal.value is None:
        return constant(values, None)
    families = (family(kind), family(literal.type))
    if "float" in families:
        return _compare_float(op, values, kind, literal)
    match families[0]:
        case "text" | "binary" | "boolean":
            return _KERNELS[op](values, pa.scalar(literal.value, values.type))
    return _compare_exact(op, values, kind, literal)


def constant(values: Values, answer: bool | None) -> Values:
    """Return `answer` for every value that is not null, and null for the others."""
    return pc.if_else(values.is_valid(), pa.scalar(answer, pa.bool_()), _UNKNOWN)


def _filled(answers: Values) -> Values:
    return pc.fill_null(answers, False)


def _compare_exact(op: str, values: Values, kind: t.DataType, literal: Literal) -> Values:
    place, low, high = _place(kind, literal)
    floor, whole = math.floor(place), place.denominator == 1
    if whole and low <= floor <= high:
        return _KERNELS[op](*_raw(values, kind, floor))
    if op in ("=", "<>"):
        return constant(values, op == "<>")
    if floor < low or floor >= high:
        above = floor < low
        return constant(values, (op in (">", ">=")) == above)
    # Between two neighbours: below it means up to the lower one, above it means over the lower one.
    return _KERNELS["<=" if op in ("<", "<=") else ">"](*_raw(values, kind, floor))


def _place(kind: t.DataType, literal: Literal) -> tuple[Fraction, int, int]:
    """Return where a literal stands among the stored integers of a type, and the least and greatest of these.

    The stored integers are the values of integer types, the unscaled values of DECIMAL, days, milliseconds of
    the day, and the epoch counts of timestamps.
    """
    match kind:
        case t.Decimal(precision=precision, scale=scale):
            assert isinstance(literal.value, int | Decimal), literal
            return Fraction(literal.value) * 10**scale, -(10**precision) + 1, 10**precision - 1
        case t.Date():
            return Fraction(nanoseconds(literal), NANOS_PER_DAY), -(2**31), 2**31 - 1
        case t.Time():
            return Fraction(nanoseconds(literal), 1_000_000), -(2**31), 2**31 - 1
        case t.Timestamp(precision=precision) | t.LocalZonedTimestamp(precision=precision):
            per_second = UNITS_PER_SECOND[timestamp_unit(precision)]
            return Fraction(nanoseconds(literal) * per_second, 1_000_000_000), -(2**63), 2**63 - 1
    assert isinstance(literal.value, int | Decimal), literal
    bits = INTEGER_BITS[type(kind)]
    return Fraction(literal.value), -(2 ** (bits - 1)), 2 ** (bits - 1) - 1


def _raw(values: Values, kind: t.DataType, stored: int) -> tuple[Values, pa.Scalar]:
    """Return values and one stored integer in an Arrow type that compares them as integers or decimals."""
    if isinstance(kind, t.Decimal):
        return values, pa.scalar(unscaled(stored, kind.scale), values.type)
    raw = integers(values, kind)
    return raw, pa.scalar(stored, raw.type)


def integers(values: Values, kind: t.DataType) -> Values:
    """Return the stored integers of a temporal type; integers stay as they are. Copies nothing."""
    match kind:
        case t.Date() | t.Time():
            return values.cast(pa.int32())
        case t.Timestamp() | t.LocalZonedTimestamp():
            return values.cast(pa.int64())
    return values


def unscaled(value: int, scale: int) -> Decimal:
    """Return value / 10**scale, exact (arithmetic on Decimal would round to the context)."""
    return Decimal((int(value < 0), tuple(map(int, str(abs(value)))), -scale))


def _compare_float(op: str, values: Values, kind: t.DataType, literal: Literal) -> Values:
    assert isinstance(literal.value, int | float | Decimal), literal
    at = float(literal.value)
    single = isinstance(kind, t.Float) and isinstance(literal.type, t.Float)
    numbers = values if single else as_double(values, kind)
    is_float = isinstance(kind, t.Float | t.Double)
    if math.isnan(at):
        nan = pc.is_nan(numbers) if is_float else constant(values, False)
        match op:
            case "=" | ">=":
                return nan
            case "<>" | "<":
                return pc.invert(nan)
        return constant(values, op == "<=")
    answer = _KERNELS[op](numbers, pa.scalar(at, numbers.type))
    return pc.or_(answer, pc.is_nan(numbers)) if is_float and op in (">", ">=") else answer


def as_double(values: Values, kind: t.DataType) -> Values:
    """Return numbers as DOUBLE, each rounded once."""
    if isinstance(kind, t.Decimal):
        # Arrow's own cast multiplies by a rounded power of ten and is off by one unit for values like 0.3.
        return values.cast(pa.string()).cast(pa.float64())
    return pc.cast(values, pa.float64(), safe=False)


def compare(op: str, left: Values, left_kind: t.DataType, right: Values, right_kind: t.DataType) -> Values:
    """Return `left op right` pair by pair.

    Args:
        op: one of = <> < <= > >= <=>.
        left: n values of the Arrow type of `left_kind`.
        left_kind: a type that compares with `right_kind`.
        right: n values of the Arrow type of `right_kind`.
        right_kind: their type.

    Returns:
        n truth values; null where either is null, but never for <=>.
    """
    if op == "<=>":
        both_null = pc.and_(left.is_null(), right.is_null())
        return pc.or_(_filled(compare("=", left, left_kind, right, right_kind)), both_null)
    families = {family(left_kind), family(right_kind)}
    if "float" in families:
        single = isinstance(left_kind, t.Float) and isinstance(right_kind, t.Float)
        return _compare_floats(
            op,
            left if single else as_double(left, left_kind),
            right if single else as_double(right, right_kind),
        )
    match next(iter(families)):
        case "instant" | "time":
            left, right = _common_instants(left, left_kind, right, right_kind)
        case "exact":
            left, right = _common_numbers(left, left_kind, right, right_kind)
    return _KERNELS[op](left, right)


def _compare_floats(op: str, left: Values, right: Values) -> Values:
    left_nan, right_nan = pc.is_nan(left), pc.is_nan(right)
    match op:
        case "=":
            return pc.or_(pc.equal(left, right), pc.and_(left_nan, right_nan))
        case "<>":
            return pc.invert(_compare_floats("=", left, right))
        case "<":
            return pc.or_(pc.less(left, right), pc.and_not(right_nan, left_nan))
        case "<=":
            return pc.or_(pc.less_equal(left, right), right_nan)
        case ">" | ">=":
            return _compare_floats(MIRRORED[op], right, left)
    raise InvariantError(f"there is no comparison '{op}'", op=op)


def _common_instants(
    left: Values, left_kind: t.DataType, right: Values, right_kind: t.DataType
) -> tuple[Values, Values]:
    left_raw, right_raw = integers(left, left_kind), integers(right, right_kind)
    left_step, right_step = _step_nanos(left_kind), _step_nanos(right_kind)
    if left_step == right_step:
        return left_raw, right_raw
    # Nanoseconds of far years pass 64 bits, so units are made equal in decimals.
    return _as_nanos(left_raw, left_step), _as_nanos(right_raw, right_step)


def _step_nanos(kind: t.DataType) -> int:
    match kind:
        case t.Date():
            return NANOS_PER_DAY
        case t.Timestamp(precision=precision) | t.LocalZonedTimestamp(precision=precision):
            return 1_000_000_000 // UNITS_PER_SECOND[timestamp_unit(precision)]
    return 1_000_000


def _as_nanos(raw: Values, step: int) -> Values:
    return pc.multiply(raw.cast(pa.decimal128(19, 0)), pa.scalar(Decimal(step), pa.decimal128(14, 0)))


def _common_numbers(
    left: Values, left_kind: t.DataType, right: Values, right_kind: t.DataType
) -> tuple[Values, Values]:
    if not isinstance(left_kind, t.Decimal) and not isinstance(right_kind, t.Decimal):
        return left.cast(pa.int64()), right.cast(pa.int64())
    left_decimal, right_decimal = decimal_of(left_kind), decimal_of(right_kind)
    scale = max(left_decimal.scale, right_decimal.scale)
    whole = max(left_decimal.precision - left_decimal.scale, right_decimal.precision - right_decimal.scale)
    wide = pa.decimal128(whole + scale, scale) if whole + scale <= 38 else pa.decimal256(whole + scale, scale)
    return (
        left.cast(arrow_type(left_decimal)).cast(wide),
        right.cast(arrow_type(right_decimal)).cast(wide),
    )


def decimal_of(kind: t.DataType) -> t.Decimal:
    """Return the DECIMAL type that holds every value of an exact number type in Arrow's reckoning."""
    if isinstance(kind, t.Decimal):
        return kind
    return t.Decimal({8: 3, 16: 5, 32: 10, 64: 19}[INTEGER_BITS[type(kind)]], 0)


def stored_values(literal: Literal, kind: t.DataType) -> tuple[Value, ...] | None:
    """Return the stored values of a type that equal a literal, for hashing and lookup.

    Returns:
        One value as a rule; none if the type has no such value (INT = 3.5) or the literal is null; two for a
        zero of FLOAT and DOUBLE, which has a sign in bytes; None if they are too many to name or their bytes are
        not known (NaN; a large BIGINT or a DECIMAL against a DOUBLE).
    """
    value = literal.value
    if value is None:
        return ()
    if type(kind) in INTEGER_BITS and type(literal.type) in INTEGER_BITS:  # lists of thousands are of such
        assert isinstance(value, int), literal
        half = 1 << (INTEGER_BITS[type(kind)] - 1)
        return (value,) if -half <= value < half else ()
    families = (family(kind), family(literal.type))
    if families[0] == "float":
        assert isinstance(value, int | float | Decimal), literal
        return _stored_floats(float(value), kind)
    if families[1] == "float":
        assert isinstance(value, float), literal
        if isinstance(kind, t.Decimal) or not abs(value) < 2**53:
            return None
        literal = Literal(Decimal(value), t.Decimal(38, 0))
    if families[0] in ("text", "binary", "boolean"):
        return (value,)
    place, low, high = _place(kind, literal)
    if place.denominator != 1 or not low <= place <= high:
        return ()
    return (unscaled(int(place), kind.scale) if isinstance(kind, t.Decimal) else int(place),)


def _stored_floats(value: float, kind: t.DataType) -> tuple[Value, ...] | None:
    if math.isnan(value):
        return None
    if value == 0:
        return (0.0, -0.0)
    if isinstance(kind, t.Float):
        single = pa.scalar(value, pa.float64()).cast(pa.float32(), safe=False).as_py()
        return (value,) if single == value else ()
    return (value,)

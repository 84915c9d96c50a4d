"""Types of expressions: Spark's rules for what two types have in common, and their names in DuckDB."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from merganser.errors import InvalidInputError, UnsupportedError
from merganser.expr.tree import Null
from merganser.schema import types as t
from merganser.values import dataclass

WHOLE: Final = (t.TinyInt, t.SmallInt, t.Int, t.BigInt)
FLOATS: Final = (t.Float, t.Double)
TEXTS: Final = (t.VarChar, t.Char)
BYTES: Final = (t.VarBinary, t.Binary)
MOMENTS: Final = (t.Timestamp, t.LocalZonedTimestamp)
ON_SPARK: Final = "Run the statement on Spark."
DIGITS: Final = 6
"""Digits of a second that functions compute with, as Spark does. Columns of tables may have up to nine."""
_DIGITS: Final = {t.TinyInt: 3, t.SmallInt: 5, t.Int: 10, t.BigInt: 20}
_PLAIN: Final = {
    t.Boolean: "BOOLEAN", t.TinyInt: "TINYINT", t.SmallInt: "SMALLINT", t.Int: "INTEGER", t.BigInt: "BIGINT",
    t.Float: "FLOAT", t.Double: "DOUBLE", t.VarChar: "VARCHAR", t.Char: "VARCHAR", t.VarBinary: "BLOB",
    t.Binary: "BLOB", t.Date: "DATE", t.Time: "TIME", t.Timestamp: "TIMESTAMP", t.LocalZonedTimestamp: "TIMESTAMPTZ",
    Null: "INTEGER",
}  # fmt: skip

_FIELDS: Final = ("DAY", "HOUR", "MINUTE", "SECOND")


@dataclass(frozen=True, slots=True)
class Interval(t.DataType):
    """INTERVAL DAY TO SECOND, and its parts such as INTERVAL DAY: the difference of two times.

    Results of queries have it, columns of tables do not.

    Attributes:
        first, last: its fields, 0 for days to 3 for seconds.
    """

    first: int = 0
    last: int = 3

    def fields(self) -> str:
        """Return `DAY TO SECOND`, or `DAY`."""
        names = _FIELDS[self.first], _FIELDS[self.last]
        return names[0] if self.first == self.last else " TO ".join(names)

    def wider(self, other: Interval) -> Interval:
        """Return the interval with the fields of two."""
        return Interval(first=min(self.first, other.first), last=max(self.last, other.last))

    def __str__(self) -> str:
        return f"INTERVAL {self.fields()}"


@dataclass(frozen=True)
class Value:
    """An expression for DuckDB, with its type in Spark.

    Attributes:
        text: for DuckDB.
        name: the column that a query without an alias gets.
        digits: of a whole number that is a literal; it takes part in decimal arithmetic with as many.
        is_text: a literal string, which takes the type of what it meets.
        own: the name of a column, of a field or an alias, as it is written; empty for other expressions.
    """

    text: str
    type: t.DataType
    name: str = ""
    digits: int | None = None
    is_text: bool = False
    own: str = ""

    def named(self, name: str) -> Value:
        return replace(self, name=name)

    def aliased(self, name: str) -> Value:
        return replace(self, name=name, own=name)


def is_null(kind: t.DataType) -> bool:
    """Return whether a type is that of a bare NULL."""
    return isinstance(kind, Null)


def is_number(kind: t.DataType) -> bool:
    return isinstance(kind, (*WHOLE, *FLOATS, t.Decimal))


def is_fine(kind: t.DataType) -> bool:
    """Return whether values hold times of more than six digits of a second, also inside."""
    match kind:
        case t.Timestamp() | t.LocalZonedTimestamp():
            return kind.precision > DIGITS
        case t.Array() | t.Multiset():
            return is_fine(kind.element)
        case t.Map():
            return is_fine(kind.key) or is_fine(kind.value)
        case t.Row():
            return any(is_fine(f.type) for f in kind.fields)
    return False


def coarse(kind: t.DataType) -> t.DataType:
    """Return a type whose times have at most six digits of a second."""
    match kind:
        case t.Timestamp() | t.LocalZonedTimestamp():
            return replace(kind, precision=min(kind.precision, DIGITS))
        case t.Array() | t.Multiset():
            return replace(kind, element=coarse(kind.element))
        case t.Map():
            return replace(kind, key=coarse(kind.key), value=coarse(kind.value))
        case t.Row():
            return replace(kind, fields=tuple(replace(f, type=coarse(f.type)) for f in kind.fields))
    return kind


def duck(kind: t.DataType) -> str:
    """Return the name of a type in DuckDB.

    Raises:
        UnsupportedError: DuckDB has no such type.
    """
    match kind:
        case t.Decimal():
            return f"DECIMAL({kind.precision},{kind.scale})"
        case t.Array():
            return duck(kind.element) + "[]"
        case t.Map():
            return f"MAP({duck(kind.key)}, {duck(kind.value)})"
        case t.Multiset():
            return f"MAP({duck(kind.element)}, INTEGER)"
        case t.Row():
            return "STRUCT(" + ", ".join(f"{quoted(f.name)} {duck(f.type)}" for f in kind.fields) + ")"
    if isinstance(kind, Interval):
        return "BIGINT"  # its microseconds
    if isinstance(kind, MOMENTS) and is_fine(kind):
        return "TIMESTAMP_NS"  # also of an instant, by the wall clock of UTC
    if type(kind) in _PLAIN:
        return _PLAIN[type(kind)]
    raise UnsupportedError(f"cannot compute with {kind} in this process. Run the statement on Spark.")


def quoted(name: str) -> str:
    """Return a name as DuckDB takes it."""
    return '"' + name.replace('"', '""') + '"'


def string(text: str) -> str:
    """Return a literal string for DuckDB."""
    return "'" + text.replace("'", "''") + "'"


def as_decimal(value: Value) -> t.Decimal:
    """Return the DECIMAL that an exact number takes part in decimal arithmetic as."""
    if isinstance(value.type, t.Decimal):
        return value.type
    return t.Decimal(value.digits or _DIGITS[type(value.type)], 0)  # type: ignore[index]


def bounded(precision: int, scale: int) -> t.Decimal:
    """Return a DECIMAL of at most 38 digits: digits before the point are kept, of the others at least six."""
    if precision <= 38:
        return t.Decimal(max(precision, 1), scale)
    return t.Decimal(38, max(38 - (precision - scale), min(scale, 6)))


def common(values: Sequence[Value], doing: str) -> t.DataType:
    """Return the type that values of one column get.

    Raises:
        InvalidInputError: the types have nothing in common.
    """
    solid = [value for value in values if not is_null(value.type)]
    if not solid:
        return Null()
    found = solid[0]
    for value in solid[1:]:
        wider = wider_of(found, value)
        if wider is None:
            raise InvalidInputError(
                f"cannot {doing}: {found.name or found.type} is {found.type}, and {value.name or value.type} is "
                f"{value.type}. CAST one of them."
            )
        found = Value(found.text, wider, found.name, is_text=found.is_text and value.is_text)
    return found.type


def wider_of(left: Value, right: Value) -> t.DataType | None:
    """Return the type that holds two; None if there is none."""
    a, b = left.type.with_nullable(True), right.type.with_nullable(True)
    if is_null(a) or is_null(b):
        return b if is_null(a) else a
    if isinstance(a, Interval) and isinstance(b, Interval):
        return a.wider(b)
    if same(a, b):
        return a
    if isinstance(a, TEXTS) and isinstance(b, TEXTS):
        return t.string()
    if isinstance(a, BYTES) and isinstance(b, BYTES):
        return t.VarBinary()
    if is_number(a) and is_number(b):
        return _wider_number(a, b)
    if isinstance(a, TEXTS) != isinstance(b, TEXTS):
        other = b if isinstance(a, TEXTS) else a
        if isinstance(other, WHOLE):
            return t.BigInt()
        if isinstance(other, (*FLOATS, t.Decimal)):
            return t.Double()
        return other if isinstance(other, (t.Boolean, t.Date, t.Time, *MOMENTS, *BYTES)) else None
    if isinstance(a, t.Time) and isinstance(b, t.Time):
        return max(a, b, key=lambda kind: kind.precision)
    moments = [kind for kind in (a, b) if isinstance(kind, MOMENTS)]
    if moments and all(isinstance(kind, (t.Date, *MOMENTS)) for kind in (a, b)):
        zoned = [kind for kind in moments if isinstance(kind, t.LocalZonedTimestamp)]
        if zoned and len(zoned) < len(moments):
            return coarse(zoned[0])
        return next((kind for kind in moments if is_fine(kind)), moments[0])
    if isinstance(a, t.Array) and isinstance(b, t.Array):
        inner = wider_of(Value("", a.element), Value("", b.element))
        return None if inner is None else t.Array(element=inner)
    if isinstance(a, t.Map) and isinstance(b, t.Map):
        key, item = wider_of(Value("", a.key), Value("", b.key)), wider_of(Value("", a.value), Value("", b.value))
        return None if key is None or item is None else t.Map(key=key, value=item)
    if isinstance(a, t.Row) and isinstance(b, t.Row) and len(a.fields) == len(b.fields):
        kinds = [wider_of(Value("", f.type), Value("", g.type)) for f, g in zip(a.fields, b.fields, strict=True)]
        if all(kind is not None for kind in kinds):
            made = [t.Field(f.id, f.name, kind) for f, kind in zip(a.fields, kinds, strict=True) if kind is not None]
            return t.Row(fields=tuple(made))
    return None


def same(a: t.DataType, b: t.DataType) -> bool:
    """Return whether two types are one for DuckDB and for Spark."""
    if isinstance(a, TEXTS) and isinstance(b, TEXTS):
        return True
    if isinstance(a, MOMENTS) and type(a) is type(b):
        return is_fine(a) == is_fine(b)
    if isinstance(a, Interval) and isinstance(b, Interval):
        return True
    return a.with_nullable(True) == b.with_nullable(True)


def _wider_number(a: t.DataType, b: t.DataType) -> t.DataType:
    if isinstance(a, FLOATS) or isinstance(b, FLOATS):
        return t.Float() if not isinstance(a, (t.Double, t.Decimal, t.BigInt, t.Int)) and not isinstance(
            b, (t.Double, t.Decimal, t.BigInt, t.Int)
        ) else t.Double()  # fmt: skip
    if isinstance(a, t.Decimal) or isinstance(b, t.Decimal):
        first, second = as_decimal(Value("", a)), as_decimal(Value("", b))
        scale = max(first.scale, second.scale)
        whole = max(first.precision - first.scale, second.precision - second.scale)
        return t.Decimal(min(whole + scale, 38), min(scale, 38 - whole))  # all digits before the point are kept
    return WHOLE[max(WHOLE.index(type(a)), WHOLE.index(type(b)))]()  # type: ignore[arg-type]

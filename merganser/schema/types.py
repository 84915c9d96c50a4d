"""The data types of a table, as frozen values.

A type knows its parameters and whether it may be null. Text forms are in `types_text`, Arrow forms in
`arrow`. Field ids live on `Field`, the one place of the format that numbers columns.

Format: schema files, section "field object".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final, Self

from merganser.values import dataclass

LENGTH_MAX: Final = 2_147_483_647
"""Length of STRING and BYTES, the unbounded VARCHAR and VARBINARY."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataType:
    """Root of all types. Two types are equal when kind, parameters and nullability are."""

    nullable: bool = True

    def with_nullable(self, nullable: bool) -> Self:
        """Return this type, nullable or NOT NULL."""
        return self if nullable == self.nullable else replace(self, nullable=nullable)

    def __str__(self) -> str:
        """Return the SQL text as the format writes it, with ` NOT NULL` where it applies."""
        return _text(self) + ("" if self.nullable else " NOT NULL")


@dataclass(frozen=True, slots=True)
class Boolean(DataType):
    """BOOLEAN."""


@dataclass(frozen=True, slots=True)
class TinyInt(DataType):
    """TINYINT, 8 bits signed."""


@dataclass(frozen=True, slots=True)
class SmallInt(DataType):
    """SMALLINT, 16 bits signed."""


@dataclass(frozen=True, slots=True)
class Int(DataType):
    """INT, 32 bits signed."""


@dataclass(frozen=True, slots=True)
class BigInt(DataType):
    """BIGINT, 64 bits signed."""


@dataclass(frozen=True, slots=True)
class Float(DataType):
    """FLOAT, 32 bits."""


@dataclass(frozen=True, slots=True)
class Double(DataType):
    """DOUBLE, 64 bits."""


@dataclass(frozen=True, slots=True)
class Decimal(DataType):
    """DECIMAL(precision, scale), precision 1 to 38."""

    precision: int = 10
    scale: int = 0


@dataclass(frozen=True, slots=True)
class Char(DataType):
    """CHAR(length): text of at most `length` characters; values are not padded."""

    length: int = 1


@dataclass(frozen=True, slots=True)
class VarChar(DataType):
    """VARCHAR(length), written STRING when unbounded."""

    length: int = LENGTH_MAX


@dataclass(frozen=True, slots=True)
class Binary(DataType):
    """BINARY(length): at most `length` bytes; values are not padded."""

    length: int = 1


@dataclass(frozen=True, slots=True)
class VarBinary(DataType):
    """VARBINARY(length), written BYTES when unbounded."""

    length: int = LENGTH_MAX


@dataclass(frozen=True, slots=True)
class Date(DataType):
    """DATE, days since 1970-01-01."""


@dataclass(frozen=True, slots=True)
class Time(DataType):
    """TIME(precision): time of day; stored in milliseconds whatever the precision."""

    precision: int = 0


@dataclass(frozen=True, slots=True)
class Timestamp(DataType):
    """TIMESTAMP(precision): wall clock without a zone, 0 to 9 fraction digits."""

    precision: int = 6


@dataclass(frozen=True, slots=True)
class LocalZonedTimestamp(DataType):
    """TIMESTAMP(precision) WITH LOCAL TIME ZONE: an instant, kept in UTC."""

    precision: int = 6


@dataclass(frozen=True, slots=True)
class Variant(DataType):
    """VARIANT: semi-structured value, two binaries (value, metadata)."""


@dataclass(frozen=True, slots=True)
class Blob(DataType):
    """BLOB: known by name only; tables with such a column are not read or written."""


@dataclass(frozen=True, slots=True)
class Geo(DataType):
    """GEOMETRY(crs) or GEOGRAPHY(crs, algorithm): known by name only."""

    text: str = "GEOMETRY"


@dataclass(frozen=True, slots=True, kw_only=True)
class Vector(DataType):
    """VECTOR<element, length>: known by name only."""

    element: DataType
    length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Array(DataType):
    """ARRAY<element>."""

    element: DataType


@dataclass(frozen=True, slots=True, kw_only=True)
class Map(DataType):
    """MAP<key, value>."""

    key: DataType
    value: DataType


@dataclass(frozen=True, slots=True, kw_only=True)
class Multiset(DataType):
    """MULTISET<element>: stored as a map from element to a count."""

    element: DataType


@dataclass(frozen=True, slots=True, kw_only=True)
class Row(DataType):
    """ROW<name type, ...>, with field ids of its own."""

    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class Field:
    """A named column, or a named part of a ROW.

    `id` is unique within the table over all its schemas and never reused. `default` is the text of a literal
    that writers use for a column they are not given.
    """

    id: int
    name: str
    type: DataType
    description: str | None = None
    default: str | None = None


def _text(kind: DataType) -> str:
    match kind:
        case VarChar(length=length):
            return "STRING" if length == LENGTH_MAX else f"VARCHAR({length})"
        case VarBinary(length=length):
            return "BYTES" if length == LENGTH_MAX else f"VARBINARY({length})"
        case Char(length=length):
            return f"CHAR({length})"
        case Binary(length=length):
            return f"BINARY({length})"
        case Decimal(precision=precision, scale=scale):
            return f"DECIMAL({precision}, {scale})"
        case Time(precision=precision):
            return f"TIME({precision})"
        case Timestamp(precision=precision):
            return f"TIMESTAMP({precision})"
        case LocalZonedTimestamp(precision=precision):
            return f"TIMESTAMP({precision}) WITH LOCAL TIME ZONE"
        case Geo(text=text):
            return text
        case Array(element=element):
            return f"ARRAY<{element}>"
        case Multiset(element=element):
            return f"MULTISET<{element}>"
        case Vector(element=element, length=length):
            return f"VECTOR<{element}, {length}>"
        case Map(key=key, value=value):
            return f"MAP<{key}, {value}>"
        case Row(fields=fields):
            return "ROW<" + ", ".join(f"{quoted(f.name)} {f.type}" for f in fields) + ">"
    return type(kind).__name__.upper()


def quoted(name: str) -> str:
    """Return a column name as SQL text, in backticks unless it is a plain word."""
    plain = name.isascii() and name.isidentifier()
    return name if plain else "`" + name.replace("`", "``") + "`"


def string(*, nullable: bool = True) -> VarChar:
    """Return STRING."""
    return VarChar(nullable=nullable)


def nested_fields(kind: DataType) -> Iterator[Field]:
    """Yield every field below a type, at any depth, parents before children."""
    match kind:
        case Row():
            for field in kind.fields:
                yield field
                yield from nested_fields(field.type)
        case Array() | Multiset() | Vector():
            yield from nested_fields(kind.element)
        case Map():
            yield from nested_fields(kind.key)
            yield from nested_fields(kind.value)


def levels(kind: DataType) -> int:
    """Return how many levels a column of this type takes in the schema of a file: 1 for a plain one."""
    deepest, waiting = 0, [(kind, 1)]
    while waiting:  # without recursion: a type may be deeper than Python's stack
        found, level = waiting.pop()
        deepest = max(deepest, level)
        match found:
            case Array(element=element) | Multiset(element=element):
                waiting.append((element, level + 2))
            case Map(key=key, value=value):
                waiting += [(key, level + 2), (value, level + 2)]
            case Row(fields=fields):
                waiting += [(field.type, level + 1) for field in fields]
    return deepest


_NESTED: Final = (Array, Map, Multiset, Row, Variant, Vector)


def is_nested(kind: DataType) -> bool:
    """Return whether values of the type are containers (no order, no key, no min and max)."""
    return isinstance(kind, _NESTED)

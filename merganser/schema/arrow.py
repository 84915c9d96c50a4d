"""Types <-> Arrow: what merganser hands out, and what it takes.

Handed out: integers, floats and booleans of the same width; decimal128; date32; TIME as time32[ms];
TIMESTAMP(p) in ms, us or ns for p up to 3, 6, 9, LTZ the same with zone UTC; string and binary; list, map,
struct; MULTISET<t> as map<t, int32>; VARIANT as struct<value, metadata>. Taken in: any Arrow type that
names a type of ours (`field_from_arrow`); the values are checked where rows are conformed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import pyarrow as pa

from merganser.errors import InvalidInputError, UnsupportedError
from merganser.schema import types as t
from merganser.schema.types_text import UNNUMBERED

LISTS: Final = (pa.ListType, pa.LargeListType, pa.FixedSizeListType, pa.ListViewType, pa.LargeListViewType)
"""The Arrow types of lists, in all layouts."""
_FIXED: dict[type[t.DataType], pa.DataType] = {
    t.Boolean: pa.bool_(),
    t.TinyInt: pa.int8(),
    t.SmallInt: pa.int16(),
    t.Int: pa.int32(),
    t.BigInt: pa.int64(),
    t.Float: pa.float32(),
    t.Double: pa.float64(),
    t.Char: pa.string(),
    t.VarChar: pa.string(),
    t.Binary: pa.binary(),
    t.VarBinary: pa.binary(),
    t.Date: pa.date32(),
    t.Time: pa.time32("ms"),
    t.Variant: pa.struct([pa.field(name, pa.binary(), nullable=False) for name in ("value", "metadata")]),
}  # fmt: skip


@lru_cache(maxsize=1024)
def arrow_type(kind: t.DataType) -> pa.DataType:
    """Return the Arrow type that values of `kind` are handed out in.

    Raises:
        UnsupportedError: BLOB, VECTOR and geo types, whose values merganser does not read.
    """
    match kind:
        case t.Decimal(precision=precision, scale=scale):
            return pa.decimal128(precision, scale)
        case t.Timestamp(precision=precision):
            return pa.timestamp(timestamp_unit(precision))
        case t.LocalZonedTimestamp(precision=precision):
            return pa.timestamp(timestamp_unit(precision), "UTC")
        case t.Array(element=element):
            return pa.list_(pa.field("element", arrow_type(element), nullable=element.nullable))
        case t.Map(key=key, value=value):
            return pa.map_(arrow_type(key), pa.field("value", arrow_type(value), nullable=value.nullable))
        case t.Multiset(element=element):
            return pa.map_(arrow_type(element), pa.field("value", pa.int32(), nullable=False))
        case t.Row(fields=fields):
            return pa.struct([arrow_field(f) for f in fields])
    try:
        return _FIXED[type(kind)]
    except KeyError:
        raise UnsupportedError(
            f"columns of type {kind} cannot be read or written by this version of merganser"
        ) from None


@lru_cache(maxsize=4096)
def arrow_field(field: t.Field) -> pa.Field:
    """Return the Arrow field of a column: name, type, nullability."""
    return pa.field(field.name, arrow_type(field.type), nullable=field.type.nullable)


def arrow_schema(fields: Sequence[t.Field]) -> pa.Schema:
    """Return the Arrow schema of columns, in their order."""
    return _arrow_schema(tuple(fields))


@lru_cache(maxsize=256)
def _arrow_schema(fields: tuple[t.Field, ...]) -> pa.Schema:
    return pa.schema([arrow_field(f) for f in fields])


def nullable_schema(fields: Sequence[t.Field]) -> pa.Schema:
    """Return the same where all columns may be null: rows of old files may be, in columns that are NOT NULL now."""
    return pa.schema([arrow_field(f).with_nullable(True) for f in fields])


def in_types(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the columns of rows in the types of a schema, with its names and nullability.

    Rows of old files may be null in parts of values that are NOT NULL now. Arrow casts no such column, not even to its
    own type.
    """
    if rows.schema.equals(schema):
        return rows
    pairs = zip(rows.columns, schema, strict=True)
    columns = [column if column.type == field.type else column.cast(field.type) for column, field in pairs]
    return pa.Table.from_arrays(columns, schema=schema)


def timestamp_unit(precision: int) -> str:
    """Return the Arrow unit that holds `precision` fraction digits: ms, us or ns."""
    return "ms" if precision <= 3 else "us" if precision <= 6 else "ns"


def fields_from_arrow(schema: pa.Schema) -> tuple[t.Field, ...]:
    """Return the columns of an Arrow schema, not numbered yet."""
    return tuple(_field_from_arrow(f, f.name) for f in schema)


def _field_from_arrow(field: pa.Field, path: str) -> t.Field:
    return t.Field(UNNUMBERED, field.name, type_from_arrow(field.type, path).with_nullable(field.nullable))


def type_from_arrow(kind: pa.DataType, path: str) -> t.DataType:
    """Return the type of ours that an Arrow type names; `path` is the column, for the error.

    Raises:
        InvalidInputError: nothing in the format holds such values.
    """
    found = _simple_from_arrow(kind)
    return _parametric_from_arrow(kind, path) if found is None else found


@lru_cache(maxsize=256)
def _simple_from_arrow(kind: pa.DataType) -> t.DataType | None:
    simple: list[tuple[bool, t.DataType]] = [
        (pa.types.is_boolean(kind), t.Boolean()),
        (pa.types.is_int8(kind), t.TinyInt()),
        (pa.types.is_int16(kind) or pa.types.is_uint8(kind), t.SmallInt()),
        (pa.types.is_int32(kind) or pa.types.is_uint16(kind), t.Int()),
        (pa.types.is_int64(kind) or pa.types.is_uint32(kind), t.BigInt()),
        (pa.types.is_uint64(kind), t.Decimal(20, 0)),
        (pa.types.is_float16(kind) or pa.types.is_float32(kind), t.Float()),
        (pa.types.is_float64(kind), t.Double()),
        (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind), t.VarChar()),
        (pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind), t.VarBinary()),
        (pa.types.is_date(kind), t.Date()),
    ]
    for matches, ours in simple:
        if matches:
            return ours
    return None


def _parametric_from_arrow(kind: pa.DataType, path: str) -> t.DataType:
    if pa.types.is_fixed_size_binary(kind):
        return t.Binary(kind.byte_width)
    if pa.types.is_decimal(kind) and kind.precision <= 38 and 0 <= kind.scale <= kind.precision:
        return t.Decimal(kind.precision, kind.scale)
    if pa.types.is_time(kind):
        return t.Time(0 if kind.unit == "s" else 3)
    if pa.types.is_timestamp(kind):
        precision = {"s": 0, "ms": 3, "us": 6, "ns": 9}[kind.unit]
        return t.Timestamp(precision) if kind.tz is None else t.LocalZonedTimestamp(precision)
    if pa.types.is_dictionary(kind):
        return type_from_arrow(kind.value_type, path)
    if pa.types.is_map(kind):
        return t.Map(
            key=type_from_arrow(kind.key_type, path + ".key").with_nullable(False),
            value=type_from_arrow(kind.item_type, path + ".value").with_nullable(kind.item_field.nullable),
        )
    if isinstance(kind, pa.ListType | pa.LargeListType | pa.FixedSizeListType):
        element = type_from_arrow(kind.value_type, path + ".element").with_nullable(kind.value_field.nullable)
        return t.Array(element=element)
    if pa.types.is_struct(kind) and kind.num_fields:
        return t.Row(fields=tuple(_field_from_arrow(f, f"{path}.{f.name}") for f in kind))
    raise InvalidInputError(
        f"column '{path}' has the Arrow type {kind}, which no column type of a table holds. "
        "Cast it, for instance to string, before handing it over.",
        column=path,
    )


def lacks_type(kind: pa.DataType) -> bool:
    """Return whether an Arrow type is that of nulls, or has such a part: Arrow's guess for empty lists."""
    if pa.types.is_null(kind):
        return True
    return pa.types.is_nested(kind) and any(lacks_type(kind.field(i).type) for i in range(kind.num_fields))

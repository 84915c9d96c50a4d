"""Names of fields inside ROW, ARRAY and MAP columns, changed without a copy.

Arrow's `cast` finds the fields of a struct by name: fields whose names it does not find become null. `view` takes the
fields in their order.
"""

from __future__ import annotations

import pyarrow as pa


def with_names(rows: pa.Table, like: pa.Schema) -> pa.Table:
    """Return rows under the names that a schema has at every depth; columns and fields correspond by position.

    Args:
        like: as many columns, of the same shape. Its types count for their names alone.
    """
    columns, fields = [], []
    for column, field, wanted in zip(rows.columns, rows.schema, like, strict=True):
        chunks = [renamed_inside(chunk, wanted.type) for chunk in column.chunks]
        kind = _named(field.type, wanted.type)
        columns.append(pa.chunked_array(chunks, kind))
        fields.append(field.with_name(wanted.name).with_type(kind))
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def renamed_inside(values: pa.Array, like: pa.DataType) -> pa.Array:
    """Return values whose fields have the names that a type has at every depth; fields correspond by position.

    Args:
        like: a type of the same shape. It counts for its names alone.
    """
    kind = _named(values.type, like)
    return values if kind == values.type else values.view(kind)


def _named(kind: pa.DataType, like: pa.DataType) -> pa.DataType:
    """Return a type with the names of fields that another type of the same shape has."""
    if pa.types.is_struct(kind):
        return pa.struct([_field(kind.field(i), like.field(i)).with_name(like.field(i).name) for i in range(len(kind))])
    if pa.types.is_map(kind):
        return pa.map_(_field(kind.key_field, like.key_field), _field(kind.item_field, like.item_field))
    if pa.types.is_large_list(kind):
        return pa.large_list(_field(kind.value_field, like.value_field))
    return pa.list_(_field(kind.value_field, like.value_field)) if pa.types.is_list(kind) else kind


def _field(field: pa.Field, like: pa.Field) -> pa.Field:
    return field.with_type(_named(field.type, like.type))

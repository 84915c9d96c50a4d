"""Hidden values: under a null ROW its NOT NULL parts hold values that no reader sees.

A null ROW has no fields, yet Arrow keeps an array for each. A null in one that is NOT NULL is no fault of the rows,
but writers of files refuse it, ours of Parquet and other people's. Most of Arrow's functions leave such nulls behind
(`nulls`, `take` of a null index, `if_else`), so they are replaced where rows leave for a file and where they come
from one. A VARIANT is a row of two such parts.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merganser.schema.cast_values import items_of, validity


def nulls(count: int, kind: pa.DataType) -> pa.Array:
    """Return `count` nulls of a type, with values in the NOT NULL parts under them."""
    if not _may_hide(kind):
        return pa.nulls(count, kind)
    return pa.array([None], kind).take(pa.array(np.zeros(count, np.int64)))


def with_values_under_nulls(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the same rows, with values in the NOT NULL parts under null ones; the same object when they are there.

    A null that can be seen stays: a NOT NULL part of a row that is not null.
    """
    if not _may_hide(values.type):
        return values
    chunks = values.chunks
    filled = [_filled(chunk, None) for chunk in chunks]
    if all(new is old for new, old in zip(filled, chunks, strict=True)):
        return values
    return pa.chunked_array(filled, values.type)


def has_seen_nulls(values: pa.ChunkedArray) -> bool:
    """Return whether a NOT NULL part of rows is null where what holds it is not."""
    return _has_not_null(values.type) and any(_is_seen(chunk, None) for chunk in values.chunks)


def _is_seen(values: pa.Array, under: pa.BooleanArray | None) -> bool:
    """Return whether a NOT NULL part is null where what holds it is not; `under` is as for `_filled`."""
    kind = values.type
    if not _has_not_null(kind):
        return False
    if pa.types.is_struct(kind):
        unseen = values.is_null() if values.null_count else None
        if under is not None:
            unseen = under if unseen is None else pc.or_(under, unseen)
        for i, field in enumerate(kind):
            part = values.field(i)
            if not field.nullable and part.null_count:
                lacking = part.is_null() if unseen is None else pc.and_not(part.is_null(), unseen)
                if lacking.true_count:
                    return True
            if _is_seen(part, unseen):
                return True
        return False
    part = items_of(values)[1][-1]
    return (bool(part.null_count) and not _item(kind).nullable) or _is_seen(part, None)


def _has_not_null(kind: pa.DataType) -> bool:
    """Return whether values of a type have parts that are NOT NULL, besides keys of maps."""
    if pa.types.is_struct(kind):
        return any(not field.nullable or _has_not_null(field.type) for field in kind)
    return pa.types.is_nested(kind) and (not _item(kind).nullable or _has_not_null(_item(kind).type))


def _item(kind: pa.DataType) -> pa.Field:
    """Return the elements of lists, or the values of maps."""
    return kind.item_field if pa.types.is_map(kind) else kind.value_field


def _may_hide(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(not field.nullable or _may_hide(field.type) for field in kind)
    return pa.types.is_nested(kind) and any(_may_hide(kind.field(i).type) for i in range(kind.num_fields))


def _filled(values: pa.Array, under: pa.BooleanArray | None) -> pa.Array:
    """Return `values`, or the same with values under nulls.

    Args:
        under: true where a row that holds this one is null; None: nowhere.
    """
    kind = values.type
    if not _may_hide(kind):
        return values
    if pa.types.is_struct(kind):
        unseen = values.is_null() if values.null_count else None
        if under is not None:
            unseen = under if unseen is None else pc.or_(under, unseen)
        old = [values.field(i) for i in range(kind.num_fields)]
        new = [_field(child, field, unseen) for child, field in zip(old, kind, strict=True)]
        if all(a is b for a, b in zip(old, new, strict=True)):
            return values
        return pa.Array.from_buffers(kind, len(values), [validity(values)], children=new)
    offsets, parts = items_of(values)
    filled = [_filled(part, None) for part in parts]
    if all(a is b for a, b in zip(parts, filled, strict=True)):
        return values
    child = filled[0]
    if pa.types.is_map(kind):
        child = pa.StructArray.from_arrays(filled, fields=list(kind.field(0).type))
    return pa.Array.from_buffers(kind, len(values), [validity(values), offsets], children=[child])


def _field(values: pa.Array, field: pa.Field, unseen: pa.BooleanArray | None) -> pa.Array:
    """Return a field of rows with values where the rows are null, if it is NOT NULL."""
    filled = _filled(values, unseen)
    if field.nullable or unseen is None or not values.null_count:
        return filled
    empty = np.asarray(pc.and_(unseen, filled.is_null()))
    if not empty.any():
        return filled
    # A null row that Arrow builds holds such values: empty text, 0, no elements.
    value = pa.array([None], pa.struct([field])).field(0)
    return pa.concat_arrays([filled, value]).take(pa.array(np.where(empty, len(filled), np.arange(len(filled)))))

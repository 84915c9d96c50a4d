"""Moments with more digits than their column stores: told apart from other misfits, or cut."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from merganser.schema.cast_values import items_of, validity

UNIT_NAMES: Final = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
_PER_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def is_finer(found: pa.DataType, target: pa.DataType) -> bool:
    """Return whether an Arrow type of moments has digits that another one does not store."""
    same = (pa.types.is_timestamp(found) and pa.types.is_timestamp(target)) or (
        pa.types.is_time(found) and pa.types.is_time(target)
    )
    return same and _PER_SECOND[found.unit] > _PER_SECOND[target.unit]


def truncated(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Return an array whose moments, at any depth, have no digits that the target type does not store.

    Digits are dropped towards the past, as `date_trunc` does, also before 1970. The array keeps its type.

    Args:
        array: of any type; what has another form than the target stays as it is.
    """
    kind = array.type
    if is_finer(kind, target):
        step = _PER_SECOND[kind.unit] // _PER_SECOND[target.unit]
        counts = np.frombuffer(array.buffers()[1], np.int64, len(array), array.offset * 8)
        return pa.Array.from_buffers(kind, len(array), [validity(array), pa.py_buffer(counts - counts % step)])
    if pa.types.is_struct(kind) and pa.types.is_struct(target):
        goals = {field.name: field.type for field in target}
        parts = [array.field(i) for i in range(kind.num_fields)]
        cut = [
            truncated(part, goals[field.name]) if field.name in goals else part
            for part, field in zip(parts, kind, strict=True)
        ]
        if all(new is old for new, old in zip(cut, parts, strict=True)):
            return array
        return pa.Array.from_buffers(kind, len(array), [validity(array)], children=cut)
    if pa.types.is_map(kind) and pa.types.is_map(target):
        goals_of_parts = [target.key_type, target.item_type]
    elif pa.types.is_list(kind) and pa.types.is_list(target):
        goals_of_parts = [target.value_type]
    else:
        return array
    offsets, parts = items_of(array)
    cut = [truncated(part, goal) for part, goal in zip(parts, goals_of_parts, strict=True)]
    if all(new is old for new, old in zip(cut, parts, strict=True)):
        return array
    child = cut[0] if len(cut) == 1 else pa.StructArray.from_arrays(cut, fields=list(kind.field(0).type))
    return pa.Array.from_buffers(kind, len(array), [validity(array), offsets], children=[child])

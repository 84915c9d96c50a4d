"""Moments with more digits than their column stores: told apart from other misfits, or cut."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from merganser.schema import types as t
from merganser.schema.cast_values import items_of, validity

UNIT_NAMES: Final = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
_PER_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_TIME_DIGITS_MAX: Final = 3
"""Maximum fraction digits of a TIME: the format stores milliseconds."""


def digits_of(kind: t.DataType) -> int | None:
    """Return how many fraction digits a type stores. None if it is no time and no timestamp."""
    match kind:
        case t.Timestamp() | t.LocalZonedTimestamp():
            return kind.precision
        case t.Time():
            return min(kind.precision, _TIME_DIGITS_MAX)
    return None


def finer_by(found: pa.DataType, kind: t.DataType) -> int:
    """Return how many steps of an Arrow type one step of a type has. 1 if the type stores all digits.

    Args:
        found: the Arrow type of values that are written.
        kind: the type of their column.
    """
    digits = digits_of(kind)
    if digits is None:
        return 1
    if isinstance(kind, t.Time) and pa.types.is_int32(found):
        unit = "ms"  # the form that TIME has in Spark before 4.1
    elif pa.types.is_time(found) if isinstance(kind, t.Time) else pa.types.is_timestamp(found):
        unit = found.unit
    else:
        return 1
    return max(1, int(_PER_SECOND[unit] // 10**digits))


def truncated(array: pa.Array, kind: t.DataType) -> pa.Array:
    """Return an array whose moments, at any depth, have no digits that a type does not store.

    Digits are dropped towards the past, as `date_trunc` does, also before 1970. The array keeps its Arrow type.

    Args:
        array: of any Arrow type; what has another form than `kind` stays as it is.
    """
    found = array.type
    step = finer_by(found, kind)
    if step > 1 and len(array):
        counts = _counts(array)
        return pa.Array.from_buffers(found, len(array), [validity(array), pa.py_buffer(counts - counts % step)])
    if pa.types.is_struct(found) and isinstance(kind, t.Row):
        goals = {field.name: field.type for field in kind.fields}
        parts = [array.field(i) for i in range(found.num_fields)]
        cut = [
            truncated(part, goals[field.name]) if field.name in goals else part
            for part, field in zip(parts, found, strict=True)
        ]
        if all(new is old for new, old in zip(cut, parts, strict=True)):
            return array
        return pa.Array.from_buffers(found, len(array), [validity(array)], children=cut)
    if pa.types.is_map(found) and isinstance(kind, t.Map):
        goals_of_parts = [kind.key, kind.value]
    elif pa.types.is_map(found) and isinstance(kind, t.Multiset):
        goals_of_parts = [kind.element, t.Int()]
    elif pa.types.is_list(found) and isinstance(kind, t.Array):
        goals_of_parts = [kind.element]
    else:
        return array
    offsets, parts = items_of(array)
    cut = [truncated(part, goal) for part, goal in zip(parts, goals_of_parts, strict=True)]
    if all(new is old for new, old in zip(cut, parts, strict=True)):
        return array
    child = cut[0] if len(cut) == 1 else pa.StructArray.from_arrays(cut, fields=list(found.field(0).type))
    return pa.Array.from_buffers(found, len(array), [validity(array), offsets], children=[child])


def too_fine(array: pa.Array, kind: t.DataType) -> int | None:
    """Return the index of the first value with digits that its type does not store. None if there is none."""
    coarse = coarse_enough(array, kind)
    if coarse is None or coarse.all():
        return None
    found = np.flatnonzero(~coarse & np.asarray(array.is_valid()))
    return int(found[0]) if len(found) else None


def coarse_enough(array: pa.Array, kind: t.DataType) -> npt.NDArray[np.bool_] | None:
    """Return bool[n]: which values have no digits that a type does not store; anything for nulls. None: all."""
    step = finer_by(array.type, kind)
    return None if step == 1 or not len(array) else _counts(array) % step == 0


def _counts(array: pa.Array) -> npt.NDArray[Any]:
    width = array.type.bit_width // 8
    return np.frombuffer(array.buffers()[1], f"i{width}", len(array), array.offset * width)

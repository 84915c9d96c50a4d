"""Columns as flat arrays, and reductions of them group by group.

A segment is a group's stretch of an array that stands in (group, merge order) order; `starts` int64[k] says where
each begins. No segment is empty, and neither is any array that is reduced: callers answer k = 0 themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from merganser.merge.groups import Groups, Mask, Positions

Values = npt.NDArray[Any]

_ROUND_MIN: Final = 1000
"""Groups that a round of `left_fold` must still have; fewer are folded one by one, in one call each."""


def whole(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Return the column as one array; without a copy if it is one chunk."""
    if isinstance(column, pa.Array):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def validity(column: pa.ChunkedArray | pa.Array) -> Mask | None:
    """Return bool[n], which values are not null; None if all are."""
    if not column.null_count:
        return None
    valid = pc.is_valid(column)
    return valid.to_numpy(zero_copy_only=False) if isinstance(valid, pa.Array) else valid.to_numpy()  # type: ignore[no-any-return]


def fixed_width(array: pa.Array, kind: npt.DTypeLike) -> Values:
    """Return the values of a fixed-width array as numbers of its width, without a copy; what a null holds is free."""
    kind = np.dtype(kind)
    buffer = array.buffers()[1]
    if buffer is None:
        return np.zeros(len(array), kind)
    return np.frombuffer(buffer, kind, count=len(array), offset=array.offset * kind.itemsize)


def sorted_values(
    column: pa.ChunkedArray, kind: npt.DTypeLike, groups: Groups, fill: Any
) -> tuple[Values, Mask | None]:
    """Return the values in (group, merge order) order with `fill` for nulls, and which are not null (None: all)."""
    array = whole(column)
    values = fixed_width(array, kind)[groups.positions]
    valid = validity(array)
    if valid is None:
        return values, None
    valid = valid[groups.positions]
    values[~valid] = fill
    return values, valid


def any_of(mask: Mask, starts: Positions) -> Mask:
    """Return bool[k]: whether any of a segment is true."""
    if not len(starts):
        return np.empty(0, np.bool_)
    return np.maximum.reduceat(mask.view(np.uint8), starts).view(np.bool_)  # type: ignore[no-any-return]


def array_of(values: Values, valid: Mask | None, kind: pa.DataType) -> pa.Array:
    """Return k fixed-width values as an array of a type of that width."""
    values = np.ascontiguousarray(values)
    bitmap = None
    if valid is not None and not valid.all():
        bitmap = pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(kind, len(values), [bitmap, pa.py_buffer(values)])


def taken(column: pa.ChunkedArray | pa.Array, positions: Positions) -> pa.Array:
    """Return the values at positions, -1 standing for null, as one array of the column's type."""
    missing = positions < 0
    indices = pa.array(positions, mask=missing) if missing.any() else pa.array(positions)
    return whole(column.take(indices))


def left_fold(operation: np.ufunc, values: Values, groups: Groups) -> Values:
    """Return each segment folded strictly from left to right, as adding row by row would: floats round each time.

    In rounds: the second value of every group, the third of every group that has one, and so on. Few long groups
    would make many rounds of little work, so the last `_ROUND_MIN` groups are folded one by one.
    """
    out = values[groups.starts]
    sizes = groups.sizes
    active = np.flatnonzero(sizes > 1)
    place = 1
    while len(active) > _ROUND_MIN:
        out[active] = operation(out[active], values[groups.starts[active] + place])
        place += 1
        active = active[sizes[active] > place]
    for group in active:
        rest = values[groups.starts[group] + place : groups.ends[group]]
        out[group] = operation.accumulate(np.concatenate((out[group : group + 1], rest)))[-1]
    return out


def apart(column: pa.ChunkedArray, groups: Groups, fold: Callable[[pa.ChunkedArray, Groups], pa.Array]) -> pa.Array:
    """Fold the groups of two or more rows, and let the values of the others through untouched."""
    several = groups.sizes > 1
    count = int(np.count_nonzero(several))
    if count == groups.count:
        return fold(column, groups) if count else empty(column.type)
    if not count:
        return taken(column, groups.first)
    folded = fold(column, selected(groups, several))
    single = taken(column, groups.first[~several])
    place = np.where(several, np.cumsum(several) - 1, count + np.cumsum(~several) - 1)
    return pa.concat_arrays([folded, single]).take(pa.array(place))


def selected(groups: Groups, which: Mask) -> Groups:
    """Return some of the groups, `which` being bool[k]."""
    rows = which[groups.group_of]
    sizes = groups.sizes[which]
    starts = np.cumsum(sizes) - sizes
    return Groups(groups.positions[rows], starts, None if groups.additions is None else groups.additions[rows])


def empty(kind: pa.DataType) -> pa.Array:
    """Return an array of no values."""
    return pa.array([], kind) if not pa.types.is_map(kind) else pa.chunked_array([], kind).combine_chunks()

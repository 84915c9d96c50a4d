"""Whether rows are the same: equal in every column, and at every depth of it.

This is the one notion of equal rows of merganser: of differences, upserts, merges and changelogs. Null is the same as
null and NaN as NaN, 0.0 is not the same as -0.0, as keys compare, and the entries of a MAP or MULTISET have no order.
`schema.value_hashes` gives equal hashes to values that are the same.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from merganser.schema.cast_values import items_of
from merganser.schema.pieces import is_large
from merganser.schema.value_hashes import value_hashes

Mask: TypeAlias = "npt.NDArray[np.bool_]"


def same_rows(a: pa.Table, b: pa.Table) -> Mask:
    """Return bool[n], which rows of two tables are the same.

    Args:
        a, b: n rows each, with columns of the same names and types.
    """
    if is_large(a) or is_large(b):
        half = a.num_rows // 2
        parts = ((each.slice(0, half), each.slice(half)) for each in (a, b))
        return np.concatenate([same_rows(left, right) for left, right in zip(*parts, strict=True)])
    found = np.ones(a.num_rows, np.bool_)
    for name in a.column_names:
        found &= same_values(_whole(a.column(name)), _whole(b.column(name)))
    return found


def _whole(column: pa.ChunkedArray) -> pa.Array:
    whole = column.combine_chunks()
    return pa.concat_arrays(whole.chunks) if isinstance(whole, pa.ChunkedArray) else whole


def same_values(a: pa.Array, b: pa.Array) -> Mask:
    """Return bool[n], which values of two arrays of n values and one type are the same."""
    kind = a.type
    if not a.null_count and not b.null_count and (pa.types.is_integer(kind) or pa.types.is_temporal(kind)):
        same: Mask = _numbers(a) == _numbers(b)
        return same
    valid, other = np.asarray(a.is_valid()), np.asarray(b.is_valid())
    if pa.types.is_struct(kind):
        equal = np.ones(len(a), np.bool_)
        for i in range(kind.num_fields):
            equal &= same_values(a.field(i), b.field(i))
    elif pa.types.is_list(kind):
        equal = _same_items(a, b)
    elif pa.types.is_map(kind):
        equal = _same_items(a, b)
        moved = np.flatnonzero(~equal & valid & other)  # or their entries only have another order
        moved = moved[_sizes(a)[moved] == _sizes(b)[moved]]
        if len(moved):
            equal[moved] = _same_items(*(_ordered(each.take(pa.array(moved))) for each in (a, b)))
    elif pa.types.is_floating(kind):
        left, right = (pc.fill_null(each, 0.0).to_numpy(zero_copy_only=False) for each in (a, b))
        whole = np.int64 if left.dtype.itemsize == 8 else np.int32 if left.dtype.itemsize == 4 else np.int16
        equal = (left.view(whole) == right.view(whole)) | (np.isnan(left) & np.isnan(right))
    else:
        equal = np.asarray(pc.equal(a, b).fill_null(False))
    return np.where(valid & other, equal, valid == other)


def _numbers(values: pa.Array) -> npt.NDArray[np.signedinteger]:
    """Return whole numbers and moments without nulls as integers."""
    if pa.types.is_temporal(values.type):
        values = values.view(pa.int32() if values.type.bit_width == 32 else pa.int64())
    return values.to_numpy()  # type: ignore[no-any-return]


def _same_items(a: pa.Array, b: pa.Array) -> Mask:
    """Return which lists or maps hold the same items in the same order; of null ones it says nothing."""
    (ends, parts), (other_ends, other_parts) = items_of(a), items_of(b)
    lengths, other_lengths = _lengths(ends), _lengths(other_ends)
    equal: Mask = lengths == other_lengths
    shown, other_shown = (pa.array(np.repeat(equal, each)) for each in (lengths, other_lengths))
    row = np.repeat(np.flatnonzero(equal), lengths[equal])
    for left, right in zip(parts, other_parts, strict=True):
        items = same_values(left.filter(shown), right.filter(other_shown))
        equal[row[~items]] = False
    return equal


def _ordered(maps: pa.MapArray) -> pa.MapArray:
    """Return maps without nulls, with the entries of each in an order that depends on their keys alone."""
    ends, (keys, items) = items_of(maps)
    row = np.repeat(np.arange(len(maps)), _lengths(ends))
    order = pa.array(np.lexsort((value_hashes(keys, 0), row)))
    offsets = pa.Array.from_buffers(pa.int32(), len(maps) + 1, [None, ends])
    return pa.MapArray.from_arrays(offsets, keys.take(order), items.take(order), type=maps.type)


def _sizes(maps: pa.MapArray) -> npt.NDArray[np.int32]:
    return _lengths(items_of(maps)[0])


def _lengths(ends: pa.Buffer) -> npt.NDArray[np.int32]:
    at = np.frombuffer(ends, np.int32)
    return at[1:] - at[:-1]

"""Hashes of values of any type, nested ones included: equal for values that `schema.same` calls the same.

Of two values that differ, hashes of two seeds are equal once in 2 ** 128. Hashes hold in one process alone.

| values | hash |
|---|---|
| ROW | of the hashes of its fields, in order |
| ARRAY | of the number of its elements and their hashes, each with its position |
| MAP, MULTISET | of the number of its entries and the sum of their hashes, since entries have no order |
| FLOAT, DOUBLE | of their bits, with one NaN |
| null | one number at each depth |
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from merganser.schema.cast_values import items_of
from merganser.schema.lazy_polars import pl

Hashes: TypeAlias = "npt.NDArray[np.uint64]"

_MIX: Final = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
"""Odd numbers of splitmix64: multiplied and shifted, every bit of a number changes half the bits of the result."""


def row_hashes(rows: pa.Table, seed: int) -> Hashes:
    """Return uint64[n], a hash of each row: of the hashes of its columns, in order."""
    found = np.full(rows.num_rows, _start(seed))
    for column in rows.columns:
        parts = [value_hashes(chunk, seed) for chunk in column.chunks]
        found = _mixed(found * _MIX[0] + (np.concatenate(parts) if parts else np.empty(0, np.uint64)))
    return found


def value_hashes(values: pa.Array, seed: int) -> Hashes:
    """Return uint64[n], a hash of each value."""
    kind = values.type
    if pa.types.is_struct(kind):
        found = np.full(len(values), _start(seed))
        for i in range(kind.num_fields):
            found = _mixed(found * _MIX[0] + value_hashes(values.field(i), seed))
    elif pa.types.is_map(kind) or pa.types.is_list(kind):
        found = _of_items(values, seed)
    else:
        return pl.Series(pl.from_arrow(_image(values))).hash(seed).to_numpy()
    return found if not values.null_count else np.where(np.asarray(values.is_valid()), found, _start(~seed))


def _image(values: pa.Array) -> pa.Array:
    """Return values in a form whose equality is that of the values: numbers for floats and moments."""
    kind = values.type
    if pa.types.is_floating(kind):
        valid = np.asarray(values.is_valid())
        numbers = pc.fill_null(values, 0.0).to_numpy(zero_copy_only=False)
        whole = np.where(np.isnan(numbers), numbers.dtype.type(np.nan), numbers).view(f"i{numbers.dtype.itemsize}")
        return pa.array(whole, mask=~valid)
    if pa.types.is_temporal(kind):
        return values.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    return values


def _of_items(values: pa.Array, seed: int) -> Hashes:
    """Return hashes of lists or maps, some for null ones too."""
    offsets, parts = items_of(values)
    ends = np.frombuffer(offsets, np.int32)
    lengths = np.diff(ends)
    found = value_hashes(parts[0], seed)
    if len(parts) == 2:
        found = found * _MIX[0] + value_hashes(parts[1], seed)
    else:
        found = found + _MIX[1] * (np.arange(len(found)) - np.repeat(ends[:-1], lengths)).astype(np.uint64)
    sums = np.zeros(len(found) + 1, np.uint64)
    np.cumsum(_mixed(found), out=sums[1:])
    return _mixed((sums[ends[1:]] - sums[ends[:-1]]) * _MIX[0] + lengths.astype(np.uint64) + _start(seed))


def _start(seed: int) -> np.uint64:
    return np.uint64(int(_MIX[2]) * (2 * seed + 1) % (1 << 64))


def _mixed(found: Hashes) -> Hashes:
    found = (found ^ (found >> np.uint64(30))) * _MIX[1]
    found = (found ^ (found >> np.uint64(27))) * _MIX[2]
    return found ^ (found >> np.uint64(31))

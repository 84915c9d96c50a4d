"""Which values are the same, and which is larger: numbers that stand for values, nested ones included.

Nulls are the same as nulls, NaN as NaN; -0.0 and 0.0 differ. Maps are the same when their entries are, in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from merganser.merge.functions.segments import fixed_width, validity
from merganser.merge.keys import sorted_positions

Codes = npt.NDArray[np.int64]

_RANGE_MAX: Final = 1 << 32
"""Integers within this range are their own codes; others are numbered by a hash table."""

_COUNT_MAX: Final = 1 << 40
"""Codes that grow beyond this are numbered anew, so that two of them always fit one word together."""


def codes(values: pa.Array) -> tuple[Codes, int]:
    """Return int64[n] numbers, equal where values are, and a number that all of them are below (at least 1)."""
    kind = values.type
    if pa.types.is_struct(kind):
        return _of_structs(values)
    if pa.types.is_map(kind):
        entries = pa.StructArray.from_arrays([values.keys, values.items], names=["key", "value"])
        return _of_lists(pa.ListArray.from_arrays(values.offsets, entries), values)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _of_lists(values, values)
    return _of_plain(values)


def combined(left: tuple[Codes, int], right: tuple[Codes, int]) -> tuple[Codes, int]:
    """Return codes of pairs of values."""
    (a, a_count), (b, b_count) = left, right
    if b_count > _COUNT_MAX >> 18 or a_count * b_count > _COUNT_MAX:
        (a, a_count), (b, b_count) = _renumbered(a), _renumbered(b)
    pairs, count = a * b_count + b, a_count * b_count
    return _renumbered(pairs) if count > _COUNT_MAX else (pairs, count)


def ranks(columns: Sequence[pa.Array]) -> Codes:
    """Return int64[n] below n that sort as rows of the columns do: first column first, nulls lowest, ties equal."""
    out = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        rank = _ranked(column)
        out = np.unique(out * (len(rank) + 1) + rank, return_inverse=True)[1]
    return out


def _ranked(values: pa.Array) -> Codes:
    """Return int64[n] up to n, 0 for null, that sort as the values do."""
    encoded = (_float_bits(values) if pa.types.is_floating(values.type) else values).dictionary_encode()
    distinct = encoded.dictionary
    if pa.types.is_floating(values.type):
        distinct = distinct.view(values.type)
    rank = np.zeros(len(distinct) + 1, np.int64)
    if len(distinct):
        order, _ = sorted_positions([pa.chunked_array([distinct])])
        rank[order] = np.arange(1, len(order) + 1)
    indices: npt.NDArray[np.int32] = pc.fill_null(encoded.indices, len(distinct)).to_numpy(zero_copy_only=False)
    return rank[indices]


def _renumbered(values: Codes) -> tuple[Codes, int]:
    return _hashed(pa.array(values))


def _hashed(values: pa.Array) -> tuple[Codes, int]:
    encoded = values.dictionary_encode(null_encoding="encode")
    return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), max(1, len(encoded.dictionary))


def _of_plain(values: pa.Array) -> tuple[Codes, int]:
    kind = values.type
    if pa.types.is_floating(kind):
        values = _float_bits(values)
    elif pa.types.is_date32(kind) or pa.types.is_time32(kind):
        values = values.view(pa.int32())
    elif pa.types.is_timestamp(kind) or pa.types.is_time64(kind):
        values = values.view(pa.int64())
    if pa.types.is_signed_integer(values.type) and len(values) > values.null_count:
        low, high = (value.as_py() for value in pc.min_max(values).values())
        if high - low < _RANGE_MAX:
            return _shifted(values, low), high - low + 2
    return _hashed(values)


def _shifted(values: pa.Array, low: int) -> Codes:
    numbers = fixed_width(values, values.type.to_pandas_dtype()).astype(np.int64) - low + 1
    valid = validity(values)
    return numbers if valid is None else np.where(valid, numbers, 0)


def _float_bits(values: pa.Array) -> pa.Array:
    kind = values.type.to_pandas_dtype()
    numbers = fixed_width(values, kind)
    whole: type[np.signedinteger] = np.int64 if numbers.itemsize == 8 else np.int32
    bits = np.where(np.isnan(numbers), kind("nan"), numbers).view(whole)
    valid = validity(values)
    return pa.array(bits, mask=None if valid is None else ~valid)


def _of_structs(values: pa.Array) -> tuple[Codes, int]:
    out: tuple[Codes, int] = (_presence(values), 2)
    for child in values.flatten():  # a field of a null struct is null, as the struct's own mark alone would not say
        out = combined(out, codes(child))
    return out


def _of_lists(lists: pa.Array, values: pa.Array) -> tuple[Codes, int]:
    """Fold the codes of elements, place by place: all first elements, all second ones, and so on."""
    present = _presence(values)
    offsets = lists.offsets.to_numpy().astype(np.int64)
    sizes = np.where(present == 1, np.diff(offsets), 0)
    elements, element_count = codes(lists.values) if len(lists.values) else (np.empty(0, np.int64), 1)
    out, count = combined((present, 2), (sizes, int(sizes.max(initial=0)) + 1))
    for place in range(int(sizes.max(initial=0))):
        there = sizes > place
        here = np.zeros(len(out), np.int64)
        here[there] = elements[offsets[:-1][there] + place] + 1
        out, count = combined((out, count), (here, element_count + 1))
    return out, count


def _presence(values: pa.Array) -> Codes:
    valid = validity(values)
    return np.ones(len(values), np.int64) if valid is None else valid.astype(np.int64)

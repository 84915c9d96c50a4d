"""What the buffers of text and binary arrays tell about all values at once, without a look at each.

Most text of a table is ASCII, and much of it (ids, codes, hashes) of one length. Both are seen at the speed of memory,
and what follows is cheap then: ASCII needs no search for broken characters, and values of one length are picked and
compared as numbers. Of few rows Arrow's own look at each value is cheaper.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

FEW_ROWS: Final = 4_096
"""Below it the calls cost more than a look at each value."""

_BLOCK_ROWS: Final = 16_384
"""Values whose lengths are compared at once, in the caches."""
_BLOCK_BYTES: Final = 1 << 20
_HIGH_BITS: Final = np.uint64(0x8080_8080_8080_8080)
_WORD: Final = 8
_SAMPLE_ROWS: Final = 64
_FEW_HEADS: Final = 8
_CANDIDATES_MAX: Final = 1 / 8
"""Share of the values above which comparing the rest is not worth a copy of them."""


def spans(array: pa.Array) -> tuple[npt.NDArray[Any], npt.NDArray[np.uint8]]:
    """Return where values lie in which bytes: value i is `bytes[offsets[i]:offsets[i + 1]]`.

    Args:
        array: text or binary of n values, or the large form of either. What nulls hold is whatever is there.

    Returns:
        offsets, int32[n + 1] or int64[n + 1]; the bytes of all values, and of others where the array is a slice.
    """
    large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    data = array.buffers()[2]
    return _offsets(array, large), np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)


def one_length(array: pa.Array) -> int | None:
    """Return the bytes that each value has, or None: they differ, or there are none.

    Args:
        array: text or binary, or the large form of either. What nulls hold counts like values.
    """
    offsets, _ = spans(array)
    if len(offsets) < 2:
        return None
    width = int(offsets[1]) - int(offsets[0])
    if width <= 0 or int(offsets[-1]) - int(offsets[0]) != width * len(array):
        return None
    for begin in range(0, len(array), _BLOCK_ROWS):
        if (np.diff(offsets[begin : begin + _BLOCK_ROWS + 1]) != width).any():
            return None
    return width


def is_ascii(array: pa.Array) -> bool:
    """Return whether all values are ASCII; what nulls hold counts like values.

    Args:
        array: text or binary, or the large form of either, whose offsets rise.
    """
    offsets, data = spans(array)
    first, last = int(offsets[0]), int(offsets[-1])
    words = first + (last - first) // _WORD * _WORD
    for begin in range(first, words, _BLOCK_BYTES):
        block = data[begin : min(begin + _BLOCK_BYTES, words)].view(np.uint64)
        if np.bitwise_or.reduce(block) & _HIGH_BITS:
            return False
    return not (data[words:last] & 0x80).any()


def offsets_rise(array: pa.Array) -> bool:
    """Return whether offsets rise from 0 on, of the values and of all that they hold.

    Arrow believes the offsets of an array that it did not make; where they fall it reads what is not there. Not
    looked at are views, which have none, and what encoded arrays share: dictionaries and the values of runs.

    Args:
        array: of any type, for which `validate()` is content.
    """
    if isinstance(array, pa.ListArray | pa.LargeListArray):  # a map is a list too
        if not _rise(_offsets(array, isinstance(array, pa.LargeListArray))):
            return False
    elif isinstance(array, pa.StringArray | pa.BinaryArray | pa.LargeStringArray | pa.LargeBinaryArray):
        return _rise(spans(array)[0])
    return all(offsets_rise(part) for part in _parts(array))


def leaves(array: pa.Array) -> Iterator[pa.Array]:
    """Yield the arrays without parts that an array is made of, of each no more than what the array reaches.

    Args:
        array: of any type, whose offsets rise. What nulls hold is among the values.
    """
    parts = _parts(array)
    if not parts:
        yield array
    for part in parts:
        yield from leaves(part)


def _parts(array: pa.Array) -> list[pa.Array]:
    if isinstance(array, pa.ExtensionArray):
        return [array.storage]
    if isinstance(array, pa.StructArray):
        return [array.field(i) for i in range(array.type.num_fields)]
    if isinstance(array, pa.FixedSizeListArray):
        size = array.type.list_size
        return [array.values.slice(array.offset * size, len(array) * size)]
    if isinstance(array, pa.ListArray | pa.LargeListArray):
        offsets = _offsets(array, isinstance(array, pa.LargeListArray))
        return [array.values.slice(int(offsets[0]), int(offsets[-1]) - int(offsets[0]))]
    return []


def _rise(offsets: npt.NDArray[Any]) -> bool:
    for begin in range(0, len(offsets) - 1, _BLOCK_ROWS):
        block = offsets[begin : begin + _BLOCK_ROWS + 1]
        if (block[1:] < block[:-1]).any():
            return False
    return bool(offsets[0] >= 0)


def _offsets(array: pa.Array, large: bool) -> npt.NDArray[Any]:
    whole = np.dtype(np.int64 if large else np.int32)
    ends = array.buffers()[1]
    if not len(array) or ends is None:
        return np.zeros(len(array) + 1, whole)
    return np.frombuffer(ends, whole, len(array) + 1, array.offset * whole.itemsize)


def edges(array: pa.Array) -> pa.Array:
    """Return some of the values, with the smallest and the largest among them; all where few of them are not cheap.

    Args:
        array: text or binary, or the large form of either.
    """
    if len(array) < FEW_ROWS or array.null_count or (width := one_length(array)) is None:
        return array
    offsets, data = spans(array)

    def words(size: int, begin: int) -> npt.NDArray[Any]:
        return np.ndarray(len(array), f">u{size}", data, int(offsets[0]) + begin, (width,))

    if width <= _WORD:  # in two halves, which may overlap, as one number that rises as the bytes do
        half = 4 if width >= 4 else 2 if width >= 2 else 1
        heads = words(half, 0).astype(np.uint64) << np.uint64(8 * half) | words(half, width - half)
        return array.take(pa.array([heads.argmin(), heads.argmax()]))
    first = words(_WORD, 0)
    if len(np.unique(first[:: len(array) // _SAMPLE_ROWS + 1])) < _FEW_HEADS:
        return array  # they begin alike
    heads = first.astype(np.uint64)
    rows = np.flatnonzero((heads == heads.min()) | (heads == heads.max()))
    return array.take(pa.array(rows)) if len(rows) <= _CANDIDATES_MAX * len(array) else array

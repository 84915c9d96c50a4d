"""What the buffers of text and binary arrays tell about all values at once, without a look at each.

Most text of a table is ASCII, and much of it (ids, codes, hashes) of one length. Both are seen at the speed of memory,
and what follows is cheap then: ASCII needs no search for broken characters, and values of one length are picked and
compared as numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_BLOCK_ROWS: Final = 16_384
"""Values whose lengths are compared at once, in the caches."""
_WORD: Final = 8
_HEADS_MAX: Final = 4
"""Words of a value that are looked at for the smallest and the largest."""
_HIGH_BITS: Final = 0x8080_8080_8080_8080


def spans(array: pa.Array) -> tuple[npt.NDArray[Any], npt.NDArray[np.uint8]]:
    """Return where values lie in which bytes: value i is `bytes[offsets[i]:offsets[i + 1]]`.

    Args:
        array: text or binary of n values, or the large form of either. What nulls hold is whatever is there.

    Returns:
        offsets, int32[n + 1] or int64[n + 1]; the bytes of all values, and of others where the array is a slice.
    """
    large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    whole = np.dtype(np.int64 if large else np.int32)
    _, ends, data = array.buffers()
    if not len(array) or ends is None:
        return np.zeros(len(array) + 1, whole), np.empty(0, np.uint8)
    offsets = np.frombuffer(ends, whole, len(array) + 1, array.offset * whole.itemsize)
    return offsets, np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)


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


def is_sound_ascii(array: pa.Array) -> bool:
    """Return whether the offsets rise within the bytes, and those are ASCII; what nulls hold counts like values.

    Args:
        array: text or binary, or the large form of either, made by whomever.
    """
    offsets, data = spans(array)
    first, last = int(offsets[0]), int(offsets[-1])
    if not 0 <= first <= last <= len(data):
        return False
    for begin in range(0, len(array), _BLOCK_ROWS):
        block = offsets[begin : begin + _BLOCK_ROWS + 1]
        if (block[1:] < block[:-1]).any():
            return False
    words = first + (last - first) // 8 * 8
    bits = int(np.bitwise_or.reduce(data[first:words].view(np.uint64))) | int(np.bitwise_or.reduce(data[words:last]))
    return not bits & _HIGH_BITS


def edges(array: pa.Array, width: int) -> pa.Array:
    """Return some of the values, with the smallest and the largest among them.

    They are few where the first bytes tell values apart.

    Args:
        array: text or binary of one value at least and no null, or the large form of either, of `width` bytes each.
    """
    for heads in _heads(array, width):
        low, high = heads.min(), heads.max()
        if low != high:
            return array.take(pa.array(np.flatnonzero((heads == low) | (heads == high))))
    return array if width > _HEADS_MAX * _WORD else array[:1]


def _heads(array: pa.Array, width: int) -> Iterator[npt.NDArray[np.uint64]]:
    """Yield the first words of each value, until all bytes were in one, as numbers that rise as the bytes do."""
    offsets, data = spans(array)

    def words(size: int, begin: int) -> npt.NDArray[np.uint64]:
        return np.ndarray(len(array), f">u{size}", data, int(offsets[0]) + begin, (width,)).astype(np.uint64)

    if width < _WORD:  # in two halves, which may overlap
        half = 4 if width >= 4 else 2 if width >= 2 else 1
        yield words(half, 0) << np.uint64(8 * half) | words(half, width - half)
    else:
        for begin in range(0, min(width, _HEADS_MAX * _WORD), _WORD):
            yield words(_WORD, min(begin, width - _WORD))

"""max and min: the format's order, nulls ignored.

Fixed-width values are compared as integers that sort as they do. Text and binary are compared eight bytes at a
time: only groups whose candidates agree so far look at the next eight.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from merganser.merge.functions.function import LateRows, Traits, refuse_retractions
from merganser.merge.functions.segments import Values, any_of, array_of, empty, taken, validity, whole
from merganser.merge.groups import Groups, Mask, Positions
from merganser.schema import types as t
from merganser.schema.spans import spans
from merganser.values import dataclass


@dataclass(frozen=True, slots=True)
class Extreme(Traits):
    """The largest value (`max`) or the smallest (`min`) that is not null."""

    late_rows: ClassVar[LateRows] = LateRows.ANYWHERE
    column: t.Field
    name: str
    retracts: bool = False

    def fold(self, column: pa.ChunkedArray, groups: Groups) -> pa.Array:
        refuse_retractions(groups, self.column, self.name)
        if not groups.count:
            return empty(column.type)
        greatest = self.name == "max"
        if pa.types.is_decimal(column.type):
            return _decimals(column, groups, greatest)
        if _is_bytes(column.type):
            return taken(column, _bytes(whole(column), groups, greatest))
        return _words(column, groups, greatest)


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
    )


def _words(column: pa.ChunkedArray, groups: Groups, greatest: bool) -> pa.Array:
    """Fold booleans, integers, floats and times."""
    array = whole(column)
    if pa.types.is_boolean(array.type):
        bits = array.fill_null(False).to_numpy(zero_copy_only=False).view(np.uint8)
        folded, some = _reduced(bits, validity(array), groups, greatest)
        return pa.array(folded.view(np.bool_), pa.bool_(), mask=None if some is None else ~some)
    kind = np.dtype(f"i{array.type.bit_width // 8}")
    buffer = array.buffers()[1]
    if buffer is None:
        return pa.nulls(groups.count, array.type)
    words = np.frombuffer(buffer, kind, count=len(array), offset=array.offset * kind.itemsize)
    floating = pa.types.is_floating(array.type)
    folded, some = _reduced(_float_order(words) if floating else words, validity(array), groups, greatest)
    return array_of(_flipped(folded) if floating else folded, some, array.type)


def _float_order(bits: Values) -> Values:
    """Return integers that sort as the floats with these bits do: NaN on top whatever its sign, -0.0 below 0.0."""
    top = np.iinfo(bits.dtype).max
    infinity = 0x7FF0_0000_0000_0000 if bits.itemsize == 8 else 0x7F80_0000
    magnitudes = bits & bits.dtype.type(top)
    return _flipped(np.where(magnitudes > infinity, magnitudes, bits))


def _flipped(bits: Values) -> Values:
    """Return the bits of negative floats turned, all but the sign: integer order is then float order, and back."""
    top = bits.dtype.type(np.iinfo(bits.dtype).max)
    return bits ^ ((bits >> (bits.itemsize * 8 - 1)) & top)  # type: ignore[no-any-return]


def _reduced(words: Values, valid: Mask | None, groups: Groups, greatest: bool) -> tuple[Values, Mask | None]:
    """Return the extreme integer of each group, and which groups have any (None: all)."""
    ordered = words[groups.positions]
    some = None
    if valid is not None:
        valid = valid[groups.positions]
        limits = np.iinfo(words.dtype)
        ordered[~valid] = limits.min if greatest else limits.max
        some = any_of(valid, groups.starts)
    reduce = np.maximum if greatest else np.minimum
    return reduce.reduceat(ordered, groups.starts), some


def _decimals(column: pa.ChunkedArray, groups: Groups, greatest: bool) -> pa.Array:
    """Fold decimals: by their high halves, then by the low halves of the rows that reach the extreme one."""
    array = whole(column)
    buffer = array.buffers()[1]
    if buffer is None:
        return pa.nulls(groups.count, array.type)
    halves = np.frombuffer(buffer, np.int64, count=2 * len(array), offset=16 * array.offset).reshape(-1, 2)
    valid = validity(array)
    low, high = halves[:, 0], halves[:, 1]
    out = np.empty((groups.count, 2), np.int64)
    if array.type.precision <= 18:
        out[:, 0], some = _reduced(low, valid, groups, greatest)
        out[:, 1] = out[:, 0] >> 63
        return array_of(out, some, array.type)
    out[:, 1], some = _reduced(high, valid, groups, greatest)
    reached = high[groups.positions] == out[groups.group_of, 1]
    if valid is not None:
        reached &= valid[groups.positions]
    lows = np.where(reached, low[groups.positions].view(np.uint64), 0 if greatest else np.iinfo(np.uint64).max)
    out[:, 0] = (np.maximum if greatest else np.minimum).reduceat(lows, groups.starts).view(np.int64)
    return array_of(out, some, array.type)


def _bytes(array: pa.Array, groups: Groups, greatest: bool) -> Positions:
    """Return int64[k], the row that holds the extreme text of each group, -1 if it has none.

    Words of texts that have ended are zero. Texts that agree in all their words are the same but for zeros at the
    end, so the length decides last.
    """
    texts = _Texts(array)
    valid = validity(array)
    out = np.full(groups.count, -1, np.int64)
    rows, group_of = groups.positions, groups.group_of
    if valid is not None:
        kept = valid[rows]
        rows, group_of = rows[kept], group_of[kept]
    reduce = np.maximum if greatest else np.minimum
    place = 0
    while len(rows):
        starts = np.flatnonzero(np.concatenate(([True], group_of[1:] != group_of[:-1])))
        sizes = np.diff(np.append(starts, len(rows)))
        lengths = texts.lengths(rows)
        ended = (np.maximum.reduceat(lengths, starts) <= place) & (sizes > 1)
        if ended.any():
            kept = ~np.repeat(ended, sizes) | (lengths == np.repeat(reduce.reduceat(lengths, starts), sizes))
        else:
            words = texts.words(rows, lengths, place)
            kept = words == np.repeat(reduce.reduceat(words, starts), sizes)
            place += 8
        decided = ended | (np.add.reduceat(kept, starts, dtype=np.int64) == 1)
        at = np.flatnonzero(kept)
        first = at[np.searchsorted(at, starts[decided])]
        out[group_of[first]] = rows[first]
        kept &= ~np.repeat(decided, sizes)
        rows, group_of = rows[kept], group_of[kept]
    return out


class _Texts:
    """The bytes of a text or binary array, read as big-endian words of eight."""

    def __init__(self, array: pa.Array) -> None:
        self._offsets, data = spans(array)
        if data.size < 8:
            data = np.append(data, np.zeros(8 - data.size, np.uint8))
        self._last = data.size - 8
        self._words: npt.NDArray[np.uint64] = np.ndarray((self._last + 1,), ">u8", buffer=data, strides=(1,))

    def lengths(self, rows: Positions) -> npt.NDArray[np.int64]:
        """Return how many bytes each text has."""
        found: npt.NDArray[np.int64] = (self._offsets[rows + 1] - self._offsets[rows]).astype(np.int64)
        return found

    def words(self, rows: Positions, lengths: npt.NDArray[np.int64], place: int) -> npt.NDArray[np.uint64]:
        """Return the bytes from `place` to `place` + 8 of each text as a number, zeros standing behind its end."""
        begin = self._offsets[rows].astype(np.int64) + place
        at = np.clip(begin, 0, self._last)  # a word that would reach behind the buffer is read further left
        words: npt.NDArray[np.uint64] = self._words[at].astype(np.uint64)
        rest = np.clip(lengths - place, 0, 8)
        skipped = np.minimum(begin - at, 7).astype(np.uint64) << np.uint64(3)
        unused = np.minimum(8 - rest, 7).astype(np.uint64) << np.uint64(3)
        words = np.left_shift(np.right_shift(np.left_shift(words, skipped), unused), unused)
        words[rest == 0] = 0
        return words

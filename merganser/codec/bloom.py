"""Bloom filters of columns: a set of values in a few bits each, which may hold too much and never too little.

A value becomes a 64-bit hash, and the hash k positions in an array of m bits. A value is in the set only if all of its
bits are. The body of the index is k, as a big-endian int32, and the bits; bit i is `1 << i % 8` of byte i // 8.

    texts and bytes          xxHash64 with seed 0
    integers, dates, times   Thomas Wang's 64-bit mix of the number, the day, the millisecond of the day
    floats                   the same of their bits, with one NaN
    timestamps               the same of milliseconds if they have up to 3 digits, else of microseconds

Position i of k is `c % m` or, if c is negative, `~c % m`, where c is `low + i * high` in 32 bits, and low and high are
the halves of the hash. Nulls are in no filter. Equal values need equal bits: 0.0 and -0.0 are two values here, and a
reader that looks for zero asks twice.

Format: section "file index".
"""

from __future__ import annotations

import math
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from merganser.codec.row_lanes import (
    ByteSpans,
    byte_spans,
    canonical_nan,
    fixed_forms,
    fixed_values,
    null_flags,
    unaligned_words,
)
from merganser.codec.stored import BINARY, TEXT, TIMESTAMPS, plain
from merganser.errors import FormatError
from merganser.schema import types as t
from merganser.schema.arrow import timestamp_unit
from merganser.values import dataclass

Hashes: TypeAlias = "npt.NDArray[np.uint64]"
Flags: TypeAlias = "npt.NDArray[np.bool_]"
_Signed: TypeAlias = "npt.NDArray[np.int64]"

BLOOM_FILTER: Final = "bloom-filter"
"""What containers call this kind of index."""

ITEMS_MAX: Final = 1_000_000
"""Values that a filter is made for where nothing else is said, at most."""

_INTEGERS: Final = (t.TinyInt, t.SmallInt, t.Int, t.BigInt, t.Date, t.Time)
_FLOATS: Final = (t.Float, t.Double)
_COUNT_MAX: Final = 1100
"""Positions of a value that the smallest rate asks for; more are damage, and would take for ever."""
_BLOCK_ROWS: Final = 1 << 15
"""Rows hashed together, so that what is worked on stays in the cache."""


def can_filter(kind: t.DataType) -> bool:
    """Return whether the format has Bloom filters of a type."""
    return isinstance(kind, (*TEXT, *BINARY, *_INTEGERS, *_FLOATS, *TIMESTAMPS))


def value_hashes(column: pa.Array | pa.ChunkedArray, kind: t.DataType) -> tuple[Hashes, Flags | None]:
    """Return the 64-bit hash of each of n values, and where they are null; None: none is. A null may have any hash.

    Args:
        column: values in the Arrow type of `kind`, for which `can_filter`.
    """
    out = np.empty(len(column), np.uint64)
    nulls: Flags | None = None
    for start in range(0, len(column), _BLOCK_ROWS):
        array = plain(column.slice(start, _BLOCK_ROWS), kind)
        missing = null_flags(array)
        if missing is not None:
            nulls = np.zeros(len(column), np.bool_) if nulls is None else nulls
            nulls[start : start + _BLOCK_ROWS] = missing
        spanned = isinstance(kind, (*TEXT, *BINARY))
        part = _xx_hash(byte_spans(array, missing)) if spanned else _mixed(_integers(array, kind))
        out[start : start + _BLOCK_ROWS] = part
    return out, nulls


@dataclass(frozen=True, slots=True)
class BloomFilter:
    """A filter.

    Attributes:
        count: positions of each value, k.
        bits: uint8[m / 8].
    """

    count: int
    bits: npt.NDArray[np.uint8]

    @staticmethod
    def empty(items: int, rate: float) -> BloomFilter:
        """Return a filter without values.

        Args:
            items: how many different values it is made for.
            rate: which part of other values it takes for its own then; more than 0, less than 1.
        """
        items = max(1, items)
        size = bit_count(items, rate)
        # As the reference rounds: halves up.
        return BloomFilter(max(1, math.floor(size / items * math.log(2) + 0.5)), np.zeros(size // 8, np.uint8))

    @staticmethod
    def decode(body: bytes, *, path: str) -> BloomFilter:
        """Return the filter of a body.

        Raises:
            FormatError: the bytes are none.
        """
        count = int.from_bytes(body[:4], "big", signed=True)
        if len(body) < 5 or not 1 <= count <= _COUNT_MAX:
            raise FormatError(
                f"cannot read a Bloom filter of '{path}': it has {len(body)} bytes and {count} positions of each "
                "value. No read needs it; its data file is whole.",
                path=path,
            )
        return BloomFilter(count, np.frombuffer(body, np.uint8, offset=4))

    def encode(self) -> bytes:
        """Return the body of the index."""
        return self.count.to_bytes(4, "big") + self.bits.tobytes()

    def add(self, hashes: Hashes) -> None:
        """Put values into a filter that nobody reads yet."""
        for start in range(0, len(hashes), _BLOCK_ROWS):
            for positions in self._positions(hashes[start : start + _BLOCK_ROWS]):
                np.bitwise_or.at(self.bits, positions >> 3, np.uint8(1) << (positions & 7).astype(np.uint8))

    def may_hold(self, hashes: Hashes) -> Flags:
        """Return for each of n values whether it may be in the filter, bool[n]. False is certain."""
        found = np.ones(len(hashes), np.bool_)
        for positions in self._positions(hashes):
            found &= (self.bits[positions >> 3] >> (positions & 7).astype(np.uint8) & np.uint8(1)).astype(np.bool_)
        return found

    def _positions(self, hashes: Hashes) -> list[npt.NDArray[np.int32]]:
        halves = hashes.astype("<u8", copy=False).view("<i4").reshape(-1, 2)
        at, step = halves[:, 0].copy(), halves[:, 1]
        size = np.int64(8 * len(self.bits))
        found = []
        for _ in range(self.count):
            at += step
            found.append((np.where(at < 0, ~at, at) % size).astype(np.int32))
        return found


class BloomBuilder:
    """Makes the filter of a column whose values come in portions.

    Args:
        items: how many different values it is made for; None: as many as come, at most ITEMS_MAX. Until that many
            have come their hashes are held, 8 bytes each.
        rate: which part of other values it takes for its own.
    """

    def __init__(self, items: int | None, rate: float) -> None:
        self._rate = rate
        self._held: list[Hashes] = []
        self._waiting = 0
        self._filter = None if items is None else BloomFilter.empty(items, rate)

    def add(self, column: pa.Array | pa.ChunkedArray, kind: t.DataType) -> None:
        """Put values of a type into the filter; nulls are left out."""
        hashes, nulls = value_hashes(column, kind)
        self._take(hashes if nulls is None else hashes[~nulls])

    def finish(self) -> BloomFilter:
        """Return the filter of all values."""
        return self._filter or self._made(self._waiting)

    def _take(self, hashes: Hashes) -> None:
        if self._filter is not None:
            self._filter.add(hashes)
            return
        self._held.append(hashes)
        self._waiting += len(hashes)
        if self._waiting >= ITEMS_MAX:
            self._filter = self._made(ITEMS_MAX)
            self._held = []

    def _made(self, items: int) -> BloomFilter:
        made = BloomFilter.empty(items, self._rate)
        for hashes in self._held:
            made.add(hashes)
        return made


def bit_count(items: int, rate: float) -> int:
    """Return the bits of a filter for `items` values with a rate of false answers: a multiple of 8, never 0."""
    size = int(-items * math.log(rate) / math.log(2) ** 2)
    return size + 8 - size % 8


# hashes of integers


def _integers(array: pa.Array, kind: t.DataType) -> _Signed:
    if isinstance(kind, TIMESTAMPS):
        counts = fixed_values(array, "<i8")
        unit = timestamp_unit(kind.precision)
        return counts // 1000 if unit == "ns" else counts
    form, _ = fixed_forms(kind)
    values = fixed_values(array, form)
    if isinstance(kind, _FLOATS):
        values = canonical_nan(values).view("<i4" if isinstance(kind, t.Float) else "<i8")
    return values.astype(np.int64)


def _mixed(values: _Signed) -> Hashes:
    k = ~values + (values << 21)
    k ^= k >> 24
    k = k + (k << 3) + (k << 8)
    k ^= k >> 14
    k = k + (k << 2) + (k << 4)
    k ^= k >> 28
    k += k << 31
    mixed: Hashes = k.view(np.uint64)
    return mixed


# xxHash64


def _u(value: int) -> np.uint64:
    return np.uint64(value)


_P1: Final = _u(0x9E3779B185EBCA87)
_P2: Final = _u(0xC2B2AE3D27D4EB4F)
_P3: Final = _u(0x165667B19E3779F9)
_P4: Final = _u(0x85EBCA77C2B2AE63)
_P5: Final = _u(0x27D4EB2F165667C5)
_STARTS: Final = (0x60EA27EEADC0B5D6, 0xC2B2AE3D27D4EB4F, 0, 0x61C8864E7A143579)
"""P1 + P2, P2, 0 and -P1: the four lanes of a text of 32 bytes or more begin with them."""


def _xx_hash(texts: ByteSpans) -> Hashes:
    """Return the hashes of runs of bytes. All runs move on together, and drop out one by one as they end."""
    words = unaligned_words(texts.buffer)
    at, left = texts.starts.copy(), texts.lengths.copy()
    out = np.full(len(at), _P5)
    _stripes(words, at, left, out)
    out += texts.lengths.astype(np.uint64)
    for _ in range(3):
        rows, some = _rows(left >= 8)
        if not some:
            break
        part = out[rows] ^ _round(_u(0), words[at[rows]])
        out[rows] = _turned(part, 27) * _P1 + _P4
        at[rows] += 8
        left[rows] -= 8
    rows, some = _rows(left >= 4)
    if some:
        out[rows] = _turned(out[rows] ^ (words[at[rows]] & _u(0xFFFF_FFFF)) * _P1, 23) * _P2 + _P3
        at[rows] += 4
        left[rows] -= 4
    for _ in range(3):
        rows, some = _rows(left > 0)
        if not some:
            break
        out[rows] = _turned(out[rows] ^ texts.buffer[at[rows]] * _P5, 11) * _P1
        at[rows] += 1
        left[rows] -= 1
    for shift, factor in ((33, _P2), (29, _P3)):
        out ^= out >> _u(shift)
        out *= factor
    return out ^ out >> _u(32)


def _stripes(words: Hashes, at: _Signed, left: _Signed, out: Hashes) -> None:
    """Take whole stripes of 32 bytes from runs, moving `at` and `left` on."""
    long, some = _rows(left >= 32)
    if not some:
        return
    state = [np.full(len(out), _u(start)) for start in _STARTS]
    rows = long
    while len(rows):
        for i, lane in enumerate(state):
            lane[rows] = _round(lane[rows], words[at[rows] + 8 * i])
        at[rows] += 32
        left[rows] -= 32
        rows = rows[left[rows] >= 32]
    lanes = [lane[long] for lane in state]
    part = sum((_turned(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)), np.zeros_like(lanes[0]))
    for lane in lanes:
        part = (part ^ _round(_u(0), lane)) * _P1 + _P4
    out[long] = part


def _rows(chosen: Flags) -> tuple[npt.NDArray[np.intp], bool]:
    rows = np.flatnonzero(chosen)
    return rows, bool(len(rows))


def _round(state: Any, words: Hashes) -> Hashes:
    result: Hashes = _turned(state + words * _P2, 31) * _P1
    return result


def _turned(values: Hashes, left: int) -> Hashes:
    return values << _u(left) | values >> _u(64 - left)

"""Arrow columns as the 8-byte words of BinaryRows, so that rows are built and hashed a column at a time.

A row is a sequence of 64-bit words: header, one slot per field, areas in field order. A `Lane` is what one column
adds to n rows: a slot word each, and for some rows an area. Both users walk the same lanes in the same order:
`binary_row` scatters the words into a buffer, `hashing` feeds them to the hash and never builds the bytes.

    slots   uint64[n]    final, but for the offset of the area in its high half
    nulls   bool[n]      or None when no value is null
    area    words for each row; word(w, rows) gathers the w-th word of the areas of some rows

Format: section "BinaryRow"; what each slot holds is drawn in `binary_nested`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from merganser.codec.binary_nested import (
    COMPACT_DECIMAL_PRECISION_MAX,
    COMPACT_TIMESTAMP_PRECISION_MAX,
    INLINE_MAX,
    UNITS_PER_MILLI,
    encode_nested,
    header_bytes,
)
from merganser.codec.stored import BINARY, TEXT, TIMESTAMPS, arrow_to_list, plain
from merganser.errors import InvalidInputError, UnsupportedError
from merganser.schema import types as t
from merganser.schema.arrow import timestamp_unit
from merganser.schema.spans import spans
from merganser.values import dataclass

Words: TypeAlias = "npt.NDArray[np.uint64]"
Counts: TypeAlias = "npt.NDArray[np.int64]"
Flags: TypeAlias = "npt.NDArray[np.bool_]"
Bytes: TypeAlias = "npt.NDArray[np.uint8]"

WORD: Final = np.dtype("<u8")
SLACK: Final = 16
"""Bytes past the end of a buffer that may be read (and are masked away) when values are gathered word by word."""

_KEEP: Final = np.array([(1 << 8 * k) - 1 for k in range(9)], WORD)
"""Mask that keeps the first k bytes of a word."""

_FIXED: Final[dict[type[t.DataType], tuple[str, str]]] = {
    t.TinyInt: ("<i1", "<u1"),
    t.SmallInt: ("<i2", "<u2"),
    t.Int: ("<i4", "<u4"),
    t.BigInt: ("<i8", "<u8"),
    t.Float: ("<f4", "<u4"),
    t.Double: ("<f8", "<u8"),
    t.Date: ("<i4", "<u4"),
    t.Time: ("<i4", "<u4"),
}
"""Type of the values, and the unsigned type of the same width: a slot is zero beyond it, not sign-extended."""


class Area(Protocol):
    """The areas of one column, one for each of n rows; a row without one has 0 words."""

    def sizes(self) -> Counts:
        """Return the words of each row's area, int64[n]."""

    def word(self, w: int, rows: Counts | None) -> Words:
        """Return word `w` of the areas of `rows`, which all have one; None is every row."""


@dataclass(frozen=True, slots=True)
class FixedArea:
    """Areas of the same size in every row, nulls included: `words[w]` is uint64[n]."""

    words: tuple[Words, ...]

    def sizes(self) -> Counts:
        """Return the words of each row's area, int64[n]."""
        return np.full(len(self.words[0]), len(self.words), np.int64)

    def word(self, w: int, rows: Counts | None) -> Words:
        """Return word `w` of the areas of `rows`."""
        return self.words[w] if rows is None else self.words[w][rows]


@dataclass(frozen=True, slots=True)
class ByteSpans:
    """n runs of bytes in one buffer: run i is `lengths[i]` bytes from `starts[i]`. Areas of the runs that need one.

    The buffer goes on for `SLACK` bytes after the last run.
    """

    buffer: Bytes
    starts: Counts
    lengths: Counts
    inline_max: int

    def sizes(self) -> Counts:
        """Return the words of each row's area, int64[n]: 0 for runs that sit in their slot."""
        return np.where(self.lengths > self.inline_max, (self.lengths + 7) >> 3, 0)

    def word(self, w: int, rows: Counts | None) -> Words:
        """Return word `w` of the runs of `rows`, zero beyond their ends."""
        starts, lengths = (self.starts, self.lengths) if rows is None else (self.starts[rows], self.lengths[rows])
        if w:
            starts, lengths = starts + 8 * w, lengths - 8 * w
        # A short run may begin in the last bytes, and an empty one at the very end: the slack covers both.
        gathered = unaligned_words(self.buffer)[starts]
        gathered &= _KEEP[np.minimum(lengths, 8)]
        return gathered


def unaligned_words(buffer: Bytes) -> Words:
    """Return a view of which element i is the little-endian word of bytes i to i + 8."""
    return np.ndarray((max(len(buffer) - 7, 0),), WORD, buffer, strides=(1,))


@dataclass(frozen=True, slots=True)
class Lane:
    """What one column adds to each of n rows. The slot of a null is 0 but for the offset of a reserved area."""

    slots: Words
    nulls: Flags | None
    area: Area | None


def row_count(columns: Sequence[pa.Array | pa.ChunkedArray], kinds: Sequence[t.DataType]) -> int:
    """Return the number of rows of columns; 0 without columns.

    Raises:
        InvalidInputError: columns and kinds differ in number, or columns in length.
    """
    lengths = {len(column) for column in columns}
    if len(columns) != len(kinds) or len(lengths) > 1:
        raise InvalidInputError(
            f"cannot take columns as rows: {len(columns)} columns of {sorted(lengths)} rows for {len(kinds)} types"
        )
    return lengths.pop() if lengths else 0


def lanes(columns: Sequence[pa.Array | pa.ChunkedArray], kinds: Sequence[t.DataType]) -> list[Lane]:
    """Return one lane per column, all of the same number of rows.

    Raises:
        InvalidInputError: columns and kinds differ in number, or columns in length, or values do not fit.
        UnsupportedError: a type has no values in merganser.
    """
    row_count(columns, kinds)
    return [_lane(column, kind) for column, kind in zip(columns, kinds, strict=True)]


def header_words(parts: Sequence[Lane]) -> Iterator[Words | None]:
    """Yield the words before the slots: row kind +I and the null bits. None is zero in every row."""
    for k in range(header_bytes(len(parts)) // 8):
        bits: Words | None = None
        for i in range(max(64 * k - 8, 0), min(64 * k + 56, len(parts))):
            nulls = parts[i].nulls
            if nulls is not None:
                bit = nulls.astype(WORD) << np.uint64((i + 8) % 64)
                bits = bit if bits is None else bits | bit
        yield bits


def placed_slots(parts: Sequence[Lane]) -> list[Words]:
    """Return the slot words of all lanes, with the offsets of their areas in the high halves."""
    placed: list[Words] = []
    end: Counts | int = header_bytes(len(parts)) + 8 * len(parts)
    for lane in parts:
        if lane.area is None:
            placed.append(lane.slots)
            continue
        sizes = lane.area.sizes()
        offsets = np.where(sizes > 0, end, 0).astype(WORD)
        placed.append(lane.slots | offsets << np.uint64(32))
        end = end + 8 * sizes
    return placed


def _lane(column: pa.Array | pa.ChunkedArray, kind: t.DataType) -> Lane:
    if t.is_nested(kind):
        return _nested_lane(column, kind)
    array = plain(column, kind)
    nulls = null_flags(array)
    if isinstance(kind, (*TEXT, *BINARY)):
        return _text_lane(byte_spans(array, nulls), nulls)
    if isinstance(kind, t.Decimal) and kind.precision > COMPACT_DECIMAL_PRECISION_MAX:
        return _wide_decimal_lane(array, nulls)
    if isinstance(kind, TIMESTAMPS) and kind.precision > COMPACT_TIMESTAMP_PRECISION_MAX:
        return _wide_timestamp_lane(array, nulls, UNITS_PER_MILLI[timestamp_unit(kind.precision)])
    return Lane(_zero_nulls(_compact_slots(array, kind), nulls), nulls, None)


def null_flags(array: pa.Array) -> Flags | None:
    """Return where values are null, bool[n], or None when none is."""
    if array.null_count == 0:
        return None
    flags: Flags = array.is_null().to_numpy(zero_copy_only=False)
    return flags


def fixed_values(array: pa.Array, dtype: str, width: int = 1) -> npt.NDArray[Any]:
    """Return the values buffer of a fixed-width array as `dtype`[n * width]; nulls hold whatever is there."""
    kind = np.dtype(dtype)
    buffer = array.buffers()[1] if len(array) else None
    if buffer is None:
        return np.zeros(width * len(array), kind)
    return np.frombuffer(buffer, kind, width * len(array), array.offset * width * kind.itemsize)


def _zero_nulls(slots: Words, nulls: Flags | None) -> Words:
    return slots if nulls is None else np.where(nulls, np.uint64(0), slots)


def _compact_slots(array: pa.Array, kind: t.DataType) -> Words:
    if isinstance(kind, t.Boolean):
        return fixed_values(pc.cast(array, pa.uint8()), "<u1").astype(WORD)
    if isinstance(kind, t.Decimal):
        return fixed_values(array, "<u8", 2)[::2]  # the low half of 128 bits is the whole of 18 digits
    if isinstance(kind, TIMESTAMPS):
        return fixed_values(array, "<u8")
    form, unsigned = fixed_forms(kind)
    values = fixed_values(array, form)
    if isinstance(kind, (t.Float, t.Double)):
        values = canonical_nan(values)
    return values.view(unsigned).astype(WORD, copy=False)


def fixed_forms(kind: t.DataType) -> tuple[str, str]:
    """Return the type of the values of a kind in a slot, and the unsigned type of the same width.

    Raises:
        UnsupportedError: the type has no values in merganser.
    """
    try:
        return _FIXED[type(kind)]
    except KeyError:
        raise UnsupportedError(
            f"values of type {kind} cannot be read or written by this version of merganser"
        ) from None


def canonical_nan(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return floats with every NaN the same bits, so that a payload does not split a key."""
    nans = np.isnan(values)
    return np.where(nans, values.dtype.type(np.nan), values) if nans.any() else values


def byte_spans(array: pa.Array, nulls: Flags | None, inline_max: int = INLINE_MAX, slack: int = SLACK) -> ByteSpans:
    """Return the bytes of a string or binary array; a null is a run of no bytes.

    The buffer goes on for `slack` zeros after the last run.
    """
    offsets, data = spans(array)
    bounds = offsets.astype(np.int64)
    first, size = int(bounds[0]), int(bounds[-1] - bounds[0])
    # Arrow promises no slack behind its buffers, so the bytes are copied; that costs less than one gather.
    buffer = np.empty(size + slack, np.uint8)
    buffer[size:] = 0
    if size:
        buffer[:size] = data[first : first + size]
    lengths = np.diff(bounds)
    if nulls is not None:
        lengths[nulls] = 0
    return ByteSpans(buffer, bounds[:-1] - first, lengths, inline_max)


def _text_lane(texts: ByteSpans, nulls: Flags | None) -> Lane:
    lengths = texts.lengths.astype(WORD)
    slots = texts.word(0, None) | (lengths | np.uint64(0x80)) << np.uint64(56)
    if len(lengths) == 0 or int(texts.lengths.max()) <= texts.inline_max:
        return Lane(_zero_nulls(slots, nulls), nulls, None)
    return Lane(_zero_nulls(np.where(texts.lengths > texts.inline_max, lengths, slots), nulls), nulls, texts)


def _nested_lane(column: pa.Array | pa.ChunkedArray, kind: t.DataType) -> Lane:
    values = arrow_to_list(column, kind)
    encoded = pa.array([None if v is None else encode_nested(v, kind) for v in values], pa.large_binary())
    nulls = null_flags(encoded)
    rows = byte_spans(encoded, nulls, inline_max=0)
    return Lane(rows.lengths.astype(WORD), nulls, rows)


def _wide_timestamp_lane(array: pa.Array, nulls: Flags | None, units: int) -> Lane:
    counts = fixed_values(array, "<i8")
    millis = counts // units
    nanos = (counts - millis * units) * (1_000_000 // units)
    return Lane(
        _zero_nulls(nanos.astype(WORD), nulls), nulls, FixedArea((_zero_nulls(millis.astype("<i8").view(WORD), nulls),))
    )


def _wide_decimal_lane(array: pa.Array, nulls: Flags | None) -> Lane:
    """Return 16-byte areas that begin with the shortest big-endian two's complement form of the unscaled values."""
    halves = fixed_values(array, "<u8", 2)
    low, high = halves[::2], halves[1::2]
    sign = (high.view("<i8") >> 63).view(WORD)
    sizes = _signed_sizes(low ^ sign, high ^ sign)
    # Drop the 16 - size leading bytes that only repeat the sign, then write the 128 bits big end first.
    shift = (np.uint64(16) - sizes) << np.uint64(3)
    far, near = shift >= 64, shift & np.uint64(63)
    # A shift by 64 is undefined, so what crosses the halves goes in two steps, of 1 and of 63 - near.
    crossing = low >> np.uint64(1) >> (np.uint64(63) - near)
    high = np.where(far, low << near, high << near | crossing)
    low = np.where(far, np.uint64(0), low << near)
    area = FixedArea((_zero_nulls(high.byteswap(), nulls), _zero_nulls(low.byteswap(), nulls)))
    return Lane(_zero_nulls(sizes, nulls), nulls, area)


def _signed_sizes(low: Words, high: Words) -> Words:
    """Return the bytes that 128-bit magnitudes need with a sign bit, 1 to 16, as words."""
    sizes = np.ones(len(low), WORD)
    for size in range(1, 9):
        sizes += (high != 0) | (low >= np.uint64(1 << 8 * size - 1))
    for size in range(9, 16):
        sizes += high >= np.uint64(1 << 8 * size - 65)
    return sizes

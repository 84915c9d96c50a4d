"""BinaryRow, the row form of keys, partitions and statistics: many rows at a time, over Arrow columns.

    [row kind: 1 byte][null bits][slot: 8 bytes] * n [areas]      little endian; header and areas padded to 8 bytes

What slots and areas hold is drawn in `binary_nested`, which is the same codec one value at a time and the
reference for this one: both give equal bytes for equal values. Manifests hold the *serialized* form, the row
behind a 4-byte big-endian count of its fields. Hashes are over the row alone.

Rows are written as the JVM reference writes them (null wide decimals and timestamps keep their area); the form
of other writers, which keep none, is read as well.

Format: sections "BinaryRow" and "serialized form inside manifests".
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from merganser.codec.binary_nested import (
    COMPACT_DECIMAL_PRECISION_MAX,
    COMPACT_TIMESTAMP_PRECISION_MAX,
    DECIMAL_AREA_BYTES,
    INLINE_MAX,
    TIMESTAMP_AREA_BYTES,
    UNITS_PER_MILLI,
    decode_row,
    encode_row,
    header_bytes,
)
from merganser.codec.row_lanes import (
    SLACK,
    WORD,
    Bytes,
    ByteSpans,
    Counts,
    Flags,
    Lane,
    Words,
    byte_spans,
    fixed_forms,
    header_words,
    lanes,
    placed_slots,
    row_count,
    unaligned_words,
)
from merganser.codec.stored import (
    BINARY,
    TEXT,
    TIMESTAMPS,
    Stored,
    arrow_to_stored,
    beyond_arrow,
    sort_key,
    stored_to_arrow,
)
from merganser.errors import FormatError
from merganser.schema import types as t
from merganser.schema.arrow import arrow_type, timestamp_unit
from merganser.values import dataclass

__all__ = [
    "EMPTY_ROW",
    "RowBytes",
    "Stored",
    "arrow_to_stored",
    "decode_row",
    "deserialize",
    "deserialize_columns",
    "encode_row",
    "encode_rows",
    "serialize",
    "sort_key",
    "stored_to_arrow",
]

_PREFIX: Final = struct.Struct(">i")
_BLOCK_ROWS: Final = 1 << 15
"""Rows laid out together, so that what is scattered and gathered stays in the second-level cache."""

_LONG_AREA_WORDS: Final = 32
"""Areas are copied a word of every row at a time up to here, and the rest of each longer one on its own."""


@dataclass(frozen=True, slots=True)
class RowBytes:
    """The bytes of n rows, end to end.

    data: uint8[offsets[n]]. offsets: int64[n + 1], from 0; row i is data[offsets[i]:offsets[i + 1]].
    """

    data: Bytes
    offsets: Counts

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def row(self, i: int) -> bytes:
        """Return the bytes of row i, 0 to n - 1."""
        return self.data[self.offsets[i] : self.offsets[i + 1]].tobytes()


def serialize(values: Sequence[Stored], kinds: Sequence[t.DataType]) -> bytes:
    """Return the serialized form of one row: the field count as int32, big endian, then the row.

    Raises:
        InvalidInputError: a value does not fit its type.
    """
    return _PREFIX.pack(len(kinds)) + encode_row(values, kinds)


EMPTY_ROW: Final = serialize((), ())
"""Serialized row without fields: the partition of an unpartitioned table, the key of a table without one, no stats."""


def deserialize(data: bytes, kinds: Sequence[t.DataType]) -> tuple[Any, ...]:
    """Return the stored values of one serialized row; () when the row has no fields, whatever the kinds.

    Raises:
        FormatError: the bytes are not a row of these types.
    """
    if len(data) < _PREFIX.size:
        raise FormatError(f"cannot read a serialized row: it has {len(data)} bytes, and its field count alone takes 4")
    (arity,) = _PREFIX.unpack_from(data)
    if arity == 0:
        return ()
    if arity != len(kinds):
        raise FormatError(f"cannot read a serialized row: it has {arity} fields, and {len(kinds)} are expected")
    return decode_row(data[_PREFIX.size :], kinds)


def encode_rows(columns: Sequence[pa.Array | pa.ChunkedArray], kinds: Sequence[t.DataType]) -> RowBytes:
    """Return the rows of columns, row kind +I, without the arity prefix.

    Args:
        columns: m columns of n rows each, in field order, in the Arrow types of the kinds (text and binary
            also large or view). Without columns there are no rows: a row without fields is in `EMPTY_ROW`.
        kinds: the m types.

    Returns:
        n rows in the same order. While it works, the rows exist twice.

    Raises:
        InvalidInputError: columns and kinds do not belong together.
        UnsupportedError: a type has no values in merganser.
    """
    count = row_count(columns, kinds)
    blocks = []
    bounds = np.zeros(count + 1, np.int64)
    for start in range(0, max(count, 1), _BLOCK_ROWS):  # one empty block of no rows: types are checked all the same
        block = [column.slice(start, _BLOCK_ROWS) for column in columns] if count > _BLOCK_ROWS else columns
        words, sizes = _encode_block(lanes(block, kinds), min(count - start, _BLOCK_ROWS))
        blocks.append(words)
        bounds[start + 1 : start + 1 + len(sizes)] = sizes
    np.cumsum(bounds, out=bounds)
    return RowBytes((blocks[0] if len(blocks) == 1 else np.concatenate(blocks)).view(np.uint8), bounds * 8)


def _encode_block(parts: Sequence[Lane], count: int) -> tuple[Words, Counts]:
    """Return rows end to end, and the words of each."""
    fixed = header_bytes(len(parts)) // 8 + len(parts)
    sizes = np.full(count, fixed, np.int64)
    for lane in parts:
        if lane.area is not None:
            sizes += lane.area.sizes()
    starts = np.cumsum(sizes) - sizes
    out = np.zeros(int(sizes.sum()), WORD)
    stride = int(sizes[0]) if count and (sizes == sizes[0]).all() else 0
    for k, word in enumerate([*header_words(parts), *placed_slots(parts)]):
        if word is not None:
            _put_words(out, starts, k, word, stride)
    _put_areas(out, starts, parts, fixed)
    return out, sizes


def _put_words(out: Words, starts: Counts, k: int, words: Words, stride: int) -> None:
    if stride:
        out[k::stride] = words  # all rows have one length: a strided copy, without an index
    else:
        out[starts + k] = words


def _put_areas(out: Words, starts: Counts, parts: Sequence[Lane], fixed: int) -> None:
    cursor = starts + fixed
    for lane in parts:
        if lane.area is None:
            continue
        sizes = lane.area.sizes()
        rows = np.flatnonzero(sizes)
        w = 0
        while len(rows) and w < _LONG_AREA_WORDS:
            out[cursor[rows] + w] = lane.area.word(w, rows)
            w += 1
            rows = rows[sizes[rows] > w]
        if len(rows) and isinstance(lane.area, ByteSpans):
            _put_long(out.view(np.uint8), (cursor[rows] + w) * 8, lane.area, rows, w * 8)
        cursor = cursor + sizes


def _put_long(out: Bytes, at: Counts, spans: ByteSpans, rows: Counts, skip: int) -> None:
    starts, ends = spans.starts[rows] + skip, spans.starts[rows] + spans.lengths[rows]
    for place, start, end in zip(at.tolist(), starts.tolist(), ends.tolist(), strict=True):
        out[place : place + end - start] = spans.buffer[start:end]


def deserialize_columns(rows: Sequence[bytes] | pa.Array, kinds: Sequence[t.DataType]) -> list[pa.Array]:
    """Return many serialized rows as one Arrow column per kind, of type `arrow_type(kind)`.

    Rows without fields (stats that were not collected) are null in every column. Only nested types go row by row.

    Args:
        rows: n serialized rows, as bytes objects or as a binary array without nulls.
        kinds: the types of the fields.

    Raises:
        FormatError: a row is not a row of these types; names the first.
        UnsupportedError: a timestamp lies beyond what its Arrow unit can count, or a type has no values.
    """
    packed = rows if isinstance(rows, pa.Array) else _packed(rows)
    grid = _Grid.over(packed, len(kinds))
    return [grid.column(i, kind) for i, kind in enumerate(kinds)]


def _packed(rows: Sequence[bytes]) -> pa.Array:
    """Return bytes objects as a binary array. Not through `pa.array`, which loads pandas where that is installed."""
    offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, rows), np.int64, len(rows)), out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(rows))]
    return pa.Array.from_buffers(pa.large_binary(), len(rows), buffers)


@dataclass(frozen=True, slots=True)
class _Grid:
    """n serialized rows of m fields in one buffer.

    bytes: all rows and `SLACK` more. words: their unaligned words. starts, sizes: int64[n], the rows behind
    their prefixes; each holds its header and m = `arity` slots. absent: bool[n], rows without fields, or None.
    """

    bytes: Bytes
    words: Words
    starts: Counts
    sizes: Counts
    absent: Flags | None
    arity: int

    @classmethod
    def over(cls, packed: pa.Array, arity: int) -> _Grid:
        if packed.null_count:
            raise FormatError(f"cannot read serialized rows: {packed.null_count} of {len(packed)} are null")
        fixed = header_bytes(arity) + 8 * arity
        spans = byte_spans(packed, None, slack=fixed + SLACK)
        _require(spans.lengths >= _PREFIX.size, "it has no field count")
        starts, sizes = spans.starts + _PREFIX.size, spans.lengths - _PREFIX.size
        arities = np.ndarray((len(spans.buffer) - 3,), ">i4", spans.buffer, strides=(1,))[spans.starts]
        absent = (arities == 0) & (arity > 0)
        _require((arities == arity) | absent, f"its field count is not {arity}")
        if absent.any():
            # Zeros stand behind the rows for these to read; `absent` makes nulls of what is found there.
            starts, sizes = np.where(absent, len(spans.buffer) - SLACK - fixed, starts), np.where(absent, fixed, sizes)
        _require(sizes >= fixed, f"header and slots take {fixed} bytes")
        flags = absent if absent.any() else None
        return cls(spans.buffer, unaligned_words(spans.buffer), starts, sizes, flags, arity)

    def column(self, i: int, kind: t.DataType) -> pa.Array:
        nulls = (self.bytes[self.starts + (i + 8) // 8] >> (i % 8) & 1).astype(bool)
        if self.absent is not None:
            nulls |= self.absent
        at = header_bytes(self.arity) + 8 * i
        if t.is_nested(kind):
            return self._nested(i, kind, nulls)
        slots = self.words[self.starts + at]
        if isinstance(kind, (*TEXT, *BINARY)):
            return self._text(slots, at, kind, nulls)
        if isinstance(kind, t.Decimal):
            return self._decimal(slots, kind, nulls)
        if isinstance(kind, TIMESTAMPS):
            counts = slots.view("<i8")
            if kind.precision > COMPACT_TIMESTAMP_PRECISION_MAX:
                counts = self._wide_timestamps(slots, kind, nulls)
            return pa.array(counts, pa.int64(), mask=nulls).view(arrow_type(kind))
        return _fixed(slots, kind, nulls)

    def _areas(self, slots: Words, size: Counts | int, inside: Flags, kind: t.DataType) -> Counts:
        """Return where the areas begin in the buffer, checked for the rows `inside`; 0 for the others."""
        offsets = (slots >> np.uint64(32)).astype(np.int64)
        _require(~inside | (offsets + size <= self.sizes), f"an area of a {kind} reaches beyond its end")
        return np.where(inside, self.starts + offsets, 0)

    def _text(self, slots: Words, at: int, kind: t.DataType, nulls: Flags) -> pa.Array:
        marks = (slots >> np.uint64(56)).astype(np.int64)
        inline = marks >= 0x80
        _require(
            nulls | ~inline | (marks <= 0x80 + INLINE_MAX), f"a {kind} in a slot is longer than {INLINE_MAX} bytes"
        )
        lengths = np.where(inline, marks - 0x80, (slots & np.uint64(0xFFFF_FFFF)).astype(np.int64))
        lengths[nulls] = 0
        sources = np.where(inline, self.starts + at, self._areas(slots, lengths, ~(inline | nulls), kind))
        bounds = np.zeros(len(slots) + 1, np.int64)
        np.cumsum(lengths, out=bounds[1:])
        text = self.bytes[np.repeat(sources - bounds[:-1], lengths) + np.arange(bounds[-1])]
        array = pa.Array.from_buffers(
            pa.large_binary(), len(slots), [_validity(nulls), pa.py_buffer(bounds), pa.py_buffer(text)]
        )
        try:
            return array.cast(arrow_type(kind))
        except pa.ArrowInvalid as error:
            raise FormatError(f"cannot read serialized rows: a {kind} is damaged: {error}") from error

    def _decimal(self, slots: Words, kind: t.Decimal, nulls: Flags) -> pa.Array:
        halves = np.zeros((len(slots), 2), WORD)
        if kind.precision <= COMPACT_DECIMAL_PRECISION_MAX:
            halves[:, 0] = slots
            halves[:, 1] = (slots.view("<i8") >> 63).view(WORD)
        else:
            halves[:, 0], halves[:, 1] = self._wide_decimals(slots, kind, nulls)
        halves[nulls] = 0
        buffers = [_validity(nulls), pa.py_buffer(halves)]
        array = pa.Array.from_buffers(arrow_type(kind), len(slots), buffers)
        try:
            array.validate(full=True)
        except pa.ArrowInvalid as error:
            raise FormatError(f"cannot read serialized rows: a {kind} has more digits than that: {error}") from error
        return array

    def _wide_decimals(self, slots: Words, kind: t.Decimal, nulls: Flags) -> tuple[Words, Words]:
        """Return the low and high halves of unscaled values whose areas begin with their shortest big-endian form."""
        sizes = (slots & np.uint64(0xFFFF_FFFF)).astype(np.int64)
        _require(nulls | ((sizes >= 1) & (sizes <= DECIMAL_AREA_BYTES)), f"a {kind} does not take 1 to 16 bytes")
        at = self._areas(slots, sizes, ~nulls, kind)
        high, low = self.words[at].byteswap(), self.words[at + 8].byteswap()
        shift = ((16 - np.where(nulls, 16, sizes)) * 8).astype(WORD)
        far, near = shift >= 64, shift & np.uint64(63)
        signed = high.view("<i8")
        crossing = high << np.uint64(1) << (np.uint64(63) - near)
        moved = (signed >> near.view("<i8")).view(WORD)
        return np.where(far, moved, low >> near | crossing), np.where(far, (signed >> 63).view(WORD), moved)

    def _wide_timestamps(self, slots: Words, kind: t.Timestamp | t.LocalZonedTimestamp, nulls: Flags) -> Counts:
        nanos = (slots & np.uint64(0xFFFF_FFFF)).astype(np.int64)
        _require(nulls | (nanos < 1_000_000), f"a {kind} has a million nanoseconds in its millisecond, or more")
        at = self._areas(slots, TIMESTAMP_AREA_BYTES, ~nulls, kind)
        millis = np.where(nulls, 0, self.words[at].view("<i8"))
        units = UNITS_PER_MILLI[timestamp_unit(kind.precision)]
        counts = millis * units + nanos // (1_000_000 // units)
        # Sums may leave 64 bits and come back (the smallest count does), so the result is judged: its sign tells.
        low, high = -(2**63) // units, (2**63 - 1) // units
        if not ((millis >= low) & (millis <= high) & ((counts < 0) == (millis < 0))).all():
            raise beyond_arrow(kind)
        return counts

    def _nested(self, i: int, kind: t.DataType, nulls: Flags) -> pa.Array:
        # Only field i is wanted, so the others are read as BIGINT, which any eight bytes are.
        kinds: list[t.DataType] = [t.BigInt()] * self.arity
        kinds[i] = kind
        values = []
        for start, size, null in zip(self.starts.tolist(), self.sizes.tolist(), nulls.tolist(), strict=True):
            values.append(None if null else decode_row(self.bytes[start : start + size].tobytes(), kinds)[i])
        return stored_to_arrow(values, kind)


def _require(ok: Flags, why: str) -> None:
    if not ok.all():
        raise FormatError(f"cannot read serialized row {int(np.argmin(ok))} of {len(ok)}: {why}")


def _validity(nulls: Flags) -> pa.Buffer | None:
    return pa.py_buffer(np.packbits(~nulls, bitorder="little")) if nulls.any() else None


def _fixed(slots: Words, kind: t.DataType, nulls: Flags) -> pa.Array:
    if isinstance(kind, t.Boolean):
        return pa.array(slots & np.uint64(0xFF) != 0, pa.bool_(), mask=nulls)
    form, unsigned = fixed_forms(kind)
    values = slots.astype(unsigned, copy=False).view(form)
    return pa.array(values, mask=nulls).view(arrow_type(kind))

"""Which bucket a row belongs to: the three bucket functions of the format, over Arrow columns.

    default   Murmur3 (x86, 32 bits, seed 42) over the BinaryRow of the bucket key, then |hash % n|
    mod       the key itself, floored, modulo n: one INT or BIGINT column
    hive      Hive's 31-polynomial of the columns, its sign dropped, modulo n

The row of the default function is never built: its words come column by column from `row_lanes` and are mixed
into the hashes of all rows at once, in blocks small enough that state and words stay in the cache. A row is a
multiple of 8 bytes, so the hash has no tail. The partition is no part of any of them.

Format: section "bucketing". Vectors: `tests/golden/tables/bucket_vectors.json`.
"""

from __future__ import annotations

import decimal
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from merganser.codec.binary_nested import header_bytes
from merganser.codec.row_lanes import (
    Area,
    Counts,
    Flags,
    Lane,
    Words,
    byte_spans,
    canonical_nan,
    fixed_values,
    header_words,
    lanes,
    null_flags,
    placed_slots,
    row_count,
)
from merganser.codec.stored import BINARY, TEXT, plain, unscaled
from merganser.errors import InvalidInputError, UnsupportedError
from merganser.schema import types as t

Hashes: TypeAlias = "npt.NDArray[np.int32]"
_Half: TypeAlias = "npt.NDArray[np.uint32]"

_SEED: Final = 42
_MASK: Final = 0xFFFF_FFFF
_WORDS: Final = struct.Struct("<I")
_BLOCK_ROWS: Final = 1 << 15
"""Rows hashed together: state and words of a block (4 and 8 bytes a row) fit in the second-level cache."""


def row_hashes(columns: Sequence[pa.Array | pa.ChunkedArray], kinds: Sequence[t.DataType]) -> Hashes:
    """Return the hash of every row of a bucket key, int32[n].

    Args:
        columns: the bucket key columns in their order, n rows each, in the Arrow types of the kinds.
        kinds: their types.

    Raises:
        InvalidInputError: columns and kinds do not belong together.
        UnsupportedError: a type has no values in merganser.
    """
    count = row_count(columns, kinds)
    out = np.empty(count, np.uint32)
    for start in range(0, count, _BLOCK_ROWS):
        block = [column.slice(start, _BLOCK_ROWS) if count > _BLOCK_ROWS else column for column in columns]
        parts = lanes(block, kinds)
        _hash_block(parts, out[start : start + _BLOCK_ROWS])
    return out.view(np.int32)


def row_hash(row: bytes) -> int:
    """Return the hash of bytes, such as those of one BinaryRow; their number is a multiple of 4."""
    state = _SEED
    for (word,) in _WORDS.iter_unpack(row):
        word = word * 0xCC9E2D51 & _MASK
        word = (word << 15 | word >> 17) & _MASK
        state ^= word * 0x1B873593 & _MASK
        state = (state << 13 | state >> 19) & _MASK
        state = state * 5 + 0xE6546B64 & _MASK
    state ^= len(row)
    state ^= state >> 16
    state = state * 0x85EBCA6B & _MASK
    state ^= state >> 13
    state = state * 0xC2B2AE35 & _MASK
    state ^= state >> 16
    return state - (1 << 32) if state >> 31 else state


def _hash_block(parts: Sequence[Lane], out: _Half) -> None:
    headers = list(header_words(parts))
    constant = _SEED
    while headers and headers[0] is None:
        constant = _mix_zeros(_mix_zeros(constant))
        headers.pop(0)
    out.fill(constant)
    for header in headers:
        _mix_word(out, np.zeros(len(out), np.uint64) if header is None else header)
    for slots in placed_slots(parts):
        _mix_word(out, slots)
    lengths = np.full(len(out), header_bytes(len(parts)) + 8 * len(parts), np.uint32)
    for lane in parts:
        if lane.area is not None:
            sizes = lane.area.sizes()
            _mix_area(out, lane.area, sizes)
            lengths += (8 * sizes).astype(np.uint32)
    out ^= lengths
    _finish(out)


def _mix_zeros(state: int) -> int:
    """Return the state after four zero bytes, of which only the turn of the state itself remains."""
    return ((state << 13 | state >> 19) * 5 + 0xE6546B64) & 0xFFFF_FFFF


def _mix_area(state: _Half, area: Area, sizes: Counts) -> None:
    """Mix the words of areas into the states of their rows; rows drop out as their areas end."""
    common = int(sizes.min()) if len(sizes) else 0
    for w in range(common):
        _mix_word(state, area.word(w, None))
    rows = np.flatnonzero(sizes > common)
    w = common
    while len(rows):
        part = state[rows]
        _mix_word(part, area.word(w, rows))
        state[rows] = part
        w += 1
        rows = rows[sizes[rows] > w]


def _mix_word(state: _Half, words: Words) -> None:
    _mix(state, words.astype(np.uint32))
    _mix(state, (words >> np.uint64(32)).astype(np.uint32))


def _mix(state: _Half, words: _Half) -> None:
    """Mix four bytes into each state, in place; `words` is used up."""
    words *= np.uint32(0xCC9E2D51)
    _rotate(words, 15)
    words *= np.uint32(0x1B873593)
    state ^= words
    _rotate(state, 13)
    state *= np.uint32(5)
    state += np.uint32(0xE6546B64)


def _rotate(values: _Half, left: int) -> None:
    wrapped = values >> np.uint32(32 - left)
    values <<= np.uint32(left)
    values |= wrapped


def _finish(state: _Half) -> None:
    state ^= state >> np.uint32(16)
    state *= np.uint32(0x85EBCA6B)
    state ^= state >> np.uint32(13)
    state *= np.uint32(0xC2B2AE35)
    state ^= state >> np.uint32(16)


def buckets(
    columns: Sequence[pa.Array | pa.ChunkedArray], kinds: Sequence[t.DataType], total: int, function: str = "default"
) -> Hashes:
    """Return the bucket of every row, int32[n], 0 to total - 1.

    Args:
        columns: the bucket key columns in their order, n rows each.
        kinds: their types.
        total: number of buckets, at least 1.
        function: `default`, `mod` or `hive`, the table option `bucket-function.type`.

    Raises:
        InvalidInputError: no such function, no buckets, or a key that the function does not take.
        UnsupportedError: the Hive function meets a timestamp or nested value, for which it is not defined.
    """
    if total < 1:
        raise InvalidInputError(f"cannot assign rows to {total} buckets: there must be at least one", total=total)
    match function.lower():
        case "default":
            return remainders(row_hashes(columns, kinds), total)
        case "mod":
            return (_mod_key(columns, kinds) % total).astype(np.int32)
        case "hive":
            return ((_hive_hashes(columns, kinds) & np.uint32(0x7FFF_FFFF)) % np.uint32(total)).astype(np.int32)
    raise InvalidInputError(
        f"unknown bucket function '{function}'. The option 'bucket-function.type' takes default, mod and hive.",
        function=function,
    )


def remainders(hashes: Hashes, total: int) -> Hashes:
    """Return |hash| modulo `total`, int32[n].

    2**31, the size of the smallest hash, has room without a sign. Whole parts are taken off: numpy has vector
    instructions for a quotient and none for a remainder.
    """
    out = np.empty(len(hashes), np.uint32)
    for start in range(0, len(hashes), _BLOCK_ROWS):
        sizes = np.abs(hashes[start : start + _BLOCK_ROWS]).view(np.uint32)
        whole = sizes // np.uint32(total)
        whole *= np.uint32(total)
        np.subtract(sizes, whole, out=out[start : start + _BLOCK_ROWS])
    return out.view(np.int32)


def _mod_key(columns: Sequence[pa.Array | pa.ChunkedArray], kinds: Sequence[t.DataType]) -> Counts:
    if len(kinds) != 1 or len(columns) != 1 or not isinstance(kinds[0], t.Int | t.BigInt):
        raise InvalidInputError(
            "the bucket function 'mod' takes one INT or BIGINT column, "
            f"and the bucket key is ({', '.join(map(str, kinds))})"
        )
    array = plain(columns[0], kinds[0])
    values = fixed_values(array, "<i4" if isinstance(kinds[0], t.Int) else "<i8").astype(np.int64)
    return _null_as_zero(values, null_flags(array))


def _null_as_zero(values: npt.NDArray[Any], nulls: Flags | None) -> npt.NDArray[Any]:
    return values if nulls is None else np.where(nulls, values.dtype.type(0), values)


def _hive_hashes(columns: Sequence[pa.Array | pa.ChunkedArray], kinds: Sequence[t.DataType]) -> _Half:
    state = np.zeros(row_count(columns, kinds), np.uint32)
    for column, kind in zip(columns, kinds, strict=True):
        state *= np.uint32(31)
        state += _hive_values(column, kind)
    return state


def _hive_values(column: pa.Array | pa.ChunkedArray, kind: t.DataType) -> _Half:
    if t.is_nested(kind) or isinstance(kind, t.Timestamp | t.LocalZonedTimestamp):
        if column.null_count < len(column):
            raise UnsupportedError(
                f"the bucket function 'hive' is not defined for values of type {kind}. "
                "Choose another bucket key, or the default function."
            )
        return np.zeros(len(column), np.uint32)
    array = plain(column, kind)
    nulls = null_flags(array)
    if isinstance(kind, (*TEXT, *BINARY)):
        return _hive_bytes(array, nulls)
    if isinstance(kind, t.Decimal):
        return _hive_decimals(array, kind)
    return _null_as_zero(_HIVE[type(kind)](array), nulls)


def _fold(values: Words) -> _Half:
    return (values ^ values >> np.uint64(32)).astype(np.uint32)


def _hive_floats(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return canonical_nan(values + values.dtype.type(0))  # -0.0 + 0.0 is 0.0, and both hash alike


_HIVE: Final[dict[type[t.DataType], Callable[[pa.Array], _Half]]] = {
    t.Boolean: lambda array: fixed_values(pc.cast(array, pa.uint8()), "<u1").astype(np.uint32),
    t.TinyInt: lambda array: fixed_values(array, "<i1").astype(np.int32).view(np.uint32),
    t.SmallInt: lambda array: fixed_values(array, "<i2").astype(np.int32).view(np.uint32),
    t.Int: lambda array: fixed_values(array, "<u4"),
    t.Date: lambda array: fixed_values(array, "<u4"),
    t.Time: lambda array: fixed_values(array, "<u4"),
    t.BigInt: lambda array: _fold(fixed_values(array, "<u8")),
    t.Float: lambda array: _hive_floats(fixed_values(array, "<f4")).view(np.uint32),
    t.Double: lambda array: _fold(_hive_floats(fixed_values(array, "<f8")).view(np.uint64)),
}


def _hive_bytes(array: pa.Array, nulls: Flags | None) -> _Half:
    """Return 31 * h + byte over the signed bytes of each value, one position of all values at a time."""
    spans = byte_spans(array, nulls)
    signed = spans.buffer.view(np.int8)
    state = np.zeros(len(array), np.uint32)
    rows = np.flatnonzero(spans.lengths)
    position = 0
    while len(rows):
        part = state[rows] * np.uint32(31)
        part += signed[spans.starts[rows] + position].astype(np.int32).view(np.uint32)
        state[rows] = part
        position += 1
        rows = rows[spans.lengths[rows] > position]
    return state


def _hive_decimals(array: pa.Array, kind: t.Decimal) -> _Half:
    """Return Hive's hash of decimals: once per distinct value, since it strips trailing zeros digit by digit."""
    encoded = array.dictionary_encode()
    hashes = [_hive_decimal(value, kind.scale) for value in encoded.dictionary.to_pylist()]
    found = np.array([*hashes, 0], np.uint32)  # the last is what nulls take
    picked: _Half = found[encoded.indices.fill_null(len(hashes)).to_numpy(zero_copy_only=False)]
    return picked


def _hive_decimal(value: decimal.Decimal, scale: int) -> int:
    count = unscaled(value, scale)
    while scale > 0 and count % 10 == 0:
        count //= 10
        scale -= 1
    if count == 0:
        return 0
    magnitude = 0
    for shift in range((abs(count).bit_length() - 1) // 32 * 32, -1, -32):
        magnitude = magnitude * 31 + (abs(count) >> shift & 0xFFFF_FFFF)
    signed = magnitude if count > 0 else -magnitude
    return (31 * signed + scale) & 0xFFFF_FFFF

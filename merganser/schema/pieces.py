"""Rows of more bytes than 32-bit offsets reach: Arrow counts bytes of texts and items of lists with 32 bits.

`concat_arrays`, `combine_chunks` and `take` fail for a column beyond 2 GiB. So such a column stays in several chunks,
and rows of it are gathered chunk by chunk.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

PIECE_BYTES_MAX: Final = 1 << 30
"""Maximum bytes of a column in one array. Half of what 32-bit offsets of text reach."""

Positions: TypeAlias = "npt.NDArray[np.int64]"


def pieces(rows: pa.Table) -> Iterator[tuple[int, int]]:
    """Yield first row and number of rows of slices whose columns have at most `PIECE_BYTES_MAX` each, or of one row."""
    yield from _pieces(rows, 0)


def _pieces(rows: pa.Table, start: int) -> Iterator[tuple[int, int]]:
    half = rows.num_rows // 2
    if not is_large(rows):
        yield start, rows.num_rows
        return
    yield from _pieces(rows.slice(0, half), start)
    yield from _pieces(rows.slice(half), start + half)


def is_large(rows: pa.Table) -> bool:
    """Return whether rows are to be handled in slices: more than one row, and a column of too many bytes."""
    if rows.num_rows < 2 or rows.nbytes <= PIECE_BYTES_MAX:
        return False
    return any(column.nbytes > PIECE_BYTES_MAX for column in rows.columns)


def in_one(rows: pa.Table) -> pa.Table:
    """Return rows with each column in one chunk, unless it is too large for one: gathering from several is slower."""
    if all(column.num_chunks <= 1 for column in rows.columns):
        return rows
    if not is_large(rows):
        return rows.combine_chunks()
    columns = [_in_one(column) for column in rows.columns]
    return pa.Table.from_arrays(columns, schema=rows.schema)


def _in_one(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if column.nbytes > PIECE_BYTES_MAX:
        return column
    return pa.chunked_array([pa.concat_arrays(column.chunks)], column.type) if column.num_chunks > 1 else column


def rows_at(rows: pa.Table, positions: Positions) -> pa.Table:
    """Return the rows at int64[k] positions, in their order, as `Table.take` does, of any number of bytes."""
    if rows.nbytes * len(positions) <= PIECE_BYTES_MAX:  # no column can grow too large: all of them in one call
        return rows.take(pa.array(positions))
    columns = [values_at(column, positions) for column in rows.columns]
    return pa.Table.from_arrays(columns, schema=rows.schema)


def values_at(column: pa.ChunkedArray, positions: Positions) -> pa.ChunkedArray:
    """Return the values of a column at int64[k] positions, in their order."""
    size = column.nbytes
    if not len(positions) or not _has_offsets(column.type) or size * len(positions) <= PIECE_BYTES_MAX:
        return column.take(pa.array(positions))
    lengths = np.concatenate([_lengths(chunk) for chunk in column.chunks])
    ends = np.cumsum(lengths[positions], dtype=np.int64)
    if size <= PIECE_BYTES_MAX and ends[-1] <= PIECE_BYTES_MAX:
        return column.take(pa.array(positions))
    parts, begin = [], 0
    while begin < len(positions):
        before = ends[begin - 1] if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, before + PIECE_BYTES_MAX, "right")))
        parts.append(_gathered(column, positions[begin:end]))
        begin = end
    return pa.chunked_array(parts, column.type)


def _gathered(column: pa.ChunkedArray, positions: Positions) -> pa.Array:
    """Return values that one array holds, gathered chunk by chunk."""
    starts = np.cumsum([0, *(len(chunk) for chunk in column.chunks)])
    chunk_of = np.searchsorted(starts, positions, "right") - 1
    order = np.argsort(chunk_of, kind="stable")
    numbers, first = np.unique(chunk_of[order], return_index=True)
    groups = np.split(positions[order], first[1:])
    parts = [column.chunk(n).take(pa.array(at - starts[n])) for n, at in zip(numbers.tolist(), groups, strict=True)]
    whole = pa.concat_arrays(parts)
    if (order[1:] > order[:-1]).all():
        return whole
    back = np.empty(len(order), np.int64)
    back[order] = np.arange(len(order))
    return whole.take(pa.array(back))


def _has_offsets(kind: pa.DataType) -> bool:
    return bool(pa.types.is_nested(kind) or pa.types.is_string(kind) or pa.types.is_binary(kind))


def _lengths(array: pa.Array) -> npt.NDArray[np.int64]:
    """Return int64[n], about how many bytes each value has; a null may count what it hides."""
    kind = array.type
    if pa.types.is_struct(kind):
        sizes = np.ones(len(array), np.int64)
        for i in range(kind.num_fields):
            sizes += _lengths(array.field(i))
        return sizes
    if pa.types.is_map(kind) or pa.types.is_list(kind):
        inside = [array.keys, array.items] if pa.types.is_map(kind) else [array.values]
        offsets = np.asarray(array.offsets).astype(np.int64)
        sizes = np.full(len(array), 4, np.int64)
        for part in inside:
            ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(_lengths(part))])
            sizes += np.diff(ends[offsets])
        return sizes
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        offsets = np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, array.offset * 4)
        return 4 + np.diff(offsets).astype(np.int64)
    return np.full(len(array), 16, np.int64)

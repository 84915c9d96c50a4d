"""Many small Parquet files of the same columns, decoded at once.

Opening a file and setting up its columns takes pyarrow half a millisecond, whatever the file holds; Polars decodes
thousands of files in one call, on all cores. It is not asked to be exact or to find damage, both are seen to here:

* A column has to be of a type that both libraries understand alike (`_is_alike`), in every file, and what comes out has
  to be of the type that pyarrow gives.
* Page checksums, which Polars does not verify, are verified first. A file has one row group whose columns have one page
  each, and a dictionary perhaps.

Whatever is not so, damage among it, is left to the reader of single files (`codec.parquet`), which says what is wrong.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from merganser.codec import thrift
from merganser.codec.parquet_footer import parsed, read_footer
from merganser.codec.physical import exact_table
from merganser.schema import types as t

_PROCESS: Final = os.getpid()
"""Where this module was imported: threads of Polars are not there in a process that was forked off later."""

_I32_FIELD: Final = 0x15
"""Header of a field of a thrift struct: an int32 whose number is one more than that of the field before."""

Places = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Columns:
    """What files have in common.

    Attributes:
        start: the first bytes of their footers: version and schema.
        leaves: positions of the columns to read.
        kinds: the types that pyarrow gives these columns.
    """

    start: bytes
    leaves: tuple[int, ...]
    kinds: tuple[pa.DataType, ...]


def read_many(
    files: Sequence[bytes], rows: Sequence[int], columns: Sequence[t.Field], *, path: str
) -> pa.Table | None:  # fmt: skip
    """Return columns of many files as one table, their rows in the order of the files.

    Args:
        files: the bytes of each, a few megabytes in all.
        rows: how many rows metadata says that each file has.
        columns: fields looked up by name, at least one, as for `FileReader.read`.
        path: of one of the files, for messages.

    Returns:
        The rows in the exact types of the fields; None: one of the files has to be read by itself.
    """
    if os.getpid() != _PROCESS:
        return None
    try:
        if not _sound(files, rows, columns):
            return None
        found = pl.read_parquet([*files], columns=[f.name for f in columns], use_statistics=False)
        table = found.rechunk().to_arrow()
        if table.num_rows != sum(rows):
            return None
        return exact_table(table.columns, columns, rows=table.num_rows, path=path)
    except (Exception, pl.exceptions.PanicException):
        return None


def _sound(files: Sequence[bytes], rows: Sequence[int], columns: Sequence[t.Field]) -> bool:
    """Return whether all files are of the form that can be read here, with the rows they should have, undamaged."""
    shared: _Columns | None = None
    pages: list[tuple[int, int]] = []
    base = 0
    for data, count in zip(files, rows, strict=True):
        footer = read_footer(pa.BufferReader(data))
        metadata = parsed(footer)
        if shared is None or not footer.startswith(shared.start):
            shared = _columns_of(footer, metadata, columns)
            if shared is None:
                return False
        if metadata.num_rows != count or metadata.num_row_groups != 1:
            return False
        group = metadata.row_group(0)
        for leaf in shared.leaves:
            chunk = group.column(leaf)
            dictionary, first = chunk.dictionary_page_offset, chunk.data_page_offset
            start = first if dictionary is None else dictionary
            end = start + chunk.total_compressed_size
            if not 0 < start <= first < end <= len(data):
                return False
            if start < first:
                pages.append((base + start, base + first))
            pages.append((base + first, base + end))
        base += len(data)
    return _checksums_hold(b"".join(files), np.array(pages, np.int64))


def _columns_of(footer: bytes, metadata: pq.FileMetaData, columns: Sequence[t.Field]) -> _Columns | None:
    """Return where the columns lie in files with the schema of this one; None: they are not read alike."""
    root = thrift.read_struct(footer)
    if [number for number, _, _ in root[:2]] != [1, 2]:
        return None
    start = thrift.write_struct(root[:2])[:-1]
    names, schema = metadata.schema.names, metadata.schema.to_arrow_schema()
    if not footer.startswith(start) or names != schema.names or len(set(names)) != len(names):
        return None  # a nested column, or what thrift may write in two ways
    leaves, kinds = [], []
    for field in columns:
        if field.name not in names:
            return None
        leaf = names.index(field.name)
        kind = schema.field(leaf).type
        if not _is_alike(kind, metadata.schema.column(leaf).physical_type):
            return None
        leaves.append(leaf)
        kinds.append(kind)
    return _Columns(start, tuple(leaves), tuple(kinds))


def _is_alike(kind: pa.DataType, physical: str) -> bool:
    """Return whether Polars reads a column to the same values as pyarrow, which gives it the type `kind`.

    Not of INT96, whose unit and range differ, of times, which become nanoseconds, nor of fixed bytes.
    """
    is_ = pa.types
    match physical:
        case "BOOLEAN":
            return bool(is_.is_boolean(kind))
        case "INT32" | "INT64":
            plain = is_.is_signed_integer(kind) or is_.is_date32(kind) or is_.is_decimal128(kind)
            return bool(plain) or (is_.is_timestamp(kind) and kind.tz in (None, "UTC"))
        case "FLOAT" | "DOUBLE":
            return bool(is_.is_floating(kind)) and kind.bit_width >= 32
        case "BYTE_ARRAY":
            return bool(is_.is_string(kind) or is_.is_binary(kind))
    return False


def _checksums_hold(data: bytes, pages: Places) -> bool:
    """Return whether pages are as their checksums say; those without one are taken as they are.

    Args:
        data: what holds the pages.
        pages: int64[n, 2]: where the header of each begins, where its values end.
    """
    octets = np.frombuffer(data, np.uint8)
    at = pages[:, 0].copy()
    numbers = []
    for _ in range(3):  # kind of page, bytes of its values as decoded, and as stored
        if (octets[at] != _I32_FIELD).any():
            return False
        number, at = _integers(octets, at + 1)
        numbers.append(number)
    noted = octets[at] == _I32_FIELD
    expected, _ = _integers(octets, np.where(noted, at + 1, pages[:, 0]))
    starts, ends = pages[:, 1] - numbers[2], pages[:, 1]
    if (starts <= at).any() or (starts > ends).any():
        return False
    view = memoryview(data)
    found = np.fromiter(
        (zlib.crc32(view[a:b]) for a, b in zip(starts[noted].tolist(), ends[noted].tolist(), strict=True)), np.int64
    )
    return bool((found == (expected[noted] & 0xFFFFFFFF)).all())


def _integers(octets: npt.NDArray[np.uint8], at: Places) -> tuple[Places, Places]:
    """Return int64[n] that stand in thrift's form at n places, and the places behind them."""
    value = np.zeros(len(at), np.int64)
    open_ = np.ones(len(at), np.bool_)
    at = at.copy()
    for shift in range(0, 35, 7):  # a 32-bit integer has five bytes at most
        byte = octets[at].astype(np.int64)
        value += np.where(open_, (byte & 0x7F) << shift, 0)
        at += open_
        open_ &= byte >= 0x80
        if not open_.any():
            break
    return (value >> 1) ^ -(value & 1), at

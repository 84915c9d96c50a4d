"""Many small Parquet files of the same columns, decoded at once.

pyarrow takes half a millisecond to open a file and set up its columns, even for a small file. Polars decodes thousands
of files in one call, on all cores. This module does not rely on Polars to be exact or to find damage:

* It accepts only columns of a type that both libraries understand alike (`parquet_pages.is_alike`), in every file.
* It verifies the page checksums first, which Polars does not. It accepts only files of one row group.

The reader of single files (`codec.parquet`) reads every other file, damaged ones included, and names what is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from merganser.codec import thrift
from merganser.codec.old_calendar import calendar_of
from merganser.codec.parquet_footer import Chunks, check_footer, parsed, read_footer
from merganser.codec.parquet_pages import is_alike, is_literal, polars_is_here, undamaged
from merganser.codec.physical import exact_table
from merganser.schema import types as t
from merganser.schema.lazy_polars import pl
from merganser.values import dataclass


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
    files: Sequence[bytes],
    rows: Sequence[int],
    columns: Sequence[t.Field],
    *,
    path: str,
    checksums: Sequence[int | None],
) -> pa.Table | None:  # fmt: skip
    """Return columns of many files as one table, their rows in the order of the files.

    Args:
        files: the bytes of each, a few megabytes in all.
        rows: how many rows metadata says that each file has.
        columns: fields looked up by name, at least one, as for `FileReader.read`.
        path: of one of the files, for messages.
        checksums: the CRC-32 of the footer of each; None: not noted.

    Returns:
        The rows in the exact types of the fields; None: one of the files has to be read by itself.
    """
    if not polars_is_here():
        return None
    try:
        if not _sound(files, rows, checksums, columns):
            return None
        found = pl.read_parquet([*files], columns=[f.name for f in columns], use_statistics=False)
        table = found.rechunk().to_arrow()
        if table.num_rows != sum(rows):
            return None
        return exact_table(table.columns, columns, rows=table.num_rows, path=path)
    except (Exception, pl.exceptions.PanicException):
        return None


def _sound(
    files: Sequence[bytes], rows: Sequence[int], checksums: Sequence[int | None], columns: Sequence[t.Field]
) -> bool:
    """Return whether all files are of the form that can be read here, with the rows they should have, undamaged."""
    shared: _Columns | None = None
    stretches: list[tuple[int, int]] = []
    base = 0
    for data, count, checksum in zip(files, rows, checksums, strict=True):
        footer = read_footer(pa.BufferReader(data))
        check_footer(footer, checksum, "")
        metadata = parsed(footer)
        if shared is None or not footer.startswith(shared.start):
            shared = _columns_of(footer, metadata, columns)
            if shared is None:
                return False
        if metadata.num_rows != count or metadata.num_row_groups != 1:
            return False
        if calendar_of(metadata.metadata or {}) is not None:
            return False
        chunks = Chunks(footer, metadata, whole=checksum is not None)
        for leaf in shared.leaves:
            chunk = chunks.of(0, leaf)
            dictionary, first = chunk.dictionary_page_offset, chunk.data_page_offset
            start = first if dictionary is None else dictionary
            end = start + chunk.total_compressed_size
            if not 0 < start <= first < end <= len(data):
                return False
            stretches.append((base + start, base + end))
        base += len(data)
    return undamaged(memoryview(b"".join(files)), np.array(stretches, np.int64))


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
        if field.name not in names or not is_literal(field.name):
            return None
        leaf = names.index(field.name)
        kind = schema.field(leaf).type
        if not is_alike(kind, metadata.schema.column(leaf).physical_type):
            return None
        leaves.append(leaf)
        kinds.append(kind)
    return _Columns(start, tuple(leaves), tuple(kinds))

"""Parquet files of any writer, as their rows are handed to a table.

Other than data files (`codec.parquet`), whose types a table says, these say their own, and `schema.conform` judges
them. Three things they do not say by themselves:

* INT96 times have no zone. Spark stores instants so, and notes the types of its columns in the footer; what it calls
  `timestamp` is an instant, in UTC.
* pyarrow wraps INT96 times outside the years 1677 to 2262 around. `codec.int96` computes them from the stored bytes: in
  nanoseconds, or in microseconds where the times of a batch need more than 64 bits of nanoseconds.
* Spark may count dates and times in the old calendar, and marks such files (`codec.old_calendar`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from merganser.codec.int96 import INT96_BYTES, has_nanos, int96_counts
from merganser.codec.old_calendar import calendar_of
from merganser.codec.parquet import leaf_count, marked_schema
from merganser.codec.parquet_footer import parsed, read_footer, with_raw_int96
from merganser.codec.physical import SHREDDED, decoding, is_shredded
from merganser.errors import FormatError, InvalidInputError, UnsupportedError

_BATCH_ROWS: Final = 131_072
_BUFFER_BYTES: Final = 1024 * 1024
_PER_SECOND: Final = {"us": 1_000_000, "ns": 1_000_000_000}


class ParquetRows:
    """A Parquet file open for reading.

    Attributes:
        schema: its columns. Times that are stored as INT96 are nanoseconds here, and in a batch perhaps microseconds.
        group_rows: rows of each row group.
        group_bytes: bytes of the pages of each row group, before compression.
    """

    def __init__(self, file: pa.NativeFile, path: str) -> None:
        """Read the footer; the file stays the caller's.

        Raises:
            FormatError: the file is no Parquet file, or its footer is damaged.
            UnsupportedError: a column is a shredded VARIANT.
        """
        self._path = path
        self._file = file
        with decoding(path):
            self._footer = read_footer(file)
            metadata = parsed(self._footer)
            self._plain = self._opened(metadata)
            self.schema = marked_schema(self._plain.schema_arrow, metadata)
            found = {column.name: column.type for column in self._plain.schema_arrow}
            self._uuids = [c.name for c in self.schema if isinstance(c.type, pa.UuidType) and c.type != found[c.name]]
            self._calendar = calendar_of(metadata.metadata or {})
            groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
            self.group_rows = tuple(group.num_rows for group in groups)
            self.group_bytes = tuple(group.total_byte_size for group in groups)
            self._spans = _leaf_spans(self.schema)
            leaves = [self._plain.schema.column(leaf).physical_type for leaf in range(metadata.num_columns)]
            self._int96 = [i for i, span in enumerate(self._spans) if "INT96" in leaves[span.start : span.stop]]
            self._leaves = [leaf for i, span in enumerate(self._spans) if i not in self._int96 for leaf in span]

        for column in self.schema:
            if is_shredded(column.type):
                why = SHREDDED.format(still_true="Nothing was written.")
                raise UnsupportedError(
                    f"cannot read the rows of '{path}': column '{column.name}' {why}", path=path, column=column.name
                )

    def tables(self, groups: tuple[int, int] | None) -> Iterator[pa.Table]:
        """Yield the rows of row groups in order, in batches.

        Args:
            groups: the first row group and the one behind the last; None: all.

        Raises:
            FormatError: the bytes are damaged.
            InvalidInputError: an INT96 time needs more than 64 bits.
            UnsupportedError: a column holds intervals, or times of a zone that is not told.
        """
        for column in self.schema:
            if pa.types.is_interval(column.type) or pa.types.is_duration(column.type):
                raise UnsupportedError(
                    f"cannot read the rows of '{self._path}': column '{column.name}' holds intervals, which no column "
                    "of a table does. Nothing was written. Write the file again with numbers in place of intervals.",
                    path=self._path,
                    column=column.name,
                )
        for group in range(*groups) if groups else range(len(self.group_rows)):
            with decoding(self._path):
                times = self._times(group) if self._int96 else None
                batches = self._batches(group)
            start, rows = 0, self.group_rows[group]
            while start < rows:
                with decoding(self._path):
                    part = self._part(batches, times, start)
                if part is None or not part.num_rows:
                    raise FormatError(
                        f"cannot read '{self._path}': row group {group} has {start} rows, and the footer says {rows}",
                        path=self._path,
                    )
                yield part
                start += part.num_rows

    def _part(self, batches: Iterator[pa.RecordBatch], times: pa.Table | None, start: int) -> pa.Table | None:
        """Return the next rows of a row group, the first of which is at `start`; None: there are no more."""
        if times is not None and len(self._int96) == len(self.schema):
            rest, found = None, times.slice(start, _BATCH_ROWS)
        else:
            batch = next(batches, None)
            if batch is None:
                return None
            rest = self._meant(self._with_uuids(pa.Table.from_batches([batch]).replace_schema_metadata(None)))
            if times is None:
                return rest
            found = times.slice(start, rest.num_rows)
        columns: list[pa.ChunkedArray] = []
        for i, column in enumerate(self.schema):
            if i in self._int96:
                columns.append(_moments(found.column(self._int96.index(i)), column, self._path))
            elif rest is not None:
                columns.append(rest.column(i - sum(1 for at in self._int96 if at < i)))
        return pa.table(columns, names=self.schema.names)

    def _batches(self, group: int) -> Iterator[pa.RecordBatch]:
        if len(self._int96) == len(self.schema) and len(self.schema):
            return iter(())
        return self._plain.reader.iter_batches(  # type: ignore[no-any-return]
            _BATCH_ROWS, [group], column_indices=self._leaves, use_threads=False
        )

    def _with_uuids(self, table: pa.Table) -> pa.Table:
        """Return columns with UUIDs as such, which older versions of the library hand out as bytes."""
        for name in self._uuids:
            uuids = [pa.ExtensionArray.from_storage(pa.uuid(), chunk) for chunk in table.column(name).chunks]
            table = table.set_column(table.column_names.index(name), name, pa.chunked_array(uuids, pa.uuid()))
        return table

    def _meant(self, table: pa.Table) -> pa.Table:
        """Return columns with dates and times of the old calendar as they are meant."""
        if self._calendar is None:
            return table
        columns = [
            self._calendar.rebased(column, name=name, path=self._path)
            for name, column in zip(table.column_names, table.columns, strict=True)
        ]
        return pa.Table.from_arrays(columns, schema=table.schema)

    def _times(self, group: int) -> pa.Table:
        """Return the columns with INT96 times of a row group, as they are stored."""
        raw = self._opened(with_raw_int96(self._footer))
        leaves = [leaf for i in self._int96 for leaf in self._spans[i]]
        return self._meant(raw.reader.read_row_groups([group], column_indices=leaves, use_threads=False))

    def _opened(self, metadata: pq.FileMetaData) -> pq.ParquetFile:
        # A store that answers requests is asked for all columns of a row group at once; a disk, for some pages.
        local = isinstance(self._file, pa.OSFile | pa.BufferReader)
        return pq.ParquetFile(
            self._file,
            metadata=metadata,
            page_checksum_verification=True,
            pre_buffer=not local,
            buffer_size=_BUFFER_BYTES if local else 0,
        )


def _leaf_spans(schema: pa.Schema) -> list[range]:
    """Return where the leaves of each column lie among all: names will not do, since they may hold dots."""
    spans, start = [], 0
    for column in schema:
        end = start + leaf_count(column.type)
        spans.append(range(start, end))
        start = end
    return spans


class _TooFarError(Exception):
    """Times do not fit 64 bits of nanoseconds."""


def _moments(values: pa.ChunkedArray, column: pa.Field, path: str) -> pa.ChunkedArray:
    """Return stored INT96 values of a column, at any depth, as times."""
    for unit in ("ns", "us"):
        try:
            chunks = [_as_times(chunk, column.type, unit) for chunk in values.chunks]
        except _TooFarError:
            continue
        return pa.chunked_array(chunks, type=chunks[0].type if chunks else column.type)
    raise InvalidInputError(
        f"cannot read the rows of '{path}': column '{column.name}' has times outside the years 1677 to 2262 with parts "
        "of microseconds, which no column holds. Nothing was written.",
        path=path,
        column=column.name,
    )


def _as_times(array: pa.Array, kind: pa.DataType, unit: str) -> pa.Array:
    """Return an array with its INT96 values as times of a unit.

    Raises:
        _TooFarError: they do not fit.
    """
    mask = array.is_null() if array.null_count else None
    if pa.types.is_timestamp(kind) and array.type == pa.binary(INT96_BYTES):
        counts, fits = int96_counts(array, _PER_SECOND[unit])
        if not fits or (unit != "ns" and has_nanos(array)):
            raise _TooFarError
        absent = None if mask is None else np.asarray(mask)
        return pa.array(counts, mask=absent).view(pa.timestamp(unit, kind.tz))
    if pa.types.is_struct(kind):
        parts = [_as_times(part, column.type, unit) for part, column in zip(array.flatten(), kind, strict=True)]
        fields = [column.with_type(part.type) for part, column in zip(parts, kind, strict=True)]
        return pa.StructArray.from_arrays(parts, fields=fields, mask=mask)
    if pa.types.is_map(kind):
        array = array.take(pa.array(np.arange(len(array))))  # from offset 0, and nothing under nulls
        keys, items = _as_times(array.keys, kind.key_type, unit), _as_times(array.items, kind.item_type, unit)
        starts = pa.array(np.asarray(array.offsets), mask=None if mask is None else np.append(np.asarray(mask), False))
        return pa.MapArray.from_arrays(starts, keys, items)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        lengths = np.asarray(pc.fill_null(pc.list_value_length(array), 0))
        offsets = pa.array(np.concatenate(([0], np.cumsum(lengths))).astype(np.int32))
        inner = _as_times(array.flatten(), kind.value_type, unit)
        whole = pa.list_(kind.value_field.with_type(inner.type))
        return pa.ListArray.from_arrays(offsets, inner, type=whole, mask=mask)
    return array

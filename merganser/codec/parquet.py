"""Parquet data files, over pyarrow.

Written: zstd pages with checksums and a page index, statistics for every column, field ids on every level,
decimals as integers where they fit, nanosecond timestamps as INT64, lists as `list.element`, maps as
`key_value`, no Arrow schema in the footer. Encodings are chosen from the first rows of the file: dictionaries
where values repeat, deltas for integers and decimals that lie close together, plain for the rest. Columns that
do not get smaller by compression are stored without it.

Read: any layout of any writer (`codec.physical`). A column costs only its own bytes; opening costs one read of
the footer. Checksums are verified where the writer left them, which the reference writer and ours do, so a
flipped bit inside a page is found. The footer has no checksum in this format; manifests note one of ours.

INT96 timestamps, which pyarrow misreads in some years, go through `codec.int96`.

Format: section "Parquet mapping"; field ids of containers: section "field ids".
"""

from __future__ import annotations

import inspect
import json
import struct
from collections.abc import Callable, Collection, Iterator, Sequence
from decimal import Context, Decimal
from typing import IO, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from merganser.codec import group_bounds
from merganser.codec.old_calendar import TIMES_END, calendar_of, holds_times
from merganser.codec.parquet_footer import Chunks, check_footer, has_checksum, parsed, read_footer, with_raw_int96
from merganser.codec.parquet_pages import Kept, is_alike
from merganser.codec.parquet_where import read_where, undamaged_leaves
from merganser.codec.physical import decoding, exact_table, unit_factor
from merganser.codec.row_groups import RowGroups, WriteFormat, schema_with_ids
from merganser.codec.stored import arrow_to_stored
from merganser.errors import FormatError, InvalidInputError, InvariantError, UnsupportedError
from merganser.schema import types as t
from merganser.schema.arrow import arrow_type, fields_from_arrow, timestamp_unit

DELTA_INTEGERS: Final = True
"""Whether integers that lie close together are written as DELTA_BINARY_PACKED.

A tenth smaller, and faster both ways. pyarrow 19, parquet-rs and the vectorised reader of the reference
implementation decode it; the column reader of its release 0.9 knows plain and dictionary pages only.
"""

_FIELD_ID: Final = "PARQUET:field_id"
_ALL_ZERO: Final = "merganser.all-zero"
"""Pair of the footer whose value names a column that is 0 in every row; a flipped bit makes it name none."""
_SPARK_SCHEMA: Final = b"org.apache.spark.sql.parquet.row.metadata"
_NOTES_OF: Final = "merganser.file"
"""Pair of the footer that says of which file the other pairs are."""

_SAMPLE_ROWS: Final = 4_096
_SAMPLED_MIN: Final = 512
"""Of fewer rows, what an encoding saves is little beside what it takes to find out."""
_PAGE_BYTES: Final = 1024 * 1024
_BATCH_ROWS: Final = 1024
_PART_ROWS: Final = 256
_HEADER_BYTES: Final = 32
"""Bytes that are sure to hold the header of a page up to its checksum."""

_COMPRESSION_SAMPLE_ROWS: Final = 4_096
_COMPRESSED_MAX: Final = 0.95
"""Share of its bytes that compression has to leave of a column at most: else it costs time both ways for nothing."""

_DELTA_RANGE_MAX: Final = 1 << 48
"""Widest range of values for which packed deltas are sure to be smaller than plain 64-bit integers."""

_CODECS: Final = {
    "zstd": "zstd",
    "snappy": "snappy",
    "lz4": "lz4",
    "gzip": "gzip",
    "none": "none",
    "uncompressed": "none",
}
_CODECS_OF_SPARK: Final = frozenset({"UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD"})
_ENCODINGS_OF_SPARK: Final = frozenset(
    {"PLAIN", "RLE", "BIT_PACKED", "PLAIN_DICTIONARY", "RLE_DICTIONARY", "DELTA_BINARY_PACKED",
     "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"}
)  # fmt: skip
_OPTIONAL_ARGUMENTS: Final = frozenset(inspect.signature(pq.ParquetWriter.__init__).parameters)
_PHYSICAL_TYPES: Final = (
    "BOOLEAN",
    "INT32",
    "INT64",
    "INT96",
    "FLOAT",
    "DOUBLE",
    "BYTE_ARRAY",
    "FIXED_LEN_BYTE_ARRAY",
)
"""Physical types by the number that stands for them in a footer."""

_UNPACKED: Final[dict[int, Callable[[bytes], Any]]] = {
    0: lambda raw: struct.unpack("<?", raw)[0],
    1: lambda raw: struct.unpack("<i", raw)[0],
    2: lambda raw: struct.unpack("<q", raw)[0],
    6: bytes,
    7: bytes,
}
_WIDE: Final = Context(prec=60)
_INTEGER_DIGITS_MAX: Final = 18
"""Digits of the widest decimals that are stored as integers."""


class ParquetFileReader:
    """A Parquet file open for reading; see `codec.data_format.FileReader`."""

    def __init__(self, file: pa.NativeFile | IO[bytes], path: str, checksum: int | None = None) -> None:
        """Read the footer.

        Args:
            checksum: the CRC-32 of the footer; None: not noted.

        Raises:
            FormatError: the file is no Parquet file, or its footer is damaged.
        """
        self._path = path
        self._file = file if isinstance(file, pa.NativeFile) else pa.PythonFile(file, "r")
        self._raw: pq.ParquetFile | None = None
        self._paged: pq.ParquetFile | None = None
        with decoding(path):
            self._footer = read_footer(self._file)
            check_footer(self._footer, checksum, path)
            metadata = parsed(self._footer)
            self._chunks = Chunks(self._footer, metadata, whole=checksum is not None)
            self._parquet = _opened(self._file, metadata)
            self._schema: pa.Schema = self._parquet.schema_arrow
            self._metadata = metadata
            pairs = metadata.metadata or {}
            # Libraries hand the pairs of a footer on: a copy of them may lie in a file of other rows.
            self._calendar = calendar_of(pairs)
            self._notes = pairs if pairs.get(_NOTES_OF.encode()) == path.rsplit("/", 1)[-1].encode() else {}
            self.column_names: tuple[str, ...] = tuple(self._schema.names)
            self.row_count: int = metadata.num_rows
            self.group_rows: tuple[int, ...] = tuple(
                metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)
            )
            self._leaves = self._leaf_spans()
        if sum(self.group_rows) != self.row_count or min(self.group_rows, default=0) < 0:
            raise FormatError(
                f"cannot read '{path}': the row groups have {sum(self.group_rows)} rows, "
                f"and the footer says {self.row_count}",
                path=path,
            )

    def own_schema(self) -> pa.Schema:
        """Return the columns as the file says them; see `FileReader.own_schema`.

        INT96 times are nanoseconds, unless Spark wrote them, whose times are microseconds.
        """
        with decoding(self._path):
            marked = marked_schema(self._schema, self._metadata)
            if _SPARK_SCHEMA in (self._metadata.metadata or {}):
                return marked
            physical = [self._parquet.schema.column(leaf).physical_type for leaf in range(self._metadata.num_columns)]
            return pa.schema(
                column.with_type(_finest(column.type)) if "INT96" in [physical[leaf] for leaf in span] else column
                for column, span in zip(marked, self._leaves.values(), strict=True)
            )

    def read(self, groups: Sequence[int] | None, columns: Sequence[t.Field]) -> pa.Table:
        """Return columns of some row groups; see `FileReader.read`."""
        chosen = list(range(len(self.group_rows)) if groups is None else groups)
        rows = sum(self.group_rows[i] for i in chosen)
        with decoding(self._path):
            int96 = self._int96_columns([f for f in columns if _holds_timestamp(f.type)])
            plain = [f for f in columns if f not in int96] if int96 else columns
            leaves = [leaf for field in plain for leaf in self._span(field)]
            try:
                table = self._parquet.reader.read_row_groups(chosen, column_indices=leaves, use_threads=False)
            except pa.ArrowNotImplementedError:  # Arrow's limit, if a row group has 2 GiB of texts inside of rows
                table = pa.Table.from_batches(self._batches(chosen, leaves, _PART_ROWS))
            held = {field.name: table.column(field.name) for field in plain}
            if int96:
                raw = self._read_int96(int96, chosen)
                held.update((field.name, raw.column(field.name)) for field in int96)
            found = [self._meant(held[f.name], f) for f in columns]
            return exact_table(found, columns, rows=rows, path=self._path)

    def parts(self, group: int, columns: Sequence[t.Field], rows: int) -> Iterator[pa.Table]:
        """Yield the rows of a row group in parts; see `FileReader.parts`."""
        with decoding(self._path):
            if self._int96_columns([f for f in columns if _holds_timestamp(f.type)]):
                yield self.read([group], columns)
                return
            leaves = [leaf for field in columns for leaf in self._span(field)]
            batches = self._batches([group], leaves, rows)
        while True:
            with decoding(self._path):
                batch = next(batches, None)
                if batch is None:
                    return
                part = pa.Table.from_batches([batch])
                held = [self._meant(part.column(field.name), field) for field in columns]
                found = exact_table(held, columns, rows=part.num_rows, path=self._path)
            yield found

    def _batches(self, groups: Sequence[int], leaves: Sequence[int], rows: int) -> Iterator[pa.RecordBatch]:
        if self._paged is None:
            self._paged = _opened(self._file, self._metadata, page_by_page=True)
        return self._paged.reader.iter_batches(  # type: ignore[no-any-return]
            rows, groups, column_indices=leaves, use_threads=False
        )

    def read_where(self, groups: range, columns: Sequence[t.Field], kept: Kept) -> pa.Table | None:
        """Return rows of some neighbouring groups for which a condition is true; see `FileReader.read_where`."""
        if not columns or not isinstance(self._file, pa.OSFile) or self._calendar is not None:
            return None
        return read_where(self._path, self._metadata, self._chunks, groups, columns, kept)

    def group_bytes(self, group: int, columns: Sequence[t.Field]) -> int:
        """Return the size of the pages of a row group; see `FileReader.group_bytes`."""
        with decoding(self._path):
            leaves = [leaf for field in columns for leaf in self._span(field)]
            return sum(self._chunks.of(group, leaf).total_uncompressed_size for leaf in leaves)

    def group_bounds(self, field: t.Field) -> tuple[list[Any], list[Any], list[int | None]] | None:
        """Return smallest and largest value and null count per row group; see `FileReader.group_bounds`."""
        span = self._leaves.get(field.name)
        if span is None or len(span) != 1 or t.is_nested(field.type):
            return None
        with decoding(self._path):
            noted = group_bounds.decode(self._notes, field, len(self.group_rows))
            if noted is not None:
                return *noted, [None] * len(self.group_rows)
            chunks = self._chunks.statistics(field.name, span[0])
            physical_type = _PHYSICAL_TYPES.index(self._parquet.schema.column(span[0]).physical_type)
            if any(chunk.physical_type != physical_type for chunk in chunks):
                raise ValueError(f"column '{field.name}' has other physical types in its row groups than in the schema")
            stored = _stored_value(field.type, self._schema.field(field.name).type, physical_type)
            lows, highs = (
                [stored(raw) for raw in ends] for ends in ([c.low for c in chunks], [c.high for c in chunks])
            )
            lows, highs = self._meant_bounds(field.type, lows, highs)
            return lows, highs, [chunk.null_count for chunk in chunks]

    def all_zero(self, column: str) -> bool:
        """Return whether the footer notes that a column is 0 in every row; see `FileReader.all_zero`."""
        return self._notes.get(_ALL_ZERO.encode()) == column.encode()

    @property
    def is_folded(self) -> bool:
        """Whether a writer made it that is known to store one version of a key."""
        return bool(self._notes) or str(self._metadata.created_by or "").startswith("parquet-mr")

    def is_plain(self, field: t.Field) -> bool:
        """Return whether a column is stored in the type of a field, in a form that engines decode alike.

        Not in files that were read whole, nor with times of an old calendar.
        """
        span = self._leaves.get(field.name)
        if span is None or len(span) != 1 or isinstance(self._file, pa.BufferReader) or self._calendar is not None:
            return False
        kind, physical = self._schema.field(field.name).type, self._parquet.schema.column(span[0]).physical_type
        alike = is_alike(kind, physical) or (physical == "FIXED_LEN_BYTE_ARRAY" and pa.types.is_decimal128(kind))
        return bool(alike and kind == arrow_type(field.type))

    def is_undamaged(self, fields: Sequence[t.Field]) -> bool:
        """Return whether all pages of some columns of a local file are as their checksums say."""
        leaves = [leaf for field in fields for leaf in self._span(field)]
        groups = range(len(self.group_rows))
        return not leaves or not self.row_count or undamaged_leaves(self._path, self._chunks, groups, leaves)

    def spark_decodes(self, fields: Sequence[t.Field]) -> bool:
        """Return whether Spark decodes all pages of some columns: it lacks codecs and encodings that Arrow has."""
        leaves = [leaf for field in fields for leaf in self._span(field)]
        for group in range(len(self.group_rows)):
            columns = self._metadata.row_group(group)
            for leaf in leaves:
                chunk = columns.column(leaf)
                if chunk.compression not in _CODECS_OF_SPARK or not _ENCODINGS_OF_SPARK.issuperset(chunk.encodings):
                    return False
        return True

    def sums_pages(self) -> bool:
        """Return whether the first page of each column of the first row group has one; see `FileReader.sums_pages`."""
        with decoding(self._path):
            for chunk in self._chunks.facts()[0] if self.row_count else ():
                places = (chunk.dictionary_page_offset, chunk.data_page_offset)
                header = self._file.read_at(_HEADER_BYTES, min(place for place in places if place is not None))
                if not has_checksum(header):
                    return False
        return True

    def check_values(self) -> None:
        """Refuse times that cannot be told, or that nanoseconds cannot hold; see `FileReader.check_values`.

        Statistics mostly tell that there are none. Of INT96 values there are no statistics, so they are read.
        """
        told = self._calendar is None or self._calendar.tells_all_times()
        for column, span in zip(self.own_schema(), self._leaves.values(), strict=True):
            if not holds_times(column.type):
                continue
            int96 = any(self._parquet.schema.column(leaf).physical_type == "INT96" for leaf in span)
            if told and not (int96 and column.type == _finest(column.type)):
                continue
            (field,) = fields_from_arrow(pa.schema([column]))
            bounds = None if int96 else self.group_bounds(field)
            for group in range(len(self.group_rows)):
                if bounds is None or bounds[0][group] is None:
                    self._check_group(group, field)

    def _check_group(self, group: int, field: t.Field) -> None:
        try:
            self.read([group], [field])
        except UnsupportedError as error:
            raise UnsupportedError(
                f"{error.message} Where the rows can be read, table.load(...) writes them into a column of type "
                "TIMESTAMP(6), which holds times of all years.",
                path=self._path,
                column=field.name,
            ) from None

    def close(self) -> None:
        """Release the reader and its file."""
        self._parquet.close(force=True)
        for other in (self._raw, self._paged):
            if other is not None:
                other.close(force=True)
        self._file.close()

    def _meant(self, column: pa.ChunkedArray, field: t.Field) -> pa.ChunkedArray:
        if self._calendar is None:
            return column
        return self._calendar.rebased(column, name=field.name, path=self._path)

    def _meant_bounds(self, kind: t.DataType, lows: list[Any], highs: list[Any]) -> tuple[list[Any], list[Any]]:
        """Return bounds of values as they are meant. Of old times there are none: their order may be another one."""
        if self._calendar is None:
            return lows, highs
        if isinstance(kind, t.Date):
            return [self._calendar.rebased_day(day) for day in lows], [self._calendar.rebased_day(day) for day in highs]
        if isinstance(kind, t.Timestamp | t.LocalZonedTimestamp) and self._calendar.instants:
            first = TIMES_END * unit_factor("s", timestamp_unit(kind.precision))[0]
            old = [low is None or low < first for low in lows]
            lows, highs = (
                [None if gone else end for gone, end in zip(old, ends, strict=True)] for ends in (lows, highs)
            )
        return lows, highs

    def _span(self, field: t.Field) -> range:
        try:
            return self._leaves[field.name]
        except KeyError:
            raise FormatError(
                f"cannot read column '{field.name}' of '{self._path}': the file has no such column; it has "
                f"{', '.join(map(repr, self.column_names[:3]))} ({len(self.column_names)} in all)",
                path=self._path,
                column=field.name,
            ) from None

    def _leaf_spans(self) -> dict[str, range]:
        """Return the positions of each top-level column's leaves; names will not do, since they may hold dots."""
        spans: dict[str, range] = {}
        start = 0
        for field in self._schema:
            end = start + leaf_count(field.type)
            spans[field.name] = range(start, end)
            start = end
        if start != self._metadata.num_columns or len(spans) != len(self._schema):
            raise FormatError(
                f"cannot read '{self._path}': its schema has {start} leaves under {len(spans)} names, "
                f"and the footer says {self._metadata.num_columns}",
                path=self._path,
            )
        return spans

    def _int96_columns(self, fields: Sequence[t.Field]) -> list[t.Field]:
        """Return those of `fields` that hold INT96 values at any depth."""
        schema = self._parquet.schema
        return [f for f in fields if any(schema.column(leaf).physical_type == "INT96" for leaf in self._span(f))]

    def _read_int96(self, fields: Sequence[t.Field], groups: list[int]) -> pa.Table:
        if self._raw is None:
            self._raw = _opened(self._file, with_raw_int96(self._footer))
        leaves = [leaf for field in fields for leaf in self._span(field)]
        return self._raw.reader.read_row_groups(groups, column_indices=leaves, use_threads=False)


def marked_schema(schema: pa.Schema, metadata: pq.FileMetaData) -> pa.Schema:
    """Return a schema in which what Spark stored as instants has a zone, and intervals and UUIDs are known as such.

    The library takes Parquet's intervals for bytes, in older versions UUIDs too, and those of Spark are plain numbers.
    """
    text = (metadata.metadata or {}).get(_SPARK_SCHEMA)
    schema = schema.remove_metadata()
    leaf = 0
    for i, column in enumerate(schema):
        leaves = range(leaf, leaf + leaf_count(column.type))
        if any(metadata.schema.column(at).converted_type == "INTERVAL" for at in leaves):
            schema = schema.set(i, column.with_type(pa.month_day_nano_interval()))
        if pa.types.is_fixed_size_binary(column.type) and metadata.schema.column(leaf).logical_type.type == "UUID":
            schema = schema.set(i, column.with_type(pa.uuid()))
        leaf = leaves.stop
    if text is None:
        return schema
    noted = {column["name"]: column["type"] for column in json.loads(text)["fields"]}
    return pa.schema([column.with_type(_marked(column.type, noted.get(column.name))) for column in schema])


def _marked(kind: pa.DataType, noted: Any) -> pa.DataType:
    if noted == "timestamp" and pa.types.is_timestamp(kind):
        return pa.timestamp(kind.unit, "UTC")
    if isinstance(noted, str) and noted.startswith("interval"):
        return pa.duration("us") if pa.types.is_int64(kind) else pa.month_day_nano_interval()
    if not isinstance(noted, dict):
        return kind
    if pa.types.is_map(kind):
        return pa.map_(
            _marked(kind.key_type, noted.get("keyType")),
            kind.item_field.with_type(_marked(kind.item_type, noted.get("valueType"))),
        )
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_marked(kind.value_type, noted.get("elementType"))))
    if pa.types.is_struct(kind):
        inner = {column["name"]: column["type"] for column in noted.get("fields", ())}
        return pa.struct([column.with_type(_marked(column.type, inner.get(column.name))) for column in kind])
    return kind


def _opened(file: pa.NativeFile, metadata: pq.FileMetaData, *, page_by_page: bool = False) -> pq.ParquetFile:
    """Return a reader that fetches the columns of a row group as a whole; or a little at a time, for large ones.

    Of a store that answers requests it asks for all columns at once, by threads of their own. A local file is read by
    the thread that decodes it: handing a few pages from thread to thread costs more than reading them.
    """
    local = isinstance(file, pa.OSFile | pa.BufferReader)
    return pq.ParquetFile(
        file,
        metadata=metadata,
        page_checksum_verification=True,
        coerce_int96_timestamp_unit="us",
        pre_buffer=not (page_by_page or local),
        buffer_size=_PAGE_BYTES if page_by_page else 0,
    )


class ParquetFileWriter:
    """A Parquet file being written; see `codec.data_format.FileWriter`."""

    def __init__(self, sink: pa.NativeFile | IO[bytes], fields: Sequence[t.Field], options: WriteFormat) -> None:
        """Take the sink; nothing is written before the first group is full, because its rows choose the encodings.

        Raises:
            InvalidInputError: an unknown compression.
            UnsupportedError: a type that data files do not hold.
        """
        codec = _CODECS.get(options.compression.lower())
        if codec is None:
            raise InvalidInputError(
                f"cannot write Parquet with compression {options.compression!r}: "
                f"choose one of {', '.join(sorted(_CODECS))}"
            )
        self._sink = sink
        self._fields = tuple(fields)
        self._codec = codec
        self._level = options.zstd_level if codec == "zstd" else None
        self._groups = RowGroups(fields, options)
        self._arguments: dict[str, Any] = {
            "write_statistics": True,
            "write_page_index": True,
            "write_page_checksum": True,
            "store_schema": False,
            "store_decimal_as_integer": True,
        }
        if "write_time_adjusted_to_utc" in _OPTIONAL_ARGUMENTS:
            # Older versions always set the flag, as the reference writer does.
            self._arguments["write_time_adjusted_to_utc"] = True
        self._writer: pq.ParquetWriter | None = None
        self._name = options.file_name
        noted = None if self._name is None else options.sorted_by
        self._sorted_by = next((f for f in fields if f.name == noted and group_bounds.can_note(f.type)), None)
        self._lows: list[pa.Scalar] = []
        self._highs: list[pa.Scalar] = []
        self._zero = None if self._name is None else options.often_zero

    def write(self, table: pa.Table) -> None:
        """Append rows; see `FileWriter.write`."""
        for group in self._groups.add(table):
            self._write_group(group)

    def close(self) -> None:
        """Write the last row group and the footer; the sink stays open."""
        rest = self._groups.rest()
        if rest is not None:
            self._write_group(rest)
        writer = self._writer or self._open(None)
        notes = self._notes()
        if self._name is not None:
            writer.add_key_value_metadata(notes | {_NOTES_OF: self._name})
        writer.close()

    def abort(self) -> None:
        """Drop what is buffered; see `FileWriter.abort`."""
        self._groups.rest()
        if self._writer is not None:
            # Otherwise the object would write, and complain, when it is collected.
            self._writer.is_open = False

    def _notes(self) -> dict[str, str]:
        notes = {}
        if self._sorted_by is not None and len(self._lows) > 1:  # the manifest knows the bounds of a whole file
            kind = self._sorted_by.type
            lows, highs = ([arrow_to_stored(end, kind) for end in ends] for ends in (self._lows, self._highs))
            bounds = group_bounds.encode(self._sorted_by.name, kind, lows, highs)
            if bounds is not None:
                notes[group_bounds.KEY] = bounds
        if self._zero is not None:
            notes[_ALL_ZERO] = self._zero
        return notes

    def _write_group(self, group: pa.Table) -> None:
        if self._writer is None:
            self._writer = self._open(group)
        try:
            self._writer.write_table(group, row_group_size=group.num_rows)
        except pa.ArrowInvalid as error:
            raise InvariantError(f"cannot write {group.num_rows} rows to a Parquet file: {error}") from error
        if self._zero is not None and any(chunk.to_numpy().any() for chunk in group.column(self._zero).chunks):
            self._zero = None
        if self._sorted_by is not None:
            column = group.column(self._sorted_by.name)
            self._lows.append(column[0])
            self._highs.append(column[-1])

    def _open(self, first: pa.Table | None) -> pq.ParquetWriter:
        dictionaries, deltas = _encodings(self._fields, first)
        width = first.nbytes // max(1, first.num_rows) if first is not None else 0
        arguments: dict[str, Any] = self._arguments | {
            "schema": schema_with_ids(self._fields, _FIELD_ID),
            "use_dictionary": dictionaries,
            "column_encoding": dict.fromkeys(deltas, "DELTA_BINARY_PACKED"),
            # So often the library looks whether a page is full: too seldom, and wide rows make very large pages.
            "write_batch_size": max(1, min(_BATCH_ROWS, _PAGE_BYTES // max(1, width))),
        }
        everything = {"compression": self._codec, "compression_level": self._level}
        if self._codec == "none" or first is None or first.num_rows < 8 * _COMPRESSION_SAMPLE_ROWS:
            return pq.ParquetWriter(self._sink, **arguments, **everything)
        # The middle of the group: whatever a table begins with, there it is in full swing.
        sample = first.slice((first.num_rows - _COMPRESSION_SAMPLE_ROWS) // 2, _COMPRESSION_SAMPLE_ROWS)
        tried = pa.BufferOutputStream()
        with pq.ParquetWriter(tried, **arguments, **everything) as writer:
            writer.write_table(sample)
        smaller = _made_smaller(pq.read_metadata(pa.BufferReader(tried.getvalue())), dictionaries)
        levels = None if self._level is None else dict.fromkeys(smaller, self._level)
        return pq.ParquetWriter(
            self._sink, **arguments, compression=dict.fromkeys(smaller, self._codec), compression_level=levels
        )


def _made_smaller(metadata: pq.FileMetaData, dictionaries: Collection[str]) -> list[str]:
    """Return the paths of leaves that compression makes smaller, by a file of a sample; all with dictionaries too.

    A sample does not tell of those: its dictionary is as large as that of the whole group.
    """
    group = metadata.row_group(0)
    chunks = [group.column(i) for i in range(group.num_columns)]
    return [
        chunk.path_in_schema
        for chunk in chunks
        if chunk.path_in_schema in dictionaries
        or chunk.total_compressed_size <= _COMPRESSED_MAX * chunk.total_uncompressed_size
    ]


def _encodings(fields: Sequence[t.Field], first: pa.Table | None) -> tuple[list[str], list[str]]:
    """Return the paths of leaves to write with dictionaries, and those to write as packed deltas.

    A dictionary on values that hardly repeat is work for nothing: it is filled, given up, and plain pages
    follow. So the first group is sampled, evenly, since neighbours are alike in sorted rows.
    """
    dictionaries: list[str] = []
    deltas: list[str] = []
    sample = None
    if first is not None and first.num_rows >= _SAMPLED_MIN:
        sample = first.take(np.arange(0, first.num_rows, max(1, first.num_rows // _SAMPLE_ROWS)))
    for position, field in enumerate(fields):
        if t.is_nested(field.type):
            dictionaries.extend(_text_leaves(field.type, field.name))
        elif sample is not None and not isinstance(field.type, t.Boolean):
            values = sample.column(position).combine_chunks()
            count = len(values) - values.null_count
            text = isinstance(field.type, t.Char | t.VarChar | t.Binary | t.VarBinary)
            if _distinct_within(values, count // (2 if text else 16)):
                dictionaries.append(field.name)
            elif DELTA_INTEGERS and count and _close_together(values):
                deltas.append(field.name)
    return dictionaries, deltas


def _distinct_within(values: pa.Array, most: int) -> bool:
    """Return whether values that are not null have so many different ones at most."""
    few = 2 * most + 1
    if few < len(values) and pc.count_distinct(values.slice(0, few)).as_py() > most:
        return False  # a part says it for all, at a fraction of the cost
    return bool(pc.count_distinct(values).as_py() <= most)


def _close_together(values: pa.Array) -> bool:
    kind = values.type
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        values = values.view(pa.int32())
    elif pa.types.is_timestamp(kind):
        values = values.view(pa.int64())
    elif pa.types.is_decimal(kind):
        if kind.precision > _INTEGER_DIGITS_MAX:
            return False
    elif not pa.types.is_integer(kind):
        return False
    ends = pc.min_max(values).as_py()
    distance = ends["max"] - ends["min"]
    return bool((distance.scaleb(kind.scale, _WIDE) if isinstance(distance, Decimal) else distance) < _DELTA_RANGE_MAX)


def _text_leaves(kind: t.DataType, path: str) -> Iterator[str]:
    match kind:
        case t.Char() | t.VarChar():
            yield path
        case t.Array(element=element):
            yield from _text_leaves(element, f"{path}.list.element")
        case t.Multiset(element=element):
            yield from _text_leaves(element, f"{path}.key_value.key")
        case t.Map(key=key, value=value):
            yield from _text_leaves(key, f"{path}.key_value.key")
            yield from _text_leaves(value, f"{path}.key_value.value")
        case t.Row(fields=fields):
            for field in fields:
                yield from _text_leaves(field.type, f"{path}.{field.name}")


def _finest(kind: pa.DataType) -> pa.DataType:
    """Return a type with all times in it in nanoseconds."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp("ns", kind.tz)
    if pa.types.is_map(kind):
        return pa.map_(_finest(kind.key_type), kind.item_field.with_type(_finest(kind.item_type)))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_finest(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([column.with_type(_finest(column.type)) for column in kind])
    return kind


def leaf_count(kind: pa.DataType) -> int:
    """Return how many columns of values a column of this type is stored as."""
    if isinstance(kind, pa.BaseExtensionType):
        return leaf_count(kind.storage_type)
    if pa.types.is_map(kind):
        return leaf_count(kind.key_type) + leaf_count(kind.item_type)
    if pa.types.is_struct(kind):
        return sum(leaf_count(kind.field(i).type) for i in range(kind.num_fields))
    if isinstance(kind, pa.ListType | pa.LargeListType | pa.FixedSizeListType | pa.ListViewType | pa.LargeListViewType):
        return leaf_count(kind.value_type)
    return 1


def _holds_timestamp(kind: t.DataType) -> bool:
    match kind:
        case t.Timestamp() | t.LocalZonedTimestamp():
            return True
        case t.Array(element=element) | t.Multiset(element=element):
            return _holds_timestamp(element)
        case t.Map(key=key, value=value):
            return _holds_timestamp(key) or _holds_timestamp(value)
        case t.Row(fields=fields):
            return any(_holds_timestamp(f.type) for f in fields)
    return False


def _stored_value(kind: t.DataType, held: pa.DataType, physical_type: int) -> Callable[[bytes | None], Any]:
    """Return how the statistics of a column held as `held` become bounds of `kind`; None for none."""
    unpacked = _UNPACKED.get(physical_type)
    converted = _converted(kind, held)
    if unpacked is None or converted is None:
        return lambda _: None
    return lambda raw: None if raw is None else converted(unpacked(raw))


def _converted(kind: t.DataType, held: pa.DataType) -> Callable[[Any], Any] | None:
    is_ = pa.types
    match kind:
        case t.Boolean() if is_.is_boolean(held):
            return bool
        case t.TinyInt() | t.SmallInt() | t.Int() | t.BigInt() if is_.is_signed_integer(held):
            return int
        case t.Date() if is_.is_date32(held):
            return int
        case t.Time() if is_.is_time(held):
            return _scaled(held.unit, "ms")
        case t.Timestamp(precision=precision) | t.LocalZonedTimestamp(precision=precision) if is_.is_timestamp(held):
            return _scaled(held.unit, timestamp_unit(precision))
        case t.Decimal(scale=scale) if is_.is_decimal(held) and held.scale == scale:
            return lambda raw: _decimal(raw, scale)
        case t.Char() | t.VarChar() if is_.is_string(held):
            return _text
        case t.Binary() | t.VarBinary() if is_.is_binary(held) or is_.is_fixed_size_binary(held):
            return bytes
    # FLOAT and DOUBLE among them: writers leave NaN out, which is the largest value of a table.
    return None


def _scaled(source: str, target: str) -> Callable[[int], int]:
    multiplier, divisor = unit_factor(source, target)
    return lambda raw: raw * multiplier // divisor


def _decimal(raw: int | bytes, scale: int) -> Decimal:
    number = raw if isinstance(raw, int) else int.from_bytes(raw, "big", signed=True)
    return Decimal(number).scaleb(-scale, _WIDE)


def _text(raw: bytes) -> str | None:
    """Return text, or None where a writer cut a bound inside a character."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None

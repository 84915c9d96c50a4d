"""ORC data files, over pyarrow.

Written: one stripe per group (groups that do not fill a 64 KiB block of compression share one), zstd, field
ids as the attribute `paimon.id`, TIME as int, TIMESTAMP as TIMESTAMP, LTZ as TIMESTAMP_INSTANT. Read: a stripe
at a time, only the columns asked for.

pyarrow returns every ORC timestamp in nanoseconds, and its older versions silently wrap values outside the years 1677
to 2262. So the reader first checks the statistics of the file, and both reader and writer refuse such values. ORC has
no checksums. Whoever opens a file verifies the one that a manifest notes; without it a flipped bit is found only if it
breaks the structure. Up to pyarrow 23 at least, the ORC library may even end the process on a damaged stripe footer; 26
does not.

The number of rows per stripe is in the footer only, which is a protocol buffer; `_messages` reads just enough::

    file tail  2: footer
    footer     3: stripe (repeated)   4: type (repeated)   7: column statistics (repeated, in the order of types)
    stripe     5: number of rows
    type       1: kind   2: ids of parts (packed)   5: precision   6: scale
    statistics 9: timestamps  ->  1: min, 2: max, 3: min in UTC, 4: max in UTC; zigzag milliseconds

Format: section "Avro and ORC data files".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import IO, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import orc

from merganser.codec.parquet_pages import Kept
from merganser.codec.physical import decoding, exact_table
from merganser.codec.row_groups import RowGroups, WriteFormat, schema_with_ids
from merganser.errors import FormatError, InvalidInputError, InvariantError, UnsupportedError
from merganser.schema import types as t
from merganser.schema.cast_values import items_of

_FIELD_ID: Final = "paimon.id"
_CODECS: Final = {
    "zstd": "zstd",
    "snappy": "snappy",
    "lz4": "lz4",
    "gzip": "zlib",
    "zlib": "zlib",
    "none": "uncompressed",
    "uncompressed": "uncompressed",
}
_DECIMAL: Final = 14
_CHAR: Final = 17
_PRECISION_MAX: Final = 38
_NANOS_MAX: Final = (1 << 63) - 1
_MILLIS_MAX: Final = _NANOS_MAX // 1_000_000
_PER_SECOND: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


class OrcFileReader:
    """An ORC file open for reading; see `codec.data_format.FileReader`."""

    def __init__(self, file: pa.NativeFile | IO[bytes], path: str) -> None:
        """Read the footer.

        Raises:
            FormatError: the file is no ORC file, or its footer is damaged.
        """
        self._path = path
        self._file = file
        with decoding(path):
            self._orc = orc.ORCFile(file)
            footer = _first(self._orc.reader.serialized_file_tail(), 2)
            _check_decimals(footer)
            self.column_names: tuple[str, ...] = tuple(self._orc.schema.names)
            self.row_count: int = self._orc.nrows
            self.group_rows: tuple[int, ...] = tuple(_number(stripe, 5) for stripe in _messages(footer, 3))
            self._far_timestamps = _columns_with_far_timestamps(footer, self.column_names)
            self._padded = _padded_columns(footer, self.column_names)
        if sum(self.group_rows) != self.row_count or len(self.group_rows) != self._orc.nstripes:
            raise FormatError(
                f"cannot read '{path}': the {self._orc.nstripes} stripes have {self.group_rows[:3]} ... rows, "
                f"and the footer says {self.row_count}",
                path=path,
            )

    def own_schema(self) -> pa.Schema:
        """Return the columns as the file says them; see `FileReader.own_schema`. Times are nanoseconds."""
        with decoding(self._path):
            return self._orc.schema.remove_metadata()

    def read(self, groups: Sequence[int] | None, columns: Sequence[t.Field]) -> pa.Table:
        """Return columns of some stripes; see `FileReader.read`."""
        for field in columns:
            self._check(field)
        chosen = range(len(self.group_rows)) if groups is None else list(groups)
        rows = sum(self.group_rows[i] for i in chosen)
        names = [field.name for field in columns]
        with decoding(self._path):
            stripes = [self._orc.reader.read_stripe(i, names) for i in chosen] if names else []
            read = [self._column(stripes, name) for name in names]
            table = exact_table(read, columns, rows=rows, path=self._path)
            # Without a checksum nothing else stops text that is not UTF-8, and readers of the result trust it.
            table.validate(full=True)
            return table

    def parts(self, group: int, columns: Sequence[t.Field], rows: int) -> Iterator[pa.Table]:
        """Yield a stripe whole; see `FileReader.parts`."""
        yield self.read([group], columns)

    def read_where(self, groups: range, columns: Sequence[t.Field], kept: Kept) -> pa.Table | None:
        """Return None: this format decodes no rows by themselves; see `FileReader.read_where`."""
        return None

    def group_bytes(self, group: int, columns: Sequence[t.Field]) -> None:
        """Return None: a stripe does not tell."""

    def group_bounds(self, field: t.Field) -> None:
        """Return None: pyarrow does not hand out the statistics of stripes."""

    def all_zero(self, column: str) -> bool:
        """Return False: the library has no place for notes; see `FileReader.all_zero`."""
        return False

    def sums_pages(self) -> bool:
        """Return False: the format has no checksums; see `FileReader.sums_pages`."""
        return False

    def close(self) -> None:
        """Release the reader and its file."""
        self._file.close()

    def _column(self, stripes: Sequence[pa.RecordBatch], name: str) -> pa.ChunkedArray:
        chunks = [stripe.column(stripe.schema.get_field_index(name)) for stripe in stripes]
        if name in self._padded:
            chunks = [pc.utf8_rtrim(chunk, " ") for chunk in chunks]
        return pa.chunked_array(chunks, type=None if chunks else self._orc.schema.field(name).type)

    def _check(self, field: t.Field) -> None:
        if self.column_names.count(field.name) != 1:
            raise FormatError(
                f"cannot read column '{field.name}' of '{self._path}': the file has no such column; it has "
                f"{', '.join(map(repr, self.column_names[:3]))} ({len(self.column_names)} in all)",
                path=self._path,
                column=field.name,
            )
        if field.name in self._far_timestamps:
            raise UnsupportedError(
                f"cannot read column '{field.name}' of '{self._path}': it holds a timestamp outside the years 1677 to "
                "2262, which the ORC library cannot hand out. Store the table as Parquet.",
                path=self._path,
                column=field.name,
            )


class OrcFileWriter:
    """An ORC file being written; see `codec.data_format.FileWriter`."""

    def __init__(self, sink: pa.NativeFile | IO[bytes], fields: Sequence[t.Field], options: WriteFormat) -> None:
        """Take the sink.

        Raises:
            InvalidInputError: an unknown compression.
            UnsupportedError: a type that data files do not hold.
        """
        codec = _CODECS.get(options.compression.lower())
        if codec is None:
            raise InvalidInputError(
                f"cannot write ORC with compression {options.compression!r}: choose one of {', '.join(sorted(_CODECS))}"
            )
        self._groups = RowGroups(fields, options)
        self._schema = pa.schema([f.with_type(_without_time(f.type)) for f in schema_with_ids(fields, _FIELD_ID)])
        # A stripe ends after the batch that fills it. With the least size every batch does that filled a block, as
        # the library counts no other bytes; and groups are batches.
        self._sink = _LastingSink(sink)
        self._writer = orc.ORCWriter(
            self._sink,
            compression=codec,
            batch_size=options.row_group_rows,
            stripe_size=1,
            dictionary_key_size_threshold=0.5,
        )
        self._empty = True

    def write(self, table: pa.Table) -> None:
        """Append rows; see `FileWriter.write`.

        Raises:
            UnsupportedError: a timestamp outside the years 1677 to 2262, which could not be read back.
        """
        for group in self._groups.add(table):
            self._write_group(group)

    def close(self) -> None:
        """Write the last stripe and the footer; the sink stays open."""
        rest = self._groups.rest()
        if rest is not None:
            self._write_group(rest)
        if self._empty:
            self._writer.write(self._schema.empty_table())
        self._writer.close()
        self._sink.check()

    def abort(self) -> None:
        """Drop what is buffered; see `FileWriter.abort`."""
        self._groups.rest()
        # Otherwise the object would write, and complain, when it is collected.
        self._writer.is_open = False

    def _write_group(self, group: pa.Table) -> None:
        for name, values in zip(group.column_names, group.columns, strict=True):
            if any(beyond_orc(chunk).any() for chunk in values.chunks):
                raise UnsupportedError(
                    f"cannot write column '{name}' as ORC: it holds a timestamp outside the years 1677 to 2262, "
                    "which could not be read back. Store the table as Parquet.",
                    column=name,
                )
        columns = [
            _with_bare_rows(column if column.type.equals(field.type) else column.cast(field.type))
            for column, field in zip(group.combine_chunks().columns, self._schema, strict=True)
        ]
        try:
            self._writer.write(pa.Table.from_arrays(columns, schema=self._schema))
        except pa.ArrowInvalid as error:
            raise InvariantError(f"cannot write {group.num_rows} rows to an ORC file: {error}") from error
        self._sink.check()
        self._empty = False


class _LastingSink:
    """A sink that never fails while the ORC library writes: an error there, as of a full disk, ends the process.

    From the first error on bytes are dropped; `check` raises it once the library has returned.
    """

    closed = False

    def __init__(self, sink: pa.NativeFile | IO[bytes]) -> None:
        self._sink = sink
        self._position = 0
        self._error: OSError | None = None

    def write(self, data: bytes) -> int:
        """Take bytes."""
        if self._error is None:
            try:
                self._sink.write(data)
            except OSError as error:
                self._error = error
        self._position += len(data)
        return len(data)

    def tell(self) -> int:
        """Return how many bytes were taken."""
        return self._position

    def flush(self) -> None:
        """Do nothing: the owner of the sink makes its bytes durable."""

    def close(self) -> None:
        """Do nothing: the sink stays open."""

    def check(self) -> None:
        """Raise the error that the sink had.

        Raises:
            OSError: as the sink raised it.
        """
        if self._error is not None:
            raise self._error


def _without_time(kind: pa.DataType) -> pa.DataType:
    """Return a type with TIME as int, since ORC has no time of day."""
    if pa.types.is_time32(kind):
        return pa.int32()
    if pa.types.is_map(kind):
        key, item = kind.key_field, kind.item_field
        return pa.map_(key.with_type(_without_time(key.type)), item.with_type(_without_time(item.type)))
    if pa.types.is_list(kind):
        element = kind.value_field
        return pa.list_(element.with_type(_without_time(element.type)))
    if pa.types.is_struct(kind):
        parts = [kind.field(i) for i in range(kind.num_fields)]
        return pa.struct([part.with_type(_without_time(part.type)) for part in parts])
    return kind


def _with_bare_rows(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the same values, so laid out that pyarrow's ORC writer writes each ROW as it is.

    The writer, up to pyarrow 26 at least, takes the nulls of a ROW from the start of its memory even if the rows are a
    slice of it. If a ROW in a ROW is null, it writes what lies under the null for the rows after it. So nothing here is
    a slice, and below a null everything is null.
    """
    if not _has_rows(values.type):
        return values
    # of two arrays, so that no version of the library may return the slice itself
    chunks = [pa.concat_arrays([chunk, chunk.slice(0, 0)]) for chunk in values.chunks]
    return pa.chunked_array([_with_nulls_below(chunk) for chunk in chunks], type=values.type)


def _with_nulls_below(values: pa.Array) -> pa.Array:
    """Return an array without an offset, with nulls in all parts of a ROW that is null."""
    kind = values.type
    if not _has_rows(kind):
        return values
    if pa.types.is_struct(kind):
        own, parts = values.buffers()[:1], [_with_nulls_below(part) for part in values.flatten()]
    elif pa.types.is_map(kind):
        pairs = [_with_nulls_below(values.keys), _with_nulls_below(values.items)]
        own, parts = values.buffers()[:2], [pa.StructArray.from_arrays(pairs, fields=[kind.key_field, kind.item_field])]
    else:
        own, parts = values.buffers()[:2], [_with_nulls_below(values.values)]
    return pa.Array.from_buffers(kind, len(values), own, children=parts)


def _has_rows(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind):
        return _has_rows(kind.key_type) or _has_rows(kind.item_type)
    return pa.types.is_struct(kind) or (pa.types.is_list(kind) and _has_rows(kind.value_type))


def beyond_orc(values: pa.Array) -> npt.NDArray[np.bool_]:
    """Return which values of an array ORC files cannot hold: those with a timestamp beyond 64-bit nanoseconds."""
    kind = values.type
    if pa.types.is_timestamp(kind):
        most = _NANOS_MAX // (_PER_SECOND["ns"] // _PER_SECOND[kind.unit])
        counts = pc.fill_null(values.view(pa.int64()), 0).to_numpy()
        far: npt.NDArray[np.bool_] = (counts < -most) | (counts > most)
        return far
    found = np.zeros(len(values), np.bool_)
    if pa.types.is_struct(kind):
        for part in values.flatten():
            found |= beyond_orc(part)
    elif pa.types.is_list(kind) or pa.types.is_map(kind):
        ends, parts = items_of(values)
        at = np.frombuffer(ends, np.int32)
        row = np.repeat(np.arange(len(values)), at[1:] - at[:-1])
        for part in parts:
            found[row[beyond_orc(part)]] = True
    return found


def _columns_with_far_timestamps(footer: bytes, names: Sequence[str]) -> frozenset[str]:
    """Return the top-level columns whose statistics name a timestamp that 64-bit nanoseconds cannot hold."""
    types = list(_messages(footer, 4))
    statistics = list(_messages(footer, 7))
    # Ids count the types depth first, so a column owns the ids up to the next column's.
    starts = [*_packed(types[0], 2), len(types)] if types else []
    found = set()
    for position, name in enumerate(names[: len(starts) - 1]):
        for column in range(starts[position], min(starts[position + 1], len(statistics))):
            for range_ in _messages(statistics[column], 9):
                if any(
                    abs(_unzigzag(v)) > _MILLIS_MAX
                    for number, v in _fields(range_)
                    if number <= 4 and isinstance(v, int)
                ):
                    found.add(name)
    return frozenset(found)


def _padded_columns(footer: bytes, names: Sequence[str]) -> frozenset[str]:
    """Return the top-level columns of the file's own type CHAR: values are padded with blanks, which mean nothing.

    Java's ORC library writes them so, and drops the blanks where it reads; pyarrow does not. We write CHAR as STRING.
    """
    types = list(_messages(footer, 4))
    parts = list(_packed(types[0], 2)) if types else []
    return frozenset(
        name for name, part in zip(names, parts, strict=False) if part < len(types) and _number(types[part], 1) == _CHAR
    )


def _check_decimals(footer: bytes) -> None:
    """Raise ValueError for a decimal that cannot be: the library would end the process on meeting its type."""
    for type_ in _messages(footer, 4):
        precision, scale = _number(type_, 5), _number(type_, 6)
        if _number(type_, 1) == _DECIMAL and not (0 <= scale <= precision <= _PRECISION_MAX and precision > 0):
            raise ValueError(f"a column of type DECIMAL({precision}, {scale})")


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Yield (number, value) of a protocol buffer's fields: int for varints, bytes for the rest."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        match tag & 7:
            case 0:
                value, at = _varint(message, at)
                yield tag >> 3, value
                continue
            case 1:
                end = at + 8
            case 2:
                length, at = _varint(message, at)
                end = at + length
            case 5:
                end = at + 4
            case wire:
                raise ValueError(f"wire type {wire} in the footer")
        if end > len(message):
            raise ValueError("the footer ends inside a field")
        yield tag >> 3, message[at:end]
        at = end


def _messages(message: bytes, number: int) -> Iterator[bytes]:
    return (value for found, value in _fields(message) if found == number and isinstance(value, bytes))


def _first(message: bytes, number: int) -> bytes:
    return next(_messages(message, number), b"")


def _number(message: bytes, number: int) -> int:
    return next((value for found, value in _fields(message) if found == number and isinstance(value, int)), 0)


def _packed(message: bytes, number: int) -> Iterator[int]:
    for found, value in _fields(message):
        if found == number and isinstance(value, int):
            yield value
        elif found == number:
            at = 0
            while at < len(value):
                part, at = _varint(value, at)
                yield part


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7


def _unzigzag(value: int) -> int:
    return (value >> 1) ^ -(value & 1)

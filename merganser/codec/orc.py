"""ORC data files, over pyarrow.

Written: one stripe per group (groups that do not fill a 64 KiB block of compression share one), zstd, field
ids as the attribute `paimon.id`, TIME as int, TIMESTAMP as TIMESTAMP, LTZ as TIMESTAMP_INSTANT. Read: a stripe
at a time, only the columns asked for.

pyarrow returns every ORC timestamp in nanoseconds, and its older versions silently wrap values outside the years 1677
to 2262. So the reader first checks the statistics of the file, and both reader and writer refuse such values. ORC has
no checksums. Whoever opens a file verifies the one that a manifest notes; without it a flipped bit is found only if it
breaks the structure. Up to pyarrow 23 at least, the ORC library may even end the process on a damaged stripe footer; 26
does not.

What files say of themselves besides, `codec.orc_tail` reads. Files of Spark need more than the library gives:

* Spark's TIMESTAMP is an instant, which ORC's TIMESTAMP is not. It is stored as seconds since 2015 in the time zone of
  the writer, and the library hands out local time, in which an hour a year is there twice. So the seconds themselves
  are read, as those of instants, and the zone makes instants of them.
* Spark's TIMESTAMP_NTZ is a number of microseconds, which an attribute of the column tells.
* Dates, and instants before 1900, are counted in the old calendar (`codec.old_calendar`), unless the footer denies it.
  Paimon's Java writes days of the new calendar under the same mark, so the mark counts for files of Spark alone.

Format: section "Avro and ORC data files".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import IO, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import orc

from merganser.codec import orc_tail as tail
from merganser.codec.old_calendar import DAYS_END, OldCalendar, Zone, zone_named
from merganser.codec.parquet_pages import Kept
from merganser.codec.physical import decoding, exact_table
from merganser.codec.row_groups import RowGroups, WriteFormat, schema_with_ids
from merganser.errors import FormatError, InvalidInputError, InvariantError, UnsupportedError
from merganser.schema import types as t
from merganser.schema.arrow import fields_from_arrow
from merganser.schema.cast_values import items_of
from merganser.values import dataclass

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
_SPARK_VERSION: Final = "org.apache.spark.version"
_SPARK_TYPE: Final = b"spark.sql.catalyst.type"
_JULIAN: Final = 1
_PROLEPTIC: Final = 2
_OLD_DAYS: Final = OldCalendar(days=True, instants=False, int96=False, zone=None)
_DECIMAL: Final = 14
_NANOS: Final = 1_000_000_000
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
            self._tail: bytes = self._orc.reader.serialized_file_tail()
            footer = tail.first(self._tail, 2)
            _check_decimals(footer)
            self.column_names: tuple[str, ...] = tuple(self._orc.schema.names)
            self.row_count: int = self._orc.nrows
            self.group_rows: tuple[int, ...] = tuple(tail.number(stripe, 5) for stripe in tail.messages(footer, 3))
            self._far_timestamps = _columns_with_far_timestamps(footer, self.column_names)
            self._padded = _padded_columns(footer, self.column_names)
            self._old_days = _columns_with_old_days(footer, self.column_names)
            self._of_spark = _SPARK_VERSION in tail.pairs(footer, 5)
            self._old = tail.number(footer, 11) != _PROLEPTIC
            self._instants: _Instants | None = None
        if sum(self.group_rows) != self.row_count or len(self.group_rows) != self._orc.nstripes:
            raise FormatError(
                f"cannot read '{path}': the {self._orc.nstripes} stripes have {self.group_rows[:3]} ... rows, "
                f"and the footer says {self.row_count}",
                path=path,
            )

    def own_schema(self) -> pa.Schema:
        """Return the columns as the file says them; see `FileReader.own_schema`.

        Times are nanoseconds, unless Spark wrote them: those are microseconds, and instants but for TIMESTAMP_NTZ.
        """
        with decoding(self._path):
            schema = self._orc.schema.remove_metadata()
            return pa.schema([_as_spark_says(column) for column in schema]) if self._of_spark else schema

    def read(self, groups: Sequence[int] | None, columns: Sequence[t.Field]) -> pa.Table:
        """Return columns of some stripes; see `FileReader.read`."""
        for field in columns:
            self._check(field)
        chosen = range(len(self.group_rows)) if groups is None else list(groups)
        rows = sum(self.group_rows[i] for i in chosen)
        names = [field.name for field in columns]
        with decoding(self._path):
            instants = [field for field in columns if self._of_spark and _holds_instants(field.type)]
            plain = [field.name for field in columns if field not in instants]
            stripes = [self._orc.reader.read_stripe(i, plain) for i in chosen] if plain else []
            held = {name: self._column(stripes, name) for name in plain}
            if self._of_spark and self._old:
                held = {name: _OLD_DAYS.rebased(column, name=name, path=self._path) for name, column in held.items()}
            if instants:
                held.update(self._read_instants(chosen, instants))
            table = exact_table([held[name] for name in names], columns, rows=rows, path=self._path)
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

    def check_values(self) -> None:
        """Refuse times that the library cannot hand out, and dates of some calendar; see `FileReader.check_values`.

        Hive counts dates in the old calendar, and marks them as Paimon's Java marks dates of the new one.
        """
        for name in self.column_names:
            if name in self._far_timestamps:
                raise self._too_far(name)
            if name in self._old_days and not self._of_spark:
                raise UnsupportedError(
                    f"cannot read column '{name}' of '{self._path}': it holds a date before 1582-10-15, and the file "
                    "does not say for sure of which calendar: Hive uses the old (Julian) one. Read the file with "
                    "Spark, and write the rows: ms.write(df, table).",
                    path=self._path,
                    column=name,
                )
        if self._of_spark and any(_holds_instants(field.type) for field in fields_from_arrow(self.own_schema())):
            with decoding(self._path):
                self._instants_of(self.column_names[0])

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
            raise self._too_far(field.name)

    def _too_far(self, name: str) -> UnsupportedError:
        return UnsupportedError(
            f"cannot read column '{name}' of '{self._path}': it holds a timestamp outside the years 1677 to 2262, "
            "which the ORC library cannot hand out. The other columns can be read; select them by name. Write the "
            "rows again as Parquet, with the engine that wrote the file.",
            path=self._path,
            column=name,
        )

    def _read_instants(self, groups: Sequence[int], columns: Sequence[t.Field]) -> dict[str, pa.ChunkedArray]:
        """Return columns of a file of Spark, with what they hold of instants."""
        found = {}
        names = [field.name for field in columns]
        reader = self._instants_of(names[0])
        stripes = [reader.file.reader.read_stripe(i, names) for i in groups]
        for name in names:
            column = self._column(stripes, name)
            if reader.late:
                column = pa.chunked_array([_moved(chunk, reader.late) for chunk in column.chunks], column.type)
            found[name] = reader.calendar.rebased(column, name=name, path=self._path) if self._old else column
        return found

    def _instants_of(self, column: str) -> _Instants:
        """Return what reads instants.

        Raises:
            UnsupportedError: the zone of the writer is not known; names the column.
        """
        if self._instants is None:
            said = tail.writer_zone(self._file, self._tail)
            zone = None if said is None else zone_named(said)
            try:
                late = 0 if said is None or zone is None else _ahead_in_2015(said, zone)
            except (ZoneInfoNotFoundError, ValueError):
                zone = None
            if zone is None and self.row_count:
                raise UnsupportedError(
                    f"cannot read column '{column}' of '{self._path}': the time zone of its writer is {said!r}, which "
                    "is not known, so its timestamps are no instants. The other columns can be read; select them by "
                    "name. Read the file with Spark, and write the rows: ms.write(df, table).",
                    path=self._path,
                    column=column,
                )
            file = orc.ORCFile(tail.with_instants(self._file, self._tail))
            self._instants = _Instants(
                file, late if zone else 0, OldCalendar(days=True, instants=True, int96=False, zone=zone)
            )
        return self._instants


@dataclass(frozen=True, slots=True)
class _Instants:
    """A file whose timestamps are read as instants.

    Attributes:
        file: it.
        late: seconds that they come too late.
        calendar: what old values are counted in.
    """

    file: orc.ORCFile
    late: int
    calendar: OldCalendar


def _ahead_in_2015(name: str, zone: Zone) -> int:
    """Return how many seconds a zone was ahead of UTC when the year 2015 began there.

    Raises:
        ZoneInfoNotFoundError, ValueError: this machine does not know it.
    """
    if not zone.added and not zone.switches:
        return zone.offset  # its offset never changed
    ahead = datetime(2015, 1, 1, tzinfo=ZoneInfo(name)).utcoffset()
    return 0 if ahead is None else int(ahead.total_seconds())


def _as_spark_says(column: pa.Field) -> pa.Field:
    """Return a column with the types that attributes of Spark tell: the library hands them on as metadata of fields."""
    said = (column.metadata or {}).get(_SPARK_TYPE, b"").decode()
    kind = column.type
    if pa.types.is_timestamp(kind):
        kind = pa.timestamp("us", "UTC")
    elif pa.types.is_int64(kind) and said == "timestamp_ntz":
        kind = pa.timestamp("us")
    elif said.startswith("interval"):
        kind = pa.duration("us") if pa.types.is_int64(kind) else pa.month_day_nano_interval()
    elif pa.types.is_map(kind):
        kind = pa.map_(_as_spark_says(kind.key_field).type, _as_spark_says(kind.item_field))
    elif pa.types.is_list(kind):
        kind = pa.list_(_as_spark_says(kind.value_field))
    elif pa.types.is_struct(kind):
        kind = pa.struct([_as_spark_says(kind.field(i)) for i in range(kind.num_fields)])
    return pa.field(column.name, kind, column.nullable)


def _holds_instants(kind: t.DataType) -> bool:
    match kind:
        case t.LocalZonedTimestamp():
            return True
        case t.Array(element=element):
            return _holds_instants(element)
        case t.Map(key=key, value=value):
            return _holds_instants(key) or _holds_instants(value)
        case t.Row(fields=fields):
            return any(_holds_instants(field.type) for field in fields)
    return False


def _moved(array: pa.Array, late: int) -> pa.Array:
    """Return an array whose timestamps, instants in nanoseconds, are so many seconds earlier."""
    kind = array.type
    if pa.types.is_timestamp(kind):
        return _earlier(array, late)
    if not pa.types.is_nested(kind):
        return array
    if pa.types.is_struct(kind):
        parts = [_moved(array.field(i), late) for i in range(kind.num_fields)]
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=mask)
    if pa.types.is_map(kind):
        pairs = [_moved(array.keys, late), _moved(array.items, late)]
        inner = pa.StructArray.from_arrays(pairs, fields=[kind.key_field, kind.item_field])
    else:
        inner = _moved(array.values, late)
    buffers = array.buffers()[:2]
    return pa.Array.from_buffers(kind, len(array), buffers, array.null_count, array.offset, children=[inner])


def _earlier(array: pa.Array, late: int) -> pa.Array:
    """Return instants so many seconds earlier, as the library of Java reads them.

    Files have seconds cut towards 1970, and nanoseconds besides. So both libraries take a second from what is before
    1970, and has more than a millisecond besides: Java's by the right time, the other one by the time that is late.
    """
    counts = array.view(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False) - late * _NANOS
    seconds, nanos = np.divmod(counts, _NANOS)
    rest = nanos > _NANOS // 1000 - 1
    if late < 0:
        counts = counts + np.where(rest & (seconds >= -1) & (seconds + 1 + late < 0), _NANOS, 0)
    elif late > 0:
        counts = counts - np.where(rest & (seconds < 0) & (seconds + late >= 0), _NANOS, 0)
    mask = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    return pa.array(counts, mask=mask).view(array.type)


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
        self._schema = pa.schema(
            [f.with_type(_without_time(f.type)) for f in schema_with_ids(tuple(fields), _FIELD_ID)]
        )
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
    types = list(tail.messages(footer, 4))
    statistics = list(tail.messages(footer, 7))
    # Ids count the types depth first, so a column owns the ids up to the next column's.
    starts = [*tail.packed(types[0], 2), len(types)] if types else []
    found = set()
    for position, name in enumerate(names[: len(starts) - 1]):
        for column in range(starts[position], min(starts[position + 1], len(statistics))):
            for range_ in tail.messages(statistics[column], 9):
                if any(
                    abs(tail.unzigzag(v)) > _MILLIS_MAX
                    for number, v in tail.fields(range_)
                    if number <= 4 and isinstance(v, int)
                ):
                    found.add(name)
    return frozenset(found)


def _columns_with_old_days(footer: bytes, names: Sequence[str]) -> frozenset[str]:
    """Return the top-level columns with a date of the old calendar, by their statistics, in a file marked so."""
    if tail.number(footer, 11) != _JULIAN:
        return frozenset()
    types, statistics = list(tail.messages(footer, 4)), list(tail.messages(footer, 7))
    starts = [*tail.packed(types[0], 2), len(types)] if types else []
    return frozenset(
        name
        for position, name in enumerate(names[: len(starts) - 1])
        for column in range(starts[position], min(starts[position + 1], len(statistics)))
        for days in tail.messages(statistics[column], 7)
        if tail.unzigzag(tail.number(days, 1)) < DAYS_END
    )


def _padded_columns(footer: bytes, names: Sequence[str]) -> frozenset[str]:
    """Return the top-level columns of the file's own type CHAR: values are padded with blanks, which mean nothing.

    Java's ORC library writes them so, and drops the blanks where it reads; pyarrow does not. We write CHAR as STRING.
    """
    types = list(tail.messages(footer, 4))
    parts = list(tail.packed(types[0], 2)) if types else []
    return frozenset(
        name
        for name, part in zip(names, parts, strict=False)
        if part < len(types) and tail.number(types[part], 1) == _CHAR
    )


def _check_decimals(footer: bytes) -> None:
    """Raise ValueError for a decimal that cannot be: the library would end the process on meeting its type."""
    for type_ in tail.messages(footer, 4):
        precision, scale = tail.number(type_, 5), tail.number(type_, 6)
        if tail.number(type_, 1) == _DECIMAL and not (0 <= scale <= precision <= _PRECISION_MAX and precision > 0):
            raise ValueError(f"a column of type DECIMAL({precision}, {scale})")

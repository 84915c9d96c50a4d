"""Avro data files: containers of records <-> Arrow tables.

Avro stores rows, and the library reads and writes each row as a dictionary. This is some fifty times slower than
Parquet. merganser supports the format because other engines write it, mostly for postponed rows. The dictionaries stay
inside this module.

The library gets and returns values as Avro stores them: dates, times and timestamps as integers, decimals as bytes. By
default it would make Python datetimes, which end in the year 9999 and have no nanoseconds. So this module removes the
logical types from the schema that it passes to the library.

`codec.avro_container` splits the container into blocks, because blocks are the groups of such a file. Snappy blocks
end with a checksum, which the reader verifies. The reader finds other damage inside a block only if it breaks the
structure. A file cut between two blocks would look whole, so the reader compares its size with the metadata.

Format: section "Avro and ORC data files".
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from typing import IO, Any, Final

import fastavro
import numpy as np
import pyarrow as pa
from fastavro.schema import SchemaParseException, UnknownType

from merganser.codec.avro_container import (
    CODECS,
    DECOMPRESSORS,
    MAGIC,
    SYNC_BYTES,
    Block,
    block_places,
    compressor,
    encoded_long,
    encoded_map,
    header_map,
    read_long,
)
from merganser.codec.avro_schema import avro_schema, has_text_keys, without_logical_types
from merganser.codec.old_calendar import calendar_of, holds_times
from merganser.codec.parquet_pages import Kept
from merganser.codec.physical import decoding, exact_column, exact_table
from merganser.codec.row_groups import RowGroups, WriteFormat
from merganser.errors import FormatError, InvalidInputError, UnsupportedError
from merganser.schema import types as t
from merganser.schema.arrow import arrow_field, arrow_type, fields_from_arrow

BLOCK_ROWS_MAX: Final = 4_096
"""Most rows per block, so that few rows exist as dictionaries at a time."""

FOREIGN: Final = b"merganser.foreign"
"""Key in the metadata of a column of `own_schema`; the value is the rest of a sentence about the column."""

_NO_LIMIT: Final = 1 << 62
_PRIMITIVE: Final = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
}
_LOGICAL: Final = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
}


class AvroFileReader:
    """An Avro file open for reading; see `codec.data_format.FileReader`. It is in memory as a whole."""

    def __init__(self, file: pa.NativeFile | IO[bytes], path: str, size: int) -> None:
        """Read the file, its header and the places of its blocks.

        Raises:
            FormatError: the file is no Avro file of `size` bytes, or its structure is damaged.
        """
        self._path = path
        self._file = file
        with decoding(path):
            file.seek(0)
            self._data: bytes = file.read()
            if len(self._data) != size:
                raise FormatError(
                    f"cannot read '{path}': it has {len(self._data)} bytes, and the metadata says {size}", path=path
                )
            self._read_header()
        self.column_names: tuple[str, ...] = tuple(self._types)
        self.group_rows: tuple[int, ...] = tuple(block.rows for block in self._blocks)
        self.row_count: int = sum(self.group_rows)

    def own_schema(self) -> pa.Schema:
        """Return the columns as the file says them; see `FileReader.own_schema`.

        What Avro calls a timestamp is an instant, and what it calls a local timestamp is none. The symbols of enums are
        text. The metadata of a column has `FOREIGN` if it is not stored as in data files of tables.

        Raises:
            UnsupportedError: a column is a duration, or a union of several types.
        """
        columns = []
        with decoding(self._path):
            for name, schema in self._types.items():
                column, stored = self._own_field(name, schema, name), self._foreign(schema)
                columns.append(column.with_metadata({FOREIGN: stored}) if stored else column)
        return pa.schema(columns)

    def _foreign(self, schema: Any) -> str:
        """Return what is said of values that Paimon's Java reader does not read; empty: it reads them.

        It takes the second branch of every union for the values, and every decimal for bytes with a length.
        """
        if isinstance(schema, list) and (len(schema) != 2 or schema[0] != "null"):
            return "is a union that does not begin with null"
        held = self._resolved(schema)
        if held["type"] in ("fixed", "enum"):
            return f"has the Avro type '{held['type']}'"
        if held.get("logicalType") == "uuid":
            return "has the Avro type 'uuid'"
        inner = [held[key] for key in ("items", "values") if key in held]
        inner += [field["type"] for field in held.get("fields", ())]
        return next(filter(None, map(self._foreign, inner)), "")

    def _own_field(self, name: str, schema: Any, column: str) -> pa.Field:
        nullable = isinstance(schema, list) and "null" in schema
        return pa.field(name, self._own_type(schema, column), nullable=nullable)

    def _own_type(self, schema: Any, column: str) -> pa.DataType:
        if isinstance(schema, list) and len([branch for branch in schema if branch != "null"]) != 1:
            raise self._unknown(column, "a union of several types")
        held = self._resolved(schema)
        logical = _LOGICAL.get((held["type"], held.get("logicalType")))
        if logical is not None:
            return logical
        match held["type"], held.get("logicalType"):
            case "bytes" | "fixed", "decimal":
                return pa.decimal128(held["precision"], held.get("scale", 0))
            case "fixed", logical if logical != "duration":
                return pa.binary(held["size"])
            case "enum", _:
                return pa.string()
            case "array", "map":
                key, value = (field["type"] for field in self._resolved(held["items"])["fields"])
                return pa.map_(self._own_type(key, column), self._own_field("value", value, column))
            case "array", _:
                return pa.list_(self._own_field("element", held["items"], column))
            case "map", _:
                return pa.map_(pa.string(), self._own_field("value", held["values"], column))
            case "record", _:
                inner = [(field["name"], field["type"]) for field in held["fields"]]
                return pa.struct([self._own_field(name, kind, f"{column}.{name}") for name, kind in inner])
            case kind, _ if kind in _PRIMITIVE:
                return _PRIMITIVE[kind]
            case kind, logical:
                raise self._unknown(column, f"of the Avro type '{logical or kind}'")

    def _unknown(self, column: str, kind: str) -> UnsupportedError:
        return UnsupportedError(
            f"cannot tell the type of column '{column}' of '{self._path}': it is {kind}, which no column of a table "
            "holds.",
            column=column,
            path=self._path,
        )

    def read(self, groups: Sequence[int] | None, columns: Sequence[t.Field]) -> pa.Table:
        """Return columns of some blocks; see `FileReader.read`."""
        for field in columns:
            if field.name not in self._types:
                raise FormatError(
                    f"cannot read column '{field.name}' of '{self._path}': the file has no such column; it has "
                    f"{', '.join(map(repr, self.column_names[:3]))} ({len(self.column_names)} in all)",
                    path=self._path,
                    column=field.name,
                )
        chosen = range(len(self._blocks)) if groups is None else list(groups)
        chunks: list[list[pa.Array]] = [[] for _ in columns]
        with decoding(self._path):
            for block in (self._blocks[i] for i in chosen):
                records = self._records(block)
                for field, parts in zip(columns, chunks, strict=True):
                    values = [record[field.name] for record in records]
                    parts.append(self._decoded(values, field.type, self._types[field.name], field.name))
            read = [
                pa.chunked_array(parts, type=arrow_type(field.type))
                for field, parts in zip(columns, chunks, strict=True)
            ]
            if self._calendar is not None:
                read = [
                    self._calendar.rebased(column, name=field.name, path=self._path)
                    for column, field in zip(read, columns, strict=True)
                ]
            rows = sum(self.group_rows[i] for i in chosen)
            return exact_table(read, columns, rows=rows, path=self._path)

    def parts(self, group: int, columns: Sequence[t.Field], rows: int) -> Iterator[pa.Table]:
        """Yield a block whole; see `FileReader.parts`."""
        yield self.read([group], columns)

    def read_where(self, groups: range, columns: Sequence[t.Field], kept: Kept) -> pa.Table | None:
        """Return None: this format decodes no rows by themselves; see `FileReader.read_where`."""
        return None

    def group_bytes(self, group: int, columns: Sequence[t.Field]) -> None:
        """Return None: a block does not tell."""

    def group_bounds(self, field: t.Field) -> None:
        """Return None: Avro files keep no statistics."""

    def all_zero(self, column: str) -> bool:
        """Return False: nothing is noted in this format; see `FileReader.all_zero`."""
        return False

    def sums_pages(self) -> bool:
        """Return False: only blocks of one codec have checksums, and the header never; see `FileReader.sums_pages`."""
        return False

    def check_values(self) -> None:
        """Refuse dates and times of the old calendar that cannot be told; see `FileReader.check_values`."""
        if self._calendar is not None and not self._calendar.tells_all_times():
            self.read(
                None, [field for field in fields_from_arrow(self.own_schema()) if holds_times(arrow_type(field.type))]
            )

    def close(self) -> None:
        """Release the bytes and the file."""
        self._data = b""
        self._file.close()

    def _read_header(self) -> None:
        data = self._data
        if data[: len(MAGIC)] != MAGIC:
            raise FormatError(f"cannot read '{self._path}': it does not begin as an Avro file", path=self._path)
        entries, at = header_map(data, len(MAGIC))
        self._sync = data[at : at + SYNC_BYTES]
        codec = entries.get("avro.codec", b"null").decode()
        if codec not in DECOMPRESSORS:
            raise FormatError(f"cannot read '{self._path}': its codec {codec!r} is unknown", path=self._path)
        self._decompress = DECOMPRESSORS[codec]
        self._calendar = calendar_of({key.encode(): value for key, value in entries.items()})
        schema = json.loads(entries["avro.schema"])
        self._named: dict[str, Any] = {}
        plain = without_logical_types(schema, self._named, "")
        root = self._resolved(schema)
        if not isinstance(root, dict) or root.get("type") != "record":
            raise FormatError(f"cannot read '{self._path}': its values are not records", path=self._path)
        self._types: dict[str, Any] = {field["name"]: field["type"] for field in root["fields"]}
        self._blocks = tuple(block_places(data, at + SYNC_BYTES, self._sync, self._path))
        try:
            fastavro.parse_schema(plain)
        except (SchemaParseException, UnknownType) as error:
            raise FormatError(
                f"cannot read '{self._path}': its schema is damaged ({error!s:.300})", path=self._path
            ) from error
        self._header = (
            MAGIC + encoded_map({"avro.schema": json.dumps(plain).encode(), "avro.codec": b"null"}) + self._sync
        )

    def _records(self, block: Block) -> list[dict[str, Any]]:
        content = self._decompress(self._data[block.start : block.end])
        framed = self._header + encoded_long(block.rows) + encoded_long(len(content)) + content + self._sync
        records = list(fastavro.reader(io.BytesIO(framed)))
        if len(records) != block.rows or None in records:
            raise FormatError(
                f"cannot read '{self._path}': the block at byte {block.start} holds {len(records)} rows and says "
                f"{block.rows}, or some are null",
                path=self._path,
                offset=block.start,
            )
        return records

    def _resolved(self, schema: Any) -> Any:
        """Return the schema of values that are not null: a union's other branch, a name's definition."""
        if isinstance(schema, list):
            branches = [branch for branch in schema if branch != "null"]
            if len(branches) != 1:
                raise FormatError(
                    f"cannot read '{self._path}': it holds a union of {len(branches)} types", path=self._path
                )
            return self._resolved(branches[0])
        if isinstance(schema, str):
            return self._named.get(schema, {"type": schema})
        if isinstance(schema.get("type"), dict | list):
            return self._resolved(schema["type"])
        return schema

    def _decoded(self, values: list[Any], kind: t.DataType, schema: Any, column: str) -> pa.Array:
        """Return Avro values as an array of exactly the type of `kind`.

        Args:
            values: one per row, as stored, None for null.
            kind: the declared type.
            schema: the Avro schema the values were written with.
            column: for messages.
        """
        held = self._resolved(schema)
        logical = str(held.get("logicalType", ""))
        match kind:
            case t.Array(element=element):
                parts = self._decoded(_flat(values), element, held["items"], column)
                return _lists(values, parts, arrow_type(kind))
            case t.Map(key=key, value=value):
                return self._decoded_map(values, kind, key, value, held, column)
            case t.Multiset(element=element):
                return self._decoded_map(values, kind, element, t.Int(nullable=False), held, column)
            case t.Row(fields=fields):
                return self._decoded_rows(values, fields, held, column)
            case t.Variant():
                binary = t.VarBinary(nullable=False)
                return self._decoded_rows(
                    values, (t.Field(0, "value", binary), t.Field(1, "metadata", binary)), held, column
                )
            case t.Decimal(scale=scale):
                if held.get("scale", 0) != scale:
                    raise FormatError(
                        f"cannot read '{self._path}': column '{column}' needs scale {scale}, and the file has "
                        f"{held.get('scale', 0)}",
                        path=self._path,
                        column=column,
                    )
                return _decimals(values, arrow_type(kind))
            case t.Timestamp() | t.LocalZonedTimestamp():
                target = arrow_type(kind)
                units = {"millis": "ms", "micros": "us", "nanos": "ns"}
                unit = units.get(logical.rpartition("-")[2], target.unit)
                return self._exact(pa.array(values, pa.int64()).view(pa.timestamp(unit)), kind, column)
            case t.Time():
                if logical == "time-micros":
                    return self._exact(pa.array(values, pa.int64()).view(pa.time64("us")), kind, column)
                return pa.array(values, pa.int32()).view(pa.time32("ms"))
            case t.Date():
                return pa.array(values, pa.int32()).view(pa.date32())
        return pa.array(values, arrow_type(kind))

    def _exact(self, values: pa.Array, kind: t.DataType, column: str) -> pa.Array:
        return exact_column(pa.chunked_array([values]), kind, column=column, path=self._path).combine_chunks()

    def _decoded_map(
        self, values: list[Any], kind: t.DataType, key: t.DataType, value: t.DataType, held: Any, column: str
    ) -> pa.Array:
        target = arrow_type(kind)
        if held["type"] == "map":
            pairs = _flat([None if entry is None else list(entry.items()) for entry in values])
            key_schema, value_schema = {"type": "string"}, held["values"]
        else:
            record = self._resolved(held["items"])
            (key_name, key_schema), (value_name, value_schema) = ((f["name"], f["type"]) for f in record["fields"])
            pairs = [(entry[key_name], entry[value_name]) for entry in _flat(values)]
        entries = pa.StructArray.from_arrays(
            [
                self._decoded([pair[0] for pair in pairs], key, key_schema, column),
                self._decoded([pair[1] for pair in pairs], value, value_schema, column),
            ],
            fields=[target.key_field, target.item_field],
        )
        return _lists(values, entries, target)

    def _decoded_rows(self, values: list[Any], fields: Sequence[t.Field], held: Any, column: str) -> pa.Array:
        schemas = {field["name"]: field["type"] for field in held["fields"]}
        parts = []
        for field in fields:
            path = f"{column}.{field.name}"
            if field.name not in schemas:
                raise FormatError(
                    f"cannot read column '{path}' of '{self._path}': the file has no such column",
                    path=self._path,
                    column=path,
                )
            held_values = [None if value is None else value[field.name] for value in values]
            parts.append(self._decoded(held_values, field.type, schemas[field.name], path))
        mask = pa.array([value is None for value in values], pa.bool_())
        return pa.StructArray.from_arrays(parts, fields=[arrow_field(f) for f in fields], mask=mask)


class AvroFileWriter:
    """An Avro file being written; see `codec.data_format.FileWriter`."""

    def __init__(self, sink: pa.NativeFile | IO[bytes], fields: Sequence[t.Field], options: WriteFormat) -> None:
        """Write the header.

        Raises:
            InvalidInputError: an unknown compression.
            UnsupportedError: Avro cannot hold a column; see `avro_schema`.
        """
        codec = CODECS.get(options.compression.lower())
        if codec is None:
            raise InvalidInputError(
                f"cannot write Avro with compression {options.compression!r}: choose one of {', '.join(sorted(CODECS))}"
            )
        schema = avro_schema(fields)
        rows = min(options.row_group_rows, BLOCK_ROWS_MAX)
        self._sink = sink
        self._fields = tuple(fields)
        self._groups = RowGroups(fields, WriteFormat(row_group_rows=rows, block_size_bytes=options.block_size_bytes))
        self._schema = fastavro.parse_schema(without_logical_types(schema, {}, ""))
        self._compress = compressor(codec, options.zstd_level)
        empty = io.BytesIO()
        fastavro.writer(empty, self._schema, [])
        # The library draws the marker; every block of this file must end with the same one.
        self._unused_header_bytes = len(empty.getvalue())
        self._sync = empty.getvalue()[-SYNC_BYTES:]
        entries = {"avro.schema": json.dumps(schema, separators=(",", ":")).encode(), "avro.codec": codec.encode()}
        sink.write(MAGIC + encoded_map(entries) + self._sync)

    def write(self, table: pa.Table) -> None:
        """Append rows; see `FileWriter.write`."""
        for group in self._groups.add(table):
            self._write_block(group)

    def close(self) -> None:
        """Write the last block; the sink stays open."""
        rest = self._groups.rest()
        if rest is not None:
            self._write_block(rest)

    def abort(self) -> None:
        """Drop what is buffered; see `FileWriter.abort`."""
        self._groups.rest()

    def _write_block(self, rows: pa.Table) -> None:
        columns = [
            _encoded(column.combine_chunks(), field.type)
            for column, field in zip(rows.columns, self._fields, strict=True)
        ]
        names = [field.name for field in self._fields]
        records = [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
        written = io.BytesIO()
        fastavro.writer(written, self._schema, records, sync_interval=_NO_LIMIT, sync_marker=self._sync)
        framed = written.getvalue()
        count, at = read_long(framed, self._unused_header_bytes)
        length, at = read_long(framed, at)
        content = self._compress(framed[at : at + length])
        self._sink.write(encoded_long(count) + encoded_long(len(content)) + content + self._sync)


def _encoded(values: pa.Array, kind: t.DataType) -> list[Any]:
    """Return an array as the values Avro stores, one per row, None for null."""
    match kind:
        case t.Decimal():
            return [None if number is None else _big_endian(number) for number in _unscaled(values)]
        case t.Date() | t.Time():
            return _listed(values.view(pa.int32()))
        case t.Timestamp() | t.LocalZonedTimestamp():
            return _listed(values.view(pa.int64()))
        case t.Array(element=element):
            offsets, start, end = _extent(values)
            parts = _encoded(values.values.slice(start, end - start), element)
            return _sliced(values, offsets, parts)
        case t.Map(key=key, value=value):
            return _encoded_maps(values, kind, key, value)
        case t.Multiset(element=element):
            return _encoded_maps(values, kind, element, t.Int(nullable=False))
        case t.Row(fields=fields):
            names = [field.name for field in fields]
            columns = [_encoded(values.field(i), field.type) for i, field in enumerate(fields)]
            valid = values.is_valid().to_pylist()
            return [
                dict(zip(names, row, strict=True)) if is_valid else None
                for is_valid, row in zip(valid, zip(*columns, strict=True), strict=True)
            ]
    return _listed(values)


def _listed(values: pa.Array) -> list[Any]:
    return list(values.to_pylist())


def _encoded_maps(values: pa.Array, kind: t.Map | t.Multiset, key: t.DataType, value: t.DataType) -> list[Any]:
    offsets, start, end = _extent(values)
    keys = _encoded(values.keys.slice(start, end - start), key)
    items = _encoded(values.items.slice(start, end - start), value)
    pairs = _sliced(values, offsets, list(zip(keys, items, strict=True)))
    if has_text_keys(kind):
        return [None if row is None else dict(row) for row in pairs]
    return [None if row is None else [{"key": k, "value": v} for k, v in row] for row in pairs]


def _extent(values: pa.Array) -> tuple[list[int], int, int]:
    """Return offsets that begin at 0, and the first and last place of the children they count from."""
    offsets = values.offsets.to_pylist()
    return [offset - offsets[0] for offset in offsets], offsets[0], offsets[-1]


def _sliced(values: pa.Array, offsets: list[int], parts: list[Any]) -> list[Any]:
    valid = values.is_valid().to_pylist()
    return [parts[offsets[i] : offsets[i + 1]] if is_valid else None for i, is_valid in enumerate(valid)]


def _unscaled(values: pa.Array) -> Iterator[int | None]:
    """Yield the integers behind a decimal128 array."""
    valid = values.is_valid().to_pylist()
    data = values.buffers()[1]
    content = b"" if data is None else data.to_pybytes()
    for i, is_valid in enumerate(valid, start=values.offset):
        yield int.from_bytes(content[16 * i : 16 * i + 16], "little", signed=True) if is_valid else None


def _big_endian(number: int) -> bytes:
    """Return the shortest two's complement form, one byte at least."""
    bits = (number if number >= 0 else ~number).bit_length()
    return number.to_bytes(bits // 8 + 1, "big", signed=True)


def _decimals(values: list[bytes | None], target: pa.DataType) -> pa.Array:
    limit = 10**target.precision
    content = bytearray()
    for value in values:
        number = 0 if value is None else int.from_bytes(value, "big", signed=True)
        if not -limit < number < limit:
            raise ValueError(f"the decimal {number} has more than {target.precision} digits")
        content += number.to_bytes(16, "little", signed=True)
    return pa.Array.from_buffers(target, len(values), [_validity(values), pa.py_buffer(bytes(content))])


def _lists(values: list[Any], parts: pa.Array, target: pa.DataType) -> pa.Array:
    """Return a list or map array: `values` give the lengths and nulls, `parts` the children."""
    lengths = np.fromiter((0 if value is None else len(value) for value in values), np.int64, len(values))
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.Array.from_buffers(target, len(values), [_validity(values), pa.py_buffer(offsets)], children=[parts])


def _validity(values: list[Any]) -> pa.Buffer | None:
    if None not in values:
        return None
    return pa.array([value is not None for value in values], pa.bool_()).buffers()[1]


def _flat(values: list[Any]) -> list[Any]:
    return [part for value in values if value is not None for part in value]

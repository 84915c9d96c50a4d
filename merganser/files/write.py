"""Rows of one bucket -> data files of about the target size, with their statistics and file indexes.

Rows come in file order (sorted by key, or as they arrived). A file becomes durable when it is finished; until
a snapshot names it no reader opens it, and `abort` removes it.

Rows that are written again may be null in a column that has become NOT NULL since: older versions of rows, retractions,
rows of a state that was rolled back to. The files that hold such rows declare these columns nullable.
"""

from __future__ import annotations

import contextlib
import weakref
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final, Literal, Protocol

import pyarrow as pa

from merganser.codec.binary_row import arrow_to_stored, serialize
from merganser.codec.data_format import FileWriter, open_writer
from merganser.codec.parquet_footer import footer_of
from merganser.codec.stats import (
    EMPTY_ROW,
    UNKNOWN,
    ColumnStats,
    SimpleStats,
    StatsMode,
    column_stats,
    encode_stats,
    merge_stats,
    truncate,
)
from merganser.codec.stored import Stored
from merganser.errors import MerganserError, StorageError
from merganser.files.index import INDEX_SUFFIX, IndexBuilder, place_index
from merganser.files.layout import FileLayout, physical_name
from merganser.meta.data_file import SOURCE_APPEND, DataFile
from merganser.meta.table_def import TableDef
from merganser.schema import row_kind
from merganser.schema import types as t
from merganser.schema.arrow import arrow_schema, in_types
from merganser.schema.hidden import has_seen_nulls
from merganser.schema.table_schema import SEQUENCE_NUMBER, VALUE_KIND
from merganser.storage.env import Env
from merganser.storage.paths import join
from merganser.storage.protocol import Sink

_OPEN: Final[weakref.WeakSet[_OpenFile]] = weakref.WeakSet()
"""Data files that are begun and not finished. A set of references: a writer that is dropped counts no more."""
_KEY_STATS = StatsMode("truncate", 128)
_COPY_BYTES = 4 << 20
_NO_STATS = SimpleStats(EMPTY_ROW, EMPTY_ROW, ())


def stored_stats(layout: FileLayout, known: Sequence[ColumnStats | None]) -> tuple[SimpleStats, tuple[str, ...] | None]:
    """Return what manifests keep of the statistics of a file, and of which columns; None: of all.

    Args:
        known: those of each value column of the layout; None: not known.
    """
    kept: list[t.Field] = []
    stats: list[ColumnStats] = []
    for field, mode, found in zip(layout.value_fields, layout.stats_modes, known, strict=True):
        if layout.dense_stats and (mode.name == "none" or found is None or t.is_nested(field.type)):
            continue
        kept.append(field)
        stats.append(truncate(found or UNKNOWN, field.type, mode))
    every = len(kept) == len(layout.value_fields)
    return encode_stats(stats, [f.type for f in kept]), None if every else tuple(f.name for f in kept)


class Beside(Protocol):
    """Something made of the rows of a file while it is written, which the file does not need."""

    def add(self, rows: pa.Table) -> None:
        """Take rows of the file, in its order and with its columns."""

    def finish(self, path: str, size: int) -> None:
        """Take note that the file is whole."""

    def abort(self) -> None:
        """Take note that the file is dropped."""


def files_being_written() -> int:
    """Return how many data files this process is writing: of all tables and threads."""
    return len(_OPEN)


class RollingWriter:
    """Writes the rows of one bucket at one level; begins a new file at the target size.

    Args:
        directory: the bucket's directory.
        layout: columns, format and statistics.
        level: level of the files.
        mark: part of their names.
        beside: begins what is made beside each file.
    """

    def __init__(
        self,
        *,
        table: TableDef,
        env: Env,
        directory: str,
        layout: FileLayout,
        level: int = 0,
        source: int = SOURCE_APPEND,
        mark: str = "",
        beside: Callable[[], Beside] | None = None,
    ) -> None:
        self._table = table
        self._env = env
        self._beside = beside
        self._directory = directory
        self._layout = layout
        self._level = level
        self._source = source
        self._mark = mark
        self._run = env.new_id()
        self._schema = arrow_schema(layout.fields)
        self._loose: set[str] = set()
        """Columns of which files declare all parts nullable."""
        self._open: _OpenFile | None = None
        self._done: list[DataFile] = []

    def write(self, rows: pa.Table, *, sequences: pa.Array | None = None, kinds: pa.Array | None = None) -> None:
        """Append rows.

        Args:
            rows: the table's columns, in exactly the table's Arrow types.
            sequences: int64, for key tables.
            kinds: int8, for key tables; None: all inserts.
        """
        layout = self._layout
        columns = list(rows.columns)
        if layout.keyed:
            if kinds is None:
                kinds = row_kind.inserts(rows.num_rows)
            columns = [rows.column(physical_name(f)) for f in layout.key_fields] + [sequences, kinds] + columns
        self._take_nulls_of(columns)
        physical = pa.Table.from_arrays(columns, schema=self._schema)
        at = 0
        while at < rows.num_rows:
            file = self._open = self._open or self._begun()
            part = physical.slice(at, layout.target_rows - file.rows)
            with _writing(self._directory, file.name):
                file.write(part)
                file.sink.begin_sync()
            at += part.num_rows
            if file.sink.size >= layout.target_size_bytes or file.rows >= layout.target_rows:
                self._finish()

    def _take_nulls_of(self, columns: Sequence[pa.Array | pa.ChunkedArray]) -> None:
        """Begin a file that declares columns nullable if rows are null in columns that are declared NOT NULL."""
        names = set()
        for field, column in zip(self._layout.fields, columns, strict=True):
            inside = t.is_nested(field.type) and field.name not in self._loose
            if (not field.type.nullable and column.null_count) or (inside and has_seen_nulls(column)):
                names.add(field.name)
        names -= {field.name for field in self._layout.key_fields} | set(self._table.key)
        if names:
            if self._open is not None:
                self._finish()
            self._layout = self._layout.with_nullable(names)
            self._loose |= names
            self._schema = arrow_schema(self._layout.fields)

    def close(self) -> tuple[DataFile, ...]:
        """Finish the last file and return all of them. They are durable."""
        if self._open is not None:
            self._finish()
        return tuple(self._done)

    def abort(self) -> None:
        """Remove what was written. The files of a finished writer too. Best effort: else they are orphans."""
        names = [name for file in self._done for name in file.names]
        if self._open is not None:
            _OPEN.discard(self._open)
            self._open.abort()
            if self._layout.filters:
                names.append(self._open.name + INDEX_SUFFIX)
            self._open = None
        with contextlib.suppress(MerganserError):
            self._env.storage.delete([join(self._directory, name) for name in names])
        self._done = []

    def _begun(self) -> _OpenFile:
        name = f"{self._layout.prefix}{self._run}-{len(self._done)}{self._mark}{self._layout.suffix}"
        sink = self._env.storage.writer(join(self._directory, name))
        try:
            with _writing(self._directory, name):
                begun = _OpenFile(self._table, self._layout, sink, name, self._beside and self._beside())
        except BaseException:
            sink.abort()
            raise
        _OPEN.add(begun)
        return begun

    def _finish(self) -> None:
        assert self._open is not None
        with _writing(self._directory, self._open.name):
            embedded, beside = place_index(
                self._env,
                self._directory,
                self._open.name,
                self._open.index.finish(),
                in_manifest_max_bytes=self._layout.index_in_manifest_max_bytes,
            )
            made = self._open.finish(self._level, self._source, self._env.now_ms())
        if beside or embedded is not None:
            made = replace(made, extra_files=beside, embedded_index=embedded)
        if self._open.beside is not None:
            self._open.beside.finish(join(self._directory, made.name), made.size)
        self._done.append(made)
        _OPEN.discard(self._open)
        self._open = None


@contextlib.contextmanager
def _writing(directory: str, name: str) -> Iterator[None]:
    """Say of what goes wrong in a sink's stream, such as a full disk, that the store failed, and at which file."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        path = join(directory, name)
        raise StorageError(
            f"cannot write '{path}': {error}. Nothing of it is visible, and the table is as it was. Make room or "
            "wait, and write again.",
            path=path,
        ) from error


def copied(env: Env, directory: str, files: Sequence[DataFile], layout: FileLayout) -> tuple[DataFile, ...]:
    """Copy files that have just been written; their indexes are left out. The copies are durable.

    Args:
        directory: the bucket's, of the files and the copies.
        layout: of the copies; it must have the bytes of the layout of the files.
    """
    run = env.new_id()
    made: list[DataFile] = []
    try:
        for file in files:
            name = f"{layout.prefix}{run}-{len(made)}{layout.suffix}"
            sink = env.storage.writer(join(directory, name))
            try:
                with _writing(directory, name), env.storage.open(join(directory, file.name)) as source:
                    while data := source.read_buffer(_COPY_BYTES):
                        sink.stream.write(data)
                    sink.close()
            except BaseException:
                sink.abort()
                raise
            made.append(replace(file, name=name, extra_files=(), embedded_index=None))
            if sink.checksum != file.checksum:
                raise StorageError(
                    f"cannot copy '{join(directory, file.name)}': the store gave other bytes than were written to it. "
                    "Nothing of it is visible, and the table is as it was. Write again.",
                    path=join(directory, file.name),
                )
    except BaseException:
        with contextlib.suppress(MerganserError):
            env.storage.delete([join(directory, file.name) for file in made])
        raise
    return tuple(made)


class _OpenFile:
    """One file being written, and what is known of its rows so far."""

    def __init__(self, table: TableDef, layout: FileLayout, sink: Sink, name: str, beside: Beside | None) -> None:
        self.sink = sink
        self.beside = beside
        self.rows = 0
        self.name = name
        self.index = IndexBuilder(layout.filters)
        self._table = table
        self._layout = layout
        write_format = replace(layout.write_format, file_name=name)
        self._schema = arrow_schema(layout.fields)
        self._writer: FileWriter = open_writer(sink.stream, layout.format, layout.fields, write_format)
        self._stats: list[ColumnStats | None] = [None] * len(layout.value_fields)
        self._first: tuple[Stored, ...] = ()
        self._last: tuple[Stored, ...] = ()
        self._sequences: tuple[int, int] | None = None
        self._deletes = 0

    def write(self, rows: pa.Table) -> None:
        self._writer.write(in_types(rows, self._schema))
        self.index.add(rows)
        if self.beside is not None:
            self.beside.add(rows)
        if self._table.keyed:
            key = [rows.column(name) for name in self._table.key]
            if not self.rows:
                self._first = self._key(key, 0)
            self._last = self._key(key, rows.num_rows - 1)
            numbers = rows.column(SEQUENCE_NUMBER.name).to_numpy()
            low, high = self._sequences or (numbers[0], numbers[0])
            self._sequences = (int(min(low, numbers.min())), int(max(high, numbers.max())))
            self._deletes += row_kind.retractions(rows.column(VALUE_KIND.name))
        self.rows += rows.num_rows
        fields, columns = self._layout.value_fields, rows.columns[-len(self._stats) :]
        for i, (field, column, mode) in enumerate(zip(fields, columns, self._layout.stats_modes, strict=True)):
            if mode.name == "none" and field.name not in self._table.key:
                continue
            more = column_stats(column, field.type)
            known = self._stats[i]
            self._stats[i] = more if known is None else merge_stats(known, more, field.type)

    def abort(self) -> None:
        self._writer.abort()
        self.sink.abort()
        if self.beside is not None:
            self.beside.abort()

    def finish(self, level: int, source: int, now_ms: int) -> DataFile:
        self._writer.close()
        footer = footer_of(self.sink.tail) if self._layout.format == "parquet" else None
        size = self.sink.close()
        table = self._table
        value_stats, columns = stored_stats(self._layout, self._stats)
        low, high = self._sequences or (0, self.rows - 1)
        return DataFile(
            name=self.name,
            size=size,
            row_count=self.rows,
            min_key=self._bound(self._first, "min") if table.keyed else EMPTY_ROW,
            max_key=self._bound(self._last, "max") if table.keyed else EMPTY_ROW,
            key_stats=self._key_stats() if table.keyed else _NO_STATS,
            value_stats=value_stats,
            min_sequence=low,
            max_sequence=high,
            schema_id=table.schema.id,
            level=level,
            creation_time_ms=now_ms,
            delete_row_count=self._deletes,
            source=source,
            value_stats_columns=columns,
            checksum=self.sink.checksum,
            footer_checksum=None if footer is None else zlib.crc32(footer),
        )

    def _bound(self, key: tuple[Stored, ...], which: Literal["min", "max"]) -> bytes:
        """Return the first or last key; if rows are in no order, a bound of all keys: that of each key column."""
        if not self._layout.ordered:
            by_name = {f.name: s for f, s in zip(self._layout.value_fields, self._stats, strict=True)}
            found = [by_name[name] for name in self._table.key]
            key = tuple(None if one is None else getattr(one, which) for one in found)
        return serialize(key, self._table.key_types)

    def _key(self, columns: Sequence[pa.ChunkedArray], row: int) -> tuple[Stored, ...]:
        return tuple(arrow_to_stored(c[row], kind) for c, kind in zip(columns, self._table.key_types, strict=True))

    def _key_stats(self) -> SimpleStats:
        by_name = {f.name: s for f, s in zip(self._layout.value_fields, self._stats, strict=True)}
        kinds = self._table.key_types
        return encode_stats(
            [
                truncate(by_name[name] or ColumnStats(None, None, None), kind, _KEY_STATS)
                for name, kind in zip(self._table.key, kinds, strict=True)
            ],
            kinds,
        )

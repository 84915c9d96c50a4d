"""A data file as lookups ask it: through its lookup copy, or, until it is asked often enough, as it lies.

Lookups and compactions that need the rows before a change share the copies on disk (docs/decisions/0033).
"""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import Any, Final
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa

from merganser.codec.deletion_vector import Positions
from merganser.files.index import Sought, column_filters
from merganser.files.read import DataFileReader, FileToRead
from merganser.lsm.held_memory import HeldMemory
from merganser.lsm.key_image import NOTHING, Asked, Found, IntegerImage, equal
from merganser.lsm.lookup_copy import Copy, CopyWriter, DamagedCopyError
from merganser.lsm.section import SectionReader
from merganser.lsm.stored_keys import found_in, narrowed
from merganser.meta.data_file import DataFile
from merganser.meta.table_def import TableDef
from merganser.options import read as r
from merganser.options import write as w
from merganser.rules.compacting import looks_up, publishes_each_record
from merganser.schema import types as t
from merganser.schema.arrow import nullable_schema
from merganser.schema.evolve import Evolution
from merganser.schema.pieces import rows_at
from merganser.schema.table_schema import SEQUENCE_NUMBER, VALUE_KIND
from merganser.storage.env import Env
from merganser.storage.local_copies import LocalCopies
from merganser.values import dataclass

_SMALL_ROWS: Final = 1 << 16
_SMALL_BYTES: Final = 4 << 20
"""A file that is smaller in both is held in memory as a whole from the first lookup on."""
_READ_ROWS: Final = 1 << 16
_SHARE_AT_ONCE: Final = 64
"""If one in so many rows of a file is taken at once, hardly a page of it is left out."""
_FILES_MAX: Final = 4096
"""So many files the compactions of a table hold open at most: each is a few hundred bytes, and a mapping."""
_FILE_BYTES: Final = 1000
"""Bytes of a file that compactions remember, about, without its copy: copies have limits of their own."""


class NotAtOnceError(Exception):
    """One key cannot be looked up by itself; the way for many keys answers. No caller of a lookup sees this error."""


@dataclass
class Chosen:
    """Columns that lookups return.

    Attributes:
        fields, schema: the columns.
        batches: of copies that were asked for one key, by batch: these columns and the kinds of the rows. A copy that
            the memory lets go leaves from here, too.
    """

    fields: tuple[t.Field, ...]
    schema: pa.Schema
    batches: WeakKeyDictionary[Copy, dict[int, tuple[pa.RecordBatch, Any]]] = field(default_factory=WeakKeyDictionary)

    @cached_property
    def nothing(self) -> pa.Table:
        """No rows."""
        return self.schema.empty_table()


class HeldFile:
    """A data file of a table with a key. Threads may share it.

    Args:
        reader: reads files of its bucket as the table has them now, deleted rows included.
        env: holds what is known of file indexes.
        file: the data file.
        copies: the copies on disk; None: none are made.
        memory: those of small files.
        at_once: make the copy at the first lookup.
        comes_back: also when many rows are taken at once, since it will be asked again.
    """

    def __init__(
        self,
        reader: SectionReader,
        env: Env,
        file: DataFile,
        copies: LocalCopies | None,
        memory: HeldMemory,
        *,
        at_once: bool,
        comes_back: bool = False,
    ) -> None:
        self.file = file
        self._comes_back = comes_back
        self._env = env
        self.target: FileToRead = reader.target(file)
        self._reader = reader
        self._copies = copies
        self._memory = memory
        self._at_once = at_once
        self._copy: Copy | None = None
        self._keys_read = self._rows_read = 0
        self._lock = threading.Lock()
        self._evolutions: dict[tuple[t.Field, ...], tuple[Evolution, list[str]]] = {}
        self._deleted: Positions | None = None
        by_id = {field.id: field for field in self.target.fields}
        own = [reader.table.schema.field(name) for name in reader.table.key]
        stored = [by_id.get(field.id) for field in own]
        self._key: tuple[t.Field, ...] | None = None
        if all(old is not None and old.type == field.type for old, field in zip(stored, own, strict=True)):
            self._key = tuple(old for old in stored if old is not None)

    @property
    def is_small(self) -> bool:
        """Whether it is held in memory."""
        return self.file.row_count <= _SMALL_ROWS and self.file.size <= _SMALL_BYTES

    @property
    def has_copy(self) -> bool:
        """Whether a copy on disk is there already."""
        if self._copy is None and not self.is_small and self._key is not None and self._copies is not None:
            with self._lock:
                name = self._copies.name(self.target.path, self.file.size)
                self._copy = self._copy or self._opened(self._copies, name)
        return self._copy is not None and not self.is_small

    def serves(self, table: TableDef) -> bool:
        """Return whether it answers for a table as that is now."""
        return self._reader.table.schema.id == table.schema.id

    def find(self, asked: Asked) -> Found:
        """Return which keys have a row here, and where.

        Raises:
            FormatError: the file is damaged or missing.
        """
        copy = self._ready(self._keys_read)
        if copy is None:
            return self._found_in_file(asked)
        try:
            which, at = copy.image.find(asked)
            if len(which) and not isinstance(copy.image, IntegerImage):  # different keys may share a hash
                names = [field.name for field in self._key or ()]
                held = copy.take(at, names)
                same = equal([held.column(name).combine_chunks() for name in names], asked, which)
                which, at = which[same], at[same]
        except DamagedCopyError:
            self._forget()
            return self.find(asked)
        return which, at

    def take(self, positions: Positions, fields: Sequence[t.Field]) -> pa.Table:
        """Return rows: `fields`, `_SEQUENCE_NUMBER` and `_VALUE_KIND`.

        Args:
            positions: of the rows, in any order.
            fields: columns of the table.

        Raises:
            FormatError: the file is damaged or missing.
        """
        many = self._comes_back and len(positions) * _SHARE_AT_ONCE >= self.file.row_count
        copy = self._ready(self.file.row_count if many else self._rows_read)
        if copy is None:
            return self._taken_from_file(positions, fields)
        wanted = tuple(fields)
        known = self._evolutions.get(wanted)
        if known is None:
            evolution = self.target.evolution(wanted)
            known = evolution, [*(old.name for old in evolution.stored), SEQUENCE_NUMBER.name, VALUE_KIND.name]
            self._evolutions[wanted] = known
        evolution, names = known
        try:
            rows = copy.take(positions, names)
        except DamagedCopyError:
            self._forget()
            return self.take(positions, fields)
        if len(evolution.unchanged) == len(wanted):
            return rows.rename_columns([*(field.name for field in wanted), *names[-2:]])
        made = evolution.apply(rows.select(names[:-2]), rows.num_rows)
        for name in names[-2:]:
            made = made.append_column(name, rows.column(name))
        return made

    def one(self, integer: int, deleted: Positions | None, chosen: Chosen) -> pa.RecordBatch | bool | None:
        """Return the row of a key that is one number: all columns that are asked for.

        Args:
            integer: the key, as `IntegerImage` has it.
            deleted: rows that are deleted.
            chosen: the columns.

        Returns:
            The row; False: the newest row of the key here is a retraction; None: the file has no row of the key.

        Raises:
            NotAtOnceError: the file, or these columns of it, cannot be read this way.
        """
        copy = self._ready(self._keys_read)
        if copy is None or not isinstance(copy.image, IntegerImage):
            raise NotAtOnceError
        position = copy.image.place(integer)
        if position < 0:
            return None
        if deleted is not None:
            at = int(deleted.searchsorted(position))
            if at < len(deleted) and int(deleted[at]) == position:
                return None
        number, row = copy.place(position)
        held = chosen.batches.get(copy)
        if held is None:
            held = chosen.batches.setdefault(copy, {})
        known = held.get(number)
        if known is None:
            evolution = self.target.evolution(chosen.fields)
            if len(evolution.unchanged) < len(chosen.fields):
                raise NotAtOnceError
            try:
                batch = copy.batch(number)
            except DamagedCopyError:
                self._forget()
                raise NotAtOnceError from None
            columns = [batch.column(old.name) for old in evolution.stored]
            rows = pa.RecordBatch.from_arrays(columns, schema=chosen.schema)
            known = held[number] = rows, batch.column(VALUE_KIND.name).to_numpy()
        if known[1][row] & 1:
            return False
        return known[0].slice(row, 1)

    def _ready(self, rows_read: int) -> Copy | None:
        """Return the copy; None: the file is read as it lies.

        Args:
            rows_read: how many of its rows were decoded for earlier calls of this sort, or would be for this one.
        """
        if self._key is None:
            return None
        if self._copy is not None:
            return self._copy
        if self.is_small:
            return self._held_in_memory()
        if self._copies is None:
            return None
        with self._lock:
            if self._copy is None:
                name = self._copies.name(self.target.path, self.file.size)
                self._copy = self._opened(self._copies, name)
                if self._copy is None and (self._at_once or 2 * rows_read >= self.file.row_count):
                    made = self._copies.add(name, self._write) is not None
                    self._env.release_memory()  # what decoding took: lookups hold little beside the copies
                    self._copy = self._opened(self._copies, name) if made else None
                    if self._copy is None:
                        self._copies = None
            return self._copy

    def _opened(self, copies: LocalCopies, name: str) -> Copy | None:
        """Return the copy that another lookup made; None: there is none. A damaged one is removed."""
        data = copies.open(name)
        try:
            return None if data is None else Copy(data)
        except DamagedCopyError:
            copies.drop(name)
            return None

    def _held_in_memory(self) -> Copy:
        found = self._memory.get(self.target.path)
        if found is None:
            with self._lock:
                found = self._memory.get(self.target.path)
                if found is None:
                    sink = pa.BufferOutputStream()
                    self._write(sink.write)
                    found = Copy(sink.getvalue())
                    self._memory.put(self.target.path, found)
        return found

    def _forget(self) -> None:
        """Drop a copy that is damaged; the next lookup makes it again."""
        with self._lock:
            self._copy = None
            self._at_once = True
            if self._copies is not None:
                self._copies.drop(self._copies.name(self.target.path, self.file.size))

    def _write(self, write: Callable[[pa.Buffer | bytes], object]) -> None:
        assert self._key is not None
        fields = self.target.fields
        copy = _writer(fields, self._key, write)
        with contextlib.closing(
            DataFileReader(
                self._reader.storage,
                FileToRead(self.target.path, self.file, fields, self.file.schema_id),
                columns=fields,
                sequence=True,
                kind=True,
                notes=False,
            )
        ) as source:
            while (rows := source.read(_READ_ROWS)) is not None:
                copy.add(rows)
        copy.close()

    def _found_in_file(self, asked: Asked) -> Found:
        some = self._unless_denied(asked)
        if not len(some):
            return NOTHING
        near = asked if len(some) == len(asked) else asked.take(some)
        with contextlib.closing(narrowed(self._reader, self.file, near)) as opened:
            self._keys_read += opened.rows
            which, at = found_in(opened, self._reader, near)
        return some[which], at

    def _unless_denied(self, asked: Asked) -> Positions:
        """Return which keys the Bloom filters of the file leave. As in reads, only those of today's schema count."""
        table = self._reader.table
        keep = np.ones(len(asked), np.bool_)
        if table.options.get(r.FILE_INDEX_READ) and self.file.schema_id == table.schema.id:
            filters = column_filters(self._env, self._reader.directory, self.file)
            for name, column, kind in zip(table.key, asked.columns, asked.kinds, strict=True):
                if name in filters:
                    keep &= filters[name].may_hold(Sought(column, kind))
        return np.flatnonzero(keep)

    def _taken_from_file(self, positions: Positions, fields: Sequence[t.Field]) -> pa.Table:
        rising, back = positions, None
        if not (positions[1:] > positions[:-1]).all():
            order = np.argsort(positions, kind="stable")
            is_new = np.diff(positions[order], prepend=-1) > 0
            rising = positions[order][is_new]
            back = np.empty(len(order), np.int64)
            back[order] = np.cumsum(is_new) - 1
        source = DataFileReader(
            self._reader.storage, self.target, columns=fields, sequence=True, kind=True, notes=False, only=rising
        )
        parts: list[pa.Table] = []
        with contextlib.closing(source):
            self._rows_read += source.rows
            while (rows := source.read(_READ_ROWS)) is not None:
                parts.append(rows)
        rows = pa.concat_tables(parts)
        return rows if back is None else rows_at(rows, back)


class HeldFiles:
    """The data files of one table that compactions of this process have asked for rows. Threads may share it."""

    def __init__(self, table: TableDef, env: Env) -> None:
        self._env = env
        copies = local_copies(table)
        self._copies = None if copies.is_inside(table.path) else copies  # lookups refuse the first
        self._memory = HeldMemory(table.options.get(r.LOOKUP_CACHE_MAX_MEMORY_SIZE))
        self._held: OrderedDict[str, HeldFile] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def weight(self) -> int:
        """About how many bytes of memory it takes, without lookup copies."""
        return (1 + len(self._held)) * _FILE_BYTES

    def of(self, reader: SectionReader, file: DataFile) -> HeldFile:
        """Return a file of a bucket that `reader` reads."""
        with self._lock:
            found = self._held.get(file.name)
            if found is None or not found.serves(reader.table):
                reader = replace(reader, vectors={}, only={}, held={}, expiry=None)
                found = HeldFile(reader, self._env, file, self._copies, self._memory, at_once=False, comes_back=True)
                self._held[file.name] = found
                if len(self._held) > _FILES_MAX:
                    self._held.popitem(last=False)
            self._held.move_to_end(file.name)
            return found

    def forget(self, names: Iterable[str]) -> None:
        """Let go of files that a compaction replaced, and of the memory that their copies are mapped to."""
        with self._lock:
            for name in names:
                self._held.pop(name, None)

    def read_by(self, reader: SectionReader, files: Sequence[DataFile]) -> SectionReader:
        """Return a reader that reads files from their copies on disk where these are there: they need no decoding."""
        copied: dict[str, HeldFile] = {}
        for file in files:
            if file.schema_id == reader.table.schema.id and file.name not in reader.vectors:
                held = self.of(reader, file)
                if held.has_copy:
                    copied[file.name] = held
        if not copied:
            return reader
        every = {file.name: np.arange(file.row_count) for file in files if file.name in copied}
        return replace(reader, only={**reader.only, **every}, held={**reader.held, **copied})


def held_files(table: TableDef, env: Env) -> HeldFiles:
    """Return what the process knows of the files of a table."""
    place = ("held", table.paths.metadata_root, tuple(sorted(table.options.items())))
    found: HeldFiles | None = env.cache.get(place)
    if found is None:
        found = HeldFiles(table, env)
    env.cache.put(place, found, found.weight)
    return found


def local_copies(table: TableDef) -> LocalCopies:
    """Return where the options of a table say that its lookup copies lie."""
    options = table.options
    return LocalCopies(
        options.get(r.LOOKUP_CACHE_DIRECTORY),
        max_bytes=options.get(r.LOOKUP_CACHE_MAX_DISK_SIZE),
        unused_seconds=options.get(r.LOOKUP_CACHE_FILE_RETENTION).total_seconds(),
    )


class CopyBeside:
    """The lookup copy of a data file, made while the file is written: then its rows need no decoding.

    A small file gets none, since it is held in memory. What goes wrong drops the copy, and lookups make it later.
    """

    def __init__(self, table: TableDef, copies: LocalCopies) -> None:
        self._copies = copies
        self._made = copies.begin()
        fields = table.schema.fields
        self._names = [*table.schema.names, SEQUENCE_NUMBER.name, VALUE_KIND.name]
        self._writer = _writer(fields, [table.schema.field(name) for name in table.key], self._made.write)
        self._rows = 0

    def add(self, rows: pa.Table) -> None:
        """Append rows as they lie in the file."""
        self._writer.add(rows.select(self._names))
        self._rows += rows.num_rows

    def finish(self, path: str, size: int) -> None:
        """Keep the copy of the file, which is whole."""
        with contextlib.closing(self._made):
            if self._rows > _SMALL_ROWS or size > _SMALL_BYTES:
                self._writer.close()
                self._made.finish(self._copies.name(path, size))

    def abort(self) -> None:
        """Drop the copy."""
        self._made.close()


def copies_beside(table: TableDef, rows: int) -> Callable[[], CopyBeside] | None:
    """Return what begins the copy of a new file of some rows; None: no later commit of this process will ask for it."""
    options = table.options
    if rows <= _SMALL_ROWS or options.get(w.WRITE_ONLY) or not (looks_up(options) or publishes_each_record(options)):
        return None
    copies = local_copies(table)
    return None if copies.is_inside(table.path) else lambda: CopyBeside(table, copies)


def _writer(
    fields: Sequence[t.Field], key: Sequence[t.Field], write: Callable[[pa.Buffer | bytes], object]
) -> CopyWriter:
    schema = nullable_schema((*fields, SEQUENCE_NUMBER, VALUE_KIND))
    return CopyWriter(schema, [field.name for field in key], [field.type for field in key], write)

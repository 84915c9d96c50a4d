"""Rows that lie in files -> Arrow tables: one reader for every way in, embedded, on Spark and on the command line.

    pattern -> `found_files` -> paths and where they live
    path    -> `RowFiles.portions` -> neighbouring rows of one file, with how many they are at most
    portion -> `RowFiles.tables` -> its rows, in order, a batch at a time

The extension says the format, unless the caller does; behind it an extension of a compression may stand for text
(`.csv.gz`). Of a directory, files in the directories below count too. What directories such as `day=1` say are columns.
Memory holds a batch: of Parquet some pages of a row group, of ORC a stripe, of text a block, of Arrow files one record
batch, which is decompressed as a whole, and of Avro the file.
"""

from __future__ import annotations

import contextlib
import fnmatch
import glob
import itertools
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from merganser.errors import FormatError, InvalidInputError, MerganserError, NotFoundError, a_type, check_flags
from merganser.ingest import parquet
from merganser.ingest.data_files import DataFileRows
from merganser.ingest.file_options import FORMATS, CsvFormat, FileOptions, file_options, file_rules
from merganser.ingest.folders import (
    HIVE_NULL,
    FolderEntry,
    Texts,
    entries_below,
    is_shown,
    known_format,
    partition_columns,
    partition_of,
    value_of,
)
from merganser.ingest.text import csv_tables, json_tables
from merganser.meta.table_def import TableDef
from merganser.options.registry import did_you_mean
from merganser.options.write import MERGE_SCHEMA, PARTITION_DEFAULT_NAME, TIMESTAMP_PRECISION
from merganser.parsing.rules import Rules
from merganser.schema import types as t
from merganser.storage.guarded import files_of
from merganser.storage.local import LocalStorage
from merganser.storage.open import storage_beside
from merganser.storage.protocol import Storage
from merganser.values import dataclass

_NO_PARTITIONS: Final = "pass partitions=False (--no-partitions): then directories say no columns."
_WILD: Final = re.compile(r"[*?\[]")
_COMPRESSIONS: Final = {"gz": "gzip", "gzip": "gzip", "zst": "zstd", "zstd": "zstd", "bz2": "bz2", "lz4": "lz4"}
_UNKNOWN_WIDTH: Final = 1 << 20
_ROWS_PER_BYTE_MAX: Final = {"gzip": 1 << 11, "zstd": 1 << 16, "bz2": 1 << 21, "lz4": 1 << 8}
"""Rows that a byte of compressed text can be at most: each has an end, and ends compress this well."""


@dataclass(frozen=True, slots=True)
class FoundFiles:
    """The files of a pattern; those of zero bytes, which have no rows, are left out.

    Attributes:
        storage: where they live.
        paths: in order.
        sizes: their bytes.
        partition_by: the columns that their directories (`day=1`) say.
    """

    storage: Storage
    paths: tuple[str, ...]
    sizes: tuple[int, ...]
    partition_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Portion:
    """Neighbouring rows of one file.

    Attributes:
        path: the file.
        groups: its first row group or record batch and the one behind the last; None: the whole file.
        rows: how many rows it has at most; exactly so many where it has groups.
        size_bytes: of their pages, before compression; of text, of the file.
    """

    path: str
    groups: tuple[int, int] | None
    rows: int
    size_bytes: int

    def joined(self, other: Portion) -> Portion | None:
        """Return this portion with the one right behind it as one; None: they do not touch."""
        own, behind = self.groups, other.groups
        if self.path != other.path or own is None or behind is None or own[1] != behind[0]:
            return None
        return replace(
            self,
            groups=(own[0], behind[1]),
            rows=self.rows + other.rows,
            size_bytes=self.size_bytes + other.size_bytes,
        )


@dataclass(frozen=True, slots=True)
class RowFiles:
    """Reads files of rows. It pickles, so that tasks carry it.

    Attributes:
        storage: where the files live.
        fields: columns of the table: what text in CSV and JSON files is read as.
        csv: how CSV files are laid out.
        names: columns of CSV files without a heading, by position.
        form: the format of all files; None: their names say it.
        partition_by: the columns that the directories of a file say.
        null: the second text of partition directories that stands for null.
        rules: how texts are read.
    """

    storage: Storage
    fields: tuple[t.Field, ...]
    csv: CsvFormat = field(default_factory=CsvFormat)
    names: tuple[str, ...] = ()
    form: str | None = None
    partition_by: tuple[str, ...] = ()
    null: str = HIVE_NULL
    rules: Rules = Rules(files=True)

    def schema(self, path: str) -> pa.Schema | None:
        """Return the columns of a file as `tables` gives them; None where only reading its rows tells them.

        Raises:
            FormatError: the file is damaged.
        """
        form = self._format(path)
        if form in ("csv", "json"):
            return None
        with self._errors(path), self.storage.open(path) as file:
            match form:
                case "parquet":
                    own = parquet.ParquetRows(file, path).schema
                case "arrow":
                    own = pa.ipc.open_file(file).schema.remove_metadata()
                case _:
                    own = DataFileRows(file, form, path).schema
        return self._with_partition(own.empty_table(), path).schema

    def check_directories(self, paths: Iterable[str]) -> None:
        """Check what the directories of files say, before a file is read.

        Raises:
            InvalidInputError: a text does not fit its column; names a file of the directory, the column and the text.
        """
        said = {(name, text): path for path in paths for name, text in self._partition(path)}
        for (name, text), path in said.items():
            self._value(text, name, path)

    def portions(self, path: str) -> list[Portion]:
        """Return the rows of a file in portions as small as they can be read, in order.

        Raises:
            FormatError: the file is damaged.
        """
        form = self._format(path)
        with self._errors(path), self.storage.open(path) as file:
            size = file.size()
            match form:
                case "csv" | "json":
                    return [Portion(path, None, size * _ROWS_PER_BYTE_MAX.get(_compression(path) or "", 1), size)]
                case "parquet":
                    rows = parquet.ParquetRows(file, path)
                    return [
                        Portion(path, (i, i + 1), count, size)
                        for i, (count, size) in enumerate(zip(rows.group_rows, rows.group_bytes, strict=True))
                    ]
                case "arrow":
                    counts = _batch_rows(file)
                case _:
                    counts = list(DataFileRows(file, form, path).group_rows)
            share = size // max(1, len(counts))
            return [Portion(path, (i, i + 1), count, share) for i, count in enumerate(counts)]

    def whole(self, path: str) -> Portion:
        """Return all rows of a file as one portion, without reading the file; the number of rows stays unknown."""
        return Portion(path, None, 0, 0)

    def tables(self, portion: Portion) -> Iterator[pa.Table]:
        """Yield the rows of a portion in order, a batch at a time.

        Raises:
            InvalidInputError: the extension is none that can be read, or a text is no value of its column; names the
                column, the row and the value.
            FormatError: the bytes are no such file.
        """
        for table in self._own_tables(portion):
            yield self._with_partition(table, portion.path)

    def _own_tables(self, portion: Portion) -> Iterator[pa.Table]:
        path, groups = portion.path, portion.groups
        form = self._format(path)
        match form:
            case "parquet":
                with self._errors(path), self.storage.open(path) as file:
                    yield from parquet.ParquetRows(file, path).tables(groups)
            case "csv":
                with self._errors(path):
                    own = self._own_fields(path)
                    names = self.names or tuple(column.name for column in own)
                    yield from csv_tables(path, lambda: self._text(path), own, self.csv, names, self.rules)
            case "json":
                with self._errors(path):
                    yield from json_tables(path, lambda: self._text(path), self._own_fields(path), self.rules)
            case "arrow":
                with self._errors(path), self.storage.open(path) as file:
                    batches = pa.ipc.open_file(file)
                    for i in range(*groups) if groups else range(batches.num_record_batches):
                        yield pa.Table.from_batches([batches.get_batch(i)]).replace_schema_metadata(None)
            case _:
                with self._errors(path), self.storage.open(path) as file:
                    yield from DataFileRows(file, form, path).tables(groups)

    def _format(self, path: str) -> str:
        form = self.form or known_format(path)
        if form is None:
            raise InvalidInputError(
                f"cannot read '{path}': its name does not say the format of its rows, which is one of "
                f"{', '.join(FORMATS)}. Nothing was written. Give it the extension of its format, or name the format "
                "of all files with the option 'format'.",
                path=path,
            )
        return form

    def _partition(self, path: str) -> Texts:
        """Return what the directories of a file say."""
        if not self.partition_by:
            return ()
        return tuple(said for said in _said_by(path, self.null) if said[0] in self.partition_by)

    def _own_fields(self, path: str) -> tuple[t.Field, ...]:
        said = dict(self._partition(path))
        return tuple(column for column in self.fields if column.name not in said)

    def _with_partition(self, table: pa.Table, path: str) -> pa.Table:
        """Return rows of a file with what its directories say, which takes the place of a column of that name."""
        for name, text in self._partition(path):
            found = self._value(text, name, path)
            if name in table.column_names:
                table = table.drop_columns([name])
            table = table.append_column(name, found.take(pa.array(np.zeros(table.num_rows, np.int64))))
        return table

    def _value(self, text: str | None, name: str, path: str) -> pa.Array:
        kind = next((column.type for column in self.fields if column.name == name), t.string())
        what, end = "cannot load files: the", "Nothing was written."
        return value_of(text, name, kind, self.rules, path=path, what=what, end=end)

    def _text(self, path: str) -> pa.NativeFile:
        file, compression = self.storage.open(path), _compression(path)
        return file if compression is None else pa.CompressedInputStream(file, compression)

    @contextlib.contextmanager
    def _errors(self, path: str) -> Iterator[None]:
        try:
            yield
        except (MerganserError, MemoryError):
            raise
        except (pa.ArrowException, OSError) as error:
            raise FormatError(f"cannot read the rows of '{path}': {error}", path=path) from error


def found_files(
    pattern: str | os.PathLike[str],
    options: FileOptions,
    beside: Storage,
    *,
    columns: Collection[str] = (),
    partitions: bool = True,
    null: str = HIVE_NULL,
) -> FoundFiles:
    """Return the files of a pattern, ordered by path; of a directory, those in it and in all directories below.

    Args:
        pattern: a path or URL, with `*`, `?`, `[a-z]` or `**` in it where several files or directories are meant.
        options: options of the store where they live.
        beside: the store of the table, whose options hold for files in it too.
        columns: those of the table. A directory above the first wildcard says a column only if it is one of them.
        partitions: directories such as `day=1` say columns.
        null: a second name of partition directories that stands for null.

    Raises:
        InvalidInputError: it is no pattern, or the directories of a file say other columns than those of others.
        NotFoundError: there is none.
        UnsupportedError: the directory is a table of another format.
    """
    pattern = os.fspath(pattern) if isinstance(pattern, os.PathLike) else pattern
    if not isinstance(pattern, str):
        raise InvalidInputError(
            f"cannot load files: files is {pattern!r:.100}, {a_type(pattern)}. Give one path or pattern as "
            "text, such as 'in/*.parquet'."
        )
    storage, place = storage_beside(beside, pattern, options.store)
    local = isinstance(files_of(storage), LocalStorage)
    what = f"cannot load the files of '{pattern}'"
    found, directories = _on_disk(place) if local else _in_store(storage, place)
    if not found and directories:
        below = [entries_below(storage, one, fetch=map, null=null, what=what, through=True) for one in directories]
        found = [(entry.path, entry.size) for entry in itertools.chain.from_iterable(below)]
        if not found:
            raise NotFoundError(
                f"{what}: no file lies in it or in a directory below, but for hidden ones. Check the path.",
                pattern=pattern,
            )
    if not found:
        where = f" (working directory '{os.getcwd()}')" if local else ""
        raise NotFoundError(f"no file matches '{pattern}'{where}.", pattern=pattern)
    found = sorted(one for one in found if one[1])
    said: tuple[str, ...] = ()
    if partitions:
        above = {name for name, _ in _said_by(f"{_fixed(place)}/*", null)} - set(columns)
        entries = [
            FolderEntry(path, size, 0, tuple(each for each in _said_by(path, null) if each[0] not in above))
            for path, size in found
        ]
        said = partition_columns(entries, what, _NO_PARTITIONS)
    return FoundFiles(storage, tuple(path for path, _ in found), tuple(size for _, size in found), said)


def _said_by(path: str, null: str) -> Texts:
    """Return what the directories of a file say, from the root of its store down."""
    directories = (path if "://" in path else os.path.abspath(path)).split("/")[:-1]
    return tuple(said for name in directories if (said := partition_of(name, null)) is not None)


def _fixed(pattern: str) -> str:
    """Return the directories of a pattern above its first wildcard; of a directory, itself and those above."""
    if "://" not in pattern:
        pattern = os.path.abspath(pattern)
    parts = pattern.split("/")
    plain = next((i for i, part in enumerate(parts) if _WILD.search(part)), len(parts))
    return "/".join(parts[:plain])


def _on_disk(pattern: str) -> tuple[list[tuple[str, int]], list[str]]:
    """Return the files that a pattern names, and the directories; what lies in a hidden directory is left out."""
    if os.path.isdir(pattern):
        return [], [os.path.abspath(pattern)]
    above = len(_fixed(pattern).split("/"))
    found = [
        path
        for path in glob.glob(pattern, recursive=True)
        if all(map(is_shown, [os.path.basename(path), *os.path.abspath(path).split("/")[above:]]))
    ]
    files = [(path, os.path.getsize(path)) for path in found if os.path.isfile(path)]
    return files, [os.path.abspath(path) for path in found if os.path.isdir(path)]


def _in_store(storage: Storage, pattern: str) -> tuple[list[tuple[str, int]], list[str]]:
    """Return the files that a pattern names in a store that knows no patterns, and the directories."""
    scheme, _, below = pattern.rstrip("/").partition("://")
    bucket, *parts = below.split("/")
    root = f"{scheme}://{bucket}"
    plain = next((i for i, part in enumerate(parts) if _WILD.search(part)), len(parts))
    if plain < len(parts):
        return _matching(storage, "/".join([root, *parts[:plain]]), parts[plain:])
    own = _matching(storage, "/".join([root, *parts[:-1]]), [glob.escape(parts[-1])])[0] if parts else []
    return own, [] if own else [pattern.rstrip("/")]


def _matching(storage: Storage, directory: str, parts: list[str]) -> tuple[list[tuple[str, int]], list[str]]:
    first, rest = parts[0], parts[1:]
    files: list[tuple[str, int]] = []
    directories: list[str] = []

    def add(more: tuple[list[tuple[str, int]], list[str]]) -> None:
        files.extend(more[0])
        directories.extend(more[1])

    if first == "**" and rest:
        add(_matching(storage, directory, rest))
    for entry in storage.list(directory):
        path = f"{directory}/{entry.name}"
        if not is_shown(entry.name) or not fnmatch.fnmatchcase(entry.name, "*" if first == "**" else first):
            continue
        if entry.is_directory and first == "**":
            add(_matching(storage, path, parts))
        elif entry.is_directory and rest:
            add(_matching(storage, path, rest))
        elif entry.is_directory:
            directories.append(path)
        elif not rest:
            files.append((path, entry.size))
    return files, directories


def _compression(path: str) -> str | None:
    return _COMPRESSIONS.get(path.rsplit(".", 1)[-1].lower())


def _batch_rows(file: pa.NativeFile) -> list[int]:
    """Return the rows of each record batch of an Arrow file: one column, the narrowest there is, is decoded for it."""
    schema = pa.ipc.open_file(file).schema
    widths = [column.type.bit_width if _is_fixed(column.type) else _UNKNOWN_WIDTH for column in schema]
    chosen = [widths.index(min(widths))] if widths else []
    batches = pa.ipc.open_file(file, options=pa.ipc.IpcReadOptions(included_fields=chosen))
    return [batches.get_batch(i).num_rows for i in range(batches.num_record_batches)]


def _is_fixed(kind: pa.DataType) -> bool:
    return pa.types.is_primitive(kind) and not pa.types.is_dictionary(kind)


def rows_of_files(
    pattern: str | os.PathLike[str],
    table: TableDef,
    beside: Storage,
    kinds: Any,
    columns: Sequence[str] | None,
    options: Mapping[str, Any] | None,
    time_zone: str | None = None,
    time_unit: str | Mapping[str, str] | None = None,
    *,
    partitions: bool = True,
) -> tuple[FoundFiles, RowFiles]:
    """Return the files of a pattern, and what reads their rows for a table.

    Args:
        pattern: see `found_files`.
        table: where the rows go.
        beside: its storage.
        kinds: name of the column with row kinds; files without a heading have it behind the others.
        columns: those that are supplied; None: all of the table.
        options: see `file_options`.
        time_zone, time_unit, partitions: see `Table.load`.

    Raises:
        InvalidInputError: the pattern is none, an option has no meaning, or directories say a column that the table
            lacks.
        NotFoundError: there is no file.
        UnsupportedError: it names a table of another format.
    """
    action = f"cannot load files into '{table.name}'"
    check_flags(action, partitions=partitions)
    said = file_options(options, action=action)
    known = [field.name for field in table.schema.user_fields]
    truncates = table.options.get(TIMESTAMP_PRECISION) == "truncate"
    rules = file_rules(said, time_zone, time_unit, known, action, truncates=truncates)
    null = table.options.get(PARTITION_DEFAULT_NAME)
    fields = table.schema.user_fields
    found = found_files(pattern, said, beside, columns=known, partitions=partitions, null=null)
    for name in found.partition_by:
        if name not in known and name != kinds and not table.options.get(MERGE_SCHEMA):
            raise InvalidInputError(
                f"{action}: directories of '{pattern}' say a column '{name}', which the table lacks. Nothing was "
                f"written. {did_you_mean(name, known)} Add the column, or {_NO_PARTITIONS}",
                column=name,
            )
    names = tuple(columns if columns is not None else (column.name for column in fields))
    names = tuple(name for name in names if name not in found.partition_by)
    if isinstance(kinds, str) and kinds not in names:
        names = (*names, kinds)
    return found, RowFiles(found.storage, fields, said.csv, names, said.form, found.partition_by, null, rules)

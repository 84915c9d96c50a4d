"""Folder: which files of a directory are data, and what the directories that they lie in say of them.

Hidden are, as for other engines, names that begin with a dot, and names that begin with an underscore unless they are
a partition (`_year=2024`). Directories called `name=value` are partitions, at any depth, and other directories only
group files. Names and values are escaped with `%XX`; `__HIVE_DEFAULT_PARTITION__` stands for null.

Some folders look like files of rows and are not: of a table of another format a part of the files has been replaced, or
its rows deleted, and only its own metadata says so. They are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias
from urllib.parse import unquote

from merganser.codec.data_format import FORMATS
from merganser.errors import InvalidInputError, NotFoundError, UnsupportedError
from merganser.storage.env import Env
from merganser.storage.paths import join
from merganser.storage.protocol import Entries, Storage

HIVE_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
"""The value of a partition directory that stands for null, as Hive and Spark write it."""

_Partition: TypeAlias = tuple[tuple[str, str | None], ...]
_EXTENSIONS: Final = {"parquet": "parquet", "parq": "parquet", "pqt": "parquet", "orc": "orc", "avro": "avro"}
_ICEBERG: Final = re.compile(r"(v\d+|\d+-[0-9a-f-]+)(\.gz)?\.metadata\.json(\.gz)?", re.ASCII)
_ACID: Final = re.compile(r"(base|delta|delete_delta)_\d+(_\d+)*(_v\d+)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class FolderFile:
    """One data file of a folder.

    Attributes:
        path: where it lies.
        format: `parquet`, `orc` or `avro`.
        size: bytes.
        modified_ms: epoch milliseconds of its last change; 0: the store keeps none.
        partition: the partition columns of its directories, outermost first, each with its text; None: null.
    """

    path: str
    format: str
    size: int
    modified_ms: int
    partition: _Partition


@dataclass(frozen=True, slots=True)
class Folder:
    """The data files of a directory, ordered by path.

    Attributes:
        storage: where they live.
        root: the directory.
        partition_by: the partition columns, outermost first.
    """

    storage: Storage
    root: str
    files: tuple[FolderFile, ...]
    partition_by: tuple[str, ...]


def folder_of(storage: Storage, env: Env, root: str, *, null: str, what: str) -> Folder:
    """Return the data files of a directory and of those below it.

    Args:
        storage: where the directory lives.
        env: whose threads ask the store.
        null: a second name of partition directories that stands for null.
        what: beginning of messages, such as "cannot migrate '/data/orders'".

    Raises:
        NotFoundError: there is no data file.
        InvalidInputError: files lie in directories of other partition columns than others, or are of no known format.
        UnsupportedError: the folder is a table of another format.
    """
    found: list[FolderFile] = []
    level: list[tuple[str, _Partition]] = [(root, ())]
    while level:
        below: list[tuple[str, _Partition]] = []
        for (directory, partition), entries in zip(
            level, env.fetch(lambda place: storage.list(place[0]), level), strict=True
        ):
            _refuse_tables(directory, entries, what)
            for entry in entries:
                path = join(directory, entry.name)
                if not _is_shown(entry.name):
                    continue
                if entry.is_directory:
                    more = partition_of(entry.name, null)
                    below.append((path, partition if more is None else (*partition, more)))
                else:
                    found.append(FolderFile(path, _format_of(path, what), entry.size, entry.modified_ms, partition))
        level = below
    if not found:
        raise NotFoundError(f"{what}: there are no data files in it. Check the path.", path=root)
    found.sort(key=lambda file: file.path)
    return Folder(storage, root, tuple(found), _partition_by(found, what))


def partition_of(name: str, null: str) -> tuple[str, str | None] | None:
    """Return column and text of a partition directory, None as its text for null; None: it is another directory."""
    column, sign, value = name.partition("=")
    if not sign or not column:
        return None
    return unquote(column), None if value in (HIVE_NULL, null) else unquote(value)


def _is_shown(name: str) -> bool:
    return not name.startswith(".") and (not name.startswith("_") or "=" in name)


def _format_of(path: str, what: str) -> str:
    name = path.rpartition("/")[2]
    extension = name.rpartition(".")[2].lower() if "." in name else ""
    if extension in _EXTENSIONS:
        return _EXTENSIONS[extension]
    raise InvalidInputError(
        f"{what}: '{path}' is no data file: its name ends in none of .{', .'.join(FORMATS)}. Nothing was changed. "
        "Move it elsewhere, or give it a name that begins with '_' or '.', and it is passed over. Rows of CSV and JSON "
        "files are written with table.load(...).",
        path=path,
    )


def _partition_by(files: Sequence[FolderFile], what: str) -> tuple[str, ...]:
    """Return the partition columns that all files have.

    Raises:
        InvalidInputError: two files have different ones, or one has a column twice.
    """
    first = files[0]
    columns = tuple(name for name, _ in first.partition)
    for file in files:
        own = tuple(name for name, _ in file.partition)
        if own != columns:
            raise InvalidInputError(
                f"{what}: '{first.path}' lies in {_listed(columns)}, and '{file.path}' in {_listed(own)}. Nothing was "
                "changed. All files of a table have the same partition columns. Migrate the folders one by one.",
                path=file.path,
            )
    if len(set(columns)) < len(columns):
        raise InvalidInputError(
            f"{what}: '{first.path}' lies in {_listed(columns)}, which names a column twice. Nothing was changed.",
            path=first.path,
        )
    return columns


def _listed(columns: Sequence[str]) -> str:
    return f"directories of {', '.join(map(repr, columns))}" if columns else "no directory of a partition"


def _refuse_tables(directory: str, entries: Entries, what: str) -> None:
    """Refuse a directory of a table, whose metadata says which of its files and rows count.

    Raises:
        UnsupportedError: it is one.
    """
    for kind, advice in _tables_of(entries):
        raise UnsupportedError(
            f"{what}: '{directory}' is a table of {kind}, so some of its files may have been replaced, and rows "
            f"deleted. Read as plain files they would come back. Nothing was changed. {advice}",
            path=directory,
        )


def _tables_of(entries: Entries) -> Iterator[tuple[str, str]]:
    directories = {entry.name for entry in entries if entry.is_directory}
    through = "Read it with {}, and write the rows to a table: table.write(rows), or ms.write(df, table) on Spark."
    if "_delta_log" in directories:
        yield "Delta Lake", through.format("its own library or Spark")
    if ".hoodie" in directories:
        yield "Hudi", through.format("its own library or Spark")
    if any(_ICEBERG.fullmatch(entry.name) for entry in entries if not entry.is_directory):
        yield "Iceberg", through.format("its own library or Spark")
    if any(_ACID.fullmatch(name) for name in directories):
        yield "Hive with transactions", through.format("Hive, or export it there")
    if {"schema", "snapshot"} <= directories or {"schema", "manifest"} <= directories:
        yield "Paimon", "It needs no migration: merganser.table(path) opens it, and catalog.clone(...) copies it."

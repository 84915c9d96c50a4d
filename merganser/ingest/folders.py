"""Folders of data: which files of a directory hold rows, and what the directories that they lie in say of them.

Hidden are, as for other engines, names that begin with a dot, names that begin with an underscore unless they are a
partition (`_year=2024`), and files that Hadoop is still copying. A file of zero bytes has no rows, whatever its format:
writers that were stopped, and some that had no rows, leave them. Directories called `name=value` are partitions. Names
and values are escaped with `%XX`; `__HIVE_DEFAULT_PARTITION__` stands for null.

Some folders look like files of rows and are not: of a table of another format a part of the files has been replaced, or
its rows deleted, and only its own metadata says so. They are refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeAlias
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from merganser.codec.data_format import format_of
from merganser.errors import InvalidInputError, UnsupportedError
from merganser.ingest.refusals import reason
from merganser.parsing.outcome import Read
from merganser.parsing.rules import Rules
from merganser.parsing.values import of_texts, readable
from merganser.schema import types as t
from merganser.schema.arrow import arrow_type
from merganser.storage.paths import join
from merganser.storage.protocol import Entries, Storage
from merganser.values import dataclass

HIVE_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
"""The value of a partition directory that stands for null, as Hive and Spark write it."""

EXTENSIONS: Final = {
    "parquet": "parquet",
    "parq": "parquet",
    "pqt": "parquet",
    "orc": "orc",
    "avro": "avro",
    "csv": "csv",
    "json": "json",
    "jsonl": "json",
    "ndjson": "json",
    "arrow": "arrow",
    "ipc": "arrow",
    "feather": "arrow",
}
"""The format that an extension of a file name stands for."""

Texts: TypeAlias = tuple[tuple[str, str | None], ...]
"""The partition columns of directories, outermost first, each with its text; None: null."""

Fetch: TypeAlias = Callable[[Callable[[str], Entries], Sequence[str]], Iterable[Entries]]
"""Lists directories, perhaps side by side."""

_COPYING: Final = "._COPYING_"
_ICEBERG: Final = re.compile(r"(v\d+|\d+-[0-9a-f-]+)(\.gz)?\.metadata\.json(\.gz)?", re.ASCII)
_ACID: Final = re.compile(r"(base|delta|delete_delta)_\d+(_\d+)*(_v\d+)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class FolderEntry:
    """A file below a directory.

    Attributes:
        path: where it lies.
        size: bytes.
        modified_ms: epoch milliseconds of its last change; 0: the store keeps none.
        partition: what its directories say.
    """

    path: str
    size: int
    modified_ms: int
    partition: Texts


def is_shown(name: str) -> bool:
    """Return whether a name is one of data, not hidden."""
    return not name.startswith(".") and (not name.startswith("_") or "=" in name) and not name.endswith(_COPYING)


def known_format(path: str) -> str | None:
    """Return the format that the name of a file says; None: it says none that is known."""
    try:
        return EXTENSIONS.get(format_of(path))
    except InvalidInputError:
        return None


def entries_below(
    storage: Storage, root: str, *, fetch: Fetch, null: str, what: str, through: bool
) -> list[FolderEntry]:
    """Return the files of a directory and of the directories below it, ordered by path; some may have zero bytes.

    Args:
        storage: where the directory lives.
        fetch: lists directories.
        null: a second name of partition directories that stands for null.
        what: beginning of messages, such as "cannot migrate '/data/orders'".
        through: look into directories that are no partitions, too.

    Raises:
        UnsupportedError: the folder is a table of another format.
    """
    found: list[FolderEntry] = []
    level: list[tuple[str, Texts]] = [(root, ())]
    while level:
        below: list[tuple[str, Texts]] = []
        listed = fetch(storage.list, [directory for directory, _ in level])
        for (directory, partition), entries in zip(level, listed, strict=True):
            _refuse_tables(directory, entries, what)
            for entry in entries:
                path = join(directory, entry.name)
                if not is_shown(entry.name):
                    continue
                if not entry.is_directory:
                    found.append(FolderEntry(path, entry.size, entry.modified_ms, partition))
                    continue
                more = partition_of(entry.name, null)
                if more is not None:
                    below.append((path, (*partition, more)))
                elif through:
                    below.append((path, partition))
        level = below
    found.sort(key=lambda file: file.path)
    return found


def partition_of(name: str, null: str) -> tuple[str, str | None] | None:
    """Return column and text of a partition directory, None as its text for null; None: it is another directory."""
    column, sign, value = name.partition("=")
    if not sign or not column:
        return None
    return unquote(column), None if value in (HIVE_NULL, null) else unquote(value)


def partition_columns(files: Sequence[FolderEntry], what: str, way_out: str = "") -> tuple[str, ...]:
    """Return the partition columns that all files have; of no files, none.

    Args:
        what: see `entries_below`.
        way_out: what else a caller may do than to name fewer folders, such as "pass partitions=False."

    Raises:
        InvalidInputError: two files have different ones, or one has a column twice.
    """
    if not files:
        return ()
    first = files[0]
    columns = tuple(name for name, _ in first.partition)
    for file in files:
        own = tuple(name for name, _ in file.partition)
        if own != columns:
            raise InvalidInputError(
                f"{what}: '{first.path}' lies in {_listed(columns)}, and '{file.path}' in {_listed(own)}. Nothing was "
                "changed. All files of a table have the same partition columns. Name the folders one by one"
                f"{', or ' + way_out if way_out else '.'}",
                path=file.path,
            )
    if len(set(columns)) < len(columns):
        raise InvalidInputError(
            f"{what}: '{first.path}' lies in {_listed(columns)}, which names a column twice. Nothing was changed.",
            path=first.path,
        )
    return columns


def value_of(
    text: str | None, name: str, kind: t.DataType, rules: Rules, *, path: str, what: str, end: str
) -> pa.Array:
    """Return the value of a partition directory, in an array of its own, as a field of a CSV file would be read.

    Binary columns take the bytes of the text, as Hive, Spark and merganser name directories of them.

    Args:
        text: as `Texts` has it.
        name, kind: the column.
        rules: how texts are read.
        path: a file in the directory.
        what: beginning of the message of a text that does not fit, such as "cannot migrate '/data/orders': the".
        end: the end of that message: what was left undone, and what to do.

    Raises:
        InvalidInputError: the text does not fit the type.
    """
    kind = kind.with_nullable(True)
    if isinstance(kind, t.Binary | t.VarBinary):
        data = None if text is None else text.encode()
        if data is None or len(data) <= kind.length:
            return pa.array([data], arrow_type(kind))
        found = Read(pa.nulls(1), np.ones(1, bool), "")
    elif t.is_nested(kind) or not readable(kind):
        found = Read(pa.nulls(1, arrow_type(kind)), np.full(1, text is not None), "")
    else:
        found = of_texts(pa.array([text], pa.string()), kind, rules.of(name))
    if not found.bad[0]:
        return found.values
    why = found.why[0].as_py() if isinstance(found.why, pa.Array) else found.why
    raise InvalidInputError(
        f"{what} directory of '{path}' says that '{name}' is '{text}', which does not fit {kind}{reason(why)}. {end}",
        column=name,
        path=path,
        value=text,
    )


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

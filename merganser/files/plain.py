"""Data files that another engine may decode by itself: to the same rows that our reader returns.

DuckDB reads Parquet on its own, decodes only what a query needs of it, and knows how many rows it has. It may do so
where nothing of what our reader does beside decoding is needed: the columns are stored in the types that they have in
the table, under names that only one of them has, and no calendar has to be told. Pages are verified here, the first
time that this process uses a column of a file, since DuckDB does not look at their checksums.

Format: "reading an old file". Docs: decision 0076.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from dataclasses import field
from typing import Any, Final, Literal

from merganser.codec.data_format import format_of
from merganser.codec.parquet import ParquetFileReader
from merganser.errors import InvalidInputError, UnsupportedError
from merganser.files.masks import Vector
from merganser.files.read import FileToRead, open_file
from merganser.schema import types as t
from merganser.schema.table_schema import VALUE_KIND
from merganser.storage.env import Env
from merganser.storage.guarded import files_of
from merganser.storage.hdfs import HdfsStorage
from merganser.storage.local import LocalStorage
from merganser.values import dataclass

Engine = Literal["duckdb", "spark"]

_REACHED: Final[dict[Engine, Any]] = {"duckdb": LocalStorage, "spark": LocalStorage | HdfsStorage}
"""The stores whose files an engine reads under their paths."""

_WEIGHT: Final = 4096
_MICROS: Final = 6
_PATTERN: Final = re.compile(r"[*?\[\]{}]")
"""What other engines read as a pattern of names."""

_UNSEEN: Final = ("_", ".")
"""How names begin of files that Spark passes over without a word."""

_ROWS_MAX: Final = (1 << 31) - 1
"""Most rows of a file: DuckDB counts bits by 32-bit integers."""

FILE_ROW: Final = "file_row_number"
FILE_INDEX: Final = "file_index"
"""Columns that DuckDB adds; a file with a column of this name is left to our reader."""


@dataclass(frozen=True, slots=True)
class PlainFile:
    """A Parquet file that may be decoded as it stands.

    Attributes:
        target: the file.
        names: of each column asked for, the name in the file; None: the file lacks it, and it is null.
        inserts: whether no row is a retraction, so that the column of kinds need not be read.
        is_folded: whether a writer made it that keeps one version of a key in a file.
    """

    target: FileToRead
    names: tuple[str | None, ...]
    inserts: bool
    is_folded: bool

    @property
    def path(self) -> str:
        """Where it lies."""
        return self.target.path

    @property
    def rows(self) -> int:
        """Number of stored rows."""
        return self.target.file.row_count

    @property
    def vector(self) -> Vector | None:
        """Its deletion vector."""
        return self.target.vector

    @property
    def key_bytes(self) -> int:
        """Bytes of its keys in memory, estimated by its first and its last one."""
        return self.rows * max(len(self.target.file.min_key), len(self.target.file.max_key))


@dataclass(slots=True)
class _Facts:
    """What the footer of a file says, and which of its columns were verified."""

    columns: dict[str, bool]
    inserts: bool
    is_folded: bool
    sound: set[str] = field(default_factory=set)


def plain_file(
    env: Env, target: FileToRead, columns: Sequence[t.Field], *, kinds: bool, by: Engine = "duckdb"
) -> PlainFile | None:
    """Return how a file may be decoded by another engine; None: only our reader returns its rows.

    None too where the file is missing or damaged: our reader then says so.

    Args:
        columns: of today's schema, which are read.
        kinds: the rows have kinds, which are looked at.
        by: who decodes it. Spark verifies pages itself.
    """
    if not isinstance(files_of(env.storage), _REACHED[by]):
        return None
    if _PATTERN.search(target.path) or target.is_newer or target.file.row_count > _ROWS_MAX:
        return None
    if by == "spark" and target.path.rpartition("/")[2].startswith(_UNSEEN):
        return None
    if not all(_is_plain(field.type) for field in columns):
        return None
    with contextlib.suppress(InvalidInputError):
        if format_of(target.file.name) != "parquet":
            return None
    try:
        evolution = target.evolution(columns)
    except UnsupportedError:
        return None
    if len(evolution.unchanged) < len(evolution.stored):
        return None
    key = ("plain", by, target.path)
    facts: _Facts | None = env.cache.get(key)
    names = [None if source is None else evolution.stored[source].name for source in evolution.sources]
    system = [VALUE_KIND] if kinds else []
    wanted = [*evolution.stored, *system]
    if facts is None or not {f.name for f in wanted} <= facts.sound:
        facts = _looked_at(env, target, wanted, facts, by)
        if facts is None:
            return None
        env.cache.put(key, facts, _WEIGHT)
    if not all(facts.columns.get(f.name) for f in wanted):
        return None
    if {name for name, _ in target.constants} & {field.name for field in columns} - facts.columns.keys():
        return None
    return PlainFile(target, tuple(names), facts.inserts or not kinds, facts.is_folded)


def _is_plain(kind: t.DataType) -> bool:
    if isinstance(kind, t.Timestamp | t.LocalZonedTimestamp):
        return kind.precision <= _MICROS
    return not t.is_nested(kind) and not isinstance(kind, t.Time)


def _looked_at(
    env: Env, target: FileToRead, wanted: Sequence[t.Field], known: _Facts | None, by: Engine
) -> _Facts | None:
    """Return the facts of a file, once the pages of some columns are verified; None: it is damaged, or not plain."""
    reader = None
    try:
        reader = open_file(env.storage, target)
        if not isinstance(reader, ParquetFileReader):
            return None
        lower = [name.lower() for name in reader.column_names]
        if len(set(lower)) < len(lower) or {FILE_INDEX, FILE_ROW} & set(lower):
            return None
        columns = dict(known.columns) if known else dict.fromkeys(reader.column_names, False)
        columns |= {f.name: reader.is_plain(f) for f in wanted if f.name in columns}
        fresh = [f for f in wanted if columns.get(f.name) and (known is None or f.name not in known.sound)]
        if not (reader.spark_decodes(fresh) if by == "spark" else reader.is_undamaged(fresh)):
            return None
        sound = {*(known.sound if known else ()), *(f.name for f in wanted)}
        return _Facts(columns, reader.all_zero(VALUE_KIND.name), reader.is_folded, sound)
    except Exception:
        return None
    finally:
        if reader is not None:
            reader.close()

"""DataFile: what a manifest knows of one file.

Format: section "data manifest record", `_FILE`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import fields
from itertools import repeat
from typing import Any, Final, TypeVar

from merganser.codec.stats import SimpleStats
from merganser.values import dataclass

T = TypeVar("T")

SOURCE_APPEND: Final = 0
SOURCE_COMPACT: Final = 1

ADD: Final = 0
DELETE: Final = 1


@dataclass(frozen=True, slots=True)
class DataFile:
    """One data file.

    Attributes:
        name: file name; the directory follows from partition and bucket, or see `external_path`.
        size: bytes.
        row_count: physical rows, retractions included.
        min_key, max_key: serialized key of the first and the last row; empty rows for append tables.
        key_stats: over the key columns (primary key less partition columns).
        value_stats: over all columns, or over `value_stats_columns`.
        min_sequence, max_sequence: sequence numbers of its rows.
        schema_id: the schema it was written with; its column names are that schema's.
        level: 0 is youngest.
        extra_files: names of files beside it that belong to it, such as its index.
        delete_row_count: rows of kind -U or -D; None when the writer did not say.
        embedded_index: its index, if that lies in the manifest.
        source: 0 written by a user, 1 by a compaction.
        value_stats_columns: None: all columns in schema order; else these, in this order.
        external_path: whole path when the file lies outside the table.
        checksum: the CRC-32 of the whole file; None: not noted. This and the next are no fields of the record:
            manifests have them in their header.
        footer_checksum: the CRC-32 of the footer of a Parquet file, likewise.
    """

    name: str
    size: int
    row_count: int
    min_key: bytes
    max_key: bytes
    key_stats: SimpleStats
    value_stats: SimpleStats
    min_sequence: int
    max_sequence: int
    schema_id: int
    level: int
    extra_files: tuple[str, ...] = ()
    creation_time_ms: int | None = None
    delete_row_count: int | None = None
    embedded_index: bytes | None = None
    source: int | None = None
    value_stats_columns: tuple[str, ...] | None = None
    external_path: str | None = None
    first_row_id: int | None = None
    write_columns: tuple[str, ...] | None = None
    write_columns_sequences: tuple[int, ...] | None = None
    checksum: int | None = None
    footer_checksum: int | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Its name and those of the files that lie beside it and go with it, such as its index."""
        return (self.name, *self.extra_files)


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """One data file added (0) or removed (1) in a bucket of a partition.

    Attributes:
        partition: serialized row of the partition values.
        total_buckets: the number of buckets when it was written; -1 dynamic or unaware, -2 postponed.
    """

    kind: int
    partition: bytes
    bucket: int
    total_buckets: int
    file: DataFile

    @property
    def identity(self) -> tuple[object, ...]:
        """The identity of the file. The level is part of it, so a move to another level is a delete and an add."""
        file = self.file
        return (
            self.partition,
            self.bucket,
            file.level,
            file.name,
            file.extra_files,
            file.embedded_index,
            file.external_path,
        )


def made(kind: type[T], count: int, columns: Sequence[Sequence[Any]]) -> list[T]:
    """Return `count` values of a frozen dataclass with slots, made of columns: one for each of its fields, in order.

    What its constructor would do value by value and field by field, each field through a guard against changes,
    is done here a column at a time. Of a table with fifty thousand files that is a third of planning.
    """
    values = [*map(object.__new__, repeat(kind, count))]
    for field, column in zip(fields(kind), columns, strict=True):  # type: ignore[arg-type]
        if len(column) != count:
            raise ValueError(f"{field.name} of {len(column)} values, not {count}")
        deque(map(getattr(kind, field.name).__set__, values, column), maxlen=0)
    return values


def plain_name(name: str) -> bool:
    """Return whether text from a file may name another file of the table: it leads to no other directory."""
    return bool(name) and "/" not in name and "\0" not in name and name not in (".", "..")

"""The pickled form of a commit message: plain values with a version, no class and no field by name.

    version, release of merganser that wrote it, partition, bucket, total buckets,
    added, removed, index added, index removed, changelog, keys (in version 2)

A file is a tuple of its fields in the order of `DataFile`, without those at its end that are None, and an index file
likewise. The first two values never change their meaning, so any release can name the version of a message. Another
order of fields, or a new field that is not optional and at the end, needs the next version.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any, Final, TypeAlias

import merganser
from merganser.codec.stats import SimpleStats
from merganser.errors import UnsupportedError
from merganser.meta.data_file import DataFile
from merganser.meta.index_manifest import IndexEntry, VectorRange

VERSION: Final = 1
VERSION_WITH_KEYS: Final = 2
"""Of messages that name the index files that chose their buckets: a release that cannot check them must not commit."""

Packed: TypeAlias = tuple[Any, ...]
_of_file = attrgetter(*(field.name for field in fields(DataFile)))
_of_stats = attrgetter(*(field.name for field in fields(SimpleStats)))
_of_index = attrgetter(*(field.name for field in fields(IndexEntry)))
_of_vector = attrgetter(*(field.name for field in fields(VectorRange)))
_STATS: Final = [at for at, field in enumerate(fields(DataFile)) if field.name in ("key_stats", "value_stats")]
_VECTORS: Final = [field.name for field in fields(IndexEntry)].index("vectors")


def pack_files(files: Iterable[DataFile]) -> Packed:
    """Return files as plain values."""
    return tuple(_packed_file(file) for file in files)


def unpack_files(packed: Iterable[Packed]) -> tuple[DataFile, ...]:
    """Return files of plain values."""
    return tuple(_file_of(values) for values in packed)


def pack_indexes(entries: Iterable[IndexEntry]) -> Packed:
    """Return index files as plain values."""
    return tuple(_packed_index(entry) for entry in entries)


def unpack_indexes(packed: Iterable[Packed]) -> tuple[IndexEntry, ...]:
    """Return index files of plain values."""
    return tuple(_index_of(values) for values in packed)


def check_version(version: int, release: str) -> None:
    """Refuse a message of a version that this release does not know, instead of guessing what its values are.

    Raises:
        UnsupportedError: names both releases.
    """
    if version not in (VERSION, VERSION_WITH_KEYS):
        raise UnsupportedError(
            f"cannot read a commit message of version {version}: a task with merganser {release} wrote it, and the "
            f"driver with merganser {merganser.__version__} reads versions up to {VERSION_WITH_KEYS}. Nothing of it is "
            "committed. Install one release of merganser on the driver and on all workers, and write again.",
            version=release,
        )


def _packed_file(file: DataFile) -> Packed:
    values = [*_of_file(file)]
    for at in _STATS:
        values[at] = _of_stats(values[at])
    return _trimmed(values)


def _file_of(packed: Packed) -> DataFile:
    values = [*packed]
    for at in _STATS:
        values[at] = SimpleStats(*values[at])
    return DataFile(*values)


def _packed_index(entry: IndexEntry) -> Packed:
    values = [*_of_index(entry)]
    values[_VECTORS] = tuple(_of_vector(vector) for vector in entry.vectors)
    return _trimmed(values)


def _index_of(packed: Packed) -> IndexEntry:
    values = [*packed]
    values[_VECTORS] = tuple(VectorRange(*vector) for vector in values[_VECTORS])
    return IndexEntry(*values)


def _trimmed(values: Sequence[Any]) -> Packed:
    """Return values without those at the end that are None; such a field is None where it is left out."""
    end = len(values)
    while values[end - 1] is None:
        end -= 1
    return tuple(values[:end])

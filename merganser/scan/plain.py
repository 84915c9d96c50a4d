"""A scan -> files that another engine may decode by itself, and the rest, which only our reader can read.

Rows that stand as they are stored are read from their files. Of a section that has to be merged, the newest version of
a key is its row, if the table deduplicates by arrival. Then a stored row counts unless a newer file of the section has
its key, which an engine finds by joining keys alone: the sequence numbers of files whose keys may meet do not meet, as
their manifest entries say, and each file has one version of a key.

Docs: decision 0076.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Final

import numpy as np
import pyarrow as pa

from merganser.codec.binary_row import deserialize_columns
from merganser.files.plain import Engine, PlainFile, plain_file
from merganser.files.read import FileToRead, is_small
from merganser.lsm.levels import dense_ranks
from merganser.lsm.section import SectionReader
from merganser.merge.deduplicate import Deduplicate
from merganser.merge.rules import merge_of
from merganser.meta.data_file import DataFile
from merganser.scan.plan import Plan
from merganser.scan.scan import Scan
from merganser.scan.source import Increment
from merganser.scan.split import Split, What
from merganser.schema import types as t
from merganser.values import dataclass

_DEPTH_MAX: Final = 8
"""Most files on top of one another: each depth is joined with the keys of those above it."""

_SMALL_MAX: Final = 64
"""Most small files that are opened one by one; our reader reads many at once."""

_FILES_MAX: Final = 2000
"""Most files of a section, whose key ranges are compared with one another."""


@dataclass(frozen=True)
class FileGroup:
    """Files that are read alike.

    Attributes:
        files: the files.
        kinds: whether rows may be retractions, which do not count.
        newer: by path of a file, the files whose keys hide rows of it. None of them is one of `files`.
    """

    files: tuple[PlainFile, ...]
    kinds: bool
    newer: Mapping[str, tuple[PlainFile, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class PlainScan:
    """The rows of a scan in two parts.

    Attributes:
        groups: files to decode; their rows count whether or not the filter of the scan keeps them.
        key: the columns by which newer files hide rows, named alike in all files.
        rest: a scan of what the files do not have; None: nothing.
    """

    scan: Scan
    groups: Sequence[FileGroup]
    key: Sequence[str]
    rest: Rest | None


@dataclass(frozen=True)
class Rest:
    """A part of a plan, with the verbs of a scan."""

    scan: Scan
    part: Plan

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows."""
        return self.scan.schema

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows."""
        yield from self.scan.batches_of(lambda: self.part)


def plain_scan(scan: Scan, planned: Plan | None = None, by: Engine = "duckdb") -> PlainScan | None:
    """Return the two parts of a scan; None: our reader reads all of it.

    Args:
        planned: the plan of the scan; None: it is made now.
        by: who decodes the files.
    """
    table = scan.table
    if isinstance(scan.source, Increment) or scan.what is not What.MERGED or table.counting or not scan.columns:
        return None
    if any(column not in table.schema.fields for column in scan.columns):
        return None
    found = planned or scan.plan()
    splits = [split for split in found.splits if isinstance(split, Split)]
    if len(splits) < len(found.splits) or sum(is_small(file) for split in splits for file in split.files) > _SMALL_MAX:
        return None
    key = [table.schema.field(name) for name in table.schema.primary_keys] if _hides_by_key(scan) else []
    parts = scan.env.map(_Layers(scan, found, key, by), splits)
    groups = _grouped(layer for part in parts if part is not None for layer in part)
    if not groups:
        return None
    left = tuple(split for split, part in zip(splits, parts, strict=True) if part is None)
    rest = Rest(scan, replace(found, splits=left, groups=())) if left else None
    return PlainScan(scan, groups, [column.name for column in key], rest)


def _hides_by_key(scan: Scan) -> bool:
    """Return whether a row counts unless a newer file has its key."""
    table = scan.table
    if not table.keyed or not set(table.schema.partition_keys) <= set(table.schema.primary_keys):
        return False
    merge = merge_of(table)
    kinds = [table.schema.field(name).type for name in table.schema.primary_keys]
    return (
        isinstance(merge.engine, Deduplicate)
        and merge.order is None
        and not merge.ignore_delete
        and not any(isinstance(kind, t.Float | t.Double) for kind in kinds)
    )


@dataclass(frozen=True)
class _Layer:
    """A file of a split, and how many others lie on top of it.

    Attributes:
        depth: 0 if no newer file may have keys of this one; else one more than the deepest of those that may.
        newer: the files that may.
    """

    file: PlainFile
    depth: int = 0
    newer: tuple[PlainFile, ...] = ()


@dataclass(frozen=True)
class _Layers:
    """Returns the files of a split; None: not all of them are plain."""

    scan: Scan
    found: Plan
    key: Sequence[t.Field]
    by: Engine

    def __call__(self, split: Split) -> list[_Layer] | None:
        scan, job = self.scan, self.found.job
        if split.marked or not (split.raw or (self.key and not split.vectors)):
            return None
        reader = SectionReader(
            scan.table, split.directory, split.partition, job.schemas, scan.env.storage, split.vectors
        )
        layers: list[_Layer] = []
        for files in split.sections:
            depths = _Depths.of(files, scan.table.key_types)
            if depths is None:
                return None
            plain: list[PlainFile] = []
            for file in files:
                found = self._plain(reader.target(file), merged=not split.raw)
                if found is None:
                    return None
                plain.append(found)
            for i, own in enumerate(plain):
                newer = tuple(plain[j] for j in np.flatnonzero(depths.newer[i]).tolist())
                layers.append(_Layer(own, int(depths.depth[i]), newer))
        return layers

    def _plain(self, target: FileToRead, *, merged: bool) -> PlainFile | None:
        columns = [*self.scan.columns, *(f for f in self.key if merged and f not in self.scan.columns)]
        found = plain_file(self.scan.env, target, columns, kinds=self.scan.table.keyed, by=self.by)
        if found is None or not merged:
            return found
        names = dict(zip(columns, found.names, strict=True))
        if not found.is_folded or any(names[column] != column.name for column in self.key):
            return None
        return replace(found, names=found.names[: len(self.scan.columns)])


@dataclass(frozen=True)
class _Depths:
    """Which of n files hide rows of which.

    Attributes:
        newer: bool[n, n], whether the second is newer than the first and may have keys of it.
        depth: int64[n].
    """

    newer: np.ndarray
    depth: np.ndarray

    @classmethod
    def of(cls, files: Sequence[DataFile], key_types: Sequence[t.DataType]) -> _Depths | None:
        """Return it for the files of a section; None: arrival does not order them, or they are too many."""
        n = len(files)
        if n == 1:
            return cls(np.zeros((1, 1), np.bool_), np.zeros(1, np.int64))
        if n > _FILES_MAX:
            return None
        low, high = dense_ranks(
            deserialize_columns([file.min_key for file in files], key_types),
            deserialize_columns([file.max_key for file in files], key_types),
        )
        meet = (low[:, None] <= high) & (low <= high[:, None]) & ~np.eye(n, dtype=np.bool_)
        first = np.array([file.min_sequence for file in files])
        last = np.array([file.max_sequence for file in files])
        newer = meet & (first > last[:, None])
        if (meet & ~newer & ~newer.T).any():
            return None
        depth = np.zeros(n, np.int64)
        for _ in range(_DEPTH_MAX):
            deeper = np.where(newer, depth + 1, 0).max(axis=1)
            if (deeper == depth).all():
                return cls(newer, depth)
            depth = deeper
        return None


def _grouped(layers: Iterable[_Layer]) -> list[FileGroup]:
    """Return files in as few groups as possible.

    Those of one depth are joined at once with the files on top of any of them, and none of these is of that depth.
    A file on top of one of them has keys of another one only where it is on top of that, too: what lies below it is
    deeper.
    """
    found: dict[tuple[int, tuple[str | None, ...], bool], list[_Layer]] = {}
    for layer in layers:
        found.setdefault((layer.depth, layer.file.names, layer.file.inserts), []).append(layer)
    return [
        FileGroup(
            tuple(layer.file for layer in alike),
            not inserts,
            {layer.file.path: layer.newer for layer in alike if layer.newer},
        )
        for (_, _, inserts), alike in found.items()
    ]

"""Deletion vectors of a bucket: finds them, reads them, applies them to rows and writes new ones.

Where a vector lies is a small value that travels with a job; its bytes are read where the job runs.

A change of vectors never changes a file: it writes new ones, and says which entries they replace. Crash at any
instruction: index files are there that no snapshot names.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field

import numpy as np
import numpy.typing as npt

from merganser.codec.deletion_vector import FRAME_BYTES, Positions, decode_vector, encode_vectors
from merganser.errors import FormatError, MerganserError, NotFoundError
from merganser.meta.index_manifest import DELETION_VECTORS, IndexEntry, VectorRange
from merganser.meta.live_files import BucketId
from merganser.meta.table_def import TableDef
from merganser.options import write as w
from merganser.storage.env import Env
from merganser.storage.paths import join
from merganser.storage.protocol import Storage
from merganser.values import dataclass


@dataclass(frozen=True, slots=True)
class Vector:
    """The deletion vector of a data file, not read yet.

    Attributes:
        path: of its index file.
        offset, length: bytes; see `codec.deletion_vector`.
        cardinality: deleted rows; None where the writer did not say.
    """

    path: str
    offset: int
    length: int
    cardinality: int | None


@dataclass(frozen=True, slots=True)
class BucketVectors:
    """The deletion vectors of one bucket.

    Attributes:
        entries: the index files that hold them.
        by_file: vectors by name of their data file.
    """

    entries: tuple[IndexEntry, ...] = ()
    by_file: Mapping[str, Vector] = field(default_factory=dict)

    def of(self, names: Collection[str]) -> dict[str, Vector]:
        """Return the vectors of some data files, by name; files without deleted rows have none."""
        return {name: self.by_file[name] for name in names if name in self.by_file}


NO_VECTORS = BucketVectors()


def index_path(table: TableDef, entry: IndexEntry) -> str:
    """Return where an index file lies."""
    if entry.external_path is not None:
        return entry.external_path
    if table.options.get(w.INDEX_FILE_IN_DATA_FILE_DIR):
        return join(table.bucket_directory(entry.partition, entry.bucket), entry.name)
    return table.paths.index(entry.name)


def vectors_by_bucket(table: TableDef, entries: Iterable[IndexEntry]) -> dict[BucketId, BucketVectors]:
    """Return the deletion vectors that the entries of a snapshot name, by bucket."""
    found: dict[BucketId, list[IndexEntry]] = {}
    for entry in entries:
        if entry.index_type == DELETION_VECTORS:
            found.setdefault((entry.partition, entry.bucket), []).append(entry)
    return {bucket: _of_bucket(table, held) for bucket, held in found.items()}


def marked_rows(table: TableDef, entries: Iterable[IndexEntry]) -> dict[str, int]:
    """Return how many rows the deletion vectors of a snapshot mark, by data file; 1 where the writer did not say."""
    buckets = vectors_by_bucket(table, entries).values()
    return {name: vector.cardinality or 1 for held in buckets for name, vector in held.by_file.items()}


def _of_bucket(table: TableDef, entries: Sequence[IndexEntry]) -> BucketVectors:
    by_file: dict[str, Vector] = {}
    for entry in entries:
        path = index_path(table, entry)
        for v in entry.vectors:
            if v.data_file in by_file:  # which rows are deleted would depend on the order of entries
                raise FormatError(
                    f"cannot read '{table.name}': the index files '{by_file[v.data_file].path}' and '{path}' both have "
                    f"deleted rows of '{v.data_file}'. Roll back to an earlier snapshot.",
                    path=path,
                )
            by_file[v.data_file] = Vector(path, v.offset, v.length, v.cardinality)
    return BucketVectors(tuple(entries), by_file)


def load(storage: Storage, vector: Vector, rows: int | None = None) -> Positions:
    """Return the deleted positions of a vector.

    Args:
        rows: of the data file; None: not known here.

    Raises:
        FormatError: the index file is missing or damaged, or names rows that the data file does not have.
    """
    try:
        with contextlib.closing(storage.open(vector.path)) as file:
            file.seek(vector.offset)
            data = file.read(vector.length + FRAME_BYTES)
    except NotFoundError as error:
        raise FormatError(
            f"cannot read the deletion vectors '{vector.path}': metadata names the file, but it is missing. Rows of "
            "its data files cannot be told from deleted ones; other files stay readable. Restore it, or roll back to "
            "a snapshot that does not need it.",
            path=vector.path,
        ) from error
    positions = decode_vector(data, length=vector.length, path=vector.path, offset=vector.offset)
    count = len(positions)
    if vector.cardinality is not None and count != vector.cardinality:
        raise _differs(vector, f"has {count:,} positions, and its metadata says {vector.cardinality:,}")
    if rows is not None and count and int(positions[-1]) >= rows:
        raise _differs(vector, f"deletes row {int(positions[-1]):,} of a data file of {rows:,} rows")
    return positions


def united(parts: Sequence[Positions]) -> Positions:
    """Return all positions of some parts, rising, each once. `numpy.unique` takes sixty times as long.

    Time and memory: a byte per row up to the largest position.
    """
    last = max((int(part.max()) for part in parts if len(part)), default=-1)
    found = np.zeros(last + 1, np.bool_)
    for part in parts:
        found[part] = True
    return np.flatnonzero(found)


def mask_of(positions: Positions, spans: Sequence[tuple[int, int]], *, listed: bool) -> npt.NDArray[np.bool_]:
    """Return bool[n] over the rows of some stretches of a file: `listed` for those at the positions, else the opposite.

    Args:
        positions: rising.
        spans: first position and number of rows of each stretch.
    """
    mask = np.full(sum(rows for _, rows in spans), not listed)
    before = 0
    for start, rows in spans:
        first, end = np.searchsorted(positions, (start, start + rows))
        mask[positions[first:end] - (start - before)] = listed
        before += rows
    return mask


@dataclass(frozen=True, slots=True)
class VectorChange:
    """Index files that replace others. The new ones are durable."""

    added: tuple[IndexEntry, ...] = ()
    removed: tuple[IndexEntry, ...] = ()


NO_CHANGE = VectorChange()


def changed(
    table: TableDef,
    env: Env,
    bucket: BucketId,
    before: BucketVectors,
    *,
    dropped: Collection[str] = (),
    marked: Mapping[str, Positions] | None = None,
) -> VectorChange:
    """Write the deletion vectors of a bucket after a change.

    Args:
        before: what the change is based on; the commit refuses it if that is not what is there.
        dropped: data files that go, and their vectors with them.
        marked: rising positions that are deleted now too, by data file; none of them is dropped.

    Returns:
        What becomes of the index files. A bucket of a table with fixed or dynamic buckets has one, replaced as a
        whole; without buckets there are several, and those that hold nothing of these data files stay.
    """
    marks = {name: positions for name, positions in (marked or {}).items() if len(positions)}
    touched = {*dropped, *marks}
    single = table.bucketed
    hit = [entry for entry in before.entries if any(v.data_file in touched for v in entry.vectors)]
    if not hit and not marks:
        return NO_CHANGE
    removed = before.entries if single else tuple(hit)
    names = [v.data_file for entry in removed for v in entry.vectors if v.data_file not in dropped]
    after = {name: load(env.storage, before.by_file[name]) for name in names}
    for name, positions in marks.items():
        after[name] = united([after[name], positions]) if name in after else positions
    made: list[IndexEntry] = []
    target = None if single else table.options.get(w.DELETION_VECTORS_TARGET_SIZE)
    try:
        for part in _rolled(after, target):
            made.append(_written(table, env, bucket, part))
    except BaseException:
        remove(table, env, made)
        raise
    return VectorChange(tuple(made), removed)


def remove(table: TableDef, env: Env, entries: Iterable[IndexEntry]) -> None:
    """Remove index files that no snapshot names. Best effort: else they are orphans."""
    with contextlib.suppress(MerganserError):
        env.storage.delete([index_path(table, entry) for entry in entries])


def _rolled(vectors: Mapping[str, Positions], target: int | None) -> Iterator[dict[str, Positions]]:
    """Yield vectors in parts of about `target` bytes; None: all in one."""
    part: dict[str, Positions] = {}
    size = 0
    for name, positions in vectors.items():
        part[name] = positions
        size += _bytes_most(positions)
        if target is not None and size >= target:
            yield part
            part, size = {}, 0
    if part:
        yield part


def _bytes_most(positions: Positions) -> int:
    """Return about how many bytes a vector takes at most: 2 a position, and no more than a bit per row."""
    return min(2 * len(positions), (int(positions[-1]) >> 3) + 1) + 32


def _written(table: TableDef, env: Env, bucket: BucketId, vectors: Mapping[str, Positions]) -> IndexEntry:
    bits64 = table.options.get(w.DELETION_VECTORS_BITMAP64)
    data, places = encode_vectors(vectors.values(), bits64=bits64)
    ranges = tuple(
        VectorRange(name, place.offset, place.length, place.cardinality)
        for name, place in zip(vectors, places, strict=True)
    )
    name = f"index-{env.new_id()}-0"
    entry = IndexEntry(*bucket, DELETION_VECTORS, name, len(data), len(ranges), ranges)
    env.storage.replace(index_path(table, entry), data, durable=True)
    return entry


def _differs(vector: Vector, why: str) -> FormatError:
    return FormatError(
        f"cannot read the deletion vector at byte {vector.offset} of '{vector.path}': it {why}. Other files of the "
        "table stay readable. Restore the file, or roll back to a snapshot that does not need it.",
        path=vector.path,
        offset=vector.offset,
    )

"""Rows -> the partition and bucket each belongs to.

A writer asks its assigner for every flush of rows, in their order. An assigner may hold state, such as the bucket that
a key lies in (`dynamic`); those of this module hold none.

Format: section "bucketing". The partition is not part of the hash.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from merganser.codec.binary_row import arrow_to_stored, serialize
from merganser.codec.hashing import remainders, row_hashes
from merganser.codec.stats import EMPTY_ROW
from merganser.commit.message import CommitMessage
from merganser.errors import InvalidInputError
from merganser.meta.index_manifest import IndexEntry
from merganser.meta.layout import Layout, bucket_numbers, parted
from merganser.meta.live_files import BucketId
from merganser.meta.table_def import TableDef
from merganser.rules.facts import POSTPONE
from merganser.values import dataclass
from merganser.write.incoming import Prepared
from merganser.write.start import Start

_DIRECTORY_BYTES_MAX = 255


@dataclass(frozen=True, slots=True)
class Group:
    """The rows of one bucket.

    Attributes:
        partition: serialized row of the partition values.
        rows: int64, their positions, rising.
    """

    partition: bytes
    bucket: int
    rows: npt.NDArray[np.int64]

    @property
    def id(self) -> BucketId:
        """Which bucket it is."""
        return self.partition, self.bucket


@dataclass(frozen=True, slots=True)
class NewKeys:
    """The keys that a writer has added to a bucket.

    Attributes:
        before: the index file of the bucket that the new one replaces; None: it had none.
        after: the new one, with the keys of both; durable.
    """

    before: IndexEntry | None
    after: IndexEntry


class Assigner(Protocol):
    """Says where rows belong."""

    def total_of(self, partition: bytes) -> int:
        """Return what files of a partition say of how many buckets their rows were assigned over."""
        ...

    def moved(self, rows: Prepared) -> Prepared:
        """Return rows as they are to be written: rows of a key may belong where its row lies."""
        ...

    def assign(self, rows: pa.Table) -> Iterator[Group]:
        """Yield the rows of every bucket that has some, by partition and bucket."""
        ...

    def begin(self, start: Start) -> None:
        """Assign the rows of the next commit: others may have committed since the last."""

    def key_files(self) -> Sequence[Callable[[], None]]:
        """Return what writes down which keys were added to which buckets, a call for each bucket.

        No more rows are assigned before `written_keys`. The calls may be made side by side, beside those that write the
        rows; what is not called is done by `written_keys`.
        """
        ...

    def written_keys(self) -> Mapping[BucketId, NewKeys]:
        """Write down which keys were added to which buckets since the last call; return the new files by bucket."""
        ...

    def abort(self) -> None:
        """Remove the files that were written and not handed out. Best effort: else it is orphans."""
        ...

    def asked(self, partition: bytes) -> frozenset[str] | None:
        """Return the names of the files that said where the keys of a partition lie; None: no file says it."""
        ...

    @property
    def after(self) -> str | None:
        """The version of the rows that said where keys lie (`RowsState`); None: no rows were asked."""
        ...

    def handed_out(self, messages: Sequence[CommitMessage]) -> None:
        """Note that the rows assigned since the last call go into a commit with these messages."""


class ByKeyOrFile:
    """What assigners share that do not depend on the rows of the table."""

    def moved(self, rows: Prepared) -> Prepared:
        """Return rows as they are."""
        return rows

    @property
    def after(self) -> str | None:
        """None: no rows were asked."""
        return None

    def handed_out(self, messages: Sequence[CommitMessage]) -> None:
        """Do nothing."""


class _Stateless(ByKeyOrFile):
    """What assigners without a state share."""

    def begin(self, start: Start) -> None:
        """Do nothing: no state has a say in where rows belong."""

    def key_files(self) -> Sequence[Callable[[], None]]:
        """Return nothing: no file says where rows belong."""
        return ()

    def written_keys(self) -> Mapping[BucketId, NewKeys]:
        """Return nothing: no file says where rows belong."""
        return {}

    def abort(self) -> None:
        """Do nothing: nothing was written."""

    def asked(self, partition: bytes) -> frozenset[str] | None:
        """Return None: no file says where rows belong."""
        return None


class FixedBuckets(_Stateless):
    """A fixed number of buckets: the hash of the bucket key decides."""

    def __init__(self, table: TableDef) -> None:
        self._table = table

    def total_of(self, partition: bytes) -> int:
        """Return the number of the table."""
        return self._table.bucket

    def assign(self, rows: pa.Table) -> Iterator[Group]:
        """Yield the rows of every bucket that has some, by partition and bucket."""
        return _groups(self._table, rows, bucket_numbers(self._table, rows), self._table.bucket)


class BucketsOfPartitions(_Stateless):
    """Each partition has a number of buckets of its own: the hash of the bucket key decides."""

    def __init__(self, table: TableDef, layout: Layout) -> None:
        self._table = table
        self._layout = layout

    def total_of(self, partition: bytes) -> int:
        """Return the number of a partition."""
        return self._layout.of(partition)

    def assign(self, rows: pa.Table) -> Iterator[Group]:
        """Yield the rows of every bucket that has some, by partition and bucket."""
        table = self._table
        for partition, members in partition_groups(table, rows):
            if table.schema.partition_keys:
                check_directory(table, partition)
            of_partition = rows.select(table.schema.bucket_key).take(pa.array(members))
            for bucket, at in parted(bucket_numbers(table, of_partition, self.total_of(partition))):
                yield Group(partition, bucket, members[at])


class PostponedBuckets(_Stateless):
    """Rows wait for their buckets: one directory in a partition, its files in the order of their rows."""

    def __init__(self, table: TableDef) -> None:
        self._table = table

    def total_of(self, partition: bytes) -> int:
        """Return what the format says of rows without a bucket."""
        return POSTPONE

    def assign(self, rows: pa.Table) -> Iterator[Group]:
        """Yield the rows of every partition that has some."""
        for partition, members in partition_groups(self._table, rows):
            if self._table.schema.partition_keys:
                check_directory(self._table, partition)
            yield Group(partition, POSTPONE, members)


class UnawareBuckets(_Stateless):
    """No bucket key: one directory in a partition, and no order of its files."""

    def __init__(self, table: TableDef) -> None:
        self._table = table

    def total_of(self, partition: bytes) -> int:
        """Return what the format says of rows without buckets."""
        return -1

    def assign(self, rows: pa.Table) -> Iterator[Group]:
        """Yield the rows of every partition that has some."""
        return _groups(self._table, rows, np.zeros(rows.num_rows, np.int32), 1)


def sole_writers(table: TableDef, rows: pa.Table, assigners: int) -> Iterator[Group]:
    """Yield rows in groups that need one writer each: all rows of a key are in one group.

    The number of a group is that of its bucket; where tasks share keys, that of the share. Where buckets are added as
    keys arrive, a share is that of one assigner, which alone adds buckets for its keys. If keys may move between
    partitions, the group has no partition.
    """
    if not table.shares_keys:
        assigner = FixedBuckets(table) if table.bucket > 0 else UnawareBuckets(table)
        yield from assigner.assign(rows)
        return
    key = table.schema.primary_keys if table.moves_keys else table.key
    hashes = row_hashes([rows.column(name) for name in key], [table.schema.field(name).type for name in key])
    numbers = remainders(hashes, assigners)
    if not table.moves_keys:
        yield from _groups(table, rows, numbers, assigners)
        return
    for number, members in parted(numbers):
        yield Group(EMPTY_ROW, number, members)


def _groups(table: TableDef, rows: pa.Table, number: npt.NDArray[np.int32], count: int) -> Iterator[Group]:
    """Yield the rows of every bucket that has some; `number` below `count` is the bucket of each row."""
    if not rows.num_rows:
        return
    partitions, firsts = _partition_numbers(table, rows)
    combined = number if partitions is None else partitions * count + number
    for code, members in parted(combined):
        partition, bucket = divmod(code, count)
        serialized = EMPTY_ROW
        if partitions is not None:
            serialized = _serialized(table, rows, int(firsts[partition]))
            check_directory(table, serialized)
        yield Group(serialized, bucket, members)


def partition_groups(table: TableDef, rows: pa.Table) -> Iterator[tuple[bytes, npt.NDArray[np.int64]]]:
    """Yield each partition of rows, serialized, and the positions of its rows, rising.

    Args:
        rows: at least the partition columns.
    """
    if not rows.num_rows:
        return
    partitions, firsts = _partition_numbers(table, rows)
    if partitions is None:
        yield EMPTY_ROW, np.arange(rows.num_rows)
        return
    for number, members in parted(partitions):
        yield _serialized(table, rows, int(firsts[number])), members


def _serialized(table: TableDef, rows: pa.Table, row: int) -> bytes:
    values = tuple(
        arrow_to_stored(rows.column(name)[row], kind)
        for name, kind in zip(table.schema.partition_keys, table.partition_types, strict=True)
    )
    return serialize(values, table.partition_types)


def check_directory(table: TableDef, partition: bytes) -> None:
    """Refuse a partition whose directory most stores could not have.

    Raises:
        InvalidInputError: names the column and the value; the rows are not written.
    """
    for part in table.partition_directory(partition).split("/")[-len(table.schema.partition_keys) :]:
        size = len(part.encode())
        if size > _DIRECTORY_BYTES_MAX:
            name, _, value = part.partition("=")
            raise InvalidInputError(
                f"cannot write to '{table.name}': partition column '{name}' has a value of {len(value)} characters "
                f"('{value[:40]}...'). Its directory would have a name of {size} bytes, and file systems take "
                f"{_DIRECTORY_BYTES_MAX}. Nothing was written. Partition by a shorter column.",
                column=name,
            )


def _partition_numbers(table: TableDef, rows: pa.Table) -> tuple[npt.NDArray[np.int64] | None, npt.NDArray[np.int64]]:
    """Return the number of every row's partition, and the first row of each; None of an unpartitioned table."""
    names = table.schema.partition_keys
    if not names:
        return None, np.empty(0, np.int64)
    combined = np.zeros(rows.num_rows, np.int64)
    for name in names:
        column = rows.column(name).combine_chunks()
        encoded = pc.dictionary_encode(column, null_encoding="encode")
        if isinstance(encoded, pa.ChunkedArray):
            encoded = encoded.unify_dictionaries().combine_chunks()
        codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        combined = _dense(combined * (len(encoded.dictionary) + 1) + codes)
    firsts = np.zeros(int(combined.max(initial=-1)) + 1, np.int64)
    firsts[combined[::-1]] = np.arange(rows.num_rows)[::-1]  # of what is assigned to a place the last stays
    return combined, firsts


def _dense(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return numbers without gaps, from 0, in the same order."""
    highest = int(numbers.max(initial=0))
    if highest > 4 * len(numbers) + 1_000:
        return np.unique(numbers, return_inverse=True)[1].astype(np.int64)
    there = np.zeros(highest + 1, np.bool_)
    there[numbers] = True
    places: npt.NDArray[np.int64] = (np.cumsum(there) - 1)[numbers]
    return places

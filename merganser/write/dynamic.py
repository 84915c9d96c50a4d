"""DynamicBuckets: buckets that are added as keys arrive.

A key that has a bucket keeps it. A new key gets the first bucket that is not full, or a new one. Which keys a bucket
has is written in its index file, which belongs to the snapshot as the data files do: another writer, another engine and
a rollback find the keys where they are.

Several tasks may write one partition. Each key has an assigner, by its hash, and each bucket has one, by its number.
A task is one assigner or several, and gives new keys the buckets of those that it is, so an index file has one writer,
and no task asks another one::

    key     |hash % assigners|  ─┐
                                 ├─►  one assigner: looks up its keys in all buckets, adds keys to its own
    bucket  number % assigners  ─┘

A task is an assigner from the first row of one of its keys on: all others come to this task, too. So few rows, which
Spark sends to one task, begin one bucket.

Format: section "Assignment".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from merganser.codec.hashing import Hashes, remainders, row_hashes
from merganser.codec.stats import EMPTY_ROW
from merganser.files.key_hashes import read_hashes, write_hashes
from merganser.files.masks import remove
from merganser.merge.hashed_keys import KeyHashes
from merganser.meta.index_manifest import IndexEntry
from merganser.meta.layout import parted
from merganser.meta.live_files import BucketId
from merganser.meta.table_def import TableDef
from merganser.options import write as w
from merganser.storage.env import Env
from merganser.storage.mapped import Arrays
from merganser.write.buckets import ByKeyOrFile, Group, NewKeys, check_directory, partition_groups
from merganser.write.filling import Filling, in_order
from merganser.write.key_buckets import Share, key_buckets, remember
from merganser.write.key_index import ABSENT, KeyIndex, Numbers, Run
from merganser.write.start import Start

Positions = npt.NDArray[np.int64]
_BLOCK_ROWS: Final = 1 << 16
"""Rows of a step of sorting: what it takes stays in the cache."""
_HALVES_FROM_ROWS: Final = 1 << 17
"""So many hashes are looked up by two threads."""


def assigners_of(table: TableDef, tasks: int) -> int:
    """Return how many assigners the keys of a partition have, if so many tasks could assign them."""
    most = table.options.get(w.DYNAMIC_BUCKET_MAX_BUCKETS)
    wanted = table.options.get(w.DYNAMIC_BUCKET_INITIAL_BUCKETS) or tasks
    return max(1, min(wanted, tasks, most if most > 0 else tasks))


class DynamicBuckets(ByKeyOrFile):
    """Gives keys their buckets; see `write.buckets.Assigner`.

    Args:
        start: the state that the rows come after. Of several assigners one process may be all, if it has all rows.
    """

    def total_of(self, partition: bytes) -> int:
        """Return what the format says of buckets that are added as keys arrive."""
        return -1

    def __init__(self, table: TableDef, env: Env, start: Start) -> None:
        self._table = table
        self._env = env
        self._files = start.keys
        self._assigners = start.assigners
        self._partitions: dict[bytes, _Partition] = {}
        self._made: dict[BucketId, IndexEntry] = {}
        self._arrays = Arrays(table.options.get(w.WRITE_BUFFER_SIZE))

    def begin(self, start: Start) -> None:
        """Follow another state; new keys that were not handed out are forgotten."""
        self._files = start.keys
        for found in self._partitions.values():
            found.begin()
        self._partitions = {
            partition: found for partition, found in self._partitions.items() if found.files == self._of(partition)
        }

    def assign(self, rows: pa.Table) -> Iterator[Group]:
        """Yield the rows of every bucket that has some, by partition and bucket."""
        columns = [rows.column(name) for name in self._table.key]
        hashes = row_hashes(columns, self._table.key_types)
        if not self._table.schema.partition_keys:
            for bucket, at in parted(self._buckets(EMPTY_ROW, hashes)):
                yield Group(EMPTY_ROW, bucket, at)
            return
        for partition, members in partition_groups(self._table, rows):
            check_directory(self._table, partition)
            for bucket, at in parted(self._buckets(partition, hashes[members])):
                yield Group(partition, bucket, members[at])

    def _of(self, partition: bytes) -> dict[int, IndexEntry]:
        return {entry.bucket: entry for entry in self._files.of(partition)}

    def _buckets(self, partition: bytes, hashes: Hashes) -> Numbers:
        """Return the bucket of each key of a partition."""
        if partition not in self._partitions:
            self._partitions[partition] = _Partition(self._table, self._of(partition), self._assigners)
        if self._assigners == 1:
            return self._assigned(partition, 0, hashes)
        found = np.empty(len(hashes), np.int32)
        for number, at in parted(remainders(hashes, self._assigners)):
            found[at] = self._assigned(partition, number, hashes[at])
        return found

    def _assigned(self, partition: bytes, number: int, hashes: Hashes) -> Numbers:
        """Return the bucket of each key of an assigner."""
        place = self._partitions[partition]
        if number not in place.keys:
            share = Share(number, self._assigners)
            place.keys[number] = key_buckets(self._table, self._env, partition, self._files.of(partition), share)
        return place.assign(number, hashes, self._arrays, self._env)

    def key_files(self) -> Sequence[Callable[[], None]]:
        """Return what writes the index files of the buckets with new keys, a call for each bucket.

        No more rows are assigned before `written_keys`.
        """
        changed = [(partition, bucket) for partition, place in self._partitions.items() for bucket in place.new]
        return [partial(self._write, bucket) for bucket in changed if bucket not in self._made]

    def _write(self, bucket: BucketId) -> None:
        hashes = self._hashes(bucket)
        hashes.sort(kind="stable")  # of sorted runs: so the next process need not sort them
        self._made[bucket] = write_hashes(self._table, self._env, bucket, hashes)

    def written_keys(self) -> dict[BucketId, NewKeys]:
        """Write the index files of the buckets with new keys, and return them; the writer may go on after that.

        Raises:
            StorageError: a file could not be written; none is left.
        """
        try:
            self._env.map(lambda write: write(), self.key_files())
        except BaseException:
            self.abort()
            raise
        made, self._made = self._made, {}
        found = {bucket: NewKeys(self._partitions[bucket[0]].files.get(bucket[1]), made[bucket]) for bucket in made}
        for partition, place in self._partitions.items():
            if place.new:
                place.settle({bucket: made[partition, bucket] for bucket in place.new})
                for number, keys in place.keys.items():
                    remember(self._table, self._env, partition, place.files, keys, Share(number, self._assigners))
        return found

    def abort(self) -> None:
        """Remove the index files that were written and not handed out. Best effort: else it is orphans."""
        made, self._made = self._made, {}
        remove(self._table, self._env, made.values())

    def asked(self, partition: bytes) -> frozenset[str]:
        """Return the names of the files that said where the keys of a partition lie."""
        return self._files.names(partition)

    def _hashes(self, bucket: BucketId) -> Hashes:
        """Return all hashes of a bucket, those of assigners elsewhere included."""
        place = self._partitions[bucket[0]]
        before = place.files.get(bucket[1])
        if before is None:
            return np.concatenate(place.new[bucket[1]])
        if self._assigners == 1:
            return place.keys[0].of(bucket[1]).first
        return np.concatenate([read_hashes(self._table, self._env, before), *place.new[bucket[1]]])


class _Partition:
    """What the assigners of a task know of a partition.

    Attributes:
        files: by bucket, the index file that the keys were read from.
        keys: by assigner, where its keys lie, the new ones included.
        new: by bucket, the hashes of keys that no file has yet.
    """

    def __init__(self, table: TableDef, files: dict[int, IndexEntry], assigners: int) -> None:
        self.files = files
        self.keys: dict[int, KeyIndex] = {}
        self.new: dict[int, list[Hashes]] = {}
        self._table = table
        self._assigners = assigners
        self._filling = self._filled()

    def begin(self) -> None:
        """Forget new keys."""
        if self.new:
            self.keys, self.new = {}, {}
            self._filling = self._filled()

    def settle(self, files: Mapping[int, IndexEntry]) -> None:
        """Count the new keys among the known ones, which lie in some files now."""
        self.files = {**self.files, **files}
        self.new = {}

    def assign(self, number: int, hashes: Hashes, arrays: Arrays, env: Env) -> Numbers:
        """Return the bucket of each key of an assigner, int32[n]."""
        different, order, is_first, found = _looked_up(self.keys[number], hashes, env)
        alone = len(different) == len(hashes)
        firsts = order if alone else order[np.flatnonzero(is_first)]
        unknown = found == ABSENT
        count = int(np.count_nonzero(unknown))
        if count:
            all_new = count == len(found)
            new = slice(None) if all_new else np.flatnonzero(unknown)
            added = different[new]
            sizes = self._filling.take(count, self.keys)
            buckets = in_order(sizes, firsts[new])
            for bucket in sizes:
                own = added if len(sizes) == 1 else added[np.flatnonzero(buckets == bucket)]
                self.new.setdefault(bucket, []).append(own)
            run = Run(KeyHashes(added), buckets.astype(np.uint16))
            self.keys[number] = self.keys[number].with_run(run, arrays, env)
            if all_new and alone:  # they got their buckets in the order in which they came
                return np.repeat(np.array(list(sizes), np.int32), list(sizes.values()))
            found[new] = buckets
        if len(found) and (found == found[0]).all():
            return np.full(len(hashes), found[0], np.int32)
        of_rows = np.empty(len(hashes), np.int32)
        of_rows[order] = found if alone else found[np.cumsum(is_first) - 1]
        return of_rows

    def _filled(self) -> Filling:
        counts = {bucket: entry.row_count for bucket, entry in self.files.items()}
        return Filling(self._table, counts, self._assigners)


def _looked_up(keys: KeyIndex, hashes: Hashes, env: Env) -> tuple[Hashes, Positions, npt.NDArray[np.bool_], Numbers]:
    """Look hashes up, many of them as two ranges side by side.

    Returns:
        The different hashes, rising. Where each hash stands in their order; equal ones keep their order. Of each of
        these, whether it is the first of its hash. The bucket of each different hash, or `ABSENT`.
    """
    if len(hashes) < _HALVES_FROM_ROWS:
        return _range_looked_up(keys, hashes, None)
    negative = hashes < 0
    ranges = [np.flatnonzero(negative), np.flatnonzero(~negative)]
    parts = env.map(lambda at: _range_looked_up(keys, hashes[at], at), ranges)
    different, order, is_first, found = (np.concatenate(both) for both in zip(*parts, strict=True))
    return different, order, is_first, found


def _range_looked_up(
    keys: KeyIndex, hashes: Hashes, at: Positions | None
) -> tuple[Hashes, Positions, npt.NDArray[np.bool_], Numbers]:
    """Look up some hashes; see `_looked_up`.

    Args:
        at: where they stand among all, rising; None: they are all.
    """
    different, order = _sorted(hashes)
    is_first = np.ones(len(hashes), np.bool_)
    np.not_equal(different[1:], different[:-1], out=is_first[1:])
    if not is_first.all():
        different = different[np.flatnonzero(is_first)]
    return different, order if at is None else at[order], is_first, keys.find(KeyHashes(different))


def _sorted(hashes: Hashes) -> tuple[Hashes, Positions]:
    """Return hashes in their order and where each stands; equal ones keep their order."""
    order = np.empty(len(hashes), np.int64)
    for start in range(0, len(hashes), _BLOCK_ROWS):
        block = order[start : start + _BLOCK_ROWS]
        block[:] = hashes[start : start + _BLOCK_ROWS]
        block <<= 32
        block |= np.arange(start, start + len(block))
    order.sort()  # of numbers with their positions: several times as fast as a sort of positions
    rising = np.empty(len(hashes), np.int32)
    for start in range(0, len(hashes), _BLOCK_ROWS):
        block = order[start : start + _BLOCK_ROWS]
        rising[start : start + _BLOCK_ROWS] = block >> 32
        block &= 0xFFFF_FFFF
    return rising, order

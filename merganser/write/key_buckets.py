"""Which bucket each key of a partition lies in, for tables whose buckets are added as keys arrive.

A key is known by its hash, 32 bits, so keys of one hash share a bucket. What this process knows follows the index files
of the table: given those of another state it reads the ones that differ, and drops the hashes of their buckets. What a
commit adds is a new run of the `KeyIndex`, and no commit touches what was there before.

Format: section "HASH index".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from merganser.codec.hashing import Hashes, remainders
from merganser.errors import FormatError
from merganser.files.key_hashes import read_hashes
from merganser.merge.hashed_keys import KeyHashes
from merganser.meta.index_manifest import IndexEntry
from merganser.meta.table_def import TableDef
from merganser.options import write as w
from merganser.storage.cache import Cache
from merganser.storage.env import Env
from merganser.storage.mapped import Arrays
from merganser.values import dataclass
from merganser.write.key_index import ABSENT, KeyIndex, Run, merged


@dataclass(frozen=True, slots=True)
class Share:
    """The keys of one assigner: those whose hash, without its sign, leaves a remainder.

    Attributes:
        number: the remainder.
        count: how many assigners there are; with one, it has all keys.
    """

    number: int = 0
    count: int = 1

    def of(self, hashes: Hashes) -> Hashes:
        """Return those hashes that belong to it."""
        return hashes if self.count == 1 else hashes[remainders(hashes, self.count) == self.number]

    def owns(self, bucket: int) -> bool:
        """Return whether the assigner may put new keys into a bucket."""
        return bucket % self.count == self.number


@dataclass(frozen=True, slots=True)
class _Known:
    """The keys of one share of a partition.

    Attributes:
        files: by bucket, the index file that holds its hashes, of all shares.
        keys: the bucket of each key.
    """

    files: Mapping[int, IndexEntry]
    keys: KeyIndex


def key_buckets(
    table: TableDef, env: Env, partition: bytes, entries: Sequence[IndexEntry], share: Share = Share()
) -> KeyIndex:
    """Return the buckets of the known keys of a share of a partition, as some index files have them.

    What this process knows of other files of the partition is brought up to date.

    Args:
        entries: the index files of all buckets of the partition.

    Raises:
        FormatError: a file is missing or damaged, or two of them have the same key.
        StorageError: the store failed, or there is no room on the local disk.
    """
    known = _cache.get(_place(table, env, partition, share))
    before, keys = (known.files, known.keys) if isinstance(known, _Known) else ({}, KeyIndex())
    files = {entry.bucket: entry for entry in entries}
    other = {bucket for bucket, entry in before.items() if files.get(bucket) != entry}
    fresh = [entry for bucket, entry in files.items() if before.get(bucket) != entry]
    if not other and not fresh:
        return keys
    arrays = Arrays(table.options.get(w.WRITE_BUFFER_SIZE))
    if sum(before[bucket].row_count for bucket in other) * 2 > len(keys) * share.count:
        keys, fresh = KeyIndex(), list(entries)
    else:
        keys = keys.without(other)
    if fresh:
        keys = keys.with_run(_read(table, env, partition, fresh, share, keys, arrays), arrays, env)
    remember(table, env, partition, files, keys, share)
    return keys


def remember(
    table: TableDef, env: Env, partition: bytes, files: Mapping[int, IndexEntry], keys: KeyIndex, share: Share
) -> None:
    """Keep the keys of some index files for the next writer of this process."""
    _cache.put(_place(table, env, partition, share), _Known(files, keys), 1024 + keys.memory_bytes)


def _place(table: TableDef, env: Env, partition: bytes, share: Share) -> tuple[object, ...]:
    return "keys", table.paths.metadata_root, partition, share, env.storage


def _read(
    table: TableDef,
    env: Env,
    partition: bytes,
    entries: Sequence[IndexEntry],
    share: Share,
    known: KeyIndex,
    arrays: Arrays,
) -> Run:
    """Return the keys of a share from index files, as one run.

    Raises:
        FormatError: two files have the same key, or one file and the known keys: rows of it might be in either bucket.
    """

    def read(entry: IndexEntry) -> Run:
        found = share.of(read_hashes(table, env, entry))
        hashes = arrays.empty(len(found), np.int32)
        hashes[:] = found
        if (hashes[1:] < hashes[:-1]).any():  # the file of another engine
            hashes.sort()
        return Run(KeyHashes(hashes), np.broadcast_to(np.uint16(entry.bucket), len(found)))

    runs = env.map(read, entries)
    came = merged(runs, arrays, env, whole=False)
    twice = came.hashes.first[np.flatnonzero(known.find(came.hashes) != ABSENT)]
    if len(came) < sum(map(len, runs)):
        every = np.sort(np.concatenate([run.hashes.first for run in runs]))
        twice = every[1:][every[1:] == every[:-1]]
    if len(twice):
        both = sorted(
            {int(bucket) for run in (*known.runs, *runs) for bucket in run.numbers[run.hashes.first == twice[0]]}
        )
        what = f"indexes of buckets {both[0]} and {both[1]}" if len(both) > 1 else f"index of bucket {both[0]}"
        where = f"of '{table.partition_directory(partition)}'"
        has = "both have" if len(both) > 1 else "has twice"
        raise FormatError(
            f"cannot write to '{table.name}': the key {what} {where} {has} the key hash {twice[0]}, so "
            f"{'rows of one key may lie in either' if len(both) > 1 else 'it is damaged'}. Nothing was written. "
            "Call table.repair(). If rows of the key lie in both, overwrite the partition with its own rows.",
            table=table.name,
        )
    return came


_cache: Final = Cache()
"""By table, partition, share and storage. Index files never change, and values name those that they were read from."""

"""KeyBuckets: which bucket each key of a partition lies in, for tables whose buckets are added as keys arrive.

A key is known by its hash, 32 bits, so keys of one hash share a bucket. The hashes lie in sorted runs, as the rows of
an LSM tree do: what a commit adds is a new run, small runs are merged into larger ones, and no commit touches what was
there before. A hash takes six bytes. What a merge of runs takes beside them for its time is as much again, so no more
than twelve bytes a key are held at any time; beyond a budget runs lie on the local disk.

A value never changes. It follows the index files of the table: given those of another state it reads the ones that
differ, and drops the hashes of their buckets.

Format: section "HASH index".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from merganser.codec.hashing import Hashes, remainders
from merganser.errors import FormatError
from merganser.files.key_hashes import read_hashes
from merganser.meta.index_manifest import IndexEntry
from merganser.meta.table_def import TableDef
from merganser.options import write as w
from merganser.storage.cache import Cache
from merganser.storage.env import Env
from merganser.storage.mapped import Arrays, memory_of

Buckets = npt.NDArray[np.int32]
UNKNOWN: Final = -1
"""In place of a bucket: the key is new."""

_STEP_ROWS: Final = 1 << 16
"""Hashes that are merged at a time: they stay in the cache, and what they take beside the result is small."""
_HALVES_FROM_ROWS: Final = 1 << 18
"""So many hashes are merged by two threads."""
_GROWTH: Final = 4
"""A run is merged with the next larger one once it has so large a part of its hashes."""
_HASHES: Final = 1 << 32


@dataclass(frozen=True, slots=True)
class Run:
    """Hashes and their buckets.

    Attributes:
        hashes: int32[n], rising.
        buckets: uint16[n].
    """

    hashes: Hashes
    buckets: npt.NDArray[np.uint16]

    def __len__(self) -> int:
        return len(self.hashes)

    def slice(self, start: int, end: int) -> Run:
        """Return a part, without a copy."""
        return Run(self.hashes[start:end], self.buckets[start:end])


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
class KeyBuckets:
    """The bucket of each known key of one share of a partition.

    Attributes:
        files: by bucket, the index file that holds its hashes, of all shares.
        runs: from the largest to the smallest; no hash is in two.
    """

    files: Mapping[int, IndexEntry]
    runs: tuple[Run, ...] = ()

    def __len__(self) -> int:
        return sum(len(run) for run in self.runs)

    @property
    def memory_bytes(self) -> int:
        """How many bytes of memory it takes."""
        return sum(memory_of(run.hashes) + memory_of(run.buckets) for run in self.runs)

    def find(self, hashes: Hashes) -> Buckets:
        """Return the bucket of each hash, or `UNKNOWN`.

        Args:
            hashes: int32[n], rising.
        """
        found = np.full(len(hashes), UNKNOWN, np.int32)
        todo = np.arange(len(hashes)) if len(self.runs) > 1 else None
        for run in self.runs:
            asked = hashes if todo is None or len(todo) == len(hashes) else hashes[todo]
            at = np.searchsorted(run.hashes, asked)
            np.minimum(at, len(run) - 1, out=at)
            known = run.hashes[at] == asked
            there = np.flatnonzero(known)  # positions: numpy takes several times as long to pick by a mask
            found[there if todo is None else todo[there]] = run.buckets[at[there]]
            if todo is not None:
                todo = todo[np.flatnonzero(~known)]
        return found

    def with_keys(self, run: Run, arrays: Arrays, env: Env) -> KeyBuckets:
        """Return it with new keys; small runs are merged."""
        if not len(run):
            return self
        runs = [*self.runs, run]
        while len(runs) > 1 and len(runs[-1]) * _GROWTH >= len(runs[-2]):
            runs[-2:] = [_merged(runs[-2:], arrays, env)]
        return KeyBuckets(self.files, tuple(runs))

    def without(self, buckets: Collection[int]) -> KeyBuckets:
        """Return it without the keys of some buckets."""
        if not buckets:
            return self
        gone = np.array(sorted(buckets), np.uint16)
        runs = []
        for run in self.runs:
            kept = np.flatnonzero(np.isin(run.buckets, gone, invert=True))
            if len(kept) < len(run):
                run = Run(run.hashes[kept], run.buckets[kept])
            if len(run):
                runs.append(run)
        return KeyBuckets({bucket: e for bucket, e in self.files.items() if bucket not in buckets}, tuple(runs))

    def of_bucket(self, bucket: int) -> Hashes:
        """Return the hashes of a bucket."""
        own = [run.hashes[np.flatnonzero(run.buckets == bucket)] for run in self.runs]
        return np.concatenate([np.empty(0, np.int32), *own])


EMPTY: Final = KeyBuckets({})


def key_buckets(
    table: TableDef, env: Env, partition: bytes, entries: Sequence[IndexEntry], share: Share = Share()
) -> KeyBuckets:
    """Return the known keys of a share of a partition, as some index files have them.

    What this process knows of other files of the partition is brought up to date.

    Args:
        entries: the index files of all buckets of the partition.

    Raises:
        FormatError: a file is missing or damaged, or two of them have the same key.
        StorageError: the store failed, or there is no room on the local disk.
    """
    place = ("keys", table.paths.metadata_root, partition, share, env.storage)
    files = {entry.bucket: entry for entry in entries}
    known = _cache.get(place)
    if not isinstance(known, KeyBuckets):
        known = EMPTY
    other = {bucket for bucket, entry in known.files.items() if files.get(bucket) != entry}
    fresh = [entry for bucket, entry in files.items() if known.files.get(bucket) != entry]
    if not other and not fresh:
        return known
    arrays = Arrays(table.options.get(w.WRITE_BUFFER_SIZE))
    if sum(known.files[bucket].row_count for bucket in other) * 2 > len(known) * share.count:
        known, fresh = EMPTY, list(entries)
    else:
        known = known.without(other)
    came = _read(table, env, fresh, share, arrays)
    _check_alone(table, partition, known, came)
    found = KeyBuckets(files, known.with_keys(came, arrays, env).runs)
    remember(table, env, partition, found, share)
    return found


def remember(table: TableDef, env: Env, partition: bytes, found: KeyBuckets, share: Share) -> None:
    """Keep known keys for the next writer of this process."""
    _cache.put(("keys", table.paths.metadata_root, partition, share, env.storage), found, 1024 + found.memory_bytes)


def _read(table: TableDef, env: Env, entries: Sequence[IndexEntry], share: Share, arrays: Arrays) -> Run:
    """Return the keys of a share from index files, as one run."""

    def read(entry: IndexEntry) -> Run:
        found = share.of(read_hashes(table, env, entry))
        hashes = arrays.empty(len(found), np.int32)
        hashes[:] = found
        if (hashes[1:] < hashes[:-1]).any():  # the file of another engine
            hashes.sort()
        return Run(hashes, np.broadcast_to(np.uint16(entry.bucket), len(found)))

    return _merged(env.map(read, entries), arrays, env)


def _merged(runs: Sequence[Run], arrays: Arrays, env: Env) -> Run:
    """Return runs as one, a range of hashes at a time."""
    total = sum(len(run) for run in runs)
    hashes, buckets = arrays.empty(total, np.int32), arrays.empty(total, np.uint16)
    steps = total // _STEP_ROWS + 1
    bounds = np.linspace(-_HASHES // 2, _HASHES // 2, steps + 1)[1:-1].astype(np.int64)
    cuts = [[0, *np.searchsorted(run.hashes, bounds.astype(np.int32)).tolist(), len(run)] for run in runs]

    def merge(share: range) -> None:
        done = sum(cut[share.start] for cut in cuts)
        for step in share:
            parts = [run.slice(cut[step], cut[step + 1]) for run, cut in zip(runs, cuts, strict=True)]
            packed = np.empty(sum(map(len, parts)), np.int64)
            start = 0
            for part in parts:
                own = packed[start : start + len(part)]
                own[:] = part.hashes
                own <<= 16
                own |= part.buckets
                start += len(part)
            if sum(len(part) > 0 for part in parts) > 1:
                packed.sort(kind="stable")  # it finds the runs and merges them, ten times as fast as a sort
            end = done + len(packed)
            buckets[done:end] = packed & 0xFFFF
            packed >>= 16
            hashes[done:end] = packed
            done = end

    half = steps // 2 if total >= _HALVES_FROM_ROWS else 0
    env.map(merge, [share for share in (range(half), range(half, steps)) if share])
    return Run(hashes, buckets)


def _check_alone(table: TableDef, partition: bytes, known: KeyBuckets, came: Run) -> None:
    """Refuse index files that put a key into two buckets: rows of it might be in either.

    Raises:
        FormatError: names the buckets.
    """
    twice = came.hashes[1:][came.hashes[1:] == came.hashes[:-1]]
    if not len(twice) and known.runs:
        twice = came.hashes[known.find(came.hashes) != UNKNOWN]
    if len(twice):
        both = sorted({int(number) for run in (*known.runs, came) for number in run.buckets[run.hashes == twice[0]]})
        what = f"indexes of buckets {both[0]} and {both[1]}" if len(both) > 1 else f"index of bucket {both[0]}"
        where = f"of '{table.partition_directory(partition)}'"
        has = "both have" if len(both) > 1 else "has twice"
        raise FormatError(
            f"cannot write to '{table.name}': the key {what} {where} {has} the key hash {twice[0]}, so "
            f"{'rows of one key may lie in either' if len(both) > 1 else 'it is damaged'}. Nothing was written. "
            "Call table.repair(). If rows of the key lie in both, overwrite the partition with its own rows.",
            table=table.name,
        )


_cache: Final = Cache()
"""By table, partition, share and storage. Index files never change, and values name those that they were read from."""

"""Shards: a bucket of a partition, from the snapshot that opened it to the one that closed it.

    commit 5   new partition, 2 buckets     opens  a, b
    commit 9   rescale to 4 buckets         closes a, b    opens  c, d, e, f    c and e from a, d and f from b
    commit 12  overwrite                    closes c .. f  opens  g, h, i, j    each from the one of its number

Which shards there are is a pure function of the state in which the stream began and of the files that each commit
added and removed. So every process finds the same shards with the same ids, whatever engine committed. A partition of a
table with a fixed number of buckets opens all of them with its first rows; elsewhere a bucket is opened by its own
first rows. An overwrite closes the shards of a partition if it adds rows there, or leaves none: one that only removes
some files, as a delete from a table without a key does, leaves them open for what happens to the others.

The records of a closed shard are those of snapshots before the closing one, and of that one what an overwrite removed
or what a rescale published: changes that waited for a compaction, which lie in the buckets that it closes. A partition
without files can get rows with another number of buckets: these are records of the new shards alone.

An erasure commits which shards are forgotten (`FORGOTTEN`). If their partition has no files after that commit, it
closes them and takes their partition from them, which may be a value of an erased row. They end like other closed
shards, and the next shards of that partition have no parents.

Semantics: "Table Store Stream".
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Container, Iterable, Iterator
from typing import Final, NamedTuple

from merganser.meta.data_file import ADD, DELETE, ManifestEntry
from merganser.meta.lineage import parents
from merganser.meta.live_files import BucketId
from merganser.meta.snapshot import OVERWRITE, Snapshot

_PREFIX: Final = "shard-"
_COMMIT_DIGITS: Final = 12
_NUMBER_DIGITS: Final = 6
_ID: Final = re.compile(rf"{_PREFIX}[0-9]{{{_COMMIT_DIGITS},19}}[-.][0-9]{{{_NUMBER_DIGITS},10}}")
NO_PARTITION: Final = b"\0" * 12
"""The serialized partition of a table without partition columns."""
FORGOTTEN: Final = "merganser.forgotten-shards"
"""Property of a snapshot: ids of shards, separated by commas. Later snapshots do not have it."""


def is_shard_id(text: str) -> bool:
    """Return whether a text could be the id of a shard; it may be one that is trimmed."""
    return _ID.fullmatch(text) is not None


class Shard(NamedTuple):
    """One shard.

    Attributes:
        id: sorts in the order in which shards were opened.
        partition: serialized; empty: it was erased.
        total: the number of buckets of its partition; 0: buckets are added as keys arrive.
        opened: the first snapshot whose records it has.
        closed: the snapshot that closed it; None: it is open.
        closed_ms: when that was committed.
        parents: the ids of the shards that its keys were in before.
    """

    id: str
    partition: bytes
    bucket: int
    total: int
    opened: int
    parents: tuple[str, ...] = ()
    closed: int | None = None
    closed_ms: int | None = None

    def is_opened_by(self, snapshot: int) -> bool:
        """Return whether a commit opened it; those of the beginning of a stream were there before their first one."""
        return self.opened == snapshot == int(self.id[len(_PREFIX) :][:_COMMIT_DIGITS])


class Shards:
    """All shards of a stream as of a snapshot. It changes as snapshots are applied, under the lock of its owner.

    Attributes:
        head: the snapshot that was applied last; 0: none.
        changes: counts what was opened, closed and forgotten.

    Args:
        again: nobody knows any more which shards there were: those of the beginning get ids that no others had.
    """

    def __init__(self, head: int, every: Iterable[Shard] = (), *, again: bool = False) -> None:
        self.head = head
        self.changes = 0
        self._every: dict[str, Shard] = {}
        self._ids: list[str] = []  # rising, since a shard that is opened gets the greatest
        self._mark = "." if again else "-"
        self._open: dict[bytes, dict[int, str]] = {}
        self._closed: dict[bytes, dict[int, str]] = {}
        for shard in every:
            self._add(shard)

    def __len__(self) -> int:
        return len(self._every)

    def get(self, shard_id: str) -> Shard | None:
        """Return a shard; None: there is none of the id."""
        return self._every.get(shard_id)

    def __iter__(self) -> Iterator[Shard]:
        """Yield all shards in the order in which they were opened."""
        return iter(self._every.values())

    def since(self, shard_id: str) -> Iterator[Shard]:
        """Yield the shards from one on, in the order in which they were opened. Time: that of those that are taken."""
        for at in range(bisect_left(self._ids, shard_id), len(self._ids)):
            yield self._every[self._ids[at]]

    def open_in(self, place: BucketId) -> Shard | None:
        """Return the open shard of a bucket."""
        found = self._open.get(place[0], {}).get(place[1])
        return None if found is None else self._every[found]

    def begin(self, buckets: Iterable[tuple[BucketId, int]], *, fixed: int | None) -> None:
        """Open the shards of the state in which a stream begins.

        Args:
            buckets: the buckets that have files, with the number of buckets of each.
            fixed: the number of buckets of a table that has no partitions and no rows yet; None: it is not known.
        """
        first: dict[bytes, dict[int, int]] = {}
        for (partition, bucket), total in buckets:
            if bucket >= 0:
                first.setdefault(partition, {})[bucket] = total
        if not first and fixed is not None:
            first[NO_PARTITION] = {0: fixed}
        self._open_all(self.head, {p: (max(each.values()), set(each)) for p, each in first.items()})

    def apply(
        self, snapshot: Snapshot, delta: Iterable[ManifestEntry], filled: Callable[[], Container[BucketId]]
    ) -> None:
        """Close and open what a commit closed and opened.

        Args:
            delta: the files that it added and removed.
            filled: returns the buckets that have files after it; called at most once, if nothing else tells. What it
                raises leaves everything as it was.
        """
        added: dict[bytes, tuple[int, set[int]]] = {}
        removed: set[bytes] = set()
        overwrites = snapshot.commit_kind == OVERWRITE
        for entry in delta:
            if entry.bucket < 0:  # rows that wait for their buckets
                continue
            if entry.kind == ADD:
                total, buckets = added.get(entry.partition, (0, set()))
                buckets.add(entry.bucket)
                added[entry.partition] = (max(total, entry.total_buckets, 0), buckets)
            elif entry.kind == DELETE and overwrites:
                removed.add(entry.partition)
        forgotten = self._without_files(snapshot, filled)
        emptied = removed & added.keys()
        if thinned := (removed - added.keys()) & self._open.keys():
            there_still = filled()
            emptied |= {p for p in thinned if not any((p, bucket) in there_still for bucket in self._open[p])}
        opening: dict[bytes, tuple[int, set[int]]] = {}
        for partition, (total, buckets) in added.items():
            there = self._open.get(partition, {})
            if there and partition not in emptied and self._every[next(iter(there.values()))].total != total:
                emptied.add(partition)
            missing = buckets if partition in emptied else buckets - there.keys()
            if missing:
                opening[partition] = (total, missing)
        for partition in emptied:
            self._close(partition, snapshot)
        for partition in forgotten:
            self._forget(partition, snapshot)
        self._open_all(snapshot.id, opening)
        self.head = snapshot.id

    def as_of(self, number: int) -> Shards:
        """Return the shards as of an earlier snapshot: those that it had, open if they were closed later on."""
        return Shards(
            number,
            (
                one._replace(closed=None, closed_ms=None) if one.closed is not None and one.closed > number else one
                for one in self
                if (one.partition or one.closed is None or one.closed <= number)
                and (one.opened <= number or (one.opened == number + 1 and not one.is_opened_by(one.opened)))
            ),
        )

    def trim(self, before_ms: int, earliest: int) -> None:
        """Forget the shards that were closed before a time, unless a rollback would open them again.

        Args:
            earliest: the oldest snapshot that is kept, which is as far as a rollback goes.
        """
        gone = [
            one
            for one in self._every.values()
            if one.closed is not None and one.closed <= earliest and (one.closed_ms or 0) < before_ms
        ]
        self.changes += len(gone)
        for shard in gone:
            del self._every[shard.id]
            last = self._closed.get(shard.partition, {})
            if last.get(shard.bucket) == shard.id:
                del last[shard.bucket]
        if gone:
            self._ids = list(self._every)

    def _add(self, shard: Shard) -> None:
        self.changes += 1
        self._every[shard.id] = shard
        self._ids.append(shard.id)
        if not shard.partition:
            return
        if shard.closed is None:
            self._open.setdefault(shard.partition, {})[shard.bucket] = shard.id
            return
        last = self._closed.setdefault(shard.partition, {})
        before = self._every[next(iter(last.values()))].closed if last else None
        if before != shard.closed:  # all shards of a partition are closed at once; those of the last time are parents
            if before is not None and before > shard.closed:
                return
            last.clear()
        last[shard.bucket] = shard.id

    def _close(self, partition: bytes, snapshot: Snapshot) -> None:
        closing = self._open.pop(partition, {})
        if closing:
            self._closed[partition] = closing
        self.changes += len(closing)
        for shard_id in closing.values():
            shard = self._every[shard_id]
            self._every[shard_id] = shard._replace(closed=snapshot.id, closed_ms=snapshot.time_millis)

    def _without_files(self, snapshot: Snapshot, filled: Callable[[], Container[BucketId]]) -> set[bytes]:
        """Return the partitions of the shards that a commit forgets, without those that have files after it."""
        text = (snapshot.properties or {}).get(FORGOTTEN, "")
        every = [shard for one in text.split(",") if (shard := self._every.get(one)) is not None and shard.partition]
        if not every:
            return set()
        there = filled()
        return {one.partition for one in every} - {
            one.partition for one in self if (one.partition, one.bucket) in there
        }

    def _forget(self, partition: bytes, snapshot: Snapshot) -> None:
        """Close all shards of a partition, and take it from them."""
        self._close(partition, snapshot)
        self._closed.pop(partition, None)
        for shard in [one for one in self if one.partition == partition]:
            self._every[shard.id] = shard._replace(partition=b"")
            self.changes += 1

    def _open_all(self, named: int, opening: dict[bytes, tuple[int, set[int]]]) -> None:
        """Open shards, named after the snapshot that opened them, or after the last one before the stream."""
        number = max(named, self.head + 1)
        count = 0
        for partition in sorted(opening):
            total, buckets = opening[partition]
            for bucket in range(total) if total > 0 else sorted(buckets):
                if bucket in self._open.get(partition, {}):
                    continue
                mark = self._mark if named == self.head else "-"
                name = f"{_PREFIX}{named:0{_COMMIT_DIGITS}d}{mark}{count:0{_NUMBER_DIGITS}d}"
                self._add(
                    Shard(name, partition, bucket, max(total, 0), number, self._parents(partition, bucket, total))
                )
                count += 1

    def _parents(self, partition: bytes, bucket: int, total: int) -> tuple[str, ...]:
        """Return the shards that the keys of a bucket were in before, as far as the last layout says."""
        closed = self._closed.get(partition, {})
        if not closed:
            return ()
        before = self._every[next(iter(closed.values()))].total
        if before > 0 and total > 0:
            return tuple(closed[one] for one in parents(bucket, before, total) if one in closed)
        return tuple(closed[one] for one in sorted(closed))

"""Live files: the entries of all manifests of a snapshot, replayed.

State(n) = base list then delta list of snapshot n = State(n - 1) then the delta list of n. So a state that
is known is carried forward by the deltas alone, and the cost of planning follows what was committed since. What a
commit adds to a bucket of n files costs the k files that it adds, and the copy of n pointers: no file that was there
is looked at again. Buckets that a commit leaves alone cost it nothing: both states share them (`layered`), and what
is asked of all of them at every commit is counted along.

Format: "merge rules" of data manifests.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from typing import Any

from merganser.errors import FormatError
from merganser.meta.data_file import ADD, ManifestEntry
from merganser.meta.layered import Layered
from merganser.values import dataclass

BucketId = tuple[bytes, int]
"""Serialized partition and bucket number."""


@dataclass(frozen=True, slots=True)
class BucketFiles:
    """The live files of one bucket, in the order their adds were replayed.

    Attributes:
        entries: an entry of kind ADD for each.
        max_sequence: the largest sequence number of their rows.
        is_mixed: whether they say different numbers of buckets.
        names: the names of the files, in sets that grow from the last to the first: one that is added is merged with
            the smaller ones before it, so that each name is copied as often as their number has binary digits.
    """

    entries: tuple[ManifestEntry, ...]
    max_sequence: int
    is_mixed: bool
    names: tuple[frozenset[str], ...] = field(compare=False, repr=False)

    @property
    def total_buckets(self) -> int:
        """The number of buckets that its last file was written with."""
        return self.entries[-1].total_buckets


@dataclass(frozen=True, slots=True)
class LiveFiles:
    """The live files of one snapshot, by partition and bucket.

    Attributes:
        count: how many files.
        totals: by number of buckets, how many buckets have files that were written with it; fixed buckets only.
    """

    buckets: Layered[BucketId, BucketFiles]
    count: int
    totals: Mapping[int, int]

    def __iter__(self) -> Iterator[ManifestEntry]:
        for bucket in self.buckets.values():
            yield from bucket.entries

    def __len__(self) -> int:
        return self.count

    def next_sequence(self, bucket: BucketId) -> int:
        """Return the first sequence number a new writer of the bucket may use."""
        found = self.buckets.get(bucket)
        return 0 if found is None else found.max_sequence + 1

    def other_total(self, partition: bytes, total: int) -> int | None:
        """Return a number of buckets that files of a partition were written with, other than `total`; None: none was.

        Time: where a table has one number of buckets, that of a look at it; else that of the buckets of a partition.
        """
        for other in self.totals:
            if other == total:
                continue
            few = other < len(self.buckets)
            buckets = range(other) if few else [bucket for owner, bucket in self.buckets if owner == partition]
            for bucket in buckets:
                files = self.buckets.get((partition, bucket))
                if files is not None and _fixed_total(bucket, files) == other:
                    return other
        return None

    def apply(self, entries: Iterable[ManifestEntry], *, source: str, path: str | None = None) -> LiveFiles:
        """Return the state after more entries.

        Args:
            source: the snapshot, for messages.
            path: its file.

        Raises:
            FormatError: an entry adds what is live, or removes what is not; names the source.
        """
        changes: dict[BucketId, list[ManifestEntry]] = {}
        for entry in entries:
            changes.setdefault((entry.partition, entry.bucket), []).append(entry)
        if not changes:
            return self
        buckets: dict[BucketId, BucketFiles | None] = {}
        count, totals = self.count, dict(self.totals)
        for key, changed in changes.items():
            before = self.buckets.get(key)
            after = buckets[key] = _replay(before, changed, source, path)
            for files, step in ((before, -1), (after, 1)):
                if files is not None:
                    count += step * len(files.entries)
                    if total := _fixed_total(key[1], files):
                        totals[total] = totals.get(total, 0) + step
        return LiveFiles(self.buckets.changed(buckets), count, {total: n for total, n in totals.items() if n})


EMPTY = LiveFiles(Layered(), 0, {})


def _fixed_total(bucket: int, files: BucketFiles) -> int:
    """Return the number of buckets that files were written with; 0 where rows are not hashed over a fixed number."""
    return max(files.total_buckets, 0) if bucket >= 0 else 0


def _replay(
    before: BucketFiles | None, changed: list[ManifestEntry], source: str, path: str | None
) -> BucketFiles | None:
    """Return the bucket after its changes, or None when nothing is left.

    A DELETE may come before its ADD within a run of merged manifests, so unmatched ones wait for it.
    """
    entries = () if before is None else before.entries
    known = () if before is None else before.names
    names = frozenset([entry.file.name for entry in changed])
    highest = max([entry.file.max_sequence for entry in changed])
    if all(entry.kind == ADD for entry in changed) and len(names) == len(changed) and _none_of(names, known):
        # the common append: no identity can clash
        highest = highest if before is None else max(highest, before.max_sequence)
        totals = {entry.total_buckets for entry in (*entries[-1:], *changed)}
        mixed = len(totals) > 1 or (before is not None and before.is_mixed)
        return BucketFiles(entries + tuple(changed), highest, mixed, _with(known, names))
    touched = [entry for entry in entries if entry.file.name in names]
    live: dict[Any, ManifestEntry] = {entry.identity: entry for entry in touched}
    waiting: set[Any] = set()
    for entry in changed:
        identity = entry.identity
        if entry.kind == ADD:
            if identity in waiting:
                waiting.discard(identity)
            elif identity in live:
                raise _contradiction(source, path, f"add the file '{entry.file.name}' twice", entry.file.name)
            else:
                live[identity] = entry
        elif live.pop(identity, None) is None:
            waiting.add(identity)
    if waiting:
        name = next(iter(waiting))[3]
        raise _contradiction(source, path, f"remove the file '{name}', which they never added", name)
    old, new = {id(entry) for entry in touched}, {id(entry) for entry in live.values()}
    kept = [entry for entry in entries if entry.file.name not in names or id(entry) in new]
    kept += [entry for entry in live.values() if id(entry) not in old]
    if not kept:
        return None
    names = frozenset([entry.file.name for entry in kept])
    mixed = len({entry.total_buckets for entry in kept}) > 1
    return BucketFiles(tuple(kept), max([entry.file.max_sequence for entry in kept]), mixed, (names,))


def _none_of(names: frozenset[str], known: tuple[frozenset[str], ...]) -> bool:
    return all(names.isdisjoint(some) for some in known)


def _with(known: tuple[frozenset[str], ...], names: frozenset[str]) -> tuple[frozenset[str], ...]:
    while known and len(known[-1]) <= len(names):
        names |= known[-1]
        known = known[:-1]
    return (*known, names)


def _contradiction(source: str, path: str | None, what: str, name: str) -> FormatError:
    place = "" if path is None else f" ('{path}')"
    context = {"file": name} if path is None else {"file": name, "path": path}
    return FormatError(
        f"cannot read {source}{place}: its manifests {what}. Roll back to an earlier snapshot.", **context
    )

"""Live files: the entries of all manifests of a snapshot, replayed.

State(n) = base list then delta list of snapshot n = State(n - 1) then the delta list of n. So a state that
is known is carried forward by the deltas alone, and the cost of planning follows what was committed since. What a
commit adds to a bucket of n files costs the k files that it adds, and the copy of n pointers: no file that was there
is looked at again.

Format: "merge rules" of data manifests.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from merganser.errors import FormatError
from merganser.meta.data_file import ADD, ManifestEntry

BucketId = tuple[bytes, int]
"""Serialized partition and bucket number."""


@dataclass(frozen=True, slots=True)
class BucketFiles:
    """The live files of one bucket, in the order their adds were replayed.

    Attributes:
        entries: an entry of kind ADD for each.
        max_sequence: the largest sequence number of their rows.
        names: the names of the files, in sets that grow from the last to the first: one that is added is merged with
            the smaller ones before it, so that each name is copied as often as their number has binary digits.
    """

    entries: tuple[ManifestEntry, ...]
    max_sequence: int
    names: tuple[frozenset[str], ...] = field(compare=False, repr=False)

    @property
    def total_buckets(self) -> int:
        """The number of buckets its files were written with."""
        return self.entries[-1].total_buckets


@dataclass(frozen=True, slots=True)
class LiveFiles:
    """The live files of one snapshot, by partition and bucket."""

    buckets: Mapping[BucketId, BucketFiles]

    def __iter__(self) -> Iterator[ManifestEntry]:
        for bucket in self.buckets.values():
            yield from bucket.entries

    def __len__(self) -> int:
        return sum(len(bucket.entries) for bucket in self.buckets.values())

    def next_sequence(self, bucket: BucketId) -> int:
        """Return the first sequence number a new writer of the bucket may use."""
        found = self.buckets.get(bucket)
        return 0 if found is None else found.max_sequence + 1

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
        buckets = dict(self.buckets)
        for key, changed in changes.items():
            live = _replay(buckets.get(key), changed, source, path)
            if live is None:
                buckets.pop(key, None)
            else:
                buckets[key] = live
        return LiveFiles(buckets)


EMPTY = LiveFiles({})


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
        return BucketFiles(entries + tuple(changed), highest, _with(known, names))
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
    return BucketFiles(tuple(kept), max([entry.file.max_sequence for entry in kept]), (names,))


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

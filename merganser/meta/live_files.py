"""Live files: the entries of all manifests of a snapshot, replayed.

State(n) = base list then delta list of snapshot n = State(n - 1) then the delta list of n. So a state that
is known is carried forward by the deltas alone, and the cost of planning follows what was committed since.

Format: "merge rules" of data manifests.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from merganser.errors import FormatError
from merganser.meta.data_file import ADD, ManifestEntry

BucketId = tuple[bytes, int]
"""Serialized partition and bucket number."""


@dataclass(frozen=True, slots=True)
class BucketFiles:
    """The live files of one bucket, in the order their adds were replayed."""

    entries: tuple[ManifestEntry, ...]
    max_sequence: int

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
            live = _replay(buckets[key].entries if key in buckets else (), changed, source, path)
            if live is None:
                buckets.pop(key, None)
            else:
                buckets[key] = live
        return LiveFiles(buckets)


EMPTY = LiveFiles({})


def _replay(
    before: tuple[ManifestEntry, ...], changed: list[ManifestEntry], source: str, path: str | None
) -> BucketFiles | None:
    """Return the bucket after its changes, or None when nothing is left.

    A DELETE may come before its ADD within a run of merged manifests, so unmatched ones wait for it.
    """
    if all(entry.kind == ADD for entry in changed):
        names = {entry.file.name for entry in before}
        if not any(entry.file.name in names for entry in changed):  # the common append: no identity can clash
            entries = before + tuple(changed)
            if len({entry.file.name for entry in changed}) == len(changed):
                return BucketFiles(entries, max(entry.file.max_sequence for entry in entries))
    live: dict[Any, ManifestEntry] = {entry.identity: entry for entry in before}
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
    entries = tuple(live.values())
    return BucketFiles(entries, max(e.file.max_sequence for e in entries)) if entries else None


def _contradiction(source: str, path: str | None, what: str, name: str) -> FormatError:
    place = "" if path is None else f" ('{path}')"
    context = {"file": name} if path is None else {"file": name, "path": path}
    return FormatError(
        f"cannot read {source}{place}: its manifests {what}. Roll back to an earlier snapshot.", **context
    )

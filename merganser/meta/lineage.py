"""Lineage of buckets: which buckets the rows of a bucket came from when their number changed.

The snapshot of a rescale, and every later one, names the last rescale in the property `merganser.rescaled`. So all
rescales are found by as many looks, the newest first. The files that a rescale removes and adds say which partitions it
moved, and both numbers of buckets. A bucket is a hash modulo the number of buckets, so the numbers say the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import gcd
from typing import Final

from merganser.meta.data_file import ADD, ManifestEntry
from merganser.meta.snapshot import Snapshot
from merganser.meta.table_state import MetaReader
from merganser.values import dataclass

RESCALED: Final = "merganser.rescaled"


@dataclass(frozen=True, slots=True)
class Rescale:
    """A commit that moved rows to another number of buckets.

    Attributes:
        partitions: by serialized partition, the numbers of buckets before and after.
    """

    snapshot: Snapshot
    partitions: Mapping[bytes, tuple[int, int]]

    @property
    def numbers(self) -> set[int]:
        """The numbers of buckets after."""
        return {after for _, after in self.partitions.values()}


def rescaled(number: int) -> dict[str, str]:
    """Return the property of a snapshot that rescales."""
    return {RESCALED: str(number)}


def parents(bucket: int, before: int, after: int) -> range:
    """Return the buckets of `before` that the rows of a bucket of `after` came from."""
    return range(bucket % gcd(before, after), before, gcd(before, after))


def rescales(reader: MetaReader, snapshot: Snapshot | None) -> Iterator[Rescale]:
    """Yield the rescales up to a snapshot, the newest first, as far as their snapshots are kept."""
    while snapshot is not None:
        number = last_rescale(snapshot)
        found = reader.snapshots.get(number) if number else None
        if found is None:
            return
        yield Rescale(found, moved(reader.delta(found)))
        snapshot = reader.snapshots.get(found.id - 1)


def last_rescale(snapshot: Snapshot) -> int:
    """Return the id of the last rescale up to a snapshot; 0: there was none."""
    text = (snapshot.properties or {}).get(RESCALED, "")
    return int(text) if text.isdigit() else 0


def moved(delta: Iterable[ManifestEntry]) -> dict[bytes, tuple[int, int]]:
    """Return the partitions of a rescale, with the numbers of buckets before and after."""
    before: dict[bytes, int] = {}
    after: dict[bytes, int] = {}
    for entry in delta:
        (after if entry.kind == ADD else before)[entry.partition] = entry.total_buckets
    return {partition: (number, after.get(partition, number)) for partition, number in before.items()}

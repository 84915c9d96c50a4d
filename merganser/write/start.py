"""Start: what the rows of a write come after. A value that travels to tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field

from merganser.commit.conflict import rows_version
from merganser.meta.data_file import ADD
from merganser.meta.index_manifest import HASH, IndexEntry
from merganser.meta.layout import Layout
from merganser.meta.live_files import BucketId
from merganser.meta.snapshot import Snapshot
from merganser.meta.table_state import MetaReader, TableState
from merganser.values import dataclass


@dataclass(frozen=True, slots=True)
class KeyFiles:
    """The files of a state that say which bucket a key lies in, for tables whose buckets are added as keys arrive.

    Attributes:
        by_partition: index files of type HASH; one of each bucket.
    """

    by_partition: Mapping[bytes, tuple[IndexEntry, ...]] = field(default_factory=dict)

    @classmethod
    def among(cls, index: Iterable[IndexEntry]) -> KeyFiles:
        """Return those among all index files of a state."""
        found: dict[bytes, list[IndexEntry]] = {}
        for entry in index:
            if entry.index_type == HASH:
                found.setdefault(entry.partition, []).append(entry)
        return cls({partition: tuple(entries) for partition, entries in found.items()})

    def of(self, partition: bytes) -> tuple[IndexEntry, ...]:
        """Return the files of a partition."""
        return self.by_partition.get(partition, ())

    def names(self, partition: bytes) -> frozenset[str]:
        """Return the names of the files of a partition."""
        return frozenset(entry.name for entry in self.of(partition))


@dataclass(frozen=True, slots=True)
class RowsState:
    """Which rows a table has, as far as snapshots tell: compactions change none.

    Attributes:
        snapshot: the snapshot to read them from; None: there are no rows to look at.
        version: a text that other rows do not have: the base list of the newest commit that changed rows.
        before: the version that this commit followed; None: it is not known.
        added: the names of the data files that it added.
        counts: by partition and bucket, how many rows are stored, older versions among them.
    """

    snapshot: Snapshot | None
    version: str = ""
    before: str | None = None
    added: frozenset[str] = frozenset()
    counts: Mapping[bytes, Mapping[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Start:
    """The state that rows come after, as far as a writer needs it.

    Attributes:
        sequences: returns the first free sequence number of a bucket; see `write.sequences`.
        keys: says where keys lie.
        assigners: how many assigners the keys of a partition have; see `write.dynamic`.
        rows: the rows, for tables whose keys may move between partitions; None for others.
        layout: the numbers of buckets of partitions, for tables that may postpone buckets; None: the rows wait.
    """

    sequences: Callable[[BucketId], int]
    keys: KeyFiles = KeyFiles()
    assigners: int = 1
    rows: RowsState | None = None
    layout: Layout | None = None


def rows_state(reader: MetaReader, state: TableState) -> RowsState:
    """Return which rows a state has."""
    counts: dict[bytes, dict[int, int]] = {}
    for (partition, bucket), files in state.live.buckets.items():
        counts.setdefault(partition, {})[bucket] = sum(entry.file.row_count for entry in files.entries)
    if state.snapshot is None:
        return RowsState(None)
    below = reader.snapshots.from_newest(state.snapshot)
    version, changed = rows_version(below)
    if changed is None:
        return RowsState(state.snapshot, version, counts=counts)
    added = frozenset(entry.file.name for entry in reader.delta(changed) if entry.kind == ADD)
    return RowsState(state.snapshot, version, rows_version(below)[0], added, counts)

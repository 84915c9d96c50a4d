"""Sources: which stored files a read looks at, as one value. A read asks its source when it is planned, not before.

| | files |
|---|---|
| `State` | all live files of a snapshot |
| `Delta` | those that the snapshot's own commit added |
| `MadeSince` | live files of a snapshot that were made since a time |
| `Above` | live files of a snapshot above level 0 |
| `Exchanged` | those that a commit added, or those that it removed |
| `Marked` | those in which a commit marked rows as deleted |
| `OfPartitions` | of another source those of some partitions |
| `Compacted` | of another source what the last full compactions left, which no merge is needed for |

Two more are changes instead of a state (`Increment`, planned by `scan.changes`):

| | rows |
|---|---|
| `Published` | what some snapshots published, one after the other |
| `Difference` | what a state has that an earlier one had not, and the other way round |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from merganser.meta.data_file import ADD, DataFile, ManifestEntry
from merganser.meta.index_manifest import IndexEntry
from merganser.meta.live_files import EMPTY, BucketId
from merganser.meta.snapshot import APPEND, COMPACT, OVERWRITE, Snapshot
from merganser.meta.table_def import TableDef
from merganser.meta.table_state import MetaReader, TableState
from merganser.options import write as w
from merganser.values import dataclass


@dataclass(frozen=True, slots=True)
class State:
    """All live files of a snapshot; None: of the newest whenever a result is asked for."""

    snapshot: Snapshot | None = None

    def narrowed(self, state: TableState, reader: MetaReader) -> TableState:
        """Return the files to read of the state of the snapshot."""
        return state


@dataclass(frozen=True, slots=True)
class Delta:
    """Files that the snapshot's own commit added; none of a compaction or an overwrite."""

    snapshot: Snapshot | None = None

    def narrowed(self, state: TableState, reader: MetaReader) -> TableState:
        """Return the files to read of the state of the snapshot."""
        if state.snapshot is None:
            return state
        plain = state.snapshot.commit_kind == APPEND
        added = [entry for entry in reader.delta(state.snapshot) if entry.kind == ADD] if plain else []
        return _of(state.snapshot, added, reader)


@dataclass(frozen=True, slots=True)
class MadeSince:
    """Live files of a snapshot that were made at a time or later.

    Attributes:
        millis: the time, in epoch milliseconds. A file that does not say when it was made counts as made in 1970.
    """

    millis: int
    snapshot: Snapshot | None = None

    def narrowed(self, state: TableState, reader: MetaReader) -> TableState:
        """Return the files to read of the state of the snapshot."""
        if state.snapshot is None:
            return state
        young = [entry for entry in state.live if (entry.file.creation_time_ms or 0) >= self.millis]
        return _of(state.snapshot, young, reader)


@dataclass(frozen=True, slots=True)
class Compacted:
    """Of a table with a key only the files of the highest level; of one without, what `of` has."""

    of: State | Delta | MadeSince | Above | Exchanged | Marked | OfPartitions

    @property
    def snapshot(self) -> Snapshot | None:
        """The snapshot that is read."""
        return self.of.snapshot

    def narrowed(self, state: TableState, reader: MetaReader) -> TableState:
        """Return the files to read of the state of the snapshot: of each bucket those of the highest level in use.

        What the options say now may be another level than what the last full compaction went by.
        """
        if state.snapshot is None:
            return state
        highest: dict[BucketId, int] = {}
        for bucket, files in state.live.buckets.items():
            highest[bucket] = max((entry.file.level for entry in files.entries), default=0)
        found = [
            e for e in self.of.narrowed(state, reader).live if e.file.level == highest.get((e.partition, e.bucket))
        ]
        return _of(state.snapshot, found, reader)


@dataclass(frozen=True, slots=True)
class Above:
    """Live files above level 0: what the changelog of the producer lookup has published."""

    of: State | MadeSince | Exchanged

    @property
    def snapshot(self) -> Snapshot | None:
        """The snapshot that is read."""
        return self.of.snapshot

    def narrowed(self, state: TableState, reader: MetaReader) -> TableState:
        """Return the files to read of the state of the snapshot."""
        if state.snapshot is None:
            return state
        return _of(
            state.snapshot, [entry for entry in self.of.narrowed(state, reader).live if entry.file.level], reader
        )


def published_of(table: TableDef, files: Sequence[DataFile]) -> list[DataFile]:
    """Return, of all live files of a bucket, those with the rows that the changelog of the table has published."""
    match table.options.get(w.CHANGELOG_PRODUCER):
        case "lookup":
            return [file for file in files if file.level]
        case "full-compaction":
            highest = max((file.level for file in files), default=0)
            return [file for file in files if file.level == highest > 0]
    return list(files)


@dataclass(frozen=True, slots=True)
class Exchanged:
    """Files that a commit added or removed, whatever its kind.

    Attributes:
        commit: the snapshot of the commit.
        kind: ADD or DELETE.
        snapshot: whose deletion vectors hide rows: of removed files the snapshot before.
    """

    commit: Snapshot
    kind: int
    snapshot: Snapshot

    def narrowed(self, state: TableState, reader: MetaReader) -> TableState:
        """Return the files to read."""
        chosen = [replace(entry, kind=ADD) for entry in reader.delta(self.commit) if entry.kind == self.kind]
        return _of(self.snapshot, chosen, reader)


@dataclass(frozen=True, slots=True)
class Marked:
    """Files in which a commit may have marked more rows as deleted, by deletion vectors.

    Attributes:
        commit: the snapshot of the commit.
        snapshot: the one before it.
    """

    commit: Snapshot
    snapshot: Snapshot

    def narrowed(self, state: TableState, reader: MetaReader) -> TableState:
        """Return the files to read of the state of the snapshot before."""
        before = _cardinalities(reader.index(self.snapshot))
        after = _cardinalities(reader.index(self.commit))
        names = {name for name, count in after.items() if count is None or count != before.get(name)}
        return _of(self.snapshot, [entry for entry in state.live if entry.file.name in names], reader)


def marks_rows(table: TableDef, commit: Snapshot, before: Snapshot | None) -> bool:
    """Return whether a commit to a table without a key may have marked rows as deleted in files that stay.

    Args:
        before: the snapshot before it; None: it is not known.
    """
    index = commit.index_manifest
    known = None if before is None else before.index_manifest
    return not table.keyed and commit.commit_kind != COMPACT and index not in (None, known)


def takes_rows(table: TableDef, commit: Snapshot, before: Snapshot | None) -> bool:
    """Return whether a commit may have taken rows away that no file of its own has: the snapshot before has them."""
    return commit.commit_kind == OVERWRITE or marks_rows(table, commit, before)


def _cardinalities(entries: Sequence[IndexEntry]) -> dict[str, int | None]:
    """Return how many rows of each data file are marked; None: its writer did not say."""
    return {each.data_file: each.cardinality for entry in entries for each in entry.vectors}


@dataclass(frozen=True, slots=True)
class OfPartitions:
    """Of another source the files of some partitions.

    Attributes:
        partitions: serialized; None: all.
    """

    of: State | MadeSince | Exchanged | Above | Compacted
    partitions: frozenset[bytes] | None

    @property
    def snapshot(self) -> Snapshot | None:
        """The snapshot that is read."""
        return self.of.snapshot

    def narrowed(self, state: TableState, reader: MetaReader) -> TableState:
        """Return the files to read of the state of the snapshot."""
        found = self.of.narrowed(state, reader)
        if self.partitions is None or found.snapshot is None:
            return found
        return _of(found.snapshot, [entry for entry in found.live if entry.partition in self.partitions], reader)


@dataclass(frozen=True, slots=True)
class Published:
    """What snapshots published, or the sum of it.

    Attributes:
        first, last: ids, both included; last None: the newest.
        mode: "delta": the rows of files that commits added. "changelog": those of changelog files. "diff": what the
            snapshots changed together. "auto": the changelog if the table has a producer, else delta.
    """

    first: int
    last: int | None
    mode: str = "auto"

    @property
    def snapshot(self) -> None:
        """None: it is no state."""
        return None


@dataclass(frozen=True, slots=True)
class Difference:
    """What differs between two states; None: a table without rows."""

    before: Snapshot | None
    after: Snapshot | None

    @property
    def snapshot(self) -> None:
        """None: it is no state."""
        return None


Increment = Published | Difference
NOTHING_CHANGED: Final = Difference(None, None)

Source = State | Delta | MadeSince | Compacted | Above | Exchanged | Marked | OfPartitions


def is_compacted(source: Source | Increment) -> bool:
    """Return whether a source has only what full compactions left."""
    return isinstance(source.of if isinstance(source, OfPartitions) else source, Compacted)


def _of(snapshot: Snapshot, entries: Sequence[ManifestEntry], reader: MetaReader) -> TableState:
    return TableState(snapshot, EMPTY.apply(entries, source=f"snapshot {snapshot.id} of '{reader.table_name}'"))

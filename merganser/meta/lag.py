"""Lag: how far a reader is behind a table."""

from __future__ import annotations

from dataclasses import dataclass

from merganser.meta.changelogs import ChangelogStore
from merganser.meta.snapshot import Snapshot
from merganser.meta.snapshots import SnapshotStore


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a reader is behind the newest snapshot.

    Attributes:
        newest: the id of the newest snapshot; 0: there is none.
        snapshots: that it has not read whole.
        seconds: from the commit of the last snapshot that it has read to that of the newest one; 0: it has read all.
    """

    newest: int
    snapshots: int
    seconds: float


def lag_of(store: SnapshotStore, next_snapshot: int, newest: Snapshot | None) -> Lag:
    """Return the lag of a reader.

    If the last snapshot that it has read is gone, or it has read none, the seconds begin with the oldest one that it
    has not read and that is kept.

    Args:
        store: the snapshots of the table.
        next_snapshot: the snapshot that the reader reads next.
        newest: the newest snapshot; None: there is none.
    """
    if newest is None or next_snapshot > newest.id:
        return Lag(0 if newest is None else newest.id, 0, 0.0)
    since = _kept(store, next_snapshot - 1) or _kept(store, next_snapshot) or _kept(store, store.earliest_id() or 0)
    behind_ms = 0 if since is None else newest.time_millis - since.time_millis
    return Lag(newest.id, newest.id - max(next_snapshot, 1) + 1, max(behind_ms, 0) / 1000)


def _kept(store: SnapshotStore, number: int) -> Snapshot | None:
    """Return a snapshot that is there, or whose changelog is."""
    return None if number < 1 else store.get(number) or ChangelogStore(store.paths, store.env).get(number)

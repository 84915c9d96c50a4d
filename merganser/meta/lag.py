"""Lag: how far a reader is behind a table."""

from __future__ import annotations

from merganser.meta.changelogs import ChangelogStore
from merganser.meta.followed import as_of
from merganser.meta.snapshot import Snapshot
from merganser.meta.snapshots import SnapshotStore
from merganser.meta.table_def import TableDef
from merganser.options import write as w
from merganser.storage.env import Env
from merganser.values import dataclass


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


def records_behind(table: TableDef, env: Env, next_snapshot: int, newest: Snapshot | None) -> int | None:
    """Return the number of records of the log of a table between the position of a reader and the newest snapshot.

    It is what tools of Kafka call lag: a difference of offsets. The end of each transaction has an offset, too. No
    broker is asked.

    Args:
        next_snapshot: the snapshot that the reader reads next.
        newest: the newest snapshot; None: there is none.

    Returns:
        None if the table has no log, or if the last snapshot that the reader has read is gone.
    """
    if table.options.get(w.LOG_SYSTEM) == "none":
        return None
    if newest is None or next_snapshot > newest.id:
        return 0
    since = _kept(SnapshotStore(table.paths, env, table.name), next_snapshot - 1)
    if since is None and next_snapshot > 1:
        return None
    begins = (since is not None and _topic(table, env, since) == _topic(table, env, newest) and since.log_offsets) or {}
    # Offsets of a topic that was made again begin at 0.
    lags = ((end, end - begins.get(part, 0)) for part, end in (newest.log_offsets or {}).items())
    return sum(end if lag < 0 else lag for end, lag in lags)


def _topic(table: TableDef, env: Env, snapshot: Snapshot) -> object:
    return as_of(table, env, snapshot.schema_id).options.get(w.KAFKA_TOPIC)


def _kept(store: SnapshotStore, number: int) -> Snapshot | None:
    """Return a snapshot that is there, or whose changelog is."""
    return None if number < 1 else store.get(number) or ChangelogStore(store.paths, store.env).get(number)

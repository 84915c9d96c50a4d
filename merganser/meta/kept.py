"""Whether what a read needs is still kept."""

from __future__ import annotations

from merganser.errors import FormatError, NotFoundError
from merganser.meta.followed import check_not_replaced
from merganser.meta.refs import TagStore
from merganser.meta.snapshot import Snapshot, same_snapshot
from merganser.meta.snapshots import SnapshotStore
from merganser.meta.table_def import TableDef
from merganser.storage.env import Env


def has_expired(table: TableDef, env: Env, snapshot: Snapshot, error: FormatError) -> bool:
    """Return whether a file is missing because the snapshot that needs it has expired: no snapshot and no tag keeps it.

    Args:
        error: why the file cannot be read.

    Raises:
        ConflictError: the table was dropped and re-created, so its files are gone whatever is kept.
    """
    if not isinstance(error.__cause__, NotFoundError):
        return False
    return not is_kept(table, env, snapshot)


def is_kept(table: TableDef, env: Env, snapshot: Snapshot) -> bool:
    """Return whether a snapshot is still there, or a tag keeps it.

    Raises:
        ConflictError: the table was dropped and re-created.
    """
    found = SnapshotStore(table.paths, env, table.name).get(snapshot.id)
    if found is not None and same_snapshot(found, snapshot):
        return True
    tags = TagStore(table.paths, env, table.name).list()
    if any(same_snapshot(tag.snapshot, snapshot) for tag in tags):
        return True
    check_not_replaced(table, env, f"cannot read snapshot {snapshot.id} of '{table.name}'")
    return False

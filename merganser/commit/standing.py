"""Standing: the check that a snapshot still follows the table after its writer has created it.

The writer runs this check before it reports the commit. The writer creates `snapshot-<n+1>` only if that file is
absent, so no other writer made the same snapshot. But two operations may have removed snapshots since the writer read
n. Each removes them in an order that leaves a trace:

* A rollback removes the newest first and lists again at its end. Then n is gone or is another snapshot, and older
  snapshots are still there.
* Expiry removes the oldest first. Then n is gone, and so is every older snapshot. If other writers had used the id n+1
  before, our snapshot lies below the snapshots that are left.

The writer removes a snapshot that does not stand, and commits again on the newest one. If the writer cannot find out,
or cannot remove its snapshot, the outcome is unknown, and the writer keeps every file.

Docs: decisions 0015 and 0016.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator

from merganser.errors import CommitUnknownError, FormatError, SnapshotExistsError, StorageError
from merganser.meta.live_files import LiveFiles
from merganser.meta.snapshot import Snapshot, same_snapshot
from merganser.meta.table_state import MetaReader


def check_stands(reader: MetaReader, stored: Snapshot, live: LiveFiles, before: Snapshot | None) -> None:
    """Remove a new snapshot that does not follow the present state of the table. Time: one read if all is well.

    Args:
        stored: the new snapshot, as its writer created it.
        live: the live files of `stored`.
        before: the snapshot below `stored`; None: `stored` is the first of the table.

    Raises:
        SnapshotExistsError: nothing of the commit is visible; the caller may commit again on the newest snapshot.
        CommitUnknownError: the writer cannot find out whether `stored` stands.
    """
    if before is not None:
        if _is_there(reader, before):
            return
        _check_not_rolled_back(reader, stored, before)
    _check_not_overtaken(reader, stored, live)


def check_hint(reader: MetaReader, stored: Snapshot) -> None:
    """Move the hint back if a rollback to the snapshot below removed a new snapshot before its writer moved the hint.

    The commit was made then, and taken back. Best effort, as the move of the hint. Time: one look if all is well.
    """
    with contextlib.suppress(StorageError):
        if not reader.env.storage.exists(reader.paths.snapshot(stored.id)):
            reader.snapshots.set_latest_hint(max(reader.snapshots.ids(), default=0))


def withdraw(reader: MetaReader, stored: Snapshot, before: Snapshot | None, why: str, *, may_stay: bool) -> None:
    """Remove a new snapshot. A writer that commits on top meanwhile finds the one below missing, and removes its own.

    Args:
        before: the snapshot below `stored`; None: `stored` is the first of the table.
        why: the reason, for messages.
        may_stay: return if the snapshot cannot be removed, since others have committed on top, or since those below
            have expired, so that it alone holds the rows of the table.

    Raises:
        SnapshotExistsError: it was removed: nothing of the commit is visible.
        CommitUnknownError: it was kept and must not stay; or the store failed.
    """
    store = reader.snapshots
    with known_of(reader, stored, "the snapshot could not be removed"):
        others = [number for number in store.ids() if number != stored.id]
        held = "others have committed on top of it already" if any(number > stored.id for number in others) else ""
        if before is not None and not others:
            held = "the snapshots below it have expired already"
        if held and may_stay:
            return
        if held:
            raise _unknown(reader, stored, f"{why} It was kept: {held}.")
        _remove(reader, stored, others)
        if before is not None and not store.ids():  # the last one below expired between the list and the removal
            store.create(stored)
            store.set_latest_hint(stored.id)
            raise _unknown(reader, stored, f"{why} It was put back: the snapshots below it expired meanwhile.")
    raise _removed(reader, stored, why)


def _remove(reader: MetaReader, stored: Snapshot, others: Collection[int]) -> bool:
    """Remove a new snapshot. The hint moves first, and for sure: one that names what was removed stops all writers.

    Args:
        others: the ids of the other snapshots.

    Returns:
        Whether it was there.
    """
    store = reader.snapshots
    if others:
        store.set_latest_hint(max(others))
    else:
        reader.env.storage.delete([reader.paths.latest_hint])
    found = store.get(stored.id)
    if found is None or found.uuid != stored.uuid:
        return False
    store.delete(stored.id)
    return True


def _removed(reader: MetaReader, stored: Snapshot, why: str) -> SnapshotExistsError:
    return SnapshotExistsError(
        f"the writer removed its snapshot {stored.id} of '{reader.table_name}': {why} Nothing of it is visible.",
        table=reader.table_name,
        snapshot=stored.id,
        withdrawn=stored.id,
    )


def _is_there(reader: MetaReader, before: Snapshot) -> bool:
    with contextlib.suppress(StorageError, FormatError):
        found = reader.snapshots.get(before.id)
        return found is not None and same_snapshot(found, before)
    return False


def _check_not_rolled_back(reader: MetaReader, stored: Snapshot, before: Snapshot) -> None:
    """Remove a new snapshot on top of a snapshot that a rollback removed: the new one would bring its rows back.

    A rollback removes the newest first and lists again at its end. The rollback itself removes a snapshot that was
    created before that last list. A snapshot created after it has no predecessor, and this check finds that.
    Decision 0015.

    Raises:
        SnapshotExistsError: nothing of the commit is visible; the caller may commit again on the target of the
            rollback.
        CommitUnknownError: the snapshot could not be removed, or another writer committed on top of it.
    """
    store = reader.snapshots
    with known_of(reader, stored):
        if not store.rolled_back(before):
            return
        was_there = _remove(reader, stored, [number for number in store.ids() if number != stored.id])
        if was_there and any(number > stored.id for number in store.ids()):  # refers to our files
            raise _unknown(
                reader, stored, "the table was rolled back, and others committed on top. Repeat the rollback first."
            )
        raise _removed(reader, stored, "the table was rolled back meanwhile.")


def _check_not_overtaken(reader: MetaReader, stored: Snapshot, live: LiveFiles) -> None:
    """Remove a new snapshot whose id another writer had used before, if that earlier snapshot has expired.

    The check runs when the snapshot below has expired. Expiry removes the oldest first. So if our snapshot stands,
    either the next id holds a snapshot that follows ours, or there is no snapshot above ours. Decision 0016.

    Raises:
        SnapshotExistsError: nothing of the commit is visible; the caller may commit again on the newest snapshot.
        CommitUnknownError: the new snapshot has expired, too, so the writer cannot find out.
    """
    store = reader.snapshots
    with known_of(reader, stored):
        others = [number for number in store.ids() if number != stored.id]
        newest = max(others, default=0)
        if newest <= stored.id:
            return
        store.write_latest_hint(newest)  # before anything here fails: readers of ours would miss what has expired
        follower = store.get(stored.id + 1)
        if follower is not None and _follows(reader, follower, live):
            return
        found = store.get(stored.id)
        if follower is None and (found is None or found.uuid != stored.uuid):
            raise _unknown(
                reader,
                stored,
                "snapshots up to it have expired meanwhile. Raise 'snapshot.time-retained', so that no writer is "
                "slower than expiry.",
            )
        _remove(reader, stored, others)
        raise _removed(reader, stored, "another writer had created a snapshot of that id, and it has expired.")


def _follows(reader: MetaReader, follower: Snapshot, live: LiveFiles) -> bool:
    """Return whether the delta of a snapshot, applied to `live`, gives the live files of that snapshot."""
    state = reader.state(follower)
    try:
        expected = live.apply(reader.delta(follower), source=f"snapshot {follower.id}")
    except FormatError:
        return False
    return {entry.identity for entry in state.live} == {entry.identity for entry in expected}


@contextlib.contextmanager
def known_of(
    reader: MetaReader, stored: Snapshot, what: str = "the snapshot below could not be checked"
) -> Iterator[None]:
    """Raise that the outcome is unknown if the store fails while the writer checks or removes its snapshot."""
    try:
        yield
    except (StorageError, FormatError) as error:
        raise _unknown(reader, stored, f"{what}: {error}") from error


def _unknown(reader: MetaReader, stored: Snapshot, why: str) -> CommitUnknownError:
    return CommitUnknownError(
        f"cannot tell whether snapshot {stored.id} of '{reader.table_name}' was committed: {why} Its files were "
        f"kept. Repeat the write with commit user '{stored.commit_user}' and identifier "
        f"{stored.commit_identifier}; it will not be applied twice.",
        table=reader.table_name,
        snapshot=stored.id,
        uuid=stored.uuid,
    )

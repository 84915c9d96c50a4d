"""Does a snapshot that was just created stand? Asked by whoever created it, before anybody is told of it.

Creating `snapshot-<n+1>` only if absent says that nobody else made it now. It does not say that the table is still the
one it was made for: two others remove snapshots meanwhile, each in an order that leaves a trace.

* A rollback removes the newest first, and looks again at the end: n is gone or another one, what is older is there.
* Expiry removes the oldest first: n is gone, and all that is older. If writers have passed n+1 before, the id had been
  used, and ours lies below those that are left.

A snapshot that does not stand is taken back, and its commit may follow the newest one. Where it cannot be told, or
not taken back, the outcome is unknown, and every file is kept.

Docs: decisions 0015 and 0016.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from merganser.errors import CommitUnknownError, FormatError, SnapshotExistsError, StorageError
from merganser.meta.live_files import LiveFiles
from merganser.meta.refs import same_snapshot
from merganser.meta.snapshot import Snapshot
from merganser.meta.table_state import MetaReader


def check_stands(reader: MetaReader, stored: Snapshot, live: LiveFiles, before: Snapshot | None) -> None:
    """Take a snapshot back that does not follow what the table is now. Time: one read, where nothing is wrong.

    Args:
        stored: the snapshot, as it was created.
        live: its live files.
        before: the snapshot that it follows; None: it is the first.

    Raises:
        SnapshotExistsError: nothing of the commit is visible; it may follow the newest snapshot.
        CommitUnknownError: nobody can tell whether it stands.
    """
    if before is not None:
        if _is_there(reader, before):
            return
        _check_not_rolled_back(reader, stored, before)
    _check_not_overtaken(reader, stored, live)


def _is_there(reader: MetaReader, before: Snapshot) -> bool:
    with contextlib.suppress(StorageError, FormatError):
        found = reader.snapshots.get(before.id)
        return found is not None and same_snapshot(found, before)
    return False


def _check_not_rolled_back(reader: MetaReader, stored: Snapshot, before: Snapshot) -> None:
    """Take a snapshot back that was put on top of one that a rollback had removed: it would bring that back.

    A rollback removes the newest first and looks again at the end. So of a snapshot that came before that look it
    is the rollback's to remove, and one that came after it finds its predecessor gone here. Decision 0015.

    Raises:
        SnapshotExistsError: nothing of the commit is visible; it may follow what the table was rolled back to.
        CommitUnknownError: it could not be taken back, or others committed on top of it.
    """
    store = reader.snapshots
    with _known_of(reader, stored):
        if not store.rolled_back(before):
            return
        found = store.get(stored.id)
        if found is not None and found.uuid == stored.uuid:
            store.delete(stored.id)
            if any(number > stored.id for number in store.ids()):  # made of our files, before ours went
                raise _unknown(
                    reader, stored, "the table was rolled back, and others committed on top. Repeat the rollback first."
                )
        raise SnapshotExistsError(
            f"snapshot {stored.id} of '{reader.table_name}' was taken back, since the table was rolled back "
            "meanwhile. Nothing of this commit is visible.",
            table=reader.table_name,
            snapshot=stored.id,
        )


def _check_not_overtaken(reader: MetaReader, stored: Snapshot, live: LiveFiles) -> None:
    """Take a snapshot back whose id had been used and had expired before it was created: nobody follows it.

    Asked when the snapshot below has expired. Expiry goes from the oldest on, so that while ours is there a
    snapshot that follows it is there, or there is none above at all. Decision 0016.

    Raises:
        SnapshotExistsError: nothing of the commit is visible; it may follow the newest snapshot.
        CommitUnknownError: it has expired, too, so nobody can tell.
    """
    store = reader.snapshots
    with _known_of(reader, stored):
        if not any(number > stored.id for number in store.ids()):
            return
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
        store.delete(stored.id)
        raise SnapshotExistsError(
            f"snapshot {stored.id} of '{reader.table_name}' was created by another writer, and has expired. "
            "Nothing of this commit is visible.",
            table=reader.table_name,
            snapshot=stored.id,
        )


def _follows(reader: MetaReader, follower: Snapshot, live: LiveFiles) -> bool:
    """Return whether a snapshot is what its commit made of these live files."""
    state = reader.state(follower)
    try:
        expected = live.apply(reader.delta(follower), source=f"snapshot {follower.id}")
    except FormatError:
        return False
    return {entry.identity for entry in state.live} == {entry.identity for entry in expected}


@contextlib.contextmanager
def _known_of(reader: MetaReader, stored: Snapshot) -> Iterator[None]:
    """Say that nobody knows whether a snapshot stands, where the store fails while we look or take it back."""
    try:
        yield
    except (StorageError, FormatError) as error:
        raise _unknown(reader, stored, f"what it follows could not be found, and then: {error}") from error


def _unknown(reader: MetaReader, stored: Snapshot, why: str) -> CommitUnknownError:
    return CommitUnknownError(
        f"cannot tell whether snapshot {stored.id} of '{reader.table_name}' was committed: {why} Its files were "
        f"kept. Repeat the write with commit user '{stored.commit_user}' and identifier "
        f"{stored.commit_identifier}; it will not be applied twice.",
        table=reader.table_name,
        snapshot=stored.id,
        uuid=stored.uuid,
    )

"""Rollback: a table as it was at one of its snapshots; what came later goes, and ids are used again.

Steps, each of which a crash may follow::

    1  guard       a tag keeps the target's files while its snapshot may be expiring
    2  target      a tag's snapshot that has expired is put back among the snapshots
    3  hint        LATEST points at the target: readers of other engines believe a hint above which nothing lies
    4  snapshots   from the newest down, one by one: whatever is newest at any moment is a whole state of the table
    5  changelogs  that outlived their snapshots, and tags, of what is gone; consumers beyond it go back to its end
    6  look again  a writer may have committed during 4: its snapshot goes as well, until nothing is newer
    7  guard       goes

A crash leaves the table at one of its own states between the newest and the target. The same rollback again finishes
it. A writer that put a snapshot on top of a removed one after 6 takes it back itself (`commit.standing`): it looks
below after it has created. Files that only the removed snapshots reached stay until orphans are removed.

Format: section "tags, branches, rollback". Decision 0015.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

from merganser.errors import AlreadyExistsError, ConflictError, InvalidInputError, MerganserError
from merganser.meta.consumers import ConsumerStore
from merganser.meta.refs import Tag, TagStore, check_tag_name, same_snapshot
from merganser.meta.snapshot import Snapshot
from merganser.meta.snapshots import SnapshotStore
from merganser.meta.table_def import TableDef
from merganser.meta.table_state import MetaReader
from merganser.storage.env import Env
from merganser.storage.paths import TablePaths

_ROUNDS_MAX: Final = 20
_GUARDED: Final = timedelta(days=1)
_CHANGELOG: Final = re.compile(r"changelog-([1-9][0-9]{0,18})")


def roll_back(table: TableDef, env: Env, *, snapshot: int | None = None, tag: str | None = None) -> Snapshot:
    """Make a snapshot the newest of its table again; remove later snapshots, and tags and changelogs of them.

    Args:
        snapshot, tag: where to; exactly one of them.

    Returns:
        The snapshot that is the newest now.

    Raises:
        InvalidInputError: none or both are given.
        NotFoundError, ExpiredError: there is no such snapshot or tag, or no longer; nothing was changed.
        FormatError: its metadata is damaged; nothing was changed.
        ConflictError: writers went on and on; the table is at one of its states. Stop them and repeat.
        StorageError: the store failed; the table is at one of its states. Repeat.
    """
    what = f"cannot roll back '{table.name}'"
    if (snapshot is None) == (tag is None):
        raise InvalidInputError(f"{what}: give either a snapshot or a tag, such as snapshot=3.")
    reader = MetaReader(table.paths, env, table.name)
    if snapshot is not None:
        if not isinstance(snapshot, int) or isinstance(snapshot, bool):
            raise InvalidInputError(f"{what}: snapshot is {snapshot!r:.80}. It is a number such as 3.")
        target = reader.snapshots.load(snapshot)
    else:
        check_tag_name(tag, what=what)
        target = TagStore(table.paths, env, table.name).load(str(tag)).snapshot
    reader.state(target)  # to a state that cannot be read nothing is given up
    if tag is not None:  # which keeps the files itself
        _put_back(reader.snapshots, target, table)
        take_back(table, env, target)
    else:
        with guarded(table, env, target):
            take_back(table, env, target)
    return target


@contextlib.contextmanager
def guarded(table: TableDef, env: Env, target: Snapshot) -> Iterator[None]:
    """Keep the files of a snapshot while inside, though it may be expiring; steps 1 and 7.

    Raises:
        ExpiredError: it was removed meanwhile; nothing was changed.
    """
    tags = TagStore(table.paths, env, table.name)
    name = f"rollback-to-{target.id}"
    now = datetime.fromtimestamp(env.now_ms() / 1000, UTC)
    tags.delete(name)  # left by one that was killed
    with contextlib.suppress(AlreadyExistsError):  # the same one runs somewhere else
        tags.create(Tag(name=name, snapshot=target, create_time=now, time_retained=_GUARDED))
    try:
        yield
    finally:
        with contextlib.suppress(MerganserError):
            tags.delete(name)


def take_back(table: TableDef, env: Env, target: Snapshot) -> None:
    """Remove everything later than a snapshot, which a tag keeps; steps 3 to 6."""
    store = SnapshotStore(table.paths, env, table.name)
    for _ in range(_ROUNDS_MAX):
        later = [number for number in store.ids() if number > target.id]
        _remove_later(table, env, target, later)
        if not any(number > target.id for number in store.ids()):
            break
    else:
        raise ConflictError(
            f"cannot roll back '{table.name}' to snapshot {target.id}: others committed anew {_ROUNDS_MAX} times "
            "while later snapshots were removed. The table is at one of its states. Stop its writers, then repeat.",
            table=table.name,
            snapshot=target.id,
        )
    if store.get(target.id) is None:  # it was expiring; its files were kept by the guard
        _put_back(store, target, table)
        store.set_latest_hint(target.id)


def _remove_later(table: TableDef, env: Env, target: Snapshot, later: list[int]) -> None:
    store = SnapshotStore(table.paths, env, table.name)
    store.set_latest_hint(target.id)
    for number in reversed(later):
        store.delete(number)
    _remove_changelogs(table.paths, env, target.id)
    tags = TagStore(table.paths, env, table.name)
    for tag in tags.list():
        if tag.snapshot.id > target.id:
            tags.delete(tag.name)
    consumers = ConsumerStore(table.paths, env, table.name)
    for consumer in consumers.list():
        if consumer.next_snapshot > target.id + 1:
            consumers.set(consumer.id, target.id + 1)


def _remove_changelogs(paths: TablePaths, env: Env, newest: int) -> None:
    names = (entry.name for entry in env.storage.list(paths.changelog_directory) if not entry.is_directory)
    later = sorted(number for name in names if (m := _CHANGELOG.fullmatch(name)) and (number := int(m[1])) > newest)
    if later:
        env.storage.replace(paths.latest_changelog_hint, str(newest).encode())
    for number in reversed(later):
        env.storage.delete([paths.changelog(number)])


def _put_back(store: SnapshotStore, target: Snapshot, table: TableDef) -> None:
    """Put a snapshot that only a tag keeps among the table's snapshots again, and say that it is the oldest.

    Its changelog files went when it expired: a tag does not keep them.

    Raises:
        ConflictError: the table has another snapshot of its id; nothing was changed.
    """
    found = store.get(target.id)
    if found is not None:
        if same_snapshot(found, target):
            return
        raise ConflictError(
            f"cannot roll back '{table.name}': its snapshot {target.id} is another one than the tag keeps. Nothing was "
            "changed. Read the tag, and write its rows with overwrite={}.",
            table=table.name,
            snapshot=target.id,
        )
    earliest = store.earliest_id()
    store.create(target.without_changelog())
    if earliest is None or target.id < earliest:
        store.set_earliest_hint(target.id)

"""Tags made and dropped: a snapshot kept by name, and what happens to its files when the name goes.

Format: section "tags, branches, rollback".
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from merganser.errors import ExpiredError, FormatError, InvalidInputError, NotFoundError, StorageError
from merganser.meta.refs import Tag, TagStore, check_tag_name
from merganser.meta.snapshot import Snapshot
from merganser.meta.snapshots import SnapshotStore
from merganser.meta.table_def import TableDef
from merganser.options import upkeep as u
from merganser.options.option import DURATION
from merganser.storage.env import Env
from merganser.upkeep.expire_snapshots import remove_files_of_tag


def create_tag(
    table: TableDef, env: Env, name: str, *, snapshot: int | None = None, retain: timedelta | str | None = None
) -> Tag:
    """Keep a snapshot under a name; it is complete, or there is no such tag.

    Args:
        snapshot: its id; one that only another tag keeps will do. None: the newest.
        retain: how long; None: as 'tag.default-time-retained' says, else for ever.

    Raises:
        AlreadyExistsError: the name is taken; nothing was changed.
        NotFoundError, ExpiredError: there is no such snapshot, or no longer.
        InvalidInputError: a name, snapshot or time that has no meaning.
        CommitUnknownError: the store lost the reply.
    """
    what = f"cannot create tag '{name}' of '{table.name}'"
    check_tag_name(name, what=what)
    retained = _retained(retain, what) or table.options.get(u.TAG_DEFAULT_TIME_RETAINED)
    tags = TagStore(table.paths, env, table.name)
    found, copied_from = _snapshot(table, env, tags, snapshot, what)
    tag = Tag(name=name, snapshot=found)
    if retained is not None:
        now = datetime.fromtimestamp(env.now_ms() / 1000, UTC)
        tag = replace(tag, create_time=now, time_retained=retained)
    tags.create(tag, copied_from=copied_from)
    return tag


def rename_tag(table: TableDef, env: Env, name: str, new_name: str) -> Tag:
    """Give a tag another name: the new tag is made before the old one goes, so the snapshot is kept all the time.

    Raises:
        NotFoundError: there is no such tag.
        AlreadyExistsError: the new name is taken.
        InvalidInputError: the new name is invalid. Nothing was changed.
    """
    check_tag_name(new_name, what=f"cannot rename tag '{name}' of '{table.name}'")
    tags = TagStore(table.paths, env, table.name)
    renamed = replace(tags.load(name), name=new_name)
    tags.create(renamed, copied_from=name)
    tags.delete(name)
    return renamed


def replace_tag(
    table: TableDef, env: Env, name: str, *, snapshot: int | None = None, retain: timedelta | str | None = None
) -> Tag:
    """Let a tag name another snapshot. After a crash there may be a tag `<name>-replaced` of the old snapshot.

    Raises:
        NotFoundError: there is no such tag or snapshot.
        ExpiredError, InvalidInputError: see `create_tag`. Nothing was changed.
    """
    tags = TagStore(table.paths, env, table.name)
    old = tags.load(name)
    kept = f"{name}-replaced"
    made = create_tag(table, env, f"{name}-new", snapshot=snapshot, retain=retain)
    tags.create(replace(old, name=kept), copied_from=name)
    tags.delete(name)
    found = rename_tag(table, env, made.name, name)
    drop_tag(table, env, kept)
    return found


def drop_tag(table: TableDef, env: Env, name: str) -> None:
    """Remove a tag, and the files that nothing else needs.

    Raises:
        NotFoundError: there is no such tag.
        FormatError, StorageError: the tag is gone, and some files were kept.
    """
    tags = TagStore(table.paths, env, table.name)
    try:
        tag = tags.load(name)
    except FormatError:  # what it kept is not known; it goes as files that nothing names
        tags.delete(name)
        return
    _drop(table, env, tag)


def drop_listed_tag(table: TableDef, env: Env, listed: Tag) -> None:
    """Remove a tag that was listed before, and the files that nothing else needs; it may be gone by now.

    A tag of this name that was made since then stays: the tag is read again right before it is removed. No store
    removes a file only if it has certain bytes, so a tag that is made between that read and the removal is removed all
    the same. Its snapshot keeps its files as long as the table has that snapshot.

    Raises:
        FormatError: the tag is damaged by now, and stays; or it is gone, and some files were kept.
        StorageError: the store failed; the tag may be gone, and some files were kept.
    """
    if TagStore(table.paths, env, table.name).get(listed.name) == listed:
        _drop(table, env, listed)


def _drop(table: TableDef, env: Env, tag: Tag) -> None:
    TagStore(table.paths, env, table.name).delete(tag.name)
    try:
        remove_files_of_tag(table, env, tag.snapshot)
    except (FormatError, StorageError) as error:
        raise type(error)(
            f"tag '{tag.name}' of '{table.name}' is gone, but not all files that it alone kept: {error} The rest is "
            "removed with the orphans.",
            table=table.name,
            tag=tag.name,
        ) from error


def _snapshot(table: TableDef, env: Env, tags: TagStore, wanted: int | None, what: str) -> tuple[Snapshot, str | None]:
    """Return the snapshot to tag, and the tag that keeps it if it is not among the table's own."""
    store = SnapshotStore(table.paths, env, table.name)
    if wanted is None:
        latest = store.latest()
        if latest is None:
            raise NotFoundError(f"{what}: the table has no snapshot yet. Write to it first.", table=table.name)
        return latest, None
    if not isinstance(wanted, int) or isinstance(wanted, bool):
        raise InvalidInputError(f"{what}: snapshot is {wanted!r:.80}. It is a number such as 3.")
    try:
        return store.load(wanted), None
    except ExpiredError:
        for tag in tags.list():
            if tag.snapshot.id == wanted:
                return tag.snapshot, tag.name
        raise


def _retained(retain: timedelta | str | None, what: str) -> timedelta | None:
    if isinstance(retain, str):
        try:
            retain = DURATION.parse(retain.strip())
        except (ValueError, OverflowError):
            raise InvalidInputError(f"{what}: retain is '{retain}', not {DURATION.expected}.") from None
    if retain is not None and (not isinstance(retain, timedelta) or retain <= timedelta(0)):
        raise InvalidInputError(f"{what}: retain is {retain!r:.80}. It is a time above 0, such as '3 d'.")
    return retain

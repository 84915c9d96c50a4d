"""Rollback: make one of the snapshots of a table the newest again. Later snapshots are removed; their ids are free.

A crash may follow each of these steps::

    1  guard       make a tag, which keeps the files of the target even if its snapshot is expiring
    2  target      if the target is a tag whose snapshot has expired, write the snapshot file again
    -  option      if a rescale is taken back, set `bucket` to the number of before: else writers would be refused
    -  shards      if the table keeps a shard stream, write its shards as of the target (`ShardStore.remember_as_of`)
    3  hint        point LATEST at the target: readers of other engines trust a hint if no snapshot is above it
    4  snapshots   remove them one by one, the newest first: the newest is always a whole state of the table. What is
                   remembered of the shards of a snapshot goes before it, since another will get its number
    5  changelogs  remove tags and long-lived changelogs of the removed snapshots; move later consumers back
    6  list again  a writer may have committed during 4: remove its snapshot as well, until none is newer
    7  hint        point LATEST at the target again: such a writer may have moved it
    8  guard       remove the tag
    -  key         if the table had no key at the target, make the schema of then the newest

After a crash the table is at one of its own states between the newest and the target. The same rollback finishes the
work. A writer that creates a snapshot on top of a removed one after step 6 removes its snapshot itself: it checks the
snapshot below after the create (`commit.standing`). Files that only the removed snapshots need stay until orphans
are removed.

Format: section "tags, branches, rollback". Decision 0015.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

from merganser.errors import AlreadyExistsError, ConflictError, FormatError, InvalidInputError, MerganserError
from merganser.meta.changelogs import ChangelogStore
from merganser.meta.consumers import ConsumerStore
from merganser.meta.followed import as_of, newest, with_key_of
from merganser.meta.key_change import may_differ
from merganser.meta.lineage import last_rescale, rescales
from merganser.meta.next_schema import restore_schema
from merganser.meta.refs import Tag, TagStore, check_tag_name
from merganser.meta.schemas import SchemaStore
from merganser.meta.shard_store import ShardStore
from merganser.meta.shard_stream import stream_of
from merganser.meta.snapshot import Snapshot, same_snapshot
from merganser.meta.snapshots import GUARD, SnapshotStore
from merganser.meta.table_def import TableDef
from merganser.meta.table_state import MetaReader, TableState
from merganser.meta.tracking import is_untracked
from merganser.options import write as w
from merganser.rules.compacting import hides_level_0, publishes_by_compaction
from merganser.scan.rows import counted
from merganser.storage.env import Env
from merganser.storage.retries import REREAD
from merganser.upkeep.bucket_option import set_buckets
from merganser.upkeep.stored_values import check_values

_GUARDED: Final = timedelta(days=1)
_log = logging.getLogger(__name__)


def roll_back(table: TableDef, env: Env, *, snapshot: int | None = None, tag: str | None = None) -> Snapshot:
    """Make a snapshot the newest of its table again; remove later snapshots with their tags and changelogs.

    Args:
        snapshot, tag: the target; exactly one of them.

    Returns:
        The snapshot that is the newest now.

    Raises:
        InvalidInputError: none or both are given, the shard stream of the table began later, or options that were set
            since then name a format that cannot hold a value of the target. Nothing was changed.
        NotFoundError, ExpiredError: there is no such snapshot or tag, or no longer; nothing was changed.
        FormatError: its metadata is damaged; nothing was changed.
        ConflictError: writers kept committing; the table is at one of its states. Stop the writers and repeat.
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
    state = reader.state(target)  # to a state that cannot be read nothing is given up
    now = newest(table, env)
    stream = stream_of(now.options, table.branch)
    if stream is not None and target.id < stream.after:
        raise InvalidInputError(
            f"{what} to snapshot {target.id}: its shard stream began after snapshot {stream.after}, and would not have "
            "the changes that come before it now. Nothing was changed. Discard the stream with Table.disable_stream, "
            "roll back, and enable another one.",
            table=table.name,
            snapshot=target.id,
        )
    before = as_of(table, env, target.schema_id).schema
    check_values(with_key_of(now, env, target), env, target, before=before, what=what)

    def set_number_before(newest: int) -> None:
        number = _number_before(reader, state, newest) if table.bucket > 0 else None
        if number is not None:
            set_buckets(table, env, number, rescale=0)

    with contextlib.ExitStack() as guards:
        if tag is not None:  # which keeps the files itself
            _put_back(reader.snapshots, target, table)
        else:
            guards.enter_context(guarded(table, env, target))
        take_back(table, env, target, set_number_before)
    if may_differ(now.schema):
        restore_schema(table, env)
    _tell_waiting(with_key_of(now, env, target), state)
    return target


def _tell_waiting(table: TableDef, state: TableState) -> None:
    """Log that rows of a state wait for a compaction, which was taken back with the later snapshots."""
    options = table.options
    readers = ["reads"] if hides_level_0(table.options) else []
    readers += ["streams"] if publishes_by_compaction(options) else []
    if not table.keyed or not readers:
        return
    files = sum(entry.file.level == 0 and not is_untracked(entry.file) for entry in state.live)
    if files:
        full = "full=True" if options.get(w.CHANGELOG_PRODUCER) == "full-compaction" else ""
        _log.warning(
            "'%s' was rolled back to a snapshot before the compaction of its rows: %s get the rows of %s with the next "
            "compaction. Call Table.compact(%s), or roll back to an earlier snapshot of kind COMPACT.",
            table.name,
            " and ".join(readers),
            counted(files, "data file"),
            full,
        )


def _number_before(reader: MetaReader, state: TableState, newest_id: int) -> int | None:
    """Return what `bucket` was in a state with rows, if rescales that came later are taken back; None: none are.

    It is the number of the last rescale before, or that of the schema of the state.

    Args:
        newest_id: of the newest snapshot.
    """
    assert state.snapshot is not None
    try:
        newest = reader.snapshots.get(newest_id)
    except FormatError:  # a rollback is the remedy for that
        return None
    if not state.live.totals or newest is None or last_rescale(newest) <= state.snapshot.id:
        return None
    before = next(rescales(reader, state.snapshot), None)
    number = SchemaStore(reader.paths, reader.env).load(state.snapshot.schema_id).options.get(w.BUCKET)
    if before is not None and before.partitions:
        number = next(iter(before.partitions.values()))[1]
    return number if number in state.live.totals else max(state.live.totals)


@contextlib.contextmanager
def guarded(table: TableDef, env: Env, target: Snapshot) -> Iterator[None]:
    """Keep the files of a snapshot inside the `with` block, even if the snapshot is expiring; steps 1 and 8.

    Raises:
        ExpiredError: the snapshot was removed meanwhile; nothing was changed.
    """
    tags = TagStore(table.paths, env, table.name)
    name = f"{GUARD}{target.id}"
    now = datetime.fromtimestamp(env.now_ms() / 1000, UTC)
    tags.delete(name)  # left by one that was killed
    with contextlib.suppress(AlreadyExistsError):  # the same one runs somewhere else
        tags.create(Tag(name=name, snapshot=target, create_time=now, time_retained=_GUARDED))
    try:
        yield
    finally:
        with contextlib.suppress(MerganserError):
            tags.delete(name)


def take_back(table: TableDef, env: Env, target: Snapshot, before: Callable[[int], None] = lambda _: None) -> None:
    """Remove everything later than a snapshot whose files a tag keeps; steps 3 to 7.

    Args:
        before: is called with the newest snapshot before each removal.
    """
    store = SnapshotStore(table.paths, env, table.name)
    for attempt in REREAD.each():
        later = [number for number in store.ids() if number > target.id]
        if later:
            before(later[-1])
        _remove_later(table, env, target, later)
        if not any(number > target.id for number in store.ids()):
            break
        if attempt.is_last:
            raise ConflictError(
                f"cannot roll back '{table.name}' to snapshot {target.id}: others committed again {REREAD.attempts} "
                "times while later snapshots were removed. The table is at one of its states. Stop its writers, then "
                "repeat.",
                table=table.name,
                snapshot=target.id,
            )
    if store.get(target.id) is None:  # it was expiring; its files were kept by the guard
        _put_back(store, target, table)
    store.set_latest_hint(target.id)  # a writer whose snapshot was removed may have moved it meanwhile
    store.forget_lost()


def _remove_later(table: TableDef, env: Env, target: Snapshot, later: list[int]) -> None:
    store = SnapshotStore(table.paths, env, table.name)
    stream = stream_of(newest(table, env).options, table.branch)
    shards = None if stream is None else ShardStore(table, env, stream)
    first = later[0] if later else target.id + 1
    if shards is not None:
        shards.remember_as_of(target)
        if first > target.id + 1:  # after a crash the table may stand there, and no commits lead to it
            with contextlib.suppress(FormatError):
                if (there := store.get(first)) is not None:
                    shards.remember_as_of(there)
        shards.forget_since(first + 1)
    store.set_latest_hint(target.id)
    for number in reversed(later):
        if shards is not None and number == first:
            shards.forget_since(target.id + 1)
        store.delete(number)
    ChangelogStore(table.paths, env).delete_above(target.id)
    tags = TagStore(table.paths, env, table.name)
    for tag in tags.list():
        if tag.snapshot.id > target.id:
            tags.delete(tag.name)
    consumers = ConsumerStore(table.paths, env, table.name)
    for consumer in consumers.list():
        if consumer.next_snapshot > target.id + 1:
            consumers.set(consumer.id, target.id + 1)


def _put_back(store: SnapshotStore, target: Snapshot, table: TableDef) -> None:
    """Write the file of a snapshot that only a tag keeps again, as the oldest snapshot of the table.

    Expiry has removed the changelog files of this snapshot, since a tag does not keep them, unless a long-lived
    changelog does.

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
    if earliest is None or target.id < earliest:  # a hint below all snapshots is passed over; one above hides some
        store.set_earliest_hint(target.id)
    kept = ChangelogStore(table.paths, store.env).get(target.id)
    store.create(target if kept is not None and same_snapshot(kept, target) else target.without_changelog())

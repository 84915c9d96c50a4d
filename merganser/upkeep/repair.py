"""Repair: let a table whose newest snapshot, key indexes or files of the shard stream are lost go on.

The hint LATEST names a snapshot whose file is not there. So the file was lost: the hint moves after a snapshot was
created and before one is removed. A crash may follow each of these steps; the same call finishes the work::

    1  tags       write the files of lost snapshots again that a tag keeps
    2  after it   long-lived changelogs of snapshots after the newest one go, and consumers go back to it: the numbers
                  are used again
    3  hint       point LATEST at the newest snapshot: from here on nothing is lost for readers and writers
    4  indexes    build key indexes anew that are missing or damaged (`upkeep.key_indexes`)
    5  shards     write anew which shards the stream has, as the commits say (`meta.shard_store`)

Decision 0031.
"""

from __future__ import annotations

from dataclasses import replace

from merganser.errors import FormatError
from merganser.meta.changelogs import ChangelogStore
from merganser.meta.consumers import ConsumerStore
from merganser.meta.followed import newest
from merganser.meta.refs import TagStore
from merganser.meta.shard_store import ShardStore
from merganser.meta.shard_stream import stream_of
from merganser.meta.snapshot import Snapshot
from merganser.meta.table_def import TableDef
from merganser.meta.table_state import MetaReader
from merganser.storage.env import Env
from merganser.upkeep.key_indexes import build_key_indexes
from merganser.values import dataclass


@dataclass(frozen=True, slots=True)
class Repaired:
    """What a repair did.

    Attributes:
        newest: the newest snapshot now; None: the table has none.
        restored: the ids of lost snapshots that tags kept, rising.
        given_up: the first and the last id of the snapshots after the newest that are lost for good; None: none is.
        indexes: how many key indexes were built anew.
        shards: how many files of the shard stream were damaged or lost, and are replaced.
    """

    newest: Snapshot | None
    restored: tuple[int, ...] = ()
    given_up: tuple[int, int] | None = None
    indexes: int = 0
    shards: int = 0


def repair(table: TableDef, env: Env) -> Repaired:
    """Let a table whose newest snapshot, key indexes or files of the shard stream are lost go on.

    Raises:
        FormatError: its metadata, or a data file of a bucket without its index, is damaged, too. Roll back.
        ConflictError: others wrote to a bucket without its index again and again. Repeat.
        StorageError: the store failed. Repeat.
    """
    done = _with_newest(table, env)
    if done.newest is not None and (built := build_key_indexes(table, env)):
        done = replace(done, newest=MetaReader(table.paths, env, table.name).snapshots.latest(), indexes=built)
    table = newest(table, env)
    stream = stream_of(table.schema.options, table.branch)
    return done if stream is None else replace(done, shards=ShardStore(table, env, stream).mend(done.newest))


def _with_newest(table: TableDef, env: Env) -> Repaired:
    """Make a snapshot the newest for readers and writers."""
    reader = MetaReader(table.paths, env, table.name)
    store = reader.snapshots
    lost = store.lost(store.latest_id())
    if lost is None:
        return Repaired(store.latest())
    first = (lost.newest or 0) + 1
    kept = {
        tag.snapshot.id: tag.snapshot
        for tag in TagStore(table.paths, env, table.name).list()
        if first <= tag.snapshot.id <= lost.hint
    }
    last = kept[max(kept)] if kept else None if lost.newest is None else store.load(lost.newest)
    try:
        reader.state(last)
    except FormatError as error:
        raise FormatError(
            f"cannot repair '{table.name}': what snapshot {last.id if last else None} names is damaged, too. "
            f"Nothing was changed. Roll back to a snapshot or tag that can be read. ({error})",
            **error.context,
        ) from error
    if kept and ((earliest := store.earliest_id()) is None or min(kept) < earliest):
        store.set_earliest_hint(min(kept))  # one above would hide them, once its number is used again
    restored = tuple(store.create(snapshot).id for _, snapshot in sorted(kept.items()))
    number = last.id if last else 0
    ChangelogStore(table.paths, env).delete_above(number)
    consumers = ConsumerStore(table.paths, env, table.name)
    for consumer in consumers.list():
        if consumer.next_snapshot > number + 1:
            consumers.set(consumer.id, number + 1)
    if last is None:
        env.storage.delete([table.paths.latest_hint, table.paths.earliest_hint])
    else:
        store.set_latest_hint(number)
    store.forget_lost()
    return Repaired(last, restored, (number + 1, lost.hint) if number < lost.hint else None)

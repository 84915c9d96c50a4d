"""The upkeep that a writer does after its commit stands. Every way of writing calls this module."""

from __future__ import annotations

import logging
from concurrent.futures import Future
from datetime import timedelta
from typing import Final

from merganser.commit.committable import Committable
from merganser.commit.message import Committed
from merganser.commit.table_commit import TableCommit
from merganser.errors import MerganserError
from merganser.meta.consumers import ConsumerStore
from merganser.meta.refs import TagStore
from merganser.meta.shard_store import REMEMBERED_EVERY, ShardStore
from merganser.meta.shard_stream import stream_of
from merganser.meta.table_def import TableDef
from merganser.meta.table_state import MetaReader
from merganser.options import upkeep as u
from merganser.options import write as w
from merganser.storage.env import Env
from merganser.upkeep.auto_tags import make_tags
from merganser.upkeep.compact_table import RunJobs, compact_after
from merganser.upkeep.expire_partitions import expire_partitions
from merganser.upkeep.expire_snapshots import expire_after_commit
from merganser.upkeep.tags import drop_listed_tag
from merganser.write.overwrite import Selection

_NAMES_INTERVAL: Final = timedelta(minutes=1)
"""How often a writer looks for tags and consumers whose time is over."""

_log = logging.getLogger(__name__)


def after_commit(table: TableDef, env: Env, committed: Committed, *, run: RunJobs | None = None) -> None:
    """Do the maintenance that is due after a commit, unless the table is `write-only`.

    Any error is logged and not raised: the commit succeeded, and a caller that got the error would repeat the write.

    Args:
        run: where compactions run; None: on the threads of this process.
    """
    try:
        _maintain(table, env, committed, run)
    except Exception as error:  # such as a thread that cannot be started, for want of memory or since Python ends
        _warn("'%s' is committed, and the maintenance after it failed; the next commit does it: %s", table.name, error)


def _maintain(table: TableDef, env: Env, committed: Committed, run: RunJobs | None) -> None:
    compact_after(table, env, committed, run=run)
    _remember_shards(table, env, committed)
    if table.options.get(w.WRITE_ONLY):
        return
    try:
        make_tags(table, env, identifier=committed.identifier)
    except Exception as error:
        _warn("no tag was made of '%s' after a commit; the next one makes it: %s", table.name, error)
    if table.options.get(u.SNAPSHOT_EXPIRE_EXECUTION_MODE) == "sync":
        _expire(table, env)
        return
    key = ("expiring", table.paths.metadata_root)
    running: Future[None] | None = env.cache.get(key)
    if running is None or running.done():
        env.cache.put(key, env.submit(lambda: _expire(table, env)), 1000)


def _remember_shards(table: TableDef, env: Env, committed: Committed) -> None:
    stream, snapshot = stream_of(table.options, table.branch), committed.snapshot
    if stream is None or snapshot is None or snapshot.id % REMEMBERED_EVERY:
        return
    try:
        ShardStore(table, env, stream).remember_now_and_then(snapshot)
    except Exception as error:
        _warn(
            "the shards of '%s' were not noted after a commit, and the commits say them: %s",
            table.name,
            error,
        )


def _expire(table: TableDef, env: Env) -> None:
    """Remove what is too old: partitions, then tags and consumers, which hold snapshots, then snapshots."""
    for what, work in (
        ("partitions", _expire_partitions),
        ("tags and consumers", _give_up_names),
        ("snapshots", _expire_snapshots),
    ):
        try:
            work(table, env)
        except Exception as error:
            _warn(f"old {what} of '%s' were kept after a commit; the next one tries again: %s", table.name, error)


def _warn(text: str, name: str, error: Exception) -> None:
    """Log any error instead of raising it: the commit stands, and after an error the caller would repeat the write."""
    _log.warning(text, name, error, exc_info=not isinstance(error, MerganserError))


def _expire_partitions(table: TableDef, env: Env) -> None:
    if not table.schema.partition_keys or table.options.get(u.PARTITION_EXPIRATION_TIME) is None:
        return
    if _is_time(table, env, "partitions", table.options.get(u.PARTITION_EXPIRATION_CHECK_INTERVAL)):
        user = env.new_id()

        def drop(chosen: Selection) -> None:  # what else is owed after a commit comes after this one, here
            TableCommit(table, env).commit(Committable(messages=[], commit_user=user, overwrites=chosen))

        expire_partitions(table, env, drop)


def _give_up_names(table: TableDef, env: Env) -> None:
    """Drop the tags and the consumers that have expired."""
    if not _is_time(table, env, "names", _NAMES_INTERVAL):
        return
    now_ms = env.now_ms()
    for tag in TagStore(table.paths, env, table.name).list():
        until = tag.expire_time
        if until is not None and until.timestamp() * 1000 < now_ms:
            drop_listed_tag(table, env, tag)
    unmoved: timedelta | None = table.options.get(u.CONSUMER_EXPIRATION_TIME)
    if unmoved is not None:
        consumers = ConsumerStore(table.paths, env, table.name)
        for consumer in consumers.list():
            if consumer.modified.timestamp() * 1000 < now_ms - unmoved.total_seconds() * 1000:
                consumers.delete(consumer.id)


def _expire_snapshots(table: TableDef, env: Env) -> None:
    newest = MetaReader(table.paths, env, table.name).newest_known()
    if newest is not None:
        expire_after_commit(table, env, newest)


def _is_time(table: TableDef, env: Env, what: str, interval: timedelta) -> bool:
    """Return whether this is the first call in the process, or the interval is over; then start a new interval."""
    key = ("last look at", table.paths.metadata_root, what)
    last_ms: int | None = env.cache.get(key)
    now_ms = env.now_ms()
    if last_ms is not None and last_ms <= now_ms < last_ms + interval.total_seconds() * 1000:
        return False
    env.cache.put(key, now_ms, 100)
    return True

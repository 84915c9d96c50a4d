"""Automatic tags: one for each day, hour or other period, or for each batch job.

The name of a tag is the beginning of its period. The tag keeps the first snapshot that was committed after the period
and its delay: this snapshot holds all rows of the period, and those of its own commit. Other engines of the format make
the same choice. A writer remembers nothing between commits; the existing tags show which period is next. If two writers
make the same tag, the table gets it once.

Format: "tag" options. Names and rules are those of the format's engines.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

from merganser.errors import AlreadyExistsError
from merganser.meta.refs import Tag, TagStore, check_tag_name
from merganser.meta.snapshot import BATCH_IDENTIFIER, Snapshot, same_snapshot
from merganser.meta.snapshots import SnapshotStore
from merganser.meta.table_def import TableDef
from merganser.options import upkeep as u
from merganser.rules.tag_periods import EPOCH, periods_of
from merganser.storage.env import Env
from merganser.upkeep.expire_snapshots import remove_files_of_tag
from merganser.upkeep.tags import drop_listed_tag

_BATCH: Final = "batch-write-"
_NO_WATERMARK: Final = -(1 << 63)


def make_tags(table: TableDef, env: Env, *, identifier: int) -> None:
    """Make the tags that are due after a commit, and drop the oldest beyond 'tag.num-retained-max'.

    Args:
        identifier: the identifier of the commit.

    Raises:
        MerganserError: a tag could not be made; the next commit makes the tags that are due.
    """
    mode = table.options.get(u.TAG_AUTOMATIC_CREATION)
    if mode == "none" or (mode == "batch" and identifier != BATCH_IDENTIFIER):
        return
    newest = SnapshotStore(table.paths, env, table.name).latest()
    if newest is None:
        return
    if mode == "batch":
        _tag_batch(table, env, newest)
    else:
        _tag_periods(table, env, newest, by_watermark=mode == "watermark")


def _tag_periods(table: TableDef, env: Env, newest: Snapshot, *, by_watermark: bool) -> None:
    options = table.options
    periods, delay = periods_of(options), options.get(u.TAG_CREATION_DELAY)
    tags = TagStore(table.paths, env, table.name)
    starts = {start: name for name in tags.names() if (start := periods.start(name)) is not None}
    last = max(starts, default=None)

    def due(snapshot: Snapshot) -> bool:
        time = _time(snapshot, by_watermark=by_watermark)
        return time is not None and (last is None or time - delay >= last + 2 * periods.length)

    if not due(newest):
        return
    kept = None if last is None else tags.get(starts[last])
    above = 0 if kept is None else kept.snapshot.id
    store = SnapshotStore(table.paths, env, table.name)
    while (found := store.first(due, above=above)) is not None:
        time = _time(found, by_watermark=by_watermark) or EPOCH
        if last is not None and options.get(u.TAG_AUTOMATIC_COMPLETION):
            start = last + periods.length
        else:
            start = periods.before(time)
        _create(table, env, tags, periods.name(start), found)
        last, above = start, found.id
    _drop_oldest(table, env, [tag for tag in tags.list() if periods.start(tag.name) is not None])


def _time(snapshot: Snapshot, *, by_watermark: bool) -> datetime | None:
    """Return the time of a snapshot: its commit time as local time, or its watermark as UTC."""
    if not by_watermark:
        return snapshot.commit_time.astimezone().replace(tzinfo=None)
    if snapshot.watermark is None or snapshot.watermark == _NO_WATERMARK:
        return None
    try:
        return EPOCH + timedelta(milliseconds=snapshot.watermark)
    except OverflowError:
        return None


def _tag_batch(table: TableDef, env: Env, snapshot: Snapshot) -> None:
    """Tag the commit of a batch job; replace the tag of an earlier job of the same day."""
    given = table.options.get(u.TAG_BATCH_CUSTOMIZED_NAME)
    name = given or f"{_BATCH}{snapshot.commit_time.astimezone():%Y-%m-%d}"
    check_tag_name(name, what=f"cannot tag what was committed to '{table.name}'")
    tags = TagStore(table.paths, env, table.name)
    before = tags.get(name)
    if before is None:
        _create(table, env, tags, name, snapshot)
    elif not same_snapshot(before.snapshot, snapshot):
        tags.replace(_tag(table, env, name, snapshot))
        remove_files_of_tag(table, env, before.snapshot)
    _drop_oldest(table, env, [tag for tag in tags.list() if tag.name == name or tag.name.startswith(_BATCH)])


def _create(table: TableDef, env: Env, tags: TagStore, name: str, snapshot: Snapshot) -> None:
    with contextlib.suppress(AlreadyExistsError):  # another writer was first
        tags.create(_tag(table, env, name, snapshot))
    if table.options.get(u.TAG_CREATE_SUCCESS_FILE):
        tags.mark(name)


def _tag(table: TableDef, env: Env, name: str, snapshot: Snapshot) -> Tag:
    retained = table.options.get(u.TAG_DEFAULT_TIME_RETAINED)
    if retained is None:
        return Tag(name=name, snapshot=snapshot)
    now = datetime.fromtimestamp(env.now_ms() / 1000, UTC)
    return Tag(name=name, snapshot=snapshot, create_time=now, time_retained=retained)


def _drop_oldest(table: TableDef, env: Env, made: Iterable[Tag]) -> None:
    """Drop the oldest automatic tags beyond 'tag.num-retained-max'."""
    most = table.options.get(u.TAG_NUM_RETAINED_MAX)
    if most is not None:
        for tag in sorted(made, key=lambda tag: tag.snapshot.id, reverse=True)[most:]:
            drop_listed_tag(table, env, tag)

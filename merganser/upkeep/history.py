"""How far back reads of a table can go, and what its log is, as text for people."""

from __future__ import annotations

from typing import Final

from merganser.meta.refs import MAIN, Tag, TagStore
from merganser.meta.shard_stream import span_text
from merganser.meta.snapshot import Snapshot
from merganser.meta.snapshots import SnapshotStore
from merganser.meta.table_def import TableDef
from merganser.options import upkeep as u
from merganser.options import write as w
from merganser.options.option import INT_MAX, Options
from merganser.scan.rows import counted
from merganser.storage.env import Env

_TAGS_SHOWN: Final = 3
"""Of more tags, the oldest and the newest are shown."""
_OFFSETS_SHOWN: Final = 4


def history_of(table: TableDef, env: Env, latest: Snapshot) -> tuple[tuple[str, str], ...]:
    """Return the facts about the past that can be read, by name: the oldest snapshot, what is kept, the tags, the log.

    Of a log it says what the table knows, and asks no broker.

    Args:
        latest: the newest snapshot.
    """
    store = SnapshotStore(table.paths, env, table.name)
    oldest = store.get(store.earliest_id() or latest.id) or latest  # None: it has expired just now
    tags = TagStore(table.paths, env, table.name).list()
    has_log = table.branch == MAIN and table.options.get(w.LOG_SYSTEM) != "none"
    return (
        ("oldest", f"snapshot {_when(oldest)}"),
        ("kept", _kept(table.options)),
        ("tags", _tags(tags)),
        *([("log", _log(table.options, latest))] if has_log else []),
    )


def _when(snapshot: Snapshot) -> str:
    return f"{snapshot.id}, at {snapshot.commit_time:%Y-%m-%d %H:%M:%S} UTC"


def _kept(options: Options) -> str:
    """Return which snapshots expiry leaves by the options of a table."""
    least, most = options.get(u.SNAPSHOT_NUM_RETAINED_MIN), options.get(u.SNAPSHOT_NUM_RETAINED_MAX)
    numbers = f"at least {least:,}" + (f" and at most {most:,}" if most < INT_MAX else "")
    text = f"snapshots of the last {span_text(options.get(u.SNAPSHOT_TIME_RETAINED))}, and {numbers} at any age"
    return text + ("; writers expire none, since the table is 'write-only'" if options.get(w.WRITE_ONLY) else "")


def _log(options: Options, latest: Snapshot) -> str:
    """Return where the log is, and where in it the newest snapshot ends."""
    kept = options.get(w.LOG_RETENTION)
    retention = "records as long as the broker says" if kept is None else f"records of {span_text(kept)}"
    told = latest.log_offsets or {}  # a partition that has no record yet is not in it
    count = max(*told, options.get(w.BUCKET) - 1) + 1 if told else 0
    ends = [f"{told.get(number, 0):,}" for number in range(count)]
    shown = ", ".join(ends[:_OFFSETS_SHOWN]) + (", ..." if len(ends) > _OFFSETS_SHOWN else "")
    offsets = f"; {counted(len(ends), 'partition')}, in which snapshot {latest.id} ends at {shown}" if ends else ""
    return f"topic '{options.get(w.KAFKA_TOPIC)}' keeps {retention}{offsets}"


def _tags(tags: tuple[Tag, ...]) -> str:
    """Return the tags, oldest first."""
    if not tags:
        return "none"
    if len(tags) > _TAGS_SHOWN:
        return f"{len(tags):,}, from {_tag(tags[0])} to {_tag(tags[-1])}"
    return "; ".join(map(_tag, tags))


def _tag(tag: Tag) -> str:
    until = "" if tag.expire_time is None else f", until {tag.expire_time:%Y-%m-%d %H:%M:%S}"
    return f"'{tag.name}' (snapshot {_when(tag.snapshot)}{until})"

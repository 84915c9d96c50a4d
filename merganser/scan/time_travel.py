"""From what a reader asks for (an id, a tag, a time, the table's scan options) to what of the table is read.

A batch read is the state of one snapshot: of the newest, or of one that is chosen. Two start modes read some files
of the newest state only: those its commit added, or those made since some time.

Format: start modes and time travel of batch reads.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final

from merganser.errors import ExpiredError, InvalidInputError, NotFoundError
from merganser.lsm.pick import full_compaction_commits
from merganser.meta.refs import TagStore
from merganser.meta.snapshot import BATCH_IDENTIFIER, COMPACT, Snapshot
from merganser.meta.snapshots import SnapshotStore
from merganser.options import read as r
from merganser.options.option import Options
from merganser.options.registry import did_you_mean
from merganser.rules.starts import scan_mode
from merganser.scan.source import Delta, MadeSince, Source, State

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_WATERMARK: Final = re.compile(r"watermark-(-?[0-9]+)")
_NO_WATERMARK: Final = -(1 << 63)


def source_of(options: Options, store: SnapshotStore) -> Source:
    """Return what a table's scan options ask for, if it is a state or files of one: not changes.

    Raises:
        InvalidInputError: an option's value has no meaning here.
        NotFoundError, ExpiredError: there is no such snapshot, tag, time or watermark, or no longer.
    """
    mode = scan_mode(options)
    match mode:
        case "latest-delta":
            return Delta()
        case "compacted-full":
            return State(compacted(options, store))
        case "from-timestamp":
            millis = options.get(r.SCAN_TIMESTAMP_MILLIS)
            when: datetime | str | None = options.get(r.SCAN_TIMESTAMP)
            return State(_at(store, when) if when is not None else newest_by(store, millis or 0))
        case "from-snapshot" | "from-snapshot-full":
            return State(_chosen(options, store))
        case "from-file-creation-time":
            return MadeSince(options.get(r.SCAN_FILE_CREATION_TIME_MILLIS) or 0)
        case "from-creation-timestamp":
            return _since(store, options.get(r.SCAN_CREATION_TIME_MILLIS) or 0)
    return State()


def _chosen(options: Options, store: SnapshotStore) -> Snapshot:
    number, tag = options.get(r.SCAN_SNAPSHOT_ID), options.get(r.SCAN_TAG_NAME)
    watermark, version = options.get(r.SCAN_WATERMARK), options.get(r.SCAN_VERSION)
    if number is not None:
        return store.load(number)
    if tag is not None:
        return _tagged(store, tag)
    return _version(store, version) if version is not None else _marked(store, watermark or 0)


def _version(store: SnapshotStore, text: str) -> Snapshot:
    """Return the snapshot of a tag of this name, else of `watermark-<n>`, else of this id."""
    tags = TagStore(store.paths, store.env, store.table_name)
    if text in tags.names():
        return tags.load(text).snapshot
    if found := _WATERMARK.fullmatch(text):
        return _marked(store, int(found[1]))
    if text.isdecimal() and len(text) < 20:
        return store.load(int(text))
    raise NotFoundError(
        f"cannot read version '{text}' of '{store.table_name}': there is no tag of this name, and it is neither "
        f"'watermark-<number>' nor the id of a snapshot. {did_you_mean(text, tags.names())}",
        table=store.table_name,
        version=text,
    )


def _marked(store: SnapshotStore, watermark: int) -> Snapshot:
    """Return the first snapshot whose watermark is not below a value; watermarks never fall."""

    def reached(found: Snapshot) -> bool:
        return (_NO_WATERMARK if found.watermark is None else found.watermark) >= watermark

    first = store.first(reached)
    if first is None:
        raise NotFoundError(
            f"table '{store.table_name}' has no snapshot with a watermark of {watermark} or later.",
            table=store.table_name,
            watermark=watermark,
        )
    return first


def compacted(options: Options, store: SnapshotStore) -> Snapshot | None:
    """Return the newest compaction, of tables with scheduled full ones the newest of those; else the newest."""
    every = full_compaction_commits(options)
    latest = store.latest()
    for found in store.walk_back(latest.id if latest else 0):
        scheduled = every is None or found.commit_identifier == BATCH_IDENTIFIER or found.commit_identifier % every == 0
        if found.commit_kind == COMPACT and scheduled:
            return found
    return latest


def _since(store: SnapshotStore, millis: int) -> State | MadeSince:
    """Return the first snapshot at a time or after it; outside the snapshots' times, the files made since then."""
    earliest, latest = store.earliest_id(), store.latest_id()
    if earliest is not None and latest is not None:
        first, last = store.load(earliest), store.load(latest)
        if first.time_millis <= millis <= last.time_millis:
            return State(store.first(lambda found: found.time_millis >= millis))
    return MadeSince(millis)


def resolve(
    store: SnapshotStore,
    *,
    snapshot: int | None = None,
    tag: str | None = None,
    timestamp: datetime | str | None = None,
    zone: tzinfo = UTC,
) -> Snapshot | None:
    """Return the snapshot that is asked for; the newest when nothing is asked, None when there is none.

    Text of a timestamp without an offset is a time in `zone`.

    Raises:
        InvalidInputError: more than one of the three, or a timestamp that is none.
        NotFoundError: no such snapshot or tag, or nothing was committed by that time.
        ExpiredError: the snapshot has been removed by expiry.
    """
    given = [
        name for name, value in (("snapshot", snapshot), ("tag", tag), ("timestamp", timestamp)) if value is not None
    ]
    if len(given) > 1:
        raise InvalidInputError(
            f"cannot read '{store.table_name}': {' and '.join(given)} are both given. Give one of them."
        )
    if snapshot is not None:
        if not isinstance(snapshot, int) or isinstance(snapshot, bool):
            raise InvalidInputError(
                f"cannot read '{store.table_name}': snapshot is {snapshot!r}. It is a number such as 3."
            )
        return store.load(snapshot)
    if tag is not None:
        return _tagged(store, tag)
    if timestamp is not None:
        return _at(store, timestamp, zone)
    return store.latest()


def _tagged(store: SnapshotStore, tag: str) -> Snapshot:
    return TagStore(store.paths, store.env, store.table_name).load(tag).snapshot


def epoch_ms(timestamp: datetime | str, zone: tzinfo = UTC) -> int:
    """Return epoch milliseconds of a datetime or ISO text; without an offset text is in `zone`, a datetime in UTC."""
    missing = zone if isinstance(timestamp, str) else UTC
    if isinstance(timestamp, str):
        try:
            timestamp = datetime.fromisoformat(timestamp)
        except ValueError:
            raise InvalidInputError(
                f"cannot read the time '{timestamp}': it is not ISO text such as 2026-01-31T12:00:00."
            ) from None
    if not isinstance(timestamp, datetime):
        raise InvalidInputError(f"a time must be a datetime or ISO text, not {type(timestamp).__name__}.")
    if timestamp.tzinfo is None:
        timestamp = timestamp.replace(tzinfo=missing)
    return (timestamp - _EPOCH) // timedelta(milliseconds=1)


def _at(store: SnapshotStore, timestamp: datetime | str, zone: tzinfo = UTC) -> Snapshot:
    return newest_by(store, epoch_ms(timestamp, zone))


def newest_by(store: SnapshotStore, wanted: int) -> Snapshot:
    """Return the newest snapshot that is not later than a time, in epoch milliseconds.

    Raises:
        NotFoundError, ExpiredError: there is none, or no longer.
    """
    earliest, latest = store.earliest_id(), store.latest_id()
    if earliest is None or latest is None:
        raise NotFoundError(f"table '{store.table_name}' has no snapshots yet.", table=store.table_name)
    first = store.load(earliest)
    if first.time_millis > wanted:
        if earliest > 1:
            raise ExpiredError(
                f"cannot read '{store.table_name}' as of {_shown(wanted)}: snapshots before {earliest} "
                f"({first.commit_time}) have expired. Read that time or a later one, or a tag, and raise "
                "'snapshot.time-retained' to keep more from now on.",
                table=store.table_name,
            )
        raise NotFoundError(
            f"table '{store.table_name}' had no snapshot at {_shown(wanted)}: its first is of {first.commit_time}.",
            table=store.table_name,
        )
    low, high = earliest, latest  # commit times rise with ids, clocks permitting
    while low < high:
        middle = (low + high + 1) // 2
        if store.load(middle).time_millis <= wanted:
            low = middle
        else:
            high = middle - 1
    return store.load(low)


def _shown(millis: int) -> str:
    try:
        return str(_EPOCH + timedelta(milliseconds=millis))
    except OverflowError:
        return f"{millis} ms"

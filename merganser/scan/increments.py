"""From the options `incremental-...` of a table to what of its changes a batch reads.

The start of a range is not part of it, the end is. Between two tags the states are compared, since the snapshots
between them may have expired; between ids and times the mode decides.

Semantics: "incremental".
"""

from __future__ import annotations

from datetime import tzinfo

from merganser.errors import InvalidInputError, NotFoundError
from merganser.meta.changelogs import ChangelogStore
from merganser.meta.refs import Tag, TagStore
from merganser.meta.snapshot import Snapshot
from merganser.meta.snapshots import SnapshotStore
from merganser.options import read as r
from merganser.options import write as w
from merganser.options.option import Options
from merganser.rules.tag_periods import EPOCH, periods_of
from merganser.scan.source import NOTHING_CHANGED, Difference, Increment, Published
from merganser.scan.time_travel import epoch_ms, newest_by


def increment_of(options: Options, store: SnapshotStore, zone: tzinfo) -> Increment:
    """Return the changes that the options select; one of the three options is set.

    Args:
        zone: of times that name none.

    Raises:
        InvalidInputError: a value has no meaning, or the end is before the start.
        NotFoundError, ExpiredError: there is no such snapshot, or no longer.
    """
    if (between := options.get(r.INCREMENTAL_BETWEEN)) is not None:
        return _between(between, options, store)
    if (times := options.get(r.INCREMENTAL_BETWEEN_TIMESTAMP)) is not None:
        return _between_times(times, options, store, zone)
    return _to_auto_tag(options.get(r.INCREMENTAL_TO_AUTO_TAG) or "", options, store)


def _between(text: str, options: Options, store: SnapshotStore) -> Increment:
    start, end = _two(text)
    tags = TagStore(store.paths, store.env, store.table_name)
    names = tags.names()
    if start in names and end in names:
        first, last = tags.load(start), tags.load(end)
        if options.get(r.INCREMENTAL_TAG_TO_SNAPSHOT):
            return _between_ids(first.snapshot_id, last.snapshot_id, options, store, text)
        return _between_tags(first, last, text, store)
    ids = [int(each) if each.isdecimal() and len(each) < 20 else None for each in (start, end)]
    if ids[0] is None or ids[1] is None:
        missing = [each for each, number in zip((start, end), ids, strict=True) if number is None and each not in names]
        lacking = f"there is no tag '{missing[0]}'" if missing else "one is a tag and the other a number"
        raise NotFoundError(
            f"{_cannot(store, r.INCREMENTAL_BETWEEN.key, text)}: {lacking}. Give two tags, or two ids of snapshots.",
            table=store.table_name,
        )
    return _between_ids(ids[0], ids[1], options, store, text)


def _between_ids(start: int, end: int, options: Options, store: SnapshotStore, text: str) -> Increment:
    if end < start:
        raise InvalidInputError(
            f"{_cannot(store, r.INCREMENTAL_BETWEEN.key, text)}: it ends with snapshot {end}, before it starts after "
            f"snapshot {start}. Nothing was read. Give the older one first."
        )
    return NOTHING_CHANGED if start == end else Published(start + 1, end, options.get(r.INCREMENTAL_SCAN_MODE))


def _between_tags(first: Tag, last: Tag, text: str, store: SnapshotStore) -> Increment:
    if last.snapshot_id < first.snapshot_id:
        raise InvalidInputError(
            f"{_cannot(store, r.INCREMENTAL_BETWEEN.key, text)}: tag '{last.name}' keeps snapshot {last.snapshot_id}, "
            f"and '{first.name}' the later {first.snapshot_id}. Nothing was read. Give the older one first."
        )
    return Difference(first.snapshot, last.snapshot)


def _between_times(text: str, options: Options, store: SnapshotStore, zone: tzinfo) -> Increment:
    key = r.INCREMENTAL_BETWEEN_TIMESTAMP.key
    start, end = (_millis(each, zone) for each in _two(text))
    if end < start:
        raise InvalidInputError(f"{_cannot(store, key, text)}: the second time is before the first. Nothing was read.")
    mode, producer = options.get(r.INCREMENTAL_SCAN_MODE), options.get(w.CHANGELOG_PRODUCER)
    earliest = _earliest(store)
    if earliest is None:
        return NOTHING_CHANGED
    older: list[Snapshot] = []  # of which the changes alone are kept
    if mode in ("auto", "changelog") or (mode == "delta" and producer == "none"):
        older = [one for one in ChangelogStore(store.paths, store.env).list() if one.id < earliest.id]
    oldest = older[0] if older else earliest

    def newest_at(millis: int) -> int:
        if millis >= earliest.time_millis:
            return newest_by(store, millis).id
        return max((one.id for one in older if one.time_millis <= millis), default=oldest.id - 1)

    before, last = newest_at(start), newest_at(end)
    return NOTHING_CHANGED if before == last else Published(before + 1, last, mode)


def _earliest(store: SnapshotStore) -> Snapshot | None:
    earliest = store.earliest_id()
    return None if earliest is None else store.load(earliest)


def _to_auto_tag(name: str, options: Options, store: SnapshotStore) -> Increment:
    """Return what changed since the automatic tag before; nothing if one of both is missing."""
    periods = periods_of(options)
    end = periods.start(name)
    if end is None:
        raise NotFoundError(
            f"{_cannot(store, r.INCREMENTAL_TO_AUTO_TAG.key, name)}: the table has no automatic tags of such a name. "
            f"By its options they have names such as '{periods.name(EPOCH)}'. Nothing was read.",
            table=store.table_name,
            tag=name,
        )
    tags = TagStore(store.paths, store.env, store.table_name)
    starts = {start: each for each in tags.names() if (start := periods.start(each)) is not None}
    before = max((start for start in starts if start < end), default=None)
    if end not in starts or before is None:
        return NOTHING_CHANGED
    return Difference(tags.load(starts[before]).snapshot, tags.load(name).snapshot)


def _two(text: str) -> tuple[str, str]:
    start, end = text.split(",")
    return start.strip(), end.strip()


def _millis(text: str, zone: tzinfo) -> int:
    return int(text) if text.removeprefix("-").isdecimal() and len(text) < 20 else epoch_ms(text, zone)


def _cannot(store: SnapshotStore, key: str, text: str) -> str:
    return f"cannot read '{store.table_name}' with '{key}' = '{text}'"

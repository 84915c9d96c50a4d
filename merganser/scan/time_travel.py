"""From a snapshot id, a tag or a time to the snapshot that is read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from merganser.errors import ExpiredError, InvalidInputError, NotFoundError
from merganser.meta.data_file import plain_name
from merganser.meta.snapshot import Snapshot, snapshot_from_json
from merganser.meta.snapshots import SnapshotStore

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def resolve(
    store: SnapshotStore,
    *,
    snapshot: int | None = None,
    tag: str | None = None,
    timestamp: datetime | str | None = None,
) -> Snapshot | None:
    """Return the snapshot that is asked for; the newest when nothing is asked, None when there is none.

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
        if not isinstance(tag, str) or not plain_name(tag.strip()):
            raise InvalidInputError(f"cannot read '{store.table_name}': {tag!r} cannot be the name of a tag.", tag=tag)
        return _tagged(store, tag)
    if timestamp is not None:
        return _at(store, timestamp)
    return store.latest()


def _tagged(store: SnapshotStore, tag: str) -> Snapshot:
    path = store.paths.tag(tag)
    try:
        data = store.env.storage.read(path)
    except NotFoundError:
        raise NotFoundError(
            f"table '{store.table_name}' has no tag '{tag}'.", table=store.table_name, tag=tag
        ) from None
    return snapshot_from_json(data, path)


def epoch_ms(timestamp: datetime | str) -> int:
    """Return epoch milliseconds of an aware datetime or ISO text; without a zone it is UTC."""
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
        timestamp = timestamp.replace(tzinfo=UTC)
    return (timestamp - _EPOCH) // timedelta(milliseconds=1)


def _at(store: SnapshotStore, timestamp: datetime | str) -> Snapshot:
    wanted = epoch_ms(timestamp)
    earliest, latest = store.earliest_id(), store.latest_id()
    if earliest is None or latest is None:
        raise NotFoundError(f"table '{store.table_name}' has no snapshots yet.", table=store.table_name)
    first = store.load(earliest)
    if first.time_millis > wanted:
        if earliest > 1:
            raise ExpiredError(
                f"cannot read '{store.table_name}' as of {timestamp}: snapshots before {earliest} "
                f"({first.commit_time}) have expired.",
                table=store.table_name,
            )
        raise NotFoundError(
            f"table '{store.table_name}' had no snapshot at {timestamp}: its first is of {first.commit_time}.",
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

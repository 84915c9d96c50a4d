"""Partition expiry: drop partitions by age, either by the time in their values or by that of their newest file.

Like every overwrite, partition expiry chooses the partitions anew from each newest state. Snapshot expiry later removes
their files. Rows that are written later create the partition again, and it expires again at the next check.

Semantics: "partition expire". Decision 0016.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from merganser.codec.binary_row import deserialize, sort_key, stored_to_arrow
from merganser.commit.table_commit import TableCommit
from merganser.errors import InvalidInputError
from merganser.meta.live_files import LiveFiles
from merganser.meta.table_def import TableDef
from merganser.options import upkeep as u
from merganser.rules.gaps import check_can_expire_partitions
from merganser.schema import types as t
from merganser.storage.env import Env
from merganser.storage.paths import partition_text as directory_text
from merganser.upkeep.partition_times import partition_text, time_reader
from merganser.write import overwrite as ow

Expired = Callable[[LiveFiles], set[bytes]]
"""The serialized partitions of a state that are too old."""
Drop = Callable[[ow.Selection], None]
"""Makes a commit that removes the files that a choice names."""


def expire_partitions(table: TableDef, env: Env, drop: Drop | None) -> tuple[Mapping[str, Any], ...]:
    """Drop the partitions that are older than the table's options allow, in the order of their values.

    Args:
        drop: makes a commit that removes what a choice names; None: change nothing.

    Returns:
        The values of the partitions that were, or would be, dropped.

    Raises:
        InvalidInputError: the table has no partitions, or no option that says when they expire.
        UnsupportedError: its strategy is a class of another engine.
        ConflictError: others committed again and again; some partitions may have been dropped.
    """
    expired = expired_now(table, env)
    old = expired(TableCommit(table, env).latest().live)
    found = _in_order(table, old)[: table.options.get(u.PARTITION_EXPIRATION_MAX_NUM)]
    if drop is not None:
        size = table.options.get(u.PARTITION_EXPIRATION_BATCH_SIZE) or max(1, len(found))
        for at in range(0, len(found), size):
            drop(_still_expired(frozenset(found[at : at + size]), expired))
    return tuple(_values(table, partition) for partition in found)


def expired_now(table: TableDef, env: Env) -> Expired:
    """Return what tells which partitions are too old now.

    Raises:
        InvalidInputError, UnsupportedError: see `expire_partitions`.
    """
    options = table.options
    age: timedelta | None = options.get(u.PARTITION_EXPIRATION_TIME)
    what = f"cannot expire partitions of '{table.name}'"
    if not table.schema.partition_keys:
        raise InvalidInputError(f"{what}: it has no partitions. Nothing was changed.", table=table.name)
    if age is None:
        raise InvalidInputError(
            f"{what}: it does not say when. Set '{u.PARTITION_EXPIRATION_TIME.key}', such as '7 d'. Nothing was "
            "changed.",
            table=table.name,
        )
    check_can_expire_partitions(replace(table.schema, options=options), name=table.name)
    now_ms = env.now_ms()
    strategy = options.get(u.PARTITION_EXPIRATION_STRATEGY)
    if strategy == "update-time":
        return _by_update(now_ms - age // timedelta(milliseconds=1))
    try:
        limit = datetime(1970, 1, 1) + timedelta(milliseconds=now_ms) - age  # noqa: DTZ001 - as partitions, of no zone
    except OverflowError:
        return lambda live: set()
    return _by_values(table, limit)


def _by_update(limit_ms: int) -> Expired:
    def expired(live: LiveFiles) -> set[bytes]:
        newest: dict[bytes, float] = {}
        for (partition, _), files in live.buckets.items():
            for entry in files.entries:
                time = entry.file.creation_time_ms
                newest[partition] = max(newest.get(partition, 0), math.inf if time is None else time)
        return {partition for partition, time in newest.items() if time < limit_ms}

    return expired


def _by_values(table: TableDef, limit: datetime) -> Expired:
    pattern = table.options.get(u.PARTITION_TIMESTAMP_PATTERN)
    read = time_reader(table.options.get(u.PARTITION_TIMESTAMP_FORMATTER))

    def is_old(partition: bytes) -> bool:
        text = partition_text(pattern, _texts(table, partition))
        time = None if text is None else read(text)
        return time is not None and time < limit

    return lambda live: {partition for partition in {owner for owner, _ in live.buckets} if is_old(partition)}


def _texts(table: TableDef, partition: bytes) -> dict[str, str | None]:
    """Return the values of a partition as text; a date is `yyyy-MM-dd`, even if its directory has another name."""
    return {
        name: None if value is None else directory_text(value, kind, default_name="", legacy=False)
        for name, value, kind in zip(*_stored(table, partition), strict=True)
    }


def _stored(table: TableDef, partition: bytes) -> tuple[Sequence[str], Sequence[Any], Sequence[t.DataType]]:
    kinds = table.partition_types
    return table.schema.partition_keys, deserialize(partition, kinds), kinds


def _values(table: TableDef, partition: bytes) -> dict[str, Any]:
    """Return the values of a partition as a read shows them."""
    return {
        name: stored_to_arrow([value], kind.with_nullable(True))[0].as_py()
        for name, value, kind in zip(*_stored(table, partition), strict=True)
    }


def _in_order(table: TableDef, partitions: Iterable[bytes]) -> list[bytes]:
    kinds = table.partition_types
    return sorted(
        partitions,
        key=lambda partition: [
            (value is not None, value is not None and sort_key((value,), (kind,)))
            for value, kind in zip(deserialize(partition, kinds), kinds, strict=True)
        ],
    )


def _still_expired(chosen: frozenset[bytes], expired: Expired) -> ow.Selection:
    """Return the choice of all files of partitions that are too old in the state that the commit follows, too."""
    return lambda live: ow.of_partitions([*(chosen & expired(live))])(live)

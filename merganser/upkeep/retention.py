"""Retention: how long snapshots and changelogs are kept. Options and arguments give a value that decides. Pure.

Format: "expiration". Semantics: "snapshot, changelog and tag retention".
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from merganser.errors import InvalidInputError
from merganser.options import read as r
from merganser.options import upkeep as u
from merganser.options import write as w
from merganser.options.option import Options
from merganser.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """What is kept of a line of snapshots, or of its changelogs.

    Attributes:
        kept_min: the least number to keep, at any age.
        kept_max: the greatest number to keep, at any age.
        older_than_ms: epoch milliseconds; a snapshot expires when its successor is older than this, since it was the
            newest until then.
        limit: the most that one run removes.
    """

    kept_min: int
    kept_max: int
    older_than_ms: int
    limit: int

    def end(self, *, first: int, latest: int, held_from: int | None) -> int:
        """Return the id below which snapshots may expire by number alone; `first` if none may.

        Args:
            first, latest: the oldest and the newest snapshot of the table.
            held_from: the first snapshot that a consumer still needs; None: no consumer holds any.
        """
        end = min(latest - self.kept_min + 1, first + self.limit)
        return max(first, end if held_from is None else min(end, held_from))

    def stop(self, *, first: int, latest: int, end: int, times_ms: Sequence[int]) -> int:
        """Return the oldest id that stays.

        Args:
            first, latest, end: as of `end`.
            times_ms: commit times of the snapshots from `first` to `end`, both included.
        """
        for snapshot_id in range(max(latest - self.kept_max + 1, first), end):
            if self.keeps(snapshot_id, latest=latest, successor_ms=times_ms[snapshot_id + 1 - first]):
                return snapshot_id
        return end

    def keeps(self, snapshot_id: int, *, latest: int, successor_ms: int) -> bool:
        """Return whether a snapshot stays for its age: it is within `kept_max`, and its successor is young enough."""
        return snapshot_id > latest - self.kept_max and successor_ms >= self.older_than_ms


def snapshot_retention(
    options: Options,
    now_ms: int,
    *,
    table: str,
    retain_max: int | None = None,
    retain_min: int | None = None,
    older_than_ms: int | None = None,
    max_deletes: int | None = None,
) -> Retention:
    """Return the retention of snapshots: the arguments of the caller, else the options of the table.

    Raises:
        InvalidInputError: a value is no valid number, or the least number is above the greatest.
    """
    for name, value in (("retain_max", retain_max), ("retain_min", retain_min), ("max_deletes", max_deletes)):
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            raise InvalidInputError(
                f"cannot expire snapshots of '{table}': {name} is {value!r:.60}. It is a whole number of 1 or more. "
                "Nothing was removed."
            )
    kept_max = options.get(u.SNAPSHOT_NUM_RETAINED_MAX) if retain_max is None else retain_max
    kept_min = options.get(u.SNAPSHOT_NUM_RETAINED_MIN) if retain_min is None else retain_min
    if retain_min is None and retain_max is not None:
        kept_min = min(kept_min, retain_max)
    if kept_min > kept_max:
        raise InvalidInputError(
            f"cannot expire snapshots of '{table}': at least {kept_min} are to be kept ("
            f"{'retain_min' if retain_min is not None else u.SNAPSHOT_NUM_RETAINED_MIN.key}) and at most {kept_max} ("
            f"{'retain_max' if retain_max is not None else u.SNAPSHOT_NUM_RETAINED_MAX.key}). Nothing was removed."
        )
    return Retention(
        kept_min=kept_min,
        kept_max=kept_max,
        older_than_ms=now_ms - _ms(options.get(u.SNAPSHOT_TIME_RETAINED)) if older_than_ms is None else older_than_ms,
        limit=options.get(u.SNAPSHOT_EXPIRE_LIMIT) if max_deletes is None else max_deletes,
    )


def changelog_retention(options: Options, now_ms: int) -> Retention | None:
    """Return the retention of long-lived changelogs; None if changelogs expire with their snapshots."""
    snapshot_max, snapshot_min = options.get(u.SNAPSHOT_NUM_RETAINED_MAX), options.get(u.SNAPSHOT_NUM_RETAINED_MIN)
    snapshot_time = options.get(u.SNAPSHOT_TIME_RETAINED)
    kept_max = _or(options.get(u.CHANGELOG_NUM_RETAINED_MAX), snapshot_max)
    kept_min = _or(options.get(u.CHANGELOG_NUM_RETAINED_MIN), snapshot_min)
    time = options.get(u.CHANGELOG_TIME_RETAINED)
    time = snapshot_time if time is None else time
    as_long = kept_max <= snapshot_max and kept_min <= snapshot_min and time <= snapshot_time
    if as_long and not options.get(w.STREAM_ENABLED):  # a caller may let snapshots expire before their time
        return None
    return Retention(
        kept_min=min(kept_min, kept_max),
        kept_max=kept_max,
        older_than_ms=now_ms - _ms(time),
        limit=options.get(u.SNAPSHOT_EXPIRE_LIMIT),
    )


def consumers_hold_snapshots(options: Options) -> bool:
    """Return whether consumers keep snapshots, and not only changelogs."""
    return not options.get(r.CONSUMER_CHANGELOG_ONLY) or changelog_retention(options, 0) is None


def _ms(span: timedelta) -> int:
    return span // timedelta(milliseconds=1)


def _or(value: int | None, default: int) -> int:
    return default if value is None else value

"""Picks: choose the sorted runs to compact and the level of the output (universal compaction). Pure: sizes decide.

The caller gives the runs newest first: level-0 files, each a run of its own, then levels upwards. A pick is always a
prefix of the runs, so the runs that stay are older than the compacted ones. The rules apply in this order, and the
first rule that picks wins:

0. early full compaction: an interval has passed, or the bucket or the levels below the highest cross a size
1. size amplification: the young runs are so large beside the oldest that one big merge pays
2. size ratio: neighbouring runs have about the same size
3. run count: there are too many runs, of any size
4. level-0 push: tables whose compactions look rows up need an empty level 0, at once or after some commits. They take
   the next free level while there is one: a file that only changes its level costs its writer nothing, and the rules
   above bound the runs as in any table

Format: section "universal pick".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, replace
from datetime import datetime, timedelta

from merganser.lsm.levels import top_level
from merganser.options import upkeep as u
from merganser.options import write as w
from merganser.options.option import Options
from merganser.rules.compacting import empties_level_0
from merganser.values import dataclass


@dataclass(frozen=True, slots=True)
class RunSize:
    """A sorted run, as a pick sees it.

    Attributes:
        level: the level of the run.
        size: the bytes of its files.
        files: the number of its files.
    """

    level: int
    size: int
    files: int = 1


@dataclass(frozen=True, slots=True)
class Pick:
    """The first `run_count` runs are compacted into `output_level`.

    Attributes:
        rule: the name of the rule that picked, for people.
    """

    run_count: int
    output_level: int
    rule: str = field(default="", compare=False)


def pick(
    runs: Sequence[RunSize],
    options: Options,
    *,
    full: bool = False,
    push_level_0: bool | None = None,
    now: datetime | None = None,
    last_full: datetime | None = None,
) -> Pick | None:
    """Return what to compact, or None.

    Args:
        runs: newest first.
        options: of the table.
        full: compact everything into the highest level, if any run lies elsewhere.
        push_level_0: whether rule 4 applies; None: the options decide.
        now: the time, for off-peak hours and the optimisation interval.
        last_full: the time of the last full compaction of the bucket.
    """
    if not runs:
        return None
    top = top_level(options, (run.level for run in runs))
    if full:
        return Pick(len(runs), top, "full") if any(run.level != top for run in runs) else None
    if push_level_0 is None:
        push_level_0 = _level_0_is_due(runs, options)
    ratio = options.get(u.SIZE_RATIO) + _offpeak_ratio(options, now)
    rules: Sequence[tuple[str, Callable[[], Pick | None]]] = (
        ("early full", lambda: _early_full(runs, options, top, now, last_full)),
        ("size amplification", lambda: _size_amplification(runs, options, top)),
        ("size ratio", lambda: _size_ratio(runs, options, ratio, top)),
        ("run count", lambda: _run_count(runs, options, ratio, top)),
        ("level 0", lambda: _level_0(runs, ratio, top, spread=empties_level_0(options)) if push_level_0 else None),
    )
    rule, found = next(((name, made) for name, choose in rules if (made := choose()) is not None), ("", None))
    if found is not None and found.run_count == 1 and runs[0].files == 1 and runs[0].level == found.output_level:
        return None
    return None if found is None else replace(found, rule=rule)


def full_compaction_commits(options: Options) -> int | None:
    """Return after how many commits everything is compacted; None: the number of commits does not say."""
    every = options.get(u.FULL_COMPACTION_DELTA_COMMITS)
    if every is None and options.get(w.CHANGELOG_PRODUCER) == "full-compaction":
        return None if options.get(u.CHANGELOG_COMPACTION_INTERVAL) else 1
    return every


def _level_0_is_due(runs: Sequence[RunSize], options: Options) -> bool:
    """Return whether level 0 has to be emptied by now.

    Every pick empties level 0, so its runs are those of the commits since the last pick. The bucket itself thus shows
    how long it has waited, for any number of writers.
    """
    if not empties_level_0(options):
        return options.get(u.FORCE_UP_LEVEL_0)
    if options.get(u.LOOKUP_COMPACT) == "radical" and options.get(u.LOOKUP_WAIT):
        return True
    trigger = options.get(u.COMPACTION_TRIGGER)
    interval = options.get(u.LOOKUP_COMPACT_MAX_INTERVAL) or 2 * trigger
    return sum(run.level == 0 for run in runs) >= max(interval, trigger)


def _early_full(
    runs: Sequence[RunSize], options: Options, top: int, now: datetime | None, last_full: datetime | None
) -> Pick | None:
    everything = Pick(len(runs), top)
    waits = runs[0].level != top and options.get(w.CHANGELOG_PRODUCER) == "full-compaction"
    publishing = options.get(u.CHANGELOG_COMPACTION_INTERVAL) if waits else None
    if publishing and _has_passed(publishing, now, last_full):
        return everything
    if len(runs) == 1:
        return None
    interval = options.get(u.OPTIMIZATION_INTERVAL)
    if interval is not None and _has_passed(interval, now, last_full):
        return everything
    total = options.get(u.TOTAL_SIZE_THRESHOLD)
    if total is not None and sum(run.size for run in runs) < total:
        return everything
    incremental = options.get(u.INCREMENTAL_SIZE_THRESHOLD)
    if incremental is not None and sum(run.size for run in runs if run.level != top) > incremental:
        return everything
    return None


def _has_passed(interval: timedelta, now: datetime | None, last_full: datetime | None) -> bool:
    return last_full is None or (now is not None and now - last_full > interval)


def _size_amplification(runs: Sequence[RunSize], options: Options, top: int) -> Pick | None:
    if len(runs) < options.get(u.COMPACTION_TRIGGER):
        return None
    young = sum(run.size for run in runs[:-1])
    if young * 100 > options.get(u.MAX_SIZE_AMPLIFICATION_PERCENT) * runs[-1].size:
        return Pick(len(runs), top)
    return None


def _size_ratio(runs: Sequence[RunSize], options: Options, ratio: int, top: int) -> Pick | None:
    if len(runs) < options.get(u.COMPACTION_TRIGGER):
        return None
    count = _extended(runs, 1, ratio)
    return _unit(runs, count, top) if count > 1 else None


def _run_count(runs: Sequence[RunSize], options: Options, ratio: int, top: int) -> Pick | None:
    trigger = options.get(u.COMPACTION_TRIGGER)
    if len(runs) <= trigger:
        return None
    return _unit(runs, _extended(runs, len(runs) - trigger + 1, ratio), top)


def _level_0(runs: Sequence[RunSize], ratio: int, top: int, *, spread: bool) -> Pick | None:
    count = sum(run.level == 0 for run in runs)
    if spread and 0 < count < len(runs) and runs[count].level > 1:
        return Pick(count, runs[count].level - 1)
    return _unit(runs, _extended(runs, count, ratio), top) if count else None


def _extended(runs: Sequence[RunSize], count: int, ratio: int) -> int:
    """Return the number of runs to take, from `count` on: go on while the next run is not much larger.

    After it has added a run, the pick also takes larger runs of levels 0 and 1: they would only make levels sparse.
    """
    held = sum(run.size for run in runs[:count])
    added = False
    for run in runs[count:]:
        if held * (100 + ratio) < run.size * 100 and not (added and run.level <= 1):
            break
        held += run.size
        count += 1
        added = True
    return count


def _unit(runs: Sequence[RunSize], count: int, top: int) -> Pick:
    """Return the pick of the first `count` runs, or of more where its output would be level 0."""
    if count == len(runs):
        return Pick(count, top)
    level = max(0, runs[count].level - 1)
    while level == 0 and count < len(runs):
        # Output at level 0 would be one more run of the newest rows. Take runs up to one above level 0 and replace it.
        level = runs[count].level
        count += 1
    return Pick(count, top if count == len(runs) else level)


def _offpeak_ratio(options: Options, now: datetime | None) -> int:
    start, end = options.get(u.OFFPEAK_START_HOUR), options.get(u.OFFPEAK_END_HOUR)
    if start < 0 or end < 0 or start == end or now is None:
        return 0
    inside = start <= now.hour < end if start < end else now.hour >= start or now.hour < end
    return options.get(u.OFFPEAK_RATIO) if inside else 0

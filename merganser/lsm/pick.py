"""Which sorted runs to compact, and into which level: universal compaction. Pure: sizes in, a decision out.

Runs are given newest first: level-0 files, each a run of its own, then levels upwards. What is picked is always a
prefix, so what stays is older than what is compacted. Rules in the order they are asked; the first that answers
wins:

0. early full compaction: an interval has passed, or the bucket, or what is below the highest level, crosses a size
1. size amplification: the young runs hold so much more than the oldest that one big merge pays
2. size ratio: neighbours of about the same size
3. run count: more runs than wanted, whatever their sizes
4. level-0 push: tables whose reads look rows up want level 0 empty, at once or after some commits

Format: section "universal pick".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from merganser.options import upkeep as u
from merganser.options import write as w
from merganser.options.option import Options


@dataclass(frozen=True, slots=True)
class RunSize:
    """What a pick looks at.

    Attributes:
        level: of the run.
        size: bytes of its files.
        files: how many they are.
    """

    level: int
    size: int
    files: int = 1


@dataclass(frozen=True, slots=True)
class Pick:
    """The first `run_count` runs are compacted into `output_level`."""

    run_count: int
    output_level: int


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
        full: everything into the highest level, if anything lies elsewhere.
        push_level_0: rule 4; None: as the options say.
        now: the time, for off-peak hours and the optimisation interval.
        last_full: when the bucket was compacted fully.
    """
    top = max(u.level_count(options) - 1, *(run.level for run in runs)) if runs else 0
    if not runs:
        return None
    if full:
        return Pick(len(runs), top) if any(run.level != top for run in runs) else None
    if push_level_0 is None:
        push_level_0 = _level_0_is_due(runs, options)
    ratio = options.get(u.SIZE_RATIO) + _offpeak_ratio(options, now)
    found = (
        _early_full(runs, options, top, now, last_full)
        or _size_amplification(runs, options, top)
        or _size_ratio(runs, options, ratio, top)
        or _run_count(runs, options, ratio, top)
        or (_level_0(runs, ratio, top) if push_level_0 else None)
    )
    if found is not None and found.run_count == 1 and runs[0].files == 1 and runs[0].level == found.output_level:
        return None
    return found


def pushes_level_0(options: Options) -> bool:
    """Return whether reads of the table look rows up, so that each commit has to empty level 0."""
    return (
        options.get(w.CHANGELOG_PRODUCER) == "lookup"
        or options.get(w.MERGE_ENGINE) == "first-row"
        or options.get(w.DELETION_VECTORS)
        or options.get(u.FORCE_LOOKUP)
    )


def _level_0_is_due(runs: Sequence[RunSize], options: Options) -> bool:
    """Return whether level 0 has to be emptied by now.

    Every pick empties it, so its runs are those of the commits since the last one: what a bucket waits for is read
    off the bucket, and holds whoever wrote it.
    """
    if not pushes_level_0(options):
        return options.get(u.FORCE_UP_LEVEL_0)
    if options.get(u.LOOKUP_COMPACT) == "radical" and options.get(u.LOOKUP_WAIT):
        return True
    trigger = options.get(u.COMPACTION_TRIGGER)
    interval = options.get(u.LOOKUP_COMPACT_MAX_INTERVAL) or 2 * trigger
    return sum(run.level == 0 for run in runs) >= max(interval, trigger)


def _early_full(
    runs: Sequence[RunSize], options: Options, top: int, now: datetime | None, last_full: datetime | None
) -> Pick | None:
    if len(runs) == 1:
        return None
    everything = Pick(len(runs), top)
    interval = options.get(u.OPTIMIZATION_INTERVAL)
    if interval is not None and (last_full is None or (now is not None and now - last_full > interval)):
        return everything
    total = options.get(u.TOTAL_SIZE_THRESHOLD)
    if total is not None and sum(run.size for run in runs) < total:
        return everything
    incremental = options.get(u.INCREMENTAL_SIZE_THRESHOLD)
    if incremental is not None and sum(run.size for run in runs if run.level != top) > incremental:
        return everything
    return None


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


def _level_0(runs: Sequence[RunSize], ratio: int, top: int) -> Pick | None:
    count = sum(run.level == 0 for run in runs)
    return _unit(runs, _extended(runs, count, ratio), top) if count else None


def _extended(runs: Sequence[RunSize], count: int, ratio: int) -> int:
    """Return how many runs to take when the first `count` are taken: on while the next is not much larger.

    Once a run was added, larger ones of levels 0 and 1 are taken too: they would only make levels sparse.
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
        # Output of level 0 would be another run of the newest rows: go on to a run above level 0, and take its place.
        level = runs[count].level
        count += 1
    return Pick(count, top if count == len(runs) else level)


def _offpeak_ratio(options: Options, now: datetime | None) -> int:
    start, end = options.get(u.OFFPEAK_START_HOUR), options.get(u.OFFPEAK_END_HOUR)
    if start < 0 or end < 0 or start == end or now is None:
        return 0
    inside = start <= now.hour < end if start < end else now.hour >= start or now.hour < end
    return options.get(u.OFFPEAK_RATIO) if inside else 0

"""Universal compaction as pictures: a line per sorted run, newest first, `#` ten bytes, `*` what is picked."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from merganser.lsm.pick import Pick, RunSize, pick
from merganser.options.option import Options
from merganser.options.registry import normalize_options

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
LOOKUP = {"merge-engine": "first-row"}


def _check(picture: str, options: dict[str, Any] | None = None, **how: Any) -> None:
    """Hold a pick against a picture such as::

    * 0 |##
    * 4 |###     -> 4
      5 |#######
    """
    runs, taken, level = [], 0, None
    for line in filter(str.strip, picture.splitlines()):
        head, _, rest = line.partition("|")
        bar, _, output = rest.partition("->")
        runs.append(RunSize(int(head.replace("*", "")), 10 * bar.count("#")))
        taken += "*" in head
        level = int(output) if output else level
    wanted = None if level is None else Pick(taken, level)
    assert pick(runs, Options(normalize_options(options or {})), **how) == wanted, picture


def test_a_bucket_with_few_runs_is_left_alone() -> None:
    _check("""
      0 |##
      0 |##
      0 |##
      5 |#########
    """)


def test_everything_is_compacted_when_the_young_weigh_much_more_than_the_oldest() -> None:
    _check("""
    * 0 |####
    * 0 |####
    * 0 |####
    * 4 |###########
    * 5 |###########      -> 5
    """)


def test_exactly_the_percentage_is_not_much_more() -> None:
    _check("""
      0 |#
      1 |###
      2 |#########
      3 |############
      5 |#############
    """)


def test_runs_of_about_the_same_size_are_compacted_into_the_level_above_the_next() -> None:
    _check("""
    * 0 |##
    * 0 |##
    * 0 |####
    * 4 |########         -> 4
      5 |################################################
    """)


def test_a_much_larger_run_ends_what_is_taken() -> None:
    _check("""
    * 0 |##
    * 0 |##               -> 2
      3 |##########
      4 |############
      5 |##############################
    """)


def test_larger_runs_of_levels_0_and_1_are_taken_once_any_was() -> None:
    _check("""
    * 0 |##
    * 0 |##
    * 0 |##########
    * 1 |####################   -> 4
      5 |#############################################
    """)


def test_with_more_runs_than_wanted_the_youngest_are_compacted_whatever_their_sizes() -> None:
    _check("""
    * 0 |#
    * 1 |#####            -> 1
      2 |###############
      3 |#############################################
      4 |##################################################################
      5 |####################################################################################
    """)


def test_no_run_comes_out_at_level_0() -> None:
    _check(
        """
    * 0 |#
    * 0 |#####
    * 1 |####################   -> 1
      3 |############################################################
    """,
        {"num-sorted-run.compaction-trigger": "3"},
    )


def test_the_last_run_taken_makes_it_the_highest_level() -> None:
    _check(
        """
    * 0 |##
    * 0 |##
    * 2 |####             -> 5
    """,
        {"num-sorted-run.compaction-trigger": "3", "num-levels": "6"},
    )


# tables that look rows up


def test_a_table_that_looks_rows_up_empties_level_0_at_once() -> None:
    _check(
        """
    * 0 |##               -> 4
      5 |#########
    """,
        LOOKUP,
    )


@pytest.mark.parametrize("waits", [{"lookup-compact": "gentle"}, {"lookup-wait": "false"}])
def test_level_0_waits_for_some_commits_where_it_may(waits: dict[str, str]) -> None:
    options = LOOKUP | waits | {"lookup-compact.max-interval": "5"}
    _check(
        """
      0 |#
      0 |##
      0 |####
      0 |########
    """,
        options,
    )
    _check(
        """
    * 0 |#
    * 0 |##
    * 0 |####
    * 0 |########
    * 0 |################   -> 5
    """,
        options,
    )


def test_level_0_waits_no_shorter_than_the_rules_about_runs() -> None:
    options = LOOKUP | {"lookup-compact": "gentle", "lookup-compact.max-interval": "1"}
    _check(
        """
      0 |#
      0 |###
      5 |#################################
    """,
        options,
    )


def test_level_0_goes_up_where_an_option_asks_for_it() -> None:
    _check(
        """
    * 0 |#
    * 0 |#                -> 3
      4 |#########################
      5 |##########################################
    """,
        {"compaction.force-up-level-0": "true"},
    )


def test_where_compactions_look_rows_up_level_0_takes_the_next_free_level() -> None:
    """Beside a run of its own size it is not rewritten. With as many runs as trigger a compaction, sizes decide."""
    picture = """
    * 0 |##               -> 2
      3 |##
      4 |####
      5 |#################
    """
    _check(picture, LOOKUP)
    merged = picture.replace("  3", "* 3").replace("  4", "* 4").replace("-> 2", "-> 4")
    _check(merged, {"compaction.force-up-level-0": "true"})
    _check(
        """
    * 0 |##
    * 1 |#                -> 2
      3 |#########
      5 |###############################
    """,
        LOOKUP,
    )


# early full compaction


@pytest.mark.parametrize(("hours", "level"), [(0.5, None), (1.5, 5)])
def test_an_interval_of_the_changelog_brings_rows_to_the_highest_level(hours: float, level: int | None) -> None:
    options = {"changelog-producer": "full-compaction", "changelog-producer.compaction-interval": "1 h"}
    now = datetime(2026, 1, 1, 12, tzinfo=UTC)
    picked = pick([RunSize(0, 1)], Options(options), now=now, last_full=now - timedelta(hours=hours))
    assert picked == (None if level is None else Pick(1, level))
    assert pick([RunSize(5, 1)], Options(options), now=now, last_full=now - timedelta(hours=hours)) is None


@pytest.mark.parametrize(
    ("last", "due"), [(None, True), (timedelta(hours=2), True), (timedelta(hours=1), False), (timedelta(0), False)]
)
def test_everything_is_compacted_again_after_an_interval(last: timedelta | None, due: bool) -> None:
    picture = """
    * 0 |#
    * 5 |##########       -> 5
    """
    if not due:
        picture = picture.replace("*", " ").replace("-> 5", "")
    last_full = None if last is None else NOON - last
    _check(picture, {"compaction.optimization-interval": "1 h"}, now=NOON, last_full=last_full)


@pytest.mark.parametrize(
    "options",
    [
        {"compaction.optimization-interval": "1 h"},
        {"compaction.total-size-threshold": "1 mb"},
        {"compaction.incremental-size-threshold": "1 b"},
    ],
)
def test_a_single_run_is_compacted_by_no_early_rule(options: dict[str, str]) -> None:
    _check("      0 |###", options, now=NOON)


def test_a_small_bucket_is_always_compacted_fully() -> None:
    picture = """
    * 0 |#
    * 5 |##               -> 5
    """
    _check(picture, {"compaction.total-size-threshold": "31 b"})
    _check(picture.replace("*", " ").replace("-> 5", ""), {"compaction.total-size-threshold": "30 b"})


def test_much_below_the_highest_level_is_compacted_fully() -> None:
    picture = """
    * 0 |#
    * 3 |####
    * 5 |#########################   -> 5
    """
    _check(picture, {"compaction.incremental-size-threshold": "49 b"})
    _check(picture.replace("*", " ").replace("-> 5", ""), {"compaction.incremental-size-threshold": "50 b"})


# off-peak


@pytest.mark.parametrize(
    ("start", "end", "hour", "inside"),
    [
        (11, 13, 11, True),
        (11, 13, 13, False),
        (22, 6, 23, True),
        (22, 6, 5, True),
        (22, 6, 6, False),
        (3, 3, 3, False),
        (-1, 6, 3, False),
    ],
)
def test_in_off_peak_hours_larger_runs_are_taken(start: int, end: int, hour: int, inside: bool) -> None:
    options = {
        "compaction.offpeak.start.hour": str(start),
        "compaction.offpeak.end.hour": str(end),
        "compaction.offpeak-ratio": "60",
    }
    picture = """
    * 0 |##
    * 2 |###
    * 3 |########         -> 3
      4 |######################
      5 |##############################################
    """
    if not inside:
        picture = picture.replace("*", " ").replace("-> 3", "")
    _check(picture, options, now=NOON.replace(hour=hour))


# full


def test_a_full_compaction_takes_everything_into_the_highest_level() -> None:
    _check(
        """
    * 0 |#
    * 5 |##################   -> 5
    """,
        full=True,
    )


def test_a_bucket_that_is_all_at_the_highest_level_is_compacted_fully() -> None:
    _check("      5 |####", full=True)


def test_a_level_that_somebody_else_made_is_the_highest() -> None:
    _check(
        """
    * 0 |#
    * 7 |##################   -> 7
    """,
        full=True,
    )


def test_a_single_file_that_is_where_it_belongs_is_not_moved() -> None:
    runs = [RunSize(5, 10)]
    assert pick(runs, Options({}), push_level_0=True) is None
    assert pick([], Options({})) is None

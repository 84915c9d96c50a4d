"""Which snapshots go, by number, age, consumers and limit."""

from __future__ import annotations

from datetime import timedelta

import pytest

from merganser.errors import InvalidInputError
from merganser.options.option import Options
from merganser.upkeep.retention import Retention, changelog_retention, snapshot_retention


def _oldest_kept(times: list[int], *, held_from: int | None = None, **given: int) -> int:
    """Return the oldest of the snapshots 1, 2, ... of some times that stays."""
    retention = Retention(**{"kept_min": 1, "kept_max": 100, "older_than_ms": 0, "limit": 100, **given})
    end = retention.end(first=1, latest=len(times), held_from=held_from)
    return retention.stop(first=1, latest=len(times), end=end, times_ms=times[:end])


def test_the_greatest_number_wins_over_age() -> None:
    assert _oldest_kept([10, 20, 30, 40], kept_max=2) == 3


def test_the_least_number_wins_over_age() -> None:
    assert _oldest_kept([10, 20, 30, 40], kept_min=3, older_than_ms=1000) == 2


def test_a_snapshot_goes_when_its_successor_is_too_old() -> None:
    assert _oldest_kept([10, 20, 30, 40], older_than_ms=30) == 2
    assert _oldest_kept([10, 20, 30, 40], older_than_ms=31) == 3


def test_the_first_young_one_keeps_all_above() -> None:
    assert _oldest_kept([10, 99, 30, 40], older_than_ms=50) == 1


def test_a_run_removes_no_more_than_its_limit() -> None:
    assert _oldest_kept([10] * 9, older_than_ms=1000, limit=3) == 4


def test_what_a_consumer_will_read_stays() -> None:
    assert _oldest_kept([10] * 9, older_than_ms=1000, held_from=3) == 3
    assert _oldest_kept([10] * 9, kept_max=2, held_from=3) == 3


def test_changelogs_go_with_their_snapshots_unless_they_are_kept_longer() -> None:
    assert changelog_retention(Options({}), 0) is None
    assert changelog_retention(Options({"changelog.time-retained": "30 min"}), 0) is None
    longer = changelog_retention(Options({"changelog.time-retained": "5 h"}), 10 * 3_600_000)
    assert longer is not None
    assert longer.older_than_ms == timedelta(hours=5) // timedelta(milliseconds=1)


@pytest.mark.parametrize("given", [{"retain_max": 0}, {"retain_min": "2"}, {"max_deletes": True}])
def test_numbers_that_are_none_are_refused(given: dict[str, int]) -> None:
    with pytest.raises(InvalidInputError, match=next(iter(given))):
        snapshot_retention(Options({}), 0, table="t", **given)


def test_more_at_least_than_at_most_is_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"at least 3 .* at most 2"):
        snapshot_retention(Options({}), 0, table="t", retain_max=2, retain_min=3)


def test_a_smaller_maximum_of_a_caller_wins_over_the_minimum_of_the_table() -> None:
    assert snapshot_retention(Options({}), 0, table="t", retain_max=2).kept_min == 2

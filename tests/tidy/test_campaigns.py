"""A part of the cases of a campaign runs on each day: none is left out for ever, and none runs more often."""

from __future__ import annotations

from datetime import date, timedelta

import pytest

from tests.seeds import part_of


@pytest.mark.parametrize("count", [1, 6, 40])
@pytest.mark.parametrize("days", [1, 2, 7])
def test_within_some_days_each_case_runs_once(count: int, days: int) -> None:
    start = date(2026, 12, 29)
    drawn = [part_of(range(count), 1 / days, "name", start + timedelta(day)) for day in range(2 * days)]
    for week in (drawn[:days], drawn[days:]):
        assert sorted(case for part in week for case in part) == list(range(count))
    assert max(map(len, drawn)) - min(map(len, drawn)) <= 1


def test_slow_campaigns_of_one_case_run_on_days_apart() -> None:
    days = [date(2026, 12, 30), date(2026, 12, 31)]
    assert sorted(part_of("x", 1 / 2, "name", one, first) for one in days for first in (0, 1)) == [[], [], ["x"], ["x"]]
    assert [part_of("x", 1 / 2, "name", one, 0) == part_of("x", 1 / 2, "name", one, 1) for one in days] == [False] * 2

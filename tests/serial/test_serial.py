"""A slice of the campaign, and that its judges notice what they are there for."""

from __future__ import annotations

from typing import Any

import pytest

from tests.catalogs.databases import UnavailableError, backends
from tests.serial.driver import run
from tests.serial.workloads import WORKLOADS, Judge, by_key, changes_of, cycle

HISTORY = [(0, 1), (1, 1), (0, 2), (2, 1), (1, 2)]


def _state(name: str, commits: list[tuple[int, int]]) -> list[dict[str, Any]]:
    """Return the rows after commits, by a judge that has not seen any others."""
    judge = Judge(name)
    judge.wrong(commits, [])
    rows = judge._visible()
    return by_key(rows) if WORKLOADS[name].key else rows


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_judge_takes_the_state_after_commits_and_no_state_with_a_row_of_another_one(name: str) -> None:
    rows = _state(name, HISTORY)
    assert Judge(name).wrong(HISTORY, rows) is None
    for i in range(len(rows)):
        assert Judge(name).wrong(HISTORY, rows[:i] + rows[i + 1 :])
    if name in ("tags", "upserts", "partial-update", "lists", "queue"):
        other = _state(name, [HISTORY[0], *HISTORY[:0:-1]])
        assert other != rows
        assert Judge(name).wrong(HISTORY, other)


def test_lists_that_no_order_of_commits_explains_are_a_cycle() -> None:
    assert cycle([["a", "b", "c"], ["a", "c", "d"], []]) is None
    assert cycle([["a", "b"], ["b", "c"], ["c", "a"]])


def test_changes_of_a_commit_are_the_same_in_every_process() -> None:
    for name, workload in WORKLOADS.items():
        assert changes_of(workload, name, (3, 7)) == changes_of(workload, name, (3, 7))


@pytest.mark.campaign(1 / 3)
@pytest.mark.parametrize("name", ["lists", "new-keys", "merged-by-scan"])
def test_overlapping_writers_that_are_killed_and_lose_replies_commit_one_after_the_other(name: str) -> None:
    found = run(name, seconds=3, seed=1, writers=4, pause_s=1)
    assert found.problems == []
    assert found.commits


@pytest.mark.campaign(1 / 3)
@pytest.mark.parametrize("kind", ["rest", "postgresql", "rest+sqlite"])
def test_writers_go_on_while_the_catalog_is_killed_and_its_replies_are_lost(kind: str) -> None:
    pytest.importorskip("sqlalchemy")
    pytest.importorskip("requests")
    try:
        with backends(kind) as made:
            found = run("lists", seconds=4, seed=1, writers=3, pause_s=0.5, losses=0.05, backends=made, disturbed_s=2)
    except UnavailableError as error:
        pytest.skip(f"there is no {kind} to test with: {error}")
    assert found.problems == []
    assert found.commits
    assert found.disturbed

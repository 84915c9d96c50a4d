"""A slice of the soak, and that its judge notices what it is there for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.soak.journal import Journal
from tests.soak.tables import TABLES, Judge, Row, SoakTable, State


def _shown(table: SoakTable, commits: dict[int, int]) -> list[Row]:
    """The rows of a table with the first commits of some writers."""
    state: State = {}
    for writer, newest in commits.items():
        for n in range(1, newest + 1):
            table.fold(state, n, table.commit(writer, n))
    return list(state.values())


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_the_judge_takes_every_state_between_two_commits_and_no_other(table: SoakTable) -> None:
    judge = Judge(table)
    for commits in ({}, {0: 1}, {0: 4, 3: 2}, {0: 3, 3: 5}):
        rows = _shown(table, commits)
        assert judge.wrong(rows) is None
        assert judge.heads(rows) == commits
    rows = _shown(table, {0: 4, 3: 2})
    for i, row in enumerate(rows):
        assert judge.wrong(rows[:i] + rows[i + 1 :]), f"without {row}"
        assert judge.wrong([*rows, row]), f"with {row} twice"
        assert judge.wrong([*rows[:i], row | {"a": (row["a"] or 0) + 1}, *rows[i + 1 :]]), f"with another {row}"


def test_a_journal_tells_what_was_acknowledged_from_what_was_tried(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    assert journal.position() == (0, 0)
    journal.begin(1)
    assert journal.position() == (0, 1)
    journal.done(1)
    journal.begin(2)
    assert journal.position() == (1, 2)
    with journal.path.open("a") as file:
        file.write("done 2")  # torn: no line end
    assert journal.position() == (1, 2)


@pytest.mark.campaign(1 / 4, first=1)
@pytest.mark.slow
def test_writers_that_are_killed_lose_and_double_nothing() -> None:
    found: Any = subprocess.run(
        [sys.executable, "-m", "tests.soak", "--kills", "8", "--seed", "3", "--minutes", "1"],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        timeout=300,
        check=False,
    )
    assert found.returncode == 0, found.stdout + found.stderr

"""A commit takes as many steps in a table of many buckets as in a table of few: its cost follows what it changes."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from dataclasses import replace
from types import FrameType
from typing import Any

import pytest

import merganser as mg
from merganser.codec.binary_row import serialize
from merganser.commit.committable import Committable
from merganser.commit.message import CommitMessage
from merganser.commit.table_commit import TableCommit
from merganser.meta.live_files import LiveFiles
from tests.kit.builders import catalog_over, memory_with

_names = itertools.count()


def _steps(work: Callable[[], Any]) -> int:
    """Return how many lines are run by `work`, in this thread, loops within lines included."""
    steps = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal steps
        steps += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return steps


def _table(partitions: int) -> mg.Table:
    """Return a table of ten buckets in each partition; only the files of the first hold what metadata says."""
    catalog = catalog_over(memory_with({}, f"cost-{next(_names)}"))
    catalog.create_database("db")
    table = catalog.create_table(
        "db.t", {"p": "INT", "k": "INT"}, primary_key=["p", "k"], partition_by=["p"], options={"bucket": "10"}
    )
    table.write([{"p": 0, "k": k} for k in range(100)])
    commits = TableCommit(table.definition, table.env)
    added = [
        CommitMessage(serialize((p,), table.definition.partition_types), entry.bucket, 10, (entry.file,))
        for p in range(1, partitions)
        for entry in commits.latest().live
    ]
    commits.commit(Committable(added, "user"))
    return table


def _rows(step: int, p: int = 0) -> list[dict[str, int]]:
    return [{"p": p, "k": k + step} for k in range(50)]


@pytest.mark.parametrize(
    "work",
    [
        lambda table, step: table.write(_rows(step)),
        lambda table, step: table.write(_rows(step), commit_user="job", identifier=step),
    ],
    ids=["commit", "commit with an identifier"],
)
def test_a_commit_takes_the_same_steps_in_a_table_of_many_buckets(work: Callable[[mg.Table, int], Any]) -> None:
    few, many = _table(2), _table(200)
    for step in range(1, 7):  # one of them compacts
        small, large = (_steps(lambda table=table, step=step: work(table, step)) for table in (few, many))
        assert large < 1.1 * small, f"step {step}: {large} lines, and {small} with few buckets"


def test_states_share_the_buckets_that_a_commit_leaves_alone() -> None:
    table = _table(200)
    commits = TableCommit(table.definition, table.env)
    before: LiveFiles = commits.latest().live
    table.write(_rows(1))
    after = commits.latest().live
    assert after.buckets._layers[0] is before.buckets._layers[0]
    assert len(after) == before.count + 10
    assert replace(after) == after

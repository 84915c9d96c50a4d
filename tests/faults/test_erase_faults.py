"""Every storage call of an erasure that changes something goes wrong once, in every way. Rows of others are what they
were, and a repeat of the call finishes: nothing tells of the erased row any more."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import merganser as mg
from merganser.erase.report import Erasure
from merganser.storage.protocol import Storage
from tests.faults import run_some
from tests.kit.builders import catalog_over, contents, memory_with
from tests.kit.faulty import Outcome, Stopped
from tests.unit.erase.traces import traces

TOKEN = "qZx7"
_CHANGING = frozenset({"create", "replace", "delete", "delete_empty", "close", "abort"})
_names = itertools.count()


def _base(options: dict[str, str], key: list[str], part: list[str]) -> dict[str, bytes]:
    catalog = catalog_over(memory_with({}, f"erase-faults-{next(_names)}"))
    catalog.create_database("db")
    table = catalog.create_table(
        "db.t", {"k": "STRING", "v": "INT"}, primary_key=key, partition_by=part, options=options
    )
    table.write([{"k": "a", "v": 1}, {"k": TOKEN, "v": 1}])
    table.tags.create("v1")
    table.branches.create("b1", tag="v1")
    table.write([{"k": "b", "v": 2}])
    table.compact(full=True)
    return contents(catalog.env.storage)


def _table(storage: Storage, days: int = 0) -> mg.Table:
    table = catalog_over(storage, clock=lambda: datetime.now(UTC) + timedelta(days=days)).table("db.t")
    assert isinstance(table, mg.Table)
    return table


def _erased(storage: Storage, days: int = 0) -> Erasure:
    return _table(storage, days).erase(f"k = '{TOKEN}'", everywhere=True)


def _rows(storage: Storage, branch: str = "main") -> list[dict[str, Any]]:
    table = _table(storage)
    return sorted((table if branch == "main" else table.branch(branch)).read().to_pylist(), key=repr)


@pytest.mark.campaign(1 / 3)
@pytest.mark.parametrize(
    ("options", "key", "part"),
    [
        ({"bucket": "1", "changelog-producer": "input"}, ["k"], []),
        ({"deletion-vectors.enabled": "true"}, [], []),
        ({"bucket": "-1", "stream.enabled": "true"}, ["k", "v"], ["k"]),
    ],
    ids=["keyed", "append", "shards"],
)
def test_an_erasure_that_was_stopped_is_finished_by_the_next_one(
    options: dict[str, str], key: list[str], part: list[str]
) -> None:
    files = _base(options, key, part)
    mine = {"k": TOKEN, "v": 1}
    others, in_branch = [{"k": "a", "v": 1}, {"k": "b", "v": 2}], [{"k": "a", "v": 1}]

    def check(storage: Storage, outcome: Outcome[Erasure]) -> None:
        assert [one for one in _rows(storage) if one != mine] == others
        assert [one for one in _rows(storage, "b1") if one != mine] == in_branch
        again = _erased(storage)
        assert {one.kind for one in again.held} <= {"file"}, again  # of the stopped one: they may be a writer's
        assert (_rows(storage), _rows(storage, "b1")) == (others, in_branch)
        last = _erased(storage, days=2)
        assert last.is_complete, last
        assert traces(contents(storage), TOKEN) == []
        assert (_rows(storage), _rows(storage, "b1")) == (others, in_branch)
        if isinstance(outcome.error, Stopped):
            assert [one for one in _table(storage).check() if one.is_fault] == []

    name = f"erase-faults-{next(_names)}"
    assert run_some(lambda: memory_with(files, name), _erased, check, verbs=_CHANGING) > 100

"""Every storage call of an upsert goes wrong once, in every way: alone, and with a commit of another writer between its
lookup and its commit. The table is as it was or as it is after, and a repeat is applied once."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest

import merganser as mg
from merganser.catalogs.catalog import Catalog
from merganser.edit.upsert import Upsert
from merganser.errors import CommitUnknownError
from merganser.storage.protocol import Storage
from tests.faults import run_some
from tests.kit.builders import catalog_over, contents, memory_with
from tests.kit.faulty import FaultyStorage, Outcome, Stopped

Rows = list[dict[str, Any]]
COLUMNS = {"k": "INT", "a": "INT", "b": "INT"}
_names = itertools.count()
_edit = Upsert._edit


def _row(k: int, a: int | None, b: int | None) -> dict[str, Any]:
    return {"k": k, "a": a, "b": b}


FIRST = [_row(k, 0, 0) for k in range(4)]
OURS = [{"k": 1, "a": 1}, {"k": 2, "a": 0}, {"k": 9, "a": 1}]
AFTER = [_row(0, 0, 0), _row(1, 1, 0), _row(2, 0, 0), _row(3, 0, 0), _row(9, 1, None)]
OTHERS = [{"k": 1, "b": 2}, {"k": 9, "b": 2}]
BETWEEN = [_row(0, 0, 0), _row(1, 0, 2), _row(2, 0, 0), _row(3, 0, 0), _row(9, None, 2)]
BOTH = [_row(0, 0, 0), _row(1, 1, 2), _row(2, 0, 0), _row(3, 0, 0), _row(9, 1, 2)]


def _base(**options: str) -> dict[str, bytes]:
    catalog = catalog_over(memory_with({}, f"upsert-faults-{next(_names)}"))
    catalog.create_database("db")
    found = {"bucket": "1"} | {name.replace("_", "-"): value for name, value in options.items()}
    catalog.create_table("db.t", COLUMNS, primary_key=["k"], options=found).write(FIRST)
    return contents(catalog.env.storage)


def _visible(storage: Storage) -> Rows:
    return sorted(catalog_over(storage).table("db.t").read().to_pylist(), key=repr)


def _upsert(catalog: Catalog) -> mg.Upserted:
    return catalog.table("db.t").upsert(OURS, columns=["k", "a"], commit_user="job", identifier=1)


def _upsert_whole(catalog: Catalog) -> mg.Upserted:
    rows = [_row(1, 1, None), _row(9, 1, None)]
    return catalog.table("db.t").upsert(rows, commit_user="job", identifier=1)


def _overtaken(catalog: Catalog) -> mg.Upserted:
    """Upsert OURS, and let a writer whose store is well commit OTHERS after the first lookup."""
    store = catalog.env.storage
    well = catalog_over(store.inner if isinstance(store, FaultyStorage) else store)

    def edit(self: Upsert, *arguments: Any) -> Any:
        if self._session.user == "job":
            well.table("db.t").upsert(OTHERS, columns=["k", "b"], commit_user="other", identifier=1)
        return _edit(self, *arguments)

    with patch.object(Upsert, "_edit", edit):
        return _upsert(catalog)


@pytest.mark.parametrize(
    ("work", "engine", "states"),
    [
        (_upsert, "deduplicate", [FIRST, AFTER]),
        (_upsert_whole, "partial-update", [FIRST, AFTER]),
        (_overtaken, "deduplicate", [FIRST, BETWEEN, BOTH]),
    ],
    ids=["partial columns", "another engine", "overtaken"],
)
def test_an_upsert_is_all_or_nothing_whichever_call_goes_wrong(
    work: Callable[[Catalog], mg.Upserted], engine: str, states: list[Rows]
) -> None:
    files = _base(merge_engine=engine)
    states = [sorted(rows, key=repr) for rows in states]

    def check(storage: Storage, outcome: Outcome[mg.Upserted]) -> None:
        found = _visible(storage)
        assert found in states
        if outcome.error is None:
            assert found == states[-1]
            assert outcome.result is not None
            assert outcome.result.snapshot is not None
        elif not isinstance(outcome.error, CommitUnknownError | Stopped):
            assert found != states[-1], f"{outcome.error!r} was raised, and the commit is there"
        again = work(catalog_over(storage))
        assert _visible(storage) == states[-1]
        table = catalog_over(storage).table("db.t")
        assert [s.commit_identifier for s in table.snapshots() if s.commit_user == "job"] == [1]
        assert (again.inserted, again.updated) == ((0, 2) if work is _overtaken else (1, 1))
        assert again.rows is not None
        assert [row for row in states[-1] if row["k"] in again.rows["k"].to_pylist()] == again.rows.to_pylist()
        if isinstance(outcome.error, Stopped):
            assert [found for found in table.check() if found.is_fault] == []

    storage = f"upsert-faults-{next(_names)}"
    runs = run_some(lambda: memory_with(files, storage), lambda faulty: work(catalog_over(faulty)), check)
    assert runs > 40

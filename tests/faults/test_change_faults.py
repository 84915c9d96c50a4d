"""Every storage call of a change goes wrong once, in every way, also with a commit of another writer in between. The
table is as it was or as it is after, and a repeat is applied once."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest

import merganser as mg
from merganser.catalogs.catalog import Catalog
from merganser.edit.change import Change
from merganser.errors import CommitUnknownError
from merganser.storage.protocol import Storage
from tests.faults import run_some
from tests.kit.builders import catalog_over, contents, memory_with
from tests.kit.faulty import FaultyStorage, Outcome, Stopped

Rows = list[dict[str, Any]]
_names = itertools.count()
_write = Change._write


def _rows(*values: int) -> Rows:
    return [{"k": k, "a": a} for k, a in enumerate(values)]


def _base() -> dict[str, bytes]:
    catalog = catalog_over(memory_with({}, f"change-faults-{next(_names)}"))
    catalog.create_database("db")
    options = {"bucket": "1", "changelog-producer": "lookup"}
    catalog.create_table("db.t", {"k": "INT", "a": "INT"}, primary_key=["k"], options=options).write(_rows(0, 1, 2, 3))
    return contents(catalog.env.storage)


def _visible(storage: Storage) -> Rows:
    return sorted(catalog_over(storage).table("db.t").read().to_pylist(), key=repr)


def _updated(catalog: Catalog) -> mg.Snapshot | None:
    return catalog.table("db.t").update("a > 1", {"a": "a * 10"}, commit_user="job", identifier=1)


def _overtaken(catalog: Catalog) -> mg.Snapshot | None:
    """Update, and let a writer whose store is well commit after the first read."""
    store = catalog.env.storage
    well = catalog_over(store.inner if isinstance(store, FaultyStorage) else store)

    def write(self: Change, *arguments: Any) -> None:
        well.table("db.t").update("a = 1", {"a": "5"}, commit_user="other", identifier=1)
        _write(self, *arguments)

    def once(self: Change, *arguments: Any) -> None:
        (write if self.commit_user == "job" else _write)(self, *arguments)

    with patch.object(Change, "_write", once):
        return _updated(catalog)


@pytest.mark.campaign(1 / 2)
@pytest.mark.parametrize(
    ("work", "states"),
    [
        (_updated, [_rows(0, 1, 2, 3), _rows(0, 1, 20, 30)]),
        (_overtaken, [_rows(0, 1, 2, 3), _rows(0, 5, 2, 3), _rows(0, 50, 20, 30)]),
    ],
    ids=["alone", "overtaken"],
)
def test_an_update_is_all_or_nothing_whichever_call_goes_wrong(
    work: Callable[[Catalog], mg.Snapshot | None], states: list[Rows]
) -> None:
    files = _base()

    def check(storage: Storage, outcome: Outcome[mg.Snapshot | None]) -> None:
        found = _visible(storage)
        assert found in states
        if outcome.error is None:
            assert found == states[-1]
        elif not isinstance(outcome.error, CommitUnknownError | Stopped):
            assert found != states[-1], f"{outcome.error!r} was raised, and the commit is there"
        again = work(catalog_over(storage))
        assert _visible(storage) == states[-1]
        assert again is not None
        assert again.rows_updated == len(states)
        table = catalog_over(storage).table("db.t")
        made = [s for s in table.snapshots() if s.commit_user == "job" and s.commit_kind == "APPEND"]
        assert [s.commit_identifier for s in made] == [1]
        if isinstance(outcome.error, Stopped):
            assert [found for found in table.check() if found.is_fault] == []

    storage = f"change-faults-{next(_names)}"
    runs = run_some(lambda: memory_with(files, storage), lambda faulty: work(catalog_over(faulty)), check)
    assert runs > 40


def _append_base(options: dict[str, str]) -> dict[str, bytes]:
    catalog = catalog_over(memory_with({}, f"change-faults-{next(_names)}"))
    catalog.create_database("db")
    table = catalog.create_table("db.t", {"k": "INT", "a": "INT"}, options={"write-only": "true", **options})
    table.write(_rows(0, 1, 2, 3))
    table.write([{"k": 9, "a": 9}])
    return contents(catalog.env.storage)


def _merged(catalog: Catalog) -> mg.Snapshot | None:
    source = [{"k": 1, "v": 10}, {"k": 3, "v": 0}, {"k": 7, "v": 70}]
    merge = catalog.table("db.t").merge(source, on="target.k = source.k", commit_user="job", identifier=1)
    merge = merge.when_matched_delete("v = 0").when_matched_update({"a": "v"})
    return merge.when_not_matched_insert({"k": "source.k", "a": "v"}).execute()


@pytest.mark.parametrize("options", [{}, {"deletion-vectors.enabled": "true"}], ids=["files", "vectors"])
def test_a_merge_into_appended_rows_is_all_or_nothing_whichever_call_goes_wrong(options: dict[str, str]) -> None:
    files = _append_base(options)
    before = [*_rows(0, 1, 2, 3), {"k": 9, "a": 9}]
    after = [*_rows(0, 10, 2), {"k": 7, "a": 70}, {"k": 9, "a": 9}]

    def check(storage: Storage, outcome: Outcome[mg.Snapshot | None]) -> None:
        found = _visible(storage)
        assert found in (before, after)
        if outcome.error is None:
            assert found == after
        elif not isinstance(outcome.error, CommitUnknownError | Stopped):
            assert found == before, f"{outcome.error!r} was raised, and the commit is there"
        again = _merged(catalog_over(storage))
        assert _visible(storage) == after
        assert again is not None
        assert (again.rows_inserted, again.rows_updated, again.rows_deleted) == (1, 1, 1)
        table = catalog_over(storage).table("db.t")
        assert [s.commit_identifier for s in table.snapshots() if s.commit_user == "job"] == [1]
        if isinstance(outcome.error, Stopped):
            assert [found for found in table.check() if found.is_fault] == []

    storage = f"change-faults-{next(_names)}"
    runs = run_some(lambda: memory_with(files, storage), lambda faulty: _merged(catalog_over(faulty)), check)
    assert runs > 40


def _removed(catalog: Catalog) -> mg.Snapshot | None:
    return catalog.table("db.t").delete("a > 10", commit_user="job", identifier=1)


def test_a_delete_that_rewrites_files_is_all_or_nothing_whichever_call_goes_wrong() -> None:
    catalog = catalog_over(memory_with({}, f"change-faults-{next(_names)}"))
    catalog.create_database("db")
    options = {"bucket": "1", "write-only": "true", "merge-engine": "aggregation", "fields.a.aggregate-function": "sum"}
    table = catalog.create_table("db.t", {"k": "INT", "a": "INT"}, primary_key=["k"], options=options)
    table.write(_rows(0, 1, 2, 3))
    table.write(_rows(1, 1, 10, 10))
    files, before, after = contents(catalog.env.storage), _rows(1, 2, 12, 13), _rows(1, 2)

    def check(storage: Storage, outcome: Outcome[mg.Snapshot | None]) -> None:
        found = _visible(storage)
        assert found in (before, after)
        if outcome.error is None:
            assert found == after
        elif not isinstance(outcome.error, CommitUnknownError | Stopped):
            assert found == before, f"{outcome.error!r} was raised, and the commit is there"
        again = _removed(catalog_over(storage))
        assert _visible(storage) == after
        assert again is not None
        assert (again.commit_kind, again.rows_deleted) == ("OVERWRITE", 2)
        table = catalog_over(storage).table("db.t")
        assert [s.commit_identifier for s in table.snapshots() if s.commit_user == "job"] == [1]
        if isinstance(outcome.error, Stopped):
            assert [found for found in table.check() if found.is_fault] == []

    storage = f"change-faults-{next(_names)}"
    runs = run_some(lambda: memory_with(files, storage), lambda faulty: _removed(catalog_over(faulty)), check)
    assert runs > 40

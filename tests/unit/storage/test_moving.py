"""Trees that move file by file: who claims a place, and what happens to what is written meanwhile."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

import merganser as mg
from merganser.catalogs.catalog import Catalog
from merganser.errors import AlreadyExistsError, ConflictError, MerganserError, NotFoundError, UnsupportedError
from merganser.storage.memory import MemoryStorage
from merganser.storage.moving import MARK
from tests.kit.builders import WAREHOUSE, catalog_over, contents, memory_with
from tests.kit.faulty import FaultyStorage

_names = itertools.count()
SOURCE, TARGET = f"{WAREHOUSE}/db.db/t", f"{WAREHOUSE}/db.db/u"


class Struck(FaultyStorage):
    """Lets another do something before the call of a verb on a path; `move_tree` copies."""

    def __init__(self, inner: MemoryStorage, verb: str, path: str, other: Callable[[Catalog], object]) -> None:
        super().__init__(inner, copies=True)
        self._where, self._other = (verb, path), other

    def _arrive(self, verb: str, path: str) -> None:  # type: ignore[override]
        if (verb, path) == self._where:
            self._where = ("", "")
            self._other(catalog_over(self.inner))


def _storage() -> MemoryStorage:
    storage = memory_with({}, f"moving-{next(_names)}")
    catalog = catalog_over(storage)
    catalog.create_database("db")
    catalog.create_table("db.t", {"k": "INT"}).write([{"k": 1}])
    return storage


def _keys(table: mg.Table) -> list[int]:
    return sorted(row["k"] for row in table.read().to_pylist())


def test_a_commit_to_the_source_while_it_is_copied_moves_too() -> None:
    storage = _storage()
    struck = Struck(storage, "replace", f"{TARGET}/schema/schema-0", lambda c: c.table("db.t").write([{"k": 2}]))
    catalog_over(struck).rename_table("db.t", "db.u", no_writers=True)
    assert _keys(catalog_over(storage).table("db.u")) == [1, 2]
    assert not contents(storage, SOURCE)
    assert not any(path.endswith(MARK) for path in contents(storage))


def test_commits_to_both_places_are_both_kept() -> None:
    storage = _storage()

    def both(catalog: Catalog) -> None:
        catalog.table("db.t").write([{"k": 2}])
        catalog.table("db.u").write([{"k": 3}])

    struck = Struck(storage, "delete", f"{SOURCE}/schema/schema-0", both)
    with pytest.raises(ConflictError, match="snapshot-2"):
        catalog_over(struck).rename_table("db.t", "db.u", no_writers=True)
    assert _keys(catalog_over(storage).table("db.u")) == [1, 3]
    assert f"{SOURCE}/snapshot/snapshot-2" in contents(storage)


def test_who_drops_a_half_copied_table_stops_the_move_and_the_source_stays() -> None:
    storage = _storage()
    struck = Struck(storage, "replace", f"{TARGET}/schema/schema-0", lambda c: c.drop_table("db.u"))
    with pytest.raises(ConflictError, match="another process removed"):
        catalog_over(struck).rename_table("db.t", "db.u", no_writers=True)
    assert _keys(catalog_over(storage).table("db.t")) == [1]


def test_of_two_movers_to_one_name_one_goes_on() -> None:
    storage = _storage()
    catalog_over(storage).create_table("db.other", {"k": "INT"}).write([{"k": 5}])
    refused: list[MerganserError] = []

    def other(catalog: Catalog) -> None:
        with pytest.raises(AlreadyExistsError) as caught:
            catalog_over(FaultyStorage(catalog.env.storage, copies=True)).rename_table(
                "db.other", "db.u", no_writers=True
            )
        refused.append(caught.value)

    first_copy = next(path for path in contents(storage, SOURCE) if "/schema/" not in path)
    struck = Struck(storage, "read", first_copy, other)
    catalog_over(struck).rename_table("db.t", "db.u", no_writers=True)
    assert refused
    assert _keys(catalog_over(storage).table("db.u")) == [1]
    assert _keys(catalog_over(storage).table("db.other")) == [5]


def test_a_table_that_is_made_where_another_is_moved_to_is_refused_or_stops_the_move() -> None:
    storage = _storage()
    made: list[str] = []

    def make(catalog: Catalog) -> None:
        try:
            catalog.create_table("db.u", {"x": "INT"})
            made.append("made")
        except AlreadyExistsError:
            made.append("refused")

    paths = [("create", f"{TARGET}/schema/{MARK}"), ("list", TARGET), ("read", f"{SOURCE}/snapshot/snapshot-1")]
    for verb, path in paths:
        storage = _storage()
        try:
            catalog_over(Struck(storage, verb, path, make)).rename_table("db.t", "db.u", no_writers=True)
            moved = True
        except AlreadyExistsError:
            moved = False
        assert made[-1] == ("refused" if moved else "made")
        assert _keys(catalog_over(storage).table("db.u" if moved else "db.t")) == [1]
    assert set(made) == {"made", "refused"}


def test_half_a_table_is_not_opened_by_its_path_either() -> None:
    storage = _storage()
    half = {path.replace(SOURCE, TARGET): data for path, data in contents(storage, SOURCE).items()}
    half[f"{TARGET}/schema/schema-1"] = half.pop(f"{TARGET}/schema/schema-0").replace(b'"id": 0,', b'"id": 1,', 1)
    for path, data in (half | {f"{TARGET}/schema/{MARK}": b""}).items():
        storage.replace(path, data)
    catalog = catalog_over(storage)
    assert catalog.list_tables("db") == ["t"]
    with pytest.raises(NotFoundError):
        catalog.table("db.u")
    for work in (lambda: catalog.create_table("db.u", {"k": "INT"}), lambda: catalog.rename_table("db.t", "db.u")):
        with pytest.raises(AlreadyExistsError, match="drop_table"):
            work()
    catalog.drop_table("db.u")
    catalog.rename_table("db.t", "db.u")
    assert _keys(catalog.table("db.u")) == [1]


def test_a_store_that_copies_renames_no_table_that_others_may_write_to() -> None:
    storage = _storage()
    before = contents(storage)
    copying = catalog_over(FaultyStorage(storage, copies=True))
    with pytest.raises(UnsupportedError, match=r"no_writers=True .*catalog\.clone\('db.t', 'db.u'\)"):
        copying.rename_table("db.t", "db.u")
    assert contents(storage) == before
    copying.clone("db.t", "db.u")
    assert copying.table("db.u").read().to_pylist() == copying.table("db.t").read().to_pylist()

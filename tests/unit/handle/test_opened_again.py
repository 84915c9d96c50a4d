"""An open handle and an open process remember where to begin: what others have done since then counts all the same."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable

import pytest

import merganser as mg
from merganser.errors import ConflictError, FormatError, NotFoundError
from merganser.storage.protocol import Storage
from tests.kit.builders import catalog_over, memory_with

_names = itertools.count()
_COLUMNS = {"k": "INT", "v": "STRING"}


@pytest.fixture
def storage() -> Storage:
    return memory_with({}, f"opened-again-{next(_names)}")


@pytest.fixture
def theirs(storage: Storage) -> mg.Catalog:
    """The catalog as another process has it, with a table of two commits."""
    catalog = catalog_over(storage)
    catalog.create_database("d")
    _made(catalog, _COLUMNS)
    for k in (1, 2):
        catalog.table("d.t").write([{"k": k, "v": "a"}])
    return catalog


def _made(catalog: mg.Catalog, columns: dict[str, str]) -> mg.Table:
    return catalog.create_table("d.t", columns, primary_key=["k"], options={"bucket": "1"})


def _made_again(catalog: mg.Catalog) -> None:
    catalog.drop_table("d.t")
    _made(catalog, _COLUMNS).write([{"k": 7, "v": "b"}])


def _written(catalog: mg.Catalog, *keys: int) -> None:
    for k in keys:
        catalog.table("d.t").write([{"k": k, "v": "a"}])


def _expired(catalog: mg.Catalog, *keys: int) -> None:
    _written(catalog, *keys)
    assert len(catalog.table("d.t").expire(retain_max=1, retain_min=1).snapshots) > 1


@pytest.mark.parametrize(
    ("others", "keys"),
    [
        (lambda catalog: None, [1, 2]),
        (lambda catalog: _written(catalog, 3), [1, 2, 3]),
        (lambda catalog: _written(catalog, 3, 4, 5, 6), [1, 2, 3, 4, 5, 6]),
        (lambda catalog: catalog.table("d.t").rollback(1), [1]),
        (lambda catalog: (catalog.table("d.t").rollback(1), _written(catalog, 8, 9)), [1, 8, 9]),
        (
            lambda catalog: (_written(catalog, 3, 4), catalog.table("d.t").expire(retain_max=1, retain_min=1)),
            [1, 2, 3, 4],
        ),
        (_made_again, [7]),
    ],
)
def test_the_first_read_of_a_handle_sees_what_others_did_since_it_was_opened(
    storage: Storage, theirs: mg.Catalog, others: Callable[[mg.Catalog], object], keys: list[int]
) -> None:
    table = catalog_over(storage).table("d.t")
    others(theirs)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert sorted(row["k"] for row in table.read().to_pylist()) == keys


def test_the_first_read_of_a_handle_is_refused_if_the_table_was_made_again_with_other_columns(
    storage: Storage, theirs: mg.Catalog
) -> None:
    table = catalog_over(storage).table("d.t")
    theirs.drop_table("d.t")
    _made(theirs, {"k": "INT", "w": "INT"}).write([{"k": 1, "w": 2}])
    with pytest.raises(ConflictError, match="Open the table again"):
        table.read().to_arrow()


def test_a_process_opens_the_schema_that_a_table_has_now(storage: Storage, theirs: mg.Catalog) -> None:
    ours = catalog_over(storage)
    assert ours.table("d.t").schema.names == ("k", "v")
    theirs.table("d.t").alter([mg.changes.add_column("w", "INT")])
    assert ours.table("d.t").schema.names == ("k", "v", "w")
    theirs.drop_table("d.t")
    with pytest.raises(NotFoundError, match="no table"):
        ours.table("d.t")
    _made(theirs, {"k": "INT", "x": "DATE"})
    assert ours.table("d.t").schema.names == ("k", "x")


def test_a_damaged_schema_is_an_error_though_it_was_read_before(storage: Storage, theirs: mg.Catalog) -> None:
    ours = catalog_over(storage)
    path = ours.table("d.t").definition.paths.schema(0)
    storage.replace(path, b"{")
    with pytest.raises(FormatError, match="schema-0"):
        ours.table("d.t")


def test_a_table_of_a_database_that_is_missing_says_so(storage: Storage, theirs: mg.Catalog) -> None:
    with pytest.raises(NotFoundError, match="there is no database 'other'"):
        catalog_over(storage).table("other.t")

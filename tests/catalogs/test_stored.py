"""Views and functions in statements of `catalog.sql`, over a catalog in a file of SQLite."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import merganser as mg
from merganser.errors import UnsupportedError
from tests.catalogs import stored_cases as c

pytest.importorskip("sqlalchemy")


@pytest.fixture
def catalog(tmp_path: Path) -> mg.Catalog:
    found = mg.catalog(
        f"jdbc:sqlite:{tmp_path / 'catalog.sqlite'}",
        options={"warehouse": str(tmp_path / "warehouse"), "local.sync": "false"},
    )
    for name in c.DATABASES:
        found.create_database(name)
    for statement in c.SETUP:
        found.sql(statement)
    return found


@pytest.mark.parametrize("name", c.CASES)
def test_a_case(catalog: mg.Catalog, name: str) -> None:
    def ask(sql: str) -> list[tuple[Any, ...]]:
        found = catalog.sql(sql)
        return list(zip(*(column.to_pylist() for column in found.columns), strict=True))

    c.run(c.CASES[name], ask)


def test_a_directory_holds_none(tmp_path: Path) -> None:
    catalog = mg.catalog(tmp_path)
    catalog.create_database("default")
    for statement in ("CREATE VIEW v AS SELECT 1 AS a", "CREATE FUNCTION f(x INT) RETURNS INT RETURN x"):
        with pytest.raises(UnsupportedError, match=r"this catalog is a directory.*merganser\.catalog\('jdbc:"):
            catalog.sql(statement)
    assert catalog.sql("SHOW VIEWS").num_rows == catalog.sql("SHOW FUNCTIONS").num_rows == 0
    assert catalog.list_views("default") == catalog.list_functions("default") == []

"""Views and functions in statements of `catalog.sql`, over a catalog in a file of SQLite."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import merganser as mg
from merganser import dbapi
from merganser.cli.commands_catalog import views
from merganser.cli.sql_complete import completions
from merganser.errors import UnsupportedError
from merganser.sql.embedded import setting_of
from merganser.sql.parse import parse
from merganser.sql.query import bind
from merganser.sql.sources import Sources
from merganser.sql.statements import Query
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


def test_conditions_on_views_reach_the_scans_of_tables(catalog: mg.Catalog) -> None:
    catalog.sql("CREATE VIEW v (k, what) AS SELECT id, state FROM orders WHERE amount > 2")
    catalog.sql("CREATE VIEW w AS SELECT k, what FROM v")

    def filters(text: str) -> list[tuple[str, int | None]]:
        (statement,) = parse(text)
        assert isinstance(statement, Query)
        session = catalog._session
        bound = bind(statement.tree, Sources(session.state).source, setting_of(session.state))
        return [(str(reference.where or ""), reference.limit) for reference in bound.references]

    assert filters("SELECT what FROM w WHERE k = 1") == [("amount > 2 AND id = 1", None)]
    assert filters("SELECT what FROM w WHERE w.k = 1 AND what = 'new' LIMIT 1") == [
        ("amount > 2 AND id = 1 AND state = 'new'", None)
    ]
    assert filters("SELECT s.what FROM (SELECT * FROM orders) o JOIN w s ON s.k = o.id WHERE o.id IN (1, 2)") == [
        ("id IN (1, 2)", None),
        ("amount > 2", None),
    ]
    assert filters("SELECT o.id FROM orders o LEFT JOIN w ON w.k = o.id WHERE w.what = 'new'") == [
        ("", None),
        ("amount > 2", None),
    ]


def test_sqlalchemy_sees_views(catalog: mg.Catalog) -> None:
    sa = pytest.importorskip("sqlalchemy")
    catalog.sql("CREATE VIEW v (k COMMENT 'key') COMMENT 'open ones' AS SELECT id FROM orders WHERE state = 'new'")
    engine = sa.create_engine("merganser://", creator=lambda: dbapi.connect(catalog, database="shop"))
    found = sa.inspect(engine)
    assert (found.get_table_names(), found.get_view_names()) == (["orders"], ["v"])
    assert found.has_table("v")
    assert found.get_view_definition("v") == catalog.view("shop.v").sql
    assert found.get_table_comment("v") == {"text": "open ones"}
    assert [(column["name"], column["comment"]) for column in found.get_columns("v")] == [("k", "key")]
    view = sa.Table("v", sa.MetaData(), autoload_with=engine)
    with engine.connect() as connection:
        assert [row.k for row in connection.execute(sa.select(view).where(view.c.k > 1))] == [3]


def test_the_shell_completes_views_and_the_command_line_lists_them(
    catalog: mg.Catalog, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    catalog.sql("CREATE VIEW fresh AS SELECT id FROM orders WHERE state = 'new'")
    assert completions("SELECT * FROM fr", catalog._session)[1] == ["fresh"]
    views("shop", f"jdbc:sqlite:{tmp_path / 'catalog.sqlite'}", [f"warehouse={tmp_path / 'warehouse'}"])
    assert capsys.readouterr().out == "fresh\n"


def test_a_view_of_tables_that_grow_is_no_query_of_a_stream(catalog: mg.Catalog) -> None:
    catalog.sql("CREATE VIEW v AS SELECT id FROM orders")
    with pytest.raises(UnsupportedError, match="it would never end"):
        catalog.sql("SET 'execution.runtime-mode' = 'streaming'; SELECT * FROM v")

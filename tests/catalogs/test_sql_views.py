"""Views and functions in the rows of SQL databases: SQLite, PostgreSQL, MariaDB."""

from __future__ import annotations

import json
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import merganser as mg
from merganser import changes as ch
from merganser.errors import (
    AlreadyExistsError,
    ConflictError,
    FormatError,
    InvalidInputError,
    MerganserError,
    NotFoundError,
)
from tests.catalogs.databases import SqlServer

sa = pytest.importorskip("sqlalchemy")
FILE_FUNCTION = {
    "type": "file",
    "fileResources": [{"resourceType": "jar", "uri": "/udf.jar"}],
    "language": "JAVA",
    "className": "shop.Gross",
    "functionName": "gross",
}


def opened(database: SqlServer, tmp_path: Path, **more: str) -> mg.Catalog:
    options = {"warehouse": str(tmp_path / "wh"), "local.sync": "false", **database.options}
    return mg.catalog(
        database.uri,
        metastore="jdbc",
        options={**options, **{key.replace("_", "-"): text for key, text in more.items()}},
    )


@pytest.fixture
def catalog(database: SqlServer, tmp_path: Path) -> mg.Catalog:
    found = opened(database, tmp_path)
    for name in ("shop", "other"):
        found.create_database(name)
    found.create_table("shop.orders", "id BIGINT, state STRING")
    return found


def rows(catalog: mg.Catalog, table: str) -> list[tuple[Any, ...]]:
    """Return the rows of a table of the database, as any client of it sees them."""
    with sa.create_engine(catalog.metastore.rows.url).connect() as connection:  # type: ignore[attr-defined]
        return [tuple(row) for row in connection.execute(sa.text(f"SELECT * FROM {table}"))]


def run(catalog: mg.Catalog, statement: str) -> None:
    with sa.create_engine(catalog.metastore.rows.url).begin() as connection:  # type: ignore[attr-defined]
        connection.execute(sa.text(statement))


def test_a_view_is_a_row_as_other_engines_have_it(catalog: mg.Catalog) -> None:
    made = catalog.create_view(
        "shop.fresh", "SELECT id AS `né` FROM orders", comment="it's", options={"team": "ours", "n": 1}
    )
    ((key, database, name, text),) = rows(catalog, "paimon_views")
    assert (key, database, name) == ("jdbc", "shop", "fresh")
    assert json.loads(text) == {
        "fields": [{"id": 0, "name": "né", "type": "BIGINT"}],
        "query": "SELECT id AS `né` FROM `shop`.orders",
        "dialects": {"spark": "SELECT id AS `né` FROM `shop`.orders"},
        "comment": "it's",
        "options": {"team": "ours", "n": "1"},
    }
    assert catalog.view("shop.fresh") == made
    assert pickle.loads(pickle.dumps(catalog)).list_views("shop") == ["fresh"]


def test_a_view_of_another_engine_is_read(catalog: mg.Catalog) -> None:
    """Its dialect for Spark comes before its query, and fields that we do not know are left out."""
    catalog.table("shop.orders").write([{"id": 1, "state": "new"}])  # type: ignore[union-attr]
    view = {
        "fields": [{"id": 7, "name": "key", "type": "BIGINT NOT NULL", "description": "the key"}],
        "query": "SELECT JSON_VALUE(`$`, 'lax $.a') FROM nowhere",
        "dialects": {"flink": "SELECT 1", "spark": "SELECT id FROM orders"},
        "options": {"x": "y"},
        "later": [1],
    }
    text = json.dumps(view).replace("'", "''").replace(":", "\\:")
    run(catalog, f"INSERT INTO paimon_views VALUES ('jdbc', 'shop', 'theirs', '{text}')")
    found = catalog.view("shop.theirs")
    assert (found.comment, found.options, found.sql) == (None, {"x": "y"}, "SELECT id FROM orders")
    assert catalog.sql("SELECT `key` FROM shop.theirs").to_pylist() == [{"key": 1}]
    catalog.alter_view("shop.theirs", [ch.drop_dialect("spark")])
    with pytest.raises(MerganserError, match=r"cannot read the view 'shop\.theirs'"):
        catalog.sql("SELECT * FROM shop.theirs")
    run(catalog, "UPDATE paimon_views SET view_schema = '[]' WHERE view_name = 'theirs'")
    with pytest.raises(FormatError, match=r"'shop\.theirs'"):
        catalog.view("shop.theirs")


def test_names_of_tables_and_views_differ(catalog: mg.Catalog) -> None:
    catalog.create_view("shop.v", "SELECT 1 AS a")
    for call in (
        lambda: catalog.create_table("shop.v", "id INT"),
        lambda: catalog.create_view("shop.orders", "SELECT 1 AS a"),
        lambda: catalog.create_view("shop.orders", "SELECT 1 AS a", replace=True),
        lambda: catalog.create_view("shop.v", "SELECT 1 AS a"),
        lambda: catalog.rename_table("shop.orders", "shop.v"),
        lambda: catalog.rename_view("shop.v", "shop.orders"),
        lambda: catalog.clone("shop.orders", "shop.v"),
    ):
        with pytest.raises(AlreadyExistsError):
            call()
    assert (catalog.list_tables("shop"), catalog.list_views("shop")) == (["orders"], ["v"])
    assert catalog.create_view("shop.v", "SELECT 2 AS b", if_not_exists=True).query == "SELECT 1 AS a"
    assert catalog.create_view("shop.v", "SELECT 2 AS b", replace=True).query == "SELECT 2 AS b"
    catalog.rename_view("shop.v", "other.w")
    assert (catalog.list_views("shop"), catalog.list_views("other")) == ([], ["w"])
    with pytest.raises(NotFoundError, match="no view"):
        catalog.rename_view("shop.v", "other.x")
    with pytest.raises(NotFoundError, match="database 'nowhere'"):
        catalog.rename_view("other.w", "nowhere.w")
    with pytest.raises(NotFoundError, match="it is a view"):
        catalog.table("other.w")
    catalog.create_table("shop.v", "id INT")


def test_a_name_that_a_table_and_a_view_want_goes_to_one(
    catalog: mg.Catalog, database: SqlServer, tmp_path: Path
) -> None:
    for attempt in range(6):
        name, failed = f"shop.race_{attempt}", []
        both = threading.Barrier(3)

        def attempted(work: Callable[[mg.Catalog], Any], own: mg.Catalog, lost: list[str] = failed) -> None:
            both.wait()  # noqa: B023 - the thread ends within the round
            try:
                work(own)
            except (AlreadyExistsError, ConflictError) as error:
                lost.append(type(error).__name__)

        works: list[Callable[[mg.Catalog], Any]] = [
            lambda own, name=name: own.create_table(name, "id INT"),
            lambda own, name=name: own.create_view(name, "SELECT 1 AS a", columns="a INT"),
            lambda own, name=name: own.create_view(name, "SELECT 2 AS a", columns="a INT"),
        ]
        threads = [threading.Thread(target=attempted, args=(work, opened(database, tmp_path))) for work in works]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        own = name.partition(".")[2]
        found = [catalog.list_tables("shop").count(own), catalog.list_views("shop").count(own)]
        assert sum(found) == 1, (found, failed)
        assert len(failed) == 2
        assert (tmp_path / "wh" / "shop.db" / own / "schema").exists() == bool(found[0])


def test_alters_of_two_clients_are_both_there(catalog: mg.Catalog, database: SqlServer, tmp_path: Path) -> None:
    catalog.create_view("shop.v", "SELECT 1 AS a")

    def alter(number: int) -> None:
        opened(database, tmp_path).alter_view("shop.v", [ch.set_option(f"k{number}", str(number))])

    threads = [threading.Thread(target=alter, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert catalog.view("shop.v").options == {f"k{number}": str(number) for number in range(6)}


def test_what_alters_a_view(catalog: mg.Catalog) -> None:
    catalog.create_view("shop.v", "SELECT 1 AS a")
    altered = catalog.alter_view(
        "shop.v",
        [
            ch.set_comment("one"),
            ch.set_option("a", "b"),
            ch.set_option("c", "d"),
            ch.remove_option("a"),
            ch.add_dialect("flink", "SELECT 1"),
            ch.set_dialect("flink", "SELECT 2"),
        ],
    )
    assert catalog.view("shop.v") == altered
    assert (altered.comment, altered.options) == ("one", {"c": "d"})
    assert altered.dialects == {"spark": "SELECT 1 AS a", "flink": "SELECT 2"}
    for change, error in (
        (ch.add_dialect("flink", "SELECT 3"), AlreadyExistsError),
        (ch.set_dialect("hive", "SELECT 3"), NotFoundError),
        (ch.drop_dialect("hive"), NotFoundError),
        (ch.add_dialect("hive", 3), InvalidInputError),
        (ch.add_column("a", "INT"), InvalidInputError),
    ):
        with pytest.raises(error, match=r"(?i)nothing was changed"):
            catalog.alter_view("shop.v", [ch.set_comment("two"), change])
    assert catalog.view("shop.v") == altered
    catalog.alter_view("shop.v", [ch.drop_dialect("flink"), ch.set_comment(None)])
    assert (catalog.view("shop.v").comment, list(catalog.view("shop.v").dialects)) == (None, ["spark"])


def test_columns_that_are_given(catalog: mg.Catalog) -> None:
    named = catalog.create_view("shop.a", "SELECT id, state FROM orders", columns=["k", "s"])
    assert [(field.name, str(field.type)) for field in named.fields] == [("k", "BIGINT"), ("s", "STRING")]
    typed = catalog.create_view("shop.b", "whatever Flink says", columns="k BIGINT, s STRING", dialects={"flink": "x"})
    assert ([field.name for field in typed.fields], typed.dialects) == (["k", "s"], {"flink": "x"})
    with pytest.raises(InvalidInputError, match="its query is not understood here"):
        catalog.sql("SELECT * FROM shop.b")
    for query, columns in (("SELECT id FROM orders", ["a", "b"]), ("SELECT nothing FROM orders", None), (3, None)):
        with pytest.raises(InvalidInputError):
            catalog.create_view("shop.c", query, columns=columns)  # type: ignore[arg-type]
    with pytest.raises(NotFoundError, match="nothing"):
        catalog.create_view("shop.c", "SELECT * FROM nothing")
    with pytest.raises(InvalidInputError, match="one query"):
        catalog.create_view("shop.c", "SELECT 1; SELECT 2")
    assert catalog.list_views("shop") == ["a", "b"]


def test_databases_have_views_and_functions(catalog: mg.Catalog, database: SqlServer, tmp_path: Path) -> None:
    catalog.create_view("other.v", "SELECT 1 AS a")
    with pytest.raises(InvalidInputError, match="it has 1 view"):
        catalog.drop_database("other")
    catalog.drop_view("other.v")
    catalog.create_function("other.f", "x INT", "INT", "x + 1")
    with pytest.raises(InvalidInputError, match="it has 1 function"):
        catalog.drop_database("other")
    catalog.create_view("other.v", "SELECT 1 AS a")
    beside = opened(database, tmp_path / "beside", catalog_key="beside")
    beside.create_database("other")
    assert beside.list_views("other") == beside.list_functions("other") == []
    beside.create_view("other.v", "SELECT 2 AS b")
    catalog.drop_database("other", cascade=True)
    assert catalog.list_databases() == ["shop"]
    assert beside.view("other.v").query == "SELECT 2 AS b"
    run(catalog, "INSERT INTO paimon_views VALUES ('jdbc', 'theirs', 'v', '{}')")
    assert catalog.list_databases() == ["shop", "theirs"]


def test_tables_of_before_are_added(catalog: mg.Catalog, database: SqlServer, tmp_path: Path) -> None:
    for table in ("paimon_views", "merganser_functions"):
        run(catalog, f"DROP TABLE {table}")
    again = opened(database, tmp_path)
    assert again.list_tables("shop") == ["orders"]
    again.create_view("shop.v", "SELECT id FROM orders")
    again.create_function("shop.f", "", "INT", "1")
    assert (again.list_views("shop"), again.list_functions("shop")) == (["v"], ["f"])


def test_names_are_taken_as_they_are(catalog: mg.Catalog) -> None:
    for name in ("v", "V", "ä b"):
        catalog.create_view(f"shop.{name}", f"SELECT '{name}' AS a")
    assert catalog.list_views("shop") == ["V", "v", "ä b"]
    assert catalog.sql("SELECT a FROM shop.V").to_pylist() == [{"a": "V"}]
    catalog.drop_view("shop.V")
    assert catalog.list_views("shop") == ["v", "ä b"]
    for name in ("shop.v$files", "v", "shop..v", "shop.a/b"):
        with pytest.raises(InvalidInputError):
            catalog.create_view(name, "SELECT 1 AS a")


def test_functions_are_kept_and_called(catalog: mg.Catalog) -> None:
    made = catalog.create_function("shop.f", "a INT, b INT", "BIGINT", "a * b", comment="product", options={"o": "p"})
    assert catalog.function("shop.f") == made
    assert catalog.sql("SELECT shop.f(3, 4) AS n").to_pylist() == [{"n": 12}]
    ((_, _, name, text),) = rows(catalog, "merganser_functions")
    assert (name, json.loads(text)) == (
        "f",
        {
            "name": "f",
            "inputParams": [{"id": 0, "name": "a", "type": "INT"}, {"id": 1, "name": "b", "type": "INT"}],
            "returnParams": [{"id": 0, "name": "f", "type": "BIGINT"}],
            "deterministic": True,
            "definitions": {"spark": {"type": "sql", "definition": "a * b"}},
            "comment": "product",
            "options": {"o": "p"},
        },
    )
    with pytest.raises(AlreadyExistsError):
        catalog.create_function("shop.f", "a INT", "INT", "a")
    assert catalog.create_function("shop.f", "a INT", "INT", "a", if_not_exists=True) == made
    catalog.create_function("shop.f", "a INT", None, "a / 2", replace=True)
    assert str(catalog.function("shop.f").returns[0].type) == "DOUBLE"  # type: ignore[index]
    catalog.alter_function("shop.f", [ch.add_dialect("flink", FILE_FUNCTION), ch.set_dialect("spark", "a + 1")])
    assert catalog.sql("SELECT shop.f(3) AS n").to_pylist() == [{"n": 4.0}]
    catalog.drop_function("shop.f")
    with pytest.raises(NotFoundError):
        catalog.drop_function("shop.f")
    catalog.drop_function("shop.f", if_exists=True)


def test_functions_of_other_engines_are_kept_and_not_called(catalog: mg.Catalog) -> None:
    code = {"type": "lambda", "definition": "(Integer x) -> x + 1", "language": "JAVA"}
    made = catalog.create_function("shop.g", "x INT", "INT", {"flink": FILE_FUNCTION, "spark": code})
    assert catalog.function("shop.g") == made
    assert catalog.function("shop.g").definitions == {"flink": FILE_FUNCTION, "spark": code}
    with pytest.raises(MerganserError, match=r"'flink' \(file\), 'spark' \(lambda\)"):
        catalog.sql("SELECT shop.g(1)")
    told = [text for (text,) in catalog.sql("DESCRIBE FUNCTION EXTENDED shop.g").to_pandas().itertuples(index=False)]
    assert "com" not in told[0]
    assert any("shop.Gross" in text for text in told)
    for definition in (3, {"spark": 3}, {"spark": {"definition": "x"}}):
        with pytest.raises(InvalidInputError):
            catalog.create_function("shop.h", "x INT", "INT", definition)  # type: ignore[arg-type]

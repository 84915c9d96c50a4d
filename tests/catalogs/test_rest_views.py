"""Views and functions through a server: what clients do, what it answers, and what happens if replies are lost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import merganser as mg
from merganser import changes as ch
from merganser import errors as e
from tests.catalogs import stored_cases
from tests.catalogs.rest import NOTHING, Answer, Proxy, Server

pytest.importorskip("sqlalchemy")
pytestmark = pytest.mark.xdist_group("serve")
READER = "a-token-of-clients-that-read"
V, F = "/v1/databases/shop/views", "/v1/databases/shop/functions"
SCHEMA = {
    "fields": [{"id": 0, "name": "id", "type": "BIGINT", "description": "key"}],
    "query": "SELECT id FROM shop.orders",
    "dialects": {"flink": "SELECT 1"},
    "comment": "all",
    "options": {"a": "b"},
}
CODE = {"type": "lambda", "definition": "(Integer x) -> x + 1", "language": "JAVA"}
FUNCTION = {
    "name": "f",
    "inputParams": [{"id": 0, "name": "x", "type": "INT"}],
    "returnParams": [{"id": 0, "name": "y", "type": "INT"}],
    "deterministic": True,
    "definitions": {"spark": {"type": "sql", "definition": "x + 1"}, "flink": CODE},
    "comment": "adds",
    "options": {"o": "p"},
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("rest")
    (folder / "warehouse").mkdir()
    address, files = f"jdbc:sqlite:{folder}/catalog.sqlite", f"{folder}/warehouse"
    made = Server(folder, warehouse=address, more=["--store", f"warehouse={files}"], read_token=READER)
    yield made
    assert made.stop() == 0
    assert made.log.read_text() == ""


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    made = Proxy(server.port)
    yield made
    made.close()


@pytest.fixture
def catalog(server: Server, proxy: Proxy) -> Iterator[mg.Catalog]:
    """A client that asks through the proxy; all databases are gone after the test."""
    found = server.catalog(proxy.port)
    for name in stored_cases.DATABASES:
        found.create_database(name)
    for statement in stored_cases.SETUP:
        found.sql(statement)
    yield found
    proxy.before = lambda _method, _path: None
    proxy.after = lambda _method, _path, answer: answer
    for name in found.list_databases():
        found.drop_database(name, cascade=True)


def post(server: Server, path: str, **body: Any) -> Any:
    return server.ask(path, "POST", body=json.dumps(body))


def error_of(reply: Any) -> tuple[int, str | None, str | None]:
    assert reply.json["message"]
    return reply.status, reply.json["resourceType"], reply.json["resourceName"]


@pytest.mark.campaign(1 / 8)
@pytest.mark.parametrize("name", stored_cases.CASES)
def test_a_case(catalog: mg.Catalog, name: str) -> None:
    def ask(sql: str) -> list[tuple[Any, ...]]:
        found = catalog.sql(sql)
        return list(zip(*(column.to_pylist() for column in found.columns), strict=True))

    stored_cases.run(stored_cases.CASES[name], ask)


def test_views_as_other_clients_ask_for_them(server: Server, catalog: mg.Catalog) -> None:
    identifier = {"database": "shop", "object": "v"}
    assert post(server, V, identifier=identifier, schema=SCHEMA).status == 200
    found = server.ask(f"{V}/v").json
    assert (found["name"], found["schema"]) == ("v", SCHEMA)
    assert found["id"] == server.ask(f"{V}/v").json["id"]
    assert catalog.view("shop.v").fields[0].description == "key"
    for name in ("w1", "w2", "x_1"):
        catalog.create_view(f"shop.{name}", "SELECT 1 AS a")
    page = server.ask(V, maxResults=2).json
    assert page == {"views": ["v", "w1"], "nextPageToken": "w1"}
    assert server.ask(V, maxResults=2, pageToken="w1").json == {"views": ["w2", "x_1"], "nextPageToken": None}
    assert server.ask(V, viewNamePattern="w%").json["views"] == ["w1", "w2"]
    details = server.ask("/v1/databases/shop/view-details", viewNamePattern="v").json["viewDetails"]
    assert details == [found]
    everywhere = server.ask("/v1/views", databaseNamePattern="sh%", viewNamePattern="x\\_%").json["views"]
    assert everywhere == [{"database": "shop", "object": "x_1"}]
    changes = [
        {"action": "addDialect", "dialect": "hive", "query": "SELECT 2"},
        {"action": "updateDialect", "dialect": "flink", "query": "SELECT 3"},
        {"action": "setOption", "key": "c", "value": "d"},
        {"action": "removeOption", "key": "a"},
        {"action": "updateComment", "comment": None},
    ]
    assert post(server, f"{V}/v", changes=changes).status == 200
    altered = server.ask(f"{V}/v").json["schema"]
    assert (altered["dialects"], altered["options"]) == ({"flink": "SELECT 3", "hive": "SELECT 2"}, {"c": "d"})
    assert "comment" not in altered
    assert error_of(post(server, f"{V}/v", changes=changes[:1])) == (409, "DIALECT", "hive")
    assert error_of(post(server, f"{V}/v", changes=[{"action": "dropDialect", "dialect": "x"}])) == (
        404,
        "DIALECT",
        "x",
    )
    assert error_of(post(server, f"{V}/v", changes=[{"action": "explode"}]))[0] == 400
    assert error_of(post(server, f"{V}/v", changes=[3]))[0] == 400
    assert error_of(post(server, V, identifier=identifier, schema=SCHEMA)) == (409, "VIEW", "v")
    assert error_of(post(server, V, identifier={**identifier, "object": "orders"}, schema=SCHEMA))[0] == 409
    assert error_of(post(server, V, identifier={**identifier, "object": "y"}, schema={"query": 1}))[0] == 400
    assert error_of(server.ask(f"{V}/none")) == (404, "VIEW", "none")
    assert error_of(server.ask(f"{V}/none", "DELETE")) == (404, "VIEW", "none")
    assert error_of(server.ask("/v1/databases/none/views")) == (404, "DATABASE", "none")
    there = {"source": identifier, "destination": {"database": "other", "object": "moved"}}
    assert post(server, "/v1/views/rename", **there).status == 200
    assert error_of(post(server, "/v1/views/rename", **there)) == (404, "VIEW", "v")
    taken = {"source": {"database": "shop", "object": "w1"}, "destination": {"database": "shop", "object": "w2"}}
    assert error_of(post(server, "/v1/views/rename", **taken)) == (409, "VIEW", "w2")
    assert server.ask("/v1/databases/other/views/moved", "DELETE").status == 200
    assert catalog.list_views("other") == []


def test_functions_as_other_clients_ask_for_them(server: Server, catalog: mg.Catalog) -> None:
    assert post(server, F, **FUNCTION).status == 200
    found = server.ask(f"{F}/f").json
    assert {key: found[key] for key in FUNCTION} == FUNCTION
    assert catalog.sql("SELECT shop.f(41) AS n").to_pylist() == [{"n": 42}]
    assert server.ask(F, functionNamePattern="f%").json == {"functions": ["f"], "nextPageToken": None}
    assert server.ask("/v1/databases/shop/function-details").json["functionDetails"] == [found]
    assert server.ask("/v1/functions").json["functions"] == [{"database": "shop", "object": "f"}]
    changes = [
        {"action": "updateDefinition", "name": "spark", "definition": {"type": "sql", "definition": "x + 2"}},
        {"action": "dropDefinition", "name": "flink"},
        {"action": "addDefinition", "name": "hive", "definition": CODE},
        {"action": "setOption", "key": "c", "value": "d"},
        {"action": "updateComment", "comment": "two"},
    ]
    assert post(server, f"{F}/f", changes=changes).status == 200
    altered = catalog.function("shop.f")
    assert (altered.comment, altered.options, altered.sql) == ("two", {"o": "p", "c": "d"}, "x + 2")
    assert altered.definitions["hive"] == CODE
    assert error_of(post(server, f"{F}/f", changes=changes[2:3])) == (409, "DEFINITION", "hive")
    assert error_of(post(server, F, **FUNCTION)) == (409, "FUNCTION", "f")
    assert error_of(post(server, F, **{**FUNCTION, "name": "a.b"}))[0] == 400
    assert error_of(post(server, F, **{**FUNCTION, "name": "g", "definitions": {"spark": 3}}))[0] == 400
    assert error_of(server.ask(f"{F}/none")) == (404, "FUNCTION", "none")
    assert server.ask(f"{F}/f", "DELETE").status == 200
    assert error_of(server.ask(f"{F}/f", "DELETE")) == (404, "FUNCTION", "f")


def test_clients_alter_what_they_hold(catalog: mg.Catalog, server: Server) -> None:
    made = catalog.create_view("shop.v", "SELECT id FROM orders", comment="x", options={"a": "b"})
    assert catalog.view("shop.v") == made
    changes = [ch.add_dialect("flink", "SELECT 1"), ch.remove_option("a"), ch.set_comment(None), ch.set_option("c", 1)]
    assert catalog.alter_view("shop.v", changes) == catalog.view("shop.v")
    function = catalog.create_function("shop.f", "x INT", "INT", "x + 1")
    assert catalog.function("shop.f") == function
    altered = catalog.alter_function("shop.f", [ch.set_dialect("spark", "x + 2"), ch.add_dialect("flink", CODE)])
    assert catalog.function("shop.f") == altered
    for number in range(7):
        catalog.create_view(f"shop.v{number}", "SELECT 1 AS a")
    assert catalog.list_views("shop") == ["v", *(f"v{number}" for number in range(7))]


def test_a_reader_lists_and_changes_nothing(catalog: mg.Catalog, server: Server) -> None:
    catalog.create_view("shop.v", "SELECT id FROM orders")
    catalog.create_function("shop.f", "x INT", "INT", "x")
    reader = server.catalog(token=READER)
    assert reader.sql("SELECT max(shop.f(CAST(id AS INT))) AS n FROM shop.v").to_pylist() == [{"n": 3}]
    for call in (
        lambda: reader.create_view("shop.w", "SELECT 1 AS a"),
        lambda: reader.drop_view("shop.v"),
        lambda: reader.rename_view("shop.v", "shop.w"),
        lambda: reader.alter_view("shop.v", [ch.set_comment("x")]),
        lambda: reader.create_function("shop.g", "", "INT", "1"),
        lambda: reader.drop_function("shop.f"),
    ):
        with pytest.raises(e.StorageError, match=r"only reads\. Nothing was changed"):
            call()
    assert (reader.list_views("shop"), reader.list_functions("shop")) == (["v"], ["f"])


def test_a_view_whose_reply_is_lost_is_there_once(catalog: mg.Catalog, proxy: Proxy) -> None:
    def lost(method: str, path: str, answer: Answer) -> Answer:
        return NOTHING if method == "POST" and path.endswith("/views") else answer

    proxy.after = lost
    made = catalog.create_view("shop.v", "SELECT id FROM orders")
    assert catalog.view("shop.v") == made

    def refused(method: str, path: str) -> Answer | None:
        return NOTHING if method == "POST" and path.endswith("/views") else None

    proxy.before = refused
    with pytest.raises(e.CommitUnknownError, match=r"whether view 'shop\.w' was created"):
        catalog.create_view("shop.w", "SELECT id FROM orders")


def test_a_replacement_that_fails_leaves_the_old_view(catalog: mg.Catalog, proxy: Proxy) -> None:
    old = catalog.create_view("shop.v", "SELECT id FROM orders")
    failures = iter([(400, {}, b'{"message": "no", "code": 400}')])

    def refused(method: str, path: str) -> Answer | None:
        return next(failures, None) if method == "POST" and path.endswith("/views") else None

    proxy.before = refused
    with pytest.raises(e.InvalidInputError):
        catalog.create_view("shop.v", "SELECT 1 AS a", replace=True)
    assert catalog.view("shop.v") == old


def test_a_server_of_a_directory_holds_none(tmp_path: Path) -> None:
    server = Server(tmp_path)
    catalog = server.catalog()
    catalog.create_database("shop")
    assert server.ask(V).json == {"views": [], "nextPageToken": None}
    assert server.ask("/v1/functions").json["functions"] == []
    assert catalog.list_views("shop") == catalog.list_functions("shop") == []
    with pytest.raises(e.UnsupportedError, match="this catalog is a directory"):
        catalog.create_view("shop.v", "SELECT 1 AS a")
    assert error_of(server.ask(f"{V}/v")) == (404, "VIEW", "v")
    assert server.stop() == 0

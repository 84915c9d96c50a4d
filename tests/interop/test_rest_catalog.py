"""The server of the REST catalog with the client of pypaimon, beside writers that use the warehouse at once."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import merganser as mg
from merganser.meta.seal import JSON_SEAL
from tests.catalogs.signed_requests import signed_by_us, signed_requests
from tests.unit.serve.serving import TOKEN, Serving

from .peers import Peer, PeerError

pytestmark = pytest.mark.peers
FIELDS = [("id", "BIGINT NOT NULL"), ("state", "STRING"), ("day", "STRING NOT NULL")]


FUNCTION = {
    "name": "f",
    "inputParams": [{"id": 0, "name": "x", "type": "INT"}],
    "returnParams": [{"id": 0, "name": "y", "type": "INT"}],
    "deterministic": True,
    "definitions": {
        "spark": {"type": "sql", "definition": "x + 1"},
        "flink": {
            "type": "file",
            "fileResources": [{"resourceType": "jar", "uri": "/udf.jar"}],
            "language": "JAVA",
            "className": "shop.F",
            "functionName": "f",
        },
    },
    "comment": "adds",
    "options": {"o": "p"},
}


class Shop:
    """A server, the options with which pypaimon opens it, and the same catalog without a server."""

    def __init__(self, folder: Path, more: Sequence[str] = ()) -> None:
        (folder / "warehouse").mkdir()
        self.catalog = mg.catalog(folder / "warehouse", options={"local.sync": "false"})
        options = ("--store", "local.sync=false", *more)
        self.server = Serving(folder / "warehouse", *options, token=TOKEN, command="serve-catalog")
        self.rest = self.options(TOKEN)

    def options(self, token: str) -> str:
        return json.dumps({
            "metastore": "rest",
            "uri": f"http://127.0.0.1:{self.server.port}",
            "warehouse": "warehouse",
            "token.provider": "bear",
            "token": token,
        })  # fmt: skip


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path)
    yield made
    assert made.server.stop() == 0
    assert made.server.log.read_text() == ""


def rows(*ids: int, day: str = "x") -> pa.Table:
    return pa.table({"id": ids, "state": [str(each) for each in ids], "day": [day] * len(ids)})


def test_a_client_of_paimon_shares_tables_with_writers_of_files(shop: Shop, pypaimon: Peer) -> None:
    keys = {"primary_key": ["id", "day"], "partition_by": ["day"], "options": {"bucket": "1"}}
    pypaimon.create_table(shop.rest, "shop.orders", FIELDS, **keys)
    table = shop.catalog.table("shop.orders")
    pypaimon.write(shop.rest, "shop.orders", rows(1, 2))
    assert JSON_SEAL in Path(table.path, "snapshot", "snapshot-1").read_text()  # the server made it, not the client
    table.write(rows(3, day="y"))
    pypaimon.write(shop.rest, "shop.orders", rows(4, day="y"))
    expected = [(1, "x"), (2, "x"), (3, "y"), (4, "y")]
    for found in (table.read().to_arrow(), pypaimon.read(shop.rest, "shop.orders")):
        assert sorted(zip(found["id"].to_pylist(), found["day"].to_pylist(), strict=True)) == expected
    counted = pypaimon.request("catalog", warehouse=shop.rest, call="load_snapshot", arguments=["shop.orders"])
    assert counted["record_count"] == 4
    parts = pypaimon.request("catalog", warehouse=shop.rest, call="list_partitions_paged", arguments=["shop.orders"])
    assert [(each["spec"], each["record_count"]) for each in parts["elements"]] == [
        ({"day": "x"}, 2),
        ({"day": "y"}, 2),
    ]

    changes = [["add_column", "note", "STRING"], ["rename_column", "state", "status"]]
    pypaimon.request("alter", warehouse=shop.rest, table="shop.orders", changes=changes)
    assert shop.catalog.table("shop.orders").schema.names == ("id", "status", "day", "note")
    for call, arguments, result in (
        ("list_databases", [], ["shop"]),
        ("list_tables", ["shop"], ["orders"]),
        ("create_tag", ["shop.orders", "t", 1], None),
        ("create_branch", ["shop.orders", "b", "t"], None),
        ("list_branches", ["shop.orders"], ["b"]),
        ("drop_branch", ["shop.orders", "b"], None),
        ("rename_table", ["shop.orders", "shop.sales"], None),
        ("list_tables", ["shop"], ["sales"]),
        ("drop_table", ["shop.sales"], None),
        ("drop_database", ["shop"], None),
        ("list_databases", [], []),
    ):
        assert pypaimon.request("catalog", warehouse=shop.rest, call=call, arguments=arguments) == result


def test_its_errors_are_those_of_the_client(shop: Shop, pypaimon: Peer) -> None:
    def refused(options: str, call: str, *arguments: object) -> str:
        with pytest.raises(PeerError) as caught:
            pypaimon.request("catalog", warehouse=options, call=call, arguments=arguments)
        return str(caught.value)

    pypaimon.create_table(shop.rest, "shop.orders", FIELDS)
    assert "TableNotExistException" in refused(shop.rest, "get_table", "shop.none")
    assert "DatabaseNotExistException" in refused(shop.rest, "list_tables", "none")
    assert "DatabaseAlreadyExistException" in refused(shop.rest, "create_database", "shop", False, {})
    assert "TagNotExistException" in refused(shop.rest, "get_tag", "shop.orders", "none")
    assert "NotAuthorizedException" in refused(shop.options("another-token-of-characters"), "list_databases")
    with pytest.raises(PeerError, match="TableAlreadyExistException"):
        pypaimon.create_table(shop.rest, "shop.orders", FIELDS)


def test_rows_of_writers_on_all_ways_are_there_once(shop: Shop, pypaimon: Peer) -> None:
    pypaimon.create_table(shop.rest, "shop.orders", FIELDS)
    table = shop.catalog.table("shop.orders")
    options = {"warehouse": "warehouse", "token.provider": "bear", "token": TOKEN, "local.sync": "false"}
    remote = mg.catalog(f"http://127.0.0.1:{shop.server.port}", options=options).table("shop.orders")
    ours, theirs = 12, 6
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(lambda: [(table, remote)[number % 2].write(rows(number)) for number in range(ours)])
        for number in range(theirs):
            pypaimon.write(shop.rest, "shop.orders", rows(1000 + number))
        done.result()
    expected = [*range(ours), *range(1000, 1000 + theirs)]
    assert sorted(remote.read().to_arrow()["id"].to_pylist()) == expected
    assert sorted(pypaimon.read(shop.rest, "shop.orders")["id"].to_pylist()) == expected


def test_functions_are_those_of_a_client_of_paimon(tmp_path: Path, pypaimon: Peer) -> None:
    """pypaimon knows functions, and no views."""
    pytest.importorskip("sqlalchemy")
    address, files = f"jdbc:sqlite:{tmp_path}/catalog.sqlite", f"{tmp_path}/warehouse"
    shop = Shop(tmp_path, ["-w", address, "--store", f"warehouse={files}"])
    own = mg.catalog(address, options={"warehouse": files, "local.sync": "false"})
    own.create_database("shop")

    def ask(call: str, name: str, given: object = None) -> Any:
        return pypaimon.request("function", warehouse=shop.rest, call=call, name=name, given=given)

    ask("create", "shop.f", FUNCTION)
    assert own.function("shop.f").to_json() == FUNCTION
    assert own.sql("SELECT shop.f(1) AS n").to_pylist() == [{"n": 2}]
    assert ask("get", "shop.f") == FUNCTION
    ours = own.create_function("shop.g", "a STRING, b INT", "STRING", "concat(a, b)")
    assert ask("get", "shop.g") == {**ours.to_json(), "definitions": dict(ours.definitions)}
    changes = [
        {"action": "updateDefinition", "name": "spark", "definition": {"type": "sql", "definition": "x + 2"}},
        {"action": "dropDefinition", "name": "flink"},
        {"action": "updateComment", "comment": None},
        {"action": "removeOption", "key": "o"},
    ]
    ask("alter", "shop.f", changes)
    assert own.sql("SELECT shop.f(1) AS n").to_pylist() == [{"n": 3}]
    assert (own.function("shop.f").comment, own.function("shop.f").options) == (None, {})
    assert ask("list", "shop") == {
        "names": ["f", "g"],
        "first": [["f"], "f"],
        "details": ["shop.f", "shop.g"],
        "everywhere": ["shop.f", "shop.g"],
    }
    for call, name, given in (
        ("create", "shop.f", FUNCTION),
        ("get", "shop.none", None),
        ("alter", "shop.f", changes[1:2]),
        ("list", "none", None),
    ):
        with pytest.raises(PeerError, match=r"(?i)exist"):
            ask(call, name, given)
    ask("drop", "shop.f")
    assert own.list_functions("shop") == ["g"]
    assert shop.server.stop() == 0


def test_signatures_are_those_of_the_client(pypaimon: Peer) -> None:
    """Of parameters too, but for characters that it does not escape as Java does."""
    for request in signed_requests():
        if request["algorithm"] == "openapi" or all(map(str.isalnum, request["query"].values())):
            assert signed_by_us(request) == pypaimon.request("sign", **request)

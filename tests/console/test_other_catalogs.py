"""The console of catalogs that others share: names in an SQL database, and a REST server that has them."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlencode

import pytest

import merganser as mg
from tests.catalogs.rest import Server
from tests.unit.serve.serving import TOKEN, Serving

PATHS = (
    "/", "/sql", "/t/shop.orders", "/t/shop.orders/data", "/t/shop.orders/key", "/t/shop.orders/changes",
    "/t/shop.orders/commits", "/t/shop.orders/tree", "/t/shop.orders/upkeep", "/t/shop.orders/readers",
    "/t/shop.orders/shards",
)  # fmt: skip
SQLITE = "names in SQLite"
REST = "a REST server of them"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("shared")
    address, files = f"jdbc:sqlite:{folder}/names.sqlite", f"{folder}/files"
    catalog = mg.catalog(address, options={"warehouse": files, "local.sync": "false"})
    catalog.create_database("shop")
    orders = catalog.create_table("shop.orders", {"id": "BIGINT", "note": "STRING"}, ["id"])
    orders.write([{"id": 1, "note": "first"}, {"id": 2, "note": None}])
    orders.write([{"id": 1, "note": "again"}])
    started = Server(folder, address, ("--store", f"warehouse={files}"))
    yield started
    started.kill()


@pytest.fixture(scope="module", params=[SQLITE, REST])
def ui(request: pytest.FixtureRequest, server: Server) -> Iterator[Serving]:
    folder = server.folder
    if request.param == SQLITE:
        options = ("-w", f"jdbc:sqlite:{folder}/names.sqlite", "--store", f"warehouse={folder}/files")
    else:
        asked = {"warehouse": "files", "token.provider": "bear", "token": TOKEN}
        options = ("-w", f"http://127.0.0.1:{server.port}", *(f"--store={key}={asked[key]}" for key in asked))
    serving = Serving(folder / "warehouse", *options, "--allow-upkeep", token=TOKEN, command="ui")
    yield serving
    serving.kill()


@pytest.mark.parametrize("path", PATHS)
def test_every_page_opens(ui: Serving, path: str) -> None:
    page = ui.ask(path)
    assert (page.status, 'role="alert"' in page.body.decode()) == (200, False), page.body.decode()


def test_rows_commits_and_statements_are_those_of_the_table(ui: Serving) -> None:
    assert "again" in ui.ask("/t/shop.orders/data").body.decode()
    assert ui.ask("/", figures='["shop.orders"]').json["shop.orders"]["rows"]["text"] == "3"  # before merging
    form = urlencode({"statement": "SELECT note FROM shop.orders WHERE id = 1"})
    found = ui.ask("/sql", "POST", {"origin": f"http://127.0.0.1:{ui.port}"}, form)
    assert (found.status, b"again" in found.body) == (200, True)


def test_neither_password_nor_token_is_shown(ui: Serving) -> None:
    assert not any(TOKEN in ui.ask(path).body.decode() for path in PATHS)

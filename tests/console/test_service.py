"""Who may see the console, and what comes back where something is wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import merganser as mg
from tests.unit.serve.serving import TOKEN, Serving

COOKIE = f"merganser-console={TOKEN.encode().hex()}"


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("console") / "warehouse"
    catalog = mg.catalog(path)
    catalog.create_database("shop")
    table = catalog.create_table("shop.orders", {"id": "BIGINT", "note": "STRING"}, ["id"], options={"bucket": "2"})
    table.write([{"id": 1, "note": "<b>first</b>"}, {"id": 2, "note": None}])
    damaged = catalog.create_table("shop.damaged", {"id": "BIGINT"}, ["id"])
    damaged.write([{"id": 1}])
    torn = catalog.create_table("shop.torn", {"id": "BIGINT"}, ["id"])
    for i in range(3):
        torn.write([{"id": i}])
    (path / "shop.db" / "torn" / "snapshot" / "snapshot-2").write_text("{")
    [manifest] = (path / "shop.db" / "damaged" / "manifest").glob("manifest-[0-9a-f]*-0")
    manifest.write_bytes(manifest.read_bytes()[:100])
    return path


@pytest.fixture(scope="module")
def ui(warehouse: Path) -> Iterator[Serving]:
    serving = Serving(warehouse, command="ui")
    yield serving
    serving.kill()


@pytest.fixture(scope="module")
def guarded(warehouse: Path) -> Iterator[Serving]:
    serving = Serving(warehouse, "--allow-upkeep", token=TOKEN, command="ui")
    yield serving
    serving.kill()


def test_a_page_comes_whole_and_lets_nothing_else_in(ui: Serving) -> None:
    page = ui.ask("/t/shop.orders")
    assert page.status == 200
    assert "shop.orders" in page.body.decode()
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert page.headers["cache-control"] == "no-store"


def test_a_foreign_host_is_refused(ui: Serving) -> None:
    assert ui.ask("/", headers={"host": "example.org"}).status == 403


@pytest.mark.parametrize("path", ["/t/shop.nothing", "/t/shop", "/nothing", "/t/shop.orders?page=x&part=nothing"])
def test_what_is_not_there_is_a_page_that_says_so(ui: Serving, path: str) -> None:
    page = ui.ask(path)
    assert page.status in (400, 404)
    assert 'role="alert"' in page.body.decode()


def test_figures_are_found_for_the_tables_that_are_named(ui: Serving) -> None:
    found = ui.ask("/", figures='["shop.orders", "shop.gone"]').json
    assert found["shop.orders"]["rows"]["text"] == "2"
    assert found["shop.gone"]["health"]["text"] == "unreadable"


def test_figures_of_no_list_of_names_are_refused(ui: Serving) -> None:
    for wrong in ("[" * 20_000, "{}", "[1]", "no"):
        assert ui.ask("/", figures=wrong).status == 400


def test_a_page_of_a_damaged_table_says_which_file_is_damaged(ui: Serving) -> None:
    found = ui.ask("/t/shop.damaged/data")
    assert found.status == 500
    assert re.search(r"shop.db/damaged/manifest/manifest-[-0-9a-f]+&#39; has 100 bytes", found.body.decode())


def test_a_damaged_snapshot_hides_no_page_that_does_not_need_it(ui: Serving) -> None:
    for page in ("", "/commits", "/data", "/tree", "/changes", "/readers"):
        assert (page, ui.ask(f"/t/shop.torn{page}").status) == (page, 200)


def test_scripts_send_forms_with_the_token_and_without_an_origin(guarded: Serving) -> None:
    assert b">7<" in guarded.ask("/sql", "POST", body="statement=SELECT+3%2B4").body
    for headers in ({"origin": "http://example.org"}, {"sec-fetch-site": "cross-site", "origin": "null"}):
        assert guarded.ask("/sql", "POST", headers, "statement=SELECT+1").status == 403
    by_cookie = {"authorization": "", "cookie": COOKIE}
    assert guarded.ask("/sql", "POST", by_cookie, "statement=SELECT+1").status == 403


def test_without_the_token_there_is_only_the_door(guarded: Serving) -> None:
    for path in ("/", "/t/shop.orders", "/nothing"):
        page = guarded.ask(path, headers={"authorization": ""})
        assert page.status == 401
        assert "shop" not in page.body.decode()
    assert guarded.ask("/static/console.css", headers={"authorization": ""}).status == 200


def test_the_token_of_a_form_becomes_a_cookie(guarded: Serving) -> None:
    own = {"authorization": "", "origin": f"http://127.0.0.1:{guarded.port}"}
    wrong = guarded.ask("/login", "POST", own, "token=another-token-of-some-length")
    assert (wrong.status, "set-cookie" in wrong.headers) == (401, False)
    right = guarded.ask("/login", "POST", own, f"token={TOKEN}")
    assert right.status == 303
    assert right.headers["set-cookie"].startswith(COOKIE)
    assert "SameSite=Strict" in right.headers["set-cookie"]
    assert "HttpOnly" in right.headers["set-cookie"]
    assert guarded.ask("/", headers={"authorization": "", "cookie": COOKIE}).status == 200
    assert guarded.ask("/", headers={"authorization": "", "cookie": "merganser-console=zz"}).status == 401


@pytest.mark.parametrize("origin", ["http://example.org", "null", ""])
def test_a_form_of_another_page_is_refused(guarded: Serving, origin: str) -> None:
    assert guarded.ask("/login", "POST", {"authorization": "", "origin": origin}, f"token={TOKEN}").status == 403

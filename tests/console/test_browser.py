"""Every page in a real browser, on tables of drawn histories, while a writer commits."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

import merganser as mg
from merganser.changes import add_column
from merganser.console.page import Page as ConsolePage
from merganser.console.pages.all import PAGES
from tests.console.browser import browser, faults, page
from tests.unit.serve.serving import TOKEN, Serving

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]
_TABLES = ("keys", "rows", "aggregates", "empty", "odd")
_OF_TABLE = [one for one in PAGES if "{table}" in one.path]


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("browser") / "warehouse"
    catalog = mg.catalog(path)
    catalog.create_database("shop")
    columns = {"day": "DATE", "id": "BIGINT", "name": "STRING", "n": "INT"}
    keys = catalog.create_table(
        "shop.keys",
        columns,
        ["day", "id"],
        partition_by=["day"],
        options={"bucket": "2", "changelog-producer": "lookup"},
    )
    rows = catalog.create_table("shop.rows", columns, options={"bucket": "-1"})
    summed = {"bucket": "1", "merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}
    aggregates = catalog.create_table("shop.aggregates", columns, ["id"], options=summed | {"write-only": "true"})
    catalog.create_table("shop.empty", columns, ["id"])
    odd = catalog.create_table(
        "shop.o d$d".replace("$", "-"), {"a <b>": "STRING", "`": "ARRAY<ROW<x BYTES>>"}, options={}
    )
    odd.write([{"a <b>": "<img src=x onerror=alert(1)>", "`": [{"x": b"\x00\xff"}]}, {"a <b>": "x" * 5000, "`": None}])
    rng = random.Random(7)
    for turn in range(14):
        for table in (keys, rows, aggregates):
            _write(table, rng)
        if turn == 5:
            keys.tags.create("early")
            keys.branches.create("try", "early")
            keys.consumers.set("reader", 4)
        if turn == 8:
            keys = keys.alter([add_column("note", "STRING")])
    keys.compact(full=True)
    keys.rescale(4)
    return path


def _write(table: mg.Table, rng: random.Random) -> None:
    given = {rng.randrange(60): rng.randrange(100) for _ in range(20)}
    names = ("day", "id", "name", "n")
    rows = [(date(2026, 11, 1 + k % 3), k, f"n{v} & <i>", v) for k, v in given.items()]
    table.write([dict(zip(names, row, strict=True)) for row in rows], columns=names)


@pytest.fixture(scope="module")
def ui(warehouse: Path) -> Iterator[Serving]:
    serving = Serving(warehouse, "--allow-upkeep", token=TOKEN, command="ui")
    stop, rng = threading.Event(), random.Random(8)
    table = mg.catalog(warehouse).table("shop.keys")

    def write() -> None:
        while not stop.wait(0.3):
            _write(table, rng)

    writer = threading.Thread(target=write)
    writer.start()
    yield serving
    stop.set()
    writer.join()
    serving.kill()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as found:
        yield found


def _address(ui: Serving, path: str) -> str:
    return f"http://127.0.0.1:{ui.port}{path}"


@pytest.mark.campaign(1 / 6)
@pytest.mark.parametrize("one", PAGES, ids=lambda one: one.name)
def test_a_page_is_whole_quiet_in_place_and_accessible(ui: Serving, chromium: Browser, one: ConsolePage) -> None:
    name, path = one.name, one.path
    for width, scheme in ((1280, "light"), (400, "dark")):
        with page(chromium, width, scheme, TOKEN) as (shown, said):
            shown.goto(_address(ui, path.replace("{table}", "shop.keys")))
            shown.wait_for_timeout(300)
            assert (faults(shown, live=one.events is not None), said) == ([], []), (name, width)
            assert shown.locator("main h1").count() == 1


@pytest.mark.parametrize("table", ["shop.rows", "shop.aggregates", "shop.empty", "shop.o d-d"])
def test_pages_of_all_kinds_of_tables_are_shown(ui: Serving, chromium: Browser, table: str) -> None:
    with page(chromium, token=TOKEN) as (shown, said):
        for one in _OF_TABLE:
            answer = shown.goto(_address(ui, one.path.replace("{table}", table)))
            assert answer is not None
            assert answer.status == 200, (one.name, shown.locator("main").inner_text())
            assert said == [], one.name


def test_keys_lead_to_every_page(ui: Serving, chromium: Browser) -> None:
    with page(chromium, token=TOKEN) as (shown, _):
        for one in _OF_TABLE:
            if one.title and one.key:
                shown.goto(_address(ui, "/t/shop.keys"))
                shown.keyboard.press("g")
                with shown.expect_navigation():
                    shown.keyboard.press(one.key)
                assert shown.url.split("?")[0].endswith(one.path.replace("{table}", "shop.keys"))
        shown.keyboard.press("?")
        assert shown.locator("#keys").is_visible()


def test_the_theme_is_kept(ui: Serving, chromium: Browser) -> None:
    with page(chromium, token=TOKEN) as (shown, _):
        shown.goto(_address(ui, "/"))
        shown.keyboard.press("t")
        shown.goto(_address(ui, "/sql"))
        assert shown.locator("html").get_attribute("data-theme") == "dark"


def test_figures_of_tables_come_and_people_sign_in(ui: Serving, chromium: Browser, warehouse: Path) -> None:
    newest = mg.catalog(warehouse).table("shop.rows").latest_snapshot()
    with page(chromium) as (shown, _):
        shown.goto(_address(ui, "/"))
        shown.fill("#token", TOKEN)
        shown.click("button.primary")
        cell = shown.locator("[data-figures='shop.rows'] [data-field=rows]")
        expect(cell).to_have_text(f"{newest.total_record_count:,}")
        shown.click("text=Sign out")
        shown.goto(_address(ui, "/"))
        assert shown.locator("#token").is_visible()

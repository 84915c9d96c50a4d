"""The rows of a table, a page at a time."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest

import merganser as mg
from tests.unit.serve.serving import Serving

LONG = "a & b " * 5_000
ODD = {
    "id": 0,
    "na`me": "<script>alert(1)</script> \x00\u202e",
    "score": float("nan"),
    "amount": Decimal("12.30"),
    "at": datetime(2026, 1, 2, 3, 4, 5),
    "photo": bytes(range(256)) * 4,
    "parts": [{"sku": '"quoted"', "n": None}],
    "long": LONG,
}
COLUMNS = {
    "id": "BIGINT", "na`me": "STRING", "score": "DOUBLE", "amount": "DECIMAL(10, 2)", "at": "TIMESTAMP(3)",
    "photo": "BYTES", "parts": "ARRAY<ROW<sku STRING, n INT>>", "long": "STRING",
}  # fmt: skip


@pytest.fixture(scope="module")
def ui(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    path = tmp_path_factory.mktemp("console") / "warehouse"
    catalog = mg.catalog(path)
    catalog.create_database("shop")
    odd = catalog.create_table("shop.odd", COLUMNS, ["id"], options={"bucket": "1"})
    odd.write([ODD])
    rows = catalog.create_table("shop.rows", {"id": "INT", "n": "INT"}, ["id"], options={"bucket": "3"})
    rows.write([{"id": i, "n": 0} for i in range(1_050)])
    rows.tags.create("first")
    rows.write([{"id": i, "n": i} for i in range(0, 1_050, 7)])
    lines = catalog.create_table("shop.lines", {"n": "INT"})
    for begin in range(0, 250, 50):
        lines.write([{"n": n} for n in range(begin, begin + 50)])
    catalog.create_table("shop.empty", {"n": "INT"})
    tiny = catalog.create_table("shop.tiny", {"d": "DECIMAL(20, 10)", "a": "ARRAY<DECIMAL(20, 10)>"})
    tiny.write([{"d": Decimal("-1E-10"), "a": [Decimal("1E-10"), Decimal("0E-10")]}])
    tiny.tags.create("damaged")
    (path / "shop.db" / "tiny" / "tag" / "tag-damaged").write_text("nothing")
    serving = Serving(path, command="ui")
    yield serving
    serving.kill()


def page(ui: Serving, table: str, **query: Any) -> str:
    reply = ui.ask(f"/t/shop.{table}/data", **query)
    assert reply.status == 200, reply.body.decode()
    return reply.body.decode()


def shown(text: str) -> list[list[str]]:
    """Return the values of a page, without the link to the history."""
    rows = re.findall(r"<tr>(.*?)</tr>", text, re.DOTALL)
    cells = [re.findall(r'<td class="value[^>]*>(.*?)</td>', row, re.DOTALL) for row in rows]
    return [[html.unescape(re.sub(r"<[^>]*>", "", cell)) for cell in row] for row in cells if row]


def test_decimals_have_no_exponent_and_a_damaged_tag_hides_no_rows(ui: Serving) -> None:
    assert shown(page(ui, "tiny")) == [["-0.0000000001", "[0.0000000001,0.0000000000]"]]


def through(ui: Serving, table: str, **query: Any) -> list[list[list[str]]]:
    """Return all pages, by the links to the next ones."""
    pages, address = [], f"/t/shop.{table}/data"
    while address:
        reply = ui.ask(address, **query)
        pages.append(shown(reply.body.decode()))
        query = {}
        found = re.search(r'rel="next" href="([^"]*)"', reply.body.decode())
        address = html.unescape(found[1]) if found else ""
    return pages


@pytest.mark.parametrize(("table", "count"), [("rows", 1_050), ("lines", 250)])
def test_pages_show_each_row_once(ui: Serving, table: str, count: int) -> None:
    pages = through(ui, table)
    assert [len(each) for each in pages[:-1]] == [100] * (count // 100)
    assert sorted(int(row[0]) for each in pages for row in each) == list(range(count))


def test_a_page_can_be_opened_without_those_before_it(ui: Serving) -> None:
    pages = through(ui, "rows", where="n > 0")
    assert shown(page(ui, "rows", where="n  > 0", page=2)) == pages[1]  # another text, so no position is known
    assert shown(page(ui, "rows", where="n  > 0", page=1)) == pages[0]


def test_rows_are_those_of_a_tag_a_snapshot_or_a_time(ui: Serving) -> None:
    for at in ("first", "1"):
        assert shown(page(ui, "rows", where="id = 7", at=at)) == [["7", "0"]]
    assert shown(page(ui, "rows", where="id = 7", at="2200-01-01")) == [["7", "7"]]
    assert shown(page(ui, "rows", where="id = 7", columns="`n`, n")) == [["7"]]


def test_values_are_readable_and_cannot_act(ui: Serving) -> None:
    text = page(ui, "odd")
    [row] = shown(text)
    assert "<script>alert" not in text
    assert row[:5] == [
        "0",
        "<script>alert(1)</script> \\x00\\u202e",
        "NaN",
        "12.30",
        "2026-01-02 03:04:05",
    ]
    assert row[5].startswith("x'000102")
    assert "1,024 bytes" in row[5]
    assert row[6] == '[{"sku":"\\"quoted\\"","n":null}]'
    assert row[7].endswith("30,000 characters")
    assert len(row[7]) < 100
    whole = ui.ask(html.unescape(re.findall(r'href="([^"]*cell=0\.7[^"]*)"', text)[0]))
    assert (whole.body.decode(), whole.headers["content-type"]) == (LONG, "text/plain; charset=utf-8")
    assert ui.ask("/t/shop.odd/data", cell="0.5").body == ODD["photo"]


@pytest.mark.parametrize(
    ("query", "field", "told"),
    [
        ({"where": "n > 'a\"<b>"}, "where", ""),
        ({"where": "nothing = 1"}, "where", "unknown column"),
        ({"where": "1 / (n - n) > 0 AND n > 0"}, "where", "divi"),
        ({"at": "<i>"}, "at", "no tag"),
        ({"at": "99"}, "at", "99"),
        ({"columns": "n, <i>"}, "columns", "no column"),
    ],
)
def test_a_wrong_field_says_so_and_keeps_what_was_typed(
    ui: Serving, query: dict[str, str], field: str, told: str
) -> None:
    text = page(ui, "rows", **query)
    [message] = re.findall(rf'id="n-{field}" role="alert">(.*?)</p>', text, re.DOTALL)
    assert told in message
    [typed] = re.findall(rf'name="{field}" value="([^"]*)"', text)
    assert html.unescape(typed) == query[field]
    assert shown(text) == []


def test_an_empty_table_says_so(ui: Serving) -> None:
    assert "no rows yet" in page(ui, "empty")

"""Readers of a table and the shards of its stream."""

from __future__ import annotations

import html
import re
import threading
from collections.abc import Iterator

import pytest

import merganser as mg
from tests.unit.serve.serving import Serving


@pytest.fixture(scope="module")
def ui(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    path = tmp_path_factory.mktemp("console") / "warehouse"
    catalog = mg.catalog(path)
    catalog.create_database("shop")
    options = {"bucket": "2", "snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1"}
    table = catalog.create_table("shop.orders", {"id": "INT"}, ["id"], options=options)
    for begin in range(4):
        table.write([{"id": n} for n in range(begin * 10, begin * 10 + 10)])
    table.consumers.set("<b>slow", 2)
    table.consumers.set("ready", 5)
    table.enable_stream()
    table.write([{"id": n} for n in range(10)])
    stop = threading.Event()
    table.follow("worker-1", lambda batch: stop.set(), stop=stop, limit=3)
    table.rescale(4)
    catalog.create_table("shop.plain", {"id": "INT"})
    serving = Serving(path, command="ui")
    yield serving
    serving.kill()


def rows(text: str, region: str) -> list[list[str]]:
    """Return the texts of the cells of a table on a page."""
    [table] = re.findall(rf'aria-label="{region}">\s*<table>(.*?)</table>', text, re.DOTALL)
    body = table.partition("<tbody")[2]
    cells = [
        re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL)
        for row in re.findall(r"<tr>(.*?)</tr>", body, re.DOTALL)
    ]
    return [[html.unescape(" ".join(re.sub("<[^>]*>", "", cell).split())) for cell in row] for row in cells]


def test_consumers_are_shown_with_their_lag_and_what_they_keep(ui: Serving) -> None:
    text = ui.ask("/t/shop.orders/readers").body.decode()
    slow, ready = rows(text, "Consumers")
    assert "<b>slow" not in text
    assert (slow[0], slow[1], ready[0], ready[1]) == ("<b>slow", "2", "ready", "5")
    assert int(slow[2].split()[0]) == int(ready[2].split()[0]) + 3
    assert "snapshots since" in slow[5]
    assert "no consumers" in ui.ask("/t/shop.plain/readers").body.decode()


def test_shards_are_drawn_from_their_parents_with_the_positions_of_workers(ui: Serving) -> None:
    text = ui.ask("/t/shop.orders/shards").body.decode()
    shards = rows(text, "Shards")
    assert [row[1] for row in shards] == ["bucket 0", "bucket 1", *(f"bucket {n}" for n in range(4))]
    assert [row[2].split()[0] for row in shards] == ["closed"] * 2 + ["open"] * 4
    names = [row[0] for row in shards]
    assert [row[4] for row in shards] == ["–", "–", names[0], names[1], names[0], names[1]]
    assert text.count('class="edge"') == 4
    assert any(int(row[6]) for row in shards if row[6] != "–")
    assert {row[0] for row in rows(ui.ask("/t/shop.orders/readers").body.decode(), "Workers")} <= set(names)


def test_a_table_without_a_stream_says_how_to_enable_one(ui: Serving) -> None:
    assert "enable_stream" in ui.ask("/t/shop.plain/shards").body.decode()

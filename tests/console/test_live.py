"""The latest changes of a table, and those that come while somebody looks."""

from __future__ import annotations

import html
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

import merganser as mg
from merganser import changes
from tests.unit.serve.serving import Serving


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("console") / "warehouse"
    mg.catalog(path).create_database("shop")
    return path


@pytest.fixture(scope="module")
def ui(warehouse: Path) -> Iterator[Serving]:
    serving = Serving(warehouse, command="ui")
    yield serving
    serving.kill()


def made(warehouse: Path, name: str, **options: str) -> mg.Table:
    columns = {"id": "INT", "note": "STRING"}
    return mg.catalog(warehouse).create_table(f"shop.{name}", columns, ["id"], options={"bucket": "1", **options})


class Tail:
    """Server-sent events, as a client gets them."""

    def __init__(self, ui: Serving, table: str, **query: Any) -> None:
        self.connection = ui.connect()
        self.connection.request("GET", f"/t/shop.{table}/changes/events?{urlencode(query)}")
        self.answer = self.connection.getresponse()

    def next(self) -> tuple[str, str]:
        """Return the name and the data of the next event; empty once the server has ended."""
        name, data = "", []
        while line := self.answer.readline().decode():
            if line == "\n" and name:
                return name, "\n".join(data)
            field, _, value = line.rstrip("\n").partition(": ")
            name = value if field == "event" else name
            data += [value] if field == "data" else []
        return "", ""

    def until(self, *names: str) -> tuple[str, str]:
        """Return the next event of some names, or the end."""
        while True:
            found = self.next()
            if found[0] in ("", *names):
                return found

    def close(self) -> None:
        self.connection.close()


def rows(text: str) -> list[tuple[str, ...]]:
    """Return kind and values of the changes on a page."""
    found = []
    for row in re.findall(r"<tr>(.*?)</tr>", text, re.DOTALL):
        kind = re.findall(r'class="mark kind [a-z]*">(.*?)<', row)
        cells = re.findall(r'<td class="value[^>]*>(.*?)</td>', row, re.DOTALL)
        found += [(*kind, *(html.unescape(re.sub("<[^>]*>", "", cell)) for cell in cells))] if kind else []
    return found


def test_the_latest_changes_are_shown_newest_commit_last(ui: Serving, warehouse: Path) -> None:
    table = made(warehouse, "latest", **{"changelog-producer": "input"})
    table.write([{"id": 1, "note": "<b>"}, {"id": 2, "note": None}])
    table.write([{"id": 1, "note": "<b>"}, {"id": 1, "note": "x"}], kinds=["-U", "+U"])
    text = ui.ask("/t/shop.latest/changes").body.decode()
    assert rows(text) == [("+I", "1", "<b>"), ("+I", "2", "null"), ("-U", "1", "<b>"), ("+U", "1", "x")]
    assert "<b>" not in text
    found = ui.ask("/t/shop.latest/changes", where="id = 1", after="1", deletes="1").body.decode()
    assert rows(found) == [("+U", "1", "x")]
    wrong = ui.ask("/t/shop.latest/changes", where="id = '<b>").body.decode()
    assert 'aria-invalid="true"' in wrong
    assert ui.ask("/t/shop.latest/changes/events", where="nothing = 1").status == 400


def test_commits_come_while_somebody_looks(ui: Serving, warehouse: Path) -> None:
    table = made(warehouse, "live")
    table.write([{"id": 0, "note": "before"}])
    tail = Tail(ui, "live", where="id > 0")
    assert tail.next() == ("at", "1")
    for number in (1, 2):
        begun = time.monotonic()
        table.write([{"id": number, "note": "a\nb\u2028c"}, {"id": 0, "note": "not asked for"}])
        name, data = tail.next()
        assert (name, [row[:2] for row in rows(data)]) == ("commit", [("+I", str(number))])
        assert time.monotonic() - begun < 10  # a second between looks; the machine may be busy
        assert tail.next() == ("at", str(number + 1))
    table.delete("id = 1")
    assert [row[:2] for row in rows(tail.next()[1])] == [("-D", "1")]
    tail.close()
    again = Tail(ui, "live", since=3)  # a client whose connection broke
    assert (again.next(), again.next()[0]) == (("at", "3"), "commit")
    again.close()


def test_what_ends_or_changes_the_table_is_told(ui: Serving, warehouse: Path) -> None:
    table = made(warehouse, "ended")
    for number in range(4):
        table.write([{"id": number, "note": None}])
    tail = Tail(ui, "ended")
    assert tail.next() == ("at", "4")
    table.alter([changes.rename_column("note", "text")]).write([{"id": 9, "text": "x"}])
    assert "Load the page again" in tail.next()[1]
    assert rows(tail.next()[1]) == [("+I", "9", "x")]
    table.rollback(snapshot=3)
    assert "rolled back to snapshot 3" in tail.until("notice")[1]
    mg.catalog(warehouse).drop_table("shop.ended")
    assert "dropped or renamed" in tail.until("fault")[1]
    assert tail.next() == ("", "")
    tail.close()


def test_expired_commits_are_told(ui: Serving, warehouse: Path) -> None:
    table = made(warehouse, "old", **{"write-only": "true"})
    for number in range(5):
        table.write([{"id": number, "note": None}])
    table.expire(retain_max=2, retain_min=1, older_than="2200-01-01")
    tail = Tail(ui, "old", since=1)
    assert [tail.next() for _ in range(2)] == [
        ("at", "1"),
        ("notice", "Snapshots 2 to 4 expired before they were shown."),
    ]
    assert rows(tail.next()[1]) == [("+I", "4", "null")]
    tail.close()

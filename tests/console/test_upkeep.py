"""Upkeep in the console: shown before it is done, done once, and refused without the switch."""

from __future__ import annotations

import html
import re
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest

import merganser as mg
from tests.unit.serve.serving import TOKEN, Reply, Serving


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> mg.Catalog:
    catalog = mg.catalog(tmp_path_factory.mktemp("upkeep") / "warehouse")
    catalog.create_database("shop")
    return catalog


@pytest.fixture
def table(catalog: mg.Catalog) -> Iterator[mg.Table]:
    options = {"bucket": "1", "write-only": "true"}
    table = catalog.create_table("shop.items", {"id": "BIGINT", "n": "INT"}, ["id"], options=options)
    for n in range(5):
        table.write([{"id": i, "n": n} for i in range(10 + n)])
    yield table
    catalog.drop_table("shop.items")


@pytest.fixture(scope="module")
def ui(catalog: mg.Catalog) -> Iterator[Serving]:
    serving = Serving(Path(catalog.warehouse), "--allow-upkeep", token=TOKEN, command="ui")
    yield serving
    serving.kill()


def _ask(ui: Serving, **form: str) -> Reply:
    return ui.ask("/t/shop.items/upkeep", "POST", {"origin": f"http://127.0.0.1:{ui.port}"}, urlencode(form))


def _do(ui: Serving, **form: str) -> str:
    """Ask, confirm with the fields that the page has, and wait until it is done; return what was shown before."""
    shown = _ask(ui, **form).body.decode()
    fields = dict(re.findall(r'type="hidden" name="([^"]*)" value="([^"]*)"', shown[: shown.index("Do it")]))
    assert fields["confirmed"] == "yes"
    _ask(ui, **{name: html.unescape(value) for name, value in fields.items()})
    until = time.monotonic() + 20
    while b"at work" in ui.ask("/t/shop.items/upkeep", part="jobs").body:
        assert time.monotonic() < until
        time.sleep(0.05)
    assert b"failed" not in ui.ask("/t/shop.items/upkeep", part="jobs").body
    return html.unescape(re.sub(r"<[^>]+>", " ", shown))


def test_each_action_says_what_it_does_and_does_it(ui: Serving, table: mg.Table) -> None:
    assert "keeps snapshot 3" in _do(ui, action="tag", name="kept", snapshot="3")
    assert [tag.snapshot.id for tag in table.tags.list()] == [3]
    assert "5 files" in _do(ui, action="compact", full="yes")
    assert table.files().num_rows == 1
    assert "are rewritten" in _do(ui, action="rescale", buckets="2")
    assert table.files().num_rows == 2
    newest = table.latest_snapshot()
    assert newest is not None
    assert "3 snapshots are removed" in _do(ui, action="expire", retain_max=str(newest.id - 3), retain_min="1")
    assert table.snapshots()[0].id == 4
    assert "gone for good" in _do(ui, action="rollback", snapshot="5")
    assert sorted(row["n"] for row in table.read().to_pylist()) == [4] * 14
    assert "is removed" in _do(ui, action="drop-tag", name="kept")
    assert table.tags.list() == ()


def test_what_is_not_confirmed_changes_nothing(ui: Serving, table: mg.Table) -> None:
    for form in (
        {"action": "compact", "full": "yes"},
        {"action": "rollback", "snapshot": "2"},
        {"action": "expire", "retain_max": "1", "retain_min": "1"},
        {"action": "tag", "name": "t"},
    ):
        assert b"Do it" in _ask(ui, **form).body
    assert [each.id for each in table.snapshots()] == [1, 2, 3, 4, 5]
    assert table.tags.list() == ()


def test_a_rollback_that_others_overtook_is_shown_again(ui: Serving, table: mg.Table) -> None:
    table.write([{"id": 1, "n": 99}])
    shown = _ask(ui, action="rollback", snapshot="2", confirmed="yes", seen="5")
    assert b"Do it" in shown.body
    assert [each.id for each in table.snapshots()] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    "form",
    [
        {"action": "rescale", "buckets": "none"},
        {"action": "rollback", "snapshot": "77"},
        {"action": "rollback"},
        {"action": "tag", "name": " "},
        {"action": "expire", "retain_max": "-1"},
        {"action": "drop-tag", "name": "gone"},
        {"action": "format the disk"},
    ],
)
def test_what_cannot_be_done_is_told(ui: Serving, table: mg.Table, form: dict[str, str]) -> None:
    told = _ask(ui, **form)
    assert b'role="alert"' in told.body
    assert b"Do it" not in told.body


def test_without_the_switch_there_is_no_such_page(table: mg.Table, catalog: mg.Catalog) -> None:
    serving = Serving(Path(catalog.warehouse), token=TOKEN, command="ui")
    try:
        assert serving.ask("/t/shop.items/upkeep").status == 403
        assert _ask(serving, action="compact", confirmed="yes").status == 403
        assert b"Upkeep" not in serving.ask("/t/shop.items").body
    finally:
        serving.kill()
    assert len(table.snapshots()) == 5

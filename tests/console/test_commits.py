"""The commits of a table, its tags and branches, and what differs between two snapshots."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from urllib.parse import quote

import pytest

import merganser as mg
from merganser.changes import add_column, set_option
from merganser.console.jobs import Jobs
from merganser.console.page import Asked
from merganser.console.pages import commits
from merganser.console.service import Findings
from tests.kit.builders import catalog_over, memory_with
from tests.kit.faulty import FaultyStorage
from tests.unit.serve.serving import Serving

_TAG = "v1 <script>'\""


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("console") / "warehouse"
    catalog = mg.catalog(path)
    catalog.create_database("shop")
    orders = catalog.create_table(
        "shop.orders",
        {"id": "BYTES", "day": "STRING", "note": "STRING"},
        ["id", "day"],
        ["day"],
        options={"bucket": "2"},
    )
    for i in range(3):
        orders.write([{"id": bytes([0, j, 255]), "day": "<i>'&", "note": f"<b>{i}</b>"} for j in range(10)])
    orders.tags.create(_TAG, snapshot=2)
    for name in ["dev", *(f"b{i}" for i in range(50))]:
        orders.branches.create(name, tag=_TAG)
    orders.branch("dev").write([{"id": b"dev", "day": "x", "note": "only there"}])
    orders.branches.create("empty")
    orders.delete("note = '<b>2</b>' AND id = x'0003ff'")
    orders = orders.alter([add_column("extra", "INT"), set_option("snapshot.num-retained.min", "3")])
    orders.compact(full=True)
    old = catalog.create_table("shop.old", {"id": "BIGINT"}, ["id"], options={"bucket": "1"})
    for i in range(4):
        old.write([{"id": i}])
    old.tags.create("first", snapshot=1)
    old.expire(retain_max=1, retain_min=1)
    moved = catalog.create_table(
        "shop.moved", {"id": "BIGINT"}, ["id"], options={"bucket": "1", "changelog-producer": "lookup"}
    )
    moved.write([{"id": i} for i in range(5)])
    catalog.create_table("shop.nothing", {"id": "BIGINT"}, ["id"], options={"bucket": "1"})
    many = catalog.create_table("shop.many", {"id": "BIGINT"}, options={"bucket": "-1", "write-only": "true"})
    for i in range(130):
        many.write([{"id": i}])
    return path


@pytest.fixture(scope="module")
def ui(warehouse: Path) -> Iterator[Serving]:
    serving = Serving(warehouse, command="ui")
    yield serving
    serving.kill()


def _page(ui: Serving, path: str, **query: str) -> str:
    found = ui.ask(f"/t/{quote(path, safe='/')}", **query)
    assert found.status == 200, found.body
    return found.body.decode()


def _texts(page: str) -> list[str]:
    """Return the texts of the cells of each line, without tags."""
    lines = re.findall(r"<tr>.*?</tr>", page, re.DOTALL)
    return [" ".join(unescape(re.sub(r"<[^>]*>", " ", line)).split()) for line in lines]


def test_each_commit_is_a_line_with_what_it_wrote(ui: Serving, warehouse: Path) -> None:
    table = mg.catalog(warehouse).table("shop.orders")
    page = _page(ui, "shop.orders/commits")
    lines = [line for line in _texts(page) if "ago" in line]
    assert [int(line.split()[0]) for line in lines] == [each.id for each in reversed(table.snapshots())]
    first = lines[-1]
    assert re.match(r"1 \d+ s ago APPEND \+10 0 \+2 −0 [\d.]+ KB 10 ", first), first
    assert "DELETE 0 inserted, 0 updated, 1 deleted" in lines[1]
    assert lines[0].split()[4] == "COMPACT"


def test_tags_and_branches_are_drawn_and_escaped(ui: Serving) -> None:
    page = _page(ui, "shop.orders/commits")
    assert "<script>'" not in page
    assert "v1 &lt;script&gt;&#39;&#34;" in page
    drawn = page[page.index('<ol class="refs">') : page.index("</ol>")]
    assert re.findall(r'<li class="(\w+)">', drawn).count("branch") == 51
    assert re.search(r"dev</a></strong>.*?2 snapshots, the newest is 3", drawn, re.DOTALL)
    assert re.search(r"empty</a></strong>.*?no snapshot; began empty", drawn, re.DOTALL)
    assert "only there" in _page(ui, "shop.orders$branch_dev/diff", to="3")


def test_a_file_that_a_compaction_moves_to_another_level_is_not_written(ui: Serving, warehouse: Path) -> None:
    table = mg.catalog(warehouse).table("shop.moved")
    assert [each.commit_kind for each in table.snapshots()] == ["APPEND", "COMPACT"]
    assert set(table.files()["level"].to_pylist()) != {0}
    [moved, written] = [line for line in _texts(_page(ui, "shop.moved/commits")) if "ago" in line]
    assert re.search(r"COMPACT 0 0 \+0 −0 0 bytes 5 ", moved), moved
    assert re.search(r"APPEND \+5 0 \+1 −0 ", written), written
    assert "<dd>+0 −0</dd>" in _page(ui, "shop.moved/diff", to="2")


def test_a_long_history_is_paged(ui: Serving) -> None:
    assert "101–130 of 130" in _page(ui, "shop.many/commits", page="2")
    first = _page(ui, "shop.many/commits")
    assert sum("ago" in line for line in _texts(first)) == 100
    assert 'href="/t/shop.many/commits?page=2"' in first


@pytest.mark.parametrize("page", ["commits", "diff"])
def test_a_table_without_a_snapshot_says_so(ui: Serving, page: str) -> None:
    assert "Nothing was written yet" in _page(ui, f"shop.nothing/{page}")


def test_the_rows_of_two_states_are_compared(ui: Serving) -> None:
    page = _page(ui, "shop.orders/diff", **{"from": "2", "to": "4"})
    lines = _texts(page)
    assert "-D x'0003ff' <i>'& <b>1</b> null" in lines
    assert "-U x'0004ff' <i>'& <b>1</b> null" in lines
    assert "+U x'0004ff' <i>'& <b>2</b> null" in lines
    assert sum(line.startswith(("-", "+")) for line in lines) == 19
    assert sum("day=" in line for line in lines) == 2


def test_changes_of_columns_and_options_are_told(ui: Serving) -> None:
    page = unescape(_page(ui, "shop.orders/diff", **{"from": _TAG, "to": "5"}))
    assert "column 'extra' INT was added" in page
    assert "snapshot.num-retained.min not set 3" in _texts(page)


def test_a_compaction_changes_no_row(ui: Serving) -> None:
    page = _page(ui, "shop.orders/diff", to="5")
    assert "No row changed" in page
    assert "From snapshot 4 to 5" in page


def test_what_only_a_tag_keeps_is_compared_by_files(ui: Serving) -> None:
    drawn = _page(ui, "shop.old/commits")
    assert "2 expired" in drawn
    assert "kept by its tag" in drawn
    page = _page(ui, "shop.old/diff", **{"from": "first", "to": "4"})
    assert "From snapshot 1 to 4" in page
    assert "0 +3 −0 +3 −0" in " ".join(_texts(page))
    assert "Rows are compared between snapshots that have not expired" in page
    assert ui.ask("/t/shop.old/diff", to="4").status == 400


@pytest.mark.parametrize("query", [{"to": "99"}, {"from": "no such tag"}, {"to": "9" * 30}])
def test_a_snapshot_that_is_not_there_is_an_error(ui: Serving, query: dict[str, str]) -> None:
    assert ui.ask("/t/shop.orders/diff", **query).status in (400, 404)


def test_another_look_reads_no_commit_again() -> None:
    storage = FaultyStorage(memory_with({}, "commits-again"))
    catalog = catalog_over(storage)
    catalog.create_database("db")
    table = catalog.create_table("db.t", {"id": "INT"}, ["id"], options={"bucket": "1", "write-only": "true"})
    for i in range(40):
        table.write([{"id": i}])
    known = Findings()

    def looked(count: int) -> int:
        before = len(storage.calls)
        jobs = Jobs(catalog.env.clock)
        asked = Asked(catalog, "/t/db.t/commits", {}, False, known, jobs, "db.t")
        assert commits.PAGE.view(asked)["commits"].total == count
        return len(storage.calls) - before

    first, again = looked(40), looked(40)
    table.write([{"id": 41}])
    then = looked(41)
    assert first > 40
    assert again <= 12
    assert then <= again + 6

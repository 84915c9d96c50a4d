"""The files of buckets: what is drawn of sorted runs, what a read merges, and what is compacted next."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from urllib.parse import quote
from xml.etree import ElementTree

import numpy as np
import pytest

import merganser as mg
from merganser.codec.stats import SimpleStats
from merganser.console.lsm_drawing import SHAPES_MAX, drawing
from merganser.meta.data_file import DataFile
from tests.unit.serve.serving import Serving

_WRITE_ONLY = {"write-only": "true"}


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("console") / "warehouse"
    catalog = mg.catalog(path)
    catalog.create_database("shop")
    keyed = catalog.create_table("shop.keyed", {"k": "BYTES", "v": "STRING"}, ["k"], options={"bucket": "1"})
    keyed.write([{"k": bytes([i]), "v": "<script>" * i} for i in range(200)])
    keyed.compact(full=True)
    waits = keyed.with_options(_WRITE_ONLY)
    waits.write([{"k": bytes([i]), "v": "young"} for i in range(50, 60)])
    waits.write([{"k": bytes([i]), "v": "young"} for i in range(150, 160)])
    waits.delete("k = x'9b'")
    days = catalog.create_table(
        "shop.days", {"day": "STRING", "id": "INT"}, ["day", "id"], ["day"], options={"bucket": "2", **_WRITE_ONLY}
    )
    days.write([{"day": f"<{i:02d}>", "id": j} for i in range(60) for j in range(4)])
    days.write([{"day": "<07>", "id": j} for j in range(4)])
    logs = catalog.create_table(
        "shop.logs",
        {"id": "INT"},
        options={"deletion-vectors.enabled": "true", **_WRITE_ONLY, "compaction.min.file-num": "3"},
    )
    for i in range(3):
        logs.write([{"id": j} for j in range(10 * i, 10 * i + 10)])
    logs.delete("id < 4")
    due = catalog.create_table("shop.due", {"k": "INT", "v": "STRING"}, ["k"], options={"bucket": "1", **_WRITE_ONLY})
    due.write([{"k": i, "v": str(i) * 50} for i in range(2000)])
    due.compact(full=True)
    for i in range(5):
        due.write([{"k": i, "v": "young"}])
    catalog.create_table("shop.nothing", {"id": "BIGINT"}, ["id"], options={"bucket": "1"})
    return path


@pytest.fixture(scope="module")
def ui(warehouse: Path) -> Iterator[Serving]:
    serving = Serving(warehouse, command="ui")
    yield serving
    serving.kill()


def _page(ui: Serving, table: str, **query: str) -> str:
    found = ui.ask(f"/t/{quote(table)}/tree", **query)
    assert found.status == 200, found.body
    return found.body.decode()


def _lines(page: str, label: str) -> list[str]:
    """Return the texts of the lines of a table of the page."""
    part = page[page.index(f'aria-label="{label}"') :]
    rows = re.findall(r"<tr.*?</tr>", part[: part.index("</table>")], re.DOTALL)[1:]
    return [" ".join(unescape(re.sub(r"<[^>]*>", " ", row)).split()) for row in rows]


def _fact(page: str, name: str) -> str:
    found = re.search(rf"<dt>{name}</dt><dd>(.*?)</dd>", page)
    assert found is not None, name
    return re.sub(r"<[^>]*>", "", found[1])


def test_files_are_drawn_over_their_keys_in_lanes_of_runs(ui: Serving, warehouse: Path) -> None:
    page = _page(ui, "shop.keyed")
    table = mg.catalog(warehouse).table("shop.keyed")
    files = table.files().to_pylist()
    drawn = re.findall(
        r'<rect class="file level(\d)[^"]*" id="at-\d+" data-file="\d+" x="([\d.]+)%" width="([\d.]+)%"', page
    )
    assert sorted(int(level) for level, *_ in drawn) == sorted(each["level"] for each in files) == [0, 0, 0, 5]
    spans = {(level, round(float(x)), round(float(width))) for level, x, width in drawn}
    # distinct bounds: 00 32 3b 96 9b 9f c7, seven steps of a seventh
    assert spans == {("0", 14, 29), ("0", 43, 43), ("0", 57, 14), ("5", 0, 100)}
    assert "keys x'32' to x'3b'" in unescape(page)
    lines = _lines(page, "Files of the bucket")
    assert len(lines) == 4
    assert re.match(r"0 data-\S+ 1 1 1\.\d KB x'9b' x'9b' 220–220 0 2", lines[0]), lines[0]
    assert "<script>" not in page


def test_read_amplification_is_that_of_overlapping_runs(ui: Serving) -> None:
    page = _page(ui, "shop.keyed")
    assert _fact(page, "A read merges") == "4 runs at most, 4.0 on average"
    assert _fact(page, "Rows stored") == "221"
    assert _fact(page, "Deletes stored") == "1"


def test_the_next_compaction_is_told_with_its_rule(ui: Serving, warehouse: Path) -> None:
    assert "Nothing: no rule picks any of the 4 sorted runs" in _page(ui, "shop.keyed")
    page = _page(ui, "shop.due")
    assert "It takes 5 of 6 files" in page
    assert "into level 4. Rule: size ratio: " in page
    taken = re.findall(r'title="(data-[^"]+)">[^<]*</a> <span class="mark warn">taken', page)
    table = mg.catalog(warehouse).table("shop.due")
    before = {each["file_path"].rpartition("/")[2] for each in table.files().to_pylist()}
    table.with_options({"write-only": "false"}).compact()
    after = {each["file_path"].rpartition("/")[2] for each in table.files().to_pylist()}
    assert sorted(taken) == sorted(before - after)
    assert "Nothing: " in _page(ui, "shop.due")


def test_a_table_without_a_key_shows_small_files(ui: Serving) -> None:
    page = _page(ui, "shop.logs")
    assert "It takes all of 3 files" in page
    assert _fact(page, "Rows in deletion vectors") == "4"
    assert "3 of 3 are small" in page


def test_buckets_are_paged_sorted_and_filtered(ui: Serving) -> None:
    page = _page(ui, "shop.days")
    total = int(re.search(r"1–50 of (\d+) buckets", page)[1])  # type: ignore[index]
    assert 100 < total <= 120
    assert len(_lines(page, "Buckets")) == 50
    assert len(_lines(_page(ui, "shop.days", page="3"), "Buckets")) == total - 100
    found = _lines(_page(ui, "shop.days", partition="<0", sort="bucket"), "Buckets")
    assert [line.split(",")[0] for line in found] == sorted(line.split(",")[0] for line in found)
    assert {line.split(",")[0] for line in found} == {f"day=<0{i}>" for i in range(10)}
    chosen = re.search(r'href="[^"]*bucket=([0-9a-f]+\.\d)[^"]*">day=&lt;07&gt;, bucket 1', page)
    assert chosen is not None
    assert "day=&lt;07&gt;, bucket 1</h2>" in _page(ui, "shop.days", bucket=chosen[1])


def test_a_bucket_that_is_not_there_is_an_error(ui: Serving) -> None:
    assert ui.ask("/t/shop.keyed/tree", bucket="zz.0").status == 400


def test_a_table_without_a_snapshot_says_so(ui: Serving) -> None:
    assert "Nothing was written yet" in _page(ui, "shop.nothing")


@pytest.mark.parametrize("level", [0, 5])
def test_thousands_of_files_are_drawn_as_few_shapes(level: int) -> None:
    stats = SimpleStats(b"", b"", ())
    files = [DataFile(f"f{i}", 1000 + i, 10, b"", b"", stats, stats, i, i, 0, level) for i in range(5000)]
    runs = [[i] for i in range(5000)] if level == 0 else [list(range(5000))]
    ranks = (np.arange(0, 10_000, 2), np.arange(1, 10_001, 2))
    drawn = drawing(files, runs, ranks, {}, set())
    tree = ElementTree.fromstring(drawn.svg)
    shapes = list(tree.iter("rect"))
    assert not drawn.is_whole
    assert 200 < len(shapes) <= SHAPES_MAX + 40
    told = [re.match(r"([\d,]+) files", each.findtext("title") or "") for each in shapes]
    assert sum(int(each[1].replace(",", "")) for each in told if each) == 5000
    assert (
        max(float(each.get("x", "").rstrip("%")) + float(each.get("width", "").rstrip("%")) for each in shapes) < 100.2
    )

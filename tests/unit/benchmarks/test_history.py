"""The records of the quick benchmark: their lines, how two of them differ, and their picture."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

from benchmarks import history
from benchmarks.history import Record

SVG = "{http://www.w3.org/2000/svg}"


def record(commit: str = "abc", rows: int = 1_000, **ratios: float) -> Record:
    return Record(commit, "2026-12-01", rows, ratios, {name: ratio / 2 for name, ratio in ratios.items()})


def test_a_record_is_one_line_and_comes_back() -> None:
    line = history.line_of(record(write=1.23456))
    facts = '"commit": "abc", "date": "2026-12-01", "rows": 1000'
    assert line == f'{{{facts}, "ratios": {{"write": 1.235}}, "fastest": {{"write": 0.617}}}}\n'
    read = Record("abc", "2026-12-01", 1_000, {"write": 1.235}, {"write": 0.617})
    assert history.parsed(line + "\n" + line) == [read, read]


def test_the_last_record_is_the_newest_of_the_same_size() -> None:
    records = [record("a"), record("b"), record("c", rows=5)]
    assert history.last_of(records, 1_000) == record("b")
    assert history.last_of(records, 7) is None


def test_a_ratio_is_worse_if_it_grew_by_more_than_a_quarter() -> None:
    before, now = record(write=1.0, scan=2.0, query=4.0), record(write=1.25, scan=3.0, query=1.0, lookup=9.0)
    assert history.worse(before, now) == {"scan": 1.5}


def test_a_median_alone_is_not_worse_if_the_fastest_run_is_as_fast() -> None:
    before = record(write=1.0, scan=1.0)
    now = replace(record(write=2.0, scan=2.0), fastest={"write": 0.5, "scan": 0.7})
    assert history.worse(before, now) == {"scan": 1.4}


def test_the_picture_has_a_chart_for_each_workload_of_the_newest_record() -> None:
    records = [record("a", old=1.0, write=2.0), record("b", rows=5, write=9.0), record("c", write=1.0, scan=0.5)]
    drawn = ElementTree.fromstring(history.picture(records))
    texts = [element.text for element in drawn.iter(f"{SVG}text")]
    assert texts == [
        "write",
        "1.00 x",
        "scan",
        "0.50 x",
        "2026-12-01 to 2026-12-01, 2 runs with 1,000 rows. The dashed line is the floor.",
    ]
    write, scan = (line.get("points") for line in drawn.iter(f"{SVG}polyline"))
    assert write == "16.0,37.3 376.0,57.6"  # from 2 to 1, where 2.16 is the top
    assert scan == "392.0,57.6 752.0,57.6"  # one point is drawn as a level line


def test_no_records_are_an_empty_picture() -> None:
    assert list(ElementTree.fromstring(history.picture([])).iter(f"{SVG}polyline")) == []

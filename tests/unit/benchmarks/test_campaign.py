"""The campaign's workload, and its results as table and picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import polars as pl
import pyarrow as pa
import pytest

from benchmarks.campaign import page, rows, workload
from benchmarks.campaign.__main__ import faults_of, joined, median_of
from benchmarks.campaign.store import newest, with_kinds
from benchmarks.data import load

SVG = "{http://www.w3.org/2000/svg}"
KEY = list(rows.KEY)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> workload.Workload:
    return workload.prepare(tmp_path_factory.mktemp("campaign"), 2_000, 20, 7)


def frame(path: Path) -> pl.DataFrame:
    found = pl.from_arrow(load(f"{path}.arrow"))
    assert isinstance(found, pl.DataFrame)
    return found


def test_the_expected_states_are_those_that_the_files_come_to(made: workload.Workload) -> None:
    state = frame(made.base(0))
    first, last = made.key_range
    for number in range(1, 21):
        written, deleted = frame(made.written(number)), frame(made.deleted(number))
        changed = pl.concat([written.select(KEY), deleted])
        assert changed.is_unique().all()
        state = pl.concat([state.join(changed, on=KEY, how="anti"), written])
        if number % 10 == 0:
            assert rows.digest(state.to_arrow()) == made.expected[f"all {number}"]
            some = state.filter(pl.col("order_id").is_between(first, last))
            assert rows.digest(some.to_arrow()) == made.expected[f"range {number}"]
    keys = pl.DataFrame(made.keys, schema={"order_id": pl.Int64, "line": pl.Int32}, orient="row")
    assert rows.digest(state.join(keys, on=KEY, how="semi").to_arrow()) == made.expected["keys"]


def test_few_orders_get_many_of_the_changes(made: workload.Workload) -> None:
    changes = pl.concat([frame(made.written(number)) for number in range(1, 21)])
    counts = changes.group_by("order_id", "line").len()["len"].sort(descending=True)
    assert counts[0] > 15  # the hottest line is changed in most of the 20 rounds
    assert counts.median() == 1


def test_the_same_seed_makes_the_same_files(made: workload.Workload, tmp_path: Path) -> None:
    again = workload.prepare(tmp_path, 2_000, 20, 7)
    assert again.expected == made.expected
    assert frame(again.written(20)).equals(frame(made.written(20)))


def test_the_digest_of_parts_is_that_of_the_whole(made: workload.Workload) -> None:
    table = load(f"{made.base(0)}.arrow")
    assert rows.sums([rows.digest(table.slice(0, 700)), rows.digest(table.slice(700))]) == rows.digest(table)
    assert rows.digest(table.slice(0, 0)) == rows.sums([]) == [0] * rows.SUMS


def test_the_newest_change_of_each_key_is_kept() -> None:
    table = rows.lines_of(3, 1, 7).table(rows.lines_of(3, 1, 7).live())
    changes = with_kinds(table, table.slice(1, 1).select(KEY)).append_column("at", pa.array([1, 1, 1, 2]))
    written, deleted = newest(changes, "at", "op", ["-D"])
    assert sorted(written["line"].to_pylist()) == sorted([table["line"][0].as_py(), table["line"][2].as_py()])
    assert deleted.to_pylist() == table.slice(1, 1).select(KEY).to_pylist()


# ── results ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def run(load_seconds: float = 1.0, **more: Any) -> dict[str, Any]:
    cost = {"seconds": load_seconds + 1, "cpu_seconds": load_seconds, "written_bytes": 3e6, "written_files": 2}
    found = {"phases": {"load": cost}, "unsupported": {}, "errors": {}, "wrong": [], "peak_bytes": 5e6, "load": 0.1}
    return found | more


def document(**contenders: dict[str, Any]) -> dict[str, Any]:
    known = {name: {"group": "embedded", "version": "1"} | each for name, each in contenders.items()}
    return {"rows": 10, "rounds": 10, "seed": 7, "contenders": known}


def test_runs_become_their_medians() -> None:
    found = median_of([run(1.0), run(9.0), run(2.0, unsupported={"compact": "has none"})])
    assert found["phases"]["load"]["cpu_seconds"] == 2.0
    assert (found["runs"], found["unsupported"], found["peak_bytes"]) == (3, {"compact": "has none"}, 5e6)


def test_failed_steps_and_wrong_rows_are_faults() -> None:
    assert faults_of(run()) == []
    assert faults_of(run(errors={"load": "no"}, wrong=["other rows"])) == ["load failed: no", "other rows"]


def test_results_are_joined_with_those_of_other_contenders_of_the_same_workload() -> None:
    before, now = document(ducklake=run(1.0), merganser=run(2.0)), document(merganser=run(3.0))
    (both,) = joined([before], now)
    assert [(name, each["phases"]["load"]["seconds"]) for name, each in both["contenders"].items()] == [
        ("merganser", 4.0),
        ("ducklake", 2.0),
    ]
    larger = before | {"rows": 11}
    assert joined([larger], now) == [larger, now]
    (replaced,) = joined([before | {"seed": 8}], now)
    assert list(replaced["contenders"]) == ["merganser"]


def test_the_table_marks_the_best_and_what_a_contender_lacks_and_says_why() -> None:
    lacking = run(12.34, unsupported={"compact": "has none"}, errors={"lookups": "TypeError: no"})
    text = page.text_of(document(merganser=run(), other=lacking))
    assert "| CPU seconds (wall seconds) | merganser 1 | other 1 |" in text
    assert "| load | **1.00** (2.00) | 12.3 (13.3) |" in text
    assert "| compact | – | – |" in text
    assert text.endswith("- compact: other: has none.\n- lookups: other: TypeError: no.")


def test_the_readme_shows_the_size_that_most_contenders_have() -> None:
    small, large = document(merganser=run(), a=run(7.0)), document(merganser=run(3.0)) | {"rows": 1_000}
    text = page.brief([small, large])
    assert text.startswith("| In one Python process, CPU seconds (wall seconds) | merganser 1 | a 1 |")
    assert "| load | **1.00** (2.00) | 7.00 (8.00) |" in text
    assert "files" not in text
    assert page.brief([]) == page.sections([]) == ""


def test_the_picture_has_a_bar_for_each_contender_and_cuts_long_ones() -> None:
    found = document(merganser=run(1.0), a=run(1.0), slow=run(100.0))
    (name,) = page.pictures([found])
    assert f"(assets/{name})" in page.sections([found])
    drawn = ElementTree.fromstring(page.pictures([found])[name])
    bars = [(bar.get("class"), bar.get("width")) for bar in drawn.iter(f"{SVG}rect")][1:4]
    assert bars == [("own", "29.0"), ("other", "29.0"), ("other", "116.0")]
    texts = [text.text for text in drawn.iter(f"{SVG}text")]
    assert "100 ›" in texts
    assert texts.count("–") == 10 * 3

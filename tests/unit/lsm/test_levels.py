"""Key ranges: sections that do not meet, runs inside them, and their order."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from merganser.codec.stats import EMPTY_ROW, NO_STATS
from merganser.lsm.levels import dense_ranks, runs_of, sections, top_level
from merganser.meta.data_file import DataFile
from merganser.options.option import Options


def _file(name: str, level: int = 0, low: int = 0, high: int = 0) -> DataFile:
    return DataFile(name, 1, 1, EMPTY_ROW, EMPTY_ROW, NO_STATS, NO_STATS, low, high, 0, level)


def _ranks(ranges: list[tuple[str, str]]) -> tuple[np.ndarray, np.ndarray]:
    return dense_ranks([pa.array([low for low, _ in ranges])], [pa.array([high for _, high in ranges])])


def test_files_that_share_a_key_are_in_one_section() -> None:
    low, high = _ranks([("a", "c"), ("c", "d"), ("e", "f"), ("g", "h")])
    assert [part.tolist() for part in sections(low, high)] == [[0, 1], [2], [3]]


def test_a_wide_file_ties_all_below_it_together() -> None:
    low, high = _ranks([("a", "z"), ("b", "c"), ("x", "y")])
    assert [sorted(part.tolist()) for part in sections(low, high)] == [[0, 1, 2]]


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)).map(lambda p: (min(p), max(p))), max_size=12))
def test_sections_are_the_connected_parts_of_overlapping_ranges(ranges: list[tuple[int, int]]) -> None:
    low, high = dense_ranks(
        [pa.array([a for a, _ in ranges], pa.int64())], [pa.array([b for _, b in ranges], pa.int64())]
    )
    found = [set(part.tolist()) for part in sections(low, high)] if ranges else []
    assert sorted(i for part in found for i in part) == list(range(len(ranges)))
    for a, part in enumerate(found):
        for other in found[a + 1 :]:
            assert all(ranges[i][1] < ranges[j][0] for i in part for j in other)
        reach = min(ranges[i][1] for i in part if ranges[i][0] == min(ranges[k][0] for k in part))
        for i in sorted(part, key=lambda i: ranges[i]):
            assert ranges[i][0] <= reach or any(ranges[k][0] < ranges[i][0] <= ranges[k][1] for k in part if k != i)
            reach = max(reach, ranges[i][1])


def test_equal_keys_have_equal_ranks_in_every_column() -> None:
    low, high = dense_ranks(
        [pa.array([1, 1, 2]), pa.array(["a", "b", "a"])], [pa.array([1, 2, 2]), pa.array(["b", "a", "a"])]
    )
    assert high[0] == low[1]
    assert high[1] == low[2] == high[2]
    assert low[0] < low[1] < low[2]


def test_files_of_level_0_are_runs_and_a_higher_level_is_one() -> None:
    files = [_file("l5-b", 5, 0, 9), _file("new", 0, 30, 39), _file("l5-a", 5, 0, 8), _file("old", 0, 20, 29)]
    low, high = _ranks([("m", "p"), ("a", "z"), ("a", "c"), ("a", "z")])
    assert [[f.name for f in run] for run in runs_of(files, low, high)] == [["l5-a", "l5-b"], ["old"], ["new"]]


def test_a_level_whose_files_meet_is_taken_apart() -> None:
    files = [_file("a", 4, 0, 5), _file("b", 4, 6, 9)]
    low, high = _ranks([("a", "m"), ("k", "z")])
    assert [[f.name for f in run] for run in runs_of(files, low, high)] == [["a"], ["b"]]


def test_of_equal_numbers_the_lower_level_is_newer() -> None:
    files = [_file("young", 0, 0, 5), _file("old", 5, 0, 5), _file("middle", 3, 0, 5)]
    low, high = _ranks([("a", "z")] * 3)
    assert [run[0].name for run in runs_of(files, low, high)] == ["old", "middle", "young"]


def test_the_files_of_a_large_flush_are_one_run() -> None:
    """They share its numbers, and no keys: the flush was cut at the size of a file."""
    files = [_file("b", 0, 1, 88), _file("a", 0, 0, 90), _file("c", 0, 4, 80), _file("later", 0, 91, 95)]
    low, high = _ranks([("d", "g"), ("a", "c"), ("h", "k"), ("a", "k")])
    assert [[f.name for f in run] for run in runs_of(files, low, high)] == [["a", "b", "c"], ["later"]]


def test_files_that_share_numbers_and_keys_are_runs_of_their_own() -> None:
    files = [_file("one", 0, 0, 9), _file("other", 0, 5, 12), _file("third", 0, 12, 13)]
    low, high = _ranks([("a", "d"), ("c", "f"), ("x", "z")])
    assert [[f.name for f in run] for run in runs_of(files, low, high)] == [["one"], ["other"], ["third"]]


def test_the_highest_level_follows_the_options_and_files_that_lie_higher():
    assert top_level(Options()) == 5
    assert top_level(Options({"num-sorted-run.compaction-trigger": "3"})) == 3
    assert top_level(Options({"num-levels": "3"}), [0, 1]) == 2
    assert top_level(Options({"num-levels": "3"}), [0, 4, 5]) == 5

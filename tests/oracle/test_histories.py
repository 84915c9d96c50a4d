"""The oracle of key tables, and the windows that merges work in."""

from __future__ import annotations

from merganser.merge import sort_merge
from tests.oracle.tables import DeduplicateOracle


def test_the_oracle_hides_a_key_whose_newest_row_retracts() -> None:
    oracle = DeduplicateOracle(key=["k"])
    oracle.write([("+I", {"k": 1, "v": "a"}), ("+I", {"k": 2, "v": "b"})])
    oracle.write([("-D", {"k": 1, "v": None})])
    assert oracle.visible() == [{"k": 2, "v": "b"}]


def test_windows_are_bounded_by_rows() -> None:
    assert sort_merge.WINDOW_ROWS <= 1_000_000

"""Windows of any size give the rows that one sort of everything gives, and none is much larger than asked."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merganser.errors import FormatError
from merganser.merge.order import arrivals
from merganser.merge.sort_merge import Stretch, windows

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.string()), ("seq", pa.int64()), ("kind", pa.int8()), ("v", pa.int64())])


class ArrayRun:
    """A sorted run in memory, handed out in groups of some rows."""

    def __init__(self, table: pa.Table, group: int) -> None:
        self.table, self.group, self.at, self.asked = table, group, 0, 0
        self.rows = table.num_rows

    def read(self, rows: int) -> pa.Table | None:
        self.asked += 1
        if self.at >= self.table.num_rows:
            return None
        take = max(self.group, rows // self.group * self.group)
        part = self.table.slice(self.at, take)
        self.at += part.num_rows
        return part


Rows = list[tuple[Any, ...]]


def _run(rows: Rows, group: int = 1) -> ArrayRun:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(SCHEMA)
    return ArrayRun(pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA), group)


@st.composite
def _runs(draw: Any) -> list[Rows]:
    out = []
    number = 0
    for _ in range(draw(st.integers(1, 5))):
        keys = draw(st.sets(st.tuples(st.none() | st.integers(-3, 12), st.sampled_from(["", "a", "ab"])), max_size=12))
        rows = []
        for key in sorted(keys, key=lambda k: ((0,) if k[0] is None else (1, k[0]), k[1])):
            rows.append((*key, draw(st.integers(0, 9)), draw(st.integers(0, 3)), number))
            number += 1
        out.append(rows)
    return out


def _by_kind(stretch: Stretch) -> np.ndarray:
    return arrivals(stretch.rows.column("seq").to_numpy(), stretch.rows.column("kind").to_numpy())


TIES = {"run": None, "sequence": lambda stretch: stretch.rows.column("seq").to_numpy(), "kind": _by_kind}


def _with_runs(window: Stretch) -> Iterator[tuple[int, int]]:
    """Yield the run that a window names for each row, and the number of the row, which rises from run to run."""
    return zip(window.run_of().tolist(), window.rows.column("v").to_pylist(), strict=True)


def _newest(runs: list[Rows], by: str) -> dict[Any, tuple[Any, ...]]:
    """Return the newest row of each key: the rule in words of one row at a time."""
    found: dict[Any, tuple[Any, ...]] = {}
    for rows in runs:
        for row in rows:
            old = found.get(row[:2])
            if (
                by == "run"
                or old is None
                or (by == "sequence" and row[2] >= old[2])
                or (by == "kind" and (row[2], row[3] % 2 == 0) >= (old[2], old[3] % 2 == 0))
            ):
                found[row[:2]] = row
    return found


@settings(max_examples=200, deadline=None)
@given(_runs(), st.integers(1, 40), st.integers(1, 7), st.sampled_from(["run", "sequence", "kind"]))
def test_windows_of_any_size_give_the_newest_row_of_every_key_once(
    runs: list[Rows], size: int, group: int, by: str
) -> None:
    made = windows(
        [_run(rows, group) for rows in runs],
        key=["k", "t"],
        tie=TIES[by],
        window_rows=size,
    )
    found: list[tuple[Any, ...]] = []
    rows_seen = 0
    for window in made:
        rows_seen += window.rows.num_rows
        assert [runs[run][0][-1] <= v <= runs[run][-1][-1] for run, v in _with_runs(window)] == [
            True
        ] * window.rows.num_rows
        taken = window.rows.take(pa.array(window.positions[window.is_last]))
        found += list(zip(*(taken.column(name).to_pylist() for name in SCHEMA.names), strict=True))
    expected = _newest(runs, by)
    assert rows_seen == sum(map(len, runs))
    keys = [row[:2] for row in found]
    assert keys == sorted(expected, key=lambda k: ((0,) if k[0] is None else (1, k[0]), k[1]))
    assert {row[:2]: row for row in found} == expected


@pytest.mark.parametrize("shape", ["even", "skewed", "apart", "long tail"])
@pytest.mark.parametrize("size", [50, 1000])
def test_no_window_is_much_larger_than_asked(shape: str, size: int) -> None:
    rng = random.Random(4)
    group = 10
    count = {"even": [2000] * 5, "skewed": [9000, 10, 10, 900], "apart": [2000] * 4, "long tail": [5000] + [30] * 20}[
        shape
    ]
    runs = []
    for i, n in enumerate(count):
        low = i * 10_000 if shape == "apart" else 0
        keys = sorted(rng.sample(range(low, low + 20_000), n))
        runs.append(_run([(k, "", i, 0, k) for k in keys], group))
    largest = total = 0
    for window in windows(runs, key=["k"], window_rows=size):
        largest = max(largest, window.rows.num_rows)
        total += window.rows.num_rows
    assert total == sum(count)
    assert largest <= size + len(runs) * (group + 1)


def test_windows_are_of_about_the_size_asked_so_that_their_cost_vanishes() -> None:
    runs = [_run([(k, "", i, 0, k) for k in range(i, 20_000, 4)], 10) for i in range(4)]
    sizes = [window.rows.num_rows for window in windows(runs, key=["k"], window_rows=1000)]
    assert len(sizes) <= 2 * 20_000 // 1000
    assert sum(run.asked for run in runs) <= 8 * len(sizes)


@pytest.mark.parametrize("wide", [[0], [0, 1, 2], [2]])
def test_windows_of_wide_rows_are_small_whichever_run_has_them(wide: list[int]) -> None:
    runs = [
        _run([(k, ("x" * 10_000) if i in wide else "", i, 0, k) for k in range(i, 3_000, 3)], group=5) for i in range(3)
    ]
    sizes, rows = [], 0
    for window in windows(runs, key=["k"], window_rows=100_000, window_bytes=400_000):
        sizes.append(window.rows.nbytes)
        rows += window.rows.num_rows
    assert rows == 3_000
    assert max(sizes) <= 2 * 400_000
    assert len(sizes) < 200


@pytest.mark.parametrize("keys", [(9, 8, 7, 1, 2, 3), (1, 2, 9, 3, 4, 5), (5, 1, 6, 2, 7, 3), (4, 5, 6, 1, 2, 3)])
def test_a_run_that_is_not_sorted_is_refused_and_gives_no_key_twice(keys: tuple[int, ...]) -> None:
    runs = [_run([(k, "", 0, 0, k) for k in keys]), _run([(k, "", 1, 0, k) for k in (1, 2, 3, 4, 5, 6)])]
    with pytest.raises(FormatError, match="not sorted by its key \\(k\\)"):
        list(windows(runs, key=["k"], window_rows=4))


def test_sequence_numbers_too_large_to_double_still_order_rows() -> None:
    runs = [_run([(1, "", 2**62 + 5, 0, 10)]), _run([(1, "", 2**62 + 4, 0, 11)])]
    [window] = windows(runs, key=["k"], tie=_by_kind)
    assert window.rows.column("v")[int(window.positions[window.is_last][0])].as_py() == 10

"""Charts: what is drawn of odd values, and how much of many."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from merganser.console.charts import Column, bar_chart, column_chart, line_chart

_START = datetime(2026, 11, 30, 12, tzinfo=UTC)
_TIMES = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31))
_VALUES = st.floats() | st.integers(-(2**63), 2**63)
_TEXTS = st.text(st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="\ufffe\uffff"))


@given(
    st.lists(st.tuples(_TIMES, _VALUES), max_size=8) | st.lists(st.tuples(st.floats(-1e18, 1e18), _VALUES), max_size=8),
    _TEXTS,
    st.sampled_from(["", "bytes", "s"]),
)
def test_any_points_make_a_well_formed_chart(points: list[tuple[float, float]], title: str, unit: str) -> None:
    found = ElementTree.fromstring(line_chart(points, title=title, unit=unit))
    assert "".join(found.find("figcaption").itertext()).startswith(title)  # type: ignore[union-attr]
    for x in (each.get("x") for each in found.iter("text")):
        assert x is not None
        assert 0 <= float(x.rstrip("%")) <= 1000


@given(st.lists(st.tuples(_TEXTS, _VALUES), max_size=4))
def test_any_bars_make_a_well_formed_chart(bars: list[tuple[str, float]]) -> None:
    ElementTree.fromstring(bar_chart(bars, title="bars"))


def test_times_are_marked_at_round_ones() -> None:
    chart = line_chart([(_START + timedelta(minutes=7 * i), i) for i in range(60)], title="size")
    texts = [each.text for each in ElementTree.fromstring(chart).iter("text")]
    assert texts == ["0", "20", "40", "60", "12:00", "15:00", "18:00"]


@pytest.mark.parametrize(
    "chart",
    [
        lambda: line_chart([(float(i), i % 1000) for i in range(100_000)], title="many"),
        lambda: column_chart([Column(f"#{i}", i, i, f"<{i}>") for i in range(200)], title="rows"),
        lambda: bar_chart([(str(date(2026, 1, 1) + timedelta(i)), i) for i in range(5000)], title="days"),
    ],
)
def test_a_chart_of_many_points_stays_small(chart: Callable[[], Markup]) -> None:
    text = chart()
    assert len(text) < 120_000
    assert len(list(ElementTree.fromstring(text).iter())) < 1300

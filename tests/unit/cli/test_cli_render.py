"""Numbers, sizes and charts."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal
from io import StringIO

import pytest
from rich.console import Console

from merganser.cli import render


def test_numbers_have_separators_and_nouns_a_plural() -> None:
    assert render.count(1234567) == "1,234,567"
    assert (render.counted(1, "file"), render.counted(2000, "file")) == ("1 file", "2,000 files")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "null"),
        (True, "true"),
        (1234567, "1234567"),
        (Decimal("1.50"), "1.50"),
        (Decimal("1E+3"), "1000"),
        (date(2026, 1, 2), "2026-01-02"),
        (datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "2026-01-02 03:04:05+00:00"),
        (datetime(2026, 1, 2, 3, 4, 5, 120000, tzinfo=UTC), "2026-01-02 03:04:05.12+00:00"),
        (time(10, 0, 0, 500000), "10:00:00.5"),
        (time(10, 0, 10), "10:00:10"),
        (b"\x01", "x'01'"),
        (["a", None, Decimal("1.5")], '["a", null, "1.5"]'),
        ({"k": date(2026, 1, 2)}, '{"k": "2026-01-02"}'),
        ([(1, "a")], '[[1, "a"]]'),
        ("tab\there", r"tab\there"),
    ],
)
def test_data_is_shown_as_it_is(value: object, shown: str) -> None:
    assert render.cell(value) == shown


def test_bars_are_exact_to_an_eighth() -> None:
    assert render.bar(1, most=1, width=4) == "████"
    assert render.bar(0.5, most=1, width=4) == "██"
    assert render.bar(1, most=32, width=4) == "▏"
    assert render.bar(-1, most=1, width=4) == ""


def test_sparklines_go_from_the_lowest_to_the_highest() -> None:
    assert render.sparkline([0, 7, 3]) == "▁█▄"
    assert render.sparkline([5, 5]) == "▅▅"
    assert render.sparkline([]) == ""


@pytest.mark.parametrize("value", ["short", "as long as a value must be that goes on below itself"])
def test_of_facts_only_the_names_are_bold(value: str) -> None:
    out = StringIO()
    render.facts(Console(file=out, force_terminal=True, width=40, color_system="standard"), [("name", value)])
    assert out.getvalue().startswith(f"\x1b[1mname  \x1b[0m{value[:5]}")
    assert out.getvalue().count("\x1b[1m") == 1

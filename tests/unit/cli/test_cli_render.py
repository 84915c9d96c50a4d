"""Numbers, sizes and charts."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from merganser.cli import render


def test_numbers_have_separators_and_nouns_a_plural() -> None:
    assert render.count(1234567) == "1,234,567"
    assert (render.counted(1, "file"), render.counted(2000, "file")) == ("1 file", "2,000 files")


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

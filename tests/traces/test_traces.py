"""Golden traces. After a change on purpose: `python -m tests.traces`, and the commit says why."""

from __future__ import annotations

from pathlib import Path

import pytest

from .roads import ROADS
from .tracing import text_of

HERE = Path(__file__).parent
GOLDEN = HERE / "golden"


@pytest.mark.parametrize("name", ROADS)
def test_a_road_asks_the_store_as_it_did(name: str) -> None:
    made = ROADS[name]()
    assert text_of(made.log, name, made.files) == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")


def test_no_trace_is_left_of_a_road_that_is_gone() -> None:
    assert {path.stem for path in GOLDEN.iterdir() if not path.stem.startswith("spark_")} == {*ROADS}

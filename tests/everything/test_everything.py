"""A slice of the histories that draw everything, and that some features meet each other in them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.everything.campaign import Failure, report, run
from tests.everything.history import History, repeatable
from tests.everything.schemas import wider_types
from tests.everything.steps import STEPS

SEEDS = (1, 2, 6, 8, 10, 11, 12, 13, 15, 17, 20, 24, 162)


@pytest.mark.campaign(1 / 6)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_history_that_draws_everything_is_as_the_model_says(seed: int) -> None:
    found = run(seed)
    assert not isinstance(found, Failure), report(found)


@pytest.mark.parametrize("name", ["changes", "stream", "shards", "follow"])
def test_a_reader_goes_on_beside_wider_types_and_after_a_rollback(name: str, tmp_path: Path) -> None:
    check_follower(name, tmp_path, History)


def check_follower(name: str, path: Path, opened: Callable[..., History], *arguments: Any) -> None:
    """Widen a table and roll it back beside what follows it, and compare after each step."""
    with repeatable(name):
        h = _followed(name, path, opened, *arguments)
        rng = random.Random(name)
        verbs = ["write", "widen", "write"]
        while verbs:
            h.tick(rng)
            STEPS[verbs.pop(0)][0](h, rng)
            h.settle()
            History.compare(h, rng, last=not verbs)
            if not verbs and not h.compared[f"{name} gone back"]:
                verbs = ["write", "rollback", "write"]  # perhaps to the newest snapshot, which takes nothing back
        assert h.compared[f"wider beside {name}"] == 1
        assert h.compared[name]


def _followed(name: str, path: Path, opened: Callable[..., History], *arguments: Any) -> History:
    """Return the first history whose table has such a follower, and columns that can become wider."""

    def histories() -> Iterator[History]:
        for number in range(200):
            yield opened(f"{name} {number}", path / str(number), *arguments)

    return next(
        h
        for h in histories()
        if h.follower is not None
        and (h.follower.name, h.follower.stays, h.follower.waits) == (name, True, False)
        and wider_types(h)
        and not h.leaves_out
    )

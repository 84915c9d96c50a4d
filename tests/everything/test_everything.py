"""A slice of the histories that draw everything."""

from __future__ import annotations

import pytest

from tests.everything.campaign import Failure, report, run

SEEDS = (1, 2, 6, 8, 10, 11, 12, 13, 15, 17, 20, 24)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_history_that_draws_everything_is_as_the_model_says(seed: int) -> None:
    found = run(seed)
    assert not isinstance(found, Failure), report(found)

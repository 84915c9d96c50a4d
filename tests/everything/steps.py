"""The steps of histories by their names; modules of steps add theirs."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.everything.history import History

Step = Callable[[History, random.Random], None]
STEPS: dict[str, tuple[Step, int]] = {}
"""What can be done, and how often it is drawn."""


def step(often: int) -> Callable[[Step], Step]:
    """Add a step that is drawn so often."""

    def added(function: Step) -> Step:
        STEPS[function.__name__] = (function, often)
        return function

    return added

"""How many random histories a test runs, and which cases of a campaign run on a day."""

import os
import random
from collections.abc import Sequence
from datetime import date
from typing import TypeVar

T = TypeVar("T")

_TIMES = int(os.environ.get("MERGANSER_SEEDS", "1"))


def seeds(count: int) -> range:
    """Return the seeds of a test: `count`, or so many times as many as `MERGANSER_SEEDS` says."""
    return range(count * _TIMES)


def day() -> date:
    """Return the day whose parts run: `MERGANSER_DAY`, which `tests/conftest.py` sets to today if it is not set."""
    return date.fromisoformat(os.environ["MERGANSER_DAY"])


def part_of(cases: Sequence[T], part: float, name: str, day: date, first: int | None = None) -> list[T]:
    """Return the cases of a campaign that run on a day. With a part of 1/7, each case runs once in seven days.

    Args:
        name: of the campaign; the order of its cases is drawn with it.
        first: which part runs on day 0; None: drawn with the name, so that campaigns with fewer cases than days do not
            all have them on the same day. Slow campaigns say it: the draw may put all of them on one day.
    """
    days, rng = round(1 / part), random.Random(name)
    drawn = rng.randrange(days)
    return rng.sample(cases, len(cases))[((drawn if first is None else first) + day.toordinal()) % days :: days]

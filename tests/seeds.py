"""How many random histories a test runs."""

import os

_TIMES = int(os.environ.get("MERGANSER_SEEDS", "1"))


def seeds(count: int) -> range:
    """Return the seeds of a test: `count`, or so many times as many as `MERGANSER_SEEDS` says."""
    return range(count * _TIMES)

"""Faults: failing storage, stopped processes, damaged bytes, races."""

import os
import zlib
from typing import Any

from merganser.testing.faulty import run_every

STEP = int(os.environ.get("MERGANSER_FAULT_STEP", "7"))
"""Of the long fault tests every so-manieth storage call is struck, from another first call in each; 1: every call."""


def run_some(*arguments: Any, **options: Any) -> int:
    """Run `run_every` for every `STEP`-th call, and return how many runs there were, about, if each were struck."""
    first = 1 + zlib.crc32(os.environ.get("PYTEST_CURRENT_TEST", "").encode()) % STEP  # another one in each test
    return STEP * run_every(*arguments, **options, first=first, step=STEP)

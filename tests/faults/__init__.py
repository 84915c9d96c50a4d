"""Faults: failing storage, stopped processes, damaged bytes, races."""

import os
import zlib
from typing import Any

from tests.kit.faulty import Fault, run_every
from tests.seeds import day

STEP = int(os.environ.get("MERGANSER_FAULT_STEP", "14"))
"""Long fault tests strike one storage call in this number of calls, each day another one. 1: every call."""


def run_some(*arguments: Any, **options: Any) -> int:
    """Run `run_every` for every `STEP`-th call, and return how many runs there were, about, if each were struck."""
    name = os.environ.get("PYTEST_CURRENT_TEST", "")
    first = 1 + (zlib.crc32(name.encode()) + day().toordinal()) % STEP
    while True:
        runs = run_every(*arguments, **options, first=first, step=STEP)
        if runs > len(tuple(options.get("faults", Fault))) or first == 1:
            return STEP * runs
        first = (first + 1) // 2  # there are fewer calls: none was struck

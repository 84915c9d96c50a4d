"""Times of short actions that one process repeats; needs pyarrow alone, since the peers' environments have no more."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa


def timed_each(batches: Sequence[pa.Table], write: Callable[[pa.Table], object]) -> dict[str, Any]:
    """Write batches one by one; gives the seconds of each."""
    each = []
    for batch in batches:
        start = time.perf_counter()
        write(batch)
        each.append(time.perf_counter() - start)
    return {"rows": sum(batch.num_rows for batch in batches), "each_seconds": each}


def timed_often(action: Callable[[], int], times: int = 15) -> dict[str, Any]:
    """Do something short several times; the seconds are the median."""
    each = []
    for _ in range(times):
        start = time.perf_counter()
        rows = action()
        each.append(time.perf_counter() - start)
    return {"rows": rows, "seconds": statistics.median(each)}

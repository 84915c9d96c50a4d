"""What every store is asked in `lookups`: the same random keys, timed the same way. Half of the numbers are keys."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

SINGLE, BATCHES, BATCH, MANY = 2_000, 30, 1_000, 1_000_000


def measures(
    keys: np.ndarray, one: Callable[[int], object], many: Callable[[np.ndarray], int], *, slow: bool = False
) -> dict[str, Any]:
    """Return the medians of lookups.

    Args:
        keys: all keys of the store.
        one: looks up one key.
        many: looks up keys and returns how many rows it got.
        slow: few of each.
    """
    rng = np.random.default_rng(11)
    single = 20 if slow else SINGLE
    hits = rng.choice(keys, single).tolist()
    top = int(keys.max())
    misses = (rng.integers(top + 1, 2 * top, single)).tolist()
    among = rng.integers(0, top, single).tolist()  # half of them are keys
    for key in hits[: single // 4]:
        one(key)
    found: dict[str, Any] = {
        "single_us": _median(one, hits) * 1e6,
        "miss_us": max(_median(one, misses), _median(one, among)) * 1e6,
    }
    batches = [rng.choice(keys, BATCH, replace=False) for _ in range(3 if slow else BATCHES)]
    found["batch_ms"] = _median(many, batches) * 1e3
    rows = sum(many(batch) for batch in batches)
    if rows != sum(len(batch) for batch in batches):
        raise AssertionError(f"{rows} rows of {sum(map(len, batches))} keys")
    found["own_bytes"] = own_bytes()
    if not slow:
        found["many_seconds"] = _median(many, [rng.choice(keys, MANY)])
    return {**found, "rows": rows}


def own_bytes() -> int:
    """Return the resident memory of this process without mapped files."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0


def _median(call: Callable[[Any], object], items: list[Any]) -> float:
    times = []
    for item in items:
        start = time.perf_counter()
        call(item)
        times.append(time.perf_counter() - start)
    return statistics.median(times)

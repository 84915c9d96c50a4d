"""The lookups of `lookups.py` by filtered scans of `pypaimon-rust`; few of them, since each plans and reads."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from . import asked, peer_rust
from .data import load

warm_up = lambda: None  # noqa: E731 - the scans are of one kind


def make(table: str, base: str) -> Callable[[], int]:
    """Write the base."""
    write = peer_rust.write(table, base)
    np.save(str(Path(table).with_suffix(".keys.npy")), load(base)["k"].to_numpy())
    return write


def lookups(table: str, copies: str, key_space: int) -> Callable[[], dict[str, Any]]:
    """Look keys up."""
    keys = np.load(str(Path(table).with_suffix(".keys.npy")))

    def action() -> dict[str, Any]:
        start = time.perf_counter()
        target = peer_rust._open(table)
        prepared = time.perf_counter() - start

        def rows_of(method: str, values: list[int]) -> int:
            builder = target.new_read_builder().with_filter({"method": method, "field": "k", "literals": values})
            return sum(batch.num_rows for batch in builder.new_read().read_arrow(builder.new_scan().plan().splits()))

        found = asked.measures(
            keys, lambda key: rows_of("equal", [key]), lambda some: rows_of("in", sorted(set(some.tolist()))), slow=True
        )
        return {**found, "prepare_seconds": prepared}

    return action

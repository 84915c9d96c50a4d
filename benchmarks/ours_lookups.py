"""The lookups of `lookups.py` by merganser, through its public surface only."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from typing import Any

import numpy as np
import pyarrow as pa

import merganser as mg

from . import asked, ours
from .data import few, load

warm_up = lambda: None  # noqa: E731 - what a fresh process pays is measured


def make(table: str, base: str, runs: int = 0, run_rows: int = 0) -> Callable[[], int]:
    """Write the base, compact it, and write some runs of rows into it."""
    rows = load(base)
    ours.create(table)

    def action() -> int:
        target = mg.table(table)
        target.write(rows)
        target.compact(full=True)
        for run in range(runs):
            target.write(few(run_rows, 2 * rows.num_rows, run))
        return int(rows.num_rows)

    return action


def lookups(table: str, copies: str, key_space: int) -> Callable[[], dict[str, Any]]:
    """Look keys up with a handle that has its copies."""
    shutil.rmtree(copies, ignore_errors=True)
    target = mg.table(table, options={"lookup.cache-directory": copies})
    keys = target.read(columns=["k"]).to_arrow()["k"].to_numpy()

    def action() -> dict[str, Any]:
        pa.default_memory_pool().release_unused()  # of the read of the keys
        before = asked.own_bytes()
        start = time.perf_counter()
        handle = target.lookups(cache="all")
        handle.lookup(pa.table({"k": keys[:: len(keys) // 10_000]}))
        prepared = time.perf_counter() - start
        found = asked.measures(
            keys,
            lambda key: handle.lookup({"k": key}),
            lambda some: int(handle.lookup(pa.table({"k": some})).num_rows),
        )
        return {**found, "prepare_seconds": prepared, "own_bytes": max(0, found["own_bytes"] - before)}

    return action


def cold(table: str, copies: str, key_space: int, pandas: bool = False) -> Callable[[], dict[str, Any]]:
    """Look up one key in a table that is known by its path.

    Args:
        pandas: leave pandas to be found, if it is installed; merganser does not install it. pyarrow imports it with the
            first array that a process makes.
    """
    shutil.rmtree(copies, ignore_errors=True)
    if not pandas:
        sys.meta_path.insert(0, _WithoutPandas())
    key = int(np.random.default_rng().integers(0, key_space))
    options = {"lookup.cache-directory": copies}
    mg.table  # noqa: B018 - imports what it needs

    def action() -> dict[str, Any]:
        start = time.perf_counter()
        found = mg.table(table, options=options).lookup({"k": key})
        return {"cold_ms": (time.perf_counter() - start) * 1e3, "rows": found.num_rows}

    return action


class _WithoutPandas(MetaPathFinder):
    """Python finds no pandas, as if it were not installed."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        """Fail for pandas; other modules are left to the next finder."""
        if fullname.partition(".")[0] == "pandas":
            raise ModuleNotFoundError("pandas is not to be found here", name="pandas")


def refresh(table: str, copies: str, key_space: int) -> Callable[[], dict[str, Any]]:
    """Refresh a warm handle after a commit, and look one of the new rows up."""
    target = mg.table(table, options={"lookup.cache-directory": copies})
    handle = target.lookups(cache="all")
    handle.lookup(few(1_000, key_space, 1).select(["k"]))
    other = mg.table(table)

    def action() -> dict[str, Any]:
        times = []
        for seed in range(5):
            rows = few(1_000, key_space, 100 + seed)
            other.write(rows)
            start = time.perf_counter()
            handle.refresh()
            handle.lookup({"k": rows["k"][0].as_py()})
            times.append(time.perf_counter() - start)
        return {"refresh_ms": sorted(times)[2] * 1e3, "rows": 1_000}

    return action

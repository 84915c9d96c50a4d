"""The tables of `producers.py` and `old_rows.py`, through the public surface only."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

import pyarrow as pa

import merganser as mg

from . import ours
from .data import few, load
from .timing import timed_each

WARM_FROM = 4
"""The commits before it read the base, and then copy it."""


def warm_up() -> None:
    """Take every producer through a table of a few rows."""
    with tempfile.TemporaryDirectory() as directory:
        for producer in ("input", "lookup", "per-record", "full-compaction"):
            path = f"{directory}/db.db/{producer}"
            ours.create(path, {"changelog-producer": producer})
            target = _opened(path, f"{directory}/copies")
            for seed in range(3):
                target.write(few(20, 40, seed))
            target.compact(full=True)


def make(
    table: str, options: Mapping[str, str], base: str, times: int = 1, upserts: Sequence[str] = ()
) -> Callable[[], int]:
    """Write the base, or twice its rows, compact it, and write upserts into it without a compaction."""
    rows = load(base)
    ours.create(table, dict(options))

    def action() -> int:
        target = mg.table(table)
        for i in range(times):
            keys = pa.array(rows["k"].to_numpy() + i * 2 * rows.num_rows)
            target.write(rows.set_column(rows.column_names.index("k"), "k", keys))
        target.compact(full=True)
        for path in upserts:
            target.write(load(path))
        return int(rows.num_rows)

    return action


def upserts(table: str, copies: str, upserts: Sequence[str]) -> Callable[[], int]:
    """Write ten upserts, ten commits, with the compactions that they make due."""
    batches = [load(path) for path in upserts]
    target = _opened(table, copies)

    def action() -> int:
        for batch in batches:
            target.write(batch)
        return sum(batch.num_rows for batch in batches)

    return action


def compact(table: str, copies: str) -> Callable[[], int]:
    """Compact fully."""
    target = _opened(table, copies)

    def action() -> int:
        target.compact(full=True)
        return target.snapshots()[-1].total_record_count or 0

    return action


def small_commits(table: str, copies: str, rows: int, commits: int, key_space: int) -> Callable[[], dict[str, Any]]:
    """Commit random keys; gives the milliseconds of a commit once the base has its lookup copies."""
    batches = [few(rows, key_space, seed) for seed in range(commits)]
    target = _opened(table, copies)

    def action() -> dict[str, Any]:
        found = timed_each(batches, target.write)
        each = found["each_seconds"]
        warm = {"warm_ms": 1e3 * median(each[WARM_FROM:])} if len(each) > WARM_FROM else {}
        return found | warm | {"commits": commits}

    return action


def _opened(table: str, copies: str) -> mg.Table:
    return mg.table(table, options={"lookup.cache-directory": copies, "write-only": "false"})

"""The actions of `dml.py`, through the public surface only."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np

import merganser as mg

from . import ours_buckets
from .data import few, load

WARM_FROM = 5
"""The commits before it bring memory and lookup copies to where they stay."""
FILTER = "i32 < 10000"


def warm_up() -> None:
    """Take every action through a few rows."""
    with tempfile.TemporaryDirectory() as directory:
        table = f"{directory}/db.db/t"
        ours_buckets.create(table, {"bucket": "2"}, ["k"], [])
        rows = few(50, 100, 0)
        mg.table(table).write(rows)
        for how in ("floor", "update", "delete"):
            by_key(table, how, 3, 10, 100)()
            by_value(table, how)()
        mg.table(table).merge(rows, on="target.k = source.k").when_matched_update().when_not_matched_insert().execute()


def make(table: str, base: str) -> Callable[[], int]:
    """Write the base into a new table, one commit, and compact it."""
    written = ours_buckets.write(table, base, options={"bucket": "4"}, primary_key=["k"], partition_by=[])

    def action() -> int:
        rows = written()
        mg.table(table, options={"write-only": "false"}).compact(full=True)
        return rows

    return action


def by_key(table: str, how: str, commits: int, rows: int, key_space: int) -> Callable[[], dict[str, Any]]:
    """Change rows of random keys, a commit for each set; gives the milliseconds of a commit of a warm process.

    Args:
        how: "update" or "delete" by a list of keys; "floor": upsert whole rows of these keys.
    """
    target, rng = mg.table(table), np.random.default_rng(11)
    keys = [rng.choice(key_space, rows, replace=False).tolist() for _ in range(commits)]
    wheres = [f"k IN ({', '.join(map(str, each))})" for each in keys]
    batches = [few(rows, key_space, seed) for seed in range(commits)]

    def action() -> dict[str, Any]:
        change: dict[str, Callable[[int], object]] = {
            "floor": lambda i: target.upsert(batches[i]),
            "update": lambda i: target.update(wheres[i], {"i32": "i32 + 1"}),
            "delete": lambda i: target.delete(wheres[i]),
        }
        each = []
        for i in range(commits):
            start = time.perf_counter()
            change[how](i)
            each.append(time.perf_counter() - start)
        found = {"rows": commits * rows, "each_seconds": each}
        return found | {"warm_ms": 1e3 * median(found["each_seconds"][WARM_FROM:] or [0.0]), "commits": commits}

    return action


def by_value(table: str, how: str) -> Callable[[], int]:
    """Change the rows of a filter, one in a hundred.

    Args:
        how: "update" or "delete"; "floor": read these rows, and write them.
    """
    target = mg.table(table)

    def action() -> int:
        if how == "floor":
            rows = target.read(where=FILTER).to_arrow()
            target.write(rows)
            return int(rows.num_rows)
        made = target.update(FILTER, {"f64": "f64 + 1"}) if how == "update" else target.delete(FILTER)
        return 0 if made is None else (made.rows_updated or 0) + (made.rows_deleted or 0)

    return action


def merge(table: str, how: str, batch: str) -> Callable[[], int]:
    """Merge a batch by key.

    Args:
        how: "merge"; "floor": upsert the batch, and read the columns that the merge reads.
    """
    target, rows = mg.table(table), load(batch)

    def action() -> int:
        if how == "floor":
            target.upsert(rows)
            return int(target.read(columns=["k", "i32", "f64"]).to_arrow().num_rows)
        started = target.merge(rows, on="target.k = source.k")
        sets = {"i32": "source.i32", "f64": "target.f64 + source.f64"}
        made = started.when_matched_update(sets).when_not_matched_insert().execute()
        return 0 if made is None else (made.rows_updated or 0) + (made.rows_inserted or 0)

    return action

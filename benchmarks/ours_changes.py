"""The reads of `changes.py` by merganser, through its public surface only."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import merganser as mg

from . import ours
from .data import few, load


def warm_up() -> None:
    """Read changes of a table of twenty rows in each way."""
    with tempfile.TemporaryDirectory(prefix="merganser-warm-") as directory:
        table = str(Path(directory) / "db.db" / "t")
        commits(table, commits_count=2, rows=10)()
        mg.table(table).compact(full=True)
        for mode, end in (("delta", 2), ("diff", 2), ("diff", 3)):
            mg.table(table).changes(2, end, mode=mode).to_arrow()


def commits(table: str, commits_count: int, rows: int) -> Callable[[], int]:
    """Write many small commits."""
    ours.create(table)

    def action() -> int:
        target = mg.table(table)
        for seed in range(commits_count):
            target.write(few(rows, 1_000_000, seed))
        return commits_count * rows

    return action


def change(table: str, base: str, scattered: bool) -> Callable[[], int]:
    """Write the base, compact it, change the rows of 1 % of its keys, and compact again: snapshots 1 to 4."""
    rows = load(base)
    ours.create(table)

    def action() -> int:
        target = mg.table(table)
        target.write(rows)
        target.compact(full=True)
        keys = np.argsort(rows["k"].to_numpy())
        some = keys[::100] if scattered else keys[-(len(keys) // 100) :]
        changed = rows.take(pa.array(some))
        place = rows.schema.get_field_index("f64")
        target.write(changed.set_column(place, rows.schema.field(place), pc.add(changed["f64"], 1.0)))
        target.compact(full=True)
        return int(rows.num_rows)

    return action


def changes(table: str, start: int, end: int, mode: str = "auto") -> Callable[[], int]:
    """Read changes with their kinds."""
    return lambda: int(mg.table(table).changes(start, end, mode=mode).to_arrow().num_rows)


def scan(table: str, start: int, end: int, mode: str = "auto") -> Callable[[], int]:
    """Read all rows of the compacted table: the floor."""
    return lambda: int(mg.table(table).read(snapshot=2).to_arrow().num_rows)

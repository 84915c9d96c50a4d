"""The actions of the benchmarks done by merganser, through its public surface only."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

import merganser as mg

from . import engine_data
from .data import FIELDS, few, load

OPTIONS = {"bucket": "4", "write-only": "true"}
"""Four buckets, and no compaction by writers: the peers have none, and the scans are to merge every run."""


def create(table: str) -> None:
    """Make an empty table for the rows of `data.py` at `<warehouse>/db.db/<name>`."""
    path = Path(table)
    catalog = mg.catalog(str(path.parent.parent))
    catalog.create_database("db", if_not_exists=True)
    catalog.create_table(f"db.{path.name}", schema=dict(FIELDS), primary_key=["k"], options=dict(OPTIONS))


def write(table: str, base: str) -> Callable[[], int]:
    """Write the base into a new table, one commit."""
    create(table)
    rows = load(base)
    target = mg.table(table)

    def action() -> int:
        target.write(rows)
        return int(rows.num_rows)

    return action


def upserts(table: str, upserts: Sequence[str]) -> Callable[[], int]:
    """Write ten upserts, ten commits."""
    batches = [load(path) for path in upserts]
    target = mg.table(table)

    def action() -> int:
        for batch in batches:
            target.write(batch)
        return sum(batch.num_rows for batch in batches)

    return action


def scan(
    table: str,
    columns: Sequence[str] | None = None,
    key_range: Sequence[int] | None = None,
    value_below: int | None = None,
    batches: bool = False,
) -> Callable[[], int]:
    """Open the table and read it merged: into one Arrow table, or batch by batch, each dropped at once."""
    where = None
    if key_range:
        where = f"k BETWEEN {key_range[0]} AND {key_range[1]}"
    elif value_below is not None:
        where = f"i32 < {value_below}"

    def action() -> int:
        found = mg.table(table).read(columns=list(columns) if columns else None, where=where)
        if batches:
            return sum(batch.num_rows for batch in found.to_batches())
        rows: int = found.to_arrow().num_rows
        return rows

    return action


def small_commits(table: str, rows: int, commits: int, key_space: int) -> Callable[[], dict[str, Any]]:
    """Commit `rows` rows `commits` times into an open table; gives the seconds of each commit."""
    batches = [few(rows, key_space, seed) for seed in range(commits)]
    target = mg.table(table)

    def action() -> dict[str, Any]:
        return _timed_each(batches, target.write)

    return action


def create_and_commit(table: str, rows: int, commits: int, key_space: int) -> Callable[[], dict[str, Any]]:
    """The same into a new table."""
    create(table)
    return small_commits(table, rows, commits, key_space)


def _timed_each(batches: Sequence[pa.Table], write: Callable[[pa.Table], object]) -> dict[str, Any]:
    each = []
    for batch in batches:
        start = time.perf_counter()
        write(batch)
        each.append(time.perf_counter() - start)
    return {"rows": sum(batch.num_rows for batch in batches), "each_seconds": each}


def plan_cold(table: str) -> Callable[[], dict[str, int]]:
    """Open the table and plan a full scan; counts the files."""
    return lambda: {"files": _planned_files(mg.table(table))}


def plan_warm(table: str, key_space: int) -> Callable[[], dict[str, int]]:
    """Plan again on a table that was planned before and has one commit more since."""
    target = mg.table(table)
    _planned_files(target)
    mg.table(table).write(few(40, key_space, seed=10**6))
    return lambda: {"files": _planned_files(target)}


def _planned_files(table: Any) -> int:
    return sum(len(split.files) for split in table.read().plan().splits)


def engine_table(table: str, engine: str, rows: int, seed: int) -> Callable[[], int]:
    """Make a table of one merge engine and write its five runs."""
    shape, options = engine_data.ENGINES[engine]
    path = Path(table)
    catalog = mg.catalog(str(path.parent.parent))
    catalog.create_database("db", if_not_exists=True)
    target = catalog.create_table(
        f"db.{path.name}", schema=dict(engine_data.SHAPES[shape]), primary_key=["k"], options=OPTIONS | options
    )

    def action() -> int:
        for number in range(engine_data.RUNS):
            target.write(engine_data.run_of(shape, rows, number, seed))
        return rows

    return action

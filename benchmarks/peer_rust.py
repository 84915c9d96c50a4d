"""The actions of the benchmarks done by `pypaimon-rust`; runs in that client's environment."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pypaimon_rust.datafusion import PaimonCatalog, SQLContext

from .data import FIELDS, few, load


def _open(table: str) -> Any:
    path = Path(table)
    return PaimonCatalog({"warehouse": str(path.parent.parent)}).get_table(f"db.{path.name}")


def create(table: str) -> None:
    """Make an empty table for the rows of `data.py`."""
    path = Path(table)
    context = SQLContext()
    context.register_catalog("peer", {"warehouse": str(path.parent.parent)}, default_database="")
    columns = ", ".join(f"`{name}` {kind}" for name, kind in FIELDS.items())
    context.sql("CREATE SCHEMA IF NOT EXISTS peer.db")
    context.sql(f"CREATE TABLE peer.db.`{path.name}` ({columns}, PRIMARY KEY (k)) WITH ('bucket' = '4')")


def _commit(target: Any, batches: Sequence[pa.RecordBatch]) -> None:
    builder = target.new_batch_write_builder()
    writer, commit = builder.new_write(), builder.new_commit()
    for batch in batches:
        writer.write_arrow(batch)
    commit.commit(writer.prepare_commit())
    writer.close()
    commit.close()


def write(table: str, base: str) -> Callable[[], int]:
    """Write the base into a new table, one commit."""
    create(table)
    rows = load(base)
    target = _open(table)

    def action() -> int:
        _commit(target, rows.to_batches())
        return int(rows.num_rows)

    return action


def upserts(table: str, upserts: Sequence[str]) -> Callable[[], int]:
    """Write ten upserts, ten commits."""
    batches = [load(path) for path in upserts]
    target = _open(table)

    def action() -> int:
        for batch in batches:
            _commit(target, batch.to_batches())
        return sum(batch.num_rows for batch in batches)

    return action


def scan(
    table: str,
    columns: Sequence[str] | None = None,
    key_range: Sequence[int] | None = None,
    value_below: int | None = None,
) -> Callable[[], int]:
    """Open the table and read it merged, batch by batch."""
    if key_range:
        terms = [("greaterOrEqual", "k", key_range[0]), ("lessOrEqual", "k", key_range[1])]
    elif value_below is not None:
        terms = [("lessThan", "i32", value_below)]
    else:
        terms = []
    children = [{"method": method, "field": field, "literals": [value]} for method, field, value in terms]

    def action() -> int:
        builder = _open(table).new_read_builder()
        if columns:
            builder = builder.with_projection(list(columns))
        if children:
            builder = builder.with_filter({"method": "and", "children": children} if len(children) > 1 else children[0])
        splits = builder.new_scan().plan().splits()
        return sum(batch.num_rows for batch in builder.new_read().read_arrow(splits))

    return action


def small_commits(table: str, rows: int, commits: int, key_space: int) -> Callable[[], dict[str, Any]]:
    """Commit `rows` rows `commits` times into an open table; gives the seconds of each commit."""
    batches = [few(rows, key_space, seed) for seed in range(commits)]
    target = _open(table)

    def action() -> dict[str, Any]:
        each = []
        for batch in batches:
            start = time.perf_counter()
            _commit(target, batch.to_batches())
            each.append(time.perf_counter() - start)
        return {"rows": rows * commits, "each_seconds": each}

    return action


def create_and_commit(table: str, rows: int, commits: int, key_space: int) -> Callable[[], dict[str, Any]]:
    """The same into a new table."""
    create(table)
    return small_commits(table, rows, commits, key_space)


def plan_cold(table: str) -> Callable[[], dict[str, int]]:
    """Open the table and plan a full scan; counts the rows of its splits, since a split does not tell its files."""
    return lambda: {"planned_rows": _planned_rows(_open(table))}


def plan_warm(table: str, key_space: int) -> Callable[[], dict[str, int]]:
    """Plan again on a table that was planned before and has one commit more since."""
    target = _open(table)
    _planned_rows(target)
    _commit(_open(table), few(40, key_space, seed=10**6).to_batches())
    return lambda: {"planned_rows": _planned_rows(target)}


def _planned_rows(target: Any) -> int:
    return sum(split.row_count() for split in target.new_read_builder().new_scan().plan().splits())

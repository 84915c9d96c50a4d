"""The actions of the benchmarks done by `pypaimon`; runs in that client's environment."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pypaimon import CatalogFactory, Schema

from .data import SCHEMA, few, load


def _catalog(table: str) -> Any:
    return CatalogFactory.create({"warehouse": str(Path(table).parent.parent)})


def _open(table: str) -> Any:
    return _catalog(table).get_table(f"db.{Path(table).name}")


def create(table: str) -> None:
    """Make an empty table for the rows of `data.py`."""
    catalog = _catalog(table)
    catalog.create_database("db", True)
    schema = Schema.from_pyarrow_schema(SCHEMA, primary_keys=["k"], options={"bucket": "4"})
    catalog.create_table(f"db.{Path(table).name}", schema, False)


def _commit(target: Any, rows: pa.Table) -> None:
    builder = target.new_batch_write_builder()
    writer, commit = builder.new_write(), builder.new_commit()
    writer.write_arrow(rows)
    commit.commit(writer.prepare_commit())
    writer.close()
    commit.close()


def write(table: str, base: str) -> Callable[[], int]:
    """Write the base into a new table, one commit."""
    create(table)
    rows = load(base)
    target = _open(table)

    def action() -> int:
        _commit(target, rows)
        return int(rows.num_rows)

    return action


def upserts(table: str, upserts: Sequence[str]) -> Callable[[], int]:
    """Write ten upserts, ten commits."""
    batches = [load(path) for path in upserts]
    target = _open(table)

    def action() -> int:
        for batch in batches:
            _commit(target, batch)
        return sum(batch.num_rows for batch in batches)

    return action


def scan(
    table: str,
    columns: Sequence[str] | None = None,
    key_range: Sequence[int] | None = None,
    value_below: int | None = None,
) -> Callable[[], int]:
    """Open the table and read it merged, into one Arrow table."""

    def action() -> int:
        builder = _open(table).new_read_builder()
        predicates = builder.new_predicate_builder()
        if columns:
            builder = builder.with_projection(list(columns))
        if key_range:
            builder = builder.with_filter(predicates.between("k", key_range[0], key_range[1]))
        elif value_below is not None:
            builder = builder.with_filter(predicates.less_than("i32", value_below))
        return int(builder.new_read().to_arrow(builder.new_scan().plan().splits()).num_rows)

    return action


def small_commits(table: str, rows: int, commits: int, key_space: int) -> Callable[[], dict[str, Any]]:
    """Commit `rows` rows `commits` times into an open table; gives the seconds of each commit."""
    batches = [few(rows, key_space, seed) for seed in range(commits)]
    target = _open(table)

    def action() -> dict[str, Any]:
        each = []
        for batch in batches:
            start = time.perf_counter()
            _commit(target, batch)
            each.append(time.perf_counter() - start)
        return {"rows": rows * commits, "each_seconds": each}

    return action


def create_and_commit(table: str, rows: int, commits: int, key_space: int) -> Callable[[], dict[str, Any]]:
    """The same into a new table."""
    create(table)
    return small_commits(table, rows, commits, key_space)


def plan_cold(table: str) -> Callable[[], dict[str, int]]:
    """Open the table and plan a full scan; counts the files."""
    return lambda: {"files": _planned_files(_open(table))}


def plan_warm(table: str, key_space: int) -> Callable[[], dict[str, int]]:
    """Plan again on a table that was planned before and has one commit more since."""
    target = _open(table)
    _planned_files(target)
    _commit(_open(table), few(40, key_space, seed=10**6))
    return lambda: {"files": _planned_files(target)}


def _planned_files(target: Any) -> int:
    return sum(len(split.files) for split in target.new_read_builder().new_scan().plan().splits())

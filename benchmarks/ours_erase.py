"""The actions of `erase.py`, through the public surface only."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import merganser as mg
from merganser.expr.text import parse_predicate

from .data import few
from .ours_buckets import create, upsert, write

__all__ = ["compact", "erase", "upsert", "write"]


def warm_up() -> None:
    """Erase a row of a small table."""
    with tempfile.TemporaryDirectory() as directory:
        path = f"{directory}/db.db/t"
        create(path, {"bucket": "2"}, ["k"], [])
        for seed in range(3):
            mg.table(path).write(few(20, 40, seed))
        mg.table(path).erase("k < 9", everywhere=True)
        mg.table(path).compact(full=True)


def compact(table: str) -> Callable[[], int]:
    """Compact the table fully."""
    target = mg.table(table)

    def action() -> int:
        made = target.compact(full=True)
        assert made is not None
        return made.total_record_count or 0

    return action


def erase(table: str, where: str) -> Callable[[], dict[str, Any]]:
    """Erase rows everywhere; fails unless nothing holds them, and the files that held some are those written again."""
    target = mg.table(table)
    found = parse_predicate(where, target.definition.schema.fields)
    paths = list(Path(table).rglob("bucket-*/*.parquet"))
    columns = sorted(found.columns)
    keys = {path: pq.read_table(path, columns=["k", *(name for name in columns if name != "k")]) for path in paths}
    sought = {key for rows in keys.values() for key in found.apply(rows).column("k").to_pylist()}
    holding = {path.name for path, rows in keys.items() if not sought.isdisjoint(rows.column("k").to_pylist())}
    keys.clear()

    def action() -> dict[str, Any]:
        report = target.erase(where, everywhere=True)
        assert report.is_complete
        assert set(report.rewritten) & {path.name for path in paths} == holding
        return {
            "rows": report.versions,
            "keys": len(sought),
            "files": len(paths),
            "rewritten": len(holding),
            "read_rows": report.rows_read,
        }

    return action

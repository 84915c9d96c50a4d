"""The tables of `buckets.py`, through the public surface only."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import merganser as mg

from . import ours
from .data import few, load
from .timing import timed_each

WARM_FROM = 3
"""The commits before it bring memory and files to where they stay."""


def create(table: str, options: Mapping[str, str], primary_key: Sequence[str], partition_by: Sequence[str]) -> None:
    """Make an empty table whose writer does not compact."""
    path = Path(table)
    catalog = mg.catalog(str(path.parent.parent))
    catalog.create_database("db", if_not_exists=True)
    more = {key: text for key, text in ours.OPTIONS.items() if key != "bucket"} | {"write-only": "true"} | dict(options)
    catalog.create_table(f"db.{path.name}", dict(ours.FIELDS), list(primary_key), list(partition_by), more)


def warm_up() -> None:
    """Take each kind of table through a few rows."""
    with tempfile.TemporaryDirectory() as directory:
        for name, options, key, partition in (
            ("fixed", {"bucket": "2"}, ["k"], []),
            ("dynamic", {}, ["k"], []),
            ("moving", {}, ["k"], ["label"]),
        ):
            create(f"{directory}/db.db/{name}", options, key, partition)
            for seed in range(3):
                mg.table(f"{directory}/db.db/{name}").write(few(20, 40, seed))


def write(table: str, base: str, **how: Any) -> Callable[[], int]:
    """Write the base into a new table, one commit."""
    create(table, **how)
    rows = load(base)
    target = mg.table(table)

    def action() -> int:
        target.write(rows)
        return int(rows.num_rows)

    return action


def upsert(table: str, batches: Sequence[str]) -> Callable[[], int]:
    """Write the last of some batches, one commit; the process has written the others before."""
    *before, last = [load(path) for path in batches]
    target = mg.table(table)
    for rows in before:
        target.write(rows)

    def action() -> int:
        target.write(last)
        return int(last.num_rows)

    return action


def small_commits(table: str, rows: int, commits: int, key_space: int) -> Callable[[], dict[str, Any]]:
    """Commit random keys; gives the milliseconds of a commit of a process that has made some."""
    batches = [few(rows, key_space, seed) for seed in range(commits)]
    target = mg.table(table)

    def action() -> dict[str, Any]:
        found = timed_each(batches, target.write)
        return found | {"warm_ms": 1e3 * median(found["each_seconds"][WARM_FROM:]), "commits": commits}

    return action


def rescale(table: str, buckets: int) -> Callable[[], int]:
    """Move all rows to a number of buckets; 0: compact the table fully instead."""
    target = mg.table(table)

    def action() -> int:
        made = target.rescale(buckets) if buckets else target.compact(full=True)
        assert made is not None
        return made.total_record_count or 0

    return action

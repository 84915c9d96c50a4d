"""The workload on disk: files of rows for each step, and what each read must return. Made once for a size and seed."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from . import rows as r

PART_ROWS = 1_000_000
"""Rows of one commit of the load."""
READ_EVERY = 10
"""Rounds between two reads. A second table follows the same number of rounds, the last ones."""
LOOKUPS = 20
_RANGE_SHARE = 0.01


@dataclass(frozen=True, slots=True)
class Workload:
    """Where the files lie, and what reads must return; every file is there as `.arrow` and as `.parquet`."""

    directory: Path
    rounds: int
    parts: int
    key_range: Sequence[int]
    """First and last `order_id`, both included."""
    keys: Sequence[Sequence[int]]
    expected: dict[str, r.Digest]
    """By state: "all 10", "range 10", ..., and "keys"."""

    def base(self, part: int) -> Path:
        """Rows of the load, without the ending."""
        return self.directory / f"base-{part:03d}"

    def written(self, number: int) -> Path:
        """Rows that a round writes."""
        return self.directory / f"written-{number:03d}"

    def deleted(self, number: int) -> Path:
        """Keys that a round deletes."""
        return self.directory / f"deleted-{number:03d}"


def opened(directory: Path) -> Workload:
    """A workload that was made."""
    facts: dict[str, Any] = json.loads((directory / "workload.json").read_text(encoding="utf-8"))
    return Workload(directory, **facts)


def prepare(work: Path, rows: int, rounds: int, seed: int) -> Workload:
    """The workload of a size and seed, made by the first call."""
    final = work / f"campaign-{rows}-{rounds}-{seed}"
    if not final.exists():
        building = work / f".building-{uuid.uuid4().hex}"
        building.mkdir(parents=True)
        try:
            _make(building, rows, rounds, seed)
            building.rename(final)
        finally:
            shutil.rmtree(building, ignore_errors=True)
    return opened(final)


def _make(directory: Path, rows: int, rounds: int, seed: int) -> None:
    lines = r.lines_of(rows, rounds, seed)
    random = np.random.default_rng(seed + 1)
    starts = range(0, rows, PART_ROWS)
    parts = [np.arange(start, min(rows, start + PART_ROWS)) for start in starts]
    first = int(lines.orders[rows // 2])
    last = first + max(1, int(lines.orders[rows - 1] * _RANGE_SHARE))
    workload = Workload(directory, rounds, len(parts), (first, last), (), {})
    for part, ids in enumerate(parts):
        _write(workload.base(part), lines.table(ids))
    expected: dict[str, r.Digest] = {}
    for number in range(1, rounds + 1):
        written, deleted = r.changed(lines, number, r.changes_of(rows), random)
        _write(workload.written(number), lines.table(written))
        _write(workload.deleted(number), lines.keys(deleted))
        if number % READ_EVERY == 0:
            live = lines.live()
            orders = lines.orders[live]
            expected[f"all {number}"] = lines.digest(live)
            expected[f"range {number}"] = lines.digest(live[(orders >= first) & (orders <= last)])
    some = random.choice(lines.used, LOOKUPS, replace=False)
    expected["keys"] = lines.digest(some[lines.versions[some] >= 0])
    facts = {
        "rounds": rounds,
        "parts": len(parts),
        "key_range": [first, last],
        "keys": [[int(lines.orders[i]), int(lines.lines[i])] for i in some],
        "expected": expected,
    }
    (directory / "workload.json").write_text(json.dumps(facts), encoding="utf-8")


def _write(path: Path, table: pa.Table) -> None:
    with pa.OSFile(f"{path}.arrow", "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    pq.write_table(table, f"{path}.parquet", compression="zstd", compression_level=1)

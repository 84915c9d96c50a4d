"""The floor: the same bytes sorted, written and read by Polars alone, with nothing of a table around them.

* A write sorts a batch by key, splits it in four and writes four Parquet files (zstd 1).
* A scan reads all runs (the base and ten upserts), sorts them once, stably, by key, and keeps the last row of each key.
  There is one scan floor per set of columns; filtered scans are held against the floor of the full scan.

The input of a write is a Polars frame in memory before the clock starts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import polars as pl

from .data import BUCKETS, load


def _frame(path: str) -> pl.DataFrame:
    frame = pl.from_arrow(load(path))
    assert isinstance(frame, pl.DataFrame)
    return frame.rechunk()


def _write_run(frame: pl.DataFrame, directory: Path) -> None:
    directory.mkdir(parents=True)
    ordered = frame.sort("k")
    for bucket in range(BUCKETS):
        part = ordered.filter(pl.col("k") % BUCKETS == bucket)
        part.write_parquet(directory / f"{bucket}.parquet", compression="zstd", compression_level=1)


def write(table: str, base: str) -> Callable[[], int]:
    """Write the base as the first run."""
    frame = _frame(base)

    def action() -> int:
        _write_run(frame, Path(table) / "run-00")
        return frame.height

    return action


def upserts(table: str, upserts: Sequence[str]) -> Callable[[], int]:
    """Write ten upserts as ten more runs."""
    frames = [_frame(path) for path in upserts]

    def action() -> int:
        for i, frame in enumerate(frames, start=1):
            _write_run(frame, Path(table) / f"run-{i:02d}")
        return sum(frame.height for frame in frames)

    return action


def scan(table: str, columns: Sequence[str] | None = None) -> Callable[[], int]:
    """Read all runs and keep the last row of each key."""

    def action() -> int:
        files = sorted(Path(table).glob("run-*/*.parquet"))
        rows = pl.read_parquet(files, columns=list(columns) if columns else None)
        rows = rows.sort("k", maintain_order=True)
        key = pl.col("k")
        return rows.filter(key.ne_missing(key.shift(-1))).height

    return action

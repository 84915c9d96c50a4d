"""The floor: the same bytes sorted, written and read by Polars alone, with nothing of a table around them.

* A write sorts a batch by key, splits it in four and writes four Parquet files (zstd 1).
* A scan reads all runs (the base and ten upserts), sorts them once, stably, by key, and keeps the last row of each key.
  There is one scan floor per set of columns; filtered scans are held against the floor of the full scan. It is one lazy
  query, which is the fastest form of these steps with one sort.
* Two other forms are shown beside it, so that nobody has to wonder which one a target was held against:
  `scan_eagerly` reads, sorts and filters whole frames one after the other, and pays for gathering ten columns from many
  chunks; `scan_by_bucket` is the lazy query for one of the four parts after the other, which a table may do, since a
  key stays in its bucket, and which is faster, since a part fits the caches better.

* A small commit is a write of so few rows.
* A lookup of keys is a binary search in the sorted keys of a frame in memory, and a gather of the rows.
* A query is the same query by Polars on the files that the compaction made.
* A full compaction is a scan whose rows are then split in four and written as four Parquet files (zstd 1).
* A scan after a compaction is a plain read of the very files that the compaction made: by pyarrow, and beside it by
  Polars, which decodes faster and checks no page.

The input of a write is a Polars frame in memory before the clock starts.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from .data import BUCKETS, QUERY_BELOW, few, load
from .timing import timed_each, timed_often


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


def warm_up() -> None:
    """Write and scan two runs of a few rows."""
    with tempfile.TemporaryDirectory(prefix="merganser-warm-") as directory:
        for run in range(2):
            frame = pl.from_arrow(few(20, 1000, seed=run))
            assert isinstance(frame, pl.DataFrame)
            _write_run(frame, Path(directory) / f"run-{run:02d}")
        scan(directory)()


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


def small_commits(table: str, rows: int, commits: int, key_space: int) -> Callable[[], dict[str, Any]]:
    """Write `rows` rows `commits` times as further runs; gives the seconds of each."""
    batches = [few(rows, key_space, seed) for seed in range(commits)]
    paths = (Path(table) / f"small-{number:02d}" for number in range(commits))

    def write_run(batch: pa.Table) -> None:
        frame = pl.from_arrow(batch)
        assert isinstance(frame, pl.DataFrame)
        _write_run(frame, next(paths))

    return lambda: timed_each(batches, write_run)


def scan(table: str, columns: Sequence[str] | None = None) -> Callable[[], int]:
    """Read all runs and keep the last row of each key."""

    def action() -> int:
        return _last_of_each_key(Path(table).glob("run-*/*.parquet"), columns).height

    return action


def scan_by_bucket(table: str, columns: Sequence[str] | None = None) -> Callable[[], int]:
    """The same for each of the four parts, one after the other; holds all of them at the end, as `scan` does."""

    def action() -> int:
        parts = [_last_of_each_key(Path(table).glob(f"run-*/{bucket}.parquet"), columns) for bucket in range(BUCKETS)]
        return sum(part.height for part in parts)

    return action


def scan_eagerly(table: str, columns: Sequence[str] | None = None) -> Callable[[], int]:
    """The same with whole frames between the steps."""

    def action() -> int:
        files = sorted(Path(table).glob("run-*/*.parquet"))
        rows = pl.read_parquet(files, columns=list(columns) if columns else None).sort("k", maintain_order=True)
        key = pl.col("k")
        return rows.filter(key.ne_missing(key.shift(-1))).height

    return action


def compact(table: str) -> Callable[[], int]:
    """Read all runs, keep the last row of each key, and write what is left in four files."""

    def action() -> int:
        frame = _last_of_each_key(Path(table).glob("run-*/*.parquet"), None)
        out = Path(table) / "compacted"
        out.mkdir(parents=True)
        for bucket in range(BUCKETS):
            part = frame.filter(pl.col("k") % BUCKETS == bucket)
            part.write_parquet(out / f"{bucket}.parquet", compression="zstd", compression_level=1)
        return frame.height

    return action


def plain_scan(paths: Sequence[str], columns: Sequence[str]) -> Callable[[], int]:
    """Read columns of Parquet files as they stand, by pyarrow, with all its threads."""

    def action() -> int:
        rows: int = pq.read_table(list(paths), columns=list(columns)).num_rows
        return rows

    return action


def plain_scan_by_polars(paths: Sequence[str], columns: Sequence[str]) -> Callable[[], int]:
    """The same by Polars."""
    return lambda: pl.read_parquet(list(paths), columns=list(columns)).height


def plain_filter_by_polars(paths: Sequence[str], columns: Sequence[str], value_below: int) -> Callable[[], int]:
    """Read the rows of a value filter from Parquet files as they stand, by Polars."""

    def action() -> int:
        return pl.scan_parquet(list(paths)).select(columns).filter(pl.col("i32") < value_below).collect().height

    return action


def lookup_keys(paths: Sequence[str], keys: Sequence[int]) -> Callable[[], dict[str, Any]]:
    """Find the rows of keys in a sorted frame in memory."""
    frame = pl.read_parquet(list(paths)).sort("k").rechunk()
    sorted_keys = frame["k"].to_numpy()
    wanted = np.array(keys)

    def find() -> int:
        places = np.searchsorted(sorted_keys, wanted).clip(max=len(sorted_keys) - 1)
        return frame[places[sorted_keys[places] == wanted]].height

    return lambda: timed_often(find)


def query(paths: Sequence[str]) -> Callable[[], dict[str, Any]]:
    """Group the rows of a filter."""

    def ask() -> int:
        rows = pl.scan_parquet(list(paths)).filter(pl.col("i32") < QUERY_BELOW)
        groups = rows.group_by("label").agg(pl.len(), pl.col("price").sum(), pl.col("f64").mean(), pl.col("at").max())
        return groups.sort("label").collect().height

    return lambda: timed_often(ask)


def _last_of_each_key(files: Iterable[Path], columns: Sequence[str] | None) -> pl.DataFrame:
    """Sorted by key; files in the order of their paths, which is that of the runs."""
    key = pl.col("k")
    rows = pl.scan_parquet(sorted(files)).select(list(columns) if columns else pl.all())
    return rows.sort("k", maintain_order=True).filter(key.ne_missing(key.shift(-1))).collect()

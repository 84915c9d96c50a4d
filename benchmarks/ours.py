"""The actions of the benchmarks done by merganser, through its public surface only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import merganser as mg

from . import engine_data
from .data import FIELDS, QUERY_BELOW, SCHEMA, few, load
from .timing import timed_each, timed_often

OPTIONS = {"bucket": "4", "write-only": "true"}
"""Four buckets, and no compaction by writers: the peers have none, and the scans are to merge every run."""


def create(table: str, more: Mapping[str, str] | None = None) -> None:
    """Make an empty table for the rows of `data.py` at `<warehouse>/db.db/<name>`; `more` options go before OPTIONS."""
    path = Path(table)
    catalog = mg.catalog(str(path.parent.parent))
    catalog.create_database("db", if_not_exists=True)
    catalog.create_table(f"db.{path.name}", schema=dict(FIELDS), primary_key=["k"], options=OPTIONS | dict(more or {}))


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
    keys: Sequence[int] | None = None,
    batches: bool = False,
) -> Callable[[], int]:
    """Open the table and read it merged: into one Arrow table, or batch by batch, each dropped at once."""
    where = None
    if key_range:
        where = f"k BETWEEN {key_range[0]} AND {key_range[1]}"
    elif value_below is not None:
        where = f"i32 < {value_below}"
    elif keys:
        where = f"k IN ({', '.join(map(str, keys))})"

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
        return timed_each(batches, target.write)

    return action


def create_and_commit(table: str, rows: int, commits: int, key_space: int) -> Callable[[], dict[str, Any]]:
    """The same into a new table."""
    create(table)
    return small_commits(table, rows, commits, key_space)


def create_buckets(table: str, buckets: int) -> Callable[[], int]:
    """Make a table of ten buckets in each partition, a file in every bucket, whose writer compacts."""
    path = Path(table)
    catalog = mg.catalog(str(path.parent.parent))
    catalog.create_database("db", if_not_exists=True)
    columns = {"p": "INT", "k": "BIGINT", "v": "STRING"}
    target = catalog.create_table(
        f"db.{path.name}", columns, primary_key=["p", "k"], partition_by=["p"], options={"bucket": "10"}
    )

    def action() -> int:
        rows = pa.concat_tables([_of_partition(p, 40, 0) for p in range(buckets // 10)])
        target.write(rows)
        return int(rows.num_rows)

    return action


def commits_into_a_partition(table: str, rows: int, commits: int) -> Callable[[], dict[str, Any]]:
    """Commit `rows` rows `commits` times into the ten buckets of one partition of an open table."""
    target = mg.table(table)
    target.write(_of_partition(0, rows, 0))
    batches = [_of_partition(0, rows, seed) for seed in range(commits)]
    return lambda: timed_each(batches, target.write)


def _of_partition(partition: int, rows: int, seed: int) -> pa.Table:
    keys = pa.array(range(rows), pa.int64())
    return pa.table({"p": pa.array([partition] * rows, pa.int32()), "k": keys, "v": [f"row {seed}"] * rows})


def plan_cold(table: str) -> Callable[[], dict[str, int]]:
    """Open the table and plan a full scan; counts the files."""
    return lambda: {"files": _planned_files(mg.table(table))}


def plan_warm(table: str, key_space: int) -> Callable[[], dict[str, int]]:
    """Plan again on a table that was planned before and has one commit more since."""
    target = mg.table(table)
    _planned_files(target)
    mg.table(table).write(few(40, key_space, seed=10**6))
    return lambda: {"files": _planned_files(target)}


def files(table: str) -> Callable[[], dict[str, int]]:
    """List the files of an open table, with their keys and statistics as text."""
    target = mg.table(table)
    _planned_files(target)
    return lambda: {"files": target.files().num_rows}


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


def compact(table: str) -> Callable[[], dict[str, Any]]:
    """Compact a table fully; gives its rows afterwards, and the bytes of its files before and after."""
    target = mg.table(table)
    before = sum(target.files()["file_size_in_bytes"].to_pylist())

    def action() -> dict[str, Any]:
        target.compact(full=True)
        files = target.files()
        return {
            "rows": sum(files["record_count"].to_pylist()),
            "bytes_before": before,
            "bytes_after": sum(files["file_size_in_bytes"].to_pylist()),
            "runs": len(set(files["level"].to_pylist())),
        }

    return action


def lookup_keys(table: str, copies: str, keys: Sequence[int]) -> Callable[[], dict[str, Any]]:
    """Look keys up at once, with a handle that has its lookup copies."""
    handle = mg.table(table, options={"lookup.cache-directory": copies}).lookups(cache="all")
    wanted = pa.table({"k": pa.array(keys, pa.int64())})
    handle.lookup(wanted)
    return lambda: timed_often(lambda: int(handle.lookup(wanted).num_rows))


def query(table: str) -> Callable[[], dict[str, Any]]:
    """Group the rows of a filter, by SQL."""
    path = Path(table)
    session = mg.catalog(str(path.parent.parent)).session()
    text = (
        f"SELECT label, count(*), sum(price), avg(f64), max(at) FROM db.`{path.name}` "
        f"WHERE i32 < {QUERY_BELOW} GROUP BY label ORDER BY label"
    )
    session.sql(text)
    return lambda: timed_often(lambda: int(session.sql(text).num_rows))


def live_files(table: str) -> Callable[[], dict[str, Any]]:
    """Name the data files of a table."""
    return lambda: {"paths": mg.table(table).files()["file_path"].to_pylist()}


def upserts_inline(table: str, upserts: Sequence[str]) -> Callable[[], int]:
    """Write ten upserts, ten commits, and let the writer compact; at most five sorted runs are left in a bucket."""
    batches = [load(path) for path in upserts]
    target = mg.table(table).with_options({"write-only": "false"})

    def action() -> int:
        for batch in batches:
            target.write(batch)
        return sum(batch.num_rows for batch in batches)

    return action


def one_bucket(table: str, commits: int, rows: int, text_bytes: int = 0, seed: int = 7) -> Callable[[], dict[str, int]]:
    """Fill one bucket by commits whose keys meet; `text_bytes` makes each row carry so long a text that differs."""
    path = Path(table)
    catalog = mg.catalog(str(path.parent.parent))
    catalog.create_database("db", if_not_exists=True)
    options = OPTIONS | {"bucket": "1"}
    fields = {"k": "BIGINT NOT NULL", "wide": "BYTES"} if text_bytes else dict(FIELDS)
    target = catalog.create_table(f"db.{path.name}", schema=fields, primary_key=["k"], options=options)

    def action() -> dict[str, int]:
        size = 0
        for number in range(commits):
            with target.writer() as writer:
                for part in _parts(rows, 4, commits * rows // 2, seed + number, text_bytes):
                    size += part.nbytes
                    writer.write(part)
                writer.commit()
        return {"rows": commits * rows, "arrow_bytes": size}

    return action


def _parts(rows: int, count: int, key_space: int, seed: int, text_bytes: int) -> Iterator[pa.Table]:
    """Yield rows of different keys in some parts."""
    step = key_space // count
    for part in range(count):
        if text_bytes:
            chance = np.random.default_rng((seed, part))
            keys = part * step + chance.choice(step, rows // count, replace=False)
            yield pa.table({"k": keys, "wide": [chance.bytes(text_bytes) for _ in keys]})
        else:
            table = few(rows // count, step, seed * count + part)
            yield table.set_column(0, SCHEMA.field("k"), pc.add(table["k"], part * step))


def snapshots(table: str, commits: int) -> Callable[[], int]:
    """Make a table of many small commits."""
    create(table)
    target = mg.table(table)

    def action() -> int:
        for number in range(commits):
            target.write(few(4, 1000, number))
        return commits

    return action


def expire(table: str) -> Callable[[], dict[str, int]]:
    """Expire all snapshots of a table but the newest."""
    target = mg.table(table)
    return lambda: {"snapshots": len(target.expire(retain_max=1, retain_min=1))}

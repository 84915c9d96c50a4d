"""Keeping one large key table in shape: `python -m benchmarks.upkeep`.

Full compaction of the base and its ten upserts; scans of what it made; ten upserts with compaction by the writer
against write-only; the memory of compacting one bucket of 4 GB, of many narrow rows and of few wide ones; expiry of
1,000 snapshots. With `--spark` the compaction and the scans through Spark too (`upkeep_spark.py`).
"""

from __future__ import annotations

import argparse
import importlib
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from . import data
from .harness import (
    FLOOR,
    MERGANSER,
    PYPAIMON,
    RUST,
    Bench,
    Contender,
    Measures,
    Tables,
    bytes_written,
    files_under,
    parser,
    run_child,
    start,
)

RUNS_OF_BUCKET = 10
ARROW_BYTES_PER_ROW = 92
"""Of the rows of `data.py`."""
WIDE_BYTES = 100_000
SNAPSHOTS = 1_000


def main() -> None:
    """Run it."""
    options = parser(__doc__.splitlines()[0])
    options.add_argument("--bucket-bytes", type=float, default=4e9, help="Arrow size of the large bucket (default 4e9)")
    options.add_argument("--spark", action="store_true", help="through Spark too; needs the extra [spark] and Java")
    options.add_argument("--driver-memory", default="4g", help="memory of the JVM (default 4g)")
    chosen = options.parse_args()
    bench = start("upkeep", chosen, (FLOOR, MERGANSER, RUST, PYPAIMON))
    batches = data.prepare(bench.work, chosen.rows, chosen.seed)
    tables = Tables(bench.work)
    try:
        measure_compaction(bench, tables, batches)
        _measure_scans(bench, tables, batches)
        _measure_inline(bench, tables, batches)
        _measure_memory(bench, tables, chosen)
        _measure_expiry(bench, tables)
        if chosen.spark:
            importlib.import_module("benchmarks.upkeep_spark").measure(bench, tables, batches)
    finally:
        tables.close()
    bench.finish()


def ensure_merged(tables: Tables, batches: data.Batches, contender: Contender) -> None:
    """Write the base and the ten upserts as `merged`, unmeasured, unless they are there."""
    path = str(tables.path(contender, "merged"))
    if not Path(path).exists():
        run_child(contender, "write", {"table": path, "base": str(batches.base)})
        run_child(contender, "upserts", {"table": path, "upserts": [str(batch) for batch in batches.upserts]})


def ensure_compacted(tables: Tables, batches: data.Batches) -> None:
    """The same, compacted fully, as `compacted`."""
    if not tables.path(MERGANSER, "compacted").exists():
        ensure_merged(tables, batches, MERGANSER)
        tables.copy(MERGANSER, "merged", "compacted")
        run_child(MERGANSER, "compact", {"table": str(tables.path(MERGANSER, "compacted"))})


def measure_compaction(bench: Bench, tables: Tables, batches: data.Batches) -> None:
    """A full compaction of the base and its ten upserts."""
    before: dict[str, dict[str, tuple[int, int]]] = {}

    def fresh(contender: Contender) -> None:
        ensure_merged(tables, batches, contender)
        tables.copy(contender, "merged", "compacted")
        before[contender.name] = files_under(tables.path(contender, "compacted"))

    def written(contender: Contender, measures: Measures) -> None:
        files = files_under(tables.path(contender, "compacted"))
        measures["written_bytes"] = bytes_written(before[contender.name], files)

    bench.measure(
        "compact full",
        "compact",
        lambda contender: {"table": str(tables.path(contender, "compacted"))},
        before=fresh,
        after=written,
        only=(FLOOR, MERGANSER),
    )


def _measure_scans(bench: Bench, tables: Tables, batches: data.Batches) -> None:
    path = str(tables.path(MERGANSER, "compacted"))

    def compacted(contender: Contender) -> None:
        ensure_compacted(tables, batches)

    def plain(columns: tuple[str, ...]) -> dict[str, Any]:
        found = run_child(MERGANSER, "live_files", {"table": path})["paths"]
        return {"paths": found, "columns": columns}

    for action, columns in {
        "scan compacted, all": None,
        "scan compacted, 2 columns": data.TWO_COLUMNS,
    }.items():
        wanted = tuple(data.FIELDS) if columns is None else columns
        arguments = {"table": path} | ({} if columns is None else {"columns": list(columns)})
        floor = f"{action}, plain Parquet"
        by_polars = f"{floor} by Polars"
        bench.measure(floor, "plain_scan", lambda _, c=wanted: plain(c), before=compacted, only=(FLOOR,))
        bench.measure(
            by_polars,
            "plain_scan_by_polars",
            lambda _, c=wanted: plain(c),
            before=compacted,
            only=(FLOOR,),
            floor=floor,
        )
        bench.measure(
            action, "scan", lambda _, a=arguments: a, before=compacted, only=(MERGANSER, RUST, PYPAIMON), floor=floor
        )
    floor = "value filter 1 % on compacted, plain Parquet by Polars"
    bench.measure(
        floor,
        "plain_filter_by_polars",
        lambda _: plain(tuple(data.FIELDS)) | {"value_below": data.VALUE_BELOW},
        before=compacted,
        only=(FLOOR,),
    )
    bench.measure(
        "value filter 1 % on compacted",
        "scan",
        lambda _: {"table": path, "value_below": data.VALUE_BELOW},
        before=compacted,
        only=(MERGANSER, RUST, PYPAIMON),
        floor=floor,
    )


def _measure_inline(bench: Bench, tables: Tables, batches: data.Batches) -> None:
    before: dict[str, dict[str, tuple[int, int]]] = {}

    def fresh(contender: Contender) -> None:
        if not tables.path(contender, "base").exists():
            run_child(contender, "write", {"table": str(tables.path(contender, "base")), "base": str(batches.base)})
        tables.copy(contender, "base", "inline")
        before[contender.name] = files_under(tables.path(contender, "inline"))

    def written(contender: Contender, measures: Measures) -> None:
        files = files_under(tables.path(contender, "inline"))
        measures["written_bytes"] = bytes_written(before[contender.name], files)

    alone = replace(MERGANSER, name="write-only")
    action = "upserts, inline compaction"
    bench.measure(
        action,
        lambda contender: "upserts" if contender is alone else "upserts_inline",
        lambda contender: {
            "table": str(tables.path(contender, "inline")),
            "upserts": [str(path) for path in batches.upserts],
        },
        before=fresh,
        after=written,
        only=(MERGANSER,),
        beside=(alone,),  # in turn, for the ratio of the two is what counts, and a machine's speed drifts
    )
    found = [result for result in bench.results if result.action == action and result.runs]
    if len(found) == 2:
        speed, size = (
            (found[0].median(name) or 0) / (found[1].median(name) or 1) for name in ("seconds", "written_bytes")
        )
        print(f"  speed {speed:.0%} of write-only, {1 / size:.2f} x its bytes")


def _measure_memory(bench: Bench, tables: Tables, chosen: argparse.Namespace) -> None:
    """Peak memory of compacting one bucket, of narrow and of wide rows; its rows are kept in `--work`."""
    for name, width in {"narrow": 0, "wide": WIDE_BYTES}.items():
        action = f"compact one bucket, {name} rows"
        if not bench.wanted(action) or MERGANSER not in bench.contenders:
            continue
        rows = int(chosen.bucket_bytes / (width or ARROW_BYTES_PER_ROW) / RUNS_OF_BUCKET)
        kept = bench.work / f"bucket-{name}-{int(chosen.bucket_bytes)}-{chosen.seed}" / "db.db" / "t"
        if not kept.exists():
            arguments = {"commits": RUNS_OF_BUCKET, "rows": rows, "text_bytes": width, "seed": chosen.seed}
            building = tables.directory / name / "db.db" / "t"  # goes with this run if it is stopped
            made = run_child(MERGANSER, "one_bucket", {"table": str(building), **arguments})
            kept.parent.mkdir(parents=True)
            building.rename(kept)
            print(f"\nmade a bucket of {made['arrow_bytes']:,} bytes")
        target = tables.path(MERGANSER, f"bucket-{name}")

        def fresh(contender: Contender, kept: Path = kept, target: Path = target) -> None:
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(kept, target)

        bench.measure(action, "compact", lambda _, t=target: {"table": str(t)}, before=fresh, only=(MERGANSER,), runs=1)
        tables.drop(MERGANSER, f"bucket-{name}")


def _measure_expiry(bench: Bench, tables: Tables) -> None:
    def fresh(contender: Contender) -> None:
        path = tables.path(contender, "many-kept")
        if not path.exists():
            run_child(contender, "snapshots", {"table": str(path), "commits": SNAPSHOTS + 1})
        tables.copy(contender, "many-kept", "many")

    bench.measure(
        f"expire {SNAPSHOTS:,} snapshots",
        "expire",
        lambda contender: {"table": str(tables.path(contender, "many"))},
        before=fresh,
        only=(MERGANSER,),
    )


if __name__ == "__main__":
    main()

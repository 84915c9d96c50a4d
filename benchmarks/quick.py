"""A guard against regressions, in three minutes: `make bench-quick`, or `python -m benchmarks.quick`.

Ten workloads of the other benchmarks with 500,000 rows, each beside its floor in the same run: bulk write, ten upserts,
merged scans of all and of two columns, a full compaction, a lookup of 1,000 keys, a commit of 1,000 rows, a SQL query,
and a write and a merged scan through Spark, local[2]. What counts is the ratio of the medians of seconds, and that of
the fastest runs, which other work on the machine disturbs less.

The ratios are compared with the newest record of `benchmarks/history.jsonl`, and a workload is named if both grew by
more than a quarter. `--record` adds the run to that file and draws the picture of the docs again.
"""

from __future__ import annotations

import statistics
import subprocess
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from . import data, history, spark, tables, upkeep
from .harness import FLOOR, MERGANSER, ROOT, Bench, Contender, Result, Tables, parser, run_child, start

ROWS = 500_000
Pair = tuple[Result, Result]
"""Of merganser and of the floor."""
EMBEDDED = {
    "write": "bulk write",
    "upserts": "ten upserts",
    "scan all": "merged scan, all columns",
    "scan 2 columns": "merged scan, 2 columns",
    "commit of 1,000 rows": "commit of 1,000 rows",
    "compact full": "full compaction",
    "lookup of 1,000 keys": "lookup of 1,000 keys",
    "SQL query": "SQL query",
}
THROUGH_SPARK = {"write": "Spark: write", "scan all": "Spark: merged scan"}
"""Actions of the other benchmarks, and the names of the workloads in the records."""
PICTURE = ROOT / "docs" / "assets" / "speed.svg"


def main() -> None:
    """Run it."""
    options = parser(__doc__.splitlines()[0], rows=ROWS)
    options.add_argument("--driver-memory", default="4g", help="memory of the JVM (default 4g)")
    options.add_argument("--record", action="store_true", help="add the ratios to benchmarks/history.jsonl")
    options.add_argument("--fail", action="store_true", help="end with 1 if a ratio got worse")
    options.set_defaults(runs=5)
    bench = start("quick", options.parse_args(), (FLOOR, MERGANSER))
    results = {**_embedded(bench), **_through_spark(bench)}
    now = history.Record(
        _commit(),
        f"{datetime.now(UTC):%Y-%m-%d}",
        bench.options.rows,
        {name: ratio(of, over, statistics.median) for name, (of, over) in results.items()},
        {name: ratio(of, over, min) for name, (of, over) in results.items()},
    )
    before = history.parsed(history.FILE.read_text(encoding="utf-8")) if history.FILE.exists() else []
    last = history.last_of(before, bench.options.rows)
    _show(now, last)
    grown = history.worse(last, now) if last else {}
    for name, growth in grown.items():
        print(f"worse: {name}, {growth:.2f} times the ratio that was recorded")
    if bench.options.record:
        _record(before, now)
    if grown and bench.options.fail:
        raise SystemExit(1)


def _embedded(bench: Bench) -> dict[str, Pair]:
    """The results of the workloads of this process's kind."""
    bench.options.only = bench.options.only or list(EMBEDDED)
    batches = data.prepare(bench.work, bench.options.rows, bench.options.seed)
    made = Tables(bench.work)
    try:
        tables.measure_writes(bench, made, batches)
        tables.measure_scans(bench, made, batches, forms=False)
        tables.measure_small_commits(bench, made, batches)
        upkeep.measure_compaction(bench, made, batches)
        _measure_compacted(bench, made, batches)
    finally:
        made.close()
    return _pairs(bench, EMBEDDED)


def _measure_compacted(bench: Bench, made: Tables, batches: data.Batches) -> None:
    """The lookup and the query, of the table that was compacted; the floors read its files."""
    table = str(made.path(MERGANSER, "compacted"))
    upkeep.ensure_compacted(made, batches)
    paths = run_child(MERGANSER, "live_files", {"table": table})["paths"]

    def arguments(contender: Contender, **ours: str) -> dict[str, Any]:
        return {"paths": paths} if contender is FLOOR else {"table": table} | ours

    copies = str(made.directory / "copies")
    keys = {"keys": batches.some_keys}
    bench.measure("lookup of 1,000 keys", "lookup_keys", lambda each: arguments(each, copies=copies) | keys)
    bench.measure("SQL query", "query", arguments)


def _through_spark(bench: Bench) -> dict[str, Pair]:
    again = Bench(bench.name, bench.options, bench.contenders)
    again.options.only = list(THROUGH_SPARK)
    spark.measure(again)
    return _pairs(again, THROUGH_SPARK)


def _pairs(bench: Bench, names: Mapping[str, str]) -> dict[str, Pair]:
    """The results of merganser and of the floor, by the names of the workloads.

    Raises:
        SystemExit: a workload failed.
    """
    found = {(result.action, result.contender): result for result in bench.results if result.runs}
    pairs = {
        name: (found.get((action, MERGANSER.name)), found.get((action, FLOOR.name))) for action, name in names.items()
    }
    failed = [name for name, pair in pairs.items() if None in pair]
    if failed:
        raise SystemExit(f"no ratio of: {', '.join(failed)}")
    return {name: (ours, floor) for name, (ours, floor) in pairs.items() if ours and floor}


def ratio(ours: Result, floor: Result, choose: Callable[[Iterable[float]], float]) -> float:
    """Seconds over those of the floor; `choose` gives the one that counts of several runs."""
    seconds, least = (choose([run["seconds"] for run in result.runs]) for result in (ours, floor))
    return seconds / least


def _show(now: history.Record, last: history.Record | None) -> None:
    before = last.ratios if last else {}
    print(f"\n{'workload':<28}{'x floor':>9}{'fastest':>9}{f'{last.date} {last.commit}' if last else 'no record':>22}")
    for name, value in now.ratios.items():
        recorded = f"{before[name]:.2f}" if name in before else ""
        print(f"{name:<28}{value:>9.2f}{now.fastest[name]:>9.2f}{recorded:>22}")


def _record(before: list[history.Record], record: history.Record) -> None:
    with history.FILE.open("a", encoding="utf-8") as file:
        file.write(history.line_of(record))
    PICTURE.write_text(history.picture([*before, record]), encoding="utf-8")
    print(f"recorded in {history.FILE.relative_to(ROOT)}, drawn in {PICTURE.relative_to(ROOT)}")


def _commit() -> str:
    """The short hash of the commit, with "+" if files differ from it; "unknown" without git."""
    found = [
        subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
        for words in (("rev-parse", "--short=10", "HEAD"), ("status", "--porcelain", "--untracked-files=no"))
    ]
    if found[0].returncode != 0:
        return "unknown"
    return found[0].stdout.strip() + ("+" if found[1].stdout.strip() else "")


if __name__ == "__main__":
    main()

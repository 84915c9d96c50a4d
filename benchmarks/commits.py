"""Many small commits, and planning over what they leave: `python -m benchmarks.commits`.

1,250 commits of 40 rows into a key table of four buckets, in one process: what the last ones cost against the first
ones. The table then has 5,000 data files, and planning a full scan is measured cold (a fresh process that opens the
table) and warm (a process that planned before and plans again after one commit more); so is `files()`, the list of
all files with their keys and statistics; and the scan itself, beside a plain read of the same files by Polars.

The commits of `pypaimon` are fewer, since its planning grows with every one of them (`--pypaimon-commits`).

Then the same after 12,500 commits, 50,000 files: planning, with the accelerator for manifests and without, and commits
against those into a new table. The peers take too long for it. The table is made once, in some minutes, and kept in the
work directory (`--long-commits 0` leaves all of it out).

Last, 100 commits of 400 rows into ten buckets, of a table that has no others, and of one with 20,000 buckets
(`--buckets`): what a commit costs is to follow what it changes. That table, too, is kept (`--buckets 0` leaves it out).
"""

from __future__ import annotations

import os
import shutil
import statistics
from pathlib import Path

from . import data
from .harness import (
    FLOOR,
    MERGANSER,
    PYPAIMON,
    RUST,
    Bench,
    Contender,
    Measures,
    Result,
    Tables,
    parser,
    run_child,
    start,
)

ROWS = 40
KEY_SPACE = 100_000
PLAIN = Contender("merganser, no accelerator", "benchmarks.ours_plain")
TABLES = (MERGANSER, RUST, PYPAIMON)
"""The contenders that have tables, which the floor has not."""
FIRST, LAST = 10, 50
"""How many commits stand for "commit 1" and for "commit 1,250"."""

INTO_BUCKETS = 100
"""How many commits into ten buckets are measured together."""


def main() -> None:
    """Run it."""
    options = parser(__doc__.splitlines()[0], rows=ROWS)
    options.add_argument("--commits", type=int, default=1_250, help="number of commits (default 1,250)")
    options.add_argument("--pypaimon-commits", type=int, default=250, help="commits of pypaimon (default 250)")
    options.add_argument("--long-commits", type=int, default=12_500, help="commits of the long table (default 12,500)")
    options.add_argument("--buckets", type=int, default=20_000, help="buckets of the wide table (default 20,000)")
    chosen = options.parse_args()
    bench = start("commits", chosen, (FLOOR, *TABLES))
    tables = Tables(bench.work)
    try:
        _measure_commits(bench, tables)
        _measure_planning(bench, tables)
        _measure_scan(bench, tables)
        if bench.options.long_commits and MERGANSER in bench.contenders:
            _measure_long_table(bench, tables)
        if bench.options.buckets and MERGANSER in bench.contenders:
            _measure_many_buckets(bench, tables)
    finally:
        tables.close()
    bench.finish()


def _arguments(bench: Bench, tables: Tables, contender: Contender) -> dict[str, object]:
    commits = bench.options.pypaimon_commits if contender == PYPAIMON else bench.options.commits
    return {
        "table": str(tables.path(contender, "many")),
        "rows": bench.options.rows,
        "commits": commits,
        "key_space": KEY_SPACE,
    }


def _measure_commits(bench: Bench, tables: Tables) -> None:
    def ends(contender: Contender, measures: Measures) -> None:
        each = measures["each_seconds"]
        measures["commits"] = len(each)
        measures["first_seconds"] = statistics.median(each[:FIRST])
        measures["last_seconds"] = statistics.median(each[-LAST:])
        measures["last_mean_seconds"] = statistics.fmean(each[-LAST:])
        measures["growth"] = measures["last_seconds"] / measures["first_seconds"]
        measures["mean_growth"] = measures["last_mean_seconds"] / statistics.fmean(each[1:FIRST])

    bench.measure(
        "commits",
        "create_and_commit",
        lambda contender: _arguments(bench, tables, contender),
        before=lambda contender: tables.drop(contender, "many"),
        after=ends,
        only=TABLES,
    )
    _print_latency([result for result in bench.results if result.action == "commits" and result.runs])


def _print_latency(results: list[Result]) -> None:
    """Show the commits at both ends; the growth of the mean includes the commits that merge manifests."""
    for result in results:
        first, last, mean = (result.median(name) for name in ("first_seconds", "last_seconds", "last_mean_seconds"))
        assert first is not None
        assert last is not None
        assert mean is not None
        print(
            f"  {result.contender}: first {FIRST} {first * 1000:.1f} ms, last {LAST} of {result.median('commits'):.0f} "
            f"{last * 1000:.1f} ms (mean {mean * 1000:.1f} ms): {result.median('growth'):.2f} x, "
            f"means {result.median('mean_growth'):.2f} x"
        )


def _ensure_many(bench: Bench, tables: Tables, contender: Contender) -> None:
    if not tables.path(contender, "many").exists():
        run_child(contender, "create_and_commit", _arguments(bench, tables, contender))


def _measure_scan(bench: Bench, tables: Tables) -> None:
    """Read the 5,000 files merged; the floor reads ours as they stand."""

    def plain(_: Contender) -> dict[str, object]:
        found = run_child(MERGANSER, "live_files", {"table": str(tables.path(MERGANSER, "many"))})["paths"]
        return {"paths": found, "columns": list(data.FIELDS)}

    floor = "scan many files, plain Parquet by Polars"
    bench.measure(
        floor,
        "plain_scan_by_polars",
        plain,
        before=lambda _: _ensure_many(bench, tables, MERGANSER),
        only=(FLOOR,),
    )
    bench.measure(
        "scan many files",
        "scan",
        lambda contender: {"table": str(tables.path(contender, "many"))},
        before=lambda contender: _ensure_many(bench, tables, contender),
        only=TABLES,
        floor=floor,
    )


def _measure_planning(bench: Bench, tables: Tables) -> None:
    def table_is_there(contender: Contender) -> None:
        _ensure_many(bench, tables, contender)

    bench.measure(
        "plan cold",
        "plan_cold",
        lambda contender: {"table": str(tables.path(contender, "many"))},
        before=table_is_there,
        only=TABLES,
    )

    bench.measure(
        "files of an open table",
        "files",
        lambda contender: {"table": str(tables.path(contender, "many"))},
        before=table_is_there,
        only=(MERGANSER,),
    )

    def grown_copy(contender: Contender) -> None:
        table_is_there(contender)
        tables.copy(contender, "many", "grown")

    bench.measure(
        "plan after one commit",
        "plan_warm",
        lambda contender: {"table": str(tables.path(contender, "grown")), "key_space": KEY_SPACE},
        before=grown_copy,
        only=TABLES,
    )


def _measure_long_table(bench: Bench, tables: Tables) -> None:
    commits = bench.options.long_commits
    kept = bench.work / f"kept-{commits}-commits-of-{bench.options.rows}" / "db.db" / "long"
    contenders = list(bench.contenders)
    bench.contenders = [MERGANSER, PLAIN]

    def table_is_there(_: Contender) -> None:
        done = kept.with_name("done")
        if not done.exists():  # a run that was stopped left part of it
            shutil.rmtree(kept.parent.parent, ignore_errors=True)
            arguments = {"table": str(kept), "rows": bench.options.rows, "commits": commits, "key_space": KEY_SPACE}
            run_child(MERGANSER, "create_and_commit", arguments)
            done.touch()

    def grown_copy(contender: Contender) -> None:
        table_is_there(contender)
        _link(kept, tables.path(contender, "grown"))

    bench.measure(
        f"plan cold after {commits:,} commits", "plan_cold", lambda _: {"table": str(kept)}, before=table_is_there
    )
    bench.measure(
        f"plan after one commit more than {commits:,}",
        "plan_warm",
        lambda contender: {"table": str(tables.path(contender, "grown")), "key_space": KEY_SPACE},
        before=grown_copy,
        only=(MERGANSER,),
    )

    def arguments(contender: Contender, name: str) -> dict[str, object]:
        table = str(tables.path(contender, name))
        return {"table": table, "rows": bench.options.rows, "commits": LAST, "key_space": KEY_SPACE}

    def ends(_: Contender, measures: Measures) -> None:
        measures["last_seconds"] = statistics.median(measures["each_seconds"])

    bench.measure(
        f"{LAST} commits, new table",
        "create_and_commit",
        lambda contender: arguments(contender, "new"),
        before=lambda contender: tables.drop(contender, "new"),
        after=ends,
        only=(MERGANSER,),
    )
    bench.measure(
        f"{LAST} commits after {commits:,}",
        "small_commits",
        lambda contender: arguments(contender, "grown"),
        before=grown_copy,
        after=ends,
        only=(MERGANSER,),
    )
    new, late = (
        next((r.median("last_seconds") for r in bench.results if r.action == action and r.runs), None)
        for action in (f"{LAST} commits, new table", f"{LAST} commits after {commits:,}")
    )
    if new and late:
        print(f"  a commit: {new * 1000:.1f} ms, after {commits:,} {late * 1000:.1f} ms: {late / new:.2f} x")
    bench.contenders = contenders


def _measure_many_buckets(bench: Bench, tables: Tables) -> None:
    def grown_copy(buckets: int) -> None:
        kept = bench.work / f"kept-{buckets}-buckets" / "db.db" / "wide"
        done = kept.with_name("done")
        if not done.exists():
            shutil.rmtree(kept.parent.parent, ignore_errors=True)
            run_child(MERGANSER, "create_buckets", {"table": str(kept), "buckets": buckets})
            done.touch()
        _link(kept, tables.path(MERGANSER, "wide"))

    def per_commit(_: Contender, measures: Measures) -> None:
        measures["each_cpu_seconds"] = measures["cpu_seconds"] / INTO_BUCKETS
        measures["last_seconds"] = statistics.median(measures["each_seconds"])

    names = {}
    for buckets in (10, bench.options.buckets):
        names[buckets] = f"{INTO_BUCKETS} commits into 10 of {buckets:,} buckets"
        bench.measure(
            names[buckets],
            "commits_into_a_partition",
            lambda contender: {
                "table": str(tables.path(contender, "wide")),
                "rows": 10 * bench.options.rows,
                "commits": INTO_BUCKETS,
            },
            before=lambda _, buckets=buckets: grown_copy(buckets),
            after=per_commit,
            only=(MERGANSER,),
        )
    few, many = (
        next((r.median("each_cpu_seconds") for r in bench.results if r.action == name and r.runs), None)
        for name in names.values()
    )
    if few and many:
        print(f"  a commit into ten buckets: {few * 1000:.1f} ms of CPU")
        print(f"  the same among {max(names):,}: {many * 1000:.1f} ms of CPU, {many / few:.2f} x")


def _link(source: Path, target: Path) -> None:
    """Make `target` a copy of a table: hard links, since files of a table are never changed in place."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target, copy_function=os.link)


if __name__ == "__main__":
    main()

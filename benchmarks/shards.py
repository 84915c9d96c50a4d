"""The shard stream: `python -m benchmarks.shards`.

Records of one shard, in pages of 1,000 and 10,000, from 1M changes of ten columns in commits of 100,000; half of the
later ones are updates. The floor reads the same changelog files by pyarrow, and nothing else. Both run on one core.

Polls of a shard without news. An iterator at a timestamp in a table of 100,000 snapshots (`--snapshots`), by a process
that has made one before, and by a fresh one. The description of 100,000 shards (`--shards`), at once and page by page;
and commits to such a table with their expiry, against a table of one shard.

Four workers in processes of their own follow 64 shards and look every 20 ms: how long after its commit a change of one
row is handled, and the last change of a commit to all shards. Then one worker is killed: how long after the kill the
others have handled a change of each shard, less the lease.
"""

from __future__ import annotations

from typing import Any

from .harness import FLOOR, Bench, Contender, Tables, parser, run_child, start

MODULE = "benchmarks.ours_shards"
OURS = Contender("merganser", MODULE)
FILES = Contender(FLOOR.name, MODULE)
SMALL = Contender("of one shard", MODULE)
COMMIT_ROWS = 100_000
PAGES = (1_000, 10_000)
POLLS = 1_000
WORKERS = 4
BUCKETS = 64
LEASE_SECONDS = 3


def main() -> None:
    """Run it."""
    options = parser(__doc__.splitlines()[0], rows=1_000_000)
    options.add_argument("--snapshots", type=int, default=100_000, help="snapshots of the long table (default 100,000)")
    options.add_argument("--shards", type=int, default=100_000, help="shards of the wide table (default 100,000)")
    options.add_argument("--commits", type=int, default=50, help="commits that workers follow (default 50)")
    bench = start("shards", options.parse_args(), (FILES, OURS))
    tables = Tables(bench.work)
    try:
        _records(bench, tables)
        _long(bench, tables)
        _wide(bench, tables)
        _follow(bench, tables)
    finally:
        tables.close()
    bench.finish()


def _records(bench: Bench, tables: Tables) -> None:
    names = [f"records, pages of {limit:,}" for limit in PAGES]
    if not any(bench.wanted(name) for name in (*names, "polls")):
        return
    table = str(tables.path(OURS, "records"))
    rows = {"rows": bench.options.rows, "commit_rows": COMMIT_ROWS, "seed": bench.options.seed}
    run_child(OURS, "changed", {"table": table, **rows})
    for limit, name in zip(PAGES, names, strict=True):
        arguments: dict[str, Any] = {"table": table, "limit": limit}
        bench.measure(name, lambda one: "files" if one is FILES else "records", lambda _, a=arguments: a)
    bench.measure("polls", "polls", lambda _: {"table": table, "polls": POLLS}, only=[OURS])
    _say(bench, "polls", "each_ms", "ms a poll")


def _long(bench: Bench, tables: Tables) -> None:
    names = ["iterator at a timestamp, warm", "iterator at a timestamp, fresh process"]
    if not any(bench.wanted(name) for name in names):
        return
    table = str(tables.path(OURS, "long"))
    run_child(OURS, "long", {"table": table, "snapshots": bench.options.snapshots})
    for name, warm in zip(names, (True, False), strict=True):
        arguments: dict[str, Any] = {"table": table, "snapshots": bench.options.snapshots, "warm": warm}
        bench.measure(name, "iterators", lambda _, a=arguments: a, only=[OURS])
        _say(bench, name, "each_ms", "ms an iterator")


def _wide(bench: Bench, tables: Tables) -> None:
    pages = {"describe, fresh process": [None], "describe, warm": [None, None], "describe, pages of 1,000": [1_000]}
    upkeep = "commit and expiry"
    if not any(bench.wanted(name) for name in (*pages, upkeep)):
        return
    table = str(tables.path(OURS, "wide"))
    run_child(OURS, "wide", {"table": table, "shards": bench.options.shards})
    for name, limits in pages.items():
        arguments: dict[str, Any] = {"table": table, "limits": limits, "shards": bench.options.shards}
        bench.measure(name, "describe", lambda _, a=arguments: a, only=[OURS])
    one = str(tables.path(SMALL, "wide"))
    run_child(OURS, "wide", {"table": one, "shards": 1})
    bench.measure(
        upkeep,
        "upkeep",
        lambda contender: {"table": one if contender is SMALL else table, "commits": 100},
        only=[OURS],
        beside=[SMALL],
    )


def _follow(bench: Bench, tables: Tables) -> None:
    def fresh(contender: Contender) -> None:
        tables.drop(contender, "followed")

    for name, rows in (("follow, commits of a row", 1), ("follow, commits to all shards", 20 * BUCKETS)):
        arguments: dict[str, Any] = {
            "table": str(tables.path(OURS, "followed")),
            "buckets": BUCKETS,
            "workers": WORKERS,
            "rows": rows,
            "commits": bench.options.commits,
        }
        bench.measure(name, "follow", lambda _, a=arguments: a, before=fresh, only=[OURS])
        _say(bench, name, "median_ms", "ms from the commit until it is handled (median)")
        _say(bench, name, "p95_ms", "ms (95 %)")
    arguments = {
        "table": str(tables.path(OURS, "followed")),
        "buckets": BUCKETS,
        "workers": WORKERS,
        "lease": LEASE_SECONDS,
    }
    name = "take-over"
    bench.measure(name, "take_over", lambda _: arguments, before=fresh, only=[OURS])
    _say(bench, name, "after_lease_seconds", f"s after the lease of {LEASE_SECONDS} s")


def _say(bench: Bench, action: str, measure: str, what: str) -> None:
    for result in bench.results:
        if result.action == action and (found := result.median(measure)) is not None:
            print(f"  {result.contender}: {found:.2f} {what}")


if __name__ == "__main__":
    main()

"""Buckets that are added as keys arrive: `python -m benchmarks.buckets`.

A bulk write of the base (5M rows of ten columns), an upsert of 500,000 rows, a sixth of them new, by a process that has
written one before and by a fresh one, and commits of 1,000 random keys. Without partitions the floor is a table of
four buckets. With keys that move between a hundred partitions, it is the same table with the partition in its key.
"""

from __future__ import annotations

from typing import Any

from . import data
from .harness import FLOOR, Bench, Contender, Measures, Tables, bytes_written, files_under, parser, run_child, start

MODULE = "benchmarks.ours_buckets"
FIXED = Contender(FLOOR.name, MODULE)
DYNAMIC = Contender("dynamic", MODULE)
PARTED = Contender("partition in key", MODULE)
MOVING = Contender("moving keys", MODULE)
SHAPES: dict[str, dict[str, Any]] = {
    FIXED.name: {"options": {"bucket": "4"}, "primary_key": ["k"], "partition_by": []},
    DYNAMIC.name: {"options": {}, "primary_key": ["k"], "partition_by": []},
    PARTED.name: {"options": {"bucket": "1"}, "primary_key": ["k", "label"], "partition_by": ["label"]},
    MOVING.name: {"options": {}, "primary_key": ["k"], "partition_by": ["label"]},
}
COMMITS = 12
ROWS = 1_000


def main() -> None:
    """Run it."""
    contenders = (FIXED, DYNAMIC, PARTED, MOVING)
    bench = start("buckets", parser(__doc__.splitlines()[0]).parse_args(), contenders)
    tables = Tables(bench.work)
    try:
        batches = data.prepare(bench.work, bench.options.rows, bench.options.seed)
        _measure(bench, tables, batches)
    finally:
        tables.close()
    bench.finish()


def _measure(bench: Bench, tables: Tables, batches: data.Batches) -> None:
    files: dict[str, dict[str, tuple[int, int]]] = {}

    def path(contender: Contender, name: str) -> str:
        return str(tables.path(contender, name))

    def fresh(contender: Contender) -> None:
        tables.drop(contender, "new")
        files[contender.name] = {}

    def copied(contender: Contender) -> None:
        if not tables.path(contender, "base").exists():
            run_child(
                contender, "write", {"table": path(contender, "base"), "base": str(batches.base), **_shape(contender)}
            )
        tables.copy(contender, "base", "run")
        files[contender.name] = files_under(tables.path(contender, "run"))

    def written(name: str) -> Any:
        def after(contender: Contender, measures: Measures) -> None:
            found = bytes_written(files[contender.name], files_under(tables.path(contender, name)))
            measures["written_bytes"] = found // measures.pop("commits", 1)

        return after

    bench.measure(
        "write",
        "write",
        lambda contender: {"table": path(contender, "new"), "base": str(batches.base), **_shape(contender)},
        before=fresh,
        after=written("new"),
    )
    for contender in (FIXED, DYNAMIC, PARTED, MOVING):
        tables.drop(contender, "new")
    for action, first in (("upsert, warm", 0), ("upsert, fresh process", 1)):
        chosen = [str(batch) for batch in batches.upserts[first:2]]
        bench.measure(
            action,
            "upsert",
            lambda contender, chosen=chosen: {"table": path(contender, "run"), "batches": chosen},
            before=copied,
            after=written("run"),
        )
    bench.measure(
        f"{COMMITS} commits of 1,000 keys",
        "small_commits",
        lambda contender: {
            "table": path(contender, "run"),
            "rows": ROWS,
            "commits": COMMITS,
            "key_space": 2 * batches.rows,
        },
        before=copied,
        after=written("run"),
    )
    print_moves(bench)
    for result in bench.results:
        if (warm := result.median("warm_ms")) is not None:
            print(f"1,000 keys, warm: {result.contender} {warm:,.0f} ms a commit")


def print_moves(bench: Bench) -> None:
    """Print what tables of keys that move take against the table with the partition in its key."""
    found = {(result.action, result.contender): result for result in bench.results}
    for action, name in found:
        parted = found.get((action, PARTED.name))
        if name != MOVING.name or parted is None:
            continue
        sides = [
            (found[action, name].median(measure), parted.median(measure)) for measure in ("seconds", "cpu_seconds")
        ]
        times = [f"{moving / fixed:.2f} x" for moving, fixed in sides if moving and fixed]
        print(f"{action}: {MOVING.name} against {PARTED.name}, seconds and CPU seconds: {', '.join(times)}")


def _shape(contender: Contender) -> dict[str, Any]:
    return SHAPES[contender.name]


if __name__ == "__main__":
    main()

"""Changes: `python -m benchmarks.changes`.

What 100 commits of 1,000 rows published; and the difference of two states of a base (5M rows of ten columns, four
buckets, compacted) after 1 % of its rows changed, before a full compaction and after it. The rows that change are
neighbours by key, or every hundredth. The floor is a scan of the compacted base.
"""

from __future__ import annotations

from typing import Any

from . import data
from .harness import FLOOR, Bench, Contender, Tables, parser, run_child, start

OURS = Contender("merganser", "benchmarks.ours_changes")
SCAN = Contender(FLOOR.name, "benchmarks.ours_changes")
COMMITS = 100
ROWS = 1_000


def main() -> None:
    """Run it."""
    bench = start("changes", parser(__doc__.splitlines()[0]).parse_args(), (SCAN, OURS))
    tables = Tables(bench.work)
    try:
        _commits(bench, tables)
        batches = data.prepare(bench.work, bench.options.rows, bench.options.seed)
        for name, scattered in (("neighbours", False), ("scattered", True)):
            if any(bench.wanted(f"{form}, {name}") for form in ("diff", "diff compacted")):
                _diffs(bench, tables, batches, name, scattered=scattered)
    finally:
        tables.close()
    bench.finish()


def _commits(bench: Bench, tables: Tables) -> None:
    table = str(tables.path(OURS, "commits"))
    if bench.wanted("100 commits"):
        run_child(OURS, "commits", {"table": table, "commits_count": COMMITS, "rows": ROWS})
    arguments: dict[str, Any] = {"table": table, "start": 1, "end": COMMITS}
    bench.measure("100 commits of 1,000 rows", "changes", lambda _: arguments, only=[OURS])


def _diffs(bench: Bench, tables: Tables, batches: data.Batches, name: str, *, scattered: bool) -> None:
    table = str(tables.path(OURS, name))
    run_child(OURS, "change", {"table": table, "base": str(batches.base), "scattered": scattered})
    for form, end in (("diff", 3), ("diff compacted", 4)):
        arguments: dict[str, Any] = {"table": table, "start": 3, "end": end, "mode": "diff"}

        def function(contender: Contender) -> str:
            return "scan" if contender is SCAN else "changes"

        bench.measure(f"{form}, {name}", function, lambda _, given=arguments: given)
    tables.drop(OURS, name)


if __name__ == "__main__":
    main()

"""Writes that ask for the old rows of their keys: `python -m benchmarks.old_rows`.

Ten upserts (500,000 rows each) into the base (5M rows of ten columns, four buckets, compacted), with deletion vectors;
and commits of 1,000 random keys into the base, half of them there already, with merge engine first-row: by a process
that has its lookup copies, and the first one of a fresh process without. The floor is a table that asks for nothing.
"""

from __future__ import annotations

from typing import Any, Final

from . import data
from .harness import FLOOR, Bench, Contender, Tables, parser, run_child, start
from .producers import COMMITS, MODULE, ROWS, Run

NONE: Final = Contender(FLOOR.name, MODULE)
VECTORS: Final = Contender("deletion vectors", MODULE)
FIRST_ROW: Final = Contender("first-row", MODULE)
OPTIONS: Final = {
    NONE: {},
    VECTORS: {"deletion-vectors.enabled": "true"},
    FIRST_ROW: {"merge-engine": "first-row"},
}


def main() -> None:
    """Run it."""
    bench = start("old_rows", parser(__doc__.splitlines()[0]).parse_args(), tuple(OPTIONS))
    tables = Tables(bench.work)
    try:
        batches = data.prepare(bench.work, bench.options.rows, bench.options.seed)
        upserts = {"upserts": [str(path) for path in batches.upserts]}
        _measure(bench, tables, batches, "ten upserts", "upserts", VECTORS, upserts)
        for commits in (COMMITS, 1):
            action = "first commit, fresh process" if commits == 1 else f"{commits} commits of 1,000 keys"
            few = {"rows": ROWS, "commits": commits, "key_space": 2 * batches.rows}
            _measure(bench, tables, batches, action, "small_commits", FIRST_ROW, few)
    finally:
        tables.close()
    for result in bench.results:
        if (warm := result.median("warm_ms")) is not None:
            print(f"1,000 keys, warm: {result.contender} {warm:,.0f} ms a commit")
    bench.finish()


def _measure(
    bench: Bench,
    tables: Tables,
    batches: data.Batches,
    action: str,
    function: str,
    contender: Contender,
    arguments: dict[str, Any],
) -> None:
    run = Run(bench, tables, "base")

    def before(each: Contender) -> None:
        path = tables.path(each, "base")
        if not path.exists():
            run_child(each, "make", {"table": str(path), "options": OPTIONS[each], "base": str(batches.base)})
        run.before(each)

    bench.measure(
        action,
        function,
        lambda each: run.arguments(each) | arguments,
        before=before,
        after=run.after,
        only=[NONE, contender],
    )


if __name__ == "__main__":
    main()

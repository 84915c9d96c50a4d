"""Rows changed by condition: `python -m benchmarks.dml`.

Updates and deletes of 1,000 rows by key, and of 1 % of the rows by value, and a merge of 500,000 rows, in a compacted
table of 5M rows of ten columns in four buckets. The floors, in the same run: an upsert of 1,000 rows; a filtered scan
and a write of the rows that it finds; an upsert of the same 500,000 rows and a scan of the columns that a merge reads.
"""

from __future__ import annotations

from typing import Any, Final

from . import data
from .harness import FLOOR, Contender, Measures, Tables, bytes_written, files_under, parser, run_child, start

MODULE: Final = "benchmarks.ours_dml"
BASE: Final = Contender(FLOOR.name, MODULE)
UPDATE: Final = Contender("update", MODULE)
DELETE: Final = Contender("delete", MODULE)
MERGE: Final = Contender("merge", MODULE)
COMMITS: Final = 15
ROWS: Final = 1_000


def main() -> None:
    """Run it."""
    bench = start("dml", parser(__doc__.splitlines()[0]).parse_args(), (BASE, UPDATE, DELETE, MERGE))
    tables = Tables(bench.work)
    files: dict[str, dict[str, tuple[int, int]]] = {}
    try:
        batches = data.prepare(bench.work, bench.options.rows, bench.options.seed)

        def before(contender: Contender) -> None:
            if not tables.path(BASE, "base").exists():
                run_child(BASE, "make", {"table": str(tables.path(BASE, "base")), "base": str(batches.base)})
            if contender != BASE and not tables.path(contender, "base").exists():
                made = {"table": str(tables.path(contender, "base")), "base": str(batches.base)}
                run_child(contender, "make", made)
            tables.copy(contender, "base", "run")
            files[contender.name] = files_under(tables.path(contender, "run"))

        def after(contender: Contender, measures: Measures) -> None:
            measures["written_bytes"] = bytes_written(files[contender.name], files_under(tables.path(contender, "run")))

        def of(contender: Contender, **more: Any) -> dict[str, Any]:
            return {"table": str(tables.path(contender, "run")), "how": contender.name, **more}

        few = {"commits": COMMITS, "rows": ROWS, "key_space": 2 * batches.rows}
        bench.measure(
            f"{COMMITS} times 1,000 keys",
            "by_key",
            lambda contender: of(contender, **few),
            before=before,
            after=after,
            only=[BASE, UPDATE, DELETE],
        )
        bench.measure("1 % by value", "by_value", of, before=before, after=after, only=[BASE, UPDATE, DELETE])
        bench.measure(
            "merge of a tenth",
            "merge",
            lambda contender: of(contender, batch=str(batches.upserts[0])),
            before=before,
            after=after,
            only=[BASE, MERGE],
        )
    finally:
        tables.close()
    for result in bench.results:
        if (warm := result.median("warm_ms")) is not None:
            print(f"1,000 keys, warm: {result.contender} {warm:,.0f} ms a commit")
    bench.finish()


if __name__ == "__main__":
    main()

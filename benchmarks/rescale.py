"""Rescaling: `python -m benchmarks.rescale`.

A table of 5M rows in four buckets, with two upserts of 500,000 rows on top, moves to eight buckets. The floor is a full
compaction of the same table, which reads and writes the same rows.
"""

from __future__ import annotations

from typing import Any

from . import data
from .harness import FLOOR, Contender, Measures, Tables, bytes_written, files_under, parser, run_child, start

MODULE = "benchmarks.ours_buckets"
COMPACTED = Contender(FLOOR.name, MODULE)
BUCKETS = {COMPACTED.name: 0, "4 to 8": 8, "4 to 6": 6, "4 to 2": 2}


def main() -> None:
    """Run it."""
    contenders = tuple(Contender(name, MODULE) for name in BUCKETS)
    bench = start("rescale", parser(__doc__.splitlines()[0]).parse_args(), contenders)
    tables = Tables(bench.work)
    files: dict[str, dict[str, tuple[int, int]]] = {}

    def path(contender: Contender, name: str) -> str:
        return str(tables.path(contender, name))

    try:
        batches = data.prepare(bench.work, bench.options.rows, bench.options.seed)
        how: dict[str, Any] = {"options": {"bucket": "4"}, "primary_key": ["k"], "partition_by": []}

        def copied(contender: Contender) -> None:
            if not tables.path(contender, "base").exists():
                run_child(contender, "write", {"table": path(contender, "base"), "base": str(batches.base), **how})
                upserts = [str(batch) for batch in batches.upserts[:2]]
                run_child(contender, "upsert", {"table": path(contender, "base"), "batches": upserts})
            tables.copy(contender, "base", "run")
            files[contender.name] = files_under(tables.path(contender, "run"))

        def written(contender: Contender, measures: Measures) -> None:
            measures["written_bytes"] = bytes_written(files[contender.name], files_under(tables.path(contender, "run")))

        bench.measure(
            "rescale",
            "rescale",
            lambda contender: {"table": path(contender, "run"), "buckets": BUCKETS[contender.name]},
            before=copied,
            after=written,
        )
    finally:
        tables.close()
    bench.finish()


if __name__ == "__main__":
    main()

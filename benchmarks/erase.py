"""Erasing: `python -m benchmarks.erase`.

1,000 keys are erased everywhere from a table of 5M rows in four buckets, with two upserts of 500,000 rows on top: keys
anywhere, keys in a row, and the rows that a filter on another column finds. The run fails unless every version of them
is gone, and only files that held some were written again. The floor is a full compaction of the same table.
"""

from __future__ import annotations

import random
from typing import Any

from . import data
from .harness import FLOOR, Contender, Measures, Tables, bytes_written, files_under, parser, run_child, start

MODULE = "benchmarks.ours_erase"
KEYS = 1_000
COMPACTED = Contender(FLOOR.name, MODULE)
ERASING = ("keys anywhere", "keys in a row", "another column")


def main() -> None:
    """Run it."""
    contenders = (COMPACTED, *(Contender(name, MODULE) for name in ERASING))
    bench = start("erase", parser(__doc__.splitlines()[0]).parse_args(), contenders)
    tables, rows = Tables(bench.work), bench.options.rows
    files: dict[str, dict[str, tuple[int, int]]] = {}

    def path(contender: Contender, name: str) -> str:
        return str(tables.path(contender, name))

    try:
        batches = data.prepare(bench.work, rows, bench.options.seed)
        how: dict[str, Any] = {
            "options": {"bucket": "4", "target-file-size": "16 mb"},
            "primary_key": ["k"],
            "partition_by": [],
        }
        first = batches.key_range[0]
        anywhere = sorted(random.Random(bench.options.seed).sample(range(2 * rows), 2 * KEYS))  # half of them are keys
        where = dict(
            zip(
                ERASING,
                (
                    f"k IN ({', '.join(map(str, anywhere))})",
                    f"k BETWEEN {first} AND {first + 2 * KEYS - 1}",
                    f"i32 < {KEYS * 1_000_000 // rows}",
                ),
                strict=True,
            )
        )

        def copied(contender: Contender) -> None:
            if not tables.path(contender, "base").exists():
                run_child(contender, "write", {"table": path(contender, "base"), "base": str(batches.base), **how})
                upserts = [str(batch) for batch in batches.upserts[:2]]
                run_child(contender, "upsert", {"table": path(contender, "base"), "batches": upserts})
            tables.copy(contender, "base", "run")
            files[contender.name] = files_under(tables.path(contender, "run"))

        def written(contender: Contender, measures: Measures) -> None:
            measures["written_bytes"] = bytes_written(files[contender.name], files_under(tables.path(contender, "run")))

        def arguments(contender: Contender) -> dict[str, str]:
            more = {} if contender == COMPACTED else {"where": where[contender.name]}
            return {"table": path(contender, "run"), **more}

        bench.measure(
            "erase",
            lambda contender: "compact" if contender == COMPACTED else "erase",
            arguments,
            before=copied,
            after=written,
        )
        for result in bench.results:
            if found := [run for run in result.runs if "rewritten" in run]:
                facts = found[0]
                print(f"  {result.contender}: {facts['keys']:,} keys, {facts['rewritten']} of {facts['files']} files")
    finally:
        tables.close()
    bench.finish()


if __name__ == "__main__":
    main()

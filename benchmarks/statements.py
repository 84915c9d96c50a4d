"""SQL before its rows: `python -m benchmarks.statements`.

    parse            every statement of the cases of SQL (`tests/vectors/sql.json`), read five times
    parse and plan   EXPLAIN of every query of the cases, on the tables of its case, and of the 22 queries of TPC-H, on
                     append and key tables: the text is read, its names are found, and each scan has chosen its files
    one key          `SELECT i32, f64 FROM t WHERE k = ...` beside `Table.lookup` of the same keys and columns, in
                     turns: seconds, and the bytes that this process reads

The first two have no floor: nothing is read for them but metadata.
"""

from __future__ import annotations

from typing import Any

from . import data
from .harness import MERGANSER, Contender, parser, start
from .tpch import prepared

OURS = Contender(MERGANSER.name, "benchmarks.ours_statements")
SHOWN = (
    ("statements", "", 0),
    ("median_ms", "ms", 2),
    ("p99_ms", "ms", 2),
    ("most_ms", "ms", 2),
    ("lookup_ms", "ms", 2),
    ("select_ms", "ms", 2),
    ("lookup_bytes", "bytes a key", 0),
    ("select_bytes", "bytes a key", 0),
)


def main() -> None:
    """Run it."""
    bench = start("statements", parser(__doc__.splitlines()[0]).parse_args(), (OURS,))
    work: dict[str, Any] = {"work": str(bench.work)}
    bench.measure("parse", "parse_cases", lambda _: {})
    if bench.wanted("parse and plan"):
        tpch = str(prepared(bench.work, "1"))
        bench.measure("parse and plan", "plan_cases", lambda _: work | {"tpch": tpch})
    if bench.wanted("one key"):
        batches = data.prepare(bench.work, bench.options.rows, bench.options.seed)
        bench.measure("one key", "one_key", lambda _: work | {"base": str(batches.base)})
    for result in bench.results:
        for name, unit, digits in SHOWN:
            value = result.median(name)
            if value is not None:
                shown = name.removesuffix("_ms").removesuffix("_bytes")
                print(f"{result.action:16}{shown:12}{value:12,.{digits}f} {unit}")
        for run in result.runs[:1]:
            if "slowest" in run:
                print(f"{result.action:16}slowest      {run['slowest']}")
    bench.finish()


if __name__ == "__main__":
    main()

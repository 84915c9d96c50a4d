"""Merge engines: `python -m benchmarks.engines`.

Five runs, ten million rows in all, a third of them left after the merge, are read merged: by partial-update over ten
value columns and by aggregation (sum, max, last value), each beside deduplicate over rows of the same shape, which is
what the engines are held against. The clients read the very same tables, which merganser wrote.
"""

from __future__ import annotations

from . import engine_data
from .harness import MERGANSER, PYPAIMON, RUST, Bench, Tables, parser, run_child, start

ROWS = 10_000_000
REFERENCE = {"partial-update": "deduplicate, 10 columns", "aggregation": "deduplicate, 3 columns"}


def main() -> None:
    """Run it."""
    options = parser(__doc__.splitlines()[0], rows=ROWS).parse_args()
    bench = start("engines", options, (MERGANSER, RUST, PYPAIMON))
    tables = Tables(bench.work)
    try:
        for engine in engine_data.ENGINES:
            _measure(bench, tables, engine)
    finally:
        tables.close()
    bench.finish()


def _measure(bench: Bench, tables: Tables, engine: str) -> None:
    if not bench.wanted(engine):
        return
    path = str(tables.path(MERGANSER, "".join(letter for letter in engine if letter.isalnum())))
    settings = {"table": path, "engine": engine, "rows": bench.options.rows, "seed": bench.options.seed}
    run_child(MERGANSER, "engine_table", settings)  # its cost is nobody's
    bench.measure(engine, "scan", lambda _: {"table": path})
    seconds = {
        result.action: result.median("seconds") for result in bench.results if result.contender == MERGANSER.name
    }
    against = seconds.get(REFERENCE.get(engine, ""))
    own = seconds.get(engine)
    if against and own:
        print(f"  merganser: {own / against:.2f} x its deduplicate")


if __name__ == "__main__":
    main()

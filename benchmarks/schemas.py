"""Files of older schemas: `python -m benchmarks.schemas`.

The same rows lie in five commits, all written with one schema, or each with the next of five: a column is added, one is
renamed and one moved, one gets a wider type, one is dropped. The floor is the table of one schema.
"""

from __future__ import annotations

from . import data
from .harness import FLOOR, Bench, Contender, Tables, parser, run_child, start

MODULE = "benchmarks.ours_schemas"
ONE = Contender(FLOOR.name, MODULE)
FIVE = Contender("five schemas", MODULE)
SCHEMAS = {ONE.name: 1, FIVE.name: 5}
KEYS: dict[str, list[str]] = {"append": [], "merged": ["k"]}


def main() -> None:
    """Run it."""
    bench = start("schemas", parser(__doc__.splitlines()[0]).parse_args(), (ONE, FIVE))
    tables = Tables(bench.work)
    try:
        batches = data.prepare(bench.work, bench.options.rows, bench.options.seed)
        for name, key in KEYS.items():
            _measure(bench, tables, batches, name, key)
    finally:
        tables.close()
    bench.finish()


def _measure(bench: Bench, tables: Tables, batches: data.Batches, name: str, key: list[str]) -> None:
    def before(each: Contender) -> None:
        path = tables.path(each, name)
        if not path.exists():
            how = {"base": str(batches.base), "schemas": SCHEMAS[each.name], "primary_key": key}
            run_child(each, "make", {"table": str(path), **how})

    for action, more in (
        ("all columns", {}),
        ("k and f64", {"columns": ["k", "f64"]}),
        ("1 %", {"value_below": 10_000}),
    ):
        bench.measure(
            f"{name}, {action}",
            "scan",
            lambda each, more=more: {"table": str(tables.path(each, name)), **more},  # type: ignore[misc]
            before=before,
        )


if __name__ == "__main__":
    main()

"""The same table with ten times the rows: `python -m benchmarks.scale`.

Bulk write, merged scans of base and ten upserts, and full compaction, with 1 x and 10 x the rows. It prints how many
times the seconds, the CPU seconds and the peak memory of the small table each one takes with the large one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from . import data
from .harness import FLOOR, MERGANSER, Bench, Contender, Tables, parser, run_child, start


def main() -> None:
    """Run it."""
    options = parser(__doc__.splitlines()[0])
    options.add_argument("--factor", type=int, default=10, help="how many times the rows (default 10)")
    chosen = options.parse_args()
    bench = start("scale", chosen, (MERGANSER, FLOOR))
    for factor in (1, chosen.factor):
        tables = Tables(bench.work)
        try:
            _measure(bench, tables, data.prepare(bench.work, chosen.rows * factor, chosen.seed), factor)
        finally:
            tables.close()
    _print_ratios(bench, chosen.factor)
    bench.finish()


def _measure(bench: Bench, tables: Tables, batches: data.Batches, factor: int) -> None:
    """Measure every action with `factor` times the rows."""
    fresh = partial(tables.drop, name="base")
    bench.measure(
        f"write, {factor} x",
        "write",
        lambda contender: {"table": str(tables.path(contender, "base")), "base": str(batches.base)},
        before=fresh,
        only=(MERGANSER,),
    )
    merged = partial(_ensure_merged, tables, batches)
    scans: dict[str, Mapping[str, Any]] = {"scan all": {}, "scan 2 columns": {"columns": list(data.TWO_COLUMNS)}}
    for action, arguments in scans.items():
        bench.measure(
            f"{action}, {factor} x",
            "scan",
            _arguments(tables, "merged", arguments),
            before=merged,
            # The floor holds all columns of all rows several times: too much memory for the large table.
            only=(MERGANSER,) if action == "scan all" else None,
        )

    def to_compact(contender: Contender) -> None:
        merged(contender)
        tables.copy(contender, "merged", "compacted")

    bench.measure(
        f"compact full, {factor} x",
        "compact",
        _arguments(tables, "compacted", {}),
        before=to_compact,
        only=(MERGANSER,),
    )


def _arguments(tables: Tables, name: str, arguments: Mapping[str, Any]) -> Callable[[Contender], dict[str, Any]]:
    return lambda contender: {"table": str(tables.path(contender, name)), **arguments}


def _ensure_merged(tables: Tables, batches: data.Batches, contender: Contender) -> None:
    """Write the base and the ten upserts, unmeasured, unless they are there."""
    path = str(tables.path(contender, "merged"))
    if not tables.path(contender, "merged").exists():
        run_child(contender, "write", {"table": path, "base": str(batches.base)})
        run_child(contender, "upserts", {"table": path, "upserts": [str(batch) for batch in batches.upserts]})


def _print_ratios(bench: Bench, factor: int) -> None:
    found = {(result.action, result.contender): result for result in bench.results if result.runs}
    print(f"\n{factor} x the rows take so many times as much")
    for (action, contender), large in found.items():
        name, _, size = action.rpartition(", ")
        small = found.get((f"{name}, 1 x", contender))
        if size == "1 x" or small is None:
            continue
        ratios = []
        for measure, label in (("seconds", "seconds"), ("cpu_seconds", "cpu s"), ("peak_bytes", "peak")):
            few, many = small.median(measure), large.median(measure)
            ratios.append(f"{label} {many / few:.1f}" if few and many else f"{label} -")
        print(f"  {name}, {contender}: {', '.join(ratios)}")


if __name__ == "__main__":
    main()

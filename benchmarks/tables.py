"""Writing and reading one large key table: `python -m benchmarks.tables`.

Bulk write of the base (5M rows, four buckets), ten upserts of a tenth of it, merged scans of the eleven runs, a commit
of 1,000 rows into the base, and the memory of a merged scan of one and of four times the rows.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from . import data
from .harness import (
    FLOOR,
    MERGANSER,
    PYPAIMON,
    RUST,
    Bench,
    Contender,
    Measures,
    Tables,
    bytes_written,
    files_under,
    parser,
    run_child,
    start,
)

TABLES = (MERGANSER, RUST, PYPAIMON)
"""The contenders that have tables, which the floor has not."""
SMALL_ROWS = 1_000
SMALL_COMMITS = 6


def main() -> None:
    """Run it."""
    options = parser(__doc__.splitlines()[0]).parse_args()
    bench = start("tables", options, (FLOOR, MERGANSER, RUST, PYPAIMON))
    batches = data.prepare(bench.work, options.rows, options.seed)
    tables = Tables(bench.work)
    try:
        measure_writes(bench, tables, batches)
        measure_scans(bench, tables, batches)
        measure_small_commits(bench, tables, batches)
        _measure_memory(bench, tables, batches)
    finally:
        tables.close()
    bench.finish()


def measure_writes(bench: Bench, tables: Tables, batches: data.Batches) -> None:
    """Bulk write and ten upserts."""

    def size(contender: Contender, measures: Measures) -> None:
        files = files_under(tables.path(contender, "base"))
        measures["written_bytes"] = bytes_written({}, files)
        measures["files"] = len(files)

    bench.measure(
        "write",
        "write",
        lambda contender: {"table": str(tables.path(contender, "base")), "base": str(batches.base)},
        before=lambda contender: tables.drop(contender, "base"),
        after=size,
    )
    before: dict[str, dict[str, tuple[int, int]]] = {}

    def fresh(contender: Contender) -> None:
        _ensure_base(tables, batches, contender)
        tables.copy(contender, "base", "merged")
        before[contender.name] = files_under(tables.path(contender, "merged"))

    def growth(contender: Contender, measures: Measures) -> None:
        files = files_under(tables.path(contender, "merged"))
        measures["written_bytes"] = bytes_written(before[contender.name], files)

    bench.measure(
        "upserts",
        "upserts",
        lambda contender: {
            "table": str(tables.path(contender, "merged")),
            "upserts": [str(path) for path in batches.upserts],
        },
        before=fresh,
        after=growth,
    )


def measure_scans(bench: Bench, tables: Tables, batches: data.Batches, *, forms: bool = True) -> None:
    """Merged scans of the base and the ten upserts; `forms`: and of the floor in its two other forms."""

    def merged_is_there(contender: Contender) -> None:
        _ensure_merged(tables, batches, contender)

    scans: dict[str, dict[str, Any]] = {
        "scan all": {},
        "scan 2 columns": {"columns": list(data.TWO_COLUMNS)},
        "scan key range 0.2 %": {"key_range": list(batches.key_range)},
        "scan value filter 1 %": {"value_below": data.VALUE_BELOW},
        "scan 1,000 keys": {"keys": batches.some_keys},
    }
    for action, arguments in scans.items():
        filtered = bool({"key_range", "value_below", "keys"} & arguments.keys())
        bench.measure(
            action,
            "scan",
            _scan_arguments(tables, "merged", arguments),
            before=merged_is_there,
            only=(MERGANSER,) if "keys" in arguments else TABLES if filtered else None,
            floor="scan all" if filtered else None,
        )
        if forms and not filtered:
            for form in ("by bucket", "eagerly"):
                bench.measure(
                    f"{action}, floor {form}",
                    "scan_" + form.replace(" ", "_"),
                    _scan_arguments(tables, "merged", arguments),
                    before=merged_is_there,
                    only=(FLOOR,),
                    floor=action,
                )
    _check_rows(bench)


def _check_rows(bench: Bench) -> None:
    """Everyone must have found the same number of rows."""
    for action in {result.action for result in bench.results if result.action.startswith("scan")}:
        found = {r.contender: r.median("rows") for r in bench.results if r.action == action and r.runs}
        if len(set(found.values())) > 1:
            raise SystemExit(f"{action}: the contenders do not agree on the rows: {found}")


def measure_small_commits(bench: Bench, tables: Tables, batches: data.Batches) -> None:
    """Small commits into the base; the measures are those of one commit."""
    before: dict[str, dict[str, tuple[int, int]]] = {}

    def fresh(contender: Contender) -> None:
        _ensure_base(tables, batches, contender)
        tables.copy(contender, "base", "small")
        before[contender.name] = files_under(tables.path(contender, "small"))

    def per_commit(contender: Contender, measures: Measures) -> None:
        files = files_under(tables.path(contender, "small"))
        measures["written_bytes"] = bytes_written(before[contender.name], files) / SMALL_COMMITS
        measures["first_seconds"], *rest = measures["each_seconds"]
        measures["seconds"] = statistics.median(rest)
        measures["cpu_seconds"] /= SMALL_COMMITS
        measures["rows"] = SMALL_ROWS

    bench.measure(
        f"commit of {SMALL_ROWS:,} rows",
        "small_commits",
        lambda contender: {
            "table": str(tables.path(contender, "small")),
            "rows": SMALL_ROWS,
            "commits": SMALL_COMMITS,
            "key_space": batches.rows * 2,
        },
        before=fresh,
        after=per_commit,
    )


def _measure_memory(bench: Bench, tables: Tables, batches: data.Batches) -> None:
    """Peak memory of a merged scan whose batches are dropped at once, at 1 x and 4 x the rows (ours only)."""
    for factor in (1, 4):
        action = f"memory of a scan, {factor} x"
        if not bench.wanted(action) or MERGANSER not in bench.contenders:
            continue
        scaled = data.prepare(bench.work, batches.rows * factor, bench.options.seed)
        name = f"memory-{factor}"
        bench.measure(
            action,
            "scan",
            _scan_arguments(tables, name, {"batches": True}),
            before=partial(_ensure_merged, tables, scaled, base=f"{name}-base", merged=name),
            only=(MERGANSER,),
        )


def _scan_arguments(
    tables: Tables, name: str, arguments: Mapping[str, object]
) -> Callable[[Contender], dict[str, object]]:
    return lambda contender: {"table": str(tables.path(contender, name)), **arguments}


def _ensure_base(tables: Tables, batches: data.Batches, contender: Contender, *, base: str = "base") -> None:
    """Write the base, unmeasured, unless it is there: `--only` may have left the write out."""
    path = tables.path(contender, base)
    if not path.exists():
        run_child(contender, "write", {"table": str(path), "base": str(batches.base)})


def _ensure_merged(
    tables: Tables, batches: data.Batches, contender: Contender, *, base: str = "base", merged: str = "merged"
) -> None:
    """The same for the base with the ten upserts."""
    path = tables.path(contender, merged)
    if not path.exists():
        _ensure_base(tables, batches, contender, base=base)
        tables.copy(contender, base, merged)
        run_child(contender, "upserts", {"table": str(path), "upserts": [str(batch) for batch in batches.upserts]})


if __name__ == "__main__":
    main()

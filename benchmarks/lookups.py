"""Rows of given keys: `python -m benchmarks.lookups`.

The base (5M rows of ten columns, four buckets) compacted, and the same below ten level-0 runs. One key at a time, 1,000
keys at once, keys that are not there, and a million keys, by a handle that has its lookup copies; the first key in a
fresh process without copies; a refresh after a commit of 1,000 rows; the memory of a handle; and a lookup join through
Spark. Beside it RocksDB with a row per key (JSON), the primary key of DuckDB, and filtered scans of pypaimon-rust.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from . import data
from .harness import RUST, Bench, Contender, Measures, Tables, parser, run_child, start

RUN_ROWS = 20_000
"""Rows of each of the ten level-0 runs."""


def _stores() -> str:
    from tests.interop import peers

    kind = peers.PeerKind("stores", ("rocksdict==0.3.29", "duckdb==1.4.2", "pyarrow>=19", "numpy>=1.26"), "")
    return str(peers.environment_of(kind))


OURS = Contender("merganser", "benchmarks.ours_lookups")
RUNS = Contender("merganser (ten runs)", "benchmarks.ours_lookups")
ROCKS = Contender("RocksDB", "benchmarks.peer_rocks", _stores)
DUCK = Contender("DuckDB", "benchmarks.peer_duckdb", _stores)
LOOKUP_RUST = Contender("pypaimon-rust", "benchmarks.peer_rust_lookups", RUST.interpreter)
SHOWN = (
    ("one key", "single_us", "us"),
    ("one key that is not there", "miss_us", "us"),
    ("1,000 keys", "batch_ms", "ms"),
    ("1,000,000 keys", "many_seconds", "s"),
    ("first lookups: copies made, or store opened", "prepare_seconds", "s"),
    ("own memory", "own_bytes", "bytes"),
    ("first key, fresh process, no copies", "cold_ms", "ms"),
    ("the same where pandas is installed, which pyarrow then imports", "beside_ms", "ms"),
    ("refresh after 1,000 rows", "refresh_ms", "ms"),
)


def main() -> None:
    """Run it."""
    options = parser(__doc__.splitlines()[0])
    options.add_argument("--join-rows", type=int, default=1_000_000, help="rows of the join on Spark; 0 leaves it out")
    bench = start("lookups", options.parse_args(), (OURS, RUNS, ROCKS, DUCK, LOOKUP_RUST))
    batches = data.prepare(bench.work, bench.options.rows, bench.options.seed)
    tables = Tables(bench.work)
    try:
        for contender in bench.contenders:
            _made(bench, tables, contender, batches)
        _measure(bench, tables, batches)
        if bench.options.join_rows and OURS in bench.contenders:
            _join(bench, tables, batches)
    finally:
        tables.close()
    bench.finish()


def _made(bench: Bench, tables: Tables, contender: Contender, batches: data.Batches) -> None:
    arguments: dict[str, Any] = {"table": str(tables.path(contender, "base")), "base": str(batches.base)}
    if contender == RUNS:
        arguments |= {"runs": 10, "run_rows": RUN_ROWS * bench.options.rows // 5_000_000}
    print(f"{contender.name}: made in {run_child(contender, 'make', arguments)['seconds']:.1f} s")


def _measure(bench: Bench, tables: Tables, batches: data.Batches) -> None:
    def arguments(contender: Contender) -> dict[str, Any]:
        return {
            "table": str(tables.path(contender, "base")),
            "copies": str(bench.work / "copies" / contender.name),
            "key_space": 2 * batches.rows,
        }

    ours = [contender for contender in bench.contenders if contender in (OURS, RUNS)]
    bench.measure("lookups", "lookups", arguments)
    bench.measure("first key", "cold", arguments, only=ours)
    beside = {"pandas": True}
    bench.measure("first key, pandas beside", "cold", lambda each: arguments(each) | beside, only=ours, after=_beside)
    bench.measure("refresh", "refresh", arguments, only=ours)
    for what, name, unit in SHOWN:
        found = [(result.contender, result.median(name)) for result in bench.results if result.median(name) is not None]
        if found:
            print(f"{what}: " + "; ".join(f"{who} {value:,.1f} {unit}" for who, value in found))


def _beside(_: Contender, measures: Measures) -> None:
    measures["beside_ms"] = measures.pop("cold_ms")


def _join(bench: Bench, tables: Tables, batches: data.Batches) -> None:
    joins = Contender("merganser on Spark", "benchmarks.ours_lookup_join")

    def rate(_: Contender, measures: Measures) -> None:
        measures["rows_per_second"] = measures["rows"] / measures["warm_seconds"]

    contenders, bench.contenders = bench.contenders, [joins]
    bench.measure(
        "lookup join",
        "join",
        lambda _: {
            "table": str(tables.path(OURS, "base")),
            "copies": str(Path(bench.work) / "copies" / "join"),
            "rows": bench.options.join_rows,
            "key_space": 2 * batches.rows,
        },
        after=rate,
        runs=1,
    )
    bench.contenders = contenders
    for result in bench.results:
        if (speed := result.median("rows_per_second")) is not None:
            print(f"lookup join: {speed:,.0f} rows per second after the first pass")


if __name__ == "__main__":
    main()

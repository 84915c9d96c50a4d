"""merganser and the other table formats through Spark, local[2], on the same rows: `python -m benchmarks.spark_peers`.

Every contender has a process of its own with a fresh session, which first does everything on small tables. In it:

| action | what it does |
|---|---|
| write | the base, from a DataFrame over Parquet files, into a new table |
| upserts | ten upserts of a tenth, ten commits |
| scan all, scan 2 columns | the table as it is then, to `noop` |
| upsert of 1,000 rows | one more commit |
| compact full | everything rewritten |
| scan compacted, all / 2 columns | the table after that |
| ..., deletion vectors | the same with a table whose upserts mark replaced rows in deletion vectors |

`spark_peers_formats.py` has how each of them does it. Contenders take turns, `--runs` times over. Count and sums of the
rows read back after each step must be those that Polars finds in the input, or the command ends with 1. The connectors
are those on Maven Central for the newest Spark up to 4.1 that they have there, 180 MB in `.witness` of the checkout.
One that does not fit the PySpark installed gets another in an environment of its own (`tests/interop/peers.py`). What
cannot be had is said and left out.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq

from tests.interop import peers
from tests.witness import jars

from . import data
from .harness import (
    MERGANSER,
    ActionFailedError,
    Bench,
    Contender,
    Measures,
    Result,
    parser,
    print_block,
    run_child,
    start,
)
from .spark_peers_run import ACTIONS, VECTOR_ACTIONS

ROWS = 1_000_000
WARM_ROWS = 20_000
WARM_UPSERTS = 2
SMALL_ROWS = 1_000
SPARK_3 = "3.5.9"
"""For connectors that have no release for Spark 4."""
SPARK_4 = "4.1.4"


@dataclass(frozen=True, slots=True)
class Jar:
    """A jar on Maven Central and what its bytes must have."""

    group: str
    artifact: str
    version: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Connector:
    """What a format needs: jars, and the release of Spark that they were made for; "" takes the one installed."""

    jars: tuple[Jar, ...] = ()
    spark: str = ""

    def interpreter(self) -> str:
        """This Python if its PySpark fits, else one with a PySpark that does; made by the first call on a machine."""
        minor = self.spark.rpartition(".")[0]
        if not self.spark or metadata.version("pyspark").rpartition(".")[0] == minor:
            return sys.executable
        return str(
            peers.environment_of(
                peers.PeerKind(f"spark-{minor}", (f"pyspark=={self.spark}", "pyarrow>=19", "numpy>=1.26"), "")
            )
        )

    def files(self) -> list[str]:
        """The jars on this machine; downloaded by the first call."""
        return [str(jars.jar(jar.group, jar.artifact, jar.version, jar.sha256)) for jar in self.jars]

    def __str__(self) -> str:
        """The connector's release, for people."""
        return f"{self.jars[0].artifact} {self.jars[0].version}" if self.jars else "this checkout"


CONNECTORS = {
    MERGANSER.name: Connector(),
    "paimon": Connector(
        (
            Jar(
                "org/apache/paimon",
                "paimon-spark-3.5",
                "0.9.0",
                "e9e8a90a630a1440dfd869bb568c8fc916d6de23bc162922cc0c2684ed6fa15b",
            ),
        ),
        SPARK_3,
    ),
    "iceberg": Connector(
        (
            Jar(
                "org/apache/iceberg",
                "iceberg-spark-runtime-4.1_2.13",
                "1.12.0",
                "3123c3798af642dd537230923548e013ef41cc28b6626e5225808cf5670a0f82",
            ),
        ),
        SPARK_4,
    ),
    "delta": Connector(
        (
            Jar(
                "io/delta",
                "delta-spark_4.1_2.13",
                "4.4.0",
                "75a9400986853c061f5109f012547de2545a5759e5e752e5ef633dabe16a4f10",
            ),
            Jar(
                "io/delta",
                "delta-storage",
                "4.4.0",
                "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc",
            ),
        ),
        SPARK_4,
    ),
    "hudi": Connector(
        (
            Jar(
                "org/apache/hudi",
                "hudi-spark3.5-bundle_2.12",
                "1.2.0",
                "cc79fba00822f3a6c3a860df99375c2e3d4a034d037dbf4213a4966a706a7676",
            ),
        ),
        SPARK_3,
    ),
}
CONTENDERS = tuple(
    Contender(name, "benchmarks.spark_peers_run", connector.interpreter) for name, connector in CONNECTORS.items()
)


def main() -> None:
    """Run it."""
    options = parser(__doc__.splitlines()[0], rows=ROWS)
    options.add_argument("--driver-memory", default="4g", help="memory of each JVM (default 4g)")
    chosen = options.parse_args()
    chosen.contenders = ",".join(_to_be_had(chosen.contenders))
    bench = start("spark_peers", chosen, CONTENDERS)
    batches = data.with_parquet(data.prepare(bench.work, chosen.rows, chosen.seed))
    warm = data.with_parquet(data.prepare(bench.work, WARM_ROWS, chosen.seed))
    directory = bench.work / f"run-peers-{os.getpid()}"
    directory.mkdir()
    try:
        sizes = {
            "warm": _rows_of(warm, directory / "small-warm.parquet", WARM_UPSERTS),
            "measured": _rows_of(batches, directory / "small.parquet", data.UPSERTS),
        }
        runs = _measure(bench, sizes, directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    _show(bench, runs)
    bench.finish()
    wrong = _wrong_rows(runs, _expected(batches))
    if wrong:
        raise SystemExit("\n".join(["rows read back are not those that were written:", *wrong]))
    if not any(run["rows_seen"] for costs in runs.values() for run in costs):
        raise SystemExit("no contender wrote anything")


def _to_be_had(names: str | None) -> list[str]:
    """The contenders asked for whose connector and Spark are here or can be fetched; the others are said."""
    found = []
    for name in names.split(",") if names else CONNECTORS:
        connector = CONNECTORS.get(name.strip())
        if connector is None:  # refused by `start`
            return [name]
        try:
            connector.files()
            connector.interpreter()
        except (jars.WitnessUnavailableError, peers.PeerUnavailableError) as error:
            print(f"{name} is left out: {' '.join(str(error).split())[:300]}")
            continue
        print(f"{name.strip()}: {connector}, {_spark_of(connector)}")
        found.append(name)
    if not found:
        raise SystemExit("no contender is left")
    return found


def _spark_of(connector: Connector) -> str:
    own = connector.interpreter() != sys.executable
    return f"Spark {connector.spark if own else metadata.version('pyspark')}"


def _rows_of(batches: data.Batches, small: Path, upserts: int) -> Measures:
    """The arguments that name the rows of one size; makes the small upsert."""
    pq.write_table(data.few(SMALL_ROWS, batches.rows * 2, seed=1), small)
    return {
        "base": str(batches.base_parquet),
        "upserts": [str(path) for path in batches.upserts_parquet[:upserts]],
        "small": str(small),
        "rows": batches.rows,
    }


def _measure(bench: Bench, sizes: Measures, directory: Path) -> dict[str, list[Measures]]:
    """What each run of each contender found; a contender whose process ends badly is left out of further runs."""
    runs: dict[str, list[Measures]] = {contender.name: [] for contender in bench.contenders}
    failed: set[str] = set()
    vectors = any(bench.wanted(action) for action in VECTOR_ACTIONS)
    # Spark's own name for a timestamp without a time zone
    columns = {name: kind.replace("TIMESTAMP(6)", "TIMESTAMP_NTZ") for name, kind in data.FIELDS.items()}
    for number in range(bench.options.runs):
        for contender in bench.contenders:
            if contender.name in failed:
                continue
            began = time.perf_counter()
            home = directory / contender.name
            arguments = {
                "contender": contender.name,
                "jars": CONNECTORS[contender.name].files(),
                "directory": str(home),
                "columns": columns,
                "two_columns": data.TWO_COLUMNS,
                "driver_memory": bench.options.driver_memory,
                "with_vectors": vectors,
                **sizes,
            }
            os.sync()
            try:
                found = run_child(contender, "run", arguments)
            except ActionFailedError as error:
                failed.add(contender.name)
                print(f"{contender.name} failed: {error}", file=sys.stderr)
                continue
            finally:
                shutil.rmtree(home, ignore_errors=True)
            runs[contender.name].append(found)
            for action, text in found["errors"].items():
                print(f"{action}: {contender.name} failed: {text}", file=sys.stderr)
            seconds = time.perf_counter() - began
            print(f"run {number + 1} of {bench.options.runs}: {contender.name}, {seconds:.0f} s", flush=True)
    return runs


def _show(bench: Bench, runs: dict[str, list[Measures]]) -> None:
    """Print and keep the results of every action, and what lies on disk after it."""
    for action in filter(bench.wanted, (*ACTIONS, *VECTOR_ACTIONS)):
        block = []
        for name, found in runs.items():
            costs = tuple(run["actions"][action] for run in found if action in run["actions"])
            error = next((run["errors"][action] for run in found if action in run["errors"]), None)
            if costs or error:
                block.append(Result(action, name, costs, error))
        if block:
            bench.results += block
            bench.floors[action] = None
            print_block(action, block, None)
            sizes = ((result.contender, result.median("disk_bytes")) for result in block)
            print("  on disk: " + ", ".join(f"{name} {size / 1e6:,.1f} MB" for name, size in sizes if size))


# ── what must be read back ────────────────────────────────────────────────────────────────────────────────────────────


def _expected(batches: data.Batches) -> dict[str, list[str]]:
    """Count, sums and greatest values of the rows in each state of the tables, from the input alone."""
    base = _frame(data.load(batches.base))
    upserts = [_frame(data.load(path)) for path in batches.upserts]
    small = _frame(data.few(SMALL_ROWS, batches.rows * 2, seed=1))
    return {
        "base": _digest([base]),
        "merged": _digest([base, *upserts]),
        "merged and small": _digest([base, *upserts, small]),
    }


def _frame(rows: object) -> pl.DataFrame:
    frame = pl.from_arrow(rows)
    assert isinstance(frame, pl.DataFrame)
    return frame


def _digest(batches: Sequence[pl.DataFrame]) -> list[str]:
    """The last row of each key, digested like `spark_peers_run` digests a table."""
    rows = pl.concat(batches).unique("k", keep="last", maintain_order=True)
    found = rows.select(
        pl.len().alias("count"),
        pl.col("k").sum(),
        pl.col("i32").cast(pl.Int64).sum(),
        pl.col("price").sum(),
        pl.col("n64").count(),
        pl.col("text").max(),
        pl.col("at").max(),
    ).row(0)
    return [str(value) for value in found]


def _wrong_rows(runs: dict[str, list[Measures]], expected: dict[str, list[str]]) -> list[str]:
    """A line for every state of a table of which a contender read back something else."""
    wrong = []
    for name, found in runs.items():
        for run in found:
            for state, seen in run["rows_seen"].items():
                wanted = expected[state.partition(",")[0]]
                if seen != wanted:
                    wrong.append(f"{name}, {state}: {seen} instead of {wanted}")
    return wrong


if __name__ == "__main__":
    main()

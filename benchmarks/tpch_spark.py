"""TPC-H through Spark, local[2], one warm session: `python -m benchmarks.tpch_spark`.

The queries and tables of `tpch.py`. The floor is Spark on the Parquet files of the generator. Contenders take turns
query by query; the first round of each query is not counted.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from typing import Any

import merganser as mg
import merganser.spark as ms

from .harness import Result, parser, print_block, start
from .processes import tree_cpu_seconds
from .spark_session import session
from .tpch import APPEND, KEYED, PLAIN, prepared, print_queries
from .tpch_data import KEYS, QUERIES

_NAMES = re.compile(rf"\b({'|'.join(KEYS)})\b")


def main() -> None:
    """Run it."""
    options = parser(__doc__.splitlines()[0])
    options.add_argument("--scale", default="1", help="scale factor of TPC-H (default 1)")
    options.add_argument("--driver-memory", default="6g", help="memory of the JVM (default 6g)")
    chosen = options.parse_args()
    bench = start("tpch_spark", chosen, (PLAIN, APPEND, KEYED))
    data = prepared(bench.work, chosen.scale)
    directory = bench.work / f"run-tpch-{os.getpid()}"
    spark = session(chosen.driver_memory, directory)
    try:
        run: dict[str, Any] = {}
        if PLAIN in bench.contenders:
            for name in KEYS:
                spark.read.parquet(str(data / "files" / f"{name}.parquet")).createOrReplaceTempView(f"plain_{name}")
            run[PLAIN.name] = lambda text: spark.sql(_NAMES.sub(r"plain_\1", text))
        for contender in (APPEND, KEYED):
            if contender in bench.contenders:
                ours = ms.session(spark, mg.catalog(str(data / "warehouse")))
                ours.sql(f"USE {contender.name}")
                run[contender.name] = ours.sql
        found: dict[str, list[dict[str, float]]] = {name: [{} for _ in range(chosen.runs)] for name in run}
        for number, text in QUERIES.items():
            if not bench.wanted(f"q{number}"):
                continue
            for turn in range(-1, chosen.runs):
                for name, query in run.items():
                    cpu, begun = tree_cpu_seconds(os.getpid()), time.perf_counter()
                    query(text).collect()
                    seconds = time.perf_counter() - begun
                    print(f"query {number}, round {turn + 1}, {name}: {seconds:.2f} s", file=sys.stderr, flush=True)
                    if turn >= 0:
                        measures = found[name][turn]
                        measures[f"q{number}"] = seconds
                        spent = tree_cpu_seconds(os.getpid()) - cpu
                        measures["cpu_seconds"] = measures.get("cpu_seconds", 0.0) + spent
    finally:
        spark.stop()
        shutil.rmtree(directory, ignore_errors=True)
    for name, turns in found.items():
        for turn in turns:
            turn["seconds"] = sum(seconds for key, seconds in turn.items() if key.startswith("q"))
        bench.results.append(Result("22 queries", name, tuple(turns)))
    floor = bench.results[0].median("seconds") if PLAIN in bench.contenders else None
    print_block("22 queries", bench.results, floor)
    print_queries({result.contender: result.median for result in bench.results})
    bench.finish()


if __name__ == "__main__":
    main()

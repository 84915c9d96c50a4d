"""TPC-H in this process: `python -m benchmarks.tpch`.

All 22 queries at scale 1, over eight append tables and over eight key tables with 10 % updates on top that no
compaction has merged. The updates rewrite rows as they were, so all contenders return the same rows, which is checked.
The floor is DuckDB on the Parquet files of the generator. Each contender runs all queries once, then each of them
`--rounds` times in one process; the seconds of a query are the median.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from . import tpch_data
from .harness import FLOOR, Contender, Measures, parser, run_child, start

APPEND, KEYED = Contender("append", "benchmarks.ours_tpch"), Contender("keyed", "benchmarks.ours_tpch")
PLAIN = Contender(FLOOR.name, "benchmarks.ours_tpch")


def main() -> None:
    """Run it."""
    options = parser(__doc__.splitlines()[0])
    options.add_argument("--scale", default="1", help="scale factor of TPC-H (default 1)")
    options.add_argument("--rounds", type=int, default=3, help="times that a process runs each query (default 3)")
    chosen = options.parse_args()
    bench = start("tpch", chosen, (PLAIN, APPEND, KEYED))
    data = prepared(bench.work, chosen.scale)
    seen: dict[str, list[str]] = {}

    def check(contender: Contender, measures: Measures) -> None:
        seen[contender.name] = measures.pop("results")
        if PLAIN.name in seen and seen[contender.name] != seen[PLAIN.name]:
            raise AssertionError(f"{contender.name} returned other rows than DuckDB on the same rows")

    bench.measure(
        "22 queries",
        lambda contender: "plain" if contender == PLAIN else "tables",
        lambda contender: {
            "data": str(data),
            "rounds": chosen.rounds,
            **({} if contender == PLAIN else {"database": contender.name}),
        },
        after=check,
    )
    print_queries({result.contender: result.median for result in bench.results})
    bench.finish()


def prepared(work: Path, scale: str) -> Path:
    """Return the directory of the generator's files and of both warehouses, made if they are not there."""
    directory = work / f"tpch-{scale}"
    files = directory / "files"
    if not files.exists():
        made = directory / "making"
        generator = Path(sys.executable).parent / "tpchgen-cli"
        if not generator.exists():
            raise SystemExit("the rows of TPC-H come from tpchgen-cli: run pip install 'merganser[bench]'")
        command = [str(generator), "parquet", "-s", scale, "--output-dir", str(made), "--overwrite"]
        subprocess.run(command, check=True, capture_output=True)
        made.rename(files)
    if not (directory / "warehouse").exists():
        run_child(APPEND, "build", {"data": str(directory)})
    return directory


def print_queries(medians: dict[str, Any]) -> None:
    """Print the seconds of each query, and how often they are those of the floor."""
    names = list(medians)
    print("\n  query" + "".join(f"{name:>18}" for name in names))
    for number in tpch_data.QUERIES:
        seconds = [medians[name](f"q{number}") for name in names]
        first = seconds[0]
        cells = (f"{s:8.3f} ({s / first:5.2f})" if s and first else "" for s in seconds)
        print(f"  {number:>5}" + "".join(f"{cell:>18}" for cell in cells))


if __name__ == "__main__":
    main()

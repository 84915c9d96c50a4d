"""Run histories that draw everything.

python -m tests.everything --seeds 0:300 [--spark] [--keep-going] [--steps 0,4,7] [-v]
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter

os.environ.setdefault("POLARS_MAX_THREADS", "1")  # histories are small

from tests.everything.campaign import Failure, report, run, shrunk
from tests.everything.layouts import drawn_layout


def main() -> int:
    """Run histories, and return the number of those that failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.everything")
    parser.add_argument("--seeds", default="0:300", metavar="FIRST:END")
    parser.add_argument("--spark", action="store_true", help="do some of the steps with Spark")
    parser.add_argument("--keep-going", action="store_true", help="do not end with the first failure")
    parser.add_argument("--steps", help="places of the steps to run, such as 0,4,7")
    parser.add_argument("--whole", action="store_true", help="do not look for a shorter history that fails likewise")
    parser.add_argument("-v", "--verbose", action="store_true", help="print every history")
    given = parser.parse_args()
    first, _, end = given.seeds.partition(":")
    steps = None if given.steps is None else [int(text) for text in given.steps.split(",")]
    spark = None
    if given.spark:
        from tests.everything.on_spark import session

        spark = session()
    failed, compared, began = 0, Counter[str](), time.monotonic()
    seeds = range(int(first), int(end or int(first) + 1))
    for seed in seeds:
        start = time.monotonic()
        found = run(seed, steps, spark)
        if isinstance(found, Failure):
            failed += 1
            print(report(found if given.whole else shrunk(found, spark), spark), flush=True)
            if not given.keep_going:
                return failed
        else:
            compared += found
        if given.verbose:
            print(f"{seed}: {drawn_layout(str(seed)).engine}, {time.monotonic() - start:.1f} s", flush=True)
    print(f"{len(seeds):,} histories, {failed} failed, {time.monotonic() - began:,.0f} s")
    print(", ".join(f"{name} {count:,}" for name, count in compared.most_common()))
    return failed


if __name__ == "__main__":
    sys.exit(min(main(), 1))

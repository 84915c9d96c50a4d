"""Kill a chain of streams again and again: `python -m tests.streams --kills 40`."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
from pathlib import Path

from . import chain
from .campaign import Accounts, arrive, differences, random_kill, run


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", type=Path, default=Path(".streams"))
    given = parser.parse_args()
    shutil.rmtree(given.work, ignore_errors=True)
    given.work.mkdir(parents=True)
    rng = random.Random(given.seed)
    chain.create(given.work)
    accounts: Accounts = {}
    killed = 0
    while killed < given.kills:
        arrive(given.work, rng, accounts, rng.randrange(1, 4))
        kill = random_kill(rng)
        ended = run(given.work, kill)
        there = not ended or (given.work / "killed").exists()
        killed += there
        print(
            f"{killed:3} {kill} {'came to its end' if ended else 'killed'}{' after a kill' * (there and ended)}",
            flush=True,
        )
        if there and (killed % 5 == 0 or killed == given.kills):
            if not run(given.work, None):
                print(f"the chain does not come to its end; see {given.work / 'log'}")
                return 1
            if found := differences(given.work, accounts):
                print(*found, sep="\n")
                return 1
            print("    all tables are right", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

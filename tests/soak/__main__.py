"""Eight writers, two compactors, an expirer and readers, killed at random moments: nothing lost, doubled or wrong.

python -m tests.soak --kills 500 --seed 1 --minutes 30
"""

from __future__ import annotations

import argparse
import sys
from contextlib import nullcontext

from tests.catalogs.databases import CATALOGS, backends
from tests.soak.driver import Soak, report

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=500, help="processes that are killed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=60, help="it ends then, whatever was killed")
    parser.add_argument("--pause", type=float, default=0.3, help="mean seconds between kills")
    parser.add_argument("--catalog", choices=CATALOGS, help="what names the tables, and is killed, too")
    given = parser.parse_args()
    with backends(given.catalog) if given.catalog else nullcontext() as catalogs:
        soak = Soak(given.kills, given.seed, given.minutes * 60, given.pause, backends=catalogs)
        code = report(soak, soak.run())
    sys.exit(code)

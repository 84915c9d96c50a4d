"""Writers that overlap in time, are killed and lose replies: every read is the state after some commits, in order.

python -m tests.serial --seconds 60 --seed 1 --writers 8 [--only lists] [--s3] [--catalog rest]
"""

from __future__ import annotations

import argparse
import sys
from contextlib import nullcontext

from tests import s3_server
from tests.catalogs.databases import CATALOGS, backends
from tests.serial.driver import run
from tests.serial.workloads import WORKLOADS

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20, help="for each workload")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--writers", type=int, default=8)
    parser.add_argument("--pause", type=float, default=1.0, help="mean seconds between kills; 0: none")
    parser.add_argument("--losses", type=float, default=0.01, help="share of calls to the store whose reply is lost")
    parser.add_argument("--only", action="append", choices=sorted(WORKLOADS), help="default: all")
    parser.add_argument("--s3", action="store_true", help="the table lies in a bucket of an S3 server")
    parser.add_argument("--catalog", choices=CATALOGS, help="what names the table, and is killed, too")
    given = parser.parse_args()
    if given.s3 and (given.catalog or "").startswith("rest"):
        parser.error("a REST server of a campaign serves the local disk")
    wrong = 0
    server = s3_server.running() if given.s3 else nullcontext()
    made = backends(given.catalog) if given.catalog else nullcontext()
    with server as endpoint, made as catalogs:
        for name in given.only or WORKLOADS:
            found = run(
                name,
                seconds=given.seconds,
                seed=given.seed,
                writers=given.writers,
                pause_s=given.pause,
                losses=given.losses,
                bucket=None if endpoint is None else s3_server.new_bucket(endpoint),
                backends=catalogs,
            )
            print(f"{name:<16} {found.line()}", flush=True)
            for problem in found.problems[:5]:
                print("WRONG", problem, file=sys.stderr)
            wrong += len(found.problems)
    print(f"{wrong} wrong")
    sys.exit(1 if wrong else 0)

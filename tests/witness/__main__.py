"""`make interop`: merganser and Paimon's Java work on the same tables, and what both store is compared.

    python -m tests.witness [--seed N] [--rounds N] [--only PATTERN] [--jobs N] [--paimon VERSION] [--no-peers] [--list]

Every kind of table is tried in every direction, `--rounds` times with seeds of their own, and then each exact
comparison. A failure names the command that repeats it. The exit code is 1 if something failed.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import defaultdict
from collections.abc import Sequence

from tests.interop.peers import PYPAIMON, RUST, environment_of

from .exact import COMPARISONS
from .histories import DIRECTIONS
from .jars import PAIMON_VERSION, WitnessUnavailableError, class_path, newest_paimon
from .kinds import KINDS
from .runner import COMPARED, Outcome, run, tasks


def table_of(outcomes: Sequence[Outcome]) -> str:
    """Kind by direction: rounds that went well of all, and the seconds of the kind."""
    directions = [*DIRECTIONS, COMPARED]
    cells: dict[str, dict[str, list[Outcome]]] = defaultdict(lambda: defaultdict(list))
    for outcome in outcomes:
        cells[outcome.task.kind][outcome.task.direction].append(outcome)
    width = max(len(kind) for kind in cells)
    lines = [f"{'':{width}}  " + "  ".join(f"{d:>{max(len(d), 9)}}" for d in directions) + "  seconds"]
    for kind in [*COMPARISONS, *KINDS]:
        if kind in cells:
            texts = [f"{_cell(cells[kind][d]):>{max(len(d), 9)}}" for d in directions]
            seconds = sum(outcome.seconds for found in cells[kind].values() for outcome in found)
            lines.append(f"{kind:{width}}  " + "  ".join(texts) + f"  {seconds:7.1f}")
    return "\n".join(lines)


def _cell(outcomes: Sequence[Outcome]) -> str:
    if not outcomes:
        return ""
    failed = sum(bool(outcome.failure) for outcome in outcomes)
    return f"{failed} FAILED" if failed else f"{len(outcomes)} ok"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the arguments ask for; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.witness", description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0, help="the first round's seed; each round adds one")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", metavar="PATTERN", help="kinds, or 'kind / direction', that match, as file names do")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="processes side by side")
    parser.add_argument("--paimon", default=PAIMON_VERSION, metavar="VERSION", help="of paimon-bundle, or newest")
    parser.add_argument("--no-peers", action="store_true", help="without pypaimon and pypaimon-rust")
    parser.add_argument("--list", action="store_true", help="say what there is to do, and do nothing")
    chosen = parser.parse_args(arguments)
    todo = list(tasks(chosen.seed, chosen.rounds, chosen.only))
    if chosen.list or not todo:
        print("\n".join(task.name for task in todo) or f"nothing matches {chosen.only!r}")
        return 0 if todo else 2
    try:
        paimon = newest_paimon() if chosen.paimon == "newest" else chosen.paimon
        java_class_path = class_path(paimon)
    except WitnessUnavailableError as error:
        print(error)
        return 2
    clients = [f"Paimon {paimon} (Java)"]
    if not chosen.no_peers:
        for kind in (PYPAIMON, RUST):
            environment_of(kind)
            clients.append(kind.requirements[0])
    print(f"{', '.join(clients)}; {len(todo)} to do, seed {chosen.seed}", flush=True)
    outcomes = run(todo, java_class_path=java_class_path, jobs=chosen.jobs, peers=not chosen.no_peers)
    failed = [outcome for outcome in outcomes if outcome.failure]
    for outcome in {found.task.kind: found for found in reversed(failed)}.values():  # the first of each kind
        print(f"\n── {outcome.task.name}, seed {outcome.task.seed}\n{outcome.failure}")
    print(f"\n{table_of(outcomes)}\n\n{len(outcomes) - len(failed)} ok, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

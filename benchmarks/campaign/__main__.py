"""Change data of orders through several table stores: `python -m benchmarks.campaign`.

Lines of orders are loaded; 50 rounds insert, update (late ones, and a few hot orders) and delete them; after every
tenth round all rows and a range of keys are read; then 20 keys are looked up one by one, the changes of the last ten
rounds are applied to a second table, the table is compacted and read again. `rows.py` has the rows, `steps.py` the
steps, and a module per contender how it does them. Each runs in a process and an environment of its own, and goes
through a small workload first. What each read returns is compared with the state that the changes come to; if it
differs, or a step fails, the command ends with 1. `--rows 5000000` and `--rows 50000000` are the same command.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import time
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.harness import RESULTS, ActionFailedError, Measures, machine, run_child
from tests.interop import peers
from tests.witness import jars

from . import page, workload
from .contenders import CONTENDERS, Entry

ROWS = 200_000
ROUNDS = 50
WARM_ROWS, WARM_ROUNDS = 2_000, 20
_WORKLOAD = ("rows", "rounds", "seed")


def main() -> None:
    """Run it."""
    options = _options()
    work = Path(options.work).resolve()
    work.mkdir(parents=True, exist_ok=True)
    (work / ".gitignore").write_text("*\n", encoding="utf-8")
    facts = machine()
    print(f"campaign: {facts['processor']}, {facts['cores']} cores, load {facts['load']}, {options.rows:,} rows")
    measured = workload.prepare(work, options.rows, options.rounds, options.seed)
    warm = workload.prepare(work, WARM_ROWS, WARM_ROUNDS, options.seed)
    entries = _to_be_had(options.contenders)
    workload_facts = {"rows": options.rows, "rounds": options.rounds, "seed": options.seed}
    document = {"date": f"{datetime.now(UTC):%Y-%m-%d}", "machine": facts, **workload_facts, "contenders": {}}
    found: dict[str, list[Measures]] = {entry.name: [] for entry in entries}
    for _ in range(options.runs):
        for entry in entries:
            load = round(os.getloadavg()[0], 1)
            found[entry.name].append(_run(entry, warm, measured, work, options.limit) | {"load": load})
            known = {"group": entry.group, "version": entry.version, **median_of(found[entry.name])}
            document["contenders"][entry.name] = known
            if options.publish:  # now, since a run of all takes an hour
                merged = joined(page.published(), document)
                page.FILE.write_text(json.dumps(merged, indent=1) + "\n", encoding="utf-8")
    print("\n" + page.text_of(document))
    if options.save:
        RESULTS.mkdir(exist_ok=True)
        path = RESULTS / f"campaign-{datetime.now(UTC):%Y%m%d-%H%M%S}.json"
        path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        print(f"saved {path}")
    if options.publish:
        print(f"published in {page.FILE}; `make docs` draws it")
    faults = [f"{name}: {text}" for name, runs in found.items() for run in runs for text in faults_of(run)]
    if faults:
        raise SystemExit("\n".join(faults))


def _to_be_had(names: str | None) -> list[Entry]:
    """The contenders asked for whose packages and jars are here or can be fetched; the others are named."""
    known = {entry.name: entry for entry in CONTENDERS}
    asked = [text.strip() for text in names.split(",")] if names else list(known)
    unknown = [text for text in asked if text not in known]
    if unknown:
        raise SystemExit(f"no contender {unknown[0]!r}; there are: {', '.join(known)}")
    found = []
    for name in asked:
        try:
            known[name].interpreter()
            known[name].told()
            found.append(known[name])
        except (jars.WitnessUnavailableError, peers.PeerUnavailableError) as error:
            print(f"{name} is left out: {' '.join(str(error).split())[:300]}")
    return found


def _run(
    entry: Entry, warm: workload.Workload, measured: workload.Workload, work: Path, limit_seconds: float
) -> Measures:
    """One run of one contender, in a process of its own; one that dies has the error for its first step."""
    home = work / f"run-campaign-{uuid.uuid4().hex[:8]}"
    arguments = {
        "module": entry.module,
        "warm": str(warm.directory),
        "measured": str(measured.directory),
        "home": str(home),
        "limit_seconds": limit_seconds,
        "settings": entry.told(),
    }
    began = time.perf_counter()
    try:
        found = run_child(entry.contender(), "run", arguments)
    except ActionFailedError as error:
        found = {"phases": {}, "unsupported": {}, "errors": {"load": str(error)[-400:]}, "wrong": []}
    finally:
        shutil.rmtree(home, ignore_errors=True)
    print(f"{entry.name} {entry.version}: {time.perf_counter() - began:.0f} s", flush=True)
    return found


def median_of(runs: Sequence[Measures]) -> Measures:
    """The runs of a contender as one: medians of the numbers, and what the last one said in words."""
    last = runs[-1]
    phases = {
        phase: {
            measure: statistics.median(run["phases"][phase][measure] for run in runs if phase in run["phases"])
            for measure in costs
        }
        for phase, costs in last["phases"].items()
    }
    sizes = [name for name in last if name.endswith("_bytes") and name != "held_bytes"]
    return {
        "runs": len(runs),
        "phases": phases,
        "unsupported": last["unsupported"],
        "errors": last["errors"],
        "load": max(run["load"] for run in runs),
        **{name: statistics.median(run[name] for run in runs if name in run) for name in sizes},
    }


def joined(before: Sequence[page.Document], document: dict[str, Any]) -> list[page.Document]:
    """Documents that were published, with one more; of the same workload, contenders that did not run are kept."""
    same = [each for each in before if all(each[name] == document[name] for name in _WORKLOAD)]
    found = {name: each for kept in [*same, document] for name, each in kept["contenders"].items()}
    ordered = {entry.name: found[entry.name] for entry in CONTENDERS if entry.name in found}
    others = [each for each in before if each["rows"] != document["rows"]]
    return [*others, document | {"contenders": ordered}]


def faults_of(run: Measures) -> list[str]:
    """What a run did wrong: steps that failed, and rows that are others than those that were written."""
    return [*(f"{phase} failed: {text}" for phase, text in run["errors"].items()), *run["wrong"]]


def _options() -> argparse.Namespace:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rows", type=int, default=ROWS, help=f"lines that are loaded (default {ROWS:,})")
    options.add_argument("--rounds", type=int, default=ROUNDS, help="rounds of changes, a multiple of ten (default 50)")
    options.add_argument("--runs", type=int, default=1, help="runs of each contender, in turn; medians (default 1)")
    options.add_argument("--seed", type=int, default=7)
    options.add_argument("--contenders", help="comma-separated names; default: all that can be had")
    options.add_argument("--work", default=".bench", help="directory for data and tables (default .bench)")
    options.add_argument(
        "--limit",
        type=float,
        default=600,
        help="no round begins after this many seconds (default 600)",
    )
    options.add_argument("--save", action="store_true", help="keep the results in benchmarks/results")
    options.add_argument(
        "--publish", action="store_true", help="make them those of docs/campaign.md, after `make docs`"
    )
    return options.parse_args()


if __name__ == "__main__":
    main()

"""Kills a chain of streams, lets it go on, and compares what its tables say with a computation of its own."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import merganser as mg

from . import chain

ROOT = Path(__file__).parents[2]
INJECT = Path(__file__).parent / "inject"
RUN_SECONDS = 300
Accounts = dict[int, tuple[int, int]]


def arrive(work: Path, rng: random.Random, accounts: Accounts, batches: int) -> None:
    """Let files of changes arrive, and note in `accounts` what the first table says after them: id -> team, amount."""
    for name in chain.FEEDS:
        (work / name).mkdir(parents=True, exist_ok=True)
    for _ in range(batches):
        feed = rng.randrange(len(chain.FEEDS))
        place = work / chain.FEEDS[feed]
        rows: list[dict[str, Any]] = []
        for _ in range(rng.randrange(1, 60)):
            key = 1_000 * feed + rng.randrange(50)
            if key in accounts and rng.random() < 0.25:
                team, amount = accounts.pop(key)
                rows.append({"id": key, "team": team, "amount": amount, "op": "-D"})
            else:
                accounts[key] = rng.randrange(chain.GROUPS), rng.randrange(-100, 100)
                rows.append(
                    {"id": key, "team": accounts[key][0], "amount": accounts[key][1], "op": rng.choice(["+I", "+U"])}
                )
        table = pa.Table.from_pylist(rows).cast(
            pa.schema([("id", pa.int32()), ("team", pa.int32()), ("amount", pa.int64()), ("op", pa.string())])
        )
        number = len(list(place.glob("*.parquet")))
        table = table.append_column("number", pa.array([number] * len(table), pa.int32()))
        part = place / f".{number:05}"
        pq.write_table(table, part)
        part.rename(place / f"{number:05}.parquet")


def run(work: Path, kill: str | float | None) -> bool:
    """Run the chain; return whether it came to its end.

    Args:
        kill: a call of storage as `inject/sitecustomize` takes it; or seconds after the start of the queries.
    """
    killed = work / "killed"
    started = work / "started"
    for path in (killed, started):
        path.unlink(missing_ok=True)
    environment = os.environ | {
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONPATH": f"{INJECT}{os.pathsep}{ROOT}",
        "MERGANSER_KILLED": str(killed),
    }
    # The shell becomes the driver, once it knows the group that is to be killed.
    kills = f"MERGANSER_KILL={kill}" if isinstance(kill, str) else ""
    command = f'export MERGANSER_ROOT=$$ {kills}; exec "$0" -m tests.streams.chain "$1"'
    with (work / "log").open("ab") as log:
        process = subprocess.Popen(
            ["sh", "-c", command, sys.executable, str(work)],
            env=environment, cwd=ROOT, start_new_session=True, stdout=log, stderr=log,
        )  # fmt: skip
        if isinstance(kill, float):
            while not started.exists() and process.poll() is None:
                time.sleep(0.02)
            time.sleep(kill)
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        try:
            process.wait(RUN_SECONDS)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    return process.returncode == 0


def differences(work: Path, accounts: Accounts) -> list[str]:
    """Return what the tables say that they should not."""
    catalog = mg.catalog(str(work / "warehouse"))
    first, totals, copy = (catalog.table(f"bank.{name}") for name in ("accounts", "totals", "copy"))
    found = []
    held = {row["id"]: (row["team"], row["amount"]) for row in first.read().to_pylist()}
    if held != accounts:
        found.append(f"accounts: {held} instead of {accounts}")
    counts = Counter(team for team, _ in accounts.values())
    sums: Counter[int] = Counter()
    for team, amount in accounts.values():
        sums[team] += amount
    wanted = {team: (n, sums[team]) for team, n in counts.items()}
    for table in (totals, copy):
        rows = {row["team"]: (row["n"], row["amount"]) for row in table.read().to_pylist() if row["n"]}
        if rows != wanted:
            found.append(f"{table.name}: {rows} instead of {wanted}")
    for table in (first, totals, copy):
        found += [f"{table.name}: {finding}" for finding in table.check()]
        made = Counter(
            (one.commit_user, one.commit_identifier) for one in table.snapshots() if one.commit_kind == "APPEND"
        )
        found += [f"{table.name}: batch {batch} was committed {n} times" for batch, n in made.items() if n > 1]
    return found


def random_kill(rng: random.Random) -> str | float:
    """Return when to kill: at a call of storage, or some seconds after the start."""
    if rng.random() < 0.3:
        return rng.uniform(0.2, 20)
    verb = rng.choice(["create", "create", "close", "writer", "replace", "delete"])
    return f"{verb}:{rng.randrange(1, 30)}:{rng.choice(['before', 'after'])}:{rng.choice(['all', 'alone'])}"

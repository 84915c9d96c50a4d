"""`make live`: tables follow real databases through real connectors, and equal them in the end, value by value.

    python -m tests.live [--seed N] [--transactions N] [--only A,B] [--streams A,B] [--record FOLDER]

A PostgreSQL and a MariaDB from Debian packages are started on loopback in a temporary folder, and stopped in the end.
Debezium's engine, fetched through Maven, records a random life of their tables under every setting at once. The records
of each setting are written by `Table.write_changes` and by `ms.cdc.write`, and of some as a stream that is killed three
times. What is missing is installed through apt. The exit code is 1 if a table differs.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.debezium.recordings import POSTGRES, Record, source
from tests.debezium.values import Difference, Setting
from tests.live import check, postgres
from tests.live.engine import Engine
from tests.live.follow import session
from tests.live.services import PostgreSQL, UnavailableError

SETTINGS: Final[Mapping[str, Mapping[str, str]]] = json.loads((POSTGRES / "settings.json").read_text())


def recorded(
    work: Path, settings: Mapping[str, Mapping[str, str]], seed: int, transactions: int
) -> tuple[dict[str, list[Record]], dict[str, Any]]:
    """Return what each setting recorded of a life of the tables, and their rows in the end."""
    server = PostgreSQL(work / "postgres")
    try:
        workload = postgres.Workload(server, seed, transactions)
        workload.create()
        engine = Engine(work / "engine", server.connector(), settings)
        try:
            engine.wait("sentinel", 1)
            workload.run()
            engine.wait("sentinel", 2)
        finally:
            engine.stop()
        return {name: engine.records(name) for name in settings}, workload.state()
    finally:
        server.stop()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the arguments ask for; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.live", description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--transactions", type=int, default=200)
    parser.add_argument("--only", default=",".join(SETTINGS), help="letters of tests/debezium/postgres/settings.json")
    parser.add_argument("--streams", default="A,C,G", help="settings that are written as a stream, too")
    parser.add_argument("--kills", type=int, default=3, help="of each stream")
    parser.add_argument("--keep", action="store_true", help="keep the folder of a run that fails")
    chosen = parser.parse_args(arguments)
    settings = {letter: SETTINGS[letter] for letter in chosen.only.split(",")}
    work = Path(tempfile.mkdtemp(prefix="merganser-live-"))
    work.chmod(0o755)  # the servers' own users come in
    failed = True
    try:
        failed = _checked(work, settings, chosen)
    except UnavailableError as error:
        print(error)
        return 2
    finally:
        if failed and chosen.keep:
            print(f"kept: {work}")
        else:
            shutil.rmtree(work, ignore_errors=True)
    return int(failed)


def _checked(work: Path, settings: Mapping[str, Mapping[str, str]], chosen: argparse.Namespace) -> bool:
    records, state = recorded(work, settings, chosen.seed, chosen.transactions)
    sources = [source(name, found) for name, found in state.items() if name != "sentinel"]
    total, rows = sum(map(len, records.values())), sum(len(one.rows) for one in sources)
    print(f"PostgreSQL: {total} records under {len(settings)} settings, {rows} rows, seed {chosen.seed}", flush=True)
    spark = session()
    failed = False
    for letter, options in settings.items():
        setting, own, folder = Setting(options), records[letter], work / letter
        folder.mkdir()
        wrong = {
            "write_changes": check.embedded(folder, sources, own, setting, postgres.DEFAULTS),
            "ms.cdc.write": check.by_spark(spark, folder, sources, own, setting, postgres.DEFAULTS),
        }
        if letter in chosen.streams.split(","):
            rng = random.Random(f"{chosen.seed} {letter}")
            wrong["killed stream"] = check.by_killed_stream(
                folder, sources, own, setting, postgres.DEFAULTS, rng, chosen.kills
            )
        failed |= any(wrong.values())
        print(f"{letter}  {', '.join(f'{way} {_said(found)}' for way, found in wrong.items())}", flush=True)
        if not any(wrong.values()):
            shutil.rmtree(folder)
    spark.stop()
    return failed


def _said(wrong: Sequence[Difference]) -> str:
    if not wrong:
        return "equal"
    places = Counter(f"{one.table}.{one.column or 'row'}" for one in wrong)
    return f"DIFFERS in {dict(places)}, such as {str(wrong[0])[:400]}"


if __name__ == "__main__":
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    sys.exit(main())

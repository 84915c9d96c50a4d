"""`make live`: tables follow real databases through real connectors, and equal them in the end, value by value.

    python -m tests.live [--seed N] [--transactions N] [--only A,MB] [--streams A,MB] [--record FOLDER]

A PostgreSQL and a MariaDB from Debian packages are started on loopback in a temporary folder, and stopped in the end.
Debezium's engine, fetched through Maven, records a random life of their tables under every setting at once. The records
of each setting are written by `Table.write_changes` and by `ms.cdc.write`, and of some as a stream that is killed three
times. The blocks of docs/postgres-to-table.md run, too. What is missing is installed through apt. The exit code is 1 if
a table differs.
"""

from __future__ import annotations

import argparse
import gzip
import json
import lzma
import os
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from merganser.errors import MerganserError
from tests.debezium.recordings import POSTGRES, Record, source
from tests.debezium.replica import sendable
from tests.debezium.values import Difference, Setting
from tests.live import check, mariadb, page, postgres
from tests.live.engine import Engine
from tests.live.follow import session
from tests.live.services import MariaDB, PostgreSQL, UnavailableError

POSTGRES_SETTINGS: Final[Mapping[str, Mapping[str, str]]] = json.loads((POSTGRES / "settings.json").read_text())


@dataclass(frozen=True)
class Database:
    """A database, the life of its tables, and the settings under which it is recorded."""

    name: str
    server: type[PostgreSQL] | type[MariaDB]
    workload: Any
    settings: Mapping[str, Mapping[str, str]]
    streams: Sequence[str]


DATABASES: Final = (
    Database("PostgreSQL", PostgreSQL, postgres, POSTGRES_SETTINGS, ("A", "C", "G")),
    Database("MariaDB", MariaDB, mariadb, mariadb.SETTINGS, ("MA",)),
)


def recorded(
    database: Database, work: Path, settings: Mapping[str, Mapping[str, str]], seed: int, transactions: int
) -> tuple[dict[str, list[Record]], dict[str, Any]]:
    """Return what each setting recorded of a life of the tables, and their rows in the end."""
    server = database.server(work / "server")
    try:
        workload = database.workload.Workload(server, seed, transactions)
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
    parser.add_argument(
        "--only", help="settings, by name: A,MB; those of tests/debezium/postgres and tests.live.mariadb"
    )
    parser.add_argument("--streams", help="settings that are written as a stream, too")
    parser.add_argument("--kills", type=int, default=3, help="of each stream")
    parser.add_argument("--record", metavar="FOLDER", help="write records and rows as tests/debezium has them, and end")
    parser.add_argument("--keep", action="store_true", help="keep the folder of a run that fails")
    chosen = parser.parse_args(arguments)
    work = Path(tempfile.mkdtemp(prefix="merganser-live-"))
    work.chmod(0o755)  # the servers' own users come in
    failed = True
    try:
        outcomes = [_checked(one, work / one.name, chosen) for one in DATABASES]
        if not chosen.only or "page" in chosen.only.split(","):
            outcomes.append(_page_fails(work / "page", chosen))
        failed = any(outcomes)
    except UnavailableError as error:
        print(error)
        return 2
    finally:
        if failed and chosen.keep:
            print(f"kept: {work}")
        else:
            shutil.rmtree(work, ignore_errors=True)
    return int(failed)


def _checked(database: Database, work: Path, chosen: argparse.Namespace) -> bool:
    """Return whether a table of a database differs."""
    wanted = chosen.only.split(",") if chosen.only else database.settings
    settings = {name: options for name, options in database.settings.items() if name in wanted}
    if not settings:
        return False
    work.mkdir()
    records, state = recorded(database, work, settings, chosen.seed, chosen.transactions)
    if chosen.record:
        _keep(Path(chosen.record), settings, records, state)
        return False
    sources = [source(name, found) for name, found in state.items() if name != "sentinel"]
    total, rows = sum(map(len, records.values())), sum(len(one.rows) for one in sources)
    print(
        f"{database.name}: {total} records under {len(settings)} settings, {rows} rows, seed {chosen.seed}", flush=True
    )
    streams = chosen.streams.split(",") if chosen.streams else database.streams
    spark = session()
    failed = False
    for name, options in settings.items():
        setting, folder, defaults = Setting(options), work / name, database.workload.DEFAULTS
        told = [one for one in sources if sendable(one, setting)]
        folder.mkdir()
        wrong = {
            "write_changes": check.embedded(folder, told, records[name], setting, defaults),
            "ms.cdc.write": check.by_spark(spark, folder, told, records[name], setting, defaults),
        }
        if name in streams:
            rng = random.Random(f"{chosen.seed} {name}")
            wrong["killed stream"] = check.by_killed_stream(
                folder, told, records[name], setting, defaults, rng, chosen.kills
            )
        failed |= any(wrong.values())
        print(f"{name:2}  {', '.join(f'{way} {_said(found)}' for way, found in wrong.items())}", flush=True)
        if not any(wrong.values()):
            shutil.rmtree(folder)
    return failed


def _page_fails(work: Path, chosen: argparse.Namespace) -> bool:
    """Return whether a block of the page fails."""
    work.mkdir()
    work.chmod(0o755)
    session()
    try:
        page.run_live(work, record=bool(chosen.record))
    except (AssertionError, MerganserError, RuntimeError) as error:
        print(f"{page.PAGE.name}  FAILS: {error}", flush=True)
        return True
    print(f"{page.PAGE.name}  all blocks ran", flush=True)
    return False


def _keep(
    folder: Path,
    settings: Mapping[str, Mapping[str, str]],
    records: Mapping[str, Sequence[Record]],
    state: Mapping[str, Any],
) -> None:
    """Write a recording in the form that `tests.debezium.recordings` reads."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "settings.json").write_text(json.dumps(settings, indent=1) + "\n")
    tables = {name: found for name, found in state.items() if name != "sentinel"}
    (folder / "expected.json.gz").write_bytes(gzip.compress(json.dumps(tables).encode(), mtime=0))
    for name, own in records.items():
        lines = "".join(json.dumps(asdict(record)) + "\n" for record in own)
        (folder / f"{name}.jsonl.xz").write_bytes(lzma.compress(lines.encode(), preset=9))


def _said(wrong: Sequence[Difference]) -> str:
    if not wrong:
        return "equal"
    places = Counter(f"{one.table}.{one.column or 'row'}" for one in wrong)
    return f"DIFFERS in {dict(places)}, such as {str(wrong[0])[:400]}"


if __name__ == "__main__":
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    sys.exit(main())

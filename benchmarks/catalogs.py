"""Catalogs that others share, against directories: `python -m benchmarks.catalogs`.

Opening a table, a commit of 1,000 rows into four buckets, the names of 10,000 tables, and eight processes that commit
to one table at once. Names are in the directories of the warehouse (the floor), in SQLite, in PostgreSQL, and behind a
REST server over such directories; both servers are started on loopback. With SQL, commits hold the lock of the catalog
(`lock.enabled`), which a local disk does not need; with REST, the server makes them. Tables are on the local disk for
all.
"""

from __future__ import annotations

import shutil
import uuid
from contextlib import ExitStack
from typing import Any

from tests.catalogs.databases import SqlServer, started
from tests.unit.serve.serving import TOKEN, Serving

from .harness import FLOOR, Contender, Measures, parser, start

MODULE = "benchmarks.ours_catalogs"
FILES = Contender(FLOOR.name, MODULE)
SQLITE, POSTGRES = Contender("sqlite", MODULE), Contender("postgresql", MODULE)
REST = Contender("rest", MODULE)
TABLES, WRITERS, EACH = 10_000, 8, 20


def main() -> None:
    """Run it."""
    bench = start("catalogs", parser(__doc__.splitlines()[0], rows=1_000).parse_args(), (FILES, SQLITE, POSTGRES, REST))
    work = bench.work / f"run-{uuid.uuid4().hex[:8]}"
    work.mkdir()

    def shown(name: str, unit: float) -> Any:
        def after(contender: Contender, measures: Measures) -> None:
            measures["seconds"] = measures[name]
            print(f"  {contender.name}: {measures[name] * unit:,.2f}")

        return after

    with ExitStack() as stack:
        places: dict[str, dict[str, Any]] = {FILES.name: {"address": str(work / "files"), "options": {}}}
        for contender in bench.contenders:
            if contender == FILES:
                continue
            if contender == REST:
                (work / "rest").mkdir()
                serving = Serving(work / "rest", token=TOKEN, command="serve-catalog")
                stack.callback(serving.stop)
                options = {"warehouse": "rest", "token.provider": "bear", "token": TOKEN}
                address = f"http://127.0.0.1:{serving.port}"
                places[REST.name] = {"address": address, "options": options, "files": str(work / "rest")}
                continue
            server: SqlServer = stack.enter_context(started(contender.name)).emptied("catalog", work)
            warehouse = str(work / contender.name)
            options = {"warehouse": warehouse, "lock.enabled": "true", **server.options}
            places[contender.name] = {"address": server.uri, "options": options}
        stack.callback(shutil.rmtree, work, ignore_errors=True)
        for action, function, unit in (
            ("open a table (ms)", "opens", 1_000.0),
            ("commit of 1,000 rows (ms)", "commits", 1_000.0),
            (f"list {TABLES:,} tables (s)", "lists", 1.0),
            (f"{WRITERS} writers, {EACH} commits each (s)", "crowd", 1.0),
        ):
            arguments = {"rows": bench.options.rows, "tables": TABLES, "writers": WRITERS, "each": EACH}
            bench.measure(
                action,
                function,
                lambda contender, arguments=arguments: {**places[contender.name], **arguments},
                after=shown("each_seconds", unit),
            )
    bench.finish()


if __name__ == "__main__":
    main()

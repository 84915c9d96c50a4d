"""What `benchmarks.catalogs` measures, in a process of its own."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from typing import Any

import merganser as mg

from . import ours, warm
from .ours import FIELDS, OPTIONS, few

_OPENS, _COMMITS = 200, 30


def warm_up() -> None:
    """As the other benchmarks."""
    warm.warm_up(ours)


def _catalog(address: str, options: dict[str, str]) -> mg.Catalog:
    found = mg.catalog(address, options=options)
    found.create_database("db", if_not_exists=True)
    return found


def _table(address: str, options: dict[str, str]) -> tuple[mg.Catalog, str]:
    catalog, name = _catalog(address, options), f"db.t{uuid.uuid4().hex[:8]}"
    catalog.create_table(name, schema=dict(FIELDS), primary_key=["k"], options=OPTIONS)
    return catalog, name


def _each(work: Callable[[int], object], times: int) -> dict[str, float]:
    seconds = []
    for number in range(times):
        begun = time.perf_counter()
        work(number)
        seconds.append(time.perf_counter() - begun)
    return {"each_seconds": statistics.median(seconds)}


def opens(address: str, options: dict[str, str], **_: Any) -> Callable[[], dict[str, float]]:
    """Open a table by its name, again and again."""
    catalog, name = _table(address, options)
    return lambda: _each(lambda _: catalog.table(name), _OPENS)


def commits(address: str, options: dict[str, str], rows: int, **_: Any) -> Callable[[], dict[str, float]]:
    """Commit small batches."""
    catalog, name = _table(address, options)
    table, batches = catalog.table(name), [few(rows, 100_000, seed) for seed in range(_COMMITS)]
    return lambda: _each(lambda number: table.write(batches[number]), _COMMITS)  # type: ignore[union-attr]


def lists(
    address: str, options: dict[str, str], tables: int, files: str | None = None, **_: Any
) -> Callable[[], dict[str, float]]:
    """List the tables of a database that has many."""
    catalog = mg.catalog(address, options=options)
    if "many" not in catalog.list_databases():
        catalog.create_database("many")
        rows = getattr(catalog.metastore, "rows", None)
        if rows is None:
            maker = catalog if files is None else mg.catalog(files)
            for number in range(tables):
                maker.create_table(f"many.t{number}", {"k": "INT"})
        else:  # a list reads no file
            _insert(rows, tables)
    return lambda: _each(lambda _: _counted(catalog, tables), 3)


def _counted(catalog: mg.Catalog, tables: int) -> None:
    assert len(catalog.list_tables("many")) == tables


def _insert(rows: Any, tables: int) -> None:
    import os

    import sqlalchemy as sa

    from merganser.catalogs.sql_database import _TABLES, _engine

    named = [{"catalog_key": rows.key, "database_name": "many", "table_name": f"t{number}"} for number in range(tables)]
    with _engine(os.getpid(), rows.url).execution_options(isolation_level="SERIALIZABLE").begin() as connection:
        connection.execute(sa.insert(_TABLES), named)


_WRITER = """
import sys, json
import merganser as mg
from benchmarks.ours import few
address, options, name, rows, each, seed = json.loads(sys.argv[1])
table = mg.catalog(address, options=options).table(name)
batches = [few(rows, 100_000, seed * 1000 + number) for number in range(each)]
print("ready", flush=True)
sys.stdin.readline()
for batch in batches:
    table.write(batch)
"""


def crowd(
    address: str, options: dict[str, str], rows: int, writers: int, each: int, **_: Any
) -> Callable[[], dict[str, float]]:
    """Commit from many processes at once."""
    import json

    _, name = _table(address, options)
    running = [
        subprocess.Popen(
            [sys.executable, "-c", _WRITER, json.dumps([address, options, name, rows, each, number])],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for number in range(writers)
    ]  # fmt: skip
    for process in running:
        assert process.stdout is not None
        process.stdout.readline()

    def action() -> dict[str, float]:
        begun = time.perf_counter()
        for process in running:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        assert [process.wait() for process in running] == [0] * writers
        return {"each_seconds": time.perf_counter() - begun}

    return action

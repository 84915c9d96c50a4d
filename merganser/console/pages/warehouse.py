"""The warehouse: its databases and tables, with figures that the browser asks for while they are in view."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote

from merganser.catalogs.catalog import Catalog
from merganser.console import html
from merganser.console.page import Asked, Page, paged
from merganser.errors import InvalidInputError, MerganserError
from merganser.handle.table import Table
from merganser.meta.table_state import MetaReader
from merganser.progress.sizes import size_text
from merganser.serve import answers
from merganser.values import dataclass

_FIGURES_MAX: Final = 100
_SECONDS_ADVICE_HOLDS: Final = 60


@dataclass(frozen=True)
class Figures:
    """What a table holds at its newest snapshot.

    Attributes:
        rows: stored, before merging.
        advice: what would make it cheaper, as texts.
    """

    rows: int
    size: int
    files: int
    committed: datetime | None
    advice: tuple[str, ...]


def view(asked: Asked) -> Mapping[str, Any]:
    """Return the tables of a page, or, for the script, their figures."""
    if asked.text("figures"):
        return {"answer": answers.of_json(_figures_of(asked))}
    names = asked.known.get(("names", asked.catalog.env.clock().timestamp() // 2), lambda: _names(asked.catalog))
    database, wanted = asked.text("database"), asked.text("filter")
    found = [
        (each, name)
        for each, name in names
        if (not database or each == database) and wanted.lower() in f"{each}.{name}".lower()
    ]
    order = asked.choice("sort", ("name", "-name"))
    return {
        "databases": sorted({each for each, _ in names}),
        "database": database,
        "wanted": wanted,
        "all": len(names),
        "tables": paged(sorted(found, reverse=order.startswith("-")), asked),
        "quote": quote,
    }


def _names(catalog: Catalog) -> list[tuple[str, str]]:
    return [(database, name) for database in catalog.list_databases() for name in catalog.list_tables(database)]


def _figures_of(asked: Asked) -> dict[str, Any]:
    try:
        names = json.loads(asked.text("figures"))
    except (ValueError, RecursionError):
        names = None
    if not isinstance(names, list) or len(names) > _FIGURES_MAX or not all(isinstance(name, str) for name in names):
        raise InvalidInputError(f"parameter 'figures' is no JSON list of at most {_FIGURES_MAX} tables.")
    return {name: _shown(asked, name) for name in names}


def _shown(asked: Asked, name: str) -> dict[str, Any]:
    now = asked.catalog.env.clock()
    try:
        table = asked.catalog.table(name)
        if not isinstance(table, Table):
            return {}
        found = figures(table, asked)
    except MerganserError as error:
        return {"health": {"text": "unreadable", "mark": "bad", "title": error.message}}
    if found.committed is None:
        return {"health": {"text": "empty", "mark": "plain"}}
    told = f"{len(found.advice)} to do" if found.advice else "good"
    return {
        "rows": {"text": f"{found.rows:,}"},
        "size": {"text": size_text(found.size)},
        "files": {"text": f"{found.files:,}"},
        "committed": {"text": f"{html.ago(found.committed, now)} ago"},
        "health": {"text": told, "mark": "warn" if found.advice else "good", "title": "\n".join(found.advice)},
    }


def figures(table: Table, asked: Asked) -> Figures:
    """Return the figures of a table; what a snapshot holds is found once."""
    newest = table.latest_snapshot()
    if newest is None:
        return Figures(0, 0, 0, None, ())

    def found() -> Figures:
        live = MetaReader(table.definition.paths, table.env, table.name).state(newest).live
        size = sum(entry.file.size for entry in live)
        advice = tuple(str(each) for each in table.advice())
        return Figures(newest.total_record_count or 0, size, len(live), newest.commit_time, advice)

    moment = asked.catalog.env.clock().timestamp() // _SECONDS_ADVICE_HOLDS  # consumers move without a commit
    key = ("figures", table.path, table.definition.branch, newest.id, newest.time_millis, moment)
    kept: Figures = asked.known.get(key, found)
    return kept


PAGE: Final = Page("warehouse", "/", view, title="Tables", key="h")

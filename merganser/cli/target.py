"""Finds the catalog or the table of a command, by name or by path."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Final

from merganser.catalogs.catalog import Catalog
from merganser.catalogs.names import branch_and_system
from merganser.cli.arguments import pairs
from merganser.errors import InvalidInputError
from merganser.expr.names import listed_names
from merganser.handle import doors
from merganser.handle.system_table import CatalogTable, SystemTable, TableView, system_handle
from merganser.handle.table import Table
from merganser.storage.tuning import tune_process

DEFAULT_WAREHOUSE = "warehouse"
_IN_BACKTICKS: Final = re.compile(r"\s*`((?:[^`]|``)+)`\s*=(.*)", re.DOTALL)


def catalog_of(warehouse: str | None, store: Sequence[str] | None) -> Catalog:
    """Return the catalog of `--warehouse`."""
    tune_process()  # the command line is a process of its own
    return doors.catalog(warehouse or DEFAULT_WAREHOUSE, pairs(store, "--store"))


def target_of(
    name: str, warehouse: str | None, store: Sequence[str] | None
) -> Table | SystemTable | CatalogTable | TableView:
    """Return the table of a name or path; with `$branch_name` or `$name` behind it, a branch or a system table."""
    if not is_path(name):
        found: Table | SystemTable | CatalogTable | TableView = catalog_of(warehouse, store).table(name)
        return found
    path, dollar, behind = name.partition("$")
    tune_process()
    table = doors.table(path, pairs(store, "--store"))
    if not dollar:
        return table
    branch, system = branch_and_system(name, behind)
    table = table.branch(branch)
    return table if system is None else system_handle(table, system)


def table_of(name: str, warehouse: str | None, store: Sequence[str] | None) -> Table:
    """Return the table of a name or path.

    Raises:
        InvalidInputError: it is a system table.
    """
    found = target_of(name, warehouse, store)
    if not isinstance(found, Table):
        own = "" if found.base is found else f" Name the table itself: '{found.base.name}'."
        raise InvalidInputError(f"'{name}' is a system table, which can only be read.{own}")
    return found


def is_path(name: str) -> bool:
    """Return whether a TABLE argument is a path rather than `database.table`."""
    return "/" in name or os.sep in name or name.startswith("~") or os.path.isdir(name)


def assignments(texts: Sequence[str] | None, option: str) -> Mapping[str, str]:
    """Return COLUMN=SQL texts of a repeated option as a mapping. A column may stand in backticks, as in SQL."""
    found: dict[str, str] = {}
    for text in texts or ():
        quoted = _IN_BACKTICKS.fullmatch(text)
        found |= {quoted[1].replace("``", "`"): quoted[2]} if quoted else pairs([text], option)
    return found


def names(texts: Sequence[str] | None) -> list[str]:
    """Return the names of a repeated option whose values may be lists: "a, b", in backticks where names have commas."""
    return [name for text in texts or () for name in listed_names(text)]

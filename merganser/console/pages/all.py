"""The pages of the console, in the order of their tabs."""

from __future__ import annotations

from typing import Final

from merganser.console.page import Page
from merganser.console.pages import (
    changes,
    commits,
    data,
    diff,
    history,
    readers,
    shards,
    sql,
    table,
    tree,
    upkeep,
    warehouse,
)

PAGES: Final[tuple[Page, ...]] = (
    warehouse.PAGE,
    sql.PAGE,
    table.PAGE,
    data.PAGE,
    history.PAGE,
    changes.PAGE,
    commits.PAGE,
    diff.PAGE,
    tree.PAGE,
    upkeep.PAGE,
    readers.PAGE,
    shards.PAGE,
)

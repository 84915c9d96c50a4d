"""A table: columns, options, partitions, and how it grew."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from merganser.console.page import Asked, Page
from merganser.console.pages.warehouse import figures


def view(asked: Asked) -> Mapping[str, Any]:
    """Return what the page shows of the table."""
    table = asked.table
    return {
        "table": table,
        "figures": figures(table, asked),
        "options": sorted((key, value) for key, value in table.options.items()),
    }


PAGE: Final = Page("table", "/t/{table}", view, title="Table", key="o")

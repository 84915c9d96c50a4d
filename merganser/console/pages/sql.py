"""SQL: statements over the catalog, with their plan, their time and their rows as a table, a chart or a file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from merganser.console.page import Asked, Page


def view(asked: Asked) -> Mapping[str, Any]:
    """Return the page before a statement has run."""
    from merganser.console import statements  # noqa: PLC0415 - a parser and an engine, 0.3 s, for this page alone

    return statements.view(asked)


def act(asked: Asked, form: Mapping[str, str]) -> Mapping[str, Any]:
    """Run the statements of the form, and return the page with the rows of the last one, or a file of them."""
    from merganser.console import statements  # noqa: PLC0415 - as above

    return statements.act(asked, form)


PAGE: Final = Page("sql", "/sql", view, title="SQL", key="q", act=act)

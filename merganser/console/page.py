"""A page: its address, its template, and the function that makes what the template shows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from typing import Any, Final, Protocol
from urllib.parse import urlencode

import pyarrow as pa

from merganser.catalogs.catalog import Catalog
from merganser.console.jobs import Jobs
from merganser.errors import InvalidInputError
from merganser.handle.table import Table
from merganser.values import dataclass

PER_PAGE: Final = 100
"""Lines of one page of a list."""


class Known(Protocol):
    """Keeps what is costly to find, as long as what it was found in is the newest."""

    def get(self, key: tuple[object, ...], make: Callable[[], Any]) -> Any:
        """Return what is kept under a key, or make it."""


@dataclass(frozen=True)
class Asked:
    """A request, as pages see it.

    Attributes:
        table_name: `database.table`, of pages of a table; may name a branch behind `$branch_`.
        query: the parameters of the address, each once.
        may_change: whether the client may change tables.
        known: what earlier requests found.
        jobs: work on tables that pages began.
        when_gone: called if the client goes before it has its answer.
    """

    catalog: Catalog
    path: str
    query: Mapping[str, str]
    may_change: bool
    known: Known
    jobs: Jobs
    table_name: str = ""
    when_gone: list[Callable[[], object]] = field(default_factory=list)

    @cached_property
    def table(self) -> Table:
        """The table of the page."""
        found = self.catalog.table(self.table_name)
        if not isinstance(found, Table):
            raise InvalidInputError(f"'{self.table_name}' is a part of a table. Give database.table.")
        return found

    def text(self, name: str, default: str = "") -> str:
        """Return a parameter without spaces around it."""
        return self.query.get(name, default).strip()

    def number(self, name: str, default: int | None = None, *, least: int = 0) -> int | None:
        """Return a parameter that is a whole number.

        Raises:
            InvalidInputError: it is none, or too small.
        """
        text = self.text(name)
        if not text:
            return default
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least or value > 2**63 - 1:
            raise InvalidInputError(f"parameter '{name}' is {text!r:.60}. Give a whole number from {least:,} on.")
        return value

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        """Return a parameter that is one of some words; the first of them is the default.

        Raises:
            InvalidInputError: it is another one.
        """
        text = self.text(name) or choices[0]
        if text not in choices:
            raise InvalidInputError(f"parameter '{name}' is {text!r:.60}. Give one of: {', '.join(choices)}.")
        return text

    def with_query(self, **changed: object) -> str:
        """Return the address of this page with other parameters; None leaves one out."""
        query = {name: value for name, value in self.query.items() if name != "part"} | changed
        kept = {name: str(value) for name, value in query.items() if value is not None}
        return self.path + ("?" + urlencode(kept) if kept else "")


@dataclass(frozen=True)
class Paged:
    """One page of a list that is too long to show.

    Attributes:
        lines: those of this page.
        number: of the page, from 1.
        total: lines of the whole list.
    """

    lines: list[Any]
    number: int
    total: int
    per_page: int = PER_PAGE

    @property
    def pages(self) -> int:
        """How many pages there are."""
        return max(1, math.ceil(self.total / self.per_page))

    @property
    def first(self) -> int:
        """The number of the first line, from 1; 0: there is none."""
        return (self.number - 1) * self.per_page + 1 if self.total else 0


def paged(lines: Sequence[Any], asked: Asked, per_page: int = PER_PAGE) -> Paged:
    """Return the page of a list that a request asks for with `page`, the last one if it has fewer."""
    number, begin = _page_asked(asked, len(lines), per_page)
    return Paged(list(lines[begin : begin + per_page]), number, len(lines), per_page)


def paged_rows(rows: pa.Table, asked: Asked, per_page: int = PER_PAGE) -> Paged:
    """Return the same of the rows of a table, each by the names of its columns."""
    number, begin = _page_asked(asked, rows.num_rows, per_page)
    return Paged(rows.slice(begin, per_page).to_pylist(), number, rows.num_rows, per_page)


def _page_asked(asked: Asked, total: int, per_page: int) -> tuple[int, int]:
    number = min(asked.number("page", 1, least=1) or 1, max(1, math.ceil(total / per_page)))
    return number, (number - 1) * per_page


@dataclass(frozen=True)
class News:
    """What came since the last look.

    Attributes:
        position: what the next look is given.
        html: pieces of HTML, one for each event, oldest first; the name of the event goes with each.
    """

    position: Any
    html: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Page:
    """One page of the console.

    Attributes:
        name: of its template, and of its tab.
        path: its address; `{table}` stands for a table.
        view: returns what the template shows. It runs in a thread.
        title: of the tab; None: it has none.
        key: which key opens it, after `g`.
        changes: whether only clients that may change tables see it.
        act: does what a form of the page asks, and returns what the page then says. Only clients that may change
            tables get so far.
        events: adds what the page shows of news, as server-sent events below its address at `/events`: given what is
            asked and what came last, it returns what comes next. It runs in a thread, once a second.
    """

    name: str
    path: str
    view: Callable[[Asked], Mapping[str, Any]]
    title: str | None = None
    key: str = ""
    changes: bool = False
    act: Callable[[Asked, Mapping[str, str]], Mapping[str, Any]] | None = None
    events: Callable[[Asked, Any], News] | None = None

"""Tables of a source -> the tables that their changes go to. These values pickle: tasks and the sink ask them, too."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from merganser.cdc.sources import Source
from merganser.errors import InvalidInputError
from merganser.handle.table import Table
from merganser.spark.session import opened


class FeedTables(Protocol):
    """The tables of a feed."""

    def place_of(self, source: Source) -> str | None:
        """Return what `table` opens the table of a source by; None: there is no such table."""
        ...

    def table(self, place: str) -> Table:
        """Return the table at a place.

        Raises:
            NotFoundError: there is none any more.
        """
        ...


@dataclass(frozen=True)
class GivenTables:
    """Tables that the caller named.

    Attributes:
        patterns: what names of sources match, and where the table of each lies in `tables`; the first that fits counts.
        tables: each once.
    """

    patterns: tuple[tuple[re.Pattern[str], int], ...]
    tables: tuple[Table, ...]

    def place_of(self, source: Source) -> str | None:
        """Return the number of the table, as text."""
        name = str(source)
        return next((str(number) for pattern, number in self.patterns if pattern.search(name)), None)

    def table(self, place: str) -> Table:
        """Return the table."""
        return self.tables[int(place)]


def given_tables(tables: Mapping[str, Table | str], action: str) -> GivenTables:
    """Return the tables that a caller names by those of the source.

    Args:
        tables: tables or their paths by `table`, `database.table` or `database.schema.table` of the source. `*` stands
            for any characters but dots. A name is compared with the end of the source's.
        action: the start of messages.

    Raises:
        InvalidInputError: there are none, or a name is none.
        NotFoundError: there is no table at a path.
    """
    if not tables:
        raise InvalidInputError(f"{action}: tables is empty. Name one table at least. Nothing was started.")
    patterns: list[tuple[re.Pattern[str], int]] = []
    numbers: dict[str, int] = {}
    handles: list[Table] = []
    for name, given in tables.items():
        if not isinstance(name, str) or not name.strip(". "):
            raise InvalidInputError(
                f"{action}: {name!r:.80} in tables names no table of the source. Write 'table' or 'database.table'. "
                "Nothing was started."
            )
        table = opened(given)
        number = numbers.setdefault(table.definition.paths.metadata_root, len(handles))
        if number == len(handles):
            handles.append(table)
        elif table.definition.options != handles[number].definition.options:
            raise InvalidInputError(
                f"{action}: tables names '{table.name}' twice, with different options. A batch is one commit of each "
                "table. Nothing was started. Give the same Table for both.",
                table=table.name,
            )
        parts = r"[^.]*".join(map(re.escape, name.split("*")))
        patterns.append((re.compile(rf"(?:^|\.){parts}$"), number))
    return GivenTables(tuple(patterns), tuple(handles))

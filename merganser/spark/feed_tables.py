"""Tables of a source -> the tables that their changes go to. These values pickle: tasks and the sink ask them, too."""

from __future__ import annotations

import re
from collections.abc import Mapping
from string import Formatter
from typing import Any, Protocol

from merganser.catalogs.catalog import Catalog
from merganser.catalogs.names import parse_table_name
from merganser.cdc.new_tables import NewTable
from merganser.cdc.sources import Source
from merganser.errors import InvalidInputError, InvariantError
from merganser.handle.table import Table
from merganser.options.registry import normalize_options
from merganser.spark.access import opened
from merganser.values import dataclass


class FeedTables(Protocol):
    """The tables of a feed."""

    @property
    def creates(self) -> bool:
        """Whether tables that are not there are created."""
        ...

    def place_of(self, source: Source) -> str | None:
        """Return what `table` opens the table of a source by; None: there can be no such table."""
        ...

    def table(self, place: str) -> Table:
        """Return the table at a place.

        Raises:
            NotFoundError: there is none.
        """
        ...

    def create(self, place: str, told: NewTable) -> None:
        """Create the table at a place, unless another task has just done so.

        Raises:
            MerganserError: it cannot be created.
        """
        ...


@dataclass(frozen=True)
class GivenTables:
    """Tables that the caller named.

    Attributes:
        patterns: what names of sources match, and where the table of each lies in `tables`; the first that fits counts.
        tables: each once.
        creates: False.
    """

    patterns: tuple[tuple[re.Pattern[str], int], ...]
    tables: tuple[Table, ...]
    creates: bool = False

    def place_of(self, source: Source) -> str | None:
        """Return the number of the table, as text."""
        name = str(source)
        return next((str(number) for pattern, number in self.patterns if pattern.search(name)), None)

    def table(self, place: str) -> Table:
        """Return the table."""
        return self.tables[int(place)]

    def create(self, place: str, told: NewTable) -> None:
        """Raise an error: all tables are there."""
        raise InvariantError(f"the table {place} of a feed was to be created. It is there. Report it.")


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


@dataclass(frozen=True)
class CatalogTables:
    """Tables of a catalog, found by the names of the source.

    Attributes:
        target: the name of a table, with {database}, {schema} and {table} of the source.
        creates: whether tables that are not there are created.
        options: of new tables.
    """

    catalog: Catalog
    target: str
    creates: bool
    options: Mapping[str, Any]

    def place_of(self, source: Source) -> str | None:
        """Return the name of the table; None: the source does not say it, or no table can have it."""
        parts = {"database": source.database, "schema": source.schema, "table": source.table}
        if any(parts[field] is None for field in _fields(self.target)):
            return None
        name = self.target.format(**parts)
        try:
            found = parse_table_name(name)
        except InvalidInputError:
            return None
        return name if "$" not in name and str(found) == name else None

    def table(self, place: str) -> Table:
        """Return the table."""
        found = self.catalog.table(place)
        assert isinstance(found, Table)  # the name has no `$`
        return found

    def create(self, place: str, told: NewTable) -> None:
        """Create the table, and its database, unless another task has just done so."""
        self.catalog.create_database(parse_table_name(place).database, if_not_exists=True)
        self.catalog.create_table(place, dict(told.columns), told.key, options=self.options, if_not_exists=True)


def catalog_tables(
    catalog: Catalog, target: str, action: str, *, create: bool, options: Mapping[str, Any] | None
) -> CatalogTables:
    """Return the tables of a catalog by the names of the source.

    Raises:
        InvalidInputError: the target is no name of a table, or has other fields; or an option is invalid.
    """
    fields = _fields(target) if isinstance(target, str) else ["?"]
    if set(fields) - {"database", "schema", "table"} or "." not in target:
        raise InvalidInputError(
            f"{action}: target is {target!r:.80}. Write the name of a table with {{database}}, {{schema}} and "
            "{table} of the source, such as 'raw.{database}_{table}'. Nothing was started."
        )
    return CatalogTables(catalog, target, create, normalize_options(options))


def _fields(target: str) -> list[str]:
    try:
        return [field for _, field, _, _ in Formatter().parse(target) if field is not None]
    except ValueError:
        return ["?"]

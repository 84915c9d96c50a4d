"""The state of a session: the current database, options of SET, and names as the catalog knows them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import field, replace
from typing import Any, Final, Protocol

from merganser.catalogs.definitions import Function, View
from merganser.catalogs.names import SYSTEM, parse_table_name
from merganser.errors import InvalidInputError, NotFoundError
from merganser.expr.setting import checked_zone
from merganser.handle.system_table import CatalogTable, system_handle
from merganser.handle.table import Table
from merganser.options.option import BYTES, DURATION
from merganser.options.registry import closest, did_you_mean
from merganser.sql.statements import Name
from merganser.values import dataclass

DEFAULT_DATABASE: Final = "default"
DEFAULT_CATALOG: Final = "merganser"
RUNTIME_MODE: Final = "execution.runtime-mode"
TIME_ZONE: Final = "timezone"
TIMEOUT: Final = "sql.timeout"
MAX_ROWS: Final = "sql.max-rows"
MEMORY: Final = "sql.memory"
NEW_TABLES: Final = "table-storage."
READS: Final = "spark.paimon."
SESSION_OPTIONS: Final = (RUNTIME_MODE, TIME_ZONE, TIMEOUT, MAX_ROWS, MEMORY, "checkpoint")


class CatalogLike(Protocol):
    """The verbs of a catalog that statements call."""

    def create_database(self, name: str, if_not_exists: bool = False) -> None: ...
    def drop_database(self, name: str, if_exists: bool = False, cascade: bool = False) -> None: ...
    def list_databases(self) -> list[str]: ...
    def create_table(self, name: str, schema: Any, **how: Any) -> Table: ...
    def creating(self, name: str, schema: Any, **how: Any) -> AbstractContextManager[Table]: ...
    def table(self, name: str) -> Any: ...
    def list_tables(self, database: str) -> list[str]: ...
    def alter_table(self, name: str, changes: Any) -> Table: ...
    def drop_table(self, name: str, if_exists: bool = False) -> None: ...
    def rename_table(self, name: str, new_name: str, no_writers: bool = False) -> None: ...
    def list_views(self, database: str) -> list[str]: ...
    def view(self, name: str) -> View: ...
    def create_view(self, name: str, query: str, **how: Any) -> View: ...
    def alter_view(self, name: str, changes: Any) -> View: ...
    def rename_view(self, name: str, new_name: str) -> None: ...
    def drop_view(self, name: str, if_exists: bool = False) -> None: ...
    def list_functions(self, database: str) -> list[str]: ...
    def function(self, name: str) -> Function: ...
    def create_function(self, name: str, inputs: Any, returns: Any, definition: Any, **how: Any) -> Function: ...
    def drop_function(self, name: str, if_exists: bool = False) -> None: ...


def no_database(name: str, known: Sequence[str]) -> NotFoundError:
    """Return the error about a database that does not exist."""
    made = [database for database in known if database != SYSTEM]
    hint = f"{did_you_mean(name, made)} " if made else ""
    return NotFoundError(f"there is no database '{name}'. {hint}CREATE DATABASE {name} creates it.", database=name)


def _check_value(key: str, value: str) -> None:
    """Check the value of an option of SET.

    Raises:
        InvalidInputError: it has another form; nothing was set.
    """
    try:
        if key == TIME_ZONE:
            checked_zone(value)
        elif key == TIMEOUT:
            DURATION.parse(value)
        elif key == MAX_ROWS:
            if not value.strip().isdigit():
                raise ValueError(value)
        elif key == MEMORY:
            BYTES.parse(value)
    except InvalidInputError as error:
        raise InvalidInputError(f"cannot set '{key}': {error} Nothing was set.") from error
    except ValueError as error:
        form = {MAX_ROWS: "a whole number", MEMORY: BYTES.expected}.get(key, DURATION.expected)
        raise InvalidInputError(f"cannot set '{key}' to '{value}'. Give {form}. Nothing was set.") from error


TIME_ZONES: Final = (TIME_ZONE, "time.zone", "table.local-time-zone", "spark.sql.session.timeZone")
"""Names that SET has for the time zone."""


@dataclass
class State:
    """What USE and SET have said.

    Attributes:
        catalog_name: the first part of three-part names.
        reads: views and functions whose text is looked at, the outermost first.
    """

    catalog: Any
    catalog_name: str = DEFAULT_CATALOG
    database: str = DEFAULT_DATABASE
    options: dict[str, str] = field(default_factory=dict)
    reads: tuple[str, ...] = ()

    def inside(self, name: str) -> State:
        """Return the state for the text of a view or function: its names are those of its own database.

        Args:
            name: `database.view` or `database.function`.

        Raises:
            InvalidInputError: the text is that of a view or function that names itself, perhaps through others.
        """
        if name in self.reads:
            chain = " -> ".join((*self.reads[self.reads.index(name) :], name))
            raise InvalidInputError(f"'{name}' names itself: {chain}. Replace one of them.", table=name)
        return replace(self, database=name.partition(".")[0], reads=(*self.reads, name))

    def shown(self, key: str) -> str | None:
        """Return the value of an option; None if it is not set."""
        return self.options.get(TIME_ZONE if key in TIME_ZONES else key)

    def set(self, key: str, value: str) -> None:
        """Set an option.

        Raises:
            InvalidInputError: a session has no such option.
        """
        key = TIME_ZONE if key in TIME_ZONES else key
        if not (key in SESSION_OPTIONS or key.startswith((NEW_TABLES, READS)) or "." in key):
            raise InvalidInputError(
                f"cannot set '{key}': a session has no such option. {did_you_mean(key, SESSION_OPTIONS)}"
            )
        near = closest(key, SESSION_OPTIONS)
        if (
            key not in SESSION_OPTIONS
            and not key.startswith((NEW_TABLES, READS))
            and near
            and key.split(".")[0] in near
        ):
            raise InvalidInputError(f"cannot set '{key}': a session has no such option. Did you mean '{near}'?")
        if key == RUNTIME_MODE and value.lower() not in ("batch", "streaming"):
            raise InvalidInputError(f"cannot set '{key}' to '{value}'. Give batch or streaming.")
        _check_value(key, value)
        self.options[key] = value

    def reset(self, key: str | None) -> None:
        """Forget an option; None: all of them."""
        if key is None:
            self.options.clear()
        else:
            self.options.pop(TIME_ZONE if key in TIME_ZONES else key, None)

    @property
    def zone(self) -> str:
        return self.options.get(TIME_ZONE, "UTC")

    @property
    def streaming(self) -> bool:
        return self.options.get(RUNTIME_MODE, "batch").lower() == "streaming"

    # names

    def database_of(self, name: Name) -> str:
        """Return the database that a name means.

        Raises:
            NotFoundError: another catalog, or no such database.
        """
        if len(name) > 2:
            raise InvalidInputError(f"'{'.'.join(name)}' is not the name of a database. Write catalog.database.")
        if len(name) == 2:
            self._check_catalog(name[0])
        return name[-1]

    def full(self, name: Name) -> str:
        """Return `database.table` for a name of one to three parts; with `$` and what follows.

        Raises:
            NotFoundError: another catalog.
            InvalidInputError: too many parts, or a part with a dot.
        """
        if len(name) > 3:
            raise InvalidInputError(f"'{'.'.join(name)}' has too many parts. Write catalog.database.table.")
        if len(name) == 3:
            self._check_catalog(name[0])
        database = name[-2] if len(name) > 1 else self.database
        if "." in database or "." in name[-1].partition("$")[0]:
            raise InvalidInputError(f"'{name[-1]}' is not a table name: it has a dot. Write database.table.")
        return f"{database}.{name[-1]}"

    def _check_catalog(self, name: str) -> None:
        if name != self.catalog_name:
            raise NotFoundError(
                f"there is no catalog '{name}'. This session has the catalog '{self.catalog_name}'.", catalog=name
            )

    def handle(self, name: Name, options: Mapping[str, str] | None = None) -> Any:
        """Return the table, view or system table of a name; a `View` for one that the catalog holds.

        Args:
            options: dynamic options of a hint; those of the session for reads are added by `reading`. Views have none.

        Raises:
            NotFoundError: no such catalog, database or table; with the nearest name.
            InvalidInputError: an unknown option.
        """
        full = self.full(name)
        try:
            found = self.catalog.table(full)
        except NotFoundError as error:
            if error.context.get("view") is not None:
                plain, dollar, behind = full.partition("$")
                if dollar:
                    raise NotFoundError(
                        f"there is no table '{full}': '{plain}' is a view, which has no '{behind}'.", table=full
                    ) from error
                return self.catalog.view(full)
            if error.context.get("snapshot") is not None or "branch" in str(error):
                raise
            raise self._unknown(full, error) from error
        if not options:
            return found
        if isinstance(found, Table):
            return found.with_options(options)
        if isinstance(found, CatalogTable):
            raise InvalidInputError(f"cannot read '{found.name}' with options: it has none.")
        parsed = parse_table_name(full)
        base = found.base.with_options(options)
        return system_handle(base, parsed.system or "")

    def _unknown(self, full: str, error: NotFoundError) -> NotFoundError:
        database, _, table = full.partition(".")
        if database not in [*self.catalog.list_databases(), SYSTEM]:
            known = self.catalog.list_databases()
            hint = did_you_mean(database, known) if known else "The catalog has none yet."
            return NotFoundError(f"there is no table '{full}': no database '{database}'. {hint}", table=full)
        tables = self.catalog.list_tables(database)
        plain, dollar, _ = table.partition("$")
        if dollar and plain in tables:
            return error
        if database != SYSTEM:
            tables = [*tables, *self.catalog.list_views(database)]
        near = closest(plain, tables)
        hint = (
            f"Did you mean '{near}'?" if near else f"{'It has ' + ', '.join(tables[:5]) if tables else 'It has none'}."
        )
        return NotFoundError(f"there is no table '{full}'. {hint}", table=full)

    def table(self, name: Name, options: Mapping[str, str] | None = None) -> Table:
        """Return a table that can be changed.

        Raises:
            InvalidInputError: the name is that of a view or system table.
        """
        found = self.handle(name, options)
        if isinstance(found, View):
            raise InvalidInputError(
                f"'{found.name}' is a view, and this takes a table. Nothing was changed. Name a table that the view "
                "reads; ALTER VIEW and DROP VIEW change the view itself.",
                table=found.name,
            )
        if not isinstance(found, Table):
            raise InvalidInputError(
                f"cannot change '{found.name}': it shows what tables hold, and has no rows of its own. Nothing "
                "was changed."
            )
        return found

    def read_options(self, name: Name) -> dict[str, str]:
        """Return the options of SET that hold for reads of a table: `spark.paimon.[catalog.db.table.]key`."""
        full = self.full(name).partition("$")[0]
        database, _, table = full.partition(".")
        if database == SYSTEM:
            return {}
        wide: dict[str, str] = {}
        narrow: dict[str, str] = {}
        for key, value in self._reads():
            parts = key.split(".", 3)
            if len(parts) == 4 and parts[0] in ("*", self.catalog_name) and parts[1] in ("*", database):
                if parts[2] in ("*", table):
                    narrow[parts[3]] = value
                continue
            wide[key] = value
        return {**wide, **narrow}

    def _reads(self) -> Iterator[tuple[str, str]]:
        for key, value in self.options.items():
            if key.startswith(READS):
                yield key.removeprefix(READS), value

    def new_table_options(self) -> dict[str, str]:
        """Return the options of SET that new tables get: `table-storage.<option>`."""
        return {k.removeprefix(NEW_TABLES): v for k, v in self.options.items() if k.startswith(NEW_TABLES)}

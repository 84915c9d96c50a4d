"""Metastore: which databases and tables a catalog has, and where they lie.

A catalog checks names and definitions, tells listeners, and opens tables. It asks its metastore for the rest:

    filesystem   directories of the warehouse; `catalogs.filesystem`
    jdbc         rows of an SQL database that several catalogs and engines share; `catalogs.sql_metastore`
    rest         a server that engines share, which makes each commit; `catalogs.rest_metastore`

A metastore pickles, since tasks of Spark create tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

from merganser.catalogs.definitions import Function, View
from merganser.catalogs.names import TableName
from merganser.schema.table_schema import TableSchema
from merganser.storage.env import Env
from merganser.values import dataclass

NO_ROW: Final = "files without a row"
NO_FILES: Final = "a row without files"
NO_DIRECTORY: Final = "no directory"


@dataclass(frozen=True, slots=True)
class Repair:
    """Names and files of a catalog that did not fit, as a killed process leaves them.

    Attributes:
        name: of the table; of the database, if it has no directory.
        problem: "files without a row": the catalog did not name a table whose files are there. "a row without files":
            it named a table that is not there. "no directory": it names tables of a database that has no directory,
            perhaps since the warehouse is another one.
        path: where the files are or would be.
        done: whether it is repaired: the table is named, or is named no longer.
    """

    name: str
    problem: str
    path: str
    done: bool = False


class Definitions(Protocol):
    """Views and functions by name. Names were checked before."""

    def views(self, database: str) -> list[str]:
        """Return the names of the views of a database, in order."""

    def view(self, name: TableName) -> View | None:
        """Return a view; None: there is none."""

    def create_view(self, view: View) -> None:
        """Create a view.

        Raises:
            AlreadyExistsError: there is a view or a table of this name.
        """

    def replace_view(self, view: View) -> None:
        """Put a view in the place of one of the same name."""

    def alter_view(self, name: TableName, changes: Sequence[Any]) -> None:
        """Make changes; see `View.altered`.

        Raises:
            NotFoundError: there is no such view.
        """

    def drop_view(self, name: TableName) -> bool:
        """Remove a view; return whether there was one."""

    def rename_view(self, old: TableName, new: TableName) -> None:
        """Rename a view.

        Raises:
            NotFoundError: there is no such view.
            AlreadyExistsError: there is a view or a table of the new name.
        """

    def functions(self, database: str) -> list[str]:
        """Return the names of the functions of a database, in order."""

    def function(self, name: TableName) -> Function | None:
        """Return a function; None: there is none."""

    def create_function(self, function: Function) -> None:
        """Create a function.

        Raises:
            AlreadyExistsError: there is one of this name.
        """

    def replace_function(self, function: Function) -> None:
        """Put a function in the place of one of the same name."""

    def alter_function(self, name: TableName, changes: Sequence[Any]) -> None:
        """Make changes; see `Function.altered`.

        Raises:
            NotFoundError: there is no such function.
        """

    def drop_function(self, name: TableName) -> bool:
        """Remove a function; return whether there was one."""


class Metastore(Protocol):
    """Databases and tables by name. Names were checked before."""

    @property
    def warehouse(self) -> str:
        """The directory below which new tables are created."""

    @property
    def env(self) -> Env:
        """Reads and commits to the tables."""

    def env_at(self, root: str) -> Env:
        """Return what reads and commits to the table in a directory: `env`, unless tables lie in several stores."""

    @property
    def definitions(self) -> Definitions | None:
        """Views and functions; None: this kind of metastore holds none."""

    def check(self) -> None:
        """Look whether the warehouse can be read.

        Raises:
            StorageError: it cannot.
        """

    def databases(self) -> list[str]:
        """Return the names of all databases, in order."""

    def has_database(self, name: str) -> bool:
        """Return whether there is a database."""

    def create_database(self, name: str) -> None:
        """Create a database.

        Raises:
            AlreadyExistsError: there is one. Of callers at the same time, one creates it.
        """

    def strangers(self, name: str) -> list[str]:
        """Return the names of entries in the directory of a database that are not tables, in order."""

    def drop_database(self, name: str) -> None:
        """Remove a database whose tables were dropped, and all that its directory holds."""

    def tables(self, database: str) -> list[str]:
        """Return the names of the tables of a database, in order."""

    def root(self, name: TableName) -> str:
        """Return the directory of a table, which need not exist."""

    def has_table(self, name: TableName) -> bool:
        """Return whether there is a table."""

    def may_have_table(self, name: TableName) -> bool:
        """Return False if there is no such table for sure. Asks the store of files nothing: opening a table does."""

    def check_free(self, name: TableName) -> None:
        """Refuse the name of a new table if files lie in its directory; they would become part of the table.

        Empty directories are accepted, and files of writers that no snapshot names.

        Raises:
            AlreadyExistsError: there are files; the message says how to remove them.
        """

    def create_table(self, name: TableName, schema: TableSchema) -> TableSchema:
        """Create a table without rows. Returns its schema as it is stored.

        Raises:
            AlreadyExistsError: another process has created it, or is moving a table there.
        """

    def add_table(self, name: TableName) -> None:
        """Note a table whose files have just been moved to its directory."""

    def drop_table(self, name: TableName) -> bool:
        """Remove a table and its files, or what an unfinished drop has left.

        Returns:
            Whether there was anything.

        Raises:
            StorageError: not all files could be removed; says whether the table is gone.
        """

    def rename_table(self, old: TableName, new: TableName) -> None:
        """Rename a table, and its directory with it. The new name is free.

        Raises:
            AlreadyExistsError: there is something in the new directory now; nothing was changed.
            StorageError: says what was changed.
        """

    def repair(self, database: str | None = None, table: str | None = None, *, dry_run: bool = False) -> list[Repair]:
        """Make names and files say the same; return where they did not.

        Args:
            database, table: one database or table; None: all.
            dry_run: change nothing.

        Raises:
            UnsupportedError: somebody else has to do it.
        """

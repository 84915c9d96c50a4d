"""The metastore of an SQL database: rows say which tables there are, and directories hold them.

Tables lie in the warehouse as those of the file system catalog do. A table exists when it has a row. Files come before
the row and go after it, so that a process that stops in between leaves files without a row, which nobody takes for a
table: a new table of that name is refused, and `drop_table` removes them.

Tables and views share their names, and each kind has rows of its own. So whoever takes a name holds its lock, looks for
the other kind, and adds the row, as other engines do.

Each schema and snapshot passes by a guard, which holds the lock of the table while it is created (`lock.enabled`), as
other engines do, and notes the options of a new schema.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from merganser.catalogs.definitions import Function, View, function_of, name_of_view, view_of
from merganser.catalogs.filesystem import FileSystem
from merganser.catalogs.metastore import NO_DIRECTORY, NO_FILES, NO_ROW, Repair
from merganser.catalogs.names import TableName
from merganser.catalogs.sql_database import FUNCTIONS, VIEWS, SqlDatabase
from merganser.errors import (
    AlreadyExistsError,
    CommitUnknownError,
    ConflictError,
    MerganserError,
    NotFoundError,
    StorageError,
)
from merganser.meta.schemas import SchemaStore
from merganser.scan.rows import counted
from merganser.schema.table_schema import TableSchema, from_json
from merganser.storage.env import Env
from merganser.storage.paths import TablePaths
from merganser.storage.protocol import Storage
from merganser.values import dataclass

T = TypeVar("T", View, Function)
_DECIDES: Final = re.compile(r"/([^/]+)\.db/([^/.][^/]*)/(?:branch/branch-[^/]+/)?(snapshot|schema)/\3-\d+")
"""What a path ends with, behind the warehouse: the file that makes a commit or an alter."""


@dataclass(frozen=True)
class SqlGuard:
    """Holds the lock of a table while a schema or snapshot is created, and notes options of schemas; see `Guard`."""

    warehouse: str
    database: SqlDatabase
    locks: bool

    def create(self, files: Storage, path: str, data: bytes) -> None:
        """Create a file."""
        found = _DECIDES.fullmatch(path.removeprefix(self.warehouse))
        if found is None:
            files.create(path, data)
            return
        database, table, kind = found.groups()
        with self.database.lock(database, table) if self.locks else contextlib.nullcontext(_no_check) as check:
            check()
            files.create(path, data)
        if kind == "schema" and "/branch/" not in found[0]:
            with contextlib.suppress(MerganserError):  # for people alone: the alter is done
                self.database.note_options(database, table, _properties(from_json(data)))


@dataclass(frozen=True)
class SqlMetastore:
    """Databases and tables that an SQL database names; see `Metastore`.

    Attributes:
        files: the directories.
        rows: the names.
    """

    files: FileSystem
    rows: SqlDatabase

    @property
    def warehouse(self) -> str:
        """The directory below which tables lie."""
        return self.files.warehouse

    @property
    def env(self) -> Env:
        """Reads and commits to the tables."""
        return self.files.env

    @property
    def definitions(self) -> SqlDefinitions:
        """Views and functions."""
        return SqlDefinitions(self.rows)

    def env_at(self, root: str) -> Env:
        """Return `env`: one store holds all tables."""
        return self.env

    def check(self) -> None:
        """Look whether the warehouse can be read."""
        self.files.check()

    def databases(self) -> list[str]:
        """Return the names of all databases, in order."""
        return self.rows.databases()

    def has_database(self, name: str) -> bool:
        """Return whether there is a database."""
        return self.rows.has_database(name)

    def create_database(self, name: str) -> None:
        """Create a database. A row says which of several callers has created it."""
        with contextlib.suppress(AlreadyExistsError):  # such as the directory of another catalog, or of a stopped call
            self.files.create_database(name)
        if not self.rows.add_database(name, self.files.directory(name)):
            raise AlreadyExistsError(f"database '{name}' already exists.", database=name)

    def strangers(self, name: str) -> list[str]:
        """Return the names of entries in the directory of a database that are not tables."""
        return self.files.strangers(name)

    def drop_database(self, name: str) -> None:
        """Remove a database, and its directory with all that is in it."""
        self.rows.remove_database(name)
        self.files.drop_database(name)

    def tables(self, database: str) -> list[str]:
        """Return the names of the tables of a database, in order."""
        return self.rows.tables(database)

    def root(self, name: TableName) -> str:
        """Return the directory of a table."""
        return self.files.root(name)

    def has_table(self, name: TableName) -> bool:
        """Return whether there is a table."""
        return self.rows.has_table(name.database, name.table)

    def may_have_table(self, name: TableName) -> bool:
        """Return whether there is a table."""
        return self.has_table(name)

    def check_free(self, name: TableName) -> None:
        """Refuse a name if files lie in its directory, or if it is that of a view."""
        self._check_no_view(name)
        if self.files.has_table(name):
            raise AlreadyExistsError(
                f"cannot create table '{name}': the catalog at '{self.rows}' has no such table, and files of one are "
                f"at '{self.root(name)}'. Nothing was changed. catalog.repair('{name}') makes them the table, and "
                f"catalog.drop_table('{name}') removes them for good.",
                table=str(name),
                path=self.root(name),
            )
        self.files.check_free(name)

    def create_table(self, name: TableName, schema: TableSchema) -> TableSchema:
        """Create a table without rows."""
        made = self.files.create_table(name, schema)
        try:
            self._add(name)
        except (AlreadyExistsError, ConflictError):
            self.files.drop_table(name)
            raise
        except StorageError as error:
            if error.context.get("changed") is False:
                self.files.drop_table(name)
                raise StorageError(
                    f"cannot create table '{name}': {error.message} Nothing was changed.",
                    table=str(name),
                    changed=False,
                ) from error
            raise self._unknown(name, f"table '{name}' was created", error) from error
        return made

    def add_table(self, name: TableName) -> None:
        """Note a table whose files were moved to its directory."""
        try:
            self._add(name)
        except StorageError as error:
            raise self._unknown(name, f"the catalog has table '{name}'", error) from error
        self._note_options(name)

    def drop_table(self, name: TableName) -> bool:
        """Remove a table and its files, or files without a row."""
        with self.rows.lock(name.database, name.table):
            try:
                noted = self.rows.remove_table(name.database, name.table)
            except StorageError as error:
                if error.context.get("changed") is False:
                    raise StorageError(
                        f"cannot drop table '{name}': {error.message} Nothing was changed.",
                        table=str(name),
                        changed=False,
                    ) from error
                raise CommitUnknownError(
                    f"cannot tell whether table '{name}' was dropped: {error.message} Its files are there. Drop it "
                    f"again, or keep it: catalog.repair('{name}').",
                    table=str(name),
                ) from error
            return self.files.drop_table(name) or noted

    def rename_table(self, old: TableName, new: TableName) -> None:
        """Rename a table and its directory."""
        with self.rows.locks((old.database, old.table), (new.database, new.table)):
            self._check_no_view(new)
            self.files.rename_table(old, new)
            try:
                self.rows.rename_table((old.database, old.table), (new.database, new.table))
            except (AlreadyExistsError, StorageError) as error:
                is_known = isinstance(error, AlreadyExistsError) or error.context.get("changed") is False
                if not is_known:
                    raise self._unknown(new, f"'{old}' was renamed to '{new}'", error) from error
                try:
                    self.files.rename_table(new, old)
                except MerganserError:
                    raise self._unknown(new, f"'{old}' was renamed to '{new}'", error) from error
                if isinstance(error, AlreadyExistsError):
                    raise
                raise StorageError(
                    f"cannot rename '{old}' to '{new}': {error.message} Nothing was changed.",
                    table=str(old),
                    changed=False,
                ) from error

    def repair(self, database: str | None = None, table: str | None = None, *, dry_run: bool = False) -> list[Repair]:
        """Make rows and files say the same: files of a table get a row, and a row without files goes.

        Args:
            database, table: one database or table; None: all.
            dry_run: change nothing.
        """
        found: list[Repair] = []
        for each in sorted({*self.rows.databases(), *self.files.databases()}) if database is None else [database]:
            if self.files.has_database(each):
                noted, there = set(self.rows.tables(each)), set(self.files.tables(each))
                names = sorted(noted ^ there) if table is None else [table]
                found += filter(None, (self._repaired(TableName(each, name), dry_run) for name in names))
            elif tables := self.rows.tables(each):  # perhaps another warehouse: the rows stay
                found.append(Repair(each, NO_DIRECTORY, f"{self.files.directory(each)}, {counted(len(tables), 'row')}"))
        return found

    def _repaired(self, name: TableName, dry_run: bool) -> Repair | None:
        """Look at one table under its lock, and repair it; None: its row and its files fit."""
        with self.rows.lock(name.database, name.table):
            noted, there = self.has_table(name), self.files.has_table(name)
            if noted == there:
                return None
            found = Repair(str(name), NO_ROW if there else NO_FILES, self.root(name))
            if dry_run:
                return found
            if there:
                self._check_no_view(name)
                if not self.rows.has_database(name.database):
                    self.rows.add_database(name.database, self.files.directory(name.database))
                self.rows.add_table(name.database, name.table)
            else:
                self.rows.remove_table(name.database, name.table)
        if there:
            self._note_options(name)
        return replace(found, done=True)

    def _add(self, name: TableName) -> None:
        with self.rows.lock(name.database, name.table):
            try:
                self._check_no_view(name)
            except StorageError as error:  # a look changes nothing
                raise StorageError(error.message, path=str(self.rows), changed=False) from error
            self.rows.add_table(name.database, name.table)

    def _note_options(self, name: TableName) -> None:
        newest = SchemaStore(TablePaths(self.root(name)), self.env).latest()
        if newest is not None:
            with contextlib.suppress(StorageError):  # for people alone
                self.rows.note_options(name.database, name.table, _properties(newest))

    def _unknown(self, name: TableName, what: str, error: MerganserError) -> CommitUnknownError:
        return CommitUnknownError(
            f"cannot tell whether {what}: {error.message} Its files are at '{self.root(name)}'. When the database "
            "answers again, call catalog.repair(): it lets the catalog name the tables whose files are there, and no "
            "others.",
            table=str(name),
            path=self.root(name),
        )

    def _check_no_view(self, name: TableName) -> None:
        if self.rows.object(VIEWS, name.database, name.table) is not None:
            raise name_of_view(name)


@dataclass(frozen=True)
class SqlDefinitions:
    """Views and functions that an SQL database holds; see `Definitions`."""

    rows: SqlDatabase

    # views

    def views(self, database: str) -> list[str]:
        """Return the names of the views of a database, in order."""
        return self.rows.objects(VIEWS, database)

    def view(self, name: TableName) -> View | None:
        """Return a view; None: there is none."""
        text = self.rows.object(VIEWS, name.database, name.table)
        return None if text is None else view_of(str(name), text)

    def create_view(self, view: View) -> None:
        """Create a view."""
        name = _parts(view.name)
        with self.rows.lock(*name):
            self._check_no_table(name, f"cannot create view '{view.name}'")
            if not self.rows.add_object(VIEWS, *name, _json(view)):
                raise _taken("view", view.name)

    def replace_view(self, view: View) -> None:
        """Put a view in the place of another one."""
        with self.rows.lock(*_parts(view.name)):
            if not self.rows.change_object(VIEWS, *_parts(view.name), _json(view)):
                raise _missing("view", view.name)

    def alter_view(self, name: TableName, changes: Sequence[Any]) -> None:
        """Make changes."""
        self._alter(VIEWS, "view", name, self.view, changes)

    def drop_view(self, name: TableName) -> bool:
        """Remove a view."""
        with self.rows.lock(name.database, name.table):
            return self.rows.remove_object(VIEWS, name.database, name.table)

    def rename_view(self, old: TableName, new: TableName) -> None:
        """Rename a view."""
        with self.rows.locks((old.database, old.table), (new.database, new.table)):
            self._check_no_table((new.database, new.table), f"cannot rename view '{old}' to '{new}'")
            renamed = self.rows.rename_object(VIEWS, (old.database, old.table), (new.database, new.table))
        if renamed is None:
            raise _taken("view", str(new))
        if not renamed:
            raise _missing("view", str(old))

    # functions

    def functions(self, database: str) -> list[str]:
        """Return the names of the functions of a database, in order."""
        return self.rows.objects(FUNCTIONS, database)

    def function(self, name: TableName) -> Function | None:
        """Return a function; None: there is none."""
        text = self.rows.object(FUNCTIONS, name.database, name.table)
        return None if text is None else function_of(str(name), text)

    def create_function(self, function: Function) -> None:
        """Create a function."""
        if not self.rows.add_object(FUNCTIONS, *_parts(function.name), _json(function)):
            raise _taken("function", function.name)

    def replace_function(self, function: Function) -> None:
        """Put a function in the place of another one."""
        if not self.rows.change_object(FUNCTIONS, *_parts(function.name), _json(function)):
            raise _missing("function", function.name)

    def alter_function(self, name: TableName, changes: Sequence[Any]) -> None:
        """Make changes."""
        self._alter(FUNCTIONS, "function", name, self.function, changes)

    def drop_function(self, name: TableName) -> bool:
        """Remove a function."""
        return self.rows.remove_object(FUNCTIONS, name.database, name.table)

    # inside

    def _alter(
        self, of: Any, what: str, name: TableName, read: Callable[[TableName], T | None], changes: Sequence[Any]
    ) -> None:
        with self.rows.lock(name.database, name.table):
            found = read(name)
            changed = found is not None and self.rows.change_object(
                of, name.database, name.table, _json(found.altered(changes))
            )
        if not changed:
            raise _missing(what, str(name))

    def _check_no_table(self, name: tuple[str, str], what: str) -> None:
        if self.rows.has_table(*name):
            full = ".".join(name)
            raise AlreadyExistsError(
                f"{what}: there is a table '{full}', and tables and views share their names. Choose another name.",
                table=full,
            )


def _no_check() -> None:
    """Stand for the check of a lock that nobody takes."""


def _parts(name: str) -> tuple[str, str]:
    database, _, own = name.partition(".")
    return database, own


def _json(value: View | Function) -> str:
    return json.dumps(value.to_json(), ensure_ascii=False)


def _taken(what: str, name: str) -> AlreadyExistsError:
    return AlreadyExistsError(f"{what} '{name}' already exists. Choose another name, or replace it.", **{what: name})


def _missing(what: str, name: str) -> NotFoundError:
    return NotFoundError(
        f"there is no {what} '{name}': it was dropped or renamed. Nothing was changed.", **{what: name}
    )


def _properties(schema: TableSchema) -> Mapping[str, str]:
    """Return the options of a table, and its keys as options, as other engines note them."""
    named = {
        "primary-key": ",".join(schema.primary_keys),
        "partition": ",".join(schema.partition_keys),
        "bucket-key": ",".join(schema.bucket_key),
    }
    return {**dict(schema.options), **{key: text for key, text in named.items() if text}}

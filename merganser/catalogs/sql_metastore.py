"""The metastore of an SQL database: rows say which tables there are, and directories hold them.

Tables lie in the warehouse as those of the file system catalog do. A table exists when it has a row. Files come before
the row and go after it, so that a process that stops in between leaves files without a row, which nobody takes for a
table: a new table of that name is refused, and `drop_table` removes them.

Each schema and snapshot passes by a guard, which holds the lock of the table while it is created (`lock.enabled`), as
other engines do, and notes the options of a new schema.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from merganser.catalogs.filesystem import FileSystem
from merganser.catalogs.names import TableName
from merganser.catalogs.sql_database import SqlDatabase
from merganser.errors import AlreadyExistsError, MerganserError
from merganser.meta.schemas import SchemaStore
from merganser.schema.table_schema import TableSchema, from_json
from merganser.storage.env import Env
from merganser.storage.paths import TablePaths
from merganser.storage.protocol import Storage

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
        with self.database.lock(database, table) if self.locks else contextlib.nullcontext():
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
        """Create a database."""
        self.files.create_database(name)
        self.rows.add_database(name, self.files.directory(name))

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
        """Refuse a name if files lie in its directory."""
        if self.files.has_table(name):
            raise AlreadyExistsError(
                f"cannot create table '{name}': the catalog at '{self.rows}' has no such table, and files of one are "
                f"at '{self.root(name)}'. Nothing was changed. catalog.drop_table('{name}') removes them for good. "
                "To keep the rows, clone them to another name first, by that path: "
                "catalog.clone(merganser.table(path), name).",
                table=str(name),
                path=self.root(name),
            )
        self.files.check_free(name)

    def create_table(self, name: TableName, schema: TableSchema) -> TableSchema:
        """Create a table without rows."""
        made = self.files.create_table(name, schema)
        self.rows.add_table(name.database, name.table)
        return made

    def add_table(self, name: TableName) -> None:
        """Note a table whose files were moved to its directory."""
        self.rows.add_table(name.database, name.table)
        newest = SchemaStore(TablePaths(self.root(name)), self.env).latest()
        if newest is not None:
            self.rows.note_options(name.database, name.table, _properties(newest))

    def drop_table(self, name: TableName) -> bool:
        """Remove a table and its files, or files without a row."""
        noted = self.rows.remove_table(name.database, name.table)
        return self.files.drop_table(name) or noted

    def rename_table(self, old: TableName, new: TableName) -> None:
        """Rename a table and its directory."""
        self.files.rename_table(old, new)
        self.rows.rename_table((old.database, old.table), (new.database, new.table))


def _properties(schema: TableSchema) -> Mapping[str, str]:
    """Return the options of a table, and its keys as options, as other engines note them."""
    named = {
        "primary-key": ",".join(schema.primary_keys),
        "partition": ",".join(schema.partition_keys),
        "bucket-key": ",".join(schema.bucket_key),
    }
    return {**dict(schema.options), **{key: text for key, text in named.items() if text}}

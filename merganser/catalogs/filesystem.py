"""The metastore of a file system: databases are directories `<name>.db`, tables are directories below them.

A table exists when it has a schema file. Creating a table means creating `schema-0`; of several processes that try,
exactly one succeeds. A drop first renames the schema directory and then removes everything, so a half-dropped table
does not exist. On a local disk, the rename of a directory is one step. In an object store it is a copy, and half a copy
is never taken for a table (`storage.moving`).

Files that an unfinished drop leaves behind never become part of another table: the name is refused until `drop_table`
has removed them. A directory with other files is refused too, because dropping the table would remove them.
"""

from __future__ import annotations

import contextlib
from typing import Final

from merganser.catalogs.metastore import Repair
from merganser.catalogs.names import TableName
from merganser.errors import AlreadyExistsError, NotFoundError, StorageError, UnsupportedError
from merganser.meta.schemas import SchemaStore
from merganser.meta.snapshots import SnapshotStore
from merganser.scan.rows import counted
from merganser.schema.table_schema import TableSchema
from merganser.storage.env import Env
from merganser.storage.paths import DROPPED, TablePaths, join, of_table
from merganser.storage.protocol import Entries
from merganser.storage.retries import STORE
from merganser.values import dataclass

_SUFFIX: Final = ".db"
_MARKER: Final = ".merganser"
"""An object store has no empty directories, so this file marks a database without tables."""


@dataclass(frozen=True)
class FileSystem:
    """The directories of a warehouse; see `Metastore`. It creates nothing until the first database is created."""

    warehouse: str
    env: Env

    @property
    def definitions(self) -> None:
        """None: the format keeps views and functions in no file."""
        return None

    def env_at(self, root: str) -> Env:
        """Return `env`: one store holds all tables."""
        return self.env

    def check(self) -> None:
        """Look whether the warehouse can be read."""
        self.env.storage.list(self.warehouse)

    # databases

    def databases(self) -> list[str]:
        """Return the names of all databases, in order."""
        return sorted(
            e.name[: -len(_SUFFIX)]
            for e in self.env.storage.list(self.warehouse)
            if e.is_directory and e.name.endswith(_SUFFIX) and len(e.name) > len(_SUFFIX)
        )

    def has_database(self, name: str) -> bool:
        """Return whether there is a database."""
        return f"{name}{_SUFFIX}" in {e.name for e in self.env.storage.list(self.warehouse) if e.is_directory}

    def create_database(self, name: str) -> None:
        """Create a database. The file that makes its directory says by its content which caller has created it."""
        path, ours = join(self.directory(name), _MARKER), self.env.new_id().encode()
        STORE.run(lambda: self._mark(name, path, ours), StorageError, timing=self.env)

    def _mark(self, name: str, path: str, ours: bytes) -> None:
        """Create the file of a database. An attempt may come after one whose reply was lost."""
        storage = self.env.storage
        try:
            storage.create(path, ours)
        except UnsupportedError:  # the store promises no single winner
            storage.replace(path, ours)
        except (AlreadyExistsError, StorageError) as error:
            with contextlib.suppress(NotFoundError, StorageError):
                if storage.read(path) == ours:
                    return
            if isinstance(error, StorageError):
                raise
            raise AlreadyExistsError(f"database '{name}' already exists.", database=name) from None

    def strangers(self, name: str) -> list[str]:
        """Return the names of entries in the directory of a database that are not tables."""
        return sorted(e.name for e in self.env.storage.list(self.directory(name)) if not _of_ours(e.name))

    def drop_database(self, name: str) -> None:
        """Remove the directory of a database."""
        self.env.storage.delete_tree(self.directory(name))

    def directory(self, database: str) -> str:
        """Return the directory of a database."""
        return join(self.warehouse, database + _SUFFIX)

    # tables

    def tables(self, database: str) -> list[str]:
        """Return the names of the tables of a database, in order."""
        directory = self.directory(database)
        names = [e.name for e in self.env.storage.list(directory) if e.is_directory and not e.name.startswith(".")]
        return sorted(name for name in names if self._is_table(TablePaths(join(directory, name))))

    def root(self, name: TableName) -> str:
        """Return the directory of a table."""
        return join(self.directory(name.database), name.table)

    def has_table(self, name: TableName) -> bool:
        """Return whether there is a table."""
        return SchemaStore(self._paths(name), self.env).exists()

    def may_have_table(self, name: TableName) -> bool:
        """Return True: only its files say whether there is a table."""
        return True

    def create_table(self, name: TableName, schema: TableSchema) -> TableSchema:
        """Create a table without rows."""
        paths = self._paths(name)
        store = SchemaStore(paths, self.env)
        made = store.create(schema)
        with contextlib.suppress(StorageError):
            if store.is_marked():  # another process moves a table here; after its mark it looks for our schema
                self.env.storage.delete([paths.schema(0)])
                raise _not_free(name, paths, ["files of a table that another process is moving there"])
        return made

    def add_table(self, name: TableName) -> None:
        """Do nothing: a table with files is there."""

    def drop_table(self, name: TableName) -> bool:
        """Remove a table and its files, or what an unfinished drop has left."""
        paths = self._paths(name)
        store = SchemaStore(paths, self.env)
        if store.exists():
            self._forget(paths)
            try:
                # One rename of one directory: before it the table is whole, after it there is none.
                self.env.storage.move_tree(paths.schema_directory, join(paths.root, DROPPED + self.env.new_id()))
            except NotFoundError:
                pass  # another process drops it too
            except StorageError:
                if store.exists():
                    raise
        elif self._left(name, paths):
            self._forget(paths)
        else:
            return False
        self._remove(name, paths)
        return True

    def rename_table(self, old: TableName, new: TableName) -> None:
        """Rename the directory of a table."""
        source, target = self._paths(old), self._paths(new)
        self._forget(source)
        self._forget(target)
        left: StorageError | None = None
        try:
            self.env.storage.move_tree(source.root, target.root)
        except AlreadyExistsError:
            raise AlreadyExistsError(
                f"cannot rename '{old}' to '{new}': there are files that are not a table at '{target.root}'. "
                "Remove it, or choose another name.",
                path=target.root,
            ) from None
        except StorageError as error:
            if not SchemaStore(target, self.env).exists() or SchemaStore(source, self.env).exists():
                raise
            left = error
        if left is not None and self.env.storage.list(source.root):
            raise StorageError(
                f"'{old}' is now '{new}', but not all that lies at '{source.root}' could be removed: {left} "
                f"catalog.drop_table('{old}', if_exists=True) removes the rest. Compare the snapshots of both "
                "places first, if another process may have written while the table was renamed.",
                path=source.root,
            ) from left

    def check_free(self, name: TableName) -> None:
        """Refuse a directory with files: they would become part of the new table, and a drop would remove them.

        Empty directories are accepted, and files of writers that no snapshot names.

        Raises:
            AlreadyExistsError: there are files; the message says how to remove them.
        """
        paths = self._paths(name)
        try:
            found = self.env.storage.list(paths.root)
        except StorageError as error:
            raise StorageError(
                f"cannot create table '{name}': {error} Nothing was changed.", table=str(name), path=paths.root
            ) from error
        if not found:
            return
        if left := self._left(name, paths):
            raise _not_free(name, paths, left)
        if (stranger := self._stranger(paths.root, found)) is not None:
            raise AlreadyExistsError(
                f"cannot create table '{name}': there are files that are not a table at '{paths.root}' (first: "
                f"'{stranger}'). Nothing was changed. Remove it, or choose another name.",
                table=str(name),
                path=paths.root,
            )

    def repair(self, database: str | None = None, table: str | None = None, *, dry_run: bool = False) -> list[Repair]:
        """Return nothing: the files are the names."""
        return []

    # inside

    def _paths(self, name: TableName) -> TablePaths:
        return TablePaths(self.root(name))

    def _is_table(self, paths: TablePaths) -> bool:
        try:
            return SchemaStore(paths, self.env).exists()
        except StorageError:
            if self.env.storage.exists(paths.schema_directory):
                return False  # a file of this name: the directory is not ours
            raise

    def _listed(self, directory: str) -> Entries:
        """Return the entries of a directory, or none if it is a file."""
        try:
            return self.env.storage.list(directory)
        except StorageError:
            if self.env.storage.exists(directory):
                return []
            raise

    def _stranger(self, root: str, found: Entries, inside: str = "") -> str | None:
        """Return a file below a directory that no writer of tables creates, or None.

        Args:
            found: the entries of the directory `inside` of `root`.
        """
        for entry in found:
            below = f"{inside}{entry.name}"
            if not entry.is_directory:
                if not of_table(below):
                    return below
            elif (first := self._stranger(root, self.env.storage.list(join(root, below)), f"{below}/")) is not None:
                return first
        return None

    def _left(self, name: TableName, paths: TablePaths) -> list[str]:
        """Return a description of files that a removed table has left behind."""
        left = []
        snapshots = SnapshotStore(paths, self.env, str(name)).ids()
        dropped = any(entry.name.startswith(DROPPED) for entry in self._listed(paths.root))
        # The new table would take over metadata files, which are read by name. No snapshot names the data files.
        named = any(self._listed(join(paths.root, kind)) for kind in ("tag", "branch", "consumer", "changelog"))
        taken_away = dropped or named or SchemaStore(paths, self.env).is_marked()
        if snapshots and not taken_away:
            left.append(
                f"{counted(len(snapshots), 'snapshot')} without a schema. If its schema files were lost, restore "
                f"'{paths.schema(0)}' and later ones from a backup, and the table exists again. Otherwise it was "
                "dropped or renamed, which did not finish, or a writer went on"
            )
        elif snapshots or taken_away:
            what = f"{counted(len(snapshots), 'snapshot')} and other files" if snapshots else "some of the files"
            left.append(f"{what} of a table that was dropped or renamed (which did not finish, or a writer went on)")
        return left

    def _remove(self, name: TableName, paths: TablePaths) -> None:
        """Remove the files of a table that is dropped.

        Its renamed schemas are removed last. Until then they show which table the remaining files belong to.
        """
        try:
            try:
                self._remove_all(paths)
            except StorageError:
                self._remove_all(paths)
        except StorageError as error:
            raise StorageError(
                f"table '{name}' is gone, but not all of its files could be removed: {error} "
                f"catalog.drop_table('{name}', if_exists=True) removes the rest.",
                path=paths.root,
            ) from error

    def _remove_all(self, paths: TablePaths) -> None:
        found = [entry for entry in self._listed(paths.root) if not entry.name.startswith(DROPPED)]
        for entry in found:
            if entry.is_directory:
                self.env.storage.delete_tree(join(paths.root, entry.name))
        self.env.storage.delete([join(paths.root, entry.name) for entry in found if not entry.is_directory])
        self.env.storage.delete_tree(paths.root)

    def _forget(self, paths: TablePaths) -> None:
        self.env.cache.drop_prefix(paths.root)


def _of_ours(name: str) -> bool:
    """Return whether this file marks a database, or is left from an interrupted removal."""
    return name == _MARKER or (name.startswith(".") and name.endswith(".tmp"))


def _not_free(name: TableName, paths: TablePaths, left: list[str]) -> AlreadyExistsError:
    return AlreadyExistsError(
        f"cannot create table '{name}': '{paths.root}' still holds {' and '.join(left)}. "
        f"catalog.drop_table('{name}') removes all of it for good.",
        table=str(name),
        path=paths.root,
    )

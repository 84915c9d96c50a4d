"""The metastore of a REST catalog: a server says which tables there are and where they lie, and makes each commit.

Files are read and written as in other catalogs. A snapshot and a schema of a table are not created as files: the server
is asked to make them (`RestGuard`). If its reply is lost, the file says whether it was made, and by whom.

The protocol names the schema that is wanted by changes, and not the schema that they are changes of. Servers of
merganser take its id in one more field (`BASE_SCHEMA`), and refuse changes of another schema: a request that arrives
late, such as one to set the number of buckets, changes nothing. Other servers ignore the field. Of two clients that
alter a table there in the same moment, the later one may find that its changes were made on top of the other's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any, Final

from merganser.catalogs.definitions import name_of_view
from merganser.catalogs.metastore import Repair
from merganser.catalogs.names import TableName
from merganser.catalogs.rest_client import RestClient
from merganser.catalogs.rest_definitions import RestDefinitions
from merganser.catalogs.rest_schema import BASE_SCHEMA, READ, changes_between, is_alike, schema_json
from merganser.catalogs.rest_tokens import TableTokens, storage_with_tokens
from merganser.errors import (
    AlreadyExistsError,
    CommitUnknownError,
    ConflictError,
    NotFoundError,
    StorageError,
    UnsupportedError,
)
from merganser.meta.refs import MAIN
from merganser.meta.schemas import SchemaStore
from merganser.meta.seal import JSON_SEAL
from merganser.meta.snapshot import Snapshot, snapshot_from_json
from merganser.meta.table_def import TableDef
from merganser.meta.table_state import MetaReader
from merganser.schema.table_schema import TableSchema, from_json
from merganser.storage.env import Env
from merganser.storage.guarded import GuardedStorage, ReadOnlyStorage, check_may_change, files_of
from merganser.storage.open import path_of, storage_for
from merganser.storage.paths import TablePaths, join
from merganser.storage.protocol import Storage
from merganser.values import dataclass

_DECIDES: Final = re.compile(r"(.+?)/(?:branch/branch-([^/]+)/)?(snapshot|schema)/\3-(\d+)")
"""The file that makes a commit or an alter: directory of the table, branch, kind and number."""


@dataclass(frozen=True, slots=True)
class Named:
    """What a server calls the table in a directory.

    Attributes:
        id: of the table, which one that is created again under its name does not have; None: the server says none.
    """

    database: str
    table: str
    id: str | None


@dataclass(frozen=True)
class RestGuard:
    """Asks a server to make snapshots and schemas; see `Guard`.

    Attributes:
        tables: by directory, the tables that this process has asked the server for.
        lost: paths of schemas that the server was asked for, and whose reply was lost.
    """

    client: RestClient
    tables: dict[str, Named] = field(default_factory=dict, compare=False, repr=False)
    lost: set[str] = field(default_factory=set, compare=False, repr=False)

    def create(self, files: Storage, path: str, data: bytes) -> None:
        """Create a file, or have the server make the snapshot or schema that it would be."""
        found = _DECIDES.fullmatch(path)
        named = self.tables.get(found[1]) if found else None
        if found is None or named is None:  # such as a table that is built aside
            files.create(path, data)
            return
        root, branch, kind, number = found.groups()
        name = named.table if branch is None else f"{named.table}$branch_{branch}"
        definition = _definition(Env(files, threads=1), root, branch or MAIN, f"{named.database}.{name}")
        if kind == "schema":
            self._alter(files, definition, named, name, from_json(data, path=path))
        elif not self._commit(files, definition, named, name, snapshot_from_json(data, path)):
            if files.exists(path):
                raise AlreadyExistsError(f"cannot create '{path}': another writer made snapshot {number}.", path=path)
            raise ConflictError(
                f"cannot commit snapshot {number} of '{definition.name}': its predecessor is no longer the newest "
                "snapshot, perhaps after a rollback. Nothing of this commit is visible. Repeat it.",
                table=definition.name,
            )

    def _commit(self, files: Storage, table: TableDef, named: Named, name: str, snapshot: Snapshot) -> bool:
        """Ask for a commit. Returns whether it was made; False: another one came first."""
        body = {
            "tableId": named.id if table.branch == MAIN else None,
            "baseSnapshotUuid": None,
            "snapshot": {key: value for key, value in json.loads(snapshot.to_json()).items() if key != JSON_SEAL},
            "statistics": statistics_of(table, Env(files, threads=1), snapshot),
        }
        reply = self.client.post("databases", named.database, "tables", name, "commit", body=body)
        return reply.get("success") is True

    def _alter(self, files: Storage, table: TableDef, named: Named, name: str, wanted: TableSchema) -> None:
        """Ask for the changes that make a schema of the newest one.

        Raises:
            AlreadyExistsError: another client has made this schema; nothing was changed.
            ConflictError: another client altered the table in the same moment; the changes were made as well.
            UnsupportedError: the protocol cannot say the change; nothing was changed.
        """
        store = SchemaStore(table.paths, Env(files, threads=1))
        path = table.paths.schema(wanted.id)
        if files.exists(path):
            if path in self.lost and is_alike(store.load(wanted.id, fresh=True), wanted):
                return
            raise AlreadyExistsError(f"cannot create '{path}': another writer made schema {wanted.id}.", path=path)
        changes = changes_between(store.load(wanted.id - 1), wanted, table.name)
        body = {"changes": changes, BASE_SCHEMA: wanted.id - 1}
        try:
            self.client.post("databases", named.database, "tables", name, body=body)
        except AlreadyExistsError as error:  # a conflict: with a schema that is there, or as the server says
            if files.exists(path):
                raise
            raise ConflictError(error.message, table=table.name) from error
        except StorageError as error:
            if error.context.get("changed") is False:
                raise
            self.lost.add(path)  # this one may come late, so a schema like it is ours from now on
            if not files.exists(path):
                raise
        made = store.load(wanted.id, fresh=True)
        if not is_alike(made, wanted):
            raise ConflictError(
                f"'{table.name}' was altered by others at the same time: schema {made.id} is theirs, or the server has "
                "made something else of the changes. Look at the table again before you repeat anything.",
                table=table.name,
            )


def guarded(files: Storage, guard: RestGuard, role: str | None) -> GuardedStorage:
    """Return the storage of a client, which refuses changes if the server says that the client only reads."""
    if role != READ:
        return GuardedStorage(files, guard)
    hint = "Open the catalog with a token of a client that writes"
    if guard.client.provider is None:
        hint = (
            "If the server was started with a token, set the options 'token.provider' to 'bear' and 'token' to it; "
            "a server without a token lets nobody change anything"
        )
    why = f"the catalog at '{guard.client.uri}' lets this client only read. Nothing was changed. {hint}."
    return ReadOnlyStorage(files, guard, why)


@dataclass(frozen=True)
class RestMetastore:
    """Databases and tables that a REST server names; see `Metastore`.

    Attributes:
        place: the directory in which databases lie, or the address of the server if it had no database.
        env: of that directory.
        options: of the catalog, how stores are reached.
        tokens: whether the server is asked for the keys of each table.
    """

    client: RestClient
    guard: RestGuard
    place: str
    env: Env = field(repr=False)
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    tokens: bool = False
    _envs: dict[Storage, Env] = field(default_factory=dict, compare=False, repr=False)

    @property
    def warehouse(self) -> str:
        """The directory below which tables lie."""
        return self.place

    @property
    def definitions(self) -> RestDefinitions:
        """Views and functions."""
        return RestDefinitions(self.client)

    def env_at(self, root: str) -> Env:
        """Return what reads and commits to the table in a directory.

        Tables in the store of the catalog share its caches. With `tokens`, each table has a store with keys of its own.

        Raises:
            StorageError: the server gives no keys.
        """
        named = self.guard.tables.get(root)
        if self.tokens and named is not None:
            storage = storage_with_tokens(root, self.options, TableTokens(self.client, named.database, named.table))
        else:
            storage, _ = storage_for(root, self.options)
        if storage == files_of(self.env.storage):
            return self.env
        found = self._envs.get(storage)
        if found is None:
            guarded = self.env.storage
            assert isinstance(guarded, GuardedStorage)
            found = Env(replace(guarded, files=storage), self.env.clock, cache=self.env.cache)
            self._envs[storage] = found
        return found

    def check(self) -> None:
        """Do nothing: the server has answered."""

    # databases

    def databases(self) -> list[str]:
        """Return the names of all databases, in order."""
        return self.client.pages("databases", "databases")

    def has_database(self, name: str) -> bool:
        """Return whether there is a database."""
        return self._found("databases", name) is not None

    def create_database(self, name: str) -> None:
        """Create a database."""
        try:
            self.client.post("databases", body={"name": name, "options": {}})
        except StorageError as error:
            if error.context.get("changed") is False or not self.has_database(name):
                raise

    def strangers(self, name: str) -> list[str]:
        """Return nothing: the server knows what its directories hold."""
        return []

    def drop_database(self, name: str) -> None:
        """Remove a database."""
        self.client.delete("databases", name)

    # tables

    def tables(self, database: str) -> list[str]:
        """Return the names of the tables of a database, in order."""
        return self.client.pages("tables", "databases", database, "tables")

    def root(self, name: TableName) -> str:
        """Return the directory of a table; if there is none, where one would lie in the directory of its database."""
        found = self._found("databases", name.database, "tables", name.table)
        if found is None:
            location = (self._found("databases", name.database) or {}).get("location")
            return join(self._path(str(location)) if location else join(self.place, f"{name.database}.db"), name.table)
        root = self._path(str(found["path"]))
        self.guard.tables[root] = Named(name.database, name.table, found.get("id"))
        return root

    def has_table(self, name: TableName) -> bool:
        """Return whether there is a table."""
        return self._found("databases", name.database, "tables", name.table) is not None

    def may_have_table(self, name: TableName) -> bool:
        """Return True: `root` asks the server anyway."""
        return True

    def check_free(self, name: TableName) -> None:
        """Refuse the name of a view, before files are written. The server refuses a directory that is not free.

        Raises:
            UnsupportedError: the client only reads. Listeners of new tables are not told of this one.
        """
        check_may_change(self.env.storage, f"cannot create '{name}'")
        if self.definitions.view(name) is not None:
            raise name_of_view(name)

    def create_table(self, name: TableName, schema: TableSchema) -> TableSchema:
        """Create a table without rows."""
        body = {"identifier": _identifier(name), "schema": schema_json(schema)}
        try:
            self.client.post("databases", name.database, "tables", body=body)
        except StorageError as error:
            if error.context.get("changed") is False:
                raise
            raise CommitUnknownError(
                f"cannot tell whether table '{name}' was created: {error.message}", table=str(name)
            ) from error
        root = self.root(name)
        made = SchemaStore(TablePaths(root), self.env_at(root)).latest()
        if made is None:
            raise StorageError(
                f"the server at '{self.client.uri}' has created table '{name}', and its schema is not in the "
                "directory that it names. Check whether this machine reaches that directory.",
                path=root,
            )
        return made

    def add_table(self, name: TableName) -> None:
        """Tell the server of a table whose files were moved to its directory."""
        body = {"identifier": _identifier(name), "path": self.root(name)}
        try:
            self.client.post("databases", name.database, "register", body=body)
        except (UnsupportedError, StorageError) as error:
            raise type(error)(
                f"the files of '{name}' are at '{body['path']}', and the server does not know the table: "
                f"{error.message}"
            ) from error

    def drop_table(self, name: TableName) -> bool:
        """Remove a table and its files."""
        try:
            self.client.delete("databases", name.database, "tables", name.table)
        except NotFoundError:
            return False
        return True

    def rename_table(self, old: TableName, new: TableName) -> None:
        """Rename a table."""
        self.client.post("tables", "rename", body={"source": _identifier(old), "destination": _identifier(new)})

    def repair(self, database: str | None = None, table: str | None = None, *, dry_run: bool = False) -> list[Repair]:
        """Refuse: the server has the names."""
        raise UnsupportedError(
            f"cannot repair the catalog at '{self.client.uri}': the protocol of REST catalogs has no such request. "
            "Nothing was changed. Open the catalog that the server serves, and repair that one."
        )

    # inside

    def _found(self, *path: str) -> dict[str, Any] | None:
        """Return a resource; None: there is none."""
        try:
            found: dict[str, Any] = self.client.get(*path)
        except NotFoundError:
            return None
        return found

    def _path(self, text: str) -> str:
        """Return a path of the server as that of a file."""
        return path_of(text)


def _identifier(name: TableName) -> dict[str, str]:
    return {"database": name.database, "object": name.table}


def _definition(env: Env, root: str, branch: str, name: str) -> TableDef:
    """Return a table as its newest schema has it."""
    paths = TablePaths(root) if branch == MAIN else TablePaths(root).of_branch(branch)
    newest = SchemaStore(paths, env).latest()
    if newest is None:
        raise NotFoundError(f"table '{name}' no longer exists: it was dropped or renamed.", table=name)
    return TableDef(name=name, path=root, schema=newest, options=newest.options, branch=branch)


def statistics_of(table: TableDef, env: Env, snapshot: Snapshot) -> list[Mapping[str, Any]]:
    """Return what a commit did to each partition: rows, bytes and files that it added less those that it removed."""
    found: dict[bytes, list[int]] = {}
    for entry in MetaReader(table.paths, env, table.name).delta(snapshot):
        sums = found.setdefault(entry.partition, [0, 0, 0, 0, entry.total_buckets])
        sign = 1 if entry.kind == 0 else -1
        sums[0] += sign * entry.file.row_count
        sums[1] += sign * entry.file.size
        sums[2] += sign
        sums[3] = max(sums[3], entry.file.creation_time_ms or 0)
        sums[4] = entry.total_buckets
    names = ("recordCount", "fileSizeInBytes", "fileCount", "lastFileCreationTime", "totalBuckets")
    return [
        {"spec": table.partition_texts(partition), **dict(zip(names, sums, strict=True))}
        for partition, sums in found.items()
    ]

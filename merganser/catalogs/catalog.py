"""The catalog: what users call to create, find and drop databases and tables. A metastore knows where they lie."""

from __future__ import annotations

import builtins
import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from merganser.catalogs.definition_verbs import DefinitionVerbs
from merganser.catalogs.listeners import TableListener, announced, announced_rename, listeners_of
from merganser.catalogs.metastore import Metastore, Repair
from merganser.catalogs.names import SYSTEM, TableName, check_name, parse_table_name
from merganser.catalogs.system import TABLES, catalog_table
from merganser.changes import Change
from merganser.errors import (
    AlreadyExistsError,
    InvalidInputError,
    NotFoundError,
    StorageError,
    UnsupportedError,
    a_type,
    check_flags,
)
from merganser.handle.table import Table, open_table, table_of
from merganser.meta.refs import MAIN
from merganser.meta.schemas import SchemaStore
from merganser.meta.snapshots import SnapshotStore
from merganser.options.registry import did_you_mean
from merganser.options.write import PARTITION_DEFAULT_NAME, PARTITION_LEGACY_NAME, PATH
from merganser.rules.checks import check_type
from merganser.schema.table_schema import TableSchema
from merganser.schema.types import Field
from merganser.storage.env import Env
from merganser.storage.open import storage_for
from merganser.storage.paths import TablePaths
from merganser.values import dataclass

if TYPE_CHECKING:
    from merganser.rules.create import SchemaLike
    from merganser.shards.verbs import Stream
    from merganser.sql.session import Session


_DATABASES_SHOWN: Final = 20
"""Maximum number of databases whose tables a notebook shows."""
_LISTING_SECONDS: Final = 2.0
"""Seconds after which a notebook lists the tables of no further database. Each table costs a request."""


@dataclass(frozen=True)
class Catalog(DefinitionVerbs):
    """Databases, tables, views and functions. It creates nothing until the first database is created.

    Attributes:
        metastore: knows which there are, and where they lie.
        table_defaults: options of new tables that do not set them.
        listeners: the text of the option `catalog.listeners`.
        _client: options `kafka.*` for the client of the log of each table; they are stored nowhere.
        _takes_topics: whether a new table may name the topic of its log. A server takes that of its client, which has
            made it.
    """

    metastore: Metastore
    table_defaults: Mapping[str, Any] = field(default_factory=dict)
    listeners: str | None = None
    _client: Mapping[str, str] = field(default_factory=dict)
    _takes_topics: bool = False

    @property
    def warehouse(self) -> str:
        """The directory below which new tables are created."""
        return self.metastore.warehouse

    @property
    def env(self) -> Env:
        """Reads and commits to the tables."""
        return self.metastore.env

    def __repr__(self) -> str:
        return f"Catalog({self.warehouse!r})"

    def _repr_html_(self) -> str:
        """Return the databases and their tables, for notebooks."""
        from merganser.html.tables import shown

        return shown(repr(self), self._parts)

    def _parts(self) -> Iterator[str]:
        from merganser.html.tables import caption_html, note_html, rows_html

        databases = self.list_databases()
        begun = self.env.seconds()
        held: builtins.list[builtins.list[str]] = []
        for name in databases[:_DATABASES_SHOWN]:
            if self.env.seconds() - begun > _LISTING_SECONDS:
                break
            held.append(self.list_tables(name))
        columns = {
            "database": databases[: len(held)],
            "tables": [len(names) for names in held],
            "names": [", ".join(names) for names in held],
        }
        yield caption_html(f"catalog {self.warehouse}")
        yield rows_html(pa.table(columns)) if databases else note_html("no databases yet")
        if left := databases[len(held) :]:
            first = ", ".join(left[:_DATABASES_SHOWN])
            yield note_html(f"{len(left):,} more databases: {first}{', ...' if len(left) > _DATABASES_SHOWN else ''}")

    if not TYPE_CHECKING:  # a wrong name is to be found

        def __getattr__(self, name: str) -> Any:
            from merganser.edit.other_names import OF_CATALOG, no_method

            raise no_method(self, name, OF_CATALOG)

    def __dir__(self) -> list[str]:
        """Return what completion and messages offer: what the docs explain."""
        return sorted({*super().__dir__()} - {"creating", "listeners", "metastore"})

    # SQL

    def sql(self, text: str, parameters: Mapping[str, Any] | None = None) -> pa.Table:
        """Run SQL statements, and return the rows of the last one; see `merganser.sql.session.Session.sql`.

        What USE and SET say holds for later calls of this catalog object. Use `session` for a state of its own.
        """
        return self._session.sql(text, parameters)

    def session(self) -> Session:
        """Return a new SQL session over the catalog."""
        from merganser.sql.session import Session

        return Session(self)

    @cached_property
    def _session(self) -> Session:
        return self.session()

    # databases

    def create_database(self, name: str, if_not_exists: bool = False) -> None:
        """Create a database.

        Raises:
            AlreadyExistsError: a database with this name exists.
        """
        check_name(name, what="database")
        check_flags(f"cannot create database '{name}'", if_not_exists=if_not_exists)
        if name == SYSTEM:
            raise InvalidInputError(
                f"cannot create the database '{name}': it is that of the system tables of the catalog, such as "
                f"{name}.tables. Choose another name.",
                database=name,
            )
        with contextlib.suppress(AlreadyExistsError):
            if not self.metastore.has_database(name):
                self.metastore.create_database(name)
                return
        if not if_not_exists:
            raise AlreadyExistsError(
                f"database '{name}' already exists. Choose another name, or pass if_not_exists=True.", database=name
            )

    def drop_database(self, name: str, if_exists: bool = False, cascade: bool = False) -> None:
        """Remove a database.

        Args:
            cascade: remove its tables, views and functions too; otherwise it must be empty.

        Raises:
            NotFoundError: the database does not exist.
            InvalidInputError: it has tables, and cascade is off. Or a listener refused a table: tables before it, by
                name, are gone, and the others and the database stay.
        """
        from merganser.scan.rows import counted

        check_name(name, what="database")
        check_flags(f"cannot drop database '{name}'", if_exists=if_exists, cascade=cascade)
        if not self.metastore.has_database(name):
            if if_exists:
                return
            raise self._no_database(name)
        tables = self.list_tables(name)
        if tables and not cascade:
            raise InvalidInputError(
                f"cannot drop database '{name}': it has {counted(len(tables), 'table')} (first: '{tables[0]}'). Drop "
                "them first, or pass cascade=True.",
                database=name,
            )
        if not cascade:
            inside = self.metastore.strangers(name)
            if inside:
                raise InvalidInputError(
                    f"cannot drop database '{name}': its directory holds {len(inside)} entries that are not tables "
                    "(first: "
                    f"'{inside[0]}'). Remove them first, or pass cascade=True to remove everything.",
                    database=name,
                )
        for kind, listed in () if cascade else (("view", self.list_views), ("function", self.list_functions)):
            if names := listed(name):
                raise InvalidInputError(
                    f"cannot drop database '{name}': it has {counted(len(names), kind)} (first: '{names[0]}'). Drop "
                    "them first, or pass cascade=True.",
                    database=name,
                )
        for table in tables:
            self.drop_table(f"{name}.{table}")
        self.metastore.drop_database(name)

    def list_databases(self) -> builtins.list[str]:
        """Return the names of all databases, in order."""
        return self.metastore.databases()

    # tables

    def create_table(
        self,
        name: str,
        schema: SchemaLike,
        primary_key: Sequence[str] = (),
        partition_by: Sequence[str] = (),
        options: Mapping[str, Any] | None = None,
        comment: str | None = None,
        if_not_exists: bool = False,
    ) -> Table:
        """Create a table.

        Args:
            name: `database.table`.
            schema: text such as "id BIGINT, name STRING, PRIMARY KEY (id)", column -> type text, an Arrow schema, or a
                Spark schema.
            primary_key: columns that identify a row; without them, the table is an append table.
            partition_by: partition columns, outermost directory first.
            options: table options; misspelt ones are refused.
            comment: a description of the table.
            if_not_exists: if the table exists, return it instead of raising an error.

        Raises:
            NotFoundError: the database does not exist.
            AlreadyExistsError: a table with this name exists, or its directory holds other files.
            InvalidInputError: the definition is invalid; the message names the column or option.
            UnsupportedError: a feature that this version does not have, or a type of table that stores no rows.
            StorageError: the store failed; nothing was created.
            CommitUnknownError: the store lost the reply; check whether the table exists.
        """
        parsed = self._plain_name(name)
        check_flags(f"cannot create '{parsed}'", if_not_exists=if_not_exists)
        self._require_database(parsed.database)
        made = self._defined(parsed, schema, primary_key, partition_by, options, comment)
        if self.metastore.has_table(parsed):
            if if_not_exists:
                return self._opened(parsed)
            raise _exists(parsed)
        _check_kept(made, parsed)
        self.metastore.check_free(parsed)
        try:
            with announced(self._listeners, str(parsed), made) as made:
                made = self.metastore.create_table(parsed, made)
        except AlreadyExistsError:
            if if_not_exists and self.metastore.has_table(parsed):
                return self._opened(parsed)
            raise
        root = self.metastore.root(parsed)
        return table_of(made, root, self.metastore.env_at(root), name=str(parsed), options=self._client)

    @contextlib.contextmanager
    def creating(
        self,
        name: str,
        schema: SchemaLike,
        primary_key: Sequence[str] = (),
        partition_by: Sequence[str] = (),
        options: Mapping[str, Any] | None = None,
        comment: str | None = None,
    ) -> Iterator[Table]:
        """Give a new table that nobody else sees. After the `with` block it is there with the rows written inside.

        After an error in the block there is no table. An object store has no rename, so the files of the table are
        copied at the end of the block, inside of the store.

        Args:
            name, schema, primary_key, partition_by, options, comment: see `create_table`.

        Raises:
            NotFoundError, AlreadyExistsError, InvalidInputError, UnsupportedError: see `create_table`.
            StorageError: the store failed; there is no such table.
        """
        from merganser.migrate.build import place

        parsed = self._plain_name(name)
        root = self._unused(parsed).root
        made = self._defined(parsed, schema, primary_key, partition_by, options, comment)
        _check_kept(made, parsed)
        with announced(self._listeners, str(parsed), made) as made:
            env = self.metastore.env_at(root)
            with place(env, root, str(parsed)) as aside:
                SchemaStore(TablePaths(aside), env).create(made)
                try:
                    yield table_of(made, aside, env, name=str(parsed), options=self._client)
                except Exception:  # `place` removes what an error of merganser leaves
                    with contextlib.suppress(StorageError):
                        env.storage.delete_tree(aside)
                    raise
            self.metastore.add_table(parsed)

    def table(self, name: str) -> Table | Any:
        """Return a table. A name `database.table$name` returns a branch, a view or a system table of it.

        Returns:
            A `Table` for a name without `$`; a `TableView` for `table$ro`; else a `SystemTable`. A `CatalogTable` for
            the system tables of the catalog, such as `sys.tables`. The annotation says `Table | Any`, because the kind
            depends on the text of the name: with a union, type checkers would refuse `catalog.table("a.b").write(...)`.

        Raises:
            NotFoundError: the database or the table does not exist.
        """
        from merganser.handle.system_table import system_handle

        parsed = parse_table_name(name)
        if parsed.database == SYSTEM and not self.metastore.has_database(SYSTEM):
            return catalog_table(self, name.partition(".")[2])
        found = self._opened(parsed)  # whether there is a database is asked if there is no table
        return found if parsed.system is None else system_handle(found, parsed.system)

    def list_tables(self, database: str) -> builtins.list[str]:
        """Return the names of the tables of a database, in order; those of `sys` are system tables of the catalog."""
        check_name(database, what="database")
        if database == SYSTEM and not self.metastore.has_database(SYSTEM):
            return sorted(TABLES)
        self._require_database(database)
        return self.metastore.tables(database)

    def streams(self, table: str | None = None) -> tuple[Stream, ...]:
        """Return the shard streams that tables keep, by the names of the tables.

        Args:
            table: `database.table`; None: all tables of the warehouse.

        Raises:
            NotFoundError: there is no such table.
        """
        from merganser.shards.verbs import stream_in

        if table is not None:
            names = [str(self._plain_name(table))]
        else:
            names = [f"{database}.{name}" for database in self.list_databases() for name in self.list_tables(database)]
        opened = (self._opened(self._plain_name(name)) for name in names)
        found = (stream_in(each.definition, each.env) for each in opened)
        return tuple(stream for stream in found if stream is not None)

    def alter_table(self, name: str, changes: Iterable[Change]) -> Table:
        """Change columns, options and descriptions of a table in one step; see `Table.alter`.

        Args:
            name: `database.table`, or `database.table$branch_name` for a branch.
            changes: of `merganser.changes`, made one after the other.

        Raises:
            NotFoundError: the database or the table does not exist.
            InvalidInputError, ConflictError, UnsupportedError: see `Table.alter`; nothing was changed.
        """
        found = self.table(name)
        if not isinstance(found, Table):
            raise InvalidInputError(f"'{name}' is a view of a table, and has no columns of its own. Alter the table.")
        return found.alter(changes)

    def drop_table(self, name: str, if_exists: bool = False) -> None:
        """Remove a table and its files.

        Raises:
            NotFoundError: the table does not exist.
        """
        parsed = self._plain_name(name)
        check_flags(f"cannot drop '{parsed}'", if_exists=if_exists)
        if self.metastore.has_table(parsed) and (newest := self._newest(parsed)) is not None:
            for listener in self._listeners:
                listener.dropping(str(parsed), newest, dict(newest.options))
        if not self.metastore.drop_table(parsed) and not if_exists:
            self._require_database(parsed.database)
            raise self._no_table(parsed)

    def rename_table(self, name: str, new_name: str, no_writers: bool = False) -> None:
        """Rename a table. The new name may be in another database. The path of the table changes too.

        A local disk renames the directory in one step. An object store has no such step: each file is copied, and a
        commit that another process makes meanwhile could be lost. So it is refused there, unless nobody writes.

        Args:
            no_writers: the caller makes sure that no process writes to the table, compacts it or expires its snapshots
                until the call ends.

        Raises:
            NotFoundError: the table or the database does not exist.
            AlreadyExistsError: the new name is already in use.
            UnsupportedError: the store cannot rename in one step, and `no_writers` is false; nothing was changed.
        """
        old, new = self._plain_name(name), self._plain_name(new_name)
        check_flags(f"cannot rename '{old}' to '{new}'", no_writers=no_writers)
        schema = self._newest(old) if self.metastore.may_have_table(old) else None
        if schema is None:
            self._require_database(old.database)
            raise self._no_table(old)
        self._require_database(new.database)
        if self.metastore.has_table(new):
            raise _exists(new)
        self.metastore.check_free(new)
        if not (no_writers or self.env.storage.moves_at_once):
            raise UnsupportedError(
                f"cannot rename '{old}' to '{new}': the store behind '{self.warehouse}' copies a table file by file, "
                "and a commit that another process makes meanwhile could be lost. Nothing was changed. Stop all "
                "writers, and pass no_writers=True (merganser rename --no-writers). Or make "
                f"catalog.clone('{old}', '{new}'), let writers go on there, and drop '{old}' later: a clone has the "
                "newest state, without older ones.",
                table=str(old),
                path=self.metastore.root(old),
            )
        with announced_rename(self._listeners, str(old), str(new), schema):
            self.metastore.rename_table(old, new)

    def repair(self, name: str | None = None, dry_run: bool = False) -> tuple[Repair, ...]:
        """Let a catalog in an SQL database name the tables whose files are in the warehouse, and no others.

        A process that is killed while it creates, renames or drops a table leaves files without a row, or a row without
        files. No file is changed. A table whose drop was killed at its very beginning is there again: drop it again.

        Args:
            name: a database, or `database.table`; None: all databases of the warehouse.
            dry_run: say what would be repaired, and change nothing.

        Returns:
            What did not fit. Empty for a catalog in directories, whose files are the names.

        Raises:
            UnsupportedError: the names are those of a REST server. Repair the catalog that it serves.
            AlreadyExistsError: files without a row have the name of a view; it is not repaired.
        """
        check_flags("cannot repair the catalog", dry_run=dry_run)
        if name is None:
            return tuple(self.metastore.repair(dry_run=dry_run))
        if isinstance(name, str) and "." not in name:
            return tuple(self.metastore.repair(check_name(name, what="database"), dry_run=dry_run))
        parsed = self._plain_name(name)
        return tuple(self.metastore.repair(parsed.database, parsed.table, dry_run=dry_run))

    def migrate(
        self,
        source: str | os.PathLike[str],
        name: str,
        how: str | None = None,
        types: Mapping[str, Any] | None = None,
        primary_key: Sequence[str] = (),
        options: Mapping[str, Any] | None = None,
        comment: str | None = None,
        store: Mapping[str, Any] | None = None,
        format: str | None = None,
    ) -> Table:
        """Make a table of a folder of Parquet, ORC or Avro files. The folder is only read.

        Directories `column=value` become partitions. The columns are those of the files; where files differ, a column
        gets a type that holds the values of all, and a column that files lack is null there. The table is there as a
        whole, or not at all; a call that was stopped can be repeated.

        Args:
            source: the folder, as a path or URL.
            name: `database.table`; there must be no such table.
            how: "link": the table gets the files under names of its own, without reading them. On a local disk they
                take no more room; an object store copies them inside of itself. "keep": the table names the files where
                they lie, so the folder has to stay; nothing is ever removed there. "copy": the rows are read, and
                written anew. None: "link", but "copy" where that is needed: for a table with a primary key, and for a
                folder in another store.
            types: by column, the type it shall have, such as {"dt": "STRING"}; it need not be complete.
            primary_key: columns that identify a row; without them, the table is an append table.
            options, comment: of the table.
            store: options of the store of the folder, such as {"s3.region": "eu-west-1"}, where it is another one.
            format: "parquet", "orc" or "avro": the format of all files, such as Hive's `000000_0`, whose names do not
                say it. None: the extensions say it.

        Raises:
            NotFoundError: the database does not exist, or the folder has no data file.
            AlreadyExistsError: a table with this name exists, or its directory holds other files.
            InvalidInputError: the files do not make one table; names the column and the file.
            UnsupportedError: the folder is a table of another format, or a column is stored as no table stores it.
            FormatError: a file is damaged.
            ConflictError: files were replaced while this call ran. In all these cases, nothing was changed.
            StorageError: the store failed; there is no such table.
        """
        from merganser.ingest.folders import HIVE_NULL
        from merganser.migrate.build import table_with_files, table_with_rows
        from merganser.migrate.folder import folder_of
        from merganser.migrate.plan import plan_of
        from merganser.migrate.source import checked_way, given_types, located

        parsed = self._plain_name(name)
        what = f"cannot migrate '{source}' to '{parsed}'"
        paths = self._unused(parsed)
        given = given_types(types, what)
        env = self.metastore.env_at(paths.root)
        storage, root = located(source, env.storage, self.warehouse, {k: str(v) for k, v in (store or {}).items()})
        keyed = bool(_names(primary_key, "primary_key"))
        how = checked_way(how, keyed=keyed, beside=storage is env.storage, what=what)
        null = str((options or {}).get(PARTITION_DEFAULT_NAME.key, HIVE_NULL))
        folder = folder_of(storage, env, root, form=format, null=null, what=what)

        def define(fields: Sequence[Field], partition_by: Sequence[str]) -> TableSchema:
            named = {PARTITION_DEFAULT_NAME.key: HIVE_NULL, PARTITION_LEGACY_NAME.key: "false"} if partition_by else {}
            made = self._defined(parsed, fields, primary_key, partition_by, {**named, **(options or {})}, comment)
            _check_kept(made, parsed)
            return made

        plan = plan_of(folder, env, define=define, types=given, copied=how == "copy", what=what)
        with announced(self._listeners, str(parsed), plan.schema) as made:
            added = dict(made.options)
            plan = replace(plan, versions=tuple(replace(v, options=v.options.merged(added)) for v in plan.versions))
            if how == "copy":
                table_with_rows(plan, folder, env, paths.root, name=str(parsed), dynamic=self._client)
            else:
                table_with_files(
                    plan, env, paths.root, name=str(parsed), keep=how == "keep", what=what, dynamic=self._client
                )
            self.metastore.add_table(parsed)
        return self._opened(parsed)

    def clone(
        self,
        table: str | Table,
        name: str,
        snapshot: int | None = None,
        tag: str | None = None,
        timestamp: datetime | str | None = None,
    ) -> Table:
        """Make another table with the state of a table. They share no file afterwards.

        No row is read. On one local disk the files get second names, which take no room, an object store copies them
        inside of itself, and from store to store they are copied as they are. The clone has one snapshot, with its
        number, committers and watermark. Its options are those of the table, but it keeps no shard stream.

        Args:
            table: `database.table` of this catalog, or `database.table$branch_name`, or a table of any catalog.
            name: `database.table` of this catalog; there must be no such table.
            snapshot, tag, timestamp: the state, as in `Table.read`; None: the newest one.

        Raises:
            NotFoundError: there is no such table, database, snapshot or tag.
            AlreadyExistsError: a table with this name exists, or its directory holds other files.
            ExpiredError: the snapshot has expired, perhaps while its files were copied.
            FormatError: metadata of the table is damaged. In all these cases, nothing was changed.
            StorageError: the store failed; there is no such table.
        """
        from merganser.migrate.clone import clone
        from merganser.scan.time_travel import resolve

        parsed = self._plain_name(name)
        source = self.table(table) if isinstance(table, str) else table
        if not isinstance(source, Table):
            raise InvalidInputError(f"cannot clone '{table}': it is a view of a table. Clone the table itself.")
        paths = self._unused(parsed)
        store = SnapshotStore(source.definition.paths, source.env, source.name)
        found = resolve(store, snapshot=snapshot, tag=tag, timestamp=timestamp)
        announce = partial(announced, self._listeners, str(parsed))
        env = self.metastore.env_at(paths.root)
        clone(source.definition, source.env, found, env, paths.root, name=str(parsed), announce=announce)
        self.metastore.add_table(parsed)
        return self._opened(parsed)

    # inside

    def _unused(self, name: TableName) -> TablePaths:
        """Return where a table of this name may come to lie.

        Raises:
            NotFoundError: the database does not exist.
            AlreadyExistsError: there is such a table, or other files.
        """
        self._require_database(name.database)
        if self.metastore.has_table(name):
            raise AlreadyExistsError(f"table '{name}' already exists. Choose another name.", table=str(name))
        self.metastore.check_free(name)
        return TablePaths(self.metastore.root(name))

    def _defined(
        self,
        name: TableName,
        schema: SchemaLike,
        primary_key: Sequence[str],
        partition_by: Sequence[str],
        options: Mapping[str, Any] | None,
        comment: str | None,
    ) -> TableSchema:
        """Return the first schema of a new table; see `create_table`."""
        from merganser.rules.create import create_schema
        from merganser.upkeep.shard_stream import with_new_stream

        if options is not None and not isinstance(options, Mapping):
            raise InvalidInputError(
                f"cannot create '{name}': options are {a_type(options)}. Give a dict such as {{'bucket': '4'}}."
            )
        made = create_schema(
            schema,
            primary_key=tuple(_names(primary_key, "primary_key")),
            partition_by=tuple(_names(partition_by, "partition_by")),
            options=_without_path({**self.table_defaults, **(options or {})}, self.metastore.root(name), name),
            comment=comment,
            time_millis=self.env.now_ms(),
            table=str(name),
        )
        check_type(made.options, what=f"cannot create '{name}'", table=str(name))
        return with_new_stream(made, self.env, table=str(name))

    @property
    def _listeners(self) -> builtins.list[TableListener]:
        return listeners_of(self.listeners, self.warehouse, self._client, takes_topics=self._takes_topics)

    def _opened(self, name: TableName) -> Table:
        if not self.metastore.may_have_table(name):
            raise self._no_table(name)
        try:
            root = self.metastore.root(name)
            table = open_table(root, self.metastore.env_at(root), name=str(name), options=self._client)
        except NotFoundError:
            raise self._no_table(name) from None
        return table if name.branch == MAIN else table.branch(name.branch)

    def _plain_name(self, name: str) -> TableName:
        parsed = parse_table_name(name)
        if parsed.system is not None or parsed.branch != "main":
            raise InvalidInputError(f"'{name}' names a part of a table. Write database.table.", name=name)
        return parsed

    def _newest(self, name: TableName) -> TableSchema | None:
        """Return the newest schema of a table; None: there is none."""
        root = self.metastore.root(name)
        return SchemaStore(TablePaths(root), self.metastore.env_at(root)).latest()

    def _require_database(self, name: str) -> None:
        if not self.metastore.has_database(name):
            raise self._no_database(name)

    def _no_database(self, name: str) -> NotFoundError:
        if name == SYSTEM:
            what = "it has the system tables of the catalog only, and cannot be changed"
            return NotFoundError(f"there is no database '{name}' for tables: {what}.", database=name)
        known = self.list_databases()
        hint = did_you_mean(name, known) if known else f"The warehouse '{self.warehouse}' has none yet."
        return NotFoundError(
            f"there is no database '{name}'. {hint} catalog.create_database('{name}') creates it.", database=name
        )

    def _no_table(self, name: TableName) -> NotFoundError:
        held = self.metastore.definitions
        if held is not None and held.view(TableName(name.database, name.table)) is not None:
            return NotFoundError(
                f"there is no table '{name}': it is a view. Read it with catalog.sql, or look at "
                f"catalog.view('{name}').",
                table=str(name),
                view=str(name),
            )
        known = self.list_tables(name.database)
        if name.table in known:
            return NotFoundError(
                f"there is no table '{name}': the catalog names it, and its files are not at "
                f"'{self.metastore.root(name)}', as after a rename or a drop that did not finish. catalog.repair() "
                "lets the catalog name what is there.",
                table=str(name),
            )
        hint = did_you_mean(name.table, known) if known else f"Database '{name.database}' has no tables yet."
        return NotFoundError(f"there is no table '{name}'. {hint}", table=str(name))


def _without_path(options: Mapping[str, Any], root: str, name: TableName) -> Mapping[str, Any]:
    """Return options without the path of the table, because the catalog chooses the path.

    Raises:
        InvalidInputError: the option names another path.
    """
    given = options.get(PATH.key)
    if given is None:
        return options
    if not isinstance(given, str) or storage_for(given)[1].rstrip("/") != root.rstrip("/"):
        raise InvalidInputError(
            f"cannot create '{name}' with '{PATH.key}' = {given!r}: this catalog stores its tables in its warehouse, "
            f"and this one at '{root}'. Nothing was created. Leave the option out, or open a catalog of another "
            "warehouse.",
            option=PATH.key,
            table=str(name),
        )
    return {key: value for key, value in options.items() if key != PATH.key}


def _check_kept(made: TableSchema, name: TableName) -> None:
    """Refuse a table with columns or options that no file of it could have."""
    from merganser.files.index import check_filters
    from merganser.files.layout import check_formats
    from merganser.rules.gaps import check_can_keep

    what = f"cannot create '{name}'"
    check_can_keep(made, what=what)
    check_formats(made, what=what)
    check_filters(made, what=what)


def _exists(name: TableName) -> AlreadyExistsError:
    return AlreadyExistsError(
        f"table '{name}' already exists. Choose another name, or pass if_not_exists=True.", table=str(name)
    )


def _names(value: Sequence[str], what: str) -> Sequence[str]:
    if isinstance(value, str):
        raise InvalidInputError(f"{what} must be a list of columns, not the text '{value}'. Write {what}=['{value}'].")
    if value is not None and not isinstance(value, Iterable):
        raise InvalidInputError(
            f"{what} must be a list of columns, not {value!r:.100}, {a_type(value)}. Write {what}=['id']."
        )
    return value or ()


def open_catalog(
    metastore: Metastore,
    table_defaults: Mapping[str, Any] | None = None,
    listeners: str | None = None,
    client: Mapping[str, str] | None = None,
) -> Catalog:
    """Return the catalog of a metastore; see `Catalog`.

    Raises:
        StorageError: the warehouse cannot be read.
    """
    warehouse = metastore.warehouse
    try:
        metastore.check()
    except StorageError as error:
        raise StorageError(f"cannot open the warehouse '{warehouse}': {error}", path=warehouse) from error
    return Catalog(metastore, table_defaults or {}, listeners, client or {})

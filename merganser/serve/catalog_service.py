"""The service of the REST catalog: tables, views, commits and references, as Apache Paimon's clients ask for them.

Clients read and write files themselves, and ask the server which tables there are and to make each commit: the server
creates the snapshot file if the newest snapshot is the one before it. So a commit is one step for all clients, and for
writers that use the warehouse without the server.

A request that is repeated after its reply was lost finds what it has made. See docs/catalogs.md.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, Final
from urllib.parse import unquote_plus

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from merganser.catalogs.catalog import Catalog
from merganser.catalogs.names import TableName, parse_table_name
from merganser.catalogs.rest_schema import BASE_SCHEMA, READ, ROLE, WRITE, schema_json
from merganser.catalogs.system import totals
from merganser.changes import Change, RemoveOption, SetOption
from merganser.errors import (
    CommitUnknownError,
    ConflictError,
    InvalidInputError,
    InvariantError,
    NotFoundError,
    SnapshotExistsError,
    StorageError,
    UnsupportedError,
)
from merganser.handle.table import Table
from merganser.meta.data_file import ManifestEntry
from merganser.meta.schemas import SchemaStore
from merganser.meta.snapshot import Snapshot, same_snapshot
from merganser.meta.snapshots import SnapshotStore
from merganser.meta.table_state import MetaReader
from merganser.options import write as w
from merganser.schema.table_schema import TableSchema
from merganser.serve import catalog_json as j
from merganser.serve.answers import Answer, RefusedError
from merganser.serve.catalog_definitions import DefinitionService
from merganser.serve.http import MAY_CHANGE, Access, HttpService
from merganser.serve.operations import Limits
from merganser.storage.env import Env
from merganser.storage.guarded import GuardedStorage
from merganser.storage.paths import TablePaths
from merganser.storage.protocol import Storage
from merganser.upkeep.alter import alter
from merganser.values import dataclass

PREFIX: Final = "merganser"
"""What paths have behind the version. Java's client does not start without one; paths are also served without it."""
BODY_BYTES: Final = 16 << 20
"""Maximum size of a request: a commit says what it did to each partition."""
_SCHEMA: Final = re.compile(r".*/schema/schema-(\d+)")
_TABLE: Final = "/v1/databases/{database}/tables/{table}"
_IDS: Final = uuid.UUID("6f0b1c0e-5d0b-4f6e-9d38-3f1c6e2d7a41")
"""Namespace of the ids of tables."""

Body = dict[str, Any]
DataTokens = Callable[[str, str, str], tuple[Mapping[str, str], datetime]]
"""Returns options of the store, and when they expire, given `database.table`, its path, and "read" or "write"."""
Work = Callable[[Request, Body], Mapping[str, Any] | None]


@dataclass(frozen=True)
class _NextSchema:
    """Lets an alter make one schema alone, the one after that which its client has seen; see `Guard`."""

    number: int
    table: str

    def create(self, files: Storage, path: str, data: bytes) -> None:
        """Create a file."""
        found = _SCHEMA.fullmatch(path)
        if found is not None:
            self.check(int(found[1]))
        files.create(path, data)

    def check(self, number: int) -> None:
        """Raise ConflictError if the schema has another number."""
        if number != self.number:
            raise ConflictError(
                f"cannot alter '{self.table}': its newest schema is {number - 1}, and the changes are changes of "
                f"schema {self.number - 1}. Nothing was changed. Look at the table again, and repeat the call.",
                table=self.table,
            )


class CatalogService(HttpService):
    """An ASGI application that serves a catalog.

    Args:
        log: takes a line for each error that is not the client's.
        name: what clients call the warehouse; they may also give its path.
        data_tokens: gives keys of the store for a table; None: clients have keys of their own.
    """

    unknown_status = 401

    def __init__(
        self,
        catalog: Catalog,
        access: Access,
        limits: Limits,
        log: Callable[[str], None],
        name: str,
        data_tokens: DataTokens | None = None,
    ) -> None:
        self.name = name
        self._data_tokens = data_tokens
        # A client of merganser makes, changes and deletes topics itself: it has the passwords.
        catalog = replace(catalog, _takes_topics=True)
        self.definitions = DefinitionService(catalog)
        super().__init__(catalog, access, limits, log, ["/health"])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, whose path is decoded as Java's URLEncoder encodes names: `+` is a blank."""
        await super().__call__({**scope, "path": _decoded(scope["raw_path"])}, receive, send)

    def routes(self) -> Iterable[Route]:
        """Return what can be asked."""
        reads: dict[str, Work] = {
            "/health": lambda _request, _body: {"status": "ok"},
            "/v1/config": self._config,
            "/v1/databases": self._databases,
            "/v1/databases/{database}": self._database,
            "/v1/databases/{database}/tables": self._tables,
            "/v1/databases/{database}/table-details": self._table_details,
            **self.definitions.reads(),
            "/v1/tables": self._all_tables,
            _TABLE: self._table,
            **({} if self._data_tokens is None else {f"{_TABLE}/token": self._token}),
            f"{_TABLE}/snapshot": self._newest,
            f"{_TABLE}/snapshots": self._snapshots,
            f"{_TABLE}/snapshots/{{version}}": self._snapshot,
            f"{_TABLE}/partitions": self._partitions,
            f"{_TABLE}/tags": self._tags,
            f"{_TABLE}/tags/{{tag}}": self._tag,
            f"{_TABLE}/branches": self._branches,
        }
        changes: dict[tuple[str, str], Work] = {
            ("POST", "/v1/databases"): self._create_database,
            ("DELETE", "/v1/databases/{database}"): self._drop_database,
            ("POST", "/v1/databases/{database}/tables"): self._create_table,
            ("POST", "/v1/databases/{database}/register"): self._register,
            ("POST", "/v1/tables/rename"): self._rename,
            ("POST", _TABLE): self._alter,
            ("DELETE", _TABLE): self._drop_table,
            ("POST", f"{_TABLE}/commit"): self._commit,
            ("POST", f"{_TABLE}/rollback"): self._roll_back,
            ("POST", f"{_TABLE}/tags"): self._create_tag,
            ("DELETE", f"{_TABLE}/tags/{{tag}}"): self._drop_tag,
            ("POST", f"{_TABLE}/branches"): self._create_branch,
            ("DELETE", f"{_TABLE}/branches/{{branch}}"): self._drop_branch,
            ("POST", f"{_TABLE}/branches/{{branch}}/forward"): self._forward,
            **self.definitions.changes(),
        }
        for (method, path), work in {**{("GET", path): work for path, work in reads.items()}, **changes}.items():
            answered = partial(self._answered, work, changes=method != "GET")
            yield self.route(method, path, answered)
            if path.startswith("/v1/") and path != "/v1/config":
                yield self.route(method, path.replace("/v1/", f"/v1/{PREFIX}/", 1), answered)

    async def _answered(self, work: Work, request: Request, *, changes: bool) -> Answer:
        if changes and not request.scope["state"][MAY_CHANGE]:
            hint = "Send the token of writers" if self.access.token else "Start the server with a token"
            raise RefusedError(403, "", f"this client only reads. Nothing was changed. {hint}.")
        body = j.object_of(await self._body(request)) if changes else {}
        found = await self._in_thread(lambda: work(request, body))
        return j.answer_of(found or {})

    # errors

    def refused(self, error: RefusedError) -> Answer:
        """Return a refusal as clients get it."""
        retry = {"retry-after": "1"} if error.status == 503 else {}
        return j.error_answer(error.status, error.message, headers={**retry, **error.headers})

    def failed(self, error: Exception) -> Answer:
        """Return an error as clients get it: what it can act on, and nothing of the inside of the server."""
        status = j.status_of(error)
        if status != 500:
            return j.error_answer(status, str(error), j.resource_of(error))
        request = self.catalog.env.new_id()
        told = "the store of the table failed" if isinstance(error, StorageError) else "the server has a fault"
        if isinstance(error, CommitUnknownError):
            told = "the store lost the reply, and it is unknown whether the change was made"
        answer = j.error_answer(500, f"{told}. The log of the server says more: look for {request}.")
        return replace(answer, logged=f"{request}: {type(error).__name__}: {error}")

    def no_route(self, scope: Scope, error: HTTPException) -> RefusedError:
        """Return what a client gets that asks for what there is not."""
        return RefusedError(501, "", f"this server has no {scope['method']:.20} {scope['path']:.200}.")

    # the catalog and its databases

    def _config(self, request: Request, _body: Body) -> Mapping[str, Any]:
        asked = request.query_params.get("warehouse")
        known = {self.name, self.catalog.warehouse}
        if asked is not None and not known & {asked, unquote_plus(asked)}:  # Java's client encodes it twice
            raise NotFoundError(
                f"this server has no warehouse '{asked:.200}'. Its warehouse is '{self.name}': set the option "
                f"'warehouse' to it."
            )
        tokens = {} if self._data_tokens is None else {"data-token.enabled": "true"}
        return {"defaults": {}, "overrides": {"prefix": PREFIX, ROLE: _role(request), **tokens}}

    def _databases(self, request: Request, _body: Body) -> Mapping[str, Any]:
        names = j.like(request.query_params.get("databaseNamePattern"), self.catalog.list_databases())
        return _page("databases", names, request)

    def _database(self, request: Request, _body: Body) -> Mapping[str, Any]:
        name = request.path_params["database"]
        self.catalog.list_tables(name)  # or an error that says that there is no such database
        location = self.catalog.metastore.root(TableName(name, "_")).rpartition("/")[0]
        return {"id": name, "name": name, "location": location, "options": {}, **_AUDIT}

    def _create_database(self, _request: Request, body: Body) -> None:
        name, options = j.field_of(body, "name", str), j.texts_of(body, "options")
        if "location" in options:
            raise UnsupportedError(
                f"cannot create database '{name}' at a location of its own: this catalog chooses it. Nothing was "
                "changed. Leave the option out.",
                database=name,
            )
        self.catalog.create_database(name)  # other options of a database are kept nowhere, as in Paimon's file system

    def _drop_database(self, request: Request, _body: Body) -> None:
        self.catalog.drop_database(request.path_params["database"], cascade=True)

    # tables

    def _tables(self, request: Request, _body: Body) -> Mapping[str, Any]:
        return _page("tables", self._names(request), request)

    def _all_tables(self, request: Request, _body: Body) -> Mapping[str, Any]:
        asked = request.query_params
        found = [
            f"{database}.{name}"
            for database in j.like(asked.get("databaseNamePattern"), self.catalog.list_databases())
            for name in j.like(asked.get("tableNamePattern"), self.catalog.list_tables(database))
        ]
        page = _page("tables", sorted(found), request)
        parts = [name.partition(".") for name in page["tables"]]
        return {**page, "tables": [{"database": database, "object": name} for database, _, name in parts]}

    def _table_details(self, request: Request, _body: Body) -> Mapping[str, Any]:
        database = request.path_params["database"]
        page = _page("tableDetails", self._names(request), request)
        found = []
        for name in page["tableDetails"]:
            try:
                found.append(self._table_json(f"{database}.{name}"))
            except NotFoundError:
                continue  # dropped since the list
        return {**page, "tableDetails": found}

    def _names(self, request: Request) -> Sequence[str]:
        """Return the names of tables that a request asks for. All tables are of one type."""
        if request.query_params.get("tableType", "table") != "table":
            return []
        return j.like(
            request.query_params.get("tableNamePattern"), self.catalog.list_tables(request.path_params["database"])
        )

    def _table(self, request: Request, _body: Body) -> Mapping[str, Any]:
        return self._table_json(_name(request))

    def _table_json(self, name: str) -> Mapping[str, Any]:
        store = self._schemas(name)
        newest = store.latest()
        if newest is None:
            raise NotFoundError(f"there is no table '{name}'.", table=name)
        first = store.load(store.ids()[0])
        parsed = parse_table_name(name)
        return {
            "id": self._id(store),
            "database": parsed.database,
            "name": name.partition(".")[2],
            "path": self.catalog.metastore.root(parsed),
            "isExternal": False,
            "schemaId": newest.id,
            "schema": schema_json(newest),
            **_AUDIT,
            "createdAt": first.time_millis,
            "updatedAt": newest.time_millis,
        }

    def _schemas(self, name: str) -> SchemaStore:
        """Return the schemas of a table. Its handle may hold options of this process, such as passwords."""
        return SchemaStore(self._open(name).definition.paths, self.catalog.env)

    def _id(self, store: SchemaStore) -> str:
        """Return the id of a table, which no other table has, also none that has its name later.

        The first schema of a table of ours has a value that no other one has, others at least a time.
        """
        first = self.catalog.env.storage.read(store.paths.schema(store.ids()[0]))
        return str(uuid.uuid5(_IDS, first.decode()))

    def _create_table(self, request: Request, body: Body) -> None:
        name = j.identifier_of(body, "identifier")
        if name.partition(".")[0] != request.path_params["database"]:
            raise InvalidInputError(f"the path and the body name two databases: '{name}'. Nothing was changed.")
        self.catalog.create_table(name, **j.definition_of(j.field_of(body, "schema", dict)))

    def _register(self, _request: Request, body: Body) -> None:
        parsed = parse_table_name(j.identifier_of(body, "identifier"))
        path, root = j.field_of(body, "path", str), self.catalog.metastore.root(parsed)
        if path.rstrip("/") != root:
            raise UnsupportedError(
                f"cannot register '{parsed}' at '{path:.300}': tables of this catalog lie at their names, and this one "
                f"at '{root}'. Nothing was changed.",
                table=str(parsed),
            )
        if not SchemaStore(TablePaths(root), self.catalog.env).exists():
            raise NotFoundError(f"cannot register '{parsed}': there is no table at '{root}'.", table=str(parsed))
        if not self.catalog.metastore.has_table(parsed):
            self.catalog.metastore.add_table(parsed)

    def _rename(self, _request: Request, body: Body) -> None:
        self.catalog.rename_table(j.identifier_of(body, "source"), j.identifier_of(body, "destination"))

    def _alter(self, request: Request, body: Body) -> None:
        name = _name(request)
        schema = self._newest_schema(name)
        base = j.field_of(body, BASE_SCHEMA, int, None)
        table = self._open(name)
        if base is not None:
            only = _NextSchema(base + 1, table.name)
            only.check(schema.id + 1)
            env = table.env
            table = replace(table, env=Env(GuardedStorage(env.storage, only), env.clock, env.cache, env.threads))
        changes = j.changes_of(body, schema)
        try:
            if any(map(_names_topic, changes)):
                alter(table.definition, table.env, changes)
            else:
                table.alter(changes)
        except InvalidInputError as error:
            raise j.of_column(error, changes, schema.names) from error

    def _newest_schema(self, name: str) -> TableSchema:
        newest = self._schemas(name).latest()
        if newest is None:
            raise NotFoundError(f"there is no table '{name}'.", table=name)
        return newest

    def _drop_table(self, request: Request, _body: Body) -> None:
        self.catalog.drop_table(_name(request))

    def _token(self, request: Request, _body: Body) -> Mapping[str, Any]:
        assert self._data_tokens is not None
        table = self._open(_name(request))
        name = table.name.partition("$")[0]  # branches lie in their table
        try:
            options, until = self._data_tokens(name, table.path, _role(request))
        except PermissionError:
            raise RefusedError(403, "", f"this client gets no keys for '{name}'.") from None
        if not isinstance(options, Mapping) or not isinstance(until, datetime) or until.tzinfo is None:
            raise InvariantError(
                f"--data-tokens gave {type(options).__name__} and {type(until).__name__} for '{name}'. It has to "
                "return a dict of options, and a datetime with a time zone."
            )
        texts = {str(key): str(text) for key, text in options.items()}
        return {"token": texts, "expiresAtMillis": int(until.timestamp() * 1000)}

    # commits

    def _commit(self, request: Request, body: Body) -> Mapping[str, Any]:
        table = self._open(_name(request))
        asked = j.field_of(body, "tableId", str, None)
        if asked is not None and asked != self._id(SchemaStore(table.definition.paths, table.env)):
            raise NotFoundError(
                f"cannot commit to '{table.name}': it was dropped and created again since the client opened it. "
                "Nothing was changed. Open the table again.",
                table=table.name,
            )
        snapshot = j.snapshot_of(j.field_of(body, "snapshot", dict))
        return {"success": self._committed(table, snapshot, j.field_of(body, "baseSnapshotUuid", str, None))}

    def _committed(self, table: Table, snapshot: Snapshot, base: str | None) -> bool:
        """Make a snapshot the newest one. Returns whether it is there; False: another one came first."""
        store = _store(table)
        newest = store.latest(to_commit=True)
        above = 0 if newest is None else newest.id
        if snapshot.id <= above:
            found = store.get(snapshot.id)
            return found is not None and _is_repeated(found, snapshot)
        if snapshot.id != above + 1:
            return False  # a rollback has removed what it was made on top of
        if newest is not None and base is not None and newest.uuid is not None and newest.uuid != base:
            return False
        try:
            stored = store.create(replace(snapshot, uuid=snapshot.uuid or table.env.new_id()))
        except SnapshotExistsError:
            found = store.get(snapshot.id)
            return found is not None and _is_repeated(found, snapshot)
        if store.hint_may_move(stored.id):
            store.write_latest_hint(stored.id)
        return _is_repeated(stored, snapshot)

    # snapshots and partitions

    def _newest(self, request: Request, _body: Body) -> Mapping[str, Any]:
        table = self._open(_name(request))
        state = MetaReader(table.definition.paths, table.env, table.name).latest()
        if state.snapshot is None:
            raise NotFoundError(f"table '{table.name}' has no snapshot yet.", table=table.name, snapshot="LATEST")
        entries = [entry for held in state.live.buckets.values() for entry in held.entries]
        return {"snapshot": {"snapshot": j.snapshot_json(state.snapshot), **j.statistics_json(totals(entries))}}

    def _snapshots(self, request: Request, _body: Body) -> Mapping[str, Any]:
        store = _store(self._open(_name(request)))
        page = _page("snapshots", store.ids(), request)
        found = (store.get(number) for number in page["snapshots"])
        return {**page, "snapshots": [j.snapshot_json(each) for each in found if each is not None]}

    def _snapshot(self, request: Request, _body: Body) -> Mapping[str, Any]:
        table, version = self._open(_name(request)), request.path_params["version"]
        store = _store(table)
        if version in ("EARLIEST", "LATEST"):
            number = store.earliest_id() if version == "EARLIEST" else store.latest_id()
            if number is None:
                raise NotFoundError(f"table '{table.name}' has no snapshot yet.", table=table.name, snapshot=version)
            return {"snapshot": j.snapshot_json(store.load(number))}
        if version.isascii() and version.isdigit() and len(version) < 19:
            return {"snapshot": j.snapshot_json(store.load(int(version)))}
        return {"snapshot": j.snapshot_json(_tag_of(table, version).snapshot)}

    def _partitions(self, request: Request, _body: Body) -> Mapping[str, Any]:
        table = self._open(_name(request))
        definition = table.definition
        found: dict[str, tuple[Mapping[str, str], list[ManifestEntry]]] = {}
        if definition.schema.partition_keys:
            state = MetaReader(definition.paths, table.env, table.name).latest()
            for (partition, _), held in state.live.buckets.items():
                spec = definition.partition_texts(partition)
                name = "/".join(f"{column}={text}" for column, text in spec.items())
                found.setdefault(name, (spec, []))[1].extend(held.entries)
        names = j.like(request.query_params.get("partitionNamePattern"), sorted(found))
        page = _page("partitions", names, request)
        return {
            **page,
            "partitions": [
                {
                    "spec": spec,
                    **j.statistics_json(totals(entries)),
                    "totalBuckets": max(entry.total_buckets for entry in entries),
                    "done": False,
                }
                for spec, entries in (found[name] for name in page["partitions"])
            ],
        }

    # rollbacks, tags and branches

    def _roll_back(self, request: Request, body: Body) -> None:
        table, instant = self._open(_name(request)), j.field_of(body, "instant", dict)
        expected, newest = j.field_of(body, "fromSnapshot", int, None), table.latest_snapshot()
        if expected is not None and (newest is None or newest.id != expected):
            raise ConflictError(
                f"cannot roll back '{table.name}': its newest snapshot is no longer {expected}. Nothing was changed.",
                table=table.name,
            )
        if instant.get("type") == "tag":
            table.rollback(tag=j.field_of(instant, "tagName", str))
        else:
            table.rollback(snapshot=j.field_of(instant, "snapshotId", int))

    def _tags(self, request: Request, _body: Body) -> Mapping[str, Any]:
        prefix = request.query_params.get("tagNamePrefix", "")
        names = sorted(tag.name for tag in self._open(_name(request)).tags.list() if tag.name.startswith(prefix))
        return _page("tags", names, request)

    def _tag(self, request: Request, _body: Body) -> Mapping[str, Any]:
        tag = _tag_of(self._open(_name(request)), request.path_params["tag"])
        kept = tag.time_retained
        return {
            "tagName": tag.name,
            "snapshot": j.snapshot_json(tag.snapshot),
            "tagCreateTime": None if tag.create_time is None else round(tag.create_time.timestamp() * 1000),
            "tagTimeRetained": None if kept is None else f"{round(kept.total_seconds())} s",
        }

    def _create_tag(self, request: Request, body: Body) -> None:
        self._open(_name(request)).tags.create(
            j.field_of(body, "tagName", str),
            j.field_of(body, "snapshotId", int, None),
            j.field_of(body, "timeRetained", str, None),
        )

    def _drop_tag(self, request: Request, _body: Body) -> None:
        self._open(_name(request)).tags.drop(request.path_params["tag"])

    def _branches(self, request: Request, _body: Body) -> Mapping[str, Any]:
        return {"branches": [branch.name for branch in self._open(_name(request)).branches.list()]}

    def _create_branch(self, request: Request, body: Body) -> None:
        tag = j.field_of(body, "fromTag", str, None)
        self._open(_name(request)).branches.create(j.field_of(body, "branch", str), tag)

    def _drop_branch(self, request: Request, _body: Body) -> None:
        self._open(_name(request)).branches.drop(request.path_params["branch"])

    def _forward(self, request: Request, _body: Body) -> None:
        self._open(_name(request)).branches.fast_forward(request.path_params["branch"])


_AUDIT: Final = dict.fromkeys(("owner", "createdAt", "createdBy", "updatedAt", "updatedBy"))
"""Who owns, created and changed something is stored nowhere."""


def _names_topic(change: Change) -> bool:
    """Return whether a change says that the client has made the topic of a log, or that it will delete it."""
    return isinstance(change, SetOption | RemoveOption) and change.key == w.KAFKA_TOPIC.key


def _decoded(raw: bytes) -> str:
    """Return a path with names in place of what clients send for them.

    It is decoded part by part: a name with a slash stays escaped, so that it is no longer path, which would name
    something else. No name of the catalog has a slash.
    """
    parts = (unquote_plus(part) for part in raw.decode("latin-1").split("/"))
    return "/".join(part.replace("/", "%2F") for part in parts)


def _role(request: Request) -> str:
    """Return what a client may do."""
    return WRITE if request.scope["state"][MAY_CHANGE] else READ


def _name(request: Request) -> str:
    return f"{request.path_params['database']}.{request.path_params['table']}"


def _store(table: Table) -> SnapshotStore:
    return SnapshotStore(table.definition.paths, table.env, table.name)


def _is_repeated(found: Snapshot, asked: Snapshot) -> bool:
    """Return whether a snapshot that is there is the one that a client asks for."""
    return same_snapshot(found, asked) and asked.uuid in (None, found.uuid)


def _tag_of(table: Table, name: str) -> Any:
    found = next((tag for tag in table.tags.list() if tag.name == name), None)
    if found is None:
        raise NotFoundError(f"table '{table.name}' has no tag '{name}'.", table=table.name, tag=name)
    return found


def _page(key: str, entries: Sequence[Any], request: Request) -> dict[str, Any]:
    return j.page(key, entries, request.query_params)

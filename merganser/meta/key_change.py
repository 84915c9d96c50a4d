"""When a table gets its primary key: which schema its rows have, between the schema with the key and their commit.

A table with rows gets a key by two files: a schema, and then the snapshot of the rows written by it. Killed between
the two, the table is the one of before. So the newest schema that has the key of the newest snapshot's schema is in
force. Only a table whose option `merganser.primary-key-since` says that its key has changed costs this look.

A schema that is not in force is for readers of other engines one that no row fits. The next writer takes it back: it
makes the schema in force the newest one again (`meta.next_schema`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from merganser.errors import ConflictError, FormatError
from merganser.meta.schemas import SchemaStore
from merganser.meta.snapshot import Snapshot
from merganser.meta.snapshots import SnapshotStore
from merganser.meta.table_def import TableDef
from merganser.options import write as w
from merganser.schema.table_schema import TableSchema
from merganser.storage.env import Env
from merganser.storage.paths import TablePaths


def key_ids(schema: TableSchema) -> tuple[int, ...]:
    """Return the ids of the primary key columns, which stay when columns are renamed."""
    return tuple(schema.field(name).id for name in schema.primary_keys)


def may_differ(schema: TableSchema) -> bool:
    """Return whether the key of a schema may be another one than that of an older schema of a table with rows."""
    return schema.options.is_set(w.PRIMARY_KEY_SINCE)


def current_schema(paths: TablePaths, env: Env, name: str) -> TableSchema | None:
    """Return the newest schema that is in force; None: there is no table.

    Args:
        name: of the table, for messages.
    """
    newest = SchemaStore(paths, env).latest()
    return None if newest is None else in_force(paths, env, name, newest)


def in_force(paths: TablePaths, env: Env, name: str, newest: TableSchema) -> TableSchema:
    """Return the schema that is in force if this one is the newest."""
    if not may_differ(newest):
        return newest
    try:
        snapshot = SnapshotStore(paths, env, name).latest()
    except FormatError:  # what reads the snapshot says so; a repair has to open the table
        return newest
    return newest if snapshot is None else fitting(SchemaStore(paths, env), newest, snapshot)


def fitting(schemas: SchemaStore, newest: TableSchema, snapshot: Snapshot) -> TableSchema:
    """Return the newest schema, of those up to `newest`, that has the key of the rows of a snapshot."""
    if newest.id == snapshot.schema_id or not may_differ(newest):
        return newest
    key = key_ids(schemas.load(snapshot.schema_id))
    found = newest
    while key_ids(found) != key and found.id > snapshot.schema_id:
        found = schemas.load(found.id - 1)
    return found


def marked(schema: TableSchema, since: int) -> TableSchema:
    """Return a schema that says that the key of its table has changed.

    Args:
        since: the id of the schema that changed it.
    """
    return replace(schema, options=schema.options.merged({w.PRIMARY_KEY_SINCE.key: str(since)}))


def with_key_of(table: TableDef, env: Env, snapshot: Snapshot) -> TableDef:
    """Return a table as it was at a snapshot, if its key was another one then; else as it is."""
    if snapshot.schema_id == table.schema.id or not may_differ(table.schema):
        return table
    there = SchemaStore(table.paths, env).load(snapshot.schema_id)
    return table if key_ids(there) == key_ids(table.schema) else table.with_schema(there)


def check_key(table: TableDef, env: Env, snapshots: Sequence[Snapshot], action: str) -> None:
    """Refuse to read snapshots with a schema that the table has no longer, or whose key is another one.

    Args:
        action: beginning of the message, such as "cannot read 'db.orders'".

    Raises:
        ConflictError: names the first such snapshot; nothing was read.
    """
    if snapshots:
        _check_same(table, env, snapshots[-1], action)
    known = {table.schema.id}
    for snapshot in snapshots:
        if snapshot.schema_id in known or (snapshot.schema_id < table.schema.id and not may_differ(table.schema)):
            continue
        known.add(snapshot.schema_id)
        there = SchemaStore(table.paths, env).load(snapshot.schema_id)
        if key_ids(there) != key_ids(table.schema):
            ours, theirs = shown_key(table.schema), shown_key(there)
            raise ConflictError(
                f"{action}: the rows of snapshot {snapshot.id} have {theirs}, and this handle reads the table with "
                f"{ours}: the key changed with another schema. Nothing was read. Open the table again, read older "
                "snapshots one by one with snapshot=, and changes of before and after the change apart.",
                table=table.name,
                snapshot=snapshot.id,
            )


def _check_same(table: TableDef, env: Env, snapshot: Snapshot, action: str) -> None:
    """Refuse a schema in place of which the table has another one of its number: one look for each new snapshot."""
    schema = table.schema
    place = ("schema at", table.paths.schema(schema.id))
    seen = schema, snapshot.id, snapshot.delta_manifest_list
    if env.cache.get(place) == seen:
        return
    try:
        found = SchemaStore(table.paths, env).load(schema.id, fresh=True)
    except FormatError:  # the number is free: rows of other schemas are read as those of this one
        return
    if (found.fields, found.partition_keys, found.primary_keys) != (
        schema.fields,
        schema.partition_keys,
        schema.primary_keys,
    ):
        raise ConflictError(f"{action}: {replaced(schema)} Nothing was read. Open the table again.", table=table.name)
    env.cache.put(place, seen, 200)


def check_not_replaced(table: TableDef, env: Env, action: str) -> None:
    """Refuse a handle whose table was dropped and re-created, maybe with the same columns.

    Args:
        action: beginning of the message, such as "cannot read 'db.orders'".

    Raises:
        ConflictError: the table has another schema of the same number.
    """
    schema = table.schema
    try:
        found = SchemaStore(table.paths, env).load(schema.id, fresh=True)
    except FormatError:
        return
    if (found.fields, found.time_millis) != (schema.fields, schema.time_millis):
        raise ConflictError(f"{action}: {replaced(schema)} Open the table again.", table=table.name)


def replaced(schema: TableSchema) -> str:
    """Return a sentence that says why a table has another schema of the same number than a handle."""
    return (
        f"its schema {schema.id} is another one than when it was opened. Since then the table was dropped and "
        "re-created, or fast-forwarded to a branch that was altered in another way."
    )


def shown_key(schema: TableSchema) -> str:
    """Return the primary key of a schema, for messages."""
    names = schema.shown.primary_keys
    return f"the primary key ({', '.join(names)})" if names else "no primary key"

"""When a table gets its primary key: which schema its rows have, between the schema with the key and their commit.

A table with rows gets a key by two files: a schema, and then the snapshot of the rows written by it. Killed between
the two, the table is the one of before. So the newest schema that has the key of the newest snapshot's schema is in
force. Only a table whose option `merganser.primary-key-since` says that its key has changed costs this look.

A schema that is not in force is for readers of other engines one that no row fits. The next writer takes it back: it
makes the schema in force the newest one again (`meta.next_schema`).
"""

from __future__ import annotations

from dataclasses import replace

from merganser.errors import FormatError
from merganser.meta.schemas import SchemaStore
from merganser.meta.snapshot import Snapshot
from merganser.meta.snapshots import SnapshotStore
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

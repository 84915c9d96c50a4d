"""Which schema an operation follows.

A handle knows the schema of the time when it was opened. What it does follows

    newest          the newest schema: what rewrites files, or asks what the table keeps
    for_writing     its own columns, with the buckets, changes and formats that the table has now: rows that come in
    for_changing    the newest schema, in which the columns that the call names are the same: rows that are there
    as_of           the schema of a snapshot or a file
    with_key_of     its own, or that of a snapshot whose rows have another key: streams and changes

`look` finds the newest schema and the newest state in one round of requests; an operation that has looked hands on what
it found.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from merganser.errors import ConflictError, FormatError
from merganser.meta.key_change import in_force, key_ids, may_differ, replaced, shown_key
from merganser.meta.next_schema import restore_schema
from merganser.meta.schemas import SchemaStore
from merganser.meta.snapshot import Snapshot
from merganser.meta.table_def import TableDef
from merganser.meta.table_state import KnownState, MetaReader
from merganser.options import upkeep as u
from merganser.options import write as w
from merganser.schema import types as t
from merganser.schema.table_schema import TableSchema
from merganser.storage.env import Env
from merganser.storage.paths import TablePaths
from merganser.values import dataclass


@dataclass(frozen=True, slots=True)
class Look:
    """What one look at the store found, with which an operation begins.

    Attributes:
        schema_id: of the newest schema; no row of the state has a newer one.
        known: the newest state; None: there is none, or it could not be read. What asks for it then says why.
    """

    schema_id: int
    known: KnownState | None


def look(table: TableDef, env: Env) -> Look:
    """Return the newest schema and the newest state of a table, asked for at once."""
    schemas, known, at = SchemaStore(table.paths, env), table.schema.id, env.seconds()
    reader = MetaReader(table.paths, env, table.name)
    try:
        state, there = reader.latest_beside(partial(schemas.latest_id, known), to_commit=True)
    except FormatError:
        return Look(schemas.latest_id(known), None)
    if state.snapshot is None:
        return Look(there, None)
    if state.snapshot.schema_id > there:  # it came between the replies
        there = schemas.latest_id(there)
    return Look(there, KnownState(state, at))


def newest(table: TableDef, env: Env, seen: Look | None = None) -> TableDef:
    """Return the table with its newest schema.

    What rewrites files asks for it after it has read a state: an older schema would lose columns that were added since.

    Args:
        seen: what a look has just found; None: this looks for the schema.
    """
    schemas, known = SchemaStore(table.paths, env), table.schema.id
    there = schemas.latest_id(known) if seen is None else seen.schema_id
    if there <= known:
        return table
    found = in_force(table.paths, env, table.name, schemas.load(there))
    return table if found.id <= known else table.with_schema(found)


_OF_STREAM: Final = (
    w.CHANGELOG_PRODUCER,
    w.ASKED_PRODUCER,
    w.CHANGELOG_IMAGE,
    w.STREAM,
    w.STREAM_ENABLED,
    w.STREAM_RETENTION,
    u.FORCE_LOOKUP,
    u.CHANGELOG_TIME_RETAINED,
    u.CHANGELOG_NUM_RETAINED_MAX,
    u.CHANGELOG_NUM_RETAINED_MIN,
)
"""Options that say how changes are published; enabling or disabling the shard stream changes most of them."""
_PRODUCER: Final = (w.CHANGELOG_PRODUCER, w.ASKED_PRODUCER, w.CHANGELOG_IMAGE)
_FORMATS: Final = (w.FILE_FORMAT, w.FILE_FORMAT_PER_LEVEL, w.CHANGELOG_FILE_FORMAT)
"""Options that say which files hold the rows: a value that one of them cannot hold must not be written (ORC)."""


def for_writing(table: TableDef, env: Env, seen: Look | None = None) -> TableDef:
    """Return the table with the buckets, the producer, the shard stream and the file formats that it has now.

    All other options stay as they were.

    A schema that is not in force is taken back.

    Args:
        seen: see `newest`.

    Raises:
        ConflictError: the table has another primary key now.
    """
    now = _newest_of_key(table, env, f"cannot write to '{table.name}'", seen).options
    known = table.schema.options
    changes: dict[str, str | None] = {}
    number = now.get(w.BUCKET)
    own = table.bucket != known.get(w.BUCKET)  # the caller's own number stays
    if table.bucket > 0 and number > 0 and number != table.bucket and not own:
        changes[w.BUCKET.key] = str(number)
    chosen = any(table.options.get(option) != known.get(option) for option in _PRODUCER)  # so does their own producer
    produced = not chosen and any(now.get(option) != known.get(option) for option in _PRODUCER)
    if produced or now.get(w.STREAM) != known.get(w.STREAM):
        texts = dict(now.items())
        changes |= {option.key: texts.get(option.key) for option in _OF_STREAM}
    texts = dict(now.items())
    for option in _FORMATS:
        if now.get(option) != known.get(option) == table.options.get(option):  # the caller's own format stays
            changes[option.key] = texts.get(option.key)
    return replace(table, options=table.options.merged(changes)) if changes else table


def for_changing(
    table: TableDef, env: Env, action: str, names: Collection[str] = (), seen: Look | None = None
) -> TableDef:
    """Return the table with its newest schema, to read rows and to write what becomes of them.

    Args:
        action: what is being done, as messages begin.
        names: the columns that the call names.
        seen: see `newest`.

    Raises:
        ConflictError: the table has another primary key now, or one of the columns is another one. Nothing was written.
    """
    newer = _newest_of_key(table, env, action, seen)
    if newer.id <= table.schema.id:
        return table
    check_same(table.name, table.schema, newer, names, action)
    return table.with_schema(newer)


def as_of(table: TableDef, env: Env, schema_id: int) -> TableDef:
    """Return the table with one of its schemas, such as that of a snapshot or of a file."""
    if schema_id == table.schema.id:
        return table
    return table.with_schema(SchemaStore(table.paths, env).load(schema_id))


def columns_of(table: TableDef, env: Env, ids: Iterable[int]) -> dict[int, tuple[t.Field, ...]]:
    """Return the columns of some schemas of the table, such as those of files. Its own is there without a look.

    Raises:
        FormatError: a schema is missing or damaged.
    """
    store = SchemaStore(table.paths, env)
    own = {table.schema.id: table.schema.fields}
    return own | {number: store.load(number).fields for number in set(ids) - own.keys()}


def _newest_of_key(table: TableDef, env: Env, action: str, seen: Look | None) -> TableSchema:
    """Return the newest schema in force, which has the same key. A schema that is not in force is taken back."""
    schemas, newer = SchemaStore(table.paths, env), table.schema
    there = schemas.latest_id(newer.id) if seen is None else seen.schema_id
    if there > newer.id:
        newer = in_force(table.paths, env, table.name, schemas.load(there))
        if newer.id != there:
            newer = restore_schema(table, env).schema
    if key_ids(newer) != key_ids(table.schema):
        raise ConflictError(
            f"{action}: it has {shown_key(newer)} by now, and had {shown_key(table.schema)} when it was opened. "
            "Nothing was written. Open the table again.",
            table=table.name,
        )
    return newer


def current_schema(paths: TablePaths, env: Env, name: str) -> TableSchema | None:
    """Return the newest schema that is in force; None: there is no table.

    Args:
        name: of the table, for messages.
    """
    newest = SchemaStore(paths, env).latest()
    return None if newest is None else in_force(paths, env, name, newest)


def with_key_of(table: TableDef, env: Env, snapshot: Snapshot) -> TableDef:
    """Return a table as it was at a snapshot, if its key was another one then; else as it is."""
    if not may_differ(table.schema):
        return table
    there = as_of(table, env, snapshot.schema_id)
    return table if key_ids(there.schema) == key_ids(table.schema) else there


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
        there = as_of(table, env, snapshot.schema_id).schema
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


def check_same(name: str, then: TableSchema, now: TableSchema, names: Collection[str], action: str) -> None:
    """Refuse columns that are others in another schema.

    Args:
        name: of the table.
        names: the columns.

    Raises:
        ConflictError: says which ones, and what became of them. Nothing was written.
    """
    changed = [_became(field, now) for field in then.fields if field.name in names and not _is_same(field, now)]
    if changed:
        raise ConflictError(
            f"{action}: since it was opened with schema {then.id}, {'; '.join(changed)} (schema {now.id}). Nothing was "
            "written. Open the table again.",
            table=name,
        )


def _is_same(field: t.Field, now: TableSchema) -> bool:
    """Return whether a column has the same name and type now; it may hold nulls or no longer."""
    kind = field.type.with_nullable(True)
    return any(
        (other.id, other.name, other.type.with_nullable(True)) == (field.id, field.name, kind) for other in now.fields
    )


def _became(field: t.Field, now: TableSchema) -> str:
    other = next((other for other in now.fields if other.id == field.id), None)
    if other is None:
        again = ", and another one has its name" if field.name in now.names else ""
        return f"column '{field.name}' was dropped{again}"
    if other.name != field.name:
        return f"column '{field.name}' was renamed to '{other.name}'"
    return f"column '{field.name}' was changed from {field.type} to {other.type}"

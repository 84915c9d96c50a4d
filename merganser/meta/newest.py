"""A table as it is now, for handles that were opened before its schema changed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from merganser.errors import ConflictError, FormatError
from merganser.meta.key_change import in_force, key_ids, shown_key
from merganser.meta.next_schema import restore_schema
from merganser.meta.schemas import SchemaStore
from merganser.meta.table_def import TableDef
from merganser.meta.table_state import MetaReader, Standing
from merganser.options import upkeep as u
from merganser.options import write as w
from merganser.schema.table_schema import TableSchema
from merganser.storage.env import Env


@dataclass(frozen=True, slots=True)
class Look:
    """What one look at the store found, with which an operation begins.

    Attributes:
        schema_id: of the newest schema; no row of the state has a newer one.
        standing: the newest state; None: there is none, or it could not be read. What asks for it then says why.
    """

    schema_id: int
    standing: Standing | None


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
    return Look(there, Standing(state, at))


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


def bucket_numbers(table: TableDef, env: Env, schema_id: int) -> list[int]:
    """Return the option `bucket` of a schema and of all later ones."""
    schemas = SchemaStore(table.paths, env)
    return [schemas.load(each).options.get(w.BUCKET) for each in range(schema_id, schemas.latest_id(schema_id) + 1)]


def for_changing(table: TableDef, env: Env, action: str, seen: Look | None = None) -> TableDef:
    """Return the table with its newest schema, to read rows and to write what becomes of them.

    Args:
        action: what is being done, as messages begin.
        seen: see `newest`.

    Raises:
        ConflictError: the table has another primary key now.
    """
    newer = _newest_of_key(table, env, action, seen)
    return table if newer.id <= table.schema.id else table.with_schema(newer)


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

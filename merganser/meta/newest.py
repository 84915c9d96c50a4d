"""A table as it is now, for handles that were opened before its schema changed."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from merganser.meta.schemas import SchemaStore
from merganser.meta.table_def import TableDef
from merganser.options import upkeep as u
from merganser.options import write as w
from merganser.storage.env import Env


def newest(table: TableDef, env: Env) -> TableDef:
    """Return the table with its newest schema.

    What rewrites files asks for it after it has read a state: an older schema would lose columns that were added since.
    """
    schemas, known = SchemaStore(table.paths, env), table.schema.id
    there = schemas.latest_id(known)
    return table if there <= known else table.with_schema(schemas.load(there))


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


def for_writing(table: TableDef, env: Env) -> TableDef:
    """Return the table with the buckets, the producer and the shard stream that it has now; all else stays as it was.

    Costs one look at the store, which mostly finds that there is no newer schema.
    """
    now = newest(table, env).schema.options
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
    return replace(table, options=table.options.merged(changes)) if changes else table

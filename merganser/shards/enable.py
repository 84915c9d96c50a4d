"""Enabling and disabling the shard stream of a table: a new schema that says so.

Steps of enabling: read the newest snapshot; create the schema; remember the shards. Writers that began before are told
at their commit (`commit/publish`), and later ones read the new schema. So all snapshots of this schema are complete.
A stop after the second step leaves a stream whose shards are found from the snapshots.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from merganser.errors import InvalidInputError, StreamNotFoundError, StreamParameterError
from merganser.meta.next_schema import make_next_schema
from merganser.meta.shard_store import ShardStore
from merganser.meta.shard_stream import ShardStream, stream_of, with_stream, without_stream
from merganser.meta.snapshot import Snapshot
from merganser.meta.snapshots import SnapshotStore
from merganser.meta.table_def import TableDef
from merganser.options import write as w
from merganser.options.option import DURATION
from merganser.rules.checks import check_table_options
from merganser.rules.dialects import with_whole_rows
from merganser.rules.gaps import check_can_keep
from merganser.schema.table_schema import TableSchema
from merganser.storage.env import Env


def span_of(given: str | timedelta, name: str, *, what: str) -> timedelta:
    """Return the duration that a caller gave as an argument.

    Args:
        what: beginning of the message.

    Raises:
        StreamParameterError: it is no duration above zero.
    """
    found: timedelta | None = None
    if isinstance(given, timedelta):
        found = given
    elif isinstance(given, str):
        try:
            found = DURATION.parse(given.strip())
        except (ValueError, OverflowError):
            found = None
    if found is None or found < timedelta(milliseconds=1):
        raise StreamParameterError(
            f"{what}: {name} is {given!r:.60}. Give a duration above zero, such as '24 h' or timedelta(hours=24). "
            "Nothing was changed."
        )
    return found


def enable(table: TableDef, env: Env, retention: timedelta) -> ShardStream:
    """Make a table keep a shard stream from now on, and return it; one that is enabled keeps its id.

    Raises:
        InvalidInputError: the changes of the table are not complete, and cannot be; nothing was changed.
    """
    what = f"cannot enable the stream of '{table.name}'"
    snapshot: Snapshot | None = None

    def change(now: TableDef) -> TableSchema | None:
        nonlocal snapshot
        there = stream_of(now.schema.options, now.branch)
        if there is not None and there.retention == retention:
            return None
        snapshot = SnapshotStore(now.paths, env, now.name).latest()
        options = with_stream(
            now.schema.options,
            id=there.id if there else env.new_id().replace("-", ""),
            retention=retention,
            created_ms=there.created_ms if there else env.now_ms(),
            after=there.after if there else 0 if snapshot is None else snapshot.id,
            schema_id=there.schema_id if there else now.schema.id + 1,
            keyed=now.keyed,
            branch=now.branch,
        )
        made = replace(now.schema, options=options)
        if with_whole_rows(made) is not made:
            _check_empty(now, empty=snapshot is None)
            made = with_whole_rows(made)
        check_table_options(made, what=what)
        check_can_keep(made, now.schema, what=what)
        return made

    made, is_new = make_next_schema(table, env, change)
    stream = stream_of(made.schema.options, made.branch)
    assert stream is not None
    if is_new:
        ShardStore(made, env, stream).remember(snapshot)
    return stream


def with_new_stream(made: TableSchema, env: Env, *, table: str) -> TableSchema:
    """Return the first schema of a new table, with a stream if its options ask for one.

    Raises:
        InvalidInputError: the table cannot have a stream.
    """
    if not made.options.get(w.STREAM_ENABLED):
        return made
    options = with_stream(
        made.options.merged({w.STREAM.key: None}),
        id=env.new_id().replace("-", ""),
        retention=made.options.get(w.STREAM_RETENTION),
        created_ms=made.time_millis,
        after=0,
        schema_id=made.id,
        keyed=bool(made.primary_keys),
    )
    made = with_whole_rows(replace(made, options=options))
    check_table_options(made, what=f"cannot create '{table}'")
    return made


def disable(table: TableDef, env: Env) -> None:
    """Discard the stream of a table. Its records cannot be read any more; the rows of the table stay.

    Raises:
        StreamNotFoundError: the table keeps no stream.
    """
    there: ShardStream | None = None

    def change(now: TableDef) -> TableSchema:
        nonlocal there
        there = stream_of(now.schema.options, now.branch)
        if there is None:
            raise no_stream(now.name, f"cannot disable the stream of '{now.name}'")
        return replace(now.schema, options=without_stream(now.schema.options))

    made, _ = make_next_schema(table, env, change)
    assert there is not None
    ShardStore(made, env, there).forget()


def no_stream(table: str, what: str) -> StreamNotFoundError:
    """Return the error of a table that keeps no stream; begins with `what`."""
    return StreamNotFoundError(
        f"{what}: the table keeps no shard stream. Nothing was changed. Begin one with Table.enable_stream, or create "
        "tables with 'stream.enabled' = 'true'.",
        table=table,
    )


def _check_empty(table: TableDef, *, empty: bool) -> None:
    if not empty:
        raise InvalidInputError(
            f"cannot enable the stream of '{table.name}': its merge engine makes rows of several stored versions, and "
            "compactions may have merged those that are there in another order than a record of each change needs. "
            "Nothing was changed. Create the table with 'changelog-producer' = 'lookup' or 'per-record', write its "
            "rows again, and enable the stream then.",
            table=table.name,
        )

"""The shard stream of a table begins and ends: a new schema says so.

Steps of enabling: read the newest snapshot; create the schema; remember the shards. Writers that began before are told
at their commit (`commit/table_commit`), and later ones read the new schema. So all snapshots of this schema are
complete.
A stop after the second step leaves a stream whose shards are found from the snapshots.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Final

from merganser.errors import StreamNotFoundError, StreamParameterError
from merganser.meta.next_schema import make_next_schema
from merganser.meta.refs import MAIN
from merganser.meta.shard_store import ShardStore
from merganser.meta.shard_stream import ShardStream, stream_of, with_stream, without_stream
from merganser.meta.snapshot import Snapshot
from merganser.meta.snapshots import SnapshotStore
from merganser.meta.table_def import TableDef
from merganser.options import write as w
from merganser.options.option import DURATION
from merganser.rules.checks import check_table_options
from merganser.rules.dialects import with_whole_rows
from merganser.rules.facts import POSTPONE, refuse
from merganser.rules.gaps import check_can_keep
from merganser.schema.table_schema import TableSchema
from merganser.storage.env import Env

LEAST: Final = timedelta(milliseconds=1)
"""The shortest duration that is one."""


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
    if found is None or found < LEAST:
        raise StreamParameterError(
            f"{what}: {name} is {given!r:.60}. Give a duration above zero, such as '24 h' or timedelta(hours=24). "
            "Nothing was changed."
        )
    return found


def enable(table: TableDef, env: Env, retention: timedelta) -> TableDef:
    """Make a table keep a shard stream from now on, and return it as it is then; one that is enabled keeps its id.

    Raises:
        InvalidInputError: the changes of the table are not complete, and cannot be; nothing was changed.
    """
    what = f"cannot enable the stream of '{table.name}'"
    snapshot: Snapshot | None = None
    there: ShardStream | None = None

    def change(now: TableDef) -> TableSchema | None:
        nonlocal snapshot, there
        there = stream_of(now.schema.options, now.branch)
        if there is not None and there.retention == retention:
            return None
        snapshot = SnapshotStore(now.paths, env, now.name).latest()
        made = with_stream_begun(now.schema, env, there, retention, snapshot, branch=now.branch, what=what)
        check_can_keep(made, now.schema, what=what)
        return made

    made, is_new = make_next_schema(table, env, change)
    if is_new:
        settle(there, made, env, snapshot)
    return made


def disable(table: TableDef, env: Env) -> TableDef:
    """Discard the stream of a table, and return it as it is then. Its records cannot be read any more; its rows stay.

    Raises:
        StreamNotFoundError: the table keeps no stream.
    """
    there: ShardStream | None = None

    def change(now: TableDef) -> TableSchema:
        nonlocal there
        there = stream_of(now.schema.options, now.branch)
        if there is None:
            raise no_stream(now.name, f"cannot disable the stream of '{now.name}'")
        return replace(now.schema, options=without_stream(now.schema.options, there))

    made, _ = make_next_schema(table, env, change)
    settle(there, made, env, None)
    return made


def with_new_stream(made: TableSchema, env: Env, *, table: str) -> TableSchema:
    """Return the first schema of a new table, with a stream if its options ask for one.

    Raises:
        InvalidInputError: the table cannot have a stream.
    """
    if not made.options.get(w.STREAM_ENABLED):
        return made
    made = replace(made, options=made.options.merged({w.STREAM.key: None}))
    retention = made.options.get(w.STREAM_RETENTION)
    return with_stream_begun(made, env, None, retention, None, branch=MAIN, what=f"cannot create '{table}'")


def with_stream_as_asked(
    made: TableSchema, before: TableDef, env: Env, newest: Snapshot | None, *, what: str
) -> TableSchema:
    """Return the next schema of a table, with the stream that its options ask for, if it changes these.

    Args:
        made: the schema without what goes with these options.
        before: the table with the schema before.
        newest: the newest snapshot.
        what: beginning of messages.

    Raises:
        InvalidInputError: the table cannot have such a stream.
    """
    were = before.schema.options
    asked, retention = made.options.get(w.STREAM_ENABLED), made.options.get(w.STREAM_RETENTION)
    there = stream_of(were, before.branch)
    if asked == were.get(w.STREAM_ENABLED) and (not asked or retention == were.get(w.STREAM_RETENTION)):
        return made
    if asked:
        return with_stream_begun(made, env, there, retention, newest, branch=before.branch, what=what)
    return made if there is None else replace(made, options=without_stream(made.options, there))


def with_stream_begun(
    made: TableSchema,
    env: Env,
    there: ShardStream | None,
    retention: timedelta,
    newest: Snapshot | None,
    *,
    branch: str,
    what: str,
) -> TableSchema:
    """Return a schema with a stream that begins behind the newest snapshot, or with the one that is there.

    Raises:
        InvalidInputError: the table cannot have such a stream.
    """
    if retention < LEAST:
        refuse(what, f"'{w.STREAM_RETENTION.key}' has to be above zero. Give a duration such as '24 h'.")
    if made.options.get(w.BUCKET) == POSTPONE and made.options.get(w.CHANGELOG_PRODUCER) == "none":
        refuse(
            what,
            "'bucket' is -2, so rows wait for their buckets, and the table has no producer that publishes them when "
            "they get there. Nothing was changed. Set 'changelog-producer' to 'lookup' or 'full-compaction' first.",
            option=w.CHANGELOG_PRODUCER.key,
        )
    producer = made.options.get(w.CHANGELOG_PRODUCER)
    if made.primary_keys and made.options.get(w.MERGE_ENGINE) == "first-row" and producer == "none":
        refuse(
            what,
            f"'{w.MERGE_ENGINE.key}' is 'first-row' and '{w.CHANGELOG_PRODUCER.key}' is 'none', so nothing publishes "
            "which rows came first. Nothing was changed. Set 'changelog-producer' to 'lookup' as well.",
            option=w.CHANGELOG_PRODUCER.key,
        )
    options = with_stream(
        made.options,
        id=there.id if there else env.new_id().replace("-", ""),
        retention=retention,
        created_ms=there.created_ms if there else env.now_ms(),
        after=there.after if there else 0 if newest is None else newest.id,
        schema_id=there.schema_id if there else made.id,
        keyed=bool(made.primary_keys),
        branch=branch,
    )
    made = replace(made, options=options)
    whole = with_whole_rows(made)
    if whole is not made and newest is not None:
        refuse(
            what,
            "its merge engine makes rows of several stored versions, and compactions may have merged those that are "
            "there in another order than a record of each change needs. Nothing was changed. Create the table with "
            "'changelog-producer' = 'lookup' or 'per-record', write its rows again, and enable the stream then.",
        )
    check_table_options(whole, what=what)
    return whole


def settle(before: ShardStream | None, made: TableDef, env: Env, newest: Snapshot | None) -> None:
    """Write or remove the files of a stream, once the schema is there that begins or ends it.

    Args:
        before: the stream that the table kept before.
        newest: the newest snapshot of which a stream knows that begins.
    """
    stream = stream_of(made.schema.options, made.branch)
    if stream is not None and stream != before:
        ShardStore(made, env, stream).remember(newest)
    elif stream is None and before is not None:
        ShardStore(made, env, before).forget()


def no_stream(table: str, what: str) -> StreamNotFoundError:
    """Return the error of a table that keeps no stream; begins with `what`."""
    return StreamNotFoundError(
        f"{what}: the table keeps no shard stream. Nothing was changed. Begin one with Table.enable_stream, or create "
        "tables with 'stream.enabled' = 'true'.",
        table=table,
    )

"""Alter: the columns, options and descriptions of a table change, by a new schema.

No file is rewritten: each data file names its schema, and reads see its rows as those of the schema that is read with
(`schema.evolve`). Of writers that alter a table at the same time, one makes the next schema. The others make their
changes of the newer one, if all that their changes look at is as it was; else they are told.

Options that begin, prolong or end the shard stream bring what goes with them (`upkeep.shard_stream`).

A column becomes NOT NULL if no row of the newest snapshot is null in it. Commits of rows that may be null in it are
refused from then on.

Some changes are for tables without a snapshot. The commit lock is taken for them, so that no writer of this machine
makes the first one meanwhile.

After the schema is there, the snapshots are looked at once more. If a commit came between that the change does not
allow, the change is taken back by one more schema. A writer whose snapshot comes later finds the schema after it has
created the snapshot, and removes the snapshot (`commit.table_commit`, step 5).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Final

from merganser.changes import Change
from merganser.commit.turns import no_turn, take_turn
from merganser.errors import ConflictError, InvalidInputError, Overtaken
from merganser.files.index import check_filters
from merganser.files.layout import check_formats
from merganser.meta.next_schema import make_next_schema
from merganser.meta.schemas import SchemaStore
from merganser.meta.shard_stream import ShardStream, stream_of
from merganser.meta.snapshot import Snapshot
from merganser.meta.snapshots import SnapshotStore
from merganser.meta.table_def import TableDef
from merganser.rules.alter import altered, checked_changes, touched
from merganser.rules.gaps import check_can_keep
from merganser.schema.table_schema import TableSchema
from merganser.storage.env import Env
from merganser.upkeep.nulls import check_no_nulls
from merganser.upkeep.shard_stream import settle, with_stream_as_asked
from merganser.upkeep.stored_order import check_order
from merganser.upkeep.stored_values import check_values

_NOTHING: Final = "Nothing was changed."


def alter(table: TableDef, env: Env, changes: Iterable[Change]) -> TableDef:
    """Change the schema of a table; return the table with its newest schema.

    Raises:
        InvalidInputError: a change that the table may not have; nothing was changed.
        ConflictError: others changed the same columns or options, or wrote the first rows, meanwhile; nothing was
            changed.
        UnsupportedError: this version could not write or read the table then; nothing was changed.
    """
    what = f"cannot alter '{table.name}'"
    changes = checked_changes(changes, what)
    snapshots = SnapshotStore(table.paths, env, table.name)
    seen: TableSchema | None = None
    newest: Snapshot | None = None
    stream: ShardStream | None = None

    def change(now: TableDef) -> TableSchema | None:
        nonlocal seen, newest, stream
        before, seen = seen or now.schema, seen or now.schema
        _check_untouched(before, now, changes)
        newest = snapshots.latest()
        try:
            made = altered(now.schema, changes, written=newest is not None, what=what)
            if made is not now.schema:
                stream = stream_of(now.schema.options, now.branch)
                made = with_stream_as_asked(made, now, env, newest, what=what)
            if newest is not None:
                check_no_nulls(now, made, env, newest, what=what)
                check_order(now, made, env, newest, what=what)
            check_can_keep(made, now.schema, what=what)
            check_formats(made, what=what)
            if newest is not None:
                check_values(now.with_schema(made), env, newest, before=now.schema, what=what)
            check_filters(made, what=what)
        except InvalidInputError as error:
            if before is now.schema:
                raise
            raise _overtaken(now.name, error.message) from error
        return None if made is now.schema else made

    with no_turn() if snapshots.latest() is not None else take_turn(table, env):
        made, is_new = make_next_schema(table, env, change)
        after = snapshots.latest() if is_new else None
        if after is not None and _came_between(snapshots, made.schema, newest, after):
            _check_allowed(made, env, changes, after, what)
    if is_new:
        settle(stream, made, env, newest)
    return made


def _came_between(snapshots: SnapshotStore, made: TableSchema, before: Snapshot | None, after: Snapshot) -> bool:
    """Return whether a writer that had not seen a schema committed since the snapshot that was looked at for it."""
    known = 0 if before is None else before.id
    since = itertools.takewhile(lambda one: one.id > known, snapshots.from_newest(after))
    return any(one.schema_id < made.id for one in since)


def _check_untouched(before: TableSchema, now: TableDef, changes: Iterable[Change]) -> None:
    """Refuse to change a schema that others made meanwhile if the changes look at what it changed."""
    was, there = touched(before, changes), touched(now.schema, changes)
    for (kind, name), value in was.items():
        if there.get((kind, name)) != value:
            what = "the description" if kind == "comment" else f"{kind} '{name}'"
            raise _overtaken(now.name, f"schema {now.schema.id}, which came first, changed {what}.")


def _overtaken(table: str, fact: str) -> ConflictError:
    return ConflictError(
        f"cannot alter '{table}': it was altered by others at the same time. {fact} {_NOTHING} Look at the table "
        "again, and repeat what is still wanted.",
        overtaken=Overtaken.SCHEMA,
        table=table,
    )


def _check_allowed(made: TableDef, env: Env, changes: Iterable[Change], newest: Snapshot, what: str) -> None:
    """Take back a change that the rows of a snapshot do not allow, which came before its schema.

    Raises:
        ConflictError: the change was taken back.
    """
    before = SchemaStore(made.paths, env).load(made.schema.id - 1)
    try:
        altered(before, changes, written=True, what=what)
        check_no_nulls(made.with_schema(before), made.schema, env, newest, what=what)
        check_order(made.with_schema(before), made.schema, env, newest, what=what)
    except InvalidInputError as error:
        make_next_schema(made, env, lambda now: before if now.schema.id == made.schema.id else None)
        raise _overtaken(made.name, error.message) from error

"""Rows that bring new columns, where `write.merge-schema` says that the table takes them: it is altered first.

Before that, what is known of the rows is checked against the table as it would be, so that rows which are refused then
leave it as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from merganser.changes import Change
from merganser.errors import ConflictError, Overtaken
from merganser.meta.followed import newest
from merganser.meta.table_def import TableDef
from merganser.options import write as w
from merganser.rules.alter import altered
from merganser.rules.merged import room_for
from merganser.schema import types as t
from merganser.storage.env import Env
from merganser.storage.retries import RACE


def fields_for(table: TableDef, env: Env, data: Any) -> tuple[t.Field, ...]:
    """Return the columns that tell of data which of its dictionaries are maps.

    Rows that may bring columns go to the newest schema, so its columns count: a handle may be older.
    """
    told = isinstance(data, pa.Table | pa.RecordBatch | pa.RecordBatchReader)  # Arrow tells its types itself
    if not told and table.options.get(w.MERGE_SCHEMA):
        table = newest(table, env)
    return table.schema.fields


def takes(table: TableDef, rows: pa.Schema | Sequence[t.Field]) -> bool:
    """Return whether rows of some columns can be written to the table without a change of its schema."""
    merges = table.options.get(w.MERGE_SCHEMA)
    return not merges or not room_for(replace(table.schema, options=table.options), rows)


def with_room(table: TableDef, rows: Sequence[t.Field]) -> TableDef:
    """Return the table as `with_columns_of` would make it of this schema; nothing is made.

    Raises:
        InvalidInputError: the table cannot have these columns.
    """
    return _altered(table, room_for(replace(table.schema, options=table.options), rows))


def _altered(table: TableDef, changes: Sequence[Change]) -> TableDef:
    return table.with_schema(altered(table.schema, changes, written=False, what=f"cannot alter '{table.name}'"))


def with_columns_of(
    table: TableDef,
    env: Env,
    rows: pa.Schema | Sequence[t.Field],
    check: Callable[[TableDef], object],
    *,
    without: Collection[str] = (),
) -> TableDef:
    """Return the table as rows of some columns can be written to it; it is altered if that takes a change.

    Args:
        rows: columns of the rows.
        check: raises if the rows do not fit a table. It is asked about the table with the changes before they are made.
        without: columns of the rows that are not stored.

    Raises:
        InvalidInputError, ConflictError: the table cannot have these columns; nothing was changed.
    """
    if not table.options.get(w.MERGE_SCHEMA):
        return table

    from merganser.upkeep.alter import alter  # noqa: PLC0415 - wanted by writes that add columns

    def made() -> TableDef:
        now = newest(table, env)
        changes = room_for(replace(now.schema, options=now.options), rows, without=without)
        if not changes:
            return now
        check(_altered(now, changes))
        return alter(now, env, changes)

    # Others add columns, too, maybe the same.
    return RACE.run(made, ConflictError, lambda error: error.overtaken is Overtaken.SCHEMA)

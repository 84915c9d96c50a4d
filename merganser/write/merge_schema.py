"""Rows that bring new columns, where `write.merge-schema` says that the table takes them: it is altered first."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa

from merganser.errors import ConflictError
from merganser.meta.newest import newest
from merganser.meta.table_def import TableDef
from merganser.options import write as w
from merganser.rules.merged import room_for
from merganser.schema import types as t
from merganser.schema.arrow import fields_from_arrow
from merganser.storage.env import Env
from merganser.upkeep.alter import alter

_ATTEMPTS: Final = 10


def with_columns_of(table: TableDef, env: Env, rows: pa.Schema, *, without: Collection[str] = ()) -> TableDef:
    """Return the table as rows of some columns can be written to it; it is altered if that takes a change.

    Args:
        rows: columns of the rows.
        without: columns of the rows that are not stored.

    Raises:
        InvalidInputError, ConflictError: the table cannot have these columns; nothing was changed.
    """
    if not table.options.get(w.MERGE_SCHEMA):
        return table
    return with_fields_of(table, env, fields_from_arrow(rows), without=without)


def with_fields_of(table: TableDef, env: Env, given: Sequence[t.Field], *, without: Collection[str] = ()) -> TableDef:
    """Return the table as rows of some columns can be written to it; see `with_columns_of`."""
    if not table.options.get(w.MERGE_SCHEMA):
        return table
    for attempt in range(_ATTEMPTS):
        table = newest(table, env)
        changes = room_for(replace(table.schema, options=table.options), given, without=without)
        if not changes:
            return table
        try:
            return alter(table, env, changes)
        except ConflictError:  # others add columns, too, maybe the same
            if attempt + 1 == _ATTEMPTS:
                raise
    raise AssertionError("the last attempt returns or raises")

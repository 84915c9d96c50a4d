"""Columns that change records tell and the table lacks, where `write.merge-schema` says that the table takes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from merganser.meta.followed import newest
from merganser.meta.table_def import TableDef
from merganser.options import write as w
from merganser.storage.env import Env

if TYPE_CHECKING:
    from merganser.cdc.records import Parsed


def with_columns_told(
    table: TableDef,
    env: Env,
    records: Any,
    format: str,
    options: Mapping[str, Any],
    parsed: Callable[[TableDef], Parsed],
    *,
    keeps_bad: bool,
) -> TableDef:
    """Return the table as change records can be written to it; it is altered if it takes their new columns.

    Args:
        records, format, options: see `merganser.cdc.parse`.
        parsed: returns the rows of the records for a table.
        keeps_bad: bad records become dead letters, so they bring no column.

    Raises:
        InvalidInputError, ConflictError: the table cannot have these columns; nothing was changed.
    """
    from merganser.cdc.new_tables import columns_told
    from merganser.cdc.records import changes_among, without
    from merganser.write.merge_schema import takes, with_columns_of, with_room
    from merganser.write.target import WriteTarget

    if not table.options.get(w.MERGE_SCHEMA):
        return table

    def check(made: TableDef) -> None:
        found = parsed(made)
        rows, kinds = found.rows, found.kinds
        if found.unavailable is not None:
            whole = found.unavailable.is_null().combine_chunks()
            rows, kinds = rows.filter(whole), kinds.filter(whole)
        WriteTarget(made).accepted(rows, kinds)

    now, action = newest(table, env), f"cannot write to '{table.name}'"
    there = now.schema.user_fields
    told = columns_told(changes_among(records, format, options), format, there, action)
    if keeps_bad and not takes(now, told):
        bad = parsed(with_room(now, told)).rejected.column("record")
        told = columns_told(changes_among(without(records, bad), format, options), format, there, action)
    return with_columns_of(table, env, told, check)

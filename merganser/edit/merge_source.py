"""The rows of a source of a merge as one table, and what its columns are."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pyarrow as pa

from merganser.errors import InvalidInputError
from merganser.expr.names import spelled
from merganser.expr.tree import Null
from merganser.ingest.rows import batches_of
from merganser.meta.table_def import TableDef
from merganser.schema import types as t
from merganser.schema.arrow import arrow_schema, fields_from_arrow, lacks_type
from merganser.schema.conform import conform
from merganser.schema.types_text import UNNUMBERED


def source_of(data: Any, table: TableDef, action: str) -> pa.Table:
    """Return the rows of a source as one table.

    A column that is null throughout takes the type of its namesake in the table; without one it stays a column of
    nulls. Rows of an empty list have the columns of the table.

    Raises:
        InvalidInputError: `data` holds no rows, has no columns or two of one name, or types that no column of a table
            can have.
    """
    fields = table.schema.shown.fields
    parts = [part for part, _ in batches_of(data, fields)]
    for part in parts:
        twice = [name for name, number in Counter(part.column_names).items() if number > 1]
        if twice:
            raise InvalidInputError(
                f"{action}: the source has {len(part.column_names):,} columns, and more than one of them is called "
                f"'{twice[0]}'. Nothing was written. Give each column a name of its own.",
                column=twice[0],
            )
    whole = pa.concat_tables(parts, promote_options="permissive") if parts else pa.table({})
    if not whole.num_columns and not any(part.num_rows for part in parts):
        return arrow_schema(fields).empty_table()
    if not whole.num_columns:
        raise InvalidInputError(
            f"{action}: the source has no columns. Nothing was written. Give rows with the columns that the condition "
            "names, such as an Arrow table."
        )
    known = {field.name: field for field in fields}
    for i, name in enumerate(spelled(whole.column_names, list(known))):
        if name in known and lacks_type(whole.schema.field(i).type):
            wanted = replace(known[name], type=known[name].type.with_nullable(True), default=None)
            typed = conform(whole.select([i]).rename_columns([name]), [wanted], action=action)
            whole = whole.set_column(i, whole.schema.field(i).with_type(typed.schema[0].type), typed.column(0))
    typed = whole.select([field.name for field in whole.schema if not pa.types.is_null(field.type)])
    found = conform(typed, fields_from_arrow(typed.schema), action=action)
    for field in whole.schema:
        if pa.types.is_null(field.type):
            found = found.append_column(field, whole.column(field.name))
    return found


def source_fields(schema: pa.Schema) -> tuple[t.Field, ...]:
    """Return the columns of a source; one that is null throughout has the type of NULL."""
    typed = {field.name: field for field in fields_from_arrow(pa.schema([f for f in schema if not _is_null(f)]))}
    return tuple(typed[f.name] if f.name in typed else t.Field(UNNUMBERED, f.name, Null()) for f in schema)


def _is_null(field: pa.Field) -> bool:
    return bool(pa.types.is_null(field.type))

"""Nulls: rows that are null in a column that is, or is to be, NOT NULL."""

from __future__ import annotations

from dataclasses import replace

from merganser.errors import InvalidInputError
from merganser.expr import build, tree
from merganser.expr.predicate import Predicate
from merganser.meta.snapshot import Snapshot
from merganser.meta.table_def import TableDef
from merganser.options import read as r
from merganser.options import write as w
from merganser.scan.rows import counted
from merganser.scan.scan import Scan
from merganser.scan.source import State
from merganser.schema import types as t
from merganser.schema.nullability import Way, tightened
from merganser.schema.table_schema import TableSchema
from merganser.storage.env import Env

_SHOWN_COLUMNS = 3


def check_no_nulls(table: TableDef, made: TableSchema, env: Env, snapshot: Snapshot, *, what: str) -> None:
    """Refuse a schema in which something is NOT NULL that is null in rows of the table.

    Statistics tell it of most files; of the others the column is read.

    Args:
        table: with the schema before.
        what: beginning of the message, such as "cannot alter 'db.orders'".

    Raises:
        InvalidInputError: names the column, how many rows are null, and one of them.
    """
    for way, inside in tightened(table.schema.user_fields, made.user_fields):
        path = ".".join(field.name for field in way)
        if inside:
            raise InvalidInputError(
                f"{what}: elements or values in column '{path}' cannot become NOT NULL, since the table has rows, or "
                "had some: whether some are null is not looked for there. Nothing was changed. Create another table, "
                "and copy the rows.",
                column=path,
            )
        scan = rows_with_null(table, env, snapshot, way)
        if count := scan.count():
            shown = replace(scan, columns=_shown(table), limit=1).to_arrow().to_pylist()
            example = ", ".join(f"{name} = {value!r:.40}" for row in shown for name, value in row.items())
            raise InvalidInputError(
                f"{what}: column '{path}' cannot become NOT NULL, since it is null in {counted(count, 'row')}, such as "
                f"{example}. Nothing was changed. Give these rows a value first: "
                f'Table.update("{scan.where}", {{...}}).',
                column=path,
                null_count=count,
            )


def rows_with_null(table: TableDef, env: Env, snapshot: Snapshot, way: Way) -> Scan:
    """Return the rows of a state that are null at a way, rows that wait for a compaction included where they can be."""
    names = tuple(field.name for field in way)
    parts = [build.is_null(tree.Column(names[:end], way[end - 1].type)) for end in range(1, len(names) + 1)]
    where = build.conjunction([*(build.negation(part) for part in parts[:-1]), parts[-1]])
    if table.keyed and table.options.get(w.DELETION_VECTORS):
        options = table.options.merged({r.DELETION_VECTORS_MERGE_ON_READ.key: "true"})
        table = replace(table, options=options)
    return Scan(table, env, way[:1], Predicate(where), State(snapshot))


def _shown(table: TableDef) -> tuple[t.Field, ...]:
    names = table.key or tuple(field.name for field in table.schema.user_fields[:_SHOWN_COLUMNS])
    return tuple(table.schema.field(name) for name in names)

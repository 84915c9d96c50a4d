"""Values that a table has, and that files of a format that it is to write cannot hold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from merganser.errors import InvalidInputError
from merganser.expr.text import parse_predicate
from merganser.files.layout import value_limits
from merganser.meta.snapshot import Snapshot
from merganser.meta.table_def import TableDef
from merganser.options import read as r
from merganser.options import write as w
from merganser.scan.scan import Scan
from merganser.scan.source import State
from merganser.scan.split import What
from merganser.schema import types as t
from merganser.schema.table_schema import TableSchema
from merganser.storage.env import Env

_NEAR: Final = ("1677-09-23 00:00:00", "2262-04-09 00:00:00")
"""Between them every format holds a timestamp in each time zone: statistics show that most files have no others."""


def check_values(table: TableDef, made: TableSchema, env: Env, snapshot: Snapshot, *, what: str) -> None:
    """Refuse a schema whose options name a format of files that cannot hold a value of the table's rows.

    Compactions and changelogs write rows in each of these formats, and would fail from then on. Columns are read only
    where they hold timestamps, and files only if their statistics do not exclude such values.

    Args:
        table: with the schema before.
        what: beginning of the message, such as "cannot alter 'db.orders'".

    Raises:
        InvalidInputError: names the column and the value.
    """
    limits = value_limits(made.options)
    if not limits.any:
        return
    checked = {field.id: field.type for field in table.schema.fields} if value_limits(table.schema.options).any else {}
    seen = table.with_schema(made)
    options = {r.DELETION_VECTORS_MERGE_ON_READ.key: "true"} if seen.options.get(w.DELETION_VECTORS) else {}
    seen = replace(seen, options=seen.options.merged(options))
    for field in made.fields:
        if not _has_timestamps(field.type) or checked.get(field.id) == field.type:
            continue
        where = None
        if isinstance(field.type, t.Timestamp | t.LocalZonedTimestamp):
            name = field.name.replace("`", "``")
            text = f"`{name}` < TIMESTAMP '{_NEAR[0]}' OR `{name}` > TIMESTAMP '{_NEAR[1]}'"
            where = parse_predicate(text, made.fields)
        stored = What.STORED if seen.keyed else What.MERGED  # retractions are rewritten, too
        for batch in Scan(seen, env, (field,), where, State(snapshot), what=stored).to_batches():
            beyond = np.flatnonzero(limits.beyond(batch.column(0)))
            if len(beyond):
                raise InvalidInputError(
                    f"{what}: column '{field.name}' of a row is {batch.column(0)[int(beyond[0])]!s:.60}, {limits.why}. "
                    "Nothing was changed. To go on, change these values, or leave the option as it is.",
                    column=field.name,
                )


def _has_timestamps(kind: t.DataType) -> bool:
    return isinstance(kind, t.Timestamp | t.LocalZonedTimestamp) or any(_has_timestamps(part) for part in _parts(kind))


def _parts(kind: t.DataType) -> Iterator[t.DataType]:
    match kind:
        case t.Row(fields=fields):
            yield from (field.type for field in fields)
        case t.Array(element=element) | t.Multiset(element=element):
            yield element
        case t.Map(key=key, value=value):
            yield from (key, value)

"""A table as it is now, for handles that were opened before its schema changed."""

from __future__ import annotations

from dataclasses import replace

from merganser.meta.schemas import SchemaStore
from merganser.meta.table_def import TableDef
from merganser.options import write as w
from merganser.storage.env import Env


def newest(table: TableDef, env: Env) -> TableDef:
    """Return the table with its newest schema.

    What rewrites files asks for it after it has read a state: an older schema would lose columns that were added since.
    """
    schemas, known = SchemaStore(table.paths, env), table.schema.id
    there = schemas.latest_id(known)
    return table if there <= known else table.with_schema(schemas.load(there))


def with_newest_buckets(table: TableDef, env: Env) -> TableDef:
    """Return the table with the number of buckets that it has now; all else stays as the caller opened it.

    Costs one look at the store, which finds that there is no newer schema.
    """
    if table.bucket <= 0 or table.bucket != table.schema.options.get(w.BUCKET):  # none, or the caller's own
        return table
    number = newest(table, env).schema.options.get(w.BUCKET)
    if number <= 0 or number == table.bucket:
        return table
    return replace(table, options=table.options.merged({w.BUCKET.key: str(number)}))

"""The option `bucket` of a table, after its rows have moved to another number of buckets, or back."""

from __future__ import annotations

from dataclasses import replace

from merganser.meta.next_schema import make_next_schema
from merganser.meta.table_def import TableDef
from merganser.options import write as w
from merganser.schema.table_schema import TableSchema
from merganser.storage.env import Env


def set_buckets(table: TableDef, env: Env, buckets: int) -> bool:
    """Make a schema with a number of buckets, unless the newest has it; return whether it did."""

    def change(now: TableDef) -> TableSchema | None:
        options = now.schema.options
        if options.get(w.BUCKET) == buckets:
            return None
        return replace(now.schema, options=options.merged({w.BUCKET.key: str(buckets)}))

    return make_next_schema(table, env, change)[1]

"""The keys of a state, bucket by bucket: those that have a row, merged as a read merges them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from merganser.meta.table_def import TableDef
from merganser.meta.table_state import TableState
from merganser.options import read as r
from merganser.options import write as w
from merganser.scan.plan import plan
from merganser.scan.read import read_split
from merganser.scan.split import Split
from merganser.storage.env import Env


def keys_of(table: TableDef, env: Env, state: TableState) -> Iterator[tuple[Split, pa.Table]]:
    """Yield the primary key of the rows of each split. Rows that wait at level 0 count.

    Raises:
        FormatError: a file is damaged or missing.
    """
    changed: dict[str, str | None] = {r.DELETION_VECTORS_MERGE_ON_READ.key: "true"}
    if table.options.get(w.MERGE_ENGINE) == "first-row":
        changed[w.MERGE_ENGINE.key] = "deduplicate"
    changing = replace(table, options=table.options.merged(changed))
    key = [table.schema.field(name) for name in table.schema.primary_keys]
    planned = plan(changing, env, state, columns=key, where=None)
    for split in planned.splits:
        assert isinstance(split, Split)
        for rows in read_split(planned.job, split, env.storage):
            yield split, rows

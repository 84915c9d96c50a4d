"""The keys of a state, bucket by bucket: those that have a row, merged as a read merges them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar

import pyarrow as pa

from merganser.meta.table_def import TableDef
from merganser.meta.table_state import TableState
from merganser.options import read as r
from merganser.options import write as w
from merganser.scan.plan import plan
from merganser.scan.read import read_split
from merganser.scan.split import AnySplit, Split
from merganser.storage.env import Env

R = TypeVar("R")


def keys_of(
    table: TableDef, env: Env, state: TableState, made: Callable[[Split, pa.Table], R]
) -> Iterator[R]:  # fmt: skip
    """Yield what is made of the primary key of the rows of each split, in no order. Rows that wait at level 0 count.

    Args:
        made: is called on the threads of this process, with some rows of a split.

    Raises:
        FormatError: a file is damaged or missing.
    """
    changed: dict[str, str | None] = {r.DELETION_VECTORS_MERGE_ON_READ.key: "true"}
    if table.options.get(w.MERGE_ENGINE) == "first-row":
        changed[w.MERGE_ENGINE.key] = "deduplicate"
    changing = replace(table, options=table.options.merged(changed))
    key = [table.schema.field(name) for name in table.schema.primary_keys]
    planned = plan(changing, env, state, columns=key, where=None)

    def read(split: AnySplit) -> Iterator[R]:
        assert isinstance(split, Split)
        for rows in read_split(planned.job, split, env.storage):
            yield made(split, rows)

    return env.gather(read, planned.splits)

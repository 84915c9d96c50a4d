"""What a snapshot would put into a log: the rows that readers of its changes get, if it has them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from merganser.log.contents import contents_of
from merganser.log.records import decode, encode
from merganser.meta.followed import as_of
from merganser.schema.row_kind import SYMBOLS, symbols
from merganser.schema.table_schema import CHANGE_KIND
from tests.everything.replica import DifferenceError

if TYPE_CHECKING:
    from tests.everything.history import History


def compare_log(h: History, after: int) -> int:
    """Compare the rows of the log with the changes, of snapshots after one; return the last that was compared.

    Raises:
        DifferenceError: they differ.
    """
    table = h.table
    definition, env = table.definition, table.env
    for snapshot in table.snapshots():
        if snapshot.id <= after:
            continue
        after = snapshot.id
        contents = contents_of(definition, env, snapshot)
        if contents.in_files:
            h.compared["snapshots that a log leaves to the files"] += 1
            continue
        there = as_of(definition, env, snapshot.schema_id)
        given: list[dict[str, Any]] = []
        for bucket in contents.buckets:
            for rows in contents.rows(env, bucket):
                codes = pa.compute.index_in(rows.column(0), pa.array(SYMBOLS)).combine_chunks().cast(pa.int8())
                records = encode(rows.drop_columns([CHANGE_KIND.name]), codes, there.schema.shown, "all")
                found, kinds = decode(records.keys, records.values, there.schema.shown)
                given += found.add_column(0, CHANGE_KIND.name, symbols(kinds)).to_pylist()
        if snapshot.schema_id != definition.schema.id:
            continue  # readers of today see other columns
        wanted = table.changes(snapshot.id, snapshot.id, gaps="skip").to_pylist()
        if Counter(map(repr, given)) != Counter(map(repr, wanted)):
            raise DifferenceError("log", f"snapshot {snapshot.id} has {given[:3]}, and its changes are {wanted[:3]}")
        h.compared["snapshots in a log"] += 1
    return after

"""What a snapshot would put into a log: the rows that readers of its changes get, if it has them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from merganser.errors import InvalidInputError
from merganser.log.contents import contents_of
from merganser.log.normalize import Normalizer, Rows
from merganser.log.records import decode, encode
from merganser.lookup.lookup import Lookup
from merganser.meta.followed import as_of
from merganser.meta.snapshot import Snapshot
from merganser.rules.checks import check_table_options
from merganser.rules.compacting import publishes_by_compaction
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
    there_are = {one.id: one for one in table.snapshots()}
    may_be_eventual = _may_be_eventual(h)
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
        changes = table.changes(snapshot.id, snapshot.id, gaps="skip").to_arrow()
        wanted = changes.to_pylist()
        if Counter(map(repr, given)) != Counter(map(repr, wanted)):
            raise DifferenceError("log", f"snapshot {snapshot.id} has {given[:3]}, and its changes are {wanted[:3]}")
        h.compared["snapshots in a log"] += 1
        if snapshot.id - 1 not in there_are or not may_be_eventual:
            continue
        if publishes_by_compaction(there.options):
            if changes.num_rows:
                _compare_published(h, changes, there_are[snapshot.id - 1], snapshot)
                h.compared["compactions of an eventual log"] += 1
            changes = table.changes(snapshot.id, snapshot.id, mode="delta", gaps="skip").to_arrow()
        if changes.num_rows:
            _compare_eventual(h, changes, there_are[snapshot.id - 1], snapshot)
            h.compared["snapshots in an eventual log"] += 1
    return after


def _may_be_eventual(h: History) -> bool:
    """Return whether the table may have an eventual log."""
    schema = h.table.definition.schema
    log = {"log.system": "kafka", "kafka.bootstrap.servers": "nowhere", "log.consistency": "eventual"}
    try:
        check_table_options(replace(schema, options=schema.options.merged(log)))
    except InvalidInputError:
        return False
    return True


def _rows_of(h: History, *snapshots: Snapshot) -> list[Rows]:
    """Return what gives the rows of the table at each of some snapshots."""
    asked = Lookup(h.table.definition, h.table.env)

    def rows_at(snapshot: Snapshot) -> Rows:
        def rows(keys: pa.Table) -> tuple[Any, pa.Table]:
            asked.move(snapshot)
            return asked.rows_of(keys.select(h.table.definition.row_key))[1:]

        return rows

    return [rows_at(snapshot) for snapshot in snapshots]


def _compare_published(h: History, changes: pa.Table, last: Snapshot, snapshot: Snapshot) -> None:
    """Check that a reader of an eventual log has what a compaction publishes."""
    normalizer = Normalizer(h.table.definition.schema.shown)
    told = normalizer.committed(changes.drop_columns([CHANGE_KIND.name]), set(), *_rows_of(h, last, snapshot))
    if told.num_rows:
        raise DifferenceError("eventual log", f"the compaction {snapshot.id} changes {told.to_pylist()[:3]}")


def _compare_eventual(h: History, changes: pa.Table, last: Snapshot, snapshot: Snapshot) -> None:
    """Hold what a reader of an eventual log gets of a snapshot, flushed and committed, against the table."""
    schema = h.table.definition.schema.shown
    before, after = _rows_of(h, last, snapshot)
    rows = changes.drop_columns([CHANGE_KIND.name])
    kinds = pa.compute.index_in(changes.column(CHANGE_KIND.name), pa.array(SYMBOLS)).combine_chunks().cast(pa.int8())
    normalizer = Normalizer(schema)
    told = [
        *normalizer.flushed(rows, kinds, "a write", before).to_pylist(),
        *normalizer.committed(rows, {"a write"}, before, after).to_pylist(),
    ]
    keys = rows.select(schema.primary_keys).group_by(list(schema.primary_keys)).aggregate([])
    shown = Counter(map(repr, before(keys)[1].to_pylist()))
    for change in told:
        gone = change.pop(CHANGE_KIND.name) in ("-U", "-D")
        shown.update({repr(change): -1 if gone else 1})
    wanted = Counter(map(repr, after(keys)[1].to_pylist()))
    if +shown != wanted or normalizer.writes or -shown:
        raise DifferenceError("eventual log", f"snapshot {snapshot.id} leads to {shown}, and the table has {wanted}")

"""Shown: what a stream of an eventual log has handed over: a snapshot of the table, and rows that are not committed.

::

    rows that a writer has flushed      -> changes, if their write has not ended
    a commit                            -> changes, if readers were not told of them before
    a write that was dropped,
    or is not committed in time         -> changes that take its rows back

The table is the state to compare with: its rows are looked up by key (`log.normalize`). With 'scan.remove-normalize',
rows are handed over as the log has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from merganser.commit.log import write_names
from merganser.log.normalize import Normalizer, Rows
from merganser.lookup.lookup import Lookup
from merganser.merge.groups import Positions
from merganser.meta.snapshot import Snapshot
from merganser.meta.snapshots import SnapshotStore
from merganser.meta.table_def import TableDef
from merganser.options import read as r
from merganser.options import write as w
from merganser.schema.arrow import nullable_schema
from merganser.schema.row_kind import symbols
from merganser.schema.table_schema import CHANGE_KIND
from merganser.storage.env import Env

if TYPE_CHECKING:
    from merganser.log.uncommitted import FlushedRows

_NAMES_MAX: Final = 10_000
"""Maximum number of snapshots whose writes are remembered."""


class Shown:
    """What a stream of an eventual log has handed over; see the module.

    Args:
        resumed: an earlier reader may have handed over rows that were not committed, and what became of them is not
            known. Their keys are handed over once more.
    """

    def __init__(self, table: TableDef, env: Env, *, resumed: bool) -> None:
        self._env = env
        self._repeats = resumed
        self._as_logged = table.options.get(r.SCAN_REMOVE_NORMALIZE)
        self._timeout_ms = int(table.options.get(w.LOG_UNCOMMITTED_TIMEOUT).total_seconds() * 1000)
        self._told_ms: dict[str, int] = {}
        self._names: dict[int, tuple[str, ...]] = {}
        self._table = table
        self._store = SnapshotStore(table.paths, env, table.name)
        self._normalizer = Normalizer(table.schema.shown)
        self._lookup: Lookup | None = None
        self._at: Snapshot | None = None

    def since_ms(self, last: Snapshot | None) -> int:
        """Return the time since which rows were sent that may matter, in epoch milliseconds.

        Args:
            last: the snapshot that was handed over last; None: none, or it is not known.
        """
        begun = self._env.now_ms() if last is None or not self._repeats else last.time_millis
        return begun - self._timeout_ms

    def flushed(self, parts: Sequence[FlushedRows], position: int) -> pa.Table:
        """Take what writers have sent; return what changes: `_row_kind`, then the columns of the table.

        Args:
            position: the snapshot that was handed over last; 0: none.
        """
        table = self._rows_at(position)
        restart = max((i for i, part in enumerate(parts) if part.told.end and not part.told.write), default=-1)
        ended = {part.told.write for part in parts[restart + 1 :] if part.told.end}
        dropped = {part.told.write for part in parts if part.told.end == "dropped"}
        found = [self._dropped(self._normalizer.writes if "" in dropped else dropped, table)]
        oldest = self._env.now_ms() - self._timeout_ms
        for i, part in enumerate(parts):
            told = part.told
            if told.end or told.schema != self._table.schema.id or self._is_committed(told.write, told.after, position):
                continue
            rows, kinds = part.rows(self._table.schema.shown)
            if i < restart or told.write in ended or part.time_ms < oldest:
                if self._repeats and not self._as_logged:
                    found.append(self._normalizer.repeated(rows, table))
            elif self._as_logged:
                found.append(rows.add_column(0, CHANGE_KIND.name, symbols(kinds)))
            else:
                self._told_ms[told.write] = part.time_ms
                found.append(self._normalizer.flushed(rows, kinds, told.write, table))
        self._repeats = False
        return pa.concat_tables(found, promote_options="default")

    @property
    def has_late(self) -> bool:
        """Whether there are rows for `late`."""
        return bool(self._told_ms) and min(self._told_ms.values()) < self._env.now_ms() - self._timeout_ms

    def late(self, position: int) -> pa.Table:
        """Take back rows whose write has not ended in time; return what changes."""
        oldest = self._env.now_ms() - self._timeout_ms
        late = {write for write, told_ms in self._told_ms.items() if told_ms < oldest}
        return self._dropped(late, self._rows_at(position))

    def committed(self, table: TableDef, rows: pa.Table, snapshot: Snapshot, position: int) -> pa.Table:
        """Take what a snapshot publishes; return what changes.

        Args:
            table: with the schema of the snapshot.
            rows: all rows that it publishes, in all columns.
            position: the snapshot that was handed over before; the snapshots between them have published nothing.
        """
        if self._as_logged:
            return rows
        ended = self._normalizer.writes
        if table.schema.id != self._table.schema.id:  # rows of another schema come again, with their commit
            self._normalizer = self._normalizer.under(table.schema.shown)
            self._table, self._lookup, self._at = table, None, None
        elif ended:
            ended &= {name for number in range(position + 1, snapshot.id + 1) for name in self._names_of(number)}
        if not rows.num_rows and not ended:
            return rows
        after, before = self._store.get(snapshot.id), self._store.get(snapshot.id - 1)
        if after is None or (before is None and snapshot.id > 1):
            return rows  # nobody can tell any more what the rows were before
        for write in ended:
            self._told_ms.pop(write, None)
        self._at = after
        return self._normalizer.committed(rows, ended, self._rows_of(before), self._rows_of(after))

    def _dropped(self, writes: frozenset[str] | set[str], table: Rows) -> pa.Table:
        for write in writes:
            self._told_ms.pop(write, None)
        held = self._normalizer.writes & writes
        return self._normalizer.dropped(held, table) if held else self._normalizer.nothing

    def _is_committed(self, write: str, after: int, position: int) -> bool:
        """Return whether the commit of a write was handed over."""
        return any(write in self._names_of(number) for number in range(after + 1, position + 1))

    def _names_of(self, number: int) -> tuple[str, ...]:
        """Return the names of the write of a snapshot; none if it has expired."""
        if number not in self._names:
            found = self._store.get(number)
            if len(self._names) >= _NAMES_MAX:
                self._names.clear()
            self._names[number] = () if found is None else write_names(found)
        return self._names[number]

    def _rows_at(self, position: int) -> Rows:
        """Return what gives the rows of the table at a snapshot. If that has expired, those of the newest one."""

        def rows(keys: pa.Table) -> tuple[Positions, pa.Table]:
            if position and (self._at is None or self._at.id != position):
                self._at = self._store.get(position) or self._store.latest()
            return self._rows_of(self._at if position else None)(keys)

        return rows

    def _rows_of(self, snapshot: Snapshot | None) -> Rows:
        """Return what gives the rows of the table at a snapshot; None: of a table without snapshots."""

        def rows(keys: pa.Table) -> tuple[Positions, pa.Table]:
            if snapshot is None:
                return np.zeros(0, np.int64), nullable_schema(self._table.schema.shown.fields).empty_table()
            if self._lookup is None:
                self._lookup = Lookup(self._table, self._env)
            self._lookup.move(snapshot)
            return self._lookup.rows_of(keys.select(self._table.row_key), snapshot)[1:]

        return rows

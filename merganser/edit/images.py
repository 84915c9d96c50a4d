"""Upserted: what a call of `Table.upsert` did to its keys."""

from __future__ import annotations

from functools import cached_property

import pyarrow as pa

from merganser.merge.groups import Mask
from merganser.merge.images import Fate
from merganser.meta.snapshot import Snapshot
from merganser.scan.images import Images, fate_of, rows_of_changes
from merganser.values import dataclass


@dataclass(frozen=True, slots=True)
class _Change:
    """What became of k keys, and their images."""

    before: Images
    after: Images
    fate: Fate

    def rows(self) -> pa.Table:
        """Return the rows of `Upserted.changes`."""
        return rows_of_changes(self.before, self.after, self.fate)


@dataclass(frozen=True, repr=False, eq=False)
class Upserted:
    """What became of the rows of one call of `Table.upsert`.

    Attributes:
        snapshot: the commit. None: nothing had to be committed; or an earlier call committed it, and its snapshot has
            expired.
        inserted, updated, deleted, unchanged: numbers of different keys. None: the earlier state can no longer be read.
        rows: the rows that the given keys have after the commit: all columns, in the order of the keys given, each key
            once. None: the state of the commit can no longer be read.
    """

    snapshot: Snapshot | None
    inserted: int | None
    updated: int | None
    deleted: int | None
    unchanged: int | None
    rows: pa.Table | None
    _change: _Change | None

    @cached_property
    def changes(self) -> pa.Table | None:
        """What the commit changed, in the order of the keys: the column `_row_kind` and all columns of the table.

        `+I`; `-U` and `+U`, the row before and after; `-D`, the row before. None: as for the numbers.
        """
        return None if self._change is None else self._change.rows()

    def __repr__(self) -> str:
        counts = f"inserted={self.inserted}, updated={self.updated}, deleted={self.deleted}, unchanged={self.unchanged}"
        return f"Upserted({counts}, snapshot={None if self.snapshot is None else self.snapshot.id})"


def upserted(
    snapshot: Snapshot | None, before: Images | None, after: Images | None, same: Mask | None = None
) -> Upserted:
    """Return what became of keys.

    Args:
        before, after: the same keys in the state before the commit and in that of the commit; None: it is unknown.
        same: what `before.same(after)` gives, if it is known.
    """
    rows = None if after is None else after.taken(after.there)
    if before is None or after is None:
        return Upserted(snapshot, None, None, None, None, rows, None)
    same = before.same(after) if same is None else same
    fate = fate_of(before, after, same)
    return Upserted(
        snapshot,
        int(fate.inserted.sum()),
        int(fate.updated.sum()),
        int(fate.deleted.sum()),
        int(same.sum()),
        rows,
        _Change(before, after, fate),
    )

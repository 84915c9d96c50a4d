"""Images: the rows of some keys before and after a commit, and what became of each key."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from merganser.merge.groups import Mask, Positions
from merganser.merge.images import Fate
from merganser.meta.snapshot import Snapshot
from merganser.scan.rows import joined
from merganser.schema import row_kind
from merganser.schema.pieces import PIECE_BYTES_MAX, rows_at
from merganser.schema.same import same_rows
from merganser.schema.table_schema import CHANGE_KIND


@dataclass(frozen=True)
class Images:
    """The rows of k different keys in one state.

    Attributes:
        place: int64[k], where in `rows` the row of each key is; -1: the key has none.
        rows: the rows, all columns.
    """

    place: Positions
    rows: pa.Table

    @classmethod
    def of(cls, count: int, which: Positions, rows: pa.Table) -> Images:
        """Return the images of `count` keys: `which` of them have `rows`."""
        place = np.full(count, -1, np.int64)
        place[which] = np.arange(len(which))
        return cls(place, rows)

    @property
    def there(self) -> Mask:
        """bool[k], which keys have a row."""
        return self.place >= 0

    def taken(self, keys: Mask) -> pa.Table:
        """Return the rows of some keys, in their order; all of them have one."""
        return rows_at(self.rows, self.place[keys])

    def same(self, other: Images) -> Mask:
        """Return bool[k], which keys have the same row in both, or none in both."""
        found: Mask = self.there == other.there
        both = np.flatnonzero(self.there & other.there)
        size = max(1, self.rows.nbytes, other.rows.nbytes)
        step = max(1, len(both) * PIECE_BYTES_MAX // size)  # rows that are compared are copied
        for start in range(0, len(both), step):
            at = both[start : start + step]
            found[at] = same_rows(rows_at(self.rows, self.place[at]), rows_at(other.rows, other.place[at]))
        return found


@dataclass(frozen=True, slots=True)
class _Change:
    """What became of k keys, and their images."""

    before: Images
    after: Images
    fate: Fate

    def rows(self) -> pa.Table:
        """Return the rows of `Upserted.changes`."""
        order, kinds = self.fate.interleaved()
        images = [self.before.taken(self.fate.olds), self.after.taken(self.fate.news)]
        rows = rows_at(joined(images), order)
        texts = pa.array(row_kind.SYMBOLS).take(pa.array(kinds))
        return rows.add_column(0, CHANGE_KIND.name, texts)


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
    inserted = after.there & ~before.there
    deleted = before.there & ~after.there
    updated = ~same & before.there & after.there
    return Upserted(
        snapshot,
        int(inserted.sum()),
        int(updated.sum()),
        int(deleted.sum()),
        int(same.sum()),
        rows,
        _Change(before, after, Fate(inserted, updated, deleted)),
    )

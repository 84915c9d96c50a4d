"""Images: the rows of some keys in one state; two of them give what became of each key."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from merganser.merge.groups import Mask, Positions
from merganser.merge.images import Fate
from merganser.scan.rows import joined
from merganser.schema import row_kind
from merganser.schema.pieces import PIECE_BYTES_MAX, rows_at
from merganser.schema.same import same_rows
from merganser.schema.table_schema import CHANGE_KIND
from merganser.values import dataclass


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


def fate_of(before: Images, after: Images, same: Mask) -> Fate:
    """Return what became of k keys.

    Args:
        same: what `before.same(after)` gives.
    """
    return Fate(after.there & ~before.there, ~same & before.there & after.there, before.there & ~after.there)


def rows_of_changes(before: Images, after: Images, fate: Fate) -> pa.Table:
    """Return changes in the order of the keys: the column `_row_kind`, then the columns of the rows.

    `+I`; `-U` and `+U`, the row before and after; `-D`, the row before.
    """
    order, kinds = fate.interleaved()
    rows = rows_at(joined([before.taken(fate.olds), after.taken(fate.news)]), order)
    return rows.add_column(0, CHANGE_KIND.name, row_kind.symbols(pa.array(kinds)))

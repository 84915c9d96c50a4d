"""What became of keys, as changes: the row before as -U or -D, the row after as +U or +I, in the order of the keys."""

from __future__ import annotations

import numpy as np

from merganser.merge.engine import Kinds
from merganser.merge.groups import Mask, Positions
from merganser.schema import row_kind
from merganser.values import dataclass


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of k keys, bool[k] each; all False: nothing.

    Attributes:
        inserted: there was no row, and there is one.
        updated: there is another row.
        deleted: there is no row any more.
    """

    inserted: Mask
    updated: Mask
    deleted: Mask

    @property
    def olds(self) -> Mask:
        """bool[k], the keys whose row before is shown."""
        return self.updated | self.deleted

    @property
    def news(self) -> Mask:
        """bool[k], the keys whose row after is shown."""
        return self.updated | self.inserted

    def interleaved(self) -> tuple[Positions, Kinds]:
        """Return the order of the changes, over the rows before followed by the rows after, and their kinds."""
        kinds = np.concatenate(
            [
                np.where(self.updated[self.olds], row_kind.UPDATE_BEFORE, row_kind.DELETE),
                np.where(self.updated[self.news], row_kind.UPDATE_AFTER, row_kind.INSERT),
            ]
        ).astype(np.int8)
        order = np.argsort(np.concatenate([np.flatnonzero(self.olds), np.flatnonzero(self.news)]), kind="stable")
        return order, kinds[order]

"""The rows of one call, checked, and grouped by key."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from merganser.merge.groups import Groups, Positions, groups_of
from merganser.merge.keys import sorted_positions
from merganser.meta.table_def import TableDef
from merganser.values import dataclass

Kinds = npt.NDArray[np.int8]


@dataclass(frozen=True)
class Given:
    """n rows of k different keys. What is said of keys is in the order in which they first occur.

    Attributes:
        rows: the rows, in the types of the table: all of its columns, or some of them with the whole key.
        kinds: int8[n]; None: all rows are inserts.
        groups: the rows of each key, in the order in which they were given; groups in the order of keys.
        order: int64[k], for each key its group.
        keys: the key columns of each key.
    """

    rows: pa.Table
    kinds: Kinds | None
    groups: Groups
    order: Positions
    keys: pa.Table

    @property
    def first(self) -> Positions:
        """int64[k], the first row of each key."""
        return self.groups.first[self.order]

    @property
    def last(self) -> Positions:
        """int64[k], the last row of each key."""
        return self.groups.last[self.order]


def given_rows(table: TableDef, rows: pa.Table, kinds: pa.Array | None) -> Given:
    """Return rows grouped by key.

    Args:
        rows: without nulls in key columns.
        kinds: int8[n]; None: all rows are inserts.
    """
    names = table.row_key
    groups = groups_of(*sorted_positions([rows.column(name) for name in names]))
    order = np.argsort(groups.first, kind="stable")
    keys = rows.select(names).take(pa.array(groups.first[order]))
    return Given(rows, None if kinds is None else kinds.to_numpy(), groups, order, keys)

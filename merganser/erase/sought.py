"""Sought: which stored rows are erased.

A filter on columns of the primary key says it of every version of a row. Any other filter may let one version of a row
through and not the next. So of a table with a key, the keys are found first, and all versions of these keys are sought.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merganser.expr.predicate import Predicate
from merganser.lsm.levels import dense_ranks
from merganser.merge.groups import Mask
from merganser.merge.keys import sorted_positions
from merganser.meta.table_def import TableDef


@dataclass(frozen=True, slots=True)
class Sought:
    """Rows that are erased. Pickles.

    Attributes:
        where: the filter.
        by: columns whose values say which rows; None: `where` says it, row by row.
        keys: distinct rows of the columns of `TableDef.row_key` that were found so far; only with `by`.
    """

    where: Predicate
    by: tuple[str, ...] | None
    keys: pa.Table | None = None

    @classmethod
    def of(cls, table: TableDef, where: Predicate) -> Sought:
        """Return what a filter seeks in a table; no key is known yet."""
        names = table.schema.primary_keys
        return cls(where, None if not table.keyed or where.columns <= set(names) else names)

    @property
    def columns(self) -> frozenset[str]:
        """The columns that `mask` looks at."""
        return self.where.columns if self.by is None else frozenset(self.by)

    def mask(self, rows: pa.Table) -> Mask:
        """Return bool[n], which of n rows are sought."""
        if self.by is None:
            return np.asarray(self.where.mask(rows).fill_null(False))
        if self.keys is None or not self.keys.num_rows:
            return np.zeros(rows.num_rows, np.bool_)
        return among(rows, self.keys, self.by)


def among(rows: pa.Table, keys: pa.Table, names: Sequence[str]) -> Mask:
    """Return bool[n], whose values in some columns are those of a row of `keys`; nulls are equal.

    Args:
        rows: n rows, with at least the columns `names`.
        keys: k rows, likewise.
    """
    found = np.ones(rows.num_rows, np.bool_)
    exact = len(names) == 1
    for name in names:
        values = rows.column(name)
        if pa.types.is_floating(values.type):  # Arrow looks numbers up by their bytes
            exact = False
            continue
        found &= np.asarray(pc.is_in(values, value_set=keys.column(name).combine_chunks().cast(values.type)))
        if not found.any():
            return found
    if exact:
        return found
    at = np.flatnonzero(found)
    candidates = rows.select(list(names)).take(pa.array(at))
    known, there = dense_ranks(_columns(keys, candidates.schema), _columns(candidates, candidates.schema))
    found[at] = np.isin(there, known)
    return found


def _columns(rows: pa.Table, kinds: pa.Schema) -> list[pa.Array]:
    return [rows.column(kind.name).cast(kind.type).combine_chunks() for kind in kinds]


def distinct(tables: Collection[pa.Table]) -> pa.Table | None:
    """Return the distinct rows of tables with equal columns; None: there are none."""
    there = [table for table in tables if table.num_rows]
    if not there:
        return None
    rows = pa.concat_tables([table.cast(there[0].schema) for table in there])
    positions, is_last = sorted_positions(list(rows.columns))
    return rows.take(pa.array(positions[is_last]))

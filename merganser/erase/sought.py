"""Sought: which stored rows are erased.

A filter on columns of the primary key says it of every version of a row. Any other filter may let one version of a row
through and not the next. So of a table with a key, the keys are found first, and all versions of these keys are sought.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merganser.expr.predicate import Predicate
from merganser.lsm.levels import dense_ranks
from merganser.merge.groups import Mask
from merganser.merge.keys import sorted_positions
from merganser.meta.table_def import TableDef
from merganser.schema.arrow import arrow_type
from merganser.values import dataclass


@dataclass(frozen=True, slots=True)
class Sought:
    """Rows that are erased. Pickles.

    Attributes:
        where: the filter.
        by: columns whose values say which rows; None: `where` says it, row by row.
        row_key: see `TableDef`; empty without `by`.
        kinds: the Arrow types of the columns of `where`. A branch that never had one of them has nulls there.
        keys: distinct rows of the columns of `row_key` that were found so far; only with `by`.
    """

    where: Predicate
    by: tuple[str, ...] | None
    row_key: tuple[str, ...]
    kinds: Mapping[str, pa.DataType]
    keys: pa.Table | None = None

    @classmethod
    def of(cls, table: TableDef, where: Predicate) -> Sought:
        """Return what a filter seeks in a table; no key is known yet."""
        names = table.schema.primary_keys
        kinds = {field.name: arrow_type(field.type) for field in table.schema.fields if field.name in where.columns}
        if not table.keyed or where.columns <= set(names):
            return cls(where, None, (), kinds)
        return cls(where, names, table.row_key, kinds)

    @property
    def columns(self) -> frozenset[str]:
        """The columns that `mask` looks at."""
        return self.where.columns if self.by is None else frozenset(self.by)

    @property
    def decides(self) -> frozenset[str]:
        """The columns that say which rows, and find their keys."""
        return self.where.columns.union(self.row_key)

    def passed(self, rows: pa.Table) -> Mask:
        """Return bool[n], which of n rows the filter lets through."""
        for name, kind in self.kinds.items():
            if name not in rows.column_names:
                rows = rows.append_column(name, pa.nulls(rows.num_rows, kind))
        return np.asarray(self.where.mask(rows).fill_null(False))

    def mask(self, rows: pa.Table) -> Mask:
        """Return bool[n], which of n rows are sought."""
        if self.by is None:
            return self.passed(rows)
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

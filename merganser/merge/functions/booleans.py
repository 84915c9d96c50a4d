"""bool_and and bool_or: nulls are ignored."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pyarrow as pa

from merganser.merge.functions.function import LateRows, Traits, refuse_retractions
from merganser.merge.functions.segments import any_of, empty, validity, whole
from merganser.merge.groups import Groups
from merganser.schema import types as t
from merganser.values import dataclass


@dataclass(frozen=True, slots=True)
class BoolAnd(Traits):
    """Whether all values are true."""

    late_rows: ClassVar[LateRows] = LateRows.ANYWHERE
    column: t.Field
    name: str = "bool_and"
    retracts: bool = False

    def fold(self, column: pa.ChunkedArray, groups: Groups) -> pa.Array:
        refuse_retractions(groups, self.column, self.name)
        return _any_that_is(False, column, groups)


@dataclass(frozen=True, slots=True)
class BoolOr(Traits):
    """Whether any value is true."""

    late_rows: ClassVar[LateRows] = LateRows.ANYWHERE
    column: t.Field
    name: str = "bool_or"
    retracts: bool = False

    def fold(self, column: pa.ChunkedArray, groups: Groups) -> pa.Array:
        refuse_retractions(groups, self.column, self.name)
        return _any_that_is(True, column, groups)


def _any_that_is(wanted: bool, column: pa.ChunkedArray, groups: Groups) -> pa.Array:
    """Return `wanted` for groups where it occurs, else its opposite, and null where there is no value."""
    if not groups.count:
        return empty(column.type)
    array = whole(column)
    valid = validity(array)
    hits = array.fill_null(not wanted).to_numpy(zero_copy_only=False) == wanted
    values = any_of(hits[groups.positions], groups.starts) == wanted
    mask = None if valid is None else ~any_of(valid[groups.positions], groups.starts)
    return pa.array(np.ascontiguousarray(values), pa.bool_(), mask=mask)

"""Functions that choose one row of a group: first or last, with or without the nulls."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from merganser.merge.functions.function import picked, refuse_retractions
from merganser.merge.functions.segments import any_of
from merganser.merge.groups import Groups, Mask, Positions
from merganser.schema import types as t


@dataclass(frozen=True, slots=True)
class LastValue:
    """The last value, null or not; null when the last row retracts."""

    column: t.Field
    name: str = "last_value"
    retracts: bool = True

    def pick(self, valid: Mask | None, groups: Groups) -> Positions:
        if not groups.count:
            return groups.starts
        return _unless_retracted(groups.last, groups.ends - 1, groups)

    def fold(self, column: pa.ChunkedArray, groups: Groups) -> pa.Array:
        return picked(self, column, groups)


@dataclass(frozen=True, slots=True)
class LastNonNullValue:
    """The last value that is not null; null when its row retracts."""

    column: t.Field
    name: str = "last_non_null_value"
    retracts: bool = True

    def pick(self, valid: Mask | None, groups: Groups) -> Positions:
        if not groups.count:
            return groups.starts
        rows = groups.ends - 1
        if valid is None:
            return _unless_retracted(groups.last, rows, groups)
        out, rows = _nearest(valid, groups, rows, -1)
        return _unless_retracted(out, rows, groups)

    def fold(self, column: pa.ChunkedArray, groups: Groups) -> pa.Array:
        return picked(self, column, groups)


@dataclass(frozen=True, slots=True)
class FirstValue:
    """The first value, null or not."""

    column: t.Field
    name: str = "first_value"
    retracts: bool = False

    def pick(self, valid: Mask | None, groups: Groups) -> Positions:
        refuse_retractions(groups, self.column, self.name)
        return groups.first

    def fold(self, column: pa.ChunkedArray, groups: Groups) -> pa.Array:
        return picked(self, column, groups)


@dataclass(frozen=True, slots=True)
class FirstNonNullValue:
    """The first value that is not null."""

    column: t.Field
    name: str = "first_non_null_value"
    retracts: bool = False

    def pick(self, valid: Mask | None, groups: Groups) -> Positions:
        refuse_retractions(groups, self.column, self.name)
        if valid is None or not groups.count:
            return groups.first
        return _nearest(valid, groups, groups.starts, 1)[0]

    def fold(self, column: pa.ChunkedArray, groups: Groups) -> pa.Array:
        return picked(self, column, groups)


@dataclass(frozen=True, slots=True)
class KeyValue:
    """The value of a key column, which all rows of a group share."""

    column: t.Field
    name: str = "primary-key"
    retracts: bool = True

    def pick(self, valid: Mask | None, groups: Groups) -> Positions:
        return groups.last if groups.count else groups.starts

    def fold(self, column: pa.ChunkedArray, groups: Groups) -> pa.Array:
        return picked(self, column, groups)


def _nearest(valid: Mask, groups: Groups, rows: Positions, step: int) -> tuple[Positions, Positions]:
    """Walk from `rows` (over sorted rows, one per group) by `step` to the first value of each group.

    Only groups that have found none yet go on, so the work is k and then what is left: a gather of all n rows
    would cost more than everything else.

    Returns:
        Rows of the table, -1 where a group has no value; the same over sorted rows.
    """
    rows = rows.copy()
    out = groups.positions[rows]
    waiting = np.flatnonzero(~valid[out])
    out[waiting] = -1
    while len(waiting):
        rows[waiting] += step
        inside = (rows[waiting] >= groups.starts[waiting]) & (rows[waiting] < groups.ends[waiting])
        rows[waiting[~inside]] -= step
        waiting = waiting[inside]
        here = groups.positions[rows[waiting]]
        found = valid[here]
        out[waiting[found]] = here[found]
        waiting = waiting[~found]
    return out, rows


def _unless_retracted(out: Positions, rows: Positions, groups: Groups) -> Positions:
    """Replace by -1 what a retracting row gives, `rows` being the sorted rows that were chosen.

    The image of a group of retractions keeps its row.
    """
    if groups.additions is None:
        return out
    gone = ~groups.additions[rows]
    gone &= any_of(groups.additions, groups.starts)
    return np.where(gone, -1, out) if gone.any() else out

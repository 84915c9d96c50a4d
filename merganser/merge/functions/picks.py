"""Functions that choose one row of a group: first or last, with or without the nulls."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pyarrow as pa

from merganser.merge.functions.function import Traits, picked, refuse_retractions
from merganser.merge.functions.segments import any_of, taken, validity
from merganser.merge.groups import Groups, Mask, Positions
from merganser.schema import types as t
from merganser.values import dataclass


@dataclass(frozen=True, slots=True)
class LastValue(Traits):
    """The last value, null or not; null when the last row retracts.

    A NOT NULL column keeps the value of that row: a `-U` whose `+U` does not come leaves no null there.
    """

    column: t.Field
    name: str = "last_value"
    retracts: bool = True

    def pick(self, valid: Mask | None, groups: Groups) -> Positions:
        if not groups.count:
            return groups.starts
        if not self.column.type.nullable:
            return groups.last
        return _unless_retracted(groups.last, groups.ends - 1, groups)

    def fold(self, column: pa.ChunkedArray, groups: Groups) -> pa.Array:
        return picked(self, column, groups)


@dataclass(frozen=True, slots=True)
class LastNonNullValue(Traits):
    """The last value that is not null; null when its row retracts. A NOT NULL column keeps the value of that row."""

    takes_back: ClassVar[bool] = True
    column: t.Field
    name: str = "last_non_null_value"
    retracts: bool = True

    def pick(self, valid: Mask | None, groups: Groups) -> Positions:
        if not groups.count:
            return groups.starts
        row, place = (groups.last, groups.ends - 1) if valid is None else _nearest(valid, groups, last=True)
        return _unless_retracted(row, place, groups) if self.column.type.nullable else row

    def taken_back(self, column: pa.ChunkedArray, groups: Groups) -> pa.Array:
        # A null that is added leaves older values as they are. So where a retraction decides, it has to reach them.
        assert groups.additions is not None
        if not self.column.type.nullable:
            return pa.nulls(groups.count, column.type)
        valid = validity(column)
        if valid is None:
            row, place = groups.last, groups.ends - 1
        else:
            row, place = _nearest(valid, groups, last=True)
        return taken(column, np.where(groups.additions[place], -1, row))

    def fold(self, column: pa.ChunkedArray, groups: Groups) -> pa.Array:
        return picked(self, column, groups)


@dataclass(frozen=True, slots=True)
class FirstValue(Traits):
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
class FirstNonNullValue(Traits):
    """The first value that is not null."""

    column: t.Field
    name: str = "first_non_null_value"
    retracts: bool = False

    def pick(self, valid: Mask | None, groups: Groups) -> Positions:
        refuse_retractions(groups, self.column, self.name)
        if valid is None or not groups.count:
            return groups.first
        return _nearest(valid, groups, last=False)[0]

    def fold(self, column: pa.ChunkedArray, groups: Groups) -> pa.Array:
        return picked(self, column, groups)


@dataclass(frozen=True, slots=True)
class KeyValue(Traits):
    """The value of a key column, which all rows of a group share."""

    column: t.Field
    name: str = "primary-key"
    retracts: bool = True

    def pick(self, valid: Mask | None, groups: Groups) -> Positions:
        return groups.last if groups.count else groups.starts

    def fold(self, column: pa.ChunkedArray, groups: Groups) -> pa.Array:
        return picked(self, column, groups)


def _nearest(valid: Mask, groups: Groups, *, last: bool) -> tuple[Positions, Positions]:
    """Return the last, or first, row of each group that has a value.

    The search walks from the end of a group to the other, and only for groups that have found none yet: the work is
    k and then what is left. A gather of all n rows would cost more than everything else.

    Returns:
        Rows of the table, one of its nulls where a group has no value (a gather without -1 is faster); and the same
        over sorted rows, there the row where the search ended.
    """
    rows = groups.ends - 1 if last else groups.starts.copy()
    out = (groups.last if last else groups.first).copy()
    waiting = np.flatnonzero(~valid[out])
    at = rows[waiting]
    stop = groups.starts[waiting] if last else groups.ends[waiting] - 1
    step = -1 if last else 1
    while len(waiting):
        more = np.flatnonzero(at != stop)
        if len(more) < len(at):
            waiting, at, stop = waiting[more], at[more], stop[more]
        at += step
        rows[waiting] = at
        here = groups.positions[at]
        found = valid[here]
        hit, left = np.flatnonzero(found), np.flatnonzero(~found)
        out[waiting[hit]] = here[hit]
        waiting, at, stop = waiting[left], at[left], stop[left]
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

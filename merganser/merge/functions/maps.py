"""merge_map and merge_map_with_keytime: maps laid over each other, keys standing where they were first seen."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pyarrow as pa

from merganser.merge.functions.entries import KEY, VALUE, Entries, apart, runs_of
from merganser.merge.functions.equality import ranks
from merganser.merge.functions.function import LateRows, Traits, image, refuse_retractions
from merganser.merge.functions.segments import empty, taken, validity
from merganser.merge.groups import Groups, Mask, Positions
from merganser.schema import types as t
from merganser.values import dataclass


@dataclass(frozen=True, slots=True)
class MergeMap(Traits):
    """The entries of all maps; of several with one key the last. A retracted map takes its keys away."""

    takes_back: ClassVar[bool] = True
    column: t.Field
    name: str = "merge_map"
    retracts: bool = True

    def taken_back(self, column: pa.ChunkedArray, groups: Groups) -> pa.Array:
        return image(self, column, groups)

    def fold(self, column: pa.ChunkedArray, groups: Groups) -> pa.Array:
        return apart(column, groups, _chosen) if groups.count else empty(column.type)


@dataclass(frozen=True, slots=True)
class MergeMapWithKeytime(Traits):
    """The entries of all maps, of several with one key the one whose row has the latest time.

    The first map is taken as it is. From then on an entry without a row removes its key, one without a time is
    skipped, and one of an equal time changes nothing. Times are compared as text, by its bytes.

    Attributes:
        column: the column, a map of rows.
        time: field of the row that holds the time; None: the last.
    """

    late_rows: ClassVar[LateRows] = LateRows.ONE_BY_ONE
    column: t.Field
    time: str | None = None
    name: str = "merge_map_with_keytime"
    retracts: bool = False

    def fold(self, column: pa.ChunkedArray, groups: Groups) -> pa.Array:
        refuse_retractions(groups, self.column, self.name)
        return apart(column, groups, self._chosen) if groups.count else empty(column.type)

    def _chosen(self, entries: Entries, groups: Groups) -> tuple[Entries, Positions]:
        removal = entries.missing(VALUE)
        entries = entries.only(entries.of_first | removal | ~self._untimed(entries))
        if not len(entries):
            return entries, entries.at
        removal = entries.missing(VALUE) & ~entries.of_first
        runs = runs_of(entries.group, entries.codes(KEY), removal)
        rank = np.zeros(len(entries), np.int64)
        contested = runs.contested
        if len(contested):
            rank[contested] = ranks([_text(taken(self._times(entries), entries.at[contested]))])
        return entries, runs.chosen(rank, last=False)[1]

    def _untimed(self, entries: Entries) -> Mask:
        valid = validity(self._times(entries))
        return np.zeros(len(entries), np.bool_) if valid is None else ~valid[entries.at]

    def _times(self, entries: Entries) -> pa.Array:
        rows = entries.source.field(VALUE)
        names = [field.name for field in rows.type]
        return rows.flatten()[-1 if self.time is None else names.index(self.time)]


def _chosen(entries: Entries, groups: Groups) -> tuple[Entries, Positions]:
    return entries, runs_of(entries.group, entries.codes(KEY), entries.back).chosen()[1]


def _text(values: pa.Array) -> pa.Array:
    return values if pa.types.is_string(values.type) else values.cast(pa.string())

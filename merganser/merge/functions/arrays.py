"""collect: the elements of arrays, one after the other; with `distinct`, each once, where it was first seen.

A retracted element takes away one equal element: of several the first.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np
import pyarrow as pa

from merganser.merge.functions.entries import Entries, apart, entries_of, gathered, runs_of, undone
from merganser.merge.functions.function import LateRows, Traits, image, retracting
from merganser.merge.functions.segments import any_of, empty
from merganser.merge.groups import Groups, Positions
from merganser.schema import types as t
from merganser.values import dataclass


@dataclass(frozen=True, slots=True)
class Collect(Traits):
    """The arrays of a group in one.

    The image of retractions is all their elements, equal ones too, so that as many are taken away later.
    """

    late_rows: ClassVar[LateRows] = LateRows.ANYWHERE
    takes_back: ClassVar[bool] = True
    column: t.Field
    distinct: bool = False
    name: str = "collect"
    retracts: bool = True

    @property
    def rewrites(self) -> bool:  # type: ignore[override]
        return self.distinct

    def taken_back(self, column: pa.ChunkedArray, groups: Groups) -> pa.Array:
        if self.distinct:
            return image(self, column, groups)
        entries = entries_of(column, Groups(groups.positions, groups.starts))
        assert groups.additions is not None
        back = ~groups.additions[entries.row]
        return gathered(entries, _unmatched(replace(entries, back=back)), column.type)

    def fold(self, column: pa.ChunkedArray, groups: Groups) -> pa.Array:
        if not groups.count:
            return empty(column.type)
        if not self.distinct and retracting(groups) is None:
            entries = entries_of(column, groups)
            return gathered(entries, np.arange(len(entries)), column.type)
        return apart(column, groups, self._chosen)

    def _chosen(self, entries: Entries, groups: Groups) -> tuple[Entries, Positions]:
        if not self.distinct:
            return entries, undone(entries, _left_over)
        place, _ = runs_of(entries.group, entries.codes(), entries.back).chosen()
        if groups.additions is None:
            return entries, place
        stays = ~any_of(groups.additions, groups.starts)[entries.group]
        stays[place] = True
        return entries, np.flatnonzero(stays)


def _unmatched(entries: Entries) -> Positions:
    """Return the retracted entries for which no equal one is there: those at which a balance was never so low."""
    assert entries.back is not None
    if not entries.back.any():
        return entries.at[:0]
    runs = runs_of(entries.group, entries.codes())
    change = np.where(entries.back[runs.order], -1, 1)
    sizes = runs.ends - runs.starts
    run_of = np.repeat(np.arange(len(runs.starts)), sizes)
    balance = np.cumsum(change)
    balance -= (balance[runs.starts] - change[runs.starts])[run_of]
    # One running minimum over all runs: each run's balances lie below all of the run before.
    low = balance - run_of * (2 * len(change) + 2)
    before = np.concatenate(([0], np.minimum.accumulate(low)[:-1]))
    begun = -run_of * (2 * len(change) + 2)
    return np.sort(runs.order[low < np.minimum(before, begun)])


def _left_over(entries: Entries) -> Positions:
    """Return the entries that remain when each retracted one takes away the first equal one that is there.

    Added is +1, taken away -1, and what is not there cannot be taken: what remains of a run is its balance above
    the lowest point it ever had. As the first go first, the last so many stay.
    """
    assert entries.back is not None
    runs = runs_of(entries.group, entries.codes())
    change = np.where(entries.back[runs.order], -1, 1)
    run_of = np.repeat(np.arange(len(runs.starts)), runs.ends - runs.starts)
    balance = np.cumsum(change)
    before = balance[runs.starts] - change[runs.starts]
    lowest = np.minimum(np.minimum.reduceat(balance, runs.starts), before)
    remaining = balance[runs.ends - 1] - lowest
    added = np.cumsum(change > 0)
    later: Positions = added[runs.ends - 1][run_of] - added  # additions of the run after this one
    kept = (change > 0) & (later < remaining[run_of])
    return np.sort(runs.order[kept])

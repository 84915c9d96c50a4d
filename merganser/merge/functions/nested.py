"""nested_update and nested_partial_update: arrays of rows kept like small tables.

Without a key, rows are appended, and a retracted row takes all its equals away. With one, a row replaces the row of
its key, which stays where the key was first seen. Null elements are ignored.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from merganser.merge.functions import segments
from merganser.merge.functions.entries import Entries, Runs, apart, by_place, cut, entries_of, gathered, runs_of, undone
from merganser.merge.functions.equality import Codes, ranks
from merganser.merge.functions.function import LateRows, Traits, image, refuse, refuse_retractions
from merganser.merge.functions.segments import any_of, empty, taken, validity
from merganser.merge.groups import Groups, Mask, Positions
from merganser.schema import types as t
from merganser.values import dataclass


@dataclass(frozen=True, slots=True)
class NestedUpdate(Traits):
    """The rows of all arrays.

    Retractions make room again under a limit. The image of retractions knows no limit, no sequence and no strategy for
    nulls: it names what is to be taken away.

    Attributes:
        column: the column, an array of rows.
        key: fields that identify a row; empty: none do.
        sequence: fields that order the rows of a key, nulls lowest; a smaller one does not replace.
        nulls: what to do with a row that has a null in its key: `merge` as any value, `ignore`, or `error`.
        limit: rows at which no more are taken in, or None. With a key, rows of keys that are there still are.
    """

    late_rows: ClassVar[LateRows] = LateRows.ONE_BY_ONE
    takes_back: ClassVar[bool] = True
    rewrites: ClassVar[bool] = True
    column: t.Field
    key: tuple[str, ...] = ()
    sequence: tuple[str, ...] = ()
    nulls: str = "merge"
    limit: int | None = None
    name: str = "nested_update"
    retracts: bool = True

    def fold(self, column: pa.ChunkedArray, groups: Groups) -> pa.Array:
        return apart(column, groups, self._chosen) if groups.count else empty(column.type)

    def taken_back(self, column: pa.ChunkedArray, groups: Groups) -> pa.Array:
        return image(self, column, groups)

    def _chosen(self, entries: Entries, groups: Groups) -> tuple[Entries, Positions]:
        entries, images = entries.only(~entries.missing()), _images(groups)
        if self.key:
            entries = _with_keys(entries, images, self.key, self.nulls, self.column, self.name)
        if not self.key and self.limit is None:
            return entries, undone(entries, _not_retracted)
        if not len(entries):
            return entries, entries.at
        identity = entries.codes(*self.key)
        runs = runs_of(entries.group, identity, entries.back if self.key else None)
        if self.key:
            place, winner = runs.chosen(self._rank(entries, images, runs))
        else:
            place = winner = _not_retracted(entries, runs)
        if self.limit is None:
            return entries, winner
        by_hand = self._limited_retractions(entries, images)
        kept = ~by_hand[entries.group[place]]
        kept &= self._admitted(entries, place) | images[entries.group[place]]
        extra = self._by_hand(entries, by_hand, identity[0])
        _, winner = by_place(
            np.concatenate((place[kept], extra[0])), np.concatenate((winner[kept], extra[1])), len(entries)
        )
        return entries, winner

    def _rank(self, entries: Entries, images: Mask, runs: Runs) -> Codes | None:
        """Return int64[m] that sort as the sequence fields of entries with rivals do; None without such fields."""
        if not self.sequence:
            return None
        rank = np.zeros(len(entries), np.int64)
        contested = runs.contested
        if len(contested):
            rank[contested] = ranks([entries.field(name, contested) for name in self.sequence])
        rank[images[entries.group]] = 0
        return rank

    def _admitted(self, entries: Entries, place: Positions) -> Mask:
        """Return which of the places (rising, none retracted) the limit lets in, each counted in its group."""
        assert self.limit is not None
        group = entries.group[place]
        starts = np.flatnonzero(np.concatenate(([True], group[1:] != group[:-1]))) if len(group) else place
        sizes = np.diff(np.append(starts, len(group)))
        nth = np.arange(len(group)) - np.repeat(starts, sizes)
        return nth < self.limit

    def _limited_retractions(self, entries: Entries, images: Mask) -> Mask:
        """Return bool[k], groups where what the limit refuses depends on what was retracted before."""
        out = np.zeros(len(entries.first), np.bool_)
        if self.limit is not None and entries.back is not None:
            out[entries.group[entries.back]] = True
        return out & ~images

    def _by_hand(self, entries: Entries, groups: Mask, identity: Codes) -> tuple[Positions, Positions]:
        """Fold whole groups entry by entry: limit and retractions together leave no other way."""
        rows = np.flatnonzero(groups[entries.group])
        if not len(rows) or entries.back is None:
            return rows[:0], rows[:0]
        rank = np.zeros(len(rows), np.int64)
        if self.sequence:
            rank = ranks([entries.field(name, rows) for name in self.sequence])
        begins = np.flatnonzero(np.concatenate(([True], np.diff(entries.group[rows]) != 0)))
        place: list[int] = []
        winner: list[int] = []
        for one in np.split(np.arange(len(rows)), begins[1:]):
            part = rows[one]
            steps = zip(
                part.tolist(), identity[part].tolist(), rank[one].tolist(), entries.back[part].tolist(), strict=True
            )
            table = _Limited(self.limit or 0, bool(self.key))
            for entry, code, value, back in steps:
                if back:
                    table.retract(code)
                else:
                    table.add(entry, code, value)
            place += [at for at, _, _, _ in table.held]
            winner += [entry for _, entry, _, _ in table.held]
        return np.array(place, np.int64), np.array(winner, np.int64)


class _Limited:
    """The rows of one group under a limit: a list of (place, entry, code, rank)."""

    def __init__(self, limit: int, keyed: bool) -> None:
        self.limit, self.keyed = limit, keyed
        self.held: list[tuple[int, int, int, int]] = []

    def retract(self, code: int) -> None:
        """Take every row of an identity away."""
        self.held = [one for one in self.held if one[2] != code]

    def add(self, entry: int, code: int, rank: int) -> None:
        """Add an entry, or let it replace the one of its key."""
        for i, (place, _, held, old) in enumerate(self.held if self.keyed else ()):
            if held == code:
                if rank >= old:
                    self.held[i] = (place, entry, code, rank)
                return
        if len(self.held) < self.limit:
            self.held.append((entry, entry, code, rank))


@dataclass(frozen=True, slots=True)
class NestedPartialUpdate(Traits):
    """The rows of all arrays, one per key: of each field the last value that is not null."""

    rewrites: ClassVar[bool] = True
    column: t.Field
    key: tuple[str, ...]
    nulls: str = "merge"
    name: str = "nested_partial_update"
    retracts: bool = False

    def fold(self, column: pa.ChunkedArray, groups: Groups) -> pa.Array:
        refuse_retractions(groups, self.column, self.name)
        if not groups.count:
            return empty(column.type)
        return segments.apart(column, groups, self._merged)

    def _merged(self, column: pa.ChunkedArray, groups: Groups) -> pa.Array:
        entries = entries_of(column, groups)
        entries = entries.only(~entries.missing())
        entries = _with_keys(entries, _images(groups), self.key, self.nulls, self.column, self.name)
        if not len(entries):
            return gathered(entries, entries.at, column.type)
        runs = runs_of(entries.group, entries.codes(*self.key))
        # Runs come in order of key; the table wants them where each key was first seen.
        first = runs.order[runs.starts]
        by_run = np.argsort(first, kind="stable")
        latest = [_latest(child, entries, runs)[by_run] for child in entries.source.flatten()]
        children = [taken(child, at) for child, at in zip(entries.source.flatten(), latest, strict=True)]
        rows = pa.StructArray.from_arrays(children, fields=list(column.type.value_type))
        return cut(rows, entries.group[first[by_run]], entries.first >= 0, column.type)


def _latest(values: pa.Array, entries: Entries, runs: Runs) -> Positions:
    """Return where in `values` the last one of each run is that is not null, -1 if none is."""
    valid = validity(values)
    if valid is None:
        return entries.at[runs.order[runs.ends - 1]]
    at = entries.at[runs.order]
    best = np.maximum.reduceat(np.where(valid[at], np.arange(len(at)), -1), runs.starts)
    return np.where(best < 0, -1, at[best])


def _with_keys(entries: Entries, images: Mask, key: tuple[str, ...], nulls: str, column: t.Field, name: str) -> Entries:
    """Apply the strategy for nulls in the key to entries that are added, groups of retractions (`images`) aside."""
    if nulls == "merge" or not len(entries):
        return entries
    null = np.zeros(len(entries), np.bool_)
    for name_of_field in key:
        null |= entries.missing(name_of_field)
    null &= ~images[entries.group]
    if entries.back is not None:
        null &= ~entries.back
    if nulls == "error" and null.any():
        refuse(
            column,
            name,
            f"{int(null.sum())} nested rows have a null in their key ({', '.join(key)}). Fill it, or set "
            f"'fields.{column.name}.nested-key-null-strategy' to 'ignore' or 'merge'.",
            rows=int(null.sum()),
        )
    return entries.only(~null)


def _images(groups: Groups) -> Mask:
    """Return bool[k]: groups of retractions only."""
    if groups.additions is None:
        return np.zeros(groups.count, np.bool_)
    return ~any_of(groups.additions, groups.starts)


def _not_retracted(entries: Entries, runs: Runs | None = None) -> Positions:
    """Return the entries that no later equal one takes away."""
    if entries.back is None:
        return np.arange(len(entries))
    runs = runs or runs_of(entries.group, entries.codes())
    index = np.arange(len(entries))
    gone = np.maximum.reduceat(np.where(entries.back[runs.order], index, -1), runs.starts)
    kept: npt.NDArray[np.bool_] = index > np.repeat(gone, runs.ends - runs.starts)
    return np.sort(runs.order[kept])

"""Elements of nested columns, laid out flat in merge order, and which of them live on in each group.

An entry is an element of an array or an entry of a map. Every entry has a place: its index in the flat layout,
which rises with group and merge order. Within a group, entries with one identity (an equal element, an equal key)
follow upon each other like versions of a row; the first that lives gives the place, another may give the value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from merganser.merge.functions.equality import Codes, codes, combined
from merganser.merge.functions.function import retracting
from merganser.merge.functions.segments import taken, validity, whole
from merganser.merge.groups import Groups, Mask, Positions
from merganser.merge.keys import sorted_positions
from merganser.values import dataclass

KEY: Final = "key"
VALUE: Final = "value"
"""Fields of the entries of maps."""


@dataclass(frozen=True, slots=True)
class Entries:
    """m entries of a nested column, in (group, merge order, place in the value) order.

    The entries themselves stay where they are: only fields that are compared are gathered, and then what remains.

    Attributes:
        source: entries of the whole column, as they are stored; of a map, structs of key and value.
        at: int64[m], where in `source` each is.
        row: int64[m], the sorted row that each belongs to.
        group: int64[m], its group.
        back: bool[m], whether its row retracts; None: none does.
        first: int64[k], the sorted row of the first value that is added to a group and not null; -1: none is.
    """

    source: pa.Array
    at: Positions
    row: Positions
    group: Positions
    back: Mask | None
    first: Positions

    def __len__(self) -> int:
        return len(self.at)

    @property
    def of_first(self) -> Mask:
        """bool[m], entries of the first value of their group."""
        return np.equal(self.row, self.first[self.group])

    def only(self, kept: Mask) -> Entries:
        """Return some of the entries."""
        if kept.all():
            return self
        back = None if self.back is None else self.back[kept]
        return Entries(self.source, self.at[kept], self.row[kept], self.group[kept], back, self.first)

    def values(self, which: Positions | None = None) -> pa.Array:
        """Return the entries, or some of them."""
        return taken(self.source, self.at if which is None else self.at[which])

    def field(self, name: str, which: Positions | None = None) -> pa.Array:
        """Return one field of entries that are structs; null where the struct is."""
        child = self.source.flatten()[self.source.type.get_field_index(name)]
        return taken(child, self.at if which is None else self.at[which])

    def codes(self, *names: str) -> tuple[Codes, int]:
        """Return codes (`equality.codes`) of the entries, or of some of their fields together."""
        if not names:
            return self._codes(self.source)
        children = dict(zip([field.name for field in self.source.type], self.source.flatten(), strict=True))
        first, *others = (self._codes(children[name]) for name in names)
        for other in others:
            first = combined(first, other)
        return first

    def _codes(self, stored: pa.Array) -> tuple[Codes, int]:
        # Reading in stored order and gathering numbers beats gathering values, unless few of them are wanted.
        if 2 * len(self.at) < len(stored):
            return codes(taken(stored, self.at))
        numbers, count = codes(stored)
        return numbers[self.at], count

    def missing(self, name: str | None = None) -> Mask:
        """Return bool[m], which entries, or which of their fields, are null."""
        source = self.source if name is None else self.source.flatten()[self.source.type.get_field_index(name)]
        valid = validity(source)
        return np.zeros(len(self.at), np.bool_) if valid is None else ~valid[self.at]


def entries_of(column: pa.ChunkedArray, groups: Groups) -> Entries:
    """Return the entries of a list or map column; at least one group."""
    lists = whole(column)
    begins = lists.offsets.to_numpy().astype(np.int64)
    sizes = np.diff(begins)[groups.positions]
    begins = begins[groups.positions]
    back = retracting(groups)
    valid = validity(lists)
    adding = np.ones(len(sizes), np.bool_) if valid is None else valid[groups.positions]
    sizes = np.where(adding, sizes, 0)
    if back is not None:
        adding = adding & ~back
    first = np.minimum.reduceat(np.where(adding, np.arange(len(sizes)), len(sizes)), groups.starts)
    first[first == len(sizes)] = -1
    row = np.repeat(np.arange(len(sizes)), sizes)
    ends = np.cumsum(sizes)
    at = np.arange(len(row)) + np.repeat(begins - (ends - sizes), sizes)
    return Entries(_source(lists), at, row, groups.group_of[row], None if back is None else back[row], first)


def _source(lists: pa.Array) -> pa.Array:
    """Return the stored entries of lists or maps, which their offsets count from."""
    if not pa.types.is_map(lists.type):
        return lists.values
    kind = lists.type
    return pa.StructArray.from_arrays(
        [lists.keys, lists.items], fields=[pa.field(KEY, kind.key_type, False), pa.field(VALUE, kind.item_type)]
    )


def gathered(entries: Entries, chosen: Positions, kind: pa.DataType) -> pa.Array:
    """Return k lists or maps of the chosen entries, which stand in group order; null for groups with no value."""
    return cut(entries.values(chosen), entries.group[chosen], entries.first >= 0, kind)


def apart(
    column: pa.ChunkedArray, groups: Groups, choose: Callable[[Entries, Groups], tuple[Entries, Positions]]
) -> pa.Array:
    """Fold the groups of two or more rows, and let the values of the others through untouched.

    Args:
        column: n lists or maps.
        groups: at least one.
        choose: takes the entries of groups of two or more rows, at least one, and all groups; returns the entries
            that its choice, int64, is of, in group order.
    """
    entries = entries_of(column, groups)
    several = (groups.sizes > 1)[entries.group]
    some = entries.first >= 0
    if not several.any():
        return cut(entries.values(), entries.group, some, column.type)
    considered, chosen = choose(entries.only(several), groups)
    at, group = considered.at[chosen], considered.group[chosen]
    if not several.all():
        at, group = _interleaved(entries.at[~several], entries.group[~several], at, group)
    return cut(taken(entries.source, at), group, some, column.type)


def undone(entries: Entries, left: Callable[[Entries], Positions]) -> Positions:
    """Return which entries remain, `left` being asked only about groups in which something is retracted."""
    if entries.back is None or not entries.back.any():
        return np.arange(len(entries))
    touched = np.zeros(len(entries.first), np.bool_)
    touched[entries.group[entries.back]] = True
    rows = np.flatnonzero(touched[entries.group])
    stays = ~touched[entries.group]
    stays[rows[left(entries.only(~stays))]] = True
    return np.flatnonzero(stays)


def _interleaved(
    at: Positions, group: Positions, other: Positions, other_group: Positions
) -> tuple[Positions, Positions]:
    """Put two lists of entries, each in group order and of no group in common, into one in group order."""
    out = np.empty(len(at) + len(other), np.int64)
    place = np.arange(len(at)) + np.searchsorted(other_group, group)
    out[place] = at
    rest = np.ones(len(out), np.bool_)
    rest[place] = False
    out[rest] = other
    groups = np.empty(len(out), np.int64)
    groups[place] = group
    groups[rest] = other_group
    return out, groups


def cut(values: pa.Array, group: Positions, some: Mask, kind: pa.DataType) -> pa.Array:
    """Return k lists or maps of values that stand in the order of their groups; null where `some` is false."""
    offsets = np.concatenate(([0], np.cumsum(np.bincount(group, minlength=len(some)))))
    mask = None if some.all() else pa.array(~some)
    if pa.types.is_map(kind):
        keys, items = values.field(0), values.field(1)
        return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), keys, items, type=kind, mask=mask)
    if pa.types.is_large_list(kind):
        return pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), values, type=kind, mask=mask)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, type=kind, mask=mask)


@dataclass(frozen=True, slots=True)
class Runs:
    """m entries sorted by (group, identity, place), in r runs of one group and identity.

    Attributes:
        order: int64[m], the entry at each sorted place.
        starts: int64[r], where each run begins.
        alive: bool[m] over sorted places: nothing retracted the entry, or removed it.
    """

    order: Positions
    starts: Positions
    alive: Mask

    @property
    def ends(self) -> Positions:
        """int64[r], one past the last of each run."""
        return np.append(self.starts[1:], len(self.order))

    @property
    def contested(self) -> Positions:
        """int64[q], the living entries that others of their identity live beside: only they need a rank."""
        ends = self.ends
        living = np.concatenate(([0], np.cumsum(self.alive)))
        several = living[ends] - living[self.starts] > 1
        return self.order[self.alive & np.repeat(several, ends - self.starts)]

    def chosen(self, rank: npt.NDArray[np.int64] | None = None, *, last: bool = True) -> tuple[Positions, Positions]:
        """Return, of each run with a living entry, the first of them and the one with the largest rank.

        Args:
            rank: int64[m] by entry, not negative; None: all have the same.
            last: among equal ranks take the last, else the first.

        Returns:
            Two int64[q], ordered by the first: where the identity stands, and the entry that it holds.
        """
        count = len(self.order)
        index = np.arange(count)
        first = np.minimum.reduceat(np.where(self.alive, index, count), self.starts)
        ranked = np.zeros(count, np.int64) if rank is None else rank[self.order] * count
        ranked += index if last else count - 1 - index
        best = np.maximum.reduceat(np.where(self.alive, ranked, -1), self.starts)
        living = first < count
        best = best[living] % count
        winner = self.order[best if last else count - 1 - best]
        return by_place(self.order[first[living]], winner, count)


def by_place(place: Positions, entry: Positions, count: int) -> tuple[Positions, Positions]:
    """Return places and entries ordered by place, all places being different and below `count`."""
    at = np.full(count, -1, np.int64)
    at[place] = entry
    place = np.flatnonzero(at >= 0)
    return place, at[place]


def runs_of(group: Positions, identity: tuple[Positions, int], removal: Mask | None = None) -> Runs:
    """Sort entries by (group, identity), each run in order of place; at least one entry.

    Args:
        group: int64[m], rising.
        identity: codes of the entries (`equality.codes`).
        removal: bool[m], entries that do not add but remove what their identity holds; None: none.
    """
    code, count = identity
    order, is_last = sorted_positions([pa.chunked_array([pa.array(group * count + code)])])
    ends = np.flatnonzero(is_last) + 1
    starts = np.concatenate(([0], ends[:-1]))
    if removal is None or not removal.any():
        return Runs(order, starts, np.ones(len(order), np.bool_))
    removed = np.where(removal[order], np.arange(len(order)), -1)
    last_removal = np.maximum.reduceat(removed, starts)
    return Runs(order, starts, np.arange(len(order)) > np.repeat(last_removal, ends - starts))

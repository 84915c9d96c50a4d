"""Merge engines: they take versions of keys and return one row per key, for flushes, reads and compactions alike.

An engine returns the only stored version of a key unchanged. From several versions it makes a row of kind +I, or of
kind -D if the key has only retractions or was removed; deduplicate keeps the kind of the version that it chooses. In
tables where a -D removes the whole row, a row that only retracts values has kind -U instead: merged over older versions
later, it must not remove them.

What a table says must not depend on which versions met first. So what a flush stores has to act on older versions as
its rows would, one after the other. One row cannot always do that, and then a flush stores several, in runs:

- `parts`: a row that removes all before it stands alone, between what came before it and what came after;
- `owed`: what rows take back from older versions, where the row that they become cannot say so. `collect` of -[1],
  +[1, 2] becomes +[1, 2] and owes -[1].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from merganser.merge.functions.segments import any_of
from merganser.merge.groups import Groups, Mask, Positions
from merganser.schema import row_kind
from merganser.values import dataclass

Kinds = npt.NDArray[np.int8]


@dataclass(frozen=True, slots=True)
class Folded:
    """k merged rows, one per group, in the order of the groups.

    Attributes:
        rows: a table that has them.
        positions: int64[k], which rows of it they are; None: all, in order.
        kinds: int8[k]; None: all are inserts.
        sequence_positions: int64[k] over the sorted rows of the groups: the version that gives each merged row its
            sequence number.
    """

    rows: pa.Table
    positions: Positions | None
    kinds: Kinds | None
    sequence_positions: Positions

    def chosen(self, positions: Positions) -> Folded:
        """Return some of the rows, `positions` being of 0 to k - 1."""
        return Folded(
            self.rows,
            positions if self.positions is None else self.positions[positions],
            None if self.kinds is None else self.kinds[positions],
            self.sequence_positions[positions],
        )

    def visible(self) -> Folded:
        """Return the rows that a batch read shows: those of kind +I or +U."""
        if self.kinds is None:
            return self
        adds = (self.kinds & 1) == 0
        return self if adds.all() else self.chosen(np.flatnonzero(adds))

    def table(self) -> pa.Table:
        """Return the rows alone."""
        return self.rows if self.positions is None else self.rows.take(pa.array(self.positions))


@dataclass(frozen=True, slots=True)
class Lasting:
    """The kinds of retractions that mean something to later rows, even where nothing older is left.

    Attributes:
        unmatched: they take values back that were not added yet, or order what comes.
        removals: they remove the row, and rows that are older by their columns may still come.
    """

    unmatched: tuple[int, ...] = ()
    removals: tuple[int, ...] = ()


class Engine(Protocol):
    """A merge engine with the options of one table.

    Attributes:
        chooses: one of the versions is the row. Then any of them may be merged first; otherwise only neighbours in
            merge order may.
    """

    chooses: ClassVar[bool]

    @property
    def removes(self) -> bool:
        """Whether a retraction can remove the row, so that what comes later begins anew.

        Such a version may be merged with later ones only together with all older ones: else it no longer reaches them.
        """

    @property
    def owes(self) -> bool:
        """Whether `owed` may return anything."""

    def lasting(self, *, ordered: bool) -> Lasting:
        """Return which retractions outlive all that is older.

        Args:
            ordered: columns of the table order versions, so that a row can come late.
        """

    def needs(self, columns: Sequence[str]) -> tuple[str, ...]:
        """Return the columns that must be read to merge these, besides themselves and the key."""

    def refusal(self, *, deletes: bool, updates_before: bool) -> str | None:
        """Return why rows of kind -D, or -U, cannot be written; None: they can."""

    def parts(self, rows: pa.Table, groups: Groups, kinds: Kinds) -> Parts:
        """Return new versions as a flush stores them, each part in a run of its own.

        Args:
            rows, groups, kinds: as in `fold`; some of them retract.
        """

    def owed(self, rows: pa.Table, groups: Groups, columns: Sequence[str]) -> Folded | None:
        """Return rows that retract what new versions take from older ones and the folded row cannot say.

        Args:
            rows, groups, columns: as in `fold`; each group adds and retracts.

        Returns:
            Some of the groups, in their order; None: none owes anything.
        """

    def fold(self, rows: pa.Table, groups: Groups, kinds: Kinds | None, columns: Sequence[str]) -> Folded:
        """Merge each group into one row.

        Args:
            rows: n rows; the columns that `columns` and `needs(columns)` name, and the key, in today's types.
            groups: their order.
            kinds: int8[n]; None: all are inserts.
            columns: columns of the result.

        Raises:
            InvalidInputError: versions that the options give no rule for.
        """


@dataclass(frozen=True, slots=True)
class Parts:
    """The versions of a flush, part by part.

    Attributes:
        rows: bool[n] over sorted rows for each part, the oldest first, which belong to it; none is empty. (): one part
            has all.
        demoted: bool[n], rows of kind -D that remove nothing: from now on they are of kind -U. None: there are none.
    """

    rows: tuple[Mask, ...] = ()
    demoted: Mask | None = None


def merged_kinds(groups: Groups, kinds: Kinds | None, retracted: int = row_kind.DELETE) -> Kinds | None:
    """Return int8[k]: a lone version's own kind, +I where something was added, else `retracted`; None: all insert."""
    if kinds is None:
        return None
    added = np.ones(groups.count, np.bool_) if groups.additions is None else any_of(groups.additions, groups.starts)
    found = np.where(added, row_kind.INSERT, retracted).astype(np.int8)
    return np.where(groups.sizes == 1, kinds[groups.first], found)


def parts_since_removal(groups: Groups, removes: Mask, counts: Mask) -> Parts:
    """Return the last removal of each group apart from what comes after it; nothing before it is of any effect.

    Args:
        groups: versions of keys.
        removes: bool[n] over sorted rows, which remove.
        counts: bool[n], which rows have an effect after a removal.
    """
    if not removes.any():
        return Parts()
    place = np.arange(len(removes))
    removed = np.maximum.reduceat(np.where(removes, place, -1), groups.starts)
    after = place > removed[groups.group_of]
    followed = (removed >= 0) & any_of(after & counts, groups.starts)
    alone = (removed >= 0) & ~followed
    after &= ~alone[groups.group_of]
    after[removed[alone]] = True
    first = np.zeros(len(removes), np.bool_)
    first[removed[followed]] = True
    return Parts((first, after) if first.any() else (after,))


def owed_rows(
    rows: pa.Table, groups: Groups, columns: Sequence[str], taken_back: Mapping[str, pa.Array], retracted: int
) -> Folded | None:
    """Return the rows that owe something: their last retraction, with what is taken back.

    Args:
        rows, groups: each group retracts.
        columns: columns of the result.
        taken_back: k values each, null where nothing is owed.
        retracted: the kind of the rows.
    """
    assert groups.additions is not None
    owing = np.zeros(groups.count, np.bool_)
    for values in taken_back.values():
        owing |= ~says_nothing(values)
    if not owing.any():
        return None
    last = rows.take(pa.array(groups.only(~groups.additions)[0].last[owing]))
    which = pa.array(np.flatnonzero(owing))
    out = [taken_back[name].take(which) if name in taken_back else last.column(name) for name in columns]
    table = pa.Table.from_arrays(out, schema=last.select(columns).schema)
    kinds = np.full(table.num_rows, retracted, np.int8)
    return Folded(table, None, kinds, (groups.ends - 1)[owing])


def says_nothing(values: pa.Array) -> Mask:
    """Return bool[k]: which values are null, or hold no element."""
    nothing = np.asarray(pc.is_null(values))
    if pa.types.is_map(values.type) or pa.types.is_list(values.type) or pa.types.is_large_list(values.type):
        nothing = nothing | (np.diff(values.offsets.to_numpy()) == 0)
    return nothing


def since_removal(groups: Groups, kinds: Kinds, *, updates_before: bool) -> Groups:
    """Return the part of each group after its last -D: the rows after a removal begin with an empty row.

    A group in which nothing of effect follows its last -D is left with that version alone. One without any -D stays
    as it is; where -U has no effect and nothing is added, with its last version. So no group becomes empty.

    Args:
        groups: versions of keys.
        kinds: int8[n], over the rows of the table.
        updates_before: whether -U has a meaning of its own; if not, those versions are dropped too.
    """
    ordered = kinds[groups.positions]
    place = np.arange(len(ordered))
    removed = np.maximum.reduceat(np.where(ordered == row_kind.DELETE, place, -1), groups.starts)
    keep = place > removed[groups.group_of]
    if not updates_before:
        keep &= (ordered & 1) == 0
    followed = any_of(keep, groups.starts)
    lone = np.where(removed >= 0, removed, groups.ends - 1)
    alone = ~followed & ((removed >= 0) | (not updates_before))
    keep &= ~alone[groups.group_of]
    keep[lone[alone]] = True
    return groups.only(keep)[0]

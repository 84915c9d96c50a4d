"""Merge engines: they take versions of keys and return one row per key, for flushes, reads and compactions alike.

An engine returns the only version of a key unchanged. From several versions it makes a row of kind +I, or of kind -D if
the key has only retractions or was removed; deduplicate keeps the kind of the version that it chooses. In tables where
a -D removes the whole row, a row that only retracts values has kind -U instead: merged over older versions later, it
must not remove them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from merganser.merge.functions.segments import any_of
from merganser.merge.groups import Groups, Mask, Positions
from merganser.schema import row_kind

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

    def needs(self, columns: Sequence[str]) -> tuple[str, ...]:
        """Return the columns that must be read to merge these, besides themselves and the key."""

    def refusal(self, *, deletes: bool, updates_before: bool) -> str | None:
        """Return why rows of kind -D, or -U, cannot be written; None: they can."""

    def removals(self, rows: pa.Table, groups: Groups, kinds: Kinds) -> Positions:
        """Return int64[r] over the sorted rows of the groups: versions that remove a row that is added to after.

        One merged row cannot express both, so a writer that stores it over older versions stores the removal first.
        At most one of each group.
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


def merged_kinds(groups: Groups, kinds: Kinds | None, retracted: int = row_kind.DELETE) -> Kinds | None:
    """Return int8[k]: a lone version's own kind, +I where something was added, else `retracted`; None: all insert."""
    if kinds is None:
        return None
    added = np.ones(groups.count, np.bool_) if groups.additions is None else any_of(groups.additions, groups.starts)
    found = np.where(added, row_kind.INSERT, retracted).astype(np.int8)
    return np.where(groups.sizes == 1, kinds[groups.first], found)


NO_REMOVALS: Final = np.empty(0, np.int64)


def removals_before_additions(groups: Groups, removes: Mask) -> Positions:
    """Return int64[r], the last removing version of each group in which something is added after it.

    Args:
        groups: versions of keys, some of which retract.
        removes: bool[n] over sorted rows, which remove.
    """
    if not removes.any():
        return NO_REMOVALS
    assert groups.additions is not None
    place = np.arange(len(removes))
    removed = np.maximum.reduceat(np.where(removes, place, -1), groups.starts)
    added = any_of(groups.additions & (place > removed[groups.group_of]), groups.starts)
    return removed[(removed >= 0) & added]


def since_removal(groups: Groups, kinds: Kinds, *, updates_before: bool) -> Groups:
    """Return the part of each group after its last -D: the rows after a removal begin with an empty row.

    A group in which nothing is added after its last -D is left with that version alone. One without any -D stays
    as it is; where -U has no meaning and nothing is added, with its last version. So no group becomes empty.

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
    added = any_of(keep & ((ordered & 1) == 0), groups.starts)
    lone = np.where(removed >= 0, removed, groups.ends - 1)
    alone = ~added & ((removed >= 0) | (not updates_before))
    keep &= ~alone[groups.group_of]
    keep[lone[alone]] = True
    return groups.only(keep)[0]

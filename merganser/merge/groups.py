"""Versions of keys as groups: what every merge engine and aggregate function works on."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
import numpy.typing as npt

from merganser.values import dataclass

Mask = npt.NDArray[np.bool_]
Positions = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Groups:
    """n rows of a table in k groups, one per key; within a group, rows in the order in which they merge.

    Attributes:
        positions: int64[n], rows of the table in (group, merge order) order.
        starts: int64[k], rising from 0: where in `positions` each group begins. No group is empty.
        additions: bool[n] over `positions`, whether the row adds (+I, +U) rather than retracts; None: all add.
    """

    positions: Positions
    starts: Positions
    additions: Mask | None = None

    @property
    def count(self) -> int:
        """Number of groups, k."""
        return len(self.starts)

    @cached_property
    def ends(self) -> Positions:
        """int64[k], one past the last of each group."""
        return np.append(self.starts[1:], len(self.positions)) if self.count else self.starts

    @cached_property
    def sizes(self) -> Positions:
        """int64[k], rows of each group."""
        return self.ends - self.starts

    @cached_property
    def group_of(self) -> Positions:
        """int64[n] over `positions`, the group of each row."""
        return np.repeat(np.arange(self.count), self.sizes)

    @cached_property
    def last(self) -> Positions:
        """int64[k], the row of the table that comes last in each group; not to be written into."""
        return self.positions if self._alone else self.positions[self.ends - 1]

    @cached_property
    def first(self) -> Positions:
        """int64[k], the row of the table that comes first in each group; not to be written into."""
        return self.positions if self._alone else self.positions[self.starts]

    @property
    def _alone(self) -> bool:
        """Whether each row is a group."""
        return self.count == len(self.positions)

    def only(self, rows: Mask) -> tuple[Groups, Positions]:
        """Return the groups with some of their rows, and which groups they are; groups left empty are gone.

        Args:
            rows: bool[n] over `positions`, the rows that stay.

        Returns:
            k' groups; int64[k'], the number that each had.
        """
        before = np.concatenate(([0], np.cumsum(rows)))
        starts = before[self.starts]
        alive = np.flatnonzero(before[self.ends] > starts)
        additions = None if self.additions is None else self.additions[rows]
        return Groups(self.positions[rows], starts[alive], additions), alive

    def between(self, first: int, end: int) -> Groups:
        """Return the groups `first` to `end - 1`."""
        low = int(self.starts[first]) if first < self.count else len(self.positions)
        high = int(self.starts[end]) if end < self.count else len(self.positions)
        additions = None if self.additions is None else self.additions[low:high]
        return Groups(self.positions[low:high], self.starts[first:end] - low, additions)

    def slices(self, rows: int) -> Iterator[Groups]:
        """Yield stretches of groups of about `rows` rows each."""
        if len(self.positions) <= rows:
            yield self
            return
        first = 0
        while first < self.count:
            end = int(np.searchsorted(self.starts, self.starts[first] + rows, side="left"))
            end = max(first + 1, end)
            yield self.between(first, end)
            first = end


def groups_of(positions: Positions, is_last: Mask, additions: Mask | None = None) -> Groups:
    """Return sorted rows as groups.

    Args:
        positions: int64[n], rows in (key, merge order) order.
        is_last: bool[n] over sorted rows, which ends its group.
        additions: bool[n] over the rows of the table; None: all add.
    """
    starts = np.concatenate(([0], np.flatnonzero(is_last)[:-1] + 1)) if len(positions) else np.empty(0, np.int64)
    return Groups(positions, starts, None if additions is None else additions[positions])

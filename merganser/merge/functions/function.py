"""The contract of an aggregate function, and how it handles retractions.

The function returns the value of a group of one row unchanged. In a larger group with an addition, the accumulator
begins as null, and the function adds each row to it or retracts the row from it, in merge order. A group of only
retractions becomes their image: one value with the same effect when retracted later as all the rows one by one (for a
sum, the total of the retracted values; for a collection, the retracted elements).
"""

from __future__ import annotations

from enum import Enum, auto
from typing import ClassVar, NoReturn, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from merganser.errors import InvalidInputError
from merganser.merge.functions.segments import any_of, taken, validity
from merganser.merge.groups import Groups, Mask, Positions
from merganser.schema import types as t
from merganser.values import dataclass


class LateRows(Enum):
    """What a function makes of rows that are late in a sequence group.

    ANYWHERE: the same wherever they come; or it appends them, as `collect` does.
    FIRST: they come before the rest, together.
    ONE_BY_ONE: each comes before what was folded so far, since the result depends on which neighbours are merged first.
    """

    ANYWHERE = auto()
    FIRST = auto()
    ONE_BY_ONE = auto()


class Traits:
    """What a function is unless it says otherwise."""

    __slots__ = ()
    late_rows: ClassVar[LateRows] = LateRows.FIRST
    ignores_retractions: ClassVar[bool] = False
    owes: ClassVar[bool] = False
    takes_back: ClassVar[bool] = False
    rewrites: ClassVar[bool] = False

    def taken_back(self, column: pa.ChunkedArray, groups: Groups) -> pa.Array:
        raise TypeError("a function that takes nothing back is not asked")


class Function(Protocol):
    """An aggregate function of one column."""

    @property
    def name(self) -> str:
        """Name of the function in table options."""

    @property
    def retracts(self) -> bool:
        """Whether it can take a row back; if not, a retraction in a group of two or more rows is an error."""

    @property
    def late_rows(self) -> LateRows:
        """What it makes of rows that are late in a sequence group."""

    @property
    def ignores_retractions(self) -> bool:
        """Whether a retraction leaves the column as it is."""

    @property
    def owes(self) -> bool:
        """Whether what it takes back counts against what is added later, though nothing was there before."""

    @property
    def takes_back(self) -> bool:
        """Whether rows can take something from older versions that their folded value does not say."""

    @property
    def rewrites(self) -> bool:
        """Whether a value that comes alone may be another once it is folded: a set has each element once."""

    def taken_back(self, column: pa.ChunkedArray, groups: Groups) -> pa.Array:
        """Return k values, what each group takes from older versions; null, or empty, where nothing.

        A retraction of these values, and then the addition of what `fold` returns, act on any older version as the
        rows of the group do, one after the other.
        """

    def fold(self, column: pa.ChunkedArray, groups: Groups) -> pa.Array:
        """Return k values, one per group, of exactly the column's type.

        Args:
            column: n values, not sorted.
            groups: which rows belong together, in which order, and which of them retract.

        Raises:
            InvalidInputError: a retraction that the function cannot take, or values it cannot put together;
                names column and function. The key is the caller's to add.
        """


class PickFunction(Function, Protocol):
    """A function that chooses one row per group, so that columns can share what it costs to find it."""

    def pick(self, valid: Mask | None, groups: Groups) -> Positions:
        """Return int64[k]: the row of the table that gives each group its value; for null -1, or a row that has none.

        Args:
            valid: bool[n], which rows of the table have a value; None: all.
            groups: as in `fold`.
        """


def picked(function: PickFunction, column: pa.ChunkedArray, groups: Groups) -> pa.Array:
    """Return what a picking function folds a column to: its picks, gathered."""
    return taken(column, function.pick(validity(column), groups))


def retracting(groups: Groups) -> Mask | None:
    """Return bool[n] over sorted rows: those to take back, None if there are none.

    A retraction in a group without additions is not among them, for its value goes into the group's image.
    """
    if groups.additions is None or groups.additions.all():
        return None
    rows = ~groups.additions & any_of(groups.additions, groups.starts)[groups.group_of]
    return rows if rows.any() else None


def refuse_retractions(groups: Groups, column: t.Field, name: str) -> None:
    """Raise InvalidInputError if a group of two or more rows has a retraction."""
    if groups.additions is None or not groups.count:
        return
    count = int(np.count_nonzero(~groups.additions & (groups.sizes > 1)[groups.group_of]))
    if count:
        raise InvalidInputError(
            f"cannot merge column '{column.name}': its aggregate function '{name}' does not support retraction, and "
            f"{count} rows of kind -U or -D retract from it. Set 'fields.{column.name}.ignore-retract' to keep the "
            "column as it is then, or 'ignore-delete' to drop such rows.",
            column=column.name,
            function=name,
            rows=count,
        )


def refuse(column: t.Field, name: str, why: str, **context: object) -> NoReturn:
    """Raise InvalidInputError: the values of a column cannot be put together by a function."""
    raise InvalidInputError(
        f"cannot merge column '{column.name}' with aggregate function '{name}': {why}",
        column=column.name,
        function=name,
        **context,
    )


@dataclass(frozen=True, slots=True)
class Incoming(Traits):
    """A function that rewrites (`Function.rewrites`), over rows as they come in: a lone one is folded, too.

    It is folded as if it followed a null.
    """

    inner: Function

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def retracts(self) -> bool:
        return self.inner.retracts

    @property
    def late_rows(self) -> LateRows:  # type: ignore[override]
        return self.inner.late_rows

    @property
    def takes_back(self) -> bool:  # type: ignore[override]
        return self.inner.takes_back

    def fold(self, column: pa.ChunkedArray, groups: Groups) -> pa.Array:
        lone = groups.sizes == 1
        if groups.additions is not None:
            lone = lone & groups.additions[groups.starts]
        return self.inner.fold(*after_null(column, groups, lone)) if lone.any() else self.inner.fold(column, groups)

    def taken_back(self, column: pa.ChunkedArray, groups: Groups) -> pa.Array:
        return self.inner.taken_back(column, groups)


@dataclass(frozen=True, slots=True)
class IgnoreRetract(Traits):
    """A function that additions alone reach; a retraction leaves the column as it is.

    A group of retractions only keeps the value of its last row. A group that is left with one addition gives that
    row's value untouched, like any group of one.
    """

    ignores_retractions: ClassVar[bool] = True
    inner: Function
    retracts: bool = True

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def late_rows(self) -> LateRows:  # type: ignore[override]
        return self.inner.late_rows

    def fold(self, column: pa.ChunkedArray, groups: Groups) -> pa.Array:
        return self.inner.fold(column, additions_only(groups))


@dataclass(frozen=True, slots=True)
class IgnoreRetractPick(Traits):
    """`IgnoreRetract` of a function that picks."""

    ignores_retractions: ClassVar[bool] = True
    inner: PickFunction
    retracts: bool = True

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def late_rows(self) -> LateRows:  # type: ignore[override]
        return self.inner.late_rows

    def pick(self, valid: Mask | None, groups: Groups) -> Positions:
        return self.inner.pick(valid, additions_only(groups))

    def fold(self, column: pa.ChunkedArray, groups: Groups) -> pa.Array:
        return picked(self, column, groups)


def image(function: Function, column: pa.ChunkedArray, groups: Groups, which: Mask | None = None) -> pa.Array:
    """Return what retractions of each group become, folded alone; null where it has none.

    Args:
        which: bool[n] over sorted rows, the retractions; None: all.
    """
    assert groups.additions is not None
    chosen, alive = groups.only(~groups.additions if which is None else which)
    place = np.full(groups.count, -1, np.int64)
    place[alive] = np.arange(len(alive))
    return function.fold(column, chosen).take(pa.array(place, mask=place < 0))


def additions_only(groups: Groups) -> Groups:
    """Return the groups without their retractions; of a group that has nothing else, with its last row."""
    if groups.additions is None or groups.additions.all():  # which is so if there are no groups, too
        return Groups(groups.positions, groups.starts)
    kept: npt.NDArray[np.bool_] = groups.additions.copy()
    only_retractions = ~any_of(groups.additions, groups.starts)
    kept[groups.ends[only_retractions] - 1] = True
    before = np.concatenate(([0], np.cumsum(kept)))
    return Groups(groups.positions[kept], before[groups.starts])


def after_null(column: pa.ChunkedArray, groups: Groups, which: Mask) -> tuple[pa.ChunkedArray, Groups]:
    """Return a column and groups, some of which begin with one more row, that adds null."""
    null = len(column)
    longer = pa.chunked_array([*column.chunks, pa.nulls(1, column.type)], column.type)
    at = groups.starts[which]
    additions = np.ones(len(groups.positions), np.bool_) if groups.additions is None else groups.additions
    starts = groups.starts + np.cumsum(which) - which
    return longer, Groups(np.insert(groups.positions, at, null), starts, np.insert(additions, at, True))

"""What becomes of rows of a file: by a filter and new values, or by the rows of a source (`edit.merge_rules`)."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import pyarrow as pa

from merganser.edit.assign import Assignments
from merganser.expr.compute import can_fail
from merganser.expr.predicate import Predicate
from merganser.merge.groups import Mask, Positions
from merganser.values import dataclass


class RowRule(Protocol):
    """Says of rows whether they change, and to what.

    Attributes:
        where: rows that it leaves out never change; None: it leaves out none.
    """

    @property
    def where(self) -> Predicate | None: ...

    @property
    def reads(self) -> frozenset[str]:
        """The columns by which rows are found."""
        ...

    @property
    def removes_all(self) -> bool:
        """Whether every row that is found goes."""
        ...

    def known(self, file: str) -> tuple[Positions, Positions] | None:
        """Return what `find` returns of a whole file, if nobody has to look at its rows; None: somebody has to.

        Rows are named by their positions in the file.
        """
        ...

    def find(self, rows: pa.Table, file: str) -> tuple[Positions, Positions]:
        """Return which rows may change, rising, and a number for each that `judge` gets again.

        Args:
            rows: at least the columns `reads`, and the positions of the rows in the file, rising.
            file: the name of their file.
        """
        ...

    def judge(self, rows: pa.Table, numbers: Positions) -> tuple[Mask, pa.Table]:
        """Return bool[n], which of n rows go, and n rows that the others become.

        Args:
            rows: all columns.
            numbers: those that `find` gave the rows.
        """
        ...


@dataclass(frozen=True)
class FilterRule:
    """The rows that a filter lets through get new values, or go.

    Attributes:
        where: the rows.
        sets: their new values; None: they are deleted.
    """

    where: Predicate
    sets: Assignments | None

    @property
    def reads(self) -> frozenset[str]:
        """The columns of the filter."""
        return self.where.columns

    @property
    def removes_all(self) -> bool:
        """Whether the rows are deleted."""
        return self.sets is None

    def known(self, file: str) -> tuple[Positions, Positions] | None:
        """Return None: rows have to be looked at."""
        return None

    def find(self, rows: pa.Table, file: str) -> tuple[Positions, Positions]:
        """Return which rows the filter lets through."""
        found = np.flatnonzero(np.asarray(self.where.mask(rows).fill_null(False)))
        return found, np.zeros(len(found), np.int64)

    def judge(self, rows: pa.Table, numbers: Positions) -> tuple[Mask, pa.Table]:
        """Return the new values of rows."""
        if self.sets is None:
            return np.ones(rows.num_rows, np.bool_), rows
        return np.zeros(rows.num_rows, np.bool_), self.sets.apply(rows)


def sure_filter(where: Predicate | None) -> Predicate | None:
    """Return a filter that may be asked of any row; None: it might fail for some, or there is none."""
    return where if where is not None and not can_fail(where.expression) else None

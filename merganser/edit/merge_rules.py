"""What the rows of a source make of rows of a file: joined here, or by an engine; see `edit.row_rules`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa

from merganser.edit.clauses import Clauses
from merganser.edit.joined import Source
from merganser.expr.predicate import Predicate
from merganser.merge.groups import Mask, Positions
from merganser.schema.table_schema import POSITION


class _Rule:
    """What both rules share.

    Args:
        source: rows of the source, its columns called `source.column`.
    """

    removes_all = False

    def __init__(self, clauses: Clauses, source: pa.Table) -> None:
        self._clauses = clauses
        self._rows = source

    @property
    def where(self) -> Predicate | None:
        """The rows that may meet one of the source; None: others change, too."""
        return self._clauses.where

    @property
    def reads(self) -> frozenset[str]:
        """The columns that the condition looks at; an engine joins by them, and a refusal shows them."""
        return self._clauses.on.reads

    def judge(self, rows: pa.Table, numbers: Positions) -> tuple[Mask, pa.Table]:
        """Return which rows go, and what the others become."""
        return self._clauses.judge(rows, numbers, self._rows)


class SourceRule(_Rule):
    """What the rows of a source make of rows of a file; see `RowRule`. It takes note of the rows that meet one."""

    def __init__(self, clauses: Clauses, source: Source) -> None:
        super().__init__(clauses, source.rows)
        self._source = source

    def known(self, file: str) -> tuple[Positions, Positions] | None:
        """Return None: rows have to be looked at."""
        return None

    def find(self, rows: pa.Table, file: str) -> tuple[Positions, Positions]:
        """Return which rows meet one of the source, and which one; -1: none, of rows that meet none."""
        source = self._source
        of_target, of_source, _ = source.pairs(rows, (), narrowed=False)
        self._clauses.check_met_once(rows, of_target, of_source if source.is_whole else None)
        return self._clauses.found(rows.num_rows, of_target, of_source)


class MetRule(_Rule):
    """What the rows of a source make of rows of files that an engine has joined with them; see `RowRule`.

    Args:
        files: by file, the rising positions of rows in it that meet rows of `source`, and which ones.
    """

    def __init__(self, clauses: Clauses, source: pa.Table, files: Mapping[str, tuple[Positions, Positions]]) -> None:
        super().__init__(clauses, source)
        self._files = files

    def known(self, file: str) -> tuple[Positions, Positions] | None:
        """Return which rows meet one of the source, and which one; None: others change too, or a row meets several."""
        at, numbers = self._files.get(file, _NONE)
        if self._clauses.unmatched or (self._clauses.matched and np.any(at[1:] == at[:-1])):
            return None
        return self._clauses.found(0, at, numbers)

    def find(self, rows: pa.Table, file: str) -> tuple[Positions, Positions]:
        """Return which rows meet one of the source, and which one; -1: none, of rows that meet none."""
        at, numbers = self._files.get(file, _NONE)
        positions = rows.column(POSITION.name).to_numpy()
        place = np.minimum(np.searchsorted(positions, at), rows.num_rows - 1)
        inside = positions[place] == at
        of_target, of_source = place[inside], numbers[inside]
        self._clauses.check_met_once(rows, of_target, None)
        return self._clauses.found(rows.num_rows, of_target, of_source)


_NONE: Final = (np.empty(0, np.int64), np.empty(0, np.int64))


def none_met(clauses: Clauses) -> MetRule:
    """Return the rule for files whose rows meet no row of the source, as far as is known."""
    return MetRule(clauses, pa.table({}), {})

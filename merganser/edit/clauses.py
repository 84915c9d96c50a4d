"""Clauses of a merge: what becomes of rows of the table and of rows of the source, by which rows they meet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from merganser.edit.assign import SOURCE, TARGET, Assignments
from merganser.edit.joined import On, beside
from merganser.errors import InvalidInputError
from merganser.expr.predicate import Predicate
from merganser.expr.tree import Column
from merganser.merge.groups import Mask, Positions
from merganser.meta.table_def import TableDef
from merganser.scan.rows import counted
from merganser.schema.pieces import rows_at
from merganser.values import dataclass

SHOWN_MAX: Final = 3
"""Most rows that a message shows."""


@dataclass(frozen=True)
class Clause:
    """What becomes of some rows.

    Attributes:
        condition: which rows; None: all that no earlier clause has taken.
        sets: the values that they get; None: they are deleted.
        by_name: the values are those of all columns that have the names of columns of the source.
    """

    condition: Predicate | None
    sets: Assignments | None
    by_name: bool = False

    @property
    def columns(self) -> frozenset[str]:
        """The columns that the clause looks at."""
        asked = frozenset() if self.condition is None else self.condition.columns
        return asked if self.sets is None else asked | self.sets.columns

    @property
    def named(self) -> frozenset[str]:
        """The columns of the table that the clause names."""
        sides = (name.partition(".") for name in self.columns)
        read = frozenset(name for side, _, name in sides if side == TARGET)
        return read if self.sets is None else read.union(self.sets.values)

    def of(self, table: TableDef) -> Clause:
        """Return the same for the table with another schema, in which the named columns are the same."""
        return self if self.sets is None else replace(self, sets=self.sets.of(table))


@dataclass(frozen=True)
class Clauses:
    """What a merge makes of rows. Pickles.

    Attributes:
        table: the table, as it is when the merge is executed.
        on: which rows meet.
        action: what is being done, as messages begin.
        matched: of rows of the table that meet a row of the source; of each kind the first clause that fits wins.
        missing: of rows of the source that meet none.
        unmatched: of rows of the table that meet none.
    """

    table: TableDef
    on: On
    action: str
    matched: tuple[Clause, ...]
    missing: tuple[Clause, ...]
    unmatched: tuple[Clause, ...]

    @property
    def where(self) -> Predicate | None:
        """The rows of the table that may change; None: any."""
        return None if self.unmatched else self.on.of_target

    def wanted(self, targets: pa.Table) -> frozenset[str]:
        """Return the columns of pairs of rows that clauses look at, or keep.

        Args:
            targets: the rows of the table.
        """
        found = frozenset(name for clause in self.matched for name in clause.columns)
        if any(clause.sets is not None for clause in self.matched):
            found |= {f"{TARGET}.{name}" for name in targets.column_names}
        return found

    @property
    def of_source(self) -> frozenset[str]:
        """The columns of the source that clauses look at."""
        sides = (name.partition(".") for each in (*self.matched, *self.missing) for name in each.columns)
        return frozenset(name for side, _, name in sides if side == SOURCE)

    def taken_from(self, names: Sequence[str]) -> dict[str, str] | None:
        """Return the columns of the source that new rows take some columns from; None: these are computed, or differ.

        Without inserts there are none.
        """
        found: dict[str, str] = {}
        for clause in self.missing:
            assert clause.sets is not None
            for name in names:
                value = clause.sets.values.get(name)
                path = value.expression.path if value is not None and isinstance(value.expression, Column) else ()
                column = path[0].partition(".")[2] if len(path) == 1 else ""
                if not column or found.setdefault(name, column) != column:
                    return None
        return found

    def judge(self, rows: pa.Table, numbers: Positions, source: pa.Table) -> tuple[Mask, pa.Table]:
        """Return which rows of the table go, and what the others become.

        Args:
            rows: n rows, all columns.
            numbers: int64[n], the rows of the source that they meet; -1: none.
            source: its columns, called `source.column`.
        """
        goes, place, parts = np.zeros(rows.num_rows, np.bool_), np.arange(rows.num_rows), [rows]
        met, others = np.flatnonzero(numbers >= 0), np.flatnonzero(numbers < 0)
        pairs = beside(rows, source, met, numbers[met], self.wanted(rows))
        alone = rows_at(rows, others).rename_columns([f"{TARGET}.{name}" for name in rows.column_names])
        for clauses, at, given in ((self.matched, met, pairs), (self.unmatched, others, alone)):
            for mask, clause, chosen in taken(clauses, given):
                if clause.sets is None:
                    goes[at[mask]] = True
                else:
                    place[at[mask]] = sum(part.num_rows for part in parts) + np.arange(chosen.num_rows)
                    parts.append(clause.sets.apply(chosen))
        return goes, rows_at(pa.concat_tables(parts), place)

    def found(self, count: int, of_target: Positions, of_source: Positions) -> tuple[Positions, Positions]:
        """Return which of n rows of the table may change, rising, and which rows of the source they meet; -1: none.

        Args:
            of_target, of_source: the pairs of rows that meet, rising.
        """
        if not self.unmatched:
            return (of_target, of_source) if self.matched else (of_target[:0], of_source[:0])
        numbers = np.full(count, -1, np.int64)
        numbers[of_target] = of_source
        return np.arange(count), numbers

    def new_rows(self, rows: pa.Table) -> pa.Table | None:
        """Return the rows to insert; None: there are none.

        Args:
            rows: rows of the source that meet none, its columns called `source.column`.
        """
        made = [clause.sets.apply(chosen) for _, clause, chosen in taken(self.missing, rows) if clause.sets is not None]
        return pa.concat_tables(made) if made else None

    def check_met_once(self, targets: pa.Table, of_target: Positions, of_source: Positions | None) -> None:
        """Refuse a row that meets several rows of the source: which one is meant?

        Args:
            targets: rows of the table, with the columns that name a row.
            of_target: those of them that meet rows of the source, once for each, rising.
            of_source: the rows that they meet; None: their numbers say nothing to the user.

        Raises:
            InvalidInputError: shows some of the rows.
        """
        again = np.flatnonzero(of_target[1:] == of_target[:-1])
        if not self.matched or not len(again):
            return
        twice = np.unique(of_target[again])
        names = self.table.schema.shown.primary_keys or [field.name for field, _ in self.on.pairs]
        shown = examples(targets.take(pa.array(twice[:SHOWN_MAX])), names)
        theirs = ""
        if of_source is not None:
            first = ", ".join(str(row + 1) for row in of_source[of_target == twice[0]][:SHOWN_MAX])
            theirs = f" The first meets rows {first} of the source (counting from 1)."
        raise InvalidInputError(
            f"{self.action}: {counted(len(twice), 'row')} of the table would meet more than one row of the source "
            f"({shown}).{theirs} Nothing was written. Leave one row of the source for each, or let the condition tell "
            "them apart.",
            table=self.table.name,
        )


def taken(clauses: Sequence[Clause], rows: pa.Table) -> Iterator[tuple[Mask, Clause, pa.Table]]:
    """Yield which rows each clause takes, and these rows: those that fit and that no earlier clause has taken."""
    left = np.ones(rows.num_rows, np.bool_)
    for clause in clauses:
        taken = left.copy()
        if clause.condition is not None:
            taken[left] = np.asarray(clause.condition.mask(rows.filter(pa.array(left))).fill_null(False))
        if taken.any():
            yield taken, clause, rows.filter(pa.array(taken))
        left &= ~taken


def examples(rows: pa.Table, names: Sequence[str]) -> str:
    """Return what names some rows, for messages."""
    few = rows.slice(0, SHOWN_MAX).to_pylist()
    return "; ".join(", ".join(f"{name} = {row[name]!r:.40}" for name in names) for row in few)

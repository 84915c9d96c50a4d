"""Changes: a lazy read of what snapshots published, in their order, or changed together, each row with its kind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from merganser.errors import InvalidInputError
from merganser.expr.predicate import Predicate
from merganser.meta.table_def import TableDef
from merganser.scan.plan import Plan
from merganser.scan.plan_changes import explained, plan_changes, unless_gone
from merganser.scan.read import read_split
from merganser.scan.rows import BATCH_ROWS, Rows, with_schema
from merganser.scan.source import Increment, Published
from merganser.scan.split import AnySplit, What
from merganser.schema import types as t
from merganser.schema.arrow import arrow_schema
from merganser.schema.table_schema import CHANGE_KIND
from merganser.storage.env import Env

MODES: Final = ("auto", "delta", "changelog", "diff")


@dataclass(frozen=True)
class Changes(Rows):
    """What snapshots published or changed.

    Attributes:
        source: the snapshots.
        columns: columns to return, in this order, that of the kinds among them.
        where: rows to return; None: all. It may look at the kinds.
        what: the form of the changes.
    """

    table: TableDef
    env: Env
    source: Increment
    columns: tuple[t.Field, ...]
    where: Predicate | None = None
    what: What = What.CHANGED

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the result."""
        return arrow_schema(self.columns)

    def plan(self) -> Plan:
        """Return what will be read, in order: the range of snapshots is fixed now.

        Raises:
            ExpiredError: a snapshot of the range is not kept any more, and neither is its changelog.
            NotFoundError: there is no such snapshot yet.
            InvalidInputError: changelog files are asked for, and the table has none.
            FormatError: metadata is damaged or missing.
        """
        return plan_changes(self.table, self.env, self.source, columns=self.columns, where=self.where, what=self.what)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches of at most 65,536 rows, in order; memory stays bounded."""
        plan = self.plan()
        for split in plan.splits:
            for rows in self._read(plan, split):
                yield from rows.to_batches(max_chunksize=BATCH_ROWS)

    def to_arrow(self) -> pa.Table:
        """Return all rows as one table, in order."""
        plan = self.plan()
        found = self.env.map(lambda split: list(self._read(plan, split)), plan.splits)
        tables = [rows for tables in found for rows in tables]
        return pa.concat_tables(tables) if tables else self.schema.empty_table()

    def explain(self) -> str:
        """Return what would be read."""
        return explained(self.table.name, self.plan())

    def __repr__(self) -> str:
        return f"Changes({self.table.name!r}, {self.source!r})"

    def _read(self, plan: Plan, split: AnySplit) -> Iterator[pa.Table]:
        with unless_gone(self.table, self.env, self.source):
            for rows in read_split(plan.job, split, self.env.storage):
                yield with_schema(rows, self.schema)


def published(name: str, start: int, end: int | None, mode: str) -> Published:
    """Return a range of snapshots of a table of this name.

    Raises:
        InvalidInputError: an id is no number, or there is no such mode.
    """
    for what, number in (("start", start), ("end", end)):
        if (number is not None or what == "start") and (
            not isinstance(number, int) or isinstance(number, bool) or number < (1 if what == "start" else 0)
        ):
            raise InvalidInputError(
                f"cannot read the changes of '{name}': {what} is {number!r:.50}. Give the id of a snapshot, a "
                "whole number from 1 on."
            )
    if mode not in MODES:
        raise InvalidInputError(
            f"cannot read the changes of '{name}': mode is {mode!r:.50}. It is one of {', '.join(MODES)}."
        )
    return Published(start, end, mode)


def changes_of(
    table: TableDef, env: Env, source: Increment, columns: tuple[t.Field, ...], where: Predicate | None
) -> Changes:
    """Return the changes of a source; see `Table.changes`.

    Raises:
        InvalidInputError: the table has a column of the name of the kinds.
    """
    if any(field.name == CHANGE_KIND.name for field in table.schema.fields):
        raise InvalidInputError(
            f"cannot read the changes of '{table.name}': it has a column '{CHANGE_KIND.name}', the name of the "
            "column of kinds. Rename that column.",
            column=CHANGE_KIND.name,
        )
    return Changes(table, env, source, (CHANGE_KIND, *columns), where)

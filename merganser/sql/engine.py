"""Engine: what a session asks of the process or of Spark that runs its queries and changes rows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from sqlglot import exp

from merganser.handle.table import Table
from merganser.meta.snapshot import Snapshot
from merganser.schema import types as t
from merganser.sql.result import Result
from merganser.sql.sources import Sources
from merganser.sql.state import State
from merganser.sql.statements import Insert
from merganser.values import dataclass

PLACED: Final = "merganser_placed"
"""Marks the reference of a query whose rows have the columns of `edit.places.PLACES`."""


@dataclass(frozen=True)
class Relation:
    """Rows that a query gives, not yet read.

    Attributes:
        names, types: of its columns.
        rows: of the engine: a reader of batches, or a DataFrame.
        sources: the tables that the query reads.
    """

    names: Sequence[str]
    types: Sequence[t.DataType]
    rows: Any
    sources: Sources

    def called(self, position: int) -> str:
        """Return what messages call a column: one of VALUES has a name that nobody wrote, `col1`."""
        made = re.fullmatch(r"col(\d+)", self.names[position])
        return f"value {made[1]}" if made else self.names[position]


@dataclass(frozen=True)
class Assigned:
    """A column to write: which column of a relation, or which value, in which type.

    Attributes:
        source: the position in the relation; None: `value`.
        inside: a row with another value than `value` in the relation's column is an error.
        by_name: fields of ROWs are stored by their names; see `assigning.given_fields`.
    """

    field: t.Field
    source: int | None
    value: Any = None
    inside: bool = False
    by_name: bool = False


class Engine(Protocol):
    """Runs queries and changes rows."""

    def query(self, state: State, tree: exp.Expression, into: Table | None = None) -> Relation:
        """Return the rows of a query, checked but not yet read.

        Args:
            into: the table that they change; None: none.
        """

    def described(self, state: State, tree: exp.Expression) -> tuple[Sequence[str], Sequence[t.DataType]]:
        """Return the names and types of the columns of a query, which is not run."""

    def compute(self, relation: Relation) -> None:
        """Compute the rows of a relation, for the error that one of them raises."""

    def result(self, state: State, relation: Relation) -> Any:
        """Return a relation as the user gets it."""

    def explain(self, state: State, tree: exp.Expression) -> str:
        """Return what a query reads and skips."""

    def assigned(self, state: State, relation: Relation, columns: Sequence[Assigned]) -> Any:
        """Return rows to write: columns of a relation in the types of a table."""

    def write(self, table: Table, rows: Any, sources: Sources, **how: Any) -> tuple[Snapshot | None, int | None]:
        """Write rows as one commit; return its snapshot and the number of rows, if known.

        Raises:
            ConflictError: what the query read of the table has changed; `overtaken` is QUERY.
        """

    def insert_stream(self, state: State, table: Table, statement: Insert) -> Result:
        """Start a stream from a query into a table, where the engine has streams."""

    def delete(self, state: State, table: Table, where: str) -> Snapshot | None: ...

    def delete_keys(self, table: Table, source: Relation) -> Snapshot | None:
        """Delete the rows whose keys a query gives; it raises ConflictError as `write` does."""

    def update(self, state: State, table: Table, where: str, values: Mapping[str, str]) -> Snapshot | None: ...

    def merge(self, state: State, table: Table, source: Relation, on: str, alias: tuple[str, str]) -> Any:
        """Return a merge of rows of a query. Its `execute` raises ConflictError as `write` does."""

    def change_files(
        self, state: State, table: Table, query: exp.Expression, columns: Sequence[str] | None
    ) -> Snapshot | None:
        """Change the rows of a table without a key that a query finds.

        Args:
            query: gives the columns of `edit.places.PLACES` of the reference that is marked with `PLACED`, and then a
                new value for each column, or anything.
            columns: the columns to change; None: the rows are deleted.

        Raises:
            ConflictError: as for `write`.
        """

    def compact(self, table: Table, **how: Any) -> Snapshot | None: ...

    def rescale(self, table: Table, buckets: int, partitions: Any) -> Snapshot | None: ...

    def cancel(self) -> None:
        """Stop the query that runs, if there is one."""

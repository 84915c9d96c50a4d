"""How rows go in and come out. The embedded door is here, the one through Spark in `spark_door`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa

import merganser as mg
from tests.conformance.outcome import method
from tests.conformance.streams import started

Overwrite = Mapping[str, Any] | str | None


class Door(Protocol):
    """One way of writing and reading; everything else about a table is done embedded.

    Attributes:
        name: for the report.
        micros: moments lose what lies behind the microsecond.
        joins: a stream gives what it received in one piece, whatever its snapshots were.
    """

    name: str
    micros: bool
    joins: bool

    def write(
        self,
        table: mg.Table,
        rows: pa.Table,
        kinds: Sequence[str],
        *,
        columns: Sequence[str] | None = None,
        overwrite: Overwrite = None,
        commit_user: str | None = None,
        identifier: int | None = None,
    ) -> None:
        """Write rows in their order as one commit."""

    def write_streaming_overwrite(self, table: mg.Table, rows: pa.Table, kinds: Sequence[str]) -> None:
        """Overwrite the table from a job that does not end."""

    def read(self, table: mg.Table, limit: int | None = None) -> pa.Table:
        """Return the rows of a table as its options say."""

    def stream(self, table: Any, options: dict[str, Any]) -> list[pa.Table]:
        """Return what a streaming reader receives until it has caught up, with the kinds of the rows."""

    def compact(self, table: mg.Table, *, full: bool, partitions: Sequence[Mapping[str, Any]] | None) -> None:
        """Compact buckets."""


class EmbeddedDoor:
    """Everything in this process."""

    name = "embedded"
    micros = False
    joins = False

    def write(
        self,
        table: mg.Table,
        rows: pa.Table,
        kinds: Sequence[str],
        *,
        columns: Sequence[str] | None = None,
        overwrite: Overwrite = None,
        commit_user: str | None = None,
        identifier: int | None = None,
    ) -> None:
        """Write through `Table.write`."""
        table.write(
            rows,
            kinds=pa.array(kinds, pa.string()),
            columns=columns,
            overwrite=overwrite,
            commit_user=commit_user,
            identifier=identifier,
        )

    def write_streaming_overwrite(self, table: mg.Table, rows: pa.Table, kinds: Sequence[str]) -> None:
        """Embedded writers are no unbounded jobs: a method for it may come."""
        method(table, "streaming_overwrite", "an overwrite from an unbounded job (embedded)")(rows, list(kinds))

    def read(self, table: mg.Table, limit: int | None = None) -> pa.Table:
        """Read through `Table.read`."""
        return table.read(limit=limit).to_arrow()

    def stream(self, table: Any, options: dict[str, Any]) -> list[pa.Table]:
        """Stream through `Table.stream`, one piece per snapshot."""
        return list(started(table, options, follow=False))

    def compact(self, table: mg.Table, *, full: bool, partitions: Sequence[Mapping[str, Any]] | None) -> None:
        """Compact through `Table.compact`."""
        method(table, "compact")(full=full, partitions=partitions)

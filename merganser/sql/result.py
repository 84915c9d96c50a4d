"""What a statement gave: rows, and for DML the commit and the counts of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

import pyarrow as pa

from merganser.html.tables import caption_html, note_html, shown
from merganser.meta.snapshot import Snapshot
from merganser.scan.rows import First, counted
from merganser.values import dataclass

NO_ROWS = pa.schema([]).empty_table()


@dataclass(frozen=True)
class Result:
    """The result of one statement.

    Attributes:
        rows: an Arrow table; empty without columns for statements that give no rows. On Spark, a DataFrame.
        has_rows: whether the statement is one that gives rows.
        snapshot: of the commit; None if nothing was committed.
        counts: rows by what became of them, such as {"inserted": 3}; empty if not known.
        changes: whether the statement is one that changes rows.
        seconds: how long the statement ran.
        statement: its text.
    """

    rows: Any = field(default_factory=lambda: NO_ROWS)
    has_rows: bool = False
    snapshot: Snapshot | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    changes: bool = False
    seconds: float = 0.0
    statement: str = ""

    def _repr_html_(self) -> str | None:
        """Return the first rows, or what was committed, for notebooks. None on Spark, whose frames show themselves."""
        return shown(repr(self), self._parts) if isinstance(self.rows, pa.Table) else None

    def _parts(self) -> Sequence[str]:
        took = f"{self.seconds:.2f} s"
        if self.has_rows:
            return (*First(self.statement, self.rows, True, self.rows.num_columns).parts(), note_html(took))
        done = [f"{counted(rows, 'row')} {verb}" for verb, rows in self.counts.items()]
        done += [] if self.snapshot is None else [f"snapshot {self.snapshot.id}"]
        return caption_html(self.statement), note_html(", ".join([*done, took]))


def rows_of(names: Sequence[str], rows: Sequence[Sequence[Any]], types: Sequence[pa.DataType] | None = None) -> Result:
    """Return a result of rows, of text unless types are given."""
    kinds = types or [pa.string()] * len(names)
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
    made = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    return Result(pa.table(dict(zip(names, made, strict=True))), has_rows=True)

"""What a statement gave: rows, and for DML the commit and the counts of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from merganser.meta.snapshot import Snapshot

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


def rows_of(names: Sequence[str], rows: Sequence[Sequence[Any]], types: Sequence[pa.DataType] | None = None) -> Result:
    """Return a result of rows, of text unless types are given."""
    kinds = types or [pa.string()] * len(names)
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
    made = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    return Result(pa.table(dict(zip(names, made, strict=True))), has_rows=True)

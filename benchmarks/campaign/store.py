"""What a contender of the campaign does: tables by name below a directory. Imports nothing that a peer may lack."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.data import load

from . import rows

KIND = "op"
"""The column of `with_kinds`."""


class UnsupportedError(Exception):
    """The contender has no way to do a step; the text says which one it lacks."""


class Store(ABC):
    """One contender. `changes` and `feed` write; what `read` and `look_up` return goes into `digest`."""

    def __init__(self, home: Path, settings: dict[str, Any]) -> None:
        """A store whose files lie below `home`; nothing is made before the first table."""
        self.home, self.settings = home, settings

    def input(self, path: Path) -> Any:
        """The rows of a file, in memory before the clock starts."""
        return load(f"{path}.arrow")

    def close(self) -> None:  # noqa: B027 - most need nothing
        """Let go of what is open."""

    @abstractmethod
    def create(self, table: str) -> None:
        """Make an empty table."""

    @abstractmethod
    def append(self, table: str, new: Any) -> None:
        """Write rows whose keys the table has not, one commit."""

    @abstractmethod
    def change(self, table: str, written: Any, deleted: Any) -> None:
        """Write rows that are new or replace others, and delete keys; in one commit if the store can."""

    @abstractmethod
    def read(self, table: str, key_range: Sequence[int] | None = None) -> Any:
        """All columns of all rows, or of those whose `order_id` lies in a range."""

    def look_up(self, table: str, keys: Sequence[Sequence[int]]) -> Any:
        """The rows of keys, asked for one by one."""
        raise UnsupportedError("no lookup")

    def position(self, table: str) -> Any:
        """Where the changes begin that come from now on."""
        return None

    def feed(self, source: str, target: str, since: Any) -> None:
        """Apply the changes of `source` after a position to `target`."""
        raise UnsupportedError("publishes no changes of rows")

    def compact(self, table: str) -> None:
        """Rewrite the table so that nothing is left to merge, by what the store offers for it."""
        raise UnsupportedError("has no compaction")

    def path(self, table: str) -> Path:
        """The directory with all files of a table."""
        return self.home

    def copy(self, target: str, found: Any) -> None:
        """Make a table with what a read returned."""
        self.create(target)
        self.append(target, found)

    def digest(self, found: Any) -> rows.Digest:
        """What rows come to."""
        return rows.digest(found)


def with_kinds(written: pa.Table, deleted: pa.Table) -> pa.Table:
    """Changes as one table: rows to write, and keys to delete with nulls beside them, told apart by `KIND`."""
    parts = [
        part.append_column(KIND, pa.array([kind] * part.num_rows, pa.string()))
        for part, kind in ((written, "+I"), (deleted, "-D"))
    ]
    return pa.concat_tables(parts, promote_options="default")


def newest(changes: pa.Table, order: str, kind: str, deletes: Iterable[str]) -> tuple[pa.Table, pa.Table]:
    """The last change of each key, as rows to write and keys to delete.

    Args:
        changes: rows with what follows; old values of updates are left out.
        order: a column that grows from change to change.
        kind: a column that says what a change is.
        deletes: its values that stand for a delete.
    """
    last = changes.group_by(list(rows.KEY)).aggregate([(order, "max")])
    last = last.rename_columns([*rows.KEY, order])
    found = changes.join(last, [*rows.KEY, order], join_type="inner")
    gone = pc.is_in(found[kind], pa.array(list(deletes)))
    names = rows.SCHEMA.names
    return found.filter(pc.invert(gone)).select(names), found.filter(gone).select(list(rows.KEY))

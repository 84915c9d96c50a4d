"""Commits of a log in batches: what the reader heard since its last batch, as parts that tasks decode.

The process that plans batches hears the log, and tasks get the records with their plan. So tasks need no client, and
what the log may have lost by then, to its retention or to the compaction of its topic, does not matter.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from merganser.expr.predicate import Predicate
from merganser.meta.table_def import TableDef
from merganser.scan.split import What
from merganser.schema import types as t
from merganser.schema.table_schema import CHANGE_KIND
from merganser.storage.protocol import Storage
from merganser.values import dataclass

if TYPE_CHECKING:
    from merganser.log.tail import LogCommit

_RECORD_COST: Final = 16
"""Bytes of a data file that are read in the time of one byte of a record, about."""


@dataclass(frozen=True, slots=True)
class LoggedPart:
    """Rows of a batch that the log delivered: records of one of its partitions, in order.

    Attributes:
        table: the table, with the columns of the rows.
        what: the form of the rows: CHANGED or MERGED.
        columns: to return, of the form.
        where: rows to return; None: all.
        keys, values: of the records.
    """

    table: TableDef
    what: What
    columns: tuple[t.Field, ...]
    where: Predicate | None
    keys: list[bytes | None]
    values: list[bytes | None]

    @property
    def files(self) -> int:
        """Number of files."""
        return 0

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.values)

    @property
    def size_bytes(self) -> int:
        """Size of files that take as long to read."""
        return _RECORD_COST * sum(
            len(key or b"") + len(one or b"") for key, one in zip(self.keys, self.values, strict=True)
        )

    def read(self, storage: Storage) -> Iterator[pa.Table]:
        """Yield the rows, in order.

        Args:
            storage: not needed; parts that lie in files are read from there.

        Raises:
            FormatError: a record is damaged.
        """
        from merganser.log.records import changes_of  # noqa: PLC0415 - readers of JSON, for tables with a log

        rows = changes_of(self.table, self.keys, self.values)
        if self.what is What.MERGED:
            rows = rows.filter(pc.is_in(rows.column(CHANGE_KIND.name), pa.array(["+I", "+U"])))
        if self.where is not None:
            rows = self.where.apply(rows)
        yield rows.select([field.name for field in self.columns])


@dataclass(frozen=True, slots=True)
class LoggedCommit:
    """A commit of the log as a batch takes it: whole.

    Attributes:
        commit: what the log delivered.
    """

    commit: LogCommit

    @property
    def files(self) -> int:
        """Number of partitions with records, which is that of buckets."""
        return len(self.commit.parts)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(len(values) for _, values in self.commit.parts.values())

    @property
    def size_bytes(self) -> int:
        """Size of the records."""
        return self.commit.size_bytes


class Heard:
    """Commits that the log delivered, from the end of the last batch on.

    Attributes:
        count: number of commits that batches have taken from the log.
    """

    def __init__(self) -> None:
        self.count = 0
        self._commits: dict[int, LogCommit] = {}  # by the first snapshot that was not known before

    def add(self, number: int, commit: LogCommit) -> None:
        """Keep a commit. Snapshots from `number` to it have published nothing else."""
        self._commits[number] = commit
        self.count += 1

    def pass_by(self, number: int) -> None:
        """Forget what comes before a snapshot."""
        self._commits = {key: one for key, one in self._commits.items() if key >= number}

    def clear(self) -> None:
        """Forget all commits."""
        self._commits.clear()

    def between(self, first: int, end: int) -> list[LogCommit] | None:
        """Return the commits of all snapshots from `first` to `end` that published something, `end` not included.

        None if not all of them were heard.
        """
        found: list[LogCommit] = []
        number = first
        while number < end:
            commit = self._commits.get(number)
            if commit is None:
                return None
            found.append(commit)
            number = commit.mark.snapshot + 1
        return found if number == end else None


def logged_turns(
    commits: list[LogCommit], table: TableDef, what: What, columns: tuple[t.Field, ...], where: Predicate | None
) -> tuple[tuple[LoggedPart], ...]:
    """Return the records of some commits by partition of the log. Rows of a bucket lie in one of them, in order."""
    parts: dict[int, tuple[list[bytes | None], list[bytes | None]]] = {}
    for commit in commits:
        for part, (keys, values) in commit.parts.items():
            all_keys, all_values = parts.setdefault(part, ([], []))
            all_keys += keys
            all_values += values
    return tuple((LoggedPart(table, what, columns, where, *parts[part]),) for part in sorted(parts) if parts[part][1])

"""Changes of tables without a key by a query: it is given the place of each row, and gives back places and new values.

So rows are told apart whatever their values are, also equal rows, and rows whose values do not compare.

Docs: decision 0059.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa

from merganser.commit.conflict import Reads
from merganser.edit.joined import On
from merganser.edit.merge_files import AT, FILE, JOB, FilesMerge, merged_in_files
from merganser.edit.merging import Merge
from merganser.edit.rewrite import RewriteJob
from merganser.expr.predicate import Predicate
from merganser.expr.setting import Setting
from merganser.merge.groups import Mask, Positions
from merganser.meta.snapshot import Snapshot
from merganser.meta.table_def import TableDef
from merganser.scan.rows import with_schema
from merganser.schema import types as t
from merganser.schema.arrow import arrow_schema
from merganser.schema.pieces import rows_at
from merganser.schema.table_schema import POSITION
from merganser.schema.types_text import UNNUMBERED
from merganser.storage.env import Env
from merganser.upkeep.compact_table import RunJobs
from merganser.values import dataclass
from merganser.write.job import Outcome

PLACES: Final = (
    t.Field(UNNUMBERED, JOB, t.BigInt()),
    t.Field(UNNUMBERED, FILE, t.Int()),
    t.Field(UNNUMBERED, AT, t.BigInt()),
)
"""Columns that say where a row is."""


@dataclass(frozen=True)
class Sought:
    """The rows of files that a query reads; see `RowRule`. It changes none."""

    where: Predicate | None
    reads: frozenset[str]
    removes_all = False

    def known(self, file: str) -> tuple[Positions, Positions] | None:
        """Return None: rows have to be looked at."""
        return None

    def find(self, rows: pa.Table, file: str) -> tuple[Positions, Positions]:
        """Return no rows."""
        return np.empty(0, np.int64), np.empty(0, np.int64)

    def judge(self, rows: pa.Table, numbers: Positions) -> tuple[Mask, pa.Table]:
        """Return the rows as they are."""
        return np.zeros(rows.num_rows, np.bool_), rows


@dataclass(frozen=True)
class Placed:
    """The rows of files with their places, with the verbs of a scan.

    Attributes:
        jobs: whose files are read.
        columns: names of columns; those of `PLACES` may be among them.
        where: the rows; None: all.
    """

    table: TableDef
    env: Env
    jobs: Sequence[RewriteJob]
    columns: Sequence[str]
    where: Predicate | None

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows."""
        return arrow_schema(self._fields)

    @property
    def _fields(self) -> list[t.Field]:
        known = {field.name: field for field in (*self.table.schema.fields, *PLACES)}
        return [known[name] for name in self.columns]

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows."""
        for number, job in enumerate(self.jobs):
            for file, rows in sought(job, self.columns, self.where).sought(self.env):
                found = rows if self.where is None else self.where.apply(rows)
                yield from with_schema(self._placed(found, number, file), self.schema).to_batches()

    def _placed(self, rows: pa.Table, job: int, file: int) -> pa.Table:
        places = {
            JOB: lambda: pa.repeat(pa.scalar(job, pa.int64()), rows.num_rows),
            FILE: lambda: pa.repeat(pa.scalar(file, pa.int32()), rows.num_rows),
            AT: lambda: rows.column(POSITION.name),
        }
        return pa.table({name: places[name]() if name in places else rows.column(name) for name in self.columns})


def sought(job: RewriteJob, columns: Sequence[str], where: Predicate | None) -> RewriteJob:
    """Return a job whose `sought` yields columns of the rows that a query reads."""
    named = frozenset() if where is None else where.columns
    return replace(job, rule=Sought(where, named.union(columns)))


def changed_in_places(
    table: TableDef,
    env: Env,
    given: pa.Schema,
    sets: dict[str, str] | None,
    where: Predicate | None,
    setting: Setting,
    run: Callable[[FilesMerge], list[Outcome]],
    reads: Callable[[], Reads | None],
    compact: RunJobs | None = None,
) -> Snapshot | None:
    """Change the rows whose places a query gives.

    Args:
        given: columns that the query gives beside places.
        sets: the new values by column, as `source.<a column of given>`; None: the rows are deleted.
        where: a condition that all of these rows fulfil; None: none is known.
        run: runs the query over the rows of files, and returns what becomes of these.
        reads: what the query has read of the table otherwise; called after `run`.
        compact: runs the compactions that follow the commit.
    """

    def done(merge: Merge) -> Snapshot | None:
        return merged_in_files(merge, run, compact, reads)

    on = On((), where, None, None)
    merge = Merge(table, env, given.empty_table(), on, setting, _elsewhere=done)
    return (merge.when_matched_delete() if sets is None else merge.when_matched_update(sets)).execute()


def changed_here(todo: FilesMerge, rows: pa.Table, env: Env) -> list[Outcome]:
    """Return what becomes of files in this process.

    Args:
        rows: places and new values.
    """
    jobs = rows.column(JOB).to_numpy()
    order = np.argsort(jobs, kind="stable")
    ordered = rows_at(rows, order)
    cuts = [*np.flatnonzero(np.diff(jobs[order], prepend=-1)).tolist(), rows.num_rows]
    done: list[Outcome] = []

    def one(part: pa.Table) -> None:
        done.extend(todo.new.run([part], lambda number: todo.jobs[number], env))

    env.map(one, [ordered.slice(start, end - start) for start, end in pairwise(cuts)])
    return done

"""Merges into tables without a key that an engine shares among its tasks.

    tasks    read the columns of the condition in all files that may match, and say where each row is
    engine   joins these rows with the source, and hands each task all rows of the source that meet rows of its files,
             file by file; and rows of the source that meet none to any task
    tasks    write what becomes of the files, or which rows are marked (`rewrite`); and new rows

Docs: decision 0059.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, groupby, pairwise
from operator import itemgetter
from typing import Final

import numpy as np
import pyarrow as pa

from merganser.commit.conflict import Reads
from merganser.edit.assign import SOURCE
from merganser.edit.clauses import Clauses
from merganser.edit.merge_jobs import is_whole_elsewhere
from merganser.edit.merge_rules import MetRule, none_met
from merganser.edit.merge_source import source_of
from merganser.edit.merging import Merge
from merganser.edit.rewrite import RewriteJob, rewriting
from merganser.edit.rounds import in_transactions
from merganser.errors import InvariantError, MerganserError, StorageError
from merganser.lsm.abandoned import remove_uncommitted
from merganser.meta.row_counts import RowCounts
from merganser.meta.snapshot import Snapshot
from merganser.meta.table_state import TableState
from merganser.schema.internal_names import internal_name
from merganser.storage.env import Env
from merganser.upkeep.compact_table import RunJobs
from merganser.values import dataclass
from merganser.write.incoming import Prepared
from merganser.write.job import Outcome, WriteJob, messages_of
from merganser.write.transaction import Transaction

JOB: Final = internal_name("job")
"""Column with the number of the job that changes the file of a row; -1: the row of the source meets none."""
FILE: Final = internal_name("file")
"""Column with the number of the file among those of its job; null: the row says that the job is to be done."""
AT: Final = internal_name("at")
"""Column with the position of the row in the file."""
NEW: Final = -1


@dataclass(frozen=True)
class FilesMerge:
    """A merge into files, as an engine does it.

    Attributes:
        clauses: what becomes of rows.
        jobs: the files that may change; each job is to be run if a row of its files meets one of the source, and if
            there are clauses for rows that meet none.
        new: writes the rows of the source that meet none.
    """

    clauses: Clauses
    jobs: tuple[RewriteJob, ...]
    new: MergedRows


@dataclass(frozen=True)
class MergedRows:
    """Makes of joined rows what is written. Pickles; runs wherever there is a core.

    Attributes:
        clauses: what becomes of rows.
        write: writes new rows.
    """

    clauses: Clauses
    write: WriteJob

    def run(self, parts: Iterable[pa.Table], jobs: Callable[[int], RewriteJob], env: Env) -> Iterator[Outcome]:
        """Yield an outcome per job. New files are durable; of a refusal nothing is left of the job.

        Args:
            parts: columns of the source that the clauses look at, `JOB`, `FILE` and `AT`; in the order of `JOB`, so
                that the rows of one job at a time are held.
            jobs: returns a job by its number.
        """
        for number, found in groupby(chain.from_iterable(map(_by_job, parts)), key=itemgetter(0)):
            rows = (part for _, part in found)
            if number == NEW:
                yield self._inserted(rows, env)
            else:
                yield self._changed(jobs(number), pa.concat_tables(rows), env)

    def _inserted(self, parts: Iterable[pa.Table], env: Env) -> Outcome:
        outcome = replace(self.write, env=env).run_prepared(self._new_rows(parts))
        return replace(outcome, counts=RowCounts(inserted=outcome.rows))

    def _new_rows(self, parts: Iterable[pa.Table]) -> Iterator[Prepared]:
        for part in parts:
            new = self.clauses.new_rows(self._of_source(part))
            if new is not None and new.num_rows:
                yield new, None, None

    def _changed(self, job: RewriteJob, rows: pa.Table, env: Env) -> Outcome:
        try:
            rule = self._rule(job, rows.filter(rows.column(FILE).is_valid()))
        except MerganserError as refusal:
            if isinstance(refusal, StorageError):
                raise
            return Outcome(refusal=refusal)
        return replace(job, rule=rule).run(env)

    def _rule(self, job: RewriteJob, rows: pa.Table) -> MetRule:
        files, at = rows.column(FILE).to_numpy(), rows.column(AT).to_numpy()
        order = np.lexsort((at, files))
        met = {}
        for number in np.unique(files).tolist():
            numbers = order[slice(*np.searchsorted(files[order], [number, number + 1]))]
            met[job.files[number].name] = at[numbers], numbers
        return MetRule(self.clauses, self._of_source(rows), met)

    def _of_source(self, rows: pa.Table) -> pa.Table:
        """Return the columns of the source, called `source.column`, in the types that the clauses know."""
        found = source_of(rows.drop_columns([JOB, FILE, AT]), self.clauses.table, self.clauses.action)
        return found.rename_columns([f"{SOURCE}.{name}" for name in found.column_names])


def _by_job(rows: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """Yield stretches of rows of one job."""
    jobs = rows.column(JOB).to_numpy()
    cuts = [0, *(np.flatnonzero(jobs[1:] != jobs[:-1]) + 1).tolist(), len(jobs)]
    for start, end in pairwise(cuts):
        if end > start:
            yield int(jobs[start]), rows.slice(start, end - start)


def can_join_files(merge: Merge) -> bool:
    """Return whether an engine can join the rows of files with the source."""
    table = merge.table
    return not table.keyed and all(is_whole_elsewhere(table.schema.field(name).type) for name in merge._on.reads)


def merged_in_files(
    merge: Merge,
    run: Callable[[FilesMerge], list[Outcome]],
    compact: RunJobs | None,
    reads: Callable[[], Reads | None] | None = None,
) -> Snapshot | None:
    """Merge in tasks that share the files of a table without a key.

    Args:
        run: does what `FilesMerge` says, and returns the outcomes.
        compact: runs the compactions that follow the commit.
        reads: what a query that `run` runs has read of the table besides.
    """

    def round_(transaction: Transaction, state: TableState) -> Snapshot | None:
        table, env, clauses = transaction.table, merge._env, merge._clauses
        todo = rewriting(table, env, state, none_met(clauses))
        outcomes = run(FilesMerge(clauses, todo.jobs, MergedRows(clauses, transaction.job())))
        known = merge if reads is None else merge.computed_from(reads())
        transaction.computed_from = known._computed_from
        messages_of(table, env, outcomes)  # a refusal leaves no files, whoever else has written some
        _check_each_file_once(transaction, outcomes)
        new = messages_of(table, env, [outcome for outcome in outcomes if outcome.rows])
        try:
            messages = todo.messages(table, env, [outcome for outcome in outcomes if not outcome.rows])
        except BaseException:
            remove_uncommitted(table, env, new)
            raise
        counts = sum((outcome.counts or RowCounts() for outcome in outcomes), RowCounts())
        return known._finished(transaction, state, [*messages, *new], counts)

    return in_transactions(lambda first: merge._begun(first, compact), merge._env, round_, merge._action)


def _check_each_file_once(transaction: Transaction, outcomes: Sequence[Outcome]) -> None:
    """Refuse to commit what two tasks made of one file: its rows would be there twice."""
    messages = [message for outcome in outcomes for message in outcome.messages]
    names = Counter(file.name for message in messages for file in message.removed)
    names.update(name for outcome in outcomes for name in outcome.marked)
    twice = [name for name, count in names.items() if count > 1]
    if twice:
        remove_uncommitted(transaction.table, transaction.env, messages)
        raise InvariantError(
            f"{transaction.target.action}: {len(twice)} files were changed by several tasks (first: '{twice[0]}'). "
            "Nothing was committed. Report the version of Spark.",
            table=transaction.table.name,
        )

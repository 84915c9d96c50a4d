"""Delete and update: the rows that a filter lets through are removed, or get new values, as one commit.

A table with a key, or one that counts equal rows, takes rows that say so (`row_changes`). Of other tables files are
written anew, or their rows marked (`rewrite`). So are those of tables whose merge engine has no rule for deletes
(`removal`). A delete of whole partitions, and of files whose rows all match, removes
files without a look at them.

Docs: decision 0059.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace

import pyarrow as pa

from merganser.commit.conflict import Reads
from merganser.commit.turns import in_rounds
from merganser.edit.asked import check_is_newest
from merganser.edit.assign import Assignments
from merganser.edit.matching import Matching
from merganser.edit.removal import RemovalJob, removals
from merganser.edit.rewrite import RewriteJob, rewriting, rows_in, run_here
from merganser.edit.rounds import check_columns, in_transactions
from merganser.edit.row_changes import RowChanges, check_can_delete, check_can_update, deletes_in_files
from merganser.edit.row_jobs import RowJob
from merganser.edit.row_rules import FilterRule
from merganser.expr.predicate import Predicate
from merganser.files.masks import vectors_by_bucket
from merganser.lsm.abandoned import remove_uncommitted
from merganser.meta.data_file import DELETE, ManifestEntry
from merganser.meta.followed import Look, for_changing, look
from merganser.meta.live_files import LiveFiles
from merganser.meta.row_counts import RowCounts, RowEdit
from merganser.meta.snapshot import Snapshot
from merganser.meta.table_def import TableDef
from merganser.meta.table_state import MetaReader, TableState
from merganser.options import write as w
from merganser.scan.plan import partitions_through
from merganser.storage.env import Env
from merganser.upkeep.compact_table import RunJobs
from merganser.values import dataclass
from merganser.write.begin import begin
from merganser.write.distribute import distribute
from merganser.write.job import Outcome, messages_of
from merganser.write.session import WriteSession
from merganser.write.transaction import Transaction

RunEdits = Callable[[Sequence[RowJob] | Sequence[RewriteJob] | Sequence[RemovalJob]], list[Outcome]]
"""Runs jobs side by side and returns what they did."""


@dataclass(frozen=True)
class Change:
    """One call of `Table.delete` or `Table.update`; see there.

    Attributes:
        where: the rows.
        sets: their new values; None: they are deleted.
        changes: publish what changes; see `Table.write`.
        run: where jobs run; None: on the threads of this process.
        run_compactions: where compactions that follow the commit run; None: on the threads of this process.
        seen: what the look found by which the table is as it is now.
        computed_from: the rows of the table that a query read which gave the filter; None: none.
    """

    table: TableDef
    env: Env
    where: Predicate
    sets: Assignments | None
    action: str
    commit_user: str | None = None
    identifier: int | None = None
    changes: bool = True
    run: RunEdits | None = None
    run_compactions: RunJobs | None = None
    seen: Look | None = None
    computed_from: Reads | None = None

    def done(self) -> Snapshot | None:
        """Change the rows, and return the commit; None if no row changes.

        Raises:
            InvalidInputError: the merge engine has no rule for it, or a new value does not fit; nothing was written.
            ConflictError: other commits changed the rows again and again; a column that the call names is another one
                by now; or what the query read has changed (`overtaken` is QUERY). Nothing was written.
        """
        check_is_newest(self.table, self.action)
        named = self.where.columns | (frozenset() if self.sets is None else self.sets.named)
        seen = look(self.table, self.env)
        table = for_changing(self.table, self.env, self.action, named, seen)
        if table.schema.id == self.table.schema.id:
            return replace(self, seen=seen)._done()
        sets = None if self.sets is None else self.sets.of(table)
        return replace(self, table=table, sets=sets, seen=seen)._done()

    def _done(self) -> Snapshot | None:
        if self.sets is None:
            check_can_delete(self.table, self.action, by_files=True)
        else:
            check_can_update(self.table, self.action)
        if self._drops_partitions:
            return self._dropped()
        if self.sets is None and deletes_in_files(self.table):
            return in_transactions(self._begun_with_buckets, self.env, self._removal_round, self.action)
        if self.table.keyed and (self.run is None or not self._in_jobs):
            return self._in_rows()
        round_ = self._jobs_round if self.table.keyed else self._files_round
        return in_transactions(self._begun, self.env, round_, self.action)

    @property
    def _in_jobs(self) -> bool:
        """Whether jobs read splits of the table, each with all versions of its keys."""
        if self.table.moves_keys or self.table.postpones:  # their writers have to know where all keys lie
            return False
        return Matching(self.table, self.env, self.where, self.action).keys() is None

    # as rows

    def _in_rows(self) -> Snapshot | None:
        session = WriteSession(self.table, self.env, commit_user=self.commit_user, changes=self.changes, seen=self.seen)
        session.computed_from = self.computed_from
        with closing(session):
            if self.identifier is not None:
                done, snapshot = session.applied(self.identifier)
                if done:
                    return snapshot
            return in_rounds(session.table, self.env, lambda first: self._round(session, first), session.begin_anew)

    def _round(self, session: WriteSession, is_first: bool) -> Snapshot | None:
        table = session.table
        matching = Matching(table, self.env, self.where, self.action)
        if table.postpones:
            distribute(table, self.env)
        keys = matching.keys()
        if keys is not None or not is_first:
            session.take_turn()
        snapshot, parts = matching.found(keys, session.known_state)
        check_columns(table, self.env, snapshot, self.action)
        out = RowChanges(table, session, self.action)
        self._write(parts, out)
        counts = RowCounts(out.inserted, out.updated, out.deleted)
        if counts == RowCounts():
            session.abort()
            if self._ends_without_commit:
                return None
        return session.commit(self.identifier, matching.reads(snapshot), edit=RowEdit(self._operation, lambda: counts))

    def _write(self, parts: Iterator[pa.Table], out: RowChanges) -> None:
        for rows in parts:
            if self.sets is None:
                out.delete(rows)
            else:
                out.update(rows, self.sets.apply(rows), self.sets.values)

    # in jobs

    def _jobs_round(self, transaction: Transaction, state: TableState) -> Snapshot | None:
        matching = Matching(transaction.table, self.env, self.where, self.action)
        found = matching.scan(state).plan()
        write = transaction.job()
        jobs = [RowJob(write, found.job, (split,), self.sets, self.action) for split in found.splits]
        assert self.run is not None
        outcomes = self.run(jobs) if jobs else []
        messages = messages_of(transaction.table, self.env, outcomes)
        counts = sum((outcome.counts or RowCounts() for outcome in outcomes), RowCounts())
        if counts == RowCounts() and self._ends_without_commit:
            return None
        edit = RowEdit(self._operation, lambda: counts)
        return transaction.finish(messages, reads=matching.reads(state.snapshot), edit=edit)

    def _files_round(self, transaction: Transaction, state: TableState) -> Snapshot | None:
        table = transaction.table
        todo = rewriting(table, self.env, state, FilterRule(self.where, self.sets))
        outcomes = (self.run or run_here(self.env))(todo.jobs) if todo.jobs else []
        messages = todo.messages(table, self.env, outcomes)
        if not messages and self._ends_without_commit:
            return None
        counts = sum((outcome.counts or RowCounts() for outcome in outcomes), RowCounts(deleted=todo.dropped_rows))
        matching = Matching(table, self.env, self.where, self.action)
        edit = RowEdit(self._operation, lambda: counts)
        return transaction.finish(messages, reads=matching.reads(state.snapshot), edit=edit)

    def _begun_with_buckets(self, is_first: bool) -> Transaction:
        """Return a new transaction; rows that waited for their buckets have them."""
        if self.table.postpones:
            distribute(self.table, self.env)
        return self._begun(is_first)

    def _removal_round(self, transaction: Transaction, state: TableState) -> Snapshot | None:
        table = transaction.table
        matching = Matching(table, self.env, self.where, self.action)
        touched = {file.name for split in matching.scan(state).plan().splits for file in split.files}
        jobs = removals(table, self.env, state, touched, self.where)
        outcomes = (self.run or run_here(self.env))(jobs) if jobs else []
        messages = messages_of(table, self.env, outcomes)
        counts = sum((outcome.counts or RowCounts() for outcome in outcomes), RowCounts())
        if counts == RowCounts():  # what was compacted to show rows of level 0 is not needed either
            remove_uncommitted(table, self.env, messages)
            messages = []
            if self._ends_without_commit:
                return None
        edit = RowEdit(self._operation, lambda: counts)
        return transaction.finish(messages, reads=matching.reads(state.snapshot), edit=edit)

    # as partitions

    @property
    def _drops_partitions(self) -> bool:
        """Whether whole partitions go, and nobody is told which rows they had."""
        if self.sets is not None or self.table.options.get(w.DELETE_FORCE_PRODUCE_CHANGELOG):
            return False
        if self.table.keyed and self.table.options.get(w.CHANGELOG_PRODUCER) != "none":
            return False
        return self.where.columns <= set(self.table.schema.partition_keys)

    def _dropped(self) -> Snapshot | None:
        transaction = self._begun(is_first=True)
        done, snapshot = transaction.applied()
        if done:
            return snapshot
        found: list[ManifestEntry] = []

        def chosen(live: LiveFiles) -> list[ManifestEntry]:
            partitions = {partition for partition, _ in live.buckets}
            gone = partitions_through(transaction.table, partitions, self.where)
            found[:] = [
                entry for (partition, _), files in live.buckets.items() if partition in gone for entry in files.entries
            ]
            return [replace(entry, kind=DELETE) for entry in found]

        return transaction.finish([], removes=chosen, edit=RowEdit(self._operation, lambda: self._counted(found)))

    def _counted(self, gone: list[ManifestEntry]) -> RowCounts:
        """Return how many rows files have, where each row of a file is a row of the table."""
        if self.table.keyed:
            return RowCounts(deleted=None)
        reader = MetaReader(self.table.paths, self.env, self.table.name)
        vectors = vectors_by_bucket(self.table, reader.index(reader.latest().snapshot))
        return RowCounts(deleted=rows_in(gone, vectors))

    def _begun(self, is_first: bool) -> Transaction:
        transaction = begin(
            self.table,
            self.env,
            commit_user=self.commit_user,
            identifier=self.identifier,
            changes=self.changes,
            run=self.run_compactions,
            seen=self.seen if is_first else None,
        )
        transaction.computed_from = self.computed_from
        return transaction

    @property
    def _ends_without_commit(self) -> bool:
        """Whether no commit is tried if no row changes: it would note an identifier, and check what a query read."""
        return self.identifier is None and self.computed_from is None

    @property
    def _operation(self) -> str:
        return "DELETE" if self.sets is None else "UPDATE"

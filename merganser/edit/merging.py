"""Merge: rows of a source update, delete and insert rows of a table, as one commit.

Docs: decisions 0059, 0066.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from merganser.commit.conflict import Reads
from merganser.commit.message import CommitMessage
from merganser.commit.turns import in_rounds
from merganser.edit.asked import condition_of, new_names
from merganser.edit.assign import SOURCE, TARGET, assignments, by_name, fixed_columns, inserted
from merganser.edit.clauses import SHOWN_MAX, Clause, Clauses, examples, taken
from merganser.edit.delta_names import clause_of
from merganser.edit.joined import On, Source
from merganser.edit.matching import Matching, reads_of_keys
from merganser.edit.merge_names import Names
from merganser.edit.merge_rules import SourceRule
from merganser.edit.merge_source import source_fields, source_of
from merganser.edit.other_names import OF_MERGE, no_method
from merganser.edit.rewrite import rewriting, run_here
from merganser.edit.rounds import check_columns, in_transactions
from merganser.edit.row_changes import RowChanges, check_can_delete, check_can_update
from merganser.errors import ConflictError, InvalidInputError
from merganser.expr.names import Sides
from merganser.expr.predicate import Predicate, Projection
from merganser.expr.setting import Setting
from merganser.lookup.lookup import shared_lookup
from merganser.lsm.abandoned import remove_uncommitted
from merganser.merge.groups import Positions
from merganser.merge.keys import polars_column, sorted_positions
from merganser.meta.followed import Look, for_changing, look
from merganser.meta.row_counts import RowCounts, RowEdit
from merganser.meta.snapshot import Snapshot
from merganser.meta.table_def import TableDef
from merganser.meta.table_state import TableState
from merganser.scan.rows import counted
from merganser.schema import types as t
from merganser.schema.casts import is_implicit
from merganser.schema.internal_names import internal_name
from merganser.schema.lazy_polars import pl
from merganser.schema.pieces import rows_at
from merganser.storage.env import Env
from merganser.upkeep.compact_table import RunJobs
from merganser.values import dataclass
from merganser.write.begin import begin
from merganser.write.distribute import distribute
from merganser.write.job import messages_of
from merganser.write.session import WriteSession
from merganser.write.transaction import Transaction

_WINDOW_ROWS: Final = 500_000
"""So many rows of the target are joined with the source at once."""
_ROW: Final = internal_name("row")
_INTEGERS: Final = (t.TinyInt, t.SmallInt, t.Int, t.BigInt)
_OF_MODULES: Final = frozenset({"by_keys", "computed_from", "is_void", "names", "table", "with_source"})
"""What other modules of merganser use of a merge, and no page explains."""


@dataclass(frozen=True, repr=False)
class Merge:
    """A merge to be. Each `when_` returns it with one more clause; of the clauses of a kind the first that fits wins.

    Get one from `Table.merge`.
    """

    _table: TableDef
    _env: Env
    _source: pa.Table
    _on: On
    _setting: Setting
    _commit_user: str | None = None
    _identifier: int | None = None
    _changes: bool = True
    _elsewhere: Callable[[Merge], Snapshot | None] | None = None
    _computed_from: Reads | None = None
    _seen: Look | None = None
    _matched: tuple[Clause, ...] = ()
    _missing: tuple[Clause, ...] = ()
    _unmatched: tuple[Clause, ...] = ()

    def when_matched_update(self, set: Mapping[str, str] | None = None, condition: str | None = None) -> Merge:
        """Give rows new values that meet a row of the source.

        Args:
            set: SQL text by column: {"amount": "target.amount + source.amount"}. None: each column takes the value of
                the column of its name in the source; key, partition and bucket-key columns stay.
            condition: SQL text: which pairs of rows. None: all.
        """
        values: Mapping[str, str | Projection] | None = set
        if values is None:
            fixed = fixed_columns(self._table)
            known = by_name(self._table, self._fields, self._setting)
            values = {field.name: value for field, value in known if field.name not in fixed}
            if not values:
                raise InvalidInputError(
                    f"{self._action}: no column of the source ({', '.join(field.name for field in self._fields)}) has "
                    "the name of one that can be set. Nothing was written. Say which columns get which values, as in "
                    "when_matched_update({'amount': 'source.value'})."
                )
        sets = assignments(self._table, values, self._action, self._setting, self._sides)
        asked = self._condition(condition, self._sides)
        return replace(self, _matched=(*self._matched, Clause(asked, sets, set is None)))

    def when_matched_delete(self, condition: str | None = None) -> Merge:
        """Remove rows that meet a row of the source.

        Args:
            condition: SQL text: which pairs of rows. None: all.
        """
        return replace(self, _matched=(*self._matched, Clause(self._condition(condition, self._sides), None)))

    def when_not_matched_insert(self, values: Mapping[str, str] | None = None, condition: str | None = None) -> Merge:
        """Insert rows of the source that meet no row.

        Args:
            values: SQL text by column: {"id": "source.id"}. Columns without a value get their default, or null. None:
                each column takes the value of the column of its name in the source.
            condition: SQL text: which rows of the source. None: all.
        """
        sets = inserted(self._table, values, self._action, self._setting, self._of_source)
        asked = self._condition(condition, self._of_source)
        return replace(self, _missing=(*self._missing, Clause(asked, sets, values is None)))

    def when_not_matched_by_source_update(self, set: Mapping[str, str], condition: str | None = None) -> Merge:
        """Give rows new values that meet no row of the source.

        Args:
            set: SQL text by column, from columns of the target.
            condition: SQL text: which rows. None: all.
        """
        sets = assignments(self._table, set, self._action, self._setting, self._of_target)
        asked = self._condition(condition, self._of_target)
        return replace(self, _unmatched=(*self._unmatched, Clause(asked, sets)))

    def when_not_matched_by_source_delete(self, condition: str | None = None) -> Merge:
        """Remove rows that meet no row of the source.

        Args:
            condition: SQL text: which rows. None: all.
        """
        asked = self._condition(condition, self._of_target)
        return replace(self, _unmatched=(*self._unmatched, Clause(asked, None)))

    def execute(self) -> Snapshot | None:
        """Merge.

        Returns:
            The snapshot, with the numbers of rows in `rows_inserted`, `rows_updated` and `rows_deleted`. None if no
            row changes; see `Table.delete`.

        Raises:
            InvalidInputError: there is no clause; several rows of the source meet one row; a new row has a key that is
                there; a value does not fit; or the merge engine has no rule for a clause. Nothing was written.
            ConflictError, CommitUnknownError: see `Table.delete`.
        """
        every = (*self._matched, *self._unmatched, *self._missing)
        if not every:
            raise InvalidInputError(
                f"{self._action}: it has no clause. Nothing was written. Add one, such as when_matched_update(...)."
            )
        named = self._on.reads.union(*(clause.named for clause in every))
        seen = look(self._table, self._env)
        table = for_changing(self._table, self._env, self._action, named, seen)
        merge = self if table.schema.id == self._table.schema.id else self._of(table)
        return replace(merge, _seen=seen)._execute()

    def _of(self, table: TableDef) -> Merge:
        """Return the same for the table with another schema, in which the named columns are the same.

        Raises:
            ConflictError: it has a column that a clause would take from the source, and that the caller does not know.
        """
        then, now = self._table.schema, table.schema
        told = {field.name for field, _ in by_name(table, self._fields, self._setting)}
        new = [name for name in new_names(then, now) if name in told]
        if new and any(clause.by_name for clause in (*self._matched, *self._missing)):
            raise ConflictError(
                f"{self._action}: since it was opened with schema {then.id}, it got columns that the source has: "
                f"{', '.join(new)} (schema {now.id}). Nothing was written. Open the table again, or say which columns "
                "get which values.",
                table=table.name,
            )
        kinds = (self._matched, self._missing, self._unmatched)
        matched, missing, unmatched = (tuple(clause.of(table) for clause in clauses) for clauses in kinds)
        return replace(self, _table=table, _matched=matched, _missing=missing, _unmatched=unmatched)

    def _execute(self) -> Snapshot | None:
        clauses = (*self._matched, *self._unmatched)
        if any(clause.sets is None for clause in clauses):
            check_can_delete(self._table, self._action)
        if any(clause.sets is not None for clause in clauses):
            check_can_update(self._table, self._action)
        if self._elsewhere is not None:
            return self._elsewhere(self)
        if not self._table.keyed:
            return in_transactions(self._begun, self._env, self._files_round, self._action)
        session = WriteSession(
            self._table, self._env, commit_user=self._commit_user, changes=self._changes, seen=self._seen
        )
        session.computed_from = self._computed_from
        with closing(session):
            if self._identifier is not None:
                done, snapshot = session.applied(self._identifier)
                if done:
                    return snapshot
            return in_rounds(session.table, self._env, lambda first: self._round(session, first), session.begin_anew)

    if not TYPE_CHECKING:  # a wrong name is to be found

        def __getattr__(self, name: str) -> Any:
            clause = clause_of(self, name)
            if clause is None:
                raise no_method(self, name, OF_MERGE)
            return clause

    def __dir__(self) -> list[str]:
        """Return what completion and messages offer: what the docs explain."""
        return sorted({*super().__dir__()} - _OF_MODULES)

    def __repr__(self) -> str:
        named = {"matched": self._matched, "not matched": self._missing, "not matched by source": self._unmatched}
        counts = ", ".join(f"{len(clauses)} when {name}" for name, clauses in named.items() if clauses)
        return f"Merge({self._table.name!r}, {self._source.num_rows:,} rows; {counts or 'no clause'})"

    @property
    def _action(self) -> str:
        return f"cannot merge into '{self._table.name}'"

    @cached_property
    def _fields(self) -> tuple[t.Field, ...]:
        return source_fields(self._source.schema)

    @property
    def _clauses(self) -> Clauses:
        return Clauses(self._table, self._on, self._action, self._matched, self._missing, self._unmatched)

    @cached_property
    def _sides(self) -> Sides:
        return self._on.names.sides({TARGET: self._table.schema.shown.fields, SOURCE: self._fields})

    @cached_property
    def _of_target(self) -> Sides:
        return self._on.names.sides({TARGET: self._table.schema.shown.fields})

    @cached_property
    def _of_source(self) -> Sides:
        return self._on.names.sides({SOURCE: self._fields})

    def _condition(self, text: str | None, sides: Sides) -> Predicate | None:
        if text is None:
            return None
        return condition_of(text, sides, self._action, self._setting, "Leave it out to take all rows.")

    # one round

    def _round(self, session: WriteSession, is_first: bool) -> Snapshot | None:
        table = session.table
        if table.postpones:
            distribute(table, self._env)
        source = Source(self._source, self._on, self._action)
        keys = self._keys(table, source)
        if not is_first:
            session.take_turn()
        matching = Matching(table, self._env, None if self._unmatched else self._on.of_target, self._action)
        snapshot, parts = matching.found(keys, session.known_state)
        check_columns(table, self._env, snapshot, self._action)
        out = RowChanges(table, session, self._action)
        self._change_all(parts, source, out)
        reads = matching.reads(snapshot) if keys is None else reads_of_keys(table, snapshot, keys)
        new = self._new_rows(source)
        if new is not None and new.num_rows:
            if not table.counting:
                self._check_new(table, snapshot, new, keys)
                reads = reads.joined(reads_of_keys(table, snapshot, new))
            self._insert(snapshot, new, out)
        counts = RowCounts(out.inserted, out.updated, out.deleted)
        if counts == RowCounts():
            session.abort()
            if self.is_void(counts):
                return None
        return session.commit(self._identifier, reads, edit=RowEdit("MERGE", lambda: counts))

    def _change_all(self, parts: Iterable[pa.Table], source: Source, out: RowChanges) -> None:
        for targets in windows(parts):
            self._change(targets, source, out)

    # in tasks

    @property
    def table(self) -> TableDef:
        """The table that rows are merged into; when the merge is executed, as it is then."""
        return self._table

    @property
    def names(self) -> Names:
        """What SQL text calls the two sides."""
        return self._on.names

    def with_source(self, rows: pa.Table) -> Merge:
        """Return the merge of some rows, to be done in this process."""
        return replace(self, _source=source_of(rows, self._table, self._action), _elsewhere=None)

    def by_keys(self) -> Merge:
        """Return the merge of rows that are equal as keys are, whose 0.0 and -0.0 are two, and not as values are."""
        return replace(self, _on=replace(self._on, of_keys=True))

    def computed_from(self, reads: Reads | None) -> Merge:
        """Return the merge with what a query read of the table that gave the source its rows.

        If that has changed, `execute` raises a ConflictError whose `overtaken` is QUERY: the query has to run again.
        """
        return replace(self, _computed_from=reads)

    def is_void(self, counts: RowCounts) -> bool:
        """Return whether there is nothing to commit, and nothing to check."""
        return counts == RowCounts() and self._identifier is None and self._computed_from is None

    def _begun(self, is_first: bool, compact: RunJobs | None = None) -> Transaction:
        transaction = begin(
            self._table,
            self._env,
            commit_user=self._commit_user,
            identifier=self._identifier,
            changes=self._changes,
            run=compact,
            seen=self._seen if is_first else None,
        )
        transaction.computed_from = self._computed_from
        return transaction

    def _files_round(self, transaction: Transaction, state: TableState) -> Snapshot | None:
        table, env = transaction.table, self._env
        source = Source(self._source, self._on, self._action)
        todo = rewriting(table, env, state, SourceRule(self._clauses, source))
        outcomes = run_here(env)(todo.jobs) if todo.jobs else []
        messages = todo.messages(table, env, outcomes)
        counts = sum((outcome.counts or RowCounts() for outcome in outcomes), RowCounts())
        try:
            new = self._new_rows(source)
            if new is not None and new.num_rows:
                messages += messages_of(table, env, [transaction.job().run_prepared([(new, None, None)])])
                counts += RowCounts(inserted=new.num_rows)
        except BaseException:
            remove_uncommitted(table, env, messages)
            raise
        return self._finished(transaction, state, messages, counts)

    def _finished(
        self, transaction: Transaction, state: TableState, messages: Sequence[CommitMessage], counts: RowCounts
    ) -> Snapshot | None:
        """Commit what became of the files in a state."""
        if self.is_void(counts):
            return None
        matching = Matching(transaction.table, self._env, self._clauses.where, self._action)
        reads = replace(matching.reads(state.snapshot), marks=True)
        return transaction.finish(messages, reads=reads, edit=RowEdit("MERGE", lambda: counts))

    def _keys(self, table: TableDef, source: Source) -> pa.Table | None:
        """Return the only keys whose rows the merge looks at, each once; None: it has to look at all rows."""
        kinds = [table.schema.field(name).type for name in table.row_key]
        if self._unmatched or not table.keyed or table.counting or table.moves_keys:
            return None
        if not self._on.of_keys and any(isinstance(kind, t.Float | t.Double) for kind in kinds):
            return None  # zeros of both signs are equal, and two keys
        keys = source.keys(table.row_key)
        if keys is None or not keys.num_rows:
            return keys
        positions, is_last = sorted_positions(keys.columns)
        return keys.take(pa.array(positions[is_last]))

    def _change(self, targets: pa.Table, source: Source, out: RowChanges) -> None:
        """Write what becomes of some rows of the table."""
        clauses, narrowed = self._clauses, not self._unmatched
        of_target, of_source, pairs = source.pairs(targets, clauses.wanted(targets), narrowed=narrowed)
        clauses.check_met_once(targets, of_target, of_source if source.is_whole else None)
        for mask, clause, rows in taken(self._matched, pairs):
            self._apply(clause, rows_at(targets, of_target[mask]), rows, out)
        if self._unmatched:
            rest = np.ones(targets.num_rows, np.bool_)
            rest[of_target] = False
            self._change_others(targets.filter(pa.array(rest)), out)

    def _change_others(self, targets: pa.Table, out: RowChanges) -> None:
        """Write what becomes of rows of the table that meet no row of the source."""
        named = targets.rename_columns([f"{TARGET}.{name}" for name in targets.column_names])
        for mask, clause, rows in taken(self._unmatched, named):
            self._apply(clause, targets.filter(pa.array(mask)), rows, out)

    def _apply(self, clause: Clause, olds: pa.Table, rows: pa.Table, out: RowChanges) -> None:
        if clause.sets is None:
            out.delete(olds)
        else:
            out.update(olds, clause.sets.apply(rows), clause.sets.values)

    def _new_rows(self, source: Source) -> pa.Table | None:
        if not self._missing:
            return None
        return self._clauses.new_rows(source.rows.filter(pa.array(~source.met)))

    def _insert(self, snapshot: Snapshot | None, new: pa.Table, out: RowChanges) -> None:
        """Write new rows, if they are not older than stored deletes of their keys in a snapshot."""

        def removed(keys: pa.Table) -> tuple[Positions, pa.Table]:
            _, which, rows = shared_lookup(out.table, self._env, waiting=True).rows_of(keys, snapshot, removed=True)
            return which, rows

        out.insert(new, None if snapshot is None else removed)

    def _check_new(self, table: TableDef, snapshot: Snapshot | None, new: pa.Table, sought: pa.Table | None) -> None:
        """Refuse new rows whose keys are there, or that have one key: inserted, they would replace rows unseen.

        Args:
            sought: the keys whose rows the merge has looked at; None: all.
        """
        keys = new.select(list(table.row_key))
        own = table.schema.primary_keys if table.moves_keys else table.row_key  # those of a row in any partition
        positions, is_last = sorted_positions(keys.select(list(own)).columns)
        if not is_last.all():
            twice = keys.take(pa.array(positions[np.flatnonzero(~is_last)[:SHOWN_MAX]]))
            raise InvalidInputError(
                f"{self._action}: {counted(int((~is_last).sum()), 'new row')} would have the key of another one "
                f"({examples(twice, own)}). Nothing was written. Leave one row of the source for each key.",
                table=table.name,
            )
        if snapshot is None or (sought is not None and self._inserts_sought_keys(table)):
            return
        which = self._there(table, snapshot, keys)
        if len(which):
            there = keys.take(pa.array(which[:SHOWN_MAX]))
            raise InvalidInputError(
                f"{self._action}: {counted(len(which), 'new row')} of {keys.num_rows:,} would have a key that is there "
                f"and meet no row by the condition ({examples(there, table.row_key)}). Nothing was written. "
                "Join by the key, or leave these rows out by a condition.",
                table=table.name,
            )

    def _there(self, table: TableDef, snapshot: Snapshot, keys: pa.Table) -> Positions:
        """Return which of some keys have a row, int64, rising."""
        if not table.moves_keys:
            _, which, _ = shared_lookup(table, self._env, waiting=True).rows_of(keys, snapshot)
            return np.asarray(which)
        names = list(table.schema.primary_keys)  # the row may lie in any partition
        asked = pl.DataFrame([polars_column(keys.column(name)).alias(name) for name in names]).with_row_index(_ROW)
        found = np.zeros(keys.num_rows, np.bool_)
        for part in Matching(table, self._env, None, self._action).rows_at(snapshot, names):
            rows = pl.DataFrame([polars_column(part.column(name)).alias(name) for name in names])
            found[asked.join(rows, on=names, how="semi")[_ROW].to_numpy()] = True
        return np.flatnonzero(found)

    def _inserts_sought_keys(self, table: TableDef) -> bool:
        """Whether the keys of new rows are those that the condition has looked for in vain.

        A value that is stored as another one, as 1.5 in an INT, was looked for as it is, and is not a key that was. If
        other columns are joined too, a row may meet none because of these, although its key is there.
        """
        joined = {
            field.name: value.assigned_to(field.type, self._setting.zone)
            for field, value in self._on.pairs
            if _stays(value.type, field.type)
        }
        if not {field.name for field, _ in self._on.pairs} <= set(table.row_key):
            return False
        return self._on.is_plain and all(
            name in joined and clause.sets is not None and clause.sets.values[name] == joined[name]
            for clause in self._missing
            for name in table.row_key
        )


def _stays(given: t.DataType, stored: t.DataType) -> bool:
    """Return whether each value of a type is the same, or refused, in a column of another one."""
    texts = (t.Char, t.VarChar)
    if isinstance(given, texts) and isinstance(stored, texts):
        return True
    if given.with_nullable(True) == stored.with_nullable(True):
        return True
    return isinstance(given, _INTEGERS) and isinstance(stored, _INTEGERS) and is_implicit(given, stored)


def windows(parts: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield rows as tables of about `_WINDOW_ROWS`."""
    held: list[pa.Table] = []
    for part in parts:
        held.append(part)
        if sum(each.num_rows for each in held) >= _WINDOW_ROWS:
            yield pa.concat_tables(held)
            held = []
    if held:
        yield pa.concat_tables(held)

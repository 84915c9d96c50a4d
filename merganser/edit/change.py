"""Delete and update: the rows that a filter lets through are removed, or get new values, as one commit.

Docs: decision 0059.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

import pyarrow as pa

from merganser.edit.assign import Assignments
from merganser.edit.matching import Matching
from merganser.edit.rounds import check_columns, in_rounds
from merganser.edit.row_changes import RowChanges, check_can_delete, check_can_update
from merganser.errors import UnsupportedError
from merganser.expr.predicate import Predicate
from merganser.meta.row_counts import RowCounts, RowEdit
from merganser.meta.snapshot import Snapshot
from merganser.meta.table_def import TableDef
from merganser.storage.env import Env
from merganser.write.distribute import distribute
from merganser.write.session import WriteSession


@dataclass(frozen=True)
class Change:
    """One call of `Table.delete` or `Table.update`; see there.

    Attributes:
        where: the rows; None: all.
        sets: their new values; None: they are deleted.
        changes: publish what changes; see `Table.write`.
    """

    table: TableDef
    env: Env
    where: Predicate | None
    sets: Assignments | None
    action: str
    commit_user: str | None = None
    identifier: int | None = None
    changes: bool = True

    def run(self) -> Snapshot | None:
        """Change the rows.

        Raises:
            InvalidInputError: the merge engine has no rule for it, or a new value does not fit; nothing was written.
            ConflictError: other commits changed the rows again and again; nothing was written.
        """
        if not self.table.keyed:
            raise UnsupportedError(
                f"{self.action}: this version of merganser changes rows by a condition only in tables with a primary "
                "key, and in those that count equal rows. Nothing was written. Write what is to stay, with overwrite.",
                table=self.table.name,
            )
        check = check_can_delete if self.sets is None else check_can_update
        check(self.table, self.action)
        session = WriteSession(self.table, self.env, commit_user=self.commit_user, changes=self.changes)
        with closing(session):
            if self.identifier is not None:
                done, snapshot = session.applied(self.identifier)
                if done:
                    return snapshot
            return in_rounds(session.table, self.env, lambda first: self._round(session, first), session.abort)

    def _round(self, session: WriteSession, is_first: bool) -> Snapshot | None:
        table = session.table
        matching = Matching(table, self.env, self.where, self.action)
        if table.postpones:
            distribute(table, self.env)
        keys = matching.keys()
        if keys is not None or not is_first:
            session.take_turn()
        snapshot, parts = matching.found(keys)
        check_columns(table, self.env, snapshot, self.action)
        out = RowChanges(table, session, frozenset(self.sets.values if self.sets else ()), self.action)
        self._write(parts, out)
        counts = RowCounts(out.inserted, out.updated, out.deleted)
        edit = RowEdit("DELETE" if self.sets is None else "UPDATE", lambda: counts)
        if counts == RowCounts():
            session.abort()
            return None
        return session.commit(self.identifier, matching.reads(snapshot), edit=edit)

    def _write(self, parts: Iterator[pa.Table], out: RowChanges) -> None:
        for rows in parts:
            if self.sets is None:
                out.delete(rows)
            else:
                out.update(rows, self.sets.apply(rows))

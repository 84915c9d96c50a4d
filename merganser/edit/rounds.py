"""Rounds: what was made from rows of a table is committed, or made again from newer rows.

A round reads the newest snapshot, writes files, and commits. The commit fails if another commit has changed what was
read since that snapshot (`commit.conflict.check_reads`). Then nothing of the round is visible, its files are removed,
and the next round begins. So the result is as if nobody else had written meanwhile, with and without locks. A round may
also read nothing, and write rows that are held: of keys that another commit gave other buckets (decision 0052). The
loop over rounds is `commit.turns.in_rounds`; here are rounds of which each is a transaction of its own.

Docs: decision 0035.
"""

from __future__ import annotations

from collections.abc import Callable

from merganser.commit.turns import in_rounds
from merganser.edit.asked import lost, new_names
from merganser.meta.followed import as_of, check_key, check_same
from merganser.meta.snapshot import Snapshot
from merganser.meta.table_def import TableDef
from merganser.meta.table_state import MetaReader, TableState
from merganser.storage.env import Env
from merganser.write.transaction import Transaction


def in_transactions(
    begun: Callable[[bool], Transaction],
    env: Env,
    round_: Callable[[Transaction, TableState], Snapshot | None],
    action: str,
    *,
    small: bool = False,
) -> Snapshot | None:
    """Return the commit of the first round that nothing has come between; None if it had nothing to commit.

    Args:
        begun: returns a new transaction; it is told whether it is the first one.
        round_: reads the state that it is given, writes files, and finishes the transaction.
        action: what is being done, as messages begin.
        small: few rows are written, so the first round takes the lock, too, before it reads.

    Raises:
        ConflictError, ExpiredError: as for `in_rounds`.
    """
    first = begun(True)
    done, snapshot = first.applied()
    if done:
        return snapshot

    def one(is_first: bool) -> Snapshot | None:
        transaction = first if is_first else begun(False)
        try:
            if small or not is_first:
                transaction.take_turn()
            table = transaction.table
            state = transaction.known_state or MetaReader(table.paths, env, table.name).latest(to_commit=True)
            check_columns(table, env, state.snapshot, action)
            return round_(transaction, state)
        finally:
            transaction.end_turn()

    return in_rounds(first.table, env, one, lambda: None)


def check_columns(table: TableDef, env: Env, snapshot: Snapshot | None, action: str) -> None:
    """Refuse to rewrite rows with a schema older than theirs: values of newer columns would be lost.

    Raises:
        ConflictError: the table has other columns now, or another schema of the same number.
    """
    schema = table.schema
    if snapshot is not None:
        check_key(table, env, (snapshot,), action)
    if snapshot is None or snapshot.schema_id <= schema.id:
        return
    newest = as_of(table, env, snapshot.schema_id).schema
    check_same(table.name, schema, newest, schema.names, action)
    new = new_names(schema, newest)
    if new:
        raise lost(table.name, schema, newest, new, action)

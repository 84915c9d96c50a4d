"""A write begins: its target is checked, and rows that wait for their buckets get them before newer rows come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa

from merganser.meta.followed import Look, for_writing, look
from merganser.meta.table_def import TableDef
from merganser.storage.env import Env
from merganser.upkeep.compact_table import RunJobs
from merganser.write.merge_schema import with_columns_of
from merganser.write.target import WriteTarget
from merganser.write.transaction import Transaction, check_user, checked_identifier, checked_user, checked_watermark


def begin(
    table: TableDef,
    env: Env,
    *,
    columns: Sequence[str] | None = None,
    overwrite: Mapping[str, Any] | str | None = None,
    changes: bool = True,
    streams: bool = False,
    commit_user: str | None = None,
    identifier: int | None = None,
    watermark: int | datetime | None = None,
    run: RunJobs | None = None,
    rows: pa.Schema | None = None,
    kinds: Any = None,
    seen: Look | None = None,
) -> Transaction:
    """Return the transaction of one call that writes, or the first of a writer, checked before any row is taken.

    Args:
        columns, overwrite, changes, streams: see `WriteTarget`.
        commit_user: the name of the committer; None: a new random name.
        identifier: which of their commits it is; None: one that is never repeated.
        watermark: the time up to which event times were seen; None: the commit says nothing of it.
        run: where compactions that follow the commit run; None: on the threads of this process.
        rows: the columns of the rows, if they are known. They are checked, and the table gets those that it lacks if
            `write.merge-schema` says so.
        kinds: the column of `rows` with the row kinds.
        seen: what a look has just found, by which the table is as it is now; None: this looks.

    Raises:
        InvalidInputError: an argument or a column that the table does not take.
        UnsupportedError: the table asks for something this version does not write.
    """
    if seen is None:
        seen = look(table, env)
        table = for_writing(table, env, seen)

    def target_of(table: TableDef) -> WriteTarget:
        target = WriteTarget(table, columns=columns, overwrite=overwrite, changes=changes, streams=streams)
        if rows is not None:
            target.check_names_and_types(rows, kinds)
        check_user(commit_user, target.action)
        checked_identifier(identifier, commit_user)
        checked_watermark(watermark, target.action)
        return target

    if rows is not None:
        table = with_columns_of(table, env, rows, target_of, without=(kinds,))
    target = target_of(table)
    if table.postpones and not target.postpones and not target.overwrites:  # an overwrite replaces what waits
        from merganser.write.distribute import distribute  # noqa: PLC0415 - wanted by tables with bucket = -2

        distribute(table, env, run=run)  # else it would be newer than the rows that come now
    user = checked_user(target, env, commit_user)
    known = None if streams or table.postpones else seen.known
    transaction = Transaction(target, env, user, checked_identifier(identifier, commit_user), run=run, known=known)
    transaction.watermark = checked_watermark(watermark, target.action)
    return transaction

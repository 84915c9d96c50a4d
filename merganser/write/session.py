"""WriteSession: rows checked, written into buckets, and committed, in this process: batch by batch, commit by commit.

Both faces that write in this process use it (a call of `Table.write`, a `Writer`). Each of its commits is a
`Transaction`; engines use those without a session, since their rows are written elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

import pyarrow as pa

from merganser.commit.conflict import Reads
from merganser.commit.log import is_eventual
from merganser.commit.message import CommitMessage
from merganser.commit.turns import rest_if_crowded
from merganser.errors import ConflictError, InvalidInputError
from merganser.meta.followed import Look, for_writing, newest
from merganser.meta.row_counts import RowEdit
from merganser.meta.snapshot import Snapshot
from merganser.meta.table_def import TableDef
from merganser.meta.table_state import TableState
from merganser.options import write as w
from merganser.schema.lossy import lossy_columns
from merganser.schema.nullability import tightened
from merganser.storage.env import Env
from merganser.write.begin import begin
from merganser.write.incoming import Prepared
from merganser.write.merge_schema import takes, with_columns_of
from merganser.write.target import WriteTarget
from merganser.write.transaction import Transaction, checked_identifier, checked_watermark
from merganser.write.writer import TableWriter, table_writer


class WriteSession:
    """Writes and commits in this process.

    Args:
        commit_user: the name of the committer; None: a new random name. `user` holds the chosen name.
        columns, overwrite, changes, streams: see `WriteTarget`.
        seen: see `begin`.

    Attributes:
        computed_from: the rows of the table that a query read which gave the rows of the next commit; None: none.
    """

    def __init__(
        self,
        table: TableDef,
        env: Env,
        *,
        commit_user: str | None = None,
        columns: Sequence[str] | None = None,
        overwrite: Mapping[str, Any] | str | None = None,
        changes: bool = True,
        streams: bool = False,
        seen: Look | None = None,
    ) -> None:
        transaction = begin(
            table,
            env,
            columns=columns,
            overwrite=overwrite,
            changes=changes,
            streams=streams,
            commit_user=commit_user,
            seen=seen,
        )
        self.table, self.target, self.user = transaction.table, transaction.target, transaction.user
        self.env = env
        self._target_of = partial(WriteTarget, columns=columns, overwrite=overwrite, changes=changes, streams=streams)
        self._named = commit_user
        self.computed_from: Reads | None = None
        self._safe = transaction.safe
        self._writer: TableWriter | None = None
        self._written: list[CommitMessage]
        self._taking: bool
        self._torn: bool
        self._closed = False
        self._settle(transaction)

    def applied(self, identifier: int) -> tuple[bool, Snapshot | None]:
        """Return whether a commit of this user was applied already, and its snapshot if it is kept."""
        self._transaction.identifier = checked_identifier(identifier, self._named)
        return self._transaction.applied()

    def write(self, rows: pa.Table, kinds: pa.Array | None, *, held: bool = False) -> None:
        """Take rows; see `TableWriter.write`. Rows that do not fit are refused before any of them is written."""
        self._check_usable()
        if not rows.num_columns and not rows.num_rows:
            return
        self._check_known()
        begun = self.env.seconds()
        self.take_columns_of(rows.schema, lambda table: self._target_of(table).accepted(rows, kinds))
        prepared = self._accepted(rows, kinds)
        self._transaction.spent("check", self.env.seconds() - begun)
        self.put(prepared, held=held)

    def _accepted(self, rows: pa.Table, kinds: pa.Array | None) -> Prepared:
        """Return rows, checked; rows with a column that the table has got meanwhile are told so."""
        try:
            return self.target.accepted(rows, kinds)
        except InvalidInputError as error:
            column, known = error.context.get("column"), self.table.schema
            now = known if column is None or column in known.names else newest(self.table, self.env).schema
            if column not in now.names or now is known:
                raise
            raise InvalidInputError(
                f"{self.target.action}: the table has got column '{column}' (schema {now.id}) since it was opened with "
                f"schema {known.id}. Nothing was written. Open the table again.",
                **error.context,
            ) from error

    def put(self, rows: Prepared, *, held: bool = False) -> None:
        """Take rows that were checked: exactly the columns and types of the table, and kinds that it takes."""
        self._check_usable()
        self._check_known()
        begun = self.env.seconds()
        if not self._taking:  # rows that others committed since our last commit are older than those that come now
            start = self._transaction.start()
            if self._writer is None:
                self._writer = table_writer(
                    self.table, self.env, start, publishes=self.target.publishes, marks=self.target.mark
                )
            self._writer.begin(start)
            self._taking = True
        assert self._writer is not None
        try:
            self._transaction.show(rows)
            self._writer.write(rows[0], rows[1], held=held)
        except BaseException:
            self.give_up()
            raise
        self._transaction.spent("write", self.env.seconds() - begun)

    def take_columns_of(self, rows: pa.Schema, check: Callable[[TableDef], object]) -> TableDef:
        """Write to the table with the columns that rows bring, if it takes new ones; see `with_columns_of`.

        Rows of the same commit that were taken before are written as they were given: in them, new columns are null.

        Returns:
            The table with them.

        Raises:
            ConflictError: rows of the same commit were taken, and others have altered the table meanwhile. Those at
                hand were not taken.
        """
        if self._taking and takes(self.table, rows):  # whatever others made of the table since
            return self.table
        table = with_columns_of(self.table, self.env, rows, check)
        if table.schema.id == self.table.schema.id:
            return self.table
        target = self._target_of(table)
        if self._taking:
            self._go_on(table)
            self._transaction.target = target
        else:
            self._writer = None
        self.table, self.target = table, target
        if not self._taking:
            self._settle()
        return table

    def _go_on(self, table: TableDef) -> None:
        """Write the rows of this commit that were taken, and go on with another schema.

        Raises:
            ConflictError: the two differ in more than new columns and types.
        """
        if not _only_grew(self.table, table):
            raise ConflictError(
                f"{self.target.action}: the rows have other columns than those before them in this commit, and others "
                f"have altered the table meanwhile (schema {table.schema.id}). These rows were not taken. Commit what "
                "was taken, and give them again; or abort, and write all rows again.",
                table=table.name,
            )
        assert self._writer is not None
        try:
            self._writer.switch_schema(table)
        except BaseException:
            self.give_up()
            raise

    def flush(self) -> None:
        """Wait until readers that see rows before their commit can see those that were taken; see `Writer.flush`."""
        self._check_usable()
        if not is_eventual(self.table):
            raise InvalidInputError(
                f"{self.target.action}: flush shows rows before their commit, which needs a log with "
                "'log.consistency' = 'eventual', and this table has none. The rows are kept for the commit. Leave "
                "flush out, or alter the table.",
                table=self.table.name,
            )
        self._transaction.flush()

    def take_turn(self) -> None:
        """Wait for the turn to commit, before reading rows that the commit depends on. It ends with the commit."""
        rest_if_crowded(self.table, self.env)
        self._transaction.take_turn()

    @property
    def known_state(self) -> TableState | None:
        """The state that the next commit stands on, if it was asked for a moment ago."""
        return self._transaction.known_state

    @property
    def uuid(self) -> str:
        """What the snapshot of the next commit is recognised by."""
        return self._transaction.uuid

    def commit(
        self,
        identifier: int | None = None,
        reads: Reads | None = None,
        watermark: int | datetime | None = None,
        edit: RowEdit | None = None,
    ) -> Snapshot | None:
        """Commit what was written since the last commit.

        When the commit fails the rows stay with the session: a repeat of this call commits them, once. When they
        cannot be written nothing of them can be committed any more.

        Args:
            identifier: which of the user's commits it is; None: one that is never repeated.
            reads: the rows that the written rows were made from; they must not have changed.
            watermark: the time up to which event times were seen; None: the commit says nothing of it.
            edit: what the commit does to rows that it looked at; None: it looked at none.
        """
        transaction = self._transaction
        transaction.identifier = checked_identifier(identifier, self._named)
        transaction.computed_from = self.computed_from
        transaction.watermark = checked_watermark(watermark, self.target.action)
        self._check_usable()
        try:
            if self._writer is not None:
                self._finish_files(self._writer)
            return transaction.finish(self._written, keep_files=True, reads=reads, edit=edit)
        finally:
            transaction.end_turn()
            if transaction.stands:
                self._safe = transaction.safe
                self._settle()

    def _finish_files(self, writer: TableWriter) -> None:
        """Write the rows that no file has yet."""
        if writer.is_small:
            self._transaction.take_turn()
            writer.begin(self._transaction.start())
        begun = self.env.seconds()
        try:
            self._written += writer.finish()
        except BaseException:
            self.give_up()
            raise
        self._transaction.spent("write", self.env.seconds() - begun)

    def give_up(self) -> None:
        """Commit nothing more before an abort: rows were taken in part.

        What was written of them and what was not cannot be told apart, so a commit would hold some of them.
        """
        self._torn = True

    def abort(self) -> None:
        """Drop what was not committed. Files of a commit of unknown outcome stay."""
        if self._writer is not None:
            self._writer.abort()
            self._writer = None
        self._transaction.abort(self._written)
        self._transaction.end_turn()
        self._settle()

    def begin_anew(self) -> None:
        """Drop what was not committed, and go by the number of buckets, and the changelog, that the table has now."""
        self.abort()
        table = for_writing(self.table, self.env)
        if table != self.table:
            self.table, self.target = table, self._target_of(table)
            self._settle()

    def close(self) -> None:
        """End the session; what was not committed is dropped."""
        self._closed = True
        self.abort()

    def _check_usable(self) -> None:
        if self._closed:
            raise InvalidInputError(
                f"{self.target.action}: this writer is closed, and what it had not committed is dropped. Make another "
                "one with table.writer()."
            )
        if self._torn:
            raise InvalidInputError(
                f"{self.target.action}: an earlier write of this writer failed halfway, so a commit would hold a part "
                "of its rows. Nothing since its last commit is visible. Call abort(), then write all rows again."
            )

    def _check_known(self) -> None:
        if self._transaction.unknown_since is not None:
            raise InvalidInputError(
                f"{self.target.action}: it is not known yet whether the last commit of this writer succeeded. "
                "Call commit again with the same identifier, or leave the writer, before more rows come."
            )

    def _settle(self, begun: Transaction | None = None) -> None:
        """Begin the next commit."""
        self._transaction = begun or Transaction(self.target, self.env, self.user, safe=self._safe)
        self._written = []
        self._taking = False
        self._torn = False


def _only_grew(before: TableDef, after: TableDef) -> bool:
    """Return whether a schema has the columns of an older one under their names and in their order, and the same rules.

    Files of both schemas may be in one commit then, whose checks know the newer one alone.
    """
    known = {field.id for field in before.schema.fields}
    kept = [(field.id, field.name) for field in after.schema.fields if field.id in known]
    return (
        kept == [(field.id, field.name) for field in before.schema.fields]
        and before.schema.primary_keys == after.schema.primary_keys
        and before.options == after.options
        and not any(True for _ in tightened(before.schema.fields, after.schema.fields))
        and (
            after.options.get(w.MERGE_SCHEMA_CASTING)
            or not any(lossy_columns(before.schema.fields, after.schema.fields))
        )
    )

"""WriteSession: rows checked, written into buckets, and published; batch by batch and commit by commit.

Both faces that write in this process use it (a call of `Table.write`, a `Writer`). Engines split it: their
tasks run `TableWriter`, their driver publishes the messages through `publish_messages`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from merganser.commit.message import CommitMessage, Committed
from merganser.commit.publish import Change, Publisher
from merganser.errors import CommitUnknownError, InvalidInputError, MerganserError
from merganser.lsm.abandoned import remove_files
from merganser.lsm.writer import TableWriter
from merganser.meta.data_file import ManifestEntry
from merganser.meta.live_files import LiveFiles
from merganser.meta.snapshot import BATCH_IDENTIFIER, Snapshot
from merganser.meta.table_def import TableDef
from merganser.options import write as w
from merganser.storage.env import Env
from merganser.upkeep.after_commit import after_commit
from merganser.upkeep.compact_table import RunJobs, catch_up
from merganser.write import overwrite as ow
from merganser.write.sequences import starting_sequences
from merganser.write.target import WriteTarget

_NOTHING_MEASURED: Final[Mapping[str, float]] = {}


def publish_messages(
    target: WriteTarget,
    env: Env,
    messages: Sequence[CommitMessage],
    *,
    commit_user: str,
    identifier: int,
    uuid: str | None = None,
    since: int | None = None,
    safe: int | None = None,
    keep_files: bool = False,
    seconds: Mapping[str, float] = _NOTHING_MEASURED,
) -> Snapshot | None:
    """Make written files one commit; on a definite failure remove them. Its callers let `after_commit` come after.

    Args:
        uuid, since: of a caller that repeats a commit; see `Change`.
        safe: of a caller that commits more than once, its last commit; None: what the table's strict mode says.
        keep_files: leave the files of a commit that failed, for the caller to try again or to remove.
        seconds: what was spent on the files, by phase.

    Returns:
        The snapshot, or None when there was nothing to commit.

    Raises:
        ConflictError, InvalidInputError: nothing is visible, the files are gone unless they were to be kept.
        CommitUnknownError: the outcome is unknown, the files were kept.
    """
    table = target.table
    if target.overwrites:
        messages = ow.upgraded(table, messages)
    selection = target.selection(messages)
    options = table.options
    allow_empty = options.get(w.COMMIT_FORCE_CREATE_SNAPSHOT) or options.get(w.SNAPSHOT_IGNORE_EMPTY_COMMIT) is False
    if not messages and selection is None and not allow_empty:
        return None
    change = Change(
        messages=messages,
        commit_user=commit_user,
        identifier=identifier,
        overwrites=selection,
        allow_empty=allow_empty,
        uuid=uuid,
        since=since,
        safe=options.get(w.COMMIT_STRICT_LAST_SAFE_SNAPSHOT) if safe is None else safe,
        seconds=seconds,
    )
    try:
        return Publisher(table, env).commit(change)
    except CommitUnknownError:
        raise
    except MerganserError:  # after any other error, a bug, nothing is sure: orphans do no harm
        if not keep_files:
            remove_files(table, env, messages)
        raise


class WriteSession:
    """Writes and commits in this process.

    Args:
        commit_user: who commits; None: a fresh random name. What was chosen is `user`.
    """

    def __init__(
        self,
        table: TableDef,
        env: Env,
        *,
        commit_user: str | None = None,
        columns: Sequence[str] | None = None,
        overwrite: Mapping[str, Any] | str | None = None,
    ) -> None:
        self.table = table
        self.env = env
        self.target = WriteTarget(table, columns=columns, overwrite=overwrite)
        if commit_user is not None and (not isinstance(commit_user, str) or not commit_user.strip()):
            raise InvalidInputError(
                f"{self.target.action}: commit_user is {commit_user!r}. It is text that says who commits, or None."
            )
        self.user = commit_user or (table.options.get(w.COMMIT_USER_PREFIX) or "") + env.new_id()
        self._writer: TableWriter | None = None
        self._taking = False
        self._failed: list[CommitMessage] = []
        self._uuid = env.new_id()
        self._unknown_since: int | None = None
        self._safe = table.options.get(w.COMMIT_STRICT_LAST_SAFE_SNAPSHOT)
        self._torn = False
        self._closed = False
        self._seconds: dict[str, float] = {}

    def applied(self, identifier: int, *, run: RunJobs | None = None) -> tuple[bool, Snapshot | None]:
        """Return whether a commit of this user was applied already, and its snapshot if it is kept.

        Whoever made it may have been stopped before the compaction that makes its rows visible; it is made up for.

        Args:
            run: where that runs; None: on the threads of this process.
        """
        done, snapshot = Publisher(self.table, self.env).applied(self.user, identifier)
        if done:
            catch_up(self.table, self.env, run=run)
        return done, snapshot

    def write(self, rows: pa.Table, kinds: pa.Array | None, *, held: bool = False) -> None:
        """Take rows; see `TableWriter.write`. Rows that do not fit are refused before any of them is written."""
        self._check_usable()
        if not rows.num_columns and not rows.num_rows:
            return
        if self._unknown_since is not None:
            raise InvalidInputError(
                f"{self.target.action}: nobody knows yet whether the last commit of this writer was made. "
                "Call commit again with the same identifier, or leave the writer, before more rows come."
            )
        begun = self.env.seconds()
        prepared = self.target.accepted(rows, kinds)
        checked = self.env.seconds()
        self._spent("check", checked - begun)
        if not self._taking:  # rows that others committed since our last commit are older than those that come now
            live = Publisher(self.table, self.env).latest().live
            starts = starting_sequences(self.table, live, overwrites=self.target.overwrites)
            if self._writer is None:
                self._writer = TableWriter(self.table, self.env, starts)
            self._writer.next_sequence = starts
            self._taking = True
        assert self._writer is not None
        try:
            self._writer.write(prepared[0], prepared[1], held=held)
        except BaseException:
            self.give_up()
            raise
        self._spent("write", self.env.seconds() - checked)

    def commit(self, identifier: int = BATCH_IDENTIFIER) -> Snapshot | None:
        """Publish what was written since the last commit.

        When the commit fails the rows stay with the session: a repeat of this call commits them, once. When they
        cannot be written nothing of them can be committed any more.
        """
        self._check_usable()
        if self._writer is not None:
            begun = self.env.seconds()
            try:
                self._failed += self._writer.finish()
            except BaseException:
                self.give_up()
                raise
            self._spent("write", self.env.seconds() - begun)
        messages = self._failed
        try:
            snapshot = publish_messages(
                self.target,
                self.env,
                messages,
                commit_user=self.user,
                identifier=identifier,
                uuid=self._uuid,
                since=self._unknown_since,
                safe=self._safe,
                keep_files=True,
                seconds=self._seconds,
            )
        except CommitUnknownError as error:
            tried = error.context["snapshot"]
            self._unknown_since = tried if self._unknown_since is None else min(tried, self._unknown_since)
            raise
        except MerganserError:
            raise
        except BaseException:  # stopped at any instruction, perhaps with the snapshot made: its files must stay
            self._unknown_since = 1
            raise
        if self._unknown_since is None and (snapshot is None or snapshot.uuid != self._uuid):
            remove_files(self.table, self.env, messages)  # a twin of this commit was there first, with files of its own
        if self._safe is not None and snapshot is not None:
            self._safe = snapshot.id
        self._settle()  # before what follows: the commit stands, and nothing of it may be removed any more
        after_commit(self.table, self.env, Committed(messages, snapshot, self.user, identifier))
        return snapshot

    def give_up(self) -> None:
        """Commit nothing more before an abort: rows were taken in part.

        What was written of them and what was not cannot be told apart, so a commit would hold some of them.
        """
        self._torn = True

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

    def _settle(self) -> None:
        """Begin the next commit."""
        self._failed, self._uuid, self._unknown_since, self._taking = [], self.env.new_id(), None, False
        self._torn = False
        self._seconds = {}

    def _spent(self, phase: str, seconds: float) -> None:
        self._seconds[phase] = self._seconds.get(phase, 0.0) + seconds

    def drop(self, specs: Sequence[Mapping[str, Any]]) -> Snapshot | None:
        """Remove partitions as one commit."""
        if isinstance(specs, str | Mapping) or not isinstance(specs, Sequence):
            raise InvalidInputError(
                f"cannot drop partitions of '{self.table.name}': {specs!r:.60} is not a list of partitions. Write "
                f"[{{'dt': '2026-01-01'}}]."
            )
        stored = [self.target.stored_spec(spec) for spec in specs]
        choices = [ow.of_spec(self.table, spec) for spec in stored if spec]
        if len(choices) < len(stored):
            raise InvalidInputError(
                f"cannot drop partitions of '{self.table.name}': a spec is empty. Use truncate() to remove all rows."
            )

        def chosen(live: LiveFiles) -> list[ManifestEntry]:
            found = {entry.identity: entry for choice in choices for entry in choice(live)}
            return list(found.values())

        change = Change(messages=[], commit_user=self.user, overwrites=chosen, safe=self._safe)
        return Publisher(self.table, self.env).commit(change)

    def abort(self) -> None:
        """Drop what was not committed. Files of a commit of unknown outcome stay."""
        if self._writer is not None:
            self._writer.abort()
            self._writer = None
        if self._unknown_since is None:
            remove_files(self.table, self.env, self._failed)
        self._settle()

    def close(self, error: BaseException | None = None) -> None:
        """End the session; what was not committed is dropped."""
        self._closed = True
        self.abort()


def checked_identifier(identifier: int, commit_user: str | None) -> int:
    """Return the identifier of a commit.

    Raises:
        InvalidInputError: it is none, or nobody is named whose commit it is.
    """
    if commit_user is None:
        raise InvalidInputError(
            f"identifier {identifier} is given without commit_user. A commit is named by both: give commit_user too."
        )
    if not isinstance(identifier, int) or isinstance(identifier, bool) or not 0 <= identifier < BATCH_IDENTIFIER:
        raise InvalidInputError(
            f"identifier must be a whole number from 0 to {BATCH_IDENTIFIER - 1}, not {identifier!r}."
        )
    return identifier

"""Transaction: one write of a table, from the call to the commit, wherever its files are written.

    applied?    this user's commit of this identifier stands already: nothing is to be done
    job         a value that pickles: turns rows into files of buckets, in this process or in tasks
    finish      what the jobs wrote becomes one commit, and what is owed after a commit is done
    abort       it does not: the files are removed, unless a snapshot may name them

Every way of writing goes through it: a call of `Table.write`, a `Writer`, the doors of an engine, partitions that
are dropped. A transaction pickles, too: a task may write for it, and another process may finish it.

`finish` may be repeated with the same messages after an error that kept the files, and a copy may repeat it: a
snapshot of this transaction is recognised by its uuid, so that the change is applied once.

Format: sections "commit algorithm", "commitUser and replay".
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from merganser.commit.committable import Committable
from merganser.commit.committers import Newest
from merganser.commit.conflict import Reads
from merganser.commit.log import is_eventual, log_of, uncommitted_rows
from merganser.commit.message import CommitMessage, Committed
from merganser.commit.table_commit import TableCommit
from merganser.commit.turns import Turn, rest_if_crowded, take_turn
from merganser.errors import (
    CommitUnknownError,
    FormatError,
    InvalidInputError,
    MerganserError,
    NotFoundError,
    StorageError,
    a_type,
)
from merganser.lsm.abandoned import remove_uncommitted
from merganser.meta.followed import newest
from merganser.meta.layout import Layout
from merganser.meta.lineage import last_rescale
from merganser.meta.row_counts import RowEdit
from merganser.meta.snapshot import APPEND, BATCH_IDENTIFIER, Snapshot
from merganser.meta.table_def import TableDef
from merganser.meta.table_state import KnownState, TableState
from merganser.options import write as w
from merganser.rules.compacting import publishes_by_compaction, publishes_each_record
from merganser.storage.env import Env
from merganser.storage.guarded import check_may_change
from merganser.upkeep.after_commit import after_commit
from merganser.upkeep.bucket_option import is_overtaken
from merganser.upkeep.compact_table import RunJobs, catch_up
from merganser.write import overwrite as ow
from merganser.write.dynamic import assigners_of
from merganser.write.incoming import Prepared
from merganser.write.job import WriteJob
from merganser.write.recording import Recording
from merganser.write.rejoining import Rejoining
from merganser.write.renumber import Renumbering
from merganser.write.sequences import is_numbered, starting_sequences
from merganser.write.showing import shown_rows
from merganser.write.start import KeyFiles, RowsState, Start, rows_state
from merganser.write.target import WriteTarget

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_WATERMARKS: Final = range(-62_135_596_800_000, 253_402_300_800_000)
"""Epoch milliseconds of the years 1 to 9999. Microseconds of today lie outside."""


class Transaction:
    """One write that becomes one commit.

    Args:
        target: what is written where.
        user: the name of the committer; see `checked_user`.
        identifier: which of the user's commits it is; see `checked_identifier`.
        safe: of a writer that commits more than once, its last commit; None: what the table's strict mode says.
        run: where compactions that follow the commit run; None: on the threads of this process.
        kind: COMPACT if its rows are in the table already, and only find their buckets.
        known: the newest state, if the caller has just asked for it; None: it is asked for when rows come.

    Raises:
        UnsupportedError: the client of the storage only reads. No task of Spark begins, and no broker is asked.

    Attributes:
        uuid: what its snapshot is recognised by.
        watermark: epoch milliseconds up to which event times were seen; see `checked_watermark`. None: the commit says
            nothing of it.
        batch: what tells the rows of a stream's batch from others of the same number; None: it is no batch of a stream.
        computed_from: the rows of the table that a query read which gave the write its rows; None: none.
        since: no snapshot below this one can be its own; None: it has not asked yet what its rows come after.
        unknown_since: a call of `finish`, of unknown outcome, tried to create this snapshot; None: there was none.
        shows: rows of it were sent to readers before the commit.
        after: its snapshot has a larger id than this; 0: it has not asked yet what its rows come after.
        safe: the last snapshot that others may have made without a check, in strict mode; after the commit its own.
        stands: its commit is part of the table, by this object or by a twin.
        aborted: its files were removed, so that it can commit none any more.
        seconds: what was spent on its files, by phase.
    """

    def __init__(
        self,
        target: WriteTarget,
        env: Env,
        user: str,
        identifier: int = BATCH_IDENTIFIER,
        *,
        safe: int | None = None,
        run: RunJobs | None = None,
        kind: str = APPEND,
        known: KnownState | None = None,
    ) -> None:
        check_may_change(env.storage, f"cannot write to '{target.table.name}'")
        self.target = target
        self.env = env
        self.user = user
        self.identifier = identifier
        self.uuid = env.new_id()
        self.watermark: int | None = None
        self.batch: str | None = None
        self.computed_from: Reads | None = None
        self.since: int | None = None
        self.unknown_since: int | None = None
        self.stands = False
        self.aborted = False
        self.seconds: dict[str, float] = {}
        self.shows = False
        self.after = 0
        self.safe = target.table.options.get(w.COMMIT_STRICT_LAST_SAFE_SNAPSHOT) if safe is None else safe
        self._run = run
        self._kind = kind
        self._turn: Turn | None = None
        self._known = known
        self._made: list[CommitMessage] = []  # what calls of `finish` wrote in place of given files

    def __getstate__(self) -> dict[str, Any]:
        """Pickle all but the state that it stands on: a copy has another clock and is finished at another time."""
        return {**self.__dict__, "_known": None}

    @property
    def table(self) -> TableDef:
        """The table that is written."""
        return self.target.table

    def applied(self) -> tuple[bool, Snapshot | None]:
        """Return whether this commit of the user was applied already, and its snapshot if it is kept.

        The process that made it may have been stopped before the compaction that makes its rows visible or
        publishes them. That compaction is made up for here.

        The state that the write stands on answers it. If another process has made this commit since then, `finish`
        finds it.
        """
        if self.identifier == BATCH_IDENTIFIER:
            return False, None
        done, snapshot = TableCommit(self.table, self.env).applied(self.user, self.identifier, self.known_state)
        if done:
            catch_up(self.table, self.env, self.identifier, run=self._run)
        return done, snapshot

    def newest(self) -> Newest | None:
        """Return the newest commit of the user; None: none had an identifier."""
        return TableCommit(self.table, self.env).newest_of(self.user, self.known_state)

    def start(self, *, assigners: int = 1) -> Start:
        """Return what the rows of the write come after: the newest state.

        Args:
            assigners: how many tasks may assign keys to buckets; see `write.dynamic`.

        If a rescale was stopped between its commit and its option, the option is set first.

        Raises:
            ConflictError: the table was dropped since it was opened.
            StorageError: the log of the table cannot be written.
        """
        log_of(self.table, self.env).check()
        commits = TableCommit(self.table, self.env)
        known = self._known
        if rest_if_crowded(self.table, self.env) or known is None or not known.is_fresh(self.env):
            known = self._known = commits.known_state()
        state = known.state
        self.after = self.after or state.next_id - 1
        if self.since is None:
            self.since = state.next_id
        overwrites = self.target.overwrites
        overtaken = False
        while not overwrites and self.table.bucket > 0 and set(state.live.totals) - {self.table.bucket}:
            overtaken = is_overtaken(self.table, self.env, state)
            before, self._known = state, commits.known_state()
            state = self._known.state
            if overtaken or _rescaled(state) == _rescaled(before):  # no rescale came between
                break
        sequences = starting_sequences(self.table, state.live, overwrites=overwrites, overtaken=overtaken)
        if self.table.postpones:
            layout = None if self.target.postpones else Layout.among(self.table, state.live)
            return Start(sequences, assigners=assigners, layout=layout)
        if not self.table.assigns_keys:
            return Start(sequences)
        assigners = assigners_of(self.table, assigners)
        reader = TableCommit(self.table, self.env).reader
        if self.table.moves_keys:
            rows = RowsState(None) if self.target.overwrites else rows_state(reader, state)
            return Start(sequences, assigners=assigners, rows=rows)
        index = () if self.target.overwrites else reader.index(state.snapshot)
        return Start(sequences, KeyFiles.among(index), assigners)

    @property
    def known_state(self) -> TableState | None:
        """The state that the write stands on, if it was asked for a moment ago."""
        known = self._known
        return known.state if known is not None and known.is_fresh(self.env) else None

    def take_turn(self) -> None:
        """Wait for the turn to commit and keep it until the commit. Call it if rows are few and a commit comes next.

        Then nobody commits between the choice of sequence numbers and the commit, and no file is written twice. A
        second call does nothing.
        """
        if self._turn is not None:
            return
        self._turn = take_turn(self.table, self.env)
        if self._turn.has_queued:
            self._known = None
        self.since = None  # no attempt of ours can lie before this: one of unknown outcome is in `unknown_since`

    def end_turn(self) -> None:
        """Give the turn back, if there is one."""
        if self._turn is not None:
            self._turn.end()
            self._turn = None

    def show(self, rows: Prepared) -> None:
        """Send rows to readers that see them before the commit, if the table has such readers; do not wait for it."""
        shown = shown_rows(self.target, self.env)
        if shown is not None:
            self.shows = True
            shown.send(self.uuid, self.after, rows)

    def flush(self) -> None:
        """Wait until readers can see the rows that were sent.

        Raises:
            StorageError: the log does not take them. They come with the commit.
        """
        rows = uncommitted_rows(self.table, self.env)
        if rows is None or not self.shows:
            return
        try:
            rows.flush()
        except StorageError:
            if is_eventual(newest(self.table, self.env)):
                raise

    def _end_showing(self, *, committed: bool) -> None:
        rows = uncommitted_rows(self.table, self.env) if self.shows else None
        if rows is not None:
            self.shows = False
            rows.end(self.uuid, committed=committed)

    def job(
        self, *, kinds: str | None = None, arrival: str | None = None, assigners: int = 1, shows: str | None = None
    ) -> WriteJob:
        """Return what tasks run; see `WriteJob`. Rows of the transaction are newer than all that is committed now.

        Args:
            kinds, arrival: see `WriteJob`.
            assigners: how many tasks may assign keys to buckets, at most; see `write.dynamic`.
            shows: tasks send rows to readers that see them before the commit, if the table has such readers, under this
                name of the write; see `commit.log.write_names`. None: they do not.
        """
        start = self.start(assigners=assigners)
        shown = (shows, self.after) if shows is not None and is_eventual(self.table) else None
        self.shows |= shown is not None and shows == self.uuid
        return WriteJob(self.target, self.env, start, kinds, arrival, shown)

    def finish(
        self,
        messages: Sequence[CommitMessage],
        *,
        removes: ow.Selection | None = None,
        keep_files: bool = False,
        reads: Reads | None = None,
        edit: RowEdit | None = None,
    ) -> Snapshot | None:
        """Make written files one commit, and do what is owed after it.

        Args:
            messages: what jobs wrote; their files are durable.
            removes: the choice of files that the commit removes; None: what the target says.
            keep_files: leave the files of a commit that failed, for the caller to try again or to abort.
            reads: the rows that the write was made from; they must not have changed.
            edit: what the write does to rows that it looked at; None: it looked at none.

        Returns:
            The snapshot; None when there was nothing to commit, or when a twin's snapshot of this commit has expired.

        Raises:
            ConflictError, InvalidInputError: nothing is visible; the files are gone unless they were to be kept.
            CommitUnknownError: the outcome is unknown, and the files were kept. Call it again.
        """
        if self.aborted and messages and not self.stands:
            raise InvalidInputError(
                f"{self.target.action}: the files of this write were removed when it failed or was aborted. Nothing of "
                "it is visible. Write the rows again.",
                table=self.table.name,
            )
        chosen = self.target.selection(messages) if removes is None else removes
        try:
            try:
                snapshot = self._commit(messages, chosen, reads, edit)
            except FormatError as error:
                if not _lacks_file_of(messages, error):
                    raise
                # A copy has committed meanwhile and removed what its snapshot does not name: that is found now.
                snapshot = self._commit(messages, chosen, reads, edit)
        except CommitUnknownError as error:
            tried = error.context["snapshot"]
            self.unknown_since = tried if self.unknown_since is None else min(tried, self.unknown_since)
            raise
        except MerganserError as error:  # after any other error, a bug, nothing is sure: orphans do no harm
            ours = {file.name for message in messages for file in message.added}
            was_here = error.context.get("file") in ours or _lacks_file_of(messages, error)
            if not keep_files and not was_here:  # else they may be live: a copy was here before
                self.abort(messages)
            raise
        except BaseException:  # stopped at any instruction, perhaps with the snapshot made: its files must stay
            self.unknown_since = 1
            raise
        if self.unknown_since is None and snapshot is not None and snapshot.uuid != self.uuid:
            self.abort(messages)  # a twin of this commit was there first, with files of its own
        if self.safe is not None and snapshot is not None:
            self.safe = snapshot.id
        self.stands = True  # before what follows: nothing of it may be removed any more
        self._end_showing(committed=True)
        self._remove_unnamed(messages, snapshot)
        if messages or snapshot is not None:
            committed = Committed(messages, snapshot, self.user, self.identifier)
            after_commit(self.table, self.env, committed, run=self._run)
        return snapshot

    def abort(self, messages: Sequence[CommitMessage]) -> None:
        """Remove what jobs wrote, unless a snapshot names it or may name it. Best effort: else it is orphans."""
        if not self.stands and self.unknown_since is None:
            self.aborted = True
            self._end_showing(committed=False)
            remove_uncommitted(self.table, self.env, [*messages, *self._made])

    def spent(self, phase: str, seconds: float) -> None:
        """Add to what a phase of the write took."""
        self.seconds[phase] = self.seconds.get(phase, 0.0) + seconds

    def _remove_unnamed(self, messages: Sequence[CommitMessage], snapshot: Snapshot | None) -> None:
        """Remove those of our files that the commit does not name, since others of the same rows have higher numbers.

        Not before the commit stands: until then a copy of the transaction may commit them, or a lost call of ours.
        """
        records = publishes_each_record(self.table.options) and any(message.changelog for message in messages)
        if not (self._made or records) or snapshot is None or snapshot.uuid != self.uuid:
            return
        with contextlib.suppress(Exception):  # else they are orphans; the commit succeeded, so nothing is raised
            reader = TableCommit(self.table, self.env).reader
            named = {entry.file.name for entry in reader.delta(snapshot)}
            indexes = {entry.name for entry in reader.index(snapshot)}
            if publishes_each_record(self.table.options):
                named |= {entry.file.name for entry in reader.changelog(snapshot)}
            else:  # the commit names all: other numbers change no row of it
                named |= {file.name for one in messages for file in one.changelog}
            remove_uncommitted(
                self.table,
                self.env,
                [
                    replace(
                        one,
                        added=tuple(file for file in one.added if file.name not in named),
                        changelog=tuple(file for file in one.changelog if file.name not in named),
                        index_added=tuple(entry for entry in one.index_added if entry.name not in indexes),
                    )
                    for one in (*messages, *self._made)
                ],
            )
            self._made = []

    def _commit(
        self,
        messages: Sequence[CommitMessage],
        removes: ow.Selection | None,
        reads: Reads | None,
        edit: RowEdit | None,
    ) -> Snapshot | None:
        options = self.table.options
        if self.target.overwrites:
            messages = ow.upgraded(self.table, messages)
        allow_empty = (
            options.get(w.COMMIT_FORCE_CREATE_SNAPSHOT) or options.get(w.SNAPSHOT_IGNORE_EMPTY_COMMIT) is False
        )
        # A call that looked at rows and has a number was applied also if it changed none: later it might change some.
        allow_empty = allow_empty or (self.identifier != BATCH_IDENTIFIER and (reads is not None or edit is not None))
        if not messages and removes is None and not allow_empty and self.watermark is None:
            if self.computed_from is not None:  # from newer rows there might be something to commit
                commits = TableCommit(self.table, self.env)
                commits.check_computed_from(self.computed_from, commits.reader.latest())
            return None
        change = Committable(
            messages=messages,
            commit_user=self.user,
            identifier=self.identifier,
            kind=self._kind,
            overwrites=removes,
            adapt=self._adapting(messages) if removes is None and messages else None,
            allow_empty=allow_empty,
            uuid=self.uuid,
            since=min((since for since in (self.since, self.unknown_since) if since is not None), default=None),
            safe=self.safe,
            seconds=self.seconds,
            watermark=self.watermark,
            batch=self.batch,
            reads=reads,
            computed_from=self.computed_from,
            edit=edit,
            # Elsewhere the compaction that takes the rows publishes them, or does not.
            untracked=self.target.untracked if removes is not None or not publishes_by_compaction(options) else None,
        )
        turn, self._turn, follows, self._known = self._turn, None, self._known, None  # a repeat has neither
        return TableCommit(self.table, self.env).commit(change, turn=turn, follows=follows)

    def _adapting(self, messages: Sequence[CommitMessage]) -> Callable[[TableState], Sequence[CommitMessage]] | None:
        """Return what keeps rows the newest, joins new keys and finds out what changed; None: nothing needs to.

        Files of merged rows, and in a table without a key files that replace others, keep the numbers of their rows.
        """
        if not is_numbered(self.table) or (not self.table.keyed and any(message.removed for message in messages)):
            return None
        if any(file.level for message in messages for file in message.added):
            return None
        renumbering = Renumbering(self.table, self.env, messages, self._made)
        rejoining = None
        if any(message.keys is not None for message in messages):
            rejoining = Rejoining(self.table, self.env, self._made)
        recording = None
        if publishes_each_record(self.table.options) and any(message.changelog for message in messages):
            recording = Recording(self.table, self.env, self._made, self._run)

        def adapt(state: TableState) -> Sequence[CommitMessage]:
            begun = self.env.seconds()
            numbered = renumbering(state.live)
            if numbered is not messages:
                self.spent("renumber", self.env.seconds() - begun)
            if rejoining is not None:
                numbered = rejoining(state, numbered)
            if recording is None:
                return numbered
            begun = self.env.seconds()
            recorded = recording(state, numbered)
            self.spent("record", self.env.seconds() - begun)
            return recorded

        return adapt


def _rescaled(state: TableState) -> tuple[set[int], int]:
    """Return what a rescale changes in the newest state: numbers there and back are the same, the rescale is not."""
    return set(state.live.totals), 0 if state.snapshot is None else last_rescale(state.snapshot)


def _lacks_file_of(messages: Sequence[CommitMessage], error: MerganserError) -> bool:
    """Return whether an error says that a file of some messages is missing."""
    if not isinstance(error.__cause__, NotFoundError):
        return False
    names = {file.name for message in messages for file in (*message.added, *message.changelog)}
    names |= {entry.name for message in messages for entry in message.index_added}
    return str(error.context.get("path", "")).rpartition("/")[2] in names


def checked_user(target: WriteTarget, env: Env, commit_user: str | None) -> str:
    """Return the name of the committer: the given name, or a new random one.

    Raises:
        InvalidInputError: see `check_user`.
    """
    check_user(commit_user, target.action)
    return commit_user or (target.table.options.get(w.COMMIT_USER_PREFIX) or "") + env.new_id()


def check_user(commit_user: str | None, action: str) -> None:
    """Refuse what cannot name a committer; None is left alone.

    Raises:
        InvalidInputError: it is no text, or an empty one.
    """
    if commit_user is not None and (not isinstance(commit_user, str) or not commit_user.strip()):
        raise InvalidInputError(
            f"{action}: commit_user is {commit_user!r}. Give the name of the committer as text, or None."
        )


def checked_identifier(identifier: int | None, commit_user: str | None) -> int:
    """Return the identifier of a commit; of one that is never repeated for None.

    Raises:
        InvalidInputError: the identifier is invalid, or there is no commit user.
    """
    if identifier is None:
        return BATCH_IDENTIFIER
    if commit_user is None:
        raise InvalidInputError(
            f"identifier {identifier} is given without commit_user. A commit is named by both: give commit_user too."
        )
    if not isinstance(identifier, int) or isinstance(identifier, bool) or not 0 <= identifier < BATCH_IDENTIFIER:
        raise InvalidInputError(
            f"identifier must be a whole number from 0 to {BATCH_IDENTIFIER - 1}, not {identifier!r}."
        )
    return identifier


def checked_watermark(watermark: int | datetime | None, action: str) -> int | None:
    """Return a watermark as epoch milliseconds.

    Args:
        watermark: epoch milliseconds, or an aware datetime; a part of a millisecond is cut off.
        action: beginning of messages.

    Raises:
        InvalidInputError: it is neither, or lies outside the years 1 to 9999.
    """
    if watermark is None:
        return None
    if isinstance(watermark, datetime):
        if watermark.utcoffset() is None:
            raise InvalidInputError(
                f"{action}: watermark is {watermark!r}, a time without a zone. Nothing was committed. Give an aware "
                "datetime, such as datetime(2026, 1, 31, tzinfo=UTC), or epoch milliseconds."
            )
        return (watermark - _EPOCH) // timedelta(milliseconds=1)
    if not isinstance(watermark, int) or isinstance(watermark, bool):
        raise InvalidInputError(
            f"{action}: watermark is {watermark!r:.60}, {a_type(watermark)}. Nothing was committed. Give "
            "epoch milliseconds as a whole number, or an aware datetime."
        )
    if watermark not in _WATERMARKS:
        raise InvalidInputError(
            f"{action}: watermark {watermark} is no time between the years 1 and 9999 in epoch milliseconds. Nothing "
            "was committed. Divide microseconds by 1000."
        )
    return watermark

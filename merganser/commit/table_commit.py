"""TableCommit: the one way in which a change becomes part of a table.

Steps of an attempt, from the newest state S(n). The first attempt follows the state that the writer has looked at
before, if that was a moment ago (decision 0080):

1. Check whether the change is already part of the table: its identifier is at or below the newest identifier of its
   commit user up to S(n). Then the commit is done. The check uses the same state that step 4 follows, so it finds a
   twin that was committed in between (`history`).
2. Check whether the change may follow S(n) (`conflict`). The files that it removes must be live, and the files that
   it adds must be new. Bucket numbers must agree. Deletion vectors must be those that the change was planned on. An
   overwrite chooses the files to remove anew from S(n), so it always fits. In strict mode no other commit may
   conflict with the change. The rows that the change was made from must be as they were. New rows have to be newer
   than those of S(n): if others have taken their sequence numbers meanwhile, the new files get higher ones. The buckets
   that keys were given have to be those of S(n): new keys join those that others have added meanwhile.
3. Write the metadata files (`metadata_files`): the manifests of delta and changelog and their lists (once; later
   attempts use them again), merged manifests if there are many old ones, the base list, and an index manifest if index
   files change. All files are durable and none is visible: a crash leaves orphans. Beside them, check that the
   schema is still there (`schema_checks`). A table that was dropped meanwhile, and perhaps created again, gets no
   snapshot from this writer. At last the log of the table, if it has one, prepares what the snapshot publishes (`log`).
4. Create `snapshot-<n+1>`, which must not exist: the commit point. A writer that loses the race goes to 1. Then move
   the hint. A crash in between costs readers one directory listing.
5. Check that snapshot n is still there (`standing`). If a rollback removed it, or another writer had used the id n+1
   before and that snapshot has expired, remove our snapshot and go to 1. Check for a newer schema as well. The checks
   of step 3 look at the newest schema, and a process may alter the table between them and step 4. An alter creates its
   schema and then looks at the newest snapshot; a writer creates its snapshot and then looks at the newest schema. So
   at least one of the two sees the other, also if the other stops in between. An alter that finds rows that it does not
   allow takes itself back. A writer whose rows the new schema does not allow removes its snapshot and goes to 1, where
   the commit is refused. If others have committed on top by then, the outcome is unknown, and the error says why.
   Rows that are not logged need no such check: their snapshot names the schema without a producer (`scan.gaps`). Rows
   in the number of buckets of the older schema may stay if others have committed on top: a rescale moves them.
6. From here on the commit stands: the writer removes nothing and raises nothing. It completes the changes outside the
   table.

Where the store has locks, writers queue for an attempt for a second at most (`turns`). No step is wrong without them.
Appends never conflict; they only try again with the next id.

Loops: an attempt takes a newer state a few times if the one that it began with expires or its files have to be made
again (`_ready`, `_fitted`). `commit` repeats attempts that lost the race for an id, as the options of the table say.
What calls it makes the rows or files again, from a newer state, if an error says what was overtaken
(`commit.turns.in_rounds`).

Format: sections "commit algorithm", "commitUser and replay", "overwrite".
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import merganser
from merganser.commit import committers
from merganser.commit.committable import Committable
from merganser.commit.conflict import (
    Reads,
    already_there,
    check_after,
    check_index,
    check_keys,
    check_levels,
    check_none_waits,
    check_reads,
    check_removals,
    check_total_buckets,
    check_undisturbed,
)
from merganser.commit.history import History
from merganser.commit.log import CommitLog, carried_offsets, log_of
from merganser.commit.message import CommitMessage
from merganser.commit.metadata_files import MetadataFiles
from merganser.commit.schema_checks import SchemaChecks
from merganser.commit.standing import check_hint, check_stands, known_of, withdraw
from merganser.commit.turns import Attempts, Turn, take_turn
from merganser.errors import (
    CommitUnknownError,
    ConflictError,
    FormatError,
    MerganserError,
    Overtaken,
    SnapshotExistsError,
    StorageError,
    UnsupportedError,
)
from merganser.meta.commit_metrics import TOTALS, CommitMetrics
from merganser.meta.data_file import ADD, DELETE, ManifestEntry
from merganser.meta.index_manifest import HASH, IndexEntry, combined
from merganser.meta.kept import has_expired
from merganser.meta.key_change import fitting
from merganser.meta.lineage import rescaled
from merganser.meta.live_files import LiveFiles
from merganser.meta.row_counts import ROWS_CHANGED, counted
from merganser.meta.schemas import SchemaStore
from merganser.meta.shards import FORGOTTEN
from merganser.meta.snapshot import APPEND, BATCH_IDENTIFIER, COMPACT, OVERWRITE, Snapshot
from merganser.meta.table_def import TableDef
from merganser.meta.table_state import KnownState, MetaReader, TableState
from merganser.meta.tracking import UNTRACKED, mark
from merganser.rules.compacting import keeps_order_of_merges
from merganser.storage.env import Env
from merganser.storage.retries import REREAD, Retries
from merganser.values import dataclass

_log = logging.getLogger(__name__)

_ADAPTED_MAX: Final = 4
"""Maximum number of times that one attempt adapts its files to a newer state. Then it is made with what it has."""

_WITHDRAWAL: Final = Retries(attempts=9, first_wait_ms=5, longest_wait_ms=6000)
"""How long a commit waits for another writer to remove a snapshot that does not stand: about 19 s."""


@dataclass
class _Running:
    """What a commit has come to, from attempt to attempt.

    Attributes:
        messages: those of the change, as they may follow the state that was looked at last.
        follows: the state that the next attempt follows if it is fresh; None: the store is asked.
        withdrawn: the snapshot that the attempt before created and removed; None: there was none.
    """

    messages: Sequence[CommitMessage]
    follows: KnownState | None
    withdrawn: int | None = None


@dataclass(frozen=True)
class _Attempt:
    """One attempt of a commit.

    Attributes:
        begun: when the state was read, in seconds of `Env.seconds`.
        state: the one that it follows.
        is_applied: the change is part of that state.
        snapshot: the one to create; of a change that is applied, its snapshot, if that is kept. None: there is none, or
            nothing to commit.
        live: the live files of the snapshot to create; None: there is none to create.
    """

    begun: float
    state: TableState
    is_applied: bool
    snapshot: Snapshot | None
    live: LiveFiles | None = None


@dataclass(frozen=True)
class TableCommit:
    """Commits to one table."""

    table: TableDef
    env: Env

    @property
    def reader(self) -> MetaReader:
        """The reader of the table's metadata."""
        return MetaReader(self.table.paths, self.env, self.table.name)

    @property
    def _history(self) -> History:
        return History(self.reader)

    @property
    def _checks(self) -> SchemaChecks:
        return SchemaChecks(self.table, self.env)

    def latest(self) -> TableState:
        """Return the newest state, which a change will follow.

        Raises:
            ConflictError: the table was dropped since it was opened, and perhaps made anew.
            FormatError: metadata is damaged or missing.
        """
        try:
            state = self.reader.latest(to_commit=True)
        except FormatError:
            self._checks.check_there()  # files of a table that is being dropped are missing, too
            raise
        if state.snapshot is None:
            self._checks.check_there()  # a dropped table has no snapshots either, and must not get its directory back
        return state

    def known_state(self) -> KnownState:
        """Return the newest state, and when it was asked for; otherwise as `latest`."""
        return KnownState(at=self.env.seconds(), state=self.latest())

    def applied(
        self, commit_user: str, identifier: int, known: TableState | None = None
    ) -> tuple[bool, Snapshot | None]:
        """Return whether a commit was applied already, and its snapshot if that is still kept.

        Args:
            known: the newest state, if the caller has just asked for it; None: this asks.
        """
        return self._history.find(commit_user, identifier, self._newest_snapshot(known))

    def newest_of(self, commit_user: str, known: TableState | None = None) -> committers.Newest | None:
        """Return the newest commit of a user, or None if none had an identifier; `known` as for `applied`."""
        latest = self._newest_snapshot(known)
        return None if latest is None else self._history.newest_of(commit_user, latest)

    def _newest_snapshot(self, known: TableState | None) -> Snapshot | None:
        return self.reader.snapshots.latest() if known is None else known.snapshot

    def commit(
        self,
        change: Committable,
        *,
        turn: Turn | None = None,
        follows: KnownState | None = None,
        log: CommitLog | None = None,
    ) -> Snapshot | None:
        """Commit the change.

        Args:
            turn: the turn of a writer that took it before its sequence numbers; the commit ends it. None: each attempt
                takes one.
            follows: the state that the writers began with; the first attempt follows it if it is fresh. None, or after
                a lost attempt: the store is asked.
            log: the log beside the files; None: that of the table.

        Returns:
            The snapshot of the change. None if there was nothing to commit, or if an earlier call has committed the
            change and its snapshot has expired.

        Raises:
            ConflictError, InvalidInputError: the change may not follow the newest state. Nothing is visible, and the
                new metadata files are removed. The caller removes the data files.
            StorageError, UnsupportedError: the store failed; nothing is visible, as above.
            CommitUnknownError: the outcome is unknown; every file was kept.
        """
        log = log or log_of(self.table, self.env)
        try:
            return self._run(change, turn, _Running(change.messages, follows), log)
        finally:
            log.drop()

    def _run(self, change: Committable, turn: Turn | None, running: _Running, log: CommitLog) -> Snapshot | None:
        """Try until an attempt commits the change, or none may follow; see `commit`."""
        files = MetadataFiles(self.table, self.reader)
        change = change if change.uuid is not None else replace(change, uuid=self.env.new_id())
        attempts = Attempts(self.table, self.env)
        seconds = dict.fromkeys(("manifests", "publish"), 0.0)
        while True:
            with turn or take_turn(self.table, self.env) as taken:  # ended before the next one is taken
                if turn is None and taken.has_queued:
                    running.follows = None
                try:
                    if attempts.lost:  # of a long wait there is much to read; the attempt would be too slow to win
                        self.latest()  # so that all but the last of it is known when the attempt looks
                    attempt = self._ready(change, running, files, log)
                except CommitUnknownError:
                    raise
                except MerganserError as error:
                    files.discard()
                    if isinstance(error, ConflictError):
                        TOTALS.add_conflict(self.table.name, change.kind)
                    raise
                snapshot = attempt.snapshot
                if attempt.live is None or snapshot is None:
                    files.discard()
                    if attempt.is_applied:
                        self._publish(log, snapshot)
                    return snapshot
                ready = self.env.seconds()
                seconds["manifests"] += ready - attempt.begun
                try:
                    stored = self._create(snapshot, attempt.live, attempt.state, files, change, running.messages)
                    files.clean()
                    attempts.end()
                    seconds["publish"] += self.env.seconds() - ready
                    self._publish(log, stored)
                    return _measured(stored, snapshot.metrics, attempts.lost + 1, {**change.seconds, **seconds})
                except SnapshotExistsError as error:
                    seconds["publish"] += self.env.seconds() - ready
                    log.drop()
                    running.withdrawn = error.context.get("withdrawn", running.withdrawn)
                    files.discard(keep_delta=change.overwrites is None)
                except (StorageError, UnsupportedError):  # the store failed, or cannot promise one winner: nothing made
                    files.discard()
                    raise
            turn = None
            if not attempts.wait_for_next(attempt.begun):
                break
        files.discard()
        attempts.end()
        TOTALS.add_conflict(self.table.name, change.kind)
        raise ConflictError(
            f"cannot commit to '{self.table.name}': other writers took the next snapshot id {attempts.lost} times in a "
            "row. Nothing of this commit is visible. Try again, or raise 'commit.max-retries' or 'commit.timeout'.",
            table=self.table.name,
        )

    def _applied(self, change: Committable, state: TableState) -> tuple[bool, Snapshot | None]:
        """Return whether the change is part of a state, and its snapshot if that is still kept."""
        latest = state.snapshot
        if change.kind != COMPACT:  # a compaction has the user and identifier of the write that it follows
            done, snapshot = self._history.find(change.commit_user, change.identifier, latest)
            if done:
                return True, snapshot
        if latest is None or change.since is None:
            return False, None
        found = self._history.find_uuid(change.uuid, state, since=change.since)
        return found is not None, found

    def _publish(self, log: CommitLog, snapshot: Snapshot | None) -> None:
        """Let readers of the log see a commit that stands. What fails here is made up for by the next commit."""
        try:
            log.publish(snapshot)
        except Exception:
            _log.warning(
                "a commit to '%s' stands, and its log does not show it yet. The next commit makes up for it, as does "
                "`merganser log repair %s`.",
                self.table.name,
                self.table.name,
                exc_info=True,
            )

    def check_computed_from(self, reads: Reads | None, state: TableState) -> None:
        """Refuse rows that a query gave, if what it read has changed up to a state.

        Raises:
            ConflictError: see `check_reads`; `overtaken` is QUERY.
        """
        if reads is not None:
            newest_first = self.reader.newest_first(state)
            check_reads(reads, newest_first, self.reader.delta, table=self.table.name, by=Overtaken.QUERY)

    def _check(self, change: Committable, messages: Sequence[CommitMessage], state: TableState) -> None:
        """Refuse a change that may not follow a state.

        Raises:
            ConflictError, InvalidInputError: nothing was changed.
        """
        previous = state.snapshot
        if previous is not None and change.safe is not None and change.safe >= 0:
            since = self.reader.newest_first(state)
            check_undisturbed(
                since, self.reader.delta, safe=change.safe, commit_user=change.commit_user, table=self.table.name
            )
        if change.reads is not None:
            newest_first = self.reader.newest_first(state)
            check_reads(change.reads, newest_first, self.reader.delta, table=self.table.name)
        self.check_computed_from(change.computed_from, state)
        if change.overwrites is None:
            entries = [entry for message in messages for entry in message.entries()]
            newest = previous.id if previous else 0
            check_after(messages, partial(self.reader.newest_first, state), table=self.table.name)
            check_removals(entries, state.live, table=self.table.name, snapshot=newest)
            check_levels(entries, state.live, self.table.key_types, table=self.table.name, snapshot=newest)
            live = state.live
            if change.rescales:  # what goes is there, and what stays must have the number of what comes
                removed = [entry for entry in entries if entry.kind == DELETE]
                live = live.apply(removed, source=f"snapshot {newest}")
            check_total_buckets(entries, live, table=self.table.name, snapshot=newest)
            of_merge = change.kind == COMPACT and change.merges
            if of_merge and keeps_order_of_merges(replace(self.table.schema, options=self.table.options)):
                check_none_waits(entries, state.live, table=self.table.name, snapshot=newest)

    def _ready(self, change: Committable, running: _Running, files: MetadataFiles, log: CommitLog) -> _Attempt:
        """Return an attempt with the metadata of its snapshot, after a state that has not expired meanwhile.

        Raises:
            ConflictError, InvalidInputError: the change may not follow the newest state.
            FormatError: metadata is damaged or missing, or states expired again and again.
        """
        for attempt in REREAD.each():
            placed = self._fitted(change, running, files)
            if placed.is_applied:
                return placed
            try:
                return self._prepare(change, running.messages, placed, files, log)
            except FormatError as error:
                if attempt.is_last or not self._has_expired(placed.state, error):
                    raise
                files.discard()
        raise AssertionError("the last attempt returns or raises")

    def _has_expired(self, state: TableState, error: FormatError) -> bool:
        """Return whether a file is missing since others have committed after a state, and an expiry removed it."""
        return state.snapshot is not None and has_expired(self.table, self.env, state.snapshot, error)

    def _fitted(self, change: Committable, running: _Running, files: MetadataFiles) -> _Attempt:
        """Return an attempt after the newest state, which the messages of `running` may follow then.

        Others commit while new files get higher sequence numbers, or the changes of rows are found out. So the newest
        state is read once more after that: an attempt takes no longer than without.

        Args:
            files: those of the attempt before; they are removed if they name other files.

        Raises:
            ConflictError, InvalidInputError: the change may not follow the newest state.
        """
        for number in range(_ADAPTED_MAX):  # no retry: nothing has failed if it adapts once more
            begun, state = self._newest(running)
            running.follows = None
            done, snapshot = self._applied(change, state)
            placed = _Attempt(begun, state, done, snapshot)
            if done:
                break
            self._check(change, running.messages, state)
            try:
                messages = running.messages if change.adapt is None else change.adapt(state)
                if change.overwrites is None:
                    check_keys(messages, partial(self.reader.index, state.snapshot), table=self.table.name)
            except FormatError as error:
                # The last state has to be one that the messages follow.
                if number + 1 == _ADAPTED_MAX or not self._has_expired(state, error):
                    raise
                continue
            if messages is running.messages:
                break
            running.messages = messages
            files.discard()
        return placed

    def _newest(self, running: _Running) -> tuple[float, TableState]:
        """Return the newest state, and when it was read.

        Another writer may have read the snapshot that the attempt before withdrew, and put its own on top. That one has
        the rows of this change, and does not stand: its writer removes it. This commit must not take it for proof that
        its rows are there, so it waits.

        Raises:
            CommitUnknownError: the other snapshot stays, since its writer was stopped.
        """
        if running.follows is not None and running.follows.is_fresh(self.env):
            return self.env.seconds(), running.follows.state
        for attempt in _WITHDRAWAL.each(self.env):
            begun, state = self.env.seconds(), self.latest()
            if running.withdrawn is None or not self.reader.snapshots.is_missing_below(
                state.next_id, running.withdrawn
            ):
                return begun, state
            if attempt.is_last:
                break
        raise CommitUnknownError(
            f"cannot tell whether the rows for '{self.table.name}' were committed: the table was rolled back or "
            f"altered, and snapshot {state.next_id - 1} of another writer lies on top of the snapshot that was removed "
            "for it. Every file was kept. Repeat the rollback, if there was one, then the write.",
            table=self.table.name,
            snapshot=running.withdrawn,
        )

    def _prepare(
        self,
        change: Committable,
        messages: Sequence[CommitMessage],
        placed: _Attempt,
        files: MetadataFiles,
        log: CommitLog,
    ) -> _Attempt:
        """Write the metadata of the snapshot that follows the state of an attempt.

        Returns:
            The attempt with its snapshot; without one if there is no change.
        """
        state = placed.state
        entries = [entry for message in messages for entry in message.entries()]
        changelog = [entry for message in messages for entry in message.changelog_entries()]
        reindexed = {e.index_type for message in messages for e in (*message.index_added, *message.index_removed)}
        previous = state.snapshot
        if change.overwrites is not None:
            entries = change.overwrites(state.live) + entries
        watermark = _later(previous.watermark if previous else None, change.watermark)
        rises = watermark != (previous.watermark if previous else None)
        if not entries and not changelog and not reindexed and not change.allow_empty and not rises:
            return placed
        untracked = change.untracked({entry.partition for entry in entries}) if change.untracked else ()
        live = self._live_after(state, entries)
        index = self._index_after(change, messages, state, entries)
        schemas = SchemaStore(self.table.paths, self.env)
        _, schema_id, lists = self.env.beside(
            self._checks.check_there,
            partial(schemas.latest_id, max(self.table.schema.id, previous.schema_id if previous else 0)),
            partial(files.write, previous, entries, index, changelog=changelog, renews=change.renews_manifests),
        )
        added = sum(e.file.row_count if e.kind == ADD else -e.file.row_count for e in entries)
        removes = any(entry.kind == DELETE for entry in entries)
        newest = schemas.load(schema_id)
        if previous is not None and not change.rekeys:
            newest = fitting(schemas, newest, previous)
        self._checks.check_logs(newest.options, change.kind)
        self._checks.check_rows(change, messages, state, newest, schema_id)
        if change.statistics is not None and newest.id != self.table.schema.id:
            raise ConflictError(
                f"cannot analyze '{self.table.name}': it got schema {newest.id} while rows of schema "
                f"{self.table.schema.id} were counted. Nothing was changed. Analyze it again.",
                table=self.table.name,
                schema=newest.id,
            )
        snapshot = Snapshot(
            id=state.next_id,
            uuid=change.uuid,
            schema_id=newest.id,
            base_manifest_list=lists.base,
            base_manifest_list_size=lists.base_size,
            delta_manifest_list=lists.delta,
            delta_manifest_list_size=lists.delta_size,
            changelog_manifest_list=lists.changelog,
            changelog_manifest_list_size=lists.changelog_size,
            commit_user=change.commit_user,
            writer_version=f"{committers.WRITER}{merganser.__version__}",
            commit_identifier=self._identifier(change, previous),
            commit_kind=OVERWRITE
            if change.overwrites is not None or ((removes or reindexed - {HASH}) and change.kind == APPEND)
            else change.kind,
            time_millis=self.env.now_ms(),
            total_record_count=_rows_before(state) + added,
            delta_record_count=added,
            changelog_record_count=sum(entry.file.row_count for entry in changelog) if changelog else None,
            next_row_id=(previous.next_row_id or 0) if previous else 0,
            index_manifest=lists.index,
            watermark=watermark,
            statistics=change.statistics or (previous.statistics if previous and not change.renews_manifests else None),
            properties={
                **_carried(previous),
                **change.properties,
                **mark(state.next_id, untracked),
                **(rescaled(state.next_id) if change.rescales else {}),
                **(counted(state.next_id, change.edit.counts()) if change.edit else {}),
            },
            operation=change.edit.operation if change.edit else None,
            log_offsets=carried_offsets(self.table, self.env, previous, newest),
        )
        known = self._history.committers_after(snapshot, previous, change.batch)
        snapshot = replace(snapshot, properties=committers.properties(snapshot.properties, known))
        if previous and not change.statistics and snapshot.statistics and previous.schema_id != snapshot.schema_id:
            snapshot = replace(snapshot, statistics=None)
        snapshot = log.prepare(snapshot, previous)
        return replace(placed, snapshot=replace(snapshot, metrics=self._metrics(snapshot, entries)), live=live)

    def _metrics(self, snapshot: Snapshot, entries: Sequence[ManifestEntry]) -> CommitMetrics:
        added = [entry.file for entry in entries if entry.kind == ADD]
        removed = [entry.file for entry in entries if entry.kind == DELETE]
        return CommitMetrics(
            table=self.table.name,
            snapshot_id=snapshot.id,
            kind=snapshot.commit_kind,
            rows_added=sum(file.row_count for file in added),
            rows_removed=sum(file.row_count for file in removed),
            bytes_added=sum(file.size for file in added),
            bytes_removed=sum(file.size for file in removed),
            files_added=len(added),
            files_removed=len(removed),
            buckets=len({(entry.partition, entry.bucket) for entry in entries}),
        )

    def _identifier(self, change: Committable, previous: Snapshot | None) -> int:
        """Return the identifier to store.

        The identifiers of a user never fall; otherwise a later commit would count as not applied. The compaction
        after a write may be committed after the next write, which another process makes.
        """
        if change.kind != COMPACT or change.identifier == BATCH_IDENTIFIER or previous is None:
            return change.identifier
        newest = self._history.newest_of(change.commit_user, previous)
        return change.identifier if newest is None else max(change.identifier, newest[0])

    def _create(
        self,
        snapshot: Snapshot,
        live: LiveFiles,
        state: TableState,
        files: MetadataFiles,
        change: Committable,
        messages: Sequence[CommitMessage],
    ) -> Snapshot:
        """Create the snapshot.

        Raises:
            SnapshotExistsError, StorageError, UnsupportedError: nothing of the commit is visible. After any other
                error the commit may have succeeded.
        """
        store, before = self.reader.snapshots, state.snapshot
        stored, moves = self.env.beside(partial(store.create, snapshot), partial(store.hint_may_move, snapshot.id))
        # The hint moves before the checks: a rollback between them, which has moved the hint back, is then found, and
        # the hint moves back once more. After them nobody would find it, and the hint would name what is gone.
        if moves:
            store.write_latest_hint(stored.id)
        self.env.beside(
            partial(check_stands, self.reader, stored, live, before),
            partial(check_hint, self.reader, stored),
            partial(self._check_not_altered, stored, state, change, messages),
        )
        if stored.delta_manifest_list == snapshot.delta_manifest_list:
            self.reader.keep(state.followed_by(stored, live))
        else:  # an earlier call made it, with files of its own
            files.discard()
        return stored

    def _check_not_altered(
        self, stored: Snapshot, state: TableState, change: Committable, messages: Sequence[CommitMessage]
    ) -> None:
        """Remove a new snapshot with rows that a schema does not allow which came just before the snapshot.

        Args:
            state: the one that it follows.

        Raises:
            SnapshotExistsError: nothing of the commit is visible; the next attempt says why it is refused.
            CommitUnknownError: the schema could not be read, or the snapshot not be removed; see `withdraw`.
        """
        if change.rekeys:
            return
        with known_of(self.reader, stored, "the newest schema could not be read"):
            schemas = SchemaStore(self.table.paths, self.env)
            there = schemas.latest_id(stored.schema_id)
            if there == stored.schema_id:
                return
            now = fitting(schemas, schemas.load(there), stored)
        try:
            self._checks.check_rows(change, messages, state, now, there)
        except ConflictError as error:
            # Rows in an older number of buckets contradict nothing: a rescale on top has moved them, or one will.
            may_stay = error.overtaken is Overtaken.BUCKETS
            why = f"the table was altered while it was made. {error.message}"
            withdraw(self.reader, stored, state.snapshot, why, may_stay=may_stay)

    def _live_after(self, state: TableState, entries: Sequence[ManifestEntry]) -> LiveFiles:
        """Return the live files once the change is made.

        Raises:
            ConflictError: the change adds files that are live already; nothing was changed.
        """
        try:
            return state.live.apply(entries, source=f"snapshot {state.next_id} of '{self.table.name}'")
        except FormatError as error:
            raise already_there(self.table.name, str(error.context.get("file"))) from error

    def _index_after(
        self,
        change: Committable,
        messages: Sequence[CommitMessage],
        state: TableState,
        entries: Sequence[ManifestEntry],
    ) -> tuple[IndexEntry, ...] | None:
        """Return the index files once the change is made, None if they stay as they are.

        An overwrite takes the index files of a bucket with its data files.

        Raises:
            ConflictError: the change was planned on index files that are no longer live.
        """
        removed = [entry for message in messages for entry in message.index_removed]
        added = [entry for message in messages for entry in message.index_added]
        before = self.reader.index(state.snapshot)
        if not removed and not added and (not before or all(entry.kind == ADD for entry in entries)):
            return None
        single = self.table.bucketed
        if change.overwrites is not None:
            emptied = {(e.partition, e.bucket) for e in entries if e.kind == DELETE}
            kept = {e.file.name for e in entries if e.kind == DELETE}
            emptied -= {b for b in emptied if any(e.file.name not in kept for e in state.live.buckets[b].entries)}
            anew = {entry.partition for entry in added if entry.index_type == HASH}
            removed += [
                entry
                for entry in before
                if (entry.partition, entry.bucket) in emptied or (entry.index_type == HASH and entry.partition in anew)
            ]
        else:
            check_index(
                entries,
                removed,
                added,
                before,
                state.live,
                one_per_bucket=single,
                table=self.table.name,
                snapshot=state.next_id - 1,
            )
        after = combined(before, removed=removed, added=added, one_per_bucket=single)
        return None if after == before else after


def _measured(stored: Snapshot, metrics: CommitMetrics | None, attempts: int, seconds: Mapping[str, float]) -> Snapshot:
    """Return a new snapshot together with the metrics of its commit; count and log the metrics."""
    assert metrics is not None
    metrics = replace(metrics, attempts=attempts, seconds=seconds)
    TOTALS.add(metrics)
    _log.info("%s", metrics, extra={"merganser": metrics})
    return replace(stored, metrics=metrics)


def _carried(previous: Snapshot | None) -> dict[str, str]:
    """Return the properties that a snapshot has from the one before."""
    there = {} if previous is None else previous.properties or {}
    return {name: text for name, text in there.items() if name not in (UNTRACKED, ROWS_CHANGED, FORGOTTEN)}


def _later(before: int | None, now: int | None) -> int | None:
    return now if before is None else before if now is None else max(before, now)


def _rows_before(state: TableState) -> int:
    """Return the number of physical rows of a state; count the rows if its writer recorded no number."""
    if state.snapshot is None:
        return 0
    known = state.snapshot.total_record_count
    return sum(entry.file.row_count for entry in state.live) if known is None else known

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
   schema is still there. A table that was dropped meanwhile, and perhaps created again, gets no snapshot from this
   writer. At last the log of the table, if it has one, prepares what the snapshot publishes (`log`).
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
again (`_attempt`, `_placed`). `commit` repeats attempts that lost the race for an id, as the options of the table say.
What calls it makes the rows or files again, from a newer state, if an error says what was overtaken
(`commit.turns.in_rounds`).

Format: sections "commit algorithm", "commitUser and replay", "overwrite".
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import merganser
from merganser.commit import committers
from merganser.commit.conflict import (
    Reads,
    already_there,
    check_after,
    check_index,
    check_keys,
    check_levels,
    check_new_partitions,
    check_none_waits,
    check_reads,
    check_removals,
    check_total_buckets,
    check_undisturbed,
)
from merganser.commit.history import History
from merganser.commit.log import CommitLog, log_of
from merganser.commit.message import CommitMessage
from merganser.commit.metadata_files import MetadataFiles
from merganser.commit.standing import check_hint, check_stands, known_of, withdraw
from merganser.commit.turns import Attempts, Turn, take_turn
from merganser.errors import (
    CommitUnknownError,
    ConflictError,
    FormatError,
    InvalidInputError,
    MerganserError,
    Overtaken,
    SnapshotExistsError,
    StorageError,
    UnsupportedError,
)
from merganser.meta.commit_metrics import TOTALS, CommitMetrics
from merganser.meta.data_file import ADD, DELETE, DataFile, ManifestEntry
from merganser.meta.index_manifest import HASH, IndexEntry, combined
from merganser.meta.kept import has_expired
from merganser.meta.key_change import fitting, key_ids, replaced
from merganser.meta.layout import options_since
from merganser.meta.lineage import rescaled
from merganser.meta.live_files import EMPTY, LiveFiles
from merganser.meta.row_counts import ROWS_CHANGED, RowEdit, counted
from merganser.meta.schemas import SchemaStore
from merganser.meta.shards import FORGOTTEN
from merganser.meta.snapshot import APPEND, BATCH_IDENTIFIER, COMPACT, OVERWRITE, Snapshot
from merganser.meta.table_def import TableDef
from merganser.meta.table_state import KnownState, MetaReader, TableState
from merganser.meta.tracking import UNTRACKED, mark
from merganser.options import write as w
from merganser.options.option import Options
from merganser.options.registry import sequence_groups
from merganser.rules.compacting import keeps_order_of_merges, publishes_by_compaction
from merganser.rules.named_columns import renamed
from merganser.rules.option_changes import check_written_options
from merganser.schema.lossy import lossy_columns
from merganser.schema.nullability import tightened
from merganser.schema.table_schema import TableSchema
from merganser.storage.env import Env
from merganser.storage.retries import REREAD, Retries

_log = logging.getLogger(__name__)

_ADAPTED_MAX: Final = 4
"""Maximum number of times that one attempt adapts its files to a newer state. Then it is made with what it has."""

_WITHDRAWAL: Final = Retries(attempts=9, first_wait_ms=5, longest_wait_ms=6000)
"""How long a commit waits for another writer to remove a snapshot that does not stand: about 19 s."""


@dataclass(frozen=True)
class Change:
    """The content of a commit.

    Attributes:
        messages: changes by bucket; their files are durable.
        kind: commit kind when nothing is removed.
        commit_user: the name of the committer.
        identifier: which of the user's commits it is; BATCH_IDENTIFIER when it is never repeated.
        overwrites: chooses the files that an overwrite removes, from each newest state; None: no overwrite.
        adapt: returns the messages as they may follow a state, such as with sequence numbers above those of its files,
            and the same messages again for the same state. None: they may follow any state, as those of a compaction,
            which moves rows, and of an overwrite, which leaves nothing in its buckets.
        allow_empty: make a snapshot even of no change.
        uuid: identifies the snapshot of the change; None: every call makes a new one.
        since: an earlier call with the same uuid cannot have made a snapshot below this id; None: there was no call.
        withdrawn: the snapshot that the attempt before created and removed; None: there was none.
        safe: the last snapshot that needs no check in strict mode; negative or None: no snapshot needs one.
        seconds: the time that its writers spent on its files, by phase; see `CommitMetrics`.
        watermark: epoch milliseconds up to which its writers have seen event times. The watermark of a table never
            falls; a higher one is a change by itself.
        properties: texts that this snapshot and all later ones record; they replace texts of the same name.
        batch: what tells the rows of a stream's batch from others of the same number; see `committers`.
        log: the log beside the files; None: that of the table.
        turn: the turn of a writer that took it before its sequence numbers; the commit ends it. None: it takes one.
        follows: the state that its writers began with; the first attempt follows it if it is fresh. Else, and after
            a lost attempt, the store is asked.
        reads: the rows that the change was made from; they must not have changed. None: it was made from no rows.
        computed_from: the rows that a query read which gave the change its rows; likewise.
        rescales: the rows of its partitions move to another number of buckets.
        rekeys: the rows of the table get the key of the newest schema, which was made for this change.
        edit: what it does to rows that it looked at; None: it looked at none.
        untracked: chooses, of the partitions of the change, those whose changes it does not publish; None: none.
        merges: whether it merges versions of rows; only of a compaction. False: each new file holds rows of one file
            that goes, as they are.
        statistics: name of the file with the statistics of the table, of rows in its schema, which must be the newest;
            None: those of the snapshot before stay.
        renews_manifests: all manifests are merged into new ones that name live files alone, and the statistics of the
            table are left out. So nothing of files that are gone is in the metadata of the snapshot.
    """

    messages: Sequence[CommitMessage]
    commit_user: str
    identifier: int = BATCH_IDENTIFIER
    kind: str = APPEND
    overwrites: Callable[[LiveFiles], list[ManifestEntry]] | None = None
    adapt: Callable[[TableState], Sequence[CommitMessage]] | None = None
    allow_empty: bool = False
    uuid: str | None = None
    since: int | None = None
    withdrawn: int | None = None
    safe: int | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    watermark: int | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    batch: str | None = None
    log: CommitLog | None = None
    turn: Turn | None = None
    follows: KnownState | None = None
    reads: Reads | None = None
    computed_from: Reads | None = None
    edit: RowEdit | None = None
    untracked: Callable[[Collection[bytes]], Collection[bytes]] | None = None
    rescales: bool = False
    rekeys: bool = False
    merges: bool = True
    renews_manifests: bool = False
    statistics: str | None = None


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

    def latest(self) -> TableState:
        """Return the newest state, which a change will follow.

        Raises:
            ConflictError: the table was dropped since it was opened, and perhaps made anew.
            FormatError: metadata is damaged or missing.
        """
        try:
            state = self.reader.latest(to_commit=True)
        except FormatError:
            self._check_schema()  # files of a table that is being dropped are missing, too
            raise
        if state.snapshot is None:
            self._check_schema()  # a dropped table has no snapshots either, and must not get its directory back
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

    def _applied(self, change: Change, state: TableState) -> tuple[bool, Snapshot | None]:
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

    def commit(self, change: Change) -> Snapshot | None:
        """Commit the change.

        Returns:
            The snapshot of the change. None if there was nothing to commit, or if an earlier call has committed the
            change and its snapshot has expired.

        Raises:
            ConflictError, InvalidInputError: the change may not follow the newest state. Nothing is visible, and the
                new metadata files are removed. The caller removes the data files.
            StorageError, UnsupportedError: the store failed; nothing is visible, as above.
            CommitUnknownError: the outcome is unknown; every file was kept.
        """
        log = change.log or log_of(self.table, self.env)
        try:
            return self._committed(change, log)
        finally:
            log.drop()

    def _committed(self, change: Change, log: CommitLog) -> Snapshot | None:
        """Commit the change beside a log; see `commit`."""
        files = MetadataFiles(self.table, self.reader)
        change = change if change.uuid is not None else replace(change, uuid=self.env.new_id())
        turns, turn = Attempts(self.table, self.env), change.turn
        seconds = dict.fromkeys(("manifests", "publish"), 0.0)
        while True:
            with turn or take_turn(self.table, self.env) as taken:  # ended before the next one is taken
                if turn is None and taken.has_queued:
                    change = replace(change, follows=None)
                try:
                    if turns.lost:
                        self.latest()  # of a long wait there is much to read; the attempt would be too slow to win
                    begun, state, done, snapshot, change, prepared = self._attempt(change, files, log)
                except CommitUnknownError:
                    raise
                except MerganserError as error:
                    files.discard()
                    if isinstance(error, ConflictError):
                        TOTALS.add_conflict(self.table.name, change.kind)
                    raise
                if prepared is None:
                    files.discard()
                    if done:
                        self._publish(log, snapshot)
                    return snapshot
                ready = self.env.seconds()
                seconds["manifests"] += ready - begun
                try:
                    stored = self._create(*prepared, state, files, change)
                    files.clean()
                    turns.end()
                    seconds["publish"] += self.env.seconds() - ready
                    self._publish(log, stored)
                    return _measured(stored, prepared[0].metrics, turns.lost + 1, {**change.seconds, **seconds})
                except SnapshotExistsError as error:
                    seconds["publish"] += self.env.seconds() - ready
                    log.drop()
                    change = replace(change, withdrawn=error.context.get("withdrawn", change.withdrawn))
                    files.discard(keep_delta=change.overwrites is None)
                except (StorageError, UnsupportedError):  # the store failed, or cannot promise one winner: nothing made
                    files.discard()
                    raise
            turn = None
            if not turns.wait_for_next(begun):
                break
        files.discard()
        turns.end()
        TOTALS.add_conflict(self.table.name, change.kind)
        raise ConflictError(
            f"cannot commit to '{self.table.name}': other writers took the next snapshot id {turns.lost} times in a "
            "row. Nothing of this commit is visible. Try again, or raise 'commit.max-retries' or 'commit.timeout'.",
            table=self.table.name,
        )

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

    def _check(self, change: Change, state: TableState) -> None:
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
            entries = [entry for message in change.messages for entry in message.entries()]
            newest = previous.id if previous else 0
            check_after(change.messages, partial(self.reader.newest_first, state), table=self.table.name)
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

    def _attempt(
        self, change: Change, files: MetadataFiles, log: CommitLog
    ) -> tuple[float, TableState, bool, Snapshot | None, Change, tuple[Snapshot, LiveFiles] | None]:
        """Return what `_placed` and `_prepare` return, of a state that has not expired meanwhile.

        Raises:
            ConflictError, InvalidInputError: the change may not follow the newest state.
            FormatError: metadata is damaged or missing, or states expired again and again.
        """
        for attempt in REREAD.each():
            begun, state, done, snapshot, change = self._placed(change, files)
            try:
                prepared = None if done else self._prepare(change, state, files, log)
                break
            except FormatError as error:
                if attempt.is_last or not self._has_expired(state, error):
                    raise
                files.discard()
        return begun, state, done, snapshot, change, prepared

    def _has_expired(self, state: TableState, error: FormatError) -> bool:
        """Return whether a file is missing since others have committed after a state, and an expiry removed it."""
        return state.snapshot is not None and has_expired(self.table, self.env, state.snapshot, error)

    def _placed(self, change: Change, files: MetadataFiles) -> tuple[float, TableState, bool, Snapshot | None, Change]:
        """Return a change as it may follow the newest state.

        Others commit while new files get higher sequence numbers, or the changes of rows are found out. So the newest
        state is read once more after that: an attempt takes no longer than without.

        Args:
            files: those of the attempt before; they are removed if they name other files.

        Returns:
            When the newest state was read; that state; whether the change is part of it; the snapshot of the change,
            if that is kept; the change.

        Raises:
            ConflictError, InvalidInputError: the change may not follow the newest state.
        """
        for _ in range(_ADAPTED_MAX):  # no retry: nothing has failed if it adapts once more
            begun, state = self._newest(change)
            change = replace(change, follows=None)
            done, snapshot = self._applied(change, state)
            if done:
                break
            self._check(change, state)
            try:
                messages = change.messages if change.adapt is None else change.adapt(state)
                if change.overwrites is None:
                    check_keys(messages, partial(self.reader.index, state.snapshot), table=self.table.name)
            except FormatError as error:
                if not self._has_expired(state, error):
                    raise
                continue
            if messages is change.messages:
                break
            change = replace(change, messages=messages)
            files.discard()
        return begun, state, done, snapshot, change

    def _newest(self, change: Change) -> tuple[float, TableState]:
        """Return the newest state, and when it was read.

        Another writer may have read the snapshot that the attempt before withdrew, and put its own on top. That one has
        the rows of this change, and does not stand: its writer removes it. This commit must not take it for proof that
        its rows are there, so it waits.

        Raises:
            CommitUnknownError: the other snapshot stays, since its writer was stopped.
        """
        if change.follows is not None and change.follows.is_fresh(self.env):
            return self.env.seconds(), change.follows.state
        for attempt in _WITHDRAWAL.each(self.env):
            begun, state = self.env.seconds(), self.latest()
            if change.withdrawn is None or not self.reader.snapshots.is_missing_below(state.next_id, change.withdrawn):
                return begun, state
            if attempt.is_last:
                break
        raise CommitUnknownError(
            f"cannot tell whether the rows for '{self.table.name}' were committed: the table was rolled back or "
            f"altered, and snapshot {state.next_id - 1} of another writer lies on top of the snapshot that was removed "
            "for it. Every file was kept. Repeat the rollback, if there was one, then the write.",
            table=self.table.name,
            snapshot=change.withdrawn,
        )

    def _prepare(
        self, change: Change, state: TableState, files: MetadataFiles, log: CommitLog
    ) -> tuple[Snapshot, LiveFiles] | None:
        """Write the metadata of the snapshot that follows `state`.

        Returns:
            The snapshot and its live files; None if there is no change.
        """
        entries = [entry for message in change.messages for entry in message.entries()]
        changelog = [entry for message in change.messages for entry in message.changelog_entries()]
        reindexed = {
            e.index_type for message in change.messages for e in (*message.index_added, *message.index_removed)
        }
        previous = state.snapshot
        if change.overwrites is not None:
            entries = change.overwrites(state.live) + entries
        watermark = _later(previous.watermark if previous else None, change.watermark)
        rises = watermark != (previous.watermark if previous else None)
        if not entries and not changelog and not reindexed and not change.allow_empty and not rises:
            return None
        untracked = change.untracked({entry.partition for entry in entries}) if change.untracked else ()
        live = self._live_after(state, entries)
        index = self._index_after(change, state, entries)
        schemas = SchemaStore(self.table.paths, self.env)
        _, schema_id, lists = self.env.beside(
            self._check_schema,
            partial(schemas.latest_id, max(self.table.schema.id, previous.schema_id if previous else 0)),
            partial(files.write, previous, entries, index, changelog=changelog, renews=change.renews_manifests),
        )
        added = sum(e.file.row_count if e.kind == ADD else -e.file.row_count for e in entries)
        removes = any(entry.kind == DELETE for entry in entries)
        newest = schemas.load(schema_id)
        if previous is not None and not change.rekeys:
            newest = fitting(schemas, newest, previous)
        self._check_logs(newest.options, change)
        if change.kind != COMPACT:
            self._check_columns(newest, change.messages)
        self._check_stored(newest, is_first=previous is None, rekeys=change.rekeys)
        self._check_numbers(change, state, schema_id)
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
            log_offsets=previous.log_offsets if previous else None,
        )
        known = self._history.committers_after(snapshot, previous, change.batch)
        snapshot = replace(snapshot, properties=committers.properties(snapshot.properties, known))
        if previous and not change.statistics and snapshot.statistics and previous.schema_id != snapshot.schema_id:
            snapshot = replace(snapshot, statistics=None)
        snapshot = log.prepare(snapshot, previous)
        return replace(snapshot, metrics=self._metrics(snapshot, entries)), live

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

    def _identifier(self, change: Change, previous: Snapshot | None) -> int:
        """Return the identifier to store.

        The identifiers of a user never fall; otherwise a later commit would count as not applied. The compaction
        after a write may be committed after the next write, which another process makes.
        """
        if change.kind != COMPACT or change.identifier == BATCH_IDENTIFIER or previous is None:
            return change.identifier
        newest = self._history.newest_of(change.commit_user, previous)
        return change.identifier if newest is None else max(change.identifier, newest[0])

    def _create(
        self, snapshot: Snapshot, live: LiveFiles, state: TableState, files: MetadataFiles, change: Change
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
            partial(self._check_not_altered, stored, state, change),
        )
        if stored.delta_manifest_list == snapshot.delta_manifest_list:
            self.reader.keep(state.followed_by(stored, live))
        else:  # an earlier call made it, with files of its own
            files.discard()
        return stored

    def _check_not_altered(self, stored: Snapshot, state: TableState, change: Change) -> None:
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
            if change.kind != COMPACT:
                self._check_columns(now, change.messages)
            self._check_stored(now, is_first=state.snapshot is None, rekeys=False)
            self._check_numbers(change, state, there)  # last: it is the only one whose rows may stay
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

    def _check_schema(self) -> None:
        """Refuse to commit to a table that was dropped, or dropped and made anew, since it was opened.

        Raises:
            ConflictError: nothing was changed.
        """
        schema = self.table.schema
        try:
            found = SchemaStore(self.table.paths, self.env).load(schema.id, fresh=True)
        except FormatError as error:
            raise ConflictError(
                f"cannot commit to '{self.table.name}': its schema {schema.id} is gone or damaged, so the table was "
                f"dropped or renamed since it was opened. Nothing was changed. ({error})",
                table=self.table.name,
            ) from error
        if found != schema:
            raise ConflictError(
                f"cannot commit to '{self.table.name}': {replaced(schema)} Nothing was changed. Open the table again.",
                table=self.table.name,
            )

    def _check_numbers(self, change: Change, state: TableState, newest_id: int) -> None:
        """Refuse rows without others in their partitions that come with the number of buckets of an older schema.

        Args:
            state: the one that the change follows.
            newest_id: of the newest schema.

        Raises:
            ConflictError: nothing was changed.
        """
        if not change.rescales:
            check_new_partitions(
                [entry for message in change.messages for entry in message.entries()],
                state.live if change.overwrites is None else EMPTY,  # an overwrite leaves nothing else
                lambda: options_since(self.table, self.env, self.table.schema.id, newest_id),
                table=self.table.name,
                snapshot=state.next_id - 1,
            )

    def _check_stored(self, now: TableSchema, *, is_first: bool, rekeys: bool) -> None:
        """Refuse rows that are stored as the table stored them when this write began, and no longer does.

        Args:
            now: the newest schema that is in force.
            is_first: they are the first rows, so that the table may have been altered as only empty tables may be.
            rekeys: they are to have the key of their own schema.

        Raises:
            ConflictError: nothing was changed.
        """
        schema, names = self.table.schema, {field.id: field.name for field in now.fields}
        if now.id == schema.id:
            return
        what = f"cannot commit to '{self.table.name}'"
        if _order_of(schema) != _order_of(now):
            raise ConflictError(
                f"{what}: the columns that say which row of a key is newer ('sequence.field', sequence groups) changed "
                "since this write began. Nothing was changed. Open the table again, and write the rows again.",
                table=self.table.name,
            )
        later = {field.name: names[field.id] for field in schema.fields if field.id in names}
        fact = "the primary key has"
        try:
            if is_first:
                check_written_options(renamed(self.table.options, later), now.options, what=what)
            if key_ids(schema) == key_ids(now) and not rekeys:
                return
        except InvalidInputError as error:
            fact = f"'{error.context['option']}' has"
        raise ConflictError(
            f"{what}: {fact} changed since this write began, and decides how rows are stored. Nothing was changed. "
            "Open the table again, and write the rows again.",
            table=self.table.name,
        )

    def _check_columns(self, now: TableSchema, messages: Sequence[CommitMessage]) -> None:
        """Refuse rows that the columns of the table cannot hold any more since the writer began.

        Readers turn values of the older schema into those of the newer one. This is right for rows that were there when
        the table was altered. Values of later rows would wrap, be rounded or be cut without a word.

        Raises:
            ConflictError: nothing was changed.
        """
        if now.id == self.table.schema.id or not any(message.added or message.changelog for message in messages):
            return
        fields = self.table.schema.user_fields
        for column, fact in lossy_columns(fields, now.user_fields):
            raise ConflictError(
                f"cannot commit to '{self.table.name}': since this write began with schema {self.table.schema.id}, "
                f"{fact} (schema {now.id}). Nothing was changed. Open the table again, and write the rows again.",
                table=self.table.name,
                column=column,
            )
        for way, inside in tightened(fields, now.user_fields):
            column = way[0].name
            known = len(way) == 1 and not inside
            for file in (file for message in messages for file in message.added):
                if not known or self._null_count(file, column) != 0:
                    raise ConflictError(
                        f"cannot commit to '{self.table.name}': column '{'.'.join(f.name for f in way)}' became NOT "
                        "NULL since this write began, and rows that were written may be null in it. Nothing was "
                        "changed. Open the table again, and write the rows again.",
                        table=self.table.name,
                        column=column,
                    )

    def _null_count(self, file: DataFile, column: str) -> int | None:
        """Return in how many rows of a new file a column is null, by its statistics; None: they do not say."""
        names = file.value_stats_columns or self.table.schema.names
        counts = file.value_stats.null_counts or ()
        return counts[names.index(column)] if column in names and len(counts) == len(names) else None

    def _check_logs(self, now: Options, change: Change) -> None:
        """Refuse rows that are not published, where the table began to publish changes since the writer began.

        A compaction is refused only if compactions publish: it would move rows that nobody publishes any more.

        Raises:
            ConflictError: nothing was changed.
        """
        options, producer = self.table.options, now.get(w.CHANGELOG_PRODUCER)
        if not self.table.keyed or producer in ("none", options.get(w.CHANGELOG_PRODUCER)):
            return
        if change.kind == COMPACT and not publishes_by_compaction(now):
            return
        if now.get(w.STREAM) not in (None, options.get(w.STREAM)):
            fact = "a stream of its changes was enabled since this write began"
        elif options.get(w.CHANGELOG_PRODUCER) == self.table.schema.options.get(w.CHANGELOG_PRODUCER):
            fact = f"'{w.CHANGELOG_PRODUCER.key}' was set to '{producer}' since this write began"
        else:
            return  # a producer of its own
        raise ConflictError(
            f"cannot commit to '{self.table.name}': {fact}, and the write has logged no changes. Nothing was changed. "
            "Write the rows again.",
            table=self.table.name,
        )

    def _index_after(
        self, change: Change, state: TableState, entries: Sequence[ManifestEntry]
    ) -> tuple[IndexEntry, ...] | None:
        """Return the index files once the change is made, None if they stay as they are.

        An overwrite takes the index files of a bucket with its data files.

        Raises:
            ConflictError: the change was planned on index files that are no longer live.
        """
        removed = [entry for message in change.messages for entry in message.index_removed]
        added = [entry for message in change.messages for entry in message.index_added]
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


def _order_of(schema: TableSchema) -> tuple[object, ...]:
    """Return what orders the versions of a key, columns by their ids: rows are folded by it, and by nothing else."""
    ids = {field.name: field.id for field in schema.fields}
    groups = {tuple(map(ids.get, ordering)) for ordering, _ in sequence_groups(schema.options)}
    fields = tuple(map(ids.get, schema.options.get(w.SEQUENCE_FIELD)))
    return fields, fields and schema.options.get(w.SEQUENCE_FIELD_SORT_ORDER), groups


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

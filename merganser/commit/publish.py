"""Publish: the one way in which a change becomes part of a table.

Steps of an attempt, from the newest state S(n):

1. Was it applied already, up to S(n)? (commit user, identifier) at or below the user's newest snapshot: done.
   The question is asked of the very state that step 4 follows, so a twin that commits in between is met there.
2. May it follow S(n)? Removals must be live and additions new, bucket numbers must agree, and deletion vectors be
   those that it was based on. An overwrite names what it removes anew from S(n), so it always fits. In strict mode
   nobody else may have disturbed the table.
3. Write the delta manifest and its list (once; attempts reuse them), merge old manifests when there are many,
   write the base list, and an index manifest when index files change. All durable, none visible: a crash leaves
   orphans. The schema must still be there: a table that was dropped meanwhile, and perhaps made anew, gets no
   snapshot of ours.
4. Create `snapshot-<n+1>`, which must not exist: the commit point. Whoever loses goes to 1.
5. Look whether the snapshot below is still there: if a rollback removed it, or ours took an id that had been used
   and had expired, take ours back and go to 1.
6. Move the hint. A crash before it costs readers one directory listing. From here on nothing is removed and
   nothing is raised: the commit stands.

Nobody waits for anybody: appends never conflict, they only retry the id.

Format: sections "commit algorithm", "commitUser and replay", "overwrite".
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import Final

import merganser
from merganser.codec.binary_row import deserialize, sort_key
from merganser.codec.stats import ColumnStats, SimpleStats, encode_stats
from merganser.commit import committers
from merganser.commit.compact_manifests import merge_span, merged_entries
from merganser.commit.conflict import (
    check_index,
    check_levels,
    check_removals,
    check_total_buckets,
    check_undisturbed,
)
from merganser.commit.message import CommitMessage
from merganser.errors import (
    AlreadyExistsError,
    CommitUnknownError,
    ConflictError,
    FormatError,
    MerganserError,
    SnapshotExistsError,
    StorageError,
    UnsupportedError,
)
from merganser.meta.commit_metrics import TOTALS, CommitMetrics
from merganser.meta.data_file import ADD, DELETE, ManifestEntry
from merganser.meta.index_manifest import IndexEntry, combined, write_index_manifest
from merganser.meta.live_files import LiveFiles
from merganser.meta.manifest import write_manifest
from merganser.meta.manifest_list import ManifestFile, write_manifest_list
from merganser.meta.refs import same_snapshot
from merganser.meta.schemas import SchemaStore
from merganser.meta.snapshot import APPEND, BATCH_IDENTIFIER, COMPACT, OVERWRITE, Snapshot
from merganser.meta.table_def import TableDef
from merganser.meta.table_state import MetaReader, TableState
from merganser.options import write as w
from merganser.storage.env import Env

_log = logging.getLogger(__name__)

_FOREIGN_MAX: Final = 100
"""So many commits of other engines in a row are looked through by a commit that itself has no identifier."""
_DOUBLINGS_MAX: Final = 20
"""A wait that was doubled so often is above any limit a table sets."""


@dataclass(frozen=True)
class Change:
    """What is to be committed.

    Attributes:
        messages: changes by bucket; their files are durable.
        kind: commit kind when nothing is removed.
        commit_user: who commits.
        identifier: which of the user's commits it is; BATCH_IDENTIFIER when it is never repeated.
        overwrites: the files an overwrite removes, chosen anew from each newest state; None for others.
        allow_empty: make a snapshot even of no change.
        uuid: what its snapshot is recognised by; None: a fresh one for every call.
        since: an earlier call with the same uuid, of unknown outcome, tried to create this snapshot.
        safe: the last snapshot that others may have made without a check (strict mode); negative or None: any.
        seconds: what was spent on its files, by phase; see `CommitMetrics`.
    """

    messages: Sequence[CommitMessage]
    commit_user: str
    identifier: int = BATCH_IDENTIFIER
    kind: str = APPEND
    overwrites: Callable[[LiveFiles], list[ManifestEntry]] | None = None
    allow_empty: bool = False
    uuid: str | None = None
    since: int | None = None
    safe: int | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Publisher:
    """Commits to one table."""

    table: TableDef
    env: Env

    @property
    def reader(self) -> MetaReader:
        """Its metadata."""
        return MetaReader(self.table.paths, self.env, self.table.name)

    def latest(self) -> TableState:
        """Return the newest state, which a change will follow.

        Raises:
            ConflictError: the table was dropped since it was opened, and perhaps made anew.
            FormatError: metadata is damaged or missing.
        """
        try:
            return self.reader.latest()
        except FormatError:
            self._check_schema()  # files of a table that is being dropped are missing, too
            raise

    def applied(self, commit_user: str, identifier: int) -> tuple[bool, Snapshot | None]:
        """Return whether a commit was applied already, and its snapshot if that is still kept.

        Identifiers of one user rise: one at or below the user's newest is applied, the format's rule.
        """
        return self._applied_by_identifier(commit_user, identifier, self.reader.snapshots.latest())

    def _applied_by_identifier(
        self, commit_user: str, identifier: int, latest: Snapshot | None
    ) -> tuple[bool, Snapshot | None]:
        if identifier == BATCH_IDENTIFIER or latest is None:
            return False, None
        newest = self._newest_of(commit_user, latest)
        if newest is None or newest[0] < identifier:
            return False, None
        found = None
        for snapshot in self.reader.snapshots.walk_back(newest[1]):
            if snapshot.commit_user == commit_user:
                if snapshot.commit_identifier == identifier:
                    found = snapshot  # keep walking: APPEND comes before the COMPACT of the same commit
                elif snapshot.commit_identifier < identifier:
                    break
        return True, found

    def _applied(self, change: Change, latest: Snapshot | None) -> tuple[bool, Snapshot | None]:
        """Return whether the change is part of `latest`, and its snapshot if that is still kept."""
        if change.kind == COMPACT:  # it has the user and identifier of the write that it follows
            done, snapshot = False, None
        else:
            done, snapshot = self._applied_by_identifier(change.commit_user, change.identifier, latest)
        if done or latest is None or change.since is None:
            return done, snapshot
        for found in self.reader.snapshots.walk_back(latest.id):
            if found.id < change.since:
                break
            if found.uuid == change.uuid:
                return True, found
        return False, None

    def commit(self, change: Change) -> Snapshot | None:
        """Make the change real.

        Returns:
            Its snapshot; None when there was nothing to commit, or when it was applied before by a snapshot
            that has expired since.

        Raises:
            ConflictError, InvalidInputError: it may not follow the newest state; nothing is visible, the new
                metadata files are gone, the data files are the caller's to remove.
            CommitUnknownError: the outcome is unknown; every file was kept.
        """
        written = _Written()
        options = self.table.options
        change = change if change.uuid is not None else replace(change, uuid=self.env.new_id())
        attempts = options.get(w.COMMIT_MAX_RETRIES) + 1
        timeout = options.get(w.COMMIT_TIMEOUT)
        started = self.env.now_ms()
        seconds = dict.fromkeys(("manifests", "publish"), 0.0)
        for attempt in range(attempts):
            begun = self.env.seconds()
            try:
                state = self.latest()
                done, snapshot = self._applied(change, state.snapshot)
                prepared = None if done else self._prepare(change, state, written)
            except MerganserError as error:
                self._discard(written)
                if isinstance(error, ConflictError):
                    TOTALS.add_conflict(self.table.name, change.kind)
                raise
            if prepared is None:
                self._discard(written)
                return snapshot
            ready = self.env.seconds()
            seconds["manifests"] += ready - begun
            try:
                stored = self._publish(*prepared, state.snapshot, written)
                seconds["publish"] += self.env.seconds() - ready
                return _measured(stored, prepared[0].metrics, attempt + 1, {**change.seconds, **seconds})
            except SnapshotExistsError:
                seconds["publish"] += self.env.seconds() - ready
                self._discard(written, keep_delta=change.overwrites is None)
            except UnsupportedError:  # the store cannot promise one winner, and made nothing
                self._discard(written)
                raise
            if timeout is not None and self.env.now_ms() - started >= timeout.total_seconds() * 1000:
                attempts = attempt + 1
                break
            if attempt + 1 < attempts:
                self._wait(attempt)
        self._discard(written)
        TOTALS.add_conflict(self.table.name, change.kind)
        raise ConflictError(
            f"cannot commit to '{self.table.name}': other writers took the next snapshot id {attempts} times in a row. "
            "Nothing of this commit is visible. Try again, or raise 'commit.max-retries' or 'commit.timeout'.",
            table=self.table.name,
        )

    def _prepare(self, change: Change, state: TableState, written: _Written) -> tuple[Snapshot, LiveFiles] | None:
        """Write the metadata of the snapshot that follows `state`; return it and its live files, None of no change."""
        entries = [entry for message in change.messages for entry in message.entries()]
        reindexes = any(message.index_added or message.index_removed for message in change.messages)
        previous = state.snapshot
        if previous is not None and change.safe is not None and change.safe >= 0:
            since = chain([previous], self.reader.snapshots.walk_back(previous.id - 1))
            check_undisturbed(
                since, self.reader.delta, safe=change.safe, commit_user=change.commit_user, table=self.table.name
            )
        if change.overwrites is not None:
            entries = change.overwrites(state.live) + entries
        else:
            newest = previous.id if previous else 0
            check_removals(entries, state.live, table=self.table.name, snapshot=newest)
            check_levels(entries, state.live, self.table.key_types, table=self.table.name, snapshot=newest)
            check_total_buckets(entries, state.live, table=self.table.name, snapshot=newest)
        if not entries and not reindexes and not change.allow_empty:
            return None
        live = self._live_after(state, entries)
        index = self._index_after(change, state, entries)
        if not written.delta_name:
            written.run = self.env.new_id()
        base_manifests = self._base_manifests(state, written)
        writes: list[Callable[[], None]] = [self._check_schema]
        if not written.delta_name:
            self._write_delta(entries, written, writes)
        base = self._plan_list(base_manifests, written, writes)
        index_manifest = previous.index_manifest if previous else None
        if index is not None:
            index_manifest = self._plan_index(index, written, writes)
        self.env.map(lambda write: write(), writes)
        added = sum(e.file.row_count if e.kind == ADD else -e.file.row_count for e in entries)
        removes = any(entry.kind == DELETE for entry in entries)
        schemas = SchemaStore(self.table.paths, self.env)
        snapshot = Snapshot(
            id=state.next_id,
            uuid=change.uuid,
            schema_id=schemas.latest_id(max(self.table.schema.id, previous.schema_id if previous else 0)),
            base_manifest_list=base[0],
            base_manifest_list_size=base[1],
            delta_manifest_list=written.delta_name,
            delta_manifest_list_size=written.delta_size,
            commit_user=change.commit_user,
            writer_version=f"{committers.WRITER}{merganser.__version__}",
            commit_identifier=self._identifier(change, previous),
            commit_kind=OVERWRITE
            if change.overwrites is not None or ((removes or reindexes) and change.kind == APPEND)
            else change.kind,
            time_millis=self.env.now_ms(),
            total_record_count=_rows_before(state) + added,
            delta_record_count=added,
            next_row_id=(previous.next_row_id or 0) if previous else 0,
            index_manifest=index_manifest,
            watermark=previous.watermark if previous else None,
            statistics=previous.statistics if previous else None,
            properties=previous.properties if previous else None,
        )
        snapshot = replace(
            snapshot, properties=committers.properties(snapshot.properties, self._committers_after(snapshot, previous))
        )
        if previous and snapshot.statistics and previous.schema_id != snapshot.schema_id:
            snapshot = replace(snapshot, statistics=None)
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
        """Return the identifier to store; those of a user never fall, or a later commit would count as not applied.

        A compaction that follows a write may come after the next write, made by whoever took over meanwhile.
        """
        if change.kind != COMPACT or change.identifier == BATCH_IDENTIFIER or previous is None:
            return change.identifier
        newest = self._newest_of(change.commit_user, previous)
        return change.identifier if newest is None else max(change.identifier, newest[0])

    def _publish(self, snapshot: Snapshot, live: LiveFiles, before: Snapshot | None, written: _Written) -> Snapshot:
        """Create the snapshot. Whatever leaves here but SnapshotExistsError and UnsupportedError may be committed."""
        store = self.reader.snapshots
        stored = store.create(snapshot)
        if before is None or not self._is_there(before):
            if before is not None:
                self._check_not_rolled_back(stored, before)
            self._check_not_overtaken(stored, live)
        store.write_latest_hint(stored.id)
        if stored.delta_manifest_list == snapshot.delta_manifest_list:
            self.reader.keep(TableState(stored, live))
        else:  # an earlier call made it, with files of its own
            self._discard(written)
        return stored

    def _is_there(self, before: Snapshot) -> bool:
        with contextlib.suppress(StorageError, FormatError):
            found = self.reader.snapshots.get(before.id)
            return found is not None and same_snapshot(found, before)
        return False

    def _check_not_overtaken(self, stored: Snapshot, live: LiveFiles) -> None:
        """Take a snapshot back whose id had been used and had expired before it was created: nobody follows it.

        Asked when the snapshot below has expired. Expiry goes from the oldest on, so that while ours is there a
        snapshot that follows it is there, or there is none above at all. Decision 0016.

        Raises:
            SnapshotExistsError: nothing of the commit is visible; it may follow the newest snapshot.
            CommitUnknownError: it has expired, too, so nobody can tell.
        """
        store = self.reader.snapshots
        with self._known_of(stored):
            if not any(number > stored.id for number in store.ids()):
                return
            follower = store.get(stored.id + 1)
            if follower is not None and self._follows(follower, live):
                return
            found = store.get(stored.id)
            if follower is None and (found is None or found.uuid != stored.uuid):
                raise self._unknown(
                    stored,
                    "snapshots up to it have expired meanwhile. Raise 'snapshot.time-retained', so that no writer is "
                    "slower than expiry.",
                )
            store.delete(stored.id)
            raise SnapshotExistsError(
                f"snapshot {stored.id} of '{self.table.name}' was created by another writer, and has expired. "
                "Nothing of this commit is visible.",
                table=self.table.name,
                snapshot=stored.id,
            )

    def _follows(self, follower: Snapshot, live: LiveFiles) -> bool:
        """Return whether a snapshot is what its commit made of these live files."""
        state = self.reader.state(follower)
        try:
            expected = live.apply(self.reader.delta(follower), source=f"snapshot {follower.id}")
        except FormatError:
            return False
        return {entry.identity for entry in state.live} == {entry.identity for entry in expected}

    def _check_not_rolled_back(self, stored: Snapshot, before: Snapshot) -> None:
        """Take a snapshot back that was put on top of one that a rollback had removed: it would bring that back.

        A rollback removes the newest first and looks again at the end. So of a snapshot that came before that look it
        is the rollback's to remove, and one that came after it finds its predecessor gone here. Decision 0015.

        Raises:
            SnapshotExistsError: nothing of the commit is visible; it may follow what the table was rolled back to.
            CommitUnknownError: it could not be taken back, or others committed on top of it.
        """
        store = self.reader.snapshots
        with self._known_of(stored):
            if not store.rolled_back(before):
                return
            found = store.get(stored.id)
            if found is not None and found.uuid == stored.uuid:
                store.delete(stored.id)
                if any(number > stored.id for number in store.ids()):  # made of our files, before ours went
                    raise self._unknown(
                        stored, "the table was rolled back, and others committed on top. Repeat the rollback first."
                    )
            raise SnapshotExistsError(
                f"snapshot {stored.id} of '{self.table.name}' was taken back, since the table was rolled back "
                "meanwhile. Nothing of this commit is visible.",
                table=self.table.name,
                snapshot=stored.id,
            )

    @contextlib.contextmanager
    def _known_of(self, stored: Snapshot) -> Iterator[None]:
        """Say that nobody knows whether a snapshot stands, where the store fails while we look or take it back."""
        try:
            yield
        except (StorageError, FormatError) as error:
            raise self._unknown(stored, f"what it follows could not be found, and then: {error}") from error

    def _unknown(self, stored: Snapshot, why: str) -> CommitUnknownError:
        return CommitUnknownError(
            f"cannot tell whether snapshot {stored.id} of '{self.table.name}' was committed: {why} Its files were "
            f"kept. Repeat the write with commit user '{stored.commit_user}' and identifier "
            f"{stored.commit_identifier}; it will not be applied twice.",
            table=self.table.name,
            snapshot=stored.id,
            uuid=stored.uuid,
        )

    def _live_after(self, state: TableState, entries: Sequence[ManifestEntry]) -> LiveFiles:
        """Return the live files once the change is made.

        Raises:
            ConflictError: it adds files that are there already; nothing was changed.
        """
        try:
            return state.live.apply(entries, source=f"snapshot {state.next_id} of '{self.table.name}'")
        except FormatError as error:
            raise ConflictError(
                f"cannot commit to '{self.table.name}': its files are part of snapshot {state.next_id - 1} "
                "already, or removed "
                f"twice (first: '{error.context.get('file')}'). Nothing was changed. These rows are committed; do "
                "not repeat them.",
                table=self.table.name,
                file=error.context.get("file"),
            ) from error

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
                f"cannot commit to '{self.table.name}': its schema {schema.id} is gone or damaged, so the table "
                "was dropped or "
                f"renamed since it was opened. Nothing was changed. ({error})",
                table=self.table.name,
            ) from error
        if found != schema:
            raise ConflictError(
                f"cannot commit to '{self.table.name}': the table was dropped and made anew since it was opened, "
                "so schema "
                f"{schema.id} is another one now. Nothing was changed. Open the table again.",
                table=self.table.name,
            )

    def _index_after(
        self, change: Change, state: TableState, entries: Sequence[ManifestEntry]
    ) -> tuple[IndexEntry, ...] | None:
        """Return the index files once the change is made, None if they stay as they are.

        An overwrite takes the index files of a bucket with its data files.

        Raises:
            ConflictError: the change is based on other deletion vectors than there are.
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
            removed += [entry for entry in before if (entry.partition, entry.bucket) in emptied]
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

    def _plan_index(
        self, index: tuple[IndexEntry, ...], written: _Written, writes: list[Callable[[], None]]
    ) -> str | None:
        """Return the name of the new index manifest; None when no index file is left."""
        if not index:
            return None
        name = f"index-manifest-{self.env.new_id()}-0"
        written.lists.append(name)
        data = write_index_manifest(index, compression=self.table.options.get(w.MANIFEST_COMPRESSION))
        writes.append(lambda: self._create(name, data))
        self.reader.remember(name, index)
        return name

    def _base_manifests(self, state: TableState, written: _Written) -> list[ManifestFile]:
        """Return the manifests of the new base list: those of the newest snapshot, some merged."""
        manifests = self.reader.manifests(state.snapshot)
        options = self.table.options
        target = options.get(w.MANIFEST_TARGET_FILE_SIZE)
        span = merge_span(
            manifests,
            target_bytes=target,
            full_threshold_bytes=options.get(w.MANIFEST_FULL_COMPACTION_SIZE),
            merge_min_count=options.get(w.MANIFEST_MERGE_MIN_COUNT),
        )
        if span is None:
            return manifests
        chosen = manifests[span[0] : span[1]]
        before = sum(m.added + m.deleted for m in chosen)
        entries = merged_entries(entry for manifest in chosen for entry in self.reader.entries(manifest))
        per_file = max(1, target * before // max(1, sum(m.size for m in chosen)))
        merged = [
            self._write_manifest(entries[at : at + per_file], written.merged) for at in range(0, len(entries), per_file)
        ]
        return manifests[: span[0]] + merged + manifests[span[1] :]

    def _write_delta(self, entries: list[ManifestEntry], written: _Written, writes: list[Callable[[], None]]) -> None:
        compression = self.table.options.get(w.MANIFEST_COMPRESSION)
        manifests = []
        if entries:
            name, data, manifest = self._encode_manifest(entries)
            written.manifests.append(name)
            writes.append(lambda: self._create(name, data))
            manifests.append(manifest)
        list_name = f"manifest-list-{written.run}-0"
        list_data = write_manifest_list(manifests, compression=compression)
        writes.append(lambda: self._create(list_name, list_data))
        self.reader.remember(list_name, tuple(manifests))
        written.delta_name, written.delta_size = list_name, len(list_data)

    def _plan_list(
        self, manifests: list[ManifestFile], written: _Written, writes: list[Callable[[], None]]
    ) -> tuple[str, int]:
        written.count += 1
        name = f"manifest-list-{written.run}-{written.count}"
        written.lists.append(name)
        data = write_manifest_list(manifests, compression=self.table.options.get(w.MANIFEST_COMPRESSION))
        writes.append(lambda: self._create(name, data))
        self.reader.remember(name, tuple(manifests))
        return name, len(data)

    def _write_manifest(self, entries: list[ManifestEntry], names: list[str]) -> ManifestFile:
        name, data, manifest = self._encode_manifest(entries)
        names.append(name)
        self._create(name, data)
        return manifest

    def _encode_manifest(self, entries: list[ManifestEntry]) -> tuple[str, bytes, ManifestFile]:
        name = f"manifest-{self.env.new_id()}-0"
        data = write_manifest(entries, compression=self.table.options.get(w.MANIFEST_COMPRESSION))
        self.reader.remember(name, tuple(entries))
        added = sum(1 for entry in entries if entry.kind == ADD)
        manifest = ManifestFile(
            name=name,
            size=len(data),
            added=added,
            deleted=len(entries) - added,
            partition_stats=self._partition_stats(entries),
            schema_id=self.table.schema.id,
            min_bucket=min(e.bucket for e in entries),
            max_bucket=max(e.bucket for e in entries),
            min_level=min(e.file.level for e in entries),
            max_level=max(e.file.level for e in entries),
        )
        return name, data, manifest

    def _partition_stats(self, entries: Sequence[ManifestEntry]) -> SimpleStats:
        kinds = self.table.partition_types
        counts: dict[bytes, int] = {}
        for entry in entries:
            counts[entry.partition] = counts.get(entry.partition, 0) + 1
        rows = [(deserialize(partition, kinds), count) for partition, count in counts.items()]
        columns = []
        for i, kind in enumerate(kinds):
            values = [values[i] for values, _ in rows if values[i] is not None]
            nulls = sum(count for values, count in rows if values[i] is None)
            low = min(values, key=lambda v: sort_key((v,), (kind,)), default=None)
            high = max(values, key=lambda v: sort_key((v,), (kind,)), default=None)
            columns.append(ColumnStats(low, high, nulls))
        return encode_stats(columns, kinds)

    def _create(self, name: str, data: bytes) -> None:
        # The name is ours alone, so what is there already was sent twice by the storage below.
        with contextlib.suppress(AlreadyExistsError):
            self.env.storage.create(self.table.paths.manifest(name), data)

    def _newest_of(self, commit_user: str, latest: Snapshot) -> tuple[int, int] | None:
        """Return the newest identifier of a user and the newest snapshot of the user, which may have expired."""
        known = self._committers(latest)
        if commit_user in known or len(known) < committers.COMMITTERS_MAX:
            return known.get(commit_user)
        for snapshot in chain([latest], self.reader.snapshots.walk_back(latest.id - 1)):  # it may have been left out
            # A batch commit under the same name says nothing of the identifiers that rise.
            if snapshot.commit_user == commit_user and snapshot.commit_identifier != BATCH_IDENTIFIER:
                return snapshot.commit_identifier, snapshot.id
        return None

    def _committers(self, latest: Snapshot) -> committers.Committers:
        """Return who has committed up to a snapshot; remembers what it has seen, so that a writer looks once."""
        key = ("committers", self.table.paths.metadata_root)
        seen: tuple[Snapshot, committers.Committers] | None = self.env.cache.get(key)
        since: list[Snapshot] = []
        known: committers.Committers = {}
        for snapshot in chain([latest], self.reader.snapshots.walk_back(latest.id - 1)):
            carried = committers.carried(snapshot)
            if carried is not None:
                known = carried
                break
            if seen is not None and snapshot == seen[0]:  # the same chain from here down
                known = seen[1]
                break
            since.append(snapshot)
        known = committers.followed_by(known, reversed(since))
        self.env.cache.put(key, (latest, known), 1000)
        return known

    def _committers_after(self, snapshot: Snapshot, previous: Snapshot | None) -> committers.Committers | None:
        """Return what a new snapshot carries of who has committed; None: nobody did with an identifier.

        A commit without an identifier looks only as far as other engines have committed, and not for long: what they
        drop is on the chain for as long as they keep it.
        """
        if snapshot.commit_identifier != BATCH_IDENTIFIER:
            known = {} if previous is None else self._committers(previous)
            return committers.after(known, snapshot.commit_user, snapshot.commit_identifier, snapshot.id)
        if previous is None:
            return None
        carried = committers.carried(previous)
        if carried is not None or committers.is_ours(previous):
            return carried
        others = list(islice(self.reader.snapshots.walk_back(previous.id), _FOREIGN_MAX))
        at = next((i for i, one in enumerate(others) if committers.is_ours(one)), len(others))
        if at == _FOREIGN_MAX:
            return None
        below = committers.carried(others[at]) if at < len(others) else None
        return committers.followed_by(below or {}, reversed(others[:at])) or None

    def _wait(self, attempt: int) -> None:
        options = self.table.options
        wait = min(
            options.get(w.COMMIT_MIN_RETRY_WAIT) * 2 ** min(attempt, _DOUBLINGS_MAX),
            options.get(w.COMMIT_MAX_RETRY_WAIT),
        )
        self.env.sleep_ms(wait.total_seconds() * 1000 * (1 + 0.2 * self.env.random.random()))

    def _discard(self, written: _Written, *, keep_delta: bool = False) -> None:
        """Remove metadata files of an attempt that is certainly not visible. Best effort: else they are orphans."""
        names = written.lists + written.merged
        written.lists, written.merged = [], []
        if not keep_delta:
            names += written.manifests + ([written.delta_name] if written.delta_name else [])
            written.manifests, written.delta_name = [], ""
        for name in names:
            self.env.cache.drop(self.table.paths.manifest(name))
        with contextlib.suppress(MerganserError):
            self.env.storage.delete([self.table.paths.manifest(name) for name in names])


def _measured(stored: Snapshot, metrics: CommitMetrics | None, attempts: int, seconds: Mapping[str, float]) -> Snapshot:
    """Return a snapshot that was just made with what it cost; counts and logs that."""
    assert metrics is not None
    metrics = replace(metrics, attempts=attempts, seconds=seconds)
    TOTALS.add(metrics)
    _log.info("%s", metrics, extra={"merganser": metrics})
    return replace(stored, metrics=metrics)


def _rows_before(state: TableState) -> int:
    """Return the physical rows of a state; some older writers do not say, so they are counted."""
    if state.snapshot is None:
        return 0
    known = state.snapshot.total_record_count
    return sum(entry.file.row_count for entry in state.live) if known is None else known


class _Written:
    """The metadata files that the attempts of one commit have written so far."""

    def __init__(self) -> None:
        self.run = ""
        self.count = 0
        self.delta_name = ""
        self.delta_size = 0
        self.manifests: list[str] = []
        self.lists: list[str] = []
        self.merged: list[str] = []

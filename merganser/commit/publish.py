"""Publish: the one way in which a change becomes part of a table.

Steps of an attempt, from the newest state S(n):

1. Was it applied already, up to S(n)? (commit user, identifier) at or below the user's newest snapshot: done.
   The question is asked of the very state that step 4 follows, so a twin that commits in between is met there.
2. May it follow S(n)? Removals must be live and additions new, bucket numbers must agree. An overwrite names
   what it removes anew from S(n), so it always fits. In strict mode nobody else may have disturbed the table.
3. Write the delta manifest and its list (once; attempts reuse them), merge old manifests when there are many,
   write the base list. All durable, none visible: a crash leaves orphans. The schema must still be there: a
   table that was dropped meanwhile, and perhaps made anew, gets no snapshot of ours.
4. Create `snapshot-<n+1>`, which must not exist: the commit point. Whoever loses goes to 1.
5. Move the hint. A crash before it costs readers one directory listing. From 4 on nothing is removed and
   nothing is raised: the commit stands.

Nobody waits for anybody: appends never conflict, they only retry the id.

Format: sections "commit algorithm", "commitUser and replay", "overwrite".
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

import merganser
from merganser.codec.binary_row import deserialize, sort_key
from merganser.codec.stats import ColumnStats, SimpleStats, encode_stats
from merganser.commit.compact_manifests import merge_span, merged_entries
from merganser.commit.conflict import check_levels, check_removals, check_total_buckets, check_undisturbed
from merganser.commit.message import CommitMessage
from merganser.errors import (
    AlreadyExistsError,
    ConflictError,
    FormatError,
    MerganserError,
    SnapshotExistsError,
    UnsupportedError,
)
from merganser.meta.data_file import ADD, DELETE, ManifestEntry
from merganser.meta.live_files import LiveFiles
from merganser.meta.manifest import write_manifest
from merganser.meta.manifest_list import ManifestFile, write_manifest_list
from merganser.meta.schemas import SchemaStore
from merganser.meta.snapshot import APPEND, BATCH_IDENTIFIER, COMPACT, OVERWRITE, Snapshot
from merganser.meta.table_def import TableDef
from merganser.meta.table_state import MetaReader, TableState
from merganser.options import write as w
from merganser.storage.env import Env

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
        if newest is None or newest.commit_identifier < identifier:
            return False, None
        found = None
        for snapshot in self.reader.snapshots.walk_back(newest.id):
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
        for attempt in range(attempts):
            try:
                state = self.latest()
                done, snapshot = self._applied(change, state.snapshot)
                prepared = None if done else self._prepare(change, state, written)
            except MerganserError:
                self._discard(written)
                raise
            if prepared is None:
                self._discard(written)
                return snapshot
            try:
                return self._publish(*prepared, written)
            except SnapshotExistsError:
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
        raise ConflictError(
            f"cannot commit to '{self.table.name}': other writers took the next snapshot id {attempts} times in a row. "
            "Nothing of this commit is visible. Try again, or raise 'commit.max-retries' or 'commit.timeout'.",
            table=self.table.name,
        )

    def _prepare(self, change: Change, state: TableState, written: _Written) -> tuple[Snapshot, LiveFiles] | None:
        """Write the metadata of the snapshot that follows `state`; return it and its live files, None of no change."""
        entries = [entry for message in change.messages for entry in message.entries()]
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
        if not entries and not change.allow_empty:
            return None
        live = self._live_after(state, entries)
        if not written.delta_name:
            written.run = self.env.new_id()
        base_manifests = self._base_manifests(state, written)
        writes: list[Callable[[], None]] = [self._check_schema]
        if not written.delta_name:
            self._write_delta(entries, written, writes)
        base = self._plan_list(base_manifests, written, writes)
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
            writer_version=f"merganser-{merganser.__version__}",
            commit_identifier=self._identifier(change, previous),
            commit_kind=OVERWRITE
            if change.overwrites is not None or (removes and change.kind == APPEND)
            else change.kind,
            time_millis=self.env.now_ms(),
            total_record_count=_rows_before(state) + added,
            delta_record_count=added,
            next_row_id=(previous.next_row_id or 0) if previous else 0,
            index_manifest=previous.index_manifest if previous else None,
            watermark=previous.watermark if previous else None,
            statistics=previous.statistics if previous else None,
            properties=previous.properties if previous else None,
        )
        if previous and snapshot.statistics and previous.schema_id != snapshot.schema_id:
            snapshot = replace(snapshot, statistics=None)
        return snapshot, live

    def _identifier(self, change: Change, previous: Snapshot | None) -> int:
        """Return the identifier to store; those of a user never fall, or a later commit would count as not applied.

        A compaction that follows a write may come after the next write, made by whoever took over meanwhile.
        """
        if change.kind != COMPACT or change.identifier == BATCH_IDENTIFIER or previous is None:
            return change.identifier
        newest = self._newest_of(change.commit_user, previous)
        return change.identifier if newest is None else max(change.identifier, newest.commit_identifier)

    def _publish(self, snapshot: Snapshot, live: LiveFiles, written: _Written) -> Snapshot:
        """Create the snapshot. Whatever leaves here but SnapshotExistsError and UnsupportedError may be committed."""
        store = self.reader.snapshots
        stored = store.create(snapshot)
        store.write_latest_hint(stored.id)
        if stored.delta_manifest_list == snapshot.delta_manifest_list:
            self.reader.keep(TableState(stored, live))
        else:  # an earlier call made it, with files of its own
            self._discard(written)
        return stored

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
        self.reader.remember(list_name, tuple(manifests), len(list_data))
        written.delta_name, written.delta_size = list_name, len(list_data)

    def _plan_list(
        self, manifests: list[ManifestFile], written: _Written, writes: list[Callable[[], None]]
    ) -> tuple[str, int]:
        written.count += 1
        name = f"manifest-list-{written.run}-{written.count}"
        written.lists.append(name)
        data = write_manifest_list(manifests, compression=self.table.options.get(w.MANIFEST_COMPRESSION))
        writes.append(lambda: self._create(name, data))
        self.reader.remember(name, tuple(manifests), len(data))
        return name, len(data)

    def _write_manifest(self, entries: list[ManifestEntry], names: list[str]) -> ManifestFile:
        name, data, manifest = self._encode_manifest(entries)
        names.append(name)
        self._create(name, data)
        return manifest

    def _encode_manifest(self, entries: list[ManifestEntry]) -> tuple[str, bytes, ManifestFile]:
        name = f"manifest-{self.env.new_id()}-0"
        data = write_manifest(entries, compression=self.table.options.get(w.MANIFEST_COMPRESSION))
        self.reader.remember(name, tuple(entries), 8 * len(data))
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

    def _newest_of(self, commit_user: str, latest: Snapshot) -> Snapshot | None:
        """Return the newest snapshot of a user; remembers the chain it has seen, so that a writer looks once."""
        key = ("newest-of", self.table.paths.metadata_root, commit_user)
        seen: tuple[Snapshot, Snapshot | None] | None = self.env.cache.get(key)
        found: Snapshot | None = None
        for snapshot in chain([latest], self.reader.snapshots.walk_back(latest.id - 1)):
            if seen is not None and snapshot == seen[0]:  # the same chain from here down
                found = seen[1]
                break
            # A batch commit under the same name says nothing of the identifiers that rise.
            if snapshot.commit_user == commit_user and snapshot.commit_identifier != BATCH_IDENTIFIER:
                found = snapshot
                break
        self.env.cache.put(key, (latest, found), 1000)
        return found

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

"""The check of a table: derive every invariant anew from its files.

The check reads, line by line (the table itself, then each branch):

    schemas -> snapshots, tags, changelogs -> lists -> manifests -> replay -> files of every snapshot -> rows
                                                                       `-> files of the shard stream

The check derives the state of a snapshot from the state before it and its own commit, and compares the base list with
the state before. It does not read manifests again that both name. If manifests were merged, the old and the new ones
must add up to the same files. So the cost follows the commits, plus one read of every data file.

The check writes nothing and trusts no cache: it reads files anew. One finding hides no other: the check skips only the
parts that depend on an unreadable file. It may run beside writers and expiry: a file counts as missing only while a
snapshot that needs it exists.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field, replace
from functools import partial
from itertools import pairwise
from typing import Final

from merganser.codec.binary_row import deserialize, sort_key
from merganser.codec.stats import decode_stats
from merganser.errors import FormatError, MerganserError
from merganser.lsm.check import Finding, bucket_findings, total_findings
from merganser.meta.consumers import ConsumerStore
from merganser.meta.data_file import ADD, ManifestEntry
from merganser.meta.index_manifest import HASH, IndexEntry, read_index_manifest
from merganser.meta.key_change import key_ids
from merganser.meta.live_files import EMPTY, BucketId, LiveFiles
from merganser.meta.manifest import read_manifest
from merganser.meta.manifest_list import ManifestFile, read_manifest_list
from merganser.meta.refs import MAIN, BranchStore, TagStore
from merganser.meta.schemas import SchemaStore
from merganser.meta.shard_store import ShardStore
from merganser.meta.shard_stream import stream_of
from merganser.meta.snapshot import APPEND, BATCH_IDENTIFIER, Snapshot, snapshot_from_json
from merganser.meta.snapshots import SnapshotStore
from merganser.meta.table_def import TableDef
from merganser.meta.table_state import TableState
from merganser.options import write as w
from merganser.scan.rows import counted
from merganser.schema import types as t
from merganser.schema.nullability import Way, loosened, tightened
from merganser.storage.cache import Cache
from merganser.storage.env import Env
from merganser.storage.paths import join
from merganser.upkeep.check_files import HeldFiles, directory_of, facts
from merganser.upkeep.check_keys import key_in_two_places
from merganser.upkeep.findings import Findings, Holder
from merganser.upkeep.nulls import rows_with_null
from merganser.values import dataclass

_AHEAD: Final = 64
"""Snapshots whose metadata is read side by side."""

_HINT: Final = re.compile(rb"(?!0+$)[0-9]{1,19}")
_WRITTEN_MS: Final = 200
"""How long another engine may take to write a hint."""


def check_table(table: TableDef, env: Env, *, quick: bool = False) -> tuple[Finding, ...]:
    """Return what is wrong with a table; empty when it is sound.

    Args:
        quick: look at metadata, and whether files are there with their sizes; else read the rows of every file too.
    """
    findings = Findings()
    files = HeldFiles(env, findings)
    schemas: dict[tuple[str, int], TableDef] = {}
    title = f"checking {table.name}"
    with env.progress.work(f"{title}: metadata"):
        for branch in ("main", *(findings.tried(table.path, BranchStore(table.paths, env, table.name).names) or ())):
            line = _Line(replace(table, branch=branch), env, findings, files, inside=not quick)
            line.look()
            schemas |= line.schemas
    files.look(inside=not quick, schemas=schemas, title=title)
    return findings.standing(env)


@dataclass(frozen=True, slots=True)
class _Read:
    """A snapshot and its lists; None for what cannot be read."""

    snapshot: Snapshot
    holder: Holder
    base: tuple[ManifestFile, ...] | None
    delta: tuple[ManifestFile, ...] | None
    changelog: tuple[ManifestFile, ...] | None


@dataclass(frozen=True, slots=True)
class _State:
    """The live files after a snapshot, how many rows they have, and its index files."""

    read: _Read
    live: LiveFiles
    rows: int
    index: tuple[IndexEntry, ...]


@dataclass(slots=True)
class _Line:
    """The snapshots, tags and changelogs of the table itself or of a branch.

    Attributes:
        table: as it was opened, of this branch; with the newest schema of the branch, once the schemas were read.
        inside: look into files, too.
    """

    table: TableDef
    env: Env
    findings: Findings
    files: HeldFiles
    inside: bool
    schemas: dict[tuple[str, int], TableDef] = field(default_factory=dict)
    _cache: Cache = field(default_factory=Cache)
    _described: dict[str, ManifestFile] = field(default_factory=dict)
    _bad: set[str] = field(default_factory=set)
    _schema_ids: frozenset[int] = frozenset()

    def look(self) -> None:
        """Look at everything but the files with rows, which are only gathered."""
        table = self.table
        self._look_at_schemas()
        ids = SnapshotStore(table.paths, self.env, table.name).ids()
        for before, after in pairwise(ids):
            if after != before + 1:
                problem = f"snapshots {before + 1} to {after - 1} are missing between {before} and {after}."
                self.findings.note("gap", table.paths.snapshot(before + 1), problem)
        self._look_at_hints(ids)
        self._look_at_chain(ids)
        for path, snapshot in self._tags():
            self._look_at_one(path, snapshot)
        for path, snapshot in self._changelogs():
            self._look_at_changelog(path, snapshot)
        self._look_at_stream()
        consumers = ConsumerStore(table.paths, self.env, table.name)
        for path, name in self._named(table.paths.consumer_directory, "consumer-"):
            self.findings.tried(path, partial(consumers.get, name))

    def _look_at_schemas(self) -> None:
        store = SchemaStore(self.table.paths, Env(self.env.storage))
        self._schema_ids = frozenset(store.ids())
        for number in sorted(self._schema_ids):
            found = self.findings.tried(self.table.paths.schema(number), partial(store.load, number))
            if found is not None:
                self.schemas[self.table.branch, number] = self.table.with_schema(found)
        self.table = self.schemas.get((self.table.branch, max(self._schema_ids, default=-1)), self.table)

    def _with_key_of(self, snapshot: Snapshot) -> TableDef:
        """Return the table as it was at a snapshot, if its key was another one then; else with the newest schema."""
        there = self.schemas.get((self.table.branch, snapshot.schema_id), self.table)
        return self.table if key_ids(there.schema) == key_ids(self.table.schema) else there

    def _look_at_stream(self) -> None:
        """Look at the files that remember the shards of the stream of the table, if it keeps one."""
        found = self.schemas.get((self.table.branch, max(self._schema_ids, default=-1)))
        stream = None if found is None else stream_of(found.schema.options, self.table.branch)
        if found is None or stream is None:
            return
        store = ShardStore(found, Env(self.env.storage, self.env.clock), stream)
        with contextlib.suppress(MerganserError):  # snapshots that cannot be read are findings of their own
            looked = store.look(SnapshotStore(found.paths, self.env, found.name).latest())
            code = "shards" if looked.forgotten is None else "forgotten"
            for path, problem in looked.bad.items():
                self.findings.add(Finding(code, path, problem), frozenset([path]))
            if looked.forgotten is not None and not looked.bad:
                problem = f"no file says which shards there were when snapshot {looked.forgotten} was committed."
                self.findings.note(code, found.paths.stream(stream.id), problem)

    def _look_at_hints(self, ids: Sequence[int]) -> None:
        """A hint may lag or be missing. A latest hint after the newest snapshot names one that was lost."""
        paths = self.table.paths
        store = SnapshotStore(paths, self.env, self.table.name)
        lost = self.findings.tried(paths.latest_hint, lambda: store.lost(store.latest_id()))
        if lost is not None:
            there = "no snapshot is there" if lost.newest is None else f"the newest that is there is {lost.newest}"
            self.findings.note(
                "lost", paths.snapshot(lost.hint), f"it is not there, '{paths.latest_hint}' names it, and {there}."
            )
        self._hint(paths.latest_hint)
        earliest = self._hint(paths.earliest_hint)
        if earliest is not None and ids and earliest > ids[-1]:
            later = store.ids()  # commits go on while we look
            if later and earliest > later[-1]:
                problem = f"it names {earliest} as the oldest snapshot, and the newest is {later[-1]}."
                self.findings.note("hint", paths.earliest_hint, problem)

    def _hint(self, path: str) -> int | None:
        """Return the number in a hint; None, with a finding, if it holds none; None if it is not there."""
        for wait_ms in (0, _WRITTEN_MS):  # other engines write hints in place: a reader may see half of one
            if wait_ms:
                self.env.sleep_ms(wait_ms)
            try:
                text = self.env.storage.read(path)
            except MerganserError:
                return None
            if _HINT.fullmatch(text):
                return int(text)
        problem = f"it holds {text[:40]!r}, which is no number of a snapshot."
        self.findings.note("hint", path, problem)
        return None

    def _named(self, directory: str, prefix: str) -> list[tuple[str, str]]:
        """Return path and rest of the name of the files in a directory whose names begin with a prefix."""
        entries = self.findings.tried(directory, lambda: self.env.storage.list(directory)) or []
        names = sorted(e.name for e in entries if not e.is_directory and e.name.startswith(prefix))
        return [(join(directory, name), name.removeprefix(prefix)) for name in names]

    def _tags(self) -> Iterator[tuple[str, Snapshot]]:
        store = TagStore(self.table.paths, self.env, self.table.name)
        for path, name in self._named(self.table.paths.tag_directory, "tag-"):
            tag = self.findings.tried(path, partial(store.get, name))
            if tag is not None:
                yield path, tag.snapshot

    def _changelogs(self) -> Iterator[tuple[str, Snapshot]]:
        for path, _ in self._named(join(self.table.paths.metadata_root, "changelog"), "changelog-"):
            data = self.findings.tried(path, partial(self.env.storage.read, path))
            found = None if data is None else self.findings.tried(path, partial(snapshot_from_json, data, path))
            if found is not None:
                yield path, found

    # snapshots

    def _look_at_chain(self, ids: Sequence[int]) -> None:
        """Look at the snapshots, each as the successor of the one before it."""
        state: _State | None = None
        applied: Counter[tuple[str, int]] = Counter()
        for start in range(0, len(ids), _AHEAD):
            first = ids[0] if self.table.branch != MAIN else None
            for read in self.env.map(partial(self._numbered, copied=first), ids[start : start + _AHEAD]):
                if read is None:
                    state = None
                    continue
                self._look_at_identifier(read, applied)
                follows = state is not None and state.read.snapshot.id + 1 == read.snapshot.id
                state = self._state(read, state if follows else None)
        if state is not None:
            self._hold_all(state)
            table = self._with_key_of(state.read.snapshot)
            if table.indexes_keys:
                self._look_at_keys(table, state)
            if table.moves_keys and self.inside:
                self._look_at_places(table, state)
            if self.inside:
                self._look_at_nulls(state)

    def _look_at_one(self, path: str, snapshot: Snapshot) -> None:
        """Look at a snapshot that is kept by a name: its state, which is all that a tag keeps."""
        state = self._state(self._lists(snapshot.without_changelog(), path), None)
        if state is not None:
            self._hold_all(state)

    def _look_at_changelog(self, path: str, snapshot: Snapshot) -> None:
        """Look at a changelog that outlives its snapshot: its own list, or of a table without a producer the delta."""
        holder = Holder(snapshot.id, path)
        name, size = snapshot.changelog_manifest_list, snapshot.changelog_manifest_list_size
        if name is None:
            if snapshot.commit_kind != APPEND or self.table.options.get(w.CHANGELOG_PRODUCER) != "none":
                return  # it published nothing
            name, size = snapshot.delta_manifest_list, snapshot.delta_manifest_list_size
        manifests = self._list(name, size, holder)
        for entry in self._all(manifests or (), holder) or ():
            if entry.kind == ADD:
                self.files.hold(self.table, entry, holder, changelog=snapshot.changelog_manifest_list is not None)

    def _look_at_identifier(self, read: _Read, applied: Counter[tuple[str, int]]) -> None:
        snapshot = read.snapshot
        if snapshot.commit_identifier == BATCH_IDENTIFIER or snapshot.commit_kind != APPEND:
            return
        user = (snapshot.commit_user, snapshot.commit_identifier)
        applied[user] += 1
        if applied[user] == 2:
            problem = f"it applies commit {user[1]} of '{user[0]}', which an earlier snapshot applied."
            self.findings.note("twice", read.holder.path, problem, read.holder)

    def _numbered(self, number: int, *, copied: int | None) -> _Read | None:
        """Return a snapshot with its lists; None if it is damaged, or has expired while we look.

        Args:
            copied: the snapshot that a branch begins with; the changelog files go when the original expires.
        """
        path = self.table.paths.snapshot(number)
        store = SnapshotStore(self.table.paths, self.env, self.table.name)
        found = self.findings.tried(path, partial(store.get, number))
        if found is not None and number == copied and found.changelog_manifest_list is not None:
            listed = self.table.paths.manifest(found.changelog_manifest_list)
            if self.findings.tried(listed, partial(self.env.storage.exists, listed)) is False:
                found = found.without_changelog()
        return None if found is None else self._lists(found, path)

    def _lists(self, snapshot: Snapshot, path: str) -> _Read:
        """Return a snapshot with its lists, its own manifests read ahead."""
        holder = Holder(snapshot.id, path)
        if snapshot.schema_id not in self._schema_ids:
            problem = "it is not there, and a snapshot was committed with it."
            self.findings.note("missing", self.table.paths.schema(snapshot.schema_id), problem, holder)
        lists = (
            (snapshot.base_manifest_list, snapshot.base_manifest_list_size),
            (snapshot.delta_manifest_list, snapshot.delta_manifest_list_size),
            (snapshot.changelog_manifest_list, snapshot.changelog_manifest_list_size),
        )
        base, delta, changelog = (() if name is None else self._list(name, size, holder) for name, size in lists)
        self._all((*(delta or ()), *(changelog or ())), holder)
        return _Read(snapshot, holder, base, delta, changelog)

    # lists and manifests

    def _list(self, name: str, size: int | None, holder: Holder) -> tuple[ManifestFile, ...] | None:
        path = self.table.paths.manifest(name)
        data = self._bytes(path, size, holder)
        return None if data is None else self.findings.tried(path, lambda: read_manifest_list(data, path), holder)

    def _bytes(self, path: str, size: int | None, holder: Holder) -> bytes | None:
        data = self.findings.tried(path, lambda: self.env.storage.read(path), holder)
        if data is not None and size not in (None, len(data)):
            self.findings.note("damaged", path, f"it has {len(data)} bytes, and metadata says {size}.", holder)
            return None
        return data

    def _entries(self, manifest: ManifestFile, holder: Holder) -> tuple[ManifestEntry, ...] | None:
        """Return the entries of a manifest, which is held against its list when it is read; None if it is damaged."""
        path = self.table.paths.manifest(manifest.name)
        if manifest != self._described.setdefault(manifest.name, manifest):
            self.findings.note("count", path, "two lists describe it in different ways.", holder)
        if manifest.name in self._bad:
            return None
        known: tuple[ManifestEntry, ...] | None = self._cache.get(manifest.name)
        if known is not None:
            return known
        data = self._bytes(path, manifest.size, holder)
        found = None if data is None else self.findings.tried(path, lambda: read_manifest(data, path), holder)
        if data is None or found is None:
            self._bad.add(manifest.name)
            return None
        for problem in _manifest_problems(manifest, found, self.table.partition_types):
            self.findings.note("count", path, problem, holder)
        self._cache.put(manifest.name, found, 8 * len(data))
        return found

    def _all(self, manifests: Iterable[ManifestFile], holder: Holder) -> list[ManifestEntry] | None:
        """Return the entries of manifests, in order; None if one of them cannot be read."""
        parts = [self._entries(manifest, holder) for manifest in manifests]
        return None if any(part is None for part in parts) else [e for part in parts if part for e in part]

    def _index(self, read: _Read, before: _State | None) -> tuple[IndexEntry, ...]:
        name = read.snapshot.index_manifest
        if before is not None and before.read.snapshot.index_manifest == name:
            return before.index
        path = "" if name is None else self.table.paths.manifest(name)
        data = self._bytes(path, None, read.holder) if path else None
        found = (
            None if data is None else self.findings.tried(path, lambda: read_index_manifest(data, path), read.holder)
        )
        return found or ()

    # states

    def _state(self, read: _Read, before: _State | None) -> _State | None:
        """Return the state of a snapshot, held against the one before it; None where it is not known."""
        if read.base is None or read.delta is None:
            return None
        delta = self._all(read.delta, read.holder)
        if before is not None and not self._continues(before.read, read):
            before = None
        if before is not None:
            live, rows = before.live, before.rows
        else:
            base = self._all(read.base, read.holder)
            started = None if base is None else self._applied(EMPTY, base, read)
            if started is None:
                return None
            live, rows = started, sum(entry.file.row_count for entry in started)
        after = None if delta is None else self._applied(live, delta, read)
        if delta is None or after is None:
            return None
        change = sum(entry.file.row_count * (1 if entry.kind == ADD else -1) for entry in delta)
        state = _State(read, after, rows + change, self._index(read, before))
        if before is None:
            self._hold_all(state)
        self._hold_delta(before, read, delta)
        touched = after.buckets if before is None else {(e.partition, e.bucket) for e in delta}
        self._look_at_buckets(state, touched)
        self._look_at_counts(state, change)
        if before is None or before.index is not state.index or any(entry.kind != ADD for entry in delta):
            self._look_at_index(state)
        return state

    def _continues(self, before: _Read, read: _Read) -> bool:
        """Return whether the base list of a snapshot says what the snapshot before it left."""
        old = {m.name: m for m in (*(before.base or ()), *(before.delta or ()))}
        new = {m.name: m for m in read.base or ()}
        dropped = self._all((m for name, m in old.items() if name not in new), read.holder)
        made = self._all((m for name, m in new.items() if name not in old), read.holder)
        if dropped is None or made is None:
            return False
        lost, gained = _net(dropped), _net(made)
        if lost == gained:
            return True
        strange = sorted(
            {str(identity[3]) for identity in {*lost, *gained} if lost.get(identity) != gained.get(identity)}
        )
        self.findings.note(
            "replay",
            self.table.paths.manifest(read.snapshot.base_manifest_list),
            f"it does not say what snapshot {before.snapshot.id} left: {len(strange)} data files differ, the first "
            f"'{strange[0]}'.",
            read.holder,
        )
        return False

    def _applied(self, state: LiveFiles, entries: Sequence[ManifestEntry], read: _Read) -> LiveFiles | None:
        try:
            return state.apply(entries, source=f"snapshot {read.snapshot.id}")
        except FormatError as error:
            self.findings.note("replay", read.holder.path, str(error), read.holder)
            return None

    def _hold_all(self, state: _State) -> None:
        for entry in state.live:
            self.files.hold(self.table, entry, state.read.holder)
        self._hold_index(state)
        directories = {bucket: directory_of(self.table, bucket) for bucket in state.live.buckets}
        totals: dict[bytes, set[int]] = {}
        for (partition, _), bucket in state.live.buckets.items():
            totals.setdefault(partition, set()).update(entry.total_buckets for entry in bucket.entries)
        places = {bucket[0]: directory.rpartition("/")[0] for bucket, directory in directories.items() if directory}
        for found in total_findings(totals, places, state.read.snapshot.id):
            self.findings.add(found, frozenset([state.read.holder.path]))

    def _hold_delta(self, before: _State | None, read: _Read, delta: Sequence[ManifestEntry]) -> None:
        """Hold what a commit added for its snapshot, and what it removed for the snapshot before."""
        for entry in delta:
            if entry.kind == ADD:
                self.files.hold(self.table, entry, read.holder, writer=read.snapshot.writer_version)
            elif before is not None:
                self.files.hold(self.table, entry, before.read.holder)
        for entry in self._all(read.changelog or (), read.holder) or ():
            self.files.hold(self.table, entry, read.holder, writer=read.snapshot.writer_version, changelog=True)

    def _hold_index(self, state: _State) -> None:
        for entry in state.index:
            bucket = state.live.buckets.get((entry.partition, entry.bucket))
            rows = {} if bucket is None else {e.file.name: e.file.row_count for e in bucket.entries}
            self.files.hold_index(self.table, entry, rows, state.read.holder)

    def _look_at_index(self, state: _State) -> None:
        """Hold the index files of a snapshot, and see that what their vectors are of is live."""
        self._hold_index(state)
        for entry in state.index:
            bucket = state.live.buckets.get((entry.partition, entry.bucket))
            names = set() if bucket is None else {e.file.name for e in bucket.entries}
            strays = [vector.data_file for vector in entry.vectors if vector.data_file not in names]
            if strays:
                problem = f"it has a vector of '{strays[0]}', which is no live file of its bucket."
                path = self.table.paths.manifest(state.read.snapshot.index_manifest or "")
                self.findings.note("index", path, f"'{entry.name}': {problem}", state.read.holder)

    def _look_at_keys(self, table: TableDef, state: _State) -> None:
        """Look whether each bucket has an index of its keys, and no key is in the indexes of two buckets."""
        path = table.paths.manifest(state.read.snapshot.index_manifest or "")
        indexes: dict[bytes, list[IndexEntry]] = {}
        for entry in state.index:
            if entry.index_type == HASH:
                indexes.setdefault(entry.partition, []).append(entry)
        for partition, bucket in state.live.buckets:
            found = [entry.bucket for entry in indexes.get(partition, ())]
            if found.count(bucket) != 1 and directory_of(table, (partition, bucket)) is not None:
                problem = f"bucket {bucket} of '{table.partition_directory(partition)}' has {found.count(bucket)} "
                self.findings.note("index", path, f"{problem}indexes of its keys. It needs one.", state.read.holder)
        for entries in indexes.values() if self.inside else ():
            twice = self.files.key_in_two(table, entries)
            if twice:
                self.findings.note("index", path, twice, state.read.holder)

    def _look_at_places(self, table: TableDef, state: _State) -> None:
        """Look whether each key has rows in one bucket of the table alone."""
        found = None
        with contextlib.suppress(MerganserError):  # files that cannot be read are findings of their own
            found = key_in_two_places(table, Env(self.env.storage), TableState(state.read.snapshot, state.live))
        if found is not None:
            self.findings.note("placement", *found, state.read.holder)

    def _look_at_nulls(self, state: _State) -> None:
        """Look whether rows are null in columns that are NOT NULL by now."""
        newest = max(self._schema_ids, default=-1)
        now = self.schemas.get((self.table.branch, newest))
        if now is None:
            return
        fields = now.schema.user_fields
        others = [other.schema for (branch, _), other in self.schemas.items() if branch == self.table.branch]
        ways = [way for other in others for way, inside in tightened(other.user_fields, fields) if not inside]
        for ids in dict.fromkeys(tuple(part.id for part in way) for way in ways):
            way = _way(fields, ids)
            with contextlib.suppress(MerganserError):  # files that cannot be read are findings of their own
                count = rows_with_null(now, Env(self.env.storage), state.read.snapshot, way).count()
                if count:
                    path = ".".join(part.name for part in way)
                    problem = f"column '{path}' is NOT NULL, and null in {counted(count, 'row')} of the table."
                    self.findings.note("nulls", now.paths.schema(newest), problem, state.read.holder)

    def _look_at_buckets(self, state: _State, touched: Iterable[BucketId]) -> None:
        table, live, holder = self._with_key_of(state.read.snapshot), state.live, state.read.holder
        for bucket in touched:
            directory = directory_of(table, bucket) if bucket in live.buckets else None
            if directory is not None:
                entries = live.buckets[bucket].entries
                for found in bucket_findings(table, entries, directory=directory, snapshot=holder.snapshot):
                    self.findings.add(found, frozenset([holder.path]))

    def _look_at_counts(self, state: _State, change: int) -> None:
        read, snapshot = state.read, state.read.snapshot
        changelog = self._all(read.changelog or (), read.holder) if read.changelog is not None else None
        logged = None if changelog is None else sum(entry.file.row_count for entry in changelog)
        for what, said, found in (
            ("rows in all", snapshot.total_record_count, state.rows),
            ("rows more than before", snapshot.delta_record_count, change),
            ("changelog rows", snapshot.changelog_record_count, logged),
        ):
            if said is not None and found is not None and said != found:
                problem = f"it says that there are {said} {what}, and its files have {found}."
                self.findings.note("count", read.holder.path, problem)


def _net(entries: Iterable[ManifestEntry]) -> dict[tuple[object, ...], tuple[int, tuple[object, ...]]]:
    """Return what entries come to: by identity, +1 or -1 and the facts; pairs cancel."""
    net: dict[tuple[object, ...], tuple[int, tuple[object, ...]]] = {}
    for entry in entries:
        change = 1 if entry.kind == ADD else -1
        total = net.pop(entry.identity, (0, ()))[0] + change
        if total:
            net[entry.identity] = (total, facts(entry.file) if change > 0 else ())
    return net


def _manifest_problems(
    manifest: ManifestFile, entries: Sequence[ManifestEntry], kinds: Sequence[t.DataType]
) -> Iterator[str]:
    """Yield what a list says of a manifest that is not so. Bounds may be left out, and wider than need be."""
    added = sum(entry.kind == ADD for entry in entries)
    for what, said, found in (
        ("added", manifest.added, added),
        ("removed", manifest.deleted, len(entries) - added),
    ):
        if said != found:
            yield f"it has {found} {what} files, and its list says {said}."
    for what, low, high, values in (
        ("bucket", manifest.min_bucket, manifest.max_bucket, {entry.bucket for entry in entries}),
        ("level", manifest.min_level, manifest.max_level, {entry.file.level for entry in entries}),
    ):
        strays = sorted(v for v in values if (low is not None and v < low) or (high is not None and v > high))
        if strays:
            yield f"it has files of {what} {strays[0]}, and its list says {what}s {low} to {high}."
    yield from _partition_problems(manifest, {entry.partition for entry in entries}, kinds)


def _partition_problems(manifest: ManifestFile, partitions: set[bytes], kinds: Sequence[t.DataType]) -> Iterator[str]:
    try:
        rows = [deserialize(partition, kinds) for partition in partitions]
        bounds = decode_stats(manifest.partition_stats, [kind.with_nullable(True) for kind in kinds])
    except MerganserError as error:
        yield f"a partition of it cannot be read: {error}"
        return
    for i, (stats, kind) in enumerate(zip(bounds, kinds, strict=True)):
        if stats.min is None:
            continue
        lowest, highest = sort_key((stats.min,), (kind,)), sort_key((stats.max,), (kind,))
        strays = [v[i] for v in rows if v[i] is not None and not lowest <= sort_key((v[i],), (kind,)) <= highest]
        if strays:
            yield (
                f"it has files of the partition value {strays[0]!r:.40}, and its list says {stats.min!r:.40} to "
                f"{stats.max!r:.40}."
            )


def _way(fields: Sequence[t.Field], ids: Sequence[int]) -> Way:
    """Return a column, and the fields of ROWs inside it, by their ids; all of them take nulls."""
    way: list[t.Field] = []
    for number in ids:
        found = next(field for field in fields if field.id == number)
        way.append(replace(found, type=loosened(found.type)))
        fields = found.type.fields if isinstance(found.type, t.Row) else ()
    return tuple(way)

"""TableState: a snapshot with its live files, read once and carried forward.

What was decoded from manifests and lists is kept in the cache of `Env`, and so is the newest state; a later
snapshot is reached from it by the deltas in between. Ids may be used again after a rollback, so a kept state
counts only while its snapshot is still the one that was read (same delta list, whose name is random), and does not
say that another history goes on above it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Final, TypeVar

from merganser.errors import FormatError, MerganserError, NotFoundError
from merganser.meta.data_file import ManifestEntry
from merganser.meta.index_manifest import IndexEntry, read_index_manifest
from merganser.meta.live_files import EMPTY, LiveFiles
from merganser.meta.manifest import read_manifests
from merganser.meta.manifest_list import ManifestFile, read_manifest_list
from merganser.meta.schemas import SchemaStore
from merganser.meta.snapshot import Snapshot, same_snapshot
from merganser.meta.snapshots import Seen, SnapshotStore
from merganser.storage.cache import weight_of
from merganser.storage.env import Env
from merganser.storage.paths import TablePaths
from merganser.storage.retries import REREAD
from merganser.storage.tuning import no_collection
from merganser.values import dataclass

R = TypeVar("R")
T = TypeVar("T")
_Named = tuple[str, int | None]
"""A file in `manifest/`, and what those that name it say of its bytes, if they do."""

_STEPS_MAX = 100
"""Beyond so many snapshots a fresh read of the base list is cheaper than walking the deltas."""

_BELOW_MAX: Final = 32
_FRESH_S: Final = 1.0
_BATCH_BYTES: Final = 16 << 20
"""Manifests that are decoded together, so that of a very large table no more is in memory in two forms."""


@dataclass(frozen=True, slots=True)
class TableState:
    """One snapshot and its live files; no snapshot means an empty table.

    Attributes:
        below: those snapshots below it that led to it here, the newest first. They may have expired since.
    """

    snapshot: Snapshot | None
    live: LiveFiles
    below: tuple[Snapshot, ...] = ()

    @property
    def next_id(self) -> int:
        """The id of the snapshot after this one."""
        return 1 if self.snapshot is None else self.snapshot.id + 1

    def followed_by(self, snapshot: Snapshot, live: LiveFiles) -> TableState:
        """Return the state of the next snapshot."""
        below = () if self.snapshot is None else (self.snapshot, *self.below)
        return TableState(snapshot, live, below[:_BELOW_MAX])

    @property
    def weight(self) -> int:
        """About how many bytes of memory it takes."""
        return weight_of([entry for files in self.live.buckets.some(8) for entry in files.entries[:1]], len(self.live))


@dataclass(frozen=True, slots=True)
class KnownState:
    """The state that an operation stands on: the newest one when it was asked for.

    Attributes:
        at: when that was, in seconds of `Env.seconds`.
    """

    state: TableState
    at: float

    def is_fresh(self, env: Env) -> bool:
        """Return whether few others can have committed since.

        A commit that follows an older state costs its metadata files if others have. One that follows it in spite of a
        rollback, or an expiry, is found out after the create, as it is of a writer that was stopped for a while
        (`commit.standing`).
        """
        return env.seconds() - self.at <= _FRESH_S


@dataclass(frozen=True, slots=True)
class MetaReader:
    """Reads lists, manifests and states of one table, through the cache.

    What a state needs is asked of the store side by side, in as few rounds as one thing names the next: both lists,
    then all manifests. On an object store planning takes as long as these rounds.

    Attributes:
        at_once: how many manifests are read at a time; None leaves it to `Env`.
    """

    paths: TablePaths
    env: Env
    table_name: str
    at_once: int | None = None

    @property
    def snapshots(self) -> SnapshotStore:
        """Its snapshots."""
        return SnapshotStore(self.paths, self.env, self.table_name)

    def latest(self, *, to_commit: bool = False, meanwhile: Callable[[Snapshot], object] | None = None) -> TableState:
        """Return the newest state. Of one that expires while it is read, the next is taken.

        Args:
            to_commit: see `SnapshotStore.latest`.
            meanwhile: is called with a snapshot whose files are read, while they are: mostly that of the state. Its
                errors are raised when it is called again, by the caller.
        """
        if meanwhile is None:
            return self._seen(self._look(to_commit))

        def ask(snapshot: Snapshot) -> None:
            with contextlib.suppress(MerganserError):
                meanwhile(snapshot)

        seen, known = self._look(to_commit, ask), self.newest_known()
        if seen.newest is None or (known is not None and same_snapshot(known, seen.newest)):
            return self._seen(seen)
        return self.env.beside(partial(self._seen, seen), partial(ask, seen.newest))[0]

    def latest_beside(self, ask: Callable[[], R], *, to_commit: bool = False) -> tuple[TableState, R]:
        """Return the newest state, and what a request returns that goes out with the first one for it."""
        seen, found = self.env.beside(partial(self._look, to_commit), ask)
        return self._seen(seen), found

    def _look(self, to_commit: bool, ask: Callable[[Snapshot], None] | None = None) -> Seen:
        def meanwhile(snapshots: Sequence[Snapshot]) -> None:
            read = partial(self._read_ahead, snapshots, with_base=to_commit)
            self.env.beside(read, *([] if ask is None else [partial(ask, snapshots[-1])]))

        return self.snapshots.look(to_commit=to_commit, meanwhile=meanwhile)

    def _read_ahead(self, snapshots: Sequence[Snapshot], *, with_base: bool) -> None:
        """Read what `state` will ask for of snapshots that follow the known one; a commit needs a base list, too.

        What cannot be read is missed later, if it is needed.
        """

        def deltas() -> None:
            self._decoded([*chain.from_iterable(self.delta_lists(snapshots))])

        with contextlib.suppress(MerganserError):
            if with_base:
                self.env.beside(deltas, partial(self._lists, [_base(snapshots[-1])]))
            else:
                deltas()

    def _seen(self, seen: Seen) -> TableState:
        for attempt in REREAD.each():
            try:
                return self.state(seen.newest, seen)
            except FormatError:  # the snapshot may have expired
                before, seen = seen.newest, self.snapshots.look()
                if attempt.is_last or seen.newest is None or before is None or same_snapshot(before, seen.newest):
                    raise
        raise AssertionError("the last attempt returns or raises")

    def state(self, snapshot: Snapshot | None, seen: Seen | None = None) -> TableState:
        """Return the state of a snapshot.

        Args:
            seen: the look that found it.
        """
        if snapshot is None:
            return TableState(None, EMPTY)
        key = ("state", self.paths.metadata_root)
        known = self.env.cache.get(key)
        if isinstance(known, TableState) and known.snapshot is not None:
            if same_snapshot(known.snapshot, snapshot):
                return known if known.snapshot == snapshot else replace(known, snapshot=snapshot)
            carried = None
            with contextlib.suppress(FormatError):  # one before it is damaged or has expired: its own lists say all
                carried = self._carry(known, snapshot, seen)
            if carried is not None:
                self.keep(carried)
                return carried
        with no_collection():
            entries = self._entries_of(self.manifests(snapshot))
            state = TableState(snapshot, self._applied(EMPTY, snapshot, entries))
        if not isinstance(known, TableState) or known.snapshot is None or known.snapshot.id <= snapshot.id:
            self.keep(state)
        return state

    def newest_first(self, state: TableState) -> Iterator[Snapshot]:
        """Yield the snapshot of a state and those before it, downwards, until one is not there."""
        if state.snapshot is not None:
            yield from (state.snapshot, *state.below)
            yield from self.snapshots.walk_back(state.snapshot.id - len(state.below) - 1)

    def keep(self, state: TableState) -> None:
        """Remember the newest state, for the next reader or writer of this process."""
        self.env.cache.put(("state", self.paths.metadata_root), state, state.weight)

    def delta(self, snapshot: Snapshot) -> list[ManifestEntry]:
        """Return the entries of a snapshot's own commit."""
        return self._entries_of(self._lists([_delta(snapshot)])[0])

    def changelog(self, snapshot: Snapshot) -> list[ManifestEntry]:
        """Return the entries of a snapshot's changelog files."""
        return self._entries_of(self.changelog_lists([snapshot])[0])

    def manifests(self, snapshot: Snapshot | None) -> list[ManifestFile]:
        """Return all manifests of a snapshot: those of the base list, then those of the delta list."""
        if snapshot is None:
            return []
        return [*chain.from_iterable(self._lists([_base(snapshot), _delta(snapshot)]))]

    def base_lists(self, snapshots: Sequence[Snapshot]) -> list[tuple[ManifestFile, ...]]:
        """Return the manifests of everything before each snapshot's own commit."""
        return self._lists([_base(snapshot) for snapshot in snapshots])

    def delta_lists(self, snapshots: Sequence[Snapshot]) -> list[tuple[ManifestFile, ...]]:
        """Return the manifests of each snapshot's own commit."""
        return self._lists([_delta(snapshot) for snapshot in snapshots])

    def changelog_lists(self, snapshots: Sequence[Snapshot]) -> list[tuple[ManifestFile, ...]]:
        """Return the manifests of each snapshot's changelog files; none of a snapshot without changelog files."""
        named = [
            (snapshot.changelog_manifest_list, snapshot.changelog_manifest_list_size)
            for snapshot in snapshots
            if snapshot.changelog_manifest_list is not None
        ]
        found = iter(self._lists(named))
        return [next(found) if snapshot.changelog_manifest_list is not None else () for snapshot in snapshots]

    def entries_of_each(self, manifests: Sequence[ManifestFile]) -> list[tuple[ManifestEntry, ...]]:
        """Return the entries of each manifest.

        Raises:
            FormatError: one is missing, damaged, or not the one that its list describes.
        """
        return self._decoded(manifests)

    def newest_known(self) -> Snapshot | None:
        """Return the newest snapshot that this process has seen; asks the store nothing."""
        known = self.env.cache.get(("state", self.paths.metadata_root))
        return known.snapshot if isinstance(known, TableState) else None

    def index(self, snapshot: Snapshot | None) -> tuple[IndexEntry, ...]:
        """Return the index files of a snapshot."""
        if snapshot is None or snapshot.index_manifest is None:
            return ()
        [found] = self._cached([(snapshot.index_manifest, None)], _each(read_index_manifest))
        return found

    def entries(self, manifest: ManifestFile) -> tuple[ManifestEntry, ...]:
        """Return the entries of a manifest.

        Raises:
            FormatError: it is missing, damaged, or not the one that its list describes.
        """
        return self._decoded([manifest])[0]

    def remember(self, name: str, values: Sequence[object]) -> None:
        """Keep what was just written, so that it is not read back."""
        self.env.cache.put(self.paths.manifest(name), values, weight_of(values))

    def _carry(self, known: TableState, snapshot: Snapshot, seen: Seen | None) -> TableState | None:
        """Return the state of `snapshot` from an older one and the deltas between, or None when that is not sure.

        Raises:
            FormatError: metadata between the two is damaged or missing.
        """
        start = known.snapshot
        if start is None or not 0 < snapshot.id - start.id <= _STEPS_MAX:
            return None
        is_seen = seen is not None and seen.follows is not None and seen.follows.id == start.id
        kept = seen.follows if seen is not None and is_seen else self.snapshots.get(start.id)
        if kept is None or not same_snapshot(kept, start) or kept.is_apart:
            return None
        between: Sequence[Snapshot | None]
        if seen is not None and is_seen:
            between = seen.between
        else:
            between = self.env.fetch(self.snapshots.get, range(start.id + 1, snapshot.id))
        steps = [step for step in between if step is not None]
        if len(steps) < len(between) or any(step.is_apart for step in steps):
            return None
        steps.append(snapshot)
        deltas = self._lists([_delta(step) for step in steps])
        self._decoded([*chain.from_iterable(deltas)])  # all at once; below they come from the cache
        entries = [self._entries_of(manifests) for manifests in deltas]
        live = known.live
        for step, added in zip(steps, entries, strict=True):
            live = self._applied(live, step, added)
        if snapshot.id - start.id > 1 and not is_seen:
            # A rollback meanwhile would have given the steps to another history; it takes the newest away first.
            now = self.snapshots.get(snapshot.id)
            if now is None or not same_snapshot(now, snapshot):
                return None
        return TableState(snapshot, live, (*reversed(steps[:-1]), start, *known.below)[:_BELOW_MAX])

    def _applied(self, live: LiveFiles, snapshot: Snapshot, entries: Sequence[ManifestEntry]) -> LiveFiles:
        source = f"snapshot {snapshot.id} of '{self.table_name}'"
        return live.apply(entries, source=source, path=self.paths.snapshot(snapshot.id))

    def _entries_of(self, manifests: Sequence[ManifestFile]) -> list[ManifestEntry]:
        return [*chain.from_iterable(self._decoded(manifests))]

    def _decoded(self, manifests: Sequence[ManifestFile]) -> list[tuple[ManifestEntry, ...]]:
        """Return the entries of each manifest."""
        found = self._cached([(manifest.name, manifest.size) for manifest in manifests], read_manifests)
        for manifest, entries in zip(manifests, found, strict=True):
            if len(entries) != manifest.added + manifest.deleted:
                path = self.paths.manifest(manifest.name)
                raise FormatError(
                    f"cannot read '{self.table_name}': '{path}' has {len(entries)} entries, and its list says "
                    f"{manifest.added + manifest.deleted}. Restore the file, or roll back to a snapshot that does not "
                    "need it.",
                    path=path,
                )
        return found

    def _lists(self, named: Sequence[_Named]) -> list[tuple[ManifestFile, ...]]:
        return self._cached(named, _each(read_manifest_list))

    def _cached(
        self, named: Sequence[_Named], decode: Callable[[Sequence[tuple[bytes, str]]], list[tuple[T, ...]]]
    ) -> list[tuple[T, ...]]:
        """Return what each of some files in `manifest/` holds."""
        found: dict[str, tuple[T, ...]] = {}
        missing: list[_Named] = []
        for name, size in dict(named).items():
            known = self.env.cache.get(self.paths.manifest(name))
            if known is None:
                missing.append((name, size))
            else:
                found[name] = known
        for batch in _batches(missing):
            files = self.env.fetch(self._read, batch, at_once=self.at_once)
            for (name, _), values in zip(batch, decode(files), strict=True):
                found[name] = values
                self.remember(name, values)
        return [found[name] for name, _ in named]

    def _read(self, named: _Named) -> tuple[bytes, str]:
        """Return the bytes of a file in `manifest/`, and its path."""
        name, size = named
        path = self.paths.manifest(name)
        try:
            data = self.env.storage.read(path)
        except NotFoundError as error:
            if not SchemaStore(self.paths, self.env).exists():
                raise NotFoundError(
                    f"table '{self.table_name}' no longer exists: it was dropped or renamed.", table=self.table_name
                ) from error
            raise FormatError(
                f"cannot read '{self.table_name}': its metadata names '{path}', which is missing. "
                "Restore the file, or roll back to a snapshot that does not need it.",
                path=path,
            ) from error
        if size is not None and len(data) != size:
            raise FormatError(
                f"cannot read '{self.table_name}': '{path}' has {len(data)} bytes, and metadata says {size}. "
                "Restore the file, or roll back to a snapshot that does not need it.",
                path=path,
            )
        return data, path


def _base(snapshot: Snapshot) -> _Named:
    return snapshot.base_manifest_list, snapshot.base_manifest_list_size


def _delta(snapshot: Snapshot) -> _Named:
    return snapshot.delta_manifest_list, snapshot.delta_manifest_list_size


def _each(
    decode: Callable[[bytes, str], tuple[T, ...]],
) -> Callable[[Sequence[tuple[bytes, str]]], list[tuple[T, ...]]]:
    return lambda files: [decode(data, path) for data, path in files]


def _batches(named: Sequence[_Named]) -> Iterator[list[_Named]]:
    """Yield files in batches of at most `_BATCH_BYTES`, or of one."""
    batch: list[_Named] = []
    weight = 0
    for name, size in named:
        if batch and weight + (size or 0) > _BATCH_BYTES:
            yield batch
            batch, weight = [], 0
        batch.append((name, size))
        weight += size or 0
    if batch:
        yield batch

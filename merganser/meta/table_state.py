"""TableState: a snapshot with its live files, read once and carried forward.

What was decoded from manifests and lists is kept in the cache of `Env`, and so is the newest state; a later
snapshot is reached from it by the deltas in between. Ids may be used again after a rollback, so a kept state
counts only while its snapshot is still the one that was read (same delta list, whose name is random).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from merganser.errors import FormatError, NotFoundError
from merganser.meta.data_file import ManifestEntry
from merganser.meta.live_files import EMPTY, LiveFiles
from merganser.meta.manifest import read_manifest
from merganser.meta.manifest_list import ManifestFile, read_manifest_list
from merganser.meta.schemas import SchemaStore
from merganser.meta.snapshot import Snapshot
from merganser.meta.snapshots import SnapshotStore
from merganser.storage.env import Env, no_collection
from merganser.storage.paths import TablePaths

T = TypeVar("T")

_STEPS_MAX = 100
"""Beyond so many snapshots a fresh read of the base list is cheaper than walking the deltas."""


@dataclass(frozen=True, slots=True)
class TableState:
    """One snapshot and its live files; no snapshot means an empty table."""

    snapshot: Snapshot | None
    live: LiveFiles

    @property
    def next_id(self) -> int:
        """The id of the snapshot after this one."""
        return 1 if self.snapshot is None else self.snapshot.id + 1


@dataclass(frozen=True, slots=True)
class MetaReader:
    """Reads lists, manifests and states of one table, through the cache."""

    paths: TablePaths
    env: Env
    table_name: str

    @property
    def snapshots(self) -> SnapshotStore:
        """Its snapshots."""
        return SnapshotStore(self.paths, self.env, self.table_name)

    def latest(self) -> TableState:
        """Return the newest state."""
        return self.state(self.snapshots.latest())

    def state(self, snapshot: Snapshot | None) -> TableState:
        """Return the state of a snapshot."""
        if snapshot is None:
            return TableState(None, EMPTY)
        key = ("state", self.paths.metadata_root)
        known = self.env.cache.get(key)
        if isinstance(known, TableState) and known.snapshot is not None:
            if _same(known.snapshot, snapshot):
                return known if known.snapshot == snapshot else TableState(snapshot, known.live)
            carried = self._carry(known, snapshot)
            if carried is not None:
                self.keep(carried)
                return carried
        with no_collection():
            entries = self._entries_of(self._base(snapshot)) + self.delta(snapshot)
            state = TableState(snapshot, self._applied(EMPTY, snapshot, entries))
        if not isinstance(known, TableState) or known.snapshot is None or known.snapshot.id <= snapshot.id:
            self.keep(state)
        return state

    def keep(self, state: TableState) -> None:
        """Remember the newest state, for the next reader or writer of this process."""
        self.env.cache.put(("state", self.paths.metadata_root), state, 200 * len(state.live))

    def delta(self, snapshot: Snapshot) -> list[ManifestEntry]:
        """Return the entries of a snapshot's own commit."""
        return self._entries_of(self._delta(snapshot))

    def manifests(self, snapshot: Snapshot | None) -> list[ManifestFile]:
        """Return all manifests of a snapshot: those of the base list, then those of the delta list."""
        if snapshot is None:
            return []
        return [*self._base(snapshot), *self._delta(snapshot)]

    def entries(self, manifest: ManifestFile) -> tuple[ManifestEntry, ...]:
        """Return the entries of a manifest.

        Raises:
            FormatError: it is missing, damaged, or not the one that its list describes.
        """
        entries = self._cached(manifest.name, read_manifest, manifest.size)
        if len(entries) != manifest.added + manifest.deleted:
            path = self.paths.manifest(manifest.name)
            raise FormatError(
                f"cannot read '{self.table_name}': '{path}' has {len(entries)} entries, and its list says "
                f"{manifest.added + manifest.deleted}. Restore the file, or roll back to a snapshot that does not "
                "need it.",
                path=path,
            )
        return entries

    def remember(self, name: str, value: object, weight: int) -> None:
        """Keep what was just written, so that it is not read back."""
        self.env.cache.put(self.paths.manifest(name), value, weight)

    def _carry(self, known: TableState, snapshot: Snapshot) -> TableState | None:
        """Return the state of `snapshot` from an older one and the deltas between, or None when that is not sure."""
        start = known.snapshot
        if start is None or not 0 < snapshot.id - start.id <= _STEPS_MAX:
            return None
        kept = self.snapshots.get(start.id)
        if kept is None or not _same(kept, start):
            return None
        live = known.live
        for snapshot_id in range(start.id + 1, snapshot.id + 1):
            step = snapshot if snapshot_id == snapshot.id else self.snapshots.get(snapshot_id)
            if step is None:
                return None
            live = self._applied(live, step, self.delta(step))
        return TableState(snapshot, live)

    def _applied(self, live: LiveFiles, snapshot: Snapshot, entries: Sequence[ManifestEntry]) -> LiveFiles:
        source = f"snapshot {snapshot.id} of '{self.table_name}'"
        return live.apply(entries, source=source, path=self.paths.snapshot(snapshot.id))

    def _entries_of(self, manifests: Sequence[ManifestFile]) -> list[ManifestEntry]:
        return [entry for manifest in manifests for entry in self.entries(manifest)]

    def _base(self, snapshot: Snapshot) -> tuple[ManifestFile, ...]:
        return self._cached(snapshot.base_manifest_list, read_manifest_list, snapshot.base_manifest_list_size)

    def _delta(self, snapshot: Snapshot) -> tuple[ManifestFile, ...]:
        return self._cached(snapshot.delta_manifest_list, read_manifest_list, snapshot.delta_manifest_list_size)

    def _cached(self, name: str, decode: Callable[[bytes, str], tuple[T, ...]], size: int | None) -> tuple[T, ...]:
        """Return what a file in `manifest/` holds. `size` is what those that name it say of its bytes, if they do."""
        path = self.paths.manifest(name)
        known = self.env.cache.get(path)
        if known is not None:
            return known  # type: ignore[no-any-return]
        try:
            data = self.env.storage.read(path)
        except NotFoundError as error:
            if not SchemaStore(self.paths, self.env).exists():
                raise NotFoundError(
                    f"there is no table '{self.table_name}' any more: it was dropped or renamed.", table=self.table_name
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
        value = decode(data, path)
        self.env.cache.put(path, value, 8 * len(data))
        return value


def _same(a: Snapshot, b: Snapshot) -> bool:
    return (
        a.id == b.id and a.delta_manifest_list == b.delta_manifest_list and a.base_manifest_list == b.base_manifest_list
    )

"""MetadataFiles: the manifests and lists that one commit writes, over all of its attempts.

A snapshot names a base list (everything before this commit), a delta list (this commit) and perhaps a changelog list
and an index manifest.
All are durable once `write` returns, and no snapshot names them before the commit, so a crash leaves orphans. Their
names are new and random, so no two attempts and no two writers ever write the same file.

All attempts share the manifests of delta and changelog and their lists, unless the commit is an overwrite, which
chooses the files to remove anew. The base list and the index manifest depend on the newest snapshot, so each attempt
writes its own. `discard` removes the files of an attempt that are certainly not visible.

Format: sections "manifests" and "manifest merging".
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from merganser.codec.binary_row import deserialize, sort_key
from merganser.codec.stats import ColumnStats, SimpleStats, encode_stats
from merganser.commit.compact_manifests import merge_span, merged_entries
from merganser.errors import MerganserError
from merganser.meta.data_file import ADD, ManifestEntry
from merganser.meta.index_manifest import IndexEntry, write_index_manifest
from merganser.meta.manifest import write_manifest
from merganser.meta.manifest_list import ManifestFile, write_manifest_list
from merganser.meta.snapshot import Snapshot
from merganser.meta.table_def import TableDef
from merganser.meta.table_state import MetaReader
from merganser.options import write as w
from merganser.values import dataclass


@dataclass(frozen=True, slots=True)
class Lists:
    """The files that a snapshot names, and the sizes of its lists in bytes; None: it has no such files."""

    base: str
    base_size: int
    delta: str
    delta_size: int
    changelog: str | None
    changelog_size: int | None
    index: str | None


class MetadataFiles:
    """The metadata files of one commit to a table: written, and removed again where they come to nothing."""

    def __init__(self, table: TableDef, reader: MetaReader) -> None:
        self._table, self._reader, self._env = table, reader, reader.env
        self._compression = table.options.get(w.MANIFEST_COMPRESSION)
        self._run = ""
        self._list_count = 0
        self._delta: tuple[str, int] | None = None
        self._changelog: tuple[str | None, int | None] = (None, None)
        self._of_delta: list[str] = []
        self._of_attempt: list[str] = []
        self._useless: list[str] = []

    def write(
        self,
        previous: Snapshot | None,
        entries: Sequence[ManifestEntry],
        index: Sequence[IndexEntry] | None,
        *,
        changelog: Sequence[ManifestEntry] = (),
        renews: bool = False,
    ) -> Lists:
        """Write what a snapshot names that follows `previous`.

        Args:
            entries: what it adds and removes; not looked at while the delta list of an earlier attempt is kept.
            index: all index files once it is there; None: those of `previous`.
            changelog: its changelog files; not looked at while those of an earlier attempt are kept.
            renews: write all manifests again, so that the base list names live files alone.
        """
        if self._delta is None:
            self._run, self._list_count = self._env.new_id(), 0
        manifests = self._base_manifests(previous, renews=renews)
        files: list[tuple[str, bytes]] = []
        if self._delta is None:
            self._delta = self._plan_own(entries, files)
            self._changelog = self._plan_own(changelog, files) if changelog else (None, None)
        base = self._plan_base(manifests, files)
        index_manifest = previous.index_manifest if previous else None
        if index is not None:
            index_manifest = self._plan_index(index, files)
        self._env.fetch(lambda file: self._create(*file), files, waits=True)
        return Lists(*base, *self._delta, *self._changelog, index_manifest)

    def discard(self, *, keep_delta: bool = False) -> None:
        """Remove the files of an attempt that is certainly not visible. Best effort: else they are orphans.

        Args:
            keep_delta: the next attempt makes the same change. It does not wait for the removal, which comes later.
        """
        self._useless += self._of_attempt
        self._of_attempt = []
        if keep_delta:
            return
        self._useless = self._of_delta + self._useless
        self._of_delta, self._delta = [], None
        self.clean()

    def clean(self) -> None:
        """Remove the files of attempts that were lost."""
        names, self._useless = self._useless, []
        paths = [self._table.paths.manifest(name) for name in reversed(names)]  # lists before what they name
        if not paths:
            return
        for path in paths:
            self._env.cache.drop(path)
        with contextlib.suppress(MerganserError):
            self._env.storage.delete(paths)

    def _base_manifests(self, previous: Snapshot | None, *, renews: bool) -> list[ManifestFile]:
        """Return the manifests of the new base list: those of the newest snapshot, some merged, or all of them."""
        manifests = self._reader.manifests(previous)
        options = self._table.options
        target = options.get(w.MANIFEST_TARGET_FILE_SIZE)
        span: tuple[int, int] | None = (0, len(manifests)) if renews and manifests else None
        if not renews:
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
        entries = merged_entries(entry for manifest in chosen for entry in self._reader.entries(manifest))
        per_file = max(1, target * before // max(1, sum(m.size for m in chosen)))
        merged = []
        for at in range(0, len(entries), per_file):
            data, manifest = self._encoded(entries[at : at + per_file])
            self._of_attempt.append(manifest.name)
            self._create(manifest.name, data)
            merged.append(manifest)
        return manifests[: span[0]] + merged + manifests[span[1] :]

    def _plan_own(self, entries: Sequence[ManifestEntry], files: list[tuple[str, bytes]]) -> tuple[str, int]:
        """Return the name and size of a list of the commit's own; adds it and its manifest to the files to write."""
        manifests = []
        if entries:
            data, manifest = self._encoded(entries)
            self._of_delta.append(manifest.name)
            files.append((manifest.name, data))
            manifests.append(manifest)
        name = self._new_list()
        self._of_delta.append(name)
        return name, self._plan_list(name, manifests, files)

    def _plan_base(self, manifests: Sequence[ManifestFile], files: list[tuple[str, bytes]]) -> tuple[str, int]:
        """Return the name and size of a base list; adds it to the files to write."""
        name = self._new_list()
        self._of_attempt.append(name)
        return name, self._plan_list(name, manifests, files)

    def _new_list(self) -> str:
        name = f"manifest-list-{self._run}-{self._list_count}"
        self._list_count += 1
        return name

    def _plan_list(self, name: str, manifests: Sequence[ManifestFile], files: list[tuple[str, bytes]]) -> int:
        data = write_manifest_list(manifests, compression=self._compression)
        files.append((name, data))
        self._reader.remember(name, tuple(manifests))
        return len(data)

    def _plan_index(self, index: Sequence[IndexEntry], files: list[tuple[str, bytes]]) -> str | None:
        """Return the name of the new index manifest, None when no index file is left; adds it to the files to write."""
        if not index:
            return None
        name = f"index-manifest-{self._env.new_id()}-0"
        self._of_attempt.append(name)
        files.append((name, write_index_manifest(index, compression=self._compression)))
        self._reader.remember(name, tuple(index))
        return name

    def _encoded(self, entries: Sequence[ManifestEntry]) -> tuple[bytes, ManifestFile]:
        """Return the bytes of a new manifest, and what lists say of it."""
        name = f"manifest-{self._env.new_id()}-0"
        data = write_manifest(entries, compression=self._compression)
        self._reader.remember(name, tuple(entries))
        added = sum(1 for entry in entries if entry.kind == ADD)
        return data, ManifestFile(
            name=name,
            size=len(data),
            added=added,
            deleted=len(entries) - added,
            partition_stats=self._partition_stats(entries),
            schema_id=self._table.schema.id,
            min_bucket=min(e.bucket for e in entries),
            max_bucket=max(e.bucket for e in entries),
            min_level=min(e.file.level for e in entries),
            max_level=max(e.file.level for e in entries),
        )

    def _partition_stats(self, entries: Sequence[ManifestEntry]) -> SimpleStats:
        kinds = self._table.partition_types
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
        self._env.storage.replace(self._table.paths.manifest(name), data, durable=True)

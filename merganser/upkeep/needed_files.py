"""Needed files: the paths of all files that snapshots, tags and branches refer to.

Data, manifest, index and statistics files lie once, in the table's directory, and many snapshots may refer to them::

    line (the table itself, or a branch) -> snapshots, tags, changelogs -> lists -> manifests -> data files
                                                                       -> index manifest -> index files, statistics

Code that deletes files asks here first. Every answer is complete or an error: an unreadable file may name others, so
no file that depends on it may be deleted.

A tag keeps the state of its snapshot and not its changelog, as in the format.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field
from typing import Final, TypeVar

from merganser.errors import FormatError, InvariantError, NotFoundError
from merganser.files.masks import index_path
from merganser.meta.changelogs import ChangelogStore
from merganser.meta.data_file import ADD, ManifestEntry
from merganser.meta.live_files import BucketId
from merganser.meta.manifest_list import ManifestFile
from merganser.meta.refs import MAIN, BranchStore, TagStore
from merganser.meta.snapshot import Snapshot
from merganser.meta.table_def import TableDef
from merganser.meta.table_state import MetaReader
from merganser.storage.env import Env
from merganser.storage.paths import TablePaths, join
from merganser.storage.retries import RACE
from merganser.storage.tuning import no_collection
from merganser.values import dataclass

R = TypeVar("R")
_PATH_BYTES: Final = 150
"""About what a path weighs in memory."""


@dataclass
class NeededFiles:
    """Answers for one table. Remembers directories, so one object serves one run."""

    table: TableDef
    env: Env
    _directories: dict[BucketId, str] = field(default_factory=dict)

    def reader(self, paths: TablePaths | None = None) -> MetaReader:
        """Return the metadata of a line; None: of the one that the table was opened as."""
        return MetaReader(paths or self.table.paths, self.env, self.table.name)

    def tags(self, paths: TablePaths | None = None) -> TagStore:
        """Return the tags of a line; None: of the one that the table was opened as."""
        return TagStore(paths or self.table.paths, self.env, self.table.name)

    def lines(self) -> tuple[TablePaths, ...]:
        """Return the paths of the table itself and of its branches."""
        return BranchStore(self.table.paths, self.env, self.table.name).all_paths()

    # one entry

    def data_paths(self, entry: ManifestEntry) -> Iterator[str]:
        """Yield the paths of a data file and of the files beside it."""
        file = entry.file
        directory = self.directory(entry.partition, entry.bucket)
        if file.external_path is not None:
            yield file.external_path
            directory = file.external_path.rpartition("/")[0]
        else:
            yield join(directory, file.name)
        for name in file.extra_files:
            yield join(directory, name)

    def directory(self, partition: bytes, bucket: int) -> str:
        """Return the directory of a bucket."""
        found = self._directories.get((partition, bucket))
        if found is None:
            found = self._directories[partition, bucket] = self.table.bucket_directory(partition, bucket)
        return found

    # one snapshot

    def state(self, snapshot: Snapshot, paths: TablePaths | None = None) -> frozenset[str]:
        """Return the data files that are live in a snapshot."""
        reader = self.reader(paths)
        key = ("live files", reader.paths.root, snapshot.base_manifest_list, snapshot.delta_manifest_list)
        known: frozenset[str] | None = self.env.cache.get(key)
        if known is None:
            live = reader.state(snapshot).live
            known = frozenset(path for entry in live for path in self.data_paths(entry))
            self.env.cache.put(key, known, _PATH_BYTES * (len(known) + 1))
        return known

    def metadata(self, snapshot: Snapshot) -> set[str]:
        """Return the lists, manifests, index and statistics files that the state of a snapshot needs."""
        return self.lists_and_manifests([snapshot]) | self.indexes(snapshot)

    def lists_and_manifests(self, snapshots: Sequence[Snapshot]) -> set[str]:
        """Return the base and delta lists of snapshots, and the manifests they name."""
        reader = self.reader()
        found = {snapshot.base_manifest_list for snapshot in snapshots}
        found.update(snapshot.delta_manifest_list for snapshot in snapshots)
        for manifests in (*reader.base_lists(snapshots), *reader.delta_lists(snapshots)):
            found.update(manifest.name for manifest in manifests)
        return set(map(self.table.paths.manifest, found))

    def indexes(self, snapshot: Snapshot) -> set[str]:
        """Return the index manifest of a snapshot, the index files it names, and the statistics."""
        found = set()
        if snapshot.index_manifest is not None:
            found.add(self.table.paths.manifest(snapshot.index_manifest))
            found.update(index_path(self.table, entry) for entry in self.reader().index(snapshot))
        if snapshot.statistics is not None:
            found.add(self.table.paths.statistics(snapshot.statistics))
        return found

    def added(self, manifests: Sequence[ManifestFile]) -> set[str]:
        """Return the data files that manifests add."""
        found: set[str] = set()
        for entries in self.reader().entries_of_each(manifests):
            for entry in entries:
                if entry.kind == ADD:
                    found.update(self.data_paths(entry))
        return found

    def changelog(self, snapshot: Snapshot) -> tuple[set[str], set[str]]:
        """Return the changelog files of a snapshot, and the list and manifests that name them."""
        if snapshot.changelog_manifest_list is None:
            return set(), set()
        [manifests] = self.reader().changelog_lists([snapshot])
        names = [snapshot.changelog_manifest_list, *(manifest.name for manifest in manifests)]
        return self.added(manifests), set(map(self.table.paths.manifest, names))

    # one line

    def line(self, paths: TablePaths) -> frozenset[str]:
        """Return every file that the snapshots, tags and changelogs of a line need.

        The object keeps the answer while the listing of the line's directories stays the same.

        Raises:
            FormatError: a metadata file is missing or damaged.
        """
        key = ("needed by", paths.metadata_root)
        looks = self._looks_of(paths)
        for attempt in RACE.each():
            known: tuple[object, frozenset[str]] | None = self.env.cache.get(key)
            if known is not None and known[0] == looks:
                return known[1]
            before = looks
            try:
                with no_collection():
                    found = frozenset().union(*self._reached(paths))
                self.env.cache.put(key, (before, found), _PATH_BYTES * (len(found) + 1))
                return found
            except FormatError:
                looks = self._looks_of(paths)
                if looks == before or attempt.is_last:
                    raise  # else snapshots expired while they were read
        raise InvariantError(f"the files that '{self.table.name}' needs were never found.")

    def beside_removals(self, work: Callable[[], R]) -> R:
        """Return the result of work that reads files; again if other processes removed some of them meanwhile.

        Raises:
            FormatError: a file cannot be read, and no other process adds or removes anything.
        """
        looks: object = None

        def have_changed(_: FormatError) -> bool:
            nonlocal looks
            before, looks = looks, self.looks()
            return looks != before

        return RACE.run(work, FormatError, have_changed)

    def looks(self) -> object:
        """Return a listing of the directories of all lines; its value changes when a process adds or removes a name."""
        return tuple((paths.branch, self._looks_of(paths)) for paths in self.lines())

    def _looks_of(self, paths: TablePaths) -> object:
        places = (paths.snapshot_directory, paths.tag_directory, paths.changelog_directory)
        return tuple(
            frozenset((entry.name, entry.size, entry.modified_ms) for entry in self.env.storage.list(place))
            for place in places
        )

    def _reached(self, paths: TablePaths) -> Iterator[Iterable[str]]:
        store, reader = self.reader(paths).snapshots, self.reader(paths)
        snapshots = [found for found in self.env.fetch(store.get, store.ids()) if found is not None]
        yield self.lists_and_manifests(snapshots)
        before = None
        for snapshot, manifests in zip(snapshots, reader.delta_lists(snapshots), strict=True):
            first = before is None or before.id != snapshot.id - 1
            yield self.state(snapshot, paths) if first else self.added(manifests)
            yield self.indexes(snapshot)
            yield from self._kept_changelog(snapshot, copied=first and paths.branch != MAIN)
            before = snapshot
        for tag in self.tags(paths).list():
            yield self.state(tag.snapshot, paths)
            yield self.metadata(tag.snapshot)
        for snapshot in ChangelogStore(paths, self.env).list():
            yield from self.long_lived(snapshot)

    def _kept_changelog(self, snapshot: Snapshot, *, copied: bool) -> tuple[set[str], set[str]]:
        try:
            return self.changelog(snapshot)
        except FormatError as error:
            # A branch begins with a copy of a snapshot; the changelog goes with the original when that expires.
            if copied and isinstance(error.__cause__, NotFoundError):
                return set(), set()
            raise

    def long_lived(self, snapshot: Snapshot) -> tuple[set[str], set[str]]:
        """Return the files that a long-lived changelog needs: data files, and their lists and manifests.

        If the commit has no changelog files, the rows that it added are its changelog. In tables that make changelog
        files in other commits, expiry has removed such lists with the snapshot, and the changelog needs no file.
        """
        if snapshot.changelog_manifest_list is not None:
            return self.changelog(snapshot)
        reader = self.reader()
        base, delta = _unless_missing(reader.base_lists, snapshot), _unless_missing(reader.delta_lists, snapshot)
        names = {snapshot.base_manifest_list, snapshot.delta_manifest_list}
        names.update(manifest.name for manifest in (*base, *delta))
        return self.added(delta), set(map(self.table.paths.manifest, names))


def _unless_missing(
    read: Callable[[Sequence[Snapshot]], list[tuple[ManifestFile, ...]]], snapshot: Snapshot
) -> tuple[ManifestFile, ...]:
    """Return the manifests of a list of a snapshot; none when the list is not there."""
    try:
        return read([snapshot])[0]
    except FormatError as error:
        if isinstance(error.__cause__, NotFoundError):
            return ()
        raise

"""Orphans: files that no metadata names, left by writers, compactions and expiry that were stopped, and by rollbacks.

Steps::

    1  mark        the files that snapshots, tags and changelogs of every line need (`upkeep.needed_files`)
    2  list        the directories of the table; only names that merganser or another engine gives to files count
    3  mark again  a branch or a rollback may have brought a file back during the listing
    4  remove      the old files that neither step 1 nor step 3 has marked

A writer makes its files before it commits them, so young files stay: an orphan is older than a day unless the
caller gives another age. By that age its writer must have committed or given up. A damaged or missing metadata file
stops the run at step 1 or 3, before it removes anything.

The age of a file counts from the time when the store last wrote it. Decision 0016.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import field
from typing import Final

from merganser.errors import FormatError, NotFoundError
from merganser.files.layout import RECEIVED_PREFIX
from merganser.meta.schemas import SchemaStore
from merganser.meta.snapshots import SnapshotStore
from merganser.meta.table_def import TableDef
from merganser.options import write as w
from merganser.storage.env import Env
from merganser.storage.paths import STAGING, escape, join
from merganser.storage.protocol import Entry
from merganser.upkeep.expire_snapshots import remove_empty_directories, remove_files
from merganser.upkeep.needed_files import NeededFiles
from merganser.values import dataclass

DAY_MS: Final = 86_400_000
_TEMPORARY: Final = re.compile(r"\..+\.[0-9a-fA-F-]{36}(?:\.tmp)?|\..+\.tmp")
"""Names of files that were not renamed to their own, of ours and of other engines."""
_STAGED: Final = re.compile(rf"\.?{re.escape(STAGING)}")
"""How folders begin in which rows wait; with one more dot, of one that was set aside to be removed."""
_METADATA: Final = {
    "manifest": re.compile(r"(?:manifest|manifest-list|index-manifest)-.+"),
    "index": re.compile(r"index-.+"),
    "statistics": re.compile(r"stat-.+"),
}
"""Directories of a table whose files metadata names, and what these are called there."""
_NUMBERED: Final = ("schema", "snapshot", "tag", "changelog", "consumer", "erase")
"""Directories of a line whose files count by their own names: only temporary ones are orphans."""
_BUCKET: Final = re.compile(r"bucket-(?:\d+|postpone)")


@dataclass(frozen=True, slots=True)
class Orphan:
    """A file that no metadata names.

    Attributes:
        path: the whole path.
        size: bytes.
        modified_ms: when the store last wrote it, in epoch milliseconds.
    """

    path: str
    size: int
    modified_ms: int


def find_orphans(table: TableDef, env: Env, *, older_than_ms: int) -> tuple[Orphan, ...]:
    """Return the old files that no metadata names, by path; steps 1 to 3. Errors and arguments: `remove_orphans`."""
    return _Look(table, env, older_than_ms).orphans()


def remove_orphans(table: TableDef, env: Env, *, older_than_ms: int, dry_run: bool) -> tuple[str, ...]:
    """Remove old files that no metadata names.

    Args:
        older_than_ms: epoch milliseconds; later files may belong to a writer that has not committed yet.
        dry_run: change nothing.

    Returns:
        The paths that this run removed, or would remove, sorted.

    Raises:
        NotFoundError: the table is gone.
        FormatError: metadata is damaged or missing, so the files that it names are unknown; nothing was removed.
        StorageError: the store failed; the files that the run removed before were orphans.
    """
    look = _Look(table, env, older_than_ms)
    paths = tuple(orphan.path for orphan in look.orphans())
    if not dry_run:
        remove_files(table, env, paths)
        remove_empty_directories(table, env, look.directories)
    return paths


def _marked(table: TableDef, env: Env) -> set[str]:
    """Return the names of all needed files, without directories: file names are unique."""
    needed = NeededFiles(table, env)
    for paths in needed.lines():
        store = SnapshotStore(paths, env, table.name)
        if (lost := store.lost(store.latest_id())) is not None:
            raise store.lost_error(lost, f"cannot remove orphans of '{table.name}'")
    try:
        return {_name(path) for paths in needed.lines() for path in needed.line(paths)}
    except FormatError as error:
        raise FormatError(
            f"cannot look for orphans of '{table.name}': what its metadata names is not known. Nothing was removed. "
            f"({error})",
            **error.context,
        ) from error


def _name(path: str) -> str:
    return path.rpartition("/")[2]


@dataclass
class _Look:
    """One walk through a table's directories."""

    table: TableDef
    env: Env
    older_than_ms: int
    directories: set[str] = field(default_factory=set)

    def orphans(self) -> tuple[Orphan, ...]:
        table, env = self.table, self.env
        if not SchemaStore(table.paths, env).exists():
            raise NotFoundError(
                f"cannot look for orphans: there is no table '{table.name}' any more.", table=table.name
            )
        needed = _marked(table, env)
        found = {file.path: file for file in self.files() if _name(file.path) not in needed}
        if found:
            needed = _marked(table, env)
        return tuple(found[path] for path in sorted(found) if _name(path) not in needed)

    def files(self) -> Iterator[Orphan]:
        """Yield the old files with a known kind of name in the directory of that kind."""
        root = self.table.path
        for name, pattern in _METADATA.items():
            yield from self._old(join(root, name), pattern)
        yield from self._line(root)
        for entry in self._listed(root):
            if entry.is_directory and _STAGED.match(entry.name):
                yield from self._all_old(join(root, entry.name))
        branches = self._listed(join(root, "branch"))
        yield from self._old_of(branches, join(root, "branch"), None)
        for entry in branches:
            if entry.is_directory and _TEMPORARY.fullmatch(entry.name):
                yield from self._all_old(join(root, "branch", entry.name))
            elif entry.is_directory:
                yield from self._line(join(root, "branch", entry.name))
        depth = len(self.table.schema.partition_keys)
        yield from self._data(join(root, self.table.paths.data_directory), depth)

    def _line(self, root: str) -> Iterator[Orphan]:
        for name in _NUMBERED:
            yield from self._old(join(root, name), None)

    def _data(self, directory: str, depth: int) -> Iterator[Orphan]:
        """Yield the old files of the buckets `depth` partition columns below a directory."""
        names = [entry.name for entry in self._listed(directory) if entry.is_directory]
        if depth:
            key = self.table.schema.partition_keys[-depth]
            for name in names:
                if name.startswith(f"{escape(key)}="):
                    yield from self._data(join(directory, name), depth - 1)
            return
        for name in names:
            if _BUCKET.fullmatch(name):
                path = join(directory, name)
                self.directories.add(path)
                yield from self._old(path, self._data_names)

    def _all_old(self, directory: str) -> Iterator[Orphan]:
        """Yield the old files anywhere below a directory that was made to be renamed."""
        self.directories.add(directory)
        for entry in self._listed(directory):
            if entry.is_directory:
                yield from self._all_old(join(directory, entry.name))
            elif entry.modified_ms < self.older_than_ms:
                yield Orphan(join(directory, entry.name), entry.size, entry.modified_ms)

    @property
    def _data_names(self) -> re.Pattern[str]:
        options = self.table.options
        prefixes = {
            "data-",
            "changelog-",
            "index-",
            RECEIVED_PREFIX,
            options.get(w.DATA_FILE_PREFIX),
            options.get(w.CHANGELOG_FILE_PREFIX),
        }
        return re.compile(f"(?:{'|'.join(map(re.escape, filter(None, prefixes)))}).+")

    def _old(self, directory: str, pattern: re.Pattern[str] | None) -> Iterator[Orphan]:
        return self._old_of(self._listed(directory), directory, pattern)

    def _old_of(self, entries: list[Entry], directory: str, pattern: re.Pattern[str] | None) -> Iterator[Orphan]:
        for entry in entries:
            known = _TEMPORARY.fullmatch(entry.name) or (pattern is not None and pattern.fullmatch(entry.name))
            if known and not entry.is_directory and entry.modified_ms < self.older_than_ms:
                yield Orphan(join(directory, entry.name), entry.size, entry.modified_ms)

    def _listed(self, directory: str) -> list[Entry]:
        return self.env.storage.list(directory)

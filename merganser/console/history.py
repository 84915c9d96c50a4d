"""The past of a table: its snapshots, what each commit changed, its tags and branches; kept where it is immutable."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Final

from merganser.console.page import Asked
from merganser.errors import InvalidInputError, MerganserError
from merganser.handle.table import Table
from merganser.meta.data_file import ADD, ManifestEntry
from merganser.meta.refs import MAIN, BranchStore, Tag, TagStore
from merganser.meta.snapshot import Snapshot, same_snapshot
from merganser.meta.snapshots import SnapshotStore
from merganser.meta.table_state import MetaReader
from merganser.storage.paths import TablePaths
from merganser.storage.protocol import Entry
from merganser.values import dataclass

_SNAPSHOT: Final = "snapshot-"
_BRANCHES_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class Step:
    """What files added and removed hold.

    Attributes:
        rows_in, rows_out: as they are stored, before merging.
    """

    rows_in: int = 0
    rows_out: int = 0
    files_in: int = 0
    files_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0


def step_of(entries: Iterable[ManifestEntry]) -> Step:
    """Return the sums of entries of manifests. A file that moves to another level is neither written nor removed."""
    added: list[int] = [0, 0, 0]
    removed: list[int] = [0, 0, 0]
    kinds = defaultdict[tuple[object, ...], set[int]](set)
    known = list(entries)
    for entry in known:
        kinds[_place(entry)].add(entry.kind)
    for entry in known:
        if len(kinds[_place(entry)]) > 1:
            continue
        sums = added if entry.kind == ADD else removed
        sums[0] += entry.file.row_count
        sums[1] += 1
        sums[2] += entry.file.size
    return Step(added[0], removed[0], added[1], removed[1], added[2], removed[2])


def _place(entry: ManifestEntry) -> tuple[object, ...]:
    """Return what says which file an entry means, at any level."""
    return entry.partition, entry.bucket, entry.file.name, entry.file.external_path


class Line:
    """The snapshots of a table, or of one of its branches, found once for a request."""

    def __init__(self, asked: Asked, table: Table, paths: TablePaths | None = None) -> None:
        self._asked = asked
        self.table = table
        self.paths = paths or table.definition.paths
        self._reader = MetaReader(self.paths, table.env, table.name)

    @property
    def store(self) -> SnapshotStore:
        """Its snapshots, without what is kept."""
        return self._reader.snapshots

    @cached_property
    def _entries(self) -> Mapping[int, Entry]:
        found = {}
        for entry in self.table.env.storage.list(self.paths.snapshot_directory):
            number = entry.name.removeprefix(_SNAPSHOT)
            if number != entry.name and number.isascii() and number.isdigit() and number[0] != "0":
                found[int(number)] = entry
        return found

    @cached_property
    def ids(self) -> list[int]:
        """The ids of all snapshots, newest first."""
        return sorted(self._entries, reverse=True)

    def __contains__(self, number: int) -> bool:
        return number in self._entries

    def snapshots(self, ids: Sequence[int]) -> list[Snapshot]:
        """Return the snapshots of some ids; those that expire just now, or are damaged, are missing."""

        def found(number: int) -> Snapshot | None:
            entry = self._entries[number]
            key = ("snapshot", self.paths.snapshot(number), entry.size, entry.modified_ms)
            try:
                kept: Snapshot | None = self._asked.known.get(key, lambda: self.store.load(number))
            except MerganserError:
                return None
            return kept

        return [each for each in self.table.env.fetch(found, ids) if each is not None]

    def steps(self, snapshots: Sequence[Snapshot]) -> list[Step | None]:
        """Return what the commit of each changed; None: its manifests cannot be read."""

        def found(snapshot: Snapshot) -> Step | None:
            key = ("step", self.paths.manifest(snapshot.delta_manifest_list))
            try:
                kept: Step = self._asked.known.get(key, lambda: step_of(self._reader.delta(snapshot)))
            except MerganserError:
                return None
            return kept

        return self.table.env.fetch(found, snapshots)

    @cached_property
    def tags(self) -> tuple[Tag, ...]:
        """Its tags, by snapshot; none if one is damaged."""
        try:
            return TagStore(self.paths, self.table.env, self.table.name).list()
        except MerganserError:
            return ()

    def resolve(self, text: str) -> Snapshot:
        """Return the snapshot of an id, or else of a tag.

        Raises:
            NotFoundError, ExpiredError: there is none.
        """
        if text.isascii() and text.isdigit():
            number = int(text)
            if number > 2**63 - 1:
                raise InvalidInputError(f"'{self.table.name}' has no snapshot {text:.40}.")
            return self.store.load(number)
        return TagStore(self.paths, self.table.env, self.table.name).load(text).snapshot


@dataclass(frozen=True, slots=True)
class BranchFacts:
    """A branch, and where it left main.

    Attributes:
        count: of its snapshots.
        newest: its newest snapshot; None: it has none.
        fork: the id of the snapshot of main that it goes on from; None: it began empty, or nobody knows any more.
        began_empty: whether it did.
        tags: its own.
    """

    name: str
    count: int
    newest: Snapshot | None
    fork: int | None
    began_empty: bool
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Refs:
    """Tags and branches of a table.

    Attributes:
        main: the snapshots of main.
        left_out: how many branches are not among the branches.
    """

    main: Line
    tags: tuple[Tag, ...]
    branches: tuple[BranchFacts, ...]
    left_out: int


def refs_of(asked: Asked, table: Table) -> Refs:
    """Return the tags of main and the branches of a table."""
    paths = table.definition.paths.of_branch(MAIN)
    main = Line(asked, table, paths)
    names = BranchStore(paths, table.env, table.name).names()
    shown = names[:_BRANCHES_MAX]
    tagged = {tag.snapshot_id: tag.snapshot for tag in main.tags}
    branches = table.env.map(lambda name: _branch(asked, main, tagged, name), shown)
    return Refs(main, main.tags, tuple(branches), len(names) - len(shown))


def _branch(asked: Asked, main: Line, tagged: Mapping[int, Snapshot], name: str) -> BranchFacts:
    line = Line(asked, main.table, main.paths.of_branch(name))
    ends = line.snapshots([line.ids[0], line.ids[-1]]) if line.ids else []
    own = {tag.snapshot_id: tag.snapshot for tag in line.tags}
    oldest = ends[-1] if ends else None
    candidates = [*own.values(), *([] if oldest is None else [oldest])]  # a tag of the fork goes with the branch
    forks = [each.id for each in candidates if _is_of(main, tagged, each)]
    return BranchFacts(
        name,
        len(line.ids),
        ends[0] if ends else None,
        max(forks, default=None),
        not forks and (oldest is None or oldest.id == 1),
        tuple(tag.name for tag in line.tags if not _is_of(main, tagged, tag.snapshot)),
    )


def _is_of(main: Line, tagged: Mapping[int, Snapshot], snapshot: Snapshot) -> bool:
    if snapshot.id in tagged and same_snapshot(tagged[snapshot.id], snapshot):
        return True
    there = main.snapshots([snapshot.id]) if snapshot.id in main else []
    return bool(there) and same_snapshot(there[0], snapshot)

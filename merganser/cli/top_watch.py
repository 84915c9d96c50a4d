"""What `merganser top` knows of tables. A refresh asks for the newest snapshot, and for more only if it is new.

A warehouse may have thousands of tables, so a refresh looks at some of them only: at those that were committed to
lately, and at those that were not looked at for the longest time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from itertools import islice
from typing import Any, Final

from merganser.errors import MerganserError
from merganser.handle.table import Table
from merganser.meta.data_file import ADD
from merganser.meta.live_files import BucketId
from merganser.meta.snapshot import APPEND, COMPACT, Snapshot, same_snapshot
from merganser.meta.table_state import MetaReader, TableState
from merganser.storage.env import Env
from merganser.values import dataclass

WINDOW_SECONDS: Final = 60
"""Seconds of commits that rates are made of."""
_COMMITS_MAX: Final = 200
"""Maximum number of commits of the window that are looked up for one table."""
SHOWN_COMMITS: Final = 15
"""Maximum number of commits of one table that are shown."""
_BUCKETS_SHOWN: Final = 5
_READERS_SECONDS: Final = 10.0
"""Seconds after which consumers, tags and branches are looked up again: they change without a new snapshot."""
_ADVICE_SECONDS: Final = 30.0
"""Minimum seconds between two looks for advice about a table that is written all the time."""
_LISTED_SECONDS: Final = 30.0
"""Minimum seconds between two listings of the tables of a warehouse."""
_LISTING_SHARE: Final = 20
"""A listing that took long is repeated after this many times its duration: it costs a request for each table."""
LOOKS_MAX: Final = 100
"""Maximum number of tables of a warehouse that one refresh looks at."""
_ADVICE_MAX: Final = 20
"""Maximum number of tables of a warehouse for which one refresh asks for advice."""
_ACTIVE_PART: Final = 0.8
"""Maximum share of the looks that go to tables with commits in the window. The others find tables that become so."""


@dataclass(slots=True)
class WatchedTable:
    """What is known of one table.

    Attributes:
        name: as it is shown.
        open: returns the table.
        newest: the newest snapshot; None: there is none, or the table was not looked at yet.
        commits: snapshots of the window, newest first.
        state: live files of the newest snapshot are counted in `files` and `size`.
        topics: what advice there is about; None: it was not asked for yet.
        problem: why the last look failed.
        looked_at: when the last look was, in seconds; None: it was not looked at yet.
    """

    name: str
    open: Callable[[], Table]
    table: Table | None = None
    newest: Snapshot | None = None
    commits: tuple[Snapshot, ...] = ()
    files: int = 0
    size: int = 0
    topics: tuple[str, ...] | None = None
    problem: str | None = None
    looked_at: float | None = None
    _advised: tuple[float, Snapshot | None] | None = None

    def look(self, now: float) -> TableState | None:
        """Ask for the newest snapshot, and count its files if it is another one.

        Returns:
            The state of a snapshot that is new; None if nothing has changed, or the look failed.
        """
        self.looked_at = now
        try:
            if self.table is None:
                self.table = self.open()
            reader = _reader(self.table)
            seen = reader.snapshots.look()
            cutoff = self.table.env.now_ms() - WINDOW_SECONDS * 1000
            if _same(seen.newest, self.newest):
                self.commits = tuple(one for one in self.commits if one.time_millis >= cutoff)
                self.problem = None
                return None
            state = reader.state(seen.newest, seen)
            self.commits = self._window(reader, state, cutoff)
            self.files, self.size = len(state.live), sum(entry.file.size for entry in state.live)
            self.newest, self.problem = seen.newest, None
            return state
        except MerganserError as error:
            self.problem = str(error)
            return None

    def wants_advice(self, now: float) -> bool:
        """Return whether there are commits since advice was asked for, and that was some time ago."""
        if self.table is None or self.problem is not None:
            return False
        if self._advised is None:
            return True
        at, snapshot = self._advised
        return now - at >= _ADVICE_SECONDS and not _same(snapshot, self.newest)

    def advise(self, now: float) -> tuple[str, ...]:
        """Ask for advice, and return it as text."""
        assert self.table is not None
        self._advised = (now, self.newest)
        try:
            found = self.table.advice()
        except MerganserError as error:
            self.problem = str(error)
            return ()
        self.topics = tuple(dict.fromkeys(one.topic for one in found))
        return tuple(map(str, found))

    @property
    def rows_per_second(self) -> float:
        """Rows that commits of the window added."""
        added = (max(one.delta_record_count or 0, 0) for one in self.commits if one.commit_kind != COMPACT)
        return sum(added) / WINDOW_SECONDS

    @property
    def commits_per_minute(self) -> float:
        """Commits of the window that are no compactions."""
        return sum(one.commit_kind != COMPACT for one in self.commits) * 60 / WINDOW_SECONDS

    @property
    def compactions(self) -> int:
        """Compactions of the window."""
        return sum(one.commit_kind == COMPACT for one in self.commits)

    def _window(self, reader: MetaReader, state: TableState, cutoff: int) -> tuple[Snapshot, ...]:
        found: list[Snapshot] = []
        for one in islice(reader.newest_first(state), _COMMITS_MAX):
            if one.time_millis < cutoff:
                break
            if _same(one, self.newest):  # the others are known
                return (*found, *(known for known in self.commits if known.time_millis >= cutoff))
            found.append(one)
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit, for people.

    Attributes:
        rows_added, rows_deleted: rows that the commit wrote; None for compactions, which change no row.
    """

    snapshot: Snapshot
    rows_added: int | None
    rows_deleted: int | None
    files_added: int
    files_removed: int


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket, the files of level 0 in it, and all its files."""

    directory: str
    flushed: int
    files: int
    size: int


@dataclass(slots=True)
class TableWatch:
    """One table in detail.

    Attributes:
        of: the table.
        last: its last commits, newest first.
        buckets: those with most files of level 0.
        consumers: rows of the system table of that name.
    """

    of: WatchedTable
    last: tuple[Commit, ...] = ()
    buckets: tuple[Bucket, ...] = ()
    consumers: Sequence[dict[str, Any]] = ()
    tags: int = 0
    branches: int = 0
    advice: tuple[str, ...] = ()
    _readers_at: float | None = None

    def refresh(self, now: float) -> None:
        """Look at the table."""
        state = self.of.look(now)
        table = self.of.table
        if table is None or self.of.problem is not None:
            return
        try:
            if state is not None:
                self.last = self._commits(table, state)
                self.buckets = _most_flushed(table, state)
            if state is not None or self._readers_at is None or now - self._readers_at >= _READERS_SECONDS:
                self._readers_at = now
                self.consumers = table.system("consumers").to_pylist()
                self.tags, self.branches = len(table.tags.list()), len(table.branches.list())
        except MerganserError as error:
            self.of.problem = str(error)
            return
        if self.of.wants_advice(now):
            self.advice = self.of.advise(now)

    def _commits(self, table: Table, state: TableState) -> tuple[Commit, ...]:
        reader = _reader(table)
        known = {one.snapshot.id: one for one in self.last}
        found = []
        for snapshot in islice(reader.newest_first(state), SHOWN_COMMITS):
            one = known.get(snapshot.id)
            same = one is not None and same_snapshot(one.snapshot, snapshot)
            found.append(one if one is not None and same else _commit(reader, snapshot))
        return tuple(found)


@dataclass(slots=True)
class WarehouseWatch:
    """All tables of a warehouse.

    Attributes:
        names: returns the names of the tables.
        open: returns the table of a name.
        env: of the warehouse.
    """

    names: Callable[[], Sequence[str]]
    open: Callable[[str], Table]
    env: Env
    tables: dict[str, WatchedTable] = field(default_factory=dict)
    problem: str | None = None
    _listed: float | None = None

    def refresh(self, now: float, *, every: bool = False) -> None:
        """Look at some of the tables.

        Args:
            now: seconds of a clock that does not go back.
            every: look at all of them, and ask for all advice.
        """
        self._list(now)
        chosen = self._chosen(len(self.tables) if every else LOOKS_MAX)
        self.env.fetch(lambda one: one.look(now), chosen)
        wanting = [one for one in self.tables.values() if one.looked_at is not None and one.wants_advice(now)]
        self.env.fetch(lambda one: one.advise(now), _by_activity(wanting)[: len(wanting) if every else _ADVICE_MAX])

    @property
    def by_activity(self) -> list[WatchedTable]:
        """The tables, those with most rows and commits first."""
        return _by_activity(list(self.tables.values()))

    def _list(self, now: float) -> None:
        if self._listed is not None and now < self._listed:
            return
        begun = self.env.seconds()
        try:
            names = self.names()
        except MerganserError as error:
            self.problem = str(error)
            return
        took = self.env.seconds() - begun
        self._listed, self.problem = now + max(_LISTED_SECONDS, took * _LISTING_SHARE), None
        self.tables = {name: self.tables.get(name) or self._watched(name) for name in names}

    def _watched(self, name: str) -> WatchedTable:
        return WatchedTable(name, lambda: self.open(name))

    def _chosen(self, most: int) -> list[WatchedTable]:
        """Return the tables to look at: active ones, then those that were not looked at for the longest time."""
        by_age = sorted(self.tables.values(), key=lambda one: -1.0 if one.looked_at is None else one.looked_at)
        if most >= len(by_age):
            return by_age
        active = [one for one in by_age if one.commits][: int(most * _ACTIVE_PART)]
        names = {one.name for one in active}
        return [*active, *islice((one for one in by_age if one.name not in names), most - len(active))]


def _by_activity(tables: list[WatchedTable]) -> list[WatchedTable]:
    def key(one: WatchedTable) -> tuple[float, float, int, str]:
        last = 0 if one.newest is None else one.newest.time_millis
        return -one.rows_per_second, -one.commits_per_minute, -last, one.name

    return sorted(tables, key=key)


def _reader(table: Table) -> MetaReader:
    return MetaReader(table.definition.paths, table.env, table.name)


def _same(a: Snapshot | None, b: Snapshot | None) -> bool:
    return a is b if a is None or b is None else same_snapshot(a, b)


def _commit(reader: MetaReader, snapshot: Snapshot) -> Commit:
    entries = reader.delta(snapshot)
    added = [entry.file for entry in entries if entry.kind == ADD]
    removed = [entry.file for entry in entries if entry.kind != ADD]
    if snapshot.commit_kind == COMPACT:
        return Commit(snapshot, None, None, len(added), len(removed))
    retracted = sum(file.delete_row_count or 0 for file in added)
    gone = 0 if snapshot.commit_kind == APPEND else sum(file.row_count for file in removed)
    deleted = retracted + gone if snapshot.rows_deleted is None else snapshot.rows_deleted
    return Commit(snapshot, sum(file.row_count for file in added) - retracted, deleted, len(added), len(removed))


def _most_flushed(table: Table, state: TableState) -> tuple[Bucket, ...]:
    flushed: dict[BucketId, int] = {
        bucket: sum(entry.file.level == 0 for entry in files.entries) for bucket, files in state.live.buckets.items()
    }
    worst = sorted((bucket for bucket, count in flushed.items() if count), key=lambda one: -flushed[one])
    found = []
    for bucket in worst[:_BUCKETS_SHOWN]:
        entries = state.live.buckets[bucket].entries
        directory = table.definition.bucket_directory(*bucket).removeprefix(table.path).strip("/")
        found.append(Bucket(directory, flushed[bucket], len(entries), sum(entry.file.size for entry in entries)))
    return tuple(found)

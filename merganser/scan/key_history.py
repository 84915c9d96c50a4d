"""The history of one key: which commits inserted, changed and removed its row, as far back as snapshots are kept.

The deltas of commits say which of them touched files that may hold the key: by partition, bucket and first key column.
Of a commit that only adds files, these files are then asked whether they have the key at all. The row is read at what
remains, each time from the files that may hold the key, which the deltas give again: the state is read once.

Compactions do not change rows, except where rows show only once they are compacted, or expire in it; then they are
looked at like other commits. Columns are matched by their ids, so that a renamed column has one history. A column that
was added or dropped is no change of a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from itertools import islice
from typing import Final

import pyarrow as pa

from merganser.errors import InvalidInputError
from merganser.expr import build
from merganser.expr.predicate import Predicate
from merganser.expr.tree import Column, Literal
from merganser.meta.data_file import ADD, ManifestEntry
from merganser.meta.followed import as_of
from merganser.meta.key_change import key_ids
from merganser.meta.live_files import EMPTY
from merganser.meta.refs import Tag, TagStore
from merganser.meta.snapshot import ANALYZE, APPEND, COMPACT, Snapshot
from merganser.meta.table_def import TableDef
from merganser.meta.table_state import MetaReader, TableState
from merganser.options import upkeep as u
from merganser.rules.compacting import hides_level_0
from merganser.scan.plan import buckets_through, may_concern, partitions_of, plan
from merganser.scan.scan import Scan
from merganser.scan.source import State
from merganser.scan.split import What
from merganser.schema import types as t
from merganser.storage.env import Env
from merganser.values import dataclass

LOOKUPS_MAX: Final = 200
"""Maximum number of commits at which one call reads the row."""
SNAPSHOTS_MAX: Final = 5_000
"""Maximum number of commits whose deltas one call reads."""
_TAGS_MAX: Final = 50
_TOGETHER: Final = 64
"""Number of commits whose deltas are asked for side by side."""
_FILES_ASKED_MAX: Final = 2_000
"""Maximum number of files whose key ranges are compared. More are kept; reads of them find the same."""

OLDEST: Final = "oldest"
EXPIRED: Final = "expired"
OTHER_KEY: Final = "other key"
BOUND: Final = "bound"


@dataclass(frozen=True, slots=True)
class Version:
    """A row at some time.

    Attributes:
        fields: the columns that the table had then.
        row: one row.
    """

    fields: tuple[t.Field, ...]
    row: pa.Table

    def column(self, field_id: int) -> pa.ChunkedArray | None:
        """Return the value of a column; None if the table did not have it."""
        for number, each in enumerate(self.fields):
            if each.id == field_id:
                return self.row.column(number)
        return None


@dataclass(frozen=True, slots=True)
class Step:
    """What became of the row.

    Attributes:
        snapshot: the commit, or the later one of two states that are compared.
        before, after: the row before and after it; None if there was none.
        tag: the name of the tag that keeps the snapshot, if the snapshot itself has expired.
        since: if the states of several commits were compared, the earlier one; any commit after it can have been it.
    """

    snapshot: Snapshot
    before: Version | None
    after: Version | None
    tag: str | None = None
    since: Snapshot | None = None

    @property
    def kind(self) -> str:
        """Return "inserted", "changed" or "deleted"."""
        return "inserted" if self.before is None else "deleted" if self.after is None else "changed"


@dataclass(frozen=True, slots=True)
class KeyHistory:
    """The history of a key.

    Attributes:
        steps: what became of the row, newest first.
        first: the oldest state that was looked at; None of a table without snapshots.
        at_first: the row in it; None if there was none.
        ends: why nothing older is known. OLDEST: the table has had no snapshot before. EXPIRED: the snapshots before
            have expired. OTHER_KEY: the table had another primary key before. BOUND: the call looked at as many
            commits as it may, or its time was over; older ones are found from `first` on.
        snapshots: the number of commits that were looked at.
        lookups: the number of states that the row was read in.
    """

    steps: tuple[Step, ...]
    first: Snapshot | None
    at_first: Version | None
    ends: str
    snapshots: int
    lookups: int


def key_history(
    table: TableDef,
    env: Env,
    where: Callable[[TableDef], Predicate],
    start: Snapshot | None,
    *,
    seconds: float,
    lookups_max: int = LOOKUPS_MAX,
) -> KeyHistory:
    """Return what became of a key up to a snapshot.

    Args:
        table: a table with a primary key.
        where: returns the condition that selects the key, in the names of a schema of the table.
        start: the newest commit to look at.
        seconds: how long to look for older commits.
        lookups_max: maximum number of commits at which the row is read.

    Raises:
        ExpiredError: a snapshot expired while it was read.
        FormatError: metadata or a file is damaged or missing.
    """
    if start is None:
        return KeyHistory((), None, None, OLDEST, 0, 0)
    return _Search(table, env, where, seconds, lookups_max).found(start)


def key_condition(table: TableDef, texts: Mapping[int, str | None]) -> Predicate:
    """Return the condition that selects a key.

    Args:
        texts: by the id of each key column its value as text, that of a binary column as x'00ff'; None is
            null, which only keys of tables with 'primary-key.nullable' have.

    Raises:
        InvalidInputError: a text is no value of its column; `context["column"]` names the column.
    """
    parts = []
    for field_id, text in texts.items():
        [found] = [each for each in table.schema.fields if each.id == field_id]
        if text is None:
            parts.append(build.is_null(Column((found.name,), found.type)))
            continue
        try:
            value = Literal(text, t.string())
            if isinstance(found.type, t.Binary | t.VarBinary):
                value = Literal(_bytes_of(text), t.VarBinary())
            parts.append(build.compare("=", Column((found.name,), found.type), value))
        except ValueError as error:
            why = error.message if isinstance(error, InvalidInputError) else "it is no text of hexadecimal digits"
            raise InvalidInputError(f"cannot look for {text!r:.60}: {why}", column=found.name) from None
    return Predicate(build.conjunction(parts))


def _bytes_of(text: str) -> bytes:
    """Return the bytes of x'00ff', 0x00ff or 00ff."""
    return bytes.fromhex(text[2:-1] if text[:2] in ("x'", "X'") and text[2:].endswith("'") else text.removeprefix("0x"))


@dataclass(slots=True)
class _Commit:
    """A commit, with what it did to the files that may hold the key.

    Attributes:
        entries: the entries of its delta that may concern the key.
        touches: whether it may have changed the row.
        is_apart: whether the snapshot before it does not lead to it.
    """

    snapshot: Snapshot
    entries: list[ManifestEntry]
    touches: bool
    is_apart: bool = False


@dataclass(slots=True)
class _Search:
    table: TableDef
    env: Env
    where: Callable[[TableDef], Predicate]
    seconds: float
    lookups_max: int
    lookups: int = 0
    _tables: dict[int, TableDef] = field(default_factory=dict)

    def found(self, start: Snapshot) -> KeyHistory:
        commits, base, ends = self._walk(start)
        if base is None and ends == EXPIRED:  # the oldest snapshot is what the others are compared with
            base = commits.pop().snapshot
        before, files = self._begin(base)
        first, at_first, steps = base, before, list[Step]()
        for commit in reversed(commits):
            if commit.is_apart:
                files = self._files(commit.snapshot)
            else:
                _replay(files, commit.entries)
            if not commit.touches:
                continue
            after = self._row(commit.snapshot, files.values())
            if _differ(before, after):
                steps.append(Step(commit.snapshot, before, after))
            before = after
        steps.reverse()
        if ends == EXPIRED and base is not None:
            older, tagged, row = self._tagged(base, at_first)
            steps += older
            first, at_first = (base, at_first) if tagged is None else (tagged, row)
        return KeyHistory(tuple(steps), first, at_first, ends, len(commits) + (base is not None), self.lookups)

    def _walk(self, start: Snapshot) -> tuple[list[_Commit], Snapshot | None, str]:
        """Return the commits to look at, newest first; the state before them, None if it is empty or gone; why no more.

        The last commit is kept whole if the snapshot before it has expired.
        """
        reader, until = self._reader, self.env.seconds() + self.seconds
        key = key_ids(self.table.schema)
        commits: list[_Commit] = []
        touching = 0
        chain = reader.snapshots.from_newest(start)
        while True:
            batch = [*islice(chain, _TOGETHER)]
            deltas = self._deltas(batch)
            for snapshot, entries in zip(batch, deltas, strict=True):
                if commits and snapshot.is_apart:
                    commits[-1].is_apart = commits[-1].touches = True
                if key_ids(self._at(snapshot).schema) != key:
                    return commits, None, OTHER_KEY
                full = touching >= self.lookups_max or len(commits) >= SNAPSHOTS_MAX
                if commits and (full or self.env.seconds() > until):
                    return commits, snapshot, BOUND
                commit = _Commit(snapshot, entries, False)
                commit.touches = self._touches(commit)
                touching += commit.touches
                commits.append(commit)
            if len(batch) < _TOGETHER:
                break
        oldest = commits[-1].snapshot
        return commits, None, OLDEST if oldest.id == 1 else EXPIRED

    def _begin(self, base: Snapshot | None) -> tuple[Version | None, dict[tuple[object, ...], ManifestEntry]]:
        if base is None:
            return None, {}
        files = self._files(base)
        return self._row(base, files.values()), files

    def _tagged(self, kept: Snapshot, row: Version | None) -> tuple[list[Step], Snapshot | None, Version | None]:
        """Return what became of the row between tags of expired snapshots, newest first, the oldest and its row."""
        tags: dict[int, Tag] = {}
        for tag in TagStore(self.table.paths, self.env, self.table.name).list():
            if tag.snapshot.id < kept.id and key_ids(self._at(tag.snapshot).schema) == key_ids(self.table.schema):
                tags[tag.snapshot.id] = tag
        steps: list[Step] = []
        later, name, oldest = kept, "", None
        for number in sorted(tags, reverse=True)[:_TAGS_MAX]:
            oldest = tags[number].snapshot
            before = self._row(oldest, self._files(oldest).values())
            if _differ(before, row):
                steps.append(Step(later, before, row, name or None, oldest))
            row, later, name = before, oldest, tags[number].name
        return steps, oldest, row

    # files

    @property
    def _reader(self) -> MetaReader:
        return MetaReader(self.table.paths, self.env, self.table.name)

    def _at(self, snapshot: Snapshot) -> TableDef:
        found = self._tables.get(snapshot.schema_id)
        if found is None:
            found = self._tables[snapshot.schema_id] = as_of(self.table, self.env, snapshot.schema_id)
        return found

    def _deltas(self, snapshots: Sequence[Snapshot]) -> list[list[ManifestEntry]]:
        """Return the entries of each commit that may concern the key."""
        lists = self._reader.delta_lists(snapshots)
        decoded = iter(self._reader.entries_of_each([each for manifests in lists for each in manifests]))
        return [self._concerned([e for _ in manifests for e in next(decoded)]) for manifests in lists]

    def _files(self, snapshot: Snapshot) -> dict[tuple[object, ...], ManifestEntry]:
        """Return the files of a state that may hold the key."""
        live = self._reader.state(snapshot).live
        where = self.where(self.table)
        chosen = buckets_through(self.table, partitions_of(self.table, live, where), where)
        entries = [entry for _, files in chosen for entry in files.entries]
        return {entry.identity: entry for entry in self._by_key(entries, where)}

    def _concerned(self, entries: Sequence[ManifestEntry]) -> list[ManifestEntry]:
        """Return those of the entries of a delta whose files may hold the key."""
        where = self.where(self.table)
        kept: set[tuple[int, tuple[object, ...]]] = set()
        for kind in {entry.kind for entry in entries}:  # a file may be removed from one level and added to another
            some = [replace(entry, kind=ADD) for entry in entries if entry.kind == kind]
            live = EMPTY.apply(some, source=f"'{self.table.name}'")
            chosen = buckets_through(self.table, partitions_of(self.table, live, where), where)
            kept |= {(kind, entry.identity) for _, files in chosen for entry in files.entries}
        return self._by_key([entry for entry in entries if (entry.kind, entry.identity) in kept], where)

    def _by_key(self, entries: list[ManifestEntry], where: Predicate) -> list[ManifestEntry]:
        if len(entries) > _FILES_ASKED_MAX:
            return entries
        return [entry for entry in entries if may_concern(self.table, entry, where)]

    # rows

    def _touches(self, commit: _Commit) -> bool:
        """Return whether a commit may have changed the row."""
        snapshot, table = commit.snapshot, self._at(commit.snapshot)
        if not commit.entries or snapshot.commit_kind == ANALYZE:
            return False
        adds_only = all(entry.kind == ADD for entry in commit.entries)
        if hides_level_0(table.options) or table.options.get(u.RECORD_LEVEL_EXPIRE_TIME) is not None:
            return True
        if snapshot.commit_kind == COMPACT:
            return any(entry.bucket < 0 for entry in commit.entries)  # rows that waited for their buckets
        if snapshot.commit_kind != APPEND or not adds_only:
            return True
        key = [each for each in table.schema.fields if each.name in table.row_key]
        return bool(self._read(snapshot, commit.entries, key, What.STORED).num_rows)

    def _row(self, snapshot: Snapshot, entries: Iterable[ManifestEntry]) -> Version | None:
        """Return the row of the key among the rows of some files."""
        self.lookups += 1
        fields = self._at(snapshot).schema.user_fields
        rows = self._read(snapshot, entries, fields, What.MERGED)
        return Version(tuple(fields), rows.slice(0, 1)) if rows.num_rows else None

    def _read(
        self, snapshot: Snapshot, entries: Iterable[ManifestEntry], fields: Sequence[t.Field], what: What
    ) -> pa.Table:
        table = self._at(snapshot)
        where = self.where(table)
        scan = Scan(table, self.env, tuple(fields), where, State(snapshot), what=what)
        state = TableState(snapshot, EMPTY.apply(entries, source=f"snapshot {snapshot.id} of '{table.name}'"))
        with scan.unless_expired(snapshot):
            found = plan(table, self.env, state, columns=scan.columns, where=where, what=what)
            return pa.Table.from_batches([*scan.batches_of(lambda: found)], scan.schema)


def _replay(files: dict[tuple[object, ...], ManifestEntry], entries: Iterable[ManifestEntry]) -> None:
    for entry in entries:
        if entry.kind == ADD:
            files[entry.identity] = entry
        else:
            files.pop(entry.identity, None)


def _differ(before: Version | None, after: Version | None) -> bool:
    if before is None or after is None:
        return before is not after
    return bool(changed_columns(before, after))


def changed_columns(before: Version, after: Version) -> list[t.Field]:
    """Return the columns of the later row whose values changed."""
    return [each for each, old in ((f, before.column(f.id)) for f in after.fields) if _is_other(old, after, each)]


def _is_other(old: pa.ChunkedArray | None, after: Version, each: t.Field) -> bool:
    new = after.column(each.id)
    assert new is not None, each
    if old is None:
        return bool(new.null_count == 0)
    if old.type != new.type:
        return bool(old.to_pylist() != new.to_pylist())
    same = bool(old.equals(new)) or repr(old.to_pylist()) == repr(new.to_pylist())  # NaN is not equal to itself
    return not same

"""ShardReader: the records of the shards of a table, from a position on, a page at a time.

A page goes on in files that the page before has opened, if this process has it still; else it opens them again and
passes over the rows that were read. So pages of any size cost as much as their rows. What a page holds depends on its
position and on the table alone. Records are made of many rows at once, and a page takes what it may have of them.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final, TypeAlias

import pyarrow as pa

from merganser.commit.committers import WRITER
from merganser.errors import ExpiredError, FormatError, MerganserError, NotFoundError, TrimmedDataError
from merganser.meta.changelogs import ChangelogStore
from merganser.meta.data_file import ADD
from merganser.meta.erased import KINDER_ERASURE, erasure_of
from merganser.meta.lineage import last_rescale
from merganser.meta.shard_store import ShardStore
from merganser.meta.shard_stream import ShardStream
from merganser.meta.shards import Shard, Shards
from merganser.meta.snapshot import APPEND, OVERWRITE, Snapshot, same_snapshot
from merganser.meta.snapshots import SnapshotStore
from merganser.meta.table_def import TableDef
from merganser.meta.table_state import MetaReader
from merganser.meta.tracking import left_out
from merganser.options import read as r
from merganser.options import write as w
from merganser.scan.forms import columns_of
from merganser.scan.gaps import gap_of, refusal
from merganser.scan.plan_changes import from_changelog
from merganser.scan.source import Published, takes_rows
from merganser.scan.split import What
from merganser.schema import types as t
from merganser.schema.arrow import arrow_schema
from merganser.schema.table_schema import CHANGE_KIND
from merganser.shards.iterator import Place
from merganser.shards.pieces import Cursor, Gathered, Piece
from merganser.shards.records import Shape, record_table
from merganser.storage.env import Env
from merganser.stream.batches import Part, TableBatches
from merganser.values import dataclass

_Known: TypeAlias = dict[int, Snapshot]
_CURSORS_MAX: Final = 256
_CURSORS_BYTES: Final = 256 << 20
"""So much memory rows and records take that pages have left over."""
_NEWS_MAX: Final = 64
_SNAPSHOTS_MAX: Final = 1024
"""So many snapshots without records a page passes before it returns; the next one goes on behind them."""


@dataclass(frozen=True)
class Page:
    """Records of a shard.

    Attributes:
        records: in their order.
        next: where the next page begins.
        ended: the shard is closed, and all of it was read.
        more: whether there was more to read already.
    """

    records: pa.Table
    next: Place
    ended: bool
    more: bool


class ShardReader:
    """Reads the shards of one stream of a table.

    Args:
        table: the table with its newest schema.
        columns: of the table, to read; those of the key are among them. None: all.
    """

    def __init__(
        self, table: TableDef, env: Env, stream: ShardStream, columns: Sequence[t.Field] | None = None
    ) -> None:
        given = {r.STREAMING_READ_OVERWRITE.key: "true", r.CHANGE_TRACKING_GAPS.key: "skip", r.CONSUMER_ID.key: None}
        self.table = replace(table, options=table.options.merged(given))
        self.env = env
        self.stream = stream
        self.store = ShardStore(table, env, stream)
        self._columns = columns_of(What.CHANGED, self.table)
        if columns is not None:
            self._columns = (CHANGE_KIND, *columns)
        self._snapshots = SnapshotStore(table.paths, env, table.name)
        self._changelogs = ChangelogStore(table.paths, env)
        self._meta = MetaReader(table.paths, env, table.name)
        self._batches = self._new_batches()
        self._planned: dict[int, str] = {}
        fields = arrow_schema(self._columns)
        self.empty = pa.schema([field.with_nullable(True) for field in fields]).empty_table()
        self._cursors: OrderedDict[tuple[Place, Shape], Cursor] = OrderedDict()
        self._lines: dict[str, list[Shard]] = {}
        self._lines_of: tuple[Shards, int] | None = None
        self._none: dict[Shape, pa.Table] = {}
        self._lock = threading.Lock()
        self._plan_lock = threading.Lock()

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of the table that are read."""
        return tuple(field.name for field in self._columns[1:])

    def newest(self) -> Snapshot | None:
        """Return the newest snapshot."""
        return self._snapshots.latest()

    def idle(self, place: Place, newest: Snapshot | None) -> bool:
        """Return whether a position is behind all records of an open shard, as of the newest snapshot.

        It looks at memory alone and never waits. False may also mean that this is not known: `page` finds out.
        """
        return (
            newest is not None
            and (place.snapshot, place.row, place.read_ms) == (newest.id + 1, 0, newest.time_millis)
            and self.store.is_open(place.shard_id, newest) is True
        )

    def no_records(self, shape: Shape) -> pa.Table:
        """Return a page without records, as most polls do."""
        found = self._none.get(shape)
        if found is None:
            found = self._none[shape] = record_table([], shape, self.empty)[0]
        return found

    def page(self, place: Place, limit: int, shape: Shape, *, skip_gaps: bool) -> Page:
        """Return records from a position on.

        Args:
            limit: most of them.
            skip_gaps: go on behind commits that published nothing.

        Raises:
            TrimmedDataError: the position is older than the retention, or lies in a history that a rollback removed.
            UntrackedError: a commit published no changes.
            FormatError: metadata or data is damaged or missing.
        """
        newest = self.newest()
        if self.idle(place, newest):
            return Page(self.no_records(shape), place, ended=False, more=False)
        known: _Known = {} if newest is None else {newest.id: newest}
        self._check_history(place, newest, known)
        shard, end = self._bounds(place, newest, known)
        if place.snapshot < end:  # else it has nothing more to read, and nothing can be missing
            self._check_retention(place, newest, known)
        found = Gathered(shape, self.empty)
        at = place
        last = min(end, place.snapshot + _SNAPSHOTS_MAX)
        while (room := limit - found.count) and at.snapshot < last:
            cursor = self._cursor(at, shard, shape, known, skip_gaps=skip_gaps)
            if cursor is None:
                at = self._behind(at, known)
                continue
            try:
                while (room := limit - found.count) and (taken := cursor.take(room)) is not None:
                    found.add(taken)
                done = cursor.is_done()
            except FormatError as error:
                raise self.lost(at.snapshot, error) from error
            if done:
                at = self._behind(at, known)
            else:
                at = replace(at, row=cursor.row, read_ms=cursor.time_ms)
                self._keep(at, shape, cursor)
        ended = shard.closed is not None and at.snapshot >= end
        records = found.table() if found.count else self.no_records(shape)
        return Page(records, at, ended, at.snapshot < end)

    def pieces(self, snapshot: Snapshot, newest: Snapshot | None, *, skip_gaps: bool) -> list[Piece]:
        """Return what a snapshot published in all shards: of an overwrite, first the shards that it closed.

        Args:
            newest: the newest snapshot that the caller knows, which is not older.
            skip_gaps: return nothing of what an overwrite removed, if the snapshot before it has expired.

        Raises:
            TrimmedDataError: the snapshot is older than the retention.
            FormatError: metadata is damaged or missing.
        """
        if self._is_before(snapshot):
            return []
        if snapshot.time_millis < self._horizon_ms():
            raise self._trimmed(snapshot.id)
        found: dict[tuple[str, str | None], list[Part]] = {}
        for part in self._parts(snapshot, None, skip_gaps=skip_gaps):
            found.setdefault((part.directory, None if part.form is None else part.form.kind), []).append(part)
        with self.store.lock:
            shards = self.store.up_to(newest)
            owners = [self._shard_of(parts[0], snapshot, shards) for parts in found.values()]
        of_shards: dict[str, tuple[Shard, list[Part]]] = {}
        for shard, parts in zip(owners, found.values(), strict=True):
            if shard is not None:
                of_shards.setdefault(shard.id, (shard, []))[1].extend(parts)
        return [Piece(shard, snapshot.id, snapshot.time_millis, tuple(parts)) for shard, parts in of_shards.values()]

    def pieces_of(self, number: int, newest: Snapshot | None) -> list[Piece]:
        """Return what a snapshot published in all shards, as far as it is there still."""
        snapshot = self._kept(number)
        try:
            return [] if snapshot is None else self.pieces(snapshot, newest, skip_gaps=True)
        except TrimmedDataError:
            return []

    def news(self, after: Snapshot, newest: Snapshot, *, skip_gaps: bool) -> set[str] | None:
        """Return the ids of the shards that snapshots have records of.

        Args:
            after: the snapshot before them.
            newest: the last of them.

        Returns:
            None if it is not known: there are too many snapshots, or a reader of the shards will get an error.
        """
        kept = self._kept(after.id)
        if kept is None or not same_snapshot(kept, after) or not after.id < newest.id <= after.id + _NEWS_MAX:
            return None
        found: set[str] = set()
        for number in range(after.id + 1, newest.id + 1):
            snapshot = self._kept(number)
            if snapshot is None:
                return None
            try:
                if not skip_gaps:
                    self.refuse_gap(snapshot)
                found.update(piece.shard.id for piece in self.pieces(snapshot, newest, skip_gaps=skip_gaps))
            except (ExpiredError, NotFoundError, FormatError):
                return None
        return found

    def closed_among(self, shard_ids: Iterable[str], newest: Snapshot) -> set[str]:
        """Return those of some shards that are closed, or trimmed."""
        with self.store.lock:
            shards = self.store.up_to(newest)
            return {each for each in shard_ids if (found := shards.get(each)) is None or found.closed is not None}

    def behind_all(self, shard_id: str, newest: Snapshot) -> Place | None:
        """Return the position of an open shard behind a snapshot; None: it is closed."""
        with self.store.lock:
            shard = self.store.up_to(newest).get(shard_id)
        if shard is None or shard.closed is not None:
            return None
        return Place(self.stream.id, shard_id, newest.id + 1, 0, newest.time_millis)

    def refuse_gap(self, snapshot: Snapshot, shard: Shard | None = None) -> None:
        """Refuse to go on behind a commit that did not log what it changed in a shard, or in any.

        Raises:
            UntrackedError: it is such a commit.
        """
        changelog = from_changelog(self.table, Published(snapshot.id, snapshot.id))
        if snapshot.commit_kind == OVERWRITE:  # the records are made of the files that it removed and added
            partitions = left_out(snapshot)
        else:
            partitions = gap_of(self.table, self.env, snapshot, None, changelog=changelog)
        if partitions == frozenset() and changelog:
            partitions = self._unlogged(snapshot, shard)
        concerned = partitions if partitions is None or shard is None else {shard.partition} & partitions
        if concerned is None or concerned:
            raise refusal(
                self.table,
                self.env,
                f"cannot read records of '{self.table.name}'",
                snapshot,
                partitions,
                following=True,
            )

    def check_kept(self, place: Place, newest: Snapshot | None) -> None:
        """Refuse a position that the table has no records behind any more.

        Raises:
            TrimmedDataError: it is older than the retention, or lies in a history that a rollback removed.
        """
        self._check_history(place, newest, None)
        self._check_retention(place, newest, None)

    def first_kept(self) -> int:
        """Return the oldest snapshot whose records can be read: of the stream, there still, and not too old."""
        newest = self.newest()
        if newest is None:
            return self.stream.after + 1
        return self.first_since(int(self._horizon_ms()), self.stream.after + 1, newest.id)

    def first_since(self, millis: int, low: int, newest: int) -> int:
        """Return the first of the snapshots `low` to `newest` that was committed at a time or later, else the next."""
        high = newest + 1
        while low < high:
            middle = (low + high) // 2
            found = self._kept(middle)
            if found is not None and found.time_millis >= millis:
                high = middle
            else:
                low = middle + 1
        return low

    def place(self, shard: Shard, number: int) -> Place:
        """Return the position before the records of a snapshot."""
        before = self._kept(number - 1) if number > 1 else None
        return Place(self.stream.id, shard.id, number, 0, -1 if before is None else before.time_millis)

    def behind(self, shard: Shard, newest: Snapshot | None) -> int:
        """Return the snapshot after the last one that the shard may have records of."""
        if shard.closed is None:
            return (self.stream.after if newest is None else newest.id) + 1
        return shard.closed + 1

    # parts of a page

    def _new_batches(self) -> TableBatches:
        return TableBatches(self.table, self.env, what=What.CHANGED, columns=self._columns, where=None, by_bucket=True)

    def _check_history(self, place: Place, newest: Snapshot | None, known: _Known | None) -> None:
        """Refuse a position in a history that a rollback removed."""
        if place.read_ms < 0:
            return
        there = self._kept(place.last_read, known)
        gone = there is None and place.last_read > (0 if newest is None else newest.id)
        if gone or (there is not None and there.time_millis != place.read_ms):
            raise self._rolled_back(
                f"the table was rolled back behind snapshot {place.last_read}, which this reader has read", place
            )

    def _check_retention(self, place: Place, newest: Snapshot | None, known: _Known | None) -> None:
        if newest is None or place.snapshot > newest.id:
            return
        found = self._kept(place.snapshot, known)
        if found is None or found.time_millis < self._horizon_ms():
            raise self._trimmed(place.snapshot)

    def _bounds(self, place: Place, newest: Snapshot | None, known: _Known) -> tuple[Shard, int]:
        with self.store.lock:
            shard = self.store.up_to(newest).get(place.shard_id)
        if shard is None:
            self._check_retention(place, newest, known)  # a shard is forgotten when its last records are trimmed
            raise self._rolled_back(
                f"the stream has no shard '{place.shard_id}': the table was rolled back behind the commit that opened "
                "it, or snapshots and the files of the stream were lost",
                place,
            )
        return shard, self.behind(shard, newest)

    def _rolled_back(self, fact: str, place: Place) -> TrimmedDataError:
        return TrimmedDataError(
            f"cannot read records of '{self.table.name}': {fact}. Nothing was read. Undo what came from the snapshots "
            "that were removed, and ask for a new iterator.",
            table=self.table.name,
            snapshot=place.last_read,
            shard=place.shard_id,
        )

    def _horizon_ms(self) -> float:
        return self.env.now_ms() - self.stream.retention.total_seconds() * 1000

    def _kept(self, number: int, known: _Known | None = None) -> Snapshot | None:
        """Return a snapshot, or its changelog where it has expired; None: nothing of it is there.

        Args:
            known: the snapshots that one page has looked at, each of them once.
        """
        found = None if known is None else known.get(number)
        if found is None:
            found = self._snapshots.get(number) or self._changelogs.get(number)
            if known is not None and found is not None:
                known[number] = found
        return found

    def _behind(self, place: Place, known: _Known) -> Place:
        """Return the position behind a snapshot."""
        found = self._kept(place.snapshot, known)
        return replace(place, snapshot=place.snapshot + 1, row=0, read_ms=-1 if found is None else found.time_millis)

    def _keep(self, at: Place, shape: Shape, cursor: Cursor) -> None:
        with self._lock:
            self._cursors[at, shape] = cursor
            self._cursors.move_to_end((at, shape))
            held = sum(each.size_bytes for each in self._cursors.values())
            while len(self._cursors) > _CURSORS_MAX or (held > _CURSORS_BYTES and len(self._cursors) > 1):
                held -= self._cursors.popitem(last=False)[1].size_bytes

    def _cursor(self, at: Place, shard: Shard, shape: Shape, looked: _Known, *, skip_gaps: bool) -> Cursor | None:
        """Return what the shard has of a snapshot from a position on; None: nothing."""
        with self._lock:
            known = self._cursors.pop((at, shape), None)
        if known is not None:
            return known
        snapshot = self._kept(at.snapshot, looked)
        if snapshot is None:
            raise self._trimmed(at.snapshot)
        if self._is_before(snapshot):
            return None
        if not skip_gaps:
            self.refuse_gap(snapshot, shard)
        parts = self._parts_in(snapshot, shard, self._parts(snapshot, shard, skip_gaps=skip_gaps))
        if not parts:
            return None
        piece = Piece(shard, snapshot.id, snapshot.time_millis, parts)
        return piece.cursor(self.env.storage, shape, self.empty, skipped=at.row)

    def _is_before(self, snapshot: Snapshot) -> bool:
        """Return whether a snapshot was committed while the stream was being enabled: then it is not in it.

        Later on merganser's writers know the stream. Writers of other engines may know the schema before for long.
        """
        ours = (snapshot.writer_version or "").startswith(WRITER)
        return ours and snapshot.schema_id < self.stream.schema_id

    def _parts(self, snapshot: Snapshot, shard: Shard | None, *, skip_gaps: bool) -> list[Part]:
        """Return what a snapshot published, in order: all that is of a shard, or of any."""
        with self._plan_lock:
            if self._planned.get(snapshot.id, snapshot.delta_manifest_list) != snapshot.delta_manifest_list:
                self._batches = self._new_batches()  # after a rollback another snapshot has the number
                self._planned.clear()
            self._planned[snapshot.id] = snapshot.delta_manifest_list
            self._planned.pop(snapshot.id - _SNAPSHOTS_MAX, None)
            opened = shard is not None and shard.is_opened_by(snapshot.id)  # what is taken away, others had
            try:
                return self._batches.added(snapshot.id) if opened else self._batches.published(snapshot.id)
            except (ExpiredError, NotFoundError, FormatError) as error:
                lost = self.lost(snapshot.id, error)
                if not skip_gaps or not isinstance(lost, TrimmedDataError):
                    raise lost from error
            with suppress(ExpiredError, NotFoundError, FormatError):
                return self._batches.added(snapshot.id)
            return []

    def _parts_in(self, snapshot: Snapshot, shard: Shard, every: Sequence[Part]) -> tuple[Part, ...]:
        """Return those of the parts that a snapshot published which are records of a shard."""
        if not shard.partition:
            return ()  # they were erased
        directory = self.table.bucket_directory(shard.partition, shard.bucket)
        closes = shard.closed == snapshot.id
        mine = (part for part in every if part.directory == directory)
        opened = shard.is_opened_by(snapshot.id)
        if snapshot.commit_kind == OVERWRITE and (closes or opened):
            return tuple(part for part in mine if part.form is not None and (part.form.kind == "-D") == closes)
        rescales = last_rescale(snapshot) == snapshot.id
        if opened if rescales else closes:
            return ()  # what a rescale publishes lies in the buckets that it closes, and rows in those that are there
        return tuple(mine)

    def _shard_of(self, part: Part, snapshot: Snapshot, shards: Shards) -> Shard | None:
        """Return the shard whose records a part holds; None: no shard, since the rows wait for their buckets."""
        if self._lines_of != (shards, shards.changes):
            self._lines = {}
            for shard in (one for one in shards if one.partition):
                directory = self.table.bucket_directory(shard.partition, shard.bucket)
                self._lines.setdefault(directory, []).append(shard)
            self._lines_of = (shards, shards.changes)
        for shard in reversed(self._lines.get(part.directory, ())):
            reaches = shard.closed is None or snapshot.id <= shard.closed
            if reaches and shard.opened <= snapshot.id and self._parts_in(snapshot, shard, [part]):
                return shard
        return None

    def _trimmed(self, number: int) -> TrimmedDataError:
        erasure = erasure_of(self.table.paths, self.env, number)
        if erasure is None:
            why = f"the stream keeps records for {self.stream.retention}: those of"
            longer = "enable_stream with a longer retention keeps more."
        else:
            why = f"{erasure} ended it, so the reader may not know which rows are gone. The stream has the records of"
            longer = KINDER_ERASURE
        return TrimmedDataError(
            f"cannot read records of '{self.table.name}': the position is at snapshot {number}, and {why} snapshot "
            f"{self.first_kept()} and later ones. Nothing was read. Read the table, and go on with an iterator at "
            f"'trim_horizon'. {longer}",
            table=self.table.name,
            snapshot=number,
        )

    def lost(self, number: int, error: MerganserError) -> MerganserError:
        """Return the error of a reader that did not find what a snapshot published: it may have expired meanwhile."""
        snapshot = self._kept(number)
        if snapshot is None:
            return self._trimmed(number)
        if self._snapshots.get(number - 1) is not None or not takes_rows(self.table, snapshot, self._kept(number - 1)):
            return error
        return TrimmedDataError(
            f"cannot read records of '{self.table.name}': snapshot {number} took rows away, and they have expired with "
            "the snapshot before it. merganser keeps that one for the retention of the stream; another engine has "
            "removed it. Nothing was read. Read the state of the partition, and go on behind it with gaps='skip'. "
            f"({error})",
            table=self.table.name,
            snapshot=number,
        )

    def _unlogged(self, snapshot: Snapshot, shard: Shard | None) -> frozenset[bytes]:
        """Return where another engine, which does not know of the stream, added rows without logging them.

        A commit of merganser that logs nothing has changed nothing.
        """
        if (
            snapshot.commit_kind != APPEND
            or (snapshot.writer_version or "").startswith(WRITER)
            or snapshot.changelog_manifest_list
            or self.table.options.get(w.CHANGELOG_PRODUCER) != "input"
        ):
            return frozenset()
        added = (entry for entry in self._meta.delta(snapshot) if entry.kind == ADD)
        place = None if shard is None else (shard.partition, shard.bucket)
        return frozenset(entry.partition for entry in added if place in (None, (entry.partition, entry.bucket)))

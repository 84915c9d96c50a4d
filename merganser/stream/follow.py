"""TableStream: follows a table snapshot by snapshot, from a start on, and hands over what each published.

    start -> the state it begins with, or none -> what snapshot n published -> what n + 1 published -> ...

A stream that has caught up looks for the next snapshot once per discovery interval: one small read, of the hint. Its
position is the next snapshot. A consumer keeps it in the table, so that expiry waits for the reader; it moves on when
the caller comes back for more, and so has what was handed over before.

Semantics: "start modes", "streaming".
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from merganser.commit.log import is_eventual
from merganser.errors import ConflictError, InvalidInputError
from merganser.expr.predicate import Predicate
from merganser.meta.consumers import ConsumerStore, check_consumer_id, stays_known_ms
from merganser.meta.data_file import ADD, DELETE
from merganser.meta.followed import as_of, with_key_of
from merganser.meta.snapshot import OVERWRITE, Snapshot
from merganser.meta.snapshots import SnapshotStore
from merganser.meta.table_def import TableDef
from merganser.options import read as r
from merganser.rules.compacting import newest_counts, publishes_by_compaction
from merganser.scan.changes import Changes, gap, rows_as, visible
from merganser.scan.forms import WHOLE_CHANGES, columns_of
from merganser.scan.gaps import Gap, gap_of, refusal
from merganser.scan.overwrites import is_replaced
from merganser.scan.plan_changes import from_changelog
from merganser.scan.rows import with_schema
from merganser.scan.source import Exchanged, MadeSince, Published, Source, State
from merganser.scan.split import What
from merganser.scan.time_travel import epoch_ms
from merganser.schema.arrow import arrow_schema
from merganser.schema.table_schema import CHANGE_KIND
from merganser.storage.env import Env
from merganser.stream.line import Line, check_columns_stay
from merganser.stream.shown import Shown
from merganser.stream.starts import start_of
from merganser.stream.waiting import Waiting
from merganser.values import dataclass

if TYPE_CHECKING:
    from merganser.log.tail import LogCommit


@dataclass(frozen=True)
class Bounds:
    """Where a stream ends; None: nowhere.

    Attributes:
        snapshot: the last snapshot.
        time_ms: commits later than this are left out.
        watermark: it ends before the first snapshot with a later one.
    """

    snapshot: int | None = None
    time_ms: int | None = None
    watermark: int | None = None

    def end_before(self, snapshot: Snapshot) -> bool:
        """Return whether a snapshot lies behind the end."""
        later = self.time_ms is not None and snapshot.time_millis > self.time_ms
        marked = snapshot.watermark is not None and self.watermark is not None and snapshot.watermark > self.watermark
        return later or marked or (self.snapshot is not None and snapshot.id > self.snapshot)


def bounds_of(table: TableDef, until: int | datetime | str | None, zone: tzinfo) -> Bounds:
    """Return where a stream ends: at `until`, a snapshot id or a time (text is in `zone`), and where the options say.

    Raises:
        InvalidInputError: it is neither.
    """
    watermark = table.options.get(r.SCAN_BOUNDED_WATERMARK)
    if until is None:
        return Bounds(watermark=watermark)
    if isinstance(until, datetime | str):
        return Bounds(time_ms=epoch_ms(until, zone), watermark=watermark)
    if isinstance(until, bool) or not isinstance(until, int) or until < 0:
        raise InvalidInputError(
            f"cannot follow '{table.name}': until is {until!r:.50}. Give the id of a snapshot, or a time."
        )
    return Bounds(snapshot=until, watermark=watermark)


class TableStream(Iterator[pa.Table | Gap]):
    """An iterator over what a table publishes: one Arrow table per plan that has rows, `_row_kind` first.

    Get one from `Table.stream`.

    Args:
        table: the table; its options say where to start.
        follow: wait for more once it has caught up; else it ends there.
        consumer: the name under which it keeps its position; None: it keeps none.
        what: the form of the changes.
        columns: names of the columns to return; None: all, also those that are added later.
        where: makes the filter of the rows to hand over for some columns: those of the table, now and after a change.

    Raises:
        InvalidInputError: an argument or option that a stream does not have.
        NotFoundError, ExpiredError: there is no such start, or no longer.
    """

    def __init__(
        self,
        table: TableDef,
        env: Env,
        *,
        follow: bool,
        consumer: str | None,
        what: What,
        columns: Sequence[str] | None,
        where: Callable[[TableDef], Predicate | None],
        bounds: Bounds,
    ) -> None:
        action = f"cannot follow '{table.name}'"
        self._table = replace(table, options=table.options.merged({r.CHANGE_TRACKING_GAPS.key: "skip"}))
        self._env = env
        self._follow = follow
        self._what = what
        self._gaps = table.options.get(r.CHANGE_TRACKING_GAPS)
        self._gap: Gap | None = None  # to be handed over next
        self._columns = None if columns is None else tuple(columns)
        self._filter = where
        self._where = where(table)
        self._bounds = bounds
        self._consumers = ConsumerStore(table.paths, env, table.name)
        self._consumer = consumer if consumer is not None else table.options.get(r.CONSUMER_ID)
        if self._consumer is not None:
            check_consumer_id(self._consumer, what=action)
        self._line = Line(self._table, env, self._consumer)
        plain = what is What.CHANGED and table.options.get(r.STREAMING_READ_SNAPSHOT_DELAY) is None
        self._initial: State | MadeSince | None = None
        position = None
        if self._consumer is not None and not table.options.get(r.CONSUMER_IGNORE_PROGRESS):
            position = self._consumers.start(self._consumer)
        if position is None:
            start = start_of(self._table, env, what, action)
            self._initial, self._next = start.state, start.next
        else:
            self._next = max(1, position)
        if self._initial is not None:
            self._line.last = self._initial.snapshot
        elif self._next > 1:  # to notice a rollback
            self._line.last = self._line.there(self._next - 1)
        self._shown = Shown(table, env, resumed=position is not None) if plain and is_eventual(table) else None
        shown = self._shown
        if shown is not None and table.options.get(r.STREAMING_READ_OVERWRITE) is None:
            # readers come to what the table has, so they are told what an overwrite removed
            told = {r.STREAMING_READ_OVERWRITE.key: "true"}
            self._table = replace(self._table, options=self._table.options.merged(told))
        line = self._line  # not this stream: it ends with its last reference, and so do its clients
        since_ms = None if shown is None else lambda: shown.since_ms(line.last)
        # Without the values of -U and -D, sums of its readers would be wrong, and a filter would lose deletes.
        filtered = self._where is not None and not self._where.columns <= {*table.schema.primary_keys, CHANGE_KIND.name}
        exact = not newest_counts(table.options) or (filtered and shown is None)
        self._waiting = Waiting(table, env, listens=follow and plain, exact=exact, since_ms=since_ms)
        self._running = threading.Lock()
        self._is_closed = False
        self._kept: int | None = None
        self._kept_ms = 0
        if self._consumer is not None and self._initial is None:  # of a state that is half read nothing is kept
            self._keep(self._next)

    @property
    def next_snapshot(self) -> int:
        """The id of the snapshot that is looked at next."""
        return self._next

    def __iter__(self) -> TableStream:
        return self

    def __enter__(self) -> TableStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the stream and its client of the log, if the table has a log. `next` then raises StopIteration.

        A consumer keeps its position, which counts the last plan as not done. If another thread is in `next`, the
        stream ends when that returns: within a second while it waits for the log, or at its next look at the files.
        """
        self._is_closed = True
        self._waiting.end()
        if self._running.acquire(blocking=False):
            try:
                self._waiting.close()
            finally:
                self._running.release()

    def __next__(self) -> pa.Table | Gap:
        """Return the next plan that has rows; a gap after the rows of its snapshot, where gaps are marked.

        Raises:
            StopIteration: the stream has come to its end.
            ExpiredError: snapshots that were not read yet have expired; says how many.
            ConflictError: the table was rolled back behind what was read.
            NotFoundError: the table was dropped.
            FormatError: a file is damaged or missing.
        """
        try:
            with self._running:
                return self._next_plan()
        except BaseException:
            self._waiting.close()  # a reader that goes on subscribes again
            raise
        finally:
            if self._is_closed:  # by another thread
                self.close()

    def _next_plan(self) -> pa.Table | Gap:
        if self._is_closed:
            raise StopIteration
        if self._initial is not None:
            found = self._state(self._visible(self._table, self._initial))
            self._initial = None  # not before: a read that failed is repeated
            if found.num_rows:
                return found
        if self._gap is not None:
            marked, self._gap = self._gap, None
            return marked
        if self._consumer is not None and self._kept != self._next:
            self._line.check_unbroken()  # a rollback moves consumers back, and they stay there
            self._keep(self._next)
        if self._line.last is not None and self._bounds.end_before(self._line.last):  # so do all that come
            raise StopIteration
        while True:
            snapshot, logged = self._awaited()
            if snapshot is None and self._has_uncommitted:
                found = self._uncommitted()
                if found.num_rows:
                    return found
                continue
            if snapshot is None or self._bounds.end_before(snapshot):
                raise StopIteration
            gap = None
            if logged is not None:
                found = self._logged(snapshot, logged)
            else:
                found = self._published(snapshot)
                gap = self._gap_at(snapshot)  # not before: what an overwrite replaced may expire while it is read
            if self._shown is not None:
                found = self._asked(self._shown.committed(self._current(snapshot), found, snapshot, self._next - 1))
            self._line.last = snapshot
            self._next = snapshot.id + 1
            if found.num_rows:
                self._gap = gap
                return found
            if gap is not None:
                return gap
            if self._consumer is not None:
                self._keep(self._next)

    def _awaited(self) -> tuple[Snapshot | None, LogCommit | None]:
        """Return the next snapshot, when it is there, and its rows if the log has them.

        None: the stream ends, or there are rows that are not committed.
        """
        interval_ms = self._table.options.get(r.CONTINUOUS_DISCOVERY_INTERVAL).total_seconds() * 1000
        delay = self._table.options.get(r.STREAMING_READ_SNAPSHOT_DELAY)
        delay_ms = 0 if delay is None else delay.total_seconds() * 1000
        while not self._is_closed:
            if self._bounds.snapshot is not None and self._next > self._bounds.snapshot:
                return None, None
            if self._waiting.looks:
                found = self._line.get(self._next, waits=self._follow)
                if found is not None and self._env.now_ms() - found.time_millis >= delay_ms:
                    return found, None
                if not self._follow:
                    return None, None
                if self._waiting.may_be_rolled_back:
                    self._line.check_unbroken()
                self._waiting.looked(interval_ms)
            self._stay_known()
            logged = self._waiting.wait(self._next, interval_ms)
            if logged is not None:
                return logged.mark.shown(), logged
            if self._has_uncommitted:
                return None, None
        raise StopIteration

    @property
    def _has_uncommitted(self) -> bool:
        """Whether there are rows that are not committed to hand over, or to take back."""
        return self._shown is not None and (self._waiting.has_flushed or self._shown.has_late)

    def _uncommitted(self) -> pa.Table:
        """Return what changes with rows that are not committed."""
        assert self._shown is not None
        position = self._next - 1
        if self._waiting.has_flushed:
            return self._asked(self._shown.flushed(self._waiting.flushed(), position))
        return self._asked(self._shown.late(position))

    def _asked(self, rows: pa.Table) -> pa.Table:
        """Return those of all rows, in all columns, that the stream hands over."""
        if self._where is not None:
            rows = self._where.apply(rows)
        fields = self._chosen(self._table)
        return with_schema(rows.select([field.name for field in fields]), arrow_schema(fields))

    def _stay_known(self) -> None:
        """Write the position of the consumer again in good time: upkeep drops consumers that nobody has touched."""
        if self._consumer is None or self._kept is None:
            return
        if self._env.now_ms() - self._kept_ms > stays_known_ms(self._table.options):
            self._consumers.set(self._consumer, self._kept)
            self._kept_ms = self._env.now_ms()

    def _gap_at(self, snapshot: Snapshot) -> Gap | None:
        """Return what a snapshot left out, if gaps are marked.

        Raises:
            UntrackedError: it left something out, and gaps are errors.
        """
        table = self._current(snapshot)
        changelog = from_changelog(table, self._source(table, snapshot))
        where = None if self._what in WHOLE_CHANGES else self._where
        partitions = gap_of(table, self._env, snapshot, where, changelog=changelog)
        if self._gaps == "skip" or partitions == frozenset():
            return None
        if self._gaps == "error":
            raise refusal(table, self._env, f"cannot follow '{table.name}'", snapshot, partitions, following=True)
        return gap(table, self._env, snapshot, partitions, self._chosen(table), self._where, self._what)

    def _published(self, snapshot: Snapshot) -> pa.Table:
        """Return what a snapshot published."""
        table = self._current(snapshot)
        chosen, where = self._read(table)
        changes = Changes(table, self._env, self._source(table, snapshot), chosen, where, self._what)
        if (
            snapshot.commit_kind == OVERWRITE
            and table.options.get(r.STREAMING_READ_OVERWRITE)
            and (self._runs_ahead(table) or not is_replaced(table, snapshot))
        ):
            return self._exchanged(table, snapshot)
        return changes.to_arrow()

    def _runs_ahead(self, table: TableDef) -> bool:
        """Return whether the stream has rows of commits before compactions publish them.

        Rows of an eventual log are compared with all rows of the table, whatever level they lie in. So commits are
        taken as those of a table without a changelog, and compactions change nothing.
        """
        return self._shown is not None and publishes_by_compaction(table.options)

    def _source(self, table: TableDef, snapshot: Snapshot) -> Published:
        return Published(snapshot.id, snapshot.id, "delta" if self._runs_ahead(table) else "auto")

    def _visible(self, table: TableDef, source: State | MadeSince | Exchanged) -> Source:
        return source if self._runs_ahead(table) else visible(table, source)

    def _logged(self, snapshot: Snapshot, commit: LogCommit) -> pa.Table:
        """Return what the log has of a snapshot."""
        table = self._current(snapshot)
        rows = commit.rows(table)
        return rows if self._shown is not None else self._asked(rows)

    def _exchanged(self, table: TableDef, snapshot: Snapshot) -> pa.Table:
        """Return the rows that an overwrite removed, then those that it added."""
        parts = [self._rows(table, self._visible(table, Exchanged(snapshot, ADD, snapshot)), "+I")]
        if snapshot.id > 1:
            before = SnapshotStore(table.paths, self._env, table.name).load(snapshot.id - 1)
            gone = self._current(before)
            parts.insert(0, self._rows(gone, self._visible(gone, Exchanged(snapshot, DELETE, before)), "-D"))
            self._current(snapshot)
        return pa.concat_tables(parts, promote_options="permissive")

    def _state(self, source: Source) -> pa.Table:
        """Return a state as inserts."""
        table = self._current(source.snapshot)
        return rows_as(table, self._env, source, self._chosen(table), self._where, self._what, "+I")

    def _rows(self, table: TableDef, source: Source, kind: str) -> pa.Table:
        """Return the rows of a source, all of one kind."""
        chosen, where = self._read(table)
        return rows_as(table, self._env, source, chosen, where, self._what, kind)

    def _read(self, table: TableDef) -> tuple[tuple[Any, ...], Predicate | None]:
        """Return the columns and the filter of reads of what a snapshot publishes: of all, if it is compared."""
        return (self._chosen(table), self._where) if self._shown is None else (columns_of(self._what, table), None)

    def _current(self, snapshot: Snapshot | None) -> TableDef:
        """Return the table with the schema that a snapshot was made with, if that is newer or has another key."""
        if snapshot is None:
            return self._table
        if snapshot.schema_id > self._table.schema.id:
            check_columns_stay(self._table, self._env, snapshot, f"cannot follow '{self._table.name}'")
            there = as_of(self._table, self._env, snapshot.schema_id)
        else:
            there = with_key_of(self._table, self._env, snapshot)
        if there is self._table:
            return there
        names = {field.name for field in columns_of(self._what, there)}
        lacking = [name for name in self._columns or () if name not in names]
        try:
            where = self._filter(there)
        except InvalidInputError as error:
            raise self._changed(snapshot, str(error)) from error
        if lacking:
            raise self._changed(snapshot, f"there is no column '{lacking[0]}' any more.")
        self._table, self._where = there, where
        self._waiting.altered(there)
        return self._table

    def _changed(self, snapshot: Snapshot, why: str) -> ConflictError:
        return ConflictError(
            f"cannot follow '{self._table.name}': its columns have changed with schema {snapshot.schema_id}, and what "
            f"this reader asks for does not fit any more: {why} Nothing of snapshot {snapshot.id} was handed over. "
            "Open the stream again with other columns, from 'from-snapshot' with "
            f"'scan.snapshot-id' = '{snapshot.id}'.",
            table=self._table.name,
            snapshot=snapshot.id,
        )

    def _chosen(self, table: TableDef) -> tuple[Any, ...]:
        fields = columns_of(self._what, table)
        if self._columns is None:
            return fields
        by_name = {field.name: field for field in fields}
        return tuple(by_name[name] for name in self._columns)

    def _keep(self, position: int) -> None:
        assert self._consumer is not None
        if self._kept != position:
            write = self._consumers.begin if self._kept is None else self._consumers.set
            write(self._consumer, position)
            self._kept, self._kept_ms = position, self._env.now_ms()

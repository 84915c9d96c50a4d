"""Rows of many buckets -> files of level 0, without a commit: one writer for key tables, one for append tables.

Rows that wait for their buckets are written as those of an append table, with their kinds, in the order of arrival.

Both writers buffer rows up to the write buffer's size, then ask their assigner for the bucket of each row. A key table
gets a sorted run per bucket and flush (`lsm.writer`). Its writer numbers every received row before it folds rows of one
key, from the newest sequence number of the bucket on. The writer of an append table writes rows in the order of
arrival, and keeps one file per bucket open for the rows of the next flush. All writers of the process keep at most 128
files open, and no more than a quarter of the file descriptors that the process may have: the oldest is finished first.

If the caller already holds the rows in one table, the writer does not copy them into the buffer. It flushes them from
that table, in one run of any size.

A crash at any point leaves files that no snapshot names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Final, Protocol

import pyarrow as pa

from merganser.commit.message import CommitMessage
from merganser.files.layout import FileLayout, file_layout, postponed_layout
from merganser.files.write import RollingWriter, files_being_written
from merganser.lsm.gather import Gather
from merganser.lsm.writer import SLICE_ROWS, Flush, Keeps
from merganser.merge.rules import merge_of
from merganser.meta.live_files import BucketId
from merganser.meta.table_def import TableDef
from merganser.options import write as w
from merganser.rules.compacting import publishes_each_record
from merganser.schema.pieces import in_one, is_large, pieces
from merganser.storage.descriptors import descriptors_max
from merganser.storage.env import Env
from merganser.write.buckets import (
    Assigner,
    BucketsOfPartitions,
    FixedBuckets,
    Group,
    PostponedBuckets,
    UnawareBuckets,
)
from merganser.write.buffer import SMALL_BYTES, RowBuffer, WrittenBuckets
from merganser.write.dynamic import DynamicBuckets
from merganser.write.incoming import Arrival, Prepared
from merganser.write.moving import MovingBuckets
from merganser.write.start import Start

Publishes = Callable[[bytes], bool]
Marks = Callable[[bytes], str]
_OPEN_FILES_MAX: Final = 128
"""Maximum number of files that stay open for the next rows of their buckets, in all writers of the process."""
_OPEN_SHARE: Final = 4
"""At most one of this many file descriptors of the process is for them: reads and commits need some, too."""
_NO_NUMBER: Final = -1
"""Sequence number of rows that wait: they get one with their bucket."""


class TableWriter(Protocol):
    """Writes rows of one table into files of its buckets, without committing."""

    def begin(self, start: Start) -> None:
        """Number the rows of the next commit from there on: others may have committed since the last."""

    def switch_schema(self, table: TableDef) -> None:
        """Write what was taken, and take rows of another schema of the table from here on, in the same commit.

        Args:
            table: its key, its partition columns and its options are the same.
        """

    def write(
        self, rows: pa.Table, kinds: pa.Array | None = None, *, arrival: Arrival | None = None, held: bool = False
    ) -> None:
        """Take rows.

        Args:
            rows: the table's columns in exactly its Arrow types.
            kinds: int8, one per row; None: all inserts. An append table takes none.
            arrival: int64, orders the rows of a key table where their position does not. Given with all rows or none.
            held: the caller holds all rows in memory, so they need no buffer.
        """

    def finish(self) -> list[CommitMessage]:
        """Write the rest and return the changes. Their files are durable. The writer may go on for a next commit."""
        ...

    @property
    def is_small(self) -> bool:
        """Whether all its rows are in memory, and so few that files of them take some hundredths of a second."""
        ...

    def abort(self) -> None:
        """Drop what is buffered and remove what was written and not handed out. Best effort: else it is orphans."""


def table_writer(
    table: TableDef,
    env: Env,
    start: Start,
    *,
    parallel: bool = True,
    publishes: Publishes | None = None,
    marks: Marks = lambda _: "",
) -> TableWriter:
    """Return a writer of a table.

    Args:
        start: the state that its rows come after.
        parallel: run buckets side by side on the environment's pool. Off inside a job, which has one core.
        publishes: says of a partition whether a changelog of its rows is written; None: of all.
        marks: gives, of a partition, a part of the names of its data files.
    """
    if table.postpones and start.layout is None:
        return ArrivalWriter(table, env, start)
    if table.keyed:
        return KeyTableWriter(table, env, start, parallel=parallel, publishes=publishes, marks=marks)
    return ArrivalWriter(table, env, start)


def arrives(table: TableDef) -> bool:
    """Return whether a writer of a table takes what orders its rows; else rows come in order."""
    return table.keyed and not table.moves_keys and not table.postpones


def takes_any_order(table: TableDef) -> bool:
    """Return whether a writer of a table takes rows in any order, given what orders them.

    A queue keeps the order of its rows, engines that put versions together take neighbours only, and keys move between
    partitions one row after the other.
    """
    return arrives(table) and merge_of(table).engine.chooses


class KeyTableWriter:
    """Writes rows of a key table; see `TableWriter`.

    Rows given with their arrival may come in any order, so a flush before the last rows numbers them by arrival
    itself, with gaps: what arrived earlier may still come. Such a writer serves one commit.
    """

    def __init__(
        self,
        table: TableDef,
        env: Env,
        start: Start,
        *,
        parallel: bool = True,
        publishes: Publishes | None = None,
        marks: Marks = lambda _: "",
    ) -> None:
        self._table = table
        self._env = env
        self._publishes = publishes
        self._marks = marks
        self._merge = merge_of(table, stored=False)
        self._assigner = _assigner_of(table, env, start)
        self._buffer = RowBuffer(table.options.get(w.WRITE_BUFFER_SIZE))
        self._written = WrittenBuckets(table, env, start.sequences)
        self._waiting: Prepared | None = None
        """Rows that the caller holds anyway, so they take no memory of the buffer. They may be the last."""
        self._run: Callable[..., object] = env.map if parallel else _in_turn
        self._numbers_by_arrival = False
        self._keeps: Keeps | None = None
        if table.options.get(w.CHANGELOG_PRODUCER) == "input":
            self._keeps = "received" if publishes_each_record(table.options) else "published"

    def begin(self, start: Start) -> None:
        """Number the rows of the next commit from there on."""
        self._written.starts = start.sequences
        self._assigner.begin(start)

    def switch_schema(self, table: TableDef) -> None:
        """Take rows of another schema; see `TableWriter`."""
        if self._waiting is not None:
            self._flush(self._taken_waiting())
        elif not self._buffer.is_empty:
            self._flush(self._buffer.taken())
        self._table = table
        self._merge = merge_of(table, stored=False)

    def write(
        self, rows: pa.Table, kinds: pa.Array | None = None, *, arrival: Arrival | None = None, held: bool = False
    ) -> None:
        """Take rows; see `TableWriter`."""
        if not rows.num_rows:
            return
        if is_large(rows):
            for start, count in pieces(rows):
                at = slice(start, start + count)
                part = None if kinds is None else kinds[at]
                self.write(rows.slice(start, count), part, arrival=None if arrival is None else arrival[at])
            return
        if self._waiting is not None:
            self._flush(self._taken_waiting())
        if held and self._buffer.is_empty and rows.nbytes > SMALL_BYTES:
            self._waiting = rows, kinds, arrival
            return
        self._buffer.add((rows, kinds, arrival))
        if self._buffer.is_full:
            self._numbers_by_arrival |= arrival is not None
            self._flush(self._buffer.taken())

    def finish(self) -> list[CommitMessage]:
        """Write the rest and return the changes."""
        if self._waiting is not None:
            self._flush(self._taken_waiting(), last=True)
        elif not self._buffer.is_empty:
            self._flush(self._buffer.taken(), last=True)
        return self._written.handed_out(self._assigner)

    def _taken_waiting(self) -> Prepared:
        assert self._waiting is not None
        waiting, self._waiting = self._waiting, None
        return waiting

    @property
    def is_small(self) -> bool:
        """Whether all its rows are in memory, and few."""
        return self._waiting is None and self._buffer.is_small and self._written.is_empty

    def abort(self) -> None:
        """Drop what is buffered and remove what was written and not handed out."""
        self._waiting = None
        self._buffer.clear()
        self._written.remove()
        self._assigner.abort()

    def _flush(self, taken: Prepared, *, last: bool = False) -> None:
        rows, kinds, arrival = self._assigner.moved(taken)
        rows = in_one(rows)
        flushes: dict[tuple[Keeps | None, str], Flush] = {}
        work: list[Callable[[], None]] = []
        for group in self._assigner.assign(rows):
            keeps, mark = self._keeps_of(group.partition), self._marks(group.partition)
            if (keeps, mark) not in flushes:
                flushes[keeps, mark] = Flush(
                    self._table,
                    self._env,
                    self._merge,
                    rows,
                    kinds,
                    arrival,
                    keeps=keeps,
                    mark=mark,
                    numbers_by_arrival=self._numbers_by_arrival,
                )
            start = self._written.take_sequences(group.id, 0 if self._numbers_by_arrival else len(group.rows))
            keep, publish = partial(self._written.keep, group.id), partial(self._written.publish, group.id)
            write = flushes[keeps, mark].write_bucket
            work.append(partial(write, self._written.directory(group.id), group.rows, start, keep, publish))
        if last:
            work += self._assigner.key_files()
        # Buckets are independent; a failed one leaves the files of the others to `abort`.
        self._run(lambda write: write(), work)

    def _keeps_of(self, partition: bytes) -> Keeps | None:
        return self._keeps if self._publishes is None or self._publishes(partition) else None


class ArrivalWriter:
    """Writes rows in the order of their arrival, of tables without a key and rows that wait; see `TableWriter`."""

    def __init__(self, table: TableDef, env: Env, start: Start) -> None:
        self._table = table
        self._env = env
        self._assigner = _assigner_of(table, env, start)
        self._buffer = RowBuffer(table.options.get(w.WRITE_BUFFER_SIZE))
        self._written = WrittenBuckets(table, env, start.sequences)
        self._layout = self._layout_of(table)
        self._open: dict[BucketId, RollingWriter] = {}
        self._made_ms: dict[BucketId, int] = {}
        """By bucket of rows that wait, when its newest closed file was made."""

    def begin(self, start: Start) -> None:
        """Number the rows of the next commit from there on."""
        self._written.starts = start.sequences
        self._assigner.begin(start)

    def switch_schema(self, table: TableDef) -> None:
        """Take rows of another schema; see `TableWriter`."""
        self._write_rest()
        self._table = table
        self._layout = self._layout_of(table)

    def write(
        self, rows: pa.Table, kinds: pa.Array | None = None, *, arrival: Arrival | None = None, held: bool = False
    ) -> None:
        """Take rows; see `TableWriter`."""
        if not rows.num_rows:
            return
        if is_large(rows):
            for start, count in pieces(rows):
                self.write(rows.slice(start, count), None if kinds is None else kinds[start : start + count])
            return
        if held and self._buffer.is_empty and rows.nbytes > SMALL_BYTES:
            self._flush(rows, kinds)
            return
        self._buffer.add((rows, kinds, None))
        if self._buffer.is_full:
            self._flush(*self._buffer.taken()[:2])

    def finish(self) -> list[CommitMessage]:
        """Write the rest and return the changes."""
        self._write_rest()
        return self._written.handed_out(self._assigner)

    @property
    def is_small(self) -> bool:
        """Whether all its rows are in memory, and few."""
        return self._buffer.is_small and self._written.is_empty

    def abort(self) -> None:
        """Drop what is buffered and remove what was written and not handed out."""
        self._buffer.clear()
        for writer in self._open.values():
            writer.abort()
        self._open = {}
        self._written.remove()
        self._assigner.abort()

    def _layout_of(self, table: TableDef) -> FileLayout:
        return postponed_layout(table, self._env) if table.postpones else file_layout(table)

    def _write_rest(self) -> None:
        """Write what is buffered, and close all files."""
        if not self._buffer.is_empty:
            self._flush(*self._buffer.taken()[:2])
        for bucket in list(self._open):
            self._close(bucket)

    def _flush(self, rows: pa.Table, kinds: pa.Array | None) -> None:
        rows = in_one(rows)
        picked = Gather(rows)
        for group in self._assigner.assign(rows):
            self._append(group, rows, kinds, picked)

    def _append(self, group: Group, rows: pa.Table, kinds: pa.Array | None, picked: Gather) -> None:
        bucket, keyed = group.id, self._table.keyed
        if bucket not in self._open:
            if self._table.bucket > 0:
                self._written.take_sequences(bucket, 0)  # refuses another number of buckets before a file is begun
            open_max = min(_OPEN_FILES_MAX, descriptors_max() // _OPEN_SHARE)
            while self._open and files_being_written() >= open_max:
                self._close(next(iter(self._open)))
            self._open[bucket] = RollingWriter(
                table=self._table, env=self._env, directory=self._written.directory(bucket), layout=self._layout
            )
        for begin in range(0, len(group.rows), SLICE_ROWS):
            at = group.rows[begin : begin + SLICE_ROWS]
            adjacent = int(at[-1]) - int(at[0]) + 1 == len(at)
            self._open[bucket].write(
                rows.slice(int(at[0]), len(at)) if adjacent else picked.take(at),
                sequences=pa.repeat(pa.scalar(_NO_NUMBER, pa.int64()), len(at)) if keyed else None,
                kinds=kinds.take(pa.array(at)) if keyed and kinds is not None else None,
            )

    def _close(self, bucket: BucketId) -> None:
        """Finish the open file of a bucket. Where a bucket has an order, its files are numbered in it.

        The order of rows that wait is that of the times when their files were made.
        """
        files, before = self._open[bucket].close(), self._made_ms.get(bucket, -1)
        if self._table.postpones and files:
            files = tuple(replace(file, creation_time_ms=max(file.creation_time_ms or 0, before + 1)) for file in files)
            self._made_ms[bucket] = max(file.creation_time_ms or 0 for file in files)
        for file in files:
            if self._table.bucket > 0:
                first = self._written.take_sequences(bucket, file.row_count)
                file = replace(file, min_sequence=first, max_sequence=first + file.row_count - 1)
            self._written.keep(bucket, [file])
        del self._open[bucket]  # not before: `abort` removes what a failed close leaves


def _assigner_of(table: TableDef, env: Env, start: Start) -> Assigner:
    if table.bucket > 0:
        return FixedBuckets(table)
    if table.postpones:
        return PostponedBuckets(table) if start.layout is None else BucketsOfPartitions(table, start.layout)
    if table.moves_keys:
        return MovingBuckets(table, env, start)
    return DynamicBuckets(table, env, start) if table.assigns_keys else UnawareBuckets(table)


def _in_turn(work: Callable[[Callable[[], None]], None], items: Iterable[Callable[[], None]]) -> None:
    for item in items:
        work(item)

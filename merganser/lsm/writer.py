"""Rows of many buckets -> level-0 files, at the write buffer's size.

A flush takes what is buffered, parts it by partition and bucket, and gives every bucket of a key table one
sorted run: rows ordered by (key, arrival), of each key what they merge to (and before it one of removals, where a
row is removed and comes back). Sequence numbers go on from the bucket's
newest, one per row received, before rows are folded. Value columns are gathered slice by slice while the file
is written, so beyond the buffer a flush needs one slice of memory per thread. Append tables keep one open
file per bucket and write rows as they come.

Rows that the caller holds in one table anyway are not copied into the buffer: they are flushed where they
are, in one run, whatever their size.

Crash at any instruction: files are there that no snapshot names.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from merganser.commit.message import CommitMessage
from merganser.errors import InvalidInputError, MerganserError
from merganser.files.layout import FileLayout, file_layout
from merganser.files.write import RollingWriter
from merganser.lsm.buckets import UNAWARE, Group, groups
from merganser.lsm.gather import Gather
from merganser.merge.engine import Folded
from merganser.merge.groups import Groups
from merganser.merge.rules import Merge, merge_of
from merganser.meta.data_file import DataFile
from merganser.meta.live_files import BucketId
from merganser.meta.table_def import TableDef
from merganser.options import write as w
from merganser.schema import row_kind
from merganser.storage.env import Env
from merganser.storage.paths import join

SLICE_ROWS = 262_144
"""Rows gathered at a time."""
_OPEN_FILES_MAX = 128


@dataclass
class TableWriter:
    """Writes rows of one table into files of its buckets, without committing.

    Attributes:
        next_sequence: gives the first free sequence number of a bucket; asked once per bucket and commit. What
            this writer gave out itself is not given out again, whatever it says.
        parallel: run buckets side by side on the environment's pool. Off inside a job, which has one core.

    Rows given with their arrival may come in any order, so a flush before the last rows numbers them by arrival
    itself, with gaps: what arrived earlier may still come. Such a writer serves one commit.
    """

    table: TableDef
    env: Env
    next_sequence: Callable[[BucketId], int]
    parallel: bool = True
    _pending: list[tuple[pa.Table, pa.Array | None, npt.NDArray[np.int64] | None]] = field(default_factory=list)
    _pending_bytes: int = 0
    _sequences: dict[BucketId, int] = field(default_factory=dict)
    _used: dict[BucketId, int] = field(default_factory=dict)
    _files: dict[BucketId, list[DataFile]] = field(default_factory=dict)
    _directories: dict[BucketId, str] = field(default_factory=dict)
    _open: dict[BucketId, RollingWriter] = field(default_factory=dict)
    _numbers_by_arrival: bool = False

    @cached_property
    def _merge(self) -> Merge:
        return merge_of(self.table, stored=False)

    def write(
        self,
        rows: pa.Table,
        kinds: pa.Array | None = None,
        *,
        arrival: npt.NDArray[np.int64] | None = None,
        held: bool = False,
    ) -> None:
        """Take rows.

        Args:
            rows: the table's columns in exactly its Arrow types.
            kinds: int8, one per row; None: all inserts.
            arrival: int64, orders the rows of a key table where their position does not. Given with all rows or none.
            held: the caller holds all rows in memory, so they need no buffer.
        """
        if not rows.num_rows:
            return
        if held and not self._pending:
            self._flush(rows, kinds, arrival)
            return
        self._pending.append((rows, kinds, arrival))
        self._pending_bytes += rows.nbytes
        if self._pending_bytes >= self.table.options.get(w.WRITE_BUFFER_SIZE):
            self._numbers_by_arrival |= arrival is not None
            self.flush()

    def flush(self) -> None:
        """Write what is buffered."""
        pending, self._pending, self._pending_bytes = self._pending, [], 0
        if not pending:
            return
        rows = pa.concat_tables([part[0] for part in pending])
        kinds = None
        if any(part[1] is not None for part in pending):
            parts = [row_kind.inserts(part[0].num_rows) if part[1] is None else part[1] for part in pending]
            kinds = pa.concat_arrays(parts)
        arrivals = [part[2] for part in pending if part[2] is not None]
        self._flush(rows, kinds, np.concatenate(arrivals) if arrivals else None)

    def finish(self) -> list[CommitMessage]:
        """Write the rest and return the changes. Their files are durable. The writer may go on for a next commit."""
        self.flush()
        for bucket in list(self._open):
            self._close(bucket)
        total = self.table.bucket if self.table.bucket > 0 else UNAWARE
        messages = [
            CommitMessage(partition, bucket, total, tuple(files))
            for (partition, bucket), files in self._files.items()
            if files
        ]
        self._files = {}
        self._used |= self._sequences
        self._sequences = {}
        return messages

    def abort(self) -> None:
        """Drop what is buffered and remove what was written and not handed out. Best effort: else it is orphans."""
        self._pending, self._pending_bytes = [], 0
        for writer in self._open.values():
            writer.abort()
        self._open = {}
        for bucket, files in self._files.items():
            with contextlib.suppress(MerganserError):
                self.env.storage.delete([join(self._directories[bucket], file.name) for file in files])
        self._files = {}

    def _flush(self, rows: pa.Table, kinds: pa.Array | None, arrival: npt.NDArray[np.int64] | None) -> None:
        rows = _one_chunk(rows)
        picked = Gather(rows)
        layout = file_layout(self.table)
        parts = list(groups(self.table, rows))
        for group in parts:
            bucket = (group.partition, group.bucket)
            self._directories.setdefault(bucket, self.table.bucket_directory(*bucket))
        run: Callable[..., object] = self.env.map if self.parallel else _in_turn
        if not self.table.keyed:
            for group in parts:
                self._append(group, rows, picked, layout)
            return
        starts = [self._reserve(group) for group in parts]
        # Buckets are independent; a failed one leaves the files of the others to `abort`.
        run(
            lambda item: self._write_bucket(item[0], item[1], rows, picked, kinds, arrival, layout),
            list(zip(parts, starts, strict=True)),
        )

    def _write_bucket(
        self,
        group: Group,
        start: int,
        rows: pa.Table,
        picked: Gather,
        kinds: pa.Array | None,
        arrival: npt.NDArray[np.int64] | None,
        layout: FileLayout,
    ) -> None:
        bucket = (group.partition, group.bucket)
        at = group.rows
        if arrival is not None:
            at = at[
                np.argsort(arrival[at], kind="stable")
            ]  # runs of rows that are in order already cost next to nothing
        whole = len(at) == rows.num_rows and arrival is None
        indices = None if whole else pa.array(at)
        keys = [rows.column(name) if indices is None else rows.column(name).take(indices) for name in self.table.key]
        merge = self._merge
        ordering = () if merge.order is None else merge.order.columns
        ordered = rows.select(ordering) if indices is None else rows.select(ordering).take(indices)
        of_bucket = None if kinds is None else kinds.to_numpy()[at]
        groups = merge.groups(ordered, keys, of_bucket)
        numbers = arrival[at] if arrival is not None and self._numbers_by_arrival else None
        of_rows = None if kinds is None else kinds.to_numpy()
        removals = merge.removals(rows, groups, at, of_rows)
        if len(removals):
            # A run holds a key once. Where a row is removed and then added to, the removal has to reach the older
            # versions below, so it goes into a run before; numbers of both lie apart, within those of the rows.
            removed = np.sort(groups.positions[removals])
            numbers = np.arange(len(at)) if numbers is None else numbers
            rising = np.sort(numbers)
            first = numbers.copy()
            first[removed] = rising[: len(removed)]
            alone = Groups(groups.positions[removals], np.arange(len(removals)), np.zeros(len(removals), np.bool_))
            self._write_run(bucket, alone, start, first, rows, picked, at, of_rows, layout)
            numbers = np.maximum(numbers, rising[len(removed)])
        self._write_run(bucket, groups, start, numbers, rows, picked, at, of_rows, layout)

    def _write_run(
        self,
        bucket: BucketId,
        groups: Groups,
        start: int,
        numbers: npt.NDArray[np.int64] | None,
        rows: pa.Table,
        picked: Gather,
        at: npt.NDArray[np.int64],
        kinds: npt.NDArray[np.int8] | None,
        layout: FileLayout,
    ) -> None:
        """Write one sorted run.

        Args:
            groups: versions of keys among the rows of the bucket.
            numbers: sequence numbers of the rows of the bucket, from `start` on; None: their positions.
            picked: picks of `rows`.
            at: where the rows of the bucket are in `rows`.
        """
        writer = RollingWriter(table=self.table, env=self.env, directory=self._directories[bucket], layout=layout)
        try:
            for part in groups.slices(SLICE_ROWS):
                folded = self._folded(rows, picked, replace(part, positions=at[part.positions]), kinds)
                numbered = part.positions[folded.sequence_positions]
                writer.write(
                    folded.table(),
                    sequences=pa.array((numbered if numbers is None else numbers[numbered]) + start),
                    kinds=None if folded.kinds is None else pa.array(folded.kinds),
                )
            files = writer.close()
        except BaseException:
            writer.abort()
            raise
        self._files.setdefault(bucket, []).extend(files)

    def _folded(self, rows: pa.Table, picked: Gather, groups: Groups, kinds: npt.NDArray[np.int8] | None) -> Folded:
        try:
            return self._fold(rows, picked, groups, kinds)
        except InvalidInputError as error:
            raise InvalidInputError(
                f"cannot write to '{self.table.name}': {error} Nothing was written.",
                **error.context | {"table": self.table.name},
            ) from error

    def _fold(self, rows: pa.Table, picked: Gather, groups: Groups, kinds: npt.NDArray[np.int8] | None) -> Folded:
        """Return the groups merged, at a cost that goes with their rows and not with all that were flushed."""
        chooses = self._merge.engine.chooses
        if not chooses and 2 * len(groups.positions) < rows.num_rows:
            kinds = None if kinds is None else kinds[groups.positions]
            rows = picked.take(groups.positions)
            groups = replace(groups, positions=np.arange(len(groups.positions)))
        folded = self._merge.fold(rows, groups, kinds, rows.column_names)
        if chooses and folded.positions is not None:  # they are positions in `rows`
            return replace(folded, rows=picked.take(folded.positions), positions=None)
        return folded

    def _append(self, group: Group, rows: pa.Table, picked: Gather, layout: FileLayout) -> None:
        bucket = (group.partition, group.bucket)
        if bucket not in self._open:
            if self.table.bucket > 0:
                self._take_sequences(bucket, 0)  # refuses another number of buckets before a file is begun
            if len(self._open) >= _OPEN_FILES_MAX:
                self._close(next(iter(self._open)))
            self._open[bucket] = RollingWriter(
                table=self.table, env=self.env, directory=self._directories[bucket], layout=layout
            )
        for begin in range(0, len(group.rows), SLICE_ROWS):
            at = group.rows[begin : begin + SLICE_ROWS]
            adjacent = int(at[-1]) - int(at[0]) + 1 == len(at)
            self._open[bucket].write(rows.slice(int(at[0]), len(at)) if adjacent else picked.take(at))

    def _close(self, bucket: BucketId) -> None:
        """Finish the open file of an append bucket. Where a bucket has an order, its files are numbered in it."""
        for file in self._open[bucket].close():
            if self.table.bucket > 0:
                first = self._take_sequences(bucket, file.row_count)
                file = replace(file, min_sequence=first, max_sequence=first + file.row_count - 1)
            self._files.setdefault(bucket, []).append(file)
        del self._open[bucket]  # not before: `abort` removes what a failed close leaves

    def _reserve(self, group: Group) -> int:
        """Take a sequence number for every row of the group; return the first."""
        return self._take_sequences((group.partition, group.bucket), 0 if self._numbers_by_arrival else len(group.rows))

    def _take_sequences(self, bucket: BucketId, count: int) -> int:
        start = self._sequences.get(bucket)
        if start is None:
            start = max(self.next_sequence(bucket), self._used.get(bucket, 0))
        self._sequences[bucket] = start + count
        return start


def _one_chunk(rows: pa.Table) -> pa.Table:
    """Return the rows with each column in one piece: gathering from four takes three times as long."""
    return rows.combine_chunks() if rows.num_columns and rows.column(0).num_chunks > 1 else rows


def _in_turn(work: Callable[[tuple[Group, int]], None], items: list[tuple[Group, int]]) -> None:
    for item in items:
        work(item)

"""RescaleJob: buckets of one partition -> the buckets that their rows have under another number, as a value.

A bucket is a hash modulo the number of buckets. So the rows of bucket b of n go to those of m buckets that agree with b
modulo g, the greatest common divisor of n and m. The buckets that agree modulo g are one job, and jobs share nothing::

    4 -> 8    0 -> 0 4    1 -> 1 5    2 -> 2 6    3 -> 3 7
    4 -> 6    0 2 -> 0 2 4            1 3 -> 1 3 5
    8 -> 4    0 4 -> 0    1 5 -> 1    2 6 -> 2    3 7 -> 3

A job reads each of its buckets as a full compaction does, joins the rows by key, and writes each row to the highest
level of its bucket, with the sequence number it had. Files that were committed since the job was planned are *late*:
another job splits each of them as it is, and its parts stay at level 0. A crash at any point leaves files that no
snapshot names.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from merganser.commit.message import CommitMessage
from merganser.files.layout import file_layout
from merganser.files.write import RollingWriter
from merganser.lsm.abandoned import remove_uncommitted
from merganser.lsm.compact import AppendCompaction, Compaction, CompactJob, KeyCompaction, Piece
from merganser.lsm.held import copies_beside
from merganser.lsm.levels import top_level
from merganser.merge.keys import sorted_positions
from merganser.meta.data_file import SOURCE_APPEND, SOURCE_COMPACT, DataFile
from merganser.meta.layout import bucket_numbers, parted
from merganser.meta.table_def import TableDef
from merganser.meta.tracking import UNTRACKED_FILE, is_untracked
from merganser.schema import row_kind
from merganser.schema.table_schema import SEQUENCE_NUMBER, VALUE_KIND
from merganser.storage.env import Env
from merganser.values import dataclass


@dataclass(frozen=True)
class RescaleJob:
    """Some buckets of a partition, and the number of buckets they are to have. Pickles; runs wherever there is a core.

    Attributes:
        buckets: the number of buckets after.
        jobs: what a full compaction of each bucket of one class would do; of late files, one job for each file.
        late: the files stay at level 0 as they are, only split.
        numbers_from: in tables without a key, the first number that no row of the partition has.
    """

    table: TableDef
    partition: bytes
    buckets: int
    jobs: tuple[CompactJob, ...]
    late: bool = False
    numbers_from: int = 0

    @property
    def size_bytes(self) -> int:
        """Bytes of the files."""
        return sum(job.size_bytes for job in self.jobs)

    def run(self, env: Env, advance: Callable[[int], None] = lambda _: None) -> tuple[CommitMessage, ...]:
        """Do it. The new files are durable.

        Raises:
            FormatError: a file is damaged or missing; what was written is removed.
        """
        read: list[Compaction] = []
        made: list[CommitMessage] = []
        writers = _Writers(self, env)
        try:
            if self.late:
                for job in self.jobs:
                    writers.mark = UNTRACKED_FILE if is_untracked(job.files[0]) else ""
                    self._split(self._opened(job, env, read).stored_rows(), writers, env, advance)
                    writers.next_files()
            else:
                opened = [self._opened(job, env, read) for job in self.jobs]
                writers.mark = opened[0].mark if len(opened) == 1 else ""
                streams = [each.all_rows() for each in opened]
                rows = _by_key(self.table, streams) if self.table.keyed else _in_turn(streams)
                self._split(rows, writers, env, advance)
            made = list(writers.close())
            for each in read:
                job, change = each.job, each.without_vectors()
                made.append(
                    CommitMessage(
                        job.partition,
                        job.bucket,
                        job.total_buckets,
                        (),
                        job.files,
                        change.added,
                        change.removed,
                        each.log.close(),
                    )
                )
        except BaseException:
            for each in read:
                each.log.abort()
            writers.abort()
            remove_uncommitted(self.table, env, made)
            raise
        return tuple(sorted(made, key=lambda message: not message.removed))  # what goes first, as in an upgrade

    def _opened(self, job: CompactJob, env: Env, read: list[Compaction]) -> Compaction:
        opened = (KeyCompaction if self.table.keyed else AppendCompaction)(job, env, lambda _: None)
        read.append(opened)
        return opened

    def _split(
        self, pieces: Generator[Piece, None, None], writers: _Writers, env: Env, advance: Callable[[int], None]
    ) -> None:
        count = max(1, sum(file.row_count for job in self.jobs for file in job.files))
        with contextlib.closing(env.ahead(pieces)) as ready:
            for rows, numbers, kinds in ready:
                writers.write(rows, numbers, kinds)
                advance(self.size_bytes * rows.num_rows // count)
                del rows, numbers, kinds  # before the next are made


class _Writers:
    """Files of the buckets after, one open for each."""

    def __init__(self, job: RescaleJob, env: Env) -> None:
        self.mark = ""
        self._job = job
        self._env = env
        self._level = 0 if job.late or not job.table.keyed else top_level(job.table.options)
        self._layout = file_layout(job.table, self._level)
        self._open: dict[int, RollingWriter] = {}
        self._done: dict[int, list[DataFile]] = {}
        rows = sum(file.row_count for each in job.jobs for file in each.files)
        self._beside = None if job.late else copies_beside(job.table, rows)

    def write(self, rows: pa.Table, numbers: pa.Array | None, kinds: pa.Array | None) -> None:
        for bucket, positions in parted(bucket_numbers(self._job.table, rows, self._job.buckets)):
            at = pa.array(positions)
            self._of(bucket).write(
                rows.take(at),
                sequences=None if numbers is None else numbers.take(at),
                kinds=None if kinds is None else kinds.take(at),
            )

    def next_files(self) -> None:
        """Finish the open files, so that the rows of another file do not join them."""
        for bucket, writer in self._open.items():
            self._done.setdefault(bucket, []).extend(writer.close())
        self._open = {}

    def close(self) -> Iterator[CommitMessage]:
        self.next_files()
        job = self._job
        for bucket, files in self._done.items():
            added = files if job.table.keyed else self._numbered(files)
            yield CommitMessage(job.partition, bucket, job.buckets, tuple(added))

    def abort(self) -> None:
        for writer in self._open.values():
            writer.abort()
        remove_uncommitted(
            self._job.table,
            self._env,
            [CommitMessage(self._job.partition, b, self._job.buckets, tuple(files)) for b, files in self._done.items()],
        )

    def _numbered(self, files: Sequence[DataFile]) -> Iterator[DataFile]:
        """Yield files of a table without a key with numbers in their order."""
        number = self._job.numbers_from
        for file in files:
            yield replace(file, min_sequence=number, max_sequence=number + file.row_count - 1)
            number += file.row_count

    def _of(self, bucket: int) -> RollingWriter:
        if bucket not in self._open:
            self._open[bucket] = RollingWriter(
                table=self._job.table,
                env=self._env,
                directory=self._job.table.bucket_directory(self._job.partition, bucket),
                layout=self._layout,
                level=self._level,
                source=SOURCE_APPEND if self._job.late else SOURCE_COMPACT,
                mark=self.mark,
                beside=self._beside,
            )
        return self._open[bucket]


def _in_turn(streams: Sequence[Generator[Piece, None, None]]) -> Generator[Piece, None, None]:
    for stream in streams:
        yield from stream


def _by_key(table: TableDef, streams: Sequence[Generator[Piece, None, None]]) -> Generator[Piece, None, None]:
    """Yield the rows of several streams in key order. Each is in key order, and no key is in two."""
    if len(streams) == 1:
        yield from streams[0]
        return
    columns = [table.schema.names.index(name) for name in table.key]
    sources = [_tables(stream) for stream in streams]
    heads = [(head, source) for source in sources if (head := next(source, None)) is not None]
    while len(heads) > 1:
        rows = pa.concat_tables([head for head, _ in heads])
        order, _ = sorted_positions([rows.column(i) for i in columns])
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        ends = np.cumsum([head.num_rows for head, _ in heads])
        ready = int(rank[ends - 1].min()) + 1  # rows after the first end may have others before them that come later
        yield _piece(rows.take(pa.array(order[:ready])))
        taken = np.add.reduceat(rank < ready, np.concatenate([[0], ends[:-1]]))
        left = []
        for (head, source), count in zip(heads, taken.tolist(), strict=True):
            rest = head.slice(count) if count < head.num_rows else next(source, None)
            if rest is not None:
                left.append((rest, source))
        heads = left
    for head, source in heads:
        yield _piece(head)
        yield from map(_piece, source)


def _tables(stream: Iterator[Piece]) -> Iterator[pa.Table]:
    """Yield the pieces of a stream as tables, with sequence numbers and kinds as the last columns; none is empty."""
    for rows, numbers, kinds in stream:
        if rows.num_rows:
            kinds = row_kind.inserts(rows.num_rows) if kinds is None else kinds
            yield rows.append_column(SEQUENCE_NUMBER.name, numbers).append_column(VALUE_KIND.name, kinds)


def _piece(rows: pa.Table) -> Piece:
    numbers, kinds = (rows.column(name).combine_chunks() for name in (SEQUENCE_NUMBER.name, VALUE_KIND.name))
    return rows.drop_columns([SEQUENCE_NUMBER.name, VALUE_KIND.name]), numbers, kinds

"""Compaction of one bucket, as a value: files in, fewer files of a higher level out, no row changed for readers.

Sections of the picked files go by in key order. One whose files overlap is rewritten, and with it the small files
beside it; a large file that overlaps nothing is *upgraded*: only its level changes, and no byte is copied::

    section   |1| |2 2| |3| |====== 4 ======| |5|        1, 3, 5 small; 2 overlapping; 4 large
    done      |--- rewritten --| |  upgraded  | |upgraded|

Retractions are dropped where nothing older lies below the output. In first-row tables so are keys that lie below it:
others read the levels of such a table without a merge, so no key may be in two. Crash at any instruction: files are
there that no snapshot names.

Format: sections "rewrite or upgrade", "when retractions may be dropped".
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from merganser.codec.binary_row import deserialize_columns
from merganser.commit.message import CommitMessage
from merganser.errors import MerganserError
from merganser.files.layout import file_layout
from merganser.files.write import RollingWriter
from merganser.lsm.levels import dense_ranks, sections
from merganser.lsm.pick import pushes_level_0
from merganser.lsm.section import SectionReader
from merganser.merge.deduplicate import Deduplicate
from merganser.meta.data_file import SOURCE_COMPACT, DataFile
from merganser.meta.table_def import TableDef
from merganser.options import upkeep as u
from merganser.schema import types as t
from merganser.schema.table_schema import SEQUENCE_NUMBER, VALUE_COUNT, VALUE_KIND
from merganser.storage.env import Env
from merganser.storage.paths import join

Sections = list[list[DataFile]]


@dataclass(frozen=True)
class CompactJob:
    """What is compacted in one bucket. Pickles; runs wherever there is a core.

    Attributes:
        directory: the bucket's.
        files: what was picked, as they were committed.
        output_level: of the new files; 0 in tables without a key.
        drop_retractions: nothing older than the output is left in the bucket.
        schemas: columns of every schema that a file was written with.
        below: files that stay, whose keys must not be written again; all are older than what was picked.
    """

    table: TableDef
    partition: bytes
    bucket: int
    total_buckets: int
    directory: str
    files: tuple[DataFile, ...]
    output_level: int
    drop_retractions: bool
    schemas: Mapping[int, tuple[t.Field, ...]]
    below: tuple[DataFile, ...] = ()

    @property
    def size_bytes(self) -> int:
        """Bytes of the files."""
        return sum(file.size for file in self.files)

    def run(self, env: Env) -> CommitMessage | None:
        """Do it. The new files are durable; None when nothing had to change.

        Raises:
            FormatError: a file is damaged or missing; what was written is removed.
        """
        return (_KeyCompaction if self.table.keyed else _AppendCompaction)(self, env).run()


class _Compaction:
    """Files read, written, and what becomes of them."""

    def __init__(self, job: CompactJob, env: Env) -> None:
        self.job = job
        self.table = job.table
        self.env = env
        self.reader = SectionReader(job.table, job.directory, job.schemas, env.storage)
        self.added: list[DataFile] = []
        self.removed: list[DataFile] = []
        self.written: list[DataFile] = []

    def run(self) -> CommitMessage | None:
        try:
            self.work()
        except BaseException:
            with contextlib.suppress(MerganserError):
                self.env.storage.delete([join(self.job.directory, file.name) for file in self.written])
            raise
        if not self.removed:
            return None
        job = self.job
        return CommitMessage(job.partition, job.bucket, job.total_buckets, tuple(self.added), tuple(self.removed))

    def work(self) -> None:
        raise TypeError("an heir says what it does")

    def write(self, files: Sequence[DataFile], rows: Callable[[RollingWriter], None]) -> tuple[DataFile, ...]:
        """Replace files by what `rows` writes."""
        writer = RollingWriter(
            table=self.table,
            env=self.env,
            directory=self.job.directory,
            layout=file_layout(self.table, self.job.output_level),
            level=self.job.output_level,
            source=SOURCE_COMPACT,
        )
        try:
            rows(writer)
            made = writer.close()
        except BaseException:
            writer.abort()
            raise
        self.written += made
        self.removed += files
        return made

    @cached_property
    def small_bytes(self) -> float:
        """Size below which a file is small."""
        layout = file_layout(self.table, self.job.output_level)
        return layout.target_size_bytes * self.table.options.get(u.SMALL_FILE_RATIO)


class _KeyCompaction(_Compaction):
    """Compaction of a tree."""

    def work(self) -> None:
        pending: Sections = []
        for section in self._sections():
            if len(section) > 1 or section[0].size < self.small_bytes:
                pending.append(section)
                continue
            self._settle(pending)
            self._upgrade(section[0])
            pending = []
        self._settle(pending)

    def _sections(self) -> Iterator[list[DataFile]]:
        files, kinds = self.job.files, self.table.key_types
        low = deserialize_columns([file.min_key for file in files], kinds)
        high = deserialize_columns([file.max_key for file in files], kinds)
        for members in sections(*dense_ranks(low, high)):
            yield [files[i] for i in sorted(members.tolist())]

    def _settle(self, pending: Sections) -> None:
        if len(pending) == 1 and len(self.reader.runs(pending[0])) == 1:
            for file in pending[0]:
                self._upgrade(file)
        elif pending:
            self._rewrite(pending)

    def _upgrade(self, file: DataFile) -> None:
        if self._must_rewrite(file):
            self._rewrite([[file]])
        elif file.level != self.job.output_level:
            self.removed.append(file)
            self.added.append(replace(file, level=self.job.output_level))

    def _must_rewrite(self, file: DataFile) -> bool:
        options = self.table.options
        if self.job.drop_retractions and (file.delete_row_count != 0 or self.table.counting):
            return True
        if options.get(u.FORCE_REWRITE_ALL_FILES) or (self.job.below and file.level == 0):
            return True
        if file.level or not pushes_level_0(options) or self.job.output_level == u.level_count(options) - 1:
            return False
        return not isinstance(self.reader.merge.engine, Deduplicate) or self.reader.merge.order is not None

    def _rewrite(self, chosen: Sections) -> None:
        def rows(writer: RollingWriter) -> None:
            for section in chosen:
                runs = self.reader.runs(section)
                if len(runs) > 1:
                    self._write_merged(writer, section, runs)
                else:
                    for file in runs[0]:
                        self._write_plain(writer, file)

        self.added += self.write([file for section in chosen for file in section], rows)

    def _write_merged(self, writer: RollingWriter, section: list[DataFile], runs: Sections) -> None:
        for folded, numbers in self.reader.merged(section, runs, self.table.schema.fields, sequence=True):
            assert numbers is not None
            if self.job.drop_retractions and folded.kinds is not None:
                kept = np.flatnonzero((folded.kinds & 1) == 0)
                folded, numbers = folded.chosen(kept), numbers[kept]
            kinds = None if folded.kinds is None else pa.array(folded.kinds)
            self._put(writer, folded.table(), pa.array(numbers), kinds)

    def _write_plain(self, writer: RollingWriter, file: DataFile) -> None:
        names = self.table.schema.names
        for rows in self.reader.plain(file, self.table.schema.fields, sequence=True):
            if self.job.drop_retractions:
                adds = (rows.column(VALUE_KIND.name).to_numpy() & 1) == 0
                rows = rows if adds.all() else rows.filter(pa.array(adds))
            kinds = rows.column(VALUE_KIND.name).combine_chunks()
            self._put(writer, rows.select(names), rows.column(SEQUENCE_NUMBER.name).combine_chunks(), kinds)

    def _put(self, writer: RollingWriter, rows: pa.Table, numbers: pa.Array, kinds: pa.Array | None) -> None:
        there: npt.NDArray[np.bool_] | None = None
        if self.job.below and rows.num_rows:
            keys = [rows.column(name).combine_chunks() for name in self.table.key]
            there = np.ones(rows.num_rows, np.bool_)
            for run in self._below:
                there &= ~run.holds(keys)
        if self.job.drop_retractions and self.table.counting:
            there = rows.column(VALUE_COUNT.name).to_numpy() != 0
        if there is not None and not there.all():
            mask = pa.array(there)
            rows, numbers = rows.filter(mask), numbers.filter(mask)
            kinds = None if kinds is None else kinds.filter(mask)
        if rows.num_rows:
            writer.write(rows, sequences=numbers, kinds=kinds)

    @cached_property
    def _below(self) -> list[_KeysBelow]:
        """Sorted runs that stay, where they reach into the keys of what is compacted."""
        picked, below = self.job.files, self.job.below
        types = self.table.key_types
        low = deserialize_columns([file.min_key for file in picked + below], types)
        high = deserialize_columns([file.max_key for file in picked + below], types)
        first, last = dense_ranks(low, high)
        count = len(picked)
        meets = (last[count:] >= first[:count].min()) & (first[count:] <= last[:count].max())
        files = [file for file, meeting in zip(below, meets.tolist(), strict=True) if meeting]
        return [_KeysBelow(self.reader, run) for run in self.reader.runs(files)] if files else []


class _KeysBelow:
    """The keys of a sorted run that stays, a window at a time; asked with rising keys."""

    def __init__(self, reader: SectionReader, files: Sequence[DataFile]) -> None:
        names = reader.table.key
        fields = [reader.table.schema.field(name) for name in names]
        windows = (window for file in files for window in reader.plain(file, fields))
        self._windows = ([_added(window).column(name).combine_chunks() for name in names] for window in windows)
        self._window: list[pa.Array] | None = None

    def holds(self, keys: list[pa.Array]) -> npt.NDArray[np.bool_]:
        """Return which of these keys are in the run.

        Args:
            keys: key columns of n rows, at least one, in key order and above those of the last call.
        """
        found = np.zeros(len(keys[0]), np.bool_)
        while True:
            self._window = self._window or next(self._windows, None)
            if self._window is None:
                return found
            held, asked = dense_ranks(self._window, keys)
            found |= np.isin(asked, held)
            if len(held) and held[-1] > asked[-1]:
                return found
            self._window = None


def _added(rows: pa.Table) -> pa.Table:
    adds = (rows.column(VALUE_KIND.name).to_numpy() & 1) == 0
    return rows if adds.all() else rows.filter(pa.array(adds))


class _AppendCompaction(_Compaction):
    """Files of a table without a key, one after the other in the order of their rows."""

    def work(self) -> None:
        fields = self.table.schema.fields

        def rows(writer: RollingWriter) -> None:
            for file in self.job.files:
                for table in self.reader.plain(file, fields):
                    writer.write(table)

        made = self.write(self.job.files, rows)
        first, last = self.job.files[0].min_sequence, self.job.files[-1].min_sequence
        for file in made:
            if self.table.bucket > 0:  # numbered as the rows were, so that later files stay later
                # Writers that ran side by side gave numbers twice; counted on, they would pass those of later files.
                low = min(first, last)
                file = replace(file, min_sequence=low, max_sequence=low + file.row_count - 1)
                first += file.row_count
            self.added.append(file)


def append_groups(table: TableDef, files: Sequence[DataFile], *, full: bool) -> list[tuple[DataFile, ...]]:
    """Return groups of files of a table without a key that are worth being made fewer.

    Args:
        files: live files of one bucket. With a bucket key the order of their rows counts, so only neighbours
            are put together.
        full: two small files are enough; else `compaction.min.file-num`, or twice the target size.
    """
    options = table.options
    target = file_layout(table).target_size_bytes
    small = target * options.get(u.SMALL_FILE_RATIO)
    least = 2 if full else options.get(u.COMPACTION_MIN_FILE_NUM)
    ordered = table.bucket > 0
    found: list[tuple[DataFile, ...]] = []
    held: list[DataFile] = []

    def settle() -> None:
        if len(held) >= least or (len(held) > 1 and sum(file.size for file in held) >= 2 * target):
            found.append(tuple(held))
        held.clear()

    for file in sorted(files, key=lambda f: f.min_sequence if ordered else f.size):
        if file.size >= small and not (full and options.get(u.FORCE_REWRITE_ALL_FILES)):
            if ordered:
                settle()
            continue
        held.append(file)
        if sum(f.size for f in held) >= 2 * target:
            settle()
    settle()
    return found

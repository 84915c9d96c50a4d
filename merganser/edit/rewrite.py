"""Changes of rows in tables without a key: files that hold some of the rows are written anew, or rows are marked.

Each file is looked at by itself, so jobs are values that run on threads or in tasks of an engine:

| of the rows of a file | with deletion vectors, without buckets | else |
|---|---|---|
| none matches | nothing | nothing |
| all are deleted | the file goes | the file goes |
| some are deleted | they are marked | the others go into a new file |
| some are updated | they are marked, their new rows go into a new file | all go into a new file, in place |

Vectors are written at the end, bucket by bucket: one index file holds those of many data files.

Docs: decision 0059.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa

from merganser.codec.deletion_vector import Positions
from merganser.commit.message import CommitMessage
from merganser.edit.row_rules import RowRule, sure_filter
from merganser.errors import MerganserError, StorageError
from merganser.files.layout import file_layout
from merganser.files.masks import NO_VECTORS, BucketVectors, Vector, changed, load, vectors_by_bucket
from merganser.files.write import RollingWriter
from merganser.lsm.abandoned import remove_uncommitted
from merganser.lsm.section import SectionReader
from merganser.merge.groups import Mask
from merganser.merge.sort_merge import WINDOW_ROWS
from merganser.meta.data_file import DataFile, ManifestEntry
from merganser.meta.live_files import BucketId
from merganser.meta.row_counts import RowCounts
from merganser.meta.table_def import TableDef
from merganser.meta.table_state import MetaReader, TableState
from merganser.options import write as w
from merganser.scan.plan import plan, surely_matching
from merganser.scan.rows import joined, with_schema
from merganser.scan.split import Split
from merganser.schema import types as t
from merganser.schema.arrow import arrow_schema
from merganser.schema.pieces import rows_at
from merganser.schema.same import same_rows
from merganser.schema.table_schema import POSITION
from merganser.storage.env import Env
from merganser.values import dataclass
from merganser.write.job import FilesJob, Outcome, messages_of

_PART_BYTES: Final = 16 * 1024 * 1024
"""So many bytes of files are worth a job of their own on the threads of a process."""


class FileJob(Protocol):
    """Replaces some files of a bucket."""

    @property
    def table(self) -> TableDef:
        """The table of the bucket."""
        ...

    def parts(self) -> Iterator[FileJob]:
        """Yield what of it can be done side by side."""
        ...

    def run(self, env: Env) -> Outcome:
        """Do it. New files are durable; of a refusal nothing is left."""
        ...


@dataclass(frozen=True)
class RewriteJob(FilesJob):
    """What is changed in some files of a bucket. Pickles; runs wherever there is a core.

    Attributes:
        total_buckets: see `CommitMessage`.
        directory: the bucket's.
        files: those that may hold rows to change.
        schemas: columns of every schema that a file was written with.
        vectors: deletion vectors, by data file.
        rule: what becomes of rows.
        marks: rows that go are marked; else files are written without them.
    """

    table: TableDef
    partition: bytes
    bucket: int
    total_buckets: int
    directory: str
    files: tuple[DataFile, ...]
    schemas: Mapping[int, tuple[t.Field, ...]]
    vectors: Mapping[str, Vector]
    rule: RowRule
    marks: bool

    def parts(self) -> Iterator[RewriteJob]:
        """Yield it as several jobs, so that threads share its work, and few of them write small files."""
        held: list[DataFile] = []
        for file in self.files:
            held.append(file)
            if sum(each.size for each in held) >= _PART_BYTES:
                yield replace(self, files=tuple(held))
                held = []
        if held:
            yield replace(self, files=tuple(held))

    def sought(self, env: Env) -> Iterator[tuple[int, pa.Table]]:
        """Yield the rows that may change, with the number of their file, as far as filters tell before they are read.

        They have the columns by which the rule finds them, and their positions.
        """
        for number, file in enumerate(self.files):
            for rows in _Rewrite(self, env, file, _Output(self, env)).sought():
                yield number, rows

    def run(self, env: Env) -> Outcome:
        """Change the rows. New files are durable; of a refusal nothing is left."""
        out = _Output(self, env)
        done: list[_Rewrite] = []
        try:
            for file in self.files:
                each = _Rewrite(self, env, file, out)
                each.work()
                done.append(each)
                if self.table.bucket > 0:  # files of a bucket have an order
                    out.settle(file.min_sequence)
            out.settle()
        except BaseException as error:
            out.abort()
            if isinstance(error, StorageError) or not isinstance(error, MerganserError):
                raise
            return Outcome(refusal=error)
        removed = tuple(each.file for each in done if each.removed)
        marked = {each.file.name: each.marked for each in done if len(each.marked)}
        message = CommitMessage(self.partition, self.bucket, self.total_buckets, tuple(out.added), removed)
        messages = (message,) if out.added or removed or marked else ()
        counts = RowCounts(0, sum(each.updated for each in done), sum(each.deleted for each in done))
        return Outcome(messages, marked=marked, counts=counts)


class _Output:
    """The new files of a job.

    Attributes:
        added: those that are finished.
    """

    def __init__(self, job: RewriteJob, env: Env) -> None:
        self.added: list[DataFile] = []
        self._job = job
        self._env = env
        self._writer: RollingWriter | None = None

    def write(self, rows: pa.Table) -> None:
        """Take rows."""
        table = self._job.table
        if self._writer is None and rows.num_rows:
            directory, layout = self._job.directory, file_layout(table)
            self._writer = RollingWriter(table=table, env=self._env, directory=directory, layout=layout)
        if self._writer is not None:
            self._writer.write(rows)

    def settle(self, first: int | None = None) -> None:
        """Finish what was written so far.

        Args:
            first: number of its first row: what comes later in its bucket stays later. None: rows have no numbers.
        """
        made, self._writer = () if self._writer is None else self._writer.close(), None
        for file in made:
            if first is not None:
                file = replace(file, min_sequence=first, max_sequence=first + file.row_count - 1)
                first += file.row_count
            self.added.append(file)

    def abort(self) -> None:
        """Remove what was written. Best effort: else it is orphans."""
        if self._writer is not None:
            self._writer.abort()
        job = self._job
        made = CommitMessage(job.partition, job.bucket, job.total_buckets, tuple(self.added))
        remove_uncommitted(job.table, self._env, [made])


class _Rewrite:
    """The change of one file.

    Attributes:
        removed: whether the file goes.
        marked: rising positions of rows that go, of a file that stays.
        updated, deleted: how many rows are not what they were, and how many are gone.
    """

    def __init__(self, job: RewriteJob, env: Env, file: DataFile, out: _Output) -> None:
        self.file = file
        self.removed = False
        self.marked = np.empty(0, np.int64)
        self.updated = self.deleted = 0
        self._job = job
        self._env = env
        self._out = out
        self._reader = SectionReader(job.table, job.directory, job.partition, job.schemas, env.storage, job.vectors)

    def work(self) -> None:
        """Find the rows, and write what becomes of them."""
        found, numbers = self._found()
        if not len(found):
            return
        if self._job.rule.removes_all:
            self.deleted = len(found)
            self.removed = len(found) == self._visible
            if self._job.marks and not self.removed:
                self.marked = found
            elif not self.removed:
                self.removed = True
                for rows, hit, _ in self._all(found):
                    self._out.write(rows.filter(pa.array(~hit)))
        elif self._job.marks:
            self._mark(found, numbers)
        elif any(new.any() for _, _, _, new in self._judged(found, numbers)):
            self._write_anew(found, numbers)

    @property
    def _visible(self) -> int:
        """How many rows are not deleted so far."""
        vector = self._job.vectors.get(self.file.name)
        if vector is None:
            return self.file.row_count
        known = vector.cardinality
        return self.file.row_count - (len(load(self._env.storage, vector)) if known is None else known)

    def _found(self) -> tuple[Positions, Positions]:
        """Return the rising positions of rows that may change, and the numbers that the rule gives them."""
        rule, name = self._job.rule, self.file.name
        known = rule.known(name)
        if known is not None:
            return known
        positions, numbers = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for rows in self.sought():
            found, given = rule.find(rows, name)
            positions.append(rows.column(POSITION.name).to_numpy()[found])
            numbers.append(given)
        return np.concatenate(positions), np.concatenate(numbers)

    def sought(self) -> Iterator[pa.Table]:
        """Yield the rows that may change; see `RewriteJob.sought`."""
        rule = self._job.rule
        fields = [field for field in self._job.table.schema.fields if field.name in rule.reads]
        return self._read(self._reader, fields, groups_filter=rule.where, rows_filter=sure_filter(rule.where))

    def _judged(self, found: Positions, numbers: Positions) -> Iterator[tuple[Positions, pa.Table, Mask, Mask]]:
        """Yield rows at some positions: where they are, what they become, which go, and which change or go."""
        reader = replace(self._reader, only={self.file.name: found})
        for rows in self._read(reader, self._job.table.schema.fields):
            at, olds = rows.column(POSITION.name).to_numpy(), self._plain(rows)
            goes, news = self._job.rule.judge(olds, numbers[np.searchsorted(found, at)])
            yield at, news, goes, goes | ~same_rows(olds, news)

    def _mark(self, found: Positions, numbers: Positions) -> None:
        """Mark rows that change or go, and write new rows."""
        marked = []
        for at, news, goes, changes in self._judged(found, numbers):
            marked.append(at[changes])
            self._count(goes, changes)
            self._out.write(news.filter(pa.array(changes & ~goes)))
        gone = np.concatenate(marked)
        self.removed = len(gone) == self._visible
        self.marked = gone[:0] if self.removed else gone

    def _write_anew(self, found: Positions, numbers: Positions) -> None:
        """Write all rows that stay, each in its place."""
        self.removed = True
        for rows, hit, place in self._all(found):
            if hit.any():
                olds = rows.filter(pa.array(hit))
                goes, news = self._job.rule.judge(olds, numbers[place[hit]])
                self._count(goes, goes | ~same_rows(olds, news))
                order = np.arange(rows.num_rows)
                order[hit] = rows.num_rows + np.arange(news.num_rows)
                stays = np.ones(rows.num_rows, np.bool_)
                stays[hit] = ~goes
                rows = rows_at(joined([rows, news]), order[stays])
            self._out.write(rows)

    def _count(self, goes: Mask, changes: Mask) -> None:
        self.deleted += int(goes.sum())
        self.updated += int((changes & ~goes).sum())

    def _all(self, found: Positions) -> Iterator[tuple[pa.Table, Mask, Positions]]:
        """Yield all rows that are not deleted, which of them are found, and the place of each among these."""
        for rows in self._read(self._reader, self._job.table.schema.fields):
            at = rows.column(POSITION.name).to_numpy()
            place = np.minimum(np.searchsorted(found, at), len(found) - 1)
            yield self._plain(rows), found[place] == at, place

    def _plain(self, rows: pa.Table) -> pa.Table:
        return with_schema(rows.drop_columns([POSITION.name]), arrow_schema(self._job.table.schema.fields))

    def _read(self, reader: SectionReader, fields: Sequence[t.Field], **asked: Any) -> Iterator[pa.Table]:
        """Yield rows with their positions in the file."""
        opened = reader.opened(self.file, fields, positions=True, **asked)
        try:
            while (rows := opened.read(WINDOW_ROWS)) is not None:
                if rows.num_rows:
                    yield rows
        finally:
            opened.close()


@dataclass(frozen=True)
class Rewriting:
    """The change of the files of a table at one state.

    Attributes:
        jobs: what is to be looked at.
        dropped: files whose rows all go, so that nobody has to look at them.
        vectors: deletion vectors by bucket.
    """

    jobs: tuple[RewriteJob, ...]
    dropped: tuple[ManifestEntry, ...]
    vectors: Mapping[BucketId, BucketVectors]

    @property
    def dropped_rows(self) -> int | None:
        """How many rows are dropped; None as for `rows_in`."""
        return rows_in(self.dropped, self.vectors)

    def messages(self, table: TableDef, env: Env, outcomes: Sequence[Outcome]) -> list[CommitMessage]:
        """Return what the commit changes, bucket by bucket; writes the vectors.

        Raises:
            MerganserError: the first refusal among the outcomes. The files of all are removed.
        """
        made = messages_of(table, env, outcomes)
        found: dict[BucketId, CommitMessage] = {}
        marked: dict[BucketId, dict[str, Positions]] = {}
        for outcome in outcomes:
            for message in outcome.messages:
                marked.setdefault((message.partition, message.bucket), {}).update(outcome.marked)
        gone = [
            CommitMessage(entry.partition, entry.bucket, entry.total_buckets, (), (entry.file,))
            for entry in self.dropped
        ]
        for message in (*made, *gone):
            bucket = (message.partition, message.bucket)
            before = found.get(bucket, replace(message, added=(), removed=()))
            added, removed = before.added + message.added, before.removed + message.removed
            found[bucket] = replace(before, added=added, removed=removed)
        try:
            for bucket, message in found.items():
                vectors = self.vectors.get(bucket, NO_VECTORS)
                names = {file.name for file in message.removed}
                change = changed(table, env, bucket, vectors, dropped=names, marked=marked.get(bucket))
                found[bucket] = replace(message, index_added=change.added, index_removed=change.removed)
        except BaseException:
            remove_uncommitted(table, env, list(found.values()))
            raise
        return list(found.values())


def rewriting(table: TableDef, env: Env, state: TableState, rule: RowRule) -> Rewriting:
    """Return what a change looks at in a state.

    Args:
        rule: what becomes of rows.
    """
    snapshot = state.snapshot
    if snapshot is None:
        return Rewriting((), (), {})
    vectors = vectors_by_bucket(table, MetaReader(table.paths, env, table.name).index(snapshot))
    found = plan(table, env, state, columns=table.schema.fields, where=rule.where)
    entries = {entry.file.name: entry for entry in state.live}
    whole: set[str] = set()
    if rule.removes_all:
        planned = [entries[file.name] for split in found.splits for file in split.files]
        whole = {entry.file.name for entry in surely_matching(table, planned, rule.where)}
    marks = table.options.get(w.DELETION_VECTORS) and not table.bucketed
    jobs = []
    for split in found.splits:
        assert isinstance(split, Split)
        files = tuple(file for file in split.files if file.name not in whole)
        if not files:
            continue
        entry = entries[files[0].name]
        jobs.append(
            RewriteJob(
                table,
                entry.partition,
                entry.bucket,
                entry.total_buckets,
                split.directory,
                files,
                found.job.schemas,
                split.vectors,
                rule,
                marks,
            )
        )
    return Rewriting(tuple(jobs), tuple(entries[name] for name in whole), vectors)


def rows_in(entries: Sequence[ManifestEntry], vectors: Mapping[BucketId, BucketVectors]) -> int | None:
    """Return how many rows of files are not deleted; None: a writer of vectors did not say how many are."""
    rows = 0
    for entry in entries:
        vector = vectors.get((entry.partition, entry.bucket), NO_VECTORS).by_file.get(entry.file.name)
        if vector is not None and vector.cardinality is None:
            return None
        rows += entry.file.row_count - (0 if vector is None else vector.cardinality or 0)
    return rows


def run_here(env: Env) -> Callable[[Sequence[FileJob]], list[Outcome]]:
    """Return what runs jobs on the threads of this process."""

    def run(jobs: Sequence[FileJob]) -> list[Outcome]:
        parts = [part for job in jobs for part in job.parts()]
        done: list[Outcome] = []

        def one(job: FileJob) -> None:
            done.append(job.run(env))

        try:
            env.map(one, parts)
        except BaseException:
            for outcome in done:
                remove_uncommitted(jobs[0].table, env, outcome.messages)
            raise
        return done

    return run

"""`ms.load`: Python tasks read the rows of files and write them as one commit; no row crosses the JVM.

The driver reads footers and so knows how many rows lie before each row group, in the order of the files' paths. Every
task takes neighbouring row groups and writes a file of its own to each bucket. Its sequence numbers begin after those
of all earlier rows:

    bucket b    [first free + 0 .. ) task 0    [first free + rows before task 1 .. ) task 1    ...

So the numbers of tasks never overlap, and the last row of a key in file and row order wins. A task takes whole text
files (CSV, JSON); the bytes of such a file limit the number of its rows. `ingest.files` reads the files, as without
Spark.

Every task adds a file to a bucket. Spark shuffles the rows instead, with the same numbers, and each bucket or assigner
of keys gets one task, in three cases: these are too many files for a merge, buckets are added as keys arrive, or the
compaction after the commit would have to rewrite several files of a bucket, and moves a lone one as it is.
"""

from __future__ import annotations

import math
import os
import pickle
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from merganser.errors import MerganserError, StorageError
from merganser.handle.table import Table
from merganser.handle.writing import Overwrite
from merganser.ingest.files import Portion, RowFiles, rows_of_files
from merganser.ingest.rows import split_kinds
from merganser.meta.snapshot import Snapshot
from merganser.options import write as w
from merganser.rules.compacting import moves_lone_files
from merganser.schema.internal_names import internal_name
from merganser.spark.access import cores, opened, run_jobs
from merganser.spark.bucketing import TASK, assigners_on, to_tasks
from merganser.spark.compaction import on_tasks
from merganser.spark.jobs import batch_of, in_tasks
from merganser.spark.names import spelling_of
from merganser.storage.env import Env
from merganser.values import dataclass
from merganser.write.begin import begin
from merganser.write.buckets import sole_writers
from merganser.write.incoming import Prepared
from merganser.write.job import Outcome, WriteJob, messages_of
from merganser.write.target import WriteTarget
from merganser.write.writer import arrives

FILES_PER_BUCKET_MAX: Final = 64
"""Most files that one load may add to a bucket; a merge opens all of them."""
TASK_BYTES_MIN: Final = 4 * 1024 * 1024
"""Least decoded bytes of a task, if there are enough: each task adds a file to every bucket and takes time to start."""
_DECODED: Final = 1.5
"""Approximate bytes in memory for one byte of encoded pages."""


@dataclass(frozen=True, slots=True)
class Share:
    """The rows that one task reads.

    Attributes:
        before: how many rows may lie before its own, in all files.
        portions: neighbours, in order.
    """

    before: int
    portions: tuple[Portion, ...]


def load(
    spark: SparkSession,
    files: str,
    table: Table | str,
    kinds: str | None = None,
    columns: Sequence[str] | None = None,
    overwrite: Overwrite = None,
    commit_user: str | None = None,
    identifier: int | None = None,
    options: Mapping[str, str] | None = None,
    watermark: int | datetime | None = None,
    changes: bool = True,
    time_zone: str | None = None,
    time_unit: str | Mapping[str, str] | None = None,
    partitions: bool = True,
) -> Snapshot | None:
    """Write the rows of files as one commit, by column name; rows are in the order of the files' paths.

    Args:
        spark: the session whose tasks do the work.
        files: a pattern or a directory that the driver and all tasks can read; see `Table.load`.
        table: a table, or its path.
        kinds: the column of the files with the row kinds ("+I", "-U", "+U", "-D"); it is not stored. None: all rows
            are inserts.
        columns: the columns that the files have; see `Table.write`.
        overwrite: the partitions to replace; see `Table.write`.
        commit_user: the name of the committer.
        identifier: the number of this commit; see `Table.write`.
        options: the format and the layout of files, and options of their store; see `Table.load`.
        watermark: the time up to which all rows by event time are there; see `Table.write`.
        changes: False: the commit publishes no changes; see `Table.write`.
        time_zone, time_unit: how text files tell times; see `Table.load`.
        partitions: False: directories say no columns.

    Returns:
        The snapshot, or None if there was nothing to commit.

    Raises:
        NotFoundError: no file matches.
        InvalidInputError: the rows do not fit the table; nothing was written. Names and types of Parquet files are
            checked before Spark runs anything.
        FormatError: a file is damaged; nothing was written.
        ConflictError, CommitUnknownError: as for `Table.write`.
    """
    found = opened(table)
    names = spelling_of(spark, found)
    columns, overwrite = names.names(columns), names.overwrite(overwrite)
    transaction = begin(
        found.definition,
        found.env,
        columns=columns,
        overwrite=overwrite,
        changes=changes,
        commit_user=commit_user,
        identifier=identifier,
        watermark=watermark,
        run=on_tasks(spark, found.env),
    )
    done, snapshot = transaction.applied()
    if done:
        return snapshot
    listed, rows = rows_of_files(
        files,
        found.definition,
        found.env.storage,
        kinds,
        columns,
        options,
        time_zone,
        time_unit,
        partitions=partitions,
    )
    rows.check_directories(listed.paths)
    # Tasks have working directories of their own.
    paths = [path if "://" in path else os.path.abspath(path) for path in listed.paths]
    portions = _portions(rows, paths, transaction.target, kinds, found.env)
    begun = found.env.seconds()
    job = transaction.job(kinds=kinds, assigners=assigners_on(spark, found.definition), shows=transaction.uuid)
    outcomes = run_portions(spark, job, rows, portions)
    transaction.spent("tasks", found.env.seconds() - begun)
    return transaction.finish(messages_of(found.definition, found.env, outcomes))


class RowSource(Protocol):
    """Reads portions of files in tasks; it pickles."""

    def tables(self, portion: Portion) -> Iterator[pa.Table]:
        """Yield the rows of a portion in order, a batch at a time."""
        ...


def run_portions(spark: SparkSession, job: WriteJob, rows: RowSource, portions: Sequence[Portion]) -> list[Outcome]:
    """Return the outcomes of tasks that read all portions and write their rows.

    Args:
        portions: in the order of the rows.
    """
    if not portions:
        return []
    table = job.target.table
    decoded, buffer = _DECODED * sum(portion.size_bytes for portion in portions), table.options.get(w.WRITE_BUFFER_SIZE)
    useful = min(cores(spark), math.ceil(decoded / TASK_BYTES_MIN))
    wanted = max(1, useful, math.ceil(decoded / buffer))
    tasks = _shares(portions, wanted)
    numbers = spark.range(0, len(tasks), 1, len(tasks))
    places = job.start.assigners if table.assigns_keys else table.bucket
    count = len(tasks) if table.schema.partition_keys else min(places, len(tasks))
    alone = len(tasks) > 1 and (
        table.assigns_keys  # a new key needs one assigner
        # Each time that a buffer is full, the writer adds a file to the bucket.
        or (table.keyed and table.bucket > 0 and moves_lone_files(table.options) and decoded <= count * buffer)
    )
    if not alone and (table.bucket <= 0 or wanted <= FILES_PER_BUCKET_MAX):
        return run_jobs(numbers, LoadJob(job, rows, tasks))
    scattered = in_tasks(numbers, ScatterJob(job, rows, tasks, count), SCATTERED_SCHEMA)
    # In the order of the files: engines that put versions together take neighbours only.
    return run_jobs(to_tasks(scattered, count).sortWithinPartitions(_FIRST), GatherJob(job))


@dataclass(frozen=True, slots=True)
class LoadJob:
    """Writes the rows of files; its input holds the numbers of the shares to write."""

    job: WriteJob
    rows: RowSource
    tasks: tuple[Share, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield one outcome for each share, in the form that `mapInArrow` needs."""
        for number in _numbers(batches):
            share = self.tasks[number]
            tables = (table for portion in share.portions for table in self.rows.tables(portion))
            yield batch_of(self.job.run(tables, skipped=share.before))


@dataclass(frozen=True, slots=True)
class ScatterJob:
    """Reads the rows of files and yields them, as Arrow streams, to the tasks that write their buckets.

    A row of what it yields is many rows of the table: crossing to the JVM costs by the cell.
    """

    job: WriteJob
    rows: RowSource
    tasks: tuple[Share, ...]
    count: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the number of a task and rows for it, or a refusal."""
        for number in _numbers(batches):
            try:
                yield from self._scattered(self.tasks[number])
            except StorageError:
                raise
            except MerganserError as refusal:
                yield _scattered_batch([0], [b""], [pickle.dumps(refusal)], -1)

    def _scattered(self, share: Share) -> Iterator[pa.RecordBatch]:
        target = self.job.target
        before = share.before
        for table in (table for portion in share.portions for table in self.rows.tables(portion)):
            rows, texts = split_kinds(table, self.job.kinds, table=target.table.name)
            conformed, kinds, arrival = target.accepted(
                rows, texts, np.arange(before, before + rows.num_rows), in_task=True
            )
            before += rows.num_rows
            whole = conformed.append_column(_ARRIVAL, pa.array(arrival))
            if kinds is not None:
                whole = whole.append_column(_KIND, kinds)
            places: dict[int, list[np.ndarray]] = {}
            for group in sole_writers(target.table, conformed, self.job.start.assigners):
                places.setdefault((zlib.crc32(group.partition) + group.bucket) % self.count, []).append(group.rows)
            payloads = [_to_stream(whole.take(pa.array(np.sort(np.concatenate(at))))) for at in places.values()]
            yield _scattered_batch(list(places), payloads, [None] * len(places), before - rows.num_rows)


@dataclass(frozen=True, slots=True)
class GatherJob:
    """Writes the rows that `ScatterJob` sent to a task."""

    job: WriteJob

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write all rows and yield the outcome."""
        yield batch_of(self.job.run_prepared(self._received(batches)))

    def _received(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Prepared]:
        for batch in batches:
            for payload, refusal in zip(batch.column("rows"), batch.column("refusal"), strict=True):
                if refusal.is_valid:
                    raise pickle.loads(refusal.as_py())
                table = pa.ipc.open_stream(payload.as_buffer()).read_all()
                kinds = table.column(_KIND).combine_chunks() if _KIND in table.column_names else None
                rows = table.drop_columns([name for name in (_ARRIVAL, _KIND) if name in table.column_names])
                yield rows, kinds, table.column(_ARRIVAL).to_numpy() if arrives(self.job.target.table) else None


_FIRST: Final = "first"
SCATTERED_SCHEMA: Final = f"{TASK} int, rows binary, refusal binary, {_FIRST} bigint"
_ARRIVAL: Final = internal_name("arrival")
_KIND: Final = internal_name("kind")


def _scattered_batch(tasks: list[int], rows: list[bytes], refusals: list[bytes | None], first: int) -> pa.RecordBatch:
    """Return rows for tasks; `first` is the position of the first row among the rows of all files."""
    columns = [
        pa.array(tasks, pa.int32()),
        pa.array(rows, pa.binary()),
        pa.array(refusals, pa.binary()),
        pa.array([first] * len(tasks), pa.int64()),
    ]
    return pa.RecordBatch.from_arrays(columns, names=[TASK, "rows", "refusal", _FIRST])


def _to_stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def _numbers(batches: Iterable[pa.RecordBatch]) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_pylist()


def _portions(rows: RowFiles, paths: Sequence[str], target: WriteTarget, kinds: str | None, env: Env) -> list[Portion]:
    """Return the rows of files, in order, as the smallest portions that a task can read.

    Raises:
        InvalidInputError: names or types of a Parquet or Arrow file do not fit the table.
        FormatError: a file is damaged where it says what it holds.
    """

    def parts(path: str) -> list[Portion]:
        schema = rows.schema(path)
        if schema is not None:
            target.check_names_and_types(schema, kinds)
        return rows.portions(path)

    return [portion for found in env.map(parts, paths) for portion in found]


def _shares(portions: Sequence[Portion], wanted: int) -> tuple[Share, ...]:
    """Return neighbouring portions as at most `wanted` shares of about the same size, at least one."""
    total = sum(portion.size_bytes for portion in portions) or 1
    shares: dict[int, tuple[int, list[Portion]]] = {}
    size = before = 0
    for portion in portions:
        number = min(wanted - 1, (size + portion.size_bytes // 2) * wanted // total)
        _, share = shares.setdefault(number, (before, []))
        joined = share[-1].joined(portion) if share else None
        share[len(share) - (joined is not None) :] = [joined or portion]
        size += portion.size_bytes
        before += portion.rows
    return tuple(Share(first, tuple(share)) for first, share in shares.values())

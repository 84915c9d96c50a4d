"""Merges into tables without a key: Spark joins the rows of files with a source, and tasks change the files.

    tasks    read the columns of the condition, and say where each row is     `FindTask`
    Spark    joins these rows with the source; shuffles them by file, and rows that meet none by bucket, or evenly
    tasks    write what becomes of the files, and new rows                    `FilesTask`

The number of a job says which pack it lies in, so that the rows of the files of a pack share a task, and which one it
is there. No file is in two jobs.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as s

from merganser.edit.merge_files import AT, FILE, JOB, NEW, FilesMerge, MergedRows
from merganser.edit.places import sought
from merganser.edit.rewrite import RewriteJob
from merganser.expr.predicate import Predicate
from merganser.handle.table import Table
from merganser.schema.internal_names import internal_name
from merganser.schema.table_schema import POSITION
from merganser.spark.access import TASKS_PER_CORE, cores, run_jobs
from merganser.spark.bucketing import TASK, quoted, task_of_bucket, tasks_most, to_tasks
from merganser.spark.jobs import batch_of, in_tasks
from merganser.spark.joins import joined_with, of_side
from merganser.spark.splits import balanced, weight_of
from merganser.spark.types import arrow_schema_of, spark_batches, spark_schema
from merganser.storage.env import Env
from merganser.values import dataclass
from merganser.write.job import Outcome

_PACK_BITS: Final = 32


def numbered_names(count: int) -> list[str]:
    """Return names for the columns of a source that no column of a table has, and that SQL reads as they are."""
    return [internal_name(str(i)) for i in range(count)]


def files_merged(source: DataFrame, table: Table, on: str, todo: FilesMerge) -> list[Outcome]:
    """Return what tasks did that were handed rows of a source, each with the place of a row that it meets.

    Args:
        on: the condition, as Spark understands it.
    """
    spark, clauses = source.sparkSession, todo.clauses
    packs = _packs(todo.jobs, TASKS_PER_CORE * cores(spark))
    changes, inserts = bool(clauses.matched or clauses.unmatched), bool(clauses.missing)
    names = [name for name in source.columns if name in clauses.of_source] or source.columns[:1]
    numbered = numbered_names(len(names))
    sides = clauses.on.names
    columns = [of_side(sides.source, name).alias(to) for name, to in zip(names, numbered, strict=True)]
    places = [f.col(JOB), f.col(FILE), f.col(AT)]
    if not changes:
        places = [
            f.lit(NEW).cast("long").alias(JOB),
            f.lit(None).cast("int").alias(FILE),
            f.lit(None).cast("long").alias(AT),
        ]
    elif inserts:
        places[0] = f.coalesce(f.col(JOB), f.lit(NEW)).alias(JOB)
    how = "left_anti" if not changes else "left" if inserts else "inner"
    rows = _rows(source, table, todo, packs)
    size = sum(job.size_bytes for job in todo.jobs)
    frame = joined_with(source, rows, size, on, how, sides).select(*columns, *places)
    if clauses.unmatched:
        numbers = [(pack << _PACK_BITS | i,) for pack, jobs in enumerate(packs) for i in range(len(jobs))]
        every = spark.createDataFrame(numbers, s.StructType([s.StructField(JOB, s.LongType())]))
        frame = frame.unionByName(every, allowMissingColumns=True)
    count = max(1, len(packs), tasks_most(spark) if inserts else 1)
    frame = _by_task(frame, table, todo, dict(zip(names, numbered, strict=True)), count)
    return run_jobs(frame, FilesTask(pickle.dumps(todo.new), _pickled(packs), (*names, JOB, FILE, AT), table.env))


def files_changed(
    spark: SparkSession,
    table: Table,
    todo: FilesMerge,
    query: Callable[[DataFrame], DataFrame],
    columns: Sequence[str],
    where: Predicate | None,
) -> list[Outcome]:
    """Return what tasks did that were handed places and new values of rows, which a query gives.

    Args:
        query: makes them of the rows of files with their places.
        columns: of the rows that the query reads, without places.
        where: the rows that it reads; None: all.
    """
    packs = _packs(todo.jobs, TASKS_PER_CORE * cores(spark))
    if not packs:
        return []
    read = [[sought(job, columns, where) for job in jobs] for jobs in packs]
    frame = query(_placed_rows(spark, table, columns, read))
    names = tuple(frame.columns)
    frame = _by_task(frame, table, todo, {}, len(packs))
    return run_jobs(frame, FilesTask(pickle.dumps(todo.new), _pickled(packs), names, table.env))


def _packs(jobs: tuple[RewriteJob, ...], most: int) -> list[list[RewriteJob]]:
    weights = [weight_of(job.size_bytes, job.file_count) for job in jobs]
    return [[jobs[i] for i in pack] for pack in balanced(weights, tasks_max=most)] if jobs else []


def _pickled(packs: list[list[RewriteJob]]) -> tuple[bytes, ...]:
    return tuple(pickle.dumps(pack) for pack in packs)


def _rows(source: DataFrame, table: Table, todo: FilesMerge, packs: list[list[RewriteJob]]) -> DataFrame:
    """Return the rows of files: the columns that the condition looks at, and where each row is."""
    return _placed_rows(source.sparkSession, table, todo.clauses.on.reads, packs)


def _placed_rows(
    spark: SparkSession, table: Table, columns: Collection[str], packs: list[list[RewriteJob]]
) -> DataFrame:
    definition = table.definition
    fields = [field for field in definition.schema.fields if field.name in columns]
    where = [s.StructField(JOB, s.LongType()), s.StructField(FILE, s.IntegerType()), s.StructField(AT, s.LongType())]
    schema = s.StructType([*spark_schema(definition, fields).fields, *where])
    if not packs:
        return spark.createDataFrame([], schema)
    names = tuple(field.name for field in fields)
    task = FindTask(_pickled(packs), names, arrow_schema_of(schema), table.env)
    return in_tasks(spark.range(0, len(packs), 1, len(packs)), task, schema)


def _by_task(frame: DataFrame, table: Table, todo: FilesMerge, columns: dict[str, str], count: int) -> DataFrame:
    """Return rows in tasks, by their jobs, each of them in the order of the jobs.

    Args:
        columns: by column of the source, what it is called in the frame.
    """
    given = frame.columns
    task: Column = f.shiftright(f.col(JOB), _PACK_BITS).cast("int")
    if todo.clauses.missing:
        new: Column | None = f.pmod(f.spark_partition_id(), f.lit(count))
        if table.definition.bucketed:  # rows of a bucket have an order, so one task writes them
            schema = table.definition.schema
            taken = todo.clauses.taken_from((*schema.partition_keys, *schema.bucket_key))
            for name, column in (taken or {}).items():
                frame = frame.withColumn(name, f.col(columns[column]))
            new = task_of_bucket(frame, table.definition, count) if taken else None
        task = f.when(f.col(JOB) == NEW, f.lit(0) if new is None else new).otherwise(task)
    frame = frame.withColumn(TASK, task).select(*given, quoted(TASK))
    frame = frame.repartition(1) if count == 1 else to_tasks(frame, count)
    return frame.drop(TASK).sortWithinPartitions(f.col(JOB))


@dataclass(frozen=True, slots=True)
class FindTask:
    """Reads the packs of jobs whose numbers it is given.

    Attributes:
        packs: lists of `RewriteJob`, pickled.
        names: the columns to return.
        schema: what Spark declared: these columns, and the places of rows.
    """

    packs: tuple[bytes, ...]
    names: tuple[str, ...]
    schema: pa.Schema
    env: Env

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows that may meet one of the source, as `mapInArrow` wants them."""
        env = Env(self.env.storage, self.env.clock, threads=1)  # a task has one core
        for batch in batches:
            for pack in batch.column(0).to_pylist():
                for i, job in enumerate(pickle.loads(self.packs[pack])):
                    for file, rows in job.sought(env):
                        yield from spark_batches(self._placed(rows, pack << _PACK_BITS | i, file), self.schema)

    def _placed(self, rows: pa.Table, job: int, file: int) -> pa.Table:
        count = rows.num_rows
        places = [pa.repeat(pa.scalar(job, pa.int64()), count), pa.repeat(pa.scalar(file, pa.int32()), count)]
        columns = [*(rows.column(name) for name in self.names), *map(pa.chunked_array, ([place] for place in places))]
        return pa.table([*columns, rows.column(POSITION.name)], [*self.names, JOB, FILE, AT])


@dataclass(frozen=True, slots=True)
class FilesTask:
    """Writes what becomes of the rows that it is given, in the order of their jobs.

    Attributes:
        merged: a `MergedRows`, pickled.
        packs: as of `FindTask`.
        names: of the columns; see `WriteTask`.
    """

    merged: bytes
    packs: tuple[bytes, ...]
    names: tuple[str, ...]
    env: Env

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield an outcome per job, as `mapInArrow` wants it."""
        env = Env(self.env.storage, self.env.clock, threads=1)  # a task has one core
        names = list(self.names)
        parts = (pa.Table.from_batches([batch]).rename_columns(names) for batch in batches if batch.num_rows)
        merged: MergedRows = pickle.loads(self.merged)
        for outcome in merged.run(parts, self._jobs(), env):
            yield batch_of(outcome)

    def _jobs(self) -> Callable[[int], RewriteJob]:
        @lru_cache(maxsize=1)
        def pack_of(number: int) -> list[RewriteJob]:
            found: list[RewriteJob] = pickle.loads(self.packs[number])
            return found

        return lambda number: pack_of(number >> _PACK_BITS)[number & ((1 << _PACK_BITS) - 1)]

"""`ms.delete`, `ms.update` and `ms.merge`: Spark tasks find and change rows, and the driver commits once.

A task reads some splits of the table, or some files of appended rows, and writes what becomes of their rows. No row
goes through the JVM. What names its keys is looked up by the driver, which costs less than a task.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from merganser.edit.asked import filter_of
from merganser.edit.assign import assignments
from merganser.edit.change import Change, RunEdits
from merganser.edit.matching import Matching
from merganser.edit.merge_jobs import (
    MARK,
    JoinedElsewhere,
    MergeJob,
    joined_elsewhere,
    keys_of_source,
    merged_in_tasks,
)
from merganser.edit.merging import Merge
from merganser.edit.removal import RemovalJob
from merganser.edit.rewrite import RewriteJob
from merganser.edit.row_jobs import RowJob
from merganser.handle.table import Table
from merganser.meta.snapshot import Snapshot
from merganser.meta.table_state import MetaReader
from merganser.schema import types as t
from merganser.spark.bucketing import assigners_on, one_writer_each
from merganser.spark.compaction import on_tasks
from merganser.spark.jobs import batch_of
from merganser.spark.names import setting_of
from merganser.spark.scan import frame_of
from merganser.spark.session import TASKS_PER_CORE, check_frame, cores, opened, our_errors, run_jobs
from merganser.spark.splits import balanced, weight_of
from merganser.spark.staging import FILES_FROM_BYTES, estimated_bytes
from merganser.spark.types import arrow_schema_of, spark_schema
from merganser.storage.env import Env
from merganser.write.job import Outcome


def delete(
    spark: SparkSession,
    table: Table | str,
    where: str | Any,
    *,
    commit_user: str | None = None,
    identifier: int | None = None,
    changes: bool = True,
) -> Snapshot | None:
    """Remove rows as one commit; see `Table.delete`.

    Args:
        spark: the session whose tasks work.
        table: a table, or its path.
        where: the rows to remove; "true": all. Text means what it means in Spark: timestamps are in the time zone of
            the session.
        commit_user, identifier, changes: see `Table.write`.

    Returns:
        The snapshot; its `rows_deleted` says how many rows were removed. None if no row matches.

    Raises:
        InvalidInputError, ConflictError, CommitUnknownError: see `Table.delete`.
    """
    return _change(spark, opened(table), where, None, commit_user, identifier, changes)


def update(
    spark: SparkSession,
    table: Table | str,
    where: str | Any,
    set: Mapping[str, str],
    *,
    commit_user: str | None = None,
    identifier: int | None = None,
    changes: bool = True,
) -> Snapshot | None:
    """Give rows new values as one commit; see `Table.update`.

    Args:
        spark: the session whose tasks work.
        table: a table, or its path.
        where, set: the rows, and SQL text by column. It means what it means in Spark.
        commit_user, identifier, changes: see `Table.write`.

    Returns:
        The snapshot; its `rows_updated` says how many rows are not what they were. None if no row changes.

    Raises:
        InvalidInputError, ConflictError, CommitUnknownError: see `Table.update`.
    """
    return _change(spark, opened(table), where, set, commit_user, identifier, changes)


def merge(
    spark: SparkSession,
    table: Table | str,
    source: DataFrame,
    on: str,
    *,
    commit_user: str | None = None,
    identifier: int | None = None,
    changes: bool = True,
) -> Merge:
    """Return a merge of the rows of a DataFrame into a table; see `Table.merge`. It is done by `execute`.

    If the condition is that the whole key is equal to columns of the source, tasks share the keys: each looks up the
    rows of its keys, and writes what becomes of them. By other conditions, and with clauses for rows that meet none of
    the source, Spark joins the source with the table first, which gives each row the keys that it meets. Few rows, and
    rows of merges into tables without a key, are fetched by the driver and merged in its own process.

    Args:
        spark: the session.
        table: a table, or its path.
        source: the rows.
        on: which row of the source belongs to which row of the table. Text means what it means in Spark.
        commit_user, identifier, changes: see `Table.write`.

    Raises:
        InvalidInputError: see `Table.merge`.
    """
    found = opened(table)
    check_frame(source, f"cannot merge into '{found.name}'", "Table.merge takes rows that lie in this process.")
    setting = setting_of(spark, found)
    empty = arrow_schema_of(source.schema).empty_table()

    def done(merge: Merge) -> Snapshot | None:
        into = replace(found, definition=merge.table)
        is_small = (estimated_bytes(source) or FILES_FROM_BYTES) < FILES_FROM_BYTES
        compact, assigners = on_tasks(spark, found.env), assigners_on(spark, merge.table)
        keys = keys_of_source(merge)
        if keys is not None and not is_small:
            places: dict[str, tuple[str, ...]] = {name: (column,) for name, column in keys.items()}
            return merged_in_tasks(merge, lambda job: _merged(source, into, places, job), compact, assigners)
        joined = joined_elsewhere(merge) if keys is None else None
        if joined is not None and not (is_small and _is_small(into)):
            places = {name: tuple(filter(None, (key, joined.new.get(name)))) for name, key in joined.keys.items()}
            return merged_in_tasks(
                joined.merge,
                lambda job: _merged(_with_keys(source, into, on, joined, job.snapshot), into, places, job),
                compact,
                assigners,
            )
        with our_errors(spark):
            rows = source.toArrow()
        return merge.with_source(rows).execute()

    return found.merging(empty, on, setting, commit_user, identifier, changes, done)


def _is_small(table: Table) -> bool:
    """Return whether a scan of a table is quick in one process."""
    return sum(split.size_bytes for split in table.read().plan().splits) < FILES_FROM_BYTES


def _with_keys(
    source: DataFrame, table: Table, on: str, joined: JoinedElsewhere, snapshot: Snapshot | None
) -> DataFrame:
    """Return the rows of a source with the keys that they meet in a snapshot: once for each; without inserts no others.

    If the merge looks at rows without a partner, there are their keys, too, in rows whose column `MARK` is null.

    Args:
        on: the condition, as Spark understands it.
    """
    definition, spark = table.definition, source.sparkSession
    keys = spark_schema(definition, [definition.schema.field(name) for name in joined.keys]).fields
    columns = [f.col(f"source.{t.quoted(name)}").alias(name) for name in source.columns]
    left = source
    if joined.others:
        left, columns = source.withColumn(MARK, f.lit(True)), [*columns, f.col(MARK)]
    left = left.alias("source")
    if snapshot is None:
        nulls = (f.lit(None).cast(key.dataType).alias(joined.keys[key.name]) for key in keys)
        return left.select(*columns, *nulls)
    state = MetaReader(definition.paths, table.env, table.name).state(snapshot)
    scan = Matching(definition, table.env, None, f"cannot merge into '{table.name}'").scan(
        state, {*joined.keys, *joined.reads}
    )
    right = frame_of(spark, scan, None).alias("target")
    found = [f.col(f"target.{t.quoted(name)}").alias(key) for name, key in joined.keys.items()]
    how = ("full" if joined.new else "right") if joined.others else ("left" if joined.new else "inner")
    return left.join(right, f.expr(on), how).select(*columns, *found)


def _merged(source: DataFrame, table: Table, places: Mapping[str, Sequence[str]], job: MergeJob) -> list[Outcome]:
    """Return what tasks did that were handed the rows of a source, all rows of a bucket in one task.

    Args:
        places: by column of the key, the columns of the source that hold it; the first that is not null counts.
    """
    names = tuple(source.columns)
    numbered = [f"_merganser_{i}" for i in range(len(names))]  # no column of the table is called so
    frame = source.toDF(*numbered)
    for name, columns in places.items():
        at = [names.index(column) for column in columns]
        kind = frame.schema[at[0]].dataType
        first, *others = (f.col(numbered[i]) for i in at)
        frame = frame.withColumn(name, f.coalesce(first, *(other.cast(kind) for other in others)) if others else first)
    frame = one_writer_each(frame, table.definition).select(*numbered)
    return run_jobs(frame, MergeTask(pickle.dumps(job), names, table.env))


def _change(
    spark: SparkSession,
    table: Table,
    where: str | Any,
    sets: Mapping[str, str] | None,
    commit_user: str | None,
    identifier: int | None,
    changes: bool,
) -> Snapshot | None:
    setting = setting_of(spark, table)
    action = f"cannot delete from '{table.name}'" if sets is None else f"cannot update '{table.name}'"
    return Change(
        table.definition,
        table.env,
        filter_of(where, table.definition, action, setting),
        None if sets is None else assignments(table.definition, sets, action, setting),
        action,
        commit_user,
        identifier,
        changes,
        run=_on_tasks(spark, table.env),
        run_compactions=on_tasks(spark, table.env),
    ).done()


def _on_tasks(spark: SparkSession, env: Env) -> RunEdits:
    """Return what runs jobs as Spark tasks, several of them in a task if they are many or small."""

    def run(jobs: Sequence[RowJob] | Sequence[RewriteJob] | Sequence[RemovalJob]) -> list[Outcome]:
        weights = [weight_of(job.size_bytes, job.file_count) for job in jobs]
        packs = balanced(weights, tasks_max=TASKS_PER_CORE * cores(spark))
        task = EditTask(tuple(pickle.dumps([jobs[i] for i in pack]) for pack in packs), env)
        return run_jobs(spark.range(0, len(packs), 1, len(packs)), task)

    return run


@dataclass(frozen=True, slots=True)
class MergeTask:
    """Merges all rows that a task is given.

    Attributes:
        job: a `MergeJob`, pickled.
        names: of the columns; see `WriteTask`.
    """

    job: bytes
    names: tuple[str, ...]
    env: Env

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Merge all rows and yield the outcome, as `mapInArrow` wants it."""
        names = list(self.names)
        parts = (pa.Table.from_batches([batch]).rename_columns(names) for batch in batches if batch.num_rows)
        first = next(parts, None)
        if first is not None:
            env = Env(self.env.storage, self.env.clock, threads=1)  # a task has one core
            job: MergeJob = pickle.loads(self.job)
            yield batch_of(job.run(chain([first], parts), env))


@dataclass(frozen=True, slots=True)
class EditTask:
    """Runs the packs of jobs whose numbers it is given; each travels as its own bytes."""

    packs: tuple[bytes, ...]
    env: Env

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield one outcome per job, as `mapInArrow` wants it."""
        env = Env(self.env.storage, self.env.clock, threads=1)  # a task has one core
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for job in pickle.loads(self.packs[number]):
                    yield batch_of(job.run(env))

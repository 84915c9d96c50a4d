"""`ms.compact` and `ms.rescale`: Spark tasks rewrite buckets, and the driver commits all of them as one commit."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from merganser.commit.message import CommitMessage
from merganser.errors import MerganserError, StorageError
from merganser.handle.table import Table
from merganser.lsm.job import BucketJob
from merganser.meta.snapshot import Snapshot
from merganser.spark.access import opened, run_jobs
from merganser.spark.jobs import batch_of
from merganser.spark.names import setting_of, spelling_of
from merganser.storage.env import Env
from merganser.storage.process import process_env
from merganser.upkeep.compact_table import RunJobs
from merganser.values import dataclass
from merganser.write.distribute import compact_all, rescale_all
from merganser.write.job import Outcome, messages_of


def compact(
    spark: SparkSession,
    table: Table | str,
    full: bool = False,
    partitions: Iterable[Mapping[str, Any]] | None = None,
    where: str | Any | None = None,
    order_by: Sequence[str] | None = None,
    curve: str = "order",
) -> Snapshot | None:
    """Compact a table with one Spark task per bucket; see `Table.compact`.

    Args:
        table: a table, or its path.
        full: merge everything into the highest level, and rewrite files as the options of the table now ask.
        partitions: compact only these partitions.
        where: compact only partitions that match this filter on partition columns.
        order_by, curve: sort by these columns, for tables without a primary key; one task sorts one partition.

    Returns:
        The snapshot, or None if there was nothing to do, or if other compactions did it meanwhile.

    Raises:
        InvalidInputError: the partitions, columns or filter are invalid; nothing was changed.
        NotFoundError: the table has no such partition; nothing was changed.
        ConflictError: other commits changed the same files again and again; no row is lost.
        FormatError: a file is damaged or missing; nothing was changed.
    """
    found = opened(table)
    chosen, names = _chosen(spark, found, partitions), spelling_of(spark, found)
    request = found.compaction_request(
        full, chosen, where, names.names(order_by), curve, setting=setting_of(spark, found)
    )
    return compact_all(found.definition, found.env, request, run=on_tasks(spark, found.env))


def rescale(
    spark: SparkSession, table: Table | str, buckets: int, partitions: Iterable[Mapping[str, Any]] | None = None
) -> Snapshot | None:
    """Move the rows of a table to another number of buckets with Spark tasks; see `Table.rescale`.

    Args:
        table: a table, or its path.
        buckets: the number after.
        partitions: move only these partitions.

    Returns:
        The snapshot, or None if all rows lie in so many buckets already.

    Raises:
        InvalidInputError: the number or a partition is invalid, or the table has no fixed number of buckets; nothing
            was changed.
        NotFoundError: the table has no such partition; nothing was changed.
        ConflictError: other commits replaced the same files again and again; nothing was changed.
        FormatError: a file is damaged or missing; nothing was changed.
    """
    found = opened(table)
    specs = found.stored_specs(_chosen(spark, found, partitions), "rescale")
    return rescale_all(found.definition, found.env, buckets, specs, run=on_tasks(spark, found.env))


def _chosen(spark: SparkSession, table: Table, partitions: Any) -> Any:
    """Return specs of partitions with the names of the table; what is no list of them stays, to be refused."""
    given = isinstance(partitions, Iterable) and not isinstance(partitions, str | Mapping)
    return map(spelling_of(spark, table).spec, partitions) if given else partitions


def on_tasks(spark: SparkSession, env: Env) -> RunJobs:
    """Return what runs compactions as Spark tasks."""

    def run(jobs: Sequence[BucketJob]) -> list[CommitMessage]:
        task = CompactTask(tuple(pickle.dumps(job) for job in jobs), env)
        outcomes = run_jobs(spark.range(0, len(jobs), 1, len(jobs)), task)
        return messages_of(jobs[0].table, env, outcomes)

    return run


@dataclass(frozen=True, slots=True)
class CompactTask:
    """Runs the jobs whose numbers it is given; each travels as its own bytes, read by the one task that runs it."""

    jobs: tuple[bytes, ...]
    env: Env

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield one outcome per job, as `mapInArrow` wants it."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield batch_of(self._run(pickle.loads(self.jobs[number])))

    def _run(self, job: BucketJob) -> Outcome:
        try:
            env = process_env(self.env, threads=1)  # a task has one core
            messages = job.run(env)
        except StorageError:
            raise
        except MerganserError as refusal:
            return Outcome(refusal=refusal)
        return Outcome(messages)

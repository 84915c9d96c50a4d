"""`ms.delete`, `ms.update` and `ms.erase`: Spark tasks find and change rows, and the driver commits.

A task reads some splits of the table, or some files of appended rows, and writes what becomes of their rows. No row
goes through the JVM. What names its keys is looked up by the driver, which costs less than a task.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql import SparkSession

from merganser.commit.conflict import Reads
from merganser.edit.asked import filter_of
from merganser.edit.assign import assignments
from merganser.edit.change import Change
from merganser.edit.matching import with_keys
from merganser.erase.erasure import erasing
from merganser.erase.report import Erasure
from merganser.handle.table import Table
from merganser.meta.snapshot import Snapshot
from merganser.spark.access import TASKS_PER_CORE, cores, opened, run_jobs
from merganser.spark.compaction import on_tasks
from merganser.spark.jobs import batch_of
from merganser.spark.names import setting_of
from merganser.spark.splits import balanced, weight_of
from merganser.storage.env import Env
from merganser.values import dataclass
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


def erase(
    spark: SparkSession,
    table: Table | str,
    where: str | Any,
    everywhere: bool = False,
    *,
    commit_user: str | None = None,
) -> Erasure:
    """Delete rows, and make sure that no file of the table holds them or an older version of them; see `Table.erase`.

    Tasks read files and write them again; the driver deletes the rows, commits and removes files.

    Args:
        spark: the session whose tasks work.
        table: a table, or its path.
        where: the rows to erase. Text means what it means in Spark.
        everywhere, commit_user: see `Table.erase`.

    Returns:
        The report.

    Raises:
        InvalidInputError, ConflictError, FormatError, StorageError, CommitUnknownError: see `Table.erase`.
    """
    opening = opened(table)
    return erasing(
        opening.definition,
        opening.env,
        where,
        everywhere,
        commit_user,
        setting_of(spark, opening),
        run=_on_tasks(spark, opening.env),
        run_compactions=on_tasks(spark, opening.env),
    ).done()


def delete_of_query(spark: SparkSession, table: Table, keys: pa.Table, computed_from: Reads | None) -> Snapshot | None:
    """Delete the rows of keys that a query gives with tasks; see `delete_computed`."""
    action = f"cannot delete from '{table.name}'"
    where = with_keys(keys, table.definition, action)
    return _change(spark, table, where, None, None, None, True, computed_from)


def _change(
    spark: SparkSession,
    table: Table,
    where: str | Any,
    sets: Mapping[str, str] | None,
    commit_user: str | None,
    identifier: int | None,
    changes: bool,
    computed_from: Reads | None = None,
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
        computed_from=computed_from,
    ).done()


class _Job(Protocol):
    @property
    def size_bytes(self) -> int: ...

    @property
    def file_count(self) -> int: ...


def _on_tasks(spark: SparkSession, env: Env) -> Callable[[Sequence[_Job]], list[Outcome]]:
    """Return what runs jobs as Spark tasks, several of them in a task if they are many or small."""

    def run(jobs: Sequence[_Job]) -> list[Outcome]:
        weights = [weight_of(job.size_bytes, job.file_count) for job in jobs]
        packs = balanced(weights, tasks_max=TASKS_PER_CORE * cores(spark))
        task = EditTask(tuple(pickle.dumps([jobs[i] for i in pack]) for pack in packs), env)
        return run_jobs(spark.range(0, len(packs), 1, len(packs)), task)

    return run


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

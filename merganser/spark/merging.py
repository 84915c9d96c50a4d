"""`ms.merge`: Spark brings rows of a source together with what they meet, and tasks write what becomes of the rows.

| table | what Spark does | a task gets |
|---|---|---|
| key, which the condition names | shuffles the source by bucket | rows of the source |
| key | joins the source with the keys of the table; likewise | these, with the keys that they meet |
| no key | joins the source with the rows of files; shuffles by file (`merge_files`) | these, with places in files |

Few rows are fetched by the driver.
"""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from merganser.edit.matching import Matching
from merganser.edit.merge_files import can_join_files, merged_in_files
from merganser.edit.merge_jobs import (
    MARK,
    JoinedElsewhere,
    MergeJob,
    joined_elsewhere,
    keys_of_source,
    merged_in_tasks,
)
from merganser.edit.merge_names import Names
from merganser.edit.merging import Merge
from merganser.handle.table import Table
from merganser.meta.snapshot import Snapshot
from merganser.meta.table_state import MetaReader
from merganser.spark.access import check_frame, opened, our_errors, run_jobs, unlogged
from merganser.spark.bucketing import assigners_on, one_writer_each
from merganser.spark.compaction import on_tasks
from merganser.spark.jobs import batch_of
from merganser.spark.joins import joined_with, of_side
from merganser.spark.merge_files import files_merged, numbered_names
from merganser.spark.names import setting_of
from merganser.spark.scan import frame_of
from merganser.spark.staging import FILES_FROM_BYTES, estimated_bytes
from merganser.spark.types import arrow_schema_of, spark_schema
from merganser.storage.env import Env
from merganser.values import dataclass
from merganser.write.job import Outcome


def merge(
    spark: SparkSession,
    table: Table | str,
    source: DataFrame,
    on: str,
    *,
    alias: tuple[str, str] | None = None,
    commit_user: str | None = None,
    identifier: int | None = None,
    changes: bool = True,
) -> Merge:
    """Return a merge of the rows of a DataFrame into a table; see `Table.merge`. It is done by `execute`.

    If the condition is that the whole key is equal to columns of the source, tasks share the keys: each looks up the
    rows of its keys, and writes what becomes of them. By other conditions, and with clauses for rows that meet none of
    the source, Spark joins the source with the table first, which gives each row the keys that it meets; in a table
    without a key, the files and the places in them. Few rows are fetched by the driver and merged in its own process.

    Args:
        spark: the session.
        table: a table, or its path.
        source: the rows.
        on: which row of the source belongs to which row of the table. Text means what it means in Spark.
        alias: see `Table.merge`. If it is None, a name is also known that the DataFrame has by `source.alias("s")`.
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
                lambda job: _merged(_with_keys(source, into, on, merge.names, joined, job.snapshot), into, places, job),
                compact,
                assigners,
            )
        if can_join_files(merge) and not (is_small and _is_small(into)):
            return merged_in_files(merge, lambda todo: files_merged(source, into, on, todo), compact)
        with our_errors(spark):
            rows = source.toArrow()
        return merge.with_source(rows).execute()

    def is_source(path: Sequence[str]) -> bool:
        with contextlib.suppress(AnalysisException), unlogged():
            return bool(source.select(of_side(path[0], path[1])).columns)
        return False

    return found.merging(empty, on, setting, commit_user, identifier, changes, done, alias=alias, is_source=is_source)


def _is_small(table: Table) -> bool:
    """Return whether a scan of a table is quick in one process."""
    return sum(split.size_bytes for split in table.read().plan().splits) < FILES_FROM_BYTES


def _with_keys(
    source: DataFrame, table: Table, on: str, names: Names, joined: JoinedElsewhere, snapshot: Snapshot | None
) -> DataFrame:
    """Return the rows of a source with the keys that they meet in a snapshot: once for each; without inserts no others.

    If the merge looks at rows without a partner, there are their keys, too, in rows whose column `MARK` is null.

    Args:
        on: the condition, as Spark understands it.
        names: what it calls the two sides.
    """
    definition, spark = table.definition, source.sparkSession
    keys = spark_schema(definition, [definition.schema.field(name) for name in joined.keys]).fields
    columns = [of_side(names.source, name).alias(name) for name in source.columns]
    left = source
    if joined.others:
        left, columns = source.withColumn(MARK, f.lit(True)), [*columns, f.col(MARK)]
    if snapshot is None:
        nulls = (f.lit(None).cast(key.dataType).alias(joined.keys[key.name]) for key in keys)
        return left.alias(names.source).select(*columns, *nulls)
    state = MetaReader(definition.paths, table.env, table.name).state(snapshot)
    scan = Matching(definition, table.env, None, f"cannot merge into '{table.name}'").scan(
        state, {*joined.keys, *joined.reads}
    )
    size = sum(split.size_bytes for split in scan.plan().splits)
    found = [of_side(names.target, name).alias(key) for name, key in joined.keys.items()]
    how = ("full" if joined.new else "right") if joined.others else ("left" if joined.new else "inner")
    return joined_with(left, frame_of(spark, scan, None), size, on, how, names).select(*columns, *found)


def _merged(source: DataFrame, table: Table, places: Mapping[str, Sequence[str]], job: MergeJob) -> list[Outcome]:
    """Return what tasks did that were handed the rows of a source, all rows of a bucket in one task.

    Args:
        places: by column of the key, the columns of the source that hold it; the first that is not null counts.
    """
    names = tuple(source.columns)
    numbered = numbered_names(len(names))
    frame = source.toDF(*numbered)
    for name, columns in places.items():
        at = [names.index(column) for column in columns]
        kind = frame.schema[at[0]].dataType
        first, *others = (f.col(numbered[i]) for i in at)
        frame = frame.withColumn(name, f.coalesce(first, *(other.cast(kind) for other in others)) if others else first)
    frame = one_writer_each(frame, table.definition).select(*numbered)
    return run_jobs(frame, MergeTask(pickle.dumps(job), names, table.env))


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

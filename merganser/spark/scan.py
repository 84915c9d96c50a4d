"""`ms.read` and `ms.changes`: a table, or its changes, as a DataFrame, planned when it is called.

The process of the caller makes the plan once, with its own storage. So every action of the DataFrame sees the same
snapshot. The tasks read only the needed columns and apply the filter. Spark applies filters that are added later; they
skip no files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import partial, reduce
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as s

from merganser.errors import InvalidInputError
from merganser.handle.system_table import CatalogTable, SystemTable, TableView
from merganser.handle.table import Table
from merganser.lookup.asked import looked_up
from merganser.scan.changes import Changes
from merganser.scan.plain import plain_scan
from merganser.scan.plan import Plan
from merganser.scan.scan import Scan
from merganser.scan.source import State
from merganser.schema.types import quoted
from merganser.spark.access import TASKS_PER_CORE, cores, is_connect, opened
from merganser.spark.jobs import in_tasks
from merganser.spark.names import setting_of, spelling_of
from merganser.spark.native import native_frames, reads_files
from merganser.spark.pythons import warn_of_other_python
from merganser.spark.splits import ReadSplits, packed
from merganser.spark.types import TIME_AS, arrow_schema_of, frame_of_arrow, spark_batches, spark_schema

_ROWS_TOLD: Final = 50_000_000
"""Maximum number of rows that Spark is told of: counting to it takes a core some 50 ms."""
_BROADCAST: Final = "spark.sql.autoBroadcastJoinThreshold"
_SHIFTS: Final = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_VALUE_BYTES: Final = 16
"""What a value takes in memory, about."""
_TOO_SMALL: Final = 8
"""How many times what Spark sends to every executor rows may take in memory, if it estimates them by their files."""
_ROWS_SMALL: Final = 1_000
"""Rows of a task below which a table is small whatever Spark thinks."""


def read(
    spark: SparkSession,
    table: Table | TableView | SystemTable | CatalogTable | str,
    columns: Sequence[str] | None = None,
    where: str | Any | None = None,
    snapshot: int | None = None,
    tag: str | None = None,
    timestamp: datetime | str | None = None,
    limit: int | None = None,
) -> DataFrame:
    """Return the rows of a table, merged, as a DataFrame.

    Args:
        spark: the session whose tasks read.
        table: a table, or its path; also `orders$ro`, or a system table such as `orders$files`, which the driver reads.
        columns: names of the columns to return, in this order; None: all. Spark cannot skip columns by itself.
        where: SQL text, a `pyarrow.compute` expression or a predicate; the tasks drop rows that do not match. Text
            means what it means in Spark: timestamps are in the time zone of the session.
        snapshot: the snapshot to read; None: the newest one.
        tag: read the snapshot of this tag.
        timestamp: read the newest snapshot at or before this time; text is in the time zone of the session.
        limit: the largest number of rows to return; which rows is not defined.

    Raises:
        InvalidInputError: a column, the filter or the time is invalid.
        NotFoundError: the table, snapshot or tag does not exist.
        ExpiredError: the snapshot has expired.
        UnsupportedError: the table needs a feature that this version does not have.
        FormatError: metadata is damaged or missing.
    """
    if isinstance(table, SystemTable | CatalogTable):
        if snapshot is not None or tag is not None or timestamp is not None:
            raise InvalidInputError(
                f"cannot read an older state of '{table.name}': system tables have only their current state. Leave out "
                "snapshot, tag and timestamp."
            )
        rows = table.read(columns, where, limit, setting_of(spark, table))
        return frame_of_arrow(spark, rows.to_arrow())
    found = table if isinstance(table, TableView) else opened(table)
    columns = spelling_of(spark, found.base if isinstance(found, TableView) else found).names(columns)
    scan = found.scan(columns, where, snapshot, tag, timestamp, limit, setting_of(spark, found))
    if isinstance(found, Table) and (frame := _looked_up(spark, found, scan, limit)) is not None:
        return frame
    return frame_of(spark, scan, limit)


def changes(
    spark: SparkSession,
    table: Table | str,
    start: int | None = None,
    end: int | None = None,
    columns: Sequence[str] | None = None,
    where: str | Any | None = None,
    mode: str = "auto",
    gaps: str | None = None,
) -> DataFrame:
    """Return what snapshots published, or changed in all, as a DataFrame with the kinds in `_row_kind`.

    All rows of a key come from one task, in the order of `Table.changes`; else they have no order. If keys of the table
    may move between partitions, one task returns all rows.

    Args:
        spark: the session whose tasks read.
        table: a table, or its path. If it was opened with an option such as 'incremental-between', and `start` and
            `end` are None, the option says which changes are read.
        start, end: ids of the first and the last snapshot, both included. None: from snapshot 1 on, and up to the
            snapshot that is the newest now.
        columns: names of the columns to return after `_row_kind`; None: all.
        where: as for `read`; it may look at `_row_kind`.
        mode: "auto", "delta", "changelog" or "diff"; see `Table.changes`.
        gaps: "error" or "skip"; see `Table.changes`.

    Raises:
        InvalidInputError: a column, the filter, an id or the mode is invalid; or the changelog is asked for, and the
            table has none.
        NotFoundError: the table does not exist, or the end is not there yet.
        ExpiredError: a snapshot has expired, and its changelog with it.
        FormatError: metadata is damaged or missing.
    """
    found = opened(table).marking(gaps)
    columns = spelling_of(spark, found).names(columns)
    return frame_of(spark, found.changes_between(start, end, columns, where, mode, setting_of(spark, found)), None)


def frame_of(spark: SparkSession, scan: Scan | Changes, limit: int | None) -> DataFrame:
    """Return the rows of a scan, planned now.

    Args:
        limit: see `read`.
    """
    return planned_frame(spark, scan, scan.plan(), limit)


def held_frame(spark: SparkSession, batches: Iterator[pa.RecordBatch], schema: s.StructType) -> DataFrame:
    """Return rows that the driver has, as batches in the form that Spark declares for the schema."""
    rows = pa.Table.from_batches(batches, arrow_schema_of(schema))
    if not rows.num_rows:  # Spark takes no MAP or ROW column without a chunk
        rows = rows.schema.empty_table()
    if TIME_AS != "time" or not is_connect(spark):
        return spark.createDataFrame(rows, schema)
    wide = s.StructType(  # Connect takes all times of Arrow for TIME(6)
        [
            s.StructField(field.name, s.TimeType(6)) if isinstance(field.dataType, s.TimeType) else field
            for field in schema
        ]
    )
    frame = spark.createDataFrame(rows, wide)
    if wide == schema:
        return frame
    return frame.select(*(f.col(quoted(field.name)).cast(field.dataType) for field in schema))


def _looked_up(spark: SparkSession, table: Table, scan: Scan, limit: int | None) -> DataFrame | None:
    """Return the rows of a filter that names whole keys, looked up by the driver; None: tasks read them."""
    if not isinstance(scan.source, State) or not table.primary_key:
        return None
    names = [field.name for field in scan.columns]
    at = None if scan.snapshot is None else scan.snapshot.id
    lookup = partial(table.lookup, snapshot=at)
    rows = looked_up(lookup, table.primary_key, scan.table.schema.user_fields, names, scan.where, limit)
    if rows is None:
        return None
    schema = spark_schema(scan.table, scan.columns)
    return held_frame(spark, spark_batches(rows, arrow_schema_of(schema)), schema)


def query_frame(spark: SparkSession, scan: Scan | Changes, plan: Plan, limit: int | None) -> DataFrame:
    """Return rows for a query that applies filter and limit of the scan itself: Spark reads what files it can."""
    found = None
    if isinstance(scan, Scan) and not _looks_small(spark, plan, len(scan.columns)) and reads_files(spark, scan):
        found = plain_scan(scan, plan, "spark")
    frames = native_frames(spark, found) if found is not None else None
    if found is None or frames is None:
        return planned_frame(spark, scan, plan, limit)
    if found.rest is not None:
        frames.append(planned_frame(spark, scan, found.rest.part, limit))
    return reduce(DataFrame.union, frames)


def planned_frame(spark: SparkSession, scan: Scan | Changes, plan: Plan, limit: int | None) -> DataFrame:
    """Return the rows of a scan as a plan of it says, read by tasks of Python."""
    schema = spark_schema(scan.table, scan.columns)
    if not plan.splits or limit == 0:
        return spark.createDataFrame([], schema)
    warn_of_other_python(spark)
    packs = packed(plan, tasks_max=TASKS_PER_CORE * cores(spark))
    step = _step(plan, len(packs))
    job = ReadSplits(plan.job, packs, scan, plan.snapshot, arrow_schema_of(schema), limit, step)
    numbers = spark.range(0, len(packs) * step, 1, len(packs))
    if step > 1:
        numbers = numbers.where(f"id % {step} = 0")
    frame = in_tasks(numbers, job, schema)
    return frame if limit is None else frame.limit(limit)


def _looks_small(spark: SparkSession, plan: Plan, columns: int) -> bool:
    """Return whether Spark would take files for much smaller than their rows, and send these whole to every executor.

    It estimates rows by the bytes of files. Of integers that lie close together, megabytes hold hundreds of millions.
    """
    found = re.fullmatch(r"(\d+)([kmgt]?)i?b?", str(spark.conf.get(_BROADCAST, "10m")).lower())
    limit = int(found[1]) << _SHIFTS[found[2]] if found else 0
    size, rows = sum(split.size_bytes for split in plan.splits), sum(split.rows for split in plan.splits)
    return size <= limit and rows * columns * _VALUE_BYTES > _TOO_SMALL * limit


def _step(plan: Plan, count: int) -> int:
    """Return how many numbers each task is given, of which a filter leaves the first.

    Spark estimates the size of what tasks make from the rows that they are given. So for many rows, it is given as many
    numbers as rows, of which a filter leaves one per task: by its estimates, a filter does not make rows fewer.
    Otherwise Spark would take each table for a small one, and send it whole to every executor to join it.
    """
    step = min(sum(split.rows for split in plan.splits), _ROWS_TOLD) // count
    return step if step >= _ROWS_SMALL else 1

"""`ms.read`: a table as a DataFrame, planned here and now.

The plan is made once, in the caller's process and with the caller's storage, so every action of the DataFrame sees
the same snapshot, and no process of Spark plans again. Columns are pruned and the filter is applied inside the
tasks; a filter that Spark adds later is applied by Spark and leaves no file out.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from merganser.errors import InvalidInputError
from merganser.handle.system_table import SystemTable, TableView
from merganser.handle.table import Table
from merganser.spark.session import TASKS_PER_CORE, cores, opened
from merganser.spark.splits import ReadSplits, packed
from merganser.spark.types import arrow_schema_of, spark_schema


def read(
    spark: SparkSession,
    table: Table | TableView | SystemTable | str,
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
        columns: names, in the order wanted; None: all. Spark cannot prune columns of its own accord.
        where: SQL text, a `pyarrow.compute` expression or a predicate; applied exactly, in the tasks.
        snapshot: the snapshot to read; None: the newest now.
        tag: read the snapshot of a tag instead.
        timestamp: read the snapshot that was newest then instead.
        limit: most rows to return; which ones is not defined.

    Raises:
        InvalidInputError: a column, filter or time that has no meaning.
        NotFoundError, ExpiredError: no such table, snapshot or tag, or no longer.
        UnsupportedError: the table needs something this version cannot read rightly.
        FormatError: metadata is damaged or missing.
    """
    if isinstance(table, SystemTable):
        if snapshot is not None or tag is not None or timestamp is not None:
            raise InvalidInputError(
                f"cannot read '{table.name}' as of then: a system table is read as it is now. Leave out snapshot, tag "
                "and timestamp."
            )
        return spark.createDataFrame(table.read(columns, where, limit).to_arrow())
    found = table if isinstance(table, TableView) else opened(table)
    scan = found.read(columns, where, snapshot, tag, timestamp, limit)
    plan = scan.plan()
    schema = spark_schema(scan.table, scan.columns)
    if not plan.splits or limit == 0:
        return spark.createDataFrame([], schema)
    packs = packed(plan.splits, tasks_max=TASKS_PER_CORE * cores(spark))
    job = ReadSplits(plan.job, packs, scan.env.storage, arrow_schema_of(schema), limit)
    frame = spark.range(0, len(packs), 1, len(packs)).mapInArrow(job, schema)
    return frame if limit is None else frame.limit(limit)

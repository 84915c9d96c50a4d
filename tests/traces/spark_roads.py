"""The roads on Spark: what the driver asks of the store. Tasks run in other processes, where nothing is written down.

What tasks have done shows in the metadata that the driver commits.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from typing import Any, Final
from unittest.mock import patch

from pyspark.sql import DataFrame, SparkSession

import merganser.spark as ms
from merganser.handle.table import Table
from merganser.spark.jobs import OUTCOME_SCHEMA, on_any_python
from merganser.spark.stream_sink import SinkRequest, StreamTask, request_of
from merganser.spark.types import arrow_schema_of
from merganser.storage.env import Env
from merganser.storage.paths import join

from .roads import Traced, rows

_APPEND: Final[Mapping[str, Any]] = {"primary_key": [], "bucket": -1}


class _Committing(SinkRequest):
    """A request whose commits are written down: the process has the effects of the request."""

    def here(self) -> Env:
        return self.env


def _frame(spark: SparkSession, *keys: int, v: str = "a") -> DataFrame:
    """Return one row of each key, in one partition: a task is a file."""
    return spark.createDataFrame([(key, v, key) for key in keys], "k long, v string, n long").coalesce(1)


def _known(work: Callable[[SparkSession, Table], object], **options: Any) -> Callable[[SparkSession, str], Traced]:
    """Trace work on a table that this handle has written twice and read."""

    def road(spark: SparkSession, directory: str) -> Traced:
        made = Traced(directory)
        table = made.create(**options)
        table.write(rows(1, 2, 3))
        table.write(rows(3, 4))
        table.read().to_arrow()
        with made.traced():
            work(spark, table)
        return made

    return road


def _merge(spark: SparkSession, table: Table) -> None:
    source = _frame(spark, 3, 7, v="m")
    with patch("merganser.spark.merging.FILES_FROM_BYTES", 0):  # else the driver fetches the few rows
        merge = ms.merge(spark, table, source, "target.k = source.k")
        merge.when_matched_update().when_not_matched_insert().execute()


def _sql(spark: SparkSession, directory: str) -> Traced:
    made = Traced(directory)
    table = made.create(**_APPEND)
    table.write(rows(1, 2, 3))
    table.write(rows(3, 4))
    session = ms.session(spark, made.catalog)
    session.sql("SELECT k FROM d.t").collect()
    with made.traced():
        session.sql("SELECT v, count(*) FROM d.t GROUP BY v").collect()
    return made


def _micro_batch(spark: SparkSession, directory: str, **options: Any) -> Traced:
    made = Traced(directory)
    table = made.create(**options)
    table.write(rows(1, 2, 3))
    frame = _frame(spark, 3, 5)
    checkpoint = join(directory, "checkpoint")
    request = _Committing(
        **vars(
            request_of(
                table,
                arrow_schema_of(frame.schema),
                kinds=None,
                columns=None,
                complete=False,
                user="job",
                compaction=None,
                checkpoint=checkpoint,
            )
        )
    )
    for batch in range(3):
        made.storage.replace(join(checkpoint, f"offsets/{batch}"), b'v1\n{"batchWatermarkMs":0}\n{"logOffset":0}')
        task = StreamTask(SinkRequest(**vars(request)), arranged=False)
        found = frame.mapInArrow(on_any_python(task), OUTCOME_SCHEMA).select("message").collect()
        outcomes = [pickle.loads(row[0]) for row in found]
        with made.traced():
            request.commit("query", batch, outcomes)
    return made


SPARK_ROADS: Final[Mapping[str, Callable[[SparkSession, str], Traced]]] = {
    "spark_write": _known(lambda spark, table: ms.write(_frame(spark, 3, 5), table)),
    "spark_append": _known(lambda spark, table: ms.write(_frame(spark, 3, 5), table), **_APPEND),
    "spark_micro_batch": _micro_batch,
    "spark_micro_batch_append": lambda spark, directory: _micro_batch(spark, directory, **_APPEND),
    "spark_merge": _known(_merge),
    "spark_read": _known(lambda spark, table: ms.read(spark, table, where="k > 1").collect()),
    "spark_sql": _sql,
}
"""Each road by its name; it is given a directory of its own."""

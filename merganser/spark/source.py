"""The data source "merganser": `spark.read.format(...)`, `df.write.format(...)`, and temporary views over tables.

Spark makes a source in a process of its own to ask for the schema, another to plan, others for tasks and commit;
only what pickles lives on. Reading: one partition per pack of splits. Writing: a source cannot shuffle, so a task
may hold rows of any bucket and writes a file for each; sequence numbers of tasks do not meet, those of a later
partition of the DataFrame are larger. `ms.write`, which shuffles first, is the fast way in.

Options of a read: `path`, `columns` ("a,b"), `where` (SQL text, applied exactly), `snapshot`, `tag` or `timestamp`,
`parallelism` (tasks at a time). Options of a write: `path`, `kinds` (a column), `commit-user` and `identifier`,
`partitionOverwriteMode` ("dynamic") or `replaceWhere` ("dt = '2026-01-01'") for mode "overwrite", which without
them replaces the table. Other options are those of the table and of its store.

Nothing is logged: options may hold secrets.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyspark
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceReader, InputPartition, WriterCommitMessage
from pyspark.sql.types import StructType

from merganser.errors import InvalidInputError, MerganserError
from merganser.handle.doors import table as table_at
from merganser.handle.table import Overwrite, Table
from merganser.lsm.session import WriteSession, checked_identifier, remove_files, starting_sequences
from merganser.meta.table_state import MetaReader
from merganser.scan.scan import Scan
from merganser.scan.split import ReadJob
from merganser.schema.arrow import arrow_type
from merganser.schema.predicate import Predicate, conjunction, conjuncts, points
from merganser.schema.predicate_text import to_predicate
from merganser.codec.binary_row import stored_to_arrow
from merganser.spark.filters import filter_text
from merganser.spark.jobs import Outcome, WriteJob
from merganser.spark.session import messages_of
from merganser.spark.sink import check_frame_schema, publish_outcomes
from merganser.spark.splits import TASKS_PER_CORE, Pack, packed, rows_of
from merganser.spark.types import arrow_schema_of, spark_schema, version_of
from merganser.storage.protocol import Storage

NAME: Final = "merganser"
_PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"
_READ_OPTIONS: Final = ("path", "columns", "where", "snapshot", "tag", "timestamp", "parallelism")
_WRITE_OPTIONS: Final = ("kinds", "commit-user", "identifier", "partitionoverwritemode", "replacewhere")
_EMPTY: Final = "0"
"""As `snapshot`: the table had none when the DataFrame was made."""
_SEQUENCES_PER_TASK: Final = 1 << 32
"""Sequence numbers that every task may take in a bucket; a task holds fewer rows."""
_CORES_MIN: Final = 16
"""Planning does not see the cluster; this many cores are assumed, or those of this machine where it has more."""


def register(spark: SparkSession) -> None:
    """Make the data source "merganser" known to a session, and let Spark push filters into it (from 4.1 on)."""
    spark.dataSource.register(MerganserSource)
    if version_of(spark.version) >= (4, 1):
        spark.conf.set(_PUSHDOWN, "true")


class MerganserSource(DataSource):
    """A table at a path; see the module."""

    @classmethod
    def name(cls) -> str:
        """Return what the format is called."""
        return NAME

    def schema(self) -> StructType:
        """Return the columns that are read, and pin the snapshot that is read."""
        scan = _scan(self.options)
        if not any(self.options.get(key) for key in ("snapshot", "tag", "timestamp")):
            latest = _table(self.options).latest_snapshot()
            self.options["snapshot"] = _EMPTY if latest is None else str(latest.id)
        return spark_schema(scan.table, scan.columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a schema: that of `schema()`, or columns of it that the user named."""
        return _Reader(dict(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return the writer of rows of a schema, which is checked against the table here."""
        return _Writer(dict(self.options), schema, overwrite)

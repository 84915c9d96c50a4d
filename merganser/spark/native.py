"""Data files that Spark decodes itself, in the queries of `ms.session`: no row crosses from Python to the JVM.

Spark then reads the columns that a query needs, skips row groups by its filters, knows how large a table is, and
compiles scan and query into one. Files are chosen by our plan (`scan.plain`), from one snapshot. What Spark makes of a
Parquet file depends on settings of the session; each that could change a row is set here.

Docs: decision 0079.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as s

from merganser.files.plain import PlainFile
from merganser.options import write as w
from merganser.scan.plain import FileGroup, PlainScan
from merganser.schema import row_kind
from merganser.schema import types as t
from merganser.schema.table_schema import VALUE_KIND
from merganser.spark.types import spark_schema

_OPTIONS: Final = {
    "mergeSchema": "false",
    "recursiveFileLookup": "true",  # else directories such as p=1 are taken for columns
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
    "parquet.page.verify-checksum.enabled": "true",
}
_MILLIS: Final = 3
_BROADCAST_ROWS: Final = 2_000_000
"""Most keys that are sent whole to every executor."""


def native_frames(spark: SparkSession, found: PlainScan) -> list[DataFrame] | None:
    """Return the rows of files, as Spark reads them; None: it does not reach them under their paths."""
    try:
        frames = [_frame(spark, found, group) for group in found.groups]
        for frame in frames:
            frame.schema  # noqa: B018 - Connect looks for the files now, not later
    except PySparkException:
        return None
    return frames


def _frame(spark: SparkSession, found: PlainScan, group: FileGroup) -> DataFrame:
    table, names = found.scan.table, group.files[0].names
    declared = spark_schema(table, found.scan.columns)
    stored = {own: column.dataType for column, own in zip(declared, names, strict=True) if own is not None}
    key = spark_schema(table, [table.schema.field(name) for name in found.key] if group.newer else [])
    stored |= {column.name: column.dataType for column in key}
    if group.kinds or not stored:
        stored[VALUE_KIND.name] = s.ByteType()
    frame = _files(spark, group.files, stored)
    if group.kinds:
        frame = frame.where(f.col(VALUE_KIND.name).isin(row_kind.INSERT, row_kind.UPDATE_AFTER))
    if group.newer:
        newer = list({file.path: file for files in group.newer.values() for file in files}.values())
        others = ["_" * max(map(len, stored)) + str(i) for i in range(len(key))]  # no column has a name of this length
        above = _files(spark, newer, {column.name: column.dataType for column in key}).toDF(*others)
        if sum(file.rows for file in newer) <= _BROADCAST_ROWS:
            above = f.broadcast(above)
        null_safe = bool(table.options.get(w.PRIMARY_KEY_NULLABLE))
        frame = frame.join(above, _equal([column.name for column in key], others, null_safe=null_safe), "left_anti")
    fields = found.scan.columns
    return frame.select([_column(*each) for each in zip(declared, fields, names, strict=True)])


def _equal(names: Sequence[str], others: Sequence[str], *, null_safe: bool) -> Column:
    pairs = [(_of(name), f.col(other)) for name, other in zip(names, others, strict=True)]
    return reduce(Column.__and__, [a.eqNullSafe(b) if null_safe else a == b for a, b in pairs])


def _files(spark: SparkSession, files: Sequence[PlainFile], stored: dict[str, s.DataType]) -> DataFrame:
    schema = s.StructType([s.StructField(name, kind) for name, kind in stored.items()])
    return spark.read.options(**_OPTIONS).schema(schema).parquet(*_urls(files))


def _urls(files: Sequence[PlainFile]) -> Iterator[str]:
    """Yield the names by which the JVM knows files. `PlainFile` is local, whatever the default file system is."""
    for file in files:
        yield f"file:{file.path}"


def _column(column: s.StructField, field: t.Field, own: str | None) -> Column:
    if own is None:
        found = f.lit(None).cast(column.dataType)
    elif isinstance(field.type, t.Float | t.Double):
        # Statistics of Parquet leave NaN out, and Spark would skip rows by them that are NaN. No filter passes this.
        found = f.nanvl(_of(own), _of(own))
    elif isinstance(field.type, t.LocalZonedTimestamp) and field.type.precision <= _MILLIS:
        # Spark skips by milliseconds that it rounds down: of 1 ms, all that is sought below 1.5 ms.
        found = f.coalesce(_of(own), _of(own))
    else:
        found = _of(own)
    return found.alias(column.name, metadata=column.metadata) if column.metadata else found.alias(column.name)


def _of(name: str) -> Column:
    return f.col("`" + name.replace("`", "``") + "`")

"""Records as Spark reads them: a folder of files that arrive one by one, and feeds of all tables from them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import merganser as mg
import merganser.spark as ms
from tests.debezium.recordings import Record, Source
from tests.debezium.values import Setting, reading

SCHEMA: Final = "topic STRING, key STRING, value STRING, offset BIGINT"
_WRITTEN: Final = 1_700_000_000
"""Time of the first file. Spark takes older files first, and those of one second in any order."""


def lay(folder: Path, records: Sequence[Record], first: int = 0, size: int = 100) -> None:
    """Write records as files of some records each, in their order.

    Args:
        first: how many records are there already.
    """
    folder.mkdir(exist_ok=True)
    for start in range(0, len(records), size):
        part = records[start : start + size]
        columns = {name: [getattr(one, name) for one in part] for name in ("topic", "key", "value")}
        offsets = range(first + start, first + start + len(part))
        path = folder / f"{first + start:08}.parquet"
        pq.write_table(
            pa.table(
                {**{name: pa.array(found, pa.string()) for name, found in columns.items()}, "offset": pa.array(offsets)}
            ),
            path.with_suffix(".part"),
        )
        os.utime(path.with_suffix(".part"), (_WRITTEN + first + start, _WRITTEN + first + start))
        path.with_suffix(".part").rename(path)


def stream(spark: SparkSession, folder: Path) -> DataFrame:
    """Return the records as a stream that takes a file per batch."""
    return (
        spark.readStream.schema(SCHEMA)
        .option("maxFilesPerTrigger", 1)
        .option("pathGlobFilter", "*.parquet")
        .parquet(str(folder))
    )


def feeds(sources: Iterable[Source], setting: Setting) -> list[tuple[list[Source], dict[str, Any]]]:
    """Return sources that one call of `ms.cdc.write` can take, and the options of each call.

    An option by column says one thing of a column's name in all tables of a call.
    """
    feeds: list[tuple[list[Source], dict[str, Any]]] = []
    for source in sources:
        options = reading(source.columns, setting)
        for members, shared in feeds:
            if all(_agree(told, shared.get(option)) for option, told in options.items()):
                members.append(source)
                shared |= {
                    option: {**shared.get(option, {}), **told} if isinstance(told, dict) else told
                    for option, told in options.items()
                }
                break
        else:
            feeds.append(([source], options))
    return feeds


def _agree(told: Any, shared: Any) -> bool:
    if not isinstance(told, dict):
        return shared in (None, told)
    return isinstance(shared, dict | None) and all((shared or {}).get(name, one) == one for name, one in told.items())


def write(
    spark: SparkSession, folder: Path, tables: dict[str, mg.Table] | mg.Catalog, setting: Setting, **options: Any
) -> ms.cdc.FeedWritten:
    """Write all records of a folder by one call."""
    frame = spark.read.schema(SCHEMA).parquet(str(folder)).coalesce(1).sortWithinPartitions("offset")
    return ms.cdc.write(frame, setting.format, tables, unknown="ignore", **options)

"""The door through Spark: DataFrames in by `ms.write`, DataFrames out by `ms.read`; catalogs stay embedded.

A DataFrame of one step has one partition, so its rows arrive in their order. What Spark lacks goes by the design:
TIME is INT milliseconds below 4.1, moments have microseconds.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import merganser as mg
import merganser.spark as ms
from tests.conformance.column_types import UNKNOWN, Type, parse, spark_of
from tests.conformance.door import EmbeddedDoor, Overwrite
from tests.conformance.outcome import method, not_built
from tests.conformance.streams import started

_KIND: Final = "__conformance_kind"
HAS_TIME: Final = tuple(int(part) for part in pyspark.__version__.split(".")[:2]) >= (4, 1)
_ROOT: Final = Path(__file__).parents[2]


class SparkDoor:
    """Writes and reads through one session."""

    name = "spark"
    micros = True
    joins = False

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    def write(
        self,
        table: mg.Table,
        rows: pa.Table,
        kinds: Sequence[str],
        *,
        columns: Sequence[str] | None = None,
        overwrite: Overwrite = None,
        commit_user: str | None = None,
        identifier: int | None = None,
    ) -> None:
        """Write through `ms.write`."""
        ms.write(
            self._frame(table, rows, kinds),
            table,
            kinds=_KIND,
            columns=columns,
            overwrite=overwrite,
            commit_user=commit_user,
            identifier=identifier,
        )

    def write_streaming_overwrite(self, table: mg.Table, rows: pa.Table, kinds: Sequence[str]) -> None:
        """Ask `ms.write_stream` to overwrite."""
        if not hasattr(ms, "write_stream"):
            raise not_built("merganser.spark.write_stream")
        with tempfile.TemporaryDirectory(prefix="conformance-") as folder:
            frame = self._frame(table, rows, kinds)
            frame.write.parquet(f"{folder}/rows")
            stream = self._session.readStream.schema(frame.schema).parquet(f"{folder}/rows")
            query = ms.write_stream(stream, table, checkpoint=f"{folder}/checkpoint", kinds=_KIND, overwrite={})
            query.stop()

    def read(self, table: mg.Table, limit: int | None = None) -> pa.Table:
        """Read through `ms.read`."""
        frame = ms.read(self._session, table, limit=limit)
        try:
            return frame.toArrow()
        except PySparkException as error:
            raise refusal_in(str(error)) or error from error

    def stream(self, table: Any, options: dict[str, Any]) -> list[pa.Table]:
        """Stream embedded; the streams of Spark have a door of their own."""
        return list(started(table, options, follow=False))

    def compact(self, table: mg.Table, *, full: bool, partitions: Sequence[Mapping[str, Any]] | None) -> None:
        """Compact through `ms.compact`; until it is there, embedded."""
        if hasattr(ms, "compact"):
            ms.compact(self._session, table, full=full, partitions=partitions)
        else:
            method(table, "compact")(full=full, partitions=partitions)

    def _frame(self, table: mg.Table, rows: pa.Table, kinds: Sequence[str]) -> DataFrame:
        """Return rows as a DataFrame of one partition, in their order, with the kinds as a column."""
        types = {field.name: parse(str(field.type)) for field in table.schema.fields}
        declared = []
        for i, name in enumerate(rows.column_names):
            column, text = _as_spark(rows.column(i), types.get(name))
            rows = rows.set_column(i, name, column)
            declared.append(f"`{name}` {text}")
        rows = rows.append_column(_KIND, pa.array(kinds, pa.string()))
        schema = ", ".join([*declared, f"{_KIND} string"])
        if not rows.num_rows:
            return self._session.createDataFrame([], schema)
        return self._session.createDataFrame(rows, schema).coalesce(1)


class SparkStreamDoor(SparkDoor):
    """Reads streams through `ms.read_stream`; writes through `ms.write_stream` if it is asked to.

    Args:
        writes: rows go in through streams as well; each write is a query.
    """

    name = "spark streams"
    joins = True

    def __init__(self, session: SparkSession, *, writes: bool) -> None:
        super().__init__(session)
        self._writes = writes

    def write(
        self,
        table: mg.Table,
        rows: pa.Table,
        kinds: Sequence[str],
        *,
        columns: Sequence[str] | None = None,
        overwrite: Overwrite = None,
        commit_user: str | None = None,
        identifier: int | None = None,
    ) -> None:
        """Write through `ms.write_stream`; embedded if the write replaces rows or has a name, or if none was asked."""
        if not self._writes or overwrite is not None or commit_user is not None:
            EmbeddedDoor().write(
                table, rows, kinds, columns=columns, overwrite=overwrite, commit_user=commit_user, identifier=identifier
            )
            return
        with tempfile.TemporaryDirectory(prefix="conformance-", ignore_cleanup_errors=True) as folder:
            frame = self._frame(table, rows, kinds)
            frame.write.parquet(f"{folder}/rows")
            stream = self._session.readStream.schema(frame.schema).parquet(f"{folder}/rows")
            query = ms.write_stream(
                stream, table, f"{folder}/checkpoint", kinds=_KIND, columns=columns, trigger="availableNow"
            )
            _ended(query)

    def stream(self, table: Any, options: dict[str, Any]) -> list[pa.Table]:
        """Return what a query receives until it has caught up, as one table."""
        stream = ms.read_stream(self._session, table, **options)
        name = f"conformance_{uuid.uuid4().hex}"
        with tempfile.TemporaryDirectory(prefix="conformance-", ignore_cleanup_errors=True) as folder:
            writer = stream.writeStream.format("memory").queryName(name).option("checkpointLocation", folder)
            _ended(writer.trigger(availableNow=True).start())
        found = self._session.table(name).toArrow()
        self._session.catalog.dropTempView(name)
        return [found] if found.num_rows else []


def _ended(query: StreamingQuery) -> None:
    try:
        query.awaitTermination()
    except PySparkException as error:
        raise refusal_in(str(error)) or error from error


def _as_spark(column: pa.ChunkedArray, kind: Type | None) -> tuple[pa.ChunkedArray, str]:
    """Return a column in the form that Spark takes, and its type in Spark's DDL."""
    if kind is not None and kind != UNKNOWN:
        if kind.name == "TIME" and pa.types.is_time(column.type):
            column = column.cast(pa.time64("us")) if HAS_TIME else column.cast(pa.int32())
        elif pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("us", column.type.tz), safe=False)
    if kind is None or not _fits(column.type, kind):
        return column, _spark_of_arrow(column.type)
    return column, spark_of(kind, time=HAS_TIME)


def _fits(found: pa.DataType, kind: Type) -> bool:
    """Return whether the values are of their column's type; others go in as what they are, to be refused."""
    scalar = {"INT": pa.int32(), "BIGINT": pa.int64(), "TINYINT": pa.int8(), "SMALLINT": pa.int16()}
    return bool(scalar.get(kind.name, found).equals(found))


def _spark_of_arrow(found: pa.DataType) -> str:
    from pyspark.sql.pandas.types import from_arrow_type

    return str(from_arrow_type(found if not pa.types.is_null(found) else pa.string()).simpleString())


def refusal_in(text: str) -> mg.errors.MerganserError | None:
    """Return the error of merganser's that a task raised, or None: an action of a DataFrame is Spark's to raise."""
    found = re.findall(r"^merganser\.errors\.(\w+): (.*)$", text, re.MULTILINE)
    if not found:
        return None
    name, message = found[-1]
    error: mg.errors.MerganserError = getattr(mg.errors, name)(message)
    return error


def environment() -> dict[str, str]:
    """Return what Spark's processes need to find this Python and this checkout."""
    path = os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": path}


@contextmanager
def local_door(*, streams: bool = False) -> Iterator[SparkDoor]:
    """Yield a door to a local session of two cores, for as long as it is needed.

    Args:
        streams: rows go in and come out through streams.
    """
    os.environ.update(environment())
    warehouse = Path(tempfile.gettempdir()) / f"conformance-spark-{uuid.uuid4().hex}"
    builder = SparkSession.builder.master("local[2]").appName("conformance")
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "2g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.warehouse.dir": str(warehouse),
        "spark.sql.session.timeZone": "America/New_York",
        "spark.log.level": "OFF",
    }.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    ms.register(session)
    try:
        yield SparkStreamDoor(session, writes=True) if streams else SparkDoor(session)
    finally:
        session.stop()

"""A DataFrame's rows through files: Spark writes them as Parquet, and Python tasks load those files.

    df ── Spark ──►  <table>/.staging.<id>/part-00000-...-c000.lz4raw.parquet  ── `LoadJob` ──►  files of buckets

Every cell that crosses from the JVM to Python costs; Parquet costs much less of it, so many rows take this way
(docs/decisions/0026). The files are read in the order of Spark's partitions, and of the files that one partition was
cut into, so rows keep the order of the DataFrame.

Columns get names of their own, and dates and instants go as whole numbers: neither names that Parquet or Spark have
rules for nor any setting of the session changes what arrives. A type that would not arrive as it is does not take
this way.

The folder goes when the write ends. Of a process that was killed it stays, no snapshot names it, and orphan cleaning
removes it by age.
"""

from __future__ import annotations

import contextlib
import re
import threading
import weakref
from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as s

from merganser.errors import InvariantError, MerganserError, StorageError, UnsupportedError
from merganser.ingest.files import Portion, RowFiles
from merganser.meta.table_def import TableDef
from merganser.spark.access import is_connect, may_answer, our_errors
from merganser.spark.bucketing import quoted
from merganser.spark.types import arrow_schema_of
from merganser.storage.env import Env
from merganser.storage.guarded import files_of
from merganser.storage.hdfs import HdfsStorage
from merganser.storage.local import LocalStorage
from merganser.storage.object_store import ObjectStorage
from merganser.storage.paths import STAGING, join
from merganser.values import dataclass

FILES_FROM_BYTES: Final = 16 * 1024 * 1024
"""From this size on, as Spark estimates it, a DataFrame is written through files."""
_KNOWN_BYTES_MAX: Final = 1 << 60
"""Spark says 8 EiB of a DataFrame whose size it does not know."""
_UNITS: Final = {unit: 1 << 10 * i for i, unit in enumerate(("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"))}
_ESTIMATE: Final = re.compile(r"sizeInBytes=([0-9.]+(?:E\+?[0-9]+)?) ([KMGTPE]?i?B)")
_PART: Final = re.compile(r"part-(\d+)-.*?(?:-c(\d+))?\.[^-]*parquet")
_OPTIONS: Final = {"compression": "lz4_raw", "parquet.block.size": str(32 * 1024 * 1024)}
"""Of this one write: cheap to write and read, and in row groups that tasks can share."""
_SCHEMES: Final = {"s3": ("s3a", "s3"), "gs": ("gs",)}
"""What Spark may call a store."""
_SAME: Final = (
    s.BooleanType,
    s.ByteType,
    s.ShortType,
    s.IntegerType,
    s.LongType,
    s.FloatType,
    s.DoubleType,
    s.DecimalType,
    s.BinaryType,
    s.TimestampNTZType,
)
"""Types that arrive as they are, at any depth."""

_lock: Final = threading.Lock()
_reached: Final[weakref.WeakKeyDictionary[SparkSession, dict[str, str]]] = weakref.WeakKeyDictionary()
"""By session and path of a table: what Spark calls the path."""


@dataclass(frozen=True, slots=True)
class StagedRows:
    """Reads the staged rows of a DataFrame. It pickles, so that tasks carry it.

    Attributes:
        files: reads the files.
        schema: the columns of the DataFrame.
    """

    files: RowFiles
    schema: pa.Schema

    def tables(self, portion: Portion) -> Iterator[pa.Table]:
        """Yield the rows of a portion in order, a batch at a time, as the DataFrame has them."""
        for table in self.files.tables(portion):
            columns = [_restored(column, field.type) for column, field in zip(table.columns, self.schema, strict=True)]
            yield pa.Table.from_arrays(columns, names=self.schema.names)


def estimated_bytes(df: DataFrame) -> int | None:
    """Return how large Spark's optimizer takes a DataFrame to be, in bytes; None where it does not know.

    Nothing runs for it. What Spark says is text for people, so anything else than what is expected counts as unknown.
    """
    try:
        text = df.sparkSession.sql("EXPLAIN COST SELECT * FROM {df}", df=df).collect()[0][0]
    except Exception:
        return None
    found = _ESTIMATE.search(text)
    if found is None:
        return None
    size = int(float(found[1]) * _UNITS[found[2]])
    return size if size < _KNOWN_BYTES_MAX else None


def why_not_staged(df: DataFrame) -> str | None:
    """Return why rows of a DataFrame cannot go through files, as a part of a sentence; None if they can."""
    legacy = df.sparkSession.conf.get("spark.sql.parquet.writeLegacyFormat", "false") == "true"
    for field in df.schema.fields:
        kind = field.dataType
        if not isinstance(kind, s.DateType | s.TimestampType) and not _arrives(kind, nested_too=not legacy):
            return f"column '{field.name}' is {kind.simpleString()}, which Parquet files of Spark do not hold as it is"
    return None


def spark_path(spark: SparkSession, table: TableDef, env: Env) -> str:
    """Return what Spark calls the path of a table.

    A store that is not the disk of this process is tried once per session and table: Spark writes a file without rows,
    and it must be where we see it and can remove it.

    Raises:
        UnsupportedError: Spark cannot write there.
    """
    storage = files_of(env.storage)
    if isinstance(storage, LocalStorage) and not is_connect(spark):
        return f"file://{table.path}"
    with _lock:
        known = _reached.setdefault(spark, {}).get(table.path)
    if known is not None:
        return known
    scheme, _, below = table.path.partition("://")
    if isinstance(storage, LocalStorage):
        names: tuple[str, ...] = (f"file://{table.path}",)
    elif isinstance(storage, ObjectStorage):
        names = tuple(f"{name}://{below}" for name in _SCHEMES.get(scheme, ()))
    elif isinstance(storage, HdfsStorage) and may_answer(spark, storage):
        names = (table.path,)
    else:
        names = ()
    why = f"Spark does not reach '{scheme}:' paths"
    for name in names:
        folder = _folder(env)
        try:
            spark.range(0, 0, 1, 1).write.parquet(f"{name}/{folder}")
            if any(_PART.fullmatch(entry.name) for entry in storage.list(join(table.path, folder))):
                storage.delete_tree(join(table.path, folder))  # the user of Spark may be another one than ours
                with _lock:
                    _reached[spark][table.path] = name
                return name
            why = f"what Spark writes to '{name}' is not found there by this process"
        except StorageError as error:
            why = f"what Spark writes is not ours to remove: {error}"
        except Exception as error:
            why = f"Spark cannot write to '{name}': {str(error).strip().splitlines()[0]:.300}"
        finally:
            _remove(table, env, folder)
    raise UnsupportedError(
        f"cannot write to '{table.name}' through files: {why}. Nothing was written. Let Spark reach that path, or "
        "leave through='files' out.",
        table=table.name,
    )


@contextlib.contextmanager
def staged(df: DataFrame, table: TableDef, env: Env, path: str) -> Iterator[tuple[StagedRows, list[Portion]]]:
    """Let Spark write a DataFrame into files, and give them while inside; then they go.

    Args:
        path: from `spark_path`.
    """
    folder = _folder(env)
    try:
        with our_errors(df.sparkSession):
            _numbered(df).write.options(**_OPTIONS).parquet(f"{path}/{folder}")
        parts = [
            (int(found[1]), int(found[2] or 0), entry.name)
            for entry in env.storage.list(join(table.path, folder))
            if (found := _PART.fullmatch(entry.name))
        ]
        if not parts:  # Spark makes a file of no rows, too
            raise InvariantError(
                f"cannot write to '{table.name}' through files: Spark wrote to '{path}/{folder}', and no file is "
                "there. Nothing was committed. Write with through='arrow'.",
                table=table.name,
            )
        files = RowFiles(env.storage, table.schema.user_fields)
        paths = [join(table.path, folder, name) for _, _, name in sorted(parts)]
        portions = [portion for found in env.map(files.portions, paths) for portion in found]
        yield StagedRows(files, arrow_schema_of(df.schema)), portions
    finally:
        _remove(table, env, folder)


def _folder(env: Env) -> str:
    return f"{STAGING}{env.new_id()}"


def _remove(table: TableDef, env: Env, folder: str) -> None:
    with contextlib.suppress(MerganserError):  # orphan cleaning finds what stays
        env.storage.delete_tree(join(table.path, folder))


def _arrives(kind: s.DataType, *, nested_too: bool) -> bool:
    """Return whether values of a type come out of Parquet as they went in."""
    if isinstance(kind, s.StringType):
        return bool(kind == s.StringType())  # others have rules of comparing, or a length
    if isinstance(kind, _SAME):
        return True
    if not nested_too:
        return False
    match kind:
        case s.ArrayType():
            return _arrives(kind.elementType, nested_too=True)
        case s.MapType():
            return _arrives(kind.keyType, nested_too=True) and _arrives(kind.valueType, nested_too=True)
        case s.StructType():
            names = {name.lower() for name in kind.names}
            return 0 < len(kind.names) == len(names) and all(_arrives(x.dataType, nested_too=True) for x in kind.fields)
    return False


def _numbered(df: DataFrame) -> DataFrame:
    """Return the DataFrame with columns named by number, and dates and instants as whole numbers."""
    kinds = [field.dataType for field in df.schema.fields]
    names = [f"c{i}" for i in range(len(kinds))]
    return df.toDF(*names).select(
        *[_whole_number(quoted(name), kind).alias(name) for name, kind in zip(names, kinds, strict=True)]
    )


def _whole_number(column: Column, kind: s.DataType) -> Column:
    if isinstance(kind, s.TimestampType):
        return f.unix_micros(column)
    return f.unix_date(column) if isinstance(kind, s.DateType) else column


def _restored(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if column.type.equals(kind):
        return column
    if pa.types.is_timestamp(kind) or pa.types.is_date32(kind):
        return pa.chunked_array([chunk.view(kind) for chunk in column.chunks], kind)
    return column.cast(kind)

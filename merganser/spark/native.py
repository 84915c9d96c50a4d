"""Data files that Spark decodes itself, in the queries of `ms.session`: no row crosses from Python to the JVM.

Spark then reads the columns that a query needs, skips row groups by its filters, knows how large a table is, and
compiles scan and query into one. Files are chosen by our plan (`scan.plain`), from one snapshot. What Spark makes of a
Parquet file depends on settings of the session; each that could change a row is set here.

Rows that do not count are left out by their positions, which the driver finds once per process (`sql.query.hidden`): a
filter on the number of a row in its file reads a bit. Where the driver would need too much memory for this, Spark joins
the keys of files in each query.

Docs: decision 0079.
"""

from __future__ import annotations

import re
import threading
import weakref
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from itertools import chain
from typing import Any, Final
from zlib import crc32

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as s

from merganser.files.plain import PlainFile, plain_file
from merganser.options import write as w
from merganser.scan.plain import FileGroup, PlainScan
from merganser.scan.scan import Scan
from merganser.schema import row_kind
from merganser.schema import types as t
from merganser.schema.table_schema import VALUE_KIND
from merganser.spark.access import may_answer
from merganser.spark.types import spark_schema
from merganser.sql.query.duck import opened
from merganser.sql.query.hidden import hidden_masks
from merganser.storage.guarded import files_of
from merganser.storage.hdfs import HdfsStorage
from merganser.storage.local import LocalStorage
from merganser.storage.protocol import Storage

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
_BROADCAST_BYTES: Final = 64 << 20
"""Maximum bytes of keys that are sent whole to every executor."""
_KEYS_BYTES: Final = 256 << 20
"""Maximum bytes of keys of newer files that the driver joins with those of older ones. Above it, Spark joins them."""
_BITS_BYTES: Final = 16 << 20
"""Maximum bytes of bits that a query sends to its tasks: a bit per row of the files that have some to leave out."""
_SCANS_MAX: Final = 32
"""Maximum number of files of one name: each is in a scan of its own."""
_SPREAD: Final = 16
"""Places per file in the table of a scan that finds files by the checksums of their names."""
_SIZES: Final = 256
"""Maximum number of sizes to try for such a table, until each file has a place of its own."""
_NAME: Final = re.compile(r"[\w.-]+", re.ASCII)
"""Names of files that Spark spells as we do, whatever it escapes."""
_ROW_NUMBER: Final = "_tmp_metadata_row_index"
"""The column in which Spark numbers rows. A file with a column of this name is left to our reader."""

_lock: Final = threading.Lock()
_reached: Final[weakref.WeakKeyDictionary[SparkSession, dict[Storage, bool]]] = weakref.WeakKeyDictionary()

_Words = npt.NDArray[np.int64]


def reads_files(spark: SparkSession, scan: Scan) -> bool:
    """Return whether Spark reads the files of a table by itself: those of a local disk, or of HDFS if it gets there.

    Of HDFS it is tried once per session, as the user of Spark, who may be another one than ours.
    """
    storage = files_of(scan.env.storage)
    if not isinstance(storage, HdfsStorage):
        return isinstance(storage, LocalStorage)
    with _lock:
        known = _reached.setdefault(spark, {}).get(storage)
    if known is None:
        path = scan.table.paths.schema(scan.table.schema.id)
        try:
            known = may_answer(spark, storage) and bool(spark.read.text(path, wholetext=True).head(1))
        except Exception:  # of Py4J or of Connect; tasks of Python read the files then
            known = False
        with _lock:
            _reached[spark][storage] = known
    return known


def native_frames(spark: SparkSession, found: PlainScan) -> list[DataFrame] | None:
    """Return the rows of files that Spark reaches, as it reads them.

    None if files are damaged or need what Spark cannot do: tasks then say so, or read them.
    """
    local = isinstance(files_of(found.scan.env.storage), LocalStorage)  # else DuckDB has no way to them
    by_position = local and _fits(found)
    if not by_position and any(file.vector is not None for group in found.groups for file in group.files):
        return None
    try:
        if by_position:
            if not _is_sound(found):
                return None
            frames = list(_by_position(spark, found))
        else:
            frames = [_by_key(spark, found, group) for group in found.groups]
        for frame in frames:
            frame.schema  # noqa: B018 - Connect looks for the files now, not later
    except (PySparkException, duckdb.Error):
        return None
    return frames


def _fits(found: PlainScan) -> bool:
    """Return whether the driver can find rows that do not count by their positions, within its limits."""
    newer = _newer(found)
    some = [file for group in found.groups for file in group.files if file.path in group.newer or file.vector]
    names = Counter(_name(file) for file in some)
    return (
        sum(file.key_bytes for file in newer) <= _KEYS_BYTES
        and sum(file.rows for file in some) <= 8 * _BITS_BYTES
        and all(map(_NAME.fullmatch, names))
        and max(names.values(), default=0) <= _SCANS_MAX
        and not any(_ROW_NUMBER in file.names for file in some)
    )


def _is_sound(found: PlainScan) -> bool:
    """Return whether the pages of keys that the driver joins are undamaged: DuckDB does not look at their checksums."""
    env, table = found.scan.env, found.scan.table
    key = [table.schema.field(name) for name in found.key]
    older = [file for group in found.groups for file in group.files if file.path in group.newer]

    def looked_at(file: PlainFile) -> bool:
        return plain_file(env, file.target, key, kinds=False) is not None

    return all(env.map(looked_at, {file.path: file for file in chain(older, _newer(found))}.values()))


def _newer(found: PlainScan) -> list[PlainFile]:
    """Return the files that hide rows of others, each once."""
    groups = (files for group in found.groups for files in group.newer.values())
    return list({file.path: file for files in groups for file in files}.values())


def _by_position(spark: SparkSession, found: PlainScan) -> Iterator[DataFrame]:
    """Yield the rows of files: of all files without rows that do not count, and of the others by a filter."""
    alike: dict[tuple[tuple[str | None, ...], bool], list[tuple[PlainFile, _Words | None]]] = {}
    for group in found.groups:
        masks = hidden_masks(opened, found, group)
        marked = ((file, None if mask is None else _words(mask)) for file, mask in zip(group.files, masks, strict=True))
        alike.setdefault((group.files[0].names, group.kinds), []).extend(marked)
    for (names, kinds), files in alike.items():
        stored = _stored(found, names, kinds=kinds)
        whole = [file for file, words in files if words is None]
        if whole:
            yield _told(found, names, _files(spark, whole, stored), kinds=kinds)
        for places, size in _parts([(file, words) for file, words in files if words is not None]):
            frame = _files(spark, [file for file, _ in places.values()], stored)
            yield _told(found, names, frame.where(_counts(spark, frame, places, size)), kinds=kinds)


def _parts(files: Sequence[tuple[PlainFile, _Words]]) -> Iterator[tuple[dict[int, tuple[PlainFile, _Words]], int]]:
    """Yield files in as few parts as possible, each for one scan: by place in a table, and the size of the table.

    The place is the checksum of the name of a file, modulo the size. Files that share a place go to different parts.
    """
    while files:
        sums = [crc32(_name(file).encode()) for file, _ in files]
        least = _SPREAD * len(files)
        sizes = range(least, least + _SIZES)
        size = next((size for size in sizes if len({each % size for each in sums}) == len(sums)), least)
        part: dict[int, tuple[PlainFile, _Words]] = {}
        left = []
        for file, each in zip(files, sums, strict=True):
            if each % size in part:
                left.append(file)
            else:
                part[each % size] = file
        yield part, size
        files = left


def _counts(spark: SparkSession, frame: DataFrame, places: Mapping[int, tuple[PlainFile, _Words]], size: int) -> Column:
    """Return the condition on rows of files that keeps those which count.

    The bits are the value of a subquery. A literal would be written out in each plan that Spark keeps and shows.
    """
    metadata = frame.metadataColumn("_metadata")
    row = metadata.getField("row_index")
    word = f.shiftright(row, 6).cast("int")
    if len(places) > 1:
        starts = np.zeros(size, np.int64)
        starts[list(places)] = np.cumsum([0, *(len(words) for _, words in places.values())])[:-1]
        place = f.crc32(metadata.getField("file_name").cast("binary")) % size
        word += f.get(_array(spark, starts), place.cast("int")).cast("int")
    bits = _array(spark, np.concatenate([words for _, words in places.values()]))
    return f.getbit(f.get(bits, word), row.bitwiseAND(63).cast("int")) < 1


def _array(spark: SparkSession, values: _Words) -> Column:
    kind: Any = pa.list_(pa.field("element", pa.int64(), nullable=False))
    ends = pa.array([0, len(values)], pa.int32())
    return spark.createDataFrame(pa.table([pa.ListArray.from_arrays(ends, pa.array(values), kind)], ["a"])).scalar()


def _words(mask: npt.NDArray[np.bool_]) -> _Words:
    """Return 64 rows per number, the first row as the lowest bit."""
    packed = np.packbits(mask, bitorder="little")
    return np.pad(packed, (0, -len(packed) % 8)).view("<i8").astype(np.int64, copy=False)


def _by_key(spark: SparkSession, found: PlainScan, group: FileGroup) -> DataFrame:
    """Return the rows of files less those whose keys newer files have, by an anti join."""
    table, names = found.scan.table, group.files[0].names
    key = spark_schema(table, [table.schema.field(name) for name in found.key] if group.newer else [])
    stored = _stored(found, names, kinds=group.kinds) | {column.name: column.dataType for column in key}
    frame = _files(spark, group.files, stored)
    if group.newer:
        newer = list({file.path: file for files in group.newer.values() for file in files}.values())
        others = ["_" * max(map(len, stored)) + str(i) for i in range(len(key))]  # no column has a name of this length
        above = _files(spark, newer, {column.name: column.dataType for column in key}).toDF(*others)
        if sum(file.key_bytes for file in newer) <= _BROADCAST_BYTES:
            above = f.broadcast(above)
        null_safe = bool(table.options.get(w.PRIMARY_KEY_NULLABLE))
        frame = frame.join(above, _equal([column.name for column in key], others, null_safe=null_safe), "left_anti")
    return _told(found, names, frame, kinds=group.kinds)


def _stored(found: PlainScan, names: Sequence[str | None], *, kinds: bool) -> dict[str, s.DataType]:
    """Return the columns to read of files, by their names there."""
    declared = spark_schema(found.scan.table, found.scan.columns)
    stored = {own: column.dataType for column, own in zip(declared, names, strict=True) if own is not None}
    if kinds or not stored:
        stored[VALUE_KIND.name] = s.ByteType()
    return stored


def _told(found: PlainScan, names: Sequence[str | None], frame: DataFrame, *, kinds: bool) -> DataFrame:
    """Return the columns of the scan, without the rows that are retractions."""
    fields = found.scan.columns
    if kinds:
        frame = frame.where(f.col(VALUE_KIND.name).isin(row_kind.INSERT, row_kind.UPDATE_AFTER))
    return frame.select(
        [_column(*each) for each in zip(spark_schema(found.scan.table, fields), fields, names, strict=True)]
    )


def _name(file: PlainFile) -> str:
    return file.path.rpartition("/")[2]


def _equal(names: Sequence[str], others: Sequence[str], *, null_safe: bool) -> Column:
    pairs = [(_of(name), f.col(other)) for name, other in zip(names, others, strict=True)]
    return reduce(Column.__and__, [a.eqNullSafe(b) if null_safe else a == b for a, b in pairs])


def _files(spark: SparkSession, files: Sequence[PlainFile], stored: dict[str, s.DataType]) -> DataFrame:
    schema = s.StructType([s.StructField(name, kind) for name, kind in stored.items()])
    return spark.read.options(**_OPTIONS).schema(schema).parquet(*_urls(files))


def _urls(files: Sequence[PlainFile]) -> Iterator[str]:
    """Yield the names by which the JVM knows files, whatever the default file system is."""
    for file in files:
        yield file.path if "://" in file.path else f"file:{file.path}"


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

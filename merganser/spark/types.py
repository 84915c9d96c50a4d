"""Our columns <-> Spark's schema, and Arrow rows cast to exactly the form that Spark declares for them.

Spark 4.3 refuses a batch whose Arrow schema differs in anything from its own (nullability, zone, unit); older
versions refuse some differences and misread others. So every batch that is handed over is cast here, to what
Spark itself makes of the declared schema. Columns are declared nullable unless they are key columns: files may
hold nulls that an older schema allowed.

Spark has microseconds: the digits 7 to 9 of a TIMESTAMP(9) are dropped, towards the past. TIME is INT milliseconds
below Spark 4.1.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from merganser.errors import InvalidInputError
from merganser.meta.table_def import TableDef
from merganser.options import write as w
from merganser.scan.rows import BATCH_ROWS
from merganser.schema import types as t
from merganser.schema.spark_json import TimeAs, fields_from_spark_json, spark_json_from_fields

_ZONED: Final = {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}
"""Since 4.3 the zone of instants is the caller's to name; before it was always UTC."""


def version_of(text: str) -> tuple[int, int]:
    """Return major and minor number of a version of Spark."""
    major, minor = text.split(".")[:2]
    return int(major), int(minor)


TIME_AS: Final[TimeAs] = "time" if version_of(pyspark.__version__) >= (4, 1) else "int"


def spark_schema(table: TableDef, fields: Sequence[t.Field]) -> StructType:
    """Return the Spark schema of columns of a table.

    Raises:
        UnsupportedError: a column has a type that Spark has no form for.
    """
    keys = () if table.options.get(w.PRIMARY_KEY_NULLABLE) else table.schema.primary_keys
    declared = [replace(field, type=_nullable(field.type).with_nullable(field.name not in keys)) for field in fields]
    return StructType.fromJson(json.loads(spark_json_from_fields(declared, time_as=TIME_AS)))


def frame_of_arrow(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """Return rows as a DataFrame; moments without a zone are TIMESTAMP_NTZ: Spark alone takes them for instants."""
    if not rows.num_rows:  # Spark takes no MAP or ROW column without a chunk
        rows = rows.schema.empty_table()
    return spark.createDataFrame(rows, from_arrow_schema(rows.schema, prefer_timestamp_ntz=True))


def arrow_schema_of(schema: StructType) -> pa.Schema:
    """Return the Arrow schema that Spark hands rows of a schema over in, and wants them back in.

    Raises:
        InvalidInputError: a column has a type that no column of a table holds.
    """
    try:
        return to_arrow_schema(schema, **_ZONED)
    except PySparkException:
        fields_from_spark_json(schema.json())  # says which column it is
        raise


def spark_batches(rows: pa.Table, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield rows as batches of at most 65,536 rows in exactly a schema that Spark declared.

    Args:
        rows: the columns of the schema, in its order, in our Arrow types.
        schema: from `arrow_schema_of`.

    Raises:
        InvalidInputError: a timestamp lies outside the years that microseconds reach.
    """
    columns = [_column(column, field) for column, field in zip(rows.columns, schema, strict=True)]
    table = pa.Table.from_arrays(columns, schema=schema)
    if not len(schema):  # a table without columns has no batches, and its rows still count
        for start in range(0, rows.num_rows, BATCH_ROWS):
            count = min(BATCH_ROWS, rows.num_rows - start)
            empty = pa.StructArray.from_arrays([], fields=[], mask=pa.array(np.zeros(count, np.bool_)))
            yield pa.RecordBatch.from_struct_array(empty)
        return
    yield from table.to_batches(max_chunksize=BATCH_ROWS)


def _nullable(kind: t.DataType) -> t.DataType:
    """Return the type with nulls allowed at every depth but in the keys of maps."""
    match kind:
        case t.Array(element=element):
            return t.Array(element=_nullable(element).with_nullable(True))
        case t.Map(key=key, value=value):
            return t.Map(key=_nullable(key).with_nullable(False), value=_nullable(value).with_nullable(True))
        case t.Row(fields=fields):
            return t.Row(fields=tuple(replace(f, type=_nullable(f.type).with_nullable(True)) for f in fields))
    return kind


def _column(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    if column.type.equals(field.type):
        return column
    try:
        return pa.chunked_array([_cast(chunk, field.type) for chunk in column.chunks], field.type)
    except pa.ArrowInvalid as error:
        raise InvalidInputError(
            f"cannot hand column '{field.name}' to Spark as {field.type}: {error}. Leave the column out, or "
            "read it without Spark.",
            column=field.name,
        ) from error


def _cast(array: pa.Array, target: pa.DataType) -> pa.Array:
    kind = array.type
    if kind.equals(target):
        return array
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return _floored(array.view(pa.int64()), 1_000).view(target)
    if pa.types.is_struct(kind):
        children = [_cast(child, field.type) for child, field in zip(array.flatten(), target, strict=True)]
        return pa.StructArray.from_arrays(children, fields=list(target), mask=array.is_null())
    if pa.types.is_map(kind):
        whole = _unsliced(array)
        keys, items = _cast(whole.keys, target.key_type), _cast(whole.items, target.item_type)
        entries = pa.StructArray.from_arrays([keys, items], fields=[target.key_field, target.item_field])
        return pa.Array.from_buffers(target, len(whole), whole.buffers()[:2], whole.null_count, children=[entries])
    if pa.types.is_list(kind):
        whole = _unsliced(array)
        return pa.Array.from_buffers(
            target, len(whole), whole.buffers()[:2], whole.null_count, children=[_cast(whole.values, target.value_type)]
        )
    return array.cast(target)


def _unsliced(array: pa.Array) -> pa.Array:
    """Return the same values at offset 0, where buffers say what the array does."""
    return array if array.offset == 0 else pa.concat_arrays([array, array.slice(0, 0)])


def _floored(values: pa.Array, divisor: int) -> pa.Array:
    quotient = pc.divide(values, divisor)
    behind = pc.less(pc.subtract(values, pc.multiply(quotient, divisor)), 0)
    return pc.subtract(quotient, behind.cast(pa.int64()))

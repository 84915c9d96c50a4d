"""`ms.cdc.parse`: a column of change records -> rows with kinds, as a DataFrame; batch or stream.

    Spark    [value, key, position] -> task: `parse_records` of each Arrow batch, a function of the batch alone

A task gives the rows of its records in their order. A writer gets them in the order of their tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as s

from merganser.cdc.options import check_names
from merganser.cdc.records import Placing, parse_records
from merganser.errors import InvalidInputError
from merganser.handle.table import Table
from merganser.options.registry import arguments_of
from merganser.schema import row_kind
from merganser.schema import types as t
from merganser.schema.table_schema import CHANGE_KIND
from merganser.spark.access import check_frame, opened
from merganser.spark.bucketing import quoted
from merganser.spark.jobs import in_tasks
from merganser.spark.keeping import MARK, UNAVAILABLE, marks
from merganser.spark.names import Spelling, spelling_of
from merganser.spark.pythons import warn_of_other_python
from merganser.spark.types import arrow_schema_of, spark_batches, spark_schema
from merganser.values import dataclass

__all__ = ["REJECTED", "parse"]

REJECTED: Final = "_rejected"
"""Column of a bad record: a struct of its reason, text, key and position; null in all other rows."""
LETTER: Final = s.StructType(
    [
        s.StructField("reason", s.StringType()),
        s.StructField("text", s.BinaryType()),
        s.StructField("key", s.BinaryType()),
        s.StructField("position", s.LongType()),
    ]
)
_BAD: Final = ("fail", "keep")
TEXTS: Final = (s.StringType, s.BinaryType)
NUMBERS: Final = (s.ByteType, s.ShortType, s.IntegerType, s.LongType)
_TEXT_MAX: Final = 1_000
"""Most bytes of a record that an error shows."""


def parse(
    df: DataFrame,
    format: str,
    table: Table | str,
    /,
    value: str = "value",
    key: str | None = None,
    position: str | None = None,
    bad: str = "fail",
    **options: Any,
) -> DataFrame:
    """Return the rows with kinds that change records stand for, as a DataFrame of the same kind: batch or stream.

    Args:
        df: the records, one per row, as Kafka's source gives them. Rows of one key must lie in one partition, in their
            order. Other columns are left out.
        format, options: as for `merganser.cdc.parse`.
        table: the table whose columns and primary key the rows get, or its path.
        value: the column of `df` with the values of the records: STRING or BINARY.
        key: the column with the message keys; None: the column `key`, if `df` has one.
        position: the column with the numbers that dead letters name the records by; None: the column `offset`, if `df`
            has one.
        bad: "fail": a bad record stops the job with an error. "keep": a bad record becomes a row whose column
            `_rejected` holds its reason, text, key and position; the other columns of this row are null.

    Returns:
        `_row_kind` as text, the columns of the table, with unavailable="keep" `_unavailable`, which `ms.write` and
        `ms.write_stream` need, and with bad="keep" `_rejected`; in the order of the records.

    Raises:
        InvalidInputError: the format is unknown, an option has no meaning, or a column is missing or of another type.
            Nothing ran.
        UnsupportedError: the table has a column of a type that change records do not hold. Nothing ran.
    """
    check_names(options, arguments_of(parse))
    found = opened(table)
    action = f"cannot read change records for '{found.name}'"
    check_frame(df, action, "merganser.cdc.parse takes records that lie in this process.")
    if bad not in _BAD:
        raise InvalidInputError(f"{action}: bad is {bad!r:.50}. Give 'fail' or 'keep'. Nothing ran.")
    fields = found.schema.fields
    keeps = options.get("unavailable") == "keep"
    added = {UNAVAILABLE: keeps, REJECTED: bad == "keep"}
    reserved = [CHANGE_KIND.name, *(name for name, is_there in added.items() if is_there)]
    taken = [field.name for field in fields if field.name in reserved]
    if taken:
        raise InvalidInputError(
            f"{action}: the table has a column '{taken[0]}', and so has the result. Nothing ran.", column=taken[0]
        )
    parse_records(pa.array([], pa.binary()), format, fields, found.primary_key, options)  # refuses what has no meaning
    spelling = spelling_of(df.sparkSession, found)
    values = column_of(df, spelling, value, "value", TEXTS, action)
    keys = column_of(df, spelling, "key" if key is None else key, "key", TEXTS, action, must=key is not None)
    places = column_of(
        df,
        spelling,
        "offset" if position is None else position,
        "position",
        NUMBERS,
        action,
        must=position is not None,
    )
    rows = spark_schema(found.definition, fields)
    columns = [s.StructField(CHANGE_KIND.name, s.StringType())]
    columns += [s.StructField(field.name, field.dataType, True, field.metadata) for field in rows.fields]
    if keeps:
        columns.append(s.StructField(UNAVAILABLE, MARK))
    if bad == "keep":
        columns.append(s.StructField(REJECTED, LETTER))
    schema = s.StructType(columns)
    task = ParseTask(
        found.name, tuple(fields), found.primary_key, format, options,
        keys is not None, places is not None, bad == "keep", arrow_schema_of(schema),
        Placing.of(found.schema, found.definition.options),
    )  # fmt: skip
    warn_of_other_python(df.sparkSession)
    asked = [name for name in (values, keys, places) if name is not None]
    plain = df.select(*[quoted(name).alias(f"c{i}") for i, name in enumerate(asked)])
    return in_tasks(plain, task, schema)


def column_of(
    df: DataFrame,
    spelling: Spelling,
    name: str,
    argument: str,
    types: tuple[type[s.DataType], ...],
    action: str,
    *,
    must: bool = True,
) -> str | None:
    """Return the name of a column as the DataFrame has it; None if it need not be there, and is not.

    Args:
        argument: which names it.
        types: one of these is the type of the column.
        action: the start of messages.

    Raises:
        InvalidInputError: it is not there, or has another type.
    """
    named = spelling.column(name, df.columns)
    if named not in df.columns:
        if not must:
            return None
        raise InvalidInputError(
            f"{action}: the DataFrame has no column {name!r:.80}. It has {', '.join(map(repr, df.columns[:10]))}. Name "
            f"one with {argument}=. Nothing ran.",
            column=str(name),
        )
    kind = df.schema[named].dataType
    if not isinstance(kind, types):
        wanted = "STRING or BINARY" if types is TEXTS else "an integer"
        raise InvalidInputError(
            f"{action}: column '{named}' is {kind.simpleString()}, and {argument}= takes {wanted}. Cast the column, "
            f"rename it, or name another one with {argument}=. Nothing ran.",
            column=named,
        )
    return named


@dataclass(frozen=True, slots=True)
class ParseTask:
    """Makes rows of the records of a task.

    Attributes:
        name: of the table.
        fields: its columns.
        key: its primary key.
        format, options: of the records.
        keyed: the second column holds message keys.
        placed: the last column holds the positions of records.
        keep: bad records become rows; else they raise an error.
        schema: of the result.
        placing: what places the rows of the table besides its key.
    """

    name: str
    fields: tuple[t.Field, ...]
    key: tuple[str, ...]
    format: str
    options: Mapping[str, Any]
    keyed: bool
    placed: bool
    keep: bool
    schema: pa.Schema
    placing: Placing

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows, as `mapInArrow` wants them."""
        for batch in batches:
            if batch.num_rows:
                yield from spark_batches(self._rows(batch), self.schema)

    def _rows(self, batch: pa.RecordBatch) -> pa.Table:
        keys = batch.column(1) if self.keyed else None
        found = parse_records(batch.column(0), self.format, self.fields, self.key, self.options, keys, self.placing)
        kinds = row_kind.symbols(found.kinds)
        columns = [kinds, *found.rows.columns]
        if found.unavailable is not None:
            columns.append(marks(whole(found.unavailable), self._records(found.record, batch)))
        if not self.keep:
            if found.rejected.num_rows:
                raise refusal(self.name, found.rejected, batch.num_rows, "give bad='keep' and dead_letters=")
            return pa.table(columns, names=self.schema.names)
        letters = self._letters(found.rejected, batch)
        if not found.rejected.num_rows:
            columns.append(pa.nulls(len(kinds), letters.type))
            return pa.table(columns, names=self.schema.names)
        numbers = np.concatenate([found.record.to_numpy(), found.rejected.column("record").to_numpy()])
        order = np.argsort(numbers, kind="stable")
        good = np.arange(len(order)) < len(kinds)
        place = pa.array(np.arange(len(order)), mask=~good).take(pa.array(order))
        letter = pa.array(np.arange(len(order)) - len(kinds), mask=good).take(pa.array(order))
        taken = [pa.chunked_array([column]) if isinstance(column, pa.Array) else column for column in columns]
        return pa.table([*(column.take(place) for column in taken), letters.take(letter)], names=self.schema.names)

    def _records(self, record: pa.Array, batch: pa.RecordBatch) -> pa.Table:
        """Return text, key and position of some records."""
        rows = pa.Table.from_batches([batch]).take(record)
        nothing = pa.nulls(len(record), pa.binary())
        return pa.table(
            {
                "text": rows.column(0),
                "key": rows.column(1) if self.keyed else nothing,
                "position": rows.column(rows.num_columns - 1) if self.placed else pa.nulls(len(record), pa.int64()),
            }
        )

    def _letters(self, rejected: pa.Table, batch: pa.RecordBatch) -> pa.Array:
        at = rejected.column("record").combine_chunks()
        position = batch.column(batch.num_columns - 1).take(at).cast(pa.int64()) if self.placed else None
        parts = [
            *(whole(rejected.column(name)) for name in ("reason", "text", "key")),
            pa.nulls(len(at), pa.int64()) if position is None else position,
        ]
        return pa.StructArray.from_arrays(parts, names=LETTER.names)


def refusal(name: str, rejected: pa.Table, count: int, advice: str) -> InvalidInputError:
    """Return the error that bad records are.

    Args:
        name: of the table.
        rejected: bad records, in the form of `Parsed`.
        count: how many records there were.
        advice: what else can be done but to repair the record.
    """
    first = rejected.slice(0, 1)
    text = first.column("text")[0].as_py()
    shown = "it has no value" if text is None else text[:_TEXT_MAX].decode(errors="replace")
    return InvalidInputError(
        f"cannot read change records for '{name}': {rejected.num_rows} of {count} records of an Arrow "
        f"batch are bad. The first: {first.column('reason')[0].as_py()}. Its text: {shown}. No row of this batch "
        f"was given. Repair the record at its source, or {advice}."
    )


def whole(column: pa.ChunkedArray) -> pa.Array:
    """Return a column in one piece."""
    found = column.combine_chunks()
    return pa.concat_arrays(found.chunks) if isinstance(found, pa.ChunkedArray) else found

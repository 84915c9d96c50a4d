"""Rows of change records that keep values of stored rows (`edit.keeping`), on Spark.

    task      fills in values that earlier rows of the task have, writes the rows of keys that need no stored row, and
              puts the others aside in a file: stored rows must be read when the commit is made
    driver    looks up the stored rows, fills the rows of these files, writes them, and commits them with the files of
              the tasks. A conflict repeats this part alone

All rows of a key are in one task. Where buckets are added as keys arrive, one process must assign all keys of a write,
so all rows of the write are put aside.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import types as s

from merganser.commit.message import CommitMessage
from merganser.edit.keeping import Apart, Keeping, Kept, apart, check_can_keep
from merganser.errors import InvalidInputError
from merganser.handle.dead_letters import DeadLetters
from merganser.ingest.rows import split_kinds
from merganser.meta.snapshot import Snapshot
from merganser.meta.table_def import TableDef
from merganser.options import write as w
from merganser.schema import row_kind
from merganser.schema.conform import conform, fill_missing
from merganser.schema.internal_names import internal_name
from merganser.schema.table_schema import VALUE_KIND
from merganser.spark.jobs import batch_of
from merganser.storage.env import Env
from merganser.values import dataclass
from merganser.write.held import drop_held, put_aside, rows_aside
from merganser.write.job import Outcome, WriteJob, retractions_among
from merganser.write.target import WriteTarget
from merganser.write.transaction import Transaction

UNAVAILABLE: Final = "_unavailable"
"""Column of rows that keep values of the row before them: `MARK`, null in whole rows."""
MARKS: Final = internal_name("unavailable")
"""The same column on its way between tasks: a table may have one called `_unavailable`."""
MARK: Final = s.StructType(
    [
        s.StructField("columns", s.ArrayType(s.StringType())),
        s.StructField("text", s.BinaryType()),
        s.StructField("key", s.BinaryType()),
        s.StructField("position", s.LongType()),
        s.StructField("reason", s.StringType()),
    ]
)
"""The columns whose values a row keeps; the record of the row; why it is refused, which parsing does not know yet."""
ARROW_MARK: Final = pa.struct(
    {
        "columns": pa.list_(pa.string()),
        "text": pa.binary(),
        "key": pa.binary(),
        "position": pa.int64(),
        "reason": pa.string(),
    }
)


def keeps_values(df: DataFrame, table: TableDef) -> bool:
    """Return whether rows of a DataFrame may keep values of stored rows: it comes from `ms.cdc.parse`."""
    return (
        UNAVAILABLE in df.columns
        and UNAVAILABLE not in table.schema.names
        and df.schema[UNAVAILABLE].dataType.simpleString() == MARK.simpleString()
    )


def check_call(target: WriteTarget) -> None:
    """Refuse to write rows that keep values where there are no stored rows to take them from.

    Raises:
        InvalidInputError: nothing was written.
    """
    if target.overwrites or target.columns is not None:
        what = "an overwrite replaces the stored rows" if target.overwrites else "columns= names some columns only"
        raise InvalidInputError(
            f"{target.action}: column '{UNAVAILABLE}' says that rows keep values of stored rows, and {what}. Nothing "
            "was written. Leave this argument out, or parse the records without unavailable='keep'.",
            table=target.table.name,
        )
    check_can_keep(target)


def marks(unavailable: pa.Array, record: pa.Table, reasons: pa.Array | None = None) -> pa.Array:
    """Return values of the column `_unavailable`.

    Args:
        unavailable: list<string>[n], the columns whose values rows keep; null in whole rows.
        record: columns text, key and position of n rows.
        reasons: string[n], why rows are refused; None: none is.
    """
    count = len(unavailable)
    parts = [
        unavailable.cast(ARROW_MARK.field("columns").type),
        *(_one(record.column(name)).cast(ARROW_MARK.field(name).type) for name in ("text", "key", "position")),
        pa.nulls(count, pa.string()) if reasons is None else reasons,
    ]
    whole = unavailable.is_null() if reasons is None else pc.and_(unavailable.is_null(), reasons.is_null())
    return pa.StructArray.from_arrays(parts, fields=list(ARROW_MARK), mask=whole)


@dataclass(frozen=True, slots=True)
class KeepTask:
    """Writes all rows that a task is given, those that need stored rows into a file aside.

    Attributes:
        names: of the columns; see `jobs.WriteTask`.
    """

    job: WriteJob
    names: tuple[str, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write all rows and yield the outcome, as `mapInArrow` wants it."""
        names = list(self.names)
        tables = [pa.Table.from_batches([batch]).rename_columns(names) for batch in batches]
        yield batch_of(run_apart(self.job, tables))


def run_apart(job: WriteJob, tables: Iterable[pa.Table]) -> Outcome:
    """Write rows, and put those aside that need stored rows. They are in memory together.

    Args:
        tables: rows as `WriteJob.run` takes them, with the column MARKS.
    """
    rows = pa.concat_tables(tables)
    if not rows.num_rows:
        return Outcome()
    if job.arrival is not None:
        order = np.argsort(rows.column(job.arrival).to_numpy(), kind="stable")
        rows = rows.take(pa.array(order)).drop_columns([job.arrival])
    found = rows.column(MARKS)
    rows, kinds = split_kinds(rows.drop_columns([MARKS]), job.kinds, table=job.target.table.name)
    kinds = row_kind.inserts(rows.num_rows) if kinds is None else kinds
    return write_apart(job, conformed(job.target, rows), kinds, found)


def write_apart(job: WriteJob, rows: pa.Table, kinds: pa.Array, found: pa.ChunkedArray) -> Outcome:
    """Write rows, and put those aside that need stored rows; otherwise as `run_apart`.

    Args:
        rows: in the types of the table.
        kinds: int8[n].
        found: marks of n rows.
    """
    table = job.target.table
    parts = split(table, rows, kinds, found)
    aside = [marked(parts.waiting), marked(parts.refused, parts.reasons)]
    whole = parts.whole
    if table.assigns_keys:
        aside.insert(0, marked(whole))
        whole = whole.filter(np.zeros(whole.rows.num_rows, np.bool_))
    outcome = Outcome()
    if whole.rows.num_rows:
        outcome = job.run_prepared([job.target.accepted(whole.rows, whole.kinds, in_task=True)])
    put = pa.concat_tables(aside)
    if outcome.refusal is not None or not put.num_rows:
        return outcome
    return replace(
        outcome,
        kept=put_aside(table, job.env, put),
        rows=outcome.rows + put.num_rows,
        retractions=outcome.retractions + retractions_among(put, put.column(VALUE_KIND.name).combine_chunks()),
    )


def split(table: TableDef, rows: pa.Table, kinds: pa.Array, found: pa.ChunkedArray) -> Apart:
    """Return rows in parts; see `edit.keeping.apart`.

    Args:
        found: marks of n rows. Rows that have a reason there are refused already.
    """
    mark = _one(found).cast(ARROW_MARK)
    given = Kept.of(rows, kinds, pa.chunked_array([pc.struct_field(mark, "columns")]), pa.table({MARKS: mark}))
    reasons = pc.struct_field(mark, "reason")
    refused = np.asarray(reasons.is_valid())
    if not refused.any():
        return apart(table, given)
    parts = apart(table, given.filter(~refused))
    return replace(
        parts,
        refused=parts.refused.joined(given.filter(refused)),
        reasons=pa.concat_arrays([parts.reasons, reasons.drop_null()]),
    )


def marked(part: Kept, reasons: pa.Array | None = None) -> pa.Table:
    """Return a part as rows with their kinds and marks."""
    record = pa.Table.from_struct_array(_one(part.letters.column(MARKS)))
    found = marks(part.unavailable(), record, reasons)
    return part.rows.append_column(VALUE_KIND.name, part.kinds).append_column(MARKS, found)


def conformed(target: WriteTarget, rows: pa.Table) -> pa.Table:
    """Return rows in the types of the table, where all but keys may be null still.

    Columns that the rows lack are null, if rows of the table may bring new ones (`write.merge-schema`).
    """
    schema, fills = target.table.schema, target.table.options.get(w.MERGE_SCHEMA)
    fields = [
        field if field.name in schema.primary_keys else replace(field, type=field.type.with_nullable(True))
        for field in schema.user_fields
    ]
    keys = schema.primary_keys
    rows = fill_missing(rows, fields) if fills else rows
    return conform(
        rows,
        fields,
        action=target.action,
        not_null_names=keys,
        named_by=keys,
        fills=fills,
        placing=schema.placing_columns,
    )


def commit(
    transaction: Transaction,
    env: Env,
    messages: Sequence[CommitMessage],
    folders: Sequence[str],
    letters: DeadLetters,
) -> Snapshot | None:
    """Fill the rows that tasks put aside, write them, and commit them with the files of the tasks.

    Args:
        messages: what the tasks wrote.
        folders: what they put aside.
        letters: takes the rows that are refused.

    Raises:
        MerganserError: as for `Transaction.finish`; nothing is visible, and neither files nor folders are left.
    """
    table = transaction.table
    try:
        rows = pa.concat_tables([rows_aside(env, folder) for folder in folders])
        kinds, found = rows.column(VALUE_KIND.name), rows.column(MARKS)
        rows = rows.drop_columns([VALUE_KIND.name, MARKS])
        parts = split(table, rows, _one(kinds), found)
        letters.bury(_rejected(parts.refused, parts.reasons))
        keeping = Keeping(
            table,
            env,
            parts.waiting,
            lambda refused, reasons: letters.bury(_rejected(refused, reasons), of=" (stored rows)"),
            transaction.target.action,
        )
        return keeping.commit(lambda _: transaction, messages, others=parts.whole)
    finally:
        drop_held(env, folders)


def _rejected(part: Kept, reasons: pa.Array) -> pa.Table:
    """Return refused rows as bad records; see `cdc.Parsed`."""
    mark = pa.Table.from_struct_array(_one(part.letters.column(MARKS)))
    columns = {"record": mark.column("position"), "reason": reasons}
    return pa.table({**columns, "text": mark.column("text"), "key": mark.column("key")})


def _one(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    return pa.concat_arrays(found.chunks) if isinstance(found, pa.ChunkedArray) else found

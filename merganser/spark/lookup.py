"""`ms.lookup_join`: rows of a DataFrame, each with the row of its key in a table.

    batch    the driver chooses a snapshot; all tasks look at it
    stream   the time of each micro-batch chooses it: `current_timestamp` is one value per micro-batch, and the query's
             checkpoint keeps it. So all tasks of a micro-batch look at one snapshot, and a micro-batch that is repeated
             looks at the same one.

A Python process of Spark keeps its handle from task to task and from micro-batch to micro-batch. It reads what was
committed in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import StructField, StructType

from merganser.errors import ExpiredError, InvalidInputError, NotFoundError, check_flags
from merganser.handle.table import Table
from merganser.lookup.keys import beside_key, check_columns, check_has_key, check_types, keys_that_fit
from merganser.lookup.lookup import Lookup
from merganser.meta.followed import as_of
from merganser.meta.snapshot import Snapshot
from merganser.meta.snapshots import SnapshotStore
from merganser.meta.table_def import TableDef
from merganser.scan.scan import chosen_columns
from merganser.scan.time_travel import resolve
from merganser.schema.internal_names import internal_name
from merganser.spark.access import check_frame, opened
from merganser.spark.bucketing import one_writer_each, quoted
from merganser.spark.jobs import in_tasks
from merganser.spark.names import Spelling, setting_of, spelling_of
from merganser.spark.pythons import warn_of_other_python
from merganser.spark.types import arrow_schema_of, spark_batches, spark_schema
from merganser.spark.workers import in_query
from merganser.storage.env import Env
from merganser.storage.process import process_env
from merganser.storage.protocol import Storage
from merganser.values import dataclass

_HOWS: Final = ("left", "inner")
_TIME: Final = internal_name("time")


def lookup_join(
    df: DataFrame,
    table: Table | str,
    on: str | Sequence[str] | Mapping[str, str],
    how: str = "left",
    columns: Sequence[str] | None = None,
    snapshot: int | None = None,
    shuffle: bool = False,
    tag: str | None = None,
    timestamp: datetime | str | None = None,
) -> DataFrame:
    """Return the rows of a DataFrame, batch or stream, each with columns of the table's row of its key.

    Args:
        df: the rows.
        table: a table with a primary key, or its path.
        on: the columns of `df` that hold the key: a name, a list of names, or {column of df: column of the key}. They
            are all columns of the primary key, and the partition columns that it lacks. If keys move between
            partitions, these may be left out. A row with a null there, or with a value that the type of the table does
            not hold, has no partner.
        how: "left": a row without a partner gets nulls. "inner": it is left out.
        columns: the columns of the table to add; None: all but the key.
        snapshot, tag, timestamp: the state to look at, as for `Table.lookup`; text of a timestamp is in the time zone
            of the session. None: of a batch, the newest snapshot now; of a stream, the newest one when each micro-batch
            begins. If the table was opened with an option such as 'scan.tag-name', the option chooses.
        shuffle: send rows to tasks by bucket first, so that each file is opened by one task. It pays off for DataFrames
            of many rows and tables of many large buckets.

    Raises:
        InvalidInputError: `on` is not the key, a type does not fit, or a column is in `df` twice, or would be in the
            result; or two states are given, or the time is invalid. Nothing ran.
        NotFoundError, ExpiredError: there is no such snapshot, tag or time, or no longer.
    """
    found = opened(table)
    definition = found.definition
    action = f"cannot join with '{found.name}'"
    check_flags(action, shuffle=shuffle)
    check_frame(df, action, "Table.lookup takes keys that lie in this process.")
    state = found.looked_at(snapshot, tag, timestamp, setting_of(df.sparkSession, found).tzinfo)
    if state is not None:
        definition = as_of(definition, found.env, state.schema_id)
    check_has_key(definition, action)
    if how not in _HOWS:
        raise InvalidInputError(f"{action}: how is {how!r:.50}. Give 'left' or 'inner'.")
    names = spelling_of(df.sparkSession, found)
    own = names.alike(df.columns)
    for name, same in zip(df.columns, own, strict=True):
        if own.count(same) > 1:
            raise InvalidInputError(
                f"{action}: the DataFrame has {own.count(same)} columns with the name '{name}'. Rename them.",
                column=name,
            )
    of_key = _pairs(on, action)
    given = names.names(list(of_key), df.columns) or ()
    key = names.names(list(of_key.values())) or ()
    alone = definition.moves_keys and set(key) == set(definition.schema.primary_keys)
    wanted = definition.schema.primary_keys if alone else definition.row_key
    check_columns(key, wanted, action, beside=beside_key(definition, wanted))
    for name in given:
        if name not in df.columns:
            raise InvalidInputError(f"{action}: the DataFrame has no column '{name}'.", column=name)
    columns = names.names(columns)
    if columns is None:
        columns = [field.name for field in definition.schema.user_fields if field.name not in key]
    fields = chosen_columns(definition, columns)
    twice = [field.name for field in fields if names.alike([field.name])[0] in own]
    if twice:
        raise InvalidInputError(
            f"{action}: column '{twice[0]}' is in the DataFrame and in the table. Give columns=, or rename it in the "
            "DataFrame.",
            column=twice[0],
        )
    source = arrow_schema_of(df.schema)
    types = [source.field(name).type for name in given]
    check_types(definition, dict(zip(key, types, strict=True)), action)
    added = spark_schema(definition, fields)
    schema = StructType(
        [*df.schema.fields, *(StructField(field.name, field.dataType, True, field.metadata) for field in added.fields)]
    )
    timed = state is None and df.isStreaming
    if state is None and not timed:
        state = found.latest_snapshot()
    if shuffle:
        df = _by_bucket(df, definition, dict(zip(given, key, strict=True)), names, action)
    positions = tuple(df.columns.index(name) for name in given)
    if timed:
        df = df.withColumn(_TIME, f.current_timestamp())
    plain = df.toDF(*(f"c{i}" for i in range(len(df.columns))))
    job = LookupJoin(
        definition,
        found.env.storage,
        state,
        timed,
        positions,
        tuple(key),
        tuple(field.name for field in fields),
        how == "inner",
        arrow_schema_of(schema),
    )
    warn_of_other_python(df.sparkSession)
    return in_tasks(plain, job, schema)


def _pairs(on: Any, action: str) -> dict[str, str]:
    """Return the columns of the key by column of the DataFrame."""
    if isinstance(on, str):
        return {on: on}
    if isinstance(on, Mapping) and all(isinstance(name, str) for pair in on.items() for name in pair):
        return dict(on)
    if isinstance(on, Sequence) and all(isinstance(name, str) for name in on):
        return {name: name for name in on}
    raise InvalidInputError(
        f"{action}: on is {on!r:.80}. Give a column, a list of columns, or {{column of the DataFrame: column of the "
        "key}."
    )


def _by_bucket(df: DataFrame, table: TableDef, pairs: Mapping[str, str], spelling: Spelling, action: str) -> DataFrame:
    """Return the frame shuffled by bucket."""
    names = df.columns
    renamed = [pairs.get(name, name) for name in names]
    alike = spelling.alike(renamed)
    if len(set(alike)) < len(alike):
        column = next(name for name, same in zip(renamed, alike, strict=True) if alike.count(same) > 1)
        raise InvalidInputError(
            f"{action} by bucket: the DataFrame has a column '{column}', which is not the one that holds the key. "
            "Rename it, or leave shuffle=True out.",
            column=column,
        )
    return one_writer_each(df.toDF(*renamed), table).select(*(quoted(name) for name in renamed)).toDF(*names)


@dataclass(frozen=True, slots=True)
class LookupJoin:
    """Joins the batches of a task with the rows of a table.

    Attributes:
        table: the table.
        storage: where its files lie.
        snapshot: the snapshot to look at; None: the table has none.
        timed: look at the snapshot of the time in the last column instead.
        positions: of the columns that hold the key.
        key: the names of these columns in the table.
        columns: of the table, to add.
        inner: leave rows without a partner out.
        schema: of the result.
    """

    table: TableDef
    storage: Storage
    snapshot: Snapshot | None
    timed: bool
    positions: tuple[int, ...]
    key: tuple[str, ...]
    columns: tuple[str, ...]
    inner: bool
    schema: pa.Schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the joined rows, as `mapInArrow` wants them."""
        for batch in batches:
            rows = pa.Table.from_batches([batch])
            snapshot = self.snapshot
            if self.timed:
                moment = rows.column(rows.num_columns - 1)[0].as_py() if rows.num_rows else None
                snapshot = None if moment is None else _snapshot_at(self.table, self.storage, moment)
                rows = rows.select(range(rows.num_columns - 1))
            if rows.num_rows:
                with in_query() if self.timed else nullcontext():
                    joined = self._joined(rows, snapshot)
                yield from spark_batches(joined, self.schema)

    def _joined(self, rows: pa.Table, snapshot: Snapshot | None) -> pa.Table:
        keys = pa.table([rows.column(i) for i in self.positions], names=list(self.key))
        asked = keys_that_fit(self.table, keys)
        if len(asked) < rows.num_rows:
            keys = keys.take(pa.array(asked))
        handle = _handle(self.table, self.storage, snapshot)
        if handle is None:
            which, found = np.empty(0, np.int64), None
        else:
            which, found = handle.found(keys, self.columns)
            which = asked[which]
        if self.inner:
            rows = rows.take(pa.array(which))
            partners = found
        elif found is not None and len(which) == rows.num_rows:
            partners = found
        elif found is not None:
            place = np.zeros(rows.num_rows, np.int64)
            missing = np.ones(rows.num_rows, np.bool_)
            place[which], missing[which] = np.arange(len(which)), False
            partners = found.take(pa.array(place, mask=missing))
        else:
            partners = None
        added = self.schema.names[len(self.schema) - len(self.columns) :]
        columns = list(rows.columns)
        for i in range(len(added)):
            if partners is not None:
                columns.append(partners.column(i))
            else:
                kind = self.schema.field(len(rows.columns) + i).type
                columns.append(pa.chunked_array([pa.nulls(rows.num_rows, kind)]))
        return pa.table(columns, names=self.schema.names)


def _handle(table: TableDef, storage: Storage, snapshot: Snapshot | None) -> Lookup | None:
    """Return the handle of this process at a snapshot; None: the table has no rows there.

    Spark gives a process one task after the other. So the handle may move from snapshot to snapshot.
    """
    if snapshot is None:
        return None
    env = process_env(Env(storage))
    place = ("lookup join", table.paths.metadata_root, table.schema.id, tuple(sorted(table.options.items())))
    known: Lookup | None = env.cache.get(place)
    if known is None or not known.serves(table):
        known = Lookup(table, env)
    known.move(snapshot)
    env.cache.put(place, known, known.weight)
    return known


def _snapshot_at(table: TableDef, storage: Storage, moment: datetime) -> Snapshot | None:
    """Return the newest snapshot at a time; None: there was none."""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    try:
        return resolve(SnapshotStore(table.paths, process_env(Env(storage)), table.name), timestamp=moment)
    except NotFoundError:
        return None
    except ExpiredError as error:
        raise ExpiredError(
            f"cannot join with '{table.name}': the snapshot that was the newest when this micro-batch began, at "
            f"{moment}, has expired. To look at the newest one now, remove the newest file of the folder 'offsets' in "
            "the checkpoint of the query and start the query again.",
            table=table.name,
        ) from error

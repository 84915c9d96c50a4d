"""The stream source: `spark.readStream.format("merganser")` and `ms.read_stream`.

Spark keeps one process per query that answers with offsets and plans, and asks tasks to read what was planned. An
offset is a `Position` as JSON, so the rows of a batch are a pure function of its two offsets, and a batch that Spark
repeats after a crash has the same rows. When Spark asks for the offset after a batch, the batch is done; then the
consumer, if there is one, moves on. Spark 4.0 says so only when it has planned the next batch.

Rows of a bucket lie in one task of a batch, in their order.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from merganser.errors import InvalidInputError, MerganserError
from merganser.expr.predicate import Predicate
from merganser.expr.setting import Setting
from merganser.expr.text import to_predicate
from merganser.handle.system_table import TableView
from merganser.handle.table import Table
from merganser.meta.table_def import TableDef
from merganser.options import read as r
from merganser.options.option import Options
from merganser.rules.starts import check_scan_options
from merganser.scan.scan import chosen_columns
from merganser.scan.split import What
from merganser.scan.views import checked_columns, form_of
from merganser.schema import types as t
from merganser.schema.table_schema import CHANGE_KIND
from merganser.spark.names import setting_of, spelling_of
from merganser.spark.pythons import warn_of_other_python
from merganser.spark.session import TASKS_PER_CORE, cores, opened
from merganser.spark.splits import balanced, weight_of
from merganser.spark.types import arrow_schema_of, spark_batches, spark_schema
from merganser.storage.env import Env
from merganser.storage.protocol import Storage
from merganser.stream.batches import NOWHERE, Limits, Position, TableBatches, Turn, check_batches, position_of
from merganser.stream.starts import check_start

try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles, SupportsTriggerAvailableNow
except ImportError:  # Spark 4.0 and 4.1 know no limits of reads

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Stands for the class of newer versions of Spark."""

    ReadAllAvailable = ReadMaxFiles = None

_LIMITS: Final = {
    option.key.removeprefix("read.stream.").lower(): option.key
    for option in (
        r.STREAM_MAX_FILES,
        r.STREAM_MAX_ROWS,
        r.STREAM_MAX_BYTES,
        r.STREAM_MIN_ROWS,
        r.STREAM_MAX_DELAY,
    )
}
"""Short names of options that limit batches, in lower case, as other sources of Spark have them."""
_LOOK_SECONDS: Final = 0.1
"""Spark asks an idle query many times a second; storage is looked at so often unless the table says how often."""


@dataclass
class TurnsPartition(InputPartition):  # type: ignore[misc]
    """The share of one task in a batch."""

    turns: tuple[Turn, ...]
    storage: Storage
    schema: pa.Schema


@dataclass(frozen=True)
class StreamRequest:
    """What a stream reads; pickles.

    Attributes:
        table, env: the table, whose options say where to start.
        what, columns, where: the form of the rows; see `TableBatches`.
        limits: of a batch.
        parallelism: tasks at a time.
    """

    table: TableDef
    env: Env
    what: What
    columns: tuple[t.Field, ...]
    where: Predicate | None
    limits: Limits
    parallelism: int

    @property
    def schema(self) -> StructType:
        """The columns as Spark has them."""
        return spark_schema(self.table, self.columns)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Reads batches of a table; see the module.

    Args:
        request: what is read.
        schema: of the rows, as Spark declares it.
    """

    def __init__(self, request: StreamRequest, schema: pa.Schema) -> None:
        table = request.table
        self._table = table
        self._env = request.env
        self._schema = schema
        self._limits = request.limits
        self._tasks_max = TASKS_PER_CORE * request.parallelism
        self._batches = TableBatches(
            table,
            request.env,
            what=request.what,
            columns=request.columns,
            where=request.where,
            limits=request.limits,
        )
        self._head: int | None = None
        self._planned: Position | None = None  # Spark 4.0 does not say where a batch begins
        self._looked = float("-inf")
        self._end: Position | None = None
        self._lag: dict[str, Any] | None = None
        self._lag_of: Position | None = None
        self._lag_looked = float("-inf")
        given = table.options.is_set(r.CONTINUOUS_DISCOVERY_INTERVAL)
        interval = table.options.get(r.CONTINUOUS_DISCOVERY_INTERVAL).total_seconds()
        self._look_seconds = interval if given else _LOOK_SECONDS

    def __getstate__(self) -> dict[str, Any]:
        """Give tasks nothing: partitions hold all that they need."""
        return {}

    def initialOffset(self) -> dict[str, Any]:
        return dict(NOWHERE)

    def getDefaultReadLimit(self) -> Any:
        """Return a limit, so that Spark lets the source cut batches; the limits of the options are this source's."""
        return ReadAllAvailable() if self._limits == Limits() else ReadMaxFiles(self._limits.files or (1 << 31) - 1)

    def prepareForTriggerAvailableNow(self) -> None:
        self._head = self._batches.head()

    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:
        """Return where the next batch ends; `start` if there is nothing to read."""
        found = self._latest(start, limit)
        self._end = position_of(found, self._table.name)
        return found

    def _latest(self, start: dict[str, Any] | None, limit: Any) -> dict[str, Any]:
        limited = ReadAllAvailable is None or not isinstance(limit, ReadAllAvailable)
        known = self._planned if start is None else position_of(start, self._table.name)
        if known is None:  # where the stream begins is fixed by the first batch, even if that has no rows
            return self._batches.advance(self._batches.start(), limited=limited, head=self._head).to_json()
        if start is not None:  # Spark plans from there, so what lies before has been done
            self._batches.keep(known)
        stays = known.to_json() if start is None else start
        now = self._env.seconds()
        if known.splits is None and self._head is None and now - self._looked < self._look_seconds:
            return stays
        end = self._batches.advance(known, limited=limited, head=self._head)
        if end == known:
            self._looked = now
            return stays
        return end.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the newest snapshot, and how far the end of the batch is behind it; `lastProgress` shows it.

        Spark asks after each `latestOffset`. Storage is looked at when there is a batch, and no more often than that
        method does otherwise. A query does not fail because nobody knows how far it is behind.
        """
        end, now = self._end, self._env.seconds()
        if end is not None and (end != self._lag_of or now - self._lag_looked >= self._look_seconds):
            with contextlib.suppress(MerganserError):
                lag = self._batches.lag(end)
                self._lag = {"snapshot": lag.newest, "lag_snapshots": lag.snapshots, "lag_seconds": lag.seconds}
            self._lag_of, self._lag_looked = end, now
        return self._lag

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        name = self._table.name
        begin, last = position_of(start, name), position_of(end, name)
        if last is None or begin == last:
            self._planned = last or self._planned
            return []
        self._planned = last
        turns = self._batches.turns(begin, last)
        storage, schema = self._env.storage, self._schema
        weights = [sum(weight_of(part.size_bytes, part.files) for part in turn) for turn in turns]
        packs = balanced(weights, tasks_max=self._tasks_max)
        return [TurnsPartition(tuple(turns[i] for i in pack), storage, schema) for pack in packs]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, TurnsPartition):
            for turn in partition.turns:
                for part in turn:
                    for rows in part.read(partition.storage):
                        yield from spark_batches(rows, partition.schema)

    def commit(self, end: dict[str, Any]) -> None:
        position = position_of(end, self._table.name)
        if position is not None:
            self._batches.keep(position)


def long_names(options: Mapping[str, str]) -> dict[str, str]:
    """Return options with the whole names of those that limit batches."""
    return {_LIMITS.get(key.lower().removeprefix("read.stream."), key): value for key, value in options.items()}


def _limits_of(options: Options, action: str) -> Limits:
    """Return the limits of a batch that the options of a table set.

    Raises:
        InvalidInputError: rows are waited for without a delay, or the other way round.
    """
    least, delay = options.get(r.STREAM_MIN_ROWS), options.get(r.STREAM_MAX_DELAY)
    if (least is None) != (delay is None):
        raise InvalidInputError(
            f"{action}: 'minRowsPerTrigger' and 'maxTriggerDelayMs' go together: a batch waits for so many rows, and "
            "no longer than so many milliseconds. Nothing was read. Give both, or none.",
            option=r.STREAM_MIN_ROWS.key,
        )
    return Limits(
        options.get(r.STREAM_MAX_FILES),
        options.get(r.STREAM_MAX_ROWS),
        options.get(r.STREAM_MAX_BYTES),
        least,
        None if delay is None else timedelta(milliseconds=delay),
    )


class RequestSource(DataSource):  # type: ignore[misc]
    """The source of one `ms.read_stream`: it holds the table itself, and no option that Spark would show."""

    def __init__(self, request: StreamRequest) -> None:
        super().__init__({})
        self._request = request

    def schema(self) -> StructType:
        return self._request.schema

    def streamReader(self, schema: StructType) -> StreamReader:
        return StreamReader(self._request, arrow_schema_of(schema))


def read_stream(
    spark: SparkSession,
    table: Table | TableView | str,
    columns: Sequence[str] | None = None,
    where: str | Any | None = None,
    kinds: bool = True,
    **options: Any,
) -> DataFrame:
    """Return a streaming DataFrame that follows a table: first a state, then what each snapshot publishes.

    Args:
        spark: the session whose tasks read.
        table: a table, or its path; also a view such as `orders$audit_log`.
        columns: names of the columns to return after `_row_kind`; None: all. Columns that are added to the table later
            appear when the query starts again.
        where: as for `ms.read`; it may look at `_row_kind`.
        kinds: return the kinds of the rows in `_row_kind`. False: return rows of kind +I and +U alone, without kinds.
        options: where to start (`scan.mode` and its kin, `consumer-id`), how much a batch reads
            (`maxFilesPerTrigger`, `maxRowsPerTrigger`, `maxBytesPerTrigger`, `minRowsPerTrigger` together with
            `maxTriggerDelayMs`), and other options of the table for this reader.

    Raises:
        InvalidInputError: a column, the filter or an option is invalid.
        NotFoundError: the table does not exist.
        UnsupportedError: the table needs a feature that this version does not have.
    """
    found = table if isinstance(table, TableView) else opened(table)
    base = found.base if isinstance(found, TableView) else found
    base = base.with_options(long_names({key: str(value) for key, value in options.items()}))
    request = request_of(
        base,
        found.view_name if isinstance(found, TableView) else None,
        columns=spelling_of(spark, base).names(columns),
        where=where,
        setting=setting_of(spark, base),
        kinds=kinds,
        parallelism=cores(spark),
    )
    warn_of_other_python(spark)
    name = f"merganser-{base.env.new_id()[:12]}"

    class Registered(RequestSource):
        """The source in this session."""

        def __new__(cls, options: dict[str, str]) -> RequestSource:  # type: ignore[misc]
            return RequestSource(request)  # the source itself, since this class cannot be pickled by its name

        @classmethod
        def name(cls) -> str:
            return name

    spark.dataSource.register(Registered)
    return spark.readStream.format(name).load()


def request_of(
    table: Table,
    view: str | None,
    *,
    columns: Sequence[str] | None,
    where: Any,
    setting: Setting,
    kinds: bool,
    parallelism: int,
) -> StreamRequest:
    """Return what a stream of a table, or of a view of it, reads.

    Args:
        columns: names, without that of the kinds; None: all.
        kinds: whether rows have kinds, if it is no view.

    Raises:
        InvalidInputError: a column, the filter or an option is invalid, or the view shows no changes.
    """
    definition = table.definition
    action = f"cannot follow '{definition.name}'"
    what = What.CHANGED if kinds else What.MERGED
    if view is not None:
        form = form_of(view, definition)
        if form is None:
            raise InvalidInputError(
                f"{action}: '${view}' shows what full compactions left, and no changes. Follow the table, or its "
                "'$audit_log'."
            )
        what = form
    check_scan_options(definition.options, what=action)
    fields = checked_columns(what, definition)
    if columns is not None and what is What.CHANGED:
        columns = [CHANGE_KIND.name, *(name for name in columns if name != CHANGE_KIND.name)]
    chosen = chosen_columns(definition, columns, fields)
    request = StreamRequest(
        definition,
        table.env,
        what,
        chosen,
        to_predicate(where, fields, setting=setting),
        _limits_of(definition.options, action),
        parallelism,
    )
    check_start(definition, what, action)
    check_batches(definition, action)
    return request

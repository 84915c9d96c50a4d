"""What the processes of a stream run to read it: offsets, plans and tasks. They import nothing else.

Spark keeps one process per query that answers with offsets and plans, and asks tasks to read what was planned. An
offset is a `Position` as JSON, so the rows of a batch are a pure function of its two offsets, and a batch that Spark
repeats after a crash has the same rows. When Spark asks for the offset after a batch, the batch is done; then the
consumer, if there is one, moves on. Spark 4.0 says so only when it has planned the next batch.

Rows of a bucket lie in one task of a batch, in their order.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from merganser.errors import MerganserError
from merganser.expr.predicate import Predicate
from merganser.meta.table_def import TableDef
from merganser.options import read as r
from merganser.options import write as w
from merganser.scan.split import What
from merganser.schema import types as t
from merganser.spark.types import arrow_schema_of, spark_batches, spark_schema
from merganser.spark.workers import in_query, settle
from merganser.storage.env import Env
from merganser.stream.batches import NOWHERE, Limits, Position, TableBatches, Turn
from merganser.stream.line import Needed
from merganser.values import dataclass

try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles, SupportsTriggerAvailableNow
except ImportError:  # Spark 4.0 and 4.1 know no limits of reads

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Stands for the class of newer versions of Spark."""

    ReadAllAvailable = ReadMaxFiles = None

_LOOK_SECONDS: Final = 0.1
"""Spark asks an idle query many times a second; storage is looked at so often unless the table says how often."""


@dataclass
class RowsPartition(InputPartition, ABC):  # type: ignore[misc]
    """The share of one task in a batch.

    Attributes:
        schema: of the rows, as Spark declares it.
    """

    schema: pa.Schema

    @abstractmethod
    def rows(self) -> Iterator[pa.Table]:
        """Yield the rows, in order, in our types."""


@dataclass
class TurnsPartition(RowsPartition):
    """The share of one task in a batch of a table."""

    turns: tuple[Turn, ...]
    needed: Needed

    def rows(self) -> Iterator[pa.Table]:
        """Yield the rows, those of a place in their order."""
        with self.needed.unless_expired():
            for turn in self.turns:
                for part in turn:
                    yield from part.read(self.needed.env.storage)


@dataclass(frozen=True)
class StreamRequest:
    """What a stream reads; pickles.

    Attributes:
        table, env: the table, whose options say where to start.
        what, columns, where: the form of the rows; see `TableBatches`.
        limits: of a batch.
        tasks_max: of a batch.
    """

    table: TableDef
    env: Env
    what: What
    columns: tuple[t.Field, ...]
    where: Predicate | None
    limits: Limits
    tasks_max: int

    @property
    def schema(self) -> StructType:
        """The columns as Spark has them."""
        return spark_schema(self.table, self.columns)

    def batches(self) -> TableBatches:
        """Return the batches of the table."""
        return TableBatches(
            self.table,
            self.env,
            what=self.what,
            columns=self.columns,
            where=self.where,
            limits=self.limits,
            listens=True,
        )

    def planned(self, batches: Any, start: Position | None, end: Position, schema: pa.Schema) -> list[InputPartition]:
        """Return the shares of the tasks in what lies between two positions.

        Args:
            batches: of `batches`.
            schema: of the rows, as Spark declares it.
        """
        from merganser.spark.splits import balanced, weight_of

        turns: tuple[Turn, ...] = batches.turns(start, end)
        weights = [sum(weight_of(part.size_bytes, part.files) for part in turn) for turn in turns]
        packs = balanced(weights, tasks_max=self.tasks_max)
        needed: Needed = batches.needed(start, end)
        return [TurnsPartition(schema, tuple(turns[i] for i in pack), needed) for pack in packs]


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
        self._request = request
        self._batches = request.batches()
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
        self._end = self._batches.position(found)
        return found

    def _latest(self, start: dict[str, Any] | None, limit: Any) -> dict[str, Any]:
        limited = ReadAllAvailable is None or not isinstance(limit, ReadAllAvailable)
        known = self._planned if start is None else self._batches.position(start)
        if known is None:  # where the stream begins is fixed by the first batch, even if that has no rows
            found = self._batches.advance(self._batches.start(), limited=limited, head=self._head)
            return self._batches.value(found)
        if start is not None:  # Spark plans from there, so what lies before has been done
            self._batches.keep(known)
        stays = self._batches.value(known) if start is None else start
        now = self._env.seconds()
        if known.splits is None and self._head is None:
            rest = min(self._look_seconds, _LOOK_SECONDS) if self._batches.listens() else self._look_seconds
            if now - self._looked < rest and not self._batches.hears:
                return stays
        end = self._batches.advance(known, limited=limited, head=self._head)
        if end == known:
            self._looked = now
            return stays
        return self._batches.value(end)

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
                if self._table.options.get(w.LOG_SYSTEM) != "none" or self._batches.heard:
                    self._lag["log_snapshots"] = self._batches.heard
            self._lag_of, self._lag_looked = end, now
        return self._lag

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        begin, last = self._batches.position(start), self._batches.position(end)
        if last is None or begin == last:
            self._planned = last or self._planned
            return []
        self._planned = last
        return self._request.planned(self._batches, begin, last, self._schema)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # For an empty plan Spark may run a task without a partition of this source.
        if isinstance(partition, RowsPartition):
            with in_query():
                for rows in partition.rows():
                    yield from spark_batches(rows, partition.schema)
            settle()

    def commit(self, end: dict[str, Any]) -> None:
        position = self._batches.position(end)
        if position is not None:
            self._batches.keep(position)

    def stop(self) -> None:
        self._batches.close()


class RequestSource(DataSource):  # type: ignore[misc]
    """The source of one `ms.read_stream`: it holds the table itself, and no option that Spark would show."""

    def __init__(self, request: StreamRequest) -> None:
        super().__init__({})
        self._request = request

    def schema(self) -> StructType:
        return self._request.schema

    def streamReader(self, schema: StructType) -> StreamReader:
        return StreamReader(self._request, arrow_schema_of(schema))

"""The sink of a stream as Spark hands it from process to process: of the data source, and of queries over Connect.

Spark pickles the sink of a query, or its writer, for a process that asks for the writer of each batch, for one that
plans the write, for the tasks, and for one that commits. Most of them do nothing with what is written. So it is held as
bytes, and so are the outcomes of tasks: the process that commits makes objects of them, and imports what commits.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark import TaskContext, cloudpickle
from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from merganser.spark.workers import settle
from merganser.values import dataclass

if TYPE_CHECKING:
    from merganser.spark.stream_sink import BatchRequest
    from merganser.write.job import Outcome

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
except ImportError:  # Spark 4.0 hands over rows one by one
    DataSourceStreamArrowWriter = None

QUERY_ID: Final = "sql.streaming.queryId"
_ROWS_AT_ONCE: Final = 1 << 16


@dataclass
class Written(WriterCommitMessage):  # type: ignore[misc]
    """What a task wrote for the query `query`: pickled outcomes."""

    query: str
    outcomes: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Held:
    """A pickled request."""

    request: bytes

    @classmethod
    def of(cls, request: BatchRequest) -> Held:
        """Return a request as bytes."""
        return Held(cloudpickle.dumps(request))

    def loaded(self) -> BatchRequest:
        """Return the request."""
        found: BatchRequest = pickle.loads(self.request)
        return found


class _Sink:
    """What all stream writers do; tasks write, one process commits.

    Args:
        held: what is written.
        schema: of the rows as they come.
        rows: the Arrow schema of the rows with the names of the table at every depth; None: the rows are outcomes of
            tasks that have written the files.
    """

    def __init__(self, held: Held, schema: StructType, rows: pa.Schema | None) -> None:
        self._held = held
        self._schema = schema
        self._rows = rows

    def written(self, tables: Iterator[pa.Table]) -> Written:
        context = TaskContext.get()
        assert context is not None
        if self._rows is None:
            outcomes = tuple(bytes(value) for rows in tables for value in rows.column(0).to_pylist())
        else:
            from merganser.spark.stream_sink import outcome_of

            skipped = context.partitionId() * (1 << 32)
            outcomes = (pickle.dumps(outcome_of(self._held.loaded(), tables, self._rows, skipped=skipped)),)
        settle()
        return Written(context.getLocalProperty(QUERY_ID), outcomes)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Make a micro-batch one commit, unless it is one already."""
        written = [message for message in messages if isinstance(message, Written)]
        if written:
            self._held.loaded().commit(written[0].query, batchId, _outcomes(written))
        settle()

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Remove the files that tasks wrote, if some tasks failed; else a snapshot may name them."""
        if None in messages:
            written = [message for message in messages if isinstance(message, Written)]
            self._held.loaded().remove(_outcomes(written))


def _outcomes(written: Sequence[Written]) -> list[Outcome]:
    return [pickle.loads(outcome) for message in written for outcome in message.outcomes]


class RowSink(_Sink, DataSourceStreamWriter):  # type: ignore[misc]
    """A sink of Spark 4.0, which hands over rows one by one."""

    def write(self, iterator: Iterator[Any]) -> Written:
        return self.written(self._tables(iterator))

    def _tables(self, rows: Iterator[Any]) -> Iterator[pa.Table]:
        from merganser.spark.types import arrow_schema_of

        schema = arrow_schema_of(self._schema)
        held: list[dict[str, Any]] = []
        for row in rows:
            held.append(dict(zip(schema.names, row.asDict(recursive=True).values(), strict=True)))
            if len(held) == _ROWS_AT_ONCE:
                yield pa.Table.from_pylist(held, schema)
                held = []
        if held:
            yield pa.Table.from_pylist(held, schema)


if DataSourceStreamArrowWriter is not None:

    class ArrowSink(_Sink, DataSourceStreamArrowWriter):  # type: ignore[misc]
        """A sink of newer versions of Spark."""

        def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
            return self.written(pa.Table.from_batches([batch]) for batch in iterator)


def sink_of(held: Held, schema: StructType, rows: pa.Schema | None = None) -> DataSourceStreamWriter:
    """Return the writer of a stream for this version of Spark; arguments as of `_Sink`."""
    kind = RowSink if DataSourceStreamArrowWriter is None else ArrowSink
    return kind(held, schema, rows)


class RequestSink(DataSource):  # type: ignore[misc]
    """The sink of one query: it holds the tables themselves, and no option that Spark would show."""

    def __init__(self, held: Held, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        self._held = held

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        settle()  # Spark asks a process for the writer of each batch
        return sink_of(self._held, schema)


def sink_class(sink: str, request: BatchRequest) -> type[DataSource]:
    """Return the sink of one query as a class to register, since Spark knows sinks by their classes.

    Args:
        sink: a name that no other sink of the session has.
    """
    held = Held.of(request)

    class Registered(RequestSink):
        """The sink in this session."""

        def __new__(cls, options: dict[str, str]) -> RequestSink:  # type: ignore[misc]
            return RequestSink(held, options)  # the sink itself, since this class cannot be pickled by its name

        @classmethod
        def name(cls) -> str:
            return sink

    return Registered

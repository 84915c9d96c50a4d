"""The stream sink: `ms.write_stream` and `df.writeStream.format("merganser")`.

    Spark    [rows + the task they come from] -> shuffle: every bucket has one writer -> files, durable
    commit   the messages of a micro-batch become one commit of the user "query id", identifier "batch id"; those of
             dead letters become one of their table before that

Spark keeps the query id in the checkpoint and shows it to tasks. Spark repeats a batch after a crash under the same two
ids, and merganser applies a commit once. A query with a new checkpoint has a new id, so none of its batches is taken
for a repeated one. Files of an attempt that failed stay behind; no snapshot names them.

`ms.write_stream` commits in the process that starts the query: Spark calls a function there with the outcomes of each
batch. A server of Spark Connect cannot do that: it gets a sink for its own Python processes, as the data source has
one (`sink_writer`).

A task that refuses a row raises the error, since Spark shows no text of errors of commits in processes of its own.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import pickle
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from merganser.commit.log import batch_name
from merganser.commit.message import CommitMessage
from merganser.errors import ConflictError, InvalidInputError, MerganserError
from merganser.handle.table import Table
from merganser.lsm.abandoned import remove_uncommitted
from merganser.meta.followed import for_writing, look
from merganser.meta.snapshot import BATCH_IDENTIFIER, Snapshot
from merganser.meta.table_def import TableDef
from merganser.options import upkeep as u
from merganser.options import write as w
from merganser.options.registry import arguments_of, check_asked, closest, did_you_mean
from merganser.schema.inner_names import with_names
from merganser.schema.internal_names import internal_name
from merganser.spark.access import check_frame, is_connect, opened
from merganser.spark.bucketing import assigners_on, one_writer_each, quoted
from merganser.spark.checkpoint import Checkpoint, watermark_of
from merganser.spark.jobs import NUMBERS, OUTCOME_SCHEMA, batch_of, in_tasks
from merganser.spark.names import spelling_of
from merganser.spark.pythons import warn_of_other_python
from merganser.spark.sink_writer import QUERY_ID
from merganser.spark.types import arrow_schema_of
from merganser.spark.watch import OBSERVED, show
from merganser.storage.env import Env
from merganser.storage.open import storage_beside
from merganser.storage.paths import join
from merganser.storage.process import process_env
from merganser.storage.protocol import Storage
from merganser.values import dataclass
from merganser.write.held import drop_held, hold, placed
from merganser.write.job import Outcome
from merganser.write.target import WriteTarget
from merganser.write.transaction import Transaction, check_user
from merganser.write.writer import arrives, takes_any_order

if TYPE_CHECKING:
    from merganser.handle.dead_letters import DeadLetters

_BATCH_ID: Final = "streaming.sql.batchId"
_CHECKPOINTS: Final = "spark.sql.streaming.checkpointLocation"
"""Setting of a session: where queries without a checkpoint of their own keep one, by name."""
FROM: Final = internal_name("from")
"""Column with the number of the task that a row comes from: rows of one task keep their order in a shuffle."""
COMPACTIONS: Final = ("inline", "beside", "none")
_ARRIVAL: Final = internal_name("arrival")
_ROWS_PER_TASK: Final = 1 << 40
_BATCH_RECORDS: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"

_log = logging.getLogger(__name__)


class BatchRequest(Protocol):
    """What becomes of the micro-batches of a query; pickles."""

    def with_checkpoint(self, checkpoint: str) -> BatchRequest:
        """Return the request of a query that keeps its progress there."""
        ...

    def commit(self, query: str, batch: int, outcomes: Sequence[Outcome]) -> None:
        """Make what tasks wrote visible, unless it is already."""

    def remove(self, outcomes: Sequence[Outcome]) -> None:
        """Remove the files that tasks wrote."""


@dataclass(frozen=True, slots=True)
class Begun:
    """The commit of a micro-batch after its first requests.

    Attributes:
        transaction: stands on the newest state.
        noted: whether the checkpoint notes the table, or there is no checkpoint.
    """

    transaction: Transaction
    noted: bool


@dataclass(frozen=True)
class SinkRequest:
    """What a stream writes to a table; see `BatchRequest`.

    Attributes:
        target: the table, and what of it each batch replaces.
        env: pickled, it is the storage.
        names: of the columns, in the order of the rows.
        kinds: column with the row kinds, not stored; None: all rows are inserts.
        user: what the names of the committer begin with.
        compaction: "inline": what is due follows each commit. "beside": a thread of the process that commits does it.
            "none": other jobs do it.
        checkpoint: where Spark keeps the progress of the query, if that is known.
        letters: what becomes of bad records, which the last column holds; None: there are none.
        keeps: the last of `names` is MARKS, which says what values rows keep of stored rows.
    """

    target: WriteTarget
    env: Env
    names: tuple[str, ...]
    kinds: str | None
    user: str
    compaction: str
    checkpoint: str | None = None
    letters: SinkRequest | None = None
    keeps: bool = False

    @property
    def table(self) -> TableDef:
        """The table."""
        return self.target.table

    def here(self) -> Env:
        """Return the effects of this process, which remember what earlier batches read."""
        return process_env(self.env)

    def with_checkpoint(self, checkpoint: str) -> SinkRequest:
        """Return the request of a query that keeps its progress there."""
        return replace(self, checkpoint=checkpoint)

    def transaction(self, query: str, batch: int) -> Transaction:
        """Return the transaction of a batch."""
        return Transaction(self.target, self.here(), self.user + query, batch)

    def write_name(self) -> str | None:
        """Return the name of the write of a batch, in a task of it. None if this is no task of a stream."""
        context = TaskContext.get()
        query, batch = (context and context.getLocalProperty(key) for key in (QUERY_ID, _BATCH_ID))
        return batch_name(self.user + query, int(batch)) if query and batch else None

    def commit(self, query: str, batch: int, outcomes: Sequence[Outcome]) -> None:
        """Make what tasks wrote one commit, that of the dead letters first, unless they are commits already."""
        begun = None
        if self.letters is not None:  # first: a batch whose rows are there has its letters
            try:
                begun = self.check(query, batch)
            except ConflictError:
                self.remove(outcomes)
                raise
            self.letters.apply(query, batch, _files(outcomes, letters=True))
        if any(outcome.held for outcome in outcomes):
            self.apply(query, batch, placed(self.transaction("", 0).job(), outcomes), begun=begun)
        else:
            letters = self.dead_letters(self.letters, query, batch)
            self.apply(query, batch, _files(outcomes), kept_of(outcomes), letters, begun=begun)

    def apply(
        self,
        query: str,
        batch: int,
        files: Sequence[CommitMessage],
        kept: Sequence[str] = (),
        letters: DeadLetters | None = None,
        begun: Begun | None = None,
    ) -> Snapshot | None:
        """Make files one commit and return it; if it is one already, remove them.

        Args:
            query: its id; empty: the commit belongs to no stream.
            batch: its number; if it belongs to no stream, the identifier of the commit.
            kept: folders of rows that keep values of stored rows; they belong to the commit.
            letters: takes the records of such rows that keep a value of no row; not None if there are such folders.
            begun: what `check` has just returned; None: it was not called.

        Raises:
            ConflictError: the table has other rows of a batch of this number, or was made anew since the last batch.
                Nothing is visible, and the files are gone.
        """
        from merganser.spark.keeping import commit

        if not files and not kept and not self.target.overwrites:
            return None
        try:
            begun = begun or self._begun(query, batch)
        except ConflictError:
            remove_uncommitted(self.table, self.here(), files)
            drop_held(self.here(), kept)
            raise
        transaction = begun.transaction
        done, snapshot = transaction.applied()
        if done:
            remove_uncommitted(self.table, transaction.env, files)
            drop_held(transaction.env, kept)
            if query:
                _check_repeat(transaction, batch)
        elif kept and letters is not None:
            snapshot = commit(transaction, transaction.env, files, kept, letters)
        else:
            snapshot = transaction.finish(files)
        checkpoint = self._checkpoint()
        if checkpoint is not None and transaction.batch is not None and not begun.noted:  # this storage reaches it
            checkpoint.note_table(self.table)
        if done:
            return snapshot
        if self.compaction == "beside":
            _upkeep_beside(self)
        return snapshot

    def dead_letters(self, letters: SinkRequest | None, query: str, batch: int) -> DeadLetters:
        """Return what takes the records of a batch that turn out to be bad when it is committed.

        Args:
            letters: their table; None: they are errors.
        """
        from merganser.handle.dead_letters import DeadLetters

        table = None if letters is None else Table(letters.table, letters.here())
        if batch == BATCH_IDENTIFIER:
            return DeadLetters(table, self.table.name, self.env.clock(), None, None)
        user = (self.user if letters is None else letters.user) + query
        return DeadLetters(table, self.table.name, self.env.clock(), user, batch)

    def check(self, query: str, batch: int) -> Begun:
        """Refuse a batch of a stream if the table has other rows of its number, or was made anew since the last one.

        Returns:
            What `apply` begins with.

        Raises:
            ConflictError: it has, or it was.
        """
        begun = self._begun(query, batch)
        if begun.transaction.applied()[0]:
            _check_repeat(begun.transaction, batch)
        return begun

    def _begun(self, query: str, batch: int) -> Begun:
        """Return the transaction of a batch. The checkpoint and the newest state are asked for at once.

        Raises:
            ConflictError: the table was dropped and re-created since the last batch.
        """
        env, checkpoint = self.here(), self._checkpoint()
        find = partial(look, self.table, env)
        if checkpoint is None:
            noted, offsets, seen = True, None, find()
        else:
            check = partial(checkpoint.check_table, self.table, env, self.target.action)
            noted, offsets, seen = env.beside(check, partial(checkpoint.offsets, batch), find)
        transaction = Transaction(self.target, env, self.user + query, batch, known=seen.known)
        transaction.watermark = watermark_of(offsets)
        transaction.batch = None if offsets is None else hashlib.blake2b(offsets, digest_size=8).hexdigest()
        return Begun(transaction, noted)

    def _checkpoint(self) -> Checkpoint | None:
        return None if self.checkpoint is None else Checkpoint(self.here().storage, self.checkpoint)

    def remove(self, outcomes: Sequence[Outcome]) -> None:
        """Remove the files that tasks wrote."""
        for request, letters in ((self, False), (self.letters, True)):
            if request is not None:
                remove_uncommitted(request.table, request.here(), _files(outcomes, letters=letters))
        drop_held(self.here(), [*(outcome.held for outcome in outcomes if outcome.held), *kept_of(outcomes)])


_lock: Final = threading.Lock()


@dataclass(frozen=True, slots=True)
class LettersOutcome(Outcome):
    """What a task wrote to the table of dead letters."""


@dataclass(frozen=True)
class StreamTask:
    """Writes all rows that a task of a micro-batch is given, and yields the outcome.

    Attributes:
        request: what is written.
        arranged: the last column says which task a row comes from; else rows come as they are to be written.
        assigners: how many assigners the keys of a partition have in the tasks of a batch; see `write.dynamic`.
    """

    request: SinkRequest
    arranged: bool
    assigners: int = 1

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the rows, as `mapInArrow` wants it; a task without rows yields nothing."""
        tables = (pa.Table.from_batches([batch]) for batch in batches if batch.num_rows)
        letters = self.request.letters
        outcomes = [self.run(tables)] if letters is None else self._run_both(tables, letters)
        for outcome in outcomes:
            if outcome.messages or outcome.kept:
                yield batch_of(outcome, letters=isinstance(outcome, LettersOutcome))

    def run(self, tables: Iterable[pa.Table], *, skipped: int = 0) -> Outcome:
        """Write rows and return the outcome.

        Raises:
            MerganserError: a row was refused; nothing is left of the attempt.
        """
        from merganser.spark.keeping import run_apart

        tables = iter(tables)
        first = next(tables, None)
        if first is None:
            return Outcome()
        request = self.request
        arrival = self.arranged and arrives(request.table)
        job = request.transaction("", 0).job(
            kinds=request.kinds,
            arrival=_ARRIVAL if arrival else None,
            assigners=self.assigners,
            shows=request.write_name(),
        )
        rows = self._named(first, tables)
        if request.keeps:
            outcome = run_apart(job, rows)
            if outcome.refusal is not None:
                raise outcome.refusal
            return outcome
        outcome = job.run(rows, skipped=skipped) if self.arranged or not request.table.assigns_keys else hold(job, rows)
        if outcome.refusal is not None:
            raise outcome.refusal
        return outcome

    def _run_both(self, tables: Iterable[pa.Table], letters: SinkRequest) -> list[Outcome]:
        """Write good rows to the table and bad records to the table of dead letters; nothing is left if one fails."""
        from merganser.spark.dead_letters import letters_table

        request = self.request
        place = len(request.names)
        bad: list[pa.ChunkedArray] = []

        def good() -> Iterator[pa.Table]:
            for rows in tables:
                rejected = rows.column(place)
                plain = rows.remove_column(place)
                if rejected.null_count < len(rejected):
                    bad.append(rejected.drop_null())
                    plain = plain.filter(rejected.is_null())
                if plain.num_rows:
                    yield plain

        written = self.run(good())
        if not bad:
            return [written]
        try:
            whole = pa.chunked_array([chunk for column in bad for chunk in column.chunks])
            rows = letters_table(whole, request.table.name, request.env.clock())
            buried = StreamTask(letters, arranged=False).run([rows])
        except BaseException:
            remove_uncommitted(request.table, request.here(), written.messages)
            raise
        return [written, LettersOutcome(buried.messages, rows=buried.rows)]

    def _named(self, first: pa.Table, rest: Iterable[pa.Table]) -> Iterator[pa.Table]:
        def every() -> Iterator[pa.Table]:
            yield first
            yield from rest

        names = list(self.request.names)
        if not self.arranged:
            yield from (rows.rename_columns(names) for rows in every())
            return
        table = self.request.table
        if takes_any_order(table):
            seen = 0
            for rows in every():
                yield _with_arrival(rows.rename_columns([*names, FROM]), seen)
                seen += rows.num_rows
            return
        whole = pa.concat_tables([rows.rename_columns([*names, FROM]) for rows in every()])
        origin = whole.column(FROM).to_numpy()
        if (np.diff(origin) < 0).any():
            whole = whole.take(pa.array(np.argsort(origin, kind="stable")))
        yield whole.drop_columns([FROM]) if not arrives(table) else _with_arrival(whole, 0)


def _with_arrival(rows: pa.Table, seen: int) -> pa.Table:
    """Return rows with the column that orders them: by the task they come from, then as that task gave them."""
    origin = rows.column(FROM).to_numpy().astype(np.int64)
    arrival = origin * _ROWS_PER_TASK + np.arange(seen, seen + rows.num_rows)
    return rows.drop_columns([FROM]).append_column(_ARRIVAL, pa.array(arrival))


def write_stream(
    df: DataFrame,
    table: Table | str,
    checkpoint: str | None = None,
    kinds: str | None = None,
    columns: Sequence[str] | None = None,
    mode: str = "append",
    trigger: str | Mapping[str, Any] | None = None,
    name: str | None = None,
    commit_user: str | None = None,
    compaction: str | None = None,
    dead_letters: Table | str | None = None,
    **options: Any,
) -> StreamingQuery:
    """Write a streaming DataFrame into a table, each micro-batch as one commit, exactly once.

    Everything that can be refused is refused before the query starts. A row that does not fit stops the query with
    merganser's error; nothing of its batch is written.

    Args:
        df: a streaming DataFrame with the columns of the table, in any order.
        table: a table, or its path.
        checkpoint: the directory where Spark keeps the progress of the query; None: below that of the session. With a
            new directory the query begins anew, and writes what its source gives.
        kinds: the column of `df` with the row kinds ("+I", "-U", "+U", "-D"); it is not stored. None: all rows are
            inserts.
        columns: the columns that `df` has; the others get their default or null. None: all columns.
        mode: "append"; "complete": each batch replaces the table, for aggregations that give their whole result.
        trigger: how often a batch runs: a text such as "10 seconds", "availableNow" to stop when all is read, or the
            arguments of Spark's `trigger`, such as {"processingTime": "10 seconds"}. None: as soon as there is more.
        name: of the query.
        commit_user: what the name of the committer begins with in `snapshots()`; the id of the query follows.
        compaction: "inline": the compaction that is due follows each commit. "beside": a thread compacts and expires
            while the stream goes on. "none": another job does it. None: "inline", or "none" if the table is
            'write-only'.
        dead_letters: a table with the columns of `merganser.cdc.DEAD_LETTERS`. The rows of each batch whose `_rejected`
            is not null are written there first, in a commit of the same user and batch. See `ms.cdc.parse`.
        options: options of the table for this query.

    Returns:
        The query, which runs. `lastProgress.observedMetrics["merganser"]` counts what a batch wrote: `rows`,
        `retractions` among them, `files`, `bytes`, `dead_letters`.

    Raises:
        InvalidInputError: `df` does not stream, its columns do not fit, or an argument is invalid; nothing was started.
        NotFoundError: the table does not exist.
        UnsupportedError: the table needs a feature that this version does not have.
    """
    from merganser.edit.keeping import stores_keys
    from merganser.spark.change_records import REJECTED
    from merganser.spark.dead_letters import check_letters
    from merganser.spark.keeping import MARKS, UNAVAILABLE, check_call, keeps_values

    check_asked(options, arguments_of(write_stream))
    found = opened(table).with_options({key: str(value) for key, value in options.items()})
    action = f"cannot write to '{found.name}'"
    check_frame(df, action)
    spark = df.sparkSession
    if not df.isStreaming:
        raise InvalidInputError(f"{action}: the DataFrame does not stream. Nothing was started. Use ms.write.")
    if mode not in ("append", "complete"):
        raise InvalidInputError(
            f"{action}: mode is {mode!r:.50}. It is 'append' or 'complete'. Nothing was started. Spark gives sinks in "
            "Python no updates: write the whole result of an aggregation with 'complete', or keep the aggregate in a "
            "table with merge engine 'aggregation'."
        )
    check_checkpoint(spark, checkpoint, action)
    spelling = spelling_of(spark, found, writes=True)
    frame = spelling.frame(df, action)
    rows = frame
    letters = None if dead_letters is None else opened(dead_letters)
    if letters is not None:
        check_letters(frame, letters, action)
        rows = frame.drop(REJECTED)
        frame = frame.select(*(quoted(column) for column in (*rows.columns, REJECTED)))
    keeps = keeps_values(rows, found.definition) and stores_keys(found.definition)
    if keeps:
        rows = rows.drop(UNAVAILABLE)
        last = [column for column in frame.columns[len(rows.columns) :] if column != UNAVAILABLE]
        frame = frame.select(*(quoted(column) for column in (*rows.columns, UNAVAILABLE, *last)))
    request = request_of(
        found,
        arrow_schema_of(rows.schema),
        kinds=spelling.column(kinds, rows.columns),
        columns=spelling.given(columns, rows.columns),
        complete=mode == "complete",
        user=commit_user,
        compaction=compaction,
        checkpoint=None,
    )
    if keeps:
        check_call(request.target)
        request = replace(request, names=(*request.names, MARKS), keeps=True)
    if letters is not None:
        request = replace(request, letters=letters_request(letters, request.user))
    warn_of_other_python(spark)
    definition = request.table
    arranged = bool(definition.keyed or definition.schema.bucket_key)
    if arranged:
        frame = one_writer_each(frame.withColumn(FROM, f.spark_partition_id()), definition, streams=True)
    numbered = frame.toDF(*[f"c{i}" for i in range(len(frame.columns))])
    task = StreamTask(request, arranged, assigners_on(spark, definition))
    outcomes = in_tasks(numbered, task, OUTCOME_SCHEMA)
    written = outcomes.observe(OBSERVED, *map(total, NUMBERS)).select("message")
    sink = f"merganser-{request.env.new_id()}"
    writer = sink_writer(written, request, request.env.storage, sink, mode, checkpoint, name)
    query = triggered(writer, trigger, action).start()
    show(query, found.name)
    return query


def sink_writer(
    messages: DataFrame,
    request: BatchRequest,
    storage: Storage,
    sink: str,
    mode: str,
    checkpoint: str | None,
    name: str | None,
) -> DataStreamWriter:
    """Return the writer of a query that commits what its tasks wrote.

    Args:
        messages: what tasks yield: pickled outcomes.
        storage: of a table that the query writes.
        sink: a name that no other query has.
        mode, checkpoint, name: as for `write_stream`.
    """
    spark = messages.sparkSession
    place = str(checkpoint) if checkpoint is not None else join(spark.conf.get(_CHECKPOINTS) or "", name or sink)
    request = request.with_checkpoint(place)
    if _calls_here(spark):
        writer = messages.writeStream.foreachBatch(partial(_commit, request))
    else:
        from merganser.spark.sink_writer import sink_class

        spark.dataSource.register(sink_class(sink, request))
        writer = messages.writeStream.format(sink)
    writer = writer.outputMode(mode).option("checkpointLocation", place)
    with contextlib.suppress(InvalidInputError):  # a kind of store that Spark alone knows
        Checkpoint(*storage_beside(storage, place, {})).clear_first_batch()
    return writer if name is None else writer.queryName(name)


def _calls_here(spark: SparkSession) -> bool:
    """Return whether Spark calls functions in this process, in the thread of the query: only there it knows its id."""
    # Its name, since a client of Connect has no py4j to import the class from.
    return not is_connect(spark) and type(spark.sparkContext._gateway).__name__ == "ClientServer"


def _commit(request: BatchRequest, messages: DataFrame, batch: int) -> None:
    """Run the tasks of a micro-batch and commit what they wrote.

    Args:
        messages: what tasks yield: pickled outcomes. The tasks run when they are collected.
    """
    outcomes = [pickle.loads(message) for (message,) in messages.collect()]
    request.commit(messages.sparkSession.sparkContext.getLocalProperty(QUERY_ID), batch, outcomes)


def check_checkpoint(spark: SparkSession, checkpoint: str | None, action: str) -> None:
    """Refuse a query without a place for its progress.

    Raises:
        InvalidInputError: nothing was started.
    """
    if checkpoint is not None and (not isinstance(checkpoint, str | PathLike) or not str(checkpoint).strip()):
        raise InvalidInputError(
            f"{action}: checkpoint is {checkpoint!r:.80}. Give the path of a directory as text. Nothing was started."
        )
    if checkpoint is None and not spark.conf.get(_CHECKPOINTS, None):
        raise InvalidInputError(
            f"{action}: a stream needs a directory for its progress. Nothing was started. Give checkpoint=, on storage "
            "that outlives this machine, and one of its own for each query."
        )


def total(name: str) -> Column:
    """Return the sum of a number over the outcomes of a batch; 0 if no task had rows."""
    return f.coalesce(f.sum(name), f.lit(0)).alias(name)


_TRIGGERS: Final = ("processingTime", "availableNow", "once", "continuous")
"""Arguments of Spark's `trigger`, of which a query has one."""


def triggered(writer: DataStreamWriter, trigger: str | Mapping[str, Any] | None, action: str) -> DataStreamWriter:
    if trigger is None:
        return writer
    if isinstance(trigger, Mapping):
        if len(trigger) != 1 or (unknown := [str(key) for key in trigger if key not in _TRIGGERS]):
            hint = did_you_mean(unknown[0], _TRIGGERS) if len(trigger) == 1 else f"Give one of {', '.join(_TRIGGERS)}."
            raise InvalidInputError(f"{action}: trigger is {dict(trigger)!r:.80}. {hint} Nothing was started.")
        try:
            return writer.trigger(**trigger)
        except (TypeError, ValueError, PySparkException) as error:
            said = str(error).strip().rstrip(".")
            raise InvalidInputError(
                f"{action}: trigger is {dict(trigger)!r:.80}: {said}. Nothing was started."
            ) from error
    if not isinstance(trigger, str):
        raise InvalidInputError(
            f"{action}: trigger is {trigger!r:.50}. Give a text such as '10 seconds' or 'availableNow', or the "
            "arguments of Spark's trigger as a dict. Nothing was started."
        )
    plain = trigger.replace("-", "").replace("_", "").strip().lower()
    if plain == "availablenow":
        return writer.trigger(availableNow=True)
    if closest(plain, ["availablenow"]):
        raise InvalidInputError(
            f"{action}: trigger is {trigger!r:.50}. Did you mean 'availableNow'? Nothing was started."
        )
    return triggered(writer, {"processingTime": trigger}, action)


def outcome_of(request: BatchRequest, tables: Iterator[pa.Table], rows: pa.Schema, *, skipped: int) -> Outcome:
    """Write the rows of a task that come as they are to be written; return its outcome.

    Args:
        rows: their Arrow schema with the names of the table at every depth.
        skipped: numbers of arrival that earlier tasks may use.
    """
    assert isinstance(request, SinkRequest)
    filled = (with_names(each, rows) for each in tables if each.num_rows)
    return StreamTask(request, arranged=False).run(filled, skipped=skipped)


def kept_of(outcomes: Iterable[Outcome]) -> list[str]:
    """Return the folders of rows that tasks put aside, since they keep values of stored rows."""
    return [outcome.kept for outcome in outcomes if outcome.kept]


def _files(outcomes: Sequence[Outcome], *, letters: bool = False) -> list[CommitMessage]:
    """Return the files that tasks wrote to the table, or to that of dead letters."""
    return [file for outcome in outcomes if isinstance(outcome, LettersOutcome) == letters for file in outcome.messages]


def request_of(
    table: Table,
    rows: pa.Schema,
    *,
    kinds: str | None,
    columns: Sequence[str] | None,
    complete: bool,
    user: str | None,
    compaction: str | None,
    checkpoint: str | None,
) -> SinkRequest:
    """Return what a stream writes to a table, checked before it starts.

    Args:
        rows: the Arrow schema of the rows, with the names of the table.
        kinds, columns: as for `ms.write`.
        complete: each batch replaces the table.
        user: what the names of the committer begin with.
        compaction: one of `COMPACTIONS`; None: "none" if the table is `write-only`, else "inline".

    Raises:
        InvalidInputError: the rows do not fit the table, or an argument is invalid.
        UnsupportedError: the table needs a feature that this version does not have.
    """
    from merganser.write.merge_schema import with_columns_of

    definition = for_writing(table.definition, table.env)
    options = definition.options
    if compaction is not None and compaction not in COMPACTIONS:
        raise InvalidInputError(
            f"cannot write to '{definition.name}': compaction is {compaction!r:.50}. It is one of "
            f"{', '.join(map(repr, COMPACTIONS))}. Nothing was started."
        )
    compaction = compaction or ("none" if options.get(w.WRITE_ONLY) else "inline")
    changed: dict[str, str | None] = {u.SNAPSHOT_EXPIRE_EXECUTION_MODE.key: "async"}  # a stream waits for no expiry
    changed[w.WRITE_ONLY.key] = "false" if compaction == "inline" else "true"

    def target_of(definition: TableDef) -> WriteTarget:
        target = WriteTarget(
            replace(definition, options=definition.options.merged(changed)),
            columns=columns,
            overwrite={} if complete else None,
            streams=True,
        )
        target.check_names_and_types(rows, kinds)
        check_user(user, target.action)
        return target

    target = target_of(with_columns_of(definition, table.env, rows, target_of, without=(kinds or "",)))
    prefix = target.table.options.get(w.COMMIT_USER_PREFIX) or ""
    given = "" if user is None else f"{user}-"
    return SinkRequest(target, table.env, tuple(rows.names), kinds, prefix + given, compaction, checkpoint)


def letters_request(letters: Table, user: str) -> SinkRequest:
    """Return what a stream writes to a table of dead letters."""
    from merganser.spark.change_records import LETTER
    from merganser.spark.dead_letters import letters_table

    rows = letters_table(pa.chunked_array([], pa.struct(arrow_schema_of(LETTER))), "", letters.env.clock())
    request = request_of(
        letters,
        rows.schema,
        kinds=None,
        columns=None,
        complete=False,
        user=None,
        compaction=None,
        checkpoint=None,
    )
    return replace(request, user=user)


def _check_repeat(transaction: Transaction, batch: int) -> None:
    """Refuse a batch whose number was committed, unless Spark repeats that very batch.

    Spark writes the offsets of a batch once, before it runs, and the next ones when the batch is committed. So a repeat
    has the offsets of the commit, and no batch after it is committed. Else the checkpoint is older than the table.

    Raises:
        ConflictError: see above.
    """
    newest = transaction.newest()
    if newest is None:
        return  # rolled back since
    if newest.identifier == batch and (None in (newest.batch, transaction.batch) or newest.batch == transaction.batch):
        return
    name = transaction.table.name
    raise ConflictError(
        f"{transaction.target.action}: the table has batch {batch} of this query with other rows; its newest is "
        f"{newest.identifier}. The checkpoint is older than the table, or lacks files, or the query reads another "
        "source than before with the same checkpoint. Nothing of this batch was written, and all earlier batches "
        "stand. Put the newest checkpoint back, or roll the table back to the state before this batch, or start a "
        "query with a new checkpoint from where this one stopped. Give a query of another source a checkpoint of its "
        "own.",
        table=name,
        batch=batch,
    )


def _upkeep_beside(request: SinkRequest) -> None:
    """Compact and expire in a thread of this process, unless one does so. Killed at any time, it leaves orphans."""
    place = request.env.storage, request.table.paths.metadata_root
    with _lock:
        running = _upkeeps.get(place)
        if running is not None and running.is_alive():
            return
        thread = threading.Thread(target=_upkeep, args=(request,), name="merganser-upkeep", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the batch is committed, so nothing is raised
            _log.warning("upkeep beside a stream into '%s' did not start: %s", request.table.name, error)
            return
        _upkeeps[place] = thread


_upkeeps: Final[dict[tuple[Storage, str], threading.Thread]] = {}


def _upkeep(request: SinkRequest) -> None:
    options = request.table.options.merged({w.WRITE_ONLY.key: "false"})
    table = Table(replace(request.table, options=options), request.here())
    for what in (table.compact, table.expire):
        try:
            what()
        except MerganserError as error:
            _log.warning("upkeep beside a stream into '%s' failed; the next batch tries again: %s", table.name, error)

"""The data source "merganser": `spark.read.format(...)`, `df.write.format(...)`, and temporary views over tables.

Spark creates a source in one process to learn the schema, in another to plan, and in others for tasks and commit, so
processes share only pickled values. A read has one partition per pack of splits. On a write a source cannot shuffle, so
a task may hold rows of any bucket and writes a file for each. The sequence numbers of tasks do not overlap; a later
partition of the DataFrame has larger ones. `ms.write` shuffles first and is the fast way to write.

Options of reads and writes: `path` (of a read also that of a view, such as `orders$audit_log`), and `columns` ("a,b":
the columns to read, or those that the rows have). Of a read: `where` (SQL text, applied exactly), `snapshot`, `tag` or
`timestamp`, `parallelism` (tasks at a time), `timezone` (of texts that name none). Of both: `caseSensitive`. Of a
write: `kinds` (a column), `commit-user`, `identifier`, `watermark` (epoch milliseconds), and for mode "overwrite"
`partitionOverwriteMode` ("dynamic") or `replaceWhere` ("dt = '2026-01-01'"). Without these two, an overwrite replaces
the table. All other options are those of the table and of its store. The source logs nothing, since options may hold
secrets.

Spark's planning decides which snapshot a query reads. Spark 4.1 and later plan a DataFrame or a temporary view once and
keep the plan: all its queries read the snapshot of the first query. Spark 4.0 plans for every query. `ms.read` and the
option `snapshot` fix the snapshot at once.

The source does not accept filters from Spark (`pushFilters`). Spark 4.1 to 4.3 use a plan made for the filter of one
query for other queries of the same DataFrame or view, even inside one union or self join. Rows that the filter had
pruned would be missing there. The option `where` and `ms.read(where=...)` prune.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from merganser.codec.binary_row import stored_to_arrow
from merganser.commit.message import CommitMessage
from merganser.errors import ExpiredError, InvalidInputError, MerganserError, NotFoundError
from merganser.expr.filters import to_predicate
from merganser.expr.names import listed_names
from merganser.expr.predicate import conjuncts, points
from merganser.expr.setting import Setting
from merganser.handle.system_table import TableView
from merganser.handle.table import Table
from merganser.meta.snapshot import Snapshot
from merganser.options import read as r
from merganser.options.registry import closest, find_catalog_option, find_option
from merganser.scan.changes import Changes
from merganser.scan.scan import Scan
from merganser.scan.split import ReadJob
from merganser.scan.views import VIEWS
from merganser.schema.inner_names import with_names
from merganser.spark.names import CASE, ZONE, Spelling, fields_to_write, is_exact
from merganser.spark.splits import Pack, packed, rows_of
from merganser.spark.stream_reader import StreamReader, StreamRequest
from merganser.spark.types import arrow_schema_of, spark_schema
from merganser.spark.workers import settle
from merganser.storage.cores import available_cores
from merganser.values import dataclass

if TYPE_CHECKING:
    from merganser.handle.writing import Overwrite
    from merganser.spark.shard_source import RecordsAsked
    from merganser.write.job import Outcome

NAME: Final = "merganser"
_OF_READS: Final = frozenset(
    ["where", "snapshot", "tag", "timestamp", "parallelism", "shards", "start", "before", "full"]
)
_OF_WRITES: Final = frozenset(
    ["kinds", "commit-user", "identifier", "watermark", "partitionoverwritemode", "replacewhere", "compaction"]
)
_OWN_OPTIONS: Final = (
    _OF_READS | _OF_WRITES | {"path", "columns", "timezone", "casesensitive", "checkpointlocation", "queryname"}
)
_SHOWN: Final = {"partitionoverwritemode": "partitionOverwriteMode", "replacewhere": "replaceWhere"}
"""Options as users write them; Spark gives them in small letters."""
_ELSEWHERE: Final = {"versionasof": "snapshot", "timestampasof": "timestamp", "as-of-timestamp": "timestamp"}
"""Names of other data sources for our options."""
_SEQUENCES_PER_TASK: Final = 1 << 32
"""Sequence numbers that every task may take in a bucket; a task holds fewer rows."""
_CORES_MIN: Final = 16
"""Planning does not know the cluster; it assumes this many cores, or those of this machine if it has more."""


def register(spark: SparkSession) -> None:
    """Make the data source "merganser" known to a session.

    The source runs in processes that do not know the session. So it takes over the time zone of the session and
    whether names count in their case as they are now. Register it again after changing one of them, or name them in
    the options `timezone` and `caseSensitive` of a read or write.

    Warns if the tasks run another Python than the driver, and it lacks merganser or pyarrow: Spark's errors about the
    source do not say so.
    """
    from merganser.spark.pythons import warn_of_other_python

    warn_of_other_python(spark)
    known = {"timezone": spark.conf.get(ZONE, "UTC") or "UTC", "casesensitive": spark.conf.get(CASE, "false")}

    class Registered(MerganserSource):
        """The source in this session."""

        def __new__(cls, options: dict[str, str]) -> MerganserSource:  # type: ignore[misc]
            for key, value in known.items():
                options.setdefault(key, value)
            # The source itself, since this class cannot be pickled by its name.
            return MerganserSource(options)

    spark.dataSource.register(Registered)


class MerganserSource(DataSource):  # type: ignore[misc]
    """A table at a path; see the module."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return NAME

    def schema(self) -> StructType:
        """Return the columns of the read."""
        from merganser.meta.consumers import check_consumer_id

        if (consumer := self.options.get(r.CONSUMER_ID.key)) is not None:
            check_consumer_id(consumer, what=f"cannot follow '{self.options.get('path', '')}'")
        if _shows_kinds(self.options) or _flag(self.options, "shards"):
            return _request(self.options).schema
        try:
            scan = _scan(self.options)
        except (ExpiredError, NotFoundError, InvalidInputError):
            # Spark does not say whether this is a stream. A stream can start where no state is: after the newest
            # snapshot, before the oldest one, or in a log. A read raises the same error when its tasks are planned.
            try:
                return _request(self.options).schema
            except MerganserError:
                pass
            raise
        return spark_schema(scan.table, scan.columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of `schema`, which is that of `schema()`, or columns of it that the user named."""
        _check_use(self.options, _OF_WRITES, "writes. Nothing was read")
        if _flag(self.options, "shards"):
            raise InvalidInputError(
                "option 'shards' is for streams. Nothing was read. Read records of a shard with Table.records.",
                option="shards",
            )
        if _shows_kinds(self.options):
            raise InvalidInputError(
                f"option '{r.READ_CHANGELOG.key}' is for streams. Nothing was read. Read changes that end with "
                "ms.changes, or with 'incremental-between' and the path of the table with '$audit_log' behind it.",
                option=r.READ_CHANGELOG.key,
            )
        return _Reader(dict(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a stream."""
        _check_use(self.options, _OF_WRITES, "writes. Nothing was read")
        request = _request(self.options, schema.names)
        _check_declared(request.table.name, request.schema, schema)
        return StreamReader(request, arrow_schema_of(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return the writer of a stream; this checks the schema against the table."""
        from merganser.spark.sink_writer import Held, sink_of
        from merganser.spark.stream_sink import request_of as sink_request_of

        options = self.options
        _check_use(options, _OF_READS, "reads. Nothing was started")
        table = _table(options)
        for key in ("identifier", "watermark", "partitionoverwritemode", "replacewhere"):
            if key in options:
                raise InvalidInputError(
                    f"option '{key}' is for writes that end: the batches of a stream have identifiers and watermarks "
                    "of their own. Nothing was started. Leave the option out.",
                    option=key,
                )
        spelling = _spelling(table, options, writes=True)
        rows = arrow_schema_of(spelling.rows(schema, f"cannot write to '{table.name}'"))
        request = sink_request_of(
            table,
            rows,
            kinds=spelling.column(options.get("kinds"), rows.names),
            columns=spelling.given(_columns(options), rows.names),
            complete=overwrite,
            user=options.get("commit-user"),
            compaction=options.get("compaction"),
            checkpoint=options.get("checkpointlocation"),
        )
        return sink_of(Held.of(request), schema, rows)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return the writer of rows of a schema; this checks the schema against the table."""
        _check_use(self.options, _OF_READS, "reads. Nothing was written")
        _check_use(self.options, frozenset(["compaction"]), "streams. Nothing was written")
        return _Writer(dict(self.options), schema, overwrite)


@dataclass
class _PackPartition(InputPartition):  # type: ignore[misc]
    """The share of one task in a read."""

    job: ReadJob
    pack: Pack
    schema: pa.Schema
    scan: Scan | Changes
    snapshot: Snapshot | None


class _Reader(DataSourceReader):  # type: ignore[misc]
    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:  # type: ignore[override]
        from merganser.spark.access import TASKS_PER_CORE

        scan = _scan(self._options, self._schema.names)
        _check_declared(scan.table.name, spark_schema(scan.table, scan.columns), self._schema)
        plan = scan.plan()
        schema = arrow_schema_of(self._schema)
        wanted = _number(self._options, "parallelism")
        tasks_max = TASKS_PER_CORE * (wanted or max(_CORES_MIN, available_cores()))
        packs = packed(plan, tasks_max=tasks_max)
        return [_PackPartition(plan.job, pack, schema, scan, plan.snapshot) for pack in packs]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # For an empty plan Spark runs one task without a partition of this source.
        if isinstance(partition, _PackPartition):
            with partition.scan.unless_expired(partition.snapshot):
                yield from rows_of(partition.job, partition.pack, partition.scan.env.storage, partition.schema)
            settle()


@dataclass
class _Written(WriterCommitMessage):  # type: ignore[misc]
    outcome: Outcome


class _Writer(DataSourceArrowWriter):  # type: ignore[misc]
    """Writes one DataFrame: checked when made, written in tasks, committed in one place."""

    def __init__(self, options: dict[str, str], schema: StructType, overwrite: bool) -> None:
        from merganser.write.begin import begin

        table = _table(options)
        spelling = _spelling(table, options, writes=True)
        rows = arrow_schema_of(spelling.rows(schema, f"cannot write to '{table.name}'"))
        kinds = spelling.column(options.get("kinds"), rows.names)
        self._rows = rows
        self._transaction = begin(
            table.definition,
            table.env,
            columns=spelling.given(_columns(options), rows.names),
            overwrite=_overwrite(table, options, overwrite),
            commit_user=options.get("commit-user"),
            identifier=_number(options, "identifier"),
            watermark=_number(options, "watermark"),
            rows=rows,
            kinds=kinds,
        )
        self._applied, _ = self._transaction.applied()
        self._job = self._transaction.job(kinds=kinds, shows=self._transaction.uuid)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> _Written:
        from merganser.write.held import hold
        from merganser.write.job import Outcome

        if self._applied:
            for _ in iterator:  # Spark ends the worker of a task that leaves rows unread
                pass
            return _Written(Outcome())
        context = TaskContext.get()
        before = (context.partitionId() if context is not None else 0) * _SEQUENCES_PER_TASK
        tables = (with_names(pa.Table.from_batches([batch]), self._rows) for batch in iterator)
        if self._transaction.table.assigns_keys:
            written = _Written(hold(self._job, tables))
        else:
            written = _Written(self._job.run(tables, skipped=before))
        settle()
        return written

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        if not self._applied:
            self._transaction.finish(self._written(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove the files that tasks wrote, if some tasks failed.

        If no task failed, `commit` has failed in another process. `commit` has removed the files already, or a
        snapshot may name them.
        """
        from merganser.write.held import drop_held

        if None in messages:
            written = [message for message in messages if isinstance(message, _Written)]
            self._transaction.abort([found for message in written for found in message.outcome.messages])
            drop_held(self._transaction.env, [message.outcome.held for message in written if message.outcome.held])

    def _written(self, messages: list[WriterCommitMessage | None]) -> list[CommitMessage]:
        from merganser.write.held import placed

        outcomes = [message.outcome for message in messages if isinstance(message, _Written)]
        return placed(self._job, outcomes)


def _check_use(options: Mapping[str, str], others: Collection[str], what: str) -> None:
    """Refuse options that would do nothing: those of writes in a read, and the other way round."""
    for key in options:
        if key.lower() in others:
            more = " To write some of the rows, write df.where(...)." if key.lower() == "where" else ""
            raise InvalidInputError(
                f"option '{_SHOWN.get(key.lower(), key)}' is for {what}.{more} Leave the option out.", option=key
            )


def _table(options: Mapping[str, str]) -> Table:
    from merganser.handle.doors import table as table_at
    from merganser.spark.stream_source import long_names

    path = options.get("path")
    if not path:
        raise InvalidInputError(
            "the data source 'merganser' needs the path of a table: load(path), save(path), or the option 'path'. "
            "Spark's own catalog does not keep the options of a table; use CREATE TEMPORARY VIEW v USING merganser "
            "OPTIONS (path '...')."
        )
    others = long_names({key: value for key, value in options.items() if key.lower() not in _OWN_OPTIONS})
    for key in others:
        known = find_option(key) or find_catalog_option(key)
        meant = _ELSEWHERE.get(key.lower()) or (closest(key, _OWN_OPTIONS) if known is None else None)
        if meant is not None:
            raise InvalidInputError(
                f"unknown option '{key}' of the data source 'merganser'. Did you mean '{_SHOWN.get(meant, meant)}'?",
                option=key,
            )
    return table_at(path, others)


def _read(options: Mapping[str, str]) -> tuple[Table, Table | TableView]:
    """Return the table of a path, and what is read of it: the table, or a view such as that of `orders$audit_log`."""
    path, dollar, name = (options.get("path") or "").rpartition("$")
    if dollar and name in VIEWS:
        try:
            table = _table(options)
        except NotFoundError:  # else the directory has this name
            table = _table({**options, "path": path})
            return table, TableView(table, name)
        return table, table
    table = _table(options)
    return table, table


def _scan(options: Mapping[str, str], columns: Sequence[str] | None = None) -> Scan:
    from merganser.spark.shard_source import refuse_unless_shards

    table, read = _read(options)
    refuse_unless_shards(_asked(options), f"cannot read '{table.name}'")
    return read.scan(
        columns=_spelling(table, options).names(columns or _columns(options)),
        where=options.get("where") or None,
        snapshot=_number(options, "snapshot"),
        tag=options.get("tag"),
        timestamp=options.get("timestamp"),
        limit=None,
        setting=_setting(table, options),
    )


def _shows_kinds(options: Mapping[str, str]) -> bool:
    """Return whether a stream shows kinds. The option of a table does not count: a batch has the same columns."""
    return _flag(options, r.READ_CHANGELOG.key)


def _flag(options: Mapping[str, str], key: str) -> bool:
    """Return an option that is true or false.

    Raises:
        InvalidInputError: it is neither.
    """
    text = options.get(key, "false").strip().lower()
    if text not in ("true", "false"):
        raise InvalidInputError(f"option '{key}' is '{options.get(key)}'. It is 'true' or 'false'.", option=key)
    return text == "true"


def _request(options: Mapping[str, str], columns: Sequence[str] | None = None) -> StreamRequest:
    """Return what a stream with some options reads.

    Args:
        columns: of the schema that Spark declares; None: those of the options.
    """
    from merganser.spark.shard_source import refuse_unless_shards, shard_request_of
    from merganser.spark.stream_source import limits_of, request_of

    table, read = _read(options)
    shards = _flag(options, "shards")
    asked = _asked(options)
    action = f"cannot follow '{table.name}'"
    view = read.view_name if isinstance(read, TableView) else None
    parallelism = _number(options, "parallelism") or max(_CORES_MIN, available_cores())
    others = (("snapshot", "scan.snapshot-id"), ("tag", None), ("timestamp", "scan.timestamp"))
    for key, other in others[:2] if shards else others:
        if key in options:
            said = "" if other is None or shards else f" Give '{other}' to begin with a state or its changes."
            raise InvalidInputError(f"option '{key}' is for reads that end. Nothing was read.{said}", option=key)
    if shards:
        return shard_request_of(
            table,
            view,
            replace(asked, timestamp=options.get("timestamp")),
            columns=columns or _columns(options),
            spelling=_spelling(table, options),
            where=options.get("where") or None,
            setting=_setting(table, options),
            given=options,
            limits=limits_of(table.definition.options, action),
            parallelism=parallelism,
        )
    refuse_unless_shards(asked, action)
    return request_of(
        table,
        view,
        columns=_spelling(table, options).names(columns or _columns(options)),
        where=options.get("where") or None,
        setting=_setting(table, options),
        kinds=_shows_kinds(options),
        parallelism=parallelism,
    )


def _asked(options: Mapping[str, str]) -> RecordsAsked:
    """Return what options say of a stream of records; but for the time, which reads that end have, too."""
    from merganser.shards.verbs import TRIM_HORIZON
    from merganser.spark.shard_source import RecordsAsked

    return RecordsAsked(
        options.get("start", TRIM_HORIZON), None, before=_flag(options, "before"), full=_flag(options, "full")
    )


def _spelling(table: Table, options: Mapping[str, str], *, writes: bool = False) -> Spelling:
    fields = fields_to_write(table) if writes else table.schema.fields
    return Spelling(tuple(fields), is_exact(options.get("casesensitive")))


def _setting(table: Table, options: Mapping[str, str]) -> Setting:
    return table.setting(options.get("timezone") or "UTC", is_exact(options.get("casesensitive")))


def _columns(options: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return the names in the option `columns`: `a, b`, in backticks where they hold commas or blanks."""
    text = options.get("columns")
    return listed_names(text) if text else None


def _number(options: Mapping[str, str], key: str) -> int | None:
    text = options.get(key)
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        raise InvalidInputError(f"option '{key}' is '{text}'. It is a whole number.", option=key) from None


def _check_declared(name: str, columns: StructType, schema: StructType) -> None:
    """Refuse a schema that differs from the columns: the user gave it, or the table has changed since."""
    for found, declared in zip(columns, schema, strict=True):
        if arrow_schema_of(StructType([found])).field(0).type != arrow_schema_of(StructType([declared])).field(0).type:
            raise InvalidInputError(
                f"cannot read '{name}': column '{found.name}' is declared as "
                f"{declared.dataType.simpleString()} and is {found.dataType.simpleString()}. Leave the schema out, "
                "or load the table anew if it has changed since.",
                column=found.name,
            )


def _overwrite(table: Table, options: Mapping[str, str], overwrite: bool) -> Overwrite:
    """Return the part of the table that a write replaces, as the argument `overwrite` of `Table.write`."""
    mode, where = options.get("partitionoverwritemode", "static").lower(), options.get("replacewhere")
    if mode not in ("static", "dynamic"):
        raise InvalidInputError(
            f"option 'partitionOverwriteMode' is '{mode}'. It is 'static' or 'dynamic'.",
            option="partitionOverwriteMode",
        )
    if not overwrite:
        if where:
            raise InvalidInputError("option 'replaceWhere' goes with mode 'overwrite'.", option="replaceWhere")
        return None
    if not where:
        return "dynamic" if mode == "dynamic" else {}
    predicate = to_predicate(where, table.schema.fields, setting=_setting(table, options))
    spec: dict[str, Any] = {}
    for part in conjuncts(predicate) if predicate is not None else []:
        values = points(part, tuple(part.columns))
        if len(part.columns) != 1 or values is None or len(values) != 1 or part.columns & spec.keys():
            raise InvalidInputError(
                f"option 'replaceWhere' is \"{where}\". It names partitions by equality, such as "
                "\"dt = '2026-01-01' AND region = 'eu'\".",
                option="replaceWhere",
            )
        (name,) = part.columns
        spec[name] = stored_to_arrow([values[0][0]], table.schema.field(name).type)[0].as_py()
    return spec

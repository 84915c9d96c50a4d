"""`ms.session`: statements of SQL over a catalog, whose queries Spark runs.

A query goes to Spark with a DataFrame in the place of each table of the catalog: its columns, filters and limit are
those that `sql.lineage` finds, and all references to a table read the snapshot that was the newest when the statement
began. Names that the catalog does not know are Spark's: temporary views, its own tables, table functions.

The DataFrames travel as parameters of `spark.sql`. So no view is left behind, and a DataFrame that Spark Connect
evaluates later has what it needs.

Tables of a few rows are read by the driver, and changed there: a Spark job costs more than the work.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import field, replace
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
from pyspark.errors import ParseException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as s
from sqlglot import exp

from merganser.catalogs.definitions import View
from merganser.edit.merge_files import AT, FILE, JOB, FilesMerge
from merganser.edit.places import PLACES, Placed, changed_here, changed_in_places
from merganser.edit.rewrite import RewriteJob
from merganser.errors import InvalidInputError, MerganserError, NotFoundError
from merganser.expr.setting import Setting
from merganser.expr.text import Dialect, digits_of
from merganser.handle.editing import delete_computed
from merganser.handle.system_table import TableView
from merganser.handle.table import Table
from merganser.handle.writing import write_computed
from merganser.lookup.asked import looked_up
from merganser.meta.snapshot import Snapshot
from merganser.scan.changes import Changes
from merganser.scan.plan import Plan
from merganser.scan.scan import Scan
from merganser.schema import types as t
from merganser.schema.spark_json import fields_from_spark_json, spark_json_from_fields
from merganser.spark.access import is_connect, our_errors, unlogged, with_setting
from merganser.spark.compaction import compact, on_tasks, rescale
from merganser.spark.editing import delete, delete_of_query, update
from merganser.spark.fitting import fitted
from merganser.spark.merge_files import files_changed
from merganser.spark.merging import merge
from merganser.spark.names import CASE, ZONE, is_exact, setting_of
from merganser.spark.scan import held_frame, query_frame
from merganser.spark.sink import write_rows_of_query
from merganser.spark.splits import rows_of
from merganser.spark.stream_sink import write_stream
from merganser.spark.stream_source import read_stream
from merganser.spark.types import TIME_AS, arrow_schema_of, frame_of_arrow, spark_batches, spark_schema
from merganser.spark.words import spark_words
from merganser.sql import rows as inserts
from merganser.sql.assigning import check_columns, check_stored, given_fields
from merganser.sql.embedded import fields_placed, values_placed
from merganser.sql.engine import PLACED, Assigned, Relation
from merganser.sql.lineage import Use, alias_of, table_nodes, uses
from merganser.sql.parse import parse
from merganser.sql.result import Result
from merganser.sql.session import Session
from merganser.sql.sources import FUNCTIONS, Sources, fields_of
from merganser.sql.state import MAX_ROWS, MEMORY, TIME_ZONES, TIMEOUT, State
from merganser.sql.statements import Insert, Statement
from merganser.sql.trees import TEXT, hinted
from merganser.sql.unread import Unread, escaped, with_tables
from merganser.sql.view_texts import tree_of
from merganser.values import dataclass
from merganser.write.job import Outcome

_LOCAL_BYTES: Final = 512 << 10
"""Tables and results of up to this size are handled by the driver: a job of Python tasks takes half a second."""
_LOCAL_ROWS: Final = 50_000
_FLINK: Final = re.compile(r"\b(?:array|map)\s*\[|\brow\s*\(|\btimestamp(?:_ntz|_ltz)?\s*\(", re.IGNORECASE)
_FORMATS: Final = ("parquet", "orc", "csv", "json", "text", "avro", "delta", "binaryfile", "merganser")
"""First parts of names such as parquet.`/path`, which are Spark's."""
_TIME_DIGITS: Final = 3
"""Digits of a second that a TIME column stores, whatever its precision."""
_TIME: Final = "spark.sql.timeType.enabled"
_VIEW: Final = "merganser_view_"
_PLACES: Final = s.StructType(
    [s.StructField(JOB, s.LongType()), s.StructField(FILE, s.IntegerType()), s.StructField(AT, s.LongType())]
)
_OF_THE_PROCESS: Final = (TIMEOUT, MAX_ROWS, MEMORY)
"""Options of SET that hold for queries that run in this process."""


def session(spark: SparkSession, catalog: Any) -> SparkSqlSession:
    """Return a session of SQL statements over a catalog, whose queries Spark runs.

    The session keeps what USE and SET say. SET timezone sets the time zone of the Spark session too, and so does SET
    with an option of Spark such as 'spark.sql.shuffle.partitions'; RESET sets it back.

    Args:
        spark: the Spark session; its temporary views and tables can be used beside the tables of the catalog.
        catalog: of `merganser.catalog`. A name that the catalog and Spark both know means the table of the catalog.
    """
    return SparkSqlSession(spark, catalog)


class SparkSqlSession(Session):
    """Statements over one catalog, whose queries Spark runs; see `session`."""

    def __init__(self, spark: SparkSession, catalog: Any) -> None:
        self.state: State = SparkState(catalog, spark=spark)
        self.engine: OnSpark = OnSpark(spark)
        self._spark = spark
        self._nothing: DataFrame | None = None

    def sql(self, text: str, parameters: Mapping[str, Any] | None = None) -> DataFrame:
        """Run statements, and return the rows of the last one as a DataFrame.

        A query is planned now, with one snapshot of each table, and runs when the DataFrame is used.

        Args:
            text: one statement, or several with semicolons between them. All are parsed before the first one runs.
            parameters: values for `:name` in the text.

        Returns:
            The rows; a DataFrame without columns for a statement that gives none.

        Raises:
            SqlSyntaxError: the text is not understood; nothing was run.
            MerganserError: a statement failed; those before it have run, and the message says which one it was.
        """
        return self.execute(text, parameters).rows

    def execute(self, text: str, parameters: Mapping[str, Any] | None = None) -> Result:
        """Run statements as `sql` does, and return what the last one gave: rows, snapshot, counts, time."""
        with self.engine.tagged():
            result = super().execute(text, parameters)
        return replace(result, rows=self._frame(result.rows)) if isinstance(result.rows, pa.Table) else result

    def parsed(self, text: str, parameters: Mapping[str, Any] | None) -> tuple[Statement, ...]:
        """Return the statements of a text; queries that Spark alone understands are `Unread`."""
        return parse(text, parameters, self.engine.takes)

    def run(self, statement: Statement) -> Result:
        """Run one statement that is parsed already."""
        with self.engine.own_settings():
            return super().run(statement)

    def _frame(self, rows: pa.Table) -> DataFrame:
        if rows.num_columns:
            return frame_of_arrow(self._spark, rows)
        if self._nothing is None:
            self._nothing = self._spark.createDataFrame([], s.StructType([]))
        return self._nothing


@dataclass
class SparkState(State):
    """What USE and SET have said; options that are Spark's are set there."""

    spark: Any = None
    _before: dict[str, str | None] = field(default_factory=dict)

    def shown(self, key: str) -> str | None:
        """Return the value of an option; of one of Spark also the default."""
        theirs = ZONE if key in TIME_ZONES else key
        if theirs.startswith("spark.") and key not in self.options:
            with suppress(PySparkException):  # Spark has no such option
                return str(self.spark.conf.get(theirs))
        return super().shown(key)

    def set(self, key: str, value: str) -> None:
        """Set an option; see `State.set`."""
        theirs = ZONE if key in TIME_ZONES else key
        if theirs.startswith("spark.sql."):
            before = self.spark.conf.get(theirs, None)
            with spark_words(f"cannot set '{key}'"):
                self.spark.conf.set(theirs, value)
            self._before.setdefault(theirs, before)
        super().set(key, value)
        if key in _OF_THE_PROCESS:
            warnings.warn(
                f"'{key}' was set, and does not hold on Spark: a query returns a DataFrame, which runs when it is "
                "used. Limit the rows with LIMIT, and the time by spark.interruptTag.",
                RuntimeWarning,
                stacklevel=2,
            )

    def reset(self, key: str | None) -> None:
        """Forget an option; see `State.reset`."""
        theirs = ZONE if key in TIME_ZONES else key
        for each in list(self._before) if theirs is None else [theirs]:
            if each in self._before:
                before = self._before.pop(each)
                if before is None:
                    self.spark.conf.unset(each)
                else:
                    self.spark.conf.set(each, before)
        super().reset(key)

    @property
    def zone(self) -> str:
        """The time zone of the Spark session."""
        return str(self.spark.conf.get(ZONE, "UTC") or "UTC")


@dataclass(frozen=True)
class _Rows:
    """Rows of a query.

    Attributes:
        local: they come from few rows that the driver has, so they are few.
    """

    frame: DataFrame
    local: bool


class _Types(Sequence[t.DataType]):
    """The types of columns as ours, told when they are asked for: a result may have types that no table has."""

    def __init__(self, schema: s.StructType) -> None:
        self._schema = schema

    def __len__(self) -> int:
        return len(self._schema.fields)

    def __getitem__(self, i: Any) -> Any:
        return fields_from_spark_json(s.StructType([self._schema.fields[i]]).json())[0].type


@dataclass(frozen=True)
class _Reference:
    """A reference to a table of the catalog in a query."""

    node: exp.Table
    handle: Any
    travel: Mapping[str, Any]
    use: Use


class OnSpark:
    """Runs queries and changes rows with Spark."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._tag = f"merganser-sql-{id(self)}"
        self._settings = ExitStack()
        self._needs_times = False

    @contextmanager
    def own_settings(self) -> Iterator[None]:
        """Set settings of the Spark session back behind the `with` block that a statement in it needs."""
        self._needs_times = False
        with ExitStack() as self._settings:
            yield

    @contextmanager
    def tagged(self) -> Iterator[None]:
        """Give the jobs of Spark in the `with` block a tag, by which `cancel` finds them."""
        self._spark.addTag(self._tag)
        try:
            yield
        finally:
            self._spark.removeTag(self._tag)

    def cancel(self) -> None:
        """Stop the jobs of the statement that runs in another thread."""
        self._spark.interruptTag(self._tag)

    # queries

    def takes(self, text: str) -> bool:
        """Return whether Spark understands the text of a query, whatever its names mean. Nothing is run."""
        try:
            with unlogged():  # in brackets, so that it is no command
                self._spark.sql(f"SELECT * FROM (\n{text}\n)").schema  # noqa: B018 - Connect parses now, not later
        except ParseException:
            return False
        except PySparkException:
            return True
        return True

    def query(self, state: State, tree: exp.Expression, into: Table | None = None) -> Relation:
        """Return the rows of a query as a DataFrame, planned now."""
        return self._query(state, tree, Sources(state, into), into)

    def described(self, state: State, tree: exp.Expression) -> tuple[Sequence[str], Sequence[t.DataType]]:
        """Return the names and types of the columns of a query."""
        relation = self.query(state, tree)
        return relation.names, list(relation.types)

    def _query(
        self,
        state: State,
        tree: exp.Expression,
        sources: Sources,
        into: Table | None,
        placed: Callable[[Use], tuple[DataFrame, bool]] | None = None,
    ) -> Relation:
        """Return the rows of a query.

        Args:
            placed: returns the rows of the reference to `into` that is marked with `PLACED`, and whether the driver
                has them.
        """
        tree = tree.copy()
        references, foreign = self._references(state, tree, sources, into)
        read = [
            field
            for each in references
            for field in fields_of(each.handle, each.travel)
            if field.name in each.use.columns
        ]
        if TIME_AS == "time" and any(
            isinstance(each.type, t.Time) for each in (*read, *(into.schema.fields if into else ()))
        ):
            # without it, Spark refuses every cast between TIMEs of two precisions
            self._settings.enter_context(with_setting(self._spark, _TIME, "true"))
            self._needs_times = True
        frames, local = {}, not foreign and not isinstance(tree, Unread)
        for i, reference in enumerate(references):
            if placed is not None and reference.node.meta.get(PLACED):
                frame, few = placed(reference.use)
            elif isinstance(reference.handle, View):
                frame, few = self._view(sources, reference.handle, reference.use.columns, into)
            else:
                frame, few = self._frame(state, sources, reference)
            frames[f"{_VIEW}{i}"] = frame
            local = local and few
        texts = _texts(tree, [reference.node for reference in references])
        known = [name for each in references for name in fields_of(each.handle, each.travel)]
        with spark_words("cannot run the query", [column.name for column in known]):
            frame = self._run(texts, frames)
            schema = frame.schema
        return Relation(schema.names, _Types(schema), _Rows(frame, local), sources)

    def _run(self, texts: Iterator[str], frames: Mapping[str, DataFrame]) -> DataFrame:
        for text in texts:
            try:
                frame = self._spark.sql(text, **frames) if frames else self._spark.sql(text)
                frame.schema  # noqa: B018 - Connect parses now, not later
            except ParseException as error:
                failed = error  # the form of Flink, perhaps, of which the next text has Spark's
            else:
                return frame
        raise failed

    def _references(
        self, state: State, tree: exp.Expression, sources: Sources, into: Table | None = None
    ) -> tuple[list[_Reference], bool]:
        """Return the references to tables of the catalog, and whether there are others."""
        found: list[tuple[exp.Table, Any, Mapping[str, Any]]] = []
        foreign = False
        for node in table_nodes(tree):
            if node.meta.get(PLACED):
                found.append((node, into, {}))
            elif self._is_foreign(state, node):
                foreign = True
            else:
                try:
                    handle, travel = sources.found(node)
                except NotFoundError:
                    if not isinstance(tree, Unread) and not self._knows(node):
                        raise
                    foreign = True
                    continue
                found.append((node, handle, travel))
        setting = Setting(state.zone, None, is_exact(self._spark.conf.get(CASE, "false")))
        places = {id(node): PLACES for node, _, _ in found if node.meta.get(PLACED)}
        needed = uses(
            tree,
            [(node, (*fields_of(handle, travel), *places.get(id(node), ()))) for node, handle, travel in found],
            setting,
        )
        return [_Reference(*each, use) for each, use in zip(found, needed, strict=True)], foreign

    def _is_foreign(self, state: State, node: exp.Table) -> bool:
        if isinstance(node.this, exp.Func):
            name = node.this.name if isinstance(node.this, exp.Anonymous) else node.this.sql_name()
            return name.lower() not in FUNCTIONS
        return bool(node.args.get("db")) and len(node.parts) == 2 and node.parts[0].name.lower() in _FORMATS and (
            "/" in node.name
        )  # fmt: skip

    def _knows(self, node: exp.Table) -> bool:
        """Return whether Spark has a table or view of a name that the catalog does not know."""
        if isinstance(node.this, exp.Func) or hinted(node.name)[1]:
            return False
        with suppress(PySparkException):
            return bool(self._spark.catalog.tableExists(".".join(t.quoted(part.name) for part in node.parts)))
        return False

    def _view(self, sources: Sources, view: View, columns: Sequence[str], into: Table | None) -> tuple[DataFrame, bool]:
        """Return the columns of a view that are needed, and whether the driver has its rows."""
        state = sources.state.inside(view.name)
        try:
            relation = self._query(state, tree_of(state, view), sources.inside(state), into)
            check_columns(view, relation.names, list(relation.types))
        except MerganserError as error:
            error.message = f"cannot read the view '{view.name}': {error.message}"
            raise
        frame = relation.rows.frame.toDF(*(f"c{i}" for i in range(len(view.fields))))
        shown = []
        for i, (given, field_of) in enumerate(zip(frame.schema.fields, view.fields, strict=True)):
            if field_of.name in columns or not columns:
                kind, item = _spark_type(field_of), f.col(f"c{i}")
                shown.append((item if given.dataType == kind else item.cast(kind)).alias(field_of.name))
        return frame.select(*shown), relation.rows.local

    def _frame(self, state: State, sources: Sources, reference: _Reference) -> tuple[DataFrame, bool]:
        """Return the rows of a reference, and whether the driver has them."""
        handle, use = reference.handle, reference.use
        columns = use.columns or _cheapest(fields_of(handle, reference.travel))
        if state.streaming and isinstance(handle, Table | TableView):
            return _stream(self._spark, handle, columns, reference), False
        source = sources.source_of(reference.node, handle, reference.travel)
        asked = looked_up(source.lookup, source.key, source.fields, columns, use.where, use.limit)
        if asked is not None:
            schema = spark_schema(handle.definition, [f for f in source.fields if f.name in columns])
            return held_frame(self._spark, spark_batches(asked, arrow_schema_of(schema)), schema), True
        scan = sources.scan(handle, reference.travel, columns, use.where, use.limit)
        if not isinstance(scan, Scan | Changes):
            return frame_of_arrow(self._spark, scan.to_arrow()), True
        plan = scan.plan()
        if not _is_small(plan):
            return query_frame(self._spark, scan, plan, use.limit), False
        schema = spark_schema(scan.table, scan.columns)
        form = arrow_schema_of(schema)
        with scan.unless_expired(plan.snapshot):
            rows = rows_of(plan.job, _in_order(plan), scan.env.storage, form, limit=use.limit)
            return held_frame(self._spark, rows, schema), True

    def compute(self, relation: Relation) -> None:
        """Compute the rows of a query."""
        with spark_words("cannot run the query"), our_errors(self._spark):
            relation.rows.frame.toArrow()

    def result(self, state: State, relation: Relation) -> DataFrame:
        """Return the DataFrame.

        Raises:
            InvalidInputError: Connect plans it when it is used, and the session lacks a setting that TIME needs.
        """
        if self._needs_times and is_connect(self._spark):
            self._settings.close()
            if self._spark.conf.get(_TIME, "false") != "true":
                raise InvalidInputError(
                    "cannot run the query: it reads a TIME column. Spark Connect plans a query when its DataFrame is "
                    f"used, and takes TIME only if '{_TIME}' is true in the session. SET '{_TIME}' = 'true' first."
                )
        frame: DataFrame = relation.rows.frame
        return frame

    def explain(self, state: State, tree: exp.Expression) -> str:
        """Return what a query reads and skips of the tables of the catalog; the rest is the plan of Spark."""
        return "\n".join(self._explained(tree, Sources(state))) or "no table is read"

    def _explained(self, tree: exp.Expression, sources: Sources) -> Iterator[str]:
        references, foreign = self._references(sources.state, tree.copy(), sources)
        for each in references:
            if isinstance(each.handle, View):
                state = sources.state.inside(each.handle.name)
                yield from self._explained(tree_of(state, each.handle), sources.inside(state))
                continue
            columns = each.use.columns or _cheapest(fields_of(each.handle, each.travel))
            scan = sources.scan(each.handle, each.travel, columns, each.use.where, each.use.limit)
            yield f"read {each.handle.name}"
            explain = getattr(scan, "explain", None)
            yield str(explain()) if explain is not None else f"columns  {', '.join(columns)}"
        if foreign:
            yield "read tables of Spark"

    # changes

    def assigned(self, state: State, relation: Relation, columns: Sequence[Assigned]) -> _Rows:
        """Return rows to write, each column cast to the type of the table."""
        rows: _Rows = relation.rows
        frame = rows.frame.toDF(*(f"c{i}" for i in range(len(relation.names))))
        made = []
        for column in columns:
            kind = _spark_type(column.field)
            if column.source is None:
                item = f.lit(column.value).cast(kind)
            else:
                given = relation.rows.frame.schema.fields[column.source].dataType
                arranged = _checked(relation.called(column.source), given, column)
                item = _reordered(f.col(f"c{column.source}"), given, arranged)
                item = fitted(item, arranged, _without_float(kind), column.field.name)
                item = _truncated(item, column.field.type)
                if column.inside:
                    item = _inside(item, f.lit(column.value).cast(kind), column)
            made.append(item.alias(column.field.name))
        with spark_words("cannot write the rows"):
            frame = frame.select(*made)
            frame.schema  # noqa: B018 - Connect checks now, not later
        return _Rows(frame, rows.local)

    def write(self, table: Table, rows: _Rows, sources: Sources, **how: Any) -> tuple[Snapshot | None, int | None]:
        """Write rows as one commit; few of them without tasks."""
        with spark_words(f"cannot write to '{table.name}'"):
            if not rows.local:
                return write_rows_of_query(rows.frame, table, sources.reads(), **how), None
            with our_errors(self._spark):
                found = rows.frame.toArrow()
        return write_computed(table, found, sources.reads, **how), found.num_rows

    def insert_stream(self, state: State, table: Table, statement: Insert) -> Result:
        """Start a stream from a query into a table, or write the rows of a query that has an end."""
        relation = inserts.insert_query(state, self, statement, table)
        if not relation.rows.frame.isStreaming:
            return inserts.insert(state, self, table, statement, relation)
        checkpoint = state.options.get("checkpoint")
        if checkpoint is None:
            raise InvalidInputError(
                f"cannot start a stream into '{table.name}': it has no checkpoint, the directory where Spark keeps how "
                "far it is. Nothing was started. SET 'checkpoint' = '/path' first, another one for each stream."
            )
        columns = inserts.insert_columns(state, table, statement, relation)
        rows = self.assigned(state, relation, columns)
        given = [column.field.name for column in columns]
        with spark_words(f"cannot write to '{table.name}'"):
            write_stream(
                rows.frame, table, checkpoint, columns=None if len(given) == len(table.schema.fields) else given
            )
        return Result()

    def delete(self, state: State, table: Table, where: str) -> Snapshot | None:
        """Delete rows."""
        if _is_few(table):
            return table.delete(where, timezone=state.zone)
        return delete(self._spark, table, where)

    def delete_keys(self, table: Table, source: Relation) -> Snapshot | None:
        """Delete the rows whose keys a query gives."""
        with spark_words(f"cannot delete from '{table.name}'"), our_errors(self._spark):
            keys = source.rows.frame.toArrow()
        reads = source.sources.reads()
        if _is_few(table):
            return delete_computed(table, keys, reads)
        return delete_of_query(self._spark, table, keys, reads)

    def update(self, state: State, table: Table, where: str, values: Mapping[str, str]) -> Snapshot | None:
        """Update rows."""
        if _is_few(table):
            return table.update(where, values, timezone=state.zone)
        return update(self._spark, table, where, values)

    def merge(self, state: State, table: Table, source: Relation, on: str, alias: tuple[str, str]) -> Any:
        """Return a merge of the rows of a query."""
        rows: _Rows = source.rows
        if rows.local and _is_few(table):
            with spark_words(f"cannot merge into '{table.name}'"), our_errors(self._spark):
                found = rows.frame.toArrow()
            made = table.merge(found, on, timezone=state.zone, alias=alias)
        else:
            made = merge(self._spark, table, rows.frame, on, alias=alias)
        return made.computed_from(source.sources.reads())

    def change_files(
        self, state: State, table: Table, query: exp.Expression, columns: Sequence[str] | None
    ) -> Snapshot | None:
        """Change the rows of a table without a key that a query finds."""
        last: list[Sources] = []
        uses_of_table: list[Use] = []

        def result(rows: Callable[[Use], DataFrame]) -> DataFrame:
            def placed(use: Use) -> tuple[DataFrame, bool]:
                uses_of_table[:] = [use]
                return rows(use), True

            last[:] = [sources := Sources(state, table)]
            relation = self._query(state, query, sources, table, placed)
            wanted = fields_placed(table, columns, relation)
            made: _Rows = relation.rows if wanted is None else self.assigned(state, relation, wanted)
            return made.frame

        def held(jobs: Sequence[RewriteJob]) -> Callable[[Use], DataFrame]:
            def rows(use: Use) -> DataFrame:
                own = [field for field in table.schema.fields if field.name in use.columns]
                schema = s.StructType([*spark_schema(table.definition, own).fields, *_PLACES.fields])
                names = [field.name for field in schema.fields]
                parts = Placed(table.definition, table.env, jobs, names, use.where).to_batches()
                form = arrow_schema_of(schema)
                made = (batch for part in parts for batch in spark_batches(pa.Table.from_batches([part]), form))
                return held_frame(self._spark, made, schema)

            return rows

        def done(todo: FilesMerge) -> list[Outcome]:
            if sum(job.size_bytes for job in todo.jobs) <= _LOCAL_BYTES:
                with spark_words(what), our_errors(self._spark):
                    found = result(held(todo.jobs)).toArrow()
                return changed_here(todo, found, table.env)
            use = uses_of_table[0]
            own = [name for name in use.columns if name not in _PLACES.names]
            with spark_words(what):
                return files_changed(self._spark, table, todo, lambda frame: result(lambda _: frame), own, use.where)

        what = f"cannot change '{table.name}'"
        given = list(arrow_schema_of(result(held(())).schema))[len(PLACES) :]
        return changed_in_places(
            table.definition,
            table.env,
            pa.schema(given),
            values_placed(columns, [field.name for field in given]),
            uses_of_table[0].where,
            setting_of(self._spark, table),
            done,
            lambda: last[0].reads(),
            on_tasks(self._spark, table.env),
        )

    def compact(self, table: Table, **how: Any) -> Snapshot | None:
        """Compact a table."""
        return table.compact(**how) if _is_few(table) else compact(self._spark, table, **how)

    def rescale(self, table: Table, buckets: int, partitions: Any) -> Snapshot | None:
        """Move rows to another number of buckets."""
        if _is_few(table):
            return table.rescale(buckets, partitions)
        return rescale(self._spark, table, buckets, partitions)


# what Spark is given


def _texts(tree: exp.Expression, nodes: Sequence[exp.Table]) -> Iterator[str]:
    """Yield the query with `{merganser_view_<i>}` for each reference: as it was written, then as sqlglot writes it."""
    if isinstance(tree, Unread):
        yield with_tables(tree, nodes, [f"{{{_VIEW}{i}}}" for i in range(len(nodes))]) if nodes else tree.this
        return
    text = tree.meta.get(TEXT)
    if isinstance(text, str) and not _FLINK.search(text) and (written := _as_written(tree, nodes, text)) is not None:
        yield written
    yield _rendered(tree, nodes)


def _as_written(tree: exp.Expression, nodes: Sequence[exp.Table], text: str) -> str | None:
    """Return the text of a query with other names of tables; None if it needs more than that."""
    if not nodes:
        return text
    changes: list[tuple[int, int, str]] = []
    for i, node in enumerate(nodes):
        odd = any(node.args.get(key) for key in ("version", "when", "sample")) or isinstance(node.this, exp.Func)
        place = None if odd else _place(node.parts)
        if place is None:
            return None
        alias = "" if node.alias else f" AS {t.quoted(alias_of(node))}"
        changes.append((*place, f"\x00{i}\x00{alias}"))
    for column in tree.find_all(exp.Column):
        if (table := _qualified(column, nodes)) is not None:
            place = _place(column.parts[: -(len(column.parts) - column.parts.index(column.args["table"]) - 1)])
            if place is None:
                return None
            changes.append((*place, t.quoted(table)))
    return _spliced(tree.meta[TEXT], changes)


def _place(parts: Sequence[exp.Expression]) -> tuple[int, int] | None:
    """Return where a dotted name begins and ends in the text."""
    start, end = parts[0].meta.get("start"), parts[-1].meta.get("end")
    return None if start is None or end is None else (start, end + 1)


def _spliced(text: str, changes: Sequence[tuple[int, int, str]]) -> str:
    out, at = "", 0
    for start, end, new in sorted(changes):
        out, at = out + escaped(text[at:start]) + _filled(new), end
    return out + escaped(text[at:])


def _filled(text: str) -> str:
    return re.sub("\x00(\\d+)\x00", rf"{{{_VIEW}\1}}", escaped(text))


def _qualified(column: exp.Column, nodes: Sequence[exp.Table]) -> str | None:
    """Return the table that `db.t.column` means, if it is one of the references."""
    database = column.args.get("db")
    if database is None:
        return None
    for node in nodes:
        if not node.alias and alias_of(node) == column.table and node.args.get("db") in (None, database):
            return alias_of(node)
    return None


def _rendered(tree: exp.Expression, nodes: Sequence[exp.Table]) -> str:
    for column in list(tree.find_all(exp.Column)):
        if _qualified(column, nodes) is not None:
            column.set("db", None)
            column.set("catalog", None)
    for i, node in enumerate(nodes):
        name = alias_of(node) if not isinstance(node.this, exp.Func) else node.alias
        for key in ("db", "catalog", "version", "when"):
            node.set(key, None)
        if name and not node.alias:
            node.set("alias", exp.TableAlias(this=exp.to_identifier(name, quoted=True)))
        node.set("this", exp.to_identifier(f"\x00{i}\x00", quoted=False))
    text = tree.transform(_of_flink).sql(dialect=Dialect)
    return _filled(text) if nodes else str(text)


def _of_flink(node: exp.Expression) -> exp.Expression:
    """Return what Spark has for a form of Flink: MAP[...], ROW(...), and CAST to TIMESTAMP with digits."""
    if isinstance(node, exp.Cast) and isinstance(node.args["to"], exp.DataType):
        kind = node.args["to"]
        digits = digits_of(kind)
        if digits is not None and digits < 6:
            kind.set("expressions", [])
            node.set("this", node.this.transform(_of_flink))
            rest = exp.Mod(
                this=exp.Extract(this=exp.var("SECOND"), expression=node.copy()),
                expression=exp.Literal.number("1" if digits == 0 else "0." + "0" * (digits - 1) + "1"),
            )
            given = [exp.Literal.number(0)] * 3
            return exp.Paren(
                this=exp.Sub(this=node, expression=exp.Anonymous(this="make_dt_interval", expressions=[*given, rest]))
            )
    if isinstance(node, exp.Bracket) and isinstance(node.this, exp.Column) and node.this.name.upper() == "MAP":
        return exp.Anonymous(this="map", expressions=[each.transform(_of_flink) for each in node.expressions])
    if isinstance(node, exp.Anonymous) and node.name.upper() == "ROW":
        return exp.Anonymous(this="struct", expressions=[each.transform(_of_flink) for each in node.expressions])
    return node


def _cheapest(fields: Sequence[t.Field]) -> tuple[str, ...]:
    """Return a column that costs little, for a query that asks for none, such as count(*)."""
    small = (t.Boolean, t.TinyInt, t.SmallInt, t.Int, t.BigInt, t.Date)
    return (next((each for each in fields if isinstance(each.type, small)), fields[0]).name,)


def _stream(spark: SparkSession, handle: Table | TableView, columns: Sequence[str], reference: _Reference) -> DataFrame:
    if reference.travel:
        raise InvalidInputError(
            f"cannot read an older state of '{handle.name}' as a stream. Leave the version out, or SET "
            "'execution.runtime-mode' = 'batch'."
        )
    if isinstance(handle, TableView):  # its own columns say what kind a row is
        frame = read_stream(spark, handle, columns, reference.use.where)
        return frame.select(*(f.col(t.quoted(name)) for name in columns))
    return read_stream(spark, handle, columns, reference.use.where, kinds=False)


def _is_small(plan: Plan) -> bool:
    return (
        sum(split.size_bytes for split in plan.splits) <= _LOCAL_BYTES
        and sum(split.rows for split in plan.splits) <= _LOCAL_ROWS
    )


def _is_few(table: Table) -> bool:
    """Return whether a table is so small that the driver alone changes it sooner than tasks."""
    return _is_small(table.read().plan())


def _in_order(plan: Plan) -> tuple[Any, ...]:
    return tuple(split for group in plan.groups for split in group) if plan.groups else plan.splits


def _spark_type(column: t.Field) -> s.DataType:
    text = spark_json_from_fields([column], time_as=TIME_AS)
    return s.StructType.fromJson(json.loads(text)).fields[0].dataType


def _without_float(kind: s.DataType) -> s.DataType:
    """Return a type with DOUBLE for FLOAT: the write takes the nearest FLOAT, where a cast may give infinity."""
    match kind:
        case s.FloatType():
            return s.DoubleType()
        case s.ArrayType():
            return s.ArrayType(_without_float(kind.elementType), kind.containsNull)
        case s.MapType():
            return s.MapType(_without_float(kind.keyType), _without_float(kind.valueType), kind.valueContainsNull)
        case s.StructType():
            return s.StructType(
                [s.StructField(each.name, _without_float(each.dataType), each.nullable) for each in kind.fields]
            )
    return kind


def _without_void(given: s.DataType, wanted: s.DataType) -> s.DataType:
    """Return a type of a query with the type of the column for VOID, which all values of nothing but NULL have."""
    match given, wanted:
        case s.NullType(), _:
            return wanted
        case s.ArrayType(), s.ArrayType():
            return s.ArrayType(_without_void(given.elementType, wanted.elementType), given.containsNull)
        case s.MapType(), s.MapType():
            key = _without_void(given.keyType, wanted.keyType)
            return s.MapType(key, _without_void(given.valueType, wanted.valueType), given.valueContainsNull)
        case s.StructType(), s.StructType():
            pairs = zip(given.fields, wanted.fields, strict=False)
            rest = given.fields[len(wanted.fields) :]
            made = [s.StructField(a.name, _without_void(a.dataType, b.dataType), a.nullable) for a, b in pairs]
            return s.StructType([*made, *rest])
    return given


def _truncated(item: Any, kind: t.DataType) -> Any:
    """Return a column without the digits of seconds that its type does not store: Spark's types have six."""
    if not _is_coarse(kind):
        return item
    match kind:
        case t.Timestamp(precision=precision) | t.LocalZonedTimestamp(precision=precision):
            step = f.lit(Decimal(1).scaleb(-precision))
            return item - f.make_dt_interval(secs=f.extract(f.lit("SECOND"), item) % step)
        case t.Time():
            return item.cast(f"time({_TIME_DIGITS})")
        case t.Array():
            return f.transform(item, lambda value: _truncated(value, kind.element))
        case t.Map():
            items = f.transform_values(item, lambda _, value: _truncated(value, kind.value))
            return f.transform_keys(items, lambda key, _: _truncated(key, kind.key))
        case t.Row():
            made = (_truncated(item[field.name], field.type).alias(field.name) for field in kind.fields)
            return f.when(item.isNotNull(), f.struct(*made))
    return item


def _is_coarse(kind: t.DataType) -> bool:
    """Return whether a type stores fewer digits of seconds than Spark has, also inside."""
    match kind:
        case t.Timestamp() | t.LocalZonedTimestamp():
            return kind.precision < 6
        case t.Time():
            return kind.precision > _TIME_DIGITS and TIME_AS == "time"
        case t.Array():
            return _is_coarse(kind.element)
        case t.Map():
            return _is_coarse(kind.key) or _is_coarse(kind.value)
        case t.Row():
            return any(_is_coarse(field.type) for field in kind.fields)
    return False


def _inside(item: Any, wanted: Any, column: Assigned) -> Any:
    """Return a column of which another value than the wanted one is an error."""
    name = column.field.name
    value = "NULL" if column.value is None else f"'{column.value}'"
    found = f.coalesce(f.concat(f.lit("'"), item.cast("string"), f.lit("'")), f.lit("NULL"))
    wrong = f.lit(f", outside of PARTITION ({name} = {value}). Nothing was written.")
    text = f.concat(f.lit(f"a row has {name} = "), found, wrong)
    return f.when(item.eqNullSafe(wanted), item).otherwise(f.raise_error(text))


def _arranged(given: s.DataType, wanted: s.DataType) -> s.DataType:
    """Return the type of values with the fields of ROWs where those of their names are in another type."""
    match given, wanted:
        case s.StructType(), s.StructType():
            order = given_fields(given.names, wanted.names, by_name=True)
            pairs = [(given.fields[i], to) for i, to in zip(order, wanted.fields, strict=True)]
            return s.StructType(
                [s.StructField(a.name, _arranged(a.dataType, b.dataType), a.nullable) for a, b in pairs]
            )
        case s.ArrayType(), s.ArrayType():
            return s.ArrayType(_arranged(given.elementType, wanted.elementType), given.containsNull)
        case s.MapType(), s.MapType():
            key, value = _arranged(given.keyType, wanted.keyType), _arranged(given.valueType, wanted.valueType)
            return s.MapType(key, value, given.valueContainsNull)
    return given


def _reordered(item: Any, given: s.DataType, arranged: s.DataType) -> Any:
    """Return values whose ROWs have their fields in another order; see `_arranged`."""
    if given == arranged:
        return item
    match given, arranged:
        case s.ArrayType(), s.ArrayType():
            return f.transform(item, lambda value: _reordered(value, given.elementType, arranged.elementType))
        case s.MapType(), s.MapType():
            items = f.transform_values(item, lambda _, value: _reordered(value, given.valueType, arranged.valueType))
            return f.transform_keys(items, lambda key, _: _reordered(key, given.keyType, arranged.keyType))
        case s.StructType(), s.StructType():
            made = (
                _reordered(item[to.name], given[to.name].dataType, to.dataType).alias(to.name) for to in arranged.fields
            )
            return f.when(item.isNotNull(), f.struct(*made))
    return item


def _checked(name: str, given: s.DataType, assigned: Assigned) -> s.DataType:
    """Return the type of a column of a query with the fields of ROWs in the order in which they are stored.

    Args:
        name: what messages call the column.

    Raises:
        InvalidInputError: its values cannot be stored in the column of the table, as Spark does for INSERT, without a
            cast.
    """
    column = assigned.field
    wanted = _spark_type(column)
    try:
        arranged = _arranged(given, wanted) if assigned.by_name else given
        kind = _without_void(arranged, wanted)
        check_stored(name, _Types(s.StructType([s.StructField("", kind)]))[0], column.type)
    except InvalidInputError as error:
        raise InvalidInputError(
            f"cannot write column '{column.name}': {str(error).rstrip('.')}. Nothing was written.", column=column.name
        ) from error
    return arranged

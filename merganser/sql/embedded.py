"""The engine of this process: queries run in DuckDB over our scans, changes run through the table's verbs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from sqlglot import exp

from merganser.catalogs.definitions import View
from merganser.codec.binary_row import arrow_to_stored
from merganser.edit.merge_files import FilesMerge
from merganser.edit.places import PLACES, Placed, changed_here, changed_in_places
from merganser.errors import InvalidInputError, UnsupportedError
from merganser.expr.predicate import Predicate, Projection
from merganser.expr.setting import Setting
from merganser.expr.tree import Column, Null
from merganser.handle.editing import delete_computed
from merganser.handle.system_table import TableView
from merganser.handle.table import Table
from merganser.handle.writing import write_computed
from merganser.meta.snapshot import Snapshot
from merganser.options.option import BYTES, DURATION
from merganser.schema import types as t
from merganser.schema.arrow import arrow_type, nullable_schema
from merganser.sql import rows as inserts
from merganser.sql.assigning import check_stored, given_fields
from merganser.sql.engine import PLACED, Assigned, Relation
from merganser.sql.lineage import table_nodes
from merganser.sql.query import Batches, BoundQuery, Limits, Running, Source, Stored, bind, run
from merganser.sql.result import Result
from merganser.sql.sources import FUNCTIONS, Sources
from merganser.sql.state import MAX_ROWS, MEMORY, TIMEOUT, State
from merganser.sql.statements import Insert
from merganser.sql.view_texts import tree_of
from merganser.write.job import Outcome
from merganser.write.target import first_outside


class Embedded:
    """Runs queries in this process."""

    def __init__(self) -> None:
        self._running = Running()

    def cancel(self) -> None:
        self._running.stop()

    def query(
        self,
        state: State,
        tree: exp.Expression,
        into: Table | None = None,
        resolve: Callable[[exp.Table], Source | Stored] | None = None,
    ) -> Relation:
        """Return the rows of a query.

        Args:
            into: the table that they change; None: none.
            resolve: what a reference to a table reads; None: the catalog says it.
        """
        if state.streaming and resolve is None and _reads_on(state, tree):
            raise UnsupportedError(
                "cannot run the query with 'execution.runtime-mode' = streaming: it would never end. Use Table.stream, "
                "or ms.read_stream on Spark, or SET 'execution.runtime-mode' = 'batch'."
            )
        sources = Sources(state, into)
        bound = bind(tree, resolve or sources.source, setting_of(state))
        limits = Limits(_seconds(state), _bytes(state))
        reader = run(bound, limits, running=self._running)
        return Relation(bound.names, bound.types, reader, sources)

    def described(self, state: State, tree: exp.Expression) -> tuple[Sequence[str], Sequence[t.DataType]]:
        bound = bind(tree, Sources(state).source, setting_of(state))
        return bound.names, bound.types

    def compute(self, relation: Relation) -> None:
        for _ in relation.rows:
            pass

    def result(self, state: State, relation: Relation) -> pa.Table:
        limit = state.options.get(MAX_ROWS)
        if limit is None:
            return relation.rows.read_all()
        batches, count, most = [], 0, _whole(MAX_ROWS, limit)
        for batch in relation.rows:
            count += batch.num_rows
            if count > most:
                raise InvalidInputError(
                    f"the query gives more than {most} rows, the limit of '{MAX_ROWS}'. Add LIMIT, or RESET {MAX_ROWS}."
                )
            batches.append(batch)
        return pa.Table.from_batches(batches, relation.rows.schema)

    def explain(self, state: State, tree: exp.Expression) -> str:
        bound = bind(tree, Sources(state).source, setting_of(state))
        lines = []
        for reference in bound.references:
            scan = reference.source.open(reference.columns, reference.where, reference.limit)
            lines.append(f"read {reference.source.name}")
            explain = getattr(scan, "explain", None)
            lines.append(str(explain()) if explain is not None else f"columns  {', '.join(reference.columns)}")
        return "\n".join(lines) or "no table is read"

    def assigned(self, state: State, relation: Relation, columns: Sequence[Assigned]) -> Any:
        return batches_assigned(relation, columns, state)

    def write(self, table: Table, rows: Any, sources: Sources, **how: Any) -> tuple[Snapshot | None, int | None]:
        counted = _Counted(rows)
        return write_computed(table, counted.batches(), sources.reads, **how), counted.rows

    def insert_stream(self, state: State, table: Table, statement: Insert) -> Result:
        """Write the rows of a query that has an end: one that reads no table that grows."""
        if not _reads_on(state, statement.query):
            return inserts.insert(state, self, table, statement, inserts.insert_query(state, self, statement, table))
        raise UnsupportedError(
            f"cannot write into '{table.name}' with 'execution.runtime-mode' = streaming: the query would never "
            "end. Use Table.stream, or ms.read_stream and ms.write_stream on Spark, or SET 'execution.runtime-mode' = "
            "'batch'."
        )

    def delete(self, state: State, table: Table, where: str) -> Snapshot | None:
        return table.delete(where, timezone=state.zone)

    def delete_keys(self, table: Table, source: Relation) -> Snapshot | None:
        keys = source.rows.read_all()
        return delete_computed(table, keys, source.sources.reads())

    def update(self, state: State, table: Table, where: str, values: Mapping[str, str]) -> Snapshot | None:
        return table.update(where, values, timezone=state.zone)

    def merge(self, state: State, table: Table, source: Relation, on: str, alias: tuple[str, str]) -> Any:
        merge = table.merge(source.rows.read_all(), on, timezone=state.zone, alias=alias)
        return merge.computed_from(source.sources.reads())

    def change_files(
        self, state: State, table: Table, query: exp.Expression, columns: Sequence[str] | None
    ) -> Snapshot | None:
        setting, jobs = setting_of(state), list[Any]()
        last: list[Sources] = []

        def placed(asked: Sequence[str], where: Predicate | None, limit: int | None) -> Placed:
            return Placed(table.definition, table.env, jobs, asked, where)

        def bound() -> BoundQuery:
            last[:] = [sources := Sources(state, table)]
            own = Source(table.name, (*table.schema.fields, *PLACES), (), placed)
            return bind(query, lambda node: own if node.meta.get(PLACED) else sources.source(node), setting)

        def rows() -> Batches:
            asked = bound()
            found = run(asked, Limits(_seconds(state), _bytes(state)), running=self._running)
            relation = Relation(asked.names, asked.types, found, last[0])
            wanted = fields_placed(table, columns, relation)
            return found if wanted is None else batches_assigned(relation, wanted, state)

        def done(todo: FilesMerge) -> list[Outcome]:
            jobs[:] = todo.jobs
            return changed_here(todo, rows().read_all(), table.env)

        where = next(each.where for each in bound().references if each.node.meta.get(PLACED))
        given = pa.schema(list(rows().schema)[len(PLACES) :])
        sets = values_placed(columns, given.names)
        return changed_in_places(
            table.definition, table.env, given, sets, where, setting, done, lambda: last[0].reads()
        )

    def compact(self, table: Table, **how: Any) -> Snapshot | None:
        return table.compact(**how)

    def rescale(self, table: Table, buckets: int, partitions: Any) -> Snapshot | None:
        return table.rescale(buckets, partitions)


def fields_placed(table: Table, columns: Sequence[str] | None, relation: Relation) -> list[Assigned] | None:
    """Return what places and new values are cast to, if there are nested ones: an empty array has no type."""
    fields = [table.schema.field(name) for name in columns or ()]
    if not any(t.is_nested(field.type) for field in fields):
        return None
    wanted = [replace(field, name=name) for field, name in zip(fields, relation.names[len(PLACES) :], strict=True)]
    return [Assigned(field, i, by_name=True) for i, field in enumerate((*PLACES, *wanted))]


def values_placed(columns: Sequence[str] | None, names: Sequence[str]) -> dict[str, str] | None:
    """Return the new values by column, as a merge takes them."""
    return None if columns is None else {c: f"source.{t.quoted(n)}" for c, n in zip(columns, names, strict=True)}


def _reads_on(state: State, tree: exp.Expression) -> bool:
    """Return whether a query reads tables to which rows are added for ever, as a stream sees them."""
    sources = Sources(state)
    for node in table_nodes(tree):
        function = node.this.name.lower() if isinstance(node.this, exp.Anonymous) else ""
        if isinstance(node.this, exp.Func) and function not in FUNCTIONS:
            continue
        handle = sources.found(node)[0]
        if isinstance(handle, View):
            inner = state.inside(handle.name)
            if _reads_on(inner, tree_of(inner, handle)):
                return True
        elif isinstance(handle, Table | TableView):
            return True
    return False


def setting_of(state: State) -> Setting:
    """Return what texts mean in a session: the zone and the time."""
    return Setting(state.zone, state.catalog.env.now_ms())


def _seconds(state: State) -> float | None:
    text = state.options.get(TIMEOUT)
    if text is None:
        return None
    return DURATION.parse(text).total_seconds()


def _bytes(state: State) -> int | None:
    text = state.options.get(MEMORY)
    return None if text is None else BYTES.parse(text)


def _whole(key: str, text: str) -> int:
    if not text.strip().isdigit():
        raise InvalidInputError(f"'{key}' is '{text}'. Give a whole number.")
    return int(text)


class _Counted:
    """Counts rows as they pass. The first batch is empty, so that the columns are known without rows, too."""

    def __init__(self, rows: Batches) -> None:
        self._rows, self.rows = rows, 0

    def batches(self) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pylist([], schema=self._rows.schema)
        for batch in self._rows:
            self.rows += batch.num_rows
            yield batch


def batches_assigned(relation: Relation, columns: Sequence[Assigned], state: State) -> Batches:
    """Return rows in the columns of a table, cast as Spark's store assignment does.

    Raises:
        InvalidInputError: the type of a column cannot be stored in the table's, or a value does not fit.
    """
    schema = nullable_schema([column.field for column in columns])
    casts = [
        _inside(_cast(relation, column, state), column) if column.inside else _cast(relation, column, state)
        for column in columns
    ]

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in relation.rows:
            made = [cast(batch) for cast in casts]
            yield from pa.table(made, schema=schema).to_batches()

    return Batches(schema, batches())


def _cast(relation: Relation, column: Assigned, state: State) -> Any:
    field, zone = column.field, setting_of(state).zone
    kind = field.type.with_nullable(True)
    target = arrow_type(kind)
    if column.source is None:
        scalar = pa.scalar(column.value).cast(target)
        return lambda batch: pa.repeat(scalar, batch.num_rows)
    position = column.source
    given, name = relation.types[position], relation.names[position]
    what = f"cannot write column '{field.name}'"
    if isinstance(given, Null):
        return lambda batch: pa.nulls(batch.num_rows, target)
    try:
        check_stored(relation.called(position), given, kind, by_name=column.by_name)
    except InvalidInputError as error:
        raise _not_written(what, error, field) from error
    if _nested(kind) or _nested(given):
        return lambda batch: _nested_cast(batch.column(position), given, column, zone)
    projection = Projection(Column((name,), given)).assigned_to(kind, zone)

    def cast(batch: pa.RecordBatch) -> Any:
        try:
            return _same(projection.evaluate(pa.table({name: batch.column(position)})), target)
        except InvalidInputError as error:
            raise _not_written(what, error, field) from error

    return cast


def _not_written(what: str, error: Exception, field: t.Field) -> InvalidInputError:
    return InvalidInputError(f"{what}: {str(error).rstrip('.')}. Nothing was written.", column=field.name)


def _inside(cast: Any, column: Assigned) -> Any:
    """Return a cast that refuses rows with another value than that of PARTITION."""
    kind, seen = column.field.type, 0
    stored = arrow_to_stored(pa.scalar(column.value).cast(arrow_type(kind)), kind)

    def checked(batch: pa.RecordBatch) -> Any:
        nonlocal seen
        values = cast(batch)
        row = first_outside(values, kind, stored)
        if row is not None:
            name = column.field.name
            raise InvalidInputError(
                f"cannot write the rows: row {seen + row + 1} (counting from 1) has {name} = "
                f"{_shown(values[row].as_py())}, outside of PARTITION ({name} = {_shown(column.value)}). Nothing was "
                "written.",
                column=name,
                row=seen + row,
            )
        seen += batch.num_rows
        return values

    return checked


def _shown(value: Any) -> str:
    return "NULL" if value is None else f"'{value}'"


def _same(values: Any, target: pa.DataType) -> Any:
    return values if values.type == target else values.cast(target)


def _nested(kind: t.DataType) -> bool:
    return isinstance(kind, t.Array | t.Map | t.Row | t.Multiset | t.Vector)


def _nested_cast(values: pa.Array, given: t.DataType, column: Assigned, zone: str | None) -> pa.Array:
    field = column.field
    try:
        return _stored(values, given, field.type.with_nullable(True), zone, by_name=column.by_name)
    except (InvalidInputError, pa.ArrowException) as error:
        raise _not_written(f"cannot write column '{field.name}'", error, field) from error


def _stored(values: pa.Array, given: t.DataType, kind: t.DataType, zone: str | None, *, by_name: bool) -> pa.Array:
    """Return nested values in another type: each value inside is cast.

    Args:
        by_name: see `given_fields`.
    """
    target = arrow_type(kind)
    if values.null_count == len(values):
        return pa.nulls(len(values), target)
    match given, kind:
        case t.Row(fields=fields), t.Row(fields=wanted):
            order = given_fields([field.name for field in fields], [field.name for field in wanted], by_name=by_name)
            parts = values.flatten()
            inner = [
                _stored(parts[i], fields[i].type, to.type, zone, by_name=by_name)
                for i, to in zip(order, wanted, strict=True)
            ]
            return pa.StructArray.from_arrays(inner, fields=list(target), mask=values.is_null())
        case t.Map(), t.Map() | t.Multiset():
            values = _compact(values)
            keys, items = (kind.key, kind.value) if isinstance(kind, t.Map) else (kind.element, t.Int())
            return pa.MapArray.from_arrays(
                values.offsets, _stored(values.keys, given.key, keys, zone, by_name=by_name),
                _stored(values.items, given.value, items, zone, by_name=by_name), type=target, mask=values.is_null(),
            )  # fmt: skip
        case t.Array(), t.Array():
            values = _compact(values)
            inside = _stored(values.values, given.element, kind.element, zone, by_name=by_name)
            return pa.ListArray.from_arrays(values.offsets.cast(pa.int32()), inside, type=target, mask=values.is_null())
    if _nested(given) or _nested(kind):
        return _same(values, target)
    cast = Projection(Column(("value",), given)).assigned_to(kind, zone)
    return _same(cast.evaluate(pa.table({"value": values})), target)


def _compact(values: pa.Array) -> pa.Array:
    """Return lists or maps whose offsets begin at 0."""
    return values if not values.offset else pa.concat_arrays([values])

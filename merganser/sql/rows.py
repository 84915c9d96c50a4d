"""Statements that read rows and change them: SELECT, INSERT, DELETE, UPDATE, MERGE, EXPLAIN."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

import pyarrow as pa
from sqlglot import exp

from merganser.commit.turns import COMPUTED, WRITTEN, in_rounds
from merganser.edit.places import PLACES
from merganser.edit.row_changes import check_can_delete, check_can_update, deletes_in_files
from merganser.errors import InvalidInputError, NotFoundError, Overtaken, UnsupportedError
from merganser.expr import build
from merganser.expr.setting import Setting
from merganser.expr.text import parse_predicate, parse_projection
from merganser.expr.tree import Literal
from merganser.handle.table import Table
from merganser.options.read import DELETION_VECTORS_MERGE_ON_READ
from merganser.options.registry import did_you_mean
from merganser.options.write import DYNAMIC_PARTITION_OVERWRITE, PRIMARY_KEY_NULLABLE
from merganser.rules.compacting import hides_level_0
from merganser.scan.rows import counted
from merganser.schema import types as t
from merganser.schema.literals import default_value
from merganser.sql import statements as s
from merganser.sql.calls import changed, with_session
from merganser.sql.dialect import Queries
from merganser.sql.engine import PLACED, Assigned, Engine, Relation
from merganser.sql.literals import spelled_spec, value_of
from merganser.sql.query.functions import AGGREGATES
from merganser.sql.query.kinds import is_fine
from merganser.sql.result import Result, rows_of
from merganser.sql.state import State
from merganser.sql.trees import MARK
from merganser.sql.unwritten import at_value, unwritten

_SECOND: Final = re.compile(r":\d+$")
"""How names end that a query gives to the second column of one name."""
_NEW: Final = "_new_"
_NESTED: Final = ("array", "map", "named_struct", "struct")


def _query(state: State, engine: Engine, statement: s.Query) -> Result:
    tree = with_session(state, statement.tree)
    return Result(engine.result(state, engine.query(state, tree)), has_rows=True)


# INSERT


def _insert(state: State, engine: Engine, statement: s.Insert) -> Result:
    table = state.table(statement.name, statement.options)
    if statement.overwrite and state.streaming:
        raise UnsupportedError(
            f"cannot overwrite '{table.name}' with 'execution.runtime-mode' = streaming: a stream has no end. SET "
            "'execution.runtime-mode' = 'batch'."
        )
    if state.streaming:
        return engine.insert_stream(state, table, statement)

    def compute(tree: exp.Expression) -> Sequence[t.DataType]:
        relation = engine.query(state, with_session(state, without_defaults(tree)), table)
        engine.compute(relation)
        return relation.types

    def run() -> Result:
        try:
            return insert(state, engine, table, statement, insert_query(state, engine, statement, table))
        except InvalidInputError as error:
            raise at_value(error, statement.query, _asked(table, statement), compute) from error

    return _serial(table, run, WRITTEN)


def _asked(table: Table, statement: s.Insert) -> list[str]:
    """Return the columns that an INSERT names, or that stand for those that are not named."""
    fixed = {name.lower() for name in statement.partition}
    return list(statement.columns or [f.name for f in table.schema.fields if f.name.lower() not in fixed])


def _serial(table: Table, run: Callable[[], Result], lost: frozenset[Overtaken]) -> Result:
    """Return the result of a statement that a query computes; computed again if its rows of the table have changed.

    So the result is that of running the statement alone on the snapshot that it commits after, as far as the table
    that it changes goes.

    Raises:
        ConflictError: they changed again and again, until `commit.max-retries` or `commit.timeout`.
    """
    return in_rounds(table.definition, table.env, lambda _: run(), lambda: None, lost)


def insert_query(state: State, engine: Engine, statement: s.Insert, table: Table) -> Relation:
    """Return the rows that an INSERT writes."""
    return engine.query(state, with_session(state, without_defaults(statement.query)), table)


def insert(state: State, engine: Engine, table: Table, statement: s.Insert, relation: Relation) -> Result:
    """Write the rows of an INSERT."""
    columns = insert_columns(state, table, statement, relation)
    overwrite = _overwrite(table, _static(state, table, statement)) if statement.overwrite else None
    rows = engine.assigned(state, relation, columns)
    given = [column.field.name for column in columns]
    names = None if len(given) == len(table.schema.fields) else given
    snapshot, count = engine.write(table, rows, relation.sources, columns=names, overwrite=overwrite)
    return Result(snapshot=snapshot, counts={} if count is None else {"inserted": count})


def insert_columns(state: State, table: Table, statement: s.Insert, relation: Relation) -> list[Assigned]:
    """Return which column of a relation, or which value of PARTITION, an INSERT writes into which column.

    Raises:
        InvalidInputError: the numbers of columns differ, a name is unknown, or a value of PARTITION does not fit.
    """
    return _columns(table, statement, relation, _static(state, table, statement))


def _static(state: State, table: Table, statement: s.Insert) -> dict[str, Any]:
    """Return the values that PARTITION gives, by the columns of the table."""
    named = spelled_spec(table, statement.partition)
    _check_partition(table, named)
    what = f"cannot write to '{table.name}'"
    setting = Setting(state.zone)
    spec = {name: value_of(value, setting, what) for name, value in named.items() if value is not None}
    for name, value in spec.items():
        zoned = isinstance(table.schema.field(name).type, t.LocalZonedTimestamp)
        if zoned and isinstance(value, datetime) and value.tzinfo is None:
            spec[name] = value.replace(tzinfo=setting.tzinfo)
    table.stored_specs([spec], "write to")
    return spec


def insert_into(state: State, engine: Engine, table: Table, relation: Relation) -> Result:
    """Write all rows of a relation into a table with the same columns."""
    columns = [Assigned(field, i) for i, field in enumerate(table.schema.fields)]
    snapshot, count = engine.write(table, engine.assigned(state, relation, columns), relation.sources)
    return Result(snapshot=snapshot, counts={} if count is None else {"inserted": count})


def without_defaults(tree: exp.Expression) -> exp.Expression:
    """Return a query with NULL for DEFAULT: the table fills in its default for both."""

    def change(node: exp.Expression) -> exp.Expression:
        if (
            isinstance(node, exp.Column)
            and node.name.upper() == "DEFAULT"
            and not (node.table or node.this.args.get("quoted"))
        ):
            return exp.Null()
        return node

    return changed(tree, change)


def _check_partition(table: Table, named: Mapping[str, Any]) -> None:
    for name in named:
        if name not in table.partition_by:
            raise InvalidInputError(
                f"cannot write to '{table.name}': '{name}' is not a partition column. "
                f"{did_you_mean(name, table.partition_by) if table.partition_by else 'The table has no partitions.'}",
                column=name,
            )


def _columns(table: Table, statement: s.Insert, relation: Relation, static: Mapping[str, Any]) -> list[Assigned]:
    """Return what is written into which column."""
    what = f"cannot write to '{table.name}'"
    fields = {field.name: field for field in table.schema.fields}
    folded = {name.lower(): name for name in fields}
    fixed = [Assigned(fields[name], None, value) for name, value in static.items()]
    n = len(relation.names)
    if statement.by_name:
        asked: Sequence[str] = relation.names
    elif statement.columns is not None:
        asked = statement.columns
    else:
        asked = [name for name in fields if name not in static]
        if n == len(fields) and static:  # the rows say their partitions, too
            return [
                Assigned(field, i, static.get(field.name), inside=field.name in static)
                for i, field in enumerate(fields.values())
            ]
        if n != len(asked):
            raise InvalidInputError(
                f"{what}: the query gives {counted(n, 'column')}, and the table has {len(asked)} "
                f"({', '.join(asked)}). Nothing was written. Name the columns: INSERT INTO t (a, b) ..."
            )
    if n != len(asked):
        raise InvalidInputError(
            f"{what}: {len(asked)} columns are named ({', '.join(asked)}), and the query gives {n}. Nothing was "
            "written."
        )
    found: list[Assigned] = []
    for position, name in enumerate(asked):
        real = name if name in fields else folded.get(name.lower())
        if real is None:
            raise InvalidInputError(
                f"{what}: it has no column '{name}'. Nothing was written. {did_you_mean(name, list(fields))}",
                column=name,
            )
        if any(real == column.field.name for column in (*found, *fixed)):
            raise InvalidInputError(f"{what}: column '{real}' is named twice.", column=real)
        found.append(Assigned(fields[real], position, by_name=statement.by_name))
    return found + fixed


def _overwrite(table: Table, spec: dict[str, Any]) -> Any:
    if not table.partition_by:
        return {}
    return "dynamic" if table.definition.options.get(DYNAMIC_PARTITION_OVERWRITE) else spec


# DELETE, UPDATE


def _delete(state: State, engine: Engine, statement: s.Delete) -> Result:
    table = state.table(statement.name)
    if statement.where is None:
        return Result(snapshot=engine.delete(state, table, "true"))
    where = with_session(state, statement.where)
    refusal = None if _needs_query(where) else _refusal(state, table, [_text(where, statement)], [])
    if refusal is None and not _needs_query(where):
        return Result(snapshot=engine.delete(state, table, _text(where, statement)))
    check_can_delete(table.definition, f"cannot delete from '{table.name}'", by_files=True)
    change = _by_keys if deletes_in_files(table.definition) else _by_merge
    with _first_said(refusal):
        return _serial(table, lambda: change(state, engine, table, statement, where, None), COMPUTED)


def _update(state: State, engine: Engine, statement: s.Update) -> Result:
    table = state.table(statement.name)
    for name, value in statement.assignments:
        _check_row_by_row(value, f"cannot update '{table.name}': column '{'.'.join(name)}'")
    qualifier = statement.alias or statement.name[-1].partition("$")[0]
    values, nested = assignments(state, table, statement.assignments, qualifier)
    where = None if statement.where is None else with_session(state, statement.where)
    refusal = None
    if not nested and not any(_needs_query(tree) for tree in (*values.values(), where) if tree is not None):
        condition = "true" if where is None else _text(where, statement)
        texts = {column: _text(value, statement) for column, value in values.items()}
        refusal = _refusal(state, table, [condition], list(texts.values()))
        if refusal is None:
            return Result(snapshot=engine.update(state, table, condition, texts))
    check_can_update(table.definition, f"cannot update '{table.name}'")
    with _first_said(refusal):
        return _serial(table, lambda: _by_merge(state, engine, table, statement, where, values), COMPUTED)


def _check_row_by_row(tree: exp.Expression, what: str) -> None:
    """Refuse the value of a column that has an aggregate which is in no subquery and no window.

    Raises:
        InvalidInputError: begins with `what`.
    """
    for node in tree.walk(prune=lambda node: isinstance(node, exp.Query | exp.Window)):
        if isinstance(node, exp.Anonymous) and node.name.lower() in AGGREGATES:
            raise InvalidInputError(
                f"{what} cannot get {sql_of(node)}: aggregate functions are not allowed in SET and VALUES, which are "
                "computed for each row by itself. Nothing was written. Use a subquery, as in (SELECT max(a) FROM t)."
            )


def _refusal(state: State, table: Table, conditions: Sequence[str], values: Sequence[str]) -> InvalidInputError | None:
    """Return why conditions and values are not computed row by row as texts, so that a query has to; None: they are.

    An unknown column is no reason: a query does not know it either.
    """
    fields, setting = table.schema.shown.fields, Setting(state.zone, state.catalog.env.now_ms())
    try:
        for text in conditions:
            parse_predicate(text, fields, setting=setting)
        for text in values:
            parse_projection(text, fields, setting=setting)
    except InvalidInputError as error:
        return None if "column" in error.context else error
    return None


@contextmanager
def _first_said(refusal: InvalidInputError | None) -> Iterator[None]:
    """Raise the refusal of a text again if the query does not compute it either; unless the text is beyond texts.

    The refusal of a text that is wrong, such as a comparison of two types, says more than that of the query.
    """
    try:
        yield
    except (InvalidInputError, NotFoundError, UnsupportedError):
        if refusal is None or "text" in refusal.context:
            raise
        raise refusal from None


def assignments(
    state: State, table: Table, given: Sequence[tuple[s.Name, exp.Expression]], qualifier: str, verb: str = "update"
) -> tuple[dict[str, exp.Expression], bool]:
    """Return the new values by column, and whether a field inside of a column is among them.

    Such a column gets a new ROW, of its fields and the new values.

    Args:
        verb: what could not be done, in messages.
    """
    what = f"cannot {verb} '{table.name}'"
    fields = {field.name.lower(): field for field in table.schema.fields}
    values: dict[str, exp.Expression] = {}
    inner: dict[str, list[tuple[s.Name, exp.Expression]]] = {}
    for name, value in given:
        parts = (
            name[1:]
            if len(name) > 1
            and name[0].lower() == qualifier.lower()
            and (name[1].lower() in fields or name[0].lower() not in fields)  # the alias comes before a column
            else name
        )
        field = fields.get(parts[0].lower())
        if field is None or len(parts) == 1:
            column = parts[0] if field is None else field.name
            if column in values:
                raise InvalidInputError(f"{what}: column '{column}' is assigned twice.", column=column)
            new = _default_of(field, with_session(state, value))
            values[column] = new if field is None else _typed(field.type, new)
        else:
            inner.setdefault(field.name, []).append((parts[1:], with_session(state, value)))
    for column, parts_of in inner.items():
        if column in values:
            raise InvalidInputError(f"{what}: column '{column}' and a field of it are both assigned.", column=column)
        kind = fields[column.lower()].type
        start = exp.column(exp.to_identifier(column, quoted=True), exp.to_identifier(qualifier, quoted=True))
        values[column] = _row_with(start, kind, parts_of, what, column)
    return values, bool(inner)


def _row_with(
    row: exp.Expression, kind: t.DataType, changed: Sequence[tuple[s.Name, exp.Expression]], what: str, path: str
) -> exp.Expression:
    """Return a ROW with other values of some of its fields."""
    if not isinstance(kind, t.Row):
        raise InvalidInputError(f"{what}: '{path}' is {kind}, and has no fields.", column=path)
    names = [field.name for field in kind.fields]
    folded = {name.lower(): name for name in names}
    for parts, _ in changed:
        if parts[0].lower() not in folded:
            raise InvalidInputError(f"{what}: '{path}' has no field '{parts[0]}'. {did_you_mean(parts[0], names)}")
    arguments: list[exp.Expression] = []
    for field in kind.fields:
        mine = [(parts[1:], value) for parts, value in changed if parts[0].lower() == field.name.lower()]
        old = exp.Dot(this=row.copy(), expression=exp.to_identifier(field.name, quoted=True))
        if not mine:
            new: exp.Expression = old
        elif not all(parts for parts, _ in mine):
            if len(mine) > 1:
                twice = f"{path}.{field.name}"
                raise InvalidInputError(f"{what}: '{twice}', or a part of it, is assigned twice.", column=twice)
            new = _typed(field.type, mine[0][1])
        else:
            new = _row_with(old, field.type, mine, what, f"{path}.{field.name}")
        arguments += [exp.Literal.string(field.name), new]
    return exp.Anonymous(this="named_struct", expressions=arguments)


def _needs_query(tree: exp.Expression) -> bool:
    """Return whether queries alone compute an expression: it has a subquery, or makes a nested value."""
    calls = {call.name.lower() for call in tree.find_all(exp.Anonymous)}
    return tree.find(exp.Query, exp.Exists, exp.Array) is not None or not calls.isdisjoint(_NESTED)


def _typed(kind: t.DataType, value: exp.Expression) -> exp.Expression:
    """Return a value that is given as text in the type of its column: SET takes '2026-01-31' for a date."""
    is_text = isinstance(value, exp.Literal) and value.is_string
    if t.is_nested(kind) or isinstance(kind, t.Char | t.VarChar) or not is_text:
        return value
    if not isinstance(kind, t.LocalZonedTimestamp):
        build.cast(Literal(value.name, t.string()), kind)  # refuses a text that is no value of the type
    return _cast(value, kind)


def _cast(value: exp.Expression, kind: t.DataType) -> exp.Expression:
    """Return a value in a type, by the name that queries know it by: there TIMESTAMP alone is an instant."""
    name = str(kind.with_nullable(True))
    if isinstance(kind, t.Binary | t.VarBinary | t.Timestamp):
        name = "TIMESTAMP_NTZ" if isinstance(kind, t.Timestamp) else "BINARY"
    return exp.Cast(this=value, to=exp.DataType.build(name, dialect=Queries))


def _default_of(field: t.Field | None, value: exp.Expression) -> exp.Expression:
    """Return a value, or the default of the column where the value is DEFAULT."""
    if not (isinstance(value, exp.Column) and value.name.upper() == "DEFAULT"):
        return value
    if field is None or field.default is None:
        return exp.Null()
    text = field.default
    if isinstance(field.type, t.LocalZonedTimestamp):  # the text means UTC, in whatever zone the statement runs
        instant = default_value(field)
        text = f"{instant.cast(pa.timestamp(instant.type.unit)).cast(pa.string()).as_py()}Z"
    return _cast(exp.Literal.string(text), field.type)


def _text(tree: exp.Expression, statement: s.Delete | s.Update) -> str:
    """Return an expression as text, without the names of the table before its columns."""
    return _without(tree, (statement.alias,) if statement.alias else statement.name)


def _without(tree: exp.Expression, whole: Sequence[str]) -> str:
    """Return an expression as text, without a name before its columns."""
    own = {tuple(part.lower() for part in whole[i:]) for i in range(len(whole))}

    def change(node: exp.Expression) -> exp.Expression:
        if not isinstance(node, exp.Column) or not node.table:
            return node
        parts = list(node.parts)
        names = [part.name.lower() for part in parts]
        for n in range(len(parts) - 1, 0, -1):
            if tuple(names[:n]) in own:
                rest = [part.copy() for part in parts[n:]]
                return exp.Column(this=rest[0]) if len(rest) == 1 else exp.Dot.build(rest)
        return node

    return sql_of(tree.copy().transform(change))


def sql_of(tree: exp.Expression) -> str:
    """Return the text of an expression, as `expr.text` reads it."""
    return str(tree.sql(dialect=Queries))


def _by_merge(
    state: State,
    engine: Engine,
    table: Table,
    statement: s.Delete | s.Update,
    where: exp.Expression | None,
    values: Mapping[str, exp.Expression] | None,
) -> Result:
    """Change the rows that a query finds: by their key, or in a table without one by their places.

    In a table that counts equal rows, it is by the columns that are looked at.
    """
    if not table.definition.keyed:
        return _by_places(state, engine, table, statement, where, values)
    keys = list(table.primary_key) or _looked_at(table, [where, *(values or {}).values()])
    new = [
        exp.Alias(this=value.copy(), alias=exp.to_identifier(f"{_NEW}{i}"))  # `alias_` names a subquery as a table
        for i, value in enumerate((values or {}).values())
    ]
    query = _selected(state, table, statement, keys, where).select(*new, copy=False)
    if not table.primary_key:
        query = _one_per_key(query, keys, [item.alias for item in new])
    with _named(table, list(values or {}), "delete from" if values is None else "update"):
        found = engine.query(state, query, table)
        _check_keys(table, found)
        relation = _of_columns(state, engine, table, found, keys, list(values or {}))
        nulls = not table.primary_key or table.definition.options.get(PRIMARY_KEY_NULLABLE)
        equal = "<=>" if nulls else "="
        on = " AND ".join(f"target.{_quoted(key)} {equal} source.{_quoted(key)}" for key in keys)
        merge = engine.merge(state, table, relation, on, ("target", "source"))
        if table.primary_key:
            merge = merge.by_keys()
        if values is None:
            merge = merge.when_matched_delete()
        else:
            merge = merge.when_matched_update({column: f"source.{_NEW}{i}" for i, column in enumerate(values)})
        return Result(snapshot=merge.execute())


@contextmanager
def _named(table: Table, columns: Sequence[str], verb: str) -> Iterator[None]:
    """Say in errors what the statement does and the columns that it sets, not what its merge says and calls them."""
    own = re.compile(rf"(?:source\.)?\b{_NEW}(\d+)\b")

    def name(found: re.Match[str]) -> str:
        return columns[int(found[1])] if int(found[1]) < len(columns) else found[0]

    try:
        yield
    except InvalidInputError as error:
        done = f"'{table.name}'"
        error.message = own.sub(name, error.message).replace(f"cannot merge into {done}", f"cannot {verb} {done}")
        if isinstance(column := error.context.get("column"), str):
            error.context["column"] = own.sub(name, column)
        raise


def _by_places(
    state: State,
    engine: Engine,
    table: Table,
    statement: s.Delete | s.Update,
    where: exp.Expression | None,
    values: Mapping[str, exp.Expression] | None,
) -> Result:
    """Change the rows of a table without a key that a query finds."""
    query = _selected(state, table, statement, [field.name for field in PLACES], where)
    query.args["from_"].this.meta[PLACED] = True
    given = [exp.Literal.number(1)] if values is None else [value.copy() for value in values.values()]
    new = [exp.Alias(this=value, alias=exp.to_identifier(f"{_NEW}{i}")) for i, value in enumerate(given)]
    columns = None if values is None else [_spelled(table, name) for name in values]
    with _named(table, columns or [], "delete from" if values is None else "update"):
        return Result(snapshot=engine.change_files(state, table, query.select(*new, copy=False), columns))


def _spelled(table: Table, name: str) -> str:
    """Return the name of a column as the table has it.

    Raises:
        InvalidInputError: it has none of this name.
    """
    names = [field.name for field in table.schema.shown.fields]
    found = next((each for each in names if each.lower() == name.lower()), None)
    if found is None:
        raise InvalidInputError(
            f"cannot update '{table.name}': it has no column '{name}'. Nothing was written. "
            f"{did_you_mean(name, names)}",
            column=name,
        )
    return found


def _by_keys(
    state: State, engine: Engine, table: Table, statement: s.Delete, where: exp.Expression, values: None = None
) -> Result:
    """Delete the rows that a query finds from the files of a table in which no row of kind -D removes them."""
    found = engine.query(state, _selected(state, table, statement, table.primary_key, where), table)
    _check_keys(table, found)
    return Result(snapshot=engine.delete_keys(table, found))


def _selected(
    state: State, table: Table, statement: s.Delete | s.Update, columns: Sequence[str], where: exp.Expression | None
) -> exp.Select:
    """Return the query of columns of the rows that a statement changes, those that wait for a compaction included."""
    own = statement.name[-1]
    if hides_level_0(table.definition.options):
        own += MARK + json.dumps({DELETION_VECTORS_MERGE_ON_READ.key: "true"})
    parts = [exp.to_identifier(part, quoted=True) for part in statement.name[:-1]]
    source = exp.Table(
        this=exp.to_identifier(own, quoted=True), db=parts[-1] if parts else None,
        catalog=parts[0] if len(parts) > 1 else None,
        alias=exp.TableAlias(this=exp.to_identifier(statement.alias, quoted=True)) if statement.alias else None,
    )  # fmt: skip
    qualifier = exp.to_identifier(statement.alias or statement.name[-1], quoted=True)
    chosen = [exp.column(exp.to_identifier(name, quoted=True), qualifier.copy()) for name in columns]
    query = exp.select(*chosen).from_(source)
    if statement.common is not None:
        query.set("with_", with_session(state, statement.common))
    return query if where is None else query.where(where)


def _check_keys(table: Table, found: Relation) -> None:
    """Refuse keys that a query gives without digits that the table stores: they would be other keys.

    Raises:
        InvalidInputError: names the column. Nothing was written.
    """
    for name, kind in zip(table.primary_key, found.types, strict=False):
        own = table.schema.field(name).type
        if is_fine(own) and not is_fine(kind):
            raise InvalidInputError(
                f"cannot change '{table.name}' by a query: its key column '{name}' is {own}, and queries on Spark have "
                "times with six digits of a second. Nothing was written. Run the statement with catalog.sql.",
                column=name,
            )


def _one_per_key(query: exp.Select, keys: Sequence[str], new: Sequence[str]) -> exp.Select:
    """Return a query with one row for each key; its rows have equal new values. Spark's DISTINCT takes no MAP."""
    by = [exp.column(exp.to_identifier(key, quoted=True)) for key in keys]
    values = [
        exp.Alias(
            this=exp.Anonymous(this="any_value", expressions=[exp.column(exp.to_identifier(name))]),
            alias=exp.to_identifier(name),
        )
        for name in new
    ]
    return exp.select(*by, *values).from_(query.subquery("_rows")).group_by(*(column.copy() for column in by))


def _of_columns(
    state: State, engine: Engine, table: Table, relation: Relation, keys: Sequence[str], changed: Sequence[str]
) -> Relation:
    """Return new values in the types of their columns, if there are nested ones: an empty array has no type."""
    fields = {field.name: field for field in table.schema.fields}
    if not any(name in fields and t.is_nested(fields[name].type) for name in changed):
        return relation
    if not all(name in fields for name in changed):
        return relation  # the merge tells the name that is not there
    wanted = [
        replace(fields[column], name=name) for column, name in zip([*keys, *changed], relation.names, strict=True)
    ]
    rows = engine.assigned(state, relation, [Assigned(field, i, by_name=True) for i, field in enumerate(wanted)])
    return Relation(relation.names, [field.type for field in wanted], rows, relation.sources)


def _looked_at(table: Table, trees: Sequence[exp.Expression | None]) -> list[str]:
    """Return the columns that expressions look at, at least one: rows with equal values in them share one fate.

    Raises:
        InvalidInputError: values of such a column do not compare.
    """
    names = {part.name.lower() for tree in trees if tree for node in tree.find_all(exp.Column) for part in node.parts}
    fields = table.schema.fields
    # Queries on Spark see six digits of times.
    plain = [field.name for field in fields if not (t.is_nested(field.type) or is_fine(field.type))]
    found = [field.name for field in fields if field.name.lower() in names] or plain[:1] or [fields[0].name]
    other = [name for name in found if name not in plain]
    if other:
        raise InvalidInputError(
            f"cannot change '{table.name}' by a query that looks at column '{other[0]}': the table has no primary key, "
            "so the query finds rows by the values of their columns, and values of type "
            f"{table.schema.field(other[0]).type} do not compare here. Nothing was written. Subqueries and nested "
            "values need a query: look at other columns beside them, or write their results into the statement.",
            column=other[0],
        )
    return found


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


# MERGE


def _merge(state: State, engine: Engine, statement: s.Merge) -> Result:
    table = state.table(statement.name)
    return _serial(table, lambda: _merge_once(state, engine, table, statement), COMPUTED)


def _merge_once(state: State, engine: Engine, table: Table, statement: s.Merge) -> Result:
    for clause in statement.clauses:
        for name, value in clause.assignments or ():
            _check_row_by_row(value, f"cannot merge into '{table.name}': column '{'.'.join(name)}'")
    relation = engine.query(state, with_session(state, statement.source), table)
    _check_source_names(state, engine, statement, relation.names, table)
    lifted = _with_values_of_source(state, statement, relation)
    if lifted is not statement:
        statement, relation = lifted, engine.query(state, with_session(state, lifted.source), table)
    alias = (statement.alias or statement.name[-1].partition("$")[0], statement.source_alias)
    merge = engine.merge(state, table, relation, sql_of(with_session(state, statement.on)), alias)
    for clause in statement.clauses:
        condition = None if clause.condition is None else sql_of(with_session(state, clause.condition))
        values = None
        if clause.assignments is not None:
            trees, nested = assignments(state, table, clause.assignments, alias[0], "merge into")
            if nested:
                raise UnsupportedError(
                    f"cannot merge into '{table.name}': MERGE sets whole columns, not fields inside of them. "
                    "Compute the ROW in the query behind USING, and set the column to it, or use UPDATE. Nothing was "
                    "written."
                )
            values = {column: sql_of(tree) for column, tree in trees.items()}
        match clause.matched, clause.action:
            case True, "update":
                merge = merge.when_matched_update(values, condition=condition)
            case True, "delete":
                merge = merge.when_matched_delete(condition=condition)
            case False, _:
                merge = merge.when_not_matched_insert(values, condition=condition)
            case None, "update":
                merge = merge.when_not_matched_by_source_update(values or {}, condition=condition)
            case None, "delete":
                merge = merge.when_not_matched_by_source_delete(condition=condition)
    return Result(snapshot=merge.execute())


def _check_source_names(state: State, engine: Engine, statement: s.Merge, columns: Sequence[str], table: Table) -> None:
    """Raise an error for a name in a MERGE that several columns of its query have.

    Args:
        columns: of the query; the second one of a name ends with `:1`.
    """
    if not any(_SECOND.search(column) for column in columns):
        return
    alias = statement.source_alias
    values = [tree for clause in statement.clauses for _, tree in clause.assignments or ()]
    conditions = [clause.condition for clause in statement.clauses if clause.condition is not None]
    found = [column for tree in (statement.on, *values, *conditions) for column in tree.find_all(exp.Column)]
    names = {column.name for column in found if column.table.lower() in ("", alias.lower())}
    if any(clause.assignments is None for clause in statement.clauses):  # SET * and INSERT *
        names |= {field.name for field in table.schema.fields}
    for name in sorted(names & set(columns)):
        column = exp.column(exp.to_identifier(name, quoted=True), exp.to_identifier(alias, quoted=True))
        engine.described(state, with_session(state, exp.select(column).from_(_rows_of(statement.source, alias))))


def _rows_of(source: exp.Expression, alias: str) -> exp.Expression:
    return exp.Subquery(this=source.copy(), alias=exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))


def _with_values_of_source(state: State, statement: s.Merge, relation: Relation) -> s.Merge:
    """Return a MERGE whose query computes the values and conditions that are not computed row by row as texts.

    Those that look at the source alone, that is; what looks at the table too stays as it is, and is refused.
    """
    new: list[exp.Expression] = []

    def lifted(tree: exp.Expression | None, *, bare: bool) -> exp.Expression | None:
        """Return a column of the query in place of an expression.

        Args:
            bare: names without a table are columns of the source.
        """
        if tree is None or not _is_beyond(state, statement, relation, tree, bare=bare):
            return tree
        name = exp.to_identifier(f"{_NEW}{len(new)}")
        new.append(exp.Alias(this=tree.copy(), alias=name.copy()))
        return exp.column(name, exp.to_identifier(statement.source_alias, quoted=True))

    clauses = []
    for clause in statement.clauses:
        bare = clause.matched is False
        values = clause.assignments and tuple((name, lifted(tree, bare=bare)) for name, tree in clause.assignments)
        clauses.append(replace(clause, condition=lifted(clause.condition, bare=bare), assignments=values))
    if not new:
        return statement
    source = statement.source.copy()
    assert isinstance(source, exp.Select)
    return replace(statement, source=source.select(*new, copy=False), clauses=tuple(clauses))


def _is_beyond(state: State, statement: s.Merge, relation: Relation, tree: exp.Expression, *, bare: bool) -> bool:
    """Return whether an expression looks at the source alone, and a text does not compute it; see `lifted`."""
    columns = list(tree.find_all(exp.Column))
    alias = statement.source_alias.lower()
    if not all(column.parts[0].name.lower() == alias if column.table else bare for column in columns):
        return False
    if _needs_query(tree):
        return True
    plain = _without(with_session(state, tree), (statement.source_alias,))
    try:
        fields = [
            t.Field(i, name, kind) for i, (name, kind) in enumerate(zip(relation.names, relation.types, strict=True))
        ]
        parse_projection(plain, fields, setting=Setting(state.zone, state.catalog.env.now_ms()))
    except (InvalidInputError, UnsupportedError) as error:
        return "column" not in error.context  # a text has fewer functions, and arguments of some that are literals
    return False


# EXPLAIN


def _explain(state: State, engine: Engine, statement: s.Explain) -> Result:
    inner = statement.statement
    lines = []
    match inner:
        case s.Query():
            lines.append(engine.explain(state, with_session(state, inner.tree)))
        case s.Insert():
            table = state.table(inner.name, inner.options)
            lines.append(f"write into {table.name}{', replacing rows' if inner.overwrite else ''}")
            lines.append(engine.explain(state, with_session(state, without_defaults(inner.query))))
        case s.Delete() | s.Update():
            table = state.table(inner.name)
            asked = None if inner.where is None else with_session(state, inner.where)
            text = None if asked is None or _needs_query(asked) else _text(asked, inner)
            where = None if text is None or _refusal(state, table, [text], []) is not None else text
            verb = "delete from" if isinstance(inner, s.Delete) else "update"
            lines.append(f"{verb} {table.name}")
            lines.append(str(table.read(where=where, timezone=state.zone).explain()))
        case s.Merge():
            table = state.table(inner.name)
            lines.append(f"merge into {table.name} on {sql_of(inner.on)}")
            lines.append(engine.explain(state, with_session(state, inner.source)))
        case _:
            lines.append(f"{type(inner).__name__}: no rows are read")
    return rows_of(["plan"], [["\n".join(lines)]])


RUNS: Final[dict[type[s.Statement], Callable[..., Result]]] = {
    s.Query: _query, s.Insert: unwritten()(_insert), s.Delete: unwritten()(_delete), s.Update: unwritten()(_update),
    s.Merge: unwritten()(_merge), s.Explain: _explain,
}  # fmt: skip

"""Statements that tell what is there: SHOW, DESCRIBE, SET, RESET."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa

from merganser.catalogs.definitions import View
from merganser.catalogs.names import SYSTEM
from merganser.codec.binary_row import deserialize
from merganser.errors import InvalidInputError, NotFoundError
from merganser.handle.table import Table
from merganser.meta.table_state import MetaReader
from merganser.options.registry import did_you_mean
from merganser.options.write import BUCKET, CHANGE_TRACKING, FILE_FORMAT, KAFKA_TOPIC, PARTITION_DEFAULT_NAME
from merganser.schema import types as t
from merganser.sql import statements as s
from merganser.sql.define import partitions_of
from merganser.sql.engine import Engine
from merganser.sql.literals import spelled_spec
from merganser.sql.result import Result, rows_of
from merganser.sql.sources import fields_of
from merganser.sql.state import State, no_database
from merganser.storage.paths import escape, partition_text

_LOG: Final = ("system", "kafka.bootstrap.servers", "retention", "kafka." + "topic")
"""Options of the log store, behind `log.`."""
_DETAIL: Final = (
    "name", *(f"log.{name}" for name in _LOG[:3]), "file.path", f"log.{_LOG[3]}", "watermark", "file.format", "bucket",
    "change-tracking", "last-modified", "num-files",
)  # fmt: skip


def _matches(pattern: str | None) -> Callable[[str], bool]:
    """Return a test of names by a pattern: `*` is any text, `|` separates alternatives, in any case."""
    if pattern is None:
        return lambda name: True
    parts = [re.escape(part.strip()).replace(r"\*", ".*").replace("%", ".*") for part in pattern.split("|")]
    found = re.compile("|".join(f"(?:{part})" for part in parts), re.IGNORECASE)
    return lambda name: found.fullmatch(name) is not None


def _databases(state: State, engine: Engine, statement: s.ShowDatabases) -> Result:
    fits = _matches(statement.pattern)
    return rows_of(["namespace"], [[name] for name in sorted(state.catalog.list_databases()) if fits(name)])


def _tables(state: State, engine: Engine, statement: s.ShowTables) -> Result:
    database = state.database if statement.database is None else state.database_of(statement.database)
    known = [*state.catalog.list_databases(), SYSTEM]
    if database not in known:
        raise no_database(database, known)
    fits = _matches(statement.pattern)
    views = [] if database == SYSTEM else state.catalog.list_views(database)
    names = sorted([*state.catalog.list_tables(database), *views])
    rows = [[database, name, False] for name in names if fits(name)]
    return rows_of(["namespace", "tableName", "isTemporary"], rows, [pa.string(), pa.string(), pa.bool_()])


def _stored(state: State, engine: Engine, statement: s.ShowStored) -> Result:
    database = state.database if statement.database is None else state.database_of(statement.database)
    known = [*state.catalog.list_databases(), SYSTEM]
    if database not in known:
        raise no_database(database, known)
    fits = _matches(statement.pattern)
    if statement.what == "FUNCTIONS":
        names = [] if database == SYSTEM else state.catalog.list_functions(database)
        return rows_of(["function"], [[f"{database}.{name}"] for name in names if fits(name)])
    names = [] if database == SYSTEM else state.catalog.list_views(database)
    rows = [[database, name, False] for name in names if fits(name)]
    return rows_of(["namespace", "viewName", "isTemporary"], rows, [pa.string(), pa.string(), pa.bool_()])


def _show(state: State, engine: Engine, statement: s.Show) -> Result:
    handle = state.handle(statement.name)
    match statement.what:
        case "COLUMNS":
            return rows_of(["col_name"], [[field.name] for field in fields_of(handle, {})])
        case "TBLPROPERTIES" if isinstance(handle, View):
            return _properties(handle.options, statement.key)
        case "CREATE TABLE" if isinstance(handle, View):
            return rows_of(["createtab_stmt"], [[view_text(handle)]])
    table = state.table(statement.name)
    match statement.what:
        case "TAGS":
            return rows_of(["tag"], [[name] for name in sorted(tag.name for tag in table.tags.list())])
        case "BRANCHES":
            return rows_of(["branch"], [[name] for name in sorted(branch.name for branch in table.branches.list())])
        case "TBLPROPERTIES":
            return _properties(table.definition.schema.shown.options, statement.key)
        case "CREATE TABLE":
            return rows_of(["createtab_stmt"], [[create_text(table)]])
    return _partitions(table, statement)


def _properties(options: Mapping[str, str], key: str | None) -> Result:
    keys = sorted(options) if key is None else [key]
    return rows_of(["key", "value"], [[key, options.get(key, "<undefined>")] for key in keys])


def _partitions(table: Table, statement: s.Show) -> Result:
    names = table.partition_by
    if not names:
        raise InvalidInputError(f"cannot show the partitions of '{table.name}': the table has no partition columns.")
    asked: Mapping[str, Any] = {}
    if statement.partition is not None:
        asked = (table.stored_specs([spelled_spec(table, statement.partition)], "show the partitions of") or [{}])[0]
    found = [
        row for row in partitions_of(table) if all(row[names.index(name)] == value for name, value in asked.items())
    ]
    found.sort(key=lambda row: [(value is not None, value) for value in row])
    return rows_of(["partition"], [[text] for text in _texts(table, found)])


def _texts(table: Table, rows: list[tuple[Any, ...]]) -> list[str]:
    """Return stored values of partitions as `a=1/b=2`, as their directories are named."""
    options = table.definition.options
    names = list(zip(table.partition_by, table.definition.partition_types, strict=True))
    default = options.get(PARTITION_DEFAULT_NAME)
    return [
        "/".join(
            f"{escape(name)}={escape(partition_text(value, kind, default_name=default, legacy=False))}"
            for (name, kind), value in zip(names, row, strict=True)
        )
        for row in rows
    ]


def _with_comments(kind: t.DataType) -> str:
    """Return a type as text, with the comments of the fields inside."""
    if not any(field.description is not None for field in t.nested_fields(kind)):
        return str(kind)
    match kind:
        case t.Row():
            fields = (
                f"{t.quoted(field.name)} {_with_comments(field.type)}"
                + ("" if field.description is None else f" COMMENT {_string(field.description)}")
                for field in kind.fields
            )
            text = f"ROW<{', '.join(fields)}>"
        case t.Map():
            text = f"MAP<{_with_comments(kind.key)}, {_with_comments(kind.value)}>"
        case t.Vector():
            text = f"VECTOR<{_with_comments(kind.element)}, {kind.length}>"
        case t.Array():
            text = f"ARRAY<{_with_comments(kind.element)}>"
        case t.Multiset():
            text = f"MULTISET<{_with_comments(kind.element)}>"
        case _:
            text = str(kind.with_nullable(True))
    return text if kind.nullable else f"{text} NOT NULL"


def create_text(table: Table) -> str:
    """Return a CREATE TABLE that makes a table like this one."""
    schema = table.definition.schema.shown
    lines = []
    for field in schema.fields:
        line = f"  {_quoted(field.name)} {_with_comments(field.type)}"
        if field.default is not None:
            line += f" DEFAULT {default_literal(field)}"
        if field.description is not None:
            line += f" COMMENT {_string(field.description)}"
        lines.append(line)
    if schema.primary_keys:
        lines.append(f"  PRIMARY KEY ({', '.join(map(_quoted, schema.primary_keys))}) NOT ENFORCED")
    database, _, name = table.name.partition(".")
    text = f"CREATE TABLE {_quoted(database)}.{_quoted(name)} (\n" + ",\n".join(lines) + "\n)"
    if schema.comment:
        text += f"\nCOMMENT {_string(schema.comment)}"
    if schema.partition_keys:
        text += f"\nPARTITIONED BY ({', '.join(map(_quoted, schema.partition_keys))})"
    options = {key: value for key, value in schema.options.items() if key not in ("path", KAFKA_TOPIC.key)}
    if options:
        pairs = ",\n".join(f"  {_string(key)} = {_string(value)}" for key, value in sorted(options.items()))
        text += f"\nWITH (\n{pairs}\n)"
    return text


def view_text(view: View) -> str:
    """Return a CREATE VIEW that makes a view like this one."""
    database, _, name = view.name.partition(".")
    lines = [
        f"  {_quoted(field.name)}" + ("" if field.description is None else f" COMMENT {_string(field.description)}")
        for field in view.fields
    ]
    text = f"CREATE VIEW {_quoted(database)}.{_quoted(name)} (\n" + ",\n".join(lines) + "\n)"
    if view.comment:
        text += f"\nCOMMENT {_string(view.comment)}"
    if view.options:
        pairs = ",\n".join(f"  {_string(key)} = {_string(value)}" for key, value in sorted(view.options.items()))
        text += f"\nTBLPROPERTIES (\n{pairs}\n)"
    return f"{text}\nAS {view.sql}"


def default_literal(field: t.Field) -> str:
    """Return the default of a column as SQL text."""
    if isinstance(field.type, t.Array | t.Map | t.Row):
        return f"CAST({_string(field.default or '')} AS STRING)"
    return _string(field.default or "")


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _string(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def _describe(state: State, engine: Engine, statement: s.Describe) -> Result:
    handle = state.handle(statement.name)
    fields = fields_of(handle, {})
    if statement.column is not None:
        found = _column(fields, statement.column)
        if found is None:
            raise InvalidInputError(
                f"there is no column '{statement.column}' in '{handle.name}'. "
                f"{did_you_mean(statement.column, [f.name for f in fields])}",
                column=statement.column,
            )
        info = [["col_name", found.name], ["data_type", str(found.type)], ["comment", found.description or "NULL"]]
        return rows_of(["info_name", "info_value"], info)
    rows: list[list[str | None]] = [[f.name, str(f.type), f.description] for f in fields]
    if isinstance(handle, Table):
        by_name = {f.name: f for f in fields}
        if handle.partition_by:
            rows.append(["# Partition Information", "", ""])
            rows.append(["# col_name", "data_type", "comment"])
            rows += [[name, str(by_name[name].type), by_name[name].description] for name in handle.partition_by]
        if statement.extended:
            rows += _details(state, handle)
    elif isinstance(handle, View) and statement.extended:
        options = ", ".join(f"{key}={value}" for key, value in sorted(handle.options.items()))
        rows += [["", "", ""], ["# Detailed View Information", "", ""], ["Name", handle.name, ""]]
        rows += [["Comment", handle.comment or "", ""], ["View Text", handle.sql, ""]]
        rows += [["View Properties", f"[{options}]", ""]]
    return rows_of(["col_name", "data_type", "comment"], rows)


def _describe_function(state: State, engine: Engine, statement: s.DescribeFunction) -> Result:
    """Describe a function as Spark does."""
    found = state.catalog.function(state.full(statement.name))
    kinds = " ".join(sorted({str(each.get("type")) for each in found.definitions.values()}))
    inputs = [] if found.inputs is None else [f"{field.name} {field.type}" for field in found.inputs]
    lines = [("Function:", found.name), ("Type:", "SCALAR" if found.sql is not None else kinds or "none")]
    lines += [("Input:" if i == 0 else "", text) for i, text in enumerate(inputs or ["()"])]
    if found.returns:
        lines.append(("Returns:", str(found.returns[0].type)))
    if statement.extended:
        if found.comment is not None:
            lines.append(("Comment:", found.comment))
        lines.append(("Deterministic:", str(found.deterministic).lower()))
        bodies = [json.dumps(each, ensure_ascii=False) for each in found.definitions.values()]
        for i, text in enumerate(bodies if found.sql is None else [found.sql]):
            lines.append(("Body:" if i == 0 else "", text))
    width = max(len(name) for name, _ in lines)
    return rows_of(["function_desc"], [[f"{name:<{width}} {text}".rstrip()] for name, text in lines])


def _column(fields: Any, name: str) -> t.Field | None:
    parts = name.split(".")
    found: t.Field | None = None
    for part in parts:
        found = next((f for f in fields if f.name == part), None) or next(
            (f for f in fields if f.name.lower() == part.lower()), None
        )
        if found is None:
            return next((f for f in fields if f.name == name), None)
        fields = found.type.fields if isinstance(found.type, t.Row) else ()
    return found


def _details(state: State, table: Table) -> list[list[str | None]]:
    schema = table.definition.schema.shown
    options = ", ".join(f"{key}={value}" for key, value in sorted(schema.options.items()))
    rows: list[list[str | None]] = [["", "", ""], ["# Detailed Table Information", "", ""]]
    rows.append(["Name", table.name, ""])
    rows.append(["Comment", schema.comment or "", ""])
    rows.append(["Primary Key", ", ".join(schema.primary_keys), ""])
    rows.append(["Partitions", ", ".join(schema.partition_keys), ""])
    rows.append(["Location", table.path, ""])
    rows.append(["Table Properties", f"[{options}]", ""])
    return rows


def _detail(state: State, engine: Engine, statement: s.DescribeDetail) -> Result:
    table = state.table(statement.name)
    options = table.options
    latest = table.latest_snapshot()
    live = [] if latest is None else list(MetaReader(table.definition.paths, table.env, table.name).state(latest).live)
    if statement.partition is not None:
        named = spelled_spec(table, statement.partition)
        lacking = [name for name in table.partition_by if name not in named]
        if lacking or not table.partition_by:
            raise InvalidInputError(
                f"cannot describe a partition of '{table.name}': PARTITION must name all partition columns"
                f" ({', '.join(table.partition_by) or 'the table has none'})."
            )
        stored = (table.stored_specs([named], "describe a partition of") or [{}])[0]
        row = tuple(stored[name] for name in table.partition_by)
        kinds = table.definition.partition_types
        live = [entry for entry in live if tuple(deserialize(entry.partition, kinds)) == row]
        text = _texts(table, [row])[0]
        if not live:
            raise NotFoundError(f"'{table.name}' has no partition {text}.")
        return rows_of(
            ["partition", "file.path", "last-modified", "num-files"],
            [[text, f"{table.path}/{text}", _modified(live), len(live)]],
            [pa.string(), pa.string(), pa.string(), pa.int64()],
        )
    log = [options.get(f"log.{name}", options.get(name)) for name in _LOG]
    row_of = [
        table.name, log[0] or "none", *log[1:3], table.path, log[3],
        None if latest is None else _text(latest.watermark), options.get(FILE_FORMAT.key, FILE_FORMAT.default),
        options.get(BUCKET.key, str(BUCKET.default)), options.get(CHANGE_TRACKING.key, "true"),
        _modified(live), len(live),
    ]  # fmt: skip
    return rows_of(_DETAIL, [row_of], [*[pa.string()] * (len(_DETAIL) - 1), pa.int64()])


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _modified(live: Any) -> str | None:
    """Return when the newest of some files was made."""
    times = [entry.file.creation_time_ms for entry in live if entry.file.creation_time_ms is not None]
    return f"{datetime.fromtimestamp(max(times) / 1000, UTC):%Y-%m-%d %H:%M:%S}" if times else None


def _set(state: State, engine: Engine, statement: s.SetOption) -> Result:
    if statement.key is None:
        return rows_of(["key", "value"], [[key, value] for key, value in sorted(state.options.items())])
    if statement.value is None:
        return rows_of(["key", "value"], [[statement.key, state.shown(statement.key) or "<undefined>"]])
    state.set(statement.key, statement.value)
    return Result()


def _reset(state: State, engine: Engine, statement: s.Reset) -> Result:
    state.reset(statement.key)
    return Result()


RUNS: Final[dict[type[s.Statement], Callable[..., Result]]] = {
    s.ShowStored: _stored, s.DescribeFunction: _describe_function,
    s.ShowDatabases: _databases, s.ShowTables: _tables, s.Show: _show, s.Describe: _describe,
    s.DescribeDetail: _detail, s.SetOption: _set, s.Reset: _reset,
}  # fmt: skip

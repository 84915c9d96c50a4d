"""Statements that define: databases, tables, columns, options, tags, buckets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from sqlglot import exp

from merganser import changes as ch
from merganser.catalogs.definitions import SPARK, Function, View, definition_of
from merganser.catalogs.names import SYSTEM
from merganser.codec.binary_row import deserialize
from merganser.errors import AlreadyExistsError, InvalidInputError, NotFoundError
from merganser.expr.names import spelled
from merganser.expr.setting import Setting
from merganser.handle.table import Table
from merganser.meta.table_state import MetaReader
from merganser.options.registry import did_you_mean, is_of_a_table
from merganser.options.write import KAFKA_TOPIC
from merganser.rules import named_columns
from merganser.schema import types as t
from merganser.schema.types_text import UNNUMBERED, number_fields
from merganser.sql import statements as s
from merganser.sql.calls import checked, with_session
from merganser.sql.engine import Engine
from merganser.sql.literals import default_text, spelled_spec, value_of
from merganser.sql.result import Result
from merganser.sql.rows import insert_into
from merganser.sql.state import State, no_database
from merganser.sql.stored import check_stored_type, described, nullable_throughout
from merganser.sql.unwritten import unwritten

_COMMENT: Final = "comment"
_TRACKING: Final = "change-tracking"
_OFF: Final = "change-tracking.off-partitions"


def _create_database(state: State, engine: Engine, statement: s.CreateDatabase) -> Result:
    state.catalog.create_database(state.database_of(statement.name), if_not_exists=statement.if_not_exists)
    return Result()


def _drop_database(state: State, engine: Engine, statement: s.DropDatabase) -> Result:
    name = state.database_of(statement.name)
    _check_database(state, name, statement.if_exists)
    state.catalog.drop_database(name, if_exists=statement.if_exists, cascade=statement.cascade)
    return Result()


def _check_database(state: State, name: str, if_exists: bool = False) -> None:
    known = [*state.catalog.list_databases(), SYSTEM]
    if name not in known and not if_exists:
        raise no_database(name, known)


def _use(state: State, engine: Engine, statement: s.Use) -> Result:
    name = statement.name
    if len(name) == 1 and name[0] == state.catalog_name and name[0] not in state.catalog.list_databases():
        return Result()
    database = state.database_of(name)
    _check_database(state, database)
    state.database = database
    return Result()


def _create_table(state: State, engine: Engine, statement: s.CreateTable) -> Result:
    full = state.full(statement.name)
    if "$" in full:
        raise InvalidInputError(f"cannot create '{full}': '$' stands before the name of a branch or system table.")
    options = dict(statement.options)
    if statement.primary_key is not None and "primary-key" in options:
        raise InvalidInputError(
            f"cannot create '{full}': the primary key is given twice, by PRIMARY KEY and by the option 'primary-key'. "
            "Leave one of them out."
        )
    options = {**state.new_table_options(), **options}
    options = _of_fluss(full, options, statement)
    if statement.like is not None:
        return _create_like(state, full, statement)
    if statement.query is not None:
        return _create_as(state, engine, full, statement, options)
    fields = [_field(column, f"cannot create '{full}'") for column in statement.columns]
    check_told_apart(fields, f"cannot create '{full}'")
    names = [field.name for field in fields]
    state.catalog.create_table(
        full, fields, primary_key=spelled(statement.primary_key or (), names),
        partition_by=spelled(statement.partition_by, names), options=_respelled(options, names),
        comment=statement.comment, if_not_exists=statement.if_not_exists,
    )  # fmt: skip
    return Result()


def _of_fluss(full: str, options: dict[str, str], statement: s.CreateTable) -> dict[str, str]:
    """Take the names of Fluss for buckets. Its tables have the partition columns in their key."""
    if "bucket.num" in options or "bucket.key" in options:
        key = statement.primary_key or tuple(k.strip() for k in options.get("primary-key", "").split(",") if k.strip())
        in_key = {column.lower() for column in key}
        lacking = [column for column in statement.partition_by if key and column.lower() not in in_key]
        if lacking:
            raise InvalidInputError(
                f"cannot create '{full}': the primary key ({', '.join(key)}) lacks the partition column "
                f"'{lacking[0]}', which a table with 'bucket.num' needs. Add it to the primary key.",
                column=lacking[0],
            )
        for theirs, ours in (("bucket.num", "bucket"), ("bucket.key", "bucket-key")):
            if theirs in options:
                options[ours] = options.pop(theirs)
    return options


def _field(column: s.ColumnDef, what: str) -> t.Field:
    default = _default(column.default, f"{what}: the default of column '{column.name}'")
    return t.Field(UNNUMBERED, column.name, column.type, column.comment, default)


def _default(tree: exp.Expression | None, what: str) -> str | None:
    value = None if tree is None else value_of(tree, Setting(), what)
    return None if value is None else default_text(value)


def _create_like(state: State, full: str, statement: s.CreateTable) -> Result:
    source = state.table(statement.like or ())
    if statement.if_not_exists and _exists(state, full):
        return Result()
    schema = source.schema
    own = dict(source.definition.schema.options) if statement.like_options else {}
    own.pop(KAFKA_TOPIC.key, None)  # each log has a topic of its own
    options = {**own, **_respelled(statement.options, schema.names)}
    for key in ("path", "primary-key", "partition"):
        options.pop(key, None)
    state.catalog.create_table(
        full, schema.fields, primary_key=schema.primary_keys, partition_by=schema.partition_keys, options=options,
        comment=statement.comment if statement.comment is not None else schema.comment,
        if_not_exists=statement.if_not_exists,
    )  # fmt: skip
    return Result()


def _exists(state: State, full: str) -> bool:
    try:
        state.catalog.table(full)
    except NotFoundError:
        return False
    return True


@unwritten("Nothing was created.")
def _create_as(state: State, engine: Engine, full: str, statement: s.CreateTable, options: dict[str, str]) -> Result:
    if _exists(state, full):
        if statement.if_not_exists:
            return Result()
        raise AlreadyExistsError(f"table '{full}' already exists. Choose another name.", table=full)
    relation = engine.query(state, with_session(state, statement.query))  # type: ignore[arg-type]
    fields = [
        t.Field(UNNUMBERED, name, nullable_throughout(kind))
        for name, kind in zip(relation.names, relation.types, strict=True)
    ]
    check_told_apart(fields, f"cannot create '{full}'")
    for field in fields:
        check_stored_type(field, f"cannot create '{full}'")
    names = [field.name for field in fields]
    partition_by, options = spelled(statement.partition_by, names), _respelled(options, names)
    try:
        with state.catalog.creating(
            full, fields, primary_key=spelled(statement.primary_key or (), names), partition_by=partition_by,
            options=options, comment=statement.comment,
        ) as table:  # fmt: skip
            return insert_into(state, engine, table, relation)
    except AlreadyExistsError:
        if statement.if_not_exists and _exists(state, full):  # another process made it meanwhile
            return Result()
        raise


def check_told_apart(fields: Sequence[t.Field], what: str) -> None:
    """Check that no two columns, and no two fields of a ROW at any depth, have names that differ only in case.

    Raises:
        InvalidInputError: begins with `what`; statements could not tell them apart.
    """
    seen: dict[str, str] = {}
    for field in fields:
        _check_new_name(field.name, seen.get(field.name.lower()), what)
        seen[field.name.lower()] = field.name
        _check_inside(field.type, what)


def _check_inside(kind: t.DataType, what: str) -> None:
    match kind:
        case t.Row():
            check_told_apart(kind.fields, what)
        case t.Array() | t.Multiset():
            _check_inside(kind.element, what)
        case t.Map():
            _check_inside(kind.key, what)
            _check_inside(kind.value, what)


def _check_new_name(name: str, other: str | None, what: str) -> None:
    if other is not None and other != name:
        raise InvalidInputError(
            f"{what}: '{name}' and '{other}' differ only in case, and names in statements match in any case. Nothing "
            "was changed. Choose another name.",
            column=name,
        )


def _siblings(fields: Sequence[t.Field], path: Sequence[str]) -> Sequence[t.Field]:
    """Return the columns or fields beside which a path such as `r.x` lies; none if there is no such place."""
    kind: t.DataType | None = t.Row(fields=tuple(fields))
    for part in path[:-1]:
        match kind:
            case t.Row():
                kind = next((field.type for field in kind.fields if field.name.lower() == part.lower()), None)
            case t.Array():
                kind = kind.element
            case t.Map():
                kind = kind.value
    return kind.fields if isinstance(kind, t.Row) else ()


def _respelled(options: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    """Return options with names of columns as the columns have them."""
    return named_columns.respelled(options, lambda name: spelled([name], names)[0])


def _real(fields: Sequence[t.Field], column: str) -> str:
    """Return a path such as `r.x` as the columns and fields are called; what is not there stays as it is."""
    (whole,) = spelled([column], [field.name for field in fields])
    path = column.split(".")
    if whole != column or len(path) == 1 or any(field.name == column for field in fields):
        return whole
    for i in range(len(path)):
        path[i : i + 1] = spelled(path[i : i + 1], [field.name for field in _siblings(fields, path[: i + 1])])
    return ".".join(path)


def _beside(fields: Sequence[t.Field], column: str, name: str | None) -> str | None:
    """Return the name of a column or field beside which another one is to stand, as it is called."""
    return None if name is None else spelled([name], [field.name for field in _siblings(fields, column.split("."))])[0]


def _drop_table(state: State, engine: Engine, statement: s.DropTable) -> Result:
    full = state.full(statement.name)
    if "$" in full:
        raise InvalidInputError(f"cannot drop '{full}': it belongs to another table. Use CALL sys.delete_branch.")
    if not statement.if_exists:
        if isinstance(state.handle(statement.name), View):
            raise InvalidInputError(f"cannot drop table '{full}': it is a view. Use DROP VIEW.", table=full)
    elif full.partition(".")[0] not in state.catalog.list_databases():
        return Result()
    state.catalog.drop_table(full, if_exists=statement.if_exists)
    return Result()


# views and functions


def _is_taken(state: State, name: s.Name) -> bool:
    """Return whether there is a table or view of a name."""
    try:
        state.handle(name)
    except NotFoundError:
        return False
    return True


def _create_view(state: State, engine: Engine, statement: s.CreateView) -> Result:
    full = state.full(statement.name)
    old = state.catalog.view(full) if statement.must_exist else None
    if statement.if_not_exists and _is_taken(state, statement.name):
        return Result()
    fields, text = described(state, engine, full, statement.query_text, statement.columns, statement.query)
    state.catalog.create_view(
        full, text, columns=fields, comment=old.comment if old else statement.comment,
        options=old.options if old else statement.options, replace=statement.replace,
        if_not_exists=statement.if_not_exists,
    )  # fmt: skip
    return Result()


def _alter_view(state: State, engine: Engine, statement: s.AlterView) -> Result:
    full = state.full(statement.name)
    there = state.catalog.view(full).options
    made: list[ch.Change] = [
        ch.set_comment(value) if key == _COMMENT else ch.set_option(key, value)
        for key, value in statement.options.items()
    ]
    for key in statement.removed:
        if key == _COMMENT:
            made.append(ch.set_comment(None))
        elif key in there:
            made.append(ch.remove_option(key))
        elif not statement.if_exists:
            raise InvalidInputError(
                f"cannot alter '{full}': it has no property '{key}'. Nothing was changed. Write UNSET TBLPROPERTIES IF "
                "EXISTS if it may be missing.",
                table=full,
            )
    if made:
        state.catalog.alter_view(full, made)
    return Result()


def _rename_view(state: State, engine: Engine, statement: s.RenameView) -> Result:
    old = state.full(statement.name)
    new = statement.new_name if len(statement.new_name) > 1 else (old.partition(".")[0], *statement.new_name)
    state.catalog.rename_view(old, state.full(new))
    return Result()


def _drop_view(state: State, engine: Engine, statement: s.DropView) -> Result:
    full = state.full(statement.name)
    if not statement.if_exists and not isinstance(state.handle(statement.name), View):
        raise InvalidInputError(f"cannot drop view '{full}': it is a table. Use DROP TABLE.", table=full)
    state.catalog.drop_view(full, if_exists=statement.if_exists)
    return Result()


def _create_function(state: State, engine: Engine, statement: s.CreateFunction) -> Result:
    full = state.full(statement.name)
    fields = [
        t.Field(UNNUMBERED, c.name, c.type, c.comment, None if c.default is None else _text(c.default))
        for c in statement.parameters
    ]
    check_told_apart(fields, f"cannot create function '{full}'")
    definitions = {SPARK: definition_of(statement.expression, full)}
    returns = None if statement.returns is None else (t.Field(0, full.partition(".")[2], statement.returns),)
    made = checked(state, engine, Function(full, number_fields(fields)[0], returns, definitions))
    assert made.returns is not None
    state.catalog.create_function(
        full, made.inputs, made.returns[0].type, definitions, comment=statement.comment,
        deterministic=statement.deterministic, replace=statement.replace, if_not_exists=statement.if_not_exists,
    )  # fmt: skip
    return Result()


def _drop_function(state: State, engine: Engine, statement: s.DropFunction) -> Result:
    state.catalog.drop_function(state.full(statement.name), if_exists=statement.if_exists)
    return Result()


# tables


def _rename_table(state: State, engine: Engine, statement: s.RenameTable) -> Result:
    state.table(statement.name)
    old = state.full(statement.name)
    new = statement.new_name if len(statement.new_name) > 1 else (old.partition(".")[0], *statement.new_name)
    state.catalog.rename_table(old, state.full(new))
    return Result()


def _alter(state: State, name: s.Name, changes: list[ch.Change]) -> Result:
    state.table(name).alter(changes)
    return Result()


def _add_columns(state: State, engine: Engine, statement: s.AddColumns) -> Result:
    what = f"cannot alter '{state.full(statement.name)}'"
    known = state.table(statement.name).schema.fields
    for i, column in enumerate(statement.columns):
        path = column.name.split(".")
        beside = [field.name for field in _siblings(known, path)]
        beside += [
            other.name.split(".")[-1] for other in statement.columns[:i] if other.name.split(".")[:-1] == path[:-1]
        ]
        _check_new_name(path[-1], next((name for name in beside if name.lower() == path[-1].lower()), None), what)
        _check_inside(column.type, what)
    every = [*known, *(t.Field(UNNUMBERED, column.name, column.type) for column in statement.columns)]
    made: list[ch.Change] = []
    for column in statement.columns:
        inside, dot, new = column.name.rpartition(".")
        name, default = f"{_real(known, inside)}{dot}{new}", _default(column.default, what)
        after = _beside(every, name, column.after)
        made.append(
            ch.add_column(name, column.type, after=after, first=column.first, comment=column.comment, default=default)
        )
    return _alter(state, statement.name, made)


def _drop_columns(state: State, engine: Engine, statement: s.DropColumns) -> Result:
    fields = state.table(statement.name).schema.fields
    columns = [_real(fields, column) for column in statement.columns]
    if statement.if_exists:
        names = {field.name.lower() for field in fields}
        columns = [c for c in columns if "." in c or c.lower() in names]
        if not columns:
            return Result()
    return _alter(state, statement.name, [ch.drop_column(column) for column in columns])


def _rename_column(state: State, engine: Engine, statement: s.RenameColumn) -> Result:
    fields = state.table(statement.name).schema.fields
    column, new = _real(fields, statement.column), statement.new_name
    path = column.split(".")
    beside = [field.name for field in _siblings(fields, path)]
    other = next((name for name in beside if name.lower() == new.lower() and name.lower() != path[-1].lower()), None)
    _check_new_name(new, other, f"cannot alter '{state.full(statement.name)}'")
    return _alter(state, statement.name, [ch.rename_column(column, new)])


def _alter_column(state: State, engine: Engine, statement: s.AlterColumn) -> Result:
    made: list[ch.Change] = []
    fields = state.table(statement.name).schema.fields
    column = _real(fields, statement.column)
    if statement.type is not None:
        _check_inside(statement.type, f"cannot alter '{state.full(statement.name)}'")
        made.append(ch.retype_column(column, statement.type.with_nullable(True)))
        if statement.with_nullability:
            made.append(ch.set_nullable(column, statement.type.nullable))
    if statement.nullable is not None:
        made.append(ch.set_nullable(column, statement.nullable))
    if statement.default is not None:
        what = f"cannot alter '{state.full(statement.name)}': the default of column '{column}'"
        made.append(ch.set_default(column, _default(statement.default, what)))
    if statement.drop_default:
        made.append(ch.set_default(column, None))
    if statement.comment is not None:
        made.append(ch.comment_column(column, statement.comment))
    if statement.first or statement.after:
        made.append(ch.move_column(column, after=_beside(fields, column, statement.after), first=statement.first))
    return _alter(state, statement.name, made)


def _set_options(state: State, engine: Engine, statement: s.SetOptions) -> Result:
    if statement.partition is not None:
        return _track_partition(state, statement)
    made: list[ch.Change] = []
    for key, value in _respelled(statement.options, state.table(statement.name).schema.names).items():
        made.append(ch.set_comment(value) if key == _COMMENT else ch.set_option(key, value))
    return _alter(state, statement.name, made)


def _track_partition(state: State, statement: s.SetOptions) -> Result:
    others = [key for key in statement.options if key != _TRACKING]
    full = state.full(statement.name)
    if others:
        raise InvalidInputError(
            f"cannot set '{others[0]}' for a partition of '{full}': only '{_TRACKING}' can be set per partition."
        )
    value = statement.options[_TRACKING].strip().lower()
    if value not in ("true", "false"):
        raise InvalidInputError(f"cannot set '{_TRACKING}' to '{value}'. Give true or false.")
    table = state.table(statement.name)
    named = spelled_spec(table, statement.partition or {})
    stored = table.stored_specs([named], "alter")
    lacking = [column for column in table.partition_by if column not in named]
    if lacking or not stored:
        raise InvalidInputError(f"cannot alter '{full}': PARTITION must name all of {', '.join(table.partition_by)}.")
    text = "/".join(f"{column}={named[column]}" for column in table.partition_by)
    off = [part for part in table.options.get(_OFF, "").split(";") if part.strip()]
    off = [part for part in off if part != text] + ([text] if value == "false" else [])
    change = ch.set_option(_OFF, ";".join(off)) if off else ch.remove_option(_OFF)
    if not off and _OFF not in table.options:
        return Result()
    table.alter([change])
    return Result()


def _reset_options(state: State, engine: Engine, statement: s.ResetOptions) -> Result:
    table = state.table(statement.name)
    keys = tuple(_respelled(dict.fromkeys(statement.keys, ""), table.schema.names))
    if statement.if_exists:
        there = table.options
        keys = tuple(key for key in keys if key == _COMMENT or key in there or is_of_a_table(key))
    made: list[ch.Change] = [ch.set_comment(None) if key == _COMMENT else ch.remove_option(key) for key in keys]
    return _alter(state, statement.name, made)


def _add_primary_key(state: State, engine: Engine, statement: s.AddPrimaryKey) -> Result:
    return _alter(
        state,
        statement.name,
        [ch.set_primary_key(spelled(statement.columns, state.table(statement.name).schema.names))],
    )


def _drop_partitions(state: State, engine: Engine, statement: s.DropPartitions) -> Result:
    table = state.table(statement.name)
    there = set(partitions_of(table))
    chosen = []
    specs = [spelled_spec(table, spec) for spec in statement.partitions]
    for spec, stored in zip(specs, table.stored_specs(specs, "drop partitions of") or (), strict=True):
        places = [table.partition_by.index(name) for name in stored]
        if any(all(part[i] == stored[table.partition_by[i]] for i in places) for part in there):
            chosen.append(spec)
        elif not statement.if_exists:
            named = ", ".join(f"{key}={value}" for key, value in spec.items())
            raise NotFoundError(f"cannot drop the partition {named} of '{table.name}': there is no such partition.")
    snapshot = table.drop_partitions(chosen) if chosen else None
    return Result(snapshot=snapshot)


def partitions_of(table: Table) -> list[tuple[Any, ...]]:
    """Return the stored values of the partitions that have files."""
    latest = table.latest_snapshot()
    if latest is None:
        return []
    definition = table.definition
    live = MetaReader(definition.paths, table.env, table.name).state(latest).live
    found = {entry.partition for entry in live}
    return [tuple(deserialize(part, definition.partition_types)) for part in found]


def _compact(state: State, engine: Engine, statement: s.Compact) -> Result:
    table = state.table(statement.name)
    partitions = None if statement.partition is None else [spelled_spec(table, statement.partition)]
    return Result(snapshot=engine.compact(table, full=True, partitions=partitions))


def _cluster_into(state: State, engine: Engine, statement: s.ClusterInto) -> Result:
    table = state.table(statement.name)
    partitions = None if statement.partition is None else [spelled_spec(table, statement.partition)]
    return Result(snapshot=engine.rescale(table, statement.buckets, partitions))


def _create_tag(state: State, engine: Engine, statement: s.CreateTag) -> Result:
    table = state.table(statement.name)
    there = any(tag.name == statement.tag for tag in table.tags.list())
    if there and statement.if_not_exists:
        return Result()
    if statement.must_exist and not there:
        names = [tag.name for tag in table.tags.list()]
        raise NotFoundError(
            f"cannot replace the tag '{statement.tag}' of '{table.name}': there is no such tag. "
            f"{did_you_mean(statement.tag, names) if names else 'The table has no tags.'}"
        )
    if there and statement.replace:
        table.tags.replace(statement.tag, snapshot=statement.snapshot, retain=statement.retain)
        return Result()
    table.tags.create(statement.tag, snapshot=statement.snapshot, retain=statement.retain)
    return Result()


def _delete_tags(state: State, engine: Engine, statement: s.DeleteTags) -> Result:
    table = state.table(statement.name)
    there = {tag.name for tag in table.tags.list()}
    for tag in statement.tags:
        if tag in there or not statement.if_exists:
            table.tags.drop(tag)
    return Result()


def _rename_tag(state: State, engine: Engine, statement: s.RenameTag) -> Result:
    table = state.table(statement.name)
    table.tags.rename(statement.tag, statement.new_name)
    return Result()


def _analyze(state: State, engine: Engine, statement: s.Analyze) -> Result:
    columns = () if statement.columns is None else (statement.columns or None)
    return Result(snapshot=state.table(statement.name).analyze(columns))


def _truncate(state: State, engine: Engine, statement: s.Truncate) -> Result:
    table = state.table(statement.name)
    if statement.partition is None:
        return Result(snapshot=table.truncate() if table.latest_snapshot() is not None else None)
    return Result(snapshot=table.drop_partitions([spelled_spec(table, statement.partition)]))


RUNS: Final[dict[type[s.Statement], Callable[..., Result]]] = {
    s.CreateDatabase: _create_database, s.DropDatabase: _drop_database, s.Use: _use, s.CreateTable: _create_table,
    s.DropTable: _drop_table, s.RenameTable: _rename_table, s.AddColumns: _add_columns, s.DropColumns: _drop_columns,
    s.RenameColumn: _rename_column, s.AlterColumn: _alter_column, s.SetOptions: _set_options,
    s.ResetOptions: _reset_options, s.AddPrimaryKey: _add_primary_key, s.DropPartitions: _drop_partitions,
    s.Compact: _compact, s.ClusterInto: _cluster_into, s.CreateTag: _create_tag, s.DeleteTags: _delete_tags,
    s.CreateView: _create_view, s.AlterView: _alter_view, s.RenameView: _rename_view, s.DropView: _drop_view,
    s.CreateFunction: _create_function, s.DropFunction: _drop_function, s.RenameTag: _rename_tag,
    s.Analyze: _analyze, s.Truncate: _truncate,
}  # fmt: skip


def _text(default: exp.Expression) -> str:
    """Return the text of a default. The case of a function of the catalog matters."""
    return str(default.sql("spark", normalize_functions=False))

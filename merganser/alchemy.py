"""A dialect of SQLAlchemy: `create_engine("merganser:////path/to/warehouse?database=shop")`.

It speaks to `merganser.dbapi` in this process. Each statement is one commit, made when it runs, so a connection is
always in AUTOCOMMIT: `commit` changes nothing, and a rollback after changes warns that they stay. What a table has
beyond columns and keys stands in `merganser_partition_by=[...]` and `merganser_options={...}` of `Table`.
"""

from __future__ import annotations

import string
import warnings
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar, Final

from sqlalchemy import exc, schema, types, util
from sqlalchemy.engine import URL, Connection, default, reflection
from sqlalchemy.sql import compiler
from sqlalchemy.types import ARRAY
from sqlglot.dialects.spark import Spark

from merganser import dbapi
from merganser.catalogs.definitions import View
from merganser.errors import InvalidInputError, NotFoundError
from merganser.handle.table import Table
from merganser.schema import types as t
from merganser.sql.show import default_literal
from merganser.sql.sources import fields_of


class MerganserWarning(UserWarning):
    """Something that was asked for and is not done: a rollback of changes, or an index."""


# types


class TINYINT(types.SmallInteger):
    """TINYINT, 8 bits signed."""

    __visit_name__ = "TINYINT"


class STRING(types.Text):
    """STRING, text of any length."""

    __visit_name__ = "STRING"


class BYTES(types.LargeBinary):
    """BYTES, of any length."""

    __visit_name__ = "BYTES"


class TIME(types.TIME):
    """TIME(precision): the time of day, stored in milliseconds."""

    def __init__(self, precision: int | None = None) -> None:
        super().__init__(timezone=False)
        self.precision = precision


class TIMESTAMP(types.TIMESTAMP):
    """TIMESTAMP(precision), without a zone; with `timezone` TIMESTAMP(precision) WITH LOCAL TIME ZONE, a moment."""

    def __init__(self, timezone: bool = False, precision: int | None = None) -> None:
        super().__init__(timezone=timezone)
        self.precision = precision


class MAP(types.TypeEngine[Any]):
    """MAP<key, value>. Values are dicts."""

    __visit_name__ = "MAP"

    def __init__(self, key: Any, value: Any) -> None:
        self.key, self.value = types.to_instance(key), types.to_instance(value)

    def bind_processor(self, dialect: Any) -> Any:
        return lambda value: list(value.items()) if isinstance(value, Mapping) else value

    def result_processor(self, dialect: Any, coltype: Any) -> Any:
        return lambda value: None if value is None else dict(value)


class ROW(types.TypeEngine[Any]):
    """ROW<name type, ...>. Values are dicts.

    Args:
        fields: by name, the type of each field.
    """

    __visit_name__ = "ROW"

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self.fields = {name: types.to_instance(kind) for name, kind in fields.items()}


class OTHER(types.TypeEngine[Any]):
    """A type that SQLAlchemy does not have, by its text, such as VARIANT."""

    __visit_name__ = "OTHER"

    def __init__(self, text: str) -> None:
        self.text = text


_SAME: Final[dict[type[t.DataType], type[types.TypeEngine[Any]]]] = {
    t.Boolean: types.BOOLEAN, t.TinyInt: TINYINT, t.SmallInt: types.SMALLINT, t.Int: types.INTEGER,
    t.BigInt: types.BIGINT, t.Float: types.FLOAT, t.Double: types.DOUBLE, t.Date: types.DATE,
}  # fmt: skip


def type_of(kind: t.DataType) -> types.TypeEngine[Any]:
    """Return SQLAlchemy's type for a type of a column."""
    match kind:
        case t.Decimal(precision=precision, scale=scale):
            return types.DECIMAL(precision, scale)
        case t.VarChar(length=length):
            return STRING() if length == t.LENGTH_MAX else types.VARCHAR(length)
        case t.VarBinary(length=length):
            return BYTES() if length == t.LENGTH_MAX else types.VARBINARY(length)
        case t.Char(length=length):
            return types.CHAR(length)
        case t.Binary(length=length):
            return types.BINARY(length)
        case t.Time(precision=precision):
            return TIME(precision)
        case t.Timestamp(precision=precision):
            return TIMESTAMP(False, precision)
        case t.LocalZonedTimestamp(precision=precision):
            return TIMESTAMP(True, precision)
        case t.Array(element=element):
            inner = type_of(element)
            if isinstance(inner, ARRAY):
                return ARRAY(inner.item_type, dimensions=(inner.dimensions or 1) + 1)
            return ARRAY(inner, dimensions=1)
        case t.Map(key=key, value=value):
            return MAP(type_of(key), type_of(value))
        case t.Row(fields=fields):
            return ROW({field.name: type_of(field.type) for field in fields})
    same = _SAME.get(type(kind))
    return OTHER(str(kind.with_nullable(True))) if same is None else same()


class TypeCompiler(compiler.GenericTypeCompiler):
    """Types as text: of the format in definitions, and of Spark in casts (`in_query`), where they differ."""

    def visit_TINYINT(self, type_: Any, **kw: Any) -> str:
        return "TINYINT"

    def visit_float(self, type_: Any, **kw: Any) -> str:
        narrow = type_.precision is not None and type_.precision <= 24
        return self.visit_FLOAT(type_, **kw) if narrow else self.visit_DOUBLE(type_, **kw)

    def visit_FLOAT(self, type_: Any, **kw: Any) -> str:
        return "FLOAT"

    visit_REAL = visit_FLOAT

    def visit_DOUBLE(self, type_: Any, **kw: Any) -> str:
        return "DOUBLE"

    visit_DOUBLE_PRECISION = visit_DOUBLE

    def visit_DECIMAL(self, type_: Any, **kw: Any) -> str:
        if type_.precision is None:
            return "DECIMAL(38, 18)"  # what Spark makes of numbers of unknown size; without digits it is DECIMAL(10, 0)
        return f"DECIMAL({type_.precision}, {type_.scale or 0})"

    visit_NUMERIC = visit_DECIMAL

    def visit_STRING(self, type_: Any, **kw: Any) -> str:
        return "STRING"

    visit_TEXT = visit_CLOB = visit_NCLOB = visit_STRING

    def visit_VARCHAR(self, type_: Any, **kw: Any) -> str:
        return f"VARCHAR({type_.length})" if type_.length else "STRING"

    visit_NVARCHAR = visit_VARCHAR

    def visit_CHAR(self, type_: Any, **kw: Any) -> str:
        return f"CHAR({type_.length or 1})"

    visit_NCHAR = visit_CHAR

    def visit_BYTES(self, type_: Any, **kw: Any) -> str:
        return "BINARY" if kw.get("in_query") else "BYTES"

    visit_BLOB = visit_BYTES

    def visit_BINARY(self, type_: Any, **kw: Any) -> str:
        length = getattr(type_, "length", None)
        return f"BINARY({length})" if length and not kw.get("in_query") else self.visit_BYTES(type_, **kw)

    def visit_VARBINARY(self, type_: Any, **kw: Any) -> str:
        length = getattr(type_, "length", None)
        return f"VARBINARY({length})" if length and not kw.get("in_query") else self.visit_BYTES(type_, **kw)

    def visit_TIME(self, type_: Any, **kw: Any) -> str:
        precision = getattr(type_, "precision", None)
        return f"TIME({3 if precision is None else precision})"

    def visit_TIMESTAMP(self, type_: Any, **kw: Any) -> str:
        precision = getattr(type_, "precision", None)
        digits = "(6)" if precision is None else f"({precision})"
        if kw.get("in_query"):  # TIMESTAMP alone is a moment for Spark
            return f"TIMESTAMP_LTZ{digits}" if type_.timezone else f"TIMESTAMP_NTZ{digits}"
        return f"TIMESTAMP{digits} WITH LOCAL TIME ZONE" if type_.timezone else f"TIMESTAMP{digits}"

    visit_DATETIME = visit_datetime = visit_TIMESTAMP

    def visit_ARRAY(self, type_: Any, **kw: Any) -> str:
        depth = type_.dimensions or 1
        return "ARRAY<" * depth + self.process(type_.item_type, **kw) + ">" * depth

    def visit_MAP(self, type_: MAP, **kw: Any) -> str:
        return f"MAP<{self.process(type_.key, **kw)}, {self.process(type_.value, **kw)}>"

    def visit_ROW(self, type_: ROW, **kw: Any) -> str:
        colon = ":" if kw.get("in_query") else ""
        fields = [f"{_quoted(name)}{colon} {self.process(kind, **kw)}" for name, kind in type_.fields.items()]
        return f"{'STRUCT' if colon else 'ROW'}<{', '.join(fields)}>"

    def visit_OTHER(self, type_: OTHER, **kw: Any) -> str:
        return type_.text


# literals


class _Date(types.Date):
    def literal_processor(self, dialect: Any) -> Any:
        return lambda value: f"DATE '{value.isoformat()}'"


class _Time(types.Time):
    def literal_processor(self, dialect: Any) -> Any:
        return lambda value: f"CAST('{value.isoformat()}' AS TIME)"


class _DateTime(types.DateTime):
    def literal_processor(self, dialect: Any) -> Any:
        return lambda value: f"TIMESTAMP_{'NTZ' if value.tzinfo is None else 'LTZ'} '{value.isoformat(sep=' ')}'"


class _LargeBinary(types.LargeBinary):
    def bind_processor(self, dialect: Any) -> Any:
        return lambda value: None if value is None else bytes(value)

    def literal_processor(self, dialect: Any) -> Any:
        return lambda value: f"X'{bytes(value).hex()}'"


class _Interval(types.Interval):
    """Differences of times are INTERVAL here; a column of a table keeps the time at this distance from 1970."""

    def result_processor(self, dialect: Any, coltype: Any) -> Any:
        return lambda value: value - self.epoch if isinstance(value, datetime) else value


# statements


class Compiler(compiler.SQLCompiler):
    """Queries and DML as text."""

    bindname_escape_characters: ClassVar[Mapping[str, str]] = util.immutabledict(
        {sign: f"_{ord(sign):x}_" for sign in string.punctuation + " " if sign != "_"}
    )

    def visit_typeclause(self, typeclause: Any, **kw: Any) -> str:
        return str(super().visit_typeclause(typeclause, in_query=True, **kw))  # type: ignore[no-untyped-call]

    def render_literal_value(self, value: Any, type_: Any) -> str:
        text = super().render_literal_value(value, type_)
        return text.replace("\\", "\\\\") if text.startswith("'") else text

    def visit_empty_set_expr(self, element_types: Sequence[Any], **kw: Any) -> str:
        kinds = [self.dialect.type_compiler_instance.process(kind, in_query=True) for kind in element_types]
        return "SELECT " + ", ".join(f"CAST(NULL AS {kind})" for kind in kinds) + " WHERE 1 != 1"

    def visit_regexp_match_op_binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        return self._generate_generic_binary(binary, " RLIKE ", **kw)

    def visit_not_regexp_match_op_binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        return f"NOT ({self.visit_regexp_match_op_binary(binary, operator, **kw)})"

    def limit_clause(self, select: Any, **kw: Any) -> str:
        text = ""
        if select._limit_clause is not None:
            text += "\n LIMIT " + self.process(select._limit_clause, **kw)
        if select._offset_clause is not None:
            text += "\n OFFSET " + self.process(select._offset_clause, **kw)
        return text

    def for_update_clause(self, select: Any, **kw: Any) -> str:
        return ""  # a query reads one snapshot, and nothing is locked

    def visit_savepoint(self, savepoint_stmt: Any, **kw: Any) -> str:
        raise exc.CompileError("merganser has no savepoints: each statement is one commit, made when it runs.")

    def visit_sequence(self, sequence: Any, **kw: Any) -> str:
        raise exc.CompileError("merganser has no sequences. Give the values of keys.")


class DDLCompiler(compiler.DDLCompiler):
    """Definitions as text."""

    def get_column_specification(self, column: Any, **kw: Any) -> str:
        if column.computed is not None:
            raise exc.CompileError(f"cannot create column '{column.name}': merganser has no computed columns.")
        text = self.preparer.format_column(column) + " "
        text += self.dialect.type_compiler_instance.process(column.type, type_expression=column)
        if not column.nullable or column.primary_key:
            text += " NOT NULL"
        standard = self.get_column_default_string(column)
        if standard is not None:
            text += " DEFAULT " + standard
        if column.comment is not None:
            text += " COMMENT " + self._literal(column.comment)
        return text

    def visit_create_table(self, create: Any, **kw: Any) -> str:
        unique = [index.name for index in create.element.indexes if index.unique]
        if unique:
            raise exc.CompileError(_unique(f"the unique index '{unique[0]}'", create.element))
        return str(super().visit_create_table(create, **kw))  # type: ignore[no-untyped-call]

    def visit_primary_key_constraint(self, constraint: Any, **kw: Any) -> str:
        text = super().visit_primary_key_constraint(constraint, **kw)
        return f"{text} NOT ENFORCED" if text else ""

    def visit_foreign_key_constraint(self, constraint: Any, **kw: Any) -> Any:
        return None  # of use to the ORM alone

    def visit_unique_constraint(self, constraint: Any, **kw: Any) -> str:
        raise exc.CompileError(_unique("a UNIQUE constraint", constraint.table))

    def visit_check_constraint(self, constraint: Any, **kw: Any) -> str:
        raise exc.CompileError(f"cannot create '{constraint.table.name}': merganser has no CHECK constraints.")

    visit_column_check_constraint = visit_check_constraint

    def visit_create_index(
        self, create: Any, include_schema: Any = False, include_table_schema: Any = True, **kw: Any
    ) -> str:
        index = create.element
        if index.unique:
            raise exc.CompileError(_unique(f"the unique index '{index.name}'", index.table))
        warnings.warn(
            f"The index '{index.name}' of '{index.table.name}' was not created: merganser has no indexes. Leave it "
            "out, or sort and bucket the table by options.",
            MerganserWarning,
            stacklevel=2,
        )
        return ""

    def visit_drop_index(self, drop: Any, **kw: Any) -> str:
        return ""

    def post_create_table(self, table: Any) -> str:
        text = "" if table.comment is None else f" COMMENT {self._literal(table.comment)}"
        given = table.dialect_options["merganser"]
        if given["partition_by"]:
            names = given["partition_by"]
            columns = [names] if isinstance(names, str) else names
            text += f" PARTITIONED BY ({', '.join(self.preparer.quote(name) for name in columns)})"
        if given["options"]:
            pairs = [f"{self._literal(key)} = {self._literal(_text(v))}" for key, v in given["options"].items()]
            text += f" WITH ({', '.join(pairs)})"
        return text

    def visit_set_table_comment(self, create: Any, **kw: Any) -> str:
        table = self.preparer.format_table(create.element)
        return f"ALTER TABLE {table} SET ('comment' = {self._literal(create.element.comment)})"

    def visit_drop_table_comment(self, drop: Any, **kw: Any) -> str:
        return f"ALTER TABLE {self.preparer.format_table(drop.element)} RESET ('comment')"

    def visit_set_column_comment(self, create: Any, **kw: Any) -> str:
        table, column = self.preparer.format_table(create.element.table), self.preparer.format_column(create.element)
        return f"ALTER TABLE {table} ALTER COLUMN {column} COMMENT {self._literal(create.element.comment or '')}"

    def _literal(self, text: str) -> str:
        return self.sql_compiler.render_literal_value(text, types.String())


def _unique(what: str, table: Any) -> str:
    return (
        f"cannot create '{table.name}' with {what}: merganser does not check it. Leave it out; a primary key keeps the "
        "last row of each key."
    )


def _text(value: Any) -> str:
    """Return the value of an option as text."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


class Names(compiler.IdentifierPreparer):
    """Names in backticks, where they are needed."""

    reserved_words = {
        *compiler.RESERVED_WORDS,
        *(word.lower() for word in Spark.Tokenizer.KEYWORDS if word.isidentifier()),
    }

    def __init__(self, dialect: Any, **kw: Any) -> None:
        super().__init__(dialect, initial_quote="`", final_quote="`", escape_quote="`", **kw)


class MerganserDialect(default.DefaultDialect):
    """The dialect; see the module."""

    name = "merganser"
    driver = "dbapi"
    supports_statement_cache = True
    statement_compiler = Compiler
    ddl_compiler = DDLCompiler
    type_compiler_cls = TypeCompiler
    preparer = Names  # type: ignore[assignment]
    colspecs = {
        types.Date: _Date, types.Time: _Time, types.DateTime: _DateTime, types.LargeBinary: _LargeBinary,
        types.Interval: _Interval,
    }  # fmt: skip
    construct_arguments = [(schema.Table, {"options": None, "partition_by": None})]

    default_paramstyle = "named"
    supports_alter = False  # of constraints
    supports_native_boolean = True
    supports_native_decimal = True
    supports_comments = True
    inline_comments = True
    supports_default_values = False
    supports_empty_insert = False
    supports_multivalues_insert = True
    supports_sane_rowcount = False  # counts the rows that changed, not those that met the condition
    supports_sane_multi_rowcount = False
    supports_sequences = False
    postfetch_lastrowid = False
    cte_follows_insert = True
    div_is_floordiv = False
    use_insertmanyvalues = False

    @classmethod
    def import_dbapi(cls) -> Any:
        return dbapi

    def create_connect_args(self, url: URL) -> tuple[Sequence[str], dict[str, Any]]:
        if url.host or url.username or url.port:
            raise exc.ArgumentError(
                "cannot connect: three slashes stand before the path or the URL of a warehouse, as in "
                "merganser:////data/warehouse?database=shop or merganser:///s3://bucket/warehouse?s3.region=eu-west-1."
            )
        options = dict(url.query)
        twice = [key for key, value in options.items() if not isinstance(value, str)]
        if twice:
            raise exc.ArgumentError(f"cannot connect: '{twice[0]}' stands in the URL more than once.")
        database = options.pop("database", None)
        found: dict[str, Any] = {"database": database, "options": options or None}
        if url.database:
            found["catalog_or_warehouse"] = url.database
        return (), found

    def connect(self, *cargs: Any, **cparams: Any) -> Any:
        if "catalog_or_warehouse" not in cparams:
            raise exc.ArgumentError(
                "cannot connect: the URL names no warehouse. Write merganser:////data/warehouse, or pass a catalog: "
                'connect_args={"catalog_or_warehouse": catalog}.'
            )
        return super().connect(*cargs, **cparams)

    # transactions

    def do_rollback(self, dbapi_connection: Any) -> None:
        try:
            dbapi_connection.rollback()
        except dbapi.NotSupportedError as error:
            warnings.warn(f"{error} Call commit() behind changes.", MerganserWarning, stacklevel=2)

    def get_isolation_level_values(self, dbapi_conn: Any) -> Sequence[Any]:
        return ("AUTOCOMMIT",)

    def get_default_isolation_level(self, dbapi_conn: Any) -> Any:
        return "AUTOCOMMIT"

    def get_isolation_level(self, dbapi_connection: Any) -> Any:
        return "AUTOCOMMIT"

    def set_isolation_level(self, dbapi_connection: Any, level: Any) -> None:
        """Do nothing: there is one level."""

    def detect_autocommit_setting(self, dbapi_conn: Any) -> bool:
        return True

    # what there is

    def _get_default_schema_name(self, connection: Connection) -> str:
        return str(_session(connection).state.database)

    @reflection.cache
    def _handle(self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any) -> Any:
        """Return a table, a view or a system table.

        Raises:
            NoSuchTableError: there is none.
        """
        state = _session(connection).state
        try:
            return state.handle((schema or state.database, table_name))
        except (NotFoundError, InvalidInputError) as error:
            raise exc.NoSuchTableError(f"{schema}.{table_name}" if schema else table_name) from error

    @reflection.cache
    def get_schema_names(self, connection: Connection, **kw: Any) -> list[str]:
        return list(_session(connection).state.catalog.list_databases())

    @reflection.cache
    def get_table_names(self, connection: Connection, schema: str | None = None, **kw: Any) -> list[str]:
        state = _session(connection).state
        database = schema or state.database
        return list(state.catalog.list_tables(database)) if database in state.catalog.list_databases() else []

    @reflection.cache
    def get_view_names(self, connection: Connection, schema: str | None = None, **kw: Any) -> list[str]:
        state = _session(connection).state
        database = schema or state.database
        return list(state.catalog.list_views(database)) if database in state.catalog.list_databases() else []

    @reflection.cache
    def get_view_definition(self, connection: Connection, view_name: str, schema: str | None = None, **kw: Any) -> str:
        found = self._handle(connection, view_name, schema, **kw)
        if not isinstance(found, View):
            raise exc.NoSuchTableError(f"{schema}.{view_name}" if schema else view_name)
        return found.sql

    def get_temp_table_names(self, connection: Connection, schema: str | None = None, **kw: Any) -> list[str]:
        return []

    def get_temp_view_names(self, connection: Connection, schema: str | None = None, **kw: Any) -> list[str]:
        return []

    @reflection.cache
    def has_table(self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any) -> bool:
        self._ensure_has_table_connection(connection)
        try:
            self._handle(connection, table_name, schema, **kw)
        except exc.NoSuchTableError:
            return False
        return True

    @reflection.cache
    def get_columns(self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any) -> Any:
        return [
            {
                "name": field.name,
                "type": type_of(field.type),
                "nullable": field.type.nullable,
                "default": None if field.default is None else default_literal(field),
                "comment": field.description,
            }
            for field in fields_of(self._handle(connection, table_name, schema, **kw), {})
        ]

    def get_pk_constraint(self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any) -> Any:
        found = self._handle(connection, table_name, schema, **kw)
        return {"constrained_columns": list(found.primary_key) if isinstance(found, Table) else [], "name": None}

    def get_table_comment(self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any) -> Any:
        found = self._handle(connection, table_name, schema, **kw)
        if isinstance(found, View):
            return {"text": found.comment}
        return {"text": (found.schema.comment or None) if isinstance(found, Table) else None}

    def get_table_options(self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any) -> Any:
        found = self._handle(connection, table_name, schema, **kw)
        if not isinstance(found, Table):
            return {}
        options = {key: value for key, value in found.schema.options.items() if key != "path"}
        given = {"merganser_options": options, "merganser_partition_by": list(found.partition_by)}
        return {key: value for key, value in given.items() if value}

    def _none(self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any) -> Any:
        """Return an empty list for a table that exists."""
        self._handle(connection, table_name, schema, **kw)
        return []

    get_foreign_keys = get_indexes = get_unique_constraints = get_check_constraints = _none


def _session(connection: Connection) -> Any:
    """Return the session of a connection."""
    return connection.connection.driver_connection.session  # type: ignore[union-attr]

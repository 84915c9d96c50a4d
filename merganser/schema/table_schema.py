"""What the rows of a table are: columns with ids, keys, partition and bucket columns, options.

A schema never changes: altering a table makes the next one, numbered id + 1. Its file is one JSON object whose
unknown keys are ignored. `create_schema` makes the first from what a user gives and holds all checks.

Format: section "schema files".
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

import pyarrow as pa

from merganser.errors import FormatError, InvalidInputError
from merganser.options import facts
from merganser.options import write as options_write
from merganser.options.dialects import check_has_key, check_versioned, translated
from merganser.options.facts import listed, refuse
from merganser.options.option import Options
from merganser.options.registry import check_keys, did_you_mean, normalize_options
from merganser.options.secrets import check_no_secrets, is_secret, shown
from merganser.options.validate import check_table_options
from merganser.schema import types as t
from merganser.schema.arrow import arrow_type, fields_from_arrow
from merganser.schema.literals import default_value
from merganser.schema.spark_json import fields_from_spark_json
from merganser.schema.types_text import (
    UNNUMBERED,
    field_from_json,
    field_to_json,
    number_fields,
    parse_type,
)

CURRENT_VERSION: Final = 3
"""Version of schema files that merganser writes."""
KEY_PREFIX: Final = "_KEY_"
SYSTEM_ID_MIN: Final = 1_073_741_823
"""Ids from here on are the system's; `_KEY_<column>` has this plus the id of the column."""
SEQUENCE_NUMBER: Final = t.Field(2_147_483_646, "_SEQUENCE_NUMBER", t.BigInt(nullable=False))
VALUE_KIND: Final = t.Field(2_147_483_645, "_VALUE_KIND", t.TinyInt(nullable=False))
LEVEL: Final = t.Field(2_147_483_644, "_LEVEL", t.Int(nullable=False))
ROW_KIND: Final = t.Field(2_147_483_643, "rowkind", t.VarChar())
ROW_ID: Final = t.Field(2_147_483_642, "_ROW_ID", t.BigInt())
POSITION: Final = t.Field(UNNUMBERED, "_POSITION", t.BigInt(nullable=False))
"""Where a row is in its data file, the first being 0; never stored."""
VALUE_COUNT: Final = t.Field(UNNUMBERED, "_VALUE_COUNT", t.BigInt(nullable=False))
"""Column of ours in tables that count equal rows: how many there are."""
RESERVED_NAMES: Final = frozenset(field.name for field in (SEQUENCE_NUMBER, VALUE_KIND, LEVEL, ROW_KIND, ROW_ID))


@runtime_checkable
class JsonSchema(Protocol):
    """A schema that gives itself as Spark's schema JSON, so that Spark need not be imported."""

    def json(self) -> str:
        """Return the schema as JSON."""


SchemaLike: TypeAlias = (
    Mapping[str, "str | t.DataType"] | Sequence["tuple[str, str | t.DataType] | t.Field"] | pa.Schema | JsonSchema
)
"""Columns as a user gives them: name -> type, pairs, an Arrow schema, or a Spark one."""


@dataclass(frozen=True, slots=True, repr=False)
class TableSchema:
    """One schema of a table.

    Guarantees, checked where a schema is made: names and ids of columns are unique; key, partition and bucket
    columns exist; the primary key has a column that is no partition column.
    """

    id: int
    fields: tuple[t.Field, ...]
    highest_field_id: int
    partition_keys: tuple[str, ...] = ()
    primary_keys: tuple[str, ...] = ()
    options: Options = Options()  # noqa: RUF009  an empty, immutable value
    comment: str | None = None
    time_millis: int = 0
    version: int = CURRENT_VERSION

    def __repr__(self) -> str:
        columns = ", ".join(f"{field.name} {field.type}" for field in self.fields)
        keys = {"primary_keys": self.primary_keys, "partition_keys": self.partition_keys}
        given = "".join(f", {name}={list(names)}" for name, names in keys.items() if names)
        return f"TableSchema(id={self.id}, [{columns}]{given})"

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns, in order."""
        return tuple(field.name for field in self.fields)

    @property
    def keyed(self) -> bool:
        """Whether the table has a primary key."""
        return bool(self.primary_keys)

    @property
    def trimmed_primary_key(self) -> tuple[str, ...]:
        """The key: primary key columns that are no partition columns, in the order of the primary key."""
        return tuple(name for name in self.primary_keys if name not in self.partition_keys)

    @property
    def bucket_key(self) -> tuple[str, ...]:
        """Columns whose hash chooses the bucket: those of option `bucket-key`, else the key."""
        return self.options.get(options_write.BUCKET_KEY) or self.trimmed_primary_key

    @property
    def bucket(self) -> int:
        """Number of buckets, -1 or -2: option `bucket`."""
        return self.options.get(options_write.BUCKET)

    @property
    def cross_partition(self) -> bool:
        """Whether a key may move between partitions: the primary key lacks a partition column."""
        return facts.cross_partition(self)

    @property
    def counting(self) -> bool:
        """Whether it has no key and counts equal rows (`write-mode` = change-log; decision 0011)."""
        return (
            self.options.get(options_write.WRITE_MODE) == "change-log"
            and bool(self.fields)
            and self.fields[-1].name == VALUE_COUNT.name
        )

    @property
    def shown(self) -> TableSchema:
        """The schema as users see it: without secrets, and without the key and the column that counting takes."""
        found = self if not any(map(is_secret, self.options)) else replace(self, options=shown(self.options))
        return replace(found, fields=self.user_fields, primary_keys=()) if self.counting else found

    @property
    def user_fields(self) -> tuple[t.Field, ...]:
        """The columns that users read and write."""
        return self.fields[:-1] if self.counting else self.fields

    @property
    def value_fields(self) -> tuple[t.Field, ...]:
        """All columns of the table, key and partition columns included: what a data file stores as values."""
        return self.fields

    @property
    def key_fields(self) -> tuple[t.Field, ...]:
        """`_KEY_<column>` of every column of the key, with system ids."""
        return tuple(key_field(self.field(name)) for name in self.trimmed_primary_key)

    @property
    def partition_fields(self) -> tuple[t.Field, ...]:
        """The partition columns, in their order."""
        return tuple(self.field(name) for name in self.partition_keys)

    @property
    def fields_with_defaults(self) -> tuple[t.Field, ...]:
        """The columns of users, with the defaults of options `fields.<column>.default-value` where they have none."""
        defaults = {name: self.options.get(options_write.DEFAULT_VALUE.of(name)) for name in self.names}
        return tuple(
            replace(field, default=defaults[field.name]) if field.default is None else field
            for field in self.user_fields
        )

    def field(self, name: str) -> t.Field:
        """Return the column of that name.

        Raises:
            InvalidInputError: there is none; names the nearest.
        """
        for field in self.fields:
            if field.name == name:
                return field
        raise InvalidInputError(
            f"there is no column '{name}' in schema {self.id}. {did_you_mean(name, self.names)}", column=name
        )

    def to_json(self) -> bytes:
        """Return the bytes of the schema file."""
        value: dict[str, Any] = {
            "version": self.version,
            "id": self.id,
            "fields": [field_to_json(field) for field in self.fields],
            "highestFieldId": self.highest_field_id,
            "partitionKeys": list(self.partition_keys),
            "primaryKeys": list(self.primary_keys),
            "options": dict(self.options),
        }
        if self.comment is not None:
            value["comment"] = self.comment
        value["timeMillis"] = self.time_millis
        return json.dumps(value, indent=2, ensure_ascii=False).encode()


def key_field(field: t.Field) -> t.Field:
    """Return the `_KEY_` field under which files of keyed tables store a key column."""
    return t.Field(SYSTEM_ID_MIN + field.id, KEY_PREFIX + field.name, field.type)


def from_json(data: bytes | str, *, path: str = "schema") -> TableSchema:
    """Return the schema that a schema file holds.

    Files of version 1 without option `bucket` have one bucket, files up to version 2 without `file.format` are
    ORC; both become options of the result.

    Raises:
        FormatError: the bytes are no schema file; names `path`, and the byte where JSON breaks.
    """
    value = _load_json(data, path)
    try:
        version = int(value.get("version") or 1)
        if not isinstance(value["fields"], list):
            raise TypeError(f"fields is {value['fields']!r:.100}, not a list")
        fields = tuple(field_from_json(field) for field in value["fields"])
        options = {str(k): v if isinstance(v, str) else json.dumps(v) for k, v in (value.get("options") or {}).items()}
        ids = [n.id for field in fields for n in (field, *t.nested_fields(field.type))]
        highest = value.get("highestFieldId")
        schema = TableSchema(
            id=int(value["id"]),
            fields=fields,
            highest_field_id=max(ids, default=-1) if highest is None else int(highest),
            partition_keys=_names(value, "partitionKeys"),
            primary_keys=_names(value, "primaryKeys"),
            options=Options(_with_old_defaults(options, version)),
            comment=value.get("comment"),
            time_millis=int(value.get("timeMillis") or 0),
            version=version,
        )
    except KeyError as error:
        raise FormatError(f"cannot read '{path}': the key {error} is missing.", path=path) from error
    except (TypeError, ValueError, AttributeError) as error:
        raise FormatError(f"cannot read '{path}': it is not a schema ({error}).", path=path) from error
    except FormatError as error:
        raise FormatError(f"cannot read '{path}': {error.message}", path=path) from error
    _check_loaded(schema, path)
    return schema


def _load_json(data: bytes | str, path: str) -> dict[str, Any]:
    size = len(data)
    try:
        text = data.decode("utf-8-sig") if isinstance(data, bytes) else data
        value = json.loads(text)
    except UnicodeDecodeError as error:
        raise FormatError(
            f"cannot read '{path}': byte {error.start} of {size} is not UTF-8.", path=path, offset=error.start
        ) from error
    except json.JSONDecodeError as error:
        offset = len(text[: error.pos].encode())
        raise FormatError(
            f"cannot read '{path}': at byte {offset} of {size} it is not JSON ({error.msg}).", path=path, offset=offset
        ) from error
    except RecursionError as error:
        raise FormatError(f"cannot read '{path}': its JSON is nested too deeply.", path=path) from error
    if not isinstance(value, dict):
        raise FormatError(f"cannot read '{path}': it holds {type(value).__name__}, not a JSON object.", path=path)
    return value


def _names(value: Mapping[str, Any], key: str) -> tuple[str, ...]:
    names = value.get(key) or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise TypeError(f"{key} is {names!r:.100}, not a list of names")
    return tuple(names)


def _with_old_defaults(options: dict[str, str], version: int) -> dict[str, str]:
    if version <= 1:
        options.setdefault(options_write.BUCKET.key, "1")
    if version <= 2:
        options.setdefault(options_write.FILE_FORMAT.key, "orc")
    return options


def _check_loaded(schema: TableSchema, path: str) -> None:
    names = schema.names
    for kind, values in (("name", names), ("id", tuple(field.id for field in schema.fields))):
        if repeated := _repeated(values):
            raise FormatError(f"cannot read '{path}': two columns have the {kind} {repeated[0]!r}.", path=path)
    for kind, columns in (("partition", schema.partition_keys), ("primary key", schema.primary_keys)):
        for column in columns:
            if column not in names:
                raise FormatError(f"cannot read '{path}': there is no {kind} column '{column}'.", path=path)


def create_schema(
    schema: SchemaLike,
    *,
    primary_key: Sequence[str] = (),
    partition_by: Sequence[str] = (),
    options: Mapping[str, Any] | None = None,
    comment: str | None = None,
    time_millis: int = 0,
    table: str | None = None,
) -> TableSchema:
    """Return schema 0 of a new table.

    Args:
        schema: the columns, in order: a mapping from name to type text, pairs, fields, an Arrow schema or any
            object whose `json()` is Spark's schema JSON. Ids are given here.
        primary_key: columns that identify a row; made NOT NULL unless `primary-key.nullable` is set.
        partition_by: partition columns, outermost directory first.
        options: table options as text or Python values. `primary-key` and `partition` may stand here instead.
        comment: of the table.
        time_millis: when the table is created, in milliseconds since 1970.
        table: name for messages.

    Raises:
        InvalidInputError: the definition is not a table of the format; names the column or option.
        UnsupportedError: a column has a type whose values merganser neither reads nor writes.
    """
    what = f"cannot create '{table}'" if table else "cannot create the table"
    fields = _fields(schema, what)
    _check_names(fields, what)
    names = [field.name for field in fields]
    if comment is not None and not isinstance(comment, str):
        refuse(what, f"comment is {comment!r:.100}, a {type(comment).__name__}. Give text, or None.")
    check_no_secrets(options or {}, what=what)
    texts = normalize_options(translated(options or {}, what=what))
    key = _columns_from(texts, options_write.PRIMARY_KEY.key, primary_key, what)
    partition = _columns_from(texts, options_write.PARTITION.key, partition_by, what)
    for role, option, columns in (("primary key", "primary_key", key), ("partition", "partition_by", partition)):
        _check_columns(role, option, columns, names, what)
    check_has_key(options or {}, key, what=what)
    if texts.get(options_write.WRITE_MODE.key, "").strip().lower() == "change-log":
        if VALUE_COUNT.name in names:
            refuse(
                what,
                f"the column name '{VALUE_COUNT.name}' is not allowed with 'write-mode' = 'change-log': tables without "
                "a key count equal rows in it. Choose another name.",
                column=VALUE_COUNT.name,
            )
        if not key:
            fields, key = _counting(fields, texts, what)
            names = [field.name for field in fields]
    check_keys(texts, columns=names)
    view = Options(texts)
    _check_key_types(fields, key, partition, what)
    if key and not view.get(options_write.PRIMARY_KEY_NULLABLE):
        fields = tuple(replace(f, type=f.type.with_nullable(False)) if f.name in key else f for f in fields)
    numbered, following = number_fields(fields)
    made = TableSchema(
        id=0,
        fields=numbered,
        highest_field_id=following - 1,
        partition_keys=partition,
        primary_keys=key,
        options=view,
        comment=comment,
        time_millis=time_millis,
    )
    if key and not made.trimmed_primary_key:
        refuse(
            what,
            f"the primary key {listed(key)} consists of partition columns only, so a partition would hold one row. "
            "Add a column to the primary key, or take it out of the partition columns.",
        )
    check_table_options(made, what=what)
    check_versioned(made, what=what)
    for field in made.fields_with_defaults:
        if field.default is not None:
            default_value(field)  # refuses a text that is no literal of the type
    return made


def _counting(
    fields: tuple[t.Field, ...], texts: dict[str, str], what: str
) -> tuple[tuple[t.Field, ...], tuple[str, ...]]:
    """Return the columns and key of a table that counts equal rows; adds to its options.

    To the format, and so to other engines, it is an aggregation table: the whole row is the key, and a column
    sums how many there are.
    """
    for option in (options_write.MERGE_ENGINE, options_write.CHANGELOG_PRODUCER):
        if texts.get(option.key, option.default) not in (option.default, "input"):
            refuse(
                what,
                f"'{option.key}' = '{texts[option.key]}' does not go with 'write-mode' = 'change-log': a table without "
                "a key counts equal rows. Define a primary key, or remove one of the two.",
                option=option.key,
            )
    if options_write.ROWKIND_FIELD.key in texts:
        refuse(
            what,
            f"'{options_write.ROWKIND_FIELD.key}' does not go with 'write-mode' = 'change-log' and no primary key: the "
            "column would be part of the row, so no row could be taken back by another. Give kinds with each write.",
            option=options_write.ROWKIND_FIELD.key,
        )
    for log in (options_write.LOG_CHANGELOG_MODE, options_write.LOG_CONSISTENCY):
        if texts.get(log.key, log.default) in ("upsert", "eventual"):
            refuse(what, f"'{log.key}' = '{texts[log.key]}' needs a primary key.", option=log.key)
    nested = [field for field in fields if t.is_nested(field.type)]
    if nested:
        refuse(
            what,
            f"column '{nested[0].name}' has the type {nested[0].type}, whose values cannot be compared, and "
            "'write-mode' = 'change-log' finds rows by all their columns.",
            column=nested[0].name,
        )
    texts.setdefault(options_write.BUCKET.key, "1")
    texts[options_write.MERGE_ENGINE.key] = "aggregation"
    texts[options_write.AGGREGATE_FUNCTION.of(VALUE_COUNT.name).key] = "sum"
    texts[options_write.PRIMARY_KEY_NULLABLE.key] = "true"
    return (*fields, VALUE_COUNT), tuple(field.name for field in fields)


def _fields(schema: SchemaLike, what: str) -> tuple[t.Field, ...]:
    if isinstance(schema, pa.Schema):
        fields = fields_from_arrow(schema)
    elif isinstance(schema, Mapping):
        fields = tuple(_field(name, kind, what) for name, kind in schema.items())
    elif isinstance(schema, JsonSchema):
        fields = fields_from_spark_json(schema.json())
    elif isinstance(schema, Sequence) and not isinstance(schema, str | bytes):
        fields = tuple(_field_of_item(item, what) for item in schema)
    else:
        refuse(
            what,
            f"the schema is a {type(schema).__name__}. Give a dict such as {{'id': 'BIGINT'}}, a list of pairs, "
            "an Arrow schema or a Spark schema.",
        )
    if not fields:
        refuse(what, "the schema has no columns. A table needs at least one.")
    for field in fields:
        arrow_type(field.type)  # refuses types whose values no column of ours can hold
    return fields


def _field_of_item(item: Any, what: str) -> t.Field:
    if isinstance(item, t.Field):
        return replace(item, id=UNNUMBERED)
    if not isinstance(item, tuple | list) or len(item) != 2:
        refuse(what, f"{item!r:.100} is not a column. Give pairs such as ('id', 'BIGINT').")
    return _field(item[0], item[1], what)


def _field(name: Any, kind: Any, what: str) -> t.Field:
    if not isinstance(name, str):
        refuse(what, f"the column name {name!r:.100} is not text.")
    if isinstance(kind, t.DataType):
        return t.Field(UNNUMBERED, name, kind)
    if not isinstance(kind, str):
        refuse(what, f"the type of column '{name}' is {kind!r:.100}, not text such as 'BIGINT'.")
    try:
        return t.Field(UNNUMBERED, name, parse_type(kind, definition=True))
    except InvalidInputError as error:
        raise InvalidInputError(f"{what}: column '{name}': {error.message}", column=name, type=kind) from error


def _check_names(fields: Sequence[t.Field], what: str) -> None:
    _check_siblings(fields, "", what)
    for field in fields:
        reason = reserved_name(field.name)
        if reason:
            why = f"the column name '{field.name}' is not allowed: {reason}. Choose another name."
            refuse(what, why, column=field.name)


def reserved_name(name: str) -> str | None:
    """Return why a column must not have this name, or None when it may."""
    if name in RESERVED_NAMES:
        return "it is the name of a system column"
    if name.startswith(KEY_PREFIX):
        return f"names that start with '{KEY_PREFIX}' are the system's"
    return None


def _check_siblings(fields: Iterable[t.Field], inside: str, what: str) -> None:
    fields = tuple(fields)
    blank = sum(not field.name.strip() for field in fields)
    if blank:
        refuse(what, f"{blank} of {len(fields)} names of columns{inside} are blank. Name every column.")
    if repeated := _repeated([field.name for field in fields]):
        refuse(what, f"duplicate columns{inside}: {listed(repeated)}. A name may occur once.", column=repeated[0])
    for field in fields:
        for row in _rows_below(field.type):
            _check_siblings(row.fields, f" inside '{field.name}'", what)


def _rows_below(kind: t.DataType) -> list[t.Row]:
    """Return the ROWs that values of a type are made of, without those inside other ROWs."""
    match kind:
        case t.Row():
            return [kind]
        case t.Array() | t.Multiset():
            return _rows_below(kind.element)
        case t.Map():
            return _rows_below(kind.key) + _rows_below(kind.value)
    return []


def _columns_from(texts: dict[str, str], key: str, given: Sequence[str], what: str) -> tuple[str, ...]:
    text = texts.pop(key, None)
    if isinstance(given, str):
        refuse(what, f"the columns of '{key}' are one text, '{given}'. Give a list such as ['{given}'].")
    for column in given:
        if not isinstance(column, str):
            refuse(what, f"the columns of '{key}' hold {column!r:.100}, a {type(column).__name__}. Give their names.")
    if text is None:
        return tuple(given)
    if given:
        refuse(
            what,
            f"'{key}' is defined twice: {listed(given)} when creating the table and '{text}' in the options. "
            "Leave one of them out.",
        )
    return options_write.PRIMARY_KEY.parse(text, key=key)


def _check_columns(role: str, argument: str, columns: Sequence[str], names: Sequence[str], what: str) -> None:
    for column in columns:
        if column not in names:
            refuse(
                what,
                f"{role} column '{column}' is not a column of the table, which should include it. "
                f"{did_you_mean(column, names)}",
                column=column,
            )
    if repeated := _repeated(columns):
        why = f"{role} columns contain duplicates: {listed(repeated)}. Name each once in {argument}."
        refuse(what, why, column=repeated[0])


def _check_key_types(fields: Iterable[t.Field], key: Sequence[str], partition: Sequence[str], what: str) -> None:
    for field in fields:
        for role, columns in (("primary key", key), ("partition", partition)):
            if field.name in columns and t.is_nested(field.type):
                refuse(what, f"{role} column '{field.name}' has the unsupported type {field.type}.", column=field.name)
        if field.name in partition and isinstance(field.type, t.Binary | t.VarBinary):
            refuse(
                what,
                f"partition column '{field.name}' has the unsupported type {field.type}: the format has no directory "
                "name for its values. Partition by its text instead, for instance in hexadecimal.",
                column=field.name,
            )


def _repeated(values: Iterable[Hashable]) -> list[Any]:
    return [value for value, count in Counter(values).items() if count > 1]

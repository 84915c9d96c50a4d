"""The first schema of a table, made from what a user gives: every check of a definition stands here or below.

A definition is refused as a whole, before a file is written. What comes out is a table of the format; whether this
version of merganser can write it is another question (`rules.gaps.check_can_write`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

import pyarrow as pa

from merganser.errors import InvalidInputError, a_type
from merganser.options import upkeep as options_upkeep
from merganser.options import write as options_write
from merganser.options.option import Options
from merganser.options.registry import (
    check_keys,
    did_you_mean,
    find_catalog_option,
    normalize_options,
    split_column_key,
)
from merganser.options.secrets import check_no_secrets
from merganser.rules.checks import check_table_options
from merganser.rules.compacting import PER_RECORD, publishes_each_record
from merganser.rules.dialects import check_has_key, check_versioned, translated, with_whole_rows
from merganser.rules.facts import listed, refuse
from merganser.schema import types as t
from merganser.schema.arrow import arrow_type, fields_from_arrow
from merganser.schema.internal_names import INTERNAL_PREFIX, is_internal
from merganser.schema.literals import default_value
from merganser.schema.spark_json import fields_from_spark_json
from merganser.schema.table_schema import (
    CHANGE_KIND,
    KEY_PREFIX,
    RESERVED_NAMES,
    VALUE_COUNT,
    TableSchema,
    repeated_of,
)
from merganser.schema.types_text import UNNUMBERED, number_fields, parse_type

_OF_KEYS: Final = frozenset(
    option.key
    for option in (
        options_write.MERGE_ENGINE,
        options_write.SEQUENCE_FIELD,
        options_write.SEQUENCE_FIELD_SORT_ORDER,
        options_write.SEQUENCE_AUTO_PADDING,
        options_write.SEQUENCE_SNAPSHOT_ORDERING,
        options_write.DEFAULT_AGGREGATE_FUNCTION,
        options_write.AGGREGATION_REMOVE_RECORD_ON_DELETE,
        options_write.PARTIAL_UPDATE_REMOVE_RECORD_ON_DELETE,
        options_write.PARTIAL_UPDATE_REMOVE_RECORD_ON_SEQUENCE_GROUP,
        options_upkeep.TOMBSTONE_TIME_RETAINED,
    )
)
"""Options that say how rows of one key become one row. So do those of a column, other than these:"""
_OF_ALL_COLUMNS: Final = (
    options_write.DEFAULT_VALUE.suffix,
    options_write.COLUMN_STATS_MODE.suffix,
    options_write.FILE_INDEX_BLOOM_ITEMS.suffix,
    options_write.FILE_INDEX_BLOOM_FPP.suffix,
)


@runtime_checkable
class JsonSchema(Protocol):
    """A schema that gives itself as Spark's schema JSON, so that Spark need not be imported."""

    def json(self) -> str:
        """Return the schema as JSON."""


SchemaLike: TypeAlias = (
    str | Mapping[str, "str | t.DataType"] | Sequence["tuple[str, str | t.DataType] | t.Field"] | pa.Schema | JsonSchema
)
"""Columns as a user gives them: text of CREATE TABLE, name -> type, pairs, an Arrow schema, or a Spark one."""


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
        schema: the columns, in order: text such as "id BIGINT NOT NULL, name STRING, PRIMARY KEY (id)", a mapping
            from name to type text, pairs, fields, an Arrow schema or any object whose `json()` is Spark's schema JSON.
            Ids are given here.
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
    if isinstance(schema, str):
        from merganser.rules.definition import columns_of_text  # noqa: PLC0415 - a tokenizer, wanted by texts alone

        fields, own_key = columns_of_text(schema, what=what)
    else:
        fields, own_key = _fields(schema, what), ()
    _check_columns_given(fields, what)
    _check_names(fields, what)
    names = [field.name for field in fields]
    if comment is not None and not isinstance(comment, str):
        refuse(what, f"comment is {comment!r:.100}, {a_type(comment)}. Give text, or None.")
    check_no_secrets(options or {}, what=what)
    texts = normalize_options(translated(options or {}, what=what))
    if own_key and primary_key and tuple(primary_key) != own_key:
        refuse(
            what,
            f"the primary key is {listed(own_key)} in the schema and {listed(tuple(primary_key))} in primary_key. "
            "Leave one of them out.",
        )
    key = _columns_from(texts, options_write.PRIMARY_KEY.key, primary_key or own_key, what)
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
    view = Options(texts)
    if key and not view.get(options_write.PRIMARY_KEY_NULLABLE):
        fields = not_null(fields, key)
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
    return checked_definition(made, written=False, what=what)


def with_options(made: TableSchema, more: Mapping[str, Any], *, what: str) -> TableSchema:
    """Return a schema with more options, which are checked like those that `create_schema` is given.

    Raises:
        InvalidInputError: a table cannot have them; names the option.
    """
    check_no_secrets(more, what=what)
    texts = normalize_options(translated(more, what=what))
    return checked_definition(replace(made, options=made.options.merged(texts)), written=True, what=what)


def checked_definition(made: TableSchema, *, written: bool, what: str) -> TableSchema:
    """Return a schema that a table may have, with the options that follow from others.

    Args:
        made: its key and partition columns exist.
        written: the table has, or had, a snapshot: no option may follow that rows depend on.
        what: beginning of the message, such as "cannot create 'db.orders'".

    Raises:
        InvalidInputError: it is no table of the format; names the column or option. Nothing was changed.
    """
    _check_names(made.user_fields, what)
    key, names = made.primary_keys, made.names
    check_keys(made.options, columns=names)
    _check_belongs(made.options, key, what)
    _check_producer(made.options, what)
    _check_key_types(made.fields, key, made.partition_keys, what)
    if key and not made.trimmed_primary_key:
        refuse(
            what,
            f"the primary key {listed(key)} consists of partition columns only, so a partition would hold one row. "
            "Add a column to the primary key, or take it out of the partition columns.",
        )
    made = made if written else with_whole_rows(made)
    check_table_options(made, what=what)
    check_versioned(made, what=what)
    for field in made.fields_with_defaults:
        if field.default is not None:
            default_value(field)  # refuses a text that is no literal of the type
    return made


def not_null(fields: tuple[t.Field, ...], key: Sequence[str]) -> tuple[t.Field, ...]:
    """Return columns, those of a key NOT NULL."""
    return tuple(replace(f, type=f.type.with_nullable(False)) if f.name in key else f for f in fields)


def _check_belongs(texts: Mapping[str, str], key: Sequence[str], what: str) -> None:
    """Refuse options that would have no effect here: those of a catalog, and how rows merge if none have a key."""
    for option in texts:
        if find_catalog_option(option) is not None:
            refuse(
                what,
                f"'{option}' is an option of a catalog, and says nothing about one table. Give it to "
                f"merganser.catalog(..., options={{'{option}': ...}}). Nothing was changed.",
                option=option,
            )
    for option in () if key else texts:
        of_column = split_column_key(option)
        if option in _OF_KEYS or (of_column and of_column[1] not in _OF_ALL_COLUMNS):
            refuse(
                what,
                f"'{option}' = '{texts[option]}' needs a primary key: it says how rows of one key become one row. Name "
                "the key in primary_key, or remove the option. Nothing was changed.",
                option=option,
            )


def _check_producer(options: Options, what: str) -> None:
    """Refuse options of changelogs that the chosen producer does not look at."""
    producer = PER_RECORD if publishes_each_record(options) else options.get(options_write.CHANGELOG_PRODUCER)
    found = f"and this table has {producer}" if producer != "none" else "and this table has no changelog producer"
    if options.get(options_write.CHANGELOG_IMAGE) == "wal" and producer != PER_RECORD:
        refuse(
            what,
            f"'changelog.image' = 'wal' goes with 'changelog-producer' = '{PER_RECORD}' alone, {found}. Choose that "
            "producer, or remove the option. Nothing was changed.",
            option=options_write.CHANGELOG_IMAGE.key,
        )
    for option in (options_write.CHANGELOG_ROW_DEDUPLICATE, options_write.CHANGELOG_ROW_DEDUPLICATE_IGNORE_FIELDS):
        if options.get(option) and producer in ("none", "input"):
            refuse(
                what,
                f"'{option.key}' says which changes lookup, full-compaction and {PER_RECORD} leave out, {found}. "
                "Choose one of these producers, or remove the option. Nothing was changed.",
                option=option.key,
            )


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
            f"the schema is {a_type(schema)}. Give text such as 'id BIGINT, name STRING', a dict such as "
            "{'id': 'BIGINT'}, a list of pairs, an Arrow schema or a Spark schema.",
        )
    return fields


def _check_columns_given(fields: tuple[t.Field, ...], what: str) -> None:
    if not fields:
        refuse(what, "the schema has no columns. A table needs at least one.")
    for field in fields:
        arrow_type(field.type)  # refuses types whose values no column of ours can hold


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
    if name.lower() == CHANGE_KIND.name:
        return "readers of changes add a column of this name"
    if is_internal(name):
        return f"names that start with '{INTERNAL_PREFIX}' are those of columns that merganser adds to rows"
    return None


def _check_siblings(fields: Iterable[t.Field], inside: str, what: str) -> None:
    fields = tuple(fields)
    blank = sum(not field.name.strip() for field in fields)
    if blank:
        refuse(what, f"{blank} of {len(fields)} names of columns{inside} are blank. Name every column.")
    if repeated := repeated_of([field.name for field in fields]):
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
            refuse(what, f"the columns of '{key}' hold {column!r:.100}, {a_type(column)}. Give their names.")
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
    if repeated := repeated_of(columns):
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

"""What the rows of a table are: columns with ids, keys, partition and bucket columns, options.

A schema never changes: altering a table makes the next one, numbered id + 1. Its file is one JSON object whose
unknown keys are ignored. `rules.create` makes the first from what a user gives and holds all checks.

Format: section "schema files".
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from merganser.errors import FormatError, InvalidInputError
from merganser.options import write as options_write
from merganser.options.option import Options
from merganser.options.registry import did_you_mean
from merganser.options.secrets import shown
from merganser.schema import types as t
from merganser.schema.internal_names import internal_name
from merganser.schema.types_text import (
    UNNUMBERED,
    field_from_json,
    field_to_json,
)
from merganser.values import dataclass

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
CHANGE_KIND: Final = t.Field(UNNUMBERED, "_row_kind", t.VarChar(nullable=False))
"""What a change did to its row: "+I", "-U", "+U" or "-D"; never stored under this name."""
POSITION: Final = t.Field(UNNUMBERED, internal_name("position"), t.BigInt(nullable=False))
"""Where a row is in its data file, the first being 0; never stored."""
VALUE_COUNT: Final = t.Field(UNNUMBERED, "_VALUE_COUNT", t.BigInt(nullable=False))
"""Column of ours in tables that count equal rows: how many there are."""
RESERVED_NAMES: Final = frozenset(field.name for field in (SEQUENCE_NUMBER, VALUE_KIND, LEVEL, ROW_KIND, ROW_ID))


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
    options: Options = Options()
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
    def placing_columns(self) -> frozenset[str]:
        """The columns that place rows: of the primary key, the partitions and the bucket key. They keep their types."""
        return frozenset((*self.primary_keys, *self.partition_keys, *self.bucket_key))

    @property
    def bucket(self) -> int:
        """Number of buckets, -1 or -2: option `bucket`."""
        return self.options.get(options_write.BUCKET)

    @property
    def cross_partition(self) -> bool:
        """Whether a key may move between partitions: the primary key lacks a partition column."""
        return self.keyed and not set(self.partition_keys) <= set(self.primary_keys)

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
        options = shown(self.options)
        found = self if options == self.options else replace(self, options=options)
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
        if repeated := repeated_of(values):
            raise FormatError(f"cannot read '{path}': two columns have the {kind} {repeated[0]!r}.", path=path)
    for kind, columns in (("partition", schema.partition_keys), ("primary key", schema.primary_keys)):
        for column in columns:
            if column not in names:
                raise FormatError(f"cannot read '{path}': there is no {kind} column '{column}'.", path=path)


def repeated_of(values: Iterable[Hashable]) -> list[Any]:
    """Return the values that occur more than once."""
    return [value for value, count in Counter(values).items() if count > 1]

"""The change from a schema to the next one, in the words of REST catalogs: columns are found again by their ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NoReturn

from merganser.errors import UnsupportedError
from merganser.options.write import STREAM
from merganser.schema import types as t
from merganser.schema.table_schema import TableSchema
from merganser.schema.types_text import field_to_json, type_to_json

ROLE: Final = "merganser.role"
"""What a server of merganser adds to the overrides of its configuration: whether the client may "write" or only "read".

Other servers do not say it; their clients do what the store and the server let them do."""
READ: Final = "read"
WRITE: Final = "write"
BASE_SCHEMA: Final = "baseSchemaId"
"""A field that only clients of merganser send: the id of the schema that changes are changes of."""


def schema_json(schema: TableSchema) -> dict[str, Any]:
    """Return a schema as requests and replies have it."""
    return {
        "fields": [field_to_json(field) for field in schema.fields],
        "partitionKeys": list(schema.partition_keys),
        "primaryKeys": list(schema.primary_keys),
        "options": dict(schema.options),
        "comment": schema.comment,
    }


def is_alike(a: TableSchema, b: TableSchema) -> bool:
    """Return whether two schemas say the same but for what a server chooses: ids of new columns and of a stream."""
    one, other = ({**each, "fields": _without_ids(each["fields"])} for each in map(schema_json, (a, b)))
    for each in (one, other):
        each["options"] = {**each["options"], STREAM.key: STREAM.key in each["options"]}
    return one == other


def _without_ids(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_ids(each) for each in value]
    if isinstance(value, dict):
        return {key: _without_ids(each) for key, each in value.items() if key != "id"}
    return value


def changes_between(old: TableSchema, new: TableSchema, table: str) -> list[dict[str, Any]]:
    """Return the changes that make a schema of another one, in order.

    Raises:
        UnsupportedError: a REST catalog cannot be told.
    """
    if (old.primary_keys, old.partition_keys) != (new.primary_keys, new.partition_keys):
        kept = {field.id: field.name for field in new.fields}
        renamed = {field.name: kept.get(field.id, field.name) for field in old.fields}
        for before, after in ((old.primary_keys, new.primary_keys), (old.partition_keys, new.partition_keys)):
            if tuple(renamed[name] for name in before) != after:
                _refuse(table, "another primary key or other partition columns")
    found = [*_columns((), old.fields, new.fields, table)]
    if old.comment != new.comment:
        found.append({"action": "updateComment", "comment": new.comment})
    found += [
        {"action": "setOption", "key": key, "value": value}
        for key, value in new.options.items()
        if old.options.get(key) != value and key != STREAM.key  # the server sets it with 'stream.enabled'
    ]
    gone = (key for key in old.options if key not in new.options and key != STREAM.key)
    return [*found, *({"action": "removeOption", "key": key} for key in gone)]


def _columns(
    path: tuple[str, ...], old: Sequence[t.Field], new: Sequence[t.Field], table: str
) -> Iterator[dict[str, Any]]:
    """Yield the changes of the columns of a table, or of the fields of a ROW at a path."""
    before, after = {field.id: field for field in old}, {field.id: field for field in new}
    for field in old:
        if field.id not in after:
            yield {"action": "dropColumn", "fieldNames": [*path, field.name]}
    names = {field.id: field.name for field in old if field.id in after}
    waiting = [number for number, name in names.items() if after[number].name != name]
    while waiting:
        free = next((number for number in waiting if after[number].name not in names.values()), None)
        if free is None:
            _refuse(table, "columns that exchange their names")
        yield {"action": "renameColumn", "fieldNames": [*path, names[free]], "newName": after[free].name}
        names[free] = after[free].name
        waiting.remove(free)
    for field in new:
        if field.id in before:
            yield from _field([*path, field.name], before[field.id], field, table)
    order = [after[field.id].name for field in old if field.id in after]
    for field in sorted((field for field in new if field.id not in before), key=lambda field: field.id):
        kind = type_to_json(field.type)
        yield {
            "action": "addColumn",
            "fieldNames": [*path, field.name],
            "dataType": kind,
            "comment": field.description,
            "move": None,
        }
        order.append(field.name)
        if field.default is not None:
            yield _default([*path, field.name], field.default)
    for at, field in enumerate(new):
        if order[at] != field.name:
            if path:
                _refuse(table, f"another order of the fields inside '{'.'.join(path)}'")
            order.remove(field.name)
            order.insert(at, field.name)
            behind = {"type": "AFTER", "referenceFieldName": new[at - 1].name}
            first = {"type": "FIRST", "referenceFieldName": None}
            move = {"fieldName": field.name, **(behind if at else first)}
            yield {"action": "updateColumnPosition", "move": move}


def _field(path: list[str], old: t.Field, new: t.Field, table: str) -> Iterator[dict[str, Any]]:
    yield from _type(path, old.type, new.type, table)
    if old.description != new.description:
        yield {"action": "updateColumnComment", "fieldNames": path, "newComment": new.description}
    if old.default != new.default:
        yield _default(path, new.default)


def _type(path: list[str], old: t.DataType, new: t.DataType, table: str) -> Iterator[dict[str, Any]]:
    match old, new:
        case t.Row(), t.Row():
            yield from _columns(tuple(path), old.fields, new.fields, table)
        case t.Array(), t.Array():
            yield from _type([*path, "element"], old.element, new.element, table)
        case t.Map(), t.Map() if old.key == new.key:
            yield from _type([*path, "value"], old.value, new.value, table)
        case _ if old.with_nullable(True) != new.with_nullable(True):
            yield {
                "action": "updateColumnType",
                "fieldNames": path,
                "newDataType": type_to_json(new.with_nullable(old.nullable)),
                "keepNullability": True,
            }
    if old.nullable != new.nullable:
        yield {"action": "updateColumnNullability", "fieldNames": path, "newNullability": new.nullable}


def _default(path: list[str], value: str | None) -> dict[str, Any]:
    return {"action": "updateColumnDefaultValue", "fieldNames": path, "newDefaultValue": value}


def _refuse(table: str, what: str) -> NoReturn:
    raise UnsupportedError(
        f"cannot alter '{table}': a REST catalog cannot be told of {what}. Nothing was changed. Make smaller changes, "
        "one after the other, or alter the table through the catalog that the server serves.",
        table=table,
    )

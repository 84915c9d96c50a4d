"""What the REST catalog of the format says as JSON: schemas, changes of schemas, snapshots, statistics, errors."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from merganser import changes as c
from merganser.errors import (
    AlreadyExistsError,
    ConflictError,
    ExpiredError,
    FormatError,
    InvalidInputError,
    MerganserError,
    NotFoundError,
    UnsupportedError,
)
from merganser.meta.seal import JSON_SEAL
from merganser.meta.snapshot import Snapshot, snapshot_from_json
from merganser.schema.table_schema import TableSchema
from merganser.schema.types_text import field_from_json, type_from_json
from merganser.serve.answers import JSON_TYPE, Answer

T = TypeVar("T")
V = TypeVar("V")
_STATUS: Final[tuple[tuple[type[MerganserError], int], ...]] = (
    (ExpiredError, 404),
    (NotFoundError, 404),
    (AlreadyExistsError, 409),
    (ConflictError, 409),
    (InvalidInputError, 400),
    (UnsupportedError, 501),
)
_RESOURCES: Final = (
    "dialect", "definition", "tag", "branch", "snapshot", "column", "view", "function", "table", "database"
)  # fmt: skip
"""Facts of an error, the most special one first: clients tell by them what is not there."""


# errors


def status_of(error: Exception) -> int:
    """Return the HTTP status of an error; 500 if the client can do nothing about it."""
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


def error_answer(
    status: int,
    message: str,
    resource: tuple[str | None, str | None] = (None, None),
    headers: Mapping[str, str] | None = None,
) -> Answer:
    """Return an error as clients of the protocol read it.

    Args:
        resource: kind and name of what the error is about.
    """
    kind, name = resource
    body = {"message": message, "resourceType": kind, "resourceName": name, "code": status}
    return Answer(_bytes(body), status, headers=headers or {})


def resource_of(error: Exception) -> tuple[str | None, str | None]:
    """Return kind and name of what an error is about."""
    facts = error.context if isinstance(error, MerganserError) else {}
    for fact in _RESOURCES:
        if facts.get(fact) is not None:
            name = str(facts[fact])
            return fact.upper(), name.partition(".")[2] or name if fact in ("view", "function", "table") else name
    return None, None


def answer_of(value: Mapping[str, Any]) -> Answer:
    """Return JSON."""
    return Answer(_bytes(value), kind=JSON_TYPE)


def _bytes(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def of_column(error: InvalidInputError, changes: Sequence[c.Change], names: Sequence[str]) -> MerganserError:
    """Return a refusal of changes as clients tell it: a column that is there already, or none of this name.

    Args:
        names: of the columns before the changes. The fields of rows are not looked at.
    """
    for change in changes:
        new = change.name if isinstance(change, c.AddColumn) else None
        new = change.new_name if isinstance(change, c.RenameColumn) else new
        if new in names:
            return AlreadyExistsError(error.message, column=new)
        old = None if isinstance(change, c.AddColumn) else getattr(change, "name", None)
        if old is not None and "." not in old and old not in names and error.context.get("column") == old:
            return NotFoundError(error.message, column=old)
    return error


# what clients send


def object_of(body: bytes) -> dict[str, Any]:
    """Return the JSON object of a request.

    Raises:
        InvalidInputError: the body is none.
    """
    try:
        found = json.loads(body) if body else {}
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"the body is not JSON: {error}. Nothing was changed.") from error
    if not isinstance(found, dict):
        raise InvalidInputError("the body is not a JSON object. Nothing was changed.")
    return found


_MISSING: Final = object()


def field_of(value: Mapping[str, Any], key: str, kind: type | tuple[type, ...], default: Any = _MISSING) -> Any:
    """Return a value of a JSON object; null counts as left out.

    Raises:
        InvalidInputError: it is missing and has no default, or is of another type.
    """
    found = value.get(key)
    if found is None and default is not _MISSING:
        return default
    if not isinstance(found, kind) or (isinstance(found, bool) and kind is int):
        raise InvalidInputError(f"'{key}' is {json.dumps(found):.100} in the body. Nothing was changed.")
    return found


def texts_of(value: Mapping[str, Any], key: str) -> dict[str, str]:
    """Return an object whose values are texts."""
    return {str(name): str(text) for name, text in field_of(value, key, dict, {}).items() if text is not None}


def identifier_of(value: Mapping[str, Any], key: str) -> str:
    """Return `database.table` of an object with the names."""
    named = field_of(value, key, dict)
    return f"{field_of(named, 'database', str)}.{field_of(named, 'object', str)}"


def definition_of(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `Catalog.create_table` of a schema."""
    return {
        "schema": [_read(field_from_json, each) for each in field_of(value, "fields", list)],
        "primary_key": field_of(value, "primaryKeys", list, []),
        "partition_by": field_of(value, "partitionKeys", list, []),
        "options": texts_of(value, "options"),
        "comment": field_of(value, "comment", str, None),
    }


def snapshot_of(value: Mapping[str, Any]) -> Snapshot:
    """Return a snapshot that a client commits."""
    text = json.dumps({key: item for key, item in value.items() if key != JSON_SEAL})
    return _read(lambda data: snapshot_from_json(data, "snapshot"), text.encode())


def _read(parse: Callable[[V], T], value: V) -> T:
    try:
        return parse(value)
    except FormatError as error:
        raise InvalidInputError(f"the body has no meaning: {error.message} Nothing was changed.") from error


def changes_of(value: Mapping[str, Any], schema: TableSchema) -> list[c.Change]:
    """Return changes of a schema.

    Args:
        schema: the newest one, for what a change says of the columns that are there.

    Raises:
        InvalidInputError, UnsupportedError: a change is none, or none of ours.
    """
    given = field_of(value, "changes", list)
    return [made for each in given for made in _changes(each, schema, alone=len(given) == 1)]


def _changes(value: Any, schema: TableSchema, *, alone: bool) -> Iterator[c.Change]:
    if not isinstance(value, dict):
        raise InvalidInputError(f"the change {json.dumps(value):.100} is no object. Nothing was changed.")
    action = field_of(value, "action", str)
    match action:
        case "setOption":
            yield c.SetOption(field_of(value, "key", str), field_of(value, "value", str))
        case "removeOption":
            yield c.RemoveOption(field_of(value, "key", str))
        case "updateComment":
            yield c.SetComment(field_of(value, "comment", str, None))
        case "addColumn":
            move = field_of(value, "move", dict, None)
            place = c.Place() if move is None else _place(move, schema, alone=alone)
            kind = _read(type_from_json, value.get("dataType"))
            yield c.AddColumn(_column(value), kind, place, comment=field_of(value, "comment", str, None))
        case "renameColumn":
            yield c.RenameColumn(_column(value), field_of(value, "newName", str))
        case "dropColumn":
            yield c.DropColumn(_column(value))
        case "updateColumnType":
            kind = _read(type_from_json, value.get("newDataType"))
            keeps = field_of(value, "keepNullability", bool, False)
            yield c.RetypeColumn(_column(value), kind.with_nullable(True) if keeps else kind)
            if kind.nullable and not keeps:
                yield c.SetNullable(_column(value), True)
        case "updateColumnNullability":
            yield c.SetNullable(_column(value), field_of(value, "newNullability", bool))
        case "updateColumnComment":
            yield c.CommentColumn(_column(value), field_of(value, "newComment", str, None))
        case "updateColumnDefaultValue":
            yield c.SetDefault(_column(value), field_of(value, "newDefaultValue", str, None))
        case "updateColumnPosition":
            move = field_of(value, "move", dict)
            yield c.MoveColumn(field_of(move, "fieldName", str), _place(move, schema, alone=alone))
        case _:
            raise UnsupportedError(f"a table cannot be changed by '{action:.50}' here. Nothing was changed.")


def _column(value: Mapping[str, Any]) -> str:
    """Return the path of a column, as changes name it."""
    names = field_of(value, "fieldNames", list)
    if not names or not all(isinstance(name, str) for name in names):
        raise InvalidInputError(f"'fieldNames' is {json.dumps(names):.100}. Nothing was changed.")
    return ".".join(names)


def _place(move: Mapping[str, Any], schema: TableSchema, *, alone: bool) -> c.Place:
    kind = field_of(move, "type", str)
    if kind == "FIRST":
        return c.Place(first=True)
    if kind == "LAST":
        return c.Place()
    other = field_of(move, "referenceFieldName", str)
    if kind == "AFTER":
        return c.Place(after=other)
    if kind != "BEFORE" or not alone:
        raise UnsupportedError(
            f"a column cannot be moved by '{kind:.50}' together with other changes. Nothing was changed. Send this "
            "change alone."
        )
    moved = move.get("fieldName")
    names = [name for name in schema.names if name != moved]
    at = names.index(schema.field(other).name)
    return c.Place(after=names[at - 1]) if at else c.Place(first=True)


# what clients get


def snapshot_json(snapshot: Snapshot) -> dict[str, Any]:
    """Return a snapshot as its file has it, without the checksum of the file."""
    found = json.loads(snapshot.to_json())
    return {key: value for key, value in found.items() if key != JSON_SEAL}


def statistics_json(totals: tuple[int, int, int, int | None]) -> dict[str, Any]:
    """Return rows, bytes and number of files, and when the newest one was created."""
    rows, size, files, created = totals
    return {"recordCount": rows, "fileSizeInBytes": size, "fileCount": files, "lastFileCreationTime": created or 0}


# pages and patterns


_NAMES: Final = 10_000
"""Default and maximum number of names of a page: each page lists the catalog, which takes longer than to send them."""
_DETAILS: Final = 1_000
"""The same of tables with their schemas."""


def page(key: str, entries: Sequence[Any], query: Mapping[str, str]) -> dict[str, Any]:
    """Return a page of sorted entries. Its token is the last entry, so that later pages are right after changes."""
    bound = _DETAILS if key == "tableDetails" else _NAMES
    asked, after = query.get("maxResults", ""), query.get("pageToken")
    if asked and not (asked.isascii() and asked.isdigit()):
        raise InvalidInputError(f"maxResults is {asked!r:.40}. Give a whole number.")
    most = min(int(asked or 0) or bound, bound)
    left = entries
    if after:
        begin = int(after) if entries and isinstance(entries[0], int) and after.isdigit() else after
        left = [entry for entry in entries if entry > begin]
    found = list(left[:most])
    return {key: found, "nextPageToken": str(found[-1]) if len(left) > most else None}


def like(pattern: str | None, names: Sequence[str]) -> list[str]:
    """Return the names that a pattern of SQL's LIKE matches; all without one."""
    if not pattern:
        return list(names)
    parts = re.findall(r"\\.|.", pattern, re.DOTALL)
    wild = {"%": ".*", "_": "."}
    regex = re.compile("".join(wild.get(each) or re.escape(each.removeprefix("\\")) for each in parts), re.DOTALL)
    return [name for name in names if regex.fullmatch(name)]

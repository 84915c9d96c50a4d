"""Columns: what files say of their own columns, and the columns of a table that holds the rows of all.

Files of one folder differ: a column came later, an INT became a BIGINT. The format has a place for that. The table gets
a schema for each different set of columns, as if it had been altered from one to the next, and the newest one holds all
of them. Each file is read through the schema that it fits, by every engine, and no file is written again.

Types meet in the smallest one that holds every value of both (`widened`): nothing is lost. Where there is none, the
folder is refused, unless the caller says which type the column shall have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from merganser.codec.avro_file import FOREIGN
from merganser.codec.physical import SHREDDED, is_shredded
from merganser.errors import InvalidInputError, UnsupportedError
from merganser.schema import types as t
from merganser.schema.arrow import type_from_arrow
from merganser.schema.types_text import UNNUMBERED
from merganser.schema.widening import widened


def columns_of(schema: pa.Schema, *, path: str, copied: bool, what: str) -> tuple[t.Field, ...]:
    """Return the columns of a file, not numbered.

    Args:
        schema: the columns as the file says them.
        path: the file.
        copied: other engines need not read the file.
        what: beginning of messages.

    Raises:
        UnsupportedError: a column is stored in a way that the format has no type for; names the column and the file.
        InvalidInputError: two columns have one name, or there is none.
    """
    if not len(schema):
        raise InvalidInputError(f"{what}: '{path}' has no columns. Nothing was changed.", path=path)
    if all(name.startswith("_col") and name[4:].isdigit() for name in schema.names):
        raise UnsupportedError(
            f"{what}: the columns of '{path}' are called {schema.names[0]!r} and so on: Hive before version 2 kept "
            "their names in its metastore alone. Nothing was changed. Write the files again with Hive or Spark, which "
            "know the names.",
            path=path,
        )
    for field in schema:
        if not copied and field.metadata and FOREIGN in field.metadata:
            raise UnsupportedError(
                f"{what}: column '{field.name}' of '{path}' {field.metadata[FOREIGN].decode()}, which other engines do "
                "not read in a table. Nothing was changed. Pass how='copy', which writes the rows to new files.",
                column=field.name,
                path=path,
            )
        if is_shredded(field.type):
            why = SHREDDED.format(still_true="Nothing was changed.")
            raise UnsupportedError(f"{what}: column '{field.name}' of '{path}' {why}", column=field.name, path=path)
    return tuple(_column(field, field.name, path, what) for field in schema)


def _column(field: pa.Field, column: str, path: str, what: str) -> t.Field:
    _check_stored(field.type, column, path, what)
    try:
        kind = type_from_arrow(field.type, column)
    except InvalidInputError as error:
        raise _not_kept(field.type, column, path, what) from error
    return t.Field(UNNUMBERED, field.name, kind.with_nullable(field.nullable))


def _check_stored(kind: pa.DataType, column: str, path: str, what: str) -> None:
    """Refuse values that other readers of tables would not find in the bytes: what no writer of tables writes."""
    is_ = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if is_.is_dictionary(kind):
        kind = kind.value_type
    for i in range(kind.num_fields):
        part = kind.field(i)
        _check_stored(part.type, f"{column}.{part.name}", path, what)
    coarse = is_.is_time(kind) and kind.unit != "ms"
    if coarse or is_.is_unsigned_integer(kind) or is_.is_float16(kind) or is_.is_duration(kind) or is_.is_null(kind):
        raise _not_kept(kind, column, path, what)


def _not_kept(kind: pa.DataType, column: str, path: str, what: str) -> UnsupportedError:
    return UnsupportedError(
        f"{what}: column '{column}' of '{path}' holds {kind}, which data files of a table do not. Nothing was changed. "
        "Create a table with a column that takes the values, and write the rows: table.load(...) for files, or "
        "ms.write(df, table) on Spark.",
        column=column,
        path=path,
    )


class Union:
    """The columns that hold the rows of several files, as files are added one by one.

    Attributes:
        fields: by name, in the order in which they came; not numbered.
    """

    def __init__(self, what: str) -> None:
        self.fields: dict[str, t.Field] = {}
        self._what = what
        self._said_by: dict[str, str] = {}
        self._files = 0

    def add(self, fields: Sequence[t.Field], path: str, given: Mapping[str, t.DataType]) -> None:
        """Add the columns of a file.

        Args:
            given: types that columns have whatever files say.

        Raises:
            InvalidInputError: no type holds the values of this file and of those before; names column and files.
        """
        there = {field.name for field in fields}
        for name, known in self.fields.items():
            if name not in there:
                self.fields[name] = replace(known, type=known.type.with_nullable(True))
        for field in fields:
            if field.name not in self.fields:
                nullable = field.type.nullable or self._files > 0
                self.fields[field.name] = replace(field, type=field.type.with_nullable(nullable))
                self._said_by[field.name] = path
                continue
            known = self.fields[field.name]
            if field.name in given:
                nullable = known.type.nullable or field.type.nullable
                self.fields[field.name] = replace(known, type=known.type.with_nullable(nullable))
                continue
            kind = widened(known.type, field.type)
            if kind is None:
                raise InvalidInputError(
                    f"{self._what}: column '{field.name}' is {known.type} in '{self._said_by[field.name]}' and "
                    f"{field.type} in '{path}', and no type holds the values of both. Nothing was changed. Say which "
                    f"type the column shall have, as in types={{'{field.name}': 'STRING'}}, or migrate the files "
                    "apart.",
                    column=field.name,
                    path=path,
                )
            if kind != known.type:
                self._said_by[field.name] = path
            self.fields[field.name] = replace(known, type=kind)
        self._files += 1


def as_version(fields: Iterable[t.Field], newest: Sequence[t.Field]) -> tuple[t.Field, ...]:
    """Return the columns of a file with the ids that they have in the newest schema, in its order.

    They are as nullable as there, so that files that differ in nothing else are of one version.
    """
    own = {field.name: field.type for field in fields}
    return tuple(replace(field, type=_as_version(own[field.name], field.type)) for field in newest if field.name in own)


def _as_version(own: t.DataType, newest: t.DataType) -> t.DataType:
    kind = own
    match own, newest:
        case t.Row(), t.Row():
            inner = {field.name: field.type for field in own.fields}
            kept = [field for field in newest.fields if field.name in inner]
            kind = t.Row(fields=tuple(replace(each, type=_as_version(inner[each.name], each.type)) for each in kept))
        case t.Array(), t.Array():
            kind = t.Array(element=_as_version(own.element, newest.element))
        case t.Map(), t.Map():
            kind = t.Map(key=newest.key, value=_as_version(own.value, newest.value))
    return kind.with_nullable(newest.nullable)

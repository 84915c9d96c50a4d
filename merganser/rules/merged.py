"""The changes that make room in a schema for the columns of rows that are to be written.

A column that the table lacks is added, at any depth, and nullable. A type changes only if that was asked for: to one
that holds each of its values (`widening`), or to that of the rows whatever becomes of values that are there
(`casting`). Arrow does not say how long texts and bytes may be, nor with how many digits of seconds a time is meant:
these stay as they are. Nor does a column of rows that is null in all of them say what its values are: the table has to
know it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

import pyarrow as pa

from merganser import changes as c
from merganser.errors import InvalidInputError
from merganser.options import write as w
from merganser.schema import types as t
from merganser.schema.arrow import LISTS, lacks_type, type_from_arrow
from merganser.schema.casts import can_read_as, holds_all, is_implicit
from merganser.schema.table_schema import TableSchema, repeated_of
from merganser.schema.types_text import UNNUMBERED

_LENGTHS: Final = ((t.Char, t.VarChar), (t.Binary, t.VarBinary))


def room_for(
    schema: TableSchema, given: pa.Schema | Sequence[t.Field], *, without: Collection[str] = ()
) -> list[c.Change]:
    """Return the changes of a schema that rows of some columns need, as the options of the table allow them.

    Args:
        given: columns of the rows.
        without: columns of the rows that are not stored.

    Raises:
        InvalidInputError: a new column has an Arrow type that names no type of ours; or its name is there twice, or
            differs from another name in case alone. Nothing was changed.
    """
    options = schema.options
    merging = _Merging(
        widening=options.get(w.MERGE_SCHEMA_WIDENING),
        casting=options.get(w.MERGE_SCHEMA_CASTING),
        fixed=frozenset({*schema.primary_keys, *schema.partition_keys}),
    )
    stored = [field for field in given if field.name not in without]
    if isinstance(given, pa.Schema):
        stored = list(_told(stored, schema.user_fields, ""))
    return list(merging.fields(schema.user_fields, stored, ""))


def _told(given: Iterable[pa.Field], there: Sequence[t.Field], before: str) -> Iterator[t.Field]:
    """Yield the columns of rows whose types Arrow tells; `before` is the path to them.

    Raises:
        InvalidInputError: a column that is not there has none of our types.
    """
    known = {field.name: field.type for field in there}
    for field in given:
        path = before + field.name
        if field.name in known:
            kind = _type_told(field.type, known[field.name], path)
        elif lacks_type(field.type):
            raise InvalidInputError(
                f"cannot add column '{path}' to the table: it has the Arrow type {field.type} in the data, which does "
                "not tell what its values are. Nothing was written. Cast it to its type, or leave it out.",
                column=path,
            )
        else:
            kind = type_from_arrow(field.type, path)
        if kind is not None:
            yield t.Field(UNNUMBERED, field.name, kind.with_nullable(field.nullable))


def _type_told(given: pa.DataType, known: t.DataType, path: str) -> t.DataType | None:
    """Return what an Arrow type tells of a column that is there; None: nothing, so that its values have to fit."""
    match known:
        case t.Row() if pa.types.is_struct(given):
            fields = tuple(_told(given, known.fields, path + "."))
            return t.Row(fields=fields) if fields else None
        case t.Array() if isinstance(given, LISTS):
            element = _type_told(given.value_type, known.element, path + ".element")
            return None if element is None else t.Array(element=element)
        case t.Map() if pa.types.is_map(given):
            value = _type_told(given.item_type, known.value, path + ".value")
            return None if value is None else t.Map(key=known.key, value=value)
    try:
        return type_from_arrow(given, path)
    except InvalidInputError:
        return None


class _Merging:
    """What may change."""

    def __init__(self, *, widening: bool, casting: bool, fixed: frozenset[str]) -> None:
        self._widening = widening
        self._casting = casting
        self._fixed = fixed

    def fields(self, there: Sequence[t.Field], given: Sequence[t.Field], before: str) -> Iterator[c.Change]:
        """Yield the changes that siblings need; `before` is the path to them."""
        known = {field.name: field.type for field in there}
        _check_names(known, [field.name for field in given], before)
        for field in given:
            path = before + field.name
            if field.name not in known:
                _check_inside(field.type, path + ".")
                yield c.add_column(path, field.type.with_nullable(True))
            elif path not in self._fixed:
                yield from self._types(known[field.name], field.type, path)

    def _types(self, old: t.DataType, new: t.DataType, path: str) -> Iterator[c.Change]:
        match old, new:
            case t.Row(), t.Row():
                yield from self.fields(old.fields, new.fields, path + ".")
            case t.Array(), t.Array():
                yield from self._types(old.element, new.element, path + ".element")
            case t.Map(), t.Map():
                yield from self._types(old.value, new.value, path + ".value")
            case _:
                if self._changes(old, new):
                    yield c.retype_column(path, new.with_nullable(True))

    def _changes(self, old: t.DataType, new: t.DataType) -> bool:
        """Return whether a column gets the type of the rows."""
        if type(old) is type(new) and not isinstance(new, t.Decimal):
            return False
        if any(isinstance(old, kinds) and isinstance(new, kinds) for kinds in _LENGTHS):
            return False
        if is_implicit(new, old):
            return False  # each value fits
        return (self._widening and holds_all(old, new)) or (self._casting and can_read_as(old, new))


def _check_names(known: Collection[str], given: Sequence[str], before: str) -> None:
    """Refuse new columns whose names are there twice, or differ from another one in case alone.

    Names count in their case, in the format and in writes. Yet Spark does not tell such columns apart by its default,
    and rows with another spelling of a column are mostly meant for it.
    """
    if repeated := repeated_of([name for name in given if name not in known]):
        raise InvalidInputError(
            f"cannot add column '{before}{repeated[0]}' to the table: it occurs {given.count(repeated[0])} times in "
            "the data. Nothing was written. Keep one.",
            column=before + repeated[0],
        )
    spelled = {name.lower(): name for name in known}
    for name in given:
        if name not in known and (not name or "." in name):
            why = "a dot stands between a column and a field of it" if name else "it has no name"
            raise InvalidInputError(
                f"cannot add column '{before}{name}' to the table: {why}. Nothing was written. Give it another name "
                "in the data, or leave it out.",
                column=before + name,
            )
        other = name if name in known else spelled.setdefault(name.lower(), name)
        if other != name:
            of = "of the table" if other in known else "of the data"
            raise InvalidInputError(
                f"cannot add column '{before}{name}' to the table: it differs from column '{before}{other}' {of} in "
                f"case alone. Nothing was written. Call it '{other}' if it is the same column, or add it with "
                "Table.alter.",
                column=before + name,
            )


def _check_inside(kind: t.DataType, before: str) -> None:
    """Check the names of the fields of a new column likewise."""
    match kind:
        case t.Row(fields=fields):
            _check_names((), [field.name for field in fields], before)
            for field in fields:
                _check_inside(field.type, f"{before}{field.name}.")
        case t.Array(element=element):
            _check_inside(element, before)
        case t.Map(value=value):
            _check_inside(value, before)

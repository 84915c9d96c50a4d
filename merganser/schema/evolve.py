"""Rows of an older schema seen as rows of today's.

Columns are matched by id, and so are the fields of a ROW at any depth, through ARRAY elements and MAP values too: a
renamed or moved one keeps its values, one that was dropped and made again under the same name does not see the old
ones. What the old schema lacks is null; a column's default is for writers. Values of a type that changed are turned
into the new one as the reference's reader does (`casts`), bit for bit; a MAP's keys keep their type.

A file may also have a newer schema than the one that is read with: the table was opened before a change of its columns.
Then each value is checked (`casts.cast_exactly`): a column that was widened is read as long as its values fit, and
nothing wraps or is cut. The rules of the reference lose values, which is right only for a change that a user made.

A statistic counts only for a column whose type is the same in both schemas (`Evolution.unchanged`): of converted
values nothing is known before they are read, so a filter on them skips no rows of the file and runs on what came out.

Format: "evolution rules", "reading an old file".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from merganser.errors import ConflictError, UnsupportedError
from merganser.schema import types as t
from merganser.schema.arrow import arrow_schema, arrow_type
from merganser.schema.cast_values import items_of, validity
from merganser.schema.casts import CastError, can_read_as, cast_array, cast_exactly
from merganser.schema.hidden import nulls
from merganser.values import dataclass


@dataclass(frozen=True, slots=True)
class _File:
    """What is read.

    Attributes:
        name: for errors.
        is_newer: its schema is newer than the one that is read with.
    """

    name: str
    is_newer: bool


@dataclass(frozen=True, slots=True)
class Evolution:
    """How to turn stored columns into wanted ones.

    Attributes:
        wanted: columns of today's schema, in the order asked.
        stored: the columns to read from the file, with the names and types they have there.
        unchanged: by today's name, the stored column of the same type, whose statistics count as they are.
        sources: for each wanted column its position in `stored`, or None when the file lacks it.
        constants: by today's name, the value of a column that the file lacks and that is not null in its rows.
        file: what is read.
    """

    wanted: tuple[t.Field, ...]
    stored: tuple[t.Field, ...]
    unchanged: Mapping[str, t.Field]
    sources: tuple[int | None, ...]
    constants: Mapping[str, pa.Scalar]
    file: _File

    @classmethod
    def plan(
        cls,
        wanted: Sequence[t.Field],
        file_fields: Sequence[t.Field],
        *,
        name: str,
        is_newer: bool = False,
        constants: Mapping[str, pa.Scalar] | None = None,
    ) -> Evolution:
        """Return how columns of a file of `file_fields` become `wanted`.

        Args:
            name: what is read, for errors.
            is_newer: the schema of the file is newer than that of `wanted`.
            constants: by the name in the file's schema, the value that each row has in a column that is not stored;
                of the Arrow type of the column, whose type never changes.

        Raises:
            UnsupportedError: a type changed into one that its values cannot be turned into; names the column and
                both types.
            ConflictError: the same, of a file of a newer schema.
        """
        file = _File(name, is_newer)
        by_id = {field.id: field for field in file_fields}
        stored: list[t.Field] = []
        sources: list[int | None] = []
        unchanged = {}
        held = {}
        for field in wanted:
            old = by_id.get(field.id)
            if old is not None and constants and old.name in constants:
                held[field.name] = constants[old.name]
                old = None
            if old is None:
                sources.append(None)
                continue
            if not _same(old.type, field.type):
                _check(old.type, field.type, column=field.name, file=file)
            elif (not is_newer or field.type.nullable or not old.type.nullable) and _alike(old.type, field.type):
                unchanged[field.name] = old
            sources.append(len(stored))
            stored.append(old)
        return cls(tuple(wanted), tuple(stored), unchanged, tuple(sources), held, file)

    def comparable(self) -> dict[str, str]:
        """Return what columns are called in the file whose stored values compare as the wanted ones do.

        They are the same, or whole numbers that became wider.
        """
        names = {name: old.name for name, old in self.unchanged.items()}
        for field, source in zip(self.wanted, self.sources, strict=True):
            if source is not None and field.name not in names and not self.file.is_newer:
                old = self.stored[source]
                if _is_wider(old.type, field.type):
                    names[field.name] = old.name
        return names

    def apply(self, table: pa.Table, rows: int) -> pa.Table:
        """Return the wanted columns of the stored ones.

        Args:
            table: the columns of `stored`, in that order.
            rows: how many rows it has, since it may have no column.

        Returns:
            As many rows, in order: the columns of `wanted`, each of its Arrow type. All are nullable: a NOT NULL
            column added since is null here.

        Raises:
            UnsupportedError: a value cannot be turned into the new type; names the column and the value.
            ConflictError: the schema of the file is newer, and a value does not fit the type of before, or is null in
                a column that was NOT NULL.
        """
        schema = arrow_schema(self.wanted)
        columns = []
        for field, wanted, source in zip(schema, self.wanted, self.sources, strict=True):
            if source is None and wanted.name in self.constants:
                columns.append(pa.chunked_array([pa.repeat(self.constants[wanted.name], rows)], field.type))
            elif source is None:
                columns.append(pa.chunked_array([nulls(rows, field.type)], field.type))
            else:
                old = self.stored[source].type
                chunks = [
                    _converted(chunk, old, wanted.type, column=wanted.name, file=self.file)
                    for chunk in table.column(source).chunks
                ]
                columns.append(pa.chunked_array(chunks, field.type))
            if self.file.is_newer and not field.nullable and columns[-1].null_count:
                raise _reopen(wanted.name, self.file, f"it is null in {columns[-1].null_count:,} of {rows:,} rows")
        nullable = pa.schema([field.with_nullable(True) for field in schema])
        return pa.Table.from_arrays(columns, schema=nullable)


def _is_wider(old: t.DataType, new: t.DataType) -> bool:
    """Return whether a type is a whole number with room for each value of another one."""
    kinds = (t.TinyInt, t.SmallInt, t.Int, t.BigInt)
    return isinstance(old, kinds) and isinstance(new, kinds[kinds.index(type(old)) :])


def _same(old: t.DataType, new: t.DataType) -> bool:
    """Return whether values are the same as they stand, nullability apart."""
    match old, new:
        case t.Row(), t.Row():
            return len(old.fields) == len(new.fields) and all(
                a.id == b.id and a.name == b.name and _same(a.type, b.type)
                for a, b in zip(old.fields, new.fields, strict=True)
            )
        case t.Array(), t.Array():
            return _same(old.element, new.element)
        case t.Multiset(), t.Multiset():
            return _same(old.element, new.element)
        case t.Map(), t.Map():
            return _same(old.key, new.key) and _same(old.value, new.value)
    return old.with_nullable(True) == new.with_nullable(True)


def _alike(old: t.DataType, new: t.DataType) -> bool:
    """Return whether two types with the same values are one in Arrow, where parts of values are nullable or not."""
    return not t.is_nested(new) or arrow_type(old) == arrow_type(new)


def _check(old: t.DataType, new: t.DataType, *, column: str, file: _File) -> None:
    """Refuse a change of type whose values cannot be turned into the new one, at any depth.

    Raises:
        UnsupportedError, ConflictError: there is one; names the column or the part of it.
    """
    match old, new:
        case t.Row(), t.Row():
            by_id = {field.id: field.type for field in old.fields}
            for field in new.fields:
                if field.id in by_id:
                    _check(by_id[field.id], field.type, column=f"{column}.{field.name}", file=file)
            return
        case t.Array(), t.Array():
            return _check(old.element, new.element, column=column + ".element", file=file)
        case t.Map(), t.Map() if _same(old.key, new.key):
            return _check(old.value, new.value, column=column + ".value", file=file)
    if _same(old, new):
        return
    if file.is_newer and not (can_read_as(old, new) and can_read_as(new, old)):
        raise _reopen(column, file, f"it was written as {old}, which is not read as {new}")
    if not can_read_as(old, new):
        raise UnsupportedError(
            f"cannot read column '{column}' of '{file.name}': it was written as {old} and is {new} now, and such "
            "values are not turned into each other. Columns whose type did not change can be read; select them by "
            f"name. To read this one, change its type back to {old}, or read a snapshot from before the change.",
            column=column,
            path=file.name,
        )


def _reopen(column: str, file: _File, fact: str, **context: Any) -> ConflictError:
    """Return the error for a column of a newer schema than the one that is read with."""
    return ConflictError(
        f"cannot read column '{column}' of '{file.name}': {fact}. The schema of the table has changed since this table "
        "object was opened. Other columns can be read; select them by name. To read this one, open the table again.",
        column=column,
        path=file.name,
        fact=fact,
        **context,
    )


def _converted(values: pa.Array, old: t.DataType, new: t.DataType, *, column: str, file: _File) -> pa.Array:
    """Return values of the type that a file has as values of the Arrow type of the schema that is read with.

    Raises:
        UnsupportedError, ConflictError: a value cannot be turned into the new type.
    """
    kind = arrow_type(new)
    if _same(old, new) and values.type.equals(kind):
        return values
    if not len(values):
        return pa.array([], kind)
    match old, new:
        case t.Row(), t.Row():
            # `flatten` makes null what lies under a null row, so that no cast looks at it.
            parts = dict(zip((f.id for f in old.fields), zip(old.fields, values.flatten(), strict=True), strict=True))
            children = []
            for field in new.fields:
                if field.id not in parts:
                    children.append(nulls(len(values), arrow_type(field.type)))
                    continue
                was, part = parts[field.id]
                children.append(_converted(part, was.type, field.type, column=f"{column}.{field.name}", file=file))
            return pa.Array.from_buffers(kind, len(values), [validity(values)], children=children)
        case t.Array(), t.Array():
            offsets, (elements,) = items_of(values)
            child = _converted(elements, old.element, new.element, column=column + ".element", file=file)
            return pa.Array.from_buffers(kind, len(values), [validity(values), offsets], children=[child])
        case t.Map(), t.Map():
            offsets, (keys, items) = items_of(values)
            keys = _converted(keys, old.key, new.key, column=column + ".key", file=file)
            items = _converted(items, old.value, new.value, column=column + ".value", file=file)
            entries = pa.StructArray.from_arrays([keys, items], fields=list(kind.field(0).type))
            return pa.Array.from_buffers(kind, len(values), [validity(values), offsets], children=[entries])
        case t.Multiset(), t.Multiset():
            return _converted(values, _as_map(old), _as_map(new), column=column, file=file)
    try:
        return (cast_exactly if file.is_newer else cast_array)(values, old, new)
    except CastError as error:
        more = f" (and {error.count - 1} others)" if error.count > 1 else ""
        if file.is_newer:
            fact = f"the value '{error.value}'{more} was written as {old} and does not fit {new}"
            raise _reopen(column, file, fact, value=error.value) from error
        raise UnsupportedError(
            f"cannot read column '{column}' of '{file.name}': the value '{error.value}'{more} was written as {old} and "
            f"is no {new}, as the column is now. Other columns can be read; select them by name. To read this one, "
            f"change its type back to {old}, or read a snapshot from before the change.",
            column=column,
            value=error.value,
            path=file.name,
        ) from error


def _as_map(kind: t.Multiset) -> t.Map:
    return t.Map(key=kind.element, value=t.Int(nullable=False))

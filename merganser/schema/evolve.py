"""Rows of an older schema seen as rows of today's.

Columns are matched by id: a renamed column keeps its values, one that was dropped and made again under the
same name does not see the old ones. A column that the old schema lacks is null. A type that changed is
converted where every value survives (wider integers and decimals, longer text, finer timestamps); other
conversions are refused rather than guessed.

Format: "evolution rules", "reading an old file".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from merganser.errors import UnsupportedError
from merganser.schema import types as t
from merganser.schema.arrow import arrow_schema, arrow_type


@dataclass(frozen=True, slots=True)
class Evolution:
    """How to turn stored columns into wanted ones.

    Attributes:
        wanted: columns of today's schema, in the order asked.
        stored: the columns to read from the file, with the names and types they have there.
        unchanged: by today's name, the stored column of the same type, whose statistics count as they are.
        sources: for each wanted column its position in `stored`, or None when the file lacks it.
    """

    wanted: tuple[t.Field, ...]
    stored: tuple[t.Field, ...]
    unchanged: Mapping[str, t.Field]
    sources: tuple[int | None, ...]

    @classmethod
    def plan(cls, wanted: Sequence[t.Field], file_fields: Sequence[t.Field], *, name: str) -> Evolution:
        """Return how columns of a file of `file_fields` become `wanted`.

        Raises:
            UnsupportedError: a type changed in a way that is not converted yet; names the column and both types.
        """
        by_id = {field.id: field for field in file_fields}
        stored: list[t.Field] = []
        sources: list[int | None] = []
        unchanged = {}
        for field in wanted:
            old = by_id.get(field.id)
            if old is None:
                sources.append(None)
                continue
            if _same(old.type, field.type):
                unchanged[field.name] = old
            elif not _widens(old.type, field.type):
                raise UnsupportedError(
                    f"cannot read column '{field.name}' of '{name}': it was written as {old.type} and is {field.type} now, "
                    "a conversion this version does not make. Columns whose type did not change can be read; select them by name.",
                    column=field.name,
                )
            sources.append(len(stored))
            stored.append(old)
        return cls(tuple(wanted), tuple(stored), unchanged, tuple(sources))

    def apply(self, table: pa.Table, rows: int) -> pa.Table:
        """Return the wanted columns of the stored ones, `rows` rows of them."""
        schema = arrow_schema(self.wanted)
        columns = []
        for field, source in zip(schema, self.sources, strict=True):
            if source is None:
                columns.append(pa.chunked_array([pa.nulls(rows, field.type)], field.type))
            else:
                column = table.column(source)
                columns.append(column if column.type.equals(field.type) else _converted(column, field.type))
        nullable = pa.schema([field.with_nullable(True) for field in schema])  # an added NOT NULL column is null in old files
        return pa.Table.from_arrays(columns, schema=nullable)


def _same(old: t.DataType, new: t.DataType) -> bool:
    """Return whether values are the same as they stand, nullability and field names apart."""
    if isinstance(old, t.Row) and isinstance(new, t.Row):
        return len(old.fields) == len(new.fields) and all(
            a.id == b.id and a.name == b.name and _same(a.type, b.type) for a, b in zip(old.fields, new.fields, strict=True)
        )
    if isinstance(old, t.Array) and isinstance(new, t.Array):
        return _same(old.element, new.element)
    if isinstance(old, t.Map) and isinstance(new, t.Map):
        return _same(old.key, new.key) and _same(old.value, new.value)
    return old.with_nullable(True) == new.with_nullable(True)


_INTEGERS = (t.TinyInt, t.SmallInt, t.Int, t.BigInt)
_DIGITS = {t.TinyInt: 3, t.SmallInt: 5, t.Int: 10, t.BigInt: 19}


def _widens(old: t.DataType, new: t.DataType) -> bool:
    """Return whether every value of the old type is a value of the new one, and we convert it."""
    match old, new:
        case (t.TinyInt() | t.SmallInt() | t.Int() | t.BigInt(), t.TinyInt() | t.SmallInt() | t.Int() | t.BigInt()):
            return _INTEGERS.index(type(old)) <= _INTEGERS.index(type(new))
        case (t.TinyInt() | t.SmallInt() | t.Int() | t.BigInt(), t.Decimal(precision=precision, scale=scale)):
            return precision - scale >= _DIGITS[type(old)]
        case (t.TinyInt() | t.SmallInt() | t.Int() | t.Float(), t.Double()) | (t.TinyInt() | t.SmallInt(), t.Float()):
            return True
        case (t.Decimal(), t.Decimal()):
            return new.scale >= old.scale and new.precision - new.scale >= old.precision - old.scale
        case (t.Char() | t.VarChar(), t.VarChar()) | (t.Binary() | t.VarBinary(), t.VarBinary()):
            return new.length >= old.length
        case (t.Timestamp(), t.Timestamp()) | (t.LocalZonedTimestamp(), t.LocalZonedTimestamp()):
            return new.precision >= old.precision
        case (t.Time(), t.Time()):
            return new.precision >= old.precision
        case (t.Date(), t.Timestamp()):
            return True
    if (isinstance(old, t.Row) and isinstance(new, t.Row)) or (isinstance(old, t.Array) and isinstance(new, t.Array)):
        return _nested_widens(old, new)
    return isinstance(old, t.Map) and isinstance(new, t.Map) and _same(old.key, new.key) and _fits(old.value, new.value)


def _fits(old: t.DataType, new: t.DataType) -> bool:
    return _same(old, new) or _widens(old, new)


def _nested_widens(old: t.DataType, new: t.DataType) -> bool:
    if isinstance(old, t.Array) and isinstance(new, t.Array):
        return _fits(old.element, new.element)
    return False


def _converted(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    return pc.cast(column, kind)

"""The changes that make room in a schema for the columns of rows that are to be written.

A column that the table lacks is added, at any depth, and nullable. A type changes only if that was asked for: to one
that holds more (`widening`), or to that of the rows whatever becomes of values that are there (`casting`). Arrow does
not say how long texts and bytes may be, nor with how many digits of seconds a time is meant: these stay as they are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from merganser import changes as c
from merganser.options import write as w
from merganser.schema import types as t
from merganser.schema.casts import can_read_as, is_implicit
from merganser.schema.table_schema import TableSchema


def room_for(schema: TableSchema, given: Sequence[t.Field], *, without: Collection[str] = ()) -> list[c.Change]:
    """Return the changes of a schema that rows of some columns need, as the options of the table allow them.

    Args:
        given: columns of the rows.
        without: columns of the rows that are not stored.
    """
    options = schema.options
    merging = _Merging(
        widening=options.get(w.MERGE_SCHEMA_WIDENING) or options.get(w.MERGE_SCHEMA_CASTING),
        casting=options.get(w.MERGE_SCHEMA_CASTING),
        fixed=frozenset({*schema.primary_keys, *schema.partition_keys}),
    )
    stored = [field for field in given if field.name not in without]
    return list(merging.fields(schema.user_fields, stored, ""))


class _Merging:
    """What may change."""

    def __init__(self, *, widening: bool, casting: bool, fixed: frozenset[str]) -> None:
        self._widening = widening
        self._casting = casting
        self._fixed = fixed

    def fields(self, there: Sequence[t.Field], given: Sequence[t.Field], before: str) -> Iterator[c.Change]:
        """Yield the changes that siblings need; `before` is the path to them."""
        known = {field.name: field.type for field in there}
        for field in given:
            path = before + field.name
            if field.name not in known:
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
        if is_implicit(new, old):
            return False  # each value fits
        if is_implicit(old, new):
            return self._widening
        return self._casting and can_read_as(old, new)

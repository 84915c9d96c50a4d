"""Nullability: what becomes NOT NULL from one schema to another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from merganser.schema import types as t

Way: TypeAlias = tuple[t.Field, ...]
"""A column, and the fields of ROWs inside it that lead to one; as they were before."""


def tightened(before: Sequence[t.Field], after: Sequence[t.Field], way: Way = ()) -> Iterator[tuple[Way, bool]]:
    """Yield what may be null in `before` and not in `after`, columns of both by their ids.

    Yields:
        The way to it; and whether it lies in an ARRAY or a MAP at the end of the way.
    """
    was = {field.id: field for field in before}
    for field in after:
        old = was.get(field.id)
        if old is None:
            continue
        here = (*way, old)
        if old.type.nullable and not field.type.nullable:
            yield here, False
        match old.type, field.type:
            case t.Row(fields=olds), t.Row(fields=news):
                yield from tightened(olds, news, here)
            case (t.Array(), t.Array()) | (t.Map(), t.Map()):
                if _slots_tightened(old.type, field.type):
                    yield here, True


def loosened(kind: t.DataType) -> t.DataType:
    """Return a type that takes nulls, as do all parts of its values but keys of maps."""
    match kind:
        case t.Row(fields=fields):
            kind = replace(kind, fields=tuple(replace(field, type=loosened(field.type)) for field in fields))
        case t.Array(element=element):
            kind = replace(kind, element=loosened(element))
        case t.Map(value=value):
            kind = replace(kind, value=loosened(value))
    return kind.with_nullable(True)


def _slots_tightened(old: t.DataType, new: t.DataType) -> bool:
    """Return whether elements or values, or what lies in them, may be null in one type and not in the other."""
    match old, new:
        case t.Array(), t.Array():
            return (old.element.nullable and not new.element.nullable) or _slots_tightened(old.element, new.element)
        case t.Map(), t.Map():
            return (old.value.nullable and not new.value.nullable) or _slots_tightened(old.value, new.value)
        case t.Row(), t.Row():
            return any(True for _ in tightened(old.fields, new.fields))
    return False

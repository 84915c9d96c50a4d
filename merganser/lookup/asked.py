"""Whole keys that a filter asks for: `id = 7`, `id IN (7, 8)`. Such rows are looked up, not scanned for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Final

import pyarrow as pa

from merganser.errors import InvalidInputError, UnsupportedError
from merganser.expr.predicate import Predicate, Projection
from merganser.expr.tree import And, Column, Compare, Expression, In, Literal
from merganser.schema import types as t
from merganser.schema.arrow import arrow_type

MOST: Final = 1_000
"""Maximum number of keys to look up. With more keys, a scan reads less."""
_ONE_ROW: Final = pa.table({"": pa.nulls(1)})


def keys_asked(where: Predicate | None, key: Sequence[str], kinds: Mapping[str, t.DataType]) -> pa.Table | None:
    """Return the keys that a filter names, as a table of key columns; None if rows of other keys may pass it.

    Args:
        key: the columns of the primary key.
        kinds: the types of columns.
    """
    if where is None or not key:
        return None
    found: dict[str, pa.Array] = {}
    for part in _conjuncts(where.expression):
        named = _values(part)
        if named is None or named[0] not in key or named[0] in found:
            continue
        values = _in_type(named[1], kinds[named[0]])
        if values is None:
            return None
        found[named[0]] = values.unique()
    if set(found) != set(key):
        return None
    count = 1
    for name in key:
        count *= len(found[name])
    if count > MOST:
        return None
    rows = list(product(*(range(len(found[name])) for name in key)))
    places = list(zip(*rows, strict=True)) if rows else [()] * len(key)
    return pa.table({name: found[name].take(pa.array(at, pa.int64())) for name, at in zip(key, places, strict=True)})


def looked_up(
    lookup: Callable[[pa.Table, Sequence[str]], pa.Table | None] | None,
    key: Sequence[str],
    fields: Sequence[t.Field],
    columns: Sequence[str],
    where: Predicate | None,
    limit: int | None,
) -> pa.Table | None:
    """Return columns of the rows that pass a filter which names whole keys; None if they have to be scanned for.

    Args:
        lookup: takes a table of keys and columns, and returns the rows of these keys, or None to scan instead.
            None: there are no lookups.
        key: the columns of the primary key.
        fields: the columns of the table.
        limit: the largest number of rows to return; None: all. A scan keeps to it, so callers may rely on it.
    """
    if lookup is None or where is None:
        return None
    keys = keys_asked(where, key, {f.name: f.type for f in fields})
    if keys is None:
        return None
    needed = [*columns, *(name for name in where.columns if name not in columns)]
    try:
        found = lookup(keys, needed)
    except (UnsupportedError, InvalidInputError):  # of some tables, rows are not looked up
        return None
    return None if found is None else where.apply(found).select(list(columns)).slice(0, limit)


def _conjuncts(node: Expression) -> list[Expression]:
    return [part for item in node.items for part in _conjuncts(item)] if isinstance(node, And) else [node]


def _values(node: Expression) -> tuple[str, Sequence[Literal]] | None:
    """Return the column that a condition compares, and the only values that it lets through."""
    match node:
        case Compare(op="=", left=Column(path=(name,)), right=Literal() as literal):
            return name, [literal]
        case Compare(op="=", left=Literal() as literal, right=Column(path=(name,))):
            return name, [literal]
        case In(item=Column(path=(name,)), options=options) if all(isinstance(option, Literal) for option in options):
            return name, list(options)
    return None


def _in_type(literals: Sequence[Literal], kind: t.DataType) -> pa.Array | None:
    """Return literals as values of a key column; None if one of them is not a value of its type."""
    if isinstance(kind, t.Float | t.Double):
        return None  # both zeros are equal, and two keys
    try:
        made = [Projection(literal).evaluate(_ONE_ROW)[0].cast(arrow_type(kind)) for literal in literals]
        values = pa.array([scalar.as_py() for scalar in made], arrow_type(kind))
    except (pa.ArrowException, ValueError, OverflowError):
        return None
    return values.drop_null()

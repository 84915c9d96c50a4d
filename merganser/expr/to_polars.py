"""A filter in the words of Polars, for reads that leave rows out early: it lets through at least what the filter does.

Only conditions are taken over that mean the same to both libraries for certain: whole numbers, dates and text compared
with literals, NULL tests, AND and OR. What else a filter says is for `Predicate`, which is applied after.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, Final

import pyarrow as pa

from merganser.expr import tree
from merganser.expr.compare import MIRRORED
from merganser.expr.compute import can_fail
from merganser.expr.predicate import Predicate
from merganser.schema import types as t
from merganser.schema.lazy_polars import pl

_OPERATIONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_TYPES: Final[dict[type[t.DataType], str]] = {
    t.TinyInt: "Int8", t.SmallInt: "Int16", t.Int: "Int32", t.BigInt: "Int64", t.Date: "Date", t.VarChar: "String",
}  # fmt: skip
_COUNTED: Final = _TYPES | {t.Date: "Int32"}
"""Types that hold the values of literals: a date is the number of its day."""

_BITS: Final = {t.TinyInt: 8, t.SmallInt: 16, t.Int: 32, t.BigInt: 64}


def _named(name: str) -> pl.DataType:
    made: pl.DataType = getattr(pl, name)()
    return made


def superset(p: Predicate, names: Mapping[str, str]) -> pl.Expr | None:
    """Return a condition that is true of every row of which `p` is.

    Args:
        p: the filter.
        names: what columns are called in the file; those that are not named are not looked at.

    Returns:
        None where it would let everything through, or where `p` can fail: an error counts, whatever other parts say.
    """
    return None if can_fail(p.expression) else _superset(p.expression, names)


def is_among(column: str, kind: t.DataType, values: pa.Array) -> pl.Expr | None:
    """Return the condition that a column has one of some values; None: Polars may take others for equal.

    Args:
        column: its name in the file.
        kind: its type.
        values: without nulls, as the table holds them.
    """
    if type(kind) not in _TYPES or values.null_count:
        return None
    held = pl.Series(pl.from_arrow(values)).cast(_named(_TYPES[type(kind)]))
    return pl.col(column).is_in(held.implode())


def _superset(node: tree.Expression, names: Mapping[str, str]) -> pl.Expr | None:
    match node:
        case tree.And(items=items):
            parts = [part for part in (_superset(item, names) for item in items) if part is not None]
            return reduce(operator.and_, parts) if parts else None
        case tree.Or(items=items):
            all_parts = [_superset(item, names) for item in items]
            known = [part for part in all_parts if part is not None]
            return reduce(operator.or_, known) if len(known) == len(all_parts) else None
        case tree.IsNull(item=tree.Column(path=(name,))) if name in names:
            return pl.col(names[name]).is_null()
        case tree.Compare(op=op, left=tree.Column(path=(name,), type=kind), right=tree.Literal() as literal):
            return _compared(op, name, kind, literal, names)
        case tree.Compare(op=op, left=tree.Literal() as literal, right=tree.Column(path=(name,), type=kind)):
            return _compared(MIRRORED[op], name, kind, literal, names)
        case tree.In(item=tree.Column(path=(name,), type=kind), options=options):
            return None if name not in names else _listed(names[name], kind, options)
    return None


def _listed(name: str, kind: t.DataType, options: Sequence[tree.Literal]) -> pl.Expr | None:
    known = [option for option in options if option.value is not None]
    values = [_value(kind, option) for option in known]
    if not values or any(value is None for value in values):
        return None
    return pl.col(name).is_in(
        pl.Series(values, dtype=_named(_COUNTED[type(kind)])).cast(_named(_TYPES[type(kind)])).implode()
    )


def _compared(
    op: str, name: str, kind: t.DataType, literal: tree.Literal, names: Mapping[str, str]
) -> pl.Expr | None:  # fmt: skip
    if name not in names or op not in _OPERATIONS:
        return None
    value = _value(kind, literal)
    if value is None:
        return None
    of_its_type: pl.Expr = pl.lit(value, dtype=_named(_COUNTED[type(kind)])).cast(_named(_TYPES[type(kind)]))
    compared: pl.Expr = _OPERATIONS[op](pl.col(names[name]), of_its_type)
    return compared


def _value(kind: t.DataType, literal: tree.Literal) -> int | str | None:
    """Return a literal as a value of a column; None: it has none that is certain to be the same."""
    value = literal.value
    match kind, literal.type:
        case (t.TinyInt() | t.SmallInt() | t.Int() | t.BigInt()), (
            t.TinyInt() | t.SmallInt() | t.Int() | t.BigInt()
        ) if isinstance(value, int):  # fmt: skip
            bits = _BITS[type(kind)]
            return value if -(1 << bits - 1) <= value < 1 << bits - 1 else None
        case t.Date(), t.Date() if isinstance(value, int):
            return value
        case t.VarChar(), (t.VarChar() | t.Char()) if isinstance(value, str):
            return value
    return None

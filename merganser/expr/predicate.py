"""Filters and projections: what a row must be to be kept, and values computed from rows.

A `Predicate` is a condition bound to the columns of a table, a `Projection` a value computed from them. Both are
frozen, compare by what they say, pickle, and print as SQL text that parses back to an equal value. They are made
from text or Arrow expressions by `expr.text.to_predicate` and its neighbours.

Invariants: a condition has three values, and only true keeps a row (SQL). Evaluation is exact for every type, and
an error of SQL (overflow, division by zero, a cast that does not fit) is an error here, only for rows that SQL
would evaluate. Skipping files by statistics is `prune`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from merganser.expr import build, tree, zones
from merganser.expr.compare import stored_values
from merganser.expr.compute import can_fail, evaluate
from merganser.expr.tree import Value
from merganser.schema import types as t
from merganser.values import dataclass

POINTS_MAX: Final = 1_000
"""Most tuples that `points` names."""


@dataclass(frozen=True, slots=True)
class Projection:
    """A value computed from the columns of a row. Make one with `expr.text.parse_projection`."""

    expression: tree.Expression

    @property
    def type(self) -> t.DataType:
        """The type of the value, always nullable; `expr.tree.Null` for a bare NULL."""
        return self.expression.type

    @property
    def columns(self) -> frozenset[str]:
        """The names of the top-level columns needed."""
        return tree.columns(self.expression)

    def evaluate(self, table: pa.Table) -> pa.Array:
        """Return the value for every row of a table.

        Args:
            table: n rows with at least `columns`; other columns are ignored.

        Returns:
            n values in the Arrow type of `type` (large text where the table has it).

        Raises:
            InvalidInputError: a column is missing, or a value overflows, divides by zero or does not cast.
        """
        return evaluate(self.expression, table)

    def assigned_to(self, kind: t.DataType, zone: str | None) -> Projection:
        """Return the same value in the type of a column it is stored in.

        Numbers become other numbers, dates and timestamps each other, and all of them text; a value that does not
        fit is an error when evaluated. Text becomes something else only if it is a literal. The length of CHAR,
        VARCHAR and BINARY is not checked here.

        Args:
            kind: the type of the column.
            zone: the time zone in which instants have a date, a wall clock and a text; None: UTC.

        Raises:
            InvalidInputError: the value's type cannot be stored in a column of that type.
        """
        return Projection(zones.assigned(self.expression, kind, zone))

    def __str__(self) -> str:
        """Return SQL text that parses back to an equal projection."""
        return tree.sql(self.expression)


@dataclass(frozen=True, slots=True)
class Predicate:
    """A condition on the columns of a row. Make one with `expr.text.to_predicate`."""

    expression: tree.Expression

    @property
    def columns(self) -> frozenset[str]:
        """The names of the top-level columns needed."""
        return tree.columns(self.expression)

    def mask(self, table: pa.Table) -> pa.BooleanArray:
        """Return for every row whether the condition is true, false or (null) unknown.

        Args:
            table: n rows with at least `columns`; other columns are ignored.

        Raises:
            InvalidInputError: a column is missing, or a value overflows, divides by zero or does not cast.
        """
        answer = evaluate(self.expression, table)
        return answer if answer.type == pa.bool_() else answer.cast(pa.bool_())

    def apply(self, table: pa.Table) -> pa.Table:
        """Return the rows for which the condition is true, in their order, with all columns of the table."""
        mask = self.mask(table)
        keeps_all = mask.null_count == 0 and pc.all(mask).as_py() is not False
        return table if keeps_all else table.filter(mask)

    def __str__(self) -> str:
        """Return SQL text that parses back to an equal predicate (not so for opaque Arrow expressions)."""
        return tree.sql(self.expression)


def conjuncts(p: Predicate) -> list[Predicate]:
    """Return the conditions whose AND is `p`."""
    items = p.expression.items if isinstance(p.expression, tree.And) else (p.expression,)
    return [Predicate(item) for item in items]


def conjunction(items: Sequence[Predicate]) -> Predicate | None:
    """Return the AND of conditions; None, which means no condition, for none."""
    return Predicate(build.conjunction([p.expression for p in items])) if items else None


def sure(p: Predicate) -> Predicate | None:
    """Return the part of a condition that fails for no row, whatever other conditions would leave out first."""
    return conjunction([part for part in conjuncts(p) if not can_fail(part.expression)])


def points(p: Predicate, columns: Sequence[str]) -> list[tuple[Value | None, ...]] | None:
    """Return the value tuples that rows for which `p` is true can have in some columns.

    Args:
        p: a condition.
        columns: names of top-level columns.

    Returns:
        Distinct tuples of stored values in the order of `columns`, null as None: every row that `p` keeps has one
        of them. An empty list means that no row is kept. None if `p` does not pin all columns by `=`, `IN`,
        `IS NULL` and their AND and OR, or to more than POINTS_MAX tuples. A zero of FLOAT or DOUBLE counts twice,
        with both signs, and NaN is not pinned, since the bytes that are hashed differ.
    """
    pinned = [_pinned(p.expression, name) for name in columns]
    if any(values is not None and not values for values in pinned):
        return []
    known = [values for values in pinned if values is not None]
    if len(known) < len(pinned) or prod(len(values) for values in known) > POINTS_MAX:
        return None
    return [tuple(_bare(v) for v in combination) for combination in product(*known)]


# A stored value beside its text, so that 0.0 and -0.0 are two values.
_Pin = tuple[Value | None, str]


def _bare(pin: _Pin) -> Value | None:
    return pin[0]


def _pinned(node: tree.Expression, column: str) -> dict[_Pin, None] | None:
    """Return the stored values a column can have where a node is true, in order; None if any."""
    match node:
        case tree.Literal(value=value):
            return None if value is True else {}
        case tree.And(items=items):
            known = [values for item in items if (values := _pinned(item, column)) is not None]
            if not known:
                return None
            return {v: None for v in known[0] if all(v in other for other in known[1:])}
        case tree.Or(items=items):
            every = [_pinned(item, column) for item in items]
            known = [values for values in every if values is not None]
            return None if len(known) < len(every) else {v: None for values in known for v in values}
        case tree.Column() if node.path == (column,):
            return {(True, "True"): None}
        case tree.Not(item=tree.Column() as item) if item.path == (column,):
            return {(False, "False"): None}
        case tree.IsNull(item=tree.Column() as item) if item.path == (column,):
            return {(None, "None"): None}
        case tree.In(item=tree.Column() as item, options=options) if item.path == (column,):
            return _stored(options, item.type)
        case tree.Compare(op="=" | "<=>" as op, left=left, right=right):
            if isinstance(left, tree.Literal):
                left, right = right, left
            if isinstance(right, tree.Literal) and isinstance(left, tree.Column) and left.path == (column,):
                null_safe = op == "<=>" and right.value is None
                return {(None, "None"): None} if null_safe else _stored((right,), left.type)
    return None


def _stored(literals: Sequence[tree.Literal], kind: t.DataType) -> dict[_Pin, None] | None:
    found: dict[_Pin, None] = {}
    for literal in literals:
        values = stored_values(literal, kind)
        if values is None:
            return None
        found.update(((v, repr(v)), None) for v in values)
    return found

"""Expressions evaluated over Arrow tables, column at a time.

`value(node, rows)` gives an array with one value per row, or a scalar where the node is a constant. SQL decides
row by row what is evaluated at all: `b <> 0 AND a / b > 1` must not fail for b = 0. So a node that can fail is
evaluated only over the rows that ask for it, and its values are put back in their places (`_Rows.where`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merganser.errors import InvalidInputError, UnsupportedError
from merganser.expr.arithmetic import arithmetic, call, negate
from merganser.expr.cast import cast_values
from merganser.expr.compare import (
    MIRRORED,
    Values,
    compare,
    compare_literal,
    family,
)
from merganser.expr.listed import listed
from merganser.expr.patterns import java_pattern
from merganser.expr.tree import (
    And,
    Arithmetic,
    ArrowCall,
    Call,
    Case,
    Cast,
    Coalesce,
    Column,
    Compare,
    Concat,
    Expression,
    In,
    IsNull,
    Like,
    Literal,
    Match,
    Negate,
    Not,
    Null,
    Or,
    columns,
    nanoseconds,
    sql,
    walk,
)
from merganser.schema import types as t
from merganser.schema.arrow import arrow_type
from merganser.values import dataclass


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows to evaluate over: a table, and how many rows it stands for (it may have no columns)."""

    table: pa.Table
    count: int
    constant: bool = False

    def where(self, needed: frozenset[str], positions: np.ndarray) -> _Rows:
        """Return the rows at some positions, with only the columns named."""
        known = self.table.schema
        part = self.table.select([at for name in sorted(needed) for at in known.get_all_field_indices(name)])
        return _Rows(part.take(pa.array(positions)), len(positions))


def evaluate(node: Expression, table: pa.Table) -> pa.Array:
    """Return the value of an expression for every row.

    Args:
        node: a bound expression.
        table: n rows with at least the columns of the expression, of any Arrow type that casts to theirs.

    Returns:
        n values of the Arrow type of the node's type (its large form where the table has that; null type for a
        bare NULL).

    Raises:
        InvalidInputError: a column is missing, or a value overflows, divides by zero or does not cast.
    """
    return _array(node, _Rows(table, table.num_rows))


def literal_array(literal: Literal, count: int) -> pa.Array:
    """Return a literal `count` times, in the Arrow type of its type."""
    return pa.repeat(_scalar(literal), count)


def arrow_type_of(kind: t.DataType) -> pa.DataType:
    """Return the Arrow type of an expression's type."""
    return pa.null() if isinstance(kind, Null) else arrow_type(kind)


def _scalar(literal: Literal) -> pa.Scalar:
    value = literal.value
    if isinstance(literal.type, t.Time) and value is not None:
        value = nanoseconds(literal) // 1_000_000
    return pa.scalar(value, arrow_type_of(literal.type))


def _array(node: Expression, rows: _Rows) -> pa.Array:
    """Return the values of a node as one array of rows.count values."""
    out = _value(node, rows)
    if isinstance(out, pa.Scalar):
        return pa.repeat(out, rows.count)
    return out.combine_chunks() if isinstance(out, pa.ChunkedArray) else out


def _values(node: Expression, rows: _Rows) -> Values:
    out = _value(node, rows)
    return pa.repeat(out, rows.count) if isinstance(out, pa.Scalar) else out


def _value(node: Expression, rows: _Rows) -> Values | pa.Scalar:
    if isinstance(node, Literal):
        return pa.repeat(_scalar(node), 1) if rows.constant else _scalar(node)
    if isinstance(node, Column):
        return _column(node, rows.table)
    if not rows.constant and not columns(node):
        # A constant is computed once, and only if there is a row that needs it.
        return _value(node, _Rows(pa.table({}), 1, constant=True))[0] if rows.count else _nothing(node)
    match node:
        case Compare():
            return _compare(node, rows)
        case And(items=items) | Or(items=items):
            return _connective(items, rows, conjunction=isinstance(node, And))
        case Not(item=item):
            return pc.invert(_values(item, rows))
        case IsNull(item=item):
            return _values(item, rows).is_null()
        case In():
            return _member(node, rows)
        case Like():
            return _like(node, _values(node.item, rows))
        case Match():
            return _match(node, _values(node.item, rows))
        case Case():
            return _case(node, rows)
        case Coalesce():
            return _coalesce(node, rows)
        case ArrowCall():
            return _arrow_call(node, rows)
        case Concat(items=items):
            texts = _one_type([_values(i, rows) for i in items])
            return pc.binary_join_element_wise(*texts, pa.scalar("", texts[0].type))
    return _computed(node, rows)


def _computed(node: Arithmetic | Negate | Cast | Call, rows: _Rows) -> Values:
    try:
        match node:
            case Arithmetic(op=op, left=left, right=right, type=kind):
                return arithmetic(op, _values(left, rows), left.type, _values(right, rows), right.type, kind)
            case Negate(item=item, type=kind):
                return negate(_values(item, rows), kind)
            case Cast(item=item, type=kind, stores=stores):
                return cast_values(_values(item, rows), item.type, kind, stores=stores)
            case Call(name=name, items=(item, *options), type=kind):
                constants = [o.value for o in options if isinstance(o, Literal)]
                return call(
                    name, _values(item, rows), item.type, kind, [c for c in constants if isinstance(c, int | str)]
                )
    except pa.ArrowInvalid as error:
        raise InvalidInputError(
            f"cannot compute '{sql(node)}' as {node.type}: {error}. CAST an operand to a wider type.",
        ) from error
    raise InvalidInputError(f"cannot compute '{sql(node)}'")


def _nothing(node: Expression) -> pa.Array:
    return pa.array([], arrow_type_of(node.type))


def _column(node: Column, table: pa.Table) -> Values:
    name = node.path[0]
    places = table.schema.get_all_field_indices(name)
    if len(places) != 1:
        raise InvalidInputError(
            f"cannot evaluate an expression over column '{name}': the data has {len(places)} columns of that name",
            column=name,
        )
    values = table.column(places[0])
    for part in node.path[1:]:
        values = pc.struct_field(values, part)
    return _in_type(values, node)


def _in_type(values: Values, node: Column) -> Values:
    """Return a column in the Arrow type of its type; large text and binary stay large."""
    have, want = values.type, arrow_type(node.type)
    if have == want or (pa.types.is_large_string(have) and pa.types.is_string(want)):
        return values
    if pa.types.is_large_binary(have) and pa.types.is_binary(want):
        return values
    if family(node.type) is None:
        # Containers compare with nothing; they are handed through as they are.
        return values
    if pa.types.is_dictionary(have) and (pa.types.is_large_string(have.value_type) or have.value_type == want):
        return values.cast(have.value_type)
    try:
        return values.cast(want)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidInputError(
            f"cannot evaluate an expression over column '{node.path[0]}': it is {have} in the data and {node.type} in "
            f"the schema ({error})",
            column=node.path[0],
        ) from error


def _compare(node: Compare, rows: _Rows) -> Values:
    left, right, op = node.left, node.right, node.op
    if isinstance(left, Literal) and not isinstance(right, Literal):
        left, right, op = right, left, MIRRORED[op]
    if isinstance(left.type, Null):
        left, right = right, left
    if isinstance(right.type, Null):
        return compare_literal(op, _values(left, rows), left.type, Literal(None, Null()))
    if not isinstance(right, Literal):
        return compare(op, _values(left, rows), left.type, _values(right, rows), right.type)
    if isinstance(left, Literal) and isinstance(left.type, t.Time):
        # A TIME literal is finer than a stored TIME; as nanoseconds of 1970-01-01 it keeps every digit.
        return compare_literal(op, pa.repeat(pa.scalar(left.value, pa.timestamp("ns")), 1), t.Timestamp(9), right)
    return compare_literal(op, _values(left, rows), left.type, right)


def _connective(items: Sequence[Expression], rows: _Rows, *, conjunction: bool) -> Values:
    """Return AND or OR with three values. What can fail is asked last, of the rows that are still open."""
    kernel = pc.and_kleene if conjunction else pc.or_kleene
    total: Values | None = None
    for item in sorted(items, key=can_fail):
        if total is None:
            total = _values(item, rows)
        elif can_fail(item):
            open_rows = pc.fill_null(total if conjunction else pc.invert(total), True)
            total = kernel(total, _scattered(item, rows, np.flatnonzero(open_rows)))
        else:
            total = kernel(total, _value(item, rows))
    assert total is not None, items
    return total


_RLIKE: Final = "use RLIKE"


def can_fail(node: Expression) -> bool:
    """Return whether evaluating a node may raise for some values."""
    return any(
        isinstance(part, Arithmetic | Negate | Cast | ArrowCall | Call) or _is_unsure(part) for part in walk(node)
    )


def _is_unsure(node: Expression) -> bool:
    return isinstance(node, Match) and node.how == "regex" and java_pattern(node.text, _RLIKE).unsure is not None


def _scattered(node: Expression, rows: _Rows, positions: np.ndarray) -> Values:
    """Return the values of a node at some rows, null at the others."""
    if len(positions) == rows.count:
        return _values(node, rows)
    part = _array(node, rows.where(columns(node), positions))
    places = np.zeros(rows.count, np.int64)
    places[positions] = np.arange(len(positions))
    absent = np.ones(rows.count, bool)
    absent[positions] = False
    return part.take(pa.array(places, mask=absent))


def _case(node: Case, rows: _Rows) -> Values:
    rest = np.arange(rows.count)
    pieces, places = [], []
    for when, value in node.branches:
        inside = rows.where(columns(when), rest)
        chosen = np.asarray(pc.fill_null(_array(when, inside), False))
        places.append(rest[chosen])
        pieces.append(_array(value, rows.where(columns(value), places[-1])))
        rest = rest[~chosen]
    places.append(rest)
    pieces.append(_array(node.otherwise, rows.where(columns(node.otherwise), rest)))
    order = np.empty(rows.count, np.int64)
    order[np.concatenate(places)] = np.arange(rows.count)
    return pa.chunked_array(_one_type(pieces)).take(pa.array(order))


def _one_type(pieces: list[Values]) -> list[Values]:
    """Return columns of one type in the large form if one of them has that."""
    large = next((p.type for p in pieces if pa.types.is_large_string(p.type) or pa.types.is_large_binary(p.type)), None)
    return [p.cast(large) for p in pieces] if large is not None else pieces


def _coalesce(node: Coalesce, rows: _Rows) -> Values:
    total: Values | None = None
    for item in node.items:
        if total is None:
            total = _values(item, rows)
            continue
        empty = np.flatnonzero(total.is_null())
        if len(empty):
            more = _scattered(item, rows, empty)
            total = pc.coalesce(*_one_type([_whole(total), _whole(more)]))
    assert total is not None, node
    return total


def _whole(values: Values) -> pa.Array:
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


def _member(node: In, rows: _Rows) -> Values:
    values = _values(node.item, rows)
    options = listed(node)
    found = options.among(values)
    unknown = pa.scalar(None, pa.bool_())
    if options.has_null:
        found = pc.if_else(found, True, unknown)
    return pc.if_else(values.is_valid(), found, unknown) if values.null_count else found


def like_parts(pattern: str, escape: str) -> tuple[tuple[str, bool], ...]:
    """Return the pieces of a LIKE pattern in order: texts, unescaped, with False; wildcards % and _ with True."""
    parts: list[tuple[str, bool]] = []
    text, chars = "", iter(pattern)
    for char in chars:
        if char == escape:
            text += next(chars)
        elif char in "%_":
            parts += [(text, False)] if text else []
            parts.append((char, True))
            text = ""
        else:
            text += char
    return (*parts, (text, False)) if text else tuple(parts)


def _like(node: Like, values: Values) -> Values:
    parts = like_parts(node.pattern, node.escape)
    if node.ignore_case:
        values = pc.utf8_lower(values)
        parts = tuple((text if wild else pc.utf8_lower(text).as_py(), wild) for text, wild in parts)
    match parts:
        case ():
            return pc.equal(values, pa.scalar("", values.type))
        case ((text, False),):
            return pc.equal(values, pa.scalar(text, values.type))
        case ((text, False), ("%", True)):
            return pc.starts_with(values, text)
        case (("%", True), (text, False)):
            return pc.ends_with(values, text)
        case (("%", True), (text, False), ("%", True)):
            return pc.match_substring(values, text)
    any_of = {"%": ".*", "_": "."}
    regex = "".join(any_of[text] if wild else _quoted_regex(text) for text, wild in parts)
    return pc.match_substring_regex(values, f"(?s)\\A{regex}\\z")


def _quoted_regex(text: str) -> str:
    """Return text as a regular expression for itself. RE2 wants punctuation escaped and letters bare."""
    return "".join(c if c.isalnum() or ord(c) > 127 else f"\\x{{{ord(c):x}}}" for c in text)


def _match(node: Match, values: Values) -> Values:
    match node.how:
        case "starts":
            return pc.starts_with(values, node.text)
        case "ends":
            return pc.ends_with(values, node.text)
        case "contains":
            return pc.match_substring(values, node.text)
        case "re2":
            return pc.match_substring_regex(values, node.text)
    pattern = java_pattern(node.text, _RLIKE)
    if pattern.unsure is not None and pc.any(pc.match_substring_regex(values, pattern.unsure)).as_py():
        raise UnsupportedError(
            f"cannot use RLIKE with the pattern '{node.text}' in this process: it meets a text that ends with a line "
            "end, or has letters beyond ASCII, and Spark may find something else there. Run the statement on Spark."
        )
    return pc.match_substring_regex(values, pattern.text)


def _arrow_call(node: ArrowCall, rows: _Rows) -> Values:
    """Return the truth of an Arrow expression: the rows it keeps are true, those its opposite keeps are false."""
    position = "_position"
    while any(position == inner for inner, _ in node.names):
        position += "_"
    table = pa.table({inner: rows.table.column(outer) for inner, outer in node.names})
    table = table.append_column(position, pa.array(np.arange(rows.count)))
    answers = np.zeros(rows.count, bool)
    unknown = np.ones(rows.count, bool)
    try:
        kept = np.asarray(table.filter(node.expression)[position])
        dropped = np.asarray(table.filter(~node.expression)[position])
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise InvalidInputError(f"cannot evaluate the Arrow expression {node.expression}: {error}") from error
    answers[kept] = True
    unknown[kept] = unknown[dropped] = False
    return pa.array(answers, mask=unknown)

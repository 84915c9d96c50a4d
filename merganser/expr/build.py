"""Expressions put together: types checked, literals moved to the type they meet, casts inserted as SQL does.

The typing is Spark's with ANSI rules: INT / INT is DOUBLE; integers keep the wider type and overflow is an
error; DECIMAL results take Spark's precision and scale; a string literal takes the type it is compared with.
One rule is stricter: a text column never turns into a number or date by itself. Write the CAST.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from merganser.errors import InvalidInputError
from merganser.expr.compare import family
from merganser.expr.literal import INTEGER_BITS, from_text, moved, number, plain_decimal
from merganser.expr.patterns import java_pattern
from merganser.expr.tree import (
    And,
    Arithmetic,
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
    sql,
)
from merganser.schema import types as t

NULL: Final = Literal(None, Null())
TRUE: Final = Literal(True, t.Boolean())
FALSE: Final = Literal(False, t.Boolean())

_LISTED_MIN: Final = 16
"""Equalities of one column in an OR from which on they are a list."""

_WIDER: Final[tuple[type[t.DataType], ...]] = (t.TinyInt, t.SmallInt, t.Int, t.BigInt, t.Float, t.Double)


def compare(op: str, left: Expression, right: Expression) -> Expression:
    """Return `left op right`, op one of = <> < <= > >= <=>.

    Raises:
        InvalidInputError: the types do not compare, or a string literal is not a value of the other side's type.
    """
    left, right = _meet(left, right, f"compare {sql(left)} with {sql(right)}")
    return Compare(op, left, right)


def _meet(left: Expression, right: Expression, doing: str) -> tuple[Expression, Expression]:
    """Return both sides with string literals moved to the type of the other side."""
    left_family, right_family = family(left.type), family(right.type)
    if untyped(left) or untyped(right):
        other = left_family or right_family
        if other is None and not (untyped(left) and untyped(right)):
            raise InvalidInputError(f"cannot {doing}: {type_text(right if untyped(left) else left)} has no order")
        return left, right
    if left_family is not None and left_family != "text" and is_text_literal(right):
        return left, _text_to(right, left.type, doing)
    if right_family is not None and right_family != "text" and is_text_literal(left):
        return _text_to(left, right.type, doing), right
    numbers = {"exact", "float"}
    if left_family is None or (left_family != right_family and not {left_family, right_family} <= numbers):
        raise InvalidInputError(
            f"cannot {doing}: {type_text(left)} and {type_text(right)} do not compare. CAST one of them to the other's "
            "type."
        )
    return left, right


def untyped(node: Expression) -> bool:
    """Return whether a node is a bare NULL, or nothing but such."""
    return isinstance(node.type, Null)


def is_text_literal(node: Expression) -> bool:
    """Return whether a node is a string literal, which takes the type of what it meets."""
    return isinstance(node, Literal) and isinstance(node.value, str)


def type_text(node: Expression) -> str:
    """Return the type of a node as text, for messages."""
    return str(node.type.with_nullable(True))


def _text_to(node: Expression, kind: t.DataType, doing: str) -> Literal:
    assert isinstance(node, Literal), node
    assert isinstance(node.value, str), node
    try:
        if isinstance(kind, t.Decimal):
            # All digits of the text count, also those that the column does not store.
            return plain_decimal(node.value)
        return from_text(node.value, t.BigInt() if type(kind) in INTEGER_BITS else kind)
    except InvalidInputError as error:
        raise InvalidInputError(f"cannot {doing} ({kind.with_nullable(True)}): {error}", **error.context) from None


def condition(node: Expression, doing: str) -> Expression:
    """Return a node that is a condition; a bare NULL becomes one.

    Raises:
        InvalidInputError: the node has another type.
    """
    if untyped(node):
        return Literal(None, t.Boolean())
    if not isinstance(node.type, t.Boolean):
        raise InvalidInputError(
            f"cannot {doing}: '{sql(node)}' is {type_text(node)}, not a condition. Compare it with a value, as in "
            f"'{sql(node)} = ...'."
        )
    return node


def conjunction(items: Sequence[Expression]) -> Expression:
    """Return the AND of conditions, nested ANDs flattened."""
    return _connect(items, And)


def disjunction(items: Sequence[Expression]) -> Expression:
    """Return the OR of conditions, nested ORs flattened; many equalities of one column become one IN."""
    found = _connect(items, Or)
    return _with_lists(found) if isinstance(found, Or) and len(found.items) >= _LISTED_MIN else found


def _with_lists(node: Or) -> Expression:
    """Return an OR in which the equalities of a column with literals are one look-up, where they are many."""
    pairs = [_equality(item) for item in node.items]
    options: dict[Column, dict[Literal, None]] = {}
    for pair in pairs:
        if pair is not None:
            options.setdefault(pair[0], {})[pair[1]] = None
    lists: dict[Expression, Expression] = {}  # by what a list stands for: its column, or the condition itself
    for item, pair in zip(node.items, pairs, strict=True):
        if pair is not None and len(options[pair[0]]) >= _LISTED_MIN:
            lists.setdefault(pair[0], In(pair[0], tuple(options[pair[0]])))
        else:
            lists.setdefault(item, item)
    return _connect(list(lists.values()), Or)


def _equality(node: Expression) -> tuple[Column, Literal] | None:
    """Return column and literal of `column = literal`, where a list of such literals means the same; else None."""
    match node:
        case Compare(op="=", left=Column() as left, right=Literal() as right):
            same = family(left.type) == family(right.type)  # one DOUBLE makes a whole list of exact numbers DOUBLE
            return (left, right) if same and right.value is not None else None
    return None


def _connect(items: Sequence[Expression], kind: type[And] | type[Or]) -> Expression:
    flat: list[Expression] = []
    for item in items:
        item = condition(item, f"use {kind.__name__.upper()}")
        flat.extend(item.items if isinstance(item, kind) else (item,))
    return flat[0] if len(flat) == 1 else kind(tuple(flat))


def negation(item: Expression) -> Expression:
    """Return NOT item."""
    return Not(condition(item, "use NOT"))


def is_null(item: Expression) -> Expression:
    """Return item IS NULL."""
    return IsNull(item)


def is_nan(item: Expression) -> Expression:
    """Return whether a number is NaN: false for null."""
    if family(item.type) != "float":
        raise InvalidInputError(f"cannot use isnan: '{sql(item)}' is {type_text(item)}, not FLOAT or DOUBLE")
    return compare("<=>", item, Literal(math.nan, item.type.with_nullable(True)))


def member(item: Expression, options: Sequence[Expression]) -> Expression:
    """Return item IN (options). Options that are not literals become comparisons joined by OR.

    Raises:
        InvalidInputError: no options, or one that does not compare with the item.
    """
    if not options:
        raise InvalidInputError(f"cannot test '{sql(item)} IN ()': the list is empty. Give it one value at least.")
    doing = f"look for {sql(item)} in the list"
    if isinstance(item, Literal) or untyped(item) or not all(isinstance(o, Literal) for o in options):
        return disjunction([compare("=", item, option) for option in options])
    met: list[Literal] = []
    for option in options:
        literal = _meet(item, option, doing)[1]
        assert isinstance(literal, Literal), literal
        met.append(literal)
    if family(item.type) == "exact" and any(family(o.type) == "float" for o in met):
        # One DOUBLE makes the whole list DOUBLE.
        met = [literal if untyped(literal) else _converted(literal, t.Double()) for literal in met]
    nulls = [NULL] if any(o.value is None for o in met) else []
    distinct = dict.fromkeys(o for o in met if o.value is not None)
    return In(item, (*distinct, *nulls))


def _converted(literal: Literal, kind: t.DataType) -> Literal:
    out = moved(literal, kind)
    assert out is not None, literal
    return out


def between(item: Expression, low: Expression, high: Expression) -> Expression:
    """Return item >= low AND item <= high."""
    return conjunction([compare(">=", item, low), compare("<=", item, high)])


def like(item: Expression, pattern: Expression, *, escape: str = "\\", ignore_case: bool = False) -> Expression:
    """Return item LIKE pattern, or ILIKE.

    Raises:
        InvalidInputError: the pattern is not a string literal, or its escape character stands before something
            else than % _ or itself.
    """
    word = "ILIKE" if ignore_case else "LIKE"
    if isinstance(pattern, Literal) and pattern.value is None:
        return Literal(None, t.Boolean())
    text = _constant_text(pattern, f"use {word}", "pattern")
    if len(escape) != 1:
        raise InvalidInputError(f"cannot use {word}: the escape '{escape}' must be one character")
    at = 0
    while (at := text.find(escape, at)) >= 0:
        following = text[at + 1 : at + 2]
        if following not in ("%", "_", escape) or not following:
            raise InvalidInputError(
                f"cannot use {word}: in the pattern '{text}' the escape '{escape}' at character {at + 1} must stand "
                "before %, _ or itself."
            )
        at += 2
    return Like(as_text(item, f"use {word}"), text, escape, ignore_case)


def match(how: str, item: Expression, text: Expression) -> Expression:
    """Return a text search: how is starts, ends, contains, regex (of Java) or re2.

    Raises:
        InvalidInputError: the text is not a literal, or not a regular expression.
        UnsupportedError: the regular expression has a part that RE2 lacks, such as look-around or back-references.
    """
    doing = {"starts": "use startswith", "ends": "use endswith", "contains": "use contains"}.get(how, "use RLIKE")
    if isinstance(text, Literal) and text.value is None:
        return Literal(None, t.Boolean())
    wanted = _constant_text(text, doing, "text to look for")
    if how == "regex":
        java_pattern(wanted, doing)
    if how == "re2":
        try:
            pc.match_substring_regex(pa.array([""]), wanted)
        except pa.ArrowInvalid as error:
            raise InvalidInputError(f"cannot {doing}: '{wanted}' is not a regular expression: {error}") from None
    return Match(how, as_text(item, doing), wanted)


def _constant_text(node: Expression, doing: str, what: str) -> str:
    if isinstance(node, Literal) and isinstance(node.value, str):
        return node.value
    raise InvalidInputError(f"cannot {doing}: the {what} '{sql(node)}' must be a string literal")


def as_text(node: Expression, doing: str) -> Expression:
    """Return a node that is text; a bare NULL becomes one.

    Raises:
        InvalidInputError: the node has another type.
    """
    if untyped(node):
        return Literal(None, t.string())
    if family(node.type) != "text":
        raise InvalidInputError(f"cannot {doing}: '{sql(node)}' is {type_text(node)}, not text. CAST it AS STRING.")
    return node


def arithmetic(op: str, left: Expression, right: Expression) -> Expression:
    """Return left op right, op one of + - * / % DIV.

    Raises:
        InvalidInputError: an operand is not a number (DATE + and - whole days also work).
    """
    if isinstance(left.type, t.Date) and op in "+-" and type(right.type) in INTEGER_BITS:
        return Arithmetic(op, left, right, t.Date())
    if isinstance(right.type, t.Date) and op == "+" and type(left.type) in INTEGER_BITS:
        return Arithmetic(op, right, left, t.Date())
    for side in (left, right):
        if not untyped(side) and family(side.type) not in ("exact", "float"):
            if op == "-" and all(
                isinstance(each.type, (t.Date, t.Timestamp, t.LocalZonedTimestamp)) for each in (left, right)
            ):
                raise InvalidInputError(
                    f"cannot compute {sql(left)} - {sql(right)}: conditions and values of UPDATE have no "
                    f"differences of times. Compare {sql(left)} with {sql(right)} + INTERVAL ..., or use datediff."
                )
            raise InvalidInputError(
                f"cannot compute {sql(left)} {op} {sql(right)}: '{sql(side)}' is {type_text(side)}, not a number. "
                "CAST it to a number."
            )
    if op == "DIV" and "float" in (family(left.type), family(right.type)):
        raise InvalidInputError(f"cannot compute {sql(left)} DIV {sql(right)}: DIV divides exact numbers only")
    known = next((s.type for s in (left, right) if not untyped(s)), t.Int())
    left, right = (cast(s, known) if untyped(s) else s for s in (left, right))
    return Arithmetic(op, left, right, _result(op, left, right))


def _result(op: str, left: Expression, right: Expression) -> t.DataType:
    kinds = (left.type, right.type)
    if op == "DIV":
        return t.BigInt()
    if any(family(k) == "float" for k in kinds):
        single = all(isinstance(k, t.Float) for k in kinds) and op != "/"
        return t.Float() if single else t.Double()
    if any(isinstance(k, t.Decimal) for k in kinds):
        return _decimal_result(op, _as_decimal(left), _as_decimal(right))
    if op == "/":
        return t.Double()
    return _widest(kinds)()


def _widest(kinds: Sequence[t.DataType]) -> Callable[[], t.DataType]:
    return _WIDER[max(_WIDER.index(type(k)) for k in kinds)]


def _as_decimal(node: Expression) -> t.Decimal:
    """Return the DECIMAL type that an exact number takes part in decimal arithmetic with."""
    if isinstance(node.type, t.Decimal):
        return node.type
    if isinstance(node, Literal) and isinstance(node.value, int):
        return t.Decimal(max(len(str(abs(node.value))), 1), 0)
    return t.Decimal({8: 3, 16: 5, 32: 10, 64: 20}[INTEGER_BITS[type(node.type)]], 0)


def _decimal_result(op: str, left: t.Decimal, right: t.Decimal) -> t.Decimal:
    scale = max(left.scale, right.scale)
    left_whole, right_whole = left.precision - left.scale, right.precision - right.scale
    match op:
        case "*":
            precision, scale = left.precision + right.precision + 1, left.scale + right.scale
        case "/":
            scale = max(6, left.scale + right.precision + 1)
            precision = left_whole + right.scale + scale
        case "%":
            precision = min(left_whole, right_whole) + scale
        case _:
            precision = max(left_whole, right_whole) + scale + 1
    if precision <= 38:
        return t.Decimal(max(precision, 1), scale)
    # Digits before the point are kept; of those after it at least six, or all if fewer.
    return t.Decimal(38, max(38 - (precision - scale), min(scale, 6)))


def negative(item: Expression) -> Expression:
    """Return -item; a literal is negated at once.

    Raises:
        InvalidInputError: the item is not a number.
    """
    if untyped(item):
        return item
    if family(item.type) not in ("exact", "float"):
        raise InvalidInputError(f"cannot compute -{sql(item)}: it is {type_text(item)}, not a number")
    if isinstance(item, Literal) and item.value is not None:
        assert isinstance(item.value, int | float | Decimal), item
        value = -item.value if item.value else item.value
        if isinstance(value, int) and value == 2 ** (INTEGER_BITS[type(item.type)] - 1):
            # The least integer of a type has no positive twin in it.
            return number(str(value))
        return Literal(value, item.type)
    return Negate(item, item.type)


def concat(items: Sequence[Expression]) -> Expression:
    """Return the texts one after the other; what is not text is cast to it, literals are joined at once.

    Raises:
        InvalidInputError: an item has no text form.
    """
    texts = [i if family(i.type) == "text" else cast(i, t.string()) for i in items]
    if all(isinstance(i, Literal) and i.value is not None for i in texts):
        return Literal("".join(str(i.value) for i in texts if isinstance(i, Literal)), t.string())
    return texts[0] if len(texts) == 1 else Concat(tuple(texts), t.string())


def case(branches: Sequence[tuple[Expression, Expression]], otherwise: Expression = NULL) -> Expression:
    """Return the value of the first branch whose condition is true, else `otherwise`.

    Raises:
        InvalidInputError: the values have no common type.
    """
    values, kind = _unify([*(value for _, value in branches), otherwise], "use CASE")
    conditions = [condition(when, "use CASE") for when, _ in branches]
    return Case(tuple(zip(conditions, values[:-1], strict=True)), values[-1], kind)


def coalesce(items: Sequence[Expression]) -> Expression:
    """Return the first item that is not null.

    Raises:
        InvalidInputError: the items have no common type.
    """
    same, kind = _unify(items, "use coalesce")
    return same[0] if len(same) == 1 else Coalesce(tuple(same), kind)


def null_if(item: Expression, other: Expression) -> Expression:
    """Return null where item = other, else item."""
    return case([(compare("=", item, other), NULL)], item)


def _unify(items: Sequence[Expression], doing: str) -> tuple[list[Expression], t.DataType]:
    """Return the items cast to the type that holds all of them, and that type."""
    typed = [i for i in items if not untyped(i)]
    solid = [i for i in typed if not is_text_literal(i)] or typed
    if not solid:
        return list(items), Null()
    kind = solid[0].type.with_nullable(True)
    for item in solid[1:]:
        wider = _common(kind, item.type.with_nullable(True))
        if wider is None:
            raise InvalidInputError(
                f"cannot {doing}: {sql(solid[0])} ({type_text(solid[0])}) and {sql(item)} ({type_text(item)}) have no "
                "common type. CAST one of them to the other's type."
            )
        kind = wider
    return [cast(i, kind) for i in items], kind


def _common(left: t.DataType, right: t.DataType) -> t.DataType | None:
    families = (family(left), family(right))
    if left == right:
        return left
    match families:
        case ("text", "text"):
            return t.string()
        case ("binary", "binary"):
            return t.VarBinary()
        case ("instant", "instant"):
            precision = max(getattr(k, "precision", 0) for k in (left, right))
            zoned = any(isinstance(k, t.LocalZonedTimestamp) for k in (left, right))
            return t.LocalZonedTimestamp(precision) if zoned else t.Timestamp(precision)
        case ("time", "time"):
            return max(left, right, key=lambda k: getattr(k, "precision", 0))
        case ("float" | "exact", "float" | "exact") if "float" in families:
            return t.Double()
        case ("exact", "exact"):
            if not isinstance(left, t.Decimal) and not isinstance(right, t.Decimal):
                return _widest((left, right))()
            first, second = (_as_decimal(Literal(None, k)) for k in (left, right))
            scale = max(first.scale, second.scale)
            whole = max(first.precision - first.scale, second.precision - second.scale)
            return t.Decimal(min(whole + scale, 38), min(scale, 38))
    return None


def cast(item: Expression, kind: t.DataType) -> Expression:
    """Return CAST(item AS kind); a literal is cast at once where nothing is lost.

    Raises:
        InvalidInputError: there is no such cast, or a literal is not a value of the type.
    """
    kind = kind.with_nullable(True)
    kind = t.string() if isinstance(kind, t.Char | t.VarChar) else kind
    kind = t.VarBinary() if isinstance(kind, t.Binary | t.VarBinary) else kind
    same = family(item.type) == family(kind) and family(kind) in ("text", "binary")
    if item.type.with_nullable(True) == kind or same:
        return item
    if not can_cast(item.type, kind):
        raise InvalidInputError(f"cannot CAST {sql(item)} ({type_text(item)}) AS {kind}: there is no such cast")
    if isinstance(item, Literal):
        try:
            literal = moved(item, kind)
        except InvalidInputError as error:
            raise InvalidInputError(f"cannot CAST {sql(item)} AS {kind}: {error}", **error.context) from None
        if literal is not None:
            return literal
    return Cast(item, kind)


def assigned(item: Expression, kind: t.DataType) -> Expression:
    """Return the item in the type of a column that it is stored in.

    Raises:
        InvalidInputError: a value of the item's type cannot be stored in such a column without an explicit cast.
    """
    origin, goal = family(item.type), family(kind)
    if origin is None and goal is None and type(item.type) is type(kind):
        return item
    fits = origin == goal or {origin, goal} <= {"exact", "float"} or goal == "text" or is_text_literal(item)
    if untyped(item) or (fits and goal is not None):
        return _stored(item, cast(item, kind))
    named = sql(item).replace("`", "")  # a column of a merge's source is `source.a`
    raise InvalidInputError(
        f"cannot store '{named}' ({type_text(item)}) in a column of type {kind.with_nullable(True)}. CAST it."
    )


def _stored(item: Expression, found: Expression) -> Expression:
    """Return an item that was cast to the type of its column, unless it is a number that became infinite by that."""
    if isinstance(found, Cast) and found is not item:
        return replace(found, stores=True)
    if isinstance(found, Literal) and isinstance(found.value, float) and math.isinf(found.value) and found is not item:
        given = item.value if isinstance(item, Literal) else None
        is_number = isinstance(given, str) and any(char.isdigit() for char in given)  # not the word Infinity
        if is_number or (isinstance(given, int | float | Decimal) and math.isfinite(given)):
            raise InvalidInputError(f"cannot CAST {sql(item)} AS {found.type}: the value does not fit the type")
    return found


def can_cast(source: t.DataType, target: t.DataType) -> bool:
    """Return whether values of one type can be cast to another."""
    origin, goal = family(source), family(target)
    if isinstance(source, Null) or source.with_nullable(True) == target.with_nullable(True):
        return True
    if origin is None or goal is None:
        return False
    numbers = {"exact", "float", "boolean"}
    return origin == goal or {origin, goal} <= numbers or "text" in (origin, goal)

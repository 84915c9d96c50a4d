r"""SQL text -> filters and projections, over sqlglot's Spark dialect; `to_predicate` takes every form of a filter.

What is understood: column names (also `a.b` inside ROW columns), literals, comparisons, AND OR NOT, IS NULL, IN,
BETWEEN, LIKE, ILIKE, RLIKE, arithmetic, `||`, CASE, CAST and the functions that `_SUPPORTED` lists. Anything else is
refused by name; nothing is guessed. In strings both `''` and `\'` are a quote.

This is the one module that imports sqlglot for expressions (0.2 s), so import it late where text may not occur.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pyarrow.compute as pc
import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark

from merganser.errors import InvalidInputError
from merganser.expr import build
from merganser.expr.from_arrow import predicate_from_arrow
from merganser.expr.functions import call
from merganser.expr.literal import from_text, number, zoned
from merganser.expr.names import resolve
from merganser.expr.predicate import Predicate, Projection
from merganser.expr.tree import ArrowCall, Column, Expression, Literal, walk
from merganser.schema import types as t

__all__ = ["parse_predicate", "parse_projection", "predicate_from_arrow", "to_predicate"]

_SUPPORTED: Final = (
    "Supported are columns, literals, = <> < <= > >= <=>, AND, OR, NOT, IS NULL, IN, BETWEEN, LIKE, ILIKE, RLIKE, "
    "+ - * / % DIV, ||, CASE, CAST, coalesce, if, nullif, concat, lower, upper, trim, length, substring, abs, round, "
    "floor, ceil, year, month, day, startswith, endswith and contains."
)
_COMPARISONS: Final = {
    exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=", exp.NullSafeEQ: "<=>",
}  # fmt: skip
_ARITHMETIC: Final = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%", exp.IntDiv: "DIV"}
_CALLS: Final[dict[type[exp.Expression], str]] = {
    exp.Lower: "lower", exp.Upper: "upper", exp.Length: "length", exp.Abs: "abs", exp.Floor: "floor",
    exp.Ceil: "ceil", exp.Year: "year", exp.Month: "month", exp.Day: "day", exp.DayOfMonth: "day",
}  # fmt: skip
_SEARCHES: Final = {
    exp.StartsWith: "starts", exp.EndsWith: "ends", exp.Contains: "contains", exp.RegexpLike: "regex",
}  # fmt: skip
_TYPES: Final[dict[str, Callable[[], t.DataType]]] = {
    "BOOLEAN": t.Boolean, "TINYINT": t.TinyInt, "SMALLINT": t.SmallInt, "INT": t.Int, "BIGINT": t.BigInt,
    "FLOAT": t.Float, "DOUBLE": t.Double, "TEXT": t.string, "VARCHAR": t.string, "CHAR": t.string,
    "BINARY": t.VarBinary, "VARBINARY": t.VarBinary, "DATE": t.Date,
}  # fmt: skip
_INSTANTS: Final[dict[str, Callable[[int], t.DataType]]] = {
    "TIMESTAMP": t.Timestamp, "TIMESTAMPTZ": t.Timestamp, "TIMESTAMPNTZ": t.Timestamp,
    "TIMESTAMPLTZ": t.LocalZonedTimestamp, "TIME": t.Time,
}  # fmt: skip


class _Filters(Spark):  # type: ignore[misc]
    """Spark's dialect, in which a doubled quote inside a string is a quote, as in Spark 4 and standard SQL."""

    class Tokenizer(Spark.Tokenizer):  # type: ignore[misc]
        STRING_ESCAPES = ["\\", "'"]  # noqa: RUF012 - the parser's own convention


def to_predicate(
    where: str | pc.Expression | Predicate | None, fields: Sequence[t.Field], qualifier: str | None = None
) -> Predicate | None:
    """Return a filter in whatever form it is given; None for no filter.

    Args:
        where: SQL text, an Arrow expression, a filter already made (returned as it is, its columns checked), or None.
        fields: the columns of the table.
        qualifier: a table name that may stand before column names in SQL text.

    Raises:
        InvalidInputError: the filter is not understood, or does not fit the columns.
    """
    match where:
        case None:
            return None
        case str():
            return parse_predicate(where, fields, qualifier)
        case Predicate():
            for part in walk(where.expression):
                if isinstance(part, Column):
                    _check_bound(part, fields)
                elif isinstance(part, ArrowCall):
                    for _, name in part.names:
                        resolve([name], fields)
            return where
        case pc.Expression():
            return predicate_from_arrow(where, fields)
    raise InvalidInputError(
        f"cannot filter by {where!r:.200}: a filter is SQL text, a pyarrow.compute expression or a Predicate, not "
        f"{type(where).__name__}"
    )


def parse_predicate(text: str, fields: Sequence[t.Field], qualifier: str | None = None) -> Predicate:
    """Return the condition that SQL text names.

    Args:
        text: the part of a statement after WHERE.
        fields: the columns of the table. A name counts exactly first, then in any case if that is unique.
        qualifier: a table name that may stand before column names.

    Raises:
        InvalidInputError: not an expression, not a condition, an unknown column, types that do not compare, or
            something that is not supported; names the piece.
    """
    node = _bind(text, fields, qualifier, "filter")
    return Predicate(build.condition(node, "filter"))


def parse_projection(text: str, fields: Sequence[t.Field], qualifier: str | None = None) -> Projection:
    """Return the value that SQL text names; arguments and errors as for `parse_predicate`."""
    return Projection(_bind(text, fields, qualifier, "expression"))


def _bind(text: str, fields: Sequence[t.Field], qualifier: str | None, what: str) -> Expression:
    try:
        return _Binder(fields, qualifier).bind(_parsed(text, what))
    except InvalidInputError as error:
        quoted = next((field.name for field in fields if f'"{field.name.lower()}"' in text.lower()), None)
        if quoted is None:
            raise
        raise InvalidInputError(
            f'{error.message.rstrip(".")}. Double quotes make "{quoted}" a text; the column is written `{quoted}`.',
            **error.context,
        ) from error
    except RecursionError:
        raise InvalidInputError(f"cannot read the {what} '{text[:80]}...': it is nested too deeply") from None


def _parsed(text: str, what: str) -> exp.Expression:
    if not text.strip():
        raise InvalidInputError(f"cannot read the {what} '{text}': it is empty. Leave it out to take every row.")
    try:
        node = sqlglot.parse_one(text, dialect=_Filters, into=exp.Condition)
    except sqlglot.errors.ParseError as error:
        found = error.errors[-1] if error.errors else {}
        place = f", at line {found['line']}, column {found['col']}" if found.get("line") else ""
        near = f", near '{found['highlight']}'" if found.get("highlight") else ""
        raise InvalidInputError(
            f"cannot read the {what} '{text}': {_reason(text, found)}{place}{near}", text=text
        ) from None
    except sqlglot.errors.TokenError:
        raise InvalidInputError(
            f"cannot read the {what} '{text}': a quote or a comment that begins in it does not end.", text=text
        ) from None
    except sqlglot.errors.SqlglotError as error:
        raise InvalidInputError(f"cannot read the {what} '{text}': {error}", text=text) from None
    if not isinstance(node, exp.Expression):
        raise InvalidInputError(f"cannot read the {what} '{text}': it is not an expression", text=text)
    return node


def _reason(text: str, found: Mapping[str, Any]) -> str:
    """Return why a text is no expression, in words of ours where the parser's are about itself."""
    if text.split(maxsplit=1)[0].lower() == "where":
        return "it begins with WHERE, which is left out"
    said = str(found.get("description") or "")
    if said.startswith("Required keyword"):
        return "a value is missing"
    return said if said.startswith("Expecting") else "it is not an expression"


def _check_bound(column: Column, fields: Sequence[t.Field]) -> None:
    actual = resolve(column.path, fields)
    if actual != column:
        raise InvalidInputError(
            f"the filter was made for a column '{'.'.join(column.path)}' of type {column.type}; here it is "
            f"'{'.'.join(actual.path)}' of type {actual.type}. Make it from its text again.",
            column=column.path[0],
        )


class _Binder:
    """One expression of sqlglot turned into ours, children first."""

    def __init__(self, fields: Sequence[t.Field], qualifier: str | None) -> None:
        self.fields = fields
        self.qualifier = qualifier

    def bind(self, node: exp.Expression) -> Expression:
        """Return the bound form of a node."""
        kind = type(node)
        if kind in _COMPARISONS:
            return build.compare(_COMPARISONS[kind], self.bind(node.this), self.bind(node.expression))
        if kind in _ARITHMETIC:
            return build.arithmetic(_ARITHMETIC[kind], self.bind(node.this), self.bind(node.expression))
        if kind in _CALLS and set(_present(node)) <= {"this"}:
            return call(_CALLS[kind], [self.bind(_unwrapped(node.this))])
        if kind in _SEARCHES and set(_present(node)) <= {"this", "expression"}:
            return build.match(_SEARCHES[kind], self.bind(node.this), self.bind(node.expression))
        match node:
            case exp.And() | exp.Or():
                items = [self.bind(item) for item in _flat(node)]
                return build.conjunction(items) if isinstance(node, exp.And) else build.disjunction(items)
            case exp.Not():
                return build.negation(self.bind(node.this))
            case exp.Paren():
                return self.bind(node.this)
            case exp.Column() | exp.Dot() | exp.Identifier():
                return self._column(node)
            case exp.Literal() | exp.Boolean() | exp.Null() | exp.HexString() | exp.RawString() | exp.Neg():
                return self._literal(node)
            case exp.Is() | exp.In() | exp.Between() | exp.NullSafeNEQ():
                return self._test(node)
            case exp.Like() | exp.ILike() | exp.Escape():
                return self._like(node, "\\")
            case exp.Cast():
                return self._cast(node)
        return self._function(node)

    def _column(self, node: exp.Expression) -> Expression:
        path = [part.name for part in node.parts] if isinstance(node, exp.Column | exp.Dot) else [node.name]
        if isinstance(node, exp.Dot) and not all(isinstance(p, exp.Identifier) for p in node.parts):
            raise _refusal(node)
        if isinstance(node, exp.Column) and isinstance(node.this, exp.Star):
            raise _refusal(node)
        if len(path) > 1 and self.qualifier is not None and path[0].lower() == self.qualifier.lower():
            path = path[1:]
        return resolve(path, self.fields)

    def _literal(self, node: exp.Expression) -> Expression:
        match node:
            case exp.Literal() if node.is_string:
                return Literal(node.this, t.string())
            case exp.RawString():
                return Literal(node.this, t.string())
            case exp.Literal():
                return number(node.this)
            case exp.Boolean():
                return build.TRUE if node.this else build.FALSE
            case exp.Null():
                return build.NULL
            case exp.HexString():
                digits = node.this if len(node.this) % 2 == 0 else "0" + node.this
                return Literal(bytes.fromhex(digits), t.VarBinary())
        inner = node.this.unnest()
        if isinstance(inner, exp.Literal) and not inner.is_string:
            return number("-" + inner.this)
        if isinstance(inner, exp.Cast) and isinstance(inner.this, exp.Literal) and not inner.this.is_string:
            # `-128Y`: the sign belongs to the literal, which would not fit without it.
            return self._cast(inner, sign="-")
        return build.negative(self.bind(node.this))

    def _test(self, node: exp.Expression) -> Expression:
        if isinstance(node, exp.NullSafeNEQ):
            return build.negation(build.compare("<=>", self.bind(node.this), self.bind(node.expression)))
        item = self.bind(node.this)
        match node:
            case exp.Is():
                if isinstance(node.expression, exp.Null):
                    return build.is_null(item)
                if isinstance(node.expression, exp.Boolean):
                    return build.compare("<=>", build.condition(item, "use IS"), self.bind(node.expression))
            case exp.In() if set(_present(node)) <= {"this", "expressions"}:
                return build.member(item, [self.bind(option) for option in node.expressions])
            case exp.Between() if not node.args.get("symmetric"):
                return build.between(item, self.bind(node.args["low"]), self.bind(node.args["high"]))
        raise _refusal(node)

    def _like(self, node: exp.Expression, escape: str) -> Expression:
        if isinstance(node, exp.Escape):
            mark = self.bind(node.expression)
            if not isinstance(mark, Literal) or not isinstance(mark.value, str):
                raise InvalidInputError(f"cannot use LIKE: the escape '{mark}' must be a string literal")
            inner = node.this
            if isinstance(inner, exp.Not):
                return build.negation(self._like(inner.this, mark.value))
            return self._like(inner, mark.value)
        if not isinstance(node, exp.Like | exp.ILike):
            raise _refusal(node)
        found = build.like(
            self.bind(node.this),
            self.bind(node.expression),
            escape=escape,
            ignore_case=isinstance(node, exp.ILike),
        )
        # Newer parsers keep the NOT of NOT LIKE inside the node.
        return build.negation(found) if node.args.get("negate") else found

    def _cast(self, node: exp.Cast, sign: str = "") -> Expression:
        if node.args.get("safe"):
            raise _refusal(node, "TRY_CAST is not supported; use CAST")
        if node.args.get("format") or node.args.get("default"):
            raise _refusal(node)
        target = node.args["to"]
        name = target.this.name if isinstance(target, exp.DataType) else ""
        sizes = [int(p.name) for p in target.expressions if p.name.isdigit()]
        kind: t.DataType
        if name in _TYPES:
            kind = _TYPES[name]()
        elif name == "DECIMAL":
            kind = t.Decimal(*(sizes or [10, 0]))
            if not 1 <= kind.precision <= 38 or kind.scale > kind.precision:
                raise _refusal(node, f"{kind} is out of range: precision 1 to 38, scale 0 to precision")
        elif name in _INSTANTS:
            text = node.this.this if isinstance(node.this, exp.Literal) and node.this.is_string else None
            if text is not None and not sizes:
                return self._instant(text, name)
            kind = _INSTANTS[name](min(sizes[0], 9) if sizes else 0 if name == "TIME" else 6)
        else:
            raise _refusal(node, f"there is no cast to '{target.sql(dialect='spark')}'")
        item = number(sign + node.this.this) if sign else self.bind(node.this)
        return build.cast(item, kind)

    def _instant(self, text: str, name: str) -> Expression:
        """Return TIMESTAMP '...' and TIME '...': as precise as their text; with an offset, an instant."""
        kind = _INSTANTS[name](9)
        if name in ("TIMESTAMP", "TIMESTAMPTZ") and zoned(text):
            kind = t.LocalZonedTimestamp(9)
        return from_text(text, kind)

    def _function(self, node: exp.Expression) -> Expression:
        match node:
            case exp.DPipe():
                return build.concat([self.bind(node.this), self.bind(node.expression)])
            case exp.Concat():
                return build.concat([self.bind(item) for item in node.expressions])
            case exp.Coalesce():
                return build.coalesce([self.bind(item) for item in (node.this, *node.expressions)])
            case exp.Nullif():
                return build.null_if(self.bind(node.this), self.bind(node.expression))
            case exp.Case():
                return self._case(node)
            case exp.If() | exp.Nvl2():
                return self._if(node)
            case exp.IsNan():
                return build.is_nan(self.bind(node.this))
            case exp.Round() if set(_present(node)) <= {"this", "decimals"}:
                return call("round", self._arguments(node, "this", "decimals"))
            case exp.Substring() if set(_present(node)) <= {"this", "start", "length"}:
                return call("substring", self._arguments(node, "this", "start", "length"))
            case exp.Trim() if set(_present(node)) <= {"this", "position"}:
                name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(node.args.get("position") or ""), "trim")
                return call(name, [self.bind(node.this)])
            case exp.Anonymous() if node.name.lower() in ("isnull", "isnotnull") and len(node.expressions) == 1:
                null = build.is_null(self.bind(node.expressions[0]))
                return null if node.name.lower() == "isnull" else build.negation(null)
            case exp.Anonymous():
                raise _refusal(node, f"there is no function '{node.name}' here")
        raise _refusal(node)

    def _arguments(self, node: exp.Expression, *names: str) -> list[Expression]:
        return [self.bind(node.args[name]) for name in names if node.args.get(name) is not None]

    def _case(self, node: exp.Case) -> Expression:
        subject = self.bind(node.this) if node.this else None
        branches = []
        for branch in node.args["ifs"]:
            when = self.bind(branch.this)
            when = when if subject is None else build.compare("=", subject, when)
            branches.append((when, self.bind(branch.args["true"])))
        default = node.args.get("default")
        return build.case(branches, self.bind(default) if default is not None else build.NULL)

    def _if(self, node: exp.Expression) -> Expression:
        when = self.bind(node.this)
        if isinstance(node, exp.Nvl2):
            when = build.negation(build.is_null(when))
        yes, no = node.args.get("true"), node.args.get("false")
        if yes is None or no is None:
            raise _refusal(node, "it takes 3 arguments")
        return build.case([(when, self.bind(yes))], self.bind(no))


def _present(node: exp.Expression) -> list[str]:
    """Return the names of the arguments a node has, apart from flags of the parser."""
    return [name for name, value in node.args.items() if value is not None and value != [] and value is not False]


def _unwrapped(node: exp.Expression) -> exp.Expression:
    """Return the argument of year(x), which the parser wraps in a conversion to a date."""
    return node.this if isinstance(node, exp.TsOrDsToDate) else node


def _flat(node: exp.Expression) -> list[exp.Expression]:
    """Return the operands of a chain of one connective, without recursion: chains may be thousands long."""
    kind, out, todo = type(node), [], [node]
    while todo:
        part = todo.pop()
        part = part.unnest() if isinstance(part, exp.Paren) else part
        if type(part) is kind:
            todo += [part.expression, part.this]
        else:
            out.append(part)
    return out


def _refusal(node: exp.Expression, reason: str = "") -> InvalidInputError:
    text = node.sql(dialect="spark")
    if isinstance(node, exp.Bracket):
        return InvalidInputError(
            f"cannot use '{text}': filters do not look into an ARRAY or a MAP, and a field of a ROW follows a dot, "
            "as in a.b. Filter what was read instead.",
            text=text,
        )
    if isinstance(node, exp.Dot) and isinstance(node.this, exp.Literal):
        return InvalidInputError(f"cannot use '{text}': a text has no fields.", text=text)
    if not reason:
        match node:
            case exp.Subquery() | exp.Query() | exp.Exists():
                reason = "subqueries are not supported"
            case exp.In() if node.args.get("query"):
                reason = "subqueries are not supported"
            case exp.Window():
                reason = "window functions are not supported"
            case exp.AggFunc():
                reason = "it is an aggregate, and each row is looked at alone"
            case exp.Interval():
                reason = "intervals are not supported"
            case _:
                reason = f"'{node.key}' is not supported"
    return InvalidInputError(f"cannot use '{text}': {reason}. {_SUPPORTED}", text=text)

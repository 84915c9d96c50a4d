r"""SQL text -> filters and projections, over sqlglot's Spark dialect. `expr.filters` takes every form of a filter.

What is understood: column names (also `a.b` inside ROW columns), literals, comparisons, AND OR NOT, IS NULL, IN,
BETWEEN, LIKE, ILIKE (ANY, ALL), RLIKE, arithmetic, `||`, CASE, CAST, intervals and the functions of `_SUPPORTED`.
Anything else is refused by name; nothing is guessed. In strings both `''` and `\'` are a quote.

Time zones exist only here. In the zone of the `Setting`, texts become instants, and an instant that meets a date, a
TIMESTAMP or a text is turned into a wall clock first, or the other into an instant. The tree says so, with the zone,
and its text is in UTC. `current_date` and the like become literals, and so do functions of them, so that files can be
skipped by them.

This is the one module that imports sqlglot for expressions (0.2 s), so import it late where text may not occur.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from typing import Any, ClassVar, Final

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.tokens import Token, TokenType

from merganser.errors import InvalidInputError
from merganser.expr import build, setting, zones
from merganser.expr.compare import integers
from merganser.expr.compute import evaluate
from merganser.expr.functions import call
from merganser.expr.literal import from_text, number, zoned
from merganser.expr.names import Sides, finds, prefixed, resolve
from merganser.expr.predicate import Predicate, Projection
from merganser.expr.setting import Setting
from merganser.expr.times import DAY_MICROS, PARTS, interval
from merganser.expr.tree import UNITS_PER_SECOND, Column, Expression, Literal, columns, sql, walk
from merganser.schema import types as t
from merganser.schema.arrow import timestamp_unit

__all__ = ["parse_predicate", "parse_projection"]

_SUPPORTED: Final = (
    "Supported are columns, literals, = <> < <= > >= <=>, AND, OR, NOT, IS NULL, IN, BETWEEN, LIKE, ILIKE, LIKE ANY, "
    "LIKE ALL, RLIKE, + - * / % DIV, ||, CASE, CAST, INTERVAL, coalesce, if, nullif, concat, lower, upper, trim, "
    "length, substring, abs, round, floor, ceil, startswith, endswith, contains, current_date, current_timestamp, "
    "localtimestamp, now, to_date, to_timestamp, date_add, date_sub, datediff, add_months, last_day, make_date, "
    "date_trunc, trunc, extract, year, quarter, month, day, hour, minute, second, dayofweek, dayofyear and "
    "weekofyear."
)
_COMPARISONS: Final = {
    exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=", exp.NullSafeEQ: "<=>",
}  # fmt: skip
_ARITHMETIC: Final = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%", exp.IntDiv: "DIV"}
_CALLS: Final[dict[type[exp.Expression], str]] = {
    exp.Lower: "lower", exp.Upper: "upper", exp.Length: "length", exp.Abs: "abs", exp.Floor: "floor",
    exp.Ceil: "ceil", exp.Year: "year", exp.Month: "month", exp.Day: "day", exp.DayOfMonth: "day",
    exp.Quarter: "quarter", exp.Hour: "hour", exp.Minute: "minute", exp.Second: "second",
    exp.DayOfWeek: "dayofweek", exp.DayOfYear: "dayofyear", exp.WeekOfYear: "weekofyear", exp.LastDay: "last_day",
    exp.UnixDate: "unix_date",
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


_MOMENTS: Final = (exp.DType.TIMESTAMP, exp.DType.TIMESTAMPTZ, exp.DType.TIMESTAMPNTZ, exp.DType.TIMESTAMPLTZ)
_SPARKS_DIGITS: Final = 6
_UTC: Final = Setting()
_ONE_ROW: Final = pa.table({"": pa.nulls(1)})
_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()


_REAL: Final = re.compile(r"[0-9.]+[eE][0-9]+(?=[+-])")


def _sign_in(token: Token, text: str) -> int | None:
    """Return the place of a sign behind the exponent of a number, if the token holds one."""
    may = token.token_type in (TokenType.NUMBER, TokenType.VAR)
    found = _REAL.match(text, token.start, token.end + 1) if may else None
    return None if found is None else found.end()


class Dialect(Spark):  # type: ignore[misc]
    """Spark's dialect, in which a doubled quote inside a string is a quote, as in Spark 4 and standard SQL."""

    class Tokenizer(Spark.Tokenizer):  # type: ignore[misc]
        STRING_ESCAPES = ["\\", "'"]  # noqa: RUF012 - the parser's own convention
        COMMANDS: ClassVar[set[Any]] = set()  # a text that begins with `call` or `release` begins with a column

        def tokenize(self, sql: str) -> list[Token]:
            """Return the tokens: `0x1F` is a name as in Spark, not binary data as in MySQL, and `1e2+3` is a sum."""
            text = sql
            origin: list[int] = []
            tokens = super().tokenize(sql)
            while signs := [place for token in tokens if (place := _sign_in(token, text)) is not None]:
                origin = origin or list(range(len(sql)))
                for at in reversed(signs):  # sqlglot takes the sign into the number, unless there is a blank before it
                    text = f"{text[:at]} {text[at:]}"
                    origin.insert(at, origin[at])
                tokens = super().tokenize(text)
            if origin:
                for token in tokens:
                    token.start, token.end = origin[token.start], origin[token.end]
            for token in tokens:
                if token.token_type == TokenType.HEX_STRING and sql[token.start] == "0":
                    token.token_type, token.text = TokenType.VAR, sql[token.start : token.end + 1]
            return list(tokens)

    class Parser(Spark.Parser):  # type: ignore[misc]
        """The parser of Spark, for which `list[0]` is an element of a column and no array."""

        ARRAY_CONSTRUCTORS: ClassVar[dict[str, Any]] = {"ARRAY": exp.Array}

    class Generator(Spark.Generator):  # type: ignore[misc]
        """The generator of Spark, which keeps TIME, and the digits of seconds."""

        TYPE_MAPPING: ClassVar[dict[Any, str]] = {**Spark.Generator.TYPE_MAPPING, exp.DType.TIME: "TIME"}

        def datatype_sql(self, expression: exp.DataType) -> str:
            if expression.this == exp.DType.TIME and expression.expressions:  # which Spark's drops
                return f"TIME({expression.expressions[0].name})"
            digits = digits_of(expression)
            text = str(super().datatype_sql(expression))  # which takes the digits out of the tree
            return text if digits is None else f"{text}({digits})"


_BEFORE_ITEMS: Final = (
    TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.COMMA, TokenType.SELECT, TokenType.DISTINCT, TokenType.VALUES,
)  # fmt: skip
"""Tokens behind which the first item of a list begins, or the next one."""
_BY: Final = re.compile(r"(?:GROUP|ORDER|PARTITION|CLUSTER|DISTRIBUTE|SORT) BY", re.IGNORECASE)


def missing_item(tokens: Sequence[Token]) -> int | None:
    """Return the place of the token before which a list lacks an item: sqlglot reads `(1,,2)` as `(1, 2)`."""
    comma, ends = TokenType.COMMA, (TokenType.R_PAREN, TokenType.R_BRACKET)
    kinds = [token.token_type for token in tokens]
    for i, kind in enumerate(kinds):
        before = kinds[i - 1] if i else TokenType.L_PAREN
        if kind in ends and before == comma:
            return i
        is_name = i > 1 and tokens[i - 2].text in (":", ".")
        if kind == comma and not is_name and (before in _BEFORE_ITEMS or _BY.fullmatch(_words(tokens, i))):
            return i
    return len(tokens) if kinds and kinds[-1] == comma else None


def _words(tokens: Sequence[Token], end: int) -> str:
    """Return the two words before a token, which may be one token; a name in quotes is none."""
    found = [token.text for token in tokens[max(end - 2, 0) : end] if token.token_type != TokenType.IDENTIFIER]
    return " ".join(" ".join(found).split()[-2:])


def digits_of(kind: exp.DataType) -> int | None:
    """Return the digits of seconds that a TIMESTAMP is written with: `3` of TIMESTAMP(3). None if it has none, or 6."""
    if kind.this not in _MOMENTS or not kind.expressions:
        return None
    digits = int(kind.expressions[0].name)
    return None if digits == _SPARKS_DIGITS else digits


_MARK: Final = "merganser_list_"
_LIST_CHARS: Final = 64
_LISTS: Final = re.compile(r"\bIN\s*\((\s*-?[0-9]+(?:\s*,\s*-?[0-9]+){15,}\s*)\)", re.IGNORECASE)
_SOURCE: Final = "merganser_source"
"""Under this name a parsed expression has its text."""
_CALL: Final = re.compile(r"(\w+)\s*\(")
_PIECES: Final = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`|[()]", re.DOTALL)
"""Quoted pieces of a text, and its parentheses outside of them."""
_QUOTES: Final = ("'", '"', "`", "--", "/*")
"""What a text may hold in which a list is none."""


def parse_predicate(
    text: str, fields: Sequence[t.Field] | Sides, qualifier: str | None = None, setting: Setting = _UTC
) -> Predicate:
    """Return the condition that SQL text names.

    Args:
        text: the part of a statement after WHERE.
        fields: the columns of the table. A name counts exactly first, then in any case if that is unique. Of several
            tables a column is called `side.column`, which the text may shorten where one side alone has it.
        qualifier: a table name that may stand before column names.
        setting: the time zone, the time, and whether names count in their case.

    Raises:
        InvalidInputError: not an expression, not a condition, an unknown column, types that do not compare, or
            something that is not supported; names the piece.
    """
    node = _bind(text, fields, qualifier, "filter", setting)
    return Predicate(build.condition(node, "filter"))


def parse_projection(
    text: str, fields: Sequence[t.Field] | Sides, qualifier: str | None = None, setting: Setting = _UTC
) -> Projection:
    """Return the value that SQL text names; arguments and errors as for `parse_predicate`."""
    return Projection(_bind(text, fields, qualifier, "expression", setting))


def dotted_names(text: str) -> list[tuple[str, ...]]:
    """Return the names in SQL text that have several parts, in no order; none if it is no expression."""
    try:
        node = _parsed(_without_lists(text)[0], "filter")
    except (InvalidInputError, RecursionError):
        return []
    names = (tuple(part.name for part in column.parts) for column in node.find_all(exp.Column))
    return [name for name in names if len(name) > 1]


def _bind(
    text: str, given: Sequence[t.Field] | Sides, qualifier: str | None, what: str, setting: Setting
) -> Expression:
    sides, fields = (given, given.columns) if isinstance(given, Sides) else (None, given)
    short, lists = _without_lists(text)
    if lists:  # a text that is refused is parsed as it was given, so that messages quote it
        with contextlib.suppress(InvalidInputError):
            return _Binder(fields, qualifier, setting, sides, lists).bind(_parsed(short, what))
    try:
        return _Binder(fields, qualifier, setting, sides).bind(_parsed(text, what))
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


def _without_lists(text: str) -> tuple[str, tuple[list[str], ...]]:
    """Return a text with a name in place of each long list of integers, and these lists.

    The parser takes most of its time for such lists, which programs write that name their keys.
    """
    if len(text) < _LIST_CHARS or _MARK in text.lower() or any(mark in text for mark in _QUOTES):
        return text, ()
    lists: list[list[str]] = []

    def named(found: re.Match[str]) -> str:
        lists.append([item.strip() for item in found[1].split(",")])
        return f"IN ({_MARK}{len(lists) - 1})"

    return _LISTS.sub(named, text), tuple(lists)


def _parsed(text: str, what: str) -> exp.Expression:
    if not text.strip():
        advice = " Leave it out to take every row." if what == "filter" else ""
        raise InvalidInputError(f"cannot read the {what} '{text}': it is empty.{advice}")
    try:
        node = sqlglot.parse_one(text, dialect=Dialect, into=exp.Condition)
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
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):  # of its builders, for odd arguments
        raise InvalidInputError(
            f"cannot read the {what} '{text}': a function in it does not take these arguments.", text=text
        ) from None
    except sqlglot.errors.SqlglotError as error:
        raise InvalidInputError(f"cannot read the {what} '{text}': {error}", text=text) from None
    if not isinstance(node, exp.Expression):
        raise InvalidInputError(f"cannot read the {what} '{text}': it is not an expression", text=text)
    if "," in text and missing_item(Dialect().tokenize(text)) is not None:
        raise InvalidInputError(f"cannot read the {what} '{text}': a list in it lacks an item at a comma.", text=text)
    node.meta[_SOURCE] = text
    return node


def _reason(text: str, found: Mapping[str, Any]) -> str:
    """Return why a text is no expression, in words of ours where the parser's are about itself."""
    if text.split(maxsplit=1)[0].lower() == "where":
        return "it begins with WHERE, which is left out"
    said = str(found.get("description") or "")
    if said.startswith("Required keyword"):
        return "a value is missing"
    return said if said.startswith("Expecting") else "it is not an expression"


def _or_null(column: Column) -> Expression:
    """Return NULL in place of a column without a type, which holds nothing else."""
    return build.NULL if build.untyped(column) else column


class _Binder:
    """One expression of sqlglot turned into ours, children first."""

    def __init__(
        self,
        fields: Sequence[t.Field],
        qualifier: str | None,
        setting: Setting,
        sides: Sides | None,
        lists: Sequence[list[str]] = (),
    ) -> None:
        self.fields = fields
        self.lists = {f"{_MARK}{i}": each for i, each in enumerate(lists)}
        self.sides = sides
        self.qualifier = qualifier
        self.setting = setting
        self.zone = setting.zone

    def bind(self, node: exp.Expression) -> Expression:
        """Return the bound form of a node."""
        kind = type(node)
        if kind in _COMPARISONS:
            return build.compare(_COMPARISONS[kind], *self._aligned([node.this, node.expression]))
        if kind in _ARITHMETIC:
            return self._arithmetic(node, _ARITHMETIC[kind])
        if kind in _CALLS and set(_present(node)) <= {"this"}:
            return _folded(call(_CALLS[kind], [self._wall(_unwrapped(node.this))]))
        if kind in _SEARCHES and set(_present(node)) <= {"this", "expression"}:
            return build.match(_SEARCHES[kind], self._wall(node.this), self.bind(node.expression))
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
        try:
            if self.sides is not None:
                return self._of_side(path, self.sides)
            return resolve(path, self.fields, exact=self.setting.exact_names)
        except InvalidInputError:
            if [part.lower() for part in path] == ["localtimestamp"]:  # the parser knows it by its parentheses alone
                return self._now(t.Timestamp(6))
            raise

    def _of_side(self, path: list[str], sides: Sides) -> Expression:
        """Return the column of one of several tables."""
        exact = self.setting.exact_names
        named = sides.called(path[0], exact=exact) if len(path) > 1 else None
        if named is not None and sides.refusal:
            raise InvalidInputError(sides.refusal, column=path[0])
        if named is not None and named in sides:
            return _or_null(prefixed(named, resolve(path[1:], sides[named], exact=exact)))
        found = {}
        for side, fields in sides.items():
            with contextlib.suppress(InvalidInputError):
                found[side] = resolve(path, fields, exact=exact)
        if len(found) > 1:
            names = " or ".join(f"'{sides.names[side]}.{column.path[0]}'" for side, column in found.items())
            advice = f", and {sides.refusal}" if sides.refusal else ". Write one of them."
            raise InvalidInputError(f"column '{path[0]}' may be {names}{advice}", column=path[0])
        if found:
            return _or_null(prefixed(*next(iter(found.items()))))
        if len(path) > 1 and not any(finds(path[:1], fields, exact=exact) for fields in sides.values()):
            raise sides.unknown(path)
        return _or_null(resolve(path, self.fields, exact=exact))

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
            return build.negation(build.compare("<=>", *self._aligned([node.this, node.expression])))
        match node:
            case exp.Is():
                item = self.bind(node.this)
                if isinstance(node.expression, exp.Null):
                    return build.is_null(item)
                if isinstance(node.expression, exp.Boolean):
                    return build.compare("<=>", build.condition(item, "use IS"), self.bind(node.expression))
            case exp.In() if set(_present(node)) <= {"this", "expressions"}:
                first = next((each.name for each in node.expressions), "")
                if (numbers := self.lists.get(first)) is not None:
                    return build.member(self.bind(node.this), [number(each) for each in numbers])
                item, *options = self._aligned([node.this, *node.expressions])
                return build.member(item, options)
            case exp.Between() if not node.args.get("symmetric"):
                item, low, high = self._aligned([node.this, node.args["low"], node.args["high"]])
                return build.between(item, low, high)
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
        if isinstance(node.expression, exp.Any | exp.All):
            return self._like_some(node)
        found = build.like(
            self._wall(node.this),
            self.bind(node.expression),
            escape=escape,
            ignore_case=isinstance(node, exp.ILike),
        )
        # Newer parsers keep the NOT of NOT LIKE inside the node.
        return build.negation(found) if node.args.get("negate") else found

    def _like_some(self, node: exp.Like | exp.ILike) -> Expression:
        """Return LIKE ANY or LIKE ALL of a list. With NOT, each of its patterns is negated."""
        patterns = node.expression.this
        if isinstance(node.parent, exp.Escape) or not isinstance(patterns, exp.Tuple | exp.Paren):
            raise _refusal(node, "give a list of patterns, without ESCAPE")
        listed = patterns.expressions if isinstance(patterns, exp.Tuple) else [patterns.this]
        ignore_case = isinstance(node, exp.ILike)
        item = self._wall(node.this)
        found = [build.like(item, self.bind(each), escape="\\", ignore_case=ignore_case) for each in listed]
        if node.args.get("negate"):
            found = [build.negation(each) for each in found]
        return build.disjunction(found) if isinstance(node.expression, exp.Any) else build.conjunction(found)

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
            if sizes and sizes[0] > 9:
                raise _refusal(node, f"there is no {name} with {sizes[0]} digits of a second: it has 0 to 9")
            kind = _INSTANTS[name](sizes[0] if sizes else 0 if name == "TIME" else 6)
        else:
            raise _refusal(node, f"there is no cast to '{target.sql(dialect='spark')}'")
        item = number(sign + node.this.this) if sign else self.bind(node.this)
        return self._to(item, kind)

    def _instant(self, text: str, name: str) -> Expression:
        """Return TIMESTAMP '...' and TIME '...': as precise as their text; with an offset, an instant."""
        kind = _INSTANTS[name](9)
        if name in ("TIMESTAMP", "TIMESTAMPTZ") and zoned(text):
            kind = t.LocalZonedTimestamp(9)
        if isinstance(kind, t.LocalZonedTimestamp):
            return zones.instant_of(text, self.zone)
        shown = from_text(text, kind)
        if self.zone is None or name not in ("TIMESTAMP", "TIMESTAMPTZ"):
            return shown
        return setting.wall_clock(setting.instant(shown, self.zone), self.zone)  # Spark has no time that clocks skip

    # time zones

    def _wall(self, node: exp.Expression) -> Expression:
        """Return the bound form of a node, an instant as what clocks in the zone show."""
        return zones.shown(self.bind(node), self.zone)

    def _aligned(self, nodes: Sequence[exp.Expression]) -> list[Expression]:
        """Return the bound forms of nodes that meet each other: all instants, or none.

        Literals are moved rather than columns, whose statistics are in the type of the column. Of two instants that
        clocks show alike, the later one is not: what they show is the earlier one's, as Spark has it.
        """
        items = [self.bind(node) for node in nodes]
        if self.zone is None or not any(isinstance(item.type, t.LocalZonedTimestamp) for item in items):
            return items
        others = [item for item in items if isinstance(item.type, t.Date | t.Timestamp)]
        instants = [item for item in items if isinstance(item.type, t.LocalZonedTimestamp)]
        if all(map(self._is_shown_first, instants)) and not all(isinstance(item, Literal) for item in others):
            return [zones.shown(item, self.zone) for item in items]
        return [
            zones.instant_of(str(item.value), self.zone) if isinstance(item, Literal) and build.is_text_literal(item)
            else zones.moment(item, self.zone)
            for item in items
        ]  # fmt: skip

    def _is_shown_first(self, item: Expression) -> bool:
        """Return whether an instant is a literal, and that which what clocks show then means."""
        if not isinstance(item, Literal) or item.value is None:
            return isinstance(item, Literal)
        assert self.zone is not None
        return setting.instant(setting.wall_clock(item, self.zone), self.zone).value == item.value

    def _to(self, item: Expression, kind: t.DataType) -> Expression:
        """Return CAST(item AS kind)."""
        return _folded(zones.cast(item, kind, self.zone))

    # times

    def _now(self, kind: t.DataType) -> Expression:
        """Return the time as a literal: an instant, what clocks show, or the day."""
        if self.setting.now_ms is None:
            raise InvalidInputError("cannot ask for the time here: this text is to mean the same at all times.")
        now: Expression = Literal(self.setting.now_ms * 1_000, t.LocalZonedTimestamp(6))
        return now if isinstance(kind, t.LocalZonedTimestamp) else self._to(now, kind)

    def _arithmetic(self, node: exp.Expression, op: str) -> Expression:
        left, right = node.this, node.expression
        if op == "+" and _interval_parts(left) is not None and _interval_parts(right) is None:
            left, right = right, left
        parts = _interval_parts(right) if op in "+-" else None
        if parts is None:
            return _folded(build.arithmetic(op, self.bind(left), self.bind(right)))
        months, micros = self._interval(parts)
        return self._later(self.bind(left), *((months, micros) if op == "+" else (-months, -micros)))

    def _interval(self, parts: Sequence[exp.Interval]) -> tuple[int, int]:
        """Return the sum of intervals as months and microseconds."""
        months = micros = 0
        for part in parts:
            unit, to = part.args.get("unit"), None
            if isinstance(unit, exp.IntervalSpan):
                unit, to = unit.this, unit.expression.name
            amount = part.this
            text = amount.name if isinstance(amount, exp.Literal) else self._whole(amount)
            found = interval(str(text), None if unit is None else unit.name, to)
            months, micros = months + found[0], micros + found[1]
        return months, micros

    def _whole(self, node: exp.Expression) -> int:
        """Return the whole number that a node is, such as -7."""
        item = self.bind(node)
        if isinstance(item, Literal) and isinstance(item.value, int):
            return item.value
        raise InvalidInputError(
            f"cannot use '{sql(item)}' as a number of days or months: it must be a whole number, written as a literal"
        )

    def _later(self, item: Expression, months: int, micros: int) -> Expression:
        """Return a date or timestamp plus months, days and then the rest; days are those of the zone."""
        days = int(micros / DAY_MICROS) * DAY_MICROS
        if self.zone is not None and isinstance(item.type, t.LocalZonedTimestamp) and (months or days):
            item = zones.moment(_plus(zones.shown(item, self.zone), months, days), self.zone)
            months, micros = 0, micros - days
        return _plus(item, months, micros) if months or micros else item

    def _function(self, node: exp.Expression) -> Expression:
        match node:
            case exp.DPipe():
                return build.concat([self._wall(node.this), self._wall(node.expression)])
            case exp.Concat():
                return build.concat([self._wall(item) for item in node.expressions])
            case exp.Coalesce():
                return build.coalesce(self._aligned([node.this, *node.expressions]))
            case exp.Nullif():
                return build.null_if(*self._aligned([node.this, node.expression]))
            case exp.Case():
                return self._case(node)
            case exp.If() | exp.Nvl2():
                return self._if(node)
            case exp.IsNan():
                return build.is_nan(self.bind(node.this))
            case exp.Round() if set(_present(node)) <= {"this", "decimals"}:
                return call("round", self._arguments(node, "this", "decimals"))
            case exp.Substring() if set(_present(node)) <= {"this", "start", "length", "zero_start"}:
                return call("substring", self._arguments(node, "this", "start", "length"))
            case exp.Trim() if set(_present(node)) <= {"this", "position"}:
                name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(node.args.get("position") or ""), "trim")
                return call(name, [self._wall(node.this)])
            case exp.CurrentDate():
                return self._now(t.Date())
            case exp.CurrentTimestamp():
                return self._now(t.LocalZonedTimestamp(6))
            case exp.Localtimestamp():
                return self._now(t.Timestamp(6))
        return self._time_function(node)

    def _time_function(self, node: exp.Expression) -> Expression:
        match node:
            case exp.TsOrDsToDate() if set(_present(node)) <= {"this", "safe"}:
                return self._to(self.bind(node.this), t.Date())
            case exp.TsOrDsToDate() | exp.StrToTime():
                raise _refusal(node, "patterns of dates are not supported; write dates as '2026-01-31'")
            case exp.TsOrDsAdd() if node.unit is not None and node.unit.name.upper() == "DAY":
                return self._days_later(node.this, node.expression)
            case exp.TimestampAdd() if node.unit is not None:
                return self._later(self.bind(node.this), *interval(str(self._whole(node.expression)), node.unit.name))
            case exp.AddMonths():
                return _plus(self._to(self.bind(node.this), t.Date()), self._whole(node.expression), 0)
            case exp.DateDiff() if node.args.get("unit") is None:
                ends = [self._to(self.bind(_unwrapped(end)), t.Date()) for end in (node.this, node.expression)]
                return _folded(build.arithmetic("-", *[call("unix_date", [end]) for end in ends]))
            case exp.TimestampTrunc():
                return self._start_of(self._to(self._wall(node.this), t.Timestamp(6)), node)
            case exp.DateTrunc():
                return self._start_of(self._to(self.bind(node.this), t.Date()), node)
            case exp.Extract():
                return self._part(node.this.name, node.expression, node)
        if isinstance(node, exp.Anonymous):
            return self._named(node)
        raise _refusal(node)

    def _days_later(self, node: exp.Expression, days: exp.Expression) -> Expression:
        """Return date_add and date_sub, which the parser writes as `days * -1`."""
        back = isinstance(days, exp.Mul) and isinstance(days.expression, exp.Neg)
        count = self.bind(days.this.unnest() if back else days)
        return _folded(build.arithmetic("-" if back else "+", self._to(self.bind(node), t.Date()), count))

    def _start_of(self, item: Expression, node: exp.Expression) -> Expression:
        return _folded(call("start_of", [item, Literal(node.args["unit"].name, t.string())]))

    def _part(self, name: str, item: exp.Expression, node: exp.Expression) -> Expression:
        plain = {"dow": "dayofweek", "doy": "dayofyear", "week": "weekofyear"}.get(name.lower(), name.lower())
        if plain.removesuffix("s") not in PARTS:
            raise _refusal(node, f"a date has no part '{name}'")
        return _folded(call(plain.removesuffix("s"), [self._wall(item)]))

    def _named(self, node: exp.Anonymous) -> Expression:
        """Return a function that the parser keeps as a name."""
        name, arguments = node.name.lower(), node.expressions
        match name, len(arguments):
            case "now", 0:
                return self._now(t.LocalZonedTimestamp(6))
            case "make_date", 3:
                year, month, day = map(self._whole, arguments)
                return from_text(f"{year:04}-{month:02}-{day:02}", t.Date())
            case "date_part", 2 if isinstance(arguments[0], exp.Literal):
                return self._part(arguments[0].name, arguments[1], node)
            case "weekday", 1:
                return _folded(call(name, [self._wall(arguments[0])]))
            case (("wall_clock" | "instant_at" | "start_of" | "plus_interval"), _):
                return _folded(call(name, [self.bind(argument) for argument in arguments]))
            case (("isnull" | "isnotnull"), 1):
                null = build.is_null(self.bind(arguments[0]))
                return null if name == "isnull" else build.negation(null)
        raise _refusal(node)

    def _arguments(self, node: exp.Expression, *names: str) -> list[Expression]:
        return [self._wall(node.args[name]) for name in names if node.args.get(name) is not None]

    def _case(self, node: exp.Case) -> Expression:
        branches = node.args["ifs"]
        default = node.args.get("default")
        values = self._aligned(
            [branch.args["true"] for branch in branches] + ([default] if default is not None else [])
        )
        conditions = []
        for branch in branches:
            if node.this:
                conditions.append(build.compare("=", *self._aligned([node.this, branch.this])))
            else:
                conditions.append(self.bind(branch.this))
        otherwise = values[-1] if default is not None else build.NULL
        return build.case(list(zip(conditions, values, strict=False)), otherwise)

    def _if(self, node: exp.Expression) -> Expression:
        when = self.bind(node.this)
        if isinstance(node, exp.Nvl2):
            when = build.negation(build.is_null(when))
        yes, no = node.args.get("true"), node.args.get("false")
        if yes is None or no is None:
            raise _refusal(node, "it takes 3 arguments")
        value, otherwise = self._aligned([yes, no])
        return build.case([(when, value)], otherwise)


def _plus(item: Expression, months: int, micros: int) -> Expression:
    return _folded(call("plus_interval", [item, number(str(months)), number(str(micros))]))


def _interval_parts(node: exp.Expression) -> list[exp.Interval] | None:
    """Return the intervals whose sum a node is, as `INTERVAL 1 DAY 2 HOURS`; None: it is something else."""
    plain = node.unnest()
    if isinstance(plain, exp.Interval):
        return [plain]
    if isinstance(plain, exp.Add):
        left, right = _interval_parts(plain.this), _interval_parts(plain.expression)
        return None if left is None or right is None else left + right
    return None


def _folded(item: Expression) -> Expression:
    """Return a date or timestamp, or a number made of one, as a literal where it needs no row.

    What fails is left as it is: it fails if a row asks for it.
    """
    if isinstance(item, Literal) or columns(item) or build.untyped(item):
        return item
    if not any(isinstance(part.type, t.Date | t.Timestamp | t.LocalZonedTimestamp) for part in walk(item)):
        return item
    try:
        value = evaluate(item, _ONE_ROW)
    except InvalidInputError:
        return item
    if isinstance(item.type, t.Date | t.Timestamp | t.LocalZonedTimestamp):
        value = integers(value, item.type)
        low, high = (_days(year) * _units_per_day(item.type) for year in (1, 10_000))
        if value.null_count or not low <= value[0].as_py() < high:
            return item
    return Literal(value[0].as_py(), item.type.with_nullable(True))


def _days(year: int) -> int:
    return date.min.replace(year=year).toordinal() - _EPOCH_ORDINAL if year < 10_000 else _days(9999) + 365


def _units_per_day(kind: t.DataType) -> int:
    if isinstance(kind, t.Timestamp | t.LocalZonedTimestamp):
        return 86_400 * UNITS_PER_SECOND[timestamp_unit(kind.precision)]
    return 1


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


def _as_given(node: exp.Expression) -> str | None:
    """Return the call of a function as the user wrote it: the parser shows some under other names. None: it is none."""
    text, start = node.root().meta.get(_SOURCE, ""), node.meta.get("start")
    call = None if start is None else _CALL.match(text, start)
    if call is None:
        return None
    depth = 0
    for piece in _PIECES.finditer(text, call.end() - 1):
        depth += {"(": 1, ")": -1}.get(piece[0], 0)
        if not depth:
            return str(text[start : piece.end()])
    return None


def _refusal(node: exp.Expression, reason: str = "") -> InvalidInputError:
    try:
        text = _as_given(node) or node.sql(dialect="spark")
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):  # of functions with odd arguments
        return InvalidInputError(f"cannot use a function with these arguments. {_SUPPORTED}")
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
                reason = "an interval is added to a date or a timestamp, as in ts > now() - INTERVAL 7 DAYS"
            case exp.Func() if found := _CALL.match(text):
                reason = f"there is no function '{found[1].lower()}' here, or not with these arguments"
            case _:
                reason = "filters do not have this"
    return InvalidInputError(f"cannot use '{text}': {reason}. {_SUPPORTED}", text=text)

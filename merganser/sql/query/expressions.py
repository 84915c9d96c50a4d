"""Expressions: trees of sqlglot -> typed values with text for DuckDB."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from sqlglot import exp
from sqlglot.errors import SqlglotError

from merganser.errors import InvalidInputError, UnsupportedError
from merganser.expr.setting import Setting
from merganser.expr.text import digits_of
from merganser.expr.tree import Null
from merganser.options.registry import did_you_mean
from merganser.schema import types as t
from merganser.schema.types_text import parse_type
from merganser.sql.dialect import CAST, SUBSTR, Queries
from merganser.sql.places import placed
from merganser.sql.query.arrays import ARRAYS, HIGHER, Lambda
from merganser.sql.query.casts import arithmetic, around, cast, to, with_six_digits
from merganser.sql.query.functions import (
    AGGREGATES,
    BEHIND,
    INSIDE,
    SCALARS,
    WINDOWS,
    Function,
    literal_text,
    matched,
    now_functions,
    pattern,
    positive_zero,
    row_of,
    sort_key,
    sorted_by,
    taken,
)
from merganser.sql.query.intervals import listed, literal, unit_of
from merganser.sql.query.json_functions import JSON, from_json
from merganser.sql.query.kinds import (
    MOMENTS,
    TEXTS,
    Interval,
    Value,
    coarse,
    common,
    duck,
    is_fine,
    is_null,
    is_number,
    same,
    string,
    wider_of,
)
from merganser.sql.query.names import LAMBDA, called, day, exact, frame, moment, real
from merganser.sql.query.scope import Scope, inside
from merganser.sql.query.times import ADDS, CALENDAR, DIFFS, TIMES, added, difference, extracted, moved, subtracted

if TYPE_CHECKING:
    from merganser.sql.query.binder import Bound

_COMPARISONS: Final = {exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
_ARITHMETIC: Final = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%", exp.IntDiv: "DIV"}
_NINE: Final = re.compile(r"\.[0-9]{7}")
_TURNED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_BITS: Final = {exp.BitwiseAnd: "&", exp.BitwiseOr: "|", exp.BitwiseXor: "xor"}
_OF_VALUES: Final = ("lag", "lead", "first_value", "last_value", "first", "last", "nth_value")
"""Window functions whose values have the type of their argument."""
_EDGES: Final = ("first", "last", "first_value", "last_value", "any_value")
_WHOLE: Final = (
    "coalesce", "nvl", "ifnull", "if", "nullif", "nvl2", "greatest", "least", "isnull", "isnotnull", "array", "map",
    "named_struct", "struct", "row", "element_at", "map_keys", "map_values", "min", "max", "count", "any_value",
    "first", "last", "first_value", "last_value", "collect_list", "array_agg", "collect_set", "max_by", "min_by",
)  # fmt: skip
"""Functions that take values as they are, with all digits of times."""
KEYS: Final = "\x03"
"""Stands for all keys of GROUP BY until they are known."""
SPEC: Final = "\x04{}\x05"
"""Holds PARTITION BY and ORDER BY of a window until the keys of GROUP BY are known."""
_SCALARS: Final = {**SCALARS, **ARRAYS, **TIMES, **JSON}
GENERATORS: Final = (
    "explode", "explode_outer", "posexplode", "posexplode_outer", "inline", "inline_outer", "json_tuple",
)  # fmt: skip
"""Functions that give rows or several columns."""
FUNCTIONS: Final = (*_SCALARS, *HIGHER, *AGGREGATES, *WINDOWS, *GENERATORS, "from_json")
"""Names of all functions."""
_DIGITS_MAX: Final = 9
_CHAINED: Final = (exp.And, exp.Or, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.DPipe)
_SHORT: Final = 20
"""Operators in a chain that are bound by recursion."""
_UNITS: Final = {"YEAR", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND"}


def _chain(node: exp.Expression) -> list[exp.Expression]:
    """Return the operators below a long chain of operators, the last one first; none if it is short."""
    found = []
    while isinstance(node, _CHAINED) and isinstance(node.this, _CHAINED):
        node = node.this
        found.append(node)
    return found if len(found) > _SHORT else []


class Expressions:
    """Binds expressions in one scope.

    Args:
        query: binds a subquery in this scope.
        setting: the time zone and the time.
    """

    def __init__(self, scope: Scope, query: Callable[[exp.Expression, Scope], Bound], setting: Setting) -> None:
        self.scope, self.query, self.setting = scope, query, setting
        self.aggregates = 0
        self.windows: dict[str, exp.Window] = {}
        self.in_aggregate = False
        self.in_having = False
        self.in_order = False
        self.grouping: list[Value] | None = None  # of which grouping() is asked
        self.keys: Sequence[str] = ()  # of GROUP BY
        self.are_keys_bound = False  # values of keys are those of the groups
        self._known: dict[int, Value] = {}  # the values of the operators in a chain, by the id of their node

    def value(self, node: exp.Expression) -> Value:
        """Return the value of an expression.

        Raises:
            InvalidInputError: an unknown name, or types that do not fit.
            UnsupportedError: something that this process does not compute as Spark does.
        """
        if (known := self._known.get(id(node))) is not None:
            return known
        chain = _chain(node)
        if not chain:
            return self._finished(node)
        # `a OR b OR ...` is as deep as it is long, and may have thousands of operands: the first ones are bound first
        outer, self._known = self._known, {}
        try:
            for inner in reversed(chain):
                self._known[id(inner)] = self._finished(inner)
            return self._finished(node)
        finally:
            self._known = outer

    def _finished(self, node: exp.Expression) -> Value:
        found = self._value(node)
        if self.are_keys_bound and not self.in_aggregate and found.text in self.keys:
            found = positive_zero(found)
        if node.args.get("negate") and not isinstance(node.expression, exp.Any | exp.All):  # NOT LIKE and the like
            found = Value(f"(NOT {found.text})", t.Boolean(), f"(NOT {found.name})")
        return found if found.name or isinstance(node, exp.Literal) else found.named(_text(node))

    def item(self, node: exp.Expression) -> Value:
        """Return an item of the list of SELECT, with the name that its column gets."""
        found = self.value(node)
        if isinstance(node, exp.Column | exp.Alias):
            return found.named(found.own) if found.own else found
        is_cast = isinstance(node, exp.Cast) or (isinstance(node, exp.Anonymous) and node.name.lower() == "date")
        given = node.expressions[0] if isinstance(node, exp.Anonymous) and is_cast else node.this
        if is_cast and isinstance(given, exp.Column):
            inner = self.value(given)
            return found.named(inner.own) if inner.own == inner.name else found
        return found

    def computed(self, node: exp.Expression) -> Value:
        """Return the value of an expression as functions compute with it: times have six digits of a second."""
        return with_six_digits(self.value(node))

    def condition(self, node: exp.Expression, what: str) -> str:
        """Return the text of a condition; see `tested`."""
        return self.tested(node, what).text

    def tested(self, node: exp.Expression, what: str) -> Value:
        """Return a condition.

        Raises:
            InvalidInputError: the expression is not BOOLEAN.
        """
        value = self.value(node)
        if not isinstance(value.type, t.Boolean) and not is_null(value.type):
            raise InvalidInputError(f"{what} must be BOOLEAN: {_text(node)} is {value.type}.")
        return value

    def _value(self, node: exp.Expression) -> Value:
        match node:
            case exp.Paren():
                inner = self.value(node.this)
                return replace(inner, text=f"({inner.text})")
            case exp.Alias():
                return self.value(node.this).aliased(node.alias)
            case exp.Column():
                return self._column(node)
            case exp.Identifier():
                return self.scope.column([node.name], "")
            case exp.Dot():
                return self._dot(node)
            case exp.Literal():
                return _literal(node)
            case exp.Null():
                return Value("NULL", Null(), "NULL")
            case exp.Boolean():
                return Value("TRUE" if node.this else "FALSE", t.Boolean(), "true" if node.this else "false")
            case exp.HexString():
                return Value(f"unhex('{node.this}')", t.VarBinary(), f"X'{node.this.upper()}'")
            case exp.Neg():
                return self._negative(node)
            case exp.Cast() | exp.TryCast():
                return self._cast(node)
            case exp.And() | exp.Or():
                word = "AND" if isinstance(node, exp.And) else "OR"
                left, right = (self.tested(side, word) for side in (node.left, node.right))
                name = f"({left.name} {word} {right.name})"
                first = left.text[1:-1] if type(node.left) is type(node) else left.text  # DuckDB limits the depth
                return Value(f"({first} {word} {right.text})", t.Boolean(), name)
            case exp.Not():
                inner = self.tested(node.this, "NOT")
                is_null = isinstance(node.this, exp.Is) and isinstance(node.this.expression, exp.Null)
                name = f"{inner.name.removesuffix('NULL)')}NOT NULL)" if is_null else f"(NOT {inner.name})"
                return Value(f"(NOT {inner.text})", t.Boolean(), name)
            case exp.Is():
                return self._is(node)
            case exp.NullSafeEQ() | exp.NullSafeNEQ():
                return self._compared(node.left, node.right, "<=>" if isinstance(node, exp.NullSafeEQ) else "<>=")
            case exp.Between():
                low = self._compared(node.this, node.args["low"], ">=")
                high = self._compared(node.this, node.args["high"], "<=")
                name = f"between({', '.join(self.value(node.args[key]).name for key in ('this', 'low', 'high'))})"
                return Value(f"({low.text} AND {high.text})", t.Boolean(), name)
            case exp.In():
                return self._in(node)
            case exp.Like() | exp.ILike():
                return self._like(node, "\\")
            case exp.Escape():
                return self._like(node.this, node.expression.name)
            case exp.RegexpLike():
                s, made = taken(self.value(node.this), "s", "RLIKE"), self.value(node.expression)
                form = pattern(made, "RLIKE")
                text = matched(s.text, form, f"regexp_matches({s.text}, {string(form.text)})", "RLIKE")
                return Value(text, t.Boolean(), f"RLIKE({s.name}, {made.name})")
            case exp.DPipe():
                return self._call("concat", SCALARS["concat"], [node.left, node.right])
            case exp.Case():
                return self._case(node)
            case exp.If():
                arguments = [node.this, node.args["true"], node.args.get("false") or exp.Null()]
                return self._call("if", SCALARS["if"], arguments)
            case exp.Exists():
                bound = self.query(node.this, self.scope)
                return Value(f"EXISTS ({bound.text})", t.Boolean(), "exists()")
            case exp.Subquery():
                return self._scalar(node.this if not node.args.get("with_") else node)
            case exp.Select() | exp.SetOperation():
                return self._scalar(node)
            case exp.Bracket():
                return self._bracket(node)
            case exp.Array():
                return self._call("array", SCALARS["array"], node.expressions)
            case exp.Tuple():
                return self._call("row", SCALARS["row"], node.expressions)
            case exp.Extract():
                return self._extract(node)
            case exp.Trim():
                return self._trim(node)
            case exp.Substring():
                arguments = [node.this, node.args["start"], *([node.args["length"]] if node.args.get("length") else [])]
                return self._call("substr" if node.meta.get(SUBSTR) else "substring", SCALARS["substring"], arguments)
            case exp.StrPosition():
                start = [node.args["position"]] if node.args.get("position") is not None else []
                name = "position" if start else "locate"
                return self._call(name, SCALARS[name], [node.args["substr"], node.this, *start])
            case exp.Overlay():
                given = (node.args.get(key) for key in ("this", "expression", "from_", "for_"))
                return self._call("overlay", SCALARS["overlay"], [each for each in given if each is not None])
            case exp.Interval():
                return literal(node)
            case exp.CurrentDate():
                return self._now("current_date")
            case exp.CurrentTimestamp():
                return self._now("current_timestamp")
            case exp.Localtimestamp():
                return self._now("localtimestamp")
            case exp.Window():
                return self._window(node)
            case exp.Filter():
                return self._filtered(node)
            case exp.Any() if not isinstance(node.this, exp.Query | exp.Tuple):
                return self._aggregate(exp.Anonymous(this="any", expressions=[node.this]), None)
            case exp.Distinct():
                raise InvalidInputError("DISTINCT stands inside of an aggregate: count(DISTINCT a).")
            case exp.Star():
                raise InvalidInputError("* stands in the list of SELECT and in count(*) only.")
            case exp.Anonymous():
                return self._function(node)
        kind = type(node)
        if kind in _COMPARISONS:
            return self._compared(node.left, node.right, _COMPARISONS[kind])
        if kind in _ARITHMETIC:
            return self._arithmetic(node, _ARITHMETIC[kind])
        if kind in _BITS:
            one, other = self.value(node.left), self.value(node.right)
            wide = wider_of(one, other)
            if wide is None or not is_number(wide):
                raise InvalidInputError(f"cannot compute {_text(node)}: the sides are {one.type} and {other.type}.")
            a, b, sign = to(one, wide), to(other, wide), _BITS[kind]
            name = f"({one.name} {'^' if sign == 'xor' else sign} {other.name})"
            return Value(f"xor({a}, {b})" if sign == "xor" else f"({a} {sign} {b})", wide, name)
        if isinstance(node, exp.BitwiseNot):
            inner = self.value(node.this)
            return Value(f"(~{inner.text})", inner.type, f"~{inner.name}")
        if isinstance(node, exp.Func):
            raise UnsupportedError(f"cannot compute {_text(node)} in this process. Run the statement on Spark.")
        raise UnsupportedError(f"cannot compute {_text(node)} ({kind.__name__}) in this process. Run it on Spark.")

    # names

    def _column(self, node: exp.Column) -> Value:
        if isinstance(node.this, exp.Star):
            raise InvalidInputError("* stands in the list of SELECT and in count(*) only.")
        parts = [item.name for item in node.parts]
        if (
            len(parts) == 1
            and not node.this.args.get("quoted")
            and parts[0].lower() in ("localtimestamp", "current_timestamp", "current_date")
        ):
            try:
                return self.scope.column(parts, "")
            except InvalidInputError:
                return self._now(parts[0].lower())
        with placed(node):
            if self.in_order and not self.in_aggregate and len(parts) == 1 and (named := self.scope.alias(parts[0])):
                return named
            found = self.scope.column(parts, "")
            is_alias = self.in_having and not self.in_aggregate and len(parts) == 1 and found.text not in self.keys
            return (self.scope.alias(parts[0]) if is_alias else None) or found

    def _dot(self, node: exp.Dot) -> Value:
        parts: list[str] = []
        base: exp.Expression = node
        while isinstance(base, exp.Dot):
            parts.insert(0, base.expression.name)
            base = base.this
        if isinstance(base, exp.Column):
            return self.scope.column([*(item.name for item in base.parts), *parts], "")
        return inside(self.value(base), parts)

    def _now(self, name: str) -> Value:
        return now_functions(self.setting)[name].named(f"{'current_date' if name == 'curdate' else name}()")

    # operators

    def _negative(self, node: exp.Neg) -> Value:
        if isinstance(node.this, exp.Literal) and not node.this.is_string:
            return _literal(exp.Literal(this=f"-{node.this.this}", is_string=False))
        if isinstance(node.this, exp.Cast) and _is_literal(node.this) and node.this.this.is_int:
            number = node.this.copy()  # with its sign: 9223372036854775808L alone is too large, and -0.0D is no decimal
            number.this.set("this", f"-{number.this.this}")
            return self._cast(number)
        value = self.value(node.this)
        value = value if isinstance(value.type, Interval) else taken(value, "n", "-")
        is_number = isinstance(node.this, exp.Cast) and _is_literal(node.this)
        return Value(f"(-{value.text})", value.type, f"-{value.name}" if is_number else f"(- {value.name})")

    def _cast(self, node: exp.Cast | exp.TryCast) -> Value:
        tries = isinstance(node, exp.TryCast)
        kind = type_of(node.args["to"])
        inner = self.value(node.this)
        made = _cut(cast(inner, kind, tries=tries), node.args["to"])
        if _is_literal(node):
            if not node.this.is_string:
                made = replace(made, digits=inner.digits)
                return made.named(real(float(inner.name)) if isinstance(kind, t.Float | t.Double) else inner.name)
            if isinstance(kind, t.Decimal):  # 1.5BD
                return made.named(exact(inner.name))
            if isinstance(kind, t.Date | t.Timestamp | t.LocalZonedTimestamp):
                shown = day(inner.name) if isinstance(kind, t.Date) else moment(inner.name)
                return made.named(f"{_spark_type(kind)} '{shown}'")
        if isinstance(kind, t.Array | t.Map | t.Row):
            return made.named(inner.name)
        return made.named(f"{'TRY_' if tries else ''}CAST({inner.name} AS {_spark_type(kind)})")

    def _is(self, node: exp.Is) -> Value:
        value = self.value(node.this)
        match node.expression:
            case exp.Null():
                return Value(f"({value.text} IS NULL)", t.Boolean(), f"({value.name} IS NULL)")
            case exp.Boolean() as wanted:
                test, word = taken(value, "b", "IS").text, "true" if wanted.this else "false"
                return Value(f"({test} IS {word})", t.Boolean(), f"({value.name} <=> {word})")
        raise InvalidInputError(f"cannot compute {_text(node)}.")

    def _compared(self, left: exp.Expression, right: exp.Expression, sign: str) -> Value:
        a, b = self.value(left), self.value(right)
        a, b = _of_literal(left, a, b), _of_literal(right, b, a)
        wide = wider_of(a, b)
        if wide is None:
            raise InvalidInputError(
                f"cannot compare {a.name} {sign} {b.name}: they are {a.type} and {b.type}. CAST one of them."
            )
        if isinstance(wide, t.Map | t.Multiset):
            raise InvalidInputError(f"cannot compare {a.name} {sign} {b.name}: MAPs do not compare.")
        texts = any(isinstance(value.type, TEXTS) for value in (a, b))
        if isinstance(wide, MOMENTS) and is_fine(wide) and not (texts or same(a.type, b.type)):
            return _compared_around(a, b, sign)
        made = _comparison(a, b, wide, sign)
        constant = b if isinstance(a.type, t.Timestamp) else a
        if not isinstance(wide, t.LocalZonedTimestamp) or not isinstance((b if constant is a else a).type, t.Timestamp):
            return made
        if (right if constant is b else left).find(exp.Column, exp.Query) is not None:
            return made
        # Spark moves a constant instant rather than the TIMESTAMP that it meets, unless it is the later of two that
        # clocks show alike. So times that clocks skip meet as what they are.
        instant = to(constant, wide)
        walls = _comparison(a, b, t.Timestamp(6), sign)
        first = f"_instant(CAST({instant} AS TIMESTAMP)) = {instant}"
        return replace(made, text=f"CASE WHEN {first} THEN {walls.text} ELSE {made.text} END")

    def _arithmetic(self, node: exp.Expression, op: str) -> Value:
        if op in "+-":
            pairs = [(node.left, node.right), *([(node.right, node.left)] if op == "+" else [])]
            for moment, interval in pairs:
                if isinstance(interval, exp.Interval) and (found := self._shifted(moment, interval, op)) is not None:
                    return found
        left = self.computed(node.left)
        right = (listed(node.right) if op in "+-" else None) or self.computed(node.right)
        if op in "+-" and isinstance(left.type, (t.Date, *MOMENTS)) and isinstance(right.type, Interval):
            return moved(op, left, right)
        if op == "+" and isinstance(left.type, Interval) and isinstance(right.type, (t.Date, *MOMENTS)):
            return moved(op, right, left)
        if op == "-" and (found := subtracted(left, right)) is not None:
            return found
        if isinstance(left.type, t.Date) and isinstance(right.type, (t.TinyInt, t.SmallInt, t.Int)) and op in "+-":
            name = f"date_{'add' if op == '+' else 'sub'}({left.name}, {right.name})"
            return Value(f"({left.text} {op} {to(right, t.Int())})", t.Date(), name)
        if isinstance(right.type, t.Date) and isinstance(left.type, (t.TinyInt, t.SmallInt, t.Int)) and op == "+":
            return Value(f"({right.text} + {to(left, t.Int())})", t.Date(), f"date_add({right.name}, {left.name})")
        return arithmetic(op, left, right)

    def _shifted(self, moment: exp.Expression, interval: exp.Interval, op: str) -> Value | None:
        """Return a date or a time plus or minus whole units; None if there is something else."""
        value = self.computed(moment)
        number, unit = interval.this, unit_of(interval)
        count = number.name if isinstance(number, exp.Literal) else None
        if isinstance(value.type, Interval) or unit not in _UNITS or count is None or not count.lstrip("-").isdigit():
            return None
        if isinstance(value.type, TEXTS):
            value = cast(value, t.Timestamp(6))
        if isinstance(value.type, t.Time):
            raise UnsupportedError(
                f"cannot add an interval to {value.name} in this process: it is {value.type}. Run the statement on "
                "Spark."
            )
        if not isinstance(value.type, (t.Date, *MOMENTS)):
            raise InvalidInputError(f"cannot add an interval to {value.name}: it is {value.type}.")
        name = _shifted_name(value, op, unit, int(count))
        if isinstance(value.type, t.Date) and unit in ("HOUR", "MINUTE", "SECOND"):
            value = cast(value, t.LocalZonedTimestamp(6))
        kind = value.type
        if isinstance(kind, t.LocalZonedTimestamp) and unit in CALENDAR:
            return Value(f"_moved({value.text}, INTERVAL ({'-' if op == '-' else ''}({count})) {unit})", kind, name)
        if isinstance(kind, t.LocalZonedTimestamp):
            return moved(op, value, literal(interval)).named(name)
        made = f"({value.text} {op} INTERVAL ({count}) {unit})"
        return Value(f"CAST({made} AS {duck(kind)})", kind, name)

    def _in(self, node: exp.In) -> Value:
        query = node.args.get("query")
        if query is not None:
            return self._in_query(node, query)
        if isinstance(node.this, exp.Tuple):
            return self._in_rows(node, node.this)
        if node.args.get("unnest") is not None:
            raise UnsupportedError(f"cannot compute {_text(node)} in this process.")
        item = self.value(node.this)
        options = [self.value(option) for option in node.expressions]
        kind = common([item, *options], "compare with IN")
        text = f"({to(item, kind)} IN ({', '.join(to(option, kind) for option in options)}))"
        nulls = any(isinstance(option, exp.Null) for option in node.expressions)
        if (isinstance(kind, t.LocalZonedTimestamp) or is_fine(kind)) and not nulls:
            each = [self._compared(node.this, option, "=").text for option in node.expressions]
            text = f"({' OR '.join(each)})"
        return Value(text, t.Boolean(), f"({item.name} IN ({', '.join(option.name for option in options)}))")

    def _in_rows(self, node: exp.In, row: exp.Tuple) -> Value:
        """Return `(a, b) IN ((1, 2), ...)`. A row is never null: nulls inside of two rows are equal, as in Spark."""
        for option in node.expressions:
            if not isinstance(option, exp.Tuple) or len(option.expressions) != len(row.expressions):
                raise InvalidInputError(f"IN compares rows of {len(row.expressions)} values with {_text(option)}.")
            if any(isinstance(item, exp.Null) for item in option.expressions):
                raise InvalidInputError(f"cannot compare {_text(row)} with {_text(option)}: write IS NULL instead.")
        pairs = [zip(row.expressions, option.expressions, strict=True) for option in node.expressions]
        equal = [" AND ".join(self._compared(a, b, "<=>").text for a, b in pair) for pair in pairs]
        item, *options = (self._row_name(each) for each in (row, *node.expressions))
        name = f"({item} IN ({', '.join(options)}))"
        return Value(f"({' OR '.join(f'({each})' for each in equal)})", t.Boolean(), name)

    def _row_name(self, row: exp.Tuple) -> str:
        names = [item.name if isinstance(item, exp.Column) else f"col{i}" for i, item in enumerate(row.expressions, 1)]
        values = (self.value(item).name for item in row.expressions)
        return f"named_struct({', '.join(f'{name}, {value}' for name, value in zip(names, values, strict=True))})"

    def _in_query(self, node: exp.In, query: exp.Expression) -> Value:
        inner = query.this if isinstance(query, exp.Subquery) else query
        bound = self.query(inner, self.scope)
        items = [self.value(item) for item in _items(node.this)]
        if len(items) != len(bound.columns):
            raise InvalidInputError(f"IN compares {len(items)} columns with {len(bound.columns)} of the subquery.")
        left, right = [], []
        for position, (item, (name, kind)) in enumerate(zip(items, bound.columns, strict=True)):
            other = Value(f'_in."{position}"', kind, name)
            wide = common([item, other], "compare with IN")
            left.append(to(item, wide))
            right.append(to(other, wide))
        names = ", ".join(f'"{i}"' for i in range(len(items)))
        if len(items) > 1:  # rows of DuckDB take nulls inside of them for equal
            rows = f"EXISTS (SELECT 1 FROM ({bound.text}) AS _in({names}) WHERE "
            equal = " AND ".join(f"{a} = {b}" for a, b in zip(left, right, strict=True))
            unknown = "" if _is_filter(node) else f" WHEN {rows}({equal}) IS NULL) THEN NULL"
            made = f"(CASE WHEN {rows}{equal}) THEN true{unknown} ELSE false END)"
            return Value(made, t.Boolean(), f"({self._row_name(node.this)} IN (listquery()))")
        text = f"SELECT {', '.join(right)} FROM ({bound.text}) AS _in({names})"
        return Value(f"({left[0]} IN ({text}))", t.Boolean(), f"({items[0].name} IN (listquery()))")

    def _like(self, node: exp.Expression, escape: str) -> Value:
        if isinstance(node.expression, exp.Any | exp.All):
            return self._like_some(node)
        s, made = (taken(self.value(side), "s", "LIKE") for side in (node.this, node.expression))
        word = "ILIKE" if isinstance(node, exp.ILike) else "LIKE"
        name = f"{s.name} LIKE {made.name}" if word == "LIKE" else f"ilike({s.name}, {made.name})"
        name += f" ESCAPE '{escape}'" if word == "LIKE" and escape != "\\" else ""
        texts = (s.text, made.text) if word == "LIKE" else (f"_lower({s.text})", f"_lower({made.text})")
        return Value(f"({texts[0]} LIKE {texts[1]} ESCAPE {string(escape)})", t.Boolean(), name)

    def _like_some(self, node: exp.Expression) -> Value:
        """Return LIKE ANY or LIKE ALL of a list. With NOT, each of its patterns is negated."""
        quantified, negates = node.expression, bool(node.args.get("negate"))
        patterns = quantified.this.expressions if isinstance(quantified.this, exp.Tuple) else [quantified.this.this]
        if isinstance(node.parent, exp.Escape) or not isinstance(quantified.this, exp.Tuple | exp.Paren):
            raise InvalidInputError(f"cannot compute {_text(node)}: give a list of patterns, without ESCAPE.")
        each = [self._like(type(node)(this=node.this, expression=pattern), "\\") for pattern in patterns]
        if negates:
            each = [Value(f"(NOT {value.text})", t.Boolean(), f"(NOT {value.name})") for value in each]
        word = "OR" if isinstance(quantified, exp.Any) else "AND"
        name = f"({f' {word} '.join(value.name for value in each)})"
        if all(isinstance(pattern, exp.Literal) and pattern.is_string for pattern in patterns):
            shown = self.value(node.this).name
            name = f"{'not' if negates else ''}like{'any' if word == 'OR' else 'all'}"
            name += f"(lower({shown}))" if isinstance(node, exp.ILike) else f"({shown})"
        return Value(f"({f' {word} '.join(value.text for value in each)})", t.Boolean(), name)

    def _case(self, node: exp.Case) -> Value:
        branches = []
        for branch in node.args["ifs"]:
            if node.this is not None:
                test = self._compared(node.this, branch.this, "=")
            else:
                test = self.tested(branch.this, "WHEN")
            branches.append((test, self.value(branch.args["true"])))
        otherwise = (
            self.value(node.args["default"]) if node.args.get("default") is not None else Value("NULL", Null(), "NULL")
        )
        kind = common([*(value for _, value in branches), otherwise], "choose with CASE")
        text = " ".join(f"WHEN {test.text} THEN {to(value, kind)}" for test, value in branches)
        name = " ".join(f"WHEN {test.name} THEN {value.name}" for test, value in branches)
        name += f" ELSE {otherwise.name}" if node.args.get("default") is not None else ""
        return Value(f"CASE {text} ELSE {to(otherwise, kind)} END", kind, f"CASE {name} END")

    def _scalar(self, node: exp.Expression) -> Value:
        bound = self.query(node, self.scope)
        if len(bound.columns) != 1:
            raise InvalidInputError(f"a subquery that stands for a value gives one column, not {len(bound.columns)}.")
        return Value(f"({bound.text})", bound.columns[0][1], "scalarsubquery()")

    def _bracket(self, node: exp.Bracket) -> Value:
        if isinstance(node.this, exp.Column) and not node.this.table and node.this.name.upper() == "MAP":
            try:
                self.scope.column([node.this.name], "")
            except InvalidInputError:
                return self._call("map", SCALARS["map"], node.expressions)
        base = self.value(node.this)
        index = self.value(node.expressions[0])
        name = f"{base.name}[{index.name}]"
        match base.type:
            case t.Array(element=element):
                i = taken(index, "i", "[]").text
                bad = "error('the index is outside of the ARRAY')"
                text = f"CASE WHEN {i} < 0 OR {i} >= len({base.text}) THEN {bad} ELSE ({base.text})[{i} + 1] END"
                return Value(text, element, name)
            case t.Map(key=key, value=item):
                return Value(f"({base.text})[{to(index, key)}]", item, name)
            case t.Row() if index.is_text:
                return replace(inside(base, [index.text[1:-1].replace("''", "'")]), name=name)
        raise InvalidInputError(f"'{base.name}' is {base.type}, and has no elements.")

    def _extract(self, node: exp.Extract) -> Value:
        value = self.computed(node.expression)
        return extracted(node.this.name, value).named(f"extract({node.this.name} FROM {value.name})")

    def _trim(self, node: exp.Trim) -> Value:
        name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(node.args.get("position") or "").upper(), "trim")
        s = taken(self.value(node.this), "s", name)
        if node.expression is None:
            return Value(f"{name}({s.text}, ' ')", t.string(), f"{name}({s.name})")
        characters = taken(self.value(node.expression), "s", name)
        side = str(node.args.get("position") or "BOTH").upper()
        return Value(
            f"{name}({s.text}, {characters.text})", t.string(), f"TRIM({side} {characters.name} FROM {s.name})"
        )

    # functions

    def _function(self, node: exp.Anonymous) -> Value:
        name = node.name.lower()
        arguments = node.expressions
        if name in ("current_timestamp", "now", "current_date", "curdate", "localtimestamp", "current_timezone"):
            return self._now(name)
        if name in ("grouping", "grouping_id"):
            return self._grouping(name, arguments)
        if name == "from_json":
            return self._from_json(arguments)
        if name in GENERATORS:
            raise InvalidInputError(f"{name} stands alone in the list of SELECT, in LATERAL VIEW or in FROM.")
        if name in (*ADDS, *DIFFS) and (len(arguments) == 3 or name.startswith("timestamp")):
            return self._by_unit(name, arguments)
        if name in HIGHER:
            return self._higher(name, arguments)
        if name in AGGREGATES:
            return self._aggregate(node, None)
        if name in WINDOWS:
            raise InvalidInputError(f"{name} needs OVER (...).")
        if name not in _SCALARS:
            raise self._no_function(name)
        return self._call(name, _SCALARS[name], arguments)

    def _from_json(self, arguments: Sequence[exp.Expression]) -> Value:
        if len(arguments) not in (2, 3):
            raise InvalidInputError(f"cannot call from_json with {len(arguments)} arguments: it takes 2.")
        if len(arguments) == 3:
            raise UnsupportedError("cannot call from_json with options in this process. Run the statement on Spark.")
        value, schema = (self.value(argument) for argument in arguments)
        if not schema.is_text:
            raise InvalidInputError("cannot call from_json: the schema is a literal, such as 'id BIGINT, name STRING'.")
        kind = _schema(literal_text(schema, "from_json"))
        made = from_json([value], kind)
        return made.named("entries" if isinstance(kind, t.Map) else called("from_json", [value.name]))

    def _by_unit(self, name: str, arguments: Sequence[exp.Expression]) -> Value:
        if len(arguments) != 3:
            raise InvalidInputError(f"cannot call {name} with {len(arguments)} arguments: it takes 3.")
        if not isinstance(arguments[0], exp.Column | exp.Var):
            raise InvalidInputError(f"cannot call {name}: {_text(arguments[0])} is no unit such as MONTH.")
        unit = arguments[0].name.upper()
        first, second = (self.computed(argument) for argument in arguments[1:])
        return added(unit, first, second) if name in ADDS else difference(unit, first, second)

    def _grouping(self, name: str, arguments: Sequence[exp.Expression]) -> Value:
        bound, self.are_keys_bound = self.are_keys_bound, False
        values = [self.value(argument) for argument in arguments]
        self.are_keys_bound = bound
        if name == "grouping" and len(values) != 1:
            raise InvalidInputError(f"cannot call grouping with {len(values)} arguments: it takes 1.")
        self.grouping = [*(self.grouping or []), *values]
        keys = ", ".join(value.text for value in values) or KEYS
        kind: t.DataType = t.TinyInt() if name == "grouping" else t.BigInt()
        return Value(f"CAST(grouping({keys}) AS {duck(kind)})", kind, called(name, [value.name for value in values]))

    def _no_function(self, name: str) -> InvalidInputError:
        return InvalidInputError(
            f"there is no function '{name}' in this process. {did_you_mean(name, FUNCTIONS)} Spark may have it: "
            "run the statement there.",
            function=name,
        )

    def _call(self, name: str, function: Function, arguments: Sequence[exp.Expression]) -> Value:
        values = [self.value(argument) if name in _WHOLE else self.computed(argument) for argument in arguments]
        check_count(name, function, len(values))
        return function.make(values).named(called(name, [value.name for value in values]))

    def _higher(self, name: str, arguments: Sequence[exp.Expression]) -> Value:
        function = HIGHER[name]
        plain, given = arguments[: function.plain], arguments[function.plain :]
        most = len(function.counts)
        if len(plain) < function.plain or not most - function.optional <= len(given) <= most:
            raise InvalidInputError(
                f"cannot call {name} with {len(arguments)} arguments: it takes {function.plain} and then "
                f"{'a lambda' if most == 1 else f'{most - function.optional} to {most} lambdas'}."
            )
        values = [self.computed(argument) for argument in plain]
        shown = [value.name for value in values]
        lambdas = []
        for node, counts in zip(given, function.counts, strict=False):
            if not isinstance(node, exp.Lambda) or len(node.expressions) not in counts:
                takes = " or ".join(str(count) for count in counts)
                raise InvalidInputError(f"cannot call {name}: {_text(node)} is no lambda with {takes} parameters.")
            lambdas.append(self._lambda(node, shown))
        made = function.make(values, lambdas)
        if len(given) < most:
            shown.append(f"lambdafunction({LAMBDA}, {LAMBDA})")
        return made.named(called(name, shown))

    def _lambda(self, node: exp.Lambda, shown: list[str]) -> Lambda:
        """Return a lambda.

        Args:
            shown: gets its name.
        """
        parameters = [item.name.lower() for item in node.expressions]
        depth, scope = 0, self.scope
        while scope is not None:
            depth += bool(scope.local)
            scope = scope.parent  # type: ignore[assignment]

        def bind(given: Sequence[Value]) -> Value:
            local = {name: value.named(LAMBDA) for name, value in zip(parameters, given, strict=True)}
            inner = Expressions(Scope(self.scope, local=local), self.query, self.setting)
            value = inner.value(node.this)
            shown.append(f"lambdafunction({', '.join([value.name, *[LAMBDA] * len(parameters)])})")
            return value

        return Lambda(len(parameters), bind, [f"_p{depth}_{i}" for i in range(3)])

    def _aggregate(self, node: exp.Anonymous, where: str | None, over: str | None = None) -> Value:
        name = node.name.lower()
        if self.in_aggregate:
            raise InvalidInputError(f"an aggregate inside of an aggregate: {_text(node)}.")
        self.aggregates += over is None
        arguments, distinct = node.expressions, False
        if name == "count" and len(arguments) == 1 and isinstance(arguments[0], exp.Star):
            return Value(marked(f"count(*){BEHIND}", where=where, over=over), t.BigInt(), "count(1)")
        if len(arguments) == 1 and isinstance(arguments[0], exp.Distinct):
            arguments, distinct = arguments[0].expressions, True
        if distinct and over is not None:
            raise InvalidInputError(f"cannot compute {_text(node)} over a window: it has DISTINCT.")
        self.in_aggregate = over is None
        values = [self.value(argument) if name in _WHOLE else self.computed(argument) for argument in arguments]
        self.in_aggregate = False
        check_count(name, AGGREGATES[name], len(values))
        if _leaves_nulls_out(name, values):
            known = f"{values[0].text} IS NOT NULL"
            where = known if where is None else f"({where}) AND {known}"
        if is_null_only(values) and name in ("min", "max"):
            values = [cast(values[0], t.Int())]
        if where is not None:  # DuckDB computes the arguments of all rows
            values = [replace(value, text=f"CASE WHEN {where} THEN {value.text} END") for value in values]
        shown = ", ".join(value.name for value in values)
        if distinct and len(values) > 1:
            known = " AND ".join(f"{value.text} IS NOT NULL" for value in values)
            row = row_of([str(i) for i in range(len(values))], values).text
            values = [Value(f"CASE WHEN {known} THEN {row} END", t.Int())]
        made = AGGREGATES[name].make(values)
        text = marked(made.text, distinct=distinct, where=where, over=over)
        return Value(text, made.type, called(name, [f"{'DISTINCT ' if distinct else ''}{shown}"]))

    def _filtered(self, node: exp.Filter) -> Value:
        if not isinstance(node.this, exp.Anonymous) or node.this.name.lower() not in AGGREGATES:
            raise InvalidInputError(f"FILTER follows an aggregate: {_text(node)}.")
        where = self.tested(node.expression.this, "FILTER")
        made = self._aggregate(node.this, where.text)
        return made.named(f"{made.name} FILTER (WHERE {where.name})")

    def _window(self, node: exp.Window) -> Value:
        call, nulls = node.this, ""
        if isinstance(call, exp.IgnoreNulls | exp.RespectNulls):
            nulls = " IGNORE NULLS" if isinstance(call, exp.IgnoreNulls) else ""
            call = call.this
        where = None
        if isinstance(call, exp.Filter):
            where = self.tested(call.expression.this, "FILTER")
            call = call.this
        if not isinstance(call, exp.Anonymous):
            raise UnsupportedError(f"cannot compute {_text(node)} in this process. Run the statement on Spark.")
        name = call.name.lower()
        spec = self._window_spec(node)
        if name in WINDOWS:
            values = [self.value(argument) for argument in call.expressions]
            check_count(name, WINDOWS[name], len(values))
            by_words = bool(nulls)
            nulls = " IGNORE NULLS" if _leaves_nulls_out(name, values) else nulls
            made = WINDOWS[name].make(values)
            inner = made.text[:-1] + nulls + ")" if nulls else made.text
            text = f"{inner} OVER ({spec})"
            if name not in _OF_VALUES:
                text = f"CAST({text} AS {duck(made.type)})"
            names = [value.name for value in values]
            over = self._over(node, name, names)
            if name in ("lag", "lead"):
                names += ["1", "NULL"][len(names) - 1 :]
            shown = name.removesuffix("_value") if by_words and name != "nth_value" else name
            shown = called(shown, names) + (" ignore nulls" if nulls and name == "nth_value" else "")
            return Value(text, made.type, f"{shown} OVER ({over})")
        if name not in AGGREGATES:
            raise self._no_function(name)
        made = self._aggregate(call, where.text if where else None, spec)
        shown = f"{made.name} FILTER (WHERE {where.name})" if where else made.name
        return made.named(f"{shown} OVER ({self._over(node, name, [])})")

    def _over(self, node: exp.Expression, name: str, arguments: Sequence[str]) -> str:
        """Return a window as the name of a column has it."""
        while node.args.get("alias") is not None and not any(
            node.args.get(k) for k in ("partition_by", "order", "spec")
        ):
            node = self.windows[node.args["alias"].name.lower()]
        parts = []
        if node.args.get("partition_by"):
            parts.append("PARTITION BY " + ", ".join(self.value(item).name for item in node.args["partition_by"]))
        order, spec = node.args.get("order"), node.args.get("spec")
        if order is not None:
            items = [(item, item.this if isinstance(item, exp.Ordered) else item) for item in order.expressions]
            parts.append("ORDER BY " + ", ".join(self.value(inner).name + direction(item) for item, inner in items))
        parts.append(self._frame(spec) if spec is not None else frame(name, arguments, order is not None))
        return " ".join(parts)

    def _window_spec(self, node: exp.Expression) -> str:
        base = node.args.get("alias")
        parts = []
        if base is not None:
            named = self.windows.get(base.name.lower())
            if named is None:
                raise InvalidInputError(
                    f"there is no window '{base.name}'. {did_you_mean(base.name, list(self.windows) or ['none'])}"
                )
            parts.append(self._window_spec(named))
        partition = node.args.get("partition_by") or []
        if partition:
            parts.append(SPEC.format("PARTITION BY " + ", ".join(self.value(item).text for item in partition)))
        order = node.args.get("order")
        if order is not None:
            parts.append(SPEC.format("ORDER BY " + ", ".join(self.ordered(item) for item in order.expressions)))
        spec = node.args.get("spec")
        if spec is not None:
            parts.append(self._frame(spec))
        return " ".join(parts)

    def _frame(self, spec: exp.WindowSpec) -> str:
        def bound(which: str) -> str:
            value, side = spec.args.get(which), spec.args.get(which + "_side") or ""
            made = self.value(value) if isinstance(value, exp.Expression) else None
            if made is not None and isinstance(made.type, Interval):
                raise UnsupportedError("cannot use an interval in a window frame in this process. Run it on Spark.")
            text = made.text if made is not None else value or "UNBOUNDED"
            return f"{text} {side.upper()}".strip()

        end = bound("end") if spec.args.get("end") else "CURRENT ROW"
        return f"{(spec.args.get('kind') or 'RANGE').upper()} BETWEEN {bound('start')} AND {end}"

    def ordered(self, node: exp.Expression) -> str:
        """Return an item of ORDER BY: Spark puts nulls first in ascending order, and last in descending."""
        item = node.this if isinstance(node, exp.Ordered) else node
        value = self.value(item)
        return sort_key(value.text, value.type, direction(node))


def _comparison(a: Value, b: Value, kind: t.DataType, sign: str) -> Value:
    """Return a comparison of values as those of a type."""
    one, other = to(a, kind), to(b, kind)
    match sign:
        case "<=>":
            return Value(f"({one} IS NOT DISTINCT FROM {other})", t.Boolean(), f"({a.name} <=> {b.name})")
        case "<>=":
            return Value(f"({one} IS DISTINCT FROM {other})", t.Boolean(), f"(NOT ({a.name} <=> {b.name}))")
        case "<>":
            return Value(f"({one} <> {other})", t.Boolean(), f"(NOT ({a.name} = {b.name}))")
    name = f"({a.name} {sign} {b.name})"
    if sign != "=" and t.is_nested(kind):
        known = f"{one} IS NOT NULL AND {other} IS NOT NULL"
        return Value(
            f"CASE WHEN {known} THEN {sorted_by(one, kind)} {sign} {sorted_by(other, kind)} END", t.Boolean(), name
        )
    return Value(f"({one} {sign} {other})", t.Boolean(), name)


def _of_literal(node: exp.Expression, value: Value, other: Value) -> Value:
    """Return a literal time that meets one of nine digits of a second: with as many digits as it is written with.

    Not all times of fewer digits are in the range of those of nine.
    """
    is_typed = isinstance(node, exp.Cast) and _is_literal(node) and type(value.type) is type(other.type)
    if not (isinstance(other.type, MOMENTS) and is_fine(other.type) and (is_typed or value.is_text)):
        return value
    literal = _literal(node.this) if is_typed else value
    kind = other.type if _NINE.search(literal.text) else coarse(other.type)
    return replace(cast(literal, kind), name=value.name)


def _items(node: exp.Expression) -> list[exp.Expression]:
    return list(node.expressions) if isinstance(node, exp.Tuple) else [node]


def _is_filter(node: exp.Expression) -> bool:
    """Return whether a condition decides alone, or with AND and OR, which rows stay: then false and null are one."""
    while isinstance(node.parent, exp.And | exp.Or | exp.Paren):
        node = node.parent
    return isinstance(node.parent, exp.Where | exp.Having)


def _compared_around(a: Value, b: Value, sign: str) -> Value:
    """Return a comparison of a time of nine digits of a second with one of fewer, which may be out of range of nine."""
    if not is_fine(a.type):
        turned = _compared_around(b, a, _TURNED.get(sign, sign))
        return replace(turned, name=_comparison(a, b, coarse(b.type), sign).name)
    kind = coarse(a.type)
    low, high = around(a)
    match sign:
        case "<" | ">=":
            text = _comparison(low, b, kind, sign).text
        case "<=" | ">":
            text = _comparison(high, b, kind, sign).text
        case _:
            word = "AND" if sign in ("=", "<=>") else "OR"
            text = f"({_comparison(low, b, kind, sign).text} {word} {_comparison(high, b, kind, sign).text})"
    return Value(text, t.Boolean(), _comparison(a, b, kind, sign).name)


def _shifted_name(value: Value, op: str, unit: str, count: int) -> str:
    if unit == "WEEK":
        unit, count = "DAY", count * 7
    sign = "-" if count < 0 else ""
    digits = f"{abs(count):02}" if unit in ("HOUR", "MINUTE", "SECOND") else str(abs(count))
    interval = f"INTERVAL '{sign}{digits}' {unit}"
    if isinstance(value.type, t.Date) and unit == "DAY":
        days = f"extractansiintervaldays({interval})"
        return f"date_add({value.name}, {days if op == '+' else f'(- {days})'})"
    return f"{value.name} {op} {interval}"


def direction(node: exp.Expression) -> str:
    """Return the direction of an item of ORDER BY."""
    descending = bool(isinstance(node, exp.Ordered) and node.args.get("desc"))
    first = node.args.get("nulls_first") if isinstance(node, exp.Ordered) else None
    if first is None:
        first = not descending
    return f" {'DESC' if descending else 'ASC'} NULLS {'FIRST' if first else 'LAST'}"


def _leaves_nulls_out(name: str, values: list[Value]) -> bool:
    """Take the second argument of first(a, true) and the like off, and return whether it is true.

    Raises:
        InvalidInputError: it is neither true nor false.
    """
    if name not in _EDGES or len(values) < 2:
        return False
    leaves_out = values.pop().text
    if leaves_out not in ("TRUE", "FALSE"):
        raise InvalidInputError(f"cannot call {name}: its second argument says whether nulls are left out. Give true.")
    return leaves_out == "TRUE"


def is_null_only(values: Sequence[Value]) -> bool:
    """Return whether all values are bare NULLs."""
    return bool(values) and all(is_null(value.type) for value in values)


def check_count(name: str, function: Function, count: int) -> None:
    """Raise an error if a function is called with too few or too many arguments."""
    if count < function.least or (function.most is not None and count > function.most):
        most = function.most
        takes = (
            "any number of" if most is None else str(most) if most == function.least else f"{function.least} to {most}"
        )
        raise InvalidInputError(f"cannot call {name} with {count} arguments: it takes {takes}.")


def marked(text: str, *, distinct: bool = False, where: str | None = None, over: str | None = None) -> str:
    """Put DISTINCT, FILTER and OVER into the calls of an aggregate."""
    behind = (f" FILTER (WHERE {where})" if where else "") + (f" OVER ({over})" if over is not None else "")
    return text.replace(INSIDE, "DISTINCT " if distinct else "").replace(BEHIND, behind)


def _cut(value: Value, node: exp.DataType) -> Value:
    """Return a time with the digits of a second that a CAST names, at most six.

    Raises:
        UnsupportedError: times inside of a nested type have fewer.
    """
    sized = [digits for each in node.find_all(exp.DataType) if (digits := digits_of(each)) is not None]
    if any(digits > _DIGITS_MAX for digits in sized):
        raise InvalidInputError(f"cannot cast to {_text(node)}: a time has 0 to 9 digits of a second.")
    digits = min(sized, default=6)
    if digits >= 6:
        return value
    if not isinstance(value.type, MOMENTS):
        raise UnsupportedError(f"cannot cast to {_text(node)} in this process: write TIMESTAMP without digits in it.")
    rest = f"(((microsecond(_t) % {10 ** (6 - digits)}) + {10 ** (6 - digits)}) % {10 ** (6 - digits)})"
    return replace(value, text=f"list_transform([{value.text}], lambda _t: _t - to_microseconds({rest}))[1]")


def type_of(node: exp.DataType) -> t.DataType:
    """Return the type that a CAST names."""
    text = node.sql(dialect=Queries)
    if isinstance(node.this, exp.Interval):
        raise UnsupportedError(f"cannot cast to {text} in this process. Run the statement on Spark.")
    names = {"TIMESTAMP": "TIMESTAMP", "TIMESTAMP_LTZ": "TIMESTAMP_LTZ"}
    kind = node.this
    word = kind.name if hasattr(kind, "name") else str(kind)
    match word:
        case "TIMESTAMP" | "TIMESTAMPNTZ" | "DATETIME":
            return t.Timestamp(6)
        case "TIMESTAMPLTZ" | "TIMESTAMPTZ":
            return t.LocalZonedTimestamp(6)
        case "TIME":
            return t.Time(min(int(node.expressions[0].name), 3) if node.expressions else 3)
        case "DECIMAL" if not node.expressions:
            return t.Decimal(10, 0)
        case "ARRAY":
            return t.Array(element=type_of(node.expressions[0]))
        case "MAP":
            return t.Map(key=type_of(node.expressions[0]), value=type_of(node.expressions[1]))
        case "STRUCT":
            fields = []
            for item in node.expressions:
                inner = item.args.get("kind") if isinstance(item, exp.ColumnDef) else item
                fields.append(t.Field(-1, item.name, type_of(inner)))
            return t.Row(fields=tuple(fields))
    try:
        return parse_type(names.get(text, text))
    except InvalidInputError as error:
        raise InvalidInputError(f"cannot cast: {error}") from error


_SIZED: Final = (exp.DataType.Type.CHAR, exp.DataType.Type.VARCHAR)


def _schema(text: str) -> t.DataType:
    """Return the type that the schema of from_json names: a nested type, or the fields of a ROW."""
    for form in (text, f"STRUCT<{text}>"):
        try:
            tree = exp.DataType.build(form, dialect=Queries)
            kind = type_of(tree)
        except (SqlglotError, InvalidInputError, ValueError):
            continue
        if any(each.this in _SIZED for each in tree.find_all(exp.DataType)):
            raise InvalidInputError(f"cannot call from_json: the schema '{text}' has CHAR or VARCHAR. Write STRING.")
        if t.is_nested(kind):
            return kind
    raise InvalidInputError(
        f"cannot call from_json: the schema '{text}' names no STRUCT, ARRAY or MAP. Write 'id BIGINT, name STRING'."
    )


def _spark_type(kind: t.DataType) -> str:
    match kind:
        case t.Timestamp():
            return "TIMESTAMP_NTZ"
        case t.LocalZonedTimestamp():
            return "TIMESTAMP"
        case t.Decimal():
            return f"DECIMAL({kind.precision},{kind.scale})"
        case t.Binary() | t.VarBinary():
            return "BINARY"
    return str(kind)


def _is_literal(node: exp.Cast) -> bool:
    """Return whether a CAST is a literal with a type, such as 1L and DATE '2026-01-31'."""
    return isinstance(node.this, exp.Literal) and CAST not in node.meta


def _literal(node: exp.Literal) -> Value:
    if node.is_string:
        return Value(string(node.this), t.string(), node.this, is_text=True)
    text = node.this
    if "e" in text.lower():
        if not math.isfinite(float(text)):
            raise InvalidInputError(f"{text} is outside of the range of DOUBLE.")
        return Value(f"CAST({text} AS DOUBLE)", t.Double(), real(float(text)))
    digits = text.lstrip("-")
    if "." in text:
        whole, _, decimals = digits.partition(".")
        whole = whole.lstrip("0")
        precision, scale = max(len(whole) + len(decimals), 1), len(decimals)
        if precision > 38:
            raise InvalidInputError(f"{text} has more than 38 digits.")
        return Value(f"CAST({text} AS DECIMAL({precision},{scale}))", t.Decimal(precision, scale), exact(text))
    number = int(text)
    if -(2**31) <= number < 2**31:
        return Value(text if number >= 0 else f"({text})", t.Int(), text, digits=len(digits))
    if -(2**63) <= number < 2**63:
        return Value(f"CAST({text} AS BIGINT)", t.BigInt(), text, digits=len(digits))
    if len(digits) > 38:
        raise InvalidInputError(f"{text} has more than 38 digits.")
    return Value(f"CAST({text} AS DECIMAL({len(digits)},0))", t.Decimal(len(digits), 0), text)


def _text(node: exp.Expression) -> str:
    """Return an expression as people wrote it."""
    return str(node.sql(dialect=Queries))[:200]

"""Expressions evaluated one row at a time in plain Python: what `merganser.expr.predicate` must equal.

A row is a dict of stored values. Dates, times and timestamps are nanoseconds inside of here. Also the Hypothesis
strategies for rows and expressions that the tests of predicates share.
"""

import math
import re
import struct
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal

import pyarrow as pa
from hypothesis import strategies as st

from merganser.errors import InvalidInputError
from merganser.expr import build, tree
from merganser.expr.compute import can_fail
from merganser.expr.functions import call as call_of
from merganser.schema import types as t
from merganser.schema.arrow import arrow_field, timestamp_unit
from merganser.schema.types_text import parse_type

DAY = 86_400_000_000_000
EXACT = Context(prec=200)
COLUMNS = {
    "i8": "TINYINT", "a": "INT", "b": "BIGINT", "d": "DECIMAL(6, 2)", "e": "DECIMAL(24, 7)", "f": "DOUBLE",
    "g": "FLOAT", "s": "STRING", "u": "STRING", "x": "BYTES", "dt": "DATE", "ts": "TIMESTAMP(3)", "tn": "TIMESTAMP(9)",
    "l": "TIMESTAMP(6) WITH LOCAL TIME ZONE", "tm": "TIME(3)", "flag": "BOOLEAN", "r": "ROW<q INT>",
}  # fmt: skip
FIELDS = [t.Field(i, name, parse_type(text)) for i, (name, text) in enumerate(COLUMNS.items())]
KINDS = {f.name: f.type for f in FIELDS}
SCHEMA = pa.schema([arrow_field(f) for f in FIELDS])


class SqlError(Exception):
    """SQL raises here."""


def table_of(rows):
    """Return rows of stored values as an Arrow table."""
    return pa.table([pa.array([row[f.name] for row in rows], f.type) for f in SCHEMA], schema=SCHEMA)


# the oracle


def evaluate(node, row):
    value = _evaluate(node, row)
    return value if value is None else _fit(value, node.type)


def _fit(value, kind):
    match kind:
        case t.TinyInt() | t.SmallInt() | t.Int() | t.BigInt():
            bits = {t.TinyInt: 8, t.SmallInt: 16, t.Int: 32, t.BigInt: 64}[type(kind)]
            if not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
                raise SqlError
            return int(value)
        case t.Decimal():
            out = Decimal(value).quantize(Decimal((0, (1,), -kind.scale)), ROUND_HALF_UP, EXACT)
            if abs(out) >= Decimal((0, (1,), kind.precision - kind.scale)):
                raise SqlError
            return out if out else abs(out)
        case t.Float():
            return single(float(value))
        case t.Double():
            return float(value)
    return value


def single(value):
    try:
        return struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)


def nanos(value, kind):
    match kind:
        case t.Date():
            return value * DAY
        case t.Time():
            return value * 1_000_000
        case t.Timestamp() | t.LocalZonedTimestamp():
            return value * {"ms": 10**6, "us": 10**3, "ns": 1}[timestamp_unit(kind.precision)]
    return value


def _evaluate(node, row):
    match node:
        case tree.Column(path=path):
            value = row[path[0]]
            for part in path[1:]:
                value = None if value is None else value[part]
            return None if value is None else nanos(value, node.type)
        case tree.Literal(value=value, type=kind):
            if value is None or not isinstance(kind, t.Date | t.Time | t.Timestamp | t.LocalZonedTimestamp):
                return value
            return tree.nanoseconds(node)
        case tree.Compare():
            return compare(
                node.op, evaluate(node.left, row), node.left.type, evaluate(node.right, row), node.right.type
            )
        case tree.And(items=items) | tree.Or(items=items):
            decided = isinstance(node, tree.Or)
            answers = []
            for item in sorted(items, key=can_fail):
                answers.append(evaluate(item, row))
                if answers[-1] is decided:
                    return decided
            return None if None in answers else not decided
        case tree.Not(item=item):
            answer = evaluate(item, row)
            return None if answer is None else not answer
        case tree.IsNull(item=item):
            return evaluate(item, row) is None
        case tree.In(item=item, options=options):
            value = evaluate(item, row)
            answers = [compare("=", value, item.type, evaluate(o, row), o.type) for o in options]
            return True if True in answers else None if None in answers else False
        case tree.Like():
            value = evaluate(node.item, row)
            return None if value is None else like(value, node.pattern, node.escape, node.ignore_case)
        case tree.Match(how=how, item=item, text=text):
            value = evaluate(item, row)
            if value is None:
                return None
            match how:
                case "starts":
                    return value.startswith(text)
                case "ends":
                    return value.endswith(text)
                case "contains":
                    return text in value
            return re.search(text, value) is not None
        case tree.Arithmetic():
            return arithmetic(node, evaluate(node.left, row), evaluate(node.right, row))
        case tree.Negate(item=item):
            value = evaluate(item, row)
            # A minus sign rounds a Decimal to the digits of the context; copying does not.
            return value.copy_negate() if isinstance(value, Decimal) and value else None if value is None else -value
        case tree.Concat(items=items):
            values = [evaluate(item, row) for item in items]
            return None if None in values else "".join(values)
        case tree.Case(branches=branches, otherwise=otherwise):
            for when, value in branches:
                if evaluate(when, row) is True:
                    return evaluate(value, row)
            return evaluate(otherwise, row)
        case tree.Coalesce(items=items):
            return next((v for item in items if (v := evaluate(item, row)) is not None), None)
        case tree.Cast(item=item, type=kind):
            value = evaluate(item, row)
            return None if value is None else cast(value, item.type, kind)
        case tree.Call(name=name, items=(item, *options)):
            value = evaluate(item, row)
            return None if value is None else call(name, value, item.type, node.type, [o.value for o in options])
    raise AssertionError(node)


def is_float(kind):
    return isinstance(kind, t.Float | t.Double)


def compare(op, left, left_kind, right, right_kind):
    if left is None or right is None:
        return (left is None) == (right is None) if op == "<=>" else None
    if is_float(left_kind) or is_float(right_kind):
        left, right = float(left), float(right)
    first, second = ((1, 0) if isinstance(v, float) and math.isnan(v) else (0, v) for v in (left, right))
    return {
        "=": first == second, "<=>": first == second, "<>": first != second, "<": first < second,
        "<=": first <= second, ">": first > second, ">=": first >= second,
    }[op]  # fmt: skip


def like(value, pattern, escape, ignore_case):
    if ignore_case:
        value, pattern = value.lower(), pattern.lower()
    regex, at = "", 0
    while at < len(pattern):
        if pattern[at] == escape:
            at += 1
            regex += re.escape(pattern[at])
        else:
            regex += {"%": ".*", "_": "."}.get(pattern[at]) or re.escape(pattern[at])
        at += 1
    return re.fullmatch(regex, value, re.DOTALL) is not None


def arithmetic(node, left, right):
    if left is None or right is None:
        return None
    op, kind = node.op, node.type
    if isinstance(kind, t.Date):
        return left + (right if op == "+" else -right) * DAY
    if op in ("/", "%", "DIV") and right == 0:
        raise SqlError
    if isinstance(kind, t.Double):
        left, right = float(left), float(right)
    if isinstance(kind, t.Float | t.Double):
        return float_arithmetic(op, left, right)
    exact_left, exact_right = Decimal(left), Decimal(right)
    match op:
        case "+":
            return EXACT.add(exact_left, exact_right)
        case "-":
            return EXACT.subtract(exact_left, exact_right)
        case "*":
            return EXACT.multiply(exact_left, exact_right)
        case "/":
            return EXACT.divide(exact_left, exact_right)
        case "%":
            return EXACT.remainder(exact_left, exact_right)
    return int(EXACT.divide_int(exact_left, exact_right))


def float_arithmetic(op, left, right):
    match op:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case "/":
            return left / right
    return math.nan if math.isinf(left) or math.isnan(left) else math.fmod(left, right)


def cast(value, source, kind):
    if isinstance(kind, t.VarChar):
        return text(value, source)
    if isinstance(source, t.VarChar):
        return from_text(value, kind)
    if isinstance(kind, t.Boolean):
        return value != 0
    if isinstance(source, t.Boolean):
        value = int(value)
    match kind:
        case t.TinyInt() | t.SmallInt() | t.Int() | t.BigInt():
            if isinstance(value, float) and not math.isfinite(value):
                raise SqlError
            return int(value)
        case t.Decimal():
            if isinstance(value, float):
                return Decimal(repr(value)) if math.isfinite(value) else None
            return value
        case t.Date():
            return value // DAY * DAY
        case t.Timestamp() | t.LocalZonedTimestamp():
            step = 10 ** (9 - kind.precision)
            value = value // step * step
            if not -(2**63) < value // {"ms": 10**6, "us": 10**3, "ns": 1}[timestamp_unit(kind.precision)] < 2**63:
                raise SqlError
            return value
    return value


def text(value, source):
    match source:
        case t.Boolean():
            return "true" if value else "false"
        case t.Decimal():
            return f"{value:f}"
        case t.Date():
            return (date(1970, 1, 1) + timedelta(days=value // DAY)).isoformat()
        case t.Timestamp() | t.LocalZonedTimestamp() | t.Time():
            seconds, rest = divmod(value, 10**9)
            at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
            clock = at.strftime("%H:%M:%S") + f".{rest:09}".rstrip("0").rstrip(".")
            return clock if isinstance(source, t.Time) else f"{at.date().isoformat()} {clock}"
        case t.Float() | t.Double():
            raise NotImplementedError
    return str(value)


def from_text(value, kind):
    try:
        match kind:
            case t.TinyInt() | t.SmallInt() | t.Int() | t.BigInt():
                if not re.fullmatch(r"\s*[+-]?[0-9]+\s*", value):
                    raise SqlError
                return int(value)
            case t.Decimal():
                if not re.fullmatch(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)\s*", value):
                    raise SqlError
                return Decimal(value.strip())
            case t.Date():
                found = re.fullmatch(r"(\d{4}-\d\d-\d\d)([ T].*)?", value)  # a clock behind it does not count
                if not found:
                    raise SqlError
                return (date.fromisoformat(found[1]) - date(1970, 1, 1)).days * DAY
            case t.Boolean():
                return {"true": True, "false": False, "y": True, "0": False, "1": True}[value.strip().lower()]
    except (ValueError, KeyError):
        raise SqlError from None
    raise NotImplementedError


def call(name, value, source, kind, options):
    match name:
        case "lower":
            return value.lower()
        case "upper":
            return value.upper()
        case "trim" | "ltrim" | "rtrim":
            return getattr(value, {"trim": "strip", "ltrim": "lstrip", "rtrim": "rstrip"}[name])(" ")
        case "length":
            return len(value)
        case "substring":
            position, length = options[0], options[1] if len(options) > 1 else 10**9
            start = position - 1 if position > 0 else len(value) + position if position < 0 else 0
            return value[max(start, 0) : max(start + length, 0)] if length > 0 else ""
        case "abs":
            return abs(value)
        case "round":
            digits = options[0] if options else 0
            if isinstance(value, float):
                if not math.isfinite(value):
                    return value
                value = Decimal(repr(value))
            if isinstance(value, int) and digits >= 0:
                return value
            if isinstance(source, t.Decimal) and digits > kind.scale:
                digits = kind.scale
            out = Decimal(value).quantize(Decimal((0, (1,), -digits)), ROUND_HALF_UP, EXACT)
            return float(out) if is_float(kind) else out
        case "floor" | "ceil":
            if isinstance(value, float):
                if math.isnan(value):
                    return 0
                if math.isinf(value):
                    return 2**63 - 1 if value > 0 else -(2**63)
                value = (math.floor if name == "floor" else math.ceil)(value)
                return min(max(value, -(2**63)), 2**63 - 1)
            return (math.floor if name == "floor" else math.ceil)(value)
    day = date(1970, 1, 1) + timedelta(days=value // DAY)
    return {"year": day.year, "month": day.month, "day": day.day}[name]


# strategies

TEXT = st.text(st.sampled_from("abAB%_\\'\n \"`1é😀"), max_size=4)
FLOATS = st.sampled_from(
    [math.nan, math.inf, -math.inf, 0.0, -0.0, 0.1, 1.5, 2.5, -2.5, 0.285, 3.0, 1e30, -1e-7, 2.0**53, 2.0**63]
)
INTS = st.one_of(st.integers(-4, 4), st.sampled_from([127, -128, 2**31 - 1, -(2**31), 2**53 + 1, 2**63 - 1, -(2**63)]))


def in_range(bits):
    return INTS.filter(lambda v: -(2 ** (bits - 1)) <= v < 2 ** (bits - 1))


def decimals(precision, scale):
    small = st.integers(-400, 400)
    return st.one_of(small, st.integers(-(10**precision) + 1, 10**precision - 1)).map(
        lambda v: Decimal((int(v < 0), tuple(map(int, str(abs(v)))), -scale))
    )


DAYS = st.one_of(st.integers(-3, 3), st.sampled_from([19_000, -719_162, 2_932_896]))
CELLS = {
    "i8": in_range(8), "a": in_range(32), "b": in_range(64), "d": decimals(6, 2), "e": decimals(24, 7), "f": FLOATS,
    "g": FLOATS.map(single), "s": TEXT, "u": TEXT, "x": TEXT.map(str.encode), "dt": DAYS,
    "ts": st.one_of(st.integers(-3, 3), DAYS.map(lambda d: d * 86_400_000)),
    "tn": st.one_of(st.integers(-3, 3), st.integers(-3, 3).map(lambda d: d * DAY)),
    "l": st.one_of(st.integers(-3000, 3000), DAYS.map(lambda d: d * 86_400_000_000)),
    "tm": st.integers(0, 5), "flag": st.booleans(),
    "r": st.one_of(st.none(), st.fixed_dictionaries({"q": st.one_of(st.none(), in_range(32))})),
}  # fmt: skip
ROWS = st.lists(st.fixed_dictionaries({n: st.one_of(st.none(), c) for n, c in CELLS.items()}), max_size=6)


def column(name):
    return tree.Column((name,), KINDS[name].with_nullable(True))


def literals(name):
    """Literals that compare with a column, of its type and of neighbouring ones."""
    kind = KINDS[name]
    own = CELLS[name].map(lambda v: tree.Literal(v, kind))
    numbers = st.one_of(
        INTS.map(lambda v: build.number(str(v))),
        decimals(9, 3).map(lambda v: tree.Literal(v, tree.natural_decimal(v))),
        FLOATS.map(lambda v: tree.Literal(v, t.Double())),
        FLOATS.map(lambda v: tree.Literal(single(v), t.Float())),
    )
    instants = st.one_of(
        DAYS.map(lambda v: tree.Literal(v, t.Date())),
        st.integers(-5000, 5000).map(lambda v: tree.Literal(v, t.Timestamp(9))),
        st.integers(-5, 5).map(lambda v: tree.Literal(v, t.LocalZonedTimestamp(3))),
    )
    match kind:
        case t.TinyInt() | t.Int() | t.BigInt() | t.Decimal() | t.Float() | t.Double():
            return numbers
        case t.Date() | t.Timestamp() | t.LocalZonedTimestamp():
            return instants
        case t.Time():
            return st.integers(0, 5_000_000).map(lambda v: tree.Literal(v, t.Time(9)))
        case t.VarBinary():
            return own.map(lambda v: tree.Literal(v.value, t.VarBinary()))
    return own


NUMERIC = ["i8", "a", "b", "d", "e", "f", "g"]
INSTANT = ["dt", "ts", "tn", "l"]
TEXTUAL = ["s", "u"]
GROUPS = [NUMERIC, INSTANT, TEXTUAL, ["x"], ["tm"], ["flag"]]
OPS = st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "<=>"])


@st.composite
def comparisons(draw):
    group = draw(st.sampled_from(GROUPS))
    left = column(draw(st.sampled_from(group)))
    if draw(st.integers(0, 3)):
        right = draw(st.one_of(st.just(build.NULL), *[literals(left.path[0])] * 8))
    else:
        right = column(draw(st.sampled_from(group)))
    if draw(st.booleans()):
        left, right = right, left
    return build.compare(draw(OPS), left, right)


@st.composite
def memberships(draw):
    item = column(draw(st.sampled_from([n for g in GROUPS for n in g])))
    options = draw(st.lists(st.one_of(literals(item.path[0]), st.just(build.NULL)), min_size=1, max_size=4))
    return build.member(item, options)


@st.composite
def searches(draw):
    item = column(draw(st.sampled_from(TEXTUAL)))
    wanted = tree.Literal(draw(TEXT), t.string())
    how = draw(st.sampled_from(["starts", "ends", "contains", "like", "ilike"]))
    if how not in ("like", "ilike"):
        return build.match(how, item, wanted)
    try:
        return build.like(item, wanted, escape=draw(st.sampled_from(["\\", "!"])), ignore_case=how == "ilike")
    except InvalidInputError:
        return build.match("contains", item, wanted)


@st.composite
def numbers(draw, depth=2):
    """Number expressions of every kind of node."""
    if depth == 0 or not draw(st.integers(0, 2)):
        name = draw(st.sampled_from(NUMERIC))
        return draw(st.one_of(st.just(column(name)), literals(name)))
    inner = numbers(depth - 1)
    made = draw(
        st.sampled_from(["+", "-", "*", "/", "%", "DIV", "neg", "case", "coalesce", "cast", "call", "text", "date"])
    )
    match made:
        case "neg":
            return build.negative(draw(inner))
        case "case":
            return build.case([(draw(comparisons()), draw(inner))], draw(inner))
        case "coalesce":
            return build.coalesce([draw(inner), draw(inner)])
        case "cast":
            kind = draw(st.sampled_from([t.TinyInt(), t.Int(), t.BigInt(), t.Decimal(8, 3), t.Double(), t.Float()]))
            return build.cast(draw(inner), kind)
        case "call":
            name = draw(st.sampled_from(["abs", "round", "floor", "ceil"]))
            digits = [build.number(str(draw(st.integers(-2, 3))))] if name == "round" else []
            return call_of(name, [draw(inner), *digits])
        case "text":
            return call_of("length", [draw(texts(depth - 1))])
        case "date":
            return call_of(draw(st.sampled_from(["year", "month", "day"])), [column(draw(st.sampled_from(INSTANT)))])
    return build.arithmetic(made, draw(inner), draw(inner))


@st.composite
def texts(draw, depth=2):
    if depth <= 0 or not draw(st.integers(0, 2)):
        return draw(
            st.one_of(st.sampled_from([column("s"), column("u")]), TEXT.map(lambda v: tree.Literal(v, t.string())))
        )
    inner = texts(depth - 1)
    made = draw(st.sampled_from(["lower", "trim", "ltrim", "rtrim", "substring", "concat", "case", "coalesce", "cast"]))
    match made:
        case "substring":
            places = draw(st.lists(st.integers(-3, 3), min_size=1, max_size=2))
            return call_of("substring", [draw(inner), *(build.number(str(p)) for p in places)])
        case "concat":
            return build.concat([draw(inner), draw(inner)])
        case "case":
            return build.case([(draw(comparisons()), draw(inner))], draw(inner))
        case "coalesce":
            return build.coalesce([draw(inner), draw(inner)])
        case "cast":
            names = ["i8", "a", "b", "d", "e", "flag", "dt", "ts", "tn", "l", "tm"]
            return build.cast(column(draw(st.sampled_from(names))), t.string())
    return call_of(made, [draw(inner)])


@st.composite
def computed(draw):
    """Comparisons of computed values, which may fail."""
    try:
        if draw(st.booleans()):
            return build.compare(draw(OPS), draw(numbers()), draw(numbers()))
        if draw(st.booleans()):
            kind = draw(st.sampled_from([t.Int(), t.Decimal(8, 3), t.Boolean(), t.Date()]))
            return build.is_null(build.cast(draw(texts(1)), kind))
        if draw(st.booleans()):
            kind = draw(st.sampled_from([t.Date(), t.Timestamp(2), t.Timestamp(9), t.LocalZonedTimestamp(6)]))
            item = build.cast(column(draw(st.sampled_from(INSTANT))), kind)
            return build.compare(draw(OPS), item, draw(literals("ts")))
        return build.compare(draw(OPS), draw(texts()), draw(texts()))
    except InvalidInputError:
        return build.TRUE


PLAIN = st.one_of(
    comparisons(), memberships(), searches(),
    st.sampled_from([column(n) for g in GROUPS for n in g] + [column("r")]).map(build.is_null),
    st.sampled_from([build.TRUE, build.FALSE, tree.Literal(None, t.Boolean()), column("flag")]),
    OPS.flatmap(lambda op: in_range(32).map(
        lambda v: build.compare(op, tree.Column(("r", "q"), t.Int()), build.number(str(v))))),
)  # fmt: skip


def conditions(leaves):
    """Conditions over AND, OR, NOT and IS NULL of some leaves."""
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, min_size=1, max_size=3).map(build.conjunction),
            st.lists(inner, min_size=1, max_size=3).map(build.disjunction),
            inner.map(build.negation),
            inner.map(build.is_null),
        ),
        max_leaves=5,
    )


SIMPLE = conditions(PLAIN)
ANY = conditions(st.one_of(PLAIN, computed()))

"""The nodes of a filter or projection: frozen, typed, picklable values.

Nodes are bound: a column reference carries its type, so every node knows the type of its result. They are made
by `expr.build`, which checks types and inserts the casts that SQL inserts; nothing else should call the
constructors. `sql(node)` writes the SQL text that parses back to an equal tree.

Values of a `Literal`, by type: bool, int, float, Decimal, str, bytes; DATE days since 1970-01-01; TIMESTAMP and
LTZ the epoch count in the Arrow unit of the precision (ms to 3, us to 6, ns to 9); TIME nanoseconds of the day,
finer than a stored TIME so that no literal is rounded; None for null.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merganser.schema import types as t
from merganser.schema.arrow import timestamp_unit
from merganser.values import dataclass

Value: TypeAlias = bool | int | float | Decimal | str | bytes
"""What a literal or a stored statistic may be, other than null."""

UNITS_PER_SECOND: Final = {"ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
NANOS_PER_DAY: Final = 86_400_000_000_000

_EPOCH = date(1970, 1, 1)

# Words that the SQL parser does not take as a column name without backticks. A test holds this list against the
# parser's own keywords.
_RESERVED: Final = frozenset(
    """all alter and any as between call case connect_by_root create cross current_catalog current_date current_schema
    current_time current_timestamp current_user declare distinct drop else end except execute exists explain false
    fetch for from glob grant having if ilike in inner insert intersect interval into is join lateral like minus not
    notnull null on optimize or out outer partitioned_by prepare qualify regexp rename returning revoke rlike rollback
    select serdeproperties session_user show tablesample then true uncache union using vacuum values when where with
    xor""".split()  # noqa: SIM905 - a hundred words in quotes would hide the words
)


@dataclass(frozen=True, slots=True)
class Null(t.DataType):
    """The type of a bare NULL, which takes the type of whatever it meets."""


class _Node:
    """What all nodes share: text."""

    __slots__ = ()

    def __str__(self) -> str:
        """Return SQL text that parses back to an equal expression."""
        return sql(self)  # type: ignore[arg-type]


class _Condition(_Node):
    """A node whose result is a truth value."""

    __slots__ = ()

    @property
    def type(self) -> t.DataType:
        """BOOLEAN."""
        return t.Boolean()


@dataclass(frozen=True, slots=True)
class Column(_Node):
    """A column, or with a longer path a field inside a ROW column."""

    path: tuple[str, ...]
    type: t.DataType


@dataclass(frozen=True, slots=True, eq=False)
class Literal(_Node):
    """A constant. NaN equals NaN, so that trees can be compared."""

    value: Value | None
    type: t.DataType

    def _key(self) -> tuple[Value | None, t.DataType]:
        unequal = isinstance(self.value, float) and math.isnan(self.value)
        return ("NaN" if unequal else self.value, self.type)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())


@dataclass(frozen=True, slots=True)
class Compare(_Condition):
    """`left op right` with op one of = <> < <= > >= <=>."""

    op: str
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class And(_Condition):
    """Two or more conditions, none of them an AND."""

    items: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Or(_Condition):
    """Two or more conditions, none of them an OR."""

    items: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Not(_Condition):
    """The opposite; null stays null."""

    item: Expression


@dataclass(frozen=True, slots=True)
class IsNull(_Condition):
    """True for null, else false."""

    item: Expression


@dataclass(frozen=True, slots=True)
class In(_Condition):
    """`item IN (options)`: distinct literals; a null stands last."""

    item: Expression
    options: tuple[Literal, ...]


@dataclass(frozen=True, slots=True)
class Like(_Condition):
    """LIKE, or ILIKE with `ignore_case`. The pattern is checked: every escape stands before % _ or itself."""

    item: Expression
    pattern: str
    escape: str = "\\"
    ignore_case: bool = False


@dataclass(frozen=True, slots=True)
class Match(_Condition):
    """Text search: how is `starts`, `ends`, `contains` (all literal), or `regex` or `re2` (found anywhere).

    `regex` is a regular expression as Java reads it, `re2` one as RE2 does.
    """

    how: str
    item: Expression
    text: str


@dataclass(frozen=True, slots=True)
class Arithmetic(_Node):
    """`left op right` with op one of + - * / % DIV."""

    op: str
    left: Expression
    right: Expression
    type: t.DataType


@dataclass(frozen=True, slots=True)
class Negate(_Node):
    """`-item`."""

    item: Expression
    type: t.DataType


@dataclass(frozen=True, slots=True)
class Concat(_Node):
    """Texts one after the other; null if one is."""

    items: tuple[Expression, ...]
    type: t.DataType


@dataclass(frozen=True, slots=True)
class Case(_Node):
    """The value of the first branch whose condition is true, else `otherwise`. All of one type."""

    branches: tuple[tuple[Expression, Expression], ...]
    otherwise: Expression
    type: t.DataType


@dataclass(frozen=True, slots=True)
class Coalesce(_Node):
    """The first value that is not null. All of one type."""

    items: tuple[Expression, ...]
    type: t.DataType


@dataclass(frozen=True, slots=True)
class Cast(_Node):
    """`CAST(item AS type)`: an error where a value does not fit.

    Attributes:
        stores: the value is stored in a column, so a number that is too large for FLOAT is an error, and not infinity.
    """

    item: Expression
    type: t.DataType
    stores: bool = False


@dataclass(frozen=True, slots=True)
class Call(_Node):
    """A function of `expr.functions.FUNCTIONS`, by its name there."""

    name: str
    items: tuple[Expression, ...]
    type: t.DataType


@dataclass(frozen=True, slots=True)
class ArrowCall(_Condition):
    """A condition that only Arrow can evaluate: applied exactly, never used to skip files.

    It is kept as Arrow pickles it, which compares and travels; `names` pairs each column name inside the Arrow
    expression with the name it has in the table.
    """

    pickled: bytes
    names: tuple[tuple[str, str], ...]

    @property
    def expression(self) -> pc.Expression:
        """The Arrow expression."""
        rebuild = pc.scalar(True).__reduce__()[0]
        return rebuild(pa.py_buffer(self.pickled))


Expression: TypeAlias = (
    Column | Literal | Compare | And | Or | Not | IsNull | In | Like | Match | Arithmetic | Negate | Concat | Case
    | Coalesce | Cast | Call | ArrowCall
)  # fmt: skip


def children(node: Expression) -> tuple[Expression, ...]:
    """Return the expressions a node is made of, in the order of its text, but for the literals of an IN.

    Those may be thousands, and nothing that walks over a tree asks for them.
    """
    match node:
        case Compare() | Arithmetic():
            return (node.left, node.right)
        case And() | Or() | Concat() | Coalesce() | Call():
            return node.items
        case Not() | IsNull() | In() | Like() | Match() | Negate() | Cast():
            return (node.item,)
        case Case():
            return (*(part for branch in node.branches for part in branch), node.otherwise)
    return ()


def renamed(node: Expression, name: Callable[[str], str]) -> Expression:
    """Return a node with other names of its columns.

    Args:
        name: returns the new name of a top-level column.
    """
    match node:
        case Column(path=path):
            return replace(node, path=(name(path[0]), *path[1:]))
        case Compare() | Arithmetic():
            return replace(node, left=renamed(node.left, name), right=renamed(node.right, name))
        case And() | Or() | Concat() | Coalesce() | Call():
            return replace(node, items=tuple(renamed(item, name) for item in node.items))
        case Not() | IsNull() | In() | Like() | Match() | Negate() | Cast():
            return replace(node, item=renamed(node.item, name))
        case Case():
            branches = tuple((renamed(when, name), renamed(then, name)) for when, then in node.branches)
            return replace(node, branches=branches, otherwise=renamed(node.otherwise, name))
    return node


def walk(node: Expression) -> Iterator[Expression]:
    """Yield a node and everything below it, parents first; not the literals of an IN."""
    waiting = [node]
    while waiting:  # without recursion: a chain of operators is as deep as it is long
        part = waiting.pop()
        yield part
        waiting += reversed(tuple(children(part)))


def columns(node: Expression) -> frozenset[str]:
    """Return the names of the top-level columns that a node reads."""
    found: set[str] = set()
    for part in walk(node):
        if isinstance(part, Column):
            found.add(part.path[0])
        elif isinstance(part, ArrowCall):
            found.update(name for _, name in part.names)
    return frozenset(found)


def nanoseconds(literal: Literal) -> int:
    """Return a DATE, TIMESTAMP or LTZ literal as nanoseconds since the epoch, a TIME as nanoseconds of the day."""
    assert isinstance(literal.value, int), literal
    match literal.type:
        case t.Date():
            return literal.value * NANOS_PER_DAY
        case t.Timestamp(precision=precision) | t.LocalZonedTimestamp(precision=precision):
            return literal.value * (1_000_000_000 // UNITS_PER_SECOND[timestamp_unit(precision)])
    return literal.value


def sql(node: Expression) -> str:
    """Return SQL text that parses back to an equal expression.

    An `ArrowCall` has no SQL form: it is written as `arrow(...)`, which is for people only.
    """
    match node:
        case Column(path=path):
            return ".".join(identifier(part) for part in path)
        case Literal():
            return _literal(node)
        case Compare(op=op, left=left, right=right):
            return f"{_operand(left)} {op} {_operand(right)}"
        case And(items=items):
            return " AND ".join(_in_parentheses(i) if isinstance(i, Or) else sql(i) for i in items)
        case Or(items=items):
            return " OR ".join(_in_parentheses(i) if isinstance(i, And) else sql(i) for i in items)
        case Not(item=IsNull() | In() | Like() as item):
            return _test(item, "NOT ")
        case Not(item=item):
            return f"NOT ({sql(item)})"
        case IsNull() | In() | Like():
            return _test(node, "")
        case Match(how="regex" | "re2", item=item, text=text):
            return f"{_operand(item)} RLIKE {string(text)}"
        case Match(how=how, item=item, text=text):
            name = {"starts": "startswith", "ends": "endswith", "contains": "contains"}[how]
            return f"{name}({sql(item)}, {string(text)})"
        case Arithmetic(op=op, left=left, right=right):
            return f"{_operand(left)} {op} {_operand(right)}"
        case Negate(item=item):
            return f"-{_operand(item)}"
        case Concat(items=items):
            return f"concat({', '.join(map(sql, items))})"
        case Case(branches=branches, otherwise=otherwise):
            whens = " ".join(f"WHEN {sql(condition)} THEN {sql(value)}" for condition, value in branches)
            return f"CASE {whens} ELSE {sql(otherwise)} END"
        case Coalesce(items=items):
            return f"coalesce({', '.join(map(sql, items))})"
        case Cast(item=item, type=kind):
            return f"CAST({sql(item)} AS {_cast_type(kind)})"
        case Call(name=name, items=items):
            return f"{name}({', '.join(map(sql, items))})"
    return f"arrow({node.expression})"


def _test(node: IsNull | In | Like, negation: str) -> str:
    match node:
        case IsNull(item=item):
            return f"{_operand(item)} IS {negation}NULL"
        case In(item=item, options=options):
            return f"{_operand(item)} {negation}IN ({', '.join(map(sql, options))})"
    word = "ILIKE" if node.ignore_case else "LIKE"
    escape = "" if node.escape == "\\" else f" ESCAPE {string(node.escape)}"
    return f"{_operand(node.item)} {negation}{word} {string(node.pattern)}{escape}"


def _operand(node: Expression) -> str:
    atom = isinstance(node, Column | Literal | Concat | Case | Coalesce | Cast | Call)
    return sql(node) if atom else _in_parentheses(node)


def _in_parentheses(node: Expression) -> str:
    return f"({sql(node)})"


def identifier(name: str) -> str:
    """Return a column name as SQL text, in backticks unless the parser takes it as it is."""
    return f"`{name}`" if name.lower() in _RESERVED else t.quoted(name)


def string(text: str) -> str:
    """Return text as a SQL literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _literal(node: Literal) -> str:
    value, kind = node.value, node.type
    if value is None:
        return "NULL" if isinstance(kind, Null) else f"CAST(NULL AS {_cast_type(kind)})"
    match kind:
        case t.Boolean():
            return "TRUE" if value else "FALSE"
        case t.TinyInt() | t.SmallInt():
            return str(value) + ("Y" if isinstance(kind, t.TinyInt) else "S")
        case t.BigInt() if isinstance(value, int) and -(2**31) <= value < 2**31:
            return f"{value}L"
        case t.Int() | t.BigInt():
            return str(value)
        case t.Float() | t.Double():
            return _float(float(value), kind)
        case t.Decimal():
            assert isinstance(value, Decimal), node
            text = f"{value:f}"
            natural = "." in text and natural_decimal(value) == kind
            return text if natural else f"CAST('{text}' AS {_cast_type(kind)})"
        case t.Binary() | t.VarBinary():
            assert isinstance(value, bytes), node
            return f"X'{value.hex().upper()}'"
        case t.Date() | t.Time() | t.Timestamp() | t.LocalZonedTimestamp():
            return _temporal(node)
    return string(str(value))


def _float(value: float, kind: t.DataType) -> str:
    single = isinstance(kind, t.Float)
    if math.isnan(value) or math.isinf(value):
        text = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        return f"CAST('{text}' AS {_cast_type(kind)})"
    return f"{np.float32(value)}F" if single else f"{value!r}D"


def natural_decimal(value: Decimal) -> t.Decimal:
    """Return the type of a decimal literal as written: all its digits and no more."""
    _, digits, exponent = value.as_tuple()
    scale = -int(exponent)
    whole = len("".join(map(str, digits)).lstrip("0"))
    return t.Decimal(max(whole, scale, 1), scale)


def _temporal(node: Literal) -> str:
    kind = node.type
    days, rest = divmod(nanoseconds(node), NANOS_PER_DAY)
    # The parser takes four-digit years only, and nothing makes a literal outside of them.
    day = (_EPOCH + timedelta(days=days)).isoformat()
    if isinstance(kind, t.Date):
        return f"DATE '{day}'"
    seconds, nanos = divmod(rest, 1_000_000_000)
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    assert isinstance(kind, t.Time | t.Timestamp | t.LocalZonedTimestamp), node
    if kind.precision:
        clock += "." + f"{nanos:09}"[: kind.precision]
    if isinstance(kind, t.Time):
        return f"TIME '{clock}'"
    return f"{'TIMESTAMP' if isinstance(kind, t.Timestamp) else 'TIMESTAMP_LTZ'} '{day} {clock}'"


def _cast_type(kind: t.DataType) -> str:
    """Return the name of a type as the SQL parser takes it, where it may differ from the format's."""
    match kind:
        case t.VarChar():
            return "STRING"
        case t.VarBinary():
            return "BINARY"
        case t.Timestamp(precision=precision):
            return f"TIMESTAMP_NTZ({precision})"
        case t.LocalZonedTimestamp(precision=precision):
            return f"TIMESTAMP_LTZ({precision})"
    return str(kind)

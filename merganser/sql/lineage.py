"""Lineage: which columns, rows and how many of them a query needs of each table it names.

The answer is safe, not sharp: a column is needed if its name occurs where it could mean the table, and a condition
belongs to a table only if it surely does. Whoever reads more than that gets the same result.

Conditions come from WHERE, and from ON of inner joins and of the right side of left joins. None is taken for the side
of an outer join that may be filled up with nulls, from expressions whose value depends on the engine or the time, or if
a name in it could be that of another source.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from sqlglot import exp

from merganser.errors import MerganserError
from merganser.expr.predicate import Predicate, conjunction
from merganser.expr.setting import Setting
from merganser.expr.text import Dialect, parse_predicate
from merganser.schema import types as t
from merganser.sql.trees import hinted
from merganser.sql.unread import Unread
from merganser.values import dataclass

_BARE: Final = frozenset(
    (
        "current_date", "current_timestamp", "current_time", "localtimestamp", "localtime", "now", "current_user",
        "user", "session_user", "current_schema", "current_database", "current_catalog", "default",
    )
)  # fmt: skip
"""Words that sqlglot may take for a function or keyword where a column has this name."""
_NUMBERS: Final = (t.TinyInt, t.SmallInt, t.Int, t.BigInt, t.Decimal, t.Float, t.Double)
_MICROS: Final = 6
_CONSTANT: Final = (
    exp.Literal, exp.Cast, exp.DataType, exp.DataTypeParam, exp.Interval, exp.Var, exp.Add, exp.Sub, exp.Paren, exp.Neg,
    exp.TsOrDsToDate, exp.Boolean, exp.Date,
)  # fmt: skip
_COMPARES: Final = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ)


@dataclass(frozen=True)
class Use:
    """What a query needs of one table that it names.

    Attributes:
        columns: names of columns, in the order of the table.
        where: a filter that holds for all rows that count; None: none.
        limit: so many rows are enough; None: all are needed.
    """

    columns: tuple[str, ...]
    where: Predicate | None = None
    limit: int | None = None


def table_nodes(tree: exp.Expression) -> list[exp.Table]:
    """Return the references to tables in a query, without those to its common table expressions."""
    return [node for node in tree.find_all(exp.Table) if not _is_common(node)]


def _is_common(node: exp.Table) -> bool:
    if isinstance(node.this, exp.Func) or node.args.get("db"):
        return False
    name, child = node.name.lower(), node
    at: exp.Expression | None = node.parent
    inner: exp.Expression = child
    while at is not None:
        if isinstance(at, exp.With):
            # inside of a common table expression: it knows those before it, and itself if it is recursive
            position = next(i for i, each in enumerate(at.expressions) if each is inner)
            known = at.expressions if at.args.get("recursive") else at.expressions[:position]
            if any(each.alias.lower() == name for each in known):
                return True
            inner, at = at, at.parent
            if at is not None:
                inner, at = at, at.parent
            continue
        common = at.args.get("with_") or at.args.get("with")
        if common is not None and common is not inner and any(e.alias.lower() == name for e in common.expressions):
            return True
        inner, at = at, at.parent
    return False


def alias_of(node: exp.Table) -> str:
    """Return the name that columns of a reference may be qualified with."""
    return node.alias or hinted(node.name)[0]


def uses(tree: exp.Expression, tables: Sequence[tuple[exp.Table, Sequence[t.Field]]], setting: Setting) -> list[Use]:
    """Return what a query needs of the tables that it names.

    Args:
        tree: the query.
        tables: references in it, with the columns of the tables.
        setting: what texts mean; conditions that ask for the time are left to the engine whatever it says.
    """
    timeless = Setting(setting.timezone, None, setting.exact_names)
    whole = _read_whole(tree, [node for node, _ in tables])
    words, qualified = _names(tree, {alias_of(node).lower() for node, _ in tables})
    sources = {id(node): fields for node, fields in tables}
    found = []
    for node, fields in tables:
        names = [field.name for field in fields]
        if id(node) not in whole:
            used = words | qualified.get(alias_of(node).lower(), set()) | _BARE
            names = [name for name in names if name.lower() in used]
        conditions = [] if _is_odd(node) else list(_conditions(node, fields, sources))
        parsed = [p for c in conditions if (p := _parsed(c, fields, timeless)) is not None]
        found.append(Use(tuple(names), conjunction(parsed), None if _is_odd(node) else _limit(tree, node)))
    return found


# columns


def _names(tree: exp.Expression, aliases: set[str]) -> tuple[set[str], dict[str, set[str]]]:
    """Return names that any table could have, and by qualifier those that tables of this name have, in lower case."""
    words: set[str] = set()
    qualified: dict[str, set[str]] = {}
    seen: set[int] = set()
    for column in tree.find_all(exp.Column):
        parts = column.parts
        seen.update(id(part) for part in parts)
        if len(parts) == 2 and parts[0].name.lower() in aliases:
            qualified.setdefault(parts[0].name.lower(), set()).add(parts[1].name.lower())
            words.add(parts[0].name.lower())
        else:
            words.update(part.name.lower() for part in parts)
    for name in tree.find_all(exp.Identifier, exp.Var, exp.Literal):  # Spark may read "a" as a name
        if id(name) not in seen:
            words.add(name.name.lower())
    return words, qualified


def _read_whole(tree: exp.Expression, nodes: Sequence[exp.Table]) -> set[int]:
    """Return the ids of the references all of whose columns may be needed."""
    if isinstance(tree, Unread):
        return {id(node) for node in nodes}
    if any(join.args.get("method") for join in tree.find_all(exp.Join)):  # NATURAL: all names count
        return {id(node) for node in nodes}
    whole = {id(node) for node in nodes if _is_odd(node)}
    for star in tree.find_all(exp.Star):
        parent: exp.Expression | None = star.parent
        qualifier = None
        top: exp.Expression = star
        if isinstance(parent, exp.Column):
            qualifier, top, parent = parent.table.lower(), parent, parent.parent
        if isinstance(parent, exp.Count) and qualifier is None:
            continue
        if not (isinstance(parent, exp.Select) and top.arg_key == "expressions"):
            return {id(node) for node in nodes}  # struct(*) and the like
        if isinstance(parent.parent, exp.Exists):
            continue
        for node in nodes:
            if qualifier in (None, "", alias_of(node).lower()) and _select_of(node) is parent:
                whole.add(id(node))
            elif qualifier and qualifier not in {alias_of(each).lower() for each in nodes}:
                whole.add(id(node))  # a struct, perhaps
    return whole


def _select_of(node: exp.Expression) -> exp.Select | None:
    return node.find_ancestor(exp.Select)


def _is_odd(node: exp.Table) -> bool:
    """Return whether a reference has more than a name: a sample, a pivot, names of columns, joins in brackets."""
    alias = node.args.get("alias")
    odd = any(node.args.get(key) for key in ("sample", "pivots", "joins", "laterals", "ordinality"))
    select = _select_of(node)
    pivots = select is not None and any(select.find_all(exp.Pivot))
    return odd or pivots or isinstance(node.parent, exp.TableSample) or bool(alias and alias.args.get("columns"))


# conditions


@dataclass(frozen=True)
class _From:
    """The sources of a SELECT: those of FROM, then of each join."""

    sources: tuple[exp.Expression, ...]
    joins: tuple[exp.Join, ...]

    def place(self, node: exp.Table) -> int | None:
        return next((i for i, source in enumerate(self.sources) if source is node), None)

    def may_be_null(self, place: int) -> bool:
        """Return whether an outer join fills this source up with nulls."""
        sides = [str(join.args.get("side") or "").upper() for join in self.joins]
        if place and sides[place - 1] in ("LEFT", "FULL"):
            return True
        return any(side in ("RIGHT", "FULL") for side in sides[place:])

    def is_semi(self, place: int) -> bool:
        """Return whether a source is only looked into by a semi or anti join: nothing else sees its columns."""
        return bool(place) and str(self.joins[place - 1].args.get("kind") or "").upper() in ("SEMI", "ANTI")


def _conditions(
    node: exp.Table, fields: Sequence[t.Field], known: Mapping[int, Sequence[t.Field]]
) -> Iterator[exp.Expression]:
    """Yield conditions that rows of a reference meet if they count, with bare names of its columns."""
    select = _select_of(node)
    if select is None or not (
        (isinstance(node.parent, exp.From) and node.parent.parent is select)
        or (isinstance(node.parent, exp.Join) and node.parent.parent is select)
    ):
        return
    start = select.args.get("from_") or select.args.get("from")
    if start is None:
        return
    joins = tuple(select.args.get("joins") or ())
    all_ = _From((start.this, *(join.this for join in joins)), joins)
    place = all_.place(node)
    aliases = [source.alias_or_name.partition("\x00")[0].lower() for source in all_.sources]
    if place is None or aliases.count(alias_of(node).lower()) != 1 or all_.is_semi(place):
        return
    plain = not any(join.args.get("using") or join.args.get("method") for join in joins)
    plain = plain and all(isinstance(s, exp.Table) and id(s) in known and not _is_odd(s) for s in all_.sources)
    plain = plain and not select.args.get("laterals")
    others = {
        field.name.lower() for i, source in enumerate(all_.sources) if i != place for field in known.get(id(source), ())
    }
    owner = _Owner(alias_of(node).lower(), {field.name.lower(): field for field in fields}, others, plain)
    given: list[exp.Expression] = []
    if not all_.may_be_null(place):
        where = select.args.get("where")
        given += [] if where is None else [where.this]
        given += [j.args["on"] for j in joins if j.args.get("on") is not None and _is_inner(j)]
    elif place and str(joins[place - 1].args.get("side") or "").upper() == "LEFT":
        later = [str(join.args.get("side") or "").upper() for join in joins[place:]]
        if not any(side in ("RIGHT", "FULL") for side in later) and joins[place - 1].args.get("on") is not None:
            given.append(joins[place - 1].args["on"])
    for condition in given:
        for part in _parts(condition):
            if _is_simple(part, owner):
                yield owner.bare(part)


def _is_inner(join: exp.Join) -> bool:
    return not join.args.get("side") and str(join.args.get("kind") or "").upper() in ("", "INNER", "CROSS")


def _parts(condition: exp.Expression) -> Iterator[exp.Expression]:
    """Yield what a condition joins with AND."""
    match condition:
        case exp.And():
            yield from _parts(condition.left)
            yield from _parts(condition.right)
        case exp.Paren():
            yield from _parts(condition.this)
        case _:
            yield condition


@dataclass(frozen=True)
class _Owner:
    """Which names are columns of one source.

    Attributes:
        others: names of columns of the other sources.
        plain: the columns of all sources are known, so a bare name can be told.
    """

    alias: str
    fields: Mapping[str, t.Field]
    others: set[str]
    plain: bool

    def field(self, column: exp.Expression) -> t.Field | None:
        """Return the column that a name surely means; None: it may mean something else."""
        if not isinstance(column, exp.Column) or isinstance(column.this, exp.Star):
            return None
        parts = column.parts
        name = parts[-1].name.lower()
        if len(parts) == 2 and parts[0].name.lower() == self.alias:
            return self.fields.get(name)
        if len(parts) == 1 and self.plain and name not in self.others:
            return self.fields.get(name)
        return None

    def bare(self, part: exp.Expression) -> exp.Expression:
        """Return a condition whose columns have no qualifier."""

        def change(node: exp.Expression) -> exp.Expression:
            field = self.field(node)
            return node if field is None else exp.column(exp.to_identifier(field.name, quoted=True))

        return part.copy().transform(change)


def _is_simple(node: exp.Expression, owner: _Owner) -> bool:
    """Return whether a condition concerns one source alone, and means the same everywhere."""
    match node:
        case exp.And() | exp.Or():
            return _is_simple(node.left, owner) and _is_simple(node.right, owner)
        case exp.Not() | exp.Paren():
            return _is_simple(node.this, owner)
        case exp.Is():
            return owner.field(node.this) is not None and isinstance(node.expression, exp.Null)
        case exp.In():
            field = owner.field(node.this)
            if field is None or any(node.args.get(key) for key in ("query", "unnest", "field")):
                return False
            return bool(node.expressions) and all(_fits(field, value) for value in node.expressions)
        case exp.Between():
            field = owner.field(node.this)
            if field is None or node.args.get("symmetric"):
                return False
            return _fits(field, node.args["low"]) and _fits(field, node.args["high"])
        case exp.Like():
            field = owner.field(node.this)
            return field is not None and isinstance(field.type, t.VarChar) and _is_text(node.expression)
        case exp.Binary() if isinstance(node, _COMPARES):
            left, right = owner.field(node.left), owner.field(node.right)
            if left is not None and right is not None:
                return _is_exact(left) and left.type.with_nullable(True) == right.type.with_nullable(True)
            if left is not None:
                return _fits(left, node.right)
            return right is not None and _fits(right, node.left)
    return False


def _is_exact(field: t.Field) -> bool:
    """Return whether values of a column are the same in every engine."""
    match field.type:
        case t.Timestamp(precision=precision) | t.LocalZonedTimestamp(precision=precision):
            return precision <= _MICROS
    return isinstance(field.type, (*_NUMBERS, t.VarChar, t.Boolean, t.Date))


def _fits(field: t.Field, value: exp.Expression) -> bool:
    """Return whether a constant is of a kind that compares with a column without a cast of the column."""
    if not _is_exact(field):
        return False
    match field.type:
        case t.VarChar():
            return _is_text(value)
        case t.Boolean():
            return isinstance(value, exp.Boolean)
        case t.Date() | t.Timestamp() | t.LocalZonedTimestamp():
            return _is_text(value) or (
                isinstance(value, exp.Cast | exp.Add | exp.Sub | exp.TsOrDsToDate) and _is_constant(value)
            )
    return _is_number(value)


def _is_text(value: exp.Expression) -> bool:
    return isinstance(value, exp.Literal) and value.is_string


def _is_number(value: exp.Expression) -> bool:
    value = value.this if isinstance(value, exp.Neg) else value
    return isinstance(value, exp.Literal) and not value.is_string


def _is_constant(value: exp.Expression) -> bool:
    return all(isinstance(node, _CONSTANT) for node in value.walk())


def _parsed(condition: exp.Expression, fields: Sequence[t.Field], setting: Setting) -> Predicate | None:
    try:
        return parse_predicate(condition.sql(dialect=Dialect), fields, setting=setting)
    except MerganserError:
        return None  # the engine that runs the query says what it thinks of it


# limits


def _limit(tree: exp.Expression, node: exp.Table) -> int | None:
    """Return how many rows are enough, if the query is `SELECT columns FROM t LIMIT n` and no more."""
    start = node.parent
    if not isinstance(tree, exp.Select) or not isinstance(start, exp.From) or start.parent is not tree:
        return None
    present = {key for key, value in tree.args.items() if value}
    most = tree.args.get("limit")
    if not present <= {"expressions", "from_", "from", "limit"} or not isinstance(most, exp.Limit):
        return None
    limit = most.expression
    if not all(_is_plain(item) for item in tree.expressions) or not isinstance(limit, exp.Literal) or limit.is_string:
        return None
    return int(limit.this) if limit.this.isdigit() else None


def _is_plain(item: exp.Expression) -> bool:
    item = item.this if isinstance(item, exp.Alias) else item
    return isinstance(item, exp.Star | exp.Column)

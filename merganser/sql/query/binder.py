"""Queries: SELECT, set operations, VALUES and CTEs -> text for DuckDB, and what each table reference has to read."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Final

from sqlglot import exp

from merganser.errors import InvalidInputError, MerganserError, UnsupportedError
from merganser.expr.setting import Setting
from merganser.expr.text import parse_predicate
from merganser.expr.tree import Null
from merganser.scan.rows import counted
from merganser.schema import types as t
from merganser.sql.dialect import Queries
from merganser.sql.places import placed
from merganser.sql.query.bound import BoundQuery, Reference, Source, Stored
from merganser.sql.query.casts import cast, stable, to
from merganser.sql.query.expressions import GENERATORS, KEYS, SPEC, Expressions, direction
from merganser.sql.query.functions import positive_zero, sort_key
from merganser.sql.query.json_functions import json_tuple
from merganser.sql.query.kinds import Value, common, duck, is_null, quoted, same
from merganser.sql.query.scope import Relation, Scope, inside
from merganser.sql.trees import MARK
from merganser.values import dataclass

Columns = Sequence[tuple[str, t.DataType]]
Resolve = Callable[[exp.Table], Source | Stored]
_SETS: Final = {exp.Union: "UNION", exp.Intersect: "INTERSECT", exp.Except: "EXCEPT"}
_OUTER: Final = ("LEFT", "RIGHT", "FULL")


@dataclass(frozen=True)
class Bound:
    """A query that is bound: its text, with columns of these names, and their types.

    Attributes:
        origins: per column, the column of a table that it is; None for others. Without rows of that table, the query
            gives fewer rows, and no other ones.
        ambiguous: names, in lower case, that several columns have, which are not one column taken twice.
    """

    text: str
    columns: Columns
    origins: Sequence[tuple[Reference, str] | None] = ()
    ambiguous: frozenset[str] = frozenset()


@dataclass
class _Cte:
    name: str
    columns: Columns
    ambiguous: frozenset[str] = frozenset()


@dataclass
class _Binder:
    resolve: Resolve
    setting: Setting
    references: list[Reference] = field(default_factory=list)
    aliases: int = 0
    top: exp.Expression | None = None
    plain: list[str] | None = None

    # queries

    def query(self, node: exp.Expression, parent: Scope | None, ctes: Mapping[str, _Cte]) -> Bound:
        """Bind a query.

        Args:
            parent: the scope around a subquery.
            ctes: common table expressions that it may name, by lower name.
        """
        with_ = node.args.get("with_")
        if parent is None:
            _check_syntax(node)
        if parent is None and any(each.args.get("pivots") for each in node.find_all(exp.Expression)):
            raise UnsupportedError("cannot run PIVOT and UNPIVOT in this process. Run the statement on Spark.")
        texts = []
        if with_ is not None:
            ctes = dict(ctes)
            for item in with_.expressions:
                self.aliases += 1
                name, alias = f"_cte{self.aliases}", item.args["alias"]
                given = [c.name for c in alias.columns]
                if with_.args.get("recursive") and _names(item.this, alias.name):
                    bound = self._recursive(item.this, parent, ctes, alias.name, name, given)
                else:
                    bound = self.query(item.this, parent, ctes)
                columns = _renamed(bound.columns, given, alias.name)
                listed = ", ".join(quoted(column) for column in _distinct([c for c, _ in columns]))
                texts.append(f"{name}({listed}) AS ({bound.text})")
                ctes[alias.name.lower()] = _Cte(name, _unique(columns), _twice(given) if given else bound.ambiguous)
        match node:
            case exp.Subquery():
                bound = self.query(node.this, parent, ctes)
                bound = self._limited(node, bound, parent, ctes)
            case exp.Select():
                bound = self._select(node, parent, ctes)
            case exp.SetOperation():
                bound = self._set_operation(node, parent, ctes)
            case exp.Values():
                bound = self._values(node, parent, ctes)
            case exp.Table():
                bound = self._select(exp.select("*").from_(node.copy()), parent, ctes)
            case _:
                raise UnsupportedError(f"cannot run {type(node).__name__} in this process. Run the statement on Spark.")
        if texts:
            word = "WITH RECURSIVE" if with_.args.get("recursive") else "WITH"
            return Bound(f"{word} {', '.join(texts)} {bound.text}", bound.columns, ambiguous=bound.ambiguous)
        return bound

    def _recursive(
        self,
        node: exp.Expression,
        parent: Scope | None,
        ctes: Mapping[str, _Cte],
        own: str,
        name: str,
        given: Sequence[str],
    ) -> Bound:
        """Bind a common table expression that reads itself: its types are those of the first side."""
        if (
            not isinstance(node, exp.Union)
            or node.args.get("distinct")
            or _names(node.left, own)
            or any(node.args.get(key) for key in ("order", "limit", "offset", "with_"))
        ):
            raise UnsupportedError(
                f"cannot run '{own}', which reads itself, in this process: it must be a query, UNION ALL, and a query "
                "that reads it. Run the statement on Spark."
            )
        first = self.query(node.left, parent, ctes)
        columns = _unique(_renamed(first.columns, given, own))
        step = self.query(node.right, parent, {**ctes, own.lower(): _Cte(name, columns)})
        if len(step.columns) != len(first.columns):
            raise InvalidInputError(
                f"'{own}' has {len(first.columns)} columns, and the query that reads it gives {len(step.columns)}."
            )
        for (column, kind), (_, other) in zip(columns, step.columns, strict=True):
            if is_null(kind) or not same(kind, other):
                raise UnsupportedError(
                    f"cannot run '{own}' in this process: its column '{column}' begins as {kind} and becomes {other}. "
                    "CAST the first one."
                )
        return Bound(f"({first.text}) UNION ALL ({_as(step, [kind for _, kind in columns])})", first.columns)

    def _expressions(self, scope: Scope, ctes: Mapping[str, _Cte]) -> Expressions:
        return Expressions(scope, lambda node, inner: self.query(node, inner, ctes), self.setting)

    def _select(self, node: exp.Select, parent: Scope | None, ctes: Mapping[str, _Cte]) -> Bound:
        scope = Scope(parent)
        first = len(self.references)
        from_ = self._from(node, scope, ctes)
        binder = self._expressions(scope, ctes)
        binder.windows = {w.name.lower(): w for w in node.args.get("windows") or []}
        where, pushed = "", True
        if node.args.get("where") is not None:
            count = binder.aggregates
            where = f" WHERE {binder.condition(node.args['where'].this, 'WHERE')}"
            if binder.aggregates > count:
                raise InvalidInputError("WHERE cannot have aggregates. Use HAVING.")
            pushed = self._push(node.args["where"].this, scope)
        generated, more = self._generators(node, scope, ctes)
        from_ += more
        before = len(self.references)
        items, twice = self._named_items(node, scope, binder, generated)
        after = len(self.references)
        group = self._group(node, scope, binder, items)
        if binder.are_keys_bound:
            if len(self.references) == after:
                del self.references[before:]  # those of subqueries, which are bound again
            items, twice = self._named_items(node, scope, binder, generated)
        columns = [(value.name, value.type) for value in items]
        having = ""
        if node.args.get("having") is not None:
            binder.in_having = True  # names there mean keys of groups, and else aliases, before columns
            having = f" HAVING ({binder.condition(node.args['having'].this, 'HAVING')})"
            binder.in_having = False
        if binder.keys and _has_sets(node.args.get("group")):  # Spark has no group without rows, even for ()
            having = f"{having} AND count(*) > 0" if having else " HAVING count(*) > 0"
        grouped = bool(group) or binder.aggregates > 0
        if generated and (grouped or node.find(exp.Window) is not None):
            raise UnsupportedError(
                "cannot run explode and the like beside aggregates or windows in this process. Put it into a subquery."
            )
        if grouped and any(isinstance(item, exp.Star) for item in node.expressions):
            raise InvalidInputError("SELECT * does not go with GROUP BY or aggregates: name the columns.")
        if node.args.get("qualify") is not None:
            having += f" QUALIFY {binder.condition(node.args['qualify'].this, 'QUALIFY')}"
        distinct = " DISTINCT" if node.args.get("distinct") is not None else ""
        names = _distinct([name for name, _ in columns])
        made = [positive_zero(value) if distinct else value for value in items]
        shown = ", ".join(f"{value.text} AS {quoted(name)}" for value, name in zip(made, names, strict=True))
        text = f"SELECT{distinct} {shown}{from_}{where}{group}{having}"
        order = self._order(node, scope, binder, items, names, twice)
        if binder.grouping is not None and not group:
            raise InvalidInputError("grouping and grouping_id need GROUP BY with ROLLUP, CUBE or GROUPING SETS.")
        text, order = (_windowed(part.replace(KEYS, ", ".join(binder.keys)), binder.keys) for part in (text, order))
        text += order + self._limit(node, binder)
        simple = pushed and not (generated or grouped or distinct or order or binder.aggregates or having)
        limited = self._push_limit(node, first, scope) if simple else False
        if node is self.top and simple and limited:
            self.plain = _plain(items, scope)
        is_filtered = not (generated or grouped or distinct or having or node.find(exp.Window))
        if not is_filtered or node.args.get("limit") is not None or node.args.get("offset") is not None:
            return Bound(text, columns, ambiguous=twice)
        return Bound(text, columns, [_origin(value, scope) for value in items], twice)

    def _generators(
        self, node: exp.Select, scope: Scope, ctes: Mapping[str, _Cte]
    ) -> tuple[Mapping[int, list[Value]], str]:
        """Return the columns of calls such as explode(a) in the list of SELECT, and the join that gives their rows."""
        calls = [
            (item, call)
            for item in node.expressions
            if _generator(call := item.this if isinstance(item, exp.Alias | exp.Aliases) else item)
        ]
        if not calls:
            return {}, ""
        made, joins = {}, ""
        for item, call in calls:
            given = [name.name for name in item.expressions] if isinstance(item, exp.Aliases) else []
            given = [item.alias] if isinstance(item, exp.Alias) else given
            view = self._unnamed()
            columns, text = self._generate(call, scope, ctes, view, given)
            outer = (_generator(call) or "").endswith("outer")
            joins += f" LEFT JOIN LATERAL {text} ON TRUE" if outer else f" CROSS JOIN LATERAL {text}"
            made[id(item)] = [Relation(view, columns).value(i) for i in range(len(columns))]
        return made, joins if node.args.get("from_") is not None else f" FROM (SELECT 1) AS _one{joins}"

    def _named_items(
        self, node: exp.Select, scope: Scope, binder: Expressions, generated: Mapping[int, list[Value]]
    ) -> tuple[list[Value], frozenset[str]]:
        """Bind the list of SELECT, and let the scope know its aliases; also return the names that are ambiguous."""
        items, aliases = self._items(node, scope, binder, generated)
        twice = _ambiguous(items, aliases, scope)
        scope.aliases, scope.ambiguous = {}, twice
        for value, alias in zip(items, aliases, strict=True):
            if alias is not None:
                scope.aliases.setdefault(alias.lower(), value)
        return items, twice

    def _items(
        self, node: exp.Select, scope: Scope, binder: Expressions, generated: Mapping[int, list[Value]]
    ) -> tuple[list[Value], list[str | None]]:
        """Bind the list of SELECT; stars become the columns they stand for. Also return their aliases, or None."""
        items: list[Value] = []
        aliases: list[str | None] = []
        for item in node.expressions:
            aliases += [None] * (len(items) - len(aliases))
            if id(item) in generated:
                items += generated[id(item)]
                aliases += [value.name for value in generated[id(item)]]
            elif isinstance(item, exp.Star):
                items += self._star(scope, None, item)
            elif isinstance(item, exp.Column) and isinstance(item.this, exp.Star):
                items += self._star(scope, item.table, item.this)
            elif isinstance(item, exp.Aliases):
                raise UnsupportedError("cannot name several columns of one expression in this process.")
            else:
                items.append(binder.item(item))
                aliases.append(item.alias if isinstance(item, exp.Alias) else None)
        if not items:
            raise InvalidInputError("SELECT needs at least one column.")
        return items, aliases + [None] * (len(items) - len(aliases))

    def _star(self, scope: Scope, table: str | None, star: exp.Star) -> list[Value]:
        if table is None and not scope.relations:
            raise InvalidInputError("SELECT * needs a FROM.")
        left_out = {column.name.lower() for column in star.args.get("except_") or star.args.get("except") or []}
        found: list[Value] = []
        if table is None:
            found += [replace(value, name=value.name) for value in scope.merged.values()]
        relations = [r for r in scope.relations if table is None or r.alias.lower() == table.lower()]
        if not relations and table is not None and any(r.positions(table) for r in scope.relations):
            row = scope.column([table], "")
            if isinstance(row.type, t.Row):
                return [replace(inside(row, [f.name]), name=f.name) for f in row.type.fields]
        if not relations:
            known = ", ".join(r.alias for r in scope.relations)
            raise InvalidInputError(f"there is no table '{table}' in FROM. There are {known or 'none'}.")
        for relation in relations:
            for position, (name, _) in enumerate(relation.columns):
                if table is None and name.lower() in scope.merged:
                    continue
                found.append(relation.value(position))
        return [value for value in found if value.name.lower() not in left_out]

    # FROM

    def _from(self, node: exp.Select, scope: Scope, ctes: Mapping[str, _Cte]) -> str:
        from_ = node.args.get("from_")
        if from_ is None:
            return ""
        text = " FROM " + self._relation(from_.this, scope, ctes)
        for join in node.args.get("joins") or []:
            text += self._join(join, scope, ctes)
        for lateral in node.args.get("laterals") or []:
            text += self._lateral_view(lateral, scope, ctes)
        return text

    def _relation(self, node: exp.Expression, scope: Scope, ctes: Mapping[str, _Cte]) -> str:
        sample = node.args.get("sample")
        if sample is None:
            return self._unsampled(node, scope, ctes)
        before = len(scope.relations)
        text = self._unsampled(node, scope, ctes)
        relation = scope.relations[before]
        relation.may_lack = True  # conditions test the rows of the sample
        names = [name for name, _ in relation.columns]
        if relation.reference is not None:
            relation.reference.used.update(names)
            relation.reference = None
        listed = ", ".join(quoted(name) for name in names)
        shown = ", ".join(f"_s.{quoted(name)}" for name in names)
        inner = text.rpartition(" AS ")[0]
        own = f"{inner} AS _s({listed})"
        return f"(SELECT {shown} FROM {own} {_sample(sample)}) AS {quoted(relation.alias)}({listed})"

    def _unsampled(self, node: exp.Expression, scope: Scope, ctes: Mapping[str, _Cte]) -> str:
        match node:
            case exp.Table() if node.args.get("joins"):
                joined = node.copy()
                joins = joined.args.pop("joins")
                text = self._relation(joined, scope, ctes)
                return text + "".join(self._join(join, scope, ctes) for join in joins)
            case exp.Table():
                return self._table(node, scope, ctes)
            case exp.Subquery() if isinstance(node.this, exp.Table):
                return "(" + self._relation(node.this, scope, ctes) + ")"
            case exp.Subquery():
                bound = self.query(node.this, scope.parent, ctes)
                return self._derived(bound, node.args.get("alias"), scope)
            case exp.Values():
                bound = self._values(node, scope.parent, ctes)
                return self._derived(bound, node.args.get("alias"), scope)
            case exp.Unnest():
                return self._unnest(node, scope, ctes)
            case exp.Lateral():
                if _generator(node.this):
                    return "LATERAL " + self._called(node, scope, scope, ctes)
                if isinstance(node.this, exp.Subquery):
                    bound = self.query(node.this.this, scope, ctes)
                    return "LATERAL " + self._derived(bound, node.args.get("alias"), scope)
        raise UnsupportedError(
            f"cannot read {node.sql(dialect=Queries)[:80]} in this process. Run the statement on Spark."
        )

    def _called(self, node: exp.Expression, scope: Scope, around: Scope, ctes: Mapping[str, _Cte]) -> str:
        """Return a call such as explode(a) in FROM.

        Args:
            around: where names in its argument are looked up.
        """
        if (_generator(node.this) or "").endswith("outer"):
            raise UnsupportedError("cannot call a function in FROM with OUTER in this process. Use LATERAL VIEW OUTER.")
        alias = node.args.get("alias")
        view = alias.name if alias is not None and alias.name else self._unnamed()
        self._check_alias(view, scope)
        given = [column.name for column in alias.columns] if alias is not None else []
        columns, text = self._generate(node.this, around, ctes, view, given)
        scope.relations.append(Relation(view, columns))
        return text

    def _derived(self, bound: Bound, alias: exp.TableAlias | None, scope: Scope) -> str:
        name = alias.name if alias is not None and alias.name else ""
        if not name:
            self.aliases += 1
            name = f"_t{self.aliases}"
        self._check_alias(name, scope)
        given = [column.name for column in alias.columns] if alias is not None else []
        columns = _unique(_renamed(bound.columns, given, name))
        twice = _twice(given) if given else bound.ambiguous
        scope.relations.append(Relation(name, columns, origins=_origins(columns, bound), ambiguous=twice))
        listed = ", ".join(quoted(column) for column, _ in columns)
        return f"({bound.text}) AS {quoted(name)}({listed})"

    def _check_alias(self, name: str, scope: Scope) -> None:
        if any(relation.alias.lower() == name.lower() for relation in scope.relations):
            raise InvalidInputError(f"'{name}' stands for two tables in FROM. Give one of them another alias.")

    def _table(self, node: exp.Table, scope: Scope, ctes: Mapping[str, _Cte]) -> str:
        alias = node.args.get("alias")
        if _generator(node.this):
            return self._called(node, scope, Scope(scope.parent), ctes)
        if isinstance(node.this, exp.Anonymous) and node.this.name.lower() == "range":
            return self._range(node, scope)
        plain = node.name.partition(MARK)[0] if not isinstance(node.this, exp.Func) else ""
        cte = ctes.get(plain.lower()) if len(node.parts) == 1 and plain else None
        given = [column.name for column in alias.columns] if alias is not None else []
        name = alias.name if alias is not None and alias.name else plain
        if cte is not None:
            self._check_alias(name, scope)
            columns = _unique(_renamed(cte.columns, given, name))
            twice = _twice(given) if given else cte.ambiguous
            scope.relations.append(Relation(name, columns, ambiguous=twice))
            return f"{cte.name} AS {quoted(name)}({', '.join(quoted(column) for column, _ in columns)})"
        with placed(node):
            source = self.resolve(node)
            bound = self._stored(source) if isinstance(source, Stored) else None
        if not name:
            self.aliases += 1
            name = f"_t{self.aliases}"
        self._check_alias(name, scope)
        if isinstance(source, Stored):
            assert bound is not None
            columns = _unique(_renamed(bound.columns, given, name))
            database, origins = source.name.partition(".")[0], _origins(columns, bound)
            scope.relations.append(Relation(name, columns, None, database, origins=origins))
            return f"({bound.text}) AS {quoted(name)}({', '.join(quoted(column) for column, _ in columns)})"
        reference = Reference(source, f"_r{len(self.references)}", node)
        self.references.append(reference)
        columns = [(f.name, f.type) for f in source.fields]
        database = node.args["db"].name if node.args.get("db") is not None else source.name.partition(".")[0]
        if given:
            renamed = _renamed(columns, given, name)
            reference.used.update(column for column, _ in columns)
            renamed = _unique(renamed)
            scope.relations.append(Relation(name, renamed, ambiguous=_twice(given)))
            return f"{reference.view} AS {quoted(name)}({', '.join(quoted(column) for column, _ in renamed)})"
        scope.relations.append(Relation(name, columns, reference, database))
        return f"{reference.view} AS {quoted(name)}"

    def _stored(self, view: Stored) -> Bound:
        """Bind the query of a view, and give its columns the names and types that the view says."""
        around, self.resolve = self.resolve, view.resolve
        try:
            bound = self.query(view.tree, None, {})
            view.check([name for name, _ in bound.columns], [kind for _, kind in bound.columns])
            names = [quoted(f"c{i}") for i in range(len(view.fields))]
            values = [
                Value(name, kind, own) if is_null(kind) or same(kind, f.type) else cast(Value(name, kind, own), f.type)
                for name, (own, kind), f in zip(names, bound.columns, view.fields, strict=True)
            ]
        except MerganserError as error:
            error.message = f"cannot read the view '{view.name}': {error.message}"
            raise
        finally:
            self.resolve = around
        columns = [(f.name, value.type) for f, value in zip(view.fields, values, strict=True)]
        kept = [value.text == name for value, name in zip(values, names, strict=True)]
        origins = [origin if same else None for origin, same in zip(bound.origins, kept, strict=False)]
        if all(kept):
            return Bound(bound.text, columns, origins)
        shown = ", ".join(f"{value.text} AS {name}" for value, name in zip(values, names, strict=True))
        return Bound(f"SELECT {shown} FROM ({bound.text}) AS _view({', '.join(names)})", columns, origins)

    def _range(self, node: exp.Table, scope: Scope) -> str:
        binder = self._expressions(Scope(), {})
        values = [to(binder.value(argument), t.BigInt()) for argument in node.this.expressions]
        alias = node.args.get("alias")
        name = alias.name if alias is not None and alias.name else "range"
        given = [column.name for column in alias.columns] if alias is not None else []
        column = given[0] if given else "id"
        scope.relations.append(Relation(name, [(column, t.BigInt())]))
        return f"range({', '.join(values)}) AS {quoted(name)}({quoted(column)})"

    def _unnest(self, node: exp.Unnest, scope: Scope, ctes: Mapping[str, _Cte]) -> str:
        binder = self._expressions(scope, ctes)
        value = binder.value(node.expressions[0])
        if not isinstance(value.type, t.Array):
            raise InvalidInputError(f"cannot unnest {value.name}: it is {value.type}, not an ARRAY.")
        alias = node.args.get("alias")
        name = alias.name if alias is not None and alias.name else "_unnest"
        columns = [column.name for column in alias.columns] if alias is not None else []
        column = columns[0] if columns else "col"
        scope.relations.append(Relation(name, [(column, value.type.element)]))
        return f"LATERAL (SELECT unnest({value.text})) AS {quoted(name)}({quoted(column)})"

    def _lateral_view(self, node: exp.Lateral, scope: Scope, ctes: Mapping[str, _Cte]) -> str:
        name = _generator(node.this)
        if name is None:
            what = node.this.sql(dialect=Queries)[:80]
            raise UnsupportedError(f"cannot run LATERAL VIEW {what} in this process. Run the statement on Spark.")
        alias = node.args["alias"]
        view = alias.name or self._unnamed()
        self._check_alias(view, scope)
        given = [column.name for column in alias.columns]
        outer = name.endswith("outer") or bool(node.args.get("outer"))
        columns, text = self._generate(node.this, scope, ctes, view, given)
        scope.relations.append(Relation(view, columns))
        return f" {'LEFT' if outer else 'INNER'} JOIN LATERAL {text} ON TRUE"

    def _unnamed(self) -> str:
        self.aliases += 1
        return f"_t{self.aliases}"

    def _generate(
        self, node: exp.Expression, scope: Scope, ctes: Mapping[str, _Cte], view: str, given: Sequence[str]
    ) -> tuple[Columns, str]:
        """Return the columns of a call such as explode(a), and a query for its rows.

        Args:
            scope: of its argument.
            view: the name of the query.
            given: names of its columns; none: as Spark calls them.
        """
        name = _generator(node) or ""
        made: list[tuple[str, t.DataType, str]] = []
        if name == "json_tuple":
            texts = json_tuple([self._expressions(scope, ctes).value(argument) for argument in node.expressions])
            made = [(f"c{i}", t.string(), text) for i, text in enumerate(texts)]
            return _generated(made, given, name, view)
        if len(node.expressions) != 1:
            raise InvalidInputError(f"cannot call {name} with {len(node.expressions)} arguments: it takes 1.")
        value = self._expressions(scope, ctes).value(node.expressions[0])
        listed = value.text
        match value.type:
            case t.Array(element=t.Row(fields=fields)) if name.startswith("inline"):
                for f in fields:
                    field_of = f"list_transform({value.text}, lambda _e: _e.{quoted(f.name)})"
                    made.append((f.name, f.type, f"unnest({field_of})"))
            case t.Array(element=element) if not name.startswith("inline"):
                made.append(("col", element, f"unnest({value.text})"))
            case t.Map(key=key, value=item) if not name.startswith("inline"):
                listed = f"map_keys({value.text})"
                made.append(("key", key, f"unnest({listed})"))
                made.append(("value", item, f"unnest(map_values({value.text}))"))
            case _:
                needs = "an ARRAY of ROWs" if name.startswith("inline") else "an ARRAY or a MAP"
                raise InvalidInputError(f"cannot call {name}: {value.name} is {value.type}, not {needs}.")
        if name.startswith("pos"):
            made.insert(0, ("pos", t.Int(), f"CAST(generate_subscripts({listed}, 1) - 1 AS INTEGER)"))
        return _generated(made, given, name, view)

    def _join(self, join: exp.Join, scope: Scope, ctes: Mapping[str, _Cte]) -> str:
        side, kind, method = (str(join.args.get(key) or "").upper() for key in ("side", "kind", "method"))
        before = len(scope.relations)
        if kind in ("SEMI", "ANTI"):
            if side in ("RIGHT", "FULL") or method:
                form = " ".join(word for word in (method, side, kind) if word)
                raise InvalidInputError(f"there is no {form} JOIN. Write LEFT {kind} JOIN with ON or USING.")
            inner = Scope(scope.parent, relations=list(scope.relations), merged=dict(scope.merged))
            right = self._relation(join.this, inner, ctes)
            names = [item.name for item in join.args.get("using") or []]
            on = join.args.get("on")
            test = "TRUE"
            if names:
                test = self._using(names, inner, before, side)
            elif on is not None:
                test = self._expressions(inner, ctes).condition(on, "ON")
            return f" {kind} JOIN {right} ON {test}"
        right = self._relation(join.this, scope, ctes)
        new = scope.relations[before:]
        if side in ("RIGHT", "FULL"):
            for relation in scope.relations[:before]:
                relation.may_lack = True
        if side in ("LEFT", "FULL"):
            for relation in new:
                relation.may_lack = True
        using = [item.name for item in join.args.get("using") or []]
        if method == "NATURAL":
            left = {name.lower() for relation in scope.relations[:before] for name, _ in relation.columns}
            using = [name for relation in new for name, _ in relation.columns if name.lower() in left]
        word = f" {side} JOIN " if side in _OUTER else " JOIN "
        if using:
            return word + right + f" ON {self._using(using, scope, before, side)}"
        on = join.args.get("on")
        if on is None:
            return (" CROSS JOIN " if side not in _OUTER else word) + right + (" ON TRUE" if side in _OUTER else "")
        text = self._expressions(scope, ctes).condition(on, "ON")
        if side not in _OUTER:
            self._push(on, scope)
        return word + right + f" ON {text}"

    def _using(self, names: Sequence[str], scope: Scope, before: int, side: str) -> str:
        conditions = []
        for name in names:
            merged = scope.merged.pop(name.lower(), None)
            left = merged or _only(scope.relations[:before], name)
            right = _only(scope.relations[before:], name)
            kind = common([left, right], "join with USING")
            a, b = to(left, kind), to(right, kind)
            conditions.append(f"{a} = {b}")
            text = {"RIGHT": b, "FULL": f"coalesce({a}, {b})"}.get(side, a)
            scope.merged[name.lower()] = Value(text, kind, left.name)
        return " AND ".join(conditions)

    # GROUP BY, ORDER BY, LIMIT

    def _group(self, node: exp.Select, scope: Scope, binder: Expressions, items: list[Value]) -> str:
        group = node.args.get("group")
        if group is None:
            return ""
        if group.args.get("all"):
            return " GROUP BY ALL"
        aliases, scope.aliases = scope.aliases, {}

        keys: list[str] = []

        def one(item: exp.Expression) -> str:
            text = part(item)
            if not isinstance(item, exp.Tuple | exp.Paren | exp.Rollup | exp.Cube | exp.GroupingSets):
                keys.extend([text] if text not in keys else [])
            return text

        def part(item: exp.Expression) -> str:
            if isinstance(item, exp.Literal) and not item.is_string:
                return noted(_ordinal(item, items, "GROUP BY"))
            if isinstance(item, exp.Tuple):
                return "(" + ", ".join(one(inner) for inner in item.expressions) + ")"
            if isinstance(item, exp.Paren):
                return f"({one(item.this)})"
            if isinstance(item, exp.Rollup | exp.Cube):
                word = "ROLLUP" if isinstance(item, exp.Rollup) else "CUBE"
                return f"{word} ({', '.join(one(inner) for inner in item.expressions)})"
            if isinstance(item, exp.GroupingSets):
                return f"GROUPING SETS ({', '.join(_set(inner, one) for inner in item.expressions)})"
            try:
                return noted(binder.value(item))
            except InvalidInputError:
                if isinstance(item, exp.Column) and not item.table and item.name.lower() in aliases:
                    return noted(aliases[item.name.lower()])
                raise

        def noted(value: Value) -> str:
            if positive_zero(value) is not value:  # what is computed from the key sees the zero of the group
                binder.are_keys_bound = True
            return value.text

        parts = [one(item) for item in group.expressions]
        for key, word in (("rollup", "ROLLUP"), ("cube", "CUBE")):
            for made in group.args.get(key) or []:
                if made.expressions:
                    parts.append(f"{word} ({', '.join(one(item) for item in made.expressions)})")
                else:  # WITH ROLLUP
                    parts = [f"{word} ({', '.join(parts)})"]
        for number, made in enumerate(group.args.get("grouping_sets") or []):
            sets = f"GROUPING SETS ({', '.join(_set(item, one) for item in made.expressions)})"
            parts = [sets] if number == 0 else [*parts, sets]  # GROUP BY a, b GROUPING SETS (...) lists the columns
        scope.aliases = aliases
        self._check_grouping(group, binder, keys)
        self._check_grouped(node, binder)
        return " GROUP BY " + ", ".join(parts)

    def _check_grouping(self, group: exp.Group, binder: Expressions, keys: Sequence[str]) -> None:
        """Raise an error for grouping() of something else than a key of ROLLUP, CUBE or GROUPING SETS."""
        binder.keys = keys
        if binder.grouping is None:
            return
        if not _has_sets(group):
            raise InvalidInputError("grouping and grouping_id need GROUP BY with ROLLUP, CUBE or GROUPING SETS.")
        for value in binder.grouping:
            if value.text not in keys:
                raise InvalidInputError(f"grouping({value.name}): GROUP BY does not have it.")

    def _check_grouped(self, node: exp.Select, binder: Expressions) -> None:
        """DuckDB finds columns that are neither grouped nor aggregated; the message is made in `duck`."""

    def _order(
        self,
        node: exp.Expression,
        scope: Scope,
        binder: Expressions,
        items: list[Value],
        names: Sequence[str],
        ambiguous: frozenset[str],
    ) -> str:
        order = node.args.get("order") or node.args.get("sort")
        if order is None:
            return ""
        parts = []
        for item in order.expressions:
            inner = item.this if isinstance(item, exp.Ordered) else item
            if _is_constant(inner):
                continue
            if isinstance(inner, exp.Literal):
                value = _ordinal(inner, items, "ORDER BY")
                parts.append(sort_key(quoted(names[int(inner.name) - 1]), value.type, direction(item)))
                continue
            if isinstance(inner, exp.Column) and not inner.table and inner.name.lower() not in ambiguous:
                places = [i for i, value in enumerate(items) if value.name.lower() == inner.name.lower()]
                if places:
                    kind = items[places[0]].type
                    parts.append(sort_key(quoted(names[places[0]]), kind, direction(item)))
                    continue
            binder.in_order = True  # names there mean aliases before columns
            value = binder.value(inner)
            binder.in_order = False
            same = [i for i, own in enumerate(items) if own.text == value.text]
            parts.append(sort_key(quoted(names[same[0]]) if same else value.text, value.type, direction(item)))
        return " ORDER BY " + ", ".join(parts) if parts else ""

    def _limit(self, node: exp.Expression, binder: Expressions) -> str:
        text = ""
        limit, offset = node.args.get("limit"), node.args.get("offset")
        if limit is not None:
            count = limit.expression if isinstance(limit, exp.Limit) else limit.args.get("count")
            if count is not None and not (isinstance(count, exp.Var) and count.name.upper() == "ALL"):
                text += f" LIMIT {_number_of_rows(count, binder, 'LIMIT')}"
        if offset is not None:
            text += f" OFFSET {_number_of_rows(offset.expression, binder, 'OFFSET')}"
        return text

    def _limited(self, node: exp.Expression, bound: Bound, parent: Scope | None, ctes: Mapping[str, _Cte]) -> Bound:
        """Add ORDER BY and LIMIT of a query in brackets or of a set operation."""
        if not (node.args.get("order") or node.args.get("limit") or node.args.get("offset")):
            return bound
        names, kinds = _distinct([name for name, _ in bound.columns]), [kind for _, kind in bound.columns]
        scope = Scope(
            parent, relations=[Relation("_q", list(zip(names, kinds, strict=True)), ambiguous=bound.ambiguous)]
        )
        binder = self._expressions(scope, ctes)
        items = [scope.relations[0].value(i) for i in range(len(names))]
        order = self._order(node, scope, binder, items, names, bound.ambiguous)
        limit = self._limit(node, binder)
        listed = ", ".join(quoted(name) for name in names)
        return Bound(
            f"SELECT {listed} FROM ({bound.text}) AS _q({listed}){order}{limit}",
            bound.columns,
            ambiguous=bound.ambiguous,
        )

    # set operations and VALUES

    def _set_operation(self, node: exp.SetOperation, parent: Scope | None, ctes: Mapping[str, _Cte]) -> Bound:
        left, right = self.query(node.left, parent, ctes), self.query(node.right, parent, ctes)
        word = _SETS[type(node)]
        if len(left.columns) != len(right.columns):
            raise InvalidInputError(
                f"{word} needs equal numbers of columns: the first query has {len(left.columns)}, the other "
                f"{len(right.columns)}."
            )
        kinds = [
            common([Value("", a, name), Value("", b, other)], f"make a {word}")
            for (name, a), (other, b) in zip(left.columns, right.columns, strict=True)
        ]
        distinct = node.args.get("distinct")
        sides = [_as(bound, kinds) for bound in (left, right)]
        text = f"({sides[0]}) {word}{'' if distinct or distinct is None else ' ALL'} ({sides[1]})"
        if distinct or distinct is None:
            columns = [Value(f'"c{i}"', kind) for i, kind in enumerate(kinds)]
            nested = isinstance(node, exp.Union)  # INTERSECT and EXCEPT give rows of the first side
            made = [positive_zero(column, nested=nested) for column in columns]
            shown, listed = (", ".join(value.text for value in row) for row in (made, columns))
            text = f"SELECT {shown} FROM ({text}) AS _set({listed})"
        names = [name for name, _ in left.columns]
        bound = Bound(text, list(zip(names, kinds, strict=True)), ambiguous=left.ambiguous)
        return self._limited(node, bound, parent, ctes)

    def _values(self, node: exp.Values, parent: Scope | None, ctes: Mapping[str, _Cte]) -> Bound:
        binder = self._expressions(Scope(parent), ctes)
        rows = [
            [binder.value(item) for item in (row.expressions if isinstance(row, exp.Tuple) else [row])]
            for row in node.expressions
        ]
        width = len(rows[0])
        for number, row in enumerate(rows, 1):
            if len(row) != width:
                raise InvalidInputError(
                    f"row {number} of VALUES has {counted(len(row), 'value')}, and the first one has {width}."
                )
        kinds = [common([row[i] for row in rows], "list in VALUES") for i in range(width)]
        made = ", ".join(
            "("
            + ", ".join(
                to(value, kind) if not is_null(kind) else "NULL" for value, kind in zip(row, kinds, strict=True)
            )
            + ")"
            for row in rows
        )
        columns = [(f"col{i}", kind) for i, kind in enumerate(kinds, 1)]
        return Bound(f"SELECT * FROM (VALUES {made})", columns)

    # what goes down into the scans

    def _push(self, condition: exp.Expression, scope: Scope) -> bool:
        """Give tables the conditions on their columns alone, which stay in the query; return whether all were given."""
        parts = _conjuncts(condition)
        return sum(self._push_one(part, scope) for part in parts) == len(parts)

    def _push_one(self, part: exp.Expression, scope: Scope) -> bool:
        if part.find(exp.Query) is not None or any(_is_moved_time(item) for item in part.find_all(exp.Add, exp.Sub)):
            return False
        owners = {id(found): found for found in (_owner(column, scope) for column in part.find_all(exp.Column))}
        relation = next(iter(owners.values())) if len(owners) == 1 else None
        if relation is None or relation.may_lack:
            return False
        bare, reference = _bare(part, relation, scope), relation.reference
        if reference is None and (reference := _moved(bare, relation)) is None:
            return False
        try:
            text = bare.sql(dialect=Queries)
            predicate = parse_predicate(text, reference.source.fields, setting=self.setting)
        except MerganserError:
            return False  # the query itself tests it
        reference.filters.append(predicate)
        return relation.reference is not None

    def _push_limit(self, node: exp.Select, first: int, scope: Scope) -> bool:
        """Read no more rows than a LIMIT asks for; return whether the query gives rows of one table as they are."""
        mine = self.references[first:]
        if [relation.reference for relation in scope.relations] != mine:
            return False  # of a view or subquery, which may leave rows out
        if len(mine) != 1 or node.args.get("joins") or node.args.get("laterals") or node.find(exp.Window):
            return False
        from_ = node.args.get("from_")
        if from_ is None or not isinstance(from_.this, exp.Table) or node.args.get("offset") is not None:
            return False
        limit = node.args.get("limit")
        if limit is None:
            return True
        count = limit.expression if isinstance(limit, exp.Limit) else None
        if not isinstance(count, exp.Literal) or not count.name.isdigit():
            return False
        mine[0].limit = int(count.name)
        return True


def bind(tree: exp.Expression, resolve: Resolve, setting: Setting) -> BoundQuery:
    """Bind a query.

    Args:
        tree: of `merganser.sql.trees`.
        resolve: the table that a reference means.
        setting: the time zone and the time.

    Raises:
        NotFoundError: there is no such table.
        InvalidInputError: an unknown column or function, or types that do not fit.
        UnsupportedError: something that this process would compute otherwise than Spark.
    """
    binder = _Binder(resolve, setting, top=tree)
    bound = binder.query(tree, None, {})
    names = [name for name, _ in bound.columns]
    kinds = [kind for _, kind in bound.columns]
    return BoundQuery(names, kinds, binder.references, _typed(bound), setting, binder.plain)


def _names(node: exp.Expression, name: str) -> bool:
    """Return whether a query reads something of a name."""
    return any(len(table.parts) == 1 and table.name.lower() == name.lower() for table in node.find_all(exp.Table))


def _number_of_rows(node: exp.Expression, binder: Expressions, word: str) -> str:
    if node.find(exp.Column) is not None or (isinstance(node, exp.Neg) and node.find(exp.Literal) is not None):
        given = node.sql(dialect=Queries)
        raise InvalidInputError(f"cannot run the query: {word} takes a number of rows, 0 or more, and not {given}.")
    return binder.value(node).text


def _is_moved_time(node: exp.Expression) -> bool:
    """Return whether a node is TIMESTAMP '...' plus an interval: an instant here, and a wall clock in a filter."""
    return node.find(exp.Interval) is not None and node.find(exp.Cast) is not None and node.find(exp.Column) is None


def _check_syntax(tree: exp.Expression) -> None:
    """Raise an error for forms that sqlglot reads and Spark does not."""
    for node in tree.walk():
        match node:
            case exp.Fetch():
                form, instead = "FETCH FIRST", "LIMIT n"
            case exp.LimitOptions():
                form, instead = "LIMIT with PERCENT or WITH TIES", "LIMIT n"
            case exp.Between() if node.args.get("symmetric"):
                form, instead = "BETWEEN SYMMETRIC", "BETWEEN least(a, b) AND greatest(a, b)"
            case exp.Distinct() if node.args.get("on") is not None:
                form, instead = "DISTINCT ON", "row_number() OVER (PARTITION BY ...) = 1 in QUALIFY"
            case exp.WindowSpec() if node.args.get("exclude"):
                form, instead = "EXCLUDE in a window", "a frame without it"
            case exp.WindowSpec() if str(node.args.get("kind") or "").upper() == "GROUPS":
                form, instead = "GROUPS in a window", "ROWS or RANGE"
            case exp.Select() if node.args.get("sample") is not None:
                form, instead = "USING SAMPLE", "TABLESAMPLE"
            case _:
                continue
        raise InvalidInputError(f"cannot run the query: SQL of this catalog has no {form}. Write {instead}.")


def _generator(node: exp.Expression) -> str | None:
    """Return the name of a function that gives rows; None if the expression calls none."""
    name = node.name.lower() if isinstance(node, exp.Anonymous) else ""
    return name if name in GENERATORS else None


def _generated(
    made: Sequence[tuple[str, t.DataType, str]], given: Sequence[str], name: str, view: str
) -> tuple[Columns, str]:
    columns = _unique(_renamed([(own, kind) for own, kind, _ in made], given, name))
    names = ", ".join(quoted(column) for column, _ in columns)
    return columns, f"(SELECT {', '.join(text for _, _, text in made)}) AS {quoted(view)}({names})"


_WINDOWS: Final = re.compile(re.escape(SPEC).replace(r"\{\}", "([^\x04\x05]*)"))


def _windowed(text: str, keys: Sequence[str]) -> str:
    """Return a text whose windows are sorted by what DuckDB takes there; keys of GROUP BY stay what they are."""

    def made(found: re.Match[str]) -> str:
        parts = re.split("(" + "|".join(re.escape(key) for key in sorted(keys, key=len, reverse=True)) + ")", found[1])
        return "".join(part if part in keys else stable(part) for part in parts) if keys else stable(found[1])

    return _WINDOWS.sub(made, text)


def _is_constant(node: exp.Expression) -> bool:
    """Return whether an item of ORDER BY is a constant and no position: rows are not sorted by it."""
    if isinstance(node, exp.Literal):
        return node.is_string or not node.name.isdigit()
    return isinstance(node, exp.Null | exp.Boolean)


def _has_sets(group: exp.Group | None) -> bool:
    """Return whether GROUP BY has ROLLUP, CUBE or GROUPING SETS."""
    if group is None:
        return False
    inside = any(isinstance(item, exp.Rollup | exp.Cube | exp.GroupingSets) for item in group.expressions)
    return inside or any(group.args.get(key) for key in ("rollup", "cube", "grouping_sets"))


def _sample(node: exp.TableSample) -> str:
    """Return a sample as DuckDB takes it: Spark keeps each row with a probability, or the first rows."""
    if node.args.get("seed") is not None:
        raise UnsupportedError("cannot run TABLESAMPLE with REPEATABLE in this process. Run the statement on Spark.")
    percent, size = node.args.get("percent"), node.args.get("size")
    if size is not None:
        if not size.name.isdigit():
            raise InvalidInputError(f"cannot sample {size.name} rows. Give a number of rows, 0 or more.")
        return f"LIMIT {size.name}"
    try:
        if percent is not None:
            share = float(percent.name)
        else:
            share = 100 * int(node.args["bucket_numerator"].name) / int(node.args["bucket_denominator"].name)
    except (KeyError, ValueError, ZeroDivisionError, AttributeError) as error:
        raise InvalidInputError("cannot run TABLESAMPLE: give (n PERCENT), (n ROWS) or (BUCKET i OUT OF n).") from error
    if not 0 <= share <= 100:
        raise InvalidInputError(f"cannot sample {share:g} percent of the rows. Give 0 to 100.")
    return "" if share == 100 else "LIMIT 0" if share == 0 else f"USING SAMPLE {share} PERCENT (bernoulli)"


def _plain(items: Sequence[Value], scope: Scope) -> list[str] | None:
    """Return the columns of a table that a list of SELECT names, if it names nothing else."""
    if len(scope.relations) != 1 or scope.relations[0].reference is None:
        return None
    relation = scope.relations[0]
    names = {f"{quoted(relation.alias)}.{quoted(name)}": name for name, _ in relation.columns}
    return [names[item.text] for item in items] if all(item.text in names for item in items) else None


def _typed(bound: Bound) -> str:
    """Return the text of a query whose columns have Spark's types for certain."""
    names = [f"c{i}" for i in range(len(bound.columns))]
    shown = ", ".join(
        f'"{name}"' if is_null(kind) else f'CAST("{name}" AS {duck(kind)}) AS "{name}"'
        for name, (_, kind) in zip(names, bound.columns, strict=True)
    )
    listed = ", ".join(f'"{name}"' for name in names)
    return f"SELECT {shown} FROM ({bound.text}) AS _result({listed})"


def _as(bound: Bound, kinds: Sequence[t.DataType]) -> str:
    names = [f"c{i}" for i in range(len(kinds))]
    shown = ", ".join(
        to(Value(f'"{name}"', own, name), kind) if not isinstance(kind, Null) else f'"{name}"'
        for name, (_, own), kind in zip(names, bound.columns, kinds, strict=True)
    )
    listed = ", ".join(f'"{name}"' for name in names)
    return f"SELECT {shown} FROM ({bound.text}) AS _side({listed})"


def _renamed(columns: Columns, given: Sequence[str], name: str) -> Columns:
    if not given:
        return columns
    if len(given) != len(columns):
        raise InvalidInputError(f"'{name}' names {len(given)} columns, and the query gives {len(columns)}.")
    return [(column, kind) for column, (_, kind) in zip(given, columns, strict=True)]


def _distinct(names: Sequence[str]) -> list[str]:
    """Return names of which none is another one in any case, since DuckDB takes them for one."""
    seen: set[str] = set()
    made = []
    for name in names:
        new, number = name or "_", 1  # DuckDB has no empty names
        while new.lower() in seen:
            new, number = f"{name}:{number}", number + 1
        seen.add(new.lower())
        made.append(new)
    return made


def _unique(columns: Columns) -> Columns:
    names = _distinct([name for name, _ in columns])
    return [(name, kind) for name, (_, kind) in zip(names, columns, strict=True)]


def _twice(names: Sequence[str]) -> frozenset[str]:
    """Return the names, in lower case, that are there more than once."""
    lower = [name.lower() for name in names]
    return frozenset(name for name in lower if lower.count(name) > 1)


def _ambiguous(items: Sequence[Value], aliases: Sequence[str | None], scope: Scope) -> frozenset[str]:
    """Return the names, in lower case, that several items of SELECT have, unless all are one column without an alias.

    A star over columns of one name keeps the name ambiguous.
    """
    columns = {f"{quoted(r.alias)}.{quoted(name)}": (r, name.lower()) for r in scope.relations for name, _ in r.columns}
    found: dict[str, set[str]] = {}
    kept = set()
    for i, (value, alias) in enumerate(zip(items, aliases, strict=True)):
        bare = columns.get(value.text) if alias is None else None
        found.setdefault(value.name.lower(), set()).add(value.text if bare is not None else f"{i}")
        if bare is not None and bare[1] in bare[0].ambiguous:
            kept.add(bare[1])
    return frozenset(kept | {name for name, made in found.items() if len(made) > 1})


def _ordinal(node: exp.Literal, items: Sequence[Value], what: str) -> Value:
    number = int(node.name) if node.name.isdigit() else 0
    if not 1 <= number <= len(items):
        raise InvalidInputError(f"{what} {node.name}: the list of SELECT has {len(items)} columns.")
    return items[number - 1]


def _set(item: exp.Expression, one: Callable[[exp.Expression], str]) -> str:
    if isinstance(item, exp.Tuple):
        return "(" + ", ".join(one(inner) for inner in item.expressions) + ")"
    return one(item) if isinstance(item, exp.Paren) else f"({one(item)})"


def _only(relations: Sequence[Relation], name: str) -> Value:
    found = [(relation, i) for relation in relations for i in relation.positions(name)]
    if len(found) != 1:
        many = "no column" if not found else "several columns"
        raise InvalidInputError(f"USING ({name}): a side has {many} '{name}'.")
    relation, position = found[0]
    return relation.value(position)


def _conjuncts(node: exp.Expression) -> list[exp.Expression]:
    if isinstance(node, exp.Paren):
        return _conjuncts(node.this)
    return [*_conjuncts(node.left), *_conjuncts(node.right)] if isinstance(node, exp.And) else [node]


def _owner(column: exp.Column, scope: Scope) -> Relation | None:
    parts = [part.name for part in column.parts]
    if parts[0].lower() in scope.merged:
        return None
    for taken in (3, 2, 1):
        if len(parts) >= taken and (found := scope._candidates(parts, taken)):
            return found[0][0] if len(found) == 1 else None
    return None


def _origin(value: Value, scope: Scope) -> tuple[Reference, str] | None:
    """Return the column of a table that a value is, if no join gives rows of nulls for it."""
    for relation in scope.relations:
        for name, _ in relation.columns:
            if value.text == f"{quoted(relation.alias)}.{quoted(name)}" and not relation.may_lack:
                return (relation.reference, name) if relation.reference is not None else relation.origins.get(name)
    return None


def _origins(columns: Columns, bound: Bound) -> dict[str, tuple[Reference, str]]:
    found = zip(columns, bound.origins, strict=False)
    return {name: origin for (name, _), origin in found if origin is not None}


def _moved(bare: exp.Expression, relation: Relation) -> Reference | None:
    """Let a condition on a subquery or view name the columns of the table that they are; None: they are not of one."""
    columns = list(bare.find_all(exp.Column))
    origins = [relation.origins.get(column.name) for column in columns]
    first = origins[0] if origins else None
    if first is None or any(origin is None or origin[0] is not first[0] for origin in origins):
        return None
    for column, origin in zip(columns, origins, strict=True):
        assert origin is not None
        column.set("this", exp.to_identifier(origin[1], quoted=True))
    return first[0]


def _bare(node: exp.Expression, relation: Relation, scope: Scope) -> exp.Expression:
    """Return a condition whose columns are named without their table."""

    def change(item: exp.Expression) -> exp.Expression:
        if not isinstance(item, exp.Column):
            return item
        parts = [part.copy() for part in item.parts]
        names = [part.name for part in parts]
        for taken in (3, 2):
            if len(names) >= taken and scope._candidates(names, taken):
                parts = parts[taken - 1 :]
                break
        place = relation.positions(parts[0].name)
        parts[0] = exp.to_identifier(relation.columns[place[0]][0] if place else parts[0].name, quoted=True)
        made: exp.Expression = exp.Column(this=parts[0])
        for part in parts[1:]:
            made = exp.Dot(this=made, expression=part)
        return made

    return node.copy().transform(change)

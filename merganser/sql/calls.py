"""Calls that are replaced before a query is bound: functions of the session, and functions that a catalog holds.

A call of a function of the catalog becomes its expression, with the arguments in the place of the parameters, so both
engines compute it as they compute the expression. As in Spark, a name without a database means a function of Spark if
there is one, and else one of the current database.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import sqlglot
from sqlglot import exp

from merganser.catalogs.definitions import SPARK, Function
from merganser.errors import InvalidInputError, MerganserError, NotFoundError, SqlSyntaxError, UnsupportedError
from merganser.options.registry import did_you_mean
from merganser.scan.rows import counted
from merganser.schema import types as t
from merganser.schema.types_text import number_fields
from merganser.sql.built_in import BUILT_IN
from merganser.sql.dialect import CAST, Queries
from merganser.sql.parse import parse_expression
from merganser.sql.places import AT
from merganser.sql.query.expressions import FUNCTIONS
from merganser.sql.query.functions import AGGREGATES, type_name
from merganser.sql.state import State
from merganser.sql.trees import TEXT

if TYPE_CHECKING:
    from merganser.sql.engine import Engine

_CHANGING: Final = frozenset(
    ("rand", "randn", "random", "randstr", "uniform", "uuid", "shuffle", "monotonically_increasing_id")
)
"""Functions of which two calls give two values."""


def with_session(state: State, tree: exp.Expression) -> exp.Expression:
    """Return a tree in which functions of the session are literals, and those of the catalog their expressions."""

    def change(node: exp.Expression) -> exp.Expression:
        name = node.name.lower() if isinstance(node, exp.Anonymous) and not node.expressions else ""
        if name in ("current_database", "current_schema"):
            return _named(node, exp.Literal.string(state.database))
        if name == "current_catalog":
            return _named(node, exp.Literal.string(state.catalog_name))
        return node

    return changed(_with_functions(state, tree), change)


def changed(tree: exp.Expression, change: Callable[[exp.Expression], exp.Expression]) -> exp.Expression:
    """Return a transformed copy of a tree, without its text; the tree itself if there is nothing to change.

    Args:
        change: returns another node in the place of a node, or the node.
    """
    if all(change(node) is node for node in tree.walk()):
        return tree
    made: exp.Expression = tree.transform(change)
    made.meta.pop(TEXT, None)
    return made


def _named(node: exp.Expression, value: exp.Expression) -> exp.Expression:
    return exp.alias_(value, node.sql("spark").lower()) if isinstance(node.parent, exp.Select) else value


# functions of the catalog


def _with_functions(state: State, tree: exp.Expression) -> exp.Expression:
    """Return a tree in which calls of functions of the catalog are their expressions."""
    calls = [call for call in tree.find_all(exp.Anonymous) if _may_be_ours(state, call)]
    if not calls:
        return tree
    made = tree.copy()
    found = False
    for call in list(made.find_all(exp.Anonymous)):
        if not _may_be_ours(state, call):
            continue
        function = _function(state, call)
        if function is None:
            continue
        found = True
        whole = call.parent if isinstance(call.parent, exp.Dot) and call.arg_key == "expression" else call
        written = whole.sql(dialect=Queries, normalize_functions=False)
        arguments = [_with_functions(state, argument) for argument in call.expressions]
        value = _expression(state, function, arguments)
        is_item = whole.arg_key == "expressions" and isinstance(whole.parent, exp.Select)
        new = exp.alias_(value, written, quoted=True) if is_item else value
        if whole is made:
            return new
        whole.replace(new)
    if found:
        made.meta.pop(TEXT, None)
    return made


def _name_of(call: exp.Anonymous) -> tuple[str, ...]:
    """Return the parts of the name that is called."""
    parts: list[str] = [call.name]
    if isinstance(call.parent, exp.Dot) and call.arg_key == "expression":
        before: exp.Expression = call.parent.this
        while isinstance(before, exp.Dot):
            parts.append(before.expression.name)
            before = before.this
        if not isinstance(before, exp.Identifier | exp.Column):
            return ()
        parts += [part.name for part in reversed(before.parts)] if isinstance(before, exp.Column) else [before.name]
    return tuple(reversed(parts))


def _may_be_ours(state: State, call: exp.Anonymous) -> bool:
    if isinstance(call.parent, exp.Table | exp.Lateral):
        return False
    name = _name_of(call)
    if len(name) == 1:
        return holds(state) and name[0].lower() not in BUILT_IN and name[0].lower() not in FUNCTIONS
    return len(name) > 1


def own_functions(state: State, tree: exp.Expression) -> set[str]:
    """Return the names, in lower case, by which a query calls functions of the current database without naming it."""
    calls = [call for call in tree.find_all(exp.Anonymous) if _may_be_ours(state, call) and len(_name_of(call)) == 1]
    return {call.name.lower() for call in calls if _function(state, call) is not None}


def holds(state: State) -> bool:
    """Return whether the catalog of a session holds functions."""
    return getattr(getattr(state.catalog, "metastore", None), "definitions", None) is not None


def _function(state: State, call: exp.Anonymous) -> Function | None:
    """Return the function that is called; None: it may be one of the engine.

    Raises:
        NotFoundError: the name has a database, and there is no such function.
    """
    name = _name_of(call)
    full = state.full(name)
    try:
        return state.catalog.function(full)  # type: ignore[no-any-return]
    except NotFoundError as error:
        if len(name) == 1:
            return None
        database, _, own = full.partition(".")
        known = state.catalog.list_functions(database) if database in state.catalog.list_databases() else []
        hint = did_you_mean(own, known) if known else f"Database '{database}' has no functions."
        raise NotFoundError(f"there is no function '{full}'. {hint}", function=full) from error


def _expression(state: State, function: Function, arguments: Sequence[exp.Expression]) -> exp.Expression:
    """Return what a call of a function computes.

    Raises:
        InvalidInputError: it takes other arguments, or calls itself.
        UnsupportedError: it has no expression that merganser computes.
    """
    what = f"cannot call '{function.name}'"
    body = _body(state, function)
    fields = function.inputs or ()
    least = next((i for i, f in enumerate(fields) if f.default is not None), len(fields))
    if not least <= len(arguments) <= len(fields):
        takes = ", ".join(f"{f.name} {f.type}" for f in fields) or "none"
        raise InvalidInputError(
            f"{what} with {counted(len(arguments), 'argument')}: it takes {len(fields)} ({takes}).",
            function=function.name,
        )
    given = list(arguments) + [_default(state, function, f) for f in fields[len(arguments) :]]
    body = _apart(body, given)
    uses = _uses(function, body)
    for f, argument in zip(fields, given, strict=True):
        if uses.get(f.name.lower(), 0) > 1 and _changes(argument):
            raise UnsupportedError(
                f"{what}: it uses its parameter '{f.name}' {uses[f.name.lower()]} times, and each use of this argument "
                "would be another value. Compute the argument in a subquery, and pass its column.",
                function=function.name,
            )
    values = {f.name.lower(): cast_to(argument, f.type) for f, argument in zip(fields, given, strict=True)}
    made = _filled(function, body, values)
    return cast_to(made, function.returns[0].type) if function.returns else exp.Paren(this=made)


def _body(state: State, function: Function) -> exp.Expression:
    """Return the expression of a function, in which calls of other functions are theirs."""
    text = function.sql
    if text is None:
        kinds = ", ".join(f"'{name}' ({each.get('type')})" for name, each in function.definitions.items()) or "none"
        raise UnsupportedError(
            f"cannot call '{function.name}': merganser computes definitions in SQL, under the dialect '{SPARK}', and "
            f"the function has these: {kinds}. Call it in the engine that it is made for.",
            function=function.name,
        )
    try:
        tree = parse_expression(text)
    except SqlSyntaxError as error:
        raise UnsupportedError(
            f"cannot call '{function.name}': its definition {text!r:.100} is no expression that merganser computes.",
            function=function.name,
        ) from error
    return _computed(state, function, tree)


def _default(state: State, function: Function, parameter: t.Field) -> exp.Expression:
    """Return the default of a parameter.

    Raises:
        InvalidInputError: it names a parameter, or a column: that would be one of the table that the caller reads.
    """
    made = _computed(state, function, parse_expression(parameter.default or "NULL"))
    if (column := made.find(exp.Column)) is not None:
        raise InvalidInputError(
            f"the default of parameter '{parameter.name}' of function '{function.name}' names "
            f"'{column.sql(dialect=Queries)}', and defaults have no names: write a value.",
            function=function.name,
        )
    return made


def _computed(state: State, function: Function, tree: exp.Expression) -> exp.Expression:
    """Return an expression of a function, in which calls of other functions are theirs."""
    inner = state.inside(function.name)
    _check_body(tree, function)
    for node in tree.find_all(exp.Identifier):
        node.meta.pop(AT, None)  # a place in another text
    return _with_functions(inner, tree)


def _check_body(tree: exp.Expression, function: Function) -> None:
    what = None
    if tree.find(exp.Query) is not None:
        what = "a query"
    elif tree.find(exp.Window) is not None:
        what = "a window"
    elif calls := {call.name.lower() for call in tree.find_all(exp.Anonymous)} & set(AGGREGATES):
        what = f"the aggregate {sorted(calls)[0]}"
    if what is not None:
        raise UnsupportedError(
            f"the expression of function '{function.name}' has {what}, and merganser computes functions row by row. "
            "Use an expression over the parameters.",
            function=function.name,
        )


def _parameter(
    function: Function, names: Mapping[str, t.Field], column: exp.Column
) -> tuple[str, list[exp.Identifier]] | None:
    """Return the parameter that a column of an expression means, and the fields inside of it that it names."""
    parts = list(column.parts)
    if parts[0].name.lower() in names:
        return parts[0].name.lower(), parts[1:]
    own = function.name.partition(".")[2].lower()
    if len(parts) > 1 and parts[0].name.lower() == own and parts[1].name.lower() in names:
        return parts[1].name.lower(), parts[2:]
    return None


def _apart(body: exp.Expression, arguments: Sequence[exp.Expression]) -> exp.Expression:
    """Return an expression whose lambdas have parameters of their own names, which no argument has.

    Else a column of the caller would mean the parameter of a lambda, once it stands inside of that.
    """
    top = exp.Paren(this=body.copy())
    taken = {node.name.lower() for tree in (top, *arguments) for node in tree.find_all(exp.Identifier)}
    for made in reversed(list(top.find_all(exp.Lambda))):  # inner ones first: their parameters hide those around them
        names: dict[str, exp.Identifier] = {}
        for parameter in made.expressions:
            own = parameter.name.lower()
            number = next(n for n in itertools.count(1) if f"{own}_{n}" not in taken)
            names[own] = exp.to_identifier(f"{own}_{number}", quoted=parameter.args.get("quoted"))
            taken.add(names[own].name)
        made.set("expressions", [names[parameter.name.lower()].copy() for parameter in made.expressions])
        for node in list(made.this.find_all(exp.Identifier)):
            if node.name.lower() not in names or not _is_variable(node):
                continue
            new, column = names[node.name.lower()].copy(), node.parent
            if isinstance(column, exp.Column):  # the parser knows a parameter by its letters, and X -> x + 1 is one
                column.replace(exp.Dot.build([new, *column.parts[1:]]) if column.table else new)
            else:
                node.replace(new)
    return top.this  # type: ignore[no-any-return]


def _is_variable(name: exp.Identifier) -> bool:
    """Return whether a name is a value, rather than a part of another name, of a type or the like."""
    match name.parent:
        case exp.Column() as column:
            return column.parts[0] is name
        case exp.Dot() | exp.Lambda() | exp.Alias():
            return str(name.arg_key) == "this"
        case exp.ColumnDef() | exp.DataType():
            return False
    return True


def _uses(function: Function, body: exp.Expression) -> dict[str, int]:
    names = {f.name.lower(): f for f in function.inputs or ()}
    found: dict[str, int] = {}
    for column in body.find_all(exp.Column):
        meant = _parameter(function, names, column)
        if meant is not None:
            found[meant[0]] = found.get(meant[0], 0) + 1
    return found


def _changes(tree: exp.Expression) -> bool:
    return (
        any(call.name.lower() in _CHANGING for call in tree.find_all(exp.Anonymous)) or tree.find(exp.Rand) is not None
    )


def _filled(function: Function, body: exp.Expression, values: Mapping[str, exp.Expression]) -> exp.Expression:
    """Return an expression with values in the place of parameters."""
    names = {f.name.lower(): f for f in function.inputs or ()}
    top = exp.Paren(this=body.copy())
    for column in list(top.find_all(exp.Column)):
        meant = _parameter(function, names, column)
        if meant is None:
            known = ", ".join(f.name for f in function.inputs or ()) or "none"
            raise InvalidInputError(
                f"the expression of function '{function.name}' names '{column.sql(dialect=Queries)}', which is no "
                f"parameter. Its parameters are {known}.",
                function=function.name,
            )
        value = values[meant[0]].copy()
        column.replace(exp.Dot.build([value, *(part.copy() for part in meant[1])]) if meant[1] else value)
    return top


def cast_to(value: exp.Expression, kind: t.DataType) -> exp.Expression:
    """Return CAST(value AS kind)."""
    made = sqlglot.parse_one(f"CAST(NULL AS {type_name(kind)})", dialect=Queries)
    made.set("this", value.copy())
    made.meta[CAST] = True
    return made


def checked(state: State, engine: Engine, function: Function) -> Function:
    """Return a function whose expression is checked, with the type that it returns.

    Raises:
        InvalidInputError: the expression cannot be computed; the message says why. Nothing was changed.
    """
    what = f"cannot create function '{function.name}'"
    try:
        fields = function.inputs or ()
        _check_order(fields)
        own = replace(state, database=function.database)
        for field in fields:
            _default(own, function, field)
        body = _apart(_body(own, function), ())
        nulls = {f.name.lower(): cast_to(exp.Null(), f.type) for f in fields}
        made: exp.Expression = _filled(function, body, nulls)
        if function.returns:
            made = cast_to(made, function.returns[0].type)
        _, (kind, *_) = engine.described(state, exp.select(exp.alias_(made, "value")))
        returns = (
            function.returns
            or number_fields([t.Field(0, function.name.partition(".")[2], kind.with_nullable(True))])[0]
        )
    except MerganserError as error:
        error.message = f"{what}: {error.message.rstrip('.')}. Nothing was changed."
        raise
    return replace(function, returns=returns)


def _check_order(fields: Sequence[t.Field]) -> None:
    behind = [
        f.name for i, f in enumerate(fields) if f.default is None and any(b.default is not None for b in fields[:i])
    ]
    if behind:
        raise InvalidInputError(
            f"parameter '{behind[0]}' has no default and stands behind one that has. Move it forward."
        )

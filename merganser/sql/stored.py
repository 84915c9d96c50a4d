"""What a new view is made of: its columns, and the text that a catalog keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from merganser.errors import InvalidInputError, UnsupportedError
from merganser.schema import types as t
from merganser.schema.arrow import arrow_type
from merganser.schema.types_text import UNNUMBERED, number_fields
from merganser.sql.calls import with_session
from merganser.sql.engine import Engine
from merganser.sql.lineage import table_nodes
from merganser.sql.places import placed
from merganser.sql.sources import FUNCTIONS, Sources
from merganser.sql.state import State
from merganser.sql.view_texts import backticked, in_full, query_of


def described(
    state: State,
    engine: Engine,
    view: str,
    text: str,
    columns: Sequence[str | tuple[str, str | None]] | None = None,
    tree: exp.Expression | None = None,
) -> tuple[tuple[t.Field, ...], str]:
    """Return the columns of a new view, and the text of its query as it is stored.

    The text names each table with its database, so that it means the same in other sessions and engines. It also names
    the columns if they have other names than those of the query, or if they are not named there: a table may get more.

    Args:
        view: `database.view`.
        columns: names of the columns, perhaps with comments; None: those of the query.
        tree: the text as parsed; None: names in it are those of the database of the view.

    Raises:
        NotFoundError: the query reads a table that the catalog does not have.
        InvalidInputError: the query cannot run.
        UnsupportedError: a column has a type that no table has columns of.
    """
    what = f"cannot create view '{view}'"
    if tree is None:
        state = replace(state, database=view.partition(".")[0])
        tree = query_of(text, what)
    inner = replace(state, reads=(*state.reads, view))
    meant = with_session(inner, tree)
    _check_tables(inner, meant)
    names, types = engine.described(inner, meant)
    given = [(name, None) if isinstance(name, str) else name for name in columns or names]
    if len(given) != len(names):
        raise InvalidInputError(
            f"{what}: {len(given)} columns are named, and the query gives {len(names)} ({', '.join(names)}). Nothing "
            "was changed."
        )
    seen: dict[str, str] = {}
    for name, _ in given:
        if name.lower() in seen:
            raise InvalidInputError(
                f"{what}: it has two columns '{name}'. Nothing was changed. Give one of them another name.", column=name
            )
        seen[name.lower()] = name
    fields = [
        t.Field(UNNUMBERED, name, nullable_throughout(kind), comment)
        for (name, comment), kind in zip(given, types, strict=True)
    ]
    for field in fields:
        check_stored_type(field, what)
    stored = in_full(text, state).strip().rstrip(";").rstrip()
    renamed = [name for name, _ in given] != list(names)
    if renamed or _has_star(tree):
        stored = _with_names(stored, names, [name for name, _ in given], twice=len(set(_lower(names))) < len(names))
    return number_fields(fields)[0], stored


def _lower(names: Sequence[str]) -> list[str]:
    return [name.lower() for name in names]


def _with_names(text: str, names: Sequence[str], new: Sequence[str], *, twice: bool) -> str:
    if twice:
        return f"SELECT * FROM (\n{text}\n) AS `_view`({', '.join(map(backticked, new))})"
    shown = ", ".join(
        backticked(name) if name == other else f"{backticked(name)} AS {backticked(other)}"
        for name, other in zip(names, new, strict=True)
    )
    return f"SELECT {shown} FROM (\n{text}\n) AS `_view`"


def _has_star(tree: exp.Expression) -> bool:
    """Return whether a query gives columns that it does not name."""
    match tree:
        case exp.SetOperation():
            return _has_star(tree.left)
        case exp.Subquery():
            return _has_star(tree.this)
        case exp.Select():
            items = (item.this if isinstance(item, exp.Column) else item for item in tree.expressions)
            return any(isinstance(item, exp.Star) for item in items)
    return isinstance(tree, exp.Table)


def _check_tables(state: State, tree: exp.Expression) -> None:
    """Refuse a query that reads something that the catalog does not have, such as a temporary view of Spark."""
    sources = Sources(state)
    for node in table_nodes(tree):
        if isinstance(node.this, exp.Func) and node.this.name.lower() not in FUNCTIONS:
            continue
        with placed(node):
            handle, _ = sources.found(node)
            if handle.name in state.reads:
                state.inside(handle.name)


def nullable_throughout(kind: t.DataType) -> t.DataType:
    """Return a type of which every part may be null; keys of maps stay as they are."""
    kind = kind.with_nullable(True)
    match kind:
        case t.Array():
            return t.Array(element=nullable_throughout(kind.element))
        case t.Map():
            return t.Map(key=kind.key, value=nullable_throughout(kind.value))
        case t.Multiset():
            return t.Multiset(element=nullable_throughout(kind.element))
        case t.Row():
            return t.Row(
                fields=tuple(
                    t.Field(f.id, f.name, nullable_throughout(f.type), f.description, f.default) for f in kind.fields
                )
            )
    return kind


def check_stored_type(field: t.Field, what: str) -> None:
    """Refuse a column of a query with a type that no table has columns of.

    Raises:
        UnsupportedError: begins with `what`.
    """
    try:
        arrow_type(field.type)
    except UnsupportedError as error:
        raise UnsupportedError(
            f"{what}: column '{field.name}' of the query is {field.type}, which no table has columns of. CAST it.",
            column=field.name,
        ) from error

"""The text of a view: as a tree to read, and with the names of its tables in full to store."""

from __future__ import annotations

from sqlglot import exp

from merganser.catalogs.definitions import View
from merganser.errors import InvalidInputError, SqlSyntaxError
from merganser.sql import statements as s
from merganser.sql.calls import own_functions, with_session
from merganser.sql.lineage import table_nodes
from merganser.sql.parse import parse
from merganser.sql.places import AT
from merganser.sql.state import State
from merganser.sql.tokens import pieces


def tree_of(state: State, view: View) -> exp.Expression:
    """Return the query of a view.

    Args:
        state: inside of the view.

    Raises:
        InvalidInputError: the text is no query that merganser understands.
    """
    try:
        tree = query_of(view.sql, f"the view '{view.name}'").copy()
    except SqlSyntaxError as error:
        raise InvalidInputError(
            f"cannot read the view '{view.name}': its query is not understood here: {error.message}", table=view.name
        ) from error
    for node in tree.find_all(exp.Identifier):
        node.meta.pop(AT, None)  # a place in another text
    return with_session(state, tree)


def query_of(text: str, what: str) -> exp.Expression:
    """Return the tree of a text that is one query.

    Raises:
        InvalidInputError: it is another statement, or there are several.
    """
    parsed = parse(text)
    if len(parsed) != 1 or not isinstance(parsed[0], s.Query):
        raise InvalidInputError(f"{what} needs one query as its text: SELECT, VALUES, or WITH. Nothing was changed.")
    return parsed[0].tree


def in_full(text: str, state: State) -> str:
    """Return the text of a query with the database before names of tables and functions, and without the catalog."""
    tree = query_of(text, "a view")
    edits: list[tuple[int, int, str]] = []
    for node in table_nodes(tree):
        parts = node.parts
        if isinstance(node.this, exp.Func):
            continue
        start = int(parts[0].meta[AT])
        if len(parts) == 1:
            edits.append((start, start, f"{backticked(state.database)}."))
        elif len(parts) == 3:
            edits.append((start, int(parts[1].meta[AT]), ""))
    functions = own_functions(state, tree)
    tokens = pieces(text)[0].tokens
    for before, token, behind in zip([None, *tokens], tokens, tokens[1:], strict=False):
        is_call = behind.text == "(" and (before is None or before.text != ".")
        if is_call and token.text.lower() in functions:
            edits.append((int(token.start), int(token.start), f"{backticked(state.database)}."))
    out, at = "", 0
    for start, end, new in sorted(edits):
        out, at = out + text[at:start] + new, end
    return out + text[at:]


def backticked(name: str) -> str:
    """Return a name as it is safe in SQL, also if it is a keyword."""
    return "`" + name.replace("`", "``") + "`"

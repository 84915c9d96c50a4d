"""Where in a statement an error lies: the line and a caret under the name that is not known.

Names in trees carry their offsets in the whole text (`trees`). The binder notes the offset of a name in the context of
the error. For other errors about a name, it is looked for among the words of the statement, and has
a caret if it stands there once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

from sqlglot import exp

from merganser.errors import MerganserError
from merganser.sql.tokens import Piece, pieces, place, pointed

AT: Final = "merganser_at"
"""Under this name a node of a tree has the offset of its first letter in the text of the statements."""

_KINDS: Final = ("column", "function", "procedure", "option", "table")
"""Facts of errors that are names, the narrowest first."""


@contextlib.contextmanager
def placed(node: exp.Expression) -> Iterator[None]:
    """Note the place of a name in the errors that are raised inside."""
    try:
        yield
    except MerganserError as error:
        first = node.parts[0] if isinstance(node, exp.Column | exp.Table) else node
        at = first.meta.get(AT) if isinstance(first, exp.Expression) else None
        if at is not None:
            error.context.setdefault(AT, at)
        raise


def point(error: MerganserError, text: str, number: int) -> None:
    """Add line, column and caret to the message of an error, if the name that it is about is found.

    Args:
        text: of all statements.
        number: of the statement that failed, from 1.
    """
    at = error.context.pop(AT, None)
    if at is None and "line" not in error.context:
        known = next((error.context[kind] for kind in _KINDS if kind in error.context), None)
        at = _only(pieces(text)[number - 1], known)
    if at is not None:
        line, column = place(text, at)
        error.context["line"] = line
        error.message += f"\nline {line}, column {column}:\n{pointed(text, at)}"


def _only(piece: Piece, name: object) -> int | None:
    """Return the offset of a name, or of its last part, that stands once in a statement."""
    if not isinstance(name, str):
        return None
    lowered = name.lower()
    parts = lowered.partition("$")[0].split(".")
    words = [token.text.lower() for token in piece.tokens]
    for spelled in ([lowered], [word for part in parts for word in (".", part)][1:], parts[-1:]):
        found = [i for i in range(len(words)) if words[i : i + len(spelled)] == spelled]
        if len(found) == 1:
            return int(piece.tokens[found[0]].start)
    return None

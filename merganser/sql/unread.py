"""Queries that an engine understands, and the parser does not: their text, and the tables that they seem to read.

Of such a query nothing is known but its tokens. A name behind FROM, JOIN, TABLE, or a comma in a list of them may be a
table. If it is something else, such as the column in `extract(DAY FROM ts)`, no harm is done: the engine is offered a
table that it does not ask for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final

from sqlglot import exp
from sqlglot.tokens import Token, TokenType

from merganser.errors import UnsupportedError
from merganser.schema.types import quoted
from merganser.sql.dialect import Queries

_BEFORE_TABLES: Final = ("FROM", "JOIN", "TABLE")
_NO_TABLES: Final = ("SELECT", "VALUES", "LATERAL", "TABLE", "FROM", "WITH", "(")
_PLACES: Final = "merganser_places"


class Unread(exp.Expression):  # type: ignore[misc]
    """A query whose tree is not known.

    Its argument `this` is the text, `expressions` are the tables, each name once.
    """

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "expressions": True}


def unread(text: str) -> Unread:
    """Return a query that is a text."""
    tokens = Queries().tokenize(text)
    own = _common(tokens)
    found: dict[tuple[Any, ...], exp.Table] = {}
    i = 0
    while i < len(tokens):
        listed = _word(tokens, i) in _BEFORE_TABLES
        i += 1
        while listed:
            parts, end = _name(tokens, i)
            version, end = _version(tokens, end) if parts else (None, end)
            if not parts or (len(parts) == 1 and parts[0].lower() in own):
                i = max(i, end)
            else:
                node = found.setdefault((parts, version), _table(parts))
                node.set("version", version)
                node.meta.setdefault(_PLACES, []).append((tokens[i].start, tokens[end - 1].end + 1))
                i = end
            i, listed = _next_in_list(tokens, i) if parts else (i, False)
    return Unread(this=text, expressions=list(found.values()))


def with_tables(query: Unread, known: Sequence[exp.Table], views: Sequence[str]) -> str:
    """Return the text of a query with a common table expression for each table that is known.

    Args:
        known: tables of the query.
        views: what to select from for each of them; braces stay as they are.
    """
    text = query.this
    names = [node.name for node in known]
    edits: list[tuple[int, int, str]] = []
    common = []
    for node, view in zip(known, views, strict=True):
        parts = [part.name for part in node.parts]
        version = node.args.get("version")
        twice = [name.lower() for name in names].count(node.name.lower()) > 1
        whole = ".".join(parts) + (f" {version.name} {version.expression.name}" if version else "")
        name = quoted(whole if twice else node.name)
        common.append(f"{name} AS (SELECT * FROM {view})")
        edits += [(start, end, name) for start, end in node.meta[_PLACES] if len(parts) > 1 or version]
    out, at = "", 0
    if common:
        tokens = Queries().tokenize(text)
        with_own = _word(tokens, 0) == "WITH"
        recursive = with_own and _word(tokens, 1) == "RECURSIVE"
        out = f"WITH {'RECURSIVE ' if recursive else ''}{', '.join(common)}{',' if with_own else ''} "
        at = tokens[with_own + recursive].start
    for start, end, new in sorted(edits):
        out, at = out + escaped(text[at:start]) + escaped(new), end
    return out + escaped(text[at:])


def escaped(text: str) -> str:
    """Return a text in which Spark's formatting finds no braces."""
    return text.replace("{", "{{").replace("}", "}}")


def _word(tokens: Sequence[Token], i: int) -> str:
    plain = 0 <= i < len(tokens) and tokens[i].token_type not in (TokenType.STRING, TokenType.IDENTIFIER)
    return tokens[i].text.upper() if plain else ""


def _common(tokens: Sequence[Token]) -> set[str]:
    """Return the names of common table expressions, in lower case: `name AS (SELECT`, or `name (a, b) AS (`."""
    found = set()
    for i in range(1, len(tokens)):
        if _word(tokens, i) != "AS" or _word(tokens, i + 1) != "(":
            continue
        at = i - 1
        if _word(tokens, at) == ")":
            while at > 0 and _word(tokens, at) != "(":
                at -= 1
            at -= 1
        if at > 0 and _word(tokens, at - 1) in ("WITH", "RECURSIVE", ","):
            found.add(tokens[at].text.lower())
    return found


def _name(tokens: Sequence[Token], i: int) -> tuple[tuple[str, ...], int]:
    """Return the parts of the name that begins at a token, and the place behind it; no parts if there is none."""
    parts: list[str] = []
    while i < len(tokens) and tokens[i].token_type != TokenType.STRING and _word(tokens, i) not in _NO_TABLES:
        if tokens[i].token_type != TokenType.IDENTIFIER and not tokens[i].text[:1].isidentifier():
            break
        parts.append(tokens[i].text)
        i += 1
        if _word(tokens, i) != ".":
            break
        i += 1
    called = _word(tokens, i) == "("  # a function
    return ((), i) if called else (tuple(parts), i)


def _version(tokens: Sequence[Token], i: int) -> tuple[exp.Version | None, int]:
    """Return the version of a table behind its name, and the place behind it; None if there is none.

    Raises:
        UnsupportedError: the version is an expression.
    """
    word = _word(tokens, i)
    if word not in ("VERSION", "TIMESTAMP") or (_word(tokens, i + 1), _word(tokens, i + 2)) != ("AS", "OF"):
        return None, i
    token = tokens[i + 3] if i + 3 < len(tokens) else None
    if token is None or token.token_type not in (TokenType.STRING, TokenType.NUMBER):
        raise UnsupportedError(
            f"cannot run the query: Spark alone understands it, and then {word} AS OF takes a number or a text, and no "
            "expression. Nothing was run. Write the value, or write the query with SELECT."
        )
    value = exp.Literal(this=token.text, is_string=token.token_type == TokenType.STRING)
    return exp.Version(this=word, kind="AS OF", expression=value), i + 4


def _next_in_list(tokens: Sequence[Token], i: int) -> tuple[int, bool]:
    """Return the place of the next table of a list behind the name of one, and whether there is one."""
    at = i + 1 if _word(tokens, i) == "AS" else i
    if at < len(tokens) and (tokens[at].token_type in (TokenType.VAR, TokenType.IDENTIFIER)):
        at += 1
    return (at + 1, True) if _word(tokens, at) == "," else (i, False)


def _table(parts: Sequence[str]) -> exp.Table:
    named: list[Any] = [exp.to_identifier(part, quoted=True) for part in parts]
    keys = ("this", "db", "catalog")
    return exp.Table(**dict(zip(keys, reversed(named), strict=False)))

"""Columns and primary key as one text, in the words of CREATE TABLE -> fields of a new table.

    id BIGINT NOT NULL COMMENT 'of the order', name STRING DEFAULT 'none', PRIMARY KEY (id)

sqlglot's tokenizer cuts the text; types are those of the format, and `schema.types_text` reads them. A colon may stand
behind a name, as in Spark's own short form.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import sqlglot
from sqlglot.dialects.spark import Spark
from sqlglot.tokens import Token, TokenType

from merganser.errors import InvalidInputError
from merganser.rules.facts import refuse
from merganser.schema import types as t
from merganser.schema.types_text import UNNUMBERED, parse_type

_SHOWN_MAX: Final = 60
_ENDS: Final = frozenset({TokenType.COMMENT, TokenType.DEFAULT, TokenType.PRIMARY_KEY})
"""What may follow the type of a column, in any order."""


class _Definitions(Spark):  # type: ignore[misc]
    """Spark's dialect, in which a doubled quote inside a string is a quote, as in Spark 4 and standard SQL."""

    class Tokenizer(Spark.Tokenizer):  # type: ignore[misc]
        STRING_ESCAPES = ["\\", "'"]  # noqa: RUF012 - the parser's own convention


def columns_of_text(text: str, *, what: str) -> tuple[tuple[t.Field, ...], tuple[str, ...]]:
    """Return the columns that a text defines, and its primary key; () if it names none.

    Args:
        text: definitions separated by commas.
        what: beginning of messages, such as "cannot create 'db.orders'".

    Raises:
        InvalidInputError: a part is no definition of a column; names it.
    """
    try:
        tokens = _Definitions().tokenize(text)
    except sqlglot.errors.TokenError:
        refuse(what, f"the schema '{_short(text)}' has a quote or a comment that does not end.")
    fields: list[t.Field] = []
    key: tuple[str, ...] | None = None
    for part in _parts(tokens):
        column, own = (
            (None, _key_columns(part[1:])) if part[0].token_type == TokenType.PRIMARY_KEY else _column(part, text, what)
        )
        if own == ():
            refuse(what, f"'{_shown(part, text)}' names no columns. Write PRIMARY KEY (id).")
        if own is not None and key is not None:
            refuse(what, "the schema defines a primary key twice. Write PRIMARY KEY (a, b) once, behind the columns.")
        key = own or key
        fields += [column] if column is not None else []
    return tuple(fields), key or ()


def _parts(tokens: Sequence[Token]) -> Iterator[list[Token]]:
    """Yield the tokens between commas that stand in no brackets; empty parts are left out."""
    part: list[Token] = []
    depth = 0
    for token in tokens:
        depth += _depth(token)
        if token.token_type == TokenType.COMMA and not depth:
            yield from [part] if part else []
            part = []
        else:
            part.append(token)
    yield from [part] if part else []


def _depth(token: Token) -> int:
    """Return by how many levels a token goes into brackets, below 0 out of them."""
    return {TokenType.L_PAREN: 1, TokenType.LT: 1, TokenType.R_PAREN: -1, TokenType.GT: -1}.get(token.token_type, 0)


def _column(part: Sequence[Token], text: str, what: str) -> tuple[t.Field, tuple[str, ...] | None]:
    """Return a column, and itself as the primary key if it says so."""
    name, rest = part[0].text, list(part[1:])
    if rest and rest[0].token_type == TokenType.COLON:
        rest = rest[1:]
    depth, end = 0, len(rest)
    for i, token in enumerate(rest):
        depth += _depth(token)
        if not depth and token.token_type in _ENDS:
            end = i
            break
    if not end or part[0].token_type == TokenType.STRING:
        refuse(what, f"'{_shown(part, text)}' is no column. Write a name and a type, such as 'id BIGINT NOT NULL'.")
    try:
        kind = parse_type(text[rest[0].start : rest[end - 1].end + 1], definition=True)
    except InvalidInputError as error:
        raise InvalidInputError(f"{what}: column '{name}': {error.message}", column=name) from error
    found: dict[str, Any] = {}
    key = None
    left = rest[end:]
    while left:
        head, left = left[0], left[1:]
        match head.token_type:
            case TokenType.PRIMARY_KEY:
                key = (name,)
            case TokenType.COMMENT if left and left[0].token_type == TokenType.STRING:
                found["description"] = left.pop(0).text
            case TokenType.DEFAULT if left:
                sign = left.pop(0).text if left[0].token_type == TokenType.DASH and len(left) > 1 else ""
                found["default"] = sign + left.pop(0).text
            case TokenType.NOT if left and left[0].token_type == TokenType.NULL:
                left.pop(0)
                kind = kind.with_nullable(False)
            case TokenType.NOT if left and left[0].text.upper() == "ENFORCED":
                left.pop(0)
            case TokenType.NULL:
                kind = kind.with_nullable(True)
            case _:
                refuse(
                    what,
                    f"'{_shown([head, *left], text)}' behind column '{name}' is not understood. A type may be followed "
                    "by NOT NULL, COMMENT 'text', DEFAULT value and PRIMARY KEY.",
                    column=name,
                )
    return t.Field(UNNUMBERED, name, kind, **found), key


def _key_columns(tokens: Sequence[Token]) -> tuple[str, ...]:
    """Return the names in `(a, b)`, whatever follows."""
    if not tokens or tokens[0].token_type != TokenType.L_PAREN:
        return ()
    names: list[str] = []
    for token in tokens[1:]:
        if token.token_type == TokenType.R_PAREN:
            return tuple(names)
        if token.token_type != TokenType.COMMA:
            names.append(token.text)
    return ()


def _shown(tokens: Sequence[Token], text: str) -> str:
    return _short(text[tokens[0].start : tokens[-1].end + 1])


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN_MAX else text[:_SHOWN_MAX] + "..."

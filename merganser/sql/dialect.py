"""The dialect that queries are parsed in: Spark's, with functions left as they are written.

sqlglot gives many functions a node of their own, and changes their arguments on the way. Here each call stays a name
with arguments, so that one table (`query.functions`) says what it means.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.tokens import Token, TokenType

from merganser.expr.text import Dialect

_WITH_SYNTAX = ("CAST", "TRY_CAST", "EXTRACT", "TRIM", "SUBSTRING", "SUBSTR", "POSITION", "OVERLAY")
_QUOTED: Final = (TokenType.IDENTIFIER,)
CAST: Final = "merganser_cast"
"""Marks a CAST that is written so; `1L`, `DATE '2026-01-31'` and `a::INT` have the same tree."""
SUBSTR: Final = "merganser_substr"
"""Marks `substr(a, 1)`, which Spark calls so; `substr(a FROM 1)` it calls substring."""


def _substr(parse: Any) -> Any:
    def marked(parser: Any) -> Any:
        start = parser._index
        made = parse(parser)
        made.meta[SUBSTR] = all(token.text.upper() != "FROM" for token in parser._tokens[start : parser._index])
        return made

    return marked


def _casts(parse: Any) -> Any:
    def marked(parser: Any) -> Any:
        made = parse(parser)
        made.meta[CAST] = True
        return made

    return marked


class Queries(Dialect):  # type: ignore[misc]
    """Spark's dialect for whole queries."""

    SUPPORTS_VALUES_DEFAULT = (
        False  # DEFAULT is a column by its name; else `default.f(1)` in VALUES is none of a database
    )

    class Tokenizer(Dialect.Tokenizer):  # type: ignore[misc]
        """The tokenizer of Spark, for which `window` is a keyword only before a window with a name."""

        def tokenize(self, sql: str) -> list[Token]:
            """Return the tokens: sqlglot would end GROUP BY at `window(ts, '1 day')`, as if the WINDOW clause began."""
            tokens: list[Token] = super().tokenize(sql)
            for i, token in enumerate(tokens):
                if token.token_type == TokenType.WINDOW and (
                    i + 2 >= len(tokens) or tokens[i + 2].token_type != TokenType.ALIAS
                ):
                    token.token_type = TokenType.VAR
            return tokens

    class Parser(Dialect.Parser):  # type: ignore[misc]
        """The parser of Spark, without knowledge of functions."""

        STRICT_CAST = True
        SUPPORTS_TABLE_QUERY = True
        FUNCTIONS: ClassVar[dict[str, Any]] = {"ARRAY": exp.Array.from_arg_list}  # else array(a)[0] becomes array(0)
        FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            name: _casts(parse) if name.endswith("CAST") else _substr(parse) if name == "SUBSTR" else parse
            for name, parse in Spark.Parser.FUNCTION_PARSERS.items()
            if name in _WITH_SYNTAX
        }
        NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            name: parse
            for name, parse in Spark.Parser.NO_PAREN_FUNCTION_PARSERS.items()
            if name in ("CASE", "IF", "ANY")
        }

        def _parse_bracket(self, this: exp.Expression | None = None) -> Any:
            # sqlglot would take `array(1, 2)[0]` for the array [0], as a call is no node of its own here
            opens = self._curr is not None and self._curr.token_type == TokenType.L_BRACKET
            if opens and isinstance(this, exp.Anonymous) and this.name.upper() in self.ARRAY_CONSTRUCTORS:
                this = exp.Paren(this=this)
            return super()._parse_bracket(this)

        def _is_table_query(self) -> bool:
            # with quoted names; sqlglot knows bare ones
            found = self._curr is not None and self._curr.token_type == TokenType.TABLE and self._next is not None
            return found and (self._next.token_type in self.ID_VAR_TOKENS or self._next.token_type in _QUOTED)

        def _parse_cube_or_rollup(self, with_prefix: bool = False) -> exp.Cube | exp.Rollup | None:
            # sqlglot takes no comparisons in them
            kind = exp.Cube if self._match(TokenType.CUBE) else exp.Rollup if self._match(TokenType.ROLLUP) else None
            if kind is None:
                return None
            items = [] if with_prefix else self._parse_wrapped_csv(self._parse_disjunction)
            return self.expression(kind(expressions=items))

        def _parse_grouping_set(self) -> Any:
            return self._parse_grouping_sets() or self._parse_cube_or_rollup() or self._parse_disjunction()

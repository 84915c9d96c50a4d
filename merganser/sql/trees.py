"""Text of queries and expressions -> sqlglot trees, with table names and hints put where sqlglot keeps them.

`t$snapshots` becomes a quoted name. A hint `/*+ OPTIONS('k' = 'v') */` behind a table name is a comment for sqlglot, so
its options are put into the name: `t` becomes `` `t<NUL>{"k": "v"}` ``. `hinted` takes them apart again.
"""

from __future__ import annotations

import itertools
import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError
from sqlglot.tokens import Token, TokenType

from merganser.errors import InvalidInputError, SqlSyntaxError, a_type
from merganser.expr.text import missing_item
from merganser.options.registry import closest
from merganser.schema import types as t
from merganser.schema.arrow import type_from_arrow
from merganser.sql.dialect import Queries
from merganser.sql.places import AT
from merganser.sql.tokens import Cursor, Piece, fail, hyphen_advice, opens_parameter, pieces, word_at
from merganser.sql.unread import unread

MARK: Final = "\x00"
TEXT: Final = "merganser_text"
"""Under this name a parsed query has its text, to which the positions of its names refer."""
_QUOTED: Final = (TokenType.STRING, TokenType.IDENTIFIER)
_OF_LITERALS: Final = (t.VarChar, t.Int, t.Double, t.Boolean, t.Date)
"""Types that a literal of `literal` has by itself."""
_KEYWORDS: Final = (
    "SELECT", "FROM", "WHERE", "GROUP BY", "HAVING", "ORDER BY", "LIMIT", "UNION", "JOIN", "WITH", "VALUES",
    "AND", "OR",
)  # fmt: skip
_BEFORE_NAMES: Final = ("FROM", "JOIN", "AS")
_UNFINISHED: Final = {
    **dict.fromkeys(("WHERE", "HAVING", "ON", "AND", "OR", "NOT", "BETWEEN", "LIKE", "BY"), "an expression"),
    **dict.fromkeys(("FROM", "JOIN"), "the name of a table"),
    **dict.fromkeys(("UNION", "EXCEPT", "INTERSECT"), "a query"),
    "SELECT": "a column", "VALUES": "rows such as (1, 'a')", "LIMIT": "a number", "IN": "values in brackets",
}  # fmt: skip
"""Words behind which more must come, and what."""
_UNFINISHED_SIGNS: Final = ("=", "==", "<", ">", "<=", ">=", "<>", "!=", "<=>", "+", "-", "/", "||", "&", "|", "^")
_DIGITS_MAX: Final = 38
"""Of a DECIMAL."""
_LACKING: Final = re.compile(r"Required keyword: '(\w+)' missing for <class '[\w.]*?(\w+)'>")
_LACKED: Final = {"Between": "AND and a second value", "Union": "a query", "Values": "rows such as (1, 'a')"}
_WANTED: Final = re.compile(r"(?:Expecting|Expected) ([A-Z(),\]\[]+(?: after [A-Z]+)?)\.?$")
logging.getLogger("sqlglot").setLevel(logging.ERROR)  # else the parser prints what it could not parse


Takes: TypeAlias = Callable[[str], bool]
"""Tells whether an engine understands the text of a query."""


class Texts:
    """Parses parts of one statement.

    Args:
        takes: tells whether the engine understands a query that the parser does not; None: such queries are refused.
    """

    def __init__(self, piece: Piece, parameters: Mapping[str, Any], takes: Takes | None = None) -> None:
        self.piece = piece
        self.parameters = parameters
        self.takes = takes

    def query(self, start: int, end: int, *, alone: bool = False) -> exp.Expression:
        """Return the tree of a query between two offsets; an `Unread` if the engine alone understands it.

        Args:
            alone: a query that the parser does not understand is refused.

        Raises:
            SqlSyntaxError: the text is no query.
        """
        try:
            return self._query(start, end)
        except SqlSyntaxError:
            if self.takes is None or alone:
                raise
            text = self._prepared(start, end, filled=True)[0]
            if not self.takes(text):
                raise
            self._check_parameters(start, end)
            return unread(text)

    def _query(self, start: int, end: int) -> exp.Expression:
        tree = self._parse(start, end, None)
        if isinstance(tree, exp.MultitableInserts):
            fail(self.piece.text, start, "FROM ... INSERT is not supported: write INSERT INTO t SELECT ... FROM ...")
        if not isinstance(tree, exp.Query | exp.Values):
            fail(self.piece.text, start, "expected a query: SELECT, VALUES, WITH or a query in brackets.")
        if isinstance(tree, exp.Values):
            tree = exp.select("*").from_(exp.alias_(tree, "_values", table=True) if not tree.alias else tree)
        return tree

    def expression(self, start: int, end: int) -> exp.Expression:
        """Return the tree of an expression between two offsets.

        Raises:
            SqlSyntaxError: the text is no expression.
        """
        return self._parse(start, end, exp.Condition)

    def source(self, start: int, end: int) -> tuple[exp.Expression, str]:
        """Return the query that the source of a MERGE stands for, and the name it goes by."""
        text, tree = self.piece.text, self._parse_from(start, end)
        named = tree.args["from_"].this
        alias = named.alias or (named.name.partition(MARK)[0] if isinstance(named, exp.Table) else "")
        if not alias:
            fail(text, start, "the source needs a name: USING (...) AS s.")
        return tree, alias

    def _parse_from(self, start: int, end: int) -> exp.Expression:
        self._refuse_pipes(start, end)
        text, shifts = self._prepared(start, end)
        head = "SELECT * FROM "
        try:
            tree = sqlglot.parse_one(head + text, dialect=Queries)
        except ParseError:
            fail(self.piece.text, start, "expected a table, or a query in brackets, and its name.")
        _place_names(tree, shifts, start, len(head))
        for node in list(tree.find_all(exp.Placeholder)):
            node.replace(self._parameter(node, start, end))
        return tree

    def _parse(self, start: int, end: int, into: Any) -> exp.Expression:
        self._check_ends(start, end)
        self._refuse_pipes(start, end)
        text, shifts = self._prepared(start, end)
        try:
            tree = sqlglot.parse_one(text, dialect=Queries, **({} if into is None else {"into": into}))
        except ParseError as error:
            found = error.errors[0] if error.errors else {}
            offset = start
            if found.get("line"):
                lines = text.split("\n")
                at = sum(len(line) + 1 for line in lines[: found["line"] - 1]) + found["col"]
                at -= len(found.get("highlight") or "")
                offset = min(max(_back(at, shifts, start), start), end)
            self._refuse_scripts(start, end)
            misspelt, near = self._misspelt(offset, start)
            if near:
                fail(self.piece.text, misspelt, f"found {self._word(misspelt)}. Did you mean {near}?")
            fail(self.piece.text, *self._expected(str(found.get("description") or ""), offset, start, end))
        except RecursionError:
            fail(self.piece.text, start, "the expression is nested too deeply.")
        if tree is None:
            fail(self.piece.text, start, "expected an expression.")
        self._refuse(tree, start, end)
        _place_names(tree, shifts, start)
        if not tree.find(exp.Placeholder):
            tree.meta[TEXT] = text
        for node in list(tree.find_all(exp.Placeholder)):
            value = self._parameter(node, start, end)
            if node is tree:
                return value
            node.replace(value)
        return tree

    def _refuse(self, tree: exp.Expression, start: int, end: int) -> None:
        """Refuse forms that the parser takes and that no engine here runs, and versions that are not named."""
        for node in tree.find_all(exp.Version, exp.Lock, exp.Into, exp.Limit, exp.Select, exp.In):
            match node:
                case exp.Version() if not isinstance(node.expression, exp.Expression):
                    what = "a snapshot or a tag" if node.name.upper() == "VERSION" else "a time"
                    word, why = "OF", f"expected {what} behind OF"
                case exp.Lock():
                    word, why = "FOR", "rows are not locked: leave FOR UPDATE out"
                case exp.Into():
                    word, why = "INTO", "SELECT does not write: use INSERT INTO, or CREATE TABLE ... AS"
                case exp.Limit() if node.expressions:
                    word, why = "BY", "LIMIT has no BY: use row_number() in QUALIFY"
                case exp.In() if node.args.get("field") is not None:
                    word, why = "IN", "expected values in brackets behind IN"
                case exp.Select() if not node.expressions:
                    word, why = "SELECT", "expected an expression behind SELECT"
                case _:
                    continue
            tokens = self._tokens(start, end)
            places = [
                token
                for token, behind in itertools.zip_longest(tokens, tokens[1:])
                if token.text.upper() == word
                and (word != "SELECT" or behind is None or behind.text.upper() in ("FROM", "WHERE", ")"))
            ]
            fail(self.piece.text, places[-1].start if places else start, f"{why}.")

    def _refuse_pipes(self, start: int, end: int) -> None:
        """Refuse `FROM t |> WHERE a > 1`: the parser takes some of these queries for others."""
        for token in self._tokens(start, end):
            if token.token_type == TokenType.PIPE_GT:
                why = "queries with |> are not supported here: write SELECT ... FROM (SELECT ...)."
                fail(self.piece.text, token.start, why)

    def _refuse_scripts(self, start: int, end: int) -> None:
        """Refuse `SELECT TRANSFORM (a) USING 'script'`."""
        tokens = self._tokens(start, end)
        for before, token, behind in zip(tokens, tokens[1:], tokens[2:], strict=False):
            words = [each.text.upper() for each in (before, token, behind)]
            if words == ["SELECT", "TRANSFORM", "("] and any(each.text.upper() == "USING" for each in tokens):
                fail(self.piece.text, token.start, "SELECT TRANSFORM (...) USING is not supported here.")

    def _tokens(self, start: int, end: int) -> list[Token]:
        return [token for token in self.piece.tokens if start <= token.start < end]

    def _word(self, offset: int) -> str:
        token = next((token for token in self.piece.tokens if token.start >= offset), None)
        return "nothing" if token is None else f"{self.piece.text[token.start : token.end + 1]!r:.40}"

    def _before(self, tokens: Sequence[Token], at: int) -> str:
        """Return the word before a token as it was written."""
        token = tokens[at - 1]
        return self.piece.text[token.start : token.end + 1]

    def _check_ends(self, start: int, end: int) -> None:
        """Refuse a text that ends where an operator or a keyword wants more, and a list with a comma too many."""
        tokens = self._tokens(start, end)
        words = [word_at(tokens, i) for i in range(len(tokens))]
        for before, word, token in zip(words, words[1:], tokens[1:], strict=False):
            if before == "," and word == "FROM":
                fail(self.piece.text, token.start, f"expected an expression behind the comma; found {token.text!r}.")
        lacks = missing_item(tokens)
        if lacks is not None and 0 < lacks < len(tokens):
            behind = "the comma" if words[lacks - 1] == "," else words[lacks - 1]
            found = f"expected an expression behind {behind}; found {tokens[lacks].text!r}."
            fail(self.piece.text, tokens[lacks].start, found)
        if not words or (len(words) > 1 and words[-2] in (*_BEFORE_NAMES, ".", ",")):
            return
        what = "an expression" if words[-1] in (*_UNFINISHED_SIGNS, ",") else _UNFINISHED.get(words[-1])
        if what is not None:
            rest = [token for token in self.piece.tokens if token.start >= end]
            place = rest[0].start if rest else tokens[-1].end + 1
            found = f"found {self._word(place)}" if rest else "the statement ends"
            fail(self.piece.text, place, f"expected {what} behind {words[-1]}; {found}.")

    def _expected(self, description: str, offset: int, start: int, end: int) -> tuple[int, str]:
        """Return where an error of the parser lies, and what it says, in words of SQL."""
        tokens = self._tokens(start, end)
        at = next((i for i, token in enumerate(tokens) if token.end >= offset), len(tokens))
        word = tokens[at].text.upper() if at < len(tokens) else ""
        before = tokens[at - 1].text.upper() if 0 < at <= len(tokens) else ""
        found = f"found {self._word(offset)}" if at < len(tokens) else "the statement ends"
        if lacking := _LACKING.match(description):
            place = tokens[at + 1].start if at + 1 < len(tokens) else end
            next_one = f"found {self._word(place)}" if at + 1 < len(tokens) else "the statement ends"
            what = _LACKED.get(lacking[2], "an expression")
            return place, f"expected {what}{f' behind {self._before(tokens, at + 1)}' if word else ''}; {next_one}."
        if before in ("GROUP", "ORDER", "PARTITION", "CLUSTER", "DISTRIBUTE", "SORT"):
            return offset, f"expected BY behind {before}; {found}."
        if description.startswith("Expected table name"):
            return offset, f"expected the name of a table; {found}."
        if description.startswith("Expected TYPE"):
            return offset, f"expected a type such as INT or DECIMAL(10, 2); {found}."
        if wanted := _WANTED.match(description):
            # the parser stands behind the last word that it took, or on it
            if at + 1 == len(tokens) and wanted[1] == ")":
                return tokens[at].end + 1, "expected ); the statement ends."
            if wanted[1].startswith("END") and at + 1 < len(tokens):
                offset, found = tokens[at + 1].start, f"found {self._word(tokens[at + 1].start)}"
            return offset, f"expected {wanted[1]}; {found}."
        if at == len(tokens):
            return offset, "expected more; the statement ends."
        behind = f" behind {self._before(tokens, at)!r}" if before else ""
        is_keyword = word.isidentifier() and tokens[at].token_type not in (*_QUOTED, TokenType.VAR)
        advice = (
            f" Write `{tokens[at].text}` in backticks if it is a name." if is_keyword else hyphen_advice(tokens, at)
        )
        return offset, f"{self._word(offset)} cannot stand here{behind}.{advice}"

    def _misspelt(self, offset: int, start: int) -> tuple[int, str | None]:
        """Return where a keyword is misspelt, and the keyword: at an offset, or one word before it.

        In `SELECT * form t`, the parser takes `form` for a name and stops at `t`. Words behind FROM and JOIN are names.
        """
        tokens = [token for token in self.piece.tokens if token.start >= start]
        at = next((i for i, token in enumerate(tokens) if token.start >= offset), len(tokens))
        for i in (at - 1, at):
            if not 0 < i < len(tokens) or tokens[i - 1].text.upper() in (*_BEFORE_NAMES, ",", "."):
                continue
            word = tokens[i].text.upper()
            firsts = {keyword.split()[0]: keyword for keyword in _KEYWORDS}
            near = closest(word, list(firsts))
            if near is not None and near != word:
                return tokens[i].start, firsts[near]
        return offset, None

    def _prepared(self, start: int, end: int, *, filled: bool = False) -> tuple[str, list[tuple[int, int]]]:
        """Return the text with names and hints written as sqlglot takes them, and (offset there, offset here).

        Args:
            filled: with values in the place of parameters.
        """
        cursor = Cursor(self.piece)
        source, tokens = self.piece.text, self.piece.tokens
        out, shifts, at = "", [(0, start)], start
        i = next((n for n, token in enumerate(tokens) if token.start >= start), len(tokens))
        while i < len(tokens) and tokens[i].start < end:
            cursor.at = i
            token = tokens[i]
            if (travel := _travel(cursor)) is not None:
                word, length = travel
                out += source[at : token.start] + word
                at = tokens[i + length - 1].end + 1
                shifts.append((len(out), at))
                i += length
                continue
            if filled and opens_parameter(tokens, i) and tokens[i + 1].text in self.parameters:
                value = literal(self.parameters[tokens[i + 1].text], tokens[i + 1].text)
                out += source[at : token.start] + str(value.sql(dialect=Queries))
                at = tokens[i + 1].end + 1
                i += 2
                continue
            if opens_parameter(tokens, i):
                out += source[at : token.end + 1] + "`" + tokens[i + 1].text.replace("`", "``") + "`"
                at = tokens[i + 1].end + 1
                shifts.append((len(out), at))
                i += 2
                continue
            if token.token_type != TokenType.IDENTIFIER and not token.text[:1].isidentifier():
                i += 1
                continue
            name, first = token.text, i
            i += 1
            while i + 1 < len(tokens) and tokens[i].text == "$" and tokens[i].start == tokens[i - 1].end + 1:
                name += "$" + tokens[i + 1].text
                i += 2
            cursor.at = i
            hint = None if name.upper() == "SELECT" else cursor.hint()
            if hint is None and i == first + 1:
                continue
            out += source[at : token.start]
            if hint is not None:
                name += MARK + json.dumps(hint_options(self.piece, tokens[i - 1].end + 1))
            out += "`" + name.replace("`", "``") + "`"
            at = tokens[i - 1].end + 1
            shifts.append((len(out), at))
        return out + source[at:end], shifts

    def _check_parameters(self, start: int, end: int) -> None:
        """Refuse parameters without a name, and those without a value."""
        tokens = self._tokens(start, end)
        for i, token in enumerate(tokens):
            if token.token_type == TokenType.PLACEHOLDER:
                why = "a parameter has a name: write :name and pass parameters={'name': ...}."
                fail(self.piece.text, token.start, why)
            if opens_parameter(tokens, i) and (name := tokens[i + 1].text) not in self.parameters:
                fail(self.piece.text, token.start, self._no_value(name))

    def _no_value(self, name: str) -> str:
        given = ", ".join(sorted(self.parameters)) or "none"
        return f"no value was given for the parameter :{name} (given: {given})."

    def _parameter(self, node: exp.Expression, start: int, end: int) -> exp.Expression:
        name, offset = node.name, start
        for sign, word in itertools.pairwise(self.piece.tokens):
            if start <= sign.start < end and sign.text == ":" and word.text == name:
                offset = sign.start
                break
        if name in ("", "?"):
            self._check_parameters(start, end)
        if _is_name(node):
            why = (
                f"the parameter :{name} stands for a name here, and parameters stand for values. Write the name itself."
            )
            fail(self.piece.text, offset, why)
        if name not in self.parameters:
            fail(self.piece.text, offset, self._no_value(name))
        return literal(self.parameters[name], name)


def _is_name(node: exp.Expression) -> bool:
    """Return whether a parameter stands where a name has to: of a table, column, field, alias, window or collation."""
    match node.parent, node.arg_key:
        case (exp.Table() | exp.Column() | exp.TableAlias() | exp.Star(), _) | (_, "alias" | "using"):
            return True
        case (exp.Dot() | exp.Collate(), "expression") | (exp.Extract(), "this"):
            return True
    return False


def _place_names(tree: exp.Expression, shifts: list[tuple[int, int]], start: int, head: int = 0) -> None:
    """Note at each name of a tree where it stands in the whole text.

    Args:
        head: number of letters before the text that the tree was parsed from.
    """
    for node in tree.find_all(exp.Identifier):
        if "start" in node.meta:
            node.meta[AT] = _back(node.meta["start"] - head, shifts, start)


def _travel(cursor: Cursor) -> tuple[str, int] | None:
    """Return what `[FOR] SYSTEM_VERSION AS OF` is for sqlglot, and how many tokens it takes."""
    for_it = ("FOR",) if cursor.sees("FOR") else ()
    for word, meant in (
        ("SYSTEM_VERSION", "VERSION"),
        ("SYSTEM_TIME", "TIMESTAMP"),
        ("VERSION", ""),
        ("TIMESTAMP", ""),
    ):
        if cursor.sees(*for_it, word, "AS", "OF") and (meant or for_it):
            return f"{meant or word} AS OF", len(for_it) + 3
    return None


def hinted(name: str) -> tuple[str, Mapping[str, str]]:
    """Return the name of a table in a tree as it was written, and the options of the hint behind it."""
    plain, mark, options = name.partition(MARK)
    return plain, json.loads(options) if mark else {}


def _back(at: int, shifts: list[tuple[int, int]], start: int) -> int:
    there, here = max((pair for pair in shifts if pair[0] <= at), default=(0, start))
    return here + at - there


def hint_options(piece: Piece, offset: int) -> Mapping[str, str]:
    """Return the options of the hint `/*+ OPTIONS('k' = 'v') */` that begins behind an offset."""
    text = piece.text
    begin = text.index("/*+", offset) + 3
    inner = text[begin : text.index("*/", begin)]
    blank = " " * begin + inner  # offsets stay those of the whole text
    found = pieces(blank)[0]
    cursor = Cursor(Piece(text, found.start, found.end, found.tokens))
    cursor.expect("OPTIONS")
    options = option_pairs(cursor)
    cursor.end()
    return options


def option_pairs(cursor: Cursor) -> dict[str, str]:
    """Take `('k' = 'v', ...)`; keys may be bare, values may be numbers and booleans."""
    cursor.expect("(")
    found: dict[str, str] = {}
    while True:
        key = option_key(cursor)
        if not cursor.take("="):
            cursor.fail(f"expected = behind the option '{key}'")
        found[key] = option_value(cursor)
        if not cursor.take(","):
            break
    cursor.expect(")")
    return found


def option_key(cursor: Cursor) -> str:
    """Take the key of an option: a string, or bare parts such as `scan.snapshot-id` and `a.*.b`."""
    token = cursor.peek()
    if token is not None and token.token_type == TokenType.STRING:
        return cursor.string()
    if token is None or not (token.text[:1].isidentifier() or token.token_type == TokenType.IDENTIFIER):
        cursor.fail("expected the key of an option")
    key = str(token.text)
    cursor.at += 1
    while not cursor.done and cursor.touches() and cursor.word() != "=" and cursor.word() not in ("(", ")", ","):
        key += str(cursor.tokens[cursor.at].text)
        cursor.at += 1
    return key


def option_value(cursor: Cursor) -> str:
    """Take the value of an option: a string, a number, or a bare word."""
    token = cursor.peek()
    if token is not None and token.token_type == TokenType.STRING:
        return cursor.string()
    if token is None or token.text in (")", ",", "="):
        cursor.fail("expected the value of an option")
    if token.text == ":":
        return cursor.string()
    start = token.start
    cursor.at += 1
    while not cursor.done and cursor.touches() and cursor.word() not in (")", ","):
        cursor.at += 1
    return cursor.piece.text[start : cursor.tokens[cursor.at - 1].end + 1]


def literal(value: Any, name: str) -> exp.Expression:
    """Return the literal of a Python value, or of a scalar of Arrow, with its type. A tree stands for itself.

    Raises:
        InvalidInputError: no literal has this type.
    """

    def typed(text: str, kind: str) -> exp.Expression:
        return exp.Cast(this=exp.Literal.string(text), to=exp.DataType.build(kind, dialect="spark"))

    match value:
        case exp.Expression():
            return value.copy()
        case pa.Scalar():
            return _of_type(value, type_from_arrow(value.type, f"the parameter '{name}'"), name)
        case np.generic() if isinstance(value, np.bool_ | np.integer | np.floating):
            return literal(value.item(), name)
        case None:
            return exp.Null()
        case bool():
            return exp.Boolean(this=value)
        case int():
            if -(2**31) <= value < 2**31:
                return exp.Literal.number(value) if value >= 0 else exp.Neg(this=exp.Literal.number(-value))
            _check_digits(name, len(str(abs(value))))
            return typed(str(value), "BIGINT") if -(2**63) <= value < 2**63 else typed(str(value), "DECIMAL(38, 0)")
        case float():
            return typed(repr(value), "DOUBLE")
        case Decimal():
            _, digits, exponent = value.as_tuple()
            power = int(exponent) if isinstance(exponent, int) else 0
            scale, count = max(-power, 0), max(len(digits) + max(power, 0), -power, 1)
            _check_digits(name, count)
            return typed(f"{value:f}", f"DECIMAL({count}, {scale})")
        case str():
            return exp.Literal.string(value)
        case bytes():
            return exp.HexString(this=value.hex())
        case datetime():
            kind = "TIMESTAMP_NTZ" if value.tzinfo is None else "TIMESTAMP_LTZ"
            return typed(value.isoformat(sep=" "), kind)
        case date():
            return typed(value.isoformat(), "DATE")
        case time() if value.microsecond % 1000:
            raise InvalidInputError(
                f"the parameter '{name}' is {value}, and a TIME ends at milliseconds. Nothing was run. Truncate "
                "it first."
            )
        case time():
            return typed(value.isoformat(), "TIME")
        case list() | tuple():
            return exp.Array(expressions=[literal(item, name) for item in value])
    raise InvalidInputError(
        f"the parameter '{name}' is {a_type(value)}. Give None, a bool, an int, a float, a Decimal, text, bytes, a "
        "date, a time, a datetime, or a list of them."
    )


def _of_type(value: pa.Scalar, kind: t.DataType, name: str) -> exp.Expression:
    """Return a scalar as CAST(literal AS type)."""
    from merganser.sql.calls import cast_to  # noqa: PLC0415 - it parses by this module

    def plain(value: pa.Scalar) -> exp.Expression:
        if not value.is_valid:
            return exp.Null()
        match value:
            case pa.MapScalar():
                pairs = value.values
                items = [plain(item) for pair in pairs for item in pair.values()] if pairs else []
                return exp.Anonymous(this="map", expressions=items)
            case pa.ListScalar():
                return exp.Array(expressions=[plain(item) for item in value.values or ()])
            case pa.StructScalar():
                fields = [each for key, item in value.items() for each in (exp.Literal.string(key), plain(item))]
                return exp.Anonymous(this="named_struct", expressions=fields)
            case pa.TimestampScalar() if value.type.unit == "ns":
                if value.value % 1000:
                    raise InvalidInputError(
                        f"the parameter '{name}' is {value}, and parameters have six digits of seconds. Nothing was "
                        "run. Truncate it first."
                    )
                return plain(value.cast(pa.timestamp("us", value.type.tz)))
        return literal(value.as_py(), name)

    made = plain(value)
    return made if isinstance(kind, _OF_LITERALS) else cast_to(made, kind)


def _check_digits(name: str, count: int) -> None:
    if count > _DIGITS_MAX:
        raise InvalidInputError(
            f"the parameter '{name}' has {count} digits, and a DECIMAL has at most {_DIGITS_MAX}. Nothing "
            "was run. Give a float, or fewer digits."
        )

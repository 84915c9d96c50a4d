"""Tokens of SQL text with their places, and the cursor that a recursive descent reads them by.

The tokenizer is sqlglot's for Spark. Places are offsets into the whole text, so that an error can name line and column
also in a script of many statements.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar, Final, NoReturn

from sqlglot.errors import TokenError
from sqlglot.tokens import Token, TokenType

from merganser.errors import SqlSyntaxError
from merganser.expr.text import Dialect
from merganser.options.registry import closest
from merganser.values import dataclass

_OPENINGS: Final = re.compile(r"--[^\n]*|/\*|'|\"|`")
_CLOSINGS: Final = {
    "'": re.compile(r"'(?:[^'\\]|\\.|'')*'", re.DOTALL),
    '"': re.compile(r'"(?:[^"\\]|\\.|"")*"', re.DOTALL),
    "`": re.compile(r"`(?:[^`]|``)*`"),
    "/*": re.compile(r"/\*.*?\*/", re.DOTALL),
}
_NAMES: Final = {"'": "string", '"': "string", "`": "quoted name", "/*": "comment"}
_HINT: Final = re.compile(r"/\*\+.*?\*/", re.DOTALL)
_BEFORE_TABLES: Final = ("FROM", "JOIN", ",", "(", "INTO", "OVERWRITE", "TABLE", "USING")
"""Words and signs before a table whose hint is read."""
_FIRST_WORD: Final = re.compile(r"\s*(\w+)")
_SHOWN: Final = 120
"""Maximum number of letters of a line that an error shows."""
_SHOWN_BEFORE: Final = 100
"""Maximum number of these letters before the place of the error."""
_LISTED: Final = 8
"""Maximum number of words that are listed beside the word that was probably meant."""
_OPERATORS: Final = tuple("([{,=<>+-*/%|&^~!")
_QUOTED: Final = (TokenType.STRING, TokenType.IDENTIFIER)


class _Words(Dialect.Tokenizer):  # type: ignore[misc]
    """The tokenizer of Spark, of which each token is one word, one sign or one literal."""

    NUMERIC_LITERALS: ClassVar[dict[str, str]] = {}
    KEYWORDS: ClassVar = {key: value for key, value in Dialect.Tokenizer.KEYWORDS.items() if " " not in key}


def place(text: str, offset: int) -> tuple[int, int]:
    """Return the line and the column of an offset, both counted from 1."""
    before = text[:offset]
    return before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1


def pointed(text: str, offset: int) -> str:
    """Return the line of an offset, or what is near it in a long line, and a caret under it."""
    line, column = place(text, offset)
    shown = text.split("\n")[line - 1].rstrip("\r")
    first = max(0, column - _SHOWN_BEFORE)
    before = re.sub(r"[^\t]", " ", shown[first : column - 1])
    return f"  {shown[first : first + _SHOWN]}\n  {before}^"


def fail(text: str, offset: int, why: str) -> NoReturn:
    """Raise a syntax error at an offset of the text.

    Raises:
        SqlSyntaxError: always.
    """
    line, column = place(text, offset)
    raise SqlSyntaxError(
        f"cannot parse the statement at line {line}, column {column}: {why}\n{pointed(text, offset)}\nNothing was run.",
        line=line,
        column=column,
    )


@dataclass(frozen=True, slots=True)
class Piece:
    """One statement of a script: the text, and the part of it that the statement takes."""

    text: str
    start: int
    end: int
    tokens: tuple[Token, ...]

    @property
    def source(self) -> str:
        return self.text[self.start : self.end]


def pieces(text: str) -> list[Piece]:
    """Return the statements of a text, split at semicolons; empty ones are left out.

    Raises:
        SqlSyntaxError: a string, a quoted name or a comment is not closed; placed where it opens.
    """
    try:
        tokens = _Words().tokenize(text)
    except TokenError as error:
        _refuse_unclosed(text)
        raise SqlSyntaxError(f"cannot parse the statement: {error}. Nothing was run.") from error
    _refuse_unclosed(text)
    found: list[Piece] = []
    held: list[Token] = []
    for token in [*tokens, None]:
        if token is None or token.token_type == TokenType.SEMICOLON:
            if held:
                found.append(Piece(text, held[0].start, held[-1].end + 1, tuple(held)))
            held = []
        else:
            held.append(token)
    return [_with_last_hint(piece) for piece in found]


def _with_last_hint(piece: Piece) -> Piece:
    """A hint after the last token belongs to the statement; the tokenizer drops comments."""
    rest = re.compile(r"\s*(/\*\+.*?\*/)", re.DOTALL).match(piece.text, piece.end)
    return piece if rest is None else Piece(piece.text, piece.start, rest.end(), piece.tokens)


def _refuse_unclosed(text: str) -> None:
    at = 0
    while (opening := _OPENINGS.search(text, at)) is not None:
        kind = opening.group()
        if kind.startswith("--"):
            at = opening.end()
            continue
        closing = _CLOSINGS[kind].match(text, opening.start())
        if closing is None:
            fail(text, opening.start(), f"the {_NAMES[kind]} that begins here is not closed.")
        at = closing.end()


def check_hints(piece: Piece) -> None:
    """Check that each hint is read by somebody: behind SELECT by the engine, behind the name of a table here.

    Raises:
        SqlSyntaxError: a hint is misspelt, or stands where nobody reads it.
    """
    if "/*+" not in piece.source:
        return
    tokens = piece.tokens
    ends = [*(token.start for token in tokens[1:]), piece.end]
    for i, end in enumerate(ends):
        found = _HINT.search(piece.text, tokens[i].end + 1, end)
        if found is None or (tokens[i].token_type not in _QUOTED and tokens[i].text.upper() == "SELECT"):
            continue
        first = i
        while first > 1 and tokens[first - 1].text in (".", "$"):
            first -= 2
        before = tokens[first - 1] if first else None
        reads = before is not None and before.token_type not in _QUOTED and before.text.upper() in _BEFORE_TABLES
        word = _FIRST_WORD.match(found.group(), 3)
        at = found.start() + (3 if word is None else word.start(1))
        if not reads or (first > 1 and tokens[first - 2].text.upper() in ("DELETE", "MERGE")):
            why = (
                "no hint is read here. One with options stands behind a table that is read: FROM t /*+ OPTIONS(...) */"
            )
            fail(piece.text, at, why)
        if word is None or word[1].upper() != "OPTIONS":
            fail(piece.text, at, "expected OPTIONS: a hint behind a table is /*+ OPTIONS('key' = 'value') */")


def opens_parameter(tokens: Sequence[Token], i: int) -> bool:
    """Return whether a parameter `:name` begins here; its name may be a word of SQL, which sqlglot does not take."""
    if tokens[i].text != ":" or i + 1 == len(tokens) or tokens[i + 1].start != tokens[i].end + 1:
        return False
    name, before = tokens[i + 1], tokens[i - 1] if i else None
    of_value = before is not None and before.end + 1 == tokens[i].start and before.text[-1:] not in _OPERATORS
    return name.text[:1].isidentifier() and name.token_type not in _QUOTED and not of_value


def word_at(tokens: Sequence[Token], i: int) -> str:
    """Return a token in capitals if it is a bare word or a sign; an empty text if it is quoted or names a parameter."""
    if tokens[i].token_type in _QUOTED or (i and opens_parameter(tokens, i - 1)):
        return ""
    return str(tokens[i].text.upper())


class Cursor:
    """Reads the tokens of one statement from left to right.

    Args:
        parameters: values of `:name`, which stand for literals.
    """

    def __init__(self, piece: Piece, parameters: dict[str, Any] | None = None) -> None:
        self.piece = piece
        self.tokens = piece.tokens
        self.parameters = parameters or {}
        self.at = 0

    # looking

    @property
    def done(self) -> bool:
        return self.at >= len(self.tokens)

    def peek(self, ahead: int = 0) -> Token | None:
        """Return the token `ahead` of the next one; None at the end."""
        return self.tokens[self.at + ahead] if self.at + ahead < len(self.tokens) else None

    def word(self, ahead: int = 0) -> str:
        """Return the next token as `word_at` does; an empty text at the end."""
        return word_at(self.tokens, self.at + ahead) if self.at + ahead < len(self.tokens) else ""

    def sees(self, *words: str) -> bool:
        """Whether the next tokens are these words, whatever their case."""
        return all(self.word(i) == word for i, word in enumerate(words))

    # taking

    def take(self, *words: str) -> bool:
        """Take these words if they come next; else take nothing."""
        if not self.sees(*words):
            return False
        self.at += len(words)
        return True

    def expect(self, *words: str) -> None:
        """Take these words.

        Raises:
            SqlSyntaxError: another word comes.
        """
        for word in words:
            if not self.take(word):
                self.fail(f"expected {word}")

    def one_of(self, *words: str) -> str:
        """Take one of these words and return it.

        Raises:
            SqlSyntaxError: another word comes; the nearest of them is named.
        """
        for word in words:
            if self.take(word):
                return word
        self.fail_with_nearest(words)

    def name(self, what: str = "a name") -> str:
        """Take a bare or quoted name."""
        token = self.peek()
        if token is None or (
            token.token_type not in (TokenType.IDENTIFIER, TokenType.VAR)
            and not re.fullmatch(r"[^\W\d]\w*", token.text)
        ):
            self.fail(f"expected {what}")
        if token.token_type == TokenType.STRING:
            self.fail(f"expected {what}, not a string. Quote names with backticks")
        self.at += 1
        return str(token.text)

    def dotted(self, what: str = "a name") -> tuple[str, ...]:
        """Take names with dots between them; `t$snapshots` is one name."""
        parts = [self._with_dollars(self.name(what))]
        while self.take("."):
            parts.append(self._with_dollars(self.name(what)))
        return tuple(parts)

    def _with_dollars(self, name: str) -> str:
        while self.word() == "$" and self.touches():
            self.at += 1
            name += "$" + self.name("the rest of the name")
        return name

    def touches(self) -> bool:
        """Whether no space lies before the next token."""
        return 0 < self.at < len(self.tokens) and self.tokens[self.at - 1].end + 1 == self.tokens[self.at].start

    def names_in_brackets(self, what: str = "a column") -> tuple[str, ...]:
        """Take `(a, b)`."""
        self.expect("(")
        found = [self.name(what)]
        while self.take(","):
            found.append(self.name(what))
        self.expect(")")
        return tuple(found)

    def string(self, what: str = "a string") -> str:
        """Take a string, or a parameter whose value is one."""
        token = self.peek()
        if token is not None and token.token_type == TokenType.STRING:
            self.at += 1
            return str(token.text)
        if self.word() == ":" and self.peek(1) is not None:
            self.at += 1
            return str(self.parameter())
        self.fail(f"expected {what} in quotes")

    def parameter(self) -> Any:
        """Take the name of a parameter behind its colon, and return its value."""
        name = self.name("the name of a parameter")
        if name not in self.parameters:
            self.at -= 1
            self.fail(f"no value was given for the parameter :{name}. Pass parameters={{'{name}': ...}}")
        return self.parameters[name]

    def integer(self, what: str = "a number") -> int:
        """Take a whole number."""
        token = self.peek()
        if token is None or not re.fullmatch(r"\d+", token.text) or token.token_type in _QUOTED:
            self.fail(f"expected {what}")
        self.at += 1
        return int(token.text)

    def balanced(self, *stops: str) -> tuple[int, int]:
        """Take tokens up to one of these words outside of brackets and CASE; return the offsets of their text."""
        inside: list[str] = []
        first = self.at
        while not self.done:
            word = "" if self.at > first and self.tokens[self.at - 1].text in (".", ":") else self.word()
            if not inside and word in stops:
                break
            if word in ("(", "[", "{", "CASE"):
                inside.append(word)
            elif word == "END" and inside and inside[-1] == "CASE":
                inside.pop()
            elif word in (")", "]", "}"):
                while inside and inside[-1] == "CASE":  # it has no END, which the parser says
                    inside.pop()
                if not inside:
                    break
                inside.pop()
            self.at += 1
        if self.at == first:
            self.fail("expected an expression")
        return self.tokens[first].start, self.tokens[self.at - 1].end + 1

    def rest(self) -> tuple[int, int]:
        """Take all that is left of the statement; return the offsets of its text."""
        if self.done:
            self.fail("expected more")
        start = self.tokens[self.at].start
        self.at = len(self.tokens)
        return start, self.piece.end

    def hint(self) -> str | None:
        """Return the hint between the last token and the next one, without its signs; None if there is none."""
        begin = self.tokens[self.at - 1].end + 1
        end = self.tokens[self.at].start if not self.done else self.piece.end
        found = _HINT.search(self.piece.text, begin, end)
        return None if found is None else found.group()[3:-2]

    def end(self) -> None:
        """Check that nothing is left.

        Raises:
            SqlSyntaxError: more tokens come.
        """
        if not self.done:
            self.fail("the statement should end here")

    # failing

    @property
    def offset(self) -> int:
        token = self.peek()
        return self.piece.end if token is None else token.start

    def fail(self, why: str) -> NoReturn:
        """Raise a syntax error at the next token."""
        token = self.peek()
        found = "the statement ends" if token is None else f"found {self.piece.text[token.start : token.end + 1]!r:.40}"
        fail(self.piece.text, self.offset, f"{why}; {found}.{hyphen_advice(self.piece.tokens, self.at)}")

    def fail_with_nearest(self, words: Sequence[str]) -> NoReturn:
        """Raise a syntax error that names the words that may come, the nearest first."""
        near = closest(self.word(), list(words)) if self.word() else None
        token = self.peek()
        found = "the statement ends" if token is None else f"found {token.text!r:.40}"
        if near and len(words) > _LISTED:
            fail(self.piece.text, self.offset, f"{found}. Did you mean {near}?")
        hint = f" Did you mean {near}?" if near else hyphen_advice(self.piece.tokens, self.at)
        fail(self.piece.text, self.offset, f"expected {_listed(words)}; {found}.{hint}")


def hyphen_advice(tokens: Sequence[Token], at: int) -> str:
    """Return advice for a hyphen between two words without blanks, as in the name `log-lines`; else nothing."""
    words = tokens[at - 1 : at + 2] if at else ()
    if len(words) < 3 or words[1].text != "-" or words[2].start - words[0].end != 2:
        return ""
    return f" Write a name with a hyphen in backticks: `{words[0].text}-{words[2].text}`."


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"

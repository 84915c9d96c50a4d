r"""Regular expressions of Java, as RE2 reads them.

The two read some patterns otherwise: `[[:alpha:]]`, `\s`, `.`, `$` before the end of a line. Each part of a pattern
is written so that RE2 finds what Java finds, or the pattern is refused. Where it depends on the text, and RE2 cannot
say so, the texts are `unsure`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from merganser.errors import InvalidInputError, UnsupportedError
from merganser.values import dataclass

_LINE_ENDS: Final = r"\n\r\x{85}\x{2028}\x{2029}"
_SPACES: Final = r" \t\n\x0b\f\r"
_NO_SPACES: Final = r"\x00-\x08\x0e-\x1f\x21-\x{10ffff}"
_NOT_ASCII: Final = r"[^\x00-\x7f]"
_POSIX: Final = {
    "Lower": "lower", "Upper": "upper", "ASCII": "ascii", "Alpha": "alpha", "Digit": "digit", "Alnum": "alnum",
    "Punct": "punct", "Graph": "graph", "Print": "print", "Blank": "blank", "Cntrl": "cntrl", "XDigit": "xdigit",
    "Space": "space",
}  # fmt: skip
_CATEGORY: Final = re.compile(r"L[ulmot]?|M[nce]?|N[dlo]?|P[cdseifo]?|S[mcko]?|Z[slp]?|C[cf]?")
_SAME: Final = frozenset("dDwWtnrfa")
"""Letters behind a backslash that mean the same."""
_COUNT: Final = re.compile(r"\{[0-9]+(,[0-9]*)?\}")


@dataclass(frozen=True, slots=True)
class Pattern:
    """A regular expression for RE2.

    Attributes:
        text: the pattern.
        groups: how many groups it has.
        unsure: of these texts RE2 may find something else than Java: a pattern, or None.
        is_empty: it matches the empty text.
    """

    text: str
    groups: int
    unsure: str | None
    is_empty: bool


@lru_cache(maxsize=1024)
def java_pattern(text: str, doing: str) -> Pattern:
    """Return a regular expression of Java for RE2.

    Args:
        doing: what the pattern is for, such as "use RLIKE".

    Raises:
        InvalidInputError: it is no regular expression.
        UnsupportedError: RE2 lacks a part of it.
    """
    return _Reader(text, doing).read()


class _Reader:
    """Reads one pattern."""

    def __init__(self, text: str, doing: str) -> None:
        self.text, self.doing = text, doing
        self.at, self.out, self.groups = 0, [""], 0
        self.unsure: set[str] = set()
        self.with_line_ends = False

    def read(self) -> Pattern:
        if (flags := re.match(r"\(\?([is]+)\)", self.text)) is not None:
            self.with_line_ends = "s" in flags[1]
            if "i" in flags[1]:
                if not self.text.isascii():
                    self._refuse(flags[0])
                self.unsure.add(r"[\x{17f}\x{212a}]")  # RE2 takes them for s and k
            self.out.append(flags[0])
            self.at = flags.end()
        while self.at < len(self.text):
            self._one()
        made = "".join(self.out)
        try:
            is_empty = pc.match_substring_regex(pa.array([""]), made)[0].as_py()
        except pa.ArrowInvalid as error:
            self._invalid(str(error))
        return Pattern(made, self.groups, "|".join(sorted(self.unsure)) or None, is_empty)

    def _refuse(self, part: str) -> NoReturn:
        raise UnsupportedError(
            f"cannot {self.doing} with the pattern '{self.text}' in this process: it has '{part}'. Run the statement "
            "on Spark."
        )

    def _invalid(self, why: str) -> NoReturn:
        raise InvalidInputError(f"cannot {self.doing}: '{self.text}' is not a regular expression: {why}")

    def _one(self) -> None:
        c = self.text[self.at]
        rest = self.text[self.at : self.at + 3]
        self.at += 1
        match c:
            case "\\":
                self._escaped(in_class=False)
            case "[":
                self._class()
            case ".":
                self.out.append("." if self.with_line_ends else f"[^{_LINE_ENDS}]")
            case "$":
                self.unsure.add(f"[{_LINE_ENDS}]\\z")  # for Java, the last line end may follow
                self.out.append("$")
            case "(":
                self._group(rest)
            case "{":
                self.at -= 1
                found = _COUNT.match(self.text, self.at)
                if found is None:
                    self._invalid("no number of repetitions stands behind '{'.")
                self.out.append(found[0])
                self.at = found.end()
                self._repeated(found[0])
            case "*" | "+" | "?":
                self.out.append(c)
                self._repeated(c)
            case _:
                self.out.append(c)

    def _repeated(self, sign: str) -> None:
        if self.text.startswith("+", self.at):
            self._refuse(f"{sign}+")

    def _group(self, rest: str) -> None:
        if not rest.startswith("(?"):
            self.groups += 1
            self.out.append("(")
        elif rest == "(?:":
            self.out.append(rest)
            self.at += 2
        else:
            self._refuse(rest)

    def _escaped(self, *, in_class: bool) -> None:
        c = self.text[self.at : self.at + 1]
        self.at += 1
        if c == "":
            self._invalid("nothing stands behind the last backslash.")
        elif c in _SAME:
            self.out.append("\\" + c)
        elif c in "sS":
            part = _SPACES if c == "s" else _NO_SPACES
            self.out.append(part if in_class else f"[{part}]")
        elif c in "bB" and not in_class:
            self.unsure.add(_NOT_ASCII)  # a letter beyond ASCII is one of a word for Java
            self.out.append("\\" + c)
        elif c in "Az" and not in_class:
            self.out.append("\\" + c)
        elif c in "xu":
            self._code(c)
        elif c in "pP":
            self._property(c, in_class=in_class)
        elif c == "Q" and not in_class:
            end = self.text.find("\\E", self.at)
            end = len(self.text) if end < 0 else end
            self.out.append("".join(re.escape(letter) for letter in self.text[self.at : end]))
            self.at = end + 2
        elif c.isascii() and c.isalnum():
            self._refuse(f"\\{c}")
        else:
            self.out.append("\\" + c if c.isascii() else c)

    def _code(self, letter: str) -> None:
        found = re.compile(r"[0-9A-Fa-f]{4}" if letter == "u" else r"[0-9A-Fa-f]{2}").match(self.text, self.at)
        if found is None:
            self._refuse(f"\\{letter}")
        self.out.append(f"\\x{{{found[0]}}}")
        self.at = found.end()

    def _property(self, sign: str, *, in_class: bool) -> None:
        found = re.compile(r"\{(\w+)\}|(\w)").match(self.text, self.at)
        name = "" if found is None else found[1] or found[2]
        if found is not None and name in _POSIX:
            if name == "Space":
                part = _SPACES if sign == "p" else _NO_SPACES
            else:
                part = f"[:{'' if sign == 'p' else '^'}{_POSIX[name]}:]"
            self.out.append(part if in_class else f"[{part}]")
        elif found is not None and _CATEGORY.fullmatch(name):
            self.out.append(f"\\{sign}{{{name}}}")
        else:
            self._refuse(f"\\{sign}{'' if found is None else found[0]}")
        self.at += 0 if found is None else len(found[0])

    def _class(self) -> None:
        """Read what stands between square brackets."""
        self.out.append("[")
        if self.text.startswith("^", self.at):
            self.out.append("^")
            self.at += 1
        if self.text.startswith("]", self.at):
            self._refuse("[]")
        while self.at < len(self.text):
            c = self.text[self.at]
            if c == "[":
                self._refuse("a [ inside of [ ]")
            if self.text.startswith("&&", self.at):
                self._refuse("&&")
            self.at += 1
            if c == "\\":
                self._escaped(in_class=True)
                continue
            self.out.append(c)
            if c == "]":
                return
        self._invalid("a '[' is not closed.")

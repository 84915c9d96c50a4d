"""Patterns of times: those of Java's DateTimeFormatter, as strftime and strptime of DuckDB take them."""

from __future__ import annotations

import re
from typing import Final

from merganser.errors import InvalidInputError, UnsupportedError
from merganser.sql.query.kinds import ON_SPARK, string
from merganser.values import dataclass

_FORMATS: Final = {
    "yyyy": "%Y", "yy": "%y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S", "M": "%-m", "d": "%-d",
    "H": "%-H", "SSS": "%g", "SSSSSS": "%f", "EEEE": "%A", "E": "%a", "EEE": "%a", "MMM": "%b", "MMMM": "%B",
    "hh": "%I", "h": "%-I", "a": "%p", "y": "%Y", "D": "%-j", "DDD": "%j",
}  # fmt: skip
_DIGITS: Final = {
    "yyyy": "[0-9]{4}", "y": "[0-9]+", "yy": "[0-9]{2}", "MM": "[0-9]{2}", "dd": "[0-9]{2}", "HH": "[0-9]{2}",
    "hh": "[0-9]{2}", "mm": "[0-9]{2}", "ss": "[0-9]{2}", "M": "[0-9]{1,2}", "d": "[0-9]{1,2}", "H": "[0-9]{1,2}",
    "h": "[0-9]{1,2}", "SSS": "[0-9]{3}", "SSSSSS": "[0-9]{6}", "DDD": "[0-9]{3}", "D": "[0-9]{1,3}",
}  # fmt: skip
_PIECES: Final = re.compile(r"'((?:[^']|'')+)'|('')|([A-Za-z])\3*|.", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Form:
    """A pattern of times.

    Attributes:
        java: as it is written.
        made: for strftime and strptime.
        digits: a regular expression of the texts that Java reads: strptime takes fewer digits, too.
        letters: the fields that it has, such as yyyy.
    """

    java: str
    made: str
    digits: str
    letters: frozenset[str]


def time_form(java: str, doing: str) -> Form:
    """Return a pattern of Java's DateTimeFormatter.

    Raises:
        InvalidInputError: a quote is not closed.
        UnsupportedError: it has a letter that strftime lacks.
    """
    made, digits, letters = "", "", set()
    for found in _PIECES.finditer(java):
        piece = found[0]
        if found[3] is not None:
            if piece not in _FORMATS:
                raise UnsupportedError(f"cannot {doing} with '{piece}' in this process. Run it on Spark.")
            letters.add(piece)
            made += _FORMATS[piece]
            digits += _DIGITS.get(piece, ".+")
            continue
        if piece == "'":
            raise InvalidInputError(f"cannot {doing}: in the pattern '{java}' a quote is not closed.")
        if piece in tuple("[]{}#"):
            raise UnsupportedError(f"cannot {doing} with '{piece}' in this process. Run it on Spark.")
        text = "'" if found[2] else (found[1] or piece).replace("''", "'")
        made += text.replace("%", "%%")
        digits += re.escape(text)
    return Form(java, made, digits, frozenset(letters))


def formatted(moment: str, form: Form) -> str:
    """Return a TIMESTAMP as text."""
    text = f"strftime({moment}, {string(form.made)})"
    if "y" not in form.letters:
        return text
    bad = f"cannot write years before 1000 with y in this process. {ON_SPARK}"
    return f"CASE WHEN year({moment}) < 1000 THEN error({string(bad)}) ELSE {text} END"


def parsed(s: str, form: Form) -> str:
    """Return a text as a TIMESTAMP; an error if it does not fit. What the pattern lacks is that of 1970-01-01."""
    given, made = s, form.made
    if not form.letters & {"yyyy", "yy", "y"}:  # strptime takes the year 1900
        given, made = f"'1970 ' || {s}", f"%Y {made}"
    moment = f"strptime({given}, {string(made)})"
    if "yy" in form.letters:  # from 2000 to 2099; for strptime from 1969 on
        moment = f"{moment} + CASE WHEN year({moment}) < 2000 THEN INTERVAL 100 YEAR ELSE INTERVAL 0 YEAR END"
    bad = f"error(concat('cannot read the time ', {s}, ' by ', {string(form.java)}))"
    test = f"regexp_full_match({s}, {string(form.digits)})"
    return f"CASE WHEN {s} IS NULL THEN NULL WHEN {test} THEN {moment} ELSE {bad} END"

"""Regular expressions of Java are written for RE2, or refused."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from merganser.errors import InvalidInputError, UnsupportedError
from merganser.expr.from_arrow import predicate_from_arrow
from merganser.expr.patterns import java_pattern
from merganser.expr.text import parse_predicate
from merganser.schema import types as t

FIELDS = [t.Field(0, "s", t.string())]


def found(pattern: str, text: str) -> bool:
    made = java_pattern(pattern, "use RLIKE")
    assert made.unsure is None or not pc.match_substring_regex(pa.array([text]), made.unsure)[0].as_py()
    return bool(pc.match_substring_regex(pa.array([text]), made.text)[0].as_py())


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        (r"\s", "\x0b", True),
        (r"[\s]", "\x0b", True),
        (r"\S", "\x0b", False),
        (r"[^\S]", "\x0b", True),
        ("a.b", "a\rb", False),
        ("(?s)a.b", "a\rb", True),
        ("(?i)ab", "AB", True),
        (r"\p{Alpha}+", "é", False),
        (r"\p{Lu}", "É", True),
        (r"\PL", "É", False),
        (r"^\Qa.b\E$", "a.b", True),
        (r"^\Qa.b\E$", "axb", False),
        (r"\u0061", "a", True),
        ("a{2,3}", "aa", True),
        (r"\é", "é", True),
    ],
)
def test_a_pattern_finds_what_java_finds(pattern: str, text: str, expected: bool) -> None:
    assert found(pattern, text) is expected


@pytest.mark.parametrize(
    "pattern",
    [
        "[[:alpha:]]", "[[a]b]", "[a-z&&[^b]]", "a++", "a{2}+", "(?=a)", "(?<n>a)", "(?i:a)", r"(a)\1", r"\Z", r"\h",
        r"\R", "[]a]", "(?i)é", r"\p{IsAlphabetic}", r"\x{1F600}",
    ],
)  # fmt: skip
def test_what_re2_lacks_is_refused(pattern: str) -> None:
    with pytest.raises(UnsupportedError, match=r"cannot use RLIKE with the pattern .* in this process: it has '"):
        java_pattern(pattern, "use RLIKE")


@pytest.mark.parametrize("pattern", ["[a", "a\\", "(a", "a{,2}", "*", "a{x}"])
def test_what_is_no_regular_expression_is_an_error(pattern: str) -> None:
    with pytest.raises(InvalidInputError, match="is not a regular expression: "):
        java_pattern(pattern, "use RLIKE")


def test_groups_are_counted() -> None:
    assert java_pattern(r"(a)(?:b)\((c)[(]", "x").groups == 2


def test_a_filter_refuses_texts_of_which_java_may_find_something_else() -> None:
    rows = pa.table({"s": ["ab", "b", "a\nb"]})
    ends = parse_predicate("s RLIKE 'b$'", FIELDS)
    assert ends.apply(rows).num_rows == 3
    with pytest.raises(UnsupportedError, match="a text that ends with a line end"):
        ends.apply(pa.table({"s": ["ab\n"]}))
    with pytest.raises(UnsupportedError, match="Run the statement on Spark"):
        parse_predicate(r"s RLIKE '\\ba\\b'", FIELDS).apply(pa.table({"s": ["é"]}))


def test_filters_of_arrow_keep_the_patterns_of_re2() -> None:
    kept = predicate_from_arrow(pc.match_substring_regex(pc.field("s"), "[[:alpha:]]"), FIELDS)
    assert kept.apply(pa.table({"s": ["x", "1"]})).to_pydict() == {"s": ["x"]}

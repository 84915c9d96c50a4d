"""Blank text, as the format has it: what the JVM's `Character.isWhitespace` says of every character.

Python's `str.isspace` differs. It also counts the spaces that forbid a line break (U+00A0, U+2007, U+202F) and U+0085.
Text of such characters is a value like any other, with a partition directory of its own.
"""

from __future__ import annotations

from typing import Final

BLANKS: Final = frozenset(
    map(
        chr,
        (
            *range(0x09, 0x0E),
            *range(0x1C, 0x21),
            0x1680,
            *range(0x2000, 0x2007),
            *range(0x2008, 0x200B),
            0x2028,
            0x2029,
            0x205F,
            0x3000,
        ),
    )
)
"""The characters that are white space."""


def is_blank(text: str) -> bool:
    """Return whether text is empty, or white space only."""
    return BLANKS.issuperset(text)

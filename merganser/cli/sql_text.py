"""SQL text that a person is still typing: whether it is complete, without a parser."""

from __future__ import annotations

import re
from typing import Final

_OPAQUE: Final = re.compile(
    r"--[^\n]*|/\*.*?(?:\*/|\Z)|'(?:[^'\\]|\\.|'')*(?:'|\Z)|\"(?:[^\"\\]|\\.|\"\")*(?:\"|\Z)|`(?:[^`]|``)*(?:`|\Z)",
    re.DOTALL,
)
WORDS: Final = ("quit", "exit", "help")
"""Shortcuts without a backslash."""


def bare(text: str) -> str:
    """Return a text of the same length with blanks for strings, quoted names and comments."""
    return _OPAQUE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)


def is_complete(text: str) -> bool:
    """Return whether Enter runs the text: a shortcut, nothing, or statements up to a semicolon."""
    stripped = text.strip()
    if stripped.startswith("\\") or stripped.lower() in WORDS:
        return True
    plain = bare(text).strip()
    return (not plain and not _is_open(text)) or plain.endswith(";")


def _is_open(text: str) -> bool:
    """Return whether a string, a quoted name or a comment of several lines is not closed."""
    return not bare(text + "\nx").endswith("x")

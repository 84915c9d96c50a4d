"""Cells: values of rows as text for people. A long value is cut, and its whole text comes along or on demand."""

from __future__ import annotations

import json
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from merganser.codec.display import display_texts, is_binary, is_number, on_one_line, short_texts
from merganser.values import dataclass

SHORT: Final = 60
"""Maximum number of characters of a value in a table."""
INLINE: Final = 4_000
"""Maximum number of characters of a whole value that comes with the page. A page with 100 rows of 40 columns stays
below 20 MB even if all of them are as long as that."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One value, as a page shows it.

    Attributes:
        kind: "null", "number", "text", "binary" or "nested".
        text: the value, cut after `SHORT` characters.
        whole: the whole value if `text` is cut and it has at most `INLINE` characters, else None.
        note: what was cut, such as "12,000 characters"; empty if nothing was.
    """

    kind: str
    text: str
    whole: str | None = None
    note: str = ""

    @property
    def is_far(self) -> bool:
        """Whether the whole value is too long for the page."""
        return bool(self.note) and self.whole is None


def cells_of(rows: pa.Table) -> list[list[Cell]]:
    """Return the cells of each row."""
    columns = [_cells(column) for column in rows.columns]
    return [list(row) for row in zip(*columns, strict=True)]


def brief_texts(column: pa.ChunkedArray) -> list[str | None]:
    """Return the values of a column as texts of at most `SHORT` characters, for places without room for more."""
    cells = _cells(column)
    return [None if cell.kind == "null" else cell.text + ("…" if cell.note else "") for cell in cells]


def visible(text: str) -> str:
    """Return a text of several lines with escapes for the characters that a browser does not show."""
    return on_one_line(text, kept="\n\t")


def _cells(column: pa.ChunkedArray) -> list[Cell]:
    kind = _kind(column.type)
    heads, notes = short_texts(column, SHORT)
    whole = [None] * len(heads)
    if any(notes):
        texts = display_texts(column)
        near = pc.less_equal(pc.utf8_length(texts), INLINE)
        whole = pc.if_else(near, texts, pa.scalar(None, texts.type)).to_pylist()
    return [
        Cell("null", "null")
        if head is None
        else Cell(kind, visible(head), _indented(text, kind) if note and text is not None else None, note)
        for head, note, text in zip(heads, notes, whole, strict=True)
    ]


def _kind(kind: pa.DataType) -> str:
    if pa.types.is_nested(kind):
        return "nested"
    return "binary" if is_binary(kind) else "number" if is_number(kind) else "text"


def _indented(text: str, kind: str) -> str:
    """Return a whole value, one that holds others on several lines unless Python would change a number in it."""
    if kind == "nested":
        value = json.loads(text)
        if json.dumps(value, ensure_ascii=False, separators=(",", ":")) == text:
            text = json.dumps(value, ensure_ascii=False, indent=2)
    return visible(text)

"""Cells: values of rows as text for people. A long value is cut, and its whole text comes along or on demand."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

SHORT: Final = 60
"""Maximum number of characters of a value in a table."""
INLINE: Final = 4_000
"""Maximum number of characters of a whole value that comes with the page. A page with 100 rows of 40 columns stays
below 20 MB even if all of them are as long as that."""
_INVISIBLE: Final = {
    **{code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\n\t"},
    0x7F: "\u2421",
    **{code: f"\u27e8U+{code:04X}\u27e9" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200B, 0xFEFF)},
}
"""Characters that a browser does not show, or that change the order of the characters around them."""


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
    columns = [[_cell(value, kind) for value, kind in _values(column)] for column in rows.columns]
    return [list(row) for row in zip(*columns, strict=True)]


def texts_of(column: pa.ChunkedArray) -> list[str | None]:
    """Return the values of a column as whole texts, those of a binary column in hexadecimal digits."""
    return [None if value is None else _text(value, kind) for value, kind in _values(column)]


def brief_texts(column: pa.ChunkedArray) -> list[str | None]:
    """Return the values of a column as texts of at most `SHORT` characters, for places without room for more."""
    cells = [_cell(value, kind) for value, kind in _values(column)]
    return [None if cell.kind == "null" else cell.text + ("…" if cell.note else "") for cell in cells]


def is_binary(kind: pa.DataType) -> bool:
    """Return whether values of a type are bytes."""
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind))


def visible(text: str) -> str:
    """Return a text with names for the characters that a browser does not show."""
    return text.translate(_INVISIBLE)


def _values(column: pa.ChunkedArray) -> list[tuple[Any, str]]:
    """Return each value with its kind. Times are texts already, since Python has not all of them."""
    kind = column.type
    if pa.types.is_temporal(kind):
        return [(value, "text") for value in pc.cast(column, pa.string()).to_pylist()]
    if pa.types.is_nested(kind):
        return [(value, "nested") for value in _nested(column)]
    name = "text"
    if is_binary(kind):
        name = "binary"
    elif pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        name = "number"
    return [(value, name) for value in column.to_pylist()]


def _nested(column: pa.ChunkedArray) -> Sequence[Any]:
    try:
        return column.to_pylist()  # type: ignore[no-any-return]
    except (OverflowError, ValueError):  # a time that Python does not have
        return [str(value) if value.is_valid else None for chunk in column.chunks for value in chunk]


def _text(value: Any, kind: str, indent: int | None = None) -> str:
    if kind == "binary":
        return bytes(value).hex()
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return _float(value)
    if isinstance(value, Decimal):
        return f"{value:f}"
    if kind == "nested" and not isinstance(value, str):
        return json.dumps(value, ensure_ascii=False, default=_part, indent=indent)
    return str(value)


def _float(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return repr(value) if math.isfinite(value) else "Infinity" if value > 0 else "-Infinity"


def _part(value: Any) -> str:
    if isinstance(value, Decimal):
        return f"{value:f}"
    return f"0x{bytes(value).hex()}" if isinstance(value, bytes | bytearray | memoryview) else str(value)


def _cell(value: Any, kind: str) -> Cell:
    if value is None:
        return Cell("null", "null")
    if kind == "binary":
        return _binary(bytes(value))
    text = _text(value, kind)
    if len(text) <= SHORT:
        return Cell(kind, visible(text))
    whole = None
    if len(text) <= INLINE:
        whole = visible(_text(value, kind, indent=2) if kind == "nested" else text)
    return Cell(kind, visible(text[:SHORT]), whole, f"{len(text):,} characters")


def _binary(value: bytes) -> Cell:
    few = SHORT // 3
    if len(value) <= few:
        return Cell("binary", f"0x{value.hex()}")
    whole = value.hex(" ", 1) if len(value) * 3 <= INLINE else None
    return Cell("binary", f"0x{value[:few].hex()}", whole, f"{len(value):,} bytes")

"""Rows and facts -> HTML, as a pure function of Arrow tables and texts.

Every value and every name is escaped. Styles are attributes, since notebooks that are not trusted drop style sheets.
Colours are those of the page, or tints that can be read on light and on dark pages. Long values are cut in Arrow,
before Python sees them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from html import escape
from typing import Final

import pyarrow as pa

from merganser.codec.display import is_number, on_one_line, short_texts

CHARACTERS_MAX: Final = 200
"""Maximum number of characters of a value that are shown."""
COLUMNS_MAX: Final = 50
"""Maximum number of columns that are shown: a page of more is slow, and nobody looks at all of them."""

_LINE: Final = "1px solid rgba(128,128,128,.35)"
_TABLE: Final = "border-collapse:collapse;margin:.25em 0;color:inherit;background:transparent;font-size:inherit"
_CELL: Final = (
    f"border:{_LINE};padding:.2em .5em;vertical-align:top;max-width:32em;overflow-wrap:break-word;text-align:{{}}"
)
_CAPTION: Final = "margin:.25em 0;font-weight:bold"
_NOTE: Final = "margin:.25em 0;opacity:.7"
_NULL: Final = '<span style="opacity:.55;font-style:italic">null</span>'
_TINTS: Final = {
    "+I": "rgba(46,160,67,.30)",
    "+U": "rgba(210,153,34,.30)",
    "-U": "rgba(128,128,128,.25)",
    "-D": "rgba(218,54,51,.30)",
}
"""Background of each row kind: the text keeps the colour of the page."""


def rows_html(rows: pa.Table, *, kinds: str | None = None, columns: int = 0) -> str:
    """Return rows as an HTML table under the names of their columns.

    Args:
        rows: few rows, since all of them are shown. Of many columns, the first are.
        kinds: the column of row kinds, which get colours; None: there is none.
        columns: number of columns in all, if the rows have only the first of them.
    """
    left = max(rows.num_columns, columns) - COLUMNS_MAX
    rows = rows.select(range(min(rows.num_columns, COLUMNS_MAX)))
    heads, shown_columns = [], []
    for field, column in zip(rows.schema, rows.columns, strict=True):
        side = "right" if is_number(field.type) else "left"
        side += ";white-space:nowrap" if side == "right" or pa.types.is_temporal(field.type) else ""
        heads.append(_tag("th", _escaped(_cut(field.name)), _CELL.format(side)))
        tints = _TINTS if field.name == kinds else {}
        shown_columns.append([_cell(text, side, tints.get(text or "")) for text in _texts(column)])
    body = "".join(_tag("tr", "".join(cells)) for cells in zip(*shown_columns, strict=True))
    made = _tag("table", _tag("thead", _tag("tr", "".join(heads))) + _tag("tbody", body), _TABLE)
    return made if left <= 0 else made + note_html(f"and {left:,} more columns")


def facts_html(facts: Iterable[tuple[str, str]]) -> str:
    """Return names and their values as an HTML table of two columns."""
    head = _CELL.format("left")
    pairs = ((_tag("th", _escaped(_cut(name)), head), _cell(_cut(text), "left")) for name, text in facts)
    rows = (_tag("tr", name + value) for name, value in pairs)
    return _tag("table", _tag("tbody", "".join(rows)), _TABLE)


def caption_html(text: str) -> str:
    """Return the line above a table."""
    return _tag("div", _escaped(_cut(text)), _CAPTION)


def note_html(text: str) -> str:
    """Return a line that says what is shown, or not."""
    return _tag("div", _escaped(text), _NOTE)


def shown(plain: str, made: Callable[[], Iterable[str]]) -> str:
    """Return parts of HTML as one block. After an error, return the plain text and the message: a cell never fails.

    Args:
        plain: the text of the object.
        made: returns the parts. It may read.
    """
    try:
        inner = "".join(made())
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        inner = _tag("pre", _escaped(plain), "margin:0;color:inherit;background:transparent") + note_html(said)
    return _tag("div", inner, "overflow-x:auto")


def _texts(column: pa.ChunkedArray) -> list[str | None]:
    heads, notes = short_texts(column, CHARACTERS_MAX)
    return [f"{head}… ({note})" if note else head for head, note in zip(heads, notes, strict=True)]


def _cut(text: str) -> str:
    return text if len(text) <= CHARACTERS_MAX else f"{text[:CHARACTERS_MAX]}… ({len(text):,} characters)"


def _cell(text: str | None, side: str, tint: str | None = None) -> str:
    inner = _NULL if text is None else _escaped(text)
    return _tag("td", inner, _CELL.format(side) + (f";background:{tint}" if tint else ""))


def _escaped(text: str) -> str:
    return escape(on_one_line(text))


def _tag(name: str, inner: str, style: str = "") -> str:
    return f'<{name} style="{style}">{inner}</{name}>' if style else f"<{name}>{inner}</{name}>"

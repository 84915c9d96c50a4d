"""Formats output: aligned tables, numbers, sizes, bars and sparklines.

On a terminal, output has colour and a line under headings. Wide tables are folded or shown as one record per row, and
never cut. Elsewhere, output is plain text, as wide as the values need, without trailing blanks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, Final

from rich import box
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

_EIGHTHS: Final = " ▏▎▍▌▋▊▉█"
_HEIGHTS: Final = "▁▂▃▄▅▆▇█"
_GAP: Final = 2
_NARROWEST: Final = 6


def stdout() -> Console:
    """Return the console of stdout, as it is now."""
    return Console(highlight=False, emoji=False, markup=False)


def stderr() -> Console:
    """Return the console of stderr, for progress and notes."""
    return Console(stderr=True, highlight=False, emoji=False, markup=False)


# values as text


def count(number: int | None) -> str:
    """Return a number with thousands separators."""
    return "" if number is None else f"{number:,}"


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun: "1 file", "2,000 files"."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def moment(when: datetime) -> str:
    """Return a time in UTC, to the second."""
    return f"{when:%Y-%m-%d %H:%M:%S}"


# layout


def table(
    console: Console,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Iterable[str] = (),
    records: bool = False,
    cut: bool = False,
) -> None:
    """Print rows under their headings.

    Args:
        console: where to.
        columns: headings.
        rows: cells as text, one per heading.
        right: headings of columns that are aligned to the right, such as numbers.
        records: when the table is wider than the terminal, print a block per row instead of folding cells.
        cut: in that case, cut wide cells instead. Columns are shown as records if there are too many.
    """
    to_right = set(right)
    widths = [max([cell_len(name), *(cell_len(row[i]) for row in rows)]) for i, name in enumerate(columns)]
    if not console.is_terminal or sum(widths) + _GAP * (len(widths) - 1) <= console.width:
        _aligned(console, columns, rows, widths, to_right)
    elif cut and (fit := fitted(widths, console.width)):
        shorter = [[_cut(value, width) for value, width in zip(row, fit, strict=True)] for row in (columns, *rows)]
        names = shorter[0]
        numbers = {names[i] for i, name in enumerate(columns) if name in to_right}
        _aligned(console, names, shorter[1:], fit, numbers)
    elif records or cut:
        _records(console, columns, rows)
    else:
        _folded(console, columns, rows, to_right)


def fitted(widths: Sequence[int], width: int) -> list[int]:
    """Return widths of columns that fit: only the widest become narrower. Empty if columns would be too narrow."""
    room = width - _GAP * (len(widths) - 1)
    if room < sum(min(one, _NARROWEST) for one in widths):
        return []
    low, high = _NARROWEST, max(widths)
    while low < high:
        most = (low + high + 1) // 2
        low, high = (most, high) if sum(min(one, most) for one in widths) <= room else (low, most - 1)
    return [min(one, low) for one in widths]


def _cut(value: str, width: int) -> str:
    return value if cell_len(value) <= width else set_cell_size(value, width - 1).rstrip() + "…"


def list_of(rows: Sequence[Sequence[str]], columns: Sequence[str], *, right: Iterable[str], none: str) -> None:
    """Print rows on stdout; say on stderr that there are none."""
    if rows:
        table(stdout(), columns, rows, right=right)
    else:
        stderr().print(none, soft_wrap=True)


def facts(console: Console, pairs: Iterable[tuple[str, str]]) -> None:
    """Print names with their values, aligned; on a terminal, what does not fit goes on below the value."""
    items = list(pairs)
    width = max((cell_len(name) for name, _ in items), default=0) + _GAP
    for name, value in items:
        label = Text(name + " " * (width - cell_len(name)), style="bold")
        body = Text(value, style="dim" if value == "null" else "")
        if not console.is_terminal or console.width - width < 20:
            line(console, label, body)
            continue
        for i, piece in enumerate(body.wrap(console, console.width - width) or [body]):
            line(console, Text(" " * width) if i else label, piece)


def line(console: Console, *parts: str | Text) -> None:
    """Print one line, however long; a terminal wraps it by itself."""
    text = Text("").join(Text(part) if isinstance(part, str) else part for part in parts)
    text.rstrip()
    console.print(text, soft_wrap=True)


def bold(text: str) -> Text:
    """Return text that stands out on a terminal."""
    return Text(text, style="bold")


def dim(text: str) -> Text:
    """Return text that stands back on a terminal."""
    return Text(text, style="dim")


def _aligned(
    console: Console, columns: Sequence[str], rows: Sequence[Sequence[str]], widths: Sequence[int], right: set[str]
) -> None:
    def padded(name: str, value: str, width: int, style: str) -> Text:
        blanks = " " * (width - cell_len(value))
        text = blanks + value if name in right else value + blanks
        return Text(text, style=style)

    gap = Text(" " * _GAP)
    line(console, gap.join(padded(name, name, width, "bold") for name, width in zip(columns, widths, strict=True)))
    if console.is_terminal:
        line(console, dim("─" * (sum(widths) + _GAP * (len(widths) - 1))))
    for row in rows:
        cells = zip(columns, row, widths, strict=True)
        line(
            console,
            gap.join(padded(name, value, width, "dim" if value == "null" else "") for name, value, width in cells),
        )


def _folded(console: Console, columns: Sequence[str], rows: Sequence[Sequence[str]], right: set[str]) -> None:
    made = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 0), show_edge=False, header_style="bold")
    for name in columns:
        made.add_column(Text(name), justify="right" if name in right else "left", overflow="fold")
    for row in rows:
        made.add_row(*(Text(value, style="dim" if value == "null" else "") for value in row))
    console.print(made)


def _records(console: Console, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    for number, row in enumerate(rows, 1):
        title = f"row {number:,} "
        line(console, dim(title + "─" * max(0, min(console.width, 60) - len(title))))
        facts(console, zip(columns, row, strict=True))


# charts


def bar(value: float, *, most: float, width: int) -> str:
    """Return a bar of at most `width` characters, `most` being the longest, in steps of an eighth."""
    eighths = 0 if most <= 0 else round(max(0.0, value) / most * width * 8)
    full, part = divmod(eighths, 8)
    return "█" * full + (_EIGHTHS[part] if part else "")


def sparkline(values: Sequence[float]) -> str:
    """Return one character per value, from the lowest value to the highest."""
    if not values:
        return ""
    low, high = min(values), max(values)
    step = (high - low) / (len(_HEIGHTS) - 1)
    return "".join(_HEIGHTS[round((v - low) / step) if step else len(_HEIGHTS) // 2] for v in values)


def progress(console: Console, text: str) -> Any:
    """Return a context that shows a moving line while a person is watching, and nothing otherwise."""
    return console.status(text) if console.is_terminal else _Silent()


class _Silent:
    """A status line that shows nothing."""

    update: Callable[..., None] = staticmethod(lambda *_: None)

    def __enter__(self) -> _Silent:
        return self

    def __exit__(self, *_: object) -> None:
        return None

"""The page of `merganser top` as lines of text, for a width and a height; values in, no requests.

A narrow page has fewer columns: names are cut first, then the least important columns are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from merganser.cli import render
from merganser.cli.top_watch import Commit, TableWatch, WarehouseWatch, WatchedTable
from merganser.codec.display import on_one_line
from merganser.meta.snapshot import Snapshot
from merganser.progress.sizes import size_text
from merganser.values import dataclass

_GAP: Final = "  "
_UNITS: Final = ((1, "s", 120), (60, "min", 120), (3600, "h", 48), (86_400, "d", 0))
"""Seconds, name, and how many of a unit are shown before the next one is used; 0: any number."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table on the page.

    Attributes:
        name: heading.
        rank: of several columns that do not fit, the one with the highest rank is left out first.
        right: aligned to the right.
        least: minimum width to which values are cut; 0: they are never cut.
    """

    name: str
    rank: int
    right: bool = True
    least: int = 0


_OF_TABLES: Final = (
    Column("table", 0, right=False, least=12),
    Column("snapshot", 5),
    Column("committed", 1),
    Column("rows/s", 2),
    Column("commits/min", 3),
    Column("files", 6),
    Column("size", 7),
    Column("compactions", 8),
    Column("health", 4, right=False, least=8),
)
_OF_COMMITS: Final = (
    Column("id", 0),
    Column("committed", 1),
    Column("kind", 2, right=False),
    Column("rows", 3),
    Column("deleted", 4),
    Column("files", 5),
    Column("user", 6, right=False, least=8),
)
_OF_CONSUMERS: Final = (
    Column("consumer", 0, right=False, least=10),
    Column("snapshots behind", 1),
    Column("seconds behind", 2),
    Column("next snapshot", 3),
)
_OF_BUCKETS: Final = (
    Column("bucket", 0, right=False, least=10),
    Column("level-0 files", 1),
    Column("files", 2),
    Column("size", 3),
)


def warehouse_page(watch: WarehouseWatch, title: str, now_ms: int, width: int | None, height: int | None) -> list[Text]:
    """Return the page of a warehouse.

    Args:
        watch: what is known.
        title: name of the warehouse.
        now_ms: the time, in epoch milliseconds.
        width, height: of the terminal; None: as wide and high as needed.
    """
    tables = watch.by_activity
    known = [one for one in tables if one.looked_at is not None]
    rows, commits = sum(one.rows_per_second for one in known), sum(one.commits_per_minute for one in known)
    size = sum(one.size for one in known)
    said = (
        render.counted(len(tables), "table")
        if len(known) == len(tables)
        else f"{len(known):,} of {len(tables):,} tables"
    )
    lines = _head(title, [said, f"{_rate(rows)} rows/s", f"{_rate(commits)} commits/min", size_text(size)], width)
    lines += _problem(watch.problem, width)
    room = None if height is None else max(1, height - len(lines) - 2)  # heading, and what is left out
    shown = known if room is None else known[:room]
    lines += table_lines(_OF_TABLES, [_row(one, now_ms) for one in shown], width)
    if len(shown) < len(known):
        lines.append(render.dim(f"and {render.counted(len(known) - len(shown), 'more table')}"))
    return lines


def table_page(watch: TableWatch, now_ms: int, width: int | None, height: int | None) -> list[Text]:
    """Return the page of a table; arguments as for `warehouse_page`."""
    of = watch.of
    newest = "no snapshot yet" if of.newest is None else f"snapshot {of.newest.id:,}, {age(of.newest, now_ms)} ago"
    facts = [
        newest,
        f"{_rate(of.rows_per_second)} rows/s",
        f"{_rate(of.commits_per_minute)} commits/min",
        f"{render.counted(of.files, 'file')}, {size_text(of.size)}",
        render.counted(watch.tags, "tag"),
        render.counted(watch.branches, "branch", "branches"),
    ]
    lines = _head(of.name, facts, width) + _problem(of.problem, width)
    others: list[Text] = []
    if watch.consumers:
        consumers = [
            [
                on_one_line(one["consumer_id"]),
                render.count(one["lag_snapshots"]),
                f"{one['lag_seconds']:,.1f}",
                render.count(one["next_snapshot_id"]),
            ]
            for one in watch.consumers
        ]
        others += [Text(""), *table_lines(_OF_CONSUMERS, consumers, width)]
    if watch.buckets:
        buckets = [
            [one.directory, render.count(one.flushed), render.count(one.files), size_text(one.size)]
            for one in watch.buckets
        ]
        others += [Text(""), *table_lines(_OF_BUCKETS, buckets, width)]
    if watch.advice:
        others += [Text(""), *(Text(_cut(one, width), style="yellow") for one in watch.advice)]
    room = None if height is None else max(3, height - len(lines) - len(others) - 1)
    commits = [_commit(one, now_ms) for one in watch.last[:room]]
    lines += table_lines(_OF_COMMITS, commits, width) + others
    return lines if height is None else lines[:height]


def table_lines(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int | None) -> list[Text]:
    """Return a heading and rows, aligned, in at most `width` cells."""
    chosen = list(range(len(columns)))
    widths = [max([cell_len(one.name), *(cell_len(row[i]) for row in rows)]) for i, one in enumerate(columns)]
    while width is not None:
        over = sum(widths[i] for i in chosen) + len(_GAP) * (len(chosen) - 1) - width
        spare = [i for i in chosen if columns[i].least]
        if over <= sum(max(0, widths[i] - columns[i].least) for i in spare):
            for _ in range(max(0, over)):
                widest = max(spare, key=lambda i: widths[i] - columns[i].least)
                widths[widest] -= 1
            break
        if len(chosen) == 1:
            widths[chosen[0]] = width
            break
        chosen.remove(max(chosen, key=lambda i: columns[i].rank))

    def line(cells: Sequence[str]) -> str:
        return _GAP.join(_padded(cells[i], widths[i], right=columns[i].right) for i in chosen).rstrip()

    return [render.bold(line([one.name for one in columns])), *(Text(line(row)) for row in rows)]


def age(snapshot: Snapshot, now_ms: int) -> str:
    """Return how long ago a commit was. A clock of another machine may be ahead: that counts as now."""
    seconds = max(0, now_ms - snapshot.time_millis) // 1000
    for size, name, most in _UNITS:
        if not most or seconds // size < most:
            return f"{seconds // size:,} {name}"
    raise AssertionError("the last unit has no most")


def _row(one: WatchedTable, now_ms: int) -> list[str]:
    health = one.problem or ("..." if one.topics is None else ", ".join(one.topics) or "ok")
    if one.newest is None:
        return [one.name, "", "never", "", "", "", "", "", health]
    return [
        one.name,
        render.count(one.newest.id),
        age(one.newest, now_ms),
        _rate(one.rows_per_second),
        _rate(one.commits_per_minute),
        render.count(one.files),
        size_text(one.size),
        render.count(one.compactions),
        health,
    ]


def _commit(one: Commit, now_ms: int) -> list[str]:
    files = f"+{one.files_added:,}" + (f" -{one.files_removed:,}" if one.files_removed else "")
    return [
        render.count(one.snapshot.id),
        age(one.snapshot, now_ms),
        one.snapshot.commit_kind,
        render.count(one.rows_added),
        render.count(one.rows_deleted),
        files,
        on_one_line(one.snapshot.commit_user),
    ]


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or not value else f"{value:,.1f}"


def _head(title: str, facts: Iterable[str], width: int | None) -> list[Text]:
    """Return the title with facts behind it, on as many lines as they take."""
    lines = [title]
    for fact in facts:
        longer = f"{lines[-1]}{_GAP}{fact}"
        if width is not None and cell_len(longer) > width:
            lines.append(fact)
        else:
            lines[-1] = longer
    first, *others = (_cut(line, width) for line in lines)
    return [render.bold(first), *map(Text, others), Text("")]


def _problem(problem: str | None, width: int | None) -> list[Text]:
    return [] if problem is None else [Text(_cut(problem, width), style="red")]


def _padded(text: str, width: int, *, right: bool) -> str:
    text = _cut(text, width)
    blanks = " " * (width - cell_len(text))
    return blanks + text if right else text + blanks


def _cut(text: str, width: int | None) -> str:
    return text if width is None or cell_len(text) <= width else set_cell_size(text, max(width - 1, 0)).rstrip() + "…"

"""The changes of a table: the latest ones, and those to come while the page is looked at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from merganser.codec.display import display_texts
from merganser.console import cells, html
from merganser.console.page import Asked, News, Page
from merganser.console.pages.data import history_address
from merganser.console.pages.history import committer
from merganser.errors import ExpiredError, InvalidInputError, MerganserError, UntrackedError
from merganser.expr.filters import to_predicate
from merganser.expr.predicate import Predicate, conjunction
from merganser.handle.table import Table
from merganser.meta.snapshot import Snapshot
from merganser.options import write as w
from merganser.scan.changes import Changes
from merganser.scan.scan import check_is_there
from merganser.schema.table_schema import CHANGE_KIND
from merganser.values import dataclass

ROWS_MAX: Final = 200
"""Maximum number of rows that are shown of one commit, and of the latest commits together."""
COLUMNS_MAX: Final = 40
SECONDS: Final = 4.0
"""How long one request looks for the latest changes."""
_COMMITS_MAX: Final = 50
_BEHIND_MAX: Final = 50
"""The tail passes over commits if more of them come between two looks: nobody could read them."""
KINDS: Final = {"inserts": "+I", "before": "-U", "after": "+U", "deletes": "-D"}
_MARKS: Final = {"+I": "good", "-U": "soft", "+U": "warn", "-D": "bad"}


@dataclass(frozen=True)
class Asking:
    """What the reader wants to see.

    Attributes:
        where: the filter, on the kind of a change, too; None: all changes.
        columns: names of the columns that are shown.
    """

    where: Predicate | None
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Line:
    """One change."""

    kind: str
    mark: str
    cells: list[cells.Cell]
    history: str | None


@dataclass(frozen=True)
class Commit:
    """What a commit published, as the page shows it.

    Attributes:
        lines: the first of its changes.
        more: whether it published more of them than are shown.
        problem: why its changes cannot be shown; empty: they can.
    """

    snapshot: Snapshot
    by: str
    lines: list[Line]
    more: bool
    problem: str = ""


def view(asked: Asked) -> Mapping[str, Any]:
    """Return the latest changes."""
    table = asked.table
    error = ""
    wanted: Asking | None = None
    try:
        wanted = _wanted(asked, table)
    except InvalidInputError as wrong:
        error = wrong.message
    newest = table.latest_snapshot()
    commits: list[Commit] = []
    looked = 0
    if wanted is not None:
        try:
            commits, looked = _latest(table, newest, wanted)
        except InvalidInputError as wrong:  # the filter fits the columns, and cannot be computed for a row
            error = wrong.message
    return {
        "table": table,
        "where": asked.text("where"),
        "error": error,
        "kinds": [(name, kind, bool(asked.text(name)) or not _chosen(asked)) for name, kind in KINDS.items()],
        "columns": () if wanted is None else wanted.columns,
        "hidden": max(0, len(table.schema.user_fields) - COLUMNS_MAX),
        "commits": commits,
        "looked": looked,
        "newest": newest,
        "since": newest.id if newest is not None else 0,
        "told": told(table),
        "rows_max": ROWS_MAX,
        "has_key": bool(table.primary_key),
        "width": 0 if wanted is None else _width(table, wanted),
    }


def told(table: Table) -> str:
    """Return which kinds of changes a table can tell, and when."""
    producer = table.options.get(w.CHANGELOG_PRODUCER)
    if producer == "none" and table.primary_key:
        return (
            "The table has no changelog: the rows that commits write are shown as they were written. An upsert is +I "
            "whether its key was new or not, there are no values from before (-U), and overwrites show nothing. Set "
            "'changelog-producer' to see them."
        )
    if producer == "none":
        return "Rows that are appended are +I. Rows that a delete or an overwrite removes are -D."
    if producer in ("lookup", "full-compaction"):
        return "The changelog is complete. A compaction publishes it, so changes may come later than their commit."
    return "The changelog has the changes that each commit published."


def events(asked: Asked, position: Any) -> News:
    """Return the changes of the commits since the last look."""
    table = asked.table
    newest = table.latest_snapshot()
    check_is_there(table.definition, table.env, newest, f"cannot follow '{table.name}'")
    now = 0 if newest is None else newest.id
    if position is None:
        wanted = _wanted(asked, table)  # an error of the filter is told before anything is sent
        since = asked.number("since", now)
        begin = now if since is None else since
        return News((begin, table.definition.schema.id, wanted), (_at(begin),))
    last, schema_id, wanted = position
    pieces: list[tuple[str, str]] = []
    if now < last:
        pieces.append(_notice(f"The table was rolled back to snapshot {now}, or dropped and made again."))
        return News((now, schema_id, wanted), (*pieces, _at(now)))
    if newest is not None and newest.schema_id > schema_id:
        schema_id = newest.schema_id
        pieces.append(_notice("The columns or options of the table were changed. Load the page again to see them."))
    if now - last > _BEHIND_MAX:
        pieces.append(_notice(f"{now - last - _BEHIND_MAX:,} commits were passed over: there are too many to show."))
        last = now - _BEHIND_MAX
    expired: list[int] = []
    for number in range(last + 1, now + 1):
        snapshot = newest if newest is not None and number == now else _snapshot(table, number)
        if snapshot is None:
            expired.append(number)
            continue
        commit = _commit(table, snapshot, wanted, ROWS_MAX)
        if commit.lines or commit.problem:
            context = {"commit": commit, "width": _width(table, wanted), "now": table.env.clock()}
            pieces.append(("commit", html.render("commit", context).decode()))
    if expired:
        pieces.insert(0, _notice(f"Snapshots {expired[0]:,} to {expired[-1]:,} expired before they were shown."))
    if now > last:
        pieces.append(_at(now))
    return News((now, schema_id, wanted), tuple(pieces))


def _at(number: int) -> tuple[str, str]:
    return "at", str(number)


def _notice(text: str) -> tuple[str, str]:
    return "notice", text


def _chosen(asked: Asked) -> list[str]:
    return [kind for name, kind in KINDS.items() if asked.text(name)]


def _wanted(asked: Asked, table: Table) -> Asking:
    fields = table.definition.schema.user_fields
    parts = []
    for text in (asked.text("where"), _of_kinds(_chosen(asked))):
        if text:
            found = to_predicate(text, (CHANGE_KIND, *fields), setting=table.setting("UTC"))
            assert found is not None
            parts.append(found)
    return Asking(conjunction(parts), tuple(field.name for field in fields[:COLUMNS_MAX]))


def _of_kinds(kinds: list[str]) -> str:
    texts = ", ".join(f"'{kind}'" for kind in kinds)
    return f"{CHANGE_KIND.name} IN ({texts})" if kinds and len(kinds) < len(KINDS) else ""


def _latest(table: Table, newest: Snapshot | None, wanted: Asking) -> tuple[list[Commit], int]:
    """Return the newest commits with changes, newest first, and the number of commits that were looked at."""
    until = table.env.seconds() + SECONDS
    commits: list[Commit] = []
    left, looked = ROWS_MAX, 0
    snapshot = newest
    while snapshot is not None:
        commit = _commit(table, snapshot, wanted, left)
        looked += 1
        if commit.lines or commit.problem:
            commits.append(commit)
        left -= len(commit.lines)
        if left <= 0 or looked >= _COMMITS_MAX or table.env.seconds() > until:
            break
        snapshot = _snapshot(table, snapshot.id - 1)
    return commits, looked


def _snapshot(table: Table, number: int) -> Snapshot | None:
    if number < 1:
        return None
    try:
        return table.looked_at(snapshot=number)
    except MerganserError:
        return None


def _commit(table: Table, snapshot: Snapshot, wanted: Asking, rows_max: int) -> Commit:
    """Return what a commit published, at most some rows of it."""
    key = list(table.definition.row_key) if table.primary_key else []
    names = [*wanted.columns, *(name for name in key if name not in wanted.columns)]
    lines: list[Line] = []
    more, problem = False, ""
    try:
        found: Changes = table.changes(snapshot.id, snapshot.id, names, wanted.where)
        for batch in found.to_batches():
            rows = batch.slice(0, rows_max - len(lines))
            more = rows.num_rows < batch.num_rows
            lines += _lines(table, rows, wanted, key)
            if more or len(lines) >= rows_max:
                break
    except UntrackedError as error:
        problem = error.message
    except ExpiredError:
        problem = "The changes of this commit are no longer kept."
    return Commit(snapshot, committer(snapshot), lines, more, problem)


def _lines(table: Table, rows: pa.RecordBatch, wanted: Asking, key: list[str]) -> list[Line]:
    whole = pa.Table.from_batches([rows])
    kinds = whole.column(CHANGE_KIND.name).to_pylist()
    shown = cells.cells_of(whole.select(list(wanted.columns)))
    keys = [display_texts(whole.column(name)).to_pylist() for name in key]
    texts = list(zip(*keys, strict=True)) or [()] * len(kinds)
    return [
        Line(kind, _MARKS.get(kind, "soft"), one, history_address(table.name, key, text) if key else None)
        for kind, one, text in zip(kinds, shown, texts, strict=True)
    ]


def _width(table: Table, wanted: Asking) -> int:
    return len(wanted.columns) + 1 + bool(table.primary_key)


PAGE: Final = Page("changes", "/t/{table}/changes", view, title="Changes", key="l", events=events)

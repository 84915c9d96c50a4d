"""The rows of a table: of any snapshot, tag or time, through a filter, a page at a time."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote, urlencode

import pyarrow as pa

from merganser.codec.display import display_texts, is_binary
from merganser.console import cells
from merganser.console.history import Line as Past
from merganser.console.page import PER_PAGE, Asked, Page
from merganser.errors import ExpiredError, InvalidInputError, NotFoundError, UnsupportedError
from merganser.expr.filters import to_predicate
from merganser.handle.table import Table
from merganser.meta.refs import TagStore
from merganser.options.registry import did_you_mean
from merganser.scan.plan import Plan
from merganser.scan.row_pages import Place, RowPage, read_page
from merganser.scan.scan import Scan
from merganser.scan.source import State
from merganser.schema import types as t
from merganser.serve.answers import Answer
from merganser.values import dataclass

SECONDS: Final = 8.0
"""How long one request reads rows. What was found until then is shown."""
COLUMNS_MAX: Final = 60
"""Maximum number of columns that are shown unless columns are named."""
_PAGES_MAX: Final = 1_000
_FAR_BYTES_MAX: Final = 64 << 20
_KEY_TEXT_MAX: Final = 1_000
"""Maximum length of a key in an address."""
_PLAN_BYTES_PER_FILE: Final = 400
_NUMBERS: Final = (t.TinyInt, t.SmallInt, t.Int, t.BigInt, t.Decimal, t.Float, t.Double)
_NAME: Final = re.compile(r"\s*(?:`((?:[^`]|``)*)`|([^,`]+))\s*(?:,|$)")
_CELL: Final = re.compile(r"([0-9]{1,4})\.([0-9]{1,5})")


class _NotKnownError(Exception):
    """Nothing is kept under a key."""


@dataclass(frozen=True)
class Line:
    """One row.

    Attributes:
        cells: its values.
        history: the address of the history of its key; None: it has none.
    """

    cells: list[cells.Cell]
    history: str | None


def view(asked: Asked) -> Mapping[str, Any]:
    """Return the rows that are asked for, or one whole value of them."""
    table = asked.table
    at, where, named = asked.text("at"), asked.text("where"), asked.text("columns")
    errors = dict.fromkeys(("at", "columns", "where"), "")
    scan = _caught(errors, "at", lambda: _state(table, at, asked.number("on", least=1)))
    columns = None if scan is None else _caught(errors, "columns", lambda: _columns(scan, named))
    chosen = None
    if scan is not None and columns is not None:
        chosen = _caught(errors, "where", lambda: _with_filter(table, scan, columns, where))
    number = min(asked.number("page", 1, least=1) or 1, _PAGES_MAX)
    begun = table.env.seconds()
    page = None if chosen is None else _caught(errors, "where", lambda: _page(asked, chosen, where, number))
    if asked.text("cell"):
        return {"answer": _whole(asked, page, errors)}
    newest = table.latest_snapshot()
    return {
        "table": table,
        "at": at,
        "where": where,
        "named": named,
        "errors": errors,
        "is_wrong": any(errors.values()),
        "columns": columns or (),
        "line_kinds": ["number" if isinstance(each.type, _NUMBERS) else "" for each in columns or ()],
        "hidden": 0 if scan is None or named else max(0, len(scan.columns) - COLUMNS_MAX),
        "lines": [] if page is None or columns is None else _lines(table, page.rows, columns),
        "page_of_rows": page,
        "number": number,
        "pages_max": _PAGES_MAX,
        "per_page": PER_PAGE,
        "snapshot": None if chosen is None else chosen.snapshot,
        "newest": newest,
        "seconds": table.env.seconds() - begun,
        "tags": [tag.name for tag in reversed(Past(asked, table).tags)][:200],
        "order": _order_told(table),
    }


def _caught(errors: dict[str, str], field: str, make: Callable[[], Any]) -> Any:
    """Return what a function makes; None, with the message under the name of the field, if the field is wrong."""
    try:
        return make()
    except InvalidInputError as error:
        errors[field] = error.message
    except (NotFoundError, ExpiredError) as error:
        errors["at"] = error.message
    return None


def _order_told(table: Table) -> str:
    if table.primary_key:
        return "Rows come bucket by bucket, and within a bucket by key."
    return "Rows come file by file, in the order in which they are stored."


# what is asked


def _state(table: Table, text: str, on: int | None) -> Scan:
    """Return a scan of the state that is asked for, with all columns of that time.

    Args:
        text: the name of a tag, the id of a snapshot or a time; empty: the newest state.
        on: the snapshot that the first page of the newest state was read from; None: this is the first page.

    Raises:
        InvalidInputError, NotFoundError: the text is none of these, or there is no such state.
        ExpiredError: the snapshot has expired.
    """
    if not text:
        found = table.latest_snapshot() if on is None else table.looked_at(snapshot=on)
        return replace(table.read(), source=State(found))
    if text in TagStore(table.definition.paths, table.env, table.name).names():
        return table.read(tag=text)
    if text.isascii() and text.isdecimal() and len(text) < 20:
        return table.read(snapshot=int(text))
    try:
        datetime.fromisoformat(text)
    except ValueError:
        known = [tag.name for tag in table.tags.list()]
        hint = f" {did_you_mean(text, known)}" if known else ""
        raise InvalidInputError(
            f"{text!r:.100} is no tag of the table, no id of a snapshot and no time such as 2026-01-31T12:00:00.{hint}"
        ) from None
    return table.read(timestamp=text)


def _columns(scan: Scan, named: str) -> tuple[t.Field, ...]:
    if not named:
        return scan.columns[:COLUMNS_MAX]
    names, at = [], 0
    while at < len(named):
        found = _NAME.match(named, at)
        if found is None:
            raise InvalidInputError(
                f"cannot read the names of columns from {named[at:]!r:.60}. Separate them by commas."
            )
        names.append(found[2].strip() if found[1] is None else found[1].replace("``", "`"))
        at = found.end()
    fields = {field.name: field for field in scan.columns}
    for name in names:
        if name not in fields:
            raise InvalidInputError(f"there is no column {name!r:.60}. {did_you_mean(name, list(fields))}".rstrip())
    return tuple(fields[name] for name in dict.fromkeys(names))


def _with_filter(table: Table, scan: Scan, columns: Sequence[t.Field], where: str) -> Scan:
    """Return the scan with a filter. It also reads the columns of the key."""
    shown = {field.name for field in columns}
    key = scan.table.row_key if scan.table.keyed else ()
    read = (*columns, *(field for field in scan.columns if field.name in key and field.name not in shown))
    condition = to_predicate(where, scan.table.schema.user_fields, setting=table.setting("UTC")) if where else None
    return replace(scan, columns=read, where=condition)


# rows


def _page(asked: Asked, scan: Scan, where: str, number: int) -> RowPage:
    """Return a page of rows. Positions of pages are kept, so that the next page begins where this one ended."""
    snapshot = scan.snapshot
    place = () if snapshot is None else (snapshot.id, snapshot.time_millis)
    names = tuple(field.name for field in scan.columns)
    own = (scan.table.path, scan.table.branch, place, names, where)
    plan = _plan(scan, own)
    begin, skip = Place(), 0
    for before in range(number, 1, -1):
        known = _kept(asked, ("rows", own, before))
        if known is not None:
            begin, skip = known, (number - before) * PER_PAGE
            break
    else:
        skip = (number - 1) * PER_PAGE
    page = read_page(scan, plan, begin, rows=PER_PAGE, skip=skip, seconds=SECONDS)
    if page.next is not None and page.skipped == skip:
        asked.known.get(("rows", own, number + 1), lambda: page.next)
    return page


def _plan(scan: Scan, own: tuple[object, ...]) -> Plan:
    """Return the plan of a scan, the same for all pages, since it decides the order of rows."""
    cache, key = scan.env.cache, ("plan of pages", *own)
    found: Plan | None = cache.get(key)
    if found is None:
        found = scan.plan()
        files = sum(len(split.files) for split in found.splits)
        cache.put(key, found, 1_000 + files * _PLAN_BYTES_PER_FILE)
    return found


def _kept(asked: Asked, key: tuple[object, ...]) -> Any:
    def nothing() -> Any:
        raise _NotKnownError

    try:
        return asked.known.get(key, nothing)
    except _NotKnownError:
        return None


def _lines(table: Table, rows: pa.Table, columns: Sequence[t.Field]) -> list[Line]:
    shown = cells.cells_of(rows.select([field.name for field in columns]))
    key = [name for name in table.definition.row_key if name in rows.column_names] if table.primary_key else []
    if not key:
        return [Line(each, None) for each in shown]
    texts = zip(*(display_texts(rows.column(name)).to_pylist() for name in key), strict=True)
    return [Line(each, history_address(table.name, key, text)) for each, text in zip(shown, texts, strict=True)]


def history_address(table_name: str, key: Sequence[str], texts: Sequence[str | None]) -> str | None:
    """Return the address of the history of a key; None: the key is too long for an address."""
    given = zip(key, texts, strict=True)
    query = urlencode([(f"null.{name}", "1") if text is None else (f"k.{name}", text) for name, text in given])
    return f"/t/{quote(table_name)}/key?{query}" if len(query) <= _KEY_TEXT_MAX else None


def _whole(asked: Asked, page: RowPage | None, errors: Mapping[str, str]) -> Answer:
    """Return one value of a page as a file of text or bytes."""
    found = _CELL.fullmatch(asked.text("cell"))
    if page is None or found is None:
        raise InvalidInputError("the value cannot be found. " + " ".join(errors.values()))
    row, column = int(found[1]), int(found[2])
    if row >= page.rows.num_rows or column >= page.rows.num_columns:
        raise NotFoundError("the page has no such value.")
    one = page.rows.column(column).slice(row, 1)
    headers = {"content-disposition": "inline"}
    if is_binary(one.type):
        [value] = one.to_pylist()
        body, kind = value or b"", "application/octet-stream"
        headers = {"content-disposition": 'attachment; filename="value.bin"'}
    else:
        [text] = display_texts(one).to_pylist()
        body, kind = ("" if text is None else text).encode(), "text/plain; charset=utf-8"
    if len(body) > _FAR_BYTES_MAX:
        raise UnsupportedError(f"the value has {len(body):,} bytes, and the console shows {_FAR_BYTES_MAX:,} at most.")
    return Answer(body, kind=kind, headers=headers)


PAGE: Final = Page("data", "/t/{table}/data", view, title="Data", key="d")

"""What people look at in the console: the history of one key, and rows page by page."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa

from merganser.codec.display import display_texts
from merganser.scan.key_history import BOUND, KeyHistory, Version, key_condition, key_history
from merganser.scan.row_pages import Place, read_page
from tests.everything.model import image
from tests.everything.replica import DifferenceError
from tests.everything.values import Row, converter


def look(h: Any, rng: random.Random) -> None:
    """Look at one key through all states that are kept, or at all rows, one page after the other."""
    if h.model.key and not h.layout.postpones and rng.random() < 0.7:
        _key(h, rng)
    else:
        _pages(h, rng)


def _pages(h: Any, rng: random.Random) -> None:
    scan = h.table.read()
    plan, place, pages = scan.plan(), Place(), []
    size = rng.choice([1, 3, 10, 100]) if len(h.model.visible()) < 200 else 100
    while place is not None:
        page = read_page(scan, plan, place, rows=size, seconds=60)
        pages.append(page.rows)
        place = page.next
    if any(each.num_rows > size for each in pages):
        raise DifferenceError("pages", f"a page has more than {size} rows")
    h.same("pages", pa.concat_tables(pages), h.model.visible())
    h.compared["pages"] += len(pages)


def _key(h: Any, rng: random.Random) -> None:
    """Compare the history of a key with the row in each state that is kept."""
    table, visible = h.line.table, h.model.visible()
    names = [*dict.fromkeys([*h.model.key, *h.model.partition])]
    states = {number: state for number, state in sorted(h.line.states.items()) if state.model.key}
    rows = [row for state in states.values() for row in state.model.visible() if set(names) <= row.keys()] or visible
    if not rows:
        return
    chosen = rng.choice(rows)
    schema = table.read().schema
    texts: dict[int, str] = {}
    for name in names:
        [text] = display_texts(pa.array([chosen[name]], schema.field(name).type)).to_pylist()
        if text is None:  # of a partition: the form has no text for null
            return
        texts[table.definition.schema.field(name).id] = text
    start = table.latest_snapshot()
    found = key_history(table.definition, table.env, lambda made: key_condition(made, texts), start, seconds=60)
    if found.first is None or found.ends == BOUND:
        return
    ids = set(texts)
    for number, state in states.items():
        keyed = {f.id for f in state.fields if f.name in {*state.model.key, *state.model.partition}}
        if number < found.first.id or keyed != ids:
            continue
        of_state = {f.id: f.name for f in state.fields}
        now = {f.id: f.name for f in h.line.fields}
        wanted = [
            row
            for row in state.model.visible()
            if all(repr(row[of_state[each]]) == repr(chosen[now[each]]) for each in ids)
        ]
        version = _at(found, number)
        got = [] if version is None else [converter(version.fields, state.fields)(_row(version))]
        shown = [[image(row, state.fields, state.model.unordered()) for row in each] for each in (got, wanted)]
        if shown[0] != shown[1]:
            raise DifferenceError("history of a key", f"{chosen} at snapshot {number}: {shown[0]}, expected {shown[1]}")
        h.compared["states of a key"] += 1


def _at(history: KeyHistory, number: int) -> Version | None:
    """Return the row of a key at a snapshot, as its history tells it."""
    for step in history.steps:
        if step.snapshot.id <= number:
            return step.after
    return history.at_first


def _row(version: Version) -> Row:
    names = [f.name for f in version.fields]
    [row] = version.row.rename_columns(names).to_pylist()
    return row  # type: ignore[no-any-return]

"""Steps that bring rows in other forms: files, writers that overlap, repeated commits; and copies, lookups."""

from __future__ import annotations

import json
import random
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch
from urllib.parse import quote

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq

from merganser.errors import ConflictError
from merganser.schema import types as t
from tests.everything.change_records import encoded_row
from tests.everything.history import History, SkippedError, begins_with
from tests.everything.replica import DifferenceError
from tests.everything.steps import step
from tests.everything.values import Row


@step(2)
def load(h: History, rng: random.Random) -> None:
    """Load rows from files."""
    model = h.model
    changes = h.changes(rng, rng.choice([1, 5, 20]))
    kinds = "op" if rng.random() < 0.5 or model.rowkind else None
    if kinds is None:
        changes = [("+I", row) for _, row in changes]
    rows = h.arrow(changes) if kinds else h.arrow(changes).drop_columns(["op"])
    form = rng.choice(["parquet", "parquet", "orc", "json"])
    if form == "orc" and any(not _orc_holds(f.type) for f in model.fields):
        form = "parquet"
    if form == "json" and any("MAP" in str(f.type) for f in model.fields):
        form = "parquet"  # in JSON files a map is a list of its entries
    folder = h.path / f"files-{next(h.names)}"
    folder.mkdir(parents=True)
    half = len(changes) // 2
    for number, part in enumerate((rows.slice(0, half), rows.slice(half))):
        path = folder / f"{number}.{form}"
        if form == "parquet":
            pq.write_table(part, path)
        elif form == "orc":
            orc.write_table(part, path)
        else:
            few = changes[half:] if number else changes[:half]
            lines = [json.dumps(encoded_row(row, model.fields) | ({"op": kind} if kinds else {})) for kind, row in few]
            path.write_text("".join(f"{line}\n" for line in lines))
    h.load(rng, f"{folder}/*.{form}", kinds)
    model.flush(changes)


def _orc_holds(kind: t.DataType) -> bool:
    return isinstance(kind, t.Int | t.BigInt | t.VarChar | t.Double | t.Boolean | t.Date)


@step(2)
def overlap(h: History, rng: random.Random) -> None:
    """Writers that begin before the first of them commits: each commit has its effect in turn."""
    changes = h.changes(rng, rng.choice([2, 6, 20]))
    half = len(changes) // 2
    batches = [changes[:half], changes[half:]]
    model, table = h.model, h.table
    with ExitStack() as stack:
        writers = [(stack.enter_context(table.writer()), batch) for batch in batches]
        for writer, batch in writers:
            writer.write(h.arrow(batch), kinds="op")
        if not h.drawn.rising and rng.random() < 0.5:
            writers.reverse()
        small = rng.choice([0, 1 << 20])  # rows get their numbers when they come, or at the commit
        with patch("merganser.write.buffer.SMALL_BYTES", small):
            for writer, batch in writers:
                try:
                    writer.commit()
                except ConflictError as error:
                    if not (table.definition.assigns_keys or model.moves):
                        raise DifferenceError("overlap", str(error)) from error
                    writer.abort()
                    table.write(h.arrow(batch), kinds="op")
                model.flush(batch)


@step(1)
def repeat(h: History, rng: random.Random) -> None:
    """A commit with an identifier that is repeated is applied once."""
    changes = h.changes(rng, rng.choice([1, 5]))
    user, rows = next(h.names), h.arrow(changes)
    first = h.table.write(rows, kinds="op", commit_user=user, identifier=1)
    h.model.flush(changes)
    again = h.table.write(rows, kinds="op", commit_user=user, identifier=1)
    if again is not None and (first is None or again.id != first.id):
        raise DifferenceError("repeat", f"snapshot {first and first.id}, and {again.id} when it was repeated")


@step(1)
def clone(h: History, rng: random.Random) -> None:
    """A clone of a state has its rows."""
    line = h.line
    if not line.states:
        raise SkippedError
    number = rng.choice(sorted(line.states))
    state = line.states[number]
    copy = h.catalog.clone(line.table, f"db.{next(h.names)}", snapshot=number)
    latest = line.table.latest_snapshot()
    assert latest is not None
    is_newest = number == latest.id  # the table as it is, and not as it was
    rows, fields = (h.now_of(state), line.fields) if is_newest else (state.model.visible(), state.fields)
    h.same(f"clone of {number}", copy.read(), rows, fields)
    if findings := copy.check():
        raise DifferenceError("clone", "; ".join(map(str, findings)))
    h.catalog.drop_table(copy.name)


@step(1)
def migrate(h: History, rng: random.Random) -> None:
    """A folder of files becomes a table, which goes on as any other."""
    model, own = h.model, [*h.model.key, *h.model.partition]
    if model.rowkind:
        raise SkippedError
    rows = rng.sample(model.visible(), min(12, len(model.visible()))) or [row for _, row in h.changes(rng, 1)]
    keyed = bool(model.key) and rng.random() < 0.5
    split = [name for name in model.partition if rng.random() < 0.7]
    schema = h.table.read().schema
    form = "orc" if all(_orc_holds(f.type) for f in model.fields) and rng.random() < 0.5 else "parquet"
    folder, expected = h.path / f"folder-{next(h.names)}", list[Row]()
    for number, row in enumerate(rows):
        gone = [f.name for f in schema if f.name not in own and rng.random() < 0.1] if number else []
        given = [f for f in schema if f.name not in (*split, *gone)]
        narrow = number and rng.random() < 0.3
        kinds = [pa.int8() if narrow and f.type == pa.int32() and f.name not in own else f.type for f in given]
        place = folder.joinpath(*(f"{name}={_directory(row[name])}" for name in split))
        place.mkdir(parents=True, exist_ok=True)
        try:
            columns = {f.name: pa.array([row[f.name]], kind) for f, kind in zip(given, kinds, strict=True)}
        except pa.ArrowInvalid:  # an INT that is no TINYINT
            columns = {f.name: pa.array([row[f.name]], f.type) for f in given}
        path = place / f"{number:03}.{form}"
        (pq if form == "parquet" else orc).write_table(pa.table(columns), path)
        expected.append({**row, **dict.fromkeys(gone)})
    types = {f.name: str(f.type.with_nullable(True)) for f in model.fields if f.name in split}
    how = rng.choice(["link", "keep", "copy"]) if h.storage is None and not keyed else None
    made = h.catalog.migrate(
        folder,
        f"db.{next(h.names)}",
        how=how,
        types=types,
        primary_key=[name for name in (f.name for f in model.fields) if name in own] if keyed else (),
        options={"bucket": rng.choice(["1", "2", "-1"])} if keyed else None,
    )
    fields = made.schema.fields
    h.same("migrated", made.read(), expected, fields)
    text, holds, names = h.drawn_filter(rng)
    if names <= {f.name for f in fields}:
        h.same(f"migrated where {text}", made.read(where=text), [row for row in expected if holds(row)], fields)
    for verb in rng.sample(["write", "delete", "compact"], 3):
        match verb:
            case "write" if not keyed:
                made.write(pa.Table.from_pylist(rows[:2], schema=made.read().schema))
                expected += rows[:2]
            case "delete" if names <= {f.name for f in fields}:
                made.delete(text)
                expected = [row for row in expected if not holds(row)]
            case "compact":
                made.compact(full=True)
        h.same(f"migrated, {verb}", made.read(), expected, fields)
    if findings := [each for each in made.check() if each.code != "unsure"]:  # files without checksums
        raise DifferenceError("migrated", "; ".join(map(str, findings)))
    h.catalog.drop_table(made.name)


def _directory(value: Any) -> str:
    """Return a value as it stands in the name of a directory."""
    return "__HIVE_DEFAULT_PARTITION__" if value is None else quote(str(value), safe="")


@step(1)
def look_up_again(h: History, rng: random.Random) -> None:
    """A handle for lookups that stays open goes on with the table."""
    if not h.model.key or h.line is not h.main:
        raise SkippedError
    if h.lookups is None or h.lookups[1] != h.table.schema.id or rng.random() < 0.3:
        h.lookups = h.table.lookups(), h.table.schema.id
        h.looked_at = None
    handle = h.lookups[0]
    _looked_at(h, rng)
    handle.refresh()
    h.looked_at = h.table.latest_snapshot(), h.model.visible()
    names = [*dict.fromkeys([*h.model.key, *h.model.partition])]
    rows = rng.sample(h.model.visible(), min(4, len(h.model.visible())))
    if rows:
        kinds = h.table.read().schema
        keys = pa.table({name: pa.array([row[name] for row in rows], kinds.field(name).type) for name in names})
        h.same("lookup handle", handle.lookup(keys), rows)


def _looked_at(h: History, rng: random.Random) -> None:
    """A handle that was not refreshed stays at its snapshot, as long as that is kept."""
    if h.looked_at is None:
        return
    snapshot, rows = h.looked_at
    prefix = h.drawn_prefix(rng, rows)
    if prefix is None or snapshot not in h.table.snapshots():
        return
    h.same("lookup handle of before", h.lookups[0].lookup_prefix(prefix), begins_with(rows, prefix))

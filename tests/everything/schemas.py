"""Steps that change the columns and options of the table, and writes by handles that were opened before."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from merganser import changes as c
from merganser.errors import ConflictError, InvalidInputError
from merganser.schema import types as t
from merganser.schema.types_text import parse_type
from tests.everything.history import History, SkippedError
from tests.everything.model import Model, image
from tests.everything.replica import DifferenceError
from tests.everything.steps import step
from tests.everything.values import KINDS, LADDERS, converter, default_of, draw, plain
from tests.oracle.drawn_tables import choice

OPTIONS = {
    "num-sorted-run.compaction-trigger": ("2", "4", "7"),
    "target-file-size": ("1 kb", "1 mb"),
    "data-file.thin-mode": ("true", "false"),
    "manifest.merge-min-count": ("2", "20"),
    "changelog-file.format": ("parquet", "avro"),
    "write-buffer-size": ("1 b", "64 mb"),
    "file-index.in-manifest-threshold": ("1 b", "500 b"),
}


def named_by_options(h: History) -> set[str]:
    """Return the columns that options name."""
    found = set()
    for key, value in h.model.options.items():
        found |= {*value.split(",")}
        if key.startswith("fields."):
            found |= {*key.removeprefix("fields.").rpartition(".")[0].split(",")}
    return found


@step(4)
def alter(h: History, rng: random.Random) -> None:
    """Change some columns, each once."""
    touched: set[str] = set()
    changes = []
    for _ in range(rng.choice([1, 1, 2, 3])):
        change = _change(h, rng)
        if change is None:
            continue
        place = change.place.after if isinstance(change, c.AddColumn | c.MoveColumn) else None
        names = {path.split(".")[0] for path in (change.name, place) if path}
        if names.isdisjoint(touched):
            changes.append(change)
            touched |= names
    if not changes:
        raise SkippedError
    altered(h, changes)


@step(3)
def widen(h: History, rng: random.Random) -> None:
    """Give columns wider types; readers that began before go on."""
    wider = wider_types(h)
    if not wider:
        raise SkippedError
    chosen = rng.sample(sorted(wider), rng.choice([1, len(wider)]))
    altered(h, [c.retype_column(name, rng.choice(wider[name])) for name in chosen])
    if h.follower is not None and h.follower.stays and h.line is h.main:
        h.compared[f"wider beside {h.follower.name}"] += 1


def wider_types(h: History) -> dict[str, list[str]]:
    """Return the columns that can become wider, with their types."""
    used = {*h.model.key, *h.model.partition, *named_by_options(h)}
    found = {f.name: _wider(f.type) for f in h.line.fields if f.name not in used and h.model.engine != "counting"}
    return {name: kinds for name, kinds in found.items() if kinds}


def _wider(kind: t.DataType) -> list[str]:
    """Return the types that hold all values of a type."""
    text = str(kind.with_nullable(True))
    return [each for ladder in LADDERS if text in ladder for each in ladder[ladder.index(text) + 1 :]]


@step(2)
def set_default(h: History, rng: random.Random) -> None:
    """Give a column a default, or a new column; or take a default away."""
    line = h.line
    ordering = {name for order in h.drawn.rising for name in order}
    free = [f for f in line.fields if f.name not in (*h.model.key, h.model.rowkind) and f.name not in ordering]
    if not free:
        raise SkippedError
    one = rng.choice(free)
    if one.id in line.model.defaults and rng.random() < 0.5:
        altered(h, [c.set_default(one.name, None)], defaults={one.name: None})
    elif h.model.engine != "counting" and rng.random() < 0.3:
        name, kind = next(h.names), rng.choice([kind for kind in KINDS if h.layout.takes(kind)])
        given, value = default_of(parse_type(kind), rng)
        altered(h, [c.add_column(name, kind, default=given)], defaults={name: value})
    else:
        given, value = default_of(one.type, rng)
        altered(h, [c.set_default(one.name, given)], defaults={one.name: value})


@step(1)
def alter_options(h: History, rng: random.Random) -> None:
    """Change an option that changes no result."""
    name = rng.choice(sorted(OPTIONS))
    if name == "changelog-file.format" and not h.fits_avro():
        raise SkippedError
    altered(h, [c.set_option(name, rng.choice(OPTIONS[name]))], old=False)


def altered(h: History, changes: list[Any], *, old: bool = True, defaults: Mapping[str, Any] | None = None) -> None:
    """Change the table and the model.

    Args:
        defaults: of columns; None: none any more.
    """
    line, table = h.line, h.line.table
    with_default = {f.name for f in line.fields if f.id in line.model.defaults}
    inner = [change.name.split(".") for change in changes if isinstance(change, c.AddColumn)]
    if any(rest and name in with_default for name, *rest in inner):
        h.refused(lambda: table.alter(changes), (InvalidInputError, "go by the places of the fields"))
        return
    if old:
        line.old.append((table, {f.name: line.model.defaults.get(f.id) for f in line.fields}))
    else:
        line.old.clear()  # what their options say is another thing now
    line.table = h.opened(table.alter(changes))
    h.take_over(line, {change.name: change.new_name for change in changes if isinstance(change, c.RenameColumn)})
    by_name = {f.name: f.id for f in line.fields}
    for name, value in ({} if defaults is None else defaults).items():
        if value is None:
            line.model.defaults.pop(by_name[name], None)
        else:
            kind = line.table.read().schema.field(name).type
            line.model.defaults[by_name[name]] = pa.array([value], kind)[0].as_py()  # as Arrow gives it back


@step(2)
def set_primary_key(h: History, rng: random.Random) -> None:
    """Give a key to a table without one; the rows that are there are written anew."""
    model = h.model
    if model.key or model.engine != "append" or h.line is not h.main:
        raise SkippedError
    kinds = t.TinyInt | t.SmallInt | t.Int | t.BigInt | t.VarChar | t.Date | t.Decimal
    fields = [f for f in h.line.fields if f.name not in model.partition and isinstance(f.type, kinds)]
    chosen = [f.name for f in rng.sample(fields, rng.choice([1, 1, 2]) if len(fields) > 1 else len(fields))]
    own = [f.name for f in fields if f.name == "u" and rng.random() < 0.8]
    chosen = list(dict.fromkeys([*own, *chosen]))[: rng.choice([1, 2])]
    if not chosen:
        raise SkippedError
    moves = bool(model.partition) and model.options.get("ignore-delete") != "true" and rng.random() < 0.3
    key = chosen if moves else [*model.partition, *chosen]
    engine = rng.choice([None, None, "deduplicate", "deduplicate", "first-row", "partial-update", "aggregation"])
    if (engine == "first-row" and h.write_only) or (moves and engine != "deduplicate"):
        engine = None
    changes = [c.set_primary_key(key), *_keyed_options(h, rng, engine, moves=moves)]
    rows = model.visible()
    keys = Counter(tuple(plain(row[name]) for name in key) for row in rows)
    call = partial(h.table.alter, changes)
    if model.options.get("stream.enabled") == "true":
        h.refused(call, (InvalidInputError, "its shard stream has records of rows without a key"))
        return
    if any(None in each for each in keys):
        h.refused(call, (InvalidInputError, "null in the primary key"))
        return
    if engine is None and len(keys) < len(rows):
        h.refused(call, (InvalidInputError, r"share \d+ values? of the primary key"))
        return
    old, table = h.table, h.opened(call())
    h.table = table
    made = Model(
        engine or "deduplicate",
        table.schema.fields,
        key,
        model.partition,
        dict(table.options),
        moves,
        dict(model.defaults),
    )
    if len(keys) < len(rows):  # which of them is newer is known of one bucket alone
        found = table.read().to_pylist()
        there = Counter(image(row, model.fields) for row in rows)
        if len(found) != len(keys) or any(image(row, model.fields) not in there for row in found):
            raise DifferenceError("key", f"rows {found} of {rows}")
        rows = found
    made.flush([("+I", row) for row in rows], given=True)
    draws = dict(h.drawn.draws)
    for name in chosen:
        made.defaults.pop(table.schema.field(name).id, None)
        kind = table.schema.field(name).type
        draws[name] = choice(*[row[name] for row in rows[:6]], *(draw(kind, rng) for _ in range(2)))
    for name in model.partition:
        values = [value for value in (draws[name](rng) for _ in range(9)) if value is not None]
        draws[name] = choice(*values, *[row[name] for row in rows[:3] if row[name] is not None])
    h.take_key(made, replace(h.drawn, engine=made.engine, key=chosen, options=dict(table.options), draws=draws))
    if rows:
        reasons = "had no primary key when it was opened|the primary key has changed|Open the table again"
        given = h.arrow([("+I", rows[0])]).drop_columns(["op"])
        h.refused(lambda: old.write(given), (ConflictError, reasons))


def _keyed_options(h: History, rng: random.Random, engine: str | None, *, moves: bool) -> list[Any]:
    """Return the changes of options that go with a primary key."""
    options, given = h.model.options, {"bucket": "-1"}
    producers = ("none", "lookup") if engine == "first-row" else ("none", "none", "input", "lookup", "full-compaction")
    given["changelog-producer"] = producer = rng.choice([*producers, *(["per-record"] if len(producers) > 2 else [])])
    if not moves:
        given["bucket"] = rng.choice(["1", "2", "-1", *(["-2"] if producer != "per-record" else [])])
    if given["bucket"] == "-1":
        given["dynamic-bucket.target-row-num"] = rng.choice(["1", "3", "20"])
    if engine is not None:
        given["merge-engine"] = engine
    hides = h.write_only or moves or engine == "first-row" or producer == "full-compaction"
    gone = ["bucket-key", *(["deletion-vectors.enabled"] if hides else [])]
    return [
        *(c.set_option(*each) for each in given.items()),
        *(c.remove_option(name) for name in gone if name in options),
    ]


def _change(h: History, rng: random.Random) -> Any:
    fields = h.line.fields
    own = {*h.model.key, *h.model.partition}
    used = named_by_options(h)
    one = rng.choice(fields)
    free = one.name not in own and one.name not in used and h.model.engine != "counting"
    match rng.choice(["add", "add", "drop", "rename", "rename", "retype", "retype", "move", "nested"]):
        case "add" if h.model.engine != "counting":
            kind = rng.choice([kind for kind in KINDS if h.layout.takes(kind)])
            place = one.name if rng.random() < 0.5 else None
            return c.add_column(next(h.names), kind, after=place)
        case "drop" if free and len(fields) > len(own) + 1:
            return c.drop_column(one.name)
        case "rename" if one.name not in h.model.partition:
            return c.rename_column(one.name, next(h.names))
        case "retype" if free:
            steps = _wider(one.type)
            return c.retype_column(one.name, rng.choice(steps)) if steps else None
        case "move":
            return c.move_column(one.name, first=True)
        case "nested" if free and isinstance(one.type, t.Row):
            inner = rng.choice(one.type.fields)
            match rng.choice(["add", "rename", "retype"]):
                case "add":
                    return c.add_column(f"{one.name}.{next(h.names)}", rng.choice(["INT", "STRING", "DATE"]))
                case "rename":
                    return c.rename_column(f"{one.name}.{inner.name}", next(h.names))
                case "retype" if isinstance(inner.type, t.Int):
                    return c.retype_column(f"{one.name}.{inner.name}", "BIGINT")
    return None


@step(2)
def write_by_an_old_handle(h: History, rng: random.Random) -> None:
    """A handle of earlier columns writes: newer columns are null, and dropped ones are dropped."""
    line = h.line
    if not line.old or line.model.rowkind or line.model.engine == "counting" or h.merges_schema:
        raise SkippedError
    old, defaults = rng.choice(line.old)
    fields = old.schema.fields
    names = {f.id: f.name for f in line.fields}
    changes = []
    for kind, row in h.changes(rng, rng.choice([1, 5])):
        back = {f.name: row[names[f.id]] if f.id in names else None for f in fields}
        same = {f.id for f in line.fields if f.type == next((g.type for g in fields if g.id == f.id), None)}
        for f in fields:
            if f.id not in same:
                back[f.name] = draw(f.type, rng)
        changes.append((kind, back))
    given = h.arrow(changes, old)
    old.write(given, kinds="op")
    turn = converter(fields, line.fields)
    rows = given.drop_columns(["op"]).to_pylist()
    rows = [{name: defaults[name] if value is None else value for name, value in row.items()} for row in rows]
    line.model.flush([(kind, turn(row)) for (kind, _), row in zip(changes, rows, strict=True)], given=True)


@step(1)
def alter_what_cannot_be(h: History, rng: random.Random) -> None:
    """A change that the table does not take is refused, and the table stays as it is."""
    own = [*h.model.key, *h.model.partition]
    if not own:
        raise SkippedError
    name = rng.choice(own)
    before = h.catalog.table(h.table.name).schema  # a rescaling may have made one since the handle was opened
    h.refused(
        lambda: h.table.alter([c.drop_column(name)]),
        (InvalidInputError, "cannot be dropped|cannot drop|cannot lose a column"),
    )
    assert h.catalog.table(h.table.name).schema == before

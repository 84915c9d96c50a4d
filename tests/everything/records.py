"""Steps that bring rows in other forms: change records of every format, files, writers that overlap, copies."""

from __future__ import annotations

import base64
import json
import math
import random
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq

from merganser.errors import ConflictError, InvalidInputError
from merganser.schema import types as t
from merganser.testing.engines_oracle import Change
from tests.everything.history import History, SkippedError, begins_with
from tests.everything.replica import DifferenceError
from tests.everything.steps import step
from tests.everything.values import Row

FORMATS = ("debezium-json", "debezium-flat", "canal-json", "maxwell-json", "ogg-json", "json")
UNSENT = "__debezium_unavailable_value"


def encoded(value: Any, kind: t.DataType) -> Any:
    """Return a value as change records hold it."""
    match value, kind:
        case None, _:
            return None
        case Decimal(), _:
            return str(value)
        case float(), _ if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case datetime(), _:
            return value.isoformat(sep=" ").replace("+00:00", "Z")
        case date() | time(), _:
            return value.isoformat()
        case bytes(), _:
            return base64.b64encode(value).decode()
        case _, t.Row(fields=fields):
            return encoded_row(value, fields)
        case _, t.Map(value=inner):
            return {key: encoded(each, inner) for key, each in value}
        case _, t.Array(element=inner):
            return [encoded(each, inner) for each in value]
    return value


def encoded_row(row: Row, fields: Sequence[t.Field]) -> dict[str, Any]:
    """Return a row as change records hold it."""
    return {f.name: encoded(row[f.name], f.type) for f in fields}


def record_of(
    kind: str, form: str, before: dict[str, Any] | None, after: dict[str, Any] | None, *, whole: bool
) -> tuple[str | None, list[str]]:
    """Return a record of a change, and which rows it gives: kinds, in order.

    Args:
        before, after: the old and the new row, as records hold them.
        kind: insert, update or delete.
        whole: the record holds the whole old row.
    """
    kinds = {"insert": ["+I"], "update": ["-U", "+U"] if whole else ["+U"], "delete": ["-D"]}[kind]
    found: dict[str, Any] | None
    match form:
        case "debezium-json":
            sent = before if whole or kind == "delete" else None
            found = {"op": {"insert": "c", "update": "u", "delete": "d"}[kind], "before": sent, "after": after}
        case "debezium-flat":
            row = before if kind == "delete" else after
            assert row is not None
            op = {"insert": "c", "update": "u", "delete": "d"}[kind]
            found = {**row, "__deleted": str(kind == "delete").lower(), "__op": op}
            kinds = {"insert": ["+I"], "update": ["+U"], "delete": ["-D"]}[kind]
        case "canal-json":
            found = {"type": kind.upper(), "data": [before if kind == "delete" else after], "old": None}
            if kind == "update":
                assert before is not None
                found["old"] = [before]
        case "maxwell-json":
            found = {"type": kind, "data": before if kind == "delete" else after}
            if kind == "update":
                found["old"] = before
        case "ogg-json":
            found = {"op_type": kind[0].upper(), "before": before, "after": after}
        case _:
            found = None if kind == "delete" else after
            kinds = {"insert": ["+U"], "update": ["+U"], "delete": ["-D"]}[kind]
    return None if found is None else json.dumps(found), kinds


@step(3)
def change_records(h: History, rng: random.Random) -> None:
    """Change records of a source that has the rows of the table: inserts, updates, deletes, values not sent."""
    model = h.model
    if model.rowkind or model.engine not in ("deduplicate", "counting", "append") or h.layout.adds_only:
        raise SkippedError
    form = rng.choice(FORMATS)
    keyed, source = bool(model.key), model.visible()
    there = model.by_key() if keyed else {}
    takes = not keyed or len({*model.partition} - {*model.key}) == 0
    keeps = keyed and takes and form in ("debezium-json", "debezium-flat") and model.engine == "deduplicate"
    texts, keys, changes = list[str | None](), list[str | None](), list[Change]()
    unsent, ordered, seen, alone = False, "sequence.field" in model.options, set[Any](), set[Any]()
    for _, row in h.changes(rng, rng.choice([1, 4, 10])):
        old = there.get(model.key_of(row)) if keyed else (source.pop() if source and rng.random() < 0.4 else None)
        key = model.key_of(row)
        if key in alone:
            continue
        if keyed and old is not None and model.partition_of(old) != model.partition_of(row):
            row = {**row, **{name: old[name] for name in model.partition}}
        kind = "insert" if old is None else rng.choice(["update", "update", "delete"])
        if kind != "insert" and model.engine == "append":
            continue
        whole = form != "debezium-json" or not keyed or rng.random() < 0.6
        if not keyed and kind == "update" and form in ("debezium-flat", "json"):
            continue  # no old row, and no key
        if not keyed and kind == "delete" and form == "json":
            continue
        new = None if kind == "delete" else row
        images = [None if each is None else encoded_row(each, model.fields) for each in (old, new)]
        text, kinds = record_of(kind, form, *images, whole=whole)
        sent, kept = new, list[str]()
        if (
            keeps
            and kind == "update"
            and not (form == "debezium-json" and whole)
            and rng.random() < 0.4
            and not (ordered and key in seen)
        ):
            # in a call, records of a key follow each other in the order of a column
            alone |= {key} if ordered else set()
            sent, text, kept = _without_some(h, rng, form, old, row, text)
            unsent = unsent or (text is not None and UNSENT in text)
        seen.add(key)
        names = model.key if keyed else ()
        own = encoded_row(new or old or {}, [f for f in model.fields if f.name in names])
        keys.append(json.dumps(own) if keyed else None)
        texts.append(text)
        for each in kinds:
            given = old if each in ("-U", "-D") else sent
            assert given is not None
            given = {**model.filled(given), **{name: given[name] for name in kept}}
            if each == "-D" and form == "json":
                given = {name: value if name in names else None for name, value in given.items()}
            changes.append((each, given))
        if keyed:
            there = (
                {**there, model.key_of(row): {**model.filled(sent), **{name: sent[name] for name in kept}}}
                if sent is not None
                else {key: value for key, value in there.items() if key != model.key_of(row)}
            )
    if not texts:
        raise SkippedError
    options: dict[str, Any] = {"binary": "base64"} if form == "canal-json" else {}
    if unsent:
        options["unavailable"] = "keep"
    ordering = {name for name in model.options.get("sequence.field", "").split(",") if name} - set(model.key)
    if form == "json" and ordering and None in texts:  # a delete that is the key alone would be older than the row
        refusal = (InvalidInputError, "orders the rows of a key")
        h.refused(lambda: h.write_changes(rng, texts, form, keys, options), refusal)
        return
    h.write_changes(rng, texts, form, keys if keyed else None, options)
    model.flush(changes, given=True)


def _without_some(
    h: History, rng: random.Random, form: str, old: Row | None, row: Row, text: str | None
) -> tuple[Row, str | None, list[str]]:
    """Return a new row some of whose texts the source did not send, its record, and their names: they stay."""
    own = {*h.model.key, *h.model.partition, *h.model.options.get("sequence.field", "").split(",")}
    names = [f.name for f in h.model.fields if isinstance(f.type, t.VarChar) and f.name not in own]
    if old is None or not names or text is None:
        return row, text, []
    chosen = rng.sample(names, rng.randrange(1, len(names) + 1))
    record = json.loads(text)
    inner = record if form == "debezium-flat" else record["after"]
    inner |= dict.fromkeys(chosen, UNSENT)
    return {**row, **{name: old[name] for name in chosen}}, json.dumps(record), chosen


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

"""Steps that bring change records of every format: those of a source that has the rows of the table, and wrong ones."""

from __future__ import annotations

import base64
import json
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import merganser as mg
from merganser.errors import InvalidInputError
from merganser.schema import types as t
from tests.everything.history import History, SkippedError
from tests.everything.model import Model
from tests.everything.replica import DifferenceError
from tests.everything.steps import step
from tests.everything.values import Row
from tests.oracle.engines import Change

FORMATS = ("debezium-json", "debezium-json-schema", "debezium-flat", "canal-json", "maxwell-json", "ogg-json", "json")
_ENVELOPES = ("debezium-json", "debezium-json-schema")
UNSENT = "__debezium_unavailable_value"
_EPOCH = datetime(1970, 1, 1)


# values


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


def _connect(kind: t.DataType) -> tuple[dict[str, Any], Callable[[Any], Any]]:
    """Return the type of a column in a schema of Kafka Connect, and how its values are written."""
    match kind:
        case t.Decimal(scale=scale):
            named = {"name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": str(scale)}}
            return {"type": "bytes", **named}, lambda value: _unscaled(value, scale)
        case t.Date():
            return {"type": "int32", "name": "io.debezium.time.Date"}, lambda value: (value - _EPOCH.date()).days
        case t.Time():
            return {
                "type": "int64",
                "name": "io.debezium.time.MicroTime",
            }, lambda value: (datetime.combine(_EPOCH, value) - _EPOCH) // timedelta(microseconds=1)
        case t.Timestamp(precision=digits) if digits <= 3:
            return {
                "type": "int64",
                "name": "io.debezium.time.Timestamp",
            }, lambda value: (value - _EPOCH) // timedelta(milliseconds=1)
        case t.Timestamp():
            return {
                "type": "int64",
                "name": "io.debezium.time.MicroTimestamp",
            }, lambda value: (value - _EPOCH) // timedelta(microseconds=1)
        case t.LocalZonedTimestamp():
            named = {"type": "string", "name": "io.debezium.time.ZonedTimestamp"}
            return named, lambda value: value.astimezone(UTC).isoformat().replace("+00:00", "Z")
        case t.Binary() | t.VarBinary():
            return {"type": "bytes"}, lambda value: base64.b64encode(value).decode()
        case t.Array(element=inner):
            items, each = _connect(inner)
            return {"type": "array", "items": items}, lambda value: [None if v is None else each(v) for v in value]
        case t.Map(value=inner):
            values, each = _connect(inner)
            return {"type": "map", "keys": {"type": "string"}, "values": values}, lambda value: {
                key: None if v is None else each(v) for key, v in value
            }
        case t.Row(fields=fields):
            struct, row = _connect_struct(fields)
            return struct, row
    plain = {t.TinyInt: "int16", t.SmallInt: "int16", t.Int: "int32", t.BigInt: "int64", t.Boolean: "boolean"}
    floats = {t.Float: "float", t.Double: "double"}
    return {"type": (plain | floats).get(type(kind), "string")}, lambda value: encoded(value, kind)


def _connect_struct(fields: Sequence[t.Field]) -> tuple[dict[str, Any], Callable[[Row], dict[str, Any]]]:
    found = {f.name: _connect(f.type) for f in fields}
    columns = [{**kind, "field": name, "optional": True} for name, (kind, _) in found.items()]

    def row_of(row: Row) -> dict[str, Any]:
        return {name: None if row[name] is None else each(row[name]) for name, (_, each) in found.items()}

    return {"type": "struct", "fields": columns}, row_of


def _unscaled(value: Decimal, scale: int) -> str:
    number = int(value.scaleb(scale))
    return base64.b64encode(number.to_bytes((number.bit_length() + 8) // 8, "big", signed=True)).decode()


# records


def record_of(
    rng: random.Random,
    kind: str,
    form: str,
    before: dict[str, Any] | None,
    after: dict[str, Any] | None,
    *,
    whole: bool,
) -> tuple[dict[str, Any] | None, list[str]]:
    """Return a record of a change, and which rows it gives: kinds, in order.

    Args:
        before, after: the old and the new row, as records hold them.
        kind: insert, update or delete.
        whole: the record holds the whole old row.
    """
    kinds = {"insert": ["+I"], "update": ["-U", "+U"] if whole else ["+U"], "delete": ["-D"]}[kind]
    changed = None
    if before is not None and after is not None and whole:
        changed = {name: value for name, value in before.items() if value != after[name]}
        if rng.random() < 0.3 or not changed:  # no difference, no old row
            changed = before
    match form:
        case "debezium-json" | "debezium-json-schema":
            sent = before if whole or kind == "delete" else None
            op = {"insert": rng.choice("cr"), "update": "u", "delete": "d"}[kind]
            return {"op": op, "before": sent, "after": after}, kinds
        case "debezium-flat":
            row = before if kind == "delete" else after
            assert row is not None
            op = {"insert": rng.choice("cr"), "update": "u", "delete": "d"}[kind]
            flat = {"insert": ["+I"], "update": ["+U"], "delete": ["-D"]}[kind]
            return {**row, "__deleted": str(kind == "delete").lower(), "__op": op}, flat
        case "canal-json":
            op = rng.choice(["INSERT", "ROW"]) if kind == "insert" else kind.upper()
            old = [changed] if kind == "update" else None
            return {"type": op, "data": [before if kind == "delete" else after], "old": old}, kinds
        case "maxwell-json":
            op = rng.choice(["insert", "bootstrap-insert"]) if kind == "insert" else kind
            found = {"type": op, "data": before if kind == "delete" else after}
            return (found | {"old": changed} if kind == "update" else found), kinds
        case "ogg-json":
            return {"op_type": kind[0].upper(), "before": before, "after": after}, kinds
    upserts = {"insert": ["+U"], "update": ["+U"], "delete": ["-D"]}[kind]
    return (None if kind == "delete" else after), upserts


def new_row_of(record: dict[str, Any], form: str) -> dict[str, Any]:
    """Return the new row of an insert or an update inside its record."""
    match form:
        case "debezium-json-schema":
            record = record.get("payload", record)
            found = record["after"]
        case "debezium-json" | "ogg-json":
            found = record["after"]
        case "canal-json":
            found = record["data"][0]
        case "maxwell-json":
            found = record["data"]
        case _:
            found = record
    return found


@dataclass
class Records:
    """Change records of one call, in order.

    Attributes:
        records: None: the value is null.
        keys: the message keys; None: the records have none.
        changes: the rows that each record gives.
        wrong: may be made wrong, since it is an insert or an update.
        unsent: a record lacks a value that the table has.
        whole: old rows are whole, also if they look like those of a source that sends keys alone.
    """

    form: str
    records: list[dict[str, Any] | None] = field(default_factory=list)
    keys: list[str] | None = None
    changes: list[list[Change]] = field(default_factory=list)
    wrong: list[int] = field(default_factory=list)
    unsent: bool = False
    whole: bool = False

    @property
    def texts(self) -> list[str | None]:
        return [None if record is None else json.dumps(record) for record in self.records]

    @property
    def options(self) -> dict[str, Any]:
        options = {"binary": "base64"} if self.form == "canal-json" else {}
        options |= {"old_rows": "whole"} if self.whole else {}
        return options | ({"unavailable": "keep"} if self.unsent else {})


def takes_records(h: History) -> bool:
    model = h.model
    return not model.rowkind and model.engine in ("deduplicate", "counting", "append") and not h.layout.adds_only


def drawn_records(h: History, rng: random.Random, *, keeps: bool = True) -> Records:
    """Return records of a source that has the rows of the table: inserts, updates, deletes, values not sent.

    Args:
        keeps: some values are not sent.
    """
    model, form = h.model, rng.choice(FORMATS)
    keyed, source = bool(model.key), model.visible()
    there = model.by_key() if keyed else {}
    takes = not keyed or len({*model.partition} - {*model.key}) == 0
    keeps = keeps and keyed and takes and model.engine == "deduplicate"
    keeps = keeps and form in ("debezium-json", "debezium-flat", "ogg-json")
    ordered, seen, alone = "sequence.field" in model.options, set[Any](), set[Any]()
    found = Records(form, keys=[] if keyed else None, whole=ordered or not keyed or rng.random() < 0.5)
    tells = form == "debezium-json-schema" and rng.random() < 0.8
    schema, row_of = _connect_struct(model.fields) if tells else (None, lambda row: encoded_row(row, model.fields))
    for _, row in h.changes(rng, rng.choice([1, 4, 10])):
        key = model.key_of(row) if keyed else None
        old = there.get(key) if keyed else (source.pop() if source and rng.random() < 0.4 else None)
        if keyed and key in alone:
            continue
        if keyed and old is not None and model.partition_of(old) != model.partition_of(row):
            row = {**row, **{name: old[name] for name in model.partition}}
        kind = "insert" if old is None else rng.choice(["update", "update", "delete"])
        if kind != "insert" and model.engine == "append":
            continue
        whole = form not in _ENVELOPES or not keyed or rng.random() < 0.6
        if not keyed and kind == "update" and form in ("debezium-flat", "json"):
            continue  # no old row, and no key
        if not keyed and kind == "delete" and form == "json":
            continue
        new = None if kind == "delete" else row
        record, kinds = record_of(
            rng, kind, form, *(None if each is None else row_of(each) for each in (old, new)), whole=whole
        )
        sent, kept = new, list[str]()
        # in a call, records of a key follow each other in the order of a column
        if keeps and kind == "update" and rng.random() < 0.4 and not (ordered and key in seen):
            alone |= {key} if ordered else set()
            sent, kept = _without_some(h, rng, form, old, row, record)
            found.unsent = found.unsent or bool(kept)
            kinds = ["+U"] if kept else kinds
        seen.add(key)
        if form == "debezium-json-schema" and not tells:
            record = {"schema": None, "payload": record}
        elif schema is not None:
            envelope = [{**schema, "field": name, "optional": True} for name in ("before", "after")]
            operation = {"type": "string", "field": "op"}
            record = {"schema": {"type": "struct", "fields": [*envelope, operation]}, "payload": record}
        if found.keys is not None:
            own = [f for f in model.fields if f.name in model.key]
            found.keys.append(json.dumps(encoded_row(new or old or {}, own)))
        if kind != "delete":
            found.wrong.append(len(found.records))
        found.records.append(record)
        found.changes.append([_change(model, form, each, old, sent, kept) for each in kinds])
        if keyed:
            there = {other: each for other, each in there.items() if other != key}
            if sent is not None:
                there[key] = _stored(model, sent, kept)
    if not found.records:
        raise SkippedError
    return found


def _stored(model: Model, row: Row, kept: Sequence[str]) -> Row:
    return {**model.filled(row), **{name: row[name] for name in kept}}


def _change(model: Model, form: str, kind: str, old: Row | None, new: Row | None, kept: Sequence[str]) -> Change:
    given = old if kind in ("-U", "-D") else new
    assert given is not None
    if kind == "-D" and form == "json":
        return kind, {name: value if name in model.key else None for name, value in given.items()}
    return kind, _stored(model, given, kept)


def _without_some(
    h: History, rng: random.Random, form: str, old: Row | None, row: Row, record: dict[str, Any] | None
) -> tuple[Row, list[str]]:
    """Take texts that the source did not send out of a record; return the new row, and their names: they stay."""
    own = {*h.model.key, *h.model.partition, *h.model.options.get("sequence.field", "").split(",")}
    names = [f.name for f in h.model.fields if isinstance(f.type, t.VarChar) and f.name not in own]
    if old is None or not names or record is None or (form == "debezium-json" and record["before"] is not None):
        return row, []
    chosen = rng.sample(names, rng.randrange(1, len(names) + 1))
    for name in chosen:
        if form == "ogg-json":
            del record["after"][name]
            del record["before"][name]
        else:
            new_row_of(record, form)[name] = UNSENT
    return {**row, **{name: old[name] for name in chosen}}, chosen


def _says_nothing(rng: random.Random, form: str) -> dict[str, Any] | None:
    """Return a record that changes no row."""
    match form:
        case "canal-json":
            return {"isDdl": True, "type": "ALTER", "sql": "ALTER TABLE t ADD COLUMN z INT", "data": None, "old": None}
        case "maxwell-json":
            return {"type": "bootstrap-start", "data": {}}
        case "debezium-json":
            return rng.choice([None, {"ts_ms": 1}, {"status": "BEGIN", "id": "7"}])
    return None


@step(3)
def change_records(h: History, rng: random.Random) -> None:
    """Change records of a source that has the rows of the table, and others between them that change nothing."""
    model = h.model
    if not takes_records(h):
        raise SkippedError
    drawn = drawn_records(h, rng)
    form, texts, keys = drawn.form, drawn.texts, drawn.keys
    if form in ("canal-json", "maxwell-json", "debezium-json") and rng.random() < 0.3:
        at = rng.randrange(len(texts) + 1)
        record = _says_nothing(rng, form)
        texts.insert(at, None if record is None else json.dumps(record))
        if keys is not None:
            keys.insert(at, keys[0])
    ordering = {name for name in model.options.get("sequence.field", "").split(",") if name} - set(model.key)
    if form == "json" and ordering and None in texts:  # a delete that is the key alone would be older than the row
        refusal = (InvalidInputError, "orders the rows of a key")
        h.refused(lambda: h.write_changes(rng, texts, form, keys, drawn.options), refusal)
        return
    h.write_changes(rng, texts, form, keys, drawn.options)
    model.flush([change for changes in drawn.changes for change in changes], given=True)


@step(2)
def dead_letters(h: History, rng: random.Random) -> None:
    """Some records are wrong: they become dead letters, are repaired, and come again."""
    model = h.model
    if not takes_records(h) or model.engine == "counting" or model.moves:  # an old row has to be there, where it says
        raise SkippedError
    drawn = drawn_records(h, rng, keeps=False)
    if (drawn.form == "json" and None in drawn.records) or not drawn.wrong:
        raise SkippedError
    if h.letters is None:
        h.letters = h.catalog.create_table("db.letters", mg.cdc.DEAD_LETTERS)
    texts = drawn.texts
    wrong = {at: _made_wrong(h, rng, drawn, at) for at in rng.sample(drawn.wrong, rng.choice([1, len(drawn.wrong)]))}
    given = [wrong[at][0] if at in wrong else text for at, text in enumerate(texts)]
    user, options = next(h.names), drawn.options
    more = {"dead_letters": h.letters, "commit_user": user, "identifier": 1}
    h.write_changes(rng, given, drawn.form, drawn.keys, options | more, rng.choice([1, 2]))
    model.flush([change for at, each in enumerate(drawn.changes) if at not in wrong for change in each], given=True)
    found = sorted(h.letters.read().to_pylist(), key=lambda letter: letter["position"])
    said = [(each["table"], each["position"], each["text"], each["key"]) for each in found]
    keys = drawn.keys
    expected = [
        (h.table.name, at, text.encode(), None if keys is None else keys[at].encode())
        for at, (text, _) in sorted(wrong.items())
    ]
    reasons = {each["position"]: each["reason"] for each in found}
    if said != expected or not all(reasons[at].startswith(code) for at, (_, code) in wrong.items()):
        raise DifferenceError("letters", f"{found}, expected {expected} with reasons {wrong}")
    again = [each["position"] for each in found]
    h.write_changes(
        rng,
        [texts[at] for at in again],
        drawn.form,
        None if keys is None else [keys[at] for at in again],
        options | {"dead_letters": h.letters},
    )
    model.flush([change for at in again for change in drawn.changes[at]], given=True)
    h.letters.delete("position >= 0")


def _made_wrong(h: History, rng: random.Random, drawn: Records, at: int) -> tuple[str, str]:
    """Return a wrong text instead of a record, and what its reason begins with."""
    record, form = drawn.records[at], drawn.form
    assert record is not None
    numbers = [f.name for f in h.model.fields if isinstance(f.type, t.Int | t.BigInt) and f.name not in h.model.key]
    says = form not in ("json", "debezium-flat")
    ways = ["text", "list", "blank", *(["value"] if numbers else []), *(["op"] if says else [])]
    match rng.choice(ways):
        case "text":
            return json.dumps(record)[:-1], "not-json"
        case "list":
            return json.dumps([record]), "not-object"
        case "blank":
            return " ", "empty"
        case "op":
            inner = record.get("payload", record)
            name = next(name for name in ("op", "type", "op_type") if name in inner)
            known = dict(inner)
            del known[name]
            known = known if rng.random() < 0.5 else {**known, name: "?"}
            code = "unknown-op" if name in known else "missing-op"
            return json.dumps({**record, "payload": known} if "payload" in record else known), code
        case _:
            name = rng.choice(numbers)
            copy = json.loads(json.dumps(record))
            new_row_of(copy, form)[name] = "many"
            return json.dumps(copy), f"bad-value: column {name}"

"""Debezium: envelopes with images before and after a change, and flattened records, with or without their schema."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merganser.cdc import control
from merganser.cdc.batch import (
    DELETE,
    INSERT,
    ROW,
    UPDATE,
    UPSERT,
    Batch,
    Changes,
    Document,
    Known,
    Names,
    Schemas,
    document,
    documents,
    no_images,
    overlaid,
)
from merganser.cdc.connect_schema import defaults_of, encodings_of
from merganser.cdc.old_rows import FILLED, SENT, UNTOLD
from merganser.cdc.stand_ins import stand_ins, unavailable
from merganser.parsing.cells import Cells
from merganser.parsing.json_scan import ABSENT, BOOLEAN, NULL, OBJECT, TEXT, Bools, Ints
from merganser.parsing.rules import Encoding

_ENVELOPE = ("before", "after", "op", "ts_ms", "status", "id", "ddl", "tableChanges")
_AROUND = ("source", "transaction")
_WRAPPER = ("schema", "payload")
_PEELED_MAX = 8
"""Schemas that are looked for at the beginnings of records; each costs a look at all of them."""
_POSITIONS = (
    ("lsn",),  # Postgres
    ("file", "pos"),  # MySQL, MariaDB
    ("commit_scn", "scn", "rs_id", "ssn"),  # Oracle
    ("commit_lsn", "change_lsn", "event_serial_no"),  # SQL Server, Db2
)
"""Members of `source` that tell the place in the log, of each kind of database, the coarser first."""
_PLACES = tuple(name for names in _POSITIONS for name in names)
_SOURCE = ("db", "table", "schema", "ts_ms", "ts_us", "ts_ns", "gtid", *_PLACES)
_CONNECTOR = r'"source"\s*:\s*\{[^{}]*"connector"\s*:\s*'
"""What the name of the connector comes behind; a look for it is much quicker than reading all of `source`."""
_OF_SOURCE = ("connector", "db", "schema", "table", "gtid", *_PLACES)
"""Members of `source` that flattened records have as `__name` or `__source_name`."""
FLAT = (
    *("__deleted", "__op", "__ts_ms", "__source_ts_ms", "__source_ts_us", "__source_ts_ns", "__transaction_id"),
    *(f"{prefix}{name}" for name in _OF_SOURCE for prefix in ("__", "__source_")),
)
"""What `ExtractNewRecordState` adds to rows."""


def envelopes(batch: Batch) -> Changes:
    """Return the changes of records of debezium-json and debezium-json-schema."""
    options = batch.options
    found, schemas = _unwrapped(batch, _ENVELOPE + _AROUND if options.envelope else _ENVELOPE, ("before", "after"))
    op = found.kinds("op")
    counts = found.children.counts
    control = (found.kinds("status") == TEXT) & (found.kinds("id") != ABSENT)
    control |= (found.kinds("ddl") != ABSENT) | (found.kinds("tableChanges") != ABSENT)
    control |= (found.kinds("ts_ms") != ABSENT) & (counts == 1)
    batch.skip(control & (op == ABSENT), "control")
    texts = found.of("op")
    batch.skip((texts.kinds == TEXT) & np.asarray(pc.equal(texts.texts, "m")), "control")
    source = None
    if options.envelope:
        source = documents(found.of("source"), _SOURCE)
        batch.choose_tables(source.of("db"), source.of("table"))
    op = batch.operations(texts, "op")
    batch.truncates(batch.among(op, "t"))
    inserts, updates, deletes = batch.among(op, "c", "r"), batch.among(op, "u"), batch.among(op, "d")
    batch.unknown(op, inserts | updates | deletes)
    batch.bad_images(found, "before", "after")
    record = np.flatnonzero(batch.open)
    action = np.where(updates, UPDATE, np.where(deletes, DELETE, INSERT)).astype(np.uint8)[record]
    after = np.where((action == DELETE), -1, found.place("after")[record])
    before = np.where((action == INSERT), -1, found.place("before")[record])
    assert found.inside is not None
    cells = found.inside.cells
    marks = stand_ins(cells, options.placeholder)
    new, old = (unavailable(marks, found.images(place)) for place in (after, before))
    has_new, has_old = (found.are_objects(place) for place in (after, before))
    changes = Changes(record, action, new, has_new, old, has_old, cells, schemas)
    changes.sources = _sources(batch, record, has_old & (action == DELETE))
    if source is not None and options.metadata:
        changes.known = _known(found, source)
    return changes


def flattened(batch: Batch) -> Changes:
    """Return the changes of records of debezium-flat, which are rows."""
    names = tuple(dict.fromkeys((*batch.columns, *FLAT, *control.NAMES)))
    found, schemas = _unwrapped(batch, names, (), alone=True)
    control.skip(batch, found)
    batch.choose_tables(_added(found, "db"), _added(found, "table"))
    marks = found.of("__deleted")
    flag = marks.texts
    boolean = (marks.kinds == TEXT) | (marks.kinds == BOOLEAN)
    gone = boolean & np.asarray(pc.equal(flag, "true"))
    batch.reject(
        (marks.kinds > NULL) & ~(gone | (boolean & np.asarray(pc.equal(flag, "false")))),
        "bad-envelope: '__deleted' is neither true nor false",
    )
    ops = found.of("__op")
    batch.reject((ops.kinds > NULL) & (ops.kinds != TEXT), "unknown-op: '__op' is no text")
    op = pc.if_else(pa.array((ops.kinds == TEXT) & batch.open), ops.texts, "")
    batch.skip(batch.among(op, "m"), "control")
    batch.truncates(batch.among(op, "t"))
    batch.unknown(op, batch.among(op, "", "c", "r", "u", "d"))
    deletes, upserts = gone | batch.among(op, "d"), batch.among(op, "u")
    record = np.flatnonzero(batch.open)
    inserts = np.where(batch.among(op, "c", "r"), INSERT, ROW)
    action = np.where(deletes, DELETE, np.where(upserts, UPSERT, inserts)).astype(np.uint8)[record]
    columns = np.array([names.index(name) for name in batch.columns], np.int64)
    where = unavailable(stand_ins(found.cells, batch.options.placeholder), found.where[record][:, columns])
    none, removed = no_images(*where.shape), action == DELETE
    new, old = np.where(removed[:, None], none, where), np.where(removed[:, None], where, none)
    changes = Changes(record, action, new, ~removed, old, removed, found.cells, schemas)
    connector = _added(found, "connector")
    postgres = np.asarray(pc.equal(connector.texts, "postgresql")) | (_added(found, "lsn").kinds > NULL)
    untold = np.where(connector.kinds == TEXT, SENT, UNTOLD)
    changes.sources = np.where(removed, np.where(postgres[record], FILLED, untold[record]), SENT)
    if batch.options.envelope:
        instant = Encoding("instant", "ms")
        changes.known = {
            "op": [Known(found.of("__op"))],
            "database": [Known(_added(found, "db"))],
            "schema": [Known(_added(found, "schema"))],
            "table": [Known(_added(found, "table"))],
            "position": _positions(lambda name: _added(found, name)),
            "gtid": [Known(_added(found, "gtid"))],
            "transaction": [Known(found.of("__transaction_id"))],
            "source_ts": _times(lambda unit: found.of(f"__source_ts_{unit}")),
            "ingest_ts": [Known(found.of("__ts_ms"), instant)],
        }
    return changes


def source_names(batch: Batch) -> Names:
    """Return the database, the schema and the table that envelopes come from.

    Args:
        batch: its columns are `db`, `schema` and `table`.
    """
    found, _ = _unwrapped(batch, ("source",), ("source",))
    assert found.inside is not None
    where = found.images(found.place("source"))
    return Names(*(found.inside.cells.take(where[:, i]) for i in range(3)))


def flat_names(batch: Batch) -> Names:
    """Return the database, the schema and the table that flattened records come from, as far as they tell."""
    parts = ("db", "schema", "table")
    names = [f"{prefix}{name}" for name in parts for prefix in ("__", "__source_")]
    found, _ = _unwrapped(batch, names, (), alone=True)
    return Names(*(_added(found, name) for name in parts))


def _unwrapped(
    batch: Batch, names: Sequence[str], images: Sequence[str], *, alone: bool = False
) -> tuple[Document, Schemas]:
    """Return the members of records without the schema around them, and what it says.

    Args:
        names: members to give.
        images: members of the payload whose schema is that of the rows; none: the payload is the row.
        alone: a record is wrapped only if it has no other member.
    """
    extra = tuple(name for name in _WRAPPER if name not in names)
    schemas = _peeled(batch, images)
    look = (images, batch.columns) if images else None
    found = batch.opened((*names, *extra), look)
    payload, schema = found.kinds("payload"), found.kinds("schema")
    wrapped = (payload != ABSENT) & ~batch.peeled
    if batch.options.format == "debezium-json-schema":
        batch.reject(~wrapped & ~batch.peeled & ~batch.nothing, "missing-payload: the record has no 'payload'")
    else:
        wrapped &= schema != ABSENT
    if alone:
        wrapped &= found.children.counts == 2
    wrapped &= batch.open
    if wrapped.any():
        batch.nothing |= wrapped & (payload == NULL)
        batch.reject(wrapped & (payload > NULL) & (payload != OBJECT), "bad-envelope: 'payload' is no object")
        given = found.of("schema")
        described = wrapped & (given.kinds == OBJECT)
        if described.any():
            coded = given.texts.filter(pa.array(described)).dictionary_encode()
            schemas.of[described] = np.asarray(coded.indices, dtype=np.int64) + len(schemas.encodings)
            texts = coded.dictionary.to_pylist()
            parsed = tuple(encodings_of(text, images) for text in texts)
            defaults = tuple(defaults_of(text, images) for text in texts)
            schemas = Schemas(schemas.of, (*schemas.encodings, *parsed), (*schemas.defaults, *defaults))
        inner_cells = found.of("payload")
        inner_texts = pc.if_else(pa.array(wrapped & (payload == OBJECT)), inner_cells.texts, "")
        inner = document(inner_texts, found.names, look, trusted=True)
        found = overlaid(found, inner, wrapped)
        found.children.counts[wrapped] = inner.children.counts[wrapped]
    batch.skip_tombstones()
    return found, schemas


def _peeled(batch: Batch, images: Sequence[str]) -> Schemas:
    """Take the schema off records that begin with one that others begin with too, and return what it says.

    A text `{"schema":S,"payload":P}` is an object of two members whatever S and P are, if both are JSON. So S is read
    once, and of each record P alone. What is written otherwise stays as it is.
    """
    schemas = Schemas(np.zeros(len(batch), np.int64))
    starts = np.asarray(pc.starts_with(batch.texts, '{"schema":{'))
    for _ in range(_PEELED_MAX):
        if not starts.any():
            break
        first = int(np.argmax(starts))
        schema = document(batch.texts.slice(first, 1), ("schema",)).of("schema")
        prefix = f'{{"schema":{schema.texts[0].as_py()},"payload":'
        alike = starts & np.asarray(pc.starts_with(batch.texts, prefix)) & np.asarray(pc.ends_with(batch.texts, "}"))
        starts &= ~alike
        starts[first] = False
        if not alike[first] or schema.kinds[0] != OBJECT:
            continue
        payload = pc.binary_slice(batch.texts.filter(pa.array(alike)).cast(pa.binary()), len(prefix.encode()), -1)
        batch.texts = pc.replace_with_mask(batch.texts, pa.array(alike), payload.cast(pa.string()))
        batch.peeled |= alike
        schemas.of[alike] = len(schemas.encodings)
        text = schema.texts[0].as_py()
        schemas = Schemas(
            schemas.of,
            (*schemas.encodings, encodings_of(text, images)),
            (*schemas.defaults, defaults_of(text, images)),
        )
    return schemas


def _sources(batch: Batch, record: Ints, deletes: Bools) -> Ints | None:
    """Return whether old rows of deletes are whole; None: there are no deletes."""
    at = np.flatnonzero(deletes)
    if not len(at):
        return None
    sources = np.full(len(record), SENT, np.int64)
    texts = batch.texts.take(pa.array(record[at]))  # quotes inside texts have a backslash in front
    postgres = np.asarray(pc.match_substring_regex(texts, f'{_CONNECTOR}"postgresql"'))
    named = postgres
    if not postgres.all():
        named = np.asarray(pc.match_substring_regex(texts, f'{_CONNECTOR}"'))
    sources[at] = np.where(postgres, FILLED, np.where(named, SENT, UNTOLD))
    return sources


def _known(found: Document, source: Document) -> dict[str, list[Known]]:
    return {
        "op": [Known(found.of("op"))],
        "database": [Known(source.of("db"))],
        "schema": [Known(source.of("schema"))],
        "table": [Known(source.of("table"))],
        "source_ts": _times(lambda unit: source.of(f"ts_{unit}")),
        "ingest_ts": [Known(found.of("ts_ms"), Encoding("instant", "ms"))],
        "position": _positions(source.of),
        "gtid": [Known(source.of("gtid"))],
        "transaction": [Known(documents(found.of("transaction"), ["id"]).of("id"))],
    }


def _added(found: Document, name: str) -> Cells:
    """Return a member of `source` as flattened records have it: added as `name`, or as `source.name`."""
    first, second = found.of(f"__{name}"), found.of(f"__source_{name}")
    return first if (second.kinds <= NULL).all() else _either(first, second)


def _either(first: Cells, second: Cells) -> Cells:
    """Return the first cells, and the second ones where those are null or absent."""
    there = first.kinds > NULL
    return Cells(np.where(there, first.kinds, second.kinds), pc.if_else(pa.array(there), first.texts, second.texts))


def _times(of: Callable[[str], Cells]) -> list[Known]:
    return [Known(of(unit), Encoding("instant", unit)) for unit in ("ms", "us", "ns")]


def _positions(of: Callable[[str], Cells]) -> list[Known]:
    """Return places in the log of a source, of each kind of database.

    Args:
        of: gives a member of `source`.
    """
    (lsn,), binlog, oracle, server = [[of(name) for name in names] for names in _POSITIONS]
    # rows of a first copy have no commit: they show the state at their number
    oracle[0] = _either(oracle[0], oracle[1])
    return [Known(lsn), Known(_parts(binlog, ":", len(binlog))), *(Known(_parts(p, "/")) for p in (oracle, server))]


def _parts(parts: list[Cells], between: str, least: int = 1) -> Cells:
    """Return parts of places joined to texts, up to the first that a record lacks.

    Args:
        between: what is put between two parts.
        least: parts that a record must have.
    """
    there = parts[0].kinds > NULL
    whole, texts = there, parts[0].texts
    for number, part in enumerate(parts[1:], 2):
        there = there & (part.kinds > NULL)
        texts = pc.if_else(pa.array(there), pc.binary_join_element_wise(texts, part.texts, between), texts)
        whole = there if number <= least else whole
    return Cells(np.where(whole, np.uint8(TEXT), np.uint8(ABSENT)), texts)

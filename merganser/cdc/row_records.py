"""Records that are rows (`json`), and the envelopes of Maxwell and Oracle GoldenGate, which hold one row each."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merganser.cdc import control
from merganser.cdc.batch import (
    DELETE,
    INSERT,
    ROW,
    UPDATE,
    Batch,
    Changes,
    Document,
    Known,
    Names,
    Schemas,
    no_images,
)
from merganser.cdc.stand_ins import stand_ins, unavailable
from merganser.parsing.cells import NOTHING, UNAVAILABLE, Cells
from merganser.parsing.json_scan import ABSENT, BOOLEAN, TEXT, Bools, Ints
from merganser.parsing.rules import Encoding

_MAXWELL: tuple[str, ...] = ("data", "old", "type", "database", "table", "ts", "xid", "position", "gtid")
_OGG: tuple[str, ...] = ("before", "after", "op_type", "table", "op_ts", "current_ts", "pos")
_MAXWELL_CONTROL = (
    "bootstrap-start", "bootstrap-complete", "table-create", "table-alter", "table-drop", "database-create",
    "database-alter", "database-drop",
)  # fmt: skip


def plain(batch: Batch) -> Changes:
    """Return the changes of records of json, which are rows."""
    names = tuple(dict.fromkeys((*batch.columns, *control.NAMES)))
    found = batch.opened(names)
    control.skip(batch, found)
    batch.skip_tombstones()
    record = np.flatnonzero(batch.open)
    marks = stand_ins(found.cells, batch.options.placeholder)
    where = unavailable(marks, found.where[record][:, : len(batch.columns)])
    yes = np.ones(len(record), bool)
    rows = np.full(len(record), ROW, np.uint8)
    return Changes(record, rows, where, yes, no_images(*where.shape), ~yes, found.cells, _no_schemas(batch))


def maxwell(batch: Batch) -> Changes:
    """Return the changes of records of maxwell-json."""
    found = batch.opened(_MAXWELL, (("data", "old"), batch.columns))
    batch.skip_tombstones()
    kind = found.of("type")
    control = np.asarray(pc.is_in(kind.texts, value_set=pa.array(_MAXWELL_CONTROL)))
    batch.skip((kind.kinds == TEXT) & control, "control")
    batch.choose_tables(found.of("database"), found.of("table"))
    op = batch.operations(kind, "type")
    inserts, updates = batch.among(op, "insert", "bootstrap-insert"), batch.among(op, "update")
    deletes = batch.among(op, "delete")
    batch.unknown(op, inserts | updates | deletes)
    batch.bad_images(found, "data", "old")
    record, action, new, old, has_new, has_old, cells = _two_images(batch, found, "data", "old", updates, deletes)
    # the old row is the new one, but for what `old` names
    old = np.where(has_old[:, None] & (old == NOTHING), new, old)
    removed = action == DELETE
    old, has_old = np.where(removed[:, None], new, old), np.where(removed, has_new, has_old)
    changes = Changes(record, action, new, has_new & ~removed, old, has_old, cells, _no_schemas(batch))
    if batch.options.envelope:
        changes.known = {
            "op": [Known(kind)],
            "database": [Known(found.of("database"))],
            "table": [Known(found.of("table"))],
            "source_ts": [Known(found.of("ts"), Encoding("instant", "s"))],
            "position": [Known(found.of("position"))],
            "gtid": [Known(found.of("gtid"))],
            "transaction": [Known(found.of("xid"))],
        }
    return changes


def golden_gate(batch: Batch) -> Changes:
    """Return the changes of records of ogg-json."""
    flags = tuple(f"{name}_isMissing" for name in batch.columns)
    found = batch.opened(_OGG, (("before", "after"), tuple(dict.fromkeys(batch.columns + flags))))
    batch.skip_tombstones()
    names = dict[str, Cells]()
    if batch.options.envelope:
        names = _qualified(found.of("table"))
        batch.choose_tables(names["database"], names["table"])
    kind = found.of("op_type")
    op = batch.operations(kind, "op_type")
    batch.truncates(batch.among(op, "T"))
    inserts, updates, deletes = batch.among(op, "I"), batch.among(op, "U"), batch.among(op, "D")
    batch.unknown(op, inserts | updates | deletes)
    batch.bad_images(found, "before", "after")
    record, action, new, old, has_new, has_old, cells = _two_images(batch, found, "after", "before", updates, deletes)
    removed = action == DELETE
    new = np.where(removed[:, None], NOTHING, new)
    old = np.where((action == INSERT)[:, None], NOTHING, old)
    changes = Changes(
        record, action, new, has_new & ~removed, old, has_old & (action != INSERT), cells, _no_schemas(batch)
    )
    if batch.options.envelope:
        changes.known = {
            "op": [Known(kind)],
            **{name: [Known(cells_)] for name, cells_ in names.items()},
            "source_ts": [Known(found.of("op_ts"))],
            "ingest_ts": [Known(found.of("current_ts"))],
            "position": [Known(found.of("pos"))],
        }
    return changes


def maxwell_names(batch: Batch) -> Names:
    """Return the database and the table that records of maxwell-json or canal-json come from."""
    found = batch.opened(("database", "table"))
    return Names(found.of("database"), Cells.absent(len(batch)), found.of("table"))


def golden_gate_names(batch: Batch) -> Names:
    """Return the catalog, the schema and the table that records of ogg-json come from."""
    return Names(**_qualified(batch.opened(("table",)).of("table")))


_Images = tuple[Ints, "np.ndarray", Ints, Ints, Bools, Bools, Cells]  # type: ignore[type-arg]


def _two_images(batch: Batch, found: Document, new: str, old: str, updates: Bools, deletes: Bools) -> _Images:
    """Return of the open records: positions, actions, new and old images and whether they are there, and the cells."""
    record = np.flatnonzero(batch.open)
    action = np.where(updates, UPDATE, np.where(deletes, DELETE, INSERT)).astype(np.uint8)[record]
    place = np.concatenate([found.place(new)[record], found.place(old)[record]])
    assert found.inside is not None
    there, inside, count = found.are_objects(place), found.inside, len(batch.columns)
    where = found.images(place)
    if batch.options.format == "ogg-json":
        flags = [inside.names.index(f"{name}_isMissing") for name in batch.columns]
        where = _marked(inside.cells, where[:, :count], where[:, flags])
        if batch.options.missing == "unavailable":
            silent = np.tile(action == UPDATE, 2) & there
            where = np.where(silent[:, None] & (where == NOTHING), UNAVAILABLE, where)
    e = len(record)
    return record, action, where[:e], where[e:], there[:e], there[e:], inside.cells


def _marked(cells: Cells, where: Ints, flags: Ints) -> Ints:
    """Return images, UNAVAILABLE where a flag beside the column says so."""
    if not (flags >= 0).any():
        return where
    yes = ((cells.kinds == BOOLEAN) | (cells.kinds == TEXT)) & np.asarray(pc.equal(cells.texts, "true"))
    return np.where((flags >= 0) & yes[np.maximum(flags, 0)], UNAVAILABLE, where)


def _qualified(names: Cells) -> dict[str, Cells]:
    """Return the parts of `catalog.schema.table`, the first ones absent where there are fewer."""
    parts = pc.extract_regex(names.texts, r"^(?:(?:(?P<database>[^.]*)\.)?(?P<schema>[^.]*)\.)?(?P<table>[^.]*)$")
    found = {}
    for name in ("database", "schema", "table"):
        text = pc.struct_field(parts, name).fill_null("")
        there = (names.kinds == TEXT) & ~np.asarray(pc.equal(text, ""))
        found[name] = Cells(np.where(there, np.uint8(TEXT), np.uint8(ABSENT)), text)
    return found


def _no_schemas(batch: Batch) -> Schemas:
    return Schemas(np.zeros(len(batch), np.int64))

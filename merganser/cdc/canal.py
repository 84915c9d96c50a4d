"""Canal: one record holds several rows of one statement, all values as text."""

from __future__ import annotations

import json
import re
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merganser.cdc.batch import DELETE, INSERT, UPDATE, Batch, Changes, Document, Known, Schemas
from merganser.parsing.cells import NOTHING, Cells, cells_of, joined, places
from merganser.parsing.json_scan import ABSENT, ARRAY, BOOLEAN, NULL, OBJECT, TEXT, Bools, Bytes, Inside, Ints, scan
from merganser.parsing.rules import PLAIN, Encoding
from merganser.values import dataclass

_ENVELOPE: Final = ("data", "old", "type", "isDdl", "database", "table", "es", "ts", "gtid", "mysqlType")
_CONTROL: Final = (
    "CREATE", "ALTER", "ERASE", "QUERY", "RENAME", "CINDEX", "DINDEX", "GTID", "XACOMMIT", "XAROLLBACK", "MHEARTBEAT",
)  # fmt: skip
_LABELLED: Final = re.compile(r"\s*(enum|set)\s*\((.*)\)\s*", re.IGNORECASE | re.DOTALL)
_LABEL: Final = re.compile(r"'((?:[^'\\]|''|\\.)*)'", re.DOTALL)


def canal(batch: Batch) -> Changes:
    """Return the changes of records of canal-json."""
    found = batch.opened(_ENVELOPE)
    batch.skip_tombstones()
    kind = found.of("type")
    ddl = found.of("isDdl")
    is_ddl = (ddl.kinds == BOOLEAN) & np.asarray(pc.equal(ddl.texts, "true"))
    truncate = (kind.kinds == TEXT) & np.asarray(pc.equal(kind.texts, "TRUNCATE"))
    control = (kind.kinds == TEXT) & np.asarray(pc.is_in(kind.texts, value_set=pa.array(_CONTROL)))
    batch.skip((is_ddl | control) & ~truncate, "control")
    batch.choose_tables(found.of("database"), found.of("table"))
    op = batch.operations(kind, "type")
    batch.truncates(truncate & batch.open)
    inserts, updates = batch.among(op, "INSERT", "ROW"), batch.among(op, "UPDATE")
    deletes = batch.among(op, "DELETE")
    batch.unknown(op, inserts | updates | deletes)
    for name in ("data", "old"):
        kinds = found.kinds(name)
        batch.reject((kinds > NULL) & (kinds != ARRAY), f"bad-envelope: '{name}' is no array")
    data, old = found.of("data"), found.of("old")
    batch.reject((inserts | updates) & (data.kinds <= NULL), "missing-after: there is no row after the change")
    # some writers put deleted rows under `old`
    swapped = deletes & (data.kinds <= NULL)
    batch.reject(swapped & (old.kinds <= NULL), "missing-before: there is no row before the change")
    rows = _elements(batch, "data", _chosen(data, old, swapped) if swapped.any() else data)
    olds = _elements(batch, "old", _only(old, updates))
    paired = updates & (old.kinds == ARRAY)
    batch.reject(paired & (rows.counts != olds.counts), "bad-envelope: 'old' has another number of rows than 'data'")
    return _changes(batch, found, rows, olds, updates, deletes)


def _chosen(first: Cells, second: Cells, swapped: Bools) -> Cells:
    mask = pa.array(swapped)
    return Cells(np.where(swapped, second.kinds, first.kinds), pc.if_else(mask, second.texts, first.texts))


def _only(cells: Cells, mask: Bools) -> Cells:
    return Cells(np.where(mask, cells.kinds, np.uint8(ABSENT)), cells.texts)


@dataclass(frozen=True, slots=True)
class _Elements:
    """The elements of arrays of rows.

    Attributes:
        records: int64[m], rising: the record of each element.
        kinds: uint8[m].
        counts: how many elements each record has.
        where: int64[m, columns]: where the columns of each element lie in `cells`, or NOTHING.
        cells: the values of all elements.
    """

    records: Ints
    kinds: Bytes
    counts: Ints
    where: Ints
    cells: Cells


def _elements(batch: Batch, name: str, arrays: Cells) -> _Elements:
    """Return the elements of arrays; rejects what is no row."""
    use = (arrays.kinds == ARRAY) & batch.open
    texts = arrays.texts if use.all() else pc.if_else(pa.array(use), arrays.texts, "")
    found = scan(texts, inside=Inside(None, pa.array(batch.columns, pa.string())), trusted=True)
    kinds = found.kinds
    wrong = (kinds != OBJECT) & ~((kinds == NULL) if name == "old" else np.zeros(len(kinds), bool))
    batch.reject(found.parents[wrong], f"bad-envelope: an element of '{name}' is no object")
    assert found.inside is not None
    where = places(found.inside, len(batch.columns))
    return _Elements(found.parents, kinds, found.counts, where, cells_of(found.inside))


def _changes(
    batch: Batch, found: Document, rows: _Elements, olds: _Elements, updates: Bools, deletes: Bools
) -> Changes:
    kept = np.flatnonzero(batch.open[rows.records])
    record = rows.records[kept]
    e = len(record)
    # the old row of row i of a record is element i of its `old`
    inside = np.arange(len(rows.records)) - np.repeat(np.cumsum(rows.counts) - rows.counts, rows.counts)
    starts = np.cumsum(olds.counts) - olds.counts
    place = np.where(olds.counts[rows.records] > 0, starts[rows.records] + inside, NOTHING)[kept]
    new = rows.where[kept]
    old, has_old = np.full(new.shape, NOTHING, np.int64), np.zeros(e, bool)
    paired = np.flatnonzero(place >= 0)
    if len(paired):
        before = olds.where[place[paired]]
        old[paired] = np.where(before < 0, before, before + len(rows.cells.kinds))
        has_old[paired] = olds.kinds[place[paired]] == OBJECT
    old = np.where(has_old[:, None] & (old == NOTHING), new, old)
    action = np.where(updates, UPDATE, np.where(deletes, DELETE, INSERT)).astype(np.uint8)[record]
    removed = action == DELETE
    yes = np.ones(e, bool)
    changes = Changes(
        record,
        action,
        np.where(removed[:, None], NOTHING, new),
        yes & ~removed,
        np.where(removed[:, None], new, old),
        removed | has_old,
        joined([rows.cells, olds.cells]),
        _labels(batch, found.of("mysqlType")),
    )
    if batch.options.envelope:
        changes.known = {
            "op": [Known(found.of("type"))],
            "database": [Known(found.of("database"))],
            "table": [Known(found.of("table"))],
            "source_ts": [Known(found.of("es"), Encoding("instant", "ms"))],
            "ingest_ts": [Known(found.of("ts"), Encoding("instant", "ms"))],
            "gtid": [Known(found.of("gtid"))],
        }
    return changes


# labels of enums and sets


def _labels(batch: Batch, types: Cells) -> Schemas:
    """Return the labels that records give the columns; parsed once per text."""
    of = np.zeros(len(batch), np.int64)
    told = (types.kinds == OBJECT) & batch.open
    if not told.any():
        return Schemas(of)
    coded = types.texts.filter(pa.array(told)).dictionary_encode()
    of[told] = np.asarray(coded.indices, dtype=np.int64) + 1
    return Schemas(of, ({}, *(_encodings(text) for text in coded.dictionary.to_pylist())))


def _encodings(text: str) -> dict[str, Encoding]:
    found = {name: _encoding(kind) for name, kind in json.loads(text).items() if isinstance(kind, str)}
    return {name: encoding for name, encoding in found.items() if encoding != PLAIN}


def _encoding(kind: str) -> Encoding:
    match = _LABELLED.fullmatch(kind)
    if match is None:
        return PLAIN
    labels = tuple(label.replace("''", "'") for label in _LABEL.findall(match[2]))
    return Encoding("enum-index" if match[1].lower() == "enum" else "set-mask", labels=labels)

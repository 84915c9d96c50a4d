"""Rows with kinds <-> the keys and values of log records. No step looks at one row at a time.

::

    kind   value                                                              value in mode upsert
    +I     {"before":null,"after":{"id":7,"state":"new"},"op":"c"}            the same
    -U     {"before":{"id":7,...},"after":null,"op":"d","kind":"-U"}          no record
    +U     {"before":null,"after":{"id":7,...},"op":"c","kind":"+U"}          the same
    -D     {"before":{"id":7,...},"after":null,"op":"d"}                      none: a tombstone
    key    {"id":7}, the primary key in its order; none if the table has no primary key

This is what Flink's `debezium-json` writes; `kind` is ours, and readers of Debezium JSON skip it. Values are written as
Flink's JSON format writes them (`codec.json_lines.FLINK`), so equal keys have equal bytes. Beyond Flink, each value of
each type comes back exactly: NaN and the infinities are texts, a TIME keeps its milliseconds, a MULTISET is a map to
counts, and a VARIANT is an object of its two binaries.

Records are read by name. A record that another schema of the table wrote has null in the columns that it lacks, also in
such as are NOT NULL now; columns that the schema lacks are skipped. A column that was renamed counts as another one,
and values of another type are read as texts of change records are (`docs/cdc.md`, section "Values").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from merganser.cdc.batch import document
from merganser.codec.json_lines import FLINK, joined, json_texts, literal, members
from merganser.errors import FormatError
from merganser.meta.table_def import TableDef
from merganser.parsing.cells import Cells, utf8
from merganser.parsing.cells import joined as joined_cells
from merganser.parsing.json_layout import laid_out
from merganser.parsing.json_scan import NULL, OBJECT, TEXT, Bools, Ints
from merganser.parsing.outcome import spread
from merganser.parsing.rules import PLAIN, Rules
from merganser.parsing.values import column as read_column
from merganser.scan.forms import columns_of
from merganser.scan.rows import with_schema
from merganser.scan.split import What
from merganser.schema import row_kind
from merganser.schema import types as t
from merganser.schema.arrow import arrow_schema, nullable_schema, timestamp_unit
from merganser.schema.spans import spans
from merganser.schema.table_schema import CHANGE_KIND, TableSchema
from merganser.values import dataclass

Mode = Literal["all", "upsert"]

_HEADS: Final = ('{"before":null,"after":', '{"before":', '{"before":null,"after":', '{"before":')
_TAILS: Final = (
    ',"op":"c"}',
    ',"after":null,"op":"d","kind":"-U"}',
    ',"op":"c","kind":"+U"}',
    ',"after":null,"op":"d"}',
)
"""What stands in front of the row and behind it, by kind."""
_NO_KIND: Final = -1
_MEMBERS: Final = ("before", "after", "op", "kind")
_SHOWN_MAX: Final = 60
_PART_ROWS: Final = 8_192
"""Rows that are written or read at once: of some more, what is made of them no longer fits the caches."""
_RULES: Final = Rules(binary="base64", lacking=True)
_DIGITS: Final = {"ms": 3, "us": 6, "ns": 9}


@dataclass(frozen=True, slots=True)
class Records:
    """Log records of rows, in the order of the rows.

    Attributes:
        keys: the key of each record; None if the table has no primary key.
        values: the value of each record; None for a tombstone.
        sequences: the sequence number of the row of each record, as ASCII digits; None if none were given.
    """

    keys: list[bytes] | None
    values: list[bytes | None]
    sequences: list[bytes] | None = None


def encode(
    rows: pa.Table,
    kinds: pa.Array | None,
    schema: TableSchema,
    mode: Mode,
    sequences: pa.ChunkedArray | None = None,
) -> Records:
    """Return the log records of rows.

    Args:
        rows: n rows of the columns of the schema, in their Arrow types.
        kinds: int8[n]; None: all are +I.
        schema: of the table.
        mode: "all" writes a record for each row; "upsert", for tables with a primary key, drops rows of kind -U and
            writes rows of kind -D as tombstones.
        sequences: int64[n], the sequence numbers of the rows; None: they have none, or none are asked for.

    Returns:
        As many records as rows remain.
    """
    assert mode == "all" or schema.keyed
    if sequences is not None and mode == "upsert" and kinds is not None:
        sequences = sequences.filter(pc.not_equal(kinds, row_kind.UPDATE_BEFORE))
    digits = None if sequences is None else _listed(sequences.cast(pa.large_string()))
    found = Records([] if schema.keyed else None, [], digits)
    start = 0
    for batch in rows.select(schema.names).combine_chunks().to_batches(max_chunksize=_PART_ROWS):
        given = row_kind.inserts(len(batch)) if kinds is None else kinds.slice(start, len(batch))
        start += len(batch)
        part = _encoded(batch, np.asarray(given), schema, mode)
        if found.keys is not None and part.keys is not None:
            found.keys.extend(part.keys)
        found.values.extend(part.values)
    return found


def _encoded(batch: pa.RecordBatch, kinds: npt.NDArray[np.int8], schema: TableSchema, mode: Mode) -> Records:
    live = np.ones(len(kinds), bool)
    if mode == "upsert":
        kept = kinds != row_kind.UPDATE_BEFORE
        if not kept.all():
            batch, kinds = batch.filter(pa.array(kept)), kinds[kept]
        live = kinds != row_kind.DELETE
    texts = {name: json_texts(column, FLINK) for name, column in zip(batch.schema.names, batch.columns, strict=True)}
    keys = None
    if schema.keyed:
        key = members(schema.primary_keys, [texts[name] for name in schema.primary_keys])
        keys = _listed(joined(key))
    if not live.all():
        at = pa.array(live)
        texts, kinds = {name: column.filter(at) for name, column in texts.items()}, kinds[live]
    row = members(list(texts), list(texts.values()))
    values = joined([_by_kind(_HEADS, kinds), *row, _by_kind(_TAILS, kinds)]) if len(kinds) else _NO_TEXTS
    return Records(keys, _listed(spread(values, live)))


_NO_TEXTS: Final = pa.nulls(0, pa.large_string())


def key_texts(rows: pa.Table, schema: TableSchema) -> pa.Array:
    """Return the keys that records of rows have, large_string[n]: equal keys have equal texts.

    Args:
        rows: n rows that have the columns of the primary key, in their Arrow types.
    """
    if not rows.num_rows:
        return _NO_TEXTS
    columns = [rows.column(name).combine_chunks() for name in schema.primary_keys]
    found: pa.Array = joined(members(schema.primary_keys, [json_texts(column, FLINK) for column in columns]))
    return found


def _by_kind(texts: Sequence[str], kinds: npt.NDArray[np.int8]) -> pa.Array | pa.Scalar:
    if (kinds == kinds[0]).all():
        return literal(texts[kinds[0]])
    return pa.array(texts, pa.large_string()).take(pa.array(kinds))


def _listed(texts: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return texts as bytes, None for null."""
    found: list[Any] = texts.cast(pa.large_binary()).to_pylist()
    return found


def changes_of(table: TableDef, keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> pa.Table:
    """Return the rows of log records: the column `_row_kind`, then the columns of the table.

    Args:
        table: with the schema of the records.
        keys, values: of the records, in order.

    Raises:
        FormatError: a record is damaged; see `decode`.
    """
    schema = table.schema.shown
    rows, kinds = decode(keys if schema.primary_keys else None, values, schema)
    shown = rows.add_column(0, CHANGE_KIND.name, row_kind.symbols(kinds))
    return with_schema(shown, arrow_schema(columns_of(What.CHANGED, table)))


def decode(
    keys: Sequence[bytes | None] | None,
    values: Sequence[bytes | None],
    schema: TableSchema,
    columns: Sequence[str] | None = None,
) -> tuple[pa.Table, pa.Array]:
    """Return the rows of log records and their kinds.

    Args:
        keys: the key of each record, which only those of tombstones are read of; None: there are none.
        values: the value of each record; None: a tombstone, which gives -D with the columns of
            the primary key alone, and null in all others.
        schema: the schema to read with; see the module for records of other schemas.
        columns: names of the columns to return; None: all.

    Returns:
        A row for each record: the columns in the Arrow types of the schema, each nullable; and int8[n].

    Raises:
        FormatError: a record is damaged, or is not of this format. `context` has `record`, its position counted from 0,
            and, if a value does not fit, `column`. No row of the call is returned.
    """
    fields = [schema.field(name) for name in (schema.names if columns is None else columns)]
    parts, kinds = [], []
    for start in range(0, len(values), _PART_ROWS):
        end = start + _PART_ROWS
        part = None if keys is None else keys[start:end]
        found, their_kinds = _decoded(_Part(start, part, values[start:end]), schema, fields)
        parts.append(found)
        kinds.append(their_kinds)
    if not parts:
        return nullable_schema(fields).empty_table(), row_kind.inserts(0)
    return pa.concat_tables(parts).combine_chunks(), pa.array(np.concatenate(kinds))


@dataclass(frozen=True, slots=True)
class _Part:
    """Some of the records of a call, so many that what is made of them fits the caches.

    Attributes:
        start: position of the first.
        keys, values: see `decode`.
    """

    start: int
    keys: Sequence[bytes | None] | None
    values: Sequence[bytes | None]

    def damaged(self, record: int, why: str, column: str | None = None) -> FormatError:
        """Return the error of a record.

        Args:
            record: its position in this part.
            why: what is wrong with it.
            column: the column whose value is wrong, if one is.
        """
        context = {} if column is None else {"column": column}
        record += self.start
        return FormatError(
            f"cannot read record {record} of a part of the log: {why}. No row of this part was returned. "
            "Start the reader behind the record, or at the newest snapshot.",
            record=record,
            **context,
        )


def _decoded(part: _Part, schema: TableSchema, fields: Sequence[t.Field]) -> tuple[pa.Table, npt.NDArray[np.int8]]:
    names = tuple(field.name for field in fields)
    texts = _texts_of(part)
    nothing = np.asarray(texts.is_null())
    kinds, images = _peeled(texts)
    flat = not any(t.is_nested(field.type) for field in schema.fields)
    fits, laid = laid_out(images, schema.names if flat else (), names)
    pieces = [(fits, laid)]
    rest = ~fits & ~nothing
    if rest.any():
        at = pa.array(rest)
        pieces.append((rest, _scanned(part, texts.filter(at), images.filter(at), np.flatnonzero(rest), kinds, names)))
    if nothing.any():
        kinds[nothing] = row_kind.DELETE
        pieces.append((nothing, _keys_of(part, np.flatnonzero(nothing), schema)))
    read = [_column(part, _together(pieces, field.name), field, schema) for field in fields]
    return pa.Table.from_arrays(read, schema=nullable_schema(fields)), kinds


def _together(pieces: Sequence[tuple[Bools, Mapping[str, Cells]]], name: str) -> Cells:
    """Return the cells of a column in the order of the records, ABSENT in pieces that do not have it.

    Args:
        pieces: which records each has, and the cells of those; every record is in one.
    """
    given = [(np.flatnonzero(at), cells.get(name)) for at, cells in pieces if at.any()]
    parts = [Cells.absent(len(at)) if cells is None else cells for at, cells in given]
    if not parts:
        return Cells.absent(0)
    return (
        parts[0] if len(parts) == 1 else joined_cells(parts).take(np.argsort(np.concatenate([at for at, _ in given])))
    )


def _scanned(
    part: _Part, texts: pa.Array, images: pa.Array, record: Ints, kinds: npt.NDArray[np.int8], names: Sequence[str]
) -> dict[str, Cells]:
    """Return the columns of records in any form that JSON allows, and set those of their kinds that are not known.

    Args:
        part: the records, for errors.
        texts: of those to read.
        images: the rows of those, "" where they are not known.
        record: the positions of those.
        kinds: of all records.
        names: of the columns.
    """
    found = document(images, names)
    odd = found.children.roots != OBJECT
    if odd.any():
        kinds[record[odd]], others = _opened(part, texts.filter(pa.array(odd)), record[odd])
        found = document(pc.replace_with_mask(images, pa.array(odd), others), names)
    return {name: found.of(name) for name in names}


def _texts_of(part: _Part) -> pa.Array:
    """Return values as text, null for None."""
    texts, broken = utf8(pa.array(part.values, pa.binary()))
    if broken.any():
        record = int(np.argmax(broken))
        raise part.damaged(record, f"its value is not UTF-8: {part.values[record]!r:.{_SHOWN_MAX}}")
    return texts


def _peeled(texts: pa.Array) -> tuple[npt.NDArray[np.int8], pa.Array]:
    """Return the kinds of records that look like ours and the JSON of their rows, _NO_KIND and "" for others.

    What stands between the two ends of such a record is its row if that is an object of JSON, whatever it holds.
    """
    kinds = np.full(len(texts), _NO_KIND, np.int8)
    for kind, (head, tail) in enumerate(zip(_HEADS, _TAILS, strict=True)):
        if (kinds != _NO_KIND).all():
            break
        alike = pc.and_(pc.starts_with(texts, head), pc.ends_with(texts, tail)).fill_null(False)
        kinds[np.asarray(alike) & (kinds == _NO_KIND)] = kind
    offsets, held = spans(texts)
    known = kinds != _NO_KIND
    bounds = np.zeros(2 * len(texts), np.int32)
    bounds[::2] = offsets[:-1] + np.where(known, _HEAD_SIZES[kinds], 0)
    bounds[1::2] = np.where(known, offsets[1:] - _TAIL_SIZES[kinds], bounds[::2])
    if not len(texts):
        return kinds, pa.array([], pa.string())
    pieces = pa.StringArray.from_buffers(len(bounds) - 1, pa.py_buffer(bounds), pa.py_buffer(held))
    return kinds, pieces.take(pa.array(np.arange(0, len(bounds), 2)))


_HEAD_SIZES: Final = np.array([len(text) for text in _HEADS], np.int32)
_TAIL_SIZES: Final = np.array([len(text) for text in _TAILS], np.int32)


def _opened(part: _Part, texts: pa.Array, record: Ints) -> tuple[npt.NDArray[np.int8], pa.Array]:
    """Return the kinds of records that were not written by `encode`, and the JSON of their rows.

    Args:
        part: the records, for errors.
        texts: of those to read, without nulls.
        record: the positions of those.
    """
    found = document(texts, _MEMBERS)
    op, named = found.of("op"), found.of("kind")
    added, removed = ((op.kinds == TEXT) & np.asarray(pc.equal(op.texts, text)) for text in ("c", "d"))
    kinds = np.where(added, np.int8(row_kind.INSERT), np.int8(row_kind.DELETE))
    said = np.asarray(pc.index_in(named.texts, value_set=pa.array(row_kind.SYMBOLS)).fill_null(_NO_KIND), dtype=np.int8)
    agrees = (named.kinds == TEXT) & (said != _NO_KIND) & (np.isin(said, row_kind.RETRACTIONS) == removed)
    image = Cells(
        np.where(added, found.kinds("after"), found.kinds("before")),
        pc.if_else(pa.array(added), found.of("after").texts, found.of("before").texts),
    )
    for wrong, why in (
        (found.children.roots != OBJECT, "its value is no object of JSON"),
        (~added & ~removed, "its 'op' is neither 'c' nor 'd'"),
        (~agrees & (named.kinds > NULL), "its 'kind' is none that its 'op' may have"),
        (added & (image.kinds != OBJECT), "its 'after' is no object"),
        (image.kinds != OBJECT, "its 'before' is no object"),
    ):
        if wrong.any():
            first = int(np.argmax(wrong))
            raise part.damaged(int(record[first]), f"{why}: {texts[first].as_py()!r:.{_SHOWN_MAX}}")
    return np.where(agrees, said, kinds).astype(np.int8), image.texts


def _keys_of(part: _Part, record: Ints, schema: TableSchema) -> dict[str, Cells]:
    """Return the cells of the primary key of tombstones by name.

    Args:
        part: the records.
        record: positions of the tombstones.
        schema: of the table.
    """
    keys = part.keys
    if keys is None or not schema.keyed:
        raise part.damaged(
            int(record[0]), "it has no value, and the table no primary key that would say which row is gone"
        )
    held = [keys[i] for i in record.tolist()]
    lacking = [i for i, key in zip(record.tolist(), held, strict=True) if key is None]
    if lacking:
        raise part.damaged(lacking[0], "it has neither a key nor a value")
    texts, broken = utf8(pa.array(held, pa.binary()))
    found = document(texts.fill_null(""), schema.primary_keys)
    parts = {name: found.of(name) for name in schema.primary_keys}
    broken = broken | (found.children.roots != OBJECT)
    for cells in parts.values():
        broken |= cells.empty
    if broken.any():
        first = int(np.argmax(broken))
        columns = ", ".join(f"'{name}'" for name in schema.primary_keys)
        raise part.damaged(
            int(record[first]), f"its key is no object that has {columns}: {held[first]!r:.{_SHOWN_MAX}}"
        )
    return parts


def _column(part: _Part, cells: Cells, field: t.Field, schema: TableSchema) -> pa.Array:
    found = read_column(cells, _widest(field.type), PLAIN, _RULES)
    if found.bad.any():
        record = int(np.argmax(found.bad))
        why = found.why if isinstance(found.why, str) else found.why[record].as_py()
        shown = f"{cells.texts[record].as_py()!r:.{_SHOWN_MAX}}"
        raise part.damaged(record, f"the value {shown} of column '{field.name}' {why}", field.name)
    if field.name in schema.primary_keys and found.values.null_count:
        record = int(np.argmax(np.asarray(found.values.is_null())))
        raise part.damaged(record, f"its row lacks '{field.name}', a column of the primary key", field.name)
    return found.values


@lru_cache(maxsize=1024)
def _widest(kind: t.DataType) -> t.DataType:
    """Return the type whose values are all that the Arrow type of another one holds, made of types that can be read.

    A longer text, or more digits, may be there from before the type was changed.
    """
    match kind:
        case t.Char() | t.VarChar():
            return t.VarChar(nullable=kind.nullable)
        case t.Binary() | t.VarBinary():
            return t.VarBinary(nullable=kind.nullable)
        case t.Time():
            return replace(kind, precision=3)
        case t.Timestamp() | t.LocalZonedTimestamp():
            return replace(kind, precision=_DIGITS[timestamp_unit(kind.precision)])
        case t.Array():
            return replace(kind, element=_widest(kind.element))
        case t.Map():
            return replace(kind, key=_widest(kind.key), value=_widest(kind.value))
        case t.Multiset():
            return t.Map(nullable=kind.nullable, key=_widest(kind.element), value=t.Int(nullable=False))
        case t.Row():
            fields = tuple(replace(field, type=_widest(field.type)) for field in kind.fields)
            return replace(kind, fields=fields)
        case t.Variant():
            parts = tuple(t.Field(i, name, t.VarBinary(nullable=False)) for i, name in enumerate(("value", "metadata")))
            return t.Row(nullable=kind.nullable, fields=parts)
    return kind

"""Change records -> rows with kinds: one function of a batch, without state and without tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

import numpy as np
import pyarrow as pa

from merganser.cdc import debezium
from merganser.cdc.batch import Batch, Changes, with_tombstones
from merganser.cdc.canal import canal
from merganser.cdc.options import CdcOptions, cdc_options, without_columns
from merganser.cdc.resolve import rows_of
from merganser.cdc.row_records import golden_gate, maxwell, plain
from merganser.errors import InvalidInputError, UnsupportedError
from merganser.files.layout import value_limits
from merganser.options import write as w
from merganser.options.option import Options
from merganser.options.registry import sequence_groups
from merganser.parsing.cells import is_text, utf8
from merganser.parsing.values import readable
from merganser.rules.merging import Vouched, vouched
from merganser.schema import types as t
from merganser.schema.conform import Limits
from merganser.schema.table_schema import TableSchema
from merganser.values import dataclass

_PIECE_BYTES: Final = 1 << 26
"""Bytes of records that are read at once; memory holds a few times as many."""
_TAKEN_BACK: Final = ("sum", "product", "count")
"""Aggregate functions whose result is wrong if an old value is not taken back."""
_FORMATS: Final[Mapping[str, Callable[[Batch], Changes]]] = {
    "debezium-json": debezium.envelopes,
    "debezium-json-schema": debezium.envelopes,
    "debezium-flat": debezium.flattened,
    "canal-json": canal,
    "maxwell-json": maxwell,
    "ogg-json": golden_gate,
    "json": plain,
}


@dataclass(frozen=True, slots=True)
class Placing:
    """What a table says, besides its columns and its primary key, about the rows of change records.

    Attributes:
        partition: the partition columns.
        sequence: the columns that order rows of a key, and that deletes need.
        groups: the columns that order values of sequence groups.
        vouched: the sequence groups without whose ordering a row leaves a null in a NOT NULL column.
        limits: values that files of the table cannot hold; None: they hold all.
        finds: whether the table finds the row of a key in whatever partition it lies.
        retracts: whether the merge engine takes the values of old rows back.
    """

    partition: tuple[str, ...] = ()
    sequence: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    limits: Limits | None = None
    finds: bool = True
    retracts: bool = False
    vouched: tuple[Vouched, ...] = ()

    @classmethod
    def of(cls, schema: TableSchema, options: Options) -> Placing:
        """Return those of a table."""
        removing = set(options.get(w.PARTIAL_UPDATE_REMOVE_RECORD_ON_SEQUENCE_GROUP))
        groups = [ordering for ordering, _ in sequence_groups(options)]
        needed = [name for ordering in groups if not removing.isdisjoint(ordering) for name in ordering]
        return cls(
            schema.partition_keys,
            (*options.get(w.SEQUENCE_FIELD), *needed),
            tuple(name for ordering in groups for name in ordering),
            value_limits(options),
            options.get(w.BUCKET) == -1,
            _retracts(schema, options),
            vouched(schema, options),
        )


def _retracts(schema: TableSchema, options: Options) -> bool:
    """Return whether a column holds the sum or the number of values, from which old values are taken away."""
    if options.get(w.MERGE_ENGINE) not in ("aggregation", "partial-update") or options.get(w.IGNORE_DELETE):
        return False
    default = options.get(w.DEFAULT_AGGREGATE_FUNCTION)
    return any(
        (options.get(w.AGGREGATE_FUNCTION.of(field.name)) or default) in _TAKEN_BACK
        and not options.get(w.IGNORE_RETRACT.of(field.name))
        for field in schema.fields
        if field.name not in schema.primary_keys
    )


@dataclass(frozen=True, slots=True)
class Parsed:
    """What a batch of n change records says.

    Attributes:
        rows: the rows of the good records, in their order, with the columns of the table.
        kinds: int8[rows]: what each row does: 0 +I, 1 -U, 2 +U, 3 -D.
        record: int64[rows], rising: the position of the record that each row came from.
        rejected: the bad records, in their order: `record` int64, `reason`, `text` and `key`. They give no rows.
        skipped: how many records say nothing about rows, by why: tombstone, control, other-table or truncate.
        unavailable: list<string>[rows], the columns whose values a row keeps from the row before it; null in whole
            rows. None without the option unavailable="keep".
    """

    rows: pa.Table
    kinds: pa.Array
    record: pa.Array
    rejected: pa.Table
    skipped: Mapping[str, int]
    unavailable: pa.ChunkedArray | None = None


def parse_records(
    records: Any,
    format_: str,
    fields: Sequence[t.Field],
    key: Sequence[str],
    options: Mapping[str, Any],
    keys: Any = None,
    placing: Placing = Placing(),
) -> Parsed:
    """Return the rows that change records stand for.

    Args:
        records: string[n] or binary[n]; null is a record without a value.
        format_: the format of the records.
        fields: the columns of the table.
        key: its primary key.
        options: what `cdc_options` takes.
        keys: string[n] or binary[n], the message keys; None: there are none.
        placing: what places the rows of the table besides its key.

    Raises:
        InvalidInputError: an option has no meaning; or a record is bad and the option `bad` is "fail".
        UnsupportedError: a column has a type that change records do not hold.
    """
    chosen = cdc_options(format_, options, fields, key)
    if placing.limits is not None:
        chosen = replace(chosen, rules=replace(chosen.rules, truncates=placing.limits.truncates))
    fixed = frozenset((*key, *placing.partition))
    chosen = replace(chosen, rules=replace(chosen.rules, placing=fixed))
    for field in fields:
        if not readable(field.type):
            raise UnsupportedError(
                f"cannot read change records: column '{field.name}' has the type {field.type}, which they do not hold.",
                column=field.name,
            )
    texts = chunked(records, "records")
    key_texts = None if keys is None else chunked(keys, "keys")
    if key_texts is not None and len(key_texts) != len(texts):
        raise InvalidInputError(
            f"cannot read change records: {len(texts)} records and {len(key_texts)} keys. Give one key per record, "
            "null where it has none."
        )
    parts, start = [], 0
    for piece in pieces(texts):
        own = None if key_texts is None else key_texts.slice(start, len(piece))
        parts.append(_parse_piece(piece, own, fields, key, chosen, start, placing))
        start += len(piece)
    return _joined(parts)


def letters_user(user: str | None, table: str) -> str | None:
    """Return who commits bad records that were meant for a table: feeds of several tables may share a user."""
    return None if user is None else f"{user} for {table}"


def letters_of(rejected: pa.Table, table: str, time: datetime) -> pa.Table:
    """Return bad records as rows of a table of dead letters.

    Args:
        rejected: those of a `Parsed`.
        table: the table that they were meant for.
        time: the current time.
    """
    n = rejected.num_rows
    columns = {
        "table": pa.array([table], pa.string()).take(pa.array(np.zeros(n, np.int64))),
        "position": rejected.column("record"),
        "reason": rejected.column("reason"),
        "text": rejected.column("text"),
        "key": rejected.column("key"),
        "time": pa.array([time], pa.timestamp("us", "UTC")).take(pa.array(np.zeros(n, np.int64))),
    }
    columns["time"] = columns["time"].cast(pa.timestamp("ms", "UTC"), safe=False)
    return pa.table(columns)


def _parse_piece(
    records: pa.Array,
    keys: pa.ChunkedArray | None,
    fields: Sequence[t.Field],
    key: Sequence[str],
    options: CdcOptions,
    start: int,
    placing: Placing,
) -> Parsed:
    texts, damaged = utf8(records)
    key_texts = None if keys is None else utf8(_one(keys))[0]
    columns = [field.name for field in fields if field.name not in (*options.metadata, *options.computed)]
    key_places = [columns.index(name) for name in key if name in columns]
    batch = Batch(
        texts.fill_null(""), key_texts, columns, key_places, options, np.asarray(records.is_null()), key,
        placing.partition, placing.sequence, placing.groups, placing.limits,
        placing.finds, placing.retracts, placing.vouched,
    )  # fmt: skip
    batch.reject(damaged, "not-json: the bytes are not UTF-8")
    changes = with_tombstones(batch, _FORMATS[options.format](batch))
    made = rows_of(batch, changes, fields)
    which, reasons = batch.rejected()
    if options.fail and len(which):
        raise InvalidInputError(
            f"cannot read change records: record {start + which[0]} is bad: {reasons[0]}. {len(which)} of "
            f"{len(batch)} records are bad. No row of this batch was given.",
            record=int(start + which[0]),
        )
    at = pa.array(which)
    rejected = pa.table(
        {
            "record": pa.array(which + start),
            "reason": reasons,
            "text": records.take(at).cast(pa.binary()),
            "key": pa.nulls(len(which), pa.binary()) if keys is None else _one(keys).take(at).cast(pa.binary()),
        }
    )
    unavailable = None if made.unavailable is None else pa.chunked_array([made.unavailable])
    return Parsed(made.table, made.kinds, pa.array(made.record + start), rejected, batch.skipped, unavailable)


def _joined(parts: Sequence[Parsed]) -> Parsed:
    skipped: dict[str, int] = {}
    for part in parts:
        for why, count in part.skipped.items():
            skipped[why] = skipped.get(why, 0) + count
    lacking = None
    if parts[0].unavailable is not None:
        lacking = [chunk for part in parts if part.unavailable is not None for chunk in part.unavailable.chunks]
    return Parsed(
        pa.concat_tables([part.rows for part in parts]),
        pa.concat_arrays([part.kinds for part in parts]),
        pa.concat_arrays([part.record for part in parts]),
        pa.concat_tables([part.rejected for part in parts]),
        skipped,
        None if lacking is None else pa.chunked_array(lacking),
    )


def chunked(values: Any, what: str) -> pa.ChunkedArray:
    """Return records or keys as text or bytes.

    Raises:
        InvalidInputError: they are neither.
    """
    try:
        found = values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values)
    except (pa.ArrowException, TypeError):
        found = pa.nulls(0, pa.int8())
    if isinstance(found, pa.Array):
        found = pa.chunked_array([found])
    kind = found.type
    if pa.types.is_null(kind):
        return found.cast(pa.binary())
    if not (
        is_text(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)
    ):
        raise InvalidInputError(
            f"cannot read change records: {what} is {type(values).__name__} of {kind}. Give text or bytes, as an Arrow "
            "array or a list."
        )
    return found


def changes_among(records: Any, format_: str, options: Mapping[str, Any]) -> pa.ChunkedArray:
    """Return those of some records that are changes of the tables that options choose, whatever their values are.

    Raises:
        InvalidInputError: an option has no meaning.
    """
    chosen = cdc_options(format_, without_columns(options), (), ())
    texts, open_ = chunked(records, "records"), [np.zeros(0, np.bool_)]
    for piece in pieces(texts):
        found, damaged = utf8(piece)
        batch = Batch(found.fill_null(""), None, (), (), chosen, np.asarray(piece.is_null()))
        batch.reject(damaged, "")
        _FORMATS[chosen.format](batch)
        open_.append(batch.open)
    return texts.filter(pa.array(np.concatenate(open_)))


def rejected_at(records: Any, keys: Any, which: pa.ChunkedArray, reasons: pa.Array) -> pa.Table:
    """Return records as bad ones, in the form of `Parsed.rejected`: each once, with its first reason.

    Args:
        which: int64[n], positions of records, rising.
        reasons: string[n].
    """
    numbers, first = np.unique(which.to_numpy(), return_index=True)
    at = pa.array(numbers, pa.int64())
    texts = chunked(records, "records").take(at)
    key_texts = pa.nulls(len(at), pa.binary()) if keys is None else chunked(keys, "keys").take(at).cast(pa.binary())
    return pa.table(
        {"record": at, "reason": reasons.take(pa.array(first)), "text": texts.cast(pa.binary()), "key": key_texts}
    )


def without(records: Any, which: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return records but for those at some positions, int64."""
    texts = chunked(records, "records")
    kept = np.ones(len(texts), np.bool_)
    kept[which.to_numpy()] = False
    return texts.filter(pa.array(kept))


def pieces(texts: pa.ChunkedArray) -> list[pa.Array]:
    """Return records in pieces of so many bytes that they can be read at once; one at least."""
    found = []
    for chunk in texts.chunks:
        count = max(1, -(-chunk.nbytes // _PIECE_BYTES))
        step = max(1, -(-len(chunk) // count))
        found += [chunk.slice(i, step) for i in range(0, len(chunk), step)]
    return found or [pa.array([], texts.type)]


def _one(values: pa.ChunkedArray) -> pa.Array:
    found = values.combine_chunks()
    return pa.concat_arrays(found.chunks) if isinstance(found, pa.ChunkedArray) else found

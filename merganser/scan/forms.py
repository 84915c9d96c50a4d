"""The forms in which changes are shown: columns, and what stands in the column of kinds.

| table | form | columns |
|---|---|---|
| `t` | CHANGED | `_row_kind`, the table's |
| `t$audit_log` | STORED | `rowkind`, the table's |
| `t$binlog` | PACKED | `rowkind`, each of the table's as an ARRAY: the row, or the rows before and after |
| `t$changelog` | LOGGED | `_change_type`, `_log_offset`, `_commit_timestamp`, the table's |
| `t$binlog` as in Fluss | PAIRED | `_change_type`, `_log_offset`, `_commit_timestamp`, `before` and `after` as ROWs |

A change is a row of kind +I or -D, or a -U and the +U of the same key right behind it. PACKED and PAIRED make one row
of a change; a -U or +U without the other is a row by itself.

An offset is the id of the snapshot times 2^32, plus the position of the row among those that the snapshot published in
the bucket, from 0 on. So offsets of a bucket rise, and a -U and its +U have two that follow each other.

Docs: decision 0040.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from merganser.merge.engine import Kinds
from merganser.merge.groups import Mask, Positions
from merganser.meta.table_def import TableDef
from merganser.options import read as r
from merganser.scan.rows import BATCH_ROWS, without_columns
from merganser.scan.split import DiffSplit, PublishedSplit, ReadJob, Split, What
from merganser.schema import row_kind
from merganser.schema import types as t
from merganser.schema.arrow import arrow_field
from merganser.schema.same import same_rows
from merganser.schema.table_schema import CHANGE_KIND, ROW_KIND, SEQUENCE_NUMBER
from merganser.schema.types_text import UNNUMBERED

CHANGE_TYPE: Final = t.Field(UNNUMBERED, "_change_type", t.VarChar(nullable=False))
LOG_OFFSET: Final = t.Field(UNNUMBERED, "_log_offset", t.BigInt(nullable=False))
COMMIT_TIMESTAMP: Final = t.Field(UNNUMBERED, "_commit_timestamp", t.LocalZonedTimestamp(precision=3, nullable=False))
BEFORE: Final = "before"
AFTER: Final = "after"
OFFSETS_PER_SNAPSHOT: Final = 1 << 32

WITH_OFFSETS: Final = (What.LOGGED, What.PAIRED)
"""Forms of changes that were published: a state, or the difference of two, has no offsets."""
WHOLE_CHANGES: Final = (What.PACKED, What.PAIRED)
"""Forms that make one row of a change."""

_KINDS: Final[Mapping[What, t.Field]] = {
    What.STORED: ROW_KIND,
    What.PACKED: ROW_KIND,
    What.CHANGED: CHANGE_KIND,
    What.LOGGED: CHANGE_TYPE,
    What.PAIRED: CHANGE_TYPE,
}
_TYPES: Final = ("insert", "update_before", "update_after", "delete")
_PAIR_TYPES: Final = ("insert", "update", "update", "delete")


def kind_column(what: What) -> t.Field | None:
    """Return the column of kinds; None: retractions are left out, and the others have no kind."""
    return _KINDS.get(what)


def symbols(what: What) -> pa.Array:
    """Return what stands in the column of kinds for each of the four kinds."""
    return pa.array({What.LOGGED: _TYPES, What.PAIRED: _PAIR_TYPES}.get(what, row_kind.SYMBOLS))


def columns_of(what: What, table: TableDef) -> tuple[t.Field, ...]:
    """Return all columns of a form."""
    fields = table.schema.user_fields
    kind = kind_column(what)
    if kind is None:
        return fields
    match what:
        case What.STORED:
            return (kind, *_numbers(table), *fields)
        case What.PACKED:
            return (
                kind,
                *_numbers(table),
                *(replace(f, type=t.Array(element=f.type.with_nullable(True))) for f in fields),
            )
        case What.LOGGED:
            return (kind, LOG_OFFSET, COMMIT_TIMESTAMP, *fields)
        case What.PAIRED:
            row = t.Row(fields=tuple(replace(field, type=field.type.with_nullable(True)) for field in fields))
            sides = (t.Field(UNNUMBERED, name, row) for name in (BEFORE, AFTER))
            return (kind, LOG_OFFSET, COMMIT_TIMESTAMP, *sides)
    return (kind, *fields)


def _numbers(table: TableDef) -> tuple[t.Field, ...]:
    return (SEQUENCE_NUMBER,) if table.keyed and table.options.get(r.SEQUENCE_NUMBER_READ) else ()


def single_rows(job: ReadJob, of: type[Split] | type[PublishedSplit] | type[DiffSplit]) -> ReadJob:
    """Return the job that reads the rows of which another job, of a form with whole changes, makes its own."""
    changed = What.LOGGED if job.what is What.PAIRED else What.CHANGED
    what = {Split: What.STORED, PublishedSplit: What.LOGGED, DiffSplit: changed}[of]
    kind = kind_column(what)
    assert kind is not None
    names = _names(job)
    every = {BEFORE, AFTER} & names if job.what is What.PAIRED else set()
    own = job.table.schema.user_fields
    keys = set(job.table.schema.primary_keys)
    wanted = [field for field in own if every or field.name in names or field.name in keys]
    columns = [kind, *(wanted or own[:1])]
    if SEQUENCE_NUMBER.name in names:
        columns.insert(1, SEQUENCE_NUMBER)
    if what is What.LOGGED:
        columns += [LOG_OFFSET, COMMIT_TIMESTAMP]
    return replace(job, what=what, columns=tuple(columns), where=None, key_filter=None)


def shows_rows_of_pairs(what: What, columns: Sequence[t.Field]) -> bool:
    """Return whether a reader sees the two rows of an update, and that they are two of one."""
    kind = kind_column(what)
    return what not in WHOLE_CHANGES and kind is not None and kind in columns


def in_batches(what: What, tables: Iterable[pa.Table]) -> Iterator[pa.RecordBatch]:
    """Yield rows with kinds in batches of at most `BATCH_ROWS` rows; the two rows of an update lie in one batch.

    Args:
        what: a form whose rows are those of changes, one by one.
        tables: the rows, in order, the column of kinds among their columns.
    """
    kind = kind_column(what)
    assert kind is not None
    before, after = (symbols(what)[code].as_py() for code in (row_kind.UPDATE_BEFORE, row_kind.UPDATE_AFTER))
    held: list[pa.Table] = []
    for rows in tables:
        if not rows.num_rows:
            continue
        rows = pa.concat_tables([*held, rows], promote_options="default")
        held = []
        kinds = rows.column(kind.name)
        if kinds[-1].as_py() == before:
            held = [rows.slice(rows.num_rows - 1)]
            rows = rows.slice(0, rows.num_rows - 1)
        begin = 0
        while begin < rows.num_rows:
            end = min(begin + BATCH_ROWS, rows.num_rows)
            if end < rows.num_rows and kinds[end - 1].as_py() == before and kinds[end].as_py() == after:
                end -= 1
            yield from rows.slice(begin, end - begin).combine_chunks().to_batches()
            begin = end
    for rows in held:
        yield from rows.to_batches()


def _names(job: ReadJob) -> set[str]:
    """Return the names of all columns that a job needs."""
    tested = () if job.where is None else job.where.columns
    return {field.name for field in job.columns}.union(tested)


def whole_changes(job: ReadJob, single: ReadJob, tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield one row for each change, filtered; no change is torn between two tables.

    Args:
        job: of a form with whole changes.
        single: the job of the rows, by `single_rows`.
        tables: the rows, in order.
    """
    held: pa.Table | None = None
    for rows in tables:
        rows = rows if held is None else pa.concat_tables([held, rows])
        held = None
        if rows.num_rows and _kinds(single, rows.slice(rows.num_rows - 1))[0] == row_kind.UPDATE_BEFORE:
            held, rows = rows.slice(rows.num_rows - 1), rows.slice(0, rows.num_rows - 1)
        yield _made(job, single, rows)
    if held is not None:
        yield _made(job, single, held)


def _kinds(single: ReadJob, rows: pa.Table) -> Kinds:
    kind = kind_column(single.what)
    assert kind is not None
    codes = pc.index_in(rows.column(kind.name), value_set=symbols(single.what))
    return codes.to_numpy().astype(np.int8)  # type: ignore[no-any-return]


def _made(job: ReadJob, single: ReadJob, rows: pa.Table) -> pa.Table:
    kinds = _kinds(single, rows)
    second = np.zeros(rows.num_rows, np.bool_)
    second[1:] = _are_pairs(job.table, rows, kinds)
    first = np.flatnonzero(~second)
    ends = np.append(first[1:], rows.num_rows) if len(first) else first
    make = _packed if job.what is What.PACKED else _paired
    made = make(job, rows, kinds, first, ends)
    if job.where is not None:
        made = made.filter(job.where.mask(made).fill_null(False))
    names = [field.name for field in job.columns]
    return made.select(names) if names else without_columns(made.num_rows)


def _are_pairs(table: TableDef, rows: pa.Table, kinds: Kinds) -> Mask:
    """Return bool[n - 1], whether a row and the next one are the two of one update."""
    pairs: Mask = (kinds[:-1] == row_kind.UPDATE_BEFORE) & (kinds[1:] == row_kind.UPDATE_AFTER)
    if not pairs.any():
        return pairs
    if LOG_OFFSET.name in rows.column_names:  # rows of two buckets or snapshots are no pair
        offsets = rows.column(LOG_OFFSET.name).to_numpy()
        pairs &= np.diff(offsets) == 1
    at = np.flatnonzero(pairs)
    keys = rows.select(table.schema.primary_keys)
    pairs[at] = same_rows(keys.take(pa.array(at)), keys.take(pa.array(at + 1)))
    return pairs


def _packed(job: ReadJob, rows: pa.Table, kinds: Kinds, first: Positions, ends: Positions) -> pa.Table:
    """Return k changes, each column as a list of the one or two rows.

    Args:
        first, ends: int64[k], where the rows of each change begin and end.
    """
    last = ends - 1
    bounds = pa.array(np.append(first, rows.num_rows).astype(np.int32))
    columns: dict[str, pa.Array | pa.ChunkedArray] = {ROW_KIND.name: row_kind.symbols(pa.array(kinds[last]))}
    if SEQUENCE_NUMBER.name in rows.column_names:
        columns[SEQUENCE_NUMBER.name] = rows.column(SEQUENCE_NUMBER.name).take(pa.array(last))
    for field in columns_of(What.PACKED, job.table):
        if field.name in rows.column_names and field.name not in columns:
            values = _whole(rows.column(field.name))
            columns[field.name] = pa.ListArray.from_arrays(bounds, values, type=arrow_field(field).type)
    return pa.table(columns)


def _paired(job: ReadJob, rows: pa.Table, kinds: Kinds, first: Positions, ends: Positions) -> pa.Table:
    """Return k changes with the rows before and after; arguments as of `_packed`."""
    last = ends - 1
    columns: dict[str, pa.Array | pa.ChunkedArray] = {
        CHANGE_TYPE.name: pa.array(_PAIR_TYPES).take(pa.array(kinds[last]))
    }
    for field in (LOG_OFFSET, COMMIT_TIMESTAMP):
        columns[field.name] = rows.column(field.name).take(pa.array(last))
    retracts = (kinds & 1) == 1
    wanted = _names(job)
    for field in columns_of(What.PAIRED, job.table):
        if field.name in (BEFORE, AFTER) and field.name in wanted:
            at, there = (first, retracts[first]) if field.name == BEFORE else (last, ~retracts[last])
            columns[field.name] = _struct(rows, at, there, arrow_field(field).type)
    return pa.table(columns)


def _struct(rows: pa.Table, at: Positions, there: npt.NDArray[np.bool_], kind: pa.StructType) -> pa.Array:
    positions = pa.array(at, mask=~there)
    parts = [_whole(rows.column(field.name).take(positions)) for field in kind]
    return pa.StructArray.from_arrays(parts, fields=list(kind), mask=pa.array(~there))


def _whole(column: pa.ChunkedArray) -> pa.Array:
    whole = column.combine_chunks()
    return pa.concat_arrays(whole.chunks) if isinstance(whole, pa.ChunkedArray) else whole

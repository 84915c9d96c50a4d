"""Published rows: files of changes -> rows with kinds, file by file, as they stand, or in phases (`scan.phases`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from merganser.expr.compute import can_fail
from merganser.files.read import DataFileReader, read_small
from merganser.merge.groups import Mask
from merganser.scan.forms import COMMIT_TIMESTAMP, LOG_OFFSET
from merganser.scan.phases import LEAVES, PASSES, STAYS, Phases, by_place, may_retract, phases_of, places_of
from merganser.scan.shown import counted_out, is_numbered, shown, stored_columns, tests_kinds
from merganser.scan.split import Phase, PublishedSplit, ReadJob, What
from merganser.schema import row_kind
from merganser.schema import types as t
from merganser.schema.arrow import arrow_type
from merganser.schema.table_schema import VALUE_COUNT, VALUE_KIND
from merganser.storage.protocol import Storage

_READ_ROWS = 1 << 18


def read_published(job: ReadJob, split: PublishedSplit, storage: Storage) -> Iterator[pa.Table]:
    """Yield the rows of a split in the order of its files, or in phases; some tables may be empty.

    Raises:
        FormatError: a file is damaged or missing.
    """
    match split.phase:
        case None:
            tables = _rows(job, split, storage)
        case Phase.IN_PHASES:
            tables = iter([_in_phases(job, split, storage)])
        case _:
            tables = _of_phases(job, split, storage)
    for rows in tables:
        if job.table.counting:
            yield shown(job, *counted_out(rows, rows.column(VALUE_COUNT.name).to_numpy()))
        elif job.table.keyed:
            yield shown(job, rows, rows.column(VALUE_KIND.name).to_numpy())
        else:
            yield shown(job, rows, row_kind.inserts(rows.num_rows).to_numpy())


def _rows(job: ReadJob, split: PublishedSplit, storage: Storage) -> Iterator[pa.Table]:
    """Yield all stored rows of the files as they stand."""
    columns = stored_columns(job)
    if split.phase is Phase.IN_PHASES:  # keys say which phase a row has
        columns += [field for field in map(job.table.schema.field, job.table.key) if field not in columns]
    stored = _stored(job, split, storage, columns)
    return _numbered(split, stored) if job.what is What.LOGGED else stored


def _in_phases(job: ReadJob, split: PublishedSplit, storage: Storage) -> pa.Table:
    """Return the rows of small files, snapshot by snapshot, those of each phase by phase."""
    rows = pa.concat_tables(list(_rows(job, split, storage)))
    sizes = [target.file.row_count for target in split.targets]
    places = np.repeat(places_of(split), sizes)
    kinds = rows.column(VALUE_KIND.name).to_numpy()
    phases = phases_of([rows.column(name) for name in job.table.key], kinds, places)
    snapshots = np.repeat([origin.snapshot for origin in split.origins], sizes)
    order = np.lexsort((phases, snapshots))
    return rows if (order[1:] > order[:-1]).all() else rows.take(pa.array(order))


def _of_phases(job: ReadJob, split: PublishedSplit, storage: Storage) -> Iterator[pa.Table]:
    """Yield rows of some phases, those of each phase bucket by bucket; memory holds a byte for each row of a bucket."""
    wanted = [STAYS] if split.phase is Phase.STAYING else [LEAVES, PASSES]
    later: list[tuple[PublishedSplit, Phases]] = []
    for files in by_place(split):
        phases = _phases(job, files, storage)
        yield from _chosen(job, files, storage, phases == wanted[0])
        if PASSES in wanted and (phases == PASSES).any():
            later.append((files, phases))
    for files, phases in later:
        yield from _chosen(job, files, storage, phases == PASSES)


def _phases(job: ReadJob, files: PublishedSplit, storage: Storage) -> Phases:
    """Return the phase of each row of all files that a snapshot published in a bucket."""
    table = job.table
    if not any(may_retract(table, file) for file in files.files):
        return np.full(files.rows, STAYS, np.int8)
    keys = [table.schema.field(name) for name in table.key]
    unfiltered = replace(job, columns=tuple(keys), where=None, what=What.MERGED)
    rows = pa.concat_tables(list(_stored(unfiltered, files, storage, keys)))
    kinds = rows.column(VALUE_KIND.name).to_numpy()
    return phases_of([rows.column(name) for name in table.key], kinds, np.zeros(rows.num_rows, np.int64))


def _chosen(job: ReadJob, files: PublishedSplit, storage: Storage, chosen: Mask) -> Iterator[pa.Table]:
    """Yield the rows of files that a mask over them chooses."""
    if not chosen.any():
        return
    begin = 0
    for rows in _rows(job, files, storage):
        mask = chosen[begin : begin + rows.num_rows]
        begin += rows.num_rows
        yield rows if mask.all() else rows.filter(pa.array(mask))


def _numbered(split: PublishedSplit, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Yield all stored rows of a split with their offsets and the times of their commits."""
    sizes = np.array([target.file.row_count for target in split.targets])
    ends = np.cumsum(sizes)
    offsets = np.array([origin.offset for origin in split.origins]) - (ends - sizes)
    times = np.array([origin.time_ms for origin in split.origins])
    begin = 0
    for rows in tables:
        at = np.arange(begin, begin + rows.num_rows)
        file = np.searchsorted(ends, at, side="right")
        moments = pa.array(times[file]).view(arrow_type(COMMIT_TIMESTAMP.type))
        rows = rows.append_column(LOG_OFFSET.name, pa.array(offsets[file] + at))
        yield rows.append_column(COMMIT_TIMESTAMP.name, moments)
        begin += rows.num_rows


def _stored(
    job: ReadJob, split: PublishedSplit, storage: Storage, columns: Sequence[t.Field]
) -> Iterator[pa.Table]:  # fmt: skip
    numbered = is_numbered(job)
    if len(split.targets) > 1:
        rows = read_small(storage, split.targets, columns=columns, sequence=numbered)
        if rows is not None:
            yield rows
            return
    # A filter on kinds or numbers looks at what is no column of a file's schema.
    where = None if job.where is None or not job.where.columns <= {field.name for field in columns} else job.where
    # Offsets count all rows, and the phase of a row follows from all rows of its key.
    where = None if tests_kinds(job) or job.what is What.LOGGED or split.phase is not None else where
    for target in split.targets:
        reader = DataFileReader(
            storage,
            target,
            columns=columns,
            kind=job.table.keyed,
            sequence=numbered,
            groups_filter=where,
            rows_filter=None if where is None or can_fail(where.expression) else where,
        )
        try:
            while (rows := reader.read(_READ_ROWS)) is not None:
                yield rows
        finally:
            reader.close()

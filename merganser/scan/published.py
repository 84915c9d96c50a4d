"""Published rows: files of changes -> rows with kinds, file by file, as they stand."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from merganser.expr.compute import can_fail
from merganser.files.read import DataFileReader, read_small
from merganser.scan.forms import COMMIT_TIMESTAMP, LOG_OFFSET
from merganser.scan.shown import counted_out, is_numbered, shown, stored_columns, tests_kinds
from merganser.scan.split import PublishedSplit, ReadJob, What
from merganser.schema import row_kind
from merganser.schema.arrow import arrow_type
from merganser.schema.table_schema import VALUE_COUNT, VALUE_KIND
from merganser.storage.protocol import Storage

_READ_ROWS = 1 << 18


def read_published(job: ReadJob, split: PublishedSplit, storage: Storage) -> Iterator[pa.Table]:
    """Yield the rows of a split in the order of its files; some tables may be empty.

    Raises:
        FormatError: a file is damaged or missing.
    """
    stored = _stored(job, split, storage)
    for rows in _numbered(split, stored) if job.what is What.LOGGED else stored:
        if job.table.counting:
            yield shown(job, *counted_out(rows, rows.column(VALUE_COUNT.name).to_numpy()))
        elif job.table.keyed:
            yield shown(job, rows, rows.column(VALUE_KIND.name).to_numpy())
        else:
            yield shown(job, rows, row_kind.inserts(rows.num_rows).to_numpy())


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


def _stored(job: ReadJob, split: PublishedSplit, storage: Storage) -> Iterator[pa.Table]:
    columns, numbered = stored_columns(job), is_numbered(job)
    if len(split.targets) > 1:
        rows = read_small(storage, split.targets, columns=columns, sequence=numbered)
        if rows is not None:
            yield rows
            return
    # A filter on kinds or numbers looks at what is no column of a file's schema.
    where = None if job.where is None or not job.where.columns <= {field.name for field in columns} else job.where
    where = None if tests_kinds(job) or job.what is What.LOGGED else where  # offsets count all rows
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

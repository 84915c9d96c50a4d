"""Published rows: files of changes -> rows with kinds, file by file, as they stand."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from merganser.expr.compute import can_fail
from merganser.files.read import DataFileReader, read_small
from merganser.scan.shown import counted_out, is_numbered, shown, stored_columns, tests_kinds
from merganser.scan.split import PublishedSplit, ReadJob
from merganser.schema import row_kind
from merganser.schema.table_schema import VALUE_COUNT, VALUE_KIND
from merganser.storage.protocol import Storage

_READ_ROWS = 1 << 18


def read_published(job: ReadJob, split: PublishedSplit, storage: Storage) -> Iterator[pa.Table]:
    """Yield the rows of a split in the order of its files; some tables may be empty.

    Raises:
        FormatError: a file is damaged or missing.
    """
    for rows in _stored(job, split, storage):
        if job.table.counting:
            yield shown(job, *counted_out(rows, rows.column(VALUE_COUNT.name).to_numpy()))
        elif job.table.keyed:
            yield shown(job, rows, rows.column(VALUE_KIND.name).to_numpy())
        else:
            yield shown(job, rows, row_kind.inserts(rows.num_rows).to_numpy())


def _stored(job: ReadJob, split: PublishedSplit, storage: Storage) -> Iterator[pa.Table]:
    columns, numbered = stored_columns(job), is_numbered(job)
    if len(split.targets) > 1:
        rows = read_small(storage, split.targets, columns=columns, sequence=numbered)
        if rows is not None:
            yield rows
            return
    # A filter on kinds or numbers looks at what is no column of a file's schema.
    where = None if job.where is None or not job.where.columns <= {field.name for field in columns} else job.where
    where = None if tests_kinds(job) else where
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

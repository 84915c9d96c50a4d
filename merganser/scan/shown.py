"""Rows with kinds -> what a read of changes returns: its columns, its filter, the kinds in the form that was asked."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from merganser.merge.engine import Kinds
from merganser.scan.forms import kind_column, symbols
from merganser.scan.rows import without_columns
from merganser.scan.split import ReadJob, What
from merganser.schema import row_kind
from merganser.schema import types as t
from merganser.schema.table_schema import SEQUENCE_NUMBER, VALUE_COUNT


def stored_columns(job: ReadJob) -> list[t.Field]:
    """Return the columns of the table that a job needs, at least one, besides the numbers of versions."""
    schema = job.table.schema
    kind = kind_column(job.what)
    names = {field.name for field in job.columns if field not in (kind, SEQUENCE_NUMBER)}
    if job.where is not None:
        names |= {name for name in job.where.columns if kind is None or name != kind.name}
    if job.table.counting:
        names.add(VALUE_COUNT.name)
    if found := [field for field in schema.fields if field.name in names]:
        return found
    return [schema.field(job.table.key[0] if job.table.keyed else schema.names[0])]


def is_numbered(job: ReadJob) -> bool:
    """Return whether sequence numbers are asked for."""
    return SEQUENCE_NUMBER in job.columns or (
        job.what is What.STORED and job.where is not None and SEQUENCE_NUMBER.name in job.where.columns
    )


def tests_kinds(job: ReadJob) -> bool:
    """Return whether the filter looks at kinds."""
    kind = kind_column(job.what)
    return job.where is not None and kind is not None and kind.name in job.where.columns


def counted_out(rows: pa.Table, counts: np.ndarray) -> tuple[pa.Table, Kinds]:
    """Return rows of a counting table as often as they count, as inserts, or as deletes where they count below zero."""
    kinds = np.where(counts < 0, row_kind.DELETE, row_kind.INSERT).astype(np.int8)
    at = np.repeat(np.arange(rows.num_rows), np.abs(counts))
    return rows.take(pa.array(at)), kinds[at]


def shown(job: ReadJob, rows: pa.Table, kinds: Kinds) -> pa.Table:
    """Return the columns of a job of rows that its filter lets through.

    Args:
        rows: n rows with `stored_columns`.
        kinds: int8[n].
    """
    kind = kind_column(job.what)
    if kind is not None:
        rows = rows.append_column(kind.name, pa.chunked_array([symbols(job.what).take(pa.array(kinds))]))
    elif kinds.max(initial=row_kind.INSERT) != row_kind.INSERT:
        rows = rows.filter(pa.array((kinds & 1) == 0))
    if job.where is not None:
        rows = rows.filter(job.where.mask(rows).fill_null(False))
    names = [field.name for field in job.columns]
    return rows.select(names) if names else without_columns(rows.num_rows)

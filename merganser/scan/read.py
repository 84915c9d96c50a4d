"""One split -> rows: what the versions of every key make, filtered exactly, in windows of bounded size.

A section of one sorted run without retractions is read straight through, and there any filter may skip row
groups. Where versions meet, only a filter on key columns may: all versions of a key share it. The value
columns are gathered for the rows that remain after merge and filter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from merganser.codec.deletion_vector import Positions
from merganser.expr.predicate import Predicate, conjunction, conjuncts
from merganser.files.masks import load
from merganser.lsm.section import SectionReader
from merganser.meta.data_file import DataFile
from merganser.scan.diff import read_diff
from merganser.scan.forms import WHOLE_CHANGES, single_rows, whole_changes
from merganser.scan.published import read_published
from merganser.scan.rows import without_columns
from merganser.scan.split import AnySplit, DiffSplit, PublishedSplit, ReadJob, Split, What
from merganser.schema import row_kind
from merganser.schema.table_schema import ROW_KIND, SEQUENCE_NUMBER, VALUE_COUNT, VALUE_KIND
from merganser.storage.protocol import Storage

_OF_STORED_ROWS: Final = (ROW_KIND, SEQUENCE_NUMBER)
"""Columns that stored rows have beside those of the table."""


def read_split(job: ReadJob, split: AnySplit, storage: Storage) -> Iterator[pa.Table]:
    """Yield the rows of a split as tables of the job's columns; some may be large, none is empty.

    Rows of changes come in their order.
    """
    if job.what in WHOLE_CHANGES:
        single = single_rows(job, type(split))
        tables = whole_changes(job, single, _tables(single, split, storage))
    else:
        tables = _tables(job, split, storage)
    for table in tables:
        if table.num_rows:
            yield table


def _tables(job: ReadJob, split: AnySplit, storage: Storage) -> Iterator[pa.Table]:
    if isinstance(split, PublishedSplit):
        yield from read_published(job, split, storage)
        return
    if isinstance(split, DiffSplit):
        yield from read_diff(job, split, storage)
        return
    for section in split.sections:
        yield from _Section(job, split, section, storage).rows()


def _newly_marked(split: Split, file: DataFile, storage: Storage) -> Positions:
    """Return the positions in a file that later vectors name and those of the split do not."""
    found = load(storage, split.marked[file.name], file.row_count)
    before = split.vectors.get(file.name)
    return found if before is None else np.setdiff1d(found, load(storage, before), assume_unique=True)


def _without_kinds(where: Predicate | None) -> Predicate | None:
    """Return the part of a filter that looks at no kinds of rows: files hold these as numbers."""
    if where is None or ROW_KIND.name not in where.columns:
        return where
    return conjunction([part for part in conjuncts(where) if ROW_KIND.name not in part.columns])


def key_filter(where: Predicate | None, key: Sequence[str]) -> Predicate | None:
    """Return the part of a filter that looks at key columns alone."""
    if where is None:
        return None
    return conjunction([part for part in conjuncts(where) if part.columns and part.columns <= set(key)])


class _Section:
    """Files whose key ranges meet no others of the bucket."""

    def __init__(self, job: ReadJob, split: Split, files: Sequence[DataFile], storage: Storage) -> None:
        self._job = job
        self._files = files
        self._table = table = job.table
        only = {file.name: _newly_marked(split, file, storage) for file in files if file.name in split.marked}
        self._reader = SectionReader(table, split.directory, split.partition, job.schemas, storage, split.vectors, only)
        wanted = {field.name: field for field in job.columns if field not in _OF_STORED_ROWS}
        where = job.where
        tested = (
            () if where is None else [f for f in (*_OF_STORED_ROWS, *table.schema.fields) if f.name in where.columns]
        )
        self._filter_names = [field.name for field in tested]
        self._stored = job.what is What.STORED
        self._numbered = SEQUENCE_NUMBER in (*job.columns, *tested)
        if table.counting:
            wanted[VALUE_COUNT.name] = table.schema.field(VALUE_COUNT.name)
        wanted |= {field.name: field for field in tested if field not in _OF_STORED_ROWS}
        if not wanted:  # a table without columns has no rows that could be counted
            cheapest = table.key[0] if table.keyed else table.schema.names[0]
            wanted[cheapest] = table.schema.field(cheapest)
        self._wanted = list(wanted.values())

    def rows(self) -> Iterator[pa.Table]:
        runs = self._reader.runs(self._files) if self._table.keyed else [list(self._files)]
        if len(runs) > 1:
            narrow = key_filter(self._job.where, self._table.key)
            for folded, numbers in self._reader.merged(
                self._files, runs, self._wanted, sequence=self._numbered, key_filter=narrow
            ):
                if self._stored:
                    yield self._chosen(_with_kinds(folded.table(), folded.kinds, numbers), None)
                else:
                    shown = folded.visible()
                    yield self._chosen(shown.rows, shown.positions)
            return
        stored = _without_kinds(self._job.where)
        for file in runs[0]:
            for table in self._reader.plain(file, self._wanted, sequence=self._numbered, groups_filter=stored):
                kinds = table.column(VALUE_KIND.name).to_numpy() if self._table.keyed else None
                if self._stored:
                    yield self._chosen(_with_kinds(table, kinds), None)
                else:
                    yield self._chosen(table, None if kinds is None else _visible(kinds))

    def _chosen(self, rows: pa.Table, positions: np.ndarray | None) -> pa.Table:
        """Return the job's columns of some rows that its filter lets through; positions None: of all."""
        where = self._job.where
        names = [field.name for field in self._job.columns]
        if where is not None:
            tested = rows.select(self._filter_names)
            if positions is not None:  # Arrow takes no rows of a table without columns
                tested = tested.take(pa.array(positions)) if self._filter_names else without_columns(len(positions))
            mask = np.asarray(where.mask(tested).fill_null(False))
            positions = np.flatnonzero(mask) if positions is None else positions[mask]
        if self._table.counting:
            positions = _repeated(rows, positions)
        if positions is None or (len(positions) == rows.num_rows and _rising(positions)):
            return rows.select(names)
        if not names:  # rows without columns: only their number is left
            return without_columns(len(positions))
        return rows.select(names).take(pa.array(positions))


def _with_kinds(rows: pa.Table, kinds: np.ndarray | None, numbers: np.ndarray | None = None) -> pa.Table:
    """Return rows with the columns that only stored rows have.

    Args:
        rows: the rows, perhaps with their sequence numbers.
        kinds: int8 per row; None: all are inserts.
        numbers: int64 per row, their sequence numbers where the rows lack them.
    """
    at = row_kind.inserts(rows.num_rows) if kinds is None else pa.array(kinds)
    rows = rows.append_column(ROW_KIND.name, row_kind.symbols(at))
    return rows if numbers is None else rows.append_column(SEQUENCE_NUMBER.name, pa.array(numbers))


def _visible(kinds: np.ndarray) -> np.ndarray | None:
    """Return the positions of rows of kind +I and +U; None: all are."""
    if kinds.max(initial=row_kind.INSERT) == row_kind.INSERT:  # most often, and much faster than what follows
        return None
    adds = (kinds & 1) == 0
    return None if adds.all() else np.flatnonzero(adds)


def _repeated(rows: pa.Table, positions: np.ndarray | None) -> np.ndarray:
    """Return each position as often as the row of a counting table is there; not at all below one."""
    counts = np.maximum(rows.column(VALUE_COUNT.name).to_numpy(), 0)
    positions = np.arange(rows.num_rows) if positions is None else positions
    return np.repeat(positions, counts[positions])


def _rising(positions: np.ndarray) -> bool:
    return bool((positions[1:] > positions[:-1]).all())

"""One split -> rows: the newest version of every key, filtered exactly, in windows of bounded size.

A section of one sorted run without retractions is read straight through, and there any filter may skip row
groups. Where versions meet, only a filter on key columns may: all versions of a key share it. The value
columns are gathered for the rows that remain after merge and filter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from merganser.codec.binary_row import deserialize_columns
from merganser.errors import FormatError
from merganser.files.read import DataFileReader, FileToRead
from merganser.lsm.levels import dense_ranks, runs_of
from merganser.merge.deduplicate import newest, visible
from merganser.merge.sort_merge import WINDOW_ROWS, windows
from merganser.meta.data_file import DataFile
from merganser.scan.split import ReadJob, Split
from merganser.schema import types as t
from merganser.schema.predicate import Predicate, conjunction, conjuncts
from merganser.schema.table_schema import SEQUENCE_NUMBER, VALUE_KIND
from merganser.storage.paths import join
from merganser.storage.protocol import Storage

WINDOW_BYTES = 128 * 1024 * 1024
"""Bytes that a window should have decoded, about."""


def read_split(job: ReadJob, split: Split, storage: Storage) -> Iterator[pa.Table]:
    """Yield the rows of a split as tables of the job's columns; some may be large, none is empty."""
    for section in split.sections:
        for table in _Section(job, split, section, storage).rows():
            if table.num_rows:
                yield table


def key_filter(where: Predicate | None, key: Sequence[str]) -> Predicate | None:
    """Return the part of a filter that looks at key columns alone."""
    if where is None:
        return None
    return conjunction([part for part in conjuncts(where) if part.columns and part.columns <= set(key)])


class _Section:
    """Files whose key ranges meet no others of the bucket."""

    def __init__(self, job: ReadJob, split: Split, files: Sequence[DataFile], storage: Storage) -> None:
        self._job = job
        self._split = split
        self._files = files
        self._storage = storage
        self._table = job.table
        wanted = {field.name: field for field in job.columns}
        self._filter_names = (
            [] if job.where is None else [f.name for f in self._table.schema.fields if f.name in job.where.columns]
        )
        for name in self._filter_names:
            wanted.setdefault(name, self._table.schema.field(name))
        self._wanted = wanted

    def rows(self) -> Iterator[pa.Table]:
        runs = [list(self._files)] if len(self._files) == 1 or not self._table.keyed else self._runs()
        if len(runs) == 1:
            for file in runs[0]:
                yield from self._straight(file)
        else:
            yield from self._merged(runs)

    def _straight(self, file: DataFile) -> Iterator[pa.Table]:
        """Yield the rows of a file that no other file overlaps."""
        keyed = self._table.keyed
        where = self._job.where
        reader = self._reader(file, list(self._wanted.values()), kind=keyed, groups_filter=where)
        rows = max(1, min(WINDOW_ROWS, self._budget(reader.rows, file.size)))
        try:
            while (table := reader.read(rows)) is not None:
                positions = None
                if keyed:
                    positions = visible(np.arange(table.num_rows), table.column(VALUE_KIND.name))
                yield self._chosen(table, positions)
        finally:
            reader.close()

    def _merged(self, runs: list[list[DataFile]]) -> Iterator[pa.Table]:
        """Yield the newest version of every key of several runs."""
        key = self._table.key
        fields = dict(self._wanted)
        for name in key:
            fields.setdefault(name, self._table.schema.field(name))
        by_sequence = not _disjoint(runs)
        if by_sequence:
            runs = self._in_commit_order(runs)
        narrow = key_filter(self._job.where, key)
        readers = [
            _RunReader(
                [
                    self._reader(file, list(fields.values()), kind=True, sequence=by_sequence, groups_filter=narrow)
                    for file in run
                ]
            )
            for run in runs
        ]
        total = sum(reader.rows for reader in readers)
        size = sum(file.size for run in runs for file in run)
        try:
            for window in windows(
                readers,
                key=key,
                sequence=SEQUENCE_NUMBER.name if by_sequence else None,
                kind=VALUE_KIND.name if by_sequence else None,
                window_rows=max(1, min(WINDOW_ROWS, self._budget(total, size))),
            ):
                positions = visible(newest(window.positions, window.is_last), window.rows.column(VALUE_KIND.name))
                yield self._chosen(window.rows, positions)
        finally:
            for reader in readers:
                reader.close()

    def _chosen(self, rows: pa.Table, positions: np.ndarray | None) -> pa.Table:
        """Return the job's columns of some rows that its filter lets through; positions None: of all."""
        where = self._job.where
        names = [field.name for field in self._job.columns]
        if where is not None:
            tested = rows.select(self._filter_names)
            if positions is not None:
                tested = tested.take(pa.array(positions))
            mask = np.asarray(where.mask(tested).fill_null(False))
            positions = np.flatnonzero(mask) if positions is None else positions[mask]
        if positions is None or (len(positions) == rows.num_rows and _rising(positions)):
            return rows.select(names)
        return rows.select(names).take(pa.array(positions))

    def _reader(
        self,
        file: DataFile,
        fields: list[t.Field],
        *,
        kind: bool,
        sequence: bool = False,
        groups_filter: Predicate | None,
    ) -> DataFileReader:
        path = file.external_path or join(self._split.directory, file.name)
        try:
            stored = self._job.schemas[file.schema_id]
        except KeyError:
            raise FormatError(
                f"cannot read the data file '{path}': it was written with schema {file.schema_id}, which the table "
                "lacks.",
                path=path,
            ) from None
        return DataFileReader(
            self._storage,
            FileToRead(path, file, stored),
            columns=fields,
            kind=kind,
            sequence=sequence,
            groups_filter=groups_filter,
        )

    def _runs(self) -> list[list[DataFile]]:
        """Return sorted runs, oldest first."""
        kinds = self._table.key_types
        low = deserialize_columns([file.min_key for file in self._files], kinds)
        high = deserialize_columns([file.max_key for file in self._files], kinds)
        ranks = dense_ranks(low, high)
        return runs_of(self._files, *ranks)

    def _in_commit_order(self, runs: list[list[DataFile]]) -> list[list[DataFile]]:
        """Return runs whose sequence numbers meet so that of equal numbers the later commit counts.

        Writers that ran side by side may have given the same numbers. What was compacted is the oldest.
        """
        place = {file.name: i for i, file in enumerate(self._files)}
        return sorted(runs, key=lambda run: (-run[0].level, max(place[file.name] for file in run)))

    def _budget(self, rows: int, size: int) -> int:
        """Return how many rows decode to WINDOW_BYTES, at a guess: files hold about a quarter of their rows' bytes."""
        return rows if not size else max(4096, WINDOW_BYTES * max(1, rows) // max(1, 4 * size))


class _RunReader:
    """Files of one sorted run, one after the other."""

    def __init__(self, files: list[DataFileReader]) -> None:
        self._files = files
        self._at = 0
        self.rows = sum(file.rows for file in files)

    def read(self, rows: int) -> pa.Table | None:
        while self._at < len(self._files):
            table = self._files[self._at].read(rows)
            if table is not None:
                return table
            self._at += 1
        return None

    def close(self) -> None:
        for file in self._files:
            file.close()


def _disjoint(runs: list[list[DataFile]]) -> bool:
    """Return whether ranges of sequence numbers of runs, oldest first, do not meet."""
    highest = None
    for run in runs:
        low, high = min(f.min_sequence for f in run), max(f.max_sequence for f in run)
        if highest is not None and low <= highest:
            return False
        highest = high
    return True


def _rising(positions: np.ndarray) -> bool:
    return bool((positions[1:] > positions[:-1]).all())

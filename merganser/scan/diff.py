"""Differences of two states -> rows with kinds: what became of every key, or of every row of a table without keys.

A split holds what the two states do not share: files of one state alone, and files whose deletion vectors differ. The
files that both share are there only where their keys meet those. In one of two ways a split becomes changes:

- Nothing is shared, or little: both states are merged as a read merges them, and walk side by side in key order::

      before  k1 k2 k3 k4       k1: equal, no change      k2: another value, -U +U
      after   k1 k2'   k4 k5    k3: -D      k5: +I

- Much is shared: only keys of the files that differ can have changed. They are looked up in the shared files, and the
  versions of these keys alone are merged, for both states. Shared rows of other keys are not read, but those that lie
  in one row group with them.

Memory holds a window of rows, whatever the size of the states. In a table without keys it holds 16 bytes per row of
the files that differ, and nothing if files were only added or only removed.

Semantics: "incremental", mode diff.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from merganser.files.masks import load
from merganser.lsm.key_image import Asked
from merganser.lsm.section import SectionReader
from merganser.lsm.stored_keys import find, reached, rows_of
from merganser.merge.images import Fate
from merganser.merge.sort_merge import WINDOW_ROWS, Window, only_window, windows
from merganser.meta.data_file import DataFile
from merganser.scan.forms import COMMIT_TIMESTAMP, LOG_OFFSET
from merganser.scan.shown import counted_out, shown, stored_columns
from merganser.scan.split import DiffSplit, Phase, Portion, ReadJob, What
from merganser.schema import row_kind
from merganser.schema import types as t
from merganser.schema.arrow import arrow_schema, arrow_type, nullable_schema
from merganser.schema.internal_names import internal_name
from merganser.schema.lazy_polars import pl
from merganser.schema.same import same_rows
from merganser.schema.table_schema import VALUE_COUNT, VALUE_KIND
from merganser.schema.value_hashes import row_hashes
from merganser.storage.cache import Cache
from merganser.storage.protocol import Storage

SHARED_MIN: Final = 2
"""So many times as many rows as the others have, shared files need to have that keys are looked up in them."""

READ_ROWS: Final = 1 << 18
LOOKED_UP_ROWS: Final = 1 << 18
_CACHE_BYTES: Final = 64 << 20

Positions = npt.NDArray[np.int64]


def read_diff(job: ReadJob, split: DiffSplit, storage: Storage) -> Iterator[pa.Table]:
    """Yield what differs, in key order for each split; some tables may be empty.

    Raises:
        FormatError: a file is damaged or missing.
    """
    if job.what is What.LOGGED:
        job = replace(job, key_filter=None)  # offsets count all rows
    if not job.table.keyed:
        yield from _RowDiff(job, split, storage).changes()
    elif len(split.before) == len(split.after) == 1 and _is_mostly_shared(split):
        yield from _Looked(job, split, storage).changes()
    else:
        runs = [_State(job, portion, storage) for portion in (*split.before, *split.after)]
        made = _Changes(job, split)
        with contextlib.ExitStack() as stack:
            for run in runs:
                stack.callback(run.close)
            for window in windows(runs, key=job.table.key, window_rows=WINDOW_ROWS):
                is_new = window.run_of() >= len(split.before)
                yield made.of(window.rows, is_new, window.positions, window.is_last)


def _is_mostly_shared(split: DiffSplit) -> bool:
    shared = split.shared
    if not shared:
        return False
    apart = {file.name: file.row_count for portion in (*split.before, *split.after) for file in portion.files}
    both = sum(apart.pop(name) for name in shared)
    return both >= SHARED_MIN * sum(apart.values())


class _State:
    """The rows that a state shows, in key order: a sorted run."""

    def __init__(self, job: ReadJob, portion: Portion, storage: Storage) -> None:
        self._reader = SectionReader(
            job.table, portion.directory, portion.partition, job.schemas, storage, portion.vectors
        )
        self._files = portion.files
        self._fields = job.table.schema.fields
        self._key_filter = job.key_filter
        self.rows = sum(file.row_count for file in portion.files)
        self._tables = self._read()

    def read(self, rows: int) -> pa.Table | None:
        return next(self._tables, None)

    def close(self) -> None:
        self._tables.close()

    def _read(self) -> Generator[pa.Table]:
        runs = self._reader.runs(self._files) if self._files else []
        if len(runs) > 1:
            for folded, _ in self._reader.merged(self._files, runs, self._fields, key_filter=self._key_filter):
                yield _as_declared(folded.visible().table(), self._fields)
            return
        for file in runs[0] if runs else []:
            for rows in self._reader.plain(file, self._fields, groups_filter=self._key_filter):
                yield _as_declared(_visible(rows), self._fields)


def _as_declared(rows: pa.Table, fields: Sequence[t.Field]) -> pa.Table:
    """Return rows with the columns of some fields; all may hold nulls, so that rows of all files fit together."""
    schema = nullable_schema(fields)
    return pa.Table.from_arrays([rows.column(name) for name in schema.names], schema=schema)


def _visible(rows: pa.Table) -> pa.Table:
    """Return rows without retractions."""
    kinds = rows.column(VALUE_KIND.name).to_numpy()
    return rows if kinds.max(initial=row_kind.INSERT) == row_kind.INSERT else rows.filter(pa.array((kinds & 1) == 0))


class _Changes:
    """What became of keys, of which a split gives some at a time."""

    def __init__(self, job: ReadJob, split: DiffSplit) -> None:
        self._job = job
        self._phase = split.phase
        self._origin = split.origin
        self._whole = job.what is What.CHANGED or split.origin is not None
        self._offset = 0 if split.origin is None else split.origin.offset

    def of(
        self, rows: pa.Table, is_new: npt.NDArray[np.bool_], positions: Positions, is_last: npt.NDArray[np.bool_]
    ) -> pa.Table:
        """Return what became of the keys of some rows.

        Args:
            rows: n rows of both states, in no order.
            is_new: bool[n], which are of the later state; a state has one row of a key at most.
            positions: int64[n], their order: by key, and the earlier state first.
            is_last: bool[n], over the ordered rows, the last of each key.
        """
        ends = np.flatnonzero(is_last)
        last = positions[ends]
        sizes = np.diff(ends, prepend=-1)
        both = sizes == 2
        first = positions[ends - sizes + 1]
        old, new = np.where(both | ~is_new[last], first, -1), np.where(is_new[last], last, -1)
        if self._phase is not None:
            chosen = (new < 0) == (self._phase is Phase.GOING)
            both, first, last, old, new = (each[chosen] for each in (both, first, last, old, new))
        if self._job.table.counting:
            return self._recounted(rows, old, new)
        updated = both.copy()
        updated[both] = ~_same(rows, first[both], last[both])
        if not self._whole:  # the row after says all
            fate = Fate((new >= 0) & (updated | ~both), np.zeros(len(both), np.bool_), new < 0)
        else:
            fate = Fate((new >= 0) & ~both, updated, new < 0)
        order, kinds = fate.interleaved()
        at = np.concatenate([old[fate.olds], new[fate.news]])[order]
        return shown(self._job, self._numbered(rows.take(pa.array(at))), kinds)

    def _recounted(self, rows: pa.Table, old: Positions, new: Positions) -> pa.Table:
        """Return the rows of a counting table that are there more often, or less often, than before."""
        counts = np.maximum(rows.column(VALUE_COUNT.name).to_numpy(), 0)
        more = np.where(new >= 0, counts[new], 0) - np.where(old >= 0, counts[old], 0)
        hit = np.flatnonzero(more)
        found = self._numbered(rows.take(pa.array(np.where(new >= 0, new, old)[hit])))
        return shown(self._job, *counted_out(found, more[hit]))

    def _numbered(self, rows: pa.Table) -> pa.Table:
        """Return rows with their offsets and the time of their commit, if the job shows these."""
        if self._job.what is not What.LOGGED or self._origin is None:
            return rows
        begin = self._offset
        self._offset += rows.num_rows
        time = pa.repeat(pa.scalar(self._origin.time_ms), rows.num_rows).view(arrow_type(COMMIT_TIMESTAMP.type))
        rows = rows.append_column(LOG_OFFSET.name, pa.array(np.arange(begin, self._offset)))
        return rows.append_column(COMMIT_TIMESTAMP.name, time)


def _same(rows: pa.Table, old: Positions, new: Positions) -> npt.NDArray[np.bool_]:
    """Return bool[k], which rows are the same in all columns."""
    if not len(old):
        return np.empty(0, np.bool_)
    return same_rows(_taken(rows, old), _taken(rows, new))


def _taken(rows: pa.Table, at: Positions) -> pa.Table:
    """Return rows at some positions, which most often are neighbours; those of several buckets come in any order."""
    if at[-1] - at[0] + 1 == len(at) and (np.diff(at) == 1).all():
        return rows.slice(int(at[0]), len(at))
    return rows.take(pa.array(at))


class _Looked:
    """One bucket of which both states share most files: keys of the others are looked up in these."""

    def __init__(self, job: ReadJob, split: DiffSplit, storage: Storage) -> None:
        self._job = job
        self._storage = storage
        self._shared = split.shared
        self._made = _Changes(job, split)
        self._portions = (split.before[0], split.after[0])
        self._readers = tuple(
            SectionReader(job.table, portion.directory, portion.partition, job.schemas, storage, portion.vectors)
            for portion in self._portions
        )
        self._fields = self._readers[0].needed(job.table.schema.fields)
        self._cache = Cache(_CACHE_BYTES)

    def changes(self) -> Iterator[pa.Table]:
        """Yield what became of the keys, some keys at a time."""
        with contextlib.ExitStack() as stack:
            runs = self._apart()
            for run in runs:
                stack.callback(run.close)
            for window in self._windows(runs):
                keys = [
                    window.rows.column(name).take(pa.array(window.positions[window.is_last])).combine_chunks()
                    for name in self._job.table.key
                ]
                asked = Asked(tuple(keys), self._job.table.key_types)
                given = _by_file(window, runs)
                states = [self._state(i, asked, given) for i in (0, 1)]
                rows = pa.concat_tables(states)
                spans = [(i, state.num_rows) for i, state in enumerate(states)]
                both = only_window(rows, spans, key=self._job.table.key)
                is_new = np.arange(rows.num_rows) >= states[0].num_rows
                yield self._made.of(rows, is_new, both.positions, both.is_last)

    def _apart(self) -> list[_Apart]:
        """Return the rows whose keys may have changed: of files of one state, and those that one state marks alone."""
        runs: list[_Apart] = []
        before, after = self._portions
        for side, portion in enumerate(self._portions):
            files = [file for file in portion.files if file.name not in self._shared]
            if files:
                runs += [
                    _Apart(self._readers[side], run, self._fields, side) for run in self._readers[side].runs(files)
                ]
        for file in after.files:
            marks = [portion.vectors.get(file.name) for portion in (before, after)]
            if file.name in self._shared and marks[0] != marks[1]:
                hidden = [np.empty(0, np.int64) if v is None else load(self._storage, v, file.row_count) for v in marks]
                at = np.setxor1d(hidden[0], hidden[1], assume_unique=True)
                reader = replace(self._readers[1], vectors={}, only={file.name: at})
                if len(at):
                    runs.append(_Apart(reader, [file], self._fields, None, len(at)))
        return runs

    def _windows(self, runs: Sequence[_Apart]) -> Iterator[Window]:
        rows = sum(run.rows for run in runs)
        return windows(runs, key=self._job.table.key, window_rows=min(max(rows, 1), LOOKED_UP_ROWS))

    def _state(self, side: int, asked: Asked, given: Mapping[str, pa.Table]) -> pa.Table:
        """Return what a state shows of some keys, in key order."""
        reader, portion = self._readers[side], self._portions[side]
        shared = [file for file in portion.files if file.name in self._shared]
        found = {file.name: given[file.name] for file in portion.files if file.name in given}
        for file, first, end in reached(reader, asked, shared):
            some = asked.slice(first, end)
            rows = rows_of(reader, file, some, self._fields)
            if rows is None:
                _, at = find(reader, file, some, self._cache)
                rows = _rows_at(reader, file, np.sort(at), self._fields) if len(at) else None
            if rows is not None and rows.num_rows:
                found[file.name] = rows
        files = [file for file in portion.files if file.name in found]
        fields = self._job.table.schema.fields
        if not files:
            return _as_declared(arrow_schema(fields).empty_table(), fields)
        merged = reader.merged(files, reader.runs(files), fields, given=found)
        return pa.concat_tables([_as_declared(folded.visible().table(), fields) for folded, _ in merged])


class _Apart:
    """Rows of a sorted run of files with the place of their file, numbers and kinds: a sorted run.

    Attributes:
        side: the state that the rows are versions of; None: of none, their keys alone count.
    """

    def __init__(
        self,
        reader: SectionReader,
        files: Sequence[DataFile],
        fields: Sequence[t.Field],
        side: int | None,
        rows: int | None = None,
    ) -> None:
        self._reader = reader
        self.files = list(files)
        self._fields = fields
        self.side = side
        self.rows = sum(file.row_count for file in files) if rows is None else rows
        self._tables = self._read()

    def read(self, rows: int) -> pa.Table | None:
        return next(self._tables, None)

    def close(self) -> None:
        self._tables.close()

    def _read(self) -> Generator[pa.Table]:
        for place, file in enumerate(self.files):
            with contextlib.closing(self._reader.opened(file, self._fields, kind=True, sequence=True)) as opened:
                while (rows := opened.read(READ_ROWS)) is not None:
                    yield rows.append_column(_PLACE, pa.array(np.full(rows.num_rows, place, np.int32)))


_PLACE: Final = internal_name("file")
"""The column that says which of its run's files a row comes from."""


def _by_file(window: Window, runs: Sequence[_Apart]) -> dict[str, pa.Table]:
    """Return the rows of a window that are versions of their keys, by file, in key order."""
    found: dict[str, pa.Table] = {}
    start = 0
    for number, count in window.spans:
        rows = window.rows.slice(start, count)
        start += count
        run = runs[number]
        if run.side is None:
            continue
        place = rows.column(_PLACE).to_numpy()
        rows = rows.drop_columns(_PLACE)
        for i in range(int(place[0]), int(place[-1]) + 1):
            low, high = np.searchsorted(place, [i, i + 1])
            if low < high:
                found[run.files[i].name] = rows.slice(low, high - low)
    return found


def _rows_at(reader: SectionReader, file: DataFile, at: Positions, fields: Sequence[t.Field]) -> pa.Table:
    """Return the rows of a file at some rising positions, with their numbers and kinds."""
    only = replace(reader, only={file.name: at})
    with contextlib.closing(only.opened(file, fields, kind=True, sequence=True)) as opened:
        parts = []
        while (rows := opened.read(READ_ROWS)) is not None:
            parts.append(rows)
    return pa.concat_tables(parts)


class _RowDiff:
    """What differs between two states of a table without keys: rows that one of them has more often."""

    def __init__(self, job: ReadJob, split: DiffSplit, storage: Storage) -> None:
        self._job = job
        self._split = split
        self._storage = storage

    def changes(self) -> Iterator[pa.Table]:
        """Yield rows that are gone as deletes, and rows that came as inserts."""
        gone, came = (
            self._sources(self._split.before, self._split.after),
            self._sources(self._split.after, self._split.before),
        )
        job = self._job
        if not gone or not came:
            needed = stored_columns(job)
            sides = ((gone, row_kind.DELETE), (came, row_kind.INSERT))
            for source, kind in sides:
                if kind == row_kind.INSERT or job.what is not What.MERGED:
                    for rows in self._rows(source, needed):
                        yield shown(job, rows, np.full(rows.num_rows, kind, np.int8))
            return
        fields = job.table.schema.fields
        counts = [_counts(_hashes(rows) for rows in self._rows(source, fields)) for source in (gone, came)]
        net = (
            counts[0]
            .join(counts[1], on=_HASH, how="full", coalesce=True, suffix="_came")
            .with_columns(pl.col("len").fill_null(0), pl.col("len_came").fill_null(0))
        )
        for source, kind, less, more in (
            (gone, row_kind.DELETE, "len_came", "len"),
            (came, row_kind.INSERT, "len", "len_came"),
        ):
            if kind == row_kind.DELETE and job.what is What.MERGED:
                continue
            left = net.filter(pl.col(more) > pl.col(less)).select(*_HASH, left=pl.col(more) - pl.col(less))
            if not left.height:
                continue
            for rows in self._rows(source, fields):
                taken, left = _taken_of(_hashes(rows), left)
                found = rows.take(pa.array(taken))
                yield shown(job, found, np.full(found.num_rows, kind, np.int8))

    def _sources(self, one: Sequence[Portion], other: Sequence[Portion]) -> list[tuple[SectionReader, DataFile]]:
        """Return the files of a state, and rows of files, that another lacks."""
        there = {(portion.directory, file.name): portion for portion in other for file in portion.files}
        found: list[tuple[SectionReader, DataFile]] = []
        for portion in one:
            reader = SectionReader(
                self._job.table,
                portion.directory,
                portion.partition,
                self._job.schemas,
                self._storage,
                portion.vectors,
            )
            for file in portion.files:
                match = there.get((portion.directory, file.name))
                if match is None:
                    found.append((reader, file))
                    continue
                hidden = [self._hidden(each, file) for each in (portion, match)]
                at = np.setdiff1d(hidden[1], hidden[0], assume_unique=True)
                if len(at):
                    found.append((replace(reader, vectors={}, only={file.name: at}), file))
        return found

    def _hidden(self, portion: Portion, file: DataFile) -> Positions:
        vector = portion.vectors.get(file.name)
        return np.empty(0, np.int64) if vector is None else load(self._storage, vector, file.row_count)

    @staticmethod
    def _rows(source: Sequence[tuple[SectionReader, DataFile]], fields: Sequence[t.Field]) -> Iterator[pa.Table]:
        for reader, file in source:
            with contextlib.closing(reader.opened(file, fields)) as opened:
                while (rows := opened.read(READ_ROWS)) is not None:
                    if rows.num_rows:
                        yield rows


_HASH: Final = ("_hash", "_other_hash")


def _hashes(rows: pa.Table) -> pl.DataFrame:
    """Return two hashes of every row: of different rows, one differs for certain enough."""
    return pl.DataFrame({name: row_hashes(rows, seed) for seed, name in enumerate(_HASH)})


def _counts(parts: Iterator[pl.DataFrame]) -> pl.DataFrame:
    return pl.concat(parts).group_by(_HASH).len()


def _taken_of(hashes: pl.DataFrame, left: pl.DataFrame) -> tuple[Positions, pl.DataFrame]:
    """Return which rows are taken, and how many of each are left to be taken."""
    found = (
        hashes.with_row_index("row")
        .join(left, on=_HASH, how="inner")
        .sort("row")
        .with_columns(nth=pl.int_range(pl.len()).over(_HASH))
        .filter(pl.col("nth") < pl.col("left"))
    )
    used = found.group_by(_HASH).len()
    left = (
        left.join(used, on=_HASH, how="left")
        .select(*_HASH, left=pl.col("left").cast(pl.Int64) - pl.col("len").fill_null(0).cast(pl.Int64))
        .filter(pl.col("left") > 0)
    )
    return found["row"].to_numpy().astype(np.int64), left

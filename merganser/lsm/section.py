"""Sections: read the files of one section of a bucket, and merge the versions of every key, window by window.

Reads and compactions share this module. A section of one sorted run needs no merge, so its files are read without one
(`plain`). For several runs the merge function of the table merges windows of bounded size (`merged`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from merganser.codec.binary_row import deserialize_columns
from merganser.codec.deletion_vector import Positions
from merganser.codec.stored import Stored
from merganser.errors import FormatError, InvalidInputError
from merganser.expr.compute import can_fail
from merganser.expr.predicate import Predicate, sure
from merganser.files.masks import Vector
from merganser.files.read import DataFileReader, FileToRead, read_small
from merganser.lsm.levels import dense_ranks, runs_of
from merganser.lsm.record_expiry import RecordExpiry, RowSource, Unexpired
from merganser.lsm.runs import OPEN_MAX, open_runs
from merganser.merge.deduplicate import Deduplicate, FirstRow
from merganser.merge.engine import Folded, Kinds
from merganser.merge.functions.segments import any_of
from merganser.merge.groups import Groups, groups_of
from merganser.merge.order import arrivals
from merganser.merge.rules import Merge, merge_of
from merganser.merge.sort_merge import WINDOW_BYTES, WINDOW_ROWS, Stretch, Window, only_window, windows
from merganser.meta.data_file import DataFile
from merganser.meta.table_def import TableDef
from merganser.rules.compacting import looks_up
from merganser.schema import types as t
from merganser.schema.table_schema import SEQUENCE_NUMBER, VALUE_KIND
from merganser.storage.paths import join
from merganser.storage.protocol import Storage
from merganser.values import dataclass

PART_BYTES = 8 * 1024 * 1024
"""Bytes in memory above which a row group is read in parts: every run of a merge holds one of them at least."""

PART_BYTES_MIN = 2 * 1024 * 1024
"""The same where many runs are merged."""

MANY_FILES = 8
"""So many small files of a section are worth being read at once."""

_TAKEN_ROWS: Final = 1 << 16
"""Rows that are taken from a file at a time: each time costs some thousands of them."""

Runs = list[list[DataFile]]
Sequences = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Compared:
    """Merged rows of k keys, and the version of each that was shown before.

    Attributes:
        rows: the versions: all columns that were read, sequence numbers and kinds.
        folded: the k merged rows.
        numbers: int64[k], their sequence numbers.
        before: int64[k], the version in `rows` that was shown; -1: none, or a retraction.
        fresh: bool[k], whether a version that was not shown takes part, or the one that was shown is too old to do so.
        expired: int64[m], versions in `rows` that were shown, of keys whose versions are all too old.
    """

    rows: pa.Table
    folded: Folded
    numbers: Sequences
    before: npt.NDArray[np.int64]
    fresh: npt.NDArray[np.bool_]
    expired: npt.NDArray[np.int64]


class Held(Protocol):
    """A data file that gives single rows quickly; see `lsm.held`."""

    def take(self, positions: Positions, fields: Sequence[t.Field]) -> pa.Table:
        """Return the rows at some positions: `fields`, `_SEQUENCE_NUMBER` and `_VALUE_KIND`."""
        ...


@dataclass(frozen=True)
class SectionReader:
    """Reads sections of one bucket.

    Attributes:
        table: the table, with the schema that is read with.
        directory: the bucket's.
        partition: the serialized partition of the bucket.
        schemas: columns of every schema that a file was written with, by schema id.
        vectors: deletion vectors, by data file; rows that they name are not read.
        only: of some data files, the positions of the rows that are read, whatever their vectors say.
        held: how merges get these rows, by data file; a file that is missing here is read.
        expiry: which rows are too old to be seen by `plain` and `merged`, a compaction's; their column has to be
            among those read.
    """

    table: TableDef
    directory: str
    partition: bytes
    schemas: Mapping[int, tuple[t.Field, ...]]
    storage: Storage
    vectors: Mapping[str, Vector] = field(default_factory=dict)
    only: Mapping[str, Positions] = field(default_factory=dict)
    held: Mapping[str, Held] = field(default_factory=dict)
    expiry: RecordExpiry | None = None

    @cached_property
    def merge(self) -> Merge:
        """How versions of a key merge."""
        return merge_of(self.table)

    @cached_property
    def _constants(self) -> tuple[tuple[str, Stored], ...]:
        return self.table.partition_values(self.partition)

    @cached_property
    def is_whole_above(self) -> bool:
        """Whether a row above level 0 is the whole row of its key, so that rows of deeper levels have no say.

        So it is where compactions look up the row before, and the engine makes rows of several versions.
        """
        engine = self.merge.engine
        return looks_up(self.table.options) and not isinstance(engine, Deduplicate | FirstRow)

    def runs(self, files: Sequence[DataFile]) -> Runs:
        """Return sorted runs, oldest first."""
        if len(files) == 1:
            return [list(files)]
        kinds = self.table.key_types
        low = deserialize_columns([file.min_key for file in files], kinds)
        high = deserialize_columns([file.max_key for file in files], kinds)
        return runs_of(files, *dense_ranks(low, high))

    def plain(
        self,
        file: DataFile,
        fields: Sequence[t.Field],
        *,
        sequence: bool = False,
        groups_filter: Predicate | None = None,
    ) -> Iterator[pa.Table]:
        """Yield the rows of a file that no other overlaps, with their kinds where the table has a key.

        Rows that `groups_filter` does not keep may be among them.
        """
        reader = self._unexpired(
            self.source(
                file,
                fields,
                kind=self.table.keyed,
                sequence=sequence,
                groups_filter=groups_filter,
                rows_filter=None if groups_filter is None or can_fail(groups_filter.expression) else groups_filter,
            )
        )
        rows = 1
        try:
            while (table := reader.read(rows)) is not None:
                if table.num_rows:
                    rows = max(1, min(WINDOW_ROWS, WINDOW_BYTES * table.num_rows // max(1, table.nbytes)))
                yield table
        finally:
            reader.close()

    def merged(
        self,
        files: Sequence[DataFile],
        runs: Runs,
        fields: Sequence[t.Field],
        *,
        sequence: bool = False,
        key_filter: Predicate | None = None,
        given: Mapping[str, pa.Table] | None = None,
    ) -> Iterator[tuple[Folded, Sequences | None]]:
        """Yield the merged rows of several runs, in key order, some of them retractions.

        Args:
            files: of the section, as they were committed: it settles equal sequence numbers.
            runs: the same, oldest first.
            fields: columns of the result.
            sequence: whether sequence numbers are wanted.
            key_filter: on key columns alone, so that all versions of a key are left out or none; rows that it does not
                keep may be among the result.
            given: by file, the rows to merge: the columns of `needed`, `_SEQUENCE_NUMBER` and `_VALUE_KIND`, in key
                order. None: all rows, which are read.

        Yields:
            Merged rows, and int64[k] their sequence numbers, None if not wanted.
        """
        names = [field.name for field in fields]
        for window, levels in self._windows(files, runs, fields, sequence=sequence, key_filter=key_filter, given=given):
            made = [self._merged(window, names, sequence, levels)]
            del window  # what is merged goes before what comes is read
            yield made.pop()

    def compared(
        self,
        files: Sequence[DataFile],
        runs: Runs,
        fields: Sequence[t.Field],
        *,
        shown_from: int,
        expiry: RecordExpiry | None = None,
    ) -> Iterator[Compared]:
        """Yield the merged rows of several runs, in key order, each with the row that was shown before.

        Args:
            files, runs, fields: as for `merged`.
            shown_from: the level from which on rows were shown.
            expiry: which versions are too old to be merged, though they may have been shown; for a reader without one.
        """
        names = [field.name for field in fields]
        for window, levels in self._windows(files, runs, fields, sequence=True):
            kinds = window.rows.column(VALUE_KIND.name).to_numpy()
            adds = (kinds & 1) == 0
            groups = groups_of(window.positions, window.is_last, None if adds.all() else adds)
            level = levels[window.run_of()][groups.positions]
            shown = level >= shown_from
            before = _youngest(groups, level, shown)
            stays = np.ones(window.rows.num_rows, np.bool_) if expiry is None else expiry.stays(window.rows)
            too_old = (before >= 0) & ~stays[before]  # a retraction, too: what it took back may come back
            there = before >= 0
            there[there] = adds[before[there]]
            before = np.where(there, before, -1)
            fresh, expired = any_of(~shown, groups.starts), before[:0]
            if not stays.all():
                kept = stays[groups.positions]
                left, alive = groups.only(kept)
                gone = np.ones(groups.count, np.bool_)
                gone[alive] = False
                expired = before[gone & there]
                before, fresh = before[alive], any_of(~shown[kept], left.starts) | too_old[alive]
            folded, numbers = self._merged(window, names, True, levels, stays)
            assert numbers is not None
            yield Compared(window.rows, folded, numbers, before, fresh, expired)

    def _windows(
        self,
        files: Sequence[DataFile],
        runs: Runs,
        fields: Sequence[t.Field],
        *,
        sequence: bool,
        key_filter: Predicate | None = None,
        given: Mapping[str, pa.Table] | None = None,
    ) -> Iterator[tuple[Window, npt.NDArray[np.int64]]]:
        """Yield the versions of several runs, in key order, with the levels of the runs; see `merged`."""
        wanted = self.needed(fields)
        by_level = isinstance(self.merge.engine, FirstRow)
        by_sequence = not _disjoint(runs) or (by_level and not _levels_fall(runs))
        if by_sequence:
            runs = _in_commit_order(runs, files)
        rows_filter = None if key_filter is None else sure(key_filter)
        # Of a first-row table the row of the higher level was shown before, whatever number a writer had taken that was
        # slower to commit.
        levels = np.array([run[0].level for run in runs])
        first_levels = levels if by_level and by_sequence else None
        tie = partial(_tie, self.merge, by_sequence, first_levels) if by_sequence or self.merge.order else None
        if given is not None:
            rows: pa.Table | None = pa.concat_tables([given[file.name] for run in runs for file in run])
            spans = [(i, sum(given[file.name].num_rows for file in run)) for i, run in enumerate(runs)]
        else:
            rows = self._at_once(runs, wanted, sequence=by_sequence or sequence)
            spans = [(i, sum(file.row_count for file in run)) for i, run in enumerate(runs)]
        if rows is not None:
            yield only_window(rows, spans, key=self.table.key, tie=tie), levels
            return
        part_bytes = max(PART_BYTES_MIN, min(PART_BYTES, WINDOW_BYTES // min(OPEN_MAX, len(runs))))

        def opened(file: DataFile) -> RowSource:
            source = self.source(
                file,
                wanted,
                kind=True,
                sequence=by_sequence or sequence,
                groups_filter=key_filter,
                rows_filter=rows_filter,
                part_bytes=part_bytes,
            )
            return self._unexpired(source)

        with open_runs(self.storage, runs, opened) as readers:
            for window in windows(
                readers,
                key=self.table.key,
                tie=tie,
                window_rows=WINDOW_ROWS,
                window_bytes=WINDOW_BYTES,
            ):
                made = [window]
                del window  # what is merged goes before what comes is read
                yield made.pop(), levels

    def needed(self, fields: Sequence[t.Field]) -> list[t.Field]:
        """Return the columns that a merge reads to make some columns."""
        wanted = {each.name: each for each in fields}
        for name in (*self.table.key, *self.merge.needs(list(wanted))):
            wanted.setdefault(name, self.table.schema.field(name))
        return list(wanted.values())

    def _at_once(self, runs: Runs, fields: Sequence[t.Field], *, sequence: bool) -> pa.Table | None:
        """Return all rows of many small files, run by run; None: the files are read one by one, stretch by stretch."""
        files = [file for run in runs for file in run]
        if len(files) < MANY_FILES or sum(file.row_count for file in files) > WINDOW_ROWS or self.expiry is not None:
            return None
        if any(file.name in self.only for file in files):
            return None
        return read_small(self.storage, [self.target(file) for file in files], columns=fields, sequence=sequence)

    def _unexpired(self, reader: RowSource) -> RowSource:
        return reader if self.expiry is None else Unexpired(reader, self.expiry)

    def _merged(
        self,
        window: Window,
        names: Sequence[str],
        sequence: bool,
        levels: npt.NDArray[np.int64],
        stays: npt.NDArray[np.bool_] | None = None,
    ) -> tuple[Folded, Sequences | None]:
        """Return the merged rows of a window; `stays` says which versions take part, None: all."""
        kinds = window.rows.column(VALUE_KIND.name).to_numpy()
        adds = (kinds & 1) == 0
        groups = groups_of(window.positions, window.is_last, None if adds.all() else adds)
        if stays is not None and not stays.all():
            groups, _ = groups.only(stays[groups.positions])
        if self.is_whole_above:
            level = levels[window.run_of()][groups.positions]
            place = np.full(window.rows.num_rows, -1)
            place[groups.positions] = np.arange(len(groups.positions))
            whole = _youngest(groups, level, level > 0)
            counts = level == 0
            counts[place[whole[whole >= 0]]] = True
            groups, _ = groups.only(counts)
        folded = self._folded(window.rows, groups, kinds, names)
        if not sequence:
            return folded, None
        return folded, window.rows.column(SEQUENCE_NUMBER.name).to_numpy()[groups.positions[folded.sequence_positions]]

    def _folded(self, rows: pa.Table, groups: Groups, kinds: Kinds, names: Sequence[str]) -> Folded:
        try:
            return self.merge.fold(rows, groups, kinds, names)
        except InvalidInputError as error:
            others = "Reads of other columns (columns=...) work. " if "column" in error.context else ""
            raise InvalidInputError(
                f"cannot merge stored rows of '{self.table.name}': {error} The table is as it was. {others}To take the "
                "rows back, call table.rollback(snapshot=...) with the newest snapshot that can be read in full.",
                **error.context | {"table": self.table.name},
            ) from error

    def source(self, file: DataFile, fields: Sequence[t.Field], **asked: Any) -> RowSource:
        """Return the rows of a file with their kinds, from where they are got fastest; arguments as of `opened`."""
        if file.name in self.held:
            return _Taken(self.held[file.name], self.only[file.name], fields)
        return self.opened(file, fields, **asked)

    def opened(
        self,
        file: DataFile,
        fields: Sequence[t.Field],
        *,
        kind: bool = False,
        sequence: bool = False,
        groups_filter: Predicate | None = None,
        rows_filter: Predicate | None = None,
        among: tuple[t.Field, pa.Array] | None = None,
        positions: bool = False,
        part_bytes: int | None = None,
    ) -> DataFileReader:
        """Return the reader of a file of the bucket; see `DataFileReader`. The caller closes it."""
        return DataFileReader(
            self.storage,
            self.target(file),
            columns=fields,
            kind=kind,
            sequence=sequence,
            groups_filter=groups_filter,
            rows_filter=rows_filter,
            among=among,
            positions=positions,
            only=self.only.get(file.name),
            part_bytes=part_bytes or PART_BYTES,
        )

    def target(self, file: DataFile) -> FileToRead:
        """Return what is read of a file."""
        path = file.external_path or join(self.directory, file.name)
        try:
            stored = self.schemas[file.schema_id]
        except KeyError:
            raise FormatError(
                f"cannot read the data file '{path}': it was written with schema {file.schema_id}, which the table "
                "lacks.",
                path=path,
            ) from None
        return FileToRead(path, file, stored, self.table.schema.id, self.vectors.get(file.name), self._constants)


def _youngest(
    groups: Groups, level: npt.NDArray[np.int64], among: npt.NDArray[np.bool_]
) -> npt.NDArray[np.int64]:  # fmt: skip
    """Return int64[k], of each group the row of the lowest level among some; -1: it has none of them.

    Args:
        level, among: per row, over `groups.positions`.
    """
    ranks = np.where(among, level, np.iinfo(np.int64).max)
    lowest = np.minimum.reduceat(ranks, groups.starts) if groups.count else ranks
    at = np.flatnonzero(among & (ranks == lowest[groups.group_of]))
    found = np.full(groups.count, -1)
    found[groups.group_of[at]] = groups.positions[at]
    return found


def in_turn(merge: Merge, runs: Runs) -> bool:
    """Return whether the version of the youngest run is the row of its key, whatever older runs hold.

    Args:
        runs: oldest first.
    """
    return isinstance(merge.engine, Deduplicate) and merge.order is None and not merge.ignore_delete and _disjoint(runs)


def _in_commit_order(runs: Runs, files: Sequence[DataFile]) -> Runs:
    """Return runs whose sequence numbers meet so that of equal numbers the later commit counts.

    Writers that ran side by side may have given the same numbers. What was compacted is the oldest.
    """
    place = {file.name: i for i, file in enumerate(files)}
    return sorted(runs, key=lambda run: (-run[0].level, max(place[file.name] for file in run)))


def _tie(
    merge: Merge, by_sequence: bool, levels: npt.NDArray[np.int64] | None, stretch: Stretch
) -> Sequences | None:  # fmt: skip
    """Return what orders versions of a key in rows of several runs; None: their position.

    Args:
        by_sequence: whether numbers of runs meet, so that they say what came later.
        levels: of each run, where a version of a lower level is always the later one.
        stretch: the rows.
    """
    rows = stretch.rows
    kinds = rows.column(VALUE_KIND.name).to_numpy()
    versions = arrivals(rows.column(SEQUENCE_NUMBER.name).to_numpy(), kinds) if by_sequence else None
    if versions is not None and levels is not None:
        place = np.empty(len(versions), np.int64)
        place[np.lexsort((versions, -levels[stretch.run_of()]))] = np.arange(len(versions))
        versions = place
    return merge.tie(rows, kinds, versions)


def _levels_fall(runs: Runs) -> bool:
    """Return whether runs, oldest first, come from ever lower levels."""
    levels = [run[0].level for run in runs]
    return all(a >= b for a, b in pairwise(levels))


def _disjoint(runs: Runs) -> bool:
    """Return whether ranges of sequence numbers of runs, oldest first, do not meet."""
    highest = None
    for run in runs:
        low, high = min(f.min_sequence for f in run), max(f.max_sequence for f in run)
        if highest is not None and low <= highest:
            return False
        highest = high
    return True


class _Taken:
    """Some rows of a file that gives single rows quickly."""

    def __init__(self, held: Held, positions: Positions, fields: Sequence[t.Field]) -> None:
        self._held = held
        self._positions = positions
        self._fields = fields
        self._at = 0

    @property
    def rows(self) -> int:
        return len(self._positions) - self._at

    def read(self, rows: int) -> pa.Table | None:
        if not self.rows:
            return None
        start, self._at = self._at, min(len(self._positions), self._at + max(rows, _TAKEN_ROWS))
        return self._held.take(self._positions[start : self._at], self._fields)

    def close(self) -> None:
        pass

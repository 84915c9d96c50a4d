"""The files of one bucket, asked for keys: where their versions lie, and the row that the versions make.

Lookups ask it, and so do writes that need the rows before them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa

from merganser.codec.binary_row import deserialize_columns
from merganser.codec.deletion_vector import Positions
from merganser.files.masks import BucketVectors, load
from merganser.lsm.held import Chosen, HeldFile, NotAtOnceError
from merganser.lsm.key_image import Asked, integers_of
from merganser.lsm.section import SectionReader, in_turn
from merganser.meta.data_file import DataFile
from merganser.schema import row_kind
from merganser.schema import types as t
from merganser.schema.arrow import arrow_schema, in_types
from merganser.schema.pieces import rows_at
from merganser.schema.table_schema import SEQUENCE_NUMBER, VALUE_KIND


class BucketLookup:
    """Looks up keys in one bucket of one state of a table. Threads may share it.

    Args:
        reader: reads its files, deleted rows included.
        files: the files that a read looks at, in the order in which they were committed.
        held: these files as lookups ask them, by name.
        vectors: their deleted rows.
    """

    def __init__(
        self,
        reader: SectionReader,
        files: Sequence[DataFile],
        held: Mapping[str, HeldFile],
        vectors: BucketVectors,
    ) -> None:
        self._reader = reader
        self._files = files
        self._held = held
        self._vectors = vectors
        self._deleted: dict[str, Positions] = {}
        kinds = reader.table.key_types
        self._low = deserialize_columns([file.min_key for file in files], kinds)
        self._high = deserialize_columns([file.max_key for file in files], kinds)

    @cached_property
    def _young_first(self) -> tuple[list[DataFile], bool]:
        """The files, the youngest run first, and whether the first version found of a key is its row."""
        runs = self._reader.runs(self._files)
        youngest = [file for run in reversed(runs) for file in run]
        return youngest, in_turn(self._reader.merge, runs)

    @cached_property
    def _bounds(self) -> dict[str, tuple[int, int]] | None:
        """The first and the last key of each file, where keys are one number."""
        low, high = integers_of(self._low), integers_of(self._high)
        if low is None or high is None:
            return None
        return {
            file.name: ends
            for file, ends in zip(self._files, zip(low.tolist(), high.tolist(), strict=True), strict=True)
        }

    def rows(self, asked: Asked, fields: Sequence[t.Field], *, removed: bool = False) -> tuple[Positions, pa.Table]:
        """Return the rows of keys.

        Args:
            fields: the columns to return.
            removed: return the stored deletes of keys without a row instead.

        Returns:
            Which keys have a row, int64[k], in any order; and the k rows.

        Raises:
            FormatError: a file that may hold one of the keys is damaged or missing; names it.
        """
        which, found = self.states(asked, fields)
        wanted = (found.column(VALUE_KIND.name).to_numpy() & 1) == int(removed)
        found = found.select([field.name for field in fields])
        if not wanted.all():
            shown = np.flatnonzero(wanted)
            which, found = which[shown], rows_at(found, shown)
        return which, found

    def states(self, asked: Asked, fields: Sequence[t.Field]) -> tuple[Positions, pa.Table]:
        """Return what all versions of a key are together: its row, or what its retractions take from later rows.

        Args:
            fields: the columns to return.

        Returns:
            Which keys have a version, int64[k], in any order; and k rows, with `_SEQUENCE_NUMBER` and `_VALUE_KIND`.

        Raises:
            FormatError: a file that may hold one of the keys is damaged or missing; names it.
        """
        youngest, first_counts = self._young_first
        left = np.arange(len(asked))
        hits: list[tuple[DataFile, Positions, Positions]] = []
        remaining = asked
        for file in youngest:
            which, at = self._found(file, remaining)
            if not len(which):
                continue
            hits.append((file, left[which], at))
            if first_counts:
                stay = np.ones(len(left), np.bool_)
                stay[which] = False
                left = left[stay]
                if not len(left):
                    break
                remaining = asked.take(left)
        counts = np.bincount(np.concatenate([hit[1] for hit in hits]), minlength=len(asked)) if hits else left[:0]
        if not first_counts and (counts > 1).any():
            return self._merged(hits, counts, fields)
        return self._alone(hits, fields)

    def one(self, integer: int, chosen: Chosen) -> pa.RecordBatch | None:
        """Return the row of a key that is one number; None: it has none.

        Raises:
            NotAtOnceError: `rows` has to answer, since versions would have to be merged, or a file has no copy.
        """
        bounds = self._bounds
        youngest, first_counts = self._young_first
        if bounds is None:
            raise NotAtOnceError
        found: pa.RecordBatch | bool | None = None
        for file in youngest:
            low, high = bounds[file.name]
            if low <= integer <= high:
                deleted = self._deleted_of(file) if file.name in self._vectors.by_file else None
                row = self._held[file.name].one(integer, deleted, chosen)
                if row is None:
                    continue
                if first_counts:
                    return None if row is False else row
                if found is not None:
                    raise NotAtOnceError
                found = row
        return None if found is False else found

    def _found(self, file: DataFile, asked: Asked) -> tuple[Positions, Positions]:
        """Return which keys have a row in a file that is not deleted, and where."""
        empty = np.empty(0, np.int64)
        held = self._held[file.name]
        bounds = self._bounds
        first, end = 0, len(asked)
        if bounds is not None and asked.integers is not None:
            low, high = bounds[file.name]  # each by itself: numpy would make floats of a number beyond int64
            first = int(asked.integers.searchsorted(low))
            end = int(asked.integers.searchsorted(high, side="right"))
            if first >= end:
                return empty, empty
        near = asked if end - first == len(asked) else asked.take(np.arange(first, end))
        which, at = held.find(near)
        if len(which) and file.name in self._vectors.by_file:
            deleted = self._deleted_of(file)
            place = np.minimum(np.searchsorted(deleted, at), len(deleted) - 1)
            there = deleted[place] != at if len(deleted) else np.ones(len(at), np.bool_)
            which, at = which[there], at[there]
        return which + first, at

    def _deleted_of(self, file: DataFile) -> Positions:
        found = self._deleted.get(file.name)
        if found is None:
            found = load(self._reader.storage, self._vectors.by_file[file.name], file.row_count)
            self._deleted[file.name] = found
        return found

    def _alone(
        self, hits: Sequence[tuple[DataFile, Positions, Positions]], fields: Sequence[t.Field]
    ) -> tuple[Positions, pa.Table]:
        """Return versions that stand as they are."""
        if not hits:
            return np.empty(0, np.int64), arrow_schema((*fields, SEQUENCE_NUMBER, VALUE_KIND)).empty_table()
        parts = [self._held[file.name].take(at, fields) for file, _, at in hits]
        return np.concatenate([keys for _, keys, _ in hits]), pa.concat_tables(parts)

    def _merged(
        self,
        hits: Sequence[tuple[DataFile, Positions, Positions]],
        counts: Positions,
        fields: Sequence[t.Field],
    ) -> tuple[Positions, pa.Table]:
        """Return the states of keys that have several versions, some of them."""
        single = [(file, keys[counts[keys] == 1], at[counts[keys] == 1]) for file, keys, at in hits]
        which, rows = self._alone([hit for hit in single if len(hit[1])], fields)
        needed = self._reader.needed(fields)
        versions: dict[str, pa.Table] = {}
        for file, keys, at in hits:
            several = counts[keys] > 1
            if several.any():
                versions[file.name] = self._held[file.name].take(at[several], needed)
        files = [file for file in self._files if file.name in versions]
        runs = self._reader.runs(files)
        names = [field.name for field in fields]
        made: list[pa.Table] = []
        for folded, numbers in self._reader.merged(files, runs, fields, sequence=True, given=versions):
            assert numbers is not None
            kinds = row_kind.inserts(len(numbers)) if folded.kinds is None else pa.array(folded.kinds)
            table = folded.table().select(names)
            for name, column in ((SEQUENCE_NUMBER.name, pa.array(numbers)), (VALUE_KIND.name, kinds)):
                table = table.append_column(name, column)
            made.append(table)
        merged = pa.concat_tables(made)
        of_several = np.flatnonzero(counts > 1)
        if not len(which):
            return of_several, merged
        return np.concatenate([which, of_several]), pa.concat_tables([rows, in_types(merged, rows.schema)])

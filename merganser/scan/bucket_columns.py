"""The facts that planning needs about every file of a bucket, as columns that grow with the bucket.

A plan after one commit more needs the keys of the files that came with it, and the columns of the others as they
were: decoding them, and walking over thousands of objects, would cost more than all the rest. So the columns of a
bucket are kept, and what follows the entries that they were made of is appended. Whether entries are the ones known
is seen by comparing them, and those that are the same objects compare at the speed of a copy.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from merganser.codec.binary_row import deserialize_columns
from merganser.meta.data_file import DataFile, ManifestEntry
from merganser.meta.live_files import BucketId
from merganser.meta.table_def import TableDef
from merganser.storage.env import Env
from merganser.values import dataclass

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class BucketColumns:
    """The n files of a bucket of a table with a key.

    Attributes:
        schema_id: the schema by which keys were decoded.
        entries: what the columns were made of.
        files: the file of each.
        low, high: key columns of their first and last rows.
        numbers: int64[4, n]: size in bytes, rows, level, schema id.
    """

    schema_id: int
    entries: tuple[ManifestEntry, ...]
    files: tuple[DataFile, ...]
    low: list[pa.Array]
    high: list[pa.Array]
    numbers: Numbers

    @property
    def sizes(self) -> Numbers:
        """Bytes of each."""
        return self.numbers[0]  # type: ignore[no-any-return]

    @property
    def row_counts(self) -> Numbers:
        """Physical rows of each."""
        return self.numbers[1]  # type: ignore[no-any-return]

    @property
    def levels(self) -> Numbers:
        """Level of each."""
        return self.numbers[2]  # type: ignore[no-any-return]

    @property
    def schema_ids(self) -> Numbers:
        """The schema that each was written with."""
        return self.numbers[3]  # type: ignore[no-any-return]

    def schemas_of(self, places: Numbers) -> set[int]:
        """Return the ids of the schemas that some files, at least one, were written with."""
        ids = self.schema_ids[places]
        first = int(ids[0])
        return {first} if (ids == first).all() else set(ids.tolist())

    @property
    def weight(self) -> int:
        """Bytes of memory that it holds beside the entries."""
        held = self.numbers.nbytes + sum(int(column.nbytes) for column in (*self.low, *self.high))
        return 16 * len(self.files) + held


def bucket_columns(table: TableDef, env: Env, bucket: BucketId, entries: tuple[ManifestEntry, ...]) -> BucketColumns:
    """Return the columns of a bucket's entries, those that are known extended.

    Raises:
        FormatError: a key is not one of the table's.
    """
    place = ("bucket-columns", table.paths.metadata_root, *bucket)
    known: BucketColumns | None = env.cache.get(place)
    if known is not None and known.schema_id == table.schema.id:
        count = len(known.entries)
        if entries[:count] == known.entries:
            if count == len(entries):
                return known
            more = _made(table, entries[count:])
            found = BucketColumns(
                table.schema.id,
                entries,
                known.files + more.files,
                _joined(known.low, more.low),
                _joined(known.high, more.high),
                np.concatenate([known.numbers, more.numbers], axis=1),
            )
            env.cache.put(place, found, found.weight)
            return found
    found = _made(table, entries)
    env.cache.put(place, found, found.weight)
    return found


def _made(table: TableDef, entries: tuple[ManifestEntry, ...]) -> BucketColumns:
    files = tuple([entry.file for entry in entries])
    low = deserialize_columns([file.min_key for file in files], table.key_types)
    high = deserialize_columns([file.max_key for file in files], table.key_types)
    numbers = np.array([(file.size, file.row_count, file.level, file.schema_id) for file in files], np.int64)
    return BucketColumns(table.schema.id, entries, files, low, high, numbers.reshape(len(files), 4).T)


def _joined(before: Sequence[pa.Array], after: Sequence[pa.Array]) -> list[pa.Array]:
    return [pa.concat_arrays([a, b]) for a, b in zip(before, after, strict=True)]

"""Search: which data and changelog files hold rows that are sought, whatever their kind, level or deletion vector.

The columns that decide are read whole, and no statistics are trusted: what is found missing here is the proof that an
erasure gives.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from merganser.erase.sought import Sought, distinct
from merganser.errors import MerganserError, StorageError
from merganser.files.read import DataFileReader, FileToRead
from merganser.meta.data_file import DataFile
from merganser.meta.table_def import TableDef
from merganser.schema import types as t
from merganser.storage.env import Env
from merganser.storage.paths import join
from merganser.write.job import Outcome

_READ_ROWS = 1 << 18


@dataclass(frozen=True, slots=True)
class Searched(Outcome):
    """What a search found.

    Attributes:
        hits: of each file, by path, how many rows are sought.
        keys: the keys of the rows that the filter lets through; None: none, or they are not asked for.
    """

    hits: Mapping[str, int] = field(default_factory=dict)
    keys: pa.Table | None = None


@dataclass(frozen=True)
class SearchJob:
    """Searches files of one bucket. Pickles; runs wherever there is a core.

    Attributes:
        table: the table, with the schema that is read with.
        partition: the serialized partition of the bucket.
        directory: of the files.
        files: data and changelog files.
        schemas: columns of every schema that a file was written with.
        sought: the rows.
        finds_keys: also return the keys of the rows that the filter of `sought` lets through.
    """

    table: TableDef
    partition: bytes
    directory: str
    files: tuple[DataFile, ...]
    schemas: Mapping[int, tuple[t.Field, ...]]
    sought: Sought
    finds_keys: bool

    @property
    def size_bytes(self) -> int:
        """Bytes of the files."""
        return sum(file.size for file in self.files)

    @property
    def file_count(self) -> int:
        """How many files there are."""
        return len(self.files)

    def parts(self) -> Iterator[SearchJob]:
        """Yield the search of each file."""
        for file in self.files:
            yield replace(self, files=(file,))

    def run(self, env: Env) -> Searched:
        """Search. An error other than one of the store is returned."""
        hits, keys = dict[str, int](), list[pa.Table]()
        try:
            for file in self.files:
                path = file.external_path or join(self.directory, file.name)
                hits[path] = 0
                for rows in self._rows(env, path, file):
                    hits[path] += int(np.count_nonzero(self.sought.mask(rows)))
                    if self.finds_keys:
                        keys.append(self.sought.where.apply(rows).select(list(self.table.row_key)))
        except StorageError:
            raise
        except MerganserError as refusal:
            return Searched(refusal=refusal)
        return Searched(hits=hits, keys=distinct(keys))

    def _rows(self, env: Env, path: str, file: DataFile) -> Iterator[pa.Table]:
        names = set(self.sought.columns)
        if self.finds_keys:
            names |= {*self.sought.where.columns, *self.table.row_key}
        fields = [field for field in self.table.schema.fields if field.name in names] or self.table.schema.fields[:1]
        constants = self.table.partition_values(self.partition)
        target = FileToRead(path, file, self.schemas[file.schema_id], self.table.schema.id, None, constants)
        reader = DataFileReader(env.storage, target, columns=fields)
        try:
            while (rows := reader.read(_READ_ROWS)) is not None:
                yield rows
        finally:
            reader.close()

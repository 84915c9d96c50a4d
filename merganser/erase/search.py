"""Search: which data and changelog files hold rows that are sought, whatever their kind, level or deletion vector.

The columns that decide are read whole, and no statistics are trusted: what is found missing here is the proof that an
erasure gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace

import numpy as np
import pyarrow as pa

from merganser.erase.inventory import StoredFile
from merganser.erase.sought import Sought, distinct
from merganser.errors import MerganserError, StorageError
from merganser.files.read import DataFileReader, FileToRead
from merganser.meta.data_file import ADD, DataFile, ManifestEntry
from merganser.meta.followed import columns_of
from merganser.meta.schemas import SchemaStore
from merganser.meta.table_def import TableDef
from merganser.schema import types as t
from merganser.storage.env import Env
from merganser.storage.paths import join
from merganser.upkeep.needed_files import NeededFiles
from merganser.values import dataclass
from merganser.write.job import FilesJob, Outcome

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
class SearchJob(FilesJob):
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
                        passed = pa.array(self.sought.passed(rows))
                        keys.append(rows.filter(passed).select(list(self.sought.row_key)))
        except StorageError:
            raise
        except MerganserError as refusal:
            return Searched(refusal=refusal)
        return Searched(hits=hits, keys=distinct(keys))

    def _rows(self, env: Env, path: str, file: DataFile) -> Iterator[pa.Table]:
        names = set(self.sought.columns)
        if self.finds_keys:
            names |= self.sought.decides
        fields = [field for field in self.table.schema.fields if field.name in names] or self.table.schema.fields[:1]
        constants = self.table.partition_values(self.partition)
        target = FileToRead(path, file, self.schemas[file.schema_id], self.table.schema.id, None, constants)
        reader = DataFileReader(env.storage, target, columns=fields)
        try:
            while (rows := reader.read(_READ_ROWS)) is not None:
                yield rows
        finally:
            reader.close()


RunSearch = Callable[[Sequence[SearchJob]], list[Outcome]]
"""Runs jobs side by side and returns what they found, in any order."""


def _alike(one: t.Field, other: t.Field) -> bool:
    return (one.name, one.type.with_nullable(True)) == (other.name, other.type.with_nullable(True))


@dataclass
class Finder:
    """Searches files, each once: files never change.

    Attributes:
        run: where jobs run; None: on the threads of this process.
        hits: of the files that were searched, by path, how many rows are sought.
        outside: paths of files outside of the table that hold rows that are sought.
    """

    table: TableDef
    env: Env
    sought: Sought
    run: RunSearch | None
    hits: dict[str, int] = field(default_factory=dict)
    outside: set[str] = field(default_factory=set)
    _asked: set[str] = field(default_factory=set)

    def search(self, files: Sequence[StoredFile]) -> None:
        """Find keys in files that were not asked yet, then which files hold rows."""
        if self.sought.by is not None:
            self._find_keys([one for one in files if one.path not in self._asked])
        todo = [one for one in files if one.path not in self.hits]
        for outcome in self._run(self._jobs(todo, finds_keys=False)):
            self.hits |= outcome.hits
        for one in files:
            if self.hits.setdefault(one.path, 0) and not one.path.startswith(f"{self.table.path}/"):
                self.outside.add(one.path)

    def holds(self, table: TableDef, entry: ManifestEntry) -> bool:
        """Return whether a file that came or went holds rows that are sought, or may hold a key that is not known."""
        if entry.kind != ADD:
            return False
        [path, *_] = NeededFiles(table, self.env).data_paths(entry)
        before = self.sought
        self.search([StoredFile(path, table, entry)])
        return self.sought is not before or self.hits[path] > 0

    def _find_keys(self, files: Sequence[StoredFile]) -> None:
        keys = [] if self.sought.keys is None else [self.sought.keys]
        known = sum(one.num_rows for one in keys)
        for outcome in self._run(self._jobs(files, finds_keys=True)):
            self.hits |= outcome.hits
            keys += [] if outcome.keys is None else [outcome.keys]
        self._asked.update(one.path for one in files)
        every = distinct(keys)
        if every is not None and every.num_rows > known:
            self.sought = replace(self.sought, keys=every)
            self.hits.clear()  # files may hold versions of the new keys

    def asks(self, table: TableDef) -> bool:
        """Return whether the rows of a branch can be asked; see `differing`."""
        return self.differing(table) is None

    def differing(self, table: TableDef) -> str | None:
        """Return why the rows of a branch cannot be asked; None: they can.

        A column is the same in a branch if both have it from the time before they parted. If one of them has got it
        since, the name says it. A branch without such a column has nulls there.
        """
        if table.branch == self.table.branch:
            return None
        if table.keyed and table.schema.primary_keys != self.table.schema.primary_keys:
            theirs, ours = (", ".join(one.schema.shown.primary_keys) for one in (table, self.table))
            return (
                f"has the primary key ({theirs}), and here it is ({ours})" if ours else f"has a primary key ({theirs})"
            )
        own = [one for one in self.table.schema.fields if one.name in self.sought.decides]
        by_id = {one.id: one for one in table.schema.fields}
        by_name = {one.name: one for one in table.schema.fields}
        if all(one.id in by_id and _alike(one, by_id[one.id]) for one in own):
            return None
        shared = self._shared_ids(table)
        for one in own:
            other = by_id.get(one.id) if one.id in shared else by_name.get(one.name)
            if other is None and one.id in shared:
                return f"has dropped the column '{one.name}'"
            if other is None and one.name in self.sought.row_key:
                return f"lacks the column '{one.name}'"
            if other is not None and not _alike(one, other):
                return f"has the column '{other.name}' ({other.type}), which here is '{one.name}' ({one.type})"
        return None

    def _shared_ids(self, table: TableDef) -> set[int]:
        """Return the ids of the columns of the schemas that two branches have in common."""
        ours, theirs = (SchemaStore(one.paths, self.env) for one in (self.table, table))
        both = [number for number in ours.ids() if number in set(theirs.ids())]
        every = (ours.load(number) for number in both if ours.load(number) == theirs.load(number))
        return {one.id for schema in every for one in schema.fields}

    def _jobs(self, files: Sequence[StoredFile], *, finds_keys: bool) -> list[SearchJob]:
        tables = {one.table.branch: one.table for one in files}
        able = {branch for branch, table in tables.items() if self.asks(table)}
        groups: dict[tuple[str, bytes, str], list[StoredFile]] = {}
        for one in files:
            if one.table.branch in able:
                groups.setdefault((one.table.branch, one.entry.partition, one.path.rpartition("/")[0]), []).append(one)
        jobs = []
        for (branch, partition, directory), members in groups.items():
            schemas = columns_of(tables[branch], self.env, (one.entry.file.schema_id for one in members))
            of_job = tuple(one.entry.file for one in members)
            jobs.append(SearchJob(tables[branch], partition, directory, of_job, schemas, self.sought, finds_keys))
        return jobs

    def _run(self, jobs: Sequence[SearchJob]) -> Iterator[Searched]:
        parts = [part for job in jobs for part in job.parts()]
        if self.run is None or not parts:
            made: Sequence[Outcome] = self.env.map(lambda job: job.run(self.env), parts)
        else:
            made = self.run(parts)
        for outcome in made:
            if outcome.refusal is not None:
                raise outcome.refusal
            assert isinstance(outcome, Searched)
            yield outcome

"""Checks of files: compare the files that snapshots need, and their content, with the metadata.

The check reads a file once, for any number of snapshots that need it. It reads rows in windows, so the window and the
number of threads limit its memory.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from merganser.codec.bloom import can_filter
from merganser.codec.deletion_vector import decode_vector
from merganser.errors import FormatError, MerganserError, NotFoundError
from merganser.files.index import ColumnFilter, Sought, file_index_path, read_filters
from merganser.files.key_hashes import hashes_of, read_hashes
from merganser.files.masks import index_path
from merganser.files.read import DataFileReader, FileToRead
from merganser.lsm.check import UNSURE, FilePlace, Finding, RowCheck
from merganser.meta.data_file import ADD, DataFile, ManifestEntry
from merganser.meta.index_manifest import DELETION_VECTORS, HASH, IndexEntry
from merganser.meta.live_files import BucketId
from merganser.meta.table_def import TableDef
from merganser.schema import types as t
from merganser.schema.nullability import tightened
from merganser.storage.env import Env
from merganser.storage.paths import join
from merganser.storage.protocol import Entries
from merganser.upkeep.findings import Findings, Holder, code_of
from merganser.values import dataclass

WINDOW_ROWS: Final = 65_536
"""Rows of a file that are looked at together."""

_FOREIGN_COUNTS: Final = "python-"
"""Writers of this version name leave 0 retractions in every manifest, whatever they wrote. Readers here count for
themselves, so it misleads none of them."""


@dataclass(frozen=True, slots=True)
class _Held:
    """A data file as the newest snapshot that holds it describes it, and the files of all that do."""

    table: TableDef
    entry: ManifestEntry
    path: str
    snapshot: int
    holders: frozenset[str]
    changelog: bool
    counts_retractions: bool


@dataclass(frozen=True, slots=True)
class _HeldIndex:
    """An index file, and the rows of each data file that its vectors are of."""

    table: TableDef
    entry: IndexEntry
    path: str
    snapshot: int
    holders: frozenset[str]
    rows: dict[str, int]


@dataclass(slots=True)
class HeldFiles:
    """Data and index files of a table, gathered snapshot by snapshot."""

    env: Env
    findings: Findings
    _data: dict[str, _Held] = field(default_factory=dict)
    _index: dict[str, _HeldIndex] = field(default_factory=dict)
    _hashes: dict[tuple[BucketId, frozenset[str]], npt.NDArray[np.int32]] = field(default_factory=dict)
    _unsure: dict[str, _Held] = field(default_factory=dict)
    _loose: dict[tuple[str, int], frozenset[int]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def hold(
        self,
        table: TableDef,
        entry: ManifestEntry,
        holder: Holder,
        *,
        writer: str | None = None,
        changelog: bool = False,
    ) -> None:
        """Note that a snapshot holds a data file.

        Args:
            table: with the branch whose snapshot it is.
            writer: the version that the snapshot which added it names.
            changelog: it is a file of a changelog.
        """
        directory = directory_of(table, (entry.partition, entry.bucket))
        if directory is None:
            return
        path = entry.file.external_path or join(directory, entry.file.name)
        known = self._data.get(path)
        holders = frozenset([holder.path])
        counts = not (writer or "").startswith(_FOREIGN_COUNTS)
        if known is not None:
            holders |= known.holders
            counts = counts and known.counts_retractions
            if facts(known.entry.file) != facts(entry.file):
                self.findings.note("count", path, "two manifests say different things of it.", holder)
            if entry.kind != ADD:  # its statistics may be left out
                entry = known.entry
            if holder.snapshot < known.snapshot:
                self._data[path] = replace(known, holders=holders, counts_retractions=counts)
                return
        self._data[path] = _Held(table, entry, path, holder.snapshot, holders, changelog, counts)

    def hold_index(self, table: TableDef, entry: IndexEntry, rows: dict[str, int], holder: Holder) -> None:
        """Note that a snapshot holds an index file.

        Args:
            rows: of every data file in the bucket, by name.
        """
        if directory_of(table, (entry.partition, entry.bucket)) is None:
            return
        path = index_path(table, entry)
        known = self._index.get(path)
        holders = frozenset([holder.path]) | (known.holders if known is not None else frozenset())
        wanted = {vector.data_file: rows[vector.data_file] for vector in entry.vectors if vector.data_file in rows}
        self._index[path] = _HeldIndex(table, entry, path, holder.snapshot, holders, wanted)

    def look(self, *, inside: bool, schemas: dict[tuple[str, int], TableDef], title: str) -> None:
        """Look whether the files are there and of the size that is said; with `inside` at what is in them too.

        Args:
            schemas: by branch and schema id, the table as it was then.
            title: of the progress that is shown.
        """
        data, index = self._present()
        if not inside:
            return
        hashed: dict[BucketId, list[_HeldIndex]] = {}
        for found in index:
            if found.entry.index_type == HASH:
                hashed.setdefault((found.entry.partition, found.entry.bucket), []).append(found)
        self.env.map(self._look_into_index, index)
        size = sum(held.entry.file.size for held in data)
        with self.env.progress.work(title, size_bytes=size, steps=len(data)) as work:

            def one(held: _Held) -> None:
                for finding in self._row_findings(held, schemas, hashed):
                    self.findings.add(finding, held.holders)
                work.advance(held.entry.file.size)

            self.env.map(one, data)
        self._note_unsure()

    def key_in_two(self, table: TableDef, entries: Sequence[IndexEntry]) -> str | None:
        """Return what is wrong if the key indexes of a partition put a key into two buckets; None: nothing is.

        Args:
            entries: of type HASH, one of each bucket. Files that cannot be read are left out: that is found elsewhere.
        """
        try:
            hashes = [read_hashes(table, self.env, entry) for entry in entries]
        except MerganserError:
            return None
        whole = np.concatenate(hashes)
        whole.sort()
        twice = whole[1:][whole[1:] == whole[:-1]]
        if not len(twice):
            return None
        found = [entry.bucket for entry, held in zip(entries, hashes, strict=True) if (held == twice[0]).any()]
        return (
            f"the key indexes of buckets {sorted(found)} of '{table.partition_directory(entries[0].partition)}' have "
            f"{len(twice)} key hashes twice (the first is {twice[0]}), so rows of one key may lie in two buckets."
        )

    def _note_unsure(self) -> None:
        """Say once for the table that some files have no checksum: another engine wrote them, or an older release."""
        if not self._unsure:
            return
        path, held = min(self._unsure.items())
        more = len(self._unsure) - 1
        also = f", like {more:,} other data files" if more else ""
        problem = (
            f"it has no checksum of its rows{also}. A changed byte there may read as another value, and the check "
            "cannot tell."
        )
        holders = frozenset[str]().union(*(found.holders for found in self._unsure.values()))
        self.findings.add(Finding(UNSURE, path, problem, held.snapshot), holders)

    def _present(self) -> tuple[list[_Held], list[_HeldIndex]]:
        """Return the files that are there with the size that is said."""
        listed = self._sizes({path.rpartition("/")[0] for path in (*self._data, *self._index)})
        data = [held for held in self._data.values() if self._is_there(held, held.entry.file.size, listed)]
        for path, held in self._data.items():
            directory = path.rpartition("/")[0]
            for name in held.entry.file.extra_files:
                if directory in listed and name not in listed[directory]:
                    problem = f"it is not there, and belongs to '{held.entry.file.name}'."
                    self.findings.add(Finding("missing", join(directory, name), problem, held.snapshot), held.holders)
        index = [held for held in self._index.values() if self._is_there(held, held.entry.size, listed)]
        return data, index

    def _sizes(self, directories: Iterable[str]) -> dict[str, dict[str, int]]:
        """Return the sizes of files by directory and name; without the directories that cannot be listed."""
        todo = sorted(directories)

        def entries(directory: str) -> Entries | None:
            return self.findings.tried(directory, lambda: self.env.storage.list(directory))

        found = zip(todo, self.env.map(entries, todo), strict=True)
        return {directory: {e.name: e.size for e in held} for directory, held in found if held is not None}

    def _is_there(self, held: _Held | _HeldIndex, said: int, listed: Mapping[str, Mapping[str, int]]) -> bool:
        directory, _, name = held.path.rpartition("/")
        if directory not in listed:
            return False
        found = listed[directory].get(name)
        if found is None:
            problem = "it is not there, and metadata names it."
            self.findings.add(Finding(_code(held, "missing"), held.path, problem, held.snapshot), held.holders)
        elif found != said:
            problem = f"it has {found} bytes, and metadata says {said}."
            self.findings.add(Finding(_code(held, "damaged"), held.path, problem, held.snapshot), held.holders)
        return found == said

    def _once_nullable(self, table: TableDef, schemas: dict[tuple[str, int], TableDef]) -> frozenset[int]:
        """Return the ids of the columns that are NOT NULL in the schema of a table, and not in another one."""
        place = table.branch, table.schema.id
        if place not in self._loose:
            fields = table.schema.user_fields
            others = [other.schema for (branch, _), other in schemas.items() if branch == table.branch]
            ways = (way for other in others for way, _ in tightened(other.user_fields, fields))
            self._loose[place] = frozenset(way[0].id for way in ways)
        return self._loose[place]

    def _row_findings(
        self,
        held: _Held,
        schemas: dict[tuple[str, int], TableDef],
        hashed: dict[BucketId, list[_HeldIndex]],
    ) -> list[Finding]:
        """Return what is wrong inside one data file."""
        file = held.entry.file
        table = schemas.get((held.table.branch, file.schema_id))
        if table is None:
            problem = f"it was written with schema {file.schema_id}, which cannot be read."
            return [Finding("unreadable", held.path, problem, held.snapshot)]
        indexes = hashed.get((held.entry.partition, held.entry.bucket), []) if not held.changelog else []
        place = FilePlace(
            table,
            held.entry,
            held.path,
            held.snapshot,
            merged=not held.changelog and held.entry.bucket >= 0,
            counts_retractions=held.counts_retractions,
            hashes=self._hashes_of([found for found in indexes if found.holders & held.holders]),
            once_nullable=self._once_nullable(table, schemas),
        )
        try:
            check = RowCheck(place)
            filters = _Filters(self.env, held, table)
            reader = self._opened(held, table.schema.fields, system=table.keyed, every_byte=True)
            keys = None
            try:
                if table.keyed and {f.name for f in table.schema.key_fields} <= set(reader.column_names):
                    keys = self._opened(held, table.schema.key_fields, system=False, every_byte=False)
                if not reader.is_verified():
                    with self._lock:
                        self._unsure[held.path] = held
                while (rows := reader.read(WINDOW_ROWS)) is not None:
                    filters.add(rows)
                    check.add(rows, None if keys is None else keys.read(WINDOW_ROWS))
            finally:
                reader.close()
                if keys is not None:
                    keys.close()
            return [*check.findings(noted_inserts=reader.noted_inserts), *filters.findings]
        except MerganserError as error:
            return [Finding(code_of(error), held.path, str(error), held.snapshot)]

    def _opened(self, held: _Held, fields: Sequence[t.Field], *, system: bool, every_byte: bool) -> DataFileReader:
        constants = held.table.partition_values(held.entry.partition)
        file = held.entry.file
        target = FileToRead(held.path, file, tuple(fields), file.schema_id, constants=constants)
        return DataFileReader(
            self.env.storage,
            target,
            columns=fields,
            sequence=system,
            kind=system,
            notes=False,
            every_byte=every_byte,
        )

    # index files

    def _look_into_index(self, held: _HeldIndex) -> None:
        data = self.findings.tried(held.path, lambda: self.env.storage.read(held.path), self._holder(held))
        if data is None:
            return
        entry = held.entry
        if entry.index_type == HASH:
            try:
                hashes_of(held.table, entry, data)
            except FormatError as error:
                self._note(held, str(error))
        if entry.index_type == DELETION_VECTORS:
            if entry.row_count != len(entry.vectors):
                self._note(
                    held, f"metadata says that it has {entry.row_count} vectors, and names {len(entry.vectors)}."
                )
            for vector in entry.vectors:
                self._look_at_vector(held, data, vector.data_file, vector.offset, vector.length, vector.cardinality)

    def _look_at_vector(
        self, held: _HeldIndex, data: bytes, name: str, offset: int, length: int, cardinality: int | None
    ) -> None:
        positions = self.findings.tried(
            held.path,
            lambda: decode_vector(data[offset:], length=length, path=held.path, offset=offset),
            self._holder(held),
        )
        if positions is None:
            return
        if cardinality not in (None, len(positions)):
            self._note(held, f"the vector of '{name}' has {len(positions)} positions, and metadata says {cardinality}.")
        if len(positions) and name in held.rows and int(positions[-1]) >= held.rows[name]:
            self._note(
                held, f"the vector of '{name}' hides row {int(positions[-1])}, and it has {held.rows[name]} rows."
            )

    def _hashes_of(self, indexes: Sequence[_HeldIndex]) -> npt.NDArray[np.int32] | None:
        """Return the hashes of the keys of a bucket; None where there is no index of them, or none that can be read."""
        if not indexes:
            return None
        newest = max(indexes, key=lambda held: held.snapshot)
        key = ((newest.entry.partition, newest.entry.bucket), frozenset([newest.path]))
        with self._lock:
            known = self._hashes.get(key)
        if known is None:
            try:
                data = self.env.storage.read(newest.path)
            except MerganserError:
                return None
            known = np.frombuffer(data, ">i4", len(data) // 4).astype(np.int32)
            with self._lock:
                self._hashes = {key: known}  # files of a bucket come one after the other
        return known

    def _note(self, held: _HeldIndex, problem: str) -> None:
        self.findings.add(Finding("index", held.path, problem, held.snapshot), held.holders)

    def _holder(self, held: _HeldIndex) -> Holder:
        return Holder(held.snapshot, min(held.holders))


def _code(held: _Held | _HeldIndex, code: str) -> str:
    """Return the code of a finding of a file; what is wrong with a key index has one code, as it has one remedy."""
    return "index" if isinstance(held, _HeldIndex) and held.entry.index_type == HASH else code


def directory_of(table: TableDef, bucket: BucketId) -> str | None:
    """Return the directory of a bucket; None of bytes that are no partition: a finding of the manifest with them."""
    try:
        return table.bucket_directory(*bucket)
    except MerganserError:
        return None


def facts(file: DataFile) -> tuple[object, ...]:
    """Return what stays the same of a file when it moves to another level."""
    return (
        file.size,
        file.row_count,
        file.min_key,
        file.max_key,
        file.min_sequence,
        file.max_sequence,
        file.schema_id,
        file.delete_row_count,
    )


class _Filters:
    """Looks whether the file index of a data file holds its rows. A value that it denies is hidden from reads.

    Attributes:
        findings: what is wrong; for each column the first thing.
    """

    def __init__(self, env: Env, held: _Held, table: TableDef) -> None:
        self.findings: list[Finding] = []
        self._held = held
        self._path = held.path
        self._kinds: dict[str, t.DataType] = {}
        self._filters: Mapping[str, ColumnFilter] = {}
        directory, file = held.path.rpartition("/")[0], held.entry.file
        path = file_index_path(directory, file)
        if path is None:
            return
        self._path = path
        try:
            self._filters = read_filters(env, directory, file)
            self._kinds = {
                f.name: f.type for f in table.schema.fields if f.name in self._filters and can_filter(f.type)
            }
        except NotFoundError:
            pass  # found with the names of files
        except MerganserError as error:
            self._note(code_of(error), str(error))

    def add(self, rows: pa.Table) -> None:
        """Take rows of the file."""
        for name, kind in list(self._kinds.items()):
            if not self._filters[name].may_hold(Sought(rows.column(name), kind)).all():
                del self._kinds[name]
                self._note(
                    "damaged",
                    f"the file index denies a value of column '{name}' that '{self._held.entry.file.name}' holds, so "
                    "reads skip it. Set 'file-index.read.enabled' to false until a full compaction rewrites the file.",
                )

    def _note(self, code: str, problem: str) -> None:
        self.findings.append(Finding(code, self._path, problem, self._held.snapshot))

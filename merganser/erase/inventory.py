"""Inventory: every data and changelog file of a table, and what names it.

::

    line (the table itself, or a branch) -> holders: snapshots, tags, long-lived changelogs
    holder -> manifests -> entries -> files

A manifest also names files that are gone, and holds their smallest and largest values. So a holder counts for each
file that its manifests name, and not only for those that are live in it.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import TypeVar

import numpy as np
import pyarrow as pa

from merganser.codec.binary_row import deserialize_columns, serialize
from merganser.codec.data_format import FileReader, format_of, open_reader
from merganser.codec.stats import EMPTY_ROW, encode_stats
from merganser.erase.sought import Sought, among
from merganser.errors import FormatError, MerganserError, NotFoundError
from merganser.lsm.levels import dense_ranks
from merganser.meta.changelogs import ChangelogStore
from merganser.meta.consumers import Consumer, ConsumerStore
from merganser.meta.data_file import ADD, DataFile, ManifestEntry
from merganser.meta.followed import as_of, current_schema
from merganser.meta.index_manifest import read_index_manifest
from merganser.meta.manifest import read_manifest
from merganser.meta.manifest_list import ManifestFile, read_manifest_list
from merganser.meta.refs import MAIN
from merganser.meta.schemas import SchemaStore
from merganser.meta.snapshot import Snapshot
from merganser.meta.table_def import TableDef
from merganser.meta.table_state import MetaReader
from merganser.scan.plan import by_stats, may_concern, partition_filter, partitions_table, partitions_through
from merganser.schema import types as t
from merganser.storage.env import Env
from merganser.storage.paths import TablePaths
from merganser.upkeep.needed_files import NeededFiles
from merganser.values import dataclass

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file that is there.

    Attributes:
        path: where.
        table: the table, as the line that names the file has it.
        entry: what a manifest says of it.
    """

    path: str
    table: TableDef
    entry: ManifestEntry


@dataclass(frozen=True, slots=True)
class Holder:
    """A snapshot, a tag or a long-lived changelog.

    Attributes:
        kind: "snapshot", "tag" or "changelog".
        name: of a tag; else the id of the snapshot.
        snapshot: the snapshot that it is, or keeps.
        manifests: names of its manifests, of its index manifest if the table has partitions, and of its statistics.
    """

    kind: str
    name: str
    snapshot: Snapshot
    manifests: frozenset[str]


@dataclass(frozen=True, slots=True)
class Line:
    """The table itself or a branch.

    Attributes:
        table: as this line has it.
        holders: snapshots, oldest first, then tags and changelogs.
        consumers: its named readers.
    """

    table: TableDef
    holders: tuple[Holder, ...]
    consumers: tuple[Consumer, ...]

    def of_kind(self, kind: str) -> list[Holder]:
        """Return the holders of a kind."""
        return [holder for holder in self.holders if holder.kind == kind]


@dataclass(frozen=True)
class Inventory:
    """What a table has at one time.

    Attributes:
        lines: the one that the table was opened as, then the others: the table itself and its branches.
        paths: of each manifest that a holder names, the data and changelog files that it names; those of long-lived
            changelogs may be missing.
        files: the files that are there, by path.
        gone: the files that are not.
        indexed: of each index manifest of a table with partitions, the partitions that it names, with the line.
        analyzed: of each file of statistics, the snapshot whose rows it tells of; None: the file does not say it.
    """

    lines: tuple[Line, ...]
    paths: Mapping[str, frozenset[str]]
    files: Mapping[str, StoredFile]
    gone: Mapping[str, StoredFile]
    indexed: Mapping[str, tuple[TableDef, frozenset[bytes]]]
    analyzed: Mapping[str, int | None]

    def partitions(self, without: Collection[str]) -> set[bytes]:
        """Return the partitions of all files that are named, apart from some paths."""
        every = (*self.files.items(), *self.gone.items())
        return {one.entry.partition for path, one in every if path not in without}

    def naming(self, paths: Collection[str]) -> frozenset[str]:
        """Return the manifests that name one of some files."""
        known = set(paths)
        return frozenset(name for name, named in self.paths.items() if not known.isdisjoint(named))

    def named(self, counts: Callable[[Line, Holder], bool]) -> set[str]:
        """Return the paths that some holders name."""
        manifests = {name for line in self.lines for one in line.holders if counts(line, one) for name in one.manifests}
        return {path for name in manifests for path in self.paths[name]}


def take_inventory(table: TableDef, env: Env) -> Inventory:
    """Return what a table has now. Snapshots that expire meanwhile may be missing.

    Raises:
        FormatError: a metadata file is missing or damaged.
    """
    return NeededFiles(table, env).beside_removals(lambda: _taken(table, env))


def line_of(table: TableDef, env: Env, paths: TablePaths) -> TableDef | None:
    """Return the table as a line has it; None: the branch was dropped."""
    if paths.branch == table.branch:
        return table
    plain = table.name.removesuffix(f"$branch_{table.branch}")
    schema = current_schema(paths, env, plain)
    if schema is None:
        return None
    name = plain if paths.branch == MAIN else f"{plain}$branch_{paths.branch}"
    options = schema.options.merged(dict(table.unstored_client))
    return TableDef(name=name, path=table.path, schema=schema, options=options, branch=paths.branch)


def unnamed_file(table: TableDef, env: Env, path: str) -> StoredFile | None:
    """Return a data file that no metadata names; None if it is another file, is not whole, or of no known schema."""
    name = path.rpartition("/")[2]
    store = SchemaStore(table.paths, env)
    schemas = [store.load(number) for number in reversed(store.ids())]
    try:
        with contextlib.closing(env.storage.open(path)) as file:
            size = file.size()
            reader = open_reader(file, format_of(name), path, size)
            written = next((schema for schema in schemas if _reads(reader, schema.fields)), None)
    except MerganserError:
        return None
    if written is None:
        return None
    none = encode_stats([], [])
    facts = DataFile(name, size, reader.row_count, EMPTY_ROW, EMPTY_ROW, none, none, 0, 0, written.id, 0)
    partition = serialize([None] * len(table.partition_types), table.partition_types)
    return StoredFile(path, table, ManifestEntry(ADD, partition, 0, 0, facts))


def _reads(reader: FileReader, fields: Sequence[t.Field]) -> bool:
    """Return whether the columns of a schema can be read of a file: their names are there, and of types that fit."""
    if not {field.name for field in fields}.issubset(reader.column_names):
        return False
    try:
        reader.read(range(min(1, len(reader.group_rows))), fields)
    except FormatError:
        return False
    return True


@dataclass(frozen=True)
class Unnamed:
    """Metadata that no snapshot names, by the names of its files.

    Attributes:
        files: of each manifest, the data and changelog files that it names, by path.
        lists: of each manifest list, the names of its manifests.
        indexed: of each index manifest, the partitions that it names; none if the table has no partitions.
    """

    files: Mapping[str, Mapping[str, StoredFile]]
    lists: Mapping[str, frozenset[str]]
    indexed: Mapping[str, frozenset[bytes]]


def unnamed_metadata(table: TableDef, env: Env, paths: Iterable[str]) -> Unnamed:
    """Read metadata that no snapshot names. A file that is gone, not whole, or something else is left out."""
    needed = NeededFiles(table, env)
    manifests: dict[str, dict[str, StoredFile]] = {}
    lists: dict[str, frozenset[str]] = {}
    indexed: dict[str, frozenset[bytes]] = {}
    for path in paths:
        name = path.rpartition("/")[2]
        if path != table.paths.manifest(name):
            continue
        with contextlib.suppress(FormatError, NotFoundError):
            data = env.storage.read(path)
            if name.startswith("manifest-list-"):
                lists[name] = frozenset(one.name for one in read_manifest_list(data, path))
            elif name.startswith("index-manifest-"):
                found = frozenset(entry.partition for entry in read_index_manifest(data, path))
                indexed[name] = found if table.schema.partition_keys else frozenset()
            else:
                entries = read_manifest(data, path)
                named = ((next(iter(needed.data_paths(entry))), entry) for entry in entries)
                manifests[name] = {each: StoredFile(each, table, entry) for each, entry in named}
    return Unnamed(manifests, lists, indexed)


def may_hold(env: Env, files: Mapping[str, StoredFile], sought: Sought) -> set[str]:
    """Return those of some files that may hold rows that are sought, as far as manifests tell.

    A file that is gone may have held the only row that the filter matched, so its key is among no known ones. Its value
    statistics tell then.
    """
    if sought.by is None:
        return {path for path, one in files.items() if may_concern(one.table, one.entry, sought.where)}
    found = _with_keys(env, files, sought)
    of_lines: dict[str, dict[str, StoredFile]] = {}
    for path in files.keys() - found:
        of_lines.setdefault(files[path].table.branch, {})[path] = files[path]
    for left in of_lines.values():
        table = next(iter(left.values())).table
        kept = may_be_of(table, {one.entry.partition for one in left.values()}, replace(sought, keys=None))
        paths = {id(one.entry): path for path, one in left.items() if one.entry.partition in kept}
        entries = [left[path].entry for path in paths.values()]
        stores = SchemaStore(table.paths, env)
        found |= {paths[id(entry)] for entry in by_stats(table, entries, sought.where, stores)}
    return found


def may_be_of(table: TableDef, partitions: Collection[bytes], sought: Sought) -> set[bytes]:
    """Return those of some partitions, of which no file is known, that may have held rows that are sought."""
    if not partitions:
        return set()
    kept = partitions_through(table, set(partitions), partition_filter(table, sought.where))
    if sought.by is None or sought.keys is None:
        return set(kept)
    names = [name for name in table.schema.partition_keys if name in sought.by]
    if not names:
        return set(partitions)
    every = list(partitions)
    rows = partitions_table(table, every).select(names)
    known = among(rows, sought.keys.select(names), names)
    return {*kept, *(every[i] for i in np.flatnonzero(known).tolist())}


def _with_keys(env: Env, files: Mapping[str, StoredFile], sought: Sought) -> set[str]:
    """Return those of some files whose first and last key admit a key that is sought."""
    if sought.keys is None:
        return set()
    assert sought.by is not None
    groups: dict[tuple[str, int], list[str]] = {}
    for path, one in files.items():
        groups.setdefault((one.table.branch, one.entry.file.schema_id), []).append(path)
    found = set[str]()
    for (_, number), paths in groups.items():
        table = files[paths[0]].table
        if as_of(table, env, number).key != table.key:
            found.update(paths)
            continue
        bounds = _bounds(table, [files[path].entry for path in paths])
        bounds = bounds.select([name for name in bounds.column_names if name in sought.by])
        if not bounds.num_columns:
            found.update(paths)
            continue
        columns = [column.combine_chunks() for column in bounds.columns]
        keys = [sought.keys.column(field.name).cast(field.type).combine_chunks() for field in bounds.schema]
        known, at = dense_ranks(keys, columns)
        first, last = np.split(at, 2)
        known.sort()
        inside = np.searchsorted(known, first) < np.searchsorted(known, last, "right")
        found.update(paths[i] for i in np.flatnonzero(inside).tolist())
    return found


def _taken(table: TableDef, env: Env) -> Inventory:
    needed = NeededFiles(table, env)
    lines: list[Line] = []
    paths_of: dict[str, frozenset[str]] = {}
    named: dict[str, StoredFile] = {}
    indexed: dict[str, tuple[TableDef, frozenset[bytes]]] = {}
    analyzed: dict[str, int | None] = {}
    for paths in sorted(needed.lines(), key=lambda paths: paths.branch != table.branch):
        line_table = line_of(table, env, paths)
        if line_table is None:
            continue
        line, of_line = _line(line_table, needed, paths)
        line, partitions = _with_indexes(line, needed.reader(paths))
        line, statistics = _with_statistics(line, env)
        lines.append(line)
        indexed |= partitions
        analyzed |= statistics
        paths_of |= dict.fromkeys((*partitions, *statistics), frozenset[str]())
        for name, entries in of_line.items():
            files = {next(iter(needed.data_paths(entry))): entry for entry in entries}
            paths_of[name] = frozenset(files)
            for path, entry in files.items():
                named.setdefault(path, StoredFile(path, line_table, entry))
    there = _there(env, named)
    gone = {path: one for path, one in named.items() if path not in there}
    kept = {path: one for path, one in named.items() if path in there}
    return Inventory(tuple(lines), paths_of, kept, gone, indexed, analyzed)


def _with_statistics(line: Line, env: Env) -> tuple[Line, dict[str, int | None]]:
    """Return a line whose holders also name their files of statistics, and the snapshot that each of these tells of."""
    found: dict[str, int | None] = {}
    holders = []
    for holder in line.holders:
        name = holder.snapshot.statistics
        if name is not None:
            if name not in found:
                found[name] = _analyzed(env, line.table.paths.statistics(name))
            holder = replace(holder, manifests=holder.manifests | {name})
        holders.append(holder)
    return replace(line, holders=tuple(holders)), found


def _analyzed(env: Env, path: str) -> int | None:
    try:
        number = json.loads(env.storage.read(path))["snapshotId"]
    except (NotFoundError, ValueError, KeyError, TypeError):
        return None
    return number if isinstance(number, int) else None


def _with_indexes(line: Line, reader: MetaReader) -> tuple[Line, dict[str, tuple[TableDef, frozenset[bytes]]]]:
    """Return a line whose holders also name their index manifests, and the partitions that each of these names."""
    found: dict[str, tuple[TableDef, frozenset[bytes]]] = {}
    if not line.table.schema.partition_keys:
        return line, found
    holders = []
    for holder in line.holders:
        name = holder.snapshot.index_manifest
        if name is not None and holder.kind != "changelog":
            if name not in found:
                found[name] = line.table, frozenset(entry.partition for entry in reader.index(holder.snapshot))
            holder = replace(holder, manifests=holder.manifests | {name})
        holders.append(holder)
    return replace(line, holders=tuple(holders)), found


def _line(table: TableDef, needed: NeededFiles, paths: TablePaths) -> tuple[Line, dict[str, tuple[ManifestEntry, ...]]]:
    env, reader = needed.env, needed.reader(paths)
    store = reader.snapshots
    snapshots = [found for found in env.fetch(store.get, store.ids()) if found is not None]
    tags = needed.tags(paths).list()
    states = [*snapshots, *(tag.snapshot for tag in tags)]
    changelogs = ChangelogStore(paths, env).list()
    optional: dict[str, ManifestFile] = {}
    required: dict[str, ManifestFile] = {}

    def names(into: dict[str, ManifestFile], manifests: Iterable[ManifestFile]) -> frozenset[str]:
        of = {manifest.name: manifest for manifest in manifests}
        into.update(of)
        return frozenset(of)

    lists = zip(states, reader.base_lists(states), reader.delta_lists(states), strict=True)
    of_states = [
        names(required, (*base, *delta)) | names(optional, _changelog_manifests(reader, snapshot))
        for snapshot, base, delta in lists
    ]
    holders = [
        Holder("snapshot", str(snapshot.id), snapshot, manifests)
        for snapshot, manifests in zip(snapshots, of_states[: len(snapshots)], strict=True)
    ]
    holders += [
        Holder("tag", tag.name, tag.snapshot, manifests)
        for tag, manifests in zip(tags, of_states[len(snapshots) :], strict=True)
    ]
    holders += [
        Holder("changelog", str(one.id), one, names(optional, chain(*_long_lived(reader, one)))) for one in changelogs
    ]
    found = dict(zip(required, reader.entries_of_each(list(required.values())), strict=True))
    for name, manifest in optional.items():
        if name not in found:
            [found[name]] = _unless_missing(reader.entries_of_each, manifest) or [()]
    consumers = ConsumerStore(paths, env, table.name).list()
    return Line(table, tuple(holders), consumers), found


def _changelog_manifests(reader: MetaReader, snapshot: Snapshot) -> Sequence[ManifestFile]:
    """Return the manifests of a snapshot's changelog. A branch and a tag may have the snapshot without it."""
    found = _unless_missing(reader.changelog_lists, snapshot)
    return found[0] if found else ()


def _long_lived(reader: MetaReader, snapshot: Snapshot) -> Iterator[Sequence[ManifestFile]]:
    for read in (reader.changelog_lists, reader.base_lists, reader.delta_lists):
        found = _unless_missing(read, snapshot)
        if found:
            yield found[0]


def _unless_missing(read: Callable[[Sequence[T]], list[R]], asked: T) -> list[R]:
    try:
        return read([asked])
    except FormatError as error:
        if isinstance(error.__cause__, NotFoundError):
            return []
        raise


def _there(env: Env, paths: Collection[str]) -> set[str]:
    """Return which of some paths are files."""
    directories = sorted({path.rpartition("/")[0] for path in paths})
    listed = env.fetch(env.storage.list, directories)
    return {
        f"{directory}/{entry.name}"
        for directory, found in zip(directories, listed, strict=True)
        for entry in found
        if not entry.is_directory
    }


def _bounds(table: TableDef, entries: Sequence[ManifestEntry]) -> pa.Table:
    """Return the partition columns and then the key columns of the first keys of n files, then of their last keys."""
    columns = partitions_table(table, [entry.partition for entry in entries] * 2)
    for_keys = [entry.file.min_key for entry in entries] + [entry.file.max_key for entry in entries]
    for name, values in zip(table.key, deserialize_columns(for_keys, table.key_types), strict=True):
        columns = columns.append_column(name, values)
    return columns

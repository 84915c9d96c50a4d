"""A snapshot and a filter -> the splits to read.

Files are left out, in this order: by partition (exactly), by bucket (when the filter pins the bucket key), by
key range, and, where no merge is needed, by the statistics of any column. Then the file indexes are asked: those of
key columns always, those of others where no merge is needed. What pruning leaves is read and filtered exactly.

Deletion vectors hide rows whatever the options say. While a table with a key has them on, a row above level 0 that
no vector names is the row of its key, so files are read as they stand, one by one; level 0 waits for its compaction.
Files from before they were turned on are merged with what they meet (`lsm.unmarked`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from merganser.codec.binary_row import deserialize, deserialize_columns, stored_to_arrow
from merganser.codec.stats import EMPTY_ROW
from merganser.codec.stored import sort_key
from merganser.errors import FormatError, UnsupportedError
from merganser.expr.predicate import Predicate, conjunction, conjuncts, points
from merganser.expr.prune import may_match_many, must_match_many
from merganser.files.masks import NO_VECTORS, BucketVectors, vectors_by_bucket
from merganser.lsm.levels import dense_ranks, sections
from merganser.lsm.unmarked import unmarked_schemas
from merganser.meta.data_file import ADD, DataFile, ManifestEntry
from merganser.meta.followed import columns_of
from merganser.meta.layout import bucket_numbers, spread
from merganser.meta.live_files import EMPTY, BucketFiles, BucketId, LiveFiles
from merganser.meta.schemas import SchemaStore
from merganser.meta.snapshot import Snapshot
from merganser.meta.table_def import TableDef
from merganser.meta.table_state import MetaReader, TableState
from merganser.options import read as r
from merganser.rules.compacting import hides_level_0, is_masked
from merganser.scan.bucket_columns import BucketColumns, bucket_columns
from merganser.scan.by_index import IndexQuestions
from merganser.scan.read import key_filter
from merganser.scan.rows import without_columns
from merganser.scan.split import AnySplit, ReadJob, Split, What
from merganser.schema import types as t
from merganser.schema.arrow import arrow_type
from merganser.schema.evolve import Evolution
from merganser.storage.env import Env
from merganser.storage.paths import join
from merganser.values import dataclass


@dataclass(frozen=True)
class Plan:
    """The plan of a scan.

    Attributes:
        snapshot: the snapshot that is read, or the later one of two that are compared; None of an empty table, and of
            what snapshots published.
        job: what every worker must know.
        splits: the portions.
        counts: files left after each step of pruning, by step, for `explain`.
        notes: of changes, what they are, for `explain`: titles and texts.
        groups: the same files as `splits`, in groups that one task must read in order; see `scan.ordered_splits`.
            Empty if each split can be read independently.
    """

    snapshot: Snapshot | None
    job: ReadJob
    splits: tuple[AnySplit, ...]
    counts: dict[str, int] = field(default_factory=dict)
    notes: tuple[tuple[str, str], ...] = ()
    groups: tuple[tuple[AnySplit, ...], ...] = ()


def plan(
    table: TableDef,
    env: Env,
    state: TableState,
    *,
    columns: Sequence[t.Field],
    where: Predicate | None,
    compacted_only: bool = False,
    what: What = What.MERGED,
) -> Plan:
    """Return the splits of a snapshot that may hold rows of the filter.

    Args:
        compacted_only: the files are those of the highest levels, which need no merge; those of level 0 are left out.
        what: which rows are made of the versions of a key; planning is the same for all.

    Raises:
        FormatError: an entry of a manifest, or a schema that files refer to, is damaged or missing.
    """
    try:
        return _planned(table, env, state, columns, where, compacted_only, what)
    except FormatError as error:
        if "path" in error.context:
            raise
        path = join(table.paths.root, "manifest")
        raise FormatError(
            f"cannot plan a read of '{table.name}': an entry of its manifests in '{path}' is damaged: {error}",
            path=path,
        ) from error


def _planned(
    table: TableDef,
    env: Env,
    state: TableState,
    columns: Sequence[t.Field],
    where: Predicate | None,
    compacted_only: bool,
    what: What,
) -> Plan:
    vectors = vectors_by_bucket(table, MetaReader(table.paths, env, table.name).index(state.snapshot))
    counts = {"files in the snapshot": len(state.live)}
    chosen = partitions_of(table, state.live, where)
    counts["after partitions"] = sum(len(files.entries) for _, files in chosen)
    chosen = buckets_through(table, chosen, where)
    if table.options.get(r.SCAN_PLAN_SORT_PARTITION):
        chosen = _sorted_by_partition(table, chosen)
    counts["after buckets"] = sum(len(files.entries) for _, files in chosen)
    splits: list[Split] = []
    schema_ids: set[int] = set()
    target = table.options.get(r.SOURCE_SPLIT_TARGET_SIZE)
    directories: dict[bytes, str] = {}
    indexes = IndexQuestions(table, env, where)
    store = SchemaStore(table.paths, env)
    for (partition, bucket), files in chosen:
        if bucket < 0:  # postponed rows are not part of the table yet
            continue
        if partition not in directories:
            directories[partition] = table.partition_directory(partition)
        directory = table.paths.bucket_directory(directories[partition], bucket)
        held = vectors.get((partition, bucket), NO_VECTORS)
        if table.keyed:
            splits += _keyed_splits(
                table,
                env,
                directory,
                partition,
                bucket,
                files,
                held,
                where,
                indexes,
                target,
                compacted_only,
                schema_ids,
            )
        else:
            found = _append_splits(table, directory, partition, bucket, files, held, where, indexes, target, store)
            schema_ids |= {file.schema_id for split in found for file in split.files}
            splits += found
    left = sum(len(section) for split in splits for section in split.sections)
    counts["after keys and statistics"] = left + indexes.skipped
    if indexes.asked:
        counts["after file indexes"] = left
    schemas = columns_of(table, env, schema_ids)
    return Plan(state.snapshot, ReadJob(table, tuple(columns), where, schemas, what), tuple(splits), counts)


def partition_values(table: TableDef, partitions: Sequence[bytes]) -> list[tuple[Any, ...]]:
    """Return the stored values of serialized partitions."""
    return [deserialize(partition, table.partition_types) for partition in partitions]


def partitions_table(table: TableDef, partitions: Sequence[bytes]) -> pa.Table:
    """Return serialized partitions as a table of the partition columns, one row each."""
    if not table.schema.partition_keys:
        return without_columns(len(partitions))
    values = partition_values(table, partitions)
    return pa.table(
        {
            name: stored_to_arrow([row[i] for row in values], kind)
            for i, (name, kind) in enumerate(zip(table.schema.partition_keys, table.partition_types, strict=True))
        }
    )


def partitions_of(table: TableDef, live: LiveFiles, where: Predicate | None) -> list[tuple[BucketId, BucketFiles]]:
    kept = partitions_through(table, {partition for partition, _ in live.buckets}, partition_filter(table, where))
    return [(bucket, files) for bucket, files in live.buckets.items() if bucket[0] in kept]


def partition_filter(table: TableDef, where: Predicate | None) -> Predicate | None:
    """Return the part of a filter that looks at partition columns alone."""
    names = set(table.schema.partition_keys)
    if where is None or not names:
        return None
    return conjunction([part for part in conjuncts(where) if part.columns and part.columns <= names])


def partitions_through(table: TableDef, partitions: Collection[bytes], where: Predicate | None) -> set[bytes]:
    """Return which serialized partitions a filter on partition columns lets through."""
    if not partitions or where is None:
        return set(partitions)
    found = list(partitions)
    mask = np.asarray(where.mask(partitions_table(table, found)).fill_null(False))
    return {partition for partition, keep in zip(found, mask.tolist(), strict=True) if keep}


def buckets_through(
    table: TableDef, chosen: list[tuple[BucketId, BucketFiles]], where: Predicate | None
) -> list[tuple[BucketId, BucketFiles]]:
    key = table.schema.bucket_key
    if where is None or not key or not set(key) <= where.columns:
        return chosen
    pinned = points(where, key)
    if pinned is None:
        return chosen
    kinds = [table.schema.field(name).type for name in key]
    columns = [stored_to_arrow([row[i] for row in pinned], kind) for i, kind in enumerate(kinds)]
    keys = pa.table(columns, names=list(key))
    wanted: dict[int, set[int]] = {}
    kept = []
    for bucket, files in chosen:
        total = spread([files])
        if not total:
            kept.append((bucket, files))
            continue
        if total not in wanted:
            wanted[total] = set(bucket_numbers(table, keys, total).tolist())
        if bucket[1] in wanted[total]:
            kept.append((bucket, files))
    return kept


def _sorted_by_partition(
    table: TableDef, chosen: list[tuple[BucketId, BucketFiles]]
) -> list[tuple[BucketId, BucketFiles]]:
    """Return buckets by the values of their partition; those of one partition stay as they are."""
    partitions = list({partition for (partition, _), _ in chosen})
    keys = {
        partition: sort_key(values, table.partition_types)
        for partition, values in zip(partitions, partition_values(table, partitions), strict=True)
    }
    return sorted(chosen, key=lambda item: keys[item[0][0]])


def _append_splits(
    table: TableDef,
    directory: str,
    partition: bytes,
    bucket: int,
    files: BucketFiles,
    vectors: BucketVectors,
    where: Predicate | None,
    indexes: IndexQuestions,
    target: int,
    store: SchemaStore,
) -> list[Split]:
    keyed = [entry.file.name for entry in files.entries if entry.file.min_key[:4] != EMPTY_ROW[:4]]
    if keyed:  # were they read as they stand, old versions of rows would come back
        path = table.paths.schema(table.schema.id)
        raise FormatError(
            f"cannot read bucket {bucket} of '{table.name}': {len(keyed)} of its {len(files.entries)} files are "
            "sorted by a key "
            f"(first: '{keyed[0]}'), and the schema '{path}' has none. Restore the schema file.",
            path=path,
        )
    entries = by_stats(table, list(files.entries), where, store)
    whole = not _columns_apart([entry.file for entry in files.entries])
    if whole:
        asked = indexes.may_match(directory, [entry.file for entry in entries])
        entries = [entry for entry, kept in zip(entries, asked.tolist(), strict=True) if kept]
    if table.bucket > 0:
        entries.sort(key=lambda entry: entry.file.min_sequence)
    parts: list[tuple[tuple[DataFile, ...], bool, int]]
    parts = [((entry.file,), whole, entry.file.size) for entry in entries]
    return _packed(directory, partition, bucket, parts, vectors, target)


def _columns_apart(files: Sequence[DataFile]) -> bool:
    """Return whether rows of one id may lie in several files, some of their columns in each."""
    if any(file.write_columns is not None for file in files):
        return True
    ranges = sorted((f.first_row_id, f.first_row_id + f.row_count) for f in files if f.first_row_id is not None)
    return any(low < end for (_, end), (low, _) in pairwise(ranges))


def unseen_files(table: TableDef, env: Env, live: LiveFiles) -> int:
    """Return how many live files no read looks at yet: their rows show once a compaction takes them up."""
    postponed = sum(len(files.entries) for (_, bucket), files in live.buckets.items() if bucket < 0)
    if not table.keyed or not hides_level_0(table.options):
        return postponed
    waiting = [entry.file.schema_id for entry in live if entry.file.level == 0 and entry.bucket >= 0]
    seen = unmarked_schemas(table, env, set(waiting)) if is_masked(table.options) else ()
    return postponed + sum(schema_id not in seen for schema_id in waiting)


def _unmarked(table: TableDef, env: Env, known: BucketColumns) -> np.ndarray:
    """Return, for each file of a bucket, whether reads have to merge it although vectors are on."""
    if not is_masked(table.options) or (known.schema_ids == table.schema.id).all():
        return np.zeros(len(known.files), np.bool_)
    ids = unmarked_schemas(table, env, set(known.schema_ids.tolist()))
    return np.isin(known.schema_ids, list(ids))


def _read_together(low: Sequence[pa.Array], high: Sequence[pa.Array], alone: np.ndarray) -> list[np.ndarray]:
    """Return positions of n files in groups to read: each by itself where all of a section are to be read `alone`."""
    if alone.all():
        return list(np.arange(len(alone))[:, None])
    found = sections(*dense_ranks(low, high))
    if not alone.any():
        return found
    groups: list[np.ndarray] = []
    for members in found:
        groups += list(members[:, None]) if alone[members].all() else [members]
    return groups


def _keyed_splits(
    table: TableDef,
    env: Env,
    directory: str,
    partition: bytes,
    bucket: int,
    files: BucketFiles,
    vectors: BucketVectors,
    where: Predicate | None,
    indexes: IndexQuestions,
    target: int,
    compacted_only: bool,
    schema_ids: set[int],
) -> list[Split]:
    """Return the splits of a bucket of a table with a key; adds the schemas of their files to `schema_ids`."""
    known = bucket_columns(table, env, (partition, bucket), files.entries)
    unmarked = _unmarked(table, env, known)
    alone = np.full(len(known.files), compacted_only or is_masked(table.options))
    keep = np.ones(len(known.files), np.bool_)
    if compacted_only:
        keep = known.levels > 0
    elif hides_level_0(table.options):
        keep = (known.levels > 0) | unmarked
        alone &= ~unmarked
    narrow = key_filter(where, table.key)
    if narrow is not None:
        keep &= _may_match_keys(table, narrow, known.low[0], known.high[0], known.row_counts)
    places = np.flatnonzero(keep)
    # A file without the keys of the filter holds no version of them, so the others are merged without it.
    places = places[indexes.may_match(directory, [known.files[i] for i in places.tolist()], table.key)]
    if not len(places):
        return []
    low, high = known.low, known.high
    if len(places) < len(keep):
        low, high = [c.take(pa.array(places)) for c in low], [c.take(pa.array(places)) for c in high]
    parts: list[tuple[tuple[DataFile, ...], bool, int]] = []
    for members in _read_together(low, high, alone[places]):
        if len(members) == 1:
            place = int(places[members[0]])
            file = known.files[place]
            raw = file.delete_row_count == 0
            if (
                raw
                and where is not None
                and not by_stats(table, [files.entries[place]], where, SchemaStore(table.paths, env))
            ):
                continue
            parts.append(((file,), raw, file.size))
            schema_ids.add(file.schema_id)
        else:
            group = np.sort(places[members])  # as they were committed: it settles equal numbers
            parts.append((tuple([known.files[i] for i in group.tolist()]), False, int(known.sizes[group].sum())))
            schema_ids |= known.schemas_of(group)
    plain = [i for i, (_, raw, _) in enumerate(parts) if raw]
    others = {field.name for field in table.schema.fields} - set(table.key)
    asked = indexes.may_match(directory, [parts[i][0][0] for i in plain], others)
    skipped = {i for i, kept in zip(plain, asked.tolist(), strict=True) if not kept}
    parts = [part for i, part in enumerate(parts) if i not in skipped]
    return _packed(directory, partition, bucket, parts, vectors, target)


def may_concern(table: TableDef, entry: ManifestEntry, where: Predicate | None) -> bool:
    """Return whether a data file may hold a row of a filter, or another version of such a row; from metadata alone."""
    alone = EMPTY.apply([replace(entry, kind=ADD)], source=f"'{table.name}'")
    if not buckets_through(table, partitions_of(table, alone, where), where):
        return False
    if not table.keyed:
        return bool(by_stats(table, [entry], where))
    narrow = key_filter(where, table.key)
    if narrow is None or entry.bucket < 0 or entry.file.schema_id != table.schema.id:
        return True
    low, high = (deserialize_columns([key], table.key_types)[0] for key in (entry.file.min_key, entry.file.max_key))
    return bool(_may_match_keys(table, narrow, low, high, np.array([entry.file.row_count], np.int64))[0])


def _may_match_keys(
    table: TableDef, narrow: Predicate, low: pa.Array, high: pa.Array, row_counts: np.ndarray
) -> np.ndarray:
    """Return which files may hold a key of the filter. Only the first key column is bounded by first and last key.

    Args:
        low, high: the first key column of the first and the last key of each file.
    """
    name = table.key[0]
    count = len(row_counts)
    first = conjunction([part for part in conjuncts(narrow) if part.columns == {name}])
    if first is None or table.key_types[0].nullable:
        return np.ones(count, np.bool_)
    if isinstance(table.key_types[0], t.Float | t.Double):
        return np.ones(count, np.bool_)
    nulls = np.zeros(count, np.int64)
    return may_match_many(first, {name: low}, {name: high}, {name: nulls}, row_counts)


def by_stats(
    table: TableDef, entries: list[ManifestEntry], where: Predicate | None, store: SchemaStore | None = None
) -> list[ManifestEntry]:
    """Return the files whose value statistics may match; for files whose rows nothing can shadow.

    Args:
        store: the schemas of the table, for files that were written with older ones; None: these may match.
    """
    if where is None or not entries:
        return entries
    return _chosen_by_stats(table, entries, where, may_match_many, unknown=True, store=store)


def surely_matching(table: TableDef, entries: list[ManifestEntry], where: Predicate | None) -> list[ManifestEntry]:
    """Return the files whose value statistics say that a filter keeps every row; None keeps all."""
    if where is None or not entries:
        return entries
    return _chosen_by_stats(table, entries, where, must_match_many, unknown=False)


def _chosen_by_stats(
    table: TableDef,
    entries: list[ManifestEntry],
    where: Predicate,
    question: Callable[..., np.ndarray],
    *,
    unknown: bool,
    store: SchemaStore | None = None,
) -> list[ManifestEntry]:
    """Return the files of which the answer to a question about their statistics is yes.

    Args:
        question: `may_match_many` or `must_match_many`.
        unknown: the answer where there are no statistics of columns that the filter looks at.
        store: see `by_stats`.
    """
    groups: dict[tuple[int, tuple[str, ...] | None], list[int]] = {}
    for i, entry in enumerate(entries):
        written = entry.file.schema_id
        if written == table.schema.id or (store is not None and written < table.schema.id):
            groups.setdefault((written, entry.file.value_stats_columns), []).append(i)
    tested = [field for field in table.schema.fields if field.name in where.columns and not t.is_nested(field.type)]
    keep = np.full(len(entries), unknown)
    for (written, names), members in groups.items():
        fields, stored, lacking = table.schema.fields, {field.name: field.name for field in tested}, list[t.Field]()
        if store is not None and written < table.schema.id:
            fields = store.load(written).fields
            seen = _seen_as(tested, fields)
            if seen is None:
                continue
            stored, lacking = seen
        kept = fields if names is None else tuple(f for name in names for f in fields if f.name == name)
        places = {field.name: i for i, field in enumerate(kept)}
        used = {name: places[own] for name, own in stored.items() if own in places}
        files = [entries[i].file for i in members]
        stats = _stats_columns(files, kept, used) if used else None
        if stats is None and not lacking:
            continue
        low, high, nulls = stats or ({}, {}, {})
        rows = np.array([file.row_count for file in files], np.int64)
        for absent in lacking:
            low[absent.name] = high[absent.name] = pa.nulls(len(files), arrow_type(absent.type))
            nulls[absent.name] = rows
        keep[members] = question(where, low, high, nulls, rows)
    return [entry for entry, kept in zip(entries, keep.tolist(), strict=True) if kept]


def _seen_as(tested: Sequence[t.Field], stored: Sequence[t.Field]) -> tuple[dict[str, str], list[t.Field]] | None:
    """Return how columns are called in files of an older schema, and those that are null since these files lack them.

    Columns whose type changed are in neither. None: some cannot be read, which the read then says.
    """
    try:
        found = Evolution.plan(tested, stored, name="")
    except UnsupportedError:
        return None
    lacking = [field for field, source in zip(tested, found.sources, strict=True) if source is None]
    return {name: own.name for name, own in found.unchanged.items()}, lacking


def _stats_columns(
    files: list[DataFile], fields: Sequence[t.Field], used: Mapping[str, int]
) -> tuple[dict[str, pa.Array], dict[str, pa.Array], dict[str, np.ndarray]] | None:
    """Return lower bounds, upper bounds and null counts of some columns, by name; None: some file has none.

    Args:
        fields: the columns that the statistics are of.
        used: by name, the place of a column among these.
    """
    kinds = [f.type.with_nullable(True) for f in fields]
    if any(len(f.value_stats.min_values) < 12 or f.value_stats.min_values[:4] == b"\0\0\0\0" for f in files):
        return None  # some writer kept none
    low = deserialize_columns([f.value_stats.min_values for f in files], kinds)
    high = deserialize_columns([f.value_stats.max_values for f in files], kinds)
    nulls = {}
    for name, i in used.items():
        counts = [
            f.value_stats.null_counts[i] if f.value_stats.null_counts and len(f.value_stats.null_counts) > i else None
            for f in files
        ]
        nulls[name] = np.array([-1 if c is None else c for c in counts], np.int64)
    return {name: low[i] for name, i in used.items()}, {name: high[i] for name, i in used.items()}, nulls


def _packed(
    directory: str,
    partition: bytes,
    bucket: int,
    parts: list[tuple[tuple[DataFile, ...], bool, int]],
    vectors: BucketVectors,
    target: int,
) -> list[Split]:
    """Return sections packed into splits of about the target size, raw ones apart from those to merge.

    Args:
        parts: the files of each section, whether they are read as they stand, and their bytes.
    """
    splits: list[Split] = []

    def settle(held: list[tuple[DataFile, ...]], raw: bool) -> None:
        names = [file.name for files in held for file in files] if vectors.by_file else ()
        splits.append(Split(directory, partition, bucket, tuple(held), raw, vectors.of(names)))

    for raw in (True, False):
        held: list[tuple[DataFile, ...]] = []
        size = 0
        for files, is_raw, weight in parts:
            if is_raw != raw:
                continue
            if held and size + weight > target:
                settle(held, raw)
                held, size = [], 0
            held.append(files)
            size += weight
        if held:
            settle(held, raw)
    return splits

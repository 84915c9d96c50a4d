"""A snapshot and a filter -> the splits to read.

Files are left out, in this order: by partition (exactly), by bucket (when the filter pins the bucket key), by
key range, and, where no merge is needed, by the statistics of any column. What pruning leaves is read and
filtered exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from merganser.codec.binary_row import deserialize, deserialize_columns, stored_to_arrow
from merganser.codec.hashing import buckets
from merganser.codec.stats import EMPTY_ROW
from merganser.codec.stored import sort_key
from merganser.errors import FormatError
from merganser.lsm.levels import dense_ranks, sections
from merganser.meta.data_file import DataFile, ManifestEntry
from merganser.meta.live_files import BucketFiles, BucketId, LiveFiles
from merganser.meta.schemas import SchemaStore
from merganser.meta.snapshot import Snapshot
from merganser.meta.table_def import TableDef
from merganser.meta.table_state import TableState
from merganser.options import read as r
from merganser.options import write as w
from merganser.scan.read import key_filter
from merganser.scan.split import ReadJob, Split
from merganser.schema import types as t
from merganser.schema.predicate import Predicate, conjunction, conjuncts, points
from merganser.schema.prune import may_match_many
from merganser.storage.env import Env
from merganser.storage.paths import join


@dataclass(frozen=True)
class Plan:
    """What a scan reads.

    Attributes:
        snapshot: the snapshot that is read; None of an empty table.
        job: what every worker must know.
        splits: the portions.
        counts: files left after each step of pruning, by step, for `explain`.
    """

    snapshot: Snapshot | None
    job: ReadJob
    splits: tuple[Split, ...]
    counts: dict[str, int] = field(default_factory=dict)


def plan(table: TableDef, env: Env, state: TableState, *, columns: Sequence[t.Field], where: Predicate | None) -> Plan:
    """Return the splits of a snapshot that may hold rows of the filter.

    Raises:
        FormatError: an entry of a manifest, or a schema that files refer to, is damaged or missing.
    """
    try:
        return _planned(table, env, state, columns, where)
    except FormatError as error:
        if "path" in error.context:
            raise
        path = join(table.paths.root, "manifest")
        raise FormatError(
            f"cannot plan a read of '{table.name}': an entry of its manifests in '{path}' is damaged: {error}",
            path=path,
        ) from error


def _planned(table: TableDef, env: Env, state: TableState, columns: Sequence[t.Field], where: Predicate | None) -> Plan:
    counts = {"files in the snapshot": len(state.live)}
    chosen = _by_partition(table, state.live, where)
    counts["after partitions"] = sum(len(files.entries) for _, files in chosen)
    chosen = _by_bucket(table, chosen, where)
    if table.options.get(r.SCAN_PLAN_SORT_PARTITION):
        chosen = _sorted_by_partition(table, chosen)
    counts["after buckets"] = sum(len(files.entries) for _, files in chosen)
    splits: list[Split] = []
    target = table.options.get(r.SOURCE_SPLIT_TARGET_SIZE)
    directories: dict[bytes, str] = {}
    for (partition, bucket), files in chosen:
        if bucket < 0:  # postponed rows are not part of the table yet
            continue
        if partition not in directories:
            directories[partition] = table.partition_directory(partition)
        directory = table.paths.bucket_directory(directories[partition], bucket)
        make = _keyed_splits if table.keyed else _append_splits
        splits.extend(make(table, directory, bucket, files, where, target))
    counts["after keys and statistics"] = sum(len(split.files) for split in splits)
    schemas = {table.schema.id: table.schema.fields}
    store = SchemaStore(table.paths, env)
    for schema_id in {file.schema_id for split in splits for section in split.sections for file in section} - set(
        schemas
    ):
        schemas[schema_id] = store.load(schema_id).fields
    return Plan(state.snapshot, ReadJob(table, tuple(columns), where, schemas), tuple(splits), counts)


def partition_values(table: TableDef, partitions: Sequence[bytes]) -> list[tuple[Any, ...]]:
    """Return the stored values of serialized partitions."""
    return [deserialize(partition, table.partition_types) for partition in partitions]


def partitions_table(table: TableDef, partitions: Sequence[bytes]) -> pa.Table:
    """Return serialized partitions as a table of the partition columns, one row each."""
    values = partition_values(table, partitions)
    return pa.table(
        {
            name: stored_to_arrow([row[i] for row in values], kind)
            for i, (name, kind) in enumerate(zip(table.schema.partition_keys, table.partition_types, strict=True))
        }
    )


def _by_partition(table: TableDef, live: LiveFiles, where: Predicate | None) -> list[tuple[BucketId, BucketFiles]]:
    names = set(table.schema.partition_keys)
    narrow = (
        None
        if where is None or not names
        else conjunction([p for p in conjuncts(where) if p.columns and p.columns <= names])
    )
    if narrow is None:
        return list(live.buckets.items())
    partitions = list(dict.fromkeys(partition for partition, _ in live.buckets))
    if not partitions:
        return []
    mask = np.asarray(narrow.mask(partitions_table(table, partitions)).fill_null(False))
    kept = {partition for partition, keep in zip(partitions, mask.tolist(), strict=True) if keep}
    return [(bucket, files) for bucket, files in live.buckets.items() if bucket[0] in kept]


def _by_bucket(
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
    function = table.options.get(w.BUCKET_FUNCTION)
    wanted: dict[int, set[int]] = {}
    kept = []
    for bucket, files in chosen:
        totals = {entry.total_buckets for entry in files.entries}
        total = totals.pop()
        if totals or total <= 0:  # dynamic buckets, or a mix left by another engine: no rule says where a key lies
            kept.append((bucket, files))
            continue
        if total not in wanted:
            wanted[total] = set(buckets(columns, kinds, total, function).tolist()) if pinned else set()
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
    table: TableDef, directory: str, bucket: int, files: BucketFiles, where: Predicate | None, target: int
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
    entries = _by_stats(table, list(files.entries), where)
    if table.bucket > 0:
        entries.sort(key=lambda entry: entry.file.min_sequence)
    return _packed(directory, bucket, [((entry.file,), True) for entry in entries], target)


def _keyed_splits(
    table: TableDef, directory: str, bucket: int, files: BucketFiles, where: Predicate | None, target: int
) -> list[Split]:
    entries = list(files.entries)
    if table.options.get(w.MERGE_ENGINE) == "first-row":  # rows come to light with the compaction of their commit
        entries = [entry for entry in entries if entry.file.level > 0]
    kinds = table.key_types
    low = deserialize_columns([entry.file.min_key for entry in entries], kinds)
    high = deserialize_columns([entry.file.max_key for entry in entries], kinds)
    narrow = key_filter(where, table.key)
    if narrow is not None:
        keep = np.flatnonzero(_may_match_keys(table, narrow, low, high, entries))
        entries = [entries[i] for i in keep.tolist()]
        low, high = [c.take(pa.array(keep)) for c in low], [c.take(pa.array(keep)) for c in high]
    if not entries:
        return []
    parts = []
    for members in sections(*dense_ranks(low, high)):
        group = [entries[i] for i in sorted(members.tolist())]  # as they were committed: it settles equal numbers
        raw = len(group) == 1 and group[0].file.delete_row_count == 0
        if raw and where is not None and not _by_stats(table, group, where):
            continue
        parts.append((tuple(entry.file for entry in group), raw))
    return _packed(directory, bucket, parts, target)


def _may_match_keys(
    table: TableDef, narrow: Predicate, low: list[pa.Array], high: list[pa.Array], entries: list[ManifestEntry]
) -> np.ndarray:
    """Return which files may hold a key of the filter. Only the first key column is bounded by first and last key."""
    name = table.key[0]
    counts = np.array([entry.file.row_count for entry in entries], np.int64)
    first = conjunction([part for part in conjuncts(narrow) if part.columns == {name}])
    if first is None or table.key_types[0].nullable:
        return np.ones(len(entries), np.bool_)
    if isinstance(table.key_types[0], t.Float | t.Double):
        return np.ones(len(entries), np.bool_)
    return may_match_many(first, {name: low[0]}, {name: high[0]}, {name: np.zeros(len(entries), np.int64)}, counts)


def _by_stats(table: TableDef, entries: list[ManifestEntry], where: Predicate | None) -> list[ManifestEntry]:
    """Return the files whose value statistics may match; for files whose rows nothing can shadow."""
    if where is None or not entries:
        return entries
    groups: dict[tuple[int, tuple[str, ...] | None], list[int]] = {}
    for i, entry in enumerate(entries):
        if entry.file.schema_id == table.schema.id:  # older schemas: names and types may differ, so no pruning
            groups.setdefault((entry.file.schema_id, entry.file.value_stats_columns), []).append(i)
    keep = np.ones(len(entries), np.bool_)
    for (_, names), members in groups.items():
        fields = (
            table.schema.fields
            if names is None
            else tuple(f for name in names for f in table.schema.fields if f.name == name)
        )
        used = [i for i, f in enumerate(fields) if f.name in where.columns and not t.is_nested(f.type)]
        if not used:
            continue
        files = [entries[i].file for i in members]
        stats = _stats_columns(files, fields, used)
        if stats is not None:
            keep[members] = may_match_many(where, *stats, np.array([file.row_count for file in files], np.int64))
    return [entry for entry, kept in zip(entries, keep.tolist(), strict=True) if kept]


def _stats_columns(
    files: list[DataFile], fields: Sequence[t.Field], used: list[int]
) -> tuple[dict[str, pa.Array], dict[str, pa.Array], dict[str, np.ndarray]] | None:
    kinds = [f.type.with_nullable(True) for f in fields]
    if any(len(f.value_stats.min_values) < 12 or f.value_stats.min_values[:4] == b"\0\0\0\0" for f in files):
        return None  # some writer kept none
    low = deserialize_columns([f.value_stats.min_values for f in files], kinds)
    high = deserialize_columns([f.value_stats.max_values for f in files], kinds)
    nulls = {}
    for i in used:
        counts = [
            f.value_stats.null_counts[i] if f.value_stats.null_counts and len(f.value_stats.null_counts) > i else None
            for f in files
        ]
        nulls[fields[i].name] = np.array([-1 if c is None else c for c in counts], np.int64)
    return {fields[i].name: low[i] for i in used}, {fields[i].name: high[i] for i in used}, nulls


def _packed(directory: str, bucket: int, parts: list[tuple[tuple[DataFile, ...], bool]], target: int) -> list[Split]:
    """Return sections packed into splits of about the target size, raw ones apart from those to merge."""
    splits: list[Split] = []
    for raw in (True, False):
        held: list[tuple[DataFile, ...]] = []
        size = 0
        for files, is_raw in parts:
            if is_raw != raw:
                continue
            weight = sum(file.size for file in files)
            if held and size + weight > target:
                splits.append(Split(directory, bucket, tuple(held), raw))
                held, size = [], 0
            held.append(files)
            size += weight
        if held:
            splits.append(Split(directory, bucket, tuple(held), raw))
    return splits

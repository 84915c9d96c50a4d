"""System tables: what a table is made of, as rows.

Columns are those of the format's engines. Values of keys and statistics are text, as a person reads them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merganser.codec.binary_row import deserialize, deserialize_columns
from merganser.codec.data_format import format_of
from merganser.codec.file_index import decode_file_index
from merganser.codec.stats import SimpleStats
from merganser.errors import FormatError, NotFoundError, UnsupportedError
from merganser.files.index import file_index_path
from merganser.meta.consumers import ConsumerStore
from merganser.meta.data_file import SOURCE_COMPACT, DataFile, ManifestEntry
from merganser.meta.index_manifest import DELETION_VECTORS
from merganser.meta.lag import lag_of, records_behind
from merganser.meta.lineage import rescales
from merganser.meta.refs import BranchStore, TagStore
from merganser.meta.schemas import SchemaStore
from merganser.meta.snapshot import Snapshot
from merganser.meta.snapshots import SnapshotStore
from merganser.meta.table_def import TableDef
from merganser.meta.table_state import MetaReader
from merganser.options.registry import did_you_mean
from merganser.options.secrets import shown
from merganser.scan.views import VIEWS
from merganser.schema import types as t
from merganser.schema.cast_text import to_text
from merganser.storage.env import Env
from merganser.storage.paths import join, partition_text

_TIME: Final = pa.timestamp("ms", "UTC")
_SNAPSHOTS: Final = pa.schema(
    [
        ("snapshot_id", pa.int64()),
        ("schema_id", pa.int64()),
        ("commit_user", pa.string()),
        ("commit_identifier", pa.int64()),
        ("commit_kind", pa.string()),
        ("commit_time", _TIME),
        ("base_manifest_list", pa.string()),
        ("delta_manifest_list", pa.string()),
        ("changelog_manifest_list", pa.string()),
        ("total_record_count", pa.int64()),
        ("delta_record_count", pa.int64()),
        ("changelog_record_count", pa.int64()),
        ("watermark", pa.int64()),
        ("next_row_id", pa.int64()),
        ("operation", pa.string()),
        ("writer_version", pa.string()),
    ]
)
_TABLE_INDEXES: Final = pa.schema(
    [
        ("partition", pa.string()),
        ("bucket", pa.int32()),
        ("index_type", pa.string()),
        ("file_name", pa.string()),
        ("file_size", pa.int64()),
        ("row_count", pa.int64()),
        (
            "dv_ranges",
            pa.list_(
                pa.struct([("f0", pa.string()), ("f1", pa.int32()), ("f2", pa.int32()), ("_CARDINALITY", pa.int64())])
            ),
        ),
        ("row_range_start", pa.int64()),
        ("row_range_end", pa.int64()),
        ("index_field_id", pa.int32()),
        ("index_field_name", pa.string()),
    ]
)
_FILES: Final = pa.schema(
    [
        ("partition", pa.string()),
        ("bucket", pa.int32()),
        ("file_path", pa.string()),
        ("file_format", pa.string()),
        ("schema_id", pa.int64()),
        ("level", pa.int32()),
        ("record_count", pa.int64()),
        ("file_size_in_bytes", pa.int64()),
        ("min_key", pa.string()),
        ("max_key", pa.string()),
        ("null_value_counts", pa.string()),
        ("min_value_stats", pa.string()),
        ("max_value_stats", pa.string()),
        ("min_sequence_number", pa.int64()),
        ("max_sequence_number", pa.int64()),
        ("creation_time", pa.timestamp("ms")),
        ("deleteRowCount", pa.int64()),
        ("file_source", pa.string()),
        ("first_row_id", pa.int64()),
        ("write_cols", pa.list_(pa.string())),
    ]
)


def system_table(table: TableDef, env: Env, name: str, snapshot: Snapshot | None = None) -> pa.Table:
    """Return the rows of a system table.

    Args:
        name: what stands after the `$`, such as `snapshots`.
        snapshot: for tables that describe one snapshot; None: the newest.

    Raises:
        NotFoundError: there is no system table of this name.
    """
    check_system_name(table, name)
    return TABLES[name](table, env, snapshot)


def check_system_name(table: TableDef, name: str) -> None:
    """Refuse a name that no system table has."""
    if name not in TABLES:
        raise NotFoundError(
            f"there is no system table '${name}' of '{table.name}'. {did_you_mean(name, [*TABLES, *VIEWS])}",
            table=table.name,
        )


def _snapshots(table: TableDef, env: Env, snapshot: Snapshot | None) -> pa.Table:
    store = MetaReader(table.paths, env, table.name).snapshots
    found = [s for s in (store.get(i) for i in store.ids()) if s is not None]
    columns = [[_snapshot_value(s, name) for s in found] for name in _SNAPSHOTS.names]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, _SNAPSHOTS, strict=True)], schema=_SNAPSHOTS)


def _snapshot_value(snapshot: Snapshot, column: str) -> Any:
    return snapshot.id if column == "snapshot_id" else getattr(snapshot, column)


def _files(table: TableDef, env: Env, snapshot: Snapshot | None) -> pa.Table:
    reader = MetaReader(table.paths, env, table.name)
    state = reader.state(snapshot) if snapshot is not None else reader.latest()
    buckets = state.live.buckets
    partitions = _partitions_shown(table, [partition for partition, _ in buckets])
    files: list[DataFile] = []
    paths: list[str] = []
    of_partition: list[str] = []
    numbers: list[int] = []
    for ((partition, bucket), held), text in zip(buckets.items(), partitions, strict=True):
        directory = join(table.bucket_directory(partition, bucket), "")
        found = [entry.file for entry in held.entries]
        files += found
        paths += [file.external_path or f"{directory}/{file.name}" for file in found]
        of_partition += [text] * len(found)
        numbers += [bucket] * len(found)
    low, high, nulls = _file_stats_shown(table, SchemaStore(table.paths, env), files)
    columns: list[Any] = [
        of_partition,
        numbers,
        paths,
        [format_of(file.name) for file in files],
        [file.schema_id for file in files],
        [file.level for file in files],
        [file.row_count for file in files],
        [file.size for file in files],
        _keys_shown(table, [file.min_key for file in files]),
        _keys_shown(table, [file.max_key for file in files]),
        nulls,
        low,
        high,
        [file.min_sequence for file in files],
        [file.max_sequence for file in files],
        [file.creation_time_ms for file in files],
        [file.delete_row_count for file in files],
        ["COMPACT" if file.source == SOURCE_COMPACT else "APPEND" for file in files],
        [file.first_row_id for file in files],
        [file.write_columns for file in files],
    ]
    return pa.table([_column(c, f.type) for c, f in zip(columns, _FILES, strict=True)], schema=_FILES)


def _column(values: Any, kind: pa.DataType) -> pa.Array:
    return values if isinstance(values, pa.Array) else pa.array(values, kind)


def _file_stats_shown(
    table: TableDef, schemas: SchemaStore, files: Sequence[DataFile]
) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Return the smallest values, largest values and null counts of files, by the columns each has them of."""
    groups: dict[tuple[int, tuple[str, ...] | None], list[int]] = {}
    for i, file in enumerate(files):
        groups.setdefault((file.schema_id, file.value_stats_columns), []).append(i)
    parts = []
    for (schema_id, listed), members in groups.items():
        fields = table.schema.fields if schema_id == table.schema.id else schemas.load(schema_id).fields
        kinds = {field.name: field.type for field in fields}
        names = [name for name in (kinds if listed is None else listed) if name in kinds]
        parts.append(_stats_shown([files[i].value_stats for i in members], names, kinds))
    if not parts:
        return (pa.array([], pa.string()),) * 3
    places = pa.array(np.argsort(np.concatenate([np.array(members) for members in groups.values()])))
    low, high, nulls = (pa.concat_arrays(texts).take(places) for texts in zip(*parts, strict=True))
    return low, high, nulls


def _schemas(table: TableDef, env: Env, snapshot: Snapshot | None) -> pa.Table:
    store = SchemaStore(table.paths, env)
    found = [store.load(i) for i in store.ids()]
    return pa.table(
        {
            "schema_id": pa.array([s.id for s in found], pa.int64()),
            "fields": pa.array([json.dumps(json.loads(s.to_json())["fields"]) for s in found], pa.string()),
            "partition_keys": pa.array([json.dumps(s.partition_keys) for s in found], pa.string()),
            "primary_keys": pa.array([json.dumps(s.primary_keys) for s in found], pa.string()),
            "options": pa.array([json.dumps(dict(shown(s.options))) for s in found], pa.string()),
            "comment": pa.array([s.comment for s in found], pa.string()),
            "update_time": pa.array([s.time_millis for s in found], _TIME),
        }
    )


def _options(table: TableDef, env: Env, snapshot: Snapshot | None) -> pa.Table:
    items = sorted(shown(table.options).items())
    return pa.table(
        {"key": pa.array([k for k, _ in items], pa.string()), "value": pa.array([v for _, v in items], pa.string())}
    )


def _manifests(table: TableDef, env: Env, snapshot: Snapshot | None) -> pa.Table:
    reader = MetaReader(table.paths, env, table.name)
    found = reader.manifests(snapshot or reader.snapshots.latest())
    kinds = dict(zip(table.schema.partition_keys, table.partition_types, strict=True))
    low, high, _ = _stats_shown([m.partition_stats for m in found], list(kinds), kinds)
    return pa.table(
        {
            "file_name": pa.array([m.name for m in found], pa.string()),
            "file_size": pa.array([m.size for m in found], pa.int64()),
            "num_added_files": pa.array([m.added for m in found], pa.int64()),
            "num_deleted_files": pa.array([m.deleted for m in found], pa.int64()),
            "schema_id": pa.array([m.schema_id for m in found], pa.int64()),
            "min_partition_stats": low,
            "max_partition_stats": high,
            "min_row_id": pa.array([m.min_row_id for m in found], pa.int64()),
            "max_row_id": pa.array([m.max_row_id for m in found], pa.int64()),
        }
    )


def _buckets(table: TableDef, env: Env, snapshot: Snapshot | None) -> pa.Table:
    reader = MetaReader(table.paths, env, table.name)
    state = reader.state(snapshot) if snapshot is not None else reader.latest()
    partitions = _partitions_shown(table, [partition for partition, _ in state.live.buckets])
    rows = [
        (
            text,
            bucket,
            sum(e.file.row_count for e in files.entries),
            sum(e.file.size for e in files.entries),
            len(files.entries),
            max((e.file.creation_time_ms or 0 for e in files.entries), default=0),
        )
        for ((_, bucket), files), text in zip(state.live.buckets.items(), partitions, strict=True)
    ]
    schema = pa.schema(
        [
            ("partition", pa.string()),
            ("bucket", pa.int32()),
            ("record_count", pa.int64()),
            ("file_size_in_bytes", pa.int64()),
            ("file_count", pa.int64()),
            ("last_update_time", pa.timestamp("ms")),
        ]
    )
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)


_PARTITIONS: Final = pa.schema(
    [
        ("partition", pa.string()),
        ("record_count", pa.int64()),
        ("file_size_in_bytes", pa.int64()),
        ("file_count", pa.int64()),
        ("last_update_time", _TIME),
        ("created_at", _TIME),
        ("created_by", pa.string()),
        ("updated_by", pa.string()),
        ("options", pa.string()),
        ("total_buckets", pa.int32()),
        ("done", pa.bool_()),
        ("deleted_record_count", pa.int64()),
    ]
)


def _partitions(table: TableDef, env: Env, snapshot: Snapshot | None) -> pa.Table:
    """Return the partitions that have files. Who made them and whether they are done is stored nowhere: null."""
    reader = MetaReader(table.paths, env, table.name)
    state = reader.state(snapshot) if snapshot is not None else reader.latest()
    files: dict[bytes, list[ManifestEntry]] = {}
    for (partition, _), held in state.live.buckets.items():
        files.setdefault(partition, []).extend(held.entries)
    texts = _partitions_shown(table, list(files))
    rows = []
    for text, entries in zip(texts, files.values(), strict=True):
        times = [entry.file.creation_time_ms for entry in entries if entry.file.creation_time_ms is not None]
        rows.append(
            (
                text,
                sum(entry.file.row_count for entry in entries),
                sum(entry.file.size for entry in entries),
                len(entries),
                max(times, default=None),
                min(times, default=None),
                None,
                None,
                None,
                max(entry.total_buckets for entry in entries),
                None,
                sum(entry.file.delete_row_count or 0 for entry in entries),
            )
        )
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(_PARTITIONS)
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, _PARTITIONS, strict=True)], schema=_PARTITIONS)


_KEY_RANGES: Final = (
    "partition", "bucket", "file_path", "file_format", "schema_id", "level", "record_count", "file_size_in_bytes",
    "min_key", "max_key", "first_row_id",
)  # fmt: skip


def _file_key_ranges(table: TableDef, env: Env, snapshot: Snapshot | None) -> pa.Table:
    return _files(table, env, snapshot).select(list(_KEY_RANGES))


_FILE_INDEXES: Final = pa.schema(
    [
        ("partition", pa.string()),
        ("bucket", pa.int32()),
        ("file_path", pa.string()),
        ("file_size_in_bytes", pa.int64()),
        ("record_count", pa.int64()),
        ("schema_id", pa.int64()),
        ("column_name", pa.string()),
        ("index_type", pa.string()),
        ("storage_type", pa.string()),
        ("index_file_path", pa.string()),
        ("index_size_in_bytes", pa.int64()),
        ("index_container_size_in_bytes", pa.int64()),
        ("is_empty", pa.bool_()),
    ]
)


def _file_indexes(table: TableDef, env: Env, snapshot: Snapshot | None) -> pa.Table:
    """Return the indexes of data files, those in manifests and those in files beside them."""
    reader = MetaReader(table.paths, env, table.name)
    state = reader.state(snapshot) if snapshot is not None else reader.latest()
    partitions = _partitions_shown(table, [partition for partition, _ in state.live.buckets])
    rows: list[tuple[Any, ...]] = []
    for ((partition, bucket), held), text in zip(state.live.buckets.items(), partitions, strict=True):
        directory = table.bucket_directory(partition, bucket)
        for file in (entry.file for entry in held.entries):
            path = file_index_path(directory, file)
            if path is None:
                continue
            inside = file.embedded_index is not None
            data = file.embedded_index if file.embedded_index is not None else env.storage.read(path)
            own = file.external_path or join(directory, file.name)
            where = ("EMBEDDED", None) if inside else ("FILE", path)
            rows += [
                (text, bucket, own, file.size, file.row_count, file.schema_id, index.column, index.kind, *where,
                 len(index.body or b""), len(data), index.body is None)
                for index in decode_file_index(data, path=path)
            ]  # fmt: skip
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(_FILE_INDEXES)
    made = [pa.array(c, f.type) for c, f in zip(columns, _FILE_INDEXES, strict=True)]
    return pa.table(made, schema=_FILE_INDEXES)


_AGGREGATION_FIELDS: Final = pa.schema(
    [
        ("field_name", pa.string()),
        ("field_type", pa.string()),
        ("function", pa.string()),
        ("function_options", pa.string()),
        ("comment", pa.string()),
    ]
)


def _aggregation_fields(table: TableDef, env: Env, snapshot: Snapshot | None) -> pa.Table:
    """Return the columns with the values and the names of their options `fields.<name>.*`, as JSON lists."""
    rows = []
    for field in table.schema.user_fields:
        start = f"fields.{field.name}."
        own = {key: str(value) for key, value in sorted(table.schema.options.items()) if key.startswith(start)}
        functions, names = json.dumps(list(own.values())), json.dumps([key.removeprefix(start) for key in own])
        rows.append((field.name, str(field.type), functions, names, field.description))
    columns = list(zip(*rows, strict=True))
    made = [pa.array(c, f.type) for c, f in zip(columns, _AGGREGATION_FIELDS, strict=True)]
    return pa.table(made, schema=_AGGREGATION_FIELDS)


_STATISTICS: Final = pa.schema(
    [
        ("snapshot_id", pa.int64()),
        ("schema_id", pa.int64()),
        ("mergedRecordCount", pa.int64()),
        ("mergedRecordSize", pa.int64()),
        ("colstat", pa.string()),
    ]
)


def _statistics(table: TableDef, env: Env, snapshot: Snapshot | None) -> pa.Table:
    """Return the statistics that the newest snapshot names: one row, or none if the table was not analyzed."""
    reader = MetaReader(table.paths, env, table.name)
    found = snapshot if snapshot is not None else reader.latest().snapshot
    if found is None or found.statistics is None:
        return _STATISTICS.empty_table()
    path = table.paths.statistics(found.statistics)
    try:
        facts = json.loads(env.storage.read(path))
        row = [facts.get(key) for key in ("snapshotId", "schemaId", "mergedRecordCount", "mergedRecordSize")]
        row.append(json.dumps(facts.get("colStats") or {}))
        return pa.table([pa.array([v], f.type) for v, f in zip(row, _STATISTICS, strict=True)], schema=_STATISTICS)
    except (ValueError, AttributeError, pa.ArrowException) as error:
        raise FormatError(
            f"cannot read the statistics of '{table.name}': '{path}' is damaged: {error}.", path=path
        ) from error


def _tags(table: TableDef, env: Env, snapshot: Snapshot | None) -> pa.Table:
    found = TagStore(table.paths, env, table.name).list()
    return pa.table(
        {
            "tag_name": pa.array([tag.name for tag in found], pa.string()),
            "snapshot_id": pa.array([tag.snapshot_id for tag in found], pa.int64()),
            "schema_id": pa.array([tag.schema_id for tag in found], pa.int64()),
            "commit_time": pa.array([tag.commit_time for tag in found], _TIME),
            "record_count": pa.array([tag.record_count for tag in found], pa.int64()),
            "create_time": pa.array([tag.create_time for tag in found], _TIME),
            "time_retained": pa.array([_duration_shown(tag.time_retained) for tag in found], pa.string()),
        }
    )


def _branches(table: TableDef, env: Env, snapshot: Snapshot | None) -> pa.Table:
    found = BranchStore(table.paths, env, table.name).list()
    return pa.table(
        {
            "branch_name": pa.array([branch.name for branch in found], pa.string()),
            "create_time": pa.array([branch.create_time for branch in found], _TIME),
        }
    )


def _consumers(table: TableDef, env: Env, snapshot: Snapshot | None) -> pa.Table:
    found = ConsumerStore(table.paths, env, table.name).list()
    store = SnapshotStore(table.paths, env, table.name)
    newest = store.latest() if found else None
    lags = [lag_of(store, consumer.next_snapshot, newest) for consumer in found]
    records = [records_behind(table, env, consumer.next_snapshot, newest) for consumer in found]
    return pa.table(
        {
            "consumer_id": pa.array([consumer.id for consumer in found], pa.string()),
            "next_snapshot_id": pa.array([consumer.next_snapshot for consumer in found], pa.int64()),
            "lag_snapshots": pa.array([lag.snapshots for lag in lags], pa.int64()),
            "lag_seconds": pa.array([lag.seconds for lag in lags], pa.float64()),
            "lag_log_records": pa.array(records, pa.int64()),
            "last_update_time": pa.array([consumer.modified for consumer in found], _TIME),
        }
    )


def _rescales(table: TableDef, env: Env, snapshot: Snapshot | None) -> pa.Table:
    reader = MetaReader(table.paths, env, table.name)
    rows = [
        (one.snapshot.id, one.snapshot.commit_time, partition, *numbers)
        for one in rescales(reader, reader.snapshots.latest())
        for partition, numbers in sorted(one.partitions.items())
    ]
    ids, times, partitions, before, after = zip(*rows, strict=True) if rows else ((),) * 5
    return pa.table(
        {
            "snapshot_id": pa.array(ids, pa.int64()),
            "commit_time": pa.array(times, _TIME),
            "partition": pa.array(_partitions_shown(table, partitions), pa.string()),
            "from_buckets": pa.array(before, pa.int32()),
            "to_buckets": pa.array(after, pa.int32()),
        }
    )


def _duration_shown(duration: timedelta | None) -> str | None:
    """Return ISO 8601 text as other engines show it: hours, minutes and seconds, such as `PT72H`."""
    if duration is None:
        return None
    whole, micros = divmod(duration // timedelta(microseconds=1), 1_000_000)
    hours, minutes, seconds = whole // 3600, whole // 60 % 60, whole % 60
    fraction = f".{micros:06d}".rstrip("0") if micros else ""
    shown = f"{hours}H" if hours else ""
    shown += f"{minutes}M" if minutes else ""
    shown += f"{seconds}{fraction}S" if seconds or micros or not shown else ""
    return f"PT{shown}"


def _table_indexes(table: TableDef, env: Env, snapshot: Snapshot | None) -> pa.Table:
    reader = MetaReader(table.paths, env, table.name)
    found = reader.index(snapshot or reader.snapshots.latest())
    names: dict[int | None, str] = {field.id: field.name for field in table.schema.fields}
    rows = []
    partitions = _partitions_shown(table, [entry.partition for entry in found])
    for entry, partition in zip(found, partitions, strict=True):
        of_rows = entry.global_index or {}
        field_id = of_rows.get("_INDEX_FIELD_ID")
        vectors = [
            {"f0": v.data_file, "f1": v.offset, "f2": v.length, "_CARDINALITY": v.cardinality} for v in entry.vectors
        ]
        rows.append(
            (
                partition,
                entry.bucket,
                entry.index_type,
                entry.name,
                entry.size,
                entry.row_count,
                vectors if entry.index_type == DELETION_VECTORS else None,
                of_rows.get("_ROW_RANGE_START"),
                of_rows.get("_ROW_RANGE_END"),
                field_id,
                names.get(field_id),
            )
        )
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(_TABLE_INDEXES)
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, _TABLE_INDEXES, strict=True)], schema=_TABLE_INDEXES)


TABLES: Final[dict[str, Callable[[TableDef, Env, Snapshot | None], pa.Table]]] = {
    "snapshots": _snapshots,
    "files": _files,
    "schemas": _schemas,
    "options": _options,
    "manifests": _manifests,
    "buckets": _buckets,
    "partitions": _partitions,
    "file_key_ranges": _file_key_ranges,
    "file_indexes": _file_indexes,
    "aggregation_fields": _aggregation_fields,
    "statistics": _statistics,
    "tags": _tags,
    "branches": _branches,
    "consumers": _consumers,
    "rescales": _rescales,
    "table_indexes": _table_indexes,
}
"""The system tables, by name."""
OF_ONE_SNAPSHOT: Final = frozenset(
    ["files", "manifests", "buckets", "partitions", "file_key_ranges", "file_indexes", "statistics", "table_indexes"]
)
"""Those that describe one snapshot."""


def _partitions_shown(table: TableDef, partitions: Sequence[bytes]) -> list[str]:
    """Return serialized partitions as text."""
    if not table.schema.partition_keys:
        return ["{}"] * len(partitions)
    texts = _row_texts(partitions, table.partition_types)
    return _listed("{", [""] * len(texts), texts, "}", len(partitions)).to_pylist()  # type: ignore[no-any-return]


def _keys_shown(table: TableDef, keys: Sequence[bytes]) -> pa.Array:
    """Return serialized keys as text, null where there is none."""
    known = np.array([bool(key) for key in keys], np.bool_) & table.keyed
    texts = _row_texts([key for key, has in zip(keys, known.tolist(), strict=True) if has], table.key_types)
    shown = _listed("[", [""] * len(texts), texts, "]", int(known.sum()))
    return shown.take(pa.array(np.cumsum(known) - 1, mask=~known))


def _stats_shown(
    stats: Sequence[SimpleStats], names: Sequence[str], kinds: Mapping[str, t.DataType]
) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Return statistics of some columns as text: smallest values, largest values, null counts."""
    types = [kinds[name].with_nullable(True) for name in names]
    titles = [f"{name}=" for name in names]
    low, high = (
        _listed("{", titles, _row_texts([getattr(s, side) for s in stats], types), "}", len(stats))
        for side in ("min_values", "max_values")
    )
    unknown = (None,) * len(names)
    counted: dict[tuple[int | None, ...], str] = {}  # files differ in few counts, most often in none
    for one in stats:
        counts = one.null_counts or unknown
        if counts not in counted:
            pairs = zip(names, counts, strict=False)
            counted[counts] = "{" + ", ".join(f"{name}={count}" for name, count in pairs) + "}"
    return low, high, pa.array([counted[one.null_counts or unknown] for one in stats], pa.string())


def _listed(opening: str, titles: Sequence[str], texts: Sequence[pa.Array], closing: str, rows: int) -> pa.Array:
    """Return the texts of every row behind their titles, joined by commas, between two marks."""
    parts: list[Any] = []
    for i, (title, text) in enumerate(zip(titles, texts, strict=True)):
        parts += [(", " if i else opening) + title, text]
    if not parts:
        return pa.array([opening + closing] * rows, pa.string())
    return pc.binary_join_element_wise(*parts, closing, "")


def _row_texts(rows: Sequence[bytes], kinds: Sequence[t.DataType]) -> list[pa.Array]:
    """Return serialized rows as one column of text per field, `null` for nulls and for rows without fields."""
    if not rows:
        return [pa.array([], pa.string())] * len(kinds)
    try:
        columns = deserialize_columns(rows, kinds)
    except UnsupportedError:  # a timestamp that Arrow does not count, a type without values
        columns = []
    if not columns or any(t.is_nested(k) and c.null_count < len(c) for c, k in zip(columns, kinds, strict=True)):
        values = [deserialize(row, kinds) or (None,) * len(kinds) for row in rows]
        return [pa.array([_shown(row[i], kind) for row in values], pa.string()) for i, kind in enumerate(kinds)]
    return [_texts(column, kind).fill_null("null") for column, kind in zip(columns, kinds, strict=True)]


def _texts(values: pa.Array, kind: t.DataType) -> pa.Array:
    """Return values as text, as `_shown` does one by one."""
    if t.is_nested(kind):
        return pa.nulls(len(values), pa.string())
    if isinstance(kind, t.Binary | t.VarBinary):
        distinct = values.dictionary_encode()
        shown = pa.array([_shown(value, kind) for value in distinct.dictionary.to_pylist()], pa.string())
        return shown.take(distinct.indices)
    text = to_text(values, kind)
    return pc.if_else(pc.utf8_is_space(text), "", text) if isinstance(kind, t.Char | t.VarChar) else text


def _shown(value: Any, kind: t.DataType) -> str:
    if value is None:
        return "null"
    return partition_text(value, kind, default_name="", legacy=False) if value != "" else ""

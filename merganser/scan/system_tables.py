"""System tables: what a table is made of, as rows.

Columns are those of the format's engines. Values of keys and statistics are text, as a person reads them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final

import pyarrow as pa

from merganser.codec.binary_row import deserialize
from merganser.codec.data_format import format_of
from merganser.codec.stats import SimpleStats
from merganser.errors import NotFoundError
from merganser.meta.consumers import ConsumerStore
from merganser.meta.data_file import SOURCE_COMPACT
from merganser.meta.index_manifest import DELETION_VECTORS
from merganser.meta.refs import BranchStore, TagStore
from merganser.meta.schemas import SchemaStore
from merganser.meta.snapshot import Snapshot
from merganser.meta.table_def import TableDef
from merganser.meta.table_state import MetaReader
from merganser.options.registry import did_you_mean
from merganser.options.secrets import shown
from merganser.scan.plan import partition_values
from merganser.schema import types as t
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
            f"there is no system table '${name}' of '{table.name}'. {did_you_mean(name, list(TABLES))}",
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
    schemas = SchemaStore(table.paths, env)
    rows: list[list[Any]] = []
    for (partition, bucket), files in state.live.buckets.items():
        directory = table.bucket_directory(partition, bucket)
        shown = _partition_shown(table, partition)
        for entry in files.entries:
            file = entry.file
            fields = table.schema.fields if file.schema_id == table.schema.id else schemas.load(file.schema_id).fields
            names = [f.name for f in fields] if file.value_stats_columns is None else list(file.value_stats_columns)
            kinds = {f.name: f.type for f in fields}
            low, high, nulls = _stats_shown(file.value_stats, [n for n in names if n in kinds], kinds)
            rows.append(
                [
                    shown,
                    bucket,
                    file.external_path or join(directory, file.name),
                    format_of(file.name),
                    file.schema_id,
                    file.level,
                    file.row_count,
                    file.size,
                    _key_shown(file.min_key, table),
                    _key_shown(file.max_key, table),
                    nulls,
                    low,
                    high,
                    file.min_sequence,
                    file.max_sequence,
                    file.creation_time_ms,
                    file.delete_row_count,
                    "COMPACT" if file.source == SOURCE_COMPACT else "APPEND",
                    file.first_row_id,
                    file.write_columns,
                ]
            )
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(_FILES)
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, _FILES, strict=True)], schema=_FILES)


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
    stats = [_stats_shown(m.partition_stats, list(kinds), kinds) for m in found]
    return pa.table(
        {
            "file_name": pa.array([m.name for m in found], pa.string()),
            "file_size": pa.array([m.size for m in found], pa.int64()),
            "num_added_files": pa.array([m.added for m in found], pa.int64()),
            "num_deleted_files": pa.array([m.deleted for m in found], pa.int64()),
            "schema_id": pa.array([m.schema_id for m in found], pa.int64()),
            "min_partition_stats": pa.array([s[0] for s in stats], pa.string()),
            "max_partition_stats": pa.array([s[1] for s in stats], pa.string()),
            "min_row_id": pa.array([m.min_row_id for m in found], pa.int64()),
            "max_row_id": pa.array([m.max_row_id for m in found], pa.int64()),
        }
    )


def _buckets(table: TableDef, env: Env, snapshot: Snapshot | None) -> pa.Table:
    reader = MetaReader(table.paths, env, table.name)
    state = reader.state(snapshot) if snapshot is not None else reader.latest()
    rows = [
        (
            _partition_shown(table, partition),
            bucket,
            sum(e.file.row_count for e in files.entries),
            sum(e.file.size for e in files.entries),
            len(files.entries),
            max((e.file.creation_time_ms or 0 for e in files.entries), default=0),
        )
        for (partition, bucket), files in state.live.buckets.items()
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
    return pa.table(
        {
            "consumer_id": pa.array([consumer.id for consumer in found], pa.string()),
            "next_snapshot_id": pa.array([consumer.next_snapshot for consumer in found], pa.int64()),
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
    for entry in found:
        of_rows = entry.global_index or {}
        field_id = of_rows.get("_INDEX_FIELD_ID")
        vectors = [
            {"f0": v.data_file, "f1": v.offset, "f2": v.length, "_CARDINALITY": v.cardinality} for v in entry.vectors
        ]
        rows.append(
            (
                _partition_shown(table, entry.partition),
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
    "tags": _tags,
    "branches": _branches,
    "consumers": _consumers,
    "table_indexes": _table_indexes,
}
"""The system tables, by name."""


def _partition_shown(table: TableDef, partition: bytes) -> str:
    if not table.schema.partition_keys:
        return "{}"
    values = partition_values(table, [partition])[0]
    return "{" + ", ".join(_shown(v, k) for v, k in zip(values, table.partition_types, strict=True)) + "}"


def _key_shown(key: bytes, table: TableDef) -> str | None:
    if not table.keyed or not key:
        return None
    return (
        "["
        + ", ".join(_shown(v, k) for v, k in zip(deserialize(key, table.key_types), table.key_types, strict=True))
        + "]"
    )


def _stats_shown(stats: SimpleStats, names: Sequence[str], kinds: dict[str, t.DataType]) -> tuple[str, str, str]:
    types = [kinds[name].with_nullable(True) for name in names]
    low = deserialize(stats.min_values, types) or (None,) * len(names)
    high = deserialize(stats.max_values, types) or (None,) * len(names)
    nulls = list(stats.null_counts or ()) or [None] * len(names)
    return tuple(
        "{"
        + ", ".join(f"{n}={_shown(v, k) if k is not None else v}" for n, v, k in zip(names, values, of, strict=False))
        + "}"
        for values, of in ((low, types), (high, types), (nulls, [None] * len(names)))
    )  # type: ignore[return-value]


def _shown(value: Any, kind: t.DataType) -> str:
    if value is None:
        return "null"
    return partition_text(value, kind, default_name="", legacy=False) if value != "" else ""

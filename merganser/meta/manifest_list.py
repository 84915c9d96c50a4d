"""Manifest lists: which manifests make up the base or the delta of a snapshot.

Format: section "manifest list record".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import fastavro

from merganser.codec.avro import read_records, write_records
from merganser.codec.stats import SimpleStats
from merganser.errors import FormatError
from merganser.meta.data_file import plain_name
from merganser.meta.manifest import optional, required, stats_from_record, stats_schema, stats_to_record
from merganser.meta.seal import check_seal, sealed
from merganser.values import dataclass

VERSION: Final = 2

_SCHEMA: Final = fastavro.parse_schema(
    {
        "type": "record",
        "name": "record",
        "namespace": "org.apache.paimon.avro.generated",
        "fields": [
            required("_VERSION", "int"),
            required("_FILE_NAME", "string"),
            required("_FILE_SIZE", "long"),
            required("_NUM_ADDED_FILES", "long"),
            required("_NUM_DELETED_FILES", "long"),
            required("_PARTITION_STATS", stats_schema("record__PARTITION_STATS")),
            required("_SCHEMA_ID", "long"),
            optional("_MIN_BUCKET", "int"),
            optional("_MAX_BUCKET", "int"),
            optional("_MIN_LEVEL", "int"),
            optional("_MAX_LEVEL", "int"),
            optional("_MIN_ROW_ID", "long"),
            optional("_MAX_ROW_ID", "long"),
        ],
    }
)


@dataclass(frozen=True, slots=True)
class ManifestFile:
    """The record of one manifest in a list.

    Attributes:
        name: file name in `manifest/`.
        size: bytes.
        added, deleted: number of entries of each kind.
        partition_stats: bounds of the partition columns over all entries.
        schema_id: schema when it was written.
        min_bucket ... max_row_id: bounds over the entries; None when the writer did not say.
    """

    name: str
    size: int
    added: int
    deleted: int
    partition_stats: SimpleStats
    schema_id: int
    min_bucket: int | None = None
    max_bucket: int | None = None
    min_level: int | None = None
    max_level: int | None = None
    min_row_id: int | None = None
    max_row_id: int | None = None


def write_manifest_list(manifests: Iterable[ManifestFile], *, compression: str) -> bytes:
    """Return the bytes of a manifest list, sealed; an empty list is a valid file."""
    return sealed(write_records(_SCHEMA, (_to_record(m) for m in manifests), compression=compression))


def read_manifest_list(data: bytes, path: str) -> tuple[ManifestFile, ...]:
    """Return the manifests of a list, in order.

    Raises:
        FormatError: damaged bytes, a version that is not known, or a value that no writer writes.
    """
    check_seal(data, path)
    records: Sequence[dict[str, Any]] = read_records(data, path)
    try:
        return tuple(_from_record(r) for r in records)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FormatError(
            f"cannot read the manifest list '{path}': a record lacks or spoils the field {error}. Restore the file.",
            path=path,
        ) from error


def _to_record(m: ManifestFile) -> dict[str, Any]:
    return {
        "_VERSION": VERSION,
        "_FILE_NAME": m.name,
        "_FILE_SIZE": m.size,
        "_NUM_ADDED_FILES": m.added,
        "_NUM_DELETED_FILES": m.deleted,
        "_PARTITION_STATS": stats_to_record(m.partition_stats),
        "_SCHEMA_ID": m.schema_id,
        "_MIN_BUCKET": m.min_bucket,
        "_MAX_BUCKET": m.max_bucket,
        "_MIN_LEVEL": m.min_level,
        "_MAX_LEVEL": m.max_level,
        "_MIN_ROW_ID": m.min_row_id,
        "_MAX_ROW_ID": m.max_row_id,
    }


def _from_record(r: dict[str, Any]) -> ManifestFile:
    if r["_VERSION"] != VERSION:
        raise ValueError(f"_VERSION {r['_VERSION']}, only {VERSION} is known")
    sizes = [r["_FILE_SIZE"], r["_NUM_ADDED_FILES"], r["_NUM_DELETED_FILES"], r["_SCHEMA_ID"]]
    if not plain_name(r["_FILE_NAME"]) or min(sizes) < 0:
        raise ValueError(
            f"_FILE_NAME '{r['_FILE_NAME']}' of {sizes[0]} bytes, {sizes[1]} + {sizes[2]} entries and schema {sizes[3]}"
        )
    return ManifestFile(
        r["_FILE_NAME"],
        r["_FILE_SIZE"],
        r["_NUM_ADDED_FILES"],
        r["_NUM_DELETED_FILES"],
        stats_from_record(r["_PARTITION_STATS"]),
        r["_SCHEMA_ID"],
        r.get("_MIN_BUCKET"),
        r.get("_MAX_BUCKET"),
        r.get("_MIN_LEVEL"),
        r.get("_MAX_LEVEL"),
        r.get("_MIN_ROW_ID"),
        r.get("_MAX_ROW_ID"),
    )

"""Index manifests: the index files of a snapshot. One file holds all of them; a commit that changes one writes a new.

Two types are known: `HASH`, the keys of a dynamic bucket, and `DELETION_VECTORS`, which name the data files whose rows
they hide. Entries of other types are carried from snapshot to snapshot as they are.

The header of ours notes the checksums of HASH files, as that of a manifest notes those of data files: the format gives
them none. Each deletion vector has one by the format.

Format: section "index manifest record".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Final

import fastavro

from merganser.codec.avro import read_records, write_records
from merganser.errors import FormatError
from merganser.meta.data_file import ADD, plain_name
from merganser.meta.manifest import checksum_notes, noted_checksums, nullable, optional, required
from merganser.meta.seal import check_seal, sealed
from merganser.values import dataclass

VERSION: Final = 1
HASH: Final = "HASH"
DELETION_VECTORS: Final = "DELETION_VECTORS"

_RANGE: Final = {
    "type": "record",
    "name": "record__DELETIONS_VECTORS_RANGES",
    "fields": [
        required("f0", "string"),
        required("f1", "int"),
        required("f2", "int"),
        optional("_CARDINALITY", "long"),
    ],
}
_GLOBAL: Final = {
    "type": "record",
    "name": "record__GLOBAL_INDEX",
    "fields": [
        required("_ROW_RANGE_START", "long"),
        required("_ROW_RANGE_END", "long"),
        required("_INDEX_FIELD_ID", "int"),
        optional("_EXTRA_FIELD_IDS", {"type": "array", "items": "int"}),
        optional("_INDEX_META", "bytes"),
        optional("_SOURCE_META", "bytes"),
    ],
}
_SCHEMA: Final = fastavro.parse_schema(
    {
        "type": "record",
        "name": "record",
        "namespace": "org.apache.paimon.avro.generated",
        "fields": [
            required("_VERSION", "int"),
            required("_KIND", "int"),
            required("_PARTITION", "bytes"),
            required("_BUCKET", "int"),
            required("_INDEX_TYPE", "string"),
            required("_FILE_NAME", "string"),
            required("_FILE_SIZE", "long"),
            required("_ROW_COUNT", "long"),
            optional("_DELETIONS_VECTORS_RANGES", {"type": "array", "items": nullable(_RANGE)}),
            optional("_EXTERNAL_PATH", "string"),
            optional("_GLOBAL_INDEX", _GLOBAL),
        ],
    }
)


@dataclass(frozen=True, slots=True)
class VectorRange:
    """The place of the deletion vector of a data file within its index file.

    Attributes:
        data_file: name of the data file, in the partition and bucket of the entry.
        offset, length: bytes; see `codec.deletion_vector`.
        cardinality: deleted rows; None where the writer did not say.
    """

    data_file: str
    offset: int
    length: int
    cardinality: int | None


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """One index file.

    Attributes:
        partition, bucket: what it is an index of.
        index_type: HASH, DELETION_VECTORS, or another that is only carried on.
        name: file name in `index/`.
        size: bytes.
        row_count: HASH: number of hashes; DELETION_VECTORS: number of vectors.
        vectors: of DELETION_VECTORS.
        external_path: whole path when the file lies elsewhere.
        global_index: fields of an index over row ids, as stored.
        checksum: the CRC-32 of the file; None: not noted. It is no field of the record: other engines drop it.
    """

    partition: bytes
    bucket: int
    index_type: str
    name: str
    size: int
    row_count: int
    vectors: tuple[VectorRange, ...] = ()
    external_path: str | None = None
    global_index: Mapping[str, Any] | None = None
    checksum: int | None = field(default=None, compare=False)

    @property
    def identity(self) -> tuple[object, ...]:
        """The identity of the index file."""
        return self.partition, self.bucket, self.index_type, self.name

    @property
    def place(self) -> tuple[object, ...]:
        """What it is an index of, and its type."""
        return self.partition, self.bucket, self.index_type


def write_index_manifest(entries: Iterable[IndexEntry], *, compression: str) -> bytes:
    """Return the bytes of an index manifest, sealed."""
    entries = tuple(entries)
    notes = checksum_notes([(entry.checksum or 0,) for entry in entries])
    return sealed(write_records(_SCHEMA, map(_to_record, entries), compression=compression, notes=notes))


def read_index_manifest(data: bytes, path: str) -> tuple[IndexEntry, ...]:
    """Return the entries of an index manifest, in file order.

    Raises:
        FormatError: damaged bytes, a version that is not known, a required field that is missing, or a value that
            no writer writes.
    """
    check_seal(data, path)
    records: Sequence[Mapping[str, Any]] = read_records(data, path)
    try:
        (sums,) = noted_checksums((data, path), len(records), each=1)
        return tuple(replace(_from_record(record), checksum=crc) for record, crc in zip(records, sums, strict=True))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FormatError(
            f"cannot read the index manifest '{path}': an entry lacks or spoils the field {error}. Restore the file, "
            "or roll back to a snapshot that does not need it.",
            path=path,
        ) from error


def stands_alone(entry: IndexEntry, *, one_per_bucket: bool) -> bool:
    """Return whether an index file is the only one of its bucket and type, so that a new one replaces it.

    Args:
        one_per_bucket: a bucket has one file of deletion vectors, as it always has one of type HASH.
    """
    return entry.index_type == HASH or (entry.index_type == DELETION_VECTORS and one_per_bucket)


def combined(
    entries: Sequence[IndexEntry],
    *,
    removed: Collection[IndexEntry],
    added: Sequence[IndexEntry],
    one_per_bucket: bool,
) -> tuple[IndexEntry, ...]:
    """Return the entries after a change: removals first, then additions.

    Args:
        entries: before it.
        one_per_bucket: a file of deletion vectors replaces that of its bucket, as a HASH file always does; else
            there may be several.
    """
    gone = {entry.identity for entry in removed}
    replaced = {entry.place for entry in added if stands_alone(entry, one_per_bucket=one_per_bucket)}
    kept = [entry for entry in entries if entry.identity not in gone and entry.place not in replaced]
    return (*kept, *added)


def _to_record(entry: IndexEntry) -> dict[str, Any]:
    vectors = [
        {"f0": v.data_file, "f1": v.offset, "f2": v.length, "_CARDINALITY": v.cardinality} for v in entry.vectors
    ]
    return {
        "_VERSION": VERSION,
        "_KIND": ADD,
        "_PARTITION": entry.partition,
        "_BUCKET": entry.bucket,
        "_INDEX_TYPE": entry.index_type,
        "_FILE_NAME": entry.name,
        "_FILE_SIZE": entry.size,
        "_ROW_COUNT": entry.row_count,
        "_DELETIONS_VECTORS_RANGES": vectors if vectors or entry.index_type == DELETION_VECTORS else None,
        "_EXTERNAL_PATH": entry.external_path,
        "_GLOBAL_INDEX": None if entry.global_index is None else dict(entry.global_index),
    }


def _from_record(record: Mapping[str, Any]) -> IndexEntry:
    if record["_VERSION"] != VERSION:
        raise ValueError(f"_VERSION {record['_VERSION']}, only {VERSION} is known")
    if record["_KIND"] != ADD:
        raise ValueError(f"_KIND {record['_KIND']}, only {ADD} is known")
    vectors = tuple(
        VectorRange(v["f0"], v["f1"], v["f2"], v.get("_CARDINALITY"))
        for v in record.get("_DELETIONS_VECTORS_RANGES") or ()
    )
    name, size, count = record["_FILE_NAME"], record["_FILE_SIZE"], record["_ROW_COUNT"]
    if not plain_name(name) or size < 0 or count < 0:
        raise ValueError(f"_FILE_NAME '{name}' of {size} bytes and {count} rows")
    for v in vectors:
        if not plain_name(v.data_file) or v.length < 0 or not 0 < v.offset < size or (v.cardinality or 0) < 0:
            raise ValueError(
                f"_DELETIONS_VECTORS_RANGES: {v.cardinality} rows of '{v.data_file}' at byte {v.offset} of {size}"
            )
    return IndexEntry(
        record["_PARTITION"],
        record["_BUCKET"],
        record["_INDEX_TYPE"],
        name,
        size,
        count,
        vectors,
        record.get("_EXTERNAL_PATH"),
        record.get("_GLOBAL_INDEX"),
    )

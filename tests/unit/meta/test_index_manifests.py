"""Index manifests: what other writers leave out, what is carried on untouched, and how changes combine."""

from __future__ import annotations

from dataclasses import replace
from io import BytesIO
from typing import Any

import fastavro
import pytest

from merganser.errors import FormatError
from merganser.meta.index_manifest import (
    DELETION_VECTORS,
    HASH,
    IndexEntry,
    VectorRange,
    combined,
    read_index_manifest,
    write_index_manifest,
)

PARTITION = bytes(12)
VECTORS = IndexEntry(PARTITION, 0, DELETION_VECTORS, "index-a", 60, 1, (VectorRange("data-1", 1, 19, 4),))
HASHES = IndexEntry(PARTITION, 0, HASH, "index-b", 16, 4)
FOREIGN = IndexEntry(
    PARTITION,
    0,
    "btree",
    "index-c",
    99,
    7,
    (),
    "s3://elsewhere/index-c",
    {
        "_ROW_RANGE_START": 0,
        "_ROW_RANGE_END": 6,
        "_INDEX_FIELD_ID": 2,
        "_EXTRA_FIELD_IDS": [1],
        "_INDEX_META": b"x",
        "_SOURCE_META": None,
    },
)


def test_entries_of_every_type_come_back_equal() -> None:
    entries = (
        VECTORS,
        HASHES,
        FOREIGN,
        replace(VECTORS, name="index-d", vectors=(VectorRange("data-2", 1, 19, None),)),
    )
    data = write_index_manifest(entries, compression="zstd")
    assert read_index_manifest(data, "index-manifest-1") == entries


def test_the_shape_is_that_of_the_reference() -> None:
    reader = fastavro.reader(BytesIO(write_index_manifest([VECTORS], compression="zstd")))
    schema: Any = reader.writer_schema
    assert schema["name"] == "org.apache.paimon.avro.generated.record"
    assert [field["name"] for field in schema["fields"]] == [
        "_VERSION",
        "_KIND",
        "_PARTITION",
        "_BUCKET",
        "_INDEX_TYPE",
        "_FILE_NAME",
        "_FILE_SIZE",
        "_ROW_COUNT",
        "_DELETIONS_VECTORS_RANGES",
        "_EXTERNAL_PATH",
        "_GLOBAL_INDEX",
    ]
    nested = schema["fields"][8]["type"][1]["items"][1]
    assert nested["name"] == "org.apache.paimon.avro.generated.record__DELETIONS_VECTORS_RANGES"
    assert next(iter(reader))["_KIND"] == 0


def _written(schema_fields: list[dict[str, Any]], record: dict[str, Any]) -> bytes:
    out = BytesIO()
    fastavro.writer(out, fastavro.parse_schema({"type": "record", "name": "r", "fields": schema_fields}), [record])
    return out.getvalue()


def _plain_fields(**ranges: Any) -> list[dict[str, Any]]:
    numbers = {"_VERSION": "int", "_KIND": "int", "_PARTITION": "bytes", "_BUCKET": "int", "_INDEX_TYPE": "string"}
    numbers |= {"_FILE_NAME": "string", "_FILE_SIZE": "long", "_ROW_COUNT": "long"}
    return [{"name": name, "type": kind} for name, kind in (numbers | ranges).items()]


def _record(**values: Any) -> dict[str, Any]:
    plain = {"_VERSION": 1, "_KIND": 0, "_PARTITION": PARTITION, "_BUCKET": 0, "_INDEX_TYPE": DELETION_VECTORS}
    return plain | {"_FILE_NAME": "index-a", "_FILE_SIZE": 60, "_ROW_COUNT": 1} | values


def test_old_writers_give_no_cardinality_and_no_later_fields() -> None:
    fields = [{"name": name, "type": kind} for name, kind in (("f0", "string"), ("f1", "int"), ("f2", "int"))]
    old = {"type": "record", "name": "v", "fields": fields}
    data = _written(
        _plain_fields(_DELETIONS_VECTORS_RANGES=["null", {"type": "array", "items": old}]),
        _record(_DELETIONS_VECTORS_RANGES=[{"f0": "data-1", "f1": 1, "f2": 19}]),
    )
    assert read_index_manifest(data, "m") == (replace(VECTORS, vectors=(VectorRange("data-1", 1, 19, None),)),)


@pytest.mark.parametrize(
    "spoilt",
    [{"_VERSION": 2}, {"_KIND": 1}, {"_FILE_NAME": "../../etc/passwd"}, {"_FILE_SIZE": -1}, {"_ROW_COUNT": -4}],
)
def test_values_that_no_writer_writes_are_refused_with_the_path(spoilt: dict[str, Any]) -> None:
    with pytest.raises(FormatError) as caught:
        read_index_manifest(_written(_plain_fields(), _record(**spoilt)), "index-manifest-9")
    assert caught.value.context["path"] == "index-manifest-9"


def test_every_flipped_byte_of_ours_is_told() -> None:
    data = write_index_manifest([VECTORS, HASHES], compression="zstd")
    for at in range(len(data)):
        spoilt = data[:at] + bytes([data[at] ^ 0x40]) + data[at + 1 :]
        try:
            found = read_index_manifest(spoilt, "m")
        except FormatError:
            continue
        assert found == (VECTORS, HASHES)


def test_a_file_of_vectors_replaces_that_of_its_bucket() -> None:
    after = combined(
        [VECTORS, HASHES, FOREIGN], removed=[], added=[new := replace(VECTORS, name="new")], one_per_bucket=True
    )
    assert after == (HASHES, FOREIGN, new)


def test_without_buckets_a_file_of_vectors_stays_until_it_is_removed() -> None:
    new = replace(VECTORS, name="new")
    assert combined([VECTORS], removed=[], added=[new], one_per_bucket=False) == (VECTORS, new)
    assert combined([VECTORS], removed=[VECTORS], added=[new], one_per_bucket=False) == (new,)


def test_types_that_are_not_known_are_carried_on() -> None:
    after = combined([FOREIGN, VECTORS], removed=[VECTORS], added=[], one_per_bucket=True)
    assert after == (FOREIGN,)

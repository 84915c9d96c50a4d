"""Avro object container files <-> records, over fastavro.

Manifests, manifest lists and index manifests are such files. They are resolved by field name: other writers
use other record names, unions and extra or missing optional fields, so readers take dictionaries and ask
with `get`.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import fastavro
import fastavro.write

from merganser.codec.avro_container import (
    CODECS,
    DECOMPRESSORS,
    MAGIC,
    SYNC_BYTES,
    block_places,
    compressor,
    encoded_long,
    encoded_map,
    header_map,
)
from merganser.errors import FormatError

_FOREIGN_CODEC = "snappy"
"""fastavro wants a library of its own for it; pyarrow has it."""


def read_records(data: bytes, path: str) -> list[dict[str, Any]]:
    """Return all records of a container file.

    Raises:
        FormatError: the bytes are not a whole container file; names the path and the bytes read so far.
    """
    stream = io.BytesIO(data)
    try:
        if data[: len(MAGIC)] == MAGIC and header_map(data, len(MAGIC))[0].get("avro.codec") == _FOREIGN_CODEC.encode():
            stream = io.BytesIO(_recoded(data, "null", path))
        return list(fastavro.reader(stream))  # type: ignore[arg-type]
    except MemoryError:
        raise _damaged(path, stream, data, "a block claims more bytes than memory holds") from None
    except Exception as error:  # fastavro and its codecs raise what they meet: EOFError, ValueError, zstd errors, ...
        raise _damaged(path, stream, data, f"{type(error).__name__}: {error}") from error


def _damaged(path: str, stream: io.BytesIO, data: bytes, why: str) -> FormatError:
    return FormatError(
        f"cannot read '{path}': the Avro file is damaged near byte {stream.tell()} of {len(data)} ({why:.200}). "
        "Snapshots that name it cannot be read. Restore the file, or roll back to a snapshot that does not need it.",
        path=path,
        offset=stream.tell(),
    )


def write_records(
    schema: Any, records: Iterable[dict[str, Any]], *, compression: str, notes: Mapping[str, str] = MappingProxyType({})
) -> bytes:
    """Return a container file of records.

    Args:
        schema: a parsed fastavro schema.
        records: the records, as dictionaries.
        compression: codec as table options name it, `zstd` by default of the format.
        notes: properties of the header that readers may pass over.
    """
    out = io.BytesIO()
    codec = CODECS.get(compression.lower(), "zstandard")
    direct = "null" if codec == _FOREIGN_CODEC else codec
    fastavro.writer(out, schema, records, codec=direct, codec_compression_level=None, metadata=dict(notes))
    return out.getvalue() if direct == codec else _recoded(out.getvalue(), codec, "")


def _recoded(data: bytes, codec: str, path: str) -> bytes:
    """Return a container file with its blocks in another codec; `path` is for messages."""
    entries, at = header_map(data, len(MAGIC))
    sync = data[at : at + SYNC_BYTES]
    at += SYNC_BYTES
    unpack = DECOMPRESSORS[entries.get("avro.codec", b"null").decode()]
    pack = compressor(codec, 1)
    parts = [MAGIC, encoded_map(entries | {"avro.codec": codec.encode()}), sync]
    for block in block_places(data, at, sync, path):
        content = pack(unpack(data[block.start : block.end]))
        parts += [encoded_long(block.rows), encoded_long(len(content)), content, sync]
    return b"".join(parts)

"""Avro object container files <-> records, over fastavro.

Manifests, manifest lists and index manifests are such files. They are resolved by field name: other writers
use other record names, unions and extra or missing optional fields, so readers take dictionaries and ask
with `get`.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any

import fastavro
import fastavro.write

from merganser.errors import FormatError

CODECS = {"zstd": "zstandard", "zstandard": "zstandard", "none": "null", "null": "null", "snappy": "snappy", "deflate": "deflate", "gzip": "deflate", "lz4": "null"}  # fmt: skip
"""Avro codec name by the name that table options use. Avro has no LZ4: such files stay uncompressed."""


def read_records(data: bytes, path: str) -> list[dict[str, Any]]:
    """Return all records of a container file.

    Raises:
        FormatError: the bytes are not a whole container file; names the path and the bytes read so far.
    """
    stream = io.BytesIO(data)
    try:
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


def write_records(schema: Any, records: Iterable[dict[str, Any]], *, compression: str) -> bytes:
    """Return a container file of records.

    Args:
        schema: a parsed fastavro schema.
        records: the records, as dictionaries.
        compression: codec as table options name it, `zstd` by default of the format.
    """
    out = io.BytesIO()
    fastavro.writer(out, schema, records, codec=CODECS.get(compression.lower(), "zstandard"), codec_compression_level=None)
    return out.getvalue()

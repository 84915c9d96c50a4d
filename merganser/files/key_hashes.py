"""HASH index files: the hashes of all keys that a dynamic bucket was ever given.

A file is the hashes one after the other, four bytes each, the big end first: no header, no order, none of them twice.
It is named in the index manifest, which also says how many there are, and a bucket has one. The index manifests of
merganser note its checksum, too (decision 0028): a changed hash would give its key a second bucket. Other engines write
files without one; there only a wrong size and a hash that is there twice are found.

Format: section "HASH index".
"""

from __future__ import annotations

import zlib
from typing import Final

import numpy as np

from merganser.codec.hashing import Hashes
from merganser.errors import FormatError, NotFoundError
from merganser.files.masks import index_path
from merganser.meta.index_manifest import HASH, IndexEntry
from merganser.meta.live_files import BucketId
from merganser.meta.table_def import TableDef
from merganser.storage.env import Env

_STORED: Final = np.dtype(">i4")


def read_hashes(table: TableDef, env: Env, entry: IndexEntry) -> Hashes:
    """Return the hashes of a file, int32[n], as they lie in it. They may be changed.

    Raises:
        FormatError: the file is missing, has another size than its entry says, or other bytes than were written.
    """
    try:
        data = env.storage.read(index_path(table, entry))
    except NotFoundError as error:
        raise _damaged(table, entry, "metadata names the file, but it is missing") from error
    return hashes_of(table, entry, data)


def hashes_of(table: TableDef, entry: IndexEntry, data: bytes) -> Hashes:
    """Return the hashes that the bytes of a file are; see `read_hashes`."""
    if len(data) != entry.row_count * _STORED.itemsize:
        raise _damaged(table, entry, f"it has {len(data)} bytes, and {entry.row_count} keys take {entry.row_count * 4}")
    if entry.checksum is not None and zlib.crc32(data) != entry.checksum:
        raise _damaged(
            table,
            entry,
            f"its {len(data)} bytes do not have the checksum they were written with, so keys of it would get other "
            "buckets",
        )
    return np.frombuffer(data, _STORED).astype(np.int32)


def _damaged(table: TableDef, entry: IndexEntry, why: str) -> FormatError:
    path = index_path(table, entry)
    return FormatError(
        f"cannot read the key index '{path}' of bucket {entry.bucket} of '{table.name}': {why}. Nothing was written, "
        "and the table can still be read. Call table.repair(): it builds the index anew from the rows.",
        path=path,
    )


def write_hashes(table: TableDef, env: Env, bucket: BucketId, hashes: Hashes) -> IndexEntry:
    """Write the hashes of a bucket into a new file and return its entry.

    Args:
        hashes: int32, none of them twice.
    """
    data = hashes.astype(_STORED).tobytes()
    name = f"index-{env.new_id()}-0"
    entry = IndexEntry(*bucket, HASH, name, len(data), len(hashes), checksum=zlib.crc32(data))
    env.storage.replace(index_path(table, entry), data, durable=True)
    return entry

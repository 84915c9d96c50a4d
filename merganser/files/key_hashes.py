"""HASH index files: the hashes of all keys that a dynamic bucket was ever given.

A file is the hashes one after the other, four bytes each, the big end first: no header, no order, none of them twice.
It is named in the index manifest, which also says how many there are, and a bucket has one.

Format: section "HASH index".
"""

from __future__ import annotations

import contextlib
from typing import Final

import numpy as np

from merganser.codec.hashing import Hashes
from merganser.errors import AlreadyExistsError, FormatError
from merganser.files.masks import index_path
from merganser.meta.index_manifest import HASH, IndexEntry
from merganser.meta.live_files import BucketId
from merganser.meta.table_def import TableDef
from merganser.storage.env import Env

_STORED: Final = np.dtype(">i4")


def read_hashes(table: TableDef, env: Env, entry: IndexEntry) -> Hashes:
    """Return the hashes of a file, int32[n], as they lie in it. They may be changed.

    Raises:
        FormatError: the file is missing, or has another size than its entry says.
    """
    path = index_path(table, entry)
    data = env.storage.read(path)
    if len(data) != entry.row_count * _STORED.itemsize:
        raise FormatError(
            f"cannot read the key index '{path}' of bucket {entry.bucket} of '{table.name}': it has {len(data)} bytes, "
            f"and {entry.row_count} keys take {entry.row_count * _STORED.itemsize}. Restore the file, or roll back to "
            "a snapshot that does not need it. The table can still be read.",
            path=path,
        )
    return np.frombuffer(data, _STORED).astype(np.int32)


def write_hashes(table: TableDef, env: Env, bucket: BucketId, hashes: Hashes) -> IndexEntry:
    """Write the hashes of a bucket into a new file and return its entry.

    Args:
        hashes: int32, none of them twice.
    """
    data = hashes.astype(_STORED).tobytes()
    entry = IndexEntry(*bucket, HASH, f"index-{env.new_id()}-0", len(data), len(hashes))
    # The name is ours alone, so what is there already was sent twice by the storage below.
    with contextlib.suppress(AlreadyExistsError):
        env.storage.create(index_path(table, entry), data)
    return entry

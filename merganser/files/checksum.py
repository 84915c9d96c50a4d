"""The checksum of a data file, which manifests note, verified before its bytes are decoded. Docs: decision 0028."""

from __future__ import annotations

import zlib
from typing import Final

import pyarrow as pa

from merganser.errors import FormatError

AT_ONCE_BYTES: Final = 4 * 1024 * 1024
"""A file of so few bytes is read at once, which is no more than the checksum of a part of it would cost."""

_READ_BYTES: Final = 1024 * 1024


def checked_whole(file: pa.NativeFile, checksum: int, path: str) -> pa.NativeFile:
    """Return a file whose bytes have the checksum that is noted: in memory if it is small, else this one.

    Raises:
        FormatError: they do not.
    """
    size = file.size()
    found, crc = file, 0
    if size <= AT_ONCE_BYTES:
        data = file.read_buffer(size)
        crc = zlib.crc32(data)
        found = pa.BufferReader(data)
    else:
        while data := file.read_buffer(_READ_BYTES):
            crc = zlib.crc32(data, crc)
        file.seek(0)
    if crc != checksum:
        raise FormatError(
            f"cannot read the data file '{path}': its {size:,} bytes do not have the checksum they were written with, "
            "so some of them have changed. Other files of the table stay readable. Restore the file, or roll back to a "
            "snapshot that does not need it.",
            path=path,
        )
    if found is not file:
        file.close()
    return found

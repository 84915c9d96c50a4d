"""Random reads of a file in a store that hands out ranges of bytes."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from typing import Final

from merganser.errors import InvalidInputError, StorageError

TAIL_BYTES: Final = 64 * 1024
"""Maximum bytes of the end of a file that are read when it is opened: mostly all that a Parquet footer needs."""
_READ_AHEAD_BYTES: Final = 4 * 1024 * 1024


class RangedFile(io.RawIOBase):
    """A file, which must not change.

    Its last bytes are given, and stay. Elsewhere a read that jumps asks for just its bytes, and one that continues the
    read before it asks for more ahead.

    Args:
        path: for messages.
        fetch: returns the bytes from a start (inclusive) to an end (exclusive). Raises errors of merganser.
        tail: the last bytes of the file.
        size: of the whole file, in bytes.
    """

    def __init__(self, path: str, fetch: Callable[[int, int], bytes], tail: bytes, size: int) -> None:
        self._path = path
        self._fetch = fetch
        self._tail, self._size = tail, size
        self._position = 0
        self._last_end = -1
        self._ahead_start, self._ahead = 0, b""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def size(self) -> int:
        return self._size

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise InvalidInputError(f"cannot seek to byte {base + offset} of '{self._path}'.", path=self._path)
        self._position = base + offset
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        start = min(self._position, self._size)
        end = self._size if size is None or size < 0 else min(start + size, self._size)
        tail_start = self._size - len(self._tail)
        data = b""
        if start < min(end, tail_start):
            data = self._read_range(start, min(end, tail_start), tail_start)
        if end > tail_start and end > start:
            data += self._tail[max(start, tail_start) - tail_start : end - tail_start]
        self._position = self._last_end = end
        return data

    def _read_range(self, start: int, end: int, limit: int) -> bytes:
        ahead_end = self._ahead_start + len(self._ahead)
        if self._ahead_start <= start and end <= ahead_end:
            return self._ahead[start - self._ahead_start : end - self._ahead_start]
        wanted = end
        if start == self._last_end and end - start < _READ_AHEAD_BYTES:
            wanted = min(start + _READ_AHEAD_BYTES, limit)
        data = self._fetch(start, wanted)
        if len(data) != wanted - start:
            raise StorageError(
                f"cannot read '{self._path}': of bytes {start} to {wanted} (exclusive) the store returned {len(data)}.",
                path=self._path,
            )
        if wanted > end:
            self._ahead_start, self._ahead = start, data
        return data[: end - start]

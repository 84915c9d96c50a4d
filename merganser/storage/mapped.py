"""Arrays of numbers in memory up to a size, and on the local disk beyond it, where the system pages them in and out.

The files have no name, so they are gone with the arrays, also if the process dies.
"""

from __future__ import annotations

import os
import tempfile
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from merganser.errors import StorageError

_FILE_BYTES_MIN: Final = 1 << 16
"""Smaller arrays lie in memory in any case."""


class Arrays:
    """Makes arrays.

    Args:
        memory_bytes: how many bytes of them may lie in memory.
    """

    def __init__(self, memory_bytes: int) -> None:
        self._left = memory_bytes

    def empty(self, count: int, kind: npt.DTypeLike) -> npt.NDArray[Any]:
        """Return an array of a length; what it holds is undefined.

        Raises:
            StorageError: it would have to lie on the local disk, which has no room for it.
        """
        kind = np.dtype(kind)
        size = count * kind.itemsize
        if size <= self._left or size < _FILE_BYTES_MIN:
            self._left -= size
            return np.empty(count, kind)
        try:
            with tempfile.TemporaryFile(prefix="merganser-") as file:
                os.posix_fallocate(file.fileno(), 0, size)  # a full disk is an error here, and a dead process later
                return np.memmap(file, kind, "r+", shape=(count,))
        except OSError as error:
            raise StorageError(
                f"cannot put aside {size:,} bytes of key hashes that do not fit into memory: {error.strerror}. Nothing "
                "was changed. Make room where temporary files lie, or set TMPDIR to another disk."
            ) from error

    def shortened(self, array: npt.NDArray[Any], count: int) -> npt.NDArray[Any]:
        """Return the first elements of one of its arrays, which nothing else may use from then on."""
        if memory_of(array) and count < len(array):
            self._left += (len(array) - count) * array.itemsize
            array.resize(count, refcheck=False)
        return array[:count]

    def give_back(self, *arrays: npt.NDArray[Any]) -> None:
        """Take note that some of its arrays are not used any more."""
        self._left += sum(map(memory_of, arrays))


def memory_of(array: npt.NDArray[Any]) -> int:
    """Return how many bytes of the process's own memory an array takes."""
    return 0 if isinstance(array, np.memmap) or isinstance(array.base, np.memmap) else int(array.nbytes)

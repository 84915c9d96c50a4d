"""Row kinds: what a row does to its key.

The byte is stored in `_VALUE_KIND`. `-U` and `-D` are retractions: under most merge engines a key whose
newest row is a retraction is absent.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

INSERT: Final = 0
UPDATE_BEFORE: Final = 1
UPDATE_AFTER: Final = 2
DELETE: Final = 3

SYMBOLS: Final = ("+I", "-U", "+U", "-D")
"""Symbol of each kind, indexed by its byte."""


RETRACTIONS: Final = (UPDATE_BEFORE, DELETE)


def inserts(rows: int) -> pa.Array:
    """Return int8[rows], all +I. Memory that the kernel hands out is zero; `pyarrow.repeat` takes 100 times as long."""
    return pa.array(np.zeros(rows, np.int8))


def retractions(kinds: pa.Array) -> int:
    """Return how many of int8 kinds are retractions, which are the odd ones."""
    return int(np.count_nonzero(kinds.to_numpy(zero_copy_only=False) & 1))


def symbols(kinds: pa.Array) -> pa.Array:
    """Return the symbols of kinds, string[n]."""
    return pa.array(SYMBOLS).take(kinds)

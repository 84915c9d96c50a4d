"""Merge engine deduplicate: the newest version of a key is the row; a retraction makes the key absent."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from merganser.errors import InvariantError
from merganser.schema import row_kind


def newest(positions: npt.NDArray[np.int64], is_last: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Return the position of the newest version of every key, in key order.

    Args:
        positions: int64[n], rows in (key, order) order.
        is_last: bool[n] over sorted rows.

    Returns:
        int64[k], one of each key. Retractions are kept, since only the caller knows what lies below.

    Format: merge engine `deduplicate`. Oracle: `testing.oracle`.
    """
    if len(is_last) and not is_last[-1]:
        raise InvariantError("the last sorted row must be the last of its key")
    return positions[is_last]


def visible(positions: npt.NDArray[np.int64], kinds: pa.ChunkedArray | None) -> npt.NDArray[np.int64]:
    """Return those positions whose row kind is an add (+I, +U).

    Args:
        positions: int64[k].
        kinds: int8[n], the kinds of all rows; None: all are adds.
    """
    if kinds is None:
        return positions
    values = kinds.to_numpy()[positions]
    adds = (values == row_kind.INSERT) | (values == row_kind.UPDATE_AFTER)
    return positions if adds.all() else positions[adds]

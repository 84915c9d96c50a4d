"""The bucket of each row of a table with a fixed number of buckets, and rows parted by a number.

Format: section "bucketing".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from merganser.codec.hashing import buckets
from merganser.meta.table_def import TableDef
from merganser.options import write as w

_SCANS_MAX: Final = 16


def parted(numbers: npt.NDArray[np.signedinteger]) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
    """Yield every number that occurs, rising, and the positions it stands at, rising. None is negative."""
    if not len(numbers):
        return
    highest = int(numbers.max())
    small = numbers.astype(np.uint8 if highest < 256 else np.uint16 if highest < 65_536 else np.int64)
    if highest < _SCANS_MAX:  # a few looks at all numbers are cheaper than a sort of them
        for number in range(highest + 1):
            members = np.flatnonzero(small == number)
            if len(members):
                yield number, members
        return
    order = np.argsort(small, kind="stable")  # a radix sort for the small types
    ordered = small[order]
    starts = np.concatenate([[0], np.flatnonzero(ordered[1:] != ordered[:-1]) + 1])
    for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(order)], strict=True):
        yield int(ordered[start]), order[start:end]


def bucket_numbers(table: TableDef, rows: pa.Table, total: int | None = None) -> npt.NDArray[np.int32]:
    """Return the bucket of every row, int32[n].

    Args:
        total: the number of buckets; None: that of the table.
    """
    total = table.bucket if total is None else total
    if total <= 1:
        return np.zeros(rows.num_rows, np.int32)
    key = table.schema.bucket_key
    columns = [rows.column(name) for name in key]
    kinds = [table.schema.field(name).type for name in key]
    return buckets(columns, kinds, total, table.options.get(w.BUCKET_FUNCTION))

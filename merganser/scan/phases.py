"""Phases: the order of rows that one snapshot published of tables whose keys move between partitions.

A reader that applies changes by primary key must see a key leave its old bucket before it comes to the new one. Files
hold the rows of one bucket, so the rows of a snapshot are handed over in three phases. In a bucket, the rows of a key
are stays, one after the other; a stay ends with a retraction, unless that is the -U of an update:

    bucket a    -D │ +I  -D │               key leaves a, comes back, and leaves again
    bucket b         +I  -D │ +I            key comes to b, leaves, and comes back

| phase | rows |
|---|---|
| `LEAVES` | the first stay of a key that was there before: it begins with a retraction |
| `PASSES` | other stays that end |
| `STAYS` | the last stay of a key that has a row in the bucket after the snapshot |

Shards are read one by one, so their records say it in their numbers: rows that stay come behind all that go.

After a snapshot a key has a row in one bucket at most, so its last row of all is the one that the table has. Rows of
one bucket and key keep their order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from merganser.lsm.compact import uncounted
from merganser.merge.engine import Kinds
from merganser.merge.keys import sorted_positions
from merganser.meta.data_file import DataFile
from merganser.meta.table_def import TableDef
from merganser.scan.split import PublishedSplit
from merganser.schema import row_kind

LEAVES: Final = 0
PASSES: Final = 1
STAYS: Final = 2

Phases = npt.NDArray[np.int8]
Places = npt.NDArray[np.int64]


def phases_of(keys: Sequence[pa.ChunkedArray], kinds: Kinds, places: Places) -> Phases:
    """Return the phase of each of n rows.

    Args:
        keys: key columns, without those of the partition.
        kinds: int8[n].
        places: int64[n], the same for rows of one bucket and snapshot.
    """
    phases = np.full(len(kinds), STAYS, np.int8)
    if not (kinds & 1).any():
        return phases
    several = [pa.chunked_array([pa.array(places)])] if (places != places[0]).any() else []
    positions, is_last = sorted_positions([*several, *keys])
    ordered = kinds[positions]
    retracts = (ordered & 1) == 1
    ends = retracts.copy()  # the rows that end a stay
    ends[:-1] &= is_last[:-1] | (ordered[:-1] != row_kind.UPDATE_BEFORE) | (ordered[1:] != row_kind.UPDATE_AFTER)
    key: Places = np.cumsum(is_last) - is_last
    first = np.flatnonzero(np.append(True, is_last[:-1]))
    ended = np.cumsum(ends)
    stay = ended - ends  # of each row, how many ended before it, those of other keys included
    begin = stay[first][key]
    goes = stay < ended[is_last][key]
    found = np.full(len(kinds), STAYS, np.int8)
    found[goes] = PASSES
    found[goes & (stay == begin) & retracts[first][key]] = LEAVES
    phases[positions] = found
    return phases


def may_retract(table: TableDef, file: DataFile) -> bool:
    """Return whether a file may hold rows of kind -U or -D."""
    return file.delete_row_count != 0 or uncounted(table, file)


def places_of(split: PublishedSplit) -> Places:
    """Return of each file of a split a number that files of one bucket and snapshot share."""
    numbers: dict[tuple[int, int], int] = {}
    return np.array([numbers.setdefault((one.snapshot, one.place), len(numbers)) for one in split.origins])


def by_place(split: PublishedSplit) -> Iterator[PublishedSplit]:
    """Yield the files of each bucket and snapshot of a split, as they stand."""
    places = places_of(split)
    for place in range(int(places.max(initial=-1)) + 1):
        at = np.flatnonzero(places == place).tolist()
        yield replace(split, targets=tuple(split.targets[i] for i in at), origins=tuple(split.origins[i] for i in at))

"""The check of tables whose keys move between partitions: each key has a row in one bucket of the whole table.

The keys are read once, as 96 bits of hash, and cut by hash into parts that lie on the local disk. So memory holds one
part, whatever the size of the table.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from merganser.merge.hashed_keys import KeyHashes
from merganser.meta.layout import parted
from merganser.meta.table_def import TableDef
from merganser.meta.table_state import TableState
from merganser.scan.keys import keys_of
from merganser.scan.split import Split
from merganser.storage.env import Env
from merganser.storage.spill import Spill

KEYS_AT_ONCE: Final = 1 << 22
"""So many keys are compared at a time, about; they take 40 bytes each."""


def key_in_two_places(table: TableDef, env: Env, state: TableState) -> tuple[str, str] | None:
    """Return the directory of a bucket, and what is wrong, if a key has rows in two buckets; None: none has.

    Raises:
        FormatError: a file is damaged or missing.
        StorageError: the local disk is full.
    """
    rows = sum(entry.file.row_count for held in state.live.buckets.values() for entry in held.entries)
    parts = max(1, -(-rows // KEYS_AT_ONCE))
    places: dict[str, int] = {}
    count, first = 0, None
    with Spill() as spill:
        for directory, _, hashes in _hashed(table, env, state):
            place = np.full(len(hashes), places.setdefault(directory, len(places)), np.int32)
            found = pa.table({"first": hashes.first, "second": hashes.second, "place": place})
            for part, at in parted((hashes.first.view(np.uint64) % np.uint64(parts)).astype(np.int64)):
                spill.add(part, found if parts == 1 else found.take(pa.array(at)))
        for part in range(parts):
            twice = _twice(list(spill.tables(part)))
            spill.drop(part)
            count += len(twice)
            first = first if first is not None or not len(twice) else twice[0]
    if first is None:
        return None
    _, hash_one, hash_other = first
    rows_of_key = [
        (directory, keys.slice(int(at[0]), 1).to_pylist()[0])
        for directory, keys, hashes in _hashed(table, env, state)
        if len(at := np.flatnonzero((hashes.first == hash_one) & (hashes.second == hash_other)))
    ]
    both = sorted(rows_of_key, key=lambda each: each[0])
    key = {name: both[0][1][name] for name in table.schema.primary_keys}
    directories = " and ".join(f"'{directory}'" for directory, _ in both)
    more = f", and so have {count - 1:,} other keys" if count > 1 else ""
    return both[-1][0], f"the key {key!r:.200} has a row in {directories}{more}. A key of this table has one row."


def _hashed(table: TableDef, env: Env, state: TableState) -> Iterator[tuple[str, pa.Table, KeyHashes]]:
    """Yield the keys of buckets, in no order: the directory, the rows and their hashes."""

    def hashed(split: Split, rows: pa.Table) -> tuple[str, pa.Table, KeyHashes]:
        return split.directory, rows, KeyHashes.of(rows.select(table.schema.primary_keys))

    return keys_of(table, env, state, hashed)


def _twice(tables: list[pa.Table]) -> list[tuple[int, np.int64, np.uint32]]:
    """Return the place of the second row of each key with several, and the hashes of the key."""
    if not tables:
        return []
    rows = pa.concat_tables(tables)
    first, second = (rows.column(name).to_numpy() for name in ("first", "second"))
    hashes = KeyHashes(first, second)
    order = hashes.order()
    starts = hashes[order].starts()
    seconds = np.flatnonzero(~starts & np.append(False, starts[:-1]))
    places: npt.NDArray[np.int32] = rows.column("place").to_numpy()
    return [(int(places[i]), first[i], second[i]) for i in order[seconds].tolist()]

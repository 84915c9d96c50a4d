"""KeyPlaces: in which partition and bucket each key of a table lies, for keys that may move between partitions.

No file says it, so a writer reads the keys of the table when it begins, and remembers what it writes itself. A key is
known by 96 bits of hash: of a billion keys, two are taken for one another once in a hundred billion tables. The
hashes lie in sorted runs, as the rows of an LSM tree do; a younger run says what a key of an older one became. A key
takes sixteen bytes. Beyond a budget runs lie on the local disk.

Values never change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from merganser.merge.keys import polars_column
from merganser.storage.mapped import Arrays, memory_of

GONE: Final = -1
"""In place of a place: there is no row of the key."""
Places = npt.NDArray[np.int32]
_GROWTH: Final = 4
"""A run is merged with the next older one once it has so large a part of its keys."""


@dataclass(frozen=True, slots=True)
class KeyHashes:
    """Hashes of keys.

    Attributes:
        first: int64[n].
        second: uint32[n].
    """

    first: npt.NDArray[np.int64]
    second: npt.NDArray[np.uint32]

    @classmethod
    def of(cls, keys: pa.Table) -> KeyHashes:
        """Return the hashes of keys; they are the same in this process alone."""
        frame = pl.DataFrame({f"c{i}": polars_column(column) for i, column in enumerate(keys.columns)})
        one, other = (frame.hash_rows(seed).to_numpy() for seed in (0, 1))
        return cls(one.view(np.int64), (other >> np.uint64(32)).astype(np.uint32))

    def __len__(self) -> int:
        return len(self.first)

    def __getitem__(self, at: npt.NDArray[np.int64]) -> KeyHashes:
        return KeyHashes(self.first[at], self.second[at])

    def order(self) -> npt.NDArray[np.int64]:
        """Return the positions in the order of the hashes; equal ones keep their order."""
        count = len(self)
        low = (1 << max(1, (count - 1).bit_length())) - 1
        packed = (self.first & ~low) | np.arange(count)  # half the time of a sort of positions
        packed.sort()
        order = packed & low
        first, second = self.first[order], self.second[order]
        packed &= ~low
        alike = packed[1:] == packed[:-1]
        if (alike & ((first[1:] != first[:-1]) | (second[1:] != second[:-1]))).any():  # hashes that begin alike
            which = np.zeros(count, np.bool_)
            which[1:] |= alike
            which[:-1] |= alike
            at = order[which]
            order[which] = at[np.lexsort((self.second[at], self.first[at]))]
        return order

    def starts(self) -> npt.NDArray[np.bool_]:
        """Return which of ordered hashes differ from the one before."""
        differs = np.ones(len(self), np.bool_)
        differs[1:] = (self.first[1:] != self.first[:-1]) | (self.second[1:] != self.second[:-1])
        return differs


@dataclass(frozen=True, slots=True)
class _Run:
    """Keys, each once, in the order of their hashes, and where they lie."""

    hashes: KeyHashes
    places: Places

    def __len__(self) -> int:
        return len(self.places)


@dataclass(frozen=True, slots=True)
class KeyPlaces:
    """The place of each key that is known; runs from the oldest to the youngest."""

    runs: tuple[_Run, ...] = ()

    def __len__(self) -> int:
        return sum(len(run) for run in self.runs)

    @property
    def memory_bytes(self) -> int:
        """How many bytes of memory it takes."""
        return sum(memory_of(a) for r in self.runs for a in (r.hashes.first, r.hashes.second, r.places))

    def find(self, hashes: KeyHashes) -> Places:
        """Return the place of each key, int32[n], or `GONE`."""
        found = np.full(len(hashes), GONE, np.int32)
        for run in self.runs:
            at = np.searchsorted(run.hashes.first, hashes.first)
            todo = np.arange(len(hashes))
            while len(todo):  # once, unless two keys of the run have one first hash
                here = at[todo]
                inside = here < len(run)
                todo, here = todo[inside], here[inside]
                same = run.hashes.first[here] == hashes.first[todo]
                todo, here = todo[same], here[same]
                known = run.hashes.second[here] == hashes.second[todo]
                found[todo[known]] = run.places[here[known]]
                todo = todo[~known]
                at[todo] += 1
        return found

    def with_places(self, hashes: KeyHashes, places: Places, arrays: Arrays) -> KeyPlaces:
        """Return it with the places of more keys, or other places of known ones.

        Args:
            hashes: each key once, in their order.
        """
        if not len(hashes):
            return self
        runs = [*self.runs, _Run(hashes, places)]
        while len(runs) > 1 and len(runs[-1]) * _GROWTH >= len(runs[-2]):
            runs[-2:] = [_merged(runs[-2:], arrays, whole=len(runs) == 2)]
        return KeyPlaces(tuple(run for run in runs if len(run)))


def _merged(runs: Sequence[_Run], arrays: Arrays, *, whole: bool) -> _Run:
    """Return two runs as one, where the younger one says what a key of both became.

    Args:
        whole: nothing older is there, so keys that are gone need not be known.
    """
    both = KeyHashes(
        np.concatenate([run.hashes.first for run in runs]), np.concatenate([run.hashes.second for run in runs])
    )
    places = np.concatenate([run.places for run in runs])
    order = both.order()
    last = np.roll(both[order].starts(), -1)  # the youngest of each key
    kept = order[last]
    if whole:
        kept = kept[places[kept] != GONE]
    first, second = arrays.empty(len(kept), np.int64), arrays.empty(len(kept), np.uint32)
    at = arrays.empty(len(kept), np.int32)
    np.take(both.first, kept, out=first)
    np.take(both.second, kept, out=second)
    np.take(places, kept, out=at)
    return _Run(KeyHashes(first, second), at)

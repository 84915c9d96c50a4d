"""KeyHashes: keys by 96 bits of hash, for work with all keys of a table.

Of a billion keys, two are taken for one another once in a hundred billion tables.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from merganser.merge.keys import polars_column


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
        packed = self.first & ~low
        packed |= np.arange(count)
        packed.sort()  # half the time of a sort of positions
        order = packed & low
        packed &= ~low
        alike = np.flatnonzero(packed[1:] == packed[:-1])
        if len(alike) and self._differ(order[alike], order[alike + 1]).any():  # hashes that begin alike
            which = np.zeros(count, np.bool_)
            which[alike] = which[alike + 1] = True
            at = order[which]
            order[which] = at[np.lexsort((self.second[at], self.first[at]))]
        return order

    def _differ(self, some: npt.NDArray[np.int64], others: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        differ: npt.NDArray[np.bool_] = self.first[some] != self.first[others]
        differ |= self.second[some] != self.second[others]
        return differ

    def starts(self) -> npt.NDArray[np.bool_]:
        """Return which of ordered hashes differ from the one before."""
        differs = np.ones(len(self), np.bool_)
        differs[1:] = (self.first[1:] != self.first[:-1]) | (self.second[1:] != self.second[:-1])
        return differs

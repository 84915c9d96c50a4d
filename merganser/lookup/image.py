"""Where the keys of a data file lie: sorted integers or sorted hashes, which numpy searches for many keys at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from merganser.codec.hashing import row_hashes
from merganser.merge.keys import integer_image, sorted_positions
from merganser.schema import types as t

Positions: TypeAlias = npt.NDArray[np.int64]
Found: TypeAlias = tuple[Positions, Positions]
"""(which of the keys asked for, rising; at which row of the file each may lie), int64[k] each."""

NOTHING: Final[Found] = (np.empty(0, np.int64), np.empty(0, np.int64))


@dataclass(frozen=True)
class Asked:
    """Keys that are looked up in one bucket: n different keys, in key order.

    Attributes:
        columns: key columns of n rows each, in the order of the key.
        kinds: their types.
    """

    columns: tuple[pa.Array, ...]
    kinds: tuple[t.DataType, ...]

    def __len__(self) -> int:
        return len(self.columns[0])

    @cached_property
    def integers(self) -> npt.NDArray[np.int64] | None:
        """int64[n] that sort as the keys do; None: the keys are no single number."""
        return integers_of(self.columns)

    @cached_property
    def hashes(self) -> npt.NDArray[np.uint32]:
        """uint32[n], the hash of each key."""
        return row_hashes(self.columns, self.kinds).view(np.uint32)

    def take(self, at: Positions) -> Asked:
        """Return some of the keys, `at` rising."""
        taken = pa.array(at)
        less = Asked(tuple(column.take(taken) for column in self.columns), self.kinds)
        for name in ("integers", "hashes"):
            known = self.__dict__.get(name)
            if known is not None:
                less.__dict__[name] = known[at]
        return less


def integers_of(columns: Sequence[pa.Array]) -> npt.NDArray[np.int64] | None:
    """Return int64[n] that sort as the keys do; None: they are no single number."""
    if len(columns) > 1:
        return None
    image = integer_image(pa.chunked_array([columns[0]]))
    return None if image is None else image.astype(np.int64, copy=False)


class IntegerImage:
    """Keys that are one number, as integers in the order of the rows: they rise."""

    def __init__(self, integers: npt.NDArray[np.int64]) -> None:
        self.integers = integers

    @property
    def parts(self) -> tuple[npt.NDArray[Any], ...]:
        """What it is made of."""
        return (self.integers,)

    def find(self, asked: Asked) -> Found:
        """Return which keys are there, and where."""
        wanted = asked.integers
        assert wanted is not None
        if not len(self.integers):
            return NOTHING
        at = np.searchsorted(self.integers, wanted)
        at[at == len(self.integers)] = 0
        hit = np.flatnonzero(self.integers[at] == wanted)
        return hit, at[hit]

    def place(self, integer: int) -> int:
        """Return where one key is; -1: it is not there."""
        at = int(self.integers.searchsorted(integer))
        return at if at < len(self.integers) and int(self.integers[at]) == integer else -1


class HashImage:
    """Keys of any kind, as sorted hashes with the row of each. Different keys may share a hash."""

    def __init__(self, hashes: npt.NDArray[np.uint32], rows: npt.NDArray[np.uint32]) -> None:
        self.hashes = hashes
        self.rows = rows

    @property
    def parts(self) -> tuple[npt.NDArray[Any], ...]:
        """What it is made of."""
        return self.hashes, self.rows

    def find(self, asked: Asked) -> Found:
        """Return which keys may be there, and where; several places of a key are possible."""
        left = np.searchsorted(self.hashes, asked.hashes, side="left")
        right = np.searchsorted(self.hashes, asked.hashes, side="right")
        counts = right - left
        which = np.repeat(np.arange(len(asked)), counts)
        before = np.repeat(np.cumsum(counts) - counts, counts)
        return which, self.rows[np.repeat(left, counts) + np.arange(len(which)) - before].astype(np.int64)


def image_of(columns: Sequence[pa.Array], kinds: Sequence[t.DataType]) -> IntegerImage | HashImage:
    """Return where keys lie.

    Args:
        columns: the key columns of all rows of a file.
        kinds: their types.
    """
    integers = integers_of(columns)
    if integers is not None and (integers[1:] > integers[:-1]).all():
        return IntegerImage(integers)
    hashes = row_hashes(columns, kinds).view(np.uint32)
    order = np.argsort(hashes, kind="stable")
    return HashImage(hashes[order], order.astype(np.uint32))


def equal(held: Sequence[pa.Array], asked: Asked, which: Positions) -> npt.NDArray[np.bool_]:
    """Return, for k rows, whether each has the key that it was found for.

    Args:
        held: the key columns of the rows.
        asked: the keys.
        which: int64[k], the key that each row was found for.
    """
    if not len(which):
        return np.empty(0, np.bool_)
    wanted = asked.take(which).columns
    columns = [pa.chunked_array([a, b.cast(a.type)]) for a, b in zip(held, wanted, strict=True)]
    positions, is_last = sorted_positions(columns)
    ranks = np.empty(len(positions), np.int64)
    ranks[positions] = np.concatenate([[0], np.cumsum(is_last)[:-1]])
    same: npt.NDArray[np.bool_] = ranks[: len(which)] == ranks[len(which) :]
    return same

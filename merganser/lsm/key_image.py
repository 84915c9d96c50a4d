"""Where the keys of a data file lie: sorted integers or sorted hashes, which numpy searches for many keys at once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from merganser.codec.hashing import row_hashes
from merganser.merge.keys import integer_image
from merganser.schema import types as t
from merganser.values import dataclass

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

    def slice(self, first: int, end: int) -> Asked:
        """Return the keys from `first` to before `end`."""
        if end - first == len(self):
            return self
        less = Asked(tuple(column.slice(first, end - first) for column in self.columns), self.kinds)
        for name in ("integers", "hashes"):
            known = self.__dict__.get(name)
            if known is not None:
                less.__dict__[name] = known[first:end]
        return less

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
    same = np.ones(len(which), np.bool_)
    for column, wanted in zip(held, asked.take(which).columns, strict=True):
        same &= _same(column, wanted.cast(column.type))
    return same


def _same(a: pa.Array, b: pa.Array) -> npt.NDArray[np.bool_]:
    """Return, for n values each, whether they are equal as keys are: nulls are, NaNs are, -0.0 and 0.0 are not."""
    valid = [np.asarray(column.is_valid()) for column in (a, b)]
    both = valid[0] & valid[1]
    if pa.types.is_floating(a.type):
        images = [integer_image(pa.chunked_array([column.fill_null(0.0)])) for column in (a, b)]
        assert images[0] is not None
        assert images[1] is not None
        values: npt.NDArray[np.bool_] = images[0] == images[1]
    else:
        values = np.asarray(pc.equal(a, b).fill_null(False))
    same: npt.NDArray[np.bool_] = (both & values) | ~(valid[0] | valid[1])
    return same

"""Order by columns of the user: sequence fields, and the ordering columns of sequence groups, as ranks.

A rank is an integer per row; of two rows the one with the larger tuple has the larger rank, equal tuples have
equal ranks. Tuples compare from left to right, nulls lowest in either direction, floats with -0.0 below 0.0 and
NaN above everything, text by bytes: a table of such tuples is ordered once, and the rest is arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from merganser.merge.keys import integer_image, sorted_positions
from merganser.values import dataclass

Ranks = npt.NDArray[np.int64]

_DOUBLED_MAX: Final = 1 << 62
"""Sequence numbers below this can be doubled. Larger ones no writer gives."""


def arrivals(numbers: Ranks, kinds: npt.NDArray[np.int8]) -> Ranks:
    """Return int64[n] that orders versions by sequence number, and of equal ones retractions before additions.

    Writers that ran side by side may have given equal numbers; what is still equal stays as runs are.
    """
    if not len(numbers) or not -_DOUBLED_MAX < int(numbers.min()) <= int(numbers.max()) < _DOUBLED_MAX:
        return numbers
    return numbers * 2 + (1 - (kinds & 1))


@dataclass(frozen=True, slots=True)
class UserOrder:
    """The order of `sequence.field`.

    Attributes:
        columns: compared from left to right.
        descending: the smaller value is the newer one; nulls stay the oldest.
        adds_last: of equal tuples an addition is newer than a retraction that came after it
            (`sequence.auto-padding` = row-kind-flag).
    """

    columns: tuple[str, ...]
    descending: bool = False
    adds_last: bool = False

    def ranks(self, rows: pa.Table, additions: npt.NDArray[np.bool_] | None) -> Ranks:
        """Return int64[n] that rises as rows become newer."""
        columns = [rows.column(name) for name in self.columns]
        ranks = _descending(columns) if self.descending else ascending_ranks(columns)
        if self.adds_last and additions is not None:
            ranks = dense_ranks(ranks) * 2 + additions
        return ranks


def ascending_ranks(columns: Sequence[pa.ChunkedArray]) -> Ranks:
    """Return int64[n], ranks of the tuples of columns; nulls lowest. Not always dense."""
    if len(columns) == 1:
        image = integer_image(columns[0])
        if image is not None:
            return image.astype(np.int64, copy=False)
    positions, is_last = sorted_positions(columns)
    return _placed(positions, is_last)


def _descending(columns: Sequence[pa.ChunkedArray]) -> Ranks:
    """Return ranks of tuples whose values, but not whose nulls, compare the other way round."""
    turned = []
    for column in columns:
        ranks = dense_ranks(ascending_ranks([column])) + 1
        valid = column.is_valid().to_numpy()
        turned.append(pa.chunked_array([np.where(valid, len(ranks) + 1 - ranks, 0)]))
    return ascending_ranks(turned)


def dense_ranks(ranks: Ranks) -> Ranks:
    """Return ranks of 0 and above, below the number of rows, in the same order."""
    return _placed(*sorted_positions([pa.chunked_array([ranks])]))


def _placed(positions: npt.NDArray[np.int64], is_last: npt.NDArray[np.bool_]) -> Ranks:
    ranks = np.empty(len(positions), np.int64)
    if len(positions):
        ranks[positions] = np.concatenate(([0], np.cumsum(is_last)[:-1]))
    return ranks

"""Filling: which buckets new keys go to, one after the other, where buckets are added as keys arrive.

Format: section "Assignment".
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from merganser.meta.table_def import TableDef
from merganser.options import write as w
from merganser.rules.facts import BUCKETS_MAX

_COMPARISONS_MAX: Final = 16
"""So many comparisons with all keys are cheaper than a binary search of each."""


class Filling:
    """How full the buckets of a partition are.

    Args:
        counts: keys by bucket. It is changed.
        assigners: how many there are; assigner i may add keys to buckets whose number leaves i.
    """

    def __init__(self, table: TableDef, counts: dict[int, int], assigners: int) -> None:
        self._counts = counts
        self._assigners = assigners
        self._target: int = table.options.get(w.DYNAMIC_BUCKET_TARGET_ROW_NUM)
        most: int = table.options.get(w.DYNAMIC_BUCKET_MAX_BUCKETS)
        self._most = min(most, BUCKETS_MAX) if most > 0 else BUCKETS_MAX

    def take(self, count: int, assigners: Collection[int]) -> dict[int, int]:
        """Give new keys their places, at least one; return how many go to each bucket, in the order of filling.

        Args:
            assigners: which ones the caller is.
        """
        sizes: dict[int, int] = {}
        left = count
        for bucket in self._own(assigners):
            room = self._target - self._counts.get(bucket, 0)
            if room > 0:
                sizes[bucket] = min(room, left)
                left -= sizes[bucket]
            if not left:
                break
        if left:  # all are full, and there may be no more: they stay of about one size
            sizes = self._spread(left, sizes, list(self._own(assigners)))
        for bucket, size in sizes.items():
            self._counts[bucket] = self._counts.get(bucket, 0) + size
        return sizes

    def _own(self, assigners: Collection[int]) -> Iterator[int]:
        """Yield the buckets that keys may be added to, those that are there first."""
        yield from sorted(bucket for bucket in self._counts if bucket % self._assigners in assigners)
        for bucket in range(self._most):
            if bucket % self._assigners in assigners and bucket not in self._counts:
                yield bucket

    def _spread(self, count: int, sizes: dict[int, int], numbers: list[int]) -> dict[int, int]:
        """Return how many more keys go to each of some buckets, so that the smallest grow first."""
        held = np.array([self._counts.get(bucket, 0) + sizes.get(bucket, 0) for bucket in numbers])
        order = np.argsort(held, kind="stable")
        rising = held[order]
        level = next(n for n in range(len(rising), 0, -1) if n == 1 or rising[n - 1] * n - rising[:n].sum() <= count)
        total = int(rising[:level].sum()) + count
        goal = np.full(level, total // level)
        goal[: total % level] += 1
        for at, size in zip(order[:level].tolist(), (goal - rising[:level]).tolist(), strict=True):
            sizes[numbers[at]] = sizes.get(numbers[at], 0) + size
        return {bucket: size for bucket, size in sorted(sizes.items()) if size}


def in_order(sizes: dict[int, int], firsts: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    """Return the bucket of each new key, int32[k]; keys that come earlier get the buckets that are filled earlier.

    Args:
        sizes: how many keys go to each bucket, k in all.
        firsts: int64[k], where each key comes first.
    """
    buckets = list(sizes)
    if len(buckets) == 1:
        return np.full(len(firsts), buckets[0], np.int32)
    ends = np.cumsum(list(sizes.values()))
    last = ends[:-1] - 1
    if int(firsts.max()) >= len(firsts):  # keys between them are known
        last = np.partition(firsts, last)[last]
    if len(last) > _COMPARISONS_MAX:
        return np.array(buckets, np.int32)[np.searchsorted(last, firsts)]
    place = np.zeros(len(firsts), np.uint8)
    for position in last:
        place += firsts > position
    return np.array(buckets, np.int32)[place]

"""KeyIndex: a number for each key that is known, such as the bucket in which the key lies.

A key is known by its hash. The hashes lie in sorted runs, as the rows of an LSM tree do: new keys are a new run, small
runs are merged into larger ones, and a younger run says what a key of an older one became. A key takes the bytes of its
hash and of its number: six with a hash of 32 bits and a bucket, sixteen with one of 96 bits and a place. A merge of
runs takes as much again beside them for its time. Beyond a budget runs lie on the local disk.

Values never change.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from merganser.merge.hashed_keys import KeyHashes
from merganser.storage.env import Env
from merganser.storage.mapped import Arrays, memory_of
from merganser.values import dataclass

ABSENT: Final = -1
"""In place of a number: the key is not known, or it has none any more."""
Numbers = npt.NDArray[np.int32]

_STEP_ROWS: Final = 1 << 16
"""Keys that are merged at a time: they stay in the cache, and what they take beside the result is small."""
_HALVES_FROM_ROWS: Final = 1 << 18
"""Number of keys from which on two threads merge them."""
_GROWTH: Final = 4
"""A run is merged with the next older one once it has this part of its keys: one fourth."""
_PIECE_ROWS: Final = 1 << 20
"""Number of keys in any order that are sorted at once."""


@dataclass(frozen=True, slots=True)
class Run:
    """Keys, each once, in the order of their hashes, and their numbers.

    Attributes:
        numbers: uint16[n] where no key loses its number; else int32[n], and `ABSENT` for a key that has none any more.
    """

    hashes: KeyHashes
    numbers: npt.NDArray[np.uint16] | Numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, at: npt.NDArray[np.int64] | slice) -> Run:
        return Run(self.hashes[at], self.numbers[at])

    @property
    def arrays(self) -> tuple[npt.NDArray[Any], ...]:
        """What it consists of."""
        hashes = self.hashes
        return (hashes.first, self.numbers) if hashes.second is None else (hashes.first, hashes.second, self.numbers)


@dataclass(frozen=True, slots=True)
class KeyIndex:
    """The number of each known key; runs from the oldest to the youngest, each larger than all after it."""

    runs: tuple[Run, ...] = ()

    def __len__(self) -> int:
        return sum(map(len, self.runs))

    @property
    def memory_bytes(self) -> int:
        """How many bytes of memory it takes."""
        return sum(memory_of(array) for run in self.runs for array in run.arrays)

    def find(self, hashes: KeyHashes) -> Numbers:
        """Return the number of each key, int32[n], or `ABSENT`.

        Args:
            hashes: in any order; in their own order they are found several times as fast.
        """
        found = np.full(len(hashes), ABSENT, np.int32)
        for run in self.runs:
            here = np.searchsorted(run.hashes.first, hashes.first)
            np.minimum(here, len(run) - 1, out=here)
            todo = np.flatnonzero(run.hashes.first[here] == hashes.first)  # numpy takes longer to pick by a mask
            here = here[todo]
            if run.hashes.second is None or hashes.second is None:
                found[todo] = run.numbers[here]
                continue
            while len(todo):  # once, unless two keys of the run have one first hash
                same = run.hashes.second[here] == hashes.second[todo]
                known = np.flatnonzero(same)
                found[todo[known]] = run.numbers[here[known]]
                rest = np.flatnonzero(~same & (here + 1 < len(run)))
                todo, here = todo[rest], here[rest] + 1
                rest = np.flatnonzero(run.hashes.first[here] == hashes.first[todo])
                todo, here = todo[rest], here[rest]
        return found

    def with_run(self, run: Run, arrays: Arrays, env: Env) -> KeyIndex:
        """Return it with more keys, or with other numbers of known ones."""
        if not len(run):
            return self
        runs = [*self.runs, run]
        while len(runs) > 1 and len(runs[-1]) * _GROWTH >= len(runs[-2]):
            runs[-2:] = [merged(runs[-2:], arrays, env, whole=len(runs) == 2)]
        return KeyIndex(tuple(run for run in runs if len(run)))

    def without(self, numbers: Collection[int]) -> KeyIndex:
        """Return it without the keys of some numbers. No run may say what a key of an older one became."""
        if not numbers:
            return self
        gone = np.array(sorted(numbers), self.runs[0].numbers.dtype if self.runs else np.int32)
        kept = [(run, np.flatnonzero(np.isin(run.numbers, gone, invert=True))) for run in self.runs]
        return KeyIndex(tuple(run if len(at) == len(run) else run[at] for run, at in kept if len(at)))

    def of(self, number: int) -> KeyHashes:
        """Return the hashes of the keys of a number, run by run. No run may say what a key of an older one became."""
        return KeyHashes.joined([run.hashes[np.flatnonzero(run.numbers == number)] for run in self.runs])


class Pieces:
    """Keys that are told piece by piece, in any order, until all are known; they are sorted once."""

    def __init__(self, arrays: Arrays, env: Env) -> None:
        self._arrays = arrays
        self._env = env
        self._parts: list[Run] = []
        self._runs: list[Run] = []

    def add(self, hashes: KeyHashes, number: int) -> None:
        """Take keys and their number."""
        self._parts.append(Run(hashes, np.full(len(hashes), number, np.int32)))
        if sum(map(len, self._parts)) >= _PIECE_ROWS:
            self._sort()

    def index(self) -> KeyIndex:
        """Return the numbers of all keys; of a key with several, one is known."""
        self._sort()
        runs = [run for run in self._runs if len(run)]
        if len(runs) > 1:
            runs = [merged(runs, self._arrays, self._env, whole=True)]
            for run in self._runs:
                self._arrays.give_back(*run.arrays)
        return KeyIndex(tuple(runs))

    def _sort(self) -> None:
        if self._parts:
            both = _joined(self._parts)
            run = _picked(both, both.hashes.order(), self._arrays)
            starts = run.hashes.starts()
            if not starts.all():
                run = _picked(run, np.flatnonzero(starts), self._arrays)
            self._runs.append(run)
            self._parts = []


def merged(runs: Sequence[Run], arrays: Arrays, env: Env, *, whole: bool) -> Run:
    """Return runs as one, a range of hashes at a time; the youngest run says what a key of several became.

    Args:
        runs: from the oldest to the youngest, at least one.
        whole: nothing older is there, so keys without a number need not be known.
    """
    total = sum(map(len, runs))
    kind = runs[0].hashes.first.dtype
    least = int(np.iinfo(kind).min)
    steps = total // _STEP_ROWS + 1
    bounds = np.linspace(least, -least, steps + 1)[1:-1].astype(np.int64).astype(kind)
    cuts = [[0, *np.searchsorted(run.hashes.first, bounds).tolist(), len(run)] for run in runs]
    out = [arrays.empty(total, array.dtype) for array in runs[0].arrays]

    def merge(share: range) -> tuple[int, int]:
        start = done = sum(cut[share.start] for cut in cuts)
        for step in share:
            parts = [run[cut[step] : cut[step + 1]] for run, cut in zip(runs, cuts, strict=True)]
            part = _joined([one for one in parts if len(one)] or parts[:1])
            if len(part) > max(map(len, parts)):
                part = part[part.hashes.order()]
            last = np.ones(len(part), np.bool_)  # the youngest of each key
            last[:-1] = part.hashes.starts()[1:]
            if whole:
                last &= part.numbers != ABSENT
            if not last.all():
                part = part[np.flatnonzero(last)]
            end = done + len(part)
            for array, values in zip(out, part.arrays, strict=True):
                array[done:end] = values
            done = end
        return start, done

    half = steps // 2 if total >= _HALVES_FROM_ROWS else 0
    done = 0
    for start, end in env.map(merge, [share for share in (range(half), range(half, steps)) if share]):
        if done < start:  # keys of the half before are gone
            for array in out:
                array[done : done + end - start] = array[start:end]
        done += end - start
    *hashes, numbers = (arrays.shortened(array, done) for array in out)
    return Run(KeyHashes(*hashes), numbers)


def _joined(runs: Sequence[Run]) -> Run:
    """Return runs one after the other; it is not a run any more."""
    return Run(KeyHashes.joined([run.hashes for run in runs]), np.concatenate([run.numbers for run in runs]))


def _picked(run: Run, at: npt.NDArray[np.int64], arrays: Arrays) -> Run:
    out = [arrays.empty(len(at), array.dtype) for array in run.arrays]
    for values, array in zip(run.arrays, out, strict=True):
        np.take(values, at, out=array)
    *hashes, numbers = out
    return Run(KeyHashes(*hashes), numbers)

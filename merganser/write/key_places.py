"""KeyPlaces: in which partition and bucket each key of a table lies, for keys that may move between partitions.

No file says it, so a writer reads the keys of the table when it begins, and remembers what it writes itself. A key is
known by 96 bits of hash. The hashes lie in sorted runs, as the rows of an LSM tree do; a younger run says what a key of
an older one became. A key takes sixteen bytes. Beyond a budget runs lie on the local disk.

Values never change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from merganser.merge.wide_hashes import KeyHashes
from merganser.storage.env import Env
from merganser.storage.mapped import Arrays, memory_of

GONE: Final = -1
"""In place of a place: there is no row of the key."""
Places = npt.NDArray[np.int32]
_GROWTH: Final = 4
"""A run is merged with the next older one once it has so large a part of its keys."""
_PIECE_ROWS: Final = 1 << 20
"""So many keys of a table are sorted at once."""
_STEP_ROWS: Final = 1 << 16
"""Keys that are merged at a time: they stay in the cache."""
_HALVES_FROM_ROWS: Final = 1 << 18
"""So many keys are merged by two threads."""
_HASHES: Final = 1 << 64


@dataclass(frozen=True, slots=True)
class _Run:
    """Keys, each once, in the order of their hashes, and where they lie."""

    hashes: KeyHashes
    places: Places

    def __len__(self) -> int:
        return len(self.places)

    def slice(self, start: int, end: int) -> _Run:
        """Return a part, without a copy."""
        return _Run(KeyHashes(self.hashes.first[start:end], self.hashes.second[start:end]), self.places[start:end])


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
            first, second = run.hashes.first, run.hashes.second
            here = np.searchsorted(first, hashes.first)
            todo = np.flatnonzero(first[np.minimum(here, len(run) - 1)] == hashes.first)
            here = here[todo]
            while len(todo):  # once, unless two keys of the run have one first hash
                same = second[here] == hashes.second[todo]
                known = np.flatnonzero(same)
                found[todo[known]] = run.places[here[known]]
                rest = np.flatnonzero(~same & (here + 1 < len(run)))
                todo, here = todo[rest], here[rest] + 1
                rest = np.flatnonzero(first[here] == hashes.first[todo])
                todo, here = todo[rest], here[rest]
        return found

    def with_places(self, hashes: KeyHashes, places: Places, arrays: Arrays, env: Env) -> KeyPlaces:
        """Return it with the places of more keys, or other places of known ones.

        Args:
            hashes: each key once, in their order.
        """
        if not len(hashes):
            return self
        runs = [*self.runs, _Run(hashes, places)]
        while len(runs) > 1 and len(runs[-1]) * _GROWTH >= len(runs[-2]):
            runs[-2:] = [_merged(runs[-2:], arrays, env, whole=len(runs) == 2)]
        return KeyPlaces(tuple(run for run in runs if len(run)))


class Pieces:
    """Keys that are told piece by piece, in any order, until all are known; they are sorted once."""

    def __init__(self, arrays: Arrays, env: Env) -> None:
        self._arrays = arrays
        self._env = env
        self._parts: list[_Run] = []
        self._runs: list[_Run] = []

    def add(self, hashes: KeyHashes, place: int) -> None:
        """Take keys and the place where they lie."""
        self._parts.append(_Run(hashes, np.full(len(hashes), place, np.int32)))
        if sum(map(len, self._parts)) >= _PIECE_ROWS:
            self._sort()

    def places(self) -> KeyPlaces:
        """Return where all keys lie; of a key that lies in several places, one is known."""
        self._sort()
        runs = [run for run in self._runs if len(run)]
        if len(runs) > 1:
            runs = [_merged(runs, self._arrays, self._env, whole=True)]
            for run in self._runs:
                self._arrays.give_back(run.hashes.first, run.hashes.second, run.places)
        return KeyPlaces(tuple(runs))

    def _sort(self) -> None:
        if self._parts:
            both = _joined(self._parts)
            run = _picked(both, both.hashes.order(), self._arrays)
            starts = run.hashes.starts()
            if not starts.all():
                run = _picked(run, np.flatnonzero(starts), self._arrays)
            self._runs.append(run)
            self._parts = []


def _merged(runs: Sequence[_Run], arrays: Arrays, env: Env, *, whole: bool) -> _Run:
    """Return runs as one, a range of hashes at a time; the youngest run says what a key of several became.

    Args:
        runs: from the oldest to the youngest.
        whole: nothing older is there, so keys that are gone need not be known.
    """
    total = sum(map(len, runs))
    steps = total // _STEP_ROWS + 1
    bounds = np.linspace(-_HASHES // 2, _HASHES // 2, steps + 1)[1:-1].astype(np.int64)
    cuts = [[0, *np.searchsorted(run.hashes.first, bounds).tolist(), len(run)] for run in runs]
    first, second, places = (arrays.empty(total, kind) for kind in (np.int64, np.uint32, np.int32))

    def merge(share: range) -> tuple[int, int]:
        start = done = sum(cut[share.start] for cut in cuts)
        for step in share:
            part = _joined([run.slice(cut[step], cut[step + 1]) for run, cut in zip(runs, cuts, strict=True)])
            order = part.hashes.order()
            last = np.roll(part.hashes[order].starts(), -1)  # the youngest of each key
            kept = order[np.flatnonzero(last)]
            if whole:
                kept = kept[np.flatnonzero(part.places[kept] != GONE)]
            end = done + len(kept)
            first[done:end], second[done:end] = part.hashes.first[kept], part.hashes.second[kept]
            places[done:end] = part.places[kept]
            done = end
        return start, done

    half = steps // 2 if total >= _HALVES_FROM_ROWS else 0
    done = 0
    for start, end in env.map(merge, [share for share in (range(half), range(half, steps)) if share]):
        if done < start:  # keys of the half before are gone
            for array in (first, second, places):
                array[done : done + end - start] = array[start:end]
        done += end - start
    first, second, places = (arrays.shortened(array, done) for array in (first, second, places))
    return _Run(KeyHashes(first, second), places)


def _joined(runs: Sequence[_Run]) -> _Run:
    """Return runs one after the other; it is not a run any more."""
    first = np.concatenate([run.hashes.first for run in runs])
    second = np.concatenate([run.hashes.second for run in runs])
    return _Run(KeyHashes(first, second), np.concatenate([run.places for run in runs]))


def _picked(run: _Run, at: npt.NDArray[np.int64], arrays: Arrays) -> _Run:
    first, second, places = (arrays.empty(len(at), kind) for kind in (np.int64, np.uint32, np.int32))
    np.take(run.hashes.first, at, out=first)
    np.take(run.hashes.second, at, out=second)
    np.take(run.places, at, out=places)
    return _Run(KeyHashes(first, second), places)

"""Key ranges of files: sections that do not overlap, and the sorted runs inside a section.

This module compares ranges by rank. The kernel that orders rows orders the first and last keys of all files once, and
each key becomes the integer of its place among them (equal keys have equal ranks).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from merganser.merge.keys import sorted_positions
from merganser.meta.data_file import DataFile
from merganser.options import upkeep as u
from merganser.options.option import Options

Ranks = npt.NDArray[np.int64]


def top_level(options: Options, levels: Iterable[int] = ()) -> int:
    """Return the highest level of a bucket.

    The options say it, or a file that lies higher, from a time when they said otherwise.

    Args:
        levels: those of the live files of the bucket.
    """
    count = options.get(u.NUM_LEVELS)  # level 0 included
    configured = max(1, options.get(u.COMPACTION_TRIGGER)) if count is None else count - 1
    return max(configured, *levels, 0)


def dense_ranks(low: Sequence[pa.Array], high: Sequence[pa.Array]) -> tuple[Ranks, Ranks]:
    """Return the ranks of n first and n last keys among all 2n.

    Args:
        low, high: key columns of n rows each.
    """
    columns = [pa.chunked_array([a, b]) for a, b in zip(low, high, strict=True)]
    positions, is_last = sorted_positions(columns)
    ranks = np.empty(len(positions), np.int64)
    ranks[positions] = np.concatenate([[0], np.cumsum(is_last)[:-1]]) if len(positions) else 0
    return ranks[: len(low[0])], ranks[len(low[0]) :]


def sections(low: Ranks, high: Ranks) -> list[npt.NDArray[np.int64]]:
    """Return groups of files whose key ranges meet no other group, in key order, as positions."""
    order = np.argsort(low, kind="stable")
    reached = np.maximum.accumulate(high[order])
    begins = np.flatnonzero(low[order][1:] > reached[:-1]) + 1
    return np.split(order, begins) if len(order) else []


def runs_of(files: Sequence[DataFile], low: Ranks, high: Ranks) -> list[list[DataFile]]:
    """Return the files of a section as sorted runs, oldest first.

    The files of a level above 0 are one run. A flush of many rows leaves several files of level 0, which share its
    sequence numbers and no keys; they are one run, too. Any other file of level 0 is a run by itself. Newer rows lie at
    lower levels, and of two level-0 runs the newer has the larger sequence numbers; so runs are ordered by their
    largest.
    """
    runs: dict[tuple[int, int], list[int]] = {}
    for flush, members in enumerate(_flushes(files, low, high)):
        runs[0, flush] = members
    for i, file in enumerate(files):
        if file.level:
            runs.setdefault((file.level, -1), []).append(i)
    ordered = []
    for (level, _), members in runs.items():
        members.sort(key=lambda i: int(low[i]))
        if any(high[a] >= low[b] for a, b in pairwise(members)):
            # Another engine left a level whose files meet: take each for a run of its own, as sequence numbers allow.
            ordered += [(files[i].max_sequence, -level, [files[i]]) for i in members]
        else:
            ordered.append((max(files[i].max_sequence for i in members), -level, [files[i] for i in members]))
    ordered.sort(key=lambda run: run[:2])
    return [run for _, _, run in ordered]


def _flushes(files: Sequence[DataFile], low: Ranks, high: Ranks) -> list[list[int]]:
    """Return the files of level 0, those together whose ranges of sequence numbers meet and whose keys do not."""
    found: list[list[int]] = []
    reached = -1
    for i in sorted((i for i, file in enumerate(files) if file.level == 0), key=lambda i: files[i].min_sequence):
        if found and files[i].min_sequence <= reached:
            found[-1].append(i)
        else:
            found.append([i])
        reached = max(reached, files[i].max_sequence)
    flushes: list[list[int]] = []
    for members in found:
        members.sort(key=lambda i: int(low[i]))
        whole = all(high[a] < low[b] for a, b in pairwise(members))
        flushes += [members] if whole else [[i] for i in members]
    return flushes

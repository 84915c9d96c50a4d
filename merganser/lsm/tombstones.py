"""Tombstones: the retractions that a compaction keeps although nothing older lies below them.

Most retractions end there. Two sorts have to stay, because a later row would read otherwise without them:

unmatched retractions
    A sum that took 5 back before anything was added owes 5 to the rows that come. These stay for ever.
removals in a table whose columns order versions
    A late row is older than the delete and must not come back. These stay for `tombstone.time-retained`.

A compaction rewrites tombstones, so the creation time of a file says nothing of their age. Sequence numbers rise with
time, so one pair says enough: *rows with a number up to m were written by the time t*. The pair is part of the name of
the file (`data-<id>-0-until-<t>-<m>.orc`): a name survives a change of the level, takes no room in any format, and a
plan reads it without opening the file. A file without a pair was written as a whole by its creation time.

A compaction drops the removals of pairs that are old enough and gives its files the oldest other pair. Once that is
due, the next covers all that was there when the compaction before ran. So a removal is dropped by the first compaction
after twice the time, and never before the time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Final

import numpy as np
import numpy.typing as npt

from merganser.merge.engine import Lasting
from merganser.merge.rules import merge_of
from merganser.meta.data_file import DataFile
from merganser.meta.table_def import TableDef
from merganser.options import upkeep as u
from merganser.options import write as w
from merganser.values import dataclass

_DAY: Final = timedelta(days=1)
_PAIR: Final = re.compile(r"-until-(\d+)-(\d+)\.")

Pair = tuple[int, int]
"""(t, m): rows with a sequence number up to m were written by t, in epoch milliseconds."""


@dataclass(frozen=True, slots=True)
class Tombstones:
    """Which retractions a table keeps, at one time.

    Attributes:
        lasting: the kinds that mean something to later rows.
        oldest_ms: removals that were written before this time, or at it, go.
    """

    lasting: Lasting
    oldest_ms: int

    @classmethod
    def of(cls, table: TableDef, now_ms: int) -> Tombstones:
        """Return what a table keeps at a time.

        With the changelog producer full-compaction it keeps nothing: other engines take every row of the highest level
        for one that was there, and would publish that it goes.
        """
        kept = table.options.get(u.TOMBSTONE_TIME_RETAINED)
        none = not table.keyed or table.options.get(w.CHANGELOG_PRODUCER) == "full-compaction"
        return cls(
            Lasting() if none else merge_of(table).lasting,
            now_ms - round((_DAY if kept is None else kept).total_seconds() * 1000),
        )

    @property
    def any(self) -> bool:
        """Whether any retraction stays."""
        return bool(self.lasting.unmatched or self.lasting.removals)

    def due(self, file: DataFile) -> bool:
        """Return whether a compaction drops retractions of a file that has some."""
        if not self.any:
            return True
        return bool(self.lasting.removals) and any(written_ms <= self.oldest_ms for written_ms, _ in _pairs(file))

    def of_files(self, files: Sequence[DataFile]) -> Kept:
        """Return what is kept of the retractions of some files that are compacted together."""
        held = [file for file in files if file.delete_row_count != 0]
        if not held or not self.lasting.removals:
            return Kept(self.lasting, -1, "")
        due = _written_by(held, self.oldest_ms)
        later = sorted({written_ms for file in held for written_ms, _ in _pairs(file) if written_ms > self.oldest_ms})
        pairs = ((written_ms, _written_by(held, written_ms)) for written_ms in later)
        pair = next(((written_ms, number) for written_ms, number in pairs if number > due), None)
        return Kept(self.lasting, due, "" if pair is None else f"-until-{pair[0]}-{pair[1]}")


@dataclass(frozen=True, slots=True)
class Kept:
    """What one compaction keeps of retractions, and what its files are called by.

    Attributes:
        lasting: the kinds that mean something to later rows.
        due: removals with sequence numbers up to this one go.
        mark: part of the names of the files.
    """

    lasting: Lasting
    due: int
    mark: str

    def mask(self, kinds: npt.NDArray[np.int8], numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_] | None:
        """Return bool[n], the rows that stay; None: all."""
        adds = (kinds & 1) == 0
        if adds.all():
            return None
        stays = adds | np.isin(kinds, self.lasting.unmatched)
        stays |= np.isin(kinds, self.lasting.removals) & (numbers > self.due)
        return None if stays.all() else stays


def _pairs(file: DataFile) -> list[Pair]:
    """Return what is known of the time of a file's rows, the earliest first."""
    whole = (file.creation_time_ms or 0, file.max_sequence)
    found = _PAIR.search(file.name)
    if found is None:
        return [whole]
    part = (int(found[1]), int(found[2]))
    return [part, whole] if part[0] < whole[0] else [whole]


def _written_by(files: Iterable[DataFile], time_ms: int) -> int:
    """Return the largest number up to which the rows of all files are known to be written by a time; -1: none.

    Numbers of files may meet, for writers ran side by side. So the file that says least decides.
    """
    largest, least = -1, None
    for file in files:
        number = max((m for written_ms, m in _pairs(file) if written_ms <= time_ms), default=file.min_sequence - 1)
        largest = max(largest, file.max_sequence)
        if number < file.max_sequence:
            least = number if least is None else min(least, number)
    return largest if least is None else least

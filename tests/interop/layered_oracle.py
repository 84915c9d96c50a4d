"""The oracle of merge engines, with the files of one bucket: which flushes lie together in which file.

The oracle keeps every version of a key by the flush that it came with. A compaction puts the flushes of its files
together, and what it merges depends on which these are; so they are read off the table, before and after, and
nothing of how they were picked is believed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from merganser.testing.engines_oracle import EngineOracle, Record, Row


@dataclass
class LayeredOracle(EngineOracle):
    """An `EngineOracle` of a table of one bucket.

    Attributes:
        files: by name of a live file, the flushes that it holds.
        lit: flushes that lie above level 0.
        counting: whether a compaction of everything drops rows whose `_VALUE_COUNT` is 0.
    """

    files: dict[str, frozenset[int]] = field(default_factory=dict)
    lit: frozenset[int] = frozenset()
    counting: bool = False

    def settle(self, levels: Mapping[str, int], *, flushed: bool, keeps: bool = True) -> None:
        """Take over the live files after a flush or a compaction, or a flush that a compaction followed at once.

        Args:
            levels: of the live files, by name.
            flushed: whether there was a flush.
            keeps: compactions keep retractions that mean something to later rows, as ours do.
        """
        newest = frozenset({self.flushes} if flushed else ())
        gone = frozenset().union(*(held for name, held in self.files.items() if name not in levels))
        kept = {name: held for name, held in self.files.items() if name in levels}
        added = gone | newest
        self.files = kept | {name: added for name in levels if name not in kept}
        self.lit = frozenset().union(*(held for name, held in self.files.items() if levels[name] > 0))
        if gone:
            self.put_together(added, nothing_older=not kept, keeps=keeps)

    def put_together(self, flushes: frozenset[int], *, nothing_older: bool, keeps: bool) -> None:
        """Fold the versions of some flushes."""
        for key, records in list(self.stored.items()):
            chosen = [record for record in records if record.number[0] in flushes]
            merged = self._fold(self._ordered(chosen)) if chosen else None
            rest = [record for record in records if record.number[0] not in flushes]
            if merged is not None and (not nothing_older or self._stays(merged, keeps=keeps)):
                rest.append(merged)
            self.stored[key] = sorted(rest, key=lambda record: record.number)
            if not rest:
                del self.stored[key]

    def visible(self) -> list[Row]:
        """Return the rows of a batch read; of first-row tables those that a compaction has brought to light."""
        if self.engine != "first-row":
            return super().visible()
        lit = [[record for record in records if record.number[0] in self.lit] for records in self.stored.values()]
        merged = [self._fold(self._ordered(records)) for records in lit]
        return [record.row for record in merged if record is not None and record.adds]

    def _stays(self, record: Record, *, keeps: bool) -> bool:
        return not self._counts_nothing(record.row) if record.adds else keeps and self.lasts

    def _counts_nothing(self, row: Row) -> bool:
        return self.counting and row["_VALUE_COUNT"] == 0

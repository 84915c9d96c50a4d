"""The oracle of merge engines, with the files of each bucket: which flushes lie together in which file.

The oracle keeps every version of a key by the flush that it came with. A compaction puts the flushes of its files
together, and what it merges, and which retractions it drops, depends on which these are; so they are read off the
table, before and after, and nothing of how they were picked is believed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from merganser.meta.layout import bucket_numbers
from tests.oracle.engines import Change, EngineOracle, Record, Row

if TYPE_CHECKING:
    from merganser import Table


@dataclass
class LayeredOracle(EngineOracle):
    """An `EngineOracle` of one bucket.

    Attributes:
        files: by name of a live file, the flushes that it holds.
        lit: flushes that lie above level 0.
        masks: the table has deletion vectors. Each flush is compacted at once, folded with what lies below, and what
            it was folded with is deleted there; so nothing older is left of any key.
    """

    files: dict[str, frozenset[int]] = field(default_factory=dict)
    lit: frozenset[int] = frozenset()
    masks: bool = False

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
        new = {name: added for name in levels if name not in kept}
        self.files = kept | new
        self.lit = frozenset().union(*(held for name, held in self.files.items() if levels[name] > 0))
        if self.masks and flushed:
            self._put_on_top(keeps=keeps)
        if gone:
            above = max((levels[name] for name in new), default=0) >= max((levels[name] for name in kept), default=0)
            self.put_together(added, nothing_older=above or self.masks, keeps=keeps)

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

    def _put_on_top(self, *, keeps: bool) -> None:
        """Fold the keys of the newest flush with all that is older, in the file of that flush."""
        for key, records in list(self.stored.items()):
            if not any(record.number[0] == self.flushes for record in records):
                continue
            merged = self._fold(self._ordered(records))
            del self.stored[key]
            if merged is not None and self._stays(merged, keeps=keeps):
                self.stored[key] = [replace(merged, number=(self.flushes, *merged.number[1:]))]

    def _stays(self, record: Record, *, keeps: bool) -> bool:
        return record.adds or (keeps and self.lasts)


class BucketOracles:
    """A `LayeredOracle` for every bucket of a key table whose partitions are texts."""

    def __init__(self, table: Table) -> None:
        """Nothing is written yet."""
        self.table = table
        self._oracles: dict[tuple[str, int], LayeredOracle] = defaultdict(self._new)
        self.rules = self._new()
        """An oracle of nothing, which knows what the table refuses and removes."""

    def _new(self) -> LayeredOracle:
        types = {found.name: found.type for found in self.table.schema.fields}
        masks = self.table.options.get("deletion-vectors.enabled") == "true"
        return LayeredOracle(types, self.table.schema.primary_keys, self.table.options, masks=masks)

    def flush(self, rows: pa.Table, changes: Sequence[Change], *, ours: bool) -> None:
        """Store the rows of one commit, and what compactions after it did.

        Args:
            rows: of the changes.
            changes: in order.
            ours: merganser wrote and compacted them; else another client, which folds and keeps less.
        """
        parts: dict[tuple[str, int], list[Change]] = defaultdict(list)
        for change, bucket in zip(changes, bucket_numbers(self.table.definition, rows).tolist(), strict=True):
            partition = ", ".join(change[1][name] for name in self.table.schema.partition_keys)
            parts[f"{{{partition}}}", bucket].append(change)
        for place, part in parts.items():
            (self._oracles[place].store if ours else self._oracles[place].flush)(part)
        self._settle(frozenset(parts), keeps=ours)

    def compacted(self, *, ours: bool) -> None:
        """Take over what a compaction did."""
        self._settle(frozenset(), keeps=ours)

    def _settle(self, flushed: frozenset[tuple[str, int]], *, keeps: bool) -> None:
        levels: dict[tuple[str, int], dict[str, int]] = defaultdict(dict)
        for row in self.table.files().to_pylist():
            levels[row["partition"] or "{}", row["bucket"]][row["file_path"]] = row["level"]
        assert levels.keys() <= self._oracles.keys(), f"files in buckets {levels.keys() - self._oracles.keys()}"
        for place, oracle in self._oracles.items():
            oracle.settle(levels[place], flushed=place in flushed, keeps=keeps)

    def visible(self) -> list[Row]:
        """Return the rows of a batch read."""
        return [row for oracle in self._oracles.values() for row in oracle.visible()]

    @property
    def holds_retractions(self) -> bool:
        """Whether any is stored."""
        stored = (records for oracle in self._oracles.values() for records in oracle.stored.values())
        return any(not record.adds for records in stored for record in records)

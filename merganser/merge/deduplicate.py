"""Engines that choose a version: deduplicate the last, first-row the first. Both return positions and copy no row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import pyarrow as pa

from merganser.merge.engine import Folded, Kinds, Lasting, Parts
from merganser.merge.groups import Groups
from merganser.schema.row_kind import RETRACTIONS
from merganser.values import dataclass


@dataclass(frozen=True, slots=True)
class Deduplicate:
    """The newest version of a key is the row; a retraction makes the key absent.

    Format: merge engine `deduplicate`. Oracle: `testing.engines_oracle`.
    """

    chooses: ClassVar[bool] = True
    removes: ClassVar[bool] = False
    owes: ClassVar[bool] = False

    def lasting(self, *, ordered: bool) -> Lasting:
        return Lasting(removals=RETRACTIONS) if ordered else Lasting()

    def needs(self, columns: Sequence[str]) -> tuple[str, ...]:
        return ()

    def refusal(self, *, deletes: bool, updates_before: bool) -> str | None:
        return None

    def parts(self, rows: pa.Table, groups: Groups, kinds: Kinds) -> Parts:
        return Parts()

    def owed(self, rows: pa.Table, groups: Groups, columns: Sequence[str]) -> Folded | None:
        return None

    def fold(self, rows: pa.Table, groups: Groups, kinds: Kinds | None, columns: Sequence[str]) -> Folded:
        last = groups.last
        return Folded(rows.select(columns), last, None if kinds is None else kinds[last], groups.ends - 1)


@dataclass(frozen=True, slots=True)
class FirstRow:
    """The first version of a key to arrive is the row, for ever.

    Format: merge engine `first-row`. Oracle: `testing.engines_oracle`.
    """

    chooses: ClassVar[bool] = True
    removes: ClassVar[bool] = False
    owes: ClassVar[bool] = False

    def lasting(self, *, ordered: bool) -> Lasting:
        return Lasting()

    def needs(self, columns: Sequence[str]) -> tuple[str, ...]:
        return ()

    def refusal(self, *, deletes: bool, updates_before: bool) -> str | None:
        return (
            "merge engine first-row keeps the first row of a key and takes none back. Set 'ignore-delete' to drop them."
        )

    def parts(self, rows: pa.Table, groups: Groups, kinds: Kinds) -> Parts:
        return Parts()

    def owed(self, rows: pa.Table, groups: Groups, columns: Sequence[str]) -> Folded | None:
        return None

    def fold(self, rows: pa.Table, groups: Groups, kinds: Kinds | None, columns: Sequence[str]) -> Folded:
        first = groups.first
        return Folded(rows.select(columns), first, None if kinds is None else kinds[first], groups.starts)

"""Engine aggregation: every column is folded by a function of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
import pyarrow as pa

from merganser.merge.engine import (
    Folded,
    Kinds,
    Lasting,
    Parts,
    merged_kinds,
    owed_rows,
    parts_since_removal,
    since_removal,
)
from merganser.merge.functions.function import Function
from merganser.merge.functions.registry import PICKS
from merganser.merge.functions.segments import taken, validity
from merganser.merge.groups import Groups, Positions
from merganser.schema import row_kind
from merganser.values import dataclass


@dataclass(frozen=True)
class Aggregation:
    """One function per column that is no key column.

    Attributes:
        functions: by column.
        remove_on_delete: a -D removes the row, and what comes later begins anew.

    Format: merge engine `aggregation`. Oracle: `testing.engines_oracle`.
    """

    chooses: ClassVar[bool] = False
    functions: Mapping[str, Function]
    remove_on_delete: bool = False

    @property
    def removes(self) -> bool:
        return self.remove_on_delete

    @property
    def owes(self) -> bool:
        return any(function.takes_back for function in self.functions.values())

    def lasting(self, *, ordered: bool) -> Lasting:
        # What a function makes of its column depends on what was taken back if it adds up, or if versions have an order
        # of their own; else a retraction of nothing leaves nothing.
        owes = ordered or any(function.owes for function in self.functions.values())
        if self.remove_on_delete:
            return Lasting((row_kind.UPDATE_BEFORE,) if owes else (), (row_kind.DELETE,) if ordered else ())
        return Lasting(row_kind.RETRACTIONS if owes else ())

    def needs(self, columns: Sequence[str]) -> tuple[str, ...]:
        return ()

    def refusal(self, *, deletes: bool, updates_before: bool) -> str | None:
        if self.remove_on_delete and not updates_before:
            return None
        for column, function in self.functions.items():
            if not function.retracts:
                why = f"aggregate function '{function.name}' of column '{column}' does not support retraction."
                if self.remove_on_delete:  # which excludes 'ignore-retract'
                    return f"{why} Set 'ignore-update-before' to drop rows of kind -U."
                return (
                    f"{why} Set 'fields.{column}.ignore-retract' to leave the column as it is, or 'ignore-delete' to "
                    "drop such rows."
                )
        return None

    def parts(self, rows: pa.Table, groups: Groups, kinds: Kinds) -> Parts:
        if not self.remove_on_delete:
            return Parts()
        removes = kinds[groups.positions] == row_kind.DELETE
        return parts_since_removal(groups, removes, np.ones(len(removes), np.bool_))

    def owed(self, rows: pa.Table, groups: Groups, columns: Sequence[str]) -> Folded | None:
        taking = {name for name, function in self.functions.items() if function.takes_back}
        taken_back: dict[str, pa.Array] = {}
        for name in columns:
            function = self.functions.get(name)
            if name in taking and function is not None:
                taken_back[name] = function.taken_back(rows.column(name), groups)
            elif function is not None:
                taken_back[name] = pa.nulls(groups.count, rows.schema.field(name).type)
        return owed_rows(rows, groups, columns, taken_back, self._retracted)

    @property
    def _retracted(self) -> int:
        return row_kind.UPDATE_BEFORE if self.removes else row_kind.DELETE

    def fold(self, rows: pa.Table, groups: Groups, kinds: Kinds | None, columns: Sequence[str]) -> Folded:
        sequence_positions = groups.ends - 1
        if self.remove_on_delete and kinds is not None and groups.additions is not None:
            groups = since_removal(groups, kinds, updates_before=True)
        gathered = Gathering(rows, groups)
        out = [gathered.column(name, self.functions.get(name)) for name in columns]
        table = pa.Table.from_arrays(out, schema=rows.select(columns).schema)
        return Folded(table, None, merged_kinds(groups, kinds, self._retracted), sequence_positions)


class Gathering:
    """Columns folded over the same groups; what several of them choose alike is found once."""

    def __init__(self, rows: pa.Table, groups: Groups) -> None:
        self._rows = rows
        self._groups = groups
        self._last: pa.Array | None = None

    def column(self, name: str, function: Function | None) -> pa.Array | pa.ChunkedArray:
        """Return k values of a column; function None: those of the last version, as for keys."""
        column = self._rows.column(name)
        if function is None:
            return column.take(self._lasts())
        if not isinstance(function, PICKS):
            return function.fold(column, self._groups)
        return self.taken(name, function.pick(validity(column), self._groups))

    def taken(self, name: str, positions: Positions) -> pa.Array:
        """Return the values of a column at some rows, -1 standing for null."""
        return taken(self._rows.column(name), positions)

    def _lasts(self) -> pa.Array:
        if self._last is None:
            self._last = pa.array(self._groups.last)
        return self._last

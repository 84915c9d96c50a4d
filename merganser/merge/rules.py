"""How the versions of a key merge in one table: its engine, its order, and which kinds of rows it takes.

Flushes, reads and compactions share it: `groups` orders versions, `fold` makes one row of each group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from merganser.merge.aggregation import Aggregation
from merganser.merge.deduplicate import Deduplicate, FirstRow
from merganser.merge.engine import Engine, Folded, Kinds, Lasting, Parts
from merganser.merge.functions.function import Function
from merganser.merge.functions.picks import KeyValue, LastNonNullValue, LastValue
from merganser.merge.functions.registry import function_for
from merganser.merge.groups import Groups, Mask, groups_of
from merganser.merge.keys import sorted_positions
from merganser.merge.order import UserOrder
from merganser.merge.partial_update import PartialUpdate, SequenceGroup
from merganser.meta.table_def import TableDef
from merganser.options import write as w
from merganser.options.registry import sequence_groups
from merganser.rules.merging import LAST_NON_NULL
from merganser.values import dataclass

Versions = Callable[[pa.Table], npt.NDArray[np.int64]]
"""Rows -> int64[n], which of them came later."""


@dataclass(frozen=True)
class Merge:
    """The merge of one table.

    Attributes:
        engine: what becomes of the versions of a key.
        order: order of versions before that of their arrival.
        ignore_delete: retractions have no effect, wherever they come from.
    """

    engine: Engine
    order: UserOrder | None = None
    ignore_delete: bool = False

    @property
    def lasting(self) -> Lasting:
        """Which retractions outlive all that is older."""
        return Lasting() if self.ignore_delete else self.engine.lasting(ordered=self.order is not None)

    def needs(self, columns: Sequence[str]) -> tuple[str, ...]:
        """Return the columns that must be read to merge these, besides themselves and the key."""
        order = () if self.order is None else self.order.columns
        return tuple(dict.fromkeys((*self.engine.needs(columns), *order)))

    def refusal(self, kinds: Kinds) -> str | None:
        """Return why rows of these kinds cannot be written; None: they can."""
        deletes, updates_before = bool((kinds == 3).any()), bool((kinds == 1).any())
        if not deletes and not updates_before:
            return None
        return self.engine.refusal(deletes=deletes, updates_before=updates_before)

    def tie(self, rows: pa.Table, kinds: Kinds | None, versions: npt.NDArray[np.int64] | None) -> (
        npt.NDArray[np.int64] | None
    ):  # fmt: skip
        """Return int64[n] that orders versions of a key; None: by their position.

        Args:
            rows: with the columns that the order looks at.
            kinds: int8[n]; None: all are inserts.
            versions: int64[n], which rows came later; None: by position.
        """
        if self.order is None:
            return versions
        ranks = self.order.ranks(rows, None if kinds is None else (kinds & 1) == 0)
        if versions is None:
            return ranks
        place = np.empty(len(ranks), np.int64)
        place[np.lexsort((versions, ranks))] = np.arange(len(ranks))
        return place

    def groups(
        self,
        rows: pa.Table,
        keys: Sequence[pa.ChunkedArray],
        kinds: Kinds | None,
        versions: npt.NDArray[np.int64] | None = None,
    ) -> Groups:
        """Return rows as groups of versions, in merge order."""
        positions, is_last = sorted_positions(keys, self.tie(rows, kinds, versions))
        return groups_of(positions, is_last, _additions(kinds))

    def parts(self, rows: pa.Table, groups: Groups, kinds: Kinds | None) -> Parts:
        """Return groups as a flush stores them; see `Engine.parts`."""
        if kinds is None or groups.additions is None or not self.engine.removes or self.ignore_delete:
            return Parts()
        return self.engine.parts(rows, groups, kinds)

    @property
    def owes(self) -> bool:
        """Whether versions that a flush folds may owe something."""
        return self.engine.owes and not self.ignore_delete

    def owed(self, rows: pa.Table, groups: Groups, kinds: Kinds | None, columns: Sequence[str]) -> Folded | None:
        """Return what groups that add and retract owe; see `Engine.owed`.

        By the columns that order versions, these rows are as new as what `fold` makes of their groups: so the order of
        arrival puts them before it.
        """
        owed = self.engine.owed(rows, groups, columns)
        if owed is None or self.order is None:
            return owed
        folded = self.engine.fold(rows, groups, kinds, self.order.columns).table()
        found = folded.take(pa.array(np.searchsorted(groups.ends - 1, owed.sequence_positions)))
        table = owed.rows
        for name in self.order.columns:
            table = table.set_column(table.schema.get_field_index(name), table.schema.field(name), found.column(name))
        return replace(owed, rows=table)

    def fold(self, rows: pa.Table, groups: Groups, kinds: Kinds | None, columns: Sequence[str]) -> Folded:
        """Return one row per group; see `Engine.fold`. Groups that have nothing but ignored retractions are gone."""
        if self.ignore_delete and groups.additions is not None and not groups.additions.all():
            place = np.flatnonzero(groups.additions)
            groups, _ = groups.only(groups.additions)
            if not groups.count:
                return Folded(rows.select(columns), np.empty(0, np.int64), None, np.empty(0, np.int64))
            folded = self.engine.fold(rows, groups, kinds, columns)
            return Folded(folded.rows, folded.positions, folded.kinds, place[folded.sequence_positions])
        return self.engine.fold(rows, groups, kinds, columns)


def _additions(kinds: Kinds | None) -> Mask | None:
    if kinds is None:
        return None
    adds: Mask = (kinds & 1) == 0
    return None if adds.all() else adds


def merge_of(table: TableDef, *, stored: bool = True) -> Merge:
    """Return how a table merges.

    Args:
        table: a table with a key, whose options have been checked.
        stored: whether the versions are stored rows, or rows as they come in, which some functions tell apart.
    """
    options = table.options
    columns = options.get(w.SEQUENCE_FIELD)
    order = None
    if columns:
        order = UserOrder(
            columns,
            options.get(w.SEQUENCE_FIELD_SORT_ORDER) == "descending",
            "row-kind-flag" in options.get(w.SEQUENCE_AUTO_PADDING),
        )
    return Merge(
        _ENGINES[options.get(w.MERGE_ENGINE)](table, stored),
        order,
        options.get(w.IGNORE_DELETE),
    )


@dataclass(frozen=True, slots=True)
class Nulled:
    """When a row of kind -D makes a column null.

    Attributes:
        ordering: if it has a value in one of these columns; none: always.
        removing: but not if it has one in one of these, since it removes the row then.
    """

    ordering: tuple[str, ...] = ()
    removing: tuple[str, ...] = ()


def nulled_by_deletes(table: TableDef) -> dict[str, Nulled]:
    """Return the NOT NULL columns that rows of kind -D make null."""
    engine = merge_of(table, stored=False).engine
    found: dict[str, Nulled] = {}
    if isinstance(engine, Aggregation) and not engine.remove_on_delete:
        found = {name: Nulled() for name, function in engine.functions.items() if isinstance(function, _NULLED)}
    elif isinstance(engine, PartialUpdate) and not engine.remove_on_delete:
        removing = tuple(name for group in engine.groups if group.removes for name in group.ordering)
        for group in engine.groups:
            if group.removes:
                continue
            for name in group.protected:
                if name not in group.functions or isinstance(group.functions[name], _NULLED):
                    found[name] = Nulled(group.ordering, removing)
    return {name: when for name, when in found.items() if not table.schema.field(name).type.nullable}


_NULLED: Final = (LastValue, LastNonNullValue)


def _aggregation(table: TableDef, stored: bool) -> Engine:
    options = table.options
    ordering = options.get(w.SEQUENCE_FIELD)
    default = options.get(w.DEFAULT_AGGREGATE_FUNCTION)
    functions: dict[str, Function] = {}
    for column in table.schema.fields:
        if column.name in table.schema.primary_keys:
            continue
        if column.name in ordering or column.name in table.schema.placing_columns:
            functions[column.name] = KeyValue(column)
            continue
        name = options.get(w.AGGREGATE_FUNCTION.of(column.name)) or default or LAST_NON_NULL
        functions[column.name] = function_for(column, name, options, stored=stored)
    return Aggregation(functions, options.get(w.AGGREGATION_REMOVE_RECORD_ON_DELETE))


def _partial_update(table: TableDef, stored: bool) -> Engine:
    options = table.options
    default = options.get(w.DEFAULT_AGGREGATE_FUNCTION)
    removing = set(options.get(w.PARTIAL_UPDATE_REMOVE_RECORD_ON_SEQUENCE_GROUP))
    fields = {field.name: field for field in table.schema.fields}
    groups = []
    for ordering, protected in sequence_groups(options):
        functions = {}
        kept = tuple(name for name in protected if name not in ordering and name not in table.schema.placing_columns)
        for name in kept:
            function = options.get(w.AGGREGATE_FUNCTION.of(name)) or default
            made = None if function is None else function_for(fields[name], function, options, stored=stored)
            if made is not None and not isinstance(made, LastValue):  # that one is what a group does by itself
                functions[name] = made
        needed = frozenset(name for name in kept if name not in functions and not fields[name].type.nullable)
        groups.append(SequenceGroup(ordering, kept, functions, not removing.isdisjoint(ordering), needed))
    grouped = {name for group in groups for name in group.columns}
    keys = table.schema.primary_keys
    plain = {
        name: LastNonNullValue(field) for name, field in fields.items() if name not in grouped and name not in keys
    }
    removes = options.get(w.PARTIAL_UPDATE_REMOVE_RECORD_ON_DELETE)
    return PartialUpdate(keys, plain, tuple(groups), removes, incoming=not stored)


_ENGINES: dict[str, Callable[[TableDef, bool], Engine]] = {
    "deduplicate": lambda table, stored: Deduplicate(),
    "first-row": lambda table, stored: FirstRow(),
    "aggregation": _aggregation,
    "partial-update": _partial_update,
}

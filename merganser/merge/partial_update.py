"""Engine partial-update: every column keeps its newest value that is not null; sequence groups order some apart.

A sequence group has ordering columns and protected columns. A version whose ordering columns are all null does
not touch the group. Any other version is *in order* if no version before it has a larger tuple, else *late*. The last
version in order gives the values of the ordering columns and, nulls included, of the protected columns. If it is a
retraction, the protected columns become null, or keep its values if they are NOT NULL. Functions of protected columns
take all versions, the late ones first::

    arrival   1     2     3     4          in order: 1, 3
    tuple     10    7     12    11         late:     2, 4
    function  4, 2, 1, 3                   newest:   3
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
import pyarrow as pa

from merganser.errors import InvalidInputError
from merganser.merge.aggregation import Gathering
from merganser.merge.engine import (
    Folded,
    Kinds,
    Lasting,
    Parts,
    merged_kinds,
    owed_rows,
    parts_since_removal,
    says_nothing,
    since_removal,
)
from merganser.merge.functions.function import Function, LateRows, additions_only, after_null
from merganser.merge.functions.picks import LastNonNullValue
from merganser.merge.functions.segments import any_of, taken, whole
from merganser.merge.groups import Groups, Mask, Positions
from merganser.merge.order import ascending_ranks, dense_ranks
from merganser.schema import row_kind
from merganser.values import dataclass

_RANK_PRODUCT_MAX = 1 << 62


@dataclass(frozen=True)
class SequenceGroup:
    """Columns that one tuple orders.

    Attributes:
        ordering: the tuple.
        protected: columns it orders, without `ordering`; those with a function in `functions`. They have the value of
            the newest version, so `last_value` is no function here: what is late does not touch it, retractions
            included.
        removes: a -D that is in order removes the whole row.
        kept: those of `protected` without a function that are NOT NULL: a retraction leaves no null there.
    """

    ordering: tuple[str, ...]
    protected: tuple[str, ...]
    functions: Mapping[str, Function] = field(default_factory=dict)
    removes: bool = False
    kept: frozenset[str] = frozenset()

    @property
    def columns(self) -> tuple[str, ...]:
        return self.ordering + self.protected


@dataclass(frozen=True)
class PartialUpdate:
    """Columns in sequence groups, and columns by their newest value that is not null.

    Attributes:
        keys: primary key columns.
        plain: columns outside all groups.
        groups: the sequence groups.
        remove_on_delete: a -D removes the row, and what comes later begins anew; -U has no effect.
        incoming: the versions are rows as they come in: a lone one, too, loses what no ordering column vouches for.

    Format: merge engine `partial-update`. Oracle: `testing.engines_oracle`.
    """

    chooses: ClassVar[bool] = False
    keys: tuple[str, ...]
    plain: Mapping[str, LastNonNullValue]
    groups: tuple[SequenceGroup, ...] = ()
    remove_on_delete: bool = False
    incoming: bool = False

    @property
    def removes(self) -> bool:
        return self.remove_on_delete or any(group.removes for group in self.groups)

    @property
    def owes(self) -> bool:
        return any(function.takes_back for group in self.groups for function in group.functions.values())

    def lasting(self, *, ordered: bool) -> Lasting:
        if self.remove_on_delete:
            return Lasting(removals=(row_kind.DELETE,) if ordered else ())
        if self.removes:
            return Lasting((row_kind.UPDATE_BEFORE,), (row_kind.DELETE,))
        return Lasting(row_kind.RETRACTIONS if self.groups else ())

    def needs(self, columns: Sequence[str]) -> tuple[str, ...]:
        wanted = [g.ordering for g in self.groups if g.removes or not set(g.columns).isdisjoint(columns)]
        return tuple(dict.fromkeys(name for ordering in wanted for name in ordering))

    def refusal(self, *, deletes: bool, updates_before: bool) -> str | None:
        if self.remove_on_delete:
            return None
        if not self.groups:
            return (
                "merge engine partial-update cannot accept rows of kind -U or -D unless it is told what they do. Set "
                "'ignore-delete' to drop them, 'partial-update.remove-record-on-delete' to remove the row, or declare "
                "sequence groups to retract from their columns."
            )
        for group in self.groups:
            for column, function in group.functions.items():
                if not function.retracts:
                    return (
                        f"aggregate function '{function.name}' of column '{column}' does not support retraction. Set "
                        f"'fields.{column}.ignore-retract' to leave the column as it is, or 'ignore-delete' to drop "
                        "them."
                    )
        return None

    def parts(self, rows: pa.Table, groups: Groups, kinds: Kinds) -> Parts:
        deletes = kinds[groups.positions] == row_kind.DELETE
        if self.remove_on_delete:
            assert groups.additions is not None
            return parts_since_removal(groups, deletes, groups.additions)
        removing = [group for group in self.groups if group.removes]
        if not removing or not deletes.any():
            return Parts()
        apart = self._may_remove(rows, groups, deletes, removing)
        demoted = deletes & ~apart
        if not apart.any():
            return Parts((), demoted)
        passed = np.cumsum(apart)
        part = 2 * (passed - (passed[groups.starts] - apart[groups.starts])[groups.group_of]) - apart
        # Most keys have one part, the last: so parts are counted from the end.
        part -= part[groups.ends - 1][groups.group_of]
        return Parts(tuple(part == i for i in np.unique(part).tolist()), demoted)

    def _may_remove(self, rows: pa.Table, groups: Groups, deletes: Mask, removing: Sequence[SequenceGroup]) -> Mask:
        """Return bool[n] over sorted rows: deletes that remove the row, or may, as older versions decide.

        A delete in order is at least as new as all before it. So it removes whatever an earlier one of its group does,
        and the earlier one needs no part of its own. A late one removes nothing, unless another group removed before.
        """
        place = np.arange(len(deletes))
        found = np.zeros(len(deletes), np.bool_)
        for group in removing:
            order = _Order(rows, groups, group)
            last = np.maximum.reduceat(np.where(order.in_order & deletes, place, -1), groups.starts)[groups.group_of]
            found |= deletes & (order.in_order if len(removing) == 1 else order.touches) & (place >= last)
        return found

    def owed(self, rows: pa.Table, groups: Groups, columns: Sequence[str]) -> Folded | None:
        taken_back: dict[str, pa.Array] = {}
        for group in self.groups:
            if any(function.takes_back for function in group.functions.values()):
                taken_back |= self._owed_of(rows, groups, group)
        for group in self.groups:
            for name in group.columns:
                taken_back.setdefault(name, pa.nulls(groups.count, rows.schema.field(name).type))
        return owed_rows(rows, groups, columns, taken_back, self._retracted)

    def _owed_of(self, rows: pa.Table, groups: Groups, group: SequenceGroup) -> dict[str, pa.Array]:
        """Return what the functions of a group owe, with ordering columns where they owe something: else it is null.

        The row stands before one that is as new or newer, so it may have the ordering of any of its retractions.
        """
        assert groups.additions is not None
        touches = _Order(rows, groups, group).touches
        counted, alive = groups.only(touches)
        found = {}
        owes = np.zeros(groups.count, np.bool_)
        for name, function in group.functions.items():
            if function.takes_back:
                place = np.full(groups.count, -1, np.int64)
                place[alive] = np.arange(len(alive))
                values = function.taken_back(rows.column(name), counted)
                found[name] = values.take(pa.array(place, mask=place < 0))
                owes |= ~says_nothing(found[name])
        at = np.where(touches & ~groups.additions, np.arange(len(touches)), -1)
        last = np.maximum.reduceat(at, groups.starts)
        last = np.where(owes, groups.positions[last], -1)
        return found | {name: taken(rows.column(name), last) for name in group.ordering}

    @property
    def _retracted(self) -> int:
        return row_kind.UPDATE_BEFORE if self.removes else row_kind.DELETE

    def fold(self, rows: pa.Table, groups: Groups, kinds: Kinds | None, columns: Sequence[str]) -> Folded:
        sequence_positions = groups.ends - 1
        resets: Positions | None = None
        if kinds is not None and groups.additions is not None:
            if self.remove_on_delete:
                groups = since_removal(groups, kinds, updates_before=False)
            elif not self.groups:
                self._refuse(groups)
            else:
                groups, resets = self._since_removal(rows, groups, kinds)
        gathering = Gathering(rows, groups)
        found: dict[str, pa.Array | pa.ChunkedArray] = {}
        for group in self.groups:
            if not set(group.columns).isdisjoint(columns):
                found |= _GroupFold(rows, groups, group, resets, incoming=self.incoming).columns(columns)
        added = groups if groups.additions is None or groups.additions.all() else additions_only(groups)
        plain = gathering if added is groups else Gathering(rows, added)
        for name in columns:
            if name in self.plain:
                found[name] = plain.column(name, self.plain[name])
            elif name in self.keys:
                found[name] = gathering.column(name, None)
        out = [found[name] for name in columns]
        table = pa.Table.from_arrays(out, schema=rows.select(columns).schema)
        return Folded(table, None, merged_kinds(groups, kinds, self._retracted), sequence_positions)

    def _refuse(self, groups: Groups) -> None:
        """Raise where a retraction meets another version: only another engine can have written it."""
        assert groups.additions is not None
        count = int(np.count_nonzero(~groups.additions & (groups.sizes > 1)[groups.group_of]))
        if count:
            raise InvalidInputError(
                f"cannot merge {count} rows of kind -U or -D: {self.refusal(deletes=True, updates_before=True)}",
                rows=count,
            )

    def _since_removal(self, rows: pa.Table, groups: Groups, kinds: Kinds) -> tuple[Groups, Positions | None]:
        """Return the groups from their last removing -D on, and those versions, as rows of the table.

        The version that removed stays, for later ones have to reach its ordering columns; nothing else of it does.
        Where nothing comes after it, it is all that is left of its group.
        """
        removes = self._removing(rows, groups, kinds)
        if removes is None:
            return groups, None
        place = np.arange(len(removes))
        removed = np.maximum.reduceat(np.where(removes, place, -1), groups.starts)
        keep = place >= removed[groups.group_of]
        reset = removed[(removed >= 0) & (removed < groups.ends - 1)]
        return groups.only(keep)[0], groups.positions[reset]

    def _removing(self, rows: pa.Table, groups: Groups, kinds: Kinds) -> Mask | None:
        """Return bool[n] over sorted rows: the versions that remove their row; None if there are none.

        A removal empties the order of all groups, so of those after it others may be in order than before. With one
        removing group that changes nothing: what removed was the newest of it.
        """
        removing = [group for group in self.groups if group.removes]
        deletes = kinds[groups.positions] == row_kind.DELETE if removing else None
        if deletes is None or not deletes.any():
            return None
        removes: Mask = _in_order_of_any(rows, groups, removing) & deletes
        if not removes.any():
            return None
        if len(removing) == 1:
            return removes
        place = np.arange(len(removes))
        while True:
            # What is in order stays so when fewer come before it. So all that were found remove, and what follows each
            # is looked at again, from it on.
            since = np.maximum.accumulate(np.where(removes, place, 0))
            since = np.maximum(since, groups.starts[groups.group_of])
            cut = replace(groups, starts=np.unique(since))
            more = removes | (_in_order_of_any(rows, cut, removing) & deletes)
            if (more == removes).all():
                return removes
            removes = more


def _in_order_of_any(rows: pa.Table, groups: Groups, of: Sequence[SequenceGroup]) -> Mask:
    found = np.zeros(len(groups.positions), np.bool_)
    for group in of:
        found |= _Order(rows, groups, group).in_order
    return found


class _Order:
    """Which versions of each key are in order, late, or do not touch a sequence group."""

    def __init__(self, rows: pa.Table, groups: Groups, group: SequenceGroup) -> None:
        at = pa.array(groups.positions)
        columns = [rows.column(name).take(at) for name in group.ordering]
        self.touches: Mask = np.zeros(len(groups.positions), np.bool_)
        for column in columns:
            self.touches |= column.is_valid().to_numpy()
        ranks = ascending_ranks(columns)
        rising = bool(self.touches.all())
        if rising and len(ranks) > 1:
            up = ranks[1:] >= ranks[:-1]
            up[groups.starts[1:] - 1] = True
            rising = bool(up.all())
        self.in_order: Mask = self.touches if rising else self._in_order(ranks, groups)
        self.all_in_order = rising

    def _in_order(self, ranks: Positions, groups: Groups) -> Mask:
        low, high = int(ranks.min()), int(ranks.max())
        if (high - low + 2) * groups.count >= _RANK_PRODUCT_MAX:
            ranks = dense_ranks(ranks)
            low, high = 0, len(ranks)
        # One running maximum over all groups: each group's ranks lie above all of the group before.
        base = groups.group_of * (high - low + 2)
        ranks = np.where(self.touches, ranks - low + 1, 0) + base
        in_order: Mask = self.touches & (ranks == np.maximum.accumulate(ranks))
        return in_order


class _GroupFold:
    """The columns of one sequence group, folded."""

    def __init__(
        self, rows: pa.Table, groups: Groups, group: SequenceGroup, resets: Positions | None, *, incoming: bool
    ) -> None:
        self._rows = rows
        self._incoming = incoming
        self._groups = groups
        self._group = group
        self._resets = resets
        self._order = _Order(rows, groups, group)

    def columns(self, wanted: Sequence[str]) -> dict[str, pa.Array | pa.ChunkedArray]:
        """Return the wanted ones of the group's columns."""
        group, groups = self._group, self._groups
        newest = self._newest()
        gathering = Gathering(self._rows, groups)
        found: dict[str, pa.Array | pa.ChunkedArray] = {
            name: gathering.taken(name, newest) for name in group.ordering if name in wanted
        }
        plain = self._unless_retracted(newest)
        kept = newest if self._resets is None else np.where(np.isin(newest, self._resets), -1, newest)
        for name in group.protected:
            if name in wanted and name not in group.functions:
                found[name] = gathering.taken(name, kept if name in group.kept else plain)
        functions = {name: f for name, f in group.functions.items() if name in wanted}
        if functions:
            found |= self._folded(functions)
        return found

    def _newest(self) -> Positions:
        """Return int64[k]: the row of each group that is the last in order, -1 if none is."""
        groups = self._groups
        if self._order.all_in_order:
            return groups.last
        place = np.where(self._order.in_order, np.arange(len(groups.positions)), -1)
        last = np.maximum.reduceat(place, groups.starts) if groups.count else groups.starts
        if not self._incoming:
            last = np.where(groups.sizes == 1, groups.starts, last)
        return np.where(last < 0, -1, groups.positions[last])

    def _unless_retracted(self, newest: Positions) -> Positions:
        groups = self._groups
        if groups.additions is None or groups.additions.all():
            return newest
        adds = np.ones(self._rows.num_rows, np.bool_)
        adds[groups.positions] = groups.additions
        gone = ~adds[newest] & (newest >= 0) & any_of(groups.additions, groups.starts)
        return np.where(gone, -1, newest)

    def _folded(self, functions: Mapping[str, Function]) -> dict[str, pa.Array]:
        arrived, alive = self._counted(self._groups, self._order.touches)
        ordered, late, turning = arrived, None, None
        if not self._order.all_in_order:
            moved, touches, late, turning = self._late_first()
            ordered, _ = self._counted(moved, touches)
        bare = self._bare(arrived, alive)
        place = None
        if len(alive) < self._groups.count:
            place = np.full(self._groups.count, -1, np.int64)
            place[alive] = np.arange(len(alive))
        found = {}
        for name, function in functions.items():
            column = self._rows.column(name)
            anywhere = function.late_rows is LateRows.ANYWHERE
            groups = arrived if anywhere else ordered
            ignoring = function.ignores_retractions
            if bare is not None and not ignoring:
                values = function.fold(*after_null(column, groups, bare))
            else:
                values = function.fold(column, groups)
            if bare is not None and ignoring:
                values = values.take(pa.array(np.arange(len(values)), mask=bare))
            some = late if function.late_rows is LateRows.ONE_BY_ONE else None if ignoring else turning
            if some is not None and not anywhere:
                values = _row_by_row(function, column, arrived, some[alive], self._late[arrived.positions], values)
            found[name] = values if place is None else values.take(pa.array(place, mask=place < 0))
        return found

    def _counted(self, groups: Groups, touches: Mask) -> tuple[Groups, Positions]:
        """Return the versions that functions see, and the groups that have some. A lone stored one passes untouched."""
        counted = touches if self._incoming else touches | (groups.sizes == 1)[groups.group_of]
        if self._resets is not None:
            reset = np.zeros(self._rows.num_rows, np.bool_)
            reset[self._resets] = True
            counted = counted & ~reset[groups.positions]
        if counted.all():
            return groups, np.arange(groups.count)
        return groups.only(counted)

    def _bare(self, counted: Groups, alive: Positions) -> Mask | None:
        """Return bool[k'], groups in which nothing that functions see adds, but something else does.

        What they make of such a group is added to older versions, so it must not be the image of a retraction.
        """
        if self._groups.additions is None or counted.additions is None:
            return None
        adds = any_of(self._groups.additions, self._groups.starts)[alive]
        bare: Mask = adds & ~any_of(counted.additions, counted.starts)
        return bare if bare.any() else None

    @cached_property
    def _late(self) -> Mask:
        """bool[n], rows of the table that come late."""
        late = np.zeros(self._rows.num_rows, np.bool_)
        late[self._groups.positions] = self._order.touches & ~self._order.in_order
        return late

    def _late_first(self) -> tuple[Groups, Mask, Mask | None, Mask | None]:
        """Return the groups with their late additions first, the latest of them foremost.

        Returns:
            The groups; bool[n], which rows of theirs touch; bool[k], groups with late additions; bool[k], those of
            them where one comes after a retraction, which order alone cannot express: what was taken back before
            does not reach it. None instead of a mask: there are none.
        """
        groups, order = self._groups, self._order
        late = order.touches & ~order.in_order
        place = np.arange(len(groups.positions))
        turning = np.zeros(groups.count, np.bool_)
        if groups.additions is not None:
            late &= groups.additions
            back = order.touches & ~groups.additions
            first = np.minimum.reduceat(np.where(back, place, len(place)), groups.starts)
            turning = any_of(late & (place > first[groups.group_of]), groups.starts)
        moved = np.lexsort((np.where(late, -1 - place, place), groups.group_of))
        additions = None if groups.additions is None else groups.additions[moved]
        return (
            replace(groups, positions=groups.positions[moved], additions=additions),
            order.touches[moved],
            any_of(late, groups.starts) if late.any() else None,
            turning if turning.any() else None,
        )


def _row_by_row(
    function: Function, column: pa.ChunkedArray, groups: Groups, which: Mask, late: Mask, values: pa.Array
) -> pa.Array:
    """Return `values` with those of some groups replaced by what folding one version after the other gives.

    Args:
        groups: in order of arrival.
        which: bool[k], the groups.
        late: bool[n] over `groups.positions`: an addition there comes before all that was folded so far.
        values: k values.
    """
    additions = np.ones(len(groups.positions), np.bool_) if groups.additions is None else groups.additions
    chosen = np.flatnonzero(which)
    starts, sizes = groups.starts[chosen], groups.sizes[chosen]
    held = pa.nulls(len(chosen), column.type)
    begun = np.zeros(len(chosen), np.bool_)
    for step in range(int(sizes.max(initial=0))):
        active = np.flatnonzero(sizes > step)
        rows = starts[active] + step
        new = column.take(pa.array(groups.positions[rows]))
        adds = additions[rows]
        count = len(active)
        both = pa.chunked_array([held.take(pa.array(active)), *new.chunks], column.type)
        pairs = np.stack((np.arange(count), np.arange(count) + count), axis=1)
        first = late[rows] & adds
        pairs[first] = pairs[first][:, ::-1]
        signs = np.stack((np.ones(count, np.bool_), adds), axis=1)
        folded = function.fold(both, Groups(pairs.ravel(), np.arange(0, 2 * count, 2), signs.ravel()))
        plain = adds & ~begun[active]  # the first that adds, as it is: null is no value before it
        merged = pa.concat_arrays([held, folded, whole(new)])
        at = np.arange(len(chosen))
        at[active] = len(chosen) + np.arange(count) + np.where(plain, count, 0)
        held = merged.take(pa.array(at))
        begun[active] |= adds | (not function.ignores_retractions)
    at = np.arange(len(values))
    at[chosen] = len(values) + np.arange(len(chosen))
    return pa.concat_arrays([values, held]).take(pa.array(at))

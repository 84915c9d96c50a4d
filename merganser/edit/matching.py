"""The rows of a table that a filter lets through, as of one snapshot, and what was read to find them.

Rows that reads do not see before a compaction count too: a change of the rows that are there is exact only with them.
A filter that names the keys it asks for is a lookup; any other is a scan. `with_keys` makes a filter of keys.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from merganser.codec.stored import arrow_to_list, stored_to_arrow
from merganser.commit.conflict import Reads
from merganser.errors import InvalidInputError
from merganser.expr import build
from merganser.expr.predicate import Predicate, points
from merganser.expr.tree import Column, Expression, Literal
from merganser.lookup.lookup import shared_lookup
from merganser.meta.snapshot import Snapshot
from merganser.meta.table_def import TableDef
from merganser.meta.table_state import MetaReader, TableState
from merganser.options import read as r
from merganser.rules.compacting import hides_level_0
from merganser.scan.plan import may_concern
from merganser.scan.scan import Scan, check_is_there
from merganser.scan.source import State
from merganser.schema import types as t
from merganser.storage.env import Env
from merganser.values import dataclass
from merganser.write.buckets import FixedBuckets, partition_groups

_LISTS_MAX: Final = 10_000
"""Maximum number of lists in a condition on keys of several columns. Each list is tested for every row."""


@dataclass(frozen=True)
class Matching:
    """Finds rows of a table.

    Attributes:
        where: the rows to find; None: all.
        action: what is being done, as messages begin.
    """

    table: TableDef
    env: Env
    where: Predicate | None
    action: str

    def keys(self) -> pa.Table | None:
        """Return the only keys that matching rows can have, if the filter names them; None: it does not."""
        table = self.table
        if self.where is None or not table.keyed or table.counting:
            return None
        pinned = points(self.where, table.row_key)
        if pinned is None:
            return None
        count = len(table.schema.primary_keys)
        if any(None in row[:count] for row in pinned):  # no lookup finds them
            return None
        kinds = [table.schema.field(name).type for name in table.row_key]
        columns = [stored_to_arrow([row[i] for row in pinned], kind) for i, kind in enumerate(kinds)]
        return pa.table(dict(zip(table.row_key, columns, strict=True)))

    def found(
        self, keys: pa.Table | None, standing: TableState | None = None
    ) -> tuple[Snapshot | None, Iterator[pa.Table]]:
        """Return the newest snapshot, and the rows there in parts: the columns of users.

        Args:
            keys: the only keys that matching rows can have; None: they may have any.
            standing: the newest state, if it was asked for a moment ago.

        Raises:
            ExpiredError: while the parts are taken: the snapshot expired.
        """
        if keys is not None:
            snapshot, _, rows = shared_lookup(self.table, self.env, waiting=True, newest=standing).rows_of(keys)
            if self.where is not None and rows.num_rows:
                rows = self.where.apply(rows)
            return snapshot, iter([rows] if rows.num_rows else [])
        state = standing or MetaReader(self.table.paths, self.env, self.table.name).latest()
        check_is_there(self.table, self.env, state.snapshot, self.action)
        return state.snapshot, self._scanned(state)

    def _scanned(self, state: TableState) -> Iterator[pa.Table]:
        if state.snapshot is None:
            return
        for batch in self.scan(state).to_batches():
            yield pa.Table.from_batches([batch])

    def rows_at(self, snapshot: Snapshot | None, columns: Collection[str]) -> Iterator[pa.Table]:
        """Yield some columns of the rows in a snapshot, in parts; None: there is none."""
        if snapshot is None:
            return
        state = MetaReader(self.table.paths, self.env, self.table.name).state(snapshot)
        for batch in self.scan(state, columns).to_batches():
            yield pa.Table.from_batches([batch])

    def scan(self, state: TableState, columns: Collection[str] | None = None) -> Scan:
        """Return a scan of the rows in a state; columns None: all."""
        table = seeing_all(self.table, state)
        fields = table.schema.user_fields
        if columns is not None:
            fields = tuple(field for field in fields if field.name in columns)
        return Scan(table, self.env, fields, self.where, State(state.snapshot))

    def reads(self, snapshot: Snapshot | None) -> Reads:
        """Return what a search for the rows in a snapshot reads.

        Rows that come count as well as rows that are there: with them the filter would have found others.
        """
        where = None if self.table.moves_keys else self.where  # a row that comes may remove one of another partition
        return Reads(snapshot, covers=lambda entry: may_concern(self.table, entry, where))


def with_keys(keys: pa.Table, table: TableDef, action: str) -> Predicate:
    """Return the condition that a row has one of some keys. Null equals null here.

    Keys of several columns become one list per distinct value of all columns but the one with the most values.

    Args:
        keys: n keys, the columns of the primary key.
        action: what is being done, as messages begin.

    Raises:
        InvalidInputError: they would be more than `_LISTS_MAX` lists.
    """
    fields = [table.schema.field(name) for name in table.schema.primary_keys]
    columns = {field.name: arrow_to_list(keys.column(field.name), field.type) for field in fields}
    listed = max(fields, key=lambda field: len({*map(repr, columns[field.name])}))
    others = [field for field in fields if field is not listed]
    lists: dict[tuple[str, ...], tuple[list[Expression], list[Any]]] = {}
    for row in zip(*columns.values(), strict=True):
        values = dict(zip(columns, row, strict=True))
        alike = tuple(repr(values[field.name]) for field in others)
        if alike not in lists:
            lists[alike] = ([_one_of(field, [values[field.name]]) for field in others], [])
        lists[alike][1].append(values[listed.name])
    if len(lists) > _LISTS_MAX:
        raise InvalidInputError(
            f"{action}: the query names keys with {len(lists):,} different values of "
            f"{', '.join(field.name for field in others)}, and at most {_LISTS_MAX:,} are looked for in one statement. "
            "Nothing was written. Name fewer in each of several statements.",
            table=table.name,
        )
    if not lists:
        return Predicate(Literal(False, t.Boolean()))
    every = [_one_of(field, columns[field.name]) for field in fields] if others else []
    each = [build.conjunction([*equal, _one_of(listed, values)]) for equal, values in lists.values()]
    return Predicate(build.conjunction([*every, build.disjunction(each)]))


def _one_of(field: t.Field, values: Collection[Any]) -> Expression:
    """Return the condition that a column of a key has one of some stored values. 0.0 and -0.0 are two of them."""
    kind = field.type.with_nullable(True)
    column = Column((field.name,), kind)
    known = [Literal(value, kind) for value in values if value is not None]
    zeros = {str(value.value) for value in known if isinstance(kind, t.Float | t.Double) and value.value == 0}
    found = [build.member(column, known)] if known else []
    if len(zeros) == 1:  # by a condition both are equal, as texts they differ
        others = [value for value in known if value.value != 0]
        text = build.compare("=", build.cast(column, t.string()), Literal(zeros.pop(), t.string()))
        one_zero = build.conjunction([build.compare("=", column, Literal(0.0, kind)), text])
        found = [*([build.member(column, others)] if others else []), one_zero]
    if len(known) < len(values):
        found.append(build.is_null(column))
    return build.disjunction(found)


def reads_of_keys(table: TableDef, snapshot: Snapshot | None, keys: pa.Table) -> Reads:
    """Return what a lookup of keys in a snapshot reads: their buckets; of a table that adds buckets, their partitions.

    Args:
        keys: at least the columns of `TableDef.row_key`.
    """
    if table.bucket > 0:
        return Reads(snapshot, frozenset(group.id for group in FixedBuckets(table).assign(keys)))
    return Reads(snapshot, partitions=frozenset(one for one, _ in partition_groups(table, keys)))


def seeing_all(table: TableDef, state: TableState) -> TableDef:
    """Return a table as reads see it that see every row of a state, also those that wait for a compaction."""
    if not hides_level_0(table.options) or all(entry.file.level for entry in state.live):
        return table
    return replace(table, options=table.options.merged({r.DELETION_VECTORS_MERGE_ON_READ.key: "true"}))

"""Merges into tables with a key that an engine shares among its tasks.

Each task is handed rows of the source, all rows of a key at once, looks up the rows of the table that they meet, and
writes what becomes of them. Which keys these are, columns of the source say, or a join of the engine:

| the condition | the rows that a task gets |
|---|---|
| makes the whole key equal to columns of the source | rows of the source |
| is another one | rows of the source, each with the key that it meets |
| there are clauses for rows that meet none of the source | these, and the keys of the table that meet none |

Docs: decision 0059.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from merganser.commit.conflict import Reads
from merganser.edit.assign import SOURCE
from merganser.edit.joined import On, Source
from merganser.edit.merging import Merge, windows
from merganser.edit.rounds import in_transactions
from merganser.edit.row_changes import RowChanges, Taken
from merganser.expr.predicate import Projection
from merganser.expr.tree import Column
from merganser.lookup.lookup import shared_lookup
from merganser.meta.row_counts import RowCounts, RowEdit
from merganser.meta.snapshot import Snapshot
from merganser.meta.table_def import TableDef
from merganser.meta.table_state import TableState
from merganser.options import write as w
from merganser.schema import types as t
from merganser.schema.conform import conform
from merganser.schema.internal_names import internal_name
from merganser.storage.env import Env
from merganser.upkeep.compact_table import RunJobs
from merganser.values import dataclass
from merganser.write.incoming import Prepared
from merganser.write.job import Outcome, WriteJob, messages_of
from merganser.write.transaction import Transaction

_JOINED: Final = internal_name("key_")
"""Beginning of the names of columns that hold keys of the table beside the columns of a source."""
MARK: Final = internal_name("source")
"""Column that is null in rows that an engine has joined without a row of the source."""
_MICROSECONDS: Final = 6


@dataclass(frozen=True)
class JoinedElsewhere:
    """A merge whose rows of the source come with the keys of the rows of the table that they meet.

    Attributes:
        merge: the merge of such rows.
        keys: by column of the key, the column that holds it beside the columns of the source; null: the row meets none.
        new: by column of the key, the column of the source that new rows take it from; none if there are no inserts.
        reads: the columns of the table that the condition looks at.
        others: keys of the table that meet no row of the source come, too, each in a row whose column `MARK` is null.
    """

    merge: Merge
    keys: Mapping[str, str]
    new: Mapping[str, str]
    reads: frozenset[str]
    others: bool


def keys_of_source(merge: Merge) -> dict[str, str] | None:
    """Return the columns of the source that hold the whole key of a row, by column of the table.

    Rows of the source with one key, and the row that they meet, are then all that a clause looks at, so tasks may
    share the keys. None: a clause looks at other rows, or the source has no such columns.
    """
    table = merge.table
    if merge._unmatched or merge._on.null_safe or not _can_share(table):
        return None
    names = {
        field.name: value.expression.path[0].partition(".")[2]
        for field, value in merge._on.pairs
        if isinstance(value.expression, Column) and len(value.expression.path) == 1
    }
    if not set(table.row_key) <= set(names) or (merge._missing and not merge._inserts_sought_keys(table)):
        return None
    return {name: names[name] for name in table.row_key}


def joined_elsewhere(merge: Merge) -> JoinedElsewhere | None:
    """Return what an engine has to do so that tasks can merge rows of the source that it has joined with the table.

    None: the key of new rows is no column of the source, or the table cannot be joined there.
    """
    table = merge.table
    fields = [table.schema.field(name) for name in table.row_key]
    read = [table.schema.field(name) for name in merge._on.reads]
    if not _can_share(table) or not all(is_whole_elsewhere(field.type) for field in (*fields, *read)):
        return None
    if any(_may_be_null(table, field) for field in fields):  # a null would say that a row of the source meets none
        return None
    new = merge._clauses.taken_from(table.row_key)
    if new is None:
        return None
    there = {f"{_JOINED}{i}": field for i, field in enumerate(fields)}
    pairs = tuple((field, Projection(Column((f"{SOURCE}.{name}",), field.type))) for name, field in there.items())
    names = dict(zip(table.row_key, there, strict=True))
    keyed = replace(merge, _on=On(pairs, None, None, None))
    return JoinedElsewhere(keyed, names, new, merge._on.reads, bool(merge._unmatched))


def _can_share(table: TableDef) -> bool:
    """Return whether tasks can share the keys of a table."""
    if not table.keyed or table.counting or table.moves_keys or table.postpones:
        return False
    kinds = [table.schema.field(name).type for name in table.row_key]
    return not any(isinstance(kind, t.Float | t.Double) for kind in kinds)  # both zeros are equal, and two keys


def _may_be_null(table: TableDef, field: t.Field) -> bool:
    if field.name in table.schema.primary_keys:
        return bool(table.options.get(w.PRIMARY_KEY_NULLABLE))
    return field.type.nullable


def is_whole_elsewhere(kind: t.DataType) -> bool:
    """Return whether engines hold each value of a type as it is: their times end at microseconds."""
    match kind:
        case t.Timestamp() | t.LocalZonedTimestamp():
            return kind.precision <= _MICROSECONDS
        case t.Array() | t.Multiset() | t.Vector():
            return is_whole_elsewhere(kind.element)
        case t.Map():
            return is_whole_elsewhere(kind.key) and is_whole_elsewhere(kind.value)
        case t.Row():
            return all(is_whole_elsewhere(field.type) for field in kind.fields)
    return True


def merged_in_tasks(
    merge: Merge, run: Callable[[MergeJob], list[Outcome]], compact: RunJobs, assigners: int
) -> Snapshot | None:
    """Merge in tasks that share the keys of the source.

    Args:
        run: gives a job the rows of the source, all rows of a key at once, and returns the outcomes.
        compact: runs the compactions that follow the commit.
        assigners: how many tasks may assign keys to buckets; see `write.dynamic`.
    """

    def round_(transaction: Transaction, state: TableState) -> Snapshot | None:
        job = MergeJob(
            transaction.job(assigners=assigners), replace(merge, _elsewhere=None, _computed_from=None), state.snapshot
        )
        outcomes = run(job)
        messages = messages_of(transaction.table, merge._env, outcomes)
        counts = sum((outcome.counts or RowCounts() for outcome in outcomes), RowCounts())
        if merge.is_void(counts):
            return None
        reads = Reads(state.snapshot, covers=lambda _: True)
        return transaction.finish(messages, reads=reads, edit=RowEdit("MERGE", lambda: counts))

    return in_transactions(lambda first: merge._begun(first, compact), merge._env, round_, merge._action)


@dataclass(frozen=True)
class MergeJob:
    """Merges rows of a source into a table with a key, and writes what they change. Pickles.

    Attributes:
        write: writes rows.
        merge: the merge, without its source.
        snapshot: the state that it changes; None: the table is empty.
    """

    write: WriteJob
    merge: Merge
    snapshot: Snapshot | None

    def run(self, parts: Iterable[pa.Table], env: Env) -> Outcome:
        """Merge rows of the source, all of each of their keys. New files are durable; of a refusal nothing is left.

        Args:
            parts: the rows. Those of a merge that looks at rows without a partner have the column `MARK`; where it is
                null, a row holds the key of a row of the table that meets none.
        """
        out = RowChanges(self.write.target.table, taken := Taken(), self.merge._action)
        outcome = replace(self.write, env=env).run_prepared(self._rows(parts, env, out, taken))
        return replace(outcome, counts=RowCounts(out.inserted, out.updated, out.deleted))

    def _rows(self, parts: Iterable[pa.Table], env: Env, out: RowChanges, taken: Taken) -> Iterator[Prepared]:
        """Yield what is to be written. Rows of the source are held; keys that meet none are not."""
        held: list[pa.Table] = []
        others = self._others(parts, held) if self.merge._unmatched else ()
        for keys in windows(others):
            self._change_others(keys, env, out)
            yield from taken.rows
            taken.rows.clear()
        held += () if self.merge._unmatched else parts
        if held:
            self._change(pa.concat_tables(held), env, out)
            yield from taken.rows

    def _others(self, parts: Iterable[pa.Table], held: list[pa.Table]) -> Iterator[pa.Table]:
        """Yield the keys of rows of the table that meet none; rows of the source are held."""
        table = self.merge.table
        keys = [(field, f"{_JOINED}{i}") for i, field in enumerate(map(table.schema.field, table.row_key))]
        for part in parts:
            is_source = part.column(MARK).is_valid()
            rows = part.filter(is_source).drop_columns([MARK])
            if rows.num_rows:
                held.append(rows)
            if rows.num_rows < part.num_rows:
                alone = part.select([name for _, name in keys]).filter(pc.invert(is_source))
                yield conform(
                    alone.rename_columns(list(table.row_key)), [field for field, _ in keys], action=self.merge._action
                )

    def _change_others(self, keys: pa.Table, env: Env, out: RowChanges) -> None:
        _, _, found = shared_lookup(out.table, env, waiting=True).rows_of(keys, self.snapshot)
        self.merge._change_others(found, out)

    def _change(self, rows: pa.Table, env: Env, out: RowChanges) -> None:
        merge, table = replace(self.merge.with_source(rows), _unmatched=()), out.table
        source = Source(merge._source, merge._on, merge._action, is_whole=False)
        keys = merge._keys(table, source)
        assert keys is not None
        if self.snapshot is not None and keys.num_rows:
            _, _, found = shared_lookup(table, env, waiting=True).rows_of(keys, self.snapshot)
            if merge._on.of_target is not None and found.num_rows:
                found = merge._on.of_target.apply(found)
            merge._change_all([found] if found.num_rows else [], source, out)
        new = merge._new_rows(source)
        if new is not None and new.num_rows:
            merge._check_new(table, self.snapshot, new, keys)
            merge._insert(self.snapshot, new, out)

"""Rows of change records that keep values of the row before them, since the source did not send these values.

The row before is an earlier row of the same key in the same write, or else the stored row::

    apart     rows of a write: values that an earlier row of the write has are filled in; the rows of keys whose
              stored row is needed are set apart
    Keeping   look up the stored rows of the rows set apart, fill them, write them, and commit them with all files of
              the write. The commit fails if another commit changed a bucket that was looked at; then again, from the
              look-up on (`edit.rounds`)

A row that keeps a value of no row is refused: after a delete, or if no row of its key is stored. With `sequence.field`
the row before is the one that this order puts before it, among the rows of the write and the stored row.

Docs: decision 0035.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merganser.commit.message import CommitMessage
from merganser.edit.given import Given, Kinds, given_rows
from merganser.edit.matching import reads_of_keys
from merganser.edit.rounds import in_transactions
from merganser.errors import CommitUnknownError, ConflictError, InvalidInputError, MerganserError, Overtaken
from merganser.lookup.lookup import shared_lookup
from merganser.lsm.abandoned import remove_uncommitted
from merganser.merge.groups import Groups, Mask, Positions, groups_of
from merganser.merge.keys import sorted_positions
from merganser.merge.rules import merge_of
from merganser.meta.snapshot import Snapshot
from merganser.meta.table_def import TableDef
from merganser.meta.table_state import TableState
from merganser.options import write as w
from merganser.schema import row_kind
from merganser.schema.literals import default_value
from merganser.schema.pieces import values_at
from merganser.storage.env import Env
from merganser.values import dataclass
from merganser.write.buffer import SMALL_BYTES
from merganser.write.incoming import Prepared, dropped_among
from merganser.write.job import messages_of
from merganser.write.target import WriteTarget
from merganser.write.transaction import Transaction

_NO_ROW: Final = "the record does not hold its value, and the table has no row of this key before it"


@dataclass(frozen=True)
class Kept:
    """Rows, and the values that they keep.

    Attributes:
        rows: n rows, in their order: the columns of the table.
        kinds: int8[n].
        names: columns of the table, of which some row keeps the value.
        kept: bool[n, names].
        letters: columns of n rows that a dead letter of the row has; without any of them if nobody asks for letters.
    """

    rows: pa.Table
    kinds: pa.Array
    names: tuple[str, ...]
    kept: Mask
    letters: pa.Table

    @classmethod
    def of(cls, rows: pa.Table, kinds: pa.Array, unavailable: pa.ChunkedArray, letters: pa.Table) -> Kept:
        """Return rows as `cdc.Parsed` has them.

        Args:
            unavailable: list<string>[n], the columns whose values a row keeps; null in whole rows.
            letters: see the class.
        """
        lists = pa.chunked_array(unavailable, pa.list_(pa.string())).combine_chunks()
        of = pc.list_parent_indices(lists).to_numpy()
        coded = pc.list_flatten(lists).dictionary_encode()
        names = tuple(coded.dictionary.to_pylist())
        kept = np.zeros((rows.num_rows, len(names)), np.bool_)
        kept[of, coded.indices.to_numpy()] = True
        return cls(rows, kinds, names, kept, letters)

    def filter(self, mask: Mask) -> Kept:
        """Return some of the rows."""
        at = pa.array(mask)
        return Kept(self.rows.filter(at), self.kinds.filter(at), self.names, self.kept[mask], self.letters.filter(at))

    def joined(self, other: Kept) -> Kept:
        """Return these rows and those of another part of the same write, whose columns it may keep are others."""
        names = tuple(dict.fromkeys((*self.names, *other.names)))
        kept = np.zeros((len(self.kept) + len(other.kept), len(names)), np.bool_)
        for part, first in ((self, 0), (other, len(self.kept))):
            kept[first : first + len(part.kept), [names.index(name) for name in part.names]] = part.kept
        return Kept(
            pa.concat_tables([self.rows, other.rows]),
            pa.concat_arrays([self.kinds, other.kinds]),
            names,
            kept,
            pa.concat_tables([self.letters, other.letters]),
        )

    def unavailable(self) -> pa.Array:
        """Return the columns whose values rows keep, as `of` takes them."""
        counts = self.kept.sum(axis=1)
        names = pa.array(self.names, pa.string()).take(pa.array(np.nonzero(self.kept)[1]))
        offsets = pa.array(np.concatenate(([0], np.cumsum(counts))).astype(np.int32))
        found = pa.ListArray.from_arrays(offsets, names)
        return pc.if_else(pa.array(counts > 0), found, pa.scalar(None, found.type))


@dataclass(frozen=True)
class Apart:
    """The rows of a write, in three parts.

    Attributes:
        whole: rows that need no stored row.
        waiting: the rows of keys whose stored row is needed; all rows of a key, in their order.
        refused: rows that keep a value of no row, since their key was deleted before in the write.
        reasons: string, of the refused rows.
    """

    whole: Kept
    waiting: Kept
    refused: Kept
    reasons: pa.Array


def stores_keys(table: TableDef) -> bool:
    """Return whether the rows of a table can be looked up by the key that records have.

    A table that counts equal rows has a key of all its columns, which no record names.
    """
    return table.keyed and not table.counting


def check_can_keep(target: WriteTarget) -> None:
    """Refuse a table whose rows cannot be looked up and written again.

    Raises:
        InvalidInputError: nothing was written.
    """
    table = target.table
    engine = table.options.get(w.MERGE_ENGINE)
    why = advice = None
    if not stores_keys(table):
        return  # its records are bad one by one
    if engine == "partial-update":
        why, advice = "merge engine partial-update reads null as unchanged", "Use unavailable='null'."
    elif engine != "deduplicate":
        why = f"merge engine {engine} does not replace the stored row"
    elif table.options.get(w.ROWKIND_FIELD) is not None:
        why = "'rowkind.field' says that a column holds the kind of each row"
    elif table.moves_keys:
        why = "a key of this table may lie in any partition"
    elif target.postpones:
        why = "its rows wait for their buckets, and cannot be looked up until a compaction"
    if why is not None:
        advice = advice or "Let the source send whole rows (REPLICA IDENTITY FULL), or send these records elsewhere."
        raise InvalidInputError(
            f"{target.action}: unavailable='keep' takes values of stored rows, and {why}. Nothing was written. "
            f"{advice}",
            table=table.name,
        )


def apart(table: TableDef, given: Kept) -> Apart:
    """Return the rows of a write in parts; values that earlier rows of the write have are filled in.

    Args:
        given: all rows of their keys, in order.
    """
    if not given.kept.any():
        none = given.filter(np.zeros(given.rows.num_rows, np.bool_))
        return Apart(given, none, none, pa.array([], pa.string()))
    groups = _in_order(table, given)
    if merge_of(table).order is None:
        filled = _filled(table, given, groups)
    else:  # the stored row may be newer than some of the rows
        filled = _Filled(given, np.zeros(len(given.kept), np.bool_), np.asarray(given.kept.any(axis=1)))
    waits = np.zeros(groups.count, np.bool_)
    waits[groups.group_of[filled.open[groups.positions]]] = True
    waiting = np.empty(given.rows.num_rows, np.bool_)
    waiting[groups.positions] = waits[groups.group_of]
    return Apart(
        filled.rows.filter(~waiting & ~filled.refused),
        filled.rows.filter(waiting & ~filled.refused),
        filled.rows.filter(filled.refused),
        _reasons(given, filled.refused),
    )


def _in_order(table: TableDef, given: Kept) -> Groups:
    """Return the rows of each key, from the oldest to the newest: by `sequence.field`, then as they came."""
    keys = [given.rows.column(name) for name in table.row_key]
    order = merge_of(table, stored=False).order
    if order is None:
        return groups_of(*sorted_positions(keys))
    additions = (given.kinds.to_numpy() & 1) == 0
    newer = np.argsort(order.ranks(given.rows.select(order.columns), additions), kind="stable")
    place = np.empty(len(newer), np.int64)
    place[newer] = np.arange(len(newer))
    return groups_of(*sorted_positions(keys, place))


@dataclass(frozen=True)
class _Filled:
    """Rows after filling.

    Attributes:
        rows: all rows; those that are refused or open keep what they kept.
        refused: bool[n], rows that keep a value, and before which there is no row.
        open: bool[n], rows that keep a value of the stored row, which is not given.
    """

    rows: Kept
    refused: Mask
    open: Mask


def _filled(table: TableDef, given: Kept, groups: Groups, stored: tuple[Positions, pa.Table] | None = None) -> _Filled:
    """Return rows with the values of the rows before them.

    The rows of a key count one after the other. A refused row is no row: what comes after it begins where it began.

    Args:
        groups: the rows of each key.
        stored: int64[groups], where the stored row of each key is among the rows, -1: it has none. None: unknown.
    """
    order, number = groups.positions, np.arange(len(groups.positions))
    first = groups.starts[groups.group_of]
    kinds, kept = given.kinds.to_numpy()[order], given.kept[order]
    is_row = ~_says_nothing(table, kinds)
    keeps = kept.any(axis=1)
    base = np.maximum.accumulate(np.where(is_row & ~keeps, number, -1))  # the last row that needs no other
    in_write = base >= first
    gone = in_write & (kinds[np.maximum(base, 0)] == row_kind.DELETE)
    place = np.full(len(order), -1) if stored is None else stored[0][groups.group_of]
    refused = keeps & (gone | (~in_write & (place < 0) & (stored is not None)))
    is_open = keeps & ~in_write & (stored is None)
    fills = keeps & ~refused & ~is_open
    rows, left = given.rows, given.kept.copy()
    for i, name in enumerate(given.names):
        mine = fills & kept[:, i]
        source = np.maximum.accumulate(np.where(is_row & ~kept[:, i], number, -1))
        here = source >= first
        rows = _with(rows, name, order[mine & here], given.rows.column(name), order[source[mine & here]])
        if stored is not None:
            rows = _with(rows, name, order[mine & ~here], stored[1].column(name), place[mine & ~here])
        left[order[mine], i] = False
    unsorted = np.empty(len(order), np.int64)
    unsorted[order] = number
    return _Filled(replace(given, rows=rows, kept=left), refused[unsorted], is_open[unsorted])


def _filled_from(table: TableDef, given: Kept, place: Positions, stored: pa.Table) -> _Filled:
    """Return rows with the values of the rows before them, stored ones among these; see `_filled`.

    With `sequence.field`, a stored row counts between the older and the newer rows of its key. A row that is older and
    has no row before it takes the values of the stored row: it loses.
    """
    if merge_of(table).order is None:
        return _filled(table, given, _in_order(table, given), (place, stored))
    count = stored.num_rows
    own = pa.Table.from_arrays(stored.select(given.rows.column_names).columns, schema=given.rows.schema)
    every = replace(
        given,
        rows=pa.concat_tables([own, given.rows]),
        kinds=pa.concat_arrays([row_kind.inserts(count), given.kinds]),
        kept=np.concatenate([np.zeros((count, len(given.names)), np.bool_), given.kept]),
    )
    filled = _filled(table, every, _in_order(table, every), (place, stored))
    found = replace(given, rows=filled.rows.rows.slice(count), kept=filled.rows.kept[count:])
    return _Filled(found, filled.refused[count:], filled.open[count:])


def _says_nothing(table: TableDef, kinds: Kinds) -> Mask:
    """Return which rows change no row: old rows of updates, and deletes that the table drops."""
    dropped = table.options.get(w.IGNORE_DELETE)
    found: Mask = (kinds & 1) == 1 if dropped else kinds == row_kind.UPDATE_BEFORE
    return found


def _reasons(given: Kept, refused: Mask) -> pa.Array:
    """Return why some rows are refused: the first column whose value they keep."""
    texts = pa.array([f"unavailable: column {name}: {_NO_ROW}" for name in given.names], pa.string())
    return texts.take(pa.array(given.kept[refused].argmax(axis=1), pa.int64()))


def _with(rows: pa.Table, name: str, at: Positions, source: pa.ChunkedArray, place: Positions) -> pa.Table:
    """Return rows with values of a column taken from another one.

    Args:
        at: rows that get a value.
        place: where in `source` it is, of each.
    """
    if not len(at):
        return rows
    index = rows.schema.get_field_index(name)
    own = rows.column(index)
    take = np.arange(len(own))
    take[at] = len(own) + place
    whole = pa.chunked_array([*own.chunks, *source.chunks], own.type)
    return rows.set_column(index, rows.schema.field(index), values_at(whole, take))


Bury = Callable[[Kept, pa.Array], None]
"""What becomes of refused rows and their reasons; it may raise."""


class Keeping:
    """One commit of rows that keep values of stored rows.

    Args:
        waiting: rows set apart by `apart`, of one write or of several tasks that share no key.
        refused: is called with the rows whose key has no stored row, before the commit; in later rounds again, with
            rows that it has not seen.
    """

    def __init__(self, table: TableDef, env: Env, waiting: Kept, refused: Bury, action: str) -> None:
        self._table = table
        self._env = env
        self._waiting = waiting
        self._refused = refused
        self._action = action
        self._told = np.zeros(waiting.rows.num_rows, np.bool_)
        self.rows = 0
        """How many rows the commit has written, without those of `messages`."""

    def commit(
        self,
        begun: Callable[[bool], Transaction],
        messages: Sequence[CommitMessage] = (),
        *,
        others: Kept | None = None,
    ) -> Snapshot | None:
        """Fill the rows, write and commit them.

        Args:
            begun: returns the transaction of a round; it is told whether the round is the first one.
            messages: files of the same write, which the commit takes too. They are removed if it fails.
            others: whole rows of the same write, of other keys.

        Raises:
            MerganserError: as for `Transaction.finish`; nothing is visible.
        """

        def round_(transaction: Transaction, state: TableState) -> Snapshot | None:
            return self._round(transaction, messages, others, state)

        try:
            small = self._waiting.rows.nbytes <= SMALL_BYTES
            return in_transactions(begun, self._env, round_, self._action, small=small)
        except CommitUnknownError:
            raise
        except MerganserError:
            remove_uncommitted(self._table, self._env, messages)
            raise

    def _round(
        self, transaction: Transaction, messages: Sequence[CommitMessage], others: Kept | None, state: TableState
    ) -> Snapshot | None:
        table, waiting = transaction.table, self._waiting
        parts = [] if others is None else [others]
        reads = None
        if waiting.rows.num_rows:
            grouped = given_rows(table, waiting.rows, None)
            lookup = shared_lookup(table, self._env, waiting=True)
            snapshot, which, stored = lookup.rows_of(grouped.keys, state.snapshot)
            reads = reads_of_keys(table, snapshot, grouped.keys)
            parts.append(self._filled(table, grouped, which, stored))
        job = transaction.job()
        rows = [_accepted(transaction.target, part) for part in parts if part.rows.num_rows]
        self.rows = sum(part.rows.num_rows for part in parts)
        skipped = sum(file.row_count for message in messages for file in message.added)
        own = messages_of(table, self._env, [job.run_prepared(rows, skipped=skipped)])
        try:
            return transaction.finish([*messages, *own], keep_files=True, reads=reads)
        except CommitUnknownError:
            raise
        except MerganserError as error:
            remove_uncommitted(table, self._env, own)
            if isinstance(error, ConflictError) and error.overtaken is not Overtaken.ROWS:
                raise ConflictError(error.message, table=table.name) from error  # `messages` cannot be made again here
            raise

    def _filled(self, table: TableDef, grouped: Given, which: Positions, stored: pa.Table) -> Kept:
        """Return the waiting rows with the values of stored rows; without those that are refused."""
        place = np.full(grouped.groups.count, -1)
        place[grouped.order[which]] = np.arange(len(which))
        filled = _filled_from(table, _with_defaults(table, self._waiting), place, stored)
        new = filled.refused & ~self._told
        if new.any():
            self._refused(self._waiting.filter(new), _reasons(self._waiting, new))
            self._told |= new
        return replace(self._waiting, rows=filled.rows.rows).filter(~filled.refused)


def _with_defaults(table: TableDef, given: Kept) -> Kept:
    """Return rows with the defaults of columns in place of nulls that were sent: later rows of the write keep these."""
    rows = given.rows
    defaults = {field.name: field for field in table.schema.fields_with_defaults if field.default is not None}
    for i, name in enumerate(given.names):
        if name in defaults:
            column, at = rows.column(name), rows.schema.get_field_index(name)
            whole = pc.if_else(pa.array(given.kept[:, i]), column, pc.coalesce(column, default_value(defaults[name])))
            rows = rows.set_column(at, rows.schema.field(at), whole)
    return replace(given, rows=rows)


def _accepted(target: WriteTarget, part: Kept) -> Prepared:
    """Return rows as they are written: nulls become the defaults of their columns, but not nulls of the row before."""
    dropped = dropped_among(target.table, part.kinds.to_numpy())
    if dropped is not None:
        part = part.filter(~dropped)
    rows, kinds, arrival = target.accepted(part.rows, part.kinds)
    for i, name in enumerate(part.names):
        null = part.kept[:, i] & part.rows.column(name).is_null().to_numpy()
        if null.any():
            at = rows.schema.get_field_index(name)
            rows = rows.set_column(at, rows.schema.field(at), pc.if_else(pa.array(null), None, rows.column(at)))
    return rows, kinds, arrival

"""Lookup: a handle that answers which rows some keys have, and follows the snapshots of the table."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from types import TracebackType
from typing import Any, Final, Never, Self

import numpy as np
import pyarrow as pa

from merganser.codec.stats import EMPTY_ROW
from merganser.errors import ExpiredError, FormatError, InvalidInputError
from merganser.expr.from_arrow import predicate_from_arrow
from merganser.files.masks import NO_VECTORS, BucketVectors, vectors_by_bucket
from merganser.lookup.keys import check_has_key, key_rows
from merganser.lookup.prefix import floats_of, has_prefix, prefix_filter, prefix_row
from merganser.lsm.bucket_lookup import BucketLookup
from merganser.lsm.held import Chosen, HeldFile, NotAtOnceError, local_copies
from merganser.lsm.held_memory import HeldMemory
from merganser.lsm.key_image import Asked, Positions
from merganser.lsm.section import SectionReader
from merganser.lsm.unmarked import unmarked_schemas
from merganser.merge.keys import sorted_positions
from merganser.meta.data_file import DataFile
from merganser.meta.erased import erasure_of
from merganser.meta.followed import as_of, check_key, columns_of
from merganser.meta.kept import has_expired
from merganser.meta.layout import bucket_number, bucket_numbers, parted, spread
from merganser.meta.live_files import BucketFiles, BucketId
from merganser.meta.snapshot import Snapshot, same_snapshot
from merganser.meta.table_def import TableDef
from merganser.meta.table_state import MetaReader, TableState
from merganser.options import read as r
from merganser.rules.compacting import hides_level_0, is_masked
from merganser.rules.gaps import check_can_read, unsupported_for_reading
from merganser.scan.rows import with_schema, without_columns
from merganser.scan.scan import Scan, check_is_there, chosen_columns
from merganser.scan.source import State
from merganser.scan.time_travel import resolve
from merganser.schema import types as t
from merganser.schema.arrow import arrow_schema, in_types, nullable_schema
from merganser.schema.pieces import rows_at
from merganser.storage.env import Env
from merganser.storage.retries import REREAD
from merganser.values import dataclass
from merganser.write.buckets import partition_groups

CACHES: Final = ("auto", "all", "none")
"""When lookup copies are made: of files that are asked often, of every file at its first lookup, never."""


_WEIGHT: Final = 10_000
"""Bytes of a shared handle, without the state of its table and without lookup copies, which have their own limits."""


_BITS: Final = {t.TinyInt: 8, t.SmallInt: 16, t.Int: 32, t.BigInt: 64}
_CHOSEN_MAX: Final = 64
_AT_ONCE_ROWS: Final = 1 << 14
"""So many keys are looked up in several buckets at once."""


@dataclass(frozen=True)
class _Single:
    """A key that is one whole number: its column, and the smallest and the largest value."""

    name: str
    low: int
    high: int


@dataclass
class _View:
    """One state of the table, as lookups see it.

    Attributes:
        partitions: by partition, its buckets.
        vectors: deletion vectors by bucket.
        known: the buckets that were asked so far, with the files that they were made of.
    """

    table: TableDef
    state: TableState
    partitions: dict[bytes, list[int]]
    vectors: dict[BucketId, BucketVectors]
    known: dict[BucketId, tuple[BucketFiles, BucketVectors, BucketLookup]] = field(default_factory=dict)
    chosen: dict[tuple[str, ...] | None, Chosen] = field(default_factory=dict)
    totals: dict[bytes, int] = field(default_factory=dict)

    @cached_property
    def single(self) -> _Single | None:
        """The one column of the primary key, if that is a whole number and there are no partitions."""
        names, kinds = self.table.schema.primary_keys, self.table.key_types
        if len(names) != 1 or self.table.schema.partition_keys or self.table.schema.bucket_key != names:
            return None
        bits = _BITS.get(type(kinds[0]))
        return None if bits is None else _Single(names[0], -(1 << bits - 1), (1 << bits - 1) - 1)

    def choose(self, columns: Sequence[str] | None) -> Chosen:
        """Return the columns of names; None: all.

        Raises:
            InvalidInputError: a name is no column, or comes twice.
        """
        place = None if columns is None else tuple(columns) if isinstance(columns, list | tuple) else ()
        found = self.chosen.get(place) if place != () else None
        if found is None:
            fields = chosen_columns(self.table, columns)
            found = Chosen(fields, arrow_schema(fields))
            if len(self.chosen) >= _CHOSEN_MAX:
                self.chosen.clear()
            if place != ():
                self.chosen[place] = found
        return found

    def total_buckets(self, partition: bytes) -> int:
        """Return over how many buckets the keys of a partition are spread; 0: no rule says where a key lies."""
        found = self.totals.get(partition)
        if found is None:
            live = self.state.live.buckets
            found = self.totals[partition] = spread(
                live[partition, bucket] for bucket in self.partitions.get(partition, ())
            )
        return found


class Lookup:
    """Answers which rows some keys have. Threads may share it; it stays open until `close`, or as long as it is used.

    Get one from `Table.lookups`.

    Args:
        table: the table.
        snapshot: the snapshot to look at, for good, or its id; None: the newest one, as of the last `refresh`.
        cache: "auto", "all" or "none"; see `Table.lookups`.
        waiting: see the rows, too, that reads do not see before a compaction. So a new row is merged with these rows.
        moves_on: when the snapshot has expired, answer from the newest one.
        newest: the newest state, for callers that have just asked for it.
    """

    def __init__(
        self,
        table: TableDef,
        env: Env,
        *,
        snapshot: int | Snapshot | None = None,
        cache: str = "auto",
        waiting: bool = False,
        moves_on: bool = False,
        newest: TableState | None = None,
    ) -> None:
        action = f"cannot look up in '{table.name}'"
        check_has_key(table, action)
        if cache not in CACHES:
            raise InvalidInputError(f"{action}: cache is {cache!r:.50}. Give one of {', '.join(CACHES)}.")
        self._table = table
        self._env = env
        self._pinned = snapshot is not None
        self._at_once = cache == "all"
        self._waiting = waiting
        self._moves_on = moves_on
        options = table.options
        self._copies = None if cache == "none" else local_copies(table)
        if self._copies is not None and self._copies.is_inside(table.path):
            raise InvalidInputError(
                f"{action}: 'lookup.cache-directory' is '{options.get(r.LOOKUP_CACHE_DIRECTORY)}', which lies in the "
                f"table, at '{table.path}'. Nothing was read. Give a directory that holds nothing else.",
                table=table.name,
            )
        self._memory = HeldMemory(options.get(r.LOOKUP_CACHE_MAX_MEMORY_SIZE))
        self._held: dict[str, HeldFile] = {}
        self._lock = threading.Lock()
        self._files_lock = threading.Lock()
        self._closed = False
        self._view = self._view_at(snapshot, None, chosen=self._pinned, newest=newest)

    @property
    def snapshot(self) -> int | None:
        """The id of the snapshot that answers come from; None: the table has no snapshot yet."""
        found = self._view.state.snapshot
        return None if found is None else found.id

    @property
    def weight(self) -> int:
        """About how many bytes of memory it takes, without lookup copies."""
        return _WEIGHT + self._view.state.weight

    def serves(self, table: TableDef) -> bool:
        """Return whether it answers for a table: one that was dropped and made again has schema 0 once more."""
        return self._table.schema == table.schema

    def lookup(self, keys: Any, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the rows of keys, in the order of the keys. A key without a row is left out.

        Args:
            keys: a dict such as {"id": 7}, a list of dicts, an Arrow table, or a frame: all columns of the primary key.
                Give the partition columns that it lacks, too; if keys move between partitions, all of them or none.
            columns: the columns to return; None: all.

        Raises:
            InvalidInputError: a column is no part of the key or missing; a value is null or of another type.
            ExpiredError: expiry has removed the snapshot, and with it a file that may hold one of the keys.
            FormatError: a file that may hold one of the keys is damaged or missing. Other keys can be looked up.
        """
        view = self._open_view()
        table = view.table
        chosen = view.choose(columns)
        if not chosen.fields:
            return without_columns(len(self.found(keys, columns)[0]))
        if view.single is not None and type(keys) is dict and len(keys) == 1:
            integer = keys.get(view.single.name)
            if type(integer) is int and view.single.low <= integer <= view.single.high:
                with contextlib.suppress(NotAtOnceError, FormatError):  # the way for many keys says what is wrong
                    return self._one(view, integer, chosen)
        return self._answered(view, self._keys(table, keys), chosen)[2]

    def found(self, keys: Any, columns: Sequence[str] | None = None) -> tuple[Positions, pa.Table]:
        """Return which keys have a row, rising, and the rows; otherwise as `lookup`."""
        view = self._open_view()
        chosen = view.choose(columns)
        wanted = self._keys(view.table, keys)
        if not chosen.fields:  # a table without columns has no rows in Arrow's kernels
            _, which, _ = self._answered(view, wanted, view.choose(view.table.row_key[:1]))
            return which, without_columns(len(which))
        return self._answered(view, wanted, chosen)[1:]

    def _keys(self, table: TableDef, keys: Any) -> pa.Table:
        shorter = table.schema.primary_keys if table.moves_keys else None  # else each partition may have a row of it
        return key_rows(table, keys, table.row_key, f"cannot look up in '{self._table.name}'", shorter=shorter)

    def rows_of(
        self, keys: pa.Table, snapshot: Snapshot | None = None, *, removed: bool = False
    ) -> tuple[Snapshot | None, Positions, pa.Table]:
        """Return the rows of keys at one snapshot, even if other threads refresh the handle meanwhile.

        Args:
            keys: the columns of `TableDef.row_key`, in the types of the table, those of the primary key without nulls.
            snapshot: the snapshot to look at; None: the one that the handle is at.
            removed: return the stored deletes of keys without a row instead.

        Returns:
            The snapshot; which keys have a row, rising; the rows.

        Raises:
            InvalidInputError, ExpiredError, FormatError: as for `refresh` and `lookup`.
        """
        with self._lock:
            view = self._open_view()
            at = view.state.snapshot
            if snapshot is not None and (at is None or not same_snapshot(at, snapshot)):
                newer = at is None or at.id < snapshot.id
                view = self._view_at(snapshot, view, chosen=False)
                if newer:
                    self._view = view
        view, which, rows = self._answered(view, keys, view.choose(None), stays=snapshot is not None, removed=removed)
        return view.state.snapshot, which, rows

    def _one(self, view: _View, integer: int, chosen: Chosen) -> pa.Table:
        """Return the row of one key that is a whole number, in a table without partitions.

        Raises:
            NotAtOnceError: the way for many keys has to answer.
        """
        there = view.partitions.get(EMPTY_ROW, [])
        if len(there) > 1:
            assert view.single is not None
            total = view.total_buckets(EMPTY_ROW)
            number = bucket_number(view.table, (integer,), total) if total > 0 else None
            if number is None:
                raise NotAtOnceError
            there = [number] if number in there else []
        for bucket in there:
            row = self._bucket(view, (EMPTY_ROW, bucket)).one(integer, chosen)
            if row is not None:
                return pa.Table.from_batches([row])
        return chosen.nothing

    def lookup_prefix(self, prefix: Mapping[str, Any], columns: Sequence[str] | None = None) -> pa.Table:
        """Return all rows whose primary key begins with some values, in no order.

        Args:
            prefix: exactly the columns of the bucket key and the partition columns, such as {"dt": "2026-01-01"}.
            columns: the columns to return; None: all.

        Raises:
            InvalidInputError: the table has no such bucket key, or the prefix has other columns. Nothing was read.
            ExpiredError: expiry has removed the snapshot, and with it a file of these rows.
            FormatError: a file of these rows is damaged or missing.
        """
        for attempt in REREAD.each():
            view = self._open_view()
            table, at = view.table, view.state.snapshot
            chosen = view.choose(columns)
            row = prefix_row(table, prefix)
            condition = prefix_filter(row)
            where = None if condition is None else predicate_from_arrow(condition, table.schema.user_fields)
            if at is None:
                return chosen.nothing
            floats = floats_of(row)
            names = [field.name for field in chosen.fields]
            fields = view.choose([*names, *(name for name in floats if name not in names)]).fields
            try:
                rows = Scan(table, self._env, fields, where, State(at), None).to_arrow()
                return rows.filter(pa.array(has_prefix(rows, row))).select(names) if floats else rows
            except ExpiredError:
                if attempt.is_last or not self._moves_on:
                    raise
                self.refresh()
                if self._open_view() is view:
                    raise
        raise AssertionError("the last attempt returns or raises")

    async def lookup_async(self, keys: Any, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the same as `lookup` without blocking the event loop: a thread looks the keys up."""
        return await asyncio.to_thread(self.lookup, keys, columns)

    def refresh(self, snapshot: int | None = None) -> int | None:
        """Look at the newest snapshot from now on, and return its id. A handle of one snapshot stays there.

        Reads what was committed since the last refresh, and nothing else. Rows keep their columns: those that the table
        had when it was opened, as for `Table.read`; at a snapshot that was chosen, those that it had then.

        Args:
            snapshot: look at this snapshot, for good.

        Raises:
            InvalidInputError: the handle is closed.
            NotFoundError, ExpiredError: there is no such snapshot, or no longer; or the table was dropped.
            FormatError: metadata is damaged or missing. After any error the handle stays where it was.
        """
        self._refreshed(snapshot, None)
        return self.snapshot

    def _refreshed(self, snapshot: int | None, newest: TableState | None) -> bool:
        """Move as `refresh` says; return whether the handle has moved."""
        with self._lock:
            before = self._open_view()
            if snapshot is None and self._pinned:
                return False
            view = self._view_at(snapshot, before, chosen=snapshot is not None, newest=newest)
            self._pinned, self._view = snapshot is not None, view
            return view is not before

    def move(self, snapshot: Snapshot) -> None:
        """Look at a snapshot, for good, with the columns that the table has in this handle, whatever it had then.

        Raises:
            InvalidInputError, ExpiredError, FormatError: as for `refresh`.
        """
        with self._lock:
            before = self._open_view()
            if before.state.snapshot != snapshot:
                self._view = self._view_at(snapshot, before, chosen=False)
            self._pinned = True

    def close(self) -> None:
        """Give the memory back. Later lookups are refused."""
        with self._lock:
            self._closed = True
            self._held = {}
            self._memory.close()
            self._view = replace(self._view, known={}, chosen={})

    def __enter__(self) -> Self:
        return self

    def __reduce__(self) -> Never:
        raise InvalidInputError(
            f"cannot pickle a handle for lookups in '{self._table.name}': it holds memory and open files of this "
            "process. Pickle the table, and call its lookups() where the handle is used.",
            table=self._table.name,
        )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open_view(self) -> _View:
        if self._closed:
            raise InvalidInputError(
                f"cannot look up in '{self._table.name}': this handle is closed. Make another one with table.lookups()."
            )
        return self._view

    def _view_at(
        self,
        snapshot: int | Snapshot | None,
        before: _View | None,
        *,
        chosen: bool,
        newest: TableState | None = None,
    ) -> _View:
        """Return the view of a snapshot; None: of the newest one. If that expires meanwhile, the next one is taken.

        Args:
            before: the view that the handle has, if any.
            chosen: rows have the columns that the table had at the snapshot, and not those that it has in this handle.
        """
        reader = MetaReader(self._table.paths, self._env, self._table.name)
        if snapshot is not None and not isinstance(snapshot, Snapshot):
            snapshot = resolve(reader.snapshots, snapshot=snapshot)
        for attempt in REREAD.each():
            at = snapshot
            try:
                state = (newest or reader.latest()) if at is None else reader.state(at)
                at, newest = state.snapshot, None
                if at is not None:
                    check_key(self._table, self._env, (at,), f"cannot look up in '{self._table.name}'")
                if snapshot is None:
                    check_is_there(self._table, self._env, at, f"cannot look up in '{self._table.name}'")
                return self._view_of(state, before, chosen=chosen)
            except FormatError as error:
                if at is None or not has_expired(self._table, self._env, at, error):
                    raise
                if snapshot is not None or attempt.is_last:
                    raise self._expired(at, "Choose another snapshot") from error
        raise AssertionError("the last attempt returns or raises")

    def _expired(self, snapshot: Snapshot, advice: str) -> ExpiredError:
        erasure = erasure_of(self._table.paths, self._env, snapshot.id)
        why, longer = f"{erasure} ended snapshot {snapshot.id}", ""
        if erasure is None:
            why = f"snapshot {snapshot.id} has expired"
            longer = (
                ", or raise 'snapshot.time-retained' or 'snapshot.num-retained.min', so that snapshots are kept for as "
                "long as lookups need them"
            )
        return ExpiredError(
            f"cannot look up in '{self._table.name}': {why}, and files that may hold keys have been removed with it. "
            f"{advice}{longer}.",
            table=self._table.name,
            snapshot=snapshot.id,
        )

    def _view_of(self, state: TableState, before: _View | None, *, chosen: bool) -> _View:
        table = self._table
        if chosen and state.snapshot is not None:
            table = as_of(table, self._env, state.snapshot.schema_id)
        if before is not None and before.state.snapshot == state.snapshot and before.table.schema == table.schema:
            return before
        check_can_read(replace(table.schema, options=table.options), name=table.name, merge=False)
        partitions: dict[bytes, list[int]] = {}
        for partition, bucket in state.live.buckets:
            if bucket >= 0:  # postponed rows are not part of the table yet
                partitions.setdefault(partition, []).append(bucket)
        index = MetaReader(table.paths, self._env, table.name).index(state.snapshot)
        view = _View(table, state, partitions, vectors_by_bucket(table, index))
        if before is not None and before.table.schema.id == table.schema.id:
            with self._files_lock:  # other threads look up in the view before, and add to what it knows
                known = before.known.copy()
            view.known = {bucket: found for bucket, found in known.items() if bucket in state.live.buckets}
            named = {entry.file.name for files, _, _ in view.known.values() for entry in files.entries}
            with self._files_lock:
                self._held = {name: held for name, held in self._held.items() if name in named}
        return view

    def _answered(
        self, view: _View, wanted: pa.Table, chosen: Chosen, *, stays: bool = False, removed: bool = False
    ) -> tuple[_View, Positions, pa.Table]:
        """Return the view that answers; which keys have a row, rising; and the rows.

        Args:
            stays: answer from this snapshot or not at all, even if the handle moves on.
            removed: see `rows_of`.

        Raises:
            ExpiredError: the snapshot has expired, and with it a file that may hold one of the keys.
        """
        for attempt in REREAD.each():
            try:
                return view, *self._answer(view, wanted, chosen, removed=removed)
            except FormatError as error:
                at = view.state.snapshot
                if at is None or not has_expired(self._table, self._env, at, error):
                    raise
                if self._moves_on and not stays and not attempt.is_last:
                    self.refresh()
                    newer = self._open_view()
                    if newer.state.snapshot != at:
                        view = newer
                        continue
                advice = "Choose another snapshot" if self._pinned else "Call refresh() to look at the newest one"
                raise self._expired(at, advice) from error
        raise AssertionError("the last attempt returns or raises")

    def _answer(self, view: _View, wanted: pa.Table, chosen: Chosen, *, removed: bool) -> tuple[Positions, pa.Table]:
        """Return which keys have a row, rising, and the rows."""
        schema = nullable_schema(chosen.fields)
        todo: list[tuple[BucketId, Positions]] = []
        if set(view.table.schema.partition_keys) <= set(wanted.column_names):
            groups = partition_groups(view.table, wanted)
        else:  # keys that move may be in any partition
            groups = ((partition, np.arange(wanted.num_rows)) for partition in sorted(view.partitions))
        for partition, members in groups:
            rows = wanted if len(members) == wanted.num_rows else rows_at(wanted, members)
            todo += (((partition, bucket), members[at]) for bucket, at in self._by_bucket(view, partition, rows))

        def found_in(asked: tuple[BucketId, Positions]) -> tuple[Positions, pa.Table]:
            bucket, places = asked
            keys = wanted if len(places) == wanted.num_rows else rows_at(wanted, places)
            at, found = self._in_bucket(view, bucket, keys, chosen.fields, removed=removed)
            return places[at], in_types(found, schema)

        run = map if wanted.num_rows < _AT_ONCE_ROWS else self._env.map
        found = [one for one in run(found_in, todo) if len(one[0])]
        which, parts = [at for at, _ in found], [rows for _, rows in found]
        if not parts:
            return np.empty(0, np.int64), chosen.nothing
        order = np.concatenate(which)
        answer = with_schema(pa.concat_tables(parts), chosen.schema)
        if (order[1:] > order[:-1]).all():
            return order, answer
        back = np.argsort(order, kind="stable")
        return order[back], rows_at(answer, back)

    def _by_bucket(self, view: _View, partition: bytes, rows: pa.Table) -> list[tuple[int, Positions]]:
        """Return the buckets of a partition that may hold keys, and which ones."""
        everything = np.arange(rows.num_rows)
        there = view.partitions.get(partition, [])
        total = view.total_buckets(partition)
        if total <= 1:  # with 0, no rule says where a key lies
            return [(bucket, everything) for bucket in there]
        known = set(there)
        return [(bucket, at) for bucket, at in parted(bucket_numbers(view.table, rows, total)) if bucket in known]

    def _in_bucket(
        self, view: _View, bucket: BucketId, keys: pa.Table, fields: Sequence[t.Field], *, removed: bool
    ) -> tuple[Positions, pa.Table]:
        """Return which of some keys have a row in a bucket, and the rows; a key given twice has its row twice."""
        table = view.table
        columns = [keys.column(name).combine_chunks() for name in table.key]
        positions, is_last = sorted_positions([pa.chunked_array([column]) for column in columns])
        different = positions[is_last]
        taken = pa.array(different)
        asked = Asked(tuple(column.take(taken) for column in columns), table.key_types)
        which, rows = self._bucket(view, bucket).rows(asked, fields, removed=removed)
        if len(different) == len(positions):
            return different[which], rows
        number = np.empty(len(positions), np.int64)
        number[positions] = np.concatenate([[0], np.cumsum(is_last)[:-1]])
        place = np.full(len(different), -1)
        place[which] = np.arange(len(which))
        row = place[number]
        there = np.flatnonzero(row >= 0)
        return there, rows_at(rows, row[there])

    def _bucket(self, view: _View, bucket: BucketId) -> BucketLookup:
        files = view.state.live.buckets[bucket]
        vectors = view.vectors.get(bucket, NO_VECTORS)
        known = view.known.get(bucket)
        if known is not None and known[0] is files and known[1].entries == vectors.entries:
            return known[2]
        table = view.table
        seen = self._seen(table, [entry.file for entry in files.entries])
        schemas = columns_of(table, self._env, (file.schema_id for file in seen))
        reader = SectionReader(table, table.bucket_directory(*bucket), bucket[0], schemas, self._env.storage)
        asked = replace(table.schema, options=table.options)
        if unsupported_for_reading(asked, merge=True):
            check_can_read(asked, name=table.name, merge=len(reader.runs(seen)) > 1)
        with self._files_lock:
            there = {file.name: self._held.get(file.name) for file in seen}
        held = {
            file.name: found
            if (found := there[file.name]) is not None and found.serves(table)
            else HeldFile(reader, self._env, file, self._copies, self._memory, at_once=self._at_once)
            for file in seen
        }
        made = BucketLookup(reader, seen, held, vectors)
        with self._files_lock:
            view.known[bucket] = (files, vectors, made)
            if view is self._view:  # what only an older view asks for would stay for ever
                if known is not None:
                    for entry in known[0].entries:
                        self._held.pop(entry.file.name, None)
                self._held |= held
        return made

    def _seen(self, table: TableDef, files: Sequence[DataFile]) -> list[DataFile]:
        """Return the files of a bucket that a read looks at."""
        if self._waiting or not hides_level_0(table.options):
            return list(files)
        unmarked = (
            unmarked_schemas(table, self._env, {f.schema_id for f in files})
            if is_masked(table.options)
            else frozenset()
        )
        return [file for file in files if file.level > 0 or file.schema_id in unmarked]


def shared_lookup(
    table: TableDef,
    env: Env,
    snapshot: int | Snapshot | None = None,
    *,
    waiting: bool = False,
    newest: TableState | None = None,
) -> Lookup:
    """Return the handle that calls of one process share, at a snapshot or at the newest one now.

    The handle at the newest one moves on by itself when the snapshot expires while it is looked at.

    Args:
        waiting: see the rows, too, that reads do not see before a compaction.
        newest: the newest state, if it was asked for a moment ago.
    """
    if snapshot is not None:
        return Lookup(table, env, snapshot=snapshot, waiting=waiting)
    waiting = waiting and hides_level_0(table.options)  # in other tables both are the same
    place = ("lookup", waiting, table.paths.metadata_root, table.schema.id, tuple(sorted(table.options.items())))
    found: Lookup | None = env.cache.get(place)
    if found is None or not found.serves(table):
        found = Lookup(table, env, waiting=waiting, moves_on=True, newest=newest)
    elif not found._refreshed(None, newest):
        return found
    env.cache.put(place, found, found.weight)
    return found

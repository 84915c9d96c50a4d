"""MovingBuckets: keys that may move between partitions, since the primary key lacks partition columns.

A key has one row in the whole table. What happens to a row whose key lies in another partition is up to the engine::

    deduplicate                    [-D, old partition] [row, its partition]     the key moves
    partial-update, aggregation    [row, old partition]                         the key stays
    first-row                                                                   the key stays, the row is ignored

Nothing in the format says where a key lies: a writer reads the keys of the table when it begins (`key_index`). It
remembers them for its next commit, and for the next writer of the process, as long as nobody else changes rows. So a
table has one writer at a time: a commit fails if another one changed rows since the keys were read.

Format: section "Cross-partition mode".
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from merganser.codec.hashing import remainders, row_hashes
from merganser.commit.message import CommitMessage
from merganser.errors import InvariantError
from merganser.merge.deduplicate import Deduplicate
from merganser.merge.hashed_keys import KeyHashes
from merganser.merge.rules import merge_of
from merganser.meta.layout import parted
from merganser.meta.live_files import BucketId
from merganser.meta.table_def import TableDef
from merganser.meta.table_state import MetaReader
from merganser.options import write as w
from merganser.scan.keys import keys_of
from merganser.scan.plan import partitions_table
from merganser.scan.split import Split
from merganser.schema import row_kind
from merganser.storage.cache import Cache
from merganser.storage.env import Env
from merganser.storage.mapped import Arrays
from merganser.values import dataclass
from merganser.write.buckets import Group, NewKeys, check_directory, partition_groups
from merganser.write.filling import Filling, in_order
from merganser.write.incoming import Prepared
from merganser.write.key_index import ABSENT, KeyIndex, Pieces, Run
from merganser.write.start import RowsState, Start

Positions = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
_NOWHERE: Final = -1
"""In place of a partition: there is no row of the key."""
_BUCKET_BITS: Final = 16


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows in the order of their keys, and of their arrival.

    Attributes:
        order: int64[n], where each row stands among those given.
        first: the row is the first of its key.
        home: the number of the partition that the row names.
        retracts: the row takes something back.
        removes: no row of the key is left after it.
        before: of each key, the number of the partition that it lies in, or `_NOWHERE`.
    """

    order: Positions
    first: Mask
    home: Numbers
    retracts: Mask
    removes: Mask
    before: Numbers

    @property
    def key(self) -> Positions:
        """Which key each row has."""
        return np.cumsum(self.first) - 1

    @property
    def begins(self) -> Mask:
        """Whether there is no row of the key before the row, or the row is the first here."""
        begins = self.first.copy()
        begins[1:] |= self.removes[:-1]
        return begins


@dataclass(frozen=True, slots=True)
class _Moves:
    """Where rows go.

    Attributes:
        at: the number of the partition of each row.
        leaves: where a row takes its key out of a partition, the number of that; else `_NOWHERE`.
        kept: the rows that are written.
    """

    at: Numbers
    leaves: Numbers
    kept: Mask


def _keys_move(rows: _Rows) -> _Moves:
    """Return where rows of a deduplicating table go: where they say, and out of where the key was."""
    was = np.full(len(rows.home), _NOWHERE, np.int64)
    was[1:] = np.where(rows.removes[:-1], _NOWHERE, rows.home[:-1])
    was[rows.first] = rows.before
    moves = (was != _NOWHERE) & (was != rows.home)
    at = np.where(moves & rows.retracts, was, rows.home)  # a delete that names another partition removes the row
    return _Moves(at, np.where(moves & ~rows.retracts, was, _NOWHERE), np.ones(len(at), np.bool_))


def _keys_stay(rows: _Rows, *, first_alone: bool) -> _Moves:
    """Return where rows go that are applied where their key lies.

    Args:
        first_alone: rows that name another partition are dropped.
    """
    begins = rows.begins
    where = rows.home.copy()
    known = np.flatnonzero(rows.first)
    where[known] = np.where(rows.before == _NOWHERE, rows.home[known], rows.before)
    at = where[_last(begins)]
    kept = at == rows.home if first_alone else np.ones(len(at), np.bool_)
    return _Moves(at, np.full(len(at), _NOWHERE, np.int64), kept)


def _last(starts: Mask) -> Positions:
    """Return for each position the last one up to it that is a start; the first is one."""
    return np.maximum.accumulate(np.where(starts, np.arange(len(starts)), 0))


class _Places:
    """Numbers for the buckets of a table, the same for as long as the process lives."""

    def __init__(self) -> None:
        self.buckets: list[BucketId] = []
        self._numbers: dict[BucketId, int] = {}
        self._lock = threading.Lock()

    def number(self, bucket: BucketId) -> int:
        """Return the number of a bucket."""
        with self._lock:
            found = self._numbers.setdefault(bucket, len(self.buckets))
            if found == len(self.buckets):
                self.buckets.append(bucket)
            return found


@dataclass(frozen=True, slots=True)
class _Known:
    """Where the keys of an assigner lie.

    Attributes:
        version: of the state of the rows; see `RowsState`.
        keys: numbers of `_Places`.
        made: of keys that are not committed yet, the names of new data files that the next state has if they were;
            `version` is then of the state before it.
    """

    version: str
    keys: KeyIndex
    made: frozenset[str] = frozenset()

    def holds(self, state: RowsState) -> bool:
        """Return whether it says where keys lie in a state."""
        if not self.made:
            return self.version == state.version
        return self.version == state.before and not self.made.isdisjoint(state.added)


class MovingBuckets:
    """Finds or chooses the partition and the bucket of each row; see `write.buckets.Assigner`.

    Args:
        start: the state that the rows come after. Of several assigners one process may be all, if it has all rows.
    """

    def total_of(self, partition: bytes) -> int:
        """Return what the format says of buckets that are added as keys arrive."""
        return -1

    def __init__(self, table: TableDef, env: Env, start: Start) -> None:
        self._table = table
        self._env = env
        self._key = list(table.schema.primary_keys)
        self._key_types = [table.schema.field(name).type for name in self._key]
        self._merge = merge_of(table, stored=False)
        self._arrays = Arrays(table.options.get(w.WRITE_BUFFER_SIZE))
        self._places = _places_of(table)
        self.begin(start)

    def begin(self, start: Start) -> None:
        """Follow another state; what was not handed out is forgotten."""
        assert start.rows is not None
        self._state = start.rows
        self._assigners = start.assigners
        self._known: dict[int, KeyIndex] = {}
        self._filling: dict[bytes, Filling] = {}
        self._groups: list[Group] = []

    # where rows go

    def moved(self, rows: Prepared) -> Prepared:
        """Return rows where their keys belong, those that take keys out of old partitions among them.

        Args:
            rows: in the order in which they arrive.
        """
        table, kinds, arrival = rows
        if arrival is not None:
            raise InvariantError(f"rows of '{self._table.name}' must come in order: keys may move between partitions.")
        keys = table.select(self._key)
        hashes = KeyHashes.of(keys)
        order = hashes.order()
        hashes = hashes[order]
        first = hashes.starts()
        heads = np.flatnonzero(first)
        shares = self._shares(keys.take(pa.array(order[heads])))
        places = self._found(hashes[heads], shares)
        numbers: dict[bytes, int] = {}
        home = np.empty(table.num_rows, np.int64)
        for partition, members in partition_groups(self._table, table):
            check_directory(self._table, partition)
            home[members] = numbers.setdefault(partition, len(numbers))
        before = self._partitions_of(places, numbers)
        codes = np.zeros(len(order), np.int8) if kinds is None else kinds.to_numpy(zero_copy_only=False)[order]
        retracts = (codes & 1) == 1
        moves_keys = isinstance(self._merge.engine, Deduplicate)
        removes = retracts if moves_keys else (codes == row_kind.DELETE) & self._merge.engine.removes
        given = _Rows(order, first, home[order], retracts, removes, before)
        if moves_keys:
            moves = _keys_move(given)
        else:
            moves = _keys_stay(given, first_alone=self._table.options.get(w.MERGE_ENGINE) == "first-row")
        partitions = list(numbers)
        buckets = self._buckets(given, moves, places, partitions)
        self._learn(hashes, given, moves, buckets, places, shares, partitions)
        return self._written(table, codes, given, moves, buckets, places, partitions)

    def assign(self, rows: pa.Table) -> Iterator[Group]:
        """Yield the rows of every bucket that has some, of those that `moved` has just returned."""
        yield from self._groups

    def _shares(self, keys: pa.Table) -> Numbers:
        """Return the number of the assigner of each key."""
        if self._assigners == 1:
            return np.zeros(keys.num_rows, np.int64)
        return remainders(row_hashes(keys.columns, self._key_types), self._assigners).astype(np.int64)

    def _partitions_of(self, places: npt.NDArray[np.int32], numbers: dict[bytes, int]) -> Numbers:
        """Return the numbers of the partitions of places; partitions get their numbers."""
        found = np.full(len(places), _NOWHERE, np.int64)
        there = np.flatnonzero(places != ABSENT)
        for place, at in parted(places[there]):
            found[there[at]] = numbers.setdefault(self._places.buckets[place][0], len(numbers))
        return found

    def _buckets(
        self, rows: _Rows, moves: _Moves, places: npt.NDArray[np.int32], partitions: Sequence[bytes]
    ) -> Numbers:
        """Return the bucket of each row in its partition."""
        starts = rows.first.copy()
        starts[1:] |= moves.at[1:] != moves.at[:-1]
        at = np.flatnonzero(starts)
        key = rows.key[at]
        known = np.array([bucket for _, bucket in self._places.buckets] or [0], np.int64)
        there = moves.at[at] == rows.before[key]
        found = np.where(there, known[places[key]], _NOWHERE)
        new = np.flatnonzero(found == _NOWHERE)
        for partition, members in parted(moves.at[at[new]]):
            which = new[members]
            arrives = np.append(True, key[which[1:]] != key[which[:-1]])  # a key that returns has a bucket there
            filling = self._filled(partitions[partition])
            sizes = filling.take(int(arrives.sum()), self._known)
            buckets = in_order(sizes, rows.order[at[which[arrives]]])
            found[which] = buckets[np.cumsum(arrives) - 1]
        of_rows: Numbers = found[np.cumsum(starts) - 1]
        return of_rows

    def _filled(self, partition: bytes) -> Filling:
        if partition not in self._filling:
            counts = dict(self._state.counts.get(partition, {}))
            self._filling[partition] = Filling(self._table, counts, self._assigners)
        return self._filling[partition]

    def _written(
        self,
        table: pa.Table,
        codes: npt.NDArray[np.int8],
        rows: _Rows,
        moves: _Moves,
        buckets: Numbers,
        places: npt.NDArray[np.int32],
        partitions: Sequence[bytes],
    ) -> Prepared:
        """Return the rows to write, in the order of their arrival, and keep their groups."""
        leaves = np.flatnonzero(moves.leaves != _NOWHERE)
        kept = np.flatnonzero(moves.kept)
        old = np.empty(len(leaves), np.int64)
        first = rows.first[leaves]
        known = np.array([bucket for _, bucket in self._places.buckets] or [0], np.int64)
        old[first] = known[places[rows.key[leaves[first]]]]
        old[~first] = buckets[leaves[~first] - 1]
        source = np.concatenate([rows.order[leaves], rows.order[kept]])
        count = np.bincount(source, minlength=table.num_rows)
        end = np.cumsum(count)
        arrival = end[source] - 1  # a key leaves its partition before it arrives
        arrival[: len(leaves)] -= count[source[: len(leaves)]] - 1
        length = int(end[-1])

        def placed(of_leaves: Any, of_kept: npt.NDArray[Any]) -> npt.NDArray[Any]:
            out = np.empty(length, of_kept.dtype)
            out[arrival[: len(leaves)]] = of_leaves
            out[arrival[len(leaves) :]] = of_kept
            return out

        at = placed(moves.leaves[leaves], moves.at[kept])
        bucket = placed(old, buckets[kept])
        kind = placed(row_kind.DELETE, codes[kept])
        home = placed(rows.home[leaves], rows.home[kept])
        source = placed(source[: len(leaves)], source[len(leaves) :])
        self._groups = [
            Group(partitions[code >> _BUCKET_BITS], code & ((1 << _BUCKET_BITS) - 1), members)
            for code, members in parted((at << _BUCKET_BITS) | bucket)
        ]
        if len(source) != table.num_rows or len(leaves):
            table = table.take(pa.array(source))
        if (at != home).any():
            values = partitions_table(self._table, partitions).take(pa.array(at))
            for name in self._table.schema.partition_keys:
                place = table.schema.get_field_index(name)
                column = values.column(name).cast(table.schema.field(place).type)
                table = table.set_column(place, table.schema.field(place), column)
        return table, pa.array(kind) if kind.any() else None, None

    # where keys lie

    def _found(self, hashes: KeyHashes, shares: Numbers) -> npt.NDArray[np.int32]:
        """Return the places of keys; the keys of assigners that are new here are read."""
        there = [number for number, _ in parted(shares)]
        todo = [number for number in there if number not in self._known]
        if todo:
            self._known |= self._read(todo)
        if self._assigners == 1:
            return self._known[0].find(hashes)
        places = np.empty(len(hashes), np.int32)
        for number, at in parted(shares):
            places[at] = self._known[number].find(hashes[at])
        return places

    def _read(self, shares: Sequence[int]) -> dict[int, KeyIndex]:
        """Return where the keys of some assigners lie in the state: as this process remembers, or as the table says."""
        found = {}
        for number in shares:
            kept = _cache.get(self._place(number))
            if isinstance(kept, _Known) and kept.holds(self._state):
                found[number] = kept.keys
        todo = [number for number in shares if number not in found]
        if not todo:
            return found
        pieces = {number: Pieces(self._arrays, self._env) for number in todo}
        for place, hashes, shares_of in self._keys_of_table():
            if self._assigners == 1:
                pieces[0].add(hashes, place)
                continue
            for number, at in parted(shares_of):
                if number in pieces:
                    pieces[number].add(hashes[at], place)
        for number, piece in pieces.items():
            found[number] = piece.index()
            self._remember(number, _Known(self._state.version, found[number]))
        return found

    def _keys_of_table(self) -> Iterator[tuple[int, KeyHashes, Numbers]]:
        """Yield keys of each bucket: the number of its place, hashes, assigners. Rows that wait at level 0 count."""
        if self._state.snapshot is None:
            return
        state = MetaReader(self._table.paths, self._env, self._table.name).state(self._state.snapshot)
        buckets = {self._table.bucket_directory(*bucket): bucket for bucket in state.live.buckets}

        def told(split: Split, rows: pa.Table) -> tuple[int, KeyHashes, Numbers]:
            keys = rows.select(self._key)
            return self._places.number(buckets[split.directory]), KeyHashes.of(keys), self._shares(keys)

        yield from keys_of(self._table, self._env, state, told)

    def _learn(
        self,
        hashes: KeyHashes,
        rows: _Rows,
        moves: _Moves,
        buckets: Numbers,
        places: npt.NDArray[np.int32],
        shares: Numbers,
        partitions: Sequence[bytes],
    ) -> None:
        """Note where keys lie after the rows."""
        heads = np.flatnonzero(rows.first)
        last = np.append(heads[1:], len(rows.first)) - 1
        after = np.empty(len(heads), np.int32)
        for code, at in parted((moves.at[last] << _BUCKET_BITS) | buckets[last]):
            after[at] = self._places.number((partitions[code >> _BUCKET_BITS], code & ((1 << _BUCKET_BITS) - 1)))
        after[rows.removes[last]] = ABSENT
        changed = np.flatnonzero(after != places)
        for number, at in parted(shares[changed]):
            which = changed[at]
            run = Run(hashes[heads[which]], after[which])
            self._known[number] = self._known[number].with_run(run, self._arrays, self._env)

    # commits

    def key_files(self) -> Sequence[Callable[[], None]]:
        """Return nothing: no file says where keys lie."""
        return ()

    def written_keys(self) -> Mapping[BucketId, NewKeys]:
        """Return nothing: no file says where keys lie."""
        return {}

    def asked(self, partition: bytes) -> frozenset[str] | None:
        """Return the version of the rows that said where keys lie."""
        return None

    def abort(self) -> None:
        """Do nothing: nothing was written."""

    @property
    def after(self) -> str | None:
        """The version of the rows that said where keys lie."""
        return self._state.version

    def handed_out(self, messages: Iterable[CommitMessage]) -> None:
        """Keep what was learned, for writers that come after the commit of these messages."""
        made = frozenset(file.name for message in messages for file in message.added)
        for number, keys in self._known.items():
            if made:
                self._remember(number, _Known(self._state.version, keys, made))

    def _place(self, number: int) -> tuple[object, ...]:
        return ("places", self._table.paths.metadata_root, self._assigners, number, self._env.storage)

    def _remember(self, number: int, known: _Known) -> None:
        _cache.put(self._place(number), known, 1024 + known.keys.memory_bytes)


_cache: Final = Cache()
"""By table, assigner and storage, where its keys lie. Hashes and numbers of places hold in this process alone."""
_all_places: Final[dict[str, _Places]] = {}
_lock: Final = threading.Lock()


def _places_of(table: TableDef) -> _Places:
    with _lock:
        return _all_places.setdefault(table.paths.metadata_root, _Places())

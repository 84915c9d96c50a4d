"""Record logs: what each single row of a commit changed, as changelog files. This is the producer `per-record`.

A writer keeps the rows of a commit as they came, with their kinds, in files of received rows. At the commit, a job per
bucket goes through the rows of each key in the order of their arrival, from the state of the key before the commit on::

    stored       1 a
    received     +I 1 b    +I 1 c    -D 1        +I 2 x    -D 3
    published    -U 1 a    -U 1 b    -D 1 c      +I 2 x
                 +U 1 b    +U 1 c

Where the engine chooses one version, the state after a row is the version chosen of all up to it. The other engines
merge: the state before, and then the first row, the first two rows, and so on. For keys with many rows this is done in
rounds of so many rows, each from the state that the last one left.

Where a row depends on which of its versions were merged first, the last row of a key in a commit publishes what a read
of the new files shows: so the changelog and the table never part.

Semantics: section "Fluss changelog".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from merganser.commit.message import CommitMessage
from merganser.errors import InvalidInputError
from merganser.files.masks import NO_VECTORS, BucketVectors
from merganser.lsm.bucket_lookup import BucketLookup
from merganser.lsm.changelog import ChangeLog
from merganser.lsm.held import held_files
from merganser.lsm.key_image import Asked
from merganser.lsm.record_expiry import RowSource
from merganser.lsm.runs import open_runs
from merganser.lsm.section import PART_BYTES, SectionReader
from merganser.merge.deduplicate import Deduplicate, FirstRow
from merganser.merge.groups import Groups, Mask, Positions, groups_of
from merganser.merge.keys import sorted_positions
from merganser.merge.rules import Merge, merge_of
from merganser.merge.sort_merge import WINDOW_ROWS, windows
from merganser.meta.data_file import DataFile
from merganser.meta.table_def import TableDef
from merganser.options import write as w
from merganser.schema import row_kind
from merganser.schema import types as t
from merganser.schema.arrow import in_types, nullable_schema
from merganser.schema.table_schema import SEQUENCE_NUMBER, VALUE_KIND
from merganser.storage.env import Env
from merganser.values import dataclass

_SYSTEM: Final = (SEQUENCE_NUMBER, VALUE_KIND)
_PREFIX_ROWS: Final = 1 << 18
"""About so many rows are merged in a round."""
_ROUND_MIN: Final = 16
_ROUND_MAX: Final = 512
"""Rows of a key in a round."""


@dataclass(frozen=True)
class RecordLogJob:
    """The changelog of one bucket and one commit. Pickles; runs wherever there is a core.

    Attributes:
        directory: the bucket's.
        received: the rows of the commit as they came, in files that are ordered by key and arrival.
        files: the live files that the commit follows, as they were committed.
        schemas: columns of every schema that a file was written with.
        vectors: deletion vectors of these files.
        added: the data files that the commit adds to the bucket, if a row depends on what was merged first; else none.
    """

    table: TableDef
    partition: bytes
    bucket: int
    total_buckets: int
    directory: str
    received: tuple[DataFile, ...]
    files: tuple[DataFile, ...]
    schemas: Mapping[int, tuple[t.Field, ...]]
    vectors: BucketVectors = NO_VECTORS
    added: tuple[DataFile, ...] = ()

    @property
    def row_count(self) -> int:
        """Rows received."""
        return sum(file.row_count for file in self.received)

    @property
    def size_bytes(self) -> int:
        """Bytes of the rows received."""
        return sum(file.size for file in self.received)

    def run(self, env: Env, advance: Callable[[int], None] = lambda _: None) -> tuple[CommitMessage, ...]:
        """Write the changelog files and return them; they are durable.

        Raises:
            InvalidInputError: rows cannot be merged.
            FormatError: a file is damaged or missing; what was written is removed.
        """
        table, options = self.table, self.table.options
        images = options.get(w.CHANGELOG_IMAGE) == "full"
        log = ChangeLog(table, env, self.directory, 0, before=images)
        try:
            states = _States(self, env)
            is_blind = not images and states.blind
            inserted = row_kind.UPDATE_AFTER if is_blind else row_kind.INSERT
            for rows, firsts, goes_on in self._with_ends(self._rows(env)):
                one = states.changes(rows, firsts, blind=is_blind, goes_on=goes_on)
                log.publish(one.versions, one.before, one.after, one.numbers, one.shown, one.gone, inserted=inserted)
            made = CommitMessage(self.partition, self.bucket, self.total_buckets, (), changelog=log.close())
        except BaseException:
            log.abort()
            raise
        return (made,)

    def _with_ends(self, windows: Iterator[tuple[pa.Table, Positions]]) -> Iterator[tuple[pa.Table, Positions, bool]]:
        """Yield windows of rows, each with whether its last key has more rows in the next one."""
        window = next(windows, None)
        while window is not None:
            rows, firsts = window
            window = next(windows, None)
            last = rows.select(self.table.key).slice(rows.num_rows - 1)
            yield rows, firsts, window is not None and _is_same(last, window[0].select(self.table.key).slice(0, 1))

    def _rows(self, env: Env) -> Iterator[tuple[pa.Table, Positions]]:
        """Yield the rows received in the order of key and arrival, and where each key begins among them."""
        table = self.table
        reader = SectionReader(table, self.directory, self.partition, self.schemas, env.storage)
        reader = held_files(table, env).read_by(reader, self.received)
        numbered = (*table.key, SEQUENCE_NUMBER.name)

        def opened(file: DataFile) -> RowSource:
            return reader.source(file, table.schema.fields, kind=True, sequence=True, part_bytes=PART_BYTES)

        with open_runs(env.storage, [[file] for file in self.received], opened) as runs:
            for window in windows(runs, key=numbered, window_rows=WINDOW_ROWS):
                rows = window.rows
                if len(window.spans) > 1:
                    rows = rows.take(pa.array(window.positions))
                is_last = sorted_positions([rows.column(name) for name in table.key])[1]
                yield rows.combine_chunks(), np.concatenate(([0], np.flatnonzero(is_last)[:-1] + 1))


@dataclass(frozen=True, slots=True)
class _Changes:
    """What n rows changed; see `ChangeLog.publish`."""

    versions: pa.Table
    before: Positions
    after: Positions
    numbers: npt.NDArray[np.int64]
    shown: Mask
    gone: Mask


class _States:
    """The states of the keys of a bucket, row by row."""

    def __init__(self, job: RecordLogJob, env: Env) -> None:
        self._table = table = job.table
        self._merge = merge_of(table)
        self._merge_received = merge_of(table, stored=False)
        self._names = table.schema.names
        self._schema = nullable_schema((*table.schema.fields, *_SYSTEM))
        reader = SectionReader(table, job.directory, job.partition, job.schemas, env.storage)
        known = held_files(table, env)
        held = {file.name: known.of(reader, file) for file in job.files}
        self._lookup = BucketLookup(reader, job.files, held, job.vectors) if job.files else None
        self._after: BucketLookup | None = None
        if job.added:
            held |= {file.name: known.of(reader, file) for file in job.added}
            self._after = BucketLookup(reader, (*job.files, *job.added), held, job.vectors)
        self._carried: pa.Table | None = None
        """The last key seen, with its state: one row; None: there was none yet, or the key has no version."""
        self._last_key: pa.Table | None = None

    @property
    def blind(self) -> bool:
        """Whether a row is published whatever the one before it is, as long as nobody asks for that one."""
        if self._table.options.get(w.CHANGELOG_ROW_DEDUPLICATE):
            return False
        return isinstance(self._merge.engine, Deduplicate) and self._merge.order is None

    def changes(self, rows: pa.Table, starts: Positions, *, blind: bool, goes_on: bool) -> _Changes:
        """Return what rows changed.

        Args:
            rows: n rows in the order of key and arrival, with sequence numbers and kinds. The first key may be the last
                one of the call before.
            starts: int64[k], where each key begins.
            blind: only the states of keys that are retracted are of use.
            goes_on: the last key has more rows, which the next call gets.
        """
        rows = in_types(rows.select(self._schema.names), self._schema)
        kinds = rows.column(VALUE_KIND.name).to_numpy()
        groups = Groups(np.arange(rows.num_rows), starts)
        of_group, states = self._before(rows, groups, kinds if blind else None)
        if self._merge.engine.chooses:
            return self._chosen(rows, groups, kinds, of_group, states)
        return self._merged(rows, groups, kinds, of_group, states, goes_on=goes_on)

    def _before(self, rows: pa.Table, groups: Groups, kinds: npt.NDArray[np.int8] | None) -> tuple[Positions, pa.Table]:
        """Return the states of keys before their first row.

        Args:
            kinds: of the rows, if only keys that are retracted count.

        Returns:
            int64[k], the state of each key; -1: it has no version; and the states.
        """
        keys = rows.select(self._table.key).take(pa.array(groups.starts))
        found = np.full(groups.count, -1)
        parts = [self._schema.empty_table()]
        continues = self._last_key is not None and _is_same(self._last_key, keys.slice(0, 1))
        ask = np.arange(groups.count)
        if kinds is not None:
            ask = np.flatnonzero(np.logical_or.reduceat((kinds & 1) == 1, groups.starts))
        if continues:
            ask = ask[ask > 0]
            if self._carried is not None:
                parts.append(self._carried)
                found[0] = 0
        if self._lookup is not None and len(ask):
            which, states = self._lookup.states(self._asked(keys.take(pa.array(ask))), self._table.schema.fields)
            found[ask[which]] = np.arange(len(which)) + sum(part.num_rows for part in parts)
            parts.append(in_types(states, self._schema))
        self._last_key = keys.slice(groups.count - 1)
        return found, pa.concat_tables(parts)

    def _chosen(
        self, rows: pa.Table, groups: Groups, kinds: npt.NDArray[np.int8], of_group: Positions, states: pa.Table
    ) -> _Changes:
        """Return what rows changed where the state of a key is one of its versions."""
        versions = pa.concat_tables([states, rows])
        line = _Line(groups, of_group, states.num_rows)
        all_kinds = versions.column(VALUE_KIND.name).to_numpy()[line.versions]
        adds = (all_kinds & 1) == 0
        wins = np.ones(len(adds), np.bool_)
        if isinstance(self._merge.engine, FirstRow):
            taken = np.cumsum(adds) - adds
            wins = adds & (taken == taken[line.first])
        elif self._merge.ignore_delete:
            wins = adds.copy()
        else:
            # A row that is taken back right before the one that replaces it never goes.
            next_adds = np.append(adds[1:] & (line.group[1:] == line.group[:-1]), False)
            wins = ~((all_kinds == row_kind.UPDATE_BEFORE) & next_adds & line.is_row)
        if self._merge.order is not None:
            ranks = self._merge.order.ranks(versions.take(pa.array(line.versions)), adds)
            wins |= np.append(ranks[1:] < ranks[:-1], False)  # what would replace it is older
            wins &= _is_newest(ranks, wins, line)
        winner = np.maximum.accumulate(np.where(wins, np.arange(len(wins)), -1))
        winner = np.where(winner >= line.first, winner, -1)
        now = np.where((winner >= 0) & adds[winner], line.versions[winner], -1)
        was = np.where(np.arange(len(now)) > line.first, np.append(-1, now[:-1]), -1)
        earlier = np.where(np.arange(len(now)) > line.first, np.append(-1, winner[:-1]), -1)
        changed = winner != earlier
        last = winner[line.ends[-1] - 1]
        self._carried = versions.slice(int(line.versions[last]), 1) if last >= 0 else None
        now, was, changed = now[line.is_row], was[line.is_row], changed[line.is_row]
        return self._made(versions, was, now, changed, rows)

    def _merged(
        self,
        rows: pa.Table,
        groups: Groups,
        kinds: npt.NDArray[np.int8],
        of_group: Positions,
        states: pa.Table,
        *,
        goes_on: bool,
    ) -> _Changes:
        """Return what rows changed where the state of a key is merged from its versions."""
        normal, effective = self._normal(rows, kinds)
        numbers = rows.column(SEQUENCE_NUMBER.name).to_numpy()
        count = groups.count
        counts = np.add.reduceat(effective.astype(np.int64), groups.starts)  # rows of each key that say something
        records = np.flatnonzero(effective)  # by place among `normal`
        starts = np.cumsum(counts) - counts
        pool: list[pa.Table] = [states]
        size = states.num_rows
        state = of_group.copy()
        now = np.full(rows.num_rows, -1)
        was = np.full(rows.num_rows, -1)
        done = np.zeros(count, np.int64)
        while (left := np.flatnonzero(done < counts)).size:
            most = int(np.clip(np.sqrt(2 * _PREFIX_ROWS / len(left)), _ROUND_MIN, _ROUND_MAX))
            taken = np.minimum(counts[left] - done[left], most)
            merged, kinds_after = self._prefixes(
                pa.concat_tables(pool), normal, state[left], starts[left] + done[left], taken
            )
            ends = np.cumsum(taken)
            at = records[np.repeat(starts[left] + done[left] - (ends - taken), taken) + np.arange(ends[-1])]
            adds = (kinds_after & 1) == 0
            place = size + np.arange(len(at))
            merged = merged.append_column(SEQUENCE_NUMBER.name, pa.array(numbers[at]))
            pool.append(in_types(merged.append_column(VALUE_KIND.name, pa.array(kinds_after)), self._schema))
            size += len(at)
            now[at] = np.where(adds, place, -1)
            first = ends - taken
            before = np.append(-1, np.where(adds, place, -1)[:-1])
            before[first] = self._shown(pool, state[left])
            was[at] = before
            state[left] = place[ends - 1]
            done[left] += taken
        if self._after is not None:
            ended = np.flatnonzero(counts[: count - goes_on])
            at_end, shown = self._read(self._after, rows.select(self._table.key).take(pa.array(groups.starts[ended])))
            now[records[starts[ended] + counts[ended] - 1]] = np.where(at_end >= 0, size + at_end, -1)
            pool.append(shown)
        versions = pa.concat_tables(pool)
        self._carried = versions.slice(int(state[-1]), 1) if state[-1] >= 0 else None
        return self._made(versions, was, now, effective, rows)

    def _read(self, lookup: BucketLookup, keys: pa.Table) -> tuple[Positions, pa.Table]:
        """Return int64[k], which of some rows a read shows of each key, -1 for none; and these rows."""
        which, states = lookup.states(self._asked(keys), self._table.schema.fields)
        found = np.full(keys.num_rows, -1)
        found[which] = np.where((states.column(VALUE_KIND.name).to_numpy() & 1) == 0, np.arange(len(which)), -1)
        return found, in_types(states, self._schema)

    def _asked(self, keys: pa.Table) -> Asked:
        columns = tuple(keys.column(name).combine_chunks() for name in self._table.key)
        return Asked(columns, self._table.key_types)

    def _normal(self, rows: pa.Table, kinds: npt.NDArray[np.int8]) -> tuple[pa.Table, Mask]:
        """Return each row as a flush stores it alone, with its kind; and bool[n], which rows say something."""
        merge, alone = self._merge_received, np.ones(rows.num_rows, np.bool_)
        adds = (kinds & 1) == 0
        groups = groups_of(np.arange(rows.num_rows), alone, None if adds.all() else adds)
        kinds = kinds.copy()
        parts = merge.parts(rows, groups, kinds)
        if parts.demoted is not None:
            kinds[groups.positions[parts.demoted]] = row_kind.UPDATE_BEFORE
        made: list[pa.Table] = []
        places: list[Positions] = []
        for mask in parts.rows or (alone,):
            part, _ = groups.only(mask)
            folded = self._fold(merge, rows, part, kinds)
            after = row_kind.inserts(len(folded[1])) if folded[2] is None else pa.array(folded[2])
            made.append(folded[0].append_column(VALUE_KIND.name, after))
            places.append(part.positions[folded[1]])
        place = np.concatenate(places)
        effective = np.zeros(rows.num_rows, np.bool_)
        effective[place] = True
        normal = in_types(pa.concat_tables(made), nullable_schema((*self._table.schema.fields, VALUE_KIND)))
        return (normal if (place[1:] > place[:-1]).all() else normal.take(pa.array(np.argsort(place)))), effective

    def _prefixes(
        self, pool: pa.Table, normal: pa.Table, state: Positions, first: Positions, taken: Positions
    ) -> tuple[pa.Table, npt.NDArray[np.int8]]:
        """Return states after each of some rows of keys, in the order of key and row, and their kinds.

        Args:
            pool: all states so far.
            normal: rows that say something.
            state: int64[k], the state of each key before; -1: none.
            first, taken: int64[k], where its rows begin among `normal`, and how many there are.
        """
        has = (state >= 0).astype(np.int64)
        key = np.repeat(np.arange(len(taken)), taken)
        ends = np.cumsum(taken)
        step = np.arange(ends[-1]) - np.repeat(ends - taken, taken)  # how many rows came before in the round
        sizes = step + 1 + has[key]
        starts = np.cumsum(sizes) - sizes
        group = np.repeat(np.arange(len(sizes)), sizes)
        within = np.arange(len(group)) - starts[group] - has[key[group]]  # -1: the state
        held = state[state >= 0]
        place = np.cumsum(has) - 1
        rows = pa.concat_tables(
            [
                pool.select([*self._names, VALUE_KIND.name]).take(pa.array(held)),
                normal,
            ]
        ).combine_chunks()
        positions = np.where(within < 0, place[key[group]], len(held) + first[key[group]] + within)
        kinds = rows.column(VALUE_KIND.name).to_numpy()
        adds = (kinds & 1) == 0
        if self._merge.order is not None:
            ranks = self._merge.order.ranks(rows, adds)[positions]
            positions = positions[np.lexsort((ranks, group))]
        groups = Groups(positions, starts, None if adds.all() else adds[positions])
        folded, at, after = self._fold(self._merge, rows, groups, kinds)
        if len(at) == len(sizes):
            return folded, row_kind.inserts(len(at)).to_numpy() if after is None else after
        there = groups.group_of[at]  # the others have nothing but retractions without effect
        whole = np.zeros(len(sizes), np.int64)
        whole[there] = np.arange(len(there))
        kinds_after = np.full(len(sizes), row_kind.DELETE, np.int8)
        kinds_after[there] = row_kind.INSERT if after is None else after
        return folded.take(pa.array(whole)), kinds_after

    def _fold(
        self, merge: Merge, rows: pa.Table, groups: Groups, kinds: npt.NDArray[np.int8]
    ) -> tuple[pa.Table, Positions, npt.NDArray[np.int8] | None]:
        try:
            folded = merge.fold(rows, groups, None if groups.additions is None else kinds, self._names)
        except InvalidInputError as error:
            raise InvalidInputError(
                f"cannot write to '{self._table.name}': {error} Nothing was written.",
                **error.context | {"table": self._table.name},
            ) from error
        return folded.table(), folded.sequence_positions, folded.kinds

    def _shown(self, pool: Sequence[pa.Table], state: Positions) -> Positions:
        """Return the states that are rows; -1 for the others."""
        kinds = pa.chunked_array([part.column(VALUE_KIND.name).combine_chunks() for part in pool]).to_numpy()
        return np.where((state >= 0) & ((kinds[state] & 1) == 0), state, -1)

    def _made(self, versions: pa.Table, was: Positions, now: Positions, changed: Mask, rows: pa.Table) -> _Changes:
        numbers = rows.column(SEQUENCE_NUMBER.name).to_numpy()
        return _Changes(versions, was, now, numbers, changed & (now >= 0), changed & (now < 0))


class _Line:
    """Versions of k keys in the order in which they came: of each key the state before, if any, and its rows.

    Attributes:
        versions: int64[m], which versions they are: states, then rows.
        group: int64[m], of which key.
        first: int64[m], where its key begins.
        ends: int64[k], one past the last of each key.
        is_row: bool[m], whether it is a row.
    """

    def __init__(self, groups: Groups, of_group: Positions, states: int) -> None:
        has = (of_group >= 0).astype(np.int64)
        sizes = groups.sizes + has
        self.ends = np.cumsum(sizes)
        starts = self.ends - sizes
        self.group = np.repeat(np.arange(groups.count), sizes)
        self.first = starts[self.group]
        within = np.arange(len(self.group)) - self.first
        self.is_row = within >= has[self.group]
        rows = states + groups.starts[self.group] + within - has[self.group]
        self.versions = np.where(self.is_row, rows, of_group[self.group])


def _is_newest(ranks: npt.NDArray[np.int64], counts: Mask, line: _Line) -> Mask:
    """Return bool[m], which versions are at least as new as all before them of their key that count."""
    order = np.argsort(ranks, kind="stable")
    dense = np.empty(len(ranks), np.int64)
    dense[order] = np.cumsum(np.append(False, ranks[order][1:] != ranks[order][:-1]))
    lifted = np.where(counts, dense + 1, 0) + line.group * (len(ranks) + 2)
    newest: Mask = counts & (lifted == np.maximum.accumulate(lifted))
    return newest


def _is_same(one: pa.Table, other: pa.Table) -> bool:
    """Return whether two rows have the same key."""
    both = pa.concat_tables([one, other])
    return int(sorted_positions(both.columns)[1].sum()) == 1

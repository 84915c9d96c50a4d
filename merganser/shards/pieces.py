"""Piece: what one snapshot published in one shard, as a value that pickles, and a cursor that reads it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from merganser.meta.shards import Shard
from merganser.scan.split import Phase, PublishedSplit
from merganser.shards.records import Positions, Shape, Stored, ends_within_update, record_count, record_table
from merganser.storage.protocol import Storage
from merganser.stream.batches import Part
from merganser.values import dataclass

_ROWS_AT_ONCE: Final = 65_536
_MADE_ROWS: Final = 8_192
_MADE_BYTES: Final = 16 << 20
"""Records are made of so many rows, if they are no larger, and of what the page needs."""


@dataclass(frozen=True, slots=True)
class Piece:
    """What one snapshot published in one shard.

    Attributes:
        shard: the shard as it was known when the piece was planned.
        snapshot: the id.
        time_ms: when the snapshot was committed.
        parts: the rows, in order.
    """

    shard: Shard
    snapshot: int
    time_ms: int
    parts: tuple[Part, ...]

    @property
    def files(self) -> int:
        """Number of files."""
        return sum(part.files for part in self._counted)

    @property
    def rows(self) -> int:
        """Stored rows."""
        return sum(part.rows for part in self._counted)

    @property
    def size_bytes(self) -> int:
        """Bytes of the files."""
        return sum(part.size_bytes for part in self._counted)

    @property
    def _counted(self) -> Iterator[Part]:
        """The parts that have each file once: rows that go and rows that stay may lie in the same files."""
        return (part for part in self.parts if _phase(part) is not Phase.GOING)

    def cursor(self, storage: Storage, shape: Shape, empty: pa.Table, skipped: int = 0) -> Cursor:
        """Return a cursor behind the first stored rows.

        Args:
            empty: no stored rows, for their columns.
        """
        return Cursor(self, self._rows(storage, skipped), skipped, shape, empty)

    def _rows(self, storage: Storage, skipped: int) -> Iterator[tuple[pa.Table, bool]]:
        """Yield rows, and whether they come late; the two rows of an update lie in one table."""
        held: list[pa.Table] = []
        was_late = False
        for part in self.parts:
            late = _is_late(part)
            if held and late != was_late:
                yield pa.concat_tables(held), was_late
                held = []
            was_late = late
            whole = isinstance(part.split, PublishedSplit) and _phase(part) is None and not part.job.table.counting
            if whole and skipped >= part.rows:
                skipped -= part.rows
                continue
            for rows in part.read(storage):
                passed = min(skipped, rows.num_rows)
                skipped -= passed
                if passed == rows.num_rows:
                    continue
                held.append(rows.slice(passed))
                if not ends_within_update(held[-1]):
                    yield pa.concat_tables(held), late
                    held = []
        if held:
            yield pa.concat_tables(held), was_late


def _phase(part: Part) -> Phase | None:
    return part.split.phase if isinstance(part.split, PublishedSplit) else None


def _is_late(part: Part) -> bool:
    """Return whether rows come behind those of the same snapshot that go, here or in other shards.

    An overwrite added them, or keys that may have come from another partition have them now.
    """
    if part.form is not None:
        return part.form.kind == "+I"
    return _phase(part) is Phase.STAYING


class Cursor:
    """Where a page ended, with the files that are open there, and with records that were made already.

    Attributes:
        row: how many stored rows of the snapshot were taken.
    """

    def __init__(
        self, piece: Piece, rows: Iterator[tuple[pa.Table, bool]], row: int, shape: Shape, empty: pa.Table
    ) -> None:
        self.row = row
        self._piece = piece
        self._shape = shape
        self._empty = empty
        self._rows = rows
        self._held: pa.Table | None = None
        self._late = False
        self._made: pa.Table | None = None
        self._ends: Positions = np.zeros(0, np.int64)
        self._used = 0

    @property
    def time_ms(self) -> int:
        """When the snapshot was committed."""
        return self._piece.time_ms

    @property
    def size_bytes(self) -> int:
        """Bytes of what is left over."""
        return sum(each.nbytes for each in (self._held, self._made) if each is not None)

    def take(self, room: int) -> Stored | pa.Table | None:
        """Return at most so many records of the snapshot, or rows that they are made of; None: there are no more."""
        if self._made is None:
            held = self._filled()
            if held is None:
                return None
            if held.num_rows <= room:
                found = self._stored(held)
                self._held, self.row = None, found.end
                return found
            self._make(held, room)
        assert self._made is not None
        records = self._made.slice(self._used, room)
        self._used += records.num_rows
        self.row = int(self._ends[self._used - 1])
        if self._used == self._made.num_rows:
            self._made, self._used = None, 0
        return records

    def is_done(self) -> bool:
        """Return whether all was taken."""
        return self._made is None and self._filled() is None

    def _filled(self) -> pa.Table | None:
        """Return the next rows; None: there are no more."""
        if self._held is None and (more := next(self._rows, None)) is not None:
            self._held, self._late = more
        return self._held

    def _make(self, held: pa.Table, room: int) -> None:
        few = _MADE_BYTES * held.num_rows // max(held.nbytes, 1)
        end = min(max(min(_MADE_ROWS, few), 2 * room), held.num_rows)
        while end < held.num_rows and ends_within_update(held.slice(end - 1, 1)):
            end += 1
        made, at = record_table([self._stored(held.slice(0, end))], self._shape, self._empty)
        self._made, self._ends = made, at + (self.row + 1)
        self._held = held.slice(end) if end < held.num_rows else None

    def _stored(self, rows: pa.Table) -> Stored:
        return Stored(rows, self.row, self._piece.snapshot, self._piece.time_ms, self._late)


class Gathered:
    """The records of a page."""

    def __init__(self, shape: Shape, empty: pa.Table) -> None:
        self.count = 0
        self._shape = shape
        self._empty = empty
        self._made: list[pa.Table] = []
        self._stored: list[Stored] = []

    def add(self, taken: Stored | pa.Table) -> None:
        """Add what was taken of a snapshot."""
        if isinstance(taken, Stored):
            self._stored.append(taken)
            self.count += record_count(taken.rows, self._shape.key)
            return
        self._make()
        self._made.append(taken)
        self.count += taken.num_rows

    def table(self) -> pa.Table:
        """Return the records; there are some."""
        self._make()
        return self._made[0] if len(self._made) == 1 else pa.concat_tables(self._made).combine_chunks()

    def _make(self) -> None:
        """Make records of rows of several snapshots together, since most have few."""
        if self._stored:
            self._made.append(record_table(self._stored, self._shape, self._empty)[0])
            self._stored = []


def records_of(pieces: Iterable[Piece], shape: Shape, empty: pa.Table, storage: Storage) -> Iterator[pa.Table]:
    """Yield the records of pieces of one shard, in order, some ten thousand rows at a time."""
    gathered = Gathered(shape, empty)
    for piece in pieces:
        cursor = piece.cursor(storage, shape, empty)
        while (taken := cursor.take(_ROWS_AT_ONCE)) is not None:
            gathered.add(taken)
            if gathered.count >= _ROWS_AT_ONCE:
                yield gathered.table()
                gathered = Gathered(shape, empty)
    if gathered.count:
        yield gathered.table()

"""ShardBatches: the records of a shard stream, cut into batches for engines that keep one position of all shards.

    snapshot 7            8             9 rescale     10
    a b        |  a b                 |               c d a'      a batch has no shard together with its parents

All shards go on by snapshots, so a position is a snapshot and how many shards of it were read, however many shards
there are. Records of a child begin behind the last records of its parents, and a batch ends between the two.

Semantics: "Table Store Stream", lineage rule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from merganser.errors import InvalidInputError, TrimmedDataError
from merganser.meta.followed import newest
from merganser.meta.shard_stream import ShardStream, stream_of
from merganser.meta.shards import Shard
from merganser.meta.snapshot import Snapshot
from merganser.meta.table_def import TableDef
from merganser.options import read as r
from merganser.scan.split import What
from merganser.schema import types as t
from merganser.schema.table_schema import CHANGE_KIND
from merganser.shards.iterator import Place
from merganser.shards.pieces import Piece
from merganser.shards.reader import ShardReader
from merganser.storage.env import Env
from merganser.stream.batches import UNLIMITED, Limits, Position, Room, TableBatches, position_of
from merganser.upkeep.shard_stream import no_stream
from merganser.values import dataclass

_STREAM: Final = "stream"
_TAKEN: Final = "shards"
_STALE_PARTS: Final = 8
"""A position that is older than this part of the retention goes on without records, too, before it is trimmed."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where a stream of records begins.

    Attributes:
        at: "trim_horizon" or "latest".
        since_ms: with the first record of this time or later, in epoch milliseconds; it goes before `at`.
    """

    at: str = "trim_horizon"
    since_ms: int | None = None


class _Room(Room[Piece]):
    """What is left of a batch, which has no shard together with one that its keys were in before."""

    def __init__(self, limits: Limits, shard_of: Callable[[str], Shard | None]) -> None:
        super().__init__(limits)
        self._shard_of = shard_of
        self._seen: dict[bytes, str] = {}

    def takes(self, portion: Piece) -> bool:
        """Return whether there is room, and take it if there is."""
        mine = portion.shard
        seen = self._seen.setdefault(mine.partition, mine.id)
        if seen != mine.id and mine.parents:  # all shards of a partition that were open together close together
            before = self._shard_of(seen)
            if before is None or (before.closed is not None and before.closed <= mine.opened):
                return False
        return super().takes(portion)


class ShardBatches(TableBatches):
    """Batches of the records of the shard stream that a table keeps.

    Args:
        table: with its newest schema.
        stream: the stream.
        columns: of the table, to read; those of the key are among them.
        beginning: where the first batch begins.
        limits: how much a batch may have. It has all records of a snapshot and shard, or none of them.

    Raises:
        InvalidInputError: an option that a stream does not have.
    """

    def __init__(
        self,
        table: TableDef,
        env: Env,
        stream: ShardStream,
        *,
        columns: tuple[t.Field, ...],
        beginning: Beginning,
        limits: Limits = UNLIMITED,
    ) -> None:
        without = table.options.merged({r.CONSUMER_ID.key: None})
        super().__init__(
            replace(table, options=without),
            env,
            what=What.CHANGED,
            columns=(CHANGE_KIND, *columns),
            where=None,
            limits=limits,
        )
        self.reader = ShardReader(table, env, stream, columns)
        self._stream = stream
        self._beginning = beginning
        self._newest: Snapshot | None = None

    def position(self, value: Mapping[str, Any]) -> Position | None:
        """Return the position that a checkpoint holds; None: nothing was read yet.

        Raises:
            TrimmedDataError: it belongs to another stream.
            InvalidInputError: it is no such position.
        """
        plain = {("files" if key == _TAKEN else key): each for key, each in value.items() if key != _STREAM}
        found = position_of(plain, self._table.name)
        if found is None:
            return None
        if found.state is not None or _STREAM not in value:
            raise InvalidInputError(
                f"{self._action}: the checkpoint holds the offset {dict(value)!r:.200}, which is none of a shard "
                "stream. Nothing was read. Start with a new checkpoint."
            )
        if value[_STREAM] != self._stream.id:
            raise self._other_stream(str(value[_STREAM]), self._stream)
        return found

    def value(self, position: Position) -> dict[str, Any]:
        """Return what a checkpoint holds of a position."""
        plain = {(_TAKEN if key == "files" else key): each for key, each in position.to_json().items()}
        return plain | {_STREAM: self._stream.id}

    def start(self) -> Position:
        """Return the position before all records."""
        last = self.reader.newest()
        number = self._stream.after + 1 if last is None else last.id + 1
        since = self._beginning.since_ms
        if since is not None or self._beginning.at != "latest":
            first = self.reader.first_kept()
            number = first if since is None else self.reader.first_since(since, first, max(first, number) - 1)
        return self._at(Position(None, None, number, None, number))

    def advance(self, start: Position, *, limited: bool = True, head: int | None = None) -> Position:
        """Return how far the next batch goes; see `TableBatches.advance`.

        Raises:
            TrimmedDataError: the position is older than the retention, in a history that a rollback removed, or of a
                stream that was enabled again since.
            StreamNotFoundError: the stream was disabled.
            UntrackedError: a commit logged nothing.
        """
        now = stream_of(newest(self.reader.table, self._env).schema.options, self._table.branch)
        if now is None:
            raise no_stream(self._table.name, self._action)
        if now.id != self._stream.id:
            raise self._other_stream(self._stream.id, now)
        try:
            self._check_kept(start)
        except TrimmedDataError as error:
            raise TrimmedDataError(
                f"{error.message} With the checkpoint of a query, stop the query and call ms.reset_stream(spark, "
                f"checkpoint, '{self._table.path}', ...) instead.",
                **error.context,
            ) from None
        return super().advance(start, limited=limited, head=head)

    def check(self, position: Position) -> None:
        """Refuse a position from which the stream cannot be followed.

        Raises:
            TrimmedDataError: see `advance`.
            ConflictError: the table was rolled back behind the position.
        """
        self._check_kept(position)
        super().check(position)

    def _check_kept(self, position: Position) -> None:
        self._newest = self.reader.newest()
        read_ms = position.part_ms if position.files else position.after_ms
        place = Place(self._stream.id, "", position.next, position.files, -1 if read_ms is None else read_ms)
        self.reader.check_kept(place, self._newest)

    def shards(self, start: Position | None, end: Position) -> list[list[Piece]]:
        """Return what lies between two positions: of each shard with records, the pieces in order.

        Args:
            start: where the records begin; None: before all.

        Raises:
            TrimmedDataError: the records are older than the retention.
            FormatError: metadata is damaged or missing.
        """
        found: dict[str, list[Piece]] = {}
        for piece in self._between(start, end):
            found.setdefault(piece.shard.id, []).append(piece)
        return list(found.values())

    def _portions(self, number: int) -> Sequence[Piece]:
        if self._newest is None or self._newest.id < number:
            self._newest = self.reader.newest()
        return self.reader.pieces(self._line.kept(number), self._newest, skip_gaps=self._gaps == "skip")

    def _passes(self, start: Position, end: Position) -> bool:
        stale_ms = self._stream.retention.total_seconds() * 1000 / _STALE_PARTS
        return super()._passes(start, end) or self._env.now_ms() - (start.after_ms or 0) > stale_ms

    def _room(self, limits: Limits) -> _Room:
        return _Room(limits, self._shard_of)

    def _shard_of(self, shard_id: str) -> Shard | None:
        store = self.reader.store
        with store.lock:
            return store.up_to(self._newest).get(shard_id)

    def _refuse_gap(self, snapshot: Snapshot) -> None:
        if self._gaps == "error" and snapshot.schema_id >= self._stream.schema_id:
            self.reader.refuse_gap(snapshot)

    def _other_stream(self, known: str, now: ShardStream) -> TrimmedDataError:
        return TrimmedDataError(
            f"{self._action}: the position belongs to the stream {known}, and the table keeps the stream {now.id}. A "
            "stream that is enabled again begins anew. Nothing was read. Read the table, and start with a new "
            "checkpoint.",
            table=self._table.name,
            stream=now.id,
        )

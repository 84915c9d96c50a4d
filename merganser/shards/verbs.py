"""The verbs of the shard stream, for the handle of a table and for servers and workers that follow it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import islice
from typing import Any, Final

import pyarrow as pa

from merganser.codec.binary_row import stored_to_arrow
from merganser.errors import InvalidInputError, StreamNotFoundError, StreamParameterError, check_flags
from merganser.meta.followed import newest
from merganser.meta.shard_stream import ShardStream, stream_of
from merganser.meta.shards import Shard as StoredShard
from merganser.meta.shards import is_shard_id
from merganser.meta.snapshot import Snapshot
from merganser.meta.table_def import TableDef
from merganser.options.registry import did_you_mean
from merganser.scan.plan import partition_values
from merganser.scan.time_travel import epoch_ms
from merganser.shards.iterator import Place, iterator_text, place_of
from merganser.shards.reader import Page, ShardReader
from merganser.shards.records import Shape
from merganser.storage.env import Env
from merganser.storage.tuning import no_collection
from merganser.upkeep.shard_stream import no_stream
from merganser.values import dataclass

TRIM_HORIZON: Final = "trim_horizon"
LATEST: Final = "latest"
_LIMIT_MAX: Final = 1_000_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Stream:
    """A shard stream that a table of a catalog keeps.

    Attributes:
        stream_id: its name; a stream that is enabled again has another one.
        table_name: `database.table`.
        creation_time: when it was enabled, in UTC.
    """

    stream_id: str
    table_name: str
    creation_time: datetime


@dataclass(frozen=True, slots=True)
class Shard:
    """A part of the stream: one bucket of one partition, from the commit that opened it to the one that closed it.

    Attributes:
        shard_id: its name; ids sort in the order in which shards were opened.
        parent_id: the shard that its keys were in before; None: they are new, or the parent is trimmed.
        parent_sibling_id: the second parent, if rows of several shards came together.
        closed: no records are added any more.
        bucket: the number of the bucket.
        partition: the values of the partition columns; empty for a table without partitions, and if an erasure has
            taken them from a closed shard.
        parents: all parents. Read them to their ends before this shard, and each key has its records in order.
        opened: the snapshot that opened it.
        closed_by: the snapshot that closed it.
        closed_time: when that was committed, in UTC. After a rollback a shard may be open again, or closed by another
            commit: then it has another time.
    """

    shard_id: str
    parent_id: str | None
    parent_sibling_id: str | None
    closed: bool
    bucket: int
    partition: Mapping[str, Any]
    parents: tuple[str, ...] = ()
    opened: int = 0
    closed_by: int | None = None
    closed_time: datetime | None = None


@dataclass(frozen=True, slots=True)
class StreamDescription:
    """A shard stream and some of its shards.

    Attributes:
        stream_id: its name.
        table_name: that of the table.
        status: "active".
        creation_time: when it was enabled, in UTC.
        retention: how long records can be read after their commit.
        shards: in the order in which they were opened.
        next_shard: where the next page of shards begins; None: there are no more.
    """

    stream_id: str
    table_name: str
    status: str
    creation_time: datetime
    retention: timedelta
    shards: tuple[Shard, ...]
    next_shard: str | None


@dataclass(frozen=True, slots=True)
class Records:
    """A page of records.

    Attributes:
        records: one row each: `_action` (PUT, UPDATE or DELETE), `_sequence` (int64, which rises within a shard),
            `_commit_time` (timestamp[ms], UTC), `_changed` (of an update, the names of the columns that it changed),
            and the columns of the table. A put has all of them, an update the key and what changed, a delete the key;
            a key that may move between partitions comes with the partition columns.
        next_iterator: the position behind them; None: the shard is closed, and all of it was read.
        may_have_more: whether there was more to read already.
    """

    records: pa.Table
    next_iterator: str | None
    may_have_more: bool


class Verbs:
    """The verbs of the stream that a table keeps now.

    Raises:
        StreamNotFoundError: the table keeps none.
    """

    def __init__(self, table: TableDef, env: Env, what: str) -> None:
        table = newest(table, env)
        stream = stream_of(table.schema.options, table.branch)
        if stream is None:
            raise no_stream(table.name, what)
        self.stream = stream
        self.table = table
        self.env = env
        self.reader = _reader(table, env, stream)

    def describe(self, start_shard: str | None, limit: int | None) -> StreamDescription:
        """Return the stream and its shards from one on."""
        if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 1):
            raise StreamParameterError(
                f"cannot describe the stream of '{self.table.name}': limit is {limit!r:.60}. Give a whole number of 1 "
                "or more, or None for all shards.",
                table=self.table.name,
            )
        if start_shard is not None and not (isinstance(start_shard, str) and is_shard_id(start_shard)):
            raise StreamParameterError(
                f"cannot describe the stream of '{self.table.name}': start_shard is {start_shard!r:.60}. Give the "
                "id of a shard, such as the next_shard of the page before.",
                table=self.table.name,
            )
        with no_collection():
            found = self.stored(start_shard or "", None if limit is None else limit + 1)
            shown = self._shown(found[:limit])
        return StreamDescription(
            self.stream.id,
            self.table.name,
            "active",
            _time(self.stream.created_ms),
            self.stream.retention,
            shown,
            None if len(shown) == len(found) else found[-1].id,
        )

    def stored(self, start: str = "", limit: int | None = None) -> list[StoredShard]:
        """Return the shards from an id on that have records to read, or may get some; None: all of them."""
        store = self.reader.store
        horizon = self.env.now_ms() - self.stream.retention.total_seconds() * 1000
        with store.lock:
            every = store.up_to(self.reader.newest()).since(start)
            return list(islice((s for s in every if s.closed_ms is None or s.closed_ms >= horizon), limit))

    def iterator(self, shard_id: str, timestamp: datetime | str | int | None, at: str) -> str:
        """Return a position in a shard."""
        what = f"cannot make an iterator for '{self.table.name}'"
        if at not in (LATEST, TRIM_HORIZON):
            raise StreamParameterError(
                f"{what}: at is {at!r:.60}. Give 'latest', 'trim_horizon', or a timestamp.", table=self.table.name
            )
        newest_one = self.reader.newest()
        with self.reader.store.lock:
            shards = self.reader.store.up_to(newest_one)
            shard = shards.get(shard_id) if isinstance(shard_id, str) else None
            names = [] if shard is not None else [each.id for each in islice(shards, 1000)]
        if shard is None:
            hint = did_you_mean(str(shard_id), names) if names else "It has none yet."
            raise StreamNotFoundError(
                f"{what}: its stream has no shard {shard_id!r:.80}. {hint}", table=self.table.name, shard=shard_id
            )
        end = self.reader.behind(shard, newest_one)
        if timestamp is None and at == LATEST:
            number = end
        else:
            number = max(shard.opened, self.reader.first_kept())
            if timestamp is not None:
                millis = millis_of(timestamp, what)
                number = self.reader.first_since(millis, number, max(number, end) - 1)
        return iterator_text(self.reader.place(shard, min(number, end)))

    def records(self, iterator: str, limit: int, *, before: bool, full: bool, gaps: str) -> Records:
        """Return records from a position on."""
        page = self.page(iterator, limit, before=before, full=full, gaps=gaps)
        return Records(page.records, None if page.ended else iterator_text(page.next), page.more)

    def page(self, iterator: str, limit: int, *, before: bool, full: bool, gaps: str) -> Page:
        """Return records from a position on, with the position of the end of a shard that is closed."""
        what = f"cannot read records of '{self.table.name}'"
        if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= _LIMIT_MAX:
            raise StreamParameterError(
                f"{what}: limit is {limit!r:.60}. Give a whole number from 1 to {_LIMIT_MAX:,}.", table=self.table.name
            )
        if gaps not in ("error", "skip"):
            raise StreamParameterError(f"{what}: gaps is {gaps!r:.60}. Give 'error' or 'skip'.", table=self.table.name)
        check_flags(what, before=before, full=full)
        place = self.place_of(iterator)
        return self.reader.page(place, limit, self.shape(before=before, full=full), skip_gaps=gaps == "skip")

    def place_of(self, iterator: str) -> Place:
        """Return the position that an iterator names.

        Raises:
            TrimmedDataError: the iterator is damaged or of another stream.
        """
        return place_of(iterator, table=self.table.name, stream_id=self.stream.id)

    def idle(self, iterator: str, newest: Snapshot | None) -> bool:
        """Return whether a position is behind all records of an open shard as of the newest snapshot.

        It looks at memory alone, for servers with many polls. False may also mean that this is not known.

        Raises:
            TrimmedDataError: the position is damaged or of another stream.
        """
        return self.reader.idle(self.place_of(iterator), newest)

    def shape(self, *, before: bool, full: bool) -> Shape:
        """Return what records have."""
        key = self.table.row_key if self.table.keyed else ()
        return Shape(self.reader.columns, key, before, full)

    def _shown(self, shards: Sequence[StoredShard]) -> tuple[Shard, ...]:
        keys = self.table.schema.partition_keys
        distinct = sorted({shard.partition for shard in shards if shard.partition}) if keys else []
        values: dict[bytes, Mapping[str, Any]] = {}
        if distinct:
            rows = partition_values(self.table, distinct)
            columns = [
                stored_to_arrow([row[i] for row in rows], kind).to_pylist()
                for i, kind in enumerate(self.table.partition_types)
            ]
            each = zip(*columns, strict=True)
            values = {p: dict(zip(keys, row, strict=True)) for p, row in zip(distinct, each, strict=True)}
        return tuple(
            Shard(
                one.id,
                one.parents[0] if one.parents else None,
                one.parents[1] if len(one.parents) > 1 else None,
                one.closed is not None,
                one.bucket,
                values.get(one.partition, {}),
                one.parents,
                one.opened,
                one.closed,
                None if one.closed_ms is None else _time(one.closed_ms),
            )
            for one in shards
        )


def _reader(table: TableDef, env: Env, stream: ShardStream) -> ShardReader:
    """Return the reader of the stream; this process keeps it, with the files that it has open."""
    key = ("shard reader", table.paths.metadata_root, stream.id)
    found: ShardReader | None = env.cache.get(key)
    if found is None or found.store.table.schema.id != table.schema.id or found.stream != stream:
        found = ShardReader(table, env, stream)
        env.cache.put(key, found, 10_000)
    return found


def stream_in(table: TableDef, env: Env) -> Stream | None:
    """Return the stream that a table keeps; None: it keeps none."""
    table = newest(table, env)
    stream = stream_of(table.schema.options, table.branch)
    return None if stream is None else Stream(stream.id, table.name, _time(stream.created_ms))


def _time(millis: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=millis)


def millis_of(timestamp: datetime | str | int, what: str, zone: tzinfo = UTC) -> int:
    """Return the time that a caller gave, in epoch milliseconds.

    Args:
        what: beginning of the message.
        zone: of texts without an offset.

    Raises:
        StreamParameterError: it is no time.
    """
    if isinstance(timestamp, int) and not isinstance(timestamp, bool):
        return timestamp
    if isinstance(timestamp, datetime | str):
        with suppress(InvalidInputError):
            return epoch_ms(timestamp, zone)
    raise StreamParameterError(
        f"{what}: timestamp is {timestamp!r:.60}. Give a datetime, ISO text such as 2026-01-31T12:00:00, or "
        "milliseconds since 1970 as int."
    )

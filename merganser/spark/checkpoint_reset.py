"""Make a query go on from another position of the tables that it reads, under the same checkpoint.

    table=   the table that the query writes says which batch it has last, and the checkpoint where that batch ended
    start=   the caller says where to go on

The first one is right after a rollback of that table: its newest batch, and all earlier ones, are there once. Batches
after it are read again, and their numbers rise, so none of them is taken for a repeated one. Nothing here needs Spark.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from os import PathLike
from typing import Any, Final

from merganser.commit import committers
from merganser.commit.committers import Newest
from merganser.commit.history import History
from merganser.errors import ConflictError, ExpiredError, InvalidInputError, MerganserError, NotFoundError, a_type
from merganser.handle.table import Table
from merganser.meta.followed import newest
from merganser.meta.shard_stream import stream_of
from merganser.meta.snapshot import BATCH_IDENTIFIER, Snapshot
from merganser.meta.table_state import MetaReader
from merganser.options import read as r
from merganser.rules.starts import starts_given
from merganser.scan.split import What
from merganser.scan.views import checked_columns
from merganser.shards.batches import Beginning, ShardBatches
from merganser.spark.checkpoint import Checkpoint
from merganser.spark.query_logs import QueryLogs, sources_of, with_sources
from merganser.storage.open import storage_beside
from merganser.stream.batches import Position, TableBatches
from merganser.upkeep.shard_stream import no_stream
from merganser.values import dataclass

Start = int | str
_STARTS: Final = ("latest", "latest-full")
_RECORD_STARTS: Final = ("latest", "trim_horizon")


@dataclass(frozen=True, slots=True)
class StreamReset:
    """Where a query goes on.

    Attributes:
        query: the id of the query.
        next_batch: the number of its next batch, which is higher than all earlier ones.
        table_batch: the newest batch that the table has which the query writes; None: it has none, or was not named.
        after: of each source the last snapshot that counts as read; None: it is no table, or the query begins with the
            rows of a snapshot.
    """

    query: str
    next_batch: int
    table_batch: int | None
    after: tuple[int | None, ...]


def checkpoint_logs(checkpoint: str | PathLike[str], beside: Table, action: str) -> QueryLogs:
    """Return the logs of the query that has a checkpoint.

    Args:
        beside: a table whose store holds the checkpoint, if it is a path of this kind of store.

    Raises:
        InvalidInputError: the path is none, or its scheme is not one of merganser.
    """
    if not isinstance(checkpoint, str | PathLike) or not str(checkpoint).strip():
        raise InvalidInputError(f"{action}: checkpoint is {checkpoint!r:.80}. Give the path of its directory.")
    try:
        storage, directory = storage_beside(beside.env.storage, str(checkpoint), {})
    except InvalidInputError as error:
        raise InvalidInputError(
            f"{action}: {error} Nothing was changed. Copy the whole checkpoint to one of these places, reset the copy, "
            "and start the query with the copy.",
            path=str(checkpoint),
        ) from None
    return QueryLogs(storage, directory.rstrip("/"), action)


def reset_checkpoint(
    logs: QueryLogs,
    sources: Sequence[Table | None],
    *,
    table: Table | None,
    start: Start | Sequence[Start | None] | None,
) -> StreamReset:
    """Make a query go on from another position.

    Args:
        logs: of the query.
        sources: the tables that it reads, in the order of the query; None: the source is no table.
        table: the table that it writes, whose newest batch says where to go on.
        start: where to go on, of each source; None in it: where the query is now.

    Raises:
        InvalidInputError, NotFoundError, ExpiredError: see `ms.reset_stream`. Nothing was changed.
        ConflictError: the newest batch of the table has rows that are gone from a source; says what to roll back.
    """
    reset = _Reset(logs, logs.query(), sources)
    return reset.to_starts(start) if table is None else reset.to_batch(table)


class _Reset:
    def __init__(self, logs: QueryLogs, query: str, sources: Sequence[Table | None]) -> None:
        self._logs = logs
        self._action = logs.action
        self._query = query
        self._kept = logs.batches()
        if not self._kept:
            raise InvalidInputError(
                f"{self._action}: the query has no batch yet. Nothing was changed. Start the query: it begins where "
                "its options say.",
                path=logs.directory,
            )
        self._newest = logs.offsets(self._kept[-1])
        self._sources = self._checked(sources)

    def to_starts(self, start: Start | Sequence[Start | None] | None) -> StreamReset:
        """Make the query go on where the caller says."""
        starts = [start] if isinstance(start, int | str) else list(start or ())
        if len(starts) != len(self._sources):
            raise InvalidInputError(
                f"{self._action}: start has {len(starts)} positions, and the query {len(self._sources)} sources. "
                "Nothing was changed. Give one for each source, in the order of the query; None: where it is now.",
                path=self._logs.directory,
            )
        batch = self._kept[-1]
        if None in starts and batch not in self._logs.done():
            raise InvalidInputError(
                f"{self._action}: batch {batch} was begun and is not noted as done, so it is not known whether its "
                "rows are in the table that the query writes. Nothing was changed. Give a start for every source, or "
                "name the table with table=, which tells.",
                path=self._logs.directory,
            )
        texts = list(sources_of(self._newest))
        for i, (one, source) in enumerate(zip(starts, self._sources, strict=True)):
            if one is None:
                continue
            if source is None:
                raise InvalidInputError(
                    f"{self._action}: source {i} of the query is no table of merganser, so its start cannot be set. "
                    "Nothing was changed. Give None for it.",
                    path=self._logs.directory,
                )
            texts[i] = json.dumps(source.value(self._position(source, one)))
        return self._done(with_sources(self._newest, tuple(texts)), batch, None)

    def to_batch(self, table: Table) -> StreamReset:
        """Make the query go on after the newest batch that a table has of it."""
        written = self._checked_table(table)
        if written is None:
            return self._done(self._beginning(table), -1, None)
        batch = written.identifier
        if batch not in self._kept:
            older = batch > self._kept[-1]
            fact = (
                "the checkpoint is older than the table"
                if older
                else f"Spark keeps the offsets of batches from {self._kept[0]} on"
            )
            raise ConflictError(
                f"{self._action}: the newest batch of this query in '{table.name}' is {batch}, and {fact}. Nothing was "
                "changed. Put the newest checkpoint back; or say with start= where to go on; or empty the table and "
                "start the query with a new checkpoint.",
                table=table.name,
                batch=batch,
            )
        digest = hashlib.blake2b(self._logs.raw_offsets(batch), digest_size=8).hexdigest()
        if written.batch is not None and written.batch != digest:
            raise ConflictError(
                f"{self._action}: batch {batch} in '{table.name}' was made from other offsets than the checkpoint has. "
                "Nothing was changed. Put the checkpoint of the query back that wrote it, or empty the table and start "
                "the query with a new checkpoint.",
                table=table.name,
                batch=batch,
            )
        problem = self._problem(batch)
        if problem is not None:
            raise self._advised(table, batch, problem)
        return self._done(self._logs.offsets(batch), batch, batch)

    def _checked(self, sources: Sequence[Table | None]) -> list[TableBatches | None]:
        """Return the batches of the tables that the query reads; None: another source.

        Raises:
            InvalidInputError: these are not the sources of the query.
        """
        texts = sources_of(self._newest)
        if len(sources) != len(texts):
            raise InvalidInputError(
                f"{self._action}: {len(sources)} sources are named, and the query has {len(texts)}. Nothing was "
                "changed. Name them in the order of the query, with None for those that are no tables.",
                path=self._logs.directory,
            )
        found: list[TableBatches | None] = []
        for i, (source, text) in enumerate(zip(sources, texts, strict=True)):
            value = _offset_of(text)
            if (source is None) != (value is None):
                fact = f"has the offset {text:.100} of another kind"
                if source is None:
                    fact = "reads a table of merganser"
                raise InvalidInputError(
                    f"{self._action}: source {i} of the query {fact}. Nothing was changed. Name the tables in the "
                    "order of the query, with None for other sources.",
                    path=self._logs.directory,
                )
            if source is None or value is None:
                found.append(None)
                continue
            found.append(_batches_of(source, value, self._action, "latest"))
        self._tables = sources
        return found

    def _position(self, source: TableBatches, start: Start) -> Position:
        if isinstance(start, int) and not isinstance(start, bool):
            return source.after(start)
        modes = _RECORD_STARTS if isinstance(source, ShardBatches) else _STARTS
        if start not in modes:
            raise InvalidInputError(
                f"{self._action}: start is {start!r:.60}. Nothing was changed. Give the snapshot that was read last, "
                f"or {' or '.join(map(repr, modes))}.",
                path=self._logs.directory,
            )
        table = self._tables[self._sources.index(source)]
        assert table is not None
        value = _offset_of(sources_of(self._newest)[self._sources.index(source)])
        assert value is not None
        return _batches_of(table, value, self._action, str(start)).start()

    def _positions(self, lines: tuple[str, ...]) -> list[Position | None]:
        """Return the positions of sources; None: the source is no table."""
        found: list[Position | None] = []
        for source, text in zip(self._sources, sources_of(lines), strict=True):
            value = _offset_of(text)
            found.append(None if source is None or value is None else source.position(value))
        return found

    def _problem(self, batch: int) -> MerganserError | None:
        """Return why a query cannot go on after a batch; None: it can."""
        try:
            for source, position in zip(self._sources, self._positions(self._logs.offsets(batch)), strict=True):
                if source is not None and position is not None:
                    source.check(position)
        except (ConflictError, ExpiredError, NotFoundError) as error:
            return error
        return None

    def _checked_table(self, table: Table) -> Newest | None:
        """Return the newest commit of the query to the table; None: the table has none now.

        Raises:
            InvalidInputError: the query does not write to this table, or also writes to others.
            ConflictError: the table was dropped and re-created.
        """
        notes = Checkpoint(self._logs.storage, self._logs.directory)
        noted = notes.check_table(table.definition, table.env, self._action)
        places = notes.tables()
        others = [place for place in places if place != table.definition.paths.metadata_root]
        written, full = _written(table, self._query)
        if written is None and (not noted or full):
            raise InvalidInputError(
                f"{self._action}: neither the checkpoint nor the snapshots of '{table.name}' say that the query has "
                f"written to this table. {f'It wrote to {others[0]!r}. ' if others else ''}Nothing was changed. Name "
                "the table that it writes, or say with start= where to go on.",
                table=table.name,
            )
        if others:
            raise InvalidInputError(
                f"{self._action}: the query has written to '{others[0]}', too, so one table does not say which batches "
                "are done. Nothing was changed. Roll back all of its tables, and say with start= where to go on.",
                table=table.name,
            )
        return written

    def _beginning(self, table: Table) -> tuple[str, ...]:
        """Return the offsets before the first batch.

        Raises:
            InvalidInputError: a source is no table, so nobody knows where it began.
        """
        texts = []
        for source, position in zip(self._sources, self._positions(self._newest), strict=True):
            if source is None:
                raise InvalidInputError(
                    f"{self._action}: '{table.name}' has no batch of the query, and the query reads other sources than "
                    "tables, whose beginning the checkpoint does not have. Nothing was changed. Start the query with a "
                    "new checkpoint.",
                    table=table.name,
                )
            texts.append(json.dumps(source.value(source.start() if position is None else source.before(position))))
        return with_sources(self._newest, tuple(texts))

    def _advised(self, table: Table, batch: int, problem: MerganserError) -> ConflictError:
        """Return the error that says how far the table has to be rolled back."""
        reader = MetaReader(table.definition.paths, table.env, table.name)
        latest = reader.snapshots.latest()
        first: Snapshot | None = None  # the oldest one of a batch that has to go
        todo = None
        if latest is not None:
            for snapshot in (latest, *reader.snapshots.walk_back(latest.id - 1)):
                number = snapshot.commit_identifier
                if not snapshot.commit_user.endswith(self._query) or number == BATCH_IDENTIFIER:
                    continue
                if (first is None or number < first.commit_identifier) and (
                    number in self._kept and self._problem(number) is None
                ):
                    break
                first = snapshot
        if first is not None and first.id > 1 and reader.snapshots.get(first.id - 1) is not None:
            todo = (
                f"Roll '{table.name}' back with table.rollback(snapshot={first.id - 1}), which is the newest snapshot "
                "without such rows, and repeat this call"
            )
        return ConflictError(
            f"{self._action}: the newest batch of this query in '{table.name}' is {batch}, and the query cannot go on "
            f"after it: {problem.message.split('. ')[0]}. Nothing was changed. "
            f"{todo or _EMPTY.format(table=table.name)}.",
            table=table.name,
            batch=batch,
            snapshot=None if todo is None or first is None else first.id - 1,
        )

    def _done(self, lines: tuple[str, ...], batch: int, table_batch: int | None) -> StreamReset:
        after = tuple(None if at is None or at.splits is not None else at.next - 1 for at in self._positions(lines))
        return StreamReset(self._query, self._logs.continue_from(lines, batch), table_batch, after)


_EMPTY: Final = (
    "No snapshot of '{table}' without such rows is kept: empty the table, for example with write([], overwrite={{}}), "
    "and start the query with a new checkpoint"
)


def _offset_of(text: str) -> dict[str, Any] | None:
    """Return the offset of a table; None: it is one of another source."""
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) and isinstance(found.get("version"), int) else None


def _batches_of(table: Table, value: dict[str, Any], action: str, start: str) -> TableBatches:
    """Return the batches of a table that begin at a start mode; of records, if the offset is one of records."""
    definition = newest(table.definition, table.env)
    plain = dict.fromkeys((*starts_given(definition.options), r.CONSUMER_ID.key))
    if "stream" in value:
        definition = replace(definition, options=definition.options.merged(plain))
        stream = stream_of(definition.schema.options, definition.branch)
        if stream is None:
            raise no_stream(definition.name, action)
        columns = definition.schema.user_fields
        return ShardBatches(definition, table.env, stream, columns=columns, beginning=Beginning(start))
    definition = replace(definition, options=definition.options.merged({**plain, r.SCAN_MODE.key: start}))
    columns = checked_columns(What.CHANGED, definition)
    return TableBatches(definition, table.env, what=What.CHANGED, columns=columns, where=None)


def _written(table: Table, query: str) -> tuple[Newest | None, bool]:
    """Return the newest commit of a query to a table, and whether the table may have forgotten one."""
    reader = MetaReader(table.definition.paths, table.env, table.name)
    latest = reader.snapshots.latest()
    if latest is None:
        return None, False
    known = committers.carried(latest) or {}
    users = set(known)
    users |= {one.commit_user for one in (latest, *reader.snapshots.walk_back(latest.id - 1))}
    own = [History(reader).newest_of(user, latest) for user in users if user.endswith(query)]
    found = max((one for one in own if one is not None), key=lambda one: one.identifier, default=None)
    return found, len(known) >= committers.COMMITTERS_MAX


def check_choice(table: Any, start: Any, action: str) -> None:
    """Refuse a call that does not say where to go on, or says it twice.

    Raises:
        InvalidInputError: nothing was changed.
    """
    if (table is None) == (start is None):
        raise InvalidInputError(
            f"{action}: give either table=, the table that the query writes, or start=. Nothing was changed."
        )
    if isinstance(start, bool) or not (start is None or isinstance(start, int | str | Sequence)):
        raise InvalidInputError(
            f"{action}: start is {a_type(start)}. Give the snapshot that was read last, 'latest' or 'latest-full'. "
            "Nothing was changed."
        )

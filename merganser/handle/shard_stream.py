"""The verbs of the shard stream, as part of `Table`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from merganser.handle.base import TableBase
from merganser.meta.table_def import TableDef
from merganser.storage.env import Env

if TYPE_CHECKING:
    from merganser.shards.follow import Batch
    from merganser.shards.followers import Follower
    from merganser.shards.verbs import Records, Shard, StreamDescription, Verbs


class StreamVerbs(TableBase):
    """What a table offers of its shard stream; see docs/shards.md."""

    def enable_stream(self, retention: str | timedelta = "24 h") -> StreamDescription:
        """Keep every change from now on as records, shard by shard, for a time.

        A table with a primary key that publishes no changes begins to log each record (`changelog-producer`
        `per-record`). No data is written twice. A stream that is enabled already keeps its id, and gets the retention.

        Args:
            retention: how long records can be read after their commit, also when their snapshots have expired.

        Returns:
            The stream and its shards. Their iterators at "trim_horizon" point to now.

        Raises:
            StreamParameterError: retention is no duration above zero.
            InvalidInputError: the changes of this table are not complete, and cannot be.
        """
        from merganser.upkeep.shard_stream import enable, span_of

        what = f"cannot enable the stream of '{self.definition.name}'"
        self._take_over(enable(self.definition, self.env, span_of(retention, "retention", what=what)))
        return self.describe_stream()

    def disable_stream(self) -> None:
        """Discard the stream. Its positions are refused from now on; the rows and snapshots of the table stay.

        `records` raises `StreamNotFoundError` then, and `TrimmedDataError` once another stream is enabled.

        Raises:
            StreamNotFoundError: the table keeps no stream.
        """
        from merganser.upkeep.shard_stream import disable

        self._take_over(disable(self.definition, self.env))

    def describe_stream(self, start_shard: str | None = None, limit: int | None = None) -> StreamDescription:
        """Return the stream of the table and its shards, in the order in which they were opened.

        Args:
            start_shard: the id of the first shard to return, such as the `next_shard` of the page before.
            limit: most shards to return; None: all.

        Raises:
            StreamNotFoundError: the table keeps no stream.
            StreamParameterError: the limit is no whole number above 0.
        """
        return self._verbs("describe the stream of").describe(start_shard, limit)

    def shards(self) -> tuple[Shard, ...]:
        """Return all shards that have records to read, or may get some. See `describe_stream` for pages."""
        return self.describe_stream().shards

    def shard_iterator(self, shard_id: str, timestamp: datetime | str | int | None = None, at: str = "latest") -> str:
        """Return a position in a shard: a text that any process can go on from.

        Args:
            shard_id: of `shards`.
            timestamp: the first record committed at this time or later: a datetime, ISO text in UTC, or milliseconds
                since 1970. If there is none yet, the position is that of "latest", also for a time to come. It goes
                before `at`.
            at: "latest": behind the newest record. "trim_horizon": before the oldest that is kept.

        Raises:
            StreamNotFoundError: the table keeps no stream, or the stream has no such shard.
            StreamParameterError: an argument has no meaning here.
        """
        return self._verbs("make an iterator for").iterator(shard_id, timestamp, at)

    def records(
        self, iterator: str, limit: int = 1000, before: bool = False, full: bool = False, gaps: str = "error"
    ) -> Records:
        """Return the records of a shard from a position on.

        A position can be read again within the retention, and gives the same records. An open shard without new
        records returns none, and a position to ask again.

        Args:
            iterator: of `shard_iterator`, or the `next_iterator` of the page before.
            limit: most records to return. There may be fewer, although there are more to read: see `may_have_more`.
            before: add the column `_before`: the row before an update or a delete, null for a put.
            full: give an update all columns of the row, and a delete its last values. Else columns that an update did
                not change are null, and `_changed` names the others.
            gaps: what to do about commits that logged nothing, since change tracking was off: "error", or "skip".

        Raises:
            TrimmedDataError: the position is damaged, of another stream, older than the retention, or in a history
                that a rollback removed. Nothing was read.
            StreamNotFoundError: the table keeps no stream.
            StreamParameterError: the limit is no whole number from 1 to 1,000,000.
            UntrackedError: a commit logged nothing.
        """
        return self._verbs("read records of").records(iterator, limit, before=before, full=full, gaps=gaps)

    def follow(
        self,
        worker: str,
        handler: Callable[[Batch], object],
        checkpoints: TableBase | str | None = None,
        lease: str | timedelta = "30 s",
        interval: str | timedelta = "20 ms",
        limit: int = 1000,
        start: str = "trim_horizon",
        before: bool = False,
        full: bool = False,
        gaps: str = "error",
        stop: threading.Event | None = None,
    ) -> None:
        """Hand over every record of the table, shard by shard, parents before children, until `stop` is set.

        Several workers, in threads, processes or machines, share the shards among them. If a worker dies, the others
        take its shards when its leases have run out. Records whose handler did not return come again, so each comes
        at least once. A handler that stores the last `_sequence` of each shard with its results, in one transaction,
        and takes `Batch.after` of it, sees each once.

        Args:
            worker: the name of this worker, unlike that of any other that runs.
            handler: takes a `Batch` of records of one shard. Its errors end this worker.
            checkpoints: where the workers keep leases and positions, the same for all of them: a table, its path, its
                name as `database.table` if it lies in the same warehouse, or another directory or URL: one with a dot
                needs a slash. Workers with another one are another group, which sees all records, too. None: in the
                directory of this table.
            lease: how long a shard stays with a worker that is not heard of. A handler has to return within it.
            interval: how long to wait before the next look, once all is read.
            limit: most records of a batch.
            start: where shards without a position begin: "trim_horizon" or "latest".
            before, full, gaps: see `records`.
            stop: ends the worker, which then gives its shards back; None: only an error or Ctrl-C does.

        Raises:
            StreamNotFoundError: the table keeps no stream.
            StreamParameterError: an argument has no meaning here.
            NotFoundError: checkpoints names a table that does not exist.
            TrimmedDataError: the worker fell behind the retention, or the table was rolled back behind what was read.
        """
        from merganser.shards.follow import Worker
        from merganser.shards.followers import leases_at
        from merganser.upkeep.shard_stream import span_of

        what = f"cannot follow '{self.definition.name}'"
        Worker(
            self.definition,
            self.env,
            worker,
            partial(leases_at, self.definition, self.env, checkpoints=_held(checkpoints), action=what),
            handler,
            lease=span_of(lease, "lease", what=what),
            interval=span_of(interval, "interval", what=what),
            limit=limit,
            start=start,
            before=before,
            full=full,
            gaps=gaps,
        ).run(threading.Event() if stop is None else stop)

    def followers(self, checkpoints: TableBase | str | None = None) -> tuple[Follower, ...]:
        """Return how far the workers of a group have come, shard by shard, in the order of `shards`.

        Args:
            checkpoints: where the group keeps its leases; see `follow`.

        Raises:
            StreamNotFoundError: the table keeps no stream.
            StreamParameterError: checkpoints names a table that holds no leases.
            NotFoundError: checkpoints names a table that does not exist.
        """
        from merganser.shards.followers import followers, leases_at
        from merganser.shards.verbs import Verbs

        what = f"cannot show the followers of '{self.definition.name}'"
        verbs = Verbs(self.definition, self.env, what)
        leases = leases_at(self.definition, self.env, verbs.stream.id, checkpoints=_held(checkpoints), action=what)
        return followers(verbs, leases)

    def _verbs(self, action: str) -> Verbs:
        from merganser.shards.verbs import Verbs

        return Verbs(self.definition, self.env, f"cannot {action} '{self.definition.name}'")


def _held(checkpoints: TableBase | str | None) -> tuple[TableDef, Env] | str | None:
    return (checkpoints.definition, checkpoints.env) if isinstance(checkpoints, TableBase) else checkpoints

"""A copy of the table that follows its changes by streaming queries of Spark, which go on from a checkpoint."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import merganser.spark as ms
from merganser.errors import UntrackedError
from tests.everything.following import Changes, Follower, Shards, Stream
from tests.everything.replica import Copy
from tests.everything.values import Row

if TYPE_CHECKING:
    from tests.everything.on_spark import SparkHistory


def by_spark(h: SparkHistory, follower: Follower | None, rng: random.Random) -> Follower | None:
    """Let Spark follow a table instead, half of the time."""
    if rng.random() < 0.5:
        return follower
    if isinstance(follower, Shards):
        return SparkShards(h)
    return SparkStream(h) if isinstance(follower, Changes | Stream) else follower


class _Queries:
    """Queries of which each goes on where the one before ended.

    Args:
        options: of `ms.read_stream`.
    """

    def __init__(self, h: SparkHistory, **options: Any) -> None:
        self._h, self._options = h, options
        self._checkpoint = str(h.path / f"follows-{next(h.names)}")

    def rows(self, **options: Any) -> list[Row]:
        """Return what is new, in the order of the batches.

        Args:
            options: of this query alone.

        Raises:
            UntrackedError: a commit left its changes out.
        """
        found: list[Row] = []
        frame = ms.read_stream(self._h.spark, self._h.table, **self._options, **options)
        query = frame.writeStream.foreachBatch(lambda batch, _: found.extend(batch.toArrow().to_pylist()))
        try:
            query.option("checkpointLocation", self._checkpoint).trigger(availableNow=True).start().awaitTermination()
        except Exception as error:
            if "published nothing" in str(error):
                raise UntrackedError(str(error)) from error
            raise
        return found


class SparkStream(Stream):
    """Goes on with streams of changes; where a commit left them out, it begins again."""

    name = "Spark stream"

    def begin(self) -> None:
        Follower.begin(self)
        self.queries = _Queries(self.h)
        if self.h.table.latest_snapshot() is not None:
            self.copy = Copy(self.h.model, [])
            self.take()

    def take(self) -> None:
        self.apply(self.queries.rows())

    def step(self, *, published: bool, complete: bool) -> None:
        self.step_or_begin(published=published, complete=complete)


class SparkShards(Shards):
    """Goes on with streams of the records of all shards."""

    name = "Spark shards"

    def begin(self) -> None:
        Follower.begin(self)
        self.queries = _Queries(self.h, shards=True, full=True)
        self.queries.rows(**{"change-tracking.gaps": "skip"})

    def take(self) -> None:
        self.apply_records(self.queries.rows())

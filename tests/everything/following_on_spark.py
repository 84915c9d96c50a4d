"""Copies of the table that follow its changes by streaming queries of Spark, which go on from a checkpoint.

After a rollback of the table they undo what they read of what is gone, and their queries are reset.
"""

from __future__ import annotations

import io
import random
from contextlib import redirect_stderr, redirect_stdout
from typing import TYPE_CHECKING, Any

import merganser as mg
import merganser.spark as ms
from merganser import changes as c
from merganser.cli.main import main
from merganser.errors import ConflictError, ExpiredError, InvalidInputError, UntrackedError
from merganser.schema import types as t
from tests.everything.following import Changes, Follower, Lasting, Shards, Stream
from tests.everything.model import Fields
from tests.everything.replica import Copy, DifferenceError
from tests.everything.values import Row

if TYPE_CHECKING:
    from tests.everything.on_spark import SparkHistory


def by_spark(h: SparkHistory, follower: Follower | None, rng: random.Random) -> Follower | None:
    """Let Spark follow a table instead, most of the time."""
    if rng.random() < 0.2:
        return follower
    if isinstance(follower, Shards):
        return SparkShards(h)
    if not isinstance(follower, Changes | Stream):
        return follower
    return rng.choice([SparkSink, SparkSink, SparkStream])(h)


class Queries:
    """Queries of which each goes on where the one before ended.

    Args:
        options: of `ms.read_stream`.
    """

    def __init__(self, h: SparkHistory, **options: Any) -> None:
        self._h, self._options = h, options
        self._rng = random.Random(f"{h.seed} queries")
        self.checkpoint = str(h.path / f"follows-{next(h.names)}")

    def rows(self, table: mg.Table, found: list[Row], **options: Any) -> None:
        """Add what is new to rows, in the order of the batches.

        Args:
            table: the handle that the query reads with.
            options: of this query alone.

        Raises:
            UntrackedError, ExpiredError, ConflictError: see `told`.
        """
        frame = ms.read_stream(self._h.spark, table, **self._options, **options)
        query = frame.writeStream.foreachBatch(lambda batch, _: found.extend(batch.toArrow().to_pylist()))
        query = query.option("checkpointLocation", self.checkpoint).trigger(availableNow=True)
        try:
            query.start().awaitTermination()
        except Exception as error:
            raise told(error) from error

    def written(self, sink: mg.Table) -> None:
        """Write what is new to a table.

        Raises:
            UntrackedError, ExpiredError, ConflictError: see `told`.
        """
        frame = ms.read_stream(self._h.spark, self._h.table, **self._options)
        try:
            query = ms.write_stream(frame, sink, self.checkpoint, kinds="_row_kind", trigger="availableNow")
            query.awaitTermination()
        except Exception as error:
            raise told(error) from error

    def reset(self, **how: Any) -> None:
        """Reset the query, by Spark or at the command line."""
        h, table, start = self._h, how.get("table"), how.get("start")
        by_command = self._rng.random() < 0.5
        if by_command:
            where = ["--start", str(start)] if table is None else ["--table", table.path]
            with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()) as errors:
                try:
                    main(["reset-stream", self.checkpoint, h.table.path, *where])
                except SystemExit as end:
                    code = end.code
            if code:
                ms.reset_stream(h.spark, self.checkpoint, h.table, **how)  # raises the error that was printed
                raise DifferenceError("reset", f"refused at the command line alone: {errors.getvalue()}")
        else:
            ms.reset_stream(h.spark, self.checkpoint, h.table, **how)
        h.compared["resets at the command line" if by_command else "resets"] += 1


def told(error: Exception) -> Exception:
    """Return the error of a query as it would be without Spark: gaps, expired changes, values that do not fit."""
    text = str(error)
    for words, kind in {
        "published nothing": UntrackedError,
        "snapshots have expired": ExpiredError,
        "Open the table again, make the DataFrame again": ConflictError,
    }.items():
        if words in text:
            return kind(text)
    return error


class _Resettable(Lasting):
    """A copy whose query is reset after a rollback, since the copy knows how it was.

    Attributes:
        at: the snapshot that was read last.
    """

    queries: Queries
    at = 0

    def place(self) -> int:
        self.at = self.h.latest()
        return self.at

    def go_on_from(self, place: int) -> None:
        if self.at > place:
            self.h.refused(
                lambda: self.queries.rows(self.reader, []), (Exception, "was rolled back behind|rolled back")
            )
        self.queries.reset(start=place)
        self.at = place

    def read(self) -> None:
        found: list[Row] = []
        try:
            self.queries.rows(self.reader, found)
        finally:  # batches before the one that failed are done
            self.take_found(found)

    def take_found(self, found: list[Row]) -> None:
        self.apply(found)


class SparkStream(_Resettable):
    """Goes on with streams of changes; where a commit left them out, it begins again."""

    name = "Spark stream"

    def begin(self) -> None:
        super().begin()
        self.queries = Queries(self.h)
        if self.h.table.latest_snapshot() is not None:
            self.copy = Copy(self.h.model, [])
            self.take()

    def step(self, *, published: bool, complete: bool) -> None:
        self.step_or_begin(published=published, complete=complete)


class SparkShards(_Resettable, Shards):
    """Goes on with streams of the records of all shards."""

    name = "Spark shards"

    def begin(self) -> None:
        Follower.begin(self)
        self.queries = Queries(self.h, shards=True, full=True)
        self.queries.rows(self.reader, [], **{"change-tracking.gaps": "skip"})

    def take_found(self, found: list[Row]) -> None:
        self.apply_records(found)


class SparkSink(Follower):
    """A table that a query writes, which is not always started; the query is reset when it cannot go on."""

    name = "Spark sink"

    def begin(self) -> None:
        super().begin()
        h = self.h
        self.rng = random.Random(f"{h.seed} sink {h.latest()}")
        self.queries = Queries(h)
        columns = {f.name: str(f.type.with_nullable(True)) for f in h.model.fields}
        name = f"db.{next(h.names)}"
        options = {"bucket": "1" if h.model.key else "-1"}
        self.sink = h.catalog.create_table(name, columns, primary_key=h.model.key, options=options)
        if h.table.latest_snapshot() is not None:
            self.take()

    def become(self, old: Fields) -> None:
        """Let the sink have wider types, too; with other changes it begins again."""
        new = self.h.model.fields
        wider = [f for f, was in zip(new, old, strict=False) if f.type != was.type]
        same = [(f.id, f.name) for f in old] == [(f.id, f.name) for f in new]
        if not same or any(t.is_nested(f.type) for f in wider):
            self.begin()
        elif wider:
            self.sink = self.sink.alter([c.retype_column(f.name, str(f.type.with_nullable(True))) for f in wider])

    def take(self) -> None:
        try:
            self.queries.written(self.sink)
        except ExpiredError as error:
            if isinstance(error, UntrackedError):
                raise
            self.h.compared[f"{self.name} expired"] += 1
            self.read_again()

    def read_again(self) -> None:
        """Empty the sink, and read the table from its newest rows on."""
        if self.waits:
            self.h.table.compact(full=True)
        self.sink.write([], overwrite={})
        self.queries.reset(start="latest-full")
        self.queries.written(self.sink)

    def step(self, *, published: bool, complete: bool) -> None:
        if published and self.sink.latest_snapshot() is not None:
            match self.rng.choice(["take", "take", "wait", "wait", "rewind", "again"]):
                case "wait":
                    return
                case "rewind":
                    self.sink.rollback(snapshot=self.rng.choice(self.sink.snapshots()).id)
                    self.undo()
                case "again":
                    self.read_again()
        self.step_or_begin(published=published, complete=complete)

    def go_back(self, number: int) -> None:
        self.undo()
        self.h.compared[f"{self.name} gone back"] += 1

    def undo(self) -> None:
        """Take out of the sink what the table no longer has, and let the query go on from there."""
        for _ in range(2):
            try:
                self.queries.reset(table=self.sink)
                return
            except ConflictError as error:
                number = error.context["snapshot"]
                if number is None:
                    break
                self.sink.rollback(snapshot=number)
            except InvalidInputError as error:
                if self.sink.latest_snapshot() is not None:
                    raise DifferenceError("reset", str(error)) from error
                break
        self.begin()

    def compare(self) -> None:
        h = self.h
        h.same(self.name, self.sink.read(), h.model.visible(), h.model.fields)
        h.compared[self.name] += 1

"""A copy of the table that follows its changes: by `changes`, by a stream with a consumer, or shard by shard."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tests.everything.model import Fields
from tests.everything.replica import Copy
from tests.everything.values import Row, converter

if TYPE_CHECKING:
    from tests.everything.history import History

EXACT = ("lookup", "full-compaction", "per-record")
"""Producers whose changes are applied as they are: each removed row is there, and no inserted one."""
_CONSUMER = "copy"


def follower_of(h: History, rng: random.Random) -> Follower | None:
    """Return what follows a table, as a history draws it; None: its changes do not make its rows."""
    engine, producer, options = h.layout.engine, h.layout.producer, h.model.options
    if options.get("stream.enabled") == "true":
        return Shards(h)
    plain = engine == "deduplicate" and "sequence.field" not in options and options.get("ignore-delete") != "true"
    plain = plain and options.get("ignore-update-before") != "true" and not h.layout.vectors
    if producer in EXACT or engine == "append" or (plain and not h.layout.postpones):
        return rng.choice([Changes, Stream])(h)
    return None


class Follower:
    """Follows a table; subclasses say how.

    Attributes:
        behind: the copy lacks rows that a compaction has to publish.
    """

    name = "changes"

    def __init__(self, h: History) -> None:
        self.h = h
        self.exact = h.layout.producer in EXACT
        self.waits = h.layout.producer in ("lookup", "full-compaction") and (h.write_only or h.layout.postpones)
        self.begin()

    def begin(self) -> None:
        """Take the table as it is for the copy."""
        self.copy = Copy(self.h.model, self.h.model.visible())

    def take(self) -> None:
        """Apply what is new."""
        raise NotImplementedError

    def become(self, old: Fields) -> None:
        """Take the columns that the model has now."""
        turn = converter(old, self.h.model.fields)
        self.copy = Copy(self.h.model, [turn(row) for row in self.copy.rows()])

    def step(self, *, published: bool, complete: bool) -> None:
        """Follow the table after a step.

        Args:
            published: False: the step replaced rows of a table that does not publish its changes.
            complete: a full compaction has published all that waited.
        """
        if not published:
            if self.waits and not complete:
                self.h.table.compact(full=True)
            self.begin()
            return
        self.take()
        if not self.waits or complete:
            self.compare()

    def finish(self) -> None:
        """Let all that waits be published, and compare."""
        if self.waits:
            self.h.table.compact(full=True)
        self.take()
        self.compare()

    def compare(self) -> None:
        h = self.h
        h.same_rows(f"{self.name} applied", self.copy.rows(), h.model.visible(), h.model.fields)
        h.compared[self.name] += 1

    def apply(self, changes: Sequence[Row]) -> None:
        self.copy.model = self.h.model
        self.copy.apply(self.name, changes, strict=self.exact)


class Changes(Follower):
    """Reads the changes of the snapshots that came."""

    def begin(self) -> None:
        super().begin()
        latest = self.h.table.latest_snapshot()
        self.next = 1 if latest is None else latest.id + 1

    def take(self) -> None:
        latest = self.h.table.latest_snapshot()
        if latest is not None and latest.id >= self.next:
            self.apply(self.h.table.changes(self.next, latest.id).to_pylist())
            self.next = latest.id + 1


class Stream(Follower):
    """Goes on with a stream where its consumer is."""

    name = "stream"

    def begin(self) -> None:
        table = self.h.table
        super().begin()
        if any(consumer.id == _CONSUMER for consumer in table.consumers.list()):
            table.consumers.drop(_CONSUMER)
        if table.latest_snapshot() is None:
            return  # the stream begins with the first snapshot
        self.copy = Copy(self.h.model, [])
        self.take()

    def take(self) -> None:
        for plan in self.h.table.stream(follow=False, consumer=_CONSUMER):
            self.apply(plan.to_pylist())


class Shards(Follower):
    """Reads the records of all shards, parents before their children."""

    name = "shards"

    def begin(self) -> None:
        super().begin()
        table = self.h.table
        self.at: dict[str, str | None] = {
            shard.shard_id: None if shard.closed else table.shard_iterator(shard.shard_id) for shard in table.shards()
        }

    def take(self) -> None:
        table = self.h.table
        found: list[Row] = []
        for shard in table.shards():
            name = shard.shard_id
            at = self.at[name] if name in self.at else table.shard_iterator(name, at="trim_horizon")
            while at is not None:
                page = table.records(at, limit=5, full=True)
                found += page.records.to_pylist()
                at = page.next_iterator
                if not page.may_have_more:
                    break
            self.at[name] = at
        if self.h.layout.moves:
            found.sort(key=lambda record: record["_sequence"])
        self.copy.model = self.h.model
        self.copy.apply_records(found)

    def step(self, *, published: bool, complete: bool) -> None:
        super().step(published=True, complete=complete)

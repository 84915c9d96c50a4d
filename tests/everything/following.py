"""A copy of the table that follows its changes: by `changes`, by a stream with a consumer, or shard by shard.

Where a commit left its changes out, the copy reads the partitions that a gap names again. A reader of shards is told of
no partitions, and begins again.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

import merganser as mg
from merganser.errors import UntrackedError
from tests.everything.model import Fields
from tests.everything.replica import Copy, DifferenceError
from tests.everything.values import Row, converter

if TYPE_CHECKING:
    from tests.everything.history import History

EXACT = ("lookup", "full-compaction", "per-record")
"""Producers whose changes are applied as they are: each removed row is there, and no inserted one."""
_CONSUMER = "copy"


def follower_of(h: History, rng: random.Random, before: Follower | None = None) -> Follower | None:
    """Return what follows a table, as a history draws it; None: its changes do not make its rows.

    Args:
        before: what followed the table before it got a key: a stream goes on.
    """
    engine, producer, options = h.layout.engine, h.layout.producer, h.model.options
    if options.get("stream.enabled") == "true":
        return rng.choice([Shards, Follow])(h)
    plain = engine == "deduplicate" and "sequence.field" not in options and options.get("ignore-delete") != "true"
    plain = plain and options.get("ignore-update-before") != "true" and not h.layout.vectors
    if producer in EXACT or engine == "append" or (plain and not h.layout.postpones):
        if isinstance(before, Stream) and h.model.key:
            return Stream(h, goes_on=True)
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

    def step_or_begin(self, *, published: bool, complete: bool) -> None:
        """Follow the table after a step, and begin again behind a commit that left its changes out."""
        try:
            Follower.step(self, published=published, complete=complete)
        except UntrackedError as error:
            self._check_left_out(error)
            self.h.compared["gaps"] += 1
            Follower.step(self, published=False, complete=complete)

    def finish(self) -> None:
        """Let all that waits be published, and compare."""
        if self.waits:
            self.h.table.compact(full=True)
        self.step_or_begin(published=True, complete=True)

    def compare(self) -> None:
        h = self.h
        h.same_rows(f"{self.name} applied", self.copy.rows(), h.model.visible(), h.model.fields)
        h.compared[self.name] += 1

    def apply(self, changes: Sequence[Row]) -> None:
        self.copy.model = self.h.model
        self.copy.apply(self.name, changes, strict=self.exact)

    def replace(self, gap: mg.Gap) -> None:
        """Take the partitions of a gap as they are after its snapshot."""
        self._check_left_out(gap.snapshot)
        self.copy.replace(gap.partitions, gap.read().to_pylist(), strict=self.exact)
        self.h.compared["gaps"] += 1

    def _check_left_out(self, what: object) -> None:
        if not self.h.leaves_out:
            raise DifferenceError("gap", f"no commit has left changes out, and there is a gap: {what}")


class Changes(Follower):
    """Reads the changes of the snapshots that came."""

    def begin(self) -> None:
        super().begin()
        latest = self.h.table.latest_snapshot()
        self.next = 1 if latest is None else latest.id + 1

    def take(self) -> None:
        latest = self.h.table.latest_snapshot()
        if latest is not None and latest.id >= self.next:
            skipped = self.h.table.changes(self.next, latest.id, gaps="skip")
            gaps = {gap.snapshot: gap for gap in skipped.gaps()}
            if not gaps:
                self.apply(self.h.table.changes(self.next, latest.id).to_pylist())
            else:
                self._go_through(gaps, latest.id, skipped.count())
            self.next = latest.id + 1

    def _go_through(self, gaps: dict[int, mg.Gap], last: int, count: int) -> None:
        """Apply the changes of one snapshot after the other, each gap after those of its snapshot.

        Args:
            count: how many rows a reader gets that passes over the gaps.
        """
        try:
            self.h.table.changes(self.next, last, gaps="error").to_arrow()
        except UntrackedError as error:
            if error.context["snapshot"] != min(gaps):
                raise DifferenceError("gap", f"{sorted(gaps)} are gaps, and the error is: {error}") from error
        else:
            raise DifferenceError("gap", f"{sorted(gaps)} are gaps, and are no errors")
        for number in range(self.next, last + 1):
            changes = self.h.table.changes(number, number, gaps="skip").to_pylist()
            self.apply(changes)
            count -= len(changes)
            if number in gaps:
                self.replace(gaps[number])
        if count:
            raise DifferenceError("gap", f"a read from {self.next} to {last} has {count} rows more than its parts")


class Stream(Follower):
    """Goes on with a stream where its consumer is.

    Args:
        goes_on: it has read all rows before they got the key that they have now.
    """

    name = "stream"

    def __init__(self, h: History, *, goes_on: bool = False) -> None:
        self.goes_on = goes_on
        super().__init__(h)

    def begin(self) -> None:
        table = self.h.table
        super().begin()
        if self.goes_on:
            self.goes_on = False
            return
        if any(consumer.id == _CONSUMER for consumer in table.consumers.list()):
            table.consumers.drop(_CONSUMER)
        if table.latest_snapshot() is None:
            return  # the stream begins with the first snapshot
        self.copy = Copy(self.h.model, [])
        self.take()

    def take(self) -> None:
        for plan in self.h.table.stream(follow=False, consumer=_CONSUMER, gaps="mark"):
            if isinstance(plan, mg.Gap):
                self.replace(plan)
            else:
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
        self.apply_records(found)

    def apply_records(self, found: list[Row]) -> None:
        if self.h.layout.moves:
            found.sort(key=lambda record: record["_sequence"])
        self.copy.model = self.h.model
        self.copy.apply_records(found)

    def step(self, *, published: bool, complete: bool) -> None:
        self.step_or_begin(published=True, complete=complete)

    def finish(self) -> None:
        try:
            super().finish()
        except UntrackedError as error:  # the compaction that publishes what waits leaves out what was not tracked
            self._check_left_out(error)
            self.begin()
            self.compare()


class Follow(Shards):
    """Lets workers follow the table, one after the other; each goes on where the one before gave its shards back."""

    name = "follow"

    def begin(self) -> None:
        Follower.begin(self)
        self.group = str(self.h.path / f"group-{next(self.h.names)}")
        self._read(gaps="skip")

    def take(self) -> None:
        self.apply_records(self._read(gaps="error"))

    def _read(self, gaps: str) -> list[Row]:
        """Return what a new worker is given until it waits, and all that is there was read."""
        found: list[Row] = []
        idle = _Idle(self.h.table, self.group)
        self.h.table.follow(
            next(self.h.names),
            lambda batch: found.extend(batch.records.to_pylist()),
            self.group,
            limit=5,
            full=True,
            gaps=gaps,
            stop=idle,
        )
        return found


class _Idle(threading.Event):
    """Ends a worker that waits, once its group has read all."""

    def __init__(self, table: mg.Table, group: str) -> None:
        super().__init__()
        self._table, self._group = table, group
        self._waits = 0

    def wait(self, timeout: float | None = None) -> bool:
        self._waits += 1
        if self._waits > 100:
            raise DifferenceError("follow", f"a worker waits: {self._table.followers(self._group)}")
        if all(each.done or (each.worker and not each.snapshots) for each in self._table.followers(self._group)):
            self.set()
        return self.is_set()

"""A copy of the table that follows its changes: by `changes`, by a stream with a consumer, or shard by shard.

Where a commit left its changes out, the copy reads the partitions that a gap names again. A reader of shards is told of
no partitions, and begins again. After a rollback the copy undoes what was removed, and goes on from there.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import merganser as mg
from merganser.errors import ConflictError, NotFoundError, TrimmedDataError, UntrackedError
from merganser.stream.follow import TableStream
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
    if h.model.options.get("stream.enabled") == "true":
        return rng.choice([Shards, Follow])(h)
    if not changes_make_rows(h):
        return None
    if isinstance(before, Stream) and h.model.key:
        return Stream(h, goes_on=True)
    return rng.choice([Changes, Stream])(h)


def changes_make_rows(h: History) -> bool:
    """Return whether the changes of a table, applied in their order, give its rows."""
    engine, options = h.layout.engine, h.model.options
    plain = engine == "deduplicate" and "sequence.field" not in options and options.get("ignore-delete") != "true"
    plain = plain and options.get("ignore-update-before") != "true" and not h.layout.vectors
    return h.layout.producer in EXACT or engine == "append" or (plain and not h.layout.postpones)


def waits_for_compactions(h: History) -> bool:
    """Return whether compactions publish changes, and do not follow each write."""
    return h.layout.producer in ("lookup", "full-compaction") and (h.write_only or h.layout.postpones)


class Follower:
    """Follows a table; subclasses say how.

    Attributes:
        stays: the reader goes on as it was opened, also once the table has other columns; else it is opened again.
        opened: the handle of the reader.
        stood: by snapshot, the columns and rows of the copy behind it, and where the reader was.
    """

    name = "changes"

    def __init__(self, h: History) -> None:
        self.h = h
        self.stays = random.Random(f"{h.seed} stays").random() < 0.6
        self.stood: dict[int, tuple[Fields, list[Row], Any]] = {}
        self.exact = h.layout.producer in EXACT
        self.waits = waits_for_compactions(h)
        self.begin()

    def begin(self) -> None:
        """Take the table as it is for the copy."""
        self.opened = self.h.table
        self.copy = Copy(self.h.model, self.h.model.visible())

    def take(self) -> None:
        """Apply what is new."""
        raise NotImplementedError

    def become(self, old: Fields) -> None:
        """Take the columns that the model has now."""
        self._take_rows(old, self.copy.rows())

    def _take_rows(self, fields: Fields, rows: Sequence[Row]) -> None:
        turn = converter(fields, self.h.model.fields)
        self.copy = Copy(self.h.model, [turn(row) for row in rows])

    @property
    def reader(self) -> mg.Table:
        """The handle to read with."""
        if not self.stays:
            self.opened = self.h.table
        return self.opened

    def place(self) -> Any:
        """Return where the reader is, if the table does not know."""
        return None

    def go_on_from(self, place: Any) -> None:
        """Go on from a place."""

    def go_back(self, number: int) -> None:
        """Undo what was read behind a snapshot that the table was rolled back to; begin again if that is not known."""
        stood = self.stood.get(number)
        self.stood = {each: found for each, found in self.stood.items() if each <= number}
        if stood is None:
            self.begin()
            return
        fields, rows, place = stood
        self._take_rows(fields, rows)
        self.go_on_from(place)
        self.h.compared[f"{self.name} gone back"] += 1

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
        else:
            self.take()
            if not self.waits or complete:
                self.compare()
        if (latest := self.h.table.latest_snapshot()) is not None:
            self.stood[latest.id] = self.h.model.fields, self.copy.rows(), self.place()

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

    def known(self) -> Fields:
        """Return the columns that rows come with."""
        return self.h.model.fields

    def now(self, rows: Sequence[Row]) -> list[Row]:
        """Return rows with the columns that the model has now, and with what else they say."""
        known = self.known()
        turn, names = converter(known, self.h.model.fields), {f.name for f in known}
        return [{k: v for k, v in row.items() if k not in names} | turn(row) for row in rows]

    def apply(self, changes: Sequence[Row]) -> None:
        changes = self.now(changes)
        self.copy.model = self.h.model
        self.copy.apply(self.name, changes, strict=self.exact)

    def replace(self, gap: mg.Gap) -> None:
        """Take the partitions of a gap as they are after its snapshot."""
        self._check_left_out(gap.snapshot)
        self.copy.replace(gap.partitions, self.now(gap.read().to_pylist()), strict=self.exact)
        self.h.compared["gaps"] += 1

    def _check_left_out(self, what: object) -> None:
        if not self.h.leaves_out:
            raise DifferenceError("gap", f"no commit has left changes out, and there is a gap: {what}")


class Lasting(Follower):
    """Goes on with the columns of the handle of before, until one comes that it lacks, or a value that does not fit."""

    @property
    def reader(self) -> mg.Table:
        if self.h.table.schema.highest_field_id > self.opened.schema.highest_field_id:
            self.opened = self.h.table
        return super().reader

    def known(self) -> Fields:
        return self.opened.schema.fields

    def take(self) -> None:
        try:
            self.read()
        except ConflictError as error:
            if "does not fit" not in str(error) or self.opened.schema.id == self.h.table.schema.id:
                raise
            self.h.compared[f"{self.name} opened again"] += 1
            self.opened = self.h.table
            self.read()

    def read(self) -> None:
        """Apply what is new, all or nothing."""
        raise NotImplementedError


class Changes(Lasting):
    """Reads the changes of the snapshots that came."""

    def begin(self) -> None:
        super().begin()
        latest = self.h.table.latest_snapshot()
        self.next = 1 if latest is None else latest.id + 1

    def read(self) -> None:
        table, latest = self.reader, self.h.table.latest_snapshot()
        if latest is not None and latest.id >= self.next:
            skipped = table.changes(self.next, latest.id, gaps="skip")
            gaps = {gap.snapshot: gap for gap in skipped.gaps()}
            if not gaps:
                self.apply(table.changes(self.next, latest.id).to_pylist())
            else:
                self._go_through(table, gaps, latest.id, skipped.to_arrow().num_rows)
            self.next = latest.id + 1

    def place(self) -> int:
        return self.next

    def go_on_from(self, place: int) -> None:
        self.next = place

    def _go_through(self, table: mg.Table, gaps: dict[int, mg.Gap], last: int, count: int) -> None:
        """Apply the changes of one snapshot after the other, each gap after those of its snapshot.

        Args:
            table: the handle to read with, which has read all values once.
            count: how many rows a reader gets that passes over the gaps.
        """
        try:
            table.changes(self.next, last, gaps="error").to_arrow()
        except UntrackedError as error:
            if error.context["snapshot"] != min(gaps):
                raise DifferenceError("gap", f"{sorted(gaps)} are gaps, and the error is: {error}") from error
        else:
            raise DifferenceError("gap", f"{sorted(gaps)} are gaps, and are no errors")
        for number in range(self.next, last + 1):
            changes = table.changes(number, number, gaps="skip").to_pylist()
            self.apply(changes)
            count -= len(changes)
            if number in gaps:
                self.replace(gaps[number])
        if count:
            raise DifferenceError("gap", f"a read from {self.next} to {last} has {count} rows more than its parts")


class _CaughtUpError(Exception):
    """A stream has nothing more to hand over, and would wait."""


class Stream(Follower):
    """Goes on with a stream that waits for more, or opens it again where its consumer is.

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
        self.stream: TableStream | None = None
        if self.goes_on:
            self.goes_on = False
            return
        with suppress(NotFoundError):  # also one that an erasure has ended
            table.consumers.drop(_CONSUMER)
        if table.latest_snapshot() is None:
            return  # the stream begins with the first snapshot
        self.copy = Copy(self.h.model, [])
        self.take()

    def take(self) -> None:
        if self.stream is None or not self.stays:
            self.stream = self.h.table.stream(consumer=_CONSUMER, gaps="mark")
        with patch.object(type(self.h.table.env), "sleep_ms", side_effect=_CaughtUpError), suppress(_CaughtUpError):
            for plan in self.stream:
                if isinstance(plan, mg.Gap):
                    self.replace(plan)
                else:
                    self.apply(plan.to_pylist())

    def go_on_from(self, place: None) -> None:
        """Open the stream again: the rollback has moved its consumer back, and the stream that is open says so."""
        stream, self.stream = self.stream, None
        latest = self.h.table.latest_snapshot()
        if self.stays and stream is not None and latest is not None and stream.next_snapshot > latest.id + 1:
            self.h.refused(lambda: next(stream), (ConflictError, "was rolled back behind"))


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
        table = self.reader
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

    def place(self) -> dict[str, str | None]:
        return dict(self.at)

    def go_on_from(self, place: dict[str, str | None]) -> None:
        self.at = dict(place)

    def apply_records(self, found: list[Row]) -> None:
        if self.h.layout.moves:
            found.sort(key=lambda record: record["_sequence"])
        self.copy.model = self.h.model
        self.copy.apply_records(self.now(found))

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
    """Lets workers follow the table, one after the other; each goes on where the one before gave its shards back.

    If the reader stays, one worker runs on in a thread, which runs only while the history waits for it.
    """

    name = "follow"
    worker: _Worker | None = None

    def begin(self) -> None:
        self._end()
        Follower.begin(self)
        self.group = str(self.h.path / f"group-{next(self.h.names)}")
        self._read(gaps="skip")

    def take(self) -> None:
        self.apply_records(self._read(gaps="error", stays=self.stays))

    def finish(self) -> None:
        super().finish()
        self._end()

    def _end(self) -> None:
        worker, self.worker = self.worker, None
        if worker is not None:
            worker.end()

    def place(self) -> None:
        return None

    def go_back(self, number: int) -> None:
        """Follow with another group: that of before read records that are gone, or is where it was."""
        read = partial(self._read, gaps="error", stays=self.stays)
        refused, found = self.h.maybe_refused(read, (TrimmedDataError, "rolled back|history"))
        if not refused and found:
            raise DifferenceError("follow", f"after a rollback to {number}, a worker of before got {found}")
        self.h.compared[f"{self.name} gone back"] += refused
        self.begin()

    def _read(self, gaps: str, *, stays: bool = False) -> list[Row]:
        """Return what a worker is given until it waits, and all that is there was read."""
        worker = self.worker or _Worker(self.h, self.reader, self.group, next(self.h.names), gaps)
        self.worker = worker
        try:
            return worker.read()
        except BaseException:
            self.worker = None  # it has ended
            raise
        finally:
            if not stays:
                self._end()


class _Worker:
    """A worker that runs in a thread of its own, but not beside the history: one waits for the other."""

    def __init__(self, h: History, table: mg.Table, group: str, name: str, gaps: str) -> None:
        self._found: list[Row] = []
        self._error: BaseException | None = None
        self._idle = _Idle(h, table, group)
        follow = partial(table.follow, name, self._take, group, limit=5, full=True, gaps=gaps, stop=self._idle)
        self._thread = threading.Thread(target=self._run, args=(follow,), daemon=True)

    def _take(self, batch: Any) -> None:
        self._found += batch.records.to_pylist()

    def _run(self, follow: Callable[[], None]) -> None:
        try:
            follow()
        except BaseException as error:
            self._error = error
        self._idle.waits.release()

    def read(self) -> list[Row]:
        """Return what the worker is given until it waits."""
        if self._thread.is_alive():
            self._idle.goes_on.release()
        else:
            self._thread.start()
        self._idle.waits.acquire()
        found, self._found = self._found, []
        if self._error is not None:
            raise self._error
        return found

    def end(self) -> None:
        """Let the worker give its shards back."""
        if self._thread.is_alive():
            self._idle.set()
            self._idle.goes_on.release()
            self._thread.join()
        if self._error is not None:
            raise self._error


class _Idle(threading.Event):
    """Stops a worker that waits, once its group has read all, until the history lets it go on.

    Attributes:
        waits: the worker waits, or has ended.
        goes_on: the worker is to look again.
    """

    def __init__(self, h: History, table: mg.Table, group: str) -> None:
        super().__init__()
        self._h, self._table, self._group = h, table, group
        self._looks = 0
        self.waits, self.goes_on = threading.Semaphore(0), threading.Semaphore(0)

    def wait(self, timeout: float | None = None) -> bool:
        self._looks += 1
        if self._looks == 50:  # a position behind rows that publish nothing is stored when the lease is prolonged
            self._h.now += timedelta(minutes=1)
        if self._looks > 100:
            raise DifferenceError("follow", f"a worker waits: {self._table.followers(self._group)}")
        if all(each.done or (each.worker and not each.snapshots) for each in self._table.followers(self._group)):
            self._looks = 0
            self.waits.release()
            self.goes_on.acquire()
        return self.is_set()

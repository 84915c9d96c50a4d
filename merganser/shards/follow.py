"""Following a whole table: workers share its shards among them, and each shard is read by one worker at a time.

A shard is given to a worker when all its parents are done; see `leases` for how one worker gets it. A poll looks at the
newest snapshot, however many shards there are. What has come since says which shards have news, and only these are
read. The positions of the others move on when their leases are prolonged.

Semantics: "Table Store Stream", stream client.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from merganser.errors import StreamParameterError, TrimmedDataError
from merganser.meta.snapshot import Snapshot, same_snapshot
from merganser.meta.table_def import TableDef
from merganser.scan.time_travel import epoch_ms
from merganser.shards.iterator import iterator_text
from merganser.shards.leases import Lease, Leases
from merganser.shards.records import SEQUENCE
from merganser.shards.verbs import Shard, Verbs
from merganser.storage.env import Env
from merganser.values import dataclass

_NAME_MAX: Final = 100
_LOOKS_PER_LEASE: Final = 3
_WAITING_MS: Final = 500
"""So often a worker looks for shards that it may take, while others are not read by anybody."""
_SAVED_SECONDS: Final = 0.5
"""Positions are saved together: those of all shards that were read, but not later than this."""
_BEHIND_MS: Final = 20
"""So long after the end of the lease of another worker this one looks whether it was prolonged."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Records of one shard, as a handler gets them.

    Attributes:
        shard: where they come from.
        records: see `Records`.
        iterator: the position before them.
        next_iterator: the position behind them; None: the shard is closed, and this is its end.
    """

    shard: Shard
    records: pa.Table
    iterator: str
    next_iterator: str | None

    def after(self, sequence: int | None) -> pa.Table:
        """Return the records whose `_sequence` is greater.

        A handler that stores the last `_sequence` of each shard with its results, in one transaction, and handles the
        records after it, sees each record once, even if a batch comes again, perhaps cut differently.

        Args:
            sequence: the last one of this shard that was handled; None: none was.
        """
        if sequence is None:
            return self.records
        return self.records.filter(pc.greater(self.records.column(SEQUENCE), sequence))


class Worker:
    """One of the workers that follow a table together.

    Args:
        name: its own, unlike that of any other worker that runs.
        leases: returns the leases of the group for the id of the stream.
        handler: takes the records of one shard at a time. After it returned, they count as handled.
        lease: how long a shard stays with a worker that is not heard of.
        interval: how long to wait before the next look, once all is read.
        limit: most records of a batch.
        start: where shards without a position begin: "trim_horizon" or "latest"; shards with parents begin at their
            beginnings.
        before, full, gaps: see `Table.records`.

    Raises:
        StreamNotFoundError: the table keeps no stream.
        StreamParameterError: the name cannot be that of a file.
    """

    def __init__(
        self,
        table: TableDef,
        env: Env,
        name: str,
        leases: Callable[[str], Leases],
        handler: Callable[[Batch], object],
        *,
        lease: timedelta,
        interval: timedelta,
        limit: int,
        start: str,
        before: bool,
        full: bool,
        gaps: str,
    ) -> None:
        what = f"cannot follow '{table.name}'"
        if not isinstance(name, str) or not name or len(name) > _NAME_MAX or not name.replace("-", "_").isidentifier():
            raise StreamParameterError(
                f"{what}: the worker is {name!r:.60}. Give a name of letters, digits, '-' and '_' that begins with a "
                f"letter and has at most {_NAME_MAX} characters.",
                table=table.name,
            )
        if start not in ("trim_horizon", "latest"):
            raise StreamParameterError(
                f"{what}: start is {start!r:.60}. Give 'trim_horizon' or 'latest'.", table=table.name
            )
        if not callable(handler):
            raise StreamParameterError(
                f"{what}: the handler is {handler!r:.60}. Give a function that takes a batch.", table=table.name
            )
        self._table = table
        self._env = env
        self._name = name
        self._handler = handler
        self._lease_ms = lease // timedelta(milliseconds=1)
        self._interval = interval.total_seconds()
        self._limit = limit
        self._start = start
        self._asked: dict[str, Any] = {"before": before, "full": full, "gaps": gaps}
        self._what = what
        self._leases = leases(Verbs(table, env, what).stream.id)
        self._mine: dict[str, Lease] = {}
        self._shards: dict[str, Shard] = {}
        self._pending: set[str] = set()
        self._unsaved: dict[str, Lease] = {}
        self._seen: Snapshot | None = None
        self._due_ms = 0

    def run(self, stop: threading.Event) -> None:
        """Follow the table until the event is set, then give the shards back.

        An error of the handler ends the worker. Its records are not saved, and come again to the next worker.
        """
        try:
            while not stop.is_set():
                if not self.step(stop):
                    stop.wait(self._interval)
        finally:
            self._give_back()

    def step(self, stop: threading.Event | None = None) -> bool:
        """Read what there is in the shards of this worker, a page of each; return whether there may be more at once."""
        verbs = Verbs(self._table, self._env, self._what)
        if self._env.now_ms() >= self._due_ms:
            self._share(verbs)
        self._look(verbs)
        saved = self._env.seconds()
        for shard_id in [each for each in self._mine if each in self._pending]:
            self._read(verbs, shard_id)
            if self._env.now_ms() >= self._due_ms or (stop is not None and stop.is_set()):
                break
            if self._env.seconds() - saved > _SAVED_SECONDS:
                self._save()
                saved = self._env.seconds()
        self._save()
        return bool(self._pending & self._mine.keys())

    def _look(self, verbs: Verbs) -> None:
        """Find out which shards have news."""
        newest, seen = verbs.reader.newest(), self._seen
        if newest is None or (seen is not None and same_snapshot(seen, newest)):
            return
        news = None if seen is None else verbs.reader.news(seen, newest, skip_gaps=self._asked["gaps"] == "skip")
        self._pending |= self._mine.keys() if news is None else news
        if news is not None and not news <= self._shards.keys():
            self._due_ms = 0  # shards were opened
        self._pending |= verbs.reader.closed_among(self._mine, newest)
        self._pending &= self._mine.keys()
        self._seen = newest

    def _read(self, verbs: Verbs, shard_id: str) -> None:
        """Handle the next records of a shard."""
        lease, shard = self._mine[shard_id], self._shards[shard_id]
        at = lease.iterator
        if at is None:
            at = verbs.iterator(shard_id, None, "trim_horizon" if shard.parents else self._start)
            if not self._change([lease.changed(iterator=at)]):
                return
            lease = self._mine[shard_id]
        got = verbs.page(at, self._limit, **self._asked)
        behind = iterator_text(got.next)
        if not got.more:
            self._pending.discard(shard_id)
        if got.records.num_rows:
            self._handler(Batch(shard, got.records, at, None if got.ended else behind))
        until = self._env.now_ms() + self._lease_ms
        if got.ended:
            self._unsaved[shard_id] = lease.changed(done=True, iterator=behind, worker=None, until_ms=until)
            self._due_ms = 0  # children may be read now
        elif got.records.num_rows:
            self._unsaved[shard_id] = lease.changed(iterator=behind, until_ms=until)
        else:  # a position moves on without records, too; it is saved when the lease is prolonged
            self._mine[shard_id] = replace(lease, iterator=behind)

    def _save(self) -> None:
        """Store the positions behind what was handled."""
        unsaved, self._unsaved = list(self._unsaved.values()), {}
        self._change(unsaved)

    def _change(self, leases: list[Lease]) -> bool:
        """Store leases, and return whether all were; shards of the others are no longer read by this worker."""
        stored = self._leases.change(leases) if leases else []
        for lease, won in zip(leases, stored, strict=True):
            if won and lease.worker == self._name:
                self._mine[lease.shard_id] = lease
            else:
                self._mine.pop(lease.shard_id, None)
                self._pending.discard(lease.shard_id)
        return all(stored)

    def _share(self, verbs: Verbs) -> None:
        """Prolong the leases of this worker, and take or give back shards, so that all workers have as many."""
        now = self._env.now_ms()
        until = now + self._lease_ms
        self._leases.come(self._name, until)
        self._shards = {shard.shard_id: shard for shard in verbs.describe(None, None).shards}
        leases = self._leases.read(list(self._shards))
        self._refuse_other_ends(verbs, [lease for lease in leases.values() if lease.done])
        for shard_id, mine in list(self._mine.items()):
            if shard_id not in leases and mine.iterator is not None:
                verbs.page(mine.iterator, 1, **self._asked)  # raises: it was trimmed, or a rollback took it back
            if shard_id not in leases or leases[shard_id].number != mine.number:
                del self._mine[shard_id]  # another worker has taken it
        ready = [
            shard_id
            for shard_id, shard in self._shards.items()
            if not leases[shard_id].done and all(leases[p].done for p in shard.parents if p in leases)
        ]
        share = -(-len(ready) // max(len(self._leases.workers(now)), 1))
        given = [lease.changed(worker=None, until_ms=0) for lease in list(self._mine.values())[share:]]
        kept = [lease.changed(until_ms=until) for lease in self._moved_on(verbs)[:share]]
        others = [lease for lease in leases.values() if lease.worker not in (None, self._name) and lease.until_ms > now]
        held = {lease.shard_id for lease in others} | self._mine.keys()
        free = [shard_id for shard_id in ready if shard_id not in held]
        taken = [leases[shard_id].changed(worker=self._name, until_ms=until) for shard_id in free[: share - len(kept)]]
        self._change([*given, *kept, *taken])
        self._pending |= {lease.shard_id for lease in taken} & self._mine.keys()
        looks = [now + self._lease_ms // _LOOKS_PER_LEASE, *(lease.until_ms + _BEHIND_MS for lease in others)]
        undone = sum(not lease.done for lease in leases.values())
        if undone > len(others) + len(self._mine):  # some are read by nobody, or wait for their parents
            looks.append(now + min(_WAITING_MS, self._lease_ms // _LOOKS_PER_LEASE))
        self._due_ms = min(looks)

    def _refuse_other_ends(self, verbs: Verbs, done: list[Lease]) -> None:
        """Refuse to pass over shards that were read to an end which a rollback has removed.

        Such a shard is open again, or other records came before another commit closed it.

        Raises:
            TrimmedDataError: there are some.
        """
        if not self._with_other_ends(verbs, done):
            return
        # Another worker may have read to an end that has just come.
        self._shards = {shard.shard_id: shard for shard in verbs.describe(None, None).shards}
        for shard_id in self._with_other_ends(verbs, done):
            raise TrimmedDataError(
                f"{self._what}: the table was rolled back behind the end of '{shard_id}', which was read: the shard "
                "went on behind it. Nothing was read. Undo what came from the snapshots that were removed, and follow "
                "the table with new checkpoints.",
                table=self._table.name,
                shard=shard_id,
            )

    def _with_other_ends(self, verbs: Verbs, done: list[Lease]) -> list[str]:
        """Return the shards that end elsewhere than where they were read to."""
        found = []
        for lease in done:
            end = None if lease.iterator is None else verbs.place_of(lease.iterator)
            shard = self._shards.get(lease.shard_id)
            if shard is None or end is None:
                continue
            closed_ms = None if shard.closed_time is None else epoch_ms(shard.closed_time)
            if shard.closed_by != end.last_read or (end.read_ms >= 0 and closed_ms != end.read_ms):
                found.append(lease.shard_id)
        return found

    def _moved_on(self, verbs: Verbs) -> list[Lease]:
        """Return the leases of this worker; those without news are behind all that is known."""
        if self._seen is None:
            return list(self._mine.values())
        found = []
        for shard_id, lease in self._mine.items():
            idle = shard_id not in self._pending and lease.iterator is not None
            at = verbs.reader.behind_all(shard_id, self._seen) if idle else None
            found.append(lease if at is None else replace(lease, iterator=iterator_text(at)))
        return found

    def _give_back(self) -> None:
        self._save()
        self._change([lease.changed(worker=None, until_ms=0) for lease in self._mine.values()])
        self._leases.leave(self._name)

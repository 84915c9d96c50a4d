"""Following a whole table: workers share its shards among them, and each shard is read by one worker at a time.

    leases     <checkpoints>/<shard id>/<n>     who reads the shard until when, and from which position on
    workers    <checkpoints>/workers/<name>     who is there, so that shards are shared out evenly

A lease is a numbered file that only one worker can create, so the newest number decides. Taking, prolonging, saving a
position and giving back all create the next number. A worker that was taken for dead finds the next number taken, and
stops reading the shard: nothing of it is saved any more. A shard is given to a worker when all its parents are done.

Semantics: "Table Store Stream", stream client.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final

import pyarrow as pa

from merganser.errors import FormatError, NotFoundError, StreamParameterError
from merganser.meta.create_once import create_once
from merganser.meta.table_def import TableDef
from merganser.shards.verbs import Shard, Verbs
from merganser.storage.env import Env
from merganser.storage.open import storage_for
from merganser.storage.paths import join

_WORKERS: Final = "workers"
_NAME_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class Batch:
    """Records of one shard, as a handler gets them.

    Attributes:
        shard: where they come from.
        records: see `Records`.
        iterator: the position before them.
        next_iterator: the position behind them; None: the shard is closed, and this is its end. A handler that stores
            it with its results, in one transaction, sees each record once.
    """

    shard: Shard
    records: pa.Table
    iterator: str
    next_iterator: str | None


@dataclass(frozen=True, slots=True)
class Lease:
    """What a group of workers knows of one shard.

    Attributes:
        shard_id: the shard.
        number: counts the changes of the lease; 0: there was none yet.
        worker: the name of the worker that reads it; None: nobody.
        until_ms: when others may take it, in epoch milliseconds.
        iterator: the position behind the last records that were handled; None: none were.
        done: it was read to its end.
    """

    shard_id: str
    number: int = 0
    worker: str | None = None
    until_ms: int = 0
    iterator: str | None = None
    done: bool = False


class Leases:
    """The leases of one group of workers, below a path."""

    def __init__(self, env: Env, path: str) -> None:
        self._env = env
        self._path = path
        self._known: dict[str, int] = {}

    def read(self, shard_id: str) -> Lease:
        """Return the newest lease of a shard.

        Raises:
            FormatError: its file is damaged.
        """
        storage, directory = self._env.storage, join(self._path, shard_id)
        known = self._known.get(shard_id)
        if known is None or storage.exists(join(directory, str(known + 1))):
            names = [entry.name for entry in storage.list(directory) if not entry.is_directory]
            known = max((int(name) for name in names if name.isdigit()), default=0)
        while known:
            path = join(directory, str(known))
            try:
                said: dict[str, Any] = json.loads(storage.read(path))
                self._known[shard_id] = known
                return Lease(shard_id, known, said["worker"], said["until"], said["iterator"], said["done"])
            except NotFoundError:
                known += 1  # a later one has replaced it meanwhile
            except (ValueError, KeyError, TypeError) as error:
                raise FormatError(
                    f"cannot read the lease '{path}': {error}. Remove the directory of the shard: it is then read from "
                    "the beginning.",
                    path=path,
                ) from error
        return Lease(shard_id)

    def change(self, lease: Lease, **changes: Any) -> Lease | None:
        """Store a lease with changes; None: another worker was first, and nothing was stored."""
        made = replace(lease, number=lease.number + 1, **changes)
        path = join(self._path, made.shard_id, str(made.number))
        said = {"worker": made.worker, "until": made.until_ms, "iterator": made.iterator, "done": made.done}
        data = json.dumps(said | {"by": self._env.new_id()}).encode()
        created = create_once(self._env, path, data, is_ours=lambda found, _: found == data)
        if created.stored is None:
            return None
        self._known[made.shard_id] = made.number
        if lease.number > 1:  # the one before stays for readers who found its number
            self._env.storage.delete([join(self._path, made.shard_id, str(lease.number - 1))])
        return made

    def come(self, worker: str, until_ms: int) -> None:
        """Say that a worker is there until some time."""
        self._env.storage.replace(join(self._path, _WORKERS, worker), str(until_ms).encode())

    def leave(self, worker: str) -> None:
        """Say that a worker has gone."""
        self._env.storage.delete([join(self._path, _WORKERS, worker)])

    def workers(self, now_ms: int) -> list[str]:
        """Return the names of the workers that are there, in order."""
        found = []
        for entry in self._env.storage.list(join(self._path, _WORKERS)):
            try:
                until = int(self._env.storage.read(join(self._path, _WORKERS, entry.name)))
            except (NotFoundError, ValueError):
                continue
            if until > now_ms:
                found.append(entry.name)
        return sorted(found)


class Worker:
    """One of the workers that follow a table together.

    Args:
        name: its own, unlike that of any other worker that runs.
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
        checkpoints: str | None,
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
        verbs = Verbs(table, env, what)
        if checkpoints is None:
            self._leases = Leases(env, join(table.paths.stream(verbs.stream.id), "followers"))
        else:
            storage, path = storage_for(checkpoints)
            self._leases = Leases(replace(env, storage=storage), join(path, verbs.stream.id))
        self._mine: dict[str, Lease] = {}
        self._shards: dict[str, Shard] = {}
        self._due_ms = 0
        self._seen: int | None = None
        self._more = True

    def run(self, stop: threading.Event) -> None:
        """Follow the table until the event is set, then give the shards back.

        An error of the handler ends the worker. Its records are not saved, and come again to the next worker.
        """
        try:
            while not stop.is_set():
                if not self.step():
                    stop.wait(self._interval)
        finally:
            self._give_back()

    def step(self) -> bool:
        """Look once at each shard of this worker; return whether there may be more to read at once."""
        now = self._env.now_ms()
        if now >= self._due_ms:
            self._share(now)
            self._due_ms = now + self._lease_ms // 3
        verbs = Verbs(self._table, self._env, self._what)
        newest = verbs.reader.newest()
        number = 0 if newest is None else newest.id
        if number == self._seen and not self._more:
            return False
        self._seen, self._more = number, False
        ended = False
        for shard_id in list(self._mine):
            ended |= self._read(verbs, shard_id)
            if self._env.now_ms() >= self._due_ms:
                self._more = True
                break
        if ended:
            self._due_ms = 0  # children may be read now
            self._more = True
        return self._more

    def _read(self, verbs: Verbs, shard_id: str) -> bool:
        """Handle the next records of a shard; return whether it ended."""
        lease, shard = self._mine[shard_id], self._shards[shard_id]
        at = lease.iterator
        if at is None:
            begin = "trim_horizon" if shard.parents else self._start
            at = verbs.iterator(shard_id, None, begin)
            saved = self._leases.change(lease, iterator=at)
            if saved is None:
                del self._mine[shard_id]
                return False
            lease = self._mine[shard_id] = saved
        got = verbs.records(at, self._limit, **self._asked)
        ended = got.next_iterator is None
        if got.records.num_rows:
            self._handler(Batch(shard, got.records, at, got.next_iterator))
        elif not ended:
            # A position moves on without records, too; it is saved when the lease is prolonged.
            self._mine[shard_id] = replace(lease, iterator=got.next_iterator)
            self._more |= got.may_have_more
            return False
        now = self._env.now_ms()
        changes: dict[str, Any] = {"iterator": got.next_iterator, "until_ms": now + self._lease_ms}
        if ended:
            changes = {"iterator": at, "done": True, "worker": None}
        saved = self._leases.change(lease, **changes)
        if saved is None or ended:
            del self._mine[shard_id]
        else:
            self._mine[shard_id] = saved
        self._more |= got.may_have_more
        return ended and saved is not None

    def _share(self, now: int) -> None:
        """Prolong the leases of this worker, and take or give back shards, so that all workers have as many."""
        until = now + self._lease_ms
        self._leases.come(self._name, until)
        for shard_id, lease in list(self._mine.items()):
            saved = self._leases.change(lease, until_ms=until)
            if saved is None:
                del self._mine[shard_id]
            else:
                self._mine[shard_id] = saved
        described = Verbs(self._table, self._env, self._what).describe(None, None)
        self._shards = {shard.shard_id: shard for shard in described.shards}
        leases = {shard_id: self._leases.read(shard_id) for shard_id in self._shards}
        ready = [
            shard_id
            for shard_id, shard in self._shards.items()
            if not leases[shard_id].done and all(leases[p].done for p in shard.parents if p in leases)
        ]
        workers = self._leases.workers(now)
        share = -(-len(ready) // max(len(workers), 1))
        for shard_id in [each for each in self._mine if each not in self._shards or len(self._mine) > share]:
            if len(self._mine) <= share and shard_id in self._shards:
                break
            self._leases.change(self._mine.pop(shard_id), worker=None, until_ms=0)
        for shard_id in ready:
            if len(self._mine) >= share:
                break
            lease = leases[shard_id]
            held = lease.worker not in (None, self._name) and lease.until_ms > now
            if held or shard_id in self._mine:
                continue
            taken = self._leases.change(lease, worker=self._name, until_ms=until)
            if taken is not None:
                self._mine[shard_id] = taken
                self._more = True

    def _give_back(self) -> None:
        for lease in self._mine.values():
            self._leases.change(lease, worker=None, until_ms=0)
        self._mine.clear()
        self._leases.leave(self._name)

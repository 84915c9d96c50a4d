"""Leases: which worker reads a shard until when, and from which position on; in files below a path.

    <checkpoints>/<shard id>/<n>     the n-th change of the lease
    <checkpoints>/workers/<name>     who is there, so that shards are shared out evenly

A lease is a numbered file that only one worker can create, so the newest number decides. Taking, prolonging, saving a
position and giving back all create the next number. A worker that was taken for dead finds the next number taken, and
stops reading the shard: nothing of it is saved any more. `lease_table` keeps the same in a table.

Semantics: "Table Store Stream", stream client.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

from merganser.errors import FormatError, NotFoundError
from merganser.meta.create_once import create_once
from merganser.storage.env import Env
from merganser.storage.paths import join
from merganser.values import dataclass

_WORKERS: Final = "workers"


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

    def changed(self, **changes: Any) -> Lease:
        """Return the next lease of the shard."""
        return replace(self, number=self.number + 1, **changes)


class Leases(Protocol):
    """The leases of one group of workers."""

    def read(self, shard_ids: Sequence[str]) -> dict[str, Lease]:
        """Return the newest lease of each shard.

        Raises:
            FormatError: what is stored of one is damaged.
        """
        ...

    def change(self, leases: Sequence[Lease]) -> list[bool]:
        """Store the next leases of shards; return which were stored. Of the others, another worker was first."""
        ...

    def come(self, worker: str, until_ms: int) -> None:
        """Say that a worker is there until some time."""
        ...

    def leave(self, worker: str) -> None:
        """Say that a worker has gone."""
        ...

    def workers(self, now_ms: int) -> dict[str, int]:
        """Return the workers that are there, and until when, in epoch milliseconds."""
        ...


class FileLeases:
    """Leases in files below a path."""

    def __init__(self, env: Env, path: str) -> None:
        self._env = env
        self._path = path
        self._known: dict[str, int] = {}

    def shard_ids(self) -> list[str]:
        """Return the shards that have leases."""
        entries = self._env.storage.list(self._path)
        return sorted(entry.name for entry in entries if entry.is_directory and entry.name != _WORKERS)

    def read(self, shard_ids: Sequence[str]) -> dict[str, Lease]:
        """Return the newest lease of each shard; see `Leases`."""
        return dict(zip(shard_ids, self._env.fetch(self._read, shard_ids), strict=True))

    def _read(self, shard_id: str) -> Lease:
        storage, directory = self._env.storage, join(self._path, shard_id)
        known = self._known.get(shard_id)
        if known is None or storage.exists(join(directory, str(known + 1))):
            known = max(self._numbers(shard_id), default=0)
        while known:
            path = join(directory, str(known))
            try:
                said: dict[str, Any] = json.loads(storage.read(path))
                self._known[shard_id] = known
                return Lease(shard_id, known, said["worker"], said["until"], said["iterator"], said["done"])
            except NotFoundError:  # later ones have replaced it
                known = max((number for number in self._numbers(shard_id) if number > known), default=0)
            except (ValueError, KeyError, TypeError) as error:
                raise FormatError(
                    f"cannot read the lease '{path}': {error}. Remove the directory of the shard: it is then read from "
                    "the beginning.",
                    path=path,
                ) from error
        return Lease(shard_id)

    def _numbers(self, shard_id: str) -> list[int]:
        entries = self._env.storage.list(join(self._path, shard_id))
        return [int(entry.name) for entry in entries if not entry.is_directory and entry.name.isdigit()]

    def change(self, leases: Sequence[Lease]) -> list[bool]:
        """Store the next leases of shards; see `Leases`."""
        return list(self._env.fetch(self._change, leases))

    def _change(self, made: Lease) -> bool:
        path = join(self._path, made.shard_id, str(made.number))
        said = {"worker": made.worker, "until": made.until_ms, "iterator": made.iterator, "done": made.done}
        data = json.dumps(said | {"by": self._env.new_id()}).encode()
        created = create_once(self._env, path, data, is_ours=lambda found, _: found == data)
        if created.stored is None:
            return False
        numbers = self._numbers(made.shard_id)
        if max(numbers, default=0) > made.number:  # it was there before, and was removed once there were later ones
            return False
        self._known[made.shard_id] = made.number
        old = [number for number in numbers if number < made.number - 1]  # the one before stays for those who read it
        self._env.storage.delete([join(self._path, made.shard_id, str(number)) for number in old])
        return True

    def come(self, worker: str, until_ms: int) -> None:
        """Say that a worker is there until some time."""
        self._env.storage.replace(join(self._path, _WORKERS, worker), str(until_ms).encode())

    def leave(self, worker: str) -> None:
        """Say that a worker has gone."""
        self._env.storage.delete([join(self._path, _WORKERS, worker)])

    def workers(self, now_ms: int) -> dict[str, int]:
        """Return the workers that are there; see `Leases`."""
        found = {}
        for entry in self._env.storage.list(join(self._path, _WORKERS)):
            try:
                until = int(self._env.storage.read(join(self._path, _WORKERS, entry.name)))
            except (NotFoundError, ValueError):
                continue
            if until > now_ms:
                found[entry.name] = until
        return found

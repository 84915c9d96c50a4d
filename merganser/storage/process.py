"""What a process keeps from job to job: the effects of each storage, with what they know of its immutable files.

An engine gives a process one job after the other, and each brings its storage along. Two storages are the same if they
reach the same files in the same way: path, endpoint and credentials. So a job that comes with new credentials, or with
another endpoint for the same bucket name, never gets what was read before with others. Keys of all caches of a process
that outlive a job therefore hold the storage.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final

from merganser.storage.env import Env
from merganser.storage.protocol import Storage

_STORAGES_MAX: Final = 8
"""Maximum number of storages whose effects are kept. Credentials that change often make new ones all the time."""


class _Kept:
    """The effects of this process, by storage; the least recently used go first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._envs: OrderedDict[Storage, Env] = OrderedDict()

    def of(self, storage: Storage) -> Env:
        """Return the effects of a storage."""
        with self._lock:
            found = self._envs.get(storage)
            if found is None:
                found = self._envs[storage] = Env(storage)
                while len(self._envs) > _STORAGES_MAX:
                    self._envs.popitem(last=False)
            self._envs.move_to_end(storage)
            return found


_KEPT: Final = _Kept()


def process_env(env: Env, *, threads: int | None = None) -> Env:
    """Return effects that share their cache with all jobs of this process on the same storage.

    Args:
        env: what the job brought along.
        threads: how many jobs run side by side; None: as the process has cores.
    """
    kept = _KEPT.of(env.storage)
    if threads is None and env.clock is kept.clock:
        return kept
    made = Env(env.storage, env.clock, cache=kept.cache)
    if threads is not None:
        made.threads = threads
    return made

"""Lookup copies in memory: those of small files, under one limit for all tables of the process.

Each handle has a limit of its own, `lookup.cache-max-memory-size`. All handles of the process together hold at most as
much as the largest of these limits, whatever number of tables is looked up. The least recently used copies go first. A
copy that went is made again from its file.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections import OrderedDict, deque
from dataclasses import field
from typing import Final

from merganser.lsm.lookup_copy import Copy
from merganser.values import dataclass


@dataclass(slots=True)
class _Share:
    """The copies of one handle, by path, each with the tick of its last use; the least recently used first."""

    max_bytes: int
    copies: OrderedDict[str, tuple[Copy, int]] = field(default_factory=OrderedDict)
    bytes: int = 0

    def pop_oldest(self) -> int:
        """Let go of the least recently used copy; return its bytes."""
        _, (copy, _) = self.copies.popitem(last=False)
        self.bytes -= copy.size
        return copy.size


class _Budget:
    """The copies of all handles of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shares: dict[int, _Share] = {}
        self._numbers = itertools.count()
        self._ticks = itertools.count()
        self._bytes = 0
        self._collected: deque[int] = deque()

    def open(self, max_bytes: int) -> int:
        """Return the number of a new share."""
        with self._lock:
            number = next(self._numbers)
            self._shares[number] = _Share(max_bytes)
            return number

    def get(self, number: int, path: str) -> Copy | None:
        """Return a copy of a share."""
        with self._lock:
            share = self._shares.get(number)
            found = None if share is None else share.copies.get(path)
            if share is None or found is None:
                return None
            share.copies[path] = found[0], next(self._ticks)
            share.copies.move_to_end(path)
            return found[0]

    def put(self, number: int, path: str, copy: Copy) -> None:
        """Keep a copy, and let go of others beyond the limits; the new one stays in any case."""
        with self._lock:
            self._let_go_of_collected()
            share = self._shares.get(number)
            if share is None or path in share.copies:
                return
            share.copies[path] = copy, next(self._ticks)
            share.bytes += copy.size
            self._bytes += copy.size
            while share.bytes > share.max_bytes and len(share.copies) > 1:
                self._bytes -= share.pop_oldest()
            most = max(one.max_bytes for one in self._shares.values())
            while self._bytes > most:
                others = [one for one in self._shares.values() if len(one.copies) > (one is share)]
                if not others:
                    break
                self._bytes -= min(others, key=lambda one: next(iter(one.copies.values()))[1]).pop_oldest()

    def close(self, number: int) -> None:
        """Let go of a share."""
        with self._lock:
            self._let_go(number)

    def collected(self, number: int) -> None:
        """Let go of the share of a handle that was not closed. Called at any instruction, also inside of `put`."""
        self._collected.append(number)
        if self._lock.acquire(blocking=False):
            try:
                self._let_go_of_collected()
            finally:
                self._lock.release()

    @property
    def bytes(self) -> int:
        """The bytes of all copies."""
        return self._bytes

    def _let_go_of_collected(self) -> None:
        while self._collected:
            self._let_go(self._collected.popleft())

    def _let_go(self, number: int) -> None:
        share = self._shares.pop(number, None)
        if share is not None:
            self._bytes -= share.bytes


_BUDGET: Final = _Budget()


class HeldMemory:
    """The copies in memory of one handle. Threads may share it; what it holds goes with it, or with `close`."""

    def __init__(self, max_bytes: int) -> None:
        self._number = _BUDGET.open(max_bytes)
        weakref.finalize(self, _BUDGET.collected, self._number).atexit = False

    def get(self, path: str) -> Copy | None:
        """Return the copy of a file."""
        return _BUDGET.get(self._number, path)

    def put(self, path: str, copy: Copy) -> None:
        """Keep a copy."""
        _BUDGET.put(self._number, path, copy)

    def close(self) -> None:
        """Let go of all copies; later ones are not kept."""
        _BUDGET.close(self._number)


def held_bytes() -> int:
    """Return the bytes of the lookup copies that this process holds in memory."""
    return _BUDGET.bytes

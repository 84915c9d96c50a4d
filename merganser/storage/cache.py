"""A bounded memory of what immutable files hold.

Manifests and lists never change once named, so what was decoded from one stays true for ever. Keys are
paths; values weigh the bytes of memory they take (`weight_of`). The least recently used go first. Safe to share by
threads.

What two values share counts for both: the state of a table and the manifests it was made of weigh its files twice, so
less is held than is counted, never more.
"""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final

from merganser.options.catalog import CACHE_MEMORY

_SAMPLE: Final = 2
_HEAD: Final = 64
"""Bytes of a container and its place in the cache."""


class Cache:
    """Values by key, at most `weight_max` in all."""

    def __init__(self, weight_max: int = CACHE_MEMORY.default) -> None:
        self._weight_max = weight_max
        self._weight = 0
        self._values: OrderedDict[Any, tuple[Any, int]] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def weight_max(self) -> int:
        """Bytes that are held at most."""
        return self._weight_max

    @property
    def weight(self) -> int:
        """Bytes that are held."""
        with self._lock:
            return self._weight

    def get(self, key: Any) -> Any | None:
        """Return the value, or None."""
        with self._lock:
            found = self._values.get(key)
            if found is None:
                return None
            self._values.move_to_end(key)
            return found[0]

    def put(self, key: Any, value: Any, weight: int) -> None:
        """Keep a value; drop the least recently used ones beyond the bound. What alone weighs more is not kept."""
        with self._lock:
            old = self._values.pop(key, None)
            if old is not None:
                self._weight -= old[1]
            if weight > self._weight_max:
                return
            self._values[key] = (value, weight)
            self._weight += weight
            while self._weight > self._weight_max:
                _, (_, dropped) = self._values.popitem(last=False)
                self._weight -= dropped

    def drop(self, key: Any) -> None:
        """Forget a value."""
        with self._lock:
            old = self._values.pop(key, None)
            if old is not None:
                self._weight -= old[1]

    def drop_prefix(self, root: str) -> None:
        """Forget what is known of files below a directory, and of the table there."""
        with self._lock:
            for key in [k for k in self._values if _below(k, root)]:
                self._weight -= self._values.pop(key)[1]


def _below(key: Any, root: str) -> bool:
    path = key if isinstance(key, str) else key[1] if isinstance(key, tuple) and len(key) > 1 else ""
    return isinstance(path, str) and (path == root or path.startswith(root + "/"))


def weight_of(values: Sequence[Any], count: int | None = None) -> int:
    """Return how many bytes of memory values take: `count` (all, if None) times the mean of a few of them."""
    if not values:
        return _HEAD
    sample = [values[i] for i in range(0, len(values), max(1, len(values) // _SAMPLE))]
    seen: set[int] = set()
    mean = sum([_size_of(value, seen) for value in sample]) // len(sample)
    return _HEAD + (len(values) if count is None else count) * (mean + 8)


def _size_of(value: Any, seen: set[int]) -> int:
    """Return the bytes of a value and its parts, less those seen before: what values share is in memory once."""
    size, waiting = 0, [value]
    while waiting:  # without a call for each part: an entry of a manifest has fifty
        part = waiting.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        size += sys.getsizeof(part)
        if isinstance(part, tuple | list):
            waiting += part
        elif (names := getattr(type(part), "__dataclass_fields__", None)) is not None:
            waiting += [getattr(part, name) for name in names]
    return size

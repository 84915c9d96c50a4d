"""A bounded memory of what immutable files hold.

Manifests and lists never change once named, so what was decoded from one stays true for ever. Keys are
paths; values weigh what their file weighed. The least recently used go first. Safe to share by threads.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any


class Cache:
    """Values by key, at most `weight_max` in all."""

    def __init__(self, weight_max: int = 256 * 1024 * 1024) -> None:
        self._weight_max = weight_max
        self._weight = 0
        self._values: OrderedDict[Any, tuple[Any, int]] = OrderedDict()
        self._lock = threading.Lock()

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

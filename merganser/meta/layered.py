"""Layered: a mapping that is never changed. One with changes shares what it was made of, and costs what changes.

A dictionary of all, and over it smaller ones with what changed since, the newest last; None says that a key is gone::

    base 20,000 | 640 | 80 | 10

A change is a new layer, which takes in those before it that have no more than twice its keys. So every layer has
more than twice the keys of the one above it: a lookup asks at most as many dictionaries as the number of keys has
binary digits, and a key is copied about as often.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from itertools import islice
from typing import TypeVar, overload

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")


class Layered(Mapping[K, V]):
    """See the module. Keys are in the order in which they came; one that was gone in between may keep its place."""

    __slots__ = ("_count", "_layers")

    def __init__(self, layers: tuple[dict[K, V | None], ...] = (), count: int = 0) -> None:
        self._layers = layers
        self._count = count

    def changed(self, changes: Mapping[K, V | None]) -> Layered[K, V]:
        """Return the mapping after changes; a value of None removes its key. Time: that of the changes, amortised."""
        count = self._count
        for key, value in changes.items():
            count += (value is not None) - (self.get(key) is not None)
        layer, below = dict(changes), self._layers
        while below and len(below[-1]) <= 2 * len(layer):
            layer, below = {**below[-1], **layer}, below[:-1]
        if not below:  # nothing lies below from which a key would have to be taken
            layer = {key: value for key, value in layer.items() if value is not None}
        return Layered((*below, layer), count)

    def some(self, count: int) -> list[V]:
        """Return values of a few keys, which may have been replaced since: to tell what values are like."""
        return [value for layer in self._layers[:1] for value in islice(layer.values(), count) if value is not None]

    def merged(self) -> Mapping[K, V]:
        """Return all of it as a dictionary. Time: that of copying one."""
        found: dict[K, V | None] = {}
        for layer in self._layers:
            found = {**found, **layer} if found else layer
        if any(value is None for layer in self._layers[1:] for value in layer.values()):
            found = {key: value for key, value in found.items() if value is not None}
        return found  # type: ignore[return-value]

    @overload
    def get(self, key: K) -> V | None: ...
    @overload
    def get(self, key: K, default: V | D) -> V | D: ...
    def get(self, key: K, default: V | D | None = None) -> V | D | None:
        """Return the value of a key, or the default."""
        for layer in reversed(self._layers):
            if key in layer:
                found = layer[key]
                return default if found is None else found
        return default

    def __getitem__(self, key: K) -> V:
        found = self.get(key)
        if found is None:
            raise KeyError(key)
        return found

    def __contains__(self, key: object) -> bool:
        return self.get(key) is not None  # type: ignore[arg-type]

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[K]:
        return iter(self.merged())

    def items(self) -> ItemsView[K, V]:
        """Return keys and values."""
        return self.merged().items()

    def values(self) -> ValuesView[V]:
        """Return the values."""
        return self.merged().values()

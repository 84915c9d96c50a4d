"""GuardedStorage: a storage whose new files pass by a guard, which may lock, forbid or publish them.

The files that `Storage.create` makes are those that decide what a table is: snapshots, schemas, tags. A catalog that
others share has to hear of them, under a lock or instead of the store. All else goes to the files at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NoReturn, Protocol

import pyarrow as pa

from merganser.errors import UnsupportedError
from merganser.storage.protocol import Entries, Sink, Storage
from merganser.values import dataclass


class Guard(Protocol):
    """What a catalog does when a file is created. Pickles, and is hashable."""

    def create(self, files: Storage, path: str, data: bytes) -> None:
        """Create a file; see `Storage.create`."""


@dataclass(frozen=True)
class GuardedStorage:
    """A storage with a guard; see `Storage`.

    Attributes:
        files: where the files lie.
        guard: creates files.
    """

    files: Storage
    guard: Guard

    @property
    def moves_at_once(self) -> bool:
        """Whether `move_tree` is one step."""
        return self.files.moves_at_once

    @property
    def is_near(self) -> bool:
        """Whether requests are answered by this machine."""
        return self.files.is_near

    def create(self, path: str, data: bytes) -> None:
        """Create a file as the guard says."""
        self.guard.create(self.files, path, data)

    def read(self, path: str) -> bytes:
        """Return all bytes of a file."""
        return self.files.read(path)

    def open(self, path: str) -> pa.NativeFile:
        """Return a file for random reads."""
        return self.files.open(path)

    def exists(self, path: str) -> bool:
        """Return whether there is a file."""
        return self.files.exists(path)

    def list(self, path: str) -> Entries:
        """Return the entries of a directory."""
        return self.files.list(path)

    def replace(self, path: str, data: bytes, *, durable: bool = False) -> None:
        """Put data at a path."""
        self.files.replace(path, data, durable=durable)

    def writer(self, path: str) -> Sink:
        """Begin a new file."""
        return self.files.writer(path)

    def copy(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Copy files within the store."""
        self.files.copy(pairs)

    def delete(self, paths: Iterable[str]) -> None:
        """Remove files."""
        self.files.delete(paths)

    def uncache(self, paths: Iterable[str]) -> None:
        """Say that files will hardly be read again."""
        self.files.uncache(paths)

    def try_lock(self, directory: str) -> Callable[[], None] | None:
        """Ask for the lock of a directory."""
        return self.files.try_lock(directory)

    def delete_tree(self, path: str) -> None:
        """Remove a directory and all below it."""
        self.files.delete_tree(path)

    def delete_empty(self, paths: Iterable[str]) -> None:
        """Remove directories that hold nothing."""
        self.files.delete_empty(paths)

    def move_tree(self, source: str, target: str) -> None:
        """Rename a directory."""
        self.files.move_tree(source, target)


@dataclass(frozen=True)
class ReadOnlyStorage(GuardedStorage):
    """The files of a client that only reads: whatever creates, changes or removes a file is refused; see `Storage`.

    The server of a catalog can refuse the requests that it gets, and not what a client does to files that both reach.

    Attributes:
        why: the end of messages: the catalog whose client only reads, and what to do.
    """

    why: str = ""

    def create(self, path: str, data: bytes) -> None:
        """Refuse."""
        self._refuse("create", path)

    def replace(self, path: str, data: bytes, *, durable: bool = False) -> None:
        """Refuse."""
        self._refuse("write", path)

    def writer(self, path: str) -> Sink:
        """Refuse."""
        self._refuse("write", path)

    def copy(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Refuse, unless there is nothing to copy."""
        for _, path in pairs:
            self._refuse("write", path)

    def delete(self, paths: Iterable[str]) -> None:
        """Refuse, unless there is nothing to remove."""
        for path in paths:
            self._refuse("remove", path)

    def delete_tree(self, path: str) -> None:
        """Refuse."""
        self._refuse("remove", path)

    def delete_empty(self, paths: Iterable[str]) -> None:
        """Refuse, unless there is nothing to remove."""
        for path in paths:
            self._refuse("remove", path)

    def move_tree(self, source: str, target: str) -> None:
        """Refuse."""
        self._refuse("move", source)

    def _refuse(self, verb: str, path: str) -> NoReturn:
        raise UnsupportedError(f"cannot {verb} '{path}': {self.why}", path=path)


def check_may_change(storage: Storage, what: str) -> None:
    """Refuse a change that would begin outside of the storage, such as in a topic or by Spark's own writers.

    Args:
        what: beginning of the message.

    Raises:
        UnsupportedError: the client of the storage only reads.
    """
    if isinstance(storage, ReadOnlyStorage):
        raise UnsupportedError(f"{what}: {storage.why}")


def files_of(storage: Storage) -> Storage:
    """Return the storage behind a guard, or the storage itself: what kind of store it is."""
    return storage.files if isinstance(storage, GuardedStorage) else storage

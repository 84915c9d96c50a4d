"""Files in memory, for tests: the promises of the local disk, without a disk.

Files belong to a name, not to the object: every `MemoryStorage` of one name in a process, copies that were
pickled included, sees the same files. Another process sees its own. Any text is a path; `/` separates its
parts. As in an object store, a directory is there while a file lies below it.
"""

from __future__ import annotations

import threading
import time
import zlib
from collections.abc import Callable, Iterable
from dataclasses import field
from typing import ClassVar, Final

import pyarrow as pa

from merganser.errors import AlreadyExistsError, NotFoundError
from merganser.storage.protocol import Entries, Entry, no_lock
from merganser.values import dataclass


@dataclass(slots=True)
class _Files:
    """The files of one name: path -> (bytes, epoch milliseconds)."""

    lock: threading.RLock = field(default_factory=threading.RLock)
    by_path: dict[str, tuple[bytes, int]] = field(default_factory=dict)


_NAMED: Final[dict[str, _Files]] = {}
_NAMED_LOCK: Final = threading.Lock()


@dataclass(frozen=True, slots=True)
class MemoryStorage:
    """The files of one name in this process. Threads may share it.

    Attributes:
        name: whose files these are. Tests that must not meet choose names of their own.
    """

    name: str = "default"
    moves_at_once: ClassVar[bool] = True
    is_near: ClassVar[bool] = True

    def read(self, path: str) -> bytes:
        files = self._files()
        with files.lock:
            found = files.by_path.get(path)
        if found is None:
            raise NotFoundError(f"cannot read '{path}': there is no such file.", path=path)
        return found[0]

    def open(self, path: str) -> pa.NativeFile:
        return pa.BufferReader(self.read(path))

    def exists(self, path: str) -> bool:
        files = self._files()
        with files.lock:
            return path in files.by_path

    def list(self, path: str) -> Entries:
        prefix = path.rstrip("/") + "/"
        files, found = self._files(), dict[str, Entry]()
        with files.lock:
            for file, (data, modified_ms) in files.by_path.items():
                if file.startswith(prefix):
                    name, below, _ = file[len(prefix) :].partition("/")
                    found[name] = Entry(name, True, 0, 0) if below else Entry(name, False, len(data), modified_ms)
        return list(found.values())

    def create(self, path: str, data: bytes) -> None:
        files = self._files()
        with files.lock:
            if path in files.by_path:
                raise AlreadyExistsError(f"cannot create '{path}': it exists already. Nothing was changed.", path=path)
            files.by_path[path] = (bytes(data), _now_ms())

    def replace(self, path: str, data: bytes, *, durable: bool = False) -> None:
        files = self._files()
        with files.lock:
            files.by_path[path] = (bytes(data), _now_ms())

    def writer(self, path: str) -> MemorySink:
        return MemorySink(self, path)

    def copy(self, pairs: Iterable[tuple[str, str]]) -> None:
        for path, new in pairs:
            self.replace(new, self.read(path))

    def delete(self, paths: Iterable[str]) -> None:
        files = self._files()
        with files.lock:
            for path in paths:
                files.by_path.pop(path, None)

    def uncache(self, paths: Iterable[str]) -> None:
        pass  # memory is all there is

    def try_lock(self, directory: str) -> Callable[[], None] | None:
        return no_lock

    def delete_tree(self, path: str) -> None:
        files, prefix = self._files(), path.rstrip("/") + "/"
        with files.lock:
            for file in [file for file in files.by_path if file.startswith(prefix)]:
                del files.by_path[file]

    def delete_empty(self, paths: Iterable[str]) -> None:
        pass  # a directory is there while something lies below it

    def move_tree(self, source: str, target: str) -> None:
        files, old, new = self._files(), source.rstrip("/") + "/", target.rstrip("/") + "/"
        with files.lock:
            if any(file.startswith(new) or file == new[:-1] for file in files.by_path):
                raise AlreadyExistsError(
                    f"cannot move '{source}' to '{target}': the target exists. Nothing was moved.", path=target
                )
            moved = [file for file in files.by_path if file.startswith(old)]
            if not moved:
                raise NotFoundError(f"cannot move '{source}': there is no such directory.", path=source)
            for file in moved:
                files.by_path[new + file[len(old) :]] = files.by_path.pop(file)

    def clear(self) -> None:
        """Forget all files of this name."""
        with _NAMED_LOCK:
            _NAMED.pop(self.name, None)

    def _files(self) -> _Files:
        with _NAMED_LOCK:
            return _NAMED.setdefault(self.name, _Files())


class MemorySink:
    """A new file in memory; it is invisible before `close`."""

    def __init__(self, storage: MemoryStorage, path: str) -> None:
        self.path = path
        self.stream = pa.BufferOutputStream()
        self._storage = storage
        self._size: int | None = None
        self._data: bytes | None = None

    @property
    def size(self) -> int:
        return int(self.stream.tell()) if self._size is None else self._size

    @property
    def checksum(self) -> int:
        return zlib.crc32(self._all())

    def begin_sync(self) -> None:
        """Do nothing: memory is as durable as it gets."""

    def tail(self, size: int) -> bytes:
        return self._all()[-size:]

    def close(self) -> int:
        data = self._all()
        self._storage.replace(self.path, data)
        return len(data)

    def _all(self) -> bytes:
        if self._data is None:
            self._data = self.stream.getvalue().to_pybytes()  # which ends the stream
            self._size = len(self._data)
        return self._data

    def abort(self) -> None:
        self._all()
        self._storage.delete([self.path])


def _now_ms() -> int:
    return time.time_ns() // 1_000_000

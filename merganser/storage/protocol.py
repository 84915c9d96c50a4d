"""Storage: bytes at a path, in fourteen verbs, and what each promises after a crash.

A path is absolute: `/data/warehouse/...`, `s3://bucket/warehouse/...` or `hdfs://host:port/...`. A storage pickles
(configuration only, no open handles), so jobs carry it to other processes.

* `create` is the commit point of the whole system: of any number of racing callers exactly one succeeds, the
  file is durable before it is visible, and no reader sees part of it.
* `replace` swaps a small file whole; readers see the old bytes or the new ones. This is enough for hints. For other
  files the caller asks for a durable replace. It may be sent twice without harm, so clients of object stores repeat it.
  Hence small files under a name that no other writer uses are made with a durable `replace`, not with `create`, which
  is sent once: a single refusal of a busy store would fail the commit.
* `writer` makes a new file under a name that no other writer uses. Its bytes count only after `close`, which makes
  them durable. A crash before leaves an orphan that no metadata names.

A missing file raises NotFoundError, and a failure of the store raises StorageError, both with the path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, TypeAlias

import pyarrow as pa

from merganser.values import dataclass


@dataclass(frozen=True, slots=True)
class Entry:
    """One name in a directory.

    Attributes:
        name: the last part of the path, without a slash.
        is_directory: whether more paths lie below it.
        size: bytes; 0 for directories.
        modified_ms: epoch milliseconds of the last change; 0 where the store keeps none (directories).
    """

    name: str
    is_directory: bool
    size: int
    modified_ms: int


Entries: TypeAlias = list[Entry]
"""The entries of a directory. It has a name because `list` is a method of a storage."""


class Sink(Protocol):
    """A new file being written."""

    @property
    def stream(self) -> pa.NativeFile:
        """The stream that columnar writers write to. What goes wrong there is an OSError, as StorageError is."""

    @property
    def size(self) -> int:
        """Bytes written so far."""

    @property
    def checksum(self) -> int:
        """CRC-32 of all bytes, once the sink is closed."""

    def begin_sync(self) -> None:
        """Let the store begin to make durable what was written, so that `close` waits for less. Waits for nothing."""

    def tail(self, size: int) -> bytes:
        """Return the last bytes that were written, at most `size`; fewer if the store keeps fewer.

        After it nothing more is written.
        """

    def close(self) -> int:
        """Make the file durable and return its size in bytes. Call once. What goes wrong is an OSError."""

    def abort(self) -> None:
        """Drop the file, best effort. Safe to call after an error, and more than once."""


def no_lock() -> None:
    """Release nothing: the lock where there are none."""


class Storage(Protocol):
    """A local disk, an object store, HDFS, or memory."""

    @property
    def moves_at_once(self) -> bool:
        """Whether `move_tree` is one step, so that no other process can write to the directory in the middle of it."""

    @property
    def is_near(self) -> bool:
        """Whether the files are on this machine. Most reads then take less time than waking a thread."""

    def read(self, path: str) -> bytes:
        """Return all bytes of a file."""

    def open(self, path: str) -> pa.NativeFile:
        """Return a file for random reads. The caller closes it."""

    def exists(self, path: str) -> bool:
        """Return whether a file (not a directory) is at `path`."""

    def list(self, path: str) -> Entries:
        """Return what lies directly below a directory, in no order; empty when there is no such directory.

        Raises:
            StorageError: it cannot be read; on a local disk also, what lies there is a file.
        """

    def create(self, path: str, data: bytes) -> None:
        """Make a file that must not exist yet, whole and durable.

        Raises:
            AlreadyExistsError: the path is taken, perhaps by an earlier attempt of ours whose reply was
                lost: read it back and compare.
            StorageError: the outcome is unknown. Read back; what is absent now may still appear. Where it is known
                that nothing was made, the context says `changed` = False.
            UnsupportedError: the store cannot promise one winner. Nothing was made.
        """

    def replace(self, path: str, data: bytes, *, durable: bool = False) -> None:
        """Put `data` at `path`, whatever was there.

        Args:
            durable: wait until it outlives a crash of the machine; else that may leave nothing readable there.
        """

    def writer(self, path: str) -> Sink:
        """Return a sink for a new file. The name must be unique; directories are made."""

    def copy(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Make files that have the bytes of others, without handing them through this process where the store can.

        On a local disk a file gets a second name (a hard link) and takes no more room, so nobody may write into either
        of them; where the disk cannot do that, the bytes are copied. An object store copies inside of itself, and HDFS
        cannot. The new files are durable, and their directories are made.

        Args:
            pairs: (path, new path). A new name must be unique, as for `writer`.

        Raises:
            NotFoundError: there is no such file. Others may have been copied.
        """

    def delete(self, paths: Iterable[str]) -> None:
        """Remove files. Missing ones are fine."""

    def uncache(self, paths: Iterable[str]) -> None:
        """Say that files will hardly be read again: what the system keeps of them in memory may go. Raises nothing."""

    def try_lock(self, directory: str) -> Callable[[], None] | None:
        """Ask for the lock of a directory, which one holder has at a time. Waits for nothing, raises nothing.

        The lock is advice: it keeps nobody from any file. The system releases it when the holder's process ends, and
        its own process may ask only once. Stores without locks, and directories that are not there, give one to all.

        Returns:
            A function that releases it; None while another holder has it.
        """

    def delete_tree(self, path: str) -> None:
        """Remove a directory and all below it. A missing one is fine.

        On a local disk and in HDFS, its name is free in one step.
        """

    def delete_empty(self, paths: Iterable[str]) -> None:
        """Remove directories that hold nothing; others stay, and missing ones are fine.

        If another process makes a file at the same time, the directory stays, or is made again. A store that has no
        directories does nothing.
        """

    def move_tree(self, source: str, target: str) -> None:
        """Rename a directory. Atomic on a local disk and in HDFS; elsewhere copied, then removed.

        Raises:
            AlreadyExistsError: the target exists; nothing was moved.
            NotFoundError: there is no such directory.
        """

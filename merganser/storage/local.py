"""The local disk: atomic create-if-absent, durable before visible.

`create` writes a temporary file beside the target, syncs it, hard-links it to the final name (the kernel
refuses when the name exists, so one of many processes wins), removes the temporary name and syncs the
directory. A crash at any instruction leaves either nothing under the final name or the whole file, and at
worst a `.<name>.<random>.tmp`, which readers ignore and orphan cleaning removes.

Temporary names begin with a dot, as everywhere in the format.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import os
import shutil
import stat
import uuid
import weakref
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, Final, TypeVar

import pyarrow as pa

from merganser.errors import AlreadyExistsError, MerganserError, NotFoundError, StorageError, UnsupportedError
from merganser.storage.protocol import Entries, Entry, no_lock
from merganser.storage.retries import RACE
from merganser.values import dataclass

T = TypeVar("T")
_DELETE_ROUNDS: Final = 100
_BUFFER_BYTES: Final = 256 * 1024
_BEGIN_SYNC_BYTES: Final = 4 * 1024 * 1024
_NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS})

_NOT_LINKED: Final = _NO_LINKS | {errno.EXDEV}
"""The names would lie on two disks, or the disk has no second names, or not for files of others."""

_REFUSED: Final = frozenset({errno.EACCES, errno.EROFS, errno.ENOSPC, errno.EDQUOT})
"""The system made no link, for certain: an error of the disk itself (EIO) does not say so."""


@dataclass(frozen=True, slots=True)
class LocalStorage:
    """Files under absolute paths of this machine.

    Attributes:
        sync: whether writes wait for the disk. Only tests that do not pull plugs turn it off.
    """

    sync: bool = True
    moves_at_once: ClassVar[bool] = True
    is_near: ClassVar[bool] = True

    def read(self, path: str) -> bytes:
        with _errors("read", path), open(path, "rb") as file:
            return file.read()

    def open(self, path: str) -> pa.NativeFile:
        with _errors("read", path):
            try:
                return pa.OSFile(path, "rb")
            except OSError:
                if os.path.isdir(path):
                    raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR)) from None
                raise

    def exists(self, path: str) -> bool:
        with _errors("look at", path):
            try:
                return stat.S_ISREG(os.stat(path).st_mode)
            except (FileNotFoundError, NotADirectoryError):
                return False  # and only then: what we may not look at is not absent

    def list(self, path: str) -> Entries:
        with _errors("list", path):
            try:
                scan = os.scandir(path)
            except FileNotFoundError:
                return []
            except NotADirectoryError:
                if os.path.exists(path):
                    raise StorageError(f"cannot list '{path}': it is a file, not a directory.", path=path) from None
                return []  # a part of its path is a file, so there is no such directory
            with scan:
                return [entry for item in scan if (entry := _entry(item)) is not None]

    def create(self, path: str, data: bytes) -> None:
        with _errors("create", path, missing=_VANISHED, changed=False):
            temporary = self._in_directory(path, lambda: self._temporary(path, data))
        with _errors("create", path, missing=_VANISHED):
            try:
                os.link(temporary, path)
            except FileExistsError:
                if os.path.isdir(path):
                    raise StorageError(
                        f"cannot create '{path}': there is a directory of this name. Nothing was changed.",
                        path=path,
                        changed=False,
                    ) from None
                raise AlreadyExistsError(
                    f"cannot create '{path}': it exists already. Nothing was changed.", path=path
                ) from None
            except OSError as error:
                if error.errno in _REFUSED:
                    with _errors("create", path, changed=False):
                        raise
                if error.errno not in _NO_LINKS:
                    raise
                raise UnsupportedError(
                    f"cannot create '{path}' safely: its file system has no hard links, so two writers could both "
                    "win. Keep the warehouse on a file system with hard links, or in an object store.",
                    path=path,
                ) from error
            finally:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
            self._sync_directory(os.path.dirname(path))

    def replace(self, path: str, data: bytes, *, durable: bool = False) -> None:
        with _errors("write", path, missing=_VANISHED):
            # A hint may be lost in a crash; it is never trusted. So it gets no sync, only the atomic swap.
            temporary = self._in_directory(path, lambda: self._temporary(path, data, sync=durable))
            try:
                os.replace(temporary, path)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
                raise
            if durable:
                self._sync_directory(os.path.dirname(path))

    def writer(self, path: str) -> LocalSink:
        with _errors("write", path, missing=_VANISHED, changed=False):
            return self._in_directory(path, lambda: LocalSink(path, sync=self.sync))

    def copy(self, pairs: Iterable[tuple[str, str]]) -> None:
        directories = set[str]()
        for path, new in pairs:
            directory = os.path.dirname(new)
            if directory not in directories:
                with _errors("copy", new, missing=_VANISHED):
                    self._make_directory(directory)
                directories.add(directory)
            with _errors("copy", path):
                # Its writer may not have waited for the disk. This comes first: with a new name, each sync would wait.
                self._sync_file(path)
                try:
                    os.link(path, new)
                except OSError as error:
                    if error.errno not in _NOT_LINKED:
                        raise
                    shutil.copyfile(path, new)
                    self._sync_file(new)
        for directory in directories:
            with _errors("copy", directory, missing=_VANISHED):
                self._sync_directory(directory)

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            with _errors("delete", path, missing=None), contextlib.suppress(FileNotFoundError, NotADirectoryError):
                os.unlink(path)

    def uncache(self, paths: Iterable[str]) -> None:
        if not hasattr(os, "posix_fadvise"):
            return
        for path in paths:
            with contextlib.suppress(OSError, ValueError):
                descriptor = os.open(path, os.O_RDONLY)
                try:
                    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
                finally:
                    os.close(descriptor)

    def try_lock(self, directory: str) -> Callable[[], None] | None:
        try:
            descriptor = os.open(directory, os.O_RDONLY)
        except OSError:
            return no_lock
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            return None if isinstance(error, BlockingIOError) else no_lock

        def release() -> None:
            # Closing alone does not release it while a forked process has the descriptor, too.
            with contextlib.suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)

        return release

    def delete_tree(self, path: str) -> None:
        with _errors("delete", path, missing=None):
            aside = self._set_aside(path)
            try:
                for _ in range(_DELETE_ROUNDS):  # no retry: each round goes on where the one before stopped
                    if not os.path.isdir(aside):
                        break
                    with contextlib.suppress(FileNotFoundError):  # others may delete in there as well
                        shutil.rmtree(aside)
            except BaseException:
                if aside != path:
                    with contextlib.suppress(OSError):
                        os.rename(aside, path)  # so that another try finds what is left
                raise

    def delete_empty(self, paths: Iterable[str]) -> None:
        for path in paths:
            with _errors("delete", path, missing=None):
                try:
                    os.rmdir(path)
                except (FileNotFoundError, NotADirectoryError):
                    pass
                except OSError as error:
                    if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                        raise

    def move_tree(self, source: str, target: str) -> None:
        with _errors("move", source):
            if not os.path.isdir(source):
                raise NotFoundError(f"cannot move '{source}': there is no such directory.", path=source)
            self._make_directory(os.path.dirname(target))
            try:
                os.rename(source, target)  # of several movers one gets the name: only an empty directory is replaced
            except OSError as error:
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                    raise
                raise AlreadyExistsError(
                    f"cannot move '{source}' to '{target}': the target exists. Nothing was moved.", path=target
                ) from None
            self._sync_directory(os.path.dirname(target))
            self._sync_directory(os.path.dirname(source))

    def _set_aside(self, path: str) -> str:
        """Free the name of a directory in one step, so that nothing new under it is removed; return where it is."""
        directory, name = os.path.split(path.rstrip("/"))
        aside = os.path.join(directory, f".{name}.{uuid.uuid4()}.tmp")
        try:
            os.rename(path, aside)
        except OSError:  # not there, or not to be renamed (a mount, a name of full length): removed where it is
            return path
        return aside

    def _temporary(self, path: str, data: bytes, *, sync: bool = True) -> str:
        directory, name = os.path.split(path)
        temporary = os.path.join(directory, f".{name}.{uuid.uuid4()}.tmp")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            if sync and self.sync:
                os.fsync(descriptor)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        finally:
            os.close(descriptor)
        return temporary

    def _in_directory(self, path: str, make: Callable[[], T]) -> T:
        """Make a file and its directory; make the directory again if another process removes it while it is empty."""
        with contextlib.suppress(FileNotFoundError):  # mostly the directory is there
            return make()

        def made() -> T:
            self._make_directory(os.path.dirname(path))
            return make()

        return RACE.run(made, FileNotFoundError)

    def _make_directory(self, path: str) -> None:
        if os.path.isdir(path or "."):
            return
        missing = []
        parent = path
        while parent and not os.path.isdir(parent):
            missing.append(parent)
            parent = os.path.dirname(parent)
        os.makedirs(path, exist_ok=True)
        for made in missing:  # a new directory is durable once its parent is synced
            self._sync_directory(os.path.dirname(made))

    def _sync_directory(self, path: str) -> None:
        self._sync_file(path or ".")

    def _sync_file(self, path: str) -> None:
        if self.sync:
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


class LocalSink:
    """A new local file; durable after `close`. A process that is forked while it is open does not write to it."""

    def __init__(self, path: str, *, sync: bool) -> None:
        self.path = path
        self._file = pa.OSFile(path, "wb")
        # A Parquet file's footer alone is hundreds of pieces of some bytes: each would be a call of the system, or two.
        self._summed = _Summed(self._file)
        self.stream = pa.BufferedOutputStream(pa.PythonFile(self._summed, mode="w"), _BUFFER_BYTES)
        self._sync = sync
        self._size: int | None = None
        self._begun = 0
        _SINKS.add(self)

    @property
    def size(self) -> int:
        return int(self.stream.tell()) if self._size is None else self._size

    @property
    def checksum(self) -> int:
        return self._summed.crc

    def begin_sync(self) -> None:
        if not self._sync or not hasattr(os, "posix_fadvise"):
            return
        written = self._file.tell()
        if written - self._begun >= _BEGIN_SYNC_BYTES:
            # The advice is to forget these bytes, and the system writes first what it is to forget; what is not yet
            # on the disk it keeps. Nothing else begins that without waiting for it.
            with contextlib.suppress(OSError):
                os.posix_fadvise(self._file.fileno(), self._begun, written - self._begun, os.POSIX_FADV_DONTNEED)
            self._begun = written

    def tail(self, size: int) -> bytes:
        self.stream.flush()
        if len(self._summed.last) >= min(size, self.size):
            return self._summed.last[-size:]
        with _errors("read", self.path):
            descriptor = os.open(self.path, os.O_RDONLY)
            try:
                return os.pread(descriptor, size, max(0, self.size - size))
            finally:
                os.close(descriptor)

    def close(self) -> int:
        size = self.size
        self.stream.flush()  # writes what is held back, and fails as the stream does
        if self._sync:
            with _errors("write", self.path):
                os.fsync(self._file.fileno())  # of the descriptor that wrote: it is told of every byte that got lost
        self.stream.close()
        self._size = size
        if self._sync:
            with _errors("write", self.path):
                descriptor = os.open(os.path.dirname(self.path), os.O_RDONLY)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
        return size

    def leave_to_parent(self) -> None:
        """Write nowhere from now on: in a forked process, whose end would write once more what is held back."""
        with contextlib.suppress(OSError, ValueError, pa.ArrowException):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            try:
                os.dup2(nowhere, self._file.fileno(), inheritable=False)
            finally:
                os.close(nowhere)

    def abort(self) -> None:
        with contextlib.suppress(OSError, pa.ArrowException):
            if not self.stream.closed:
                self._size = self.size
                self.stream.close()
        with contextlib.suppress(OSError):
            os.unlink(self.path)


class _Summed(io.RawIOBase):
    """A file, the CRC-32 of what was written to it, and the last bytes that were."""

    def __init__(self, file: pa.NativeFile) -> None:
        self.crc = 0
        self.last = b""
        self._file = file

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._file.write(data)
        self.crc = zlib.crc32(data, self.crc)
        self.last = bytes(data)
        return len(data)

    def close(self) -> None:
        self._file.close()
        super().close()


_SINKS: Final[weakref.WeakSet[LocalSink]] = weakref.WeakSet()
"""Those whose files may be open."""


def _after_fork() -> None:
    for sink in list(_SINKS):
        if not sink.stream.closed:
            sink.leave_to_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _entry(item: os.DirEntry[str]) -> Entry | None:
    try:
        if item.is_dir():
            return Entry(item.name, True, 0, 0)
        status = item.stat()
    except FileNotFoundError:  # removed while we listed
        return None
    return Entry(item.name, False, status.st_size, status.st_mtime_ns // 1_000_000)


_ABSENT: Final = "there is no such file"
_VANISHED: Final = "its directory was removed, or a part of its path is a file"


@contextlib.contextmanager
def _errors(verb: str, path: str, *, missing: str | None = _ABSENT, changed: bool = True) -> Iterator[None]:
    """Turn the errors of the operating system into ours, with the path.

    Args:
        verb: what could not be done.
        path: to which file.
        missing: what it means that something is missing: `_ABSENT`, or another fact, or None to have the reason of the
            operating system. Only the first makes a NotFoundError.
        changed: whether something may have been changed; if not, a StorageError says so.
    """
    try:
        yield
    except MerganserError:
        raise
    except OSError as error:
        absent = isinstance(error, (FileNotFoundError, NotADirectoryError, IsADirectoryError))
        if absent and missing == _ABSENT:
            raise NotFoundError(f"cannot {verb} '{path}': {missing}.", path=path) from error
        reason = (missing if absent else None) or (os.strerror(error.errno) if error.errno else str(error))
        if not changed:
            raise StorageError(
                f"cannot {verb} '{path}': {reason}. Nothing was changed.", path=path, changed=False
            ) from error
        raise StorageError(f"cannot {verb} '{path}': {reason}.", path=path) from error

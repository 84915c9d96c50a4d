"""Copies on the local disk of what a store holds: shared by all processes of a machine, bounded in bytes.

A copy is made under a name of its own and then renamed, so a process that dies leaves no part of one under the name
that others read. The least recently used copies go first. A copy may go while others read it: it stays mapped. A
finished copy is read-only, since a change would reach the memory of processes that have mapped it.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

import pyarrow as pa

from merganser.errors import StorageError

_SUFFIX: Final = ".copy"
_PART: Final = ".part"
_OURS: Final = re.compile(rf"[0-9a-f]{{24}}{re.escape(_SUFFIX)}(?P<part>\.[0-9a-f]{{32}}{re.escape(_PART)})?")
_PART_SECONDS: Final = 3600
"""An unfinished copy that nobody has written to for so long was left by a process that died."""

_log = logging.getLogger(__name__)


class LocalCopies:
    """A directory of copies. Nobody trusts what lies there: the bytes of a copy carry their own checksums.

    Args:
        directory: where they lie; None: a directory of this user among the temporary files of the system.
        max_bytes: most bytes of all copies; None: no limit.
        unused_seconds: a copy that nobody has opened for so long goes.
    """

    def __init__(self, directory: str | None, *, max_bytes: int | None, unused_seconds: float) -> None:
        user = os.getuid() if hasattr(os, "getuid") else 0
        self._directory = Path(directory or Path(tempfile.gettempdir()) / f"merganser-copies-{user}")
        self._user = None if directory else user
        self._max_bytes = max_bytes
        self._unused_seconds = unused_seconds
        self._warned = False

    def is_inside(self, directory: str) -> bool:
        """Return whether the copies lie in a local directory or below it."""
        return self._directory.resolve().is_relative_to(Path(directory).resolve())

    def name(self, path: str, size: int) -> str:
        """Return the name of the copy of a file that never changes."""
        digest = hashlib.blake2b(f"{path}\n{size}".encode(), digest_size=12).hexdigest()
        return f"{digest}{_SUFFIX}"

    def open(self, name: str) -> pa.Buffer | None:
        """Return the bytes of a copy, mapped; None: there is none that can be read."""
        path = self._directory / name
        try:
            self._check_is_ours()
            with pa.memory_map(str(path)) as mapped:
                found = mapped.read_buffer()
        except (OSError, pa.ArrowException):
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return found

    def add(self, name: str, write: Callable[[Callable[[pa.Buffer | bytes], object]], object]) -> pa.Buffer | None:
        """Make a copy and return its bytes; None: the local disk does not take it, which is logged once.

        Args:
            write: writes its bytes with the function that it is given.
        """
        with contextlib.closing(self.begin()) as made:
            made.check(name)
            if made.is_open:
                write(made.write)
            made.finish(name)
        return self.open(name) if made.is_there else None

    def begin(self) -> NewCopy:
        """Return a copy to write, whose name is known when it is whole. The caller closes it."""
        return NewCopy(self)

    def _check_is_ours(self) -> None:
        """Refuse the directory among the temporary files, where all users may write, if others can write into it.

        Checksums find damage, but not rows that another user puts there on purpose.

        Raises:
            OSError: it is not there, or is not only ours.
        """
        if self._user is None:
            return
        status = os.lstat(self._directory)
        if hasattr(os, "getuid") and (status.st_uid != self._user or status.st_mode & 0o022):
            raise PermissionError("other users can write into it")

    def drop(self, name: str) -> None:
        """Remove a copy. Best effort."""
        with contextlib.suppress(OSError):
            (self._directory / name).unlink(missing_ok=True)

    def clear(self) -> None:
        """Remove all copies. Best effort: they are made again when they are asked for."""
        with contextlib.suppress(OSError):
            self._check_is_ours()
            for path in self._directory.iterdir():
                found = _OURS.fullmatch(path.name)
                if found is not None and not found["part"]:
                    self.drop(path.name)

    def place(self) -> Path:
        """Return where the bytes of a new copy go before it has its name.

        Raises:
            OSError: the local disk does not take it.
        """
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._check_is_ours()
        return self._directory / f"{uuid.uuid4().hex[:24]}{_SUFFIX}.{uuid.uuid4().hex}{_PART}"

    def check(self, name: str) -> None:
        """Refuse a name that a directory has.

        Raises:
            IsADirectoryError: it has.
        """
        if (self._directory / name).is_dir():
            raise IsADirectoryError(f"'{name}' is a directory")

    def take(self, part: Path, name: str) -> None:
        """Give a whole copy its name.

        Raises:
            OSError: the local disk does not take it.
        """
        self.check(name)
        part.chmod(0o400)
        self._make_room(part.stat().st_size, name)
        part.replace(self._directory / name)

    def warn(self, error: OSError) -> None:
        """Log, once, that the local disk does not take copies."""
        if not self._warned:
            self._warned = True
            _log.warning("a local copy cannot be made in '%s': %s", self._directory, error)

    def _make_room(self, size: int, name: str) -> None:
        """Remove copies that are not used any more, and the least recently used ones beyond the limit.

        Raises:
            OSError: a single copy of this size is beyond the limit.
        """
        if self._max_bytes is not None and size > self._max_bytes:
            raise OSError(f"a copy takes {size:,} bytes, and 'lookup.cache-max-disk-size' is {self._max_bytes:,}")
        now = time.time()
        held: list[tuple[float, int, str]] = []
        with os.scandir(self._directory) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    status = entry.stat()
                    age = now - status.st_mtime
                    kind = _OURS.fullmatch(entry.name)
                    if kind is None:  # the directory may be one that others use
                        continue
                    if age > (_PART_SECONDS if kind["part"] else self._unused_seconds):
                        os.unlink(entry.path)
                    elif not kind["part"] and entry.name != name:
                        held.append((status.st_mtime, status.st_size, entry.path))
        if self._max_bytes is None:
            return
        total = size + sum(one[1] for one in held)
        for _, freed, path in sorted(held):
            if total <= self._max_bytes:
                break
            with contextlib.suppress(OSError):
                os.unlink(path)
            total -= freed


class NewCopy:
    """A copy being written. What the local disk does not take is logged once and drops the copy; nothing is raised.

    Attributes:
        is_there: whether the copy is whole and has its name.
    """

    def __init__(self, copies: LocalCopies) -> None:
        self.is_there = False
        self._copies = copies
        self._file: BinaryIO | None = None
        self._part: Path | None = None
        with self._dropped_if_it_fails():
            self._part = copies.place()
            self._file = self._part.open("xb")

    @property
    def is_open(self) -> bool:
        """Whether it takes bytes."""
        return self._file is not None

    def check(self, name: str) -> None:
        """Drop the copy if it cannot get a name."""
        with self._dropped_if_it_fails():
            self._copies.check(name)

    def write(self, data: pa.Buffer | bytes) -> None:
        """Append bytes."""
        if self._file is not None:
            with self._dropped_if_it_fails():
                self._file.write(data)

    def finish(self, name: str) -> None:
        """Give it a name, for all to open."""
        if self._file is not None and self._part is not None:
            with self._dropped_if_it_fails():
                self._file.close()
                self._copies.take(self._part, name)
                self.is_there = True
                self._file = None

    def close(self) -> None:
        """Drop what has no name yet."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None
        if self._part is not None and not self.is_there:
            with contextlib.suppress(OSError):
                self._part.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _dropped_if_it_fails(self) -> Iterator[None]:
        try:
            yield
        except StorageError:  # of the store that the bytes come from, and not of the local disk
            raise
        except OSError as error:
            self._copies.warn(error)
            self.close()

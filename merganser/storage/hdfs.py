"""HDFS through WebHDFS: no jar, no Java and no native library on this machine.

`create` writes `.<name>.<random>.tmp` beside the target and renames it. A namenode makes a rename under its lock and
refuses it where the new name exists, so of many racing writers one wins; and a file has all of its bytes under its own
name or is not there. The rename is sent once. If its reply is lost, the temporary file is removed: where the namenode
finds it to remove, the rename did not happen and cannot happen any more; where it does not, the target is read back
and compared. So an outcome stays unknown only while no namenode answers. A crash leaves a temporary file at worst,
which readers ignore and orphan cleaning removes. `replace` is the same with a rename that overwrites.

A file is durable as HDFS takes it: it is closed on all datanodes of its pipeline, and names are in the journal of the
namenode. Datanodes write it from memory to disk later, unless `dfs.datanode.synconclose` is set there.

`writer` collects bytes (above `_MEMORY_BYTES` on the local disk) and sends them in one request when it is closed, so
that they can be sent again when a datanode fails. HDFS copies nothing by itself: `copy` reads and writes.

HttpFS has the requests of WebHDFS, and a rename that cannot overwrite and moves into a directory of the new name. So it
serves reads alone: the first write of a process asks for a rename that a namenode and HttpFS answer differently.

Options are those of `hdfs_connection`. A storage pickles as its root and its options, because jobs need it in other
processes. **A delegation token that is given as option travels with every job.** No repr and no message shows it.

Docs: decision 0087.
"""

from __future__ import annotations

import contextlib
import io
import posixpath
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from tempfile import SpooledTemporaryFile
from typing import Any, Final

import pyarrow as pa

from merganser.errors import (
    AlreadyExistsError,
    InvalidInputError,
    MerganserError,
    NotFoundError,
    StorageError,
    UnsupportedError,
)
from merganser.storage.hdfs_connection import Connection, NoReplyError, RemoteError, connect, options_of, target_of
from merganser.storage.protocol import Entries, Entry, no_lock
from merganser.storage.ranged_file import TAIL_BYTES, RangedFile
from merganser.storage.retries import STORE

_MEMORY_BYTES: Final = 8 * 1024 * 1024
"""Maximum bytes of a file being written that stay in memory."""
_COPY_BYTES: Final = 8 * 1024 * 1024
"""Bytes of a request of a copy."""
_REQUESTS_AT_ONCE: Final = 16
_OVERWRITE: Final = "OVERWRITE"
_NO_OVERWRITE: Final = "NONE"
_TAKEN: Final = "FileAlreadyExistsException"
_MISSING: Final = "FileNotFoundException"


class HdfsStorage:
    """The files of one HDFS. Threads may share it; nothing is sent before the first call.

    Args:
        root: `hdfs://host:port`, `webhdfs://host:port` or `swebhdfs://host:port`. Every path begins with it.
        options: options of the catalog; those that do not begin with `hdfs.` are ignored.

    Raises:
        InvalidInputError: an option is not known, or its value has no meaning.
    """

    __slots__ = ("_options", "root")

    def __init__(self, root: str, options: Mapping[str, str] | None = None) -> None:
        self.root = root
        self._options = options_of(options or {})
        target_of(root, self._options)  # refuse bad ones here, not in a job

    def __repr__(self) -> str:
        return f"HdfsStorage({self.root!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HdfsStorage) and (self.root, self._options) == (other.root, other._options)

    def __hash__(self) -> int:
        return hash(self.root)

    def __reduce__(self) -> tuple[Any, ...]:
        return (HdfsStorage, (self.root, self._options))

    @property
    def moves_at_once(self) -> bool:
        """Whether `move_tree` is one step."""
        return True

    @property
    def is_near(self) -> bool:
        """Whether requests are answered by this machine."""
        return False

    @property
    def options(self) -> dict[str, str]:
        """The options of HDFS; they may hold a token."""
        return dict(self._options)

    def read(self, path: str) -> bytes:
        name = self._name(path)
        with self._errors("read", path, missing=True):
            return self._connection().read(name)

    def open(self, path: str) -> pa.NativeFile:
        name = self._name(path)

        def fetch(start: int, end: int) -> bytes:
            with self._errors("read", path, missing=True):
                return self._connection().read(name, start, end - start)

        size = self._size("read", path)
        start = max(0, size - TAIL_BYTES)
        return pa.PythonFile(RangedFile(path, fetch, fetch(start, size) if size else b"", size), mode="r")

    def exists(self, path: str) -> bool:
        name = self._name(path)
        with self._errors("look at", path):
            status = _status(self._connection(), name)
            return status is not None and status["type"] == "FILE"

    def list(self, path: str) -> Entries:
        name = self._name(path, is_directory=True)
        with self._errors("list", path):
            # One reply of any length: a namenode sends it as it goes, page by page, and holds its lock for none longer.
            try:
                found = self._connection().ask("GET", "LISTSTATUS", name)["FileStatuses"]["FileStatus"]
            except RemoteError as error:
                if _is_missing(error):
                    return []
                raise
            if len(found) == 1 and not found[0]["pathSuffix"]:
                raise StorageError(f"cannot list '{path}': it is a file, not a directory.", path=path)
            return [_entry(status) for status in found]

    def create(self, path: str, data: bytes) -> None:
        name = self._name(path)
        connection = self._connection()
        with self._errors("create", path, changed=False):
            self._check_renames(connection, path)
            temporary = _written_beside(connection, name, data)
        with self._errors("create", path):
            try:
                _rename(connection, temporary, name, _NO_OVERWRITE)
            except RemoteError as error:
                if error.kind != _TAKEN:
                    with self._errors("create", path, changed=False):
                        raise
                raise AlreadyExistsError(
                    f"cannot create '{path}': it exists already. Nothing was changed.", path=path
                ) from None
            except NoReplyError as error:
                if not error.sent:
                    with self._errors("create", path, changed=False):
                        raise
                if connection.read(name) != data:
                    raise

    def replace(self, path: str, data: bytes, *, durable: bool = False) -> None:
        name = self._name(path)
        connection = self._connection()

        def put() -> None:
            _rename(connection, _written_beside(connection, name, data), name, _OVERWRITE)

        with self._errors("write", path):
            self._check_renames(connection, path)
            STORE.run(put, NoReplyError)

    def writer(self, path: str) -> HdfsSink:
        self._name(path)
        return HdfsSink(self, path)

    def copy(self, pairs: Iterable[tuple[str, str]]) -> None:
        def copy_one(pair: tuple[str, str]) -> None:
            old, new = pair
            name, size = self._name(old), self._size("copy", old)
            sink = self.writer(new)
            try:
                for start in range(0, size, _COPY_BYTES):
                    with self._errors("copy", old, missing=True):
                        sink.stream.write(self._connection().read(name, start, min(_COPY_BYTES, size - start)))
                if sink.close() != size:
                    raise StorageError(f"cannot copy '{old}': of {size} bytes {sink.size} came.", path=old)
            except BaseException:
                sink.abort()
                raise

        self._each(copy_one, pairs)

    def delete(self, paths: Iterable[str]) -> None:
        self._each(lambda path: self._delete(path, self._name(path)), paths)

    def uncache(self, paths: Iterable[str]) -> None:
        pass  # nothing of a file is kept

    def try_lock(self, directory: str) -> Callable[[], None] | None:
        return no_lock

    def delete_tree(self, path: str) -> None:
        self._delete(path, self._name(path, is_directory=True), recursive="true")

    def delete_empty(self, paths: Iterable[str]) -> None:
        for path in paths:
            name = self._name(path, is_directory=True)
            with self._errors("delete", path):
                status = _status(self._connection(), name)
            if status is not None and status["type"] == "DIRECTORY":
                self._delete(path, name, kept="PathIsNotEmptyDirectoryException")

    def move_tree(self, source: str, target: str) -> None:
        old, new = self._name(source, is_directory=True), self._name(target, is_directory=True)
        connection = self._connection()
        with self._errors("move", source, missing=True):
            before = _status(connection, old)
            if before is None or before["type"] != "DIRECTORY":
                raise NotFoundError(f"cannot move '{source}': there is no such directory.", path=source)
            self._check_renames(connection, source)
            connection.ask("PUT", "MKDIRS", posixpath.dirname(new))
            try:
                connection.ask("PUT", "RENAME", old, once=True, destination=new, renameoptions=_NO_OVERWRITE)
            except RemoteError:
                if _status(connection, new) is None:
                    raise
                raise AlreadyExistsError(
                    f"cannot move '{source}' to '{target}': the target exists. Nothing was moved.", path=target
                ) from None
            except NoReplyError:
                after = _status(connection, new)
                if after is None or after["fileId"] != before["fileId"]:
                    raise

    def _delete(self, path: str, name: str, *, recursive: str = "false", kept: str = "") -> None:
        with self._errors("delete", path):
            try:
                self._connection().ask("DELETE", "DELETE", name, recursive=recursive)
            except RemoteError as error:
                if not _is_missing(error) and (not kept or error.kind != kept):
                    raise

    def _each(self, work: Callable[[Any], None], items: Iterable[Any]) -> None:
        with ThreadPoolExecutor(_REQUESTS_AT_ONCE, thread_name_prefix="merganser-hdfs") as pool:
            for _ in pool.map(work, items):
                pass

    def _size(self, verb: str, path: str) -> int:
        """Return the size of a file in bytes."""
        name = self._name(path)
        with self._errors(verb, path):
            status = _status(self._connection(), name)
        if status is None or status["type"] != "FILE":
            raise NotFoundError(f"cannot {verb} '{path}': there is no such file.", path=path)
        return int(status["length"])

    def _check_renames(self, connection: Connection, path: str) -> None:
        """Refuse a server whose rename does not promise what writes need. Asks once per process, and changes nothing.

        A namenode does not find what is to be renamed. HttpFS, which ignores the options of a rename, says "no".
        """
        if connection.renames:
            return
        probe = posixpath.join(posixpath.dirname(self._name(path)), f".probe.{uuid.uuid4()}")
        try:
            connection.ask("PUT", "RENAME", f"{probe}.tmp", destination=f"{probe}.new.tmp", renameoptions=_NO_OVERWRITE)
        except RemoteError as error:
            if error.kind != _MISSING:
                raise
            connection.renames = True
        else:
            raise UnsupportedError(
                f"cannot write '{path}' safely: the server of '{self.root}' is HttpFS, whose rename cannot replace a "
                "file, so readers could find none. Nothing was written. Write through the namenodes: option "
                "'hdfs.webhdfs.address'.",
                path=path,
            )

    def _connection(self) -> Connection:
        return connect(self.root, self._options)

    def _name(self, path: str, *, is_directory: bool = False) -> str:
        """Return what HDFS calls a path."""
        if is_directory:
            path = path.rstrip("/")
            if path == self.root:
                return "/"
        name = path.removeprefix(self.root)
        if name == path or not name.startswith("/") or any(part in ("", ".", "..") for part in name[1:].split("/")):
            raise InvalidInputError(f"'{path}' is no path below '{self.root}'.", path=path)
        return name

    @contextlib.contextmanager
    def _errors(self, verb: str, path: str, *, missing: bool = False, changed: bool = True) -> Iterator[None]:
        """Turn the errors of a connection into ours, with the path and without a token.

        Args:
            verb: what could not be done.
            path: to which file.
            missing: whether "not found" means this file.
            changed: whether something may have been changed; if not, a StorageError says so.
        """
        try:
            yield
        except MerganserError:
            raise
        except (RemoteError, NoReplyError) as error:
            if missing and isinstance(error, RemoteError) and _is_missing(error):
                raise NotFoundError(f"cannot {verb} '{path}': there is no such file.", path=path) from None
            reason = str(error).rstrip(". ")
            if token := self._options.get("hdfs.delegation-token"):
                reason = reason.replace(token, "***")
            if not changed:
                raise StorageError(
                    f"cannot {verb} '{path}': {reason}. Nothing was changed.", path=path, changed=False
                ) from None
            raise StorageError(f"cannot {verb} '{path}': {reason}.", path=path) from None


class HdfsSink:
    """A new file that is collected here, and sent by `close`."""

    def __init__(self, storage: HdfsStorage, path: str) -> None:
        self.path = path
        self._storage = storage
        self._bytes = _Collected()
        self.stream = pa.PythonFile(self._bytes, mode="w")
        self._sent = False

    @property
    def size(self) -> int:
        return self._bytes.tell()

    @property
    def checksum(self) -> int:
        return self._bytes.crc

    def begin_sync(self) -> None:
        """Do nothing: bytes are sent in the end."""

    def tail(self, size: int) -> bytes:
        return self._bytes.tail(size)

    def close(self) -> int:
        size = self.size
        self._sent = True  # from here on the file may be there, whatever the reply
        with self._storage._errors("write", self.path):
            self._storage._connection().write(self._storage._name(self.path), self._bytes.whole())
        self._bytes.drop()
        return size

    def abort(self) -> None:
        self._bytes.drop()
        if self._sent:
            with contextlib.suppress(StorageError):
                self._storage.delete([self.path])


class _Collected(io.RawIOBase):
    """The target of the stream of a sink: bytes in memory, and from `_MEMORY_BYTES` on in a file of the local disk."""

    def __init__(self) -> None:
        self.crc = 0
        self._size = 0
        self._file: SpooledTemporaryFile[bytes] | None = SpooledTemporaryFile(  # noqa: SIM115 - `drop` closes it
            _MEMORY_BYTES, prefix="merganser-"
        )

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._size

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self.whole().write(view)
        self.crc = zlib.crc32(view, self.crc)
        self._size += len(view)
        return len(view)

    def whole(self) -> SpooledTemporaryFile[bytes]:
        """Return what was written."""
        if self._file is None:
            raise StorageError("cannot write a file that was sent or dropped.")
        return self._file

    def tail(self, size: int) -> bytes:
        file = self.whole()
        file.seek(max(0, self._size - size))
        return file.read()

    def drop(self) -> None:
        """Forget what was written."""
        file, self._file = self._file, None
        if file is not None:
            file.close()


def _status(connection: Connection, name: str) -> Any:
    """Return the status of a file or directory, as WebHDFS has it; None if there is none."""
    try:
        return connection.ask("GET", "GETFILESTATUS", name)["FileStatus"]
    except RemoteError as error:
        if _is_missing(error):
            return None
        raise


def _is_missing(error: RemoteError) -> bool:
    """Return whether there is nothing at a path; a part of it may be a file, which no user may look into."""
    return error.kind == _MISSING or "is not a directory" in error.message


def _written_beside(connection: Connection, name: str, data: bytes) -> str:
    """Write a temporary file beside the target of a rename, and return its path."""
    directory, base = posixpath.split(name)
    temporary = posixpath.join(directory, f".{base}.{uuid.uuid4()}.tmp")
    try:
        connection.write(temporary, io.BytesIO(data))
    except (RemoteError, NoReplyError):
        _remove(connection, temporary)
        raise
    return temporary


def _remove(connection: Connection, temporary: str) -> bool | None:
    """Remove a temporary file; return whether it was there. None if that is unknown: the request is sent once."""
    with contextlib.suppress(RemoteError, NoReplyError):
        return bool(connection.ask("DELETE", "DELETE", temporary, once=True)["boolean"])
    return None


def _rename(connection: Connection, temporary: str, name: str, option: str) -> None:
    """Rename a temporary file; where this fails for certain, it is gone.

    Raises:
        RemoteError: the namenode refused it.
        NoReplyError: it did not happen and will not (`sent` is false), or it may have happened. It has if it overwrites
            and the temporary file is not there any more: then nothing is raised.
    """
    try:
        reply = connection.ask("PUT", "RENAME", temporary, once=True, destination=name, renameoptions=option)
        if reply is not None and not reply["boolean"]:
            raise RemoteError(_TAKEN, 200, "the server does not know the options of a rename")
    except RemoteError as error:
        _remove(connection, temporary)
        if error.kind == _MISSING:  # something below may have sent the rename twice
            raise NoReplyError(str(error), sent=True) from None
        raise
    except NoReplyError as error:
        was_there = _remove(connection, temporary)
        if was_there is not False or option == _NO_OVERWRITE:
            raise NoReplyError(str(error), sent=not was_there) from None


def _entry(status: Mapping[str, Any]) -> Entry:
    if status["type"] == "DIRECTORY":
        return Entry(status["pathSuffix"], True, 0, 0)
    return Entry(status["pathSuffix"], False, int(status["length"]), int(status["modificationTime"]))

"""Object stores: S3 and what speaks its language, Google Cloud Storage, Azure Blob Storage.

`create` is one put with `If-None-Match: *` (or the store's own precondition): the store lets exactly one of many
racing writers through, and an object appears whole or not at all. It is sent once. The client's own retries
are off for it, since the second try of a put whose reply was lost would meet the object of the first and
call it another writer's. A reply that is lost comes out as StorageError, and the caller reads back
(`meta.create_once`). All other requests may be sent twice without harm. The client repeats them, and `_repeated` those
that the client does not.

Some servers take `If-None-Match` and overwrite all the same. Amazon, Google and Azure are known to keep it; behind
an endpoint that was configured, the first `create` of each process writes a hidden probe beside the file, twice,
and refuses to go on when the second put succeeds. `<scheme>.conditional-create` = `trust` skips that.

`writer` buffers up to a part and sends parts as they fill: at most `_PART_BYTES * (_PARTS_AT_ONCE + 1)` bytes wait in
memory, and a file has at most 10,000 parts (78 GiB). `open` asks once for the last bytes of a file, which tells
its size and mostly is all that a Parquet footer needs. There are no directories: one is there while objects
lie below it.

Options are those of `object_connection`. A storage pickles as its root and its options, because jobs need it in other
processes. **Keys given as options travel with every job**; keys in the environment stay on their machines, and
are to be preferred. No key stands in a repr or in a message.
"""

from __future__ import annotations

import contextlib
import io
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Final, TypeAlias, TypeVar

import obstore
import pyarrow as pa
from obstore.exceptions import AlreadyExistsError as StoreAlreadyExistsError
from obstore.exceptions import BaseError as StoreError
from obstore.exceptions import NotSupportedError as StoreNotSupportedError
from obstore.exceptions import PermissionDeniedError as StoreForbiddenError
from obstore.exceptions import PreconditionError as StorePreconditionError
from obstore.exceptions import UnauthenticatedError as StoreUnknownUserError

from merganser.errors import (
    AlreadyExistsError,
    InvalidInputError,
    MerganserError,
    NotFoundError,
    StorageError,
    UnsupportedError,
)
from merganser.storage.moving import move_by_copies
from merganser.storage.object_connection import Client, Connection, Lease, connect, options_of, reason_of, target_of
from merganser.storage.protocol import Entries, Entry, no_lock
from merganser.storage.ranged_file import TAIL_BYTES, RangedFile
from merganser.storage.retries import STORE

_PART_BYTES: Final = 8 * 1024 * 1024
_PARTS_AT_ONCE: Final = 4
_DELETE_BATCH: Final = 1000
_COPIES_AT_ONCE: Final = 16
_RETRIES: Final = replace(STORE, deadline_s=5.0)
"""An error that comes later is one that the client has repeated already."""

Below: TypeAlias = list[tuple[str, int]]
T = TypeVar("T")


class ObjectStorage:
    """The objects of one bucket (or container). Threads may share it; nothing is sent before the first call.

    Args:
        root: `s3://bucket`, `oss://bucket`, `gs://bucket` or `az://container`. Every path begins with it.
        options: options of the catalog; those that do not begin with the scheme are ignored.
        lease: provider of keys that expire. None if the keys are those of the options.

    Raises:
        InvalidInputError: an option of the scheme is not known, or its value has no meaning.
    """

    __slots__ = ("_options", "lease", "root")

    def __init__(self, root: str, options: Mapping[str, str] | None = None, lease: Lease | None = None) -> None:
        self.root = root
        self.lease = lease
        self._options = options_of(root, options or {})
        target_of(root, self._options)  # refuse bad ones here, not in a job

    def __repr__(self) -> str:
        return f"ObjectStorage({self.root!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectStorage) and (self.root, self._options, self.lease) == (
            other.root,
            other._options,
            other.lease,
        )

    def __hash__(self) -> int:
        return hash(self.root)

    def __reduce__(self) -> tuple[Any, ...]:
        return (ObjectStorage, (self.root, self._options, self.lease))

    @property
    def moves_at_once(self) -> bool:
        """Whether `move_tree` is one step. It is a copy and a removal of each object here."""
        return False

    @property
    def is_near(self) -> bool:
        """Whether requests are answered by this machine."""
        return False

    @property
    def options(self) -> dict[str, str]:
        """The options of its scheme; they may hold keys."""
        return dict(self._options)

    def read(self, path: str) -> bytes:
        key = self._key(path)
        with self._errors("read", path, missing=True):
            return _repeated(lambda: bytes(obstore.get(self._client(), key).bytes()))

    def open(self, path: str) -> pa.NativeFile:
        key = self._key(path)

        def fetch(start: int, end: int) -> bytes:
            with self._errors("read", path, missing=True):
                return _repeated(lambda: bytes(obstore.get_range(self._client(), key, start=start, end=end)))

        with self._errors("read", path, missing=True):
            tail, size = self._tail(key)
        return pa.PythonFile(RangedFile(path, fetch, tail, size), mode="r")

    def exists(self, path: str) -> bool:
        key = self._key(path)
        with self._errors("look at", path):
            try:
                obstore.head(self._client(), key)
            except FileNotFoundError:
                return False
            return True

    def list(self, path: str) -> Entries:
        key = self._key(path, is_directory=True)
        with self._errors("list", path):
            found = _repeated(lambda: obstore.list_with_delimiter(self._client(), key or None))
            start = len(key) + 1 if key else 0
            entries = [
                Entry(name, True, 0, 0) for prefix in found["common_prefixes"] if (name := prefix[start:].rstrip("/"))
            ]
            for item in found["objects"]:
                if name := item["path"][start:]:  # some tools leave an empty object to stand for the directory
                    entries.append(Entry(name, False, item["size"], int(item["last_modified"].timestamp() * 1000)))
            return entries

    def create(self, path: str, data: bytes) -> None:
        key = self._key(path)
        connection = self._connection()
        with self._errors("create", path, changed=False):
            self._check_conditional(connection, path, key)
        with self._errors("create", path):
            try:
                obstore.put(connection.once, key, data, mode="create", use_multipart=False)
            except (StoreAlreadyExistsError, StorePreconditionError):
                # 412 means taken. 409 means that another put of this name is under way: it may yet fail.
                if not self.exists(path):
                    raise StorageError(
                        f"cannot create '{path}': another writer was creating it, and nothing stands there yet. "
                        "Nothing of ours was written. Try again.",
                        path=path,
                        changed=False,
                    ) from None
                raise AlreadyExistsError(
                    f"cannot create '{path}': it exists already. Nothing was changed.", path=path
                ) from None
            except (StoreNotSupportedError, NotImplementedError):
                raise _no_condition(path, self.root) from None
            except (StoreForbiddenError, StoreUnknownUserError) as error:  # refused before anything is done
                with self._errors("create", path, changed=False):
                    raise error

    def replace(self, path: str, data: bytes, *, durable: bool = False) -> None:
        key = self._key(path)
        with self._errors("write", path):
            obstore.put(self._client(), key, data, use_multipart=False)

    def writer(self, path: str) -> ObjectSink:
        key = self._key(path)
        with self._errors("write", path):
            upload = obstore.open_writer(self._client(), key, buffer_size=_PART_BYTES, max_concurrency=_PARTS_AT_ONCE)
        return ObjectSink(self, path, upload)

    def copy(self, pairs: Iterable[tuple[str, str]]) -> None:
        """See `Storage.copy`. Each object has at most the size that the store copies in one request (S3: 5 GiB)."""
        client = self._client()

        def copy_one(pair: tuple[str, str]) -> None:
            old, new = map(self._key, pair)
            with self._errors("copy", pair[0], missing=True):
                obstore.copy(client, old, new, overwrite=True)

        with ThreadPoolExecutor(_COPIES_AT_ONCE, thread_name_prefix="merganser-copy") as pool:
            for _ in pool.map(copy_one, pairs):
                pass

    def delete(self, paths: Iterable[str]) -> None:
        batch: list[str] = []
        for path in paths:
            batch.append(self._key(path))
            if len(batch) == _DELETE_BATCH:
                self._delete_keys(batch)
                batch = []
        self._delete_keys(batch)

    def uncache(self, paths: Iterable[str]) -> None:
        pass  # nothing of an object is kept

    def try_lock(self, directory: str) -> Callable[[], None] | None:
        return no_lock

    def delete_tree(self, path: str) -> None:
        for batch in self._below(path):
            self._delete_keys([key for key, _ in batch])

    def delete_empty(self, paths: Iterable[str]) -> None:
        pass  # a directory is there while something lies below it

    def move_tree(self, source: str, target: str) -> None:
        """Copy every object, then remove the originals, in the steps of `storage.moving`.

        Each object has at most the size that the store copies in one request (S3: 5 GiB).
        """
        source, target = source.rstrip("/"), target.rstrip("/")
        old, new = self._key(source, is_directory=True), self._key(target, is_directory=True)
        if new == old or new.startswith(f"{old}/"):
            raise InvalidInputError(
                f"cannot move '{source}' to '{target}': the target lies in the source.", path=target
            )
        client = self._client()
        sizes: dict[str, int] = {}
        marks: set[str] = set()  # of other tools, for directories: empty objects that have no name here

        def below(root: str) -> list[str]:
            start = len(self._key(root, is_directory=True)) + 1
            found = {key[start:]: size for batch in self._below(root) for key, size in batch}
            if root == source:
                sizes.update(found)
            return [*found, *marks]

        def copy_one(name: str) -> None:
            with self._errors("move", f"{source}/{name}", missing=True):
                try:
                    obstore.copy(client, f"{old}/{name}", f"{new}/{name}", overwrite=True)
                except FileNotFoundError:
                    if sizes[name]:
                        raise
                    marks.add(name)

        def copy(names: Sequence[str]) -> None:
            with ThreadPoolExecutor(_COPIES_AT_ONCE, thread_name_prefix="merganser-copy") as pool:
                list(pool.map(copy_one, names))

        move_by_copies(self, source, target, below=below, copy=copy)

    def _tail(self, key: str) -> tuple[bytes, int]:
        """Return the last bytes of an object, and its size."""
        client = self._client()
        try:
            result = obstore.get(client, key, options={"range": {"suffix": TAIL_BYTES}})
            return bytes(result.bytes()), int(result.meta["size"])
        except FileNotFoundError:
            raise
        except (StoreError, NotImplementedError):  # an empty object has no last bytes; Azure has no such request
            size = int(obstore.head(client, key)["size"])
            if not size:
                return b"", 0
            start = max(0, size - TAIL_BYTES)
            return _repeated(lambda: bytes(obstore.get_range(client, key, start=start, end=size))), size

    def _below(self, path: str) -> Iterator[Below]:
        """Yield key and size of all objects below a directory, in batches."""
        key = self._key(path, is_directory=True)
        pages = last = None

        def page() -> Sequence[Any] | None:
            nonlocal pages
            if pages is None:
                prefix = f"{key}/" if key else None
                pages = obstore.list(self._client(), prefix, offset=last, chunk_size=_DELETE_BATCH)
            try:
                return next(pages, None)
            except BaseException:
                pages = None  # the next attempt goes on after the last page
                raise

        with self._errors("list", path):
            while items := _repeated(page):
                last = items[-1]["path"]
                # Tools leave empty objects "key/" to stand for the directory; they come without the slash.
                yield [(item["path"], item["size"]) for item in items if item["path"] != key]

    def _delete_keys(self, keys: Sequence[str]) -> None:
        if not keys:
            return
        client = self._client()
        with self._errors("delete", f"{self.root}/{keys[0]}"):
            try:
                _repeated(lambda: obstore.delete(client, keys))
            except FileNotFoundError:  # Google and Azure say so, and do not say which
                for key in keys:
                    with contextlib.suppress(FileNotFoundError):
                        obstore.delete(client, key)

    def _check_conditional(self, connection: Connection, path: str, key: str) -> None:
        """Refuse a store that overwrites in spite of the precondition. Asks once per process."""
        if connection.keeps_conditions:
            return
        with connection.lock:
            if connection.keeps_conditions:
                return
            directory, slash, _ = key.rpartition("/")
            probe = f"{directory}{slash}.probe.{uuid.uuid4()}.tmp"
            try:
                obstore.put(connection.retrying, probe, b"1", use_multipart=False)
                try:
                    obstore.put(connection.once, probe, b"2", mode="create", use_multipart=False)
                except (StoreAlreadyExistsError, StorePreconditionError):
                    connection.keeps_conditions = True
                else:
                    raise _no_condition(path, self.root)
            finally:
                with contextlib.suppress(StoreError, OSError):
                    obstore.delete(connection.retrying, probe)

    def _connection(self) -> Connection:
        if self.lease is not None:
            self.lease.current()  # here its errors are ours, and not those of a client
        return connect(self.root, self._options, self.lease)

    def _client(self) -> Client:
        return self._connection().retrying

    def _key(self, path: str, *, is_directory: bool = False) -> str:
        """Return the key of a path."""
        if is_directory:
            path = path.rstrip("/")
            if path == self.root:
                return ""
        key = path.removeprefix(f"{self.root}/")
        if key == path or not all(part not in ("", ".", "..") for part in key.split("/")):
            raise InvalidInputError(f"'{path}' is no path below '{self.root}'.", path=path)
        return key

    @contextlib.contextmanager
    def _errors(self, verb: str, path: str, *, missing: bool = False, changed: bool = True) -> Iterator[None]:
        """Turn the errors of the client into ours, with the path and without secrets.

        Args:
            verb: what could not be done.
            path: to which file.
            missing: whether "not found" means this file. Else it means the bucket, or an upload that is gone.
            changed: whether something may have been changed; if not, a StorageError says so.
        """
        try:
            yield
        except MerganserError:
            raise
        except (StoreError, OSError, ValueError, NotImplementedError) as error:
            # Not chained: the cause prints requests in full, and those of Azure may carry a signature.
            if missing and isinstance(error, FileNotFoundError):
                raise NotFoundError(f"cannot {verb} '{path}': there is no such file.", path=path) from None
            held = self._options if self.lease is None else {**self._options, **self.lease.current()[0]}
            reason = reason_of(error, self.root, held)
            if not changed:
                raise StorageError(
                    f"cannot {verb} '{path}': {reason}. Nothing was changed.", path=path, changed=False
                ) from None
            raise StorageError(f"cannot {verb} '{path}': {reason}.", path=path) from None


class ObjectSink:
    """A new object that is being sent; it is invisible before `close`."""

    def __init__(self, storage: ObjectStorage, path: str, upload: obstore.WritableFile) -> None:
        self.path = path
        self._upload = _Upload(storage, path, upload)
        self.stream = pa.PythonFile(self._upload, mode="w")

    @property
    def size(self) -> int:
        return self._upload.tell()

    @property
    def checksum(self) -> int:
        return self._upload.crc

    def begin_sync(self) -> None:
        """Do nothing: what was written is on its way."""

    def tail(self, size: int) -> bytes:
        return self._upload.tail(size)

    def close(self) -> int:
        self._upload.finish()
        return self._upload.tell()

    def abort(self) -> None:
        """Drop the upload, or the object if it was closed.

        The parts of a sink that is neither closed nor dropped stay, unseen, until a rule of the bucket removes them.
        """
        self._upload.abort()


class _Upload(io.RawIOBase):
    """The target of the stream of a sink. Only `finish` makes the object visible; closing the stream does not."""

    def __init__(self, storage: ObjectStorage, path: str, upload: obstore.WritableFile) -> None:
        self._storage = storage
        self._path = path
        self._upload: obstore.WritableFile | None = upload
        self._waiting = bytearray()
        self._sent = b""
        self.crc = 0
        self._position = 0
        self._finished = False

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self._waiting += view
        self._position += len(view)
        if len(self._waiting) >= 1024 * 1024:  # the client takes a lock for each write; columnar writers make many
            self._send()
        return len(view)

    def _send(self) -> None:
        if self._upload is None:
            raise StorageError(f"cannot write '{self._path}': the upload was dropped or is complete.", path=self._path)
        if self._waiting:
            with self._storage._errors("write", self._path):
                self._sent = bytes(self._waiting)
                self.crc = zlib.crc32(self._sent, self.crc)
                self._upload.write(self._sent)
            self._waiting = bytearray()

    def tail(self, size: int) -> bytes:
        return (self._sent + self._waiting)[-size:]

    def finish(self) -> None:
        self._send()
        upload, self._upload = self._upload, None
        self._finished = True  # from here on the object may be there, whatever the reply
        if upload is not None:
            with self._storage._errors("write", self._path):
                upload.close()

    def abort(self) -> None:
        upload, self._upload = self._upload, None
        self._waiting = bytearray()
        with contextlib.suppress(StoreError, OSError):
            if upload is not None:
                error = RuntimeError("dropped")
                upload.__exit__(type(error), error, None)
            if self._finished:
                self._storage.delete([self._path])


def _repeated(request: Callable[[], T]) -> T:
    """Return the result of a request that may be repeated, where the client does not repeat it by itself.

    The client repeats what the store refuses. It does not repeat a request whose reply breaks off in the middle of a
    list, nor a removal whose reply is lost.
    """
    return _RETRIES.run(request, StoreError, lambda error: not isinstance(error, FileNotFoundError))


def _no_condition(path: str, root: str) -> UnsupportedError:
    return UnsupportedError(
        f"cannot create '{path}' safely: the store behind '{root}' overwrites objects though asked to create them only "
        "if absent, so two writers could both win. Nothing was written. Use a store with conditional puts "
        "(If-None-Match).",
        path=path,
    )

"""The door to storage: a path and options in, the storage and its absolute root path out.

::

    warehouse, ./x, ~/x, /x, file:/x, file:///x    LocalStorage     /absolute/x
    s3://bucket/x (s3a, s3n), oss://, gs://, az://  ObjectStorage    s3://bucket/x, oss://..., gs://..., az://...
    hdfs://host:8020/x, webhdfs://, swebhdfs://    HdfsStorage      hdfs://host:8020/x, ...
    memory://name/x                                MemoryStorage    memory://name/x

Root paths come out absolute and without a slash at the end, so that two spellings of one place are equal.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote

from merganser.errors import InvalidInputError
from merganser.options.catalog import LOCAL_SYNC
from merganser.storage.guarded import files_of
from merganser.storage.hdfs import HdfsStorage
from merganser.storage.hdfs_connection import SCHEMES as HDFS_SCHEMES
from merganser.storage.local import LocalStorage
from merganser.storage.memory import MemoryStorage
from merganser.storage.object_store import ObjectStorage
from merganser.storage.protocol import Storage

# Two letters at least: `C:` is a drive.
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(?=/)")
_OBJECT_STORES: Final = {"s3": "s3", "s3a": "s3", "s3n": "s3", "oss": "oss", "gs": "gs", "az": "az"}


def storage_for(path: str, options: Mapping[str, str] | None = None) -> tuple[Storage, str]:
    """Return the storage that `path` lives in, and the path made absolute.

    Nothing is read or written, and no connection is made.

    Args:
        path: a local path (absolute, relative to the working directory, or below `~`), or a URL.
        options: options of the catalog. `local.sync` and those of the store of `path` are read, others are ignored.

    Raises:
        InvalidInputError: the path is empty, its scheme is not known, or it names no bucket; or an option has
            no meaning.
    """
    options = {} if options is None else options
    if not path or "\0" in path:
        raise InvalidInputError(
            f"cannot open storage at {path!r}: a path has at least one character, and no NUL.", path=path
        )
    found = _SCHEME.match(path)
    if found is None:
        return LocalStorage(sync=_sync(options)), _local(path)
    scheme, rest = found[1].lower(), path[found.end() :]
    if scheme == "file":
        return LocalStorage(sync=_sync(options)), _local(_file_path(rest, path))
    if scheme == "memory":
        name, root = _authority(rest, scheme, path)
        return MemoryStorage(name), root
    if scheme in _OBJECT_STORES:
        bucket, root = _authority(rest, _OBJECT_STORES[scheme], path)
        return ObjectStorage(f"{_OBJECT_STORES[scheme]}://{bucket}", options), root
    if scheme in HDFS_SCHEMES:
        host, root = _authority(rest, scheme, path, what="host")
        return HdfsStorage(f"{scheme}://{host}", options), root
    raise InvalidInputError(
        f"cannot open '{path}': there is no storage for '{scheme}:'. There is a local path, 'file:', 's3:', "
        "'oss:', 'gs:', 'az:', 'hdfs:', 'webhdfs:', 'swebhdfs:' and 'memory:'.",
        path=path,
    )


def path_of(path: str) -> str:
    """Return a path as its storage has it; see `storage_for`. No option is read.

    Raises:
        InvalidInputError: the path is empty, its scheme is not known, or it names no bucket.
    """
    found = _SCHEME.match(path)
    scheme = found[1].lower() if found else ""
    if found is not None and scheme in _OBJECT_STORES:
        return _authority(path[found.end() :], _OBJECT_STORES[scheme], path)[1]
    if found is not None and scheme in HDFS_SCHEMES:
        return _authority(path[found.end() :], scheme, path, what="host")[1]
    return storage_for(path)[1]


def storage_beside(storage: Storage, path: str, options: Mapping[str, str]) -> tuple[Storage, str]:
    """Return the storage that `path` lives in, and the path: `storage` itself where it holds it.

    A local path stays as it was given, relative ones included.

    Args:
        storage: whose options hold for other buckets of its kind as well.
        path: a local path or URL.
        options: options of the store of `path`, before those.
    """
    if _SCHEME.match(path) is None:
        return LocalStorage(), os.path.expanduser(path)
    files = files_of(storage)
    if isinstance(files, ObjectStorage | HdfsStorage):
        options = files.options | dict(options)
    found, root = storage_for(path, options)
    return (storage if found == files else found), root


def _local(path: str) -> str:
    # Not realpath: a link may be moved to another disk while its name stays.
    return os.path.abspath(os.path.expanduser(path))


def _file_path(rest: str, path: str) -> str:
    """Return the path of a `file:` URL from what follows the scheme."""
    if rest.startswith("//"):
        host, slash, below = rest[2:].partition("/")
        if host not in ("", "localhost"):
            raise InvalidInputError(
                f"cannot open '{path}': a 'file:' URL names a path of this machine, and '{host}' stands for a host. "
                f"Write 'file:///{host}{slash}{below}'.",
                path=path,
            )
        rest = "/" + below
    return unquote(rest)


def _authority(rest: str, scheme: str, path: str, what: str = "bucket") -> tuple[str, str]:
    """Return the bucket (or host) and the root path of a URL from what follows its scheme."""
    bucket, _, below = rest.removeprefix("//").partition("/")
    parts = [part for part in below.split("/") if part]
    if not rest.startswith("//") or not bucket:
        raise InvalidInputError(
            f"cannot open '{path}': it names no {what}. Write '{scheme}://<{what}>/<path>'.", path=path
        )
    if "@" in bucket or "?" in path or "#" in path:
        raise InvalidInputError(
            f"cannot open storage of scheme '{scheme}': '@', '?' and '#' have no place in its path. Give keys and "
            "endpoints as options, or in the environment.",
            scheme=scheme,
        )
    if any(part in (".", "..") for part in parts):
        raise InvalidInputError(f"cannot open '{path}': '.' and '..' are not followed in such a path.", path=path)
    return bucket, "/".join([f"{scheme}://{bucket}", *parts])


def _sync(options: Mapping[str, str]) -> bool:
    text = str(options.get(LOCAL_SYNC.key, "true")).strip().lower()
    if text not in ("true", "false"):
        raise InvalidInputError(
            f"option '{LOCAL_SYNC.key}' is '{text}'. It is 'true' or 'false'.", option=LOCAL_SYNC.key
        )
    return text == "true"

"""How HDFS is reached: options in, requests of WebHDFS out, and replies as values or errors.

A namenode answers what concerns names by itself. For the bytes of a file it redirects to a datanode, which is asked in
a second request; where that one does not answer, the namenode is asked again for another one. Of several namenodes the
first one that is not on standby is asked from then on.

A process keeps a session for each root and set of options, with connections that its threads share; the least recently
used go first. A process that was forked makes its own: two processes must not read from one connection.

`requests` is the client (the extra `hdfs`), with `requests-gssapi` or `requests-kerberos` for Kerberos. It sends every
request once; what is repeated is said here. A delegation token, ours or one that a namenode puts into a redirect, is a
part of the URL of requests: no message holds a URL.

Docs: decision 0087.
"""

from __future__ import annotations

import contextlib
import getpass
import importlib
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import IO, Any, Final, TypeVar
from urllib.parse import quote, urlsplit

from merganser.errors import InvalidInputError, UnsupportedError
from merganser.options.catalog import OPTIONS
from merganser.options.registry import find_catalog_option
from merganser.storage.retries import Retries
from merganser.values import dataclass

T = TypeVar("T")

SCHEMES: Final = ("hdfs", "webhdfs", "swebhdfs")
_PORTS: Final = {"http": 9870, "https": 9871}
"""The ports of a namenode of Hadoop 3."""
_SESSIONS_MAX: Final = 32
"""Maximum number of sessions that a process keeps."""
_CONNECTIONS_MAX: Final = 32
"""Maximum number of idle connections that a session keeps to one server."""
_CONNECT_SECONDS: Final = 10
_REPLY_SECONDS: Final = 60
"""Maximum seconds until the next bytes of a reply. A datanode replies to a write once the whole pipeline has it."""
_BODY_BYTES: Final = 1 << 20
_RETRIES: Final = Retries(attempts=6, first_wait_ms=50, growth=3, longest_wait_ms=2000, deadline_s=30)
"""Waits add up to 4 s."""
_FAILOVER: Final = replace(_RETRIES, attempts=10, longest_wait_ms=5000, deadline_s=60)
"""Of several namenodes. Waits add up to 26 s: one takes over when it has noticed that another one is gone, by default
after 10 s."""

_STANDBY: Final = frozenset({"StandbyException", "ObserverRetryOnActiveException"})
_PASSING: Final = _STANDBY | {"RetriableException", "SafeModeException"}
"""Refusals of a namenode that pass. Nothing was done."""
_DATANODE_PASSING: Final = _PASSING | {"BlockMissingException", "ConnectException", "SocketTimeoutException"}


_UNAUTHORIZED: Final = 401
_BROKEN: Final = 500
"""Statuses from here on say that the server failed, and not whether it did what it was asked for."""
_WHO: Final = (
    "HTTP status 401: it does not know who asks, since no valid ticket of Kerberos (kinit) and no token came with the "
    "request; see the options 'hdfs.kerberos' and 'hdfs.delegation-token'"
)


class RemoteError(Exception):
    """A reply that is a refusal.

    Attributes:
        kind: the class of the exception there, without its package; "" if the reply does not say it.
        status: of HTTP.
    """

    def __init__(self, kind: str, status: int, message: str) -> None:
        super().__init__(f"{kind} ({message})" if kind and message else kind or message or f"HTTP status {status}")
        self.kind = kind
        self.status = status
        self.message = message


class NoReplyError(Exception):
    """There is no reply, or no whole one.

    Attributes:
        sent: whether a request that is sent once may have been carried out.
    """

    def __init__(self, reason: str, *, sent: bool) -> None:
        super().__init__(reason)
        self.sent = sent


@dataclass(frozen=True, slots=True)
class Target:
    """A root and its options, read and found good.

    Attributes:
        addresses: of the namenodes, such as `http://host:9870`.
        parameters: of each request: who asks. They may hold a token.
        kerberos: whether a ticket of Kerberos says who asks.
    """

    addresses: tuple[str, ...]
    parameters: Mapping[str, str] = field(repr=False)
    kerberos: bool


def options_of(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options that concern HDFS, with the user of this process where they do not say who asks.

    So jobs that carry them ask as the process that gave them.
    """
    found = {key: str(value) for key, value in options.items() if key.startswith("hdfs.")}
    if not found.get("hdfs.delegation-token") and not _flag(found, "hdfs.kerberos"):
        found.setdefault("hdfs.user", _own_name())
    return found


def target_of(root: str, options: Mapping[str, str]) -> Target:
    """Return what a root and its options mean.

    Args:
        root: `hdfs://host:8020`, `webhdfs://host:9870` or `swebhdfs://host:9871`; the ports may be left out, and the
            host is the name of a group of namenodes where `hdfs.webhdfs.address` says where they are.

    Raises:
        InvalidInputError: the root is none, an option is not known, or its value has no meaning.
    """
    scheme, _, authority = root.partition("://")
    if scheme not in SCHEMES or not authority or "/" in authority:
        raise InvalidInputError(
            f"'{root}' is no root of HDFS. Write 'hdfs://<host>:<port>', 'webhdfs://<host>:<port>' or "
            "'swebhdfs://<host>:<port>'.",
            root=root,
        )
    for key in options:
        if find_catalog_option(key) is None:
            names = ", ".join(f"'{known.key}'" for known in OPTIONS if known.key.startswith("hdfs."))
            raise InvalidInputError(f"unknown option '{key}'. Those of HDFS are {names}.", option=key)
    secure = "https" if scheme == "swebhdfs" else "http"
    told = options.get("hdfs.webhdfs.address")
    if told is None:
        told = authority.partition(":")[0] if scheme == "hdfs" else authority
    kerberos = _flag(options, "hdfs.kerberos")
    user, token = options.get("hdfs.user"), options.get("hdfs.delegation-token")
    given = [
        key for key in ("hdfs.user", "hdfs.kerberos", "hdfs.delegation-token") if options.get(key, "false") != "false"
    ]
    if len(given) > 1:
        raise InvalidInputError(
            f"options {' and '.join(map(repr, given))} both say who asks. Give one of them.", option=given[0]
        )
    parameters = {} if kerberos else {"delegation": token} if token else {"user.name": user} if user else {}
    return Target(tuple(_address(each.strip(), secure) for each in told.split(",")), parameters, kerberos)


def _address(text: str, secure: str) -> str:
    """Return the address of a server of HTTP from what an option or a URL says: `host`, `host:port` or a URL."""
    try:
        parts = urlsplit(text if "://" in text else f"{secure}://{text}")
        port = parts.port or _PORTS.get(parts.scheme)
        good = port and parts.hostname and "@" not in text and parts.path in ("", "/") and not parts.query
    except ValueError:
        good, port = False, None
    if not good:  # without the value: it may hold a password
        raise InvalidInputError(
            "option 'hdfs.webhdfs.address', or the address in the URL, is none. Write '<host>:<port>' of the HTTP "
            "server of a namenode, and commas between several.",
            option="hdfs.webhdfs.address",
        )
    host = parts.netloc.rpartition(":")[0] if parts.port else parts.netloc
    return f"{parts.scheme}://{host.rstrip(':')}:{port}"


def _flag(options: Mapping[str, str], name: str) -> bool:
    text = options.get(name, "false").strip().lower()
    if text not in ("true", "false"):
        raise InvalidInputError(f"option '{name}' is '{text}'. It is 'true' or 'false'.", option=name)
    return text == "true"


def _own_name() -> str:
    """Return who asks where neither options nor Kerberos say it, as clients of Hadoop do."""
    name = os.environ.get("HADOOP_USER_NAME")
    if name is None:
        with contextlib.suppress(OSError, KeyError, ImportError):  # a container's user may have no name
            name = getpass.getuser()
    return name or "hdfs"


class Connection:
    """The session of one root and set of options, shared by all threads of a process.

    Attributes:
        renames: whether the server is known to rename as writes need it. May turn true.
    """

    def __init__(self, target: Target) -> None:
        self.renames = False
        self._target = target
        self._requests = _package("requests", "the client of WebHDFS")
        self._active = 0  # which address answered last
        self._session = self._requests.Session()
        adapter = self._requests.adapters.HTTPAdapter(pool_maxsize=_CONNECTIONS_MAX)
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, adapter)
        self._auth = _kerberos() if target.kerberos else _nobody

    def ask(self, method: str, operation: str, path: str, *, once: bool = False, **parameters: Any) -> Any:
        """Return what a namenode replies, parsed; None for a reply without a body.

        Args:
            method: of HTTP.
            operation: of WebHDFS, such as `GETFILESTATUS`.
            path: in HDFS, absolute.
            once: the request is not repeated if it may have arrived.
            parameters: of the operation.

        Raises:
            RemoteError: it refuses.
            NoReplyError: there is no whole reply.
        """

        def parsed(reply: Any) -> Any:
            try:
                return reply.json() if reply.content else None
            except ValueError:
                raise NoReplyError("the reply is no JSON", sent=True) from None

        return self._of_namenode(method, operation, path, parameters, parsed, once=once)

    def read(self, path: str, start: int | None = None, length: int | None = None) -> bytes:
        """Return bytes of a file: all, or `length` from `start` on; errors as for `ask`."""
        parameters = {} if start is None else {"offset": start, "length": length}
        return self._of_datanode("GET", "OPEN", path, parameters, None)

    def write(self, path: str, body: IO[bytes]) -> None:
        """Write a file, whatever was there, with the bytes of `body`; directories are made. Errors as for `ask`.

        The file may be there, and not be whole, after an error.
        """
        self._of_datanode("PUT", "CREATE", path, {"overwrite": "true"}, body)

    def _of_namenode(
        self,
        method: str,
        operation: str,
        path: str,
        parameters: Mapping[str, Any],
        result: Callable[[Any], T],
        *,
        once: bool = False,
    ) -> T:
        """Return the result of the reply of a namenode that is active."""
        query = {"op": operation, **parameters, **self._target.parameters}
        addresses = self._target.addresses
        for attempt in self._retries().each():
            first = self._active  # other threads may find another one in the meantime
            for i in range(len(addresses)):
                active = (first + i) % len(addresses)
                is_last = attempt.is_last and i + 1 == len(addresses)
                url = f"{addresses[active]}/webhdfs/v1{quote(path)}"
                try:
                    reply = self._sent(method, url, params=query, auth=self._auth)
                    found = result(reply)
                except NoReplyError as error:
                    if is_last or (once and error.sent):
                        raise
                except RemoteError as error:
                    if once and error.status >= _BROKEN and error.kind not in _PASSING:
                        raise NoReplyError(str(error), sent=True) from None
                    if is_last or not (error.kind in _PASSING or error.status >= _BROKEN):
                        raise
                else:
                    self._active = active
                    return found
        raise AssertionError("the last attempt returns or raises")

    def _of_datanode(
        self, method: str, operation: str, path: str, parameters: dict[str, Any], body: IO[bytes] | None
    ) -> bytes:
        """Return the reply of a datanode that the namenode names."""

        def located(without: Sequence[str]) -> tuple[str | None, bytes]:
            told = parameters | ({"excludedatanodes": ",".join(without)} if without else {})
            return self._of_namenode(method, operation, path, told, lambda reply: (_location(reply), reply.content))

        without: list[str] = []
        for attempt in self._retries().each():
            try:
                url, content = located(without)
            except RemoteError as error:
                if not without or error.kind != "IOException":
                    raise
                without.clear()  # no other datanode has the bytes, or room for them
                url, content = located(without)
            if url is None:
                return content
            headers = {"Content-Type": "application/octet-stream"}
            try:
                reply = self._sent(method, url, data=body and (_Body(body) or b""), headers=headers, auth=_nobody)
                return bytes(reply.content)
            except NoReplyError:
                if attempt.is_last:
                    raise
                without.append(urlsplit(url).hostname or "")
            except RemoteError as error:
                if attempt.is_last or not (error.kind in _DATANODE_PASSING or error.status >= _BROKEN):
                    raise
                if error.kind in _STANDBY:  # a namenode on standby redirects writes all the same
                    self._active = (self._active + 1) % len(self._target.addresses)
        raise AssertionError("the last attempt returns or raises")

    def _retries(self) -> Retries:
        return _FAILOVER if len(self._target.addresses) > 1 else _RETRIES

    def _sent(self, method: str, url: str, **arguments: Any) -> Any:
        """Return a reply that is no refusal, with its whole body."""
        failures = self._requests.exceptions
        try:
            reply = self._session.request(
                method, url, timeout=(_CONNECT_SECONDS, _REPLY_SECONDS), allow_redirects=False, **arguments
            )
        except failures.RequestException as error:
            reason, sent = _lost(error)
            raise NoReplyError(reason, sent=sent) from None  # its text has the URL
        told = reply.headers.get("Content-Length")
        if told is not None and len(reply.content) != int(told) and not reply.headers.get("Content-Encoding"):
            raise NoReplyError(f"of a reply of {told} bytes {len(reply.content)} came", sent=True)
        if reply.status_code < 400:
            return reply
        raise _refusal(reply)


class _Body:
    """The bytes of a file, to be sent. Without any it is false: the client would send it in chunks of unknown number.

    A file has a descriptor, which the client would ask for: then a spooled one moves to the disk.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._size = file.seek(0, os.SEEK_END)
        file.seek(0)

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[bytes]:
        return iter(lambda: self.read(_BODY_BYTES), b"")

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes."""
        return self._file.read(size)


def _location(reply: Any) -> str | None:
    found: str | None = reply.headers.get("Location")
    return found


def _lost(error: Exception) -> tuple[str, bool]:
    """Return why there is no reply, without the URL, and whether the request may have arrived."""
    failures = importlib.import_module("urllib3.exceptions")
    cause = error.args[0] if error.args else None
    cause = getattr(cause, "reason", cause)
    told = isinstance(cause, failures.HTTPError | OSError)
    reason = str(cause) if told else type(error).__name__
    return reason, not isinstance(cause, failures.NewConnectionError | failures.ConnectTimeoutError)


def _refusal(reply: Any) -> RemoteError:
    """Return what a reply says that is no success."""
    try:
        said = reply.json()["RemoteException"]
        return RemoteError(str(said["exception"]), reply.status_code, str(said.get("message") or "").partition("\n")[0])
    except (ValueError, KeyError, TypeError):  # a page for people, of a proxy or of the filter that asks who it is
        return RemoteError("", reply.status_code, _WHO if reply.status_code == _UNAUTHORIZED else "")


def _package(name: str, what: str) -> Any:
    """Return a package that merganser does not need for anything else.

    Raises:
        UnsupportedError: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError:
        raise UnsupportedError(
            f"cannot reach HDFS: {what} is not installed ('{name}'). Install it: pip install 'merganser[hdfs]'."
        ) from None


def _kerberos() -> Any:
    """Return what answers when a server asks for Kerberos, with the ticket that `kinit` or a key table got."""
    with contextlib.suppress(ImportError):
        package = importlib.import_module("requests_gssapi")
        return package.HTTPSPNEGOAuth(mutual_authentication=package.OPTIONAL)
    with contextlib.suppress(ImportError):
        package = importlib.import_module("requests_kerberos")
        return package.HTTPKerberosAuth(mutual_authentication=package.OPTIONAL)
    raise UnsupportedError(
        "cannot reach HDFS: option 'hdfs.kerberos' is true, and no client of Kerberos is installed. Install it: "
        "pip install 'merganser[kerberos]'."
    )


def _nobody(request: Any) -> Any:
    """Leave a request as it is. Without it, the client would look for a password in `~/.netrc` for each request."""
    return request


class _Sessions:
    """All sessions of a process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.by_target: OrderedDict[tuple[str, frozenset[tuple[str, str]]], Connection] = OrderedDict()


_SESSIONS: Final = _Sessions()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_SESSIONS.__init__)  # type: ignore[misc]


def connect(root: str, options: Mapping[str, str]) -> Connection:
    """Return the session of a root, made at the first call. Sends nothing.

    Raises:
        UnsupportedError: the client is not installed.
    """
    with _SESSIONS.lock:
        key = (root, frozenset(options.items()))
        found = _SESSIONS.by_target.get(key)
        if found is None:
            found = _SESSIONS.by_target[key] = Connection(target_of(root, options))
            while len(_SESSIONS.by_target) > _SESSIONS_MAX:
                _SESSIONS.by_target.popitem(last=False)
        _SESSIONS.by_target.move_to_end(key)
        return found

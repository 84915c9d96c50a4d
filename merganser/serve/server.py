"""The server: a socket, connections with limits, signals, and an end that lets requests in work finish."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import http
import ipaddress
import logging
import os
import signal
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from merganser.errors import InvalidInputError, StorageError
from merganser.serve import answers
from merganser.serve.answers import RefusedError
from merganser.serve.http import ABORT, Access, HttpService

try:
    import resource
except ModuleNotFoundError:  # of Windows
    resource = None  # type: ignore[assignment]

TOKEN_CHARACTERS_MIN: Final = 16
_FILES: Final = 2048
"""Files of tables that may be open beside connections."""
_CLOSE_SECONDS: Final = 0.2
"""Maximum time that a client without a request has to confirm the end of its connection when the server stops."""
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_LOCAL: Final = ("localhost", "127.0.0.1", "[::1]")


def serve(
    service_of: Callable[[Access], HttpService],
    *,
    host: str,
    port: int,
    token: str | None,
    changes: bool,
    stop_seconds: float,
    started: Callable[[str], None],
    read_token: str | None = None,
    certificate: tuple[str, str] | None = None,
) -> int:
    """Serve what a service offers until SIGINT or SIGTERM.

    Then no connection is accepted any more, requests that wait for records are answered, and those in work finish.

    Args:
        service_of: makes the service, given who may ask.
        port: 0: a free one.
        token: what clients have to send; None is allowed on loopback alone.
        changes: let clients change something. That needs a token.
        stop_seconds: how long requests in work may take at the end.
        started: called with the address once connections are accepted.
        read_token: another token, of clients that only read.
        certificate: files with the chain and with the private key, as PEM; None: connections are not encrypted.

    Returns:
        How many requests the store did not answer until the end: their threads cannot be stopped.

    Raises:
        InvalidInputError: the token is too short, or missing where it is needed, or that of readers is the same; or the
            certificate is none.
        StorageError: the address is in use, or is not one of this machine.
    """
    _check(host, token, changes=changes)
    if read_token is not None:
        _check(host, read_token, changes=False)
        if read_token == token:
            raise InvalidInputError(
                "cannot serve: the tokens of clients that read and of those that write are the same, so all of them "
                "could write. Give two tokens."
            )
    if certificate is not None:
        _check_certificate(*certificate)
    listening = _listen(host, port)
    shown = f"[{host}]" if ":" in host else host
    hosts = frozenset({*_LOCAL, shown.lower()}) if token is None else None
    for name in ("uvicorn.error", "uvicorn.access", "uvicorn.asgi"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)  # what a client sends is no news, and goes to no log

    access = Access(_bytes(token), hosts, changes, _bytes(read_token))
    service = service_of(access)
    _allow_files(service.limits.connections)
    config = uvicorn.Config(
        service,
        http=_connections(service),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        ssl_certfile=None if certificate is None else certificate[0],
        ssl_keyfile=None if certificate is None else certificate[1],
        timeout_keep_alive=75,
        timeout_graceful_shutdown=max(1, round(stop_seconds)),
    )
    gc.collect()
    gc.freeze()  # else Python would walk over all modules again and again, for tens of milliseconds each time
    scheme = "http" if certificate is None else "https"
    server = _Server(config, service, lambda: started(f"{scheme}://{shown}:{listening.getsockname()[1]}"))
    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        runner.run(server.serve([listening]))
    return service.close()


def _bytes(token: str | None) -> bytes | None:
    return None if token is None else token.encode()


def is_loopback(host: str) -> bool:
    """Return whether only programs of this machine reach a server that listens there."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _check(host: str, token: str | None, *, changes: bool) -> None:
    if token is not None and (len(token) < TOKEN_CHARACTERS_MIN or not token.isascii() or not token.isprintable()):
        raise InvalidInputError(
            f"cannot serve: the token has {len(token)} characters. Give {TOKEN_CHARACTERS_MIN} or more printable ASCII "
            "characters, such as those that `openssl rand -hex 32` prints."
        )
    if token is None and not is_loopback(host):
        raise InvalidInputError(
            f"cannot serve at '{host}' without a token: other machines could read all tables. Give a token with "
            "--token-file or in the variable MERGANSER_TOKEN, or listen on 127.0.0.1."
        )
    if token is None and changes:
        raise InvalidInputError(
            "cannot let clients change anything without a token: any program of this machine could. Give a token with "
            "--token-file or in the variable MERGANSER_TOKEN."
        )


def _check_certificate(chain: str, key: str) -> None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(chain, key, password=lambda: "")
    except (OSError, ValueError) as error:  # those of OpenSSL are OSErrors
        reason = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
        raise InvalidInputError(
            f"cannot serve with the certificate in '{chain}' and the key in '{key}': {reason}. Give PEM files: the "
            "certificate with those that signed it, and its private key without a password."
        ) from None


def _listen(host: str, port: int) -> socket.socket:
    found = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        found = socket.socket(family, kind, protocol)
        if os.name == "posix":  # elsewhere the option lets two servers share an address
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
    except (OSError, OverflowError, UnicodeError) as error:
        if found is not None:
            found.close()
        raise StorageError(f"cannot listen at '{host}', port {port}: {error}. Choose another one.") from error
    found.setblocking(False)
    return found


def _allow_files(connections: int) -> None:
    """Raise the number of files that the process may have open, as far as the system lets it."""
    if resource is None:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + _FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with contextlib.suppress(ValueError, OSError):  # what it has is enough for fewer connections
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))


class _Server(uvicorn.Server):
    """Ends at a signal as the service does, with the exit code of a process that was not killed."""

    def __init__(self, config: uvicorn.Config, service: HttpService, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._service = service
        self._told = started
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        self._told()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.force_exit = self.should_exit and sig == signal.SIGINT  # of a second Ctrl-C
        self.should_exit = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._service.stop)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {sig: signal.signal(sig, self.handle_exit) for sig in _SIGNALS}
        try:
            yield
        finally:
            for sig, handler in before.items():
                signal.signal(sig, handler)


def _connections(service: HttpService) -> type[HttpToolsProtocol]:
    """Return a protocol for connections that keeps clients within limits before there is a request of them."""
    limits = service.limits

    class Connection(HttpToolsProtocol):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self._head_bytes = 0
            self._in_head = True
            self._late: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            if len(self.connections) > limits.connections:
                self._refuse(503, answers.BUSY, f"the server has {limits.connections:,} connections open.")
                return
            self._await_head()

        def connection_lost(self, exc: Exception | None) -> None:
            self._disarm()
            super().connection_lost(exc)

        def shutdown(self) -> None:
            super().shutdown()
            if self.transport.is_closing():  # no request is in work; over TLS an idle client confirms no close
                self.loop.call_later(_CLOSE_SECONDS, self.transport.abort)

        def data_received(self, data: bytes) -> None:
            if self._in_head:
                self._head_bytes += len(data)
            super().data_received(data)
            if self._in_head and self._head_bytes > limits.head_bytes:
                self._refuse_head()

        def on_message_begin(self) -> None:
            super().on_message_begin()
            self.scope["state"][ABORT] = self.transport.abort
            if self._late is None:
                self._await_head()

        def on_headers_complete(self) -> None:
            if self._has_large_head():
                raise ValueError  # the parser ends then, and `send_400_response` says why
            self._in_head, self._head_bytes = False, 0
            self._disarm()
            super().on_headers_complete()

        def on_message_complete(self) -> None:
            super().on_message_complete()
            self._in_head = True

        def send_400_response(self, msg: str) -> None:
            if self._has_large_head():
                self._refuse_head()
            else:
                self._refuse(400, answers.INVALID, "this is no request of HTTP/1.1.")

        def _has_large_head(self) -> bool:
            if self.headers is None:  # no request has begun
                return False
            return len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > limits.head_bytes

        def _refuse_head(self) -> None:
            told = f"the head of the request has more than {limits.head_bytes:,} bytes."
            self._refuse(431, answers.INVALID, told)

        def _await_head(self) -> None:
            self._late = self.loop.call_later(limits.head_seconds, self._too_late)

        def _too_late(self) -> None:
            self._late = None
            self._refuse(408, answers.LATE, f"no request came within {limits.head_seconds:g} s.")

        def _disarm(self) -> None:
            if self._late is not None:
                self._late.cancel()
                self._late = None

        def _refuse(self, status: int, code: str, message: str) -> None:
            if self.transport.is_closing():
                return
            body = service.refused(RefusedError(status, code, message)).body
            head = f"HTTP/1.1 {status} {http.HTTPStatus(status).phrase}\r\ncontent-type: application/json\r\n"
            more = f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
            if self.cycle is None or self.cycle.response_complete:  # else it would come amidst an answer
                self.transport.write((head + more).encode() + body)
            self.transport.close()

    return Connection

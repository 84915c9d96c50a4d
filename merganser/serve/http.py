"""A service over HTTP: a request in, an answer out; who may ask, how many at once, and how long a client may take.

Each request is checked in this order: the server is not stopping, the host and the token are right, there is room,
the path and its parameters have a meaning. The names of tables are checked by the catalog, which makes no path of a
name that could lead out of the warehouse.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.routing import Route, Router
from starlette.types import Message, Receive, Scope, Send

from merganser.catalogs.catalog import Catalog
from merganser.errors import InvalidInputError
from merganser.handle.table import Table
from merganser.serve import answers
from merganser.serve.answers import Answer, RefusedError
from merganser.serve.operations import Limits
from merganser.values import dataclass

T = TypeVar("T")
Verb = Callable[[Request], Awaitable[Answer]]
WORKERS: Final = 8
"""Requests that are worked on at a time. The others in work wait, so that memory holds few answers."""
_ANSWER: Final = "merganser.answer"
_PIECE_BYTES: Final = 64 << 10
ABORT: Final = "merganser.abort"
"""The key in the state of a request under which the server gives a function that cuts its connection."""
MAY_CHANGE: Final = "merganser.may-change"
"""The key in the state of a request that says whether the client may change what it asks about."""
_OF_BODIES: Final = frozenset({b"content-length", b"transfer-encoding"})


@dataclass(frozen=True)
class Access:
    """Who may ask.

    Attributes:
        token: what the header `Authorization: Bearer` has to say; None: no token is asked for.
        hosts: names that the header `Host` may say, without ports; None: any. A page in a browser cannot reach a
            server without a token by a name of its own.
        changes: whether clients with the token may change something.
        read_token: another token, of clients that only read.
        cookie: the name of a cookie that may hold the token, in hexadecimal digits, instead of the header; None: none.
    """

    token: bytes | None = None
    hosts: frozenset[str] | None = None
    changes: bool = False
    read_token: bytes | None = None
    cookie: str | None = None

    def check(self, headers: Mapping[bytes, bytes], *, unknown: int) -> bool:
        """Refuse a request that may not be made. Returns whether the client may change something.

        Args:
            unknown: the status for a client without a token that is known here.

        Raises:
            RefusedError: its host or its token is wrong.
        """
        if self.hosts is not None:
            host = headers.get(b"host", b"").decode("latin-1").lower()
            if (host if host.endswith("]") else host.rpartition(":")[0] or host) not in self.hosts:
                raise RefusedError(403, answers.REFUSED, "the server is not known by the name in the header Host.")
        if self.token is None:
            return self.changes
        scheme, _, given = (headers.get(b"authorization") or self._of_cookie(headers)).partition(b" ")
        is_writer = hmac.compare_digest(given.strip(), self.token)
        is_reader = self.read_token is not None and hmac.compare_digest(given.strip(), self.read_token)
        if scheme.lower() != b"bearer" or not (is_writer or is_reader):
            raise RefusedError(
                unknown,
                answers.REFUSED,
                "the token is missing or wrong. Send the header 'Authorization: Bearer TOKEN'.",
            )
        return self.changes and is_writer

    def _of_cookie(self, headers: Mapping[bytes, bytes]) -> bytes:
        """Return the header that a cookie stands for."""
        if self.cookie is None:
            return b""
        for pair in headers.get(b"cookie", b"").decode("latin-1").split(";"):
            name, _, value = pair.strip().partition("=")
            if name == self.cookie:
                with contextlib.suppress(ValueError):
                    return b"Bearer " + bytes.fromhex(value)
        return b""


class HttpService:
    """An ASGI application over a catalog. Subclasses say what can be asked.

    Args:
        log: takes a line for each error that is not the client's.
        open_paths: paths that need no token.
    """

    unknown_status = 403
    """The status for a client without a token that is known here."""

    def __init__(
        self,
        catalog: Catalog,
        access: Access,
        limits: Limits,
        log: Callable[[str], None],
        open_paths: Iterable[str] = (),
    ) -> None:
        self.catalog = catalog
        self.access = access
        self.limits = limits
        self.stopping = False
        self._log = log
        self._open_paths = frozenset(open_paths)
        self._in_work = 0
        self._sending = 0
        self._workers = ThreadPoolExecutor(WORKERS, thread_name_prefix="merganser-read")
        self._jobs: set[Future[Any]] = set()
        self._router = Router(list(self.routes()), redirect_slashes=False)

    # what subclasses say

    def routes(self) -> Iterable[Route]:
        """Return what can be asked."""
        raise NotImplementedError

    def refused(self, error: RefusedError) -> Answer:
        """Return a refusal as clients get it."""
        return answers.error_answer(error.status, error.code, error.message, error.headers)

    def failed(self, error: Exception) -> Answer:
        """Return an error as clients get it."""
        return answers.of_error(error, warehouse=self.catalog.warehouse, request=self.catalog.env.new_id())

    def no_route(self, scope: Scope, error: HTTPException) -> RefusedError:
        """Return what a client gets that asks for what there is not."""
        if error.status_code == 405:
            allowed = (error.headers or {}).get("Allow", "")
            told = f"{scope['path']} takes {allowed}, not {scope['method']:.20}."
            return RefusedError(405, answers.INVALID, told, allow=allowed)
        told = f"there is no path {scope['path']!r:.100} here. /openapi.json lists those that there are."
        return RefusedError(404, answers.NOT_THERE, told)

    # requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        assert scope["type"] == "http", scope["type"]  # the server hands over nothing else
        counted = False
        try:
            if self.stopping:
                raise RefusedError(
                    503, answers.BUSY, "the server is stopping. Ask again in a moment.", connection="close"
                )
            if scope["path"] not in self._open_paths:
                headers = dict(scope["headers"])
                scope["state"][MAY_CHANGE] = self.access.check(headers, unknown=self.unknown_status)
                self._check_room()
                self._in_work += 1
                counted = True
            scope["app"] = self  # so that the router raises an error where no route fits
            await self._router(scope, receive, send)
            answer = scope["state"][_ANSWER]
            if answer.pieces is None:
                await self._send(answer, scope, send)
            else:
                await self._send_pieces(answer, answer.pieces, scope, receive, send)
        except RefusedError as refused:
            await self._send(self.refused(refused), scope, send)
        except HTTPException as error:
            await self._send(self.refused(self.no_route(scope, error)), scope, send)
        except ClientDisconnect:
            pass
        finally:
            self._in_work -= counted

    def route(self, method: str, path: str, verb: Verb) -> Route:
        """Return a route whose errors are answered."""

        async def answered(request: Request) -> Answer:
            try:
                return await verb(request)
            except (RefusedError, ClientDisconnect):
                raise
            except Exception as error:
                found = self.failed(error)
                if found.logged is not None:
                    self._log(found.logged)
                return found

        return Route(path, _Endpoint(answered), methods=[method])

    def stop(self) -> None:
        """Refuse requests from now on."""
        self.stopping = True

    def close(self) -> int:
        """Give the threads up, and return how many of them are still busy."""
        self._workers.shutdown(wait=False, cancel_futures=True)
        return sum(not job.done() for job in self._jobs)

    # parts

    def _check_room(self) -> None:
        full = self._in_work >= self.limits.requests
        if full or self._sending > self.limits.sending_bytes:
            why = f"it works on {self._in_work} requests" if full else "clients are slow to read their answers"
            raise RefusedError(
                503, answers.BUSY, f"the server is busy: {why}. Nothing was read. Ask again in a moment."
            )

    def _open(self, name: str) -> Table:
        found = self.catalog.table(name)
        if not isinstance(found, Table):
            raise InvalidInputError(f"{name!r} names a part of a table. Give database.table.")
        return found

    async def _in_thread(self, work: Callable[[], T]) -> T:
        job = self._workers.submit(work)
        self._jobs.add(job)
        job.add_done_callback(self._jobs.discard)
        return await asyncio.wrap_future(job)

    async def _body(self, request: Request) -> bytes:
        """Return the body of a request.

        Raises:
            RefusedError: it is too large, or does not come.
        """
        body = bytearray()
        try:
            async with asyncio.timeout(self.limits.head_seconds):
                async for piece in request.stream():
                    body += piece
                    if len(body) > self.limits.body_bytes:
                        told = f"the body has more than {self.limits.body_bytes:,} bytes."
                        raise RefusedError(413, answers.INVALID, told)
        except TimeoutError:
            told = f"the body did not come within {self.limits.head_seconds:g} s."
            raise RefusedError(408, answers.LATE, told) from None
        return bytes(body)

    async def _send(self, answer: Answer, scope: Scope, send: Send) -> None:
        """Send an answer; cut the connection of a client that does not read it."""
        body = memoryview(answer.body)
        headers = [
            (b"content-type", answer.kind.encode()),
            (b"content-length", b"%d" % len(body)),
            *(() if "cache-control" in answer.headers else ((b"cache-control", b"no-store"),)),
            *((name.encode(), value.encode()) for name, value in answer.headers.items()),
        ]
        if answer.status != 200 and any(name in _OF_BODIES for name, _ in scope["headers"]):
            headers.append((b"connection", b"close"))  # the rest of the request may never come
        start: Message = {"type": "http.response.start", "status": answer.status, "headers": headers}
        large = len(body) > _PIECE_BYTES
        self._sending += len(body) if large else 0
        try:
            async with asyncio.timeout(self.limits.send_seconds):
                await send(start)
                for begin in range(0, max(1, len(body)), _PIECE_BYTES):
                    piece = body[begin : begin + _PIECE_BYTES]
                    more = begin + _PIECE_BYTES < len(body)
                    await send({"type": "http.response.body", "body": bytes(piece) if large else answer.body,
                                "more_body": more})  # fmt: skip
        except TimeoutError:
            scope["state"][ABORT]()
        finally:
            self._sending -= len(body) if large else 0

    async def _send_pieces(
        self, answer: Answer, pieces: AsyncIterator[bytes], scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Send an answer as it comes; end when the client goes, and cut the connection of one that does not read."""
        headers = [(name.encode(), value.encode()) for name, value in answer.headers.items()]
        kind = (b"content-type", answer.kind.encode())
        await send({"type": "http.response.start", "status": answer.status, "headers": [kind, *headers]})

        async def sent() -> None:
            async for piece in pieces:
                async with asyncio.timeout(self.limits.send_seconds):
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})

        async def gone() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        both = [asyncio.ensure_future(sent()), asyncio.ensure_future(gone())]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if both[0].done() and both[0].exception() is not None:
                scope["state"][ABORT]()  # the client does not read, or the pieces cannot go on
        finally:
            for each in both:
                each.cancel()
            await asyncio.gather(*both, return_exceptions=True)


class _Endpoint:
    """Leaves the answer of a function in the state of the request. Starlette takes what is no function as it is."""

    def __init__(self, answer: Verb) -> None:
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        scope["state"][_ANSWER] = await self._answer(Request(scope, receive))

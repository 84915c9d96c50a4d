"""The service: a request in, an answer out; who may ask, how many at once, and how long a client may take.

Each request is checked in this order: the server is not stopping, the host and the token are right, there is room,
the path and its parameters have a meaning. The names of tables are checked by the catalog, which makes no path of a
name that could lead out of the warehouse.
"""

from __future__ import annotations

import asyncio
import hmac
import json
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.routing import Route, Router
from starlette.types import Message, Receive, Scope, Send

from merganser.catalogs.catalog import Catalog
from merganser.errors import InvalidInputError, MerganserError, StreamParameterError
from merganser.handle.table import Table
from merganser.serve import answers, openapi
from merganser.serve.answers import Answer, RefusedError
from merganser.serve.operations import ARROW, HEALTH, STREAMS, Limits, Operation, operations
from merganser.serve.watch import Ticks, View, Watch
from merganser.shards.verbs import Records

T = TypeVar("T")
READERS: Final = 8
"""So many pages are read at a time, so memory holds no more of them; the other requests in work wait."""
_LOOKERS: Final = 4
_TABLES_MAX: Final = 1000
_ANSWER: Final = "merganser.answer"
_PIECE_BYTES: Final = 64 << 10
ABORT: Final = "merganser.abort"
"""The key in the state of a request under which the server gives a function that cuts its connection."""


@dataclass(frozen=True)
class Access:
    """Who may ask.

    Attributes:
        token: what the header `Authorization: Bearer` has to say; None: no token is asked for.
        hosts: names that the header `Host` may say, without ports; None: any. A page in a browser cannot reach a
            server without a token by a name of its own.
        changes: whether streams can be enabled and disabled.
    """

    token: bytes | None = None
    hosts: frozenset[str] | None = None
    changes: bool = False

    def check(self, headers: Mapping[bytes, bytes]) -> None:
        """Refuse a request that may not be made.

        Raises:
            RefusedError: its host or its token is wrong.
        """
        if self.hosts is not None:
            host = headers.get(b"host", b"").decode("latin-1").lower()
            if (host if host.endswith("]") else host.rpartition(":")[0] or host) not in self.hosts:
                raise RefusedError(403, answers.REFUSED, "the server is not known by the name in the header Host.")
        if self.token is not None:
            scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
            if scheme.lower() != b"bearer" or not hmac.compare_digest(given.strip(), self.token):
                raise RefusedError(
                    403,
                    answers.REFUSED,
                    "the token is missing or wrong. Send the header 'Authorization: Bearer TOKEN'.",
                )


class Service:
    """An ASGI application that serves the shard streams of a warehouse.

    Args:
        log: takes a line for each error that is not the client's.
    """

    def __init__(self, catalog: Catalog, access: Access, limits: Limits, log: Callable[[str], None]) -> None:
        self.catalog = catalog
        self.access = access
        self.limits = limits
        self.stopping = False
        self._log = log
        self._in_work = 0
        self._sending = 0
        self._stopped = asyncio.Event()
        self._ticks = Ticks()
        self._watches: OrderedDict[str, Watch] = OrderedDict()
        self._lookers = ThreadPoolExecutor(_LOOKERS, thread_name_prefix="merganser-look")
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="merganser-read")
        self._jobs: set[Future[Any]] = set()
        self._row_bytes: dict[str, float] = {}
        self._operations = operations(limits)
        self._router = self._routed()

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
            if scope["path"] not in _OPEN:
                self.access.check(dict(scope["headers"]))
                self._check_room()
                self._in_work += 1
                counted = True
            scope["app"] = self  # so that the router raises an error where no route fits
            await self._router(scope, receive, send)
            await self._send(scope["state"][_ANSWER], scope, send)
        except RefusedError as refused:
            await self._send(refused.answer, scope, send)
        except HTTPException as error:
            await self._send(_no_route(scope, error), scope, send)
        except ClientDisconnect:
            pass
        finally:
            self._in_work -= counted

    def stop(self) -> None:
        """Refuse requests from now on, and end the waiting of those that wait for records."""
        self.stopping = True
        self._stopped.set()
        for watch in self._watches.values():
            watch.wake()

    def close(self) -> int:
        """Give the threads up, and return how many of them are still busy."""
        for pool in (self._readers, self._lookers):
            pool.shutdown(wait=False, cancel_futures=True)
        return sum(not job.done() for job in self._jobs)

    def _check_room(self) -> None:
        full = self._in_work >= self.limits.requests
        if full or self._sending > self.limits.sending_bytes:
            why = f"it works on {self._in_work} requests" if full else "clients are slow to read their answers"
            raise RefusedError(
                503, answers.BUSY, f"the server is busy: {why}. Nothing was read. Ask again in a moment."
            )

    def _routed(self) -> Router:
        verbs: dict[str, Callable[[Request, dict[str, Any]], Awaitable[Answer]]] = {
            "records": self._records,  # first, since it is asked for most
            HEALTH.name: self._health,
            STREAMS.name: self._streams,
            "describe_stream": partial(self._describe, shards_alone=False),
            "shards": partial(self._describe, shards_alone=True),
            "shard_iterator": self._iterator,
            "enable_stream": self._enable,
            "disable_stream": self._disable,
        }
        document = openapi.document(self._operations.values(), self.limits, token=self.access.token is not None)
        page = Answer(openapi.page(document).encode(), kind="text/html; charset=utf-8", headers=openapi.PAGE_HEADERS)
        routes = []
        for name, verb in verbs.items():
            operation = self._operations[name]
            routes.append(
                Route(operation.path, _Endpoint(partial(self._answer, operation, verb)), methods=[operation.method])
            )
        for path, answer in (("/openapi.json", answers.of_json(document)), ("/", page)):
            routes.append(Route(path, _Endpoint(partial(_always, answer)), methods=["GET"]))
        return Router(routes, redirect_slashes=False)

    async def _answer(
        self, operation: Operation, verb: Callable[[Request, dict[str, Any]], Awaitable[Answer]], request: Request
    ) -> Answer:
        try:
            asked = operation.asked(request.scope["query_string"])
            if operation.changes and not self.access.changes:
                raise RefusedError(
                    403,
                    answers.REFUSED,
                    "this server only reads. `merganser serve-stream --allow-changes` lets clients enable and disable "
                    "streams.",
                )
            has_body = request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers
            if operation.body is None and has_body:
                raise StreamParameterError(f"{operation.method} {operation.path} takes no body.")
            return await verb(request, asked)
        except (RefusedError, ClientDisconnect):
            raise
        except Exception as error:
            found = answers.of_error(error, warehouse=self.catalog.warehouse, request=self.catalog.env.new_id())
            if found.logged is not None:
                self._log(found.logged)
            return found

    # verbs

    async def _health(self, _request: Request, _asked: dict[str, Any]) -> Answer:
        return answers.of_json({"status": "ok"})

    async def _streams(self, _request: Request, asked: dict[str, Any]) -> Answer:
        found = await self._in_thread(partial(self.catalog.streams, asked["table"]))
        return answers.of_json({"streams": [answers.stream_json(each) for each in found]})

    async def _describe(self, request: Request, asked: dict[str, Any], *, shards_alone: bool) -> Answer:
        view = await self._look(request.path_params["table"])

        def described() -> Answer:
            found = view.verbs.describe(asked["start_shard"], asked["limit"])
            if shards_alone:
                return answers.of_json(answers.shards_json(found))
            schema = view.verbs.table.schema
            columns = {each.name: str(each.type) for each in schema.fields}
            return answers.of_json(answers.description_json(found, columns, tuple(schema.primary_keys)))

        return await self._in_thread(described)

    async def _iterator(self, request: Request, asked: dict[str, Any]) -> Answer:
        view = await self._look(request.path_params["table"])
        timestamp = asked["timestamp"]
        if timestamp is not None and timestamp.isascii() and timestamp.isdigit() and len(timestamp) < 19:
            timestamp = int(timestamp)
        find = partial(view.verbs.iterator, asked["shard"], timestamp, asked["at"])
        return answers.of_json({"iterator": await self._in_thread(find)})

    async def _records(self, request: Request, asked: dict[str, Any]) -> Answer:
        loop, name = asyncio.get_running_loop(), request.path_params["table"]
        until = loop.time() + asked["wait"]
        arrow = asked["format"] == ARROW or (
            asked["format"] is None and answers.ARROW_TYPE in request.headers.get("accept", "")
        )
        form = {"arrow": arrow, "big_as_text": asked["integers"] == "text"}
        iterator = asked["iterator"]
        while True:
            view = await self._look(name)
            if not view.verbs.idle(iterator, view.newest):
                size, after, answer = await self._in_thread(partial(self._page, name, view, iterator, asked, form))
                if size or after is None:
                    return answer
                iterator = after
            if loop.time() >= until or self.stopping:
                break
            await self._wait(self._watch(name), view, until - loop.time(), request)
        shape = view.verbs.shape(before=asked["before"], full=asked["full"])
        if arrow:
            return answers.of_records(Records(view.verbs.reader.no_records(shape), iterator, False), arrow=True)
        return answers.no_records_json(iterator)

    def _page(
        self, name: str, view: View, iterator: str, asked: dict[str, Any], form: dict[str, bool]
    ) -> tuple[int, str | None, Answer]:
        """Return how many records a page has, where the next one begins, and the page.

        Where rows are large, it has fewer records than the client asked for.
        """
        most = self.limits.page_bytes
        limit = max(1, min(asked["limit"], int(most / max(1.0, self._row_bytes.get(name, 1.0)))))
        while True:
            page = view.verbs.records(iterator, limit, before=asked["before"], full=asked["full"], gaps=asked["gaps"])
            size, rows = page.records.nbytes, page.records.num_rows
            if rows:
                self._row_bytes[name] = size / rows
            if size <= most * 1.25 or rows <= 1:
                return rows, page.next_iterator, answers.of_records(page, **form)
            limit = max(1, int(rows * most / size / 2))

    async def _wait(self, watch: Watch, view: View, seconds: float, request: Request) -> None:
        """Wait for news of a table; a request that waits is not in work."""
        self._in_work -= 1
        gone = asyncio.ensure_future(_gone(request.receive))
        news = asyncio.ensure_future(watch.news(view, seconds))
        try:
            await asyncio.wait((gone, news), return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                raise ClientDisconnect
        finally:
            self._in_work += 1
            for each in (gone, news):
                each.cancel()

    async def _enable(self, request: Request, _asked: dict[str, Any]) -> Answer:
        body = await self._body(request)
        try:
            given = json.loads(body) if body else {}
        except (ValueError, RecursionError):
            given = None
        if not isinstance(given, dict) or set(given) - {"retention"} or not isinstance(given.get("retention", ""), str):
            raise StreamParameterError('the body has no meaning. Send JSON such as {"retention": "24 h"}.')

        def enabled() -> Answer:
            table = self._open(request.path_params["table"])
            found = table.enable_stream(given.get("retention", "24 h"))
            return answers.of_json({"stream_id": found.stream_id, "retention_seconds": found.retention.total_seconds()})

        return await self._in_thread(enabled)

    async def _disable(self, request: Request, _asked: dict[str, Any]) -> Answer:
        await self._in_thread(lambda: self._open(request.path_params["table"]).disable_stream())
        return answers.of_json({"status": "disabled"})

    # parts

    def _open(self, name: str) -> Table:
        found = self.catalog.table(name)
        if not isinstance(found, Table):
            raise InvalidInputError(f"{name!r} names a part of a table, which has no stream. Give database.table.")
        return found

    async def _look(self, name: str) -> View:
        """Return a view of a table; forget names that there are no tables of."""
        watch = self._watch(name)
        try:
            return await watch.look()
        except MerganserError:
            if not watch.in_use and self._watches.get(name) is watch:
                del self._watches[name]
            raise

    def _watch(self, name: str) -> Watch:
        found = self._watches.get(name)
        if found is None:
            found = self._watches[name] = Watch(partial(self._open, name), self._lookers, self._ticks)
            for other in [each for each, watch in self._watches.items() if not watch.in_use]:
                if len(self._watches) <= _TABLES_MAX:
                    break
                if other != name:
                    del self._watches[other]
                    self._row_bytes.pop(other, None)
        self._watches.move_to_end(name)
        return found

    async def _in_thread(self, work: Callable[[], T]) -> T:
        job = self._readers.submit(work)
        self._jobs.add(job)
        job.add_done_callback(self._jobs.discard)
        return await asyncio.wrap_future(job)

    async def _body(self, request: Request) -> bytes:
        """Return the body of a request.

        Raises:
            RefusedError: it is too large, or does not come.
        """
        body = b""
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
        return body

    async def _send(self, answer: Answer, scope: Scope, send: Send) -> None:
        """Send an answer; cut the connection of a client that does not read it."""
        body = memoryview(answer.body)
        headers = [
            (b"content-type", answer.kind.encode()),
            (b"content-length", b"%d" % len(body)),
            (b"cache-control", b"no-store"),
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


class _Endpoint:
    """Leaves the answer of a function in the state of the request. Starlette takes what is no function as it is."""

    def __init__(self, answer: Callable[[Request], Awaitable[Answer]]) -> None:
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        scope["state"][_ANSWER] = await self._answer(Request(scope, receive))


async def _always(answer: Answer, _request: Request) -> Answer:
    return answer


def _no_route(scope: Scope, error: HTTPException) -> Answer:
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "")
        told = f"{scope['path']} takes {allowed}, not {scope['method']:.20}."
        return answers.error_answer(405, answers.INVALID, told, {"allow": allowed})
    told = f"there is no path {scope['path']!r:.100} here. /openapi.json lists those that there are."
    return answers.error_answer(404, answers.NOT_THERE, told)


_OF_BODIES: Final = frozenset({b"content-length", b"transfer-encoding"})
_OPEN: Final = frozenset({HEALTH.path, "/", "/openapi.json"})


async def _gone(receive: Receive) -> None:
    """Return when the client has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass

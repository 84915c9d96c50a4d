"""The service of shard streams: what can be asked, and how it is answered. See `http` for what any service does."""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

from starlette.requests import ClientDisconnect, Request
from starlette.routing import Route
from starlette.types import Receive

from merganser.catalogs.catalog import Catalog
from merganser.errors import MerganserError, StreamParameterError
from merganser.serve import answers, openapi
from merganser.serve.answers import Answer, RefusedError
from merganser.serve.http import MAY_CHANGE, Access, HttpService
from merganser.serve.operations import ARROW, HEALTH, STREAMS, Limits, Operation, operations
from merganser.serve.watch import Ticks, View, Watch
from merganser.shards.verbs import Records

_LOOKERS: Final = 4
_TABLES_MAX: Final = 1000


class Service(HttpService):
    """An ASGI application that serves the shard streams of a warehouse.

    Args:
        log: takes a line for each error that is not the client's.
    """

    def __init__(self, catalog: Catalog, access: Access, limits: Limits, log: Callable[[str], None]) -> None:
        self._stopped = asyncio.Event()
        self._ticks = Ticks()
        self._watches: OrderedDict[str, Watch] = OrderedDict()
        self._lookers = ThreadPoolExecutor(_LOOKERS, thread_name_prefix="merganser-look")
        self._row_bytes: dict[str, float] = {}
        self._operations = operations(limits)
        super().__init__(catalog, access, limits, log, _OPEN)

    # requests

    def stop(self) -> None:
        """Refuse requests from now on, and end the waiting of those that wait for records."""
        super().stop()
        self._stopped.set()
        for watch in self._watches.values():
            watch.wake()

    def close(self) -> int:
        """Give the threads up, and return how many of them are still busy."""
        self._lookers.shutdown(wait=False, cancel_futures=True)
        return super().close()

    def routes(self) -> Iterable[Route]:
        """Return what can be asked."""
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
        for name, verb in verbs.items():
            operation = self._operations[name]
            yield self.route(operation.method, operation.path, partial(self._answer, operation, verb))
        for path, answer in (("/openapi.json", answers.of_json(document)), ("/", page)):
            yield self.route("GET", path, partial(_always, answer))

    async def _answer(
        self, operation: Operation, verb: Callable[[Request, dict[str, Any]], Awaitable[Answer]], request: Request
    ) -> Answer:
        asked = operation.asked(request.scope["query_string"])
        if operation.changes and not request.scope["state"][MAY_CHANGE]:
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


async def _always(answer: Answer, _request: Request) -> Answer:
    return answer


_OPEN: Final = frozenset({HEALTH.path, "/", "/openapi.json"})


async def _gone(receive: Receive) -> None:
    """Return when the client has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass

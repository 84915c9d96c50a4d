"""The service of the console: who may ask, and how pages become answers. See `serve.http` for what any service does."""

from __future__ import annotations

import asyncio
import hmac
import json
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import Any, Final
from urllib.parse import parse_qsl, quote, urlencode

from markupsafe import escape
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.routing import Route
from starlette.types import Scope

from merganser.catalogs.catalog import Catalog
from merganser.console import html
from merganser.console.jobs import Jobs
from merganser.console.page import Asked, News, Page
from merganser.console.pages import sql
from merganser.console.pages.all import PAGES
from merganser.errors import InvalidInputError, MerganserError, StorageError
from merganser.serve import answers
from merganser.serve.answers import Answer, RefusedError
from merganser.serve.http import MAY_CHANGE, WORKERS, Access, HttpService
from merganser.serve.operations import Limits

COOKIE: Final = "merganser-console"
_HTML: Final = "text/html; charset=utf-8"
_HEADERS: Final = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
}
_KNOWN_MAX: Final = 20_000
_FIELDS_MAX: Final = 200
_LOOK_SECONDS: Final = 1.0
_ALIVE_SECONDS: Final = 15.0


class Findings:
    """What was found in immutable snapshots: the newest `_KNOWN_MAX` findings."""

    def __init__(self) -> None:
        self._values: OrderedDict[tuple[object, ...], Any] = OrderedDict()
        self._lock = Lock()

    def get(self, key: tuple[object, ...], make: Callable[[], Any]) -> Any:
        """Return what is kept under a key, or make it; two threads may make it at the same time."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
        value = make()
        with self._lock:
            self._values[key] = value
            while len(self._values) > _KNOWN_MAX:
                self._values.popitem(last=False)
        return value


class ConsoleService(HttpService):
    """An ASGI application that serves the pages of the console.

    Args:
        log: takes a line for each error that is not the client's.
    """

    unknown_status = 401

    def __init__(self, catalog: Catalog, access: Access, limits: Limits, log: Callable[[str], None]) -> None:
        self._known = Findings()
        self._jobs_of_pages = Jobs(catalog.env.clock)
        self._forms = asyncio.Semaphore(WORKERS // 2)
        open_paths = ("/login", "/health", *(f"/static/{name}" for name in html.STATIC))
        super().__init__(catalog, replace(access, cookie=COOKIE), limits, log, open_paths)

    def routes(self) -> Iterable[Route]:
        """Return what can be asked."""
        for page in PAGES:
            yield self.route("GET", page.path, partial(self._page, page))
            if page.act is not None:
                yield self.route("POST", page.path, partial(self._act, page))
            if page.events is not None:
                yield self.route("GET", f"{page.path}/events", partial(self._events, page))
        yield self.route("GET", "/static/{name}", self._static)
        yield self.route("GET", "/health", self._health)
        yield self.route("GET", "/login", self._login_page)
        yield self.route("POST", "/login", self._login)
        yield self.route("POST", "/logout", self._logout)

    # answers

    async def _page(self, page: Page, request: Request) -> Answer:
        asked = self._asked(page, request)
        part = asked.text("part") or None
        return await self._in_thread(lambda: self._rendered(page, asked, page.view(asked), part))

    async def _act(self, page: Page, request: Request) -> Answer:
        _check_origin(request)
        asked, act = self._asked(page, request), page.act
        if page.changes and not asked.may_change:
            raise RefusedError(403, answers.REFUSED, _READ_ONLY)
        form = _form(await self._body(request))
        assert act is not None
        return await self._while_there(
            request, page, asked, lambda: self._rendered(page, asked, act(asked, form), None)
        )

    async def _while_there(self, request: Request, page: Page, asked: Asked, work: Callable[[], Answer]) -> Answer:
        """Do what a form asks. Only some forms run at once, so that threads are left for pages.

        Raises:
            ClientDisconnect: the client has gone before its turn came.
        """

        async def in_turn() -> Answer:
            async with self._forms:
                if (gone.done() or self.stopping) and not page.changes:
                    raise ClientDisconnect
                return await self._in_thread(work)

        answer, gone = asyncio.ensure_future(in_turn()), asyncio.ensure_future(request.receive())
        try:
            while not answer.done():
                if gone.done() or self.stopping:
                    for stop in asked.when_gone:
                        stop()
                waited = (answer,) if gone.done() else (answer, gone)
                await asyncio.wait(waited, timeout=_LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            return await answer
        finally:
            gone.cancel()

    async def _events(self, page: Page, request: Request) -> Answer:
        asked, events = self._asked(page, request), page.events
        assert events is not None
        first = await self._in_thread(lambda: events(asked, None))  # what cannot be followed is told before

        async def pieces() -> AsyncIterator[bytes]:
            news: News = first
            quiet = 0.0
            while not self.stopping:
                for name, text in news.html:
                    yield _event(name, text)
                quiet = 0.0 if news.html else quiet + _LOOK_SECONDS
                if quiet >= _ALIVE_SECONDS:  # or nobody would notice a client that has gone
                    quiet = 0.0
                    yield b": still here\n\n"
                await asyncio.sleep(_LOOK_SECONDS)
                position = news.position
                try:
                    news = await self._in_thread(partial(events, asked, position))
                except MerganserError as error:
                    yield _event("fault", str(escape(error.message)))
                    return

        headers = _HEADERS | {"cache-control": "no-store", "x-accel-buffering": "no"}
        return Answer(b"", kind="text/event-stream", headers=headers, pieces=pieces())

    def _asked(self, page: Page, request: Request) -> Asked:
        may_change = bool(request.scope["state"][MAY_CHANGE])
        if page.changes and not may_change:
            raise RefusedError(403, answers.REFUSED, _READ_ONLY)
        text = request.scope["query_string"].decode("latin-1")
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=_FIELDS_MAX)
        query = {name: value for name, value in pairs if value or name.startswith("k.")}  # a key may be an empty text
        table = request.path_params.get("table", "")
        path = page.path.replace("{table}", quote(table))
        return Asked(self.catalog, path, query, may_change, self._known, self._jobs_of_pages, table)

    def _rendered(self, page: Page, asked: Asked, context: Mapping[str, Any], part: str | None) -> Answer:
        if "answer" in context:  # no page: a file, or figures for the script
            found: Answer = context["answer"]
            return replace(found, headers=_HEADERS | dict(found.headers))
        frame = self._frame(page, asked)
        try:
            body = html.render(page.name, {**frame, **context}, part)
        except KeyError:
            raise InvalidInputError(f"the page has no part {part!r:.60}.") from None
        return Answer(body, context.get("status", 200), kind=_HTML, headers=_HEADERS)

    def _frame(self, page: Page | None, asked: Asked | None) -> dict[str, Any]:
        """Return what all pages show around their own."""
        table = asked.table_name if asked is not None else ""
        may_change = asked is not None and asked.may_change
        tabs = [
            (each, each.path.replace("{table}", quote(table)))
            for each in PAGES
            if each.title and (may_change or not each.changes) and (bool(table) == ("{table}" in each.path))
        ]
        if table:
            query = f"SELECT * FROM {'.'.join(map(_quoted, table.split('.', 1)))} LIMIT 100"
            tabs.append((sql.PAGE, f"{sql.PAGE.path}?{urlencode({'statement': query})}"))
        return {
            "page": page,
            "asked": asked,
            "table_name": table,
            "may_change": may_change,
            "has_token": self.access.token is not None,
            "warehouse": self.catalog.warehouse,
            "tabs": tabs,
            "now": self.catalog.env.clock(),
        }

    async def _static(self, request: Request) -> Answer:
        try:
            body, kind = html.static_file(request.path_params["name"])
        except KeyError:
            raise RefusedError(404, answers.NOT_THERE, "there is no such file.") from None
        headers = {"cache-control": "public, max-age=31536000, immutable"}
        return Answer(body, kind=kind, headers=_HEADERS | headers)

    async def _health(self, _request: Request) -> Answer:
        return answers.of_json({"status": "ok"})

    # errors as pages

    def refused(self, error: RefusedError) -> Answer:
        """Return a refusal as a page; that of a client without a token asks for it."""
        if error.status == 401 and self.access.token is not None:
            return self._login_form(401, None)
        return self._error(error.status, error.message, error.headers)

    def failed(self, error: Exception) -> Answer:
        """Return an error as a page."""
        found = super().failed(error)
        message = json.loads(found.body)["message"]
        if isinstance(error, MerganserError) and not isinstance(error, StorageError):
            message = error.message  # says which file of the table is damaged
        page = self._error(found.status, message, found.headers)
        return replace(page, logged=found.logged)

    def no_route(self, scope: Scope, error: HTTPException) -> RefusedError:
        """Return what a client gets that asks for what there is not."""
        if error.status_code == 405:
            return super().no_route(scope, error)
        return RefusedError(404, answers.NOT_THERE, f"there is no page {scope['path']!r:.100}.")

    def _error(self, status: int, message: str, headers: Mapping[str, str]) -> Answer:
        body = html.render("error", {**self._frame(None, None), "status": status, "message": message})
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return Answer(body, status, _HTML, _HEADERS | named)

    # the token

    async def _login_page(self, _request: Request) -> Answer:
        return self._login_form(200, None)

    async def _login(self, request: Request) -> Answer:
        _check_origin(request)
        given = _form(await self._body(request)).get("token", "").strip().encode()
        known = [token for token in (self.access.token, self.access.read_token) if token is not None]
        if not any(hmac.compare_digest(given, token) for token in known):
            return self._login_form(401, "This is not the token of the server.")
        secure = "; Secure" if request.url.scheme == "https" else ""
        cookie = f"{COOKIE}={given.hex()}; Path=/; HttpOnly; SameSite=Strict{secure}"
        return Answer(b"", 303, _HTML, _HEADERS | {"location": "/", "set-cookie": cookie})

    async def _logout(self, request: Request) -> Answer:
        _check_origin(request)
        cookie = f"{COOKIE}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0"
        return Answer(b"", 303, _HTML, _HEADERS | {"location": "/login", "set-cookie": cookie})

    def _login_form(self, status: int, message: str | None) -> Answer:
        body = html.render("login", {**self._frame(None, None), "message": message})
        return Answer(body, status, _HTML, _HEADERS)


_READ_ONLY: Final = (
    "this console only reads. `merganser ui --allow-upkeep` with a token lets clients with the token change tables."
)


def _event(name: str, text: str) -> bytes:
    data = "".join(f"data: {line}\n" for line in text.splitlines() or [""])
    return f"event: {name}\n{data}\n".encode()


def _check_origin(request: Request) -> None:
    """Refuse a form that a page of somebody else sends.

    Raises:
        RefusedError: the browser says that it comes from elsewhere, or not where from.
    """
    origin = request.headers.get("origin", "")
    if not origin and request.headers.get("authorization", "").lower().startswith("bearer "):
        return  # a script: a page of somebody else cannot send this header
    site = request.headers.get("sec-fetch-site", "same-origin")
    if site not in ("same-origin", "none") or origin.partition("://")[2] != request.headers.get("host", ""):
        raise RefusedError(403, answers.REFUSED, "the form does not come from a page of this console.")


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _form(body: bytes) -> dict[str, str]:
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=_FIELDS_MAX))
    except ValueError:
        raise InvalidInputError("the form is not percent-encoded UTF-8.") from None

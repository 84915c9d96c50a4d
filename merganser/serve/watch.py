"""Watch: what is known of one table, looked up once for all requests that came in the meantime.

A request gets a view that was taken after it came, so no answer is older than its request. While a look is under way,
requests gather for the next one. So thousands of polls of a table cost as much as 200 looks a second, whatever the
number of clients. Requests that wait for news are woken by looks, too.

All of it runs on the event loop; only the look itself goes to a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, Final

from merganser.handle.table import Table
from merganser.meta.snapshot import Snapshot
from merganser.shards.verbs import Verbs
from merganser.values import dataclass

SPACING_SECONDS: Final = 0.005
"""Looks at a table begin at least so far apart, and those of all tables with waiting requests together."""
TICK_SECONDS: Final = 0.02
"""How soon a waiting request hears of a commit, where few tables are waited for."""
_PATIENCE: Final = 4
"""Between looks for waiting requests passes so many times the time of a look."""


@dataclass(frozen=True, slots=True)
class View:
    """A table at a moment.

    Attributes:
        verbs: of its stream.
        newest: its newest snapshot.
    """

    verbs: Verbs
    newest: Snapshot | None

    @property
    def mark(self) -> tuple[object, ...]:
        """What differs after each change that records come from."""
        newest = self.newest
        return (self.verbs, None if newest is None else (newest.id, newest.time_millis))


class Ticks:
    """How many tables have waiting requests: the more, the rarer each is looked at."""

    def __init__(self) -> None:
        self.tables = 0


class Watch:
    """The views of one table.

    Args:
        open_table: opens it by its name, with one read of its schema.
        threads: where looks run.
    """

    def __init__(self, open_table: Callable[[], Table], threads: Executor, ticks: Ticks) -> None:
        self.view: View | None = None
        self._open_table = open_table
        self._threads = threads
        self._ticks = ticks
        self._one = asyncio.Lock()
        self._next: asyncio.Task[View] | None = None
        self._begun = -1.0
        self._took = 0.0
        self._waiting: set[asyncio.Future[None]] = set()
        self._ticker: asyncio.Task[None] | None = None

    @property
    def in_use(self) -> bool:
        """Whether a look is under way or a request waits."""
        return self._next is not None or self._ticker is not None or self._one.locked()

    async def look(self) -> View:
        """Return a view that is taken after this call.

        Raises:
            MerganserError: the table cannot be opened, or keeps no stream.
        """
        if self._next is None:
            self._next = asyncio.get_running_loop().create_task(self._take())
            self._next.add_done_callback(_taken)
        return await asyncio.shield(self._next)

    async def news(self, view: View, seconds: float) -> None:
        """Return when a look found something else than a view, cannot be done any more, or after a time."""
        if self.view is None or self.view.mark != view.mark:
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(woken)
        if self._ticker is None:
            self._ticker = asyncio.get_running_loop().create_task(self._tick())
            self._ticker.add_done_callback(_taken)
        try:
            await asyncio.wait_for(woken, seconds)
        except TimeoutError:
            pass
        finally:
            self._waiting.discard(woken)

    def wake(self) -> None:
        """End all waiting."""
        for woken in self._waiting:
            if not woken.done():
                woken.set_result(None)

    async def _take(self) -> View:
        loop = asyncio.get_running_loop()
        async with self._one:
            early = self._begun + SPACING_SECONDS - loop.time()
            if early > 0:
                await asyncio.sleep(early)
            self._next = None  # requests that come from now on need another one
            self._begun = loop.time()
            try:
                self.view = await loop.run_in_executor(self._threads, self._looked)
            except BaseException:
                self.view = None
                raise
            finally:
                self._took = loop.time() - self._begun
            return self.view

    async def _tick(self) -> None:
        self._ticks.tables += 1
        seen = None if self.view is None else self.view.mark
        try:
            while self._waiting:
                await asyncio.sleep(max(TICK_SECONDS, self._ticks.tables * SPACING_SECONDS, _PATIENCE * self._took))
                mark = (await self.look()).mark
                if mark != seen:
                    seen = mark
                    self.wake()
        finally:
            self._ticks.tables -= 1
            self._ticker = None
            self.wake()  # after an error: those that wait find out themselves

    def _looked(self) -> View:
        table, known = self._open_table(), self.view
        same = known is not None and known.verbs.table.schema is table.definition.schema
        verbs = known.verbs if known is not None and same else Verbs(
            table.definition, table.env, f"cannot read the stream of '{table.definition.name}'"
        )  # fmt: skip
        newest = verbs.reader.newest()
        with verbs.reader.store.lock:
            verbs.reader.store.up_to(newest)  # so that `idle` needs no look
        return View(verbs, newest)


def _taken(task: asyncio.Task[Any]) -> None:
    """Mark an error as seen: all that waited for the task may have gone away, or look themselves."""
    if not task.cancelled():
        task.exception()

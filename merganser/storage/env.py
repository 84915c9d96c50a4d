"""Env: the one object through which code reaches everything that is not a function of its arguments.

It holds storage, clock, fresh ids, random waits and the thread pool. A job in another process takes the storage with
it, and the time if the clock is not the machine's, and makes the rest anew.
"""

from __future__ import annotations

import math
import os
import queue
import random
import threading
import time
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar, overload

import pyarrow as pa

from merganser.errors import InvalidInputError
from merganser.progress.work import Progress
from merganser.storage.cache import Cache
from merganser.storage.cores import available_cores
from merganser.storage.protocol import Storage
from merganser.storage.spill import Spill
from merganser.values import dataclass

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
T = TypeVar("T")
R = TypeVar("R")
_NOTHING = object()
_ALONE_SECONDS: Final = 0.002
"""So long requests are made one by one before others help: much less than one takes at an object store."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TIME_MS_MAX: Final = 253_402_300_799_999


_thread: Final = threading.local()


def _enter_pool(owner: int) -> None:
    _thread.pool_of = owner


def _with_first_thread(pool: ThreadPoolExecutor) -> ThreadPoolExecutor:
    """Start the first thread of a pool, where no Ctrl-C arrives.

    Ctrl-C while a pool starts a thread leaves one that the pool does not know. It ends when another one of the pool
    does; if there is no other, the process never ends.
    """

    def start() -> None:
        with suppress(RuntimeError):  # the process ends, or has too many threads: the caller's own work says so
            pool.submit(int)

    starter = threading.Thread(target=start, name="merganser-starter", daemon=True)
    starter.start()
    starter.join()
    return pool


def _system_clock() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class _StoppedClock:
    now_ms: int

    def __call__(self) -> datetime:
        return _EPOCH + timedelta(milliseconds=self.now_ms)


@dataclass(slots=True)
class Env:
    """The effects of one process.

    Attributes:
        storage: where bytes live.
        clock: returns the current time, aware.
        cache: decoded immutable files.
        threads: how many jobs run side by side; with 1 nothing does, requests to the store neither.
        requests: how many requests to the store are under way at a time, where many are needed at once.
        crowded: by path of a table at which the last commit lost several attempts, (when the commit ended, how long an
            attempt took), both in `seconds`; see `commit.turns`.
    """

    storage: Storage
    clock: Callable[[], datetime] = _system_clock
    cache: Cache = field(default_factory=Cache)
    threads: int = field(default_factory=lambda: max(2, available_cores()))
    random: random.Random = field(default_factory=random.Random)
    progress: Progress = field(default_factory=Progress)
    requests: int = 16
    crowded: dict[str, tuple[float, float]] = field(default_factory=dict)
    _pool: ThreadPoolExecutor | None = None
    _request_pool: ThreadPoolExecutor | None = None
    _pool_process: int = 0
    _mapped: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the storage, and of a clock that was given the time it tells now. The rest is rebuilt.

        Such a clock need not pickle, and a job is one step of a replay.
        """
        if self.clock is _system_clock:
            return (Env, (self.storage,))
        now = self.clock if isinstance(self.clock, _StoppedClock) else _StoppedClock(self.now_ms())
        return (Env, (self.storage, now))

    def now_ms(self) -> int:
        """Return the current time in epoch milliseconds.

        Raises:
            InvalidInputError: the clock tells no time, or one that no snapshot can be of.
        """
        now = self.clock()
        if not isinstance(now, datetime):
            raise InvalidInputError(f"the clock returned {now!r:.60}. It returns the current time, an aware datetime.")
        if now.tzinfo is None:
            now = now.replace(tzinfo=UTC)
        now_ms = (now - _EPOCH) // timedelta(milliseconds=1)
        if not 0 <= now_ms <= _TIME_MS_MAX:
            raise InvalidInputError(f"the clock says {now}, and times of tables are of the years 1970 to 9999 (UTC).")
        return now_ms

    def new_id(self) -> str:
        """Return a fresh random uuid as text."""
        return str(uuid.uuid4())

    def seconds(self) -> float:
        """Return seconds of a clock that never goes back, to measure how long something took."""
        return time.perf_counter()

    def sleep_ms(self, duration_ms: float) -> None:
        """Wait. Only retries do."""
        time.sleep(duration_ms / 1000)

    def release_memory(self) -> None:
        """Give memory back to the system that the allocator keeps, in pieces too small or too scattered for use."""
        pa.default_memory_pool().release_unused()

    def spill(self) -> Spill:
        """Return a place on the local disk for rows that do not fit into memory; leaving it gives it back."""
        return Spill()

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Run `work` on the pool. Work that waits for it must not run on the pool itself."""
        return self._executor().submit(work)

    def map(self, work: Callable[[T], R], items: Iterable[T]) -> list[R]:
        """Return `work` of every item, in order, run on the pool. The first error stops the rest.

        Called by a thread of the pool itself it runs them in that thread: threads that wait for one another's
        queued work would wait for ever.
        """
        todo = list(items)
        if len(todo) <= 1 or self._in_pool():
            return [work(item) for item in todo]
        pool = self._executor()
        futures: list[Future[R]] = []
        with self._lock:
            self._mapped += len(todo)
        try:
            futures += (pool.submit(work, item) for item in todo)
            return [future.result() for future in futures]
        except BaseException:
            for future in futures:
                future.cancel()
            wait(futures)
            raise
        finally:
            with self._lock:
                self._mapped -= len(todo)

    def fetch(
        self, ask: Callable[[T], R], items: Iterable[T], *, at_once: int | None = None, waits: bool = False
    ) -> list[R]:
        """Return `ask` of every item, in order: for requests, which wait for the store and need no core.

        They run on threads of their own, more of them than there are cores, so that on an object store the time of
        many is little more than that of one. They are called when the caller is not through with all of them after two
        milliseconds. If the store is near, the caller makes requests alone in this time: waking a thread takes as long
        as such a read.
        A request may fetch in its turn: threads only help, so none waits for what has not begun. Of those that fail the
        first in order is raised; what has not begun then does not begin.

        Args:
            at_once: how many are under way at a time; `requests` of them if None.
            waits: each of them waits for the store, as a durable write does even on a local disk: threads help at once.
        """
        todo = list(items)
        workers = min(self.requests if at_once is None else at_once, len(todo))
        if workers <= 1 or self.threads == 1:
            return [ask(item) for item in todo]
        places, take = iter(range(len(todo))), threading.Lock()
        results: list[Any] = [None] * len(todo)
        errors: dict[int, BaseException] = {}
        over = threading.Event()
        helpers: list[Future[bool]] = []

        def run(until: float = math.inf) -> bool:
            """Make requests until a time. Return whether none is left to begin."""
            while not (errors or over.is_set()):
                if time.monotonic() > until:
                    return False
                with take:
                    place = next(places, None)
                if place is None:
                    break
                try:
                    results[place] = ask(todo[place])
                except Exception as error:
                    errors[place] = error
                except BaseException as error:  # an interrupt leaves at once
                    errors[place] = error
                    raise
            return True

        def call_helpers() -> bool:
            if over.wait(0 if alone or waits else _ALONE_SECONDS):
                return True
            helpers.extend([pool.submit(run) for _ in range(workers - 2)])
            return run()

        alone = self.storage.is_near and not waits
        try:
            if not (alone and run(time.monotonic() + _ALONE_SECONDS)):
                pool = self._requests()
                first = pool.submit(call_helpers)
                run()
                over.set()
                if not first.cancel():
                    wait([first])
                wait([helper for helper in helpers if not helper.cancel()])
        finally:
            over.set()
        if errors:
            raise errors[min(errors)]
        return results

    @overload
    def beside(self, a: Callable[[], A], b: Callable[[], B], /) -> tuple[A, B]: ...

    @overload
    def beside(self, a: Callable[[], A], b: Callable[[], B], c: Callable[[], C], /) -> tuple[A, B, C]: ...

    @overload
    def beside(self, *asks: Callable[[], A]) -> tuple[A, ...]: ...

    def beside(self, *asks: Callable[[], Any]) -> tuple[Any, ...]:
        """Return what each of a few requests returns; they go out side by side."""
        return tuple(self.fetch(lambda ask: ask(), asks))

    def gather(self, work: Callable[[T], Iterable[R]], items: Iterable[T], *, waiting_max: int = 2) -> Iterator[R]:
        """Yield what `work` yields of every item, run side by side, as it comes: in no order between items.

        At most `waiting_max` results wait to be taken, so memory is bounded. Leaving early stops the workers.
        """
        todo = list(items)
        if len(todo) <= 1:
            for item in todo:
                yield from work(item)
            return
        yield from self._gathered(work, todo, waiting_max)

    def ahead(self, items: Generator[T, None, None]) -> Generator[T, None, None]:
        """Yield items that a thread of its own makes while the caller works on the one before; one waits at most.

        Where `map` keeps all cores busy already, the caller makes them itself. Leaving early waits until the thread
        has ended.
        """
        busy = self.threads == 1 or self._mapped >= self.threads
        return items if busy else self._gathered(lambda source: source, [items], 1, wait_for_end=True)

    def _gathered(
        self, work: Callable[[T], Iterable[R]], todo: Sequence[T], waiting_max: int, *, wait_for_end: bool = False
    ) -> Generator[R, None, None]:
        results: queue.Queue[tuple[bool, Any]] = queue.Queue(waiting_max)
        left = threading.Event()
        remaining = iter(todo)
        take = threading.Lock()

        def put(entry: tuple[bool, Any]) -> None:
            while not left.is_set():
                try:
                    return results.put(entry, timeout=0.1)
                except queue.Full:
                    continue

        def run() -> None:
            try:
                while not left.is_set():
                    with take:
                        item = next(remaining, _NOTHING)
                    if item is _NOTHING:
                        break
                    for result in work(item):  # type: ignore[arg-type]
                        put((True, result))
                        del result  # it may be large, and the next one is made now
                        if left.is_set():
                            break
                put((False, None))
            except BaseException as error:
                put((False, error))

        workers = min(self.threads, len(todo))
        threads = [threading.Thread(target=run, name="merganser-gather", daemon=True) for _ in range(workers)]
        for thread in threads:
            thread.start()
        try:
            while workers:
                is_result, value = results.get()
                if is_result:
                    yield value
                elif value is not None:
                    raise value
                else:
                    workers -= 1
                del value
        finally:
            left.set()
            if wait_for_end:
                for thread in threads:
                    thread.join()

    def _executor(self) -> ThreadPoolExecutor:
        with self._lock:
            self._forget_pools_of_parent()
            if self._pool is None:
                pool = ThreadPoolExecutor(
                    self.threads, thread_name_prefix="merganser", initializer=_enter_pool, initargs=(id(self),)
                )
                self._pool = _with_first_thread(pool)
            return self._pool

    def _requests(self) -> ThreadPoolExecutor:
        with self._lock:
            self._forget_pools_of_parent()
            if self._request_pool is None:
                pool = ThreadPoolExecutor(self.requests, thread_name_prefix="merganser-request")
                self._request_pool = _with_first_thread(pool)
            return self._request_pool

    def _forget_pools_of_parent(self) -> None:
        if self._pool_process != os.getpid():  # threads do not survive a fork
            self._pool_process = os.getpid()
            self._pool = self._request_pool = None

    def _in_pool(self) -> bool:
        return getattr(_thread, "pool_of", None) == id(self)

"""A store that writes down what it is asked, as an object store would be asked, and how deep the requests lie.

Time is counted and not measured: each request takes one step, and requests that `Env` sends side by side take their
steps at once. So the depth of an operation, the steps that it takes, is what it waits for on a store whose requests
take equally long.
"""

from __future__ import annotations

import copy
import io
import itertools
import json
import random
import re
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import fastavro
import pyarrow as pa

from merganser.storage.env import Env
from merganser.storage.protocol import Entries, Sink, Storage, no_lock

T = TypeVar("T")
R = TypeVar("R")

_TAIL: Final = 64 * 1024
"""So many bytes come with the request that opens a file; see `storage.ranged_file`."""
_ID: Final = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|(?<=checkpoint/merganser/)[0-9a-f]{16}"
)
_NOW: Final = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
_METADATA: Final = re.compile("/(manifest|schema|snapshot|tag)/")
_SIZES: Final = re.compile(r"size$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Request:
    """One request.

    Attributes:
        step: when it is sent; the first of an operation at 1.
        verb: what is asked.
        path: of what, below the root of the warehouse.
    """

    step: int
    verb: str
    path: str


@dataclass(slots=True)
class Log:
    """The requests so far.

    Attributes:
        now: steps that the operation has taken.
        beside: in work that nobody waits for.
    """

    root: str
    now: int = 0
    beside: bool = False
    requests: list[Request] = field(default_factory=list)
    later: list[Request] = field(default_factory=list)

    def add(self, verb: str, path: str) -> None:
        """Write down a request, which takes one step."""
        self.now += 1
        (self.later if self.beside else self.requests).append(
            Request(self.now, verb, path.removeprefix(self.root) if path.startswith(self.root) else ".")
        )

    def clear(self) -> None:
        """Begin another operation."""
        self.now, self.requests, self.later = 0, [], []

    @property
    def depth(self) -> int:
        """The steps of the longest chain of requests."""
        return max((request.step for request in self.requests), default=0)


class TracedStorage:
    """Files of another storage, asked as an object store is asked.

    A task in another process gets the other storage: its requests are not written down.
    """

    def __init__(self, inner: Storage, log: Log) -> None:
        self.inner, self.log = inner, log

    def __reduce__(self) -> tuple[Any, ...]:
        return copy.copy, (self.inner,)

    @property
    def moves_at_once(self) -> bool:
        return False

    @property
    def is_near(self) -> bool:
        return False

    def read(self, path: str) -> bytes:
        self.log.add("get", path)
        return self.inner.read(path)

    def open(self, path: str) -> pa.NativeFile:
        self.log.add("get tail", path)
        return pa.PythonFile(_File(self.inner.read(path), path, self.log), mode="r")

    def exists(self, path: str) -> bool:
        self.log.add("head", path)
        return self.inner.exists(path)

    def list(self, path: str) -> Entries:
        self.log.add("list", path)
        return self.inner.list(path)

    def create(self, path: str, data: bytes) -> None:
        self.log.add("create", path)
        self.inner.create(path, data)

    def replace(self, path: str, data: bytes, *, durable: bool = False) -> None:
        self.log.add("put", path)
        self.inner.replace(path, data, durable=durable)

    def writer(self, path: str) -> Sink:
        return _Sink(self.inner.writer(path), path, self.log)  # type: ignore[return-value]

    def copy(self, pairs: Iterable[tuple[str, str]]) -> None:
        for pair in pairs:
            self.log.add("copy", pair[1])
            self.inner.copy([pair])

    def delete(self, paths: Iterable[str]) -> None:
        if todo := sorted(paths):
            self.log.add(f"delete {len(todo)}", todo[0])
            self.inner.delete(todo)

    def uncache(self, paths: Iterable[str]) -> None:
        pass

    def try_lock(self, directory: str) -> Callable[[], None] | None:
        return no_lock

    def delete_tree(self, path: str) -> None:
        self.log.add("delete tree", path)
        self.inner.delete_tree(path)

    def delete_empty(self, paths: Iterable[str]) -> None:
        pass

    def move_tree(self, source: str, target: str) -> None:
        self.log.add("move tree", target)
        self.inner.move_tree(source, target)


class _Sink:
    """A new file: one request, once it is closed."""

    def __init__(self, inner: Sink, path: str, log: Log) -> None:
        self._inner, self._path, self._log = inner, path, log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def close(self) -> int:
        self._log.add("put", self._path)
        return self._inner.close()


class _File(io.BytesIO):
    """A file whose last bytes are there; each read of others is a request."""

    def __init__(self, data: bytes, path: str, log: Log) -> None:
        super().__init__(data)
        self._path, self._log, self._there = path, log, len(data) - _TAIL

    def read(self, size: int | None = -1) -> bytes:
        if self.tell() < self._there and size != 0:
            self._log.add("get range", self._path)
        return super().read(size)


class TracedEnv(Env):
    """An environment whose threads are steps that are counted side by side, one after the other in this thread."""

    log: Log

    def __init__(self, log: Log, storage: TracedStorage) -> None:
        super().__init__(storage, clock=lambda: _NOW, threads=2, random=random.Random(1))  # type: ignore[arg-type]
        self.log = log
        self._ids = itertools.count(1)

    def new_id(self) -> str:
        return f"00000000-0000-4000-8000-{next(self._ids):012x}"

    def seconds(self) -> float:
        return 0.0

    def sleep_ms(self, duration_ms: float) -> None:
        raise AssertionError(f"a road of one writer waits {duration_ms} ms")

    def submit(self, work: Callable[[], T]) -> Future[T]:
        done: Future[T] = Future()
        now, self.log.beside = self.log.now, True
        try:
            done.set_result(work())
        finally:
            self.log.now, self.log.beside = now, False
        return done

    def map(self, work: Callable[[T], R], items: Iterable[T]) -> list[R]:
        return self._side_by_side(work, items, self.threads)

    def fetch(
        self, ask: Callable[[T], R], items: Iterable[T], *, at_once: int | None = None, waits: bool = False
    ) -> list[R]:
        return self._side_by_side(ask, items, self.requests if at_once is None else at_once)

    def gather(self, work: Callable[[T], Iterable[R]], items: Iterable[T], *, waiting_max: int = 2) -> Iterator[R]:
        for results in self._side_by_side(lambda item: [*work(item)], items, self.threads):
            yield from results

    def ahead(self, items: Generator[T, None, None]) -> Generator[T, None, None]:
        return items

    def _side_by_side(self, work: Callable[[T], R], items: Iterable[T], workers: int) -> list[R]:
        """Do the work of each item, at the time at which the first of some workers has time for it."""
        free, results = [self.log.now] * workers, []
        for item in items:
            worker = free.index(min(free))
            self.log.now = free[worker]
            results.append(work(item))
            free[worker] = self.log.now
        self.log.now = max(free)
        return results


def text_of(log: Log, title: str, files: dict[str, bytes]) -> str:
    """Return the requests of an operation as text, and the metadata files that it left.

    Random parts of names, and hashes of places, become numbers in the order in which they come up. Sizes are left out:
    they change with the libraries that compress and write footers.
    """
    numbers: dict[str, str] = {}

    def named(text: str) -> str:
        return _ID.sub(lambda found: numbers.setdefault(found[0], f"#{len(numbers) + 1}"), text)

    lines = [f"{title}: {len(log.requests)} requests, depth {log.depth}"]
    lines += [f"{one.step:4} {one.verb:9} {named(one.path)}" for one in log.requests]
    if log.later:
        lines += ["    nobody waits for:"]
        lines += [f"{one.step:4} {one.verb:9} {named(one.path)}" for one in log.later]
    for path in sorted(filter(_METADATA.search, files), key=named):
        if "/manifest/" in path:
            records = [*fastavro.reader(io.BytesIO(files[path]))]
            shown = "\n".join(json.dumps(_shown(record), default=_text) for record in records)
        else:
            found = json.loads(files[path])
            shown = json.dumps(_shown(found), indent=1) if isinstance(found, dict) else str(found)
        lines += ["", f"--- {named(path.removeprefix(log.root))}", named(shown)]
    return "\n".join(lines) + "\n"


def _shown(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: "..." if _SIZES.search(key) else _shown(inner) for key, inner in value.items()}
    return [_shown(inner) for inner in value] if isinstance(value, list) else value


def _text(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)

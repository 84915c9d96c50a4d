"""A storage that fails on purpose: at call n, in one of four ways, the same way every time.

===========  ===================================  =====================================================
fault        the store                            the caller
===========  ===================================  =====================================================
FAIL         does nothing                         gets StorageError
TEAR         does part of it, then breaks         gets StorageError
LOSE_REPLY   does all of it                       gets StorageError
STOP         does nothing, now and ever after     is gone: `Stopped`, from this call and every later one
===========  ===================================  =====================================================

Calls are those of `Storage` and `Sink.close` and `Sink.abort`, counted from 1 in the order they arrive; reads of a
file once it is open, and writes to an open stream, are not calls. What is torn depends on the verb: a sink leaves
the first half of its file, `create` and `replace` leave the path as it was (and, with an odd sum of seed and
call, half the bytes under a hidden name beside it), the deletes remove and `copy` copies the first half of what they
were given, and all others do nothing. `Sink.abort` promises to raise nothing, so it only fails to remove.

`run_every` drives work through every fault at every call.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import field
from enum import Enum
from typing import Any, Final, Generic, TypeVar

import pyarrow as pa

from merganser.errors import InvalidInputError, MerganserError, StorageError
from merganser.storage.moving import move_by_copies
from merganser.storage.protocol import Entries, Sink, Storage
from merganser.values import dataclass

T = TypeVar("T")


class Fault(Enum):
    """How a call goes wrong."""

    FAIL = "fail"
    TEAR = "tear"
    LOSE_REPLY = "lose-reply"
    STOP = "stop"


class Stopped(BaseException):
    """The process ended here. Not an Exception: nobody handles the end of their own process."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Which calls go wrong, and how.

    Attributes:
        fault: how.
        call: the first of them, counted from 1.
        call_count: how many in a row.
        verbs: names of the calls that count, as in `Call.verb`; all if empty.
        path_part: text in the paths of the calls that count.
        seed: varies what a torn call leaves behind.
    """

    fault: Fault
    call: int
    call_count: int = 1
    verbs: frozenset[str] = frozenset()
    path_part: str = ""
    seed: int = 0

    def counts(self, verb: str, path: str) -> bool:
        """Return whether a call is among those that are counted."""
        return (not self.verbs or verb in self.verbs) and self.path_part in path


@dataclass(frozen=True, slots=True)
class Call:
    """One call that arrived.

    Attributes:
        verb: the method: `read`, `create`, ..., or `close` and `abort` of a sink.
        path: the path it names, the first if there are several.
        fault: what happened to it.
    """

    verb: str
    path: str
    fault: Fault | None


@dataclass(slots=True)
class _State:
    plan: Plan | None
    counted: int = 0
    stopped: bool = False
    calls: list[Call] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


_STATES: Final[dict[int, _State]] = {}
_NUMBERS: Final = itertools.count(1)


class FaultyStorage:
    """A storage whose calls go wrong as a plan says.

    Copies that were pickled share plan and count with the original, in its process; elsewhere they do not load.

    Args:
        inner: where the bytes live. Look into it to see what was left behind.
        plan: which calls go wrong; none if None.
        copies: `move_tree` copies file by file, as an object store does, and each step of it is a call.
    """

    def __init__(self, inner: Storage, plan: Plan | None = None, *, copies: bool = False) -> None:
        self.inner = inner
        self._copies = copies
        self._number = next(_NUMBERS)
        _STATES[self._number] = self._state = _State(plan)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_reload, (self.inner, self._number, self._copies))

    @property
    def moves_at_once(self) -> bool:
        """Whether `move_tree` is one step."""
        return not self._copies and self.inner.moves_at_once

    @property
    def is_near(self) -> bool:
        """Whether requests are answered by this machine."""
        return self.inner.is_near

    @property
    def calls(self) -> tuple[Call, ...]:
        """All calls so far, counted or not."""
        with self._state.lock:
            return tuple(self._state.calls)

    @property
    def struck(self) -> Call | None:
        """The first call that went wrong."""
        return next((call for call in self.calls if call.fault is not None), None)

    def read(self, path: str) -> bytes:
        return self._whole("read", path, lambda: self.inner.read(path))

    def open(self, path: str) -> pa.NativeFile:
        return self._whole("open", path, lambda: self.inner.open(path))

    def exists(self, path: str) -> bool:
        return self._whole("exists", path, lambda: self.inner.exists(path))

    def list(self, path: str) -> Entries:
        return self._whole("list", path, lambda: self.inner.list(path))

    def create(self, path: str, data: bytes) -> None:
        self._whole("create", path, lambda: self.inner.create(path, data), lambda: self._leave_temporary(path, data))

    def replace(self, path: str, data: bytes, *, durable: bool = False) -> None:
        self._whole(
            "replace",
            path,
            lambda: self.inner.replace(path, data, durable=durable),
            lambda: self._leave_temporary(path, data),
        )

    def writer(self, path: str) -> Sink:
        return self._whole("writer", path, lambda: FaultySink(self, path, self.inner.writer(path)))

    def copy(self, pairs: Iterable[tuple[str, str]]) -> None:
        todo = [*pairs]
        self._whole(
            "copy",
            todo[0][0] if todo else "",
            lambda: self.inner.copy(todo),
            lambda: self.inner.copy(todo[: (len(todo) + 1) // 2]),
        )

    def delete(self, paths: Iterable[str]) -> None:
        todo = [*paths]
        first = todo[0] if todo else ""
        self._whole(
            "delete", first, lambda: self.inner.delete(todo), lambda: self.inner.delete(todo[: (len(todo) + 1) // 2])
        )

    def uncache(self, paths: Iterable[str]) -> None:
        self.inner.uncache(paths)  # it raises nothing, so it is no call that could go wrong

    def try_lock(self, directory: str) -> Callable[[], None] | None:
        return self.inner.try_lock(directory)  # it raises nothing, either

    def delete_tree(self, path: str) -> None:
        self._whole("delete_tree", path, lambda: self.inner.delete_tree(path), lambda: self._delete_half(path))

    def delete_empty(self, paths: Iterable[str]) -> None:
        todo = [*paths]
        self._whole("delete_empty", todo[0] if todo else "", lambda: self.inner.delete_empty(todo))

    def move_tree(self, source: str, target: str) -> None:
        if self._copies:

            def copy(names: list[str]) -> None:
                for name in names:
                    self.replace(f"{target}/{name}", self.read(f"{source}/{name}"))

            move_by_copies(self, source, target, below=lambda root: self._below(root, ""), copy=copy)
            return
        self._whole("move_tree", source, lambda: self.inner.move_tree(source, target))

    def _below(self, root: str, prefix: str) -> Iterator[str]:
        for entry in self.list(f"{root}/{prefix}".rstrip("/")):
            if entry.is_directory:
                yield from self._below(root, f"{prefix}{entry.name}/")
            else:
                yield prefix + entry.name

    def _whole(self, verb: str, path: str, work: Callable[[], T], tear: Callable[[], None] | None = None) -> T:
        """Do `work`, or what the plan has for this call."""
        fault = self._arrive(verb, path)
        if fault is None:
            return work()
        raise self._go_wrong(fault, verb, path, work, tear)

    def _go_wrong(
        self, fault: Fault, verb: str, path: str, work: Callable[[], object], tear: Callable[[], None] | None
    ) -> BaseException:
        """Do what a call with a fault still does, and return what it raises."""
        if fault is Fault.STOP:
            return Stopped(f"stopped at {verb} of '{path}'")
        try:
            if fault is Fault.LOSE_REPLY:
                work()
            elif fault is Fault.TEAR and tear is not None:
                tear()
        except MerganserError:
            pass  # an error is a reply, too
        return StorageError(f"cannot {verb} '{path}': made to fail ({fault.value}).", path=path)

    def _arrive(self, verb: str, path: str) -> Fault | None:
        """Count a call and return how it goes wrong."""
        state = self._state
        with state.lock:
            if state.stopped:
                raise Stopped(f"stopped before {verb} of '{path}'")
            fault = None
            if state.plan is not None and state.plan.counts(verb, path):
                state.counted += 1
                if 0 <= state.counted - state.plan.call < state.plan.call_count:
                    fault = state.plan.fault
                    state.stopped = fault is Fault.STOP
            state.calls.append(Call(verb, path, fault))
            return fault

    def _leave_temporary(self, path: str, data: bytes) -> None:
        state = self._state
        if state.plan is not None and (state.plan.seed + state.counted) % 2:
            directory, slash, name = path.rpartition("/")
            self.inner.replace(f"{directory}{slash}.{name}.{state.counted}.tmp", data[: len(data) // 2])

    def _delete_half(self, path: str) -> None:
        entries = sorted(self.inner.list(path), key=lambda entry: entry.name)
        for entry in entries[: (len(entries) + 1) // 2]:
            below = f"{path.rstrip('/')}/{entry.name}"
            if entry.is_directory:
                self.inner.delete_tree(below)
            else:
                self.inner.delete([below])


class FaultySink:
    """A sink whose `close` and `abort` count as calls of its storage."""

    def __init__(self, storage: FaultyStorage, path: str, inner: Sink) -> None:
        self.path = path
        self._storage = storage
        self._inner = inner

    @property
    def stream(self) -> pa.NativeFile:
        """The stream of the sink inside: writes to it are not calls."""
        return self._inner.stream

    @property
    def size(self) -> int:
        return self._inner.size

    @property
    def checksum(self) -> int:
        return self._inner.checksum

    def begin_sync(self) -> None:
        """Of the sink inside: like writes to its stream it is no call."""
        self._inner.begin_sync()

    def tail(self, size: int) -> bytes:
        """Of the sink inside: what was just written is at hand, and it is no call."""
        return self._inner.tail(size)

    def close(self) -> int:
        return self._storage._whole("close", self.path, self._inner.close, self._tear)

    def abort(self) -> None:
        fault = self._storage._arrive("abort", self.path)
        if fault is Fault.STOP:
            raise Stopped(f"stopped at abort of '{self.path}'")
        if fault in (None, Fault.LOSE_REPLY):
            self._inner.abort()

    def _tear(self) -> None:
        self._inner.close()
        data = self._storage.inner.read(self.path)
        self._storage.inner.replace(self.path, data[: len(data) // 2])


def _reload(inner: Storage, number: int, copies: bool) -> FaultyStorage:
    state = _STATES.get(number)
    if state is None:
        raise InvalidInputError("a FaultyStorage counts the calls of one process and cannot be loaded in another.")
    copy = FaultyStorage.__new__(FaultyStorage)
    copy.inner, copy._number, copy._state, copy._copies = inner, number, state, copies
    return copy


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """How one run with one fault ended.

    Attributes:
        plan: the fault.
        struck: the call it struck; None if the run made fewer calls, which then is the last run of this fault.
        result: what the work returned; None if it raised.
        error: what it raised: an error of ours, or Stopped.
    """

    plan: Plan
    struck: Call | None
    result: T | None
    error: MerganserError | Stopped | None


def run_every(
    build: Callable[[], Storage],
    work: Callable[[FaultyStorage], T],
    check: Callable[[Storage, Outcome[T]], None],
    *,
    faults: Iterable[Fault] = tuple(Fault),
    call_count: int = 1,
    verbs: frozenset[str] = frozenset(),
    path_part: str = "",
    seed: int = 0,
    runs_max: int = 10_000,
    copies: bool = False,
    first: int = 1,
    step: int = 1,
) -> int:
    """Run `work` once for every fault at every call, and `check` what is left after each run.

    Args:
        build: returns a fresh storage with the state before the work.
        work: what is tried. It may raise errors of ours and Stopped; any other error fails the run.
        check: asserts what must hold; it gets the storage without faults.
        faults: which faults.
        call_count: how many calls in a row go wrong.
        verbs: names of the calls that count; all if empty.
        path_part: text in the paths of the calls that count.
        seed: varies what torn calls leave behind.
        runs_max: more runs than this mean that the work never ends.
        copies: see `FaultyStorage`.
        first, step: which calls: every `step`-th from the `first`.

    Returns:
        How many runs there were. Each fault ends with a run that it does not strike.

    Raises:
        Exception: what `work` or `check` raised, with a note that names fault, call and seed.
    """
    runs = 0
    for fault in faults:
        for call in itertools.count(first, step):
            runs += 1
            if runs > runs_max:
                raise InvalidInputError(f"cannot run every fault: the work made more than {runs_max} calls.")
            plan = Plan(fault, call, call_count, verbs, path_part, seed)
            inner = build()
            faulty = FaultyStorage(inner, plan, copies=copies)
            try:
                check(inner, _run(faulty, plan, work))
            except Exception as error:
                struck = faulty.struck
                where = f"{struck.verb} of '{struck.path}'" if struck else "not reached"
                error.add_note(f"fault {fault.value} at call {call} ({where}), {call_count} in a row, seed {seed}")
                raise
            finally:
                _STATES.pop(faulty._number, None)
            if faulty.struck is None:
                break
    return runs


def _run(faulty: FaultyStorage, plan: Plan, work: Callable[[FaultyStorage], T]) -> Outcome[T]:
    try:
        result = work(faulty)
    except (MerganserError, Stopped) as error:
        return Outcome(plan, faulty.struck, None, error)
    return Outcome(plan, faulty.struck, result, None)

"""A streaming reader of a case: one that ends when it has caught up, and one that follows while steps run."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import pyarrow as pa

import merganser as mg
from tests.conformance.outcome import method

_POLL: Final = {"continuous.discovery-interval": "10 ms"}
_GRACE_SECONDS: Final = 0.4
"""A plan that nobody expected would come within it."""
_START_SECONDS: Final = 1.0
_WAIT_SECONDS: Final = 15.0


def started(table: mg.Table, options: dict[str, Any], *, follow: bool) -> Iterator[pa.Table]:
    """Return `Table.stream` with the options of a case: `scan.mode` is its start, `consumer-id` its consumer."""
    given = dict(options)
    arguments: dict[str, Any] = {"follow": follow}
    mode = given.pop("scan.mode", "default")
    if mode != "default":
        arguments["start"] = mode
    consumer = given.pop("consumer-id", None)
    if consumer is not None:
        arguments["consumer"] = consumer
    if follow:
        given = _POLL | given
    return iter(method(table, "stream")(**arguments, **given))


class Follower:
    """Collects the plans of a reader that goes on while steps run.

    `stream` is called here and now; the plans are taken in a thread, because a reader that has caught up waits.
    """

    def __init__(self, start: Callable[[], Iterator[pa.Table]]) -> None:
        self._plans: list[pa.Table] = []
        self._error: BaseException | None = None
        self._changed = threading.Condition()
        self._iterator = start()
        self._thread = threading.Thread(target=self._take, daemon=True)
        self._thread.start()
        self._wait(1, _START_SECONDS)

    def finished(self, expected_count: int) -> list[pa.Table]:
        """Return the plans that came, after as many as are expected and a moment more.

        Raises:
            The error of the reader, if it had one.
        """
        self._wait(expected_count, _WAIT_SECONDS)
        time.sleep(_GRACE_SECONDS)
        self.stop()
        if self._error is not None:
            raise self._error
        return list(self._plans)

    def stop(self) -> None:
        """End the thread: it is told so between two steps of its waiting."""
        if self._thread.is_alive():
            number = ctypes.c_ulong(self._thread.ident or 0)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(number, ctypes.py_object(_StopReading))
            self._thread.join(_START_SECONDS)

    def _take(self) -> None:
        try:
            for plan in self._iterator:
                with self._changed:
                    self._plans.append(plan)
                    self._changed.notify_all()
        except _StopReading:
            return
        except BaseException as error:
            self._error = error
        with self._changed:
            self._changed.notify_all()

    def _wait(self, count: int, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: len(self._plans) >= count or self._error is not None, seconds)


class _StopReading(BaseException):
    """Raised in the thread of a follower that is no longer wanted."""

"""Retries: how often, how long apart and until when work is tried again that lost a race or met a passing error.

What may be tried again is said by the type of an error, or by its `overtaken` (`errors.Overtaken`). After a lost race
nobody waits: the next attempt begins with a look at the newest state, which is all that it takes to win. Only requests
that a store refuses come again after a wait. The attempts of a commit have waits of their own (`commit.turns`).

Docs: decision 0081.
"""

from __future__ import annotations

import math
import random
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Final, Protocol, TypeVar

from merganser.values import dataclass

E = TypeVar("E", bound=Exception)
R = TypeVar("R")


class Timing(Protocol):
    """A clock, waits and random numbers. `Env` has them."""

    @property
    def random(self) -> random.Random:
        """Random numbers."""

    def seconds(self) -> float:
        """Return seconds of a clock that never goes back."""

    def sleep_ms(self, duration_ms: float) -> None:
        """Wait."""


class _Machine:
    """The timing of this machine, for code that has no `Env`."""

    random = random.Random()

    def seconds(self) -> float:
        return time.monotonic()

    def sleep_ms(self, duration_ms: float) -> None:
        time.sleep(duration_ms / 1000)

    def now(self) -> datetime:
        """Return the current time, aware."""
        return datetime.now(UTC)

    def new_id(self) -> str:
        """Return a fresh random uuid as text."""
        return str(uuid.uuid4())


MACHINE: Final = _Machine()


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt.

    Attributes:
        number: how many came before it.
    """

    number: int
    _policy: Retries
    _timing: Timing
    _ends: float

    @property
    def is_last(self) -> bool:
        """Whether none follows: it is the last one, or the deadline has passed since it began."""
        return self.number + 1 >= self._policy.attempts or self._timing.seconds() >= self._ends


@dataclass(frozen=True, slots=True)
class Retries:
    """A policy.

    Attributes:
        attempts: maximum number of attempts, the first one included.
        first_wait_ms: milliseconds before the second attempt; each later wait is `growth` times as long as the one
            before. Up to a quarter is added or taken away at random, so that writers that failed together do not come
            back together.
        longest_wait_ms: maximum of a wait.
        deadline_s: seconds since the first attempt began, after which an attempt that fails is the last one.
    """

    attempts: int
    first_wait_ms: float = 0
    growth: float = 4
    longest_wait_ms: float = math.inf
    deadline_s: float = math.inf

    def each(self, timing: Timing = MACHINE) -> Iterator[Attempt]:
        """Yield the attempts, and wait between them."""
        ends = timing.seconds() + self.deadline_s
        for number in range(self.attempts):
            if number and self.first_wait_ms:
                wait_ms = min(self.first_wait_ms * self.growth ** (number - 1), self.longest_wait_ms)
                timing.sleep_ms(wait_ms * (0.75 + timing.random.random() / 2))
            yield Attempt(number, self, timing, ends)

    def run(
        self,
        work: Callable[[], R],
        kind: type[E] | tuple[type[E], ...],
        may_retry: Callable[[E], bool] = lambda _: True,
        timing: Timing = MACHINE,
    ) -> R:
        """Return the result of the first attempt that does not fail, or raise the error of the last one.

        Args:
            kind: errors after which work is tried again; others are raised at once.
            may_retry: says of such an error whether work is tried again.
        """
        for attempt in self.each(timing):
            try:
                return work()
            except kind as error:
                if attempt.is_last or not may_retry(error):
                    raise
        raise AssertionError("the last attempt returns or raises")


RACE: Final = Retries(attempts=10)
"""For work that is done again from the newest state, since another process changed what it was done from."""

REREAD: Final = Retries(attempts=20)
"""For what takes a few requests, such as reading a state again after its snapshot has expired."""

STORE: Final = Retries(attempts=5, first_wait_ms=10)
"""For a request that a store refuses: one that is busy does so for some tenths of a second. Waits add up to 0.85 s."""
